/*
 * grammar_regex.c: patterns to automata. Characters that no set tells apart are one class; over classes each pattern
 * becomes a nondeterministic automaton (Thompson) and that a deterministic one (subsets); several patterns and the
 * length run side by side; and at the end each class is spelled in the bytes of its characters, as JSON writes them or
 * as they are.
 *
 * A pattern matches anywhere in a string: its beginning is entered before every character, and once it has matched
 * nothing can undo that.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_regex.h"

enum { PATTERNS_MAX = 6, NFA_MAX = 100000, CLASSES_MAX = 255, MEMBERS_MAX = 1 << 23 };

/* ---- classes of characters ---- */

typedef struct classes {
    int32_t *from; /* [n_parts + 1] the code points that begin a part */
    int32_t *of;   /* [n_parts] the class of each part */
    int32_t n_parts, n;
    uint8_t *members; /* [n_sets][n] */
} classes;

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static bool cut_parts(classes *k, const swl_regex *r)
{
    int32_t n = 0, out = 0;

    k->from = swl_calloc(2 * (size_t)r->n_ranges + 4, sizeof *k->from);
    if (!k->from)
        return false;
    /* Surrogates are no characters: they are parts of their own. */
    k->from[n++] = 0;
    k->from[n++] = 0xD800;
    k->from[n++] = 0xE000;
    for (int32_t i = 0; i < r->n_ranges; i++) {
        k->from[n++] = r->ranges[i].lo;
        k->from[n++] = r->ranges[i].hi + 1;
    }
    qsort(k->from, (size_t)n, sizeof *k->from, by_value);
    for (int32_t i = 0; i < n; i++)
        if (k->from[i] <= SWL_CODE_MAX && (!out || k->from[out - 1] != k->from[i]))
            k->from[out++] = k->from[i];
    k->from[out] = SWL_CODE_MAX + 1;
    k->n_parts = out;
    return true;
}

/* Splits every class into its members in the set and the others. */
static void refine(classes *k, const swl_regex *r, swl_code_set set, int32_t *split)
{
    const swl_code_range *range = r->ranges + set.first, *end = range + set.n;
    int32_t n = 0;

    memset(split, 0xFF, 2 * (size_t)k->n * sizeof *split);
    for (int32_t i = 0; i < k->n_parts; i++) {
        int32_t *to;

        while (range < end && range->hi < k->from[i])
            range++;
        to = &split[2 * k->of[i] + (range < end && range->lo <= k->from[i])];
        if (*to < 0)
            *to = n++;
        k->of[i] = *to;
    }
    k->n = n;
}

static void note_members(classes *k, const swl_regex *r, int32_t set)
{
    const swl_code_range *range = r->ranges + r->sets[set].first, *end = range + r->sets[set].n;

    for (int32_t i = 0; i < k->n_parts; i++) {
        while (range < end && range->hi < k->from[i])
            range++;
        if (range < end && range->lo <= k->from[i])
            k->members[(size_t)set * (size_t)k->n + (size_t)k->of[i]] = 1;
    }
}

static swl_status make_classes(classes *k, const swl_regex *r)
{
    int32_t *split;

    if (!cut_parts(k, r))
        return SWL_E_NOMEM;
    *r->work -= (int64_t)k->n_parts * (r->n_sets + 1) * 2;
    if (*r->work < 0)
        return SWL_E_BUDGET;
    k->of = swl_calloc((size_t)k->n_parts + 1, sizeof *k->of);
    split = swl_calloc(2 * (size_t)k->n_parts + 2, sizeof *split);
    k->n = 1;
    for (int32_t i = 0; k->of && split && i < r->n_sets; i++)
        refine(k, r, r->sets[i], split);
    swl_free(split);
    if (!k->of || !split)
        return SWL_E_NOMEM;
    if (k->n > CLASSES_MAX || (int64_t)k->n * r->n_sets > MEMBERS_MAX)
        return SWL_E_BUDGET;
    k->members = swl_calloc((size_t)k->n * (size_t)r->n_sets + 1, 1);
    for (int32_t i = 0; k->members && i < r->n_sets; i++)
        note_members(k, r, i);
    return k->members ? SWL_OK : SWL_E_NOMEM;
}

