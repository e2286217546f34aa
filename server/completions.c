/*
 * completions.c: legacy completions: raw texts or ids, no template. With echo and logprobs the prompt's own tokens are
 * scored, which is what evaluation harnesses need.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "dialects.h"

enum { OFFSETS, PROBS, TOPS }; /* what srv_choice.more holds; logprobs holds the tokens */

/* ---- decoding ---- */

static bool read_ids(srv_job *j, const srv_json *list, swl_request_options *o, const char *param, srv_error *e)
{
    int32_t n_tokens = swl_tokenizer_n_tokens(j->server->model.tokenizer), n = 0;
    int32_t *ids = srv_doc_alloc(&j->doc, (list->n + 1) * sizeof *ids);

    if (!ids)
        return srv_no_memory(e);
    for (const srv_json *at = list->child; at; at = at->next) {
        int64_t id;

        if (!srv_integer(at, &id) || id < 0 || id >= n_tokens)
            return srv_invalid(e, param, "element %d is no token id", n);
        ids[n++] = (int32_t)id;
    }
    if (!n)
        return srv_invalid(e, param, "the prompt is empty");
    o->ids = ids;
    o->n_ids = n;
    return true;
}

static bool append_text(srv_job *j, const srv_json *text, int32_t *ids, int64_t *n, int64_t room, srv_error *e)
{
    swl_error err = {0};
    int32_t *more;
    int64_t n_more;
    size_t n_text;
    char *p = srv_string(&j->doc, text, &n_text);

    if (!p)
        return srv_no_memory(e);
    err.code = swl_tokenizer_encode(j->server->model.tokenizer, p, n_text, 0, &more, &n_more, &err);
    if (err.code)
        return srv_library(e, &err, "prompt");
    if (*n + n_more <= room)
        memcpy(ids + *n, more, (size_t)n_more * sizeof *ids);
    *n += n_more;
    swl_free(more);
    return *n <= room || srv_invalid(e, "prompt", "the prompt is too long");
}

/* What stands before and behind, with the model's own tokens for this. */
static bool read_middle(srv_job *j, const srv_json *prompt, const srv_json *suffix, swl_request_options *o, srv_error *e)
{
    static const char *const names[] = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
    int64_t room = (int64_t)(prompt->n_raw + suffix->n_raw) * 4 + 16, n = 0;
    int32_t *ids = srv_doc_alloc(&j->doc, (size_t)room * sizeof *ids), special[3];

    if (!ids)
        return srv_no_memory(e);
    for (int i = 0; i < 3; i++) {
        special[i] = swl_tokenizer_special(j->server->model.tokenizer, names[i]);
        if (special[i] < 0)
            return srv_invalid(e, "suffix", "this model has no tokens for filling in the middle");
    }
    ids[n++] = special[0];
    if (!append_text(j, prompt, ids, &n, room - 2, e))
        return false;
    ids[n++] = special[1];
    if (!append_text(j, suffix, ids, &n, room - 1, e))
        return false;
    ids[n++] = special[2];
    o->ids = ids;
    o->n_ids = (int32_t)n;
    return true;
}

static bool read_text(srv_job *j, const srv_json *text, swl_request_options *o, const char *param, srv_error *e)
{
    const srv_json *suffix;
    int64_t n = 0, room;
    int32_t *ids;
    size_t length;
    char *p;

    if (!srv_ask_type(j->doc.root, "suffix", "suffix", SRV_STRING, &suffix, e))
        return false;
    if (suffix && suffix->n_raw > 2)
        return read_middle(j, text, suffix, o, e);
    p = srv_string(&j->doc, text, &length);
    if (!p)
        return srv_no_memory(e);
    if (!length)
        return srv_invalid(e, param, "the prompt is empty");
    if (strlen(p) == length) {
        o->text = p;
        return true;
    }
    room = (int64_t)length * 4 + 16; /* NUL characters are text too */
    ids = srv_doc_alloc(&j->doc, (size_t)room * sizeof *ids);
    if (!ids)
        return srv_no_memory(e);
    o->ids = ids;
    if (!append_text(j, text, ids, &n, room, e))
        return false;
    o->n_ids = (int32_t)n;
    return true;
}

