/*
 * grammar.c: walking through a grammar. A state is a set of configurations, each a node, where it is in that node's
 * bytes, and a frame; frames are never changed, so that configurations share them. A byte moves every configuration on
 * or ends it. Trials (is this token allowed?) work on top of the same stacks and take off again what they put there.
 */
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

enum { SEARCHED_MAX = 24 }; /* configurations */

/* ---- frames and configurations ---- */

void swl_walk_begin_set(swl_walk *w)
{
    w->set = w->n_configs;
    w->set_frames = w->n_frames;
    w->seen_valid = false;
}

/* One like it that came into this set is used again: then equal configurations are seen to be equal. -1: no room. */
static int32_t push_frame(swl_walk *w, swl_frame f)
{
    for (int32_t i = w->n_frames - 1; i >= w->set_frames; i--)
        if (!memcmp(&w->frames[i], &f, sizeof f))
            return i;
    if (w->n_frames - w->set_frames >= SWL_GRAMMAR_NEW_FRAMES_MAX || w->n_frames >= SWL_GRAMMAR_FRAMES_MAX)
        return -1;
    if (!swl_grow((void **)&w->frames, &w->cap_frames, (size_t)w->n_frames + 1, sizeof f)) {
        w->failed = true;
        return -1;
    }
    w->frames[w->n_frames] = f;
    return w->n_frames++;
}

static void push_config(swl_walk *w, swl_config c)
{
    if (w->n_configs - w->set >= SWL_GRAMMAR_CONFIGS_MAX)
        return;
    if (!swl_grow((void **)&w->configs, &w->cap_configs, (size_t)w->n_configs + 1, sizeof c)) {
        w->failed = true;
        return;
    }
    w->configs[w->n_configs++] = c;
}

static uint32_t hash_config(const swl_config *c)
{
    return ((uint32_t)c->node * UINT32_C(0x9E3779B1) ^ (uint32_t)c->frame * UINT32_C(0x85EBCA77)) >> 20;
}

/* Large sets, as before a long list of optional properties, are not searched for what is surely not in them. */
static bool surely_new(swl_walk *w, const swl_config *c)
{
    uint32_t h = hash_config(c);
    bool is_new;

    if (w->n_configs - w->set < SEARCHED_MAX)
        return false;
    if (!w->seen_valid) {
        memset(w->seen, 0, sizeof w->seen);
        for (int32_t i = w->set; i < w->n_configs; i++) {
            uint32_t at = hash_config(&w->configs[i]);

            w->seen[at / 32] |= UINT32_C(1) << at % 32;
        }
        w->seen_valid = true;
    }
    is_new = !(w->seen[h / 32] >> h % 32 & 1);
    w->seen[h / 32] |= UINT32_C(1) << h % 32;
    return is_new;
}

static void push_new_config(swl_walk *w, int32_t node, int32_t state, int32_t frame)
{
    swl_config c = {node, state, frame, 0};

    if (!surely_new(w, &c))
        for (int32_t i = w->set; i < w->n_configs; i++)
            if (!memcmp(&w->configs[i], &c, sizeof c))
                return;
    push_config(w, c);
}

/* ---- what needs no byte ---- */

/* Goes from one node to the next; false: a configuration was put, or it ends here. */
static bool follow(swl_walk *w, int32_t *node, int32_t *frame)
{
    const swl_grammar *g = w->g;
    const swl_node *n = &g->nodes[*node];
    swl_frame f = w->frames[*frame];
    int32_t at = *node;

    *node = n->next;
    switch (n->kind) {
    case SWL_NODE_SPLIT:
        for (int32_t i = 0; i + 1 < n->b; i++)
            swl_walk_enter(w, g->lists[n->a + i], *frame);
        *node = n->b ? g->lists[n->a + n->b - 1] : -1;
        return n->b > 0;
    case SWL_NODE_CALL:
        if (f.depth + g->rules[n->a].height > SWL_GRAMMAR_DEPTH_MAX)
            return false;
        *frame = push_frame(w, (swl_frame){n->next, *frame, 0, f.depth + 1});
        *node = g->rules[n->a].entry;
        return *frame >= 0;
    case SWL_NODE_RETURN:
        *node = f.next;
        *frame = f.parent;
        return true;
    case SWL_NODE_COUNT:
        f.count += f.count < n->a;
        *frame = push_frame(w, f);
        return *frame >= 0;
    case SWL_NODE_AT_LEAST:
        return f.count >= n->a;
    case SWL_NODE_BELOW:
        return f.count < n->a;
    case SWL_NODE_FITS:
        return f.depth + g->values[n->a].height <= SWL_GRAMMAR_DEPTH_MAX;
    case SWL_NODE_TOKEN:
    case SWL_NODE_END:
        push_new_config(w, at, 0, *frame);
        return false;
    default:
        push_new_config(w, at, n->a, *frame);
        return g->bytes.states[n->a].accept;
    }
}

