/*
 * matmul_tile_avx512.c: quantised matrices times several tokens. A tile of sixteen rows is transposed two units or so at
 * a time, so that a register holds four columns of sixteen rows, a lane of a register is a row and no sum ever crosses
 * lanes. Two tiles go past the tokens together, eight at a time: four bytes of an activation are broadcast once for both.
 * The order of the units and the stacks of branches are those of tile_avx512.h.
 *
 *   codes   [unit of a step][unit / 4][16 rows][4]    bytes; four bits: [unit / 8][16 rows][8]
 *   scales  [scale of a row][16 rows]                 float32, biases the same
 *   x       [unit][token][unit columns]               int8; four bits: of eight columns the even ones first. Room for an
 *                                                     odd number of tokens: units a power of two apart share one set of
 *                                                     the cache
 *   stack   [branch][token][tile][16 rows]            float32
 */
#include "kernels/x86/x86.h"

#include <stdalign.h>

#include "kernels/x86/tile_avx512.h"

enum {
    TILES = 2,            /* at once, one below the other */
    TOKENS = 64,          /* of a block: their stacks stay near */
    SCALES = 72 * TOKENS, /* units of a block, of all its tokens together */
    X_BYTES = 64 * (SCALES + UNITS_MAX),
    STEP_BYTES = 64 * ROWS, /* of a tile */
    AT_ONCE = 8             /* tokens whose sums are in registers together */
};

typedef struct tile {
    const swl_matrix *w;
    int64_t row, row_bytes;
    int32_t n_rows; /* 1 to ROWS; the last one stands for those that are missing */
    alignas(64) float ws[UNITS_MAX][ROWS], wb[UNITS_MAX][ROWS];
} tile;

typedef struct tokens {
    int32_t n, stride;                         /* stride: n rounded up to 16 */
    int64_t ldu;                               /* bytes of x from a unit to the next */
    int32_t n_groups, group[TOKENS / AT_ONCE]; /* of three to AT_ONCE tokens, as equal as can be */
    alignas(64) int8_t x[X_BYTES];
    alignas(64) float xs[SCALES], xi[SCALES]; /* [unit][token]: scale, and scale times sum */
    alignas(64) float stack[2 * DEPTH][TOKENS][TILES][ROWS];
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
    int64_t n;        /* lines of 64 bytes each time */
    bool first_cache; /* else into the second */
} ahead;

/* `n_bytes` from p on in `times` parts. */
static ahead ahead_of(const uint8_t *p, int64_t n_bytes, int32_t times, bool first_cache)
{
    return (ahead){p, p ? (n_bytes + 64 * times - 1) / (64 * times) : 0, first_cache};
}

INLINE void ask_ahead(ahead *a)
{
    int64_t i;

    for (i = 0; i < a->n; i++, a->p += 64)
        if (a->first_cache)
            _mm_prefetch((const char *)a->p, _MM_HINT_T0);
        else
            _mm_prefetch((const char *)a->p, _MM_HINT_T1);
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* One line of codes of each tile (four bits: eight columns of sixteen rows; eight bits: four), as registers of four
 * columns, times n tokens whose units are `unit` bytes apart. */
INLINE void add_line(__m512i (*acc)[AT_ONCE], const uint8_t *codes, const int8_t *x, int n, int bits, int unit)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i w[TILES][2], v;
    int r, i, j;

#pragma GCC unroll 2
    for (r = 0; r < TILES; r++) {
        w[r][0] = w[r][1] = _mm512_load_si512(codes + r * STEP_BYTES);
        if (bits == 4) {
            w[r][0] = _mm512_and_si512(w[r][0], nibble);
            w[r][1] = _mm512_and_si512(_mm512_srli_epi16(w[r][1], 4), nibble);
        }
    }
#pragma GCC unroll 2
    for (i = 0; i < 8 / bits; i++)
#pragma GCC unroll 8
        for (j = 0; j < n; j++) {
            v = broadcast4(x + unit * j + 4 * i);
#pragma GCC unroll 2
            for (r = 0; r < TILES; r++)
                acc[r][j] = _mm512_dpbusd_epi32(acc[r][j], w[r][i], v);
        }
}

