/*
 * messages.c: the Anthropic Messages dialect. Calls have ids of the form toolu_...; inside they are call_..., so that an
 * answer is recognised when it comes back.
 */
#include <string.h>

#include "ask.h"
#include "dialects.h"

/* ---- decoding ---- */

/* Claude Code begins its system text with a line that differs each time, which would make every prompt new. */
static bool is_nonce(const srv_json *text)
{
    static const char start[] = "\"x-anthropic-billing-header:";

    return text && text->type == SRV_STRING && text->n_raw >= sizeof start - 1 && !memcmp(text->raw, start, sizeof start - 1);
}

static bool read_system(srv_job *j, srv_messages *m, srv_error *e)
{
    const srv_json *system = srv_get(j->doc.root, "system");
    srv_text content = {0};
    bool ok = true;
    int i = 0;

    if (!system || (system->type == SRV_STRING && is_nonce(system)))
        return true;
    if (system->type != SRV_ARRAY) {
        ok = srv_content(&content, system, "", "system", e);
        if (ok)
            srv_messages_system(m, content.p ? content.p : "", content.n);
    }
    for (const srv_json *b = system->type == SRV_ARRAY ? system->child : NULL; ok && b; b = b->next, i++) {
        const srv_json *text = srv_get(b, "text");
        char where[48];

        snprintf(where, sizeof where, "system[%d].text", i);
        if (!text || text->type != SRV_STRING)
            ok = srv_invalid(e, where, "expected a text");
        else if (!is_nonce(text))
            srv_messages_system(m, text->raw + 1, text->n_raw - 2);
    }
    srv_text_free(&content);
    return ok;
}

/* The id as it is inside: toolu_X is call_X. */
static void put_id(srv_text *t, const char *name, const srv_json *id)
{
    if (!id || id->type != SRV_STRING)
        return;
    srv_key(t, name);
    if (id->n_raw > 8 && !memcmp(id->raw + 1, "toolu_", 6)) {
        srv_puts(t, "\"call_");
        srv_add(t, id->raw + 7, id->n_raw - 7);
    } else {
        srv_add(t, id->raw, id->n_raw);
    }
}

typedef struct turn {
    srv_messages *m;
    srv_text text, reasoning, calls;
} turn;

static void end_user(turn *t)
{
    if (!t->text.n)
        return;
    srv_messages_open(t->m, "user", t->text.p, t->text.n);
    srv_messages_close(t->m);
    srv_text_clear(&t->text);
}

static void end_assistant(turn *t)
{
    srv_messages_open(t->m, "assistant", t->text.p ? t->text.p : "", t->text.n);
    if (t->reasoning.n) {
        srv_puts(&t->m->rest, ",\"reasoning_content\":\"");
        srv_add(&t->m->rest, t->reasoning.p, t->reasoning.n);
        srv_puts(&t->m->rest, "\"");
    }
    if (t->calls.n) {
        srv_puts(&t->m->rest, ",\"tool_calls\":[");
        srv_add(&t->m->rest, t->calls.p, t->calls.n);
        srv_puts(&t->m->rest, "]");
    }
    srv_messages_close(t->m);
}

static bool add_result(turn *t, const srv_json *b, const char *where, srv_error *e)
{
    srv_text content = {0};
    bool is_error = false, ok;
    char place[96];

    snprintf(place, sizeof place, "%s.is_error", where);
    ok = srv_ask_bool(b, "is_error", place, &is_error, e);
    if (is_error)
        srv_puts(&content, "Error: ");
    snprintf(place, sizeof place, "%s.content", where);
    ok = ok && srv_content(&content, srv_get(b, "content"), "\\n", place, e);
    if (ok) {
        end_user(t);
        srv_messages_open(t->m, "tool", content.p ? content.p : "", content.n);
        put_id(&t->m->rest, "tool_call_id", srv_get(b, "tool_use_id"));
        srv_messages_close(t->m);
    }
    srv_text_free(&content);
    return ok;
}

