/*
 * profile.c: what forward passes moved, multiplied and took. Counting costs a few additions a layer and always runs; the
 * clock is read between phases only when that was asked for.
 */
#define _GNU_SOURCE
#include <string.h>

#include "base/clock.h"
#include "model/model.h"

const char *swl_phase_name(swl_phase phase)
{
    static const char *const names[] = {"other", "projections", "delta", "attention", "router", "experts", "head", "waiting"};

    return phase >= 0 && phase < SWL_PHASE_COUNT ? names[phase] : "";
}

void swl_phase_switch(struct swl_model *m, swl_phase phase)
{
    swl_profiler *p = &m->profiler;
    uint64_t now = swl_nanoseconds();

    p->sums.phase_ns[p->phase] += now - p->phase_begin;
    p->phase = phase;
    p->phase_begin = now;
}

/* ---- what one use of the weights amounts to ------------------------------------------------------------------------- */

static uint64_t rows_bytes(const swl_matrix *w, int64_t rows)
{
    uint64_t n = (uint64_t)swl_matrix_row_bytes(w);

    if (w->group)
        n += 2 * (uint64_t)(w->cols / w->group) * (uint64_t)swl_dtype_size(w->sdtype);
    return n * (uint64_t)rows;
}

static void add_rows(const swl_matrix *w, int64_t rows, uint64_t *bytes, uint64_t *macs)
{
    *bytes += rows_bytes(w, rows);
    *macs += (uint64_t)rows * (uint64_t)w->cols;
}

static void add_group(const swl_group *g, uint64_t *bytes, uint64_t *macs)
{
    for (int32_t i = 0; i < g->n_pieces; i++)
        add_rows(&g->pieces[i].w, g->pieces[i].n_rows, bytes, macs);
}

static void add_ffn(const swl_ffn_weights *f, uint64_t *bytes, uint64_t *macs)
{
    add_rows(&f->gate, f->gate.rows, bytes, macs);
    add_rows(&f->up, f->up.rows, bytes, macs);
    add_rows(&f->down, f->down.rows, bytes, macs);
}

static void measure_weights(struct swl_model *m)
{
    swl_profiler *p = &m->profiler;
    const swl_layer *l = NULL;

    for (int32_t i = 0; i < m->config->n_layers; i++) {
        l = &m->weights.layers[i];
        add_group(&l->in, &p->dense_bytes, &p->dense_macs);
        add_group(&l->out, &p->dense_bytes, &p->dense_macs);
        add_group(&l->router, &p->dense_bytes, &p->dense_macs);
        add_ffn(&l->ffn, &p->dense_bytes, &p->dense_macs);
        if (l->plan.ffn == SWL_FFN_MOE && !p->expert_bytes) {
            swl_ffn_weights e;

            swl_expert_matrix(m->ck, i, SWL_PROJ_GATE, NULL, &e.gate);
            swl_expert_matrix(m->ck, i, SWL_PROJ_UP, NULL, &e.up);
            swl_expert_matrix(m->ck, i, SWL_PROJ_DOWN, NULL, &e.down);
            add_ffn(&e, &p->expert_bytes, &p->expert_macs);
        }
    }
    if (l->plan.mixer == SWL_MIXER_ATTENTION) {
        add_rows(&l->in.pieces[0].w, l->in.pieces[0].n_rows, &p->query_bytes, &p->query_macs);
        add_group(&l->out, &p->query_bytes, &p->query_macs);
    }
    add_group(&l->router, &p->last_bytes, &p->last_macs);
    add_ffn(&l->ffn, &p->last_bytes, &p->last_macs);
    add_group(&m->weights.head, &p->head_bytes, &p->head_macs);
}

/* ---- counting --------------------------------------------------------------------------------------------------------- */

static uint64_t store_wait_ns(struct swl_model *m)
{
    swl_store_stats s = {0};

    if (m->store)
        swl_store_stats_get(m->store, &s);
    return s.wait_ns;
}

void swl_profile_start(swl_model *m, bool phases)
{
    pthread_mutex_lock(&m->lock);
    memset(&m->profiler, 0, sizeof m->profiler);
    m->profiler.phases = phases;
    m->profiler.wait_ns_begin = store_wait_ns(m);
    measure_weights(m);
    pthread_mutex_unlock(&m->lock);
}

void swl_profile_get(swl_model *m, swl_profile *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->profiler.sums;
    out->wait_ns = store_wait_ns(m) - m->profiler.wait_ns_begin;
    pthread_mutex_unlock(&m->lock);
}

void swl_profile_experts(struct swl_model *m, int32_t n_experts, int32_t n_pairs)
{
    m->profiler.sums.expert_bytes += (uint64_t)n_experts * m->profiler.expert_bytes;
    m->profiler.sums.multiply_adds += (uint64_t)n_pairs * m->profiler.expert_macs;
}

void swl_profile_pass_begin(struct swl_model *m)
{
    m->profiler.phase = SWL_PHASE_OTHER;
    m->profiler.pass_begin = m->profiler.phase_begin = swl_nanoseconds();
}

static int32_t count_wanted(const swl_batch_item *item)
{
    int32_t i, n = 0;

    for (i = 0; item->want && i < item->n; i++)
        n += item->want[i];
    return n;
}

/* The items' states have advanced by now. */
void swl_profile_pass_end(struct swl_model *m, const swl_batch_item *items, int32_t n_items)
{
    swl_profiler *p = &m->profiler;
    int32_t i, n_wanted = 0, n_rows = 0, n_last, n_keys;

    swl_phase_enter(m, SWL_PHASE_OTHER);
    for (i = 0; i < n_items; i++) {
        n_rows += items[i].n;
        n_wanted += count_wanted(&items[i]);
        p->sums.state_bytes += 2 * (items[i].state->conv_bytes + items[i].state->delta_bytes);
        p->sums.kv_bytes += (uint64_t)items[i].state->n_tokens * swl_kv_token_bytes(m);
    }
    p->sums.n_passes++;
    p->sums.n_tokens += (uint64_t)n_rows;
    n_last = m->work.narrow < m->config->n_layers ? n_wanted : n_rows;
    n_keys = m->work.n_keys_rows;
    p->sums.dense_bytes += p->dense_bytes - (n_last ? 0 : p->last_bytes) - (n_keys < n_rows ? 0 : p->query_bytes) +
                           (n_wanted ? p->head_bytes : 0);
    p->sums.multiply_adds += (uint64_t)n_rows * p->dense_macs - (uint64_t)(n_rows - n_last) * p->last_macs -
                             (uint64_t)n_keys * p->query_macs + (uint64_t)n_wanted * p->head_macs;
    p->sums.ns += swl_nanoseconds() - p->pass_begin;
}
