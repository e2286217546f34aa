/* cpu.h: which instruction sets this processor (and operating system) can run. */
#ifndef SWL_BASE_CPU_H
#define SWL_BASE_CPU_H

#include <stdint.h>

enum {
    SWL_CPU_AVX2 = 1 << 0,       /* AVX2, FMA, F16C, BMI2 */
    SWL_CPU_AVXVNNI = 1 << 1,
    SWL_CPU_AVX512 = 1 << 2,     /* F, BW, DQ, VL, VNNI, VBMI */
    SWL_CPU_AVX512BF16 = 1 << 3,
    SWL_CPU_NEAR = 1 << 4,       /* with AVX512: memory is best asked for straight into the first cache */
    SWL_CPU_NEON = 1 << 8,       /* with half-precision conversion: every AArch64 */
    SWL_CPU_DOTPROD = 1 << 9,
    SWL_CPU_I8MM = 1 << 10
};

/* The SWL_CPU_ flags of this machine. */
uint32_t swl_cpu_flags(void);

/* The flags that a named level allows; "best" allows all.
 * Returns 0 and *known = 0 for an unknown name. */
uint32_t swl_cpu_level_mask(const char *name, int *known);

/* The name of the highest level in a set of flags. Static storage. */
const char *swl_cpu_level_name(uint32_t flags);

#endif
