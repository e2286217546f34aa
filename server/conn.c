/*
 * conn.c: connections. Bytes in become a head and a body, one request at a time; answers go out whole or in pieces.
 *
 *   READ_HEAD -> READ_BODY -> BUSY -> READ_HEAD ...      BUSY: a job or a handler owes the answer
 *                                  -> LINGER             what is still to be written, then the end
 *
 * Reading never stops, so that a client that goes away is noticed in every state. One that closes its side behind whole requests
 * (`ended`) may still want their answers: see on_end. A connection that is over (DEAD) stays in memory until the next tick, because a
 * callback may be on the stack.
 */
#include "srv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "job.h"
#include "metrics.h"

#define HEAD_SECONDS  10
#define IDLE_SECONDS  60
#define LINGER_SECONDS 2
#define DEAF_SECONDS  60 /* between two lines of the log */

static void input(srv_conn *c);

bool srv_conn_is_head(const srv_conn *c)
{
    return c->head.method && !strcmp(c->head.method, "HEAD");
}

static void set_state(srv_conn *c, srv_conn_state state)
{
    c->state = state;
    c->head_begun = false;
    c->since = c->last_read = srv_now();
}

static void free_request(srv_conn *c)
{
    atomic_fetch_sub(&c->server->held, c->held);
    c->held = 0;
    srv_head_free(&c->head);
    srv_text_free(&c->body);
    c->chunks = (srv_chunks){0};
    c->route = NULL;
}

/* Large pieces of what is not sent yet count as the server's memory, like bodies; each connection has a share for small ones. */
static bool hold_unsent(srv_conn *c, size_t n)
{
    srv_server *s = c->server;

    if (n <= s->limits.unread / 4)
        return true;
    if (atomic_load(&s->held) + n > s->limits.held)
        return false;
    atomic_fetch_add(&s->held, n);
    c->unsent += n;
    return true;
}

static void release_unsent(srv_conn *c)
{
    atomic_fetch_sub(&c->server->held, c->unsent);
    c->unsent = 0;
}

/* Once for each answer, when its last byte is written or nobody is there to read it. */
static void note_request(srv_conn *c)
{
    double seconds = srv_now() - c->began;
    const char *label = c->route ? c->route->label : "other";

    if (!c->http)
        return;
    srv_metrics_request(c->server, label, c->http, seconds);
    srv_log(c->server, true, "%s %s %d %.3f s", c->head.method ? c->head.method : "-", label, c->http, seconds);
    c->http = 0;
}

void srv_conn_destroy(srv_conn *c)
{
    srv_server *s = c->server;
    srv_job *j = c->job;

    if (c->state == SRV_DEAD)
        return;
    note_request(c);
    c->state = SRV_DEAD;
    c->job = NULL;
    if (j) {
        j->conn = NULL;
        srv_job_cancel(j);
    }
    free_request(c);
    release_unsent(c);
    if (c->bev)
        bufferevent_free(c->bev);
    c->bev = NULL;
    s->n_conns--;
}

/* Frees what srv_conn_destroy left. */
static void bury(srv_server *s)
{
    for (srv_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (c->state != SRV_DEAD)
            continue;
        if (c->prev)
            c->prev->next = c->next;
        else
            s->conns = c->next;
        if (c->next)
            c->next->prev = c->prev;
        free(c);
    }
}

/* ---- answers ---- */

static const char *reason(int http)
{
    switch (http) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
    }
}

/* SDKs try again on 408, 409, 429 and 5xx unless they are told not to. */
static bool is_final(int http)
{
    return (http >= 400 && http < 500 && http != 408 && http != 429) || http == 501 || http == 505;
}

