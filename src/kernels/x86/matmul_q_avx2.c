/*
 * matmul_q_avx2.c: quantised matrices times tokens, eight units of a row at a time, straight from the bytes as stored.
 * Codes of up to six bits are multiplied as bytes (vpmaddubsw: two products of 63 * 127 fit its 16 bits, and so do two
 * such sums); eight-bit codes would saturate there and are widened to 16 bits first. Of codes of up to four bits sixteen
 * products fit, so sums of 16 bits are brought together before they are widened.
 *
 * 32 bytes of four-bit codes are one unit of 64: the low nibbles are its even columns, the high nibbles the odd ones,
 * and the activation is split the same way once per call. Everything else is brought into column order.
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx2.h"
#include "kernels/x86/rows_q.h"

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

/* 32 eight-bit codes times 32 activations, as eight sums; those of the first sixteen in the low half. */
INLINE __m256i dot_bytes(__m256i w, __m256i x)
{
    __m256i low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(w)),
                                    _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)));
    __m256i high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(w, 1)),
                                     _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1)));

    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/*
 * 32 codes times 32 activations, as eight sums; those of the first sixteen in the low half. Codes of up to four bits:
 * as sixteen sums of 16 bits.
 */
INLINE __m256i dot_32(__m256i w, const int8_t *x, int bits)
{
    __m256i v = _mm256_load_si256((const void *)x), s;

    if (bits == 8)
        return dot_bytes(w, v);
    s = _mm256_maddubs_epi16(w, v);
    return bits <= 4 ? s : _mm256_madd_epi16(s, _mm256_set1_epi16(1));
}

