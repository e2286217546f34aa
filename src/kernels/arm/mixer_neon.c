/* mixer_neon.c: the two token mixers: the gated delta rule and one part of softmax attention. */
#include "kernels/arm/arm.h"

#include <assert.h>

#include "kernels/arm/math_neon.h"
#include "kernels/ref/ref.h"

/* ---- delta rule -------------------------------------------------------------------------------------------------- */

/*
 * 4 * n4 value columns (n4 a constant) go through all tokens before the next ones do: their part of the state, 16 KB
 * for 128 keys and 32 columns, then stays near. Sums of a column are one vector element, i ascending.
 */
INLINE void delta_columns(float *s, int64_t lds, int32_t dk, int32_t n_tok, const float *q, const float *k,
                          int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *g, float *out, int64_t ldo,
                          int n4)
{
    float32x4_t kv[8], d[8], o[8];
    int32_t t, i;
    int j;

    for (t = 0; t < n_tok; t++, q += ldqk, k += ldqk, v += ldv, g++, out += ldo) {
#pragma GCC unroll 16
        for (j = 0; j < n4; j++)
            kv[j] = o[j] = vdupq_n_f32(0.0f);
        for (i = 0; i < dk && g->fold != 1.0f; i++)
#pragma GCC unroll 16
            for (j = 0; j < n4; j++)
                vst1q_f32(s + i * lds + 4 * j, vmulq_n_f32(vld1q_f32(s + i * lds + 4 * j), g->fold));
        for (i = 0; i < dk; i++)
#pragma GCC unroll 16
            for (j = 0; j < n4; j++)
                kv[j] = vfmaq_n_f32(kv[j], vld1q_f32(s + i * lds + 4 * j), k[i]);
#pragma GCC unroll 16
        for (j = 0; j < n4; j++)
            d[j] = vmulq_n_f32(vfmsq_n_f32(vld1q_f32(v + 4 * j), kv[j], g->gain), g->rate);
        for (i = 0; i < dk; i++)
#pragma GCC unroll 16
            for (j = 0; j < n4; j++) {
                float32x4_t x = vfmaq_n_f32(vld1q_f32(s + i * lds + 4 * j), d[j], k[i]);
                vst1q_f32(s + i * lds + 4 * j, x);
                o[j] = vfmaq_n_f32(o[j], x, q[i]);
            }
#pragma GCC unroll 16
        for (j = 0; j < n4; j++)
            vst1q_f32(out + 4 * j, vmulq_n_f32(o[j], g->gain));
    }
}

