/* status.c: the one place that fills a swl_error. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Keeps the end of a long path: it says more than the beginning. */
static void copy_path(char *dst, size_t size, const char *path)
{
    size_t n = path ? strlen(path) : 0;

    if (n >= size) {
        path += n - (size - 4);
        memcpy(dst, "...", 3);
        memcpy(dst + 3, path, size - 4);
        dst[size - 1] = 0;
    } else {
        memcpy(dst, path ? path : "", n + 1);
    }
}

static swl_status fail(swl_error *err, swl_status code, int os_errno, const char *file, int64_t offset,
                       const char *fmt, va_list ap)
{
    if (err) {
        err->code = code;
        err->os_errno = os_errno;
        err->offset = offset;
        copy_path(err->file, sizeof err->file, file);
        vsnprintf(err->message, sizeof err->message, fmt, ap);
        if (os_errno) {
            size_t n = strlen(err->message);
            snprintf(err->message + n, sizeof err->message - n, ": %s", strerror(os_errno));
        }
    }
    return code;
}

swl_status swl_fail(swl_error *err, swl_status code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail(err, code, 0, NULL, -1, fmt, ap);
    va_end(ap);
    return code;
}

swl_status swl_fail_at(swl_error *err, swl_status code, const char *file, int64_t offset, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail(err, code, 0, file, offset, fmt, ap);
    va_end(ap);
    return code;
}

swl_status swl_fail_errno(swl_error *err, const char *file, const char *fmt, ...)
{
    int e = errno;
    swl_status code = e == ENOENT || e == ENOTDIR ? SWL_E_NOT_FOUND : e == ENOSPC ? SWL_E_BUDGET : e == ENOMEM ? SWL_E_NOMEM : SWL_E_IO;
    va_list ap;

#ifdef EDQUOT
    code = e == EDQUOT ? SWL_E_BUDGET : code;
#endif

    va_start(ap, fmt);
    fail(err, code, e, file, -1, fmt, ap);
    va_end(ap);
    return code;
}

const char *swl_status_name(swl_status st)
{
    static const char *const names[] = {
        [SWL_OK] = "ok", [SWL_E_FAIL] = "failed", [SWL_E_ARG] = "argument", [SWL_E_NOMEM] = "no_memory",
        [SWL_E_BUDGET] = "budget", [SWL_E_NOT_FOUND] = "not_found", [SWL_E_CORRUPT] = "corrupt",
        [SWL_E_UNSUPPORTED] = "unsupported", [SWL_E_IO] = "io", [SWL_E_NETWORK] = "network",
        [SWL_E_CANCELLED] = "cancelled", [SWL_E_MISMATCH] = "mismatch",
    };

    return (unsigned)st < sizeof names / sizeof names[0] ? names[st] : "unknown";
}

const char *swl_version(void)
{
    return SWL_VERSION;
}