static void put_head(srv_conn *c, srv_text *t, int http, const char *type, const char *more)
{
    char date[64];
    time_t now = time(NULL);
    struct tm tm;

    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    srv_printf(t, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: swiftlet\r\nX-Content-Type-Options: nosniff\r\n", http, reason(http), date);
    srv_printf(t, "x-request-id: %s\r\n", c->request_id);
    if (is_final(http))
        srv_puts(t, "x-should-retry: false\r\n");
    if (type)
        srv_printf(t, "Content-Type: %s\r\n", type);
    srv_guard_headers(c, t);
    if (more)
        srv_puts(t, more);
    srv_printf(t, "Connection: %s\r\n", c->close_after ? "close" : "keep-alive");
}

static void end_answer(srv_conn *c)
{
    if (c->state == SRV_DEAD)
        return;
    note_request(c);
    c->job = NULL;
    free_request(c);
    set_state(c, c->close_after ? SRV_LINGER : SRV_READ_HEAD);
    if (c->close_after && !evbuffer_get_length(bufferevent_get_output(c->bev)))
        shutdown(c->fd, SHUT_WR);
    input(c);
}

static void write_bytes(srv_conn *c, const char *p, size_t n)
{
    c->last_write = srv_now();
    if (n)
        bufferevent_write(c->bev, p, n);
}

void srv_reply(srv_conn *c, int http, const char *type, const char *more, const void *body, size_t n)
{
    srv_text t = {0};
    srv_error e = {0};

    if (c->state == SRV_DEAD)
        return;
    if (!srv_conn_is_head(c) && !hold_unsent(c, n)) {
        srv_fail(&e, 503, "unavailable_error", NULL, "too many large answers at a time");
        e.retry_after = 2;
        srv_reply_error(c, &e);
        return;
    }
    if (c->state != SRV_BUSY) /* before the body was read: where the next request begins is not known */
        c->close_after = true;
    if (c->head.method && !c->head.keep_alive)
        c->close_after = true;
    if (c->server->draining)
        c->close_after = true;
    put_head(c, &t, http, type, more);
    if (http != 204 && http != 304)
        srv_printf(&t, "Content-Length: %zu\r\n", n);
    srv_puts(&t, "\r\n");
    if (t.failed) {
        srv_conn_destroy(c);
    } else {
        write_bytes(c, t.p, t.n);
        if (!srv_conn_is_head(c))
            write_bytes(c, body, n);
        c->http = http;
        end_answer(c);
    }
    srv_text_free(&t);
}

void srv_reply_json(srv_conn *c, int http, const char *more, const srv_text *t)
{
    srv_error e = {0};

    if (t->failed) {
        srv_no_memory(&e);
        srv_reply_error(c, &e);
        return;
    }
    srv_reply(c, http, "application/json", more, t->p, t->n);
}

/* Also of what is not there, which Ollama's clients want to read too. */
static srv_dialect dialect_of(const srv_conn *c)
{
    if (c->route)
        return c->route->dialect;
    return c->server->opt.ollama && c->head.path && !strncmp(c->head.path, "/api/", 5) ? SRV_OLLAMA : SRV_OPENAI;
}

void srv_reply_error(srv_conn *c, const srv_error *e)
{
    srv_text t = {0};
    char more[128] = "";
    int n = 0;

    if (e->http == 401)
        n = snprintf(more, sizeof more, "WWW-Authenticate: Bearer\r\n");
    if (e->retry_after)
        n += snprintf(more + n, sizeof more - (size_t)n, "Retry-After: %d\r\n", e->retry_after);
    if (e->http == 405)
        snprintf(more + n, sizeof more - (size_t)n, "Allow: %s\r\n", e->code ? e->code : "GET");
    srv_error_json(&t, e, dialect_of(c), c->request_id);
    if (t.failed)
        srv_conn_destroy(c);
    else
        srv_reply(c, e->http, "application/json", more, t.p, t.n);
    srv_text_free(&t);
}

void srv_stream_begin(srv_conn *c, const char *type, const char *more)
{
    srv_text t = {0};

    if (c->state == SRV_DEAD)
        return;
    c->chunked_out = c->head.minor == 1;
    if (!c->chunked_out || !c->head.keep_alive)
        c->close_after = true;
    put_head(c, &t, 200, type, more);
    if (c->chunked_out)
        srv_puts(&t, "Transfer-Encoding: chunked\r\n");
    srv_puts(&t, "\r\n");
    if (t.failed)
        srv_conn_destroy(c);
    else
        write_bytes(c, t.p, t.n);
    srv_text_free(&t);
    c->http = c->state == SRV_DEAD ? 0 : 200;
}

void srv_stream_write(srv_conn *c, const char *p, size_t n, bool repeats)
{
    char size[24];

    if (c->state == SRV_DEAD || !n)
        return;
    if (repeats && !hold_unsent(c, n)) {
        srv_log(c->server, true, "a client is dropped: there is no memory for %zu bytes that it has not read yet", n);
        srv_conn_destroy(c);
        return;
    }
    if (c->chunked_out) {
        snprintf(size, sizeof size, "%zx\r\n", n);
        write_bytes(c, size, strlen(size));
    }
    write_bytes(c, p, n);
    if (c->chunked_out)
        write_bytes(c, "\r\n", 2);
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) > c->server->limits.unread + c->unsent + n) {
        srv_log(c->server, true, "a client left %zu bytes unread and is dropped", c->server->limits.unread);
        srv_conn_destroy(c);
    }
}

