/*
 * matmul_q_avx512.c: quantised matrices times one or a few tokens, straight from the bytes as stored. Sixteen units of
 * a row at a time: byte products summed by vpdpbusd, then a tree of shuffles and adds that leaves unit u in lane u,
 * which is where the contract wants it; scales and biases of sixteen units are neighbours in memory and enter as
 * vectors.
 *
 * Four-bit rows are not put into column order. 64 bytes are 128 columns: the low nibbles are the even ones, the high
 * nibbles the odd ones, and the activation is split the same way once per call.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx512.h"
#include "kernels/x86/rows_q.h"

enum {
    FEW = 4,      /* tokens that share a pass over the rows */
    SOME = 5,     /* tokens from which on unpacking rows of four or eight bits into tiles pays */
    MANY = 7,     /* and any rows */
    ROWS = 16,    /* rows whose lanes are folded together */
    BLOCK = 8192, /* columns whose activations are prepared at a time */
    AHEAD = 6144, /* bytes between what is multiplied and what is asked for; processors themselves look less far */
    MAX_UNITS = BLOCK / 16
};

typedef struct prepared {
    alignas(64) int8_t x[FEW][BLOCK]; /* in the order of the codes */
    float xs[FEW][MAX_UNITS], xi[FEW][MAX_UNITS];
} prepared;

/* ---- activations ----------------------------------------------------------------------------------------- */

static void split_even_odd(const int8_t *q, int32_t n, int8_t *x)
{
    __m512i index = _mm512_setzero_si512(), one = _mm512_set1_epi8(1), a, b;
    uint8_t ids[64];
    int32_t i;

    for (i = 0; i < 64; i++)
        ids[i] = (uint8_t)(2 * i);
    index = _mm512_loadu_si512(ids);
    for (i = 0; i < n; i += 128) {
        a = load_bytes(q + i, n - i);
        b = load_bytes(q + i + 64, n - i - 64);
        _mm512_storeu_si512(x + i, _mm512_permutex2var_epi8(a, index, b));
        _mm512_storeu_si512(x + i + 64, _mm512_permutex2var_epi8(a, _mm512_or_si512(index, one), b));
    }
}

static void copy_padded(const int8_t *q, int32_t n, int8_t *x)
{
    int32_t i;

    for (i = 0; i < n; i += 64)
        _mm512_storeu_si512(x + i, load_bytes(q + i, n - i));
}

/* twice: the block is half a batch, and a second copy follows it, for the row that follows in memory. */
INLINE void prepare(prepared *p, const swl_act *a, const int32_t *tok, const view *v, int bits, int unit, bool twice)
{
    int32_t n = v->n_units * unit, padded = (n + 16 * unit - 1) / (16 * unit) * 16 * unit, t, u;
    __m512 xi;

    for (t = 0; t < v->n_tok; t++) {
        int64_t row = tok ? tok[t] : t;
        const int8_t *q = a->q + row * a->ldq + (int64_t)v->unit0 * unit;

        for (u = 0; u < padded; u += 64)
            _mm512_storeu_si512(p->x[t] + u, _mm512_setzero_si512());
        if (bits == 4)
            split_even_odd(q, n, p->x[t]);
        else
            copy_padded(q, n, p->x[t]);
        for (u = 0; u < v->n_units; u += 16) {
            _mm512_storeu_ps(p->xs[t] + u, act_units(a, row, unit, v->unit0 + u, min_i32(16, v->n_units - u), &xi));
            _mm512_storeu_ps(p->xi[t] + u, xi);
        }
        if (twice) {
            for (u = 0; u < n; u += 64)
                _mm512_storeu_si512(p->x[t] + n + u, _mm512_loadu_si512(p->x[t] + u));
            _mm256_storeu_ps(p->xs[t] + 8, _mm256_loadu_ps(p->xs[t]));
            _mm256_storeu_ps(p->xi[t] + 8, _mm256_loadu_ps(p->xi[t]));
        }
    }
}

/* ---- sums of units --------------------------------------------------------------------------------------- */

/* Per 128-bit lane: the sums of the lane's four elements of a, b, c, d. */
INLINE __m512i add_quads(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));

    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Sums of neighbours, per 128-bit lane of (a, b); all elements and sums fit 16 bits. */
