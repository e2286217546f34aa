/* elem_avx2.c: norms, activations, convolution, rotation, quantisation: eight elements at a time, the rest as in ref/.
 */
#include "kernels/x86/x86.h"

#include "kernels/ref/ref.h"
#include "kernels/x86/math_avx2.h"

#define AHEAD 8 /* tokens of a convolution between the one at work and the one that is asked for */

static float sum_squares(const float *x, int32_t n)
{
    __m256 low = _mm256_setzero_ps(), high = low, v;
    float lane[SWL_LANES];
    int32_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        v = _mm256_loadu_ps(x + i);
        low = _mm256_fmadd_ps(v, v, low);
        v = _mm256_loadu_ps(x + i + 8);
        high = _mm256_fmadd_ps(v, v, high);
    }
    if (i == n)
        return fold_pair(low, high);
    _mm256_storeu_ps(lane, low);
    _mm256_storeu_ps(lane + 8, high);
    for (; i < n; i++)
        lane[i % SWL_LANES] = fmaf(x[i], x[i], lane[i % SWL_LANES]);
    return ref_fold(lane);
}

void swl_rms_norm_avx2(float *out, const float *x, const float *w, int32_t n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(r)), _mm256_loadu_ps(w + i)));
    for (; i < n; i++)
        out[i] = (x[i] * r) * w[i];
}

void swl_l2_norm_avx2(float *x, int32_t n, float eps, float scale)
{
    float r = 1.0f / sqrtf(sum_squares(x, n) + eps);
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            x + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(r)), _mm256_set1_ps(scale)));
    for (; i < n; i++)
        x[i] = (x[i] * r) * scale;
}

void swl_gated_norm_avx2(float *out, const float *o, const float *z, const float *w, int32_t n, float eps)
{
    float r = 1.0f / sqrtf(sum_squares(o, n) / (float)n + eps);
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(o + i), _mm256_set1_ps(r)), _mm256_loadu_ps(w + i));

        _mm256_storeu_ps(out + i, _mm256_mul_ps(v, silu8(_mm256_loadu_ps(z + i))));
    }
    for (; i < n; i++)
        out[i] = ((o[i] * r) * w[i]) * ref_silu(z[i]);
}

void swl_silu_mul_avx2(float *out, const float *gate, const float *up, int32_t n)
{
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(silu8(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    for (; i < n; i++)
        out[i] = ref_silu(gate[i]) * up[i];
}

void swl_sigmoid_mul_avx2(float *x, const float *gate, int32_t n)
{
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), sigmoid8(_mm256_loadu_ps(gate + i))));
    for (; i < n; i++)
        x[i] *= ref_sigmoid(gate[i]);
}

void swl_add_avx2(float *x, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

void swl_axpy_avx2(float *x, float a, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_fmadd_ps(_mm256_set1_ps(a), _mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        x[i] = fmaf(a, y[i], x[i]);
}

/* Eight channels of a convolution four wide; the three inputs before stay in registers. What is asked for: see
 * elem_avx512.c. */
static void conv_4(float *out, int64_t ldo, float *state, const float *u, const float *next, int64_t ldu,
                   const float *w, int64_t lds, int32_t n_tok)
{
    __m256 w0 = _mm256_loadu_ps(w), w1 = _mm256_loadu_ps(w + lds), w2 = _mm256_loadu_ps(w + 2 * lds);
    __m256 w3 = _mm256_loadu_ps(w + 3 * lds), s0 = _mm256_loadu_ps(state), s1 = _mm256_loadu_ps(state + lds);
    __m256 s2 = _mm256_loadu_ps(state + 2 * lds), now, acc;
    int32_t t;

    for (t = 0; t < n_tok; t++) {
        if (t + AHEAD < n_tok)
            _mm_prefetch((const char *)(u + (t + AHEAD) * ldu), _MM_HINT_T0);
        _mm_prefetch((const char *)(next + t * ldu), _MM_HINT_T0);
        now = _mm256_loadu_ps(u + t * ldu);
        acc = _mm256_fmadd_ps(w1, s1, _mm256_mul_ps(w0, s0));
        acc = _mm256_fmadd_ps(w3, now, _mm256_fmadd_ps(w2, s2, acc));
        _mm256_storeu_ps(out + t * ldo, silu8(acc));
        s0 = s1;
        s1 = s2;
        s2 = now;
    }
    _mm256_storeu_ps(state, s0);
    _mm256_storeu_ps(state + lds, s1);
    _mm256_storeu_ps(state + 2 * lds, s2);
}

void swl_conv_silu_avx2(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                        int32_t n, int32_t n_tok, int32_t width)
{
    int32_t c = 0;

    for (; width == 4 && c + 8 <= n; c += 8)
        conv_4(out + c, ldo, state + c, u + c, u + (c + 16 < n ? c + 16 : c), ldu, w + c, lds, n_tok);
    if (c < n)
        swl_conv_silu_ref(out + c, ldo, state + c, u + c, ldu, w + c, lds, n - c, n_tok, width);
}

void swl_rope_avx2(float *x, int32_t n_rot, const float *cos, const float *sin)
{
    int32_t half = n_rot / 2, i;

    for (i = 0; i + 8 <= half; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
        __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);

        _mm256_storeu_ps(x + i, _mm256_fnmadd_ps(b, s, _mm256_mul_ps(a, c)));
        _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[i + half];

        x[i] = fmaf(-b, sin[i], a * cos[i]);
        x[i + half] = fmaf(a, sin[i], b * cos[i]);
    }
}

float swl_softmax_exp_avx2(float *p, const float *x, int32_t n)
{
    __m256 low = _mm256_setzero_ps(), high = low, v = _mm256_set1_ps(x[0]);
    float lane[SWL_LANES], max;
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8) /* the second operand wins over a NaN in the first */
        v = _mm256_max_ps(_mm256_loadu_ps(x + i), v);
    max = max8(v);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (i = 0; i + 16 <= n; i += 16) {
        __m256 a = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(max)));
        __m256 b = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8), _mm256_set1_ps(max)));

        _mm256_storeu_ps(p + i, a);
        _mm256_storeu_ps(p + i + 8, b);
        low = _mm256_add_ps(low, a);
        high = _mm256_add_ps(high, b);
    }
    _mm256_storeu_ps(lane, low);
    _mm256_storeu_ps(lane + 8, high);
    for (; i < n; i++) {
        p[i] = ref_exp(x[i] - max);
        lane[i % SWL_LANES] += p[i];
    }
    return ref_fold(lane);
}