/* A unit of 64: any eight sums that add up to it, or sixteen of 16 bits. */
INLINE __m256i dot_64(__m256i w0, __m256i w1, const int8_t *x, int bits)
{
    __m256i x0 = _mm256_load_si256((const void *)x), x1 = _mm256_load_si256((const void *)(x + 32)), s, a, b;

    if (bits < 8) {
        s = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
        return bits <= 4 ? s : _mm256_madd_epi16(s, _mm256_set1_epi16(1));
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

/* Per 128-bit lane: two sums of 32 bits' width of a, two of b, in turn. */
INLINE __m256i add_halves(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

/* Per 128-bit lane: the sums of the lane's elements of v[0] to v[3], which are of 16 bits for codes of up to four. */
INLINE __m256i add_quads(const __m256i *v, int bits)
{
    __m256i a, b;

    if (bits > 4)
        return _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    a = add_halves(v[0], v[1]);
    b = add_halves(v[2], v[3]);
    a = _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm256_madd_epi16(a, _mm256_set1_epi16(1));
}

/* v[i] belongs to unit i (sizes 64 and 32): element i of the result is its sum. */
INLINE __m256i sum_units(const __m256i *v, int bits)
{
    __m256i a = add_quads(v, bits), b = add_quads(v + 4, bits);

    return _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
}

/* The two registers of a step of 64 columns. lddqu: a plain load that is used twice would be done twice. */
INLINE void load_step(const uint8_t *p, int bits, int unit, __m256i *q)
{
    if (bits == 4 && unit == 64) {
        __m256i v = _mm256_lddqu_si256((const void *)p), nibble = _mm256_set1_epi8(15);

        q[0] = _mm256_and_si256(v, nibble);
        q[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
        return;
    }
    q[0] = load_codes(p, bits);
    q[1] = load_codes(p + 4 * bits, bits);
}

/* The exact products of eight units with one token. load: their codes, 2 registers for each 64 columns, from p. */
INLINE __m256i batch_dots(bool load, const uint8_t *p, __m256i *q, const int8_t *x, int bits, int unit)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i v[BATCH];
    int i;

#pragma GCC unroll 8
    for (i = 0; i < unit / 8; i++) {
        if (load)
            load_step(p + 8 * bits * i, bits, unit, q + 2 * i);
        if (unit == 64) {
            v[i] = dot_64(q[2 * i], q[2 * i + 1], x + 64 * i, bits);
        } else {
            v[2 * i] = dot_32(q[2 * i], x + 64 * i, bits);
            v[2 * i + 1] = dot_32(q[2 * i + 1], x + 64 * i + 32, bits);
        }
    }
    return unit > 16 ? sum_units(v, bits) : _mm256_permutevar8x32_epi32(add_quads(v, bits), order);
}

/* Eight units' scales, of which the first begins one. */
INLINE __m256 unit_scales(const view *v, const uint8_t *p)
{
    float f[BATCH];
    int i;

    if (v->per_scale == 1)
        return load_scales(v->sdtype, p, 0);
    for (i = 0; i < BATCH; i++)
        f[i] = one_scale(v->sdtype, p, i / 2);
    return _mm256_loadu_ps(f);
}

/* Asks for what comes some way behind the next eight units. */
INLINE void ask_ahead(const place *at, int bits, int unit)
{
    ask(at->codes, at->codes_ahead, unit * bits, ASK_SECOND);
    if (((uintptr_t)at->scales & 63) < 16) { /* once for each line, about */
        ask(at->scales, at->scales_ahead, 64, ASK_SECOND);
        ask(at->biases, at->biases_ahead, 64, ASK_SECOND);
    }
}

/* Eight lanes with the block's units [u, u + 8) for token t added. */
INLINE __m256 add_batch(__m256 l, __m256 ws, __m256 wb, __m256i idot, const prepared *p, int32_t t, int32_t u)
{
    l = _mm256_fmadd_ps(_mm256_cvtepi32_ps(idot), _mm256_mul_ps(ws, _mm256_load_ps(p->xs[t] + u)), l);
    return _mm256_fmadd_ps(wb, _mm256_load_ps(p->xi[t] + u), l);
}

/* One unit that fills no batch, code by code, for every token. */
static void single_unit(const prepared *p, int32_t n_tok, const uint8_t *from, float ws, float wb, int32_t u, int bits,
                        int unit, float *lane)
{
    uint8_t codes[64];
    int32_t t, i;

    for (i = 0; i < unit; i += 8) {
        uint64_t eight = eight_codes(from + i * bits / 8, bits);

        __builtin_memcpy(codes + i, &eight, 8);
    }
    for (t = 0; t < n_tok; t++) {
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

INLINE __m256 batch_one_token(__m256 l, const view *v, const prepared *p, place *at, int32_t u, int bits, int unit)
{
    __m256i q[2 * BATCH], idot;

    ask_ahead(at, bits, unit);
    idot = batch_dots(true, at->codes, q, p->x[0] + u * unit, bits, unit);
    l = add_batch(l, unit_scales(v, at->scales), unit_scales(v, at->biases), idot, p, 0, u);
    go_on(v, at, BATCH, bits, unit);
    return l;
}

/* One token keeps its lanes in two registers for the whole row, which take turns; two batches in a loop were slower. */
INLINE void row_one_token(const view *v, const prepared *p, place *at, int bits, int unit, float *lane)
{
    __m256 now = _mm256_load_ps(lane), then = _mm256_load_ps(lane + 8), l;
    int32_t u;

    for (u = 0; u + BATCH <= v->n_units; u += BATCH) {
        l = batch_one_token(now, v, p, at, u, bits, unit);
        now = then;
        then = l;
    }
    _mm256_store_ps(lane + u % SWL_LANES, now);
    _mm256_store_ps(lane + (u + 8) % SWL_LANES, then);
}

/* Several tokens share the unpacked codes. lane: [token][ROWS][16]. */
INLINE void row_few_tokens(const view *v, const prepared *p, place *at, int bits, int unit, float *lane)
{
    int32_t u, t;
    int i;

    for (u = 0; u + BATCH <= v->n_units; u += BATCH) {
        __m256 ws = unit_scales(v, at->scales), wb = unit_scales(v, at->biases);
        __m256i q[2 * BATCH], idot;

        ask_ahead(at, bits, unit);
#pragma GCC unroll 8
        for (i = 0; i < unit / 8; i++)
            load_step(at->codes + 8 * bits * i, bits, unit, q + 2 * i);
        for (t = 0; t < v->n_tok; t++) {
            float *to = lane + t * ROWS * SWL_LANES + u % SWL_LANES;

            idot = batch_dots(false, NULL, q, p->x[t] + u * unit, bits, unit);
            _mm256_store_ps(to, add_batch(_mm256_load_ps(to), ws, wb, idot, p, t, u));
        }
        go_on(v, at, BATCH, bits, unit);
    }
}

/* Units that fill no batch. */
INLINE void row_end(const view *v, const prepared *p, place *at, int bits, int unit, float *lane)
{
    int32_t u = v->n_units / BATCH * BATCH, n = v->n_units - u, i;

    for (i = 0; i < n; i++)
        single_unit(p, v->n_tok, at->codes + i * unit * bits / 8, one_scale(v->sdtype, at->scales, i / v->per_scale),
                    one_scale(v->sdtype, at->biases, i / v->per_scale), u + i, bits, unit, lane);
    go_on(v, at, n, bits, unit);
}

/* sdtype and per_scale are those of w. */
INLINE void few_tokens(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                       int32_t n_tok, float *out, int64_t ldo, int bits, int unit, swl_dtype sdtype, int32_t per_scale)
{
    alignas(32) float lanes[FEW][ROWS][SWL_LANES];
    prepared p;
    view v = view_of(w, row0 + (int64_t)n_rows, n_tok, AHEAD, sdtype, per_scale);
    int32_t units = w->cols / unit, block = BLOCK / unit, r0, r, n, t;
    place at = place_of(&v, row0, bits, unit);

    for (r0 = 0; r0 < n_rows; r0 += ROWS) {
        n = min_i32(ROWS, n_rows - r0);
        __builtin_memset(lanes, 0, sizeof lanes[0] * (size_t)n_tok);
        for (v.unit0 = 0; v.unit0 < units; v.unit0 += block) {
            v.n_units = min_i32(block, units - v.unit0);
            if (r0 == 0 || units > block)
                prepare(&p, a, tok, &v, bits, unit);
            for (r = 0; r < n; r++) {
                if (units > block)
                    at = place_of(&v, row0 + r0 + r, bits, unit);
                look_ahead(&v, &at);
                if (n_tok == 1)
                    row_one_token(&v, &p, &at, bits, unit, lanes[0][r]);
                else
                    row_few_tokens(&v, &p, &at, bits, unit, lanes[0][r]);
                if (v.n_units % BATCH)
                    row_end(&v, &p, &at, bits, unit, lanes[0][r]);
            }
        }
        for (t = 0; t < n_tok; t++)
            for (r = 0; r < n; r++)
                out[t * ldo + r0 + r] = fold_pair(_mm256_load_ps(lanes[t][r]), _mm256_load_ps(lanes[t][r] + 8));
    }
}

/* What most checkpoints have, and most passes, gets code of its own. */
INLINE void matmul_units(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                         int32_t n_tok, float *out, int64_t ldo, int bits, int unit)
{
    if (w->sdtype == SWL_DT_BF16 && w->group == unit && n_tok == 1)
        few_tokens(w, row0, n_rows, a, tok, 1, out, ldo, bits, unit, SWL_DT_BF16, 1);
    else
        few_tokens(w, row0, n_rows, a, tok, n_tok, out, ldo, bits, unit, w->sdtype, w->group / unit);
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
            matmul_units(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, 64);
        else if (w->group == 32)
            matmul_units(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, 32);
        else
            matmul_units(&part, row0, n_rows, &from, list, end - t, out + t * ldo, ldo, bits, 16);
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