void srv_stream_end(srv_conn *c, bool whole)
{
    if (c->state == SRV_DEAD)
        return;
    if (!whole)
        c->close_after = true;
    if (whole && c->chunked_out)
        write_bytes(c, "0\r\n\r\n", 5);
    if (c->server->draining)
        c->close_after = true;
    end_answer(c);
}

/* ---- requests ---- */

static void refuse(srv_conn *c, int http, const char *message)
{
    srv_error e = {0};

    srv_fail(&e, http, http == 501 ? "not_supported_error" : http == 503 ? "unavailable_error" : "invalid_request_error", NULL, "%s",
             message);
    c->close_after = true;
    if (c->state == SRV_READ_HEAD)
        c->began = c->since; /* what came so far is all there will be of it */
    srv_reply_error(c, &e);
}

static void dispatch(srv_conn *c)
{
    srv_error e = {0};

    set_state(c, SRV_BUSY);
    if (c->route->handle) {
        c->route->handle(c);
        return;
    }
    c->job = srv_job_create(c);
    if (!c->job) {
        srv_no_memory(&e);
        srv_reply_error(c, &e);
        return;
    }
    srv_work(c->server, c->job);
}

static bool check_content(srv_conn *c, srv_error *e)
{
    const char *type = srv_header_get(&c->head, "content-type"), *coding = srv_header_get(&c->head, "content-encoding");

    if (strcmp(c->head.method, "POST"))
        return true;
    if (!type && srv_header_get(&c->head, "origin"))
        return srv_fail(e, 415, "invalid_request_error", NULL, "a page has to send Content-Type: application/json");
    if (type && (strncasecmp(type, "application/json", 16) || (type[16] && !strchr("; \t", type[16]))))
        return srv_fail(e, 415, "invalid_request_error", NULL, "Content-Type has to be application/json");
    if (coding && strcasecmp(coding, "identity") && strcasecmp(coding, "gzip"))
        return srv_fail(e, 415, "invalid_request_error", NULL, "the only Content-Encoding is gzip");
    if (c->head.has_length && c->head.length > c->server->limits.body)
        return srv_fail(e, 413, "invalid_request_error", NULL, "the body has %llu bytes, more than the %zu that are taken",
                        (unsigned long long)c->head.length, c->server->limits.body);
    return true;
}

static bool find_route(srv_conn *c, srv_error *e)
{
    static const struct { unsigned bit; const char *name; } names[] = {{SRV_GET, "GET, HEAD"}, {SRV_POST, "POST"}, {SRV_DELETE, "DELETE"}};
    static _Thread_local char allow[64];
    unsigned allowed;

    c->route = srv_route_find(c->server, c->head.path, c->head.method, &allowed);
    if (c->route)
        return true;
    if (!allowed)
        return srv_fail(e, 404, "not_found_error", NULL, "there is nothing at this path");
    allow[0] = 0;
    for (int i = 0; i < 3; i++) {
        if (allowed & names[i].bit) {
            strcat(allow, allow[0] ? ", " : "");
            strcat(allow, names[i].name);
        }
    }
    strcat(allow, ", OPTIONS");
    srv_fail(e, 405, "invalid_request_error", NULL, "this path takes %s", allow);
    e->code = allow;
    return false;
}

