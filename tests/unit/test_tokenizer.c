/* The tokenizer on small tokenizer.json files that the tests write: loading and refusing, added tokens, merging against
 * a plain merger, decoding, the stop set, and every failing allocation. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/tokenizer_impl.h"

#define PATTERN                                                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"  \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static char dir[] = "/tmp/swl-tokenizer-XXXXXX";

static void write_text(const char *name, const char *text)
{
    char *path = swl_path_join(dir, name);

    assert_int_equal(swl_file_save(path, text, strlen(text), NULL), SWL_OK);
    swl_free(path);
}

static void remove_file(const char *name)
{
    char *path = swl_path_join(dir, name);

    unlink(path);
    swl_free(path);
}

/* ---- making tokenizer.json ---- */

/* The alphabet, written from its description: printable Latin-1 is itself, the rest follows from U+0100 in order. */
static const char *letter(int byte)
{
    static char out[256][3];
    static bool made;

    for (int b = 0, next = 0x100; !made && b < 256; b++) {
        bool self = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        int code = self ? b : next++;

        if (code < 0x80) {
            out[b][0] = (char)code;
        } else {
            out[b][0] = (char)(0xC0 | code >> 6);
            out[b][1] = (char)(0x80 | (code & 0x3F));
        }
    }
    made = true;
    return out[byte & 255];
}

/* Ids 0..255 are the bytes, the next ones what `merges` makes ("a b" strings in the alphabet), then the added tokens.
 */
static json_t *make_json(const char *const *merges, int32_t n_merges, const char *added)
{
    json_t *vocab = json_object(), *list = json_array();
    int32_t id = 0;

    for (; id < 256; id++)
        json_object_set_new(vocab, letter(id), json_integer(id));
    for (int32_t i = 0; i < n_merges; i++) {
        const char *space = strchr(merges[i], ' ');
        char *whole = swl_asprintf("%.*s%s", (int)(space - merges[i]), merges[i], space + 1);

        json_object_set_new(vocab, whole, json_integer(id++));
        json_array_append_new(list, json_string(merges[i]));
        swl_free(whole);
    }
    return json_pack(
        "{s:s,s:o,s:{s:s},s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]},s:n,s:{s:s},s:{s:s,s:n,s:o,s:o}}",
        "version", "1.0", "added_tokens", json_loads(added, 0, NULL), "normalizer", "type", "NFC", "pre_tokenizer",
        "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex", PATTERN, "behavior", "Isolated",
        "invert", 0, "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0, "post_processor",
        "decoder", "type", "ByteLevel", "model", "type", "BPE", "dropout", "vocab", vocab, "merges", list);
}

/* Consumes root. */
static swl_status open_json(swl_tokenizer **t, json_t *root, swl_error *err)
{
    char *text = json_dumps(root, 0);

    assert_non_null(text);
    write_text("tokenizer.json", text);
    free(text);
    json_decref(root);
    return swl_tokenizer_open(t, dir, err);
}

static const char *const merges[] = {"h e",       "l l",           "he ll", "hell o", "\u0120 w",
                                     "\u0120w o", "\u00c3 \u00a9", "a b",   "b c"};
#define N_MERGES ((int32_t)(sizeof merges / sizeof merges[0]))
enum { HE = 256, LL, HELL, HELLO, SW, SWO, E_ACUTE, AB, BC, END, START, THINK, ENDX };

#define ADDED                                                                                                          \
    "[{\"id\":265,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"                                     \
    "{\"id\":266,\"content\":\"<|im_end|>\",\"special\":true,\"lstrip\":false},"                                       \
    "{\"id\":267,\"content\":\"<think>\",\"special\":false},"                                                          \
    "{\"id\":268,\"content\":\"<|end|>x\"},{\"id\":300,\"content\":\"\u00e9\u00e9\"}]"

static swl_tokenizer *open_small(void)
{
    swl_tokenizer *t;
    swl_error err;

    if (open_json(&t, make_json(merges, N_MERGES, ADDED), &err))
        fail_msg("%s", err.message);
    return t;
}

static void expect_n(const swl_tokenizer *t, const char *text, size_t n, uint32_t flags, const int32_t *want,
                     int64_t n_want)
{
    int32_t *ids;
    int64_t n_ids;

    assert_int_equal(swl_tokenizer_encode(t, text, n, flags, &ids, &n_ids, NULL), SWL_OK);
    assert_int_equal(n_ids, n_want);
    for (int64_t i = 0; i < n_want; i++)
        assert_int_equal(ids[i], want[i]);
    swl_free(ids);
}

