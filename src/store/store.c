/*
 * store.c: leases. All of a call's misses are handed to the I/O at once; whoever waits drives it, one thread at a time,
 * and the others are told. Which slot a miss takes is cache.c's word; where its bytes go is in frames.c, what is read and
 * whether it is right in load.c. Everything but the reads and the checksums happens under one lock.
 */
#define _GNU_SOURCE
#include "store/store.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "store/store_impl.h"

/* ---- making and ending -------------------------------------------------------------------------------------------- */

static swl_status part_init(swl_store *s, swl_store_part *l, const swl_store_layer *desc, const swl_policy *policy,
                            swl_error *err)
{
    swl_status st;

    l->desc = *desc;
    l->n_missing = -1;
    if (!desc->n_experts)
        return SWL_OK;
    if (desc->n_ranges > s->n_ranges_max)
        s->n_ranges_max = desc->n_ranges;
    l->entries = swl_calloc((size_t)desc->n_experts, sizeof *l->entries);
    if (!l->entries)
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    st = swl_cache_init(&l->cache, policy, desc->n_experts, err);
    if (!st)
        swl_cache_set_slots(&l->cache, s->slots_per_layer);
    return st;
}

static swl_status store_init(swl_store *s, const swl_store_config *c, swl_error *err)
{
    const swl_policy *policy = swl_policy_find(c->policy);
    swl_status st = SWL_OK;
    int32_t i;

    if (!policy)
        return swl_fail(err, SWL_E_ARG, "expert store: unknown policy \"%s\"", c->policy);
    s->n_layers = c->n_layers;
    s->slots_per_layer = c->slots_per_layer;
    s->slots_min = c->slots_min ? c->slots_min : 1;
    s->stage_slots = c->stage_slots;
    s->verify = c->verify;
    s->team = c->team;
    s->n_ranges_max = 1;
    s->ahead_layer = -1;
    s->layers = swl_calloc((size_t)c->n_layers, sizeof *s->layers);
    s->paths = swl_calloc((size_t)c->n_files, sizeof *s->paths);
    if (!s->layers || !s->paths)
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    if (c->n_files)
        memcpy(s->paths, c->paths, (size_t)c->n_files * sizeof *s->paths);
    for (i = 0; i < c->n_layers && !st; i++)
        st = part_init(s, &s->layers[i], &c->layers[i], policy, err);
    if (!st)
        st = swl_files_open(&s->files, c->fds, c->paths, c->n_files, c->direct, err);
    if (!st)
        st = swl_frames_create(s, err);
    if (!st && !s->io)
        st = swl_io_open(&s->io, "threads", 0, err);
    return st;
}

swl_status swl_store_create(swl_store **out, const swl_store_config *c, swl_error *err)
{
    swl_store *s = swl_calloc(1, sizeof *s);
    swl_status st;

    *out = NULL;
    if (!s) {
        swl_io_close(c->io);
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->flight, NULL);
    pthread_cond_init(&s->progress, NULL);
    s->io = c->io;
    st = store_init(s, c, err);
    if (st)
        swl_store_free(s);
    else
        *out = s;
    return st;
}

static void make_progress(swl_store *s, bool block);

void swl_store_free(swl_store *s)
{
    int32_t i;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    while (s->n_in_flight)
        make_progress(s, true);
    pthread_mutex_unlock(&s->lock);
    swl_io_close(s->io);
    for (i = 0; s->layers && i < s->n_layers; i++) {
        swl_free(s->layers[i].entries);
        swl_cache_deinit(&s->layers[i].cache);
    }
    swl_frames_free(s);
    swl_files_close(&s->files);
    swl_free(s->layers);
    swl_free(s->paths);
    pthread_cond_destroy(&s->progress);
    pthread_mutex_destroy(&s->flight);
    pthread_mutex_destroy(&s->lock);
    swl_free(s);
}

