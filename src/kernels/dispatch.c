/* dispatch.c: expands the kernel rows into a table for the CPU flags at hand. */
#include <string.h>

#include "base/cpu.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#elif defined(__aarch64__)
#include "kernels/arm/arm.h"
#endif

void swl_kernels_init(swl_kernels *k, uint32_t flags)
{
    memset(k, 0, sizeof *k);
#define KERNEL(need, slot, function)                                                                                   \
    if (((need) & flags) == (need))                                                                                    \
        k->slot = function;
#include "kernels/kernels.inc"
#undef KERNEL
}