#define IDS(...)                    (const int32_t[]){__VA_ARGS__}, (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define expect(t, text, flags, ...) expect_n(t, text, sizeof text - 1, flags, IDS(__VA_ARGS__))

/* ---- encoding ---- */

static void merges_by_rank_inside_pieces(void **state)
{
    swl_tokenizer *t = open_small();

    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        expect(t, "hello", 0, HELLO);
        expect(t, "hello world", 0, HELLO, SWO, 'r', 'l', 'd');
        expect(t, "abc", 0, AB, 'c');
        expect(t, "xbc", 0, 'x', BC);
        expect(t, "hel", 0, HE, 'l');
        expect(t, "a\0b", 0, 'a', 0, 'b');
    }
    expect_n(t, "", 0, 0, NULL, 0);
    expect_n(t, NULL, 0, 0, NULL, 0);
    swl_tokenizer_close(t);
}

/* A token whose own bytes merge another way is not what its text becomes. */
static void a_token_that_its_bytes_do_not_merge_to_is_not_used(void **state)
{
    static const char *const other[] = {"b c", "a b", "ab c"};
    swl_tokenizer *t;

    (void)state;
    assert_int_equal(open_json(&t, make_json(other, 3, "[]"), NULL), SWL_OK);
    for (int twice = 0; twice < 2; twice++) {
        expect(t, "abc", 0, 'a', 256);
        expect(t, "ab", 0, 257);
    }
    swl_tokenizer_close(t);
}

static void normalises_before_merging(void **state)
{
    swl_tokenizer *t = open_small();

    (void)state;
    expect(t, "\u00e9", 0, E_ACUTE);
    expect(t, "e\u0301", 0, E_ACUTE);
    expect(t, "h\u00e9", 0, 'h', E_ACUTE);
    swl_tokenizer_close(t);
}

/* U+0390 comes of U+1FBE U+0308 U+0301 at its longest: 3 + 2 + 2 bytes against 2. The longest token of open_small is "<|end|>x". */
static void the_fewest_tokens_of_a_size_are_not_more_than_any_text_has(void **state)
{
    static const char *const texts[] = {"<|end|>x", "\u1fbe\u0308\u0301", "\u00e9", " ", "\xff"};
    swl_tokenizer *t = open_small();

    (void)state;
    assert_int_equal(swl_tokenizer_tokens_min(t, 0), 0);
    assert_in_range(swl_tokenizer_tokens_min(t, 8000), 1, 1000);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[4096] = "";
        int64_t n_ids;
        int32_t *ids;

        for (int k = 0; k < 300; k++)
            strcat(text, texts[i]);
        assert_int_equal(swl_tokenizer_encode(t, text, strlen(text), 0, &ids, &n_ids, NULL), SWL_OK);
        assert_true(swl_tokenizer_tokens_min(t, strlen(text)) <= n_ids);
        swl_free(ids);
    }
    swl_tokenizer_close(t);
}

static void finds_the_longest_added_token_before_normalising(void **state)
{
    swl_tokenizer *t = open_small();

    (void)state;
    expect(t, "<|end|>", 0, END);
    expect(t, "<|end|>x", 0, ENDX);
    expect(t, "<|end|><think>he<|end|>y", 0, END, THINK, HE, END, 'y');
    expect(t, "<|end|", 0, '<', '|', 'e', 'n', 'd', '|');
    expect(t, "<<think>", 0, '<', THINK);
    /* Two accented letters are an added token; decomposed they are not, whatever they compose to. */
    expect(t, "\u00e9\u00e9\u00e9", 0, 300, E_ACUTE);
    expect(t, "e\u0301e\u0301", 0, E_ACUTE, E_ACUTE);
    /* A mark after an added token starts a new text. */
    expect(t, "e<|end|>\u0301x", 0, 'e', END, 0xCC, 0x81, 'x');
    /* The end of a stretch counts as the end of the text for white space. */
    expect(t, "a  <|end|>", 0, 'a', ' ', ' ', END);
    swl_tokenizer_close(t);
}

static void plain_encoding_leaves_added_tokens_as_text(void **state)
{
    swl_tokenizer *t = open_small();

    (void)state;
    expect(t, "<think>he", SWL_ENCODE_PLAIN, '<', 't', 'h', 'i', 'n', 'k', '>', HE);
    swl_tokenizer_close(t);
}

static void unknown_flags_are_refused(void **state)
{
    swl_tokenizer *t = open_small();
    int32_t *ids;
    int64_t n;

    (void)state;
    assert_int_equal(swl_tokenizer_encode(t, "a", 1, 2, &ids, &n, NULL), SWL_E_ARG);
    assert_null(ids);
    swl_tokenizer_close(t);
}