/* ---- life of an entry; all with the lock held --------------------------------------------------------------------- */

static bool in_cache(const swl_store_part *l, int32_t expert)
{
    return l->cache.place[expert] >= 0;
}

/* Before and after whatever changes where an entry is or who leases it. */
static void count_staged(swl_store_part *l, const swl_entry *e, int32_t by)
{
    if (!e->staged)
        return;
    l->frames->n_staged += by;
    l->frames->n_idle += e->n_leases ? 0 : by;
}

static void make_empty(swl_store *s, swl_store_part *l, int32_t expert)
{
    swl_entry *e = &l->entries[expert];

    if (in_cache(l, expert))
        swl_cache_withdraw(&l->cache, expert);
    s->stats.n_evicted += e->state == SWL_ENTRY_READY && !e->staged;
    e->state = SWL_ENTRY_EMPTY;
    count_staged(l, e, -1);
    l->n_kept -= !e->staged;
    e->staged = e->guessed = false;
    swl_frames_give(s, l->frames, e->frame);
}

/* Nobody holds it any more and nothing is being read into it: does it stay? */
static void settle(swl_store *s, swl_store_part *l, int32_t expert)
{
    swl_entry *e = &l->entries[expert];

    if (e->n_leases || e->state == SWL_ENTRY_EMPTY || e->state == SWL_ENTRY_LOADING)
        return;
    if (e->guessed && e->state == SWL_ENTRY_READY)
        return; /* stays in the stage until the truth is known */
    if (e->staged && e->state == SWL_ENTRY_READY && l->n_kept < l->n_slots) {
        count_staged(l, e, -1);
        e->staged = false;
        l->n_kept++;
    }
    if (e->state == SWL_ENTRY_FAILED || e->staged || l->n_kept > l->n_slots)
        make_empty(s, l, expert);
    else if (!e->wanted)
        swl_cache_offer(&l->cache, expert);
}

static void count_read(swl_store_stats *t, const swl_io_read *r)
{
    int32_t i = 0;

    while (i < SWL_READ_TIMES - 1 && r->took_ns > UINT64_C(50000) << i)
        i++;
    t->read_times[i]++;
    t->n_reads++;
    t->read_ns += r->took_ns;
}

static void take_read(swl_store *s, swl_io_read *r)
{
    swl_frame *f = &s->frames[(r - s->reads) / s->n_ranges_max];
    swl_store_part *l = &s->layers[f->layer];
    swl_entry *e = &l->entries[f->expert];

    s->n_in_flight--;
    count_read(&s->stats, r);
    f->failed |= r->error != 0;
    if (--f->n_unread)
        return;
    assert(e->state == SWL_ENTRY_LOADING);
    if (!f->failed && !f->crc_wrong) {
        e->state = SWL_ENTRY_READY;
        e->verified |= f->verify;
        s->stats.bytes_read += l->desc.slot_bytes;
    } else {
        e->state = SWL_ENTRY_FAILED;
    }
    settle(s, l, f->expert);
}

/* Takes what I/O has finished; with `block` it waits until there is something (or another thread has made progress). */
static void make_progress(swl_store *s, bool block)
{
    swl_io_read *done[32];
    int32_t n, i;

    if (s->polling) {
        if (block)
            pthread_cond_wait(&s->progress, &s->lock);
        return;
    }
    if (!s->n_in_flight)
        return;
    s->polling = true;
    pthread_mutex_unlock(&s->lock);
    n = s->io->ops->wait(s->io, done, sizeof done / sizeof *done, block);
    pthread_mutex_lock(&s->lock);
    s->polling = false;
    for (i = 0; i < n; i++)
        take_read(s, done[i]);
    pthread_cond_broadcast(&s->progress);
}

/* ---- announcing --------------------------------------------------------------------------------------------------- */

