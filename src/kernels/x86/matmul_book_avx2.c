/*
 * matmul_book_avx2.c: four-bit codebooks (mxfp4, nvfp4, the non-linear code) times tokens, eight units of a row at a
 * time. Codes look up signed bytes (vpshufb); a product with a signed activation is |w| times x with the sign of w, and
 * two products of 127 * 127 fit the 16 bits of vpmaddubsw. The sums of eight units end up side by side, where their
 * scales are, and enter the lanes of the contract in two halves.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx2.h"

enum { FEW = 4, BATCH = 8 };

/* ---- sums of units --------------------------------------------------------------------------------------- */

INLINE __m256i products(__m256i w, const int8_t *x)
{
    __m256i v = _mm256_loadu_si256((const void *)x);

    v = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(v, w));
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

/* Per 128-bit half: the sums of a, b, c, d. */
INLINE __m256i add_quads(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

/* Eight units of 32 columns. */
INLINE __m256i dots_32(const __m256i *w, const int8_t *x)
{
    __m256i a = add_quads(products(w[0], x), products(w[1], x + 32), products(w[2], x + 64), products(w[3], x + 96));
    __m256i b =
        add_quads(products(w[4], x + 128), products(w[5], x + 160), products(w[6], x + 192), products(w[7], x + 224));

    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* Eight units of 16 columns: two per register, one in each half. */
INLINE __m256i dots_16(const __m256i *w, const int8_t *x)
{
    __m256i a = add_quads(products(w[0], x), products(w[1], x + 32), products(w[2], x + 64), products(w[3], x + 96));

    return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

typedef struct tokens {
    const int8_t *q[FEW];
    const float *scale[FEW];
    int32_t n;
} tokens;

/* What is left behind the last eight units, as the reference does it. */
static void finish(const swl_matrix *w, const uint8_t *data, int64_t row, int32_t u, int unit, const tokens *t,
                   float (*lanes)[SWL_LANES])
{
    const int32_t *book = swl_wtype_get(w->type)->book;
    int32_t n_units = w->cols / unit, k, i;

    for (; u < n_units; u++) {
        float ws = swl_matrix_scale(w, row * n_units + u);

        for (k = 0; k < t->n; k++) {
            const int8_t *x = t->q[k] + u * unit;
            float *lane = &lanes[k][u % SWL_LANES];
            int32_t dot = 0;

            for (i = 0; i < unit; i++)
                dot += book[data[(u * unit + i) / 2] >> 4 * (i % 2) & 15] * x[i];
            *lane = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss((float)dot),
                                               _mm_set_ss(ws * t->scale[k][u * unit / SWL_ACT_GROUP]), _mm_set_ss(*lane)));
        }
    }
}

INLINE void one_row(const swl_matrix *w, int64_t row, const tokens *t, int32_t n_tok, swl_wtype type, int unit,
                    __m256i table, float (*lanes)[SWL_LANES])
{
    const uint8_t *data = w->data + row * swl_matrix_row_bytes(w);
    int32_t n_units = w->cols / unit, u, i, k;
    __m256 sum[FEW][2] = {{_mm256_setzero_ps(), _mm256_setzero_ps()}};

    for (k = 0; k < n_tok; k++)
        sum[k][0] = sum[k][1] = _mm256_setzero_ps();
    for (u = 0; u + BATCH <= n_units; u += BATCH) {
        __m256 ws = book_scales(w, row * n_units + u, type);
        __m256i v[8];

#pragma GCC unroll 8
        for (i = 0; i < BATCH * unit / 32; i++)
            v[i] = _mm256_shuffle_epi8(table, load_codes(data + u * unit / 2 + 16 * i, 4));
        for (k = 0; k < n_tok; k++) {
            __m256i dot = unit == 32 ? dots_32(v, t->q[k] + u * unit) : dots_16(v, t->q[k] + u * unit);
            __m256 s = _mm256_mul_ps(ws, act_scales(t->scale[k] + u * unit / SWL_ACT_GROUP, unit));

            sum[k][u / BATCH % 2] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), s, sum[k][u / BATCH % 2]);
        }
    }
    for (k = 0; k < n_tok; k++) {
        _mm256_storeu_ps(lanes[k], sum[k][0]);
        _mm256_storeu_ps(lanes[k] + 8, sum[k][1]);
    }
    if (u < n_units)
        finish(w, data, row, u, unit, t, lanes);
}

INLINE void few_tokens(const swl_matrix *w, int32_t row0, int32_t n_rows, const tokens *t, float *out, int64_t ldo,
                       swl_wtype type, int unit)
{
    alignas(32) float lanes[FEW][SWL_LANES];
    const int32_t *book = swl_wtype_get(w->type)->book;
    int8_t bytes[16];
    __m256i table;
    int32_t r, k;

    for (k = 0; k < 16; k++)
        bytes[k] = (int8_t)book[k];
    table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)bytes));
    for (r = 0; r < n_rows; r++) {
        if (t->n == 1)
            one_row(w, row0 + r, t, 1, type, unit, table, lanes);
        else
            one_row(w, row0 + r, t, t->n, type, unit, table, lanes);
        for (k = 0; k < t->n; k++)
            out[k * ldo + r] = ref_fold(lanes[k]);
    }
}

INLINE void matmul(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                   int32_t n_tok, float *out, int64_t ldo, swl_wtype type, int unit)
{
    int32_t first, k;

    if (swl_matmul_tile_pays_avx2(w, n_tok)) {
        swl_matmul_tile_avx2(w, row0, n_rows, a, tok, n_tok, out, ldo);
        return;
    }
    for (first = 0; first < n_tok; first += FEW) {
        tokens t = {.n = min_i32(FEW, n_tok - first)};

        for (k = 0; k < t.n; k++) {
            int64_t row = tok ? tok[first + k] : first + k;

            t.q[k] = a->q + row * a->ldq;
            t.scale[k] = a->scale + row * (a->ldq / SWL_ACT_GROUP);
        }
        few_tokens(w, row0, n_rows, &t, out + first * ldo, ldo, type, unit);
    }
}

void swl_matmul_q_mxfp4_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_MXFP4, 32);
}

void swl_matmul_q_nvfp4_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_NVFP4, 16);
}

void swl_matmul_q_nl4_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_NL4, 32);
}
