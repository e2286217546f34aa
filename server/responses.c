/*
 * responses.c: the Responses dialect. Items in become messages: what an assistant said in a row (reasoning, text, calls) is
 * one message. Events out carry a sequence number, and everything about an item its output_index.
 */
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "dialects.h"

/* ---- decoding ---- */

/* What the assistant said, until somebody else speaks. */
typedef struct turn {
    srv_messages m;
    srv_text reasoning, content, calls;
    bool open;
} turn;

static void end_turn(turn *t)
{
    if (!t->open)
        return;
    srv_messages_open(&t->m, "assistant", t->content.p, t->content.n);
    if (t->reasoning.n) {
        srv_puts(&t->m.rest, ",\"reasoning_content\":\"");
        srv_add(&t->m.rest, t->reasoning.p, t->reasoning.n);
        srv_puts(&t->m.rest, "\"");
    }
    if (t->calls.n) {
        srv_puts(&t->m.rest, ",\"tool_calls\":[");
        srv_add(&t->m.rest, t->calls.p, t->calls.n);
        srv_puts(&t->m.rest, "]");
    }
    srv_messages_close(&t->m);
    srv_text_clear(&t->reasoning);
    srv_text_clear(&t->content);
    srv_text_clear(&t->calls);
    t->open = false;
}

static void free_turn(turn *t)
{
    srv_text_free(&t->reasoning);
    srv_text_free(&t->content);
    srv_text_free(&t->calls);
}

static bool add_message(turn *t, const srv_json *item, const char *where, srv_error *e)
{
    const srv_json *role = srv_get(item, "role");
    srv_text content = {0};
    char place[96];
    bool ok;

    snprintf(place, sizeof place, "%s.content", where);
    ok = srv_content(&content, srv_get(item, "content"), "", place, e);
    if (ok && srv_is(role, "assistant")) {
        if (t->content.n || t->calls.n)
            end_turn(t);
        t->open = true;
        srv_add(&t->content, content.p ? content.p : "", content.n);
    } else if (ok && (srv_is(role, "system") || srv_is(role, "developer"))) {
        end_turn(t);
        srv_messages_system(&t->m, content.p ? content.p : "", content.n);
    } else if (ok && srv_is(role, "user")) {
        end_turn(t);
        srv_messages_open(&t->m, "user", content.p ? content.p : "", content.n);
        srv_messages_close(&t->m);
    } else if (ok) {
        snprintf(place, sizeof place, "%s.role", where);
        ok = srv_invalid(e, place, "expected \"user\", \"assistant\", \"system\" or \"developer\"");
    }
    srv_text_free(&content);
    return ok;
}

static bool add_call(turn *t, const srv_json *item, const char *where, srv_error *e)
{
    const srv_json *name = srv_get(item, "name"), *args = srv_get(item, "arguments"), *id = srv_get(item, "call_id");
    char place[96];

    snprintf(place, sizeof place, "%s.name", where);
    if (!name || name->type != SRV_STRING)
        return srv_invalid(e, place, "expected a name");
    snprintf(place, sizeof place, "%s.arguments", where);
    if (args && args->type != SRV_STRING && args->type != SRV_OBJECT)
        return srv_invalid(e, place, "expected a string or an object");
    if (!srv_weigh_arguments(t->m.job, args, place, e))
        return false;
    t->open = true;
    srv_puts(&t->calls, t->calls.n ? ",{" : "{");
    if (id && id->type == SRV_STRING)
        srv_raw(&t->calls, "id", id->raw, id->n_raw);
    srv_str(&t->calls, "type", "function");
    srv_open(&t->calls, "function", '{');
    srv_raw(&t->calls, "name", name->raw, name->n_raw);
    srv_raw(&t->calls, "arguments", args ? args->raw : "{}", args ? args->n_raw : 2);
    srv_puts(&t->calls, "}}");
    return true;
}

static bool add_output(turn *t, const srv_json *item, const char *where, srv_error *e)
{
    const srv_json *output = srv_get(item, "output"), *id = srv_get(item, "call_id");
    srv_text content = {0};
    char place[96];

    snprintf(place, sizeof place, "%s.output", where);
    if (output && output->type == SRV_OBJECT) { /* as some clients send it: rendered as it is */
        srv_put_json_part(&content, output->raw, output->n_raw);
    } else if (!srv_content(&content, output, "", place, e)) {
        srv_text_free(&content);
        return false;
    }
    end_turn(t);
    srv_messages_open(&t->m, "tool", content.p ? content.p : "", content.n);
    if (id && id->type == SRV_STRING)
        srv_raw(&t->m.rest, "tool_call_id", id->raw, id->n_raw);
    srv_messages_close(&t->m);
    srv_text_free(&content);
    return true;
}

