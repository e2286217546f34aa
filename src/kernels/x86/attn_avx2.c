/*
 * attn_avx2.c: one part of softmax attention, up to four query heads of a KV head together. Heads whose size is no
 * multiple of sixteen are left to the reference.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/ref/ref.h"
#include "kernels/x86/math_avx2.h"

enum {
    HEADS = 4,
    BLOCK = SWL_ATTN_BLOCK,
    AHEAD = 8 /* keys between the one at work and the one that is asked for */
};

typedef struct cache {
    const uint8_t *k, *v;
    int64_t ld; /* elements */
    int32_t dim;
    float scale;
} cache;

INLINE __m256 load_kv(const uint8_t *p, int64_t at, bool half)
{
    return half ? _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 2 * at)))
                : _mm256_loadu_ps((const void *)(p + 4 * at));
}

/* Asks for elements from `at` on. Rows of other heads lie between those of one, an order that no processor guesses. */
INLINE void ask(const uint8_t *p, int64_t at, bool half)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)((half ? 2 : 4) * at)), _MM_HINT_T1);
}

/* p[head][j]: the scaled score of one key. On the way a later key is asked for, and the value that the score will be
 * used for. */
INLINE void score(const cache *c, const float *q, int32_t key, int32_t j, int heads, bool half, float (*p)[BLOCK])
{
    __m256 low[HEADS], high[HEADS], a, b;
    int32_t i;
    int h;

#pragma GCC unroll 4
    for (h = 0; h < heads; h++)
        low[h] = high[h] = _mm256_setzero_ps();
    for (i = 0; i < c->dim; i += 16) {
        a = load_kv(c->k, key * c->ld + i, half);
        b = load_kv(c->k, key * c->ld + i + 8, half);
        if (!half || i % 32 == 0)
            ask(c->k, (key + AHEAD) * c->ld + i, half);
        if (!half || i % 32 == 16)
            ask(c->v, key * c->ld + i - (half ? 16 : 0), half);
#pragma GCC unroll 4
        for (h = 0; h < heads; h++) {
            low[h] = _mm256_fmadd_ps(_mm256_loadu_ps(q + h * c->dim + i), a, low[h]);
            high[h] = _mm256_fmadd_ps(_mm256_loadu_ps(q + h * c->dim + i + 8), b, high[h]);
        }
    }
#pragma GCC unroll 4
    for (h = 0; h < heads; h++)
        p[h][j] = fold_pair(low[h], high[h]) * c->scale;
}

/* Scores to probabilities against the new maximum; m and l are updated, the factor for the old output is returned. */
static float renormalise(float *p, int32_t n, float *m, float *l)
{
    __m256 v = _mm256_set1_ps(*m);
    float lane[SWL_LANES] = {0}, max, factor;
    int32_t j;

    for (j = 0; j + 8 <= n; j += 8)
        v = _mm256_max_ps(_mm256_loadu_ps(p + j), v);
    max = max8(v);
    for (; j < n; j++)
        max = p[j] > max ? p[j] : max;
    factor = ref_exp(*m - max);
    for (j = 0; j + 8 <= n; j += 8) {
        v = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + j), _mm256_set1_ps(max)));
        _mm256_storeu_ps(p + j, v);
        _mm256_storeu_ps(lane + j % SWL_LANES, _mm256_add_ps(_mm256_loadu_ps(lane + j % SWL_LANES), v));
    }
    for (; j < n; j++) {
        p[j] = ref_exp(p[j] - max);
        lane[j % SWL_LANES] += p[j];
    }
    *l = fmaf(*l, factor, ref_fold(lane));
    *m = max;
    return factor;
}

/* o = o * factor, then + p_j v_j, for sixteen output columns. */
INLINE void add_values(const cache *c, int32_t key0, int32_t n, int32_t col, int heads, bool half,
                       const float (*p)[BLOCK], const float *factor, float *o)
{
    __m256 low[HEADS], high[HEADS], a, b, w;
    int32_t j;
    int h;

#pragma GCC unroll 4
    for (h = 0; h < heads; h++) {
        low[h] = _mm256_mul_ps(_mm256_loadu_ps(o + h * c->dim + col), _mm256_set1_ps(factor[h]));
        high[h] = _mm256_mul_ps(_mm256_loadu_ps(o + h * c->dim + col + 8), _mm256_set1_ps(factor[h]));
    }
    for (j = 0; j < n; j++) {
        a = load_kv(c->v, (key0 + j) * c->ld + col, half);
        b = load_kv(c->v, (key0 + j) * c->ld + col + 8, half);
#pragma GCC unroll 4
        for (h = 0; h < heads; h++) {
            w = _mm256_set1_ps(p[h][j]);
            low[h] = _mm256_fmadd_ps(w, a, low[h]);
            high[h] = _mm256_fmadd_ps(w, b, high[h]);
        }
    }
#pragma GCC unroll 4
    for (h = 0; h < heads; h++) {
        _mm256_storeu_ps(o + h * c->dim + col, low[h]);
        _mm256_storeu_ps(o + h * c->dim + col + 8, high[h]);
    }
}

/* A block of keys [key, key + n) for some heads. */
INLINE void attend(const cache *c, const float *q, int32_t key, int32_t n, int heads, bool half, float *m, float *l,
                   float *o)
{
    alignas(32) float p[HEADS][BLOCK];
    float factor[HEADS];
    int32_t i;
    int h;

    for (i = 0; i < n; i++)
        score(c, q, key + i, i, heads, half, p);
    for (h = 0; h < heads; h++)
        factor[h] = renormalise(p[h], n, &m[h], &l[h]);
    for (i = 0; i < c->dim; i += 16)
        add_values(c, key, n, i, heads, half, (const float(*)[BLOCK])p, factor, o);
}

/* All heads take a block before any takes the next, so that it comes from memory once. */
INLINE void attend_row(const cache *c, const float *q, int32_t n_q, int32_t n_keys, bool half, float *m, float *l,
                       float *o)
{
    int32_t key, n, h;

    for (h = 0; h < n_q; h++) {
        m[h] = -INFINITY;
        l[h] = 0.0f;
    }
    for (h = 0; h < n_q * c->dim; h++)
        o[h] = 0.0f;
    for (key = 0; key < n_keys; key += BLOCK) {
        n = min_i32(BLOCK, n_keys - key);
        for (h = 0; h + 4 <= n_q; h += 4)
            attend(c, q + h * c->dim, key, n, 4, half, m + h, l + h, o + h * c->dim);
        for (; h + 2 <= n_q; h += 2)
            attend(c, q + h * c->dim, key, n, 2, half, m + h, l + h, o + h * c->dim);
        for (; h < n_q; h++)
            attend(c, q + h * c->dim, key, n, 1, half, m + h, l + h, o + h * c->dim);
    }
}

INLINE void attn(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v, int64_t ldkv,
                 int32_t n_keys, float scale, float *m, float *l, float *o, bool half)
{
    cache c = {k, v, ldkv, dim, scale};
    int32_t row, i;

    for (row = 0; row < n_rows; row++) {
        i = row * n_q;
        attend_row(&c, q + i * dim, n_q, min_i32(n_keys + row, SWL_ATTN_SEGMENT), half, m + i, l + i, o + i * dim);
    }
}

void swl_attn_f16_avx2(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    if (dim % 16)
        swl_attn_f16_ref(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o);
    else
        attn(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o, true);
}

void swl_attn_f32_avx2(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    if (dim % 16)
        swl_attn_f32_ref(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o);
    else
        attn(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o, false);
}
