/* encode.c: what several dialects put into their answers. */
#include <string.h>

#include "dialects.h"

static double per_second(int32_t n, double seconds)
{
    return seconds > 0 && n > 0 ? n / seconds : 0;
}

void srv_timings(const srv_choice *c, srv_text *t)
{
    const swl_usage *u = &c->usage;
    double now = srv_now(), prompt = u->prompt_seconds, predicted = u->generate_seconds;
    int32_t n_prompt = u->n_prompt - u->n_cached, n_predicted = u->n_generated, n_cached = u->n_cached;
    uint64_t lookups = u->expert_hits + u->expert_misses;

    if (!c->finished) { /* in the middle: what is known by now */
        n_prompt = c->job->n_total - c->job->n_cached;
        n_cached = c->job->n_cached;
        n_predicted = c->n_tokens;
        predicted = c->job->first_token > 0 ? now - c->job->first_token : 0;
        prompt = c->job->first_token > 0 ? c->job->first_token - c->job->submitted : 0;
    }
    srv_open(t, "timings", '{');
    srv_int(t, "cache_n", n_cached);
    srv_int(t, "prompt_n", n_prompt);
    srv_real(t, "prompt_ms", 1e3 * prompt);
    srv_real(t, "prompt_per_second", per_second(n_prompt, prompt));
    srv_int(t, "predicted_n", n_predicted);
    srv_real(t, "predicted_ms", 1e3 * predicted);
    srv_real(t, "predicted_per_second", per_second(n_predicted, predicted));
    srv_int(t, "draft_n", 0);
    srv_int(t, "draft_n_accepted", 0);
    srv_open(t, "cache", '{');
    srv_int(t, "expert_hits", (int64_t)u->expert_hits);
    srv_int(t, "expert_misses", (int64_t)u->expert_misses);
    srv_int(t, "bytes_read", (int64_t)u->expert_bytes_read);
    srv_real(t, "hit_rate", lookups ? (double)u->expert_hits / (double)lookups : 1);
    srv_puts(t, "}}");
}

/* Choices of one prompt count it once; prompts of completions are different ones. */
swl_usage srv_usage_sum(const srv_job *j)
{
    swl_usage sum = {0};
    bool same_prompt = j->ask.o.messages != NULL;

    for (int32_t i = 0; i < j->n_choices; i++) {
        const swl_usage *u = &j->choices[i].usage;

        if (!i || !same_prompt) {
            sum.n_prompt += u->n_prompt;
            sum.n_cached += u->n_cached;
        }
        sum.n_generated += u->n_generated;
        sum.n_reasoning += u->n_reasoning;
    }
    return sum;
}

void srv_put_usage(srv_text *t, const srv_job *j, bool reasoning)
{
    swl_usage u = srv_usage_sum(j);

    srv_open(t, "usage", '{');
    srv_int(t, "prompt_tokens", u.n_prompt);
    srv_int(t, "completion_tokens", u.n_generated);
    srv_int(t, "total_tokens", (int64_t)u.n_prompt + u.n_generated);
    srv_open(t, "prompt_tokens_details", '{');
    srv_int(t, "cached_tokens", u.n_cached);
    srv_close(t, '}');
    if (reasoning) {
        srv_open(t, "completion_tokens_details", '{');
        srv_int(t, "reasoning_tokens", u.n_reasoning);
        srv_close(t, '}');
    }
    srv_close(t, '}');
}

void srv_token_json(srv_text *t, const srv_job *j, int32_t id)
{
    int32_t n = 0;
    const char *p = swl_tokenizer_token(j->server->model.tokenizer, id, &n);

    srv_put_json(t, p ? p : "", p ? (size_t)n : 0);
}

void srv_token_bytes(srv_text *t, const srv_job *j, int32_t id)
{
    int32_t n = 0;
    const char *p = swl_tokenizer_token(j->server->model.tokenizer, id, &n);

    srv_puts(t, "[");
    for (int32_t i = 0; p && i < n; i++)
        srv_printf(t, "%s%d", i ? "," : "", (unsigned char)p[i]);
    srv_puts(t, "]");
}

int32_t srv_call_index(const srv_choice *c, const srv_item *it)
{
    int32_t n = 0;

    for (const srv_item *at = c->items; at < it; at++)
        n += at->kind == SRV_ITEM_CALL;
    return n;
}

srv_text *srv_begin_event(srv_job *j, const char *type)
{
    srv_text *t = &j->scratch;

    srv_text_clear(t);
    srv_printf(t, "event: %s\ndata: {", type);
    srv_str(t, "type", type);
    return t;
}

void srv_end_event(srv_job *j)
{
    srv_puts(&j->scratch, "}\n\n");
    srv_job_write(j, &j->scratch);
}
