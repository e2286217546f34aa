/* json_reader.c: see json_reader.h. RFC 8259; no recursion, so no input is too deep. */
#include "text/json_reader.h"

#include <string.h>

#include "text/utf8.h"

static swl_status wrong(const swl_json_reader *r, const char *expected)
{
    return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, (int64_t)r->at,
                       "%s is not valid JSON: expected %s at offset %zu", r->path, expected, r->at);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

char swl_json_peek(swl_json_reader *r)
{
    while (r->at < r->n && is_space(r->text[r->at]))
        r->at++;
    return r->at < r->n ? r->text[r->at] : 0;
}

swl_status swl_json_expect(swl_json_reader *r, char mark)
{
    const char quoted[] = {'\'', mark, '\'', 0};

    if (swl_json_peek(r) != mark)
        return wrong(r, quoted);
    r->at++;
    return SWL_OK;
}

swl_status swl_json_more(swl_json_reader *r, char close, bool first, bool *more)
{
    *more = swl_json_peek(r) != close;
    if (*more && first)
        return SWL_OK;
    return swl_json_expect(r, *more ? ',' : close);
}

/* Four hexadecimal digits at text[at], or -1. */
static int32_t hex4(const swl_json_reader *r, size_t at)
{
    int32_t code = 0;

    if (r->n - at < 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c = r->text[i];
        int32_t digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;

        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* The code point of \uXXXX or of a pair of them, r->at behind the 'u'; -1 when it is none. */
static int32_t unicode_escape(swl_json_reader *r)
{
    int32_t code = hex4(r, r->at), low;

    if (code < 0 || (code >= 0xDC00 && code < 0xE000))
        return -1;
    r->at += 4;
    if (code < 0xD800 || code >= 0xE000)
        return code;
    if (r->n - r->at < 6 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u')
        return -1;
    low = hex4(r, r->at + 2);
    if (low < 0xDC00 || low >= 0xE000)
        return -1;
    r->at += 6;
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
}

/* One escape, r->at at the backslash; writes its character to out, never more bytes than were read. */
static swl_status escape(swl_json_reader *r, uint8_t *out, size_t *n_out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = r->at + 1 < r->n ? r->text[r->at + 1] : 0;
    const char *simple = c ? strchr(from, c) : NULL;
    int32_t code;

    r->at += 2;
    if (simple) {
        out[(*n_out)++] = (uint8_t)to[simple - from];
        return SWL_OK;
    }
    code = c == 'u' && r->at <= r->n ? unicode_escape(r) : -1;
    if (code < 0) {
        r->at = r->at < r->n ? r->at : r->n;
        return wrong(r, "an escape sequence");
    }
    *n_out += (size_t)swl_utf8_put(code, out + *n_out);
    return SWL_OK;
}

swl_status swl_json_string(swl_json_reader *r, const char **s, size_t *n)
{
    swl_status st = swl_json_expect(r, '"');
    uint8_t *text = (uint8_t *)r->text, *out = text + r->at;
    size_t n_out = 0;

    if (st)
        return st;
    for (;;) {
        int32_t part;

        if (r->at >= r->n || text[r->at] < 0x20)
            return wrong(r, "the end of a string");
        if (text[r->at] == '"')
            break;
        if (text[r->at] == '\\') {
            st = escape(r, out, &n_out);
            if (st)
                return st;
            continue;
        }
        part = swl_utf8_part(text + r->at, r->n - r->at);
        if (part <= 0)
            return wrong(r, "UTF-8");
        while (part--)
            out[n_out++] = text[r->at++];
    }
    r->at++;
    out[n_out] = 0; /* the closing quote's place at the latest */
    *s = (const char *)out;
    *n = n_out;
    return SWL_OK;
}

swl_status swl_json_skip_string(swl_json_reader *r, size_t *n)
{
    swl_status st = swl_json_expect(r, '"');
    size_t start = r->at;

    if (st)
        return st;
    while (r->at < r->n && r->text[r->at] != '"')
        r->at += r->text[r->at] == '\\' ? 2 : 1;
    if (r->at >= r->n) {
        r->at = r->n;
        return wrong(r, "the end of a string");
    }
    *n = r->at++ - start;
    return SWL_OK;
}

swl_status swl_json_integer(swl_json_reader *r, int64_t *value)
{
    bool negative = swl_json_peek(r) == '-';
    size_t start = r->at += negative;
    int64_t v = 0;

    while (r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9' && r->at - start < 18)
        v = v * 10 + (r->text[r->at++] - '0');
    if (r->at == start || (r->text[start] == '0' && r->at - start > 1) ||
        (r->at < r->n && memchr("0123456789.eE", r->text[r->at], 13)))
        return wrong(r, "a whole number");
    *value = negative ? -v : v;
    return SWL_OK;
}

swl_status swl_json_skip_value(swl_json_reader *r, size_t *start)
{
    size_t depth = 0, n;
    swl_status st;

    swl_json_peek(r);
    *start = r->at;
    do {
        char c = swl_json_peek(r);

        if (!c)
            return wrong(r, "a value");
        if (c == '"') {
            st = swl_json_skip_string(r, &n);
            if (st)
                return st;
        } else if (c == '{' || c == '[') {
            depth++;
            r->at++;
        } else if (c == '}' || c == ']') {
            if (!depth)
                return wrong(r, "a value");
            depth--;
            r->at++;
        } else if (depth) {
            r->at++;
        } else {
            while (r->at < r->n && !strchr(" \t\r\n,]}", r->text[r->at]))
                r->at++;
        }
    } while (depth);
    return SWL_OK;
}
