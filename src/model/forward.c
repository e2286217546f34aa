/* forward.c: one pass over a batch; reads like the model card. The parts are in the files named after them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/model.h"

static void trace(const swl_trace *t, const char *name, const float *rows, int32_t n, int32_t width)
{
    if (t)
        t->fn(t->arg, name, rows, n, width);
}

static swl_status check_items(const struct swl_model *m, const swl_batch_item *items, int32_t n_items, swl_error *err)
{
    int32_t i, j, n = 0;

    for (i = 0; i < n_items; i++) {
        if (items[i].n < 1 || items[i].n > m->chunk_tokens - n)
            return swl_fail(err, SWL_E_ARG, "batch of more than %d tokens, or an empty item", m->chunk_tokens);
        if (items[i].n > items[i].state->ctx_tokens - items[i].state->n_tokens)
            return swl_fail(err, SWL_E_BUDGET, "the context of %d tokens is full: %d are there, %d more were to come",
                            items[i].state->ctx_tokens, items[i].state->n_tokens, items[i].n);
        for (j = 0; j < items[i].n; j++)
            if (items[i].ids[j] < 0 || items[i].ids[j] >= m->config->vocab)
                return swl_fail(err, SWL_E_ARG, "token id %" PRId32 " is not in 0 to %d", items[i].ids[j],
                                m->config->vocab - 1);
        n += items[i].n;
    }
    return n_items > 0 ? SWL_OK : swl_fail(err, SWL_E_ARG, "empty batch");
}

/* Embedding row, place in its conversation, and rotation of every row. */
static void prepare_rows(struct swl_model *m, const swl_batch_item *items, int32_t n_items)
{
    swl_work *w = &m->work;
    int32_t half = m->config->rotary_dims / 2, i, j, k, row = 0;

    for (i = 0; i < n_items; i++)
        for (j = 0; j < items[i].n; j++, row++) {
            w->state_of[row] = items[i].state;
            w->pos[row] = items[i].state->n_tokens + j;
            swl_matrix_row_f32(&m->weights.embed, items[i].ids[j], w->x + (int64_t)row * m->config->hidden);
            for (k = 0; k < half; k++) {
                float angle = (float)w->pos[row] * m->weights.rope_freq[k];

                w->rope_cos[row * half + k] = (float)cos((double)angle) * m->weights.rope_scale;
                w->rope_sin[row * half + k] = (float)sin((double)angle) * m->weights.rope_scale;
            }
        }
}

/* Which rows' logits are wanted, and from which layer on only they are worked out: the last one, unless somebody looks at all rows
 * on the way. */
static void mark_wanted(struct swl_model *m, const swl_batch_item *items, int32_t n_items, bool traced)
{
    swl_work *w = &m->work;
    int32_t i, j, row = 0;
    bool all = true;

    for (i = 0; i < n_items; i++)
        for (j = 0; j < items[i].n; j++, row++) {
            w->wanted[row] = items[i].want && items[i].want[j];
            all = all && w->wanted[row];
        }
    w->narrow = m->config->n_layers - (!all && !traced && !m->recorder);
    w->n_keys_rows = 0;
}

/* The rows whose logits are wanted move to the front of the residual stream and of what is added to it, and the pass goes on with
 * them alone. */
static void keep_wanted(struct swl_model *m)
{
    swl_work *w = &m->work;
    int64_t hidden = m->config->hidden;
    int32_t row, n = 0;

    for (row = 0; row < w->n_rows; row++) {
        if (!w->wanted[row])
            continue;
        memmove(w->x + n * hidden, w->x + row * hidden, (size_t)hidden * sizeof(float));
        memmove(w->y + n * w->ldy, w->y + row * w->ldy, (size_t)hidden * sizeof(float));
        w->wanted[n++] = true;
    }
    w->n_rows = n;
}

/* Cuts the rows into parts for the mixers, and each part into spans of one conversation. */
static void cut_parts(swl_work *w)
{
    int32_t row, n_spans = 0;

    w->n_parts = 0;
    for (row = 0; row < w->n_rows; row++) {
        swl_batch *part = &w->parts[row / SWL_MIXER_ROWS];

        if (row % SWL_MIXER_ROWS == 0) {
            *part = (swl_batch){.spans = w->spans + n_spans, .row0 = row};
            w->n_parts++;
        }
        if (!part->n_spans || w->state_of[row] != w->spans[n_spans - 1].state) {
            w->spans[n_spans++] = (swl_span){.state = w->state_of[row], .row = row};
            part->n_spans++;
        }
        w->spans[n_spans - 1].n++;
        part->n_rows++;
    }
}

static bool any_wanted(const swl_work *w, const swl_batch *part)
{
    int32_t i;

    for (i = part->row0; i < part->row0 + part->n_rows; i++)
        if (w->wanted[i])
            return true;
    return false;
}

static void mixer_forward(struct swl_model *m, int32_t i, const swl_batch *part)
{
    const swl_layer *l = &m->weights.layers[i];

    if (l->plan.mixer != SWL_MIXER_ATTENTION) {
        swl_deltanet_forward(m, l, part);
    } else if (i < m->work.narrow || any_wanted(&m->work, part)) {
        swl_attention_forward(m, l, part);
    } else {
        swl_attention_keys(m, l, part);
        m->work.n_keys_rows += part->n_rows;
    }
}

