/*
 * store.c: the pool. Each layer has its own slots and its own least-recently-used order; a miss is read by the thread that
 * waits for it. Everything but the reads themselves happens under one lock.
 */
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

typedef enum slot_state { SLOT_EMPTY, SLOT_LOADING, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    bool reading;              /* some thread is filling it */
    int32_t expert;            /* -1 when EMPTY */
    int32_t n_leases;          /* READY with leases is LEASED; LOADING always has some */
    uint64_t used;             /* clock of the last lease */
    uint8_t *data;
} slot;

typedef struct layer {
    swl_store_layer desc;
    slot *slots;               /* [n_slots] */
    int32_t *slot_of;          /* [n_experts], -1: not here */
} layer;

struct swl_store {
    int32_t n_layers, n_slots;
    layer *layers;
    int *fds;
    const char **paths;
    uint8_t *pool;
    uint64_t pool_bytes, clock;
    swl_store_stats stats;
    pthread_mutex_t lock;
    pthread_cond_t loaded;     /* some slot left LOADING, or its reader gave up */
};

static int32_t slots_of(const swl_store *s, const layer *l)
{
    return l->desc.n_experts < s->n_slots ? l->desc.n_experts : s->n_slots;
}

static swl_status layer_init(swl_store *s, layer *l, const swl_store_layer *desc, swl_error *err)
{
    int32_t i, n;

    l->desc = *desc;
    n = slots_of(s, l);
    l->slots = swl_calloc((size_t)n, sizeof *l->slots);
    l->slot_of = swl_calloc((size_t)desc->n_experts, sizeof *l->slot_of);
    if (!l->slots || !l->slot_of)
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    for (i = 0; i < n; i++)
        l->slots[i].expert = -1;
    for (i = 0; i < desc->n_experts; i++)
        l->slot_of[i] = -1;
    s->pool_bytes += (uint64_t)n * ((desc->slot_bytes + SWL_ALIGN - 1) & ~(uint64_t)(SWL_ALIGN - 1));
    return SWL_OK;
}

static void place_slots(swl_store *s)
{
    uint8_t *p = s->pool;
    int32_t i, j;

    for (i = 0; i < s->n_layers; i++)
        for (j = 0; j < slots_of(s, &s->layers[i]); j++) {
            s->layers[i].slots[j].data = p;
            p += (s->layers[i].desc.slot_bytes + SWL_ALIGN - 1) & ~(uint64_t)(SWL_ALIGN - 1);
        }
}

swl_status swl_store_create(swl_store **out, const swl_store_config *c, swl_error *err)
{
    swl_store *s = swl_calloc(1, sizeof *s);
    swl_status st = SWL_OK;
    int32_t i;

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->loaded, NULL);
    s->n_layers = c->n_layers;
    s->n_slots = c->slots_per_layer;
    s->layers = swl_calloc((size_t)c->n_layers, sizeof *s->layers);
    s->fds = swl_calloc((size_t)c->n_files, sizeof *s->fds);
    s->paths = swl_calloc((size_t)c->n_files, sizeof *s->paths);
    if (!s->layers || !s->fds || !s->paths)
        st = swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    for (i = 0; i < c->n_layers && !st; i++)
        st = layer_init(s, &s->layers[i], &c->layers[i], err);
    if (!st && !(s->pool = swl_big_alloc(s->pool_bytes)))
        st = swl_fail(err, SWL_E_NOMEM, "expert store: out of memory for a pool of %" PRIu64 " bytes", s->pool_bytes);
    if (st) {
        swl_store_free(s);
        return st;
    }
    if (c->n_files) {
        memcpy(s->fds, c->fds, (size_t)c->n_files * sizeof *s->fds);
        memcpy(s->paths, c->paths, (size_t)c->n_files * sizeof *s->paths);
    }
    place_slots(s);
    *out = s;
    return SWL_OK;
}

void swl_store_free(swl_store *s)
{
    int32_t i;

    if (!s)
        return;
    for (i = 0; s->layers && i < s->n_layers; i++) {
        swl_free(s->layers[i].slots);
        swl_free(s->layers[i].slot_of);
    }
    swl_big_free(s->pool, s->pool_bytes);
    swl_free(s->layers);
    swl_free(s->fds);
    swl_free(s->paths);
    pthread_cond_destroy(&s->loaded);
    pthread_mutex_destroy(&s->lock);
    swl_free(s);
}

/* The slot to fill next: an EMPTY one, else the READY one without leases that was used longest ago; -1: all leased. */
static int32_t find_victim(const swl_store *s, const layer *l)
{
    int32_t i, best = -1;

    for (i = 0; i < slots_of(s, l); i++) {
        const slot *v = &l->slots[i];

        if (v->state == SLOT_EMPTY)
            return i;
        if (v->state == SLOT_READY && !v->n_leases && (best < 0 || v->used < l->slots[best].used))
            best = i;
    }
    return best;
}

