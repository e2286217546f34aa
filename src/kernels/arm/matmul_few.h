/*
 * matmul_few.h: quantised matrices times one or a few tokens, straight from the bytes as stored; included by the file
 * of each level, which defines before
 *
 *   OFFSET_8      1: eight-bit codes are multiplied as code - 128, and 128 * sum of the activations is added
 *   dot16         acc + products of 16 codes and 16 activations, each element taking four neighbours
 *   unit_dot      four partial sums of n registers of codes with 16 * n activations
 *
 * Four units of a row at a time: a tree of pairwise adds leaves the dot product of unit u in element u, next to scales
 * and biases, which are neighbours in memory too. Four-bit rows are not put into column order: 16 bytes are 32 columns,
 * the low nibbles the even ones, the high nibbles the odd ones, and the activation is split the same way once per call.
 */
#ifndef SWL_KERNELS_MATMUL_FEW_H
#define SWL_KERNELS_MATMUL_FEW_H

#include "kernels/arm/quant_neon.h"

enum {
    FEW = 4,          /* tokens that share a pass over the rows */
    FEW_ROWS = 16,    /* rows that share prepared activations when a row is wider than FEW_BLOCK */
    FEW_BLOCK = 8192, /* columns whose activations are prepared at a time */
    FEW_UNITS = FEW_BLOCK / 16
};

typedef struct prepared {
    int8_t x[FEW][FEW_BLOCK]; /* in the order of the codes */
    float xs[FEW][FEW_UNITS], xi[FEW][FEW_UNITS];
    int32_t sum128[FEW][FEW_UNITS];
} prepared;

/* What does not change from row to row. */
typedef struct few_view {
    const swl_matrix *w;
    const uint8_t *end;
    int64_t row_bytes, row_scales;
    int32_t n_tok;
    int32_t unit0, n_units; /* the block of columns, in units */
    int32_t per_scale;      /* units that share a scale */
} few_view;

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* n activations in the order of the codes; those up to `padded`, a multiple of 32, become 0. */
INLINE void order_codes(const int8_t *q, int32_t n, int32_t padded, int bits, int8_t *x)
{
    int32_t i;

    for (i = 0; i < padded; i += 32) {
        int8x16x2_t v = {{vdupq_n_s8(0), vdupq_n_s8(0)}};

        if (i < n)
            v.val[0] = vld1q_s8(q + i);
        if (i + 16 < n)
            v.val[1] = vld1q_s8(q + i + 16);
        vst1q_s8(x + i, bits == 4 ? vuzp1q_s8(v.val[0], v.val[1]) : v.val[0]);
        vst1q_s8(x + i + 16, bits == 4 ? vuzp2q_s8(v.val[0], v.val[1]) : v.val[1]);
    }
}