/* What an earlier call wanted and never leased may be evicted like anything else. */
static void forget_wanted(swl_store *s, swl_store_part *l)
{
    int32_t i;

    for (i = 0; i < l->desc.n_experts; i++)
        if (l->entries[i].wanted) {
            l->entries[i].wanted = false;
            settle(s, l, i);
        }
}

/* Guesses that nobody wants. Those that are still being read go when they arrive. */
static void drop_guesses(swl_store *s, swl_store_part *l)
{
    int32_t i;

    for (i = 0; i < l->desc.n_experts; i++)
        if (l->entries[i].guessed && !l->entries[i].wanted) {
            l->entries[i].guessed = false;
            settle(s, l, i);
        }
}

/* Those of a layer whose turn did not come, because a pass was given up. */
static void forget_guesses(swl_store *s, int32_t layer)
{
    if (s->ahead_layer >= 0 && s->ahead_layer != layer) {
        drop_guesses(s, &s->layers[s->ahead_layer]);
        s->ahead_layer = -1;
    }
}

enum { AHEAD_ENOUGH = 64, AHEAD_PAUSE = 512, AHEAD_PAUSE_STREAM = 16 };

/* Goes on only where two thirds of the guesses come true. Wrong ones cost little, because the drive was idle, but not nothing:
 * they can be in the way of the next call's reads. With 94 % of the experts in memory, where every second guess is wrong,
 * decode lost 2 to 8 %. */
static void judge_guesses(const swl_store_part *l, swl_guesses *g, bool stream)
{
    int32_t i;

    for (i = 0; i < l->desc.n_experts; i++)
        if (l->entries[i].guessed) {
            g->tried++;
            g->right += l->entries[i].wanted;
        }
    if (g->tried < AHEAD_ENOUGH)
        return;
    if (3 * g->right < 2 * g->tried)
        g->pause = stream ? AHEAD_PAUSE_STREAM : AHEAD_PAUSE;
    g->tried /= 2;
    g->right /= 2;
}

static void settle_guesses(swl_store *s, int32_t layer, int32_t n_tokens)
{
    swl_store_part *l = &s->layers[layer];
    swl_guesses *g = &l->guesses[n_tokens > 1];

    forget_guesses(s, layer);
    if (g->pause)
        g->pause--;
    if (s->ahead_layer < 0)
        return;
    judge_guesses(l, &l->guesses[s->ahead_stream], s->ahead_stream);
    drop_guesses(s, l);
    s->ahead_layer = -1;
}

void swl_store_announce(swl_store *s, int32_t layer, const int32_t *experts, const int32_t *rows, int32_t n,
                        int32_t n_tokens)
{
    swl_store_part *l = &s->layers[layer];
    int32_t i, n_missing = 0;

    if (s->still)
        return;
    pthread_mutex_lock(&s->lock);
    forget_wanted(s, l);
    for (i = 0; i < n; i++) {
        swl_entry *e = &l->entries[experts[i]];

        if (in_cache(l, experts[i]))
            swl_cache_withdraw(&l->cache, experts[i]);
        e->wanted = true;
        n_missing += e->state == SWL_ENTRY_EMPTY || e->staged;
    }
    if (n_tokens > 1)
        l->n_missing = n_missing;
    settle_guesses(s, layer, n_tokens);
    swl_cache_touch(&l->cache, experts, rows, n, n_tokens);
    pthread_mutex_unlock(&s->lock);
}

/* ---- leasing ------------------------------------------------------------------------------------------------------ */

/* Last resort of a pool that holds nothing but what this call is going to lease. */
static int32_t wanted_victim(const swl_store_part *l)
{
    int32_t i;

    for (i = 0; i < l->desc.n_experts; i++)
        if (l->entries[i].wanted && l->entries[i].state == SWL_ENTRY_READY && !l->entries[i].n_leases)
            return i;
    return -1;
}

