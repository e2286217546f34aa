/* format.c: byte counts, memory in use. */
#define _DEFAULT_SOURCE
#include "format.h"

#include <stdio.h>
#include <sys/resource.h>

const char *format_bytes(char dst[16], uint64_t n)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)n;
    int unit = 0;

    while (x >= 999.5) {
        x /= 1000;
        unit++;
    }
    snprintf(dst, 16, unit && x < 99.95 ? "%.1f %s" : "%.0f %s", x, units[unit]);
    return dst;
}

uint64_t peak_memory(void)
{
    struct rusage u;

    if (getrusage(RUSAGE_SELF, &u))
        return 0;
#ifdef __APPLE__
    return (uint64_t)u.ru_maxrss;
#else
    return (uint64_t)u.ru_maxrss * 1024;
#endif
}
