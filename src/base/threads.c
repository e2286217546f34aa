/*
 * threads.c: the worker team. A loop is published by raising `generation`; workers enter it through a gate. Each has a share of
 * neighbouring indexes, which it takes one by one, and who has none left takes the upper half of what another has left: so
 * a worker goes on reading memory where it is, taking costs no traffic between cores, and big and little cores, and a core that
 * another process took, balance themselves. Once nothing is left to take, the caller closes the gate and waits for those
 * inside alone: a worker that the system has not let run since the loop began comes late, finds the gate closed, and holds up
 * nobody. Waiting spins a bounded time, because the gap between two loops of a forward pass is microseconds, and then sleeps on
 * a condition, so that a waiting team costs nothing while the disk is slow or no one asks.
 */
#define _GNU_SOURCE
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"

/* Vector kernels keep up to 400 KB of activations on it; some C libraries give 128 KB, and some take the program's
 * thread-local storage out of it (of ThreadSanitizer 786 KB). */
#define STACK_BYTES (2u << 20)
#define SPIN_ROUNDS 4000 /* about 20 to 100 microseconds of pause instructions */

#define GATE_OPEN (1u << 31)

/* Indexes that nobody has taken: low ones in the upper half, the end in the lower half. A cache line each. */
typedef struct share {
    _Atomic uint64_t range;
    char pad[56];
} share;

struct swl_threads {
    int32_t n;
    share *shares;        /* [n] */
    pthread_t *threads;   /* [n - 1] */
    pthread_mutex_t turn; /* held by the caller of a loop */
    pthread_mutex_t lock; /* guards the two conditions */
    pthread_cond_t work, done;

    void (*fn)(void *, int32_t, int32_t); /* one of these two */
    void (*fn_ahead)(void *, int32_t, int32_t, int32_t);
    void *arg;
    _Atomic bool quit;
    char pad0[64];               /* the two hot words keep a cache line each */
    _Atomic uint32_t generation; /* a new loop, or quit */
    char pad1[64];
    _Atomic uint32_t gate; /* GATE_OPEN while a loop may be entered, plus the workers inside; not the caller */
    char pad2[64];
    _Atomic int32_t n_sleeping; /* workers in the work condition */
    _Atomic bool caller_sleeping;
};

typedef struct worker {
    swl_threads *team;
    int32_t id;
} worker;

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static int32_t low_of(uint64_t range)
{
    return (int32_t)(range >> 32);
}

static int32_t end_of(uint64_t range)
{
    return (int32_t)(uint32_t)range;
}

static uint64_t range_of(int32_t low, int32_t end)
{
    return (uint64_t)(uint32_t)low << 32 | (uint32_t)end;
}

/* Takes the lowest index of a share, or with `half` all from the middle on. Returns [first taken, end of the share), 0 when
 * nothing was left. */
static uint64_t take(share *s, bool half)
{
    uint64_t v = atomic_load_explicit(&s->range, memory_order_relaxed), left, taken;

    do {
        int32_t low = low_of(v), end = end_of(v);

        if (low >= end)
            return 0;
        left = half ? range_of(low, low + (end - low) / 2) : range_of(low + 1, end);
        taken = half ? range_of(end_of(left), end) : range_of(low, end);
    } while (!atomic_compare_exchange_weak_explicit(&s->range, &v, left, memory_order_relaxed, memory_order_relaxed));
    return taken;
}

/* What is on its way from one share to another is nowhere to be found: who looks then goes, and the other does it. */
static bool refill(swl_threads *t, int32_t id)
{
    uint64_t taken = 0;
    int32_t k;

    for (k = 1; k < t->n && !taken; k++)
        taken = take(&t->shares[(id + k) % t->n], true);
    atomic_store_explicit(&t->shares[id].range, taken, memory_order_relaxed);
    return taken;
}