static void free_classes(classes *k)
{
    swl_free(k->from);
    swl_free(k->of);
    swl_free(k->members);
}

/* ---- the nondeterministic automaton ---- */

typedef enum nfa_kind { NFA_SET, NFA_SPLIT, NFA_BEGIN, NFA_END, NFA_MATCH } nfa_kind;

typedef struct nfa_state {
    nfa_kind kind;
    int32_t set, to, or ;
} nfa_state;

typedef struct nfa {
    const swl_regex *r;
    nfa_state *states;
    int32_t n;
    size_t cap;
    swl_status failed;
} nfa;

static int32_t nfa_add(nfa *a, nfa_kind kind, int32_t set, int32_t to, int32_t or)
{
    if (a->failed)
        return 0;
    if (a->n >= NFA_MAX)
        a->failed = SWL_E_BUDGET;
    else if (!swl_grow((void **)&a->states, &a->cap, (size_t)a->n + 1, sizeof *a->states))
        a->failed = SWL_E_NOMEM;
    if (a->failed)
        return 0;
    a->states[a->n] = (nfa_state){kind, set, to, or };
    return a->n++;
}

static int32_t build(nfa *a, int32_t node, int32_t next);

static int32_t build_repeat(nfa *a, const swl_regex_node *n, int32_t next)
{
    int32_t start = next, loop, body;

    if (n->max < 0) {
        start = loop = nfa_add(a, NFA_SPLIT, 0, 0, next);
        body = build(a, n->a, loop);
        if (!a->failed)
            a->states[loop].to = body;
    }
    for (int32_t i = n->min; i < n->max && !a->failed; i++)
        start = nfa_add(a, NFA_SPLIT, 0, build(a, n->a, start), next);
    for (int32_t i = 0; i < n->min && !a->failed; i++)
        start = build(a, n->a, start);
    return start;
}

/* The state from which the node is read, to go on at `next`. */
static int32_t build(nfa *a, int32_t node, int32_t next)
{
    const swl_regex_node *n = &a->r->nodes[node];
    int32_t start = next, i;

    if (a->failed)
        return 0;
    switch (n->kind) {
    case SWL_REGEX_EMPTY:
        return next;
    case SWL_REGEX_SET:
        return nfa_add(a, NFA_SET, n->a, next, 0);
    case SWL_REGEX_BEGIN:
        return nfa_add(a, NFA_BEGIN, 0, next, 0);
    case SWL_REGEX_END:
        return nfa_add(a, NFA_END, 0, next, 0);
    case SWL_REGEX_REPEAT:
        return build_repeat(a, n, next);
    case SWL_REGEX_CAT:
        for (i = n->a; i >= 0; i = a->r->nodes[i].before)
            start = build(a, i, start);
        return start;
    default:
        start = build(a, n->a, next);
        for (i = a->r->nodes[n->a].before; i >= 0; i = a->r->nodes[i].before)
            start = nfa_add(a, NFA_SPLIT, 0, build(a, i, next), start);
        return start;
    }
}

/* ---- the deterministic one ---- */

typedef struct dfa {
    nfa a;
    const classes *k;
    int32_t start;
    /* states: sets of nfa states, [sets[i], sets[i + 1]) of members, ascending */
    int32_t *members, *sets, *to; /* to: [n][k->n], -1: nothing is left */
    uint8_t *accept, *first;      /* first: before the first character */
    int32_t n, n_members;
    size_t cap_members, cap_sets, cap_to, cap_accept, cap_first;
    int32_t *table;
    size_t n_table;
    /* work */
    int32_t *stack, *mark, *found, n_found, stamp, n_again, *again; /* again: what begins before every character */
    int64_t *work;
    swl_status failed;
} dfa;

