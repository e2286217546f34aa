/*
 * qpack_write.c: the data files of a container. A safetensors file is written tensor group by tensor group at the
 * offsets that the plan gave (a quantised matrix fills three places at once) and hashed in a second pass; files of
 * slots are written and hashed in one go. Memory: one slot and the converter's blocks.
 *
 * With a state, a run goes on where an earlier one was ended, by whatever. What the state says is done is read back and
 * compared with the checksums beside it; the first difference is where the work begins again:
 *
 *   files of slots   note "C": CRC-32C of the first slots together; how many is in `done`
 *   safetensors      note "K:C...": the first K items are there, and CRC-32C of their parts
 *   both, finished   digest, verified
 */
#define _GNU_SOURCE
#include "install/qpack_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "install/hasher.h"
#include "install/place.h"
#include "install/transfer.h"

#define SAVE_BYTES   (UINT64_C(256) << 20)
#define SAVE_SECONDS 10.0
#define SMALL_BYTES_MAX (UINT64_C(64) << 20) /* of a tokenizer or template file */
#define BLOCK_BYTES     (UINT64_C(1) << 20)
#define HURRY_BYTES     (UINT64_C(8) << 20)

swl_status swl_qpack_progress(swl_qpack_writer *w, uint64_t n, swl_error *err)
{
    w->n_done += n;
    w->unsaved += n;
    if (w->on_progress && !w->on_progress(w->arg, w->n_done, w->n_total))
        return swl_fail(err, SWL_E_CANCELLED, "stopped on request");
    return SWL_OK;
}

/* ---- one file being written ---------------------------------------------------------------------------------------
 */

typedef struct out_file {
    const char *name; /* relative */
    char *path;
    int fd;
    uint64_t size, unhurried; /* bytes since writing them out was begun */
    EVP_MD_CTX *sha; /* NULL: without a hash */
    swl_hasher *hasher;
} out_file;

static void out_abandon(out_file *f)
{
    if (f->hasher)
        swl_hasher_wait(f->hasher, NULL);
    swl_file_close(f->fd);
    EVP_MD_CTX_free(f->sha);
    swl_free(f->path);
    *f = (out_file){.fd = -1};
}

static swl_status out_begin(out_file *f, const swl_qpack_writer *w, const char *name, swl_error *err)
{
    swl_status st;

    *f = (out_file){.name = name, .path = swl_path_join(w->dir, name), .fd = -1, .hasher = w->hasher};
    if (!w->synthetic)
        f->sha = EVP_MD_CTX_new();
    if (!f->path || (!w->synthetic && (!f->sha || !EVP_DigestInit_ex(f->sha, EVP_sha256(), NULL))))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for a file of the container");
    else
        st = swl_file_create(&f->fd, f->path, err);
    if (st)
        out_abandon(f);
    return st;
}

/* A file of the state: its content is kept, and it has its whole length at once. */
static swl_status out_resume(out_file *f, const swl_qpack_writer *w, const char *name, uint64_t size, swl_error *err)
{
    swl_status st;

    if (!w->state)
        return out_begin(f, w, name, err);
    *f = (out_file){.name = name, .path = swl_path_join(w->dir, name), .fd = -1, .sha = EVP_MD_CTX_new(), .hasher = w->hasher};
    if (!f->path || !f->sha || !EVP_DigestInit_ex(f->sha, EVP_sha256(), NULL))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for a file of the container");
    else
        st = swl_place_open(&f->fd, w->dir, name, size, err);
    if (st)
        out_abandon(f);
    return st;
}

/* Beside what follows: data must stay as they are until the next block is given, or until out_settle. */
static void out_hash(out_file *f, const void *data, uint64_t n)
{
    if (f->sha)
        swl_hasher_add(f->hasher, f->sha, data, n);
}

/* All that was given is in the hash. */
static swl_status out_settle(const out_file *f, swl_error *err)
{
    return f->hasher ? swl_hasher_wait(f->hasher, err) : SWL_OK;
}

/* Starts bringing bytes to the disk early, so that the sync at the end has little left to wait for. */
static swl_status out_write_at(out_file *f, uint64_t at, const void *data, uint64_t n, swl_error *err)
{
    swl_status st = swl_file_write_at(f->fd, f->path, at, data, n, err);

    f->unhurried += n;
    if (!st && f->unhurried >= HURRY_BYTES) {
        swl_place_hurry(f->fd, 0, 0);
        f->unhurried = 0;
    }
    return st;
}

