/*
 * tokenizer_load.c: tokenizer.json into the tables of swl_tokenizer. The file says much that this library computes in
 * one way only; every such field is checked, and a file that asks for another way is refused by the field's name.
 *
 * Vocabulary and merges are written in an alphabet of printable characters, one for each byte; they become raw bytes
 * here and stay so. Added tokens are plain text.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

#define LETTERS 0x144 /* one past the highest code point of the alphabet */

typedef struct loader {
    swl_tokenizer *t;
    const char *path;
    swl_error *err;
    swl_tokenizer_json *json;
    const json_t *added;
    int16_t byte_of[LETTERS]; /* code point of the alphabet -> byte, or -1 */
    char *scratch;            /* as long as the longest token */
    size_t n_scratch;
} loader;

static swl_status refuse(loader *l, const char *field, const char *only)
{
    return swl_fail_at(l->err, SWL_E_UNSUPPORTED, l->path, -1,
                       "%s: field \"%s\" is not %s, and nothing else is supported", l->path, field, only);
}

static swl_status corrupt(loader *l, const char *field, const char *expected)
{
    return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: field \"%s\" is not %s", l->path, field, expected);
}

static bool has_type(const json_t *obj, const char *type)
{
    const char *s = json_string_value(json_object_get(obj, "type"));

    return s && !strcmp(s, type);
}

/* Absent, null, false and "" all say "no". */
static bool is_off(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return !v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && !json_string_length(v)) ||
           (json_is_number(v) && json_number_value(v) == 0);
}

/* ---- the fields that must have one value ---- */

static swl_status check_model(loader *l, const json_t *model)
{
    static const char *const off[] = {
        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"};

    if (!json_is_object(model))
        return corrupt(l, "model", "an object");
    if (!has_type(model, "BPE"))
        return refuse(l, "model.type", "\"BPE\"");
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        if (!is_off(model, off[i]))
            return refuse(l, off[i], "null, false or empty");
    if (swl_scan_peek(&l->json->vocab) != '{')
        return corrupt(l, "model.vocab", "an object");
    if (swl_scan_peek(&l->json->merges) != '[')
        return corrupt(l, "model.merges", "an array");
    return SWL_OK;
}

static swl_status load_pre_tokenizer(loader *l, const json_t *pre)
{
    const json_t *list = json_object_get(pre, "pretokenizers"), *split = json_array_get(list, 0),
                 *bytes = json_array_get(list, 1);
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));

    if (!has_type(pre, "Sequence") || json_array_size(list) != 2 || !has_type(split, "Split") ||
        !has_type(bytes, "ByteLevel") || !pattern)
        return refuse(l, "pre_tokenizer", "a Sequence of one Split by a Regex and one ByteLevel");
    if (!behavior || strcmp(behavior, "Isolated") || !is_off(split, "invert"))
        return refuse(l, "pre_tokenizer.pretokenizers[0]", "an Isolated, not inverted Split");
    /* Both default to true. */
    if (!json_is_false(json_object_get(bytes, "add_prefix_space")) ||
        !json_is_false(json_object_get(bytes, "use_regex")))
        return refuse(l, "pre_tokenizer.pretokenizers[1]", "a ByteLevel with add_prefix_space and use_regex false");
    return swl_splitter_create(&l->t->splitter, pattern, l->path, l->err);
}

static swl_status check_root(loader *l, const json_t *root)
{
    const json_t *post = json_object_get(root, "post_processor");
    swl_status st;

    if (!has_type(json_object_get(root, "normalizer"), "NFC"))
        return refuse(l, "normalizer", "{\"type\": \"NFC\"}");
    if (post && !json_is_null(post) && !has_type(post, "ByteLevel"))
        return refuse(l, "post_processor", "null or ByteLevel (which adds no tokens)");
    if (!has_type(json_object_get(root, "decoder"), "ByteLevel"))
        return refuse(l, "decoder", "ByteLevel");
    l->added = json_object_get(root, "added_tokens");
    if (l->added && !json_is_array(l->added))
        return corrupt(l, "added_tokens", "an array");
    st = check_model(l, json_object_get(root, "model"));
    return st ? st : load_pre_tokenizer(l, json_object_get(root, "pre_tokenizer"));
}

