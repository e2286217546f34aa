/*
 * grammar_mask.c: all allowed tokens at once. Where a state reads many bytes (inside a string), what it says about the
 * whole vocabulary is found out once and kept: the tokens that stay inside, and the places in the trie where it may end
 * before the token does; only from there on the rest of the grammar matters. All other configurations walk through the
 * trie together, which is short: they read few bytes each.
 */
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

enum {
    WIDE_MIN = 20,             /* bytes that a state reads to be worth an entry */
    ENTRY_BYTES_MAX = 16 << 20 /* of all entries of a grammar */
};

/* ---- entries ---- */

/* Where a state goes for every byte, for a few states at a time: most of the work is done in few of them. */
enum { TABLES = 256 };

typedef struct table {
    int32_t state; /* -1: empty */
    int32_t to[256];
} table;

typedef struct gathering {
    const swl_bytes *b;
    const swl_vocab *v;
    swl_mask_entry *e;
    bool count; /* list the tokens, too */
    int32_t body;
    table *tables; /* [TABLES] by a hash of the state */
    size_t cap_exits, cap_exit_chars, cap_ids, cap_id_chars;
    bool failed;
} gathering;

static void add_exit(gathering *g, int32_t node, int32_t chars)
{
    swl_mask_entry *e = g->e;

    if (!swl_grow((void **)&e->exits, &g->cap_exits, (size_t)e->n_exits + 1, sizeof *e->exits) ||
        !swl_grow((void **)&e->exit_chars, &g->cap_exit_chars, (size_t)e->n_exits + 1, sizeof *e->exit_chars)) {
        g->failed = true;
        return;
    }
    e->exits[e->n_exits] = node;
    e->exit_chars[e->n_exits++] = (uint16_t)chars;
}

static void add_token(gathering *g, int32_t id, int32_t chars, bool ends)
{
    swl_mask_entry *e = g->e;

    e->bits[id / 32] |= UINT32_C(1) << id % 32;
    if (!g->count)
        return;
    if (!swl_grow((void **)&e->ids, &g->cap_ids, (size_t)e->n_ids + 1, sizeof *e->ids) ||
        !swl_grow((void **)&e->id_chars, &g->cap_id_chars, (size_t)e->n_ids + 1, sizeof *e->id_chars)) {
        g->failed = true;
        return;
    }
    e->ids[e->n_ids] = id;
    e->id_chars[e->n_ids++] = (uint16_t)(2 * chars + ends);
}

static const int32_t *table_of(gathering *g, int32_t state)
{
    const swl_byte_state *s = &g->b->states[state];
    table *t = &g->tables[(uint32_t)state * UINT32_C(0x9E3779B9) >> 24];

    if (t->state == state)
        return t->to;
    t->state = state;
    memset(t->to, 0xFF, sizeof t->to);
    for (int32_t e = 0; e < s->n_edges; e++) {
        const swl_byte_edge *edge = &g->b->edges[s->edges + e];

        for (int32_t c = edge->lo; c <= edge->hi; c++)
            t->to[c] = edge->to;
    }
    return t->to;
}

/* Where the walk through the trie stands: what leads to the nodes at hand, and where they end. */
typedef struct level {
    const int32_t *to;
    int32_t end, chars;
    bool body;
} level;

static void gather_node(gathering *g, const swl_trie_node *n, int32_t at, int32_t to, int32_t chars)
{
    bool accept = g->b->states[to].accept;

    if (n->token >= 0)
        add_token(g, n->token, chars, accept);
    if (accept && swl_trie_size(n) > 1)
        add_exit(g, at, chars);
}

/* Goes through the trie from `state`. A level's table may make room for another one while deeper ones are at work: it
 * is looked up again then. */
static void gather(gathering *g, int32_t state)
{
    const swl_trie_node *nodes = g->v->nodes;
    int32_t states[SWL_GRAMMAR_TOKEN_BYTES_MAX + 1], depth = 0;
    level levels[SWL_GRAMMAR_TOKEN_BYTES_MAX + 1], *l = levels;

    states[0] = state;
    *l = (level){table_of(g, state), g->v->n_nodes, 0, state == g->body};
    for (int32_t i = 0; i < g->v->n_nodes && !g->failed;) {
        const swl_trie_node *n = &nodes[i];
        int32_t to, chars;

        if (i >= l->end) {
            while (i >= levels[depth].end)
                depth--;
            l = &levels[depth];
            l->to = table_of(g, states[depth]);
        }
        to = l->to[swl_trie_byte(n)];
        if (to < 0) {
            i += swl_trie_size(n);
            continue;
        }
        chars = l->chars + (l->body && swl_trie_byte(n) != '"');
        gather_node(g, n, i, to, chars);
        if (swl_trie_size(n) > 1) {
            states[++depth] = to;
            l = &levels[depth];
            *l = (level){table_of(g, to), i + swl_trie_size(n), chars, to == g->body};
        }
        i++;
    }
}

