/*
 * engine.c: the line of requests and the passes. A step lets in who waits while there are idle slots, runs one token of
 * every answer together, and between two of those a part of one prompt; prompts take turns. A prompt alone runs in
 * whole chunks and can be cancelled in the middle of one. Each request's results are its own: passes may be shared,
 * arithmetic is not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"

#define PROMPT_LOGITS_BYTES_MAX ((size_t)8 << 20)

/* ---- opening and closing ---- */

void swl_engine_options_init(swl_engine_options *opt)
{
    memset(opt, 0, sizeof *opt);
}

static swl_status open_slots(swl_engine *e, swl_error *err)
{
    size_t vocab = (size_t)e->model->config->vocab;
    swl_status st = SWL_OK;

    e->n_slots = e->model->plan.n_sessions;
    e->slots = swl_calloc((size_t)e->n_slots, sizeof *e->slots);
    e->info = swl_calloc((size_t)e->n_slots, sizeof *e->info);
    e->entries = swl_calloc((size_t)e->n_slots, sizeof *e->entries);
    e->who = swl_calloc((size_t)e->n_slots, sizeof(swl_request *));
    e->rows = swl_calloc((size_t)e->n_slots * vocab, sizeof *e->rows);
    e->row = swl_calloc(vocab, sizeof *e->row);
    e->counts = swl_calloc(vocab, sizeof *e->counts);
    e->mask = swl_calloc((vocab + 31) / 32, sizeof *e->mask);
    if (!e->slots || !e->info || !e->entries || !e->who || !e->rows || !e->row || !e->counts || !e->mask)
        return swl_fail(err, SWL_E_NOMEM, "engine: out of memory");
    for (int32_t i = 0; i < e->n_slots && !st; i++) {
        st = swl_session_create(&e->slots[i].session, e->model, err);
        e->info[i].ctx_tokens = e->model->ctx_tokens;
    }
    e->stats.n_slots = e->n_slots;
    return st;
}

static void take_turns(void *arg, const json_t *turns)
{
    swl_turns_take(arg, turns);
}

/* Whoever steps settles it. */
static void save_ended(void *arg)
{
    swl_engine_wake(arg);
}

static swl_status open_disk(swl_engine *e, const swl_engine_options *opt, swl_error *err)
{
    swl_status st = swl_disk_open(&e->disk, e->model, opt->session_dir, opt->session_dir_bytes, save_ended, e, err);

    if (st)
        return st;
    e->stats.disk_bytes = e->disk->bytes;
    swl_disk_turns(e->disk, take_turns, e);
    return SWL_OK;
}

swl_status swl_engine_open(swl_engine **out, const swl_engine_options *opt, swl_error *err)
{
    swl_engine *e;
    swl_status st;

    *out = NULL;
    if (!opt->model || !opt->tokenizer || !opt->dir)
        return swl_fail(err, SWL_E_ARG, "engine: model, tokenizer and directory are needed");
    e = swl_calloc(1, sizeof *e);
    if (!e)
        return swl_fail(err, SWL_E_NOMEM, "engine: out of memory");
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->model = opt->model;
    e->tokenizer = opt->tokenizer;
    e->o = *opt;
    e->o.dir = e->o.template_path = e->o.session_dir = NULL;
    e->waiting_end = &e->waiting;
    e->id_think = swl_tokenizer_special(opt->tokenizer, "<think>");
    e->id_think_end = swl_tokenizer_special(opt->tokenizer, "</think>");
    e->id_call = swl_tokenizer_special(opt->tokenizer, "<tool_call>");
    e->id_start = swl_tokenizer_special(opt->tokenizer, "<|im_start|>");
    e->n_tokens = swl_tokenizer_n_tokens(opt->tokenizer);
    if (e->n_tokens > e->model->config->vocab)
        e->n_tokens = e->model->config->vocab;
    st = swl_chat_template_open(&e->tpl, opt->dir, opt->template_path, e->model->config->model_type, err);
    if (!st)
        st = open_slots(e, err);
    if (!st && opt->session_dir)
        st = open_disk(e, opt, err);
    if (st) {
        swl_engine_close(e);
        return st;
    }
    *out = e;
    return SWL_OK;
}

