/*
 * attn_avx512.c: one part of softmax attention.
 *
 * In integers: queries of one KV head go through a block of keys together, be it the heads of one row or those of several
 * rows of a prompt, which see the same keys but for the last few. Keys are the lanes of scores, and columns those of
 * values; two elements of a key, and the values of two keys, share a lane. What is loaded of one side serves eight queries.
 *
 * In float32 a row at a time: up to eight heads share a key or value, and lanes are those of the contract.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "kernels/x86/tile_avx512.h"

enum {
    HEADS = 8, /* queries that share what was loaded */
    BLOCK = SWL_ATTN_BLOCK
};

/* Asks for a line. Rows of other heads lie between those of one, an order that no processor guesses. */
INLINE void ask(const void *p, int64_t bytes)
{
    _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)bytes), _MM_HINT_T1);
}

/* ---- integers -------------------------------------------------------------------------------------------- */

enum { QUERIES = 96 }; /* that go through a block together */

/* What queries have of the block at work. */
typedef struct block {
    alignas(64) float scores[QUERIES][BLOCK];
    int16_t weights[QUERIES][BLOCK];
    float k_scale[BLOCK], v_scale[BLOCK];
    float weigh[BLOCK]; /* v_scale as whole weights, for the row at work */
    float top[QUERIES]; /* the largest score, */
    float sum[QUERIES]; /* the sum of probabilities against it, */
    float old[QUERIES]; /* and what the output so far and a weight count then */
    float unit[QUERIES];
    int32_t n_keys[QUERIES]; /* that a query sees */
} block;

typedef int32_t __attribute__((may_alias, aligned(1))) pair_i16;

/* acc += products of pairs. The compiler would copy every sum in every step. */
INLINE void add_products(__m512i *acc, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(*acc) : "v"(a), "v"(b));
}

INLINE void clear(__m512i (*acc)[2], int queries)
{
    int h;

#pragma GCC unroll 8
    for (h = 0; h < queries; h++)
        acc[h][0] = acc[h][1] = _mm512_setzero_si512();
}

/* n lines at a and at b times pairs of the queries at x, x + ldx, ... Those at next_a and next_b are asked for. */
INLINE void add_lines(__m512i (*acc)[2], const int16_t *a, const int16_t *b, const int16_t *next_a,
                      const int16_t *next_b, int32_t n, const int16_t *x, int64_t ldx, int queries)
{
    int32_t i;
    int h;

    for (i = 0; i < n; i++) {
        __m512i u = _mm512_loadu_si512(a + 32 * i), v = _mm512_loadu_si512(b + 32 * i);

        ask(next_a, 64 * i);
        ask(next_b, 64 * i);
#pragma GCC unroll 8
        for (h = 0; h < queries; h++) {
            __m512i pair = _mm512_set1_epi32(((const pair_i16 *)(x + h * ldx))[i]);

            add_products(&acc[h][0], pair, u);
            add_products(&acc[h][1], pair, v);
        }
    }
}

/* The scores of keys [at, at + 32) of the block, at k and high. The values at v and ld further will be wanted then. */
INLINE void score(block *b, const int16_t *k, const int16_t *high, const int16_t *v, int64_t ld, const int16_t *q,
                  const float *q_scale, int32_t dim, int32_t at, int32_t query, int queries)
{
    __m512i acc[HEADS][2];
    int h, i;

    clear(acc, queries);
    add_lines(acc, k, high, v, v + ld, dim / 2, q + query * dim, dim, queries);
#pragma GCC unroll 8
    for (h = 0; h < queries; h++)
#pragma GCC unroll 2
        for (i = 0; i < 2; i++) {
            __m512 scale = _mm512_mul_ps(_mm512_set1_ps(q_scale[query + h]), _mm512_load_ps(b->k_scale + at + 16 * i));

            _mm512_store_ps(b->scores[query + h] + at + 16 * i, _mm512_mul_ps(_mm512_cvtepi32_ps(acc[h][i]), scale));
        }
}

/* What the values of the first n keys count, in whole weights; returns what one of these counts. */
static float weigh_values(block *b, int32_t n)
{
    __m512 max = _mm512_setzero_ps();
    float top;
    int32_t j;

    for (j = 0; j < n; j += 16)
        max = _mm512_max_ps(_mm512_maskz_loadu_ps(low16(n - j), b->v_scale + j), max);
    top = _mm512_reduce_max_ps(max);
    max = _mm512_set1_ps(top > 0.0f ? SWL_KV_WEIGHT_MAX / top : 0.0f);
    for (j = 0; j < n; j += 16)
        _mm512_store_ps(b->weigh + j, _mm512_mul_ps(_mm512_load_ps(b->v_scale + j), max));
    return top / SWL_KV_WEIGHT_MAX;
}

