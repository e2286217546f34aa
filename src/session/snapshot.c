/*
 * snapshot.c: a conversation on disk.
 *
 *   offset  0  8 bytes   "SWLSNAP" and a version byte, 4. Older ones are read, but were rounded otherwise: an answer may
 *                        differ from that of a conversation without a file. 1 and 2 have no gains, all of which are 1
 *                        then; up to 3 keys and values are float16 without scales.
 *           8  32        fingerprint of the model
 *          40  u8        1: keys and values are float32 (exact mode), 0: integers with scales
 *          41  u8        marks
 *          42  u16       0
 *          44  u32       n, tokens
 *          48  u64       bytes of the whole snapshot
 *          56  ...       n token ids (i32); position of each mark (i32); convolution state; delta state and its gains; K
 *                        and V of each attention layer, n records (kv.c) each; of each mark convolution and delta state
 *                        and gains
 *        last  u32       CRC-32C of everything before
 *
 * Little-endian, as every machine that this runs on. Written under another name and renamed; read into the session only
 * after length, identity and checksum are right. It may stand inside another file, from some offset to its end.
 */
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "session/session.h"

enum { HEAD_BYTES = 56, MARKS_MAX = 255, VERSION = 4, VERSION_GAINS = 3, VERSION_MARKS = 2, VERSION_FIRST = 1, RECORDS = 64 };
static const uint8_t magic[7] = {'S', 'W', 'L', 'S', 'N', 'A', 'P'};

/* The places that hold a state, in file order; data NULL: read and thrown away. plane + 1 of keys and values, or 0. */
typedef struct span {
    void *data;
    uint64_t n;
    int32_t kv;
} span;

typedef struct snapshot {
    swl_session *s;
    const char *path;
    swl_error *err;
    int32_t n_tokens, n_marks;
    bool f16;                  /* keys and values are as older versions have them */
    uint64_t record_bytes;     /* of a position's keys or values */
    uint8_t *records;          /* [RECORDS] on their way */
    uint64_t recurrent_bytes;  /* of a convolution and delta state here */
    uint8_t head[HEAD_BYTES];
    int32_t positions[MARKS_MAX];
    uint8_t *recurrent;       /* convolution and delta state, when they are not the session's own */
    void *marks[MARKS_MAX];   /* data of each */
    span *spans;
    int32_t n_spans;
} snapshot;

static swl_status list_spans(snapshot *p)
{
    const swl_model *m = p->s->model;
    const swl_state *t = p->s->state;
    int32_t n = 0, i;
    span *spans = swl_calloc((size_t)(4 + 2 * m->weights.n_attention + p->n_marks), sizeof *spans);

    p->record_bytes = swl_kv_record_bytes(m, p->f16);
    p->records = swl_calloc(RECORDS, p->record_bytes);
    p->spans = spans;
    if (!spans || !p->records)
        return swl_fail(p->err, SWL_E_NOMEM, "snapshot: out of memory");
    spans[n++] = (span){p->s->ids, (uint64_t)p->n_tokens * sizeof *p->s->ids, 0};
    spans[n++] = (span){p->positions, (uint64_t)p->n_marks * sizeof *p->positions, 0};
    spans[n++] = (span){p->recurrent ? p->recurrent : (void *)t->conv, t->conv_bytes, 0};
    spans[n++] = (span){p->recurrent ? p->recurrent + t->conv_bytes : (void *)t->delta, p->recurrent_bytes - t->conv_bytes, 0};
    for (i = 0; i < 2 * m->weights.n_attention; i++)
        spans[n++] = (span){NULL, p->record_bytes * (uint64_t)p->n_tokens, i + 1};
    for (i = 0; i < p->n_marks; i++)
        spans[n++] = (span){p->marks[i], p->recurrent_bytes, 0};
    p->n_spans = n;
    return SWL_OK;
}

static uint64_t total_bytes(const snapshot *p)
{
    uint64_t bytes = HEAD_BYTES + sizeof(uint32_t);
    int32_t i;

    for (i = 0; i < p->n_spans; i++)
        bytes += p->spans[i].n;
    return bytes;
}

