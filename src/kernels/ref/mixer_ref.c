/* mixer_ref.c: the two token mixers: the gated delta rule and one part of softmax attention. */
#include "kernels/ref/ref.h"

#include <assert.h>

#include "kernels/ref/math_ref.h"

enum { COLUMNS = 64 }; /* value columns that are carried through a token together */

/* Columns do not depend on one another, so a block of them goes through the whole chunk before the next. */
static void delta_columns(float *s, int64_t lds, int32_t dk, int32_t n, int32_t n_tok, const float *q, const float *k,
                          int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *g, float *out, int64_t ldo)
{
    float kv[COLUMNS], d[COLUMNS], o[COLUMNS];
    int32_t t, i, j;

    for (t = 0; t < n_tok; t++, q += ldqk, k += ldqk, v += ldv, g++, out += ldo) {
        for (j = 0; j < n; j++)
            kv[j] = o[j] = 0.0f;
        for (i = 0; i < dk; i++)
            for (j = 0; j < n; j++) {
                s[i * lds + j] *= g->fold;
                kv[j] = fmaf(k[i], s[i * lds + j], kv[j]);
            }
        for (j = 0; j < n; j++)
            d[j] = fmaf(-g->gain, kv[j], v[j]) * g->rate;
        for (i = 0; i < dk; i++)
            for (j = 0; j < n; j++) {
                s[i * lds + j] = fmaf(k[i], d[j], s[i * lds + j]);
                o[j] = fmaf(q[i], s[i * lds + j], o[j]);
            }
        for (j = 0; j < n; j++)
            out[j] = g->gain * o[j];
    }
}

void swl_delta_scan_ref(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                        int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out, int64_t ldo)
{
    int32_t j;

    for (j = 0; j < dv; j += COLUMNS)
        delta_columns(s + j, lds, dk, dv - j < COLUMNS ? dv - j : COLUMNS, n_tok, q, k, ldqk, v + j, ldv, gates,
                      out + j, ldo);
}

/* ---- attention ------------------------------------------------------------------------------------------- */

