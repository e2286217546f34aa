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

size_t swl_seal_at(const swl_seal *s, const char *text, size_t n, swl_seal_kind *kind, const char **body, size_t *n_body)
{
    size_t at = CHAR_BYTES * ((size_t)s->n_run + 2), end;
    int which;

    if (n < at + 2 * CHAR_BYTES || memcmp(text, first, CHAR_BYTES))
        return 0;
    for (size_t i = CHAR_BYTES; i < at; i += CHAR_BYTES)
        if (memcmp(text + i, run, CHAR_BYTES))
            return 0;
    which = (uint8_t)text[at + 2] - 0x93;
    if (memcmp(text + at, first, 2) || which < 0 || which >= SWL_SEAL_KINDS)
        return 0;
    at += CHAR_BYTES;
    for (end = at; end + CHAR_BYTES <= n && memcmp(text + end, last, CHAR_BYTES); end++)
        ;
    if (end + CHAR_BYTES > n)
        return 0;
    *kind = (swl_seal_kind)which;
    *body = text + at;
    *n_body = end - at;
    return end + CHAR_BYTES;
}
