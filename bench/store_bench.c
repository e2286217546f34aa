/*
 * store_bench.c: the expert store alone: made-up routes through a pool, nothing computed, against bare random reads of the
 * same size and depth from the same files in turn. Shows what the store adds to the drive's own time.
 *
 * usage: store_bench CONTAINER [--slots N] [--tokens N] [--rounds N] [--io NAME] [--depth N] [--prompt N] [--verify 0|1]
 *   --prompt N   passes of N tokens instead of single ones: the way of prompts, in groups with the next one ahead
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "format/checkpoint.h"
#include "store/files.h"
#include "store/probe.h"
#include "store/route_log.h"

enum { EXPERTS_MAX = 4096, STAGE = 16 };

typedef struct bench {
    swl_checkpoint *ck;
    swl_store_config config;
    swl_store_layer *layers;
    int *fds;
    const char **paths, *io;
    int32_t slots, n_tokens, n_rounds, depth, prompt;
    bool verify;
} bench;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(swl_status st, const swl_error *err)
{
    if (!st)
        return;
    fprintf(stderr, "store_bench: %s\n", err->message);
    exit(1);
}

static void open_container(bench *b, const char *path)
{
    swl_error err;
    int32_t i, n;

    check(swl_checkpoint_open(&b->ck, path, &err), &err);
    n = b->ck->config.n_layers;
    b->layers = swl_calloc((size_t)n, sizeof *b->layers);
    b->fds = swl_calloc((size_t)b->ck->n_files, sizeof *b->fds);
    b->paths = swl_calloc((size_t)b->ck->n_files, sizeof *b->paths);
    for (i = 0; i < n; i++)
        if (b->ck->config.layers[i].ffn == SWL_FFN_MOE) {
            const swl_expert_layout *e = &b->ck->experts[i];

            b->layers[i] = (swl_store_layer){b->ck->config.n_experts, e->n_ranges, e->ranges, e->slot_bytes, e->crc32c};
        }
    for (i = 0; i < b->ck->n_files; i++) {
        b->fds[i] = b->ck->files[i].fd;
        b->paths[i] = b->ck->files[i].path;
    }
    b->config = (swl_store_config){.n_layers = n, .layers = b->layers, .n_files = b->ck->n_files, .fds = b->fds,
                                   .paths = b->paths, .slots_per_layer = b->slots,
                                   .slots_min = b->ck->config.n_experts_used, .stage_slots = STAGE, .direct = true,
                                   .verify = b->verify ? SWL_STORE_VERIFY_ALWAYS : SWL_STORE_VERIFY_NEVER};
}

/* Experts of one layer that a pass uses, ascending, with their rows. */
static int32_t list_pass(const swl_route_log *g, int64_t token, int32_t layer, int32_t n, int32_t *experts, int32_t *rows)
{
    static int32_t count[EXPERTS_MAX];
    int32_t i, n_out = 0;

    memset(count, 0, sizeof count);
    for (i = 0; i < n * g->k; i++)
        count[g->ids[((token + i / g->k) * g->n_layers + layer) * g->k + i % g->k]]++;
    for (i = 0; i < g->n_experts; i++)
        if (count[i]) {
            experts[n_out] = i;
            rows[n_out++] = count[i];
        }
    return n_out;
}

static void run_layer(swl_store *s, int32_t layer, const int32_t *experts, const int32_t *rows, int32_t n, int32_t n_tokens)
{
    static swl_lease leases[2][EXPERTS_MAX];
    swl_lease_mode mode = n_tokens > 1 ? SWL_LEASE_STREAM : SWL_LEASE_ALL;
    int32_t next = 0, now_n = 0, ahead_n, w = 0;
    swl_error err;

    swl_store_announce(s, layer, experts, rows, n, n_tokens);
    while (next < n) {
        if (!now_n)
            check(swl_store_lease(s, layer, experts + next, n - next, mode, leases[w], &now_n, &err), &err);
        next += now_n;
        ahead_n = 0;
        if (next < n)
            swl_store_lease(s, layer, experts + next, n - next, mode, leases[!w], &ahead_n, NULL);
        check(swl_store_wait(s, layer, leases[w], now_n, &err), &err);
        swl_store_release(s, layer, leases[w], now_n);
        w = !w;
        now_n = ahead_n;
    }
}

