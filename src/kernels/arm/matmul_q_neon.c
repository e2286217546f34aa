/* matmul_q_neon.c: quantised matrices on processors without dot product instructions: products of 16 bits, summed in 16
 * bits as long as they fit. */
#include "kernels/arm/arm.h"

#include "kernels/arm/quant_neon.h"

enum { OFFSET_8 = 1 };

INLINE int32x4_t dot16(int32x4_t acc, uint8x16_t q, int8x16_t x)
{
    int8x16_t w = vreinterpretq_s8_u8(q);

    return vpadalq_s16(acc, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x)));
}

/* A register gives two products to each of eight sums. At most 127 * 31 * 8, 127 * 63 * 4 or 127 * 128 * 2 fit 16 bits:
 * four registers of codes up to five bits, two of six, one of eight. */
INLINE int32x4_t unit_dot(const uint8x16_t *q, const int8_t *x, int n, int bits)
{
    int each = bits == 8 ? 1 : bits == 6 ? 2 : 4, i;
    int32x4_t acc = vdupq_n_s32(0);
    int16x8_t s = vdupq_n_s16(0);

    for (i = 0; i < n; i++) {
        int8x16_t w = vreinterpretq_s8_u8(q[i]), v = vld1q_s8(x + 16 * i);

        s = i % each ? vmlal_s8(s, vget_low_s8(w), vget_low_s8(v)) : vmull_s8(vget_low_s8(w), vget_low_s8(v));
        s = vmlal_high_s8(s, w, v);
        if (i % each == each - 1 || i == n - 1)
            acc = vpadalq_s16(acc, s);
    }
    return acc;
}

#include "kernels/arm/matmul_few.h"

void swl_matmul_q_a2_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 2);
}

void swl_matmul_q_a3_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 3);
}

void swl_matmul_q_a4_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 4);
}

void swl_matmul_q_a5_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 5);
}

void swl_matmul_q_a6_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 6);
}

void swl_matmul_q_a8_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 8);
}
