/*
 * pull_raw.c: converts a checkpoint while it arrives. Each shard is one stream from its first byte to its last; what a piece
 * of it becomes goes straight to its place in the container, and nothing else of it is kept.
 *
 *   shard    header | tensor | tensor that is left out | tensor | ...
 *   pieces            one or many (an expert's slice), sorted by where they lie; each is taken in steps (weight.h)
 *
 * A step is hashed when its result is written, so the hash, the offset that the state file names, and the output always agree:
 * a shard goes on at the first byte of the first step that is not there. Once all shards are through, the data files are read
 * back for their checksums, and the rest of the container is written as for a local conversion.
 *
 * The pieces of a GGUF file are rows that follow each other in it; a step is some of them, and becomes rows of all parts of
 * a matrix.
 *
 * FP8, whose scales lie in other places, is stored first and converted from disk; so are all sources when they are to be
 * kept, and GGUF files that a cache has.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "install/gguf_source.h"
#include "install/open_source.h"
#include "install/place.h"
#include "install/qpack_write.h"
#include "install/skeleton.h"

#define HURRY_BYTES (UINT64_C(8) << 20)
#define ROOM_BYTES  (UINT64_C(64) << 20)
#define ROWS_BYTES  (UINT64_C(4) << 20) /* of rows of a GGUF file in a step, at least one row */

/* A stretch of a shard that becomes part of the container. */
typedef struct piece {
    int32_t shard; /* index in the tensor set */
    uint64_t begin, n;
    int32_t out;   /* index of the file */
    int32_t item;  /* of a safetensors file; of slots: the expert */
    uint8_t proj, part;
    int64_t row, n_rows; /* of the weight, in all of its parts; n_rows 0: not of a GGUF file */
} piece;

typedef struct out_file {
    char *name;
    uint64_t size;
    swl_plan_file *dense;  /* or */
    swl_plan_slots *slots;
    int fd;
    bool dirty;
    uint64_t written, hurried;
} out_file;

typedef struct job job;
typedef struct shard {
    job *j;
    const swl_entry *e;
    swl_fetch *fetch;
    const piece *pieces;
    int32_t n_pieces, at_piece;
    uint64_t in_piece;      /* bytes of it that are done */
    swl_weight w;           /* of the piece */
    bool has_w;
    swl_sha256 *sha;        /* of [0, its length): all that is done */
    uint8_t *block;         /* the step that is coming together */
    uint64_t n_block, room;
    bool verified;
    int n_tries;
} shard;

struct job {
    swl_puller *p;
    char *dir; /* the skeleton */
    swl_checkpoint *c;
    swl_plan plan;
    bool planned;
    piece *pieces;
    int32_t n_pieces, room;
    bool *used; /* tensors of the source that have pieces */
    out_file *outs;
    int32_t n_outs;
    shard *shards;
    swl_fetch *fetches;
    int32_t n_shards;
    swl_converter cv;
    shard *current; /* whose block the converter reads */
};

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for a conversion");
}

/* ---- pieces ---------------------------------------------------------------------------------------------------------- */

static bool is_gguf(const job *j)
{
    return j->c->kind == SWL_CHECKPOINT_GGUF;
}

static swl_status keep_piece(job *j, const piece *x, swl_error *err)
{
    if (j->n_pieces == j->room) {
        int32_t room = j->room ? 2 * j->room : 1024;
        piece *p = swl_realloc(j->pieces, (size_t)room, sizeof *p);

        if (!p)
            return no_memory(err);
        j->pieces = p;
        j->room = room;
    }
    j->pieces[j->n_pieces++] = *x;
    return SWL_OK;
}

static swl_status add_piece(job *j, const swl_weight *w, int part, piece x, swl_error *err)
{
    const swl_slice *s = &w->src[part];

    x.shard = s->t->file;
    x.begin = s->t->offset + s->begin;
    x.part = (uint8_t)part;
    swl_weight_steps(w, (swl_part)part, &x.n);
    return keep_piece(j, &x, err);
}

