/* answer_out.c: from tokens to events by way of the parser (text/answer.h), and what is remembered of an answer. */
#include <math.h>
#include <openssl/rand.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"
#include "chat/messages.h"

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "answer: out of memory");
}

void swl_emit(swl_request *r, swl_event *event)
{
    if (r->o.on_event && !r->o.on_event(r->o.arg, event))
        atomic_store(r->cancel, true);
}

/* ---- the parser's events ---- */

/* "call_" and 24 letters and digits that nobody had before. */
static void new_call_id(char id[32])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned char random[24];

    if (RAND_bytes(random, sizeof random) != 1)
        for (size_t i = 0; i < sizeof random; i++) /* no source of randomness: unlikely to repeat all the same */
            random[i] = (unsigned char)(1e9 * swl_seconds() / (double)(1 + 7 * i));
    memcpy(id, "call_", 5);
    for (size_t i = 0; i < sizeof random; i++)
        id[5 + i] = digits[random[i] % 62];
    id[5 + sizeof random] = 0;
}

static void collect_call(swl_request *r, const swl_answer_event *a)
{
    json_t *call = json_array_get(r->calls, json_array_size(r->calls) - 1);

    if (a->end == SWL_CALL_BROKEN)
        json_array_remove(r->calls, json_array_size(r->calls) - 1);
    else if (json_object_set_new(call, "arguments", json_stringn(a->text, a->n)))
        r->lost = true;
}

static void begin_call(swl_request *r, const swl_answer_event *a)
{
    json_t *call;

    new_call_id(r->call_id);
    call = json_pack("{s:s, s:o}", "id", r->call_id, "name", json_stringn(a->text, a->n));
    if (!r->calls)
        r->calls = json_array();
    if (json_array_append_new(r->calls, call))
        r->lost = true;
}

static bool on_answer(void *arg, const swl_answer_event *a)
{
    static const swl_event_kind kinds[] = {SWL_EVENT_REASONING,  SWL_EVENT_TEXT,      SWL_EVENT_TEXT,
                                           SWL_EVENT_CALL_BEGIN, SWL_EVENT_CALL_ARGS, SWL_EVENT_CALL_END};
    swl_request *r = arg;
    swl_event event = {.kind = kinds[a->kind], .text = a->text, .n_bytes = a->n, .call = a->call};

    if (event.kind == SWL_EVENT_REASONING)
        swl_sbuf_put(&r->reasoning, a->text, a->n);
    if (event.kind == SWL_EVENT_TEXT)
        swl_sbuf_put(&r->text, a->text, a->n);
    if (event.kind == SWL_EVENT_CALL_BEGIN)
        begin_call(r, a);
    if (event.kind == SWL_EVENT_CALL_END) {
        event.broken = a->end == SWL_CALL_BROKEN;
        collect_call(r, a);
    }
    if (event.kind >= SWL_EVENT_CALL_BEGIN)
        event.call_id = r->call_id;
    swl_emit(r, &event);
    return true;
}

swl_status swl_answer_begin(swl_engine *e, swl_request *r, swl_error *err)
{
    swl_answer_options o;

    swl_answer_options_init(&o);
    o.start = r->o.raw ? SWL_ANSWER_START_TEXT : r->prompt.start;
    o.think = !r->o.raw;
    o.calls = !r->o.raw && !r->o.no_calls;
    o.tool_call_id = e->id_call;
    o.tools = r->prompt.tools;
    o.stop = r->o.stop;
    o.n_stop = r->o.n_stop;
    o.on_event = on_answer;
    o.arg = r;
    return swl_answer_create(&r->answer, &o, err);
}

/* ---- a token ---- */

static swl_status keep_token(swl_request *r, int32_t id, swl_error *err)
{
    if (r->n_out == r->n_out_max) {
        int32_t n = r->n_out_max + r->n_out_max / 2 + 64;
        int32_t *out = swl_realloc(r->out, (size_t)n, sizeof *out);

        if (!out)
            return no_memory(err);
        r->out = out;
        r->n_out_max = n;
    }
    r->out[r->n_out++] = id;
    return SWL_OK;
}

static swl_status push(swl_engine *e, swl_request *r, int32_t id, swl_error *err)
{
    const char *bytes = NULL;
    int32_t n = 0;

    if (!swl_tokenizer_is_special(e->tokenizer, id))
        bytes = swl_tokenizer_token(e->tokenizer, id, &n);
    return swl_answer_push(r->answer, id, bytes, (size_t)n, err);
}

static swl_status go_on(swl_engine *e, swl_request *r, int32_t id, bool was_reasoning, bool *closed, swl_error *err)
{
    *closed = false;
    if (!r->grammar)
        return SWL_OK;
    if (r->lazy && !r->state) {
        swl_status st = id == e->id_call && !was_reasoning ? swl_constraint_begin(r, err) : SWL_OK;

        return r->state && !st ? swl_constraint_accept(r, id, closed, err) : st;
    }
    if (was_reasoning && !swl_answer_in_reasoning(r->answer) && id == e->id_think_end)
        swl_force_gap(e, r);
    return r->state ? swl_constraint_accept(r, id, closed, err) : SWL_OK;
}

