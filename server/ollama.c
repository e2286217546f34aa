/*
 * ollama.c: the Ollama dialect, and the model list of LM Studio, both only with --ollama-api. Lines of JSON instead of
 * events; times in nanoseconds; arguments of calls are objects and come whole.
 */
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "dialects.h"
#include "small.h"

/* ---- decoding ---- */

/* options: the same as the top level of the other dialects, under other names. */
static bool read_options(srv_job *j, srv_error *e)
{
    static const char *const max_names[] = {"num_predict"};
    const srv_json *options;
    int64_t ignored = 0;

    if (!srv_ask_type(j->doc.root, "options", "options", SRV_OBJECT, &options, e))
        return false;
    if (!options)
        return true;
    if (!srv_ask_int(options, "num_ctx", "options.num_ctx", 0, INT64_MAX, &ignored, e) || !srv_ask_sampling(j, options, "stop", e))
        return false;
    if (srv_get(options, "num_predict")) {
        int64_t n = -1;

        if (!srv_ask_int(options, max_names[0], "options.num_predict", -2, INT64_MAX, &n, e))
            return false;
        j->ask.o.n_max = n < 0 ? -1 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
    }
    return true;
}

static bool read_format(srv_job *j, srv_error *e)
{
    const srv_json *format = srv_get(j->doc.root, "format");

    if (!format || srv_is(format, ""))
        return true;
    if (format->type == SRV_OBJECT)
        return srv_ask_schema(j, format, "format", e);
    if (!srv_is(format, "json"))
        return srv_invalid(e, "format", "expected \"json\" or a schema");
    j->ask.o.constrain = SWL_CONSTRAIN_JSON;
    return true;
}

static bool read_common(srv_job *j, srv_error *e)
{
    const srv_json *think = srv_get(j->doc.root, "think");

    j->ask.stream = true;
    if (!srv_ask_model(j, j->doc.root, e) || !srv_ask_bool(j->doc.root, "stream", "stream", &j->ask.stream, e) || !read_options(j, e) ||
        !read_format(j, e))
        return false;
    if (think && think->type != SRV_TRUE && think->type != SRV_FALSE && think->type != SRV_STRING)
        return srv_invalid(e, "think", "expected true, false or a level");
    if (think)
        j->ask.o.think = think->type == SRV_TRUE ? SWL_THINK_ON : think->type == SRV_FALSE ? SWL_THINK_OFF : srv_think_level(j, think);
    j->encoder = &srv_ollama_encoder;
    return true;
}

/* A request without messages or prompt only asks for the model to be in memory, which it is. */
static bool reply_loaded(srv_job *j, bool chat)
{
    char date[40];

    srv_ollama_date(date, sizeof date);
    j->encoder = NULL;
    srv_puts(&j->answer, "{");
    srv_str(&j->answer, "model", j->ask.model);
    srv_str(&j->answer, "created_at", date);
    srv_puts(&j->answer, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}" : ",\"response\":\"\"");
    srv_puts(&j->answer, ",\"done\":true,\"done_reason\":\"load\"}");
    return true;
}

bool srv_ollama_chat(srv_job *j, srv_error *e)
{
    const srv_json *messages;

    srv_ask_defaults(j);
    if (!srv_body(j, e) || !read_common(j, e))
        return false;
    messages = srv_get(j->doc.root, "messages");
    if (!messages || (messages->type == SRV_ARRAY && !messages->n))
        return reply_loaded(j, true);
    j->state = calloc(1, 1); /* its presence tells chat from generate */
    if (!j->state)
        return srv_no_memory(e);
    return srv_ask_messages(j, e) && srv_ask_tools(j, srv_get(j->doc.root, "tools"), e) && srv_make_choices(j, 1, e);
}

/* A prompt in the model's chat form, or raw. */
bool srv_ollama_generate(srv_job *j, srv_error *e)
{
    const srv_json *prompt, *system, *images;
    srv_messages m = {.job = j};
    bool raw = false;
    size_t length;

    srv_ask_defaults(j);
    if (!srv_body(j, e) || !read_common(j, e) || !srv_ask_bool(j->doc.root, "raw", "raw", &raw, e) ||
        !srv_ask_type(j->doc.root, "prompt", "prompt", SRV_STRING, &prompt, e) ||
        !srv_ask_type(j->doc.root, "system", "system", SRV_STRING, &system, e) ||
        !srv_ask_type(j->doc.root, "images", "images", SRV_ARRAY, &images, e))
        return false;
    if (!prompt || prompt->n_raw <= 2)
        return reply_loaded(j, false);
    if (images && images->n)
        return srv_invalid(e, "images", "images cannot be read: this model takes text alone");
    if (raw) {
        j->ask.o.text = srv_string(&j->doc, prompt, &length);
        if (j->ask.o.text && strlen(j->ask.o.text) != length)
            return srv_invalid(e, "prompt", "a raw prompt with NUL characters cannot be read");
        return j->ask.o.text ? srv_make_choices(j, 1, e) : srv_no_memory(e);
    }
    if (system)
        srv_messages_system(&m, system->raw + 1, system->n_raw - 2);
    srv_messages_open(&m, "user", prompt->raw + 1, prompt->n_raw - 2);
    srv_messages_close(&m);
    return srv_messages_finish(&m, e) && srv_make_choices(j, 1, e);
}

