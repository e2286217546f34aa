/* peak_avx2.c: the measuring loops with 256-bit registers; without VNNI a product takes three instructions. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = SWL_PEAK_MACS_AVX2 / 32 };

uint64_t swl_peak_read_avx2(const uint64_t *p, int64_t n)
{
    __m256i x[8];

#pragma GCC unroll 16
    for (int k = 0; k < 8; k++)
        x[k] = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 32)
#pragma GCC unroll 16
        for (int k = 0; k < 8; k++)
            x[k] = _mm256_xor_si256(x[k], _mm256_load_si256((const __m256i *)(const void *)(p + i + 4 * k)));
#pragma GCC unroll 16
    for (int k = 1; k < 8; k++)
        x[0] = _mm256_xor_si256(x[0], x[k]);
    _Alignas(32) uint64_t words[4];
    _mm256_store_si256((__m256i *)(void *)words, x[0]);
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}

static uint32_t fold(const __m256i *sum)
{
    uint32_t words[8], total = 0;

#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++) {
        _mm256_storeu_si256((__m256i *)(void *)words, sum[k]);
        for (int i = 0; i < 8; i++)
            total += words[i];
    }
    return total;
}

uint32_t swl_peak_dot_avx2(int64_t n, const uint8_t a[64], const int8_t *b)
{
    __m256i va[2], sum[SUMS], one = _mm256_set1_epi16(1);

#pragma GCC unroll 16
    for (int k = 0; k < 2; k++)
        va[k] = _mm256_loadu_si256((const __m256i *)(const void *)(a + 32 * k));
#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++)
        sum[k] = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+x"(va[0]), "+x"(va[1])); /* new values, as far as the compiler knows */
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++) {
            __m256i vb = _mm256_loadu_si256((const __m256i *)(const void *)(b + 32 * k));

            sum[k] = _mm256_add_epi32(sum[k], _mm256_madd_epi16(_mm256_maddubs_epi16(va[k % 2], vb), one));
        }
    }
    return fold(sum);
}
