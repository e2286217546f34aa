/*
 * rows_q.h: where the kernels of one and a few tokens are in a quantised matrix. A row is read by pointers that go on, from
 * unit to unit and, where a row is one block of columns, from row to row.
 */
#ifndef SWL_KERNELS_ROWS_Q_H
#define SWL_KERNELS_ROWS_Q_H

#include "format/quant.h"
#include "kernels/x86/ahead.h"

/* What does not change from row to row. */
typedef struct view {
    const swl_matrix *w;
    int64_t row_bytes, row_scales, scale_size;
    int32_t n_tok;
    int32_t unit0, n_units; /* the block of columns, in units */
    swl_dtype sdtype;
    int32_t per_scale; /* units that share a scale */
    stream codes, scales, biases;
} view;

/* Where units of a row are read, and how far from there what is asked for lies. */
typedef struct place {
    const uint8_t *codes, *scales, *biases;
    uintptr_t codes_ahead, scales_ahead, biases_ahead;
} place;

/* ahead: bytes between codes that are multiplied and those that are asked for. sdtype and per_scale are those of w, constants
 * where the caller knows them. */
INLINE view view_of(const swl_matrix *w, int64_t end_row, int32_t n_tok, int64_t ahead, swl_dtype sdtype,
                    int32_t per_scale)
{
    int64_t row_bytes = swl_matrix_row_bytes(w), side = swl_matrix_scale_bytes(w),
            side_ahead = ahead * side / row_bytes;

    return (view){.w = w,
                  .row_bytes = row_bytes,
                  .row_scales = w->cols / w->group,
                  .scale_size = sdtype == SWL_DT_F32 ? 4 : 2, /* as swl_dtype_size says */
                  .n_tok = n_tok,
                  .sdtype = sdtype,
                  .per_scale = per_scale,
                  .codes = stream_to(w->data + end_row * row_bytes, ahead, w->next.data),
                  .scales = stream_to(w->scales + end_row * side, side_ahead, w->next.scales),
                  .biases = stream_to(w->biases + end_row * side, side_ahead, w->next.biases)};
}

/* The block's first unit in a row. */
INLINE place place_of(const view *v, int64_t row, int bits, int unit)
{
    int64_t scale = (row * v->row_scales + v->unit0 / v->per_scale) * v->scale_size;

    return (place){.codes = v->w->data + row * v->row_bytes + (int64_t)v->unit0 * unit * bits / 8,
                   .scales = v->w->scales + scale,
                   .biases = v->w->biases + scale};
}

/* To be called for each row: what is asked for may lie behind the end from here on. */
INLINE void look_ahead(const view *v, place *at)
{
    at->codes_ahead = ahead_of(&v->codes, at->codes);
    at->scales_ahead = ahead_of(&v->scales, at->scales);
    at->biases_ahead = ahead_of(&v->biases, at->biases);
}

/* Past n units. */
INLINE void go_on(const view *v, place *at, int32_t n, int bits, int unit)
{
    at->codes += n * unit * bits / 8;
    at->scales += n / v->per_scale * v->scale_size;
    at->biases += n / v->per_scale * v->scale_size;
}

#endif
