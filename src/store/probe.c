/*
 * probe.c: a few reads of experts in each way that this container allows, in short turns. Figures of one turn vary by a
 * third on a shared machine, so the best of two turns counts, and the usual way is left only for one that is clearly faster;
 * for buffered reads only where direct ones are crippled, because those leave the processors and the page cache alone.
 *
 * Usual are direct reads by io_uring, where there is one: no thread of it takes a processor from the team, and a read is on its
 * way at once also when all of them compute. Where nothing is computed threads were ahead, because each takes the checksums of
 * its own reads; where something is they are not (docs/expert-store.md).
 */
#define _GNU_SOURCE
#include "store/probe.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "store/files.h"

enum { N_READS = 8, N_TURNS = 2, CACHE_BYTES_MAX = 4096 };

#define PROBE_FROM   (UINT64_C(256) << 20) /* smaller containers are not worth it: they are soon in memory */
#define PROBE_BYTES  (UINT64_C(16) << 20)  /* per turn of a way */
#define PROBE_TIME_S 0.1                   /* likewise; a slow drive sees fewer reads */
#define CLEARLY      1.25
#define CRIPPLED     2.0

typedef struct way {
    const char *backend;
    bool direct;
    int32_t depth;
} way;

static const way ways[] = {{"uring", true, 16}, {"uring", true, 4}, {"threads", true, 8}, {"threads", false, 8}};

/* ---- what the container is like ----------------------------------------------------------------------------------- */

static bool aligned(const swl_store_config *c)
{
    int64_t j;
    int32_t i;

    for (i = 0; i < c->n_layers; i++)
        for (j = 0; j < (int64_t)c->layers[i].n_experts * c->layers[i].n_ranges; j++) {
            const swl_range *r = &c->layers[i].ranges[j];

            if ((r->offset | r->size | r->dst) % SWL_IO_ALIGN)
                return false;
        }
    return true;
}

static uint64_t experts_bytes(const swl_store_config *c)
{
    uint64_t n = 0;
    int32_t i;

    for (i = 0; i < c->n_layers; i++)
        n += c->layers[i].slot_bytes * (uint64_t)c->layers[i].n_experts;
    return n;
}

static bool has_sums(const swl_store_config *c)
{
    int32_t i;

    for (i = 0; i < c->n_layers && c->verify != SWL_STORE_VERIFY_NEVER; i++)
        if (c->layers[i].crc32c)
            return true;
    return false;
}

/* ---- measuring ---------------------------------------------------------------------------------------------------- */

typedef struct probe {
    const swl_store_config *c;
    uint64_t random;
    uint64_t size;             /* of the largest range */
    uint8_t *mem;              /* SWL_IO_DEPTH_MAX would be too much: [16][size] */
    uint64_t mem_bytes;
    bool sums;                 /* take checksums too, as loading does */
    _Atomic uint32_t sum;      /* of them all: used, so that they are not left out */
} probe;

static const swl_range *random_range(probe *p)
{
    const swl_store_layer *l;

    do {
        p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        l = &p->c->layers[(p->random >> 33) % (uint64_t)p->c->n_layers];
    } while (!l->n_experts);
    return &l->ranges[(p->random >> 40) % ((uint64_t)l->n_experts * (uint64_t)l->n_ranges)];
}

static void take_sum(swl_io_read *r)
{
    probe *p = r->owner;

    atomic_fetch_xor(&p->sum, swl_crc32c(0, r->dst, r->done));
}

static void queue_read(probe *p, const swl_files *f, swl_io_read *r, bool direct, swl_io_list *list)
{
    const swl_range *range = random_range(p);
    uint8_t *dst = r->dst;

    if (!direct)
        swl_files_drop(f->buffered[range->file], range->offset, range->size);
    *r = (swl_io_read){.fd = direct ? f->direct[range->file] : f->buffered[range->file], .direct = direct,
                       .offset = range->offset, .size = range->size, .need = range->size, .dst = dst,
                       .arrived = p->sums ? take_sum : NULL, .owner = p};
    swl_io_push(list, r);
}