static swl_status add_rows(job *j, const swl_weight *w, piece x, swl_error *err)
{
    const swl_slice *s = &w->src[SWL_PART_WEIGHT];
    swl_gguf_run r = swl_gguf_run_at(j->c, s->t, 0, 1);
    int64_t first = (int64_t)(s->begin / r.row), n;
    uint64_t n_bytes;
    swl_status st = SWL_OK;

    swl_weight_steps(w, SWL_PART_WEIGHT, &n_bytes);
    n = (int64_t)(n_bytes / r.row);
    for (int64_t row = 0; row < n && !st; row += r.n) {
        r = swl_gguf_run_at(j->c, s->t, first + row, n - row);
        x.shard = r.file;
        x.begin = r.begin;
        x.n = r.file_row * (uint64_t)r.n;
        x.row = row;
        x.n_rows = r.n;
        st = keep_piece(j, &x, err);
    }
    return st;
}

static swl_status add_weight(job *j, const swl_weight *w, piece x, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int part = 0; part < swl_weight_n_sources(w) && !st; part++) {
        j->used[w->src[part].t - swl_st_at(j->c->dense, 0)] = true;
        if (!is_gguf(j))
            st = add_piece(j, w, part, x, err);
    }
    return st || !is_gguf(j) ? st : add_rows(j, w, x, err);
}

static swl_status add_out(job *j, const char *name, uint64_t size, swl_plan_file *dense, swl_plan_slots *slots, swl_error *err)
{
    out_file *o = swl_realloc(j->outs, (size_t)j->n_outs + 1, sizeof *o);

    if (!o)
        return no_memory(err);
    j->outs = o;
    o += j->n_outs++;
    *o = (out_file){.name = swl_strdup(name), .size = size, .dense = dense, .slots = slots, .fd = -1};
    return o->name ? SWL_OK : no_memory(err);
}

static swl_status add_dense(job *j, swl_plan_file *f, swl_error *err)
{
    swl_status st = add_out(j, f->name, f->n_bytes, f, NULL, err);

    for (int32_t i = 0; i < f->n_items && !st; i++)
        st = add_weight(j, &f->items[i].w, (piece){.out = j->n_outs - 1, .item = i}, err);
    return st;
}

static swl_status add_slots(job *j, swl_plan_slots *s, const char *name, swl_error *err)
{
    int32_t n = j->c->config.n_experts;
    swl_status st = add_out(j, name, s->stride * (uint64_t)n, NULL, s, err);

    for (int32_t e = 0; e < n && !st; e++)
        for (int proj = 0; proj < SWL_PROJ_COUNT && !st; proj++) {
            swl_weight w;

            st = swl_plan_expert(&j->plan, s, e, (swl_proj)proj, &w, err);
            if (!st)
                st = add_weight(j, &w, (piece){.out = j->n_outs - 1, .item = e, .proj = (uint8_t)proj}, err);
        }
    return st;
}

static int by_place(const void *a, const void *b)
{
    const piece *x = a, *y = b;

    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* *apart: no byte of the source is wanted twice. */
static swl_status list_pieces(job *j, bool *apart, swl_error *err)
{
    swl_plan *p = &j->plan;
    char name[64];
    swl_status st;

    j->used = swl_calloc((size_t)swl_st_count(j->c->dense), sizeof *j->used);
    st = j->used ? add_dense(j, &p->dense, err) : no_memory(err);
    if (!st && p->mtp)
        st = add_dense(j, &p->draft, err);
    for (int32_t i = 0; i < j->c->config.n_layers && !st; i++) {
        snprintf(name, sizeof name, "packed_experts/layer_%02d.bin", (int)i);
        if (p->layers[i].base)
            st = add_slots(j, &p->layers[i], name, err);
    }
    if (!st && p->draft_slots.base)
        st = add_slots(j, &p->draft_slots, "packed_experts/mtp_00.bin", err);
    if (!st)
        qsort(j->pieces, (size_t)j->n_pieces, sizeof *j->pieces, by_place);
    *apart = true;
    for (int32_t i = 1; i < j->n_pieces && !st; i++)
        *apart &= j->pieces[i].shard != j->pieces[i - 1].shard ||
                  j->pieces[i].begin >= j->pieces[i - 1].begin + j->pieces[i - 1].n;
    return st;
}

/* ---- output ----------------------------------------------------------------------------------------------------------- */

static swl_status open_outs(job *j, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < j->n_outs && !st; i++) {
        out_file *o = &j->outs[i];

        st = swl_place_open(&o->fd, j->p->stage.dir, o->name, o->size, err);
        if (!st && o->dense)
            st = swl_file_write_at(o->fd, o->name, 0, o->dense->header, o->dense->n_header, err);
        o->dirty = true;
    }
    return st ? st : swl_place_sync_dirs(j->p->stage.dir, err); /* a state must not speak of a file that a crash takes away */
}

