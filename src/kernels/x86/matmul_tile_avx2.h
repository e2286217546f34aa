/*
 * matmul_tile_avx2.h: quantised matrices times many tokens (prompts) in registers of 256 bits. Sixteen rows are unpacked
 * once, a block of columns at a time, into a panel whose registers hold four columns of eight rows, so that a lane of a
 * register is a row and no sum ever crosses lanes. Then the tokens go past, some at a time, and their activations are
 * broadcast, four bytes at a time. Codes of codebooks are stored as what they stand for plus an offset that makes it
 * positive; it is taken out again by the sum of the activations. Included by the file of a level, which defines before
 *
 *   AT_ONCE     tokens that share a pass over the panel
 *   SPLIT_8     1: codes of eight bits are kept as two planes, of their low and their high halves
 *
 * and after
 *
 *   chunks_of   how the sums of a unit are made
 *
 *   codes   [plane][column / 4][16 rows][4]   bytes; four bits: of eight columns the even ones first
 *   scales  [scale][16 rows]                  float32, biases the same
 *   x       [token][columns]                  int8, in the order of the codes
 *   lanes   [token][16 lanes][16 rows]        the lanes of the contract
 */
#ifndef SWL_KERNELS_MATMUL_TILE_AVX2_H
#define SWL_KERNELS_MATMUL_TILE_AVX2_H

#include <stdalign.h>

#include "kernels/x86/quant_avx2.h"
#include "kernels/x86/x86.h"

enum {
    ROWS = 16,
    BLOCK = 1024, /* columns of a panel, a multiple of 16 units */
    PLANE = BLOCK * ROWS,
    TOKENS = 64,          /* at most, in a call of the loop over rows */
    SCALES = 64 * TOKENS, /* units of all tokens of such a call together */
    X_BYTES = 64 * (SCALES + TOKENS)
};

typedef struct panel {
    alignas(32) uint8_t codes[(1 + SPLIT_8) * PLANE];
    alignas(32) float ws[BLOCK / 16][ROWS], wb[BLOCK / 16][ROWS];
} panel;

typedef struct tokens {
    int32_t n, n_units;
    int64_t ldx;
    alignas(32) int8_t x[X_BYTES];
    float xs[SCALES], xi[SCALES]; /* [token][unit]: scale, scale times sum; codebooks: the integer offset times sum */
    alignas(32) float lanes[TOKENS][SWL_LANES][ROWS];
} tokens;

/* How the sums of a unit are made: chunks of registers whose sums fit the width of a level's products. */
typedef struct chunks {
    /* dot[2 * j + g] = the sums of eight rows (g of two) with token j of n <= AT_ONCE; ldx: from token to token */
    void (*dots)(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const struct chunks *c, int32_t n);
    int n, planes;
} chunks;

/* The bytes of the rows to come, asked for a few lines at a time. */
typedef struct ahead {
    const uint8_t *p;
    int64_t n; /* lines of 64 bytes each time */
} ahead;

/* Rows [row, row + n_rows) of a matrix, a block of columns of them. */
typedef struct tile {
    const swl_matrix *w;
    int bits, unit, offset;
    int scale_shift; /* 1: two units share a scale */
    bool book;
    chunks sums;
    int64_t row, row_bytes;
    int32_t n_rows;         /* at most ROWS; the last one stands for those that are missing */
    int32_t unit0, n_units; /* the block, in units */
    ahead next;
} tile;

static chunks chunks_of(int bits, int unit);

/* Four activations, for all rows. */
INLINE __m256i four_of(const int8_t *x)
{
    int32_t four;

    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}

/* ---- unpacking ------------------------------------------------------------------------------------------- */