INLINE __m512i add_pairs_16(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* Neighbouring 128-bit lanes added: (a0 + a1, a2 + a3, b0 + b1, b2 + b3). */
INLINE __m512i add_lanes(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Column order, one register for 64 columns: unit 64: 16 registers, 32: 8, 16: 4. */
INLINE __m512i dots_plain(const __m512i *q, const int8_t *x, int unit)
{
    __m512i acc[16], r[4];
    int i, n = unit / 4;

#pragma GCC unroll 16
    for (i = 0; i < n; i++)
        acc[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q[i], _mm512_loadu_si512(x + 64 * i));
#pragma GCC unroll 4
    for (i = 0; i < n / 4; i++)
        r[i] = add_quads(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
    if (unit == 64)
        return add_lanes(add_lanes(r[0], r[1]), add_lanes(r[2], r[3]));
    if (unit == 32)
        return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15),
                                        add_lanes(r[0], r[1]));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), r[0]);
}

/*
 * Even and odd columns of 128 in two registers: unit 64: 16 registers, 32: 8, 16: 4. A lane of acc holds eight products
 * of at most 15 * 127, sums of two lanes still fit 16 bits.
 */
INLINE __m512i dots_a4(const __m512i *q, const int8_t *x, int unit)
{
    __m512i acc[8], r[2];
    int i, n = unit / 8;

#pragma GCC unroll 8
    for (i = 0; i < n; i++) {
        acc[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q[2 * i], _mm512_loadu_si512(x + 128 * i));
        acc[i] = _mm512_dpbusd_epi32(acc[i], q[2 * i + 1], _mm512_loadu_si512(x + 128 * i + 64));
    }
    if (unit == 16)
        return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15),
                                        add_pairs_16(acc[0], acc[1]));
#pragma GCC unroll 2
    for (i = 0; i < n / 4; i++)
        r[i] = add_pairs_16(add_pairs_16(acc[4 * i], acc[4 * i + 1]), add_pairs_16(acc[4 * i + 2], acc[4 * i + 3]));
    if (unit == 64)
        return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15),
                                        add_lanes(r[0], r[1]));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), r[0]);
}

/* Asks for what lies ahead of the lines that begin in bytes [from, to) of the place. near: straight into the first cache. */
INLINE void ask_for_codes(const place *at, int from, int to, bool near)
{
    int i;

#pragma GCC unroll 2
    for (i = (from + 63) / 64 * 64; i < to; i += 64)
        ask(at->codes + i, at->codes_ahead, 64, near ? ASK_PAST : ASK_SECOND);
}

/* The codes of sixteen units, of which `left` bytes may be read. Requests follow the loads one by one: all of them ahead of
 * the loads, they cost up to a tenth of the rate (docs/measuring.md, What bounds decode). */
INLINE void load_batch(const place *at, int bits, int unit, int64_t left, bool near, __m512i *q)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    int i, n = unit / 4, width = 8 * bits;

    if (bits != 4) {
#pragma GCC unroll 16
        for (i = 0; i < n; i++) {
            q[i] = load_codes(at->codes + width * i, bits, left - width * i);
            ask_for_codes(at, width * i, width * (i + 1), near);
        }
        return;
    }
#pragma GCC unroll 8
    for (i = 0; i < n / 2; i++) {
        __m512i v = load_bytes(at->codes + 64 * i, left - 64 * i);

        ask_for_codes(at, 64 * i, 64 * (i + 1), near);
        q[2 * i] = _mm512_and_si512(v, nibble);
        q[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
    }
}

/* Sixteen units' codes with their scales. */
typedef struct chunk {
    __m512i q[16];
    __m512 ws, wb;
} chunk;

/* The next n <= 16 units, after which the place is behind them. near: codes past the other caches; scales, whose lines are
 * used more than once, not. */
