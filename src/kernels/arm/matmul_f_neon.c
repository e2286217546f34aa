/*
 * matmul_f_neon.c: weight matrices times float32 activations. Affine rows are widened a block of columns at a time;
 * plain ones are read as they are. A tile of rows and tokens keeps all its lanes in registers.
 */
#include "kernels/arm/arm.h"

#include "kernels/arm/quant_neon.h"

enum {
    BLOCK = 512, /* columns of an affine row that are widened together */
    HELD = 16,   /* tokens that share it */
    ROWS = 4
};

/* A block of columns of some rows, and the tokens it meets. */
typedef struct tile {
    const uint8_t *w[ROWS]; /* first column of the block */
    const float *x[HELD];
    int32_t n;
    float lanes[HELD][ROWS][SWL_LANES];
} tile;

/* Sixteen columns; with n < 16 only the first n. */
INLINE void step16(const tile *k, swl_dtype type, int32_t row0, int32_t tok0, int32_t col, int32_t n,
                   float32x4_t (*acc)[4], int n_rows, int n_tok)
{
    int size = type == SWL_DT_F32 ? 4 : 2, r, t, i;
    float32x4_t w[4], x[2][4];

#pragma GCC unroll 16
    for (t = 0; t < n_tok; t++)
        if (n == SWL_LANES)
            load16(SWL_DT_F32, (const uint8_t *)(k->x[tok0 + t] + col), x[t]);
        else
            load_part16(SWL_DT_F32, (const uint8_t *)(k->x[tok0 + t] + col), n, x[t]);
#pragma GCC unroll 16
    for (r = 0; r < n_rows; r++) {
        if (n == SWL_LANES)
            load16(type, k->w[row0 + r] + (int64_t)col * size, w);
        else
            load_part16(type, k->w[row0 + r] + (int64_t)col * size, n, w);
#pragma GCC unroll 16
        for (t = 0; t < n_tok; t++)
#pragma GCC unroll 16
            for (i = 0; i < 4; i++) {
                float32x4_t *a = &acc[t * n_rows + r][i], sum = vfmaq_f32(*a, w[i], x[t][i]);

                *a = n == SWL_LANES ? sum : vbslq_f32(first4(n - 4 * i), sum, *a);
            }
    }
}

INLINE void multiply(tile *k, swl_dtype type, int32_t row0, int32_t tok0, int n_rows, int n_tok)
{
    float32x4_t acc[4][4];
    int32_t col;
    int r, t, i;

#pragma GCC unroll 16
    for (t = 0; t < n_tok; t++)
#pragma GCC unroll 16
        for (r = 0; r < n_rows; r++)
#pragma GCC unroll 16
            for (i = 0; i < 4; i++)
                acc[t * n_rows + r][i] = vld1q_f32(k->lanes[tok0 + t][row0 + r] + 4 * i);
    for (col = 0; col + SWL_LANES <= k->n; col += SWL_LANES)
        step16(k, type, row0, tok0, col, SWL_LANES, acc, n_rows, n_tok);
    if (col < k->n)
        step16(k, type, row0, tok0, col, k->n - col, acc, n_rows, n_tok);
#pragma GCC unroll 16
    for (t = 0; t < n_tok; t++)
#pragma GCC unroll 16
        for (r = 0; r < n_rows; r++)
#pragma GCC unroll 16
            for (i = 0; i < 4; i++)
                vst1q_f32(k->lanes[tok0 + t][row0 + r] + 4 * i, acc[t * n_rows + r][i]);
}

/* Four rows for one token, or two for two: sixteen registers of lanes. */
INLINE void multiply_all(tile *k, swl_dtype type, int32_t n_rows, int32_t n_tok)
{
    int32_t r, t = 0;

    for (; t + 2 <= n_tok; t += 2) {
        for (r = 0; r + 2 <= n_rows; r += 2)
            multiply(k, type, r, t, 2, 2);
        if (r < n_rows)
            multiply(k, type, r, t, 1, 2);
    }
    if (t == n_tok)
        return;
    if (n_rows == ROWS)
        multiply(k, type, 0, t, ROWS, 1);
    for (r = n_rows == ROWS ? ROWS : 0; r < n_rows; r++)
        multiply(k, type, r, t, 1, 1);
}

static void set_lanes(tile *k, int32_t n_tok)
{
    memset(k->lanes, 0, (size_t)n_tok * sizeof k->lanes[0]);
}

static void store_folded(const tile *k, int32_t n_rows, int32_t n_tok, float *out, int64_t ldo)
{
    float32x4_t lane[4];
    int32_t t, r, i;

    for (t = 0; t < n_tok; t++)
        for (r = 0; r < n_rows; r++) {
            for (i = 0; i < 4; i++)
                lane[i] = vld1q_f32(k->lanes[t][r] + 4 * i);
            out[t * ldo + r] = fold_lanes(lane);
        }
}

/* ---- plain formats ----------------------------------------------------------------------------------------------- */

