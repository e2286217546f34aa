/*
 * tokenizer_impl.h: what the files of the tokenizer share. A tokenizer is read-only once opened, but for `whole`, a
 * memory of answers that never change, and `vocab`, which is made when it is first asked for; so threads share it without
 * a lock.
 */
#ifndef SWL_TEXT_TOKENIZER_IMPL_H
#define SWL_TEXT_TOKENIZER_IMPL_H

#include <stdatomic.h>

#include "base/status.h"
#include "text/pretokenize.h"

/* Ids and ranks stay below 2^21: three of them then fit in the tables' 64-bit entries. Qwen3.5 has 248,077. */
#define SWL_TOKEN_BITS   21
#define SWL_TOKEN_ID_MAX ((1 << SWL_TOKEN_BITS) - 1)

enum {
    SWL_TOKEN_BASE = 1,    /* in the vocabulary and made of mapped bytes: merging may produce it */
    SWL_TOKEN_SPECIAL = 2, /* an added token that skip_special drops */
    SWL_TOKEN_STOP = 4,    /* ends a generation */
    SWL_TOKEN_ADDED = 8    /* found in text before it is cut into pieces */
};

/* Whether the bytes of a base token merge back to it: `whole` per token. */
enum { SWL_WHOLE_UNKNOWN, SWL_WHOLE_YES, SWL_WHOLE_NO };

typedef struct swl_token {
    uint32_t at;     /* in swl_tokenizer.bytes */
    int32_t n_bytes; /* 0: no token has this id */
} swl_token;

typedef struct swl_added {
    const char *content; /* in swl_tokenizer.bytes */
    int32_t n_bytes, id;
} swl_added;

struct swl_tokenizer {
    int32_t n_tokens;       /* one past the highest id */
    swl_token *tokens;      /* [n_tokens] */
    uint8_t *flags;         /* [n_tokens] SWL_TOKEN_... */
    _Atomic uint8_t *whole; /* [n_tokens] SWL_WHOLE_... */
    char *bytes;            /* every token's bytes, one after the other */
    int32_t byte_ids[256];  /* the token of each single byte */

    uint64_t *by_bytes; /* hash table over the base tokens' bytes: hash, id, 32 bits each; UINT64_MAX: empty */
    uint32_t by_bytes_mask;

    int32_t n_merges;
    int32_t *merged; /* [n_merges] rank -> the token that the merge makes */
    uint64_t *pairs; /* hash table: left id, right id, rank, 21 bits each; UINT64_MAX: empty */
    uint32_t pairs_mask;

    int32_t n_added;
    swl_added *added;         /* by first byte, then longest first */
    int32_t added_first[257]; /* added[added_first[b] .. added_first[b + 1]) begin with byte b */

    swl_splitter *splitter;
    _Atomic(struct swl_vocab *) vocab; /* the tokens as grammars read them (grammar_vocab.c), NULL until one needs them */
};

/* tokenizer_load.c: fills the zeroed *t from the text of a tokenizer.json, which is changed on the way. `path` is for
 * errors. Whatever the result, swl_tokenizer_close frees *t. */
swl_status swl_tokenizer_parse(swl_tokenizer *t, char *text, size_t n_bytes, const char *path, swl_error *err);
/* stop_set.c: sets SWL_TOKEN_STOP by the configuration files of DIR. */
swl_status swl_stop_set_load(swl_tokenizer *t, const char *dir, swl_error *err);

/* tokenizer.c: the longest added token at the beginning of text (n_bytes >= 1), or NULL; and whether an id is one. */
const swl_added *swl_tokenizer_added_at(const swl_tokenizer *t, const uint8_t *text, size_t n_bytes);
bool swl_tokenizer_is_added(const swl_tokenizer *t, int32_t id);

/* vocab.c: the base token with exactly these bytes, or -1. */
int32_t swl_vocab_find(const swl_tokenizer *t, const char *bytes, size_t n_bytes);
/* Makes the table that swl_vocab_find reads; two tokens of the same bytes are refused. */
swl_status swl_vocab_index(swl_tokenizer *t, const char *path, swl_error *err);
/* The rank of a pair, or -1. */
int32_t swl_pair_find(const swl_tokenizer *t, int32_t left, int32_t right);
/* An empty table with room for n pairs; then each pair once. False: the pair is there already. */
swl_status swl_pairs_create(swl_tokenizer *t, int32_t n, swl_error *err);
bool swl_pairs_add(swl_tokenizer *t, int32_t left, int32_t right, int32_t rank);

/* bpe.c: merging one piece. The work memory grows to the longest piece of a call and is used again for the next. */
typedef struct swl_bpe_symbol {
    int32_t id, prev, next; /* neighbours by index, -1 at the ends */
    int32_t rank;           /* of the pair with the next symbol, -1: none */
} swl_bpe_symbol;

typedef struct swl_bpe_work {
    swl_bpe_symbol *symbols;
    uint64_t *heap;
    size_t n_max; /* symbols that fit */
    size_t n_heap;
} swl_bpe_work;

void swl_bpe_work_deinit(swl_bpe_work *w); /* of a zeroed or used struct */

/* Appends the ids of one piece of n_bytes >= 1 to ids (room for n_bytes) and adds their number to *n_ids. */
swl_status swl_bpe_piece(const swl_tokenizer *t, swl_bpe_work *w, const uint8_t *piece, size_t n_bytes, int32_t *ids,
                         int64_t *n_ids, swl_error *err);

#endif
