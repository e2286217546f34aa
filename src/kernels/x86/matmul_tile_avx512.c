/*
 * matmul_tile_avx512.c: quantised matrices times several tokens. A tile of sixteen rows is transposed two units or so at
 * a time (a step), so that a register holds four columns of sixteen rows, a lane of a register is a row and no sum ever
 * crosses lanes. Two tiles go past the tokens together, eight at a time: four bytes of an activation are broadcast once
 * for both. The order of the units and the stacks of branches are those of tile_avx512.h.
 *
 *   codes   [unit of a step][unit / 4][16 rows][4]    bytes; four bits: [unit / 8][16 rows][8]
 *   scales  [scale of a row][scales, biases][tile][16 rows]   float32; bfloat16: two in the place of one
 *   x       [unit][token][unit columns]               int8; four bits: of eight columns the even ones first. Room for an
 *                                                     odd number of tokens: units a power of two apart share one set of
 *                                                     the cache
 *   stack   [branch][token][tile][16 rows]            float32, without room for tokens that are not there: loads wait
 *                                                     for stores that lie at the same place of another page
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
    AT_ONCE = 8,            /* tokens whose sums are in registers together */
    PAST_BYTES = 8 << 20    /* results that span so much are gone from the caches when they are wanted */
};

/* Scales of weights and of activations lie so that one address reaches all that a unit needs: there are few registers for
 * addresses. */
typedef struct tiles {
    const swl_matrix *w;
    int64_t row_bytes, row[TILES];
    int32_t n_rows[TILES]; /* 1 to ROWS; the last one stands for those that are missing */
    int32_t at;            /* which of codes this step has */
    bool turned;           /* this step's are there already */
    alignas(64) uint8_t codes[2][TILES][STEP_BYTES];
    int32_t packed;                  /* two scales are in the place of one */
    alignas(64) uint8_t pick[2][64]; /* the bytes of an even and of an odd one */
    alignas(64) float scales[UNITS_MAX][2][TILES][ROWS];
} tiles;

