/* skeleton.c: see skeleton.h. Headers come in two rounds: the word that says how long a header is, then the header. */
#include "install/skeleton.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "format/gguf.h"
#include "format/safetensors_header.h"
#include "install/gguf_pick.h"
#include "install/place.h"

#define SMALL_BYTES_MAX (UINT64_C(64) << 20)
#define NORM_BYTES_MAX  (UINT64_C(1) << 20)
#define GGUF_BYTES      (UINT64_C(4) << 20) /* of a GGUF file at first */
#define GGUF_BYTES_MAX  (UINT64_C(512) << 20)

typedef struct bone {
    swl_puller *p;
    const swl_entry *e;
    int fd;
} bone;

typedef struct bones {
    swl_puller *p;
    const char *dir;
    bone *b;
    swl_fetch *f;
    int32_t n;
} bones;

bool swl_skeleton_is_shard(const swl_entry *e)
{
    size_t n = strlen(e->path);

    return n > 12 && !strcmp(e->path + n - 12, ".safetensors");
}

bool swl_skeleton_is_big(const swl_entry *e)
{
    return swl_skeleton_is_shard(e) || swl_gguf_is_name(e->path);
}

static swl_status write_bone(void *arg, uint64_t at, const uint8_t *data, size_t n, swl_error *err)
{
    bone *b = arg;
    swl_status st = swl_file_write_at(b->fd, b->e->path, at, data, n, err);

    return st ? st : swl_puller_tick(b->p, err);
}

static swl_status open_bones(bones *s, swl_error *err)
{
    const swl_listing *l = &s->p->remote.files;
    swl_status st = SWL_OK;

    s->b = swl_calloc((size_t)l->n + 1, sizeof *s->b);
    s->f = swl_calloc((size_t)l->n + 1, sizeof *s->f);
    if (!s->b || !s->f)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    for (int32_t i = 0; i < l->n && !st; i++) {
        const swl_entry *e = &l->e[i];

        if (!swl_skeleton_is_big(e) && e->size > SMALL_BYTES_MAX)
            st = swl_fail_at(err, SWL_E_CORRUPT, e->path, -1, "%s is too large for what it is", e->path);
        s->b[s->n] = (bone){.p = s->p, .e = e, .fd = -1};
        s->f[s->n] = (swl_fetch){.path = e->path, .size = e->size, .write = write_bone, .arg = &s->b[s->n], .base = -1};
        if (!st)
            st = swl_place_open_hole(&s->b[s->n].fd, s->dir, e->path, e->size, err);
        s->n++;
    }
    return st;
}

/* Marks [from, to) of a shard as all that is to be fetched. */
static bool only(swl_fetch *f, uint64_t from, uint64_t to)
{
    swl_spans_clear(&f->done);
    return swl_spans_add(&f->done, 0, from) && swl_spans_add(&f->done, to, f->size);
}

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for a header");
}

/* Of a GGUF file, once so many pieces of its header are there. */
static uint64_t gguf_bytes(const swl_fetch *f, int n_pieces)
{
    uint64_t n = GGUF_BYTES << 2 * n_pieces;

    n = n < GGUF_BYTES_MAX ? n : GGUF_BYTES_MAX;
    return n < f->size ? n : f->size;
}

/* Round one: small files, and the first eight bytes of shards, or more of GGUF files. */
static swl_status fetch_words(bones *s, swl_error *err)
{
    for (int32_t i = 0; i < s->n; i++)
        if (swl_skeleton_is_shard(s->b[i].e)) {
            if (s->f[i].size < SWL_ST_LENGTH_BYTES)
                return swl_fail_at(err, SWL_E_CORRUPT, s->f[i].path, -1, "%s is too short for a safetensors file",
                                   s->f[i].path);
            if (!only(&s->f[i], 0, SWL_ST_LENGTH_BYTES))
                return no_memory(err);
        } else if (swl_gguf_is_name(s->f[i].path) && !only(&s->f[i], 0, gguf_bytes(&s->f[i], 0))) {
            return no_memory(err);
        }
    return swl_transfer_run(&s->p->t, s->f, s->n, err);
}

/* Whether n bytes are less than a GGUF file's header. What is wrong with it is said when the file is opened. */
static swl_status look_at_gguf(const bone *b, uint64_t n, bool *more, swl_error *err)
{
    uint8_t *bytes = swl_calloc(n, 1);
    swl_gguf *g = NULL;
    swl_status st = bytes ? swl_file_read_at(b->fd, b->e->path, 0, bytes, n, err) : no_memory(err);

    *more = false;
    if (!st)
        swl_gguf_parse(&g, bytes, n, b->e->size, b->e->path, more, NULL);
    swl_gguf_close(g);
    swl_free(bytes);
    return st;
}

