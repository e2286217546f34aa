/*
 * weight.c: checks one weight of the source against what the config asks for, decides how it is stored, and carries it
 * over block by block. The result of a row depends on that row alone, so blocks and threads change nothing.
 */
#include "install/weight.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "format/quant_fit.h"

#define BLOCK_BYTES   (UINT64_C(4) << 20) /* source bytes per block, at least one row */
#define TASK_ELEMENTS 65536               /* per call of a worker, at least one row */

static bool is_float(swl_dtype t)
{
    return t == SWL_DT_F32 || t == SWL_DT_F16 || t == SWL_DT_BF16;
}

static swl_status bad_shape(const swl_slice *s, int64_t rows, int64_t width, swl_error *err)
{
    return swl_fail(err, SWL_E_CORRUPT,
                    "tensor %s has rows x width %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64 " (%s)",
                    s->t->name, s->rows, s->width, rows, width, swl_dtype_name(s->t->dtype));
}

static void set_part(swl_weight *w, swl_part part, swl_dtype dtype, int64_t width)
{
    w->dtype[part] = dtype;
    w->width[part] = width;
    w->row_bytes[part] = (uint64_t)width * (uint64_t)swl_dtype_size(dtype);
}

static swl_status plain_matrix(swl_weight *w, swl_weight_rule rule, swl_error *err)
{
    const swl_slice *s = &w->src[SWL_PART_WEIGHT];

    if (!is_float(s->t->dtype))
        return swl_fail(err, SWL_E_UNSUPPORTED, "tensor %s is %s; sources must be BF16, F16, F32 or MLX affine",
                        s->t->name, swl_dtype_name(s->t->dtype));
    if (s->rows != w->rows || s->width != w->cols)
        return bad_shape(s, w->rows, w->cols, err);
    if (!rule.bits || w->cols % rule.group) {
        w->op = SWL_WEIGHT_COPY;
        w->n_parts = 1;
        set_part(w, SWL_PART_WEIGHT, s->t->dtype, w->cols);
        return SWL_OK;
    }
    w->op = SWL_WEIGHT_QUANTISE;
    w->n_parts = SWL_PART_COUNT;
    w->bits = rule.bits;
    w->group = rule.group;
    w->minmax = rule.minmax;
    set_part(w, SWL_PART_WEIGHT, SWL_DT_U32, w->cols * rule.bits / 32);
    set_part(w, SWL_PART_SCALES, SWL_DT_BF16, w->cols / rule.group);
    set_part(w, SWL_PART_BIASES, SWL_DT_BF16, w->cols / rule.group);
    return SWL_OK;
}

/* Scales without biases: the codebook formats, whose bytes are moved. */
static swl_status codebook_matrix(swl_weight *w, swl_error *err)
{
    const swl_slice *q = &w->src[SWL_PART_WEIGHT], *s = &w->src[SWL_PART_SCALES];

    if (q->t->dtype != SWL_DT_U32 && q->t->dtype != SWL_DT_I32)
        return swl_fail(err, SWL_E_UNSUPPORTED, "tensor %s is %s, expected packed U32 words beside its scales",
                        q->t->name, swl_dtype_name(q->t->dtype));
    if (!swl_codebook_from_shapes(s->t->dtype, q->width, s->width, w->cols, &w->group))
        return swl_fail(err, SWL_E_UNSUPPORTED,
                        "tensor %s (%s) has no biases beside it, and %" PRId64 " words with %" PRId64 " scales per row of "
                        "%" PRId64 " inputs are neither mxfp4 nor mxfp8 nor nvfp4",
                        s->t->name, swl_dtype_name(s->t->dtype), q->width, s->width, w->cols);
    if (q->rows != w->rows)
        return bad_shape(q, w->rows, q->width, err);
    if (s->rows != w->rows)
        return bad_shape(s, w->rows, s->width, err);
    w->op = SWL_WEIGHT_COPY;
    w->n_parts = 2;
    set_part(w, SWL_PART_WEIGHT, SWL_DT_U32, q->width);
    set_part(w, SWL_PART_SCALES, s->t->dtype, s->width);
    return SWL_OK;
}

