/*
 * attn_avx512.c: one part of softmax attention. Query heads of one KV head go through the keys together, so that a key
 * or value is widened from float16 once for up to eight of them, and for all of several rows; blocks, order and lanes
 * are those of the contract.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/tile_avx512.h"

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

/* ---- several rows --------------------------------------------------------------------------------------- */

/*
 * Rows of a prompt see the same keys but for the last few. Here keys are the lanes of scores, and columns those of
 * values, as in a product of matrices: what is loaded of one side is used for twelve queries. The contract's lanes come
 * one after the other in the order of the fold's tree, so that a query keeps a stack of finished branches and needs no
 * shuffles.
 */
enum {
    QUERIES_MIN = 24, /* rows times heads that are worth turning the keys */
    QUERIES = 96,     /* that go through a block together */
    KEYS = 32,        /* that are turned together */
    COLUMNS = 32,     /* of values that are widened together */
    DIM_MAX = 256,
    AT_ONCE = 12      /* queries in registers */
};

typedef struct rows {
    alignas(64) float keys[DIM_MAX][KEYS]; /* lanes in the order of the tree, `depth` places each */
    float values[BLOCK][COLUMNS];
    float p[QUERIES][BLOCK];
    float factor[QUERIES];   /* for the output so far */
    int32_t n_keys[QUERIES]; /* that a query sees */
    int32_t dim, depth;      /* depth: dimensions of a lane, rounded up */
    float scale;
} rows;

INLINE void store_dim(rows *r, int32_t d, int32_t first, __m512 v)
{
    if (d < r->dim)
        _mm512_store_ps(r->keys[lane_at[d % SWL_LANES] * r->depth + d / SWL_LANES] + first, v);
}

/* Keys [key, key + n) as lanes; the last stands for those that are missing. The keys of the next call are asked for. */
INLINE void turn_keys(const cache *c, int32_t key, int32_t n, bool half, rows *r)
{
    const __m512i even_odd = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24,
                                              22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    int32_t size = half ? 2 : 4, first, i, d;
    __m512i v[16];

    for (first = 0; first < KEYS; first += 16)
        for (d = 0; d < c->dim; d += 64 / size) {
#pragma GCC unroll 16
            for (i = 0; i < 16; i++) {
                int64_t at = (key + min_i32(first + i, n - 1)) * c->ld + d;

                v[i] = load_bytes(c->k + size * at, size * (c->dim - d));
                ask(c->k, at + KEYS * c->ld, half);
            }
            transpose(v);
#pragma GCC unroll 16
            for (i = 0; i < 16; i++)
                if (half) {
                    __m512i w = _mm512_permutexvar_epi16(even_odd, v[i]);

                    store_dim(r, d + 2 * i, first, _mm512_cvtph_ps(_mm512_castsi512_si256(w)));
                    store_dim(r, d + 2 * i + 1, first, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(w, 1)));
                } else {
                    store_dim(r, d + i, first, _mm512_castsi512_ps(v[i]));
                }
        }
}

/* p[query][at .. at + KEYS): scaled scores of the keys that were turned last. */
INLINE void score_rows(const rows *r, const float *q, int32_t at, int queries, float (*p)[BLOCK])
{
    alignas(64) float branch[4][AT_ONCE][KEYS];
    __m512 acc[AT_ONCE][2];
    int32_t leaf, left, level;
    int h, i;

    for (leaf = 0; leaf < SWL_LANES; leaf++) {
        const float(*k)[KEYS] = &r->keys[leaf * r->depth], *x = q + lane_at[leaf];

#pragma GCC unroll 12
        for (h = 0; h < queries; h++)
            acc[h][0] = acc[h][1] = _mm512_setzero_ps();
        for (left = r->dim - lane_at[leaf]; left > 0; left -= SWL_LANES, x += SWL_LANES, k++) {
            __m512 a = _mm512_load_ps(*k), b = _mm512_load_ps(*k + 16);

#pragma GCC unroll 12
            for (h = 0; h < queries; h++) {
                __m512 y = _mm512_set1_ps(x[h * r->dim]);

                acc[h][0] = _mm512_fmadd_ps(y, a, acc[h][0]);
                acc[h][1] = _mm512_fmadd_ps(y, b, acc[h][1]);
            }
        }
        for (level = 0; leaf >> level & 1; level++)
#pragma GCC unroll 12
            for (h = 0; h < queries; h++)
#pragma GCC unroll 2
                for (i = 0; i < 2; i++)
                    acc[h][i] = _mm512_add_ps(_mm512_load_ps(branch[level][h] + 16 * i), acc[h][i]);
        if (level < 4)
#pragma GCC unroll 12
            for (h = 0; h < queries; h++)
#pragma GCC unroll 2
                for (i = 0; i < 2; i++)
                    _mm512_store_ps(branch[level][h] + 16 * i, acc[h][i]);
    }
#pragma GCC unroll 12
    for (h = 0; h < queries; h++)
#pragma GCC unroll 2
        for (i = 0; i < 2; i++)
            _mm512_store_ps(p[h] + at + 16 * i, _mm512_mul_ps(acc[h][i], _mm512_set1_ps(r->scale)));
}

