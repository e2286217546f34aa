/* place.c: see place.h. */
#define _GNU_SOURCE
#include "install/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/fs.h>
#include <sys/ioctl.h>
#endif

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/status.h"

#define NAME_BYTES 256
#define DEPTH_MAX  9

/* The directory that holds dir/path, as a descriptor; *name is the last component. -1: errno says why. */
static int open_parent(const char *dir, const char *path, bool create, const char **name)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), next;
    const char *slash;
    char part[NAME_BYTES];

    while (fd >= 0 && (slash = strchr(path, '/'))) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (create && mkdirat(fd, part, 0777) && errno != EEXIST) {
            close(fd);
            return -1;
        }
        next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(fd);
        fd = next;
        path = slash + 1;
    }
    *name = path;
    return fd;
}

static swl_status give_length(int fd, const char *path, uint64_t size, bool with_room, swl_error *err)
{
    struct stat sb;

    if (fstat(fd, &sb))
        return swl_fail_errno(err, path, "cannot look at %s", path);
    if (!S_ISREG(sb.st_mode) || sb.st_nlink > 1)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a plain file with one name", path);
    if ((uint64_t)sb.st_size > size && ftruncate(fd, (off_t)size))
        return swl_fail_errno(err, path, "cannot give %s its length", path);
#if defined(__linux__)
    if (with_room && size && fallocate(fd, 0, 0, (off_t)size) && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return swl_fail_errno(err, path, "there is no room for the %" PRIu64 " bytes of %s", size, path);
#endif
    (void)with_room;
    if (ftruncate(fd, (off_t)size))
        return swl_fail_errno(err, path, "cannot give %s its length", path);
    return SWL_OK;
}

static swl_status open_place(int *fd, const char *dir, const char *path, uint64_t size, bool with_room, swl_error *err)
{
    const char *name;
    int parent;
    swl_status st;

    *fd = -1;
    if (!swl_path_is_safe(path))
        return swl_fail(err, SWL_E_CORRUPT, "\"%.200s\" is not a path inside the container", path);
    parent = open_parent(dir, path, true, &name);
    if (parent >= 0) {
        *fd = openat(parent, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
        if (*fd < 0) {
            st = swl_fail_errno(err, path, "cannot open %s/%s%s", dir, path, errno == ELOOP ? ", which is a link" : "");
            close(parent);
            return st;
        }
        close(parent);
    }
    if (*fd < 0)
        return swl_fail_errno(err, path, "cannot open the folder of %s/%s", dir, path);
    st = give_length(*fd, path, size, with_room, err);
    if (st) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

swl_status swl_place_open(int *fd, const char *dir, const char *path, uint64_t size, swl_error *err)
{
    return open_place(fd, dir, path, size, true, err);
}

swl_status swl_place_open_hole(int *fd, const char *dir, const char *path, uint64_t size, swl_error *err)
{
    return open_place(fd, dir, path, size, false, err);
}

swl_status swl_place_sync(int fd, const char *path, swl_error *err)
{
#if defined(__APPLE__)
    int rc = fsync(fd);
#else
    int rc = fdatasync(fd);
#endif
    return rc ? swl_fail_errno(err, path, "cannot make %s durable", path) : SWL_OK;
}

void swl_place_hurry(int fd, uint64_t offset, uint64_t n)
{
#if defined(__linux__)
    sync_file_range(fd, (off_t)offset, (off_t)n, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd, (void)offset, (void)n;
#endif
}

bool swl_place_has(const char *dir, const char *path, uint64_t *size)
{
    const char *name;
    int parent = open_parent(dir, path, false, &name);
    struct stat sb;
    bool yes = parent >= 0 && !fstatat(parent, name, &sb, AT_SYMLINK_NOFOLLOW) && S_ISREG(sb.st_mode);

    if (yes)
        *size = (uint64_t)sb.st_size;
    if (parent >= 0)
        close(parent);
    return yes;
}

uint64_t swl_place_free(const char *dir)
{
    struct statvfs v;

    return statvfs(dir, &v) ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

uint64_t swl_place_allocated(const char *dir, const char *path)
{
    const char *name;
    int parent = open_parent(dir, path, false, &name);
    struct stat sb;
    uint64_t n = 0;

    if (parent >= 0 && !fstatat(parent, name, &sb, AT_SYMLINK_NOFOLLOW))
        n = (uint64_t)sb.st_blocks * 512;
    if (parent >= 0)
        close(parent);
    return n;
}

#define COPY_BYTES (UINT64_C(4) << 20)

static bool share_blocks(int to, int from)
{
#if defined(FICLONE)
    return !ioctl(to, FICLONE, from);
#else
    (void)to, (void)from;
    return false;
#endif
}

static swl_status copy_bytes(int to, int from, const char *path, const char *from_path, uint64_t size,
                             swl_status (*on_bytes)(void *arg, uint64_t n, swl_error *err), void *arg, swl_error *err)
{
    uint8_t *block = swl_calloc(COPY_BYTES, 1);
    swl_status st = block ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for a block");

    for (uint64_t at = 0, n; at < size && !st; at += n) {
        n = size - at < COPY_BYTES ? size - at : COPY_BYTES;
        st = swl_file_read_at(from, from_path, at, block, n, err);
        if (!st)
            st = swl_file_write_at(to, path, at, block, n, err);
        if (!st && on_bytes)
            st = on_bytes(arg, n, err);
    }
    swl_free(block);
    return st;
}

swl_status swl_place_copy(const char *dir, const char *path, const char *from, uint64_t size,
                          swl_status (*on_bytes)(void *arg, uint64_t n, swl_error *err), void *arg, swl_error *err)
{
    uint64_t have = 0;
    int in, out = -1;
    swl_status st = swl_file_open(&in, &have, from, err);

    if (!st && have != size)
        st = swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s has %" PRIu64 " bytes, expected %" PRIu64, from, have, size);
    if (!st)
        st = swl_place_open(&out, dir, path, size, err);
    if (!st && !share_blocks(out, in))
        st = copy_bytes(out, in, path, from, size, on_bytes, arg, err);
    if (!st)
        st = swl_place_sync(out, path, err);
    swl_file_close(out);
    swl_file_close(in);
    return st;
}

swl_status swl_place_put(const char *dir, const char *path, const void *data, uint64_t n, swl_error *err)
{
    int fd;
    swl_status st = swl_place_open(&fd, dir, path, n, err);

    if (!st)
        st = swl_file_write_at(fd, path, 0, data, n, err);
    if (!st)
        st = swl_place_sync(fd, path, err);
    swl_file_close(fd);
    return st;
}

swl_status swl_place_remove(const char *dir, const char *path, swl_error *err)
{
    const char *name;
    int parent = open_parent(dir, path, false, &name);
    swl_status st = SWL_OK;

    if (parent >= 0 && unlinkat(parent, name, 0) && errno != ENOENT)
        st = swl_fail_errno(err, path, "cannot remove %s/%s", dir, path);
    if (parent >= 0)
        close(parent);
    return st;
}

static swl_status walk(const char *dir, const char *under, int depth,
                       swl_status (*fn)(void *arg, const char *path, swl_error *err), void *arg, swl_error *err)
{
    char *here = *under ? swl_path_join(dir, under) : swl_strdup(dir);
    DIR *d = here ? opendir(here) : NULL;
    swl_status st = SWL_OK;
    struct dirent *e;

    if (!d)
        st = here ? swl_fail_errno(err, here, "cannot read %s", here) : swl_fail(err, SWL_E_NOMEM, "out of memory");
    while (!st && (e = readdir(d))) {
        char *path = *under ? swl_path_join(under, e->d_name) : swl_strdup(e->d_name);
        struct stat sb;

        if (!path)
            st = swl_fail(err, SWL_E_NOMEM, "out of memory");
        else if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
                 fstatat(dirfd(d), e->d_name, &sb, AT_SYMLINK_NOFOLLOW))
            st = SWL_OK;
        else if (S_ISDIR(sb.st_mode))
            st = depth < DEPTH_MAX ? walk(dir, path, depth + 1, fn, arg, err) : SWL_OK;
        else
            st = fn(arg, path, err);
        swl_free(path);
    }
    if (d)
        closedir(d);
    swl_free(here);
    return st;
}

swl_status swl_place_walk(const char *dir, swl_status (*fn)(void *arg, const char *path, swl_error *err), void *arg,
                          swl_error *err)
{
    return walk(dir, "", 0, fn, arg, err);
}

static swl_status sync_dirs(const char *dir, int depth, swl_error *err)
{
    swl_status st = swl_dir_sync(dir, err);
    DIR *d = st ? NULL : opendir(dir);
    struct dirent *e;

    if (!st && !d)
        st = swl_fail_errno(err, dir, "cannot read %s", dir);
    while (!st && (e = readdir(d))) {
        struct stat sb;
        char *sub;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || depth >= DEPTH_MAX ||
            fstatat(dirfd(d), e->d_name, &sb, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(sb.st_mode))
            continue;
        sub = swl_path_join(dir, e->d_name);
        st = sub ? sync_dirs(sub, depth + 1, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");
        swl_free(sub);
    }
    if (d)
        closedir(d);
    return st;
}

swl_status swl_place_sync_dirs(const char *dir, swl_error *err)
{
    return sync_dirs(dir, 0, err);
}
