/*
 * engine.h: what the files of the chat engine share.
 *
 *     template.c    the checkpoint's chat template, or a built-in one; what it can do
 *     messages.c    messages in one form                       json_in.c, seal.c   helpers of it
 *     turns.c       earlier answers, token by token           turn_file.c          in files
 *     prompt.c      messages -> rendered text -> ids
 *     request.c     a request: its options, checked and copied
 *     canon.c       ids as bytes, so that equal texts are found whatever their tokens
 *     disk.c        conversations on disk                     sync.c               waits for it
 *     slots.c       conversations in memory: what can be reused, and what has to go
 *     slot_file.c   conversations saved by hand
 *     logits.c      from logits to a token: bias, penalties, bans, constraint
 *     answer_out.c  from tokens to events, and what is remembered of them
 *     engine.c      the line of requests and the passes
 *     chat.c        one conversation, on top of it all
 *
 * Locks: engine.lock guards the line, the turns, the copies that statistics are made from, and whose turn it is to
 * step. It is never held during a pass or a callback. Slots and running requests belong to the thread that steps.
 */
#ifndef SWL_CHAT_ENGINE_H
#define SWL_CHAT_ENGINE_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "chat/canon.h"
#include "chat/disk.h"
#include "chat/seal.h"
#include "chat/turns.h"
#include "session/session.h"
#include "text/answer.h"
#include "text/grammar.h"
#include "text/sbuf.h"
#include "text/template.h"

enum {
    SWL_SHARE_TOKENS = 256, /* of a prompt in one pass while others wait for their next token */
    SWL_MARK_EVERY = 4096,  /* tokens of a long prompt: a part ends here at the latest */
    SWL_MARK_AFTER = 1024,  /* tokens: the end of a part gets a mark, so that a prompt that is stopped loses little */
    SWL_MARK_SYSTEM = 8,    /* weights of marks: the end of the system block, which many conversations share; */
    SWL_MARK_MESSAGE = 4,   /* the beginning of the last message */
    SWL_SAVE_TOKENS = 32,   /* shorter conversations are not worth a file */
    SWL_SAVES_MAX = 4,      /* that wait for the disk at a time: more would fill memory with what it has not taken */
    SWL_TOP_MAX = 20,
    SWL_FORCED_MAX = 16
};

/* ---- template.c ---- */

typedef struct swl_chat_template {
    swl_template *compiled;
    char *text;
    json_t *specials; /* the tokenizer's special tokens by name, as variables */
    swl_template_info info;
    bool high_is_xhigh; /* the strongest effort is called so */
} swl_chat_template;

swl_status swl_chat_template_open(swl_chat_template *t, const char *dir, const char *path, const char *family,
                                  swl_error *err);
void swl_chat_template_close(swl_chat_template *t);
/* Adds to `vars` what think, preserving and the options ask for; `extra` (may be NULL) is the strongest. */
swl_status swl_chat_template_vars(const swl_chat_template *t, json_t *vars, swl_think think, bool preserve,
                                  const json_t *extra, swl_error *err);
const char *swl_builtin_template(const char *family, const char *dir, const char **name);

/* ---- prompt.c ---- */

typedef struct swl_prompt {
    int32_t *ids;
    int32_t n;
    char *text; /* NULL when ids were given */
    swl_answer_start start;
    uint8_t transcript[SWL_TRANSCRIPT_BYTES]; /* of the messages */
    json_t *tools;                            /* as given; NULL */
} swl_prompt;

swl_status swl_prompt_make(swl_prompt *p, swl_engine *e, const swl_request_options *o, swl_error *err);
void swl_prompt_deinit(swl_prompt *p);

/* ---- a request ---- */

typedef enum swl_phase_of_request {
    SWL_REQUEST_NEW,
    SWL_REQUEST_WAITING,
    SWL_REQUEST_PROMPT,
    SWL_REQUEST_ANSWER,
    SWL_REQUEST_DONE
} swl_phase_of_request;

struct swl_slot;

struct swl_request {
    swl_engine *engine;
    swl_request *next;     /* in line */
    swl_request_options o; /* what it points to is owned by the following */
    char *constraint;
    char **stop;
    swl_logit_bias *bias;
    swl_prompt prompt;
    swl_grammar *grammar;
    bool rendered; /* made from messages: equal text may keep the tokens of a slot */
    bool too_long;
    _Atomic bool *cancel; /* own_cancel, or of the conversation that it is for */
    _Atomic bool own_cancel, end_reasoning;

    /* while it runs */
    swl_phase_of_request phase;
    struct swl_slot *slot;
    int32_t *ids; /* the prompt as it is computed: [n_prompt] */
    int32_t n_prompt, n_done;
    int32_t border_system,
        border_last; /* where marks go: after the system block, before the last message; 0: nowhere */
    int32_t mark_at; /* the last one */
    int32_t *out;    /* [n_out] generated; the last may not have run yet */
    int32_t n_out, n_out_max;
    int32_t forced[SWL_FORCED_MAX], n_forced, forced_at; /* tokens that are not drawn */
    bool closing;                                        /* reasoning is being closed */
    swl_rng rng;
    swl_answer *answer;
    swl_grammar_state *state;
    bool constrained_begun;
    bool lazy; /* the grammar is of calls, and begins with the first one */