/* 8 x 8 elements of 32 bits. */
INLINE void transpose(__m256i *v)
{
    __m256i t[8];
    int i;

#pragma GCC unroll 4
    for (i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 2
    for (i = 0; i < 8; i += 4) {
        v[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (i = 0; i < 8; i++)
        v[i] = t[i];
}

INLINE void put(uint8_t *to, __m256i v, int bits)
{
    const __m256i nibble = _mm256_set1_epi8(15);

    if (SPLIT_8 && bits == 8) {
        _mm256_store_si256((void *)to, _mm256_and_si256(v, nibble));
        _mm256_store_si256((void *)(to + PLANE), _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble));
    } else {
        _mm256_store_si256((void *)to, v);
    }
}

/* 32 bytes, of which `left` may be read. */
INLINE __m256i load_bytes(const uint8_t *p, int64_t left)
{
    alignas(32) uint8_t copy[32] = {0};

    if (left >= 32)
        return _mm256_loadu_si256((const void *)p);
    __builtin_memcpy(copy, p, (size_t)left);
    return _mm256_load_si256((const void *)copy);
}

/* n columns of eight rows of four-bit codes, each through the table of what it stands for. */
INLINE void unpack_nibbles(const uint8_t *const *row, int32_t n, __m256i table, uint8_t *to, int bits)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i v[8];
    int32_t c;
    int i;

    for (c = 0; c < n; c += 64, to += 64 * ROWS) {
#pragma GCC unroll 8
        for (i = 0; i < 8; i++)
            v[i] = load_bytes(row[i] + c / 2, (n - c) / 2);
        transpose(v);
#pragma GCC unroll 8
        for (i = 0; i < 8; i++) {
            __m256i even = _mm256_and_si256(v[i], nibble), odd = _mm256_and_si256(_mm256_srli_epi16(v[i], 4), nibble);

            if (bits != 4) {
                even = _mm256_shuffle_epi8(table, even);
                odd = _mm256_shuffle_epi8(table, odd);
            }
            put(to + 8 * ROWS * i, even, bits);
            put(to + 8 * ROWS * i + 4 * ROWS, odd, bits);
        }
    }
}

INLINE void unpack_codes(const uint8_t *const *row, int32_t n, uint8_t *to, int bits)
{
    uint8_t last[32] = {0};
    __m256i v[8];
    int32_t c;
    int i;

    for (c = 0; c < n; c += 32, to += 32 * ROWS) {
        for (i = 0; i < 8; i++) {
            const uint8_t *p = row[i] + c / 8 * bits;

            if (n - c < 32)
                p = __builtin_memcpy(last, p, (size_t)(2 * bits)); /* units have 16 columns at least */
            v[i] = load_codes(p, bits);
        }
        transpose(v);
#pragma GCC unroll 8
        for (i = 0; i < 8; i++)
            put(to + 4 * ROWS * i, v[i], bits);
    }
}

static __m256i book_table(const swl_matrix *w, int offset)
{
    const int32_t *book = swl_wtype_get(w->type)->book;
    uint8_t bytes[16] = {0};
    int i;

    for (i = 0; book && i < 16; i++)
        bytes[i] = (uint8_t)(book[i] + offset);
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)bytes));
}

static void unpack_half(const tile *s, const uint8_t *const *row, uint8_t *to)
{
    int32_t n = s->n_units * s->unit;
    __m256i table = book_table(s->w, s->offset);

    if (s->book && s->bits == 8)
        unpack_nibbles(row, n, table, to, 8);
    else if (s->book)
        unpack_nibbles(row, n, table, to, 5);
    else if (s->bits == 4)
        unpack_nibbles(row, n, table, to, 4);
    else if (s->bits == 2)
        unpack_codes(row, n, to, 2);
    else if (s->bits == 3)
        unpack_codes(row, n, to, 3);
    else if (s->bits == 5)
        unpack_codes(row, n, to, 5);
    else if (s->bits == 6)
        unpack_codes(row, n, to, 6);
    else
        unpack_codes(row, n, to, 8);
}

/* Eight scales (or biases) of the matrix from number i on. */
INLINE __m256 eight_scales(const tile *s, const uint8_t *from, int64_t i)
{
    return s->book ? book_scales(s->w, i, s->w->type) : load_scales(s->w->sdtype, from, i);
}

/* Those of the block: n of each row, from number `first` of the row on. */
static void unpack_scales(const tile *s, const uint8_t *from, int32_t first, int32_t n, float (*to)[ROWS])
{
    int64_t row_scales = s->w->cols / s->w->group, at;
    __m256i v[8];
    int32_t r, k, i;

    for (r = 0; r < ROWS; r += 8) {
        for (k = 0; k + 8 <= n; k += 8) {
#pragma GCC unroll 8
            for (i = 0; i < 8; i++) {
                at = (s->row + min_i32(r + i, s->n_rows - 1)) * row_scales + first + k;
                v[i] = _mm256_castps_si256(eight_scales(s, from, at));
            }
            transpose(v);
#pragma GCC unroll 8
            for (i = 0; i < 8; i++)
                _mm256_store_si256((void *)(to[k + i] + r), v[i]);
        }
        for (; k < n; k++)
            for (i = 0; i < 8; i++) {
                at = (s->row + min_i32(r + i, s->n_rows - 1)) * row_scales + first + k;
                to[k][r + i] = s->book ? swl_matrix_scale(s->w, at) : one_scale(s->w->sdtype, from, at);
            }
    }
}

