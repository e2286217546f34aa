/*
 * scripted_engine.c: a stand-in for the chat engine behind the public header, beside scripted.c. Nothing is computed: a
 * script in the environment says what is answered, and how slowly. Several requests run at a time, as many as the engine
 * has sessions; a token is a character, or a word with SCRIPT_WORDS.
 *
 *   SCRIPT_TEXT       what is answered (default "Hello, world."). Reasoning stands in <think>...</think> at the beginning;
 *                     a call is <tool_call>{"name": ..., "arguments": ...}</tool_call>, broken without its end. A line
 *                     "---" separates several answers: the n-th answers a prompt with n assistant messages, the last all
 *                     further ones
 *   SCRIPT_INDENT     the arguments of calls have lines
 *   SCRIPT_JSON       what is answered where the answer has to be JSON (default "{}")
 *   SCRIPT_DELAY_MS   before every token of an answer         SCRIPT_PROMPT_MS   before every 16 tokens of a prompt
 *   SCRIPT_CREATE_MS  how long it takes to make a request     SCRIPT_WORDS       a token is a word with the space before
 *   SCRIPT_HOLD       file; while it is there nothing happens at SCRIPT_HOLD_AT: no prompt is read on (0, the default), no
 *                     pass ends that would bring this token of an answer (1 is the first), no request is made (-1).
 *                     A pass of which all requests are cancelled ends all the same
 *   SCRIPT_FAIL_AT    after so many tokens the request fails with a read error
 *   SCRIPT_ENGINE     status that swl_engine_open fails with
 *   SCRIPT_READY      file that is written when the fourth pass begins: the script is in the middle of its work
 *   SCRIPT_REQUESTS   file that receives what every request was made with, a JSON object on a line
 *   SCRIPT_STARTS     file that receives a line with the prompt of every request when the engine takes it up
 *
 * A prompt reads "[role]content" for each message, a token a byte; what of it an earlier prompt began with counts as
 * cached. Token t has the log probability -(t % 8) / 8; the likeliest are 32, 33, ... with -0.5, -1, ...
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <swiftlet/swiftlet.h>

#define N_REMEMBERED 4
#define PROMPT_STEP  16

/* One token of an answer, or an event that goes with the one before (n_tokens 0). */
typedef struct step {
    swl_event_kind kind;
    char *text;
    int32_t call;
    int32_t n_tokens;
    bool broken;
} step;

struct swl_request {
    swl_engine *engine;
    swl_request_options o; /* only what does not point anywhere */
    char *text;            /* the prompt */
    int32_t *ids, n_prompt, n_done;
    step *steps;
    int32_t n_steps, room, at, n_calls;
    char call_ids[32][40];
    const char *stop;      /* that ends the answer */
    char stop_text[256];
    bool started;
    atomic_bool no_reasoning;
    _Atomic int32_t n_past; /* for whoever asks for figures */
    atomic_bool cancelled; /* also from a signal handler */
    double submitted, began, answered;
    swl_usage usage;
    swl_request *next;
};

struct swl_engine {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    swl_request *line; /* submitted and not finished, first come first */
    bool woken;
    int32_t n_slots, ctx_tokens;
    char *remembered[N_REMEMBERED];
    int32_t n_prompts;
    swl_engine_stats stats;
};

static const char *script(const char *name, const char *otherwise)
{
    const char *text = getenv(name);

    return text ? text : otherwise;
}