typedef struct tokens {
    int32_t n, stride;                         /* stride: n rounded up to 16 */
    int64_t ldu;                               /* bytes of x from a unit to the next */
    int32_t n_groups, group[TOKENS / AT_ONCE]; /* of three to AT_ONCE tokens, as equal as can be */
    alignas(64) int8_t x[X_BYTES];
    alignas(64) float xs[SCALES][2];                          /* [unit][token]: scale, and scale times sum */
    alignas(64) float stack[2 * DEPTH * TOKENS][TILES][ROWS]; /* branches n apart */
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

static void unpack(const tiles *s, int32_t r, const place *p, int32_t n, uint8_t *to, int unit)
{
    int64_t row_bytes = s->row_bytes;
    const uint8_t *row = s->w->data + s->row[r] * row_bytes;
    int32_t n_rows = s->n_rows[r];

    switch (s->w->type) {
    case SWL_W_A2:
        unpack_any(row, row_bytes, n_rows, p, n, to, 2, unit);
        break;
    case SWL_W_A3:
        unpack_any(row, row_bytes, n_rows, p, n, to, 3, unit);
        break;
    case SWL_W_A4:
        if (unit == 64 && n == 2 && p[1].unit == p[0].unit + 1 && n_rows == ROWS)
            unpack_pair_a4(row + p->unit * 32, row_bytes, to);
        else
            unpack_any(row, row_bytes, n_rows, p, n, to, 4, unit);
        break;
    case SWL_W_A5:
        unpack_any(row, row_bytes, n_rows, p, n, to, 5, unit);
        break;
    case SWL_W_A6:
        unpack_any(row, row_bytes, n_rows, p, n, to, 6, unit);
        break;
    default:
        unpack_any(row, row_bytes, n_rows, p, n, to, 8, unit);
    }
}

/* ---- what comes next ------------------------------------------------------------------------------------- */

/* The next tiles' bytes, asked for a few lines at a time all through these: sixteen rows at once is an order that no
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

INLINE void ask_line(ahead *a, bool first_cache)
{
    if (first_cache)
        _mm_prefetch((const char *)a->p, _MM_HINT_T0);
    else
        _mm_prefetch((const char *)a->p, _MM_HINT_T1);
    a->p += 64;
}

INLINE void ask_ahead(ahead *a)
{
    int64_t i;

    for (i = 0; i < a->n; i++)
        ask_line(a, a->first_cache);
}

/* ---- between products ------------------------------------------------------------------------------------- */

enum { QUARTERS = 4 * TILES, LINE_BYTES = 4 * ROWS };

/* The next step of both tiles, two neighbouring units of 64 codes of four bits: between the products of this one its rows
 * become lanes, sixteen bytes of each at a time, since shuffles beside products take next to no time (docs/measuring.md,
 * What bounds a prompt). Where four rows are loaded, a line of the next tiles is asked for: as many as a step has. */
typedef struct turn {
    const uint8_t *from[TILES];
    int64_t row_bytes, twelve_rows;
    uint8_t *to;
    uint32_t done; /* of QUARTERS */
    ahead ask;
} turn;

/* Sixteen bytes of rows 0, 4, 8 and 12 from *p on; *p goes on by a row. The compiler would keep an address of each row. */
INLINE __m512i every_fourth_row(const uint8_t **p, int64_t row_bytes, int64_t twelve_rows)
{
    __m512i v;

    __asm__("vmovdqu32 (%1), %x0\n\t"
            "vinserti32x4 $1, (%1,%2,4), %g0, %g0\n\t"
            "vinserti32x4 $2, (%1,%2,8), %g0, %g0\n\t"
            "vinserti32x4 $3, (%1,%3), %g0, %g0\n\t"
            "add %2, %1"
            : "=&v"(v), "+r"(*p)
            : "r"(row_bytes), "r"(twelve_rows)
            : "memory");
    return v;
}

/* Part i of four of the next quarter. v and p are kept from part to part. near (a constant): t->ask.first_cache. */
INLINE void turn_part(turn *t, int i, bool near, __m512i *v, const uint8_t **p)
{
    __m512i w[4];
    uint8_t *to;
    int j;

    if (i == 0)
        *p = t->from[t->done / 4] + t->done % 4 * 16;
    ask_line(&t->ask, near);
    v[i] = every_fourth_row(p, t->row_bytes, t->twelve_rows);
    if (i == 3) {
        transpose_quarter(v, w);
        to = t->to + t->done++ * 4 * LINE_BYTES;
#pragma GCC unroll 4
        for (j = 0; j < 4; j++)
            _mm512_store_si512(to + j * LINE_BYTES, w[j]);
    }
}

static void finish_turn(turn *t)
{
    const uint8_t *p;
    __m512i v[4];
    int i;

    while (t->done < QUARTERS)
#pragma GCC unroll 4
        for (i = 0; i < 4; i++)
            turn_part(t, i, t->ask.first_cache, v, &p);
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

/* One unit of n tokens (a constant) from t on: into their lanes, and finished branches together. next: two quarters of
 * the next step on the way, or NULL. near (a constant): its requests go to the first cache; asked at each of them, eight tokens
 * take up to 15 % longer. */
INLINE void add_unit(tokens *k, const tiles *s, const place *p, int32_t scale, const uint8_t *codes, int32_t t,
                     turn *next, bool near, int n, int bits, int unit)
{
    const int8_t *x = k->x + p->unit * k->ldu + t * unit;
    const float (*xs)[2] = k->xs + p->unit * k->stride + t;
    const float (*ws)[TILES][ROWS] = s->scales[scale >> s->packed];
    float (*top)[TILES][ROWS] = k->stack + p->at * k->n + t, (*below)[TILES][ROWS];
    __m512i acc[TILES][AT_ONCE], rows[4];
    __m512i pick = _mm512_load_si512(s->pick[scale % 2]);
    __m512 lane[AT_ONCE], w, b;
    const uint8_t *row;
    int32_t m;
    int i, j, r;

    /* Short addresses: one base each, small offsets. And what loops for other numbers of tokens load as well is not loaded
     * before it is known which of them runs. */
    __asm__ volatile("" : "+r"(x), "+r"(xs), "+r"(ws), "+r"(top), "+r"(codes));
#pragma GCC unroll 2
    for (r = 0; r < TILES; r++)
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            acc[r][j] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (i = 0; i < unit * bits / 32; i++) {
        add_line(acc, codes + 64 * i, x + 32 / bits * i, n, bits, unit);
        if (next)
            turn_part(next, i % 4, near, rows, &row);
    }
#pragma GCC unroll 2
    for (r = 0; r < TILES; r++) {
        w = _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_load_si512(ws[0][r]), pick));
        b = _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_load_si512(ws[1][r]), pick));
#pragma GCC unroll 8
        for (j = 0; j < n; j++) {
            lane[j] = p->goes_on ? _mm512_load_ps(top[j][r]) : _mm512_setzero_ps();
            lane[j] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][j]), _mm512_mul_ps(w, _mm512_set1_ps(xs[j][0])), lane[j]);
            lane[j] = _mm512_fmadd_ps(b, _mm512_set1_ps(xs[j][1]), lane[j]);
        }
        below = top;
        for (m = 0; m < p->merges; m++) {
            below -= k->n;
#pragma GCC unroll 8
            for (j = 0; j < n; j++)
                lane[j] = _mm512_add_ps(_mm512_load_ps(below[j][r]), lane[j]);
        }
