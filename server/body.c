/* body.c: a request's body as JSON, on the worker: inflated within the limit, cleaned, parsed. And requests made of it. */
#include "job.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

bool srv_job_hold(srv_job *j, size_t n, srv_error *e)
{
    srv_server *s = j->server;

    j->held += n;
    if (atomic_fetch_add(&s->held, n) + n <= s->limits.held)
        return true;
    srv_fail(e, 503, "unavailable_error", NULL, "too many large requests at a time");
    e->retry_after = 2;
    return false;
}

static bool inflate_body(srv_job *j, srv_error *e)
{
    z_stream z = {0};
    srv_text out = {0};
    char piece[65536];
    bool room = true;
    int rc;

    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return srv_no_memory(e);
    z.next_in = (Bytef *)j->body.p;
    z.avail_in = (uInt)j->body.n;
    do {
        z.next_out = (Bytef *)piece;
        z.avail_out = sizeof piece;
        rc = inflate(&z, Z_NO_FLUSH);
        srv_add(&out, piece, sizeof piece - z.avail_out);
        room = srv_job_hold(j, sizeof piece - z.avail_out, e);
    } while (rc == Z_OK && room && out.n <= j->server->limits.body && !out.failed && !atomic_load(&j->cancelled));
    inflateEnd(&z);
    srv_text_free(&j->body);
    j->body = out;
    if (out.failed)
        return srv_no_memory(e);
    if (out.n > j->server->limits.body)
        return srv_fail(e, 413, "invalid_request_error", NULL, "the inflated body is larger than the %zu bytes that are taken",
                        j->server->limits.body);
    if (!room)
        return false;
    return rc == Z_STREAM_END || srv_invalid(e, "", "the body is not gzip as its Content-Encoding says");
}

/* Fields that this server knows, in any dialect, or deliberately does nothing with. */
static const char *const known[] = {
    "action", "add_generation_prompt", "add_special", "background", "best_of", "cache_prompt", "chat_template_kwargs",
    "client_metadata", "container", "content", "context_management", "continue_final_message", "conversation", "echo", "enable_thinking", "format",
    "frequency_penalty", "function_call", "functions", "grammar", "id", "id_slot", "images", "include", "include_obfuscation",
    "input", "instructions", "json_schema", "keep_alive", "logit_bias", "logprobs", "max_completion_tokens", "max_output_tokens",
    "max_tokens", "max_tool_calls", "messages", "metadata", "min_p", "min_tokens", "modalities", "model", "n", "n_predict",
    "name", "options", "output_config", "output_format", "parallel_tool_calls", "parse_special", "prediction",
    "presence_penalty", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_retention", "raw", "reasoning",
    "reasoning_budget", "reasoning_effort", "repeat_last_n", "repeat_penalty", "repetition_penalty", "response_format",
    "return_progress", "return_tokens", "safety_identifier", "seed", "service_tier", "sse_ping_interval", "stop",
    "stop_sequences", "store", "stream", "stream_options", "suffix", "system", "temperature", "text", "think", "thinking",
    "thinking_budget_tokens", "timings_per_token", "tokens", "tool_choice", "tools", "top_k", "top_logprobs", "top_p",
    "truncation", "user", "verbosity", "web_search_options", "with_pieces",
};

/* A name that looks like one, so that nothing else gets into the log. */
static void note_unknown(srv_job *j)
{
    for (const srv_json *m = j->doc.root->child; m; m = m->next) {
        size_t n = m->n_key - 2, i = 0;

        while (i < sizeof known / sizeof known[0] && !srv_key_is(m, known[i]))
            i++;
        if (i == sizeof known / sizeof known[0] && n < 40 && strspn(m->key + 1, "abcdefghijklmnopqrstuvwxyz_") == n)
            srv_log(j->server, true, "a request has the unknown field \"%.*s\"", (int)n, m->key + 1);
    }
}