void swl_walk_enter(swl_walk *w, int32_t node, int32_t frame)
{
    while (follow(w, &node, &frame))
        ;
}

/* ---- bytes ---- */

int32_t swl_walk_counted(const swl_grammar *g, const swl_node *n, int32_t state, uint8_t byte, int32_t *count)
{
    int32_t to, chars;

    if (n->kind == SWL_NODE_STRING) {
        if (state == g->vocab->part[SWL_PART_BODY]) {
            if (byte == '"' ? *count < n->b : n->c >= 0 && *count >= n->c)
                return -1;
            *count += byte != '"' && (n->c >= 0 || *count < n->b);
        }
        return swl_bytes_step(&g->bytes, state, byte);
    }
    /* Free text is counted with what may turn out to end it. */
    to = swl_bytes_step(&g->bytes, state, byte);
    if (to < 0)
        return -1;
    *count += (byte & 0xC0) != 0x80 && (n->c >= 0 || *count < n->b + 16);
    chars = *count - g->bytes.states[to].tail;
    if ((n->c >= 0 && chars > n->c) || (g->bytes.states[to].accept && chars < n->b))
        return -1;
    /* What cannot end it yet must still be able to become a part of it. */
    if (n->c >= 0 && chars<n->b && * count> n->c)
        return -1;
    return to;
}

void swl_walk_step(swl_walk *w, int32_t begin, int32_t end, uint8_t byte)
{
    const swl_grammar *g = w->g;

    swl_walk_begin_set(w);
    for (int32_t i = begin; i < end; i++) {
        swl_config c = w->configs[i];
        const swl_node *n = &g->nodes[c.node];

        if (n->kind == SWL_NODE_BYTES)
            c.state = swl_bytes_step(&g->bytes, c.state, byte);
        else if (n->kind == SWL_NODE_STRING || n->kind == SWL_NODE_TEXT)
            c.state = swl_walk_counted(g, n, c.state, byte, &c.count);
        else
            continue;
        if (c.state < 0)
            continue;
        if (g->bytes.states[c.state].n_edges)
            push_config(w, c);
        if (g->bytes.states[c.state].accept)
            swl_walk_enter(w, n->next, c.frame);
    }
}

/* ---- tokens ---- */

static bool has_bit(const uint32_t *bits, int32_t id)
{
    return bits[id / 32] >> id % 32 & 1;
}

/* Puts the configurations behind a token on top; where they begin. None: it is not allowed. */
static int32_t take_token(swl_walk *w, int32_t id)
{
    const swl_vocab *v = w->g->vocab;
    int32_t begin = 0, end = w->n_current, n_bytes;
    const char *p = swl_tokenizer_token(v->tokenizer, id, &n_bytes);

    swl_walk_begin_set(w);
    for (int32_t i = 0; i < end; i++)
        if (w->g->nodes[w->configs[i].node].kind == SWL_NODE_TOKEN && w->g->nodes[w->configs[i].node].a == id)
            swl_walk_enter(w, w->g->nodes[w->configs[i].node].next, w->configs[i].frame);
    if (w->n_configs > end || !p || !has_bit(v->usable, id))
        return end;
    for (int32_t i = 0; i < n_bytes && begin < end; i++) {
        swl_walk_step(w, begin, end, (uint8_t)p[i]);
        begin = end;
        end = w->n_configs;
    }
    return begin;
}

static bool is_stop(const swl_walk *w, int32_t id)
{
    return id >= 0 && id < w->g->vocab->tokenizer->n_tokens && has_bit(w->g->vocab->stops, id);
}