static bool make_prompt(srv_job *j, const srv_json *prompt, int32_t at, int32_t n, const char *param, srv_error *e)
{
    swl_request_options o = j->ask.o;

    if (prompt->type == SRV_STRING ? !read_text(j, prompt, &o, param, e) :
        prompt->type == SRV_ARRAY ? !read_ids(j, prompt, &o, param, e) :
                                    !srv_invalid(e, param, "expected a text or a list of token ids"))
        return false;
    for (int32_t i = 0; i < n; i++, o.sampling.seed++) {
        if (!srv_make_choice(j, &j->choices[at * n + i], &o, e))
            return false;
    }
    return true;
}

/* A text, texts, ids, or lists of ids. */
static bool make_prompts(srv_job *j, int32_t n, srv_error *e)
{
    const srv_json *prompt = srv_get(j->doc.root, "prompt");
    bool several = prompt && prompt->type == SRV_ARRAY && prompt->child && prompt->child->type != SRV_NUMBER;
    int32_t n_prompts = several ? (int32_t)prompt->n : 1, i = 0;
    char param[48];

    if (!prompt || (prompt->type != SRV_STRING && prompt->type != SRV_ARRAY))
        return srv_invalid(e, "prompt", "expected a text, a list of texts, or token ids");
    if (n_prompts * (int64_t)n > SRV_CHOICES)
        return srv_invalid(e, "prompt", "there are %d prompts, more than %d answers", (int)n_prompts, SRV_CHOICES);
    if (!srv_allocate_choices(j, n_prompts * n, e))
        return false;
    if (!several)
        return make_prompt(j, prompt, 0, n, "prompt", e);
    for (const srv_json *at = prompt->child; at; at = at->next, i++) {
        snprintf(param, sizeof param, "prompt[%d]", (int)i);
        if (!make_prompt(j, at, i, n, param, e))
            return false;
    }
    return true;
}

static bool read_logprobs(srv_job *j, srv_error *e)
{
    const srv_json *o = j->doc.root;
    int64_t top = 0;

    if (!srv_ask_bool(o, "echo", "echo", &j->ask.echo, e) || !srv_ask_int(o, "logprobs", "logprobs", 0, 20, &top, e))
        return false;
    j->ask.logprobs = j->ask.o.logprobs = srv_get(o, "logprobs") != NULL;
    j->ask.o.n_top = (int32_t)top;
    j->ask.o.prompt_logprobs = j->ask.logprobs && j->ask.echo;
    /* Harnesses take the last position for the generated one, so there has to be one. */
    j->ask.o.ignore_stop = j->ask.o.prompt_logprobs && j->ask.o.n_max == 1;
    return true;
}

bool srv_completions_prepare(srv_job *j, srv_error *e)
{
    static const char *const max_names[] = {"max_tokens", "n_predict"};
    const srv_json *options, *o;
    int64_t n = 1, best = 1;

    srv_ask_defaults(j);
    if (!srv_body(j, e))
        return false;
    o = j->doc.root;
    if (!srv_ask_model(j, o, e) || !srv_ask_bool(o, "stream", "stream", &j->ask.stream, e) ||
        !srv_ask_type(o, "stream_options", "stream_options", SRV_OBJECT, &options, e) ||
        !srv_ask_bool(options, "include_usage", "stream_options.include_usage", &j->ask.include_usage, e) ||
        !srv_ask_max_tokens(j, o, max_names, 2, e) || !srv_ask_sampling(j, o, "stop", e) ||
        !srv_ask_int(o, "n", "n", 1, 8, &n, e) || !srv_ask_int(o, "best_of", "best_of", 1, 8, &best, e))
        return false;
    if (srv_get(o, "best_of") && best != n)
        return srv_invalid(e, "best_of", "best_of has to be n: answers are not compared");
    if (!srv_get(o, "max_tokens") && !srv_get(o, "n_predict"))
        j->ask.o.n_max = 16;
    snprintf(j->id, sizeof j->id, "cmpl-");
    srv_random_id(j->id + 5, SRV_ID);
    j->encoder = &srv_completions_encoder;
    return read_logprobs(j, e) && make_prompts(j, (int32_t)n, e);
}