static bool add_reasoning(turn *t, const srv_json *item, const char *where, srv_error *e)
{
    const srv_json *content = srv_get(item, "content");

    if (t->content.n || t->calls.n)
        end_turn(t);
    t->open = true;
    if (!content || (content->type == SRV_ARRAY && !content->n))
        content = srv_get(item, "summary");
    return srv_content(&t->reasoning, content, "\\n", where, e);
}

static bool add_item(turn *t, const srv_json *item, int i, srv_error *e)
{
    const srv_json *type = srv_get(item, "type");
    char where[48];

    snprintf(where, sizeof where, "input[%d]", i);
    if (item->type != SRV_OBJECT)
        return srv_invalid(e, where, "expected an object");
    if (!type || srv_is(type, "message"))
        return add_message(t, item, where, e);
    if (srv_is(type, "function_call"))
        return add_call(t, item, where, e);
    if (srv_is(type, "function_call_output"))
        return add_output(t, item, where, e);
    if (srv_is(type, "reasoning"))
        return add_reasoning(t, item, where, e);
    srv_log(t->m.job->server, false, "a request has an input item of an unknown type; it was left out");
    return true;
}

static bool read_input(srv_job *j, srv_error *e)
{
    const srv_json *input = srv_get(j->doc.root, "input"), *instructions;
    turn t = {.m = {.job = j}};
    bool ok = srv_ask_type(j->doc.root, "instructions", "instructions", SRV_STRING, &instructions, e);
    int i = 0;

    if (ok && !input)
        ok = srv_invalid(e, "input", "the input is missing");
    else if (ok && input->type != SRV_STRING && input->type != SRV_ARRAY)
        ok = srv_invalid(e, "input", "expected a string or a list");
    else if (ok && input->n > 10000)
        ok = srv_invalid(e, "input", "there are %zu items, more than 10000", input->n);
    if (ok && instructions)
        srv_messages_system(&t.m, instructions->raw + 1, instructions->n_raw - 2);
    if (ok && input->type == SRV_STRING) {
        srv_messages_open(&t.m, "user", input->raw + 1, input->n_raw - 2);
        srv_messages_close(&t.m);
    }
    for (const srv_json *at = ok ? input->child : NULL; ok && at; at = at->next, i++)
        ok = add_item(&t, at, i, e);
    if (t.reasoning.failed || t.content.failed || t.calls.failed)
        ok = srv_no_memory(e);
    j->ask.o.continue_final = ok && t.open && t.content.n && !t.calls.n;
    end_turn(&t);
    free_turn(&t);
    if (ok)
        ok = srv_messages_finish(&t.m, e);
    else
        srv_messages_free(&t.m);
    if (!ok && !strcmp(e->param, "messages"))
        strcpy(e->param, "input");
    return ok;
}

static bool read_tools(srv_job *j, srv_error *e)
{
    const srv_json *tools;
    char param[64];
    int i = 0;

    if (!srv_ask_type(j->doc.root, "tools", "tools", SRV_ARRAY, &tools, e))
        return false;
    if (tools && tools->n > 512)
        return srv_invalid(e, "tools", "there are %zu tools, more than 512", tools->n);
    for (const srv_json *t = tools ? tools->child : NULL; t; t = t->next, i++) {
        const srv_json *f = srv_get(t, "function") ? srv_get(t, "function") : t, *name = srv_get(f, "name");
        const srv_json *parameters = srv_get(f, "parameters");

        if (t->type == SRV_OBJECT && !srv_is(srv_get(t, "type"), "function")) {
            srv_log(j->server, true, "a request has a tool of a type that is not \"function\"; it was left out");
            continue;
        }
        snprintf(param, sizeof param, "tools[%d].name", i);
        if (!name || name->type != SRV_STRING || name->n_raw <= 2)
            return srv_invalid(e, param, "expected a name");
        snprintf(param, sizeof param, "tools[%d].parameters", i);
        if (parameters && parameters->type != SRV_OBJECT)
            return srv_invalid(e, param, "expected an object");
        srv_tools_add(j, name, srv_get(f, "description"), parameters, srv_get(f, "strict"));
    }
    srv_tools_finish(j);
    return true;
}

