/*
 * delta_avx2.c: the gated delta rule, one pass over the state per token of a chunk as in delta_avx512.c: the update of
 * a token leaves decay * S of the next one in memory, and only the last token leaves S. Columns that do not fill a
 * register are left to the reference.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/ref/ref.h"
#include "kernels/x86/math_avx2.h"

enum {
    WIDTH = 4,      /* registers of columns together */
    MAX_ROWS = 256, /* of the copy in which a chunk works */
    FEW = 3         /* tokens for which the copy does not pay */
};

typedef struct token {
    const float *q, *k, *v, *next_k;
    float decay, beta, next_decay;
    float *out;
} token;

INLINE void first_pass(const float *s, int64_t lds, int32_t dk, const token *t, __m256 *kv, int width)
{
    __m256 a = _mm256_set1_ps(t->decay), k;
    int32_t i;
    int c;

#pragma GCC unroll 4
    for (c = 0; c < width; c++)
        kv[c] = _mm256_setzero_ps();
    for (i = 0; i < dk; i++, s += lds) {
        k = _mm256_set1_ps(t->k[i]);
#pragma GCC unroll 4
        for (c = 0; c < width; c++)
            kv[c] = _mm256_fmadd_ps(k, _mm256_mul_ps(a, _mm256_loadu_ps(s + 8 * c)), kv[c]);
    }
}

/* One token. scaled: s holds decay * S already. more: another token follows, and s is left as its decay times the new
 * S. */
INLINE void token_pass(float *s, int64_t lds, int32_t dk, const token *t, __m256 *kv, bool scaled, bool more, int width)
{
    __m256 a = _mm256_set1_ps(t->decay), next_a = _mm256_set1_ps(t->next_decay), d[WIDTH], o[WIDTH];
    int32_t i;
    int c;

#pragma GCC unroll 4
    for (c = 0; c < width; c++) {
        d[c] = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(t->v + 8 * c), kv[c]), _mm256_set1_ps(t->beta));
        o[c] = kv[c] = _mm256_setzero_ps();
    }
    for (i = 0; i < dk; i++, s += lds) {
        __m256 k = _mm256_set1_ps(t->k[i]), q = _mm256_set1_ps(t->q[i]);

#pragma GCC unroll 4
        for (c = 0; c < width; c++) {
            __m256 x = _mm256_loadu_ps(s + 8 * c);

            x = _mm256_fmadd_ps(k, d[c], scaled ? x : _mm256_mul_ps(a, x));
            o[c] = _mm256_fmadd_ps(q, x, o[c]);
            if (more) {
                x = _mm256_mul_ps(next_a, x);
                kv[c] = _mm256_fmadd_ps(_mm256_set1_ps(t->next_k[i]), x, kv[c]);
            }
            _mm256_storeu_ps(s + 8 * c, x);
        }
    }
#pragma GCC unroll 4
    for (c = 0; c < width; c++)
        _mm256_storeu_ps(t->out + 8 * c, o[c]);
}

typedef struct scan {
    int32_t dk, n_tok;
    const float *q, *k, *v, *decay, *beta;
    int64_t ldqk, ldv, ldb, ldo;
    float *out;
} scan;

static token token_at(const scan *p, int32_t i, int32_t col)
{
    int32_t next = i + 1 < p->n_tok ? i + 1 : i;
    token t = {.q = p->q + i * p->ldqk, .k = p->k + i * p->ldqk, .v = p->v + i * p->ldv + col};

    t.decay = p->decay[i * p->ldb];
    t.beta = p->beta[i * p->ldb];
    t.next_k = p->k + next * p->ldqk;
    t.next_decay = p->decay[next * p->ldb];
    t.out = p->out + i * p->ldo + col;
    return t;
}

/* Columns [col, col + 8 * width) through all tokens; s: their first row. */
INLINE void columns(const scan *p, float *s, int64_t lds, int32_t col, int width)
{
    __m256 kv[WIDTH];
    token t = token_at(p, 0, col);
    int32_t i;

    first_pass(s, lds, p->dk, &t, kv, width);
    if (p->n_tok == 1) {
        token_pass(s, lds, p->dk, &t, kv, false, false, width);
        return;
    }
    token_pass(s, lds, p->dk, &t, kv, false, true, width);
    for (i = 1; i + 1 < p->n_tok; i++) {
        t = token_at(p, i, col);
        token_pass(s, lds, p->dk, &t, kv, true, true, width);
    }
    t = token_at(p, i, col);
    token_pass(s, lds, p->dk, &t, kv, true, false, width);
}

static void copy_columns(float *to, int64_t ldto, const float *from, int64_t ldfrom, int32_t dk)
{
    int32_t i, c;

    for (i = 0; i < dk; i++)
        for (c = 0; c < WIDTH; c++)
            _mm256_storeu_ps(to + i * ldto + 8 * c, _mm256_loadu_ps(from + i * ldfrom + 8 * c));
}

/* A chunk works on a copy, whose rows lie close together, so that it stays in the first-level cache. */
static void wide_columns(const scan *p, float *s, int64_t lds, int32_t col)
{
    alignas(32) float copy[MAX_ROWS][8 * WIDTH];

    if (p->n_tok <= FEW || p->dk > MAX_ROWS) {
        columns(p, s, lds, col, WIDTH);
        return;
    }
    copy_columns(copy[0], 8 * WIDTH, s, lds, p->dk);
    columns(p, copy[0], 8 * WIDTH, col, WIDTH);
    copy_columns(s, lds, copy[0], 8 * WIDTH, p->dk);
}

void swl_delta_scan_avx2(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                         int64_t ldqk, const float *v, int64_t ldv, const float *decay, const float *beta, int64_t ldb,
                         float *out, int64_t ldo)
{
    scan p = {dk, n_tok, q, k, v, decay, beta, ldqk, ldv, ldb, ldo, out};
    int32_t col = 0;

    for (; col + 8 * WIDTH <= dv; col += 8 * WIDTH)
        wide_columns(&p, s + col, lds, col);
    for (; col + 8 <= dv; col += 8)
        columns(&p, s + col, lds, col, 1);
    if (col < dv)
        swl_delta_scan_ref(s + col, lds, dk, dv - col, n_tok, q, k, ldqk, v + col, ldv, decay, beta, ldb, out + col,
                           ldo);
}
