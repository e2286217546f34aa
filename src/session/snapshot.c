/*
 * snapshot.c: a conversation on disk.
 *
 *   offset  0  8 bytes   "SWLSNAP" and a version byte (1)
 *           8  32        fingerprint of the model
 *          40  u32       1: float32 KV (exact mode), 0: float16
 *          44  u32       n, tokens
 *          48  u64       bytes of the whole file
 *          56  ...       n token ids (i32); convolution state; delta state; K and V of each attention layer, n rows each
 *        last  u32       CRC-32C of everything before
 *
 * Little-endian, as every machine that this runs on. Written under another name and renamed; read into the session only
 * after length, identity and checksum are right.
 */
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "session/session.h"

enum { HEAD_BYTES = 56 };
static const uint8_t magic[8] = {'S', 'W', 'L', 'S', 'N', 'A', 'P', 1};

/* The places that hold a state of n tokens, in file order. Returns how many; spans[] needs 3 + 2 * n_attention. */
typedef struct span {
    void *data;
    uint64_t n;
} span;

static int32_t list_spans(const swl_session *s, int32_t n_tokens, span *spans)
{
    const swl_model *m = s->model;
    uint64_t row = (uint64_t)m->config->n_kv_heads * (uint64_t)m->config->head_dim * (uint64_t)swl_kv_elem_bytes(m);
    int32_t n = 0, i;

    spans[n++] = (span){s->ids, (uint64_t)n_tokens * sizeof *s->ids};
    spans[n++] = (span){s->state->conv, s->state->conv_bytes};
    spans[n++] = (span){s->state->delta, s->state->delta_bytes};
    for (i = 0; i < 2 * m->weights.n_attention; i++)
        spans[n++] = (span){swl_state_kv(m, s->state, i / 2, i % 2), row * (uint64_t)n_tokens};
    return n;
}

static uint64_t total_bytes(const span *spans, int32_t n)
{
    uint64_t bytes = HEAD_BYTES + sizeof(uint32_t);
    int32_t i;

    for (i = 0; i < n; i++)
        bytes += spans[i].n;
    return bytes;
}

static swl_status make_head(const swl_session *s, int32_t n_tokens, uint64_t bytes, uint8_t head[HEAD_BYTES],
                            swl_error *err)
{
    uint32_t exact = s->model->exact, n = (uint32_t)n_tokens;

    memcpy(head, magic, 8);
    memcpy(head + 40, &exact, 4);
    memcpy(head + 44, &n, 4);
    memcpy(head + 48, &bytes, 8);
    return swl_checkpoint_fingerprint(s->model->ck, head + 8, err);
}

static swl_status write_all(int fd, const char *path, const uint8_t *head, const span *spans, int32_t n, swl_error *err)
{
    uint32_t crc = swl_crc32c(0, head, HEAD_BYTES);
    swl_status st = swl_file_write(fd, path, head, HEAD_BYTES, err);
    int32_t i;

    for (i = 0; i < n && !st; i++) {
        crc = swl_crc32c(crc, spans[i].data, spans[i].n);
        st = swl_file_write(fd, path, spans[i].data, spans[i].n, err);
    }
    return st ? st : swl_file_write(fd, path, &crc, sizeof crc, err);
}

swl_status swl_snapshot_save(const swl_session *s, const char *path, swl_error *err)
{
    span *spans = swl_calloc((size_t)(3 + 2 * s->model->weights.n_attention), sizeof *spans);
    uint8_t head[HEAD_BYTES];
    swl_file_atomic f;
    swl_status st;
    int32_t n;

    if (!spans)
        return swl_fail(err, SWL_E_NOMEM, "snapshot: out of memory");
    n = list_spans(s, s->state->n_tokens, spans);
    st = make_head(s, s->state->n_tokens, total_bytes(spans, n), head, err);
    if (!st)
        st = swl_file_atomic_begin(&f, path, err);
    if (!st) {
        st = write_all(f.fd, path, head, spans, n, err);
        st = swl_file_atomic_end(&f, st, err);
    }
    swl_free(spans);
    return st;
}

