/* python_literal.c: a recursive-descent reader of Python's literals that writes JSON as it goes. */
#include "text/python_literal.h"

#include <stdint.h>
#include <string.h>

#include "text/utf8.h"

enum { DEPTH_MAX = 64 };

typedef struct reader {
    const char *p, *end;
    swl_sbuf *out;
    int32_t depth;
} reader;

static bool value(reader *r);

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t count_digits(const char *p, const char *end)
{
    const char *q = p;

    while (q < end && is_digit(*q))
        q++;
    return (size_t)(q - p);
}

/* What a number consists of; lengths of digits. */
typedef struct number {
    bool negative, point;
    const char *whole, *fraction, *exponent; /* exponent: from the 'e' on */
    size_t n_whole, n_fraction, n_exponent;
} number;

/* Reads the longest number at p; its length, 0: there is none. */
static size_t read_number(const char *p, const char *end, number *x)
{
    const char *start = p, *e;

    memset(x, 0, sizeof *x);
    if (p < end && (*p == '-' || *p == '+'))
        x->negative = *p++ == '-';
    x->whole = p;
    p += x->n_whole = count_digits(p, end);
    if (p < end && *p == '.') {
        x->point = true;
        x->fraction = ++p;
        p += x->n_fraction = count_digits(p, end);
    }
    if (!x->n_whole && !x->n_fraction)
        return 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        e = p + 1;
        if (e < end && (*e == '-' || *e == '+'))
            e++;
        if (count_digits(e, end)) {
            x->exponent = p;
            p = e + count_digits(e, end);
            x->n_exponent = (size_t)(p - x->exponent);
        }
    }
    return (size_t)(p - start);
}

static void put_number(const number *x, swl_sbuf *out)
{
    const char *w = x->whole;
    size_t n = x->n_whole;
    bool whole_only = !x->point && !x->exponent;

    while (n > 1 && *w == '0')
        w++, n--;
    if (x->negative && !(whole_only && n == 1 && *w == '0'))
        swl_sbuf_putc(out, '-');
    if (n)
        swl_sbuf_put(out, w, n);
    else
        swl_sbuf_putc(out, '0');
    if (x->point) {
        swl_sbuf_putc(out, '.');
        if (x->n_fraction)
            swl_sbuf_put(out, x->fraction, x->n_fraction);
        else
            swl_sbuf_putc(out, '0');
    }
    swl_sbuf_put(out, x->exponent, x->n_exponent);
}

bool swl_python_int_put(const char *p, size_t n, swl_sbuf *out)
{
    number x;

    if (!n || read_number(p, p + n, &x) != n || x.point || x.exponent)
        return false;
    put_number(&x, out);
    return true;
}

bool swl_python_float_put(const char *p, size_t n, swl_sbuf *out)
{
    number x;

    if (!n || read_number(p, p + n, &x) != n)
        return false;
    put_number(&x, out);
    return true;
}

static void skip_space(reader *r)
{
    while (r->p < r->end && strchr(" \t\n\r\f", *r->p) && *r->p)
        r->p++;
}

static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->p == r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

static bool next_is(reader *r, char c)
{
    skip_space(r);
    return r->p < r->end && *r->p == c;
}

static bool put_code(reader *r, int32_t code)
{
    uint8_t utf8[4];
    int32_t n;

    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return false;
    n = swl_utf8_put(code, utf8);
    swl_sbuf_put_escaped(r->out, (const char *)utf8, (size_t)n);
    return true;
}

static int32_t digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

/* Exactly n_min to n_max digits of a base, as a code point. */
static bool put_numbered(reader *r, int32_t base, int32_t n_min, int32_t n_max)
{
    int32_t code = 0, n = 0;

    for (; n < n_max && r->p < r->end && digit_value(*r->p) < base; n++, r->p++) {
        if (code > 0x10FFFF)
            return false;
        code = code * base + digit_value(*r->p);
    }
    return n >= n_min && put_code(r, code);
}

static bool escape(reader *r)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *f;
    char c;

    if (r->p == r->end)
        return false;
    c = *r->p++;
    f = c ? strchr(from, c) : NULL;
    if (f) {
        swl_sbuf_put_escaped(r->out, to + (f - from), 1);
        return true;
    }
    switch (c) {
    case '\n':
        return true; /* a line goes on */
    case 'x':
        return put_numbered(r, 16, 2, 2);
    case 'u':
        return put_numbered(r, 16, 4, 4);
    case 'U':
        return put_numbered(r, 16, 8, 8);
    case 'N':
        return false; /* character names */
    default:
        r->p--;
        if (c >= '0' && c <= '7')
            return put_numbered(r, 8, 1, 3);
        swl_sbuf_puts(r->out, "\\\\"); /* an unknown escape stands for itself */
        return true;
    }
}

