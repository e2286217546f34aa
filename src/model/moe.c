/*
 * moe.c: the sparse feed-forward block: route, lease the experts, run them on the rows that chose them, add up. Experts
 * are visited in ascending order in waves that fit the pool and the pair buffers; a row's sum runs over its experts in
 * ascending order and then the shared expert, whatever the waves are, so the result does not depend on them.
 *
 *   l = router x; top K of l (larger first, then lower index); w = softmax over the chosen (norm_topk_prob) or over all
 *   y = sum_e w_e expert_e(x) + sigmoid(shared_gate x) shared(x)
 */
#include <string.h>

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

/* Experts from `e` on that have rows, as many as fit; returns the first expert after them. */
static int32_t next_wave(struct swl_model *m, int32_t e, int32_t *n_wave)
{
    swl_work *w = &m->work;
    int32_t slots = swl_store_slots(m->store), n_pairs = 0, n = 0;

    for (; e < m->config->n_experts; e++) {
        int32_t count = w->expert_first[e + 1] - w->expert_first[e];

        if (!count)
            continue;
        if (n == slots || n_pairs + count > w->n_pairs_max)
            break;
        w->wave_done[n] = false;
        w->wave[n++] = e;
        n_pairs += count;
    }
    *n_wave = n;
    return e;
}

/* Pair rows of a wave start after the shared expert's, in expert order. */
static int32_t pair_row(const struct swl_model *m, int32_t expert)
{
    return m->work.n_rows_max + m->work.expert_first[expert] - m->work.expert_first[m->work.wave[0]];
}

/* A unit for every expert of the wave that is ready and has none yet; returns how many. */
static int32_t make_units(struct swl_model *m, int32_t layer, int32_t n_wave, swl_ffn_unit *units)
{
    swl_work *w = &m->work;
    int32_t i, n = 0;

    for (i = 0; i < n_wave; i++) {
        int32_t e = w->wave[i];
        swl_ffn_unit *u = &units[n];

        if (w->wave_done[i] || !w->leases[i].ready)
            continue;
        w->wave_done[i] = true;
        swl_expert_matrix(m->ck, layer, SWL_PROJ_GATE, w->leases[i].data, &u->w.gate);
        swl_expert_matrix(m->ck, layer, SWL_PROJ_UP, w->leases[i].data, &u->w.up);
        swl_expert_matrix(m->ck, layer, SWL_PROJ_DOWN, w->leases[i].data, &u->w.down);
        u->tok = w->pair_tok + w->expert_first[e];
        u->n = w->expert_first[e + 1] - w->expert_first[e];
        u->pair0 = pair_row(m, e);
        n++;
    }
    return n;
}

/* Hits (and in the first wave the shared expert) are computed while misses load. */
static swl_status run_wave(struct swl_model *m, int32_t layer, int32_t n_rows, int32_t n_wave, bool with_shared,
                           swl_error *err)
{
    swl_work *w = &m->work;
    int32_t n = 0;
    swl_status st = swl_store_lease(m->store, layer, w->wave, n_wave, w->leases, err);

    if (st)
        return st;
    if (with_shared)
        w->units[n++] = (swl_ffn_unit){.w = m->weights.layers[layer].ffn, .n = n_rows};
    n += make_units(m, layer, n_wave, w->units + n);
    if (n)
        swl_ffn_run(m, w->units, n, &w->norm);
    st = swl_store_wait(m->store, layer, w->leases, n_wave, err);
    if (!st && (n = make_units(m, layer, n_wave, w->units)))
        swl_ffn_run(m, w->units, n, &w->norm);
    swl_store_release(m->store, layer, w->leases, n_wave);
    return st;
}

/* ---- adding up ------------------------------------------------------------------------------------------------------ */

enum { COMBINE_COLUMNS = 256 };

typedef struct combine_run {
    struct swl_model *m;
    int32_t n_wave, n_rows;
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
    for (e = 0; e < r->n_wave; e++) {
        int32_t p0 = w->expert_first[w->wave[e]], p1 = w->expert_first[w->wave[e] + 1];
        int64_t y0 = pair_row(m, w->wave[e]);

        for (p = p0; p < p1; p++)
            m->k.axpy(w->y + (int64_t)w->pair_tok[p] * hidden + col, w->pair_w[p],
                      w->pair_y + (y0 + p - p0) * hidden + col, n);
    }
    for (row = 0; r->last && row < r->n_rows; row++)
        m->k.axpy(w->y + (int64_t)row * hidden + col,
                  swl_sigmoid(w->router[(int64_t)row * (n_experts + 1) + n_experts]),
                  w->pair_y + (int64_t)row * hidden + col, n);
}

swl_status swl_moe_forward(struct swl_model *m, int32_t layer, int32_t n_rows, swl_error *err)
{
    const swl_layer *l = &m->weights.layers[layer];
    combine_run r = {.m = m, .n_rows = n_rows, .first = true};
    int32_t e = 0, n_experts = m->config->n_experts;
    swl_status st;

    swl_group_run(m, &l->router, &m->work.norm, n_rows, m->work.router, n_experts + 1);
    swl_threads_run(m->threads, n_rows, route_job, m);
    sort_pairs(m, n_rows);
    while (!r.last) {
        e = next_wave(m, e, &r.n_wave);
        r.last = m->work.expert_first[e] == n_rows * m->config->n_experts_used;
        st = run_wave(m, layer, n_rows, r.n_wave, r.first, err);
        if (st)
            return st;
        swl_threads_run(m->threads, (m->config->hidden + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS, combine_job, &r);
        r.first = false;
    }
    return SWL_OK;
}