static bool check_ready(srv_conn *c, srv_error *e)
{
    srv_server *s = c->server;

    if (c->route->without_model || (s->loaded && !s->draining))
        return true;
    srv_fail(e, 503, "unavailable_error", NULL, s->draining ? "the server is shutting down" : "the model is being loaded");
    e->retry_after = 2;
    return false;
}

static void begin_request(srv_conn *c)
{
    srv_error e = {0};
    bool is_options = !strcmp(c->head.method, "OPTIONS");

    c->began = srv_now();
    if (!srv_guard(c, &e)) {
        srv_reply_error(c, &e);
        return;
    }
    if (is_options && !c->head.chunked && !c->head.length) {
        set_state(c, SRV_BUSY);
        srv_preflight(c);
        return;
    }
    if (!find_route(c, &e) || !check_ready(c, &e) || !check_content(c, &e)) {
        if (!c->head.chunked && !c->head.length)
            set_state(c, SRV_BUSY); /* nothing follows: the connection can go on */
        srv_reply_error(c, &e);
        return;
    }
    if (!c->head.chunked && !c->head.length) {
        dispatch(c);
        return;
    }
    if (c->head.expects_continue)
        write_bytes(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    set_state(c, SRV_READ_BODY);
}

/* True: there may be more to do. */
static bool read_head(srv_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t n = evbuffer_get_length(in), skip = 0, end;
    srv_head_fault fault = {0};
    const char *p;

    if (!n)
        return false;
    if (!c->head_begun) /* the first byte of a request starts its clock */
        c->since = c->last_read;
    c->head_begun = true;
    n = n < SRV_HEAD_BYTES + 16 ? n : SRV_HEAD_BYTES + 16;
    p = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    end = p ? srv_head_find(p, n, &skip) : 0;
    snprintf(c->request_id, sizeof c->request_id, "req_");
    srv_random_id(c->request_id + 4, SRV_ID);
    if (!end || end - skip > SRV_HEAD_BYTES) {
        if (n >= SRV_HEAD_BYTES || end)
            refuse(c, 431, "the request's head is longer than 32 kB");
        return false;
    }
    c->origin[0] = 0;
    if (!srv_head_parse(&c->head, p + skip, end - skip, &fault)) {
        refuse(c, fault.http, fault.message);
        return false;
    }
    evbuffer_drain(in, end);
    begin_request(c);
    return true;
}

static bool body_room(srv_conn *c, size_t n)
{
    srv_server *s = c->server;
    srv_error e = {0};

    if (c->body.n + n > s->limits.body) {
        refuse(c, 413, "the body is larger than what is taken");
        return false;
    }
    if (atomic_load(&s->held) + n > s->limits.held) {
        srv_fail(&e, 503, "unavailable_error", NULL, "too many large requests at a time");
        e.retry_after = 2;
        srv_reply_error(c, &e);
        return false;
    }
    atomic_fetch_add(&s->held, n);
    c->held += n;
    return true;
}

static bool take_body(srv_conn *c, const char *p, size_t n)
{
    if (!body_room(c, n))
        return false;
    srv_add(&c->body, p, n);
    if (c->body.failed) {
        refuse(c, 503, "out of memory");
        return false;
    }
    return true;
}

static bool read_body(srv_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec v;
    srv_head_fault fault = {0};
    const char *data;
    size_t n_data, n;

    while (evbuffer_get_length(in)) {
        if (evbuffer_peek(in, -1, NULL, &v, 1) < 1)
            return false;
        if (c->head.chunked) {
            n = srv_chunks_push(&c->chunks, v.iov_base, v.iov_len, &data, &n_data, &fault);
            if (fault.http) {
                refuse(c, fault.http, fault.message);
                return false;
            }
        } else {
            n = n_data = v.iov_len < c->head.length - c->body.n ? v.iov_len : (size_t)(c->head.length - c->body.n);
            data = v.iov_base;
        }
        if (n_data && !take_body(c, data, n_data))
            return false;
        evbuffer_drain(in, n);
        if (c->head.chunked ? c->chunks.done : c->body.n == c->head.length) {
            dispatch(c);
            return true;
        }
    }
    return false;
}

/* Answers may be written inside; then the loop goes on with what was sent ahead. */
static void input(srv_conn *c)
{
    bool more = true;

    if (c->in_callback)
        return;
    c->in_callback = true;
    while (more && (c->state == SRV_READ_HEAD || c->state == SRV_READ_BODY))
        more = c->state == SRV_READ_HEAD ? read_head(c) : read_body(c);
    c->in_callback = false;
    if (c->ended && (c->state == SRV_READ_HEAD || c->state == SRV_READ_BODY))
        set_state(c, SRV_LINGER); /* what there is of this request is all of it */
    if (c->state == SRV_BUSY && evbuffer_get_length(bufferevent_get_input(c->bev)) > c->server->limits.ahead)
        c->close_after = true; /* more than is kept: nothing behind this request will be answered */
    if (c->state == SRV_LINGER || (c->state == SRV_BUSY && c->close_after))
        evbuffer_drain(bufferevent_get_input(c->bev), evbuffer_get_length(bufferevent_get_input(c->bev)));
}

static void on_read(struct bufferevent *bev, void *arg)
{
    srv_conn *c = arg;

    (void)bev;
    c->last_read = srv_now();
    input(c);
}

/* Everything is written. */
static void on_write(struct bufferevent *bev, void *arg)
{
    srv_conn *c = arg;

    (void)bev;
    c->last_write = srv_now();
    release_unsent(c);
    if (c->state != SRV_LINGER)
        return;
    shutdown(c->fd, SHUT_WR);
    c->since = srv_now();
}

/* The client sends nothing more. If it is gone altogether, what is sent to it now comes back as an error, for which each tick
 * looks; if not, it gets its answer. False: there is nothing that could be sent ahead of that. */
static bool on_end(srv_conn *c)
{
    if (!c->job || !(srv_job_sign(c->job) || (!c->http && c->head.minor == 1)))
        return false;
    if (c->state != SRV_DEAD && !c->http)
        write_bytes(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    c->ended = true;
    if (!evbuffer_get_length(bufferevent_get_input(c->bev)))
        c->close_after = true;
    return true;
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    srv_conn *c = arg;

    if (what & BEV_EVENT_CONNECTED)
        return;
    /* Whoever closes its side after a request that is answered already still gets the answer. */
    if ((what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING) && !c->job && evbuffer_get_length(bufferevent_get_output(bev))) {
        c->close_after = true;
        set_state(c, SRV_LINGER);
        return;
    }
    if ((what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING) && on_end(c))
        return;
    srv_conn_destroy(c);
}

/* The one that was kept open longest behind its last answer, or NULL: new ones stand in front. */
static srv_conn *oldest_idle(const srv_server *s)
{
    srv_conn *idle = NULL;

    for (srv_conn *at = s->conns; at; at = at->next) {
        if (at->state == SRV_READ_HEAD && at->began && !evbuffer_get_length(bufferevent_get_input(at->bev)))
            idle = at;
    }
    return idle;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int n_address, void *arg)
{
    srv_server *s = arg;
    srv_conn *c = calloc(1, sizeof *c), *idle;
    int one = 1, size = 256 << 10;

    (void)listener;
    (void)address;
    (void)n_address;
    if (c)
        c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c || !c->bev) {
        evutil_closesocket(fd);
        free(c);
        return;
    }
    if (!s->is_unix)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* what the system takes from us is not read yet either */
    idle = s->n_conns >= SRV_CONNECTIONS ? oldest_idle(s) : NULL;
    if (idle)
        srv_conn_destroy(idle);
    c->server = s;
    c->fd = fd;
    c->next = s->conns;
    if (s->conns)
        s->conns->prev = c;
    s->conns = c;
    s->n_conns++;
    set_state(c, SRV_READ_HEAD);
    c->last_write = c->since;
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_set_max_single_read(c->bev, 256 << 10);
    bufferevent_set_max_single_write(c->bev, 256 << 10);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    if (s->n_conns > SRV_CONNECTIONS)
        refuse(c, 503, "too many connections");
    if (!evtimer_pending(s->tick, NULL))
        srv_arm(s->tick, 0.1);
}

/* The system has no room for one, as a rule because there are too many open files. It waits in the system's line, and is asked for
 * again at the next tick: the listener would say it without end. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    int why = EVUTIL_SOCKET_ERROR();
    srv_server *s = arg;
    srv_conn *idle = oldest_idle(s);
    double now = srv_now();

    evconnlistener_disable(listener);
    s->deaf = true;
    if (idle)
        srv_conn_destroy(idle);
    if (!s->deaf_told || now - s->deaf_told > DEAF_SECONDS) {
        srv_log(s, false, "a client has to wait, because its connection cannot be accepted: %s", evutil_socket_error_to_string(why));
        s->deaf_told = now;
    }
    if (!evtimer_pending(s->tick, NULL))
        srv_arm(s->tick, 0.1);
}

/* ---- clocks ---- */

/* What was sent to a client that had ended its side came back: nobody reads it. */
static bool is_refused(const srv_conn *c)
{
    int code = 0;
    socklen_t n = sizeof code;

    return c->ended && (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &code, &n) || code);
}

