/*
 * slots.c: the conversations in memory. A request takes over what the best one has of its prompt: the slot itself when that is
 * the same conversation going on, or a copy up to a mark when going back would throw away another's future. What has to go is
 * what costs least to compute again, weighed against how long nobody asked for it.
 */
#include <string.h>

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

/* The place from which r can go on, at or before `have` tokens of a prompt of n: with logits if nothing is left to run. */
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
        if (f[i].usable > f[best].usable || (f[i].usable == f[best].usable && !e->slots[i].owner && e->slots[best].owner))
            best = i;
    return best;
}

/* The idle slot that the request takes; there is one. */
static int32_t choose_target(const swl_engine *e, const found *f, int32_t source)
{
    int32_t best = -1;
    double best_price = 0;

    if (!e->slots[source].owner && goes_on(&e->slots[source], &f[source]))
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

static void count(swl_engine *e, const swl_slot *target, const found *f, bool same, int32_t reused)
{
    int32_t n = swl_session_n_tokens(target->session);

    pthread_mutex_lock(&e->lock);
    e->stats.hits_memory += reused > 0;
    e->stats.n_evicted += n > f->usable && !(same && goes_on(target, f));
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
    target = choose_target(e, f, source);
    if (!f[source].usable)
        f[source].n_have = f[source].n_prompt = 0;
    st = make_ids(r, &e->slots[source], &f[source], err);
    if (!st) {
        count(e, &e->slots[target], &f[target], source == target, f[source].usable);
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
        r->slot->used_at = swl_now();
    }
    return st;
}
