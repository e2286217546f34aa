/*
 * transfer.c: see transfer.h. A stream is in one of three states:
 *
 *   idle      no file; takes the next missing part
 *   running   an exchange is on its way, perhaps the fifth of a chain of redirects
 *   waiting   the last attempt failed; the part goes on at its offset when the time has come
 *
 * What comes back is judged in one place (after_exchange). A part is never given back half-done: what came is noted in the
 * file's spans byte by byte, the rest is asked for again.
 */
#define _POSIX_C_SOURCE 200809L
#include "install/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

#define HOPS_MAX       5
#define FAILURES_MAX   6
#define TICK_MS        100
#define WHOLE_BYTES    (UINT64_C(64) << 20) /* files up to this come in one part */
#define SILENCE_MAX    600.0                /* seconds without a byte on any stream */
#define WAIT_MAX       60.0                 /* times retry_seconds */
#define RETRY_AFTER_MAX 600

typedef enum verdict { GOES_ON, PART_DONE, TRY_AGAIN, NEXT_BASE, FAILED } verdict;

typedef struct stream {
    swl_transfer *t;
    swl_exchange x;
    swl_fetch *f; /* NULL: idle, or an answer into memory */
    uint64_t begin, end, at;
    char *url;
    int hops;
    bool running, waiting, ignores_range, wrong_total, wrong_range, too_long, probe;
    double last_byte, wait_until;
    int n_failures; /* in a row, without a byte */
    /* Answers into memory. */
    char *text;
    size_t n_text;
    uint64_t n_max;
} stream;

/* Between a half and one; only spreads clients, so the clock's last digits do. */
static double jitter(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return 0.5 + (double)(ts.tv_nsec / 1000 % 1000) / 2000;
}

static void tell(const swl_transfer *t, swl_transfer_news what, const char *path, const char *text)
{
    if (t->news)
        t->news(t->arg, what, path, text);
}

static swl_status network(swl_error *err, const char *url, const char *fmt, const char *what)
{
    char shown[512];

    snprintf(shown, sizeof shown, "%.*s", swl_url_shown(url), url);
    swl_fail(err, SWL_E_NETWORK, fmt, shown, what);
    if (err)
        snprintf(err->file, sizeof err->file, "%s", shown);
    return SWL_E_NETWORK;
}

swl_status swl_transfer_refused(const swl_transfer *t, const char *url, int status, const char *what, swl_error *err)
{
    bool token = t->has_token && swl_http_gets_token(t->http, url);
    int n = swl_url_shown(url);

    if (status == 401 || status == 403)
        return swl_fail(err, SWL_E_NETWORK, "%.*s refuses %s with status %d; %s%s%s", n, url, what, status,
                        token ? "a token was sent, but it does not give access" : "no token was sent",
                        t->page ? ". Access is granted at " : "", t->page ? t->page : "");
    if (status == 404)
        return swl_fail(err, SWL_E_NOT_FOUND, "there is no %s: %.*s answers with status 404%s", what, n, url,
                        token || !t->page ? "" : " (it does so for private ones too, and no token was sent)");
    return swl_fail(err, SWL_E_NETWORK, "%.*s refuses %s with status %d", n, url, what, status);
}

/* ---- the answer ---------------------------------------------------------------------------------------------------- */

/* The status line and range of an answer that has a body for us. */
static bool fits(stream *s, const swl_exchange *x)
{
    swl_fetch *f = s->f;

    if (x->status == 206) {
        s->wrong_total = x->has_content_range && x->range_total != f->size;
        s->wrong_range = !x->has_content_range || x->range_begin != s->at || x->range_end != s->end;
        return !s->wrong_total && !s->wrong_range;
    }
    s->wrong_total = x->content_length >= 0 && (uint64_t)x->content_length != f->size;
    s->ignores_range = !s->wrong_total && s->at > 0;
    if (!s->at && !s->wrong_total)
        s->end = f->size;
    return !s->wrong_total && !s->ignores_range;
}

static swl_status protocol(const stream *s, swl_error *err, const char *what)
{
    return swl_fail(err, SWL_E_NETWORK, "%s", s->f ? what : "the answer is too long");
}

/* Body bytes of a file. */
static swl_status on_part(void *arg, swl_exchange *x, const uint8_t *data, size_t n, swl_error *err)
{
    stream *s = arg;
    swl_fetch *f = s->f;
    swl_status st;

    if (x->n_body == n && !fits(s, x))
        return protocol(s, err, "the answer is not what was asked for");
    if (n > s->end - s->at) {
        s->too_long = true;
        return protocol(s, err, "the answer is longer than asked for");
    }
    st = f->write(f->arg, s->at, data, n, err);
    if (st)
        return st;
    if (!swl_spans_add(&f->done, s->at, s->at + n))
        return swl_fail(err, SWL_E_NOMEM, "out of memory");
    s->at += n;
    s->t->n_received += n;
    s->last_byte = swl_seconds();
    s->n_failures = 0;
    return SWL_OK;
}

