/*
 * grammar_bytes.c: deterministic automata over bytes. A piece (the words of a list, a machine's states, a pattern) is
 * made apart, and what of it can be reached and can still end is appended to a grammar's automaton.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

bool swl_grow(void **p, size_t *cap, size_t n, size_t size)
{
    size_t want = *cap ? *cap : 16;
    void *bigger;

    if (n <= *cap)
        return true;
    while (want < n)
        want *= 2;
    bigger = swl_realloc(*p, want, size);
    if (!bigger)
        return false;
    *p = bigger;
    *cap = want;
    return true;
}

void swl_bytes_deinit(swl_bytes *b)
{
    swl_free(b->states);
    swl_free(b->edges);
    memset(b, 0, sizeof *b);
}

static bool fail(swl_bytes *b, swl_status st)
{
    if (!b->failed)
        b->failed = st;
    return false;
}

int32_t swl_bytes_add(swl_bytes *b, int32_t n)
{
    size_t want = (size_t)b->n_states + (size_t)n;
    int32_t first = b->n_states;

    if (b->failed)
        return -1;
    if (want > SWL_GRAMMAR_STATES_MAX)
        return fail(b, SWL_E_BUDGET) ? 0 : -1;
    if (!swl_grow((void **)&b->states, &b->cap_states, want, sizeof *b->states))
        return fail(b, SWL_E_NOMEM) ? 0 : -1;
    memset(b->states + first, 0, (size_t)n * sizeof *b->states);
    b->n_states += n;
    return first;
}

void swl_bytes_fill(swl_bytes *b, int32_t state, const swl_byte_edge *edges, int32_t n, bool accept)
{
    swl_byte_edge *out;
    int32_t n_out = 0;

    if (b->failed)
        return;
    if (b->n_edges + n > SWL_GRAMMAR_EDGES_MAX) {
        fail(b, SWL_E_BUDGET);
        return;
    }
    if (!swl_grow((void **)&b->edges, &b->cap_edges, (size_t)b->n_edges + (size_t)n + 1, sizeof *b->edges)) {
        fail(b, SWL_E_NOMEM);
        return;
    }
    out = b->edges + b->n_edges;
    for (int32_t i = 0; i < n; i++) {
        if (n_out && out[n_out - 1].to == edges[i].to && out[n_out - 1].hi + 1 == edges[i].lo)
            out[n_out - 1].hi = edges[i].hi;
        else
            out[n_out++] = edges[i];
    }
    b->states[state].edges = b->n_edges;
    b->states[state].n_edges = (uint16_t)n_out;
    b->states[state].accept = accept;
    b->n_edges += n_out;
}

/* ---- appending, trimmed ---- */

/* Marks the states that can end: backwards from those that may. NULL: out of memory. */
static uint8_t *mark_live(const swl_bytes *b)
{
    size_t n = (size_t)b->n_states;
    uint8_t *live = swl_calloc(n + 1, 1);
    int32_t *first = swl_calloc(n + 2, sizeof *first), *from = swl_calloc((size_t)b->n_edges + 1, sizeof *from);
    int32_t *queue = swl_calloc(n + 1, sizeof *queue), n_queue = 0;

    if (!live || !first || !from || !queue) {
        swl_free(live);
        live = NULL;
        goto done;
    }
    for (int32_t e = 0; e < b->n_edges; e++)
        first[b->edges[e].to + 2]++;
    for (size_t i = 2; i < n + 2; i++)
        first[i] += first[i - 1];
    for (int32_t s = 0; s < b->n_states; s++) {
        for (int32_t e = 0; e < b->states[s].n_edges; e++)
            from[first[b->edges[b->states[s].edges + e].to + 1]++] = s;
        live[s] = b->states[s].accept;
        if (live[s])
            queue[n_queue++] = s;
    }
    for (int32_t q = 0; q < n_queue; q++)
        for (int32_t i = first[queue[q]]; i < first[queue[q] + 1]; i++)
            if (!live[from[i]]) {
                live[from[i]] = 1;
                queue[n_queue++] = from[i];
            }
done:
    swl_free(first);
    swl_free(from);
    swl_free(queue);
    return live;
}

