/* mem.c: heap wrappers with overflow checks and fault injection; big allocations from the system. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include "base/os_win.h"
#else
#include <sys/mman.h>
#endif

static _Atomic int64_t fail_after = -1;
static _Atomic bool fail_for_good;

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) < 0)
        return false;
    if (atomic_fetch_sub(&fail_after, 1) > 0)
        return false;
    atomic_store(&fail_after, atomic_load(&fail_for_good) ? 0 : -1);
    return true;
}

void swl_mem_fail_after(int64_t n, bool for_good)
{
    atomic_store(&fail_for_good, for_good);
    atomic_store(&fail_after, n);
}

void *swl_calloc(size_t n, size_t size)
{
    if (must_fail() || (size && n > SIZE_MAX / 2 / size))
        return NULL;
    return calloc(n && size ? n : 1, size ? size : 1);
}

void *swl_realloc(void *p, size_t n, size_t size)
{
    if (must_fail() || (size && n > SIZE_MAX / 2 / size))
        return NULL;
    return realloc(p, n && size ? n * size : 1);
}

void swl_free(void *p)
{
    free(p);
}

char *swl_strndup(const char *s, size_t n)
{
    char *p = swl_calloc(n + 1, 1);

    if (p)
        memcpy(p, s, n);
    return p;
}

char *swl_strdup(const char *s)
{
    return swl_strndup(s, strlen(s));
}

char *swl_asprintf(const char *fmt, ...)
{
    va_list ap, ap2;
    char *p;
    int n;

    va_start(ap, fmt);
    va_copy(ap2, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    p = n < 0 ? NULL : swl_calloc((size_t)n + 1, 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, ap2);
    va_end(ap2);
    return p;
}

char *swl_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);

    return swl_asprintf("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

#if defined(_WIN32)
void *swl_big_alloc(uint64_t n_bytes)
{
    return must_fail() || n_bytes > SIZE_MAX - 4096 ? NULL : swl_win_alloc(n_bytes ? n_bytes : 1);
}

void swl_big_free(void *p, uint64_t n_bytes)
{
    (void)n_bytes;
    if (p)
        swl_win_free(p);
}
#else
#define HUGE_BYTES (UINT64_C(2) << 20)

/* Reserves with room to align, then gives the surplus at both ends back. */
void *swl_big_alloc(uint64_t n_bytes)
{
    uint64_t align = n_bytes >= HUGE_BYTES ? HUGE_BYTES : 0, head;
    uint8_t *p;

    if (must_fail() || n_bytes > SIZE_MAX - align - 4096)
        return NULL;
    n_bytes = (n_bytes + 4095) & ~UINT64_C(4095);
    if (!n_bytes)
        n_bytes = 4096;
    p = mmap(NULL, n_bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (align) {
        head = (align - ((uintptr_t)p & (align - 1))) & (align - 1);
        if (head)
            munmap(p, head);
        if (align - head)
            munmap(p + head + n_bytes, align - head);
        p += head;
#ifdef MADV_HUGEPAGE
        madvise(p, n_bytes, MADV_HUGEPAGE);
#endif
    }
    return p;
}

void swl_big_free(void *p, uint64_t n_bytes)
{
    n_bytes = (n_bytes + 4095) & ~UINT64_C(4095);
    if (p)
        munmap(p, n_bytes ? n_bytes : 4096);
}

#endif

void swl_big_discard(void *p, uint64_t n_bytes)
{
    uintptr_t begin = ((uintptr_t)p + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)p + n_bytes) & ~(uintptr_t)4095;

    if (end <= begin)
        return;
#if defined(_WIN32)
    swl_win_discard((uint8_t *)p + (begin - (uintptr_t)p), end - begin);
#elif defined(__APPLE__)
    madvise((uint8_t *)p + (begin - (uintptr_t)p), end - begin, MADV_FREE_REUSABLE);
#else
    madvise((uint8_t *)p + (begin - (uintptr_t)p), end - begin, MADV_DONTNEED);
#endif
}