bool srv_body(srv_job *j, srv_error *e)
{
    size_t offset;

    if (j->gzip && !inflate_body(j, e))
        return false;
    j->doc.weight_max = j->server->limits.json_weight;
    switch (srv_json_parse(&j->doc, j->body.p ? j->body.p : "", j->body.n, &offset)) {
    case SRV_JSON_OK:
        break;
    case SRV_JSON_DEEP:
        return srv_invalid(e, "", "the body's JSON is nested deeper than %d levels", SRV_JSON_DEPTH);
    case SRV_JSON_MANY:
        return srv_invalid(e, "", "the body's JSON has too many values");
    case SRV_JSON_MEMORY:
        return srv_no_memory(e);
    default:
        return srv_invalid(e, "", "the body is not JSON: it goes wrong at byte %zu", offset);
    }
    srv_text_free(&j->body);
    if (!srv_job_hold(j, j->doc.n_values * sizeof(srv_json), e))
        return false;
    if (j->doc.root->type != SRV_OBJECT)
        return srv_invalid(e, "", "the body is JSON, but no object");
    note_unknown(j);
    return true;
}

bool srv_allocate_choices(srv_job *j, int32_t n, srv_error *e)
{
    j->choices = calloc((size_t)n, sizeof *j->choices);
    if (!j->choices)
        return srv_no_memory(e);
    j->n_choices = n;
    for (int32_t i = 0; i < n; i++) {
        j->choices[i].job = j;
        j->choices[i].index = i;
    }
    return true;
}

/* Messages of the library begin with the place, where there is one: "messages[2].content: ..." */
static void place_of(const char *message, const char *otherwise, char *param, size_t size)
{
    size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz_[].0123456789");

    if (n && message[n] == ':' && message[n + 1] == ' ' && n < size && (strpbrk(message, "[") || !strncmp(message, "messages", 8) || !strncmp(message, "tools", 5)))
        snprintf(param, size, "%.*s", (int)n, message);
    else
        snprintf(param, size, "%s", otherwise);
}

/* All of a prompt, only with --log-prompts: a line of the log holds a part. */
static void log_prompt(srv_job *j, const swl_request *r)
{
    const char *text = swl_request_text(r);
    size_t n = text ? strlen(text) : 0;

    for (size_t at = 0; at < n; at += 400)
        srv_log(j->server, false, "prompt: %.400s", text + at);
}

static bool refused(srv_job *j, const swl_request_options *o, swl_status st, const swl_error *err, int32_t n_prompt, srv_error *e)
{
    int32_t n_ctx = j->server->info.ctx_tokens;
    char param[200];

    if (st == SWL_E_BUDGET && n_prompt) {
        srv_fail(e, 400, "invalid_request_error", "context_length_exceeded",
                 "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens.", n_ctx, n_prompt);
        snprintf(e->param, sizeof e->param, "%s", o->messages ? "messages" : "prompt");
        e->n_prompt = n_prompt;
        e->n_ctx = n_ctx;
        return false;
    }
    place_of(err->message,
             st == SWL_E_UNSUPPORTED || !strncmp(err->message, "schema: ", 8) ? "response_format" : o->messages ? "messages" : "prompt",
             param, sizeof param);
    /* Schemas and templates have limits; what is beyond them was asked for, and would be again. */
    return st == SWL_E_BUDGET ? srv_invalid(e, param, "%s", err->message) : srv_library(e, err, param);
}

bool srv_make_choice(srv_job *j, srv_choice *c, const swl_request_options *o, srv_error *e)
{
    swl_request_options mine = *o;
    swl_error err = {0};
    swl_status st;

    mine.on_event = srv_on_engine_event;
    mine.arg = c;
    st = swl_request_create(&c->request, j->server->model.engine, &mine, &err);
    if (!st && j->server->opt.log_prompts)
        log_prompt(j, c->request);
    if (!st)
        return true;
    err.code = st;
    return refused(j, o, st, &err, c->request ? swl_request_n_prompt(c->request) : 0, e);
}

bool srv_make_choices(srv_job *j, int32_t n, srv_error *e)
{
    swl_request_options o = j->ask.o;

    if (!srv_allocate_choices(j, n, e))
        return false;
    for (int32_t i = 0; i < n; i++, o.sampling.seed++) {
        if (!srv_make_choice(j, &j->choices[i], &o, e))
            return false;
    }
    return true;
}

bool srv_prepare_one(srv_job *j, bool (*read)(srv_job *j, srv_error *e), const char *prefix, const srv_encoder *encoder,
                     srv_error *e)
{
    srv_ask_defaults(j);
    if (!srv_body(j, e) || !read(j, e))
        return false;
    if (prefix) {
        snprintf(j->id, sizeof j->id, "%s", prefix);
        srv_random_id(j->id + strlen(prefix), SRV_ID);
    }
    j->encoder = encoder;
    return srv_make_choices(j, 1, e);
}
