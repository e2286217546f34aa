/*
 * quant_neon.h: what the kernels of quantised matrices share at every AArch64 level: codes to bytes, scales of units,
 * the scale and sum of an activation's units.
 */
#ifndef SWL_KERNELS_QUANT_NEON_H
#define SWL_KERNELS_QUANT_NEON_H

#include "kernels/arm/math_neon.h"

/* How codes of 2, 3, 5 and 6 bits lie in a row: the two bytes that hold each of eight codes, and, to the right, the
 * place of the code in their sixteen bits. The next eight begin `bits` bytes later, at the same places. */
/* clang-format off */
static const uint8_t code_bytes[7][16] = {
#define TWO(b, i) (b) * (i) / 8, (b) * (i) / 8 + 1
#define EIGHT(b) TWO(b, 0), TWO(b, 1), TWO(b, 2), TWO(b, 3), TWO(b, 4), TWO(b, 5), TWO(b, 6), TWO(b, 7)
    [2] = {EIGHT(2)}, [3] = {EIGHT(3)}, [5] = {EIGHT(5)}, [6] = {EIGHT(6)},
#undef EIGHT
#undef TWO
};
static const int16_t code_shifts[7][8] = {
#define EIGHT(b) 0, -(1 * (b) % 8), -(2 * (b) % 8), -(3 * (b) % 8), -(4 * (b) % 8), -(5 * (b) % 8), -(6 * (b) % 8), \
                 -(7 * (b) % 8)
    [2] = {EIGHT(2)}, [3] = {EIGHT(3)}, [5] = {EIGHT(5)}, [6] = {EIGHT(6)},
#undef EIGHT
};
/* clang-format on */

/* Bytes that unpack16 reads, of which 2 * bits matter. */
INLINE int read_bytes(int bits)
{
    return bits == 4 ? 8 : 16;
}

/* Sixteen codes in column order. */
INLINE uint8x16_t unpack16(const uint8_t *p, int bits)
{
    uint8x16_t v, index;
    uint16x8_t a, b;
    int16x8_t shift;

    if (bits == 8)
        return vld1q_u8(p);
    if (bits == 4) {
        uint8x8_t pair = vld1_u8(p), low = vand_u8(pair, vdup_n_u8(15)), high = vshr_n_u8(pair, 4);

        return vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
    }
    v = vld1q_u8(p);
    index = vld1q_u8(code_bytes[bits]);
    shift = vld1q_s16(code_shifts[bits]);
    a = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(v, index)), shift);
    index = vaddq_u8(index, vdupq_n_u8((uint8_t)bits));
    b = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(v, index)), shift);
    v = vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
    return vandq_u8(v, vdupq_n_u8((uint8_t)((1 << bits) - 1)));
}

/* The byte after the last of a matrix: how far unpack16 may read. */
INLINE const uint8_t *matrix_end(const swl_matrix *w)
{
    return w->data + w->rows * swl_matrix_row_bytes(w);
}

/* unpack16 near the end of the matrix. */
INLINE uint8x16_t unpack16_within(const uint8_t *p, int bits, const uint8_t *end)
{
    uint8_t padded[16] = {0};

    if (end - p >= read_bytes(bits))
        return unpack16(p, bits);
    memcpy(padded, p, 2 * (size_t)bits);
    return unpack16(padded, bits);
}

/* Scales of units [unit, unit + n), n <= 4, of the row whose first scale is `row0`; per_scale units share one: 1, or 2,
 * where unit and n are even. The others are 0 and not read. */
INLINE float32x4_t unit_scales(swl_dtype t, const uint8_t *p, int64_t row0, int32_t unit, int32_t n, int32_t per_scale)
{
    int64_t at = (row0 + unit / per_scale) * (t == SWL_DT_F32 ? 4 : 2);
    int32_t read = n / per_scale;
    float32x4_t s = read == 4 ? load4(t, p + at) : load_part4(t, p + at, read);

    return per_scale == 1 ? s : vzip1q_f32(s, s);
}

/* For units [unit, unit + n) of activation row `row`: xs their scales, xi = scale * (float)sum, and sum128 = 128 times
 * the sum where asked for. */
static inline void act_units(const swl_act *a, int64_t row, int32_t size, int32_t unit, int32_t n, float *xs, float *xi,
                             int32_t *sum128)
{
    const int32_t *sum = a->sum + row * (a->ldq / SWL_ACT_SUM) + (int64_t)unit * size / SWL_ACT_SUM;
    const float *scale = a->scale + row * (a->ldq / SWL_ACT_GROUP);
    int32_t k = size / SWL_ACT_SUM, u, i, s;

    for (u = 0; u < n; u++, sum += k) {
        for (s = sum[0], i = 1; i < k; i++)
            s += sum[i];
        xs[u] = scale[(int64_t)(unit + u) * size / SWL_ACT_GROUP];
        xi[u] = xs[u] * (float)s;
        if (sum128)
            sum128[u] = 128 * s;
    }
}

#endif