/* Appends. */
static swl_status out_write(out_file *f, const void *data, uint64_t n, swl_error *err)
{
    swl_status st;

    out_hash(f, data, n);
    st = out_write_at(f, f->size, data, n, err);
    f->size += n;
    return st;
}

/* ---- state -------------------------------------------------------------------------------------------------------- */

static swl_status no_state(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for the state of a conversion");
}

static swl_status save(swl_qpack_writer *w, swl_error *err)
{
    w->unsaved = 0;
    w->saved_at = swl_seconds();
    if (w->placed) /* the state on disk is that of how they came there */
        return SWL_OK;
    return swl_state_save(w->state, w->dir, err);
}

static bool save_is_due(const swl_qpack_writer *w)
{
    return w->state && w->unsaved && (w->unsaved >= SAVE_BYTES || swl_seconds() - w->saved_at >= SAVE_SECONDS);
}

/* Takes `note`. What it describes must be durable. */
static swl_status note_progress(swl_qpack_writer *w, const char *name, uint64_t size, uint64_t done, char *note,
                                swl_error *err)
{
    swl_state_file *f = swl_state_file_get(w->state, name);

    if (!f || !note) {
        swl_free(note);
        return no_state(err);
    }
    swl_free(f->note);
    f->note = note;
    f->size = size;
    f->verified = false;
    f->digest = (swl_digest){0};
    swl_spans_clear(&f->done);
    return swl_spans_add(&f->done, 0, done) ? save(w, err) : no_state(err);
}

/* A finished file. Small ones are saved with the next large one: they are made anew in no time. */
static swl_status remember_for_good(swl_qpack_writer *w, const swl_qpack_file *r, swl_error *err)
{
    swl_state_file *f = swl_state_file_get(w->state, r->name);

    if (!f || !swl_spans_add(&f->done, 0, r->size))
        return no_state(err);
    swl_free(f->note);
    f->note = NULL;
    f->size = r->size;
    f->verified = true;
    swl_digest_set(&f->digest, SWL_DIGEST_SHA256, r->sha256);
    return r->size > BLOCK_BYTES ? save(w, err) : SWL_OK;
}

static bool is_finished(const swl_qpack_writer *w, const char *name)
{
    const swl_state_file *f = w->state ? swl_state_file_find(w->state, name) : NULL;

    return w->placed || (f && f->verified);
}

/* What was read back of a finished file must be what was written. */
static bool is_unchanged(const swl_qpack_writer *w, const out_file *f)
{
    const swl_state_file *s = swl_state_file_find(w->state, f->name);
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    uint8_t digest[EVP_MAX_MD_SIZE];
    char hex[65];
    bool same = true;

    swl_hasher_wait(f->hasher, NULL); /* a fault shows in the digest */
    if (!w->placed) {
        same = s && copy && EVP_MD_CTX_copy_ex(copy, f->sha) && EVP_DigestFinal_ex(copy, digest, NULL);
        for (int i = 0; i < 32 && same; i++)
            snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        same = same && !strcmp(hex, s->digest.hex);
    }
    EVP_MD_CTX_free(copy);
    return same;
}

static swl_status hash_anew(out_file *f, swl_error *err)
{
    f->size = 0;
    swl_hasher_wait(f->hasher, NULL); /* of what does not count any more */
    return EVP_DigestInit_ex(f->sha, EVP_sha256(), NULL) ? SWL_OK
                                                         : swl_fail(err, SWL_E_FAIL, "libcrypto cannot hash %s", f->path);
}

static swl_status remember(swl_qpack_writer *w, const out_file *f, swl_error *err)
{
    uint8_t digest[EVP_MAX_MD_SIZE] = {0};
    swl_qpack_file *r;

    if (w->n_files == w->n_files_max) {
        int32_t n = w->n_files_max ? 2 * w->n_files_max : 64;
        swl_qpack_file *p = swl_realloc(w->files, (size_t)n, sizeof *p);

        if (!p)
            return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
        w->files = p;
        w->n_files_max = n;
    }
    r = &w->files[w->n_files];
    *r = (swl_qpack_file){.name = swl_strdup(f->name), .size = f->size};
    if (!r->name || (f->sha && !EVP_DigestFinal_ex(f->sha, digest, NULL))) {
        swl_free(r->name);
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    }
    for (int i = 0; i < 32; i++)
        snprintf(r->sha256 + 2 * i, 3, "%02x", digest[i]);
    w->n_files++;
    return w->state ? remember_for_good(w, r, err) : SWL_OK;
}