/* ---- the alphabet ---- */

/* Printable bytes of Latin-1 stand for themselves, the other 68 for U+0100 and up, in order. */
static void make_alphabet(loader *l)
{
    int32_t next = 0x100;

    memset(l->byte_of, 0xFF, sizeof l->byte_of);
    for (int32_t b = 0; b < 256; b++) {
        bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        l->byte_of[self ? b : next++] = (int16_t)b;
    }
}

/* The bytes that a string of n characters spells, at most n; -1 when a character is not of the alphabet. */
static int64_t spell(const loader *l, const char *s, size_t n, char *out)
{
    int64_t n_out = 0;
    int32_t n_char;

    for (size_t i = 0; i < n; i += (size_t)n_char) {
        int32_t code = swl_utf8_code((const uint8_t *)s + i, &n_char);

        if (code >= LETTERS || l->byte_of[code] < 0)
            return -1;
        out[n_out++] = (char)l->byte_of[code];
    }
    return n_out;
}

/* ---- tokens ---- */

static swl_status measure_token(loader *l, swl_scan *s, int64_t *id_max, size_t *n_bytes)
{
    size_t n;
    int64_t id;
    swl_status st = swl_scan_pass_string(s, &n);

    if (!st)
        st = swl_scan_colon(s);
    if (!st)
        st = swl_scan_uint(s, &id);
    if (st)
        return st;
    if (id > SWL_TOKEN_ID_MAX)
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, s->p - s->begin,
                           "%s: model.vocab has the id %" PRId64 ", expected 0 to %d", l->path, id, SWL_TOKEN_ID_MAX);
    *id_max = id > *id_max ? id : *id_max;
    *n_bytes += n;
    l->n_scratch = n > l->n_scratch ? n : l->n_scratch;
    return SWL_OK;
}

/* The highest id and the bytes of the vocabulary as written, which is more than they will be. */
static swl_status measure_vocab(loader *l, int64_t *id_max, size_t *n_bytes)
{
    swl_scan s = l->json->vocab;
    bool more;
    swl_status st = swl_scan_begin(&s, '{');

    for (uint64_t n = 0; !st && !(st = swl_scan_next(&s, '}', n, &more)) && more; n++)
        st = measure_token(l, &s, id_max, n_bytes);
    return st;
}

static swl_status measure_added(loader *l, int64_t *id_max, size_t *n_bytes)
{
    const json_t *v;
    size_t i;

    json_array_foreach (l->added, i, v) {
        int32_t id;
        swl_status st = swl_json_i32(v, "id", SWL_REQUIRED, 0, SWL_TOKEN_ID_MAX, &id, l->path, l->err);

        if (st)
            return st;
        *id_max = id > *id_max ? id : *id_max;
        *n_bytes += json_string_length(json_object_get(v, "content"));
    }
    return SWL_OK;
}

static swl_status allocate(loader *l, size_t n_bytes)
{
    swl_tokenizer *t = l->t;
    size_t n = (size_t)t->n_tokens;

    t->tokens = swl_calloc(n, sizeof *t->tokens);
    t->flags = swl_calloc(n, sizeof *t->flags);
    t->whole = swl_calloc(n, sizeof *t->whole);
    t->bytes = swl_calloc(n_bytes, 1);
    t->added = swl_calloc(json_array_size(l->added), sizeof *t->added);
    l->scratch = swl_calloc(l->n_scratch, 2);
    if (!t->tokens || !t->flags || !t->whole || !t->bytes || !t->added || !l->scratch)
        return swl_fail(l->err, SWL_E_NOMEM, "%s: out of memory for %" PRId32 " tokens", l->path, t->n_tokens);
    return SWL_OK;
}

