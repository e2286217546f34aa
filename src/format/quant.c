/*
 * quant.c: the descriptor table of weight formats, their scalar dequantisers, and MLX's affine quantiser. The
 * dequantisers define what a stored weight means; kernels are tested against them.
 *
 * An affine row is one little-endian bit stream. Eight elements always fill whole bytes (`bits` of them), and groups
 * are multiples of eight, so all code here works on runs of eight: one 64-bit word holds them at every width.
 *
 *   bits 3:  byte   0        1        2
 *            bits   22111000 54443332 77766655      (the digit is the element that owns the bit)
 */
#include "format/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define RUN 8 /* elements */

static float scale_at(swl_dtype t, const uint8_t *p, int64_t i)
{
    float f;

    swl_dtype_to_f32(t, p + i * swl_dtype_size(t), &f, 1);
    return f;
}

/* `bits` is a constant wherever this is inlined. */
static inline void unpack_run(const uint8_t *p, int bits, uint8_t q[RUN])
{
    uint64_t word = 0;
    int i;

    memcpy(&word, p, (size_t)bits);
    for (i = 0; i < RUN; i++)
        q[i] = (uint8_t)(word >> (i * bits) & ((1u << bits) - 1));
}

static inline void pack_run(uint8_t *p, int bits, const uint8_t q[RUN])
{
    uint64_t word = 0;
    int i;

    for (i = 0; i < RUN; i++)
        word |= (uint64_t)q[i] << (i * bits);
    memcpy(p, &word, (size_t)bits);
}

/*
 * fmaf(scale, q, bias) for 16-bit scales and biases without a call per element. In double the product is exact (11 + 8
 * bits at most). So is the sum, unless one term is over 2^33 times the other; then the larger, which float32 holds
 * exactly, is the nearest float32 to both the true and the rounded sum. Hence one rounding, as in fmaf.
 */
static inline void affine_run_16(float scale, float bias, const uint8_t q[RUN], float *dst)
{
    int i;

    for (i = 0; i < RUN; i++)
        dst[i] = (float)((double)scale * q[i] + (double)bias);
}

static inline void affine_run_32(float scale, float bias, const uint8_t q[RUN], float *dst)
{
    int i;

    for (i = 0; i < RUN; i++)
        dst[i] = fmaf(scale, q[i], bias);
}

static inline void dequant_affine(const swl_matrix *m, int bits, int32_t row, int32_t col, int32_t n, float *dst)
{
    const uint8_t *p = m->data + ((int64_t)row * m->cols + col) / RUN * bits;
    int64_t row_groups = (int64_t)row * (m->cols / m->group);
    float scale = 0, bias = 0, last[RUN];
    uint8_t q[RUN];
    int32_t i;

    assert(col % 32 == 0 && m->group % RUN == 0 && m->cols % m->group == 0);
    for (i = 0; i < n; i += RUN, p += bits) {
        float *to = n - i < RUN ? last : dst + i;

        if (i == 0 || (col + i) % m->group == 0) {
            scale = scale_at(m->sdtype, m->scales, row_groups + (col + i) / m->group);
            bias = scale_at(m->sdtype, m->biases, row_groups + (col + i) / m->group);
        }
        unpack_run(p, bits, q);
        if (m->sdtype == SWL_DT_F32)
            affine_run_32(scale, bias, q, to);
        else
            affine_run_16(scale, bias, q, to);
        if (to == last)
            memcpy(dst + i, last, (size_t)(n - i) * sizeof *dst);
    }
}

static void dequant_a2(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    dequant_affine(m, 2, row, col, n, dst);
}

static void dequant_a3(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    dequant_affine(m, 3, row, col, n, dst);
}

static void dequant_a4(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    dequant_affine(m, 4, row, col, n, dst);
}

static void dequant_a5(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    dequant_affine(m, 5, row, col, n, dst);
}

static void dequant_a6(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    dequant_affine(m, 6, row, col, n, dst);
}