/* How many misses could be given room at once. */
static int32_t count_room(const swl_store_part *l)
{
    int32_t i, n = l->frames->n_stage - l->frames->n_staged + l->cache.n_heap;

    if (l->n_slots > l->n_kept)
        n += l->n_slots - l->n_kept;
    for (i = 0; i < l->desc.n_experts; i++)
        n += l->entries[i].wanted && l->entries[i].state == SWL_ENTRY_READY && !l->entries[i].n_leases;
    return n;
}

/* Whose place does a miss take? -1: nobody's, it goes to the stage if there is room. With `must` it evicts against the
 * policy's wish before it gives up. */
static int32_t choose_victim(const swl_store_part *l, int32_t expert, bool stream, bool stage, bool must)
{
    int32_t victim = swl_cache_victim(&l->cache);

    if (victim >= 0 && ((must && !stage) || swl_cache_prefers(&l->cache, expert, victim, stream)))
        return victim;
    return must && !stage ? wanted_victim(l) : -1;
}

static bool make_room(swl_store *s, swl_store_part *l, int32_t expert, bool stream, bool stage, bool must)
{
    swl_entry *e = &l->entries[expert];

    stage = stage && l->frames->n_staged < l->frames->n_stage;
    e->staged = false;
    if (l->n_kept >= l->n_slots) {
        int32_t victim = choose_victim(l, expert, stream, stage, must);

        if (victim >= 0)
            make_empty(s, l, victim);
        else if (stage)
            e->staged = true;
        else
            return false;
    }
    e->frame = swl_frames_take(l->frames);
    assert(e->frame >= 0);
    count_staged(l, e, 1);
    l->n_kept += !e->staged;
    return true;
}

/* A guess that came true gets the place that a miss would have been given; what a prompt streams past the pool stays in the
 * stage. */
static void accept_guess(swl_store *s, swl_store_part *l, int32_t expert, bool stream)
{
    swl_entry *e = &l->entries[expert];
    int32_t victim = swl_cache_victim(&l->cache);

    e->guessed = false;
    s->stats.n_ahead_used++;
    if (l->n_kept >= l->n_slots && victim >= 0 && swl_cache_prefers(&l->cache, expert, victim, stream))
        make_empty(s, l, victim);
    if (l->n_kept >= l->n_slots)
        return;
    e->staged = false;
    l->n_kept++;
}

static void take_lease(swl_store *s, swl_store_part *l, int32_t expert, bool stream, swl_lease *lease)
{
    swl_entry *e = &l->entries[expert];

    if (in_cache(l, expert))
        swl_cache_withdraw(&l->cache, expert);
    count_staged(l, e, -1);
    if (e->guessed)
        accept_guess(s, l, expert, stream);
    e->wanted = false;
    e->n_leases++;
    count_staged(l, e, 1);
    *lease = (swl_lease){.data = s->frames[e->frame].data, .expert = expert, .ready = e->state == SWL_ENTRY_READY};
}

static void drop_lease(swl_store *s, swl_store_part *l, swl_lease *lease)
{
    swl_entry *e = &l->entries[lease->expert];

    assert(e->n_leases > 0);
    count_staged(l, e, -1);
    e->n_leases--;
    count_staged(l, e, 1);
    settle(s, l, lease->expert);
    lease->ready = false;
    lease->data = NULL;
}

static void start_miss(swl_store *s, int32_t layer, int32_t expert, swl_lease *lease, swl_io_list *reads)
{
    swl_store_part *l = &s->layers[layer];

    l->entries[expert].state = SWL_ENTRY_LOADING;
    take_lease(s, l, expert, false, lease);
    swl_load_prepare(s, layer, expert, reads);
    s->n_in_flight += l->desc.n_ranges;
    s->stats.n_misses++;
    s->stats.n_streamed += l->entries[expert].staged;
}

static swl_status no_room(const swl_store_part *l, int32_t layer, int32_t n, swl_error *err)
{
    return swl_fail(err, SWL_E_BUDGET, "expert store: layer %d has %d slots, too few for %d experts more", layer, l->n_slots,
                    n);
}

