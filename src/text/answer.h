/*
 * answer.h: what a model generates, in; reasoning, answer text and tool calls, out, while it is being generated.
 *
 * The caller pushes tokens (or pieces of text) and gets events. Neighbouring deltas of one kind join to the same text
 * however the input was cut. All text is whole UTF-8 characters; ill-formed parts become U+FFFD.
 *
 * Reasoning ends at </think>, or where a tool call begins inside it. A model that has not been put into reasoning by its
 * prompt may begin with <think> itself. White space around these tags is dropped, and so is white space between the answer
 * text and a call.
 *
 * A call is <tool_call> and then a JSON object {"name": ..., "arguments": {...}} or <function=NAME> with
 * <parameter=KEY>VALUE</parameter>; each is recognised by how it begins, whatever the template says. <function=NAME> at
 * the start of a line is a call without <tool_call> too, if the name is a tool's. Several may follow each other.
 *
 * Nothing is lost. Text that began like a call and is none comes back as RAW, or as REASONING where it stood in that. What
 * stands between the parts of a good call comes back as RAW after it. In order, the non-white text of REASONING, TEXT, RAW
 * with call -1, and of `raw` of CALL_END unless BROKEN is that of the input, but for the dropped <think> and </think>.
 */
#ifndef SWL_TEXT_ANSWER_H
#define SWL_TEXT_ANSWER_H

#include <jansson.h>

#include "base/status.h"

typedef struct swl_answer swl_answer;

typedef enum swl_answer_kind {
    SWL_ANSWER_REASONING,  /* text, n: a delta */
    SWL_ANSWER_TEXT,       /* text, n: a delta of the answer */
    SWL_ANSWER_RAW,        /* text, n: a delta of text that looked like a call: part of the answer. `call`: the call that it
                              stood in, -1 when it is no part of a good one */
    SWL_ANSWER_CALL_BEGIN, /* text, n: the name; `call`: the index, from 0. Calls follow each other, none inside another */
    SWL_ANSWER_CALL_ARGS,  /* text, n: a delta of the arguments' JSON text */
    SWL_ANSWER_CALL_END    /* text, n: all of the arguments, a JSON object, the deltas joined; `raw`; `end` */
} swl_answer_kind;

typedef enum swl_call_end {
    SWL_CALL_CLOSED,       /* as it should be */
    SWL_CALL_UNCLOSED,     /* every value is whole, but closing tags or the last brace are missing */
    SWL_CALL_BROKEN        /* not a call after all, or cut inside a value: the arguments were closed to be JSON, and all of
                              its text follows as RAW. Who can still take the call back should; never act on it. */
} swl_call_end;

typedef struct swl_answer_event {
    swl_answer_kind kind;
    int32_t call;
    swl_call_end end;
    const char *text; /* not NUL-terminated; valid during the callback */
    size_t n;
    const char *raw; /* CALL_END: the call as it was generated */
    size_t n_raw;
} swl_answer_event;

typedef enum swl_answer_start {
    SWL_ANSWER_START_TEXT,
    SWL_ANSWER_START_REASONING, /* the prompt ends inside reasoning, */
    SWL_ANSWER_START_THINK      /* or with the <think> itself, whose newline is then still to come */
} swl_answer_start;

typedef struct swl_answer_options {
    swl_answer_start start;
    bool think;               /* know <think> and </think>; off: they are text */
    bool calls;               /* know tool calls; off: they are text */
    int32_t tool_call_id;     /* the token <tool_call>. In reasoning only this token begins a call, not its spelling. -1: it
                                 is unknown (text is pushed), and its spelling does */
    const json_t *tools;      /* array, for the types of arguments, may be NULL; a reference is kept, and nobody may change
                                 it while the parser lives */
    const char *const *stop;  /* [n_stop] strings that end the answer text (not reasoning, not calls); copied */
    int32_t n_stop;
    bool (*on_event)(void *arg, const swl_answer_event *event); /* false: no more, SWL_E_CANCELLED */
    void *arg;
} swl_answer_options;

/* think and calls on, everything else off. */
void swl_answer_options_init(swl_answer_options *opt);
/* Where generation starts after a rendered prompt: inside reasoning if the last assistant message has a <think> without
 * its </think>. */
swl_answer_start swl_answer_start_of(const char *prompt, size_t n);

swl_status swl_answer_create(swl_answer **out, const swl_answer_options *opt, swl_error *err);
void swl_answer_free(swl_answer *a); /* NULL is allowed */

/* One generated token: its id, and its bytes (NULL and 0 for a token without text). Stop tokens are not pushed. */
swl_status swl_answer_push(swl_answer *a, int32_t id, const char *bytes, size_t n, swl_error *err);
/* A piece of text, cut anywhere. */
swl_status swl_answer_push_text(swl_answer *a, const char *text, size_t n, swl_error *err);
/* Generation has ended: what is held back comes out. Once. */
swl_status swl_answer_finish(swl_answer *a, swl_error *err);

/* The index of the stop string that ended the answer, or -1. Nothing is taken or comes out after it. */
int32_t swl_answer_stopped_by(const swl_answer *a);
/* Whether the next token would be reasoning. */
bool swl_answer_in_reasoning(const swl_answer *a);
/* Calls that ended CLOSED or UNCLOSED. */
int32_t swl_answer_n_calls(const swl_answer *a);

#endif
