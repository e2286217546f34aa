/*
 * io_bench.c: random reads of one expert's size from a file, through each backend, buffered and direct, at several depths;
 * what the store could get from this drive at best.
 *
 * usage: io_bench FILE [--create GB] [--size BYTES] [--seconds S] [--io NAME] [--depth N] [--mode direct|buffered|kept]
 *                      [--crc] [--rounds N]
 *   --create GB  writes FILE first, with bytes that do not compress
 *   --mode       buffered: drops what it read from the page cache, as the store does; kept: leaves it there
 *   --crc        verifies nothing, but takes a CRC-32C of every read as the store does
 * Prints a line per combination: GB/s, mean and longest time of a read, processor time per GB.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "store/files.h"
#include "store/io.h"

typedef struct options {
    const char *path, *io, *mode;
    double create_gb, seconds;
    uint64_t size;
    int32_t depth, rounds;
    bool crc;
} options;

typedef struct slot {
    swl_io_read read;
    double begin;
    bool drop, crc;
} slot;

static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void create(const options *o)
{
    uint64_t block[1 << 14], left = (uint64_t)(o->create_gb * 1e9) / sizeof block;
    int fd = open(o->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    size_t i;

    if (fd < 0)
        die(o->path);
    for (; left; left--) {
        for (i = 0; i < sizeof block / sizeof *block; i++)
            block[i] = next_random();
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block)
            die(o->path);
    }
    if (fsync(fd))
        die(o->path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void arrived(swl_io_read *r)
{
    slot *s = r->owner;

    if (s->drop)
        swl_files_drop(r->fd, r->offset, r->size);
    if (s->crc)
        s->crc = swl_crc32c(0, r->dst, r->done) != 1; /* used, so that it is not left out */
}

static void start(slot *s, int fd, bool direct, uint64_t n_blobs, const options *o, swl_io_list *list)
{
    s->read = (swl_io_read){.fd = fd, .direct = direct, .offset = next_random() % n_blobs * o->size, .size = o->size,
                            .need = o->size, .dst = s->read.dst, .arrived = arrived, .owner = s};
    s->begin = now();
    swl_io_push(list, &s->read);
}

static void measure(const options *o, int fd, uint64_t file_bytes, const char *name, const char *mode, int32_t depth)
{
    bool direct = !strcmp(mode, "direct"), stop = false;
    slot *slots = swl_calloc((size_t)depth, sizeof *slots);
    uint8_t *mem = swl_big_alloc((uint64_t)depth * o->size);
    swl_io_read *out[SWL_IO_DEPTH_MAX];
    int64_t n_reads = 0, n_left = depth;
    double begin, cpu, sum = 0.0, longest = 0.0;
    swl_io_list list = {0};
    swl_error err;
    swl_files f;
    swl_io *io;
    int32_t i, n;

    if (swl_io_open(&io, name, depth, &err) || swl_files_open(&f, &fd, &o->path, 1, direct, &err)) {
        printf("%-8s %-8s %5d  %s\n", name, mode, depth, err.message);
        return;
    }
    memset(mem, 1, (uint64_t)depth * o->size);
    begin = now();
    cpu = cpu_seconds();
    for (i = 0; i < depth; i++) {
        slots[i] = (slot){.read.dst = mem + (uint64_t)i * o->size, .drop = !strcmp(mode, "buffered"), .crc = o->crc};
        start(&slots[i], direct ? f.direct[0] : f.buffered[0], direct, file_bytes / o->size, o, &list);
    }
    io->ops->submit(io, &list);
    while (n_left) {
        n = io->ops->wait(io, out, SWL_IO_DEPTH_MAX, true);
        for (i = 0; i < n; i++) {
            slot *s = out[i]->owner;
            double t = now() - s->begin;

            if (out[i]->error) {
                fprintf(stderr, "%s: error %d\n", o->path, out[i]->error);
                exit(1);
            }
            n_reads++;
            sum += t;
            longest = t > longest ? t : longest;
            stop = now() - begin > o->seconds;
            if (stop)
                n_left--;
            else
                start(s, out[i]->fd, direct, file_bytes / o->size, o, &list);
        }
        io->ops->submit(io, &list);
    }
    sum /= (double)n_reads;
    begin = now() - begin;
    cpu = cpu_seconds() - cpu;
    printf("%-8s %-8s %5d %8.3f GB/s %8.2f ms mean %8.2f ms longest %6.3f CPU s/GB\n", name, mode, depth,
           (double)n_reads * (double)o->size / begin * 1e-9, sum * 1e3, longest * 1e3,
           cpu / ((double)n_reads * (double)o->size * 1e-9));
    fflush(stdout);
    swl_io_close(io);
    swl_files_close(&f);
    swl_big_free(mem, (uint64_t)depth * o->size);
    swl_free(slots);
}

static void crc_speed(uint64_t size)
{
    uint8_t *mem = swl_big_alloc(size);
    uint32_t crc = 0;
    double t;
    int i;

    memset(mem, 3, size);
    t = now();
    for (i = 0; i < 200; i++)
        crc = swl_crc32c(crc, mem, size);
    t = now() - t;
    printf("CRC-32C of %" PRIu64 " bytes: %.1f GB/s, %.3f ms each (%08" PRIx32 ")\n", size, 200e-9 * (double)size / t,
           t / 200 * 1e3, crc);
    swl_big_free(mem, size);
}

static options parse(int argc, char **argv)
{
    options o = {.seconds = 2.0, .size = 1769472, .rounds = 1};
    int i;

    for (i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";

        if (!strcmp(a, "--crc"))
            o.crc = true;
        else if (a[0] != '-')
            o.path = a;
        else if (!strcmp(a, "--create"))
            o.create_gb = atof(v), i++;
        else if (!strcmp(a, "--size"))
            o.size = strtoull(v, NULL, 10), i++;
        else if (!strcmp(a, "--seconds"))
            o.seconds = atof(v), i++;
        else if (!strcmp(a, "--io"))
            o.io = v, i++;
        else if (!strcmp(a, "--mode"))
            o.mode = v, i++;
        else if (!strcmp(a, "--depth"))
            o.depth = atoi(v), i++;
        else if (!strcmp(a, "--rounds"))
            o.rounds = atoi(v), i++;
        else
            o.path = NULL, i = argc;
    }
    return o;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"threads", "uring"}, *const modes[] = {"direct", "buffered", "kept"};
    static const int32_t depths[] = {1, 2, 4, 8, 16, 32};
    options o = parse(argc, argv);
    struct stat sb;
    int fd, r, a, b, c;

    if (!o.path) {
        fprintf(stderr, "usage: io_bench FILE [--create GB] [--size BYTES] [--seconds S] [--io NAME] [--depth N]\n"
                        "                [--mode direct|buffered|kept] [--crc] [--rounds N]\n");
        return 2;
    }
    if (o.create_gb > 0)
        create(&o);
    fd = open(o.path, O_RDONLY);
    if (fd < 0 || fstat(fd, &sb) || (uint64_t)sb.st_size < o.size)
        die(o.path);
    crc_speed(o.size);
    for (r = 0; r < o.rounds; r++)
        for (c = 0; c < (o.depth ? 1 : 6); c++)
            for (b = 0; b < 3; b++)
                for (a = 0; a < 2; a++)
                    if ((!o.io || !strcmp(o.io, names[a])) && (!o.mode || !strcmp(o.mode, modes[b])))
                        measure(&o, fd, (uint64_t)sb.st_size, names[a], modes[b], o.depth ? o.depth : depths[c]);
    close(fd);
    return 0;
}
