/* elem_ref.c: norms, activations, convolution, rotation: everything that works on one row at a time. */
#include "kernels/ref/ref.h"

#include "kernels/ref/math_ref.h"

static float sum_squares(const float *x, int32_t n)
{
    float lane[SWL_LANES] = {0};
    int32_t i;

    for (i = 0; i < n; i++)
        lane[i % SWL_LANES] = fmaf(x[i], x[i], lane[i % SWL_LANES]);
    return ref_fold(lane);
}

void swl_rms_norm_ref(float *out, const float *x, const float *w, int32_t n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
    int32_t i;

    for (i = 0; i < n; i++)
        out[i] = (x[i] * r) * w[i];
}

void swl_l2_norm_ref(float *x, int32_t n, float eps, float scale)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) + eps);
    int32_t i;

    for (i = 0; i < n; i++)
        x[i] = (x[i] * r) * scale;
}

void swl_gated_norm_ref(float *out, const float *o, const float *z, const float *w, int32_t n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(o, n) / (float)n + eps);
    int32_t i;

    for (i = 0; i < n; i++)
        out[i] = ((o[i] * r) * w[i]) * ref_silu(z[i]);
}

void swl_silu_mul_ref(float *out, const float *gate, const float *up, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i++)
        out[i] = ref_silu(gate[i]) * up[i];
}

void swl_sigmoid_mul_ref(float *x, const float *gate, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i++)
        x[i] *= ref_sigmoid(gate[i]);
}

void swl_add_ref(float *x, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i++)
        x[i] += y[i];
}

void swl_axpy_ref(float *x, float a, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i++)
        x[i] = fmaf(a, y[i], x[i]);
}

void swl_conv_silu_ref(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                       int32_t n, int32_t n_tok, int32_t width)
{
    int32_t t, c, j;

    for (t = 0; t < n_tok; t++)
        for (c = 0; c < n; c++) {
            float now = u[t * ldu + c], acc = width > 1 ? w[c] * state[c] : w[c] * now;

            for (j = 1; j < width; j++)
                acc = fmaf(w[j * lds + c], j < width - 1 ? state[j * lds + c] : now, acc);
            for (j = 0; j + 2 < width; j++)
                state[j * lds + c] = state[(j + 1) * lds + c];
            if (width > 1)
                state[(width - 2) * lds + c] = now;
            out[t * ldo + c] = ref_silu(acc);
        }
}

void swl_rope_ref(float *x, int32_t n_rot, const float *cos, const float *sin)
{
    int32_t half = n_rot / 2, i;

    for (i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];

        x[i] = fmaf(-b, sin[i], a * cos[i]);
        x[i + half] = fmaf(a, sin[i], b * cos[i]);
    }
}

float swl_softmax_exp_ref(float *p, const float *x, int32_t n)
{
    float lane[SWL_LANES] = {0}, max = x[0];
    int32_t i;

    for (i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (i = 0; i < n; i++) {
        p[i] = ref_exp(x[i] - max);
        lane[i % SWL_LANES] += p[i];
    }
    return ref_fold(lane);
}

float swl_exp(float x)
{
    return ref_exp(x);
}

float swl_sigmoid(float x)
{
    return ref_sigmoid(x);
}
