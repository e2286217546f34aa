/*
 * kv.c: where attention's keys and values are. An attention layer has two planes, K and V, of blocks of SWL_KV_BLOCK
 * positions, each with all KV heads: in exact mode float32 rows [position][head][head_dim]; else for each head integers as
 * kernels.h lays them out, and behind all blocks their scales [block][head][SWL_KV_BLOCK]. A file has positions one by one:
 * the heads' elements, then their scales.
 */
#include <string.h>

#include "model/model.h"

static uint64_t n_blocks(int32_t n_tokens)
{
    return ((uint64_t)n_tokens + SWL_KV_BLOCK - 1) / SWL_KV_BLOCK;
}

/* Integers of a head in a block. */
static int32_t head_ints(const struct swl_model *m)
{
    return swl_head_padded(m->config->head_dim) * SWL_KV_BLOCK;
}

static uint64_t elements_bytes(const struct swl_model *m)
{
    return (uint64_t)m->config->n_kv_heads * (m->exact ? (uint64_t)m->config->head_dim * SWL_KV_BLOCK * sizeof(float)
                                                       : (uint64_t)head_ints(m) * sizeof(int16_t));
}

static uint64_t scales_bytes(const struct swl_model *m)
{
    return m->exact ? 0 : (uint64_t)m->config->n_kv_heads * SWL_KV_BLOCK * sizeof(float);
}

uint64_t swl_kv_bytes(const struct swl_model *m, int32_t n_tokens)
{
    const swl_config *c = m->config;
    uint64_t n = 0;
    int32_t i;

    for (i = 0; i < c->n_layers; i++)
        n += c->layers[i].mixer == SWL_MIXER_ATTENTION;
    return 2 * n * n_blocks(n_tokens) * (elements_bytes(m) + scales_bytes(m));
}

uint64_t swl_kv_token_bytes(const struct swl_model *m)
{
    return swl_kv_bytes(m, SWL_KV_BLOCK) / SWL_KV_BLOCK;
}

swl_vectors swl_kv_at(const struct swl_model *m, const swl_state *s, int32_t plane, int32_t pos, int32_t head)
{
    uint64_t blocks = n_blocks(s->ctx_tokens), block = (uint64_t)pos / SWL_KV_BLOCK;
    uint8_t *x = s->kv + (uint64_t)plane * blocks * (elements_bytes(m) + scales_bytes(m));
    uint8_t *scale = x + blocks * elements_bytes(m) + block * scales_bytes(m);

    x += block * elements_bytes(m);
    if (m->exact)
        return (swl_vectors){
            x + ((int64_t)(pos % SWL_KV_BLOCK) * m->config->n_kv_heads + head) * m->config->head_dim * 4, NULL};
    return (swl_vectors){x + (int64_t)head * head_ints(m) * 2, (float *)(void *)scale + head * SWL_KV_BLOCK};
}

/* Where element i of place j of a block is: it and the next are neighbours in K; in V places j and j + 1 (j even) are. */
static int32_t key_index(int32_t i, int32_t j)
{
    return (i / 2 * SWL_KV_BLOCK + j) * 2 + i % 2;
}

static int32_t value_index(int32_t i, int32_t j)
{
    return ((i / 16 * SWL_KV_BLOCK / 2 + j / 2) * 16 + i % 16) * 2 + j % 2;
}

static void put_ints(const struct swl_model *m, swl_state *s, int32_t plane, int32_t pos, int32_t head,
                     const int16_t *q, float scale)
{
    swl_vectors at = swl_kv_at(m, s, plane, pos, head);
    int32_t n = swl_head_padded(m->config->head_dim), j = pos % SWL_KV_BLOCK, i;
    int16_t *x = at.x;

    for (i = 0; i < n && plane % 2; i++)
        x[value_index(i, j)] = q[i];
    for (; i < n; i += 2)
        memcpy(x + key_index(i, j), q + i, 2 * sizeof *q);
    at.scale[j] = scale;
}