    /* what came out */
    swl_sbuf text, reasoning;
    json_t *calls; /* [{"id", "name", "arguments"}] */
    char call_id[32];
    bool lost; /* out of memory while collecting: the turn is not remembered */

    swl_usage usage;
    bool counted; /* in the statistics */
    double submitted, started, first_token;
};

/* ---- slots.c ---- */

typedef struct swl_slot {
    swl_session *session;
    swl_request *owner; /* NULL: idle */
    swl_canon canon;    /* of the session's tokens */
    int32_t base;       /* where the last prompt's answer began; going back behind it gives something up */
    uint64_t used;      /* when, in starts of requests */
    double used_at;
} swl_slot;

/* Finds or makes room for a request: sets slot, ids, n_prompt, n_done. There is an idle slot. */
swl_status swl_slot_take(swl_engine *e, swl_request *r, swl_error *err);
/* The session ran or went back. */
swl_status swl_slot_follow(swl_engine *e, swl_slot *s, swl_error *err);
/* To the session directory, if there is one. */
void swl_slot_save(swl_engine *e, const swl_slot *s);
/* Saves that ended are told; waits until no more than `most` are on their way. */
void swl_slots_settle(swl_engine *e, int32_t most);
/* The idle slot whose loss is felt least, saved and emptied; NULL when all are busy. */
swl_slot *swl_slot_clear(swl_engine *e);

/* ---- the engine ---- */

struct swl_engine {
    swl_model *model;
    const swl_tokenizer *tokenizer;
    swl_chat_template tpl;
    swl_engine_options o;
    int32_t id_think, id_think_end, id_call, id_start; /* -1: the vocabulary has none */
    int32_t n_tokens;                                  /* ids from here on are padding */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next_turn, turn_now; /* tickets for stepping: equal when nobody steps or waits to */
    bool woken;
    swl_request *waiting, **waiting_end;
    swl_turns turns;
    swl_engine_stats stats;
    swl_slot_info *info; /* [n_slots] */
    uint64_t saving_bytes; /* of files that are saved by hand and do not bear their names yet */

    /* of the thread that steps */
    swl_disk *disk; /* NULL: conversations that leave memory are gone */
    swl_slot *slots;
    int32_t n_slots, n_running;
    int32_t turn;             /* whose prompt comes next */
    uint64_t clock;           /* starts of requests */
    swl_batch_entry *entries; /* [n_slots] of a pass, */
    swl_request **who;        /* [n_slots] whose they are, */
    float *rows;              /* [n_slots][vocab] and their logits */
    float *row;               /* [vocab] one of them, changed */
    int32_t *counts;          /* [vocab] zero between uses */
    uint32_t *mask;           /* [(vocab + 31) / 32] */
};

/* What statistics say of a slot is what it is now. */
void swl_slot_note(swl_engine *e, const swl_slot *s);

/* turn_file.c: adds answers that a file had, as far as they are this model's and not known yet. */
void swl_turns_take(swl_engine *e, const json_t *turns);
/* Those of the known answers that occur among a conversation's tokens, as a new array; NULL: out of memory. */
json_t *swl_turns_within(swl_engine *e, const int32_t *ids, int32_t n);

/* logits.c: the next token of r, from the model's logits; -1: there is none to draw. */
int32_t swl_next_token(swl_engine *e, swl_request *r, const float *logits);
/* Puts "</think>" and what follows it in line; nothing if the vocabulary has none. */
void swl_force_answer(swl_engine *e, swl_request *r);
/* Puts the empty line in line that follows a "</think>". */
void swl_force_gap(swl_engine *e, swl_request *r);
/* log-softmax of raw logits at one id, and the likeliest ones. */
void swl_logprobs(swl_engine *e, const float *logits, int32_t id, int32_t n_top, swl_token_logprob *of,
                  swl_token_logprob *top);

/* answer_out.c */
swl_status swl_answer_begin(swl_engine *e, swl_request *r, swl_error *err);
void swl_emit(swl_request *r, swl_event *event);
/* A token was drawn: events, and *finish when it ends the answer. */
swl_status swl_answer_token(swl_engine *e, swl_request *r, int32_t id, swl_finish *finish, swl_error *err);
/* What is held back comes out, and the turn is remembered. */
swl_status swl_answer_end(swl_engine *e, swl_request *r, swl_finish finish, swl_error *err);

/* constraint.c: r->grammar and r->state. Without a grammar none of these is called but the first. */
swl_status swl_constraint_make(swl_grammar **out, const swl_engine *e, const swl_request_options *o,
                               const json_t *tools, swl_error *err);
/* Only some tools may be called, and need not be. */
bool swl_constraint_is_lazy(const swl_request_options *o);
void swl_constraint_free(swl_request *r);
swl_status swl_constraint_begin(swl_request *r, swl_error *err);
bool swl_constraint_allows(const swl_request *r, int32_t id);
void swl_constraint_mask(swl_request *r, uint32_t *bits);
/* *closed: nothing can follow. */
swl_status swl_constraint_accept(swl_request *r, int32_t id, bool *closed, swl_error *err);

/* Takes and gives back the right to step, first come first served, which the library's own callers share with
 * swl_engine_step. */
void swl_step_acquire(swl_engine *e);
void swl_step_release(swl_engine *e);
swl_status swl_engine_step_locked(swl_engine *e, bool *busy, swl_error *err);

#endif