static void unpack(const tile *s, panel *p)
{
    int64_t first = (int64_t)s->unit0 * s->unit * (s->book ? 4 : s->bits) / 8;
    int32_t scale0 = s->unit0 * s->unit / s->w->group, n_scales, r, i;
    const uint8_t *row[8];

    n_scales = ((s->unit0 + s->n_units) * s->unit + s->w->group - 1) / s->w->group - scale0;
    for (r = 0; r < ROWS; r += 8) {
        for (i = 0; i < 8; i++)
            row[i] = s->w->data + (s->row + min_i32(r + i, s->n_rows - 1)) * s->row_bytes + first;
        unpack_half(s, row, p->codes + 4 * r);
    }
    unpack_scales(s, s->w->scales, scale0, n_scales, p->ws);
    if (!s->book)
        unpack_scales(s, s->w->biases, scale0, n_scales, p->wb);
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

static void load_scales_of(const tile *s, const int32_t *sum, const float *scale, int32_t n, float *xs, float *xi)
{
    int32_t u = 0, i;

    for (; u + 8 <= n; u += 8) {
        __m256i isum = unit_sums(sum + u * s->unit / SWL_ACT_SUM, s->unit);
        __m256 f = act_scales(scale + u * s->unit / SWL_ACT_GROUP, s->unit);
        __m256 x = _mm256_mul_ps(f, _mm256_cvtepi32_ps(isum));

        if (s->book)
            x = _mm256_castsi256_ps(_mm256_mullo_epi32(isum, _mm256_set1_epi32(s->offset)));
        _mm256_storeu_ps(xs + u, f);
        _mm256_storeu_ps(xi + u, x);
    }
    for (; u < n; u++) {
        int32_t isum = 0;

        for (i = 0; i < s->unit / SWL_ACT_SUM; i++)
            isum += sum[u * s->unit / SWL_ACT_SUM + i];
        xs[u] = scale[u * s->unit / SWL_ACT_GROUP];
        xi[u] = xs[u] * (float)isum;
        isum *= s->offset;
        if (s->book)
            __builtin_memcpy(&xi[u], &isum, 4);
    }
}

static void load_token(tokens *k, const tile *s, const swl_act *a, int64_t row, int32_t t)
{
    const __m128i eights = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const int8_t *q = a->q + row * a->ldq;
    bool nibbles = s->book || s->bits == 4;
    int64_t c;

    for (c = 0; c < k->ldx; c += 32) {
        __m256i v = _mm256_loadu_si256((const void *)(q + c));

        v = nibbles ? _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(eights)) : v;
        _mm256_store_si256((void *)(k->x + t * k->ldx + c), v);
    }
    load_scales_of(s, a->sum + row * (a->ldq / SWL_ACT_SUM), a->scale + row * (a->ldq / SWL_ACT_GROUP), k->n_units,
                   k->xs + t * k->n_units, k->xi + t * k->n_units);
}

/* ---- products -------------------------------------------------------------------------------------------- */

INLINE void ask_ahead(ahead *a)
{
    int64_t i;

    for (i = 0; i < a->n; i++, a->p += 64)
        _mm_prefetch((const char *)a->p, _MM_HINT_T1);
}

/* A unit's sums into the lanes of n tokens from t on. */
INLINE void add_to_lanes(const tile *s, const panel *p, tokens *k, int32_t t, int32_t n, int32_t u, const __m256i *dot,
                         bool book)
{
    int32_t scale = (u >> s->scale_shift) - (s->unit0 >> s->scale_shift), at = t * k->n_units + u, j;
    __m256 ws[2] = {_mm256_load_ps(p->ws[scale]), _mm256_load_ps(p->ws[scale] + 8)};
    __m256 wb[2] = {_mm256_load_ps(p->wb[scale]), _mm256_load_ps(p->wb[scale] + 8)};
    float *to = k->lanes[t][u % SWL_LANES];
    int g;

    for (j = 0; j < n; j++, at += k->n_units, to += SWL_LANES * ROWS, dot += 2) {
        __m256 xs = _mm256_set1_ps(k->xs[at]), xi = _mm256_set1_ps(k->xi[at]), l;

#pragma GCC unroll 2
        for (g = 0; g < 2; g++) {
            __m256i d = book ? _mm256_sub_epi32(dot[g], _mm256_castps_si256(xi)) : dot[g];

            l = u < SWL_LANES ? _mm256_setzero_ps() : _mm256_load_ps(to + 8 * g);
            l = _mm256_fmadd_ps(_mm256_cvtepi32_ps(d), _mm256_mul_ps(ws[g], xs), l);
            _mm256_store_ps(to + 8 * g, book ? l : _mm256_fmadd_ps(wb[g], xi, l));
        }
    }
}

