/*
 * moe.c: the sparse feed-forward block: route, lease the experts, run them on the rows that chose them, add up. Experts
 * are visited in ascending order in waves that fit the store and the pair buffers, one computed while the next is read; a
 * row's sum runs over its experts in ascending order and then the shared expert, whatever the waves are, so the result
 * does not depend on them.
 *
 *   l = router x; top K of l (larger first, then lower index); w = softmax over the chosen (norm_topk_prob) or over all
 *   y = sum_e w_e expert_e(x) + sigmoid(shared_gate x) shared(x)
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "model/model.h"

enum { LANES = 16, BLOCK = 256 }; /* logits that are looked at together */

/* A bound that k of n logits reach at least: the least of as many lanes' largest. NaN is below all. */
static float top_k_bound(const float *logits, int32_t n, int32_t k)
{
    float most[LANES], bound;
    int32_t lanes = LANES, i, j;

    for (j = 0; j < LANES; j++)
        most[j] = -INFINITY;
    for (i = 0; i + LANES <= n && k <= LANES; i += LANES)
        for (j = 0; j < LANES; j++)
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (; lanes / 2 >= k; lanes /= 2)
        for (j = 0; j < lanes / 2; j++)
            most[j] = most[j + lanes / 2] > most[j] ? most[j + lanes / 2] : most[j];
    for (bound = most[0], j = 1; j < lanes; j++)
        bound = most[j] < bound ? most[j] : bound;
    return bound;
}

/* Puts i where it belongs among the k best so far. */
static void rank(const float *logits, int32_t i, int32_t k, int32_t *n_out, int32_t *out)
{
    int32_t j;

    if (*n_out == k && !(logits[i] > logits[out[k - 1]]))
        return;
    for (j = *n_out < k ? (*n_out)++ : k - 1; j > 0 && logits[i] > logits[out[j - 1]]; j--)
        out[j] = out[j - 1];
    out[j] = i;
}

/* The k largest of n logits in rank order; equal values: lower index first. Those that reach the bound are listed
 * first, a block at a time and without branches: there are few, and no processor guesses where. */
