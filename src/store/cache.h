/*
 * cache.h: which expert of a layer gives up its slot. Access history in, victim out: no I/O, no locks, no clock but the
 * count of tokens, so that recorded routes replay through the very code that runs beside the drive.
 *
 * Every expert of a layer, in memory or not, has one key:
 *
 *     key = log2(f) + t / H          f  accesses, each halved every H tokens, counted at the last access
 *                                    t  tokens up to the last access
 *
 * Keys only change on access, and between two accesses all experts fade alike, so the order of keys is the order of
 * faded frequencies at any later time (Lee et al., LRFU, IEEE Trans. Computers 50(12), 2001). A short half-life H is
 * recency, a long one frequency; H = 0 stands for plain recency, key = t.
 */
#ifndef SWL_STORE_CACHE_H
#define SWL_STORE_CACHE_H

#include <swiftlet/swiftlet.h>

typedef struct swl_policy {
    const char *name;
    /* H in tokens for a layer with slots for n_slots of its n_experts. */
    double (*half_life)(int32_t n_slots, int32_t n_experts);
} swl_policy;

const swl_policy *swl_policy_find(const char *name); /* NULL: the default; unknown names give NULL */
const swl_policy *swl_policy_at(int32_t i);          /* NULL past the end */

typedef struct swl_cache {
    const swl_policy *policy;
    int32_t n_experts;
    double half_life, n_tokens;
    double *key;               /* [n_experts], -INFINITY before the first access */
    int32_t *heap, n_heap;     /* what may be evicted; the least key at [0] */
    int32_t *place;            /* [n_experts] in the heap, -1: not in it */
} swl_cache;

swl_status swl_cache_init(swl_cache *c, const swl_policy *policy, int32_t n_experts, swl_error *err);
void swl_cache_deinit(swl_cache *c); /* a zeroed one is allowed */
void swl_cache_set_slots(swl_cache *c, int32_t n_slots);

/* n_tokens tokens used these n experts, experts[i] on rows[i] of them (NULL: on one each). Not for what is in the heap. */
void swl_cache_touch(swl_cache *c, const int32_t *experts, const int32_t *rows, int32_t n, int32_t n_tokens);

/* May be evicted from now on; no longer. O(log n). */
void swl_cache_offer(swl_cache *c, int32_t expert);
void swl_cache_withdraw(swl_cache *c, int32_t expert);
/* Who goes next, -1: nobody may. O(1). */
int32_t swl_cache_victim(const swl_cache *c);
/* Should `expert`, which has just been touched, take the victim's place? A token's always, because tokens repeat
 * themselves; with `stream` (a prompt passes through) only if its key is the greater one. */
bool swl_cache_prefers(const swl_cache *c, int32_t expert, int32_t victim, bool stream);

#endif
