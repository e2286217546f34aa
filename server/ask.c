/* ask.c: fields that several dialects have. */
#include "ask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STOPS      16
#define STOP_BYTES 1024
#define BIASES     1024
#define SCHEMA_BYTES (256 << 10)

static const char *type_name(const srv_json *j)
{
    static const char *const names[] = {"null", "false", "true", "a number", "a string", "a list", "an object"};

    return j ? names[j->type] : "nothing";
}

bool srv_ask_type(const srv_json *o, const char *name, const char *param, srv_json_type type, const srv_json **out, srv_error *e)
{
    const srv_json *j = srv_get(o, name);

    if (j && j->type != type)
        return srv_invalid(e, param, "expected %s, found %s", (const char *[]){"null", "false", "true", "a number", "a string", "a list", "an object"}[type], type_name(j));
    *out = j;
    return true;
}

bool srv_ask_bool(const srv_json *o, const char *name, const char *param, bool *out, srv_error *e)
{
    const srv_json *j = srv_get(o, name);

    if (j && j->type != SRV_TRUE && j->type != SRV_FALSE)
        return srv_invalid(e, param, "expected true or false, found %s", type_name(j));
    if (j)
        *out = j->type == SRV_TRUE;
    return true;
}

bool srv_ask_int(const srv_json *o, const char *name, const char *param, int64_t min, int64_t max, int64_t *out, srv_error *e)
{
    const srv_json *j = srv_get(o, name);
    int64_t x;

    if (!j)
        return true;
    if (j->type != SRV_NUMBER)
        return srv_invalid(e, param, "expected a whole number, found %s", type_name(j));
    if (!srv_integer(j, &x) || x < min || x > max)
        return srv_invalid(e, param, "expected a whole number from %lld to %lld, found %.*s", (long long)min, (long long)max,
                           (int)(j->n_raw < 40 ? j->n_raw : 40), j->raw);
    *out = x;
    return true;
}

bool srv_ask_real(const srv_json *o, const char *name, const char *param, double min, double max, float *out, srv_error *e)
{
    const srv_json *j = srv_get(o, name);
    double x;

    if (!j)
        return true;
    if (j->type != SRV_NUMBER)
        return srv_invalid(e, param, "expected a number, found %s", type_name(j));
    if (!srv_number(j, &x) || x < min || x > max)
        return srv_invalid(e, param, "expected a number from %g to %g, found %.*s", min, max, (int)(j->n_raw < 40 ? j->n_raw : 40),
                           j->raw);
    *out = (float)x;
    return true;
}

bool srv_ask_string(srv_job *j, const srv_json *o, const char *name, const char *param, const char **out, srv_error *e)
{
    const srv_json *s = NULL;
    size_t n;

    if (!srv_ask_type(o, name, param, SRV_STRING, &s, e))
        return false;
    if (!s)
        return true;
    *out = srv_string(&j->doc, s, &n);
    if (!*out)
        return srv_no_memory(e);
    return strlen(*out) == n || srv_invalid(e, param, "there is a NUL character in it");
}

/* ---- sampling ---- */

bool srv_ask_stop(srv_job *j, const srv_json *stop, const char *param, srv_error *e)
{
    const srv_json *at = stop && stop->type == SRV_ARRAY ? stop->child : stop;
    const char **list;
    int32_t n = 0;

    if (!stop)
        return true;
    if (stop->type != SRV_ARRAY && stop->type != SRV_STRING)
        return srv_invalid(e, param, "expected a string or a list of strings, found %s", type_name(stop));
    if (stop->type == SRV_ARRAY && stop->n > STOPS)
        return srv_invalid(e, param, "there are %zu stop strings, more than %d", stop->n, STOPS);
    list = srv_doc_alloc(&j->doc, STOPS * sizeof *list);
    if (!list)
        return srv_no_memory(e);
    for (; at; at = stop->type == SRV_ARRAY ? at->next : NULL) {
        size_t length;

        if (at->type == SRV_NULL)
            continue;
        if (at->type != SRV_STRING)
            return srv_invalid(e, param, "expected a string, found %s", type_name(at));
        list[n] = srv_string(&j->doc, at, &length);
        if (!list[n])
            return srv_no_memory(e);
        if (length > STOP_BYTES || strlen(list[n]) != length)
            return srv_invalid(e, param, "a stop string has more than %d bytes, or a NUL character", STOP_BYTES);
        n += length > 0; /* an empty one would end everything */
    }
    j->ask.o.stop = list;
    j->ask.o.n_stop = n;
    return true;
}