static swl_mask_entry *make_entry(const swl_grammar *g, int32_t state, bool count)
{
    gathering x = {.b = &g->bytes, .v = g->vocab, .count = count, .body = g->vocab->part[SWL_PART_BODY]};

    x.e = swl_calloc(1, sizeof *x.e);
    if (!x.e)
        return NULL;
    x.e->bits = swl_calloc((size_t)g->vocab->n_words + 1, sizeof *x.e->bits);
    x.tables = swl_calloc(TABLES, sizeof *x.tables);
    x.failed = !x.e->bits || !x.tables;
    for (int i = 0; x.tables && i < TABLES; i++)
        x.tables[i].state = -1;
    if (!x.failed)
        gather(&x, state);
    swl_free(x.tables);
    if (x.failed) {
        swl_mask_entry_free(x.e);
        return NULL;
    }
    x.e->n_bytes = (size_t)g->vocab->n_words * 4 + (x.cap_exits + x.cap_ids) * 6;
    return x.e;
}

static bool is_wide(const swl_bytes *b, int32_t state)
{
    const swl_byte_state *s = &b->states[state];
    int32_t n = 0;

    for (int32_t i = 0; i < s->n_edges && n < WIDE_MIN; i++)
        n += b->edges[s->edges + i].hi - b->edges[s->edges + i].lo + 1;
    return n >= WIDE_MIN;
}

/* Adds the list of tokens to an entry that others may be reading. */
static bool complete_entry(const swl_grammar *g, int32_t state, swl_mask_entry *e)
{
    swl_mask_entry *better = make_entry(g, state, true);

    if (!better)
        return false;
    e->ids = better->ids;
    e->id_chars = better->id_chars;
    e->n_ids = better->n_ids;
    better->ids = NULL;
    better->id_chars = NULL;
    swl_mask_entry_free(better);
    return true;
}

/* The entry of a state, NULL: no memory. *own: the grammar has enough of them, and the caller frees it. */
static swl_mask_entry *entry_of(const swl_grammar *g, int32_t state, bool count, bool *own)
{
    swl_grammar *mine = (swl_grammar *)g;
    swl_vocab *v = (swl_vocab *)g->vocab;
    bool part = state < v->parts.n_states;
    swl_mask_entry **place = part ? &v->entries[state] : &mine->entries[state], *e;

    *own = false;
    pthread_mutex_lock(&v->lock);
    e = *place;
    if (!e) {
        e = make_entry(g, state, count);
        *own = !part && g->entry_bytes >= ENTRY_BYTES_MAX;
        if (e && !*own) {
            *place = e;
            mine->entry_bytes += part ? 0 : e->n_bytes;
        }
    } else if (count && !e->ids && !complete_entry(g, state, e)) {
        e = NULL;
    }
    pthread_mutex_unlock(&v->lock);
    return e;
}

/* ---- masks ---- */

static void set_bit(uint32_t *bits, int32_t id)
{
    bits[id / 32] |= UINT32_C(1) << id % 32;
}

/* The bytes that any of the configurations reads, or more where that is quicker to say. */
static void first_bytes(const swl_walk *w, int32_t from, int32_t to, uint32_t bytes[8])
{
    memset(bytes, 0, 8 * sizeof *bytes);
    for (int32_t i = from; i < to; i++) {
        const swl_node *n = &w->g->nodes[w->configs[i].node];
        const swl_byte_state *s = &w->g->bytes.states[w->configs[i].state];
        const swl_byte_edge *edges = w->g->bytes.edges + s->edges;

        if (n->kind == SWL_NODE_END || n->kind == SWL_NODE_TOKEN)
            continue;
        for (int32_t e = 0; e < s->n_edges; e++) {
            if (edges[e].hi - edges[e].lo > WIDE_MIN) {
                memset(bytes, 0xFF, 8 * sizeof *bytes);
                return;
            }
            for (int32_t c = edges[e].lo; c <= edges[e].hi; c++)
                bytes[c / 32] |= UINT32_C(1) << c % 32;
        }
    }
}

static void walk_nodes(swl_walk *w, int32_t at, int32_t end, int32_t from, int32_t to, uint32_t *bits);

static void walk_node(swl_walk *w, int32_t at, int32_t from, int32_t to, uint32_t *bits)
{
    const swl_trie_node *n = &w->g->vocab->nodes[at];
    int32_t n_configs = w->n_configs, n_frames = w->n_frames;

    swl_walk_step(w, from, to, swl_trie_byte(n));
    if (w->n_configs > n_configs) {
        if (n->token >= 0)
            set_bit(bits, n->token);
        if (swl_trie_size(n) > 1)
            walk_nodes(w, at + 1, at + swl_trie_size(n), n_configs, w->n_configs, bits);
    }
    w->n_configs = n_configs;
    w->n_frames = n_frames;
}

