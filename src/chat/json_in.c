/* json_in.c: a first pass over the text mends what the parser would refuse; the parser then makes the tree. */
#include "chat/json_in.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

typedef struct mender {
    const char *p, *end, *begin;
    const swl_seal *seal;
    swl_sbuf out;
    int32_t depth;
} mender;

static void put_valid(mender *m)
{
    int32_t n = swl_utf8_part((const uint8_t *)m->p, (size_t)(m->end - m->p));

    if (n > 0)
        swl_sbuf_put(&m->out, m->p, (size_t)n);
    else
        swl_sbuf_puts(&m->out, SWL_UTF8_REPLACEMENT);
    m->p += n > 0 ? n : n < 0 ? -n : m->end - m->p;
}

/* The code unit of an escape at p, or -1. */
static int32_t escaped(const char *p, const char *end)
{
    int32_t v = 0;

    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = p[i] >= '0' && p[i] <= '9'   ? p[i] - '0'
                    : p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10
                    : p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 10
                                                 : -1;

        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

static void put_escape(mender *m)
{
    int32_t unit = escaped(m->p, m->end), low = unit >> 10 == 0x36 ? escaped(m->p + 6, m->end) : -1;
    size_t n = unit < 0 ? 2 : low >> 10 == 0x37 && low >= 0 ? 12 : 6;

    if (n > (size_t)(m->end - m->p))
        n = (size_t)(m->end - m->p);
    if (n == 6 && unit >> 11 == 0x1b) /* half of a pair */
        swl_sbuf_puts(&m->out, "\\ufffd");
    else
        swl_sbuf_put(&m->out, m->p, n);
    m->p += n;
}

static void put_string(mender *m)
{
    swl_sbuf_putc(&m->out, *m->p++);
    while (m->p < m->end && *m->p != '"') {
        if (*m->p == '\\')
            put_escape(m);
        else
            put_valid(m);
    }
    if (m->p < m->end)
        swl_sbuf_putc(&m->out, *m->p++);
}

/* Only what the parser holds for a number and cannot store. */
static bool is_too_large(const char *digits, size_t n)
{
    bool power = memchr(digits, 'e', n) || memchr(digits, 'E', n), whole = !power && !memchr(digits, '.', n);
    char text[64];

    if (n < 18 && whole)
        return false;
    if (n >= sizeof text)
        return whole || power;
    memcpy(text, digits, n);
    text[n] = 0;
    errno = 0;
    if (whole) {
        strtoll(text, NULL, 10);
        return errno == ERANGE;
    }
    return isinf(strtod(text, NULL));
}

static bool is_number(const char *p, size_t n)
{
    size_t i = 0, digits = 0;

    i += i < n && p[i] == '-';
    for (; i < n && p[i] >= '0' && p[i] <= '9'; i++)
        digits++;
    if (!digits || (digits > 1 && p[i - digits] == '0'))
        return false;
    for (; i < n; i++)
        if (!strchr("0123456789.eE+-", p[i]))
            return false;
    return true;
}

static void put_number(mender *m)
{
    const char *from = m->p;
    size_t n;

    while (m->p < m->end && *m->p && strchr("0123456789+-.eE", *m->p))
        m->p++;
    n = (size_t)(m->p - from);
    if (!m->seal || !is_number(from, n) || !is_too_large(from, n)) {
        swl_sbuf_put(&m->out, from, n);
        return;
    }
    swl_sbuf_putc(&m->out, '"');
    swl_seal_put(m->seal, SWL_SEAL_NUMBER, from, n, &m->out);
    swl_sbuf_putc(&m->out, '"');
}

static swl_status mend(mender *m, const char *what, swl_error *err)
{
    while (m->p < m->end) {
        char c = *m->p;

        if (c == '"') {
            put_string(m);
            continue;
        }
        if (c == '-' || (c >= '0' && c <= '9')) {
            put_number(m);
            continue;
        }
        m->depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (m->depth > SWL_JSON_IN_DEPTH)
            return swl_fail(err, SWL_E_ARG, "%s: JSON nested deeper than %d at byte %zu", what, SWL_JSON_IN_DEPTH,
                            (size_t)(m->p - m->begin));
        swl_sbuf_putc(&m->out, c);
        m->p++;
    }
    return m->out.failed ? swl_fail(err, SWL_E_NOMEM, "%s: out of memory", what) : SWL_OK;
}

swl_status swl_json_in(json_t **out, const char *text, size_t n, const swl_seal *seal, const char *what, swl_error *err)
{
    mender m = {.p = text, .begin = text, .end = text + n, .seal = seal};
    swl_status st = mend(&m, what, err);
    json_error_t why;

    *out = NULL;
    if (!st) {
        *out = json_loadb(m.out.p ? m.out.p : "", m.out.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
        if (!*out)
            st = swl_fail(err, SWL_E_ARG, "%s: not valid JSON: line %d, column %d: %s", what, why.line, why.column,
                          why.text);
    }
    swl_sbuf_deinit(&m.out);
    return st;
}
