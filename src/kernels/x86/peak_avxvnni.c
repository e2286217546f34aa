/* peak_avxvnni.c: the multiplying loop with 256-bit vpdpbusd. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = SWL_PEAK_MACS_AVX2 / 32 };

uint32_t swl_peak_dot_avxvnni(int64_t n, const uint8_t a[64], const int8_t *b)
{
    __m256i va[2], sum[SUMS];
    uint32_t words[8], total = 0;

#pragma GCC unroll 16
    for (int k = 0; k < 2; k++)
        va[k] = _mm256_loadu_si256((const __m256i *)(const void *)(a + 32 * k));
#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++)
        sum[k] = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+x"(va[0]), "+x"(va[1])); /* new values, as far as the compiler knows */
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++)
            sum[k] = _mm256_dpbusd_avx_epi32(sum[k], va[k % 2],
                                             _mm256_loadu_si256((const __m256i *)(const void *)(b + 32 * k)));
    }
#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++) {
        _mm256_storeu_si256((__m256i *)(void *)words, sum[k]);
        for (int i = 0; i < 8; i++)
            total += words[i];
    }
    return total;
}
