/*
 * matmul_q_i8mm.c: quantised matrices with USDOT and USMMLA, which take unsigned codes with signed activations. For
 * many tokens USMMLA multiplies eight columns of two rows with those of two tokens into a 2 x 2 block of sums, and the
 * lanes stay in such blocks until the end.
 *
 *   panel   [column / 8][8 rows][8]
 *   sums    [pair of rows][row][token]
 */
#include "kernels/arm/arm.h"

#include "kernels/arm/quant_neon.h"

enum { OFFSET_8 = 0 };

INLINE int32x4_t dot16(int32x4_t acc, uint8x16_t q, int8x16_t x)
{
    return vusdotq_s32(acc, q, x);
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

INLINE void pack16(const uint8x16_t v[TILE_ROWS], uint8_t *to)
{
    int r;

    for (r = 0; r < TILE_ROWS; r += 2) {
        uint64x2_t a = vreinterpretq_u64_u8(v[r]), b = vreinterpretq_u64_u8(v[r + 1]);

        vst1q_u8(to + 8 * r, vreinterpretq_u8_u64(vzip1q_u64(a, b)));
        vst1q_u8(to + 64 + 8 * r, vreinterpretq_u8_u64(vzip2q_u64(a, b)));
    }
}

INLINE void pack_scales(const float s[TILE_ROWS], float to[16])
{
    int r;

    for (r = 0; r < TILE_ROWS; r++)
        to[2 * r] = to[2 * r + 1] = s[r];
}

INLINE float32x4_t twice(float first, float second)
{
    float32x2_t v = {first, second};

    return vcombine_f32(v, v);
}

/* Sixteen columns; acc[k][j] is rows 2k, 2k + 1 with tokens 2j, 2j + 1. */
INLINE void multiply16(const uint8_t *codes, const int8_t *const *x, int32_t at, int32x4_t (*acc)[TILE_TOKENS / 2],
                       int n_tok)
{
    int64x2_t a, b;
    int8x16_t low, high;
    int j, k;

    for (j = 0; j < n_tok / 2; j++) {
        a = vreinterpretq_s64_s8(vld1q_s8(x[2 * j] + at));
        b = vreinterpretq_s64_s8(vld1q_s8(x[2 * j + 1] + at));
        low = vreinterpretq_s8_s64(vzip1q_s64(a, b));
        high = vreinterpretq_s8_s64(vzip2q_s64(a, b));
        for (k = 0; k < 4; k++) {
            acc[k][j] = vusmmlaq_s32(acc[k][j], vld1q_u8(codes + 16 * k), low);
            acc[k][j] = vusmmlaq_s32(acc[k][j], vld1q_u8(codes + 64 + 16 * k), high);
        }
    }
}

INLINE void multiply_tile(const panel *p, const tile_act *a, int32_t n_units, pair_lanes *lanes, int n_tok, int unit,
                          bool offset)
{
    const uint8_t *codes = p->codes;
    int32_t u;
    int j, k, c;

    (void)offset;
    for (u = 0; u < n_units; u++) {
        int32x4_t acc[4][TILE_TOKENS / 2];

        for (k = 0; k < 4; k++)
            for (j = 0; j < n_tok / 2; j++)
                acc[k][j] = vdupq_n_s32(0);
#pragma GCC unroll 1
        for (c = 0; c < unit; c += 16, codes += 16 * TILE_ROWS)
            multiply16(codes, a->x, u * unit + c, acc, n_tok);
        for (j = 0; j < n_tok / 2; j++) {
            float32x4_t xs = twice(a->xs[2 * j][u], a->xs[2 * j + 1][u]);
            float32x4_t xi = twice(a->xi[2 * j][u], a->xi[2 * j + 1][u]);

            for (k = 0; k < 4; k++) {
                float *l = lanes[j][u % SWL_LANES] + 4 * k;
                float32x4_t s =
                    vfmaq_f32(vld1q_f32(l), vcvtq_f32_s32(acc[k][j]), vmulq_f32(vld1q_f32(p->ws[u] + 4 * k), xs));

                vst1q_f32(l, vfmaq_f32(s, vld1q_f32(p->wb[u] + 4 * k), xi));
            }
        }
    }
}

INLINE void fold_pair(const pair_lanes lanes, float out[2][TILE_ROWS])
{
    float32x4_t v[SWL_LANES], sum[4];
    int i, k, half;

    for (k = 0; k < 4; k++) {
        for (i = 0; i < SWL_LANES; i++)
            v[i] = vld1q_f32(lanes[i] + 4 * k);
        for (half = 8; half; half /= 2)
            for (i = 0; i < half; i++)
                v[i] = vaddq_f32(v[i], v[i + half]);
        sum[k] = v[0];
    }
    for (k = 0; k < 2; k++) {
        vst1q_f32(out[0] + 4 * k, vuzp1q_f32(sum[2 * k], sum[2 * k + 1]));
        vst1q_f32(out[1] + 4 * k, vuzp2q_f32(sum[2 * k], sum[2 * k + 1]));
    }
}

void swl_matmul_q_a2_i8mm(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 2);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a3_i8mm(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 3);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a4_i8mm(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 4);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a5_i8mm(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 5);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a6_i8mm(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 6);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}

void swl_matmul_q_a8_i8mm(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    if (n_tok <= FEW)
        matmul_few(w, row0, n_rows, a, tok, n_tok, out, ldo, 8);
    else
        matmul_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}