#pragma GCC unroll 8
        for (j = 0; j < n; j++)
            _mm512_store_ps(below[j][r], lane[j]);
    }
}

/* The numbers of tokens that groups have are those that load_tokens makes. */
INLINE void add_unit_to(tokens *k, const tiles *s, const place *p, int32_t scale, const uint8_t *codes, int32_t t,
                        int32_t n, turn *next, bool near, int bits, int unit)
{
    switch (n) {
    case 3:
        add_unit(k, s, p, scale, codes, t, next, near, 3, bits, unit);
        break;
    case 4:
        add_unit(k, s, p, scale, codes, t, next, near, 4, bits, unit);
        break;
    case 5:
        add_unit(k, s, p, scale, codes, t, next, near, 5, bits, unit);
        break;
    case 6:
        add_unit(k, s, p, scale, codes, t, next, near, 6, bits, unit);
        break;
    case 7:
        add_unit(k, s, p, scale, codes, t, next, near, 7, bits, unit);
        break;
    default:
        add_unit(k, s, p, scale, codes, t, next, near, AT_ONCE, bits, unit);
    }
}

INLINE void add_unit_to_all(tokens *k, const tiles *s, const place *p, const uint8_t *codes, turn *next, int bits,
                            int unit)
{
    int32_t scale = p->unit * unit / s->w->group, g, t;

    for (g = 0, t = 0; g < k->n_groups; t += k->group[g++]) {
        ask_ahead(&next->ask);
        if (bits != 4 || unit != 64 || next->done == QUARTERS)
            add_unit_to(k, s, p, scale, codes, t, k->group[g], NULL, false, bits, unit);
        else if (next->ask.first_cache)
            add_unit_to(k, s, p, scale, codes, t, k->group[g], next, true, bits, unit);
        else
            add_unit_to(k, s, p, scale, codes, t, k->group[g], next, false, bits, unit);
    }
}

INLINE void add_step(tokens *k, const tiles *s, const place *p, int32_t n, turn *next, int bits, int unit)
{
    const uint8_t *codes = s->codes[s->at][0];
    int32_t i;

    for (i = 0; i < n; i++, codes += unit * ROWS * (bits == 4 ? 4 : 8) / 8)
        add_unit_to_all(k, s, p + i, codes, next, bits, unit);
}