static void take_indexes(swl_threads *t, int32_t id)
{
    uint64_t r;

    do
        while ((r = take(&t->shares[id], false)))
            if (t->fn_ahead)
                t->fn_ahead(t->arg, low_of(r), low_of(r) + 1 < end_of(r) ? low_of(r) + 1 : -1, id);
            else
                t->fn(t->arg, low_of(r), id);
    while (refill(t, id));
}

/* Returns the new generation. */
static uint32_t wait_for_work(swl_threads *t, uint32_t seen)
{
    uint32_t g;
    int i;

    for (i = 0; i < SPIN_ROUNDS; i++) {
        g = atomic_load_explicit(&t->generation, memory_order_acquire);
        if (g != seen)
            return g;
        pause_cpu();
    }
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->n_sleeping, 1);
    while ((g = atomic_load(&t->generation)) == seen)
        pthread_cond_wait(&t->work, &t->lock);
    atomic_fetch_sub(&t->n_sleeping, 1);
    pthread_mutex_unlock(&t->lock);
    return g;
}

/* What a loop is about may be read between these two alone. */
static bool enter(swl_threads *t)
{
    uint32_t v = atomic_load_explicit(&t->gate, memory_order_relaxed);

    while (v & GATE_OPEN)
        if (atomic_compare_exchange_weak(&t->gate, &v, v + 1))
            return true;
    return false;
}

static void leave(swl_threads *t)
{
    if (atomic_fetch_sub(&t->gate, 1) == 1 && atomic_load(&t->caller_sleeping)) { /* the last, and the gate is closed */
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->done);
        pthread_mutex_unlock(&t->lock);
    }
}

static void *worker_main(void *arg)
{
    worker w = *(worker *)arg;
    swl_threads *t = w.team;
    uint32_t seen = 0;

    swl_free(arg);
    for (;;) {
        seen = wait_for_work(t, seen);
        if (t->quit)
            return NULL;
        if (enter(t)) {
            take_indexes(t, w.id);
            leave(t);
        }
    }
}

static void publish(swl_threads *t)
{
    atomic_fetch_add(&t->generation, 1);
    if (atomic_load(&t->n_sleeping)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_broadcast(&t->work);
        pthread_mutex_unlock(&t->lock);
    }
}

static void wait_until_left(swl_threads *t)
{
    int i;

    atomic_fetch_and(&t->gate, ~GATE_OPEN);
    for (i = 0; i < SPIN_ROUNDS; i++) {
        if (!atomic_load_explicit(&t->gate, memory_order_acquire))
            return;
        pause_cpu();
    }
    pthread_mutex_lock(&t->lock);
    atomic_exchange(&t->caller_sleeping, true); /* an exchange: no load of the gate may pass it, in emulators either */
    while (atomic_load(&t->gate))
        pthread_cond_wait(&t->done, &t->lock);
    atomic_store(&t->caller_sleeping, false);
    pthread_mutex_unlock(&t->lock);
}

/* The caller holds the turn and has set the function. */
static void run_team(swl_threads *t, int32_t n, void *arg)
{
    int32_t k;

    t->arg = arg;
    for (k = 0; k < t->n; k++)
        atomic_store_explicit(&t->shares[k].range,
                              range_of((int32_t)((int64_t)n * k / t->n), (int32_t)((int64_t)n * (k + 1) / t->n)),
                              memory_order_relaxed);
    atomic_store(&t->gate, GATE_OPEN);
    publish(t);
    take_indexes(t, 0);
    wait_until_left(t);
}

void swl_threads_run(swl_threads *t, int32_t n, void (*fn)(void *, int32_t, int32_t), void *arg)
{
    int32_t i;

    if (n <= 0)
        return;
    pthread_mutex_lock(&t->turn);
    if (t->n == 1 || n == 1) {
        for (i = 0; i < n; i++)
            fn(arg, i, 0);
    } else {
        t->fn = fn;
        t->fn_ahead = NULL;
        run_team(t, n, arg);
    }
    pthread_mutex_unlock(&t->turn);
}

