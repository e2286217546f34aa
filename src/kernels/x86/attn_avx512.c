/*
 * attn_avx512.c: one part of softmax attention. Query heads of one KV head go through the keys together, so that a key
 * or value is widened from float16 once for up to eight of them; blocks, order and lanes are those of the contract.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx512.h"

enum {
    HEADS = 8,
    BLOCK = SWL_ATTN_BLOCK,
    AHEAD = 8 /* keys between the one at work and the one that is asked for */
};

typedef struct cache {
    const uint8_t *k, *v;
    int64_t ld; /* elements */
    int32_t dim;
    float scale;
} cache;

/* Sixteen elements from `at`, those outside the mask 0 and not read. */
INLINE __m512 load_kv(const uint8_t *p, int64_t at, __mmask16 m, bool half)
{
    return half ? _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p + 2 * at)) : _mm512_maskz_loadu_ps(m, p + 4 * at);
}

/* Asks for elements from `at` on. Rows of other heads lie between those of one, an order that no processor guesses. */
INLINE void ask(const uint8_t *p, int64_t at, bool half)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)((half ? 2 : 4) * at)), _MM_HINT_T1);
}

/* lanes[head][key]: the sixteen lanes of q . k for n_keys keys from key0 on. On the way a later key is asked for, and the
 * value that the scores will be used for. */
INLINE void dot_lanes(const cache *c, const float *q, int32_t key, int heads, bool half, float (*lanes)[16][16],
                      int32_t slot)
{
    __m512 acc[HEADS];
    int32_t i;
    int h;

#pragma GCC unroll 8
    for (h = 0; h < heads; h++)
        acc[h] = _mm512_setzero_ps();
    for (i = 0; i + 16 <= c->dim; i += 16) {
        __m512 k = load_kv(c->k, key * c->ld + i, 0xffff, half);

        if (!half || i % 32 == 0)
            ask(c->k, (key + AHEAD) * c->ld + i, half);
        if (!half || i % 32 == 16)
            ask(c->v, key * c->ld + i - (half ? 16 : 0), half);
#pragma GCC unroll 8
        for (h = 0; h < heads; h++)
            acc[h] = _mm512_fmadd_ps(_mm512_loadu_ps(q + h * c->dim + i), k, acc[h]);
    }
    if (i < c->dim) {
        __mmask16 m = low16(c->dim - i);
        __m512 k = load_kv(c->k, key * c->ld + i, m, half);

#pragma GCC unroll 8
        for (h = 0; h < heads; h++)
            acc[h] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(m, q + h * c->dim + i), k, acc[h], m);
    }
#pragma GCC unroll 8
    for (h = 0; h < heads; h++)
        _mm512_store_ps(lanes[h][slot], acc[h]);
}

/* p[head][0 .. n): scaled scores. */
INLINE void scores(const cache *c, const float *q, int32_t key0, int32_t n, int heads, bool half, float (*p)[BLOCK])
{
    alignas(64) float lanes[HEADS][16][16];
    int32_t j, i;
    int h;

    for (j = 0; j < n; j += 16) {
        for (i = 0; i < 16 && j + i < n; i++)
            dot_lanes(c, q, key0 + j + i, heads, half, lanes, i);
        for (; i < 16; i++) /* keys past the end */
            for (h = 0; h < heads; h++)
                _mm512_store_ps(lanes[h][i], _mm512_setzero_ps());
        for (h = 0; h < heads; h++)
            _mm512_store_ps(p[h] + j, _mm512_mul_ps(fold_rows(lanes[h][0], 16), _mm512_set1_ps(c->scale)));
    }
}

/* Scores to probabilities against the new maximum; m and l are updated, the factor for the old output is returned. */
static float renormalise(float *p, int32_t n, float *m, float *l)
{
    __m512 max = _mm512_set1_ps(*m), sum = _mm512_setzero_ps(), v;
    float top, factor;
    int32_t j;

    for (j = 0; j < n; j += 16)
        max = _mm512_mask_max_ps(max, low16(n - j), _mm512_load_ps(p + j), max);
    top = _mm512_reduce_max_ps(max);
    factor = _mm512_cvtss_f32(exp16(_mm512_set1_ps(*m - top)));
    for (j = 0; j < n; j += 16) {
        v = exp16(_mm512_sub_ps(_mm512_load_ps(p + j), _mm512_set1_ps(top)));
        _mm512_store_ps(p + j, v);
        sum = _mm512_mask_add_ps(sum, low16(n - j), sum, v);
    }
    *l = fmaf(*l, factor, fold16(sum));
    *m = top;
    return factor;
}

