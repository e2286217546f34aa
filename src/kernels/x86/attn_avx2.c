/*
 * attn_avx2.c: one part of softmax attention, up to four query heads of a KV head together. In float32 heads whose size is
 * no multiple of sixteen are left to the reference.
 */
#include "kernels/x86/x86.h"

#include <assert.h>
#include <stdalign.h>

#include "kernels/ref/ref.h"
#include "kernels/x86/math_avx2.h"

enum {
    HEADS = 4,
    BLOCK = SWL_ATTN_BLOCK,
    AHEAD = 8 /* keys between the one at work and the one that is asked for */
};

/* Asks for what lies `bytes` from p on. Rows of other heads lie between those of one, an order that no processor guesses. */
INLINE void ask(const void *p, int64_t bytes)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)bytes), _MM_HINT_T1);
}

/* ---- over integers --------------------------------------------------------------------------------------- */

enum {
    LINE = 2 * SWL_KV_BLOCK, /* integers of a line: a pair for each of sixteen sums */
    TILE = LINE / 2          /* a tile has a line for two of so many integers */
};

/* A step: the keys that a row sees of up to SWL_ATTN_BLOCK. */
typedef struct kv_step {
    alignas(32) float weight[BLOCK]; /* what a probability of 1 is as an integer; 0 past the last key */
    swl_kv kv;                       /* from the first of the keys on */
    int32_t n, padded, dim;          /* padded: n with the rest of the last sixteen */
    float unit;                      /* what one of these integers counts */
} kv_step;

/* All ones in the first n elements. */
INLINE __m256 first8(int32_t n)
{
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}

/* Eight scales from key j of a step on. */
INLINE __m256 load_scales(const kv_step *s, const float *scale, int32_t j)
{
    return _mm256_loadu_ps(scale + j / SWL_KV_BLOCK * s->kv.ld_scale + j % SWL_KV_BLOCK);
}

static void begin_step(kv_step *s, const swl_kv *kv, int32_t key0, int32_t n, int32_t dim)
{
    __m256 max = _mm256_setzero_ps(), inv, x;
    int32_t first = key0 / SWL_KV_BLOCK, j;
    float top;

    s->kv = *kv;
    s->kv.k += first * kv->ld;
    s->kv.v += first * kv->ld;
    s->kv.k_scale += first * kv->ld_scale;
    s->kv.v_scale += first * kv->ld_scale;
    s->n = n;
    s->padded = (n + SWL_KV_BLOCK - 1) / SWL_KV_BLOCK * SWL_KV_BLOCK;
    s->dim = dim;
    for (j = 0; j < s->padded; j += 8) { /* the second operand wins over a NaN in the first */
        x = _mm256_and_ps(load_scales(s, s->kv.v_scale, j), first8(n - j));
        max = _mm256_max_ps(x, max);
        _mm256_store_ps(s->weight + j, x);
    }
    top = max8(max);
    s->unit = top / SWL_KV_WEIGHT_MAX;
    inv = _mm256_set1_ps(top > 0.0f ? SWL_KV_WEIGHT_MAX / top : 0.0f);
    for (j = 0; j < s->padded; j += 8)
        _mm256_store_ps(s->weight + j, _mm256_mul_ps(_mm256_load_ps(s->weight + j), inv));
}

INLINE void clear_sums(int n_q, __m256i (*acc)[2])
{
    int h;

#pragma GCC unroll 4
    for (h = 0; h < n_q; h++)
        acc[h][0] = acc[h][1] = _mm256_setzero_si256();
}

/* acc[query] += the sixteen sums of a tile's lines times the query's pairs, which lie ld apart. */
INLINE void multiply_tile(const int16_t *tile, const int16_t *pairs, int32_t ld, int n_q, __m256i (*acc)[2])
{
    __m256i low, high, pair;
    int32_t both;
    int i, h;

#pragma GCC unroll 2 /* with more gcc puts the sums off and has no registers for what they are of */
    for (i = 0; i < TILE / 2; i++) {
        low = _mm256_loadu_si256((const void *)(tile + i * LINE));
        high = _mm256_loadu_si256((const void *)(tile + i * LINE + LINE / 2));
#pragma GCC unroll 4
        for (h = 0; h < n_q; h++) {
            memcpy(&both, pairs + h * ld + 2 * i, sizeof both);
            pair = _mm256_set1_epi32(both);
            acc[h][0] = _mm256_add_epi32(acc[h][0], _mm256_madd_epi16(low, pair));
            acc[h][1] = _mm256_add_epi32(acc[h][1], _mm256_madd_epi16(high, pair));
        }
    }
}

