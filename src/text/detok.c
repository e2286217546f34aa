/*
 * detok.c: the bytes of generated tokens, in; whole characters, out. A token may hold half a character, so up to three
 * bytes wait in the tail, always a prefix of some well-formed character. The text that comes out in all is the one that
 * decoding the joined bytes with replacement gives, however the bytes were cut.
 */
#include <string.h>

#include "text/utf8.h"

#include <swiftlet/swiftlet.h>

void swl_detok_init(swl_detok *d)
{
    memset(d, 0, sizeof *d);
}

static size_t replacement(char *out)
{
    memcpy(out, SWL_UTF8_REPLACEMENT, SWL_UTF8_REPLACEMENT_N);
    return SWL_UTF8_REPLACEMENT_N;
}

static size_t push_byte(swl_detok *d, uint8_t byte, char *out)
{
    size_t n = 0;
    int32_t part;

    d->tail[d->n_tail++] = byte;
    part = swl_utf8_part(d->tail, (size_t)d->n_tail);
    if (part < 0) {
        /* The tail was a good prefix before this byte, so the bad part is all of it but perhaps this byte. */
        n = replacement(out);
        if (-part == d->n_tail) {
            d->n_tail = 0;
            return n;
        }
        d->tail[0] = byte;
        d->n_tail = 1;
        part = swl_utf8_part(d->tail, 1);
        if (part < 0) {
            d->n_tail = 0;
            return n + replacement(out + n);
        }
    }
    if (part > 0) {
        memcpy(out + n, d->tail, (size_t)part);
        n += (size_t)part;
        d->n_tail = 0;
    }
    return n;
}

size_t swl_detok_push(swl_detok *d, const char *bytes, size_t n_bytes, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < n_bytes; i++)
        n += push_byte(d, (uint8_t)bytes[i], out + n);
    return n;
}

size_t swl_detok_flush(swl_detok *d, char *out)
{
    size_t n = d->n_tail ? replacement(out) : 0;

    d->n_tail = 0;
    return n;
}
