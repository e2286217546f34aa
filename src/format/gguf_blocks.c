/*
 * gguf_blocks.c: one function per tensor type of GGUF that takes a block apart, and the loop that packs what it gives.
 * The layouts are llama.cpp's; element j of a block is column j of its 32 to 256 columns.
 */
#include "format/gguf_blocks.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static float half(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof h);
    return swl_f16_to_f32(h);
}

static uint32_t word(const uint8_t *p)
{
    uint32_t w;

    memcpy(&w, p, sizeof w);
    return w;
}

/* n bytes of nibbles: the low ones first, the high ones n columns later. */
static void nibbles(const uint8_t *p, int n, uint8_t *codes)
{
    for (int j = 0; j < n; j++) {
        codes[j] = p[j] & 15;
        codes[j + n] = p[j] >> 4;
    }
}

/* ---- blocks of 32 --------------------------------------------------------------------------------------------------- */

static void split_q4_0(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    scales[0] = half(b);
    biases[0] = -8.0f * scales[0];
    nibbles(b + 2, 16, codes);
}

static void split_q4_1(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    scales[0] = half(b);
    biases[0] = half(b + 2);
    nibbles(b + 4, 16, codes);
}

static void fifth_bits(uint32_t bits, uint8_t *codes)
{
    for (int j = 0; j < 32; j++)
        codes[j] |= (uint8_t)((bits >> j & 1) << 4);
}

static void split_q5_0(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    scales[0] = half(b);
    biases[0] = -16.0f * scales[0];
    nibbles(b + 6, 16, codes);
    fifth_bits(word(b + 2), codes);
}

static void split_q5_1(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    scales[0] = half(b);
    biases[0] = half(b + 2);
    nibbles(b + 8, 16, codes);
    fifth_bits(word(b + 4), codes);
}

static void split_q8_0(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    scales[0] = half(b);
    biases[0] = -128.0f * scales[0];
    for (int j = 0; j < 32; j++)
        codes[j] = b[2 + j] ^ 0x80;
}

static void split_iq4_nl(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    (void)biases;
    scales[0] = half(b);
    nibbles(b + 2, 16, codes);
}

static void split_mxfp4(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    (void)biases;
    scales[0] = b[0];
    nibbles(b + 1, 16, codes);
}

/* ---- blocks of 64 --------------------------------------------------------------------------------------------------- */

/* The scale has no sign, and 0x7F stands for 0. */
static void split_nvfp4(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    (void)biases;
    for (int s = 0; s < 4; s++) {
        scales[s] = (b[s] & 0x7f) == 0x7f ? 0 : b[s] & 0x7f;
        nibbles(b + 4 + 8 * s, 8, codes + 16 * s);
    }
}

static void split_q2_0(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    scales[0] = half(b);
    biases[0] = -scales[0];
    for (int j = 0; j < 64; j++)
        codes[j] = b[2 + j / 4] >> 2 * (j % 4) & 3;
}

/* ---- blocks of 256 -------------------------------------------------------------------------------------------------- */

/* The two-bit fields of Q2_K and Q3_K: field j of 32 bytes gives 32 columns, 128 columns per 32 bytes. */
static void quarters(const uint8_t *qs, uint8_t *codes)
{
    for (int i = 0; i < 256; i++)
        codes[i] = qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void split_q2_k(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    float d = half(b + 80), min = half(b + 82);

    quarters(b + 16, codes);
    for (int g = 0; g < 16; g++) {
        scales[g] = d * (float)(b[g] & 15);
        biases[g] = -min * (float)(b[g] >> 4);
    }
}

static void split_q3_k(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    const uint8_t *high = b, *sc = b + 96;
    float d = half(b + 108);

    quarters(b + 32, codes);
    for (int i = 0; i < 256; i++)
        codes[i] |= (uint8_t)((high[i % 32] >> (i / 32) & 1) << 2);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4, s = low | (sc[8 + g % 4] >> 2 * (g / 4) & 3) << 4;

        scales[g] = d * (float)(s - 32);
        biases[g] = -4.0f * scales[g];
    }
}

/* Scale and minimum of the eight sub-blocks of Q4_K and Q5_K, six bits each. */
static void k_scales(const uint8_t *b, float *scales, float *biases)
{
    const uint8_t *sc = b + 4;
    float d = half(b), min = half(b + 2);

    for (int g = 0; g < 8; g++) {
        int s = g < 4 ? sc[g] & 63 : (sc[g + 4] & 15) | (sc[g - 4] >> 6) << 4;
        int m = g < 4 ? sc[g + 4] & 63 : sc[g + 4] >> 4 | (sc[g] >> 6) << 4;

        scales[g] = d * (float)s;
        biases[g] = -min * (float)m;
    }
}

static void split_q4_k(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    k_scales(b, scales, biases);
    for (int p = 0; p < 4; p++)
        nibbles(b + 16 + 32 * p, 32, codes + 64 * p);
}

static void split_q5_k(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    k_scales(b, scales, biases);
    for (int p = 0; p < 4; p++)
        nibbles(b + 48 + 32 * p, 32, codes + 64 * p);
    for (int i = 0; i < 256; i++)
        codes[i] |= (uint8_t)((b[16 + i % 32] >> (i / 32) & 1) << 4);
}

