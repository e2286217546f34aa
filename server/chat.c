/* chat.c: Chat Completions: requests decoded, streams and answers encoded. */
#include <string.h>

#include "ask.h"
#include "dialects.h"

/* ---- decoding ---- */

static bool read_tool(srv_job *j, const srv_json *tool, int i, srv_error *e)
{
    const srv_json *f = srv_get(tool, "function"), *name = srv_get(f, "name"), *parameters = srv_get(f, "parameters");
    char param[64];

    snprintf(param, sizeof param, "tools[%d]", i);
    if (tool->type != SRV_OBJECT)
        return srv_invalid(e, param, "expected an object");
    if (srv_get(tool, "type") && !srv_is(srv_get(tool, "type"), "function")) {
        srv_log(j->server, false, "a request has a tool of a type that is not \"function\"; it was left out");
        return true;
    }
    snprintf(param, sizeof param, "tools[%d].function", i);
    if (!f || f->type != SRV_OBJECT)
        return srv_invalid(e, param, "expected an object");
    snprintf(param, sizeof param, "tools[%d].function.name", i);
    if (!name || name->type != SRV_STRING || name->n_raw <= 2)
        return srv_invalid(e, param, "expected a name");
    snprintf(param, sizeof param, "tools[%d].function.parameters", i);
    if (parameters && parameters->type != SRV_OBJECT && parameters->type != SRV_TRUE && parameters->type != SRV_FALSE)
        return srv_invalid(e, param, "expected an object");
    srv_tools_add_raw(j, tool);
    return true;
}

bool srv_ask_tools(srv_job *j, const srv_json *tools, srv_error *e)
{
    int i = 0;

    if (tools && tools->type != SRV_ARRAY)
        return srv_invalid(e, "tools", "expected a list");
    if (tools && tools->n > 512)
        return srv_invalid(e, "tools", "there are %zu tools, more than 512", tools->n);
    for (const srv_json *t = tools ? tools->child : NULL; t; t = t->next, i++) {
        if (!read_tool(j, t, i, e))
            return false;
    }
    srv_tools_finish(j);
    return true;
}

/* {"type":"allowed_tools","allowed_tools":{"mode","tools"}}, also without the inner object */
static bool allowed_tools(srv_job *j, const srv_json *choice, srv_error *e)
{
    const srv_json *inner = srv_get(choice, "allowed_tools") ? srv_get(choice, "allowed_tools") : choice;
    const srv_json *list = srv_get(inner, "tools");
    bool required = srv_is(srv_get(inner, "mode"), "required");
    srv_text *names = &j->ask.allowed;

    if (!list || list->type != SRV_ARRAY)
        return srv_invalid(e, "tool_choice.allowed_tools.tools", "expected a list");
    srv_puts(names, "[");
    for (const srv_json *t = list->child; t; t = t->next) {
        const srv_json *f = srv_get(t, "function");
        const srv_json *name = srv_get(f ? f : t, "name");

        if (!srv_tools_has(j, name))
            return srv_invalid(e, "tool_choice.allowed_tools.tools", "there is no tool of this name");
        srv_raw(names, NULL, name->raw, name->n_raw);
    }
    srv_puts(names, "]");
    if (names->failed)
        return srv_no_memory(e);
    if (!list->n && required)
        return srv_invalid(e, "tool_choice.allowed_tools.tools", "a call is required, but no tool is allowed");
    if (list->n)
        j->ask.o.allowed = names->p;
    else
        j->ask.o.no_calls = true;
    if (required)
        j->ask.o.constrain = SWL_CONSTRAIN_TOOL;
    return true;
}

bool srv_ask_tool_choice(srv_job *j, const srv_json *choice, srv_error *e)
{
    const srv_json *f = srv_get(choice, "function"), *type = srv_get(choice, "type");

    if (!choice || srv_is(choice, "auto"))
        return true;
    if (srv_is(choice, "none")) {
        j->ask.o.no_calls = true;
        return true;
    }
    if (srv_is(choice, "required") || srv_is(choice, "any")) {
        if (!j->ask.has_tools)
            return srv_invalid(e, "tool_choice", "a call is required, but there are no tools");
        j->ask.o.constrain = SWL_CONSTRAIN_TOOL;
        return true;
    }
    if (srv_is(type, "allowed_tools"))
        return allowed_tools(j, choice, e);
    if (choice->type == SRV_OBJECT && srv_is(type, "function"))
        return srv_ask_named_tool(j, srv_get(f ? f : choice, "name"), f ? "tool_choice.function.name" : "tool_choice.name", e);
    return srv_invalid(e, "tool_choice", "expected \"auto\", \"none\", \"required\" or a function");
}