/* Whether the files that an earlier run wrote into are all there. */
static bool outs_are_there(const job *j)
{
    bool all = true;

    for (int32_t i = 0; i < j->n_outs && all; i++) {
        uint64_t size = 0;

        all = swl_place_has(j->p->stage.dir, j->outs[i].name, &size) && size == j->outs[i].size;
    }
    return all;
}

typedef struct target {
    out_file *o;
    const piece *x;
} target;

static uint64_t place_of(const target *t, swl_part part)
{
    const swl_plan_slots *s = t->o->slots;

    if (t->o->dense)
        return t->o->dense->items[t->x->item].offset[part];
    for (int i = 0; i < s->n_sections; i++)
        if (s->sections[i].proj == t->x->proj && s->sections[i].part == part)
            return s->stride * (uint64_t)t->x->item + s->sections[i].offset;
    return 0; /* the plan has made sure that there is one */
}

static swl_status put(void *arg, swl_part part, uint64_t at, const uint8_t *data, uint64_t n, swl_error *err)
{
    target *t = arg;
    swl_status st = swl_file_write_at(t->o->fd, t->o->name, place_of(t, part) + at, data, n, err);

    t->o->dirty = true;
    t->o->written += n;
    if (!st && t->o->written - t->o->hurried >= HURRY_BYTES) {
        swl_place_hurry(t->o->fd, 0, 0);
        t->o->hurried = t->o->written;
    }
    return st;
}

/* ---- a shard passing by ------------------------------------------------------------------------------------------------ */

/* The step is in the block already. */
static void give_block(void *arg, const swl_st_tensor *t, uint64_t begin, uint8_t *dst, uint64_t n)
{
    const job *j = arg;

    (void)t, (void)begin;
    memcpy(dst, j->current->block, n);
}

static swl_status load_weight(shard *s, swl_error *err)
{
    const piece *x = &s->pieces[s->at_piece];
    const out_file *o = &s->j->outs[x->out];
    swl_status st = SWL_OK;

    if (o->dense)
        s->w = o->dense->items[x->item].w;
    else
        st = swl_plan_expert(&s->j->plan, o->slots, x->item, (swl_proj)x->proj, &s->w, err);
    s->has_w = !st;
    return st;
}

static uint64_t file_row(const piece *x)
{
    return x->n / (uint64_t)x->n_rows;
}

/* Bytes of the step that begins at in_piece. */
static uint64_t step_bytes(const shard *s)
{
    const piece *x = &s->pieces[s->at_piece];
    uint64_t step, total;

    if (!x->n_rows)
        step = swl_weight_steps(&s->w, (swl_part)x->part, &total);
    else
        step = file_row(x) > ROWS_BYTES ? file_row(x) : ROWS_BYTES / file_row(x) * file_row(x);
    return x->n - s->in_piece < step ? x->n - s->in_piece : step;
}

/* The rows in the block become rows of each part. */
static swl_status do_rows(const shard *s, target *t, uint64_t n, swl_error *err)
{
    job *j = s->j;
    const piece *x = t->x;
    uint64_t row = (uint64_t)x->row + s->in_piece / file_row(x), n_rows = n / file_row(x);
    swl_status st = SWL_OK;

    swl_gguf_checkpoint_window(j->c, x->shard, x->begin + s->in_piece, s->block, n);
    for (int part = 0; part < swl_weight_n_sources(&s->w) && !st; part++) {
        uint64_t bytes = swl_gguf_run_at(j->c, s->w.src[part].t, 0, 1).row;

        st = swl_weight_step(&j->cv, &s->w, (swl_part)part, row * bytes, n_rows * bytes, put, t, err);
    }
    swl_gguf_checkpoint_window(j->c, x->shard, 0, NULL, 0);
    return st;
}

static swl_status do_step(shard *s, uint64_t n, swl_error *err)
{
    job *j = s->j;
    const piece *x = &s->pieces[s->at_piece];
    target t = {&j->outs[x->out], x};
    swl_status st;

    j->current = s;
    st = x->n_rows ? do_rows(s, &t, n, err)
                   : swl_weight_step(&j->cv, &s->w, (swl_part)x->part, s->in_piece, n, put, &t, err);
    if (st)
        return st;
    swl_sha256_update(s->sha, s->block, n);
    s->n_block = 0;
    s->in_piece += n;
    if (s->in_piece == x->n) {
        s->at_piece++;
        s->in_piece = 0;
        s->has_w = false;
    }
    return SWL_OK;
}

