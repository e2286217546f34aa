/* session.h: a conversation: its token ids and its state. */
#ifndef SWL_SESSION_H
#define SWL_SESSION_H

#include "model/model.h"

/* A copy of everything about a position that cannot be rewound. Rows of the KV cache before it stay where they are. */
typedef struct swl_mark {
    int32_t n_tokens;
    int32_t weight;            /* how much its loss is felt, against that of others */
    bool has_logits;
    uint8_t *data;             /* convolution state, delta-net state, logits of the last token */
} swl_mark;

struct swl_session {
    swl_model *model;
    swl_state *state;
    int32_t *ids;              /* [ctx_tokens] the tokens that the state covers */
    bool *want;                /* [chunk_tokens] which logits the next pass wants */
    float *logits;             /* [vocab] of the last token, for generation */
    bool has_logits;           /* they belong to the present position */
    swl_mark *marks;           /* [n_marks_max] by ascending position; the first n_marks are in use, all own memory once used */
    int32_t n_marks, n_marks_max;
    swl_candidate *scratch;    /* [vocab] of the sampler */
    _Atomic bool cancel;       /* set by any thread */
    const _Atomic bool *watch; /* heeded in its place, if there is one: of whoever the session works for at present */
    bool broken;               /* a pass failed: the state is unusable until reset */
};

/* Whether ids are ids of the model and there is room for them from position `at` on. */
swl_status swl_session_admits(const swl_session *s, const int32_t *ids, int32_t n, int32_t at, swl_error *err);

/* marks.c */
void swl_marks_free(swl_session *s);
/* swl_session_mark for a place that prompts go back to more often than to others: weight > 1. */
swl_status swl_session_mark_as(swl_session *s, int32_t weight, swl_error *err);
/* The past of src up to n (its end, or one of its marks) becomes that of dst, whose own is gone. Marks are not copied. */
swl_status swl_session_copy(swl_session *dst, const swl_session *src, int32_t n, swl_error *err);

/* snapshot.c */
swl_status swl_snapshot_save(const swl_session *s, const char *path, swl_error *err);
swl_status swl_snapshot_load(swl_session *s, const char *path, swl_error *err);
/* The same to and from a place in an open file. `at`: the position to save, the end or a mark; with those marks before it that
 * are at the positions in `marks`. Reading takes [base, base + size) and leaves the session empty when that fails. */
swl_status swl_snapshot_write(const swl_session *s, int32_t at, const int32_t *marks, int32_t n_marks, int fd, const char *path,
                              swl_error *err);
swl_status swl_snapshot_read(swl_session *s, int fd, uint64_t base, uint64_t size, const char *path, swl_error *err);

/* What a snapshot's first part says, not checked by the checksum yet. */
typedef struct swl_snapshot_info {
    uint8_t fingerprint[32];
    bool exact;
    int32_t n_tokens, n_marks;
    int32_t *ids, *marks;      /* [n_tokens], [n_marks] in one block: swl_free(ids) */
    uint64_t bytes;            /* of the file, */
    uint64_t snapshot_bytes;   /* and of the snapshot that it begins with, at most as many */
} swl_snapshot_info;
/* Of one with more than n_max tokens, nothing. */
swl_status swl_snapshot_peek(swl_snapshot_info *out, const char *path, int32_t n_max, swl_error *err);

#endif
