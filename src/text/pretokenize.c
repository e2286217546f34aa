/*
 * pretokenize.c: the two published pre-tokeniser patterns, run by PCRE2.
 *
 * They were written for Oniguruma, where \s is Unicode White_Space. PCRE2's \s also takes U+180E, so white space is
 * spelt out as a class here; \p{..} and caseless matching (U+017F is an s) mean the same in both. The patterns have no
 * nested repeats: a piece is found in time linear in its length, and neither the JIT code nor the interpreter's heap
 * grows with it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"

struct swl_splitter {
    pcre2_code *code;
    bool jit;
};

#define SPACES                                                                                                         \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

static const struct {
    const char *published, *ours;
} patterns[] = {
    /* Qwen3 */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACES
     "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"},
    /* Qwen3.5: marks stay with the letters before them */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
     "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" SPACES "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"},
};

#define N_PATTERNS (sizeof patterns / sizeof patterns[0])

static swl_status compile(swl_splitter *s, const char *pattern, swl_error *err)
{
    PCRE2_UCHAR why[128];
    PCRE2_SIZE at;
    int code;

    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code,
                            &at, NULL);
    if (!s->code) {
        pcre2_get_error_message(code, why, sizeof why);
        return swl_fail(err, SWL_E_UNSUPPORTED, "PCRE2 does not compile the pre-tokenizer pattern: %s at offset %zu",
                        (char *)why, (size_t)at);
    }
    /* A system that forbids executable pages leaves the interpreter, which gives the same pieces more slowly. */
    s->jit = !pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    return SWL_OK;
}

swl_status swl_splitter_create(swl_splitter **out, const char *pattern, const char *path, swl_error *err)
{
    swl_splitter *s;
    swl_status st;
    size_t i = 0;

    *out = NULL;
    while (i < N_PATTERNS && strcmp(pattern, patterns[i].published))
        i++;
    if (i == N_PATTERNS)
        return swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1,
                           "%s: the pre-tokenizer pattern is neither Qwen3's nor Qwen3.5's: %s", path, pattern);
    s = swl_calloc(1, sizeof *s);
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory");
    st = compile(s, patterns[i].ours, err);
    if (st) {
        swl_splitter_free(s);
        return st;
    }
    *out = s;
    return SWL_OK;
}

void swl_splitter_free(swl_splitter *s)
{
    if (!s)
        return;
    pcre2_code_free(s->code);
    swl_free(s);
}

swl_status swl_split_init(swl_split *w, const swl_splitter *s, swl_error *err)
{
    w->splitter = s;
    w->match_context = pcre2_match_context_create(NULL);
    w->match_data = pcre2_match_data_create(1, NULL);
    if (!w->match_context || !w->match_data)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory");
    /* Far above what a linear match takes, far below what would be noticed. KiB for the heap. */
    pcre2_set_heap_limit(w->match_context, 1024);
    pcre2_set_depth_limit(w->match_context, 1000);
    return SWL_OK;
}

void swl_split_deinit(swl_split *w)
{
    pcre2_match_data_free(w->match_data);
    pcre2_match_context_free(w->match_context);
}

swl_status swl_split_next(swl_split *w, const uint8_t *text, size_t n_bytes, size_t at, size_t *n_piece, swl_error *err)
{
    const swl_splitter *s = w->splitter;
    size_t n = n_bytes - at;
    int rc;

    /* A linear match counts a few steps per byte. */
    pcre2_set_match_limit(w->match_context, n < (UINT32_MAX - 1000) / 8 ? (uint32_t)n * 8 + 1000 : UINT32_MAX);
    if (s->jit)
        rc = pcre2_jit_match(s->code, text, n_bytes, at, PCRE2_NO_UTF_CHECK, w->match_data, w->match_context);
    else
        rc = pcre2_match(s->code, text, n_bytes, at, PCRE2_NO_UTF_CHECK, w->match_data, w->match_context);
    if (rc < 0)
        return swl_fail(err, rc == PCRE2_ERROR_NOMEMORY ? SWL_E_NOMEM : SWL_E_FAIL,
                        "tokenizer: PCRE2 error %d cutting %zu bytes of text into pieces", rc, n);
    *n_piece = pcre2_get_ovector_pointer(w->match_data)[1] - at;
    return SWL_OK;
}
