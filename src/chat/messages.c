/* messages.c: one message at a time, then what concerns them all: system messages, and that there is a question. */
#include "chat/messages.h"

#include <string.h>

#include "base/mem.h"
#include "chat/json_in.h"
#include "text/template_impl.h"

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "messages: out of memory");
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "a list", "a string", "a number",
                                        "a number",  "true",   "false",    "null"};

    return v ? names[json_typeof(v)] : "missing";
}

/* The member, or NULL when it is absent or null. */
static json_t *member(const json_t *obj, const char *key)
{
    json_t *v = json_object_get(obj, key);

    return json_is_null(v) ? NULL : v;
}

void swl_trim(const char **text, size_t *n)
{
    const char *p = *text, *end = p + *n;
    int32_t code;

    while (p < end) {
        int len = swl_tpl_utf8(p, (size_t)(end - p), &code);

        if (!swl_tpl_is_space(code))
            break;
        p += len;
    }
    while (end > p) {
        const char *q = end - 1;

        while (q > p && (*q & 0xc0) == 0x80)
            q--;
        swl_tpl_utf8(q, (size_t)(end - q), &code);
        if (!swl_tpl_is_space(code))
            break;
        end = q;
    }
    *text = p;
    *n = (size_t)(end - p);
}

/* ---- content ---- */

static bool is_text_part(const char *type)
{
    return !strcmp(type, "text") || !strcmp(type, "input_text") || !strcmp(type, "output_text");
}

static swl_status add_part(swl_sbuf *to, const json_t *part, size_t message, size_t i, swl_error *err)
{
    const char *type = json_string_value(member(part, "type"));
    const json_t *text = json_is_string(part) ? part : member(part, "text");

    if (!json_is_string(part) && !json_is_object(part))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].content[%zu]: expected an object, found %s", message, i,
                        type_name(part));
    if (type && !is_text_part(type))
        return swl_fail(err, SWL_E_ARG,
                        "messages[%zu].content[%zu]: a part of type \"%.40s\" cannot be read: this model takes "
                        "text alone",
                        message, i, type);
    if (!type && !text)
        return swl_fail(err, SWL_E_ARG, "messages[%zu].content[%zu].type: expected \"text\", found %s", message, i,
                        type_name(member(part, "type")));
    if (!json_is_string(text))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].content[%zu].text: expected a string, found %s", message, i,
                        type_name(text));
    swl_sbuf_put(to, json_string_value(text), json_string_length(text));
    return SWL_OK;
}

/* *out: a new string. */
static swl_status flatten(json_t **out, const json_t *content, size_t message, swl_error *err)
{
    swl_sbuf text = {0};
    swl_status st = SWL_OK;

    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return SWL_OK;
    }
    if (content && !json_is_array(content))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].content: expected a string, a list of parts or null, found %s",
                        message, type_name(content));
    for (size_t i = 0; i < json_array_size(content) && !st; i++)
        st = add_part(&text, json_array_get(content, i), message, i, err);
    if (!st && (text.failed || !(*out = json_stringn(text.p ? text.p : "", text.n))))
        st = no_memory(err);
    swl_sbuf_deinit(&text);
    return st;
}

/* ---- calls ---- */

/* Arguments as the template wants them: a new reference. */
static json_t *arguments_of(json_t *given, bool xml, const swl_seal *seal)
{
    const char *text = json_string_value(given);
    size_t n = json_string_length(given);
    json_t *parsed;

    if (!given || json_is_null(given))
        return json_object();
    if (!text)
        return json_is_object(given) ? json_incref(given) : json_pack("{s:O}", "arguments", given);
    swl_trim(&text, &n);
    if (!n)
        return json_object();
    if (!xml)
        return json_incref(given);
    if (!swl_json_in(&parsed, text, n, seal, "arguments", NULL) && json_is_object(parsed))
        return parsed;
    json_decref(parsed);
    return json_pack("{s:O}", "arguments", given); /* text that is no JSON is shown as it is */
}