static bool add_calls(srv_messages *m, const srv_json *calls, const char *param, srv_error *e)
{
    char where[128];
    int i = 0;

    if (calls->type != SRV_ARRAY)
        return srv_invalid(e, param, "expected a list");
    if (!calls->n)
        return true;
    srv_open(&m->rest, "tool_calls", '[');
    for (const srv_json *c = calls->child; c; c = c->next, i++) {
        const srv_json *f = srv_get(c, "function"), *id = srv_get(c, "id"), *name = srv_get(f, "name"), *args = srv_get(f, "arguments");

        snprintf(where, sizeof where, "%s[%d].function.name", param, i);
        if (!name || name->type != SRV_STRING)
            return srv_invalid(e, where, "expected a name");
        snprintf(where, sizeof where, "%s[%d].function.arguments", param, i);
        if (args && args->type != SRV_STRING && args->type != SRV_OBJECT)
            return srv_invalid(e, where, "expected a string or an object");
        if (!srv_weigh_arguments(m->job, args, where, e))
            return false;
        srv_open(&m->rest, NULL, '{');
        if (id && id->type == SRV_STRING)
            srv_raw(&m->rest, "id", id->raw, id->n_raw);
        srv_puts(&m->rest, m->rest.p[m->rest.n - 1] == '{' ? "\"type\":\"function\",\"function\":{" : ",\"type\":\"function\",\"function\":{");
        srv_raw(&m->rest, "name", name->raw, name->n_raw);
        srv_raw(&m->rest, "arguments", args ? args->raw : "{}", args ? args->n_raw : 2);
        srv_puts(&m->rest, "}}");
    }
    srv_puts(&m->rest, "]");
    return true;
}

static bool add_reasoning(srv_messages *m, const srv_json *message, int i, srv_error *e)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    char where[64];

    for (int k = 0; k < 3; k++) {
        const srv_json *r = srv_get(message, names[k]);

        snprintf(where, sizeof where, "messages[%d].%s", i, names[k]);
        if (r && r->type != SRV_STRING && !k)
            return srv_invalid(e, where, "expected a string");
        if (r && r->type == SRV_STRING && r->n_raw > 2) {
            srv_raw(&m->rest, "reasoning_content", r->raw, r->n_raw);
            return true;
        }
    }
    return true;
}

static bool add_assistant(srv_messages *m, const srv_json *message, const srv_text *content, int i, srv_error *e)
{
    const srv_json *calls = srv_get(message, "tool_calls");
    char where[64];

    srv_messages_open(m, "assistant", content->p, content->n);
    snprintf(where, sizeof where, "messages[%d].tool_calls", i);
    if (!add_reasoning(m, message, i, e) || (calls && !add_calls(m, calls, where, e)))
        return false;
    srv_messages_close(m);
    return true;
}

