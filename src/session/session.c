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

/* One forward pass over ids[0..n). */
static swl_status eval_chunk(swl_session *s, const int32_t *ids, int32_t n, float *logits, swl_error *err)
{
    swl_batch_item item = {.state = s->state, .ids = ids, .n = n, .want = s->want};
    int32_t at = s->state->n_tokens;
    swl_status st = swl_forward(s->model, &item, 1, logits, NULL, err);

    if (!st)
        memcpy(s->ids + at, ids, (size_t)n * sizeof *ids);
    return st;
}

/* Everything that can be refused is refused before the first pass, so that a refusal leaves the session as it was. */
static swl_status check_ids(const swl_session *s, const int32_t *ids, int32_t n, swl_error *err)
{
    int32_t i, vocab = s->model->config->vocab, left = s->state->ctx_tokens - s->state->n_tokens;

    if (s->broken)
        return swl_fail(err, SWL_E_FAIL, "the session's state is unusable after an error; reset it first");
    if (n < 1)
        return swl_fail(err, SWL_E_ARG, "no tokens to run");
    if (n > left)
        return swl_fail(err, SWL_E_BUDGET, "the context of %d tokens is full: %d are there, %d more were to come",
                        s->state->ctx_tokens, s->state->n_tokens, n);
    for (i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return swl_fail(err, SWL_E_ARG, "token id %d is not in 0 to %d", ids[i], vocab - 1);
    return SWL_OK;
}

swl_status swl_session_eval(swl_session *s, const int32_t *ids, int32_t n, swl_logits_wanted want, float *logits,
                            swl_error *err)
{
    int32_t chunk = s->model->chunk_tokens, done, k;
    swl_status st = check_ids(s, ids, n, err);

    for (done = 0; done < n && !st; done += k) {
        k = n - done < chunk ? n - done : chunk;
        memset(s->want, want == SWL_LOGITS_ALL, (size_t)k * sizeof *s->want);
        if (want == SWL_LOGITS_LAST && done + k == n)
            s->want[k - 1] = true;
        st = eval_chunk(s, ids + done, k, logits, err);
        s->broken = st != SWL_OK;
        s->has_logits = !st && want == SWL_LOGITS_LAST && logits == s->logits && done + k == n;
        if (want == SWL_LOGITS_ALL)
            logits += (int64_t)k * s->model->config->vocab;
    }
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