/* sum[query]: the products with sixteen keys from j on. The first queries ask for the keys after these and for their values. */
INLINE void multiply_keys(const kv_step *s, const int16_t *q, int32_t j, int n_q, bool first, int32_t (*sum)[BLOCK])
{
    int64_t at = j / SWL_KV_BLOCK * s->kv.ld;
    __m256i acc[HEADS][2];
    int32_t i;
    int h;

    clear_sums(n_q, acc);
    for (i = 0; i < s->dim; i += TILE, at += TILE * SWL_KV_BLOCK) {
        for (h = 0; h < TILE / 2 && first; h++) {
            ask(s->kv.k + at + h * LINE, 2 * s->kv.ld);
            ask(s->kv.v + at + h * LINE, 0);
        }
        multiply_tile(s->kv.k + at, q + i, s->dim, n_q, acc);
    }
#pragma GCC unroll 4
    for (h = 0; h < n_q; h++) {
        _mm256_store_si256((void *)(sum[h] + j), acc[h][0]);
        _mm256_store_si256((void *)(sum[h] + j + 8), acc[h][1]);
    }
}

/* A probability as an integer, NaN as 0. */
INLINE __m256i weigh_8(__m256 e, __m256 weight)
{
    __m256 r = _mm256_round_ps(_mm256_mul_ps(e, weight), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

    return _mm256_cvtps_epi32(
        _mm256_min_ps(_mm256_max_ps(r, _mm256_setzero_ps()), _mm256_set1_ps((float)SWL_KV_WEIGHT_MAX)));
}

/* Products to scores, of which *top is the largest, and these to probabilities, 0 past the last key: their sum is
 * returned, w is what they are as integers. */
static float weigh(const kv_step *s, const int32_t *sum, float q_scale, int16_t *w, float *top)
{
    __m256 low = _mm256_setzero_ps(), high = low, max = _mm256_set1_ps(-INFINITY), none = max, x, y;
    alignas(32) float p[BLOCK];
    __m256i words;
    int32_t j;

    for (j = 0; j < s->padded; j += 8) {
        x = _mm256_mul_ps(_mm256_set1_ps(q_scale), load_scales(s, s->kv.k_scale, j));
        x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_load_si256((const void *)(sum + j))), x);
        x = _mm256_blendv_ps(none, x, first8(s->n - j));
        max = _mm256_max_ps(x, max);
        _mm256_store_ps(p + j, x);
    }
    *top = max8(max) + 0.0f;
    for (j = 0; j < s->padded; j += 16) {
        x = exp8(_mm256_sub_ps(_mm256_load_ps(p + j), _mm256_set1_ps(*top)));
        y = exp8(_mm256_sub_ps(_mm256_load_ps(p + j + 8), _mm256_set1_ps(*top)));
        low = _mm256_add_ps(low, x);
        high = _mm256_add_ps(high, y);
        words = _mm256_packs_epi32(weigh_8(x, _mm256_load_ps(s->weight + j)),
                                   weigh_8(y, _mm256_load_ps(s->weight + j + 8)));
        _mm256_store_si256((void *)(w + j), _mm256_permute4x64_epi64(words, 0xd8));
    }
    return fold_pair(low, high);
}

INLINE void add_to_output(float *o, __m256i sum, float unit, float keep)
{
    __m256 old = _mm256_mul_ps(_mm256_loadu_ps(o), _mm256_set1_ps(keep));

    _mm256_storeu_ps(o, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(unit), old));
}

/* o = fma(sum of w_j v_j, unit, o * keep), for sixteen elements from i on. */
INLINE void add_weighted(const kv_step *s, int32_t i, int n_q, const int16_t (*w)[BLOCK], const float *unit,
                         const float *keep, float *o)
{
    const int16_t *tile = s->kv.v + i * SWL_KV_BLOCK;
    __m256i acc[HEADS][2];
    int32_t j;
    int h;

    clear_sums(n_q, acc);
    for (j = 0; j < s->n; j += TILE, tile += s->kv.ld)
        multiply_tile(tile, w[0] + j, BLOCK, n_q, acc);
#pragma GCC unroll 4
    for (h = 0; h < n_q; h++) {
        add_to_output(o + h * s->dim + i, acc[h][0], unit[h], keep[h]);
        add_to_output(o + h * s->dim + i + 8, acc[h][1], unit[h], keep[h]);
    }
}

/* A step of n_q queries, its `first` or not. */
INLINE void attend_kv(const kv_step *s, const int16_t *q, const float *q_scale, int n_q, bool first, float *m, float *l,
                      float *o)
{
    alignas(32) int32_t sum[HEADS][BLOCK];
    alignas(32) int16_t w[HEADS][BLOCK];
    float unit[HEADS], keep[HEADS];
    int32_t i;
    int h;

    for (i = 0; i < s->n; i += SWL_KV_BLOCK)
        multiply_keys(s, q, i, n_q, first, sum);
    for (h = 0; h < n_q; h++) {
        float top, total = weigh(s, sum[h], q_scale[h], w[h], &top);

        unit[h] = ref_renormalise(top, total, &m[h], &l[h], &keep[h]) * s->unit;
    }
    for (i = 0; i < s->dim; i += TILE)
        add_weighted(s, i, n_q, (const int16_t(*)[BLOCK])w, unit, keep, o);
}

