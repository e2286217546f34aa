/* quantise_neon.c: one row of activations to int8 codes, their scales and sums; queries, keys and values to int16. */
#include "kernels/arm/arm.h"

#include "kernels/arm/math_neon.h"
#include "kernels/ref/ref.h"

/* Codes of four elements, -limit to limit: NaN, which an infinite or a tiny maximum makes, goes to -limit as in the
 * reference. */
INLINE int32x4_t codes4(float32x4_t x, float inv, float limit)
{
    float32x4_t r = vrndnq_f32(vmulq_n_f32(x, inv)), low = vdupq_n_f32(-limit);

    r = vbslq_f32(vcgeq_f32(r, low), r, low);
    return vcvtq_s32_f32(vminq_f32(r, vdupq_n_f32(limit)));
}

INLINE float max_abs(const float *x)
{
    float32x4_t max[4];
    int i;

#pragma GCC unroll 16
    for (i = 0; i < 4; i++)
        max[i] = vabsq_f32(vld1q_f32(x + 4 * i));
#pragma GCC unroll 16
    for (i = 4; i < SWL_ACT_GROUP / 4; i++)
        max[i % 4] = vmaxnmq_f32(max[i % 4], vabsq_f32(vld1q_f32(x + 4 * i)));
    max[0] = vmaxnmq_f32(vmaxnmq_f32(max[0], max[1]), vmaxnmq_f32(max[2], max[3]));
    return fmaxf(vmaxnmvq_f32(max[0]), 0.0f); /* a group of NaN has maximum 0 */
}

INLINE void quantise_group(const float *x, int8_t *q, float *scale, int32_t *sum)
{
    float max = max_abs(x), inv = max > 0.0f ? 127.0f / max : 0.0f;
    int i, j;

    *scale = max / 127.0f;
#pragma GCC unroll 16
    for (i = 0; i < SWL_ACT_GROUP / SWL_ACT_SUM; i++, x += 16) {
        int16x4_t c[4];
        int8x16_t v;

#pragma GCC unroll 16
        for (j = 0; j < 4; j++)
            c[j] = vmovn_s32(codes4(vld1q_f32(x + 4 * j), inv, 127.0f));
        v = vcombine_s8(vmovn_s16(vcombine_s16(c[0], c[1])), vmovn_s16(vcombine_s16(c[2], c[3])));
        vst1q_s8(q + 16 * i, v);
        sum[i] = vaddlvq_s8(v);
    }
}

void swl_quantise_act_neon(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum)
{
    int32_t g, full = cols / SWL_ACT_GROUP;

    for (g = 0; g < full; g++)
        quantise_group(x + g * SWL_ACT_GROUP, q + g * SWL_ACT_GROUP, scale + g,
                       sum + g * (SWL_ACT_GROUP / SWL_ACT_SUM));
    if (g * SWL_ACT_GROUP < cols)
        swl_quantise_act_ref(x + g * SWL_ACT_GROUP, cols - g * SWL_ACT_GROUP, q + g * SWL_ACT_GROUP, scale + g,
                             sum + g * (SWL_ACT_GROUP / SWL_ACT_SUM));
}

void swl_quantise_kv_neon(const float *x, int32_t n, int16_t *q, float *scale)
{
    float32x4_t max[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)}, a;
    float top, inv;
    int32_t i, at;
    int j;

    if (n < 8) {
        swl_quantise_kv_ref(x, n, q, scale);
        return;
    }
    for (i = 0; i < n; i += 8) { /* the last eight may have been partly seen */
        at = min_i32(i, n - 8);
#pragma GCC unroll 16
        for (j = 0; j < 2; j++) {
            a = vabsq_f32(vld1q_f32(x + at + 4 * j));
            max[j] = vbslq_f32(vcgtq_f32(a, max[j]), a, max[j]);
        }
    }
    top = vmaxvq_f32(vmaxq_f32(max[0], max[1]));
    *scale = top / SWL_KV_MAX;
    inv = top > 0.0f ? SWL_KV_MAX / top : 0.0f;
    for (i = 0; i < n; i += 8) {
        int16x4_t low, high;

        at = min_i32(i, n - 8);
        low = vmovn_s32(codes4(vld1q_f32(x + at), inv, SWL_KV_MAX));
        high = vmovn_s32(codes4(vld1q_f32(x + at + 4), inv, SWL_KV_MAX));
        vst1q_s16(q + at, vcombine_s16(low, high));
    }
    for (i = n; i < swl_head_padded(n); i++)
        q[i] = 0;
}
