/* synthetic.c: a counter through a mixing function (splitmix64, Steele et al. 2014) gives word i without its predecessors. */
#include "format/synthetic.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t word(uint64_t key, uint64_t i)
{
    return mix(key + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* FNV-1a over n characters, then the seed. */
static uint64_t key_of(uint64_t seed, const char *name, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
    return mix(h ^ mix(seed));
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && !strcmp(s + n - k, tail);
}

int32_t swl_synthetic_bits(const char *name)
{
    return strstr(name, ".mlp.gate.") || strstr(name, ".mlp.shared_expert_gate.") ? 8 : 4;
}

/* Scales spread by a quarter around the one that gives the wanted deviation; codes 0..2^b-1 deviate by
 * sqrt((2^2b - 1) / 12) around (2^b - 1) / 2. */
static void init_scales(swl_synthetic *s, const char *name, int64_t width)
{
    double levels = (double)(1 << swl_synthetic_bits(name));

    s->base = (float)(1.0 / (sqrt((levels * levels - 1.0) / 12.0) * sqrt((double)width * SWL_SYNTHETIC_GROUP)));
    s->span = s->base / 4;
    s->bias_factor = ends_with(name, ".biases") ? (float)((levels - 1.0) / 2) : 0.0f;
}

static void init_vector(swl_synthetic *s, const char *name)
{
    if (ends_with(name, "A_log")) {
        s->base = 4.25f;
        s->span = 3.75f;
        s->log = true;
    } else if (ends_with(name, "dt_bias")) {
        s->base = -1.0f;
        s->span = 2.0f;
    } else if (ends_with(name, "conv1d.weight")) {
        s->span = 0.5f * 1.7320508f; /* uniform on [-1, 1) deviates by 1 / sqrt(3) */
    } else {
        s->base = 1.0f;
        s->span = 0.2f;
    }
}

/* Scales and biases of a matrix share a key: a bias belongs to its scale. */
void swl_synthetic_init(swl_synthetic *s, uint64_t seed, const char *name, swl_dtype dtype, int64_t width)
{
    bool affine = ends_with(name, ".scales") || ends_with(name, ".biases");
    size_t n = strlen(name);

    assert(dtype == SWL_DT_U32 || dtype == SWL_DT_BF16 || dtype == SWL_DT_F32);
    *s = (swl_synthetic){.key = key_of(seed, name, affine ? n - 6 : n), .dtype = dtype};
    if (affine)
        init_scales(s, name, width);
    else if (dtype != SWL_DT_U32)
        init_vector(s, name);
}

/* Element i has a quarter of a word of its own. */
static float value(const swl_synthetic *s, uint64_t i)
{
    float u = (float)(int16_t)(word(s->key, i / 4) >> 16 * (i % 4)) / 32768.0f, x = s->base + s->span * u;

    if (s->bias_factor != 0.0f)
        return -s->bias_factor * swl_bf16_to_f32(swl_f32_to_bf16(x));
    return s->log ? logf(x) : x;
}

static void random_words(uint64_t key, uint64_t offset, uint8_t *dst, uint64_t n)
{
    uint64_t i = offset / 8, skip = offset % 8, w, k;

    if (skip) {
        w = word(key, i++);
        k = 8 - skip < n ? 8 - skip : n;
        memcpy(dst, (const uint8_t *)&w + skip, k);
        dst += k;
        n -= k;
    }
    for (; n >= 8; n -= 8, dst += 8) {
        w = word(key, i++);
        memcpy(dst, &w, 8);
    }
    w = word(key, i);
    memcpy(dst, &w, n);
}

void swl_synthetic_bytes(const swl_synthetic *s, uint64_t offset, void *dst, uint64_t n)
{
    uint64_t size = (uint64_t)swl_dtype_size(s->dtype), first = offset / size;

    if (s->dtype == SWL_DT_U32) {
        random_words(s->key, offset, dst, n);
        return;
    }
    for (uint64_t i = 0; i < n / size; i++) {
        float x = value(s, first + i);
        uint16_t h = swl_f32_to_bf16(x);

        memcpy((uint8_t *)dst + i * size, s->dtype == SWL_DT_F32 ? (const void *)&x : (const void *)&h, size);
    }
}