INLINE void prepare(prepared *p, const swl_act *a, const int32_t *tok, const few_view *v, int bits, int unit)
{
    int32_t n = v->n_units * unit, t;

    for (t = 0; t < v->n_tok; t++) {
        int64_t row = tok ? tok[t] : t;

        order_codes(a->q + row * a->ldq + (int64_t)v->unit0 * unit, n, (v->n_units + 3) / 4 * 4 * unit, bits, p->x[t]);
        act_units(a, row, unit, v->unit0, v->n_units, p->xs[t], p->xi[t], OFFSET_8 && bits == 8 ? p->sum128[t] : NULL);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The codes of four units. */
INLINE void load_units(const uint8_t *p, int bits, int unit, uint8x16_t *q)
{
    int n = unit / 4, i; /* registers */

    for (i = 0; bits == 4 && i < n; i += 2) {
        uint8x16_t v = vld1q_u8(p + 8 * i);

        q[i] = vandq_u8(v, vdupq_n_u8(15));
        q[i + 1] = vshrq_n_u8(v, 4);
    }
    for (i = 0; bits != 4 && i < n; i++) {
        q[i] = unpack16(p + 2 * bits * i, bits);
        if (OFFSET_8 && bits == 8)
            q[i] = veorq_u8(q[i], vdupq_n_u8(0x80));
    }
}

INLINE int32x4_t four_units(const uint8x16_t *q, const int8_t *x, int bits, int unit)
{
    int n = unit / 16;
    int32x4_t zero = vdupq_n_s32(0);

    if (bits == 4 && unit == 16) /* a register is eight columns of one unit and eight of the next */
        return vpaddq_s32(dot16(dot16(zero, q[0], vld1q_s8(x)), q[1], vld1q_s8(x + 16)),
                          dot16(dot16(zero, q[2], vld1q_s8(x + 32)), q[3], vld1q_s8(x + 48)));
    return vpaddq_s32(
        vpaddq_s32(unit_dot(q, x, n, bits), unit_dot(q + n, x + unit, n, bits)),
        vpaddq_s32(unit_dot(q + 2 * n, x + 2 * unit, n, bits), unit_dot(q + 3 * n, x + 3 * unit, n, bits)));
}

/* Units [u, u + n) of one row, n <= 4, u a multiple of 4, into their lanes for every token. */
INLINE void batch(const few_view *v, const prepared *p, int64_t row, int32_t u, int32_t n, int bits, int unit,
                  float (*lanes)[SWL_LANES])
{
    const swl_matrix *w = v->w;
    int32_t at = v->unit0 + u, t;
    const uint8_t *data = w->data + row * v->row_bytes + (int64_t)at * unit * bits / 8;
    float32x4_t ws = unit_scales(w->sdtype, w->scales, row * v->row_scales, at, n, v->per_scale);
    float32x4_t wb = unit_scales(w->sdtype, w->biases, row * v->row_scales, at, n, v->per_scale);
    uint8_t edge[4 * 64 + 16];
    uint8x16_t q[16];

    if (n < 4 || (bits != 4 && v->end - data < (4 * unit - 16) * bits / 8 + read_bytes(bits))) {
        memset(edge, 0, sizeof edge);
        memcpy(edge, data, (size_t)(n * unit * bits / 8));
        data = edge;
    }
    load_units(data, bits, unit, q);
    for (t = 0; t < v->n_tok; t++) {
        float *lane = lanes[t] + u % SWL_LANES;
        int32x4_t idot = four_units(q, p->x[t] + u * unit, bits, unit);
        float32x4_t l = vld1q_f32(lane), s;

        if (OFFSET_8 && bits == 8)
            idot = vaddq_s32(idot, vld1q_s32(p->sum128[t] + u));
        s = vfmaq_f32(l, vcvtq_f32_s32(idot), vmulq_f32(ws, vld1q_f32(p->xs[t] + u)));
        s = vfmaq_f32(s, wb, vld1q_f32(p->xi[t] + u));
        vst1q_f32(lane, n == 4 ? s : vbslq_f32(first4(n), s, l));
    }
}

INLINE void row_lanes(const few_view *v, const prepared *p, int64_t row, int bits, int unit, float (*lanes)[SWL_LANES])
{
    int32_t u;

    for (u = 0; u + 4 <= v->n_units; u += 4)
        batch(v, p, row, u, 4, bits, unit, lanes);
    if (u < v->n_units)
        batch(v, p, row, u, v->n_units - u, bits, unit, lanes);
}

INLINE float32x4_t row_sum(const float *lane)
{
    float32x4_t v[4];
    int i;

    for (i = 0; i < 4; i++)
        v[i] = vld1q_f32(lane + 4 * i);
    return fold_to_4(v);
}

static void fold_rows(float (*lanes)[FEW][SWL_LANES], int32_t n_rows, int32_t n_tok, float *out, int64_t ldo)
{
    int32_t t, r;

    for (t = 0; t < n_tok; t++, out += ldo) {
        for (r = 0; r + 4 <= n_rows; r += 4)
            vst1q_f32(out + r, fold_four(row_sum(lanes[r][t]), row_sum(lanes[r + 1][t]), row_sum(lanes[r + 2][t]),
                                         row_sum(lanes[r + 3][t])));
        for (; r < n_rows; r++)
            out[r] = ref_fold(lanes[r][t]);
    }
}

/* At most FEW tokens. */
INLINE void few_tokens(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                       int32_t n_tok, float *out, int64_t ldo, int bits, int unit)
{
    few_view v = {w, matrix_end(w), swl_matrix_row_bytes(w), w->cols / w->group, n_tok, 0, 0, w->group / unit};
    int32_t units = w->cols / unit, block = FEW_BLOCK / unit, r0, r, n;
    float lanes[FEW_ROWS][FEW][SWL_LANES];
    prepared p;

    for (r0 = 0; r0 < n_rows; r0 += FEW_ROWS) {
        n = min_i32(FEW_ROWS, n_rows - r0);
        memset(lanes, 0, sizeof lanes);
        for (v.unit0 = 0; v.unit0 < units; v.unit0 += block) {
            v.n_units = min_i32(block, units - v.unit0);
            if (r0 == 0 || units > block)
                prepare(&p, a, tok, &v, bits, unit);
            for (r = 0; r < n; r++)
                row_lanes(&v, &p, row0 + r0 + r, bits, unit, lanes[r]);
        }
        fold_rows(lanes, n, n_tok, out + r0, ldo);
    }
}

/* Any number of tokens, FEW at a time. */
INLINE void matmul_few(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                       int32_t n_tok, float *out, int64_t ldo, int bits)
{
    int32_t ids[FEW], t, n, i;

    for (t = 0; t < n_tok; t += n) {
        n = min_i32(FEW, n_tok - t);
        for (i = 0; i < n; i++)
            ids[i] = tok ? tok[t + i] : t + i;
        if (w->group >= 64)
            few_tokens(w, row0, n_rows, a, ids, n, out + t * ldo, ldo, bits, 64);
        else if (w->group == 32)
            few_tokens(w, row0, n_rows, a, ids, n, out + t * ldo, ldo, bits, 32);
        else
            few_tokens(w, row0, n_rows, a, ids, n, out + t * ldo, ldo, bits, 16);
    }
}

#endif
