/* sbuf.c: growing text. */
#include "text/sbuf.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

void swl_sbuf_deinit(swl_sbuf *b)
{
    swl_free(b->p);
    memset(b, 0, sizeof *b);
}

static bool reserve(swl_sbuf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    char *p;

    if (b->failed || n > SIZE_MAX / 4 - b->n)
        return !(b->failed = true);
    if (b->n + n <= b->cap)
        return true;
    while (cap < b->n + n)
        cap *= 2;
    p = swl_realloc(b->p, cap, 1);
    if (!p)
        return !(b->failed = true);
    b->p = p;
    b->cap = cap;
    return true;
}

void swl_sbuf_put(swl_sbuf *b, const char *p, size_t n)
{
    if (!n || !reserve(b, n))
        return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void swl_sbuf_puts(swl_sbuf *b, const char *s)
{
    swl_sbuf_put(b, s, strlen(s));
}

void swl_sbuf_putc(swl_sbuf *b, char c)
{
    swl_sbuf_put(b, &c, 1);
}

void swl_sbuf_drop(swl_sbuf *b, size_t n)
{
    if (!n)
        return;
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

void swl_sbuf_put_escaped(swl_sbuf *b, const char *p, size_t n)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb", hex[] = "0123456789abcdef";
    size_t plain = 0;

    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        const char *f = c ? memchr(from, c, sizeof from - 1) : NULL;

        if (!f && c >= 0x20)
            continue;
        swl_sbuf_put(b, p + plain, i - plain);
        plain = i + 1;
        swl_sbuf_putc(b, '\\');
        if (f) {
            swl_sbuf_putc(b, to[f - from]);
        } else {
            swl_sbuf_puts(b, "u00");
            swl_sbuf_putc(b, hex[c >> 4]);
            swl_sbuf_putc(b, hex[c & 15]);
        }
    }
    swl_sbuf_put(b, p + plain, n - plain);
}
