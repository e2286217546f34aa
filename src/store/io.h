/*
 * io.h: reads in flight. The store hands over batches of reads; they come back one by one, in any order, from wait(). How
 * they are carried out is a table of three functions, so that io_uring, a pool of threads and a fake for tests look alike.
 *
 * A read, and the memory that it fills, belongs to I/O from submit until wait() has returned it, also when something has
 * failed meanwhile and at shutdown: whoever submitted must wait for all of them before close.
 */
#ifndef SWL_STORE_IO_H
#define SWL_STORE_IO_H

#include <swiftlet/swiftlet.h>

#define SWL_IO_ALIGN 4096 /* offset, length and memory of direct reads */

enum { SWL_IO_ENDED = -1 }; /* swl_io_read.error: the file ends before the wanted bytes */

typedef struct swl_io_read {
    int fd;
    bool direct;               /* fd was opened past the page cache: what is asked for stays aligned */
    uint64_t offset, size;     /* asked for; with `direct` all multiples of SWL_IO_ALIGN, as is dst */
    uint64_t need;             /* it is done with this many bytes: less than size when an aligned read passes the file's end */
    uint8_t *dst;
    /* Called once when the outcome is known, before wait() returns the read, without locks, possibly on a thread of the
     * backend: the place for checksums. May be NULL. */
    void (*arrived)(struct swl_io_read *r);
    void *owner;               /* for the submitter, */
    uint64_t began_ns, took_ns;/* as are these */
    /* outcome */
    uint64_t done;             /* bytes that arrived */
    int error;                 /* 0, an errno, or SWL_IO_ENDED */
    /* the backend's own */
    struct swl_io_read *next;
    int32_t n_again;
} swl_io_read;

/* Reads in the order in which they came; empty when zeroed. */
typedef struct swl_io_list {
    swl_io_read *head, **tail;
} swl_io_list;
void swl_io_push(swl_io_list *l, swl_io_read *r);
swl_io_read *swl_io_pop(swl_io_list *l); /* NULL when empty */

typedef struct swl_io swl_io;

typedef struct swl_io_ops {
    const char *name;
    bool arrives_in_wait;      /* `arrived` is called on the thread that is in wait(): while it runs, no other read can end */
    /* Takes all reads of the list. Cannot fail: what goes wrong becomes the outcome of a read. Any thread. */
    void (*submit)(swl_io *io, swl_io_list *reads);
    /* Takes up to max finished reads; with `block` it returns at least one if any is in flight. One thread at a time. */
    int32_t (*wait)(swl_io *io, swl_io_read **out, int32_t max, bool block);
    void (*close)(swl_io *io); /* nothing may be in flight */
    /* Hands over what waits for others to end, without returning those; while nobody is in wait(). NULL: that takes nobody. */
    void (*pump)(swl_io *io);
} swl_io_ops;

/* First member of every backend. */
struct swl_io {
    const swl_io_ops *ops;
    int32_t depth;             /* reads that are with the system at once */
};

enum { SWL_IO_DEPTH_DEFAULT = 16, SWL_IO_DEPTH_MAX = 128 };

/* name: "uring", "threads", or NULL for the first of these that works here. A named one that does not work is
 * SWL_E_UNSUPPORTED. depth 0: default. */
swl_status swl_io_open(swl_io **out, const char *name, int32_t depth, swl_error *err);
void swl_io_close(swl_io *io); /* NULL is allowed */

/* ---- for backends ------------------------------------------------------------------------------------------------- */

/* Notes what the system answered to a read of the rest of r (bytes, 0 at the end of the file, or -errno). True when that
 * settles it; false: the rest is to be read (swl_io_rest). Short reads, EINTR and EAGAIN are handled here and only here. */
bool swl_io_advance(swl_io_read *r, int64_t result);
void swl_io_rest(const swl_io_read *r, uint64_t *offset, uint8_t **dst, uint64_t *size);

swl_status swl_io_threads_open(swl_io **out, int32_t depth, swl_error *err);
swl_status swl_io_uring_open(swl_io **out, int32_t depth, swl_error *err); /* SWL_E_UNSUPPORTED where it is not built in */

#endif
