/*
 * threads.h: a fixed team of workers that runs one parallel loop at a time. The caller is worker 0. Which worker runs
 * which index is left open, so a task's result may depend on its index only.
 */
#ifndef SWL_BASE_THREADS_H
#define SWL_BASE_THREADS_H

#include <swiftlet/swiftlet.h>

typedef struct swl_threads swl_threads;

/* n workers in all (1: no threads are made). */
swl_status swl_threads_create(swl_threads **out, int32_t n, swl_error *err);
void swl_threads_free(swl_threads *t);
int32_t swl_threads_count(const swl_threads *t);

/* Runs fn(arg, index, worker) for every index in [0, n) and returns when all are done. Calls from several threads at
 * once take turns. fn must not call it again. */
void swl_threads_run(swl_threads *t, int32_t n, void (*fn)(void *arg, int32_t index, int32_t worker), void *arg);

/* The same for loops that stream through memory: fn also hears which index this worker will run next, index + 1, unless another
 * worker that has nothing left takes it; -1: none that is known. So the bytes of the next one can be asked for while this one is
 * at work. */
void swl_threads_run_ahead(swl_threads *t, int32_t n,
                           void (*fn)(void *arg, int32_t index, int32_t next, int32_t worker), void *arg);

/* CPUs that this process may run on (affinity mask and cgroup quota), at least 1. */
int32_t swl_cpus_available(void);

#endif