static swl_status load_token(loader *l, const char *key, size_t n, int32_t id, uint32_t *n_bytes)
{
    swl_tokenizer *t = l->t;
    int64_t n_spelt = spell(l, key, n, t->bytes + *n_bytes);

    if (!n)
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: token %" PRId32 " in model.vocab is empty", l->path,
                           id);
    if (t->tokens[id].n_bytes)
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1,
                           "%s: id %" PRId32 " in model.vocab stands for two tokens, one is \"%.*s\"", l->path, id,
                           n > 40 ? 40 : (int)n, key);
    if (n_spelt < 0) {
        /* Not written in the alphabet: such a token is its own text, as the reference decodes it; no merge makes it, so
         * it stays out of the table of bytes. */
        memcpy(t->bytes + *n_bytes, key, n);
        n_spelt = (int64_t)n;
    } else {
        t->flags[id] |= SWL_TOKEN_BASE;
    }
    t->tokens[id] = (swl_token){*n_bytes, (int32_t)n_spelt};
    *n_bytes += (uint32_t)n_spelt;
    return SWL_OK;
}

/* measure_vocab has read the same; what fails here is the inside of a string. */
static swl_status load_vocab(loader *l, uint32_t *n_bytes)
{
    swl_scan s = l->json->vocab;
    bool more;
    swl_status st = swl_scan_begin(&s, '{');

    for (uint64_t i = 0; !st && !(st = swl_scan_next(&s, '}', i, &more)) && more; i++) {
        char *key;
        size_t n;
        int64_t id;

        st = swl_scan_text(&s, &key, &n);
        if (!st)
            st = swl_scan_colon(&s);
        if (!st)
            st = swl_scan_uint(&s, &id);
        if (!st)
            st = load_token(l, key, n, (int32_t)id, n_bytes);
    }
    return st;
}

static swl_status find_bytes(loader *l)
{
    swl_tokenizer *t = l->t;

    for (int32_t b = 0; b < 256; b++) {
        char c = (char)b;

        t->byte_ids[b] = swl_vocab_find(t, &c, 1);
        if (t->byte_ids[b] < 0)
            return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: model.vocab has no token for the byte 0x%02X",
                               l->path, (unsigned)b);
    }
    return SWL_OK;
}

/* ---- merges ---- */

static swl_status not_a_pair(loader *l, int32_t rank)
{
    return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: model.merges[%" PRId32 "] is not a pair of strings",
                       l->path, rank);
}

typedef struct halves {
    char *s[2];
    size_t n[2];
} halves;

/* "a b"; mapped tokens hold no space. */
static swl_status read_joined(loader *l, swl_scan *s, int32_t rank, halves *h)
{
    size_t n;
    char *space;
    swl_status st = swl_scan_text(s, &h->s[0], &n);

    if (st)
        return st;
    space = memchr(h->s[0], ' ', n);
    if (!space)
        return not_a_pair(l, rank);
    h->n[0] = (size_t)(space - h->s[0]);
    h->s[1] = space + 1;
    h->n[1] = n - h->n[0] - 1;
    return SWL_OK;
}

/* ["a", "b"] */
static swl_status read_pair(loader *l, swl_scan *s, int32_t rank, halves *h)
{
    bool more;
    uint64_t n;
    swl_status st = swl_scan_begin(s, '[');

    for (n = 0; !st && !(st = swl_scan_element(s, n, &more)) && more; n++) {
        if (n == 2 || swl_scan_peek(s) != '"')
            return not_a_pair(l, rank);
        st = swl_scan_text(s, &h->s[n], &h->n[n]);
    }
    return !st && n < 2 ? not_a_pair(l, rank) : st;
}

