/* file.h: files as the library needs them: open, size, exact reads at an offset, whole small files, durable writes. */
#ifndef SWL_BASE_FILE_H
#define SWL_BASE_FILE_H

#include <swiftlet/swiftlet.h>

/* Opens for reading; *size (may be NULL) receives the length. Refuses what is not a regular file. */
swl_status swl_file_open(int *fd, uint64_t *size, const char *path, swl_error *err);
void swl_file_close(int fd); /* -1 is allowed */

/* Exactly n bytes at offset, or an error that names path and offset (a short file is SWL_E_CORRUPT). Retries EINTR and
 * short reads. Threads may share the descriptor. */
swl_status swl_file_read_at(int fd, const char *path, uint64_t offset, void *dst, uint64_t n, swl_error *err);

/* Advice: these bytes (n 0: up to the end) will not be read again soon, so that the page cache need not keep them. */
void swl_file_forget(int fd, uint64_t offset, uint64_t n);

/* The whole of a small file, NUL-terminated. Longer than n_max: SWL_E_CORRUPT. *data: free with swl_free. */
swl_status swl_file_load(char **data, size_t *n, const char *path, uint64_t n_max, swl_error *err);

bool swl_file_exists(const char *path); /* follows links; a dangling link does not exist */
bool swl_dir_exists(const char *path);

/* Writing: create (truncating), exact writes, fsync + close; the directory entry is made durable by swl_dir_sync. */
swl_status swl_file_create(int *fd, const char *path, swl_error *err);
swl_status swl_file_write(int fd, const char *path, const void *src, uint64_t n, swl_error *err);
swl_status swl_file_write_at(int fd, const char *path, uint64_t offset, const void *src, uint64_t n, swl_error *err);
swl_status swl_file_finish(int fd, const char *path, swl_error *err); /* fsync and close; closes also on error */
swl_status swl_dir_sync(const char *path, swl_error *err);

/* A file that is there whole or not at all: written to `fd` under a temporary name of its own, made durable and renamed by end,
 * which takes the status so far and removes the temporary file when that is an error. Only a regular file is replaced. Temporary
 * files for the same path that are an hour old are removed: nobody writes them any more. */
typedef struct swl_file_atomic {
    int fd;
    char *path, *tmp;
} swl_file_atomic;
swl_status swl_file_atomic_begin(swl_file_atomic *f, const char *path, swl_error *err);
swl_status swl_file_atomic_end(swl_file_atomic *f, swl_status st, swl_error *err);
/* The same for bytes in memory. */
swl_status swl_file_save(const char *path, const void *src, uint64_t n, swl_error *err);

#endif