/* o = o * factor, then + p_j v_j for keys [j, n) of the block. r->values has the columns from col on. */
INLINE void add_rows(const rows *r, int32_t col, int32_t j, int32_t n, int queries, const float (*p)[BLOCK],
                     const float *factor, float *o)
{
    __m512 acc[AT_ONCE][2];
    __mmask16 m[2] = {low16(r->dim - col), low16(r->dim - col > 16 ? r->dim - col - 16 : 0)};
    int h, i;

#pragma GCC unroll 12
    for (h = 0; h < queries; h++)
#pragma GCC unroll 2
        for (i = 0; i < 2; i++)
            acc[h][i] = _mm512_mul_ps(_mm512_maskz_loadu_ps(m[i], o + h * r->dim + col + 16 * i),
                                      _mm512_set1_ps(factor[h]));
    for (; j < n; j++) {
        __m512 a = _mm512_load_ps(r->values[j]), b = _mm512_load_ps(r->values[j] + 16);

#pragma GCC unroll 12
        for (h = 0; h < queries; h++) {
            __m512 w = _mm512_set1_ps(p[h][j]);

            acc[h][0] = _mm512_fmadd_ps(w, a, acc[h][0]);
            acc[h][1] = _mm512_fmadd_ps(w, b, acc[h][1]);
        }
    }
#pragma GCC unroll 12
    for (h = 0; h < queries; h++)
#pragma GCC unroll 2
        for (i = 0; i < 2; i++)
            _mm512_mask_storeu_ps(o + h * r->dim + col + 16 * i, m[i], acc[h][i]);
}

INLINE int32_t keys_in_block(const rows *r, int32_t query, int32_t key)
{
    int32_t n = r->n_keys[query] - key;

    return n < 0 ? 0 : min_i32(n, BLOCK);
}

/* Columns [col, col + COLUMNS) of values [key, key + n). */
INLINE void widen_values(const cache *c, int32_t key, int32_t n, int32_t col, bool half, rows *r)
{
    __mmask16 low = low16(c->dim - col), high = low16(c->dim - col > 16 ? c->dim - col - 16 : 0);
    int32_t j;

    for (j = 0; j < n; j++) {
        _mm512_store_ps(r->values[j], load_kv(c->v, (key + j) * c->ld + col, low, half));
        _mm512_store_ps(r->values[j] + 16, load_kv(c->v, (key + j) * c->ld + col + 16, high, half));
    }
}

/* Queries have the keys of the first of them in common; those of later rows may have a few more. */
INLINE void add_common(const rows *r, int32_t key, int32_t col, int32_t first, int queries, float *o)
{
    static const float one = 1.0f;
    int32_t n = keys_in_block(r, first, key), i;

    add_rows(r, col, 0, n, queries, &r->p[first], &r->factor[first], o + first * r->dim);
    for (i = first; i < first + queries; i++)
        if (keys_in_block(r, i, key) > n)
            add_rows(r, col, n, keys_in_block(r, i, key), 1, &r->p[i], &one, o + i * r->dim);
}