/* ---- encoding ---- */

/* A token as the old interface spelled it: text, or bytes that are none. */
static void put_token(srv_text *t, const srv_job *j, int32_t id, int64_t *n_chars)
{
    int32_t n = 0;
    const char *p = swl_tokenizer_token(j->server->model.tokenizer, id, &n);
    size_t at = 0, chars = 0;

    for (size_t k; p && at < (size_t)n && (k = srv_utf8(p + at, (size_t)n - at)); at += k)
        chars++;
    if (at == (size_t)n) {
        srv_put_json(t, p ? p : "", at);
        *n_chars = (int64_t)chars;
        return;
    }
    srv_puts(t, "\"bytes:");
    for (int32_t i = 0; i < n; i++)
        srv_printf(t, "\\\\x%02x", (unsigned char)p[i]);
    srv_puts(t, "\"");
    *n_chars = 1;
}

static void token(srv_choice *c, const srv_note *n)
{
    int64_t length, ignored;

    srv_comma(&c->logprobs);
    put_token(&c->logprobs, c->job, n->token.id, &length);
    srv_int(&c->more[OFFSETS], NULL, c->offset);
    c->offset += length;
    srv_real(&c->more[PROBS], NULL, (double)n->token.logprob);
    if (isnan(n->token.logprob)) {
        srv_null(&c->more[TOPS], NULL);
        return;
    }
    srv_open(&c->more[TOPS], NULL, '{');
    for (int32_t i = 0; i < n->n_top; i++) {
        srv_comma(&c->more[TOPS]);
        put_token(&c->more[TOPS], c->job, n->top[i].id, &ignored);
        srv_puts(&c->more[TOPS], ":");
        srv_num(&c->more[TOPS], (double)n->top[i].logprob);
    }
    srv_close(&c->more[TOPS], '}');
}

static void put_logprobs(srv_text *t, srv_choice *c)
{
    if (!c->job->ask.logprobs) {
        srv_null(t, "logprobs");
        return;
    }
    srv_puts(t, ",\"logprobs\":{\"tokens\":[");
    srv_add(t, c->logprobs.p, c->logprobs.n);
    srv_puts(t, "],\"token_logprobs\":[");
    srv_add(t, c->more[PROBS].p, c->more[PROBS].n);
    srv_puts(t, "],\"top_logprobs\":[");
    srv_add(t, c->more[TOPS].p, c->more[TOPS].n);
    srv_puts(t, "],\"text_offset\":[");
    srv_add(t, c->more[OFFSETS].p, c->more[OFFSETS].n);
    srv_puts(t, "]}");
    for (int i = 0; i < 3; i++)
        srv_text_clear(&c->more[i]);
    srv_text_clear(&c->logprobs);
}

static void begin_object(srv_job *j, srv_text *t)
{
    srv_str(t, "id", j->id);
    srv_str(t, "object", "text_completion");
    srv_int(t, "created", j->created);
    srv_str(t, "model", j->ask.model);
    srv_str(t, "system_fingerprint", j->server->build);
}

static void put_prompt(srv_text *t, const srv_choice *c)
{
    const int32_t *ids = swl_request_prompt(c->request);

    for (int32_t i = 0; i < swl_request_n_prompt(c->request); i++) {
        int32_t n = 0;
        const char *p = swl_tokenizer_token(c->job->server->model.tokenizer, ids[i], &n);

        srv_add(t, p ? p : "", p ? (size_t)n : 0);
    }
}