/* Hits first, so that a miss of the same call cannot evict one of them. */
static swl_status lease_all(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, swl_lease *leases,
                            swl_io_list *reads, swl_error *err)
{
    swl_store_part *l = &s->layers[layer];
    int32_t i, n_misses = 0;

    for (i = 0; i < n; i++) {
        leases[i] = (swl_lease){.expert = experts[i]};
        if (l->entries[experts[i]].state != SWL_ENTRY_EMPTY)
            take_lease(s, l, experts[i], false, &leases[i]);
        else
            n_misses++;
    }
    if (n_misses > count_room(l)) {
        for (i = 0; i < n; i++)
            if (leases[i].data)
                drop_lease(s, l, &leases[i]);
        return no_room(l, layer, n_misses, err);
    }
    for (i = 0; i < n; i++)
        if (!leases[i].data) {
            make_room(s, l, experts[i], false, true, true);
            start_miss(s, layer, experts[i], &leases[i], reads);
        }
    s->stats.n_hits += (uint64_t)(n - n_misses);
    return SWL_OK;
}

/* Takes at most half of the stage, guesses left out that lie there, so that the next group can be on its way while this one is
 * in use. */
static int32_t lease_front(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, swl_lease *leases,
                           swl_io_list *reads)
{
    swl_store_part *l = &s->layers[layer];
    int32_t i, n_stage = (l->frames->n_stage - l->frames->n_idle + 1) / 2;

    for (i = 0; i < n; i++) {
        if (l->entries[experts[i]].state != SWL_ENTRY_EMPTY) {
            take_lease(s, l, experts[i], true, &leases[i]);
            s->stats.n_hits++;
            continue;
        }
        if (!make_room(s, l, experts[i], true, n_stage > 0, i == 0))
            break;
        n_stage -= l->entries[experts[i]].staged;
        start_miss(s, layer, experts[i], &leases[i], reads);
    }
    return i;
}

/* ---- standing still ------------------------------------------------------------------------------------------------ */

/* The next expert of the layer that is in memory, preferably one that nobody uses: those come from memory, not a cache. */
static int32_t lendable(swl_store *s, const swl_store_part *l)
{
    int32_t i, e, found = -1;

    for (i = 0; i < l->desc.n_experts; i++) {
        e = (s->still_next + i) % l->desc.n_experts;
        if (l->entries[e].state != SWL_ENTRY_READY)
            continue;
        if (!l->entries[e].n_leases) {
            s->still_next = e + 1;
            return e;
        }
        found = found < 0 ? e : found;
    }
    return found;
}

/* Like lease_all and lease_front, of which the latter takes half a stage of misses at a time. */
static int32_t lease_still(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, bool all, swl_lease *leases)
{
    swl_store_part *l = &s->layers[layer];
    int32_t i, n_stage = all ? n : (l->frames->n_stage + 1) / 2, e;

    for (i = 0; i < n; i++) {
        bool hit = l->entries[experts[i]].state == SWL_ENTRY_READY;

        e = hit ? experts[i] : lendable(s, l);
        if (e < 0 || (!hit && i && !n_stage))
            break;
        n_stage -= !hit && n_stage;
        if (in_cache(l, e))
            swl_cache_withdraw(&l->cache, e);
        l->entries[e].n_leases++;
        leases[i] = (swl_lease){.data = s->frames[l->entries[e].frame].data, .expert = e, .ready = true};
    }
    if (all && i < n)
        while (i)
            drop_lease(s, l, &leases[--i]);
    return i;
}

void swl_store_stand_still(swl_store *s, bool still)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_in_flight)
        make_progress(s, true);
    s->still = still;
    pthread_mutex_unlock(&s->lock);
}

/* A load that was given up with the call that wanted it may have gone wrong, or be about to: it is waited for, so that this call
 * begins anew instead of meeting an old fault. */
