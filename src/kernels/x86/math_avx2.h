/*
 * math_avx2.h: the elementary functions of ref/math_ref.h for eight numbers, operation by operation, and the fold of
 * lanes. Two registers hold the sixteen lanes of the contract. For files built with AVX2 flags only.
 */
#ifndef SWL_KERNELS_MATH_AVX2_H
#define SWL_KERNELS_MATH_AVX2_H

#include <immintrin.h>

#include "kernels/ref/math_ref.h"

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

INLINE __m256 exp8(__m256 x)
{
    __m256 inside = _mm256_cmp_ps(x, _mm256_set1_ps(SWL_EXP_MIN), _CMP_GE_OQ), nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 y = _mm256_min_ps(x, _mm256_set1_ps(SWL_EXP_MAX)), n, r, p;
    __m256i bits;

    n = _mm256_round_ps(_mm256_mul_ps(y, _mm256_set1_ps(SWL_LOG2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SWL_LN2_HI), y);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SWL_LN2_LO), r);
    p = _mm256_set1_ps(1.0f / 5040.0f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    p = _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(bits)), inside);
    return _mm256_blendv_ps(p, x, nan);
}

INLINE __m256 sigmoid8(__m256 x)
{
    __m256 e = exp8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));

    return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

INLINE __m256 silu8(__m256 x)
{
    return _mm256_mul_ps(x, sigmoid8(x));
}

/* 16 -> 8 -> 4 -> 2 -> 1. */
INLINE float fold_pair(__m256 low, __m256 high)
{
    __m256 a = _mm256_add_ps(low, high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

INLINE float max8(__m256 v)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

#endif