/* Body bytes into memory. */
static swl_status on_text(void *arg, swl_exchange *x, const uint8_t *data, size_t n, swl_error *err)
{
    stream *s = arg;
    char *p;

    (void)x;
    s->last_byte = swl_seconds();
    if (n > s->n_max - s->n_text) {
        s->too_long = true;
        return protocol(s, err, "");
    }
    p = swl_realloc(s->text, s->n_text + n + 1, 1);
    if (!p)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for an answer");
    s->text = p;
    memcpy(p + s->n_text, data, n);
    s->n_text += n;
    p[s->n_text] = 0;
    return SWL_OK;
}

/* ---- sending ------------------------------------------------------------------------------------------------------- */

static char *file_url(const swl_transfer *t, const swl_fetch *f)
{
    char *path = swl_url_encode(f->path, true);
    char *url = path ? swl_asprintf("%s%s", t->bases[f->base].url, path) : NULL;

    swl_free(path);
    return url;
}

static swl_status send_request(stream *s, swl_error *err)
{
    s->x.url = s->url;
    s->x.arg = s;
    s->x.sink = s->f ? on_part : on_text;
    s->x.ranged = s->probe || (s->f && !s->f->whole);
    s->x.begin = s->at;
    s->x.end = s->end;
    s->ignores_range = s->wrong_total = s->wrong_range = s->too_long = false;
    s->waiting = false;
    s->running = true;
    s->last_byte = swl_seconds();
    return swl_http_start(s->t->http, &s->x, err);
}

static swl_status send_to(stream *s, char *url, swl_error *err)
{
    if (!url)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a request");
    swl_http_reset(&s->x); /* may point to the old one */
    swl_free(s->url);
    s->url = url;
    return send_request(s, err);
}

/* From the start of the chain, or where the last chain ended. */
static swl_status send_first(stream *s, swl_error *err)
{
    s->hops = 0;
    if (!s->f)
        return send_request(s, err);
    if (s->f->target) {
        s->hops = 1;
        return send_to(s, swl_strdup(s->f->target), err);
    }
    return send_to(s, file_url(s->t, s->f), err);
}

static void release(stream *s)
{
    swl_http_reset(&s->x);
    if (s->f)
        s->f->n_active--;
    s->f = NULL;
    s->running = s->waiting = false;
    s->n_failures = 0;
}

