/*
 * job.c: from a prepared request to the end of its answer: admission, the engine's events put together into items, texts
 * that wait a moment to be sent together, signs of life, cancellation, faults. What bytes that makes is the encoder's.
 */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "metrics.h"

#define HEARTBEAT_SECONDS 12.0
#define SILENCE_SECONDS   20.0 /* of an answer in one piece, before it begins with a space; */
#define SPACE_SECONDS     10.0 /* and between spaces */
#define FLUSH_SECONDS     0.025
#define PROGRESS_SECONDS  0.1
#define QUEUE_SECONDS     1.0  /* between two notes about the place in line */

srv_job *srv_job_create(srv_conn *c)
{
    srv_job *j = calloc(1, sizeof *j);
    const char *coding = srv_header_get(&c->head, "content-encoding");

    if (!j)
        return NULL;
    j->server = c->server;
    j->route = c->route;
    j->path = strdup(c->head.path);
    j->query = strdup(c->head.query);
    j->prepared = calloc(1, sizeof *j->prepared);
    if (!j->path || !j->query || !j->prepared) {
        srv_job_free(j);
        return NULL;
    }
    j->conn = c;
    j->body = c->body;
    c->body = (srv_text){0};
    j->held = c->held;
    c->held = 0;
    j->gzip = coding && !strcasecmp(coding, "gzip");
    j->anthropic_version = srv_header_get(&c->head, "anthropic-version") != NULL;
    j->received = j->last_write = srv_now();
    j->created = (int64_t)time(NULL);
    j->answer.most = c->server->limits.held / 2;
    j->next = c->server->jobs;
    if (j->next)
        j->next->prev = j;
    c->server->jobs = j;
    return j;
}

static void free_choice(srv_choice *c)
{
    swl_request_free(c->request);
    for (int32_t i = 0; i < c->n_items; i++) {
        srv_text_free(&c->items[i].text);
        srv_text_free(&c->items[i].name);
    }
    free(c->items);
    free(c->stop);
    srv_note_free(c->last);
    srv_text_free(&c->logprobs);
    srv_text_free(&c->fresh_logprobs);
    for (int i = 0; i < 3; i++)
        srv_text_free(&c->more[i]);
}

void srv_job_free(srv_job *j)
{
    if (j->prev || j->server->jobs == j) {
        if (j->prev)
            j->prev->next = j->next;
        else
            j->server->jobs = j->next;
        if (j->next)
            j->next->prev = j->prev;
    }
    for (int32_t i = 0; i < j->n_choices; i++)
        free_choice(&j->choices[i]);
    free(j->choices);
    srv_note_free(j->prepared);
    atomic_fetch_sub(&j->server->held, j->held);
    srv_text_free(&j->body);
    srv_text_free(&j->ask.messages);
    srv_text_free(&j->ask.tools);
    srv_text_free(&j->ask.vars);
    srv_text_free(&j->ask.allowed);
    srv_text_free(&j->answer);
    srv_text_free(&j->pending);
    srv_text_free(&j->scratch);
    srv_doc_free(&j->doc);
    free(j->path);
    free(j->query);
    free(j->state);
    free(j);
}

srv_choice *srv_job_choice(srv_job *j)
{
    return &j->choices[j->at];
}

/* ---- writing ---- */

void srv_job_write(srv_job *j, const srv_text *t)
{
    if (!j->conn || !t->n)
        return;
    j->last_write = srv_now();
    srv_stream_write(j->conn, t->p, t->n, !j->flushing);
}

static void flush(srv_job *j)
{
    srv_item *it = j->pending_item;

    j->pending_item = NULL;
    if (!it || !j->pending.n)
        return;
    j->last_flush = srv_now();
    j->flushing = true;
    if (j->conn)
        j->encoder->delta(srv_job_choice(j), it, j->pending.p, j->pending.n);
    j->flushing = false;
    srv_text_clear(&j->pending);
}

void srv_jobs_flush(srv_server *s)
{
    s->flush_armed = false;
    for (srv_job *j = s->jobs; j; j = j->next) {
        if (j->pending_item)
            flush(j);
    }
}

/* The first text goes out at once; what follows within a moment waits for more. */
static void add_pending(srv_job *j, srv_item *it, const char *p, size_t n)
{
    srv_server *s = j->server;

    if (j->pending_item && j->pending_item != it)
        flush(j);
    j->pending_item = it;
    srv_add(&j->pending, p, n);
    if (srv_now() - j->last_flush >= FLUSH_SECONDS) {
        flush(j);
    } else if (!s->flush_armed) {
        s->flush_armed = true;
        srv_arm(s->flush, FLUSH_SECONDS);
    }
}

/* ---- the end ---- */

