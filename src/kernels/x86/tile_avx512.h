/*
 * tile_avx512.h: for kernels whose lanes are rows: the order in which a tile of sixteen rows goes through its units, and
 * how rows become lanes. For files built with AVX-512 flags only.
 *
 * Units come in the order of the contract's lanes, and lanes in that of the fold's tree, so that a token keeps no lanes,
 * only a stack of finished branches, which are added up like the digits of a binary counter. The even and the odd lanes
 * are two such trees that grow side by side (lanes 0 8 4 12 2 10 6 14, and the ones after each), because neighbouring
 * units share a line of memory.
 */
#ifndef SWL_KERNELS_TILE_AVX512_H
#define SWL_KERNELS_TILE_AVX512_H

#include "kernels/x86/quant_avx512.h"

enum {
    ROWS = 16,
    UNITS_MAX = 288, /* of a row */
    DEPTH = 4        /* branches of a tree of eight lanes that wait, and the one that grows */
};

/* A unit of every row, and what is to be done with its lane afterwards. */
typedef struct place {
    int32_t unit;
    bool goes_on;  /* its lane has begun */
    int8_t at;     /* where on the stacks its lane is */
    int8_t merges; /* branches below that are finished with it */
} place;

typedef struct order {
    int32_t n_units;
    bool odd; /* there is an odd lane */
    place place[UNITS_MAX];
} order;

/* The lanes in the order of the fold's tree from leaf to leaf, first the even ones; also the place of each lane in it. */
static const uint8_t lane_at[SWL_LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

/* ---- order ----------------------------------------------------------------------------------------------- */

/* A tree of eight lanes while it is laid out: which branches have units, and how many wait. */
typedef struct tree {
    bool has[DEPTH];
    int8_t base, depth;
    place *last;
} tree;

INLINE void begin_lane(tree *t, bool some)
{
    t->depth = (int8_t)(t->depth + some);
}

/* Lane number i of eight is complete: it is added to the branches that end with it. Those without units are left out. */
INLINE void end_lane(tree *t, int32_t i, bool some)
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

INLINE void place_unit(order *o, tree *t, int32_t unit)
{
    t->last = &o->place[o->n_units++];
    *t->last = (place){unit, unit >= SWL_LANES, (int8_t)(t->base + t->depth - 1), 0};
}

static inline void place_units(order *o, int32_t n_units)
{
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

/* What the stacks' first branches add up to. Lanes that were left out are zero: that matters only if all others are -0. */
INLINE __m512 close_tree(const order *o, __m512 even, __m512 odd)
{
    if (o->odd)
        even = _mm512_add_ps(even, odd);
    return o->n_units < SWL_LANES ? _mm512_add_ps(even, _mm512_setzero_ps()) : even;
}

/* ---- rows to lanes --------------------------------------------------------------------------------------- */

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

/* v[i]: 16 bytes of rows i, i + 4, i + 8 and i + 12. w[i] gets bytes [4i, 4i + 4) of all sixteen. */
INLINE void transpose_quarter(const __m512i *v, __m512i *w)
{
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);

    w[0] = _mm512_unpacklo_epi64(a, c);
    w[1] = _mm512_unpackhi_epi64(a, c);
    w[2] = _mm512_unpacklo_epi64(b, d);
    w[3] = _mm512_unpackhi_epi64(b, d);
}

/* Scales k and, of two bytes each, k + 1 of sixteen rows: float32, but of bfloat16 both together as they are, at k / 2. */
INLINE void store_scales(swl_dtype t, __m512i v, int64_t k, float *to, int64_t stride)
{
    if (t == SWL_DT_F32) {
        _mm512_store_si512(to + k * stride, v);
    } else if (t == SWL_DT_BF16) {
        _mm512_store_si512(to + k / 2 * stride, v);
    } else {
        _mm512_store_ps(to + k * stride, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)));
        _mm512_store_ps(to + (k + 1) * stride, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16))));
    }
}

/* The bytes, for a shuffle, that are scale k (even or odd) of those that store_scales has put there. */
INLINE __m512i pick_scale(swl_dtype t, int32_t k)
{
    if (t != SWL_DT_BF16)
        return _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    if (k % 2)
        return _mm512_broadcast_i32x4(_mm_setr_epi8(-1, -1, 2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1, 14, 15));
    return _mm512_broadcast_i32x4(_mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13));
}

/* Sixteen rows of 16 bytes. */
INLINE void unpack_short_scales(swl_dtype t, const uint8_t *from, float *to, int64_t stride)
{
    const __m512i by_row = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i v[4], w[4];
    int i;

#pragma GCC unroll 4
    for (i = 0; i < 4; i++)
        v[i] = _mm512_loadu_si512(from + 64 * i);
    transpose_quarter(v, w);
#pragma GCC unroll 4
    for (i = 0; i < 4; i++)
        store_scales(t, _mm512_permutexvar_epi32(by_row, w[i]), t == SWL_DT_F32 ? i : 2 * i, to, stride);
}

/* The first `left` bytes, 64 at most, of n_rows rows; the last row stands for those that are missing of sixteen. */
INLINE void unpack_scale_line(swl_dtype t, const uint8_t *from, int64_t row_bytes, int32_t n_rows, int64_t left,
                              float *to, int64_t stride)
{
    __m512i v[16];
    int32_t i;

#pragma GCC unroll 16
    for (i = 0; i < 16; i++)
        v[i] = load_bytes(from + row_bytes * min_i32(i, n_rows - 1), left);
    transpose(v);
#pragma GCC unroll 16
    for (i = 0; i < 16; i++)
        if (4 * i < left)
            store_scales(t, v[i], t == SWL_DT_F32 ? i : 2 * i, to, stride);
}

/* The scales (or biases) of n_rows rows from `row` on, those of unit or group k at to + k * stride; the last row stands for
 * those that are missing of sixteen. to: room for one more than a row has. */
static inline void unpack_scales(const swl_matrix *w, const uint8_t *from, int64_t row, int32_t n_rows, float *to,
                                 int64_t stride)
{
    int64_t row_bytes = swl_matrix_scale_bytes(w), at;

    from += row * row_bytes;
    if (n_rows == ROWS && row_bytes == 16) {
        unpack_short_scales(w->sdtype, from, to, stride);
        return;
    }
    for (at = 0; at < row_bytes; at += 64, from += 64, to += (w->sdtype == SWL_DT_F16 ? 32 : 16) * stride)
        if (n_rows == ROWS && row_bytes - at >= 64)
            unpack_scale_line(w->sdtype, from, row_bytes, ROWS, 64, to, stride);
        else
            unpack_scale_line(w->sdtype, from, row_bytes, n_rows, row_bytes - at, to, stride);
}

/* ---- products -------------------------------------------------------------------------------------------- */

typedef int32_t __attribute__((may_alias, aligned(1))) any_i32;

/* Four bytes for every lane: a load and nothing else, unless the compiler makes two of it. */
INLINE __m512i broadcast4(const int8_t *x)
{
    __m512i v;

    __asm__("vpbroadcastd %1, %0" : "=v"(v) : "m"(*(const any_i32 *)x));
    return v;
}

/* A shuffle of bytes: of eight the even ones first, as dot4 wants the activations of four-bit codes. */
INLINE __m512i in_eights(void)
{
    return _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}

#endif