static bool read_include(srv_job *j, srv_error *e)
{
    const srv_json *include, *summary = srv_get(srv_get(j->doc.root, "reasoning"), "summary");
    int64_t top = 0;

    if (!srv_ask_type(j->doc.root, "include", "include", SRV_ARRAY, &include, e) ||
        !srv_ask_int(j->doc.root, "top_logprobs", "top_logprobs", 0, 20, &top, e))
        return false;
    for (const srv_json *i = include ? include->child : NULL; i; i = i->next) {
        if (i->type != SRV_STRING)
            return srv_invalid(e, "include", "expected strings");
        j->ask.encrypted |= srv_is(i, "reasoning.encrypted_content");
        j->ask.logprobs |= srv_is(i, "message.output_text.logprobs");
    }
    j->ask.summary = summary && summary->type == SRV_STRING && !srv_is(summary, "none");
    j->ask.logprobs |= top > 0;
    j->ask.o.logprobs = j->ask.logprobs;
    j->ask.o.n_top = (int32_t)top;
    return true;
}

static bool refuse_stored(const srv_json *o, srv_error *e)
{
    static const char *const names[] = {"previous_response_id", "conversation"};

    for (int i = 0; i < 2; i++) {
        const srv_json *p = srv_get(o, names[i]);

        if (p && !srv_is(p, "")) {
            srv_invalid(e, names[i], "responses are not stored: send the whole conversation as input");
            e->code = "unsupported_value";
            return false;
        }
    }
    return true;
}

/* Fields that only come back with the answer: clients read them there as the types that they are. */
static bool check_echoes(const srv_json *o, srv_error *e)
{
    static const struct { const char *name; srv_json_type type; } fields[] = {
        {"truncation", SRV_STRING}, {"metadata", SRV_OBJECT}, {"prompt_cache_key", SRV_STRING}, {"safety_identifier", SRV_STRING},
        {"user", SRV_STRING}};
    const srv_json *reasoning, *ignored;

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!srv_ask_type(o, fields[i].name, fields[i].name, fields[i].type, &ignored, e))
            return false;
    }
    return srv_ask_type(o, "reasoning", "reasoning", SRV_OBJECT, &reasoning, e) &&
           srv_ask_type(reasoning, "effort", "reasoning.effort", SRV_STRING, &ignored, e) &&
           srv_ask_type(reasoning, "summary", "reasoning.summary", SRV_STRING, &ignored, e);
}

static bool read_request(srv_job *j, srv_error *e)
{
    static const char *const max_names[] = {"max_output_tokens"};
    const srv_json *o = j->doc.root, *text, *format;
    bool parallel = true;

    if (!srv_ask_model(j, o, e) || !refuse_stored(o, e) || !srv_ask_bool(o, "stream", "stream", &j->ask.stream, e) ||
        !read_input(j, e) || !read_tools(j, e) || !srv_ask_type(o, "text", "text", SRV_OBJECT, &text, e) ||
        !srv_ask_type(text, "format", "text.format", SRV_OBJECT, &format, e) || !srv_ask_format(j, format, "text.format", e) ||
        !srv_ask_tool_choice(j, srv_get(o, "tool_choice"), e) ||
        !srv_ask_bool(o, "parallel_tool_calls", "parallel_tool_calls", &parallel, e) ||
        !srv_ask_max_tokens(j, o, max_names, 1, e) || !srv_ask_sampling(j, o, "stop", e) || !srv_ask_thinking(j, o, e) ||
        !check_echoes(o, e) || !read_include(j, e))
        return false;
    j->ask.parallel_calls = parallel;
    j->ask.o.one_call = !parallel;
    return !j->ask.tools.failed || srv_no_memory(e);
}

bool srv_responses_prepare(srv_job *j, srv_error *e)
{
    return srv_prepare_one(j, read_request, "resp_", &srv_responses_encoder, e);
}

bool srv_responses_count(srv_job *j, srv_error *e)
{
    if (!srv_prepare_one(j, read_request, NULL, NULL, e))
        return false;
    srv_puts(&j->answer, "{\"object\":\"response.input_tokens\"");
    srv_int(&j->answer, "input_tokens", swl_request_n_prompt(j->choices[0].request));
    srv_puts(&j->answer, "}");
    return true;
}

/* ---- the response object ---- */