static void tick_one(srv_conn *c, double now, double hurry)
{
    bool is_new = !c->began, has_input = evbuffer_get_length(bufferevent_get_input(c->bev)) > 0;
    bool unsent = evbuffer_get_length(bufferevent_get_output(c->bev)) > 0;

    if (is_refused(c)) {
        srv_conn_destroy(c);
    } else if (unsent && (now - c->last_write) * hurry > IDLE_SECONDS) {
        srv_conn_destroy(c);
    } else if (c->state == SRV_READ_HEAD && has_input && (now - c->since) * hurry > HEAD_SECONDS) {
        refuse(c, 408, "the request's head took too long");
    } else if (c->state == SRV_READ_HEAD && !has_input && !unsent &&
               (now - c->since) * hurry > (is_new ? HEAD_SECONDS : IDLE_SECONDS)) {
        srv_conn_destroy(c);
    } else if (c->state == SRV_READ_BODY && (now - c->last_read) * hurry > IDLE_SECONDS) {
        refuse(c, 408, "the request's body took too long");
    } else if (c->state == SRV_LINGER && !unsent && (c->ended || now - c->since > LINGER_SECONDS)) {
        srv_conn_destroy(c);
    }
}

void srv_conns_tick(srv_server *s, double now)
{
    double hurry = s->opt.hurry > 0 ? s->opt.hurry : 1;

    bury(s);
    if (s->deaf && s->listener)
        evconnlistener_enable(s->listener);
    s->deaf = false;
    for (srv_conn *c = s->conns; c; c = c->next) {
        if (c->state != SRV_DEAD)
            tick_one(c, now, hurry);
    }
}