/* Scores of the n keys that a query sees to weights, those of the others 0. */
INLINE void weigh(block *b, int32_t query, int32_t n)
{
    __m512 s[BLOCK / 16], top = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps(), p;
    __mmask16 m[BLOCK / 16];
    int i;

#pragma GCC unroll 4
    for (i = 0; i < BLOCK / 16; i++) {
        m[i] = low16(n < 16 * i ? 0 : n - 16 * i);
        s[i] = _mm512_load_ps(b->scores[query] + 16 * i);
        top = _mm512_mask_max_ps(top, m[i], s[i], top);
    }
    b->top[query] = _mm512_reduce_max_ps(top) + 0.0f;
    top = _mm512_set1_ps(b->top[query]);
#pragma GCC unroll 4
    for (i = 0; i < BLOCK / 16; i++) {
        __m512i w;

        p = exp16(_mm512_sub_ps(s[i], top));
        sum = _mm512_mask_add_ps(sum, m[i], sum, p);
        p = _mm512_max_ps(_mm512_mul_ps(p, _mm512_load_ps(b->weigh + 16 * i)), _mm512_setzero_ps());
        w = _mm512_maskz_cvt_roundps_epi32(m[i], _mm512_min_ps(p, _mm512_set1_ps(SWL_KV_WEIGHT_MAX)),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_store_si256((void *)(b->weights[query] + 16 * i), _mm512_cvtepi32_epi16(w));
    }
    b->sum[query] = fold16(sum);
}

/* The running maxima and sums of queries [first, n_q), sixteen at a time. */
INLINE void renormalise(block *b, int32_t first, int32_t n_q, float *m, float *l)
{
    int32_t i;

    for (i = first; i < n_q; i += 16) {
        __mmask16 some = low16(n_q - i);
        __m512 was = _mm512_maskz_loadu_ps(some, m + i), top = _mm512_maskz_loadu_ps(some, b->top + i);
        __m512 max = _mm512_max_ps(top, was), old = exp16(_mm512_sub_ps(was, max)),
               now = exp16(_mm512_sub_ps(top, max));
        __m512 add = _mm512_mul_ps(now, _mm512_maskz_loadu_ps(some, b->sum + i));

        _mm512_mask_storeu_ps(m + i, some, max);
        _mm512_mask_storeu_ps(l + i, some, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, l + i), old, add));
        _mm512_mask_storeu_ps(b->old + i, some, old);
        _mm512_mask_storeu_ps(b->unit + i, some, _mm512_mul_ps(now, _mm512_maskz_loadu_ps(some, b->unit + i)));
    }
}

INLINE int32_t keys_in_block(const block *b, int32_t query, int32_t key)
{
    return min_i32(b->n_keys[query] - key, BLOCK);
}

/* Columns [col, col + 16) and [high, high + 16) of the outputs: o * old + what the block at v adds. Keys that a query does
 * not see have no weight. The keys at `next` will be wanted then. */
INLINE void add_values(const block *b, const int16_t *v, const int16_t *next, int64_t ld, float *o, int32_t dim,
                       int32_t key, int32_t col, int32_t high, int32_t query, int queries)
{
    int32_t n = keys_in_block(b, query + queries - 1, key), j;
    __m512i acc[HEADS][2];
    int h, i;

    clear(acc, queries);
    for (j = 0; j < n; j += SWL_KV_BLOCK, v += ld, next += ld)
        add_lines(acc, v + col * SWL_KV_BLOCK, v + high * SWL_KV_BLOCK, next + col * SWL_KV_BLOCK,
                  next + high * SWL_KV_BLOCK, SWL_KV_BLOCK / 2, b->weights[query] + j, BLOCK, queries);
#pragma GCC unroll 8
    for (h = 0; h < queries; h++)
#pragma GCC unroll 2
        for (i = 0; i < 2; i++) {
            float *to = o + (query + h) * dim + (i ? high : col);
            __m512 was = _mm512_mul_ps(_mm512_loadu_ps(to), _mm512_set1_ps(b->old[query + h]));

            if (i == 0 || high != col)
                _mm512_storeu_ps(
                    to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[h][i]), _mm512_set1_ps(b->unit[query + h]), was));
        }
}