INLINE chunk load_chunk(const view *v, place *at, int32_t n, int bits, int unit, bool near)
{
    chunk c;

    if (((at->scales - v->w->scales) & 63) < 32) { /* once for each line, about */
        ask(at->scales, at->scales_ahead, 64, near ? ASK_FIRST : ASK_SECOND);
        ask(at->biases, at->biases_ahead, 64, near ? ASK_FIRST : ASK_SECOND);
    }
    c.ws = unit_scales(v->sdtype, at->scales, 0, 0, n, v->per_scale);
    c.wb = unit_scales(v->sdtype, at->biases, 0, 0, n, v->per_scale);
    load_batch(at, bits, unit, n == 16 ? 1024 : (int64_t)n * unit * bits / 8, near, c.q);
    go_on(v, at, n, bits, unit);
    return c;
}

/* One token's lanes after a chunk. */
INLINE __m512 add_chunk(__m512 lane, const chunk *c, const prepared *p, int32_t t, int32_t u, int32_t n, int bits,
                        int unit)
{
    const int8_t *x = p->x[t] + u * unit;
    __m512i idot = bits == 4 ? dots_a4(c->q, x, unit) : dots_plain(c->q, x, unit);
    __m512 s = _mm512_mul_ps(c->ws, _mm512_loadu_ps(p->xs[t] + u));

    lane = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(idot), s, lane, low16(n));
    return _mm512_mask3_fmadd_ps(c->wb, _mm512_loadu_ps(p->xi[t] + u), lane, low16(n));
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

INLINE __m512 start_lanes(const view *v, const float *lane)
{
    return v->unit0 ? _mm512_load_ps(lane) : _mm512_setzero_ps();
}

/* One token keeps its lanes in a register for the whole row. */
INLINE void row_one_token(const view *v, const prepared *p, place *at, int bits, int unit, bool near, float *lane)
{
    __m512 l = start_lanes(v, lane);
    int32_t u;
    chunk c;

    for (u = 0; u + 16 <= v->n_units; u += 16) {
        c = load_chunk(v, at, 16, bits, unit, near);
        l = add_chunk(l, &c, p, 0, u, 16, bits, unit);
    }
    if (u < v->n_units) {
        c = load_chunk(v, at, v->n_units - u, bits, unit, near);
        l = add_chunk(l, &c, p, 0, u, v->n_units - u, bits, unit);
    }
    _mm512_store_ps(lane, l);
}

INLINE void chunk_few_tokens(const view *v, const prepared *p, place *at, int32_t u, int32_t n, int bits, int unit,
                             bool near, float *lane)
{
    chunk c = load_chunk(v, at, n, bits, unit, near);
    int32_t t;

    for (t = 0; t < v->n_tok; t++, lane += ROWS * SWL_LANES)
        _mm512_store_ps(lane, add_chunk(_mm512_load_ps(lane), &c, p, t, u, n, bits, unit));
}

/* Several tokens share the unpacked codes. lane: [token][ROWS][16]. */
INLINE void row_few_tokens(const view *v, const prepared *p, place *at, int bits, int unit, bool near, float *lane)
{
    int32_t u, t;

    for (t = 0; t < v->n_tok; t++)
        _mm512_store_ps(lane + t * ROWS * SWL_LANES, start_lanes(v, lane + t * ROWS * SWL_LANES));
    for (u = 0; u + 16 <= v->n_units; u += 16)
        chunk_few_tokens(v, p, at, u, 16, bits, unit, near, lane);
    if (u < v->n_units)
        chunk_few_tokens(v, p, at, u, v->n_units - u, bits, unit, near, lane);
}

/* Rows of eight units: two neighbours make one chunk. Each keeps eight lanes, the others stay 0. */
INLINE void two_rows(const view *v, const prepared *p, place *at, int bits, int unit, bool near, float *lane)
{
    chunk c = load_chunk(v, at, 16, bits, unit, near);
    int32_t t;

    for (t = 0; t < v->n_tok; t++, lane += ROWS * SWL_LANES) {
        __m512 l = add_chunk(_mm512_setzero_ps(), &c, p, t, 0, 16, bits, unit);

        _mm512_store_ps(lane, _mm512_maskz_mov_ps(0xff, l));
        _mm512_store_ps(lane + SWL_LANES, _mm512_maskz_shuffle_f32x4(0xff, l, l, 0xee));
    }
}