static bool add_use(turn *t, const srv_json *b, const char *where, srv_error *e)
{
    const srv_json *name = srv_get(b, "name"), *input = srv_get(b, "input");
    char place[96];

    snprintf(place, sizeof place, "%s.name", where);
    if (!name || name->type != SRV_STRING)
        return srv_invalid(e, place, "expected a name");
    snprintf(place, sizeof place, "%s.input", where);
    if (input && input->type != SRV_OBJECT)
        return srv_invalid(e, place, "expected an object");
    srv_puts(&t->calls, t->calls.n ? ",{" : "{");
    put_id(&t->calls, "id", srv_get(b, "id"));
    srv_str(&t->calls, "type", "function");
    srv_open(&t->calls, "function", '{');
    srv_raw(&t->calls, "name", name->raw, name->n_raw);
    srv_raw(&t->calls, "arguments", input ? input->raw : "{}", input ? input->n_raw : 2);
    srv_puts(&t->calls, "}}");
    return true;
}

static bool add_text(srv_text *to, const srv_json *text, const char *where, srv_error *e)
{
    if (!text || text->type != SRV_STRING)
        return srv_invalid(e, where, "expected a text");
    if (to->n && text->n_raw > 2)
        srv_puts(to, "\\n");
    srv_add(to, text->raw + 1, text->n_raw - 2);
    return true;
}

static bool add_block(turn *t, const srv_json *b, bool assistant, const char *where, srv_error *e)
{
    const srv_json *type = srv_get(b, "type");
    char place[96];

    if (b->type != SRV_OBJECT)
        return srv_invalid(e, where, "expected an object");
    if (srv_is(type, "text")) {
        snprintf(place, sizeof place, "%s.text", where);
        return add_text(&t->text, srv_get(b, "text"), place, e);
    }
    if (srv_is(type, "thinking") && assistant) {
        snprintf(place, sizeof place, "%s.thinking", where);
        return add_text(&t->reasoning, srv_get(b, "thinking"), place, e);
    }
    if (srv_is(type, "tool_use") && assistant)
        return add_use(t, b, where, e);
    if (srv_is(type, "tool_result") && !assistant)
        return add_result(t, b, where, e);
    if (srv_is(type, "image") || srv_is(type, "document") || !type)
        return srv_invalid(e, where, "a block of this type cannot be read: this model takes text alone");
    return true; /* redacted_thinking, what server tools did */
}

static bool add_message(srv_messages *m, const srv_json *message, int i, srv_error *e)
{
    const srv_json *role = srv_get(message, "role"), *content = srv_get(message, "content");
    bool assistant = srv_is(role, "assistant"), system = srv_is(role, "system"), ok = true;
    turn t = {.m = m};
    char where[64];
    int k = 0;

    snprintf(where, sizeof where, "messages[%d].role", i);
    if (!assistant && !system && !srv_is(role, "user"))
        return srv_invalid(e, where, "expected \"user\" or \"assistant\"");
    snprintf(where, sizeof where, "messages[%d].content", i);
    if (!content || (content->type != SRV_STRING && content->type != SRV_ARRAY))
        return srv_invalid(e, where, "expected a string or a list of blocks");
    if (content->type == SRV_STRING)
        srv_add(&t.text, content->raw + 1, content->n_raw - 2);
    for (const srv_json *b = content->type == SRV_ARRAY ? content->child : NULL; ok && b; b = b->next, k++) {
        snprintf(where, sizeof where, "messages[%d].content[%d]", i, k);
        ok = add_block(&t, b, assistant, where, e);
    }
    if (ok && assistant)
        end_assistant(&t);
    else if (ok && system)
        srv_messages_system(m, t.text.p ? t.text.p : "", t.text.n);
    else if (ok && (t.text.n || !k)) {
        srv_messages_open(m, "user", t.text.p ? t.text.p : "", t.text.n);
        srv_messages_close(m);
    }
    if (t.text.failed || t.reasoning.failed || t.calls.failed)
        ok = srv_no_memory(e);
    srv_text_free(&t.text);
    srv_text_free(&t.reasoning);
    srv_text_free(&t.calls);
    return ok;
}

