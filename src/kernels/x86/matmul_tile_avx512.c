/*
 * matmul_tile_avx512.c: quantised matrices times several tokens. A tile of sixteen rows is transposed two units or so at
 * a time, so that a register holds four columns of sixteen rows, a lane of a register is a row and no sum ever crosses
 * lanes. A unit's codes fill sixteen registers at most and stay there while all tokens of a block go past, whose
 * activations the multiplication itself broadcasts, four bytes at a time.
 *
 * Units come in the order of the contract's lanes, and lanes in that of the fold's tree, so that a token keeps no lanes,
 * only a stack of finished branches, which are added up like the digits of a binary counter. The even and the odd lanes
 * are two such trees that grow side by side (lanes 0 8 4 12 2 10 6 14, and the ones after each), because neighbouring
 * units share a line of memory.
 *
 *   codes   [unit of a step][unit / 4][16 rows][4]    bytes; four bits: [unit / 8][16 rows][8]
 *   scales  [scale of a row][16 rows]                 float32, biases the same
 *   x       [unit][token][unit columns]               int8; four bits: of eight columns the even ones first
 *   stack   [branch][token][16 rows]                  float32
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/quant_avx512.h"

enum {
    ROWS = 16,
    TOKENS = 64,             /* of a block: their stacks stay near */
    UNITS_MAX = 288,         /* of a row */
    SCALES = 72 * TOKENS,    /* units of a block, of all its tokens together */
    X_BYTES = 64 * SCALES,
    STEP_BYTES = 64 * ROWS,
    DEPTH = 4                /* branches of a tree of eight lanes that wait, and the one that grows */
};

/* A unit of every row, and what is to be done with its lane afterwards. */
typedef struct place {
    int32_t unit;
    bool goes_on;      /* its lane has begun */
    int8_t at;         /* where on the stacks its lane is */
    int8_t merges;     /* branches below that are finished with it */
} place;

typedef struct order {
    int32_t n_units;
    bool odd; /* there is an odd lane */
    place place[UNITS_MAX];
} order;

typedef struct tile {
    const swl_matrix *w;
    int64_t row, row_bytes;
    int32_t n_rows; /* at most ROWS; the last one stands for those that are missing */
    int32_t n_next; /* rows of the tile after it */
    alignas(64) float ws[UNITS_MAX][ROWS], wb[UNITS_MAX][ROWS];
} tile;

typedef struct tokens {
    int32_t n, stride; /* stride: n rounded up to 16 */
    alignas(64) int8_t x[X_BYTES];
    alignas(64) float xs[SCALES], xi[SCALES]; /* [unit][token]: scale, and scale times sum */
    alignas(64) float stack[2 * DEPTH][TOKENS][ROWS];
} tokens;

/* ---- order ----------------------------------------------------------------------------------------------- */

/* A tree of eight lanes while it is laid out: which branches have units, and how many wait. */
typedef struct tree {
    bool has[DEPTH];
    int8_t base, depth;
    place *last;
} tree;

static void begin_lane(tree *t, bool some)
{
    t->depth = (int8_t)(t->depth + some);
}

/* Lane number i of eight is complete: it is added to the branches that end with it. Those without units are left out. */
static void end_lane(tree *t, int32_t i, bool some)
{
    int32_t level;

    for (level = 0; i >> level & 1; level++) {
        if (some && t->has[level]) {
            t->last->merges++;
            t->depth--;
        }
        some = some || t->has[level];
    }
    t->has[level] = some;
}

static void place_unit(order *o, tree *t, int32_t unit)
{
    t->last = &o->place[o->n_units++];
    *t->last = (place){unit, unit >= SWL_LANES, (int8_t)(t->base + t->depth - 1), 0};
}

static void place_units(order *o, int32_t n_units)
{
    static const uint8_t lane_at[SWL_LANES / 2] = {0, 8, 4, 12, 2, 10, 6, 14};
    tree even = {.base = 0}, odd = {.base = DEPTH};
    int32_t i, u;

    o->n_units = 0;
    o->odd = n_units > 1;
    for (i = 0; i < SWL_LANES / 2; i++) {
        int32_t lane = lane_at[i];

        begin_lane(&even, lane < n_units);
        begin_lane(&odd, lane + 1 < n_units);
        for (u = lane; u < n_units; u += SWL_LANES) {
            place_unit(o, &even, u);
            if (u + 1 < n_units)
                place_unit(o, &odd, u + 1);
        }
        end_lane(&even, i, lane < n_units);
        end_lane(&odd, i, lane + 1 < n_units);
    }
}