/* GB/s through the store. */
static double run_store(const bench *b, const swl_route_log *g, double *bytes)
{
    static int32_t experts[EXPERTS_MAX], rows[EXPERTS_MAX];
    swl_store_config c = b->config;
    swl_store_stats st, st0;
    swl_store *s;
    swl_error err;
    int64_t t;
    int32_t l, step = b->prompt ? b->prompt : 1, warm = b->prompt ? 0 : b->n_tokens / 4;
    double begin = now(), seconds, gb;

    memset(&st0, 0, sizeof st0);
    check(swl_io_open(&c.io, b->io, b->depth, &err), &err);
    check(swl_store_create(&s, &c, &err), &err);
    for (t = 0; t + step <= g->n_tokens; t += step) {
        if (t == warm) {
            swl_store_stats_get(s, &st0);
            begin = now();
        }
        for (l = 0; l < g->n_layers; l++)
            run_layer(s, l, experts, rows, list_pass(g, t, l, step, experts, rows), step);
    }
    seconds = now() - begin;
    swl_store_stats_get(s, &st);
    swl_store_free(s);
    gb = (double)(st.bytes_read - st0.bytes_read) * 1e-9;
    *bytes = gb * 1e9;
    printf("store  %7.3f GB/s  %6.2f GB read, %5.1f %% hits, %llu passed through\n", gb / seconds, gb,
           100.0 * (double)(st.n_hits - st0.n_hits) / (double)(st.n_hits - st0.n_hits + st.n_misses - st0.n_misses),
           (unsigned long long)(st.n_streamed - st0.n_streamed));
    return gb / seconds;
}

/* GB/s of bare reads, `depth` in flight all the time, for about as many bytes as the store reads: drives that allow bursts
 * would otherwise decide the comparison. */
static double run_bare(const bench *b, double bytes_max)
{
    uint64_t size = b->layers[0].slot_bytes, random = 12345;
    uint8_t *mem = swl_big_alloc((uint64_t)b->depth * size);
    swl_io_read reads[SWL_IO_DEPTH_MAX], *out[SWL_IO_DEPTH_MAX];
    swl_io_list list = {0};
    swl_files f;
    swl_io *io;
    swl_error err;
    double begin = now(), bytes = 0.0;
    int32_t i, n = 0, n_left = 0;

    check(swl_io_open(&io, b->io, b->depth, &err), &err);
    check(swl_files_open(&f, b->fds, b->paths, b->ck->n_files, true, &err), &err);
    memset(reads, 0, sizeof reads);
    for (i = 0; i < b->depth; i++)
        out[n++] = &reads[i];
    do {
        for (i = 0; i < n; i++) {
            const swl_store_layer *l;
            const swl_range *r;

            bytes += (double)out[i]->done;
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            if (bytes + (double)n_left * (double)size >= bytes_max)
                continue;
            l = &b->layers[(random >> 33) % (uint64_t)b->config.n_layers];
            r = &l->ranges[(random >> 40) % (uint64_t)l->n_experts];
            *out[i] = (swl_io_read){.fd = f.direct[r->file], .direct = true, .offset = r->offset, .size = r->size,
                                    .need = r->size, .dst = mem + (uint64_t)(out[i] - reads) * size};
            swl_io_push(&list, out[i]);
            n_left++;
        }
        if (list.head)
            io->ops->submit(io, &list);
        n = n_left ? io->ops->wait(io, out, SWL_IO_DEPTH_MAX, true) : 0;
        n_left -= n;
    } while (n);
    begin = now() - begin;
    swl_io_close(io);
    swl_files_close(&f);
    swl_big_free(mem, (uint64_t)b->depth * size);
    printf("bare   %7.3f GB/s\n", bytes * 1e-9 / begin);
    return bytes * 1e-9 / begin;
}

int main(int argc, char **argv)
{
    bench b = {.slots = 28, .n_tokens = 200, .n_rounds = 3, .depth = 16, .io = "threads", .verify = true};
    const char *path = NULL;
    swl_route_model r;
    swl_route_log *log;
    swl_error err;
    int32_t i;

    for (i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";

        if (a[0] != '-') {
            path = a;
            continue;
        }
        i++;
        if (!strcmp(a, "--slots"))
            b.slots = atoi(v);
        else if (!strcmp(a, "--tokens"))
            b.n_tokens = atoi(v);
        else if (!strcmp(a, "--rounds"))
            b.n_rounds = atoi(v);
        else if (!strcmp(a, "--depth"))
            b.depth = atoi(v);
        else if (!strcmp(a, "--prompt"))
            b.prompt = atoi(v);
        else if (!strcmp(a, "--io"))
            b.io = v;
        else if (!strcmp(a, "--verify"))
            b.verify = atoi(v);
    }
    if (!path || b.depth < 1 || b.depth > SWL_IO_DEPTH_MAX) {
        fprintf(stderr, "usage: store_bench CONTAINER [OPTION...], see bench/store_bench.c\n");
        return 2;
    }
    open_container(&b, path);
    swl_route_model_init(&r, b.config.n_layers, b.ck->config.n_experts, b.ck->config.n_experts_used, b.n_tokens);
    check(swl_route_log_generate(&log, &r, &err), &err);
    for (i = 0; i < b.n_rounds; i++) {
        double bytes, store = run_store(&b, log, &bytes), bare = run_bare(&b, bytes);

        printf("       %7.1f %% of bare reads, synthetic routes\n", 100.0 * store / bare);
        fflush(stdout);
    }
    swl_route_log_free(log);
    swl_checkpoint_close(b.ck);
    swl_free(b.layers);
    swl_free(b.fds);
    swl_free(b.paths);
    return 0;
}