/* Nothing says how long a header of GGUF is: it comes in growing pieces until it is whole. */
static swl_status fetch_gguf_headers(bones *s, swl_error *err)
{
    bool again = true;
    swl_status st = SWL_OK;

    for (int round = 0; again && !st; round++) {
        again = false;
        for (int32_t i = 0; i < s->n && !st; i++) {
            uint64_t have = gguf_bytes(&s->f[i], round), want = gguf_bytes(&s->f[i], round + 1);
            bool more = false;

            if (!swl_gguf_is_name(s->f[i].path) || have == want)
                continue;
            st = look_at_gguf(&s->b[i], have, &more, err);
            if (!st && !only(&s->f[i], more ? have : s->f[i].size, more ? want : s->f[i].size))
                st = no_memory(err);
            again |= more;
        }
        if (again && !st)
            st = swl_transfer_run(&s->p->t, s->f, s->n, err);
    }
    return st;
}

static swl_status fetch_headers(bones *s, swl_error *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        swl_st_header_ref h = {.path = s->f[i].path};
        uint8_t word[SWL_ST_LENGTH_BYTES];
        uint64_t n = 0;
        swl_status st;

        if (!swl_skeleton_is_shard(s->b[i].e))
            continue;
        st = swl_file_read_at(s->b[i].fd, s->f[i].path, 0, word, sizeof word, err);
        if (!st)
            st = swl_st_header_locate(&h, &n, word, s->f[i].size, err);
        if (st)
            return st;
        if (!only(&s->f[i], SWL_ST_LENGTH_BYTES, SWL_ST_LENGTH_BYTES + n))
            return no_memory(err);
    }
    return swl_transfer_run(&s->p->t, s->f, s->n, err);
}

/* The norms of a draft head, by whose values the plan tells its convention (repack_plan.c). */
static swl_status fetch_norms(bones *s, swl_error *err)
{
    swl_st *set;
    bool any = false;
    swl_status st = swl_st_open(&set, s->dir, err);

    if (st)
        return st;
    for (int32_t i = 0; i < s->n; i++)
        if (!only(&s->f[i], s->f[i].size, s->f[i].size))
            st = no_memory(err);
    for (int32_t i = 0; i < swl_st_count(set) && !st; i++) {
        const swl_st_tensor *t = swl_st_at(set, i);
        const char *path = strrchr(swl_st_path(set, t->file), '/') + 1;

        if (!strstr(t->name, "mtp.") || !strstr(t->name, "norm") || t->size > NORM_BYTES_MAX)
            continue;
        for (int32_t k = 0; k < s->n; k++)
            if (!strcmp(s->f[k].path, path)) {
                swl_spans rest = {0}; /* what was marked, without this tensor */
                uint64_t from = t->offset, to = t->offset + t->size;

                for (int32_t m = 0; m < s->f[k].done.n && !st; m++) {
                    swl_span x = s->f[k].done.s[m];

                    if (!swl_spans_add(&rest, x.begin, x.end < from ? x.end : from) ||
                        !swl_spans_add(&rest, x.begin > to ? x.begin : to, x.end))
                        st = no_memory(err);
                }
                swl_spans_free(&s->f[k].done);
                s->f[k].done = rest;
                any = true;
            }
    }
    swl_st_close(set);
    return st || !any ? st : swl_transfer_run(&s->p->t, s->f, s->n, err);
}

static swl_status check_small(bones *s, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < s->n && !st; i++) {
        const swl_entry *e = s->b[i].e;
        swl_digest found;
        char *path;

        if (swl_skeleton_is_big(e) || !e->digest[0].kind)
            continue;
        path = swl_path_join(s->dir, e->path);
        st = path ? swl_digest_file(path, &e->digest[0].kind, &found, 1, NULL, NULL, err) : no_memory(err);
        swl_free(path);
        if (!st && !swl_digest_equal(&found, &e->digest[0]))
            st = swl_fail_at(err, SWL_E_CORRUPT, e->path, -1, "%s: the digest is %s, expected %s", e->path, found.hex,
                             e->digest[0].hex);
    }
    return st;
}

swl_status swl_skeleton_make(swl_puller *p, const char *dir, swl_error *err)
{
    bones s = {.p = p, .dir = dir};
    swl_status st = SWL_OK;

    if (mkdir(dir, 0777) && !swl_dir_exists(dir))
        st = swl_fail_errno(err, dir, "cannot create %s", dir);
    if (!st)
        st = open_bones(&s, err);
    if (!st)
        st = fetch_words(&s, err);
    if (!st)
        st = check_small(&s, err);
    if (!st && p->remote.gguf)
        st = fetch_gguf_headers(&s, err);
    if (!st && !p->remote.gguf)
        st = fetch_headers(&s, err);
    if (!st && !p->remote.gguf)
        st = fetch_norms(&s, err);
    for (int32_t i = 0; i < s.n; i++) {
        swl_file_close(s.b[i].fd);
        swl_fetch_deinit(&s.f[i]);
    }
    swl_free(s.b);
    swl_free(s.f);
    return st;
}
