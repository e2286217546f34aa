/* answer.c: what happens to the events of an answer. */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "interrupt.h"
#include "output.h"

enum { LONG_PROMPT = 128 }; /* tokens that take long enough to say so before the first pass has ended */

/* ---- settings --------------------------------------------------------------------------------------------------------- */

swl_status answer_init(answer *w, const arguments *a, engine *e, bool greedy_unless_asked, swl_error *err)
{
    const char *schema = opt_text(a, OPT_JSON_SCHEMA);
    size_t n;
    swl_status st;

    answer_free(w);
    w->a = a;
    w->e = e;
    w->show = !opt_on(a, OPT_JSON);
    st = sampling_from(&w->sampling, a, e->dir, greedy_unless_asked, err);
    if (!st && schema)
        st = input_text(schema, &w->schema, &n, err);
    return st;
}

/* Keeps the settings, forgets the last answer. */
static void answer_begin(answer *w)
{
    free(w->text.p);
    free(w->reasoning.p);
    id_list_free(&w->ids);
    json_decref(w->logprobs);
    *w = (answer){.a = w->a, .e = w->e, .sampling = w->sampling, .schema = w->schema, .show = w->show, .begin = seconds_now()};
    if (w->a->values[OPT_LOGPROBS].set)
        w->logprobs = json_array();
    swl_model_stats_get(w->e->model, &w->before);
}

void answer_free(answer *w)
{
    free(w->text.p);
    free(w->reasoning.p);
    free(w->schema);
    id_list_free(&w->ids);
    json_decref(w->logprobs);
    memset(w, 0, sizeof *w);
}

swl_think think_from(const arguments *a)
{
    static const char *const names[] = {"auto", "off", "on", "low", "medium", "high"};
    const char *text = opt_text(a, OPT_THINK);

    for (int i = 0; text && i < 6; i++) {
        if (!strcmp(text, names[i]))
            return (swl_think)i;
    }
    return SWL_THINK_DEFAULT;
}

/* ---- events ----------------------------------------------------------------------------------------------------------- */