/* ---- judging ------------------------------------------------------------------------------------------------------- */

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool may_pass(int status)
{
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

static swl_status follow(stream *s, swl_error *err)
{
    swl_origin from, to;
    char *url = s->x.location ? swl_url_resolve(s->url, s->x.location) : NULL;

    if (!url)
        return network(err, s->url, "%s redirects to no place that can be asked%s", "");
    if (++s->hops > HOPS_MAX) {
        swl_free(url);
        return network(err, s->url, "%s redirects more than 5 times%s", "");
    }
    if (swl_url_origin(s->url, &from) && swl_url_origin(url, &to) && from.https && !to.https) {
        swl_free(url);
        return network(err, s->url, "%s redirects from https to http, which is not followed%s", "");
    }
    return send_to(s, url, err);
}

static void wait_for(stream *s, double seconds)
{
    swl_http_reset(&s->x);
    s->running = false;
    s->waiting = true;
    s->wait_until = swl_seconds() + seconds;
}

/* A failure that may pass. FAILED when there were too many in a row. */
static verdict again(stream *s, const char *why, swl_error *err)
{
    const char *path = s->f ? s->f->path : s->url;
    double wait = s->t->retry_seconds;
    char text[400];

    if (++s->n_failures >= FAILURES_MAX) {
        char said[300];

        snprintf(said, sizeof said, "%s", why);
        network(err, s->url, "%s: %s, and trying again did not help", said);
        return s->f ? NEXT_BASE : FAILED;
    }
    if (s->f && s->n_failures > 1) { /* perhaps it is the place that the redirect led to */
        swl_free(s->f->target);
        s->f->target = NULL;
    }
    for (int i = 1; i < s->n_failures; i++)
        wait *= 2;
    if (wait > WAIT_MAX * s->t->retry_seconds)
        wait = WAIT_MAX * s->t->retry_seconds;
    wait *= jitter();
    if (s->x.retry_after >= 0 && (s->x.status == 429 || s->x.status == 503))
        wait = (double)(s->x.retry_after < RETRY_AFTER_MAX ? s->x.retry_after : RETRY_AFTER_MAX);
    snprintf(text, sizeof text, "%.250s; trying again in %.1f s", why, wait);
    tell(s->t, SWL_NEWS_RETRY, s->f ? path : NULL, text);
    wait_for(s, wait);
    return TRY_AGAIN;
}

static verdict give_up_base(const stream *s, swl_status st)
{
    return s->f ? NEXT_BASE : st ? FAILED : GOES_ON;
}

/* The answer came as a whole, or broke off; a local fault is dealt with already. */
static verdict judge_status(stream *s, swl_error *err)
{
    swl_exchange *x = &s->x;
    char what[64];

    if (s->probe && (x->status == 200 || x->status == 206))
        return PART_DONE;
    if (s->wrong_total || x->status == 416) {
        network(err, s->url, "%s has another length than its source's listing says; the file was changed%s", "");
        return give_up_base(s, SWL_E_NETWORK);
    }
    if (s->wrong_range)
        return again(s, "the answer is not the range that was asked for", err);
    if (s->too_long)
        return s->f ? again(s, "the answer is longer than asked for", err)
                    : (network(err, s->url, "%s is larger than any such file%s", ""), FAILED);
    if (x->bad_certificate) {
        network(err, s->url, "%s: %s", x->problem);
        return give_up_base(s, SWL_E_NETWORK);
    }
    if (x->problem[0])
        return again(s, x->problem, err);
    snprintf(what, sizeof what, "status %d", x->status);
    if (may_pass(x->status))
        return again(s, what, err);
    if (s->f && s->hops && (x->status == 401 || x->status == 403 || x->status == 404 || x->status == 410)) {
        swl_free(s->f->target); /* a signature that has run out: the endpoint gives a new one */
        s->f->target = NULL;
        if (++s->n_failures >= FAILURES_MAX) {
            network(err, s->url, "%s keeps refusing what the endpoint signed: %s", what);
            return NEXT_BASE;
        }
        wait_for(s, s->n_failures > 1 ? s->t->retry_seconds * jitter() : 0);
        return TRY_AGAIN;
    }
    if (!s->f)
        return PART_DONE; /* the caller looks at the status */
    if (x->status == 200 || x->status == 206)
        return again(s, "the connection ended early", err);
    snprintf(what, sizeof what, "the file %.50s", s->f->path);
    swl_transfer_refused(s->t, s->url, x->status, what, err);
    return NEXT_BASE;
}

/* Remembers the end of a chain of redirects that has proved right. */
static void keep_target(stream *s)
{
    if (s->hops && !s->f->target)
        s->f->target = swl_strdup(s->url);
}

static verdict after_exchange(stream *s, swl_error *err)
{
    bool broken = s->ignores_range || s->wrong_total || s->wrong_range || s->too_long;

    s->running = false;
    if (s->x.failed_locally && !broken) {
        if (err)
            *err = s->x.error;
        return FAILED;
    }
    if (is_redirect(s->x.status))
        return follow(s, err) ? (s->f ? NEXT_BASE : FAILED) : GOES_ON;
    if (s->f && s->at == s->end) {
        keep_target(s);
        return PART_DONE;
    }
    if (s->f && s->ignores_range) {
        s->f->whole = true;
        return PART_DONE; /* of this stream: the file begins anew on one */
    }
    return judge_status(s, err);
}

/* ---- parts --------------------------------------------------------------------------------------------------------- */

typedef struct run {
    swl_transfer *t;
    swl_fetch *files;
    int32_t n_files;
    stream *streams;
    int32_t n_streams, n_allowed;
    double last_byte; /* on any stream */
    uint64_t seen;    /* n_received then */
} run;

/* The next base that is not known to be bad, from `i` on. */
static int32_t next_base(const swl_transfer *t, int32_t i)
{
    while (i < t->n_bases && t->bases[i].dropped)
        i++;
    return i < t->n_bases ? i : -1;
}

static bool in_flight(const run *r, const swl_fetch *f, uint64_t at, uint64_t *end)
{
    for (int32_t i = 0; i < r->n_streams; i++) {
        const stream *s = &r->streams[i];

        if (s->f == f && at >= s->at && at < s->end) {
            *end = s->end;
            return true;
        }
    }
    return false;
}

/* The next range that is neither there nor on its way. */
static bool free_gap(const run *r, const swl_fetch *f, swl_span *gap)
{
    uint64_t from = 0;

    while (swl_spans_gap(&f->done, from, f->size, gap)) {
        if (in_flight(r, f, gap->begin, &from))
            continue;
        for (int32_t i = 0; i < r->n_streams; i++) {
            const stream *s = &r->streams[i];

            if (s->f == f && s->at > gap->begin && s->at < gap->end)
                gap->end = s->at;
        }
        return true;
    }
    return false;
}

static swl_status start_over(swl_fetch *f, swl_error *err)
{
    swl_status st = f->restart && f->done.n ? f->restart(f->arg, err) : SWL_OK;

    swl_spans_clear(&f->done);
    return st;
}

/* Gives `s` a part of `f` when there is one. */
static swl_status claim(run *r, stream *s, swl_fetch *f, swl_error *err)
{
    uint64_t part = r->t->part_bytes;
    swl_span gap;
    swl_status st = SWL_OK;

    if (((f->ordered || f->whole) && f->n_active) || !free_gap(r, f, &gap))
        return SWL_OK;
    if (f->whole && gap.begin) {
        st = start_over(f, err);
        gap.begin = 0;
    }
    if (st)
        return st;
    if (f->base < 0 || r->t->bases[f->base].dropped)
        f->base = next_base(r->t, 0);
    if (f->base < 0)
        return swl_fail(err, SWL_E_NETWORK, "no source serves the right bytes of %s", f->path);
    s->f = f;
    f->n_active++;
    s->begin = s->at = gap.begin;
    s->end = f->whole ? f->size : gap.end;
    if (!f->whole && (f->size > WHOLE_BYTES || part < WHOLE_BYTES) && s->end - s->begin > part)
        s->end = s->begin + part;
    return send_first(s, err);
}

static bool is_idle(const stream *s)
{
    return !s->f && !s->running && !s->waiting;
}

static int32_t n_busy(const run *r)
{
    int32_t n = 0;

    for (int32_t i = 0; i < r->n_streams; i++)
        n += !is_idle(&r->streams[i]);
    return n;
}

static swl_status hand_out(run *r, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < r->n_streams && !st && n_busy(r) < r->n_allowed; i++)
        for (int32_t k = 0; k < r->n_files && !st && is_idle(&r->streams[i]); k++)
            st = claim(r, &r->streams[i], &r->files[k], err);
    return st;
}

