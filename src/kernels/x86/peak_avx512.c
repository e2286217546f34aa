/* peak_avx512.c: the measuring loops with 512-bit registers: twelve independent sums hide the latency of vpdpbusd. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = SWL_PEAK_MACS_AVX512 / 64 };

uint64_t swl_peak_read_avx512(const uint64_t *p, int64_t n)
{
    __m512i x[8];

#pragma GCC unroll 16
    for (int k = 0; k < 8; k++)
        x[k] = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 64)
#pragma GCC unroll 16
        for (int k = 0; k < 8; k++)
            x[k] = _mm512_xor_si512(x[k], _mm512_load_si512(p + i + 8 * k));
#pragma GCC unroll 16
    for (int k = 1; k < 8; k++)
        x[0] = _mm512_xor_si512(x[0], x[k]);
    _Alignas(64) uint64_t words[8];
    _mm512_store_si512(words, x[0]);
    return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}

uint32_t swl_peak_dot_avx512(int64_t n, const uint8_t a[64], const int8_t *b)
{
    __m512i va = _mm512_loadu_si512(a), vb[SUMS], sum[SUMS];

#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++) {
        vb[k] = _mm512_loadu_si512(b + 64 * k);
        sum[k] = _mm512_setzero_si512();
    }
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+v"(va)); /* a new value, as far as the compiler knows */
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++)
            sum[k] = _mm512_dpbusd_epi32(sum[k], va, vb[k]);
    }
#pragma GCC unroll 16
    for (int k = 1; k < SUMS; k++)
        sum[0] = _mm512_add_epi32(sum[0], sum[k]);
    return (uint32_t)_mm512_reduce_add_epi32(sum[0]);
}
