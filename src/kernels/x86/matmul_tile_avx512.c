/*
 * matmul_tile_avx512.c: quantised matrices times several tokens. A tile of sixteen rows is transposed two units or so at
 * a time, so that a register holds four columns of sixteen rows, a lane of a register is a row and no sum ever crosses
 * lanes. A unit's codes fill sixteen registers at most and stay there while all tokens of a block go past, whose
 * activations the multiplication itself broadcasts, four bytes at a time.
 * The order of the units and the stacks of branches are those of tile_avx512.h.
 *
 *   codes   [unit of a step][unit / 4][16 rows][4]    bytes; four bits: [unit / 8][16 rows][8]
 *   scales  [scale of a row][16 rows]                 float32, biases the same
 *   x       [unit][token][unit columns]               int8; four bits: of eight columns the even ones first. Room for an
 *                                                     odd number of tokens: units a power of two apart share one set of
 *                                                     the cache
 *   stack   [branch][token][16 rows]                  float32
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/tile_avx512.h"

enum {
    TOKENS = 64,          /* of a block: their stacks stay near */
    SCALES = 72 * TOKENS, /* units of a block, of all its tokens together */
    X_BYTES = 64 * (SCALES + UNITS_MAX),
    STEP_BYTES = 64 * ROWS,
    AT_ONCE = 8 /* tokens whose sums are in registers together: enough to hide the latency of two products a cycle */
};

typedef struct tile {
    const swl_matrix *w;
    int64_t row, row_bytes;
    int32_t n_rows; /* at most ROWS; the last one stands for those that are missing */
    int32_t n_next; /* rows of the tile after it */
    alignas(64) float ws[UNITS_MAX][ROWS], wb[UNITS_MAX][ROWS];
} tile;

typedef struct tokens {
    int32_t n, stride; /* stride: n rounded up to 16 */
    int64_t ldu;       /* bytes of x from a unit to the next */
    alignas(64) int8_t x[X_BYTES];
    alignas(64) float xs[SCALES], xi[SCALES]; /* [unit][token]: scale, and scale times sum */
    alignas(64) float stack[2 * DEPTH][TOKENS][ROWS];
} tokens;

/* ---- unpacking ------------------------------------------------------------------------------------------- */

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
    const int8_t *x = k->x + p->unit * k->ldu + t * unit;
    const float *xs = k->xs + p->unit * k->stride + t, *xi = k->xi + p->unit * k->stride + t;
    float *top = k->stack[p->at][t];
    __m512i acc[AT_ONCE];
    __m512 lane[AT_ONCE];
    int32_t m;
    int i, j;

    __asm__("" : "+r"(x), "+r"(xs), "+r"(xi), "+r"(top)); /* short addresses: one base each, small offsets */
#pragma GCC unroll 8
    for (j = 0; j < n; j++)
        acc[j] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (i = 0; i < unit / 4; i++)
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            acc[j] = dot4(acc[j], w[i], x + unit * j + 4 * i);
#pragma GCC unroll 8
    for (j = 0; j < n; j++) {
        lane[j] = p->goes_on ? _mm512_load_ps(top + j * ROWS) : _mm512_setzero_ps();
        lane[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[j]), _mm512_mul_ps(ws, _mm512_set1_ps(xs[j])), lane[j]);
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

INLINE void add_unit_to_all(tokens *k, const tile *s, const place *p, const uint8_t *codes, ahead *next, int bits,
                            int unit)
{
    int32_t scale = p->unit * unit / s->w->group, t;
    __m512 ws = _mm512_load_ps(s->ws[scale]), wb = _mm512_load_ps(s->wb[scale]);
    __m512i w[16];

    load_unit(w, codes, bits, unit);
    for (t = 0; t + AT_ONCE <= k->n; t += AT_ONCE) {
        ask_ahead(next);
        add_unit(k, p, t, w, ws, wb, AT_ONCE, unit);
    }
    if (k->n - t >= 4) {
        add_unit(k, p, t, w, ws, wb, 4, unit);
        t += 4;
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

/* One token's activations, unit by unit. */
INLINE void load_x(tokens *k, const int8_t *q, int32_t t, int32_t n_units, int bits, int unit)
{
    int32_t u;

    for (u = 0; u < n_units; u++, q += unit) {
        int8_t *to = k->x + u * k->ldu + t * unit;

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
    k->ldu = (int64_t)(n | 1) * unit;
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
        __m512 v = close_tree(o, _mm512_load_ps(k->stack[0][t]), _mm512_load_ps(k->stack[DEPTH][t]));

        _mm512_mask_storeu_ps(out + t * ldo, low16(s->n_rows), v);
    }
}

static void run_tile(tile *s, tokens *k, const order *o, int unit, float *out, int64_t ldo)
{
    int32_t step = (s->w->type == SWL_W_A4 ? 128 : 64) / unit, n_steps = (o->n_units + step - 1) / step, u, n;
    int32_t groups = k->n < AT_ONCE ? 1 : k->n / AT_ONCE;
    int64_t scale_bytes = swl_matrix_scale_bytes(s->w), row = s->row + ROWS;
    ahead codes_ahead = ahead_of(s->w->data, s->row_bytes, row, s->n_next, o->n_units * groups);
    ahead ws_ahead = ahead_of(s->w->scales, scale_bytes, row, s->n_next, n_steps);
    ahead wb_ahead = ahead_of(s->w->biases, scale_bytes, row, s->n_next, n_steps);
    alignas(64) uint8_t codes[STEP_BYTES];

    unpack_scales(s->w, s->w->scales, s->row, s->n_rows, s->ws);
    unpack_scales(s->w, s->w->biases, s->row, s->n_rows, s->wb);
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
