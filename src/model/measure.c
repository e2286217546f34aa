/*
 * measure.c: what this machine can do at best, right now, with the model's own threads: reading memory, multiplying, and
 * reading experts from the drive; and passes without one of their halves. Rates on shared machines drift, so they are measured
 * beside what is compared with them.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/sysmem.h"
#include "kernels/peak.h"
#include "model/model.h"
#include "store/files.h"

#define MIB (UINT64_C(1) << 20)

enum { PASSES = 7, DOT_ROUNDS = 200000, IN_FLIGHT_MAX = 64 };

static double median(double *x, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double t = x[j];

            x[j] = x[j - 1];
            x[j - 1] = t;
        }
    return x[n / 2];
}

/* ---- memory and multiplication -------------------------------------------------------------------------------------- */

typedef struct peak_run {
    swl_peak peak;
    const uint8_t *memory;
    uint64_t job_bytes;
    uint8_t a[64];
    int8_t b[SWL_PEAK_MACS_MAX];
    _Atomic uint64_t result; /* so that the work is not left out */
} peak_run;

static void read_job(void *arg, int32_t i, int32_t worker)
{
    peak_run *r = arg;

    (void)worker;
    r->result ^= r->peak.read((const uint64_t *)(const void *)(r->memory + (uint64_t)i * r->job_bytes),
                              (int64_t)(r->job_bytes / 8));
}

static void dot_job(void *arg, int32_t i, int32_t worker)
{
    peak_run *r = arg;

    (void)i, (void)worker;
    r->result ^= r->peak.dot(DOT_ROUNDS, r->a, r->b);
}

/* The median rate of PASSES runs of n jobs that do `amount` together; one run more before, to warm up. */
static double rate(struct swl_model *m, int32_t n, void (*job)(void *, int32_t, int32_t), peak_run *r, double amount)
{
    double rates[PASSES], begin;

    swl_threads_run(m->threads, n, job, r);
    for (int i = 0; i < PASSES; i++) {
        begin = swl_seconds();
        swl_threads_run(m->threads, n, job, r);
        rates[i] = amount / (swl_seconds() - begin);
    }
    return median(rates, PASSES);
}

/* Room for a block of its own: far beyond the caches where the machine and the budget have that much. 0: it would not be beyond them,
 * or the budget would not hold. */
static uint64_t block_bytes(const struct swl_model *m)
{
    uint64_t size = 512 * MIB, left = m->plan.limit > m->plan.total ? m->plan.limit - m->plan.total : 0;
    swl_sysmem mem;

    swl_sysmem_get(&mem);
    if (mem.available && mem.available / 8 < size)
        size = mem.available / 8;
    if (left < size)
        size = left;
    return size < 64 * MIB ? 0 : size / MIB * MIB;
}

/* The dense weights when there are enough of them: they are in memory anyway. Else a block of its own. */
static swl_status measure_memory(struct swl_model *m, peak_run *r, double *out, swl_error *err)
{
    uint64_t size = m->weights.arena_bytes, jobs;
    uint8_t *own = NULL;

    r->memory = m->weights.arena;
    if (size < 512 * MIB) {
        size = block_bytes(m);
        if (!size)
            return SWL_OK;
        r->memory = own = swl_big_alloc(size);
        if (!own)
            return swl_fail(err, SWL_E_NOMEM, "out of memory for %" PRIu64 " bytes to read", size);
        memset(own, 1, size);
    }
    r->job_bytes = MIB;
    jobs = size / r->job_bytes;
    *out = rate(m, (int32_t)jobs, read_job, r, (double)(jobs * r->job_bytes));
    swl_big_free(own, size);
    return SWL_OK;
}

/* ---- the drive -------------------------------------------------------------------------------------------------------- */

typedef struct drive_run {
    struct swl_model *m;
    swl_files files;
    swl_io *io;
    uint8_t *memory;           /* [n_buffers][stride] */
    int32_t n_in_flight, n_buffers;
    uint64_t stride, state, n_asked, n_bytes;
    swl_io_read reads[IN_FLIGHT_MAX];
    int error;
} drive_run;

static uint32_t draw(drive_run *d)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(d->state >> 33);
}

static bool is_aligned(const swl_range *r)
{
    return !((r->offset | r->size) % SWL_IO_ALIGN);
}

/* The first range of a random expert, as the i-th read. Nobody looks at the bytes, so reads may share a buffer. */
static void start_read(drive_run *d, int32_t i)
{
    const swl_config *c = d->m->config;
    int32_t layer = (int32_t)(draw(d) % (uint32_t)c->n_layers), expert = (int32_t)(draw(d) % (uint32_t)c->n_experts);
    const swl_expert_layout *e;
    const swl_range *r;
    swl_io_list one = {0};
    bool direct;

    while (c->layers[layer].ffn != SWL_FFN_MOE)
        layer = (layer + 1) % c->n_layers;
    e = &d->m->ck->experts[layer];
    r = &e->ranges[(int64_t)expert * e->n_ranges];
    direct = d->files.direct[r->file] >= 0 && is_aligned(r);
    if (!direct)
        swl_files_drop(d->files.buffered[r->file], r->offset, r->size);
    d->reads[i] = (swl_io_read){.fd = direct ? d->files.direct[r->file] : d->files.buffered[r->file],
                                .direct = direct,
                                .offset = r->offset,
                                .size = r->size,
                                .need = r->size,
                                .dst = d->memory + (uint64_t)(i % d->n_buffers) * d->stride,
                                .owner = d};
    d->n_asked += r->size;
    swl_io_push(&one, &d->reads[i]);
    d->io->ops->submit(d->io, &one);
}

