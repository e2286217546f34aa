/* session.c: runs tokens of any number through the model in chunks, and keeps what the state stands for. */
#include "session/session.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

swl_status swl_session_create(swl_session **out, swl_model *m, swl_error *err)
{
    swl_session *s = swl_calloc(1, sizeof *s);
    size_t vocab = (size_t)m->config->vocab;
    swl_status st;

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "session: out of memory");
    s->model = m;
    s->ids = swl_calloc((size_t)m->ctx_tokens, sizeof *s->ids);
    s->want = swl_calloc((size_t)m->chunk_tokens, sizeof *s->want);
    s->logits = swl_calloc(vocab, sizeof *s->logits);
    s->scratch = swl_calloc(vocab, sizeof *s->scratch);
    s->n_marks_max = m->plan.n_marks;
    s->marks = swl_calloc((size_t)s->n_marks_max, sizeof *s->marks);
    if (!s->marks || !s->ids || !s->want || !s->logits || !s->scratch)
        st = swl_fail(err, SWL_E_NOMEM, "session: out of memory");
    else
        st = swl_state_create(&s->state, m, err);
    if (st) {
        swl_session_free(s);
        return st;
    }
    *out = s;
    return SWL_OK;
}

void swl_session_free(swl_session *s)
{
    if (!s)
        return;
    swl_marks_free(s);
    swl_state_free(s->state);
    swl_free(s->ids);
    swl_free(s->want);
    swl_free(s->logits);
    swl_free(s->scratch);
    swl_free(s);
}

void swl_session_reset(swl_session *s)
{
    swl_state_reset(s->state);
    s->n_marks = 0;
    s->has_logits = false;
    s->broken = false;
}

int32_t swl_session_n_tokens(const swl_session *s)
{
    return s->state->n_tokens;
}