static uint64_t recurrent_bytes(const swl_state *t, uint8_t version)
{
    return t->conv_bytes + t->delta_bytes - (version < VERSION_GAINS ? t->gain_bytes : 0);
}

static swl_status make_head(const swl_session *s, int32_t n_tokens, int32_t n_marks, uint64_t bytes, uint8_t head[HEAD_BYTES],
                            swl_error *err)
{
    uint32_t n = (uint32_t)n_tokens;

    memset(head, 0, HEAD_BYTES);
    memcpy(head, magic, sizeof magic);
    head[7] = VERSION;
    head[40] = s->model->exact;
    head[41] = (uint8_t)n_marks;
    memcpy(head + 44, &n, 4);
    memcpy(head + 48, &bytes, 8);
    return swl_checkpoint_fingerprint(s->model->ck, head + 8, err);
}

/* ---- writing ---- */

static swl_status write_kv(const snapshot *p, int fd, int32_t plane, uint32_t *crc)
{
    int32_t pos, n, i;
    swl_status st = SWL_OK;

    for (pos = 0; pos < p->n_tokens && !st; pos += n) {
        n = p->n_tokens - pos < RECORDS ? p->n_tokens - pos : RECORDS;
        for (i = 0; i < n; i++)
            swl_kv_save(p->s->model, p->s->state, plane, pos + i, p->records + (uint64_t)i * p->record_bytes);
        *crc = swl_crc32c(*crc, p->records, (uint64_t)n * p->record_bytes);
        st = swl_file_write(fd, p->path, p->records, (uint64_t)n * p->record_bytes, p->err);
    }
    return st;
}

static swl_status write_span(const snapshot *p, int fd, span t, uint32_t *crc)
{
    if (t.kv)
        return write_kv(p, fd, t.kv - 1, crc);
    *crc = swl_crc32c(*crc, t.data, t.n);
    return swl_file_write(fd, p->path, t.data, t.n, p->err);
}

static swl_status write_all(const snapshot *p, int fd)
{
    uint32_t crc = swl_crc32c(0, p->head, HEAD_BYTES);
    swl_status st = swl_file_write(fd, p->path, p->head, HEAD_BYTES, p->err);
    int32_t i;

    for (i = 0; i < p->n_spans && !st; i++)
        st = write_span(p, fd, p->spans[i], &crc);
    return st ? st : swl_file_write(fd, p->path, &crc, sizeof crc, p->err);
}

/* Where the recurrent state at position n is: NULL for the live one. */
static swl_status find_state(snapshot *p, int32_t n)
{
    const swl_session *s = p->s;
    int32_t i;

    p->n_tokens = n;
    if (n == s->state->n_tokens && !s->broken)
        return SWL_OK;
    for (i = 0; i < s->n_marks; i++)
        if (s->marks[i].n_tokens == n)
            p->recurrent = s->marks[i].data;
    return p->recurrent ? SWL_OK : swl_fail(p->err, SWL_E_ARG, "the conversation has no mark at %d tokens", n);
}

static void choose_marks(snapshot *p, const int32_t *wanted, int32_t n)
{
    const swl_session *s = p->s;
    int32_t i, j;

    for (i = 0; i < s->n_marks && p->n_marks < MARKS_MAX; i++)
        for (j = 0; j < n; j++)
            if (s->marks[i].n_tokens == wanted[j] && wanted[j] < p->n_tokens) {
                p->positions[p->n_marks] = wanted[j];
                p->marks[p->n_marks++] = s->marks[i].data;
                break;
            }
}

swl_status swl_snapshot_write(const swl_session *s, int32_t at, const int32_t *marks, int32_t n_marks, int fd, const char *path,
                              swl_error *err)
{
    snapshot p = {.s = (swl_session *)s, .path = path, .err = err};
    swl_status st = find_state(&p, at);

    if (st)
        return st;
    choose_marks(&p, marks, n_marks);
    p.recurrent_bytes = recurrent_bytes(s->state, VERSION);
    st = list_spans(&p);
    if (!st)
        st = make_head(s, at, p.n_marks, total_bytes(&p), p.head, err);
    if (!st)
        st = write_all(&p, fd);
    swl_free(p.records);
    swl_free(p.spans);
    return st;
}