/* After a failure nothing is noted any more: systems report a lost page once, and the next sync would succeed without it. */
static swl_status sync_out(swl_qpack_writer *w, const out_file *f, swl_error *err)
{
    swl_status st = w->lost ? swl_fail(err, SWL_E_IO, "what was written last did not reach the disk")
                            : swl_place_sync(f->fd, f->path, err);

    w->lost = st != SWL_OK;
    return st;
}

/* Durable, and out of the page cache: what was just written is not what is wanted next. Accepts a failed file. */
static swl_status out_end(out_file *f, swl_qpack_writer *w, swl_status st, swl_error *err)
{
    if (!st)
        st = out_settle(f, err);
    if (!st)
        st = sync_out(w, f, err);
    if (!st)
        swl_file_forget(f->fd, 0, 0);
    if (!st)
        st = remember(w, f, err);
    out_abandon(f);
    return st;
}

swl_status swl_qpack_put(swl_qpack_writer *w, const char *name, const void *data, uint64_t n, swl_error *err)
{
    out_file f;
    swl_status st = out_begin(&f, w, name, err);

    return st ? st : out_end(&f, w, out_write(&f, data, n, err), err);
}

/* ---- safetensors --------------------------------------------------------------------------------------------------
 */

typedef struct dense_sink {
    swl_qpack_writer *w;
    out_file *f;
    swl_plan_item *item;
} dense_sink;

static swl_status put_dense(void *arg, swl_part part, uint64_t at, const uint8_t *data, uint64_t n, swl_error *err)
{
    dense_sink *s = arg;
    swl_status st = out_write_at(s->f, s->item->offset[part] + at, data, n, err);

    s->item->crc[part] = swl_crc32c(s->item->crc[part], data, n);
    return st ? st : swl_qpack_progress(s->w, n, err);
}

/* One of two blocks: that which is not `now`. */
static uint8_t *other(uint8_t *blocks, const uint8_t *now, uint64_t n)
{
    return now == blocks ? blocks + n : blocks;
}

/* The hash needs the bytes in order, which is not the order of writing. */
static swl_status hash_again(swl_qpack_writer *w, out_file *f, swl_error *err)
{
    uint8_t *blocks = swl_calloc(2, BLOCK_BYTES), *block = blocks;
    swl_status st = SWL_OK, settled;
    uint64_t n, size;
    int fd;

    if (!blocks)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a block");
    st = swl_file_open(&fd, &size, f->path, err);
    for (uint64_t at = 0; at < f->size && !st; at += n) {
        n = f->size - at < BLOCK_BYTES ? f->size - at : BLOCK_BYTES;
        block = other(blocks, block, BLOCK_BYTES);
        st = swl_file_read_at(fd, f->path, at, block, n, err);
        if (!st)
            out_hash(f, block, n);
        if (!st)
            st = swl_qpack_progress(w, n, err);
    }
    settled = out_settle(f, st ? NULL : err);
    swl_file_close(fd);
    swl_free(blocks);
    return st ? st : settled;
}

/* CRC-32C of n bytes of the file; with f->sha and `hashed` they go into the hash too. */
static swl_status read_back(swl_qpack_writer *w, out_file *f, uint64_t at, uint64_t n, bool hashed, uint32_t *crc,
                            swl_error *err)
{
    uint64_t room = n < BLOCK_BYTES ? n : BLOCK_BYTES;
    uint8_t *blocks = swl_calloc(2, room), *block = blocks;
    swl_status st = blocks ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for a block"), settled;

    *crc = 0;
    for (uint64_t k, end = at + n; at < end && !st; at += k) {
        k = end - at < room ? end - at : room;
        block = other(blocks, block, room);
        st = swl_file_read_at(f->fd, f->path, at, block, k, err);
        if (!st && hashed)
            out_hash(f, block, k);
        if (!st)
            *crc = swl_crc32c(*crc, block, k);
        if (!st)
            st = swl_qpack_progress(w, k, err);
    }
    settled = hashed ? out_settle(f, st ? NULL : err) : SWL_OK;
    swl_free(blocks);
    return st ? st : settled;
}

