/*
 * matmul_book_neon.c: four-bit codebooks (mxfp4, nvfp4, the non-linear code) times tokens. Codes look up signed bytes
 * (tbl); two products of 127 * 127 fit 16 bits, so a register of codes is multiplied half by half into one register of
 * sums. A unit's sum is folded at once and enters its lane as the contract says.
 */
#include "kernels/arm/arm.h"

#include "kernels/arm/quant_neon.h"

enum { FEW = 4 };

/* 2^-1 times E8M0: a subnormal for 0 and 1, a NaN for 255. */
INLINE float scale_e8m0(uint8_t b)
{
    uint32_t u = b == 255 ? UINT32_C(0x7fc00000) : b > 1 ? (uint32_t)(b - 1) << 23 : UINT32_C(1) << (21 + b);
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* 2^-1 times E4M3: exponent and mantissa where float32 has them, times 2^119. */
INLINE float scale_e4m3(uint8_t b)
{
    uint32_t u = (uint32_t)(b & 0x7f) << 20, nan = UINT32_C(0x7fc00000), two_119 = UINT32_C(246) << 23;
    float f, factor;

    memcpy(&f, &u, sizeof f);
    memcpy(&factor, &two_119, sizeof factor);
    f *= factor;
    if ((b & 0x7f) == 0x7f)
        memcpy(&f, &nan, sizeof f);
    return b & 0x80 ? -f : f;
}

INLINE float book_scale(const swl_matrix *w, int64_t i, swl_wtype type)
{
    if (type == SWL_W_NL4)
        return vgetq_lane_f32(load_part4(w->sdtype, w->scales + i * (w->sdtype == SWL_DT_F32 ? 4 : 2), 1), 0);
    return type == SWL_W_NVFP4 ? scale_e4m3(w->scales[i]) : scale_e8m0(w->scales[i]);
}

INLINE int32x4_t products(int32x4_t acc, int8x16_t w, const int8_t *x)
{
    int8x16_t v = vld1q_s8(x);
    int16x8_t s = vmull_s8(vget_low_s8(w), vget_low_s8(v));

    return vpadalq_s16(acc, vmlal_high_s8(s, w, v));
}

typedef struct tokens {
    const int8_t *q[FEW];
    const float *scale[FEW];
    int32_t n;
} tokens;

INLINE void one_row(const swl_matrix *w, int64_t row, const tokens *t, swl_wtype type, int unit, int8x16_t table,
                    float (*lanes)[SWL_LANES])
{
    const uint8_t *data = w->data + row * swl_matrix_row_bytes(w);
    int32_t n_units = w->cols / unit, u, k;

    memset(lanes, 0, FEW * sizeof *lanes);
    for (u = 0; u < n_units; u++, data += unit / 2) {
        float ws = book_scale(w, row * n_units + u, type);
        int8x16_t a = vqtbl1q_s8(table, unpack16(data, 4)), b = a;

        if (unit == 32)
            b = vqtbl1q_s8(table, unpack16(data + 8, 4));
        for (k = 0; k < t->n; k++) {
            const int8_t *x = t->q[k] + u * unit;
            int32x4_t acc = products(vdupq_n_s32(0), a, x);
            float *lane = &lanes[k][u % SWL_LANES];

            if (unit == 32)
                acc = products(acc, b, x + 16);
            *lane = __builtin_fmaf((float)vaddvq_s32(acc), ws * t->scale[k][u * unit / SWL_ACT_GROUP], *lane);
        }
    }
}

INLINE void matmul(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                   int32_t n_tok, float *out, int64_t ldo, swl_wtype type, int unit)
{
    const int32_t *book = swl_wtype_get(w->type)->book;
    float lanes[FEW][SWL_LANES];
    int8_t bytes[16];
    int32_t first, r, k;

    for (k = 0; k < 16; k++)
        bytes[k] = (int8_t)book[k];
    for (first = 0; first < n_tok; first += FEW) {
        tokens t = {.n = n_tok - first < FEW ? n_tok - first : FEW};

        for (k = 0; k < t.n; k++) {
            int64_t row = tok ? tok[first + k] : first + k;

            t.q[k] = a->q + row * a->ldq;
            t.scale[k] = a->scale + row * (a->ldq / SWL_ACT_GROUP);
        }
        for (r = 0; r < n_rows; r++) {
            one_row(w, row0 + r, &t, type, unit, vld1q_s8(bytes), lanes);
            for (k = 0; k < t.n; k++)
                out[(first + k) * ldo + r] = ref_fold(lanes[k]);
        }
    }
}

void swl_matmul_q_mxfp4_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_MXFP4, 32);
}

void swl_matmul_q_nvfp4_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                             int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_NVFP4, 16);
}

void swl_matmul_q_nl4_neon(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    matmul(w, row0, n_rows, a, tok, n_tok, out, ldo, SWL_W_NL4, 32);
}
