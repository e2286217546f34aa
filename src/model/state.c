/* state.c: what a conversation carries from token to token. Pages of the KV cache appear as tokens are written. */
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"

uint64_t swl_state_fixed_bytes(const struct swl_model *m)
{
    const swl_config *c = m->config;
    uint64_t delta = (uint64_t)c->n_v_heads * ((uint64_t)c->k_dim * (uint64_t)c->v_dim + 1);
    uint64_t conv = (uint64_t)(c->conv_width - 1) * (uint64_t)swl_conv_channels(c), n = 0;
    int32_t i;

    for (i = 0; i < c->n_layers; i++)
        n += c->layers[i].mixer == SWL_MIXER_DELTANET;
    return n * (delta + conv) * sizeof(float);
}

uint64_t swl_mark_bytes(const struct swl_model *m)
{
    return swl_state_fixed_bytes(m) + (uint64_t)m->config->vocab * sizeof(float);
}

swl_status swl_state_create(swl_state **out, const struct swl_model *m, swl_error *err)
{
    const swl_config *c = m->config;
    swl_state *s = swl_calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "state: out of memory");
    s->ctx_tokens = m->ctx_tokens;
    s->conv_bytes = (uint64_t)m->weights.n_deltanet * (uint64_t)(c->conv_width - 1) * (uint64_t)swl_conv_channels(c) * 4;
    s->gain_bytes = (uint64_t)m->weights.n_deltanet * (uint64_t)c->n_v_heads * 4;
    s->delta_bytes = s->gain_bytes * ((uint64_t)c->k_dim * (uint64_t)c->v_dim + 1);
    s->kv_bytes = swl_kv_bytes(m, s->ctx_tokens);
    s->conv = swl_big_alloc(s->conv_bytes);
    s->delta = swl_big_alloc(s->delta_bytes);
    s->kv = swl_big_alloc(s->kv_bytes);
    if (!s->conv || !s->delta || !s->kv) {
        swl_state_free(s);
        return swl_fail(err, SWL_E_NOMEM, "state: out of memory for a context of %d tokens", m->ctx_tokens);
    }
    s->delta_gain = s->delta + (s->delta_bytes - s->gain_bytes) / 4;
    swl_state_no_decay(s->delta_gain, s->gain_bytes);
    *out = s;
    return SWL_OK;
}

void swl_state_free(swl_state *s)
{
    if (!s)
        return;
    swl_big_free(s->conv, s->conv_bytes);
    swl_big_free(s->delta, s->delta_bytes);
    swl_big_free(s->kv, s->kv_bytes);
    swl_free(s);
}

void swl_state_reset(swl_state *s)
{
    s->n_tokens = 0;
    memset(s->conv, 0, s->conv_bytes);
    memset(s->delta, 0, s->delta_bytes);
    swl_state_no_decay(s->delta_gain, s->gain_bytes);
}

void swl_state_no_decay(float *gain, uint64_t bytes)
{
    uint64_t i;

    for (i = 0; i < bytes / sizeof *gain; i++)
        gain[i] = 1.0f;
}
