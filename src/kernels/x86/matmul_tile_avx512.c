/*
 * matmul_tile_avx512.c: quantised matrices times many tokens (prompts). Two tiles of sixteen rows are unpacked into a
 * panel whose registers hold four columns of sixteen rows, so that a lane of a register is a row and no sum ever
 * crosses lanes; each panel register is used for a group of tokens, whose activations are broadcast four bytes at a
 * time.
 *
 * A matrix too wide for the panel is cut into blocks of lanes of the contract, not of columns. Lanes stand in the order
 * of the fold's tree (0 8 4 12 2 10 6 14 1 9 ...), so that a block of 16, 8, 4, 2 or 1 of them is a whole branch; a
 * token then carries a few finished branches from block to block, added up like the digits of a binary counter, and not
 * all lanes.
 *
 *   panel   [unit of the block][unit / 4][2 tiles][16 rows][4]    codes as bytes
 *   scales  [unit of the block][2 tiles][16 rows]                 float32, biases the same
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx512.h"

enum {
    TILES = 2,
    ROWS = 16 * TILES,
    TOKENS = 8, /* in registers together */
    TURNS = 18, /* units of a lane at most */
    PANEL_BYTES = 36 << 10,
    PANEL_UNITS = 32,
    HELD = 96,                          /* branches that wait between blocks, of all tokens together */
    SCALES = TOKENS * TURNS * SWL_LANES /* units of activations whose scales are kept, of all tokens together */
};

typedef float rows[TILES][16];

/* The units of a block in the order of the panel. */
typedef struct block {
    int32_t lane0, n_lanes; /* places in the order of the tree */
    int32_t n_units;
    int32_t unit[PANEL_UNITS]; /* which of the row */
    int32_t count[SWL_LANES];  /* units of each lane of the block */
} block;

typedef struct panel {
    alignas(64) uint8_t codes[PANEL_BYTES];
    alignas(64) rows ws[PANEL_UNITS], wb[PANEL_UNITS];
} panel;

/* Scales of the activations' units, and scale times sum: [token][units rounded up to 16]. */
typedef struct scales {
    int64_t stride;
    bool all; /* of all tokens of the call; else of a group */
    alignas(64) float xs[SCALES], xi[SCALES];
} scales;

typedef struct job {
    const swl_matrix *w;
    scales *s;
    int64_t row;
    int32_t n_rows; /* at most ROWS */
    const swl_act *a;
    const int32_t *tok;
    float *out;
    int64_t ldo;
} job;

static const uint8_t lane_at[SWL_LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

/* ---- panel ----------------------------------------------------------------------------------------------- */

static void plan_block(block *b, int32_t lane0, int32_t n_lanes, int32_t n_units)
{
    int32_t i, u;

    b->lane0 = lane0;
    b->n_lanes = n_lanes;
    b->n_units = 0;
    for (i = 0; i < n_lanes; i++) {
        b->count[i] = 0;
        for (u = lane_at[lane0 + i]; u < n_units; u += SWL_LANES) {
            b->unit[b->n_units++] = u;
            b->count[i]++;
        }
    }
}

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

/* The stored bytes of `n` units of one row side by side. A masked load at a pointer moved back puts a unit's bytes in
 * their place; it reads no others. */
INLINE __m512i load_units(const uint8_t *row, const int32_t *unit, int32_t n, int bytes)
{
    __m512i v = _mm512_setzero_si512();
    int i;

    if (bytes == 64)
        return _mm512_loadu_si512(row + (int64_t)unit[0] * 64);
    if (bytes == 32 && n == 2)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(row + (int64_t)unit[0] * 32))),
            _mm256_loadu_si256((const void *)(row + (int64_t)unit[1] * 32)), 1);
    for (i = 0; i < n; i++) {
        uintptr_t p = (uintptr_t)(row + (int64_t)unit[i] * bytes) - (uintptr_t)(i * bytes);

        v = _mm512_mask_loadu_epi8(v, low64(bytes) << (i * bytes), (const void *)p);
    }
    return v;
}

