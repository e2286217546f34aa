/* file.c: POSIX files; every error names the file and, for reads, the offset. */
#define _GNU_SOURCE
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"

#define IO_BYTES_MAX (UINT64_C(1) << 30) /* one system call moves at most this much */

static atomic_uint n_begun; /* temporary files: threads may be writing the same one at a time, and the last to end wins */

swl_status swl_file_open(int *fd, uint64_t *size, const char *path, swl_error *err)
{
    struct stat sb;
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must not hang the open */

    *fd = -1;
    if (f < 0)
        return swl_fail_errno(err, path, "cannot open %s", path);
    if (fstat(f, &sb)) {
        swl_fail_errno(err, path, "cannot stat %s", path);
        close(f);
        return err ? err->code : SWL_E_IO;
    }
    if (!S_ISREG(sb.st_mode)) {
        close(f);
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a regular file", path);
    }
    *fd = f;
    if (size)
        *size = (uint64_t)sb.st_size;
    return SWL_OK;
}

void swl_file_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

swl_status swl_file_read_at(int fd, const char *path, uint64_t offset, void *dst, uint64_t n, swl_error *err)
{
    uint8_t *p = dst;
    uint64_t done = 0;

    while (done < n) {
        uint64_t want = n - done < IO_BYTES_MAX ? n - done : IO_BYTES_MAX;
        ssize_t got = pread(fd, p + done, want, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return swl_fail_errno(err, path, "reading %" PRIu64 " bytes at offset %" PRIu64 " of %s failed", n, offset,
                                  path);
        if (!got)
            return swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)(offset + done),
                               "%s ends at offset %" PRIu64 ", expected %" PRIu64 " bytes at offset %" PRIu64, path,
                               offset + done, n, offset);
        done += (uint64_t)got;
    }
    return SWL_OK;
}

void swl_file_forget(int fd, uint64_t offset, uint64_t n)
{
#if defined(POSIX_FADV_DONTNEED)
    posix_fadvise(fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
#else
    (void)fd, (void)offset, (void)n;
#endif
}

swl_status swl_file_load(char **data, size_t *n, const char *path, uint64_t n_max, swl_error *err)
{
    swl_status st;
    uint64_t size = 0;
    char *p = NULL;
    int fd;

    *data = NULL;
    st = swl_file_open(&fd, &size, path, err);
    if (st)
        return st;
    if (size > n_max)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s has %" PRIu64 " bytes, expected at most %" PRIu64, path, size,
                         n_max);
    else if (!(p = swl_calloc(size + 1, 1)))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for %" PRIu64 " bytes of %s", size, path);
    else
        st = swl_file_read_at(fd, path, 0, p, size, err);
    swl_file_close(fd);
    if (st) {
        swl_free(p);
        return st;
    }
    *data = p;
    if (n)
        *n = size;
    return SWL_OK;
}

bool swl_file_exists(const char *path)
{
    struct stat sb;

    return !stat(path, &sb) && S_ISREG(sb.st_mode);
}

bool swl_dir_exists(const char *path)
{
    struct stat sb;

    return !stat(path, &sb) && S_ISDIR(sb.st_mode);
}

swl_status swl_file_create(int *fd, const char *path, swl_error *err)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return *fd < 0 ? swl_fail_errno(err, path, "cannot create %s", path) : SWL_OK;
}