/* Numbers the live states from `start` in the order of their discovery; the number of them. */
static int32_t number_states(const swl_bytes *b, int32_t start, const uint8_t *live, int32_t *id, int32_t *order)
{
    int32_t n = 0;

    memset(id, 0xFF, (size_t)b->n_states * sizeof *id);
    id[start] = 0;
    order[n++] = start;
    for (int32_t i = 0; i < n; i++) {
        const swl_byte_state *s = &b->states[order[i]];

        for (int32_t e = 0; e < s->n_edges; e++) {
            int32_t to = b->edges[s->edges + e].to;

            if (live[to] && id[to] < 0) {
                id[to] = n;
                order[n++] = to;
            }
        }
    }
    return n;
}

static void copy_state(swl_bytes *to, int32_t at, const swl_bytes *from, int32_t state, const int32_t *id, int32_t base)
{
    const swl_byte_state *s = &from->states[state];
    swl_byte_edge edges[256];
    int32_t n = 0;

    for (int32_t e = 0; e < s->n_edges; e++) {
        swl_byte_edge edge = from->edges[s->edges + e];

        if (id[edge.to] < 0)
            continue;
        edge.to = base + id[edge.to];
        edges[n++] = edge;
    }
    swl_bytes_fill(to, at, edges, n, s->accept);
    if (!to->failed)
        to->states[at].tail = s->tail;
}

int32_t swl_bytes_append(swl_bytes *to, const swl_bytes *from, int32_t start)
{
    uint8_t *live = NULL;
    int32_t *id = NULL, *order = NULL, n, base = -1;

    if (from->failed)
        fail(to, from->failed);
    if (to->failed || start < 0)
        return -1;
    live = mark_live(from);
    id = swl_calloc((size_t)from->n_states, sizeof *id);
    order = swl_calloc((size_t)from->n_states, sizeof *order);
    if (!live || !id || !order)
        fail(to, SWL_E_NOMEM);
    else if (live[start]) {
        n = number_states(from, start, live, id, order);
        base = swl_bytes_add(to, n);
        for (int32_t i = 0; base >= 0 && i < n; i++)
            copy_state(to, base + i, from, order[i], id, base);
    }
    swl_free(live);
    swl_free(id);
    swl_free(order);
    return to->failed ? -1 : base;
}

/* ---- words ---- */