/* ---- unpacking ------------------------------------------------------------------------------------------- */

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
INLINE __m512i load_units(const uint8_t *row, const place *p, int32_t n, int bytes)
{
    __m512i v = _mm512_setzero_si512();
    int i;

    if (bytes == 64)
        return _mm512_loadu_si512(row + (int64_t)p[0].unit * 64);
    if (bytes == 32 && n == 2)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(row + (int64_t)p[0].unit * 32))),
            _mm256_loadu_si256((const void *)(row + (int64_t)p[1].unit * 32)), 1);
    for (i = 0; i < n; i++) {
        uintptr_t from = (uintptr_t)(row + (int64_t)p[i].unit * bytes) - (uintptr_t)(i * bytes);

        v = _mm512_mask_loadu_epi8(v, low64(bytes) << (i * bytes), (const void *)from);
    }
    return v;
}

/* Two neighbouring units of 64: the frequent case. */
INLINE void unpack_pair_a4(const uint8_t *row, int64_t row_bytes, uint8_t *to)
{
    __m512i v[16];
    int i;

#pragma GCC unroll 16
    for (i = 0; i < 16; i++, row += row_bytes)
        v[i] = _mm512_loadu_si512(row);
    transpose(v);
#pragma GCC unroll 16
    for (i = 0; i < 16; i++)
        _mm512_store_si512(to + 64 * i, v[i]);
}

/* n units of a tile, that fill the sixteen registers of a transposition or less; the last row stands for those that are
 * missing. */
INLINE void unpack_step(const uint8_t *row, int64_t row_bytes, int32_t n_rows, const place *p, int32_t n, uint8_t *to,
                        int bits, int unit)
{
    __m512i v[16];
    int i;

#pragma GCC unroll 16
    for (i = 0; i < 16; i++, row += i < n_rows ? row_bytes : 0)
        v[i] = load_units(row, p, n, bits * unit / 8);
    if (bits != 4)
#pragma GCC unroll 16
        for (i = 0; i < 16; i++)
            v[i] = spread_codes(v[i], bits);
    transpose(v);
#pragma GCC unroll 16
    for (i = 0; i < 16; i++)
        _mm512_store_si512(to + 64 * i, v[i]);
}

static void unpack_any(const uint8_t *row, int64_t row_bytes, int32_t n_rows, const place *p, int32_t n, uint8_t *to,
                       int bits, int unit)
{
    if (unit == 64)
        unpack_step(row, row_bytes, n_rows, p, n, to, bits, 64);
    else if (unit == 32)
        unpack_step(row, row_bytes, n_rows, p, n, to, bits, 32);
    else
        unpack_step(row, row_bytes, n_rows, p, n, to, bits, 16);
}

static void unpack(const tile *t, const place *p, int32_t n, uint8_t *to, int unit)
{
    int64_t row_bytes = t->row_bytes;
    const uint8_t *row = t->w->data + t->row * row_bytes;

    switch (t->w->type) {
    case SWL_W_A2:
        unpack_any(row, row_bytes, t->n_rows, p, n, to, 2, unit);
        break;
    case SWL_W_A3:
        unpack_any(row, row_bytes, t->n_rows, p, n, to, 3, unit);
        break;
    case SWL_W_A4:
        if (unit == 64 && n == 2 && p[1].unit == p[0].unit + 1 && t->n_rows == ROWS)
            unpack_pair_a4(row + p->unit * 32, row_bytes, to);
        else
            unpack_any(row, row_bytes, t->n_rows, p, n, to, 4, unit);
        break;
    case SWL_W_A5:
        unpack_any(row, row_bytes, t->n_rows, p, n, to, 5, unit);
        break;
    case SWL_W_A6:
        unpack_any(row, row_bytes, t->n_rows, p, n, to, 6, unit);
        break;
    default:
        unpack_any(row, row_bytes, t->n_rows, p, n, to, 8, unit);
    }
}