static void split_q6_k(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    float d = half(b + 208);

    for (int i = 0; i < 256; i++) {
        const uint8_t *low = b + i / 128 * 64, *high = b + 128 + i / 128 * 32;
        int k = i % 128 / 32, l = i % 32;

        codes[i] = (uint8_t)((low[l + k % 2 * 32] >> k / 2 * 4 & 15) | (high[l] >> 2 * k & 3) << 4);
    }
    for (int g = 0; g < 16; g++) {
        scales[g] = d * (float)(int8_t)b[192 + g];
        biases[g] = -32.0f * scales[g];
    }
}

static void split_iq4_xs(const uint8_t *b, uint8_t *codes, float *scales, float *biases)
{
    float d = half(b);
    int high = b[2] | b[3] << 8;

    (void)biases;
    for (int g = 0; g < 8; g++) {
        int s = (b[4 + g / 2] >> g % 2 * 4 & 15) | (high >> 2 * g & 3) << 4;

        scales[g] = d * (float)(s - 32);
        nibbles(b + 8 + 16 * g, 16, codes + 32 * g);
    }
}

/* clang-format off */
static const swl_gguf_form forms[] = {
    {2,  SWL_W_A4,    32, SWL_DT_F16, false, split_q4_0},
    {3,  SWL_W_A4,    32, SWL_DT_F16, false, split_q4_1},
    {6,  SWL_W_A5,    32, SWL_DT_F16, false, split_q5_0},
    {7,  SWL_W_A5,    32, SWL_DT_F16, false, split_q5_1},
    {8,  SWL_W_A8,    32, SWL_DT_F16, false, split_q8_0},
    {10, SWL_W_A2,    16, SWL_DT_F16, true,  split_q2_k},
    {11, SWL_W_A3,    16, SWL_DT_F16, true,  split_q3_k},
    {12, SWL_W_A4,    32, SWL_DT_F16, true,  split_q4_k},
    {13, SWL_W_A5,    32, SWL_DT_F16, true,  split_q5_k},
    {14, SWL_W_A6,    16, SWL_DT_F16, true,  split_q6_k},
    {20, SWL_W_NL4,   32, SWL_DT_F16, false, split_iq4_nl},
    {23, SWL_W_NL4,   32, SWL_DT_F16, true,  split_iq4_xs},
    {39, SWL_W_MXFP4, 32, SWL_DT_U8,  false, split_mxfp4},
    {40, SWL_W_NVFP4, 16, SWL_DT_U8,  false, split_nvfp4},
    {42, SWL_W_A2,    64, SWL_DT_F16, false, split_q2_0},
};
/* clang-format on */

const swl_gguf_form *swl_gguf_form_get(const swl_gguf_type *t)
{
    for (size_t i = 0; t && i < sizeof forms / sizeof forms[0]; i++)
        if (forms[i].id == t->id)
            return &forms[i];
    return NULL;
}

swl_dtype swl_gguf_plain(const swl_gguf_type *t)
{
    return !t ? SWL_DT_NONE : t->id == 0 ? SWL_DT_F32 : t->id == 1 ? SWL_DT_F16 : t->id == 30 ? SWL_DT_BF16 : SWL_DT_NONE;
}

/* ---- packing -------------------------------------------------------------------------------------------------------- */

/* Codes to a little-endian bit stream, eight at a time. */
static void pack(const uint8_t *codes, int n, int bits, uint8_t *dst)
{
    for (int i = 0; i < n; i += 8, dst += bits) {
        uint64_t v = 0;

        for (int k = 0; k < 8; k++)
            v |= (uint64_t)codes[i + k] << (k * bits);
        memcpy(dst, &v, (size_t)bits);
    }
}

static bool store(swl_dtype t, const float *x, int n, uint8_t *dst)
{
    for (int i = 0; i < n; i++) {
        uint16_t h = swl_f32_to_f16(x[i]);

        if (t == SWL_DT_U8)
            dst[i] = (uint8_t)x[i];
        else if (t == SWL_DT_F32)
            memcpy(dst + 4 * i, &x[i], 4);
        else
            memcpy(dst + 2 * i, &h, 2);
        if (!isfinite(x[i]) || (t == SWL_DT_F16 && (h & 0x7c00) == 0x7c00))
            return false;
    }
    return true;
}

bool swl_gguf_convert(const swl_gguf_form *f, const swl_gguf_type *t, swl_dtype sdtype, int part, const uint8_t *src,
                      int64_t n, uint8_t *dst)
{
    uint8_t codes[SWL_GGUF_BLOCK_MAX];
    float scales[SWL_GGUF_BLOCK_MAX / 16], biases[SWL_GGUF_BLOCK_MAX / 16];
    int bits = swl_wtype_get(f->type)->bits, n_groups = t->block / f->group;
    bool ok = true;

    assert(t->block <= SWL_GGUF_BLOCK_MAX);
    for (int64_t i = 0; i < n; i++, src += t->bytes) {
        f->split(src, codes, scales, biases);
        if (part == 0) {
            pack(codes, t->block, bits, dst);
            dst += t->block * bits / 8;
        } else {
            ok &= store(sdtype, part == 1 ? scales : biases, n_groups, dst);
            dst += n_groups * swl_dtype_size(sdtype);
        }
    }
    return ok;
}