/* o = o * factor, then + p_j v_j, for `width` registers of output columns. */
INLINE void add_values(const cache *c, int32_t key0, int32_t n, int32_t col, int heads, bool half,
                       const float (*p)[BLOCK], const float *factor, float *o, int width)
{
    __m512 acc[HEADS][2], v[2];
    int32_t j;
    int h, i;

#pragma GCC unroll 8
    for (h = 0; h < heads; h++)
#pragma GCC unroll 2
        for (i = 0; i < width; i++)
            acc[h][i] =
                _mm512_mul_ps(_mm512_maskz_loadu_ps(low16(c->dim - col - 16 * i), o + h * c->dim + col + 16 * i),
                              _mm512_set1_ps(factor[h]));
    for (j = 0; j < n; j++) {
#pragma GCC unroll 2
        for (i = 0; i < width; i++)
            v[i] = load_kv(c->v, (key0 + j) * c->ld + col + 16 * i, low16(c->dim - col - 16 * i), half);
#pragma GCC unroll 8
        for (h = 0; h < heads; h++) {
            __m512 w = _mm512_set1_ps(p[h][j]);

#pragma GCC unroll 2
            for (i = 0; i < width; i++)
                acc[h][i] = _mm512_fmadd_ps(w, v[i], acc[h][i]);
        }
    }
#pragma GCC unroll 8
    for (h = 0; h < heads; h++)
#pragma GCC unroll 2
        for (i = 0; i < width; i++)
            _mm512_mask_storeu_ps(o + h * c->dim + col + 16 * i, low16(c->dim - col - 16 * i), acc[h][i]);
}

INLINE void attend(const cache *c, const float *q, int32_t n_keys, int heads, bool half, float *m, float *l, float *o)
{
    alignas(64) float p[HEADS][BLOCK];
    float factor[HEADS];
    int32_t key, n, i;
    int h;

    for (h = 0; h < heads; h++) {
        m[h] = -INFINITY;
        l[h] = 0.0f;
    }
    for (i = 0; i < heads * c->dim; i++)
        o[i] = 0.0f;
    for (key = 0; key < n_keys; key += BLOCK) {
        n = min_i32(BLOCK, n_keys - key);
        scores(c, q, key, n, heads, half, p);
        for (h = 0; h < heads; h++)
            factor[h] = renormalise(p[h], n, &m[h], &l[h]);
        for (i = 0; i + 32 <= c->dim; i += 32)
            add_values(c, key, n, i, heads, half, (const float(*)[BLOCK])p, factor, o, 2);
        for (; i < c->dim; i += 16)
            add_values(c, key, n, i, heads, half, (const float(*)[BLOCK])p, factor, o, 1);
    }
}

INLINE void attn(const float *q, int32_t n_q, int32_t dim, const void *k, const void *v, int64_t ldkv, int32_t n_keys,
                 float scale, float *m, float *l, float *o, bool half)
{
    cache c = {k, v, ldkv, dim, scale};
    int32_t h = 0;

    for (; h + 8 <= n_q; h += 8)
        attend(&c, q + h * dim, n_keys, 8, half, m + h, l + h, o + h * dim);
    for (; h + 4 <= n_q; h += 4)
        attend(&c, q + h * dim, n_keys, 4, half, m + h, l + h, o + h * dim);
    for (; h + 2 <= n_q; h += 2)
        attend(&c, q + h * dim, n_keys, 2, half, m + h, l + h, o + h * dim);
    for (; h < n_q; h++)
        attend(&c, q + h * dim, n_keys, 1, half, m + h, l + h, o + h * dim);
}

void swl_attn_f16_avx512(const float *q, int32_t n_q, int32_t dim, const void *k, const void *v, int64_t ldkv,
                         int32_t n_keys, float scale, float *m, float *l, float *o)
{
    attn(q, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o, true);
}

void swl_attn_f32_avx512(const float *q, int32_t n_q, int32_t dim, const void *k, const void *v, int64_t ldkv,
                         int32_t n_keys, float scale, float *m, float *l, float *o)
{
    attn(q, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o, false);
}