/* Those of the nodes [at, end), siblings, whose byte is among some. */
static void walk_some(swl_walk *w, int32_t at, int32_t end, int32_t from, int32_t to, const uint32_t bytes[8],
                      uint32_t *bits)
{
    const swl_trie_node *nodes = w->g->vocab->nodes;

    for (; at < end; at += swl_trie_size(&nodes[at])) {
        uint8_t c = swl_trie_byte(&nodes[at]);

        if (bytes[c / 32] >> c % 32 & 1)
            walk_node(w, at, from, to, bits);
    }
}

/* Tokens whose nodes are [at, end) of the trie, siblings and what is below them, from the configurations [from, to). */
static void walk_nodes(swl_walk *w, int32_t at, int32_t end, int32_t from, int32_t to, uint32_t *bits)
{
    uint32_t bytes[8];

    first_bytes(w, from, to, bytes);
    walk_some(w, at, end, from, to, bytes, bits);
}

static void or_bits(uint32_t *to, const uint32_t *from, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        to[i] |= from[i];
}

/* The tokens that go on behind the places where the automaton of a configuration may end. */
static void leave(swl_walk *w, swl_config c, const swl_mask_entry *e, int32_t min, int32_t max, uint32_t *bits)
{
    const swl_trie_node *nodes = w->g->vocab->nodes;
    int32_t from = w->n_configs, n_frames = w->n_frames;
    uint32_t bytes[8];

    swl_walk_begin_set(w);
    swl_walk_enter(w, w->g->nodes[c.node].next, c.frame);
    first_bytes(w, from, w->n_configs, bytes);
    for (int32_t i = 0; i < e->n_exits && w->n_configs > from; i++) {
        int32_t at = e->exits[i], chars = c.count + e->exit_chars[i];

        if (chars >= min && (max < 0 || chars <= max))
            walk_some(w, at + 1, at + swl_trie_size(&nodes[at]), from, w->n_configs, bytes, bits);
    }
    w->n_configs = from;
    w->n_frames = n_frames;
}

/* The tokens of an entry that a count allows: those that end the string are not to end it too early, none to go too
 * far. */
static void set_counted(const swl_mask_entry *e, int32_t count, int32_t min, int32_t max, uint32_t *bits)
{
    for (int32_t i = 0; i < e->n_ids; i++) {
        int32_t chars = count + (e->id_chars[i] >> 1);
        bool ends = e->id_chars[i] & 1;

        if ((!ends || chars >= min) && (max < 0 || chars <= max))
            set_bit(bits, e->ids[i]);
    }
}

/* A configuration with an entry; false: it has none, and is to be walked. */
static bool mask_wide(swl_walk *w, swl_config c, uint32_t *bits)
{
    const swl_node *n = &w->g->nodes[c.node];
    const swl_vocab *v = w->g->vocab;
    int32_t min = n->kind == SWL_NODE_STRING ? n->b : 0, max = n->kind == SWL_NODE_STRING ? n->c : -1;
    bool counts = c.count < min || (max >= 0 && max - c.count < v->chars_max);
    swl_mask_entry *e;
    bool own;

    if (n->kind == SWL_NODE_TEXT || !is_wide(&w->g->bytes, c.state))
        return false;
    e = entry_of(w->g, c.state, counts, &own);
    if (!e)
        return false;
    if (counts)
        set_counted(e, c.count, min, max, bits);
    else
        or_bits(bits, e->bits, v->n_words);
    leave(w, c, e, min, max, bits);
    if (own)
        swl_mask_entry_free(e);
    return true;
}

void swl_grammar_mask(swl_grammar_state *s, uint32_t *bits)
{
    swl_walk *w = s->walk;
    const swl_vocab *v = w->g->vocab;
    int32_t n = w->n_current, begin = w->n_configs, end, n_frames = w->n_frames;

    memset(bits, 0, (size_t)v->n_words * sizeof *bits);
    for (int32_t i = 0; i < n; i++) {
        swl_config c = w->configs[i];
        const swl_node *node = &w->g->nodes[c.node];

        if (node->kind == SWL_NODE_END)
            or_bits(bits, v->stops, v->n_words);
        else if (node->kind == SWL_NODE_TOKEN)
            set_bit(bits, node->a);
    }
    for (int32_t i = 0; i < n; i++) {
        swl_config c = w->configs[i];
        const swl_node *node = &w->g->nodes[c.node];

        if (node->kind == SWL_NODE_END || node->kind == SWL_NODE_TOKEN || mask_wide(w, c, bits))
            continue;
        if (!swl_grow((void **)&w->configs, &w->cap_configs, (size_t)w->n_configs + 1, sizeof *w->configs))
            continue;
        w->configs[w->n_configs++] = c;
    }
    end = w->n_configs;
    if (end > begin)
        walk_nodes(w, 0, v->n_nodes, begin, end, bits);
    w->n_configs = begin;
    w->n_frames = n_frames;
}