/* A place that cannot serve the file gives way to the next; *err says what was wrong with the last. */
static swl_status change_base(run *r, stream *s, swl_error *err)
{
    swl_fetch *f = s->f;
    int32_t next = next_base(r->t, f->base + 1);

    if (next < 0)
        return err ? err->code : SWL_E_NETWORK;
    tell(r->t, SWL_NEWS_SOURCE, f->path, err ? err->message : "");
    for (int32_t i = 0; i < r->n_streams; i++) /* the others would mix two places */
        if (&r->streams[i] != s && r->streams[i].f == f)
            release(&r->streams[i]);
    release(s);
    f->base = next;
    f->whole = false;
    swl_free(f->target);
    f->target = NULL;
    return start_over(f, err);
}

static swl_status settle(run *r, stream *s, swl_error *err)
{
    int status = s->x.status;
    verdict v = after_exchange(s, err);

    if ((status == 429 || status == 503) && v == TRY_AGAIN && r->n_allowed > 1)
        r->n_allowed = (r->n_allowed + 1) / 2;
    if (v == PART_DONE)
        release(s);
    if (v == NEXT_BASE)
        return change_base(r, s, err);
    return v == FAILED ? (err && err->code ? err->code : SWL_E_NETWORK) : SWL_OK;
}

static swl_status check_stall(stream *s, double now)
{
    char text[80];

    if (!s->running || s->x.finished || now - s->last_byte < s->t->stall_seconds)
        return SWL_OK;
    snprintf(text, sizeof text, "no byte for %.0f s; asking again", now - s->last_byte);
    tell(s->t, SWL_NEWS_STALL, s->f ? s->f->path : NULL, text);
    wait_for(s, 0);
    return SWL_OK;
}

static swl_status go_on(run *r, swl_error *err)
{
    swl_status st = SWL_OK;
    double now = swl_seconds();

    for (int32_t i = 0; i < r->n_streams && !st; i++) {
        stream *s = &r->streams[i];

        if (s->running && s->x.finished)
            st = settle(r, s, err);
        else if (s->waiting && now >= s->wait_until)
            st = send_first(s, err);
        else
            check_stall(s, now);
    }
    if (r->t->n_received != r->seen) {
        r->seen = r->t->n_received;
        r->last_byte = now;
    }
    if (!st && now - r->last_byte > SILENCE_MAX)
        st = swl_fail(err, SWL_E_NETWORK, "not a byte came in %.0f minutes", SILENCE_MAX / 60);
    return st;
}

