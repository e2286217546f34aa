/*
 * deltanet.c: the Gated DeltaNet mixer (Yang et al., Gated Delta Networks, with the short convolution and output gate
 * of Qwen3-Next). One job is one key head with its value heads, over all rows of one conversation in the batch, in runs
 * of SWL_DELTA_TOKENS: what the projections gave is read once, row by row far apart, and everything between that and
 * the rows of the output lies close together in the worker's scratch, and so in the second cache. Prompts and single
 * tokens take the same way.
 */
#include <math.h>
#include <string.h>

#include "model/model.h"

#define GAIN_MIN 0x1p-32f /* far from what float32 ends at, and seldom reached */
#define AHEAD 4 /* rows of z and of the gates between the one at work and the one that is asked for */

typedef struct delta_phase {
    struct swl_model *m;
    const swl_layer *l;
    const swl_batch *batch;
} delta_phase;

/* Tokens of one conversation. */
typedef struct delta_run {
    struct swl_model *m;
    const swl_layer *l;
    swl_state *state;
    int32_t n;            /* at most SWL_DELTA_TOKENS */
    const float *in;      /* row stride work.group_width */
    float *mix;           /* row stride work.mix.ldx */
    float *q, *k, *v, *o; /* scratch: [n][k_dim] two times, [n][v_dim] two times, of the heads at work */
} delta_run;

/* Convolution and SiLU of channels [first, first + n). */
static void conv(const delta_run *r, int32_t first, int32_t n, float *out)
{
    const struct swl_model *m = r->m;
    int32_t channels = swl_conv_channels(m->config), width = m->config->conv_width;
    float *state = r->state->conv + (int64_t)r->l->mixer_index * (width - 1) * channels;

    m->k.conv_silu(out, n, state + first, r->in + first, m->work.group_width, r->l->conv + first, channels, n, r->n,
                   width);
}

/* decay = exp(-exp(A_log) softplus(a + dt_bias)) and beta = sigmoid(b). No exponent of a decay is above 0, so
 * softmax_exp, which takes off the largest, leaves them as they are when one of 0 comes first; and 1 times a sigmoid is
 * the sigmoid.
 *
 * The state's matrix is not multiplied by the decay of every token: their product is its gain, and taken into the matrix when
 * it becomes small. *gain: that of the head, updated. */
static void gates(const delta_run *r, int32_t head, float *gain, swl_delta_gate *gate)
{
    const struct swl_model *m = r->m;
    const swl_config *c = m->config;
    const float *b = r->in + swl_conv_channels(c) + c->n_v_heads * c->v_dim + head, *a = b + c->n_v_heads;
    float decay[1 + SWL_DELTA_TOKENS] = {0.0f}, beta[SWL_DELTA_TOKENS], logit[SWL_DELTA_TOKENS];
    int32_t t;

    for (t = 0; t < r->n; t++, a += m->work.group_width, b += m->work.group_width) {
        float x = *a + r->l->dt_bias[head];
        float softplus = x > 20.0f ? x : (float)log1p((double)swl_exp(x));

        if (t + AHEAD < r->n) {
            __builtin_prefetch(a + AHEAD * m->work.group_width);
            __builtin_prefetch(b + AHEAD * m->work.group_width);
        }
        decay[t + 1] = r->l->neg_exp_a[head] * softplus;
        logit[t] = *b;
        beta[t] = 1.0f;
    }
    m->k.softmax_exp(decay, decay, 1 + r->n);
    m->k.sigmoid_mul(beta, logit, r->n);
    for (t = 0; t < r->n; t++) {
        float product = *gain * decay[t + 1];
        bool small = !(product >= GAIN_MIN);

        *gain = small ? 1.0f : product;
        gate[t] = (swl_delta_gate){.fold = small ? product : 1.0f, .gain = *gain, .rate = beta[t] / *gain};
    }
}

static void ask(const float *row, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i += 16)
        __builtin_prefetch(row + i);
}