static bool add_bias(srv_job *j, swl_logit_bias *to, int64_t id, const srv_json *value, srv_error *e)
{
    double x;

    if (value && value->type == SRV_FALSE)
        x = -100; /* llama.cpp's way to ban a token */
    else if (!srv_number(value, &x) || x < -100 || x > 100)
        return srv_invalid(e, "logit_bias", "expected a number from -100 to 100 for token %lld", (long long)id);
    if (id < 0 || id >= swl_tokenizer_n_tokens(j->server->model.tokenizer))
        return srv_invalid(e, "logit_bias", "there is no token %lld", (long long)id);
    *to = (swl_logit_bias){(int32_t)id, x <= -100 ? -INFINITY : (float)x};
    return true;
}

/* {"123": -5} or [[123, -5]] */
static bool ask_bias(srv_job *j, const srv_json *o, srv_error *e)
{
    const srv_json *b = srv_get(o, "logit_bias");
    swl_logit_bias *list;
    int32_t n = 0;

    if (!b)
        return true;
    if ((b->type != SRV_OBJECT && b->type != SRV_ARRAY) || b->n > BIASES)
        return srv_invalid(e, "logit_bias", "expected an object of at most %d token ids with numbers, found %s", BIASES, type_name(b));
    list = srv_doc_alloc(&j->doc, (b->n + 1) * sizeof *list);
    if (!list)
        return srv_no_memory(e);
    for (const srv_json *at = b->child; at; at = at->next) {
        const srv_json *value = b->type == SRV_OBJECT ? at : srv_at(at, 1);
        int64_t id = -1;
        char *end = NULL;

        if (b->type == SRV_OBJECT) {
            id = strtoll(at->key + 1, &end, 10);
            if (end != at->key + at->n_key - 1 || at->n_key < 3)
                id = -1;
        } else if (at->type != SRV_ARRAY || !srv_integer(srv_at(at, 0), &id)) {
            return srv_invalid(e, "logit_bias", "expected pairs of a token id and a number");
        }
        if (!add_bias(j, &list[n++], id, value, e))
            return false;
    }
    j->ask.o.bias = list;
    j->ask.o.n_bias = n;
    return true;
}

static bool ask_seed(const srv_json *o, swl_sampling *p, srv_error *e)
{
    int64_t seed = -1;

    if (!srv_ask_int(o, "seed", "seed", INT64_MIN, INT64_MAX, &seed, e))
        return false;
    if (srv_get(o, "seed") && seed != -1) /* -1: any, as llama.cpp has it */
        p->seed = (uint64_t)seed;
    return true;
}