static swl_status run_streams(run *r, swl_error *err)
{
    swl_error local = {0};
    swl_status st;

    err = err ? err : &local;
    r->last_byte = swl_seconds();
    do {
        st = hand_out(r, err);
        if (!st && !n_busy(r))
            break;
        if (!st)
            st = swl_http_run(r->t->http, TICK_MS, err);
        if (!st)
            st = go_on(r, err);
        if (!st)
            st = r->t->tick(r->t->arg, err);
    } while (!st);
    return st;
}

swl_status swl_transfer_run(swl_transfer *t, swl_fetch *files, int32_t n, swl_error *err)
{
    run r = {.t = t, .files = files, .n_files = n, .n_streams = t->n_streams, .n_allowed = t->n_streams,
             .seen = t->n_received};
    swl_status st = SWL_OK;

    r.streams = swl_calloc((size_t)r.n_streams, sizeof *r.streams);
    if (!r.streams)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %d streams", (int)t->n_streams);
    for (int32_t i = 0; i < r.n_streams; i++)
        r.streams[i].t = t;
    st = run_streams(&r, err);
    for (int32_t i = 0; i < r.n_streams; i++) {
        release(&r.streams[i]);
        swl_free(r.streams[i].url);
    }
    swl_free(r.streams);
    return st;
}

void swl_fetch_deinit(swl_fetch *f)
{
    swl_spans_free(&f->done);
    swl_free(f->target);
    f->target = NULL;
}

/* ---- small answers ------------------------------------------------------------------------------------------------- */

/* One step of a lone stream; *over: s->x holds the answer. */
static swl_status step_alone(stream *s, bool *over, swl_error *err)
{
    swl_status st = swl_http_run(s->t->http, TICK_MS, err);
    verdict v;

    if (!st && s->running && s->x.finished) {
        v = after_exchange(s, err);
        *over = v == PART_DONE;
        if (v == FAILED)
            st = err->code ? err->code : SWL_E_NETWORK;
    } else if (!st && s->waiting && swl_seconds() >= s->wait_until) {
        s->n_text = 0;
        st = send_first(s, err);
    } else if (!st) {
        check_stall(s, swl_seconds());
    }
    return st ? st : s->t->tick(s->t->arg, err);
}

static swl_status get_alone(stream *s, const char *url, swl_error *err)
{
    double since = swl_seconds();
    swl_status st = send_to(s, swl_strdup(url), err);
    bool over = false;

    while (!st && !over) {
        st = step_alone(s, &over, err);
        if (!st && s->waiting && strcmp(s->url, url)) { /* each attempt begins at the front of the chain */
            swl_free(s->url);
            s->url = swl_strdup(url);
            if (!s->url)
                st = swl_fail(err, SWL_E_NOMEM, "out of memory for a request");
        }
        if (!st && !over && swl_seconds() - since > SILENCE_MAX)
            st = network(err, url, "%s did not answer in 10 minutes%s", "");
    }
    return st;
}

swl_status swl_transfer_get(swl_transfer *t, const char *url, uint64_t n_max, char **text, size_t *n, char **next,
                            int *status, swl_error *err)
{
    stream s = {.t = t, .n_max = n_max};
    swl_error local = {0};
    swl_status st;

    *text = NULL;
    if (next)
        *next = NULL;
    st = get_alone(&s, url, err ? err : &local);
    *status = s.x.status;
    if (!st && s.x.status == 200) {
        *text = s.text ? s.text : swl_calloc(1, 1);
        *n = s.n_text;
        s.text = NULL;
        if (next && s.x.link_next)
            *next = swl_url_resolve(s.url, s.x.link_next);
        if (!*text)
            st = swl_fail(err, SWL_E_NOMEM, "out of memory for an answer");
    }
    swl_http_reset(&s.x);
    swl_free(s.text);
    swl_free(s.url);
    return st;
}

swl_status swl_transfer_size(swl_transfer *t, const char *url, uint64_t *size, int *status, swl_error *err)
{
    stream s = {.t = t, .n_max = 1, .end = 1, .probe = true};
    swl_error local = {0};
    swl_status st = get_alone(&s, url, err ? err : &local);

    *status = s.x.status;
    *size = UINT64_MAX;
    if (!st && s.x.status == 206 && s.x.has_content_range)
        *size = s.x.range_total;
    else if (!st && s.x.status == 200 && s.x.content_length >= 0)
        *size = (uint64_t)s.x.content_length;
    swl_http_reset(&s.x);
    swl_free(s.text);
    swl_free(s.url);
    return st;
}
