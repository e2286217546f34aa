/*
 * delta_avx512.c: the gated delta rule. A token needs two passes over the state, first kv = k^T (a S), then the update
 * and the output. Both the update of a token and the first pass of the next go over the same rows, so they are one pass
 * here, which leaves a * S of the next token in memory: the product that the rule rounds anyway, taken once. Only the
 * last token of a chunk leaves S.
 *
 * Columns are independent. A chunk of tokens works on a copy of some columns, which stays in the first-level cache; a
 * single token (decoding) streams the state in place, all columns of a row together.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/math_avx512.h"

enum {
    NARROW = 2,     /* registers of columns in a chunk */
    WIDE = 8,       /* and of a single token */
    MAX_ROWS = 256, /* of the copy */
    FEW = 3         /* tokens for which the copy does not pay */
};

typedef struct token {
    const float *q, *k, *v;
    float decay, beta;
    const float *next_k; /* NULL for the last token */
    float next_decay;
    float *out;
} token;

INLINE __mmask16 mask_of(int32_t n, int i)
{
    return low16(n - 16 * i > 0 ? n - 16 * i : 0);
}

/* kv = k^T (decay S) before the first token. */
INLINE void first_pass(const float *s, int64_t lds, int32_t dk, int32_t n, const token *t, __m512 *kv, int width)
{
    __m512 a = _mm512_set1_ps(t->decay), k;
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        kv[c] = _mm512_setzero_ps();
    for (i = 0; i < dk; i++, s += lds) {
        k = _mm512_set1_ps(t->k[i]);
#pragma GCC unroll 8
        for (c = 0; c < width; c++)
            kv[c] = _mm512_fmadd_ps(k, _mm512_mul_ps(a, _mm512_maskz_loadu_ps(mask_of(n, c), s + 16 * c)), kv[c]);
    }
}

/* One token. scaled: s holds decay * S already. more: another token follows, and s is left as its decay times the new
 * S. */
INLINE void token_pass(float *s, int64_t lds, int32_t dk, int32_t n, const token *t, __m512 *kv, bool scaled, bool more,
                       int width)
{
    __m512 a = _mm512_set1_ps(t->decay), next_a = _mm512_set1_ps(t->next_decay), d[WIDE], o[WIDE];
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++) {
        d[c] = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask_of(n, c), t->v + 16 * c), kv[c]);
        d[c] = _mm512_mul_ps(d[c], _mm512_set1_ps(t->beta));
        o[c] = kv[c] = _mm512_setzero_ps();
    }
    for (i = 0; i < dk; i++, s += lds) {
        __m512 k = _mm512_set1_ps(t->k[i]), q = _mm512_set1_ps(t->q[i]);

#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            __m512 x = _mm512_maskz_loadu_ps(mask_of(n, c), s + 16 * c);

            x = _mm512_fmadd_ps(k, d[c], scaled ? x : _mm512_mul_ps(a, x));
            o[c] = _mm512_fmadd_ps(q, x, o[c]);
            if (more) {
                x = _mm512_mul_ps(next_a, x);
                kv[c] = _mm512_fmadd_ps(_mm512_set1_ps(t->next_k[i]), x, kv[c]);
            }
            _mm512_mask_storeu_ps(s + 16 * c, mask_of(n, c), x);
        }
    }
#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        _mm512_mask_storeu_ps(t->out + 16 * c, mask_of(n, c), o[c]);
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

/* Columns [col, col + n) through all tokens; s: their first row. */
INLINE void columns(const scan *p, float *s, int64_t lds, int32_t col, int32_t n, int width)
{
    __m512 kv[WIDE];
    token t = token_at(p, 0, col);
    int32_t i;

    first_pass(s, lds, p->dk, n, &t, kv, width);
    if (p->n_tok == 1) {
        token_pass(s, lds, p->dk, n, &t, kv, false, false, width);
        return;
    }
    token_pass(s, lds, p->dk, n, &t, kv, false, true, width);
    for (i = 1; i + 1 < p->n_tok; i++) {
        t = token_at(p, i, col);
        token_pass(s, lds, p->dk, n, &t, kv, true, true, width);
    }
    t = token_at(p, i, col);
    token_pass(s, lds, p->dk, n, &t, kv, true, false, width);
}

static void copy_columns(float *to, int64_t ldto, const float *from, int64_t ldfrom, int32_t dk, int32_t n)
{
    int32_t i, c;

    for (i = 0; i < dk; i++)
        for (c = 0; c < n; c += 16)
            _mm512_mask_storeu_ps(to + i * ldto + c, low16(n - c),
                                  _mm512_maskz_loadu_ps(low16(n - c), from + i * ldfrom + c));
}

static void narrow_columns(const scan *p, float *s, int64_t lds, int32_t col, int32_t n)
{
    alignas(64) float copy[MAX_ROWS][16 * NARROW];

    if (p->n_tok <= FEW || p->dk > MAX_ROWS) {
        columns(p, s, lds, col, n, NARROW);
        return;
    }
    copy_columns(copy[0], 16 * NARROW, s, lds, p->dk, n);
    if (n == 16 * NARROW)
        columns(p, copy[0], 16 * NARROW, col, 16 * NARROW, NARROW);
    else
        columns(p, copy[0], 16 * NARROW, col, n, NARROW);
    copy_columns(s, lds, copy[0], 16 * NARROW, p->dk, n);
}

void swl_delta_scan_avx512(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                           int64_t ldqk, const float *v, int64_t ldv, const float *decay, const float *beta,
                           int64_t ldb, float *out, int64_t ldo)
{
    scan p = {dk, n_tok, q, k, v, decay, beta, ldqk, ldv, ldb, ldo, out};
    int32_t col = 0;

    if (n_tok <= FEW)
        for (; col + 16 * WIDE <= dv; col += 16 * WIDE)
            columns(&p, s + col, lds, col, 16 * WIDE, WIDE);
    for (; col < dv; col += 16 * NARROW)
        narrow_columns(&p, s + col, lds, col, dv - col < 16 * NARROW ? dv - col : 16 * NARROW);
}
