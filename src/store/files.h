/*
 * files.h: the container's files as the store reads them: descriptors of its own, so that neither the advice given to the
 * kernel nor the mode touches anyone else's reading of the same file.
 */
#ifndef SWL_STORE_FILES_H
#define SWL_STORE_FILES_H

#include <swiftlet/swiftlet.h>

typedef struct swl_files {
    int32_t n;
    int *buffered;             /* [n] through the page cache, told that access is random */
    int *direct;               /* [n] past the page cache; -1: not possible, or not wanted */
    int *given;                /* [n] the caller's */
} swl_files;

/* Opens the files behind `fds` again, with `direct` also past the page cache where the file system can. What cannot be
 * opened again is read through the caller's descriptor, so only memory can fail. */
swl_status swl_files_open(swl_files *f, const int *fds, const char *const *paths, int32_t n, bool direct, swl_error *err);
void swl_files_close(swl_files *f); /* a zeroed one is allowed */
/* The bytes have been copied out of the page cache and are not wanted there. */
void swl_files_drop(int fd, uint64_t offset, uint64_t size);

#endif
