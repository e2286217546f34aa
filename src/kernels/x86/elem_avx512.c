/* elem_avx512.c: norms, activations, convolution, rotation, quantisation of activations: sixteen elements at a time. */
#include "kernels/x86/x86.h"

#include "kernels/x86/math_avx512.h"

#define AHEAD 8 /* tokens of a convolution between the one at work and the one that is asked for */

/* Elements past the end come as 0 and leave a sum of squares unchanged. */
static float sum_squares(const float *x, int32_t n)
{
    __m512 acc = _mm512_setzero_ps(), v;
    int32_t i;

    for (i = 0; i < n; i += 16) {
        v = _mm512_maskz_loadu_ps(low16(n - i), x + i);
        acc = _mm512_fmadd_ps(v, v, acc);
    }
    return fold16(acc);
}

void swl_rms_norm_avx512(float *out, const float *x, const float *w, int32_t n, float eps)
{
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        _mm512_mask_storeu_ps(
            out + i, m,
            _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), r), _mm512_maskz_loadu_ps(m, w + i)));
    }
}

void swl_l2_norm_avx512(float *x, int32_t n, float eps, float scale)
{
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(sum_squares(x, n) + eps));
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        _mm512_mask_storeu_ps(x + i, m,
                              _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), r), _mm512_set1_ps(scale)));
    }
}

void swl_gated_norm_avx512(float *out, const float *o, const float *z, const float *w, int32_t n, float eps)
{
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(sum_squares(o, n) / (float)n + eps)), v;
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        v = _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(m, o + i), r), _mm512_maskz_loadu_ps(m, w + i));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(v, silu16(_mm512_maskz_loadu_ps(m, z + i))));
    }
}

void swl_silu_mul_avx512(float *out, const float *gate, const float *up, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        _mm512_mask_storeu_ps(
            out + i, m, _mm512_mul_ps(silu16(_mm512_maskz_loadu_ps(m, gate + i)), _mm512_maskz_loadu_ps(m, up + i)));
    }
}

void swl_sigmoid_mul_avx512(float *x, const float *gate, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        _mm512_mask_storeu_ps(
            x + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), sigmoid16(_mm512_maskz_loadu_ps(m, gate + i))));
    }
}

void swl_add_avx512(float *x, const float *y, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        _mm512_mask_storeu_ps(x + i, m,
                              _mm512_add_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_maskz_loadu_ps(m, y + i)));
    }
}

void swl_axpy_avx512(float *x, float a, const float *y, int32_t n)
{
    __m512 va = _mm512_set1_ps(a);
    int32_t i;

    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        _mm512_mask_storeu_ps(x + i, m,
                              _mm512_fmadd_ps(va, _mm512_maskz_loadu_ps(m, y + i), _mm512_maskz_loadu_ps(m, x + i)));
    }
}

/* ---- convolution ----------------------------------------------------------------------------------------- */

/* Sixteen channels of a convolution four wide; the three inputs before stay in registers. Rows of u lie far apart, an
 * order that no processor guesses, so the line of the channels at `next` is asked for with each line that is read. That
 * helps all channels but the first, for which a later token's line is. */
static void conv_4(float *out, int64_t ldo, float *state, const float *u, const float *next, int64_t ldu,
                   const float *w, int64_t lds, __mmask16 m, int32_t n_tok)
{
    __m512 w0 = _mm512_maskz_loadu_ps(m, w), w1 = _mm512_maskz_loadu_ps(m, w + lds);
    __m512 w2 = _mm512_maskz_loadu_ps(m, w + 2 * lds), w3 = _mm512_maskz_loadu_ps(m, w + 3 * lds);
    __m512 s0 = _mm512_maskz_loadu_ps(m, state), s1 = _mm512_maskz_loadu_ps(m, state + lds);
    __m512 s2 = _mm512_maskz_loadu_ps(m, state + 2 * lds), now, acc;
    int32_t t;

    for (t = 0; t < n_tok; t++) {
        if (t + AHEAD < n_tok)
            _mm_prefetch((const char *)(u + (t + AHEAD) * ldu), _MM_HINT_T0);
        _mm_prefetch((const char *)(next + t * ldu), _MM_HINT_T0);
        now = _mm512_maskz_loadu_ps(m, u + t * ldu);
        acc = _mm512_fmadd_ps(w1, s1, _mm512_mul_ps(w0, s0));
        acc = _mm512_fmadd_ps(w3, now, _mm512_fmadd_ps(w2, s2, acc));
        _mm512_mask_storeu_ps(out + t * ldo, m, silu16(acc));
        s0 = s1;
        s1 = s2;
        s2 = now;
    }
    _mm512_mask_storeu_ps(state, m, s0);
    _mm512_mask_storeu_ps(state + lds, m, s1);
    _mm512_mask_storeu_ps(state + 2 * lds, m, s2);
}

/* Any other width: the state moves through memory. */
static void conv_any(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                     __mmask16 m, int32_t n_tok, int32_t width)
{
    __m512 now, acc, s;
    int32_t t, j;

    for (t = 0; t < n_tok; t++) {
        now = _mm512_maskz_loadu_ps(m, u + t * ldu);
        s = width > 1 ? _mm512_maskz_loadu_ps(m, state) : now;
        acc = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, w), s);
        for (j = 1; j < width; j++) {
            s = j < width - 1 ? _mm512_maskz_loadu_ps(m, state + j * lds) : now;
            acc = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, w + j * lds), s, acc);
            _mm512_mask_storeu_ps(state + (j - 1) * lds, m, s);
        }
        _mm512_mask_storeu_ps(out + t * ldo, m, silu16(acc));
    }
}

