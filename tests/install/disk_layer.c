/*
 * disk_layer.c: a library for LD_PRELOAD that stands between a program and the disk. Only what lies under DISK_ROOT (an
 * absolute path) is touched. What it does is said by variables:
 *
 *   DISK_LOG=FILE              every change and every sync is appended to FILE, in order (power_cut.py reads it)
 *   DISK_FAULT=WHAT:ERRNO:AFTER[:TIMES]    fails with this number
 *        write      once AFTER bytes were written; the write that crosses the line is a short one
 *        sync       the AFTERth fsync or fdatasync of a file (from 0) and later ones; what was not durable is then gone,
 *                   and reads as zeros, as when a kernel drops pages that it could not write
 *        all        everything, once AFTER bytes were written: the disk is gone
 *        change     everything that would change something, from the start or AFTER bytes: it is read-only now
 *   DISK_RATE=N                writes take as long as on a disk of N bytes a second
 *   DISK_READ_RATE=N           reads do
 *   DISK_CLOCK=MS              the monotonic clock is MS further at every look, so that what is due every few seconds happens
 *
 * A record of the log: one letter, four numbers of 8 bytes, two lengths of 4 bytes, and as many bytes.
 *   C dir inode kind(1: directory) name    an entry that is new          U dir name        an entry that goes
 *   R dir dir exchange name name           rename                        W inode offset bytes
 *   T inode size   truncate                A inode end   fallocate       S inode           fsync, fdatasync
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FDS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static int log_fd = -1;
static char tracked[FDS];
static char fault[16];
static int fault_errno;
static uint64_t fault_after, fault_times = UINT64_MAX, rate, read_rate, clock_ms, n_written, n_syncs, n_looks;

/* What was written since the last sync, for pages to be dropped. */
static struct stretch {
    uint64_t ino, at, n;
} *unsynced;
static size_t n_unsynced, room_unsynced;

#define REAL(name, type, ...) ((type(*)(__VA_ARGS__))real(#name))

static void *real(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);

    if (!p)
        abort();
    return p;
}

static uint64_t number(const char *name)
{
    const char *v = getenv(name);

    return v ? strtoull(v, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *v = getenv("DISK_FAULT"), *path = getenv("DISK_LOG");
    unsigned long long after = 0, times = UINT64_MAX;

    root = getenv("DISK_ROOT");
    rate = number("DISK_RATE");
    read_rate = number("DISK_READ_RATE");
    clock_ms = number("DISK_CLOCK");
    if (v && sscanf(v, "%15[a-z]:%d:%llu:%llu", fault, &fault_errno, &after, &times) < 3)
        abort();
    fault_after = after;
    fault_times = times;
    if (path && root) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
        syscall(SYS_close, fd);
        if (log_fd < 0)
            abort();
    }
}

static void put_log(char op, uint64_t a, uint64_t b, uint64_t c, const void *x, uint32_t n, const void *y, uint32_t m)
{
    uint8_t head[1 + 4 * 8 + 2 * 4];
    uint64_t v[4] = {a, b, c, 0};
    uint32_t l[2] = {n, m};

    if (log_fd < 0)
        return;
    head[0] = (uint8_t)op;
    memcpy(head + 1, v, sizeof v);
    memcpy(head + 1 + sizeof v, l, sizeof l);
    if (syscall(SYS_write, log_fd, head, sizeof head) != (long)sizeof head || syscall(SYS_write, log_fd, x, n) != n ||
        syscall(SYS_write, log_fd, y, m) != m)
        abort();
}

/* ---- what it is about ------------------------------------------------------------------------------------------------------ */

static int is_ours(int dir, const char *path)
{
    size_t n = root ? strlen(root) : 0;

    if (!root)
        return 0;
    if (path[0] == '/')
        return !strncmp(path, root, n) && (!path[n] || path[n] == '/');
    return dir >= 0 && dir < FDS && tracked[dir];
}

static int fd_is_ours(int fd)
{
    return fd >= 0 && fd < FDS && tracked[fd];
}

static uint64_t inode_of(int fd)
{
    struct stat sb;

    return fstat(fd, &sb) ? 0 : (uint64_t)sb.st_ino;
}

/* The directory that an entry is in, and the entry's name. */
static uint64_t folder_of(int dir, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    char folder[4096];
    struct stat sb;

    *name = slash ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : slash ? (int)(slash - path) : 0, path);
    if (!slash)
        return dir == AT_FDCWD ? (stat(".", &sb) ? 0 : (uint64_t)sb.st_ino) : inode_of(dir);
    return fstatat(dir, folder, &sb, 0) ? 0 : (uint64_t)sb.st_ino;
}

static int is_fault(const char *what)
{
    return !strcmp(fault, what);
}