static swl_status fill_step(shard *s, const uint8_t **data, size_t *n, swl_error *err)
{
    swl_status st = s->has_w ? SWL_OK : load_weight(s, err);
    uint64_t want = st ? 0 : step_bytes(s), k;

    if (st)
        return st;
    if (want > s->room) {
        uint8_t *p = swl_realloc(s->block, want, 1);

        if (!p)
            return no_memory(err);
        s->block = p;
        s->room = want;
    }
    k = want - s->n_block < *n ? want - s->n_block : *n;
    memcpy(s->block + s->n_block, *data, k);
    s->n_block += k;
    *data += k;
    *n -= k;
    return s->n_block == want ? do_step(s, want, err) : SWL_OK;
}

/* Bytes between pieces: of the header, of tensors that are left out. */
static void pass_by(shard *s, const uint8_t **data, size_t *n, uint64_t until)
{
    uint64_t left = until - swl_sha256_length(s->sha);
    size_t k = left < *n ? (size_t)left : *n;

    swl_sha256_update(s->sha, *data, k);
    *data += k;
    *n -= k;
}

static swl_status on_bytes(void *arg, uint64_t at, const uint8_t *data, size_t n, swl_error *err)
{
    shard *s = arg;
    size_t all = n;
    swl_status st = SWL_OK;

    (void)at; /* in order, by the contract of ordered files */
    s->j->p->file = s->e->path;
    while (n && !st) {
        uint64_t begin = s->at_piece < s->n_pieces ? s->pieces[s->at_piece].begin : s->e->size;

        if (!s->n_block && swl_sha256_length(s->sha) < begin)
            pass_by(s, &data, &n, begin);
        else
            st = fill_step(s, &data, &n, err);
    }
    return st ? st : swl_puller_bytes(s->j->p, all, err);
}

static swl_status restart(void *arg, swl_error *err)
{
    shard *s = arg;
    uint64_t n = swl_spans_total(&s->fetch->done);

    (void)err;
    s->j->p->done -= n < s->j->p->done ? n : s->j->p->done;
    swl_sha256_reset(s->sha);
    s->at_piece = 0;
    s->in_piece = s->n_block = 0;
    s->has_w = false;
    return SWL_OK;
}

/* ---- state ------------------------------------------------------------------------------------------------------------- */

static swl_status gather(void *arg, swl_error *err)
{
    job *j = arg;
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < j->n_outs && !st; i++) {
        if (j->outs[i].dirty)
            st = swl_place_sync(j->outs[i].fd, j->outs[i].name, err);
        j->outs[i].dirty = j->outs[i].dirty && st;
    }
    for (int32_t i = 0; i < j->n_shards && !st; i++) {
        shard *s = &j->shards[i];
        swl_state_file *f = swl_state_file_get(&j->p->state, s->e->path);

        if (!f)
            return no_memory(err);
        f->size = s->e->size;
        f->digest = s->e->digest[0];
        f->verified = s->verified;
        swl_free(f->note);
        f->note = swl_sha256_save(s->sha);
        swl_spans_clear(&f->done);
        if (!f->note || !swl_spans_add(&f->done, 0, swl_sha256_length(s->sha)))
            return no_memory(err);
    }
    return st;
}

/* Where an earlier run was: the hash goes on from there, and so does the first piece that is not done. */
static swl_status take_over(shard *s, swl_error *err)
{
    const swl_state_file *f = swl_state_file_find(&s->j->p->state, s->e->path);
    uint64_t at;

    if (!f || f->size != s->e->size || !f->note || !swl_sha256_load(s->sha, f->note)) {
        swl_sha256_reset(s->sha);
        return SWL_OK;
    }
    at = swl_sha256_length(s->sha);
    if (at > s->e->size || f->done.n > 1 || (at && (!f->done.n || f->done.s[0].begin || f->done.s[0].end != at))) {
        swl_sha256_reset(s->sha);
        return SWL_OK;
    }
    s->verified = f->verified && at == s->e->size;
    while (s->at_piece < s->n_pieces && s->pieces[s->at_piece].begin + s->pieces[s->at_piece].n <= at)
        s->at_piece++;
    if (s->at_piece < s->n_pieces && s->pieces[s->at_piece].begin < at)
        s->in_piece = at - s->pieces[s->at_piece].begin;
    if (s->in_piece && s->pieces[s->at_piece].n_rows && s->in_piece % file_row(&s->pieces[s->at_piece])) {
        s->at_piece = 0;
        s->in_piece = 0;
        swl_sha256_reset(s->sha);
        return SWL_OK;
    }
    return swl_spans_add(&s->fetch->done, 0, at) ? SWL_OK : no_memory(err);
}