/* Scales of the tile's rows, n to a row: 64 bytes of each row at a time become columns. */
static void unpack_scales(const tile *t, const uint8_t *from, int32_t n, float (*to)[ROWS])
{
    int64_t size = swl_dtype_size(t->w->sdtype), row_bytes = n * size, at;
    const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000);
    int32_t i;

    from += t->row * row_bytes;
    for (at = 0; at < row_bytes; at += 64) {
        __m512i v[16];

#pragma GCC unroll 16
        for (i = 0; i < 16; i++)
            v[i] = load_bytes(from + row_bytes * min_i32(i, t->n_rows - 1) + at, row_bytes - at);
        transpose(v);
#pragma GCC unroll 16
        for (i = 0; i < 16; i++) {
            int64_t k = (at + 4 * i) / size;

            if (k >= n)
                break;
            if (size == 4) {
                _mm512_store_si512(to[k], v[i]);
            } else if (t->w->sdtype == SWL_DT_BF16) {
                _mm512_store_si512(to[k], _mm512_slli_epi32(v[i], 16));
                _mm512_store_si512(to[k + 1], _mm512_and_si512(v[i], high));
            } else {
                _mm512_store_ps(to[k], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v[i])));
                _mm512_store_ps(to[k + 1], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v[i], 16))));
            }
        }
    }
}

/* ---- what comes next ------------------------------------------------------------------------------------- */

/* The next tile's bytes, asked for a few lines at a time all through this tile: sixteen rows at once is an order that no
 * processor guesses, and many requests in one place wait for each other. */
typedef struct ahead {
    const uint8_t *p;
    int64_t n; /* lines of 64 bytes each time */
} ahead;

/* Rows [row, row + n_rows) in `times` parts. */
static ahead ahead_of(const uint8_t *p, int64_t row_bytes, int64_t row, int32_t n_rows, int32_t times)
{
    return (ahead){p + row * row_bytes, (n_rows * row_bytes + 64 * times - 1) / (64 * times)};
}

INLINE void ask_ahead(ahead *a)
{
    int64_t i;

    for (i = 0; i < a->n; i++, a->p += 64)
        _mm_prefetch((const char *)a->p, _MM_HINT_T1);
}

/* ---- products -------------------------------------------------------------------------------------------- */

typedef int32_t __attribute__((may_alias, aligned(1))) any_i32;

/* acc + four codes of each row times the four activations at x. Compilers would broadcast by an instruction of its own. */
INLINE __m512i dot4(__m512i acc, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const any_i32 *)x));
    return acc;
}

/* A unit's codes, four columns to a register. */
INLINE void load_unit(__m512i *w, const uint8_t *codes, int bits, int unit)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    int i;

    if (bits == 4)
#pragma GCC unroll 8
        for (i = 0; i < unit / 8; i++) {
            __m512i v = _mm512_load_si512(codes + 64 * i);

            w[2 * i] = _mm512_and_si512(v, nibble);
            w[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        }
    else
#pragma GCC unroll 16
        for (i = 0; i < unit / 4; i++) {
            w[i] = _mm512_load_si512(codes + 64 * i);
            __asm__("" : "+v"(w[i])); /* in a register: the compiler would rather load it for each token */
        }
}

/* One unit of n tokens (a constant) from t on: into their lanes, and finished branches together. */
INLINE void add_unit(tokens *k, const place *p, int32_t t, const __m512i *w, __m512 ws, __m512 wb, int n, int unit)
{
    const int8_t *x = k->x + ((int64_t)p->unit * k->n + t) * unit;
    const float *xs = k->xs + p->unit * k->stride + t, *xi = k->xi + p->unit * k->stride + t;
    float *top = k->stack[p->at][t];
    __m512i acc[4];
    __m512 lane[4];
    int32_t m;
    int i, j;

    __asm__("" : "+r"(x), "+r"(xs), "+r"(xi), "+r"(top)); /* short addresses: one base each, small offsets */
#pragma GCC unroll 4
    for (j = 0; j < n; j++)
        acc[j] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (i = 0; i < unit / 4; i++)
#pragma GCC unroll 4
        for (j = 0; j < n; j++)
            acc[j] = dot4(acc[j], w[i], x + unit * j + 4 * i);
#pragma GCC unroll 4
    for (j = 0; j < n; j++) {
        lane[j] = p->goes_on ? _mm512_load_ps(top + j * ROWS) : _mm512_setzero_ps();
        lane[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[j]), _mm512_mul_ps(ws, _mm512_set1_ps(xs[j])), lane[j]);
        lane[j] = _mm512_fmadd_ps(wb, _mm512_set1_ps(xi[j]), lane[j]);
    }
    for (m = 0; m < p->merges; m++) {
        top -= TOKENS * ROWS;
#pragma GCC unroll 4
        for (j = 0; j < n; j++)
            lane[j] = _mm512_add_ps(_mm512_load_ps(top + j * ROWS), lane[j]);
    }