/* The Unicode Standard, table 3-8, with what follows from it for the ends. */
static void invalid_parts_become_replacement_characters(void **state)
{
    swl_tokenizer *t = open_small();

    (void)state;
#define R 0xEF, 0xBF, 0xBD
    expect(t, "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 0, 'a', R, R, R, 'b', R, 'c', R, R, 'd');
    expect(t, "\xED\xA0\x80", 0, R, R, R);
    expect(t, "he\xE2\x82", 0, HE, R);
    expect(t, "\xFF<think>\xC3", 0, R, THINK, R);
#undef R
    swl_tokenizer_close(t);
}

/* ---- merging against a plain merger ---- */

enum { RANDOM_MERGES = 120 };

static uint32_t seed = 7;

static uint32_t noise(void)
{
    return (seed = seed * 1664525 + 1013904223) >> 8;
}

/* Joins random earlier tokens over three letters; every result is new, so ids follow ranks. */
static void random_merges(char text[RANDOM_MERGES][64], const char **list)
{
    char tokens[RANDOM_MERGES + 3][32] = {"a", "b", "c"}, joined[32] = "";
    int n = 3;

    while (n < RANDOM_MERGES + 3) {
        const char *left = tokens[noise() % (uint32_t)n], *right = tokens[noise() % (uint32_t)n];
        bool fits = strlen(left) + strlen(right) < 12;

        if (fits)
            snprintf(joined, sizeof joined, "%s%s", left, right);
        for (int i = 0; fits && i < n; i++)
            fits = strcmp(tokens[i], joined) != 0;
        if (!fits)
            continue;
        strcpy(tokens[n], joined);
        snprintf(text[n - 3], 64, "%s %s", left, right);
        list[n - 3] = text[n - 3];
        n++;
    }
}

/* The rule as it is told: among all pairs the lowest rank, leftmost on ties, until no pair has one. */
static int plain_merge(const char *const *list, char parts[][32], int n)
{
    for (;;) {
        int best = RANDOM_MERGES, at = 0;

        for (int i = 0; i + 1 < n; i++)
            for (int rank = 0; rank < best; rank++) {
                const char *space = strchr(list[rank], ' ');

                if (!strncmp(list[rank], parts[i], (size_t)(space - list[rank])) &&
                    strlen(parts[i]) == (size_t)(space - list[rank]) && !strcmp(space + 1, parts[i + 1])) {
                    best = rank;
                    at = i;
                }
            }
        if (best == RANDOM_MERGES)
            return n;
        memcpy(parts[at] + strlen(parts[at]), parts[at + 1], strlen(parts[at + 1]) + 1);
        memmove(parts[at + 1], parts[at + 2], (size_t)(n - at - 2) * sizeof parts[0]);
        n--;
    }
}

static void agrees_with_a_plain_merger(void **state)
{
    static char text[RANDOM_MERGES][64];
    const char *list[RANDOM_MERGES];
    swl_tokenizer *t;

    (void)state;
    for (int vocabulary = 0; vocabulary < 10; vocabulary++) {
        random_merges(text, list);
        assert_int_equal(open_json(&t, make_json(list, RANDOM_MERGES, "[]"), NULL), SWL_OK);
        for (int round = 0; round < 60; round++) {
            char parts[48][32], word[48];
            int n = (int)(noise() % 40) + 1, n_parts;
            int32_t *ids;
            int64_t n_ids;

            for (int i = 0; i < n; i++) {
                word[i] = (char)('a' + noise() % 3);
                parts[i][0] = word[i];
                parts[i][1] = 0;
            }
            n_parts = plain_merge(list, parts, n);
            assert_int_equal(swl_tokenizer_encode(t, word, (size_t)n, 0, &ids, &n_ids, NULL), SWL_OK);
            assert_int_equal(n_ids, n_parts);
            for (int i = 0; i < n_parts; i++) {
                int32_t n_token;
                const char *token = swl_tokenizer_token(t, ids[i], &n_token);

                assert_int_equal(n_token, strlen(parts[i]));
                assert_memory_equal(token, parts[i], (size_t)n_token);
            }
            swl_free(ids);
        }
        swl_tokenizer_close(t);
    }
}

/* A megabyte without a break, as base64 or an endless word is: neither the stack nor the time may grow faster. */
static void a_megabyte_in_one_piece(void **state)
{
    static const char *const doubling[] = {"a a", "aa aa", "aaaa aaaa", "b a", "ba b"};
    enum { N = 1 << 20 };
    char *text = swl_calloc(N, 1), *back;
    swl_tokenizer *t;
    int32_t *ids;
    int64_t n;
    size_t n_back;

    (void)state;
    assert_int_equal(open_json(&t, make_json(doubling, 5, "[]"), NULL), SWL_OK);
    memset(text, 'a', N);
    assert_int_equal(swl_tokenizer_encode(t, text, N, 0, &ids, &n, NULL), SWL_OK);
    assert_int_equal(n, N / 8);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(ids[i], 258);
    swl_free(ids);
    for (size_t i = 0; i < N; i++)
        text[i] = (char)("abcdefgh"[noise() % 8]);
    assert_int_equal(swl_tokenizer_encode(t, text, N, 0, &ids, &n, NULL), SWL_OK);
    assert_int_equal(swl_tokenizer_decode(t, ids, n, false, &back, &n_back, NULL), SWL_OK);
    assert_int_equal(n_back, N);
    assert_memory_equal(back, text, N);
    swl_free(back);
    swl_free(ids);
    swl_free(text);
    swl_tokenizer_close(t);
}

/* ---- decoding and looking up ---- */

static void decodes_to_bytes_and_drops_special_tokens(void **state)
{
    const int32_t ids[] = {HELLO, END, 0xC3, THINK, 300, ' '};
    swl_tokenizer *t = open_small();
    swl_error err;
    char *text;
    size_t n;

    (void)state;
    assert_int_equal(swl_tokenizer_decode(t, ids, 6, false, &text, &n, NULL), SWL_OK);
    assert_string_equal(text, "hello<|end|>\xC3<think>\u00e9\u00e9 ");
    assert_int_equal(n, strlen(text));
    swl_free(text);
    assert_int_equal(swl_tokenizer_decode(t, ids, 6, true, &text, &n, NULL), SWL_OK);
    assert_string_equal(text, "hello\xC3<think>\u00e9\u00e9 ");
    swl_free(text);
    assert_int_equal(swl_tokenizer_decode(t, NULL, 0, true, &text, &n, NULL), SWL_OK);
    assert_string_equal(text, "");
    swl_free(text);
    assert_int_equal(swl_tokenizer_decode(t, (const int32_t[]){HE, 299}, 2, true, &text, &n, &err), SWL_E_ARG);
    assert_string_equal(err.message, "tokenizer: id 299 at index 1 is no token");
    assert_null(text);
    assert_int_equal(swl_tokenizer_decode(t, (const int32_t[]){-1}, 1, true, &text, &n, &err), SWL_E_ARG);
    assert_int_equal(swl_tokenizer_decode(t, (const int32_t[]){301}, 1, true, &text, &n, &err), SWL_E_ARG);
    swl_tokenizer_close(t);
}

static void looks_tokens_up(void **state)
{
    swl_tokenizer *t = open_small();
    int32_t n;

    (void)state;
    assert_int_equal(swl_tokenizer_n_tokens(t), 301);
    assert_int_equal(swl_tokenizer_special(t, "<think>"), THINK);
    assert_int_equal(swl_tokenizer_special(t, "<|end|>"), END);
    assert_int_equal(swl_tokenizer_special(t, "<thin"), -1);
    assert_int_equal(swl_tokenizer_special(t, "hello"), -1);
    assert_true(swl_tokenizer_is_special(t, END));
    assert_false(swl_tokenizer_is_special(t, THINK));
    assert_false(swl_tokenizer_is_special(t, HELLO));
    assert_false(swl_tokenizer_is_special(t, -1));
    assert_false(swl_tokenizer_is_special(t, 1 << 30));
    assert_memory_equal(swl_tokenizer_token(t, SWO, &n), " wo", 3);
    assert_int_equal(n, 3);
    assert_memory_equal(swl_tokenizer_token(t, 0, &n), "\0", 1);
    assert_int_equal(n, 1);
    assert_null(swl_tokenizer_token(t, 299, &n));
    assert_int_equal(n, 0);
    assert_null(swl_tokenizer_token(t, 301, &n));
    assert_null(swl_tokenizer_token(t, -5, &n));
    swl_tokenizer_close(t);
}

/* As in Qwen3.5: tokens that no merge makes are never encoded, but a model may say them. */
static void tokens_that_no_merge_makes_decode(void **state)
{
    json_t *root = make_json(merges, N_MERGES, "[]"), *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    swl_tokenizer *t;
    int32_t n;

    (void)state;
    json_object_set_new(vocab, "xyz", json_integer(270));
    json_object_set_new(vocab, "\u4e16", json_integer(271)); /* not in the alphabet: its own text */
    assert_int_equal(open_json(&t, root, NULL), SWL_OK);
    expect(t, "xyz", 0, 'x', 'y', 'z');
    expect(t, "\u4e16", 0, 0xE4, 0xB8, 0x96);
    assert_memory_equal(swl_tokenizer_token(t, 270, &n), "xyz", 3);
    assert_memory_equal(swl_tokenizer_token(t, 271, &n), "\u4e16", 3);
    assert_int_equal(n, 3);
    swl_tokenizer_close(t);
}

/* ---- loading ---- */

static void merges_may_be_pairs(void **state)
{
    json_t *root = make_json(merges, N_MERGES, ADDED), *model = json_object_get(root, "model"), *list = json_array();
    swl_tokenizer *t;

    (void)state;
    for (int32_t i = 0; i < N_MERGES; i++) {
        const char *space = strchr(merges[i], ' ');

        json_array_append_new(list, json_pack("[s#,s]", merges[i], (int)(space - merges[i]), space + 1));
    }
    json_object_set_new(model, "merges", list);
    assert_int_equal(open_json(&t, root, NULL), SWL_OK);
    expect(t, "hello world", 0, HELLO, SWO, 'r', 'l', 'd');
    swl_tokenizer_close(t);
}

/* One change to a good file, and what the refusal must say. `path` leads to a field: keys and indices by '/'. */
typedef struct change {
    const char *path, *value; /* value NULL: the field goes */
    swl_status want;
    const char *says;
} change;

static void apply(json_t *root, const change *c)
{
    char path[64], *key = path, *slash;
    json_t *v = root, *value = c->value ? json_loads(c->value, JSON_DECODE_ANY, NULL) : NULL;

    assert_true(!c->value || value);
    strcpy(path, c->path);
    for (; (slash = strchr(key, '/')); key = slash + 1) {
        *slash = 0;
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
        assert_non_null(v);
    }
    if (json_is_array(v))
        json_array_insert_new(v, (size_t)atoi(key), value);
    else if (value)
        json_object_set_new(v, key, value);
    else
        json_object_del(v, key);
}

static void refuses_what_it_does_not_compute(void **state)
{
    static const change changes[] = {
        {"normalizer", "null", SWL_E_UNSUPPORTED, "normalizer"},
        {"normalizer/type", "\"NFKC\"", SWL_E_UNSUPPORTED, "normalizer"},
        {"pre_tokenizer", NULL, SWL_E_UNSUPPORTED, "pre_tokenizer"},
        {"pre_tokenizer/type", "\"Whitespace\"", SWL_E_UNSUPPORTED, "pre_tokenizer"},
        {"pre_tokenizer/pretokenizers/1/use_regex", "true", SWL_E_UNSUPPORTED, "use_regex"},
        {"pre_tokenizer/pretokenizers/1/add_prefix_space", NULL, SWL_E_UNSUPPORTED, "add_prefix_space"},
        {"pre_tokenizer/pretokenizers/0/invert", "true", SWL_E_UNSUPPORTED, "inverted"},
        {"pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", SWL_E_UNSUPPORTED, "Isolated"},
        {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\p{L}{1,3}\"", SWL_E_UNSUPPORTED, "\\p{L}{1,3}"},
        {"post_processor", "{\"type\": \"TemplateProcessing\"}", SWL_E_UNSUPPORTED, "post_processor"},
        {"decoder", "null", SWL_E_UNSUPPORTED, "decoder"},
        {"model", "[]", SWL_E_CORRUPT, "model"},
        {"model/type", "\"Unigram\"", SWL_E_UNSUPPORTED, "model.type"},
        {"model/dropout", "0.1", SWL_E_UNSUPPORTED, "dropout"},
        {"model/unk_token", "\"<unk>\"", SWL_E_UNSUPPORTED, "unk_token"},
        {"model/byte_fallback", "true", SWL_E_UNSUPPORTED, "byte_fallback"},
        {"model/ignore_merges", "true", SWL_E_UNSUPPORTED, "ignore_merges"},
        {"model/end_of_word_suffix", "\"</w>\"", SWL_E_UNSUPPORTED, "end_of_word_suffix"},
        {"model/vocab", "[]", SWL_E_CORRUPT, "model.vocab"},
        {"model/vocab/x", NULL, SWL_E_CORRUPT, "0x78"},
        {"model/vocab/x", "-1", SWL_E_CORRUPT, "\"model\", \"vocab\": expected an integer from 0"},
        {"model/vocab/x", "1.5", SWL_E_CORRUPT, "expected an integer from 0"},
        {"model/vocab/x", "2097152", SWL_E_CORRUPT, "id 2097152"},
        {"model/vocab/x", "121", SWL_E_CORRUPT, "id 121"},
        {"model/vocab/", "280", SWL_E_CORRUPT, "empty"},
        {"model/merges", "{}", SWL_E_CORRUPT, "model.merges"},
        {"model/merges/3", "\"q q\"", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "\"hello\"", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "\"he  llo\"", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "[\"h\"]", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "[\"h\", \"e\", \"l\"]", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "[\"\", \"h\"]", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "7", SWL_E_CORRUPT, "model.merges[3]"},
        {"model/merges/3", "\"h e\"", SWL_E_CORRUPT, "repeats"},
        {"added_tokens", "7", SWL_E_CORRUPT, "added_tokens"},
        {"added_tokens/0", "7", SWL_E_CORRUPT, "id"},
        {"added_tokens/0", "{\"id\": 280}", SWL_E_CORRUPT, "content"},
        {"added_tokens/0", "{\"content\": \"x\"}", SWL_E_CORRUPT, "id"},
        {"added_tokens/0/id", "-3", SWL_E_CORRUPT, "id"},
        {"added_tokens/0/id", "1099511627776", SWL_E_CORRUPT, "id"},
        {"added_tokens/0/id", "70", SWL_E_CORRUPT, "id 70"},
        {"added_tokens/0/content", "\"\"", SWL_E_CORRUPT, "empty"},
        {"added_tokens/0/content", "\"<think>\"", SWL_E_CORRUPT, "<think>"},
        {"added_tokens/0/special", "1", SWL_E_CORRUPT, "special"},
        {"added_tokens/0/normalized", "true", SWL_E_UNSUPPORTED, "normalized"},
        {"added_tokens/0/lstrip", "true", SWL_E_UNSUPPORTED, "lstrip"},
        {"added_tokens/0/rstrip", "true", SWL_E_UNSUPPORTED, "rstrip"},
        {"added_tokens/0/single_word", "true", SWL_E_UNSUPPORTED, "single_word"},
    };
    swl_tokenizer *t;
    swl_error err;

    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        json_t *root = make_json(merges, N_MERGES, ADDED);

        apply(root, &changes[i]);
        memset(&err, 0, sizeof err);
        if (open_json(&t, root, &err) != changes[i].want || !strstr(err.message, changes[i].says) ||
            !strstr(err.file, "/tokenizer.json") || t)
            fail_msg("%s = %s: %s: %s", changes[i].path, changes[i].value ? changes[i].value : "nothing",
                     swl_status_name(err.code), err.message);
    }
}