static void append(answer *w, text_buffer *t, const char *p, size_t n)
{
    if (t->n + n + 1 > t->n_max) {
        size_t n_max = (t->n + n + 1) * 2;
        char *more = realloc(t->p, n_max);

        if (!more) {
            w->out_of_memory = true;
            return;
        }
        t->p = more;
        t->n_max = n_max;
    }
    if (n)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

static bool chatty(const answer *w)
{
    return stderr_is_terminal() && !opt_on(w->a, OPT_QUIET) && w->show;
}

/* At most ten times a second. */
static bool progress_due(answer *w)
{
    double now = seconds_now();

    if (!chatty(w) || now - w->progress_at < 0.1)
        return false;
    w->progress_at = now;
    return true;
}

static void on_progress(answer *w, const swl_event *ev)
{
    double spent = seconds_now() - w->begin;

    if (ev->n_total > 0 && spent > 0.5 && progress_due(w))
        progress_show("reading prompt %d/%d  %d%%  %.0f t/s", ev->n_done, ev->n_total,
                      (int)(100.0 * ev->n_done / ev->n_total), (ev->n_done - w->usage.n_cached) / spent);
}

/* Thoughts go by on one line, or stay with --show-thinking; dim, and never to standard output. */
static void on_reasoning(answer *w, const swl_event *ev)
{
    if (!w->n_thoughts++)
        w->thinking_since = seconds_now();
    append(w, &w->reasoning, ev->text, ev->n_bytes);
    if (!w->show)
        return;
    if (opt_on(w->a, OPT_SHOW_THINKING)) {
        progress_clear();
        err_text(STYLE_DIM, ev->text, ev->n_bytes);
        w->line_open = ev->n_bytes && ev->text[ev->n_bytes - 1] != '\n';
    } else if (progress_due(w)) {
        progress_tail(w->reasoning.p, "thinking  %.0f s  %d tokens  ", seconds_now() - w->thinking_since, w->n_thoughts);
    }
}

/* The thoughts are over: what is left of them is one line. */
static void fold_thoughts(answer *w)
{
    char line[64];

    if (!w->n_thoughts || w->folded)
        return;
    w->folded = true;
    if (w->show && opt_on(w->a, OPT_SHOW_THINKING))
        err_text(STYLE_NONE, "\n\n", w->line_open ? 2 : 1);
    progress_clear();
    if (!chatty(w))
        return;
    snprintf(line, sizeof line, "thought for %.0f s, %d tokens\n", seconds_now() - w->thinking_since, w->n_thoughts);
    err_text(STYLE_DIM, line, strlen(line));
}

static void on_text(answer *w, const swl_event *ev)
{
    fold_thoughts(w);
    append(w, &w->text, ev->text, ev->n_bytes);
    if (w->show)
        out_text(ev->text, ev->n_bytes);
}

static json_t *logprob_json(const answer *w, const swl_token_logprob *t)
{
    int32_t n = 0;
    const char *piece = w->e->tokenizer ? swl_tokenizer_token(w->e->tokenizer, t->id, &n) : NULL;
    json_t *o = json_object();

    json_object_set_new(o, "id", json_integer(t->id));
    json_object_set_new(o, "token", out_bytes_json(piece ? piece : "", (size_t)n));
    json_object_set_new(o, "logprob", out_float(t->logprob));
    return o;
}

static void on_token(answer *w, const swl_event *ev)
{
    json_t *row, *top;
    swl_error ignored;

    if (ev->prompt)
        return;
    if (id_list_append(&w->ids, &ev->token.id, 1, &ignored))
        w->out_of_memory = true;
    if (!w->logprobs)
        return;
    row = logprob_json(w, &ev->token);
    top = json_array();
    for (int32_t i = 0; i < ev->n_top; i++)
        json_array_append_new(top, logprob_json(w, &ev->top[i]));
    if (ev->reasoning)
        json_object_set_new(row, "reasoning", json_true());
    json_object_set_new(row, "top", top);
    json_array_append_new(w->logprobs, row);
}

static void on_finish(answer *w, const swl_event *ev)
{
    fold_thoughts(w);
    w->finish = ev->finish;
    if (ev->usage)
        w->usage = *ev->usage;
    if (ev->error)
        w->error = *ev->error;
}

static bool on_event(void *arg, const swl_event *ev)
{
    answer *w = arg;

    switch (ev->kind) {
    case SWL_EVENT_START:
        w->usage.n_cached = ev->n_done;
        if (ev->n_total - ev->n_done >= LONG_PROMPT && chatty(w))
            progress_show("reading prompt %d/%d", ev->n_done, ev->n_total);
        break;
    case SWL_EVENT_PROGRESS:
        on_progress(w, ev);
        break;
    case SWL_EVENT_TOKEN:
        on_token(w, ev);
        break;
    case SWL_EVENT_REASONING:
        on_reasoning(w, ev);
        break;
    case SWL_EVENT_TEXT:
        on_text(w, ev);
        break;
    case SWL_EVENT_CALL_BEGIN:
        fold_thoughts(w);
        note("the model calls a tool that is not there: %.*s", (int)ev->n_bytes, ev->text);
        break;
    case SWL_EVENT_FINISH:
        on_finish(w, ev);
        break;
    default:
        break;
    }
    return !w->out_of_memory && !interrupt_asked();
}

/* ---- running ---------------------------------------------------------------------------------------------------------- */

static void request_options(answer *w, swl_request_options *o)
{
    const option_value *stops = &w->a->values[OPT_STOP];

    o->think = think_from(w->a);
    o->n_max = opt_int(w->a, OPT_MAX_TOKENS);
    o->sampling = w->sampling;
    o->stop = stops->list;
    o->n_stop = stops->n_list;
    o->logprobs = opt_on(w->a, OPT_JSON); /* for the ids of the tokens */
    o->n_top = w->logprobs ? opt_int(w->a, OPT_LOGPROBS) : 0;
    if (w->schema) {
        o->constrain = SWL_CONSTRAIN_SCHEMA;
        o->constraint = w->schema;
    }
    o->on_event = on_event;
    o->arg = w;
}

static swl_status finished(answer *w, swl_status st, swl_error *err)
{
    interrupt_stoppable(false);
    interrupt_hook(NULL, NULL);
    fold_thoughts(w);
    progress_clear();
    if (w->out_of_memory)
        return fail(err, SWL_E_NOMEM, "out of memory for the answer's text");
    if (!st && w->error.code) {
        *err = w->error;
        st = err->code;
    }
    append(w, &w->text, "", 0);
    return st;
}

static void cancel_chat(void *arg)
{
    swl_chat_cancel(arg);
}

swl_status answer_chat(answer *w, swl_chat *c, swl_error *err)
{
    swl_request_options o;
    swl_status st;

    answer_begin(w);
    swl_request_options_init(&o);
    request_options(w, &o);
    interrupt_hook(cancel_chat, c);
    interrupt_stoppable(true);
    st = swl_chat_answer(c, &o, &w->usage, &w->finish, err);
    return finished(w, st, err);
}

static void cancel_request(void *arg)
{
    swl_request_cancel(arg);
}

swl_status answer_run(answer *w, const swl_request_options *prompt, swl_error *err)
{
    swl_request_options o = *prompt;
    swl_request *r = NULL;
    bool busy = true;
    swl_status st;

    answer_begin(w);
    request_options(w, &o);
    interrupt_stoppable(true);
    st = swl_request_create(&r, w->e->engine, &o, err);
    if (!st)
        interrupt_hook(cancel_request, r);
    if (!st)
        st = swl_engine_submit(w->e->engine, r, err);
    while (!st && busy)
        st = swl_engine_step(w->e->engine, &busy, err);
    st = finished(w, st, err);
    swl_request_free(r);
    return st;
}

static bool session_token(void *arg, int32_t id, const char *text, size_t n_bytes)
{
    swl_event ev = {.kind = SWL_EVENT_TEXT, .text = text, .n_bytes = n_bytes, .token = {.id = id}};
    answer *w = arg;

    if (w->usage.first_token_seconds == 0)
        w->usage.first_token_seconds = seconds_now() - w->begin;
    if (id >= 0)
        on_token(w, &ev);
    return on_event(arg, &ev);
}

static bool session_prompt(void *arg, int32_t n_done, int32_t n_total)
{
    return on_event(arg, &(swl_event){.kind = SWL_EVENT_PROGRESS, .n_done = n_done, .n_total = n_total});
}

static void cancel_session(void *arg)
{
    swl_session_cancel(arg, true);
}

swl_status answer_session(answer *w, const int32_t *ids, int32_t n, swl_error *err)
{
    swl_generate_options o;
    swl_generate_result r = {0};
    swl_session *s = w->e->session;
    swl_status st;

    answer_begin(w);
    swl_generate_options_init(&o);
    o.prompt = ids;
    o.n_prompt = n;
    o.n_max = opt_int(w->a, OPT_MAX_TOKENS);
    o.sampling = w->sampling;
    o.tokenizer = w->e->tokenizer;
    o.on_token = session_token;
    o.on_prompt = session_prompt;
    o.arg = w;
    swl_session_cancel(s, false);
    interrupt_hook(cancel_session, s);
    interrupt_stoppable(true);
    if (o.n_max)
        st = swl_generate(s, &o, &r, err);
    else
        st = swl_session_eval(s, ids, n, SWL_LOGITS_NONE, NULL, err);
    w->finish = o.n_max ? r.finish : SWL_FINISH_LENGTH;
    if (st == SWL_E_CANCELLED) {
        w->finish = SWL_FINISH_CANCELLED;
        st = SWL_OK;
    }
    w->usage.n_prompt = n;
    w->usage.n_generated = r.n_generated;
    w->usage.prompt_seconds = o.n_max ? r.prompt_seconds : seconds_now() - w->begin;
    w->usage.generate_seconds = r.generate_seconds;
    return finished(w, st, err);
}

/* ---- figures ---------------------------------------------------------------------------------------------------------- */

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

/* The last token of an answer need not be in the state yet. */
static int32_t context_tokens(const answer *w)
{
    int32_t n = w->e->session ? swl_session_n_tokens(w->e->session) : w->usage.n_prompt + w->usage.n_generated;

    return n < w->e->info.ctx_tokens ? n : w->e->info.ctx_tokens;
}

int answer_context(const answer *w)
{
    return w->e->info.ctx_tokens > 0 ? (int)(100.0 * context_tokens(w) / w->e->info.ctx_tokens) : 0;
}

/* Since the answer began. */
static swl_model_stats experts_used(const answer *w)
{
    swl_model_stats s;

    swl_model_stats_get(w->e->model, &s);
    s.expert_hits -= w->before.expert_hits;
    s.expert_misses -= w->before.expert_misses;
    s.expert_bytes_read -= w->before.expert_bytes_read;
    return s;
}

/* At a terminal too narrow for it, a line ends between two figures. */
static void wrap_figures(char *line)
{
    int columns, rows, at = 0;
    char *bar = NULL;

    terminal_size(&columns, &rows);
    for (char *p = line; stderr_is_terminal() && *p; p++) {
        if (!strncmp(p, " | ", 3))
            bar = p;
        if (++at > columns && bar) {
            memcpy(bar, "\n  ", 3);
            at = (int)(p - bar);
            bar = NULL;
        }
    }
}

void answer_stats(const answer *w, bool asked)
{
    const option_value *stats = &w->a->values[OPT_STATS];
    const swl_usage *u = &w->usage;
    swl_model_stats s = experts_used(w);
    char line[320], read[16], speed[16];
    int n;

    if (!asked && w->finish == SWL_FINISH_CANCELLED && !u->n_generated)
        return; /* what was not computed has no figures */
    if (!asked && (stats->set ? !stats->on : !stderr_is_terminal() || opt_on(w->a, OPT_QUIET)))
        return;
    n = snprintf(line, sizeof line, "%d tok  %.1f t/s | prompt %d (%d cached) %.0f t/s", u->n_generated,
                 rate(u->n_generated, u->generate_seconds), u->n_prompt, u->n_cached,
                 rate(u->n_prompt - u->n_cached, u->prompt_seconds));
    if (u->n_generated)
        n += snprintf(line + n, sizeof line - (size_t)n, " | ttft %.1f s", u->first_token_seconds);
    if (s.expert_hits + s.expert_misses)
        n += snprintf(line + n, sizeof line - (size_t)n, " | experts %d%% hit, %s read, %s/s",
                      (int)(100 * s.expert_hits / (s.expert_hits + s.expert_misses)), format_bytes(read, s.expert_bytes_read),
                      format_bytes(speed, (uint64_t)rate((double)s.expert_bytes_read, u->prompt_seconds + u->generate_seconds)));
    if (w->e->info.ctx_tokens > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, " | ctx %d%%", answer_context(w));
    if (w->sampling.temperature > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, " | seed %llu", (unsigned long long)w->sampling.seed);
    wrap_figures(line);
    snprintf(line + n, sizeof line - (size_t)n, "\n");
    err_text(STYLE_DIM, line, strlen(line));
}

static const char *finish_name(swl_finish f)
{
    static const char *const names[] = {"none", "stop", "length", "context", "cancelled"};

    return names[f];
}

static void set_int(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static json_t *ids_json(const id_list *l)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < l->n; i++)
        json_array_append_new(list, json_integer(l->ids[i]));
    return list;
}

