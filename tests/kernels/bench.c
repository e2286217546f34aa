/*
 * bench.c: times the rows of the kernel table at the shapes of a 35B model (hidden 2048, expert width 512, heads of 256
 * and 128). Matrices at one token are far larger than the caches, so that the figure is one of memory; it stands beside
 * the rate of plain reads of the same bytes, taken in turn with it. Best of several rounds.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/threads.h"

enum { ROUNDS = 7, BIG_BYTES = 160 << 20 };
enum { JOB_ROWS = 512, JOB_ROWS_CACHED = 512 }; /* the second as a model cuts prompts */

/* One thread is timed by its own CPU clock, so that other work on the machine disturbs less; teams by the wall. */
static double clock_s(int32_t n_threads)
{
    struct timespec t;

    clock_gettime(n_threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double int8_peak; /* operations per second of one thread; 0: not known */

/* ---- plain reads ----------------------------------------------------------------------------------------- */

typedef struct read_run {
    const uint8_t *p;
    int64_t n_bytes, piece;
    _Atomic uint64_t sink;
} read_run;

static void read_job(void *arg, int32_t i, int32_t worker)
{
    read_run *r = arg;
    const uint8_t *p = r->p + i * r->piece;
    int64_t n = r->n_bytes - i * r->piece, k;
    uint64_t s[8] = {0}, w[8];
    int j;

    (void)worker;
    n = n < r->piece ? n : r->piece;
    for (k = 0; k + 64 <= n; k += 64) {
        memcpy(w, p + k, 64);
        for (j = 0; j < 8; j++)
            s[j] += w[j];
    }
    r->sink += s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static double read_seconds(swl_threads *team, const void *p, int64_t n_bytes)
{
    read_run r = {.p = p, .n_bytes = n_bytes, .piece = 1 << 18};
    double t = clock_s(swl_threads_count(team));

    swl_threads_run(team, (int32_t)((n_bytes + r.piece - 1) / r.piece), read_job, &r);
    return clock_s(swl_threads_count(team)) - t;
}

/* ---- the machine ----------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) static double vnni_rate(void)
{
    int64_t n = 4000000, i;
    double t = clock_s(1);

    for (i = 0; i < n; i++)
        __asm__ volatile("vpdpbusd %%zmm16, %%zmm17, %%zmm0\n\tvpdpbusd %%zmm16, %%zmm17, %%zmm1\n\t"
                         "vpdpbusd %%zmm16, %%zmm17, %%zmm2\n\tvpdpbusd %%zmm16, %%zmm17, %%zmm3\n\t"
                         "vpdpbusd %%zmm16, %%zmm17, %%zmm4\n\tvpdpbusd %%zmm16, %%zmm17, %%zmm5\n\t"
                         "vpdpbusd %%zmm16, %%zmm17, %%zmm6\n\tvpdpbusd %%zmm16, %%zmm17, %%zmm7\n\t"
                         "vpdpbusd %%zmm16, %%zmm17, %%zmm8\n\tvpdpbusd %%zmm16, %%zmm17, %%zmm9\n\t" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9");
    return (double)n * 10 * 128 / (clock_s(1) - t);
}
#endif

void bench_machine(void)
{
    int32_t n_threads = swl_cpus_available(), n, i;
    uint8_t *p = swl_big_alloc(BIG_BYTES);

    if (!p)
        return;
    memset(p, 1, BIG_BYTES);
    for (n = 1; n <= n_threads; n *= 2) {
        swl_threads *team = NULL;
        double best = 1e9, t;

        if (swl_threads_create(&team, n, NULL))
            break;
        for (i = 0; i < ROUNDS; i++)
            best = (t = read_seconds(team, p, BIG_BYTES)) < best ? t : best;
        printf("memory, plain reads, %d thread%s: %.1f GB/s\n", n, n > 1 ? "s" : "", BIG_BYTES / best * 1e-9);
        swl_threads_free(team);
    }
    swl_big_free(p, BIG_BYTES);
#if defined(__x86_64__)
    for (i = 0; i < ROUNDS && (swl_cpu_flags() & SWL_CPU_AVX512); i++) {
        double rate = vnni_rate();

        int8_peak = rate > int8_peak ? rate : int8_peak;
    }
    if (int8_peak > 0)
        printf("int8 dot products (vpdpbusd zmm), 1 thread: %.0f GOP/s\n", int8_peak * 1e-9);
#endif
}

/* ---- matmul ---------------------------------------------------------------------------------------------- */

typedef struct matmul_run {
    swl_matmul_fn *fn;
    swl_matrix w;
    swl_act a;
    int32_t n_tok, job_rows;
    int64_t ldo; /* as the model's: an odd number of cache lines, so that tokens' rows do not share a set of a cache */
    float *out;
} matmul_run;

static void matmul_job(void *arg, int32_t i, int32_t worker)
{
    const matmul_run *r = arg;
    int32_t row = i * r->job_rows, n = r->w.rows - row < r->job_rows ? r->w.rows - row : r->job_rows;

    (void)worker;
    r->fn(&r->w, row, n, &r->a, NULL, r->n_tok, r->out + row, r->ldo);
}

static double matmul_seconds(swl_threads *team, matmul_run *r, int n_times)
{
    double t = clock_s(swl_threads_count(team));
    int i;

    for (i = 0; i < n_times; i++)
        swl_threads_run(team, (r->w.rows + r->job_rows - 1) / r->job_rows, matmul_job, r);
    return (clock_s(swl_threads_count(team)) - t) / n_times;
}

static int64_t data_bytes(const swl_matrix *w)
{
    return w->rows * swl_matrix_row_bytes(w);
}

static int64_t side_bytes(const swl_matrix *w)
{
    return w->group ? (int64_t)w->rows * (w->cols / w->group) * swl_dtype_size(w->sdtype) : 0;
}

/* Data, scales and biases in one piece of memory, so that plain reads of it cost what the kernel's reads cost. */
static uint8_t *fill_matrix(swl_matrix *w, int64_t *n_bytes)
{
    uint8_t *p;
    int64_t i;

    *n_bytes = data_bytes(w) + 2 * side_bytes(w);
    p = swl_big_alloc((uint64_t)*n_bytes);
    if (!p)
        exit(2);
    for (i = 0; i + 4 <= *n_bytes; i += 4) {
        uint32_t v = (rng_next() & 0x03ff03ffu) | 0x3c003c00u; /* no denormal numbers, which some machines add slowly */

        memcpy(p + i, &v, 4);
    }
    w->data = p;
    w->scales = p + data_bytes(w);
    w->biases = w->scales + side_bytes(w);
    return p;
}

static uint64_t out_bytes(const matmul_run *r)
{
    return (uint64_t)r->ldo * (uint64_t)r->n_tok * sizeof(float);
}

static void start(matmul_run *r, swl_matmul_fn *fn, swl_wtype type, int32_t rows, int32_t cols, int32_t n_tok)
{
    const swl_wtype_info *info = swl_wtype_get(type);
    int32_t group = info->book ? (type == SWL_W_NVFP4 ? 16 : 32) : info->affine ? 64 : 0;

    mem_reset();
    *r = (matmul_run){.fn = fn, .n_tok = n_tok, .job_rows = JOB_ROWS, .ldo = (rows / 16 | 1) * 16};
    r->w = (swl_matrix){.type = type, .rows = rows, .cols = cols, .sdtype = SWL_DT_BF16, .group = group};
    if (info->book)
        r->w.sdtype = swl_codebook_sdtype(type, SWL_DT_F16);
    r->a = random_act(cols, n_tok, false);
    r->out = swl_big_alloc(out_bytes(r));
}

static void bench_matvec(const char *name, swl_matmul_fn *fn, swl_wtype type, int32_t cols, int32_t n_tok,
                         int32_t n_threads)
{
    matmul_run r;
    swl_threads *team = NULL;
    double best = 1e9, best_read = 1e9, t;
    int64_t n_bytes;
    uint8_t *p;
    int i;

    start(&r, fn, type, (int32_t)((int64_t)BIG_BYTES * 8 / swl_wtype_get(type)->bits / cols), cols, n_tok);
    p = fill_matrix(&r.w, &n_bytes);
    if (!r.out || swl_threads_create(&team, n_threads, NULL))
        exit(2);
    for (i = 0; i < ROUNDS; i++) {
        best_read = (t = read_seconds(team, p, n_bytes)) < best_read ? t : best_read;
        best = (t = matmul_seconds(team, &r, 1)) < best ? t : best;
    }
    printf("%-32s %4d tokens, cols %5d, %d thread%s: %6.2f GB/s, %3.0f %% of plain reads (%.1f GB/s)\n", name, n_tok,
           cols, n_threads, n_threads > 1 ? "s" : " ", (double)n_bytes / best * 1e-9, 100 * best_read / best,
           (double)n_bytes / best_read * 1e-9);
    swl_threads_free(team);
    swl_big_free(r.out, out_bytes(&r));
    swl_big_free(p, (uint64_t)n_bytes);
}

static void bench_matmul(const char *name, swl_matmul_fn *fn, swl_wtype type, int32_t rows, int32_t cols, int32_t n_tok)
{
    matmul_run r;
    swl_threads *team = NULL;
    double best = 1e9, t, ops = 2.0 * rows * cols * n_tok;
    int64_t n_bytes;
    uint8_t *p;
    int i;

    start(&r, fn, type, rows, cols, n_tok);
    r.job_rows = JOB_ROWS_CACHED;
    p = fill_matrix(&r.w, &n_bytes);
    if (!r.out || swl_threads_create(&team, 1, NULL))
        exit(2);
    for (i = 0; i < 4 * ROUNDS; i++)
        best = (t = matmul_seconds(team, &r, 1 + 256 / n_tok)) < best ? t : best;
    printf("%-32s %4d tokens, %d x %d: %7.1f GOP/s", name, n_tok, rows, cols, ops / best * 1e-9);
    if (int8_peak > 0)
        printf(", %2.0f %% of int8 peak", 100 * ops / best / int8_peak);
    printf("\n");
    swl_threads_free(team);
    swl_big_free(r.out, out_bytes(&r));
    swl_big_free(p, (uint64_t)n_bytes);
}

static void bench_matmul_row(const char *name, any_fn *fn, int32_t type)
{
    static const int32_t cols[] = {2048, 512, 4096}, tokens[] = {1};
    swl_matmul_fn *f = (swl_matmul_fn *)fn;
    size_t i;

    for (i = 0; i < 3; i++) {
        bench_matvec(name, f, (swl_wtype)type, cols[i], 1, 1);
        bench_matvec(name, f, (swl_wtype)type, cols[i], 1, 2);
    }
    for (i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        bench_matmul(name, f, (swl_wtype)type, 512, 2048, tokens[i]);
        bench_matmul(name, f, (swl_wtype)type, 2048, 512, tokens[i]);
        bench_matmul(name, f, (swl_wtype)type, 512, 4096, tokens[i]);
    }
}

/* ---- the other slots ------------------------------------------------------------------------------------- */

typedef void delta_fn(float *, int64_t, int32_t, int32_t, int32_t, const float *, const float *, int64_t, const float *,
                      int64_t, const swl_delta_gate *, float *, int64_t);
typedef void attn_fn(const float *, int32_t, int32_t, int32_t, const void *, const void *, int64_t, int32_t, float,
                     float *, float *, float *);

/* One token over the states of all heads and layers: memory; many tokens over one state: arithmetic. */
static void bench_delta(const char *name, any_fn *fn)
{
    enum { DIM = 128, HEADS = 960, TOKENS = 512 };
    int64_t n = (int64_t)HEADS * DIM * DIM;
    float *s = swl_big_alloc((uint64_t)n * 4), *x = ordinary(TOKENS * DIM, 0.1f), *out = floats(TOKENS * DIM);
    swl_delta_gate gates[TOKENS];
    double one = 1e9, many = 1e9, t;
    int i, h;

    if (!s)
        exit(2);
    memset(s, 0, (size_t)n * 4);
    for (i = 0; i < TOKENS; i++)
        gates[i] = (swl_delta_gate){.fold = i % 64 ? 1.0f : 0.5f, .gain = 0.7f, .rate = 0.6f};
    for (i = 0; i < ROUNDS; i++) {
        t = clock_s(1);
        for (h = 0; h < HEADS; h++)
            ((delta_fn *)fn)(s + (int64_t)h * DIM * DIM, DIM, DIM, DIM, 1, x, x, DIM, x, DIM, gates, out, DIM);
        one = (t = clock_s(1) - t) < one ? t : one;
        t = clock_s(1);
        ((delta_fn *)fn)(s, DIM, DIM, DIM, TOKENS, x, x, DIM, x, DIM, gates, out, DIM);
        many = (t = clock_s(1) - t) < many ? t : many;
    }
    printf("%-32s 1 token, %d states: %.2f GB/s read and as much written; %d tokens: %.2f us a token and head\n", name,
           HEADS, (double)n * 4 / one * 1e-9, TOKENS, many / TOKENS * 1e6);
    swl_big_free(s, (uint64_t)n * 4);
}

typedef void attn_kv_fn(const int16_t *, const float *, int32_t, int32_t, int32_t, const swl_kv *, int32_t, float *, float *,
                        float *);
typedef void attn_f32_fn(const float *, int32_t, int32_t, int32_t, const float *, const float *, int64_t, int32_t, float,
                         float *, float *, float *);

/* One row, as in decoding, or some of a prompt against a whole segment; rows of two KV heads lie in turn. */
static void bench_attn_rows(const char *name, any_fn *fn, bool integers, int32_t n_rows)
{
    enum { DIM = 256, N_Q = 8, LD = 2 * DIM };
    int32_t n = n_rows * N_Q;
    size_t bytes = (size_t)SWL_ATTN_SEGMENT * LD * (integers ? 2 : 4);
    float *q = ordinary(n * DIM, 1.0f), *o = floats(n * DIM), *m = floats(n), *l = floats(n);
    float *scale = ordinary(2 * SWL_ATTN_SEGMENT, 1e-3f);
    uint8_t *k = mem_take(bytes, 0), *v = mem_take(bytes, 0);
    swl_kv kv = {(const void *)k, (const void *)v, scale, scale, SWL_KV_BLOCK * LD, 2 * SWL_KV_BLOCK};
    double best = 1e9, t;
    int i;

    memset(k, integers ? 3 : 0x22, bytes);
    memset(v, integers ? 3 : 0x22, bytes);
    for (i = 0; i < 4 * ROUNDS; i++) {
        t = clock_s(1);
        if (integers)
            ((attn_kv_fn *)fn)((const int16_t *)(void *)k, q, n_rows, N_Q, DIM, &kv, SWL_ATTN_SEGMENT, m, l, o);
        else
            ((attn_f32_fn *)fn)(q, n_rows, N_Q, DIM, (const void *)k, (const void *)v, LD, SWL_ATTN_SEGMENT, 0.0625f, m, l, o);
        best = (t = clock_s(1) - t) < best ? t : best;
    }
    printf("%-32s %2d rows of 8 queries of 256, 1024 keys: %.1f us a row, %.1f GOP/s", name, n_rows, best / n_rows * 1e6,
           4.0 * n * DIM * SWL_ATTN_SEGMENT / best * 1e-9);
    if (n_rows == 1)
        printf(", %.2f GB/s of keys and values", (double)bytes / best * 1e-9);
    printf("\n");
}

static void bench_attn(const char *name, any_fn *fn, bool integers)
{
    static const int32_t n_rows[] = {1, 3, 12};
    size_t i;

    for (i = 0; i < sizeof n_rows / sizeof n_rows[0]; i++) {
        mem_reset();
        bench_attn_rows(name, fn, integers, n_rows[i]);
    }
}

/* Elementwise slots: the time for a row of 2048, cache warm. */
static void call_elem(const char *slot, any_fn *fn, float *x, float *y, float *z, int32_t n)
{
    static int8_t q[4096];
    static int32_t sum[256];
    float scale[64];

    if (!strcmp(slot, "quantise_act"))
        ((void (*)(const float *, int32_t, int8_t *, float *, int32_t *))fn)(x, n, q, scale, sum);
    else if (!strcmp(slot, "rms_norm"))
        ((void (*)(float *, const float *, const float *, int32_t, float))fn)(z, x, y, n, 1e-6f);
    else if (!strcmp(slot, "l2_norm"))
        ((void (*)(float *, int32_t, float, float))fn)(x, n, 1e-6f, 1.0f);
    else if (!strcmp(slot, "gated_norm"))
        ((void (*)(float *, const float *, const float *, const float *, int32_t, float))fn)(z, x, y, y, n, 1e-6f);
    else if (!strcmp(slot, "silu_mul"))
        ((void (*)(float *, const float *, const float *, int32_t))fn)(z, x, y, n);
    else if (!strcmp(slot, "sigmoid_mul") || !strcmp(slot, "add"))
        ((void (*)(float *, const float *, int32_t))fn)(x, y, n);
    else if (!strcmp(slot, "axpy"))
        ((void (*)(float *, float, const float *, int32_t))fn)(x, 0.5f, y, n);
    else if (!strcmp(slot, "conv_silu"))
        ((void (*)(float *, int64_t, float *, const float *, int64_t, const float *, int64_t, int32_t, int32_t,
                   int32_t))fn)(z, n, y, x, n, y + 3 * 2048, 2048, n, 1, 4);
    else if (!strcmp(slot, "rope"))
        ((void (*)(float *, int32_t, const float *, const float *))fn)(x, n, y, y + n);
    else if (!strcmp(slot, "quantise_kv"))
        ((void (*)(const float *, int32_t, int16_t *, float *))fn)(x, n, (int16_t *)(void *)z, scale);
    else if (!strcmp(slot, "softmax_exp"))
        ((float (*)(float *, const float *, int32_t))fn)(z, x, n);
}

static void bench_elem(const char *slot, const char *name, any_fn *fn)
{
    enum { N = 2048, CALLS = 500 };
    float *x = ordinary(N, 4.0f), *y = ordinary(8 * N, 4.0f), *z = floats(N);
    double best = 1e9, t;
    int i, k;

    for (i = 0; i < ROUNDS; i++) {
        t = clock_s(1);
        for (k = 0; k < CALLS; k++)
            call_elem(slot, fn, x, y, z, N);
        best = (t = clock_s(1) - t) < best ? t : best;
    }
    printf("%-32s %d elements: %.0f ns\n", name, N, best / CALLS * 1e9);
}

void bench_row(const char *slot, const char *function, any_fn *fn, int32_t type)
{
    char name[64];

    rng_seed(1);
    mem_reset();
    mem_far = true;
    snprintf(name, sizeof name, "%s%s", function + 4, strchr(slot, '[') ? strchr(slot, '[') + 6 : "");
    name[strcspn(name, "]")] = 0;
    if (!strncmp(slot, "matmul", 6))
        bench_matmul_row(name, fn, type);
    else if (!strcmp(slot, "delta_scan"))
        bench_delta(name, fn);
    else if (!strncmp(slot, "attn", 4))
        bench_attn(name, fn, !strcmp(slot, "attn_kv"));
    else
        bench_elem(slot, name, fn);
}