static void chunk(srv_choice *c, const char *p, size_t n, const char *finish_reason)
{
    srv_job *j = c->job;
    srv_text *t = &j->scratch;

    srv_text_clear(t);
    srv_puts(t, "data: {");
    begin_object(j, t);
    srv_puts(t, ",\"choices\":[{");
    srv_int(t, "index", c->index);
    srv_strn(t, "text", p, n);
    put_logprobs(t, c);
    srv_str(t, "finish_reason", finish_reason);
    srv_puts(t, "}]}\n\n");
    srv_job_write(j, t);
}

static void start(srv_choice *c)
{
    srv_text prompt = {0};

    if (!c->job->ask.echo)
        return;
    put_prompt(&prompt, c);
    if (!c->job->ask.logprobs) /* else the prompt's text goes with its tokens */
        chunk(c, prompt.p ? prompt.p : "", prompt.n, NULL);
    srv_text_free(&prompt);
}

static void begin(srv_job *j)
{
    start(srv_job_choice(j));
}

static void delta(srv_choice *c, srv_item *it, const char *p, size_t n)
{
    srv_text all = {0};

    if (c->job->ask.echo && c->job->ask.logprobs && it == c->items && it->text.n == n)
        put_prompt(&all, c);
    srv_add(&all, p, n);
    chunk(c, all.p, all.n, NULL);
    srv_text_free(&all);
}

static const char *finish_reason(const srv_choice *c)
{
    return c->finish == SWL_FINISH_LENGTH || c->finish == SWL_FINISH_CONTEXT ? "length" : "stop";
}

static void end(srv_choice *c)
{
    chunk(c, "", 0, finish_reason(c));
}

static void finish(srv_job *j)
{
    srv_text *t = &j->scratch;

    if (j->ask.include_usage) {
        srv_text_clear(t);
        srv_puts(t, "data: {");
        begin_object(j, t);
        srv_puts(t, ",\"choices\":[]");
        srv_put_usage(t, j, false);
        srv_puts(t, "}\n\n");
        srv_job_write(j, t);
    }
    srv_text_clear(t);
    srv_puts(t, "data: [DONE]\n\n");
    srv_job_write(j, t);
}

static void whole(srv_job *j, srv_text *t)
{
    srv_puts(t, "{");
    begin_object(j, t);
    srv_open(t, "choices", '[');
    for (int32_t i = 0; i < j->n_choices; i++) {
        srv_choice *c = &j->choices[i];
        srv_text text = {0};

        if (j->ask.echo)
            put_prompt(&text, c);
        for (int32_t k = 0; k < c->n_items; k++)
            srv_add(&text, c->items[k].text.p, c->items[k].text.n);
        srv_open(t, NULL, '{');
        srv_int(t, "index", c->index);
        srv_strn(t, "text", text.p ? text.p : "", text.n);
        put_logprobs(t, c);
        srv_str(t, "finish_reason", finish_reason(c));
        srv_close(t, '}');
        t->failed |= text.failed;
        srv_text_free(&text);
    }
    srv_close(t, ']');
    srv_put_usage(t, j, false);
    srv_timings(srv_job_choice(j), t);
    srv_close(t, '}');
}

static void heartbeat(srv_job *j)
{
    srv_choice *c = srv_job_choice(j);
    srv_text *t = &j->scratch;

    srv_text_clear(t);
    srv_puts(t, "data: {");
    begin_object(j, t);
    srv_puts(t, ",\"choices\":[{");
    srv_int(t, "index", c->index);
    srv_puts(t, ",\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    srv_job_write(j, t);
}

const srv_encoder srv_completions_encoder = {
    .begin = begin, .start = start, .delta = delta, .token = token, .end = end, .finish = finish, .whole = whole,
    .heartbeat = heartbeat, .fault = srv_chat_fault, .content_type = "text/event-stream; charset=utf-8",
};