#pragma GCC unroll 4
    for (j = 0; j < n; j++)
        _mm512_store_ps(top + j * ROWS, lane[j]);
}

INLINE void add_unit_to_all(tokens *k, const tile *s, const place *p, const uint8_t *codes, ahead *next, int bits,
                            int unit)
{
    int32_t scale = p->unit * unit / s->w->group, t;
    __m512 ws = _mm512_load_ps(s->ws[scale]), wb = _mm512_load_ps(s->wb[scale]);
    __m512i w[16];

    load_unit(w, codes, bits, unit);
    for (t = 0; t + 4 <= k->n; t += 4) {
        ask_ahead(next);
        add_unit(k, p, t, w, ws, wb, 4, unit);
    }
    if (k->n - t == 3)
        add_unit(k, p, t, w, ws, wb, 3, unit);
    else if (k->n - t == 2)
        add_unit(k, p, t, w, ws, wb, 2, unit);
    else if (k->n - t == 1)
        add_unit(k, p, t, w, ws, wb, 1, unit);
}

INLINE void add_step(tokens *k, const tile *s, const place *p, int32_t n, const uint8_t *codes, ahead *next, int bits,
                     int unit)
{
    int32_t i;

    for (i = 0; i < n; i++, codes += unit * ROWS * (bits == 4 ? 4 : 8) / 8)
        add_unit_to_all(k, s, p + i, codes, next, bits, unit);
}