/* A field of the request as it was, or what it would have been. */
static void echo(srv_text *t, const srv_job *j, const char *name, const char *otherwise)
{
    const srv_json *v = srv_get(j->doc.root, name);

    srv_raw_line(t, name, v ? v->raw : otherwise, v ? v->n_raw : strlen(otherwise));
}

static const char *item_status(const srv_choice *c, const srv_item *it)
{
    bool cut = c->finished && (c->finish == SWL_FINISH_LENGTH || c->finish == SWL_FINISH_CONTEXT) && it == &c->items[c->n_items - 1];

    return !it->closed ? "in_progress" : cut || it->broken ? "incomplete" : "completed";
}

static void put_text_part(srv_text *t, const srv_choice *c, const srv_item *it, const char *type)
{
    srv_puts(t, "{");
    srv_str(t, "type", type);
    srv_strn(t, "text", it->text.p, it->text.n);
    if (!strcmp(type, "output_text")) {
        srv_puts(t, ",\"annotations\":[],\"logprobs\":[");
        srv_add(t, c->logprobs.p, c->logprobs.n);
        srv_puts(t, "]");
    }
    srv_puts(t, "}");
}

/* `whole` false: as it is when it begins. */
static void put_item(srv_text *t, const srv_choice *c, const srv_item *it, bool whole)
{
    static const char *const types[] = {"reasoning", "message", "function_call"};

    srv_puts(t, "{");
    srv_str(t, "id", it->id);
    srv_str(t, "type", types[it->kind]);
    srv_str(t, "status", whole ? item_status(c, it) : "in_progress");
    if (it->kind == SRV_ITEM_CALL) {
        srv_str(t, "call_id", it->call_id);
        srv_strn(t, "name", it->name.p, it->name.n);
        srv_strn(t, "arguments", it->text.p, whole ? it->text.n : 0);
    } else if (it->kind == SRV_ITEM_TEXT) {
        srv_puts(t, ",\"role\":\"assistant\",\"content\":[");
        if (whole)
            put_text_part(t, c, it, "output_text");
        srv_puts(t, "]");
    } else {
        bool summary = c->job->ask.summary;

        srv_puts(t, ",\"summary\":[");
        if (whole && summary)
            put_text_part(t, c, it, "summary_text");
        srv_puts(t, "],\"content\":[");
        if (whole && !summary)
            put_text_part(t, c, it, "reasoning_text");
        srv_puts(t, "]");
        if (c->job->ask.encrypted && whole)
            srv_str(t, "encrypted_content", it->call_id); /* a token that is ours */
        else
            srv_null(t, "encrypted_content");
    }
    srv_puts(t, "}");
}

static void put_usage(srv_text *t, const srv_job *j)
{
    swl_usage u = srv_usage_sum(j);

    srv_open(t, "usage", '{');
    srv_int(t, "input_tokens", u.n_prompt);
    srv_open(t, "input_tokens_details", '{');
    srv_int(t, "cached_tokens", u.n_cached);
    srv_close(t, '}');
    srv_int(t, "output_tokens", u.n_generated);
    srv_open(t, "output_tokens_details", '{');
    srv_int(t, "reasoning_tokens", u.n_reasoning);
    srv_close(t, '}');
    srv_int(t, "total_tokens", (int64_t)u.n_prompt + u.n_generated);
    srv_close(t, '}');
}

static void put_echoes(srv_text *t, srv_job *j)
{
    const srv_json *reasoning = srv_get(j->doc.root, "reasoning"), *effort = srv_get(reasoning, "effort");
    const srv_json *summary = srv_get(reasoning, "summary");

    echo(t, j, "instructions", "null");
    echo(t, j, "tools", "[]");
    echo(t, j, "tool_choice", "\"auto\"");
    srv_bool(t, "parallel_tool_calls", j->ask.parallel_calls);
    srv_real(t, "temperature", (double)j->ask.o.sampling.temperature);
    srv_real(t, "top_p", (double)j->ask.o.sampling.top_p);
    echo(t, j, "max_output_tokens", "null");
    srv_null(t, "max_tool_calls");
    srv_null(t, "previous_response_id");
    srv_open(t, "reasoning", '{');
    srv_raw(t, "effort", effort ? effort->raw : "null", effort ? effort->n_raw : 4);
    srv_raw(t, "summary", summary ? summary->raw : "null", summary ? summary->n_raw : 4);
    srv_close(t, '}');
    echo(t, j, "text", "{\"format\":{\"type\":\"text\"}}");
    echo(t, j, "truncation", "\"disabled\"");
    echo(t, j, "metadata", "{}");
    srv_real(t, "presence_penalty", (double)j->ask.o.sampling.presence_penalty);
    srv_real(t, "frequency_penalty", (double)j->ask.o.sampling.frequency_penalty);
    srv_int(t, "top_logprobs", j->ask.o.n_top);
    srv_puts(t, ",\"store\":false,\"background\":false,\"service_tier\":\"default\"");
    echo(t, j, "prompt_cache_key", "null");
    echo(t, j, "safety_identifier", "null");
    echo(t, j, "user", "null");
}

