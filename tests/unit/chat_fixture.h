/* chat_fixture.h: the demo model behind an engine, and what a request hands out, for the tests of the chat engine. */
#ifndef SWL_TESTS_CHAT_FIXTURE_H
#define SWL_TESTS_CHAT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/engine.h"

#define DEMO      SWL_TEST_DATA "/../models/demo.qpack"
#define TEMPLATES SWL_TEST_DATA "/text/templates/"

typedef struct fixture {
    swl_model *model;
    swl_tokenizer *tokenizer;
    swl_engine *engine;
} fixture;

/* chunk, ctx 0: as the model has it. more: of the engine; NULL for none. */
static inline fixture fixture_open_ctx(int32_t n_sessions, int32_t chunk, int32_t ctx, const swl_engine_options *more)
{
    swl_model_options mo;
    swl_engine_options eo;
    swl_error err = {0};
    fixture f;

    swl_model_options_init(&mo);
    mo.path = DEMO;
    mo.n_threads = 1;
    mo.n_sessions = n_sessions;
    mo.chunk_tokens = chunk;
    mo.ctx_tokens = ctx;
    mo.memory_bytes = UINT64_C(1) << 30;
    if (swl_model_open(&f.model, &mo, &err))
        fail_msg("%s", err.message);
    assert_int_equal(swl_tokenizer_open(&f.tokenizer, DEMO, &err), SWL_OK);
    swl_engine_options_init(&eo);
    if (more)
        eo = *more;
    eo.model = f.model;
    eo.tokenizer = f.tokenizer;
    eo.dir = DEMO;
    if (swl_engine_open(&f.engine, &eo, &err))
        fail_msg("%s", err.message);
    return f;
}

static inline fixture fixture_open_with(int32_t n_sessions, int32_t chunk, const swl_engine_options *more)
{
    return fixture_open_ctx(n_sessions, chunk, 0, more);
}

static inline fixture fixture_open(int32_t n_sessions)
{
    return fixture_open_ctx(n_sessions, 0, 0, NULL);
}

static inline void fixture_close(fixture *f)
{
    swl_engine_close(f->engine);
    swl_tokenizer_close(f->tokenizer);
    swl_model_close(f->model);
}

/* What came out of a request. */
typedef struct result {
    swl_request *request;
    swl_sbuf text, reasoning, events; /* events: one character each, neighbours of a kind once */
    char call_id[64], call_name[64], call_args[512];
    int32_t ids[512];
    int32_t n_calls, n_broken, n_progress, n_tokens, n_prompt_tokens, start_done, start_total;
    float logprobs[512], prompt_logprobs[2048];
    swl_token_logprob top[512][20];
    swl_usage usage;
    swl_finish finish;
    char stop[64];
    bool failed, done;
    swl_error error;
    int32_t stop_after;       /* events; 0: never */
} result;

static inline void result_note(result *r, char c)
{
    if (!r->events.n || r->events.p[r->events.n - 1] != c)
        swl_sbuf_putc(&r->events, c);
}

static inline bool result_on_event(void *arg, const swl_event *e)
{
    static const char letters[] = "SPKRTBACF";
    result *r = arg;

    result_note(r, letters[e->kind]);
    switch (e->kind) {
    case SWL_EVENT_START:
        r->start_done = e->n_done;
        r->start_total = e->n_total;
        break;
    case SWL_EVENT_PROGRESS:
        r->n_progress++;
        break;
    case SWL_EVENT_TOKEN:
        if (e->prompt && r->n_prompt_tokens < 2048)
            r->prompt_logprobs[r->n_prompt_tokens++] = e->token.logprob;
        if (!e->prompt && r->n_tokens < 512) {
            memcpy(r->top[r->n_tokens], e->top, (size_t)e->n_top * sizeof *e->top);
            r->ids[r->n_tokens] = e->token.id;
            r->logprobs[r->n_tokens++] = e->token.logprob;
        }
        break;
    case SWL_EVENT_REASONING:
        swl_sbuf_put(&r->reasoning, e->text, e->n_bytes);
        break;
    case SWL_EVENT_TEXT:
        swl_sbuf_put(&r->text, e->text, e->n_bytes);
        break;
    case SWL_EVENT_CALL_BEGIN:
        snprintf(r->call_id, sizeof r->call_id, "%s", e->call_id);
        snprintf(r->call_name, sizeof r->call_name, "%.*s", (int)e->n_bytes, e->text);
        break;
    case SWL_EVENT_CALL_ARGS:
        break;
    case SWL_EVENT_CALL_END:
        r->n_calls += !e->broken;
        r->n_broken += e->broken;
        snprintf(r->call_args, sizeof r->call_args, "%.*s", (int)e->n_bytes, e->text);
        break;
    case SWL_EVENT_FINISH:
        r->done = true;
        r->finish = e->finish;
        r->usage = *e->usage;
        r->failed = e->error != NULL;
        if (e->error)
            r->error = *e->error;
        snprintf(r->stop, sizeof r->stop, "%s", e->stop ? e->stop : "");
        break;
    }
    return !r->stop_after || --r->stop_after > 0;
}

static inline void result_deinit(result *r)
{
    swl_request_free(r->request);
    swl_sbuf_deinit(&r->text);
    swl_sbuf_deinit(&r->reasoning);
    swl_sbuf_deinit(&r->events);
    memset(r, 0, sizeof *r);
}

static inline const char *result_text(result *r)
{
    swl_sbuf_putc(&r->text, 0);
    r->text.n--;
    return r->text.p;
}

static inline const char *result_reasoning(result *r)
{
    swl_sbuf_putc(&r->reasoning, 0);
    r->reasoning.n--;
    return r->reasoning.p;
}

static inline swl_request_options ask_options(const char *messages)
{
    swl_request_options o;

    swl_request_options_init(&o);
    o.messages = messages;
    o.n_max = 24;
    o.logprobs = true;
    return o;
}

static inline void submit(const fixture *f, result *r, swl_request_options o)
{
    swl_error err = {0};

    o.on_event = result_on_event;
    o.arg = r;
    if (swl_request_create(&r->request, f->engine, &o, &err))
        fail_msg("%s", err.message);
    assert_int_equal(swl_engine_submit(f->engine, r->request, &err), SWL_OK);
}

static inline void run_until_idle(const fixture *f)
{
    bool busy = true;

    while (busy)
        assert_int_equal(swl_engine_step(f->engine, &busy, NULL), SWL_OK);
}

/* One request, alone, to its end. */
static inline void ask(const fixture *f, result *r, swl_request_options o)
{
    submit(f, r, o);
    run_until_idle(f);
    assert_true(r->done);
    if (r->failed)
        fail_msg("%s", r->error.message);
}

/* The same tokens, bit for bit the same logits behind them. */
static inline void assert_same_answer(const result *a, const result *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n_tokens * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n_tokens * sizeof *a->logprobs);
}

#endif
