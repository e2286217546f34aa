/*
 * moe.c: the sparse feed-forward block: route, lease the experts, run them on the rows that chose them, add up. Experts
 * are visited in ascending order in waves that fit the store and the pair buffers, one computed while the next is read; a
 * row's sum runs over its experts in ascending order and then the shared expert, whatever the waves are, so the result
 * does not depend on them.
 *
 *   l = router x; top K of l (larger first, then lower index); w = softmax over the chosen (norm_topk_prob) or over all
 *   y = sum_e w_e expert_e(x) + sigmoid(shared_gate x) shared(x)
 */
#include <string.h>

#include "base/status.h"
#include "model/model.h"

/* The k largest of n logits in rank order; equal values: lower index first. */
static void top_k(const float *logits, int32_t n, int32_t k, int32_t *out)
{
    int32_t i, j, n_out = 0;

    for (i = 0; i < n; i++) {
        if (n_out == k && !(logits[i] > logits[out[k - 1]]))
            continue;
        for (j = n_out < k ? n_out++ : k - 1; j > 0 && logits[i] > logits[out[j - 1]]; j--)
            out[j] = out[j - 1];
        out[j] = i;
    }
}

static void route_job(void *arg, int32_t row, int32_t worker)
{
    struct swl_model *m = arg;
    const swl_config *c = m->config;
    const float *logits = m->work.router + (int64_t)row * (c->n_experts + 1);
    int32_t k = c->n_experts_used, i, *ids = m->work.topk + (int64_t)row * k;
    float *w = m->work.topk_w + (int64_t)row * k, sum = 0.0f;

    top_k(logits, c->n_experts, k, ids);
    for (i = 0; i < k; i++) {
        w[i] = swl_exp(logits[ids[i]] - logits[ids[0]]);
        sum += w[i];
    }
    if (!c->norm_topk)
        sum = m->k.softmax_exp(m->scratch + worker * m->scratch_floats, logits, c->n_experts);
    for (i = 0; i < k; i++)
        w[i] /= sum;
}

