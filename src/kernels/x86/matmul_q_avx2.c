/*
 * matmul_q_avx2.c: quantised matrices times tokens, eight units of a row at a time, straight from the bytes as stored.
 * Codes of up to six bits are multiplied as bytes (vpmaddubsw: two products of 63 * 127 fit its 16 bits, and so do two
 * such sums); eight-bit codes would saturate there and are widened to 16 bits first.
 *
 * 32 bytes of four-bit codes are one unit of 64: the low nibbles are its even columns, the high nibbles the odd ones,
 * and the activation is split the same way once per call. Everything else is brought into column order.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/ahead.h"
#include "kernels/x86/quant_avx2.h"

enum {
    FEW = 4, /* tokens that share a pass over the rows */
    ROWS = 16,
    BLOCK = 4096, /* columns whose activations are prepared at a time; a multiple of 16 units */
    MAX_UNITS = BLOCK / 16,
    BATCH = 8,    /* units */
    AHEAD = 12288 /* bytes between what is multiplied and what is asked for */
};

typedef struct prepared {
    alignas(32) int8_t x[FEW][BLOCK]; /* in the order of the codes */
    alignas(32) float xs[FEW][MAX_UNITS], xi[FEW][MAX_UNITS];
} prepared;

typedef struct view {
    const swl_matrix *w;
    int64_t row_bytes, row_scales, scale_size;
    int32_t n_tok;
    int32_t unit0, n_units; /* the block of columns, in units */
    int32_t per_scale;      /* units that share a scale */
    stream codes, scales, biases;
} view;

static view view_of(const swl_matrix *w, int64_t end_row, int32_t n_tok, int unit)
{
    int64_t row_bytes = swl_matrix_row_bytes(w), side = swl_matrix_scale_bytes(w), ahead = AHEAD / row_bytes * side;

    return (view){.w = w,
                  .row_bytes = row_bytes,
                  .row_scales = w->cols / w->group,
                  .scale_size = swl_dtype_size(w->sdtype),
                  .n_tok = n_tok,
                  .per_scale = w->group > unit ? w->group / unit : 1,
                  .codes = stream_to(w->data + end_row * row_bytes, AHEAD, w->next.data),
                  .scales = stream_to(w->scales + end_row * side, ahead, w->next.scales),
                  .biases = stream_to(w->biases + end_row * side, ahead, w->next.biases)};
}

/* ---- activations ----------------------------------------------------------------------------------------- */

static void split_even_odd(const int8_t *q, int32_t n, int8_t *x)
{
    int32_t i, k;

    for (i = 0; i < n; i += 64)
        for (k = 0; k < 32; k++) {
            x[i + k] = q[i + 2 * k];
            x[i + 32 + k] = q[i + 2 * k + 1];
        }
}

INLINE void prepare(prepared *p, const swl_act *a, const int32_t *tok, const view *v, int bits, int unit)
{
    int32_t t, u, k;

    for (t = 0; t < v->n_tok; t++) {
        int64_t row = tok ? tok[t] : t;
        const int8_t *q = a->q + row * a->ldq + (int64_t)v->unit0 * unit;
        const int32_t *sum = a->sum + row * (a->ldq / SWL_ACT_SUM) + (int64_t)v->unit0 * unit / SWL_ACT_SUM;
        const float *scale = a->scale + row * (a->ldq / SWL_ACT_GROUP);

        if (bits == 4 && unit == 64)
            split_even_odd(q, v->n_units * unit, p->x[t]);
        else
            __builtin_memcpy(p->x[t], q, (size_t)(v->n_units * unit));
        for (u = 0; u < v->n_units; u++) {
            int32_t isum = 0;

            for (k = 0; k < unit / SWL_ACT_SUM; k++)
                isum += *sum++;
            p->xs[t][u] = scale[(v->unit0 + u) * unit / SWL_ACT_GROUP];
            p->xi[t][u] = p->xs[t][u] * (float)isum;
        }
    }
}

/* ---- sums of units --------------------------------------------------------------------------------------- */

/* 32 codes times 32 activations, as eight sums; those of the first sixteen in the low half. */
INLINE __m256i dot_32(__m256i w, __m256i x, int bits)
{
    __m256i low, high;

    if (bits < 8)
        return _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
    low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(w)),
                            _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)));
    high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(w, 1)),
                             _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1)));
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* A unit of 64: any eight sums that add up to it. */
INLINE __m256i dot_64(__m256i w0, __m256i w1, const int8_t *x, int bits)
{
    __m256i x0 = _mm256_load_si256((const void *)x), x1 = _mm256_load_si256((const void *)(x + 32)), s, a, b;

    if (bits < 8) {
        s = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
        return _mm256_madd_epi16(s, _mm256_set1_epi16(1));
    }
    a = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(w0)),
                          _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x0)));
    b = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(w0, 1)),
                          _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x0, 1)));
    s = _mm256_add_epi32(a, b);
    a = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(w1)),
                          _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x1)));
    b = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(w1, 1)),
                          _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x1, 1)));
    return _mm256_add_epi32(s, _mm256_add_epi32(a, b));
}