bool srv_ask_sampling(srv_job *j, const srv_json *o, const char *stop_name, srv_error *e)
{
    swl_sampling *p = &j->ask.o.sampling;
    int64_t top_k = p->top_k, last_n = p->repeat_last_n, n_min = 0;

    if (!srv_ask_real(o, "temperature", "temperature", -1000, 1000, &p->temperature, e) ||
        !srv_ask_real(o, "top_p", "top_p", 0, 1, &p->top_p, e) || !srv_ask_real(o, "min_p", "min_p", 0, 1, &p->min_p, e) ||
        !srv_ask_int(o, "top_k", "top_k", INT32_MIN, INT32_MAX, &top_k, e) ||
        !srv_ask_real(o, "frequency_penalty", "frequency_penalty", -2, 2, &p->frequency_penalty, e) ||
        !srv_ask_real(o, "presence_penalty", "presence_penalty", -2, 2, &p->presence_penalty, e) ||
        !srv_ask_real(o, "repeat_penalty", "repeat_penalty", 0.01, 100, &p->repetition_penalty, e) ||
        !srv_ask_real(o, "repetition_penalty", "repetition_penalty", 0.01, 100, &p->repetition_penalty, e) ||
        !srv_ask_int(o, "repeat_last_n", "repeat_last_n", -1, INT32_MAX, &last_n, e) ||
        !srv_ask_int(o, "min_tokens", "min_tokens", 0, INT32_MAX, &n_min, e))
        return false;
    p->top_k = top_k > 0 ? (int32_t)top_k : 0;
    p->repeat_last_n = (int32_t)last_n;
    j->ask.o.n_min = (int32_t)n_min;
    if (p->temperature < 0)
        p->temperature = 0;
    return ask_seed(o, p, e) && ask_bias(j, o, e) && (!stop_name || srv_ask_stop(j, srv_get(o, stop_name), stop_name, e));
}

bool srv_ask_max_tokens(srv_job *j, const srv_json *o, const char *const *names, int n_names, srv_error *e)
{
    int64_t n = -1;

    for (int i = n_names - 1; i >= 0; i--) {
        if (!srv_ask_int(o, names[i], names[i], -1, INT64_MAX, &n, e))
            return false;
    }
    j->ask.o.n_max = n < 0 ? -1 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
    return true;
}

bool srv_ask_model(srv_job *j, const srv_json *o, srv_error *e)
{
    j->ask.model = j->server->model.id;
    return srv_ask_string(j, o, "model", "model", &j->ask.model, e);
}

/* ---- thinking ---- */

swl_think srv_think_level(srv_job *j, const srv_json *s)
{
    static const struct { const char *name; swl_think level; } levels[] = {
        {"none", SWL_THINK_OFF}, {"off", SWL_THINK_OFF}, {"minimal", SWL_THINK_LOW}, {"low", SWL_THINK_LOW},
        {"medium", SWL_THINK_MEDIUM}, {"high", SWL_THINK_HIGH}, {"xhigh", SWL_THINK_HIGH}, {"max", SWL_THINK_HIGH}};

    (void)j;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (srv_is(s, levels[i].name))
            return levels[i].level;
    }
    return SWL_THINK_MEDIUM;
}

/* From the weakest to the strongest. */
static bool ask_switches(srv_job *j, const srv_json *o, srv_error *e)
{
    const srv_json *effort = srv_get(o, "reasoning_effort"), *think = srv_get(o, "think"), *reasoning = NULL, *thinking = NULL, *type;
    bool on;

    if (!srv_ask_type(o, "reasoning", "reasoning", SRV_OBJECT, &reasoning, e) ||
        !srv_ask_type(o, "thinking", "thinking", SRV_OBJECT, &thinking, e))
        return false;
    if (srv_get(reasoning, "effort"))
        effort = effort ? effort : srv_get(reasoning, "effort");
    if (effort && effort->type != SRV_STRING)
        return srv_invalid(e, "reasoning_effort", "expected a string, found %s", type_name(effort));
    if (effort)
        j->ask.o.think = srv_think_level(j, effort);
    type = srv_get(thinking, "type");
    if (type && type->type != SRV_STRING)
        return srv_invalid(e, "thinking.type", "expected a string, found %s", type_name(type));
    if (type)
        j->ask.o.think = srv_is(type, "disabled") ? SWL_THINK_OFF : srv_is(type, "enabled") || !effort ? SWL_THINK_ON : j->ask.o.think;
    if (think && think->type != SRV_TRUE && think->type != SRV_FALSE && think->type != SRV_STRING)
        return srv_invalid(e, "think", "expected true, false or a level, found %s", type_name(think));
    if (think)
        j->ask.o.think = think->type == SRV_TRUE ? SWL_THINK_ON : think->type == SRV_FALSE ? SWL_THINK_OFF : srv_think_level(j, think);
    on = false;
    if (!srv_ask_bool(o, "enable_thinking", "enable_thinking", &on, e))
        return false;
    if (srv_get(o, "enable_thinking") && !(on && effort && j->ask.o.think > SWL_THINK_ON))
        j->ask.o.think = on ? SWL_THINK_ON : SWL_THINK_OFF;
    return true;
}

