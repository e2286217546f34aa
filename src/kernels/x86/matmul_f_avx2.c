/*
 * matmul_f_avx2.c: matrices of any format times float32 activations. Two registers are the sixteen lanes of the
 * contract; two rows by up to two tokens at a time, columns that do not fill both registers one by one.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx2.h"

enum { ROWS = 2, TOKENS = 2 };

/* Sixteen weights from column col on. */
INLINE void load_weights(const swl_matrix *w, int64_t row, int32_t col, swl_wtype type, int bits, __m256 *v)
{
    int64_t at = row * w->cols + col, g;
    swl_dtype t = type == SWL_W_BF16 ? SWL_DT_BF16 : type == SWL_W_F16 ? SWL_DT_F16 : SWL_DT_F32;
    __m256 s, b;
    __m128i codes;

    if (!bits) {
        v[0] = load_scales(t, w->data, at);
        v[1] = load_scales(t, w->data, at + 8);
        return;
    }
    g = at >> __builtin_ctz((uint32_t)w->group); /* group sizes are powers of two */
    s = _mm256_set1_ps(one_scale(w->sdtype, w->scales, g));
    b = _mm256_set1_ps(one_scale(w->sdtype, w->biases, g));
    codes = _mm_set_epi64x((int64_t)eight_codes(w->data + (at + 8) * bits / 8, bits),
                           (int64_t)eight_codes(w->data + at * bits / 8, bits));
    v[0] = _mm256_fmadd_ps(s, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes)), b);
    v[1] = _mm256_fmadd_ps(s, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(codes, codes))), b);
}

/* The columns from col on that do not fill the lanes; only plain formats have them. */
static float finish_lanes(const swl_matrix *w, int64_t row, const float *x, int32_t col, swl_wtype type, __m256 low,
                          __m256 high)
{
    swl_dtype t = type == SWL_W_BF16 ? SWL_DT_BF16 : type == SWL_W_F16 ? SWL_DT_F16 : SWL_DT_F32;
    float lane[SWL_LANES];

    if (col == w->cols)
        return fold_pair(low, high);
    _mm256_storeu_ps(lane, low);
    _mm256_storeu_ps(lane + 8, high);
    for (; col < w->cols; col++)
        lane[col % SWL_LANES] = fmaf(one_scale(t, w->data, row * w->cols + col), x[col], lane[col % SWL_LANES]);
    return ref_fold(lane);
}

INLINE void block(const swl_matrix *w, int64_t row, int rows, const float *const *x, int tokens, swl_wtype type,
                  int bits, float *out, int64_t ldo)
{
    __m256 low[ROWS][TOKENS], high[ROWS][TOKENS], v[ROWS][2];
    int32_t col;
    int r, t;

#pragma GCC unroll 2
    for (r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (t = 0; t < tokens; t++)
            low[r][t] = high[r][t] = _mm256_setzero_ps();
    for (col = 0; col + 16 <= w->cols; col += 16) {
#pragma GCC unroll 2
        for (r = 0; r < rows; r++)
            load_weights(w, row + r, col, type, bits, v[r]);
#pragma GCC unroll 2
        for (t = 0; t < tokens; t++) {
            __m256 a = _mm256_loadu_ps(x[t] + col), b = _mm256_loadu_ps(x[t] + col + 8);

#pragma GCC unroll 2
            for (r = 0; r < rows; r++) {
                low[r][t] = _mm256_fmadd_ps(v[r][0], a, low[r][t]);
                high[r][t] = _mm256_fmadd_ps(v[r][1], b, high[r][t]);
            }
        }
    }
#pragma GCC unroll 2
    for (r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (t = 0; t < tokens; t++)
            out[t * ldo + r] = finish_lanes(w, row + r, x[t], col, type, low[r][t], high[r][t]);
}

INLINE void matmul_f(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                     int32_t n_tok, float *out, int64_t ldo, swl_wtype type, int bits)
{
    const float *x[TOKENS];
    int32_t t, r, i, n;

    for (t = 0; t < n_tok; t += n) {
        n = n_tok - t < TOKENS ? 1 : TOKENS;
        for (i = 0; i < TOKENS; i++)
            x[i] = a->x + (tok ? tok[t + min_i32(i, n - 1)] : t + min_i32(i, n - 1)) * a->ldx;
        for (r = 0; r + ROWS <= n_rows; r += ROWS)
            if (n == TOKENS)
                block(w, row0 + r, ROWS, x, TOKENS, type, bits, out + t * ldo + r, ldo);
            else
                block(w, row0 + r, ROWS, x, 1, type, bits, out + t * ldo + r, ldo);
        for (; r < n_rows; r++)
            for (i = 0; i < n; i++)
                block(w, row0 + r, 1, x + i, 1, type, bits, out + (t + i) * ldo + r, ldo);
    }
}

void swl_matmul_f_f32_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_F32, 0);
}

void swl_matmul_f_f16_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_F16, 0);
}

void swl_matmul_f_bf16_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_BF16, 0);
}

void swl_matmul_f_a2_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A2, 2);
}

void swl_matmul_f_a3_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A3, 3);
}

void swl_matmul_f_a4_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A4, 4);
}

void swl_matmul_f_a5_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A5, 5);
}

void swl_matmul_f_a6_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A6, 6);
}

void swl_matmul_f_a8_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_f(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_A8, 8);
}
