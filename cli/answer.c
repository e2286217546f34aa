/* answer.c: the callbacks around swl_generate. */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "interrupt.h"
#include "output.h"

void answer_free(answer *w)
{
    free(w->text);
    w->text = NULL;
    w->n_text_max = 0;
    id_list_free(&w->ids);
}

/* Keeps the settings, forgets the last answer. */
static void answer_begin(answer *w)
{
    answer_free(w);
    w->n_text = w->n_shown = 0;
    w->n_ids_kept = 0;
    w->stopped_by_text = w->out_of_memory = false;
    w->first_token_seconds = -1;
    memset(&w->result, 0, sizeof w->result);
}

static bool append_text(answer *w, const char *text, size_t n)
{
    if (w->n_text + n + 1 > w->n_text_max) {
        size_t n_max = (w->n_text + n + 1) * 2;
        char *more = realloc(w->text, n_max);
        if (!more)
            return false;
        w->text = more;
        w->n_text_max = n_max;
    }
    if (n)
        memcpy(w->text + w->n_text, text, n);
    w->n_text += n;
    w->text[w->n_text] = 0;
    return true;
}

/* Where the first stop text begins that is whole in the text not yet shown; n_text when none is. */
static size_t find_stop(const answer *w, const option_value *stops)
{
    size_t first = w->n_text;

    for (int i = 0; i < stops->n_list; i++) {
        size_t n = strlen(stops->list[i]);
        for (size_t at = w->n_shown; n && at + n <= w->n_text && at < first; at++) {
            if (!memcmp(w->text + at, stops->list[i], n))
                first = at;
        }
    }
    return first;
}

/* How many bytes at the end may be the beginning of a stop text, and so must wait. */
static size_t held_back(const answer *w, const option_value *stops)
{
    size_t held = 0;

    for (int i = 0; i < stops->n_list; i++) {
        for (size_t n = strlen(stops->list[i]); n-- > held + 1;) {
            if (n <= w->n_text - w->n_shown && !memcmp(w->text + w->n_text - n, stops->list[i], n))
                held = n;
        }
    }
    return held;
}

static void show_until(answer *w, size_t end)
{
    if (w->show)
        out_text(w->text + w->n_shown, end - w->n_shown);
    w->n_shown = end;
}

static bool on_token(void *arg, int32_t id, const char *text, size_t n_bytes)
{
    answer *w = arg;
    const option_value *stops = &w->a->values[OPT_STOP];
    swl_error ignored;
    size_t stop;

    if (w->first_token_seconds < 0)
        w->first_token_seconds = seconds_now() - w->begin;
    if (w->stopped_by_text)
        return false;
    if (!append_text(w, text, n_bytes) || (id >= 0 && id_list_append(&w->ids, &id, 1, &ignored))) {
        w->out_of_memory = true;
        return false;
    }
    stop = find_stop(w, stops);
    if (stop < w->n_text) {
        show_until(w, stop);
        w->n_text = stop;
        w->text[stop] = 0;
        w->stopped_by_text = true;
        return false;
    }
    show_until(w, id < 0 ? w->n_text : w->n_text - held_back(w, stops));
    if (w->n_shown == w->n_text)
        w->n_ids_kept = w->ids.n;
    return !interrupt_asked();
}

static bool on_prompt(void *arg, int32_t n_done, int32_t n_total)
{
    answer *w = arg;
    double now = seconds_now(), spent = now - w->begin;

    if (stderr_is_terminal() && !opt_on(w->a, OPT_QUIET) && spent > 0.5 && now - w->progress_at > 0.1) {
        w->progress_at = now;
        progress_show("reading prompt %d/%d  %d%%  %.0f t/s", n_done, n_total, (int)(100.0 * n_done / n_total),
                      n_done / spent);
    }
    return !interrupt_asked();
}

