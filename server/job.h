/*
 * job.h: one request of a client, from its body to the last byte of its answer. A dialect decodes it into srv_ask, and
 * encodes what comes from the engine. Fields belong to the worker, and the disk thread after it, until the job is prepared,
 * then to the event thread; `cancelled` to everybody.
 */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include "srv.h"

#define SRV_CHOICES 128

/* ---- what was asked ---- */

typedef struct srv_ask {
    bool stream, include_usage, return_progress, timings_per_token, echo;
    bool logprobs;             /* the client wants them */
    bool parallel_calls;
    int32_t n_top;
    int32_t heartbeat_ms;      /* 0: the server's */
    const char *model;         /* as the client calls it */
    swl_request_options o;     /* what its pointers mean is in the texts and the document */
    srv_text messages, tools, vars, allowed;
    bool has_tools;
    const char *raw[8];        /* what the Responses dialect repeats: see responses.c */
    size_t n_raw[8];
    bool summary, encrypted;
} srv_ask;

/* ---- what comes back ---- */

typedef enum srv_item_kind { SRV_ITEM_REASONING, SRV_ITEM_TEXT, SRV_ITEM_CALL } srv_item_kind;

typedef struct srv_item {
    srv_item_kind kind;
    srv_text text;             /* or the arguments */
    srv_text name;
    char call_id[48];
    char id[SRV_ID + 8];       /* the dialect's */
    bool broken, closed;
} srv_item;

/* One answer: a choice of Chat Completions, a prompt of completions. */
typedef struct srv_choice {
    srv_job *job;
    swl_request *request;
    int32_t index;
    srv_note *last;            /* memory for FINISH */
    bool submitted, started, finished;
    srv_item *items;
    int32_t n_items;
    int32_t n_calls;           /* not broken */
    srv_text logprobs;         /* elements as the dialect writes them, all of them, */
    srv_text fresh_logprobs;   /* those that were not sent yet, */
    srv_text more[3];          /* and what else it collects */
    int64_t offset;            /* of the next token, in characters */
    int32_t n_tokens;
    swl_finish finish;
    char *stop;
    swl_usage usage;
} srv_choice;

typedef struct srv_encoder {
    void (*begin)(srv_job *j);                   /* a stream: right after admission */
    void (*start)(srv_choice *c);                /* a choice: before its first event. May be NULL */
    void (*open)(srv_choice *c, srv_item *it);   /* an item begins. May be NULL */
    void (*delta)(srv_choice *c, srv_item *it, const char *p, size_t n);
    void (*close)(srv_choice *c, srv_item *it);  /* it ends; also for texts. May be NULL */
    void (*token)(srv_choice *c, const srv_note *n); /* with logprobs. May be NULL */
    void (*end)(srv_choice *c);                  /* a choice is complete */
    void (*finish)(srv_job *j);                  /* all are */
    void (*whole)(srv_job *j, srv_text *t);      /* not streamed: the body */
    void (*heartbeat)(srv_job *j);
    void (*progress)(srv_job *j);                /* with return_progress. May be NULL */
    void (*fault)(srv_job *j, const srv_error *e); /* in a stream */
    const char *content_type;                    /* of the stream */
} srv_encoder;

typedef enum srv_phase { SRV_PREPARING, SRV_QUEUED, SRV_PREFILL, SRV_DECODE, SRV_PHASES } srv_phase;

struct srv_job {
    srv_server *server;
    srv_job *next, *prev;      /* all jobs */
    srv_job *next_work;
    srv_conn *conn;            /* NULL: the client is gone */
    const srv_route *route;
    const srv_encoder *encoder;/* NULL: `answer` is the answer */
    atomic_bool cancelled;
    srv_note *prepared;        /* memory for that note */
    bool is_prepared, admitted, began_stream, committed, ended;
    srv_phase phase;
    srv_error error;           /* of preparation */

    /* the request as it came */
    char *path, *query;
    srv_text body;
    size_t held;               /* of the server's, for as long as the job lives */
    size_t n_answer;           /* bytes that are collected of the answer */
    bool too_large;            /* and they became too many */
    bool gzip, anthropic_version;
    srv_doc doc;

    srv_ask ask;
    srv_choice *choices;
    int32_t n_choices, at;     /* the one that runs */
    srv_text answer;
    const char *answer_type;   /* NULL: JSON */

    char id[48];               /* "chatcmpl-..." */
    int64_t created;
    int64_t sequence;          /* of Responses events */
    int32_t n_done, n_total, n_cached;
    double received, submitted, first_token, last_write, last_progress, last_flush;
    srv_item *pending_item;    /* whose text waits to be sent together */
    srv_text pending;
    bool flushing;             /* what is written now is new text, and repeats nothing */
    srv_text scratch;
    void *state;               /* the encoder's, freed with free() */
    bool (*later)(srv_job *j, srv_error *e); /* what preparation leaves for the disk thread; NULL: nothing */
};

srv_job *srv_job_create(srv_conn *c);
/* The client is gone, or the server ends. */
void srv_job_cancel(srv_job *j);
void srv_job_prepared(srv_job *j);
void srv_job_event(srv_job *j, srv_choice *c, const srv_note *n);
/* Sends a sign of life at once. False: the answer has not begun. */
bool srv_job_sign(srv_job *j);
void srv_jobs_tick(srv_server *s, double now);
void srv_jobs_flush(srv_server *s);
void srv_job_free(srv_job *j);
void srv_job_write(srv_job *j, const srv_text *t);
/* Of a job that waits: 1 is next. 0: it does not wait. */
int32_t srv_job_place(const srv_job *j);
srv_choice *srv_job_choice(srv_job *j);

/* ---- for decoders, on the worker ---- */

/* Counts bytes that the request takes; false: there are too many. */
bool srv_job_hold(srv_job *j, size_t n, srv_error *e);
/* The body as an object. */
bool srv_body(srv_job *j, srv_error *e);
/* Makes the requests: n of them (their seeds count up) from j->ask. */
bool srv_make_choices(srv_job *j, int32_t n, srv_error *e);
bool srv_make_choice(srv_job *j, srv_choice *c, const swl_request_options *o, srv_error *e);
bool srv_allocate_choices(srv_job *j, int32_t n, srv_error *e);
/* All that it takes for a request with one prompt, whose body `read` understands. What is answered has an id that begins with
 * `prefix`, and an encoder; without them only the prompt is wanted. */
bool srv_prepare_one(srv_job *j, bool (*read)(srv_job *j, srv_error *e), const char *prefix, const srv_encoder *encoder,
                     srv_error *e);
/* The template's place for what the request does not say. */
void srv_ask_defaults(srv_job *j);

/* ---- shared by encoders ---- */

/* An event with its type, in j->scratch, to which members may be added; and its end, which sends it. */
srv_text *srv_begin_event(srv_job *j, const char *type);
void srv_end_event(srv_job *j);

void srv_timings(const srv_choice *c, srv_text *t);
swl_usage srv_usage_sum(const srv_job *j);
/* The member "usage" in the form of OpenAI's older dialects. */
void srv_put_usage(srv_text *t, const srv_job *j, bool reasoning);
/* A token as JSON string: ill-formed UTF-8 replaced. */
void srv_token_json(srv_text *t, const srv_job *j, int32_t id);
void srv_token_bytes(srv_text *t, const srv_job *j, int32_t id);

#endif
