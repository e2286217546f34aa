/*
 * matmul_f_avx512.c: matrices of any format times float32 activations (router, gates, heads of unquantised models,
 * exact mode). The sixteen lanes of the contract are one register. Four rows by up to four tokens at a time; weights
 * are widened once for the tokens. Of many tokens sixteen rows are widened a part at a time into a buffer, from which
 * tiles of four rows by six tokens take them; the lanes of all tokens wait in memory from one part to the next.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/ahead.h"
#include "kernels/x86/quant_avx512.h"

enum {
    FOLD = 16,
    ROWS = 4,
    TOKENS = 4,
    STEP = 64,
    TILE = 6,   /* tokens of a tile */
    PART = 256, /* columns that are widened at once: with a tile's activations and lanes they fit the first cache */
    MANY = 192, /* tokens for which they are */
    LEAST = 48  /* tokens for which that pays */
};

/* Four registers of weights: columns [col, col + 64) of a row, of which n exist. */
INLINE void load_plain(const swl_matrix *w, int64_t row, int32_t col, int32_t n, swl_wtype type, __m512 *v)
{
    int64_t at = row * w->cols + col;
    int i;

#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        __mmask16 m = low16(n > 16 * i ? n - 16 * i : 0);

        v[i] = load_scales(type == SWL_W_BF16  ? SWL_DT_BF16
                           : type == SWL_W_F16 ? SWL_DT_F16
                                               : SWL_DT_F32,
                           w->data, at + 16 * i, m);
    }
}

INLINE void load_affine(const swl_matrix *w, int64_t row, int32_t col, int32_t n, int bits, __m512 *v)
{
    int64_t at = row * w->cols + col;
    __m512i codes = load_codes(w->data + at * bits / 8, bits, (int64_t)n * bits / 8);
    int shift = __builtin_ctz((uint32_t)w->group), i; /* group sizes are powers of two */
    __m512 s, b;
    __m128i part[4];

    part[0] = _mm512_castsi512_si128(codes);
    part[1] = _mm512_extracti32x4_epi32(codes, 1);
    part[2] = _mm512_extracti32x4_epi32(codes, 2);
    part[3] = _mm512_extracti32x4_epi32(codes, 3);
    s = _mm512_set1_ps(one_scale(w->sdtype, w->scales, at >> shift));
    b = _mm512_set1_ps(one_scale(w->sdtype, w->biases, at >> shift));
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        if (i && w->group < 64 && 16 * i < n) {
            s = _mm512_set1_ps(one_scale(w->sdtype, w->scales, (at + 16 * i) >> shift));
            b = _mm512_set1_ps(one_scale(w->sdtype, w->biases, (at + 16 * i) >> shift));
        }
        v[i] = _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(part[i])), b);
    }
}

INLINE void load(const swl_matrix *w, int64_t row, int32_t col, int32_t n, swl_wtype type, int bits, __m512 *v)
{
    if (bits)
        load_affine(w, row, col, n, bits, v);
    else
        load_plain(w, row, col, n, type, v);
}

/* ---- few tokens --------------------------------------------------------------------------------------------- */

/* Columns [col, col + n), n <= 64, of `rows` rows for `tokens` tokens. */
INLINE void step(const swl_matrix *w, int64_t row, int rows, const float *const *x, int tokens, int32_t col, int32_t n,
                 swl_wtype type, int bits, __m512 (*acc)[TOKENS])
{
    __m512 v[ROWS][4];
    int r, t, i;

#pragma GCC unroll 4
    for (r = 0; r < rows; r++)
        load(w, row + r, col, n, type, bits, v[r]);
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        __mmask16 m = low16(n > 16 * i ? n - 16 * i : 0);

#pragma GCC unroll 4
        for (t = 0; t < tokens; t++) {
            __m512 y = _mm512_maskz_loadu_ps(m, x[t] + col + 16 * i);

#pragma GCC unroll 4
            for (r = 0; r < rows; r++)
                acc[r][t] = n == STEP ? _mm512_fmadd_ps(v[r][i], y, acc[r][t])
                                      : _mm512_mask3_fmadd_ps(v[r][i], y, acc[r][t], m);
        }
    }
}

/* Codes of the same columns in the rows that come next, which lie too far apart for a processor to guess. */
INLINE void ask_for_next(const swl_matrix *w, int64_t row, int rows, int32_t col, int bits)
{
    int r;

#pragma GCC unroll 4
    for (r = 0; r < rows; r++) {
        int64_t at = (row + rows + r) * w->cols + col;

        ask(w->data + at * bits / 8, 0, 8 * bits, ASK_SECOND);
        if (col % (32 * w->group) == 0) { /* once for each line, about */
            int64_t scale = at / w->group * swl_dtype_size(w->sdtype);

            ask(w->scales + scale, 0, 64, ASK_SECOND);
            ask(w->biases + scale, 0, 64, ASK_SECOND);
        }
    }
}