static void absent_optional_fields_are_fine(void **state)
{
    static const change changes[] = {
        {"added_tokens", NULL, SWL_OK, ""},      {"post_processor", NULL, SWL_OK, ""},
        {"model/dropout", NULL, SWL_OK, ""},     {"post_processor", "{\"type\": \"ByteLevel\"}", SWL_OK, ""},
        {"truncation", "null", SWL_OK, ""},      {"model/continuing_subword_prefix", "\"\"", SWL_OK, ""},
        {"model/unk_token", "null", SWL_OK, ""}, {"model/ignore_merges", "false", SWL_OK, ""},
    };
    swl_tokenizer *t;
    swl_error err;

    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        json_t *root = make_json(merges, N_MERGES, ADDED);

        apply(root, &changes[i]);
        if (open_json(&t, root, &err))
            fail_msg("%s: %s", changes[i].path, err.message);
        expect(t, "hello", 0, HELLO);
        swl_tokenizer_close(t);
    }
}

static void missing_and_broken_files_are_named(void **state)
{
    swl_tokenizer *t;
    swl_error err;

    (void)state;
    remove_file("tokenizer.json");
    assert_int_equal(swl_tokenizer_open(&t, dir, &err), SWL_E_NOT_FOUND);
    assert_non_null(strstr(err.file, "/tokenizer.json"));
    assert_null(t);
    write_text("tokenizer.json", "{\"version\": ");
    assert_int_equal(swl_tokenizer_open(&t, dir, &err), SWL_E_CORRUPT);
    write_text("tokenizer.json", "[]");
    assert_int_equal(swl_tokenizer_open(&t, dir, &err), SWL_E_CORRUPT);
    write_text("tokenizer.json", "");
    assert_int_equal(swl_tokenizer_open(&t, dir, &err), SWL_E_CORRUPT);
}