static bool read_messages(srv_job *j, srv_error *e)
{
    const srv_json *list, *last = NULL;
    srv_messages m = {.job = j};
    bool ok = srv_ask_type(j->doc.root, "messages", "messages", SRV_ARRAY, &list, e);
    int i = 0;

    if (ok && !list)
        ok = srv_invalid(e, "messages", "the messages are missing");
    else if (ok && list->n > 10000)
        ok = srv_invalid(e, "messages", "there are %zu messages, more than 10000", list->n);
    ok = ok && read_system(j, &m, e);
    for (const srv_json *at = ok ? list->child : NULL; ok && at; at = at->next, i++) {
        last = at;
        ok = add_message(&m, at, i, e);
    }
    if (!ok) {
        srv_messages_free(&m);
        return false;
    }
    j->ask.o.continue_final = srv_is(srv_get(last, "role"), "assistant") && !(m.rest.n && strstr(m.rest.p + m.rest.n - (m.rest.n < 64 ? m.rest.n : 64), "}}]}"));
    return srv_messages_finish(&m, e);
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
        const srv_json *name = srv_get(t, "name"), *type = srv_get(t, "type"), *schema = srv_get(t, "input_schema");

        if (type && !srv_is(type, "custom") && !schema) {
            srv_log(j->server, true, "a request has a server tool; it was left out");
            continue;
        }
        snprintf(param, sizeof param, "tools[%d].name", i);
        if (!name || name->type != SRV_STRING || name->n_raw <= 2)
            return srv_invalid(e, param, "expected a name");
        snprintf(param, sizeof param, "tools[%d].input_schema", i);
        if (schema && schema->type != SRV_OBJECT)
            return srv_invalid(e, param, "expected an object");
        srv_tools_add(j, name, srv_get(t, "description"), schema, NULL);
    }
    srv_tools_finish(j);
    return true;
}

static bool read_tool_choice(srv_job *j, srv_error *e)
{
    const srv_json *choice, *type;
    bool single = false;

    if (!srv_ask_type(j->doc.root, "tool_choice", "tool_choice", SRV_OBJECT, &choice, e) ||
        !srv_ask_bool(choice, "disable_parallel_tool_use", "tool_choice.disable_parallel_tool_use", &single, e))
        return false;
    type = srv_get(choice, "type");
    j->ask.o.one_call = single;
    if (!choice || srv_is(type, "auto"))
        return true;
    if (srv_is(type, "none"))
        j->ask.o.no_calls = true;
    else if (srv_is(type, "any") && j->ask.has_tools)
        j->ask.o.constrain = SWL_CONSTRAIN_TOOL;
    else if (srv_is(type, "tool"))
        return srv_ask_named_tool(j, srv_get(choice, "name"), "tool_choice.name", e);
    else
        return srv_invalid(e, "tool_choice.type", "expected \"auto\", \"none\", or with tools \"any\" or \"tool\"");
    return true;
}

/* Thinking is off unless it is asked for here or on the command line. */
static bool read_thinking(srv_job *j, srv_error *e)
{
    const srv_json *config;

    if (!srv_ask_type(j->doc.root, "output_config", "output_config", SRV_OBJECT, &config, e))
        return false;
    if (j->ask.o.think == SWL_THINK_DEFAULT)
        j->ask.o.think = SWL_THINK_OFF;
    if (!srv_ask_thinking(j, j->doc.root, e))
        return false;
    if (srv_is(srv_get(srv_get(j->doc.root, "thinking"), "type"), "adaptive") && srv_get(config, "effort"))
        j->ask.o.think = srv_think_level(j, srv_get(config, "effort"));
    return true;
}

static bool read_format(srv_job *j, srv_error *e)
{
    const srv_json *format = srv_get(srv_get(j->doc.root, "output_config"), "format");

    if (!format)
        format = srv_get(j->doc.root, "output_format");
    return !format || srv_ask_format(j, format, "output_format", e);
}

