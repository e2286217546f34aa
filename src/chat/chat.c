/* chat.c: one conversation: a list of messages, and answers that are appended to it. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "chat/chat.h"
#include "chat/json_in.h"

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "chat: out of memory");
}

/* ---- messages ---- */

swl_status swl_chat_create(swl_chat **out, swl_engine *e, swl_error *err)
{
    swl_chat *c = swl_calloc(1, sizeof *c);

    *out = NULL;
    if (!c || !(c->messages = json_array())) {
        swl_free(c);
        return no_memory(err);
    }
    c->engine = e;
    *out = c;
    return SWL_OK;
}

void swl_chat_free(swl_chat *c)
{
    if (!c)
        return;
    json_decref(c->messages);
    swl_free(c->ids);
    swl_free(c);
}

/* Ill-formed UTF-8 becomes U+FFFD, as wherever text comes in. */
static json_t *mended(const char *text)
{
    enum { PIECE = 256 };
    size_t n = strlen(text), part;
    char out[3 * (PIECE + 4)];
    swl_sbuf b = {0};
    swl_detok d;
    json_t *v;

    swl_detok_init(&d);
    for (; n; text += part, n -= part) {
        part = n < PIECE ? n : PIECE;
        swl_sbuf_put(&b, out, swl_detok_push(&d, text, part, out));
    }
    swl_sbuf_put(&b, out, swl_detok_flush(&d, out));
    v = b.failed ? NULL : json_stringn(b.p ? b.p : "", b.n);
    swl_sbuf_deinit(&b);
    return v;
}

swl_status swl_chat_add(swl_chat *c, const char *role, const char *content, swl_error *err)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "function"};
    json_t *m;
    size_t i = 0;

    while (i < sizeof roles / sizeof *roles && strcmp(role, roles[i]))
        i++;
    if (i == sizeof roles / sizeof *roles)
        return swl_fail(err, SWL_E_ARG, "role \"%.40s\" is unknown, expected system, user, assistant or tool", role);
    m = json_pack("{s:s, s:o}", "role", role, "content", mended(content ? content : ""));
    return !m || json_array_append_new(c->messages, m) ? no_memory(err) : SWL_OK;
}

swl_status swl_chat_add_json(swl_chat *c, const char *message, swl_error *err)
{
    json_t *m;
    swl_status st = swl_json_in(&m, message, strlen(message), NULL, "message", err);

    if (st)
        return st;
    if (!json_is_object(m)) {
        json_decref(m);
        return swl_fail(err, SWL_E_ARG, "message: expected an object");
    }
    return json_array_append_new(c->messages, m) ? no_memory(err) : SWL_OK;
}

int32_t swl_chat_n_messages(const swl_chat *c)
{
    return (int32_t)json_array_size(c->messages);
}

char *swl_chat_messages(const swl_chat *c)
{
    char *text = json_dumps(c->messages, 0), *out = text ? swl_strdup(text) : NULL;

    free(text);
    return out;
}

