/*
 * store.h: routed experts as leases on slots. The store moves byte ranges keyed by (layer, expert) and knows no tensor; a
 * caller asks for the experts of one layer, computes on those that are ready while the rest load, and gives them back.
 *
 *     EMPTY -> LOADING -> READY <-> LEASED        LOADING falls back to EMPTY when a read fails or a checksum is wrong;
 *                                                 only READY slots are victims
 *
 * A store locks itself: several threads may hold leases. A lease must be released exactly once, also after an error.
 */
#ifndef SWL_STORE_H
#define SWL_STORE_H

#include <swiftlet/swiftlet.h>

#include "format/range.h"

typedef struct swl_store_layer {
    int32_t n_experts;         /* 0: the layer has none */
    int32_t n_ranges;          /* per expert */
    const swl_range *ranges;   /* [n_experts][n_ranges], borrowed for the store's life */
    uint64_t slot_bytes;
    const uint32_t *crc32c;    /* [n_experts] over slot_bytes, borrowed; NULL: no checksums */
} swl_store_layer;

typedef struct swl_store_config {
    int32_t n_layers;
    const swl_store_layer *layers; /* copied */
    int32_t n_files;
    const int *fds;                /* copied; the descriptors stay the caller's */
    const char *const *paths;      /* of the same files, for messages; copied, the strings borrowed */
    int32_t slots_per_layer;       /* at least the most experts that are leased at once in one layer */
} swl_store_config;

typedef struct swl_store swl_store;

typedef struct swl_lease {
    const uint8_t *data;       /* slot_bytes, 64-aligned; valid from ready until release */
    int32_t expert, slot;
    bool ready;
} swl_lease;

swl_status swl_store_create(swl_store **out, const swl_store_config *config, swl_error *err);
void swl_store_free(swl_store *s);

/* Leases n distinct experts of a layer; leases[i] is for experts[i]. Hits are ready on return, misses start loading.
 * SWL_E_BUDGET when more would be leased than there are slots. On an error nothing is leased. */
swl_status swl_store_lease(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, swl_lease *leases,
                           swl_error *err);
/* Returns when all n leases are ready. On an error all leases are still held and must be released. */
swl_status swl_store_wait(swl_store *s, int32_t layer, swl_lease *leases, int32_t n, swl_error *err);
void swl_store_release(swl_store *s, int32_t layer, swl_lease *leases, int32_t n);

typedef struct swl_store_stats {
    uint64_t n_hits, n_misses, bytes_read;
} swl_store_stats;
void swl_store_stats_get(swl_store *s, swl_store_stats *out);
uint64_t swl_store_bytes(const swl_store *s);           /* of the pool */
int32_t swl_store_slots(const swl_store *s);            /* per layer */

#endif
