/*
 * load.c: one expert's way from the drive into its frame: the reads that it takes, the checksum when the last of them has
 * arrived, and what to say when something was wrong.
 */
#include <inttypes.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "store/store_impl.h"

/* ---- the time in which something is on its way ----------------------------------------------------------------------- */

static void take_off(swl_store *s, int32_t n, uint64_t now)
{
    pthread_mutex_lock(&s->flight);
    if (!s->n_flying)
        s->flying_since = now;
    s->n_flying += n;
    pthread_mutex_unlock(&s->flight);
}

static void land(swl_store *s, uint64_t now)
{
    pthread_mutex_lock(&s->flight);
    if (!--s->n_flying)
        s->reading_ns += now - s->flying_since;
    pthread_mutex_unlock(&s->flight);
}

uint64_t swl_load_reading_ns(swl_store *s)
{
    uint64_t ns;

    pthread_mutex_lock(&s->flight);
    ns = s->reading_ns + (s->n_flying ? swl_nanoseconds() - s->flying_since : 0);
    pthread_mutex_unlock(&s->flight);
    return ns;
}

/* ---- loading --------------------------------------------------------------------------------------------------------- */

/* Whoever waits for reads has a team that does nothing meanwhile. Asking for the checksum also wakes it for what comes next. */
enum { SUM_PARTS = 8, SUM_ALONE = 64 << 10 };

typedef struct sum_run {
    const uint8_t *data;
    uint64_t part, size;
    uint32_t crc[SUM_PARTS];
} sum_run;

static uint64_t part_size(const sum_run *r, int32_t i)
{
    uint64_t at = (uint64_t)i * r->part;

    return at >= r->size ? 0 : r->size - at < r->part ? r->size - at : r->part;
}

static void sum_part(void *arg, int32_t i, int32_t worker)
{
    sum_run *r = arg;

    (void)worker;
    r->crc[i] = swl_crc32c(0, r->data + (uint64_t)i * r->part, part_size(r, i));
}

static uint32_t sum(const swl_store *s, const uint8_t *data, uint64_t size)
{
    sum_run r = {.data = data, .size = size, .part = size / SUM_PARTS / 64 * 64 + 64};
    uint32_t crc = 0;
    int32_t i;

    if (!s->team || !s->io->ops->arrives_in_wait || size < SUM_ALONE)
        return swl_crc32c(0, data, size);
    swl_threads_run(s->team, SUM_PARTS, sum_part, &r);
    for (i = 0; i < SUM_PARTS; i++)
        crc = swl_crc32c_join(crc, r.crc[i], part_size(&r, i));
    return crc;
}

/* In the I/O's context, without the store's lock: while the bytes are still in a cache, and on a pool thread where there is one. */
static void arrived(swl_io_read *r)
{
    swl_store *s = r->owner;
    swl_frame *f = &s->frames[(r - s->reads) / s->n_ranges_max];
    const swl_store_layer *d = &s->layers[f->layer].desc;
    uint64_t now = swl_nanoseconds();
    int32_t i;

    r->took_ns = now - r->began_ns;
    land(s, now);
    if (!r->direct)
        swl_files_drop(r->fd, r->offset, r->size);
    if (atomic_fetch_sub(&f->n_missing, 1) != 1 || !f->verify)
        return;
    for (i = 0; i < d->n_ranges; i++)
        if (f->reads[i].error)
            return;
    f->crc = sum(s, f->data, d->slot_bytes);
    f->crc_wrong = f->crc != d->crc32c[f->expert];
}

static bool fits_direct(const swl_store *s, const swl_range *r)
{
    return s->files.direct[r->file] >= 0 && !((r->offset | r->size | r->dst) % SWL_IO_ALIGN);
}

void swl_load_prepare(swl_store *s, int32_t layer, int32_t expert, swl_io_list *reads)
{
    swl_store_part *l = &s->layers[layer];
    swl_entry *e = &l->entries[expert];
    swl_frame *f = &s->frames[e->frame];
    const swl_range *r = l->desc.ranges + (int64_t)expert * l->desc.n_ranges;
    uint64_t now = swl_nanoseconds();
    int32_t i;

    f->layer = layer;
    f->expert = expert;
    f->n_unread = l->desc.n_ranges;
    atomic_store(&f->n_missing, l->desc.n_ranges);
    f->failed = f->crc_wrong = false;
    take_off(s, l->desc.n_ranges, now);
    f->verify = l->desc.crc32c && (s->verify == SWL_STORE_VERIFY_ALWAYS ||
                                   (s->verify == SWL_STORE_VERIFY_FIRST && !e->verified));
    for (i = 0; i < l->desc.n_ranges; i++) {
        bool direct = fits_direct(s, &r[i]);

        f->reads[i] = (swl_io_read){.fd = direct ? s->files.direct[r[i].file] : s->files.buffered[r[i].file],
                                    .direct = direct,
                                    .offset = r[i].offset,
                                    .size = r[i].size,
                                    .need = r[i].size,
                                    .dst = f->data + r[i].dst,
                                    .arrived = arrived,
                                    .owner = s,
                                    .began_ns = now};
        swl_io_push(reads, &f->reads[i]);
    }
}

/* Where the file ends now; where a read came to its end, if the system does not say. */
static uint64_t end_of(const swl_store *s, int32_t file, uint64_t reached)
{
    struct stat st;

    return !fstat(s->files.buffered[file], &st) && (uint64_t)st.st_size < reached ? (uint64_t)st.st_size : reached;
}

/* The first fault of a load that was not ok. */
swl_status swl_load_fault(const swl_store *s, const swl_frame *f, swl_error *err)
{
    const swl_store_layer *d = &s->layers[f->layer].desc;
    const swl_range *ranges = d->ranges + (int64_t)f->expert * d->n_ranges;
    int32_t i = 0;

    while (i < d->n_ranges - 1 && !f->reads[i].error)
        i++;
    if (f->reads[i].error == SWL_IO_ENDED) {
        uint64_t end = end_of(s, ranges[i].file, ranges[i].offset + f->reads[i].done);

        return swl_fail_at(err, SWL_E_CORRUPT, s->paths[ranges[i].file], (int64_t)end,
                           "layer %d, expert %d: %s ends at offset %" PRIu64 ", expected %" PRIu64
                           " bytes at offset %" PRIu64, f->layer, f->expert, s->paths[ranges[i].file], end, ranges[i].size,
                           ranges[i].offset);
    }
    if (f->reads[i].error) {
        errno = f->reads[i].error;
        return swl_fail_errno(err, s->paths[ranges[i].file],
                              "layer %d, expert %d: reading %" PRIu64 " bytes at offset %" PRIu64 " of %s failed", f->layer,
                              f->expert, ranges[i].size, ranges[i].offset, s->paths[ranges[i].file]);
    }
    return swl_fail_at(err, SWL_E_CORRUPT, s->paths[ranges[0].file], (int64_t)ranges[0].offset,
                       "layer %d, expert %d: checksum %08" PRIx32 ", expected %08" PRIx32 ": the file is damaged",
                       f->layer, f->expert, f->crc, d->crc32c[f->expert]);
}