static swl_status affine_matrix(swl_weight *w, swl_error *err)
{
    const swl_slice *q = &w->src[SWL_PART_WEIGHT], *s = &w->src[SWL_PART_SCALES], *b = &w->src[SWL_PART_BIASES];

    if (!b->t)
        return codebook_matrix(w, err);
    if (q->t->dtype != SWL_DT_U32 && q->t->dtype != SWL_DT_I32)
        return swl_fail(err, SWL_E_UNSUPPORTED, "tensor %s is %s, expected packed U32 words beside its scales",
                        q->t->name, swl_dtype_name(q->t->dtype));
    if (!is_float(s->t->dtype) || b->t->dtype != s->t->dtype)
        return swl_fail(err, SWL_E_UNSUPPORTED, "tensor %s is %s and its biases are %s; expected one of BF16, F16, F32",
                        s->t->name, swl_dtype_name(s->t->dtype), swl_dtype_name(b->t->dtype));
    if (!swl_affine_from_shapes(q->width, s->width, w->cols, &w->bits, &w->group))
        return swl_fail(err, SWL_E_CORRUPT,
                        "tensor %s has %" PRId64 " words and %" PRId64 " scales per row, which fit no width and group "
                        "for %" PRId64 " inputs",
                        q->t->name, q->width, s->width, w->cols);
    if (q->rows != w->rows)
        return bad_shape(q, w->rows, q->width, err);
    if (s->rows != w->rows)
        return bad_shape(s, w->rows, s->width, err);
    if (b->rows != w->rows || b->width != s->width)
        return bad_shape(b, w->rows, s->width, err);
    w->op = SWL_WEIGHT_COPY;
    w->n_parts = SWL_PART_COUNT;
    set_part(w, SWL_PART_WEIGHT, SWL_DT_U32, q->width);
    set_part(w, SWL_PART_SCALES, s->t->dtype, s->width);
    set_part(w, SWL_PART_BIASES, s->t->dtype, s->width);
    return SWL_OK;
}

swl_status swl_weight_matrix(swl_weight *w, const swl_slice src[SWL_PART_COUNT], int64_t rows, int64_t cols,
                             swl_weight_rule rule, swl_error *err)
{
    *w = (swl_weight){.rows = rows, .cols = cols};
    for (int p = 0; p < SWL_PART_COUNT; p++)
        w->src[p] = src[p];
    return src[SWL_PART_SCALES].t ? affine_matrix(w, err) : plain_matrix(w, rule, err);
}

swl_status swl_weight_vector(swl_weight *w, const swl_st_tensor *t, int64_t n, swl_weight_op op, swl_error *err)
{
    int64_t elements = 1;

    for (int d = 0; d < t->n_dims; d++)
        elements *= t->shape[d];
    if (!is_float(t->dtype))
        return swl_fail(err, SWL_E_UNSUPPORTED, "tensor %s is %s, expected BF16, F16 or F32", t->name,
                        swl_dtype_name(t->dtype));
    if (elements != n)
        return swl_fail(err, SWL_E_CORRUPT, "tensor %s has %" PRId64 " elements, expected %" PRId64, t->name, elements,
                        n);
    *w = (swl_weight){.op = op, .rows = 1, .cols = n, .n_parts = 1};
    w->src[SWL_PART_WEIGHT] = (swl_slice){.t = t, .rows = 1, .width = n};
    set_part(w, SWL_PART_WEIGHT, op == SWL_WEIGHT_ADD_ONE ? SWL_DT_F32 : t->dtype, n);
    return SWL_OK;
}

/* ---- carrying over ------------------------------------------------------------------------------------------------
 */

static swl_status reserve(void *buffer, uint64_t *have, uint64_t n, swl_error *err)
{
    void **p = buffer, *q;

    if (n <= *have)
        return SWL_OK;
    q = swl_realloc(*p, n, 1);
    if (!q)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a block of %" PRIu64 " bytes", n);
    *p = q;
    *have = n;
    return SWL_OK;
}

void swl_converter_deinit(swl_converter *cv)
{
    swl_free(cv->in);
    swl_free(cv->out);
    swl_free(cv->f32);
    cv->in = cv->out = NULL;
    cv->f32 = NULL;
    cv->n_in = cv->n_out = cv->n_f32 = 0;
}

static swl_status read_source(const swl_converter *cv, const swl_st_tensor *t, uint64_t begin, uint64_t n, swl_error *err)
{
    if (!cv->origin)
        return swl_st_read(cv->st, t, begin, cv->in, n, err);
    cv->origin(cv->origin_arg, t, begin, cv->in, n);
    return SWL_OK;
}

