/* peak_ref.c: the measuring loops in plain C. */
#include "kernels/peak.h"

uint64_t swl_peak_read_ref(const uint64_t *p, int64_t n)
{
    uint64_t x[8] = {0};

    for (int64_t i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++)
            x[k] ^= p[i + k];
    return x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
}

/* Every round loads a again: the compiler must not see that it is the same. */
uint32_t swl_peak_dot_ref(int64_t n, const uint8_t a[64], const int8_t *b)
{
    uint32_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        const volatile uint8_t *va = a;

        for (int k = 0; k < SWL_PEAK_MACS_REF; k++)
            sum += (uint32_t)((int32_t)va[k] * b[k]);
    }
    return sum;
}
