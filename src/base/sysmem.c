/* sysmem.c: /proc and the cgroup file systems on Linux, sysctl elsewhere. */
#define _GNU_SOURCE
#include "base/sysmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32) /* os_win.c has the rest */
#include <unistd.h>

enum { LINE = 1024 };

/* The number after `key` in a file of "key value" lines (key "" : the first word); false when it is not there. */
static bool read_number(const char *path, const char *key, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    char line[LINE], *end;
    size_t n = strlen(key);
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n)) {
            *out = strtoull(line + n, &end, 10);
            found = end != line + n;
        }
    fclose(f);
    return found;
}

/* The process's path in the hierarchy that has `controller` ("memory"), or in the unified one (""). */
static bool group_path(const char *controller, char *out, size_t size)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[LINE];
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL, *save = NULL, *name;

        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        if (!*controller && !strcmp(names, ":"))
            found = true;
        for (name = strtok_r(names + 1, ",", &save); name && !found; name = strtok_r(NULL, ",", &save))
            found = *controller && !strcmp(name, controller);
        if (found)
            snprintf(out, size, "%s", path);
    }
    fclose(f);
    return found;
}

typedef struct group_files {
    const char *root, *limit, *used, *stat, *inactive;
} group_files;

static const group_files v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "memory.stat", "inactive_file "};
static const group_files v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat",
                               "total_inactive_file "};

/* Limits of one directory, taken when they are tighter than what was found before. */
static void take_limit(const group_files *g, const char *dir, swl_sysmem *m)
{
    char path[2 * LINE];
    uint64_t limit, used = 0, inactive = 0;

    snprintf(path, sizeof path, "%s%s/%s", g->root, dir, g->limit);
    if (!read_number(path, "", &limit) || limit >= m->group_limit || limit >= (UINT64_C(1) << 60)) /* v1: "none" is huge */
        return;
    snprintf(path, sizeof path, "%s%s/%s", g->root, dir, g->used);
    read_number(path, "", &used);
    snprintf(path, sizeof path, "%s%s/%s", g->root, dir, g->stat);
    read_number(path, g->inactive, &inactive);
    m->group_limit = limit;
    m->group_used = used > inactive ? used - inactive : 0;
}

/* From the process's group up to the root; inside a container the path may not exist, then the root speaks for it. */
static void read_groups(swl_sysmem *m)
{
    const group_files *g[2] = {&v2, &v1};
    char dir[LINE], *slash;
    int i;

    for (i = 0; i < 2; i++) {
        if (!group_path(i ? "memory" : "", dir, sizeof dir))
            continue;
        if (!strcmp(dir, "/"))
            dir[0] = 0;
        take_limit(g[i], dir, m);
        while ((slash = strrchr(dir, '/'))) {
            *slash = 0;
            take_limit(g[i], dir, m);
        }
    }
}

void swl_sysmem_get(swl_sysmem *m)
{
    long page = sysconf(_SC_PAGESIZE), pages = -1;
    FILE *f;

    memset(m, 0, sizeof *m);
    m->group_limit = UINT64_MAX;
#if defined(_SC_PHYS_PAGES)
    pages = sysconf(_SC_PHYS_PAGES);
#endif
    m->total = pages > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    if (read_number("/proc/meminfo", "MemAvailable:", &m->available))
        m->available *= 1024;
    f = fopen("/proc/self/statm", "re");
    if (f) {
        if (fscanf(f, "%*s %" SCNu64, &m->resident) == 1)
            m->resident *= (uint64_t)page;
        fclose(f);
    }
    read_groups(m);
}

static double read_pressure(const char *path)
{
    FILE *f = fopen(path, "re");
    double v = -1;

    if (!f)
        return -1;
    if (fscanf(f, "some avg10=%lf", &v) != 1)
        v = -1;
    fclose(f);
    return v;
}

double swl_sysmem_pressure(void)
{
    char dir[LINE], path[2 * LINE];
    double v = -1;

    if (group_path("", dir, sizeof dir)) {
        snprintf(path, sizeof path, "%s%s/memory.pressure", v2.root, strcmp(dir, "/") ? dir : "");
        v = read_pressure(path);
    }
    return v >= 0 ? v : read_pressure("/proc/pressure/memory");
}
#endif

uint64_t swl_sysmem_budget(const swl_sysmem *m)
{
    uint64_t room = m->available ? m->available : m->total / 2, left, reserve;

    if (m->group_limit != UINT64_MAX) {
        left = m->group_limit > m->group_used ? m->group_limit - m->group_used : 0;
        room = left < room ? left : room;
    }
    room += m->resident;
    reserve = room / 8 > (UINT64_C(256) << 20) ? room / 8 : UINT64_C(256) << 20;
    return room - (reserve < room / 2 ? reserve : room / 2);
}
