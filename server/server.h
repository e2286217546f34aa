/*
 * server.h: the HTTP server over one chat engine. Built on the public header alone; the program fills the options, opens
 * the model in `load`, and prints.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <swiftlet/swiftlet.h>

typedef struct swl_server_model {
    swl_model *model;
    swl_tokenizer *tokenizer;
    swl_engine *engine;
    const char *dir;
    const char *id;             /* the name by which clients know it */
    int32_t parallel;           /* conversations that run at a time */
    swl_sampling sampling;      /* when a request says nothing; the seed is drawn for each */
    uint64_t request_bytes;     /* of the memory of the process, for requests and answers; 0: not bounded */
    char remarks[2][200];       /* on how it was opened, for the log; "": none */
    void (*on_saved)(void *arg, const swl_error *err); /* set before `load`: what the engine's options shall name */
    void *saved_arg;
} swl_server_model;

typedef enum swl_reasoning_field {
    SWL_REASONING_CONTENT,      /* reasoning_content */
    SWL_REASONING_PLAIN,        /* reasoning */
    SWL_REASONING_BOTH,
    SWL_REASONING_NONE          /* <think> stays in the answer */
} swl_reasoning_field;

typedef struct swl_server_options {
    const char *host;           /* an address, a name, or "unix:PATH" */
    int32_t port;               /* 0: any */
    const char *const *keys;    /* [n_keys] API keys; none: any key and none are accepted */
    int32_t n_keys;
    const char *const *origins; /* [n_origins] allowed besides loopback; "*": any */
    int32_t n_origins;
    const char *const *hosts;   /* [n_hosts] names of this server besides localhost */
    int32_t n_hosts;
    bool insecure;              /* another address than loopback without a key */
    int32_t queue;              /* requests that wait while others run */
    const char *session_dir;
    bool ollama;                /* the Ollama dialect too */
    swl_reasoning_field reasoning_field;
    bool system_note;           /* later system messages stand where they came, as user text */
    swl_think think;            /* when a request says nothing */
    bool no_web, no_slots;
    uint64_t max_body;          /* bytes, inflated */
    int32_t grace_ms;           /* for running answers when asked to end */
    bool log_prompts;
    const char *commit;         /* that the program was built from: letters, digits and '-'; NULL or "": not known */
    double hurry, pulse;        /* for tests: time limits are, and signs of life come so many times sooner; 0: 1 */
    /* Opens the model; called once, by the thread that will compute. What it opened is `unload`'s to close, which is called
     * after everything else has ended. */
    swl_status (*load)(void *arg, swl_server_model *out, swl_error *err);
    void (*unload)(void *arg);
    void (*ready)(void *arg, const char *url); /* the model is there: http://127.0.0.1:8080 */
    void (*log)(void *arg, bool detail, const char *line); /* from a thread of its own, which it may hold
                                  * up; one that it never lets go is left behind. Details are for --verbose */
    void *arg;
} swl_server_options;

void swl_server_options_init(swl_server_options *opt);
/* Serves until SIGTERM or SIGINT, then lets running answers end and returns; with an error when a conversation that was in memory
 * could not be saved then. */
swl_status swl_server_run(const swl_server_options *opt, swl_error *err);

#endif