/* All of a safetensors file that is there: its hash, and the checksums of its tensors. */
static swl_status read_dense(swl_qpack_writer *w, out_file *f, swl_plan_file *pf, swl_error *err)
{
    uint32_t header;
    swl_status st = read_back(w, f, 0, pf->n_header, true, &header, err);

    for (int32_t i = 0; i < pf->n_tensors && !st; i++) {
        swl_plan_tensor *t = &pf->tensors[i];
        swl_plan_item *item = &pf->items[t->item];

        st = read_back(w, f, item->offset[t->part], t->size, true, &item->crc[t->part], err);
    }
    f->size = pf->n_bytes;
    return st;
}

/* How many items the state says are there, as far as their bytes are what they were. */
static swl_status items_there(swl_qpack_writer *w, out_file *f, swl_plan_file *pf, int32_t *n, swl_error *err)
{
    const swl_state_file *s = w->state ? swl_state_file_find(w->state, pf->name) : NULL;
    const char *note = s && s->size == pf->n_bytes && s->note ? s->note : "";
    int32_t said = 0;
    int at = 0;
    swl_status st = SWL_OK;

    *n = 0;
    if (sscanf(note, "%" SCNd32 ":%n", &said, &at) != 1 || !at)
        return SWL_OK;
    for (note += at; *n < said && *n < pf->n_items && !st; ++*n) {
        swl_plan_item *item = &pf->items[*n];

        for (int part = 0; part < item->w.n_parts && !st; part++, note += 8) {
            uint32_t want;
            uint64_t size = item->w.row_bytes[part] * (uint64_t)item->w.rows;

            if (strlen(note) < 8 || sscanf(note, "%8" SCNx32, &want) != 1)
                return SWL_OK;
            st = read_back(w, f, item->offset[part], size, false, &item->crc[part], err);
            if (!st && item->crc[part] != want)
                return SWL_OK;
        }
    }
    return st;
}

static char *items_note(const swl_plan_file *pf, int32_t n)
{
    size_t room = 16 + (size_t)n * SWL_PART_COUNT * 8, at;
    char *note = swl_calloc(room, 1);

    if (!note)
        return NULL;
    at = (size_t)snprintf(note, room, "%" PRId32 ":", n);
    for (int32_t i = 0; i < n; i++)
        for (int part = 0; part < pf->items[i].w.n_parts; part++)
            at += (size_t)snprintf(note + at, room - at, "%08" PRIx32, pf->items[i].crc[part]);
    return note;
}

static swl_status save_items(swl_qpack_writer *w, out_file *f, const swl_plan_file *pf, int32_t n, swl_error *err)
{
    swl_status st = sync_out(w, f, err);

    return st ? st : note_progress(w, pf->name, pf->n_bytes, 0, items_note(pf, n), err);
}

/* Writes what is missing. When that fails, what is there is noted: `st` is what the caller hears. */
static swl_status write_items(swl_qpack_writer *w, out_file *f, swl_plan_file *pf, swl_error *err)
{
    int32_t i = 0;
    swl_status st = items_there(w, f, pf, &i, err);

    if (!st && !i) {
        st = swl_file_write_at(f->fd, f->path, 0, pf->header, pf->n_header, err);
        if (!st)
            st = swl_qpack_progress(w, pf->n_header, err);
    }
    for (; i < pf->n_items && !st; i++) {
        dense_sink s = {.w = w, .f = f, .item = &pf->items[i]};

        memset(pf->items[i].crc, 0, sizeof pf->items[i].crc);
        st = swl_weight_emit(&w->cv, &pf->items[i].w, put_dense, &s, err);
        if (!st && save_is_due(w))
            st = save_items(w, f, pf, i + 1, err);
    }
    if (st && w->state && i > 1)
        save_items(w, f, pf, i - 1, NULL);
    return st;
}

static swl_status write_dense(swl_qpack_writer *w, swl_plan_file *pf, swl_error *err)
{
    out_file f;
    bool finished = is_finished(w, pf->name);
    swl_status st = out_resume(&f, w, pf->name, pf->n_bytes, err);

    if (st)
        return st;
    if (finished) {
        st = read_dense(w, &f, pf, err);
        if (!st && is_unchanged(w, &f))
            return out_end(&f, w, st, err);
        if (!st)
            st = hash_anew(&f, err);
    }
    if (!st)
        st = write_items(w, &f, pf, err);
    f.size = pf->n_bytes;
    if (!st && f.sha)
        st = hash_again(w, &f, err);
    return out_end(&f, w, st, err);
}