static bool string(reader *r)
{
    char quote = *r->p++;
    const char *plain = r->p;

    swl_sbuf_putc(r->out, '"');
    while (r->p < r->end && *r->p != quote) {
        if (*r->p == '\n')
            return false;
        if (*r->p++ != '\\')
            continue;
        swl_sbuf_put_escaped(r->out, plain, (size_t)(r->p - 1 - plain));
        if (!escape(r))
            return false;
        plain = r->p;
    }
    if (r->p == r->end)
        return false;
    swl_sbuf_put_escaped(r->out, plain, (size_t)(r->p++ - plain));
    swl_sbuf_putc(r->out, '"');
    return true;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) || (uint8_t)c >= 0x80;
}

static bool name(reader *r)
{
    /* JSON's names too: models mix the two. */
    static const char *const names[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const char *q = r->p;

    while (q < r->end && is_word(*q))
        q++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if ((size_t)(q - r->p) == strlen(names[i][0]) && !memcmp(r->p, names[i][0], strlen(names[i][0]))) {
            swl_sbuf_puts(r->out, names[i][1]);
            r->p = q;
            return true;
        }
    }
    return false;
}

static bool digits(reader *r)
{
    number x;
    size_t n = read_number(r->p, r->end, &x);

    /* Python writes no whole number with leading zeros; "1_000", "0x1f" and "2j" are left to those who wrote them. */
    if (!n || (!x.point && !x.exponent && x.n_whole > 1 && *x.whole == '0') || (r->p + n < r->end && is_word(r->p[n])))
        return false;
    put_number(&x, r->out);
    r->p += n;
    return true;
}

/* A list or a tuple. "(1)" is no tuple in Python but a number in brackets, which nobody prints: refused. */
static bool sequence(reader *r, char close)
{
    bool comma = false;
    int32_t n = 0;

    swl_sbuf_putc(r->out, '[');
    for (; !next_is(r, close); n++) {
        if (n && !comma)
            return false;
        if (n)
            swl_sbuf_puts(r->out, ", ");
        if (!value(r))
            return false;
        comma = take(r, ',');
    }
    r->p++;
    swl_sbuf_putc(r->out, ']');
    return close == ']' || n != 1 || comma;
}

static bool key(reader *r)
{
    skip_space(r);
    if (r->p == r->end)
        return false;
    if (*r->p == '"' || *r->p == '\'')
        return string(r);
    swl_sbuf_putc(r->out, '"');
    if (!digits(r))
        return false;
    swl_sbuf_putc(r->out, '"');
    return true;
}

static bool dictionary(reader *r)
{
    bool first = true, comma = false;

    swl_sbuf_putc(r->out, '{');
    for (; !next_is(r, '}'); first = false) {
        if (!first && !comma)
            return false;
        if (!first)
            swl_sbuf_puts(r->out, ", ");
        if (!key(r) || !take(r, ':'))
            return false;
        swl_sbuf_puts(r->out, ": ");
        if (!value(r))
            return false;
        comma = take(r, ',');
    }
    r->p++;
    swl_sbuf_putc(r->out, '}');
    return true;
}

static bool bracketed(reader *r)
{
    bool ok;

    if (r->depth == DEPTH_MAX)
        return false;
    r->depth++;
    switch (*r->p++) {
    case '{':
        ok = dictionary(r);
        break;
    case '[':
        ok = sequence(r, ']');
        break;
    default:
        ok = sequence(r, ')');
    }
    r->depth--;
    return ok;
}

static bool value(reader *r)
{
    skip_space(r);
    if (r->p == r->end)
        return false;
    if (strchr("{[(", *r->p) && *r->p)
        return bracketed(r);
    if (*r->p == '"' || *r->p == '\'')
        return string(r);
    return digits(r) || name(r);
}

bool swl_python_literal_put(const char *p, size_t n, swl_sbuf *out)
{
    reader r = {.p = p, .end = p + n, .out = out};
    size_t before = out->n;
    bool ok = value(&r);

    skip_space(&r);
    if (ok && r.p == r.end)
        return true;
    out->n = before;
    return false;
}
