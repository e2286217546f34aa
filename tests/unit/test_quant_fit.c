/* The quantiser that searches: never worse than MLX's as it is stored, better on weights, and safe on odd groups. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "format/quant_fit.h"

enum { COLS = 512 };

static const int widths[] = {2, 3, 4, 5, 6, 8};

static uint64_t state_of_rng = 88172645463325252u;

static double uniform(void)
{
    state_of_rng ^= state_of_rng << 13;
    state_of_rng ^= state_of_rng >> 7;
    state_of_rng ^= state_of_rng << 17;
    return (double)(state_of_rng >> 11) / 9007199254740992.0;
}

static float normal(double sigma)
{
    double s = 0;

    for (int i = 0; i < 12; i++)
        s += uniform();
    return (float)((s - 6) * sigma);
}

typedef struct stored {
    uint8_t data[COLS];
    uint16_t scales[COLS / 32], biases[COLS / 32];
} stored;

/* The squared error of each group, in double. */
static void errors(const stored *s, int bits, int group, const float *x, double *e)
{
    swl_matrix m = {swl_wtype_affine(bits),     SWL_DT_BF16, 1, COLS, group, s->data, (const uint8_t *)s->scales,
                    (const uint8_t *)s->biases, {0}};
    float y[COLS];

    swl_matrix_row_f32(&m, 0, y);
    for (int g = 0; g < COLS / group; g++)
        for (int i = g * group, first = 1; i < (g + 1) * group; i++, first = 0)
            e[g] = (first ? 0 : e[g]) + ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
}

/* What MLX's scale and bias leave once they are rounded and used: each code the nearest one. */
static void nearest(stored *s, int bits, int group, const float *x)
{
    swl_affine_quantise_row(x, COLS, bits, group, s->data, s->scales, s->biases);
    memset(s->data, 0, sizeof s->data);
    for (int i = 0; i < COLS; i++) {
        float scale = swl_bf16_to_f32(s->scales[i / group]), bias = swl_bf16_to_f32(s->biases[i / group]);
        float q = rintf((x[i] - bias) / scale), top = (float)((1 << bits) - 1);
        int code = (int)(q > 0 ? q < top ? q : top : 0);

        for (int b = 0; b < bits; b++)
            s->data[(i * bits + b) / 8] |= (uint8_t)((code >> b & 1) << (i * bits + b) % 8);
    }
}

static void fill(float *x, int kind)
{
    for (int i = 0; i < COLS; i++)
        switch (kind) {
        case 0:
            x[i] = normal(0.02);
            break;
        case 1:
            x[i] = 3 + normal(0.1);
            break;
        case 2:
            x[i] = uniform() < 0.02 ? (float)(uniform() - 0.5) * 8 : normal(0.01);
            break;
        case 3:
            x[i] = fabsf(normal(1));
            break;
        default:
            x[i] = swl_bf16_to_f32(swl_f32_to_bf16(normal(1e-20)));
        }
}

static void no_group_is_worse_than_mlx_and_weights_are_better(void **state)
{
    static stored ours, theirs;
    /* Root mean square error against MLX's bytes on normally distributed weights in groups of 64, measured. */
    static const double expected[] = {0.84, 0.87, 0.90, 0.91, 0.91, 0.78};

    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int group = 32; group <= 128; group *= 2)
            for (int kind = 0; kind < 5; kind++) {
                double a[COLS / 32], b[COLS / 32], sum_a = 0, sum_b = 0;
                float x[COLS];

                for (int round = 0; round < 20; round++) {
                    fill(x, kind);
                    swl_affine_fit_row(x, COLS, widths[w], group, ours.data, ours.scales, ours.biases);
                    nearest(&theirs, widths[w], group, x);
                    errors(&ours, widths[w], group, x, a);
                    errors(&theirs, widths[w], group, x, b);
                    for (int g = 0; g < COLS / group; g++)
                        assert_true(a[g] <= b[g] * 1.0001);
                    swl_affine_quantise_row(x, COLS, widths[w], group, theirs.data, theirs.scales, theirs.biases);
                    errors(&theirs, widths[w], group, x, b);
                    for (int g = 0; g < COLS / group; g++) {
                        sum_a += a[g];
                        sum_b += b[g];
                    }
                }
                if (kind == 0 && group == 64)
                    assert_true(sqrt(sum_a / sum_b) < expected[w] + 0.02);
            }
}

static void odd_groups_are_stored_as_well_as_can_be(void **state)
{
    static const float values[] = {0, 1, -2.5f, 1e-38f, 3e38f, -65504};
    static stored s;

    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            float x[COLS], y[COLS];
            swl_matrix m = {swl_wtype_affine(widths[w]), SWL_DT_BF16, 1, COLS, 64, s.data, (const uint8_t *)s.scales,
                            (const uint8_t *)s.biases,   {0}};

            for (int i = 0; i < COLS; i++)
                x[i] = i < 256 ? values[v] : i == 300 ? values[v] : 0; /* constant groups, one element, zeros */
            swl_affine_fit_row(x, COLS, widths[w], 64, s.data, s.scales, s.biases);
            swl_matrix_row_f32(&m, 0, y);
            for (int i = 0; i < COLS; i++)
                assert_true(fabsf(y[i] - x[i]) <= fabsf(values[v]) / 128 + 1e-6f * (fabsf(values[v]) < 1));
        }
}