/* Eight codes of four bits in each 32-bit element: the first four of both elements of a 64-bit word, and the last four.
 */
INLINE void split_nibbles(__m512i v, uint8_t *to)
{
    const __m512i first = _mm512_set1_epi64(0x2c2824200c080400), last = _mm512_set1_epi64(0x3c3834301c181410);
    const __m512i nibble = _mm512_set1_epi8(15);

    _mm512_store_si512(to, _mm512_and_si512(_mm512_multishift_epi64_epi8(first, v), nibble));
    _mm512_store_si512(to + 64 * TILES, _mm512_and_si512(_mm512_multishift_epi64_epi8(last, v), nibble));
}

/* n_units units of one tile, that fill the sixteen registers of a transposition or less; the last row stands for those
 * that are missing. */
INLINE void unpack_step(const uint8_t *row, int64_t row_bytes, int32_t n_rows, const int32_t *units, int32_t n_units,
                        uint8_t *to, int bits, int unit)
{
    __m512i v[16];
    int i;

#pragma GCC unroll 16
    for (i = 0; i < 16; i++, row += i < n_rows ? row_bytes : 0)
        v[i] = load_units(row, units, n_units, bits * unit / 8);
    if (bits != 4)
#pragma GCC unroll 16
        for (i = 0; i < 16; i++)
            v[i] = spread_codes(v[i], bits);
    transpose(v);
#pragma GCC unroll 16
    for (i = 0; i < 16; i++)
        if (bits == 4)
            split_nibbles(v[i], to + 128 * TILES * i);
        else
            _mm512_store_si512(to + 64 * TILES * i, v[i]);
}

INLINE void unpack_tile(const swl_matrix *w, int64_t row, int32_t n_rows, const block *b, uint8_t *to, int bits,
                        int unit)
{
    int64_t row_bytes = swl_matrix_row_bytes(w);
    const uint8_t *base = w->data + row * row_bytes;
    int32_t step = (bits == 4 ? 128 : 64) / unit, u;

    for (u = 0; u + step <= b->n_units; u += step, to += 64 * TILES * step * unit / 4)
        unpack_step(base, row_bytes, n_rows, b->unit + u, step, to, bits, unit);
    if (u < b->n_units)
        unpack_step(base, row_bytes, n_rows, b->unit + u, b->n_units - u, to, bits, unit);
}

INLINE void unpack_tile_units(const swl_matrix *w, int64_t row, int32_t n_rows, const block *b, uint8_t *to, int bits)
{
    if (w->group >= 64)
        unpack_tile(w, row, n_rows, b, to, bits, 64);
    else if (w->group == 32)
        unpack_tile(w, row, n_rows, b, to, bits, 32);
    else
        unpack_tile(w, row, n_rows, b, to, bits, 16);
}

INLINE void unpack_any(const swl_matrix *w, int64_t row, int32_t n_rows, const block *b, uint8_t *to)
{
    switch (w->type) {
    case SWL_W_A2:
        unpack_tile_units(w, row, n_rows, b, to, 2);
        break;
    case SWL_W_A3:
        unpack_tile_units(w, row, n_rows, b, to, 3);
        break;
    case SWL_W_A4:
        unpack_tile_units(w, row, n_rows, b, to, 4);
        break;
    case SWL_W_A5:
        unpack_tile_units(w, row, n_rows, b, to, 5);
        break;
    case SWL_W_A6:
        unpack_tile_units(w, row, n_rows, b, to, 6);
        break;
    default:
        unpack_tile_units(w, row, n_rows, b, to, 8);
    }
}

static void unpack_codes(const swl_matrix *w, int64_t row, int32_t n_rows, const block *b, uint8_t *to)
{
    if (n_rows == 16)
        unpack_any(w, row, 16, b, to);
    else
        unpack_any(w, row, n_rows, b, to);
}