static bool read_request(srv_job *j, srv_error *e)
{
    static const char *const max_names[] = {"max_tokens"};
    const srv_json *o = j->doc.root;

    if (!srv_ask_model(j, o, e) || !srv_ask_bool(o, "stream", "stream", &j->ask.stream, e) || !read_messages(j, e) ||
        !read_tools(j, e) || !read_format(j, e) || !read_tool_choice(j, e) || !srv_ask_max_tokens(j, o, max_names, 1, e) ||
        !srv_ask_sampling(j, o, "stop_sequences", e) || !read_thinking(j, e))
        return false;
    return !j->ask.tools.failed || srv_no_memory(e);
}

bool srv_messages_prepare(srv_job *j, srv_error *e)
{
    return srv_prepare_one(j, read_request, "msg_", &srv_messages_encoder, e);
}

bool srv_messages_count(srv_job *j, srv_error *e)
{
    if (!srv_prepare_one(j, read_request, NULL, NULL, e))
        return false;
    srv_printf(&j->answer, "{\"input_tokens\":%d}", (int)swl_request_n_prompt(j->choices[0].request));
    return true;
}

/* ---- encoding ---- */

static void put_usage(srv_text *t, int32_t n_input, int32_t n_cached, int32_t n_output)
{
    srv_open(t, "usage", '{');
    srv_int(t, "input_tokens", n_input - n_cached);
    srv_int(t, "cache_creation_input_tokens", 0);
    srv_int(t, "cache_read_input_tokens", n_cached);
    srv_int(t, "output_tokens", n_output);
    srv_close(t, '}');
}

