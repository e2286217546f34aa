/*
 * srv.h: the server's own structures. Threads:
 *
 *   event thread    sockets, HTTP, encoding of answers, all lists and counters; never waits for anything but events
 *   worker thread   reads bodies: inflates, parses, makes requests of them (rendering and tokenising take a while)
 *   disk thread     waits for the disk, for requests that save
 *   engine thread   swl_engine_step; its events are copied and go to the event thread
 *   log thread      writes the log, and is the only one that this may hold up
 *
 * A request's way: conn.c (bytes) -> guard.c (may it?) -> route.c (what is it?) -> worker: body.c and a dialect's decoder
 * -> job.c (admission, events, heartbeats) -> the dialect's encoder -> conn.c.
 */
#ifndef SERVER_SRV_H
#define SERVER_SRV_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdatomic.h>

#include "head.h"
#include "json.h"
#include "server.h"
#include "text.h"

#define SRV_ID 24 /* letters and digits of an id */
#define SRV_CONNECTIONS 64

/* ---- errors that clients see ---- */

typedef struct srv_error {
    int http;             /* 0: none */
    const char *type, *code; /* code may be NULL */
    char param[200];      /* "" : none */
    char message[700];
    int32_t n_prompt, n_ctx; /* context_length_exceeded */
    int32_t retry_after;  /* seconds; 0: not said */
} srv_error;

typedef enum srv_dialect { SRV_OPENAI, SRV_ANTHROPIC, SRV_OLLAMA } srv_dialect;