static void dequant_a8(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    dequant_affine(m, 8, row, col, n, dst);
}

static void widen(swl_dtype t, const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    swl_dtype_to_f32(t, m->data + ((int64_t)row * m->cols + col) * swl_dtype_size(t), dst, n);
}

static void dequant_f32(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    widen(SWL_DT_F32, m, row, col, n, dst);
}

static void dequant_f16(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    widen(SWL_DT_F16, m, row, col, n, dst);
}

static void dequant_bf16(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    widen(SWL_DT_BF16, m, row, col, n, dst);
}

/* ---- codebooks ---- */

/* clang-format off */
static const int32_t book_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* halves */
static const int32_t book_nl4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* E4M3 in units of 2^-9, its subnormal step. 0x7F, which is no number and is not produced, goes on as 480. */
#define V(e, m) (((8 + (m)) << ((e) ? (e) - 1 : 0)) - ((e) ? 0 : 8))
#define R(s, e) s V(e, 0), s V(e, 1), s V(e, 2), s V(e, 3), s V(e, 4), s V(e, 5), s V(e, 6), s V(e, 7)
static const int32_t book_e4m3[256] = {
    R(+, 0), R(+, 1), R(+, 2), R(+, 3), R(+, 4), R(+, 5), R(+, 6), R(+, 7),
    R(+, 8), R(+, 9), R(+, 10), R(+, 11), R(+, 12), R(+, 13), R(+, 14), R(+, 15),
    R(-, 0), R(-, 1), R(-, 2), R(-, 3), R(-, 4), R(-, 5), R(-, 6), R(-, 7),
    R(-, 8), R(-, 9), R(-, 10), R(-, 11), R(-, 12), R(-, 13), R(-, 14), R(-, 15),
};
#undef R
#undef V
/* clang-format on */

float swl_matrix_scale(const swl_matrix *m, int64_t i)
{
    float f = scale_at(m->sdtype, m->scales, i);

    return ldexpf(f, -swl_wtype_get(m->type)->shift);
}

static void dequant_book(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst)
{
    const swl_wtype_info *info = swl_wtype_get(m->type);
    const uint8_t *p = m->data + ((int64_t)row * m->cols + col) / RUN * info->bits;
    int64_t row_groups = (int64_t)row * (m->cols / m->group);
    float scale = 0;
    uint8_t q[RUN];
    int32_t i, k;

    assert(col % 32 == 0 && m->cols % m->group == 0);
    for (i = 0; i < n; i += RUN, p += info->bits) {
        if (i == 0 || (col + i) % m->group == 0)
            scale = swl_matrix_scale(m, row_groups + (col + i) / m->group);
        unpack_run(p, info->bits, q);
        for (k = 0; k < RUN && i + k < n; k++)
            dst[i + k] = (float)info->book[q[k]] * scale;
    }
}

/* clang-format off */
static const swl_wtype_info formats[SWL_W_COUNT] = {
    [SWL_W_F32]  = {"f32", 32, false, NULL, 0, dequant_f32},
    [SWL_W_F16]  = {"f16", 16, false, NULL, 0, dequant_f16},
    [SWL_W_BF16] = {"bf16", 16, false, NULL, 0, dequant_bf16},
    [SWL_W_A2]   = {"affine 2-bit", 2, true, NULL, 0, dequant_a2},
    [SWL_W_A3]   = {"affine 3-bit", 3, true, NULL, 0, dequant_a3},
    [SWL_W_A4]   = {"affine 4-bit", 4, true, NULL, 0, dequant_a4},
    [SWL_W_A5]   = {"affine 5-bit", 5, true, NULL, 0, dequant_a5},
    [SWL_W_A6]   = {"affine 6-bit", 6, true, NULL, 0, dequant_a6},
    [SWL_W_A8]   = {"affine 8-bit", 8, true, NULL, 0, dequant_a8},
    [SWL_W_MXFP4] = {"mxfp4", 4, false, book_e2m1, 1, dequant_book},
    [SWL_W_NVFP4] = {"nvfp4", 4, false, book_e2m1, 1, dequant_book},
    [SWL_W_NL4]   = {"non-linear 4-bit", 4, false, book_nl4, 0, dequant_book},
    [SWL_W_MXFP8] = {"mxfp8", 8, false, book_e4m3, 9, dequant_book},
};
/* clang-format on */