/* Calls fn(..., query, how many) for queries [first, end), eight, four or one at a time. */
#define BY_QUERIES(first, end, fn, ...)                                                                                \
    do {                                                                                                               \
        int32_t query_ = first;                                                                                        \
                                                                                                                       \
        for (; query_ + 8 <= end; query_ += 8)                                                                         \
            fn(__VA_ARGS__, query_, 8);                                                                                \
        for (; query_ + 4 <= end; query_ += 4)                                                                         \
            fn(__VA_ARGS__, query_, 4);                                                                                \
        for (; query_ < end; query_++)                                                                                 \
            fn(__VA_ARGS__, query_, 1);                                                                                \
    } while (0)

/* Queries from `first` on, which see something of it, against the block of keys [key, key + n). */
INLINE void attend_block(block *b, const swl_kv *kv, const int16_t *q, const float *q_scale, int32_t dim, int32_t first,
                         int32_t n_q, int32_t key, int32_t n, float *m, float *l, float *o)
{
    const int16_t *k = kv->k + key / SWL_KV_BLOCK * kv->ld, *v = kv->v + key / SWL_KV_BLOCK * kv->ld;
    int32_t at, i, col, seen = -1;
    float unit = 0.0f;

    for (at = 0; at < n; at += SWL_KV_BLOCK) {
        int64_t scales = (key + at) / SWL_KV_BLOCK * kv->ld_scale;

        _mm512_store_ps(b->k_scale + at, _mm512_loadu_ps(kv->k_scale + scales));
        _mm512_store_ps(b->v_scale + at, _mm512_loadu_ps(kv->v_scale + scales));
    }
    for (at = 0; at < n; at += 32, k += 2 * kv->ld) {
        const int16_t *high = n - at > SWL_KV_BLOCK ? k + kv->ld : k;

        BY_QUERIES(first, n_q, score, b, k, high, v + at / SWL_KV_BLOCK * kv->ld, kv->ld, q, q_scale, dim, at);
    }
    for (i = first; i < n_q; i++) {
        if (keys_in_block(b, i, key) != seen) {
            seen = keys_in_block(b, i, key);
            unit = weigh_values(b, seen);
        }
        b->unit[i] = unit;
        weigh(b, i, seen);
    }
    renormalise(b, first, n_q, m, l);
    for (col = 0; col < dim; col += 32) {
        int32_t high = dim - col > 16 ? col + 16 : col;

        BY_QUERIES(first, n_q, add_values, b, v, k, kv->ld, o, dim, key, col, high);
    }
}

/* Rows of at most QUERIES queries in all. */
static void attend_rows(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_heads, int32_t dim,
                        const swl_kv *kv, int32_t n_keys, float *m, float *l, float *o)
{
    block b;
    int32_t n_q = n_rows * n_heads, first = 0, key, i;

    memset(b.weigh, 0, sizeof b.weigh);
    for (i = 0; i < n_q; i++)
        b.n_keys[i] = min_i32(n_keys + i / n_heads, SWL_ATTN_SEGMENT);
    ref_clear_results(n_q, dim, m, l, o);
    for (key = 0; key < b.n_keys[n_q - 1]; key += BLOCK) {
        while (b.n_keys[first] <= key)
            first++;
        attend_block(&b, kv, q, q_scale, dim, first, n_q, key, keys_in_block(&b, n_q - 1, key), m, l, o);
    }
}

void swl_attn_kv_avx512(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim,
                        const swl_kv *kv, int32_t n_keys, float *m, float *l, float *o)
{
    int32_t together = QUERIES / n_q, row, n, i;

    if (!together) {
        swl_attn_kv_ref(q, q_scale, n_rows, n_q, dim, kv, n_keys, m, l, o);
        return;
    }
    for (row = 0; row < n_rows; row += n) {
        i = row * n_q;
        n = min_i32(together, n_rows - row);
        attend_rows(q + i * dim, q_scale + i, n, n_q, dim, kv, min_i32(n_keys + row, SWL_ATTN_SEGMENT), m + i, l + i,
                    o + i * dim);
    }
}

/* ---- float32 --------------------------------------------------------------------------------------------- */

enum { AHEAD = 8 }; /* keys between the one at work and the one that is asked for */

typedef struct cache {
    const float *k, *v;
    int64_t ld;
    int32_t dim;
    float scale;
} cache;

/* lanes[head][key]: the sixteen lanes of q . k for n_keys keys from key0 on. On the way a later key is asked for, and the
 * value that the scores will be used for. */
