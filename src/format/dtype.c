/*
 * dtype.c: names and sizes of element types, and the 16-bit floats to and from float32. The conversions are written
 * without branches on the data, so that the compiler can run the loops in vector registers.
 */
#include "format/dtype.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and are read without swapping");

static const struct {
    const char *name;
    int32_t size;
} types[SWL_DT_COUNT] = {
    [SWL_DT_NONE] = {"none", 0},       [SWL_DT_F32] = {"F32", 4},         [SWL_DT_F16] = {"F16", 2},
    [SWL_DT_BF16] = {"BF16", 2},       [SWL_DT_F8_E4M3] = {"F8_E4M3", 1}, [SWL_DT_F8_E5M2] = {"F8_E5M2", 1},
    [SWL_DT_F8_E8M0] = {"F8_E8M0", 1}, [SWL_DT_U8] = {"U8", 1},           [SWL_DT_I8] = {"I8", 1},
    [SWL_DT_I32] = {"I32", 4},         [SWL_DT_U32] = {"U32", 4},         [SWL_DT_I64] = {"I64", 8},
    [SWL_DT_BOOL] = {"BOOL", 1},
};

const char *swl_dtype_name(swl_dtype t)
{
    return (unsigned)t < SWL_DT_COUNT ? types[t].name : types[SWL_DT_NONE].name;
}

swl_dtype swl_dtype_parse(const char *name)
{
    int t;

    for (t = SWL_DT_NONE + 1; t < SWL_DT_COUNT; t++)
        if (!strcmp(name, types[t].name))
            return (swl_dtype)t;
    return SWL_DT_NONE;
}

int32_t swl_dtype_size(swl_dtype t)
{
    return (unsigned)t < SWL_DT_COUNT ? types[t].size : 0;
}

static inline uint32_t to_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* Moves the exponent from bias 15 to bias 127. Subnormal halves are scaled as if they had a leading one, which is then
 * subtracted: exact, and no float32 subnormal appears on the way. */
static inline float widen_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, exponent = magnitude & (UINT32_C(31) << 23);
    uint32_t normal = magnitude + (UINT32_C(112) << 23), special = magnitude + (UINT32_C(224) << 23);
    uint32_t tiny = to_bits(from_bits(magnitude + (UINT32_C(113) << 23)) - from_bits(UINT32_C(113) << 23));
    uint32_t u = exponent == 0 ? tiny : exponent == (UINT32_C(31) << 23) ? special : normal;

    return from_bits(u | (uint32_t)(h & 0x8000) << 16);
}

float swl_f16_to_f32(uint16_t h)
{
    return widen_f16(h);
}

uint16_t swl_f32_to_f16(float f)
{
    uint32_t sign = to_bits(f) >> 16 & 0x8000, u = to_bits(f) & 0x7fffffff;

    if (u > UINT32_C(0x7f800000))
        return (uint16_t)(sign | 0x7e00);
    if (u >= UINT32_C(0x47800000)) /* 65536 and up, infinity too */
        return (uint16_t)(sign | 0x7c00);
    if (u < UINT32_C(0x38800000)) /* below 2^-14: the addition of 0.5 rounds to a multiple of 2^-24, ties to even */
        return (uint16_t)(sign | (to_bits(from_bits(u) + 0.5f) - to_bits(0.5f)));
    u += (u >> 13 & 1) + 0xfff; /* carries into the exponent where it must, up to infinity */
    return (uint16_t)(sign | ((u - (UINT32_C(112) << 23)) >> 13));
}

float swl_bf16_to_f32(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

uint16_t swl_f32_to_bf16(float f)
{
    uint32_t u = to_bits(f);

    if ((u & 0x7fffffff) > UINT32_C(0x7f800000))
        return (uint16_t)(u >> 16 | 0x40); /* a quiet NaN, whatever bits are cut off */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Exponent 4 bits (bias 7), mantissa 3: moved to where float32 has them and scaled by the difference of the biases. */
static inline float widen_e4m3(uint8_t b)
{
    float f = from_bits((uint32_t)(b & 0x7f) << 20) * from_bits(UINT32_C(247) << 23);

    return from_bits(((b & 0x7f) == 0x7f ? UINT32_C(0x7fc00000) : to_bits(f)) | (uint32_t)(b & 0x80) << 24);
}

static inline float widen_e8m0(uint8_t b)
{
    return from_bits(b == 255 ? UINT32_C(0x7fc00000) : b ? (uint32_t)b << 23 : UINT32_C(1) << 22);
}

static void widen_bytes(swl_dtype t, const uint8_t *p, float *dst, int64_t n)
{
    int64_t i;

    if (t == SWL_DT_F8_E4M3)
        for (i = 0; i < n; i++)
            dst[i] = widen_e4m3(p[i]);
    else
        for (i = 0; i < n; i++)
            dst[i] = widen_e8m0(p[i]);
}

void swl_dtype_to_f32(swl_dtype t, const void *src, float *dst, int64_t n)
{
    const uint8_t *p = src;
    uint16_t h;
    int64_t i;

    assert(t == SWL_DT_F32 || t == SWL_DT_F16 || t == SWL_DT_BF16 || t == SWL_DT_F8_E4M3 || t == SWL_DT_F8_E8M0);
    if (t == SWL_DT_F8_E4M3 || t == SWL_DT_F8_E8M0) {
        widen_bytes(t, p, dst, n);
    } else if (t == SWL_DT_F32) {
        if (n > 0)
            memcpy(dst, src, (size_t)n * sizeof *dst);
    } else if (t == SWL_DT_F16) {
        for (i = 0; i < n; i++) {
            memcpy(&h, p + 2 * i, sizeof h);
            dst[i] = widen_f16(h);
        }
    } else {
        for (i = 0; i < n; i++) {
            memcpy(&h, p + 2 * i, sizeof h);
            dst[i] = from_bits((uint32_t)h << 16);
        }
    }
}