static void value_head(const delta_run *r, int32_t head)
{
    const struct swl_model *m = r->m;
    const swl_config *c = m->config;
    int32_t dk = c->k_dim, dv = c->v_dim, first = 2 * c->n_k_heads * dk + head * dv, t;
    int64_t ldz = m->work.group_width, ldo = m->work.mix.ldx;
    const float *z = r->in + first + c->n_v_heads * dv;
    int64_t index = (int64_t)r->l->mixer_index * c->n_v_heads + head;
    float *s = r->state->delta + index * dk * dv, *out = r->mix + head * dv;
    swl_delta_gate gate[SWL_DELTA_TOKENS];

    conv(r, first, dv, r->v);
    gates(r, head, &r->state->delta_gain[index], gate);
    m->k.delta_scan(s, dv, dk, dv, r->n, r->q, r->k, dk, r->v, dv, gate, r->o, dv);
    for (t = 0; t < r->n; t++) {
        if (t + AHEAD < r->n)
            ask(z + (t + AHEAD) * ldz, dv);
        m->k.gated_norm(out + t * ldo, r->o + t * dv, z + t * ldz, r->l->norm_gated, dv, c->norm_eps);
    }
}

static void key_head(const delta_run *r, int32_t head)
{
    const swl_config *c = r->m->config;
    int32_t dk = c->k_dim, ratio = c->n_v_heads / c->n_k_heads, t, j;

    conv(r, head * dk, dk, r->q);
    conv(r, (c->n_k_heads + head) * dk, dk, r->k);
    for (t = 0; t < r->n; t++) {
        r->m->k.l2_norm(r->q + t * dk, dk, 1e-6f, 1.0f / sqrtf((float)dk));
        r->m->k.l2_norm(r->k + t * dk, dk, 1e-6f, 1.0f);
    }
    for (j = 0; j < ratio; j++)
        value_head(r, head * ratio + j);
}

/* All heads of one conversation, then those of the next. */
static void key_head_job(void *arg, int32_t i, int32_t worker)
{
    const delta_phase *p = arg;
    struct swl_model *m = p->m;
    const swl_config *c = m->config;
    const swl_span *span = &p->batch->spans[i / c->n_k_heads];
    delta_run r = {.m = m, .l = p->l, .state = span->state};
    int32_t t;

    r.q = m->scratch + worker * m->scratch_floats;
    r.k = r.q + SWL_DELTA_TOKENS * c->k_dim;
    r.v = r.k + SWL_DELTA_TOKENS * c->k_dim;
    r.o = r.v + SWL_DELTA_TOKENS * c->v_dim;
    for (t = 0; t < span->n; t += SWL_DELTA_TOKENS) {
        int64_t row = span->row - p->batch->row0 + t;

        r.n = span->n - t < SWL_DELTA_TOKENS ? span->n - t : SWL_DELTA_TOKENS;
        r.in = m->work.group + row * m->work.group_width;
        r.mix = m->work.mix.x + row * m->work.mix.ldx;
        key_head(&r, i % c->n_k_heads);
    }
}

void swl_deltanet_forward(struct swl_model *m, const swl_layer *l, const swl_batch *b)
{
    swl_work *w = &m->work;
    swl_act in = swl_act_from(&w->norm, b->row0, m->config->hidden);
    delta_phase p = {.m = m, .l = l, .batch = b};

    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    swl_group_run(m, &l->in, &in, b->n_rows, w->group, w->group_width);
    swl_phase_enter(m, SWL_PHASE_DELTA);
    swl_threads_run(m->threads, b->n_spans * m->config->n_k_heads, key_head_job, &p);
    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    w->mix.cols = m->config->n_v_heads * m->config->v_dim;
    swl_act_quantise(m, &w->mix, b->n_rows);
    swl_group_run(m, &l->out, &w->mix, b->n_rows, w->y + b->row0 * w->ldy, w->ldy);
    swl_phase_enter(m, SWL_PHASE_OTHER);
}