void swl_chat_truncate(swl_chat *c, int32_t n)
{
    while (json_array_size(c->messages) > (size_t)(n < 0 ? 0 : n))
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

swl_status swl_chat_fork(swl_chat **out, const swl_chat *c, swl_error *err)
{
    swl_status st = swl_chat_create(out, c->engine, err);

    if (st)
        return st;
    (*out)->ids = swl_calloc((size_t)c->n_ids, sizeof *c->ids);
    if ((*out)->ids && c->n_ids)
        memcpy((*out)->ids, c->ids, (size_t)c->n_ids * sizeof *c->ids);
    (*out)->n_ids = c->n_ids;
    if (!(*out)->ids || json_array_extend((*out)->messages, c->messages)) { /* messages are replaced, never changed */
        swl_chat_free(*out);
        *out = NULL;
        return no_memory(err);
    }
    return SWL_OK;
}

/* ---- answers ---- */

typedef struct answer {
    swl_engine *engine;
    const swl_request_options *opt;
    swl_sbuf text, reasoning;
    json_t *calls;
    swl_usage usage;
    swl_finish finish;
    swl_error error;
    bool failed, done; /* done: under the engine's lock */
} answer;

static void begin_call(answer *a, const swl_event *event)
{
    json_t *call = json_pack("{s:s, s:s, s:{s:o, s:s}}", "id", event->call_id, "type", "function", "function", "name",
                             json_stringn(event->text, event->n_bytes), "arguments", "");

    if (json_array_append_new(a->calls, call))
        a->text.failed = true;
}

static void end_call(answer *a, const swl_event *event)
{
    size_t last = json_array_size(a->calls) - 1;
    json_t *function = json_object_get(json_array_get(a->calls, last), "function");

    if (event->broken)
        json_array_remove(a->calls, last);
    else if (json_object_set_new(function, "arguments", json_stringn(event->text, event->n_bytes)))
        a->text.failed = true;
}

static void finish_answer(answer *a, const swl_event *event)
{
    a->usage = *event->usage;
    a->finish = event->finish;
    a->failed = event->error != NULL;
    if (event->error)
        a->error = *event->error;
}

static bool on_event(void *arg, const swl_event *event)
{
    answer *a = arg;
    bool more = true;

    if (event->kind == SWL_EVENT_TEXT)
        swl_sbuf_put(&a->text, event->text, event->n_bytes);
    if (event->kind == SWL_EVENT_REASONING)
        swl_sbuf_put(&a->reasoning, event->text, event->n_bytes);
    if (event->kind == SWL_EVENT_CALL_BEGIN)
        begin_call(a, event);
    if (event->kind == SWL_EVENT_CALL_END)
        end_call(a, event);
    if (event->kind == SWL_EVENT_FINISH)
        finish_answer(a, event);
    if (a->opt->on_event)
        more = a->opt->on_event(a->opt->arg, event);
    if (event->kind == SWL_EVENT_FINISH) {
        pthread_mutex_lock(&a->engine->lock);
        a->done = true;
        pthread_cond_broadcast(&a->engine->changed);
        pthread_mutex_unlock(&a->engine->lock);
    }
    return more;
}

/* Waits until the answer is there or nobody steps nor waits to. True: this thread is to step. */
static bool wait_turn(answer *a)
{
    swl_engine *e = a->engine;
    bool mine;

    pthread_mutex_lock(&e->lock);
    while (!a->done && e->turn_now != e->next_turn)
        pthread_cond_wait(&e->changed, &e->lock);
    mine = !a->done;
    e->next_turn += mine;
    pthread_mutex_unlock(&e->lock);
    return mine;
}

static swl_status run(answer *a, swl_request *r, swl_error *err)
{
    bool busy;
    swl_status st = swl_engine_submit(a->engine, r, err);

    if (st)
        return st;
    while (wait_turn(a)) {
        if (swl_engine_step_locked(a->engine, &busy, err))
            atomic_store(r->cancel, true); /* it ends with the next step that works */
        swl_step_release(a->engine);
    }
    return SWL_OK;
}

/* The answer goes on from the text of the message before. */
static json_t *continued(const swl_chat *c, const answer *a)
{
    size_t last = json_array_size(c->messages) - 1;
    json_t *m = json_copy(json_array_get(c->messages, last));
    const json_t *content = json_object_get(m, "content");
    swl_sbuf b = {0};

    swl_sbuf_put(&b, json_string_value(content), json_string_length(content));
    swl_sbuf_put(&b, a->text.p, a->text.n);
    if (b.failed || json_object_set_new(m, "content", json_stringn(b.p ? b.p : "", b.n)) ||
        json_array_remove(c->messages, last)) {
        json_decref(m);
        m = NULL;
    }
    swl_sbuf_deinit(&b);
    return m;
}

static json_t *new_message(const answer *a)
{
    json_t *m =
        json_pack("{s:s, s:o}", "role", "assistant", "content", json_stringn(a->text.p ? a->text.p : "", a->text.n));

    if (m && a->reasoning.n)
        json_object_set_new(m, "reasoning_content", json_stringn(a->reasoning.p, a->reasoning.n));
    if (m && json_array_size(a->calls))
        json_object_set(m, "tool_calls", a->calls);
    return m;
}

static swl_status append_answer(swl_chat *c, const answer *a, swl_error *err)
{
    json_t *m = NULL;

    if (!a->text.failed && !a->reasoning.failed)
        m = a->opt->continue_final ? continued(c, a) : new_message(a);
    return !m || json_array_append_new(c->messages, m) ? no_memory(err) : SWL_OK;
}

/* The tokens of the conversation so far, to find its state again. */
static void note_ids(swl_chat *c, const swl_request *r)
{
    int32_t n = r->ids ? r->n_prompt + r->n_out : 0, *ids = n ? swl_calloc((size_t)n, sizeof *ids) : NULL;

    if (!ids)
        return;
    memcpy(ids, r->ids, (size_t)r->n_prompt * sizeof *ids);
    if (r->n_out)
        memcpy(ids + r->n_prompt, r->out, (size_t)r->n_out * sizeof *ids);
    swl_free(c->ids);
    c->ids = ids;
    c->n_ids = n;
}

static swl_status ask(swl_chat *c, answer *a, swl_error *err)
{
    swl_request_options o = *a->opt;
    char *messages = json_dumps(c->messages, 0);
    swl_request *r;
    swl_status st;

    o.messages = messages;
    o.text = NULL;
    o.ids = NULL;
    o.on_event = on_event;
    o.arg = a;
    st = messages ? swl_request_create(&r, c->engine, &o, err) : no_memory(err);
    free(messages);
    if (!st || st == SWL_E_BUDGET) {
        if (!st) {
            r->cancel = &c->cancel;
            st = run(a, r, err);
            note_ids(c, r);
        }
        swl_request_free(r);
    }
    return st;
}

swl_status swl_chat_answer(swl_chat *c, const swl_request_options *opt, swl_usage *usage, swl_finish *finish,
                           swl_error *err)
{
    answer a = {.engine = c->engine, .opt = opt, .calls = json_array()};
    swl_status st = a.calls ? SWL_OK : no_memory(err);

    atomic_store(&c->cancel, false);
    if (!st)
        st = ask(c, &a, err);
    if (!st && a.failed) {
        st = a.error.code;
        if (err)
            *err = a.error;
    }
    if (!st)
        st = append_answer(c, &a, err);
    if (usage)
        *usage = a.usage;
    if (finish)
        *finish = a.finish;
    json_decref(a.calls);
    swl_sbuf_deinit(&a.text);
    swl_sbuf_deinit(&a.reasoning);
    return st;
}

void swl_chat_cancel(swl_chat *c)
{
    atomic_store(&c->cancel, true);
}
