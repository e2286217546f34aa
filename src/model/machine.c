/*
 * machine.c: swl_machine_look: what this machine is, without a model: memory, processors, and the drive that a folder lies on.
 * The drive is measured on a file of its own, which is removed at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if !defined(_WIN32)
#include <sys/statvfs.h>
#endif

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "base/sysmem.h"
#include "base/threads.h"
#include "kernels/peak.h"
#include "store/files.h"
#include "store/io.h"

#define MIB        (UINT64_C(1) << 20)
#define FILE_BYTES (256 * MIB)
#define READ_BYTES (1728 * UINT64_C(1024)) /* an expert of the 35B model at four bits */

enum { IN_FLIGHT = 16, PASSES = 5 };

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

typedef struct memory_run {
    swl_peak peak;
    const uint8_t *memory;
    _Atomic uint64_t result; /* so that the work is not left out */
} memory_run;

static void read_one(void *arg, int32_t i, int32_t worker)
{
    memory_run *r = arg;

    (void)worker;
    r->result ^= r->peak.read((const uint64_t *)(const void *)(r->memory + (uint64_t)i * MIB), (int64_t)(MIB / 8));
}

static swl_status measure_memory(swl_machine_info *out, swl_error *err)
{
    uint64_t size = out->memory_budget / 4 < FILE_BYTES ? 64 * MIB : FILE_BYTES;
    uint8_t *memory = swl_big_alloc(size);
    memory_run r = {.memory = memory};
    swl_threads *threads;
    swl_status st = memory ? swl_threads_create(&threads, out->n_cpus, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st) {
        swl_peak_init(&r.peak, swl_cpu_flags());
        memset(memory, 1, size);
        for (int i = 0; i < PASSES; i++) {
            double begin = swl_seconds(), rate;

            swl_threads_run(threads, (int32_t)(size / MIB), read_one, &r);
            rate = (double)size / (swl_seconds() - begin);
            out->memory_read = rate > out->memory_read ? rate : out->memory_read;
        }
        swl_threads_free(threads);
    }
    swl_big_free(memory, size);
    return st;
}

/* ---- the drive -------------------------------------------------------------------------------------------------------------- */

typedef struct drive_run {
    swl_files files;
    swl_io *io;
    uint8_t *memory;
    uint64_t state, n_bytes;
    swl_io_read reads[IN_FLIGHT];
    int error;
} drive_run;

static void start_read(drive_run *d, int32_t i)
{
    swl_io_list one = {0};
    bool direct = d->files.direct[0] >= 0;

    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    d->reads[i] = (swl_io_read){.fd = direct ? d->files.direct[0] : d->files.buffered[0],
                                .direct = direct,
                                .offset = (d->state >> 33) % (FILE_BYTES / READ_BYTES) * READ_BYTES,
                                .size = READ_BYTES,
                                .need = READ_BYTES,
                                .dst = d->memory + (uint64_t)i * READ_BYTES,
                                .owner = d};
    swl_io_push(&one, &d->reads[i]);
    d->io->ops->submit(d->io, &one);
}

/* Keeps the reads going for a second, then lets them end. */
static double drive_loop(drive_run *d)
{
    double begin = swl_seconds();
    swl_io_read *done[IN_FLIGHT];
    int32_t n_flying = IN_FLIGHT;

    for (int32_t i = 0; i < IN_FLIGHT; i++)
        start_read(d, i);
    while (n_flying) {
        int32_t n = d->io->ops->wait(d->io, done, IN_FLIGHT, true);

        for (int32_t i = 0; i < n; i++) {
            d->n_bytes += done[i]->need;
            d->error = d->error ? d->error : done[i]->error;
            if (!d->error && swl_seconds() - begin < 1.0)
                start_read(d, (int32_t)(done[i] - d->reads));
            else
                n_flying--;
        }
    }
    return swl_seconds() - begin;
}