void swl_delta_scan_neon(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                         int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                         int64_t ldo)
{
    int32_t j = 0;

    for (; j + 32 <= dv; j += 32)
        delta_columns(s + j, lds, dk, n_tok, q, k, ldqk, v + j, ldv, gates, out + j, ldo, 8);
    for (; j + 8 <= dv; j += 8)
        delta_columns(s + j, lds, dk, n_tok, q, k, ldqk, v + j, ldv, gates, out + j, ldo, 2);
    if (j < dv)
        swl_delta_scan_ref(s + j, lds, dk, dv - j, n_tok, q, k, ldqk, v + j, ldv, gates, out + j, ldo);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

enum { QUERIES = 4 }; /* that share a pass over the values */

typedef struct part {
    const uint8_t *k, *v;
    int64_t row_bytes;
    int32_t dim;
    float scale;
} part;

/* acc += the products of sixteen elements of n_q queries with n_k keys; with n < 16 only of the first n. */
INLINE void multiply16(const float *q, int32_t dim, const uint8_t *const *k, swl_dtype type, int32_t col, int32_t n,
                       float32x4_t (*acc)[4], int n_q, int n_k)
{
    int size = type == SWL_DT_F16 ? 2 : 4, h, j, i;
    float32x4_t x[2][4], key[4];

#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
        if (n == SWL_LANES)
            load16(SWL_DT_F32, (const uint8_t *)(q + h * dim + col), x[h]);
        else
            load_part16(SWL_DT_F32, (const uint8_t *)(q + h * dim + col), n, x[h]);
#pragma GCC unroll 16
    for (j = 0; j < n_k; j++) {
        if (n == SWL_LANES)
            load16(type, k[j] + (int64_t)col * size, key);
        else
            load_part16(type, k[j] + (int64_t)col * size, n, key);
#pragma GCC unroll 16
        for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
            for (i = 0; i < 4; i++) {
                float32x4_t *a = &acc[h * n_k + j][i], sum = vfmaq_f32(*a, x[h][i], key[i]);

                *a = n == SWL_LANES ? sum : vbslq_f32(first4(n - 4 * i), sum, *a);
            }
    }
}

/* Four dot products: n_q queries (1 or 2) with 4 / n_q keys, in that order. */
INLINE float32x4_t four_dots(const float *q, int32_t dim, const uint8_t *const *k, swl_dtype type, int n_q)
{
    float32x4_t acc[4][4];
    int32_t col, i;

#pragma GCC unroll 16
    for (i = 0; i < 4; i++)
        clear_lanes(acc[i]);
    for (col = 0; col + SWL_LANES <= dim; col += SWL_LANES)
        multiply16(q, dim, k, type, col, SWL_LANES, acc, n_q, 4 / n_q);
    if (col < dim)
        multiply16(q, dim, k, type, col, dim - col, acc, n_q, 4 / n_q);
    return fold_four(fold_to_4(acc[0]), fold_to_4(acc[1]), fold_to_4(acc[2]), fold_to_4(acc[3]));
}

/* Scores of n_q queries (1 or 2) with n keys. Keys past the last are read as the last, and their scores not used. */
INLINE void scores(const part *a, const float *q, int32_t key0, int32_t n, float (*p)[SWL_ATTN_BLOCK], swl_dtype type,
                   int n_q)
{
    int32_t step = 4 / n_q, j, i;

    for (j = 0; j < n; j += step) {
        const uint8_t *k[4];
        float32x4_t s;

#pragma GCC unroll 16
        for (i = 0; i < step; i++)
            k[i] = a->k + (key0 + min_i32(j + i, n - 1)) * a->row_bytes;
        s = vmulq_n_f32(four_dots(q, a->dim, k, type, n_q), a->scale);
        if (n_q == 1) {
            vst1q_f32(p[0] + j, s);
        } else {
            vst1_f32(p[0] + j, vget_low_f32(s));
            vst1_f32(p[1] + j, vget_high_f32(s));
        }
    }
}

/* 4 * n4 columns of the outputs of n_q queries: o * c, then one fused step per key. */
INLINE void add_values(const part *a, int32_t key0, int32_t n, const float (*p)[SWL_ATTN_BLOCK], const float *c,
                       float *o, int32_t col, swl_dtype type, int n_q, int n4)
{
    int size = type == SWL_DT_F16 ? 2 : 4, h, i;
    const uint8_t *v = a->v + key0 * a->row_bytes + (int64_t)col * size;
    float32x4_t acc[QUERIES][4], x[4];
    int32_t j;

#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
        for (i = 0; i < n4; i++)
            acc[h][i] = vmulq_n_f32(vld1q_f32(o + h * a->dim + col + 4 * i), c[h]);
    for (j = 0; j < n; j++, v += a->row_bytes) {
#pragma GCC unroll 16
        for (i = 0; i < n4; i++)
            x[i] = load4(type, v + 4 * i * size);
#pragma GCC unroll 16
        for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
            for (i = 0; i < n4; i++)
                acc[h][i] = vfmaq_n_f32(acc[h][i], x[i], p[h][j]);
    }
#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
        for (i = 0; i < n4; i++)
            vst1q_f32(o + h * a->dim + col + 4 * i, acc[h][i]);
}

/* The columns after the last four. */
static void add_values_tail(const part *a, int32_t key0, int32_t n, const float (*p)[SWL_ATTN_BLOCK], const float *c,
                            float *o, int32_t col, swl_dtype type, int n_q)
{
    int size = type == SWL_DT_F16 ? 2 : 4, h;
    int32_t j;

    for (; col < a->dim; col++)
#pragma GCC unroll 16
        for (h = 0; h < n_q; h++) {
            const uint8_t *v = a->v + key0 * a->row_bytes + (int64_t)col * size;
            float acc = o[h * a->dim + col] * c[h], x;

            for (j = 0; j < n; j++, v += a->row_bytes) {
                swl_dtype_to_f32(type, v, &x, 1);
                acc = fmaf(p[h][j], x, acc);
            }
            o[h * a->dim + col] = acc;
        }
}

/* A block of at most SWL_ATTN_BLOCK keys added to the running results of n_q queries. */
INLINE void attend_block(const part *a, const float *q, int32_t key0, int32_t n, float *m, float *l, float *o,
                         swl_dtype type, int n_q)
{
    float p[QUERIES][SWL_ATTN_BLOCK], c[QUERIES], max;
    int32_t col = 0;
    int h;

    for (h = 0; h + 2 <= n_q; h += 2)
        scores(a, q + h * a->dim, key0, n, p + h, type, 2);
    if (h < n_q)
        scores(a, q + h * a->dim, key0, n, p + h, type, 1);
    for (h = 0; h < n_q; h++) {
        max = max_of(p[h], n, m[h]);
        c[h] = ref_exp(m[h] - max);
        l[h] = fmaf(l[h], c[h], exp_sum(p[h], p[h], n, max));
        m[h] = max;
    }
    for (; col + 16 <= a->dim; col += 16)
        add_values(a, key0, n, (const float(*)[SWL_ATTN_BLOCK])p, c, o, col, type, n_q, 4);
    for (; col + 4 <= a->dim; col += 4)
        add_values(a, key0, n, (const float(*)[SWL_ATTN_BLOCK])p, c, o, col, type, n_q, 1);
    if (col < a->dim)
        add_values_tail(a, key0, n, (const float(*)[SWL_ATTN_BLOCK])p, c, o, col, type, n_q);
}

INLINE void attend(const part *a, const float *q, int32_t n_keys, float *m, float *l, float *o, swl_dtype type, int n_q)
{
    int32_t key, i;

    for (i = 0; i < n_q; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
    }
    for (i = 0; i < n_q * a->dim; i++)
        o[i] = 0.0f;
    for (key = 0; key < n_keys; key += SWL_ATTN_BLOCK)
        attend_block(a, q, key, min_i32(SWL_ATTN_BLOCK, n_keys - key), m, l, o, type, n_q);
}

INLINE void attend_row(const float *q, int32_t n_q, int32_t n_keys, const part *a, float *m, float *l, float *o,
                       swl_dtype type)
{
    int32_t h = 0;

    for (; h + 4 <= n_q; h += 4)
        attend(a, q + h * a->dim, n_keys, m + h, l + h, o + h * a->dim, type, 4);
    if (h + 2 <= n_q) {
        attend(a, q + h * a->dim, n_keys, m + h, l + h, o + h * a->dim, type, 2);
        h += 2;
    }
    if (h < n_q)
        attend(a, q + h * a->dim, n_keys, m + h, l + h, o + h * a->dim, type, 1);
}

INLINE void attn(const float *q, int32_t n_rows, int32_t n_q, int32_t n_keys, const part *a, float *m, float *l,
                 float *o, swl_dtype type)
{
    int32_t row, i;

    assert(n_keys <= SWL_ATTN_SEGMENT);
    for (row = 0; row < n_rows; row++) {
        i = row * n_q;
        attend_row(q + i * a->dim, n_q, min_i32(n_keys + row, SWL_ATTN_SEGMENT), a, m + i, l + i, o + i * a->dim, type);
    }
}

void swl_attn_f16_neon(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    part a = {k, v, 2 * ldkv, dim, scale};

    attn(q, n_rows, n_q, n_keys, &a, m, l, o, SWL_DT_F16);
}

void swl_attn_f32_neon(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    part a = {k, v, 4 * ldkv, dim, scale};

    attn(q, n_rows, n_q, n_keys, &a, m, l, o, SWL_DT_F32);
}