static void end_given_up(swl_store *s, swl_store_part *l, const int32_t *experts, int32_t n)
{
    int32_t i;

    for (i = 0; i < n; i++) {
        const swl_entry *e = &l->entries[experts[i]];

        while (e->state == SWL_ENTRY_LOADING && !e->n_leases && !e->guessed)
            make_progress(s, true);
    }
}

/* Loads that were given up with their call keep their places until they end. They are worth waiting for, unless the caller has
 * leases of this layer himself: then he comes again when he has released those. */
static bool room_will_come(const swl_store *s, const swl_store_part *l)
{
    int32_t i;

    for (i = 0; i < l->desc.n_experts; i++)
        if (l->entries[i].n_leases)
            return false;
    return s->n_in_flight > 0;
}

static swl_status try_lease(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, swl_lease_mode mode,
                            swl_lease *leases, int32_t *n_done, swl_io_list *reads, swl_error *err)
{
    swl_status st = SWL_OK;

    *n_done = n;
    if (s->still)
        *n_done = lease_still(s, layer, experts, n, mode == SWL_LEASE_ALL, leases);
    else if (mode == SWL_LEASE_ALL)
        st = lease_all(s, layer, experts, n, leases, reads, err);
    else
        *n_done = lease_front(s, layer, experts, n, leases, reads);
    return n && !*n_done ? no_room(&s->layers[layer], layer, 1, err) : st;
}

swl_status swl_store_lease(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, swl_lease_mode mode,
                           swl_lease *leases, int32_t *n_leased, swl_error *err)
{
    swl_store_part *l = &s->layers[layer];
    swl_io_list reads = {0};
    swl_status st;
    int32_t n_done;

    pthread_mutex_lock(&s->lock);
    end_given_up(s, l, experts, n);
    while ((st = try_lease(s, layer, experts, n, mode, leases, &n_done, &reads, err)) && room_will_come(s, l))
        make_progress(s, true);
    pthread_mutex_unlock(&s->lock);
    if (reads.head)
        s->io->ops->submit(s->io, &reads);
    if (n_leased)
        *n_leased = st ? 0 : n_done;
    return st;
}

/* ---- guessing ----------------------------------------------------------------------------------------------------- */

/* Guesses for a prompt take what layers have lent, so that the rest of the stage is for what is known to be needed. */
static int32_t room_ahead(const swl_store *s, const swl_store_part *l, bool stream)
{
    return stream ? l->frames->n_stage - s->stage_slots - l->frames->n_idle : l->frames->n_stage - l->frames->n_staged;
}

/* What the last prompt missed of a layer is little where the stage held half of it: it arrived while the others were computed, and
 * guessing costs more than the waiting that it could save. */
static bool misses_many(const swl_store *s, const swl_store_part *l)
{
    return l->n_missing < 0 || l->n_missing >= 2 * s->stage_slots;
}

bool swl_store_guesses(swl_store *s, int32_t layer, swl_lease_mode mode)
{
    const swl_store_part *l = &s->layers[layer];
    bool guesses, stream = mode == SWL_LEASE_STREAM;

    pthread_mutex_lock(&s->lock);
    guesses = !s->still && l->n_kept < l->desc.n_experts && !l->guesses[stream].pause && room_ahead(s, l, stream) > 0 &&
              (!stream || misses_many(s, l));
    pthread_mutex_unlock(&s->lock);
    return guesses;
}

