/*
 * io_uring.c: reads through Linux's io_uring: no thread and no copy between the drive and a slot when reads are direct.
 * Reads beyond the queue depth wait in a list and are handed to the kernel as others finish, inside wait().
 *
 * The submission side is used under the lock; the completion side only by the one thread that is in wait() or in pump().
 */
#define _GNU_SOURCE
#include "base/status.h"
#include "store/io.h"

#if SWL_HAVE_URING

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    TRIES_MAX = 2000,
    TRY_US = 500, /* a kernel that takes nothing for a second is given up */
    AGAIN_MAX = 4
};

typedef struct uring_io {
    swl_io base;
    struct io_uring ring;
    pthread_mutex_t lock;      /* all below, and the ring's submission side */
    swl_io_list waiting;       /* beyond the depth */
    swl_io_list prepared;      /* in the ring, not taken by the kernel yet: it takes them in this order */
    swl_io_list settled;       /* by a pump, to be returned by wait() */
    int32_t n_prepared, n_kernel;
    int32_t n_in_flight;       /* all that are not returned */
    int32_t n_tries;           /* since the kernel last took something */
    int broken;                /* errno after which nothing is handed over any more */
} uring_io;

static void prepare(uring_io *u, struct io_uring_sqe *sqe)
{
    swl_io_read *r = swl_io_pop(&u->waiting);
    uint64_t offset, size;
    uint8_t *dst;

    swl_io_rest(r, &offset, &dst, &size);
    io_uring_prep_read(sqe, r->fd, dst, (unsigned)size, offset);
    io_uring_sqe_set_data(sqe, r);
    swl_io_push(&u->prepared, r);
    u->n_prepared++;
}

/* Hands over what the depth allows. With the lock held. */
static void pump(uring_io *u)
{
    struct io_uring_sqe *sqe;
    int rc;

    if (u->broken)
        return;
    while (u->waiting.head && u->n_prepared + u->n_kernel < u->base.depth && (sqe = io_uring_get_sqe(&u->ring)))
        prepare(u, sqe);
    if (!u->n_prepared)
        return;
    rc = io_uring_submit(&u->ring);
    if (rc > 0)
        u->n_tries = 0;
    else if ((rc && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY && rc != -ENOMEM) || ++u->n_tries > TRIES_MAX)
        u->broken = rc ? -rc : EAGAIN;
    for (; rc > 0 && swl_io_pop(&u->prepared); rc--) {
        u->n_prepared--;
        u->n_kernel++;
    }
}

static void uring_submit(swl_io *io, swl_io_list *reads)
{
    uring_io *u = (uring_io *)io;
    swl_io_read *r;

    pthread_mutex_lock(&u->lock);
    while ((r = swl_io_pop(reads))) {
        swl_io_push(&u->waiting, r);
        u->n_in_flight++;
    }
    pump(u);
    pthread_mutex_unlock(&u->lock);
}

/* What the kernel has not finished when the thread that submitted it ends comes back with one of these, though nothing is
 * wrong with the read: the thread that is here now submits it again. */
static bool lost_its_thread(swl_io_read *r, int result)
{
    return (result == -EFAULT || result == -ECANCELED) && r->n_again++ < AGAIN_MAX;
}

/* Takes completions; reads that are not settled go back into the list. */
static void take_completions(uring_io *u)
{
    struct io_uring_cqe *cqe;

    while (!io_uring_peek_cqe(&u->ring, &cqe)) {
        swl_io_read *r = io_uring_cqe_get_data(cqe);
        bool settled = !lost_its_thread(r, cqe->res) && swl_io_advance(r, cqe->res);

        io_uring_cqe_seen(&u->ring, cqe);
        u->n_kernel--;
        swl_io_push(settled ? &u->settled : &u->waiting, r);
    }
}

static int32_t reap(uring_io *u, swl_io_read **out, int32_t max)
{
    swl_io_read *r;
    int32_t n = 0;

    take_completions(u);
    while (n < max && (r = swl_io_pop(&u->settled)))
        out[n++] = r;
    /* A broken ring is never entered for submission again, so what the kernel has not taken is ours. */
    while (u->broken && n < max && ((r = swl_io_pop(&u->prepared)) || (r = swl_io_pop(&u->waiting)))) {
        r->error = u->broken;
        out[n++] = r;
    }
    u->n_in_flight -= n;
    pump(u);
    return n;
}

static int32_t uring_wait(swl_io *io, swl_io_read **out, int32_t max, bool block)
{
    uring_io *u = (uring_io *)io;
    struct io_uring_cqe *cqe;
    int32_t n, i;

    pthread_mutex_lock(&u->lock);
    while (!(n = reap(u, out, max)) && block && u->n_in_flight) {
        bool sleep_in_kernel = u->n_kernel > 0;

        pthread_mutex_unlock(&u->lock);
        if (sleep_in_kernel)
            io_uring_wait_cqe(&u->ring, &cqe); /* a signal ends it too: then round again */
        else
            usleep(TRY_US);
        pthread_mutex_lock(&u->lock);
    }
    pthread_mutex_unlock(&u->lock);
    for (i = 0; i < n; i++)
        if (out[i]->arrived)
            out[i]->arrived(out[i]);
    return n;
}

static void uring_pump(swl_io *io)
{
    uring_io *u = (uring_io *)io;

    pthread_mutex_lock(&u->lock);
    take_completions(u);
    pump(u);
    pthread_mutex_unlock(&u->lock);
}

static void uring_close(swl_io *io)
{
    uring_io *u = (uring_io *)io;

    io_uring_queue_exit(&u->ring);
    pthread_mutex_destroy(&u->lock);
    swl_free(u);
}

static bool can_read(struct io_uring *ring)
{
    struct io_uring_probe *p = io_uring_get_probe_ring(ring);
    bool ok = p && io_uring_opcode_supported(p, IORING_OP_READ);

    if (p)
        io_uring_free_probe(p);
    return ok;
}

swl_status swl_io_uring_open(swl_io **out, int32_t depth, swl_error *err)
{
    static const swl_io_ops ops = {"uring", true, uring_submit, uring_wait, uring_close, uring_pump};
    uring_io *u = swl_calloc(1, sizeof *u);
    int rc;

    *out = NULL;
    if (!u)
        return swl_fail(err, SWL_E_NOMEM, "I/O: out of memory");
    rc = io_uring_queue_init((unsigned)depth, &u->ring, 0);
    if (rc) {
        swl_free(u);
        errno = -rc;
        swl_fail_errno(err, NULL, "I/O: io_uring does not work here");
        if (err)
            err->code = SWL_E_UNSUPPORTED;
        return SWL_E_UNSUPPORTED;
    }
    if (!can_read(&u->ring)) {
        io_uring_queue_exit(&u->ring);
        swl_free(u);
        return swl_fail(err, SWL_E_UNSUPPORTED, "I/O: this kernel's io_uring cannot read");
    }
    u->base.ops = &ops;
    u->base.depth = depth;
    pthread_mutex_init(&u->lock, NULL);
    *out = &u->base;
    return SWL_OK;
}

#else

swl_status swl_io_uring_open(swl_io **out, int32_t depth, swl_error *err)
{
    (void)depth;
    *out = NULL;
    return swl_fail(err, SWL_E_UNSUPPORTED, "I/O: this build has no io_uring");
}

#endif