/* One unit of n tokens (a constant) from t on: into their lanes, and finished branches together. */
INLINE void add_unit(tokens *k, const tile *s, const place *p, int32_t scale, const uint8_t *codes, int32_t t, int n,
                     int bits, int unit)
{
    const int8_t *x = k->x + p->unit * k->ldu + t * unit;
    const float *xs = k->xs + p->unit * k->stride + t, *xi = k->xi + p->unit * k->stride + t;
    float *top = k->stack[p->at][t][0];
    __m512i acc[TILES][AT_ONCE];
    __m512 lane[AT_ONCE], ws, wb;
    int32_t m;
    int i, j, r;

    /* Short addresses: one base each, small offsets. And what loops for other numbers of tokens load as well is not loaded
     * before it is known which of them runs. */
    __asm__ volatile("" : "+r"(x), "+r"(xs), "+r"(xi), "+r"(top), "+r"(codes), "+r"(s));
#pragma GCC unroll 2
    for (r = 0; r < TILES; r++)
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            acc[r][j] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (i = 0; i < unit * bits / 32; i++)
        add_line(acc, codes + 64 * i, x + 32 / bits * i, n, bits, unit);
#pragma GCC unroll 2
    for (r = 0; r < TILES; r++) {
        float *to = top + r * ROWS;

        ws = _mm512_load_ps(s[r].ws[scale]);
        wb = _mm512_load_ps(s[r].wb[scale]);
#pragma GCC unroll 8
        for (j = 0; j < n; j++) {
            lane[j] = p->goes_on ? _mm512_load_ps(to + j * TILES * ROWS) : _mm512_setzero_ps();
            lane[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][j]), _mm512_mul_ps(ws, _mm512_set1_ps(xs[j])), lane[j]);
            lane[j] = _mm512_fmadd_ps(wb, _mm512_set1_ps(xi[j]), lane[j]);
        }
        for (m = 0; m < p->merges; m++) {
            to -= TOKENS * TILES * ROWS;
#pragma GCC unroll 8
            for (j = 0; j < n; j++)
                lane[j] = _mm512_add_ps(_mm512_load_ps(to + j * TILES * ROWS), lane[j]);
        }
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            _mm512_store_ps(to + j * TILES * ROWS, lane[j]);
    }
}

/* The numbers of tokens that groups have are those that load_tokens makes. */
INLINE void add_unit_to_all(tokens *k, const tile *s, const place *p, const uint8_t *codes, ahead *next, int bits,
                            int unit)
{
    int32_t scale = p->unit * unit / s->w->group, g, t;

    for (g = 0, t = 0; g < k->n_groups; t += k->group[g++]) {
        ask_ahead(next);
        switch (k->group[g]) {
        case 3:
            add_unit(k, s, p, scale, codes, t, 3, bits, unit);
            break;
        case 4:
            add_unit(k, s, p, scale, codes, t, 4, bits, unit);
            break;
        case 5:
            add_unit(k, s, p, scale, codes, t, 5, bits, unit);
            break;
        case 6:
            add_unit(k, s, p, scale, codes, t, 6, bits, unit);
            break;
        case 7:
            add_unit(k, s, p, scale, codes, t, 7, bits, unit);
            break;
        default:
            add_unit(k, s, p, scale, codes, t, AT_ONCE, bits, unit);
        }
    }
}

INLINE void add_step(tokens *k, const tile *s, const place *p, int32_t n, const uint8_t *codes, ahead *next, int bits,
                     int unit)
{
    int32_t i;

    for (i = 0; i < n; i++, codes += unit * ROWS * (bits == 4 ? 4 : 8) / 8)
        add_unit_to_all(k, s, p + i, codes, next, bits, unit);
}

static void add_step_any(tokens *k, const tile *s, const place *p, int32_t n, const uint8_t *codes, ahead *next,
                         int unit)
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