void swl_store_prefetch(swl_store *s, int32_t layer, const int32_t *experts, int32_t n, int32_t n_reads, swl_lease_mode mode)
{
    swl_store_part *l = &s->layers[layer];
    bool stream = mode == SWL_LEASE_STREAM;
    swl_io_list reads = {0};
    int32_t i;

    if (s->still)
        return;
    pthread_mutex_lock(&s->lock);
    make_progress(s, false);
    forget_guesses(s, layer);
    if (s->n_in_flight || l->guesses[stream].pause)
        n = 0;
    for (i = 0; i < n && n_reads && room_ahead(s, l, stream) > 0; i++) {
        swl_entry *e = &l->entries[experts[i]];

        if (e->state != SWL_ENTRY_EMPTY)
            continue;
        n_reads--;
        s->ahead_layer = layer;
        s->ahead_stream = stream;
        e->frame = swl_frames_take(l->frames);
        assert(e->frame >= 0);
        e->state = SWL_ENTRY_LOADING;
        e->staged = e->guessed = true;
        count_staged(l, e, 1);
        swl_load_prepare(s, layer, experts[i], &reads);
        s->n_in_flight += l->desc.n_ranges;
        s->stats.n_ahead++;
    }
    pthread_mutex_unlock(&s->lock);
    if (reads.head)
        s->io->ops->submit(s->io, &reads);
}

void swl_store_pump(swl_store *s)
{
    if (!s->io->ops->pump)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->n_in_flight && !s->polling)
        s->io->ops->pump(s->io);
    pthread_mutex_unlock(&s->lock);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------ */

/* Marks leases that have become ready. */
static swl_status look(const swl_store *s, int32_t layer, swl_lease *leases, int32_t n, int32_t *n_new, int32_t *n_missing,
                       swl_error *err)
{
    const swl_store_part *l = &s->layers[layer];
    int32_t i;

    *n_new = *n_missing = 0;
    for (i = 0; i < n; i++) {
        const swl_entry *e = &l->entries[leases[i].expert];

        if (leases[i].ready)
            continue;
        if (e->state == SWL_ENTRY_FAILED)
            return swl_load_fault(s, &s->frames[e->frame], err);
        leases[i].ready = e->state == SWL_ENTRY_READY;
        *(leases[i].ready ? n_new : n_missing) += 1;
    }
    return SWL_OK;
}