/* Bytes per second of N reads; 0 when this way does not work. */
static double run_way(probe *p, swl_io *io, const swl_files *f, const way *w)
{
    swl_io_read reads[16], *out[16];
    swl_io_list list = {0};
    double begin = swl_seconds(), seconds;
    uint64_t bytes = 0, queued = 0;
    int32_t i, n, n_left = 0, n_reads = 0;
    bool failed = false;

    for (i = 0; i < w->depth; i++, n_left++) {
        reads[i].dst = p->mem + (uint64_t)i * p->size;
        queue_read(p, f, &reads[i], w->direct, &list);
        queued += reads[i].size;
    }
    io->ops->submit(io, &list);
    while (n_left) {
        n = io->ops->wait(io, out, 16, true);
        for (i = 0; i < n; i++, n_left--) {
            failed |= out[i]->error != 0;
            bytes += out[i]->done;
            n_reads++;
            if (failed || (n_reads + n_left > N_READS && queued > PROBE_BYTES) || swl_seconds() - begin > PROBE_TIME_S)
                continue;
            queue_read(p, f, out[i], w->direct, &list);
            queued += out[i]->size;
            n_left++;
        }
        if (list.head)
            io->ops->submit(io, &list);
    }
    for (i = 0; i < w->depth && !w->direct; i++)
        swl_files_drop(reads[i].fd, reads[i].offset, reads[i].size);
    seconds = swl_seconds() - begin;
    return failed || seconds <= 0.0 ? 0.0 : (double)bytes / seconds;
}

static double measure(probe *p, const way *w)
{
    swl_files f;
    swl_io *io;
    double speed = 0.0;

    if (swl_files_open(&f, p->c->fds, p->c->paths, p->c->n_files, w->direct, NULL))
        return 0.0;
    if (!swl_io_open(&io, w->backend, w->depth, NULL)) {
        if (!w->direct || f.direct[0] >= 0)
            speed = run_way(p, io, &f, w);
        swl_io_close(io);
    }
    swl_files_close(&f);
    return speed;
}

static bool fits(const way *w, const swl_io_wish *wish)
{
    return (!wish->backend || !strcmp(wish->backend, w->backend)) &&
           (wish->direct == SWL_DIRECT_AUTO || (wish->direct == SWL_DIRECT_ON) == w->direct);
}

static bool measure_all(swl_io_choice *out, const swl_io_wish *wish, const swl_store_config *c)
{
    probe p = {.c = c, .random = (uint64_t)(swl_seconds() * 1e9), .sums = has_sums(c)};
    enum { N_WAYS = sizeof ways / sizeof *ways };
    double speed[N_WAYS] = {0}, best = 0.0, s;
    int32_t i, k, turn;
    int64_t j;

    for (i = 0; i < c->n_layers; i++)
        for (j = 0; j < (int64_t)c->layers[i].n_experts * c->layers[i].n_ranges; j++)
            if (c->layers[i].ranges[j].size > p.size)
                p.size = c->layers[i].ranges[j].size;
    p.mem_bytes = p.size * 16;
    p.mem = swl_big_alloc(p.mem_bytes);
    for (turn = 0; p.mem && turn < N_TURNS; turn++)
        for (k = 0; k < N_WAYS; k++) {
            s = fits(&ways[k], wish) ? measure(&p, &ways[k]) : 0.0;
            speed[k] = s > speed[k] ? s : speed[k];
        }
    for (k = 0; k < N_WAYS; k++) {
        if (speed[k] <= best * (ways[k].direct ? CLEARLY : CRIPPLED))
            continue;
        best = speed[k];
        snprintf(out->backend, sizeof out->backend, "%s", ways[k].backend);
        out->direct = ways[k].direct;
        out->depth = ways[k].depth;
        out->gb_per_s = speed[k] * 1e-9;
    }
    swl_big_free(p.mem, p.mem_bytes);
    return best > 0.0;
}

/* ---- remembering -------------------------------------------------------------------------------------------------- */