static bool is_of(const job *j, const piece *x, const swl_entry *e)
{
    const char *path = is_gguf(j) ? j->c->source_file(j->c->source, x->shard) : swl_st_path(j->c->dense, x->shard);
    size_t n = strlen(j->dir);

    return !strncmp(path, j->dir, n) && path[n] == '/' && !strcmp(path + n + 1, e->path);
}

static swl_status set_up_shard(job *j, const swl_entry *e, bool goes_on, swl_error *err)
{
    shard *s = &j->shards[j->n_shards];

    *s = (shard){.j = j, .e = e, .fetch = &j->fetches[j->n_shards], .sha = swl_sha256_new()};
    *s->fetch = (swl_fetch){.path = e->path, .size = e->size, .ordered = true, .write = on_bytes, .restart = restart,
                            .arg = s, .base = -1};
    j->n_shards++;
    if (!s->sha)
        return no_memory(err);
    for (int32_t i = 0; i < j->n_pieces; i++)
        if (is_of(j, &j->pieces[i], e)) {
            s->pieces = s->n_pieces ? s->pieces : &j->pieces[i];
            s->n_pieces++;
        } else if (s->n_pieces) {
            break;
        }
    return goes_on ? take_over(s, err) : SWL_OK;
}

static swl_status set_up_shards(job *j, swl_error *err)
{
    const swl_listing *l = &j->p->remote.files;
    bool goes_on = outs_are_there(j);
    swl_status st = SWL_OK;

    j->shards = swl_calloc((size_t)l->n, sizeof *j->shards);
    j->fetches = swl_calloc((size_t)l->n, sizeof *j->fetches);
    if (!j->shards || !j->fetches)
        return no_memory(err);
    for (int32_t i = 0; i < l->n && !st; i++)
        if (swl_skeleton_is_big(&l->e[i]))
            st = set_up_shard(j, &l->e[i], goes_on, err);
    return st;
}

/* ---- the shards ----------------------------------------------------------------------------------------------------------- */

static swl_status check_shard(shard *s, bool *again, swl_error *err)
{
    swl_puller *p = s->j->p;
    swl_digest found = {.kind = SWL_DIGEST_SHA256};

    swl_sha256_end(s->sha, found.hex);
    if (s->e->digest[0].kind == SWL_DIGEST_SHA256 && !swl_digest_equal(&found, &s->e->digest[0])) {
        if (s->n_tries > 1)
            return swl_fail_at(err, SWL_E_CORRUPT, s->e->path, -1,
                               "%s came twice with wrong bytes: the digest is %s, expected %s; nothing of it is used",
                               s->e->path, found.hex, s->e->digest[0].hex);
        if (s->fetch->base >= 0 && s->fetch->base + 1 < p->t.n_bases) {
            p->t.bases[s->fetch->base].dropped = true;
            s->n_tries = 0;
        }
        swl_puller_note(p, SWL_PULL_RETRY, s->e->path, "the bytes do not have the published digest; fetching again");
        restart(s, err);
        swl_spans_clear(&s->fetch->done);
        *again = true;
        return SWL_OK;
    }
    s->verified = true;
    return SWL_OK;
}

static swl_status bring_shards(job *j, swl_error *err)
{
    swl_puller *p = j->p;
    uint64_t done = 0, total = 0;
    bool again = true;
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < j->n_shards; i++) {
        done += swl_spans_total(&j->fetches[i].done);
        total += j->shards[i].e->size;
    }
    swl_puller_phase(p, SWL_PULL_CONVERT, done, total);
    while (again && !st) {
        again = false;
        for (int32_t i = 0; i < j->n_shards; i++)
            j->shards[i].n_tries += !j->shards[i].verified;
        st = swl_transfer_run(&p->t, j->fetches, j->n_shards, err);
        for (int32_t i = 0; i < j->n_shards && !st; i++)
            if (!j->shards[i].verified)
                st = check_shard(&j->shards[i], &again, err);
    }
    if (!st)
        st = swl_puller_save(p, err);
    else
        swl_puller_save(p, NULL); /* what is there stays, whatever happened */
    return st;
}