swl_status swl_file_write_at(int fd, const char *path, uint64_t offset, const void *src, uint64_t n, swl_error *err)
{
    const uint8_t *p = src;
    uint64_t done = 0;

    while (done < n) {
        uint64_t want = n - done < IO_BYTES_MAX ? n - done : IO_BYTES_MAX;
        ssize_t put = pwrite(fd, p + done, want, (off_t)(offset + done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return swl_fail_errno(err, path, "writing %" PRIu64 " bytes at offset %" PRIu64 " of %s failed", n, offset,
                                  path);
        done += (uint64_t)put;
    }
    return SWL_OK;
}

swl_status swl_file_write(int fd, const char *path, const void *src, uint64_t n, swl_error *err)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    swl_status st;

    if (at < 0)
        return swl_fail_errno(err, path, "cannot tell the position in %s", path);
    st = swl_file_write_at(fd, path, (uint64_t)at, src, n, err);
    if (!st && lseek(fd, (off_t)n, SEEK_CUR) < 0)
        st = swl_fail_errno(err, path, "cannot move the position in %s", path);
    return st;
}

swl_status swl_file_finish(int fd, const char *path, swl_error *err)
{
    swl_status st = SWL_OK;

    if (fsync(fd))
        st = swl_fail_errno(err, path, "cannot make %s durable", path);
    if (close(fd) && !st)
        st = swl_fail_errno(err, path, "cannot close %s", path);
    return st;
}

swl_status swl_dir_sync(const char *path, swl_error *err)
{
#if defined(_WIN32) /* renames are written through instead */
    return swl_dir_exists(path) ? SWL_OK : swl_fail_at(err, SWL_E_NOT_FOUND, path, -1, "no directory %s", path);
#else
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    swl_status st = SWL_OK;

    if (fd < 0)
        return swl_fail_errno(err, path, "cannot open directory %s", path);
    if (fsync(fd) && errno != EINVAL) /* some file systems have nothing to sync for a directory */
        st = swl_fail_errno(err, path, "cannot make directory %s durable", path);
    close(fd);
    return st;
#endif
}

/* A rename would put the file in the place of whatever bears its name, also of a device or a FIFO. */
static swl_status check_replaceable(const char *path, swl_error *err)
{
    struct stat sb;

    if (stat(path, &sb) || S_ISREG(sb.st_mode))
        return SWL_OK;
    return swl_fail_at(err, SWL_E_ARG, path, -1, "%s is not a regular file, so it is not replaced", path);
}

/* A link under the temporary name, which can be foreseen, is not followed. */
static swl_status create_new(int *fd, const char *path, swl_error *err)
{
    unlink(path); /* what an earlier process of the same number left */
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return *fd < 0 ? swl_fail_errno(err, path, "cannot create %s", path) : SWL_OK;
}

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? swl_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : swl_strdup(".");
}

/* What processes that were killed were writing in the place of this file, which may be large. Somebody else may be writing it too,
 * but not for an hour. */
static void remove_leftovers(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    char *folder = parent_of(path);
    DIR *dir = folder ? opendir(folder) : NULL;
    struct dirent *e;
    struct stat sb;

    while (dir && (e = readdir(dir))) {
        const char *number = strncmp(e->d_name, name, n) || strncmp(e->d_name + n, ".tmp.", 5) ? "" : e->d_name + n + 5;
        char *left = *number && !number[strspn(number, "0123456789")] ? swl_path_join(folder, e->d_name) : NULL;

        if (left && !lstat(left, &sb) && S_ISREG(sb.st_mode) && sb.st_mtime < time(NULL) - 3600)
            unlink(left);
        swl_free(left);
    }
    if (dir)
        closedir(dir);
    swl_free(folder);
}

swl_status swl_file_atomic_begin(swl_file_atomic *f, const char *path, swl_error *err)
{
    swl_status st = check_replaceable(path, err);

    *f = (swl_file_atomic){.fd = -1};
    if (st)
        return st;
    remove_leftovers(path);
    f->path = swl_strdup(path);
    f->tmp = swl_asprintf("%s.tmp.%ld%04u", path, (long)getpid(), atomic_fetch_add(&n_begun, 1) % 10000);
    st = f->path && f->tmp ? create_new(&f->fd, f->tmp, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for a name");
    if (st) {
        swl_free(f->path);
        swl_free(f->tmp);
    }
    return st;
}

/* Makes the rename durable: the directory that holds the file is synced. */
static swl_status sync_parent(const char *path, swl_error *err)
{
    char *dir = parent_of(path);
    swl_status st = dir ? swl_dir_sync(dir, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for a name");

    swl_free(dir);
    return st;
}

swl_status swl_file_atomic_end(swl_file_atomic *f, swl_status st, swl_error *err)
{
    if (st)
        close(f->fd);
    else
        st = swl_file_finish(f->fd, f->tmp, err);
    if (!st && rename(f->tmp, f->path))
        st = swl_fail_errno(err, f->path, "cannot rename %s to %s", f->tmp, f->path);
    if (st)
        unlink(f->tmp);
    else
        st = sync_parent(f->path, err);
    swl_free(f->path);
    swl_free(f->tmp);
    return st;
}

swl_status swl_file_save(const char *path, const void *src, uint64_t n, swl_error *err)
{
    swl_file_atomic f;
    swl_status st = swl_file_atomic_begin(&f, path, err);

    return st ? st : swl_file_atomic_end(&f, swl_file_write_at(f.fd, f.tmp, 0, src, n, err), err);
}