/* Nothing of the job is left anywhere but here. */
static void drop(srv_job *j)
{
    srv_conn *c = j->conn;

    if (c)
        c->job = NULL;
    j->conn = NULL;
    srv_job_free(j);
}

static void reply_error(srv_job *j, const srv_error *e)
{
    srv_conn *c = j->conn;

    j->ended = true;
    j->conn = NULL;
    if (!c)
        return;
    c->job = NULL;
    srv_reply_error(c, e);
}

/* Where the answer has begun the error is what comes of it, else it is the answer. */
static void fault(srv_job *j, const srv_error *e)
{
    srv_conn *c = j->conn;
    srv_text t = {0};

    if (!c || (!j->began_stream && !j->committed)) {
        reply_error(j, e);
        return;
    }
    flush(j);
    if (j->began_stream) {
        j->encoder->fault(j, e);
    } else {
        srv_error_json(&t, e, j->route->dialect, c->request_id);
        srv_job_write(j, &t);
    }
    srv_text_free(&t);
    j->ended = true;
    j->conn = NULL;
    c->job = NULL;
    c->close_after = true;
    srv_stream_end(c, true);
}

static void end_whole(srv_job *j)
{
    srv_conn *c = j->conn;

    srv_text_clear(&j->scratch);
    if (j->encoder)
        j->encoder->whole(j, &j->scratch);
    if (!c)
        return;
    if (j->committed && !j->scratch.failed)
        srv_job_write(j, &j->scratch);
    j->ended = true;
    j->conn = NULL;
    c->job = NULL;
    if (j->committed)
        srv_stream_end(c, !j->scratch.failed);
    else
        srv_reply_json(c, 200, NULL, &j->scratch);
}

static void end_stream(srv_job *j)
{
    srv_conn *c = j->conn;

    j->encoder->finish(j);
    c = j->conn; /* the last bytes may have been too many */
    j->ended = true;
    j->conn = NULL;
    if (!c)
        return;
    c->job = NULL;
    srv_stream_end(c, true);
}

static void complete(srv_job *j)
{
    if (!j->conn)
        return;
    if (j->ask.stream)
        end_stream(j);
    else
        end_whole(j);
}

/* ---- cancellation ---- */

void srv_job_cancel(srv_job *j)
{
    if (j->ended || atomic_exchange(&j->cancelled, true))
        return;
    srv_metrics_cancelled(j->server, j->phase);
    srv_log(j->server, true, "a client went away: %s",
            (const char *[]){"preparing", "queued", "prefill", "decode"}[j->phase]);
    if (j->is_prepared && j->n_choices && srv_job_choice(j)->submitted)
        swl_request_cancel(srv_job_choice(j)->request);
}

/* ---- admission ---- */

static bool submit(srv_job *j, srv_error *e)
{
    srv_choice *c = srv_job_choice(j);
    swl_error err = {0};

    c->last = calloc(1, sizeof *c->last);
    if (!c->last)
        return srv_no_memory(e);
    c->submitted = true;
    j->submitted = srv_now();
    j->phase = SRV_QUEUED;
    if (!swl_engine_submit(j->server->model.engine, c->request, &err))
        return true;
    c->submitted = false;
    return srv_library(e, &err, "");
}

static bool admit(srv_job *j, srv_error *e)
{
    srv_server *s = j->server;

    if (s->draining) {
        srv_fail(e, 503, "unavailable_error", NULL, "the server is shutting down");
        e->retry_after = 2;
        return false;
    }
    if (s->n_active >= s->model.parallel + s->opt.queue) {
        srv_fail(e, 429, "rate_limit_error", NULL, "%d requests are waiting already", (int)s->opt.queue);
        e->retry_after = 5;
        return false;
    }
    if (!submit(j, e))
        return false;
    j->admitted = true;
    s->n_active++;
    return true;
}

