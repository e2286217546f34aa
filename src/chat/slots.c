/*
 * slots.c: the conversations in memory. A request takes over what the best one has of its prompt: the slot itself when
 * that is the same conversation going on, or a copy up to a mark when going back would throw away another's future.
 * What has to go is what costs least to compute again, weighed against how long nobody asked for it.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"

/* What a slot has of a prompt. */
typedef struct found {
    int32_t n_have, n_prompt; /* its first n_have tokens are the first n_prompt of the prompt */
    int32_t usable;           /* of n_have: where it can go back to */
} found;

swl_status swl_slot_follow(swl_engine *e, swl_slot *s, swl_error *err)
{
    int32_t n = swl_session_n_tokens(s->session), keep = s->canon.n < n ? s->canon.n : n;

    return swl_canon_set(&s->canon, e->tokenizer, swl_session_ids(s->session), n, keep, err);
}

/* ---- looking ---- */

/* The place from which r can go on, at or before `have` tokens of a prompt of n: with logits if nothing is left to run.
 */
static int32_t usable(const swl_session *s, int32_t have, int32_t rest)
{
    int32_t n = swl_session_n_tokens(s);

    if (have >= n && !s->broken && (rest || s->has_logits))
        return n;
    for (int32_t i = s->n_marks - 1; i >= 0; i--)
        if (s->marks[i].n_tokens <= have && (rest || s->marks[i].n_tokens < have || s->marks[i].has_logits))
            return s->marks[i].n_tokens;
    return 0;
}

static found look(const swl_engine *e, const swl_slot *s, const swl_request *r, const swl_canon *prompt)
{
    const int32_t *ids = swl_session_ids(s->session);
    bool loose = r->rendered;
    found f;

    swl_canon_match(&s->canon, ids, prompt, r->prompt.ids, e->tokenizer, loose, &f.n_have, &f.n_prompt);
    if (loose && f.n_have + r->prompt.n - f.n_prompt > e->model->ctx_tokens) /* its tokens are more than fit */
        swl_canon_match(&s->canon, ids, prompt, r->prompt.ids, e->tokenizer, false, &f.n_have, &f.n_prompt);
    f.usable = usable(s->session, f.n_have, r->prompt.n - f.n_prompt);
    if (r->o.prompt_logprobs)
        f.usable = 0;
    return f;
}

/* ---- choosing ---- */

/* Tokens that would have to be computed again, fewer the longer they were not used. */
static double price(const swl_engine *e, const swl_slot *s, const found *f)
{
    double lost = swl_session_n_tokens(s->session) - f->usable;

    return lost / (double)(1 + e->clock - s->used);
}

/* The conversation goes on, or its last answer is given anew. */
static bool goes_on(const swl_slot *s, const found *f)
{
    return f->usable && f->usable >= s->base;
}

static int32_t best_source(const swl_engine *e, const found *f)
{
    int32_t best = 0;

    for (int32_t i = 1; i < e->n_slots; i++)
        if (f[i].usable > f[best].usable ||
            (f[i].usable == f[best].usable && !e->slots[i].owner && e->slots[best].owner))
            best = i;
    return best;
}

/* The idle slot that the request takes; there is one. source -1: none has anything of it. */
static int32_t choose_target(const swl_engine *e, const found *f, int32_t source)
{
    int32_t best = -1;
    double best_price = 0;

    if (source >= 0 && !e->slots[source].owner && goes_on(&e->slots[source], &f[source]))
        return source;
    for (int32_t i = 0; i < e->n_slots; i++) {
        double p = price(e, &e->slots[i], &f[i]);

        if (e->slots[i].owner || (best >= 0 && p > best_price) || (best >= 0 && p == best_price && i != source))
            continue;
        best = i;
        best_price = p;
    }
    return best;
}

/* ---- the directory ---- */

static void note_disk(swl_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stats.disk_bytes = e->disk->bytes;
    pthread_mutex_unlock(&e->lock);
}

static void tell(const swl_engine *e, const swl_error *err)
{
    if (e->o.on_saved)
        e->o.on_saved(e->o.arg, err->code ? err : NULL);
}

void swl_slots_settle(swl_engine *e, int32_t most)
{
    swl_error err;

    while (e->disk && swl_disk_settle(e->disk, most, &err)) {
        note_disk(e);
        tell(e, &err);
    }
}

/* Before a conversation goes: it is kept on disk, with the places that a next prompt may go back to. */
void swl_slot_save(swl_engine *e, const swl_slot *s)
{
    int32_t marks[3], n = 0, n_tokens = swl_session_n_tokens(s->session);
    const swl_session *c = s->session;
    swl_error err = {0};
    json_t *turns;
    bool saving;

    if (!e->disk || n_tokens < SWL_SAVE_TOKENS || c->broken)
        return;
    if (c->n_marks)
        marks[n++] = c->marks[0].n_tokens; /* the system block, as a rule */
    for (int32_t i = 1; i < c->n_marks; i++)
        if (c->marks[i].n_tokens == s->base || i == c->n_marks - 1)
            marks[n < 3 ? n++ : 2] = c->marks[i].n_tokens;
    swl_slots_settle(e, SWL_SAVES_MAX - 1);
    turns = swl_turns_within(e, swl_session_ids(c), n_tokens);
    err.code = swl_disk_save(e->disk, c, marks, n, turns, &saving, &err);
    json_decref(turns);
    note_disk(e);
    if (!saving)
        tell(e, &err);
}

