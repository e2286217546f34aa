/*
 * store.h: routed experts as leases on slots. The store moves byte ranges keyed by (layer, expert) and knows no tensor; a
 * caller says which experts the tokens of a call use, leases them, computes on those that are ready while the rest load,
 * and gives them back.
 *
 *     EMPTY -> LOADING -> READY <-> LEASED        LOADING goes back to EMPTY when a read fails or a checksum is wrong (as
 *                 |                               soon as the last lease is released); only READY slots are victims
 *                 +--> FAILED --> EMPTY
 *
 * Each layer has its own share of slots, so that one token's experts always fit. Besides, a few slots are shared by all
 * layers: through them experts pass that a prompt uses and that are not worth a place in the pool.
 *
 * A store locks itself: several threads may hold leases. A lease must be released exactly once, also after an error.
 */
#ifndef SWL_STORE_H
#define SWL_STORE_H

#include <swiftlet/swiftlet.h>

#include "base/threads.h"
#include "format/range.h"
#include "store/io.h"

typedef struct swl_store_layer {
    int32_t n_experts;         /* 0: the layer has none */
    int32_t n_ranges;          /* per expert */
    const swl_range *ranges;   /* [n_experts][n_ranges], borrowed for the store's life */
    uint64_t slot_bytes;
    const uint32_t *crc32c;    /* [n_experts] over slot_bytes, borrowed; NULL: no checksums */
} swl_store_layer;

typedef enum swl_store_verify {
    SWL_STORE_VERIFY_ALWAYS,   /* every load from the drive */
    SWL_STORE_VERIFY_FIRST,    /* the first load of each expert */
    SWL_STORE_VERIFY_NEVER
} swl_store_verify;

typedef struct swl_store_config {
    int32_t n_layers;
    const swl_store_layer *layers; /* copied */
    int32_t n_files;
    const int *fds;                /* copied; the descriptors stay the caller's and must outlive the store */
    const char *const *paths;      /* of the same files, for messages; copied, the strings borrowed */
    int32_t slots_per_layer;       /* at least the most experts that are leased at once in one layer */
    int32_t slots_min;             /* resizing goes no lower: what one token uses. 0: 1 */
    int32_t stage_slots;           /* beside the layers' slots */
    const char *policy;            /* name in cache.h; NULL: default */
    swl_store_verify verify;
    swl_io *io;                    /* how to read; the store's from now on, also on an error. NULL: threads, buffered */
    bool direct;                   /* past the page cache where ranges are aligned for it */
    swl_threads *team;             /* takes checksums where reads end in the caller's wait; borrowed, NULL: none. Callers of the
                                      store are then not in a loop of the team. */
} swl_store_config;

typedef struct swl_store swl_store;

typedef struct swl_lease {
    const uint8_t *data;       /* slot_bytes, 4096-aligned; valid from ready until release */
    int32_t expert;
    bool ready;
} swl_lease;

swl_status swl_store_create(swl_store **out, const swl_store_config *config, swl_error *err);
void swl_store_free(swl_store *s); /* waits for what is still being read */

/* Says which distinct experts the n_tokens tokens of a call use, experts[i] on rows[i] of them (NULL: one each). Once per
 * call and layer, before the leases: what stays in the pool follows from it. */
void swl_store_announce(swl_store *s, int32_t layer, const int32_t *experts, const int32_t *rows, int32_t n,
                        int32_t n_tokens);

typedef enum swl_lease_mode {
    SWL_LEASE_ALL,             /* all n or none */
    SWL_LEASE_STREAM           /* as many from the front as there is room for; they pass through unless they are used more
                                  than what is in the pool */
} swl_lease_mode;

/* Leases n distinct experts of a layer; leases[i] is for experts[i]. Hits are ready on return, misses are being read: all
 * their reads have been issued. SWL_E_BUDGET when there is no room (with STREAM: for not even one). On an error nothing is
 * leased. n_leased may be NULL with ALL. */
swl_status swl_store_lease(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, swl_lease_mode mode,
                           swl_lease *leases, int32_t *n_leased, swl_error *err);
