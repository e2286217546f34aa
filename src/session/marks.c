/*
 * marks.c: going back. At a mark the recurrent state and the logits are copied; the KV cache needs no copy, because its rows
 * before the mark are only written again after the conversation went back behind it.
 */
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "session/session.h"

static uint64_t mark_bytes(const swl_session *s)
{
    return swl_mark_bytes(s->model);
}

void swl_marks_free(swl_session *s)
{
    int32_t i;

    for (i = 0; s->marks && i < s->n_marks_max; i++)
        swl_big_free(s->marks[i].data, mark_bytes(s));
    swl_free(s->marks);
}

/* The mark whose loss makes the shortest new gap, by its weight; never the last one, which the next turn goes back to. */
static int32_t least_missed(const swl_session *s)
{
    int64_t best_gap = INT64_MAX;
    int32_t i, best = 0;

    for (i = 0; i + 1 < s->n_marks; i++) {
        int64_t gap = (int64_t)s->marks[i].weight * (s->marks[i + 1].n_tokens - (i ? s->marks[i - 1].n_tokens : 0));

        if (gap < best_gap) {
            best_gap = gap;
            best = i;
        }
    }
    return best;
}

/* Takes mark i out and puts it, with its memory, behind the used ones. */
static void remove_mark(swl_session *s, int32_t i)
{
    swl_mark m = s->marks[i];

    memmove(s->marks + i, s->marks + i + 1, (size_t)(s->n_marks - i - 1) * sizeof *s->marks);
    s->marks[--s->n_marks] = m;
}

static void copy_out(const swl_session *s, swl_mark *m)
{
    uint8_t *p = m->data;

    memcpy(p, s->state->conv, s->state->conv_bytes);
    memcpy(p + s->state->conv_bytes, s->state->delta, s->state->delta_bytes);
    m->n_tokens = s->state->n_tokens;
    m->has_logits = s->has_logits;
    if (s->has_logits)
        memcpy(p + s->state->conv_bytes + s->state->delta_bytes, s->logits,
               (size_t)s->model->config->vocab * sizeof(float));
}

static void copy_in(swl_session *s, const swl_mark *m)
{
    const uint8_t *p = m->data;

    memcpy(s->state->conv, p, s->state->conv_bytes);
    memcpy(s->state->delta, p + s->state->conv_bytes, s->state->delta_bytes);
    s->state->n_tokens = m->n_tokens;
    s->has_logits = m->has_logits;
    if (m->has_logits)
        memcpy(s->logits, p + s->state->conv_bytes + s->state->delta_bytes,
               (size_t)s->model->config->vocab * sizeof(float));
}

swl_status swl_session_mark(swl_session *s, swl_error *err)
{
    return swl_session_mark_as(s, 1, err);
}

swl_status swl_session_mark_as(swl_session *s, int32_t weight, swl_error *err)
{
    swl_mark *m;

    if (s->broken)
        return swl_fail(err, SWL_E_FAIL, "the session's state is unusable after an error; it cannot be marked");
    if (!s->state->n_tokens)
        return SWL_OK;
    if (s->n_marks && s->marks[s->n_marks - 1].n_tokens == s->state->n_tokens) {
        s->n_marks--; /* the same place again, now perhaps with logits */
        if (s->marks[s->n_marks].weight > weight)
            weight = s->marks[s->n_marks].weight;
    } else if (s->n_marks == s->n_marks_max) {
        remove_mark(s, least_missed(s));
    }
    m = &s->marks[s->n_marks];
    if (!m->data && !(m->data = swl_big_alloc(mark_bytes(s))))
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a mark");
    copy_out(s, m);
    m->weight = weight;
    s->n_marks++;
    return SWL_OK;
}

/* Marks at or before n. */
static int32_t marks_before(const swl_session *s, int32_t n)
{
    int32_t i = s->n_marks;

    while (i && s->marks[i - 1].n_tokens > n)
        i--;
    return i;
}

int32_t swl_session_rewind(swl_session *s, int32_t n)
{
    if (!s->broken && n >= s->state->n_tokens)
        return s->state->n_tokens;
    s->n_marks = marks_before(s, n);
    s->broken = false;
    if (s->n_marks) {
        copy_in(s, &s->marks[s->n_marks - 1]);
    } else {
        swl_state_reset(s->state);
        s->has_logits = false;
    }
    return s->state->n_tokens;
}

int32_t swl_session_match(const swl_session *s, const int32_t *ids, int32_t n)
{
    int32_t have = s->state->n_tokens, same = 0, i;

    while (same < n && same < have && s->ids[same] == ids[same])
        same++;
    if (same == have && !s->broken)
        return have;
    i = marks_before(s, same);
    return i ? s->marks[i - 1].n_tokens : 0;
}

const int32_t *swl_session_ids(const swl_session *s)
{
    return s->ids;
}

static void copy_live(swl_session *dst, const swl_session *src)
{
    memcpy(dst->state->conv, src->state->conv, src->state->conv_bytes);
    memcpy(dst->state->delta, src->state->delta, src->state->delta_bytes);
    dst->state->n_tokens = src->state->n_tokens;
    dst->has_logits = src->has_logits;
    if (src->has_logits)
        memcpy(dst->logits, src->logits, (size_t)src->model->config->vocab * sizeof *src->logits);
}

swl_status swl_session_copy(swl_session *dst, const swl_session *src, int32_t n, swl_error *err)
{
    int32_t i = marks_before(src, n);
    bool live = n == src->state->n_tokens && !src->broken;

    if (!live && n && (!i || src->marks[i - 1].n_tokens != n))
        return swl_fail(err, SWL_E_ARG, "the conversation has no mark at %d tokens", n);
    swl_session_reset(dst);
    if (!n)
        return SWL_OK;
    swl_kv_copy(src->model, dst->state, src->state, n);
    memcpy(dst->ids, src->ids, (size_t)n * sizeof *src->ids);
    if (live)
        copy_live(dst, src);
    else
        copy_in(dst, &src->marks[i - 1]);
    return SWL_OK;
}

swl_status swl_session_fork(swl_session **out, const swl_session *s, swl_error *err)
{
    swl_session *f = NULL;
    swl_status st;

    *out = NULL;
    if (s->broken)
        return swl_fail(err, SWL_E_FAIL, "the session's state is unusable after an error; it cannot be forked");
    st = swl_session_create(&f, s->model, err);
    if (st)
        return st;
    st = swl_session_copy(f, s, s->state->n_tokens, err);
    if (st) {
        swl_session_free(f);
        return st;
    }
    *out = f;
    return SWL_OK;
}
