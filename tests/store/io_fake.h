/*
 * io_fake.h: I/O for tests of the store, driven by a seed: reads come back late, in any order, in pieces, or with errors.
 * Single-threaded and without a clock, so a failure repeats. Bytes come from pread, one piece at a time, through the same
 * swl_io_advance as the real backends.
 */
#ifndef TEST_IO_FAKE_H
#define TEST_IO_FAKE_H

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/io.h"

typedef struct io_fake {
    swl_io base;
    uint64_t state;            /* of the random numbers; 0: in order, at once, whole */
    int64_t fail_at;           /* this operation (a system read; the first is 0) fails; -1: none */
    bool for_good;             /* and all after it */
    int fail_errno;            /* with this */
    int64_t n_ops;
    int32_t n;                 /* in flight */
    swl_io_read *reads[4096];
    int32_t *n_open;           /* may be NULL */
} io_fake;

static inline uint32_t io_fake_random(io_fake *f)
{
    f->state = f->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(f->state >> 33);
}

static inline void io_fake_submit(swl_io *io, swl_io_list *reads)
{
    io_fake *f = (io_fake *)io;
    swl_io_read *r;

    while ((r = swl_io_pop(reads))) {
        assert(f->n < 4096);
        f->reads[f->n++] = r;
    }
}

/* One system read of one of those in flight; true when that settles it. */
static inline bool io_fake_step(io_fake *f, swl_io_read *r)
{
    int64_t op = f->n_ops++;
    uint64_t offset, size;
    uint8_t *dst;
    ssize_t got;

    if (f->fail_at >= 0 && (op == f->fail_at || (f->for_good && op > f->fail_at)))
        return swl_io_advance(r, -f->fail_errno);
    swl_io_rest(r, &offset, &dst, &size);
    if (f->state && !r->direct && size > 1 && io_fake_random(f) % 3 == 0)
        size = 1 + io_fake_random(f) % (size - 1);
    if (f->state && io_fake_random(f) % 7 == 0)
        return swl_io_advance(r, io_fake_random(f) % 2 ? -EINTR : -EAGAIN);
    got = pread(r->fd, dst, size, (off_t)offset);
    return swl_io_advance(r, got < 0 ? -errno : got);
}

static inline int32_t io_fake_wait(swl_io *io, swl_io_read **out, int32_t max, bool block)
{
    io_fake *f = (io_fake *)io;
    int32_t n = 0, i;

    if (!block && f->state && io_fake_random(f) % 2)
        return 0; /* late */
    while (f->n && n < max) {
        swl_io_read *r;

        i = f->state ? (int32_t)(io_fake_random(f) % (uint32_t)f->n) : 0;
        r = f->reads[i];
        if (io_fake_step(f, r)) {
            for (f->n--; i < f->n; i++)
                f->reads[i] = f->reads[i + 1];
            if (r->arrived)
                r->arrived(r);
            out[n++] = r;
        }
        if (n && f->state && io_fake_random(f) % 2)
            break; /* the rest another time */
        if (!n && !block)
            break;
    }
    return n;
}

static inline void io_fake_close(swl_io *io)
{
    io_fake *f = (io_fake *)io;

    assert(!f->n); /* a buffer in flight belongs to I/O */
    if (f->n_open)
        --*f->n_open;
    free(f);
}

static inline io_fake *io_fake_new(uint64_t seed, int32_t *n_open)
{
    static const swl_io_ops ops = {"fake", true, io_fake_submit, io_fake_wait, io_fake_close, NULL};
    io_fake *f = calloc(1, sizeof *f);

    f->base.ops = &ops;
    f->base.depth = 4096;
    f->state = seed;
    f->fail_at = -1;
    f->fail_errno = EIO;
    f->n_open = n_open;
    if (n_open)
        ++*n_open;
    return f;
}

#endif