bool swl_grammar_allows(const swl_grammar_state *s, int32_t id)
{
    swl_walk *w = s->walk;
    int32_t n_configs = w->n_configs, n_frames = w->n_frames;
    bool allowed, closed;

    if (is_stop(w, id))
        return swl_grammar_complete(s, &closed);
    if (id < 0 || id >= w->g->vocab->tokenizer->n_tokens)
        return false;
    allowed = take_token(w, id) < w->n_configs;
    w->n_configs = n_configs;
    w->n_frames = n_frames;
    return allowed;
}

/* Drops frames that no configuration needs. A parent always lies below its child. */
static swl_status sweep_frames(swl_walk *w, swl_error *err)
{
    int32_t *to = swl_calloc((size_t)w->n_frames, sizeof *to), n = 0;

    if (!to)
        return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
    for (int32_t i = 0; i < w->n_configs; i++)
        for (int32_t f = w->configs[i].frame; f >= 0 && !to[f]; f = w->frames[f].parent)
            to[f] = 1;
    for (int32_t i = 0; i < w->n_frames; i++) {
        if (!to[i])
            continue;
        to[i] = n;
        w->frames[n] = w->frames[i];
        if (w->frames[n].parent >= 0)
            w->frames[n].parent = to[w->frames[n].parent];
        n++;
    }
    for (int32_t i = 0; i < w->n_configs; i++)
        w->configs[i].frame = to[w->configs[i].frame];
    w->n_frames = n;
    swl_free(to);
    return SWL_OK;
}

swl_status swl_grammar_accept(swl_grammar_state *s, int32_t id, swl_error *err)
{
    swl_walk *w = s->walk;
    int32_t n_frames = w->n_frames, from;
    bool closed;

    if (is_stop(w, id) && swl_grammar_complete(s, &closed))
        return SWL_OK;
    if (id < 0 || id >= w->g->vocab->tokenizer->n_tokens || is_stop(w, id))
        return swl_fail(err, SWL_E_ARG, "grammar: the token %d is not allowed here", (int)id);
    w->failed = false;
    from = take_token(w, id);
    if (from == w->n_configs) {
        w->n_configs = w->n_current;
        w->n_frames = n_frames;
        if (w->failed)
            return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
        return swl_fail(err, SWL_E_ARG, "grammar: the token %d is not allowed here", (int)id);
    }
    w->n_configs -= from;
    w->n_current = w->n_configs;
    memmove(w->configs, w->configs + from, (size_t)w->n_configs * sizeof *w->configs);
    if (w->n_frames <= s->n_frames_kept)
        return SWL_OK;
    if (sweep_frames(w, NULL) == SWL_OK) /* without memory it can wait */
        s->n_frames_kept = 2 * w->n_frames + 256;
    return SWL_OK;
}

bool swl_grammar_complete(const swl_grammar_state *s, bool *closed)
{
    const swl_walk *w = s->walk;
    int32_t n_ends = 0;

    for (int32_t i = 0; i < w->n_current; i++)
        n_ends += w->g->nodes[w->configs[i].node].kind == SWL_NODE_END;
    *closed = n_ends > 0 && n_ends == w->n_current;
    return n_ends > 0;
}

/* ---- states ---- */

static swl_status new_state(swl_grammar_state **out, const swl_grammar *g, swl_error *err)
{
    swl_grammar_state *s = swl_calloc(1, sizeof *s);

    *out = s;
    if (s)
        s->walk = swl_calloc(1, sizeof *s->walk);
    if (!s || !s->walk)
        return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
    s->walk->g = g;
    s->n_frames_kept = 256;
    return SWL_OK;
}

swl_status swl_grammar_begin(swl_grammar_state **out, const swl_grammar *g, swl_error *err)
{
    swl_status st = new_state(out, g, err);
    swl_walk *w;

    if (!st) {
        w = (*out)->walk;
        if (push_frame(w, (swl_frame){-1, -1, 0, 0}) == 0)
            swl_walk_enter(w, g->root, 0);
        w->n_current = w->n_configs;
        if (w->failed)
            st = swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
        else if (!w->n_current)
            st = swl_fail(err, SWL_E_ARG, "grammar: nothing can be written that it allows");
    }
    if (st) {
        swl_grammar_end(*out);
        *out = NULL;
    }
    return st;
}

