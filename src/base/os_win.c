/* os_win.c: what base asks of Windows: files at an offset, big memory, processors, memory figures. Empty elsewhere. */
#if defined(_WIN32)
#define PSAPI_VERSION 2 /* process memory figures from kernel32 itself */
#include <windows.h>

#include <direct.h>
#include <errno.h>
#include <io.h>
#include <psapi.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os_win.h"
#include "base/sysmem.h"
#include "base/threads.h"

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int fail_errno(void)
{
    switch (GetLastError()) {
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
        errno = EACCES;
        break;
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
        errno = ENOENT;
        break;
    case ERROR_DISK_FULL:
        errno = ENOSPC;
        break;
    default:
        errno = EIO;
    }
    return -1;
}

static OVERLAPPED at_offset(int64_t offset)
{
    OVERLAPPED o;

    memset(&o, 0, sizeof o);
    o.Offset = (DWORD)((uint64_t)offset & 0xffffffffu);
    o.OffsetHigh = (DWORD)((uint64_t)offset >> 32);
    return o;
}

int64_t swl_win_pread(int fd, void *dst, uint64_t n, int64_t offset)
{
    OVERLAPPED o = at_offset(offset);
    DWORD got = 0, want = n < 0x40000000u ? (DWORD)n : 0x40000000u;

    if (!ReadFile((HANDLE)_get_osfhandle(fd), dst, want, &got, &o))
        return GetLastError() == ERROR_HANDLE_EOF ? 0 : fail_errno();
    return got;
}

int64_t swl_win_pwrite(int fd, const void *src, uint64_t n, int64_t offset)
{
    OVERLAPPED o = at_offset(offset);
    DWORD put = 0, want = n < 0x40000000u ? (DWORD)n : 0x40000000u;
    int64_t position = _lseeki64(fd, 0, SEEK_CUR);

    if (!WriteFile((HANDLE)_get_osfhandle(fd), src, want, &put, &o))
        return fail_errno();
    if (position >= 0) /* pwrite leaves the position alone, WriteFile does not */
        _lseeki64(fd, position, SEEK_SET);
    return put;
}

int swl_win_fsync(int fd)
{
    return _commit(fd);
}

int swl_win_rename(const char *from, const char *to)
{
    return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) ? 0 : fail_errno();
}

int swl_win_mkdir(const char *path)
{
    return _mkdir(path);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void *swl_win_alloc(uint64_t n_bytes)
{
    return VirtualAlloc(NULL, n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void swl_win_free(void *p)
{
    VirtualFree(p, 0, MEM_RELEASE);
}

void swl_win_discard(void *p, uint64_t n_bytes)
{
    VirtualAlloc(p, n_bytes, MEM_RESET, PAGE_READWRITE);
}

void *swl_win_memmem(const void *where, size_t n_where, const void *what, size_t n_what)
{
    const char *p = where, *end = p + n_where, *first = what;

    for (; n_what && (size_t)(end - p) >= n_what && (p = memchr(p, *first, (size_t)(end - p) - n_what + 1)); p++)
        if (!memcmp(p, what, n_what))
            return (void *)(uintptr_t)p;
    return n_what ? NULL : (void *)(uintptr_t)where;
}

void swl_sysmem_get(swl_sysmem *m)
{
    PROCESS_MEMORY_COUNTERS c = {.cb = sizeof c};
    MEMORYSTATUSEX s = {.dwLength = sizeof s};

    memset(m, 0, sizeof *m);
    m->group_limit = UINT64_MAX;
    if (GlobalMemoryStatusEx(&s)) {
        m->total = s.ullTotalPhys;
        m->available = s.ullAvailPhys;
    }
    if (GetProcessMemoryInfo(GetCurrentProcess(), &c, sizeof c))
        m->resident = c.WorkingSetSize;
}

double swl_sysmem_pressure(void)
{
    return -1;
}

/* ---- processors -------------------------------------------------------------------------------------------------- */

int32_t swl_cpus_available(void)
{
    DWORD n = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);

    return n < 1 ? 1 : n > 1024 ? 1024 : (int32_t)n;
}
#endif