static swl_status load_merge(loader *l, const halves *h, int32_t rank)
{
    swl_tokenizer *t = l->t;
    int64_t n_left, n_right;
    int32_t left, right, merged;

    /* A half longer than every token is none. */
    n_left = h->n[0] > l->n_scratch ? -1 : spell(l, h->s[0], h->n[0], l->scratch);
    n_right = n_left < 0 || h->n[1] > l->n_scratch ? -1 : spell(l, h->s[1], h->n[1], l->scratch + n_left);
    left = n_right < 0 ? -1 : swl_vocab_find(t, l->scratch, (size_t)n_left);
    right = n_right < 0 ? -1 : swl_vocab_find(t, l->scratch + n_left, (size_t)n_right);
    merged = n_right < 0 ? -1 : swl_vocab_find(t, l->scratch, (size_t)(n_left + n_right));
    if (left < 0 || right < 0 || merged < 0)
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1,
                           "%s: model.merges[%" PRId32 "], \"%.*s\" and \"%.*s\": a half or the whole is no token",
                           l->path, rank, h->n[0] > 40 ? 40 : (int)h->n[0], h->s[0], h->n[1] > 40 ? 40 : (int)h->n[1],
                           h->s[1]);
    t->merged[rank] = merged;
    if (!swl_pairs_add(t, left, right, rank))
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: model.merges[%" PRId32 "] repeats an earlier pair",
                           l->path, rank);
    return SWL_OK;
}

static swl_status count_merges(loader *l, int32_t *n)
{
    swl_scan s = l->json->merges;
    bool more;
    char *first;
    swl_status st = swl_scan_begin(&s, '[');

    for (*n = 0; !st && !(st = swl_scan_element(&s, (uint64_t)*n, &more)) && more; ++*n) {
        if (*n == SWL_TOKEN_ID_MAX)
            return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, s.p - s.begin,
                               "%s: more than %d entries in model.merges", l->path, SWL_TOKEN_ID_MAX);
        st = swl_scan_pass(&s, &first);
    }
    return st;
}

static swl_status load_merges(loader *l)
{
    swl_tokenizer *t = l->t;
    swl_scan s = l->json->merges;
    bool more;
    halves h;
    swl_status st = count_merges(l, &t->n_merges);

    if (st)
        return st;
    t->merged = swl_calloc((size_t)t->n_merges, sizeof *t->merged);
    if (!t->merged)
        return swl_fail(l->err, SWL_E_NOMEM, "%s: out of memory for %" PRId32 " merges", l->path, t->n_merges);
    st = swl_pairs_create(t, t->n_merges, l->err);
    if (!st)
        st = swl_scan_begin(&s, '[');
    for (int32_t rank = 0; !st && rank < t->n_merges; rank++) {
        st = swl_scan_element(&s, (uint64_t)rank, &more);
        if (!st && swl_scan_peek(&s) == '"')
            st = read_joined(l, &s, rank, &h);
        else if (!st)
            st = swl_scan_peek(&s) == '[' ? read_pair(l, &s, rank, &h) : not_a_pair(l, rank);
        if (!st)
            st = load_merge(l, &h, rank);
    }
    return st;
}

/* ---- added tokens ---- */

static swl_status check_added(loader *l, const json_t *v, const char **content, bool *special)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
    swl_status st = swl_json_str(v, "content", SWL_REQUIRED, content, l->path, l->err);

    if (!st)
        st = swl_json_bool(v, "special", SWL_OPTIONAL, special, l->path, l->err);
    for (size_t i = 0; !st && i < sizeof off / sizeof off[0]; i++)
        if (!is_off(v, off[i]))
            st = swl_fail_at(l->err, SWL_E_UNSUPPORTED, l->path, -1,
                             "%s: added token \"%.40s\" has \"%s\" set, which is not supported", l->path, *content,
                             off[i]);
    return st;
}