/* Scales are transposed sixteen units at a time, one of each lane; the block's lanes of them are kept. */
static void unpack_scales(const swl_matrix *w, const uint8_t *from, int64_t row, int32_t n_rows, const block *b,
                          int32_t n_units, int tile, rows *to)
{
    int64_t row_scales = w->cols / w->group;
    int32_t per_scale = w->group > 64 ? 2 : 1, turn, lane, at, i;

    for (turn = 0; turn * SWL_LANES < n_units; turn++) {
        int32_t n = min_i32(SWL_LANES, n_units - turn * SWL_LANES);
        __m512i v[16];

#pragma GCC unroll 16
        for (i = 0; i < 16; i++)
            v[i] = _mm512_castps_si512(unit_scales(w->sdtype, from, (row + min_i32(i, n_rows - 1)) * row_scales,
                                                   turn * SWL_LANES, n, per_scale));
        transpose(v);
        for (lane = 0, at = 0; lane < b->n_lanes; at += b->count[lane++])
            if (turn < b->count[lane])
                _mm512_store_si512(to[at + turn][tile], v[lane_at[b->lane0 + lane]]);
    }
}

/* Scales of 16 bits, and at most 64 to a row: two registers hold a row's, and sixteen units of the block are picked. */
static void pick_scales(const swl_matrix *w, const uint8_t *from, int64_t row, int32_t n_rows, const block *b,
                        int32_t n_units, int tile, rows *to)
{
    const uint8_t *p = from + 2 * row * n_units;
    uint16_t pick[PANEL_UNITS];
    int32_t u, i;

    for (u = 0; u < PANEL_UNITS; u++)
        pick[u] = (uint16_t)(u < b->n_units ? b->unit[u] : 0);
    for (u = 0; u < b->n_units; u += 16) {
        __m512i index = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(pick + u))), v[16];

#pragma GCC unroll 16
        for (i = 0; i < 16; i++) {
            const uint8_t *r = p + 2 * n_units * min_i32(i, n_rows - 1);
            __m512i low = load_bytes(r, 2 * n_units), high = load_bytes(r + 64, 2 * n_units - 64);
            __m256i h = _mm512_castsi512_si256(_mm512_permutex2var_epi16(low, index, high));

            v[i] = w->sdtype == SWL_DT_BF16 ? _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)
                                            : _mm512_castps_si512(_mm512_cvtph_ps(h));
        }
        transpose(v);
        for (i = 0; i < 16 && u + i < b->n_units; i++)
            _mm512_store_si512(to[u + i][tile], v[i]);
    }
}

static void put_scales(const swl_matrix *w, const uint8_t *from, int64_t row, int32_t n_rows, const block *b,
                       int32_t n_units, int tile, rows *to)
{
    if (w->sdtype != SWL_DT_F32 && w->group <= 64 && n_units <= 64)
        pick_scales(w, from, row, n_rows, b, n_units, tile, to);
    else
        unpack_scales(w, from, row, n_rows, b, n_units, tile, to);
}