/* ---- the rest of the container --------------------------------------------------------------------------------------------- */

static bool on_written(void *arg, uint64_t done, uint64_t total)
{
    swl_puller *p = arg;

    p->total = total;
    p->done = done;
    return swl_puller_bytes(p, 0, NULL) == SWL_OK;
}

/* With `placed` the data files are there; otherwise they are made from the skeleton, which then holds all of its bytes. */
static swl_status write_rest(job *j, swl_state *state, bool placed, swl_error *err)
{
    swl_puller *p = j->p;
    swl_qpack_source source = {.id = (char *)swl_source_label(&p->remote.source), .commit = p->remote.commit};
    swl_qpack_writer w = {.plan = &j->plan, .dir = p->stage.dir, .source = &source, .state = state, .placed = placed,
                          .on_progress = on_written, .arg = p, .cv = {.st = j->c->dense}};
    swl_status st;

    swl_puller_phase(p, placed ? SWL_PULL_VERIFY : SWL_PULL_CONVERT, 0, 0);
    st = swl_threads_create(&w.cv.threads, swl_cpus_available(), err);
    if (!st)
        st = swl_qpack_write(&w, err);
    swl_threads_free(w.cv.threads);
    swl_qpack_writer_deinit(&w);
    return st;
}

static bool describe(const job *j, swl_state *s)
{
    const swl_source *src = &j->p->remote.source;
    bool hub = src->kind == SWL_SOURCE_HUB;

    return swl_state_describe(s, hub ? "hub" : "mirror", swl_source_label(src), j->p->remote.commit, hub ? src->endpoint : NULL,
                              swl_puller_record(j->p, swl_conversion_record(&j->p->asked, SWL_CHECKPOINT_GGUF)));
}

/* Goes on with the stage when it is of the same conversion, else empties it. */
static swl_status match_state(job *j, swl_error *err)
{
    swl_puller *p = j->p;
    swl_state now = {0};
    swl_status st = SWL_OK;

    if (!describe(j, &now))
        return no_memory(err);
    if (!swl_state_same(&now, &p->state) || p->state.complete) {
        if (p->state.kind && !p->state.complete && !p->o->dry_run)
            swl_puller_note(p, SWL_PULL_NOTE, NULL, "what an earlier run left is of another commit or other options; it is dropped");
        if (!p->o->dry_run)
            st = swl_stage_clear(&p->stage, err);
        swl_state_deinit(&p->state);
        p->state = now;
        return st || p->o->dry_run ? st : swl_state_save(&p->state, p->stage.dir, err);
    }
    swl_state_deinit(&now);
    return SWL_OK;
}

static int32_t count_left_out(const job *j)
{
    int32_t n = 0;

    for (int32_t i = 0; j->used && i < swl_st_count(j->c->dense); i++)
        n += !j->used[i];
    return n;
}

/* Bytes of a file of the source that are there, or that have become what they become. */
static uint64_t bytes_done(const swl_state *s, const swl_entry *e)
{
    const swl_state_file *f = swl_state_file_find(s, e->path);

    return f && f->size == e->size ? swl_spans_total(&f->done) : 0;
}

static const char *kind_name(swl_checkpoint_kind k)
{
    return k == SWL_CHECKPOINT_GGUF ? "gguf" : k == SWL_CHECKPOINT_MLX ? "mlx" : "hf";
}