void swl_quantise_kv_ref(const float *x, int32_t n, int16_t *q, float *scale)
{
    float max = 0.0f, inv;
    int32_t i;

    for (i = 0; i < n; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    *scale = max / SWL_KV_MAX;
    inv = max > 0.0f ? SWL_KV_MAX / max : 0.0f;
    for (i = 0; i < n; i++)
        q[i] = (int16_t)ref_round_within(x[i] * inv, -SWL_KV_MAX, SWL_KV_MAX);
    for (; i < swl_head_padded(n); i++)
        q[i] = 0;
}

static int32_t key_element(const swl_kv *kv, int32_t j, int32_t i)
{
    return kv->k[j / SWL_KV_BLOCK * kv->ld + (i / 2 * SWL_KV_BLOCK + j % SWL_KV_BLOCK) * 2 + i % 2];
}

static int32_t value_element(const swl_kv *kv, int32_t j, int32_t i)
{
    return kv->v[j / SWL_KV_BLOCK * kv->ld + ((i / 16 * SWL_KV_BLOCK / 2 + j % SWL_KV_BLOCK / 2) * 16 + i % 16) * 2 + j % 2];
}

static float scale_of(const float *scale, const swl_kv *kv, int32_t j)
{
    return scale[j / SWL_KV_BLOCK * kv->ld_scale + j % SWL_KV_BLOCK];
}

/* p[j]: the scores of n keys; returns the largest. Integers out of range, as a forged file may hold, wrap. */
static float scores(const int16_t *q, float q_scale, int32_t dim, const swl_kv *kv, int32_t key0, int32_t n, float *p)
{
    float max = -INFINITY;
    int32_t j, i;

    for (j = 0; j < n; j++) {
        uint32_t sum = 0;

        for (i = 0; i < dim; i++)
            sum += (uint32_t)(q[i] * key_element(kv, key0 + j, i));
        p[j] = (float)(int32_t)sum * (q_scale * scale_of(kv->k_scale, kv, key0 + j));
        max = p[j] > max ? p[j] : max;
    }
    return max + 0.0f;
}

/* Scores to probabilities, as such (their sum is returned) and as the integers w; *unit: what one of these counts. */
static float weigh(const float *p, float top, const swl_kv *kv, int32_t key0, int32_t n, int32_t *w, float *unit)
{
    float lane[SWL_LANES] = {0}, scale[SWL_ATTN_BLOCK], max = 0.0f, inv;
    int32_t j;

    for (j = 0; j < n; j++) {
        scale[j] = scale_of(kv->v_scale, kv, key0 + j);
        max = scale[j] > max ? scale[j] : max;
    }
    *unit = max / SWL_KV_WEIGHT_MAX;
    inv = max > 0.0f ? SWL_KV_WEIGHT_MAX / max : 0.0f;
    for (j = 0; j < n; j++) {
        float e = ref_exp(p[j] - top);

        lane[j % SWL_LANES] += e;
        w[j] = (int32_t)ref_round_within(e * (scale[j] * inv), 0, SWL_KV_WEIGHT_MAX);
    }
    return ref_fold(lane);
}

/* One block of keys added to one query's running result. */
static void attend_kv_block(const int16_t *q, float q_scale, int32_t dim, const swl_kv *kv, int32_t key0, int32_t n,
                            float *m, float *l, float *o)
{
    float p[SWL_ATTN_BLOCK], top = scores(q, q_scale, dim, kv, key0, n, p), unit, sum, a, b;
    int32_t w[SWL_ATTN_BLOCK], j, i;

    sum = weigh(p, top, kv, key0, n, w, &unit);
    b = ref_renormalise(top, sum, m, l, &a);
    for (i = 0; i < dim; i++) {
        uint32_t acc = 0;

        for (j = 0; j < n; j++)
            acc += (uint32_t)(w[j] * value_element(kv, key0 + j, i));
        o[i] = fmaf((float)(int32_t)acc, b * unit, o[i] * a);
    }
}

void swl_attn_kv_ref(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                     int32_t n_keys, float *m, float *l, float *o)
{
    int32_t h, key, n;

    assert(n_keys <= SWL_ATTN_SEGMENT && dim <= SWL_HEAD_MAX);
    ref_clear_results(n_rows * n_q, dim, m, l, o);
    for (h = 0; h < n_rows * n_q; h++, q += dim, o += dim) {
        n = n_keys + h / n_q < SWL_ATTN_SEGMENT ? n_keys + h / n_q : SWL_ATTN_SEGMENT;
        for (key = 0; key < n; key += SWL_ATTN_BLOCK)
            attend_kv_block(q, q_scale[h], dim, kv, key, n - key < SWL_ATTN_BLOCK ? n - key : SWL_ATTN_BLOCK, &m[h],
                            &l[h], o);
    }
}

/* ---- in float32 ------------------------------------------------------------------------------------------ */

static float dot(const float *q, const float *k, int32_t dim)
{
    float lane[SWL_LANES] = {0};
    int32_t i;

    for (i = 0; i < dim; i++)
        lane[i % SWL_LANES] = fmaf(q[i], k[i], lane[i % SWL_LANES]);
    return ref_fold(lane);
}

/* One block of keys added to one query's running result. */
static void attend_block(const float *q, int32_t dim, const float *k, const float *v, int64_t ldkv, int32_t n, float scale,
                         float *m, float *l, float *o)
{
    float p[SWL_ATTN_BLOCK], lane[SWL_LANES] = {0}, max = *m, c;
    int32_t j, i;

    for (j = 0; j < n; j++) {
        p[j] = dot(q, k + j * ldkv, dim) * scale;
        max = p[j] > max ? p[j] : max;
    }
    c = ref_exp(*m - max);
    for (j = 0; j < n; j++) {
        p[j] = ref_exp(p[j] - max);
        lane[j % SWL_LANES] += p[j];
    }
    *l = fmaf(*l, c, ref_fold(lane));
    *m = max;
    for (i = 0; i < dim; i++) {
        float acc = o[i] * c;

        for (j = 0; j < n; j++)
            acc = fmaf(p[j], v[j * ldkv + i], acc);
        o[i] = acc;
    }
}

void swl_attn_f32_ref(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                      int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    int32_t h, key, n;

    assert(n_keys <= SWL_ATTN_SEGMENT);
    ref_clear_results(n_rows * n_q, dim, m, l, o);
    for (h = 0; h < n_rows * n_q; h++) {
        n = n_keys + h / n_q < SWL_ATTN_SEGMENT ? n_keys + h / n_q : SWL_ATTN_SEGMENT;
        for (key = 0; key < n; key += SWL_ATTN_BLOCK)
            attend_block(q + h * dim, dim, k + key * ldkv, v + key * ldkv, ldkv,
                         n - key < SWL_ATTN_BLOCK ? n - key : SWL_ATTN_BLOCK, scale, &m[h], &l[h], o + h * dim);
    }
}