static void make_panel(panel *p, const job *j, const block *b, int32_t n_units)
{
    int tile;

    for (tile = 0; tile < TILES; tile++) {
        int32_t rest = j->n_rows - 16 * tile, n = rest > 16 ? 16 : rest;
        int64_t row = j->row + 16 * tile;

        if (n <= 0) { /* a tile without rows: any numbers do */
            row = j->row;
            n = 1;
        }
        unpack_codes(j->w, row, n, b, p->codes + 64 * tile);
        put_scales(j->w, j->w->scales, row, n, b, n_units, tile, p->ws);
        put_scales(j->w, j->w->biases, row, n, b, n_units, tile, p->wb);
    }
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* A group of tokens against a block. */
typedef struct group {
    const int8_t *x[TOKENS];
    const float *xs[TOKENS], *xi[TOKENS];
    alignas(64) rows lane[SWL_LANES][TOKENS]; /* of the block, in its order */
} group;

INLINE __m512i four_bytes(const int8_t *p)
{
    int32_t v;

    __builtin_memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

/* One unit of n_tok tokens (a constant) added to the lanes at `to`, or put there if it is the lane's first. */
INLINE void add_unit(const panel *p, const block *b, group *g, int32_t u, bool first, rows *to, int n_tok, int unit)
{
    const uint8_t *codes = p->codes + (int64_t)u * unit * ROWS;
    int32_t of_row = b->unit[u], col = of_row * unit;
    __m512i acc[TOKENS][TILES];
    int i, t, k;

#pragma GCC unroll 8
    for (t = 0; t < n_tok; t++)
        acc[t][0] = acc[t][1] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (i = 0; i < unit / 4; i++, codes += 128) {
        __m512i w0 = _mm512_load_si512(codes), w1 = _mm512_load_si512(codes + 64);

#pragma GCC unroll 8
        for (t = 0; t < n_tok; t++) {
            __m512i x = four_bytes(g->x[t] + col + 4 * i);

            acc[t][0] = _mm512_dpbusd_epi32(acc[t][0], w0, x);
            acc[t][1] = _mm512_dpbusd_epi32(acc[t][1], w1, x);
        }
    }
    __asm__ volatile("" ::: "memory"); /* so that the compiler does not keep lanes in registers that the sums need */
#pragma GCC unroll 2
    for (k = 0; k < TILES; k++) {
        __m512 ws = _mm512_load_ps(p->ws[u][k]), wb = _mm512_load_ps(p->wb[u][k]);

#pragma GCC unroll 8
        for (t = 0; t < n_tok; t++) {
            __m512 l = first ? _mm512_setzero_ps() : _mm512_load_ps(to[t][k]);

            l = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t][k]), _mm512_mul_ps(ws, _mm512_set1_ps(g->xs[t][of_row])), l);
            _mm512_store_ps(to[t][k], _mm512_fmadd_ps(wb, _mm512_set1_ps(g->xi[t][of_row]), l));
        }
    }
}

INLINE void multiply(const panel *p, const block *b, group *g, int n_tok, int unit)
{
    int32_t lane, u = 0, i;

    for (lane = 0; lane < b->n_lanes; lane++) {
        if (b->count[lane])
            add_unit(p, b, g, u, true, g->lane[lane], n_tok, unit);
        for (i = 1; i < b->count[lane]; i++)
            add_unit(p, b, g, u + i, false, g->lane[lane], n_tok, unit);
        u += b->count[lane];
    }
}

INLINE void multiply_tokens(const panel *p, const block *b, group *g, int32_t n, int unit)
{
    switch (n) {
    case 1:
        multiply(p, b, g, 1, unit);
        break;
    case 2:
        multiply(p, b, g, 2, unit);
        break;
    case 3:
        multiply(p, b, g, 3, unit);
        break;
    case 4:
        multiply(p, b, g, 4, unit);
        break;
    case 5:
        multiply(p, b, g, 5, unit);
        break;
    case 6:
        multiply(p, b, g, 6, unit);
        break;
    case 7:
        multiply(p, b, g, 7, unit);
        break;
    default:
        multiply(p, b, g, 8, unit);
    }
}

static void multiply_group(const panel *p, const block *b, group *g, int32_t n, int unit)
{
    if (unit == 64)
        multiply_tokens(p, b, g, n, 64);
    else if (unit == 32)
        multiply_tokens(p, b, g, n, 32);
    else
        multiply_tokens(p, b, g, n, 16);
}

/* ---- loops ----------------------------------------------------------------------------------------------- */

INLINE void load_scales_of(const swl_act *a, int64_t row, int32_t n_units, int unit, float *xs, float *xi)
{
    __m512 v;
    int32_t u;

    for (u = 0; u + SWL_LANES <= n_units; u += SWL_LANES) {
        _mm512_store_ps(xs + u, act_units(a, row, unit, u, SWL_LANES, &v));
        _mm512_store_ps(xi + u, v);
    }
    if (u < n_units) {
        _mm512_store_ps(xs + u, act_units(a, row, unit, u, n_units - u, &v));
        _mm512_store_ps(xi + u, v);
    }
}