/* All queries against the block of keys [key, key + n). */
INLINE void attend_block(const cache *c, rows *r, const float *q, int32_t n_q, int32_t key, int32_t n, bool half,
                         float *m, float *l, float *o)
{
    int32_t i, at, col;

    for (at = 0; at < n; at += KEYS) {
        turn_keys(c, key + at, min_i32(KEYS, n - at), half, r);
        for (i = 0; i + 12 <= n_q; i += 12)
            score_rows(r, q + i * r->dim, at, 12, &r->p[i]);
        for (; i + 4 <= n_q; i += 4)
            score_rows(r, q + i * r->dim, at, 4, &r->p[i]);
        for (; i < n_q; i++)
            score_rows(r, q + i * r->dim, at, 1, &r->p[i]);
    }
    for (i = 0; i < n_q; i++)
        r->factor[i] = renormalise(r->p[i], keys_in_block(r, i, key), &m[i], &l[i]);
    for (col = 0; col < r->dim; col += COLUMNS) {
        widen_values(c, key, n, col, half, r);
        for (i = 0; i + 12 <= n_q; i += 12)
            add_common(r, key, col, i, 12, o);
        for (; i + 4 <= n_q; i += 4)
            add_common(r, key, col, i, 4, o);
        for (; i < n_q; i++)
            add_common(r, key, col, i, 1, o);
    }
}

/* Rows of at most QUERIES queries in all against a segment. */
INLINE void attend_rows(const cache *c, const float *q, int32_t n_rows, int32_t n_heads, int32_t n_keys, bool half,
                        float *m, float *l, float *o)
{
    rows r;
    int32_t n_q = n_rows * n_heads, key, i;

    r.dim = c->dim;
    r.depth = (c->dim + SWL_LANES - 1) / SWL_LANES;
    r.scale = c->scale;
    for (i = 0; i < n_q; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
        r.n_keys[i] = min_i32(n_keys + i / n_heads, SWL_ATTN_SEGMENT);
    }
    for (i = 0; i < n_q * c->dim; i++)
        o[i] = 0.0f;
    for (key = 0; key < r.n_keys[n_q - 1]; key += BLOCK)
        attend_block(c, &r, q, n_q, key, keys_in_block(&r, n_q - 1, key), half, m, l, o);
}

/* ---- the slots ------------------------------------------------------------------------------------------- */

/* One row against a segment. */
INLINE void attend_row(const cache *c, const float *q, int32_t n_q, int32_t n_keys, bool half, float *m, float *l,
                       float *o)
{
    int32_t h = 0;

    for (; h + 8 <= n_q; h += 8)
        attend(c, q + h * c->dim, n_keys, 8, half, m + h, l + h, o + h * c->dim);
    for (; h + 4 <= n_q; h += 4)
        attend(c, q + h * c->dim, n_keys, 4, half, m + h, l + h, o + h * c->dim);
    for (; h + 2 <= n_q; h += 2)
        attend(c, q + h * c->dim, n_keys, 2, half, m + h, l + h, o + h * c->dim);
    for (; h < n_q; h++)
        attend(c, q + h * c->dim, n_keys, 1, half, m + h, l + h, o + h * c->dim);
}

INLINE void attn(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v, int64_t ldkv,
                 int32_t n_keys, float scale, float *m, float *l, float *o, bool half)
{
    cache c = {k, v, ldkv, dim, scale};
    int32_t together = dim > DIM_MAX ? 0 : QUERIES / n_q, row, n, i;

    for (row = 0; row < n_rows; row += n) {
        i = row * n_q;
        n = min_i32(together, n_rows - row);
        if (n * n_q >= QUERIES_MIN) {
            attend_rows(&c, q + i * dim, n, n_q, n_keys + row, half, m + i, l + i, o + i * dim);
        } else {
            n = 1;
            attend_row(&c, q + i * dim, n_q, min_i32(n_keys + row, SWL_ATTN_SEGMENT), half, m + i, l + i, o + i * dim);
        }
    }
}

void swl_attn_f16_avx512(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                         int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    attn(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o, true);
}

void swl_attn_f32_avx512(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const void *k, const void *v,
                         int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o)
{
    attn(q, n_rows, n_q, dim, k, v, ldkv, n_keys, scale, m, l, o, false);
}
