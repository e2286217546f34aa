/* small.c: the endpoints that answer from what is at hand, and the tokenizer's. */
#include <string.h>

#include "ask.h"
#include "dialects.h"
#include "metrics.h"
#include "page.h"
#include "small.h"

void srv_health(srv_conn *c)
{
    srv_server *s = c->server;
    srv_error e = {0};

    if (s->loaded && !s->draining) {
        srv_reply(c, 200, "application/json", NULL, "{\"status\":\"ok\"}", 15);
        return;
    }
    srv_fail(&e, 503, "unavailable_error", NULL, s->draining ? "the server is shutting down" : "the model is being loaded");
    e.retry_after = 2;
    srv_reply_error(c, &e);
}

static void put_model(srv_server *s, srv_text *t)
{
    srv_open(t, NULL, '{');
    srv_str(t, "id", s->model.id);
    srv_str(t, "object", "model");
    srv_int(t, "created", s->created);
    srv_str(t, "owned_by", "swiftlet");
    srv_int(t, "max_model_len", s->info.ctx_tokens);
    srv_open(t, "meta", '{');
    srv_int(t, "n_ctx", s->info.ctx_tokens);
    srv_int(t, "n_ctx_train", s->info.ctx_tokens_max);
    srv_int(t, "n_vocab", s->info.vocab);
    srv_null(t, "n_params"); /* nobody counts them when a model is opened */
    srv_int(t, "size", (int64_t)(s->info.dense_bytes + s->info.experts_bytes));
    srv_puts(t, "},\"architecture\":{\"input_modalities\":[\"text\"],\"output_modalities\":[\"text\"]}}");
}

