/*
 * tokenizer.c: the public tokenizer. Encoding takes four steps: invalid UTF-8 is replaced; added tokens are found in
 * the raw text; each stretch between them is normalised (nfc.c) and cut into pieces (pretokenize.c); each piece is
 * merged (bpe.c). Decoding joins bytes; making characters of them again is the business of detok.c.
 */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/grammar_impl.h"
#include "text/nfc.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

#define FILE_BYTES_MAX (UINT64_C(64) << 20)

static swl_status load_file(swl_tokenizer *t, const char *dir, swl_error *err)
{
    char *path = swl_path_join(dir, "tokenizer.json"), *text = NULL;
    size_t n_bytes;
    swl_status st;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory");
    st = swl_file_load(&text, &n_bytes, path, FILE_BYTES_MAX, err);
    if (!st)
        st = swl_tokenizer_parse(t, text, n_bytes, path, err);
    swl_free(text);
    swl_free(path);
    return st;
}

swl_status swl_tokenizer_open(swl_tokenizer **out, const char *dir, swl_error *err)
{
    swl_tokenizer *t = swl_calloc(1, sizeof *t);
    swl_status st;

    *out = NULL;
    if (!t)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory");
    st = load_file(t, dir, err);
    if (!st)
        st = swl_stop_set_load(t, dir, err);
    if (st) {
        swl_tokenizer_close(t);
        return st;
    }
    *out = t;
    return SWL_OK;
}

void swl_tokenizer_close(swl_tokenizer *t)
{
    if (!t)
        return;
    swl_vocab_free(atomic_load(&t->vocab));
    swl_splitter_free(t->splitter);
    swl_free(t->added);
    swl_free(t->pairs);
    swl_free(t->merged);
    swl_free(t->by_bytes);
    swl_free(t->bytes);
    swl_free((void *)t->whole);
    swl_free(t->flags);
    swl_free(t->tokens);
    swl_free(t);
}

/* ---- looking tokens up ---- */

const char *swl_tokenizer_token(const swl_tokenizer *t, int32_t id, int32_t *n_bytes)
{
    bool is_token = id >= 0 && id < t->n_tokens && t->tokens[id].n_bytes;

    *n_bytes = is_token ? t->tokens[id].n_bytes : 0;
    return is_token ? t->bytes + t->tokens[id].at : NULL;
}

int32_t swl_tokenizer_special(const swl_tokenizer *t, const char *content)
{
    size_t n = strlen(content);

    for (int32_t i = 0; i < t->n_added; i++)
        if ((size_t)t->added[i].n_bytes == n && !memcmp(t->added[i].content, content, n))
            return t->added[i].id;
    return -1;
}

static bool has_flag(const swl_tokenizer *t, int32_t id, uint8_t flag)
{
    return id >= 0 && id < t->n_tokens && (t->flags[id] & flag);
}

bool swl_tokenizer_is_added(const swl_tokenizer *t, int32_t id)
{
    return has_flag(t, id, SWL_TOKEN_ADDED);
}

bool swl_tokenizer_is_special(const swl_tokenizer *t, int32_t id)
{
    return has_flag(t, id, SWL_TOKEN_SPECIAL);
}

int32_t swl_tokenizer_n_tokens(const swl_tokenizer *t)
{
    return t->n_tokens;
}

bool swl_tokenizer_is_stop(const swl_tokenizer *t, int32_t id)
{
    return has_flag(t, id, SWL_TOKEN_STOP);
}

int64_t swl_tokenizer_tokens_min(const swl_tokenizer *t, size_t n_bytes)
{
    const uint64_t nfc = 4; /* times shorter at most; it is 3.5, where U+1FBE U+0308 U+0301 become U+0390 */
    uint64_t longest = 1;

    for (int32_t i = 0; i < t->n_tokens; i++)
        longest = (uint64_t)t->tokens[i].n_bytes > longest ? (uint64_t)t->tokens[i].n_bytes : longest;
    return (int64_t)(n_bytes / (nfc * longest));
}