bool srv_conns_writing(const srv_server *s)
{
    for (const srv_conn *c = s->conns; c; c = c->next) {
        if (c->state != SRV_DEAD && evbuffer_get_length(bufferevent_get_output(c->bev)))
            return true;
    }
    return false;
}

/* ---- listening ---- */

static swl_status fail(swl_error *err, swl_status code, const char *format, const char *a, const char *b)
{
    if (err) {
        *err = (swl_error){.code = code, .offset = -1};
        snprintf(err->message, sizeof err->message, format, a, b);
    }
    return code;
}

static bool is_loopback(const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

    if (a->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* Whether a server is behind this socket, and not a file that one has left. */
static bool is_served(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool served = false;

    if (fd >= 0) {
        evutil_make_socket_nonblocking(fd); /* EAGAIN: so many wait there that there is no room to wait */
        served = !connect(fd, (const struct sockaddr *)a, sizeof *a) || errno == EAGAIN;
        close(fd);
    }
    return served;
}

static swl_status listen_unix(srv_server *s, const char *path, swl_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat sb;
    mode_t mask;

    if (!*path || strlen(path) >= sizeof a.sun_path)
        return fail(err, SWL_E_ARG, "--host: the socket's path %s is empty or too long%s", path, "");
    strcpy(a.sun_path, path);
    if (!lstat(path, &sb) && S_ISSOCK(sb.st_mode)) {
        if (is_served(&a))
            return fail(err, SWL_E_IO, "cannot listen on %s: %s", path, strerror(EADDRINUSE));
        unlink(path);
    }
    mask = umask(0177);
    s->listener = evconnlistener_new_bind(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 128,
                                          (struct sockaddr *)&a, sizeof a);
    umask(mask);
    s->is_unix = s->loopback = true;
    snprintf(s->url, sizeof s->url, "unix:%s", path);
    if (s->listener)
        evconnlistener_set_error_cb(s->listener, on_accept_error);
    return s->listener ? SWL_OK : fail(err, SWL_E_IO, "cannot listen on %s: %s", path, strerror(errno));
}

static int port_of(evutil_socket_t fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;

    if (getsockname(fd, (struct sockaddr *)&a, &n))
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

static swl_status listen_address(srv_server *s, const struct addrinfo *at, swl_error *err)
{
    char numeric[128] = "", where[300];

    s->loopback = is_loopback(at->ai_addr);
    if (!s->loopback && !s->opt.n_keys && !s->opt.insecure)
        return fail(err, SWL_E_ARG, "--host %s: everybody who reaches this address could use the server; set an API key (--api-key) or "
                    "say --insecure%s", s->opt.host, "");
    s->listener = evconnlistener_new_bind(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC, 128,
                                          at->ai_addr, (int)at->ai_addrlen);
    if (!s->listener) {
        int code = errno;

        snprintf(where, sizeof where, "port %d of %.200s", (int)s->opt.port, s->opt.host);
        return fail(err, SWL_E_IO, "cannot listen on %s: %s", where, strerror(code));
    }
    getnameinfo(at->ai_addr, at->ai_addrlen, numeric, sizeof numeric, NULL, 0, NI_NUMERICHOST);
    s->port = port_of(evconnlistener_get_fd(s->listener));
    snprintf(s->host, sizeof s->host, "%s", numeric);
    snprintf(s->url, sizeof s->url, at->ai_family == AF_INET6 ? "http://[%s]:%d" : "http://%s:%d", numeric, s->port);
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    return SWL_OK;
}

void srv_stop_listening(srv_server *s)
{
    if (!s->listener)
        return;
    if (s->is_unix)
        unlink(s->opt.host + 5); /* while it is ours: once it is closed, another server may take its place */
    evconnlistener_free(s->listener);
    s->listener = NULL;
}

swl_status srv_listen(srv_server *s, swl_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char port[16], host[256];
    const char *name = s->opt.host;
    size_t n = strlen(name);
    swl_status st;
    int rc;

    if (!strncmp(name, "unix:", 5))
        return listen_unix(s, name + 5, err);
    if (n > 2 && n < sizeof host && name[0] == '[' && name[n - 1] == ']') {
        snprintf(host, sizeof host, "%.*s", (int)n - 2, name + 1);
        name = host;
    }
    snprintf(port, sizeof port, "%d", (int)s->opt.port);
    rc = getaddrinfo(name, port, &hints, &list);
    if (rc)
        return fail(err, SWL_E_ARG, "--host %s: %s", s->opt.host, gai_strerror(rc));
    st = listen_address(s, list, err);
    freeaddrinfo(list);
    return st;
}