static swl_status copy_rows(swl_converter *cv, const swl_weight *w, swl_part part, uint64_t at, uint64_t n,
                            swl_weight_sink sink, void *arg, swl_error *err)
{
    swl_status st = reserve(&cv->in, &cv->n_in, n, err);

    if (!st)
        st = read_source(cv, w->src[part].t, w->src[part].begin + at, n, err);
    return st ? st : sink(arg, part, at, cv->in, n, err);
}

/* Rows [row, row + n) of the source as float32 in cv->f32. */
static swl_status read_f32(swl_converter *cv, const swl_weight *w, int64_t row, int64_t n, swl_error *err)
{
    const swl_slice *s = &w->src[SWL_PART_WEIGHT];
    uint64_t bytes = (uint64_t)(w->cols * swl_dtype_size(s->t->dtype));
    swl_status st = reserve(&cv->in, &cv->n_in, bytes * (uint64_t)n, err);

    if (!st)
        st = reserve(&cv->f32, &cv->n_f32, (uint64_t)(n * w->cols) * sizeof(float), err);
    if (!st)
        st = read_source(cv, s->t, s->begin + bytes * (uint64_t)row, bytes * (uint64_t)n, err);
    return st;
}

static swl_status not_finite(const swl_weight *w, int64_t row, int64_t n, const float *x, swl_error *err)
{
    for (int64_t i = 0; i < n * w->cols; i++)
        if (!isfinite(x[i]))
            return swl_fail(err, SWL_E_CORRUPT,
                            "tensor %s holds %g in row %" PRId64 ", column %" PRId64 "; expected finite weights",
                            w->src[SWL_PART_WEIGHT].t->name, (double)x[i], row + i / w->cols, i % w->cols);
    return SWL_OK;
}

static swl_status add_one(swl_converter *cv, const swl_weight *w, swl_weight_sink sink, void *arg, swl_error *err)
{
    swl_status st = read_f32(cv, w, 0, 1, err);

    if (st)
        return st;
    swl_dtype_to_f32(w->src[SWL_PART_WEIGHT].t->dtype, cv->in, cv->f32, w->cols);
    st = not_finite(w, 0, 1, cv->f32, err);
    for (int64_t i = 0; i < w->cols; i++)
        cv->f32[i] += 1.0f;
    return st ? st : sink(arg, SWL_PART_WEIGHT, 0, (const uint8_t *)cv->f32, w->row_bytes[SWL_PART_WEIGHT], err);
}

/* One block: n rows of source bytes in cv->in become n rows of each part, one part after the other in cv->out. */
typedef struct quantise_block {
    swl_converter *cv;
    const swl_weight *w;
    uint8_t *part[SWL_PART_COUNT];
    int64_t n, rows_per_task;
    _Atomic bool not_finite;
} quantise_block;

static bool all_finite(const float *x, int64_t n)
{
    uint32_t any = 0, u;

    for (int64_t i = 0; i < n; i++) { /* to the end, as that is faster */
        memcpy(&u, x + i, sizeof u);
        any |= (u & 0x7f800000) == 0x7f800000;
    }
    return !any;
}

/* The rows of a task lie one after the other in all parts, so they are quantised as one long row. */
static void quantise_rows(void *arg, int32_t index, int32_t worker)
{
    quantise_block *b = arg;
    const swl_weight *w = b->w;
    swl_dtype dtype = w->src[SWL_PART_WEIGHT].t->dtype;
    int64_t row = index * b->rows_per_task, left = b->n - row;
    int64_t n = (left < b->rows_per_task ? left : b->rows_per_task) * w->cols;
    float *x = b->cv->f32 + row * w->cols;
    uint8_t *dst[SWL_PART_COUNT];

    (void)worker;
    for (int p = 0; p < SWL_PART_COUNT; p++)
        dst[p] = b->part[p] + (uint64_t)row * w->row_bytes[p];
    swl_dtype_to_f32(dtype, b->cv->in + row * w->cols * swl_dtype_size(dtype), x, n);
    if (all_finite(x, n))
        (w->minmax ? swl_affine_quantise_row : swl_affine_fit_row)(x, (int32_t)n, w->bits, w->group, dst[SWL_PART_WEIGHT],
                                                                   (uint16_t *)dst[SWL_PART_SCALES],
                                                                   (uint16_t *)dst[SWL_PART_BIASES]);
    else
        b->not_finite = true;
}

