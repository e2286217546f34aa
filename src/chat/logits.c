/*
 * logits.c: the next token. The model's logits are changed in this order: bias; what must not come (stop tokens before
 * n_min, calls that are forbidden); repetition, then presence and frequency penalty; then the draw (session/sampler.c)
 * from the vocabulary without its padding. Under a constraint the draw is tried first and repeated among what is allowed
 * only if it fell on something else. Forced tokens pass by all of this and use no randomness.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "chat/engine.h"

/* ---- log probabilities ---- */

/* log of the sum of exp over the whole row, in double from the largest on. */
static double log_sum(const float *logits, int32_t n)
{
    double sum = 0, max = -INFINITY;

    for (int32_t i = 0; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    if (!isfinite(max))
        return max;
    for (int32_t i = 0; i < n; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

/* Keeps the best at the front; equal ones by id. */
static void offer(swl_token_logprob *top, int32_t *n, int32_t n_max, swl_token_logprob t)
{
    int32_t i = *n < n_max ? (*n)++ : n_max;

    if (i == n_max && !(t.logprob > top[--i].logprob))
        return;
    for (; i > 0 && t.logprob > top[i - 1].logprob; i--)
        top[i] = top[i - 1];
    top[i] = t;
}

void swl_logprobs(swl_engine *e, const float *logits, int32_t id, int32_t n_top, swl_token_logprob *of,
                  swl_token_logprob *top)
{
    double norm = log_sum(logits, e->model->config->vocab);
    int32_t n = 0;

    *of = (swl_token_logprob){id, (float)(logits[id] - norm)};
    for (int32_t i = 0; n_top && i < e->n_tokens; i++)
        if (n < n_top || logits[i] - norm > top[n_top - 1].logprob)
            offer(top, &n, n_top, (swl_token_logprob){i, (float)(logits[i] - norm)});
}

/* ---- penalties ---- */

static bool repeats_cost(const swl_sampling *s)
{
    return s->repetition_penalty != 1 && s->repeat_last_n;
}

static bool presence_costs(const swl_sampling *s)
{
    return s->presence_penalty != 0 || s->frequency_penalty != 0;
}

/* Adds d to the counts of ids[0..n), or clears them. */
static void count_ids(int32_t *counts, const int32_t *ids, int32_t n, int32_t d)
{
    for (int32_t i = 0; i < n; i++)
        counts[ids[i]] = d ? counts[ids[i]] + d : 0;
}

static void repeat_penalty(swl_engine *e, const int32_t *ids, int32_t n, float penalty)
{
    for (int32_t i = 0; i < n; i++) {
        float *l = &e->row[ids[i]];

        if (e->counts[ids[i]]++)
            continue;
        *l = *l > 0 ? *l / penalty : *l * penalty;
    }
}

/* Over the last tokens of prompt and answer together. */
static void penalise_repetition(swl_engine *e, const swl_request *r)
{
    const swl_sampling *s = &r->o.sampling;
    int32_t n_out = r->n_out, n_prompt = r->n_prompt;

    if (!repeats_cost(s))
        return;
    if (s->repeat_last_n > 0) {
        n_out = n_out < s->repeat_last_n ? n_out : s->repeat_last_n;
        n_prompt = n_prompt < s->repeat_last_n - n_out ? n_prompt : s->repeat_last_n - n_out;
    }
    repeat_penalty(e, r->ids + r->n_prompt - n_prompt, n_prompt, s->repetition_penalty);
    repeat_penalty(e, r->out + r->n_out - n_out, n_out, s->repetition_penalty);
    count_ids(e->counts, r->ids + r->n_prompt - n_prompt, n_prompt, 0);
    count_ids(e->counts, r->out + r->n_out - n_out, n_out, 0);
}

/* OpenAI's meaning: over what was generated, once and for every time. */
static void penalise_presence(swl_engine *e, const swl_request *r)
{
    const swl_sampling *s = &r->o.sampling;

    if (!presence_costs(s))
        return;
    count_ids(e->counts, r->out, r->n_out, 1);
    for (int32_t i = 0; i < r->n_out; i++) {
        int32_t *count = &e->counts[r->out[i]];

        if (*count)
            e->row[r->out[i]] -= s->presence_penalty + (float)*count * s->frequency_penalty;
        *count = 0;
    }
}

/* ---- the draw ---- */

static void ban(swl_engine *e, int32_t id)
{
    if (id >= 0 && id < e->model->config->vocab)
        e->row[id] = -INFINITY;
}

static void ban_stops(swl_engine *e)
{
    for (int32_t i = 0; i < e->n_tokens; i++)
        if (swl_tokenizer_is_stop(e->tokenizer, i))
            e->row[i] = -INFINITY;
}

static void copy(swl_engine *e, const float *logits)
{
    memcpy(e->row, logits, (size_t)e->n_tokens * sizeof *e->row);
}

static void change(swl_engine *e, const swl_request *r)
{
    for (int32_t i = 0; i < r->o.n_bias; i++)
        e->row[r->bias[i].id] += r->bias[i].bias;
    if (r->n_out < r->o.n_min)
        ban_stops(e);
    if (r->o.no_calls)
        ban(e, e->id_call);
    penalise_repetition(e, r);
    penalise_presence(e, r);
}

/* Most requests leave the logits as they are, and a row of them is a megabyte. */
static bool changes(const swl_request *r)
{
    return r->o.n_bias || r->n_out < r->o.n_min || r->o.no_calls || repeats_cost(&r->o.sampling) || presence_costs(&r->o.sampling);
}

static int32_t draw(swl_engine *e, swl_request *r, const float *row)
{
    return swl_sample(row, e->n_tokens, &r->o.sampling, &r->rng, r->slot->session->scratch);
}

static void mask(swl_engine *e, swl_request *r)
{
    swl_constraint_mask(r, e->mask);
    for (int32_t i = 0; i < e->n_tokens; i++)
        if (!(e->mask[i / 32] >> i % 32 & 1))
            e->row[i] = -INFINITY;
}

int32_t swl_next_token(swl_engine *e, swl_request *r, const float *logits)
{
    bool changed = changes(r);
    int32_t id;

    if (r->forced_at < r->n_forced)
        return r->forced[r->forced_at++];
    if (changed) {
        copy(e, logits);
        change(e, r);
    }
    id = draw(e, r, changed ? e->row : logits);
    if (!r->state || (id >= 0 && swl_constraint_allows(r, id)))
        return id;
    if (!changed)
        copy(e, logits);
    mask(e, r);
    return draw(e, r, e->row);
}

/* ---- forced tokens ---- */

static void force(swl_engine *e, swl_request *r, const char *text)
{
    int32_t *ids;
    int64_t n;

    if (swl_tokenizer_encode(e->tokenizer, text, strlen(text), 0, &ids, &n, NULL))
        return;
    r->n_forced = r->forced_at = 0;
    for (int64_t i = 0; i < n && i < SWL_FORCED_MAX; i++)
        r->forced[r->n_forced++] = ids[i];
    swl_free(ids);
}

/* Templates write a newline before the tag; where the reasoning just made one, that is it. */
static bool at_line_start(const swl_engine *e, const swl_request *r)
{
    const char *bytes;
    int32_t n = 0;

    if (!r->n_out)
        return r->prompt.start == SWL_ANSWER_START_REASONING;
    bytes = swl_tokenizer_token(e->tokenizer, r->out[r->n_out - 1], &n);
    return bytes && n && bytes[n - 1] == '\n';
}

void swl_force_answer(swl_engine *e, swl_request *r)
{
    if (e->id_think_end < 0 || r->closing)
        return;
    r->closing = true;
    force(e, r, at_line_start(e, r) ? "</think>\n\n" : "\n</think>\n\n");
}

void swl_force_gap(swl_engine *e, swl_request *r)
{
    if (r->forced_at == r->n_forced)
        force(e, r, "\n\n");
}