/* ---- encoding ---- */

/* One call's state. */
typedef struct encoder {
    const swl_tokenizer *t;
    swl_split split;
    swl_bpe_work work;
    int32_t *ids;
    int64_t n_ids, n_ids_max;
    swl_error *err;
} encoder;

static swl_status reserve_ids(encoder *e, size_t n_more)
{
    int64_t n_max = e->n_ids_max + e->n_ids_max / 2;
    int32_t *ids;

    if ((int64_t)n_more <= e->n_ids_max - e->n_ids)
        return SWL_OK;
    if (n_max < e->n_ids + (int64_t)n_more)
        n_max = e->n_ids + (int64_t)n_more;
    ids = swl_realloc(e->ids, (size_t)n_max, sizeof *ids);
    if (!ids)
        return swl_fail(e->err, SWL_E_NOMEM, "tokenizer: out of memory for %" PRId64 " ids", n_max);
    e->ids = ids;
    e->n_ids_max = n_max;
    return SWL_OK;
}

static swl_status encode_pieces(encoder *e, const uint8_t *text, size_t n_bytes)
{
    size_t n_piece;

    for (size_t at = 0; at < n_bytes; at += n_piece) {
        swl_status st = swl_split_next(&e->split, text, n_bytes, at, &n_piece, e->err);

        if (!st)
            st = reserve_ids(e, n_piece);
        if (!st)
            st = swl_bpe_piece(e->t, &e->work, text + at, n_piece, e->ids, &e->n_ids, e->err);
        if (st)
            return st;
    }
    return SWL_OK;
}

/* A stretch between added tokens: what lies beyond them takes no part in normalising or cutting it. */
static swl_status encode_stretch(encoder *e, const uint8_t *text, size_t n_bytes)
{
    uint8_t *composed;
    size_t n_composed;
    swl_status st;

    if (swl_nfc_is_sure(text, n_bytes))
        return encode_pieces(e, text, n_bytes);
    st = swl_nfc(&composed, &n_composed, text, n_bytes, e->err);
    if (!st)
        st = encode_pieces(e, composed, n_composed);
    swl_free(composed);
    return st;
}

const swl_added *swl_tokenizer_added_at(const swl_tokenizer *t, const uint8_t *text, size_t n_bytes)
{
    for (int32_t i = t->added_first[text[0]]; i < t->added_first[text[0] + 1]; i++) {
        const swl_added *a = &t->added[i];

        if ((size_t)a->n_bytes <= n_bytes && !memcmp(text, a->content, (size_t)a->n_bytes))
            return a;
    }
    return NULL;
}

static swl_status encode_with_added(encoder *e, const uint8_t *text, size_t n_bytes)
{
    size_t start = 0, at = 0;
    swl_status st;

    while (at < n_bytes) {
        const swl_added *a = swl_tokenizer_added_at(e->t, text + at, n_bytes - at);

        if (!a) {
            at++;
            continue;
        }
        st = encode_stretch(e, text + start, at - start);
        if (!st)
            st = reserve_ids(e, 1);
        if (st)
            return st;
        e->ids[e->n_ids++] = a->id;
        start = at += (size_t)a->n_bytes;
    }
    return encode_stretch(e, text + start, n_bytes - start);
}

static size_t valid_prefix(const uint8_t *text, size_t n_bytes)
{
    size_t i = 0;

    while (i < n_bytes) {
        int32_t part = swl_utf8_part(text + i, n_bytes - i);

        if (part <= 0)
            break;
        i += (size_t)part;
    }
    return i;
}

/* *out is NULL when the text is well-formed, else a copy with each ill-formed part replaced: at most three times as
 * long. */
