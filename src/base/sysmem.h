/* sysmem.h: how much memory the machine and the process's cgroup have to give, and how pressed they are. */
#ifndef SWL_BASE_SYSMEM_H
#define SWL_BASE_SYSMEM_H

#include <swiftlet/swiftlet.h>

typedef struct swl_sysmem {
    uint64_t total;            /* of the machine */
    uint64_t available;        /* what the system could give without swapping; 0: unknown */
    uint64_t group_limit;      /* the tightest memory limit of the cgroups that hold the process; UINT64_MAX: none */
    uint64_t group_used;       /* by that cgroup, without its inactive page cache */
    uint64_t resident;         /* by this process now */
} swl_sysmem;

/* Reads it anew; what a system does not tell stays 0 (limit: UINT64_MAX). Both cgroup versions. */
void swl_sysmem_get(swl_sysmem *m);

/* What this process may take in all without pressing others: what is available (or left in the cgroup) plus what it holds,
 * less a reserve of an eighth, at least 256 MiB, but no more than a half. */
uint64_t swl_sysmem_budget(const swl_sysmem *m);

/* Share of the last 10 seconds in which some task waited for memory, in percent (Linux PSI "some avg10", of the cgroup if
 * it has its own); negative when the system does not say. */
double swl_sysmem_pressure(void);

#endif