/* ---- slots --------------------------------------------------------------------------------------------------------
 */

typedef struct slot_sink {
    const swl_plan_slots *s;
    swl_proj proj;
    uint8_t *slot;
} slot_sink;

/* Where a part goes; NULL: nowhere, which the plan rules out. */
static uint8_t *place_in_slot(const slot_sink *k, swl_part part)
{
    for (int i = 0; i < k->s->n_sections; i++)
        if (k->s->sections[i].proj == k->proj && k->s->sections[i].part == part)
            return k->slot + k->s->sections[i].offset;
    return NULL;
}

static swl_status put_slot(void *arg, swl_part part, uint64_t at, const uint8_t *data, uint64_t n, swl_error *err)
{
    slot_sink *k = arg;
    uint8_t *dst = place_in_slot(k, part);

    (void)err;
    if (dst)
        memcpy(dst + at, data, n);
    return SWL_OK;
}

/* What is not changed is read into its place. */
static swl_status read_into_slot(const swl_converter *cv, const swl_weight *w, const slot_sink *k, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int part = 0; part < w->n_parts && !st; part++) {
        uint8_t *dst = place_in_slot(k, (swl_part)part);

        if (dst)
            st = swl_st_read(cv->st, w->src[part].t, w->src[part].begin, dst, w->row_bytes[part] * (uint64_t)w->rows, err);
    }
    return st;
}

static swl_status write_slot(swl_qpack_writer *w, out_file *f, swl_plan_slots *s, int32_t expert, uint8_t *slot,
                             swl_error *err)
{
    swl_status st = SWL_OK;
    swl_weight weight;

    for (int proj = 0; proj < SWL_PROJ_COUNT && !st; proj++) {
        slot_sink k = {.s = s, .proj = (swl_proj)proj, .slot = slot};

        st = swl_plan_expert(w->plan, s, expert, (swl_proj)proj, &weight, err);
        if (!st)
            st = weight.op == SWL_WEIGHT_COPY && !w->cv.origin ? read_into_slot(&w->cv, &weight, &k, err)
                                                               : swl_weight_emit(&w->cv, &weight, put_slot, &k, err);
    }
    if (st)
        return st;
    st = out_write(f, slot, s->stride, err);
    s->crc[expert] = swl_crc32c(0, slot, s->stride); /* while it is hashed */
    return st ? st : swl_qpack_progress(w, s->stride, err);
}

/* One number for the checksums of the first n slots. */
static uint32_t check_of_slots(const swl_plan_slots *s, int32_t n)
{
    return swl_crc32c(0, s->crc, (size_t)n * sizeof *s->crc);
}

/* The slots that are there: [0, n) are read back, hashed and checked. *n becomes 0 when they are not what they were. `slots`:
 * room for two, here as below, so that one is hashed while the other is filled. */
static swl_status read_slots(swl_qpack_writer *w, out_file *f, swl_plan_slots *s, uint8_t *slots, int32_t *n, swl_error *err)
{
    const swl_state_file *said = swl_state_file_find(w->state, f->name);
    uint32_t want = 0;
    swl_status st = SWL_OK;

    for (int32_t e = 0; e < *n && !st; e++) {
        uint8_t *slot = slots + (uint64_t)(e % 2) * s->stride;

        st = swl_file_read_at(f->fd, f->path, f->size, slot, s->stride, err);
        if (!st)
            out_hash(f, slot, s->stride);
        s->crc[e] = swl_crc32c(0, slot, s->stride);
        f->size += s->stride;
        if (!st)
            st = swl_qpack_progress(w, s->stride, err);
    }
    if (st)
        return st;
    if (is_finished(w, f->name) ? is_unchanged(w, f)
                                : said && said->note && sscanf(said->note, "%8" SCNx32, &want) == 1 &&
                                      want == check_of_slots(s, *n))
        return SWL_OK;
    *n = 0;
    return hash_anew(f, err);
}