/* Follows what needs no character. BEGIN only at the beginning; END only at the end. */
static void close_over(dfa *d, int32_t from, bool begin, bool end)
{
    int32_t n = 0;

    d->stack[n++] = from;
    while (n) {
        int32_t s = d->stack[--n];
        const nfa_state *x = &d->a.states[s];

        if (d->mark[s] == d->stamp)
            continue;
        d->mark[s] = d->stamp;
        --*d->work;
        if (x->kind == NFA_SPLIT) {
            d->stack[n++] = x->or ;
            d->stack[n++] = x->to;
        } else if ((x->kind == NFA_BEGIN && begin) || (x->kind == NFA_END && end)) {
            d->stack[n++] = x->to;
        }
        if (x->kind == NFA_SET || x->kind == NFA_MATCH || x->kind == NFA_END)
            d->found[d->n_found++] = s;
    }
}

static size_t hash_set(const int32_t *p, int32_t n, bool first)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325) + first;

    for (int32_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)p[i]) * UINT64_C(0x100000001B3);
    return (size_t)(h ^ h >> 31);
}

static size_t set_slot(const dfa *d, const int32_t *p, int32_t n, bool first)
{
    size_t i = hash_set(p, n, first) & (d->n_table - 1);

    for (; d->table[i] >= 0; i = (i + 1) & (d->n_table - 1)) {
        int32_t s = d->table[i], at = d->sets[s];

        if (d->first[s] == first && d->sets[s + 1] - at == n && !memcmp(d->members + at, p, (size_t)n * sizeof *p))
            break;
    }
    return i;
}

static bool set_rehash(dfa *d)
{
    size_t n = d->n_table ? 2 * d->n_table : 64;
    int32_t *table = swl_calloc(n, sizeof *table);

    if (!table)
        return false;
    swl_free(d->table);
    d->table = table;
    d->n_table = n;
    memset(table, 0xFF, n * sizeof *table);
    for (int32_t s = 0; s < d->n; s++)
        table[set_slot(d, d->members + d->sets[s], d->sets[s + 1] - d->sets[s], d->first[s])] = s;
    return true;
}

static bool dfa_room(dfa *d)
{
    size_t n = (size_t)d->n + 1;

    return swl_grow((void **)&d->members, &d->cap_members, (size_t)d->n_members + (size_t)d->n_found + 1,
                    sizeof *d->members) &&
           swl_grow((void **)&d->sets, &d->cap_sets, n + 1, sizeof *d->sets) &&
           swl_grow((void **)&d->to, &d->cap_to, n * (size_t)d->k->n, sizeof *d->to) &&
           swl_grow((void **)&d->accept, &d->cap_accept, n, 1) && swl_grow((void **)&d->first, &d->cap_first, n, 1) &&
           (2 * n < d->n_table || set_rehash(d));
}

/* Whether the string may end in the set that was found; a match in it swallows everything else. */
static bool settle(dfa *d, bool begin)
{
    int32_t n = d->n_found;
    bool accept = false;

    for (int32_t i = 0; i < n; i++)
        if (d->a.states[d->found[i]].kind == NFA_MATCH) {
            d->found[0] = d->found[i];
            d->n_found = 1;
            return true;
        }
    d->stamp++;
    for (int32_t i = 0; i < n; i++)
        if (d->a.states[d->found[i]].kind == NFA_END)
            close_over(d, d->found[i], begin, true);
    for (int32_t i = n; i < d->n_found; i++)
        accept |= d->a.states[d->found[i]].kind == NFA_MATCH;
    d->n_found = n;
    return accept;
}