static swl_status show_plan(job *j, bool stored, swl_error *err)
{
    swl_puller *p = j->p;
    const swl_listing *l = &p->remote.files;
    swl_state in_store = {0};
    swl_pull_plan plan = {.kind = kind_name(j->c->kind), .n_files = l->n};
    swl_pull_file *files = swl_calloc((size_t)l->n + 1, sizeof *files);
    char(*digests)[SWL_DIGEST_TEXT] = swl_calloc((size_t)l->n + 1, SWL_DIGEST_TEXT);
    swl_status st = files && digests ? SWL_OK : no_memory(err);

    if (stored && swl_state_load(&in_store, j->dir, NULL))
        in_store = (swl_state){0}; /* nothing is there yet */
    for (int32_t i = 0; i < l->n && !st; i++) {
        const swl_entry *e = &l->e[i];
        uint64_t have = bytes_done(stored ? &in_store : &p->state, e);

        if (e->digest[0].kind)
            swl_digest_print(&e->digest[0], digests[i]);
        files[i] = (swl_pull_file){e->path, e->size, have, digests[i],
                                   !swl_skeleton_is_big(e) ? SWL_PULL_FRESH : SWL_PULL_CONVERTED};
        plan.bytes_total += e->size;
        plan.bytes_left += e->size - have;
    }
    plan.files = files;
    plan.result_bytes = j->plan.bytes_total;
    plan.dense_bytes = j->plan.dense.n_bytes;
    plan.n_left_out = count_left_out(j);
    plan.disk_needed = plan.result_bytes + (stored ? plan.bytes_left : 0);
    for (int32_t i = 0; i < j->n_outs; i++) {
        uint64_t have = swl_place_allocated(p->stage.dir, j->outs[i].name);

        plan.disk_needed -= have < j->outs[i].size ? have : j->outs[i].size;
    }
    if (!st)
        st = swl_puller_show_plan(p, &plan, err);
    swl_state_deinit(&in_store);
    swl_free(digests);
    swl_free(files);
    return st;
}

static void judge_checks(const job *j)
{
    const char *weakest = "sha256";

    for (int32_t i = 0; i < j->p->remote.files.n; i++) {
        const swl_digest *d = &j->p->remote.files.e[i].digest[0];

        if (d->kind == SWL_DIGEST_NONE)
            weakest = "size";
        else if (d->kind == SWL_DIGEST_GIT_SHA1 && strcmp(weakest, "size"))
            weakest = "git-sha1";
    }
    snprintf(j->p->result->verified_by, sizeof j->p->result->verified_by, "%s", weakest);
    if (!strcmp(weakest, "size"))
        swl_puller_note(j->p, SWL_PULL_NOTE, NULL, "the source publishes no digests: only lengths can be checked");
}

/* ---- the two ways -------------------------------------------------------------------------------------------------------------- */

static swl_status stream(job *j, swl_state *final, swl_error *err)
{
    swl_puller *p = j->p;
    swl_status st = open_outs(j, err);

    j->cv = (swl_converter){.st = j->c->dense, .origin = is_gguf(j) ? NULL : give_block, .origin_arg = j};
    p->gather = gather;
    p->gather_arg = j;
    if (!st)
        st = swl_threads_create(&j->cv.threads, swl_cpus_available(), err);
    if (!st)
        st = bring_shards(j, err);
    p->gather = NULL;
    swl_threads_free(j->cv.threads);
    swl_converter_deinit(&j->cv);
    return st ? st : write_rest(j, final, true, err);
}

/* Everything into the skeleton, with a state of its own, and from there as from any directory. */
static swl_status store(job *j, swl_state *final, swl_error *err)
{
    swl_puller *p = j->p;
    swl_state own = p->state;
    swl_status st;

    p->dir = j->dir;
    p->state = (swl_state){0};
    if (swl_state_load(&p->state, j->dir, NULL) && !describe(j, &p->state))
        return no_memory(err);
    st = swl_pull_files(p, err);
    swl_state_deinit(&p->state);
    p->state = own;
    p->dir = p->stage.dir;
    if (st)
        return st;
    swl_state_deinit(final);
    *final = own; /* the conversion goes on in the state of the stage */
    p->state = (swl_state){0};
    return write_rest(j, final, false, err);
}

static bool is_cached(const swl_puller *p)
{
    bool all = true;

    for (int32_t i = 0; i < p->remote.files.n && all; i++) {
        char *path = swl_puller_find_cached(p, &p->remote.files.e[i]);

        all = path != NULL;
        swl_free(path);
    }
    return all;
}

static swl_status plan(job *j, bool *stored, swl_error *err)
{
    swl_puller *p = j->p;
    bool apart = true;
    swl_status st = match_state(j, err);
    char *path = p->remote.gguf ? swl_path_join(j->dir, p->remote.gguf) : swl_strdup(j->dir);

    if (!path)
        st = no_memory(err);
    if (!st)
        st = swl_skeleton_make(p, j->dir, err);
    if (!st)
        st = swl_open_source(&j->c, path, p->asked.exact_scales, err);
    swl_free(path);
    if (!st)
        st = swl_plan_make(&j->plan, j->c, p->asked.rule, err);
    j->planned = !st;
    *stored = !st && (p->o->keep_source || (is_gguf(j) ? is_cached(p) : j->c->source != NULL));
    if (!st && !*stored)
        st = list_pieces(j, &apart, err);
    *stored |= !apart;
    if (!st && !*stored)
        st = set_up_shards(j, err);
    return st ? st : show_plan(j, *stored, err);
}