const swl_wtype_info *swl_wtype_get(swl_wtype t)
{
    assert(t > SWL_W_NONE && t < SWL_W_COUNT);
    return &formats[t];
}

swl_wtype swl_wtype_affine(int32_t bits)
{
    int t;

    for (t = SWL_W_NONE + 1; t < SWL_W_COUNT; t++)
        if (formats[t].affine && formats[t].bits == bits)
            return (swl_wtype)t;
    return SWL_W_NONE;
}

swl_wtype swl_wtype_plain(swl_dtype t)
{
    return t == SWL_DT_F32 ? SWL_W_F32 : t == SWL_DT_F16 ? SWL_W_F16 : t == SWL_DT_BF16 ? SWL_W_BF16 : SWL_W_NONE;
}

int64_t swl_matrix_row_bytes(const swl_matrix *m)
{
    return (int64_t)m->cols * swl_wtype_get(m->type)->bits / 8;
}

int64_t swl_matrix_scale_bytes(const swl_matrix *m)
{
    return m->group ? m->cols / m->group * (int64_t)swl_dtype_size(m->sdtype) : 0;
}

swl_upcoming swl_matrix_upcoming(const swl_matrix *m, int64_t row)
{
    int64_t side = row * swl_matrix_scale_bytes(m);

    return (swl_upcoming){m->data + row * swl_matrix_row_bytes(m), m->scales ? m->scales + side : NULL,
                          m->biases ? m->biases + side : NULL};
}

void swl_matrix_row_f32(const swl_matrix *m, int32_t row, float *dst)
{
    swl_wtype_get(m->type)->dequant(m, row, 0, m->cols, dst);
}

bool swl_affine_from_shapes(int64_t words, int64_t n_scales, int64_t cols, int32_t *bits, int32_t *group)
{
    int64_t b, g;

    if (words <= 0 || n_scales <= 0 || cols <= 0 || words > INT32_MAX || cols > INT32_MAX)
        return false;
    if (32 * words % cols || cols % n_scales)
        return false;
    b = 32 * words / cols;
    g = cols / n_scales;
    if (b > 8 || swl_wtype_affine((int32_t)b) == SWL_W_NONE || (g != 16 && g != 32 && g != 64 && g != 128))
        return false;
    *bits = (int32_t)b;
    *group = (int32_t)g;
    return true;
}

swl_dtype swl_codebook_sdtype(swl_wtype t, swl_dtype stored)
{
    return t == SWL_W_NL4 ? stored : t == SWL_W_NVFP4 ? SWL_DT_F8_E4M3 : SWL_DT_F8_E8M0;
}

swl_wtype swl_codebook_from_shapes(swl_dtype t, int64_t words, int64_t n_scales, int64_t cols, int32_t *group)
{
    int64_t bits, g;

    if (words <= 0 || n_scales <= 0 || cols <= 0 || words > INT32_MAX || cols > INT32_MAX || 32 * words % cols ||
        cols % n_scales)
        return SWL_W_NONE;
    bits = 32 * words / cols;
    g = cols / n_scales;
    *group = (int32_t)g;
    if (bits == 4 && g == 32 && swl_wtype_plain(t) != SWL_W_NONE)
        return SWL_W_NL4;
    if (bits == 4 && g == 32 && (t == SWL_DT_U8 || t == SWL_DT_F8_E8M0))
        return SWL_W_MXFP4;
    if (bits == 8 && g == 32 && (t == SWL_DT_U8 || t == SWL_DT_F8_E8M0))
        return SWL_W_MXFP8;
    return bits == 4 && g == 16 && (t == SWL_DT_U8 || t == SWL_DT_F8_E4M3) ? SWL_W_NVFP4 : SWL_W_NONE;
}

