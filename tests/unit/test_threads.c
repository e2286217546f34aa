/* The worker team: every index runs once, whatever the team's size. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"

enum { N = 1000 };

static void count(void *arg, int32_t i, int32_t worker)
{
    (void)worker;
    atomic_fetch_add(&((_Atomic int *)arg)[i], 1);
}

static void every_index_runs_once(void **state)
{
    static const int32_t sizes[] = {1, 2, 3, 8};
    _Atomic int seen[N];
    size_t s;
    int round, i;

    (void)state;
    for (s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        swl_threads *t;

        assert_int_equal(swl_threads_create(&t, sizes[s], NULL), SWL_OK);
        assert_int_equal(swl_threads_count(t), sizes[s]);
        for (round = 0; round < 50; round++) {
            memset((void *)seen, 0, sizeof seen);
            if (round % 10 == 9)
                usleep(3000); /* let the workers fall asleep */
            swl_threads_run(t, N, count, seen);
            for (i = 0; i < N; i++)
                assert_int_equal(seen[i], 1);
        }
        swl_threads_run(t, 0, count, seen);
        swl_threads_free(t);
    }
}

typedef struct ahead_run {
    _Atomic int seen[N];
    int32_t n, workers;
    _Atomic int wrong;
} ahead_run;

static void count_ahead(void *arg, int32_t i, int32_t next, int32_t worker)
{
    ahead_run *r = arg;

    (void)worker;
    if (next != -1 && (next != i + 1 || next >= r->n)) /* a worker goes on where it is */
        r->wrong++;
    if (r->workers == 1 && next != (i + 1 < r->n ? i + 1 : -1))
        r->wrong++;
    atomic_fetch_add(&r->seen[i], 1);
    if (i % 100 == 3)
        usleep(200); /* the others run out of work meanwhile */
}

static void next_index_is_known_early(void **state)
{
    static const int32_t sizes[] = {1, 2, 3, 8}, counts[] = {1, 2, 3, 9, 104, N};
    static ahead_run r;
    size_t s, c;
    int i;

    (void)state;
    for (s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        swl_threads *t;

        assert_int_equal(swl_threads_create(&t, sizes[s], NULL), SWL_OK);
        for (c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            memset((void *)&r, 0, sizeof r);
            r.n = counts[c];
            r.workers = sizes[s];
            swl_threads_run_ahead(t, counts[c], count_ahead, &r);
            swl_threads_run(t, counts[c], count, r.seen); /* both kinds of loop, in turn */
            for (i = 0; i < N; i++)
                assert_int_equal(r.seen[i], 2 * (i < counts[c]));
            assert_int_equal(r.wrong, 0);
        }
        swl_threads_free(t);
    }
}

/* A worker that does not run: its signal handler waits. */
static pthread_t second;
static _Atomic int held, let_go;

static void hold(int sig)
{
    (void)sig;
    held = 1;
    while (!let_go)
        usleep(100);
    held = 0;
}

typedef struct meeting {
    _Atomic int met, seen[N], by_second;
} meeting;

/* Two indexes, one for each of two workers. */
static void meet(void *arg, int32_t i, int32_t worker)
{
    meeting *m = arg;

    (void)i;
    if (worker == 1)
        second = pthread_self();
    m->met++;
    while (m->met < 2)
        usleep(100);
}

static void count_by_whom(void *arg, int32_t i, int32_t worker)
{
    meeting *m = arg;

    m->seen[i]++;
    m->by_second += worker == 1;
}

static void count_ahead_by_whom(void *arg, int32_t i, int32_t next, int32_t worker)
{
    (void)next;
    count_by_whom(arg, i, worker);
}

static void a_worker_that_does_not_run_is_not_waited_for(void **state)
{
    static meeting m;
    swl_threads *t;
    int i;

    (void)state;
    alarm(60); /* whoever waits for it waits for ever */
    signal(SIGUSR1, hold);
    assert_int_equal(swl_threads_create(&t, 2, NULL), SWL_OK);
    swl_threads_run(t, 2, meet, &m);
    usleep(50000); /* the second one sleeps by now, and holds no lock */
    pthread_kill(second, SIGUSR1);
    while (!held)
        usleep(100);
    for (i = 0; i < 10; i++) {
        swl_threads_run(t, N, count_by_whom, &m);
        swl_threads_run_ahead(t, N, count_ahead_by_whom, &m);
    }
    assert_int_equal(m.by_second, 0);
    let_go = 1;
    while (held)
        usleep(100);
    m.met = 0;
    swl_threads_run(t, 2, meet, &m); /* it takes part again */
    for (i = 0; i < 10; i++)
        swl_threads_run(t, N, count_by_whom, &m);
    for (i = 0; i < N; i++)
        assert_int_equal(m.seen[i], 30);
    swl_threads_free(t);
    alarm(0);
}

static void refuses_odd_sizes(void **state)
{
    swl_threads *t;
    swl_error err;

    (void)state;
    assert_int_equal(swl_threads_create(&t, 0, &err), SWL_E_ARG);
    assert_int_equal(swl_threads_create(&t, 5000, &err), SWL_E_ARG);
    assert_true(swl_cpus_available() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_runs_once),
        cmocka_unit_test(next_index_is_known_early),
        cmocka_unit_test(a_worker_that_does_not_run_is_not_waited_for),
        cmocka_unit_test(refuses_odd_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
