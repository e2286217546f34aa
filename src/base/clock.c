/* clock.c: the system's monotonic clock. */
#define _GNU_SOURCE
#include "base/clock.h"

#include <time.h>

double swl_seconds(void)
{
    return 1e-9 * (double)swl_nanoseconds();
}

uint64_t swl_nanoseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}
