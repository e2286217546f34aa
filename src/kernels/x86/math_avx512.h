/*
 * math_avx512.h: the elementary functions of ref/math_ref.h for sixteen numbers, operation by operation, and the fold
 * of lanes. For files built with AVX-512 flags only.
 */
#ifndef SWL_KERNELS_MATH_AVX512_H
#define SWL_KERNELS_MATH_AVX512_H

#include <immintrin.h>

#include "kernels/ref/math_ref.h"

#define INLINE static inline __attribute__((always_inline))

/* The low n bits, n in 0..16 or more. */
INLINE __mmask16 low16(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1);
}

INLINE __m512 exp16(__m512 x)
{
    __mmask16 inside = _mm512_cmp_ps_mask(x, _mm512_set1_ps(SWL_EXP_MIN), _CMP_GE_OQ);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512 y = _mm512_min_ps(x, _mm512_set1_ps(SWL_EXP_MAX)), n, r, p;
    __m512i bits;

    n = _mm512_roundscale_ps(_mm512_mul_ps(y, _mm512_set1_ps(SWL_LOG2E)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SWL_LN2_HI), y);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SWL_LN2_LO), r);
    p = _mm512_set1_ps(1.0f / 5040.0f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_mask_mov_ps(_mm512_maskz_mul_ps(inside, p, _mm512_castsi512_ps(bits)), nan, x);
}

INLINE __m512 sigmoid16(__m512 x)
{
    __m512 minus = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));

    return _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(minus)));
}

INLINE __m512 silu16(__m512 x)
{
    return _mm512_mul_ps(x, sigmoid16(x));
}

/* 16 -> 8 -> 4 -> 2 -> 1. */
INLINE float fold16(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#endif