static swl_status load_added_token(loader *l, const json_t *v, uint32_t *n_bytes)
{
    swl_tokenizer *t = l->t;
    swl_added *a = &t->added[t->n_added];
    const char *content;
    bool special = false;
    swl_status st = check_added(l, v, &content, &special);
    size_t n;

    if (st)
        return st;
    a->id = (int32_t)json_integer_value(json_object_get(v, "id"));
    n = json_string_length(json_object_get(v, "content"));
    if (!n)
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: added token %" PRId32 " is empty", l->path, a->id);
    if (t->tokens[a->id].n_bytes &&
        ((size_t)t->tokens[a->id].n_bytes != n || memcmp(t->bytes + t->tokens[a->id].at, content, n)))
        return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1,
                           "%s: added token \"%.40s\" has the id %" PRId32 " of another token", l->path, content,
                           a->id);
    memcpy(t->bytes + *n_bytes, content, n);
    a->content = t->bytes + *n_bytes;
    a->n_bytes = (int32_t)n;
    t->tokens[a->id] = (swl_token){*n_bytes, (int32_t)n};
    t->flags[a->id] |= SWL_TOKEN_ADDED | (special ? SWL_TOKEN_SPECIAL : 0);
    *n_bytes += (uint32_t)n;
    t->n_added++;
    return SWL_OK;
}

/* By first byte, then longest first; equal contents side by side. */
static int by_first_byte(const void *va, const void *vb)
{
    const swl_added *a = va, *b = vb;
    int32_t first = (uint8_t)a->content[0] - (uint8_t)b->content[0];

    if (first)
        return first;
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes > b->n_bytes ? -1 : 1;
    return memcmp(a->content, b->content, (size_t)a->n_bytes);
}

static swl_status index_added(loader *l)
{
    swl_tokenizer *t = l->t;

    qsort(t->added, (size_t)t->n_added, sizeof *t->added, by_first_byte);
    for (int32_t i = 0; i < t->n_added; i++) {
        if (i && !by_first_byte(&t->added[i - 1], &t->added[i]))
            return swl_fail_at(l->err, SWL_E_CORRUPT, l->path, -1, "%s: added token \"%.40s\" is there twice", l->path,
                               t->added[i].content);
        t->added_first[(uint8_t)t->added[i].content[0] + 1]++;
    }
    for (int32_t b = 0; b < 256; b++)
        t->added_first[b + 1] += t->added_first[b];
    return SWL_OK;
}

static swl_status load_added(loader *l, uint32_t *n_bytes)
{
    swl_status st = SWL_OK;

    for (size_t i = 0; !st && i < json_array_size(l->added); i++)
        st = load_added_token(l, json_array_get(l->added, i), n_bytes);
    return st ? st : index_added(l);
}

/* ---- all of it ---- */

static swl_status load(loader *l)
{
    int64_t id_max = -1;
    size_t n_bytes_max = 0;
    uint32_t n_bytes = 0;
    swl_status st = check_root(l, l->json->root);

    if (!st)
        st = measure_vocab(l, &id_max, &n_bytes_max);
    if (!st)
        st = measure_added(l, &id_max, &n_bytes_max);
    l->t->n_tokens = (int32_t)id_max + 1;
    if (!st)
        st = allocate(l, n_bytes_max);
    if (!st)
        st = load_vocab(l, &n_bytes);
    if (!st)
        st = swl_vocab_index(l->t, l->path, l->err);
    if (!st)
        st = find_bytes(l);
    if (!st)
        st = load_merges(l);
    return st ? st : load_added(l, &n_bytes);
}

swl_status swl_tokenizer_parse(swl_tokenizer *t, char *text, size_t n_bytes, const char *path, swl_error *err)
{
    swl_tokenizer_json json;
    loader l = {.t = t, .path = path, .err = err, .json = &json};
    swl_status st = swl_tokenizer_json_open(&json, text, n_bytes, path, err);

    make_alphabet(&l);
    if (!st)
        st = load(&l);
    swl_tokenizer_json_close(&json);
    swl_free(l.scratch);
    return st;
}