/* Tokens [t0, t0 + n) to the first n places of s. */
static void load_act_scales(scales *s, const swl_act *a, const int32_t *tok, int32_t t0, int32_t n, int32_t n_units,
                            int unit)
{
    int32_t t;

    for (t = 0; t < n; t++) {
        int64_t row = tok ? tok[t0 + t] : t0 + t;
        float *xs = s->xs + t * s->stride, *xi = s->xi + t * s->stride;

        if (unit == 64)
            load_scales_of(a, row, n_units, 64, xs, xi);
        else if (unit == 32)
            load_scales_of(a, row, n_units, 32, xs, xi);
        else
            load_scales_of(a, row, n_units, 16, xs, xi);
    }
}

/* The lines that the next group needs are asked for: units come in an order that no hardware guesses. So are those of
 * the output, which are written once and far apart. */
static void load_group(group *g, const job *j, const block *b, int32_t t0, int32_t n, int32_t n_next, int32_t n_units,
                       int unit)
{
    int32_t t, u;

    if (!j->s->all)
        load_act_scales(j->s, j->a, j->tok, t0, n, n_units, unit);
    for (t = 0; t < n; t++) {
        int64_t row = j->tok ? j->tok[t0 + t] : t0 + t, at = (j->s->all ? t0 + t : t) * j->s->stride;

        g->x[t] = j->a->q + row * j->a->ldq;
        g->xs[t] = j->s->xs + at;
        g->xi[t] = j->s->xi + at;
        _mm_prefetch((const char *)(j->out + (t0 + t) * j->ldo), _MM_HINT_T0);
        _mm_prefetch((const char *)(j->out + (t0 + t) * j->ldo + 16), _MM_HINT_T0);
    }
    for (t = t0 + n; t < t0 + n + n_next; t++) {
        const int8_t *x = j->a->q + (j->tok ? j->tok[t] : t) * j->a->ldq;

        for (u = 0; u < b->n_units; u++)
            _mm_prefetch((const char *)x + b->unit[u] * unit, _MM_HINT_T1);
    }
}

/* The sum of a branch of n lanes for one token and tile; stride 2: of every second one. */
INLINE __m512 fold_lanes(const group *g, int32_t t, int32_t k, int n, int stride)
{
    __m512 v[SWL_LANES];
    int i;

#pragma GCC unroll 16
    for (i = 0; i < n; i++)
        v[i] = _mm512_load_ps(g->lane[i * stride][t][k]);
#pragma GCC unroll 4
    for (; n > 1; n /= 2)
#pragma GCC unroll 8
        for (i = 0; i < n / 2; i++)
            v[i] = _mm512_add_ps(v[2 * i], v[2 * i + 1]);
    return v[0];
}

/* Rows of up to eight units leave lanes 8 to 15 at zero. Adding zero to each of the others only matters if all are -0,
 * and then one addition at the end does the same. */
INLINE __m512 fold_block(const group *g, const block *b, int32_t t, int32_t k)
{
    if (b->n_lanes == SWL_LANES && b->n_units <= 8)
        return _mm512_add_ps(fold_lanes(g, t, k, 8, 2), _mm512_setzero_ps());
    switch (b->n_lanes) {
    case 16:
        return fold_lanes(g, t, k, 16, 1);
    case 8:
        return fold_lanes(g, t, k, 8, 1);
    case 4:
        return fold_lanes(g, t, k, 4, 1);
    case 2:
        return fold_lanes(g, t, k, 2, 1);
    default:
        return _mm512_load_ps(g->lane[0][t][k]);
    }
}

/*
 * Folds the block's lanes and adds the branch to those that wait: after `done` lanes a branch of 2^i waits if bit i of
 * done is set. The last block's sum is the result. The largest branch, of eight lanes, waits in the output, smaller
 * ones in `held`, of this token.
 */
