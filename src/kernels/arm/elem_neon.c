/* elem_neon.c: norms, activations, convolution, rotation: everything that works on one row at a time. */
#include "kernels/arm/arm.h"

#include "kernels/arm/math_neon.h"
#include "kernels/ref/ref.h"

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static float sum_squares(const float *x, int32_t n)
{
    float32x4_t lane[4], v;
    float last[SWL_LANES];
    int32_t i, j;

    clear_lanes(lane);
    for (i = 0; i + SWL_LANES <= n; i += SWL_LANES)
#pragma GCC unroll 16
        for (j = 0; j < 4; j++) {
            v = vld1q_f32(x + i + 4 * j);
            lane[j] = vfmaq_f32(lane[j], v, v);
        }
    if (i == n)
        return fold_lanes(lane);
#pragma GCC unroll 16
    for (j = 0; j < 4; j++)
        vst1q_f32(last + 4 * j, lane[j]);
    for (; i < n; i++)
        last[i % SWL_LANES] = fmaf(x[i], x[i], last[i % SWL_LANES]);
    return ref_fold(last);
}

void swl_rms_norm_neon(float *out, const float *x, const float *w, int32_t n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), r), vld1q_f32(w + i)));
    for (; i < n; i++)
        out[i] = (x[i] * r) * w[i];
}

void swl_l2_norm_neon(float *x, int32_t n, float eps, float scale)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) + eps);
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(x + i, vmulq_n_f32(vmulq_n_f32(vld1q_f32(x + i), r), scale));
    for (; i < n; i++)
        x[i] = (x[i] * r) * scale;
}

void swl_gated_norm_neon(float *out, const float *o, const float *z, const float *w, int32_t n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(o, n) / (float)n + eps);
    float32x4_t v;
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4) {
        v = vmulq_f32(vmulq_n_f32(vld1q_f32(o + i), r), vld1q_f32(w + i));
        vst1q_f32(out + i, vmulq_f32(v, silu4(vld1q_f32(z + i))));
    }
    for (; i < n; i++)
        out[i] = ((o[i] * r) * w[i]) * ref_silu(z[i]);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

void swl_silu_mul_neon(float *out, const float *gate, const float *up, int32_t n)
{
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vmulq_f32(silu4(vld1q_f32(gate + i)), vld1q_f32(up + i)));
    for (; i < n; i++)
        out[i] = ref_silu(gate[i]) * up[i];
}

void swl_sigmoid_mul_neon(float *x, const float *gate, int32_t n)
{
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(x + i, vmulq_f32(vld1q_f32(x + i), sigmoid4(vld1q_f32(gate + i))));
    for (; i < n; i++)
        x[i] *= ref_sigmoid(gate[i]);
}

void swl_add_neon(float *x, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(x + i, vaddq_f32(vld1q_f32(x + i), vld1q_f32(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

void swl_axpy_neon(float *x, float a, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(x + i, vfmaq_n_f32(vld1q_f32(x + i), vld1q_f32(y + i), a));
    for (; i < n; i++)
        x[i] = fmaf(a, y[i], x[i]);
}

void swl_rope_neon(float *x, int32_t n_rot, const float *cos, const float *sin)
{
    int32_t half = n_rot / 2, i;

    for (i = 0; i + 4 <= half; i += 4) {
        float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + i + half), c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);

        vst1q_f32(x + i, vfmsq_f32(vmulq_f32(a, c), b, s));
        vst1q_f32(x + i + half, vfmaq_f32(vmulq_f32(b, c), a, s));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[i + half];

        x[i] = fmaf(-b, sin[i], a * cos[i]);
        x[i + half] = fmaf(a, sin[i], b * cos[i]);
    }
}

float swl_softmax_exp_neon(float *p, const float *x, int32_t n)
{
    return exp_sum(p, x, n, max_of(x, n, x[0]));
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* Four taps, four channels: the state stays in registers from token to token. */
INLINE void conv_channels(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w,
                          int64_t lds, int32_t n_tok)
{
    float32x4_t w0 = vld1q_f32(w), w1 = vld1q_f32(w + lds), w2 = vld1q_f32(w + 2 * lds), w3 = vld1q_f32(w + 3 * lds);
    float32x4_t s0 = vld1q_f32(state), s1 = vld1q_f32(state + lds), s2 = vld1q_f32(state + 2 * lds), now, acc;
    int32_t t;

    for (t = 0; t < n_tok; t++) {
        now = vld1q_f32(u + t * ldu);
        acc = vfmaq_f32(vmulq_f32(w0, s0), w1, s1);
        acc = vfmaq_f32(vfmaq_f32(acc, w2, s2), w3, now);
        vst1q_f32(out + t * ldo, silu4(acc));
        s0 = s1;
        s1 = s2;
        s2 = now;
    }
    vst1q_f32(state, s0);
    vst1q_f32(state + lds, s1);
    vst1q_f32(state + 2 * lds, s2);
}

void swl_conv_silu_neon(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                        int32_t n, int32_t n_tok, int32_t width)
{
    int32_t c = 0;

    for (; width == 4 && c + 4 <= n; c += 4)
        conv_channels(out + c, ldo, state + c, u + c, ldu, w + c, lds, n_tok);
    if (c < n)
        swl_conv_silu_ref(out + c, ldo, state + c, u + c, ldu, w + c, lds, n - c, n_tok, width);
}
