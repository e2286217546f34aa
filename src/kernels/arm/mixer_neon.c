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

enum { QUERIES = 4 }; /* that share a pass over the keys and the values */

enum {
    LINE = 2 * SWL_KV_BLOCK, /* integers of a line: a pair for each of sixteen sums */
    TILE = LINE / 2,         /* a tile has a line for two of so many integers */
    AT_ONCE = 2              /* queries that a line is loaded for */
};

/* A step: the keys that a row sees of up to SWL_ATTN_BLOCK. */
typedef struct kv_step {
    float weight[SWL_ATTN_BLOCK]; /* what a probability of 1 is as an integer; 0 past the last key */
    swl_kv kv;                    /* from the first of the keys on */
    int32_t n, padded, dim;       /* padded: n with the rest of the last sixteen */
    float unit;                   /* what one of these integers counts */
} kv_step;

/* Four scales from key j of a step on. */
INLINE float32x4_t load_scales(const kv_step *s, const float *scale, int32_t j)
{
    return vld1q_f32(scale + j / SWL_KV_BLOCK * s->kv.ld_scale + j % SWL_KV_BLOCK);
}

static void begin_step(kv_step *s, const swl_kv *kv, int32_t key0, int32_t n, int32_t dim)
{
    int32_t first = key0 / SWL_KV_BLOCK, j;
    float32x4_t max = vdupq_n_f32(0.0f), x;
    float top, inv;

    s->kv = *kv;
    s->kv.k += first * kv->ld;
    s->kv.v += first * kv->ld;
    s->kv.k_scale += first * kv->ld_scale;
    s->kv.v_scale += first * kv->ld_scale;
    s->n = n;
    s->padded = (n + SWL_KV_BLOCK - 1) / SWL_KV_BLOCK * SWL_KV_BLOCK;
    s->dim = dim;
    for (j = 0; j < s->padded; j += 4) {
        x = vbslq_f32(first4(n - j), load_scales(s, s->kv.v_scale, j), vdupq_n_f32(0.0f));
        max = vbslq_f32(vcgtq_f32(x, max), x, max); /* which is never NaN */
        vst1q_f32(s->weight + j, x);
    }
    top = vmaxvq_f32(max);
    s->unit = top / SWL_KV_WEIGHT_MAX;
    inv = top > 0.0f ? SWL_KV_WEIGHT_MAX / top : 0.0f;
    for (j = 0; j < s->padded; j += 4)
        vst1q_f32(s->weight + j, vmulq_n_f32(vld1q_f32(s->weight + j), inv));
}

INLINE void clear_sums(int n_q, int32x4_t (*acc)[8])
{
    int h, i;

#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
        for (i = 0; i < 8; i++)
            acc[h][i] = vdupq_n_s32(0);
}

/* acc[query] += a tile's lines times the query's pairs, which lie ld apart; the two products of a pair stay apart. */
INLINE void multiply_tile(const int16_t *tile, const int16_t *pairs, int32_t ld, int n_q, int32x4_t (*acc)[8])
{
    int32_t line, both;
    int h, i;

#pragma GCC unroll 2 /* with more gcc copies sums */
    for (line = 0; line < TILE / 2; line++, tile += LINE, pairs += 2) {
        const int16x8_t x[4] = {vld1q_s16(tile), vld1q_s16(tile + 8), vld1q_s16(tile + 16), vld1q_s16(tile + 24)};

#pragma GCC unroll 16
        for (h = 0; h < n_q; h++) {
            int16x8_t pair;

            memcpy(&both, pairs + h * ld, sizeof both);
            pair = vreinterpretq_s16_s32(vdupq_n_s32(both));
#pragma GCC unroll 16
            for (i = 0; i < 4; i++) {
                acc[h][2 * i] = vmlal_s16(acc[h][2 * i], vget_low_s16(x[i]), vget_low_s16(pair));
                acc[h][2 * i + 1] = vmlal_high_s16(acc[h][2 * i + 1], x[i], pair);
            }
        }
    }
}