static int32_t slots_there(const swl_qpack_writer *w, const swl_plan_slots *s, const char *name)
{
    const swl_state_file *f = w->state ? swl_state_file_find(w->state, name) : NULL;
    int32_t n = w->plan->c->config.n_experts;

    if (w->placed)
        return n;
    if (!f || f->size != s->stride * (uint64_t)n || !f->done.n || f->done.s[0].begin)
        return 0;
    return (int32_t)(f->done.s[0].end / s->stride);
}

static swl_status save_slots(swl_qpack_writer *w, out_file *f, const swl_plan_slots *s, int32_t n, swl_error *err)
{
    swl_status st = sync_out(w, f, err);

    return st ? st
              : note_progress(w, f->name, s->stride * (uint64_t)w->plan->c->config.n_experts, s->stride * (uint64_t)n,
                              swl_asprintf("%08" PRIx32, check_of_slots(s, n)), err);
}

static swl_status write_missing_slots(swl_qpack_writer *w, out_file *f, swl_plan_slots *s, uint8_t *slots, swl_error *err)
{
    int32_t n = slots_there(w, s, f->name);
    swl_status st = n ? read_slots(w, f, s, slots, &n, err) : SWL_OK;

    if (!st)
        st = out_settle(f, err);
    if (st)
        return st;
    memset(slots, 0, 2 * s->stride); /* the padding stays zero */
    while (n < w->plan->c->config.n_experts && !st) {
        st = write_slot(w, f, s, n, slots + (uint64_t)(n % 2) * s->stride, err);
        n += !st;
        if (!st && save_is_due(w))
            st = save_slots(w, f, s, n, err);
    }
    if (st && w->state && n)
        save_slots(w, f, s, n, NULL);
    return st;
}

static swl_status write_slots(swl_qpack_writer *w, swl_plan_slots *s, const char *name, swl_error *err)
{
    uint8_t *slots = swl_calloc(2, s->stride);
    out_file f;
    swl_status st = slots ? out_resume(&f, w, name, s->stride * (uint64_t)w->plan->c->config.n_experts, err)
                         : swl_fail(err, SWL_E_NOMEM, "out of memory for a slot");

    if (!st)
        st = out_end(&f, w, write_missing_slots(w, &f, s, slots, err), err);
    swl_free(slots);
    return st;
}

/* A file of slots that has only its length. */
static swl_status write_absent(swl_qpack_writer *w, const swl_plan_slots *s, const char *name, swl_error *err)
{
    out_file f;
    swl_status st = out_begin(&f, w, name, err);

    if (st)
        return st;
    f.size = s->stride * (uint64_t)w->plan->c->config.n_experts;
    if (ftruncate(f.fd, (off_t)f.size))
        st = swl_fail_errno(err, f.path, "cannot give %s its length", f.path);
    return out_end(&f, w, st, err);
}

static swl_status make_experts_dir(const swl_qpack_writer *w, swl_error *err)
{
    char *path = swl_path_join(w->dir, "packed_experts");
    swl_status st = SWL_OK;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");
    if (mkdir(path, 0777) && errno != EEXIST)
        st = swl_fail_errno(err, path, "cannot create directory %s", path);
    swl_free(path);
    return st;
}

static swl_status sync_experts_dir(const swl_qpack_writer *w, swl_error *err)
{
    char *path = swl_path_join(w->dir, "packed_experts");
    swl_status st = path ? swl_dir_sync(path, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");

    swl_free(path);
    return st;
}

static swl_status write_text(swl_qpack_writer *w, const char *name, char *text, swl_status st, swl_error *err)
{
    if (!st)
        st = swl_qpack_put(w, name, text, strlen(text), err);
    swl_free(text);
    return st;
}

static swl_status write_experts(swl_qpack_writer *w, swl_error *err)
{
    swl_plan *p = w->plan;
    char *text = NULL, name[64];
    swl_status st = make_experts_dir(w, err);

    for (int32_t i = 0; i < p->c->config.n_layers && !st; i++) {
        snprintf(name, sizeof name, "packed_experts/layer_%02d.bin", i);
        if (p->layers[i].base && w->synthetic && w->synthetic->experts_absent)
            st = write_absent(w, &p->layers[i], name, err);
        else if (p->layers[i].base)
            st = write_slots(w, &p->layers[i], name, err);
    }
    if (!st && p->draft_slots.base)
        st = write_slots(w, &p->draft_slots, "packed_experts/mtp_00.bin", err);
    if (!st) {
        st = swl_qpack_json_layout(p, &text, err);
        st = write_text(w, "packed_experts/layout.json", text, st, err);
    }
    return st ? st : sync_experts_dir(w, err);
}

/* ---- small files --------------------------------------------------------------------------------------------------
 */

/* Tokenizer, template and generation files, and the notices that go with a model. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "ATTRIBUTION.md",
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "NOTICE",
    "NOTICE.txt",
};

static swl_status copy_companion(swl_qpack_writer *w, const char *name, swl_error *err)
{
    char *path = swl_path_join(w->plan->c->dir, name), *data = NULL;
    size_t n;
    swl_status st = SWL_OK;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");
    if (swl_file_exists(path)) { /* follows links; one that leads nowhere counts as missing */
        st = swl_file_load(&data, &n, path, SMALL_BYTES_MAX, err);
        if (!st)
            st = swl_qpack_put(w, name, data, n, err);
    }
    swl_free(data);
    swl_free(path);
    return st;
}