bool srv_ask_thinking(srv_job *j, const srv_json *o, srv_error *e)
{
    const srv_json *vars = NULL, *thinking = srv_get(o, "thinking");
    int64_t budget = 0;

    if (!ask_switches(j, o, e) || !srv_ask_type(o, "chat_template_kwargs", "chat_template_kwargs", SRV_OBJECT, &vars, e))
        return false;
    if (vars) {
        srv_add(&j->ask.vars, vars->raw, vars->n_raw);
        j->ask.o.template_vars = j->ask.vars.p;
    }
    if (!srv_ask_int(thinking, "budget_tokens", "thinking.budget_tokens", 0, INT64_MAX, &budget, e) ||
        !srv_ask_int(o, "reasoning_budget", "reasoning_budget", -1, INT64_MAX, &budget, e) ||
        !srv_ask_int(o, "thinking_budget_tokens", "thinking_budget_tokens", -1, INT64_MAX, &budget, e))
        return false;
    j->ask.o.n_reasoning_max = budget < 0 ? 0 : budget > INT32_MAX ? INT32_MAX : (int32_t)budget;
    if (!budget && (srv_get(o, "reasoning_budget") || srv_get(o, "thinking_budget_tokens")))
        j->ask.o.think = SWL_THINK_OFF;
    return true;
}

/* ---- output ---- */

bool srv_ask_schema(srv_job *j, const srv_json *schema, const char *param, srv_error *e)
{
    char *text;

    if (schema->type != SRV_OBJECT && schema->type != SRV_TRUE && schema->type != SRV_FALSE)
        return srv_invalid(e, param, "expected an object, found %s", type_name(schema));
    if (schema->n_raw > SCHEMA_BYTES)
        return srv_invalid(e, param, "the schema has %zu bytes, more than %d", schema->n_raw, SCHEMA_BYTES);
    text = srv_doc_alloc(&j->doc, schema->n_raw + 1);
    if (!text)
        return srv_no_memory(e);
    memcpy(text, schema->raw, schema->n_raw);
    text[schema->n_raw] = 0;
    j->ask.o.constrain = SWL_CONSTRAIN_SCHEMA;
    j->ask.o.constraint = text;
    return true;
}

bool srv_ask_format(srv_job *j, const srv_json *format, const char *param, srv_error *e)
{
    const srv_json *type = srv_get(format, "type"), *named = srv_get(format, "json_schema"), *schema;
    char where[96];

    if (!format)
        return true;
    if (format->type != SRV_OBJECT)
        return srv_invalid(e, param, "expected an object, found %s", type_name(format));
    schema = srv_get(named, "schema") ? srv_get(named, "schema") : srv_get(format, "schema");
    if (srv_is(type, "text"))
        return true;
    if (srv_is(type, "json_schema") || (srv_is(type, "json_object") && schema)) {
        snprintf(where, sizeof where, "%s.%s", param, named ? "json_schema.schema" : "schema");
        if (!schema)
            return srv_invalid(e, where, "the schema is missing");
        return srv_ask_schema(j, schema, where, e);
    }
    snprintf(where, sizeof where, "%s.type", param);
    if (!srv_is(type, "json_object"))
        return srv_invalid(e, where, "expected \"text\", \"json_object\" or \"json_schema\"");
    j->ask.o.constrain = SWL_CONSTRAIN_JSON;
    return true;
}

