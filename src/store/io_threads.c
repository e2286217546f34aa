/*
 * io_threads.c: reads by a pool of threads that call pread. Works everywhere; the choice for buffered reads, where the copy
 * out of the page cache then runs on several processors.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "store/io.h"

typedef struct threads_io {
    swl_io base;
    pthread_mutex_t lock;      /* all below */
    pthread_cond_t work, done;
    swl_io_list waiting, finished;
    int32_t n_in_flight;       /* waiting, with a thread, or finished */
    bool quit;
    int32_t n_threads;
    pthread_t threads[SWL_IO_DEPTH_MAX];
} threads_io;

static void read_whole(swl_io_read *r)
{
    uint64_t offset, size;
    uint8_t *dst;
    ssize_t got;

    do {
        swl_io_rest(r, &offset, &dst, &size);
        got = pread(r->fd, dst, size, (off_t)offset);
    } while (!swl_io_advance(r, got < 0 ? -errno : got));
    if (r->arrived)
        r->arrived(r);
}

static void *thread_main(void *arg)
{
    threads_io *t = arg;
    swl_io_read *r;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!(r = swl_io_pop(&t->waiting)) && !t->quit)
            pthread_cond_wait(&t->work, &t->lock);
        if (!r)
            break;
        pthread_mutex_unlock(&t->lock);
        read_whole(r);
        pthread_mutex_lock(&t->lock);
        swl_io_push(&t->finished, r);
        pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void threads_submit(swl_io *io, swl_io_list *reads)
{
    threads_io *t = (threads_io *)io;
    swl_io_read *r;

    pthread_mutex_lock(&t->lock);
    while ((r = swl_io_pop(reads))) {
        swl_io_push(&t->waiting, r);
        t->n_in_flight++;
        pthread_cond_signal(&t->work);
    }
    pthread_mutex_unlock(&t->lock);
}

static int32_t threads_wait(swl_io *io, swl_io_read **out, int32_t max, bool block)
{
    threads_io *t = (threads_io *)io;
    int32_t n = 0;

    pthread_mutex_lock(&t->lock);
    while (block && t->n_in_flight && !t->finished.head)
        pthread_cond_wait(&t->done, &t->lock);
    while (n < max && (out[n] = swl_io_pop(&t->finished)))
        n++;
    t->n_in_flight -= n;
    pthread_mutex_unlock(&t->lock);
    return n;
}

static void threads_close(swl_io *io)
{
    threads_io *t = (threads_io *)io;
    int32_t i;

    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (i = 0; i < t->n_threads; i++)
        pthread_join(t->threads[i], NULL);
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    swl_free(t);
}

swl_status swl_io_threads_open(swl_io **out, int32_t depth, swl_error *err)
{
    static const swl_io_ops ops = {"threads", false, threads_submit, threads_wait, threads_close, NULL};
    threads_io *t = swl_calloc(1, sizeof *t);
    int e = 0;

    *out = NULL;
    if (!t)
        return swl_fail(err, SWL_E_NOMEM, "I/O: out of memory");
    t->base.ops = &ops;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    for (; t->n_threads < depth && !e; t->n_threads += !e)
        e = pthread_create(&t->threads[t->n_threads], NULL, thread_main, t);
    if (!t->n_threads) {
        threads_close(&t->base);
        errno = e;
        return swl_fail_errno(err, NULL, "I/O: cannot start a thread");
    }
    t->base.depth = t->n_threads; /* fewer than asked for are slower, not wrong */
    *out = &t->base;
    return SWL_OK;
}
