/*
 * check.c: every row of the kernel table that this machine can run, against the scalar reference, to the bit.
 *
 *   check [--list] [--function=NAME] [--slot=NAME] [--seed=N] [--rounds=N] [--bench]
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "kernels/ref/ref.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#elif defined(__aarch64__) && __has_include("kernels/arm/arm.h")
#include "kernels/arm/arm.h"
#endif

/* ---- random numbers -------------------------------------------------------------------------------------- */

static uint64_t rng_state;

void rng_seed(uint64_t seed)
{
    rng_state = seed;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint32_t rng_next(void)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

int32_t rng_range(int32_t low, int32_t high)
{
    return low + (int32_t)(rng_next() % (uint32_t)(high - low + 1));
}

int32_t rng_pick(const int32_t *list, int32_t n)
{
    return list[rng_range(0, n - 1)];
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

enum { N_REGIONS = 24, GUARD = 64 };

static uint8_t *regions[N_REGIONS];
static int n_taken;
bool mem_far;

void *mem_take(size_t n_bytes, size_t slack)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p;

    if (mem_far)
        slack = page + (64 - n_bytes % 64) % 64;
    if (n_taken == N_REGIONS || n_bytes + slack > REGION_BYTES) {
        fprintf(stderr, "check: a case wants more memory than there is\n");
        exit(2);
    }
    if (!regions[n_taken]) {
        p = mmap(NULL, REGION_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p + REGION_BYTES, page, PROT_NONE)) {
            perror("check: mmap");
            exit(2);
        }
        regions[n_taken] = p;
    }
    if (mem_far)
        memset(regions[n_taken] + REGION_BYTES - page, 0, page);
    return regions[n_taken++] + REGION_BYTES - slack - n_bytes;
}

void mem_reset(void)
{
    n_taken = 0;
}

float *floats(int64_t n)
{
    return mem_take((size_t)n * sizeof(float), (size_t)PICK(0, 0, 4, 32));
}

float *ordinary(int64_t n, float magnitude)
{
    float *x = floats(n);
    int64_t i;

    for (i = 0; i < n; i++) {
        float u = (float)(int32_t)rng_next() * (1.0f / 2147483648.0f);

        x[i] = rng_next() & 1 ? u * magnitude : u * u * u * magnitude;
    }
    return x;
}

float *worst(int64_t n)
{
    static const float values[] = {0.0f,    -0.0f, 1.0f,   -1.0f,   127.0f, 1e-38f,
                                   -1e-42f, 1e-6f, 3.3e4f, -6.6e4f, 1e15f,  -1e15f};
    float *x = floats(n), one = values[rng_range(0, 11)];
    int32_t kind = rng_range(0, 2);
    int64_t i;

    for (i = 0; i < n; i++)
        x[i] = kind == 0 ? one : kind == 1 ? values[rng_range(0, 11)] : (float)rng_range(-3, 3) * 0.5f;
    return x;
}

twins twins_take(size_t n_bytes)
{
    twins t = {.n = n_bytes};
    size_t slack = GUARD + (size_t)PICK(0, 0, 4, 32), i;
    int k;

    for (k = 0; k < 2; k++)
        t.at[k] = (uint8_t *)mem_take(n_bytes + GUARD, slack) + GUARD;
    for (i = 0; i < n_bytes + 2 * GUARD; i++)
        t.at[0][i - GUARD] = t.at[1][i - GUARD] = (uint8_t)(0xa5 + i);
    return t;
}

twins twins_copy(const void *from, size_t n_bytes)
{
    twins t = twins_take(n_bytes);

    memcpy(t.at[0], from, n_bytes);
    memcpy(t.at[1], from, n_bytes);
    return t;
}

static char note[256];

bool twins_equal(const twins *t, const char *what)
{
    const uint8_t *a = t->at[0] - GUARD, *b = t->at[1] - GUARD;
    size_t n = t->n + 2 * GUARD, i;
    float fa, fb;

    if (!memcmp(a, b, n))
        return true;
    for (i = 0; a[i] == b[i]; i++)
        ;
    printf("    %s\n", note);
    if (i < GUARD || i >= GUARD + t->n) {
        printf("    %s: wrote %s the output, byte %zd of %zu\n", what, i < GUARD ? "before" : "after",
               (ssize_t)i - GUARD, t->n);
        return false;
    }
    i = (i - GUARD) & ~(size_t)3;
    if (i + 4 <= t->n) {
        memcpy(&fa, t->at[0] + i, 4);
        memcpy(&fb, t->at[1] + i, 4);
        printf("    %s: byte %zu of %zu (float32 %zu): expected %.9g (%a), found %.9g (%a)\n", what, i, t->n, i / 4,
               (double)fa, (double)fa, (double)fb, (double)fb);
    } else {
        printf("    %s: byte %zu of %zu differs\n", what, i, t->n);
    }
    return false;
}

void case_note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(note, sizeof note, fmt, ap);
    va_end(ap);
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

typedef struct table_row {
    uint32_t need;
    const char *slot, *function;
    any_fn *fn;
} table_row;