/* All return false. */
bool srv_fail(srv_error *e, int http, const char *type, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* 400 invalid_value with a param. */
bool srv_invalid(srv_error *e, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool srv_no_memory(srv_error *e);
/* A fault of the library. */
bool srv_library(srv_error *e, const swl_error *err, const char *param);
void srv_error_json(srv_text *t, const srv_error *e, srv_dialect d, const char *request_id);

/* ---- the server ---- */

typedef struct srv_server srv_server;
typedef struct srv_conn srv_conn;
typedef struct srv_job srv_job;
typedef struct srv_route srv_route;
typedef struct srv_note srv_note;
typedef struct srv_logger srv_logger;
struct srv_metrics;

/* Shares of the memory that requests may take (request_bytes), so that together they stay within it. */
typedef struct srv_limits {
    size_t body;                /* one body, inflated */
    size_t held;                /* all of them */
    size_t json_weight;         /* values of one body: see json.h */
    size_t answer;              /* what is collected of one answer */
    size_t unread, ahead;       /* of one connection: what its client did not read yet, and sent too early */
} srv_limits;

/* Jobs for a thread, first come first served. */
typedef struct srv_queue {
    pthread_t thread;
    bool started, closed;       /* closed: the thread ends when it has done what is there */
    pthread_mutex_t lock;
    pthread_cond_t there;
    srv_job *first, **last;
} srv_queue;

struct srv_server {
    swl_server_options opt;
    swl_server_model model;     /* valid once `loaded` */
    swl_model_info info;
    swl_template_info template_info;
    swl_sampling sampling;
    bool loaded, draining, loopback, is_unix;
    char host[256], url[320], build[64];
    int port;
    int64_t created;            /* seconds */
    struct event_base *base;
    struct evconnlistener *listener;
    bool deaf;                  /* a connection could not be accepted; until the next tick */
    double deaf_told;           /* when the log had that last; 0: never */
    struct event *tick, *flush, *mail, *term, *interrupt;
    bool flush_armed;
    srv_conn *conns;
    int n_conns;
    srv_job *jobs;
    int32_t n_active;           /* jobs with the engine */
    atomic_size_t held;         /* bytes of bodies, read or being read, of what they were parsed to, and of large answers until they are sent */
    srv_limits limits;
    double drain_end;
    bool cancelled_all;
    struct srv_metrics *metrics;
    srv_logger *logger;         /* NULL: nothing is logged */

    pthread_t engine_thread;
    bool engine_started;
    atomic_bool stop;
    swl_status end_status;      /* why it ends, when not asked to */
    swl_error end_error;
    bool unsaved;               /* the last conversation that left memory is lost, which the log has */
    bool ending;                /* what is saved now are the conversations in memory */
    swl_error lost;             /* one that was not then; code SWL_OK: none */

    int mail_fd[2];
    pthread_mutex_t mail_lock;
    srv_note *mail_first, **mail_last;

    srv_queue work, disk;
};

double srv_now(void);
void srv_arm(struct event *timer, double seconds);
/* Letters and digits, n of them and a NUL. */
void srv_random_id(char *to, int n);

/* ---- log: from any thread, waiting for nobody ---- */

void srv_log(srv_server *s, bool detail, const char *format, ...) __attribute__((format(printf, 3, 4)));
void srv_log_start(srv_server *s);
/* What waits is written, or given up when that takes too long. */
void srv_log_end(srv_server *s);

/* ---- routes ---- */

enum { SRV_GET = 1, SRV_POST = 2, SRV_DELETE = 4 };

struct srv_route {
    const char *path;      /* without /v1 */
    unsigned methods;
    const char *label;     /* in metrics */
    srv_dialect dialect;
    bool versioned;        /* /v1/path is it, */
    bool bare;             /* /path is it */
    bool open;             /* needs no key */
    bool without_model;    /* works while the model is being loaded */
    bool ollama;           /* only with --ollama-api */
    bool prefix;           /* anything may follow the path */
    void (*handle)(srv_conn *c);                     /* answers at once, on the event thread; or */
    bool (*prepare)(srv_job *j, srv_error *e);       /* reads the body, on the worker */
};

/* NULL: no such route; *allowed are the methods of the path, 0 when there is no such path. */
const srv_route *srv_route_find(const srv_server *s, const char *path, const char *method, unsigned *allowed);
/* The part of a path behind a route with `prefix`. */
const char *srv_route_rest(const srv_route *r, const char *path);

/* ---- connections ---- */

typedef enum srv_conn_state { SRV_READ_HEAD, SRV_READ_BODY, SRV_BUSY, SRV_LINGER, SRV_DEAD } srv_conn_state;

struct srv_conn {
    srv_server *server;
    srv_conn *next, *prev;
    struct bufferevent *bev;
    evutil_socket_t fd;
    srv_conn_state state;
    srv_head head;
    srv_text body;
    size_t held;              /* of the server's, */
    size_t unsent;            /* likewise, of answers */
    srv_chunks chunks;
    const srv_route *route;
    srv_job *job;
    char request_id[SRV_ID + 8];
    char origin[256];         /* allowed, to be named in the answer; "" */
    bool close_after, chunked_out, in_callback, head_begun;
    bool ended;               /* its client sends nothing more, and is not known to be gone */
    int http;                 /* status of the answer that is being written */
    double since;             /* the state, */
    double last_read, last_write;
    double began;             /* the request */
};

bool srv_conn_is_head(const srv_conn *c);
/* A whole answer. `more`: further header lines, each with CR LF; NULL. */
void srv_reply(srv_conn *c, int http, const char *type, const char *more, const void *body, size_t n);
void srv_reply_json(srv_conn *c, int http, const char *more, const srv_text *t);
void srv_reply_error(srv_conn *c, const srv_error *e);
/* An answer in pieces. */
void srv_stream_begin(srv_conn *c, const char *type, const char *more);
/* `repeats`: request or answer, and is as large as they are, however quickly the client reads. */
void srv_stream_write(srv_conn *c, const char *p, size_t n, bool repeats);
/* Ends it; `whole` false: so that the client sees that it was cut. */
void srv_stream_end(srv_conn *c, bool whole);
void srv_conn_destroy(srv_conn *c);
void srv_conns_tick(srv_server *s, double now);
/* Is anything not sent yet? */
bool srv_conns_writing(const srv_server *s);
swl_status srv_listen(srv_server *s, swl_error *err);
void srv_stop_listening(srv_server *s); /* also when nothing does */

/* ---- guard: may this request come in? ---- */

bool srv_guard(srv_conn *c, srv_error *e);
void srv_preflight(srv_conn *c);
/* Header lines that every answer has. */
void srv_guard_headers(const srv_conn *c, srv_text *t);

/* ---- notes from the other threads ---- */

typedef enum srv_note_kind { SRV_NOTE_ENGINE, SRV_NOTE_PREPARED, SRV_NOTE_LOADED, SRV_NOTE_FAULT } srv_note_kind;

struct srv_note {
    srv_note *next;
    srv_job *job;
    srv_note_kind kind;
    swl_event_kind event;
    int32_t call, n_done, n_total, n_top;
    bool broken, prompt, reasoning;
    swl_token_logprob token, *top;
    swl_finish finish;
    swl_usage usage;
    swl_error *error;
    char call_id[48];
    char *stop;
    size_t n;
    char text[];
};

void srv_post(srv_server *s, srv_note *n);
void srv_note_free(srv_note *n);
bool srv_on_engine_event(void *arg, const swl_event *ev); /* arg: a srv_choice */
swl_status srv_threads_start(srv_server *s, swl_error *err);
void srv_threads_stop(srv_server *s);
void srv_work(srv_server *s, srv_job *j);

#endif