static swl_status wait_for(swl_store *s, int32_t layer, swl_lease *leases, int32_t n, bool all, swl_error *err)
{
    int32_t n_new, n_missing;
    uint64_t begin;
    swl_status st;

    pthread_mutex_lock(&s->lock);
    make_progress(s, false);
    st = look(s, layer, leases, n, &n_new, &n_missing, err);
    if (!st && n_missing && (all || !n_new)) {
        begin = swl_nanoseconds();
        do {
            make_progress(s, true);
            st = look(s, layer, leases, n, &n_new, &n_missing, err);
        } while (!st && n_missing && (all || !n_new));
        s->stats.wait_ns += swl_nanoseconds() - begin;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

swl_status swl_store_wait(swl_store *s, int32_t layer, swl_lease *leases, int32_t n, swl_error *err)
{
    return wait_for(s, layer, leases, n, true, err);
}

swl_status swl_store_wait_any(swl_store *s, int32_t layer, swl_lease *leases, int32_t n, swl_error *err)
{
    return wait_for(s, layer, leases, n, false, err);
}

void swl_store_release(swl_store *s, int32_t layer, swl_lease *leases, int32_t n)
{
    int32_t i;

    pthread_mutex_lock(&s->lock);
    for (i = 0; i < n; i++)
        drop_lease(s, &s->layers[layer], &leases[i]);
    pthread_mutex_unlock(&s->lock);
}

uint8_t *swl_store_put(swl_store *s, int32_t layer, int32_t expert)
{
    swl_store_part *l = &s->layers[layer];
    swl_entry *e = &l->entries[expert];
    uint8_t *data = NULL;

    pthread_mutex_lock(&s->lock);
    if (e->state == SWL_ENTRY_EMPTY && l->n_kept < l->n_slots) {
        e->frame = swl_frames_take(l->frames);
        assert(e->frame >= 0);
        data = s->frames[e->frame].data;
        l->n_kept++;
        e->state = SWL_ENTRY_READY;
        settle(s, l, expert);
    }
    pthread_mutex_unlock(&s->lock);
    return data;
}

/* ---- size and figures --------------------------------------------------------------------------------------------- */

static void shrink(swl_store *s, swl_store_part *l)
{
    int32_t victim;

    while (l->n_kept > l->n_slots && (victim = swl_cache_victim(&l->cache)) >= 0)
        make_empty(s, l, victim);
    while (l->n_kept > l->n_slots && (victim = wanted_victim(l)) >= 0)
        make_empty(s, l, victim);
}

static swl_status apply_size(swl_store *s, int32_t slots, swl_error *err)
{
    int32_t i, old = s->slots_per_layer;

    s->slots_per_layer = slots;
    swl_frames_allow(s);
    for (i = 0; i < s->n_sizes; i++)
        if (s->sizes[i].n_allowed > s->sizes[i].n) {
            s->slots_per_layer = old;
            swl_frames_allow(s);
            return swl_fail(err, SWL_E_NOMEM, "expert store: the system lent addresses for %d slots of this size, not for %d",
                            s->sizes[i].n, s->sizes[i].n_allowed);
        }
    for (i = 0; i < s->n_layers; i++)
        if (s->layers[i].frames) {
            swl_cache_set_slots(&s->layers[i].cache, slots);
            shrink(s, &s->layers[i]);
        }
    for (i = 0; i < s->n_sizes; i++)
        swl_frames_trim(s, &s->sizes[i]);
    return SWL_OK;
}

swl_status swl_store_resize(swl_store *s, int32_t slots_per_layer, swl_error *err)
{
    swl_status st;

    if (slots_per_layer < s->slots_min)
        return swl_fail(err, SWL_E_BUDGET, "expert store: %d slots per layer, one token needs %d", slots_per_layer,
                        s->slots_min);
    pthread_mutex_lock(&s->lock);
    st = apply_size(s, slots_per_layer, err);
    pthread_mutex_unlock(&s->lock);
    return st;
}

void swl_store_lend(swl_store *s, int32_t n_slots)
{
    int32_t i, n_layers = 0;
    bool known = false, worth_it = false;

    pthread_mutex_lock(&s->lock);
    for (i = 0; i < s->n_layers; i++)
        if (s->layers[i].frames) {
            n_layers++;
            if (s->layers[i].n_missing >= 0) {
                known = true;
                worth_it = worth_it || misses_many(s, &s->layers[i]);
            }
        }
    n_slots = worth_it || !known ? (n_slots + n_layers / 2) / n_layers : 0;
    if (!s->still && n_slots != s->n_lent) {
        forget_guesses(s, -1);
        while (s->n_in_flight) /* so the stage is empty */
            make_progress(s, true);
        s->n_lent = n_slots;
        swl_frames_allow(s);
        for (i = 0; i < s->n_layers; i++)
            if (s->layers[i].frames)
                shrink(s, &s->layers[i]);
    }
    pthread_mutex_unlock(&s->lock);
}

static uint64_t pool_bytes(const swl_store *s)
{
    uint64_t n = 0;

    for (int32_t i = 0; i < s->n_sizes; i++)
        n += s->sizes[i].stride * (uint64_t)s->sizes[i].n_allowed;
    return n;
}

void swl_store_stats_get(swl_store *s, swl_store_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->reading_ns = swl_load_reading_ns(s);
    out->n_reading = s->n_in_flight;
    out->pool_bytes = pool_bytes(s);
    pthread_mutex_unlock(&s->lock);
}

int32_t swl_store_slots(swl_store *s)
{
    int32_t n;

    pthread_mutex_lock(&s->lock);
    n = s->slots_per_layer;
    pthread_mutex_unlock(&s->lock);
    return n;
}

const char *swl_store_io_name(const swl_store *s)
{
    return s->io->ops->name;
}