void swl_grammar_end(swl_grammar_state *s)
{
    if (!s)
        return;
    if (s->walk) {
        swl_free(s->walk->configs);
        swl_free(s->walk->frames);
    }
    swl_free(s->walk);
    swl_free(s);
}

/* ---- grammars ---- */

swl_status swl_grammar_create(swl_grammar **out, const swl_tokenizer *t, swl_error *err)
{
    const swl_vocab *v;
    swl_grammar *g;
    swl_status st = swl_vocab_get(&v, t, err);

    *out = NULL;
    if (st)
        return st;
    g = swl_calloc(1, sizeof *g);
    if (!g)
        return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
    g->vocab = v;
    g->bytes.states = swl_calloc((size_t)v->parts.n_states, sizeof *g->bytes.states);
    g->bytes.edges = swl_calloc((size_t)v->parts.n_edges, sizeof *g->bytes.edges);
    if (!g->bytes.states || !g->bytes.edges) {
        swl_grammar_free(g);
        return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
    }
    memcpy(g->bytes.states, v->parts.states, (size_t)v->parts.n_states * sizeof *g->bytes.states);
    memcpy(g->bytes.edges, v->parts.edges, (size_t)v->parts.n_edges * sizeof *g->bytes.edges);
    g->bytes.n_states = v->parts.n_states;
    g->bytes.n_edges = v->parts.n_edges;
    g->bytes.cap_states = (size_t)v->parts.n_states;
    g->bytes.cap_edges = (size_t)v->parts.n_edges;
    *out = g;
    return SWL_OK;
}

void swl_grammar_free(swl_grammar *g)
{
    if (!g)
        return;
    for (int32_t i = 0; g->entries && i < g->bytes.n_states; i++)
        swl_mask_entry_free(g->entries[i]);
    swl_free(g->entries);
    swl_bytes_deinit(&g->bytes);
    swl_free(g->nodes);
    swl_free(g->lists);
    swl_free(g->options);
    swl_free(g->values);
    swl_free(g->rules);
    swl_free(g);
}

static int32_t height_of_value(const swl_grammar *g, const swl_value *v)
{
    int32_t best = SWL_HEIGHT_NEVER;

    for (int32_t i = 0; i < v->n_options; i++) {
        const swl_option *o = &g->options[v->options + i];
        int32_t height = o->kind == SWL_NODE_CALL ? g->rules[o->a].height : 0;

        best = height < best ? height : best;
    }
    return best;
}

static int32_t height_of_rule(const swl_grammar *g, const swl_rule *r)
{
    int32_t most = 0;

    for (int32_t i = 0; i < r->n_needs; i++) {
        int32_t height = g->values[g->lists[r->needs + i]].height;

        most = height > most ? height : most;
    }
    return most >= SWL_HEIGHT_NEVER ? SWL_HEIGHT_NEVER : most + 1;
}

/* Heights grow from what needs nothing; those above the limit are never used, whatever they are. */
static void find_heights(swl_grammar *g)
{
    for (int32_t i = 0; i < g->n_rules; i++)
        g->rules[i].height = SWL_HEIGHT_NEVER;
    for (int32_t i = 0; i < g->n_values; i++)
        g->values[i].height = SWL_HEIGHT_NEVER;
    for (int32_t round = 0; round < SWL_GRAMMAR_DEPTH_MAX + 2; round++) {
        for (int32_t i = 0; i < g->n_values; i++)
            g->values[i].height = height_of_value(g, &g->values[i]);
        for (int32_t i = 0; i < g->n_rules; i++)
            g->rules[i].height = height_of_rule(g, &g->rules[i]);
    }
}

swl_status swl_grammar_seal(swl_grammar *g, swl_error *err)
{
    swl_grammar_state *s;
    swl_status st;

    find_heights(g);
    g->entries = swl_calloc((size_t)g->bytes.n_states, sizeof(swl_mask_entry *));
    if (!g->entries)
        return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
    st = swl_grammar_begin(&s, g, err);
    swl_grammar_end(s);
    return st;
}
