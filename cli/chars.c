/* chars.c: clusters and widths by utf8proc's tables. */
#include "chars.h"

#include <string.h>
#include <utf8proc.h>

static size_t decode(const char *p, size_t n, utf8proc_int32_t *code)
{
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, code);

    if (k > 0)
        return (size_t)k;
    *code = 0xfffd;
    return 1;
}

size_t cluster_length(const char *p, size_t n)
{
    utf8proc_int32_t before, code, state = 0;
    size_t at, k;

    if (!n)
        return 0;
    for (at = decode(p, n, &before); at < n; at += k, before = code) {
        k = decode(p + at, n - at, &code);
        if (utf8proc_grapheme_break_stateful(before, code, &state))
            break;
    }
    return at;
}

size_t cluster_before(const char *p, size_t at)
{
    size_t begin = at, last = 0;

    while (begin && p[begin - 1] != '\n') /* no cluster crosses a line, a break of its own excepted */
        begin--;
    if (begin == at)
        return at - 1;
    for (; begin < at; begin += cluster_length(p + begin, at - begin))
        last = begin;
    return last;
}

static int code_width(utf8proc_int32_t code)
{
    int w = utf8proc_charwidth(code);

    return code < 0x20 || code == 0x7f ? 2 : w > 0 ? w : 0;
}

int text_width(const char *p, size_t n)
{
    utf8proc_int32_t code;
    int width = 0;

    for (size_t at = 0; at < n;) {
        at += decode(p + at, n - at, &code);
        width += code_width(code);
    }
    return width;
}

size_t text_tail(const char *p, size_t n, int columns)
{
    size_t from = n > 4096 ? n - 4096 : 0, at;
    int width;

    while (from < n && ((unsigned char)p[from] & 0xc0) == 0x80)
        from++;
    width = text_width(p + from, n - from);
    for (at = from; width > columns && at < n;) {
        size_t k = cluster_length(p + at, n - at);

        width -= text_width(p + at, k);
        at += k;
    }
    return at;
}