/* Returns when all n leases are ready, or when at least one is that was not ready before (at once if there is none left).
 * On an error all leases are still held and must be released. */
swl_status swl_store_wait(swl_store *s, int32_t layer, swl_lease *leases, int32_t n, swl_error *err);
swl_status swl_store_wait_any(swl_store *s, int32_t layer, swl_lease *leases, int32_t n, swl_error *err);
void swl_store_release(swl_store *s, int32_t layer, swl_lease *leases, int32_t n);

/* Takes a free slot of the layer for an expert that is not in the pool and calls it READY; the caller fills its slot_bytes
 * before anyone leases it. NULL when no slot is free. For experts made in memory: nothing is read for them. */
uint8_t *swl_store_put(swl_store *s, int32_t layer, int32_t expert);

/* Whether a guess for calls of this mode would be read at all: not where all experts are in memory, nor in a layer that is left
 * alone, nor while the store stands still. */
bool swl_store_guesses(swl_store *s, int32_t layer, swl_lease_mode mode);
/* A guess that the next call will use these experts of a layer, to be read in this order: advice. While nothing else is being
 * read, reads the first n_reads of those that are not in memory into free slots of the stage (with STREAM those that were lent
 * to it), so nothing is evicted and nothing is in the way of what is needed. The next announcement settles it: what was guessed
 * right takes the place that a miss would have been given when it is leased, the rest is dropped. A layer whose guesses are
 * wrong too often is left alone for a while. */
void swl_store_prefetch(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, int32_t n_reads, swl_lease_mode mode);
/* Keeps the drive at it while nobody waits for reads: what waits for its turn with the I/O gets it. Cheap, also inside a loop of the
 * team. */
void swl_store_pump(swl_store *s);
/* Lends the stage some n_slots slots of the layers' shares, as many of each, but at most a sixth of a share, and none
 * where no layer missed many at the last prompt; those that are in use lose what they would evict next. For the guesses of a
 * prompt; 0 gives them back. Nothing may be leased when this is called. */
void swl_store_lend(swl_store *s, int32_t n_slots);

/* Changes the size of the pool, at any time. What is leased stays; a layer that has more leased than its new share gives
 * the surplus up on release. SWL_E_BUDGET below slots_min, SWL_E_NOMEM when the address space was not to be had. */
swl_status swl_store_resize(swl_store *s, int32_t slots_per_layer, swl_error *err);

/* For measuring what computing takes when nothing is read: while `still`, what is in memory stays as it is, and a lease of
 * what is not there lends the bytes of another expert of the layer that is. Nothing may be leased when this is called. */
void swl_store_stand_still(swl_store *s, bool still);

typedef struct swl_store_stats {
    uint64_t n_hits, n_misses; /* leases that found their expert in memory (or on its way), and that did not */
    uint64_t n_streamed;       /* misses that passed through without a place in the pool */
    uint64_t n_ahead, n_ahead_used; /* read on a guess; of those, leased (and counted as hits) */
    uint64_t n_evicted;        /* good ones that gave up their place in the pool */
    uint64_t bytes_read;
    uint64_t n_reads, read_ns; /* that have ended, and how long they took */
    uint64_t read_times[SWL_READ_TIMES]; /* by how long, as in swl_model_stats */
    uint64_t wait_ns;          /* that callers waited for reads */
    uint64_t reading_ns;       /* with something on its way; io_uring tells of an end only when it is asked */
    int32_t n_reading;         /* on their way */
    uint64_t pool_bytes;       /* memory for experts at its present size, filled or not */
} swl_store_stats;
void swl_store_stats_get(swl_store *s, swl_store_stats *out);
int32_t swl_store_slots(swl_store *s);                  /* per layer, now */
const char *swl_store_io_name(const swl_store *s);

/* The same before there is a store, for a budget: memory for experts, and *meta (may be NULL) for what is kept beside. */
uint64_t swl_store_measure(const swl_store_layer *layers, int32_t n_layers, int32_t slots_per_layer, int32_t stage_slots,
                           uint64_t *meta);

#endif