static void attend_kv_row(const kv_step *s, const int16_t *q, const float *q_scale, int32_t n_q, bool first, float *m,
                          float *l, float *o)
{
    int32_t dim = s->dim, h;

    for (h = 0; h + 4 <= n_q; h += 4)
        attend_kv(s, q + h * dim, q_scale + h, 4, first && !h, m + h, l + h, o + h * dim);
    for (; h + 2 <= n_q; h += 2)
        attend_kv(s, q + h * dim, q_scale + h, 2, first && !h, m + h, l + h, o + h * dim);
    for (; h < n_q; h++)
        attend_kv(s, q + h * dim, q_scale + h, 1, first && !h, m + h, l + h, o + h * dim);
}

/* All queries of all rows take a step before any takes the next, so that its keys and values come from memory once. */
void swl_attn_kv_avx2(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                      int32_t n_keys, float *m, float *l, float *o)
{
    int32_t key, row, n, i;
    kv_step s;

    assert(n_keys <= SWL_ATTN_SEGMENT && dim % 16 == 0);
    ref_clear_results(n_rows * n_q, dim, m, l, o);
    for (key = 0; key < SWL_ATTN_SEGMENT; key += BLOCK)
        for (row = 0; row < n_rows; row++) {
            n = min_i32(n_keys + row, SWL_ATTN_SEGMENT) - key;
            i = row * n_q;
            if (n <= 0)
                continue;
            begin_step(&s, kv, key, min_i32(n, BLOCK), dim);
            attend_kv_row(&s, q + i * dim, q_scale + i, n_q, !row, m + i, l + i, o + i * dim);
        }
}

/* ---- in float32 ------------------------------------------------------------------------------------------ */

typedef struct cache {
    const float *k, *v;
    int64_t ld;
    int32_t dim;
    float scale;
} cache;

/* p[head][j]: the scaled score of one key. On the way a later key is asked for, and the value that the score will be
 * used for. */
INLINE void score(const cache *c, const float *q, int32_t key, int32_t j, int heads, float (*p)[BLOCK])
{
    __m256 low[HEADS], high[HEADS], a, b;
    int32_t i;
    int h;

#pragma GCC unroll 4
    for (h = 0; h < heads; h++)
        low[h] = high[h] = _mm256_setzero_ps();
    for (i = 0; i < c->dim; i += 16) {
        a = _mm256_loadu_ps(c->k + key * c->ld + i);
        b = _mm256_loadu_ps(c->k + key * c->ld + i + 8);
        ask(c->k, 4 * ((key + AHEAD) * c->ld + i));
        ask(c->v, 4 * (key * c->ld + i));
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
INLINE void add_values(const cache *c, int32_t key0, int32_t n, int32_t col, int heads, const float (*p)[BLOCK],
                       const float *factor, float *o)
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
        a = _mm256_loadu_ps(c->v + (key0 + j) * c->ld + col);
        b = _mm256_loadu_ps(c->v + (key0 + j) * c->ld + col + 8);
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
INLINE void attend(const cache *c, const float *q, int32_t key, int32_t n, int heads, float *m, float *l, float *o)
{
    alignas(32) float p[HEADS][BLOCK];
    float factor[HEADS];
    int32_t i;
    int h;

    for (i = 0; i < n; i++)
        score(c, q, key + i, i, heads, p);
    for (h = 0; h < heads; h++)
        factor[h] = renormalise(p[h], n, &m[h], &l[h]);
    for (i = 0; i < c->dim; i += 16)
        add_values(c, key, n, i, heads, (const float(*)[BLOCK])p, factor, o);
}

INLINE void attend_row(const cache *c, const float *q, int32_t n_q, int32_t n_keys, float *m, float *l, float *o)
{
    int32_t key, n, h;

    ref_clear_results(n_q, c->dim, m, l, o);
    for (key = 0; key < n_keys; key += BLOCK) {
        n = min_i32(BLOCK, n_keys - key);
        for (h = 0; h + 4 <= n_q; h += 4)
            attend(c, q + h * c->dim, key, n, 4, m + h, l + h, o + h * c->dim);
        for (; h + 2 <= n_q; h += 2)
            attend(c, q + h * c->dim, key, n, 2, m + h, l + h, o + h * c->dim);
        for (; h < n_q; h++)
            attend(c, q + h * c->dim, key, n, 1, m + h, l + h, o + h * c->dim);
    }
}

void swl_attn_f32_avx2(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    cache c = {k, v, ldkv, dim, scale};
    int32_t row, i;

    if (dim % 16) {
        swl_attn_f32_ref(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o);
        return;
    }
    for (row = 0; row < n_rows; row++) {
        i = row * n_q;
        attend_row(&c, q + i * dim, n_q, min_i32(n_keys + row, SWL_ATTN_SEGMENT), m + i, l + i, o + i * dim);
    }
}