INLINE void block(const swl_matrix *w, int64_t row, int rows, const float *const *x, int tokens, swl_wtype type,
                  int bits, float (*lanes)[FOLD][16])
{
    __m512 acc[ROWS][TOKENS];
    int32_t col;
    int r, t;

#pragma GCC unroll 4
    for (r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (t = 0; t < tokens; t++)
            acc[r][t] = _mm512_setzero_ps();
    for (col = 0; col + STEP <= w->cols; col += STEP) {
        if (bits)
            ask_for_next(w, row, rows, col, bits);
        step(w, row, rows, x, tokens, col, STEP, type, bits, acc);
    }
    if (col < w->cols)
        step(w, row, rows, x, tokens, col, w->cols - col, type, bits, acc);
#pragma GCC unroll 4
    for (r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (t = 0; t < tokens; t++)
            _mm512_store_ps(lanes[t][r], acc[r][t]);
}

/* Up to sixteen rows, folded together. */
INLINE void fold_group(const swl_matrix *w, int64_t row, int32_t n_rows, const float *const *x, int tokens,
                       swl_wtype type, int bits, float *out, int64_t ldo)
{
    alignas(64) float lanes[TOKENS][FOLD][16];
    int32_t r;
    int t;

    for (r = 0; r + ROWS <= n_rows; r += ROWS)
        block(w, row + r, ROWS, x, tokens, type, bits, (float (*)[FOLD][16])lanes[0][r]);
    for (; r < n_rows; r++)
        block(w, row + r, 1, x, tokens, type, bits, (float (*)[FOLD][16])lanes[0][r]);
    for (; r < FOLD; r++)
        for (t = 0; t < tokens; t++)
            _mm512_store_ps(lanes[t][r], _mm512_setzero_ps());
    for (t = 0; t < tokens; t++)
        _mm512_mask_storeu_ps(out + t * ldo, low16(n_rows), fold_rows(lanes[t][0], 16));
}

/* ---- many ----------------------------------------------------------------------------------------------------- */

/* Columns of four rows: sixteen of each in turn. */
typedef float wide_rows[PART / 16][ROWS][16];

INLINE void widen(const swl_matrix *w, int64_t row, int32_t n_rows, int32_t col, int32_t n, swl_wtype type, int bits,
                  wide_rows *to)
{
    __m512 v[4];
    int32_t r, c;
    int i;

    for (r = 0; r < n_rows; r++)
        for (c = 0; c < n; c += STEP) {
            load(w, row + r, col + c, min_i32(STEP, n - c), type, bits, v);
#pragma GCC unroll 4
            for (i = 0; i < 4; i++)
                _mm512_store_ps(to[r / ROWS][c / 16 + i][r % ROWS], v[i]);
        }
}

/* Adds n columns of `rows` rows times `tokens` tokens, whose lanes are FOLD registers apart. The same columns of two
 * tokens at `ahead` are asked for: rows of activations lie far apart, an order that no processor guesses. */
INLINE void tile(const float (*w)[ROWS][16], int rows, const float *const *x, int tokens, const float *const *ahead,
                 int32_t col, int32_t n, float (*lanes)[16])
{
    __m512 acc[TILE][ROWS], v[ROWS], y;
    int32_t i;
    int r, t;

#pragma GCC unroll 8
    for (t = 0; t < tokens; t++)
#pragma GCC unroll 4
        for (r = 0; r < rows; r++)
            acc[t][r] = _mm512_load_ps(lanes[t * FOLD + r]);
    for (i = 0; i < n; i += 16, w++) {
        __mmask16 m = low16(n - i);

        _mm_prefetch((const char *)(ahead[0] + col + i), _MM_HINT_T0);
        _mm_prefetch((const char *)(ahead[1] + col + i), _MM_HINT_T0);
#pragma GCC unroll 4
        for (r = 0; r < rows; r++)
            v[r] = _mm512_load_ps(w[0][r]);
        if (n - i < 16) {
#pragma GCC unroll 8
            for (t = 0; t < tokens; t++)
#pragma GCC unroll 4
                for (r = 0; r < rows; r++)
                    acc[t][r] = _mm512_mask3_fmadd_ps(v[r], _mm512_maskz_loadu_ps(m, x[t] + col + i), acc[t][r], m);
            break;
        }
#pragma GCC unroll 8
        for (t = 0; t < tokens; t++) {
            y = _mm512_loadu_ps(x[t] + col + i);
            __asm__("" : "+v"(y)); /* one load for all rows; the compiler would make it part of each product */
#pragma GCC unroll 4
            for (r = 0; r < rows; r++)
                acc[t][r] = _mm512_fmadd_ps(v[r], y, acc[t][r]);
        }
    }
#pragma GCC unroll 8
    for (t = 0; t < tokens; t++)
#pragma GCC unroll 4
        for (r = 0; r < rows; r++)
            _mm512_store_ps(lanes[t * FOLD + r], acc[t][r]);
}

/* Behind the tokens x has TILE more pointers, for what is asked for ahead. */
static void tiles(const wide_rows *w, int32_t n_rows, const float *const *x, int32_t n_tok, int32_t col, int32_t n,
                  float (*lanes)[16])
{
    int32_t t, r;

    for (t = 0; t + TILE <= n_tok; t += TILE)
        for (r = 0; r < n_rows; r += ROWS) {
            const float *const *ahead = x + t + TILE + 2 * (r / ROWS % (TILE / 2));

            if (n_rows - r > 1)
                tile(w[r / ROWS], ROWS, x + t, TILE, ahead, col, n, lanes + t * FOLD + r);
            else
                tile(w[r / ROWS], 1, x + t, TILE, ahead, col, n, lanes + t * FOLD + r);
        }
    for (; t < n_tok; t++)
        for (r = 0; r < n_rows; r += ROWS)
            tile(w[r / ROWS], ROWS, x + t, 1, x + t + 1, col, n, lanes + t * FOLD + r);
}

/* Up to sixteen rows and MANY tokens. */
INLINE void many_tokens(const swl_matrix *w, int64_t row, int32_t n_rows, const float *const *x, int32_t n_tok,
                        swl_wtype type, int bits, float *out, int64_t ldo)
{
    alignas(64) float lanes[MANY * FOLD][16];
    alignas(64) wide_rows wide[FOLD / ROWS];
    int32_t col, n, t;

    __builtin_memset(lanes, 0, (size_t)n_tok * FOLD * sizeof lanes[0]);
    if (n_rows < FOLD)
        __builtin_memset(wide, 0, sizeof wide); /* tiles are four rows high */
    for (col = 0; col < w->cols; col += PART) {
        n = min_i32(PART, w->cols - col);
        widen(w, row, n_rows, col, n, type, bits, wide);
        tiles((const wide_rows *)wide, n_rows, x, n_tok, col, n, lanes);
    }
    for (t = 0; t < n_tok; t++)
        _mm512_mask_storeu_ps(out + t * ldo, low16(n_rows), fold_rows(lanes[t * FOLD], 16));
}

/* ---- the slots ------------------------------------------------------------------------------------------------ */

INLINE const float *token(const swl_act *a, const int32_t *tok, int32_t i)
{
    return a->x + (tok ? tok[i] : i) * a->ldx;
}

INLINE void matmul_f(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                     int32_t n_tok, float *out, int64_t ldo, swl_wtype type, int bits)
{
    const float *x[MANY + TILE];
    int32_t t = 0, r, i, n;

    for (; n_tok - t >= LEAST; t += n) {
        n = min_i32(MANY, n_tok - t);
        for (i = 0; i < n + TILE; i++)
            x[i] = token(a, tok, t + i % n);
        for (r = 0; r < n_rows; r += FOLD)
            many_tokens(w, row0 + r, min_i32(FOLD, n_rows - r), x, n, type, bits, out + t * ldo + r, ldo);
    }
    for (; t < n_tok; t += n) {
        n = n_tok - t < TOKENS ? 1 : TOKENS;
        for (i = 0; i < TOKENS; i++)
            x[i] = token(a, tok, t + min_i32(i, n - 1));
        for (r = 0; r < n_rows; r += FOLD)
            if (n == TOKENS)
                fold_group(w, row0 + r, min_i32(FOLD, n_rows - r), x, TOKENS, type, bits, out + t * ldo + r, ldo);
            else
                fold_group(w, row0 + r, min_i32(FOLD, n_rows - r), x, 1, type, bits, out + t * ldo + r, ldo);
    }
}

void swl_matmul_f_f32_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_F32, 0);
}

void swl_matmul_f_f16_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_F16, 0);
}

void swl_matmul_f_bf16_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                              int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_BF16, 0);
}

void swl_matmul_f_a2_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A2, 2);
}

void swl_matmul_f_a3_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A3, 3);
}

void swl_matmul_f_a4_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A4, 4);
}

void swl_matmul_f_a5_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A5, 5);
}

void swl_matmul_f_a6_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A6, 6);
}

void swl_matmul_f_a8_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A8, 8);
}