/* The state of the set in d->found, -1 when it is empty. */
static int32_t intern(dfa *d, bool first)
{
    bool accept = settle(d, first);
    size_t at;

    if (!d->n_found || d->failed)
        return -1;
    qsort(d->found, (size_t)d->n_found, sizeof *d->found, by_value);
    if (d->n >= SWL_GRAMMAR_PIECE_STATES_MAX || *d->work < 0)
        d->failed = SWL_E_BUDGET;
    else if (!dfa_room(d))
        d->failed = SWL_E_NOMEM;
    if (d->failed)
        return -1;
    at = set_slot(d, d->found, d->n_found, first);
    if (d->table[at] >= 0)
        return d->table[at];
    memcpy(d->members + d->n_members, d->found, (size_t)d->n_found * sizeof *d->found);
    d->sets[d->n] = d->n_members;
    d->n_members += d->n_found;
    d->sets[d->n + 1] = d->n_members;
    d->accept[d->n] = accept;
    d->first[d->n] = first;
    d->table[at] = d->n;
    return d->n++;
}

static void step_class(dfa *d, int32_t s, int32_t class)
{
    bool matched = d->a.states[d->members[d->sets[s]]].kind == NFA_MATCH;
    int32_t to;

    d->n_found = 0;
    d->stamp++;
    for (int32_t i = d->sets[s]; i < d->sets[s + 1]; i++) {
        const nfa_state *x = &d->a.states[d->members[i]];

        if (x->kind == NFA_SET && d->k->members[(size_t)x->set * (size_t)d->k->n + (size_t) class])
            close_over(d, x->to, false, false);
    }
    *d->work -= d->sets[s + 1] - d->sets[s];
    for (int32_t i = 0; i < d->n_again; i++)
        if (d->mark[d->again[i]] != d->stamp) {
            d->mark[d->again[i]] = d->stamp;
            d->found[d->n_found++] = d->again[i];
        }
    to = matched ? s : intern(d, false);
    if (!d->failed)
        d->to[(size_t)s * (size_t)d->k->n + (size_t) class] = to;
}

static bool dfa_begin(dfa *d, int32_t root)
{
    size_t n;
    int32_t start = nfa_add(&d->a, NFA_MATCH, 0, 0, 0);

    start = build(&d->a, root, start);
    d->failed = d->a.failed;
    n = (size_t)d->a.n + 1;
    /* A state is found once in a set and once more at its end; each pushes at most two. */
    d->stack = swl_calloc(2 * n + 4, sizeof *d->stack);
    d->mark = swl_calloc(n, sizeof *d->mark);
    d->found = swl_calloc(2 * n + 2, sizeof *d->found);
    d->again = swl_calloc(n, sizeof *d->again);
    if (!d->failed && (!d->stack || !d->mark || !d->found || !d->again))
        d->failed = SWL_E_NOMEM;
    if (d->failed)
        return false;
    d->stamp = 1;
    close_over(d, start, false, false);
    memcpy(d->again, d->found, (size_t)d->n_found * sizeof *d->again);
    d->n_again = d->n_found;
    d->n_found = 0;
    d->stamp++;
    close_over(d, start, true, false);
    d->start = intern(d, true);
    return !d->failed;
}

static swl_status make_dfa(dfa *d, const swl_regex *r, const classes *k, int32_t root)
{
    d->a.r = r;
    d->k = k;
    d->work = r->work;
    if (!dfa_begin(d, root))
        return d->failed;
    for (int32_t s = 0; s < d->n && !d->failed; s++)
        for (int32_t c = 0; c < k->n && !d->failed; c++)
            step_class(d, s, c);
    return d->failed;
}

static void free_dfa(dfa *d)
{
    swl_free(d->a.states);
    swl_free(d->members);
    swl_free(d->sets);
    swl_free(d->to);
    swl_free(d->accept);
    swl_free(d->first);
    swl_free(d->table);
    swl_free(d->stack);
    swl_free(d->mark);
    swl_free(d->found);
    swl_free(d->again);
}

/* ---- side by side, with the length ---- */

