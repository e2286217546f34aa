/*
 * matmul_few_avx512.c: matrices of four and eight bits times three to eight tokens. Lanes are rows, as in the tiles for
 * many tokens, but nothing is unpacked into memory: sixteen bytes of sixteen rows become four registers, which all
 * tokens use while the next four are put together, so that shuffles and products overlap. The order of the units and
 * the stacks of branches are those of tile_avx512.h.
 *
 *   x       [unit][token][unit columns]     int8; four bits: of eight columns the even ones first
 *   xs, xi  [unit][token]                   scale, and scale times sum
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/tile_avx512.h"

enum {
    TOKENS = SWL_FEW_AVX512,
    AHEAD = 6144 /* bytes, beyond the tile at work, that are asked for in time */
};

/* A part of memory that is asked for from end to end, and where it goes on. */
typedef struct stream {
    const uint8_t *p, *end, *next;
} stream;

typedef struct few {
    const swl_matrix *w;
    int64_t row_bytes;
    int32_t scale_shift; /* 1: two units share a scale */
    stream codes, scales, biases;
    order o;
    alignas(64) float ws[UNITS_MAX][ROWS], wb[UNITS_MAX][ROWS];
    alignas(64) int8_t x[UNITS_MAX * TOKENS * 64];
    float xs[UNITS_MAX * TOKENS], xi[UNITS_MAX * TOKENS];
    alignas(64) float stack[2 * DEPTH][TOKENS][ROWS];
} few;

/* ---- what comes next ------------------------------------------------------------------------------------- */

/* The bytes [p, end) from `ahead` on: what is before has been asked for as what comes next of the call before. Where
 * nothing is known to come next, these are asked for again. */
static stream stream_of(const uint8_t *p, const uint8_t *end, int64_t ahead, const uint8_t *next)
{
    return (stream){p + ahead, end, next ? next : p};
}

INLINE void ask_ahead(stream *s, int n_lines)
{
    int i;

    if (s->p >= s->end) {
        s->p = s->next + (s->p - s->end);
        s->end = (const uint8_t *)UINTPTR_MAX;
    }
#pragma GCC unroll 16
    for (i = 0; i < n_lines; i++)
        _mm_prefetch((const char *)(s->p + 64 * i), _MM_HINT_T1);
    s->p += 64 * n_lines;
}

static void open_streams(few *f, int64_t row0, int64_t n_rows)
{
    const swl_matrix *w = f->w;
    int64_t side = swl_matrix_scale_bytes(w), lead = ROWS * f->row_bytes + AHEAD, side_lead = lead * side / f->row_bytes;

    f->codes = stream_of(w->data + row0 * f->row_bytes, w->data + (row0 + n_rows) * f->row_bytes, lead, w->next.data);
    f->scales = stream_of(w->scales + row0 * side, w->scales + (row0 + n_rows) * side, side_lead, w->next.scales);
    f->biases = stream_of(w->biases + row0 * side, w->biases + (row0 + n_rows) * side, side_lead, w->next.biases);
}

/* ---- activations ----------------------------------------------------------------------------------------- */

/* A unit's activations. */
INLINE void load_x(int8_t *to, const int8_t *q, int bits, int unit)
{
    __m512i v = _mm512_maskz_loadu_epi8(low64(unit), q);

    _mm512_mask_storeu_epi8(to, low64(unit), bits == 4 ? _mm512_shuffle_epi8(v, in_eights()) : v);
}

INLINE void load_tokens(few *f, const swl_act *a, const int32_t *tok, int n, int bits, int unit)
{
    alignas(64) float xs[16], xi[16];
    int32_t t, u, i;

    for (t = 0; t < n; t++) {
        int64_t row = tok ? tok[t] : t;

        for (u = 0; u < f->o.n_units; u++)
            load_x(f->x + ((int64_t)u * n + t) * unit, a->q + row * a->ldq + (int64_t)u * unit, bits, unit);
        for (u = 0; u < f->o.n_units; u += 16) {
            __m512 v;

            _mm512_store_ps(xs, act_units(a, row, unit, u, min_i32(16, f->o.n_units - u), &v));
            _mm512_store_ps(xi, v);
            for (i = 0; i < 16 && u + i < f->o.n_units; i++) {
                f->xs[(u + i) * n + t] = xs[i];
                f->xi[(u + i) * n + t] = xi[i];
            }
        }
    }
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* Four registers of codes times n tokens, whose units are `unit` bytes apart. Up to four tokens have two sums each, which
 * hides the latency of the products. */
INLINE void add_dots(__m512i *acc, const __m512i *w, const int8_t *x, int n, int bits, int unit)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    int two = n <= 4, i, j;

#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        __m512i low = bits == 4 ? _mm512_and_si512(w[i], nibble) : w[i], high;

#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            acc[j + (bits == 8 && two ? i % 2 * n : 0)] =
                dot4(acc[j + (bits == 8 && two ? i % 2 * n : 0)], low, x + unit * j + 32 / bits * i);
        if (bits == 8)
            continue;
        high = _mm512_and_si512(_mm512_srli_epi16(w[i], 4), nibble);
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            acc[j + two * n] = dot4(acc[j + two * n], high, x + unit * j + 8 * i + 4);
    }
}

