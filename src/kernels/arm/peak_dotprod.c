/* peak_dotprod.c: the multiplying loop with the dot-product instruction of Armv8.2. */
#include <arm_neon.h>

#include "kernels/peak.h"

enum { SUMS = SWL_PEAK_MACS_DOTPROD / 16 };

uint32_t swl_peak_dot_dotprod(int64_t n, const uint8_t a[64], const int8_t *b)
{
    int8x16_t va[4], vb[SUMS];
    int32x4_t sum[SUMS];
    uint32_t total = 0;

#pragma GCC unroll 16
    for (int k = 0; k < 4; k++)
        va[k] = vreinterpretq_s8_u8(vld1q_u8(a + 16 * k));
#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++) {
        vb[k] = vld1q_s8(b + 16 * k);
        sum[k] = vdupq_n_s32(0);
    }
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+w"(va[0]), "+w"(va[1]), "+w"(va[2]), "+w"(va[3])); /* new values for the compiler */
#pragma GCC unroll 16
        for (int k = 0; k < SUMS; k++)
            sum[k] = vdotq_s32(sum[k], va[k % 4], vb[k]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < SUMS; k++)
        total += (uint32_t)vaddvq_s32(sum[k]);
    return total;
}