INLINE void dot_lanes(const cache *c, const float *q, int32_t key, int heads, float (*lanes)[16][16], int32_t slot)
{
    __m512 acc[HEADS];
    int32_t i;
    int h;

#pragma GCC unroll 8
    for (h = 0; h < heads; h++)
        acc[h] = _mm512_setzero_ps();
    for (i = 0; i + 16 <= c->dim; i += 16) {
        __m512 k = _mm512_loadu_ps(c->k + key * c->ld + i);

        ask(c->k, 4 * ((key + AHEAD) * c->ld + i));
        ask(c->v, 4 * (key * c->ld + i));
#pragma GCC unroll 8
        for (h = 0; h < heads; h++)
            acc[h] = _mm512_fmadd_ps(_mm512_loadu_ps(q + h * c->dim + i), k, acc[h]);
    }
    if (i < c->dim) {
        __mmask16 m = low16(c->dim - i);
        __m512 k = _mm512_maskz_loadu_ps(m, c->k + key * c->ld + i);

#pragma GCC unroll 8
        for (h = 0; h < heads; h++)
            acc[h] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(m, q + h * c->dim + i), k, acc[h], m);
    }
#pragma GCC unroll 8
    for (h = 0; h < heads; h++)
        _mm512_store_ps(lanes[h][slot], acc[h]);
}

/* p[head][0 .. n): scaled scores. */
INLINE void scores(const cache *c, const float *q, int32_t key0, int32_t n, int heads, float (*p)[BLOCK])
{
    alignas(64) float lanes[HEADS][16][16];
    int32_t j, i;
    int h;

    for (j = 0; j < n; j += 16) {
        for (i = 0; i < 16 && j + i < n; i++)
            dot_lanes(c, q, key0 + j + i, heads, lanes, i);
        for (; i < 16; i++) /* keys past the end */
            for (h = 0; h < heads; h++)
                _mm512_store_ps(lanes[h][i], _mm512_setzero_ps());
        for (h = 0; h < heads; h++)
            _mm512_store_ps(p[h] + j, _mm512_mul_ps(fold_rows(lanes[h][0], 16), _mm512_set1_ps(c->scale)));
    }
}

/* Scores to probabilities against the new maximum; m and l are updated, the factor for the old output is returned. */
static float renormalise_f32(float *p, int32_t n, float *m, float *l)
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
INLINE void add_values_f32(const cache *c, int32_t key0, int32_t n, int32_t col, int heads, const float (*p)[BLOCK],
                           const float *factor, float *o, int width)
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
            v[i] = _mm512_maskz_loadu_ps(low16(c->dim - col - 16 * i), c->v + (key0 + j) * c->ld + col + 16 * i);
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

INLINE void attend(const cache *c, const float *q, int32_t n_keys, int heads, float *m, float *l, float *o)
{
    alignas(64) float p[HEADS][BLOCK];
    float factor[HEADS];
    int32_t key, n, i;
    int h;

    ref_clear_results(heads, c->dim, m, l, o);
    for (key = 0; key < n_keys; key += BLOCK) {
        n = min_i32(BLOCK, n_keys - key);
        scores(c, q, key, n, heads, p);
        for (h = 0; h < heads; h++)
            factor[h] = renormalise_f32(p[h], n, &m[h], &l[h]);
        for (i = 0; i + 32 <= c->dim; i += 32)
            add_values_f32(c, key, n, i, heads, (const float (*)[BLOCK])p, factor, o, 2);
        for (; i < c->dim; i += 16)
            add_values_f32(c, key, n, i, heads, (const float (*)[BLOCK])p, factor, o, 1);
    }
}

/* One row against a segment. */
INLINE void attend_row(const cache *c, const float *q, int32_t n_q, int32_t n_keys, float *m, float *l, float *o)
{
    int32_t h = 0;

    for (; h + 8 <= n_q; h += 8)
        attend(c, q + h * c->dim, n_keys, 8, m + h, l + h, o + h * c->dim);
    for (; h + 4 <= n_q; h += 4)
        attend(c, q + h * c->dim, n_keys, 4, m + h, l + h, o + h * c->dim);
    for (; h + 2 <= n_q; h += 2)
        attend(c, q + h * c->dim, n_keys, 2, m + h, l + h, o + h * c->dim);
    for (; h < n_q; h++)
        attend(c, q + h * c->dim, n_keys, 1, m + h, l + h, o + h * c->dim);
}

void swl_attn_f32_avx512(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                         int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    cache c = {k, v, ldkv, dim, scale};
    int32_t row, i;

    for (row = 0; row < n_rows; row++) {
        i = row * n_q;
        attend_row(&c, q + i * dim, n_q, min_i32(n_keys + row, SWL_ATTN_SEGMENT), m + i, l + i, o + i * dim);
    }
}