static bool add_message(srv_messages *m, const srv_json *message, int i, srv_error *e)
{
    const srv_json *role = srv_get(message, "role"), *id = srv_get(message, "tool_call_id"), *name = srv_get(message, "name");
    srv_text content = {0};
    char where[64];
    bool ok;

    snprintf(where, sizeof where, "messages[%d]", i);
    if (message->type != SRV_OBJECT)
        return srv_invalid(e, where, "expected an object");
    snprintf(where, sizeof where, "messages[%d].content", i);
    ok = srv_content(&content, srv_get(message, "content"), "", where, e);
    if (ok && (srv_is(role, "system") || srv_is(role, "developer"))) {
        srv_messages_system(m, content.p, content.n);
    } else if (ok && srv_is(role, "assistant")) {
        ok = add_assistant(m, message, &content, i, e);
    } else if (ok && srv_is(role, "user")) {
        srv_messages_open(m, "user", content.p, content.n);
        srv_messages_close(m);
    } else if (ok && (srv_is(role, "tool") || srv_is(role, "function"))) {
        srv_messages_open(m, "tool", content.p, content.n);
        if (id && id->type == SRV_STRING)
            srv_raw(&m->rest, "tool_call_id", id->raw, id->n_raw);
        if (name && name->type == SRV_STRING)
            srv_raw(&m->rest, "name", name->raw, name->n_raw);
        srv_messages_close(m);
    } else if (ok) {
        snprintf(where, sizeof where, "messages[%d].role", i);
        ok = srv_invalid(e, where, "expected \"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
    }
    if (content.failed)
        ok = srv_no_memory(e);
    srv_text_free(&content);
    return ok;
}

bool srv_ask_messages(srv_job *j, srv_error *e)
{
    const srv_json *list = srv_get(j->doc.root, "messages"), *last = NULL;
    srv_messages m = {.job = j};
    bool go_on = false, add = true;
    int i = 0;

    if (!list)
        return srv_invalid(e, "messages", "the messages are missing");
    if (list->type != SRV_ARRAY)
        return srv_invalid(e, "messages", "expected a list");
    if (list->n > 10000)
        return srv_invalid(e, "messages", "there are %zu messages, more than 10000", list->n);
    for (const srv_json *at = list->child; at; at = at->next, i++) {
        last = at;
        if (!add_message(&m, at, i, e)) {
            srv_messages_free(&m);
            return false;
        }
    }
    if (!srv_ask_bool(j->doc.root, "continue_final_message", "continue_final_message", &go_on, e) ||
        !srv_ask_bool(j->doc.root, "add_generation_prompt", "add_generation_prompt", &add, e)) {
        srv_messages_free(&m);
        return false;
    }
    j->ask.o.continue_final = srv_is(srv_get(last, "role"), "assistant") && !srv_get(last, "tool_calls") &&
                              (go_on || !srv_get(j->doc.root, "add_generation_prompt") || !add);
    return srv_messages_finish(&m, e);
}

static bool read_logprobs(srv_job *j, const srv_json *o, srv_error *e)
{
    int64_t top = 0;

    if (!srv_ask_bool(o, "logprobs", "logprobs", &j->ask.logprobs, e) ||
        !srv_ask_int(o, "top_logprobs", "top_logprobs", 0, 20, &top, e))
        return false;
    if (top && !j->ask.logprobs)
        return srv_invalid(e, "top_logprobs", "top_logprobs needs logprobs");
    j->ask.o.n_top = (int32_t)top;
    j->ask.o.logprobs = j->ask.logprobs || j->ask.timings_per_token;
    return true;
}

static bool read_stream(srv_job *j, const srv_json *o, srv_error *e)
{
    const srv_json *options;
    int64_t ping = 0;

    if (!srv_ask_bool(o, "stream", "stream", &j->ask.stream, e) ||
        !srv_ask_type(o, "stream_options", "stream_options", SRV_OBJECT, &options, e) ||
        !srv_ask_bool(options, "include_usage", "stream_options.include_usage", &j->ask.include_usage, e) ||
        !srv_ask_bool(o, "return_progress", "return_progress", &j->ask.return_progress, e) ||
        !srv_ask_bool(o, "timings_per_token", "timings_per_token", &j->ask.timings_per_token, e) ||
        !srv_ask_int(o, "sse_ping_interval", "sse_ping_interval", 1, 3600, &ping, e))
        return false;
    j->ask.heartbeat_ms = (int32_t)ping * 1000;
    return true;
}

/* functions and function_call, as they were before there were tools. */
static bool read_functions(srv_job *j, const srv_json *o, srv_error *e)
{
    const srv_json *list;
    int i = 0;

    if (!srv_ask_type(o, "functions", "functions", SRV_ARRAY, &list, e))
        return false;
    for (const srv_json *f = list && !j->ask.has_tools ? list->child : NULL; f; f = f->next, i++) {
        const srv_json *name = srv_get(f, "name");

        if (!name || name->type != SRV_STRING || i >= 512)
            return srv_invalid(e, "functions", "expected at most 512 functions with names");
        srv_tools_add(j, name, srv_get(f, "description"), srv_get(f, "parameters"), NULL);
    }
    if (i)
        srv_tools_finish(j);
    return true;
}

/* Everything that makes the prompt and the answer; also for count and template endpoints. */
bool srv_ask_chat(srv_job *j, srv_error *e)
{
    static const char *const max_names[] = {"max_completion_tokens", "max_tokens"};
    const srv_json *o = j->doc.root, *format, *grammar = srv_get(o, "grammar"), *schema = srv_get(o, "json_schema");
    bool parallel = true;

    if (grammar)
        return srv_invalid(e, "grammar", "grammars are not supported; use response_format with a JSON schema");
    if (!srv_ask_model(j, o, e) || !read_stream(j, o, e) || !srv_ask_messages(j, e) || !srv_ask_tools(j, srv_get(o, "tools"), e) ||
        !read_functions(j, o, e) || !srv_ask_type(o, "response_format", "response_format", SRV_OBJECT, &format, e) ||
        !srv_ask_format(j, format, "response_format", e) || (schema && !format && !srv_ask_schema(j, schema, "json_schema", e)) ||
        !srv_ask_tool_choice(j, srv_get(o, "tool_choice"), e) ||
        !srv_ask_bool(o, "parallel_tool_calls", "parallel_tool_calls", &parallel, e) ||
        !srv_ask_max_tokens(j, o, max_names, 2, e) || !srv_ask_sampling(j, o, "stop", e) || !srv_ask_thinking(j, o, e) ||
        !read_logprobs(j, o, e))
        return false;
    j->ask.parallel_calls = parallel;
    j->ask.o.one_call = !parallel;
    if (j->ask.tools.failed || j->ask.vars.failed)
        return srv_no_memory(e);
    return true;
}

bool srv_chat_prepare(srv_job *j, srv_error *e)
{
    int64_t n = 1;

    srv_ask_defaults(j);
    if (!srv_body(j, e) || !srv_ask_chat(j, e) || !srv_ask_int(j->doc.root, "n", "n", 1, 8, &n, e))
        return false;
    snprintf(j->id, sizeof j->id, "chatcmpl-");
    srv_random_id(j->id + 9, SRV_ID);
    j->encoder = &srv_chat_encoder;
    return srv_make_choices(j, (int32_t)n, e);
}

/* ---- encoding ---- */

static srv_text *begin_object(srv_job *j, const char *kind, bool frame)
{
    srv_text *t = &j->scratch;

    srv_text_clear(t);
    srv_puts(t, frame ? "data: {" : "{");
    srv_str(t, "id", j->id);
    srv_str(t, "object", kind);
    srv_int(t, "created", j->created);
    srv_str(t, "model", j->ask.model);
    srv_str(t, "system_fingerprint", j->server->build);
    return t;
}

/* data: {..."choices":[{"index":0,"delta":{ */
static srv_text *begin_chunk(srv_choice *c)
{
    srv_text *t = begin_object(c->job, "chat.completion.chunk", true);

    srv_open(t, "choices", '[');
    srv_open(t, NULL, '{');
    srv_int(t, "index", c->index);
    srv_open(t, "delta", '{');
    return t;
}

static void end_chunk(srv_choice *c, const char *finish_reason, bool with_timings)
{
    srv_text *t = &c->job->scratch;

    srv_close(t, '}');
    if (c->job->ask.logprobs && c->fresh_logprobs.n) {
        srv_puts(t, ",\"logprobs\":{\"content\":[");
        srv_add(t, c->fresh_logprobs.p, c->fresh_logprobs.n);
        srv_puts(t, "],\"refusal\":null}");
        srv_text_clear(&c->fresh_logprobs);
    } else {
        srv_null(t, "logprobs");
    }
    srv_str(t, "finish_reason", finish_reason);
    srv_puts(t, "}]");
    if (with_timings)
        srv_timings(c, t);
    srv_puts(t, "}\n\n");
    srv_job_write(c->job, t);
}

static void start(srv_choice *c)
{
    srv_puts(begin_chunk(c), "\"role\":\"assistant\",\"content\":\"\"");
    end_chunk(c, NULL, false);
}

static void begin(srv_job *j)
{
    start(srv_job_choice(j));
}

static void put_reasoning(srv_text *t, const srv_job *j, const char *p, size_t n)
{
    swl_reasoning_field field = j->server->opt.reasoning_field;

    if (field == SWL_REASONING_CONTENT || field == SWL_REASONING_BOTH)
        srv_strn(t, "reasoning_content", p, n);
    if (field == SWL_REASONING_PLAIN || field == SWL_REASONING_BOTH)
        srv_strn(t, "reasoning", p, n);
    if (field == SWL_REASONING_NONE)
        srv_strn(t, "content", p, n);
}

/* Where the client wants reasoning within the content, its tags are content too. */
static void put_tag(srv_choice *c, const char *tag)
{
    srv_str(begin_chunk(c), "content", tag);
    end_chunk(c, NULL, false);
}

static void open_item(srv_choice *c, srv_item *it)
{
    srv_text *t;

    if (it->kind == SRV_ITEM_REASONING && c->job->server->opt.reasoning_field == SWL_REASONING_NONE)
        put_tag(c, "<think>\n");
    if (it->kind != SRV_ITEM_CALL)
        return;
    t = begin_chunk(c);
    srv_open(t, "tool_calls", '[');
    srv_open(t, NULL, '{');
    srv_int(t, "index", (int64_t)srv_call_index(c, it));
    srv_str(t, "id", it->call_id);
    srv_str(t, "type", "function");
    srv_open(t, "function", '{');
    srv_strn(t, "name", it->name.p, it->name.n);
    srv_puts(t, ",\"arguments\":\"\"}}]");
    end_chunk(c, NULL, false);
}

static void close_item(srv_choice *c, srv_item *it)
{
    if (it->kind == SRV_ITEM_REASONING && c->job->server->opt.reasoning_field == SWL_REASONING_NONE)
        put_tag(c, "\n</think>\n\n");
}

static void delta(srv_choice *c, srv_item *it, const char *p, size_t n)
{
    srv_text *t = begin_chunk(c);

    if (it->kind == SRV_ITEM_TEXT) {
        srv_strn(t, "content", p, n);
    } else if (it->kind == SRV_ITEM_REASONING) {
        put_reasoning(t, c->job, p, n);
    } else {
        srv_open(t, "tool_calls", '[');
        srv_open(t, NULL, '{');
        srv_int(t, "index", (int64_t)srv_call_index(c, it));
        srv_open(t, "function", '{');
        srv_strn(t, "arguments", p, n);
        srv_puts(t, "}}]");
    }
    end_chunk(c, NULL, c->job->ask.timings_per_token);
}

static void put_logprob(srv_text *t, const srv_job *j, const swl_token_logprob *p)
{
    srv_open(t, NULL, '{');
    srv_key(t, "token");
    srv_token_json(t, j, p->id);
    srv_real(t, "logprob", (double)p->logprob);
    srv_key(t, "bytes");
    srv_token_bytes(t, j, p->id);
}

void srv_put_token(srv_text *t, const srv_job *j, const srv_note *n)
{
    put_logprob(t, j, &n->token);
    srv_open(t, "top_logprobs", '[');
    for (int32_t i = 0; i < n->n_top; i++) {
        put_logprob(t, j, &n->top[i]);
        srv_close(t, '}');
    }
    srv_puts(t, "]}");
}

static void token(srv_choice *c, const srv_note *n)
{
    if (!n->reasoning && !n->prompt)
        srv_put_token(&c->fresh_logprobs, c->job, n); /* an answer in one piece takes them from there in the end */
}

static const char *finish_reason(const srv_choice *c)
{
    if (c->finish == SWL_FINISH_LENGTH || c->finish == SWL_FINISH_CONTEXT)
        return "length";
    return c->n_calls ? "tool_calls" : "stop";
}

static void end(srv_choice *c)
{
    srv_job *j = c->job;

    if (j->ask.logprobs && c->fresh_logprobs.n) { /* of tokens whose text was held back */
        srv_str(begin_chunk(c), "content", "");
        end_chunk(c, NULL, false);
    }
    begin_chunk(c);
    end_chunk(c, finish_reason(c), !j->ask.include_usage && j->at + 1 == j->n_choices);
}

static void finish(srv_job *j)
{
    srv_text *t;

    if (j->ask.include_usage) {
        t = begin_object(j, "chat.completion.chunk", true);
        srv_puts(t, ",\"choices\":[]");
        srv_put_usage(t, j, true);
        srv_timings(srv_job_choice(j), t);
        srv_puts(t, "}\n\n");
        srv_job_write(j, t);
    }
    srv_text_clear(&j->scratch);
    srv_puts(&j->scratch, "data: [DONE]\n\n");
    srv_job_write(j, &j->scratch);
}

static void whole_calls(srv_text *t, const srv_choice *c)
{
    srv_open(t, "tool_calls", '[');
    for (int32_t i = 0; i < c->n_items; i++) {
        const srv_item *it = &c->items[i];

        if (it->kind != SRV_ITEM_CALL || it->broken)
            continue;
        srv_open(t, NULL, '{');
        srv_str(t, "id", it->call_id);
        srv_str(t, "type", "function");
        srv_open(t, "function", '{');
        srv_strn(t, "name", it->name.p, it->name.n);
        srv_strn(t, "arguments", it->text.p, it->text.n);
        srv_puts(t, "}}");
    }
    srv_puts(t, "]");
}

static void whole_text(srv_text *t, const srv_choice *c, srv_item_kind kind)
{
    for (int32_t i = 0; i < c->n_items; i++) {
        if (c->items[i].kind == kind)
            srv_add(t, c->items[i].text.p, c->items[i].text.n);
    }
}

static void whole_choice(srv_text *t, const srv_choice *c)
{
    srv_text content = {0}, reasoning = {0};
    bool within = c->job->server->opt.reasoning_field == SWL_REASONING_NONE;

    whole_text(&reasoning, c, SRV_ITEM_REASONING);
    if (within && reasoning.n)
        srv_printf(&content, "<think>\n%s\n</think>\n\n", reasoning.p);
    whole_text(&content, c, SRV_ITEM_TEXT);
    srv_open(t, NULL, '{');
    srv_int(t, "index", c->index);
    srv_open(t, "message", '{');
    srv_str(t, "role", "assistant");
    if (!content.n && c->n_calls)
        srv_null(t, "content");
    else
        srv_strn(t, "content", content.p, content.n);
    srv_null(t, "refusal");
    if (reasoning.n && !within)
        put_reasoning(t, c->job, reasoning.p, reasoning.n);
    if (c->n_calls)
        whole_calls(t, c);
    srv_close(t, '}');
    if (c->job->ask.logprobs) {
        srv_puts(t, ",\"logprobs\":{\"content\":[");
        srv_add(t, c->fresh_logprobs.p, c->fresh_logprobs.n);
        srv_puts(t, "],\"refusal\":null}");
    } else {
        srv_null(t, "logprobs");
    }
    srv_str(t, "finish_reason", finish_reason(c));
    srv_close(t, '}');
    t->failed |= content.failed || reasoning.failed;
    srv_text_free(&content);
    srv_text_free(&reasoning);
}

static void whole(srv_job *j, srv_text *t)
{
    begin_object(j, "chat.completion", false);
    srv_open(t, "choices", '[');
    for (int32_t i = 0; i < j->n_choices; i++)
        whole_choice(t, &j->choices[i]);
    srv_close(t, ']');
    srv_put_usage(t, j, true);
    srv_timings(srv_job_choice(j), t);
    srv_close(t, '}');
}

static void sign_of_life(srv_job *j, bool with_progress)
{
    srv_text *t = begin_chunk(srv_job_choice(j));

    srv_puts(t, "},\"logprobs\":null,\"finish_reason\":null}]");
    if (with_progress && srv_job_place(j))
        srv_int(t, "queue_position", srv_job_place(j));
    if (with_progress) {
        srv_open(t, "prompt_progress", '{');
        srv_int(t, "total", j->n_total);
        srv_int(t, "cache", j->n_cached);
        srv_int(t, "cached", j->n_cached);
        srv_int(t, "processed", j->n_done);
        srv_int(t, "time_ms", (int64_t)(1e3 * (srv_now() - j->submitted)));
        srv_close(t, '}');
    }
    srv_puts(t, "}\n\n");
    srv_job_write(j, t);
}

static void progress(srv_job *j)
{
    sign_of_life(j, true);
}

static void heartbeat(srv_job *j)
{
    sign_of_life(j, j->ask.return_progress);
}

void srv_chat_fault(srv_job *j, const srv_error *e)
{
    srv_text_clear(&j->scratch);
    srv_puts(&j->scratch, "data: ");
    srv_error_json(&j->scratch, e, SRV_OPENAI, "");
    srv_puts(&j->scratch, "\n\n");
    srv_job_write(j, &j->scratch);
}

const srv_encoder srv_chat_encoder = {
    .begin = begin, .start = start, .open = open_item, .delta = delta, .close = close_item, .token = token, .end = end,
    .finish = finish, .whole = whole, .heartbeat = heartbeat, .progress = progress, .fault = srv_chat_fault,
    .content_type = "text/event-stream; charset=utf-8",
};