static void begin(srv_job *j)
{
    srv_text *t = srv_begin_event(j, "message_start");

    srv_open(t, "message", '{');
    srv_str(t, "id", j->id);
    srv_str(t, "type", "message");
    srv_str(t, "role", "assistant");
    srv_str(t, "model", j->ask.model);
    srv_puts(t, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null");
    put_usage(t, swl_request_n_prompt(j->choices[0].request), 0, 0);
    srv_close(t, '}');
    srv_end_event(j);
    srv_begin_event(j, "ping");
    srv_end_event(j);
}

static void put_use_id(srv_text *t, const srv_item *it)
{
    char id[64];

    snprintf(id, sizeof id, "toolu_%s", it->call_id + (strncmp(it->call_id, "call_", 5) ? 0 : 5));
    srv_str(t, "id", id);
}

static void open_item(srv_choice *c, srv_item *it)
{
    srv_text *t = srv_begin_event(c->job, "content_block_start");

    srv_int(t, "index", it - c->items);
    srv_open(t, "content_block", '{');
    if (it->kind == SRV_ITEM_CALL) {
        srv_str(t, "type", "tool_use");
        put_use_id(t, it);
        srv_strn(t, "name", it->name.p, it->name.n);
        srv_puts(t, ",\"input\":{}");
    } else {
        srv_puts(t, it->kind == SRV_ITEM_TEXT ? "\"type\":\"text\",\"text\":\"\"" :
                 "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"");
    }
    srv_close(t, '}');
    srv_end_event(c->job);
}

static void put_delta(srv_choice *c, const srv_item *it, const char *type, const char *field, const char *p, size_t n)
{
    srv_text *t = srv_begin_event(c->job, "content_block_delta");

    srv_int(t, "index", it - c->items);
    srv_open(t, "delta", '{');
    srv_str(t, "type", type);
    srv_strn(t, field, p, n);
    srv_close(t, '}');
    srv_end_event(c->job);
}

static void delta(srv_choice *c, srv_item *it, const char *p, size_t n)
{
    static const char *const types[] = {"thinking_delta", "text_delta", "input_json_delta"};
    static const char *const fields[] = {"thinking", "text", "partial_json"};

    put_delta(c, it, types[it->kind], fields[it->kind], p, n);
}

/* A token of ours, which may come back and means nothing. */
static void sign(char *to)
{
    strcpy(to, "swl1_");
    srv_random_id(to + 5, SRV_ID);
}

static void close_item(srv_choice *c, srv_item *it)
{
    char signature[SRV_ID + 8];
    srv_text *t;

    if (it->kind == SRV_ITEM_REASONING) {
        sign(signature);
        put_delta(c, it, "signature_delta", "signature", signature, strlen(signature));
    }
    t = srv_begin_event(c->job, "content_block_stop");
    srv_int(t, "index", it - c->items);
    srv_end_event(c->job);
}

static const char *stop_reason(const srv_choice *c)
{
    if (c->finish == SWL_FINISH_LENGTH || c->finish == SWL_FINISH_CONTEXT)
        return "max_tokens";
    return c->n_calls ? "tool_use" : c->stop ? "stop_sequence" : "end_turn";
}

static void end(srv_choice *c)
{
    (void)c;
}

static void finish(srv_job *j)
{
    const srv_choice *c = &j->choices[0];
    srv_text *t = srv_begin_event(j, "message_delta");

    srv_open(t, "delta", '{');
    srv_str(t, "stop_reason", stop_reason(c));
    srv_str(t, "stop_sequence", c->stop);
    srv_close(t, '}');
    put_usage(t, c->usage.n_prompt, c->usage.n_cached, c->usage.n_generated);
    srv_end_event(j);
    srv_begin_event(j, "message_stop");
    srv_end_event(j);
}

static void whole_item(srv_text *t, const srv_item *it)
{
    char signature[SRV_ID + 8];

    srv_open(t, NULL, '{');
    if (it->kind == SRV_ITEM_TEXT) {
        srv_str(t, "type", "text");
        srv_strn(t, "text", it->text.p, it->text.n);
        srv_null(t, "citations");
    } else if (it->kind == SRV_ITEM_REASONING) {
        sign(signature);
        srv_str(t, "type", "thinking");
        srv_strn(t, "thinking", it->text.p, it->text.n);
        srv_str(t, "signature", signature);
    } else {
        srv_str(t, "type", "tool_use");
        put_use_id(t, it);
        srv_strn(t, "name", it->name.p, it->name.n);
        srv_raw_line(t, "input", it->text.n ? it->text.p : "{}", it->text.n ? it->text.n : 2);
    }
    srv_close(t, '}');
}

static void whole(srv_job *j, srv_text *t)
{
    const srv_choice *c = &j->choices[0];

    srv_puts(t, "{");
    srv_str(t, "id", j->id);
    srv_str(t, "type", "message");
    srv_str(t, "role", "assistant");
    srv_str(t, "model", j->ask.model);
    srv_open(t, "content", '[');
    for (int32_t i = 0; i < c->n_items; i++) {
        if (!c->items[i].broken)
            whole_item(t, &c->items[i]);
    }
    srv_close(t, ']');
    srv_str(t, "stop_reason", stop_reason(c));
    srv_str(t, "stop_sequence", c->stop);
    put_usage(t, c->usage.n_prompt, c->usage.n_cached, c->usage.n_generated);
    srv_close(t, '}');
}

static void heartbeat(srv_job *j)
{
    srv_begin_event(j, "ping");
    srv_end_event(j);
}

static void fault(srv_job *j, const srv_error *e)
{
    srv_text *t = &j->scratch;

    srv_text_clear(t);
    srv_puts(t, "event: error\ndata: ");
    srv_error_json(t, e, SRV_ANTHROPIC, j->conn ? j->conn->request_id : "");
    srv_puts(t, "\n\n");
    srv_job_write(j, t);
}

const srv_encoder srv_messages_encoder = {
    .begin = begin, .open = open_item, .delta = delta, .close = close_item, .end = end, .finish = finish, .whole = whole,
    .heartbeat = heartbeat, .fault = fault, .content_type = "text/event-stream; charset=utf-8",
};
