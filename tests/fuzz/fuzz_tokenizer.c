/*
 * fuzz_tokenizer.c: every input is read as a tokenizer.json and, if that is accepted, used on a fixed text; and it is
 * text for a small fixed tokenizer. Encoding and decoding give the NFC of the text with invalid parts replaced, and
 * doing it again changes nothing.
 */
#include "fuzz/byte_bpe.h"
#include "fuzz/fuzz.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

/* Python's errors='replace', by the detokeniser. */
static char *replaced(const char *text, size_t n, size_t *n_out)
{
    char *out = swl_calloc(3 * n + 16, 1);
    swl_detok d;

    swl_detok_init(&d);
    *n_out = swl_detok_push(&d, text, n, out);
    *n_out += swl_detok_flush(&d, out + *n_out);
    return out;
}

/* Encodes and decodes. The caller frees the text. */
static char *round_trip(const swl_tokenizer *t, const char *text, size_t n, uint32_t flags, size_t *n_out)
{
    int32_t *ids, n_token;
    int64_t n_ids;
    char *back;

    CHECK(!swl_tokenizer_encode(t, text, n, flags, &ids, &n_ids, NULL));
    for (int64_t i = 0; i < n_ids; i++)
        CHECK(swl_tokenizer_token(t, ids[i], &n_token) && n_token > 0);
    CHECK(!swl_tokenizer_decode(t, ids, n_ids, false, &back, n_out, NULL));
    swl_free(ids);
    return back;
}

static void check_plain(const swl_tokenizer *t, const char *text, size_t n)
{
    size_t n_valid, n_back;
    char *valid = replaced(text, n, &n_valid), *back = round_trip(t, text, n, SWL_ENCODE_PLAIN, &n_back);
    utf8proc_uint8_t *want;
    utf8proc_ssize_t n_want =
        utf8proc_map((const uint8_t *)valid, (utf8proc_ssize_t)n_valid, &want, UTF8PROC_COMPOSE | UTF8PROC_STABLE);

    CHECK(n_want >= 0 && (size_t)n_want == n_back && !memcmp(want, back, n_back));
    free(want);
    swl_free(valid);
    swl_free(back);
}

/* With added tokens: what came out once is found again as it is. */
static void check_stable(const swl_tokenizer *t, const char *text, size_t n)
{
    size_t n_once, n_twice;
    char *once = round_trip(t, text, n, 0, &n_once), *twice = round_trip(t, once, n_once, 0, &n_twice);

    CHECK(n_once == n_twice && !memcmp(once, twice, n_once));
    swl_free(once);
    swl_free(twice);
}

static swl_tokenizer *parse(const char *json, size_t n)
{
    swl_tokenizer *t = swl_calloc(1, sizeof *t);
    char *copy = swl_strndup(json, n);
    swl_error err = {0};

    if (swl_tokenizer_parse(t, copy, n, "input", &err)) {
        CHECK(err.code && err.message[0]);
        swl_tokenizer_close(t);
        t = NULL;
    }
    swl_free(copy);
    return t;
}

static void try_json(const char *data, size_t size)
{
    static const char text[] = "Hello  world's caf\u00e9 e\u0301 \xFF\n\n 123 <|im_end|>\u0301x<think>the then";
    swl_tokenizer *t = parse(data, size);
    int32_t n;

    if (!t)
        return;
    check_plain(t, text, sizeof text - 1);
    /* Added tokens may be anything, so no more than that it ends well. */
    swl_free(round_trip(t, text, sizeof text - 1, 0, &(size_t){0}));
    for (int32_t id = 0; id < swl_tokenizer_n_tokens(t) && id < 1000; id++)
        CHECK(!swl_tokenizer_token(t, id, &n) == !n);
    swl_tokenizer_close(t);
}

/* The fixed tokenizer: the bytes, some merges, two added tokens. */
static const swl_tokenizer *fixed(void)
{
    static const char *const merges[] = {"t h",   "h e",           "th e",          "\u0120 the",
                                         "i n",   "\u00c3 \u00a9", "\u0120 \u0120", "a a",
                                         "aa aa", "\u00cc \u0123", "e \u00cc\u0123"};
    static const char added[] = "{\"id\":300,\"content\":\"<|im_end|>\"},{\"id\":301,\"content\":\"<think>\"}";
    static swl_tokenizer *t;
    char json[BYTE_BPE_JSON];

    if (t)
        return t;
    t = parse(json, byte_bpe(json, added, merges, sizeof merges / sizeof merges[0]));
    CHECK(t);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_json((const char *)data, size);
    if (size > 512) /* more of the same */
        return 0;
    check_plain(fixed(), (const char *)data, size);
    check_stable(fixed(), (const char *)data, size);
    return 0;
}