INLINE void matmul_plain(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                         int32_t n_tok, float *out, int64_t ldo, swl_dtype type)
{
    int64_t row_bytes = (int64_t)w->cols * (type == SWL_DT_F32 ? 4 : 2);
    int32_t t0, r0, nt, nr, i;
    tile k;

    k.n = w->cols;
    for (t0 = 0; t0 < n_tok; t0 += HELD) {
        nt = min_i32(HELD, n_tok - t0);
        for (i = 0; i < nt; i++)
            k.x[i] = a->x + (tok ? tok[t0 + i] : t0 + i) * a->ldx;
        for (r0 = 0; r0 < n_rows; r0 += ROWS) {
            nr = min_i32(ROWS, n_rows - r0);
            for (i = 0; i < nr; i++)
                k.w[i] = w->data + (row0 + r0 + i) * row_bytes;
            set_lanes(&k, nt);
            multiply_all(&k, type, nr, nt);
            store_folded(&k, nr, nt, out + t0 * ldo + r0, ldo);
        }
    }
}

void swl_matmul_f_f32_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    matmul_plain(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_DT_F32);
}

void swl_matmul_f_f16_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    matmul_plain(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_DT_F16);
}

void swl_matmul_f_bf16_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul_plain(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_DT_BF16);
}

/* ---- affine formats ---------------------------------------------------------------------------------------------- */

/* Sixteen weights: fma(scale, code, bias). */
INLINE void widen16(uint8x16_t q, float scale, float bias, float *dst)
{
    uint16x8_t low = vmovl_u8(vget_low_u8(q)), high = vmovl_high_u8(q);
    float32x4_t b = vdupq_n_f32(bias);

    vst1q_f32(dst, vfmaq_n_f32(b, vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), scale));
    vst1q_f32(dst + 4, vfmaq_n_f32(b, vcvtq_f32_u32(vmovl_high_u16(low)), scale));
    vst1q_f32(dst + 8, vfmaq_n_f32(b, vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), scale));
    vst1q_f32(dst + 12, vfmaq_n_f32(b, vcvtq_f32_u32(vmovl_high_u16(high)), scale));
}

static float scale_at(const swl_matrix *w, const uint8_t *scales, int64_t i)
{
    float f;

    swl_dtype_to_f32(w->sdtype, scales + i * swl_dtype_size(w->sdtype), &f, 1);
    return f;
}

/* Columns [col, col + n) of one row, both multiples of the group. */
INLINE void widen_row(const swl_matrix *w, int64_t row, int32_t col, int32_t n, float *dst, int bits)
{
    const uint8_t *p = w->data + row * swl_matrix_row_bytes(w) + (int64_t)col * bits / 8, *end = matrix_end(w);
    int64_t scale0 = row * (w->cols / w->group) + col / w->group;
    int32_t g, i;

    for (g = 0; g < n / w->group; g++) {
        float scale = scale_at(w, w->scales, scale0 + g), bias = scale_at(w, w->biases, scale0 + g);

        for (i = 0; i < w->group; i += 16, p += 2 * bits, dst += 16)
            widen16(unpack16_within(p, bits, end), scale, bias, dst);
    }
}

static void widen(const swl_matrix *w, int64_t row, int32_t col, int32_t n, float *dst)
{
    switch (swl_wtype_get(w->type)->bits) {
    case 2:
        widen_row(w, row, col, n, dst, 2);
        break;
    case 3:
        widen_row(w, row, col, n, dst, 3);
        break;
    case 4:
        widen_row(w, row, col, n, dst, 4);
        break;
    case 5:
        widen_row(w, row, col, n, dst, 5);
        break;
    case 6:
        widen_row(w, row, col, n, dst, 6);
        break;
    default:
        widen_row(w, row, col, n, dst, 8);
    }
}

void swl_matmul_f_affine_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                              int32_t n_tok, float *out, int64_t ldo)
{
    float wide[ROWS][BLOCK];
    int32_t t0, r0, nt, nr, col, i;
    tile k;

    for (i = 0; i < ROWS; i++)
        k.w[i] = (const uint8_t *)wide[i];
    for (t0 = 0; t0 < n_tok; t0 += HELD)
        for (r0 = 0; r0 < n_rows; r0 += ROWS) {
            nt = min_i32(HELD, n_tok - t0);
            nr = min_i32(ROWS, n_rows - r0);
            set_lanes(&k, nt);
            for (col = 0; col < w->cols; col += BLOCK) {
                k.n = min_i32(BLOCK, w->cols - col);
                for (i = 0; i < nr; i++)
                    widen(w, row0 + r0 + i, col, k.n, wide[i]);
                for (i = 0; i < nt; i++)
                    k.x[i] = a->x + (tok ? tok[t0 + i] : t0 + i) * a->ldx + col;
                multiply_all(&k, SWL_DT_F32, nr, nt);
            }
            store_folded(&k, nr, nt, out + t0 * ldo + r0, ldo);
        }
}