swl_status swl_snapshot_save(const swl_session *s, const char *path, swl_error *err)
{
    swl_file_atomic f;
    swl_status st = swl_file_atomic_begin(&f, path, err);

    if (st)
        return st;
    st = swl_snapshot_write(s, s->state->n_tokens, NULL, 0, f.fd, path, err);
    return swl_file_atomic_end(&f, st, err);
}

/* ---- reading ---- */

static bool known_version(const uint8_t *head)
{
    return head[7] >= VERSION_FIRST && head[7] <= VERSION;
}

static swl_status unknown_version(swl_status st, const char *path, int64_t at, const uint8_t *head, swl_error *err)
{
    return swl_fail_at(err, st, path, at, "%s: snapshot version %d, expected %d to %d", path, head[7], VERSION_FIRST, VERSION);
}

/* Why a head is not one that this session can take. */
static swl_status check_head(snapshot *p, uint64_t base, uint64_t size)
{
    const swl_session *s = p->s;
    const uint8_t *found = p->head;
    const char *path = p->path;
    uint8_t want[HEAD_BYTES];
    uint64_t bytes;
    uint32_t n;
    swl_status st = make_head(s, 0, 0, 0, want, p->err);
    int64_t at = (int64_t)base;

    if (st)
        return st;
    if (memcmp(found, magic, sizeof magic))
        return swl_fail_at(p->err, SWL_E_CORRUPT, path, at, "%s is not a snapshot of this program", path);
    if (!known_version(found))
        return unknown_version(SWL_E_UNSUPPORTED, path, at + 7, found, p->err);
    if (memcmp(found + 8, want + 8, 32))
        return swl_fail_at(p->err, SWL_E_MISMATCH, path, at + 8, "%s was made with another model", path);
    if (found[40] != want[40])
        return swl_fail_at(p->err, SWL_E_MISMATCH, path, at + 40, "%s was made %s --exact, this session runs %s it", path,
                           s->model->exact ? "without" : "with", s->model->exact ? "with" : "without");
    if (found[42] || found[43] || (found[7] < VERSION_MARKS && found[41]))
        return swl_fail_at(p->err, SWL_E_CORRUPT, path, at + 41, "%s: bytes 41 to 43 are not what version %d has there", path,
                           found[7]);
    memcpy(&n, found + 44, 4);
    memcpy(&bytes, found + 48, 8);
    if (n > (uint32_t)s->state->ctx_tokens)
        return swl_fail_at(p->err, SWL_E_BUDGET, path, at + 44, "%s holds %" PRIu32 " tokens, this session has room for %d",
                           path, n, s->state->ctx_tokens);
    if (bytes != size)
        return swl_fail_at(p->err, SWL_E_CORRUPT, path, at + 48, "%s has %" PRIu64 " bytes, expected %" PRIu64, path, size,
                           bytes);
    p->n_tokens = (int32_t)n;
    p->n_marks = found[41];
    p->f16 = found[7] < VERSION && !s->model->exact;
    p->recurrent_bytes = recurrent_bytes(s->state, found[7]);
    return SWL_OK;
}

/* Memory for the marks, with the gains that may not be in the file; of more than the session keeps, for the last ones. */
static swl_status prepare_marks(snapshot *p)
{
    swl_session *s = p->s;
    uint64_t gains = s->state->conv_bytes + s->state->delta_bytes - s->state->gain_bytes;
    int32_t skip = p->n_marks > s->n_marks_max ? p->n_marks - s->n_marks_max : 0, i;

    for (i = skip; i < p->n_marks; i++) {
        swl_mark *m = &s->marks[i - skip];

        if (!m->data && !(m->data = swl_big_alloc(swl_mark_bytes(s->model))))
            return swl_fail(p->err, SWL_E_NOMEM, "out of memory for a mark");
        swl_state_no_decay((float *)((uint8_t *)m->data + gains), s->state->gain_bytes);
        p->marks[i] = m->data;
    }
    return SWL_OK;
}