static void begin_stream(srv_job *j)
{
    srv_stream_begin(j->conn, j->encoder->content_type, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    j->began_stream = true;
    j->last_write = srv_now();
    if (j->conn)
        j->encoder->begin(j);
}

/* Answers that need no engine. */
static void reply_prepared(srv_job *j)
{
    srv_conn *c = j->conn;

    j->ended = true;
    j->conn = NULL;
    c->job = NULL;
    if (j->answer_type && !j->answer.failed)
        srv_reply(c, 200, j->answer_type, NULL, j->answer.p, j->answer.n);
    else
        srv_reply_json(c, 200, NULL, &j->answer);
}

void srv_job_prepared(srv_job *j)
{
    srv_error e = j->error;

    j->is_prepared = true;
    srv_text_free(&j->body);
    if (atomic_load(&j->cancelled) || !j->conn) {
        drop(j);
        return;
    }
    if (!e.http && !j->encoder && j->answer.failed)
        srv_invalid(&e, "", "the answer would be larger than the %zu bytes that there is memory for", j->answer.most);
    if (!e.http && !j->encoder) {
        reply_prepared(j);
    } else if (e.http || !admit(j, &e)) {
        reply_error(j, &e);
    } else {
        if (j->ask.stream)
            begin_stream(j);
        return;
    }
    drop(j);
}

/* ---- events ---- */

static srv_item *add_item(srv_choice *c, srv_item_kind kind)
{
    srv_item *grown = realloc(c->items, (size_t)(c->n_items + 1) * sizeof *grown);

    if (!grown)
        return NULL;
    c->items = grown;
    c->items[c->n_items] = (srv_item){.kind = kind};
    return &c->items[c->n_items++];
}

static void close_item(srv_choice *c)
{
    srv_job *j = c->job;
    srv_item *it = c->n_items ? &c->items[c->n_items - 1] : NULL;

    flush(j);
    if (!it || it->closed)
        return;
    it->closed = true;
    if (j->ask.stream && j->conn && j->encoder->close)
        j->encoder->close(c, it);
}

static srv_item *open_item(srv_choice *c, srv_item_kind kind, const srv_note *n)
{
    srv_item *it;

    close_item(c);
    it = add_item(c, kind);
    if (!it)
        return NULL;
    if (kind == SRV_ITEM_CALL) {
        srv_add(&it->name, n->text, n->n);
        snprintf(it->call_id, sizeof it->call_id, "%s", n->call_id);
    }
    if (c->job->ask.stream && c->job->conn && c->job->encoder->open)
        c->job->encoder->open(c, it);
    return it;
}

/* What an answer is collected to is bounded too; one that grows beyond ends. */
static void count_answer(srv_choice *c, size_t n)
{
    srv_job *j = c->job;

    j->n_answer += n;
    if (j->n_answer <= j->server->limits.answer || j->too_large)
        return;
    j->too_large = true;
    swl_request_cancel(c->request);
}

static void on_text(srv_choice *c, srv_item_kind kind, const srv_note *n)
{
    srv_job *j = c->job;
    srv_item *it = c->n_items ? &c->items[c->n_items - 1] : NULL;

    if (!n->n)
        return;
    if (!it || it->closed || it->kind != kind)
        it = open_item(c, kind, n);
    if (!it)
        return;
    srv_add(&it->text, n->text, n->n);
    count_answer(c, n->n);
    if (j->ask.stream)
        add_pending(j, it, n->text, n->n);
}

static void on_call_end(srv_choice *c, const srv_note *n)
{
    srv_item *it = c->n_items ? &c->items[c->n_items - 1] : NULL;

    if (!it || it->kind != SRV_ITEM_CALL || it->closed)
        return;
    flush(c->job);
    it->broken = n->broken;
    if (!n->broken)
        c->n_calls++;
    /* What was sent stays; a call in one piece is told as it was parsed. */
    if (!c->job->ask.stream && n->n) {
        srv_text_clear(&it->text);
        srv_add(&it->text, n->text, n->n);
    }
    close_item(c);
}

static void on_token(srv_choice *c, const srv_note *n)
{
    srv_job *j = c->job;

    c->n_tokens += !n->prompt;
    if (j->ask.logprobs && j->encoder->token) {
        size_t before = c->logprobs.n + c->fresh_logprobs.n + c->more[0].n + c->more[1].n + c->more[2].n;
        size_t after;

        j->encoder->token(c, n);
        after = c->logprobs.n + c->fresh_logprobs.n + c->more[0].n + c->more[1].n + c->more[2].n;
        count_answer(c, after > before ? after - before : 0);
    }
}

static void on_start(srv_choice *c, const srv_note *n)
{
    srv_job *j = c->job;

    c->started = true;
    j->phase = SRV_PREFILL;
    j->n_cached = j->n_done = n->n_done;
    j->n_total = n->n_total;
}

static void on_progress(srv_choice *c, const srv_note *n)
{
    srv_job *j = c->job;

    j->n_done = n->n_done;
    j->n_total = n->n_total;
    if (!j->ask.stream || !j->ask.return_progress || !j->encoder->progress || !j->conn)
        return;
    if (srv_now() - j->last_progress < PROGRESS_SECONDS && n->n_done < n->n_total)
        return;
    j->last_progress = srv_now();
    j->encoder->progress(j);
}

static void on_content(srv_choice *c, const srv_note *n)
{
    srv_job *j = c->job;

    j->phase = SRV_DECODE;
    if (j->first_token <= 0)
        j->first_token = srv_now();
    switch (n->event) {
    case SWL_EVENT_REASONING:
        on_text(c, SRV_ITEM_REASONING, n);
        break;
    case SWL_EVENT_TEXT:
        on_text(c, SRV_ITEM_TEXT, n);
        break;
    case SWL_EVENT_CALL_BEGIN:
        open_item(c, SRV_ITEM_CALL, n);
        break;
    case SWL_EVENT_CALL_ARGS:
        if (c->n_items && c->items[c->n_items - 1].kind == SRV_ITEM_CALL && !c->items[c->n_items - 1].closed)
            on_text(c, SRV_ITEM_CALL, n);
        break;
    default:
        on_call_end(c, n);
        break;
    }
}

/* One choice is over; the next one, or the end. */
static void on_finish(srv_choice *c, const srv_note *n)
{
    srv_job *j = c->job;
    srv_error e = {0};

    c->finished = true;
    c->finish = n->finish;
    c->usage = n->usage;
    c->stop = n->stop ? strdup(n->stop) : NULL;
    srv_metrics_usage(j->server, &n->usage);
    close_item(c);
    if (n->error) {
        srv_library(&e, n->error, "");
        if (e.http == 500) /* a drive or a file, not the request: whoever keeps the server wants to know */
            srv_log(j->server, false, "%s", e.message);
    } else if (j->too_large) {
        srv_fail(&e, 400, "invalid_request_error", NULL, "the answer became larger than the %zu bytes that there is memory for",
                 j->server->limits.answer);
    } else if (n->finish == SWL_FINISH_CANCELLED && j->conn) {
        srv_fail(&e, 503, "unavailable_error", NULL, "the answer was cancelled because the server is shutting down");
    }
    if (!e.http && j->conn) {
        if (j->ask.stream)
            j->encoder->end(c);
        if (j->conn && j->at + 1 < j->n_choices) {
            j->at++;
            c = srv_job_choice(j);
            if (submit(j, &e)) {
                if (j->ask.stream && j->encoder->start)
                    j->encoder->start(c);
                return;
            }
        }
    }
    if (e.http)
        fault(j, &e);
    else
        complete(j);
    j->server->n_active--;
    drop(j);
}

void srv_job_event(srv_job *j, srv_choice *c, const srv_note *n)
{
    switch (n->event) {
    case SWL_EVENT_START:
        on_start(c, n);
        break;
    case SWL_EVENT_PROGRESS:
        on_progress(c, n);
        break;
    case SWL_EVENT_TOKEN:
        on_token(c, n);
        break;
    case SWL_EVENT_FINISH:
        on_finish(c, n);
        break;
    default:
        if (j->conn)
            on_content(c, n);
        break;
    }
}

/* ---- signs of life ---- */

int32_t srv_job_place(const srv_job *j)
{
    int32_t place = 1;

    if (!j->admitted || j->phase != SRV_QUEUED)
        return 0;
    for (const srv_job *o = j->server->jobs; o; o = o->next)
        place += o != j && o->admitted && !o->ended && o->phase == SRV_QUEUED && o->submitted < j->submitted;
    return place;
}

bool srv_job_sign(srv_job *j)
{
    if (j->began_stream)
        j->encoder->heartbeat(j);
    else if (j->committed)
        srv_job_write(j, &(srv_text){.p = " ", .n = 1});
    return j->began_stream || j->committed;
}

static bool tells_place(const srv_job *j, double now)
{
    return j->phase == SRV_QUEUED && j->ask.return_progress && j->encoder->progress &&
           now - j->submitted > QUEUE_SECONDS && now - j->last_progress > QUEUE_SECONDS;
}

static void tick_one(srv_job *j, double now, double pulse)
{
    double silent, limit;

    if (!j->conn || !j->admitted) /* until then what was asked is the worker's to write */
        return;
    silent = (now - j->last_write) * pulse;
    limit = j->ask.heartbeat_ms > 0 ? 1e-3 * j->ask.heartbeat_ms : HEARTBEAT_SECONDS;
    if (j->began_stream) {
        if (tells_place(j, now)) {
            j->last_progress = now;
            j->encoder->progress(j);
        } else if (silent > limit) {
            srv_job_sign(j);
        }
        return;
    }
    if (silent < (j->committed ? SPACE_SECONDS : SILENCE_SECONDS))
        return;
    if (!j->committed)
        srv_stream_begin(j->conn, "application/json", NULL);
    j->committed = true;
    srv_job_sign(j);
}

void srv_jobs_tick(srv_server *s, double now)
{
    double pulse = s->opt.pulse > 0 ? s->opt.pulse : 1;

    for (srv_job *j = s->jobs; j; j = j->next)
        tick_one(j, now, pulse);
}