/* ---- encoding ---- */

void srv_ollama_date(char *to, size_t size)
{
    struct timespec t;
    struct tm tm;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    n = strftime(to, size, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to + n, size - n, ".%09ldZ", t.tv_nsec);
}

static srv_text *begin_line(srv_job *j)
{
    srv_text *t = &j->scratch;
    char date[40];

    srv_ollama_date(date, sizeof date);
    srv_text_clear(t);
    srv_puts(t, "{");
    srv_str(t, "model", j->ask.model);
    srv_str(t, "created_at", date);
    return t;
}

static void end_line(srv_job *j)
{
    srv_puts(&j->scratch, ",\"done\":false}\n");
    srv_job_write(j, &j->scratch);
}

static bool is_chat(const srv_job *j)
{
    return j->state != NULL;
}

static void put_text(srv_job *j, srv_text *t, const char *p, size_t n, const char *thinking, size_t n_thinking)
{
    if (is_chat(j)) {
        srv_open(t, "message", '{');
        srv_str(t, "role", "assistant");
    }
    srv_strn(t, is_chat(j) ? "content" : "response", p, n);
    if (n_thinking)
        srv_strn(t, "thinking", thinking, n_thinking);
}

static void line(srv_job *j, const char *p, size_t n, const char *thinking, size_t n_thinking)
{
    srv_text *t = begin_line(j);

    put_text(j, t, p, n, thinking, n_thinking);
    if (is_chat(j))
        srv_close(t, '}');
    end_line(j);
}

static void begin(srv_job *j)
{
    (void)j; /* the first line is the first text's */
}

static void delta(srv_choice *c, srv_item *it, const char *p, size_t n)
{
    if (it->kind == SRV_ITEM_TEXT)
        line(c->job, p, n, "", 0);
    else if (it->kind == SRV_ITEM_REASONING)
        line(c->job, "", 0, p, n);
}

static void put_call(srv_text *t, const srv_item *it)
{
    srv_open(t, NULL, '{');
    srv_str(t, "id", it->call_id);
    srv_open(t, "function", '{');
    srv_strn(t, "name", it->name.p, it->name.n);
    srv_raw_line(t, "arguments", it->text.n ? it->text.p : "{}", it->text.n ? it->text.n : 2);
    srv_puts(t, "}}");
}

static void close_item(srv_choice *c, srv_item *it)
{
    srv_text *t;

    if (it->kind != SRV_ITEM_CALL || it->broken || !is_chat(c->job))
        return;
    t = begin_line(c->job);
    put_text(c->job, t, "", 0, "", 0);
    srv_open(t, "tool_calls", '[');
    put_call(t, it);
    srv_puts(t, "]}");
    end_line(c->job);
}

static void end(srv_choice *c)
{
    (void)c;
}