static swl_status read_kv(const snapshot *p, int fd, uint64_t at, int32_t plane, uint32_t *crc)
{
    int32_t pos, n, i;
    swl_status st = SWL_OK;

    for (pos = 0; pos < p->n_tokens && !st; pos += n) {
        n = p->n_tokens - pos < RECORDS ? p->n_tokens - pos : RECORDS;
        st = swl_file_read_at(fd, p->path, at + (uint64_t)pos * p->record_bytes, p->records, (uint64_t)n * p->record_bytes, p->err);
        *crc = swl_crc32c(*crc, p->records, (uint64_t)n * p->record_bytes);
        for (i = 0; i < n && !st; i++)
            swl_kv_load(p->s->model, p->s->state, plane, pos + i, p->records + (uint64_t)i * p->record_bytes, p->f16);
    }
    return st;
}

static swl_status read_span(const snapshot *p, int fd, uint64_t at, span t, uint32_t *crc)
{
    uint8_t thrown[4096];
    swl_status st;

    if (t.kv)
        return read_kv(p, fd, at, t.kv - 1, crc);
    if (t.data) {
        st = swl_file_read_at(fd, p->path, at, t.data, t.n, p->err);
        if (!st)
            *crc = swl_crc32c(*crc, t.data, t.n);
        return st;
    }
    for (st = SWL_OK; t.n && !st;) {
        uint64_t n = t.n < sizeof thrown ? t.n : sizeof thrown;

        st = swl_file_read_at(fd, p->path, at, thrown, n, p->err);
        *crc = swl_crc32c(*crc, thrown, n);
        at += n;
        t.n -= n;
    }
    return st;
}

static swl_status check_contents(const snapshot *p, uint64_t base)
{
    const swl_session *s = p->s;
    int32_t i, before = 0;

    for (i = 0; i < p->n_tokens; i++)
        if (s->ids[i] < 0 || s->ids[i] >= s->model->config->vocab)
            return swl_fail_at(p->err, SWL_E_CORRUPT, p->path, (int64_t)base + HEAD_BYTES + 4 * (int64_t)i,
                               "%s: token id %d is not in 0 to %d", p->path, s->ids[i], s->model->config->vocab - 1);
    for (i = 0; i < p->n_marks; before = p->positions[i++])
        if (p->positions[i] <= before || p->positions[i] > p->n_tokens)
            return swl_fail_at(p->err, SWL_E_CORRUPT, p->path, (int64_t)base + HEAD_BYTES + 4 * (int64_t)(p->n_tokens + i),
                               "%s: a mark at %d tokens is not in %d to %d", p->path, p->positions[i], before + 1, p->n_tokens);
    return SWL_OK;
}

static swl_status read_all(snapshot *p, int fd, uint64_t base, uint64_t size)
{
    uint32_t crc = swl_crc32c(0, p->head, HEAD_BYTES), want;
    uint64_t at = base + HEAD_BYTES;
    swl_status st = SWL_OK;
    int32_t i;

    if (total_bytes(p) != size)
        return swl_fail_at(p->err, SWL_E_CORRUPT, p->path, -1, "%s has %" PRIu64 " bytes, expected %" PRIu64
                           " for %d tokens and %d marks", p->path, size, total_bytes(p), p->n_tokens, p->n_marks);
    for (i = 0; i < p->n_spans && !st; i++) {
        st = read_span(p, fd, at, p->spans[i], &crc);
        at += p->spans[i].n;
    }
    if (!st)
        st = swl_file_read_at(fd, p->path, at, &want, sizeof want, p->err);
    if (!st && want != crc)
        st = swl_fail_at(p->err, SWL_E_CORRUPT, p->path, (int64_t)at, "%s is damaged: checksum %08" PRIx32 ", expected %08"
                         PRIx32, p->path, crc, want);
    return st ? st : check_contents(p, base);
}

