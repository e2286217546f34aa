/*
 * threads.c: the threads of the engine, of the worker and of the disk, and the notes by which they tell the event thread. The
 * engine thread never touches a socket, and nobody waits for anybody: a note goes into a list, and a byte into a pipe when the
 * list was empty.
 */
#include "srv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

enum { STACK_BYTES = 8 << 20 }; /* what a pass takes is more than some systems give */

/* FINISH notes wait for the end of the step, because the engine may still touch the request until it returns. */
static _Thread_local srv_note *held;

void srv_post(srv_server *s, srv_note *n)
{
    bool was_empty;

    n->next = NULL;
    pthread_mutex_lock(&s->mail_lock);
    was_empty = !s->mail_first;
    *s->mail_last = n;
    s->mail_last = &n->next;
    pthread_mutex_unlock(&s->mail_lock);
    while (was_empty && write(s->mail_fd[1], "", 1) < 0 && errno == EINTR)
        continue;
}

void srv_note_free(srv_note *n)
{
    if (!n)
        return;
    free(n->top);
    free(n->error);
    free(n->stop);
    free(n);
}

static void fill(srv_note *n, const swl_event *ev)
{
    n->kind = SRV_NOTE_ENGINE;
    n->event = ev->kind;
    n->call = ev->call;
    n->broken = ev->broken;
    n->prompt = ev->prompt;
    n->reasoning = ev->reasoning;
    n->n_done = ev->n_done;
    n->n_total = ev->n_total;
    n->token = ev->token;
    n->finish = ev->finish;
    if (ev->call_id)
        snprintf(n->call_id, sizeof n->call_id, "%s", ev->call_id);
    if (ev->usage)
        n->usage = *ev->usage;
}

static void on_finish(srv_choice *c, const swl_event *ev)
{
    srv_note *n = c->last;

    c->last = NULL;
    fill(n, ev);
    n->job = c->job;
    if (ev->stop)
        n->stop = strdup(ev->stop);
    if (ev->error) {
        n->error = malloc(sizeof *n->error);
        if (n->error)
            *n->error = *ev->error;
    }
    n->next = held;
    held = n;
}

bool srv_on_engine_event(void *arg, const swl_event *ev)
{
    srv_choice *c = arg;
    size_t n_text = ev->text ? ev->n_bytes : 0;
    srv_note *n;

    if (ev->kind == SWL_EVENT_FINISH) {
        on_finish(c, ev);
        return true;
    }
    if (atomic_load(&c->job->cancelled))
        return false;
    n = calloc(1, sizeof *n + n_text + 1);
    if (!n)
        return false;
    fill(n, ev);
    n->job = c->job;
    n->n = n_text;
    if (n_text)
        memcpy(n->text, ev->text, n_text);
    if (ev->kind == SWL_EVENT_TOKEN && ev->n_top > 0) {
        n->top = malloc((size_t)ev->n_top * sizeof *n->top);
        n->n_top = n->top ? ev->n_top : 0;
        if (n->top)
            memcpy(n->top, ev->top, (size_t)ev->n_top * sizeof *n->top);
    }
    srv_post(c->job->server, n);
    return true;
}

static void release_held(srv_server *s)
{
    srv_note *in_order = NULL;

    while (held) {
        srv_note *n = held;
        held = n->next;
        n->next = in_order;
        in_order = n;
    }
    while (in_order) {
        srv_note *n = in_order;
        in_order = n->next;
        srv_post(s, n);
    }
}

static void post_plain(srv_server *s, srv_note_kind kind, const swl_error *err)
{
    srv_note *n = calloc(1, sizeof *n);

    if (!n)
        return;
    n->kind = kind;
    if (err) {
        n->error = malloc(sizeof *n->error);
        if (n->error)
            *n->error = *err;
    }
    srv_post(s, n);
}