static void get_ints(const struct swl_model *m, const swl_state *s, int32_t plane, int32_t pos, int32_t head,
                     int16_t *q, float *scale)
{
    swl_vectors at = swl_kv_at(m, s, plane, pos, head);
    int32_t j = pos % SWL_KV_BLOCK, i;
    const int16_t *x = at.x;

    for (i = 0; i < m->config->head_dim; i++)
        q[i] = x[plane % 2 ? value_index(i, j) : key_index(i, j)];
    *scale = at.scale[j];
}

void swl_kv_put(const struct swl_model *m, swl_state *s, int32_t plane, int32_t pos, int32_t head, const float *x)
{
    int16_t q[SWL_HEAD_MAX];
    float scale;

    if (m->exact) {
        memcpy(swl_kv_at(m, s, plane, pos, head).x, x, (size_t)m->config->head_dim * sizeof *x);
    } else {
        m->k.quantise_kv(x, m->config->head_dim, q, &scale);
        put_ints(m, s, plane, pos, head, q, scale);
    }
}

void swl_kv_copy(const struct swl_model *m, swl_state *to, const swl_state *from, int32_t n_tokens)
{
    int32_t plane;

    for (plane = 0; plane < 2 * m->weights.n_attention; plane++) {
        swl_vectors a = swl_kv_at(m, to, plane, 0, 0), b = swl_kv_at(m, from, plane, 0, 0);

        memcpy(a.x, b.x, n_blocks(n_tokens) * elements_bytes(m));
        if (a.scale)
            memcpy(a.scale, b.scale, n_blocks(n_tokens) * scales_bytes(m));
    }
}

/* ---- files ----------------------------------------------------------------------------------------------- */

uint64_t swl_kv_record_bytes(const struct swl_model *m, bool f16)
{
    uint64_t n = (uint64_t)m->config->n_kv_heads, dim = (uint64_t)m->config->head_dim;

    return m->exact ? 4 * n * dim : f16 ? 2 * n * dim : n * (2 * dim + sizeof(float));
}

void swl_kv_save(const struct swl_model *m, const swl_state *s, int32_t plane, int32_t pos, uint8_t *record)
{
    int32_t n = m->config->n_kv_heads, dim = m->config->head_dim, h;
    int16_t q[SWL_HEAD_MAX];
    float scale;

    if (m->exact) {
        memcpy(record, swl_kv_at(m, s, plane, pos, 0).x, swl_kv_record_bytes(m, false));
        return;
    }
    for (h = 0; h < n; h++) {
        get_ints(m, s, plane, pos, h, q, &scale);
        memcpy(record + 2 * (int64_t)h * dim, q, (size_t)dim * 2);
        memcpy(record + 2 * (int64_t)n * dim + 4 * h, &scale, 4);
    }
}

void swl_kv_load(const struct swl_model *m, swl_state *s, int32_t plane, int32_t pos, const uint8_t *record, bool f16)
{
    int32_t n = m->config->n_kv_heads, dim = m->config->head_dim, h, i;
    int16_t q[SWL_HEAD_MAX] = {0};
    float scale, x[SWL_HEAD_MAX];

    if (m->exact) {
        memcpy(swl_kv_at(m, s, plane, pos, 0).x, record, swl_kv_record_bytes(m, false));
        return;
    }
    for (h = 0; h < n; h++) {
        memcpy(q, record + 2 * (int64_t)h * dim, (size_t)dim * 2);
        if (f16) {
            for (i = 0; i < dim; i++)
                x[i] = swl_f16_to_f32((uint16_t)q[i]);
            swl_kv_put(m, s, plane, pos, h, x);
        } else {
            memcpy(&scale, record + 2 * (int64_t)n * dim + 4 * h, 4);
            put_ints(m, s, plane, pos, h, q, scale);
        }
    }
}