static void keep(snapshot *p)
{
    swl_session *s = p->s;
    int32_t i;

    s->state->n_tokens = p->n_tokens;
    for (i = 0; i < p->n_marks; i++)
        if (p->marks[i]) {
            s->marks[s->n_marks].n_tokens = p->positions[i];
            s->marks[s->n_marks].weight = 4; /* only places worth going back to are saved */
            s->marks[s->n_marks++].has_logits = false;
        }
}

swl_status swl_snapshot_read(swl_session *s, int fd, uint64_t base, uint64_t size, const char *path, swl_error *err)
{
    snapshot p = {.s = s, .path = path, .err = err};
    swl_status st;

    swl_session_reset(s);
    st = size < HEAD_BYTES + 4
             ? swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)base, "%s is not a snapshot of this program", path)
             : swl_file_read_at(fd, path, base, p.head, HEAD_BYTES, err);
    if (!st)
        st = check_head(&p, base, size);
    if (!st)
        st = prepare_marks(&p);
    if (!st)
        st = list_spans(&p);
    if (!st)
        st = read_all(&p, fd, base, size);
    if (!st)
        keep(&p);
    else
        swl_session_reset(s); /* empty, never half filled */
    swl_free(p.records);
    swl_free(p.spans);
    return st;
}

swl_status swl_snapshot_load(swl_session *s, const char *path, swl_error *err)
{
    uint64_t size;
    swl_status st;
    int fd;

    st = swl_file_open(&fd, &size, path, err);
    if (st) {
        swl_session_reset(s);
        return st;
    }
    st = swl_snapshot_read(s, fd, 0, size, path, err);
    swl_file_close(fd);
    return st;
}

/* ---- looking without loading ---- */

swl_status swl_snapshot_peek(swl_snapshot_info *out, const char *path, int32_t n_max, swl_error *err)
{
    uint8_t head[HEAD_BYTES];
    uint32_t n;
    swl_status st;
    int fd;

    memset(out, 0, sizeof *out);
    st = swl_file_open(&fd, &out->bytes, path, err);
    if (st)
        return st;
    st = swl_file_read_at(fd, path, 0, head, HEAD_BYTES, err);
    if (!st && memcmp(head, magic, sizeof magic))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s is not a snapshot of this program", path);
    if (!st && !known_version(head))
        st = unknown_version(SWL_E_CORRUPT, path, 7, head, err);
    memcpy(&n, head + 44, 4);
    if (!st && n > (uint32_t)n_max)
        st = swl_fail_at(err, SWL_E_BUDGET, path, 44, "%s holds %" PRIu32 " tokens, there is room for %d", path, n, n_max);
    if (!st && (uint64_t)n * 4 + (uint64_t)head[41] * 4 + HEAD_BYTES > out->bytes)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, 44, "%s: %" PRIu32 " tokens do not fit into %" PRIu64 " bytes", path, n,
                         out->bytes);
    if (!st) {
        memcpy(out->fingerprint, head + 8, sizeof out->fingerprint);
        out->exact = head[40];
        out->n_tokens = (int32_t)n;
        out->n_marks = head[41];
        memcpy(&out->snapshot_bytes, head + 48, 8);
        if (out->snapshot_bytes > out->bytes) /* cut short: whoever reads it is told */
            out->snapshot_bytes = out->bytes;
        out->ids = swl_calloc((size_t)n + head[41], sizeof *out->ids);
        st = out->ids ? swl_file_read_at(fd, path, HEAD_BYTES, out->ids, ((uint64_t)n + head[41]) * sizeof *out->ids, err)
                      : swl_fail(err, SWL_E_NOMEM, "snapshot: out of memory");
        out->marks = out->ids ? out->ids + n : NULL;
    }
    swl_file_close(fd);
    if (st) {
        swl_free(out->ids);
        out->ids = out->marks = NULL;
    }
    return st;
}
