/*
 * matmul_tile.h: quantised matrices times many tokens (prompts). Eight rows are unpacked once into a panel in the order
 * in which the level's product instruction wants them, so that no sum ever crosses an element; the panel then meets
 * tokens eight at a time, two of them the least. Included by the file of a level, which defines before
 *
 *   OFFSET_8       as in matmul_few.h
 *
 * and after
 *
 *   pack16         sixteen columns of eight rows into the panel (128 bytes)
 *   pack_scales    the scales (or biases) of one unit of eight rows, in the order of the level's sums
 *   multiply_tile  n_tok tokens (2, 4, 6 or 8) against a block of units
 *   fold_pair      the outputs of a pair of tokens from their lanes
 *
 *   lanes   [pair of tokens][16 lanes][16 sums]    the contract's lanes; the level says which sum is which
 */
#ifndef SWL_KERNELS_MATMUL_TILE_H
#define SWL_KERNELS_MATMUL_TILE_H

#include "kernels/arm/quant_neon.h"

enum {
    TILE_ROWS = 8,
    TILE_TOKENS = 8,
    TILE_HELD = 16,    /* tokens whose lanes are kept while a wide matrix goes by block after block of columns */
    TILE_BLOCK = 2048, /* columns of a panel */
    TILE_UNITS = 64
};

typedef struct panel {
    uint8_t codes[TILE_BLOCK * TILE_ROWS];
    float ws[TILE_UNITS][16], wb[TILE_UNITS][16];
} panel;

typedef float pair_lanes[SWL_LANES][16];

/* Activations of the tokens that are multiplied together, at the first column of the block. */
typedef struct tile_act {
    const int8_t *x[TILE_TOKENS];
    float xs[TILE_TOKENS][TILE_UNITS], xi[TILE_TOKENS][TILE_UNITS];
    int32_t sum128[TILE_TOKENS][TILE_UNITS]; /* zeros where the codes are not offset */
} tile_act;

INLINE void pack16(const uint8x16_t v[TILE_ROWS], uint8_t *to);
INLINE void pack_scales(const float s[TILE_ROWS], float to[16]);
INLINE void multiply_tile(const panel *p, const tile_act *a, int32_t n_units, pair_lanes *lanes, int n_tok, int unit,
                          bool offset);
INLINE void fold_pair(const pair_lanes lanes, float out[2][TILE_ROWS]);

/* ---- panel ------------------------------------------------------------------------------------------------------- */

/* Columns [col, col + n) of rows [row, row + n_rows); the last row stands for those that are missing. */
INLINE void unpack_codes(const swl_matrix *w, int64_t row, int32_t n_rows, int32_t col, int32_t n, uint8_t *to,
                         int bits)
{
    const uint8_t *end = matrix_end(w), *at[TILE_ROWS];
    int64_t row_bytes = swl_matrix_row_bytes(w);
    int32_t c, r;

    for (r = 0; r < TILE_ROWS; r++)
        at[r] = w->data + (row + min_i32(r, n_rows - 1)) * row_bytes + (int64_t)col * bits / 8;
    for (c = 0; c < n; c += 16, to += 16 * TILE_ROWS) {
        uint8x16_t v[TILE_ROWS];

        for (r = 0; r < TILE_ROWS; r++) {
            v[r] = unpack16_within(at[r] + c / 8 * bits, bits, end);
            if (OFFSET_8 && bits == 8)
                v[r] = veorq_u8(v[r], vdupq_n_u8(0x80));
        }
        pack16(v, to);
    }
}

static void unpack(const swl_matrix *w, int64_t row, int32_t n_rows, int32_t col, int32_t n, uint8_t *to)
{
    switch (swl_wtype_get(w->type)->bits) {
    case 2:
        unpack_codes(w, row, n_rows, col, n, to, 2);
        break;
    case 3:
        unpack_codes(w, row, n_rows, col, n, to, 3);
        break;
    case 4:
        unpack_codes(w, row, n_rows, col, n, to, 4);
        break;
    case 5:
        unpack_codes(w, row, n_rows, col, n, to, 5);
        break;
    case 6:
        unpack_codes(w, row, n_rows, col, n, to, 6);
        break;
    default:
        unpack_codes(w, row, n_rows, col, n, to, 8);
    }
}

/* Scales (or biases) of units [unit, unit + n), units of `size` columns. */
static void unpack_scales(const swl_matrix *w, const uint8_t *scales, int64_t row, int32_t n_rows, int32_t unit,
                          int32_t n, int32_t size, float (*to)[16])
{
    int32_t per_scale = w->group / size, u, r, i;
    float rows[4][TILE_ROWS], four[4];

    for (u = 0; u < n; u += 4) {
        for (r = 0; r < TILE_ROWS; r++) {
            vst1q_f32(four, unit_scales(w->sdtype, scales, (row + min_i32(r, n_rows - 1)) * (w->cols / w->group),
                                        unit + u, min_i32(4, n - u), per_scale));
            for (i = 0; i < 4; i++)
                rows[i][r] = four[i];
        }
        for (i = 0; i < 4 && u + i < n; i++)
            pack_scales(rows[i], to[u + i]);
    }
}

