/*
 * quant_avx2.h: what the AVX2 kernels of quantised matrices share: loads of scales and codes. For files built with AVX2
 * flags only.
 */
#ifndef SWL_KERNELS_QUANT_AVX2_H
#define SWL_KERNELS_QUANT_AVX2_H

#include "kernels/kernels.h"
#include "kernels/x86/math_avx2.h"

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

/* Elements [i, i + 8) of an array of float32, float16 or bfloat16, as float32. */
INLINE __m256 load_scales(swl_dtype t, const uint8_t *p, int64_t i)
{
    if (t == SWL_DT_BF16)
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 2 * i))), 16));
    if (t == SWL_DT_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 2 * i)));
    return _mm256_loadu_ps((const void *)(p + 4 * i));
}

/* 2^(b - 128), which is 2^-1 times E8M0: a subnormal for 0 and 1, a NaN for 255. */
INLINE __m256 scales_e8m0(__m256i b)
{
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(b, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), b);
    __m256i nan = _mm256_cmpeq_epi32(b, _mm256_set1_epi32(255));
    __m256i v = _mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(b, _mm256_set1_epi32(1)));

    return _mm256_castsi256_ps(_mm256_blendv_epi8(v, _mm256_set1_epi32(0x7fc00000), nan));
}

/* 2^-1 times E4M3: exponent and mantissa where float32 has them, times 2^119. */
INLINE __m256 scales_e4m3(__m256i b)
{
    __m256i magnitude = _mm256_and_si256(b, _mm256_set1_epi32(0x7f));
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x80)), 24);
    __m256 f = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20)),
                             _mm256_castsi256_ps(_mm256_set1_epi32(246 << 23)));
    __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
    __m256i v = _mm256_blendv_epi8(_mm256_castps_si256(f), _mm256_set1_epi32(0x7fc00000), nan);

    return _mm256_castsi256_ps(_mm256_or_si256(v, sign));
}

/* Eight scales from number i on. */
INLINE __m256 book_scales(const swl_matrix *w, int64_t i, swl_wtype type)
{
    __m256i b;

    if (type == SWL_W_NL4)
        return load_scales(w->sdtype, w->scales, i);
    b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(w->scales + i)));
    return type == SWL_W_NVFP4 ? scales_e4m3(b) : scales_e8m0(b);
}

/* The scales of an activation's next eight units of a size, of which the first begins a group. */
INLINE __m256 act_scales(const float *scale, int unit)
{
    if (unit == 64)
        return _mm256_loadu_ps(scale);
    if (unit == 32)
        return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(scale)),
                                        _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_castsi128_ps(_mm_loadl_epi64((const void *)scale))),
                                    _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* The sums of an activation's next eight units of a size. */
INLINE __m256i unit_sums(const int32_t *sum, int unit)
{
    __m256i a = _mm256_loadu_si256((const void *)sum), b, c, d;

    if (unit == 16)
        return a;
    b = _mm256_loadu_si256((const void *)(sum + 8));
    if (unit == 32)
        return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);
    c = _mm256_loadu_si256((const void *)(sum + 16));
    d = _mm256_loadu_si256((const void *)(sum + 24));
    a = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Eight codes of `bits` bits, each in a byte. */
INLINE uint64_t eight_codes(const uint8_t *p, int bits)
{
    uint64_t word = 0;

    __builtin_memcpy(&word, p, (size_t)bits);
    return bits == 8 ? word : _pdep_u64(word, 0x0101010101010101u * ((1u << bits) - 1));
}

/* Codes 8 * k to 8 * k + 7 of the 32 at p, each in a byte. Whole words are read, all of them inside of the 32 codes. */
INLINE int64_t codes_of_32(const uint8_t *p, int k, int bits)
{
    int at = k * bits + 8 <= 4 * bits ? k * bits : 4 * bits - 8;
    uint64_t word;

    __builtin_memcpy(&word, p + at, 8);
    return (int64_t)_pdep_u64(word >> 8 * (k * bits - at), 0x0101010101010101u * ((1u << bits) - 1));
}

/* 32 codes in column order. */
INLINE __m256i load_codes(const uint8_t *p, int bits)
{
    if (bits == 8)
        return _mm256_loadu_si256((const void *)p);
    if (bits == 4) {
        __m128i v = _mm_loadu_si128((const void *)p), nibble = _mm_set1_epi8(15);
        __m128i low = _mm_and_si128(v, nibble), high = _mm_and_si128(_mm_srli_epi16(v, 4), nibble);

        return _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
    }
    return _mm256_set_epi64x(codes_of_32(p, 3, bits), codes_of_32(p, 2, bits), codes_of_32(p, 1, bits),
                             codes_of_32(p, 0, bits));
}

#endif