typedef struct product {
    const dfa *d;
    size_t n;
    int32_t min, max;
} product;

typedef struct product_state {
    int32_t at[PATTERNS_MAX];
    int32_t chars; /* counted as far as it matters */
    int32_t reserved;
} product_state;

static bool product_step(const void *arg, const void *from, uint8_t class, void *to)
{
    const product *p = arg;
    product_state *s = to;

    (void)from;
    if (p->max >= 0 && s->chars >= p->max)
        return false;
    if (p->max >= 0 || s->chars < p->min)
        s->chars++;
    for (size_t i = 0; i < p->n; i++) {
        s->at[i] = p->d[i].to[(size_t)s->at[i] * (size_t)p->d[i].k->n + class];
        if (s->at[i] < 0)
            return false;
    }
    return true;
}

static bool product_accept(const void *arg, const void *state)
{
    const product *p = arg;
    const product_state *s = state;

    for (size_t i = 0; i < p->n; i++)
        if (!p->d[i].accept[s->at[i]])
            return false;
    return s->chars >= p->min;
}

static int32_t make_product(swl_bytes *over, const product *p, const classes *k, int64_t *work)
{
    swl_machine m = {.n_key = sizeof(product_state),
                     .n_symbols = (size_t)k->n,
                     .arg = p,
                     .step = product_step,
                     .accept = product_accept};
    product_state start = {.chars = 0};

    for (size_t i = 0; i < p->n; i++) {
        start.at[i] = p->d[i].start;
        if (start.at[i] < 0)
            return -1;
    }
    return swl_bytes_machine(over, &m, &start, work);
}

/* ---- spelling ---- */

/* What the characters from `lo` to `hi` lead to. */
typedef struct segment {
    int32_t lo, hi, to;
} segment;

typedef struct speller {
    const classes *k;
    const swl_bytes *over; /* the automaton over classes */
    swl_bytes out;
    bool raw;
    segment *list;
    int32_t n;
    int32_t *table; /* states inside characters, by their edges */
    size_t n_table, n_inside;
    int64_t *work;
} speller;

static size_t edge_slot(const speller *s, const swl_byte_edge *edges, int32_t n)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    size_t i;

    for (i = 0; i < (size_t)n; i++)
        h = (h ^ (uint32_t)edges[i].to ^ (uint64_t)edges[i].lo << 32 ^ (uint64_t)edges[i].hi << 40) *
            UINT64_C(0x100000001B3);
    for (i = (size_t)(h ^ h >> 31) & (s->n_table - 1); s->table[i] >= 0; i = (i + 1) & (s->n_table - 1)) {
        const swl_byte_state *x = &s->out.states[s->table[i]];
        const swl_byte_edge *e = s->out.edges + x->edges;
        int32_t same = 0;

        while (same < n && x->n_edges == n && e[same].lo == edges[same].lo && e[same].hi == edges[same].hi &&
               e[same].to == edges[same].to)
            same++;
        if (same == n)
            break;
    }
    return i;
}

static bool edge_rehash(speller *s)
{
    size_t n = s->n_table ? 2 * s->n_table : 256, n_old = s->n_table;
    int32_t *old = s->table, *table = swl_calloc(n, sizeof *table);

    if (!table)
        return false;
    s->table = table;
    s->n_table = n;
    memset(table, 0xFF, n * sizeof *table);
    for (size_t i = 0; i < n_old; i++)
        if (old[i] >= 0) {
            const swl_byte_state *x = &s->out.states[old[i]];

            table[edge_slot(s, s->out.edges + x->edges, x->n_edges)] = old[i];
        }
    swl_free(old);
    return true;
}

static void put_edge(swl_byte_edge *edges, int32_t *n, int32_t lo, int32_t hi, int32_t to)
{
    if (to < 0)
        return;
    if (*n && edges[*n - 1].to == to && edges[*n - 1].hi + 1 == lo)
        edges[*n - 1].hi = (uint8_t)hi;
    else
        edges[(*n)++] = (swl_byte_edge){(uint8_t)lo, (uint8_t)hi, to};
}

