/*
 * math_neon.h: what the NEON kernels in float32 share: the contract's sixteen lanes as four vectors, loads of every
 * plain type, and the elementary functions of math_ref.h, operation by operation.
 *
 * Loops over registers carry an unroll pragma: arrays of vectors become registers only when no loop is left around them.
 */
#ifndef SWL_KERNELS_MATH_NEON_H
#define SWL_KERNELS_MATH_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/ref/math_ref.h"

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

/* All ones in the first n elements. */
INLINE uint32x4_t first4(int32_t n)
{
    const int32x4_t index = {0, 1, 2, 3};

    return vcltq_s32(index, vdupq_n_s32(n));
}

INLINE void clear_lanes(float32x4_t lane[4])
{
    lane[0] = lane[1] = lane[2] = lane[3] = vdupq_n_f32(0.0f);
}

/* The first two steps of the fold: 16 -> 8 -> 4. */
INLINE float32x4_t fold_to_4(const float32x4_t lane[4])
{
    return vaddq_f32(vaddq_f32(lane[0], lane[2]), vaddq_f32(lane[1], lane[3]));
}

/* The last two steps, 4 -> 2 -> 1, of four sums at once. */
INLINE float32x4_t fold_four(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d)
{
    float64x2_t a2 = vreinterpretq_f64_f32(a), b2 = vreinterpretq_f64_f32(b), c2 = vreinterpretq_f64_f32(c),
                d2 = vreinterpretq_f64_f32(d);
    float32x4_t ab = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(a2, b2)), vreinterpretq_f32_f64(vzip2q_f64(a2, b2)));
    float32x4_t cd = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(c2, d2)), vreinterpretq_f32_f64(vzip2q_f64(c2, d2)));

    return vpaddq_f32(ab, cd);
}

INLINE float fold_lanes(const float32x4_t lane[4])
{
    float32x4_t s = fold_to_4(lane);
    float32x2_t pair = vadd_f32(vget_low_f32(s), vget_high_f32(s));

    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* Four elements of a float32, float16 or bfloat16 array at p, which needs no alignment, as float32. */
INLINE float32x4_t load4(swl_dtype t, const uint8_t *p)
{
    if (t == SWL_DT_BF16)
        return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))), 16));
    if (t == SWL_DT_F16)
        return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

/* The first n < 4 elements, the others 0 and not read. */
INLINE float32x4_t load_part4(swl_dtype t, const uint8_t *p, int32_t n)
{
    uint8_t padded[16] = {0};

    memcpy(padded, p, (size_t)n * (t == SWL_DT_F32 ? 4 : 2));
    return load4(t, padded);
}

INLINE void load16(swl_dtype t, const uint8_t *p, float32x4_t v[4])
{
    int size = t == SWL_DT_F32 ? 4 : 2, i;

#pragma GCC unroll 16
    for (i = 0; i < 4; i++)
        v[i] = load4(t, p + 4 * i * size);
}

/* The first n < 16 elements. */
INLINE void load_part16(swl_dtype t, const uint8_t *p, int32_t n, float32x4_t v[4])
{
    uint8_t padded[64] = {0};

    memcpy(padded, p, (size_t)n * (t == SWL_DT_F32 ? 4 : 2));
    load16(t, padded, v);
}

/* ---- elementary functions ---------------------------------------------------------------------------------------- */

INLINE float32x4_t exp4(float32x4_t x)
{
    float32x4_t n, r, p, c = vminq_f32(x, vdupq_n_f32(SWL_EXP_MAX));
    uint32x4_t keep = vcgeq_f32(x, vdupq_n_f32(SWL_EXP_MIN)), number = vceqq_f32(x, x);
    int32x4_t bits;

    n = vrndnq_f32(vmulq_n_f32(c, SWL_LOG2E));
    r = vfmaq_f32(c, n, vdupq_n_f32(-SWL_LN2_HI));
    r = vfmaq_f32(r, n, vdupq_n_f32(-SWL_LN2_LO));
    p = vdupq_n_f32(1.0f / 5040.0f);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    bits = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    p = vmulq_f32(p, vreinterpretq_f32_s32(bits));
    p = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(p), keep));
    return vbslq_f32(number, p, x);
}

INLINE float32x4_t sigmoid4(float32x4_t x)
{
    float32x4_t one = vdupq_n_f32(1.0f);

    return vdivq_f32(one, vaddq_f32(one, exp4(vnegq_f32(x))));
}

INLINE float32x4_t silu4(float32x4_t x)
{
    return vmulq_f32(x, sigmoid4(x));
}

/* The largest of n > 0 values and `first`, the earlier of equals: only zeros can differ in that, by their sign. */
INLINE float max_of(const float *x, int32_t n, float first)
{
    float32x4_t v = vdupq_n_f32(first);
    float max;
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        v = vmaxnmq_f32(v, vld1q_f32(x + i));
    max = vmaxnmvq_f32(v);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (max == 0.0f)
        for (max = first, i = 0; i < n; i++)
            max = x[i] > max ? x[i] : max;
    return max;
}

/* p[i] = exp(x[i] - max), returns the sum over 16 lanes. p may be x. */
INLINE float exp_sum(float *p, const float *x, int32_t n, float max)
{
    float lane[SWL_LANES] = {0};
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4) {
        float32x4_t e = exp4(vsubq_f32(vld1q_f32(x + i), vdupq_n_f32(max)));

        vst1q_f32(p + i, e);
        vst1q_f32(lane + i % SWL_LANES, vaddq_f32(vld1q_f32(lane + i % SWL_LANES), e));
    }
    for (; i < n; i++) {
        p[i] = ref_exp(x[i] - max);
        lane[i % SWL_LANES] += p[i];
    }
    return ref_fold(lane);
}

#endif
