/*
 * grammar_regex_parse.c: patterns in ECMAScript's syntax, as far as they are regular: no lookaround, no back
 * references, no word boundaries. Characters are code points. Lazy quantifiers are the same as others, since only
 * whether a string matches is asked.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/grammar_regex.h"
#include "text/utf8.h"

enum { GROUPS_MAX = 100, REPEAT_MAX = 100000, NODES_MAX = 200000, RANGES_MAX = 200000 };

typedef struct parser {
    swl_regex *r;
    const char *p, *end;
    int32_t depth;
} parser;

void swl_regex_deinit(swl_regex *r)
{
    swl_free(r->nodes);
    swl_free(r->sets);
    swl_free(r->ranges);
    memset(r, 0, sizeof *r);
}

static int32_t refuse(swl_regex *r, const char *why)
{
    if (!r->failed) {
        r->failed = SWL_E_UNSUPPORTED;
        r->why = why;
    }
    return -1;
}

static int32_t give_up(swl_regex *r, swl_status st)
{
    if (!r->failed)
        r->failed = st;
    return -1;
}

static int32_t node(swl_regex *r, swl_regex_node n)
{
    if (r->failed)
        return -1;
    if (r->n_nodes >= NODES_MAX)
        return give_up(r, SWL_E_BUDGET);
    if (!swl_grow((void **)&r->nodes, &r->cap_nodes, (size_t)r->n_nodes + 1, sizeof *r->nodes))
        return give_up(r, SWL_E_NOMEM);
    n.before = -1;
    r->nodes[r->n_nodes] = n;
    return r->n_nodes++;
}

/* ---- sets ---- */

/* Ranges are put at the end of r->ranges from `first` on, in any order, and then made into a set. */
static void put_range(swl_regex *r, int32_t lo, int32_t hi)
{
    if (r->failed)
        return;
    if (r->n_ranges >= RANGES_MAX)
        give_up(r, SWL_E_BUDGET);
    else if (!swl_grow((void **)&r->ranges, &r->cap_ranges, (size_t)r->n_ranges + 1, sizeof *r->ranges))
        give_up(r, SWL_E_NOMEM);
    else
        r->ranges[r->n_ranges++] = (swl_code_range){lo, hi};
}

static int by_lo(const void *a, const void *b)
{
    const swl_code_range *x = a, *y = b;

    return (x->lo > y->lo) - (x->lo < y->lo);
}

static void join_ranges(swl_regex *r, int32_t first)
{
    int32_t out = first;

    if (r->failed || r->n_ranges == first)
        return;
    qsort(r->ranges + first, (size_t)(r->n_ranges - first), sizeof *r->ranges, by_lo);
    for (int32_t i = first + 1; i < r->n_ranges; i++) {
        swl_code_range *to = &r->ranges[out], next = r->ranges[i];

        if (next.lo <= to->hi + 1)
            to->hi = next.hi > to->hi ? next.hi : to->hi;
        else
            r->ranges[++out] = next;
    }
    r->n_ranges = out + 1;
}

/* All that the ranges from `first` on leave out. */
static void invert(swl_regex *r, int32_t first)
{
    int32_t next = 0, n;

    join_ranges(r, first);
    n = r->n_ranges;
    for (int32_t i = first; i < n && !r->failed; i++) {
        swl_code_range at = r->ranges[i];

        if (at.lo > next)
            put_range(r, next, at.lo - 1);
        next = at.hi + 1;
    }
    if (next <= SWL_CODE_MAX)
        put_range(r, next, SWL_CODE_MAX);
    if (r->failed)
        return;
    memmove(r->ranges + first, r->ranges + n, (size_t)(r->n_ranges - n) * sizeof *r->ranges);
    r->n_ranges -= n - first;
}

static int32_t set_node(swl_regex *r, int32_t first)
{
    join_ranges(r, first);
    if (r->failed)
        return -1;
    if (!swl_grow((void **)&r->sets, &r->cap_sets, (size_t)r->n_sets + 1, sizeof *r->sets))
        return give_up(r, SWL_E_NOMEM);
    r->sets[r->n_sets] = (swl_code_set){first, r->n_ranges - first};
    return node(r, (swl_regex_node){.kind = SWL_REGEX_SET, .a = r->n_sets++});
}

