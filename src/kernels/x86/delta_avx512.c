/*
 * delta_avx512.c: the gated delta rule. A token needs two passes over the state, first kv = k^T S, then the update and
 * the output. Both the update of a token and the first pass of the next go over the same rows, so they are one pass
 * here, which leaves fold * S of the next token in memory. Only the last token of a chunk leaves S.
 *
 * Columns are independent. A chunk of tokens takes some of them together, and what it leaves between two tokens lies in
 * rows of its own, close together, which stay in the first-level cache: the first pass goes there from the state, the
 * last token back. Few tokens (decoding) work in the state itself, all columns of a row together.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/math_avx512.h"

enum {
    NARROW = 3,     /* registers of columns in a chunk: with two, sums wait for each other; four fill the first cache */
    PAIR = 2,       /* and of what is left */
    WIDE = 8,       /* and of few tokens */
    MAX_ROWS = 256, /* of those in which a chunk works */
    FEW = 8         /* tokens that work in the state itself */
};

typedef struct token {
    const float *q, *k, *v;
    swl_delta_gate gate;
    const float *next_k;
    float next_fold;
    float *out;
} token;

INLINE __mmask16 mask_of(int32_t n, int i)
{
    return low16(n - 16 * i > 0 ? n - 16 * i : 0);
}

/* Some columns of the state, all rows. */
typedef struct block {
    float *at;
    int64_t ld;
} block;

/* kv = k^T (fold S) before the first token. keep: fold * S is written to `to`. */
INLINE void first_pass(block s, block to, int32_t dk, int32_t n, const token *t, __m512 *kv, bool keep, int width)
{
    __m512 fold = _mm512_set1_ps(t->gate.fold), k, x;
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        kv[c] = _mm512_setzero_ps();
    for (i = 0; i < dk; i++, s.at += s.ld, to.at += to.ld) {
        k = _mm512_set1_ps(t->k[i]);
#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            x = _mm512_mul_ps(fold, _mm512_maskz_loadu_ps(mask_of(n, c), s.at + 16 * c));
            kv[c] = _mm512_fmadd_ps(k, x, kv[c]);
            if (keep)
                _mm512_mask_storeu_ps(to.at + 16 * c, mask_of(n, c), x);
        }
    }
}

/* One token, from s to `to`. folded: s holds fold * S already. more: another token follows; folds: and its fold is not 1:
 * `to` gets that times the new S. */
INLINE void token_pass(block s, block to, int32_t dk, int32_t n, const token *t, __m512 *kv, bool folded, bool more,
                       bool folds, int width)
{
    __m512 fold = _mm512_set1_ps(t->gate.fold), gain = _mm512_set1_ps(t->gate.gain);
    __m512 next_fold = _mm512_set1_ps(t->next_fold), d[WIDE], o[WIDE];
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++) {
        d[c] = _mm512_fnmadd_ps(gain, kv[c], _mm512_maskz_loadu_ps(mask_of(n, c), t->v + 16 * c));
        d[c] = _mm512_mul_ps(d[c], _mm512_set1_ps(t->gate.rate));
        o[c] = kv[c] = _mm512_setzero_ps();
    }
    for (i = 0; i < dk; i++, s.at += s.ld, to.at += to.ld) {
        __m512 k = _mm512_set1_ps(t->k[i]), q = _mm512_set1_ps(t->q[i]), next_k = _mm512_set1_ps(t->next_k[i]);

        __asm__("" : "+v"(next_k)); /* loaded once, not for each register of columns */
#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            __m512 x = _mm512_maskz_loadu_ps(mask_of(n, c), s.at + 16 * c);

            x = _mm512_fmadd_ps(k, d[c], folded ? x : _mm512_mul_ps(fold, x));
            o[c] = _mm512_fmadd_ps(q, x, o[c]);
            if (folds)
                x = _mm512_mul_ps(next_fold, x);
            if (more)
                kv[c] = _mm512_fmadd_ps(next_k, x, kv[c]);
            _mm512_mask_storeu_ps(to.at + 16 * c, mask_of(n, c), x);
        }
    }
#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        _mm512_mask_storeu_ps(t->out + 16 * c, mask_of(n, c), _mm512_mul_ps(gain, o[c]));
}

typedef struct scan {
    int32_t dk, n_tok;
    const float *q, *k, *v;
    const swl_delta_gate *gates;
    int64_t ldqk, ldv, ldo;
    float *out;
} scan;

static token token_at(const scan *p, int32_t i, int32_t col)
{
    int32_t next = i + 1 < p->n_tok ? i + 1 : i;
    token t = {.q = p->q + i * p->ldqk, .k = p->k + i * p->ldqk, .v = p->v + i * p->ldv + col};

    t.gate = p->gates[i];
    t.next_k = p->k + next * p->ldqk;
    t.next_fold = p->gates[next].fold;
    t.out = p->out + i * p->ldo + col;
    return t;
}

/* Columns [col, col + n) through all tokens; s: these of the state, `work`: where they are between two tokens, which
 * is either apart or s too. */
INLINE void columns(const scan *p, block s, block work, int32_t col, int32_t n, int width, bool apart)
{
    __m512 kv[WIDE];
    token t = token_at(p, 0, col);
    int32_t i;

    first_pass(s, work, p->dk, n, &t, kv, apart, width);
    for (i = 0; i + 1 < p->n_tok; i++) {
        t = token_at(p, i, col);
        if (!apart && i == 0)
            token_pass(s, s, p->dk, n, &t, kv, false, true, true, width);
        else if (t.next_fold != 1.0f)
            token_pass(work, work, p->dk, n, &t, kv, true, true, true, width);
        else
            token_pass(work, work, p->dk, n, &t, kv, true, true, false, width);
    }
    t = token_at(p, i, col);
    if (apart || i > 0)
        token_pass(work, s, p->dk, n, &t, kv, true, false, false, width);
    else
        token_pass(s, s, p->dk, n, &t, kv, false, false, false, width);
}

/* 16 * NARROW columns or, of fewer, up to 16 * PAIR. Returns how many. */
static int32_t narrow_columns(const scan *p, block s, int32_t col, int32_t left)
{
    alignas(64) float rows[MAX_ROWS][16 * NARROW];
    block work = {rows[0], 16 * NARROW};
    bool apart = p->n_tok > FEW && p->dk <= MAX_ROWS;
    int32_t n = apart && left >= 16 * NARROW ? 16 * NARROW : left >= 16 * PAIR ? 16 * PAIR : left;

    if (!apart)
        columns(p, s, s, col, n, PAIR, false);
    else if (n == 16 * NARROW)
        columns(p, s, work, col, 16 * NARROW, NARROW, true);
    else if (n == 16 * PAIR)
        columns(p, s, work, col, 16 * PAIR, PAIR, true);
    else
        columns(p, s, work, col, n, PAIR, true);
    return n;
}

void swl_delta_scan_avx512(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                           int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                           int64_t ldo)
{
    scan p = {dk, n_tok, q, k, v, gates, ldqk, ldv, ldo, out};
    int32_t col = 0;

    if (n_tok <= FEW)
        for (; col + 16 * WIDE <= dv; col += 16 * WIDE)
            columns(&p, (block){s + col, lds}, (block){s + col, lds}, col, 16 * WIDE, WIDE, false);
    while (col < dv)
        col += narrow_columns(&p, (block){s + col, lds}, col, dv - col);
}