static void make_panel(panel *p, const swl_matrix *w, int64_t row, int32_t n_rows, int32_t unit, int32_t n,
                       int32_t size)
{
    unpack(w, row, n_rows, unit * size, n * size, p->codes);
    unpack_scales(w, w->scales, row, n_rows, unit, n, size, p->ws);
    unpack_scales(w, w->biases, row, n_rows, unit, n, size, p->wb);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

typedef struct tile_view {
    const swl_matrix *w;
    const swl_act *a;
    const int32_t *tok;
    bool offset;            /* the codes are offset by 128 */
    int32_t unit0, n_units; /* the block of columns */
} tile_view;

/* n_tok tokens from t0 on; the last one stands for a missing partner. */
INLINE void multiply_tokens(const panel *p, const tile_view *v, int32_t t0, int32_t n_tok, pair_lanes *lanes, int unit)
{
    int32_t n = (n_tok + 1) / 2 * 2, t;
    tile_act a;

    for (t = 0; t < n; t++) {
        int32_t i = t0 + min_i32(t, n_tok - 1);
        int64_t row = v->tok ? v->tok[i] : i;

        a.x[t] = v->a->q + row * v->a->ldq + (int64_t)v->unit0 * unit;
        act_units(v->a, row, unit, v->unit0, v->n_units, a.xs[t], a.xi[t], v->offset ? a.sum128[t] : NULL);
    }
    if (n == 8)
        multiply_tile(p, &a, v->n_units, lanes, 8, unit, v->offset);
    else if (n == 6)
        multiply_tile(p, &a, v->n_units, lanes, 6, unit, v->offset);
    else if (n == 4)
        multiply_tile(p, &a, v->n_units, lanes, 4, unit, v->offset);
    else
        multiply_tile(p, &a, v->n_units, lanes, 2, unit, v->offset);
}

static void store_outputs(pair_lanes *lanes, int32_t n_rows, int32_t n_tok, float *out, int64_t ldo)
{
    float pair[2][TILE_ROWS];
    int32_t t;

    for (t = 0; t < n_tok; t++) {
        if (t % 2 == 0)
            fold_pair((const float(*)[16])lanes[t / 2], pair);
        memcpy(out + t * ldo, pair[t % 2], (size_t)n_rows * sizeof *out);
    }
}

/* Eight rows for at most TILE_HELD tokens from t0 on. When a row fits one panel, that of the first tokens is kept. */
INLINE void tile_rows(panel *p, tile_view *v, int64_t row, int32_t n_rows, int32_t t0, int32_t n_tok, float *out,
                      int64_t ldo, int unit)
{
    int32_t units = v->w->cols / unit, block = min_i32(TILE_UNITS, TILE_BLOCK / unit), t;
    pair_lanes lanes[TILE_HELD / 2];

    memset(lanes, 0, sizeof lanes);
    for (v->unit0 = 0; v->unit0 < units; v->unit0 += block) {
        v->n_units = min_i32(block, units - v->unit0);
        if (t0 == 0 || units > block)
            make_panel(p, v->w, row, n_rows, v->unit0, v->n_units, unit);
        for (t = 0; t < n_tok; t += TILE_TOKENS)
            multiply_tokens(p, v, t0 + t, min_i32(TILE_TOKENS, n_tok - t), lanes + t / 2, unit);
    }
    store_outputs(lanes, n_rows, n_tok, out + t0 * ldo, ldo);
}

static void tiles_64(panel *p, tile_view *v, int64_t row, int32_t n_rows, int32_t t0, int32_t n_tok, float *out,
                     int64_t ldo)
{
    tile_rows(p, v, row, n_rows, t0, n_tok, out, ldo, 64);
}

static void tiles_32(panel *p, tile_view *v, int64_t row, int32_t n_rows, int32_t t0, int32_t n_tok, float *out,
                     int64_t ldo)
{
    tile_rows(p, v, row, n_rows, t0, n_tok, out, ldo, 32);
}

static void tiles_16(panel *p, tile_view *v, int64_t row, int32_t n_rows, int32_t t0, int32_t n_tok, float *out,
                     int64_t ldo)
{
    tile_rows(p, v, row, n_rows, t0, n_tok, out, ldo, 16);
}

static void matmul_tiles(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                         int32_t n_tok, float *out, int64_t ldo)
{
    tile_view v = {w, a, tok, OFFSET_8 && w->type == SWL_W_A8, 0, 0};
    int32_t r, t;
    panel p;

    for (r = 0; r < n_rows; r += TILE_ROWS)
        for (t = 0; t < n_tok; t += TILE_HELD)
            (w->group >= 64   ? tiles_64
             : w->group == 32 ? tiles_32
                              : tiles_16)(&p, &v, row0 + r, min_i32(TILE_ROWS, n_rows - r), t,
                                          min_i32(TILE_HELD, n_tok - t), out + r, ldo);
}

#endif