void swl_threads_run_ahead(swl_threads *t, int32_t n, void (*fn)(void *, int32_t, int32_t, int32_t), void *arg)
{
    int32_t i;

    if (n <= 0)
        return;
    pthread_mutex_lock(&t->turn);
    if (t->n == 1 || n == 1) {
        for (i = 0; i < n; i++)
            fn(arg, i, i + 1 < n ? i + 1 : -1, 0);
    } else {
        t->fn_ahead = fn;
        run_team(t, n, arg);
    }
    pthread_mutex_unlock(&t->turn);
}

int32_t swl_threads_count(const swl_threads *t)
{
    return t->n;
}

void swl_threads_free(swl_threads *t)
{
    int32_t i;

    if (!t)
        return;
    t->quit = true;
    publish(t);
    for (i = 0; i < t->n - 1; i++)
        pthread_join(t->threads[i], NULL);
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->turn);
    swl_free(t->threads);
    swl_free(t->shares);
    swl_free(t);
}

static swl_status start_worker(swl_threads *t, int32_t id, swl_error *err)
{
    worker *w = swl_calloc(1, sizeof *w);
    pthread_attr_t attr;
    int failed;

    if (!w)
        return swl_fail(err, SWL_E_NOMEM, "threads: out of memory");
    w->team = t;
    w->id = id;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    failed = pthread_create(&t->threads[id - 1], &attr, worker_main, w);
    pthread_attr_destroy(&attr);
    if (failed) {
        swl_free(w);
        return swl_fail(err, SWL_E_NOMEM, "threads: cannot start thread %d of %d", id + 1, t->n);
    }
    return SWL_OK;
}

swl_status swl_threads_create(swl_threads **out, int32_t n, swl_error *err)
{
    swl_threads *t = swl_calloc(1, sizeof *t);
    swl_status st = SWL_OK;
    int32_t i;

    *out = NULL;
    if (n < 1 || n > 1024) {
        swl_free(t);
        return swl_fail(err, SWL_E_ARG, "threads: %d threads asked for, expected 1 to 1024", n);
    }
    if (!t || !(t->threads = swl_calloc((size_t)n, sizeof *t->threads)) ||
        !(t->shares = swl_calloc((size_t)n, sizeof *t->shares))) {
        if (t)
            swl_free(t->threads);
        swl_free(t);
        return swl_fail(err, SWL_E_NOMEM, "threads: out of memory");
    }
    pthread_mutex_init(&t->turn, NULL);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    t->n = 1;
    for (i = 1; i < n && !st; i++) {
        st = start_worker(t, i, err);
        if (!st)
            t->n++;
    }
    if (st) {
        swl_threads_free(t);
        return st;
    }
    *out = t;
    return SWL_OK;
}

#if !defined(_WIN32) /* os_win.c has it */
/* CPU seconds per second that a cgroup allows, rounded up; 0 when unlimited. Version 2 first, then version 1. */
static int32_t cgroup_cpus(void)
{
    static const char *const files[][2] = {
        {"/sys/fs/cgroup/cpu.max", NULL},
        {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"},
    };
    long quota = -1, period = 0;
    size_t i;

    for (i = 0; i < 2; i++) {
        FILE *f = fopen(files[i][0], "re");
        int n;

        if (!f)
            continue;
        n = fscanf(f, files[i][1] ? "%ld" : "%ld %ld", &quota, &period);
        fclose(f);
        if (files[i][1] && n == 1 && (f = fopen(files[i][1], "re"))) {
            if (fscanf(f, "%ld", &period) != 1)
                period = 0;
            fclose(f);
        }
        if (n >= 1 && quota > 0 && period > 0)
            return (int32_t)((quota + period - 1) / period);
        quota = -1;
    }
    return 0;
}

int32_t swl_cpus_available(void)
{
    int32_t n, limit = cgroup_cpus();
#if defined(__linux__)
    cpu_set_t set;

    if (!sched_getaffinity(0, sizeof set, &set))
        n = CPU_COUNT(&set);
    else
#endif
        n = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (limit && limit < n)
        n = limit;
    return n < 1 ? 1 : n > 1024 ? 1024 : n;
}
#endif