/* Why a head is not one that this session can take. */
static swl_status check_head(const swl_session *s, const char *path, const uint8_t *found, uint64_t size, int32_t *n_tokens,
                             swl_error *err)
{
    uint8_t want[HEAD_BYTES];
    uint64_t bytes;
    uint32_t n;
    swl_status st = make_head(s, 0, 0, want, err);

    if (st)
        return st;
    if (memcmp(found, want, 7))
        return swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s is not a snapshot of this program", path);
    if (found[7] != want[7])
        return swl_fail_at(err, SWL_E_UNSUPPORTED, path, 7, "%s: snapshot version %d, expected %d", path, found[7], want[7]);
    if (memcmp(found + 8, want + 8, 32))
        return swl_fail_at(err, SWL_E_MISMATCH, path, 8, "%s was made with another model", path);
    if (memcmp(found + 40, want + 40, 4))
        return swl_fail_at(err, SWL_E_MISMATCH, path, 40, "%s was made %s --exact, this session runs %s it", path,
                           s->model->exact ? "without" : "with", s->model->exact ? "with" : "without");
    memcpy(&n, found + 44, 4);
    memcpy(&bytes, found + 48, 8);
    if (n > (uint32_t)s->state->ctx_tokens)
        return swl_fail_at(err, SWL_E_BUDGET, path, 44, "%s holds %" PRIu32 " tokens, this session has room for %d", path,
                           n, s->state->ctx_tokens);
    if (bytes != size)
        return swl_fail_at(err, SWL_E_CORRUPT, path, 48, "%s has %" PRIu64 " bytes, expected %" PRIu64, path, size, bytes);
    *n_tokens = (int32_t)n;
    return SWL_OK;
}

static swl_status read_all(swl_session *s, int fd, const char *path, uint64_t size, const uint8_t *head, int32_t n_tokens,
                           span *spans, swl_error *err)
{
    int32_t n = list_spans(s, n_tokens, spans), i;
    uint32_t crc = swl_crc32c(0, head, HEAD_BYTES), want;
    uint64_t at = HEAD_BYTES;
    swl_status st = SWL_OK;

    if (total_bytes(spans, n) != size)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s has %" PRIu64 " bytes, expected %" PRIu64 " for %d tokens",
                           path, size, total_bytes(spans, n), n_tokens);
    for (i = 0; i < n && !st; i++) {
        st = swl_file_read_at(fd, path, at, spans[i].data, spans[i].n, err);
        if (!st)
            crc = swl_crc32c(crc, spans[i].data, spans[i].n);
        at += spans[i].n;
    }
    if (!st)
        st = swl_file_read_at(fd, path, at, &want, sizeof want, err);
    if (!st && want != crc)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)at, "%s is damaged: checksum %08" PRIx32 ", expected %08" PRIx32,
                         path, crc, want);
    for (i = 0; i < n_tokens && !st; i++)
        if (s->ids[i] < 0 || s->ids[i] >= s->model->config->vocab)
            st = swl_fail_at(err, SWL_E_CORRUPT, path, HEAD_BYTES + 4 * (int64_t)i, "%s: token id %d is not in 0 to %d",
                             path, s->ids[i], s->model->config->vocab - 1);
    if (!st)
        s->state->n_tokens = n_tokens;
    return st;
}

swl_status swl_snapshot_load(swl_session *s, const char *path, swl_error *err)
{
    span *spans = swl_calloc((size_t)(3 + 2 * s->model->weights.n_attention), sizeof *spans);
    uint8_t head[HEAD_BYTES];
    int32_t n_tokens = 0;
    uint64_t size;
    swl_status st;
    int fd;

    if (!spans)
        return swl_fail(err, SWL_E_NOMEM, "snapshot: out of memory");
    st = swl_file_open(&fd, &size, path, err);
    if (!st) {
        st = size < HEAD_BYTES + 4
                 ? swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s is not a snapshot of this program", path)
                 : swl_file_read_at(fd, path, 0, head, HEAD_BYTES, err);
        if (!st)
            st = check_head(s, path, head, size, &n_tokens, err);
        if (!st)
            st = read_all(s, fd, path, size, head, n_tokens, spans, err);
        swl_file_close(fd);
    }
    swl_free(spans);
    return st;
}