static void put_model_anthropic(srv_server *s, srv_text *t)
{
    char date[32];
    time_t when = (time_t)s->created;
    struct tm tm;

    gmtime_r(&when, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    srv_open(t, NULL, '{');
    srv_str(t, "type", "model");
    srv_str(t, "id", s->model.id);
    srv_str(t, "display_name", s->model.id);
    srv_str(t, "created_at", date);
    srv_int(t, "max_input_tokens", s->info.ctx_tokens);
    srv_close(t, '}');
}

void srv_models(srv_conn *c)
{
    srv_server *s = c->server;
    bool anthropic = srv_header_get(&c->head, "anthropic-version") != NULL;
    srv_text t = {0};

    if (anthropic) {
        srv_puts(&t, "{\"data\":[");
        put_model_anthropic(s, &t);
        srv_puts(&t, "],\"has_more\":false");
        srv_str(&t, "first_id", s->model.id);
        srv_str(&t, "last_id", s->model.id);
        srv_puts(&t, "}");
    } else {
        srv_puts(&t, "{\"object\":\"list\",\"data\":[");
        put_model(s, &t);
        srv_puts(&t, "]}");
    }
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

void srv_model(srv_conn *c)
{
    srv_server *s = c->server;
    const char *id = srv_route_rest(c->route, c->head.path);
    size_t n = strlen(id);
    srv_error e = {0};
    srv_text t = {0};

    if (n && id[n - 1] == '/')
        n--;
    if (strlen(s->model.id) != n || memcmp(id, s->model.id, n)) {
        srv_fail(&e, 404, "not_found_error", "model_not_found", "the model is not here; /v1/models lists those that are");
        snprintf(e.param, sizeof e.param, "model");
        srv_reply_error(c, &e);
        return;
    }
    if (srv_header_get(&c->head, "anthropic-version"))
        put_model_anthropic(s, &t);
    else
        put_model(s, &t);
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

void srv_get_metrics(srv_conn *c)
{
    srv_text t = {0};

    srv_metrics_write(c->server, &t);
    if (t.failed)
        srv_reply_json(c, 200, NULL, &t);
    else
        srv_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, t.p, t.n);
    srv_text_free(&t);
}

static void put_sampling(srv_server *s, srv_text *t)
{
    const swl_sampling *p = &s->sampling;

    srv_open(t, "default_generation_settings", '{');
    srv_int(t, "n_ctx", s->info.ctx_tokens);
    srv_open(t, "params", '{');
    srv_real(t, "temperature", (double)p->temperature);
    srv_int(t, "top_k", p->top_k);
    srv_real(t, "top_p", (double)p->top_p);
    srv_real(t, "min_p", (double)p->min_p);
    srv_real(t, "repeat_penalty", (double)p->repetition_penalty);
    srv_real(t, "presence_penalty", (double)p->presence_penalty);
    srv_real(t, "frequency_penalty", (double)p->frequency_penalty);
    srv_int(t, "n_predict", -1);
    srv_puts(t, "}}");
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static void put_template(srv_server *s, srv_text *t)
{
    const swl_template_info *i = &s->template_info;

    srv_str(t, "chat_template", i->text);
    srv_open(t, "chat_template_caps", '{');
    srv_bool(t, "supports_tools", i->tools);
    srv_bool(t, "supports_tool_calls", i->tools);
    srv_bool(t, "supports_parallel_tool_calls", i->tools);
    srv_bool(t, "supports_system_role", true);
    srv_bool(t, "supports_thinking", i->thinking);
    srv_bool(t, "supports_thinking_switch", i->thinking_switch);
    srv_bool(t, "thinking_default", s->opt.think == SWL_THINK_DEFAULT ? i->thinking_default : s->opt.think != SWL_THINK_OFF);
    srv_bool(t, "supports_reasoning_effort", i->effort);
    srv_bool(t, "supports_preserve_reasoning", i->preserve_thinking);
    srv_bool(t, "reasoning_control", i->thinking);
    srv_close(t, '}');
}

void srv_props(srv_conn *c)
{
    srv_server *s = c->server;
    swl_memory_plan p;
    srv_text t = {0};

    swl_memory_plan_get(s->model.model, &p);
    srv_puts(&t, "{");
    put_sampling(s, &t);
    srv_int(&t, "total_slots", s->model.parallel);
    srv_str(&t, "model_path", base_name(s->model.dir));
    srv_str(&t, "model_alias", s->model.id);
    put_template(s, &t);
    srv_puts(&t, ",\"modalities\":{\"vision\":false,\"audio\":false}");
    srv_str(&t, "build_info", s->build);
    srv_int(&t, "n_ctx", s->info.ctx_tokens);
    srv_open(&t, "memory", '{');
    srv_int(&t, "budget", (int64_t)p.limit);
    srv_int(&t, "used", (int64_t)p.total);
    srv_int(&t, "pool", (int64_t)p.pool);
    srv_puts(&t, "},\"endpoint_slots\":");
    srv_puts(&t, s->opt.no_slots ? "false" : "true");
    srv_puts(&t, ",\"endpoint_props\":false,\"endpoint_metrics\":true}");
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

bool srv_slots_off(const srv_server *s, srv_error *e)
{
    return s->opt.no_slots && !srv_fail(e, 501, "not_supported_error", NULL, "slots are switched off (--no-slots)");
}

void srv_slots(srv_conn *c)
{
    srv_server *s = c->server;
    swl_slot_info slots[64];
    swl_engine_stats e;
    srv_error fault = {0};
    srv_text t = {0};

    if (srv_slots_off(s, &fault)) {
        srv_reply_error(c, &fault);
        return;
    }
    memset(slots, 0, sizeof slots);
    swl_engine_stats_get(s->model.engine, &e, slots, 64);
    srv_puts(&t, "[");
    for (int i = 0; i < 64 && i < e.n_slots; i++) {
        srv_open(&t, NULL, '{');
        srv_int(&t, "id", i);
        srv_int(&t, "n_ctx", slots[i].ctx_tokens);
        srv_int(&t, "n_past", slots[i].n_tokens);
        srv_str(&t, "state", slots[i].running ? "running" : "idle");
        srv_bool(&t, "is_processing", slots[i].running);
        srv_int(&t, "checkpoints", slots[i].n_marks);
        srv_real(&t, "last_used", slots[i].last_used_seconds);
        srv_close(&t, '}');
    }
    srv_puts(&t, "]");
    srv_reply_json(c, 200, NULL, &t);
    srv_text_free(&t);
}

#define CONTROL_BYTES 4096 /* small enough to be read on the event thread, which knows the running answers */

static srv_job *job_by_id(const srv_server *s, const char *id)
{
    for (srv_job *j = s->jobs; j; j = j->next) {
        if (j->admitted && j->is_prepared && !j->ended && !strcmp(j->id, id))
            return j;
    }
    return NULL;
}

static bool control(srv_conn *c, srv_doc *d, srv_error *e)
{
    const srv_json *id, *action;
    size_t offset, n;
    srv_job *j;
    char *text;

    if (c->body.n > CONTROL_BYTES || srv_json_parse(d, c->body.p ? c->body.p : "", c->body.n, &offset))
        return srv_invalid(e, "", "the body is not JSON, or longer than %d bytes", CONTROL_BYTES);
    id = srv_get(d->root, "id");
    action = srv_get(d->root, "action");
    if (!id || id->type != SRV_STRING)
        return srv_invalid(e, "id", "expected the id of a running answer");
    if (!srv_is(action, "reasoning_end"))
        return srv_invalid(e, "action", "expected \"reasoning_end\"");
    text = srv_string(d, id, &n);
    j = text && strlen(text) == n ? job_by_id(c->server, text) : NULL;
    if (!j)
        return srv_fail(e, 404, "not_found_error", NULL, "no answer of this id is running");
    swl_request_end_reasoning(srv_job_choice(j)->request);
    return true;
}

void srv_control(srv_conn *c)
{
    srv_doc d = {0};
    srv_error e = {0};
    bool ok = control(c, &d, &e);

    srv_doc_free(&d);
    if (ok)
        srv_reply(c, 200, "application/json", NULL, "{\"success\":true}", 16);
    else
        srv_reply_error(c, &e);
}

void srv_embeddings(srv_conn *c)
{
    srv_error e = {0};

    srv_fail(&e, 501, "not_supported_error", NULL, "this model generates text; embeddings are not available");
    srv_reply_error(c, &e);
}

void srv_not_stored(srv_conn *c)
{
    srv_error e = {0};

    srv_fail(&e, 404, "not_found_error", NULL, "responses are not stored");
    srv_reply_error(c, &e);
}

/* ---- page ---- */

#define PAGE_HEADERS                                                                                                     \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "      \
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "     \
    "'none'; require-trusted-types-for 'script'; trusted-types dompurify\r\n"                                             \
    "Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n"                                         \
    "Permissions-Policy: camera=(), microphone=(), geolocation=()\r\n"

void srv_page(srv_conn *c)
{
    const swl_page_file *f = c->server->opt.no_web ? NULL : swl_page_find(c->head.path);
    bool zipped = f && f->gzip && srv_has_token(srv_header_get(&c->head, "accept-encoding"), "gzip");
    const char *accept = srv_header_get(&c->head, "accept");
    srv_error e = {0};
    srv_text t = {0};

    if (c->server->opt.ollama && !strcmp(c->head.path, "/") && (!accept || !strstr(accept, "text/html"))) {
        srv_reply(c, 200, "text/plain; charset=utf-8", NULL, "Ollama is running", 17);
        return;
    }
    if (!f) {
        srv_fail(&e, 404, "not_found_error", NULL, "there is nothing at this path");
        srv_reply_error(c, &e);
        return;
    }
    srv_puts(&t, PAGE_HEADERS);
    srv_printf(&t, "Cache-Control: %s\r\n", f->cache_control);
    if (f->gzip)
        srv_puts(&t, "Vary: Accept-Encoding\r\n");
    if (zipped)
        srv_puts(&t, "Content-Encoding: gzip\r\n");
    if (t.failed)
        srv_conn_destroy(c);
    else
        srv_reply(c, 200, f->content_type, t.p, zipped ? f->gzip : f->bytes, zipped ? f->n_gzip : f->n_bytes);
    srv_text_free(&t);
}

/* ---- tokenizer ---- */

static void put_piece(srv_job *j, int32_t id)
{
    srv_text *t = &j->answer;
    int32_t n = 0;
    const char *p = swl_tokenizer_token(j->server->model.tokenizer, id, &n);
    size_t at = 0;

    srv_open(t, NULL, '{');
    srv_int(t, "id", id);
    srv_key(t, "piece");
    while (p && at < (size_t)n && srv_utf8(p + at, (size_t)n - at))
        at += srv_utf8(p + at, (size_t)n - at);
    if (at == (size_t)n)
        srv_token_json(t, j, id);
    else
        srv_token_bytes(t, j, id);
    srv_close(t, '}');
}

bool srv_tokenize(srv_job *j, srv_error *e)
{
    bool add = false, parse = true, pieces = false;
    const srv_json *content;
    swl_error err = {0};
    int32_t *ids;
    int64_t n;
    char *text;
    size_t n_text;

    if (!srv_body(j, e) || !srv_ask_type(j->doc.root, "content", "content", SRV_STRING, &content, e) ||
        !srv_ask_bool(j->doc.root, "add_special", "add_special", &add, e) ||
        !srv_ask_bool(j->doc.root, "parse_special", "parse_special", &parse, e) ||
        !srv_ask_bool(j->doc.root, "with_pieces", "with_pieces", &pieces, e))
        return false;
    if (!content)
        return srv_invalid(e, "content", "the content is missing");
    text = srv_string(&j->doc, content, &n_text);
    if (!text)
        return srv_no_memory(e);
    err.code = swl_tokenizer_encode(j->server->model.tokenizer, text, n_text, parse ? 0 : SWL_ENCODE_PLAIN, &ids, &n, &err);
    if (err.code)
        return srv_library(e, &err, "content");
    srv_puts(&j->answer, "{\"tokens\":[");
    for (int64_t i = 0; i < n; i++) {
        if (pieces)
            put_piece(j, ids[i]);
        else
            srv_int(&j->answer, NULL, ids[i]);
    }
    srv_puts(&j->answer, "]}");
    swl_free(ids);
    return true;
}

bool srv_detokenize(srv_job *j, srv_error *e)
{
    const srv_json *tokens;
    swl_error err = {0};
    int32_t *ids;
    char *text;
    size_t n_text, n = 0;

    if (!srv_body(j, e) || !srv_ask_type(j->doc.root, "tokens", "tokens", SRV_ARRAY, &tokens, e))
        return false;
    if (!tokens)
        return srv_invalid(e, "tokens", "the tokens are missing");
    ids = srv_doc_alloc(&j->doc, (tokens->n + 1) * sizeof *ids);
    if (!ids)
        return srv_no_memory(e);
    for (const srv_json *t = tokens->child; t; t = t->next) {
        int64_t id;
        if (!srv_integer(t, &id) || id < 0 || id > INT32_MAX)
            return srv_invalid(e, "tokens", "element %zu is no token id", n);
        ids[n++] = (int32_t)id;
    }
    err.code = swl_tokenizer_decode(j->server->model.tokenizer, ids, (int64_t)n, false, &text, &n_text, &err);
    if (err.code)
        return srv_library(e, &err, "tokens");
    srv_puts(&j->answer, "{");
    srv_strn(&j->answer, "content", text, n_text);
    srv_puts(&j->answer, "}");
    swl_free(text);
    return true;
}

bool srv_apply_template(srv_job *j, srv_error *e)
{
    const swl_request *r;
    const char *text;

    if (!srv_prepare_one(j, srv_ask_chat, NULL, NULL, e))
        return false;
    r = j->choices[0].request;
    text = swl_request_text(r);
    srv_puts(&j->answer, "{");
    srv_str(&j->answer, "prompt", text ? text : "");
    srv_open(&j->answer, "tokens", '[');
    for (int32_t i = 0; i < swl_request_n_prompt(r); i++)
        srv_int(&j->answer, NULL, swl_request_prompt(r)[i]);
    srv_puts(&j->answer, "]}");
    return true;
}
