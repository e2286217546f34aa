/* The backends of expert reads on a real file: every byte, ends of files, errors, more reads than the queue is deep. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/files.h"
#include "store/io.h"

enum { BLOCK = 4096, BLOCKS = 300, N = 200 };

static char path[] = "/tmp/swl-io-XXXXXX";
static int fd;
static uint8_t *bytes;

static int setup(void **state)
{
    int i;

    (void)state;
    bytes = malloc(BLOCKS * BLOCK);
    for (i = 0; i < BLOCKS * BLOCK; i++)
        bytes[i] = (uint8_t)(i * 31 + i / BLOCK);
    fd = mkstemp(path);
    return write(fd, bytes, BLOCKS * BLOCK - 100) != BLOCKS * BLOCK - 100;
}

static int teardown(void **state)
{
    (void)state;
    close(fd);
    unlink(path);
    free(bytes);
    return 0;
}

static swl_io *open_or_skip(const char *name, int32_t depth)
{
    swl_error err;
    swl_io *io;
    swl_status st = swl_io_open(&io, name, depth, &err);

    if (st == SWL_E_UNSUPPORTED)
        skip();
    assert_int_equal(st, SWL_OK);
    assert_string_equal(io->ops->name, name);
    return io;
}

static void note(swl_io_read *r)
{
    ++*(int *)r->owner;
}

/* pumped: before the first wait, with many ended by then. */
static void read_all(const char *name, int32_t depth, bool direct, bool pumped)
{
    swl_io *io = open_or_skip(name, depth);
    swl_io_read *reads = calloc(N, sizeof *reads), *out[7];
    uint8_t *mem = swl_big_alloc((uint64_t)N * 2 * BLOCK);
    int *seen = calloc(N, sizeof *seen), i, n, left = N;
    const char *paths[] = {path};
    swl_io_list list = {0};
    swl_files files;

    assert_int_equal(swl_files_open(&files, &fd, paths, 1, direct, NULL), SWL_OK);
    if (direct && files.direct[0] < 0)
        skip();
    for (i = 0; i < N; i++) {
        uint64_t odd = direct ? 0 : 3, at = (uint64_t)(i * 7 % (BLOCKS - 2)) * BLOCK + odd;

        reads[i] = (swl_io_read){.fd = direct ? files.direct[0] : files.buffered[0], .direct = direct, .offset = at,
                                 .size = 2 * BLOCK - odd, .need = BLOCK + 100, .dst = mem + (int64_t)i * 2 * BLOCK,
                                 .arrived = note, .owner = &seen[i]};
        swl_io_push(&list, &reads[i]);
    }
    io->ops->submit(io, &list);
    for (i = 0; pumped && i < 50; i++) {
        usleep(200);
        io->ops->pump(io);
    }
    while (left) {
        n = io->ops->wait(io, out, 7, true);
        assert_in_range(n, 1, 7);
        left -= n;
        for (i = 0; i < n; i++) {
            assert_int_equal(out[i]->error, 0);
            assert_true(out[i]->done >= out[i]->need);
            assert_memory_equal(out[i]->dst, bytes + out[i]->offset, out[i]->need);
            assert_int_equal(*(int *)out[i]->owner, 1);
        }
    }
    assert_int_equal(io->ops->wait(io, out, 7, true), 0); /* nothing left: it does not block */
    swl_io_close(io);
    swl_files_close(&files);
    swl_big_free(mem, (uint64_t)N * 2 * BLOCK);
    free(reads);
    free(seen);
}

static void threads_read_every_byte(void **state)
{
    (void)state;
    read_all("threads", 1, false, false);
    read_all("threads", 5, false, false);
    read_all("threads", 4, true, false);
}

static void uring_reads_every_byte(void **state)
{
    (void)state;
    read_all("uring", 1, false, false);
    read_all("uring", 6, false, true);
    read_all("uring", 128, true, false);
    read_all("uring", 9, true, true);
}

static void one(swl_io *io, swl_io_read *r)
{
    swl_io_list list = {0};
    swl_io_read *out[1];

    swl_io_push(&list, r);
    io->ops->submit(io, &list);
    assert_int_equal(io->ops->wait(io, out, 1, true), 1);
    assert_ptr_equal(out[0], r);
}

static void faults(const char *name)
{
    swl_io *io = open_or_skip(name, 4);
    uint8_t buf[200];
    swl_io_read past = {.fd = fd, .offset = BLOCKS * BLOCK - 150, .size = 200, .need = 200, .dst = buf};
    swl_io_read bad = {.fd = 1000000, .offset = 0, .size = 10, .need = 10, .dst = buf};
    swl_io_read ok = {.fd = fd, .offset = 5, .size = 10, .need = 10, .dst = buf};

    one(io, &past);
    assert_int_equal(past.error, SWL_IO_ENDED);
    assert_int_equal(past.done, 50);
    one(io, &bad);
    assert_int_equal(bad.error, EBADF);
    one(io, &ok);
    assert_int_equal(ok.error, 0);
    assert_memory_equal(buf, bytes + 5, 10);
    swl_io_close(io);
}

static void threads_report_ends_and_errors(void **state)
{
    (void)state;
    faults("threads");
}

static void uring_reports_ends_and_errors(void **state)
{
    (void)state;
    faults("uring");
}

static void unknown_names_and_depths_are_refused(void **state)
{
    swl_error err;
    swl_io *io;

    (void)state;
    assert_int_equal(swl_io_open(&io, "floppy", 0, &err), SWL_E_ARG);
    assert_non_null(strstr(err.message, "floppy"));
    assert_int_equal(swl_io_open(&io, NULL, 100000, &err), SWL_E_ARG);
    assert_int_equal(swl_io_open(&io, NULL, 0, NULL), SWL_OK);
    swl_io_close(io);
    swl_io_close(NULL);
}

static void short_and_interrupted_answers_are_read_on(void **state)
{
    uint8_t buf[10000];
    swl_io_read r = {.offset = 100, .size = 8192, .need = 6000, .dst = buf}, d;
    uint64_t offset, size;
    uint8_t *dst;

    (void)state;
    assert_false(swl_io_advance(&r, -EINTR));
    assert_false(swl_io_advance(&r, 5000));
    swl_io_rest(&r, &offset, &dst, &size);
    assert_int_equal(offset, 5100);
    assert_int_equal(size, 3192);
    assert_ptr_equal(dst, buf + 5000);
    assert_true(swl_io_advance(&r, 1000));
    assert_int_equal(r.error, 0);
    d = (swl_io_read){.direct = true, .size = 12288, .need = 12288, .dst = buf};
    assert_false(swl_io_advance(&d, 4096)); /* aligned: go on */
    assert_true(swl_io_advance(&d, 100));   /* not aligned: only the end of a file is */
    assert_int_equal(d.error, SWL_IO_ENDED);
    d = (swl_io_read){.size = 10, .need = 10};
    assert_true(swl_io_advance(&d, -EIO));
    assert_int_equal(d.error, EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_read_every_byte),
        cmocka_unit_test(uring_reads_every_byte),
        cmocka_unit_test(threads_report_ends_and_errors),
        cmocka_unit_test(uring_reports_ends_and_errors),
        cmocka_unit_test(unknown_names_and_depths_are_refused),
        cmocka_unit_test(short_and_interrupted_answers_are_read_on),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