static swl_status replace_invalid(uint8_t **out, size_t *n_out, const uint8_t *text, size_t n_bytes, swl_error *err)
{
    size_t i = valid_prefix(text, n_bytes), n = i;
    uint8_t *p;

    *out = NULL;
    if (i == n_bytes)
        return SWL_OK;
    p = swl_calloc(n_bytes, SWL_UTF8_REPLACEMENT_N);
    if (!p)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory for %zu bytes of text", n_bytes);
    memcpy(p, text, i);
    while (i < n_bytes) {
        size_t n_valid = valid_prefix(text + i, n_bytes - i);

        memcpy(p + n, text + i, n_valid);
        n += n_valid;
        i += n_valid;
        if (i < n_bytes) {
            int32_t part = swl_utf8_part(text + i, n_bytes - i);

            memcpy(p + n, SWL_UTF8_REPLACEMENT, SWL_UTF8_REPLACEMENT_N);
            n += SWL_UTF8_REPLACEMENT_N;
            i = part < 0 ? i + (size_t)-part : n_bytes;
        }
    }
    *out = p;
    *n_out = n;
    return SWL_OK;
}

static swl_status encode(encoder *e, const uint8_t *text, size_t n_bytes, uint32_t flags)
{
    swl_status st = swl_split_init(&e->split, e->t->splitter, e->err);

    /* A guess for ordinary text; it grows when that was too little. */
    if (!st)
        st = reserve_ids(e, n_bytes / 3 + 16);
    if (!st && flags & SWL_ENCODE_PLAIN)
        st = encode_stretch(e, text, n_bytes);
    else if (!st)
        st = encode_with_added(e, text, n_bytes);
    swl_split_deinit(&e->split);
    swl_bpe_work_deinit(&e->work);
    return st;
}

swl_status swl_tokenizer_encode(const swl_tokenizer *t, const char *text, size_t n_bytes, uint32_t flags, int32_t **ids,
                                int64_t *n_ids, swl_error *err)
{
    encoder e = {.t = t, .err = err};
    const uint8_t *bytes = (const uint8_t *)(n_bytes ? text : "");
    uint8_t *replaced;
    swl_status st;

    *ids = NULL;
    *n_ids = 0;
    if (flags & ~(uint32_t)SWL_ENCODE_PLAIN)
        return swl_fail(err, SWL_E_ARG, "tokenizer: unknown flags 0x%x", flags);
    st = replace_invalid(&replaced, &n_bytes, bytes, n_bytes, err);
    if (!st)
        st = encode(&e, replaced ? replaced : bytes, n_bytes, flags);
    swl_free(replaced);
    if (st) {
        swl_free(e.ids);
        return st;
    }
    *ids = e.ids;
    *n_ids = e.n_ids;
    return SWL_OK;
}

/* ---- decoding ---- */

static bool is_dropped(const swl_tokenizer *t, int32_t id, bool skip_special)
{
    return skip_special && swl_tokenizer_is_special(t, id);
}

swl_status swl_tokenizer_decode(const swl_tokenizer *t, const int32_t *ids, int64_t n_ids, bool skip_special,
                                char **text, size_t *n_bytes, swl_error *err)
{
    size_t n = 0;
    int32_t n_token;
    char *p;

    *text = NULL;
    *n_bytes = 0;
    for (int64_t i = 0; i < n_ids; i++) {
        if (!swl_tokenizer_token(t, ids[i], &n_token))
            return swl_fail(err, SWL_E_ARG, "tokenizer: id %" PRId32 " at index %" PRId64 " is no token", ids[i], i);
        n += is_dropped(t, ids[i], skip_special) ? 0 : (size_t)n_token;
    }
    p = swl_calloc(n + 1, 1);
    if (!p)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory for %zu bytes of text", n);
    *text = p;
    *n_bytes = n;
    for (int64_t i = 0; i < n_ids; i++) {
        const char *bytes = swl_tokenizer_token(t, ids[i], &n_token);

        if (is_dropped(t, ids[i], skip_special))
            continue;
        memcpy(p, bytes, (size_t)n_token);
        p += n_token;
    }
    return SWL_OK;
}