static swl_status failed(swl_error *err, swl_status code, const char *message)
{
    swl_error e = {.code = code, .offset = -1};

    snprintf(e.message, sizeof e.message, "%s", message);
    if (err)
        *err = e;
    return code;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Is there something to wait for at this place? */
static bool holds(int32_t at)
{
    const char *path = getenv("SCRIPT_HOLD");

    return path && atoi(script("SCRIPT_HOLD_AT", "0")) == at && !access(path, F_OK);
}

/* ---- engine ---- */

static swl_status no_files(swl_error *err)
{
    return failed(err, SWL_E_UNSUPPORTED, "conversations of a script are not saved");
}

swl_status swl_engine_slot_save(swl_engine *e, int32_t slot, const char *name, swl_slot_file *out, swl_error *err)
{
    (void)e, (void)slot, (void)name, (void)out;
    return no_files(err);
}

swl_status swl_engine_slot_save_begin(swl_slot_saving **out, swl_engine *e, int32_t slot, const char *name, swl_slot_file *file,
                                      swl_error *err)
{
    (void)e, (void)slot, (void)name, (void)out, (void)file;
    return no_files(err);
}

swl_status swl_engine_slot_save_end(swl_slot_saving *saving, swl_error *err)
{
    (void)saving;
    return no_files(err);
}

swl_status swl_engine_slot_restore(swl_engine *e, int32_t slot, const char *name, swl_slot_file *out, swl_error *err)
{
    (void)e, (void)slot, (void)name, (void)out;
    return no_files(err);
}

swl_status swl_engine_slot_erase(swl_engine *e, int32_t slot, int32_t *n_tokens, swl_error *err)
{
    *n_tokens = 0;
    return slot >= 0 && slot < e->n_slots ? SWL_OK : failed(err, SWL_E_NOT_FOUND, "there is no such slot");
}

swl_status swl_engine_file_erase(swl_engine *e, const char *name, uint64_t *bytes, swl_error *err)
{
    (void)e, (void)name, (void)bytes;
    return no_files(err);
}

void swl_engine_options_init(swl_engine_options *opt)
{
    memset(opt, 0, sizeof *opt);
}

swl_status swl_engine_open(swl_engine **out, const swl_engine_options *opt, swl_error *err)
{
    swl_status st = (swl_status)atoi(script("SCRIPT_ENGINE", "0"));
    swl_engine *e = st ? NULL : calloc(1, sizeof *e);
    swl_memory_plan plan;
    swl_model_info info;

    *out = e;
    if (st)
        return failed(err, st, "SCRIPT_ENGINE of the script");
    if (!e)
        return failed(err, SWL_E_NOMEM, "out of memory");
    swl_memory_plan_get(opt->model, &plan);
    swl_model_info_get(opt->model, &info);
    e->n_slots = plan.n_sessions > 0 ? plan.n_sessions : 1;
    e->ctx_tokens = info.ctx_tokens;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    return SWL_OK;
}

void swl_engine_close(swl_engine *e)
{
    if (!e)
        return;
    for (int i = 0; i < N_REMEMBERED; i++)
        free(e->remembered[i]);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void swl_template_info_get(const swl_engine *e, swl_template_info *out)
{
    (void)e;
    *out = (swl_template_info){.source = "scripted", .tools = true, .thinking = true, .thinking_switch = true,
                               .thinking_default = true, .effort = true, .preserve_thinking = true,
                               .text = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"};
}

/* ---- requests ---- */

void swl_request_options_init(swl_request_options *opt)
{
    memset(opt, 0, sizeof *opt);
    opt->n_max = -1;
    swl_sampling_init(&opt->sampling);
}

typedef struct text {
    char *p;
    size_t n;
} text;

static void add(text *t, const char *p, size_t n)
{
    char *grown = realloc(t->p, t->n + n + 1);

    if (!grown)
        abort();
    t->p = grown;
    memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

static void add_string(text *t, const json_t *s)
{
    if (json_is_string(s))
        add(t, json_string_value(s), json_string_length(s));
}

static int32_t render(text *t, const char *messages, const char *tools)
{
    json_t *list = json_loads(messages, JSON_ALLOW_NUL, NULL), *m, *part;
    int32_t n_assistant = 0;
    size_t i, j;

    if (tools)
        add(t, tools, strlen(tools));
    json_array_foreach(list, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        json_t *content = json_object_get(m, "content"), *calls = json_object_get(m, "tool_calls");
        char *dumped = calls ? json_dumps(calls, JSON_COMPACT) : NULL;

        add(t, "[", 1);
        add(t, role ? role : "", role ? strlen(role) : 0);
        add(t, "]", 1);
        add_string(t, json_object_get(m, "reasoning_content"));
        add_string(t, content);
        json_array_foreach(content, j, part) add_string(t, json_object_get(part, "text"));
        if (dumped)
            add(t, dumped, strlen(dumped));
        free(dumped);
        n_assistant += role && !strcmp(role, "assistant");
    }
    if (!list)
        n_assistant = -1;
    json_decref(list);
    return n_assistant;
}

static void push_step(swl_request *r, swl_event_kind kind, const char *p, size_t n, int32_t n_tokens, bool broken)
{
    step *grown;

    if (r->n_steps == r->room) {
        r->room = r->room ? 2 * r->room : 64;
        grown = realloc(r->steps, (size_t)r->room * sizeof *grown);
        if (!grown)
            abort();
        r->steps = grown;
    }
    r->steps[r->n_steps++] = (step){kind, strndup(p, n), r->n_calls, n_tokens, broken};
}

static size_t token_length(const char *p, size_t n)
{
    size_t k = 1;

    if (getenv("SCRIPT_WORDS")) {
        while (k < n && p[k] != ' ')
            k++;
        return k;
    }
    while (k < n && ((unsigned char)p[k] & 0xc0) == 0x80)
        k++;
    return k;
}

static void push_tokens(swl_request *r, swl_event_kind kind, const char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t k = token_length(p + at, n - at);
        push_step(r, kind, p + at, k, 1, false);
        at += k;
    }
}

static void push_call(swl_request *r, const char *source, size_t n, bool closed)
{
    json_t *call = json_loadb(source, n, JSON_DISABLE_EOF_CHECK, NULL);
    const char *name = json_string_value(json_object_get(call, "name"));
    char *args = json_dumps(json_object_get(call, "arguments"), (getenv("SCRIPT_INDENT") ? JSON_INDENT(1) : JSON_COMPACT) | JSON_ENCODE_ANY);
    char buffer[4096];

    if (!args)
        args = strdup("{}");
    if (!name || r->n_calls == 32) {
        push_tokens(r, SWL_EVENT_TEXT, source, n);
    } else {
        for (int i = 0; i < 24; i++)
            buffer[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[rand() % 62];
        snprintf(r->call_ids[r->n_calls], sizeof r->call_ids[0], "call_%.24s", buffer);
        push_step(r, SWL_EVENT_CALL_BEGIN, name, strlen(name), 1, false);
        push_tokens(r, SWL_EVENT_CALL_ARGS, args, strlen(args));
        push_step(r, SWL_EVENT_CALL_END, args, strlen(args), 1, !closed);
        if (!closed) {
            snprintf(buffer, sizeof buffer, "<tool_call>%.*s", (int)n, source);
            push_step(r, SWL_EVENT_TEXT, buffer, strlen(buffer), 0, false);
        }
        r->n_calls++;
    }
    free(args);
    json_decref(call);
}

/* Text up to the first stop string; true when one was found. */
static bool push_text(swl_request *r, const swl_request_options *o, const char *p, size_t n)
{
    size_t end = n;

    for (int i = 0; i < o->n_stop; i++) {
        for (size_t at = 0; at + strlen(o->stop[i]) <= end; at++) {
            if (!memcmp(p + at, o->stop[i], strlen(o->stop[i]))) {
                end = at;
                snprintf(r->stop_text, sizeof r->stop_text, "%s", o->stop[i]);
                r->stop = r->stop_text;
                break;
            }
        }
    }
    push_tokens(r, SWL_EVENT_TEXT, p, end);
    return r->stop != NULL;
}

static void push_answer(swl_request *r, const swl_request_options *o, const char *p, size_t n)
{
    const char *end = p + n, *think;
    bool calls = !o->raw && o->messages && o->tools && !o->no_calls;

    if (o->messages && !o->raw && n > 7 && !memcmp(p, "<think>", 7) && (think = strstr(p, "</think>")) && think < end) {
        if (o->think != SWL_THINK_OFF)
            push_tokens(r, SWL_EVENT_REASONING, p + 7, (size_t)(think - p - 7));
        p = think + 8;
    }
    if (o->constrain == SWL_CONSTRAIN_TOOL && !strstr(p, "<tool_call>")) {
        json_t *tools = json_loads(o->tools ? o->tools : "[]", 0, NULL), *call;
        json_t *first = json_object_get(json_object_get(json_array_get(tools, 0), "function"), "name");
        char *source;

        call = json_pack("{s:s, s:{}}", "name", o->constraint ? o->constraint : json_string_value(first), "arguments");
        source = call ? json_dumps(call, 0) : strdup("{}");
        push_call(r, source, strlen(source), true);
        free(source);
        json_decref(call);
        json_decref(tools);
        return;
    }
    if (o->constrain == SWL_CONSTRAIN_JSON || o->constrain == SWL_CONSTRAIN_SCHEMA) {
        p = script("SCRIPT_JSON", "{}");
        end = p + strlen(p);
    }
    while (p < end) {
        const char *begin = calls ? strstr(p, "<tool_call>") : NULL, *close;

        if (!begin || begin >= end)
            begin = end;
        if (begin > p && push_text(r, o, p, (size_t)(begin - p)))
            return;
        if (begin == end)
            return;
        close = strstr(begin, "</tool_call>");
        if (close && close >= end)
            close = NULL;
        push_call(r, begin + 11, (size_t)((close ? close : end) - begin - 11), close != NULL);
        p = close ? close + 12 : end;
        if (o->one_call)
            return;
    }
}

static void plan_answer(swl_request *r, const swl_request_options *o, int32_t n_assistant)
{
    const char *p = script("SCRIPT_TEXT", "Hello, world."), *end;

    while ((end = strstr(p, "\n---\n")) && n_assistant-- > 0)
        p = end + 5;
    push_answer(r, o, p, end ? (size_t)(end - p) : strlen(p));
}

static void set(json_t *o, const char *name, json_t *value)
{
    json_object_set_new(o, name, value);
}

static json_t *maybe(const char *s)
{
    return s ? json_string(s) : json_null();
}

static void log_request(const swl_request_options *o)
{
    const char *path = getenv("SCRIPT_REQUESTS");
    FILE *f = path ? fopen(path, "a") : NULL;
    json_t *j, *stop, *bias;

    if (!f)
        return;
    j = json_object();
    stop = json_array();
    bias = json_array();
    set(j, "messages", maybe(o->messages));
    set(j, "tools", maybe(o->tools));
    set(j, "template_vars", maybe(o->template_vars));
    set(j, "think", json_integer(o->think));
    set(j, "continue_final", json_boolean(o->continue_final));
    set(j, "text", maybe(o->text));
    set(j, "n_ids", json_integer(o->n_ids));
    set(j, "n_max", json_integer(o->n_max));
    set(j, "n_min", json_integer(o->n_min));
    set(j, "temperature", json_real((double)o->sampling.temperature));
    set(j, "top_k", json_integer(o->sampling.top_k));
    set(j, "top_p", json_real((double)o->sampling.top_p));
    set(j, "min_p", json_real((double)o->sampling.min_p));
    set(j, "repetition_penalty", json_real((double)o->sampling.repetition_penalty));
    set(j, "presence_penalty", json_real((double)o->sampling.presence_penalty));
    set(j, "frequency_penalty", json_real((double)o->sampling.frequency_penalty));
    set(j, "repeat_last_n", json_integer(o->sampling.repeat_last_n));
    set(j, "seed", json_integer((json_int_t)o->sampling.seed));
    set(j, "ignore_stop", json_boolean(o->ignore_stop));
    for (int i = 0; i < o->n_stop; i++)
        json_array_append_new(stop, json_string(o->stop[i]));
    set(j, "stop", stop);
    for (int i = 0; i < o->n_bias; i++)
        json_array_append_new(bias, json_pack("[i,f]", o->bias[i].id, (double)o->bias[i].bias));
    set(j, "bias", bias);
    set(j, "logprobs", json_boolean(o->logprobs));
    set(j, "n_top", json_integer(o->n_top));
    set(j, "prompt_logprobs", json_boolean(o->prompt_logprobs));
    set(j, "constrain", json_integer(o->constrain));
    set(j, "constraint", maybe(o->constraint));
    set(j, "allowed", maybe(o->allowed));
    set(j, "no_calls", json_boolean(o->no_calls));
    set(j, "one_call", json_boolean(o->one_call));
    set(j, "n_reasoning_max", json_integer(o->n_reasoning_max));
    json_dumpf(j, f, JSON_COMPACT);
    fputc('\n', f);
    fclose(f);
    json_decref(j);
}

static void make_prompt(swl_request *r, const swl_request_options *o, int32_t *n_assistant)
{
    text t = {0};

    add(&t, "", 0);
    if (o->messages) {
        *n_assistant = render(&t, o->messages, o->tools);
        if (!o->continue_final)
            add(&t, "[assistant]", 11);
    } else if (o->text) {
        add(&t, o->text, strlen(o->text));
    }
    r->n_prompt = o->ids ? o->n_ids : (int32_t)t.n;
    r->ids = calloc((size_t)r->n_prompt + 1, sizeof *r->ids);
    for (int32_t i = 0; i < r->n_prompt; i++)
        r->ids[i] = o->ids ? o->ids[i] : (unsigned char)t.p[i];
    if (o->ids) {
        for (int32_t i = 0; i < o->n_ids; i++)
            add(&t, (char[]){(char)(o->ids[i] ? o->ids[i] : ' ')}, 1);
    }
    r->text = t.p;
}

swl_status swl_request_create(swl_request **out, swl_engine *e, const swl_request_options *opt, swl_error *err)
{
    swl_request *r = calloc(1, sizeof *r);
    int32_t n_assistant = 0;

    *out = NULL;
    if (!r)
        return failed(err, SWL_E_NOMEM, "out of memory");
    sleep_ms(atol(script("SCRIPT_CREATE_MS", "0")));
    log_request(opt);
    while (holds(-1))
        sleep_ms(1);
    r->engine = e;
    r->o = *opt;
    make_prompt(r, opt, &n_assistant);
    if (n_assistant < 0 || (opt->constraint && opt->constrain == SWL_CONSTRAIN_SCHEMA && strstr(opt->constraint, "$recursiveRef"))) {
        swl_request_free(r);
        return n_assistant < 0 ? failed(err, SWL_E_ARG, "messages: not JSON")
                               : failed(err, SWL_E_UNSUPPORTED, "schema: the keyword \"$recursiveRef\" is not supported");
    }
    plan_answer(r, opt, n_assistant);
    *out = r;
    if (r->n_prompt >= e->ctx_tokens)
        return failed(err, SWL_E_BUDGET, "the prompt is longer than the context");
    return SWL_OK;
}

void swl_request_free(swl_request *r)
{
    if (!r)
        return;
    for (int32_t i = 0; i < r->n_steps; i++)
        free(r->steps[i].text);
    free(r->steps);
    free(r->text);
    free(r->ids);
    free(r);
}

int32_t swl_request_n_prompt(const swl_request *r)
{
    return r->n_prompt;
}

const int32_t *swl_request_prompt(const swl_request *r)
{
    return r->ids;
}

const char *swl_request_text(const swl_request *r)
{
    return r->o.ids ? NULL : r->text;
}

swl_status swl_engine_submit(swl_engine *e, swl_request *r, swl_error *err)
{
    swl_request **at;

    (void)err;
    pthread_mutex_lock(&e->lock);
    for (at = &e->line; *at; at = &(*at)->next)
        continue;
    *at = r;
    r->submitted = now();
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return SWL_OK;
}

static void set_flag(swl_request *r, _Atomic bool *flag)
{
    pthread_mutex_lock(&r->engine->lock);
    *flag = true;
    pthread_cond_broadcast(&r->engine->changed);
    pthread_mutex_unlock(&r->engine->lock);
}

void swl_request_cancel(swl_request *r)
{
    r->cancelled = true;
}

void swl_request_end_reasoning(swl_request *r)
{
    set_flag(r, &r->no_reasoning);
}

/* ---- running ---- */

static bool is_cancelled(swl_request *r)
{
    return r->cancelled;
}

static void deliver(swl_request *r, const swl_event *ev)
{
    if (r->o.on_event && !r->o.on_event(r->o.arg, ev))
        r->cancelled = true;
}

static void finish(swl_request *r, swl_finish why, const swl_error *error)
{
    swl_engine *e = r->engine;
    swl_event ev = {.kind = SWL_EVENT_FINISH, .finish = why, .usage = &r->usage, .error = error};

    pthread_mutex_lock(&e->lock);
    for (swl_request **at = &e->line; *at; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    e->stats.n_prompt += (uint64_t)r->usage.n_prompt;
    e->stats.n_cached += (uint64_t)r->usage.n_cached;
    e->stats.n_generated += (uint64_t)r->usage.n_generated;
    pthread_mutex_unlock(&e->lock);
    r->usage.generate_seconds = r->answered > 0 ? now() - r->answered : 0;
    if (why == SWL_FINISH_STOP && r->stop)
        ev.stop = r->stop;
    deliver(r, &ev); /* whoever gets this may free the request */
}

static int32_t n_common(const swl_request *r, const char *other)
{
    int32_t n = 0;

    while (other && n < r->n_prompt - 1 && other[n] && other[n] == r->text[n])
        n++;
    return n;
}

static void log_start(const swl_request *r)
{
    const char *path = getenv("SCRIPT_STARTS");
    FILE *f = path ? fopen(path, "a") : NULL;

    if (!f)
        return;
    fprintf(f, "%s\n", r->text);
    fclose(f);
}

static void start(swl_request *r)
{
    swl_engine *e = r->engine;
    swl_event ev = {.kind = SWL_EVENT_START, .n_total = r->n_prompt};

    r->started = true;
    r->began = now();
    r->usage.queue_seconds = r->began - r->submitted;
    r->usage.n_prompt = r->n_prompt;
    for (int i = 0; i < N_REMEMBERED && !r->o.prompt_logprobs; i++) {
        int32_t n = n_common(r, e->remembered[i]);
        if (n > r->usage.n_cached)
            r->usage.n_cached = n;
    }
    free(e->remembered[e->n_prompts % N_REMEMBERED]);
    e->remembered[e->n_prompts++ % N_REMEMBERED] = strdup(r->text);
    r->n_done = ev.n_done = r->usage.n_cached;
    deliver(r, &ev);
    log_start(r);
}

static void token_event(swl_request *r, int32_t id, bool prompt, bool first, bool reasoning)
{
    swl_token_logprob top[20];
    swl_event ev = {.kind = SWL_EVENT_TOKEN, .prompt = prompt, .reasoning = reasoning, .top = top, .n_top = r->o.n_top};

    ev.token = (swl_token_logprob){id, first ? NAN : (float)-(id % 8) / 8};
    for (int i = 0; i < r->o.n_top && i < 20; i++)
        top[i] = (swl_token_logprob){32 + i, -0.5f * (float)(i + 1)};
    deliver(r, &ev);
}

static void read_prompt(swl_request *r)
{
    int32_t end = r->n_done + PROMPT_STEP < r->n_prompt ? r->n_done + PROMPT_STEP : r->n_prompt;
    swl_event ev = {.kind = SWL_EVENT_PROGRESS, .n_done = end, .n_total = r->n_prompt};

    for (int32_t i = r->n_done; r->o.prompt_logprobs && i < end; i++)
        token_event(r, r->ids[i], true, !i, false);
    r->n_done = end;
    r->n_past = end;
    deliver(r, &ev);
    if (end == r->n_prompt) {
        r->answered = now();
        r->usage.prompt_seconds = r->answered - r->began;
    }
}

/* The next token with what belongs to it. */
static bool answer(swl_request *r)
{
    int32_t n_max = r->o.n_max, limit = r->engine->ctx_tokens - r->n_prompt;

    if (n_max < 0 || n_max > limit)
        n_max = limit;
    while (r->no_reasoning && r->at < r->n_steps && r->steps[r->at].kind == SWL_EVENT_REASONING)
        r->at++;
    if (r->at == r->n_steps || (r->usage.n_generated >= n_max && r->steps[r->at].n_tokens)) {
        finish(r, r->at == r->n_steps ? SWL_FINISH_STOP : n_max == limit ? SWL_FINISH_CONTEXT : SWL_FINISH_LENGTH, NULL);
        return false;
    }
    do {
        step *s = &r->steps[r->at++];
        swl_event ev = {.kind = s->kind, .text = s->text, .n_bytes = strlen(s->text), .call = s->call, .broken = s->broken};

        if (s->call < 32)
            ev.call_id = r->call_ids[s->call];
        if (s->n_tokens && r->o.logprobs)
            token_event(r, (unsigned char)s->text[0], false, false, s->kind == SWL_EVENT_REASONING);
        if (!r->usage.n_generated)
            r->usage.first_token_seconds = now() - r->submitted;
        r->usage.n_generated += s->n_tokens;
        r->n_past += s->n_tokens;
        r->usage.n_reasoning += s->kind == SWL_EVENT_REASONING;
        deliver(r, &ev);
    } while (r->at < r->n_steps && !r->steps[r->at].n_tokens);
    return true;
}

/* One token, or a part of the prompt. */
static void run(swl_request *r)
{
    swl_error broken = {.code = SWL_E_IO, .offset = 7, .file = "scripted.bin", .message = "a read failed as scripted"};

    if (is_cancelled(r)) {
        finish(r, SWL_FINISH_CANCELLED, NULL);
        return;
    }
    if (!r->started)
        start(r);
    else if (r->n_done < r->n_prompt)
        read_prompt(r);
    else if (getenv("SCRIPT_FAIL_AT") && r->usage.n_generated >= atoi(getenv("SCRIPT_FAIL_AT")))
        finish(r, SWL_FINISH_NONE, &broken);
    else
        answer(r);
}

static void say_ready(void)
{
    static int n_passes;
    FILE *f = ++n_passes == 4 ? fopen(script("SCRIPT_READY", "/dev/null"), "w") : NULL;

    if (f) {
        fputs("ready", f);
        fclose(f);
    }
}

static bool is_held(swl_request **running, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const swl_request *r = running[i];

        if (r->started && !r->cancelled && holds(r->n_done < r->n_prompt ? 0 : r->usage.n_generated + 1))
            return true;
    }
    return false;
}

/* A pass takes time, unless all that take part in it are cancelled. */
static void pass_time(swl_request **running, int32_t n)
{
    double end = now();
    bool slow = false;

    for (int32_t i = 0; i < n; i++)
        slow |= running[i]->started && running[i]->n_done < running[i]->n_prompt;
    end += 1e-3 * (double)atol(script(slow ? "SCRIPT_PROMPT_MS" : "SCRIPT_DELAY_MS", "0"));
    say_ready();
    while (now() < end || is_held(running, n)) {
        int32_t n_left = 0;

        for (int32_t i = 0; i < n; i++)
            n_left += running[i]->started && !is_cancelled(running[i]);
        if (!n_left)
            return;
        sleep_ms(1);
    }
}

swl_status swl_engine_step(swl_engine *e, bool *busy, swl_error *err)
{
    swl_request *running[64], *r;
    int32_t n = 0, i = 0;

    (void)err;
    pthread_mutex_lock(&e->lock);
    for (r = e->line; r && n < 64; r = r->next, i++) {
        if (i < e->n_slots || r->cancelled)
            running[n++] = r;
    }
    pthread_mutex_unlock(&e->lock);
    pass_time(running, n);
    for (i = 0; i < n; i++)
        run(running[i]);
    pthread_mutex_lock(&e->lock);
    *busy = e->line != NULL;
    pthread_mutex_unlock(&e->lock);
    return SWL_OK;
}

void swl_engine_wait(swl_engine *e, int32_t milliseconds)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += milliseconds < 0 ? 3600 : milliseconds / 1000;
    end.tv_nsec += milliseconds < 0 ? 0 : (long)(milliseconds % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    pthread_mutex_lock(&e->lock);
    while (!e->line && !e->woken && !pthread_cond_timedwait(&e->changed, &e->lock, &end))
        continue;
    e->woken = false;
    pthread_mutex_unlock(&e->lock);
}

void swl_engine_wake(swl_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->woken = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void swl_engine_stats_get(swl_engine *e, swl_engine_stats *out, swl_slot_info *slots, int32_t n_slots)
{
    int32_t i = 0;

    pthread_mutex_lock(&e->lock);
    e->stats.n_running = e->stats.n_waiting = 0;
    for (swl_request *r = e->line; r; r = r->next, i++) {
        if (i < e->n_slots)
            e->stats.n_running++;
        else
            e->stats.n_waiting++;
        if (slots && i < n_slots && i < e->n_slots)
            slots[i] = (swl_slot_info){true, r->n_past, 1, e->ctx_tokens, 0};
    }
    e->stats.n_slots = e->n_slots;
    for (; slots && i < n_slots && i < e->n_slots; i++)
        slots[i] = (swl_slot_info){false, 0, 0, e->ctx_tokens, 0};
    *out = e->stats;
    pthread_mutex_unlock(&e->lock);
}

/* ---- chat: the messages, and one request for each answer ---- */

struct swl_chat {
    swl_engine *engine;
    json_t *messages;
    swl_request *running;
    atomic_bool cancelled;
};

swl_status swl_chat_create(swl_chat **out, swl_engine *e, swl_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return failed(err, SWL_E_NOMEM, "out of memory");
    (*out)->engine = e;
    (*out)->messages = json_array();
    return SWL_OK;
}

void swl_chat_free(swl_chat *c)
{
    if (c)
        json_decref(c->messages);
    free(c);
}

swl_status swl_chat_add(swl_chat *c, const char *role, const char *content, swl_error *err)
{
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", content);

    return m && !json_array_append_new(c->messages, m) ? SWL_OK : failed(err, SWL_E_ARG, "chat: the message is not UTF-8");
}

swl_status swl_chat_add_json(swl_chat *c, const char *message, swl_error *err)
{
    json_t *m = json_loads(message, JSON_ALLOW_NUL, NULL);

    return m && !json_array_append_new(c->messages, m) ? SWL_OK : failed(err, SWL_E_ARG, "chat: the message is not JSON");
}

int32_t swl_chat_n_messages(const swl_chat *c)
{
    return (int32_t)json_array_size(c->messages);
}

char *swl_chat_messages(const swl_chat *c)
{
    return json_dumps(c->messages, JSON_COMPACT);
}

void swl_chat_truncate(swl_chat *c, int32_t n)
{
    while (swl_chat_n_messages(c) > (n < 0 ? 0 : n))
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

swl_status swl_chat_fork(swl_chat **out, const swl_chat *c, swl_error *err)
{
    swl_status st = swl_chat_create(out, c->engine, err);

    if (!st)
        json_array_extend((*out)->messages, c->messages);
    return st;
}

typedef struct answering {
    const swl_request_options *o;
    text content, reasoning;
    json_t *calls;
    char name[256];
    bool done;
    swl_finish finish;
    swl_usage usage;
    swl_error error;
} answering;

static bool on_answer(void *arg, const swl_event *ev)
{
    answering *a = arg;

    if (ev->kind == SWL_EVENT_TEXT)
        add(&a->content, ev->text, ev->n_bytes);
    if (ev->kind == SWL_EVENT_REASONING)
        add(&a->reasoning, ev->text, ev->n_bytes);
    if (ev->kind == SWL_EVENT_CALL_BEGIN)
        snprintf(a->name, sizeof a->name, "%.*s", (int)ev->n_bytes, ev->text);
    if (ev->kind == SWL_EVENT_CALL_END && !ev->broken)
        json_array_append_new(a->calls, json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", ev->call_id, "type", "function",
                                                  "function", "name", a->name, "arguments", ev->text, ev->n_bytes));
    if (ev->kind == SWL_EVENT_FINISH) {
        a->done = true;
        a->finish = ev->finish;
        a->usage = *ev->usage;
        if (ev->error)
            a->error = *ev->error;
    }
    return !a->o->on_event || a->o->on_event(a->o->arg, ev);
}

static void append_answer(swl_chat *c, const answering *a)
{
    json_t *m = json_pack("{s:s, s:s%}", "role", "assistant", "content", a->content.p, a->content.n);

    if (a->reasoning.n)
        set(m, "reasoning_content", json_stringn(a->reasoning.p, a->reasoning.n));
    if (json_array_size(a->calls))
        json_object_set(m, "tool_calls", a->calls);
    json_array_append_new(c->messages, m);
}

swl_status swl_chat_answer(swl_chat *c, const swl_request_options *opt, swl_usage *usage, swl_finish *why, swl_error *err)
{
    swl_request_options o = *opt;
    char *messages = swl_chat_messages(c);
    answering a = {.o = opt, .calls = json_array()};
    swl_status st;
    bool busy;

    add(&a.content, "", 0);
    o.messages = messages;
    o.on_event = on_answer;
    o.arg = &a;
    c->cancelled = false;
    st = swl_request_create(&c->running, c->engine, &o, err);
    if (!st)
        st = swl_engine_submit(c->engine, c->running, err);
    while (!st && !a.done) {
        if (c->cancelled)
            swl_request_cancel(c->running);
        st = swl_engine_step(c->engine, &busy, err);
    }
    if (!st) {
        append_answer(c, &a);
        st = a.error.code;
        if (st && err)
            *err = a.error;
    }
    if (usage)
        *usage = a.usage;
    if (why)
        *why = a.finish;
    swl_request_free(c->running);
    c->running = NULL;
    free(messages);
    free(a.content.p);
    free(a.reasoning.p);
    json_decref(a.calls);
    return st;
}

void swl_chat_cancel(swl_chat *c)
{
    c->cancelled = true;
}

swl_status swl_chat_save(const swl_chat *c, const char *path, swl_error *err)
{
    return json_dump_file(c->messages, path, 0) ? failed(err, SWL_E_IO, "chat: cannot write") : SWL_OK;
}

swl_status swl_chat_load(swl_chat *c, const char *path, bool *state_kept, swl_error *err)
{
    json_t *messages = json_load_file(path, JSON_ALLOW_NUL, NULL);

    if (!json_is_array(messages)) {
        json_decref(messages);
        return failed(err, SWL_E_NOT_FOUND, "chat: cannot read");
    }
    json_decref(c->messages);
    c->messages = messages;
    if (state_kept)
        *state_kept = true;
    return SWL_OK;
}