static void add_step_any(tokens *k, const tile *s, const place *p, int32_t n, const uint8_t *codes, ahead *next, int unit)
{
    if (s->w->type == SWL_W_A4) {
        if (unit == 64)
            add_step(k, s, p, n, codes, next, 4, 64);
        else if (unit == 32)
            add_step(k, s, p, n, codes, next, 4, 32);
        else
            add_step(k, s, p, n, codes, next, 4, 16);
    } else if (unit == 64) {
        add_step(k, s, p, n, codes, next, 8, 64);
    } else if (unit == 32) {
        add_step(k, s, p, n, codes, next, 8, 32);
    } else {
        add_step(k, s, p, n, codes, next, 8, 16);
    }
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

/* A shuffle of bytes: of eight the even ones first. */
INLINE __m512i in_eights(void)
{
    return _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}

/* One token's activations, unit by unit. */
INLINE void load_x(tokens *k, const int8_t *q, int32_t t, int32_t n_units, int bits, int unit)
{
    int32_t u;

    for (u = 0; u < n_units; u++, q += unit) {
        int8_t *to = k->x + ((int64_t)u * k->n + t) * unit;

        if (unit == 64) {
            __m512i v = _mm512_loadu_si512(q);

            _mm512_storeu_si512(to, bits == 4 ? _mm512_shuffle_epi8(v, in_eights()) : v);
        } else if (unit == 32) {
            __m256i v = _mm256_loadu_si256((const void *)q);

            _mm256_storeu_si256((void *)to, bits == 4 ? _mm256_shuffle_epi8(v, _mm512_castsi512_si256(in_eights())) : v);
        } else {
            __m128i v = _mm_loadu_si128((const void *)q);

            _mm_storeu_si128((void *)to, bits == 4 ? _mm_shuffle_epi8(v, _mm512_castsi512_si128(in_eights())) : v);
        }
    }
}

INLINE void load_act_scales(tokens *k, const swl_act *a, const int32_t *tok, int32_t t0, int32_t n_units, int unit)
{
    int32_t t, u, i;

    for (t = 0; t < k->n; t += 16)
        for (u = 0; u < n_units; u += 16) {
            __m512i s[16], x[16];
            __m512 xi;

#pragma GCC unroll 1
            for (i = 0; i < 16; i++) {
                int32_t at = t0 + min_i32(t + i, k->n - 1);

                s[i] = _mm512_castps_si512(act_units(a, tok ? tok[at] : at, unit, u, min_i32(16, n_units - u), &xi));
                x[i] = _mm512_castps_si512(xi);
            }
            transpose(s);
            transpose(x);
            for (i = 0; i < 16 && u + i < n_units; i++) {
                _mm512_store_si512(k->xs + (u + i) * k->stride + t, s[i]);
                _mm512_store_si512(k->xi + (u + i) * k->stride + t, x[i]);
            }
        }
}

INLINE void load_tokens_of(tokens *k, const swl_act *a, const int32_t *tok, int32_t t0, int32_t n_units, bool four,
                           int unit)
{
    int32_t t;

    for (t = 0; t < k->n; t++) {
        const int8_t *q = a->q + (tok ? tok[t0 + t] : t0 + t) * a->ldq;

        if (four)
            load_x(k, q, t, n_units, 4, unit);
        else
            load_x(k, q, t, n_units, 8, unit);
    }
    load_act_scales(k, a, tok, t0, n_units, unit);
}

static void load_tokens(tokens *k, const swl_act *a, const int32_t *tok, int32_t t0, int32_t n, int32_t n_units,
                        bool four, int unit)
{
    k->n = n;
    k->stride = (n + 15) / 16 * 16;
    if (unit == 64)
        load_tokens_of(k, a, tok, t0, n_units, four, 64);
    else if (unit == 32)
        load_tokens_of(k, a, tok, t0, n_units, four, 32);
    else
        load_tokens_of(k, a, tok, t0, n_units, four, 16);
}

/* ---- loops ----------------------------------------------------------------------------------------------- */

static void store_tile(const tile *s, const tokens *k, const order *o, float *out, int64_t ldo)
{
    int32_t t;

    for (t = 0; t < k->n; t++) {
        __m512 v = _mm512_load_ps(k->stack[0][t]);

        if (o->odd)
            v = _mm512_add_ps(v, _mm512_load_ps(k->stack[DEPTH][t]));
        if (o->n_units < SWL_LANES) /* lanes that were left out are zero: that matters only if all others are -0 */
            v = _mm512_add_ps(v, _mm512_setzero_ps());
        _mm512_mask_storeu_ps(out + t * ldo, low16(s->n_rows), v);
    }
}

static void run_tile(tile *s, tokens *k, const order *o, int unit, float *out, int64_t ldo)
{
    int32_t step = (s->w->type == SWL_W_A4 ? 128 : 64) / unit, n_steps = (o->n_units + step - 1) / step, u, n;
    int32_t n_scales = s->w->cols / s->w->group, groups = k->n < 4 ? 1 : k->n / 4;
    int64_t scale_bytes = n_scales * (int64_t)swl_dtype_size(s->w->sdtype), row = s->row + ROWS;
    ahead codes_ahead = ahead_of(s->w->data, s->row_bytes, row, s->n_next, o->n_units * groups);
    ahead ws_ahead = ahead_of(s->w->scales, scale_bytes, row, s->n_next, n_steps);
    ahead wb_ahead = ahead_of(s->w->biases, scale_bytes, row, s->n_next, n_steps);
    alignas(64) uint8_t codes[STEP_BYTES];

    unpack_scales(s, s->w->scales, n_scales, s->ws);
    unpack_scales(s, s->w->biases, n_scales, s->wb);
    for (u = 0; u < o->n_units; u += n) {
        n = min_i32(step, o->n_units - u);
        ask_ahead(&ws_ahead);
        ask_ahead(&wb_ahead);
        unpack(s, o->place + u, n, codes, unit);
        add_step_any(k, s, o->place + u, n, codes, &codes_ahead, unit);
    }
    store_tile(s, k, o, out, ldo);
}

bool swl_matmul_tile_fits_avx512(const swl_matrix *w)
{
    return w->cols / (w->group < 64 ? w->group : 64) <= UNITS_MAX;
}

void swl_matmul_tile_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, float *out, int64_t ldo)
{
    int unit = w->group < 64 ? w->group : 64;
    int32_t n_units = w->cols / unit, block = min_i32(SCALES / n_units / 16 * 16, TOKENS), r, t, n;
    ahead first;
    tile s;
    order o;
    tokens k;

    s.w = w;
    s.row_bytes = swl_matrix_row_bytes(w);
    first = ahead_of(w->data, s.row_bytes, row0, min_i32(ROWS, n_rows), 1);
    ask_ahead(&first);
    place_units(&o, n_units);
    for (t = 0; t < n_tok; t += n) {
        n = min_i32(block, n_tok - t);
        load_tokens(&k, a, tok, t, n, n_units, w->type == SWL_W_A4, unit);
        for (r = 0; r < n_rows; r += ROWS) {
            s.row = row0 + r;
            s.n_rows = min_i32(ROWS, n_rows - r);
            s.n_next = min_i32(ROWS, n_rows - r - s.n_rows);
            run_tile(&s, &k, &o, unit, out + t * ldo + r, ldo);
        }
    }
}