/* sdtype and per_scale are those of w. */
INLINE void few_tokens(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                       int32_t n_tok, float *out, int64_t ldo, int bits, int unit, bool near, swl_dtype sdtype,
                       int32_t per_scale)
{
    alignas(64) float lanes[FEW][ROWS][SWL_LANES];
    prepared p;
    view v = view_of(w, row0 + (int64_t)n_rows, n_tok, AHEAD, sdtype, per_scale);
    int32_t units = w->cols / unit, block = BLOCK / unit, r0, r, n, t;
    bool pairs = units == 8 && per_scale == 1;
    place at = place_of(&v, row0, bits, unit);

    for (r0 = 0; r0 < n_rows; r0 += ROWS) {
        n = min_i32(ROWS, n_rows - r0);
        for (v.unit0 = 0; v.unit0 < units; v.unit0 += block) {
            v.n_units = min_i32(block, units - v.unit0);
            if (r0 == 0 || units > block)
                prepare(&p, a, tok, &v, bits, unit, pairs);
            for (r = 0; r < n; r++) {
                if (units > block)
                    at = place_of(&v, row0 + r0 + r, bits, unit);
                look_ahead(&v, &at);
                if (pairs && r + 2 <= n)
                    two_rows(&v, &p, &at, bits, unit, near, lanes[0][r++]);
                else if (n_tok == 1)
                    row_one_token(&v, &p, &at, bits, unit, near, lanes[0][r]);
                else
                    row_few_tokens(&v, &p, &at, bits, unit, near, lanes[0][r]);
            }
        }
        for (t = 0; t < n_tok; t++)
            _mm512_mask_storeu_ps(out + t * ldo + r0, low16(n), fold_rows(lanes[t][0], SWL_LANES));
    }
}

/* What most checkpoints have, and most passes, gets code of its own. */
INLINE void matmul_units(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                         int32_t n_tok, float *out, int64_t ldo, int bits, int unit, bool near)
{
    if (w->sdtype == SWL_DT_BF16 && w->group == unit && n_tok == 1)
        few_tokens(w, row0, n_rows, a, tok, 1, out, ldo, bits, unit, near, SWL_DT_BF16, 1);
    else
        few_tokens(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, unit, near, w->sdtype, w->group / unit);
}

INLINE void matmul_q(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                     int32_t n_tok, float *out, int64_t ldo, int bits, bool near)
{
    if (w->group >= 64)
        matmul_units(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, 64, near);
    else if (w->group == 32)
        matmul_units(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, 32, near);
    else
        matmul_units(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, 16, near);
}

/* Passes of few tokens, equal as far as possible, where tiles do not pay. */
INLINE void matmul(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                   int32_t n_tok, float *out, int64_t ldo, int bits, bool near)
{
    int32_t passes = (n_tok + FEW - 1) / FEW, i, t, end;
    swl_act from = *a;
    swl_matrix part = *w;

    if (n_tok >= (w->group >= 32 && n_rows >= ROWS && bits % 4 == 0 ? SOME : MANY) && swl_matmul_tile_fits_avx512(w)) {
        swl_matmul_tile_avx512(w, row0, n_rows, a, tok, n_tok, near, out, ldo);
        return;
    }
    for (i = 0, t = 0; i < passes; i++, t = end) {
        const int32_t *list = tok ? tok + t : NULL;

        end = (int32_t)((int64_t)n_tok * (i + 1) / passes);
        if (!tok) {
            from.q = a->q + t * a->ldq;
            from.scale = a->scale + t * (a->ldq / SWL_ACT_GROUP);
            from.sum = a->sum + t * (a->ldq / SWL_ACT_SUM);
        }
        part.next = i + 1 < passes ? swl_matrix_upcoming(w, row0) : w->next;
        matmul_q(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, near);
    }
}

void swl_matmul_q_a2_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 2, false);
}

void swl_matmul_q_a3_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 3, false);
}

void swl_matmul_q_a4_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 4, false);
}

void swl_matmul_q_a5_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 5, false);
}

void swl_matmul_q_a6_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 6, false);
}

void swl_matmul_q_a8_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 8, false);
}

void swl_matmul_q_a4_near_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a,
                                 const int32_t *tok, int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 4, true);
}

void swl_matmul_q_a8_near_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a,
                                 const int32_t *tok, int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 8, true);
}