swl_status swl_answer_token(swl_engine *e, swl_request *r, int32_t id, swl_finish *finish, swl_error *err)
{
    bool reasoning = swl_answer_in_reasoning(r->answer), closed;
    swl_status st = keep_token(r, id, err);

    r->usage.n_generated++;
    r->usage.n_reasoning += reasoning;
    if (!st)
        st = push(e, r, id, err);
    if (!st)
        st = go_on(e, r, id, reasoning, &closed, err);
    if (st)
        return st;
    if (swl_answer_stopped_by(r->answer) >= 0 || closed || (r->o.one_call && swl_answer_n_calls(r->answer)))
        *finish = SWL_FINISH_STOP;
    else if (r->o.n_max >= 0 && r->n_out >= r->o.n_max)
        *finish = SWL_FINISH_LENGTH;
    else if (r->n_prompt + r->n_out > e->model->ctx_tokens) /* the last one has no room in the state */
        *finish = SWL_FINISH_CONTEXT;
    return SWL_OK;
}

/* ---- what is remembered ---- */

static bool is_white(const swl_engine *e, int32_t id, bool *begins)
{
    int32_t n = 0;
    const char *bytes = swl_tokenizer_token(e->tokenizer, id, &n);
    size_t left = (size_t)n;

    if (!bytes || swl_canon_is_added(e->tokenizer, id))
        return *begins = false;
    swl_trim(&bytes, &left);
    *begins = n && left < (size_t)n && bytes != swl_tokenizer_token(e->tokenizer, id, &n);
    return !left;
}

/* Where the visible part begins, -1 within a token. */
static int32_t visible_from(const swl_engine *e, const swl_request *r, bool reasoned)
{
    int32_t i = 0;
    bool begins;

    if (!reasoned)
        return 0;
    while (i < r->n_out && r->out[i] != e->id_think_end && r->out[i] != e->id_call)
        i++;
    if (i == r->n_out)
        return -1;
    i += r->out[i] == e->id_think_end;
    while (i < r->n_out && is_white(e, r->out[i], &begins))
        i++;
    if (i < r->n_out) {
        is_white(e, r->out[i], &begins);
        return begins ? -1 : i;
    }
    return i;
}

static char *trimmed(const swl_sbuf *b, size_t *n)
{
    const char *p = b->p ? b->p : "";

    *n = b->n;
    swl_trim(&p, n);
    return swl_strndup(p, *n);
}

/* The answer as a message. */
static json_t *message_of(const swl_request *r)
{
    json_t *m =
        json_pack("{s:s, s:o}", "role", "assistant", "content", json_stringn(r->text.p ? r->text.p : "", r->text.n));
    json_t *calls = json_array(), *call;
    size_t i;

    json_array_foreach (r->calls, i, call)
        json_array_append_new(calls, json_pack("{s:O, s:{s:O, s:O}}", "id", json_object_get(call, "id"), "function",
                                               "name", json_object_get(call, "name"), "arguments",
                                               json_object_get(call, "arguments")));
    if (!m || !calls || json_object_set_new(m, "tool_calls", calls)) {
        json_decref(m);
        return NULL;
    }
    return m;
}

static bool fill_turn(const swl_engine *e, const swl_request *r, swl_turn *t)
{
    json_t *m = message_of(r);
    bool ok = m != NULL;

    t->refs = 1;
    t->start = r->prompt.start;
    t->reasoned = t->start != SWL_ANSWER_START_TEXT || r->reasoning.n || r->out[0] == e->id_think;
    t->n = r->n_out;
    t->n_answer = visible_from(e, r, t->reasoned);
    t->ids = swl_calloc((size_t)r->n_out, sizeof *t->ids);
    t->reasoning = trimmed(&r->reasoning, &t->n_reasoning);
    t->text = trimmed(&r->text, &t->n_text);
    t->calls = r->calls ? json_incref(r->calls) : json_array();
    memcpy(t->transcript, r->prompt.transcript, sizeof t->transcript);
    ok = ok && t->ids && t->reasoning && t->text && t->calls && !swl_transcript_add(t->transcript, m, NULL);
    if (ok)
        memcpy(t->ids, r->out, (size_t)r->n_out * sizeof *t->ids);
    json_decref(m);
    return ok;
}

/* Only answers that a client can send back whole: not those cut while reasoning, nor before a stop string. */
static void remember(swl_engine *e, const swl_request *r)
{
    swl_turn *t;

    if (!r->rendered || r->o.raw || r->o.continue_final || !r->n_out || r->lost || r->text.failed ||
        r->reasoning.failed || swl_answer_stopped_by(r->answer) >= 0 || swl_answer_in_reasoning(r->answer))
        return;
    t = swl_calloc(1, sizeof *t);
    if (!t)
        return;
    if (fill_turn(e, r, t)) {
        pthread_mutex_lock(&e->lock);
        swl_turns_add(&e->turns, t);
        pthread_mutex_unlock(&e->lock);
    } else {
        t->refs = 1;
        swl_turn_release(t);
    }
}

swl_status swl_answer_end(swl_engine *e, swl_request *r, swl_finish finish, swl_error *err)
{
    swl_status st = swl_answer_finish(r->answer, err);

    if (!st && finish != SWL_FINISH_NONE)
        remember(e, r);
    return st;
}