/* Every file that is cut short, or has one byte too many, is refused. */
static void a_file_cut_anywhere_is_refused(void **state)
{
    json_t *root = make_json(merges, N_MERGES, ADDED);
    char *text = json_dumps(root, JSON_COMPACT), *copy = swl_calloc(strlen(text) + 2, 1);
    size_t n = strlen(text);

    (void)state;
    for (size_t cut = 0; cut <= n + 1; cut++) {
        swl_tokenizer *t = swl_calloc(1, sizeof *t);
        swl_error err = {0};
        swl_status st;

        memcpy(copy, text, n);
        copy[n] = '}';
        st = swl_tokenizer_parse(t, copy, cut, "t.json", &err);
        assert_int_equal(st, cut == n ? SWL_OK : SWL_E_CORRUPT);
        assert_string_equal(err.file, cut == n ? "" : "t.json");
        swl_tokenizer_close(t);
    }
    swl_free(copy);
    free(text);
    json_decref(root);
}

static void a_field_that_is_there_twice_is_refused(void **state)
{
    static const char *const texts[] = {
        "{\"model\": {\"type\": \"BPE\", \"type\": \"BPE\"}}",
        "{\"model\": {\"vocab\": {}, \"vocab\": {}}}",
        "{\"model\": {\"merges\": [], \"merges\": []}}",
        "{\"model\": {}, \"model\": {}}",
        "{\"decoder\": {}, \"decoder\": {}}",
    };
    swl_tokenizer *t;
    swl_error err;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text("tokenizer.json", texts[i]);
        assert_int_equal(swl_tokenizer_open(&t, dir, &err), SWL_E_CORRUPT);
        assert_non_null(strstr(err.message, "expected this field once"));
    }
}