/* One line: swiftlet-io 3 KEY BACKEND direct|buffered DEPTH GB/s */
static bool recall(swl_io_choice *out, const swl_io_wish *wish)
{
    char *text = NULL, key[129], mode[16], end;
    swl_io_choice c = {.remembered = true};
    bool ok;

    if (!wish->cache_path || !wish->cache_key || swl_file_load(&text, NULL, wish->cache_path, CACHE_BYTES_MAX, NULL))
        return false;
    ok = sscanf(text, "swiftlet-io 3 %128s %15s %15s %d %lf%c", key, c.backend, mode, &c.depth, &c.gb_per_s, &end) == 6 &&
         end == '\n' && !strcmp(key, wish->cache_key) && c.depth >= 1 && c.depth <= SWL_IO_DEPTH_MAX &&
         (!strcmp(c.backend, "uring") || !strcmp(c.backend, "threads")) &&
         (!strcmp(mode, "direct") || !strcmp(mode, "buffered"));
    swl_free(text);
    c.direct = !strcmp(mode, "direct");
    if (ok && fits(&(way){c.backend, c.direct, c.depth}, wish)) {
        *out = c;
        return true;
    }
    return false;
}

/* A file that cannot be written costs a probe the next time, no more. */
static void remember(const swl_io_choice *c, const swl_io_wish *wish)
{
    char *text;

    if (!wish->cache_path || !wish->cache_key)
        return;
    text = swl_asprintf("swiftlet-io 3 %s %s %s %d %.3f\n", wish->cache_key, c->backend, c->direct ? "direct" : "buffered",
                        c->depth, c->gb_per_s);
    if (text)
        swl_file_save(wish->cache_path, text, strlen(text), NULL);
    swl_free(text);
}

/* ---- choosing ----------------------------------------------------------------------------------------------------- */

/* Buffered reads are copied by the processor: by several threads, then. */
static void usual(swl_io_choice *out, const swl_io_wish *wish, bool can_direct)
{
    swl_io *io = NULL;

    out->direct = wish->direct == SWL_DIRECT_ON || (wish->direct == SWL_DIRECT_AUTO && can_direct);
    if (wish->backend)
        snprintf(out->backend, sizeof out->backend, "%s", wish->backend);
    else if (out->direct && !swl_io_open(&io, "uring", 1, NULL))
        snprintf(out->backend, sizeof out->backend, "uring");
    else
        snprintf(out->backend, sizeof out->backend, "threads");
    swl_io_close(io);
    out->depth = !strcmp(out->backend, "threads") ? 8 : SWL_IO_DEPTH_DEFAULT;
}

/* Some file systems open a file so and then refuse to read. */
static bool reads_direct(int fd, uint64_t offset)
{
    void *mem = swl_big_alloc(SWL_IO_ALIGN);
    bool ok = mem && pread(fd, mem, SWL_IO_ALIGN, (off_t)offset) == SWL_IO_ALIGN;

    swl_big_free(mem, SWL_IO_ALIGN);
    return ok;
}

static bool opens_direct(const swl_store_config *c)
{
    const swl_range *r = NULL;
    swl_files f;
    int32_t i;
    bool ok;

    for (i = 0; i < c->n_layers && !r; i++)
        if (c->layers[i].n_experts)
            r = c->layers[i].ranges;
    if (!r || swl_files_open(&f, c->fds, c->paths, c->n_files, true, NULL))
        return false;
    ok = f.direct[r->file] >= 0 && reads_direct(f.direct[r->file], r->offset);
    swl_files_close(&f);
    return ok;
}

swl_status swl_io_choose(swl_io_choice *out, const swl_io_wish *wish, const swl_store_config *c, swl_error *err)
{
    bool can_direct = aligned(c) && opens_direct(c), worth = !wish->no_probe && can_direct && experts_bytes(c) >= PROBE_FROM;

    memset(out, 0, sizeof *out);
    if (wish->depth < 0 || wish->depth > SWL_IO_DEPTH_MAX)
        return swl_fail(err, SWL_E_ARG, "I/O: queue depth %d, expected 1 to %d", wish->depth, SWL_IO_DEPTH_MAX);
    if (wish->direct == SWL_DIRECT_ON && !can_direct)
        return swl_fail(err, SWL_E_UNSUPPORTED, "I/O: direct reads were asked for, but %s",
                        aligned(c) ? "the file system does not have them" : "this container's experts are not aligned");
    if (!worth || !recall(out, wish)) {
        usual(out, wish, can_direct);
        if (worth && measure_all(out, wish, c))
            remember(out, wish);
    }
    if (wish->depth)
        out->depth = wish->depth;
    return SWL_OK;
}