/* Per 128-bit lane: the sums of the lane's four elements of a, b, c, d. */
INLINE __m256i add_quads(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

/* v[i] belongs to unit i (sizes 64 and 32): element i of the result is its sum. */
INLINE __m256i sum_units(const __m256i *v)
{
    __m256i a = add_quads(v[0], v[1], v[2], v[3]), b = add_quads(v[4], v[5], v[6], v[7]);

    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* The two registers of a step of 64 columns. */
INLINE void load_step(const uint8_t *p, int bits, int unit, __m256i *c)
{
    if (bits == 4 && unit == 64) {
        __m256i v = _mm256_loadu_si256((const void *)p), nibble = _mm256_set1_epi8(15);

        c[0] = _mm256_and_si256(v, nibble);
        c[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
        return;
    }
    c[0] = load_codes(p, bits);
    c[1] = load_codes(p + 4 * bits, bits);
}

/* The exact products of eight units with one token. codes: 2 registers for each 64 columns. */
INLINE __m256i batch_dots(const __m256i *codes, const int8_t *x, int bits, int unit)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i v[BATCH];
    int i;

    if (unit == 64) {
#pragma GCC unroll 8
        for (i = 0; i < BATCH; i++)
            v[i] = dot_64(codes[2 * i], codes[2 * i + 1], x + 64 * i, bits);
        return sum_units(v);
    }
#pragma GCC unroll 8
    for (i = 0; i < unit / 4; i++)
        v[i] = dot_32(codes[i], _mm256_load_si256((const void *)(x + 32 * i)), bits);
    if (unit == 32)
        return sum_units(v);
    return _mm256_permutevar8x32_epi32(add_quads(v[0], v[1], v[2], v[3]), order);
}

/* Eight units' scales: of unit u of the block on. */
INLINE __m256 unit_scales(const view *v, const uint8_t *p, int64_t row, int32_t u)
{
    int64_t at = row * v->row_scales + (v->unit0 + u) / v->per_scale;
    float f[BATCH];
    int i;

    if (v->per_scale == 1)
        return load_scales(v->w->sdtype, p, at);
    for (i = 0; i < BATCH; i++)
        f[i] = one_scale(v->w->sdtype, p, at + i / 2);
    return _mm256_loadu_ps(f);
}

/* Units [u, u + 8) of a row for every token. lane: [token][ROWS][16]. */
INLINE void batch(const view *v, const prepared *p, int64_t row, int32_t u, int bits, int unit, int n_tok, float *lane)
{
    const uint8_t *from = v->w->data + row * v->row_bytes + (int64_t)(v->unit0 + u) * unit * bits / 8;
    int64_t scale = (row * v->row_scales + (v->unit0 + u) / v->per_scale) * v->scale_size;
    __m256 ws = unit_scales(v, v->w->scales, row, u), wb = unit_scales(v, v->w->biases, row, u), l;
    __m256i codes[2 * BATCH], idot;
    int32_t t;
    int i;

    ask(from, ahead_of(&v->codes, from), unit * bits, ASK_SECOND);
    if ((scale & 63) < 16) { /* once for each line, about */
        ask(v->w->scales + scale, ahead_of(&v->scales, v->w->scales + scale), 64, ASK_SECOND);
        ask(v->w->biases + scale, ahead_of(&v->biases, v->w->biases + scale), 64, ASK_SECOND);
    }

#pragma GCC unroll 8
    for (i = 0; i < unit / 8; i++)
        load_step(from + 8 * bits * i, bits, unit, codes + 2 * i);
    for (t = 0; t < n_tok; t++, lane += ROWS * SWL_LANES) {
        float *to = lane + u % SWL_LANES;

        idot = batch_dots(codes, p->x[t] + u * unit, bits, unit);
        l = _mm256_fmadd_ps(_mm256_cvtepi32_ps(idot), _mm256_mul_ps(ws, _mm256_load_ps(p->xs[t] + u)),
                            _mm256_load_ps(to));
        _mm256_store_ps(to, _mm256_fmadd_ps(wb, _mm256_load_ps(p->xi[t] + u), l));
    }
}

/* One unit of a row that fills no batch, code by code. */
static void single_unit(const view *v, const prepared *p, int64_t row, int32_t u, int bits, int unit, float *lane)
{
    const uint8_t *from = v->w->data + row * v->row_bytes + (int64_t)(v->unit0 + u) * unit * bits / 8;
    int64_t at = row * v->row_scales + (v->unit0 + u) / v->per_scale;
    float ws = one_scale(v->w->sdtype, v->w->scales, at), wb = one_scale(v->w->sdtype, v->w->biases, at);
    uint8_t codes[64];
    int32_t t, i;

    for (i = 0; i < unit; i += 8) {
        uint64_t eight = eight_codes(from + i * bits / 8, bits);

        __builtin_memcpy(codes + i, &eight, 8);
    }
    for (t = 0; t < v->n_tok; t++) {
        const int8_t *x = p->x[t] + u * unit;
        float *l = lane + t * ROWS * SWL_LANES + u % SWL_LANES;
        int32_t idot = 0;

        for (i = 0; i < unit; i++)
            idot += codes[i] * x[bits == 4 && unit == 64 ? i / 2 + i % 2 * 32 : i];
        *l = fmaf((float)idot, ws * p->xs[t][u], *l);
        *l = fmaf(wb, p->xi[t][u], *l);
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

INLINE void row_lanes(const view *v, const prepared *p, int64_t row, int bits, int unit, float *lane)
{
    int32_t u;

    for (u = 0; u + BATCH <= v->n_units; u += BATCH)
        if (v->n_tok == 1)
            batch(v, p, row, u, bits, unit, 1, lane);
        else
            batch(v, p, row, u, bits, unit, v->n_tok, lane);
    for (; u < v->n_units; u++)
        single_unit(v, p, row, u, bits, unit, lane);
}

INLINE void few_tokens(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                       int32_t n_tok, float *out, int64_t ldo, int bits, int unit)
{
    alignas(32) float lanes[FEW][ROWS][SWL_LANES];
    prepared p;
    view v = view_of(w, row0 + (int64_t)n_rows, n_tok, unit);
    int32_t units = w->cols / unit, block = BLOCK / unit, r0, r, n, t;

    for (r0 = 0; r0 < n_rows; r0 += ROWS) {
        n = min_i32(ROWS, n_rows - r0);
        __builtin_memset(lanes, 0, sizeof lanes[0] * (size_t)n_tok);
        for (v.unit0 = 0; v.unit0 < units; v.unit0 += block) {
            v.n_units = min_i32(block, units - v.unit0);
            if (r0 == 0 || units > block)
                prepare(&p, a, tok, &v, bits, unit);
            for (r = 0; r < n; r++)
                row_lanes(&v, &p, row0 + r0 + r, bits, unit, lanes[0][r]);
        }
        for (t = 0; t < n_tok; t++)
            for (r = 0; r < n; r++)
                out[t * ldo + r0 + r] = fold_pair(_mm256_load_ps(lanes[t][r]), _mm256_load_ps(lanes[t][r] + 8));
    }
}

/* Passes of at most FEW tokens, equal as far as possible. */
INLINE void matmul(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                   int32_t n_tok, float *out, int64_t ldo, int bits)
{
    int32_t passes = (n_tok + FEW - 1) / FEW, i, t, end;
    swl_act from = *a;
    swl_matrix part = *w;

    if (swl_matmul_tile_pays_avx2(w, n_tok)) {
        swl_matmul_tile_avx2(w, row0, n_rows, a, tok, n_tok, out, ldo);
        return;
    }
    for (i = 0, t = 0; i < passes; i++, t = end) {
        const int32_t *list = tok ? tok + t : NULL;

        part.next = i + 1 < passes ? swl_matrix_upcoming(w, row0) : w->next;
        end = (int32_t)((int64_t)n_tok * (i + 1) / passes);
        if (!tok) {
            from.q = a->q + t * a->ldq;
            from.scale = a->scale + t * (a->ldq / SWL_ACT_GROUP);
            from.sum = a->sum + t * (a->ldq / SWL_ACT_SUM);
        }
        if (w->group >= 64)
            few_tokens(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, 64);
        else if (w->group == 32)
            few_tokens(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, 32);
        else
            few_tokens(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, 16);
    }
}

void swl_matmul_q_a2_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 2);
}

void swl_matmul_q_a3_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 3);
}

void swl_matmul_q_a4_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 4);
}

void swl_matmul_q_a5_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 5);
}

void swl_matmul_q_a6_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 6);
}

void swl_matmul_q_a8_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, 8);
}