void swl_engine_close(swl_engine *e)
{
    if (!e)
        return;
    for (int32_t i = 0; e->slots && i < e->n_slots; i++) {
        if (e->slots[i].session)
            swl_slot_save(e, &e->slots[i]);
        swl_session_free(e->slots[i].session);
        swl_canon_deinit(&e->slots[i].canon);
    }
    swl_slots_settle(e, 0);
    swl_disk_close(e->disk);
    swl_turns_deinit(&e->turns);
    swl_chat_template_close(&e->tpl);
    swl_free(e->slots);
    swl_free(e->info);
    swl_free(e->entries);
    swl_free(e->who);
    swl_free(e->rows);
    swl_free(e->row);
    swl_free(e->counts);
    swl_free(e->mask);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    swl_free(e);
}

void swl_template_info_get(const swl_engine *e, swl_template_info *out)
{
    *out = e->tpl.info;
}

/* ---- the line ---- */

swl_status swl_engine_submit(swl_engine *e, swl_request *r, swl_error *err)
{
    if (r->engine != e || r->phase != SWL_REQUEST_NEW || r->too_long)
        return swl_fail(err, SWL_E_ARG,
                        "a request can be submitted once, to its own engine, and only if its prompt fits");
    r->phase = SWL_REQUEST_WAITING;
    r->submitted = swl_seconds();
    r->next = NULL;
    pthread_mutex_lock(&e->lock);
    *e->waiting_end = r;
    e->waiting_end = &r->next;
    e->stats.n_waiting++;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return SWL_OK;
}

