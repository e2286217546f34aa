/*
 * deltanet.c: the Gated DeltaNet mixer (Yang et al., Gated Delta Networks, with the short convolution and output gate of
 * Qwen3-Next). One job is one key head with its value heads, over all rows of one conversation in the batch: convolution,
 * normalisation and recurrence of a head stay in the cache, and prompts and single tokens take the same way.
 */
#include <math.h>

#include "model/model.h"

typedef struct delta_run {
    struct swl_model *m;
    const swl_layer *l;
    const swl_batch *batch;
    const swl_span *span;
    int32_t row;               /* of the span, in the mixer's buffers */
} delta_run;

/* Convolution and SiLU in place over channels [first, first + n) of the span's rows. */
static void conv(const delta_run *r, int32_t first, int32_t n)
{
    struct swl_model *m = r->m;
    int32_t channels = swl_conv_channels(m->config), width = m->config->conv_width;
    float *state = r->span->state->conv + (int64_t)r->l->mixer_index * (width - 1) * channels;
    float *u = m->work.group + (int64_t)r->row * m->work.group_width + first;

    m->k.conv_silu(u, m->work.group_width, state + first, u, m->work.group_width, r->l->conv + first, channels, n,
                   r->span->n, width);
}

/* decay = exp(-exp(A_log) softplus(a + dt_bias)) and beta = sigmoid(b), in the places of a and b. */
static void gates(const delta_run *r, int32_t head)
{
    const swl_config *c = r->m->config;
    float *row = r->m->work.group + (int64_t)r->row * r->m->work.group_width + swl_conv_channels(c) +
                 c->n_v_heads * c->v_dim + head;
    int32_t t;

    for (t = 0; t < r->span->n; t++, row += r->m->work.group_width) {
        float x = row[c->n_v_heads] + r->l->dt_bias[head];
        float softplus = x > 20.0f ? x : (float)log1p((double)swl_exp(x));

        row[c->n_v_heads] = swl_exp(r->l->neg_exp_a[head] * softplus);
        row[0] = swl_sigmoid(row[0]);
    }
}

static void value_head(const delta_run *r, int32_t head)
{
    struct swl_model *m = r->m;
    const swl_config *c = m->config;
    int32_t dk = c->k_dim, dv = c->v_dim, ratio = c->n_v_heads / c->n_k_heads, t;
    int64_t ld = m->work.group_width;
    float *row = m->work.group + r->row * ld, *q = row + head / ratio * dk, *k = q + c->n_k_heads * dk;
    float *v = row + 2 * c->n_k_heads * dk + head * dv, *z = v + c->n_v_heads * dv;
    float *gate = row + swl_conv_channels(c) + c->n_v_heads * dv + head;
    float *s = r->span->state->delta + ((int64_t)r->l->mixer_index * c->n_v_heads + head) * dk * dv;
    float *out = m->work.mix.x + r->row * m->work.mix.ldx + head * dv;

    gates(r, head);
    m->k.delta_scan(s, dv, dk, dv, r->span->n, q, k, ld, v, ld, gate + c->n_v_heads, gate, ld, out, m->work.mix.ldx);
    for (t = 0; t < r->span->n; t++)
        m->k.gated_norm(out + t * m->work.mix.ldx, out + t * m->work.mix.ldx, z + t * ld, r->l->norm_gated, dv,
                        c->norm_eps);
}

static void key_head(const delta_run *r, int32_t head)
{
    struct swl_model *m = r->m;
    const swl_config *c = m->config;
    int32_t dk = c->k_dim, dv = c->v_dim, ratio = c->n_v_heads / c->n_k_heads, key_width = c->n_k_heads * dk, t, j;

    conv(r, head * dk, dk);
    conv(r, key_width + head * dk, dk);
    conv(r, 2 * key_width + head * ratio * dv, ratio * dv);
    for (t = 0; t < r->span->n; t++) {
        float *q = m->work.group + (int64_t)(r->row + t) * m->work.group_width + head * dk;

        m->k.l2_norm(q, dk, 1e-6f, 1.0f / sqrtf((float)dk));
        m->k.l2_norm(q + key_width, dk, 1e-6f, 1.0f);
    }
    for (j = 0; j < ratio; j++)
        value_head(r, head * ratio + j);
}

/* All heads of one conversation, then those of the next. */
static void key_head_job(void *arg, int32_t i, int32_t worker)
{
    delta_run r = *(const delta_run *)arg;
    int32_t n_heads = r.m->config->n_k_heads;

    (void)worker;
    r.span = &r.batch->spans[i / n_heads];
    r.row = r.span->row - r.batch->row0;
    key_head(&r, i % n_heads);
}

void swl_deltanet_forward(struct swl_model *m, const swl_layer *l, const swl_batch *b)
{
    swl_work *w = &m->work;
    swl_act in = swl_act_from(&w->norm, b->row0, m->config->hidden);
    delta_run r = {.m = m, .l = l, .batch = b};

    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    swl_group_run(m, &l->in, &in, b->n_rows, w->group, w->group_width);
    swl_phase_enter(m, SWL_PHASE_DELTA);
    swl_threads_run(m->threads, b->n_spans * m->config->n_k_heads, key_head_job, &r);
    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    w->mix.cols = m->config->n_v_heads * m->config->v_dim;
    swl_act_quantise(m, &w->mix, b->n_rows);
    swl_group_run(m, &l->out, &w->mix, b->n_rows, w->y + (int64_t)b->row0 * m->config->hidden, m->config->hidden);
    swl_phase_enter(m, SWL_PHASE_OTHER);
}