/* The one state inside a character that has these edges; -1: there are none. */
static int32_t inside(speller *s, const swl_byte_edge *edges, int32_t n)
{
    size_t at;
    int32_t state;

    if (!n || s->out.failed)
        return -1;
    if (2 * (s->n_inside + 1) > s->n_table && !edge_rehash(s)) {
        s->out.failed = SWL_E_NOMEM;
        return -1;
    }
    at = edge_slot(s, edges, n);
    if (s->table[at] >= 0)
        return s->table[at];
    state = swl_bytes_add(&s->out, 1);
    swl_bytes_fill(&s->out, state < 0 ? 0 : state, edges, n, false);
    if (s->out.failed)
        return -1;
    s->n_inside++;
    return s->table[at] = state;
}

/* The state that reads `level` more bytes of the characters from `base` on; of the segments, [*i, n) may concern them.
 */
static int32_t spell_block(speller *s, int32_t level, int32_t base, const segment *seg, int32_t n)
{
    int32_t size = 1 << 6 * level, step = size / 64, n_edges = 0;
    swl_byte_edge edges[64];

    while (n && seg->hi < base) {
        seg++;
        n--;
    }
    if (!n || seg->lo >= base + size)
        return -1;
    *s->work -= 16;
    if (seg->lo <= base && seg->hi >= base + size - 1) { /* all of them go the same way */
        put_edge(edges, &n_edges, 0x80, 0xBF, level == 1 ? seg->to : spell_block(s, level - 1, base, seg, n));
        return inside(s, edges, n_edges);
    }
    for (int32_t i = 0; i < 64; i++) {
        int32_t at = base + i * step;

        while (n && seg->hi < at) {
            seg++;
            n--;
        }
        if (!n || seg->lo >= at + step)
            continue;
        put_edge(edges, &n_edges, 0x80 + i, 0x80 + i, level == 1 ? seg->to : spell_block(s, level - 1, at, seg, n));
    }
    return inside(s, edges, n_edges);
}

/* The segments within [lo, hi], clipped. */
static int32_t clip(const speller *s, int32_t lo, int32_t hi, segment *out)
{
    int32_t n = 0;

    for (int32_t i = 0; i < s->n; i++) {
        segment x = s->list[i];

        if (x.hi < lo || x.lo > hi)
            continue;
        out[n++] = (segment){x.lo < lo ? lo : x.lo, x.hi > hi ? hi : x.hi, x.to};
    }
    return n;
}

static void spell_long(speller *s, segment *part, swl_byte_edge *edges, int32_t *n)
{
    static const struct {
        int32_t lo, hi, level;
        uint8_t first, last, mark;
    } rows[] = {{0x80, 0x7FF, 1, 0xC2, 0xDF, 0xC0},
                {0x800, 0xFFFF, 2, 0xE0, 0xEF, 0xE0},
                {0x10000, SWL_CODE_MAX, 3, 0xF0, 0xF4, 0xF0}};

    for (size_t r = 0; r < 3; r++) {
        int32_t n_part = clip(s, rows[r].lo, rows[r].hi, part);

        for (int32_t lead = rows[r].first; lead <= rows[r].last; lead++)
            put_edge(edges, n, lead, lead,
                     spell_block(s, rows[r].level, (lead - rows[r].mark) << 6 * rows[r].level, part, n_part));
    }
}