static void add_step_any(tokens *k, const tiles *s, const place *p, int32_t n, turn *next, int unit)
{
    if (s->w->type == SWL_W_A4) {
        if (unit == 64)
            add_step(k, s, p, n, next, 4, 64);
        else if (unit == 32)
            add_step(k, s, p, n, next, 4, 32);
        else
            add_step(k, s, p, n, next, 4, 16);
    } else if (unit == 64) {
        add_step(k, s, p, n, next, 8, 64);
    } else if (unit == 32) {
        add_step(k, s, p, n, next, 8, 32);
    } else {
        add_step(k, s, p, n, next, 8, 16);
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
    const __m512i pairs = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i eight = _mm512_set1_epi32(8);
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
                float *to = k->xs[(u + i) * k->stride + t];

                _mm512_store_si512(to, _mm512_permutex2var_epi32(s[i], pairs, x[i]));
                _mm512_store_si512(to + 16, _mm512_permutex2var_epi32(s[i], _mm512_add_epi32(pairs, eight), x[i]));
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

/* n_rows: of both tiles, or fewer. past: whole lines go past the caches. */
static void store_tiles(const tokens *k, const order *o, int32_t n_rows, bool past, float *out, int64_t ldo)
{
    int32_t t, r;

    past = past && n_rows >= TILES * ROWS && (uintptr_t)out % 64 == 0 && ldo % 16 == 0;
    for (t = 0; t < k->n; t++, out += ldo)
        for (r = 0; r < TILES; r++) {
            __m512 v = close_tree(o, _mm512_load_ps(k->stack[t][r]), _mm512_load_ps(k->stack[DEPTH * k->n + t][r]));

            if (past)
                _mm512_stream_ps(out + r * ROWS, v);
            else if (n_rows >= TILES * ROWS)
                _mm512_storeu_ps(out + r * ROWS, v);
            else
                _mm512_mask_storeu_ps(out + r * ROWS, low16(n_rows < r * ROWS ? 0 : n_rows - r * ROWS), v);
        }
}

static void start_tiles(tiles *s, int32_t row, int32_t n_rows)
{
    int64_t stride = sizeof s->scales[0] / sizeof(float);
    int32_t r;

    for (r = 0; r < TILES; r++) {
        int32_t skipped = min_i32(r * ROWS, n_rows - 1);

        s->row[r] = row + skipped;
        s->n_rows[r] = min_i32(ROWS, n_rows - skipped);
        unpack_scales(s->w, s->w->scales, s->row[r], s->n_rows[r], s->scales[0][0][r], stride);
        unpack_scales(s->w, s->w->biases, s->row[r], s->n_rows[r], s->scales[0][1][r], stride);
    }
}

/* Sets out to turn the step from unit u on, which is the first one of the next tiles if these end there. False where that
 * is not to be done: the step is not of the frequent kind, or not there, or there are too few products to do it between. */
static bool start_turn(turn *t, tiles *s, const tokens *k, const order *o, int unit, int32_t u, int32_t n_rows)
{
    int32_t on = u < o->n_units ? 0 : TILES * ROWS, r;

    if (k->n_groups == 1 || s->w->type != SWL_W_A4 || unit != 64 || o->n_units % 2 || n_rows < TILES * ROWS + on)
        return false;
    for (r = 0; r < TILES; r++)
        t->from[r] = s->w->data + (s->row[r] + on) * s->row_bytes + o->place[on ? 0 : u].unit * 32;
    t->to = s->codes[!s->at][0];
    t->done = 0;
    return true;
}

/* Two tiles, or what there is of them: the first of n_rows rows from `row` on. next: the tiles after them. */
static void run_tiles(tiles *s, tokens *k, const order *o, int unit, int32_t row, int32_t n_rows,
                      const swl_upcoming *next, bool near, bool past, float *out, int64_t ldo)
{
    const swl_matrix *w = s->w;
    int32_t step = (w->type == SWL_W_A4 ? 128 : 64) / unit, n_steps = (o->n_units + step - 1) / step, r, u, n;
    int64_t scale_bytes = TILES * ROWS * swl_matrix_scale_bytes(w), step_bytes = TILES * ROWS * s->row_bytes / n_steps;
    ahead ws_ahead = ahead_of(next->scales, scale_bytes, n_steps, near);
    ahead wb_ahead = ahead_of(next->biases, scale_bytes, n_steps, near);
    turn t = {.row_bytes = s->row_bytes, .twelve_rows = 12 * s->row_bytes, .ask = {next->data, 0, near}};

    if (!next->data)
        t.ask.p = w->data + row * s->row_bytes; /* what is there */
    start_tiles(s, row, n_rows);
    for (u = 0; u < o->n_units; u += n) {
        n = min_i32(step, o->n_units - u);
        ask_ahead(&ws_ahead);
        ask_ahead(&wb_ahead);
        for (r = 0; r < TILES && !s->turned; r++)
            unpack(s, r, o->place + u, n, s->codes[s->at][r], unit);
        s->turned = start_turn(&t, s, k, o, unit, u + n, n_rows);
        if (s->turned) {
            t.ask.n = 0;
        } else {
            t.ask = ahead_of(t.ask.p, step_bytes, n * k->n_groups, near);
            t.done = QUARTERS;
        }
        add_step_any(k, s, o->place + u, n, &t, unit);
        finish_turn(&t);
        s->at ^= s->turned;
    }
    store_tiles(k, o, n_rows, past, out, ldo);
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
    bool past = n_tok * ldo * (int64_t)sizeof *out >= PAST_BYTES;
    ahead first;
    tiles s;
    order o;
    tokens k;

    s.w = w;
    s.at = 0;
    s.turned = false;
    s.packed = w->sdtype == SWL_DT_BF16;
    for (r = 0; r < 2; r++)
        _mm512_store_si512(s.pick[r], pick_scale(w->sdtype, r));
    s.row_bytes = swl_matrix_row_bytes(w);
    first = ahead_of(w->data + row0 * s.row_bytes, min_i32(TILES * ROWS, n_rows) * s.row_bytes, 1, near);
    ask_ahead(&first);
    place_units(&o, n_units);
    for (b = 0, t = 0; b < blocks; b++, t += n) {
        n = (int32_t)((int64_t)n_tok * (b + 1) / blocks) - t;
        load_tokens(&k, a, tok, t, n, n_units, w->type == SWL_W_A4, unit);
        for (r = 0; r < n_rows; r += TILES * ROWS) {
            swl_upcoming next = r + TILES * ROWS < n_rows ? swl_matrix_upcoming(w, row0 + r + TILES * ROWS)
                                : b + 1 < blocks          ? swl_matrix_upcoming(w, row0)
                                                          : w->next;

            run_tiles(&s, &k, &o, unit, row0 + r, n_rows - r, &next, near, past, out + t * ldo + r, ldo);
        }
    }
    if (past)
        _mm_sfence(); /* for who is told next that they are there */
}
