/*
 * quant_avx512.h: what the AVX-512 kernels of quantised matrices share: loads of scales and codes, the scale and sum of
 * an activation's units, the fold of lanes. For files built with AVX-512 flags only.
 */
#ifndef SWL_KERNELS_QUANT_AVX512_H
#define SWL_KERNELS_QUANT_AVX512_H

#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/x86/math_avx512.h"

INLINE int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The low n bits, any n. */
INLINE __mmask64 low64(int64_t n)
{
    return n >= 64 ? ~UINT64_C(0) : n <= 0 ? 0 : (UINT64_C(1) << n) - 1;
}

/* 64 bytes, of which `left` may be read; the others are 0. */
INLINE __m512i load_bytes(const void *p, int64_t left)
{
    return left >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(low64(left), p);
}

/* Elements [i, i + 16) of an array of float32, float16 or bfloat16, as float32; those outside the mask are 0 and not
 * read. */
INLINE __m512 load_scales(swl_dtype t, const uint8_t *p, int64_t i, __mmask16 mask)
{
    if (t == SWL_DT_BF16)
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p + 2 * i)), 16));
    if (t == SWL_DT_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p + 2 * i));
    return _mm512_maskz_loadu_ps(mask, p + 4 * i);
}

/* One of them. */
INLINE float one_scale(swl_dtype t, const uint8_t *p, int64_t i)
{
    uint32_t bits = 0;
    float f;

    if (t == SWL_DT_F32) {
        __builtin_memcpy(&f, p + 4 * i, 4);
        return f;
    }
    __builtin_memcpy(&bits, p + 2 * i, 2);
    if (t == SWL_DT_F16)
        return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)bits)));
    bits <<= 16;
    __builtin_memcpy(&f, &bits, 4);
    return f;
}

/* The scales of units [unit, unit + n) of one row, n <= 16; per_scale units (1, or 2 for groups of 128) share one. */
INLINE __m512 unit_scales(swl_dtype t, const uint8_t *p, int64_t row0, int32_t unit, int32_t n, int32_t per_scale)
{
    if (per_scale == 1)
        return load_scales(t, p, row0 + unit, low16(n));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                 load_scales(t, p, row0 + unit / 2, low16((n + 1) / 2)));
}

/* How eight codes of a width lie in a 64-bit word: which bytes of the stream each of the eight words gets, and the bit
 * at which each code starts. */
/* clang-format off */
static const uint8_t spread_bytes[9][64] = {
#define WORDS(b) b * 0, b * 0 + 1, b * 0 + 2, b * 0 + 3, b * 0 + 4, b * 0 + 5, b * 0 + 6, b * 0 + 7, \
                 b * 1, b * 1 + 1, b * 1 + 2, b * 1 + 3, b * 1 + 4, b * 1 + 5, b * 1 + 6, b * 1 + 7, \
                 b * 2, b * 2 + 1, b * 2 + 2, b * 2 + 3, b * 2 + 4, b * 2 + 5, b * 2 + 6, b * 2 + 7, \
                 b * 3, b * 3 + 1, b * 3 + 2, b * 3 + 3, b * 3 + 4, b * 3 + 5, b * 3 + 6, b * 3 + 7, \
                 b * 4, b * 4 + 1, b * 4 + 2, b * 4 + 3, b * 4 + 4, b * 4 + 5, b * 4 + 6, b * 4 + 7, \
                 b * 5, b * 5 + 1, b * 5 + 2, b * 5 + 3, b * 5 + 4, b * 5 + 5, b * 5 + 6, b * 5 + 7, \
                 b * 6, b * 6 + 1, b * 6 + 2, b * 6 + 3, b * 6 + 4, b * 6 + 5, b * 6 + 6, b * 6 + 7, \
                 b * 7, b * 7 + 1, b * 7 + 2, b * 7 + 3, b * 7 + 4, b * 7 + 5, b * 7 + 6, b * 7 + 7
    [2] = {WORDS(2)}, [3] = {WORDS(3)}, [4] = {WORDS(4)}, [5] = {WORDS(5)}, [6] = {WORDS(6)},
#undef WORDS
};
/* clang-format on */

/* Byte i of the result: code i of the stream of codes in v. */
INLINE __m512i spread_codes(__m512i v, int bits)
{
    uint64_t start = 0;
    int i;

    if (bits == 8)
        return v;
    for (i = 0; i < 8; i++)
        start |= (uint64_t)(i * bits) << (8 * i);
    v = _mm512_permutexvar_epi8(_mm512_loadu_si512(spread_bytes[bits]), v);
    v = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)start), v);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

/* 64 codes of `bits` bits (8 * bits bytes, of which `left` may be read) as bytes in column order. */
INLINE __m512i load_codes(const uint8_t *p, int bits, int64_t left)
{
    return spread_codes(load_bytes(p, left < 8 * bits ? left : 8 * bits), bits);
}

/* Sums of neighbours: lane i = v[2i] + v[2i+1] over the 32 lanes of (a, b). */
INLINE __m512i add_pairs(__m512i a, __m512i b)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);

    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
}

INLINE __m512i load_sums(const int32_t *p, int32_t n)
{
    return _mm512_maskz_loadu_epi32(low16(n < 0 ? 0 : n), p);
}

/* For units [unit, unit + n) of activation row `row`, n <= 16: their scales, and *xi = scale * (float)sum. */
INLINE __m512 act_units(const swl_act *a, int64_t row, int32_t size, int32_t unit, int32_t n, __m512 *xi)
{
    const int32_t *sum = a->sum + row * (a->ldq / SWL_ACT_SUM) + (int64_t)unit * size / SWL_ACT_SUM;
    const float *scale = a->scale + row * (a->ldq / SWL_ACT_GROUP) + (int64_t)unit * size / SWL_ACT_GROUP;
    int32_t k = size / SWL_ACT_SUM, per = SWL_ACT_GROUP / size, m = n * k;
    __m512i s = load_sums(sum, m);
    __m512 f = _mm512_maskz_loadu_ps(low16((n + per - 1) / per), scale);

    if (k == 2) {
        s = add_pairs(s, load_sums(sum + 16, m - 16));
        f = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), f);
    } else if (k == 4) {
        s = add_pairs(add_pairs(s, load_sums(sum + 16, m - 16)),
                      add_pairs(load_sums(sum + 32, m - 32), load_sums(sum + 48, m - 48)));
    } else {
        f = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), f);
    }
    *xi = _mm512_mul_ps(f, _mm512_cvtepi32_ps(s));
    return f;
}

/* Lane r of the result is the fold 16 -> 8 -> 4 -> 2 -> 1 of the 16 lanes at v + r * stride, for r < 16. */
INLINE __m512 fold_rows(const float *v, int64_t stride)
{
    __m512 a[8], b[4], c[2], d;
    int i;

#pragma GCC unroll 8
    for (i = 0; i < 8; i++) {
        __m512 x = _mm512_loadu_ps(v + 2 * i * stride), y = _mm512_loadu_ps(v + (2 * i + 1) * stride);

        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
    }
#pragma GCC unroll 4
    for (i = 0; i < 4; i++)
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
#pragma GCC unroll 2
    for (i = 0; i < 2; i++) {
        __m512d x = _mm512_castps_pd(b[2 * i]), y = _mm512_castps_pd(b[2 * i + 1]);

        c[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    d = _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), d);
}

#endif