/* sum[query]: the products of n_q queries with sixteen keys from j on. */
INLINE void multiply_keys(const kv_step *s, const int16_t *q, int32_t j, int32_t (*sum)[SWL_ATTN_BLOCK], int n_q)
{
    const int16_t *tile = s->kv.k + j / SWL_KV_BLOCK * s->kv.ld;
    int32x4_t acc[AT_ONCE][8];
    int32_t i;
    int h;

    clear_sums(n_q, acc);
    for (i = 0; i < s->dim; i += TILE, tile += TILE * SWL_KV_BLOCK)
        multiply_tile(tile, q + i, s->dim, n_q, acc);
#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
        for (i = 0; i < 4; i++)
            vst1q_s32(sum[h] + j + 4 * i, vpaddq_s32(acc[h][2 * i], acc[h][2 * i + 1]));
}

/* Products to scores, of which *top is the largest, and these to probabilities, 0 past the last key: their sum is
 * returned, w is what they are as integers, NaN as 0. */
static float weigh(const kv_step *s, const int32_t *sum, float q_scale, int16_t *w, float *top)
{
    float32x4_t none = vdupq_n_f32(-INFINITY), low = vdupq_n_f32(0.0f), max = none, x;
    float p[SWL_ATTN_BLOCK], total;
    int32_t j;

    for (j = 0; j < s->padded; j += 4) {
        x = vmulq_f32(vcvtq_f32_s32(vld1q_s32(sum + j)), vmulq_n_f32(load_scales(s, s->kv.k_scale, j), q_scale));
        x = vbslq_f32(first4(s->n - j), x, none);
        max = vmaxnmq_f32(max, x);
        vst1q_f32(p + j, x);
    }
    *top = vmaxnmvq_f32(max) + 0.0f;
    total = exp_sum(p, p, s->padded, *top);
    for (j = 0; j < s->padded; j += 4) {
        x = vrndnq_f32(vmulq_f32(vld1q_f32(p + j), vld1q_f32(s->weight + j)));
        x = vminq_f32(vbslq_f32(vcgeq_f32(x, low), x, low), vdupq_n_f32((float)SWL_KV_WEIGHT_MAX));
        vst1_s16(w + j, vmovn_s32(vcvtq_s32_f32(x)));
    }
    return total;
}

/* o = fma(sum of w_j v_j, unit, o * keep), for sixteen elements from col on of the outputs of n_q queries. */
INLINE void add_weighted(const kv_step *s, int32_t col, const int16_t (*w)[SWL_ATTN_BLOCK], const float *unit,
                         const float *keep, float *o, int n_q)
{
    const int16_t *tile = s->kv.v + col * SWL_KV_BLOCK;
    int32x4_t acc[AT_ONCE][8];
    int32_t j;
    int h, i;

    clear_sums(n_q, acc);
    for (j = 0; j < s->n; j += TILE, tile += s->kv.ld)
        multiply_tile(tile, w[0] + j, SWL_ATTN_BLOCK, n_q, acc);
#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
        for (i = 0; i < 4; i++) {
            float *out = o + h * s->dim + col + 4 * i;
            float32x4_t sum = vcvtq_f32_s32(vpaddq_s32(acc[h][2 * i], acc[h][2 * i + 1]));

            vst1q_f32(out, vfmaq_n_f32(vmulq_n_f32(vld1q_f32(out), keep[h]), sum, unit[h]));
        }
}

/* A step of n_q queries. */
INLINE void attend_kv(const kv_step *s, const int16_t *q, const float *q_scale, float *m, float *l, float *o, int n_q)
{
    int32_t sum[AT_ONCE][SWL_ATTN_BLOCK], i;
    int16_t w[AT_ONCE][SWL_ATTN_BLOCK];
    float unit[AT_ONCE], keep[AT_ONCE];
    int h;

    for (i = 0; i < s->n; i += SWL_KV_BLOCK)
        multiply_keys(s, q, i, sum, n_q);
    for (h = 0; h < n_q; h++) {
        float top, total = weigh(s, sum[h], q_scale[h], w[h], &top);

        unit[h] = ref_renormalise(top, total, &m[h], &l[h], &keep[h]) * s->unit;
    }
    for (i = 0; i < s->dim; i += TILE)
        add_weighted(s, i, (const int16_t(*)[SWL_ATTN_BLOCK])w, unit, keep, o, n_q);
}