static void codes_of_every_group_size_are_packed_alike(void **state)
{
    static stored a, b;
    swl_matrix m = {swl_wtype_affine(4),       SWL_DT_BF16, 1, COLS, 64, a.data, (const uint8_t *)a.scales,
                    (const uint8_t *)a.biases, {0}};
    float x[COLS], y[COLS];

    (void)state;
    for (int i = 0; i < COLS; i++)
        x[i] = (float)(i * 37 % 16); /* sixteen levels: four bits hold them exactly */
    swl_affine_fit_row(x, COLS, 4, 64, a.data, a.scales, a.biases);
    swl_affine_fit_row(x, COLS, 4, 128, b.data, b.scales, b.biases);
    assert_memory_equal(a.data, b.data, COLS / 2);
    swl_matrix_row_f32(&m, 0, y);
    assert_memory_equal(x, y, sizeof x);
}

enum { MANY = 19, ROW_MAX = 5 * COLS }; /* groups of a row: more than are fitted at once, and some left over */

static float any_bits(uint32_t mask)
{
    uint32_t u = (uint32_t)(uniform() * 4294967296.0) & mask;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static void fill_odd(float *x, int n, int kind)
{
    float one = normal(1);

    for (int i = 0; i < n; i++)
        switch (kind) {
        case 0:
            x[i] = uniform() < 0.5 ? -0.0f : 0.0f;
            break;
        case 1:
            x[i] = one;
            break;
        case 2:
            x[i] = any_bits(0x807fffff); /* subnormal */
            break;
        case 3:
            x[i] = any_bits(0xbfffffff); /* of all sizes below 2 */
            break;
        case 4:
            x[i] = i % 3 ? 0 : one * 1e37f;
            break;
        case 5:
            x[i] = any_bits(0xffffffff); /* infinities and NaNs too, as in the next */
            break;
        default:
            x[i] = i % 29 == 3 ? HUGE_VALF : i % 31 == 7 ? NAN : normal(1);
        }
}

static void fill_row(float *x, int group, int kind)
{
    for (int i = 0; kind < 5 && i < ROW_MAX; i += COLS)
        fill(x + i, kind);
    for (int g = 0; kind >= 5 && g < MANY; g++)
        fill_odd(x + g * group, group, kind - 5);
}

typedef struct packed_row {
    uint8_t data[ROW_MAX];
    uint16_t scales[MANY], biases[MANY];
} packed_row;

static uint32_t crc_of(uint32_t crc, const packed_row *r, int bits, int group)
{
    crc = swl_crc32c(crc, r->data, (size_t)(MANY * group * bits / 8));
    crc = swl_crc32c(crc, r->scales, sizeof r->scales);
    return swl_crc32c(crc, r->biases, sizeof r->biases);
}

/* The bits of a NaN may depend on the processor. */
static void same_numbers(const uint16_t *a, const uint16_t *b)
{
    for (int i = 0; i < MANY; i++)
        assert_true(a[i] == b[i] || (isnan(swl_bf16_to_f32(a[i])) && isnan(swl_bf16_to_f32(b[i]))));
}

/* The checksums are those of the first version of this quantiser, which took one group after the other. */
static void bytes_are_what_they_always_were_at_every_level(void **state)
{
    static const uint32_t expected[] = {0x9d4bbb09, 0x07f4cc5a, 0x0af1c86d, 0x99c9e0ef, 0xcd2d1f27, 0x16482e46};
    static packed_row plain, row;
    uint32_t flags = swl_cpu_flags(), levels[] = {0, flags & SWL_CPU_AVX2, flags};
    float x[ROW_MAX];

    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        uint32_t crc[3] = {0, 0, 0};

        state_of_rng = 88172645463325252u;
        for (int group = 32; group <= 128; group *= 2)
            for (int kind = 0; kind < 12; kind++) {
                fill_row(x, group, kind);
                for (int l = 0; l < 3; l++) {
                    packed_row *r = l ? &row : &plain;

                    swl_affine_fit_row_on(levels[l], x, MANY * group, widths[w], group, r->data, r->scales, r->biases);
                    if (kind < 10) {
                        crc[l] = crc_of(crc[l], r, widths[w], group);
                    } else if (l) {
                        assert_memory_equal(plain.data, row.data, (size_t)(MANY * group * widths[w] / 8));
                        same_numbers(plain.scales, row.scales);
                        same_numbers(plain.biases, row.biases);
                    }
                }
            }
        for (int l = 0; l < 3; l++)
            assert_int_equal(crc[l], expected[w]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_group_is_worse_than_mlx_and_weights_are_better),
        cmocka_unit_test(odd_groups_are_stored_as_well_as_can_be),
        cmocka_unit_test(bytes_are_what_they_always_were_at_every_level),
        cmocka_unit_test(codes_of_every_group_size_are_packed_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