/* ---- quantisation ---------------------------------------------------------------------------------------- */

/* Eight values to -limit..limit, with NaN to -limit. */
INLINE __m256i quantise_8(__m256 x, __m256 inv, float limit)
{
    __m256 r = _mm256_round_ps(_mm256_mul_ps(x, inv), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(r, _mm256_set1_ps(-limit)), _mm256_set1_ps(limit)));
}

/* The larger of each of max and |x|, of a NaN max. */
INLINE __m256 max_abs(__m256 max, __m256 x)
{
    return _mm256_max_ps(_mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX))), max);
}

static void quantise_group(const float *x, int8_t *q, float *scale, int32_t *sum)
{
    __m256 max = _mm256_setzero_ps(), inv;
    float top;
    int i;

    for (i = 0; i < 64; i += 8)
        max = max_abs(max, _mm256_loadu_ps(x + i));
    top = max8(max);
    *scale = top / 127.0f;
    inv = _mm256_set1_ps(top > 0.0f ? 127.0f / top : 0.0f);
    for (i = 0; i < 64; i += 16) {
        __m256i a = quantise_8(_mm256_loadu_ps(x + i), inv, 127.0f);
        __m256i b = quantise_8(_mm256_loadu_ps(x + i + 8), inv, 127.0f);
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8), s = _mm256_add_epi32(a, b);
        __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));

        _mm_storeu_si128((void *)(q + i),
                         _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
        t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
        sum[i / 16] = _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
    }
}

void swl_quantise_act_avx2(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum)
{
    int32_t g, full = cols / SWL_ACT_GROUP;

    for (g = 0; g < full; g++)
        quantise_group(x + g * SWL_ACT_GROUP, q + g * SWL_ACT_GROUP, scale + g,
                       sum + g * (SWL_ACT_GROUP / SWL_ACT_SUM));
    if (full * SWL_ACT_GROUP < cols)
        swl_quantise_act_ref(x + full * SWL_ACT_GROUP, cols - full * SWL_ACT_GROUP, q + full * SWL_ACT_GROUP,
                             scale + full, sum + full * (SWL_ACT_GROUP / SWL_ACT_SUM));
}

void swl_quantise_kv_avx2(const float *x, int32_t n, int16_t *q, float *scale)
{
    __m256 low = _mm256_setzero_ps(), high = low, inv;
    int32_t i, at;
    float top;

    if (n < 16) {
        swl_quantise_kv_ref(x, n, q, scale);
        return;
    }
    for (i = 0; i < n; i += 16) { /* the last sixteen may have been partly seen */
        at = min_i32(i, n - 16);
        low = max_abs(low, _mm256_loadu_ps(x + at));
        high = max_abs(high, _mm256_loadu_ps(x + at + 8));
    }
    top = max8(_mm256_max_ps(low, high));
    *scale = top / SWL_KV_MAX;
    inv = _mm256_set1_ps(top > 0.0f ? SWL_KV_MAX / top : 0.0f);
    for (i = 0; i < n; i += 16) {
        __m256i a, b;

        at = min_i32(i, n - 16);
        a = quantise_8(_mm256_loadu_ps(x + at), inv, SWL_KV_MAX);
        b = quantise_8(_mm256_loadu_ps(x + at + 8), inv, SWL_KV_MAX);
        _mm256_storeu_si256((void *)(q + at), _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
    }
    for (i = n; i < swl_head_padded(n); i++)
        q[i] = 0;
}