static swl_status add_call(json_t *to, const json_t *call, bool xml, const swl_seal *seal, size_t message, size_t i,
                           swl_error *err)
{
    const json_t *f = member(call, "function"), *id = member(call, "id"), *name;
    json_t *out, *function;

    if (!json_is_object(call) || (f && !json_is_object(f)))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].tool_calls[%zu]%s: expected an object, found %s", message, i,
                        f ? ".function" : "", type_name(f ? f : call));
    f = f ? f : call;
    name = member(f, "name");
    if (!json_is_string(name))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].tool_calls[%zu].function.name: expected a string, found %s",
                        message, i, type_name(name));
    if (id && !json_is_string(id))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].tool_calls[%zu].id: expected a string, found %s", message, i,
                        type_name(id));
    function = json_pack("{s:O, s:o}", "name", name, "arguments", arguments_of(member(f, "arguments"), xml, seal));
    out = json_pack("{s:s, s:o}", "type", "function", "function", function);
    if (out && id)
        json_object_set(out, "id", (json_t *)id);
    return !out || json_array_append_new(to, out) ? no_memory(err) : SWL_OK;
}

/* tool_calls, or the older function_call. *out: a new list, NULL when there are none. */
static swl_status calls_of(json_t **out, const json_t *m, bool xml, const swl_seal *seal, size_t message,
                           swl_error *err)
{
    const json_t *calls = member(m, "tool_calls"), *one = member(m, "function_call");
    swl_status st = SWL_OK;

    *out = NULL;
    if (calls && !json_is_array(calls))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].tool_calls: expected a list, found %s", message,
                        type_name(calls));
    if (!json_array_size(calls) && !one)
        return SWL_OK;
    if (!(*out = json_array()))
        return no_memory(err);
    for (size_t i = 0; i < json_array_size(calls) && !st; i++)
        st = add_call(*out, json_array_get(calls, i), xml, seal, message, i, err);
    if (!json_array_size(calls) && !st)
        st = add_call(*out, one, xml, seal, message, 0, err);
    if (st) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

/* ---- a message ---- */

/* The first of the spellings that says something; a string that says nothing counts if there is no better. */
static swl_status reasoning_of(const json_t **out, const json_t *m, size_t message, swl_error *err)
{
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};

    *out = NULL;
    for (int i = 0; i < 3; i++) {
        const json_t *v = member(m, keys[i]);

        if (v && !json_is_string(v))
            return swl_fail(err, SWL_E_ARG, "messages[%zu].%s: expected a string, found %s", message, keys[i],
                            type_name(v));
        if (v && (!*out || !json_string_length(*out)))
            *out = v;
    }
    return SWL_OK;
}