static void *engine_main(void *arg)
{
    srv_server *s = arg;
    swl_error err = {0};
    swl_status st = s->opt.load(s->opt.arg, &s->model, &err);
    int n_faults = 0;

    if (st) {
        err.code = st;
        post_plain(s, SRV_NOTE_FAULT, &err);
        return NULL;
    }
    post_plain(s, SRV_NOTE_LOADED, NULL);
    while (!atomic_load(&s->stop)) {
        bool busy = false;

        st = swl_engine_step(s->model.engine, &busy, &err);
        release_held(s);
        if (st) {
            srv_log(s, false, "the engine failed: %s", err.message);
            err.code = st;
            if (++n_faults == 10) {
                post_plain(s, SRV_NOTE_FAULT, &err);
                break;
            }
            usleep(100000);
        } else {
            n_faults = 0;
        }
        if (!st && !busy && !atomic_load(&s->stop))
            swl_engine_wait(s->model.engine, 1000);
    }
    return NULL;
}

static void put(srv_queue *q, srv_job *j)
{
    j->next_work = NULL;
    pthread_mutex_lock(&q->lock);
    *q->last = j;
    q->last = &j->next_work;
    pthread_cond_signal(&q->there);
    pthread_mutex_unlock(&q->lock);
}

static srv_job *next_job(srv_queue *q)
{
    srv_job *j;

    pthread_mutex_lock(&q->lock);
    while (!q->first && !q->closed)
        pthread_cond_wait(&q->there, &q->lock);
    j = q->first;
    if (j) {
        q->first = j->next_work;
        if (!q->first)
            q->last = &q->first;
    }
    pthread_mutex_unlock(&q->lock);
    return j;
}

void srv_work(srv_server *s, srv_job *j)
{
    put(&s->work, j);
}

static void post_prepared(srv_server *s, srv_job *j)
{
    srv_note *n = j->prepared;

    j->prepared = NULL;
    n->kind = SRV_NOTE_PREPARED;
    n->job = j;
    srv_post(s, n);
}

static void *worker_main(void *arg)
{
    srv_server *s = arg;
    srv_job *j;

    while ((j = next_job(&s->work))) {
        if (!atomic_load(&j->cancelled) && !j->route->prepare(j, &j->error) && !j->error.http)
            srv_no_memory(&j->error);
        if (j->later)
            put(&s->disk, j);
        else
            post_prepared(s, j);
    }
    return NULL;
}

/* What was begun is ended, also when nobody waits for it any more. */
static void *disk_main(void *arg)
{
    srv_server *s = arg;
    srv_job *j;

    while ((j = next_job(&s->disk))) {
        if (!j->later(j, &j->error) && !j->error.http)
            srv_no_memory(&j->error);
        post_prepared(s, j);
    }
    return NULL;
}

static bool start(pthread_t *thread, void *(*run)(void *), srv_server *s)
{
    pthread_attr_t attr;
    bool ok;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    ok = !pthread_create(thread, &attr, run, s);
    pthread_attr_destroy(&attr);
    return ok;
}

static bool start_queue(srv_server *s, srv_queue *q, void *(*main)(void *arg))
{
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->there, NULL);
    q->started = start(&q->thread, main, s);
    return q->started;
}

static void end_queue(srv_queue *q)
{
    if (!q->started)
        return;
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_signal(&q->there);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
}

swl_status srv_threads_start(srv_server *s, swl_error *err)
{
    s->mail_last = &s->mail_first;
    pthread_mutex_init(&s->mail_lock, NULL);
    s->engine_started = start(&s->engine_thread, engine_main, s);
    if (s->engine_started && start_queue(s, &s->disk, disk_main) && start_queue(s, &s->work, worker_main))
        return SWL_OK;
    *err = (swl_error){.code = SWL_E_FAIL, .offset = -1, .message = "server: cannot start its threads"};
    return SWL_E_FAIL;
}

void srv_threads_stop(srv_server *s)
{
    atomic_store(&s->stop, true);
    end_queue(&s->work);
    end_queue(&s->disk); /* which the worker fills */
    if (s->engine_started) {
        if (s->loaded)
            swl_engine_wake(s->model.engine);
        pthread_join(s->engine_thread, NULL);
    }
}
