/*
 * verify.c: the forward pass against a reference file, layer by layer, so that the first wrong layer is named. The file
 * holds input_ids [1,T] and any of: embed, layer_00..., final_norm [1,T,H], logits [1,T,V], greedy [1,G].
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"

typedef struct verify {
    swl_model *m;
    swl_st *ref;
    double tolerance;
    void (*on_row)(void *, const swl_verify_row *);
    void *arg;
    int32_t row0;              /* first token of the running chunk */
    int32_t n_tokens;
    float **rows;              /* [n_layers + 3] our tensors, [T][width] */
    swl_verify_row first_bad;
    char first_name[32];
    swl_status st;
    swl_error *err;
} verify;

static swl_status load_ids(swl_st *ref, const char *name, int32_t **ids, int32_t *n, swl_error *err)
{
    const swl_st_tensor *t = swl_st_find(ref, name);
    swl_status st;

    *ids = NULL;
    *n = 0;
    if (!t)
        return SWL_OK;
    if (t->dtype != SWL_DT_I32 || t->n_dims < 1 || !t->size || t->size > INT32_MAX)
        return swl_fail_at(err, SWL_E_CORRUPT, swl_st_path(ref, 0), (int64_t)t->offset, "tensor \"%s\" is not I32 [1, n]",
                           name);
    *ids = swl_calloc(t->size, 1);
    if (!*ids)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %s", name);
    *n = (int32_t)(t->size / 4);
    st = swl_st_read(ref, t, 0, *ids, t->size, err);
    if (st) {
        swl_free(*ids);
        *ids = NULL;
    }
    return st;
}

static void report(verify *v, const char *name, double diff, double ref, bool ok)
{
    swl_verify_row row = {.name = name, .diff_max = diff, .ref_max = ref, .ok = ok};

    if (!ok && !v->first_name[0]) {
        v->first_bad = row;
        snprintf(v->first_name, sizeof v->first_name, "%s", name);
    }
    if (v->on_row)
        v->on_row(v->arg, &row);
}

/* Compares [T][width] values with the tensor of that name; nothing to do when the file has none. */
static swl_status compare(verify *v, const char *name, const float *ours, int64_t width)
{
    const swl_st_tensor *t = swl_st_find(v->ref, name);
    int64_t n = v->n_tokens * width, i, count = 1;
    double diff = 0, max = 0;
    float *theirs;
    uint8_t *raw;
    swl_status st;

    if (!t)
        return SWL_OK;
    for (i = 0; i < t->n_dims; i++)
        count *= t->shape[i];
    if (count != n || swl_wtype_plain(t->dtype) == SWL_W_NONE)
        return swl_fail_at(v->err, SWL_E_CORRUPT, swl_st_path(v->ref, 0), (int64_t)t->offset,
                           "reference tensor \"%s\" has %" PRId64 " %s values, expected %" PRId64 " floats", name, count,
                           swl_dtype_name(t->dtype), n);
    theirs = swl_calloc((size_t)n, sizeof *theirs);
    raw = swl_calloc(t->size, 1);
    st = theirs && raw ? swl_st_read(v->ref, t, 0, raw, t->size, v->err)
                       : swl_fail(v->err, SWL_E_NOMEM, "out of memory for reference tensor %s", name);
    if (!st) {
        swl_dtype_to_f32(t->dtype, raw, theirs, n);
        for (i = 0; i < n; i++) {
            double d = fabs((double)ours[i] - (double)theirs[i]);

            diff = d > diff || d != d ? d : diff; /* a NaN is the worst difference and stays */
            if (d != d)
                break;
            max = fabs((double)theirs[i]) > max ? fabs((double)theirs[i]) : max;
        }
        report(v, name, diff, max, diff <= v->tolerance);
    }
    swl_free(theirs);
    swl_free(raw);
    return st;
}

static int32_t slot_of(const verify *v, const char *name)
{
    int32_t layer;

    if (!strcmp(name, "embed"))
        return 0;
    if (sscanf(name, "layer_%d", &layer) == 1)
        return 1 + layer;
    return 1 + v->m->config->n_layers;
}

static void keep(void *arg, const char *name, const float *rows, int32_t n, int32_t width)
{
    verify *v = arg;

    memcpy(v->rows[slot_of(v, name)] + (int64_t)v->row0 * width, rows, (size_t)n * (size_t)width * sizeof(float));
}