static double drive_loop(drive_run *d, uint64_t n_bytes)
{
    double begin = swl_seconds();
    swl_io_read *done[IN_FLIGHT_MAX];
    int32_t n_flying = d->n_in_flight, n, i;

    for (i = 0; i < d->n_in_flight; i++)
        start_read(d, i);
    while (n_flying) {
        n = d->io->ops->wait(d->io, done, IN_FLIGHT_MAX, true);
        for (i = 0; i < n; i++) {
            d->n_bytes += done[i]->need;
            d->error = d->error ? d->error : done[i]->error;
            if (!d->error && d->n_asked < n_bytes)
                start_read(d, (int32_t)(done[i] - d->reads));
            else
                n_flying--;
        }
    }
    return swl_seconds() - begin;
}

/* A buffer for every read, as far as the budget of the process still has them. */
static int32_t count_buffers(const drive_run *d)
{
    uint64_t limit = d->m->plan.limit, n;
    swl_sysmem mem;

    swl_sysmem_get(&mem);
    n = limit > mem.resident + 2 * MIB ? (limit - mem.resident - 2 * MIB) / d->stride : 0;
    return n < 1 ? 1 : n < (uint64_t)d->n_in_flight ? (int32_t)n : d->n_in_flight;
}

static swl_status drive_open(drive_run *d, swl_error *err)
{
    const swl_checkpoint *ck = d->m->ck;
    int *fds = swl_calloc((size_t)ck->n_files, sizeof *fds);
    const char **paths = swl_calloc((size_t)ck->n_files, sizeof *paths);
    swl_status st = SWL_OK;

    if (!fds || !paths)
        st = swl_fail(err, SWL_E_NOMEM, "out of memory");
    for (int32_t i = 0; i < ck->n_files && !st; i++) {
        fds[i] = ck->files[i].fd;
        paths[i] = ck->files[i].path;
    }
    if (!st)
        st = swl_files_open(&d->files, fds, paths, ck->n_files, true, err);
    if (!st)
        st = swl_io_open(&d->io, NULL, d->n_in_flight, err);
    d->n_buffers = count_buffers(d);
    d->memory = st ? NULL : swl_big_alloc((uint64_t)d->n_buffers * d->stride);
    if (!st && !d->memory)
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for buffers to read into");
    swl_free(fds);
    swl_free(paths);
    return st;
}

static swl_status measure_drive(drive_run *d, uint64_t n_bytes, double *bytes_per_second, swl_error *err)
{
    const struct swl_model *m = d->m;
    double seconds;
    swl_status st;

    for (int32_t i = 0; i < m->config->n_layers; i++)
        if (m->config->layers[i].ffn == SWL_FFN_MOE && m->ck->experts[i].ranges[0].size > d->stride)
            d->stride = m->ck->experts[i].ranges[0].size;
    d->stride = (d->stride + SWL_IO_ALIGN - 1) / SWL_IO_ALIGN * SWL_IO_ALIGN;
    st = drive_open(d, err);
    if (!st) {
        seconds = drive_loop(d, n_bytes);
        *bytes_per_second = (double)d->n_bytes / seconds;
        if (d->error)
            st = swl_fail(err, SWL_E_IO, "cannot read the experts of %s (error %d)", m->ck->dir, d->error);
    }
    swl_big_free(d->memory, (uint64_t)d->n_buffers * d->stride);
    swl_io_close(d->io);
    swl_files_close(&d->files);
    return st;
}

swl_status swl_drive_measure(swl_model *m, int32_t n_in_flight, uint64_t n_bytes, double *bytes_per_second, swl_error *err)
{
    drive_run d = {.m = m, .n_in_flight = n_in_flight, .state = (uint64_t)(swl_seconds() * 1e9)};
    swl_status st = SWL_OK;

    *bytes_per_second = 0;
    if (n_in_flight < 1 || n_in_flight > IN_FLIGHT_MAX)
        return swl_fail(err, SWL_E_ARG, "%d reads in flight, expected 1 to %d", n_in_flight, IN_FLIGHT_MAX);
    pthread_mutex_lock(&m->lock);
    if (m->weights.n_moe && !m->ck->experts_absent)
        st = measure_drive(&d, n_bytes, bytes_per_second, err);
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------- */

void swl_passes_set(swl_model *m, swl_passes passes)
{
    pthread_mutex_lock(&m->lock);
    m->passes = passes;
    if (m->store)
        swl_store_stand_still(m->store, passes == SWL_PASSES_COMPUTE);
    pthread_mutex_unlock(&m->lock);
}

swl_status swl_machine_measure(swl_model *m, swl_machine_rates *out, swl_error *err)
{
    int32_t n = 4 * swl_threads_count(m->threads);
    peak_run r = {.job_bytes = 0};
    swl_status st;

    memset(out, 0, sizeof *out);
    for (int i = 0; i < 64; i++)
        r.a[i] = (uint8_t)(i % 16);
    for (int i = 0; i < SWL_PEAK_MACS_MAX; i++)
        r.b[i] = (int8_t)(i % 255 - 127);
    swl_peak_init(&r.peak, m->cpu_flags);
    pthread_mutex_lock(&m->lock);
    st = measure_memory(m, &r, &out->memory_read, err);
    if (!st)
        out->int8_multiply_add = rate(m, n, dot_job, &r, (double)n * DOT_ROUNDS * r.peak.macs);
    pthread_mutex_unlock(&m->lock);
    return st;
}