static void tear_down(job *j)
{
    for (int32_t i = 0; i < j->n_shards; i++) {
        swl_sha256_free(j->shards[i].sha);
        swl_free(j->shards[i].block);
        swl_fetch_deinit(&j->fetches[i]);
    }
    swl_free(j->shards);
    swl_free(j->fetches);
    for (int32_t i = 0; i < j->n_outs; i++) {
        swl_file_close(j->outs[i].fd);
        swl_free(j->outs[i].name);
    }
    swl_free(j->outs);
    swl_free(j->pieces);
    swl_free(j->used);
    if (j->planned)
        swl_plan_deinit(&j->plan);
    swl_checkpoint_close(j->c);
    swl_free(j->dir);
}

/* The record says what was done: of a source that was quantised already nothing was. */
static swl_status record_as_planned(const job *j, swl_error *err)
{
    const swl_conversion c = {j->plan.rule, j->p->asked.exact_scales};
    json_t *options = swl_puller_record(j->p, swl_conversion_record(&c, j->c->kind));

    if (!options)
        return no_memory(err);
    json_decref(j->p->state.options);
    j->p->state.options = options;
    return SWL_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Whether the stage holds the result of this very conversion, whose record says what was done and not what was asked for. */
static bool is_of_this(const job *j, const swl_state *now)
{
    const swl_state *s = &j->p->state;

    return same_text(now->kind, s->kind) && same_text(now->source, s->source) && same_text(now->commit, s->commit) &&
           swl_conversion_matches(&j->p->asked, s->options) && (!j->p->o->keep_source || swl_dir_exists(j->dir));
}

/* A run that was ended between its last byte and the new name left everything: *is_done when it is all as it was written. */
static swl_status look_for_result(job *j, const swl_state *now, bool *is_done, swl_error *err)
{
    swl_puller *p = j->p;
    uint64_t total = 0;
    swl_status st = SWL_OK;

    *is_done = p->state.complete && !p->o->dry_run && p->state.n_files && is_of_this(j, now);
    for (int32_t i = 0; i < p->state.n_files; i++)
        total += p->state.files[i].size;
    if (*is_done) {
        swl_puller_phase(p, SWL_PULL_VERIFY, 0, total);
        p->result->result_bytes = total;
    }
    for (int32_t i = 0; i < p->state.n_files && *is_done && !st; i++) {
        const swl_state_file *f = &p->state.files[i];
        swl_digest found;
        uint64_t size = 0;
        char *path = swl_path_join(p->stage.dir, f->path);

        *is_done = swl_place_has(p->stage.dir, f->path, &size) && size == f->size && f->digest.kind;
        if (!path)
            st = no_memory(err);
        else if (*is_done)
            st = swl_digest_file(path, &f->digest.kind, &found, 1, swl_puller_bytes, p, err);
        *is_done = *is_done && !st && swl_digest_equal(&found, &f->digest);
        swl_free(path);
    }
    return st;
}

swl_status swl_pull_raw(swl_puller *p, swl_error *err)
{
    job j = {.p = p, .dir = swl_path_join(p->stage.dir, SWL_SKELETON)};
    swl_state final = {0};
    bool stored = false, is_done = false;
    swl_status st = j.dir && describe(&j, &final) ? look_for_result(&j, &final, &is_done, err) : no_memory(err);

    if (!st && !is_done)
        st = plan(&j, &stored, err);
    if (!st)
        judge_checks(&j);
    if (st || is_done) {
        swl_state_deinit(&final);
        tear_down(&j);
        return st;
    }
    if (!st && !p->o->dry_run)
        st = stored ? store(&j, &final, err) : stream(&j, &final, err);
    if (!st && !p->o->dry_run) { /* the shards are no files of the result */
        swl_state_deinit(&p->state);
        p->state = final;
        final = (swl_state){0};
        st = record_as_planned(&j, err);
    }
    swl_state_deinit(&final);
    tear_down(&j);
    return st;
}