static void put_digits(swl_regex *r)
{
    put_range(r, '0', '9');
}

static void put_word(swl_regex *r)
{
    put_digits(r);
    put_range(r, 'A', 'Z');
    put_range(r, 'a', 'z');
    put_range(r, '_', '_');
}

static void put_space(swl_regex *r)
{
    static const int32_t spaces[] = {0x20, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF};

    put_range(r, 9, 13);
    put_range(r, 0x2000, 0x200A);
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        put_range(r, spaces[i], spaces[i]);
}

/* \d \D \w \W \s \S; false: something else. */
static bool put_class(swl_regex *r, char c)
{
    int32_t first = r->n_ranges;

    switch (c | 0x20) {
    case 'd':
        put_digits(r);
        break;
    case 'w':
        put_word(r);
        break;
    case 's':
        put_space(r);
        break;
    default:
        return false;
    }
    if (c < 'a')
        invert(r, first);
    return true;
}

/* \p{Lu}: the general categories by their short names. */
static void put_category(parser *s, bool inverted)
{
    static const char names[] = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
    const char *close = s->p < s->end && *s->p == '{' ? memchr(s->p, '}', (size_t)(s->end - s->p)) : NULL;
    size_t n = close ? (size_t)(close - s->p - 1) : 0;
    int32_t first = s->r->n_ranges, from = -1;
    bool known = false;

    for (size_t i = 0; (n == 1 || n == 2) && i < sizeof names - 1; i += 2)
        known |= !memcmp(names + i, s->p + 1, n);
    if (!known) {
        refuse(s->r, "only general categories of characters, as \\p{L}, are known");
        return;
    }
    *s->r->work -= SWL_CODE_MAX;
    if (*s->r->work < 0)
        give_up(s->r, SWL_E_BUDGET);
    for (int32_t c = 0; c <= SWL_CODE_MAX + 1 && !s->r->failed; c++) {
        bool in = c <= SWL_CODE_MAX && !memcmp(names + 2 * utf8proc_category(c), s->p + 1, n);

        if (in && from < 0)
            from = c;
        if (!in && from >= 0) {
            put_range(s->r, from, c - 1);
            from = -1;
        }
    }
    if (inverted)
        invert(s->r, first);
    s->p = close + 1;
}

/* ---- escapes ---- */

static int32_t hex(parser *s, int n)
{
    int32_t v = 0;

    for (; n; n--, s->p++) {
        char c = s->p < s->end ? *s->p : 0;
        int digit = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                             : -1;

        if (digit < 0)
            return refuse(s->r, "an escape lacks hexadecimal digits");
        v = v * 16 + digit;
    }
    return v;
}

static int32_t hex_braces(parser *s)
{
    int32_t v = 0;

    for (s->p++; s->p < s->end && *s->p != '}'; v = v * 16 + hex(s, 1))
        if (s->r->failed || v > SWL_CODE_MAX)
            break;
    if (s->p == s->end || *s->p != '}' || v > SWL_CODE_MAX)
        return refuse(s->r, "\\u{...} is no character");
    s->p++;
    return v;
}