static void run_block(quantise_block *b)
{
    int32_t n_tasks = (int32_t)((b->n + b->rows_per_task - 1) / b->rows_per_task);

    if (b->cv->threads)
        swl_threads_run(b->cv->threads, n_tasks, quantise_rows, b);
    else
        for (int32_t i = 0; i < n_tasks; i++)
            quantise_rows(b, i, 0);
}

/* Where each part of a block of n rows begins in cv->out. */
static swl_status place_parts(quantise_block *b, swl_error *err)
{
    uint64_t at[SWL_PART_COUNT], end = 0;
    swl_status st;

    for (int p = 0; p < SWL_PART_COUNT; p++) {
        at[p] = end;
        end += (b->w->row_bytes[p] * (uint64_t)b->n + SWL_ALIGN - 1) / SWL_ALIGN * SWL_ALIGN;
    }
    st = reserve(&b->cv->out, &b->cv->n_out, end, err);
    for (int p = 0; p < SWL_PART_COUNT && !st; p++)
        b->part[p] = b->cv->out + at[p];
    return st;
}

static swl_status quantise_one(swl_converter *cv, const swl_weight *w, int64_t row, int64_t n, swl_weight_sink sink,
                               void *arg, swl_error *err)
{
    quantise_block b = {
        .cv = cv, .w = w, .n = n, .rows_per_task = w->cols > TASK_ELEMENTS ? 1 : TASK_ELEMENTS / w->cols};
    swl_status st = read_f32(cv, w, row, n, err);

    if (!st)
        st = place_parts(&b, err);
    if (st)
        return st;
    run_block(&b);
    if (b.not_finite)
        return not_finite(w, row, n, cv->f32, err);
    for (int p = 0; p < SWL_PART_COUNT && !st; p++)
        st = sink(arg, (swl_part)p, w->row_bytes[p] * (uint64_t)row, b.part[p], w->row_bytes[p] * (uint64_t)n, err);
    return st;
}

/* ---- in steps ------------------------------------------------------------------------------------------------------
 */

uint64_t swl_weight_steps(const swl_weight *w, swl_part part, uint64_t *n_bytes)
{
    const swl_slice *s = &w->src[part];
    uint64_t row = w->op == SWL_WEIGHT_COPY ? w->row_bytes[part]
                                            : (uint64_t)w->cols * (uint64_t)swl_dtype_size(s->t->dtype);

    *n_bytes = row * (uint64_t)w->rows;
    if (w->op == SWL_WEIGHT_ADD_ONE)
        return *n_bytes;
    if (w->op == SWL_WEIGHT_COPY)
        return *n_bytes < BLOCK_BYTES ? *n_bytes : BLOCK_BYTES;
    return row > BLOCK_BYTES ? row : BLOCK_BYTES / row * row;
}

int swl_weight_n_sources(const swl_weight *w)
{
    return w->op == SWL_WEIGHT_COPY ? w->n_parts : 1;
}

swl_status swl_weight_step(swl_converter *cv, const swl_weight *w, swl_part part, uint64_t at, uint64_t n,
                           swl_weight_sink sink, void *arg, swl_error *err)
{
    uint64_t row;

    if (w->op == SWL_WEIGHT_COPY)
        return copy_rows(cv, w, part, at, n, sink, arg, err);
    if (w->op == SWL_WEIGHT_ADD_ONE)
        return add_one(cv, w, sink, arg, err);
    row = (uint64_t)w->cols * (uint64_t)swl_dtype_size(w->src[SWL_PART_WEIGHT].t->dtype);
    return quantise_one(cv, w, (int64_t)(at / row), (int64_t)(n / row), sink, arg, err);
}

swl_status swl_weight_emit(swl_converter *cv, const swl_weight *w, swl_weight_sink sink, void *arg, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int part = 0; part < swl_weight_n_sources(w) && !st; part++) {
        uint64_t total, step = swl_weight_steps(w, (swl_part)part, &total), n;

        for (uint64_t at = 0; at < total && !st; at += n) {
            n = total - at < step ? total - at : step;
            st = swl_weight_step(cv, w, (swl_part)part, at, n, sink, arg, err);
        }
    }
    return st;
}