/* What lies beside a GGUF file is not part of it. */
static swl_status write_companions(swl_qpack_writer *w, swl_error *err)
{
    const swl_checkpoint *c = w->plan->c;
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < c->n_made && !st; i++)
        st = swl_qpack_put(w, c->made[i].name, c->made[i].text, strlen(c->made[i].text), err);
    for (size_t i = 0; i < sizeof companions / sizeof companions[0] && !st && c->kind != SWL_CHECKPOINT_GGUF; i++)
        st = copy_companion(w, companions[i], err);
    return st;
}

static swl_status write_small(swl_qpack_writer *w, swl_error *err)
{
    char *text = NULL;
    size_t n;
    swl_status st = swl_qpack_json_config(w->plan, &text, &n, err);

    if (!st)
        st = swl_qpack_put(w, "config.json", text, n, err);
    swl_free(text);
    if (!st)
        st = write_companions(w, err);
    if (!st) {
        st = swl_qpack_json_sidecar(w, &text, err);
        st = write_text(w, "swiftlet.json", text, st, err);
    }
    return st;
}

/* ---- the end ------------------------------------------------------------------------------------------------------
 */

static swl_status digest_hex(const char *text, char hex[65], swl_error *err)
{
    uint8_t digest[EVP_MAX_MD_SIZE];

    if (!EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL))
        return swl_fail(err, SWL_E_FAIL, "libcrypto cannot hash the manifest");
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return SWL_OK;
}

/* hashes.json covers the manifest, which is written after it. */
static swl_status write_manifest(swl_qpack_writer *w, swl_error *err)
{
    char *manifest = NULL, *hashes = NULL, hex[65];
    swl_status st = swl_qpack_json_manifest(w, &manifest, err);

    if (!st && !w->synthetic) {
        st = digest_hex(manifest, hex, err);
        if (!st)
            st = swl_qpack_json_hashes(w, hex, &hashes, err);
        if (!st)
            st = swl_qpack_put(w, "hashes.json", hashes, strlen(hashes), err);
    }
    if (!st)
        st = swl_qpack_put(w, "manifest.json", manifest, strlen(manifest), err);
    swl_free(hashes);
    swl_free(manifest);
    return st;
}

swl_status swl_qpack_write(swl_qpack_writer *w, swl_error *err)
{
    swl_plan *p = w->plan;
    swl_status st;

    w->n_total = p->bytes_total + p->dense.n_bytes + p->draft.n_bytes; /* the dense files are read again for the hash */
    if (w->synthetic)
        w->n_total = w->synthetic->experts_absent ? p->dense.n_bytes : p->bytes_total;
    st = swl_qpack_progress(w, 0, err);
    if (!st && !w->synthetic)
        st = swl_hasher_create(&w->hasher, err);
    if (!st)
        st = write_dense(w, &p->dense, err);
    if (!st && p->mtp)
        st = write_dense(w, &p->draft, err);
    if (!st && p->c->config.n_experts)
        st = write_experts(w, err);
    if (!st)
        st = write_small(w, err);
    return st ? st : write_manifest(w, err);
}

void swl_qpack_writer_deinit(swl_qpack_writer *w)
{
    swl_converter_deinit(&w->cv);
    swl_hasher_free(w->hasher);
    w->hasher = NULL;
    for (int32_t i = 0; i < w->n_files; i++)
        swl_free(w->files[i].name);
    swl_free(w->files);
    w->files = NULL;
    w->n_files = w->n_files_max = 0;
}
