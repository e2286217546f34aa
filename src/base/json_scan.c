/* json_scan.c: a pull reader for JSON (RFC 8259). It holds nothing but its place in the text. */
#include "base/json_scan.h"

#include <inttypes.h>
#include <string.h>

#include <utf8proc.h>

swl_status swl_scan_expected(const swl_scan *s, const char *want)
{
    const char *a = s->in[0], *b = s->in[1];

    return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, s->offset + (s->p - s->begin),
                       "%s: byte %" PRId64 "%s%.200s%s%s%.200s%s: expected %s", s->path, s->offset + (s->p - s->begin),
                       a ? ", in \"" : "", a ? a : "", a ? "\"" : "", b ? ", \"" : "", b ? b : "", b ? "\"" : "", want);
}

char swl_scan_peek(swl_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
    return s->p < s->end ? *s->p : 0;
}

static bool take(swl_scan *s, char c)
{
    if (swl_scan_peek(s) != c || s->p == s->end)
        return false;
    s->p++;
    return true;
}

swl_status swl_scan_begin(swl_scan *s, char bracket)
{
    return take(s, bracket) ? SWL_OK : swl_scan_expected(s, bracket == '{' ? "an object" : "an array");
}

swl_status swl_scan_next(swl_scan *s, char close, uint64_t n, bool *more)
{
    *more = false;
    if (take(s, close))
        return SWL_OK;
    if (n && !take(s, ','))
        return swl_scan_expected(s, close == '}' ? "',' or '}'" : "',' or ']'");
    *more = true;
    return SWL_OK;
}

swl_status swl_scan_colon(swl_scan *s)
{
    return take(s, ':') ? SWL_OK : swl_scan_expected(s, "':'");
}

swl_status swl_scan_member(swl_scan *s, uint64_t n, char **key)
{
    bool more;
    swl_status st = swl_scan_next(s, '}', n, &more);

    *key = NULL;
    if (st || !more)
        return st;
    st = swl_scan_string(s, key);
    return st ? st : swl_scan_colon(s);
}

swl_status swl_scan_element(swl_scan *s, uint64_t n, bool *more)
{
    return swl_scan_next(s, ']', n, more);
}