/* A unit's sums into its lane, and branches that end with it together. */
INLINE void close_unit(few *f, const place *p, const __m512i *acc, int n)
{
    const float *xs = f->xs + p->unit * n, *xi = f->xi + p->unit * n;
    float *top = f->stack[p->at][0];
    __m512 ws = _mm512_load_ps(f->ws[p->unit >> f->scale_shift]), wb = _mm512_load_ps(f->wb[p->unit >> f->scale_shift]);
    __m512 lane[TOKENS];
    int32_t m;
    int j;

#pragma GCC unroll 8
    for (j = 0; j < n; j++) {
        __m512 dot = _mm512_cvtepi32_ps(n <= 4 ? _mm512_add_epi32(acc[j], acc[j + n]) : acc[j]);

        lane[j] = p->goes_on ? _mm512_load_ps(top + j * ROWS) : _mm512_setzero_ps();
        lane[j] = _mm512_fmadd_ps(dot, _mm512_mul_ps(ws, _mm512_set1_ps(xs[j])), lane[j]);
        lane[j] = _mm512_fmadd_ps(wb, _mm512_set1_ps(xi[j]), lane[j]);
    }
    for (m = 0; m < p->merges; m++) {
        top -= TOKENS * ROWS;
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            lane[j] = _mm512_add_ps(_mm512_load_ps(top + j * ROWS), lane[j]);
    }
#pragma GCC unroll 8
    for (j = 0; j < n; j++)
        _mm512_store_ps(top + j * ROWS, lane[j]);
}

/* Quarter `q` of a unit, which is in w; the one after it takes its place there. */
INLINE void add_quarter(few *f, const place *p, const uint8_t *row, int q, __m512i *w, __m512i *acc, int n, int bits,
                        int unit)
{
    int quarters = unit * bits / 128, j;
    int64_t at = q + 1 < quarters ? (int64_t)p->unit * quarters + q + 1 : (int64_t)p[1].unit * quarters;
    __m512i ahead[4];

    ask_ahead(&f->codes, 4); /* as many lines as a quarter has; all of a unit's at once wait for each other */
    load_quarter(row + 16 * at, f->row_bytes, ahead);
    add_dots(acc, w, f->x + (int64_t)p->unit * unit * n + 128 / bits * q, n, bits, unit);
#pragma GCC unroll 4
    for (j = 0; j < 4; j++)
        w[j] = ahead[j];
}

/* Sixteen rows, n tokens (a constant). */
INLINE void run_tile(few *f, const uint8_t *row, int n, int bits, int unit, float *out, int64_t ldo)
{
    __m512i w[4], acc[TOKENS];
    int32_t i;
    int q, j;

    load_quarter(row + (int64_t)f->o.place[0].unit * (unit * bits / 8), f->row_bytes, w);
    for (i = 0; i < f->o.n_units; i++) {
        const place *p = &f->o.place[i];

#pragma GCC unroll 8
        for (j = 0; j < TOKENS; j++)
            acc[j] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (q = 0; q < 4; q++)
            if (q < unit * bits / 128)
                add_quarter(f, p, row, q, w, acc, n, bits, unit);
        close_unit(f, p, acc, n);
    }
#pragma GCC unroll 8
    for (j = 0; j < n; j++) {
        __m512 odd = _mm512_load_ps(f->stack[DEPTH][j]);

        _mm512_storeu_ps(out + j * ldo, close_tree(&f->o, _mm512_load_ps(f->stack[0][j]), odd));
    }
}

/* The last tile ends with the last row, so it may do rows again that the one before has done. */
INLINE void run(few *f, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok, float *out, int64_t ldo, int n,
                int bits, int unit)
{
    const swl_matrix *w = f->w;
    int side = (int)(ROWS * swl_matrix_scale_bytes(w) / 64);
    int32_t r, done;

    place_units(&f->o, w->cols / unit);
    load_tokens(f, a, tok, n, bits, unit);
    open_streams(f, row0, n_rows);
    for (done = 0; done < n_rows; done = r + ROWS) {
        r = min_i32(done, n_rows - ROWS);
        ask_ahead(&f->scales, side);
        ask_ahead(&f->biases, side);
        unpack_scales(w, w->scales, row0 + r, ROWS, f->ws);
        unpack_scales(w, w->biases, row0 + r, ROWS, f->wb);
        run_tile(f, w->data + (row0 + r) * f->row_bytes, n, bits, unit, out + r, ldo);
    }
}

/* A loop of its own for each number of tokens. */
INLINE void run_any(few *f, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok, int32_t n_tok, float *out,
                    int64_t ldo, int bits, int unit)
{
    if (n_tok == 3)
        run(f, row0, n_rows, a, tok, out, ldo, 3, bits, unit);
    else if (n_tok == 4)
        run(f, row0, n_rows, a, tok, out, ldo, 4, bits, unit);
    else if (n_tok == 5)
        run(f, row0, n_rows, a, tok, out, ldo, 5, bits, unit);
    else if (n_tok == 6)
        run(f, row0, n_rows, a, tok, out, ldo, 6, bits, unit);
    else if (n_tok == 7)
        run(f, row0, n_rows, a, tok, out, ldo, 7, bits, unit);
    else
        run(f, row0, n_rows, a, tok, out, ldo, 8, bits, unit);
}

bool swl_matmul_few_fits_avx512(const swl_matrix *w, int32_t n_rows)
{
    return n_rows >= ROWS && (w->type == SWL_W_A4 || w->type == SWL_W_A8) && w->group >= 32 &&
           swl_matmul_tile_fits_avx512(w);
}

void swl_matmul_few_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    few f;

    f.w = w;
    f.row_bytes = swl_matrix_row_bytes(w);
    f.scale_shift = w->group > 64;
    if (w->type == SWL_W_A4 && w->group == 32)
        run_any(&f, row0, n_rows, a, tok, n_tok, out, ldo, 4, 32);
    else if (w->type == SWL_W_A4)
        run_any(&f, row0, n_rows, a, tok, n_tok, out, ldo, 4, 64);
    else if (w->group == 32)
        run_any(&f, row0, n_rows, a, tok, n_tok, out, ldo, 8, 32);
    else
        run_any(&f, row0, n_rows, a, tok, n_tok, out, ldo, 8, 64);
}
