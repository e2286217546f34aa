/*
 * delta_avx2.c: the gated delta rule, one pass over the state per token of a chunk as in delta_avx512.c: the update of
 * a token leaves fold * S of the next one, in rows of its own, and only the last token leaves S. Columns that do not
 * fill a register are left to the reference.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/ref/ref.h"
#include "kernels/x86/math_avx2.h"

enum {
    NARROW = 4,     /* registers of columns in a chunk */
    WIDE = 8,       /* and of a single token */
    MAX_ROWS = 256, /* of those in which a chunk works */
    FEW = 3         /* tokens that work in the state itself */
};

typedef struct token {
    const float *q, *k, *v;
    swl_delta_gate gate;
    const float *next_k;
    float next_fold;
    float *out;
} token;

/* Some columns of the state, all rows. */
typedef struct block {
    float *at;
    int64_t ld;
} block;

/* kv = k^T (fold S) before the first token. keep: fold * S is written to `to`. */
INLINE void first_pass(block s, block to, int32_t dk, const token *t, __m256 *kv, bool keep, int width)
{
    __m256 fold = _mm256_set1_ps(t->gate.fold), k, x;
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        kv[c] = _mm256_setzero_ps();
    for (i = 0; i < dk; i++, s.at += s.ld, to.at += to.ld) {
        k = _mm256_set1_ps(t->k[i]);
#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            x = _mm256_mul_ps(fold, _mm256_loadu_ps(s.at + 8 * c));
            kv[c] = _mm256_fmadd_ps(k, x, kv[c]);
            if (keep)
                _mm256_storeu_ps(to.at + 8 * c, x);
        }
    }
}

/* One token, from s to `to`. folded: s holds fold * S already. more: another token follows; folds: and its fold is not 1:
 * `to` gets that times the new S. */
INLINE void token_pass(block s, block to, int32_t dk, const token *t, __m256 *kv, bool folded, bool more, bool folds,
                       int width)
{
    __m256 fold = _mm256_set1_ps(t->gate.fold), gain = _mm256_set1_ps(t->gate.gain);
    __m256 next_fold = _mm256_set1_ps(t->next_fold), d[WIDE], o[WIDE];
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++) {
        d[c] = _mm256_fnmadd_ps(gain, kv[c], _mm256_loadu_ps(t->v + 8 * c));
        d[c] = _mm256_mul_ps(d[c], _mm256_set1_ps(t->gate.rate));
        o[c] = kv[c] = _mm256_setzero_ps();
    }
    for (i = 0; i < dk; i++, s.at += s.ld, to.at += to.ld) {
        __m256 k = _mm256_set1_ps(t->k[i]), q = _mm256_set1_ps(t->q[i]);

#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            __m256 x = _mm256_loadu_ps(s.at + 8 * c);

            x = _mm256_fmadd_ps(k, d[c], folded ? x : _mm256_mul_ps(fold, x));
            o[c] = _mm256_fmadd_ps(q, x, o[c]);
            if (folds)
                x = _mm256_mul_ps(next_fold, x);
            if (more)
                kv[c] = _mm256_fmadd_ps(_mm256_set1_ps(t->next_k[i]), x, kv[c]);
            _mm256_storeu_ps(to.at + 8 * c, x);
        }
    }
#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        _mm256_storeu_ps(t->out + 8 * c, _mm256_mul_ps(gain, o[c]));
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

/* Columns [col, col + 8 * width) through all tokens; s: these of the state, `work`: where they are between two tokens,
 * which is either apart or s too. */
INLINE void columns(const scan *p, block s, block work, int32_t col, int width, bool apart)
{
    __m256 kv[WIDE];
    token t = token_at(p, 0, col);
    int32_t i;

    first_pass(s, work, p->dk, &t, kv, apart, width);
    for (i = 0; i + 1 < p->n_tok; i++) {
        t = token_at(p, i, col);
        if (!apart && i == 0)
            token_pass(s, s, p->dk, &t, kv, false, true, true, width);
        else if (t.next_fold != 1.0f)
            token_pass(work, work, p->dk, &t, kv, true, true, true, width);
        else
            token_pass(work, work, p->dk, &t, kv, true, true, false, width);
    }
    t = token_at(p, i, col);
    if (apart || i > 0)
        token_pass(work, s, p->dk, &t, kv, true, false, false, width);
    else
        token_pass(s, s, p->dk, &t, kv, false, false, false, width);
}

static void narrow_columns(const scan *p, block s, int32_t col)
{
    alignas(32) float rows[MAX_ROWS][8 * NARROW];

    if (p->n_tok <= FEW || p->dk > MAX_ROWS)
        columns(p, s, s, col, NARROW, false);
    else
        columns(p, s, (block){rows[0], 8 * NARROW}, col, NARROW, true);
}

void swl_delta_scan_avx2(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                         int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                         int64_t ldo)
{
    scan p = {dk, n_tok, q, k, v, gates, ldqk, ldv, ldo, out};
    int32_t col = 0;

    if (n_tok == 1)
        for (; col + 8 * WIDE <= dv; col += 8 * WIDE)
            columns(&p, (block){s + col, lds}, (block){s + col, lds}, col, WIDE, false);
    for (; col + 8 * NARROW <= dv; col += 8 * NARROW)
        narrow_columns(&p, (block){s + col, lds}, col);
    for (; col + 8 <= dv; col += 8)
        columns(&p, (block){s + col, lds}, (block){s + col, lds}, col, 1, false);
    if (col < dv)
        swl_delta_scan_ref(s + col, lds, dk, dv - col, n_tok, q, k, ldqk, v + col, ldv, gates, out + col, ldo);
}
