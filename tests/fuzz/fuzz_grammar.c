/*
 * A letter (s: schema, c: choice, j and x: tools in either form) and JSON; after a NUL, bytes that choose tokens.
 * Whatever the JSON is, it ends in a grammar or in an error with a message. With a grammar: a mask is never empty, a
 * chosen token of it is allowed and goes on, other tokens are as the mask says, and the text is UTF-8.
 */
#include "fuzz/byte_bpe.h"
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "text/grammar.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

/* The bytes, some merges, three added tokens. */
static swl_tokenizer *make_tokenizer(void)
{
    static const char *const merges[] = {"\\\" :",   "{ \\\"",   "\\\" ,",        "t r",           "u e",   "tr ue",
                                         "} }",      "a a",      "aa aa",         "\u00c3 \u00a9", "1 0",   "< /",
                                         ", \u0120", "\u010a <", "\u00f0 \u0141", "\\\" }",        "\\\\ u"};
    static const char added[] = "{\"id\":300,\"content\":\"<|im_end|>\"},{\"id\":301,\"content\":\"<tool_call>\"},"
                                "{\"id\":302,\"content\":\"</tool_call>\"}";
    char json[BYTE_BPE_JSON];
    swl_tokenizer *t = swl_calloc(1, sizeof *t);
    swl_error err;

    CHECK(t && !swl_tokenizer_parse(t, json, byte_bpe(json, added, merges, sizeof merges / sizeof merges[0]), "t", &err));
    t->flags[300] |= SWL_TOKEN_STOP;
    return t;
}

static swl_status make(swl_grammar **g, const swl_tokenizer *t, char letter, const json_t *v, swl_error *err)
{
    if (letter == 'c')
        return swl_grammar_choice(g, t, v, err);
    if (letter == 'j' || letter == 'x')
        return swl_grammar_tool(g, t, v, NULL, letter == 'x' ? SWL_CALL_XML : SWL_CALL_JSON, false, err);
    return swl_grammar_schema(g, t, v, err);
}

/* A token of the mask, the `pick`th if there are so many. */
static int32_t choose(const uint32_t *mask, int32_t n, int32_t pick)
{
    int32_t first = -1, count = 0;

    for (int32_t id = 0; id < n; id++)
        if (mask[id / 32] >> id % 32 & 1) {
            first = first < 0 ? id : first;
            if (count++ == pick)
                return id;
        }
    return first;
}

/* What is there of the last character, or an error. */
static void check_text(const char *p, size_t n)
{
    int32_t k = 1;

    for (size_t i = 0; i < n && k; i += (size_t)k) {
        k = swl_utf8_part((const uint8_t *)p + i, n - i);
        CHECK(k >= 0);
    }
}

static void walk(const swl_grammar *g, const swl_tokenizer *t, const uint8_t *data, size_t size)
{
    int32_t n = swl_tokenizer_n_tokens(t), id, n_bytes;
    uint32_t mask[16];
    char text[4096];
    size_t n_text = 0;
    const char *p;
    swl_grammar_state *s;
    bool closed;

    CHECK(n <= 16 * 32 && !swl_grammar_begin(&s, g, NULL));
    for (size_t i = 0; i < 120 && n_text < sizeof text - 64; i++) {
        swl_grammar_mask(s, mask);
        for (int32_t k = (int32_t)(i % 8); k < n; k += i < 8 ? 1 : 8)
            CHECK(swl_grammar_allows(s, k) == (mask[k / 32] >> k % 32 & 1));
        id = choose(mask, n, i < size ? data[i] : 0);
        CHECK(id >= 0);
        CHECK(swl_tokenizer_is_stop(t, id) <= swl_grammar_complete(s, &closed));
        CHECK(!swl_grammar_accept(s, id, NULL));
        if (swl_tokenizer_is_stop(t, id))
            break;
        p = swl_tokenizer_token(t, id, &n_bytes);
        memcpy(text + n_text, p, (size_t)n_bytes);
        n_text += (size_t)n_bytes;
    }
    check_text(text, n_text);
    swl_grammar_end(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static swl_tokenizer *t;
    const uint8_t *nul = size > 1 ? memchr(data + 1, 0, size - 1) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    json_error_t why;
    json_t *v;
    swl_grammar *g;
    swl_error err;

    if (size < 2)
        return 0;
    if (!t)
        t = make_tokenizer();
    v = json_loadb((const char *)data + 1, n - 1, JSON_DECODE_ANY, &why);
    if (!v)
        return 0;
    if (make(&g, t, (char)data[0], v, &err))
        CHECK(!g && err.code && err.message[0]);
    else
        walk(g, t, data + n, size - n);
    swl_grammar_free(g);
    json_decref(v);
    return 0;
}