static swl_status read_file(int fd, const char *path, swl_machine_info *out, swl_error *err)
{
    drive_run d = {.state = 1};
    swl_status st = swl_files_open(&d.files, &fd, &path, 1, true, err);
    double seconds;

    if (!st)
        st = swl_io_open(&d.io, NULL, IN_FLIGHT, err);
    d.memory = st ? NULL : swl_big_alloc(IN_FLIGHT * READ_BYTES);
    if (!st && !d.memory)
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for buffers to read into");
    if (!st) {
        out->drive_direct = d.files.direct[0] >= 0;
        seconds = drive_loop(&d);
        out->drive_read = (double)d.n_bytes / seconds;
        out->drive_read_bytes = READ_BYTES;
        if (d.error)
            st = swl_fail(err, SWL_E_IO, "cannot read %s (error %d)", path, d.error);
    }
    swl_big_free(d.memory, IN_FLIGHT * READ_BYTES);
    swl_io_close(d.io);
    swl_files_close(&d.files);
    return st;
}

/* Bytes that no drive can make smaller. */
static swl_status fill(int fd, const char *path, swl_error *err)
{
    uint64_t *block = swl_calloc(MIB, 1), x = 88172645463325252u;
    swl_status st = block ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for a block");

    for (uint64_t at = 0; at < FILE_BYTES && !st; at += MIB) {
        for (uint64_t i = 0; i < MIB / 8; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            block[i] = x;
        }
        st = swl_file_write_at(fd, path, at, block, MIB, err);
    }
    swl_free(block);
    if (!st && fsync(fd))
        st = swl_fail_errno(err, path, "cannot make %s durable", path);
    if (!st)
        swl_file_forget(fd, 0, 0); /* where direct reads are not possible, at least not from memory */
    return st;
}

static swl_status measure_drive(const char *dir, swl_machine_info *out, swl_error *err)
{
    char *path = swl_asprintf("%s/.swiftlet-measure.%ld", dir, (long)getpid());
    double begin = swl_seconds();
    int fd = -1;
    swl_status st = path ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st && out->disk_free < 4 * FILE_BYTES)
        st = swl_fail_at(err, SWL_E_BUDGET, dir, -1, "%s has too little room for a measurement", dir);
    if (!st) {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        st = fd < 0 ? swl_fail_errno(err, path, "cannot create %s", path) : fill(fd, path, err);
    }
    if (!st) {
        out->drive_write = (double)FILE_BYTES / (swl_seconds() - begin);
        st = read_file(fd, path, out, err);
    }
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    swl_free(path);
    return st;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------------- */

static void look_at_memory(swl_machine_info *out)
{
    swl_sysmem m;

    swl_sysmem_get(&m);
    out->memory_total = m.total;
    out->memory_available = m.available;
    out->group_limit = m.group_limit == UINT64_MAX ? 0 : m.group_limit;
    out->group_used = out->group_limit ? m.group_used : 0;
    out->memory_budget = swl_sysmem_budget(&m);
}

static void look_at_disk(const char *dir, swl_machine_info *out)
{
#if defined(_WIN32)
    (void)dir, (void)out;
#else
    struct statvfs v;

    if (!statvfs(dir, &v))
        out->disk_free = (uint64_t)v.f_bavail * v.f_frsize;
#endif
}

swl_status swl_machine_look(const char *dir, bool measure, swl_machine_info *out, swl_error *err)
{
    swl_status st = SWL_OK;

    *out = (swl_machine_info){.n_cpus = swl_cpus_available()};
    snprintf(out->cpu_level, sizeof out->cpu_level, "%s", swl_cpu_level_name(swl_cpu_flags()));
    look_at_memory(out);
    if (dir)
        look_at_disk(dir, out);
    if (measure)
        st = measure_memory(out, err);
    if (!st && measure && dir)
        st = measure_drive(dir, out, err);
    return st;
}