static int64_t nanoseconds(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

static void put_end(srv_job *j, srv_text *t)
{
    const srv_choice *c = &j->choices[0];
    const swl_usage *u = &c->usage;

    srv_bool(t, "done", true);
    srv_str(t, "done_reason", c->finish == SWL_FINISH_LENGTH || c->finish == SWL_FINISH_CONTEXT ? "length" : "stop");
    srv_int(t, "total_duration", nanoseconds(srv_now() - j->received));
    srv_int(t, "load_duration", 0);
    srv_int(t, "prompt_eval_count", u->n_prompt);
    srv_int(t, "prompt_eval_duration", nanoseconds(u->prompt_seconds));
    srv_int(t, "eval_count", u->n_generated);
    srv_int(t, "eval_duration", nanoseconds(u->generate_seconds));
    srv_puts(t, "}\n");
}

static void finish(srv_job *j)
{
    srv_text *t = begin_line(j);

    put_text(j, t, "", 0, "", 0);
    if (is_chat(j))
        srv_close(t, '}');
    put_end(j, t);
    srv_job_write(j, t);
}

static void whole(srv_job *j, srv_text *t)
{
    const srv_choice *c = &j->choices[0];
    srv_text content = {0}, thinking = {0};

    for (int32_t i = 0; i < c->n_items; i++) {
        if (c->items[i].kind != SRV_ITEM_CALL)
            srv_add(c->items[i].kind == SRV_ITEM_TEXT ? &content : &thinking, c->items[i].text.p, c->items[i].text.n);
    }
    begin_line(j);
    put_text(j, t, content.p ? content.p : "", content.n, thinking.p, thinking.n);
    if (is_chat(j) && c->n_calls) {
        srv_open(t, "tool_calls", '[');
        for (int32_t i = 0; i < c->n_items; i++) {
            if (c->items[i].kind == SRV_ITEM_CALL && !c->items[i].broken)
                put_call(t, &c->items[i]);
        }
        srv_close(t, ']');
    }
    if (is_chat(j))
        srv_close(t, '}');
    put_end(j, t);
    t->failed |= content.failed || thinking.failed;
    srv_text_free(&content);
    srv_text_free(&thinking);
}

static void heartbeat(srv_job *j)
{
    line(j, "", 0, "", 0);
}

static void fault(srv_job *j, const srv_error *e)
{
    srv_text_clear(&j->scratch);
    srv_error_json(&j->scratch, e, SRV_OLLAMA, "");
    srv_puts(&j->scratch, "\n");
    srv_job_write(j, &j->scratch);
}

const srv_encoder srv_ollama_encoder = {
    .begin = begin, .delta = delta, .close = close_item, .end = end, .finish = finish, .whole = whole, .heartbeat = heartbeat,
    .fault = fault, .content_type = "application/x-ndjson",
};

/* ---- what is there ---- */

static void put_details(const srv_server *s, srv_text *t)
{
    srv_open(t, "details", '{');
    srv_str(t, "parent_model", "");
    srv_str(t, "format", s->info.container);
    srv_str(t, "family", s->info.family);
    srv_open(t, "families", '[');
    srv_str(t, NULL, s->info.family);
    srv_close(t, ']');
    srv_str(t, "parameter_size", ""); /* not known */
    srv_str(t, "quantization_level", s->info.expert_format);
    srv_close(t, '}');
}

static void put_capabilities(const srv_server *s, srv_text *t)
{
    srv_open(t, "capabilities", '[');
    srv_str(t, NULL, "completion");
    if (s->template_info.tools)
        srv_str(t, NULL, "tools");
    if (s->template_info.thinking)
        srv_str(t, NULL, "thinking");
    srv_close(t, ']');
}

static void put_model(const srv_server *s, srv_text *t, const char *date_name)
{
    char date[40];

    srv_ollama_date(date, sizeof date);
    srv_puts(t, "{\"models\":[{");
    srv_str(t, "name", s->model.id);
    srv_str(t, "model", s->model.id);
    srv_str(t, date_name, date);
    srv_int(t, "size", (int64_t)(s->info.dense_bytes + s->info.experts_bytes));
    srv_str(t, "digest", "");
    put_details(s, t);
}

void srv_ollama_version(srv_conn *c)
{
    srv_text t = {0};

    srv_puts(&t, "{");
    srv_str(&t, "version", swl_version());
    srv_puts(&t, "}");
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

void srv_ollama_tags(srv_conn *c)
{
    srv_text t = {0};

    put_model(c->server, &t, "modified_at");
    put_capabilities(c->server, &t);
    srv_puts(&t, "}]}");
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

void srv_ollama_ps(srv_conn *c)
{
    srv_text t = {0};

    put_model(c->server, &t, "expires_at");
    srv_int(&t, "size_vram", 0);
    srv_int(&t, "context_length", c->server->info.ctx_tokens);
    srv_puts(&t, "}]}");
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

void srv_ollama_pull(srv_conn *c)
{
    srv_error e = {0};

    srv_fail(&e, 501, "not_supported_error", NULL, "models are installed by \"swiftlet pull\"");
    srv_reply_error(c, &e);
}

/* Clients decide here whether a model has tools. */
bool srv_ollama_show(srv_job *j, srv_error *e)
{
    const srv_server *s = j->server;
    srv_text *t = &j->answer;
    char name[64];

    if (!srv_body(j, e))
        return false;
    srv_puts(t, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\"");
    srv_str(t, "template", s->template_info.text);
    put_details(s, t);
    srv_open(t, "model_info", '{');
    srv_str(t, "general.architecture", s->info.family);
    snprintf(name, sizeof name, "%s.context_length", s->info.family);
    srv_int(t, name, s->info.ctx_tokens);
    snprintf(name, sizeof name, "%s.embedding_length", s->info.family);
    srv_int(t, name, s->info.hidden);
    snprintf(name, sizeof name, "%s.block_count", s->info.family);
    srv_int(t, name, s->info.n_layers);
    srv_close(t, '}');
    put_capabilities(s, t);
    srv_puts(t, "}");
    return true;
}

void srv_lm_studio_models(srv_conn *c)
{
    const srv_server *s = c->server;
    srv_text t = {0};

    srv_puts(&t, "{\"object\":\"list\",\"data\":[{");
    srv_str(&t, "id", s->model.id);
    srv_puts(&t, ",\"object\":\"model\",\"type\":\"llm\",\"publisher\":\"swiftlet\",\"compatibility_type\":\"mlx\",\"state\":\"loaded\"");
    srv_str(&t, "arch", s->info.family);
    srv_str(&t, "quantization", s->info.expert_format);
    srv_int(&t, "max_context_length", s->info.ctx_tokens_max ? s->info.ctx_tokens_max : s->info.ctx_tokens);
    srv_int(&t, "loaded_context_length", s->info.ctx_tokens);
    if (s->template_info.tools)
        srv_puts(&t, ",\"capabilities\":[\"tool_use\"]");
    srv_puts(&t, "}]}");
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}