static void put_response(srv_text *t, srv_job *j, const char *status, const srv_error *e)
{
    const srv_choice *c = &j->choices[0];
    bool ended = strcmp(status, "in_progress") && strcmp(status, "queued");

    srv_puts(t, "{");
    srv_str(t, "id", j->id);
    srv_str(t, "object", "response");
    srv_int(t, "created_at", j->created);
    if (!strcmp(status, "completed"))
        srv_int(t, "completed_at", (int64_t)time(NULL));
    else
        srv_null(t, "completed_at");
    srv_str(t, "status", status);
    srv_str(t, "model", j->ask.model);
    srv_open(t, "output", '[');
    for (int32_t i = 0; ended && i < c->n_items; i++) {
        if (c->items[i].kind == SRV_ITEM_CALL && c->items[i].broken && !j->ask.stream)
            continue;
        srv_comma(t);
        put_item(t, c, &c->items[i], true);
    }
    srv_close(t, ']');
    put_echoes(t, j);
    if (e) {
        srv_open(t, "error", '{');
        srv_str(t, "code", e->code ? e->code : e->type);
        srv_str(t, "message", e->message);
        srv_close(t, '}');
    } else {
        srv_null(t, "error");
    }
    if (!strcmp(status, "incomplete"))
        srv_puts(t, ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}");
    else
        srv_null(t, "incomplete_details");
    if (ended && !e)
        put_usage(t, j);
    else
        srv_null(t, "usage");
    srv_close(t, '}');
}

/* ---- events ---- */

static srv_text *begin_event(srv_job *j, const char *type)
{
    srv_text *t = srv_begin_event(j, type);

    srv_int(t, "sequence_number", j->sequence++);
    return t;
}

static void response_event(srv_job *j, const char *type, const char *status, const srv_error *e)
{
    srv_text *t = begin_event(j, type);

    srv_key(t, "response");
    put_response(t, j, status, e);
    srv_end_event(j);
}

static void begin(srv_job *j)
{
    response_event(j, "response.created", "in_progress", NULL);
    response_event(j, "response.in_progress", "in_progress", NULL);
}

static srv_text *item_event(srv_choice *c, const srv_item *it, const char *type, const char *part_index)
{
    srv_text *t = begin_event(c->job, type);

    srv_int(t, "output_index", it - c->items);
    srv_str(t, "item_id", it->id);
    if (part_index)
        srv_int(t, part_index, 0);
    return t;
}

static void whole_item_event(srv_choice *c, const srv_item *it, const char *type, bool whole)
{
    srv_text *t = begin_event(c->job, type);

    srv_int(t, "output_index", it - c->items);
    srv_key(t, "item");
    put_item(t, c, it, whole);
    srv_end_event(c->job);
}

static void name_item(srv_item *it)
{
    static const char *const prefixes[] = {"rs_", "msg_", "fc_"};
    size_t n = strlen(prefixes[it->kind]);

    if (it->id[0])
        return;
    strcpy(it->id, prefixes[it->kind]);
    srv_random_id(it->id + n, SRV_ID);
    if (it->kind == SRV_ITEM_REASONING) {
        strcpy(it->call_id, "swl1_");
        srv_random_id(it->call_id + 5, SRV_ID);
    }
}

static void open_item(srv_choice *c, srv_item *it)
{
    srv_text *t;

    name_item(it);
    whole_item_event(c, it, "response.output_item.added", false);
    if (it->kind == SRV_ITEM_TEXT) {
        t = item_event(c, it, "response.content_part.added", "content_index");
        srv_puts(t, ",\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[],\"logprobs\":[]}");
        srv_end_event(c->job);
    } else if (it->kind == SRV_ITEM_REASONING && c->job->ask.summary) {
        t = item_event(c, it, "response.reasoning_summary_part.added", "summary_index");
        srv_puts(t, ",\"part\":{\"type\":\"summary_text\",\"text\":\"\"}");
        srv_end_event(c->job);
    }
}

