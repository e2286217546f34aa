/*
 * files.c: descriptors for reading experts; see files.h. A descriptor's read-ahead advice and O_DIRECT belong to the open
 * file, so the file is opened again: through /proc on Linux, which works for a file that was renamed or removed since,
 * elsewhere by its path if that still names the same file.
 */
#define _GNU_SOURCE
#include "store/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"

static bool same_file(int a, int b)
{
    struct stat x, y;

    return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int open_again(int fd, const char *path, int flags)
{
    char name[64];
    int f;

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    f = open(name, O_RDONLY | O_CLOEXEC | flags);
    if (f < 0)
        f = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (f >= 0 && !same_file(f, fd)) {
        close(f);
        f = -1;
    }
    return f;
}

static int open_direct(int fd, const char *path)
{
#if defined(__APPLE__)
    int f = open_again(fd, path, 0);

    if (f >= 0 && fcntl(f, F_NOCACHE, 1) < 0) {
        close(f);
        f = -1;
    }
    return f;
#elif defined(O_DIRECT)
    return open_again(fd, path, O_DIRECT);
#else
    (void)fd, (void)path;
    return -1;
#endif
}

swl_status swl_files_open(swl_files *f, const int *fds, const char *const *paths, int32_t n, bool direct, swl_error *err)
{
    int32_t i;

    memset(f, 0, sizeof *f);
    f->given = swl_calloc((size_t)n, sizeof *f->given);
    f->buffered = swl_calloc((size_t)n, sizeof *f->buffered);
    f->direct = swl_calloc((size_t)n, sizeof *f->direct);
    if (!f->given || !f->buffered || !f->direct) {
        swl_files_close(f);
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    }
    for (i = 0; i < n; i++) {
        f->given[i] = fds[i];
        f->buffered[i] = open_again(fds[i], paths[i], 0);
        if (f->buffered[i] < 0)
            f->buffered[i] = fds[i];
#if defined(POSIX_FADV_RANDOM)
        else
            posix_fadvise(f->buffered[i], 0, 0, POSIX_FADV_RANDOM); /* read-ahead would read what nobody asked for */
#endif
        f->direct[i] = direct ? open_direct(fds[i], paths[i]) : -1;
    }
    f->n = n;
    return SWL_OK;
}

void swl_files_close(swl_files *f)
{
    int32_t i;

    for (i = 0; i < f->n; i++) {
        if (f->buffered[i] != f->given[i])
            close(f->buffered[i]);
        if (f->direct[i] >= 0)
            close(f->direct[i]);
    }
    swl_free(f->given);
    swl_free(f->buffered);
    swl_free(f->direct);
    memset(f, 0, sizeof *f);
}

/* Whole pages around the bytes: a neighbour's half page would otherwise stay for good. */
void swl_files_drop(int fd, uint64_t offset, uint64_t size)
{
#if defined(POSIX_FADV_DONTNEED)
    uint64_t begin = offset & ~UINT64_C(4095), end = (offset + size + 4095) & ~UINT64_C(4095);

    posix_fadvise(fd, (off_t)begin, (off_t)(end - begin), POSIX_FADV_DONTNEED);
#else
    (void)fd, (void)offset, (void)size;
#endif
}