static void top_k(const float *logits, int32_t n, int32_t k, int32_t *out)
{
    float bound = top_k_bound(logits, n, k);
    int32_t reach[BLOCK], first, i, n_reach, n_out = 0;

    for (first = 0; first < n; first += BLOCK) {
        for (n_reach = 0, i = first; i < n && i < first + BLOCK; i++) {
            reach[n_reach] = i;
            n_reach += !(logits[i] < bound);
        }
        for (i = 0; i < n_reach; i++)
            rank(logits, reach[i], k, &n_out, out);
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
    m->work.shared_w[row] = swl_sigmoid(logits[c->n_experts]);
}

/* Counting sort of (row, rank) by expert: pair_tok and pair_w in expert order, rows ascending within an expert. */
static void sort_pairs(struct swl_model *m)
{
    swl_work *w = &m->work;
    int32_t n_experts = m->config->n_experts, k = m->config->n_experts_used, *first = w->expert_first, i, e;

    memset(first, 0, ((size_t)n_experts + 1) * sizeof *first);
    for (i = 0; i < w->n_rows * k; i++)
        first[w->topk[i] + 1]++;
    for (e = 0; e < n_experts; e++)
        first[e + 1] += first[e];
    for (i = 0; i < w->n_rows * k; i++) {
        int32_t at = first[w->topk[i]]++;

        w->pair_tok[at] = i / k;
        w->pair_w[at] = w->topk_w[i];
    }
    for (e = n_experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
}

/* Lists the experts that have rows and tells the store. Returns how many. */
static int32_t announce(struct swl_model *m, int32_t layer)
{
    swl_work *w = &m->work;
    int32_t e, n = 0;

    for (e = 0; e < m->config->n_experts; e++)
        if (w->expert_first[e + 1] > w->expert_first[e]) {
            w->chosen[n] = e;
            w->chosen_rows[n++] = w->expert_first[e + 1] - w->expert_first[e];
        }
    swl_store_announce(m->store, layer, w->chosen, w->chosen_rows, n, w->n_rows);
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

/* Expert i of a wave. Pairs start after the shared expert's, in expert order. */
static swl_ffn_unit expert_unit(const struct swl_model *m, int32_t layer, const swl_wave *v, int32_t i)
{
    const swl_work *w = &m->work;
    int32_t first = w->expert_first[v->experts[i]];
    swl_ffn_unit u = {.tok = w->pair_tok + first,
                      .weight = w->pair_w + first,
                      .n = w->expert_first[v->experts[i] + 1] - first,
                      .pair0 = w->n_rows + first - w->expert_first[v->experts[0]]};

    swl_expert_matrix(m->ck, layer, SWL_PROJ_GATE, v->leases[i].data, &u.w.gate);
    swl_expert_matrix(m->ck, layer, SWL_PROJ_UP, v->leases[i].data, &u.w.up);
    swl_expert_matrix(m->ck, layer, SWL_PROJ_DOWN, v->leases[i].data, &u.w.down);
    return u;
}

static swl_ffn_unit shared_unit(const struct swl_model *m, int32_t layer)
{
    return (swl_ffn_unit){.w = m->weights.layers[layer].ffn, .weight = m->work.shared_w, .n = m->work.n_rows};
}

/* Those of a wave that are ready and have not been taken; returns how many. */
static int32_t take_ready(struct swl_model *m, int32_t layer, swl_wave *v, swl_ffn_unit *units)
{
    int32_t i, n = 0;

    for (i = 0; i < v->n; i++)
        if (!v->done[i] && v->leases[i].ready) {
            v->done[i] = true;
            units[n++] = expert_unit(m, layer, v, i);
        }
    v->n_done += n;
    return n;
}

/* The shared expert (with the first wave) and hits at once, the others as they arrive. Each has pairs of its own, so the order
 * does not matter. Of many rows, what follows gate and up waits for add_wave. */
static swl_status compute_wave(struct swl_model *m, int32_t layer, swl_wave *v, bool first, swl_error *err)
{
    swl_work *w = &m->work;
    swl_status st;
    int32_t n = 0;

    if (first)
        w->units[n++] = shared_unit(m, layer);
    n += take_ready(m, layer, v, w->units + n);
    for (;;) {
        if (n && w->n_rows > SWL_FEW_ROWS)
            swl_ffn_gate_up(m, w->units, n, &w->norm);
        else if (n)
            swl_ffn_run(m, w->units, n, &w->norm, w->pair_y, m->config->hidden);
        if (v->n_done == v->n)
            return SWL_OK;
        swl_phase_enter(m, SWL_PHASE_WAITING);
        st = swl_store_wait_any(m->store, layer, v->leases, v->n, err);
        swl_phase_enter(m, SWL_PHASE_EXPERTS);
        if (st)
            return st;
        n = take_ready(m, layer, v, w->units);
    }
}

/* ---- adding up ------------------------------------------------------------------------------------------------------ */

enum { COMBINE_COLUMNS = 256 };

typedef struct combine_run {
    struct swl_model *m;
    int32_t n_units;
    bool clear;
} combine_run;

static void combine_job(void *arg, int32_t i, int32_t worker)
{
    const combine_run *r = arg;
    struct swl_model *m = r->m;
    swl_work *w = &m->work;
    int32_t hidden = m->config->hidden, col = i * COMBINE_COLUMNS, u, p;
    int32_t n = hidden - col < COMBINE_COLUMNS ? hidden - col : COMBINE_COLUMNS;
    float *y = w->y + col;

    (void)worker;
    for (p = 0; r->clear && p < w->n_rows; p++)
        memset(y + p * w->ldy, 0, (size_t)n * sizeof *y);
    for (u = 0; u < r->n_units; u++) {
        const swl_ffn_unit *unit = &w->units[u];

        for (p = 0; p < unit->n; p++)
            m->k.axpy(y + (unit->tok ? unit->tok[p] : p) * w->ldy, unit->weight[p],
                      w->pair_y + (int64_t)(unit->pair0 + p) * hidden + col, n);
    }
}

/* The experts of a wave in ascending order, after the last one the shared expert. */
static void add_wave(struct swl_model *m, int32_t layer, const swl_wave *v, bool first, bool last)
{
    swl_work *w = &m->work;
    combine_run r = {.m = m, .clear = first};

    for (r.n_units = 0; r.n_units < v->n; r.n_units++)
        w->units[r.n_units] = expert_unit(m, layer, v, r.n_units);
    if (last)
        w->units[r.n_units++] = shared_unit(m, layer);
    if (w->n_rows > SWL_FEW_ROWS)
        swl_ffn_down_add(m, w->units, r.n_units, first ? w->n_rows : 0);
    else
        swl_threads_run(m->threads, (m->config->hidden + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS, combine_job, &r);
}

/* Waves are computed in ascending order; the next one is leased, and so read, while this one is computed, unless there is
 * only room for one. */
static swl_status run_waves(struct swl_model *m, int32_t layer, int32_t n_chosen, swl_error *err)
{
    swl_wave *now = &m->work.waves[0], *ahead = &m->work.waves[1], *t;
    bool stream = m->work.n_rows > 1, first = true, last = false;
    int32_t next = 0;
    swl_status st = SWL_OK;

    now->n = ahead->n = 0;
    while (!st && !last) {
        if (!now->n)
            st = start_wave(m, layer, now, next, n_chosen, stream, err);
        next += now->n;
        last = next == n_chosen;
        ahead->n = 0;
        if (!st && !last)
            start_wave(m, layer, ahead, next, n_chosen, stream, NULL); /* no room yet: it stays empty, and its turn comes */
        if (!st && swl_cancelled(m))
            st = swl_fail(err, SWL_E_CANCELLED, "stopped in layer %d", layer);
        if (!st && m->passes == SWL_PASSES_READ)
            st = swl_store_wait(m->store, layer, now->leases, now->n, err);
        else if (!st)
            st = compute_wave(m, layer, now, first, err);
        if (!st && m->passes != SWL_PASSES_READ)
            add_wave(m, layer, now, first, last);
        swl_store_release(m->store, layer, now->leases, now->n);
        first = false;
        t = now;
        now = ahead;
        ahead = t;
    }
    if (st)
        swl_store_release(m->store, layer, now->leases, now->n);
    return st;
}

swl_status swl_moe_forward(struct swl_model *m, int32_t layer, swl_error *err)
{
    const swl_layer *l = &m->weights.layers[layer];
    int32_t n_rows = m->work.n_rows, n_chosen;
    swl_status st;

    swl_phase_enter(m, SWL_PHASE_ROUTER);
    swl_group_run(m, &l->router, &m->work.norm, n_rows, m->work.router, m->config->n_experts + 1);
    swl_rows_run(m, n_rows, route_job, m);
    st = swl_routes_apply(m, layer, n_rows, err);
    if (st)
        return st;
    sort_pairs(m);
    n_chosen = announce(m, layer);
    swl_profile_experts(m, n_chosen, n_rows * m->config->n_experts_used);
    swl_phase_enter(m, SWL_PHASE_EXPERTS);
    st = run_waves(m, layer, n_chosen, err);
    swl_phase_enter(m, SWL_PHASE_OTHER);
    return st;
}

swl_status swl_moe_read(struct swl_model *m, int32_t layer, swl_error *err)
{
    swl_status st = swl_routes_apply(m, layer, m->work.n_rows, err);

    if (st)
        return st;
    sort_pairs(m);
    return run_waves(m, layer, announce(m, layer), err);
}

/* ---- guessing ------------------------------------------------------------------------------------------------------- */

/* Rows of a prompt whose experts are guessed, evenly spread: what these use most, the others use too. */
enum { GUESS_ROWS = 256 };

static const float *spread_rows(struct swl_model *m, int32_t step, int32_t n)
{
    swl_work *w = &m->work;
    int64_t hidden = m->config->hidden;
    int32_t i;

    for (i = 0; step > 1 && i < n; i++)
        memcpy(w->y + i * hidden, w->x + i * step * hidden, (size_t)hidden * sizeof(float));
    return step > 1 ? w->y : w->x;
}

/* Lists the experts that are guessed for so many rows that one of them at least is right, even if one guess in five is wrong
 * and these fall on all experts alike; ascending, as they will be wanted. Returns how many. */
static int32_t sure_experts(struct swl_model *m, int32_t n_rows)
{
    swl_work *w = &m->work;
    int32_t n_experts = m->config->n_experts, n_pairs = n_rows * m->config->n_experts_used, i, n = 0;
    int32_t least = 2 + 2 * n_pairs / (5 * n_experts);

    memset(w->chosen_rows, 0, (size_t)n_experts * sizeof *w->chosen_rows);
    for (i = 0; i < n_pairs; i++)
        w->chosen_rows[w->topk[i]]++;
    for (i = 0; i < n_experts; i++)
        if (w->chosen_rows[i] >= least)
            w->chosen[n++] = i;
    return n;
}

/* The router of the next layer, applied to what this layer leaves: most of its experts are named so, and of those that are not
 * in memory a token's likeliest, or those that a prompt is sure to use, can be read while the next mixer computes. */
void swl_moe_guess(struct swl_model *m, int32_t layer)
{
    const swl_layer *l = &m->weights.layers[layer];
    swl_work *w = &m->work;
    int32_t step = (w->n_rows + GUESS_ROWS - 1) / GUESS_ROWS, n = (w->n_rows + step - 1) / step;

    swl_phase_enter(m, SWL_PHASE_ROUTER);
    swl_norm_rows(m, &w->norm, spread_rows(m, step, n), l->norm_post, n);
    swl_group_run(m, &l->router, &w->norm, n, w->router, m->config->n_experts + 1);
    swl_rows_run(m, n, route_job, m);
    if (m->override.log || m->override.routes != SWL_ROUTES_MODEL)
        swl_routes_guess(m, layer, step);
    swl_phase_enter(m, SWL_PHASE_OTHER);
    if (w->n_rows == 1)
        swl_store_prefetch(m->store, layer, w->topk, m->config->n_experts_used, m->lookahead, SWL_LEASE_ALL);
    else
        swl_store_prefetch(m->store, layer, w->chosen, sure_experts(m, n), m->config->n_experts, SWL_LEASE_STREAM);
}
