/* vocab.c: the tokenizer's two hash tables, both open-addressed and at most half full: bytes -> token, pair -> rank. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = n, word;

    for (; n >= 8; bytes += 8, n -= 8) {
        memcpy(&word, bytes, 8);
        h = mix(h ^ word);
    }
    word = 0;
    memcpy(&word, bytes, n);
    return mix(mix(h ^ word));
}

/* The power of two that leaves a table of n entries at most half full. */
static uint32_t table_size(int32_t n)
{
    uint32_t size = 16;

    while (size < 2 * (uint32_t)n)
        size *= 2;
    return size;
}

static bool has_bytes(const swl_tokenizer *t, int32_t id, const char *bytes, size_t n)
{
    return (size_t)t->tokens[id].n_bytes == n && !memcmp(t->bytes + t->tokens[id].at, bytes, n);
}

/* The entry that holds these bytes, or the empty one where they belong. An entry carries the upper half of the hash, so
 * that other tokens' bytes, far away in memory, are hardly ever fetched. */
static uint64_t *find_entry(const swl_tokenizer *t, const char *bytes, size_t n, uint64_t hash)
{
    for (uint32_t i = (uint32_t)hash;; i++) {
        uint64_t *e = &t->by_bytes[i &= t->by_bytes_mask];

        if (*e == UINT64_MAX || (*e >> 32 == hash >> 32 && has_bytes(t, (int32_t)(uint32_t)*e, bytes, n)))
            return e;
    }
}

int32_t swl_vocab_find(const swl_tokenizer *t, const char *bytes, size_t n_bytes)
{
    /* An empty entry's lower half is -1. */
    return (int32_t)(uint32_t)*find_entry(t, bytes, n_bytes, hash_bytes(bytes, n_bytes));
}

static swl_status index_token(swl_tokenizer *t, int32_t id, const char *path, swl_error *err)
{
    const char *bytes = t->bytes + t->tokens[id].at;
    uint64_t hash = hash_bytes(bytes, (size_t)t->tokens[id].n_bytes);
    uint64_t *e = find_entry(t, bytes, (size_t)t->tokens[id].n_bytes, hash);

    if (*e != UINT64_MAX)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: the ids %" PRId32 " and %" PRId32 " in model.vocab stand for the same token", path,
                           (int32_t)(uint32_t)*e, id);
    *e = (hash >> 32) << 32 | (uint32_t)id;
    return SWL_OK;
}

swl_status swl_vocab_index(swl_tokenizer *t, const char *path, swl_error *err)
{
    uint32_t size = table_size(t->n_tokens);
    swl_status st = SWL_OK;

    t->by_bytes = swl_calloc(size, sizeof *t->by_bytes);
    if (!t->by_bytes)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory for %u table entries", size);
    memset(t->by_bytes, 0xFF, size * sizeof *t->by_bytes);
    t->by_bytes_mask = size - 1;
    for (int32_t id = 0; !st && id < t->n_tokens; id++)
        if (t->flags[id] & SWL_TOKEN_BASE)
            st = index_token(t, id, path, err);
    return st;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)left << SWL_TOKEN_BITS | (uint64_t)right;
}

int32_t swl_pair_find(const swl_tokenizer *t, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right);
    uint32_t i = (uint32_t)mix(key);

    for (;; i++) {
        uint64_t e = t->pairs[i &= t->pairs_mask];

        if (e >> SWL_TOKEN_BITS == key)
            return (int32_t)(e & SWL_TOKEN_ID_MAX);
        if (e == UINT64_MAX)
            return -1;
    }
}

swl_status swl_pairs_create(swl_tokenizer *t, int32_t n, swl_error *err)
{
    uint32_t size = table_size(n);

    t->pairs = swl_calloc(size, sizeof *t->pairs);
    if (!t->pairs)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory for %u table entries", size);
    memset(t->pairs, 0xFF, size * sizeof *t->pairs);
    t->pairs_mask = size - 1;
    return SWL_OK;
}

bool swl_pairs_add(swl_tokenizer *t, int32_t left, int32_t right, int32_t rank)
{
    uint64_t key = pair_key(left, right);
    uint32_t i = (uint32_t)mix(key);

    for (;; i++) {
        uint64_t *e = &t->pairs[i &= t->pairs_mask];

        if (*e >> SWL_TOKEN_BITS == key)
            return false;
        if (*e == UINT64_MAX) {
            *e = key << SWL_TOKEN_BITS | (uint64_t)rank;
            return true;
        }
    }
}