/* One unit of one token. */
INLINE void load_x(int8_t *to, const int8_t *q, int bits, int unit)
{
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

INLINE void load_tokens_of(tokens *k, const swl_act *a, const int32_t *tok, int32_t t0, int32_t n_units, int bits,
                           int unit)
{
    int32_t t, u;
    int64_t row[TOKENS];

    for (t = 0; t < k->n; t++)
        row[t] = (tok ? tok[t0 + t] : t0 + t) * a->ldq;
    for (u = 0; u < n_units; u++)
        for (t = 0; t < k->n; t++)
            load_x(k->x + u * k->ldu + t * unit, a->q + row[t] + u * unit, bits, unit);
    load_act_scales(k, a, tok, t0, n_units, unit);
}

static void load_tokens(tokens *k, const swl_act *a, const int32_t *tok, int32_t t0, int32_t n, int32_t n_units,
                        bool four, int unit)
{
    int32_t g;

    k->n = n;
    k->stride = (n + 15) / 16 * 16;
    k->ldu = (int64_t)(n | 1) * unit;
    k->n_groups = (n + AT_ONCE - 1) / AT_ONCE;
    for (g = 0; g < k->n_groups; g++)
        k->group[g] = n * (g + 1) / k->n_groups - n * g / k->n_groups;
    if (four && unit == 64)
        load_tokens_of(k, a, tok, t0, n_units, 4, 64);
    else if (four && unit == 32)
        load_tokens_of(k, a, tok, t0, n_units, 4, 32);
    else if (four)
        load_tokens_of(k, a, tok, t0, n_units, 4, 16);
    else if (unit == 64)
        load_tokens_of(k, a, tok, t0, n_units, 8, 64);
    else if (unit == 32)
        load_tokens_of(k, a, tok, t0, n_units, 8, 32);
    else
        load_tokens_of(k, a, tok, t0, n_units, 8, 16);
}

/* ---- loops ----------------------------------------------------------------------------------------------- */

/* n_rows: of both tiles, or fewer. */
static void store_tiles(const tokens *k, const order *o, int32_t n_rows, float *out, int64_t ldo)
{
    int32_t t, r;

    for (t = 0; t < k->n; t++, out += ldo)
        for (r = 0; r < TILES; r++) {
            __m512 v = close_tree(o, _mm512_load_ps(k->stack[0][t][r]), _mm512_load_ps(k->stack[DEPTH][t][r]));

            if (n_rows >= TILES * ROWS)
                _mm512_storeu_ps(out + r * ROWS, v);
            else
                _mm512_mask_storeu_ps(out + r * ROWS, low16(n_rows < r * ROWS ? 0 : n_rows - r * ROWS), v);
        }
}

/* Two tiles, or what there is of them: the first of n_rows rows from `row` on. next: the tiles after them. */
static void run_tiles(tile *s, tokens *k, const order *o, int unit, int32_t row, int32_t n_rows, const swl_upcoming *next,
                      bool near, float *out, int64_t ldo)
{
    const swl_matrix *w = s->w;
    int32_t step = (w->type == SWL_W_A4 ? 128 : 64) / unit, n_steps = (o->n_units + step - 1) / step, r, u, n;
    int64_t scale_bytes = TILES * ROWS * swl_matrix_scale_bytes(w);
    ahead codes_ahead = ahead_of(next->data, TILES * ROWS * s->row_bytes, o->n_units * k->n_groups, near);
    ahead ws_ahead = ahead_of(next->scales, scale_bytes, n_steps, near);
    ahead wb_ahead = ahead_of(next->biases, scale_bytes, n_steps, near);
    alignas(64) uint8_t codes[TILES][STEP_BYTES];

    for (r = 0; r < TILES; r++) {
        int32_t skipped = min_i32(r * ROWS, n_rows - 1);

        s[r].row = row + skipped;
        s[r].n_rows = min_i32(ROWS, n_rows - skipped);
        unpack_scales(w, w->scales, s[r].row, s[r].n_rows, s[r].ws);
        unpack_scales(w, w->biases, s[r].row, s[r].n_rows, s[r].wb);
    }
    for (u = 0; u < o->n_units; u += n) {
        n = min_i32(step, o->n_units - u);
        ask_ahead(&ws_ahead);
        ask_ahead(&wb_ahead);
        for (r = 0; r < TILES; r++)
            unpack(&s[r], o->place + u, n, codes[r], unit);
        add_step_any(k, s, o->place + u, n, codes[0], &codes_ahead, unit);
    }
    store_tiles(k, o, n_rows, out, ldo);
}

bool swl_matmul_tile_fits_avx512(const swl_matrix *w)
{
    return w->cols / (w->group < 64 ? w->group : 64) <= UNITS_MAX;
}

void swl_matmul_tile_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, bool near, float *out, int64_t ldo)
{
    int unit = w->group < 64 ? w->group : 64;
    int32_t n_units = w->cols / unit, most = min_i32(SCALES / n_units / 16 * 16, TOKENS);
    int32_t blocks = (n_tok + most - 1) / most, b, t, r, n;
    ahead first;
    tile s[TILES];
    order o;
    tokens k;

    s[0].w = s[1].w = w;
    s[0].row_bytes = s[1].row_bytes = swl_matrix_row_bytes(w);
    first = ahead_of(w->data + row0 * s[0].row_bytes, min_i32(TILES * ROWS, n_rows) * s[0].row_bytes, 1, near);
    ask_ahead(&first);
    place_units(&o, n_units);
    for (b = 0, t = 0; b < blocks; b++, t += n) {
        n = (int32_t)((int64_t)n_tok * (b + 1) / blocks) - t;
        load_tokens(&k, a, tok, t, n, n_units, w->type == SWL_W_A4, unit);
        for (r = 0; r < n_rows; r += TILES * ROWS) {
            swl_upcoming next = r + TILES * ROWS < n_rows ? swl_matrix_upcoming(w, row0 + r + TILES * ROWS)
                                : b + 1 < blocks          ? swl_matrix_upcoming(w, row0)
                                                          : w->next;

            run_tiles(s, &k, &o, unit, row0 + r, n_rows - r, &next, near, out + t * ldo + r, ldo);
        }
    }
}