/* The block's units for n tokens from t on. */
static void add_units(tile *s, const panel *p, tokens *k, int32_t t, int32_t n)
{
    const uint8_t *codes = p->codes;
    const int8_t *x = k->x + t * k->ldx + (int64_t)s->unit0 * s->unit;
    __m256i dot[2 * AT_ONCE];
    int32_t u;

    for (u = s->unit0; u < s->unit0 + s->n_units; u++, codes += s->unit * ROWS, x += s->unit) {
        ask_ahead(&s->next);
        s->sums.dots(dot, codes, x, k->ldx, &s->sums, n);
        if (s->book)
            add_to_lanes(s, p, k, t, n, u, dot, true);
        else
            add_to_lanes(s, p, k, t, n, u, dot, false);
    }
}

/* ---- loops ----------------------------------------------------------------------------------------------- */

/* The fold of the contract, of sixteen rows at once. */
INLINE __m256 fold_lanes(float (*lane)[ROWS], int g)
{
    __m256 v[SWL_LANES];
    int i, half;

#pragma GCC unroll 16
    for (i = 0; i < SWL_LANES; i++)
        v[i] = _mm256_load_ps(lane[i] + 8 * g);
#pragma GCC unroll 4
    for (half = SWL_LANES / 2; half; half /= 2)
#pragma GCC unroll 8
        for (i = 0; i < half; i++)
            v[i] = _mm256_add_ps(v[i], v[i + half]);
    return v[0];
}

static void store_tile(const tile *s, tokens *k, float *out, int64_t ldo)
{
    int32_t n_units = s->w->cols / s->unit, t, i;
    alignas(32) float rows[ROWS];

    for (t = 0; t < k->n; t++) {
        for (i = n_units; i < SWL_LANES; i++)
            __builtin_memset(k->lanes[t][i], 0, sizeof k->lanes[t][i]);
        _mm256_store_ps(rows, fold_lanes(k->lanes[t], 0));
        _mm256_store_ps(rows + 8, fold_lanes(k->lanes[t], 1));
        if (s->n_rows == ROWS)
            __builtin_memcpy(out + t * ldo, rows, sizeof rows);
        else
            __builtin_memcpy(out + t * ldo, rows, sizeof *rows * (size_t)s->n_rows);
    }
}

static void run_tile(tile *s, panel *p, tokens *k, int32_t n_next, float *out, int64_t ldo)
{
    int32_t n_units = s->w->cols / s->unit, block = BLOCK / s->unit, passes = (k->n + AT_ONCE - 1) / AT_ONCE, i, t, end;
    int64_t times = (int64_t)n_units * passes * 64;

    s->next = (ahead){s->w->data + (s->row + ROWS) * s->row_bytes, (n_next * s->row_bytes + times - 1) / times};
    if (!n_next && s->w->next.data)
        s->next = (ahead){s->w->next.data, (ROWS * s->row_bytes + times - 1) / times};
    for (s->unit0 = 0; s->unit0 < n_units; s->unit0 += block) {
        s->n_units = min_i32(block, n_units - s->unit0);
        unpack(s, p);
        for (i = 0, t = 0; i < passes; i++, t = end) {
            end = k->n * (i + 1) / passes;
            add_units(s, p, k, t, end - t);
        }
    }
    store_tile(s, k, out, ldo);
}

static tile tile_of(const swl_matrix *w)
{
    const swl_wtype_info *info = swl_wtype_get(w->type);
    tile s = {.w = w, .bits = info->bits, .unit = w->group < 64 ? w->group : 64, .row_bytes = swl_matrix_row_bytes(w)};

    s.scale_shift = w->group > 64;
    if (info->book) {
        s.book = true;
        s.bits = w->type == SWL_W_NL4 ? 8 : 5; /* of what is stored: 1 to 240, 0 to 24 */
        s.offset = w->type == SWL_W_NL4 ? 128 : 12;
    }
    s.sums = chunks_of(s.bits, s.unit);
    return s;
}

/* Groups of tokens, equal as far as possible, each with all rows. */
static void run_tiles(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                      int32_t n_tok, float *out, int64_t ldo)
{
    tile s = tile_of(w);
    int32_t n_units = w->cols / s.unit, most = min_i32(TOKENS, SCALES / n_units), n = (n_tok + most - 1) / most;
    int32_t i, t, t0, end, r;
    panel p;
    tokens k;

    k.n_units = n_units;
    k.ldx = (w->cols + 63) / 64 * 64;
    for (i = 0, t0 = 0; i < n; i++, t0 = end) {
        end = (int32_t)((int64_t)n_tok * (i + 1) / n);
        k.n = end - t0;
        for (t = 0; t < k.n; t++)
            load_token(&k, &s, a, tok ? tok[t0 + t] : t0 + t, t);
        for (r = 0; r < n_rows; r += ROWS) {
            s.row = row0 + (int64_t)r;
            s.n_rows = min_i32(ROWS, n_rows - r);
            run_tile(&s, &p, &k, min_i32(ROWS, n_rows - r - s.n_rows), out + t0 * ldo + r, ldo);
        }
    }
}

#endif