/* "matmul_q[SWL_W_A4]" -> its index, found by name, so that the rows can stay as they are. */
static int32_t type_of(const char *slot)
{
    static const char *const names[SWL_W_COUNT] = {
        [SWL_W_F32] = "[SWL_W_F32]", [SWL_W_F16] = "[SWL_W_F16]", [SWL_W_BF16] = "[SWL_W_BF16]",
        [SWL_W_A2] = "[SWL_W_A2]",   [SWL_W_A3] = "[SWL_W_A3]",   [SWL_W_A4] = "[SWL_W_A4]",
        [SWL_W_A5] = "[SWL_W_A5]",   [SWL_W_A6] = "[SWL_W_A6]",   [SWL_W_A8] = "[SWL_W_A8]",
        [SWL_W_MXFP4] = "[SWL_W_MXFP4]", [SWL_W_NVFP4] = "[SWL_W_NVFP4]", [SWL_W_NL4] = "[SWL_W_NL4]",
        [SWL_W_MXFP8] = "[SWL_W_MXFP8]",
    };
    int32_t t;

    for (t = 0; t < SWL_W_COUNT; t++)
        if (names[t] && strstr(slot, names[t]))
            return t;
    return SWL_W_NONE;
}

#define KERNEL(need, slot, function) {need, #slot, #function, (any_fn *)function},
static const table_row rows[] = {
#include "kernels/kernels.inc"
};
#undef KERNEL
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const slot_test *find_test(const char *slot)
{
    const slot_test *const lists[] = {matmul_tests, elem_tests, mixer_tests};
    size_t n = strcspn(slot, "["), i;
    const slot_test *t;

    for (i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (t = lists[i]; t->slot; t++)
            if (strlen(t->slot) == n && !memcmp(t->slot, slot, n))
                return t;
    return NULL;
}

static any_fn *reference(const char *slot)
{
    int i;

    for (i = 0; i < N_ROWS; i++)
        if (!rows[i].need && !strcmp(rows[i].slot, slot))
            return rows[i].fn;
    return NULL;
}

static const char *level_of(uint32_t need)
{
    return need ? swl_cpu_level_name(need) : "scalar";
}

typedef struct options {
    const char *function, *slot;
    uint64_t seed;
    int32_t rounds;
    bool list, bench;
} options;

static bool check_row(const options *o, const table_row *r)
{
    const slot_test *t = find_test(r->slot);
    any_fn *ref = reference(r->slot);
    int32_t i, n;

    if (!t || !ref) {
        printf("  %s %s: no test for this slot\n", r->slot, r->function);
        return false;
    }
    n = t->n_cases * o->rounds;
    rng_seed(o->seed);
    for (i = 0; i < n; i++) {
        mem_reset();
        if (!t->one(ref, r->fn, type_of(r->slot))) {
            printf("  FAILED %s %s: case %d of %d\n", r->slot, r->function, i, n);
            return false;
        }
    }
    return true;
}

static bool wanted(const options *o, const table_row *r)
{
    return (!o->function || strstr(r->function, o->function)) && (!o->slot || strstr(r->slot, o->slot));
}

/* Also the rows that serve other processors better. */
static uint32_t can_run(void)
{
    uint32_t have = swl_cpu_flags();

    return have & SWL_CPU_AVX512 ? have | SWL_CPU_NEAR : have;
}

static int check_all(const options *o)
{
    uint32_t have = can_run();
    int n_passed = 0, n_failed = 0, n_skipped = 0, i;

    printf("kernels: seed %llu, level %s\n", (unsigned long long)o->seed, swl_cpu_level_name(have));
    for (i = 0; i < N_ROWS; i++) {
        if (!wanted(o, &rows[i]) || rows[i].fn == reference(rows[i].slot))
            continue;
        if ((rows[i].need & have) != rows[i].need) {
            printf("  skipped %s %s: this machine lacks %s\n", rows[i].slot, rows[i].function, level_of(rows[i].need));
            n_skipped++;
        } else if (check_row(o, &rows[i])) {
            n_passed++;
        } else {
            n_failed++;
        }
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed != 0;
}

/* The reference is slow and timed only when it is named. */
static int bench_all(const options *o)
{
    uint32_t have = can_run();
    int i;

    bench_machine();
    for (i = 0; i < N_ROWS; i++)
        if (wanted(o, &rows[i]) && (rows[i].need & have) == rows[i].need && (rows[i].need || o->function))
            bench_row(rows[i].slot, rows[i].function, rows[i].fn, type_of(rows[i].slot));
    return 0;
}

static int list_all(const options *o)
{
    int i;

    for (i = 0; i < N_ROWS; i++)
        if (wanted(o, &rows[i]))
            printf("%-8s %-24s %s\n", level_of(rows[i].need), rows[i].slot, rows[i].function);
    return 0;
}

static bool parse(options *o, const char *arg)
{
    if (!strcmp(arg, "--list"))
        o->list = true;
    else if (!strcmp(arg, "--bench"))
        o->bench = true;
    else if (!strncmp(arg, "--function=", 11))
        o->function = arg + 11;
    else if (!strncmp(arg, "--slot=", 7))
        o->slot = arg + 7;
    else if (!strncmp(arg, "--seed=", 7))
        o->seed = strtoull(arg + 7, NULL, 10);
    else if (!strncmp(arg, "--rounds=", 9))
        o->rounds = (int32_t)strtol(arg + 9, NULL, 10);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    options o = {.seed = (uint64_t)time(NULL), .rounds = 1};
    int i;

    for (i = 1; i < argc; i++)
        if (!parse(&o, argv[i])) {
            fprintf(stderr, "usage: %s [--list] [--function=NAME] [--slot=NAME] [--seed=N] [--rounds=N] [--bench]\n",
                    argv[0]);
            return 2;
        }
    return o.list ? list_all(&o) : o.bench ? bench_all(&o) : check_all(&o);
}
