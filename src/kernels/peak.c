/* peak.c: which of the measuring loops a processor gets. */
#include "kernels/peak.h"

#include "base/cpu.h"

void swl_peak_init(swl_peak *p, uint32_t flags)
{
    *p = (swl_peak){swl_peak_read_ref, swl_peak_dot_ref, SWL_PEAK_MACS_REF};
#if defined(__x86_64__)
    if (flags & SWL_CPU_AVX2)
        *p = (swl_peak){swl_peak_read_avx2, swl_peak_dot_avx2, SWL_PEAK_MACS_AVX2};
    if (flags & SWL_CPU_AVXVNNI)
        p->dot = swl_peak_dot_avxvnni;
    if (flags & SWL_CPU_AVX512)
        *p = (swl_peak){swl_peak_read_avx512, swl_peak_dot_avx512, SWL_PEAK_MACS_AVX512};
#elif defined(__aarch64__)
    if (flags & SWL_CPU_DOTPROD)
        *p = (swl_peak){swl_peak_read_ref, swl_peak_dot_dotprod, SWL_PEAK_MACS_DOTPROD};
#else
    (void)flags;
#endif
}
