/* io.c: what all backends share: choosing one, and what an answer of the system means for a read. */
#include "store/io.h"

#include <errno.h>
#include <string.h>

#include "base/status.h"

#define ONE_CALL_MAX (UINT64_C(1) << 30) /* the system moves at most 2 GiB less a page at once */

bool swl_io_advance(swl_io_read *r, int64_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return false;
    if (result < 0) {
        r->error = (int)-result;
        return true;
    }
    r->done += (uint64_t)result;
    if (r->done >= r->need)
        return true;
    /* What follows a direct read must be aligned again; a remainder that is not only occurs at the end of a file. */
    if (result == 0 || (r->direct && r->done % SWL_IO_ALIGN)) {
        r->error = SWL_IO_ENDED;
        return true;
    }
    return false;
}

void swl_io_rest(const swl_io_read *r, uint64_t *offset, uint8_t **dst, uint64_t *size)
{
    *offset = r->offset + r->done;
    *dst = r->dst + r->done;
    *size = r->size - r->done < ONE_CALL_MAX ? r->size - r->done : ONE_CALL_MAX;
}

void swl_io_push(swl_io_list *l, swl_io_read *r)
{
    r->next = NULL;
    if (!l->head)
        l->tail = &l->head;
    *l->tail = r;
    l->tail = &r->next;
}

swl_io_read *swl_io_pop(swl_io_list *l)
{
    swl_io_read *r = l->head;

    if (r)
        l->head = r->next;
    return r;
}

swl_status swl_io_open(swl_io **out, const char *name, int32_t depth, swl_error *err)
{
    swl_status st;

    *out = NULL;
    if (depth < 0 || depth > SWL_IO_DEPTH_MAX)
        return swl_fail(err, SWL_E_ARG, "I/O: queue depth %d, expected 1 to %d", depth, SWL_IO_DEPTH_MAX);
    depth = depth ? depth : SWL_IO_DEPTH_DEFAULT;
    if (name && strcmp(name, "uring") && strcmp(name, "threads"))
        return swl_fail(err, SWL_E_ARG, "I/O: unknown backend \"%s\", expected \"uring\" or \"threads\"", name);
    if (!name || !strcmp(name, "uring")) {
        st = swl_io_uring_open(out, depth, err);
        if (!st || name)
            return st;
    }
    return swl_io_threads_open(out, depth, err);
}

void swl_io_close(swl_io *io)
{
    if (io)
        io->ops->close(io);
}