swl_status answer_run(answer *w, const int32_t *prompt, int32_t n_prompt, bool *state_lost, swl_error *err)
{
    swl_generate_options o;
    swl_status st;

    answer_begin(w);
    swl_generate_options_init(&o);
    o.whole = w->whole;
    o.prompt = prompt;
    o.n_prompt = n_prompt;
    o.n_max = opt_int(w->a, OPT_MAX_TOKENS);
    o.sampling = w->sampling;
    o.tokenizer = w->e->tokenizer;
    o.on_token = on_token;
    o.on_prompt = on_prompt;
    o.arg = w;
    swl_model_stats_get(w->e->model, &w->before);
    w->begin = seconds_now();
    swl_session_cancel(w->e->session, false);
    interrupt_session(w->e->session);
    interrupt_stoppable(true);
    st = swl_generate(w->e->session, &o, &w->result, err);
    interrupt_stoppable(false);
    interrupt_session(NULL);
    progress_clear();
    *state_lost = st != SWL_OK;
    if (w->out_of_memory)
        return fail(err, SWL_E_NOMEM, "out of memory for the answer's text");
    if (st)
        return st;
    if (w->stopped_by_text)
        w->result.finish = SWL_FINISH_STOP;
    else
        w->n_ids_kept = w->ids.n;
    if (!w->text && !append_text(w, "", 0))
        return fail(err, SWL_E_NOMEM, "out of memory");
    return SWL_OK;
}

static double rate(int32_t n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

void answer_stats(const answer *w)
{
    const option_value *asked = &w->a->values[OPT_STATS];
    const swl_generate_result *r = &w->result;
    swl_model_stats s;
    uint64_t hits, misses;
    char read[16];

    if (asked->set ? !asked->on : !stderr_is_terminal() || opt_on(w->a, OPT_QUIET))
        return;
    swl_model_stats_get(w->e->model, &s);
    hits = s.expert_hits - w->before.expert_hits;
    misses = s.expert_misses - w->before.expert_misses;
    fprintf(stderr, "%d tok  %.1f t/s | prompt %d (%d cached) %.0f t/s", r->n_generated,
            rate(r->n_generated, r->generate_seconds), r->n_prompt, r->n_cached,
            rate(r->n_prompt - r->n_cached, r->prompt_seconds));
    if (w->first_token_seconds >= 0)
        fprintf(stderr, " | ttft %.2f s", w->first_token_seconds);
    if (hits + misses)
        fprintf(stderr, " | experts %d%% hit, %s read", (int)(100 * hits / (hits + misses)),
                format_bytes(read, s.expert_bytes_read - w->before.expert_bytes_read));
    if (w->e->info.ctx_tokens > 0)
        fprintf(stderr, " | ctx %d%%",
                (int)(100.0 * swl_session_n_tokens(w->e->session) / w->e->info.ctx_tokens));
    if (w->sampling.temperature > 0)
        fprintf(stderr, " | seed %llu", (unsigned long long)w->sampling.seed);
    fputc('\n', stderr);
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
    const swl_generate_result *r = &w->result;
    json_t *o = out_object();
    swl_model_stats s;

    swl_model_stats_get(w->e->model, &s);
    json_object_set_new(o, "text", json_stringn(w->text, w->n_text));
    json_object_set_new(o, "ids", ids_json(&w->ids));
    json_object_set_new(o, "finish", json_string(finish_name(r->finish)));
    json_object_set_new(o, "temperature", json_real(w->sampling.temperature));
    set_int(o, "seed", w->sampling.seed);
    set_int(o, "prompt_tokens", (uint64_t)r->n_prompt);
    set_int(o, "cached_tokens", (uint64_t)r->n_cached);
    json_object_set_new(o, "prompt_seconds", json_real(r->prompt_seconds));
    set_int(o, "generated_tokens", (uint64_t)r->n_generated);
    json_object_set_new(o, "generate_seconds", json_real(r->generate_seconds));
    if (w->first_token_seconds >= 0)
        json_object_set_new(o, "first_token_seconds", json_real(w->first_token_seconds));
    set_int(o, "expert_hits", s.expert_hits - w->before.expert_hits);
    set_int(o, "expert_misses", s.expert_misses - w->before.expert_misses);
    set_int(o, "expert_bytes_read", s.expert_bytes_read - w->before.expert_bytes_read);
    set_int(o, "context_tokens", (uint64_t)swl_session_n_tokens(w->e->session));
    set_int(o, "context_tokens_max", (uint64_t)w->e->info.ctx_tokens);
    set_int(o, "peak_memory_bytes", peak_memory());
    return o;
}