/* Counting sort of (row, rank) by expert: pair_tok and pair_w in expert order, rows ascending within an expert. */
static void sort_pairs(struct swl_model *m, int32_t n_rows)
{
    swl_work *w = &m->work;
    int32_t n_experts = m->config->n_experts, k = m->config->n_experts_used, *first = w->expert_first, i, e;

    memset(first, 0, ((size_t)n_experts + 1) * sizeof *first);
    for (i = 0; i < n_rows * k; i++)
        first[w->topk[i] + 1]++;
    for (e = 0; e < n_experts; e++)
        first[e + 1] += first[e];
    for (i = 0; i < n_rows * k; i++) {
        int32_t at = first[w->topk[i]]++;

        w->pair_tok[at] = i / k;
        w->pair_w[at] = w->topk_w[i];
    }
    for (e = n_experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
}

/* Lists the experts that have rows and tells the store. Returns how many. */
static int32_t announce(struct swl_model *m, int32_t layer, int32_t n_rows)
{
    swl_work *w = &m->work;
    int32_t e, n = 0;

    for (e = 0; e < m->config->n_experts; e++)
        if (w->expert_first[e + 1] > w->expert_first[e]) {
            w->chosen[n] = e;
            w->chosen_rows[n++] = w->expert_first[e + 1] - w->expert_first[e];
        }
    swl_store_announce(m->store, layer, w->chosen, w->chosen_rows, n, n_rows);
    return n;
}

/* Leases the next experts of the list, as many as the pair buffers and the store have room for. */
static swl_status start_wave(struct swl_model *m, int32_t layer, swl_wave *v, int32_t next, int32_t n_chosen, bool stream,
                             swl_error *err)
{
    swl_work *w = &m->work;
    int32_t n = 0, n_pairs = 0;

    while (next + n < n_chosen && n_pairs + w->chosen_rows[next + n] <= w->n_pairs_max) {
        n_pairs += w->chosen_rows[next + n];
        v->done[n++] = false;
    }
    v->experts = w->chosen + next;
    v->n_done = 0;
    return swl_store_lease(m->store, layer, v->experts, n, stream ? SWL_LEASE_STREAM : SWL_LEASE_ALL, v->leases, &v->n,
                           err);
}

/* Pair rows of a wave start after the shared expert's, in expert order. */
static int32_t pair_row(const struct swl_model *m, const swl_wave *v, int32_t expert)
{
    return m->work.n_rows_max + m->work.expert_first[expert] - m->work.expert_first[v->experts[0]];
}

/* A unit for every expert of the wave that is ready and has none yet; returns how many. */
static int32_t make_units(struct swl_model *m, int32_t layer, swl_wave *v, swl_ffn_unit *units)
{
    swl_work *w = &m->work;
    int32_t i, n = 0;

    for (i = 0; i < v->n; i++) {
        int32_t e = v->experts[i];
        swl_ffn_unit *u = &units[n];

        if (v->done[i] || !v->leases[i].ready)
            continue;
        v->done[i] = true;
        swl_expert_matrix(m->ck, layer, SWL_PROJ_GATE, v->leases[i].data, &u->w.gate);
        swl_expert_matrix(m->ck, layer, SWL_PROJ_UP, v->leases[i].data, &u->w.up);
        swl_expert_matrix(m->ck, layer, SWL_PROJ_DOWN, v->leases[i].data, &u->w.down);
        u->tok = w->pair_tok + w->expert_first[e];
        u->n = w->expert_first[e + 1] - w->expert_first[e];
        u->pair0 = pair_row(m, v, e);
        n++;
    }
    v->n_done += n;
    return n;
}

/* The shared expert (with the first wave) and hits at once, the others as they arrive. Each has rows of its own in the pair
 * buffers, so the order does not matter. */
static swl_status compute_wave(struct swl_model *m, int32_t layer, int32_t n_rows, swl_wave *v, bool with_shared,
                               swl_error *err)
{
    swl_work *w = &m->work;
    swl_status st;
    int32_t n = 0;

    if (with_shared)
        w->units[n++] = (swl_ffn_unit){.w = m->weights.layers[layer].ffn, .n = n_rows};
    n += make_units(m, layer, v, w->units + n);
    for (;;) {
        if (n)
            swl_ffn_run(m, w->units, n, &w->norm);
        if (v->n_done == v->n)
            return SWL_OK;
        swl_phase_enter(m, SWL_PHASE_WAITING);
        st = swl_store_wait_any(m->store, layer, v->leases, v->n, err);
        swl_phase_enter(m, SWL_PHASE_EXPERTS);
        if (st)
            return st;
        n = make_units(m, layer, v, w->units);
    }
}

/* ---- adding up ------------------------------------------------------------------------------------------------------ */

enum { COMBINE_COLUMNS = 256 };

typedef struct combine_run {
    struct swl_model *m;
    const swl_wave *wave;
    int32_t n_rows;
    bool first, last;          /* wave: clear before, shared expert after */
} combine_run;

static void combine_job(void *arg, int32_t i, int32_t worker)
{
    const combine_run *r = arg;
    struct swl_model *m = r->m;
    swl_work *w = &m->work;
    int32_t hidden = m->config->hidden, n_experts = m->config->n_experts, col = i * COMBINE_COLUMNS, e, p, row;
    int32_t n = hidden - col < COMBINE_COLUMNS ? hidden - col : COMBINE_COLUMNS;

    (void)worker;
    for (row = 0; r->first && row < r->n_rows; row++)
        memset(w->y + (int64_t)row * hidden + col, 0, (size_t)n * sizeof(float));
    for (e = 0; e < r->wave->n; e++) {
        int32_t id = r->wave->experts[e], p0 = w->expert_first[id], p1 = w->expert_first[id + 1];
        int64_t y0 = pair_row(m, r->wave, id);

        for (p = p0; p < p1; p++)
            m->k.axpy(w->y + (int64_t)w->pair_tok[p] * hidden + col, w->pair_w[p],
                      w->pair_y + (y0 + p - p0) * hidden + col, n);
    }
    for (row = 0; r->last && row < r->n_rows; row++)
        m->k.axpy(w->y + (int64_t)row * hidden + col,
                  swl_sigmoid(w->router[(int64_t)row * (n_experts + 1) + n_experts]),
                  w->pair_y + (int64_t)row * hidden + col, n);
}

/* Waves are computed in ascending order; the next one is leased, and so read, while this one is computed, unless there is
 * only room for one. */
static swl_status run_waves(struct swl_model *m, int32_t layer, int32_t n_rows, int32_t n_chosen, swl_error *err)
{
    combine_run r = {.m = m, .n_rows = n_rows, .first = true};
    swl_wave *now = &m->work.waves[0], *ahead = &m->work.waves[1], *t;
    bool stream = n_rows > 1;
    int32_t next = 0;
    swl_status st = SWL_OK;

    now->n = ahead->n = 0;
    while (!st && !r.last) {
        if (!now->n)
            st = start_wave(m, layer, now, next, n_chosen, stream, err);
        next += now->n;
        r.last = next == n_chosen;
        ahead->n = 0;
        if (!st && !r.last)
            start_wave(m, layer, ahead, next, n_chosen, stream, NULL); /* no room yet: it stays empty, and its turn comes */
        if (!st && swl_cancelled(m))
            st = swl_fail(err, SWL_E_CANCELLED, "stopped in layer %d", layer);
        if (!st && m->passes == SWL_PASSES_READ)
            st = swl_store_wait(m->store, layer, now->leases, now->n, err);
        else if (!st)
            st = compute_wave(m, layer, n_rows, now, r.first, err);
        if (!st && m->passes != SWL_PASSES_READ) {
            r.wave = now;
            swl_threads_run(m->threads, (m->config->hidden + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS, combine_job, &r);
        }
        swl_store_release(m->store, layer, now->leases, now->n);
        r.first = false;
        t = now;
        now = ahead;
        ahead = t;
    }
    if (st)
        swl_store_release(m->store, layer, now->leases, now->n);
    return st;
}

swl_status swl_moe_forward(struct swl_model *m, int32_t layer, int32_t n_rows, swl_error *err)
{
    const swl_layer *l = &m->weights.layers[layer];

    int32_t n_chosen;
    swl_status st;

    swl_phase_enter(m, SWL_PHASE_ROUTER);
    swl_group_run(m, &l->router, &m->work.norm, n_rows, m->work.router, m->config->n_experts + 1);
    swl_threads_run(m->threads, n_rows, route_job, m);
    st = swl_routes_apply(m, layer, n_rows, err);
    if (st)
        return st;
    sort_pairs(m, n_rows);
    n_chosen = announce(m, layer, n_rows);
    swl_profile_experts(m, n_chosen, n_rows * m->config->n_experts_used);
    swl_phase_enter(m, SWL_PHASE_EXPERTS);
    st = run_waves(m, layer, n_rows, n_chosen, err);
    swl_phase_enter(m, SWL_PHASE_OTHER);
    return st;
}

swl_status swl_moe_read(struct swl_model *m, int32_t layer, int32_t n_rows, swl_error *err)
{
    swl_status st = swl_routes_apply(m, layer, n_rows, err);

    if (st)
        return st;
    sort_pairs(m, n_rows);
    return run_waves(m, layer, n_rows, announce(m, layer, n_rows), err);
}

/* The router of the next layer, applied to what this layer leaves: most of its experts are named so, and the likeliest of
 * those that are not in memory can be read while the next mixer computes. Only for single tokens: a prompt reads nearly
 * every expert anyway. */
void swl_moe_guess(struct swl_model *m, int32_t layer)
{
    const swl_layer *l = &m->weights.layers[layer];
    swl_work *w = &m->work;
    int32_t n_experts = m->config->n_experts, k = m->config->n_experts_used;

    swl_phase_enter(m, SWL_PHASE_ROUTER);
    swl_norm_rows(m, &w->norm, w->x, l->norm_post, 1);
    swl_group_run(m, &l->router, &w->norm, 1, w->router, n_experts + 1);
    top_k(w->router, n_experts, k, w->topk);
    swl_phase_enter(m, SWL_PHASE_OTHER);
    if (m->override.log || m->override.routes != SWL_ROUTES_MODEL)
        swl_routes_guess(m, layer, w->topk);
    swl_store_prefetch(m->store, layer, w->topk, k, m->lookahead);
}