/* ---- the stop set ---- */

/* NULL: the file is missing. Checks exactly which of the added tokens and two letters stop. */
static void expect_stops(const char *generation, const char *config, const char *tokenizer, const char *want)
{
    static const struct {
        char name;
        int32_t id;
    } watched[] = {{'i', 266}, {'e', 269}, {'t', THINK}, {'A', 'A'}, {'B', 'B'}};
    const char *const names[] = {"generation_config.json", "config.json", "tokenizer_config.json"};
    const char *const texts[] = {generation, config, tokenizer};
    char got[8] = "", *p = got;
    swl_tokenizer *t;
    swl_error err;
    int32_t n = 0;

    for (int i = 0; i < 3; i++) {
        if (texts[i])
            write_text(names[i], texts[i]);
        else
            remove_file(names[i]);
    }
    if (open_json(&t,
                  make_json(merges, N_MERGES,
                            "[{\"id\":266,\"content\":\"<|im_end|>\"},{\"id\":267,\"content\":\"<think>\"},"
                            "{\"id\":269,\"content\":\"<|endoftext|>\"}]"),
                  &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < 5; i++)
        if (swl_tokenizer_is_stop(t, watched[i].id))
            *p++ = watched[i].name;
    *p = 0;
    assert_string_equal(got, want);
    for (int32_t id = -2; id < 400; id++)
        n += swl_tokenizer_is_stop(t, id);
    assert_int_equal(n, strlen(want));
    swl_tokenizer_close(t);
    for (int i = 0; i < 3; i++)
        remove_file(names[i]);
}

static void stops_at_the_union_of_what_the_files_name(void **state)
{
    (void)state;
    expect_stops("{\"eos_token_id\": [266, 269]}", NULL, NULL, "ie");
    expect_stops("{\"eos_token_id\": 266}", NULL, NULL, "i");
    expect_stops("{\"eos_token_id\": 266}", "{\"eos_token_id\": 65}", NULL, "iA");
    expect_stops("{\"eos_token_id\": 266}", "{\"text_config\": {\"eos_token_id\": [65, 66]}}", NULL, "iAB");
    expect_stops("{\"eos_token_id\": 65}", NULL, "{\"eos_token\": \"<|im_end|>\"}", "iA");
    expect_stops("{\"eos_token_id\": 65}", NULL, "{\"eos_token\": {\"content\": \"<think>\"}}", "tA");
    expect_stops("{\"eos_token_id\": 65}", "{\"eos_token_id\": null}", "{\"eos_token\": null}", "A");
}

static void both_end_tokens_stop_when_generation_config_is_silent(void **state)
{
    (void)state;
    expect_stops(NULL, NULL, NULL, "ie");
    expect_stops("{\"temperature\": 1}", NULL, NULL, "ie");
    expect_stops("{\"eos_token_id\": []}", NULL, NULL, "ie");
    expect_stops(NULL, "{\"eos_token_id\": 65}", "{\"eos_token\": \"<think>\"}", "ietA");
}

static void ids_that_are_no_token_do_not_stop(void **state)
{
    (void)state;
    expect_stops("{\"eos_token_id\": [266, -1, 268, 5000000000]}", NULL, "{\"eos_token\": \"</s>\"}", "i");
}

static void stop_fields_of_a_wrong_type_are_refused(void **state)
{
    static const char *const bad[][2] = {
        {"generation_config.json", "{\"eos_token_id\": \"266\"}"},
        {"generation_config.json", "{\"eos_token_id\": [266, null]}"},
        {"generation_config.json", "[]"},
        {"generation_config.json", "{"},
        {"config.json", "{\"text_config\": {\"eos_token_id\": 1.5}}"},
        {"tokenizer_config.json", "{\"eos_token\": 5}"},
    };
    swl_tokenizer *t;
    swl_error err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(bad[i][0], bad[i][1]);
        assert_int_equal(open_json(&t, make_json(merges, N_MERGES, ADDED), &err), SWL_E_CORRUPT);
        assert_non_null(strstr(err.file, bad[i][0]));
        remove_file(bad[i][0]);
    }
}