static void drop_lease(layer *l, swl_lease *lease)
{
    slot *v = &l->slots[lease->slot];

    assert(v->n_leases > 0);
    v->n_leases--;
    if (!v->n_leases && v->state == SLOT_LOADING) { /* nobody waits for it any more, nobody reads it */
        l->slot_of[v->expert] = -1;
        v->expert = -1;
        v->state = SLOT_EMPTY;
    }
    lease->ready = false;
    lease->data = NULL;
}

static bool lease_one(swl_store *s, layer *l, int32_t expert, swl_lease *lease)
{
    int32_t i = l->slot_of[expert];
    bool hit = i >= 0;
    slot *v;

    if (!hit) {
        i = find_victim(s, l);
        if (i < 0)
            return false;
        v = &l->slots[i];
        if (v->expert >= 0)
            l->slot_of[v->expert] = -1;
        v->state = SLOT_LOADING;
        v->expert = expert;
        l->slot_of[expert] = i;
        s->stats.n_misses++;
    } else {
        s->stats.n_hits++;
    }
    v = &l->slots[i];
    v->n_leases++;
    v->used = ++s->clock;
    *lease = (swl_lease){.data = v->data, .expert = expert, .slot = i, .ready = v->state == SLOT_READY};
    return true;
}

/* Hits are leased first, so that a miss of the same call cannot evict one of them. */
swl_status swl_store_lease(swl_store *s, int32_t li, const int32_t *experts, int32_t n, swl_lease *leases, swl_error *err)
{
    layer *l = &s->layers[li];
    swl_status st = SWL_OK;
    int32_t i, pass;

    for (i = 0; i < n; i++)
        leases[i] = (swl_lease){.slot = -1};
    pthread_mutex_lock(&s->lock);
    for (pass = 0; pass < 2 && !st; pass++)
        for (i = 0; i < n && !st; i++)
            if (leases[i].slot < 0 && (pass || l->slot_of[experts[i]] >= 0) && !lease_one(s, l, experts[i], &leases[i]))
                st = swl_fail(err, SWL_E_BUDGET, "expert store: layer %d has %d slots, all of them in use", li,
                              slots_of(s, l));
    if (st)
        for (i = 0; i < n; i++)
            if (leases[i].slot >= 0)
                drop_lease(l, &leases[i]);
    pthread_mutex_unlock(&s->lock);
    return st;
}

static swl_status read_expert(swl_store *s, int32_t li, int32_t expert, uint8_t *dst, swl_error *err)
{
    const swl_store_layer *d = &s->layers[li].desc;
    const swl_range *r = d->ranges + (int64_t)expert * d->n_ranges;
    swl_status st;
    uint32_t crc;
    int32_t i;

    for (i = 0; i < d->n_ranges; i++) {
        st = swl_file_read_at(s->fds[r[i].file], s->paths[r[i].file], r[i].offset, dst + r[i].dst, r[i].size, err);
        if (st)
            return st;
    }
    if (d->crc32c && (crc = swl_crc32c(0, dst, d->slot_bytes)) != d->crc32c[expert])
        return swl_fail_at(err, SWL_E_CORRUPT, s->paths[r[0].file], (int64_t)r[0].offset,
                           "layer %d, expert %d: checksum %08" PRIx32 ", expected %08" PRIx32 ": the file is damaged", li,
                           expert, crc, d->crc32c[expert]);
    return SWL_OK;
}

/* Called and returns with the lock held; reads without it. */
static swl_status make_ready(swl_store *s, int32_t li, swl_lease *lease, swl_error *err)
{
    layer *l = &s->layers[li];
    slot *v = &l->slots[lease->slot];
    swl_status st = SWL_OK;

    while (v->state == SLOT_LOADING && v->reading)
        pthread_cond_wait(&s->loaded, &s->lock);
    if (v->state == SLOT_LOADING) {
        v->reading = true;
        pthread_mutex_unlock(&s->lock);
        st = read_expert(s, li, lease->expert, v->data, err);
        pthread_mutex_lock(&s->lock);
        v->reading = false;
        if (!st) {
            v->state = SLOT_READY;
            s->stats.bytes_read += l->desc.slot_bytes;
        }
        pthread_cond_broadcast(&s->loaded);
    }
    lease->ready = !st;
    return st;
}

swl_status swl_store_wait(swl_store *s, int32_t li, swl_lease *leases, int32_t n, swl_error *err)
{
    swl_status st = SWL_OK;
    int32_t i;

    pthread_mutex_lock(&s->lock);
    for (i = 0; i < n && !st; i++)
        if (!leases[i].ready)
            st = make_ready(s, li, &leases[i], err);
    pthread_mutex_unlock(&s->lock);
    return st;
}

void swl_store_release(swl_store *s, int32_t li, swl_lease *leases, int32_t n)
{
    int32_t i;

    pthread_mutex_lock(&s->lock);
    for (i = 0; i < n; i++)
        drop_lease(&s->layers[li], &leases[i]);
    pthread_mutex_unlock(&s->lock);
}

void swl_store_stats_get(swl_store *s, swl_store_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

uint64_t swl_store_bytes(const swl_store *s)
{
    return s->pool_bytes;
}

int32_t swl_store_slots(const swl_store *s)
{
    return s->n_slots;
}
