/* seal.c: marks inside texts: U+FDD0, a run of U+FDD1, a character for the kind, the body, U+FDD2. */
#include "chat/seal.h"

#include <string.h>

enum { RUN_MAX = 4096, CHAR_BYTES = 3 };

static const char first[] = "\xEF\xB7\x90", run[] = "\xEF\xB7\x91", last[] = "\xEF\xB7\x92";

static bool is_escape(const char *p, size_t n)
{
    return n >= 4 && (p[0] == 'f' || p[0] == 'F') && (p[1] == 'd' || p[1] == 'D') && (p[2] == 'd' || p[2] == 'D') &&
           p[3] == '1';
}

swl_status swl_seal_avoid(swl_seal *s, const char *text, size_t n, swl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bool raw = n - i >= CHAR_BYTES && !memcmp(text + i, run, CHAR_BYTES);

        if ((raw || is_escape(text + i, n - i)) && ++s->n_run > RUN_MAX)
            return swl_fail(err, SWL_E_ARG, "the messages hold more than %d noncharacters U+FDD1", RUN_MAX);
    }
    return SWL_OK;
}

void swl_seal_put(const swl_seal *s, swl_seal_kind kind, const char *body, size_t n_body, swl_sbuf *out)
{
    const char which[] = {first[0], first[1], (char)(0x93 + (int)kind)};

    swl_sbuf_put(out, first, CHAR_BYTES);
    for (int32_t i = 0; i <= s->n_run; i++)
        swl_sbuf_put(out, run, CHAR_BYTES);
    swl_sbuf_put(out, which, CHAR_BYTES);
    swl_sbuf_put(out, body, n_body);
    swl_sbuf_put(out, last, CHAR_BYTES);
}

/* The noncharacter U+FDD0 + k at text, as itself or as the escape that Python's repr and JSON write for it: its length, or 0. */
static size_t unit_at(const char *text, size_t n, int *k)
{
    static const char escape[] = "\\ufdd", digits[] = "0123456789abcdef";
    const char *digit;

    if (n >= CHAR_BYTES && !memcmp(text, first, 2) && (uint8_t)text[2] >= 0x90 && (uint8_t)text[2] < 0xa0) {
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

size_t swl_seal_at(const swl_seal *s, const char *text, size_t n, swl_seal_kind *kind, const char **body, size_t *n_body)
{
    size_t at = 0, length;
    int k;

    for (int32_t i = 0; i < s->n_run + 2; i++, at += length)
        if (!(length = unit_at(text + at, n - at, &k)) || k != (i > 0))
            return 0;
    length = unit_at(text + at, n - at, &k);
    if (!length || k < 3 || k >= 3 + SWL_SEAL_KINDS)
        return 0;
    *kind = (swl_seal_kind)(k - 3);
    *body = text + (at += length);
    for (; at < n; at++)
        if ((length = unit_at(text + at, n - at, &k)) && k == 2) {
            *n_body = (size_t)(text + at - *body);
            return at + length;
        }
    return 0;
}