swl_status swl_session_admits(const swl_session *s, const int32_t *ids, int32_t n, int32_t at, swl_error *err)
{
    int32_t i, vocab = s->model->config->vocab;

    if (n > s->state->ctx_tokens - at)
        return swl_fail(err, SWL_E_BUDGET, "the context of %d tokens is full: %d are there, %d more were to come",
                        s->state->ctx_tokens, at, n);
    for (i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return swl_fail(err, SWL_E_ARG, "token id %d is not in 0 to %d", ids[i], vocab - 1);
    return SWL_OK;
}

/* Everything that can be refused is refused before the first pass, so that a refusal leaves the session as it was. */
static swl_status check_ids(const swl_session *s, const int32_t *ids, int32_t n, swl_error *err)
{
    if (s->broken)
        return swl_fail(err, SWL_E_FAIL, "the session's state is unusable after an error; reset it first");
    if (n < 1)
        return swl_fail(err, SWL_E_ARG, "no tokens to run");
    return swl_session_admits(s, ids, n, s->state->n_tokens, err);
}

void swl_session_cancel(swl_session *s, bool on)
{
    atomic_store(&s->cancel, on);
}

/* ---- running tokens ------------------------------------------------------------------------------------------------- */

enum { PASS_ITEMS_MAX = 64 }; /* conversations in one forward pass; more take turns */

/* Where a call has come to: entry `at`, of which `done` tokens are behind it. */
typedef struct batch_cursor {
    const swl_batch_entry *entries;
    int32_t n_entries, at, done;
} batch_cursor;

static int32_t mark_wanted(const swl_batch_entry *e, int32_t done, int32_t n)
{
    bool *want = e->session->want, last = e->want == SWL_LOGITS_LAST && done + n == e->n;

    memset(want, e->want == SWL_LOGITS_ALL, (size_t)n * sizeof *want);
    if (last)
        want[n - 1] = true;
    return e->want == SWL_LOGITS_ALL ? n : last;
}

/* The next tokens in order, as many as a pass takes. Returns the number of items. */
static int32_t fill_pass(batch_cursor *c, swl_batch_item *items, int32_t *n_wanted)
{
    int32_t room = c->entries[0].session->model->chunk_tokens, n_items = 0;

    *n_wanted = 0;
    while (c->at < c->n_entries && room && n_items < PASS_ITEMS_MAX) {
        const swl_batch_entry *e = &c->entries[c->at];
        int32_t n = e->n - c->done < room ? e->n - c->done : room;

        const _Atomic bool *cancel = e->session->watch ? e->session->watch : &e->session->cancel;

        items[n_items++] = (swl_batch_item){e->session->state, e->ids + c->done, n, e->session->want, cancel};
        *n_wanted += mark_wanted(e, c->done, n);
        room -= n;
        c->done += n;
        if (c->done == e->n) {
            c->at++;
            c->done = 0;
        }
    }
    return n_items;
}

/* The sessions of a pass follow each other among the entries, from `first` on. */
static void note_ids(const swl_batch_entry *first, const swl_batch_item *items, int32_t n_items)
{
    for (int32_t i = 0; i < n_items; i++) {
        swl_session *s = first[i].session;

        memcpy(s->ids + s->state->n_tokens - items[i].n, items[i].ids, (size_t)items[i].n * sizeof *items[i].ids);
    }
}

static swl_status check_entries(const swl_batch_entry *entries, int32_t n, const float *logits, swl_error *err)
{
    swl_status st = n > 0 ? SWL_OK : swl_fail(err, SWL_E_ARG, "empty batch");

    for (int32_t i = 0; i < n && !st; i++) {
        st = check_ids(entries[i].session, entries[i].ids, entries[i].n, err);
        if (!st && entries[i].session->model != entries[0].session->model)
            st = swl_fail(err, SWL_E_ARG, "sessions of different models in one batch");
        if (!st && entries[i].want != SWL_LOGITS_NONE && !logits)
            st = swl_fail(err, SWL_E_ARG, "logits are wanted, but there is no place for them");
        for (int32_t j = 0; j < i && !st; j++)
            if (entries[i].session == entries[j].session)
                st = swl_fail(err, SWL_E_ARG, "entries %d and %d of a batch are the same session", j, i);
    }
    return st;
}

swl_status swl_batch_eval(const swl_batch_entry *entries, int32_t n_entries, float *logits, swl_error *err)
{
    swl_batch_item items[PASS_ITEMS_MAX];
    batch_cursor c = {entries, n_entries, 0, 0};
    swl_status st = check_entries(entries, n_entries, logits, err);
    int32_t i, n_items, n_wanted;
    bool refused = st != SWL_OK;

    while (!st && c.at < n_entries) {
        const swl_batch_entry *first = entries + c.at;

        n_items = fill_pass(&c, items, &n_wanted);
        st = swl_forward(first->session->model, items, n_items, logits, NULL, err);
        if (!st)
            note_ids(first, items, n_items);
        if (logits)
            logits += (int64_t)n_wanted * first->session->model->config->vocab;
    }
    for (i = 0; i < n_entries && !refused; i++) {
        entries[i].session->broken = st != SWL_OK;
        entries[i].session->has_logits = false;
    }
    return st;
}

swl_status swl_session_eval(swl_session *s, const int32_t *ids, int32_t n, swl_logits_wanted want, float *logits,
                            swl_error *err)
{
    swl_batch_entry entry = {s, ids, n, want};
    swl_status st = swl_batch_eval(&entry, 1, logits, err);

    s->has_logits |= !st && want == SWL_LOGITS_LAST && logits == s->logits;
    return st;
}

swl_status swl_session_save(const swl_session *s, const char *path, swl_error *err)
{
    if (s->broken)
        return swl_fail(err, SWL_E_FAIL, "the session's state is unusable after an error; it was not saved");
    return swl_snapshot_save(s, path, err);
}

/* A snapshot that is refused leaves the session empty, never half filled. */
swl_status swl_session_load(swl_session *s, const char *path, swl_error *err)
{
    swl_status st;

    s->n_marks = 0;
    s->has_logits = false;
    st = swl_snapshot_load(s, path, err);
    s->broken = false;
    if (st)
        swl_session_reset(s);
    return st;
}