static int32_t unicode_escape(parser *s)
{
    int32_t high, low;

    if (s->p < s->end && *s->p == '{')
        return hex_braces(s);
    high = hex(s, 4);
    if (high < 0xD800 || high > 0xDBFF || s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
        return high;
    s->p += 2;
    low = hex(s, 4);
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse(s->r, "half a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* An escape that stands for one character, behind its backslash. */
static int32_t escaped(parser *s)
{
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
    char c = *s->p++;
    const char *at = c ? strchr(from, c) : NULL;

    if (at && c == '0' && s->p < s->end && *s->p >= '0' && *s->p <= '9')
        return refuse(s->r, "octal escapes are not known");
    if (at)
        return to[at - from];
    if (c == 'x')
        return hex(s, 2);
    if (c == 'u')
        return unicode_escape(s);
    if (c == 'c' && s->p < s->end && (*s->p | 0x20) >= 'a' && (*s->p | 0x20) <= 'z')
        return *s->p++ & 31;
    if (c >= '1' && c <= '9')
        return refuse(s->r, "back references are not regular");
    if (c == 'b' || c == 'B')
        return refuse(s->r, "word boundaries are not supported");
    if (c == 'k')
        return refuse(s->r, "back references are not regular");
    if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (uint8_t)c >= 0x80)
        return refuse(s->r, "an escape is not known");
    return c;
}

static int32_t literal(parser *s)
{
    int32_t n, c = swl_utf8_code((const uint8_t *)s->p, &n);

    s->p += n;
    return c;
}

/* ---- [...] ---- */

/* One member: a character, or -1 when it was a class, which is put already. */
static int32_t class_member(parser *s)
{
    if (*s->p != '\\')
        return literal(s);
    if (++s->p == s->end)
        return refuse(s->r, "a backslash ends it");
    if (*s->p == 'b') {
        s->p++;
        return 8;
    }
    if ((*s->p | 0x20) == 'p') {
        s->p++;
        put_category(s, s->p[-1] == 'P');
        return -1;
    }
    if (put_class(s->r, *s->p)) {
        s->p++;
        return -1;
    }
    if (*s->p == '-') {
        s->p++;
        return '-';
    }
    return escaped(s);
}

static int32_t bracket(parser *s)
{
    int32_t first = s->r->n_ranges, lo, hi;
    bool inverted = ++s->p < s->end && *s->p == '^';

    s->p += inverted;
    while (s->p < s->end && *s->p != ']' && !s->r->failed) {
        lo = class_member(s);
        if (lo < 0)
            continue;
        hi = lo;
        if (s->end - s->p >= 2 && s->p[0] == '-' && s->p[1] != ']') {
            s->p++;
            hi = class_member(s);
            if (hi < lo)
                return refuse(s->r, hi < 0 ? "a range ends in a class" : "a range ends before it begins");
        }
        put_range(s->r, lo, hi);
    }
    if (s->p >= s->end)
        return refuse(s->r, "a bracket is not closed");
    s->p++;
    if (inverted)
        invert(s->r, first);
    return set_node(s->r, first);
}

/* ---- the rest ---- */

static int32_t alternatives(parser *s);

static int32_t group(parser *s)
{
    int32_t inner;
    const char *name_end;

    s->p++;
    if (s->p < s->end && *s->p == '?') {
        if (s->end - s->p >= 2 && s->p[1] == ':') {
            s->p += 2;
        } else if (s->end - s->p >= 3 && s->p[1] == '<' && s->p[2] != '=' && s->p[2] != '!') {
            name_end = memchr(s->p, '>', (size_t)(s->end - s->p));
            if (!name_end)
                return refuse(s->r, "a group's name is not closed");
            s->p = name_end + 1;
        } else {
            return refuse(s->r, "lookaround and flags are not supported");
        }
    }
    if (++s->depth > GROUPS_MAX)
        return give_up(s->r, SWL_E_BUDGET);
    inner = alternatives(s);
    s->depth--;
    if (s->p == s->end || *s->p != ')')
        return refuse(s->r, "a parenthesis is not closed");
    s->p++;
    return inner;
}

static int32_t any(swl_regex *r)
{
    int32_t first = r->n_ranges;

    put_range(r, '\n', '\n');
    put_range(r, '\r', '\r');
    put_range(r, 0x2028, 0x2029);
    invert(r, first);
    return set_node(r, first);
}

static int32_t character(swl_regex *r, int32_t c)
{
    int32_t first = r->n_ranges;

    if (c < 0)
        return -1;
    put_range(r, c, c);
    return set_node(r, first);
}

static int32_t backslash(parser *s)
{
    int32_t first = s->r->n_ranges;

    if (++s->p == s->end)
        return refuse(s->r, "a backslash ends it");
    if ((*s->p | 0x20) == 'p') {
        s->p++;
        put_category(s, s->p[-1] == 'P');
        return set_node(s->r, first);
    }
    if (put_class(s->r, *s->p)) {
        s->p++;
        return set_node(s->r, first);
    }
    return character(s->r, escaped(s));
}

static int32_t atom(parser *s)
{
    switch (*s->p) {
    case '(':
        return group(s);
    case '[':
        return bracket(s);
    case '.':
        s->p++;
        return any(s->r);
    case '\\':
        return backslash(s);
    case '^':
        s->p++;
        return node(s->r, (swl_regex_node){.kind = SWL_REGEX_BEGIN});
    case '$':
        s->p++;
        return node(s->r, (swl_regex_node){.kind = SWL_REGEX_END});
    case '*':
    case '+':
    case '?':
        return refuse(s->r, "a quantifier has nothing to repeat");
    default:
        return character(s->r, literal(s));
    }
}

static int32_t count(const char **p, const char *end)
{
    int32_t v = 0;

    for (; *p < end && **p >= '0' && **p <= '9'; ++*p)
        v = v > REPEAT_MAX ? v : v * 10 + (**p - '0');
    return v;
}

/* {m}, {m,} or {m,n}; anything else is text. */
static bool braces(parser *s, int32_t *min, int32_t *max)
{
    const char *p = s->p + 1, *digits = p;

    *min = *max = count(&p, s->end);
    if (p == digits || p == s->end)
        return false;
    if (*p == ',') {
        digits = ++p;
        *max = count(&p, s->end);
        *max = p == digits ? -1 : *max;
    }
    if (p == s->end || *p != '}')
        return false;
    s->p = p + 1;
    return true;
}

static bool quantifier(parser *s, int32_t *min, int32_t *max)
{
    char c = s->p < s->end ? *s->p : 0;

    *min = c == '+';
    *max = c == '?' ? 1 : -1;
    if (c == '{')
        return braces(s, min, max);
    if (c != '*' && c != '+' && c != '?')
        return false;
    s->p++;
    return true;
}

static int32_t term(parser *s)
{
    int32_t a = atom(s), min, max;

    if (a < 0 || !quantifier(s, &min, &max))
        return a;
    if (s->p < s->end && *s->p == '?')
        s->p++;
    if (min > REPEAT_MAX || max > REPEAT_MAX)
        return give_up(s->r, SWL_E_BUDGET);
    if (max >= 0 && max < min)
        return refuse(s->r, "a quantifier's numbers are out of order");
    a = node(s->r, (swl_regex_node){.kind = SWL_REGEX_REPEAT, .a = a, .min = min, .max = max});
    if (s->p < s->end && (*s->p == '*' || *s->p == '+' || *s->p == '?'))
        return refuse(s->r, "a quantifier is repeated");
    return a;
}

/* A node's place in its list. */
static int32_t append(swl_regex *r, int32_t last, int32_t next)
{
    if (next >= 0)
        r->nodes[next].before = last;
    return next;
}

static int32_t sequence(parser *s)
{
    int32_t last = -1, n = 0;

    while (s->p < s->end && *s->p != '|' && *s->p != ')' && !s->r->failed) {
        last = append(s->r, last, term(s));
        n++;
    }
    if (s->r->failed)
        return -1;
    if (!n)
        return node(s->r, (swl_regex_node){.kind = SWL_REGEX_EMPTY});
    return node(s->r, (swl_regex_node){.kind = SWL_REGEX_CAT, .a = last});
}

static int32_t alternatives(parser *s)
{
    int32_t last = append(s->r, -1, sequence(s));

    if (s->r->failed || s->p == s->end || *s->p != '|')
        return last;
    while (!s->r->failed && s->p < s->end && *s->p == '|') {
        s->p++;
        last = append(s->r, last, sequence(s));
    }
    return node(s->r, (swl_regex_node){.kind = SWL_REGEX_ALT, .a = last});
}

int32_t swl_regex_parse(swl_regex *r, const char *pattern)
{
    parser s = {.r = r, .p = pattern, .end = pattern + strlen(pattern)};
    int32_t root = alternatives(&s);

    if (!r->failed && s.p < s.end)
        refuse(r, "a parenthesis is not open");
    return r->failed ? -1 : root;
}
