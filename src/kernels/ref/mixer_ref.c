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

static float load(const void *p, bool half, int64_t i)
{
    return half ? swl_f16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static float dot(const float *q, const void *k, bool half, int64_t at, int32_t dim)
{
    float lane[SWL_LANES] = {0};
    int32_t i;

    for (i = 0; i < dim; i++)
        lane[i % SWL_LANES] = fmaf(q[i], load(k, half, at + i), lane[i % SWL_LANES]);
    return ref_fold(lane);
}

/* One block of keys added to one query's running result. */
static void attend_block(const float *q, int32_t dim, const void *k, const void *v, bool half, int64_t ldkv, int32_t key0,
                         int32_t n, float scale, float *m, float *l, float *o)
{
    float p[SWL_ATTN_BLOCK], lane[SWL_LANES] = {0}, max = *m, c;
    int32_t j, i;

    for (j = 0; j < n; j++) {
        p[j] = dot(q, k, half, (key0 + j) * ldkv, dim) * scale;
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
            acc = fmaf(p[j], load(v, half, (key0 + j) * ldkv + i), acc);
        o[i] = acc;
    }
}

static void attn(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v, bool half,
                 int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    int32_t h, i, key, n;

    assert(n_keys <= SWL_ATTN_SEGMENT);
    for (h = 0; h < n_rows * n_q; h++) {
        n = n_keys + h / n_q < SWL_ATTN_SEGMENT ? n_keys + h / n_q : SWL_ATTN_SEGMENT;
        m[h] = -INFINITY;
        l[h] = 0.0f;
        for (i = 0; i < dim; i++)
            o[h * dim + i] = 0.0f;
        for (key = 0; key < n; key += SWL_ATTN_BLOCK)
            attend_block(q + h * dim, dim, k, v, half, ldkv, key, n - key < SWL_ATTN_BLOCK ? n - key : SWL_ATTN_BLOCK,
                         scale, &m[h], &l[h], o + h * dim);
    }
}

void swl_attn_f16_ref(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                      int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    attn(q, n_rows, n_q, dim, k, v, true, ldkv, n_keys, scale, m, l, o);
}

void swl_attn_f32_ref(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                      int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    attn(q, n_rows, n_q, dim, k, v, false, ldkv, n_keys, scale, m, l, o);
}
