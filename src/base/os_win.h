/*
 * os_win.h: the POSIX calls of files.c and its like, as Windows has them. A file that uses them includes this under
 * _WIN32, after the system's headers, and reads on as POSIX. Descriptors are the C runtime's, always in binary mode.
 * Names are in the process's code page, which a manifest can set to UTF-8.
 */
#ifndef SWL_BASE_OS_WIN_H
#define SWL_BASE_OS_WIN_H

#include <stdint.h>
#include <sys/types.h>

#define O_CLOEXEC  0x8080 /* _O_NOINHERIT | _O_BINARY: every open here asks for it */
#define O_NONBLOCK 0      /* no FIFO can hang an open */

int64_t swl_win_pread(int fd, void *dst, uint64_t n, int64_t offset);        /* like pread, but moves the position */
int64_t swl_win_pwrite(int fd, const void *src, uint64_t n, int64_t offset); /* for one thread at a time */
int swl_win_fsync(int fd);
int swl_win_rename(const char *from, const char *to); /* replaces `to` */
int swl_win_mkdir(const char *path);

/* Zeroed pages; resets the content of whole pages. */
void *swl_win_alloc(uint64_t n_bytes);
void swl_win_free(void *p);
void swl_win_discard(void *p, uint64_t n_bytes);

/* The first place of a piece of memory in another. */
void *swl_win_memmem(const void *where, size_t n_where, const void *what, size_t n_what);

#define pread(fd, dst, n, offset)  swl_win_pread(fd, dst, n, offset)
#define pwrite(fd, src, n, offset) swl_win_pwrite(fd, src, n, offset)
#define fsync(fd)                  swl_win_fsync(fd)
#define rename(from, to)           swl_win_rename(from, to)
#define mkdir(path, mode)          swl_win_mkdir(path)
#define memmem(p, n, what, n_what) swl_win_memmem(p, n, what, n_what)
#define realpath(path, out)        _fullpath(out, path, 0)
#define lstat(path, out)           stat(path, out) /* the C runtime follows links */

#endif
