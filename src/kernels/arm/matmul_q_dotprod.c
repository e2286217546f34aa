/*
 * matmul_q_dotprod.c: quantised matrices with SDOT, four products to a 32-bit sum. For many tokens an element of a
 * register is a row: a panel register holds four columns of four rows, and an activation's four bytes meet all of them.
 *
 *   panel   [column / 4][8 rows][4]
 *   sums    [token of the pair][8 rows]
 */
#include "kernels/arm/arm.h"

#include "kernels/arm/quant_neon.h"

enum { OFFSET_8 = 1 };

INLINE int32x4_t dot16(int32x4_t acc, uint8x16_t q, int8x16_t x)
{
    return vdotq_s32(acc, vreinterpretq_s8_u8(q), x);
}

INLINE int32x4_t unit_dot(const uint8x16_t *q, const int8_t *x, int n, int bits)
{
    int32x4_t acc = vdupq_n_s32(0);
    int i;

    (void)bits;
    for (i = 0; i < n; i++)
        acc = dot16(acc, q[i], vld1q_s8(x + 16 * i));
    return acc;
}

#include "kernels/arm/matmul_few.h"
#include "kernels/arm/matmul_tile.h"

/* 4 x 4 elements of 32 bits: register g of the result is columns 4g..4g+3 of the four rows. */
INLINE void pack_rows(const uint8x16_t *v, uint8_t *to)
{
    uint32x4_t a = vreinterpretq_u32_u8(v[0]), b = vreinterpretq_u32_u8(v[1]);
    uint32x4_t c = vreinterpretq_u32_u8(v[2]), d = vreinterpretq_u32_u8(v[3]);
    uint64x2_t ab02 = vreinterpretq_u64_u32(vtrn1q_u32(a, b)), ab13 = vreinterpretq_u64_u32(vtrn2q_u32(a, b));
    uint64x2_t cd02 = vreinterpretq_u64_u32(vtrn1q_u32(c, d)), cd13 = vreinterpretq_u64_u32(vtrn2q_u32(c, d));

    vst1q_u8(to, vreinterpretq_u8_u64(vzip1q_u64(ab02, cd02)));
    vst1q_u8(to + 32, vreinterpretq_u8_u64(vzip1q_u64(ab13, cd13)));
    vst1q_u8(to + 64, vreinterpretq_u8_u64(vzip2q_u64(ab02, cd02)));
    vst1q_u8(to + 96, vreinterpretq_u8_u64(vzip2q_u64(ab13, cd13)));
}

INLINE void pack16(const uint8x16_t v[TILE_ROWS], uint8_t *to)
{
    pack_rows(v, to);
    pack_rows(v + 4, to + 16);
}

INLINE void pack_scales(const float s[TILE_ROWS], float to[16])
{
    memcpy(to, s, TILE_ROWS * sizeof *s);
}

/* Four columns of four rows times bytes 4 * lane.. of x; lane is a constant. */
INLINE int32x4_t dot_lane(int32x4_t acc, int8x16_t w, int8x16_t x, int lane)
{
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(acc, w, x, 0);
    case 1:
        return vdotq_laneq_s32(acc, w, x, 1);
    case 2:
        return vdotq_laneq_s32(acc, w, x, 2);
    default:
        return vdotq_laneq_s32(acc, w, x, 3);
    }
}

/* Sixteen columns: acc[t][0] rows 0 to 3, acc[t][1] rows 4 to 7. */
INLINE void multiply16(const uint8_t *codes, const int8x16_t *x, int32x4_t (*acc)[2], int n_tok)
{
    int g, t;

    for (g = 0; g < 4; g++) {
        int8x16_t w0 = vreinterpretq_s8_u8(vld1q_u8(codes + 32 * g));
        int8x16_t w1 = vreinterpretq_s8_u8(vld1q_u8(codes + 32 * g + 16));

        for (t = 0; t < n_tok; t++) {
            acc[t][0] = dot_lane(acc[t][0], w0, x[t], g);
            acc[t][1] = dot_lane(acc[t][1], w1, x[t], g);
        }
    }
}

INLINE void multiply_tile(const panel *p, const tile_act *a, int32_t n_units, pair_lanes *lanes, int n_tok, int unit,
                          bool offset)
{
    const uint8_t *codes = p->codes;
    int32_t u;
    int t, c, i;

    for (u = 0; u < n_units; u++) {
        int32x4_t acc[TILE_TOKENS][2];
        int8x16_t x[TILE_TOKENS];

        for (t = 0; t < n_tok; t++)
            acc[t][0] = acc[t][1] = vdupq_n_s32(offset ? a->sum128[t][u] : 0);
#pragma GCC unroll 1
        for (c = 0; c < unit; c += 16, codes += 16 * TILE_ROWS) {
            for (t = 0; t < n_tok; t++)
                x[t] = vld1q_s8(a->x[t] + u * unit + c);
            multiply16(codes, x, acc, n_tok);
        }
        for (t = 0; t < n_tok; t++)
            for (i = 0; i < 2; i++) {
                float *l = lanes[t / 2][u % SWL_LANES] + t % 2 * TILE_ROWS + 4 * i;
                float32x4_t s = vfmaq_f32(vld1q_f32(l), vcvtq_f32_s32(acc[t][i]),
                                          vmulq_n_f32(vld1q_f32(p->ws[u] + 4 * i), a->xs[t][u]));

                vst1q_f32(l, vfmaq_n_f32(s, vld1q_f32(p->wb[u] + 4 * i), a->xi[t][u]));
            }
    }
}

INLINE void fold_pair(const pair_lanes lanes, float out[2][TILE_ROWS])
{
    float32x4_t v[SWL_LANES];
    int i, k, half;

    for (k = 0; k < 4; k++) {
        for (i = 0; i < SWL_LANES; i++)
            v[i] = vld1q_f32(lanes[i] + 4 * k);
        for (half = 8; half; half /= 2)
            for (i = 0; i < half; i++)
                v[i] = vaddq_f32(v[i], v[i + half]);
        vst1q_f32(out[k / 2] + k % 2 * 4, v[0]);
    }
}

void swl_matmul_q_a2_dotprod(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 2);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a3_dotprod(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 3);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a4_dotprod(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 4);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a5_dotprod(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 5);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a6_dotprod(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 6);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a8_dotprod(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 8);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}