static swl_status layer_forward(struct swl_model *m, int32_t i, swl_error *err)
{
    const swl_layer *l = &m->weights.layers[i];
    swl_work *w = &m->work;
    swl_status st = SWL_OK;
    int32_t p;

    swl_norm_rows(m, &w->norm, w->x, l->norm_in, w->n_rows);
    for (p = 0; p < w->n_parts && !swl_cancelled(m); p++)
        mixer_forward(m, i, &w->parts[p]);
    if (i == w->narrow)
        keep_wanted(m);
    swl_add_rows(m, w->n_rows);
    if (!w->n_rows)
        return SWL_OK;

    swl_norm_rows(m, &w->norm, w->x, l->norm_post, w->n_rows);
    if (l->plan.ffn == SWL_FFN_MOE) {
        st = swl_moe_forward(m, i, err);
        if (st)
            return st;
    } else {
        swl_dense_forward(m, l);
    }
    swl_add_rows(m, w->n_rows);
    return SWL_OK;
}

/* Logits of the rows that are wanted. */
static void head_forward(struct swl_model *m, float *logits)
{
    swl_work *w = &m->work;

    keep_wanted(m);
    if (!w->n_rows)
        return;
    swl_phase_enter(m, SWL_PHASE_HEAD);
    swl_norm_rows(m, &w->norm, w->x, m->weights.norm_final, w->n_rows);
    swl_group_run(m, &m->weights.head, &w->norm, w->n_rows, logits, m->config->vocab);
}

static bool guesses(const struct swl_model *m, int32_t layer)
{
    return m->lookahead && m->config->layers[layer].ffn == SWL_FFN_MOE &&
           swl_store_guesses(m->store, layer, m->work.n_rows == 1 ? SWL_LEASE_ALL : SWL_LEASE_STREAM);
}

/* Experts that a drive brings while a mixer computes: for each eight rows one, with 3 GB/s and two cores of AVX-512 (35B shapes).
 * A token needs no more than the stage has of its own. */
static void widen_stage(struct swl_model *m)
{
    if (m->store)
        swl_store_lend(m->store, m->lookahead ? m->work.n_rows / 8 : 0);
}

static int32_t count_rows(const swl_batch_item *items, int32_t n_items)
{
    int32_t i, n = 0;

    for (i = 0; i < n_items; i++)
        n += items[i].n;
    return n;
}

static swl_status read_alone(struct swl_model *m, swl_error *err)
{
    swl_status st = SWL_OK;
    int32_t i;

    for (i = 0; i < m->config->n_layers && !st; i++) {
        if (i == m->work.narrow)
            keep_wanted(m);
        if (m->config->layers[i].ffn == SWL_FFN_MOE && m->work.n_rows)
            st = swl_moe_read(m, i, err);
    }
    return st;
}

static swl_status run(struct swl_model *m, const swl_batch_item *items, int32_t n_items, float *logits,
                      const swl_trace *t, swl_error *err)
{
    swl_work *w = &m->work;
    int32_t hidden = m->config->hidden, i;
    char name[32];
    swl_status st;

    prepare_rows(m, items, n_items);
    cut_parts(w);
    trace(t, "embed", w->x, w->n_rows, hidden);
    for (i = 0; i < m->config->n_layers; i++) {
        st = swl_cancelled(m) ? swl_fail(err, SWL_E_CANCELLED, "stopped in layer %d", i) : layer_forward(m, i, err);
        if (st)
            return st;
        if (i + 1 < w->narrow && guesses(m, i + 1))
            swl_moe_guess(m, i + 1);
        snprintf(name, sizeof name, "layer_%02d", i);
        trace(t, name, w->x, w->n_rows, hidden);
    }
    if (t) {
        swl_norm_rows(m, &w->norm, w->x, m->weights.norm_final, w->n_rows);
        for (i = 0; i < w->n_rows; i++)
            memcpy(w->y + (int64_t)i * hidden, w->norm.x + i * w->norm.ldx, (size_t)hidden * sizeof(float));
        trace(t, "final_norm", w->y, w->n_rows, hidden);
    }
    if (swl_cancelled(m))
        return swl_fail(err, SWL_E_CANCELLED, "stopped before the head");
    head_forward(m, logits);
    return SWL_OK;
}

swl_status swl_forward(struct swl_model *m, const swl_batch_item *items, int32_t n_items, float *logits,
                       const swl_trace *t, swl_error *err)
{
    int32_t i;
    swl_status st;

    pthread_mutex_lock(&m->lock);
    st = check_items(m, items, n_items, err);
    if (!st) {
        swl_pressure_tick(m);
        m->cancel = n_items == 1 ? items[0].cancel : NULL;
        swl_profile_pass_begin(m);
        m->work.n_rows = m->work.n_pass_rows = count_rows(items, n_items);
        mark_wanted(m, items, n_items, t != NULL);
        widen_stage(m);
        if (m->passes == SWL_PASSES_READ)
            st = read_alone(m, err);
        else
            st = run(m, items, n_items, logits, t, err);
        for (i = 0; i < n_items && !st; i++)
            items[i].state->n_tokens += items[i].n;
        if (!st)
            swl_routes_advance(m);
        swl_profile_pass_end(m, items, n_items);
    }
    pthread_mutex_unlock(&m->lock);
    return st;
}
