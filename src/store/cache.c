/* cache.c: keys and the heap of what may be evicted; see cache.h. */
#include "store/cache.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

#define LN_2 0.6931471805599453

/* ---- policies ----------------------------------------------------------------------------------------------------- */

static double recency(int32_t n_slots, int32_t n_experts)
{
    (void)n_slots, (void)n_experts;
    return 0.0;
}

static double frequency(int32_t n_slots, int32_t n_experts)
{
    (void)n_slots, (void)n_experts;
    return 256.0;
}

/* Frequency over some 60 tokens while the pool is small, towards recency as it comes to hold everything. Against plain
 * recency this won 3 to 5 points of hit rate with a pool of an eighth to a half of the experts, on routes of the demo model
 * as on made-up ones, and lost up to 3 where the set of experts in use changes every few tokens. */
static double mixed(int32_t n_slots, int32_t n_experts)
{
    return n_slots < n_experts ? 64.0 * (n_experts - n_slots) / n_experts : 0.0;
}

static const swl_policy policies[] = {
    {"hybrid", mixed},
    {"lru", recency},
    {"lfu-decay", frequency},
};

const swl_policy *swl_policy_at(int32_t i)
{
    return i >= 0 && i < (int32_t)(sizeof policies / sizeof *policies) ? &policies[i] : NULL;
}

const swl_policy *swl_policy_find(const char *name)
{
    const swl_policy *p;
    int32_t i;

    for (i = 0; (p = swl_policy_at(i)); i++)
        if (!name || !strcmp(name, p->name))
            return p;
    return NULL;
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

swl_status swl_cache_init(swl_cache *c, const swl_policy *policy, int32_t n_experts, swl_error *err)
{
    int32_t i;

    memset(c, 0, sizeof *c);
    c->policy = policy;
    c->n_experts = n_experts;
    c->key = swl_calloc((size_t)n_experts, sizeof *c->key);
    c->heap = swl_calloc((size_t)n_experts, sizeof *c->heap);
    c->place = swl_calloc((size_t)n_experts, sizeof *c->place);
    if (!c->key || !c->heap || !c->place) {
        swl_cache_deinit(c);
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    }
    for (i = 0; i < n_experts; i++) {
        c->key[i] = -INFINITY;
        c->place[i] = -1;
    }
    return SWL_OK;
}

void swl_cache_deinit(swl_cache *c)
{
    swl_free(c->key);
    swl_free(c->heap);
    swl_free(c->place);
    memset(c, 0, sizeof *c);
}

static bool less(const swl_cache *c, int32_t a, int32_t b)
{
    return c->key[a] < c->key[b] || (c->key[a] == c->key[b] && a < b);
}

static void put(swl_cache *c, int32_t at, int32_t expert)
{
    c->heap[at] = expert;
    c->place[expert] = at;
}

static void sift_up(swl_cache *c, int32_t at)
{
    int32_t e = c->heap[at];

    for (; at && less(c, e, c->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put(c, at, c->heap[(at - 1) / 2]);
    put(c, at, e);
}

static void sift_down(swl_cache *c, int32_t at)
{
    int32_t e = c->heap[at], child;

    for (; (child = 2 * at + 1) < c->n_heap; at = child) {
        if (child + 1 < c->n_heap && less(c, c->heap[child + 1], c->heap[child]))
            child++;
        if (!less(c, c->heap[child], e))
            break;
        put(c, at, c->heap[child]);
    }
    put(c, at, e);
}

/* Another half-life means another scale of keys. They are carried over with the faded frequency of this moment, so that
 * resizing does not forget. Plain recency knows times alone: t is t / H of one access. All three keep the order, and so
 * the heap. */
static double rescale(double key, double now, double old, double h)
{
    if (!old)
        return key / h;
    return h ? key + now / h - now / old : key * old;
}

void swl_cache_set_slots(swl_cache *c, int32_t n_slots)
{
    double h = c->policy->half_life(n_slots, c->n_experts), old = c->half_life;
    int32_t i;

    c->half_life = h;
    for (i = 0; i < c->n_experts && h != old; i++)
        if (c->key[i] != -INFINITY)
            c->key[i] = rescale(c->key[i], c->n_tokens, old, h);
}

/* A chunk's accesses are taken as spread evenly over it, so each fades by the mean of 2^(-age/H) over the chunk. */
void swl_cache_touch(swl_cache *c, const int32_t *experts, const int32_t *rows, int32_t n, int32_t n_tokens)
{
    double h = c->half_life, x = h ? n_tokens * LN_2 / h : 0.0, fade = 1.0;
    int32_t i;

    c->n_tokens += n_tokens;
    if (h && n_tokens > 1)
        fade = -expm1(-x) / x;
    for (i = 0; i < n; i++) {
        double *key = &c->key[experts[i]], count = rows ? rows[i] : 1.0, base = h ? c->n_tokens / h : 0.0;

        assert(c->place[experts[i]] < 0);
        if (h)
            *key = base + log2(exp2(*key - base) + count * fade);
        else
            *key = c->n_tokens + count / (n_tokens + 1.0); /* of a chunk: more often used means used later, most likely */
    }
}

/* ---- the heap ----------------------------------------------------------------------------------------------------- */

void swl_cache_offer(swl_cache *c, int32_t expert)
{
    assert(c->place[expert] < 0);
    put(c, c->n_heap++, expert);
    sift_up(c, c->n_heap - 1);
}

void swl_cache_withdraw(swl_cache *c, int32_t expert)
{
    int32_t at = c->place[expert], last = c->heap[--c->n_heap];

    assert(at >= 0);
    c->place[expert] = -1;
    if (last == expert)
        return;
    put(c, at, last);
    sift_up(c, at);
    sift_down(c, c->place[last]);
}

int32_t swl_cache_victim(const swl_cache *c)
{
    return c->n_heap ? c->heap[0] : -1;
}

bool swl_cache_prefers(const swl_cache *c, int32_t expert, int32_t victim, bool stream)
{
    return !stream || c->key[expert] > c->key[victim];
}