/* Four hexadecimal digits at p + 2, after "\u"; -1 when they are not there. */
static int32_t code_unit(const swl_scan *s, const char *p)
{
    int32_t v = 0;
    int i;

    if (s->end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    for (i = 2; i < 6; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* \uXXXX, or two of them for one character; never longer decoded than written. */
static swl_status unicode_escape(swl_scan *s, char **dst, bool nul)
{
    int32_t c = code_unit(s, s->p), low;

    if (c < 0 || (!c && !nul))
        return swl_scan_expected(s, nul ? "\\u and four hexadecimal digits"
                                        : "\\u and four hexadecimal digits, not all zero");
    if (c >= 0xd800 && c < 0xdc00) {
        low = code_unit(s, s->p + 6);
        if (low < 0xdc00 || low > 0xdfff)
            return swl_scan_expected(s, "a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        s->p += 6;
    } else if (c >= 0xdc00 && c < 0xe000) {
        return swl_scan_expected(s, "a surrogate pair");
    }
    s->p += 6;
    *dst += utf8proc_encode_char(c, (utf8proc_uint8_t *)*dst);
    return SWL_OK;
}

static swl_status escape(swl_scan *s, char **dst, bool nul)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *which;

    if (s->end - s->p >= 2 && s->p[1] == 'u')
        return unicode_escape(s, dst, nul);
    which = s->end - s->p >= 2 && s->p[1] ? strchr(from, s->p[1]) : NULL;
    if (!which)
        return swl_scan_expected(s, "a known escape");
    *(*dst)++ = to[which - from];
    s->p += 2;
    return SWL_OK;
}

static bool is_utf8(const char *p, const char *end)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n;

    while (p < end) {
        if ((uint8_t)*p < 0x80) {
            p++;
            continue;
        }
        n = utf8proc_iterate((const utf8proc_uint8_t *)p, end - p, &c);
        if (n <= 0)
            return false;
        p += n;
    }
    return true;
}

/* The decoded text ends at the closing quote at the latest, where its NUL goes. */
static swl_status read_string(swl_scan *s, char **text, size_t *n, bool nul)
{
    char *dst;
    swl_status st = SWL_OK;

    if (!take(s, '"'))
        return swl_scan_expected(s, "a string");
    *text = dst = s->p;
    while (s->p < s->end && *s->p != '"' && !st) {
        if ((uint8_t)*s->p < 0x20)
            st = swl_scan_expected(s, "no control character in a string");
        else if (*s->p == '\\')
            st = escape(s, &dst, nul);
        else
            *dst++ = *s->p++;
    }
    if (st)
        return st;
    if (s->p == s->end)
        return swl_scan_expected(s, "'\"' at the end of a string");
    if (!is_utf8(*text, dst))
        return swl_scan_expected(s, "valid UTF-8 in the string before");
    s->p++;
    *dst = 0;
    *n = (size_t)(dst - *text);
    return SWL_OK;
}

swl_status swl_scan_string(swl_scan *s, char **text)
{
    size_t n;

    return read_string(s, text, &n, false);
}

swl_status swl_scan_text(swl_scan *s, char **text, size_t *n)
{
    return read_string(s, text, n, true);
}

swl_status swl_scan_pass_string(swl_scan *s, size_t *n)
{
    const char *first;

    if (!take(s, '"'))
        return swl_scan_expected(s, "a string");
    for (first = s->p; s->p < s->end && *s->p != '"'; s->p++)
        s->p += *s->p == '\\' && s->end - s->p > 1;
    if (s->p == s->end)
        return swl_scan_expected(s, "'\"' at the end of a string");
    *n = (size_t)(s->p++ - first);
    return SWL_OK;
}

/* A string, a bracket, or a character of something else. */
static swl_status pass_part(swl_scan *s, uint64_t *depth)
{
    char c = swl_scan_peek(s);
    size_t n;

    if (c == '"')
        return swl_scan_pass_string(s, &n);
    if (!c || (!*depth && strchr("}],:", c)))
        return swl_scan_expected(s, "a value");
    if (c == '{' || c == '[')
        ++*depth;
    else if (c == '}' || c == ']')
        --*depth;
    else if (!*depth)
        while (s->p + 1 < s->end && !strchr(" \t\r\n,]}", s->p[1]))
            s->p++;
    s->p++;
    return SWL_OK;
}

swl_status swl_scan_pass(swl_scan *s, char **first)
{
    uint64_t depth = 0;
    swl_status st;

    swl_scan_peek(s);
    *first = s->p;
    do
        st = pass_part(s, &depth);
    while (!st && depth);
    return st;
}

static bool is_digit(const swl_scan *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

swl_status swl_scan_uint(swl_scan *s, int64_t *value)
{
    static const char want[] = "an integer from 0 to 9223372036854775807";
    const char *first;
    int64_t v = 0;

    swl_scan_peek(s);
    first = s->p;
    for (; is_digit(s); s->p++) {
        if (v > (INT64_MAX - (*s->p - '0')) / 10 || (s->p > first && *first == '0'))
            return swl_scan_expected(s, want);
        v = v * 10 + (*s->p - '0');
    }
    if (s->p == first || (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E')))
        return swl_scan_expected(s, want);
    *value = v;
    return SWL_OK;
}

static bool skip_digits(swl_scan *s)
{
    const char *first = s->p;

    while (is_digit(s))
        s->p++;
    return s->p > first;
}

static bool skip_any(swl_scan *s, const char *set)
{
    return s->p < s->end && *s->p && strchr(set, *s->p) && s->p++;
}

static swl_status skip_number(swl_scan *s)
{
    bool ok;

    skip_any(s, "-");
    ok = skip_any(s, "0") || skip_digits(s);
    if (ok && skip_any(s, "."))
        ok = skip_digits(s);
    if (ok && skip_any(s, "eE")) {
        skip_any(s, "+-");
        ok = skip_digits(s);
    }
    return ok ? SWL_OK : swl_scan_expected(s, "a value");
}

static bool skip_word(swl_scan *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n))
        return false;
    s->p += n;
    return true;
}

static swl_status skip(swl_scan *s, int depth);

static swl_status skip_object(swl_scan *s, int depth)
{
    swl_status st = swl_scan_begin(s, '{');
    uint64_t n;
    char *key;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++)
        st = skip(s, depth);
    return st;
}

static swl_status skip_array(swl_scan *s, int depth)
{
    swl_status st = swl_scan_begin(s, '[');
    uint64_t n;
    bool more;

    for (n = 0; !st && !(st = swl_scan_element(s, n, &more)) && more; n++)
        st = skip(s, depth);
    return st;
}

static swl_status skip(swl_scan *s, int depth)
{
    char c = swl_scan_peek(s), *text;

    if (depth == SWL_SCAN_DEPTH_MAX)
        return swl_scan_expected(s, "fewer levels of nesting");
    if (c == '{')
        return skip_object(s, depth + 1);
    if (c == '[')
        return skip_array(s, depth + 1);
    if (c == '"')
        return swl_scan_string(s, &text);
    if (skip_word(s, "true") || skip_word(s, "false") || skip_word(s, "null"))
        return SWL_OK;
    return skip_number(s);
}

swl_status swl_scan_skip(swl_scan *s)
{
    return skip(s, 0);
}

swl_status swl_scan_finish(swl_scan *s)
{
    swl_scan_peek(s);
    return s->p == s->end ? SWL_OK : swl_scan_expected(s, "the end of the text");
}
