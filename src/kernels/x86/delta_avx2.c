/*
 * delta_avx2.c: the gated delta rule, one pass over the state per token of a chunk as in delta_avx512.c: the update of
 * a token leaves decay * S of the next one, in rows of its own, and only the last token leaves S. Columns that do not
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
    const float *q, *k, *v, *next_k;
    float decay, beta, next_decay;
    float *out;
} token;

/* Some columns of the state, all rows. */
typedef struct block {
    float *at;
    int64_t ld;
} block;

/* kv = k^T (decay S) before the first token. keep: decay * S is written to `to`. */
INLINE void first_pass(block s, block to, int32_t dk, const token *t, __m256 *kv, bool keep, int width)
{
    __m256 a = _mm256_set1_ps(t->decay), k, x;
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++)
        kv[c] = _mm256_setzero_ps();
    for (i = 0; i < dk; i++, s.at += s.ld, to.at += to.ld) {
        k = _mm256_set1_ps(t->k[i]);
#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            x = _mm256_mul_ps(a, _mm256_loadu_ps(s.at + 8 * c));
            kv[c] = _mm256_fmadd_ps(k, x, kv[c]);
            if (keep)
                _mm256_storeu_ps(to.at + 8 * c, x);
        }
    }
}

/* One token, from s to `to`. scaled: s holds decay * S already. more: another token follows, and `to` gets its decay
 * times the new S. */
INLINE void token_pass(block s, block to, int32_t dk, const token *t, __m256 *kv, bool scaled, bool more, int width)
{
    __m256 a = _mm256_set1_ps(t->decay), next_a = _mm256_set1_ps(t->next_decay), d[WIDE], o[WIDE];
    int32_t i;
    int c;

#pragma GCC unroll 8
    for (c = 0; c < width; c++) {
        d[c] = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(t->v + 8 * c), kv[c]), _mm256_set1_ps(t->beta));
        o[c] = kv[c] = _mm256_setzero_ps();
    }
    for (i = 0; i < dk; i++, s.at += s.ld, to.at += to.ld) {
        __m256 k = _mm256_set1_ps(t->k[i]), q = _mm256_set1_ps(t->q[i]);

#pragma GCC unroll 8
        for (c = 0; c < width; c++) {
            __m256 x = _mm256_loadu_ps(s.at + 8 * c);

            x = _mm256_fmadd_ps(k, d[c], scaled ? x : _mm256_mul_ps(a, x));
            o[c] = _mm256_fmadd_ps(q, x, o[c]);
            if (more) {
                x = _mm256_mul_ps(next_a, x);
                kv[c] = _mm256_fmadd_ps(_mm256_set1_ps(t->next_k[i]), x, kv[c]);
            }
            _mm256_storeu_ps(to.at + 8 * c, x);
        }
    }
#pragma GCC unroll 8
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
        if (apart || i > 0)
            token_pass(work, work, p->dk, &t, kv, true, true, width);
        else
            token_pass(s, s, p->dk, &t, kv, false, true, width);
    }
    t = token_at(p, i, col);
    if (apart || i > 0)
        token_pass(work, s, p->dk, &t, kv, true, false, width);
    else
        token_pass(s, s, p->dk, &t, kv, false, false, width);
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
                         int64_t ldqk, const float *v, int64_t ldv, const float *decay, const float *beta, int64_t ldb,
                         float *out, int64_t ldo)
{
    scan p = {dk, n_tok, q, k, v, decay, beta, ldqk, ldv, ldb, ldo, out};
    int32_t col = 0;

    if (n_tok == 1)
        for (; col + 8 * WIDE <= dv; col += 8 * WIDE)
            columns(&p, (block){s + col, lds}, (block){s + col, lds}, col, WIDE, false);
    for (; col + 8 * NARROW <= dv; col += 8 * NARROW)
        narrow_columns(&p, (block){s + col, lds}, col);
    for (; col + 8 <= dv; col += 8)
        columns(&p, (block){s + col, lds}, (block){s + col, lds}, col, 1, false);
    if (col < dv)
        swl_delta_scan_ref(s + col, lds, dk, dv - col, n_tok, q, k, ldqk, v + col, ldv, decay, beta, ldb, out + col,
                           ldo);
}