/* A slot with what the directory has of a prompt, when that is worth reading; the slot in which it is now, or -1. */
static int32_t load_from_disk(swl_engine *e, const swl_request *r, const swl_canon *prompt, const found *f,
                              int32_t source)
{
    int32_t usable_tokens, target, file;
    swl_status st;

    if (!e->disk || r->o.prompt_logprobs)
        return -1;
    file = swl_disk_find(e->disk, e->tokenizer, prompt, r->prompt.ids, r->rendered,
                         f[source].usable + SWL_SAVE_TOKENS / 2, &usable_tokens);
    if (file < 0)
        return -1;
    target = choose_target(e, f, -1);
    swl_slot_save(e, &e->slots[target]);
    e->slots[target].canon.n = 0;
    file = swl_disk_find(e->disk, e->tokenizer, prompt, r->prompt.ids, r->rendered, f[source].usable, &usable_tokens);
    st = file < 0 ? SWL_E_NOT_FOUND : swl_disk_load(e->disk, file, e->slots[target].session, NULL);
    if (st)
        swl_session_reset(e->slots[target].session);
    e->slots[target].base = usable_tokens;
    if (swl_slot_follow(e, &e->slots[target], NULL))
        swl_session_reset(e->slots[target].session);
    pthread_mutex_lock(&e->lock);
    e->stats.hits_disk += !st;
    pthread_mutex_unlock(&e->lock);
    note_disk(e);
    return target;
}

/* ---- taking ---- */

static swl_status make_ids(swl_request *r, const swl_slot *source, const found *f, swl_error *err)
{
    int32_t rest = r->prompt.n - f->n_prompt;

    r->n_prompt = f->n_have + rest;
    r->ids = swl_calloc((size_t)r->n_prompt, sizeof *r->ids);
    if (!r->ids)
        return swl_fail(err, SWL_E_NOMEM, "request: out of memory");
    memcpy(r->ids, swl_session_ids(source->session), (size_t)f->n_have * sizeof *r->ids);
    memcpy(r->ids + f->n_have, r->prompt.ids + f->n_prompt, (size_t)rest * sizeof *r->ids);
    return SWL_OK;
}

/* The end of the last answer is a place to come back to, once something follows it. */
static swl_status mark_end(swl_session *s, int32_t at, swl_error *err)
{
    bool marked = s->n_marks && s->marks[s->n_marks - 1].n_tokens == at;

    return at && !marked && s->n_marks_max > 3 ? swl_session_mark(s, err) : SWL_OK;
}

static swl_status move_in(swl_slot *target, const swl_slot *source, int32_t usable_tokens, swl_error *err)
{
    if (target == source && usable_tokens) {
        swl_session_rewind(target->session, usable_tokens);
        return SWL_OK;
    }
    target->canon.n = 0;
    swl_session_reset(target->session);
    return usable_tokens ? swl_session_copy(target->session, source->session, usable_tokens, err) : SWL_OK;
}

/* The slot that is taken gives something up: it is counted, and kept on disk. */
static void give_up(swl_engine *e, const swl_slot *target, const found *f, bool same)
{
    if (swl_session_n_tokens(target->session) <= f->usable || (same && goes_on(target, f)))
        return;
    swl_slot_save(e, target);
    pthread_mutex_lock(&e->lock);
    e->stats.n_evicted++;
    pthread_mutex_unlock(&e->lock);
}

static swl_status take(swl_engine *e, swl_request *r, const swl_canon *prompt, swl_error *err)
{
    found *f = swl_calloc((size_t)e->n_slots, sizeof *f);
    int32_t source, target;
    swl_status st;

    if (!f)
        return swl_fail(err, SWL_E_NOMEM, "request: out of memory");
    for (int32_t i = 0; i < e->n_slots; i++)
        f[i] = look(e, &e->slots[i], r, prompt);
    source = best_source(e, f);
    target = load_from_disk(e, r, prompt, f, source);
    if (target >= 0) {
        f[target] = look(e, &e->slots[target], r, prompt);
        source = best_source(e, f);
    } else {
        pthread_mutex_lock(&e->lock);
        e->stats.hits_memory += f[source].usable > 0;
        pthread_mutex_unlock(&e->lock);
    }
    target = choose_target(e, f, source);
    if (!f[source].usable)
        f[source].n_have = f[source].n_prompt = 0;
    st = make_ids(r, &e->slots[source], &f[source], err);
    if (!st) {
        give_up(e, &e->slots[target], &f[target], source == target);
        st = move_in(&e->slots[target], &e->slots[source], f[source].usable, err);
        r->slot = &e->slots[target];
        r->n_done = f[source].usable;
    }
    swl_free(f);
    return st;
}

swl_status swl_slot_take(swl_engine *e, swl_request *r, swl_error *err)
{
    swl_canon prompt = {0};
    swl_status st = swl_canon_set(&prompt, e->tokenizer, r->prompt.ids, r->prompt.n, 0, err);

    e->clock++;
    if (!st)
        st = take(e, r, &prompt, err);
    swl_canon_deinit(&prompt);
    if (st && r->slot)
        swl_session_reset(r->slot->session);
    if (!st && r->n_done < r->n_prompt)
        st = mark_end(r->slot->session, r->n_done, err);
    if (r->slot) {
        swl_status follow = swl_slot_follow(e, r->slot, st ? NULL : err);

        st = st ? st : follow;
        r->slot->owner = st ? NULL : r;
        r->slot->used = e->clock;
        r->slot->used_at = swl_seconds();
    }
    return st;
}

swl_slot *swl_slot_clear(swl_engine *e)
{
    found *f = swl_calloc((size_t)e->n_slots, sizeof *f);
    int32_t i = f ? choose_target(e, f, -1) : -1;

    swl_free(f);
    if (i < 0)
        return NULL;
    swl_slot_save(e, &e->slots[i]);
    swl_session_reset(e->slots[i].session);
    e->slots[i].canon.n = 0;
    e->slots[i].used = ++e->clock;
    return &e->slots[i];
}
