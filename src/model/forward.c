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
static void prepare_rows(struct swl_model *m, swl_batch *b)
{
    swl_work *w = &m->work;
    int32_t half = m->config->rotary_dims / 2, i, j, k, row = 0;

    for (i = 0; i < b->n_items; i++)
        for (j = 0; j < b->items[i].n; j++, row++) {
            w->item_of[row] = i;
            w->pos[row] = b->items[i].state->n_tokens + j;
            swl_matrix_row_f32(&m->weights.embed, b->items[i].ids[j], w->x + (int64_t)row * m->config->hidden);
            for (k = 0; k < half; k++) {
                float angle = (float)w->pos[row] * m->weights.rope_freq[k];

                w->rope_cos[row * half + k] = (float)cos((double)angle) * m->weights.rope_scale;
                w->rope_sin[row * half + k] = (float)sin((double)angle) * m->weights.rope_scale;
            }
        }
    b->n_rows = row;
}

static swl_status layer_forward(struct swl_model *m, int32_t i, const swl_batch *b, swl_error *err)
{
    const swl_layer *l = &m->weights.layers[i];
    swl_work *w = &m->work;
    swl_status st = SWL_OK;

    swl_norm_rows(m, &w->norm, w->x, l->norm_in, b->n_rows);
    if (l->plan.mixer == SWL_MIXER_ATTENTION)
        swl_attention_forward(m, l, b);
    else
        swl_deltanet_forward(m, l, b);
    swl_add_rows(m, w->x, w->y, b->n_rows);

    swl_norm_rows(m, &w->norm, w->x, l->norm_post, b->n_rows);
    if (l->plan.ffn == SWL_FFN_MOE) {
        st = swl_moe_forward(m, i, b, err);
        if (st)
            return st;
        swl_add_rows(m, w->x, w->y, b->n_rows);
    } else {
        swl_dense_forward(m, l, b);
        swl_add_rows(m, w->x, w->pair_y, b->n_rows);
    }
    return st;
}

/* The rows whose logits are wanted, gathered at the front of the residual buffer, normalised, through the head. */
static void head_forward(struct swl_model *m, const swl_batch *b, float *logits)
{
    swl_work *w = &m->work;
    int64_t hidden = m->config->hidden;
    int32_t i, j, row = 0, n = 0;

    for (i = 0; i < b->n_items; i++)
        for (j = 0; j < b->items[i].n; j++, row++)
            if (b->items[i].want && b->items[i].want[j])
                memmove(w->x + n++ * hidden, w->x + row * hidden, (size_t)hidden * sizeof(float));
    if (!n)
        return;
    swl_norm_rows(m, &w->norm, w->x, m->weights.norm_final, n);
    swl_group_run(m, &m->weights.head, &w->norm, n, logits, m->config->vocab);
}

static swl_status run(struct swl_model *m, swl_batch *b, float *logits, const swl_trace *t, swl_error *err)
{
    swl_work *w = &m->work;
    int32_t hidden = m->config->hidden, i;
    char name[32];
    swl_status st;

    prepare_rows(m, b);
    trace(t, "embed", w->x, b->n_rows, hidden);
    for (i = 0; i < m->config->n_layers; i++) {
        st = layer_forward(m, i, b, err);
        if (st)
            return st;
        snprintf(name, sizeof name, "layer_%02d", i);
        trace(t, name, w->x, b->n_rows, hidden);
    }
    if (t) {
        swl_norm_rows(m, &w->norm, w->x, m->weights.norm_final, b->n_rows);
        for (i = 0; i < b->n_rows; i++)
            memcpy(w->y + (int64_t)i * hidden, w->norm.x + i * w->norm.ldx, (size_t)hidden * sizeof(float));
        trace(t, "final_norm", w->y, b->n_rows, hidden);
    }
    head_forward(m, b, logits);
    for (i = 0; i < b->n_items; i++)
        b->items[i].state->n_tokens += b->items[i].n;
    return SWL_OK;
}

swl_status swl_forward(struct swl_model *m, const swl_batch_item *items, int32_t n_items, float *logits,
                       const swl_trace *t, swl_error *err)
{
    swl_batch b = {.items = items, .n_items = n_items};
    swl_status st;

    pthread_mutex_lock(&m->lock);
    st = check_items(m, items, n_items, err);
    if (!st)
        st = run(m, &b, logits, t, err);
    pthread_mutex_unlock(&m->lock);
    return st;
}