/* ---- defaults ---- */

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    char id[16];

    srv_random_id(id, 10);
    for (int i = 0; i < 10; i++)
        seed = seed * 62 + (unsigned char)id[i];
    return seed & INT64_MAX;
}

void srv_ask_defaults(srv_job *j)
{
    srv_server *s = j->server;

    swl_request_options_init(&j->ask.o);
    j->ask.o.sampling = s->sampling;
    j->ask.o.sampling.seed = random_seed();
    j->ask.o.think = s->opt.think;
    j->ask.o.n_max = -1;
    j->ask.parallel_calls = true;
    j->ask.model = s->model.id;
}

/* ---- messages ---- */

void srv_messages_system(srv_messages *m, const char *content, size_t n)
{
    if (m->n && m->job->server->opt.system_note) {
        srv_messages_open(m, "user", content, n);
        srv_messages_close(m);
        return;
    }
    if (m->has_system && n && m->system.n)
        srv_puts(&m->system, "\\n\\n");
    m->has_system = true;
    srv_add(&m->system, content, n);
}

void srv_messages_open(srv_messages *m, const char *role, const char *content, size_t n)
{
    srv_printf(&m->rest, "%s{\"role\":\"%s\",\"content\":\"", m->n++ ? "," : "", role);
    srv_add(&m->rest, content, n);
    srv_puts(&m->rest, "\"");
    m->n_user += !strcmp(role, "user");
}

void srv_messages_close(srv_messages *m)
{
    srv_puts(&m->rest, "}");
}

void srv_messages_free(srv_messages *m)
{
    srv_text_free(&m->system);
    srv_text_free(&m->rest);
    srv_text_free(&m->out);
}

bool srv_messages_finish(srv_messages *m, srv_error *e)
{
    srv_text *t = &m->job->ask.messages;

    if (!m->n) {
        srv_messages_free(m);
        return srv_invalid(e, "messages", m->has_system ? "No user query found in messages." : "No messages provided.");
    }
    srv_puts(t, "[");
    if (m->has_system && m->system.n) {
        srv_puts(t, "{\"role\":\"system\",\"content\":\"");
        srv_add(t, m->system.p, m->system.n);
        srv_puts(t, "\"},");
    }
    if (!m->n_user) {
        srv_log(m->job->server, false, "a request has no user message; an empty one was put in front");
        srv_puts(t, "{\"role\":\"user\",\"content\":\"\"},");
    }
    srv_add(t, m->rest.p, m->rest.n);
    srv_puts(t, "]");
    if (m->rest.failed || m->system.failed)
        t->failed = true;
    srv_messages_free(m);
    m->job->ask.o.messages = t->p;
    return !t->failed || srv_no_memory(e);
}

static void add_inside(srv_text *to, const srv_json *s)
{
    srv_add(to, s->raw + 1, s->n_raw - 2);
}

static bool is_text_part(const srv_json *type)
{
    return srv_is(type, "text") || srv_is(type, "input_text") || srv_is(type, "output_text") || srv_is(type, "summary_text") ||
           srv_is(type, "reasoning_text");
}

bool srv_content(srv_text *to, const srv_json *content, const char *between, const char *param, srv_error *e)
{
    const srv_json *part = content ? content->child : NULL;
    int i = 0;

    if (!content || content->type == SRV_NULL)
        return true;
    if (content->type == SRV_STRING) {
        add_inside(to, content);
        return true;
    }
    if (content->type != SRV_ARRAY)
        return srv_invalid(e, param, "expected a string or a list of parts, found %s", type_name(content));
    for (; part; part = part->next, i++) {
        const srv_json *type = srv_get(part, "type"), *text = srv_get(part, "text");
        char where[96];

        snprintf(where, sizeof where, "%s[%d]", param, i);
        if (part->type == SRV_STRING) {
            text = part;
        } else if (part->type != SRV_OBJECT) {
            return srv_invalid(e, where, "expected an object, found %s", type_name(part));
        } else if (srv_is(type, "refusal")) {
            text = srv_get(part, "refusal");
        } else if (type && !is_text_part(type)) {
            return srv_invalid(e, where, "a part of type %.*s cannot be read: this model takes text alone",
                               (int)(type->n_raw < 40 ? type->n_raw : 40), type->raw);
        }
        if (!text || text->type != SRV_STRING)
            return srv_invalid(e, where, "expected a text, found %s", type_name(text));
        if (i)
            srv_puts(to, between);
        add_inside(to, text);
    }
    return true;
}

