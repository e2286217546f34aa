/*
 * matmul_tile_avx512.c: quantised matrices times many tokens (prompts). Sixteen rows are unpacked once into a panel
 * whose registers hold four columns of all sixteen rows, so that a lane is a row and no sum ever crosses lanes; each
 * panel register is then used for a group of tokens, whose activations are broadcast four bytes at a time.
 *
 *   panel   [column / 4][16 rows][4]     codes as bytes
 *   scales  [unit][16 rows]              float32, biases the same
 *   lanes   [token][16 lanes][16 rows]   the contract's lanes, folded at the end
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx512.h"

enum {
    ROWS = 16,
    TOKENS = 8,   /* in registers together */
    HELD = 16,    /* tokens whose lanes are kept while a wide matrix goes by block after block of columns */
    BLOCK = 2048, /* columns of a panel */
    BLOCK_UNITS = 64
};

typedef struct panel {
    alignas(64) uint8_t codes[BLOCK * ROWS];
    float ws[BLOCK_UNITS][ROWS], wb[BLOCK_UNITS][ROWS];
} panel;

typedef struct lanes {
    alignas(64) float at[HELD][SWL_LANES][ROWS];
} lanes;

/* 16 x 16 elements of 32 bits. */
INLINE void transpose(__m512i *v)
{
    __m512i t[16];
    int i;

#pragma GCC unroll 8
    for (i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88), b = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        __m512i c = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd), d = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);

        v[i] = _mm512_shuffle_i32x4(a, b, 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(a, b, 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(c, d, 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

/* ---- panel
 * ------------------------------------------------------------------------------------------------------------- */

/* Eight codes of four bits in each 32-bit element; the first four of both elements of a 64-bit word, or the last four.
 */
INLINE void split_nibbles(__m512i v, uint8_t *to)
{
    const __m512i first = _mm512_set1_epi64(0x2c2824200c080400), last = _mm512_set1_epi64(0x3c3834301c181410);
    const __m512i nibble = _mm512_set1_epi8(15);

    _mm512_store_si512(to, _mm512_and_si512(_mm512_multishift_epi64_epi8(first, v), nibble));
    _mm512_store_si512(to + 64, _mm512_and_si512(_mm512_multishift_epi64_epi8(last, v), nibble));
}

/* Columns [col, col + n) of rows [row, row + n_rows); the last row stands for those that are missing. */
INLINE void unpack_codes(const swl_matrix *w, int64_t row, int32_t n_rows, int32_t col, int32_t n, int bits,
                         uint8_t *to)
{
    int64_t row_bytes = swl_matrix_row_bytes(w);
    const uint8_t *base = w->data + row * row_bytes + (int64_t)col * bits / 8;
    int step = bits == 4 ? 128 : 64, i;
    int32_t c;

    for (c = 0; c < n; c += step) {
        __m512i v[16];

#pragma GCC unroll 16
        for (i = 0; i < 16; i++) {
            const uint8_t *p = base + min_i32(i, n_rows - 1) * row_bytes + (int64_t)c * bits / 8;

            v[i] = bits == 4 ? load_bytes(p, (n - c) / 2) : load_codes(p, bits, (int64_t)(n - c) * bits / 8);
        }
        transpose(v);
#pragma GCC unroll 16
        for (i = 0; i < 16; i++)
            if (bits == 4)
                split_nibbles(v[i], to + c * ROWS + 128 * i);
            else
                _mm512_store_si512(to + c * ROWS + 64 * i, v[i]);
    }
}

INLINE void unpack_scales(const swl_matrix *w, const uint8_t *scales, int64_t row, int32_t n_rows, int32_t unit,
                          int32_t n, int32_t per_scale, float (*to)[ROWS])
{
    int64_t row_scales = w->cols / w->group;
    int32_t u, i;

    for (u = 0; u < n; u += 16) {
        __m512i v[16];

        for (i = 0; i < 16; i++)
            v[i] = _mm512_castps_si512(unit_scales(w->sdtype, scales, (row + min_i32(i, n_rows - 1)) * row_scales,
                                                   unit + u, min_i32(16, n - u), per_scale));
        transpose(v);
        for (i = 0; i < 16; i++)
            _mm512_store_si512(to[u + i], v[i]);
    }
}

/* ---- products
 * ---------------------------------------------------------------------------------------------------------- */

INLINE __m512i four_bytes(const int8_t *p)
{
    int32_t v;

    __builtin_memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

/* n_tok tokens (a constant) against a block of n_units units. */
INLINE void multiply(const panel *p, const int8_t *const *x, const float (*xs)[BLOCK_UNITS],
                     const float (*xi)[BLOCK_UNITS], int32_t n_units, float (*lane)[SWL_LANES][ROWS], int n_tok,
                     int unit)
{
    const uint8_t *codes = p->codes;
    int32_t u, t;
    int i;

    for (u = 0; u < n_units; u++) {
        __m512i acc[TOKENS];
        __m512 ws = _mm512_load_ps(p->ws[u]), wb = _mm512_load_ps(p->wb[u]);

#pragma GCC unroll 8
        for (t = 0; t < n_tok; t++)
            acc[t] = _mm512_setzero_si512();
#pragma GCC unroll 16
        for (i = 0; i < unit / 4; i++, codes += 64) {
            __m512i w = _mm512_load_si512(codes);

#pragma GCC unroll 8
            for (t = 0; t < n_tok; t++)
                acc[t] = _mm512_dpbusd_epi32(acc[t], w, four_bytes(x[t] + u * unit + 4 * i));
        }
#pragma GCC unroll 8
        for (t = 0; t < n_tok; t++) {
            float *l = lane[t][u % SWL_LANES];
            __m512 f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t]), _mm512_mul_ps(ws, _mm512_set1_ps(xs[t][u])),
                                       _mm512_load_ps(l));

            _mm512_store_ps(l, _mm512_fmadd_ps(wb, _mm512_set1_ps(xi[t][u]), f));
        }
    }
}

typedef struct group {
    const swl_act *a;
    const int32_t *tok;
    int32_t unit0, n_units;
} group;

INLINE void multiply_group(const panel *p, const group *g, int32_t t0, int32_t n, float (*lane)[SWL_LANES][ROWS],
                           int unit)
{
    alignas(64) float xs[TOKENS][BLOCK_UNITS], xi[TOKENS][BLOCK_UNITS];
    const int8_t *x[TOKENS];
    int32_t t, u;

    for (t = 0; t < n; t++) {
        int64_t row = g->tok ? g->tok[t0 + t] : t0 + t;

        x[t] = g->a->q + row * g->a->ldq + (int64_t)g->unit0 * unit;
        for (u = 0; u < g->n_units; u += 16)
            act_units(g->a, row, unit, g->unit0 + u, min_i32(16, g->n_units - u), xs[t] + u, xi[t] + u);
    }
    switch (n) {
    case 1:
        multiply(p, x, xs, xi, g->n_units, lane, 1, unit);
        break;
    case 2:
        multiply(p, x, xs, xi, g->n_units, lane, 2, unit);
        break;
    case 3:
        multiply(p, x, xs, xi, g->n_units, lane, 3, unit);
        break;
    case 4:
        multiply(p, x, xs, xi, g->n_units, lane, 4, unit);
        break;
    case 5:
        multiply(p, x, xs, xi, g->n_units, lane, 5, unit);
        break;
    case 6:
        multiply(p, x, xs, xi, g->n_units, lane, 6, unit);
        break;
    case 7:
        multiply(p, x, xs, xi, g->n_units, lane, 7, unit);
        break;
    default:
        multiply(p, x, xs, xi, g->n_units, lane, 8, unit);
    }
}

static void clear_lanes(float (*lane)[SWL_LANES][ROWS], int32_t n)
{
    int32_t t, i;

    for (t = 0; t < n; t++)
        for (i = 0; i < SWL_LANES; i++)
            _mm512_store_ps(lane[t][i], _mm512_setzero_ps());
}

/* The fold of the lanes, for all sixteen rows at once. */
static void store_folded(float (*lane)[ROWS], float *out, __mmask16 rows)
{
    __m512 v[SWL_LANES];
    int half, i;

#pragma GCC unroll 16
    for (i = 0; i < SWL_LANES; i++)
        v[i] = _mm512_load_ps(lane[i]);
#pragma GCC unroll 4
    for (half = 8; half; half /= 2)
#pragma GCC unroll 8
        for (i = 0; i < half; i++)
            v[i] = _mm512_add_ps(v[i], v[i + half]);
    _mm512_mask_storeu_ps(out, rows, v[0]);
}

/* ---- loops
 * ------------------------------------------------------------------------------------------------------------- */

/* Sixteen rows for tokens [t0, t0 + n): groups of equal size as far as possible, since a group of eight costs little
 * more than a group of five. When the row fits one panel, the panel is made by the caller, once for all tokens. */
INLINE void tile_tokens(panel *p, lanes *l, const swl_matrix *w, int64_t row, int32_t n_rows, group *g, int32_t t0,
                        int32_t n, bool made, float *out, int64_t ldo, int bits, int unit)
{
    int32_t units = w->cols / unit, block = unit == 16 ? 64 : BLOCK / unit, n_groups = (n + TOKENS - 1) / TOKENS, i, t,
            end;

    clear_lanes(l->at, n);
    for (g->unit0 = 0; g->unit0 < units; g->unit0 += block) {
        g->n_units = min_i32(block, units - g->unit0);
        if (!made) {
            unpack_codes(w, row, n_rows, g->unit0 * unit, g->n_units * unit, bits, p->codes);
            unpack_scales(w, w->scales, row, n_rows, g->unit0, g->n_units, w->group > 64 ? 2 : 1, p->ws);
            unpack_scales(w, w->biases, row, n_rows, g->unit0, g->n_units, w->group > 64 ? 2 : 1, p->wb);
        }
        for (i = 0, t = 0; i < n_groups; i++, t = end) {
            end = n * (i + 1) / n_groups;
            multiply_group(p, g, t0 + t, end - t, l->at + t, unit);
        }
    }
    for (t = 0; t < n; t++)
        store_folded(l->at[t], out + (t0 + t) * ldo, low16(n_rows));
}

INLINE void tiles(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                  int32_t n_tok, float *out, int64_t ldo, int bits, int unit)
{
    panel p;
    lanes l;
    group g = {a, tok, 0, 0};
    bool one = w->cols / unit <= (unit == 16 ? 64 : BLOCK / unit);
    int32_t r, t, n, rows;

    for (r = 0; r < n_rows; r += ROWS) {
        rows = min_i32(ROWS, n_rows - r);
        for (t = 0; t < n_tok; t += n) {
            n = min_i32(HELD, n_tok - t);
            tile_tokens(&p, &l, w, row0 + r, rows, &g, t, n, one && t > 0, out + r, ldo, bits, unit);
        }
    }
}

INLINE void matmul_tile(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                        int32_t n_tok, float *out, int64_t ldo, int bits)
{
    if (w->group >= 64)
        tiles(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, 64);
    else if (w->group == 32)
        tiles(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, 32);
    else
        tiles(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, 16);
}

void swl_matmul_tile_a2_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                               int32_t n_tok, float *out, int64_t ldo)
{
    matmul_tile(w, row0, n_rows, a, tok, n_tok, out, ldo, 2);
}

void swl_matmul_tile_a3_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                               int32_t n_tok, float *out, int64_t ldo)
{
    matmul_tile(w, row0, n_rows, a, tok, n_tok, out, ldo, 3);
}

void swl_matmul_tile_a4_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                               int32_t n_tok, float *out, int64_t ldo)
{
    matmul_tile(w, row0, n_rows, a, tok, n_tok, out, ldo, 4);
}

void swl_matmul_tile_a5_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                               int32_t n_tok, float *out, int64_t ldo)
{
    matmul_tile(w, row0, n_rows, a, tok, n_tok, out, ldo, 5);
}

void swl_matmul_tile_a6_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                               int32_t n_tok, float *out, int64_t ldo)
{
    matmul_tile(w, row0, n_rows, a, tok, n_tok, out, ldo, 6);
}

void swl_matmul_tile_a8_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                               int32_t n_tok, float *out, int64_t ldo)
{
    matmul_tile(w, row0, n_rows, a, tok, n_tok, out, ldo, 8);
}
