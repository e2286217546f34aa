/*
 * answer_events.h: the events of an answer as one line of text, neighbouring deltas joined, so that two ways of cutting
 * the same text can be compared, and the checks that hold for every answer:
 *
 *     R[...] reasoning   T[...] text   W[...] raw   W0[...] raw that stood in call 0
 *     C0 name[arguments] closed|unclosed|broken
 */
#ifndef SWL_TEXT_ANSWER_EVENTS_H
#define SWL_TEXT_ANSWER_EVENTS_H

#include <stdio.h>
#include <string.h>

#include "text/answer.h"
#include "text/sbuf.h"
#include "text/utf8.h"

typedef struct answer_events {
    swl_sbuf line;   /* as above */
    swl_sbuf source; /* the input that the events account for (answer.h, "nothing is lost") */
    swl_sbuf args;   /* of the current call, joined */
    int32_t n_events, n_calls, stop_after; /* stop_after: refuse the event of this number, 0: none */
    int last_kind, last_call;
    bool in_call;
    const char *wrong; /* the first rule that was broken */
} answer_events;

static inline void events_check(answer_events *v, bool ok, const char *rule)
{
    if (!ok && !v->wrong)
        v->wrong = rule;
}

static inline bool events_whole(const char *p, size_t n)
{
    int32_t k = 1;

    for (size_t i = 0; i < n && k > 0; i += (size_t)k)
        k = swl_utf8_part((const uint8_t *)p + i, n - i);
    return k > 0;
}

static inline void events_text(answer_events *v, const swl_answer_event *e)
{
    char open[16] = "R[";

    if (e->kind != SWL_ANSWER_REASONING)
        snprintf(open, sizeof open, e->call < 0 ? "%c[" : "%c%d[", e->kind == SWL_ANSWER_TEXT ? 'T' : 'W', (int)e->call);
    if (v->last_kind == (int)e->kind && v->last_call == e->call && v->line.n)
        v->line.n--;
    else
        swl_sbuf_puts(&v->line, open);
    swl_sbuf_put(&v->line, e->text, e->n);
    swl_sbuf_putc(&v->line, ']');
    if (e->kind != SWL_ANSWER_RAW || e->call < 0)
        swl_sbuf_put(&v->source, e->text, e->n);
    events_check(v, e->n > 0, "no empty deltas");
    events_check(v, !v->in_call, "no text inside a call");
}

static inline void events_end(answer_events *v, const swl_answer_event *e)
{
    static const char *const ends[] = {"closed", "unclosed", "broken"};

    events_check(v, v->args.n == e->n && !memcmp(v->args.p, e->text, e->n), "deltas join to the arguments");
    swl_sbuf_put(&v->line, e->text, e->n);
    swl_sbuf_puts(&v->line, "] ");
    swl_sbuf_puts(&v->line, ends[e->end]);
    swl_sbuf_putc(&v->line, ' ');
    if (e->end != SWL_CALL_BROKEN)
        swl_sbuf_put(&v->source, e->raw, e->n_raw);
    v->in_call = false;
}

static inline void events_call(answer_events *v, const swl_answer_event *e)
{
    char open[16];

    if (e->kind == SWL_ANSWER_CALL_BEGIN) {
        events_check(v, !v->in_call && e->call == v->n_calls, "calls follow each other");
        v->n_calls++;
        v->in_call = true;
        v->args.n = 0;
        snprintf(open, sizeof open, "C%d ", (int)e->call);
        swl_sbuf_puts(&v->line, open);
        swl_sbuf_put(&v->line, e->text, e->n);
        swl_sbuf_putc(&v->line, '[');
        return;
    }
    events_check(v, v->in_call && e->call == v->n_calls - 1, "arguments belong to the open call");
    if (e->kind == SWL_ANSWER_CALL_ARGS)
        swl_sbuf_put(&v->args, e->text, e->n);
    else
        events_end(v, e);
}

/* For swl_answer_options: arg is an answer_events, zeroed. */
static inline bool answer_events_add(void *arg, const swl_answer_event *e)
{
    answer_events *v = arg;

    events_check(v, events_whole(e->text, e->n), "whole characters");
    if (e->kind <= SWL_ANSWER_RAW)
        events_text(v, e);
    else
        events_call(v, e);
    v->last_kind = (int)e->kind;
    v->last_call = e->call;
    return ++v->n_events != v->stop_after;
}

/* After the answer: ends the line with a NUL and returns it. */
static inline const char *answer_events_line(answer_events *v)
{
    events_check(v, !v->in_call, "every call ends");
    swl_sbuf_putc(&v->line, 0);
    return v->line.failed ? NULL : v->line.p;
}

static inline void answer_events_deinit(answer_events *v)
{
    swl_sbuf_deinit(&v->line);
    swl_sbuf_deinit(&v->source);
    swl_sbuf_deinit(&v->args);
}

#endif
