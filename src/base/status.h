/* status.h: how every fault is reported. One call where it is seen; callers hand the status on. */
#ifndef SWL_BASE_STATUS_H
#define SWL_BASE_STATUS_H

#include <swiftlet/swiftlet.h>

/* Fills *err (may be NULL) and returns `code`. The message is a sentence with expected and found values. */
swl_status swl_fail(swl_error *err, swl_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same for a fault in a file; offset -1 when none applies. */
swl_status swl_fail_at(swl_error *err, swl_status code, const char *file, int64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* A failed system call on `file` (may be NULL): takes errno, appends its text. ENOENT and ENOTDIR give
 * SWL_E_NOT_FOUND, ENOSPC SWL_E_BUDGET, ENOMEM SWL_E_NOMEM, everything else SWL_E_IO. */
swl_status swl_fail_errno(swl_error *err, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