/* Eight running extremes side by side: one comparison per element in any order the compiler likes. */
static inline void extremes(const float *x, int32_t n, float *min, float *max)
{
    float lo[RUN], hi[RUN];
    int32_t i, j;

    memcpy(lo, x, sizeof lo);
    memcpy(hi, x, sizeof hi);
    for (i = RUN; i < n; i += RUN)
        for (j = 0; j < RUN; j++) {
            lo[j] = x[i + j] < lo[j] ? x[i + j] : lo[j];
            hi[j] = x[i + j] > hi[j] ? x[i + j] : hi[j];
        }
    *min = lo[0];
    *max = hi[0];
    for (j = 1; j < RUN; j++) {
        *min = lo[j] < *min ? lo[j] : *min;
        *max = hi[j] > *max ? hi[j] : *max;
    }
}

/* Scale and bias of one group; the end of the range that is farther from zero is met exactly, and so is zero. */
static inline void fit_group(const float *x, int32_t group, float steps, float *scale, float *bias)
{
    float min, max, edge, q0, s;

    extremes(x, group, &min, &max);
    s = (max - min) / steps;
    s = s > 1e-7f ? s : 1e-7f;
    if (fabsf(min) > fabsf(max)) {
        edge = min;
    } else {
        edge = max;
        s = -s;
    }
    q0 = rintf(edge / s);
    *scale = q0 != 0 ? edge / q0 : s;
    *bias = q0 != 0 ? edge : 0;
}

/* round((x - bias) / scale), half to even, clipped to 0..steps. Adding 2^23 leaves the rounded integer in the low bits
 * of the sum; clipping first gives the same result and keeps the sum in that range. A NaN becomes 0. */
static inline void quantise_run(const float *x, float scale, float bias, float steps, uint8_t q[RUN])
{
    uint32_t u[RUN];
    float t[RUN];
    int i;

    for (i = 0; i < RUN; i++) {
        float v = (x[i] - bias) / scale;

        v = v > 0 ? v : 0;
        v = v < steps ? v : steps;
        t[i] = v + 8388608.0f;
    }
    memcpy(u, t, sizeof u);
    for (i = 0; i < RUN; i++)
        q[i] = (uint8_t)u[i];
}

static inline void quantise_row(const float *src, int32_t cols, int bits, int32_t group, uint8_t *data,
                                uint16_t *scales, uint16_t *biases)
{
    float steps = (float)((1 << bits) - 1), scale, bias;
    uint8_t q[RUN];
    int32_t g, i;

    for (g = 0; g < cols / group; g++, src += group) {
        fit_group(src, group, steps, &scale, &bias);
        scales[g] = swl_f32_to_bf16(scale);
        biases[g] = swl_f32_to_bf16(bias);
        for (i = 0; i < group; i += RUN, data += bits) {
            quantise_run(src + i, scale, bias, steps, q);
            pack_run(data, bits, q);
        }
    }
}

void swl_affine_quantise_row(const float *src, int32_t cols, int32_t bits, int32_t group, uint8_t *data,
                             uint16_t *scales, uint16_t *biases)
{
    assert(group > 0 && group % RUN == 0 && cols % group == 0);
    switch (bits) { /* one copy of the loop per width, each with constant shifts */
    case 2:
        quantise_row(src, cols, 2, group, data, scales, biases);
        break;
    case 3:
        quantise_row(src, cols, 3, group, data, scales, biases);
        break;
    case 4:
        quantise_row(src, cols, 4, group, data, scales, biases);
        break;
    case 5:
        quantise_row(src, cols, 5, group, data, scales, biases);
        break;
    case 6:
        quantise_row(src, cols, 6, group, data, scales, biases);
        break;
    case 8:
        quantise_row(src, cols, 8, group, data, scales, biases);
        break;
    default:
        assert(!"bits");
    }
}