json_t *answer_json(const answer *w)
{
    const swl_usage *u = &w->usage;
    swl_model_stats s = experts_used(w);
    json_t *o = out_object();
    swl_memory_plan plan;

    swl_memory_plan_get(w->e->model, &plan);
    json_object_set_new(o, "text", json_stringn(w->text.p, w->text.n));
    if (w->reasoning.n)
        json_object_set_new(o, "reasoning", json_stringn(w->reasoning.p, w->reasoning.n));
    json_object_set_new(o, "ids", ids_json(&w->ids));
    if (w->logprobs)
        json_object_set(o, "logprobs", w->logprobs);
    json_object_set_new(o, "finish", json_string(finish_name(w->finish)));
    json_object_set_new(o, "temperature", out_float(w->sampling.temperature));
    set_int(o, "seed", w->sampling.seed);
    set_int(o, "prompt_tokens", (uint64_t)u->n_prompt);
    set_int(o, "cached_tokens", (uint64_t)u->n_cached);
    json_object_set_new(o, "prompt_seconds", json_real(u->prompt_seconds));
    set_int(o, "generated_tokens", (uint64_t)u->n_generated);
    set_int(o, "reasoning_tokens", (uint64_t)u->n_reasoning);
    json_object_set_new(o, "generate_seconds", json_real(u->generate_seconds));
    if (u->n_generated)
        json_object_set_new(o, "first_token_seconds", json_real(u->first_token_seconds));
    set_int(o, "expert_hits", s.expert_hits);
    set_int(o, "expert_misses", s.expert_misses);
    set_int(o, "expert_bytes_read", s.expert_bytes_read);
    set_int(o, "context_tokens", (uint64_t)context_tokens(w));
    set_int(o, "context_tokens_max", (uint64_t)w->e->info.ctx_tokens);
    set_int(o, "memory_bytes", plan.limit);
    set_int(o, "peak_memory_bytes", peak_memory());
    return o;
}