/* ---- tools ---- */

void srv_tools_add_raw(srv_job *j, const srv_json *tool)
{
    srv_puts(&j->ask.tools, j->ask.has_tools ? "," : "[");
    srv_add(&j->ask.tools, tool->raw, tool->n_raw);
    j->ask.has_tools = true;
}

void srv_tools_add(srv_job *j, const srv_json *name, const srv_json *description, const srv_json *parameters, const srv_json *strict)
{
    srv_text *t = &j->ask.tools;

    srv_puts(t, j->ask.has_tools ? "," : "[");
    j->ask.has_tools = true;
    srv_puts(t, "{\"type\":\"function\",\"function\":{");
    srv_raw(t, "name", name->raw, name->n_raw);
    if (description)
        srv_raw(t, "description", description->raw, description->n_raw);
    if (parameters)
        srv_raw(t, "parameters", parameters->raw, parameters->n_raw);
    if (strict)
        srv_raw(t, "strict", strict->raw, strict->n_raw);
    srv_puts(t, "}}");
}

void srv_tools_finish(srv_job *j)
{
    if (!j->ask.has_tools)
        return;
    srv_puts(&j->ask.tools, "]");
    j->ask.o.tools = j->ask.tools.p;
}

static const srv_json *tool_name(const srv_json *tool)
{
    const srv_json *f = srv_get(tool, "function");

    return srv_get(f ? f : tool, "name");
}

bool srv_tools_has(srv_job *j, const srv_json *name)
{
    const srv_json *tools = srv_get(j->doc.root, "tools");
    size_t n_wanted = 0, n_has = 0;
    char *wanted = name && name->type == SRV_STRING ? srv_string(&j->doc, name, &n_wanted) : NULL;

    for (const srv_json *t = tools && wanted ? tools->child : NULL; t; t = t->next) {
        const srv_json *n = tool_name(t);
        char *has = n && n->type == SRV_STRING ? srv_string(&j->doc, n, &n_has) : NULL;

        if (has && n_has == n_wanted && !memcmp(has, wanted, n_has))
            return true;
    }
    return false;
}

bool srv_ask_named_tool(srv_job *j, const srv_json *name, const char *param, srv_error *e)
{
    if (!name || name->type != SRV_STRING)
        return srv_invalid(e, param, "expected the name of a tool, found %s", type_name(name));
    if (!srv_tools_has(j, name))
        return srv_invalid(e, param, "there is no tool of this name");
    j->ask.o.constrain = SWL_CONSTRAIN_TOOL;
    j->ask.o.constraint = srv_string(&j->doc, name, NULL);
    return j->ask.o.constraint || srv_no_memory(e);
}

bool srv_weigh_arguments(srv_job *j, const srv_json *arguments, const char *param, srv_error *e)
{
    srv_doc *d = &j->doc;

    for (size_t i = 0; arguments && arguments->type == SRV_STRING && i < arguments->n_raw; i++)
        d->weight += arguments->raw[i] == '{' || arguments->raw[i] == '[' || arguments->raw[i] == ',' ? SRV_WEIGHT_OTHER : 0;
    return !d->weight_max || d->weight <= d->weight_max || srv_invalid(e, param, "the arguments have too many values");
}
