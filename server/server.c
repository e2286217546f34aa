/* server.c: the event thread: what comes by mail, clocks, signals, beginning and end. */
#include "srv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "job.h"
#include "metrics.h"

#define TICK_SECONDS 0.1

void swl_server_options_init(swl_server_options *opt)
{
    *opt = (swl_server_options){.host = "127.0.0.1", .port = 8080, .queue = 16, .max_body = 64 << 20, .grace_ms = 10000};
}

void srv_arm(struct event *timer, double seconds)
{
    struct timeval t = {(time_t)seconds, (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds))};

    evtimer_add(timer, &t);
}

double srv_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void srv_random_id(char *to, int n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[64] = {0};
    int at = 0;

    while (at < n) {
        evutil_secure_rng_get_bytes(random, sizeof random);
        for (size_t i = 0; i < sizeof random && at < n; i++) {
            if (random[i] < 248) /* 4 * 62: no letter is likelier than another */
                to[at++] = letters[random[i] % 62];
        }
    }
    to[n] = 0;
}

static void end_loop(srv_server *s)
{
    event_base_loopbreak(s->base);
}

/* ---- mail ---- */

static size_t between(uint64_t x, size_t least, size_t most)
{
    return x < least ? least : x > most ? most : (size_t)x;
}

/*
 * The shares of all that requests may take: a quarter for bodies and what they are parsed to; a half for the one that is being
 * made into a prompt, which takes up to 26 times its text; an eighth for answers that are collected; an eighth for what
 * clients did not read yet or sent too early.
 */
static void set_limits(srv_server *s)
{
    uint64_t all = s->model.request_bytes, n_answers = s->model.parallel > 4 ? (uint64_t)s->model.parallel : 4;
    size_t most = s->opt.max_body;

    if (!all)
        s->limits = (srv_limits){.body = most, .held = 4 * most, .answer = SIZE_MAX, .unread = 1 << 20, .ahead = 256 << 10};
    else
        s->limits = (srv_limits){.body = between(all / 64, 1, most), .held = (size_t)(all / 4), .answer = (size_t)(all / 8 / n_answers),
                                 .json_weight = (size_t)(all / 32 / sizeof(srv_json) * SRV_WEIGHT_OTHER),
                                 .unread = between(all / 16 / SRV_CONNECTIONS, 16 << 10, 1 << 20),
                                 .ahead = between(all / 16 / SRV_CONNECTIONS, 16 << 10, 256 << 10)};
}

/* The disk stays full for many conversations, and is told once. */
static void on_saved(void *arg, const swl_error *err)
{
    srv_server *s = arg;

    if (err && !s->unsaved)
        srv_log(s, false, "a conversation could not be saved: %s", err->message);
    else if (!err && s->unsaved)
        srv_log(s, false, "conversations can be saved again");
    s->unsaved = err != NULL;
    if (err && s->ending)
        s->lost = *err;
}

static void on_loaded(srv_server *s)
{
    s->loaded = true;
    set_limits(s);
    swl_model_info_get(s->model.model, &s->info);
    swl_template_info_get(s->model.engine, &s->template_info);
    s->sampling = s->model.sampling;
    for (int i = 0; i < 2; i++) {
        if (s->model.remarks[i][0])
            srv_log(s, false, "%s", s->model.remarks[i]);
    }
    if (s->opt.ready)
        s->opt.ready(s->opt.arg, s->url);
    srv_log(s, true, "serving %s as \"%s\"", s->model.dir, s->model.id);
}

static void on_fault(srv_server *s, const srv_note *n)
{
    s->end_status = n->error ? n->error->code : SWL_E_FAIL;
    if (n->error)
        s->end_error = *n->error;
    end_loop(s);
}

static void on_note(srv_server *s, srv_note *n)
{
    srv_job *j = n->job;

    switch (n->kind) {
    case SRV_NOTE_LOADED:
        on_loaded(s);
        break;
    case SRV_NOTE_FAULT:
        on_fault(s, n);
        break;
    case SRV_NOTE_PREPARED:
        srv_job_prepared(j);
        break;
    default:
        srv_job_event(j, srv_job_choice(j), n);
        break;
    }
    srv_note_free(n);
}

static srv_note *take_mail(srv_server *s)
{
    srv_note *first;

    pthread_mutex_lock(&s->mail_lock);
    first = s->mail_first;
    s->mail_first = NULL;
    s->mail_last = &s->mail_first;
    pthread_mutex_unlock(&s->mail_lock);
    return first;
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    srv_server *s = arg;
    char bytes[64];
    srv_note *n, *next;

    (void)what;
    while (read(fd, bytes, sizeof bytes) > 0)
        continue;
    for (n = take_mail(s); n; n = next) {
        next = n->next;
        on_note(s, n);
    }
}

/* ---- clocks and signals ---- */

static void tick_drain(srv_server *s, double now)
{
    if (!s->draining)
        return;
    if (now > s->drain_end && !s->cancelled_all) {
        s->cancelled_all = true;
        for (srv_job *j = s->jobs; j; j = j->next) {
            if (j->admitted && srv_job_choice(j)->submitted)
                swl_request_cancel(srv_job_choice(j)->request);
        }
    }
    if ((!s->jobs && !srv_conns_writing(s)) || now > s->drain_end + 5)
        end_loop(s);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    srv_server *s = arg;
    double now = srv_now();

    (void)fd, (void)what;
    srv_jobs_tick(s, now);
    srv_conns_tick(s, now);
    tick_drain(s, now);
    if (s->conns || s->jobs || s->draining)
        srv_arm(s->tick, TICK_SECONDS);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    srv_jobs_flush(arg);
}