/* Which event tells a piece of an item, with ".delta" or ".done" behind, and how its part is counted. */
static void event_name(const srv_choice *c, const srv_item *it, const char *end, char *name, size_t size, const char **part)
{
    bool summary = c->job->ask.summary;

    *part = it->kind == SRV_ITEM_CALL ? NULL : it->kind == SRV_ITEM_REASONING && summary ? "summary_index" : "content_index";
    snprintf(name, size, "response.%s.%s", it->kind == SRV_ITEM_CALL ? "function_call_arguments" : it->kind == SRV_ITEM_TEXT ?
             "output_text" : summary ? "reasoning_summary_text" : "reasoning_text", end);
}

static void delta(srv_choice *c, srv_item *it, const char *p, size_t n)
{
    const char *part;
    char name[64];
    srv_text *t;

    event_name(c, it, "delta", name, sizeof name, &part);
    t = item_event(c, it, name, part);
    srv_strn(t, "delta", p, n);
    if (it->kind == SRV_ITEM_TEXT) {
        srv_puts(t, ",\"logprobs\":[");
        srv_add(t, c->fresh_logprobs.p, c->fresh_logprobs.n);
        srv_puts(t, "]");
        srv_text_clear(&c->fresh_logprobs);
    }
    srv_end_event(c->job);
}

static void close_item(srv_choice *c, srv_item *it)
{
    const char *part;
    char name[64];
    srv_text *t;

    event_name(c, it, "done", name, sizeof name, &part);
    if (it->kind == SRV_ITEM_CALL && it->broken) /* nobody is to act on it: it never becomes done */
        return;
    t = item_event(c, it, name, part);
    if (it->kind == SRV_ITEM_CALL) {
        srv_strn(t, "name", it->name.p, it->name.n);
        srv_strn(t, "arguments", it->text.p, it->text.n);
    } else {
        srv_strn(t, "text", it->text.p, it->text.n);
    }
    if (it->kind == SRV_ITEM_TEXT) {
        srv_puts(t, ",\"logprobs\":[");
        srv_add(t, c->logprobs.p, c->logprobs.n);
        srv_puts(t, "]");
    }
    srv_end_event(c->job);
    if (it->kind == SRV_ITEM_TEXT || (it->kind == SRV_ITEM_REASONING && c->job->ask.summary)) {
        t = item_event(c, it, it->kind == SRV_ITEM_TEXT ? "response.content_part.done" : "response.reasoning_summary_part.done", part);
        srv_key(t, "part");
        put_text_part(t, c, it, it->kind == SRV_ITEM_TEXT ? "output_text" : "summary_text");
        srv_end_event(c->job);
    }
    whole_item_event(c, it, "response.output_item.done", true);
}

static void token(srv_choice *c, const srv_note *n)
{
    if (n->reasoning || n->prompt)
        return;
    srv_put_token(&c->logprobs, c->job, n);
    srv_put_token(&c->fresh_logprobs, c->job, n);
}

static const char *final_status(const srv_choice *c)
{
    return c->finish == SWL_FINISH_LENGTH || c->finish == SWL_FINISH_CONTEXT ? "incomplete" : "completed";
}

static void end(srv_choice *c)
{
    (void)c;
}

static void finish(srv_job *j)
{
    const char *status = final_status(&j->choices[0]);
    char name[32];

    snprintf(name, sizeof name, "response.%s", status);
    response_event(j, name, status, NULL);
}

static void whole(srv_job *j, srv_text *t)
{
    for (int32_t i = 0; i < j->choices[0].n_items; i++)
        name_item(&j->choices[0].items[i]);
    put_response(t, j, final_status(&j->choices[0]), NULL);
}

static void heartbeat(srv_job *j)
{
    response_event(j, "response.in_progress", "in_progress", NULL);
}

static void fault(srv_job *j, const srv_error *e)
{
    response_event(j, "response.failed", "failed", e);
}

const srv_encoder srv_responses_encoder = {
    .begin = begin, .open = open_item, .delta = delta, .close = close_item, .token = token, .end = end, .finish = finish,
    .whole = whole, .heartbeat = heartbeat, .fault = fault, .content_type = "text/event-stream; charset=utf-8",
};
