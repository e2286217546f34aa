/*
 * peak.h: loops that do nothing but read memory or multiply, in the instructions of a kernel level: what the real kernels
 * are measured against. Both are exact, so that they can be tested.
 */
#ifndef SWL_KERNELS_PEAK_H
#define SWL_KERNELS_PEAK_H

#include <stdint.h>

#define SWL_PEAK_WORDS 64 /* a block of swl_peak_read_fn: 512 bytes */

/* Exclusive or of all words; n a multiple of SWL_PEAK_WORDS, p aligned to 64. */
typedef uint64_t swl_peak_read_fn(const uint64_t *p, int64_t n);
/* The sum over `macs` products a[i % 64] * b[i], added up n times modulo 2^32. a is at most 15. */
typedef uint32_t swl_peak_dot_fn(int64_t n, const uint8_t a[64], const int8_t *b);

typedef struct swl_peak {
    swl_peak_read_fn *read;
    swl_peak_dot_fn *dot;
    int32_t macs;
} swl_peak;

enum { SWL_PEAK_MACS_REF = 64, SWL_PEAK_MACS_AVX2 = 256, SWL_PEAK_MACS_AVX512 = 768, SWL_PEAK_MACS_DOTPROD = 128,
       SWL_PEAK_MACS_MAX = 768 };

/* The best for a set of SWL_CPU_ flags. */
void swl_peak_init(swl_peak *p, uint32_t flags);

swl_peak_read_fn swl_peak_read_ref, swl_peak_read_avx2, swl_peak_read_avx512;
swl_peak_dot_fn swl_peak_dot_ref, swl_peak_dot_avx2, swl_peak_dot_avxvnni, swl_peak_dot_avx512, swl_peak_dot_dotprod;

#endif