static swl_request *next_in_line(swl_engine *e)
{
    swl_request *r;

    pthread_mutex_lock(&e->lock);
    r = e->waiting;
    if (r) {
        e->waiting = r->next;
        if (!e->waiting)
            e->waiting_end = &e->waiting;
        e->stats.n_waiting--;
        e->stats.n_running++;
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

/* Takes one out of the line that was cancelled there, or NULL. */
static swl_request *cancelled_in_line(swl_engine *e)
{
    swl_request **at, *r = NULL;

    pthread_mutex_lock(&e->lock);
    for (at = &e->waiting; *at && !atomic_load((*at)->cancel); at = &(*at)->next)
        ;
    r = *at;
    if (r) {
        *at = r->next;
        if (e->waiting_end == &r->next)
            e->waiting_end = at;
        e->stats.n_waiting--;
        e->stats.n_running++;
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

/* ---- the end of a request ---- */

void swl_slot_note(swl_engine *e, const swl_slot *s)
{
    swl_slot_info *info = &e->info[s - e->slots];

    pthread_mutex_lock(&e->lock);
    info->running = s->owner != NULL;
    info->n_tokens = swl_session_n_tokens(s->session);
    info->n_marks = s->session->n_marks;
    info->last_used_seconds = s->used_at;
    pthread_mutex_unlock(&e->lock);
}

static void leave_slot(swl_engine *e, swl_request *r)
{
    swl_slot *s = r->slot;

    if (!s)
        return;
    if (s->session->broken) /* back to where the state is known */
        swl_session_rewind(s->session, swl_session_n_tokens(s->session));
    if (swl_slot_follow(e, s, NULL))
        swl_session_reset(s->session);
    s->session->watch = NULL;
    s->owner = NULL;
    s->used_at = swl_seconds();
    r->slot = NULL;
    e->n_running--;
    swl_slot_note(e, s);
}

static void finish_usage(swl_request *r)
{
    double now = swl_seconds(), start = r->started > 0 ? r->started : now,
           first = r->first_token > 0 ? r->first_token : now;

    r->usage.queue_seconds = start - r->submitted;
    r->usage.prompt_seconds = r->started > 0 ? first - start : 0;
    r->usage.generate_seconds = r->first_token > 0 ? now - first : 0;
    r->usage.first_token_seconds = r->first_token > 0 ? first - r->submitted : 0;
}

/* The last word. Behind the callback the request belongs to the caller again. */
static void finish(swl_engine *e, swl_request *r, swl_finish why, const swl_error *fault)
{
    swl_event event = {.kind = SWL_EVENT_FINISH, .finish = why, .usage = &r->usage, .error = fault};
    swl_error err = {0};
    swl_usage *u = &r->usage;
    int32_t by = r->answer ? swl_answer_stopped_by(r->answer) : -1;

    if (r->answer && swl_answer_end(e, r, fault ? SWL_FINISH_NONE : why, &err) && !fault)
        event.error = &err;
    event.stop = why == SWL_FINISH_STOP && by >= 0 ? r->stop[by] : NULL;
    swl_constraint_free(r);
    leave_slot(e, r);
    finish_usage(r);
    r->phase = SWL_REQUEST_DONE;
    pthread_mutex_lock(&e->lock);
    e->stats.n_running--;
    e->stats.n_prompt += r->counted ? (uint64_t)u->n_prompt : 0;
    e->stats.n_cached += (uint64_t)u->n_cached;
    e->stats.n_generated += (uint64_t)u->n_generated;
    pthread_mutex_unlock(&e->lock);
    if (r->o.on_event)
        r->o.on_event(r->o.arg, &event);
}

/* ---- the beginning ---- */

/* Where the system block ends and the last message begins: the second and the last <|im_start|>. */
static void find_borders(const swl_engine *e, swl_request *r)
{
    int32_t n = 0, second = 0, last = 0, bytes;
    const char *role;

    r->border_system = r->border_last = 0;
    for (int32_t i = 0; i < r->n_prompt && e->id_start >= 0; i++)
        if (r->ids[i] == e->id_start) {
            second = ++n == 2 ? i : second;
            last = i;
        }
    r->border_last = last;
    role = r->n_prompt > 1 && r->ids[0] == e->id_start ? swl_tokenizer_token(e->tokenizer, r->ids[1], &bytes) : NULL;
    if (role && bytes == 6 && !memcmp(role, "system", 6))
        r->border_system = second;
}

static void start(swl_engine *e, swl_request *r)
{
    swl_event event = {.kind = SWL_EVENT_START};
    swl_error err = {0};
    swl_status st;

    if (atomic_load(r->cancel)) {
        finish(e, r, SWL_FINISH_CANCELLED, NULL);
        return;
    }
    r->started = swl_seconds();
    e->n_running++;
    st = swl_slot_take(e, r, &err);
    if (!r->slot)
        e->n_running--;
    if (!st)
        st = swl_answer_begin(e, r, &err);
    if (st) {
        finish(e, r, SWL_FINISH_NONE, &err);
        return;
    }
    swl_rng_init(&r->rng, r->o.sampling.seed);
    find_borders(e, r);
    r->slot->base = r->border_last ? r->border_last : r->n_prompt;
    r->mark_at = r->n_done;
    r->usage.n_prompt = r->n_prompt;
    r->counted = true;
    r->usage.n_cached = r->n_done;
    r->phase = SWL_REQUEST_PROMPT;
    swl_slot_note(e, r->slot);
    event.n_done = r->n_done;
    event.n_total = r->n_prompt;
    swl_emit(r, &event);
}

/* ---- drawing ---- */

static void emit_token(swl_engine *e, swl_request *r, const float *logits, int32_t id, bool prompt)
{
    swl_token_logprob top[SWL_TOP_MAX];
    swl_event event = {.kind = SWL_EVENT_TOKEN, .prompt = prompt, .top = top, .n_top = r->o.n_top};

    if (event.n_top > e->n_tokens)
        event.n_top = e->n_tokens;
    if (logits)
        swl_logprobs(e, logits, id, event.n_top, &event.token, top);
    else
        event.token = (swl_token_logprob){id, NAN};
    event.n_top = logits ? event.n_top : 0;
    event.reasoning = !prompt && swl_answer_in_reasoning(r->answer);
    swl_emit(r, &event);
}

/* What has to happen before the next draw. */
static swl_status before_draw(swl_engine *e, swl_request *r, swl_error *err)
{
    bool reasoning = swl_answer_in_reasoning(r->answer);

    if (reasoning &&
        (atomic_load(&r->end_reasoning) || (r->o.n_reasoning_max > 0 && r->usage.n_reasoning >= r->o.n_reasoning_max)))
        swl_force_answer(e, r);
    if (r->grammar && !r->lazy && !reasoning && !r->constrained_begun && r->forced_at == r->n_forced) {
        r->constrained_begun = true;
        return swl_constraint_begin(r, err);
    }
    return SWL_OK;
}

/* Draws the token that follows, given the logits there; the request may end with it. */
static void draw(swl_engine *e, swl_request *r, const float *logits)
{
    swl_finish why = SWL_FINISH_NONE;
    swl_error err = {0};
    swl_status st = SWL_OK;
    int32_t id;

    if (atomic_load(r->cancel)) {
        finish(e, r, SWL_FINISH_CANCELLED, NULL);
        return;
    }
    st = before_draw(e, r, &err);
    id = st ? -1 : swl_next_token(e, r, logits);
    if (!st && id < 0)
        st = swl_fail(&err, SWL_E_FAIL, "the model produced no finite logit at position %d", r->n_prompt + r->n_out);
    if (st) {
        finish(e, r, SWL_FINISH_NONE, &err);
        return;
    }
    if (!(r->first_token > 0))
        r->first_token = swl_seconds();
    if ((!r->o.ignore_stop || r->state) && swl_tokenizer_is_stop(e->tokenizer, id)) {
        finish(e, r, SWL_FINISH_STOP, NULL);
        return;
    }
    if (r->o.logprobs)
        emit_token(e, r, logits, id, false);
    st = swl_answer_token(e, r, id, &why, &err);
    if (st || why)
        finish(e, r, st ? SWL_FINISH_NONE : why, st ? &err : NULL);
}

/* ---- passes ---- */

typedef struct pass {
    swl_model_stats before;
    swl_status st;
    swl_error err;
} pass;

static void count_experts(swl_engine *e, const pass *p, swl_request *r)
{
    swl_model_stats now;

    swl_model_stats_get(e->model, &now);
    r->usage.expert_hits += now.expert_hits - p->before.expert_hits;
    r->usage.expert_misses += now.expert_misses - p->before.expert_misses;
    r->usage.expert_bytes_read += now.expert_bytes_read - p->before.expert_bytes_read;
}

/* Who has a token to run; those that were cancelled end here. */
static int32_t gather_answers(swl_engine *e)
{
    int32_t n = 0;

    for (int32_t i = 0; i < e->n_slots; i++) {
        swl_request *r = e->slots[i].owner;

        if (!r || r->phase != SWL_REQUEST_ANSWER)
            continue;
        if (atomic_load(r->cancel)) {
            finish(e, r, SWL_FINISH_CANCELLED, NULL);
            continue;
        }
        e->who[n] = r;
        e->entries[n++] = (swl_batch_entry){r->slot->session, &r->out[r->n_out - 1], 1, SWL_LOGITS_LAST};
    }
    return n;
}

/* One token of every answer. */
static void run_answers(swl_engine *e)
{
    int32_t n = gather_answers(e);
    pass p = {0};

    if (!n)
        return;
    swl_model_stats_get(e->model, &p.before);
    p.st = swl_batch_eval(e->entries, n, e->rows, &p.err);
    for (int32_t i = 0; i < n; i++) {
        swl_request *r = e->who[i];

        count_experts(e, &p, r);
        if (!p.st)
            p.st = swl_slot_follow(e, r->slot, &p.err);
        if (p.st) {
            finish(e, r, SWL_FINISH_NONE, &p.err);
            continue;
        }
        swl_slot_note(e, r->slot);
        draw(e, r, e->rows + (int64_t)i * e->model->config->vocab);
    }
}

/* The end of a prompt's next part: cut where a mark goes. */
static int32_t next_end(const swl_engine *e, const swl_request *r, int32_t room)
{
    int32_t end = r->n_prompt - r->n_done > room ? r->n_done + room : r->n_prompt, due = r->mark_at + SWL_MARK_EVERY, i;
    const int32_t borders[] = {r->border_system, r->border_last};

    for (i = 0; i < 2; i++)
        if (borders[i] > r->n_done && borders[i] < end)
            end = borders[i];
    if (due >= r->n_prompt)
        return end;
    for (i = due; i > due - SWL_MARK_EVERY / 2 && i > r->n_done && r->ids[i] != e->id_start; i--)
        ; /* rather where a message begins */
    if (i > due - SWL_MARK_EVERY / 2 && i > r->n_done)
        due = i;
    return due > r->n_done && due < end ? due : end;
}

static swl_status mark(swl_request *r, swl_error *err)
{
    swl_session *s = r->slot->session;
    int32_t at = r->n_done, weight = at == r->border_system ? SWL_MARK_SYSTEM
                                     : at == r->border_last ? SWL_MARK_MESSAGE
                                                            : 1;
    bool end = at == r->n_prompt;

    if (weight == 1 && at - r->mark_at < SWL_MARK_AFTER && !(end && (s->n_marks_max > 2 || !r->border_last)))
        return SWL_OK;
    r->mark_at = at;
    return swl_session_mark_as(s, weight, err);
}

/* Runs ids[n_done..end) and hands out what the model thought of them. */
static swl_status run_scored(swl_engine *e, swl_request *r, int32_t end, swl_error *err)
{
    swl_session *s = r->slot->session;
    size_t vocab = (size_t)e->model->config->vocab;
    int32_t n = end - r->n_done;
    float *rows = swl_calloc((size_t)n * vocab, sizeof *rows);
    swl_status st = rows ? swl_session_eval(s, r->ids + r->n_done, n, SWL_LOGITS_ALL, rows, err)
                         : swl_fail(err, SWL_E_NOMEM, "prompt: out of memory for %d rows of logits", n);

    if (!st && !r->n_done)
        emit_token(e, r, NULL, r->ids[0], true);
    for (int32_t i = r->n_done; i < end && !st; i++)
        if (i + 1 < r->n_prompt)
            emit_token(e, r, rows + (size_t)(i - r->n_done) * vocab, r->ids[i + 1], true);
    if (!st && end == r->n_prompt) {
        memcpy(s->logits, rows + (size_t)(n - 1) * vocab, vocab * sizeof *rows);
        s->has_logits = true;
    }
    swl_free(rows);
    return st;
}

static swl_status run_part(swl_engine *e, swl_request *r, int32_t room, swl_error *err)
{
    swl_session *s = r->slot->session;
    int32_t scored = (int32_t)(PROMPT_LOGITS_BYTES_MAX / sizeof(float) / (size_t)e->model->config->vocab) + 1, end;
    swl_status st;

    if (r->o.prompt_logprobs && room > scored)
        room = scored;
    end = next_end(e, r, room);
    s->watch = r->cancel;
    if (r->o.prompt_logprobs)
        st = run_scored(e, r, end, err);
    else
        st = swl_session_eval(s, r->ids + r->n_done, end - r->n_done,
                              end == r->n_prompt ? SWL_LOGITS_LAST : SWL_LOGITS_NONE, s->logits, err);
    s->watch = NULL;
    if (st)
        return st;
    r->n_done = end;
    st = mark(r, err);
    return st ? st : swl_slot_follow(e, r->slot, err);
}

/* The prompt is there. */
static void begin_answer(swl_engine *e, swl_request *r)
{
    r->phase = SWL_REQUEST_ANSWER;
    if (!r->o.n_max)
        finish(e, r, SWL_FINISH_LENGTH, NULL);
    else
        draw(e, r, r->slot->session->logits);
}

static void run_prompt(swl_engine *e, swl_request *r, int32_t room)
{
    swl_event event = {.kind = SWL_EVENT_PROGRESS, .n_total = r->n_prompt};
    pass p = {0};

    if (atomic_load(r->cancel)) {
        finish(e, r, SWL_FINISH_CANCELLED, NULL);
        return;
    }
    if (r->n_done < r->n_prompt) {
        swl_model_stats_get(e->model, &p.before);
        p.st = run_part(e, r, room, &p.err);
        count_experts(e, &p, r);
        if (p.st) {
            bool stopped = p.st == SWL_E_CANCELLED && atomic_load(r->cancel);

            finish(e, r, stopped ? SWL_FINISH_CANCELLED : SWL_FINISH_NONE, stopped ? NULL : &p.err);
            return;
        }
        swl_slot_note(e, r->slot);
        event.n_done = r->n_done;
        swl_emit(r, &event);
    }
    if (r->n_done == r->n_prompt)
        begin_answer(e, r);
}

static bool has_phase(const swl_slot *s, swl_phase_of_request phase)
{
    return s->owner && s->owner->phase == phase;
}

/* A part of the prompt whose turn it is. */
static void run_prompts(swl_engine *e)
{
    int32_t room = e->model->chunk_tokens;

    for (int32_t i = 0; i < e->n_slots; i++)
        if (has_phase(&e->slots[i], SWL_REQUEST_ANSWER) && room > SWL_SHARE_TOKENS)
            room = SWL_SHARE_TOKENS;
    for (int32_t i = 0; i < e->n_slots; i++) {
        swl_slot *s = &e->slots[(e->turn + i) % e->n_slots];

        if (!has_phase(s, SWL_REQUEST_PROMPT))
            continue;
        e->turn = (int32_t)(s - e->slots + 1) % e->n_slots;
        run_prompt(e, s->owner, room);
        return;
    }
}

swl_status swl_engine_step_locked(swl_engine *e, bool *busy, swl_error *err)
{
    swl_request *r;

    (void)err;
    swl_slots_settle(e, INT32_MAX);
    while ((r = cancelled_in_line(e)))
        finish(e, r, SWL_FINISH_CANCELLED, NULL);
    while (e->n_running < e->n_slots && (r = next_in_line(e)))
        start(e, r);
    run_answers(e);
    run_prompts(e);
    pthread_mutex_lock(&e->lock);
    *busy = e->n_running || e->waiting;
    pthread_mutex_unlock(&e->lock);
    return SWL_OK;
}

/* ---- who steps ---- */

void swl_step_acquire(swl_engine *e)
{
    uint64_t mine;

    pthread_mutex_lock(&e->lock);
    mine = e->next_turn++;
    while (e->turn_now != mine)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void swl_step_release(swl_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->turn_now++;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

swl_status swl_engine_step(swl_engine *e, bool *busy, swl_error *err)
{
    swl_status st;

    swl_step_acquire(e);
    st = swl_engine_step_locked(e, busy, err);
    swl_step_release(e);
    return st;
}

static void deadline(struct timespec *ts, int32_t milliseconds)
{
    clock_gettime(CLOCK_REALTIME, ts);
    ts->tv_sec += milliseconds / 1000;
    ts->tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (ts->tv_nsec >= 1000000000) {
        ts->tv_sec++;
        ts->tv_nsec -= 1000000000;
    }
}

void swl_engine_wait(swl_engine *e, int32_t milliseconds)
{
    struct timespec until;
    int late = 0;

    if (milliseconds >= 0)
        deadline(&until, milliseconds);
    pthread_mutex_lock(&e->lock);
    while (!e->waiting && !e->stats.n_running && !e->woken && late != ETIMEDOUT)
        late = milliseconds < 0 ? pthread_cond_wait(&e->changed, &e->lock)
                                : pthread_cond_timedwait(&e->changed, &e->lock, &until);
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
    double now = swl_seconds();

    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    for (int32_t i = 0; slots && i < n_slots && i < e->n_slots; i++) {
        slots[i] = e->info[i];
        slots[i].last_used_seconds = slots[i].last_used_seconds > 0 ? now - slots[i].last_used_seconds : 0;
    }
    pthread_mutex_unlock(&e->lock);
}