/* Whether an operation that changes something (or, without `changes`, any) fails now. */
static int fails(int changes)
{
    if ((is_fault("all") || (changes && is_fault("change"))) && n_written >= fault_after && fault_times) {
        fault_times--;
        errno = fault_errno;
        return 1;
    }
    return 0;
}

/* ---- entries --------------------------------------------------------------------------------------------------------------- */

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
    struct stat sb;
    int ours = is_ours(dir, path), fd;
    int is_new = ours && flags & O_CREAT && fstatat(dir, path, &sb, AT_SYMLINK_NOFOLLOW);

    if (!ours)
        return REAL(openat, int, int, const char *, int, ...)(dir, path, flags, mode);
    pthread_mutex_lock(&lock);
    fd = fails(is_new || flags & O_TRUNC || (flags & O_ACCMODE) != O_RDONLY)
             ? -1
             : REAL(openat, int, int, const char *, int, ...)(dir, path, flags, mode);
    if (fd >= FDS)
        abort();
    if (fd >= 0) {
        const char *name;
        uint64_t folder = folder_of(dir, path, &name), ino = inode_of(fd);

        tracked[fd] = 1;
        if (is_new)
            put_log('C', folder, ino, 0, name, (uint32_t)strlen(name), NULL, 0);
        else if (flags & O_TRUNC)
            put_log('T', ino, 0, 0, NULL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return do_open(dir, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    mode_t mode;

    va_start(ap, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return do_open(AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
    if (fd >= 0 && fd == log_fd)
        return 0;
    if (fd >= 0 && fd < FDS)
        tracked[fd] = 0;
    return REAL(close, int, int)(fd);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    int ours = is_ours(dir, path), rc;

    if (!ours)
        return REAL(mkdirat, int, int, const char *, mode_t)(dir, path, mode);
    pthread_mutex_lock(&lock);
    rc = fails(1) ? -1 : REAL(mkdirat, int, int, const char *, mode_t)(dir, path, mode);
    if (!rc) {
        const char *name;
        struct stat sb;
        uint64_t folder = folder_of(dir, path, &name);

        if (!fstatat(dir, path, &sb, 0))
            put_log('C', folder, (uint64_t)sb.st_ino, 1, name, (uint32_t)strlen(name), NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int dir, const char *path, int flags)
{
    int ours = is_ours(dir, path), rc;

    if (!ours)
        return REAL(unlinkat, int, int, const char *, int)(dir, path, flags);
    pthread_mutex_lock(&lock);
    rc = fails(1) ? -1 : REAL(unlinkat, int, int, const char *, int)(dir, path, flags);
    if (!rc) {
        const char *name;
        uint64_t folder = folder_of(dir, path, &name);

        put_log('U', folder, 0, 0, name, (uint32_t)strlen(name), NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    int ours = is_ours(from_dir, from) && is_ours(to_dir, to), rc;

    if (!ours)
        return REAL(renameat2, int, int, const char *, int, const char *, unsigned)(from_dir, from, to_dir, to, flags);
    pthread_mutex_lock(&lock);
    rc = fails(1) ? -1
                  : REAL(renameat2, int, int, const char *, int, const char *, unsigned)(from_dir, from, to_dir, to, flags);
    if (!rc) {
        const char *a, *b;
        uint64_t x = folder_of(from_dir, from, &a), y = folder_of(to_dir, to, &b);

        put_log('R', x, y, flags & RENAME_EXCHANGE ? 1 : 0, a, (uint32_t)strlen(a), b, (uint32_t)strlen(b));
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- contents -------------------------------------------------------------------------------------------------------------- */

static void note_unsynced(uint64_t ino, uint64_t at, uint64_t n)
{
    if (n_unsynced == room_unsynced) {
        room_unsynced = room_unsynced ? 2 * room_unsynced : 1024;
        unsynced = realloc(unsynced, room_unsynced * sizeof *unsynced);
        if (!unsynced)
            abort();
    }
    unsynced[n_unsynced++] = (struct stretch){ino, at, n};
}

static void forget_unsynced(int fd, uint64_t ino, int lost)
{
    static const char zeros[65536];
    size_t k = 0;

    for (size_t i = 0; i < n_unsynced; i++) {
        if (unsynced[i].ino != ino) {
            unsynced[k++] = unsynced[i];
            continue;
        }
        for (uint64_t at = 0, n; lost && at < unsynced[i].n; at += n) {
            n = unsynced[i].n - at < sizeof zeros ? unsynced[i].n - at : sizeof zeros;
            if (syscall(SYS_pwrite64, fd, zeros, n, (off_t)(unsynced[i].at + at)) < 0)
                break; /* opened for reading */
        }
    }
    n_unsynced = k;
}

static void take_time(uint64_t n, uint64_t bytes_per_second)
{
    double s = bytes_per_second ? (double)n / (double)bytes_per_second : 0;
    struct timespec ts = {(time_t)s, (long)(1e9 * (s - (double)(time_t)s))};

    if (bytes_per_second)
        nanosleep(&ts, NULL);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    ssize_t put = -1;
    int failed;

    if (!fd_is_ours(fd))
        return REAL(pwrite, ssize_t, int, const void *, size_t, off_t)(fd, data, n, at);
    pthread_mutex_lock(&lock);
    failed = fails(1);
    if (!failed && is_fault("write") && n_written + n > fault_after && fault_times) {
        if (n_written >= fault_after) {
            fault_times--;
            errno = fault_errno;
            failed = 1;
        } else {
            n = fault_after - n_written;
        }
    }
    if (!failed)
        put = REAL(pwrite, ssize_t, int, const void *, size_t, off_t)(fd, data, n, at);
    if (put > 0) {
        n_written += (uint64_t)put;
        put_log('W', inode_of(fd), (uint64_t)at, 0, data, (uint32_t)put, NULL, 0);
        if (is_fault("sync"))
            note_unsynced(inode_of(fd), (uint64_t)at, (uint64_t)put);
    }
    pthread_mutex_unlock(&lock);
    if (put > 0)
        take_time((uint64_t)put, rate);
    return put;
}

int ftruncate(int fd, off_t size)
{
    int rc;

    if (!fd_is_ours(fd))
        return REAL(ftruncate, int, int, off_t)(fd, size);
    pthread_mutex_lock(&lock);
    rc = fails(1) ? -1 : REAL(ftruncate, int, int, off_t)(fd, size);
    if (!rc)
        put_log('T', inode_of(fd), (uint64_t)size, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* A file system that cannot promise room, when writes are to fail for lack of it. */
int fallocate(int fd, int mode, off_t at, off_t n)
{
    int rc;

    if (!fd_is_ours(fd))
        return REAL(fallocate, int, int, int, off_t, off_t)(fd, mode, at, n);
    if (is_fault("write")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    pthread_mutex_lock(&lock);
    rc = fails(1) ? -1 : REAL(fallocate, int, int, int, off_t, off_t)(fd, mode, at, n);
    if (!rc)
        put_log('A', inode_of(fd), (uint64_t)(at + n), 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int do_sync(int fd, const char *name)
{
    uint64_t ino;
    struct stat sb;
    int rc;

    if (!fd_is_ours(fd))
        return ((int (*)(int))real(name))(fd);
    pthread_mutex_lock(&lock);
    rc = fails(0) ? -1 : 0;
    ino = inode_of(fd);
    if (!rc && is_fault("sync") && !fstat(fd, &sb) && S_ISREG(sb.st_mode) && n_syncs++ >= fault_after && fault_times) {
        fault_times--;
        forget_unsynced(fd, ino, 1);
        errno = fault_errno;
        rc = -1;
    }
    if (!rc) {
        forget_unsynced(fd, ino, 0);
        put_log('S', ino, 0, 0, NULL, 0, NULL, 0); /* the disk itself is not asked: it is memory as a rule */
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int fsync(int fd)
{
    return do_sync(fd, "fsync");
}

int fdatasync(int fd)
{
    return do_sync(fd, "fdatasync");
}

/* Reads of a disk that is gone. */
ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    ssize_t got;

    if (fd_is_ours(fd) && is_fault("all")) {
        int failed;

        pthread_mutex_lock(&lock);
        failed = fails(0);
        pthread_mutex_unlock(&lock);
        if (failed)
            return -1;
    }
    got = REAL(pread, ssize_t, int, void *, size_t, off_t)(fd, data, n, at);
    if (got > 0 && fd_is_ours(fd))
        take_time((uint64_t)got, read_rate);
    return got;
}

/* No sharing of blocks: bytes are to be seen. */
int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    void *arg;

    va_start(ap, request);
    arg = va_arg(ap, void *);
    va_end(ap);
    if (fd_is_ours(fd)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return REAL(ioctl, int, int, unsigned long, void *)(fd, request, arg);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);

    if (!rc && clock_ms && id == CLOCK_MONOTONIC) {
        uint64_t more = clock_ms * __atomic_add_fetch(&n_looks, 1, __ATOMIC_RELAXED);

        ts->tv_sec += (time_t)(more / 1000);
        ts->tv_nsec += (long)(more % 1000) * 1000000;
        if (ts->tv_nsec >= 1000000000) {
            ts->tv_nsec -= 1000000000;
            ts->tv_sec++;
        }
    }
    return rc;
}