static int32_t leads_to(const speller *s, int32_t code)
{
    int32_t lo = 0, hi = s->n;

    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;

        if (s->list[mid].hi < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->list[lo].lo <= code ? s->list[lo].to : -1;
}

/* Control characters without a short form: \u00XX, from the digits on. */
static int32_t spell_control(speller *s)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    swl_byte_edge edges[24], rows[2];
    int32_t n, n_rows = 0;

    for (int32_t high = 0; high < 2; high++) {
        n = 0;
        for (int32_t i = 0; digits[i]; i++) {
            int32_t code = high * 16 + (i < 16 ? i : i - 6);

            if (!strchr("\b\t\n\f\r", code) || !code)
                put_edge(edges, &n, digits[i], digits[i], leads_to(s, code));
        }
        put_edge(rows, &n_rows, '0' + high, '0' + high, inside(s, edges, n));
    }
    for (int32_t i = 0; i < 2; i++) {
        edges[0] = (swl_byte_edge){'0', '0', inside(s, rows, n_rows)};
        n_rows = edges[0].to >= 0;
        rows[0] = edges[0];
    }
    return inside(s, rows, n_rows);
}

static int32_t spell_escape(speller *s)
{
    static const char names[] = "\"\\bfnrt", codes[] = "\"\\\b\f\n\r\t";
    swl_byte_edge edges[8];
    int32_t n = 0;

    for (int32_t i = 0; names[i]; i++)
        put_edge(edges, &n, names[i], names[i], leads_to(s, codes[i]));
    put_edge(edges, &n, 'u', 'u', spell_control(s));
    return inside(s, edges, n);
}

static void spell_short(speller *s, int32_t end, swl_byte_edge *edges, int32_t *n)
{
    for (int32_t c = s->raw ? 1 : 0x20; c < 0x80; c++) {
        if (c == '"' && !s->raw)
            put_edge(edges, n, c, c, end);
        else if (c == '\\' && !s->raw)
            put_edge(edges, n, c, c, spell_escape(s));
        else
            put_edge(edges, n, c, c, leads_to(s, c));
    }
}

/* Where each character leads from a state over classes. */
static void read_segments(speller *s, int32_t state)
{
    const swl_byte_state *x = &s->over->states[state];
    int32_t to_of[256];

    memset(to_of, 0xFF, sizeof to_of);
    for (int32_t e = 0; e < x->n_edges; e++)
        for (int32_t c = s->over->edges[x->edges + e].lo; c <= s->over->edges[x->edges + e].hi; c++)
            to_of[c] = s->over->edges[x->edges + e].to;
    s->n = 0;
    for (int32_t i = 0; i < s->k->n_parts; i++) {
        int32_t lo = s->k->from[i], hi = s->k->from[i + 1] - 1, to = to_of[s->k->of[i]];

        if (to < 0 || lo == 0xD800 || (lo > 0xD800 && lo < 0xE000))
            continue;
        if (s->n && s->list[s->n - 1].to == to && s->list[s->n - 1].hi + 1 == lo)
            s->list[s->n - 1].hi = hi;
        else
            s->list[s->n++] = (segment){lo, hi, to};
    }
    *s->work -= s->k->n_parts + 16 * s->n + 256;
    if (*s->work < 0 && !s->out.failed)
        s->out.failed = SWL_E_BUDGET;
}

/* States of `over` keep their numbers; behind them the one behind the closing quote, then what is inside characters. */
static int32_t spell(swl_bytes *b, speller *s, int32_t start)
{
    int32_t n_over = s->over->n_states, end, n;
    segment *part = swl_calloc((size_t)s->k->n_parts + 2, sizeof *part);
    swl_byte_edge edges[512], quote;

    s->list = swl_calloc((size_t)s->k->n_parts + 1, sizeof *s->list);
    end = swl_bytes_add(&s->out, n_over + 1) + n_over;
    if (!part || !s->list)
        s->out.failed = SWL_E_NOMEM;
    for (int32_t i = 0; i < n_over && !s->out.failed; i++) {
        bool accept = s->over->states[i].accept;

        n = 0;
        read_segments(s, i);
        spell_short(s, accept ? end : -1, edges, &n);
        spell_long(s, part, edges, &n);
        swl_bytes_fill(&s->out, i, edges, n, accept && s->raw);
    }
    if (!s->out.failed)
        swl_bytes_fill(&s->out, end, edges, 0, true);
    if (!s->raw) {
        quote = (swl_byte_edge){'"', '"', start};
        start = swl_bytes_add(&s->out, 1);
        if (start >= 0)
            swl_bytes_fill(&s->out, start, &quote, 1, false);
    }
    swl_free(part);
    return swl_bytes_append(b, &s->out, start);
}

