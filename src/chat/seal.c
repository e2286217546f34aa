/* seal.c: marks inside texts: the key's noncharacters, one for the kind, the body, one for the end. */
#include "chat/seal.h"

#include <openssl/rand.h>
#include <string.h>
#include <time.h>

enum { CHAR_BYTES = 3, KIND_FIRST = 3, END = 2 };

void swl_seal_init(swl_seal *s)
{
    uint8_t random[SWL_SEAL_UNITS / 2];
    uint64_t now = (uint64_t)time(NULL) ^ (uint64_t)(uintptr_t)s;

    if (RAND_bytes(random, sizeof random) != 1)
        memcpy(random, &now, sizeof random); /* no source of randomness: hard to guess all the same */
    for (size_t i = 0; i < SWL_SEAL_UNITS; i++)
        s->key[i] = random[i / 2] >> 4 * (i % 2) & 15;
}

static void put_unit(swl_sbuf *out, int k)
{
    const char c[CHAR_BYTES] = {(char)0xef, (char)0xb7, (char)(0x90 + k)};

    swl_sbuf_put(out, c, sizeof c);
}

void swl_seal_put(const swl_seal *s, swl_seal_kind kind, const char *body, size_t n_body, swl_sbuf *out)
{
    for (int i = 0; i < SWL_SEAL_UNITS; i++)
        put_unit(out, s->key[i]);
    put_unit(out, KIND_FIRST + (int)kind);
    swl_sbuf_put(out, body, n_body);
    put_unit(out, END);
}

/* The noncharacter U+FDD0 + k at text, as itself or as the escape that Python's repr and JSON write for it: its length,
 * or 0. */
static size_t unit_at(const char *text, size_t n, int *k)
{
    static const char raw[] = "\xEF\xB7", escape[] = "\\ufdd", digits[] = "0123456789abcdef";
    const char *digit;

    if (n >= CHAR_BYTES && !memcmp(text, raw, 2) && (uint8_t)text[2] >= 0x90 && (uint8_t)text[2] < 0xa0) {
        *k = (uint8_t)text[2] - 0x90;
        return CHAR_BYTES;
    }
    if (n < sizeof escape || memcmp(text, escape, sizeof escape - 1))
        return 0;
    digit = strchr(digits, text[sizeof escape - 1]);
    if (!digit || !*digit)
        return 0;
    *k = (int)(digit - digits);
    return sizeof escape;
}

size_t swl_seal_at(const swl_seal *s, const char *text, size_t n, swl_seal_kind *kind, const char **body,
                   size_t *n_body)
{
    size_t at = 0, length;
    int k;

    for (int i = 0; i < SWL_SEAL_UNITS; i++, at += length)
        if (!(length = unit_at(text + at, n - at, &k)) || k != s->key[i])
            return 0;
    length = unit_at(text + at, n - at, &k);
    if (!length || k < KIND_FIRST || k >= KIND_FIRST + SWL_SEAL_KINDS)
        return 0;
    *kind = (swl_seal_kind)(k - KIND_FIRST);
    *body = text + (at += length);
    for (; at < n; at++)
        if ((length = unit_at(text + at, n - at, &k)) && k == END) {
            *n_body = (size_t)(text + at - *body);
            return at + length;
        }
    return 0;
}