/* The role under its usual name, or NULL. */
static const char *role_of(const json_t *m)
{
    static const char *const roles[][2] = {{"system", "system"},       {"developer", "system"}, {"user", "user"},
                                           {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"}};
    const char *role = json_string_value(member(m, "role"));

    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(role, roles[i][0]))
            return roles[i][1];
    return NULL;
}

static swl_status refuse_role(const json_t *m, size_t message, swl_error *err)
{
    const json_t *role = member(m, "role");

    if (!json_is_object(m))
        return swl_fail(err, SWL_E_ARG, "messages[%zu]: expected an object, found %s", message, type_name(m));
    if (!json_is_string(role))
        return swl_fail(err, SWL_E_ARG, "messages[%zu].role: expected a string, found %s", message, type_name(role));
    return swl_fail(err, SWL_E_ARG,
                    "messages[%zu].role: expected system, developer, user, assistant, tool or function, found "
                    "\"%.40s\"",
                    message, json_string_value(role));
}

static swl_status normalise_assistant(json_t *out, const json_t *m, bool xml, const swl_seal *seal, size_t i,
                                      swl_error *err)
{
    const json_t *reasoning;
    json_t *calls = NULL;
    swl_status st = reasoning_of(&reasoning, m, i, err);

    if (!st && reasoning)
        json_object_set(out, "reasoning_content", (json_t *)reasoning);
    if (!st)
        st = calls_of(&calls, m, xml, seal, i, err);
    if (!st && calls && json_object_set_new(out, "tool_calls", calls))
        st = no_memory(err);
    return st;
}

static bool is_ours(const char *key)
{
    static const char *const keys[] = {"role",     "content",    "reasoning_content", "reasoning",
                                       "thinking", "tool_calls", "function_call"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

static swl_status normalise_one(json_t **out, const json_t *m, bool xml, const swl_seal *seal, size_t i, swl_error *err)
{
    const char *role = json_is_object(m) ? role_of(m) : NULL, *key;
    json_t *content, *v;
    swl_status st;

    *out = NULL;
    if (!role)
        return refuse_role(m, i, err);
    st = flatten(&content, member(m, "content"), i, err);
    if (st)
        return st;
    *out = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!*out)
        return no_memory(err);
    if (!strcmp(role, "assistant"))
        st = normalise_assistant(*out, m, xml, seal, i, err);
    json_object_foreach ((json_t *)m, key, v) /* a template may know more */
        if (!st && !is_ours(key) && json_object_set(*out, key, v))
            st = no_memory(err);
    return st;
}

/* ---- all of them ---- */

static bool is_role(const json_t *m, const char *role)
{
    return !strcmp(json_string_value(json_object_get(m, "role")), role);
}

/* Adds another system message's text to the first. */
static swl_status merge_system(json_t *first, const json_t *m, swl_error *err)
{
    const json_t *a = json_object_get(first, "content"), *b = json_object_get(m, "content");
    swl_sbuf text = {0};
    json_t *joined = NULL;

    swl_sbuf_put(&text, json_string_value(a), json_string_length(a));
    swl_sbuf_puts(&text, "\n\n");
    swl_sbuf_put(&text, json_string_value(b), json_string_length(b));
    if (!text.failed)
        joined = json_stringn(text.p, text.n);
    swl_sbuf_deinit(&text);
    return !joined || json_object_set_new(first, "content", joined) ? no_memory(err) : SWL_OK;
}

/* Official templates refuse a conversation without a question; what is only an answer or a tool's result gets an empty
 * one. */
static swl_status finish_list(json_t *list, json_t *system, swl_error *err)
{
    size_t n = json_array_size(list);
    bool asked = false;

    if (!n && !system)
        return swl_fail(err, SWL_E_ARG, "messages: No messages provided.");
    if (!n)
        return swl_fail(err, SWL_E_ARG, "messages: No user query found in messages.");
    for (size_t i = 0; i < n && !asked; i++)
        asked = is_role(json_array_get(list, i), "user");
    if (!asked && json_array_insert_new(list, 0, json_pack("{s:s, s:s}", "role", "user", "content", "")))
        return no_memory(err);
    return system && json_array_insert(list, 0, system) ? no_memory(err) : SWL_OK;
}

swl_status swl_messages_normalise(json_t **out, const json_t *in, bool xml, const swl_seal *seal, swl_error *err)
{
    json_t *list = json_array(), *system = NULL, *m;
    size_t n = json_array_size(in);
    swl_status st = list ? SWL_OK : no_memory(err);

    *out = NULL;
    if (!json_is_array(in))
        st = swl_fail(err, SWL_E_ARG, "messages: expected a list, found %s", type_name(in));
    if (n > SWL_MESSAGES_MAX)
        st = swl_fail(err, SWL_E_ARG, "messages: %zu of them, at most %d are taken", n, SWL_MESSAGES_MAX);
    for (size_t i = 0; i < n && !st; i++) {
        st = normalise_one(&m, json_array_get(in, i), xml, seal, i, err);
        if (!st && is_role(m, "system")) {
            if (system)
                st = merge_system(system, m, err);
            else
                system = json_incref(m);
        } else if (!st && json_array_append(list, m)) {
            st = no_memory(err);
        }
        json_decref(m);
    }
    if (!st)
        st = finish_list(list, system, err);
    json_decref(system);
    if (st) {
        json_decref(list);
        return st;
    }
    *out = list;
    return SWL_OK;
}

swl_status swl_tools_check(const json_t *tools, swl_error *err)
{
    if (!json_is_array(tools))
        return swl_fail(err, SWL_E_ARG, "tools: expected a list, found %s", type_name(tools));
    if (json_array_size(tools) > SWL_TOOLS_MAX)
        return swl_fail(err, SWL_E_ARG, "tools: %zu of them, at most %d are taken", json_array_size(tools),
                        SWL_TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *f = member(tool, "function");

        if (!json_is_object(tool) || (f && !json_is_object(f)))
            return swl_fail(err, SWL_E_ARG, "tools[%zu]%s: expected an object, found %s", i, f ? ".function" : "",
                            type_name(f ? f : tool));
        if (!json_is_string(member(f ? f : tool, "name")))
            return swl_fail(err, SWL_E_ARG, "tools[%zu].function.name: expected a string, found %s", i,
                            type_name(member(f ? f : tool, "name")));
    }
    return SWL_OK;
}