void swl_conv_silu_avx512(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w,
                          int64_t lds, int32_t n, int32_t n_tok, int32_t width)
{
    int32_t c;

    for (c = 0; c < n; c += 16)
        if (width == 4)
            conv_4(out + c, ldo, state + c, u + c, u + (c + 16 < n ? c + 16 : c), ldu, w + c, lds, low16(n - c), n_tok);
        else
            conv_any(out + c, ldo, state + c, u + c, ldu, w + c, lds, low16(n - c), n_tok, width);
}

/* ---- rotation, conversion, softmax ----------------------------------------------------------------------- */

void swl_rope_avx512(float *x, int32_t n_rot, const float *cos, const float *sin)
{
    int32_t half = n_rot / 2, i;

    for (i = 0; i < half; i += 16) {
        __mmask16 m = low16(half - i);
        __m512 a = _mm512_maskz_loadu_ps(m, x + i), b = _mm512_maskz_loadu_ps(m, x + half + i);
        __m512 c = _mm512_maskz_loadu_ps(m, cos + i), s = _mm512_maskz_loadu_ps(m, sin + i);

        _mm512_mask_storeu_ps(x + i, m, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)));
        _mm512_mask_storeu_ps(x + half + i, m, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
    }
}

float swl_softmax_exp_avx512(float *p, const float *x, int32_t n)
{
    __m512 max = _mm512_set1_ps(x[0]), acc = _mm512_setzero_ps(), v;
    int32_t i;

    for (i = 0; i < n; i += 16) /* the second operand wins over a NaN in the first */
        max = _mm512_mask_max_ps(max, low16(n - i), _mm512_maskz_loadu_ps(low16(n - i), x + i), max);
    max = _mm512_set1_ps(_mm512_reduce_max_ps(max));
    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);

        v = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), max));
        _mm512_mask_storeu_ps(p + i, m, v);
        acc = _mm512_mask_add_ps(acc, m, acc, v);
    }
    return fold16(acc);
}

/* ---- quantisation ---------------------------------------------------------------------------------------- */

/* To -limit..limit, with NaN to -limit. Those outside the mask become 0. */
INLINE __m512i round_within(__m512 x, float limit, __mmask16 m)
{
    __m512 r = _mm512_max_ps(x, _mm512_set1_ps(-limit));

    return _mm512_maskz_cvt_roundps_epi32(m, _mm512_min_ps(r, _mm512_set1_ps(limit)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Bytes go to memory and into sums from one register: a load would wait for the stores of its parts. */
INLINE void quantise_group(const float *x, int32_t n, int8_t *q, float *scale, int32_t *sum)
{
    const __m512i by_four = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 v[4], max = _mm512_setzero_ps();
    __mmask16 m[4];
    __m512i c[4], s;
    float top;
    int i;

    for (i = 0; i < 4; i++) {
        m[i] = low16(n < 16 * i ? 0 : n - 16 * i);
        v[i] = _mm512_maskz_loadu_ps(m[i], x + 16 * i);
        max = _mm512_max_ps(_mm512_abs_ps(v[i]), max);
    }
    top = _mm512_reduce_max_ps(max);
    *scale = top / 127.0f;
    max = _mm512_set1_ps(top > 0.0f ? 127.0f / top : 0.0f);
    for (i = 0; i < 4; i++)
        c[i] = round_within(_mm512_mul_ps(v[i], max), 127.0f, m[i]);
    s = _mm512_packs_epi16(_mm512_packs_epi32(c[0], c[1]), _mm512_packs_epi32(c[2], c[3]));
    s = _mm512_permutexvar_epi32(by_four, s);
    _mm512_storeu_si512(q, s);
    s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), s);
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, 0x4e));
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, 0xb1));
    _mm_storeu_si128((void *)sum, _mm512_castsi512_si128(_mm512_permutexvar_epi32(by_four, s)));
}

void swl_quantise_act_avx512(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum)
{
    int32_t left;

    for (left = cols; left > 0; left -= SWL_ACT_GROUP) {
        if (left >= SWL_ACT_GROUP)
            quantise_group(x, SWL_ACT_GROUP, q, scale, sum);
        else
            quantise_group(x, left, q, scale, sum);
        x += SWL_ACT_GROUP;
        q += SWL_ACT_GROUP;
        scale++;
        sum += SWL_ACT_GROUP / SWL_ACT_SUM;
    }
}

void swl_quantise_kv_avx512(const float *x, int32_t n, int16_t *q, float *scale)
{
    __m512 max = _mm512_setzero_ps();
    float top;
    int32_t i;

    for (i = 0; i < n; i += 16)
        max = _mm512_max_ps(_mm512_abs_ps(_mm512_maskz_loadu_ps(low16(n - i), x + i)), max);
    top = _mm512_reduce_max_ps(max);
    *scale = top / SWL_KV_MAX;
    max = _mm512_set1_ps(top > 0.0f ? SWL_KV_MAX / top : 0.0f);
    for (i = 0; i < n; i += 16) {
        __mmask16 m = low16(n - i);
        __m512i v = round_within(_mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), max), SWL_KV_MAX, m);

        _mm256_storeu_si256((void *)(q + i), _mm512_cvtepi32_epi16(v));
    }
}
