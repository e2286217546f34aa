/* matmul_tile_avxvnni.c: many tokens by vpdpbusd, which adds four products of bytes to a sum of 32 bits. */
enum { AT_ONCE = 6, SPLIT_8 = 0 };

#include "kernels/x86/matmul_tile_avx2.h"

INLINE void dots_of(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int n)
{
    __m256i acc[2 * AT_ONCE];
    int i, k, j;

#pragma GCC unroll 16
    for (j = 0; j < 2 * n; j++)
        acc[j] = _mm256_setzero_si256();
    for (i = 0; i < c->n; i++, codes += 16 * ROWS, x += 16) {
#pragma GCC unroll 4
        for (k = 0; k < 4; k++) {
            __m256i w0 = _mm256_load_si256((const void *)(codes + 4 * ROWS * k));
            __m256i w1 = _mm256_load_si256((const void *)(codes + 4 * ROWS * k + 32));

#pragma GCC unroll 8
            for (j = 0; j < n; j++) {
                __m256i four = four_of(x + j * ldx + 4 * k);

                acc[2 * j] = _mm256_dpbusd_avx_epi32(acc[2 * j], w0, four);
                acc[2 * j + 1] = _mm256_dpbusd_avx_epi32(acc[2 * j + 1], w1, four);
            }
        }
    }
#pragma GCC unroll 16
    for (j = 0; j < 2 * n; j++)
        dot[j] = acc[j];
}

static void dots(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int32_t n)
{
    if (n == 6)
        dots_of(dot, codes, x, ldx, c, 6);
    else if (n == 5)
        dots_of(dot, codes, x, ldx, c, 5);
    else if (n == 4)
        dots_of(dot, codes, x, ldx, c, 4);
    else if (n == 3)
        dots_of(dot, codes, x, ldx, c, 3);
    else if (n == 2)
        dots_of(dot, codes, x, ldx, c, 2);
    else
        dots_of(dot, codes, x, ldx, c, 1);
}

static chunks chunks_of(int bits, int unit)
{
    (void)bits;
    return (chunks){dots, unit / 16, 1};
}

/* Few tokens are as with AVX2: what they take is memory. */
void swl_matmul_q_avxvnni(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    static swl_matmul_fn *const few[SWL_W_COUNT] = {
        [SWL_W_A2] = swl_matmul_q_a2_avx2,       [SWL_W_A3] = swl_matmul_q_a3_avx2,
        [SWL_W_A4] = swl_matmul_q_a4_avx2,       [SWL_W_A5] = swl_matmul_q_a5_avx2,
        [SWL_W_A6] = swl_matmul_q_a6_avx2,       [SWL_W_A8] = swl_matmul_q_a8_avx2,
        [SWL_W_MXFP4] = swl_matmul_q_mxfp4_avx2, [SWL_W_NVFP4] = swl_matmul_q_nvfp4_avx2,
        [SWL_W_NL4] = swl_matmul_q_nl4_avx2,
    };

    if (swl_matmul_tile_pays_avx2(w, n_tok))
        run_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
    else
        few[w->type](w, row0, n_rows, a, tok, n_tok, out, ldo);
}