/* Runs the tokens and keeps every layer's output. */
static swl_status run(verify *v, const int32_t *ids, float *logits)
{
    swl_trace trace = {keep, v};
    bool *want = swl_calloc((size_t)v->m->chunk_tokens, sizeof *want);
    swl_state *state = NULL;
    swl_status st = want ? swl_state_create(&state, v->m, v->err) : swl_fail(v->err, SWL_E_NOMEM, "out of memory");

    if (!st)
        memset(want, 1, (size_t)v->m->chunk_tokens);
    for (v->row0 = 0; v->row0 < v->n_tokens && !st;) {
        int32_t left = v->n_tokens - v->row0, n = left < v->m->chunk_tokens ? left : v->m->chunk_tokens;
        swl_batch_item item = {.state = state, .ids = ids + v->row0, .n = n, .want = want};

        st = swl_forward(v->m, &item, 1, logits + (int64_t)v->row0 * v->m->config->vocab, &trace, v->err);
        v->row0 += n;
    }
    swl_state_free(state);
    swl_free(want);
    return st;
}

static int32_t argmax(const float *x, int32_t n)
{
    int32_t i, best = 0;

    for (i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* The greedy continuation, token by token from the prompt's state, counted where it differs. */
static swl_status compare_greedy(verify *v, const int32_t *ids, const float *logits)
{
    int32_t *want, n, i, next, differ = 0, vocab = v->m->config->vocab;
    float *row = swl_calloc((size_t)vocab, sizeof *row);
    bool yes = true;
    swl_state *state = NULL;
    swl_status st = load_ids(v->ref, "greedy", &want, &n, v->err);

    if (!st && !row)
        st = swl_fail(v->err, SWL_E_NOMEM, "out of memory");
    if (!st && n)
        st = swl_state_create(&state, v->m, v->err);
    for (i = 0; i < v->n_tokens && n && !st; i++) { /* one token at a time: decoding, not prompt reading */
        swl_batch_item item = {.state = state, .ids = ids + i, .n = 1};

        st = swl_forward(v->m, &item, 1, NULL, NULL, v->err);
    }
    next = argmax(logits + (int64_t)(v->n_tokens - 1) * vocab, vocab);
    for (i = 0; i < n && !st; i++) {
        swl_batch_item item = {.state = state, .ids = &next, .n = 1, .want = &yes};

        differ += next != want[i];
        st = i + 1 < n ? swl_forward(v->m, &item, 1, row, NULL, v->err) : SWL_OK;
        next = argmax(row, vocab);
    }
    if (!st && n)
        report(v, "greedy", differ, n, !differ);
    swl_state_free(state);
    swl_free(want);
    swl_free(row);
    return st;
}

static swl_status compare_all(verify *v, const float *logits)
{
    const swl_config *c = v->m->config;
    char name[32];
    int32_t i;
    swl_status st = compare(v, "embed", v->rows[0], c->hidden);

    for (i = 0; i < c->n_layers && !st; i++) {
        snprintf(name, sizeof name, "layer_%02d", i);
        st = compare(v, name, v->rows[1 + i], c->hidden);
    }
    if (!st)
        st = compare(v, "final_norm", v->rows[1 + c->n_layers], c->hidden);
    return st ? st : compare(v, "logits", logits, c->vocab);
}

static swl_status verify_ids(verify *v, const int32_t *ids)
{
    const swl_config *c = v->m->config;
    int32_t n_kept = c->n_layers + 2, i;
    float *logits = swl_calloc((size_t)v->n_tokens * (size_t)c->vocab, sizeof *logits);
    float *all = swl_calloc((size_t)n_kept * (size_t)v->n_tokens, (size_t)c->hidden * sizeof *all);
    swl_status st = SWL_OK;

    v->rows = swl_calloc((size_t)n_kept, sizeof *v->rows);
    if (!logits || !all || !v->rows)
        st = swl_fail(v->err, SWL_E_NOMEM, "out of memory for the outputs of %d tokens", v->n_tokens);
    for (i = 0; i < n_kept && !st; i++)
        v->rows[i] = all + (int64_t)i * v->n_tokens * c->hidden;
    if (!st)
        st = run(v, ids, logits);
    if (!st)
        st = compare_all(v, logits);
    if (!st)
        st = compare_greedy(v, ids, logits);
    swl_free(v->rows);
    swl_free(all);
    swl_free(logits);
    return st;
}

swl_status swl_verify(swl_model *m, const char *reference, double tolerance,
                      void (*on_row)(void *arg, const swl_verify_row *row), void *arg, swl_error *err)
{
    verify v = {.m = m, .tolerance = tolerance, .on_row = on_row, .arg = arg, .err = err};
    int32_t *ids = NULL;
    swl_status st = swl_st_open(&v.ref, reference, err);

    if (!st)
        st = load_ids(v.ref, "input_ids", &ids, &v.n_tokens, err);
    if (!st && !ids)
        st = swl_fail_at(err, SWL_E_CORRUPT, reference, -1, "%s has no tensor \"input_ids\"", reference);
    if (!st)
        st = verify_ids(&v, ids);
    if (!st && v.first_name[0])
        st = swl_fail_at(err, SWL_E_MISMATCH, reference, -1, "%s differs by %g, more than the tolerance of %g",
                         v.first_name, v.first_bad.diff_max, tolerance);
    swl_free(ids);
    swl_st_close(v.ref);
    return st;
}