INLINE void finish_token(const group *g, const job *j, const block *b, int32_t t, float *out, rows *held)
{
    int32_t k, size, i;

    for (k = 0; k < TILES && 16 * k < j->n_rows; k++) {
        __mmask16 m = low16(j->n_rows - 16 * k);
        __m512 v = fold_block(g, b, t, k);

        for (size = b->n_lanes, i = 0; b->lane0 & size; size *= 2, i++)
            v = _mm512_add_ps(size < 8 ? _mm512_load_ps(held[i][k]) : _mm512_maskz_loadu_ps(m, out + 16 * k), v);
        if (size >= 8)
            _mm512_mask_storeu_ps(out + 16 * k, m, v);
        else
            _mm512_store_ps(held[i][k], v);
    }
}

/* Groups of equal size as far as possible: a group of eight costs little more than a group of five. */
static void block_tokens(const panel *p, const job *j, const block *b, int32_t t0, int32_t n, int32_t n_units, int unit,
                         rows *held, int32_t n_held)
{
    int32_t n_groups = (n + TOKENS - 1) / TOKENS, i, k, t, end;
    group g;

    for (i = 0; i < b->n_lanes; i++)
        for (t = 0; t < TOKENS && !b->count[i]; t++)
            for (k = 0; k < TILES; k++)
                _mm512_store_ps(g.lane[i][t][k], _mm512_setzero_ps());
    for (i = 0, t = 0; i < n_groups; i++) {
        end = n * (i + 1) / n_groups;
        load_group(&g, j, b, t0 + t, end - t, min_i32(n - end, TOKENS), n_units, unit);
        multiply_group(p, b, &g, end - t, unit);
        for (k = 0; t < end; t++, k++)
            finish_token(&g, j, b, k, j->out + (t0 + t) * j->ldo, held + t * n_held);
    }
}

/* How many lanes a block may have (a power of two) so that it fits the panel; 0: not even one does. */
static int32_t block_lanes(int32_t n_units, int unit)
{
    int32_t turns = (n_units + SWL_LANES - 1) / SWL_LANES, k;

    for (k = turns <= TURNS ? SWL_LANES : 0; k; k /= 2)
        if (min_i32(turns * k, n_units) <= PANEL_UNITS && min_i32(turns * k, n_units) * unit * ROWS <= PANEL_BYTES)
            break;
    return k;
}

static void tile_rows(const job *j, int32_t n_tok, int32_t n_lanes, int unit)
{
    alignas(64) rows held[HELD];
    panel p;
    block b;
    int32_t n_units = j->w->cols / unit, n_held = 0, pass, t, n, lane;

    while (n_lanes << n_held < 8)
        n_held++;
    pass = n_held ? HELD / n_held : n_tok;
    for (t = 0; t < n_tok; t += n) {
        n = min_i32(pass, n_tok - t);
        for (lane = 0; lane < SWL_LANES; lane += n_lanes) {
            plan_block(&b, lane, n_lanes, n_units);
            make_panel(&p, j, &b, n_units);
            block_tokens(&p, j, &b, t, n, n_units, unit, held, n_held);
        }
    }
}

bool swl_matmul_tile_fits_avx512(const swl_matrix *w)
{
    int unit = w->group < 64 ? w->group : 64;

    return block_lanes(w->cols / unit, unit) > 0;
}

void swl_matmul_tile_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    int unit = w->group < 64 ? w->group : 64;
    int32_t n_units = w->cols / unit, n_lanes = block_lanes(n_units, unit), r;
    scales s;
    job j = {w, &s, row0, 0, a, tok, out, ldo};

    s.stride = (n_units + SWL_LANES - 1) / SWL_LANES * SWL_LANES;
    s.all = n_tok * s.stride <= SCALES;
    if (s.all)
        load_act_scales(&s, a, tok, 0, n_tok, n_units, unit);
    for (r = 0; r < n_rows; r += ROWS) {
        j.row = row0 + r;
        j.n_rows = min_i32(ROWS, n_rows - r);
        j.out = out + r;
        tile_rows(&j, n_tok, n_lanes, unit);
    }
}