/* ---- all of it ---- */

static swl_status run(swl_bytes *b, const swl_regex *r, const int32_t *roots, const swl_string_spec *spec,
                      int32_t *start)
{
    dfa d[PATTERNS_MAX] = {0};
    product p = {d, spec->n_patterns, spec->min, spec->max};
    classes k = {0};
    swl_bytes over = {0};
    speller s = {.k = &k, .over = &over, .raw = spec->raw, .work = r->work};
    swl_status st = make_classes(&k, r);
    int32_t at;

    for (size_t i = 0; i < spec->n_patterns && !st; i++)
        st = make_dfa(&d[i], r, &k, roots[i]);
    if (!st) {
        at = make_product(&over, &p, &k, r->work);
        *start = at < 0 ? -1 : spell(b, &s, at);
        st = over.failed ? over.failed : b->failed;
    }
    for (size_t i = 0; i < spec->n_patterns; i++)
        free_dfa(&d[i]);
    free_classes(&k);
    swl_bytes_deinit(&over);
    swl_bytes_deinit(&s.out);
    swl_free(s.list);
    swl_free(s.table);
    return st;
}

swl_status swl_regex_automaton(swl_bytes *b, const swl_string_spec *spec, int32_t *start, size_t *which,
                               const char **why, int64_t *work)
{
    swl_regex r = {.work = work};
    int32_t roots[PATTERNS_MAX];
    swl_status st = SWL_OK;

    *start = -1;
    *which = 0;
    if (spec->n_patterns > PATTERNS_MAX)
        return SWL_E_BUDGET;
    for (size_t i = 0; i < spec->n_patterns && !st; i++) {
        *which = i;
        roots[i] = swl_regex_parse(&r, spec->patterns[i]);
        st = r.failed;
        *why = r.why;
    }
    if (!st)
        st = run(b, &r, roots, spec, start);
    swl_regex_deinit(&r);
    return st;
}

/* ---- formats ---- */

#define DATE_MONTHS                                                                                                    \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-"  \
    "8]))"
#define YEAR      "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE      "(?:" YEAR "-" DATE_MONTHS "|" LEAP_YEAR "-02-29)"
#define TIME      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL     "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define BYTE      "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4      "(?:" BYTE "\\.){3}" BYTE
#define H16       "[0-9A-Fa-f]{1,4}"
#define LS32      "(?:" H16 ":" H16 "|" IPV4 ")"
#define ATOM      "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

const char *swl_format_pattern(const char *format)
{
    static const char *const formats[][2] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        /* RFC 3339, appendix A, with at most 9 digits a number */
        {"duration",
         "^P(?:[0-9]{1,9}W|(?:[0-9]{1,9}D|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?)"
         "(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))?|"
         "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))$"},
        {"email", "^" ATOM "(?:\\." ATOM ")*@" LABEL "(?:\\." LABEL ")*$"},
        {"hostname", "^" LABEL "(?:\\." LABEL ")*$"},
        {"ipv4", "^" IPV4 "$"},
        /* RFC 3986, section 3.2.2 */
        {"ipv6", "^(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32
                 "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16
                 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32
                 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)$"},
        {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
        /* RFC 3986 without its finer points: a scheme, and characters of which none needs escaping */
        {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,30}:(?://(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*(?::[0-9]{1,5})?"
                "(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?|"
                "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)"
                "(?:\\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
                "(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?$"}};

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i][0], format))
            return formats[i][1];
    return NULL;
}