static int by_bytes(const void *a, const void *b)
{
    const swl_word *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n ? memcmp(x->p, y->p, n) : 0;

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* The words w[0..n), sorted, have `depth` bytes in common, which lead to `state`. One level of the tree at a time:
 * `next` holds what is left to do. */
typedef struct word_range {
    size_t lo, hi, depth;
    int32_t state;
} word_range;

typedef struct word_tree {
    swl_bytes *b;
    const swl_word *w;
    word_range *todo;
    size_t n_todo, cap_todo;
} word_tree;

static void push_range(word_tree *t, size_t lo, size_t hi, size_t depth, int32_t state)
{
    if (!swl_grow((void **)&t->todo, &t->cap_todo, t->n_todo + 1, sizeof *t->todo)) {
        fail(t->b, SWL_E_NOMEM);
        return;
    }
    t->todo[t->n_todo++] = (word_range){lo, hi, depth, state};
}

static void split_range(word_tree *t, word_range r)
{
    swl_byte_edge edges[256];
    bool accept = false;
    size_t end;
    int32_t n = 0;

    for (; r.lo < r.hi && t->w[r.lo].n == r.depth; r.lo++)
        accept = true;
    for (size_t i = r.lo; i < r.hi && !t->b->failed; i = end) {
        uint8_t byte = (uint8_t)t->w[i].p[r.depth];

        for (end = i + 1; end < r.hi && (uint8_t)t->w[end].p[r.depth] == byte; end++)
            ;
        edges[n] = (swl_byte_edge){byte, byte, swl_bytes_add(t->b, 1)};
        push_range(t, i, end, r.depth + 1, edges[n].to);
        n++;
    }
    swl_bytes_fill(t->b, r.state, edges, n, accept);
}

int32_t swl_bytes_words(swl_bytes *b, const swl_word *words, size_t n)
{
    swl_word *sorted;
    word_tree t = {.b = b};
    int32_t start;

    if (!n || b->failed)
        return -1;
    sorted = swl_calloc(n, sizeof *sorted);
    if (!sorted)
        return fail(b, SWL_E_NOMEM) ? 0 : -1;
    memcpy(sorted, words, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_bytes);
    t.w = sorted;
    start = swl_bytes_add(b, 1);
    push_range(&t, 0, n, 0, start);
    while (t.n_todo && !b->failed)
        split_range(&t, t.todo[--t.n_todo]);
    swl_free(t.todo);
    swl_free(sorted);
    return b->failed ? -1 : start;
}

int32_t swl_bytes_strings(swl_bytes *b, const char *const *words)
{
    swl_word list[16];
    size_t n = 0;

    for (; words[n] && n < sizeof list / sizeof *list; n++)
        list[n] = (swl_word){words[n], strlen(words[n])};
    return swl_bytes_words(b, list, n);
}

/* ---- machines ---- */

enum { KEY_MAX = 32 };

typedef struct exploring {
    const swl_machine *m;
    swl_bytes piece;
    uint8_t *keys; /* [piece.n_states] of m->n_key bytes */
    size_t cap_keys;
    int32_t *table; /* hash -> state, -1: empty */
    size_t n_table; /* a power of two */
    int64_t *work;
} exploring;

static size_t hash_key(const void *key, size_t n)
{
    const uint8_t *p = key;
    uint64_t h = UINT64_C(0xCBF29CE484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001B3);
    return (size_t)(h ^ h >> 29);
}

static size_t slot_of(const exploring *x, const void *key)
{
    size_t n = x->m->n_key, i = hash_key(key, n) & (x->n_table - 1);

    while (x->table[i] >= 0 && memcmp(x->keys + (size_t)x->table[i] * n, key, n))
        i = (i + 1) & (x->n_table - 1);
    return i;
}

static bool rehash(exploring *x)
{
    size_t n = x->n_table ? x->n_table * 2 : 64;
    int32_t *table = swl_calloc(n, sizeof *table);

    if (!table)
        return fail(&x->piece, SWL_E_NOMEM);
    swl_free(x->table);
    x->table = table;
    x->n_table = n;
    memset(table, 0xFF, n * sizeof *table);
    for (int32_t i = 0; i < x->piece.n_states; i++)
        table[slot_of(x, x->keys + (size_t)i * x->m->n_key)] = i;
    return true;
}

static int32_t state_of(exploring *x, const void *key)
{
    size_t at, n = (size_t)x->piece.n_states;
    int32_t s;

    if (2 * n >= x->n_table && !rehash(x))
        return -1;
    at = slot_of(x, key);
    if (x->table[at] >= 0)
        return x->table[at];
    if (n >= SWL_GRAMMAR_PIECE_STATES_MAX)
        return fail(&x->piece, SWL_E_BUDGET) ? 0 : -1;
    if (!swl_grow((void **)&x->keys, &x->cap_keys, n + 1, x->m->n_key))
        return fail(&x->piece, SWL_E_NOMEM) ? 0 : -1;
    s = swl_bytes_add(&x->piece, 1);
    if (s < 0)
        return -1;
    memcpy(x->keys + n * x->m->n_key, key, x->m->n_key);
    x->table[at] = s;
    if (x->m->tail)
        x->piece.states[s].tail = x->m->tail(x->m->arg, key);
    return s;
}

static void explore_state(exploring *x, int32_t s)
{
    uint8_t from[KEY_MAX], to[KEY_MAX];
    const char *alphabet = x->m->alphabet;
    size_t n_alphabet = alphabet ? strlen(alphabet) : x->m->n_symbols ? x->m->n_symbols : 256;
    swl_byte_edge edges[256];
    int32_t n = 0;

    memcpy(from, x->keys + (size_t)s * x->m->n_key, x->m->n_key);
    for (size_t i = 0; i < n_alphabet && !x->piece.failed; i++) {
        uint8_t byte = alphabet ? (uint8_t)alphabet[i] : (uint8_t)i;

        memcpy(to, from, x->m->n_key);
        if (!x->m->step(x->m->arg, from, byte, to))
            continue;
        edges[n] = (swl_byte_edge){byte, byte, state_of(x, to)};
        n++;
    }
    *x->work -= (int64_t)n_alphabet;
    if (*x->work < 0)
        fail(&x->piece, SWL_E_BUDGET);
    swl_bytes_fill(&x->piece, s, edges, n, x->m->accept(x->m->arg, from));
}

int32_t swl_bytes_machine(swl_bytes *b, const swl_machine *m, const void *start, int64_t *work)
{
    exploring x = {.m = m, .work = work};
    int32_t out = -1;

    if (b->failed)
        return -1;
    state_of(&x, start);
    for (int32_t s = 0; s < x.piece.n_states && !x.piece.failed; s++)
        explore_state(&x, s);
    out = swl_bytes_append(b, &x.piece, 0);
    swl_bytes_deinit(&x.piece);
    swl_free(x.keys);
    swl_free(x.table);
    return out;
}