/* ---- threads ---- */

static void *encode_many(void *arg)
{
    const swl_tokenizer *t = arg;

    for (int i = 0; i < 300; i++) {
        expect(t, "hello hello world", 0, HELLO, ' ', HELLO, SWO, 'r', 'l', 'd');
        expect(t, "abc xbc e\u0301<|end|>", 0, AB, 'c', ' ', 'x', BC, ' ', E_ACUTE, END);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    swl_tokenizer *t = open_small();
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    swl_tokenizer_close(t);
}

/* ---- memory ---- */

static void every_failing_allocation_is_a_clean_error(void **state)
{
    const char text[] = "hello e\u0301 \xFF <|end|> wo wo wo";
    swl_tokenizer *t = open_small();
    swl_status st;
    int32_t *ids;
    int64_t n_ids;
    char *back;
    size_t n;

    (void)state;
    for (int64_t i = 0; i < 400; i++) {
        swl_tokenizer *u;

        swl_mem_fail_after(i, false);
        st = swl_tokenizer_open(&u, dir, NULL);
        swl_mem_fail_after(-1, false);
        assert_true(st == SWL_OK ? u != NULL : st == SWL_E_NOMEM && !u);
        swl_tokenizer_close(u);
        if (!st)
            break;
        assert_true(i < 399);
    }
    for (int64_t i = 0; i < 100; i++) {
        swl_mem_fail_after(i, true);
        st = swl_tokenizer_encode(t, text, sizeof text - 1, 0, &ids, &n_ids, NULL);
        swl_mem_fail_after(-1, false);
        assert_true(st == SWL_OK ? ids != NULL : st == SWL_E_NOMEM && !ids);
        if (!st)
            break;
        assert_true(i < 99);
    }
    swl_mem_fail_after(0, false);
    assert_int_equal(swl_tokenizer_decode(t, ids, n_ids, false, &back, &n, NULL), SWL_E_NOMEM);
    swl_mem_fail_after(-1, false);
    swl_free(ids);
    swl_tokenizer_close(t);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    remove_file("tokenizer.json");
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank_inside_pieces),
        cmocka_unit_test(a_token_that_its_bytes_do_not_merge_to_is_not_used),
        cmocka_unit_test(normalises_before_merging),
        cmocka_unit_test(the_fewest_tokens_of_a_size_are_not_more_than_any_text_has),
        cmocka_unit_test(finds_the_longest_added_token_before_normalising),
        cmocka_unit_test(plain_encoding_leaves_added_tokens_as_text),
        cmocka_unit_test(unknown_flags_are_refused),
        cmocka_unit_test(invalid_parts_become_replacement_characters),
        cmocka_unit_test(agrees_with_a_plain_merger),
        cmocka_unit_test(a_megabyte_in_one_piece),
        cmocka_unit_test(decodes_to_bytes_and_drops_special_tokens),
        cmocka_unit_test(looks_tokens_up),
        cmocka_unit_test(tokens_that_no_merge_makes_decode),
        cmocka_unit_test(merges_may_be_pairs),
        cmocka_unit_test(refuses_what_it_does_not_compute),
        cmocka_unit_test(absent_optional_fields_are_fine),
        cmocka_unit_test(missing_and_broken_files_are_named),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_field_that_is_there_twice_is_refused),
        cmocka_unit_test(stops_at_the_union_of_what_the_files_name),
        cmocka_unit_test(both_end_tokens_stop_when_generation_config_is_silent),
        cmocka_unit_test(ids_that_are_no_token_do_not_stop),
        cmocka_unit_test(stop_fields_of_a_wrong_type_are_refused),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(every_failing_allocation_is_a_clean_error),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