static void attend_kv_row(const kv_step *s, const int16_t *q, const float *q_scale, int32_t n_q, float *m, float *l,
                          float *o)
{
    int32_t dim = s->dim, h;

    for (h = 0; h + 2 <= n_q; h += 2)
        attend_kv(s, q + h * dim, q_scale + h, m + h, l + h, o + h * dim, 2);
    if (h < n_q)
        attend_kv(s, q + h * dim, q_scale + h, m + h, l + h, o + h * dim, 1);
}

/* All queries of all rows take a step before any takes the next, so that its keys and values come from memory once. */
void swl_attn_kv_neon(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                      int32_t n_keys, float *m, float *l, float *o)
{
    int32_t key, row, n, i;
    kv_step s;

    assert(n_keys <= SWL_ATTN_SEGMENT && dim % 16 == 0);
    ref_clear_results(n_rows * n_q, dim, m, l, o);
    for (key = 0; key < SWL_ATTN_SEGMENT; key += SWL_ATTN_BLOCK)
        for (row = 0; row < n_rows; row++) {
            n = min_i32(n_keys + row, SWL_ATTN_SEGMENT) - key;
            i = row * n_q;
            if (n <= 0)
                continue;
            begin_step(&s, kv, key, min_i32(n, SWL_ATTN_BLOCK), dim);
            attend_kv_row(&s, q + i * dim, q_scale + i, n_q, m + i, l + i, o + i * dim);
        }
}

/* ---- attention in float32 ---------------------------------------------------------------------------------------- */

typedef struct part {
    const float *k, *v;
    int64_t ld;
    int32_t dim;
    float scale;
} part;

