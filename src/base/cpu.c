/* cpu.c: CPUID on x86-64, hardware capability words on AArch64. */
#include "base/cpu.h"

#include <stddef.h>
#include <string.h>

#include <swiftlet/swiftlet.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* XCR0: which register files the operating system saves. */
static uint32_t xcr0(void)
{
    uint32_t lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

/* 0: another maker. CPUID 0 and 1, as AMD's manuals put the family together. */
static uint32_t amd_family(void)
{
    uint32_t a, b, c, d, family;

    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx ||
        !__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    family = a >> 8 & 15;
    return family == 15 ? family + (a >> 20 & 255) : family;
}

#define BIT(word, n) (((word) >> (n)) & 1u)

uint32_t swl_cpu_flags(void)
{
    uint32_t a, b, c, d, c1, b7, c7, a71 = 0, max7, flags = 0, saved;

    if (!__get_cpuid(1, &a, &b, &c1, &d) || !BIT(c1, 27) || !BIT(c1, 28)) /* OSXSAVE, AVX */
        return 0;
    saved = xcr0();
    if ((saved & 6) != 6 || !__get_cpuid_count(7, 0, &max7, &b7, &c7, &d))
        return 0;
    if (max7 >= 1)
        __get_cpuid_count(7, 1, &a71, &b, &c, &d);
    if (BIT(b7, 5) && BIT(c1, 12) && BIT(c1, 29) && BIT(b7, 8)) /* AVX2, FMA, F16C, BMI2 */
        flags |= SWL_CPU_AVX2;
    if (flags && BIT(a71, 4))
        flags |= SWL_CPU_AVXVNNI;
    if (flags && (saved & 0xe6) == 0xe6 && BIT(b7, 16) && BIT(b7, 30) && BIT(b7, 17) && BIT(b7, 31) && BIT(c7, 11) &&
        BIT(c7, 1)) { /* F, BW, DQ, VL, VNNI, VBMI */
        flags |= SWL_CPU_AVX512;
        if (BIT(a71, 5))
            flags |= SWL_CPU_AVX512BF16;
        if (amd_family() >= 0x1a)
            flags |= SWL_CPU_NEAR;
    }
    return flags;
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>

uint32_t swl_cpu_flags(void)
{
    uint32_t flags = SWL_CPU_NEON;

    if (getauxval(AT_HWCAP) & (1ul << 20)) /* HWCAP_ASIMDDP */
        flags |= SWL_CPU_DOTPROD;
    if ((flags & SWL_CPU_DOTPROD) && (getauxval(AT_HWCAP2) & (1ul << 13))) /* HWCAP2_I8MM */
        flags |= SWL_CPU_I8MM;
    return flags;
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has(const char *name)
{
    int v = 0;
    size_t n = sizeof v;

    return !sysctlbyname(name, &v, &n, NULL, 0) && v;
}

uint32_t swl_cpu_flags(void)
{
    uint32_t flags = SWL_CPU_NEON;

    if (has("hw.optional.arm.FEAT_DotProd"))
        flags |= SWL_CPU_DOTPROD;
    if ((flags & SWL_CPU_DOTPROD) && has("hw.optional.arm.FEAT_I8MM"))
        flags |= SWL_CPU_I8MM;
    return flags;
}
#else
uint32_t swl_cpu_flags(void)
{
    return SWL_CPU_NEON;
}
#endif
#else
uint32_t swl_cpu_flags(void)
{
    return 0;
}
#endif

#define COMMA ,
static const char *const names[] = {SWL_CPU_LEVELS(COMMA)};
/* A level allows its own flag and all above it in this table. */
static const uint32_t own[] = {
    0,
#if defined(__x86_64__)
    SWL_CPU_AVX2, SWL_CPU_AVXVNNI, SWL_CPU_AVX512 | SWL_CPU_AVX512BF16 | SWL_CPU_NEAR,
#elif defined(__aarch64__)
    SWL_CPU_NEON, SWL_CPU_DOTPROD, SWL_CPU_I8MM,
#endif
};
enum { N_LEVELS = sizeof own / sizeof own[0] };
_Static_assert(sizeof names / sizeof names[0] == N_LEVELS, "a level is a name and a flag");

uint32_t swl_cpu_level_mask(const char *name, int *known)
{
    uint32_t mask = 0;
    int i;

    *known = 1;
    if (!strcmp(name, "best"))
        return UINT32_MAX;
    for (i = 0; i < N_LEVELS; i++) {
        mask |= own[i];
        if (!strcmp(name, names[i]))
            return mask;
    }
    *known = 0;
    return 0;
}

const char *swl_cpu_level_name(uint32_t flags)
{
    int i;

    for (i = N_LEVELS - 1; i > 0; i--)
        if (flags & own[i])
            return names[i];
    return names[0];
}