/* The first signal asks, the second one insists. */
static void on_signal(evutil_socket_t number, short what, void *arg)
{
    srv_server *s = arg;
    double grace = 1e-3 * s->opt.grace_ms;

    (void)what;
    if (!s->loaded) {
        s->end_status = SWL_E_CANCELLED;
        srv_stop_listening(s);
        _exit(128 + (int)number); /* nothing is lost, and loading cannot be stopped */
    }
    s->drain_end = srv_now() + (s->draining ? 0 : grace);
    if (!s->draining)
        srv_log(s, true, "ending: running answers have %.0f seconds", grace);
    s->draining = true;
    srv_stop_listening(s);
    srv_arm(s->tick, 0);
}

/* ---- beginning and end ---- */

static swl_status no_memory(swl_error *err)
{
    *err = (swl_error){.code = SWL_E_NOMEM, .offset = -1, .message = "server: out of memory"};
    return SWL_E_NOMEM;
}

static swl_status open_mail(srv_server *s, swl_error *err)
{
    if (pipe(s->mail_fd)) {
        *err = (swl_error){.code = SWL_E_IO, .os_errno = errno, .offset = -1, .message = "server: no pipe"};
        return SWL_E_IO;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(s->mail_fd[i], F_SETFL, O_NONBLOCK);
        fcntl(s->mail_fd[i], F_SETFD, FD_CLOEXEC);
    }
    return SWL_OK;
}

static swl_status open_events(srv_server *s, swl_error *err)
{
    s->mail = event_new(s->base, s->mail_fd[0], EV_READ | EV_PERSIST, on_mail, s);
    s->tick = evtimer_new(s->base, on_tick, s);
    s->flush = evtimer_new(s->base, on_flush, s);
    s->term = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->interrupt = evsignal_new(s->base, SIGINT, on_signal, s);
    if (!s->mail || !s->tick || !s->flush || !s->term || !s->interrupt)
        return no_memory(err);
    event_add(s->mail, NULL);
    event_add(s->term, NULL);
    event_add(s->interrupt, NULL);
    return SWL_OK;
}

static void free_event(struct event *e)
{
    if (e)
        event_free(e);
}

static void close_all(srv_server *s)
{
    srv_note *next;

    for (srv_conn *c = s->conns; c; c = c->next)
        srv_conn_destroy(c);
    srv_conns_tick(s, srv_now()); /* buries them */
    for (srv_note *n = s->mail_last ? take_mail(s) : NULL; n; n = next) {
        next = n->next;
        srv_note_free(n);
    }
    while (s->jobs) /* no thread is left that could know of one */
        srv_job_free(s->jobs);
    srv_stop_listening(s);
    free_event(s->mail);
    free_event(s->tick);
    free_event(s->flush);
    free_event(s->term);
    free_event(s->interrupt);
    if (s->base)
        event_base_free(s->base);
    for (int i = 0; i < 2; i++) {
        if (s->mail_fd[i] >= 0)
            close(s->mail_fd[i]);
    }
    srv_metrics_free(s->metrics);
}

/* Requests that still run when the engine is about to be closed: it has to let go of them first. */
static void abandon(srv_server *s)
{
    swl_error err;
    bool busy = true;

    for (srv_job *j = s->jobs; j; j = j->next) {
        atomic_store(&j->cancelled, true);
        if (j->admitted && srv_job_choice(j)->submitted && !srv_job_choice(j)->finished)
            swl_request_cancel(srv_job_choice(j)->request);
    }
    for (int i = 0; i < 100000 && busy && s->n_active; i++) {
        if (swl_engine_step(s->model.engine, &busy, &err))
            break;
    }
}

static swl_status run(srv_server *s, swl_error *err)
{
    swl_status st;

    s->mail_fd[0] = s->mail_fd[1] = -1;
    s->base = event_base_new();
    s->metrics = srv_metrics_create();
    if (!s->base || !s->metrics)
        return no_memory(err);
    st = srv_listen(s, err);
    if (!st)
        st = open_mail(s, err);
    if (!st)
        st = open_events(s, err);
    if (!st)
        st = srv_threads_start(s, err);
    if (st)
        return st;
    event_base_dispatch(s->base);
    *err = s->end_error;
    return s->end_status;
}

swl_status swl_server_run(const swl_server_options *opt, swl_error *err)
{
    srv_server *s = calloc(1, sizeof *s);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    swl_status st;

    if (!s)
        return no_memory(err);
    s->opt = *opt;
    s->model.on_saved = on_saved;
    s->model.saved_arg = s;
    set_limits(s);
    s->created = (int64_t)time(NULL);
    snprintf(s->build, sizeof s->build, "swiftlet-%s%s%s", swl_version(), opt->commit && *opt->commit ? "-" : "",
             opt->commit ? opt->commit : "");
    sigaction(SIGPIPE, &ignore, &before); /* a client that went away is an event like others */
    srv_log_start(s);
    st = run(s, err);
    srv_threads_stop(s);
    if (s->loaded)
        abandon(s);
    close_all(s);
    s->ending = true;
    if (opt->unload)
        opt->unload(opt->arg);
    if (!st && s->lost.code) {
        *err = s->lost;
        snprintf(err->message, sizeof err->message, "a conversation in memory could not be saved: %.700s", s->lost.message);
        st = err->code;
    }
    srv_log_end(s);
    sigaction(SIGPIPE, &before, NULL);
    free(s);
    return st;
}