/* acc += the products of sixteen elements of n_q queries with n_k keys; with n < 16 only of the first n. */
INLINE void multiply16(const float *q, int32_t dim, const float *const *k, int32_t col, int32_t n,
                       float32x4_t (*acc)[4], int n_q, int n_k)
{
    float32x4_t x[2][4], key[4];
    int h, j, i;

#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
        if (n == SWL_LANES)
            load16(SWL_DT_F32, (const uint8_t *)(q + h * dim + col), x[h]);
        else
            load_part16(SWL_DT_F32, (const uint8_t *)(q + h * dim + col), n, x[h]);
#pragma GCC unroll 16
    for (j = 0; j < n_k; j++) {
        if (n == SWL_LANES)
            load16(SWL_DT_F32, (const uint8_t *)(k[j] + col), key);
        else
            load_part16(SWL_DT_F32, (const uint8_t *)(k[j] + col), n, key);
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
INLINE float32x4_t four_dots(const float *q, int32_t dim, const float *const *k, int n_q)
{
    float32x4_t acc[4][4];
    int32_t col, i;

#pragma GCC unroll 16
    for (i = 0; i < 4; i++)
        clear_lanes(acc[i]);
    for (col = 0; col + SWL_LANES <= dim; col += SWL_LANES)
        multiply16(q, dim, k, col, SWL_LANES, acc, n_q, 4 / n_q);
    if (col < dim)
        multiply16(q, dim, k, col, dim - col, acc, n_q, 4 / n_q);
    return fold_four(fold_to_4(acc[0]), fold_to_4(acc[1]), fold_to_4(acc[2]), fold_to_4(acc[3]));
}

/* Scores of n_q queries (1 or 2) with n keys. Keys past the last are read as the last, and their scores not used. */
INLINE void scores(const part *a, const float *q, int32_t key0, int32_t n, float (*p)[SWL_ATTN_BLOCK], int n_q)
{
    int32_t step = 4 / n_q, j, i;

    for (j = 0; j < n; j += step) {
        const float *k[4];
        float32x4_t s;

#pragma GCC unroll 16
        for (i = 0; i < step; i++)
            k[i] = a->k + (key0 + min_i32(j + i, n - 1)) * a->ld;
        s = vmulq_n_f32(four_dots(q, a->dim, k, n_q), a->scale);
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
                       float *o, int32_t col, int n_q, int n4)
{
    const float *v = a->v + key0 * a->ld + col;
    float32x4_t acc[QUERIES][4], x[4];
    int32_t j;
    int h, i;

#pragma GCC unroll 16
    for (h = 0; h < n_q; h++)
#pragma GCC unroll 16
        for (i = 0; i < n4; i++)
            acc[h][i] = vmulq_n_f32(vld1q_f32(o + h * a->dim + col + 4 * i), c[h]);
    for (j = 0; j < n; j++, v += a->ld) {
#pragma GCC unroll 16
        for (i = 0; i < n4; i++)
            x[i] = vld1q_f32(v + 4 * i);
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
                            float *o, int32_t col, int n_q)
{
    int32_t j;
    int h;

    for (; col < a->dim; col++)
#pragma GCC unroll 16
        for (h = 0; h < n_q; h++) {
            const float *v = a->v + key0 * a->ld + col;
            float acc = o[h * a->dim + col] * c[h];

            for (j = 0; j < n; j++, v += a->ld)
                acc = fmaf(p[h][j], *v, acc);
            o[h * a->dim + col] = acc;
        }
}

/* A block of at most SWL_ATTN_BLOCK keys added to the running results of n_q queries. */
INLINE void attend_block(const part *a, const float *q, int32_t key0, int32_t n, float *m, float *l, float *o, int n_q)
{
    float p[QUERIES][SWL_ATTN_BLOCK], c[QUERIES], max;
    int32_t col = 0;
    int h;

    for (h = 0; h + 2 <= n_q; h += 2)
        scores(a, q + h * a->dim, key0, n, p + h, 2);
    if (h < n_q)
        scores(a, q + h * a->dim, key0, n, p + h, 1);
    for (h = 0; h < n_q; h++) {
        max = max_of(p[h], n, m[h]);
        c[h] = ref_exp(m[h] - max);
        l[h] = fmaf(l[h], c[h], exp_sum(p[h], p[h], n, max));
        m[h] = max;
    }
    for (; col + 16 <= a->dim; col += 16)
        add_values(a, key0, n, (const float(*)[SWL_ATTN_BLOCK])p, c, o, col, n_q, 4);
    for (; col + 4 <= a->dim; col += 4)
        add_values(a, key0, n, (const float(*)[SWL_ATTN_BLOCK])p, c, o, col, n_q, 1);
    if (col < a->dim)
        add_values_tail(a, key0, n, (const float(*)[SWL_ATTN_BLOCK])p, c, o, col, n_q);
}

INLINE void attend(const part *a, const float *q, int32_t n_keys, float *m, float *l, float *o, int n_q)
{
    int32_t key;

    ref_clear_results(n_q, a->dim, m, l, o);
    for (key = 0; key < n_keys; key += SWL_ATTN_BLOCK)
        attend_block(a, q, key, min_i32(SWL_ATTN_BLOCK, n_keys - key), m, l, o, n_q);
}

INLINE void attend_row(const float *q, int32_t n_q, int32_t n_keys, const part *a, float *m, float *l, float *o)
{
    int32_t h = 0;

    for (; h + 4 <= n_q; h += 4)
        attend(a, q + h * a->dim, n_keys, m + h, l + h, o + h * a->dim, 4);
    if (h + 2 <= n_q) {
        attend(a, q + h * a->dim, n_keys, m + h, l + h, o + h * a->dim, 2);
        h += 2;
    }
    if (h < n_q)
        attend(a, q + h * a->dim, n_keys, m + h, l + h, o + h * a->dim, 1);
}

void swl_attn_f32_neon(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    part a = {k, v, ldkv, dim, scale};
    int32_t row, i;

    assert(n_keys <= SWL_ATTN_SEGMENT);
    for (row = 0; row < n_rows; row++) {
        i = row * n_q;
        attend_row(q + i * dim, n_q, min_i32(n_keys + row, SWL_ATTN_SEGMENT), &a, m + i, l + i, o + i * dim);
    }
}
