/*
 * grammar_vocab.c: what grammars need of a tokenizer, made once for it and kept with it: the bytes of its tokens as a
 * trie in preorder (a node, then its subtree; its size says where the next sibling is), and automata that every grammar
 * uses.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

/* ---- the trie ---- */

typedef struct entry {
    const uint8_t *p;
    int32_t n, id;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = memcmp(x->p, y->p, (size_t)(x->n < y->n ? x->n : y->n));

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static bool is_added(const swl_tokenizer *t, int32_t id)
{
    for (int32_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id)
            return true;
    return false;
}

/* Added tokens, stop tokens and overlong ones stay outside. */
static int32_t list_tokens(const swl_tokenizer *t, entry *out)
{
    int32_t n = 0;

    for (int32_t id = 0; id < t->n_tokens; id++) {
        const swl_token *k = &t->tokens[id];

        if (k->n_bytes && k->n_bytes <= SWL_GRAMMAR_TOKEN_BYTES_MAX &&
            (t->flags[id] & (SWL_TOKEN_BASE | SWL_TOKEN_SPECIAL | SWL_TOKEN_STOP)) == SWL_TOKEN_BASE)
            out[n++] = (entry){(const uint8_t *)t->bytes + k->at, k->n_bytes, id};
    }
    return n;
}

static int32_t common(const entry *a, const entry *b)
{
    int32_t n = 0;

    while (n < a->n && n < b->n && a->p[n] == b->p[n])
        n++;
    return n;
}

static int32_t count_nodes(const entry *e, int32_t n)
{
    int64_t nodes = 0;

    for (int32_t i = 0; i < n; i++)
        nodes += e[i].n - (i ? common(&e[i - 1], &e[i]) : 0);
    return nodes < 1 << 24 ? (int32_t)nodes : -1;
}

static void link_nodes(swl_vocab *v, const entry *e, int32_t n)
{
    int32_t open[SWL_GRAMMAR_TOKEN_BYTES_MAX], depth = 0, at = 0;

    for (int32_t i = 0; i <= n; i++) {
        int32_t keep = i && i < n ? common(&e[i - 1], &e[i]) : 0;

        for (; depth > keep; depth--)
            v->nodes[open[depth - 1]].size_byte |= (uint32_t)(at - open[depth - 1]) << 8;
        for (; i < n && depth < e[i].n; depth++) {
            open[depth] = at;
            v->nodes[at++] = (swl_trie_node){e[i].p[depth], -1};
        }
        if (i < n)
            v->nodes[at - 1].token = e[i].id;
    }
    v->n_nodes = at;
}

static int32_t characters(const entry *e)
{
    int32_t n = 0;

    for (int32_t i = 0; i < e->n; i++)
        n += (e->p[i] & 0xC0) != 0x80;
    return n;
}

static swl_status make_trie(swl_vocab *v, swl_error *err)
{
    const swl_tokenizer *t = v->tokenizer;
    entry *e = swl_calloc((size_t)t->n_tokens + 1, sizeof *e);
    int32_t n = e ? list_tokens(t, e) : 0, n_nodes, n_kept = 0;

    for (int32_t i = 0; i < n; i++)
        if (!is_added(t, e[i].id))
            e[n_kept++] = e[i];
    n = n_kept;
    if (e)
        qsort(e, (size_t)n, sizeof *e, by_bytes);
    n_nodes = count_nodes(e, n);
    if (n_nodes >= 0)
        v->nodes = swl_calloc((size_t)n_nodes + 1, sizeof *v->nodes);
    v->n_words = (t->n_tokens + 31) / 32;
    v->usable = swl_calloc((size_t)v->n_words + 1, sizeof *v->usable);
    v->stops = swl_calloc((size_t)v->n_words + 1, sizeof *v->stops);
    if (!e || !v->nodes || !v->usable || !v->stops) {
        swl_free(e);
        return n_nodes < 0 ? swl_fail(err, SWL_E_BUDGET, "grammar: the vocabulary is too large")
                           : swl_fail(err, SWL_E_NOMEM, "grammar: out of memory for the vocabulary");
    }
    link_nodes(v, e, n);
    for (int32_t i = 0; i < n; i++) {
        int32_t chars = characters(&e[i]);

        v->usable[e[i].id / 32] |= UINT32_C(1) << e[i].id % 32;
        v->chars_max = chars > v->chars_max ? chars : v->chars_max;
    }
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (t->flags[id] & SWL_TOKEN_STOP)
            v->stops[id / 32] |= UINT32_C(1) << id % 32;
    swl_free(e);
    return SWL_OK;
}

/* ---- parts ---- */

static void make_words(swl_vocab *v, int32_t part, const char *a, const char *b, const char *c, const char *d)
{
    const char *const words[] = {a, b, c, d, NULL};

    v->part[part] = swl_bytes_strings(&v->parts, words);
}

static void make_number(swl_vocab *v, int32_t part, int64_t *work)
{
    swl_number_spec spec = {.integer = part == SWL_PART_INTEGER};
    const char *keyword;

    swl_number_automaton(&v->parts, &spec, &v->part[part], &keyword, work);
}

static swl_status make_parts(swl_vocab *v, swl_error *err)
{
    int64_t work = SWL_GRAMMAR_WORK_MAX;

    v->part[SWL_PART_STRING] = swl_text_string(&v->parts, &work);
    make_number(v, SWL_PART_NUMBER, &work);
    make_number(v, SWL_PART_INTEGER, &work);
    v->part[SWL_PART_TEXT] = swl_text_free(&v->parts, false, &work);
    v->part[SWL_PART_TEXT_NULL] = swl_text_free(&v->parts, true, &work);
    make_words(v, SWL_PART_BOOLEAN, "true", "false", NULL, NULL);
    make_words(v, SWL_PART_ANY_BOOLEAN, "true", "false", "True", "False");
    make_words(v, SWL_PART_NULL, "null", NULL, NULL, NULL);
    make_words(v, SWL_PART_OPEN_OBJECT, "{", NULL, NULL, NULL);
    make_words(v, SWL_PART_CLOSE_OBJECT, "}", NULL, NULL, NULL);
    make_words(v, SWL_PART_OPEN_ARRAY, "[", NULL, NULL, NULL);
    make_words(v, SWL_PART_CLOSE_ARRAY, "]", NULL, NULL, NULL);
    make_words(v, SWL_PART_COMMA, ",", ", ", NULL, NULL);
    make_words(v, SWL_PART_COLON, ":", ": ", NULL, NULL);
    make_words(v, SWL_PART_END_VALUE, "\n</parameter>", NULL, NULL, NULL);
    if (!v->parts.failed) {
        v->part[SWL_PART_BODY] = swl_bytes_step(&v->parts, v->part[SWL_PART_STRING], '"');
        v->entries = swl_calloc((size_t)v->parts.n_states, sizeof(swl_mask_entry *));
    }
    return v->entries ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
}

/* ---- once for a tokenizer ---- */

void swl_mask_entry_free(swl_mask_entry *e)
{
    if (!e)
        return;
    swl_free(e->bits);
    swl_free(e->exits);
    swl_free(e->exit_chars);
    swl_free(e->ids);
    swl_free(e->id_chars);
    swl_free(e);
}

void swl_vocab_free(swl_vocab *v)
{
    if (!v)
        return;
    for (int32_t i = 0; v->entries && i < v->parts.n_states; i++)
        swl_mask_entry_free(v->entries[i]);
    swl_free(v->entries);
    swl_bytes_deinit(&v->parts);
    swl_free(v->nodes);
    swl_free(v->usable);
    swl_free(v->stops);
    pthread_mutex_destroy(&v->lock);
    swl_free(v);
}

swl_status swl_vocab_get(const swl_vocab **out, const swl_tokenizer *t, swl_error *err)
{
    _Atomic(swl_vocab *) *place = &((swl_tokenizer *)t)->vocab;
    swl_vocab *v = atomic_load(place), *none = NULL;
    swl_status st;

    *out = v;
    if (v)
        return SWL_OK;
    v = swl_calloc(1, sizeof *v);
    if (!v)
        return swl_fail(err, SWL_E_NOMEM, "grammar: out of memory");
    pthread_mutex_init(&v->lock, NULL);
    v->tokenizer = t;
    st = make_trie(v, err);
    if (!st)
        st = make_parts(v, err);
    if (!st && atomic_compare_exchange_strong(place, &none, v)) {
        *out = v;
        return SWL_OK;
    }
    swl_vocab_free(v); /* it failed, or another thread was faster */
    *out = none;
    return st;
}
