/* Weight formats: packing vectors of the layout's definition, and bytes that MLX's own quantiser wrote. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/quant.h"
#include "format/safetensors.h"

#define MLX_FILE SWL_TEST_DATA "/fixtures/quant/mlx_affine.safetensors"

static const int widths[] = {2, 3, 4, 5, 6, 8};
#define N_WIDTHS (sizeof widths / sizeof *widths)

/* Element i of a bit stream, bit by bit. */
static int element(const uint8_t *p, int bits, int64_t i)
{
    int b, q = 0;

    for (b = 0; b < bits; b++)
        q |= (p[(i * bits + b) / 8] >> (i * bits + b) % 8 & 1) << b;
    return q;
}

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void known_bytes_unpack(void **state)
{
    static const struct {
        int bits, n;
        uint8_t q[8], bytes[8];
    } vectors[] = {
        {2, 4, {1, 2, 3, 0}, {0x39}},
        {3, 8, {0, 1, 2, 3, 4, 5, 6, 7}, {0x88, 0xc6, 0xfa}},
        {3, 8, {1, 6, 3, 0, 5, 2, 7, 4}, {0xf1, 0x50, 0x9d}},
        {4, 4, {1, 6, 11, 0}, {0x61, 0x0b}},
        {5, 8, {31, 0, 1, 2, 30, 16, 8, 4}, {0x1f, 0x04, 0xe1, 0x21, 0x22}},
        {6, 4, {63, 0, 1, 32}, {0x3f, 0x10, 0x80}},
        {8, 4, {1, 6, 11, 16}, {0x01, 0x06, 0x0b, 0x10}},
    };
    static const uint8_t scale[] = {0x80, 0x3f}, bias[] = {0x00, 0x00};
    uint8_t data[32];
    float got[32];
    size_t v;
    int i;

    (void)state;
    for (v = 0; v < sizeof vectors / sizeof *vectors; v++) {
        swl_matrix m = {swl_wtype_affine(vectors[v].bits), SWL_DT_BF16, 1, 32, 32, data, scale, bias, {0}};

        memset(data, 0, sizeof data);
        memcpy(data, vectors[v].bytes, 8);
        swl_matrix_row_f32(&m, 0, got);
        for (i = 0; i < 32; i++)
            assert_true(got[i] == (i < vectors[v].n ? vectors[v].q[i] : 0));
    }
}

static void formats_are_described_once(void **state)
{
    size_t w;
    int t;

    (void)state;
    for (t = SWL_W_NONE + 1; t < SWL_W_COUNT; t++) {
        const swl_wtype_info *f = swl_wtype_get((swl_wtype)t);

        assert_non_null(f->name);
        assert_non_null(f->dequant);
        if (f->affine)
            assert_int_equal(swl_wtype_affine(f->bits), t);
    }
    for (w = 0; w < N_WIDTHS; w++)
        assert_int_not_equal(swl_wtype_affine(widths[w]), SWL_W_NONE);
    assert_int_equal(swl_wtype_affine(7), SWL_W_NONE);
    assert_int_equal(swl_wtype_affine(32), SWL_W_NONE);
    assert_int_equal(swl_wtype_plain(SWL_DT_F16), SWL_W_F16);
    assert_int_equal(swl_wtype_plain(SWL_DT_U8), SWL_W_NONE);
}

/* Random words, random 16-bit scales and biases of every magnitude, odd addresses, every group: value = fmaf. */
static void affine_values_are_one_fused_multiply_add(void **state)
{
    enum { ROWS = 3, COLS = 256 };
    static uint8_t data[1 + ROWS * COLS], scales[1 + ROWS * COLS / 4], biases[1 + ROWS * COLS / 4];
    static const int groups[] = {16, 32, 64, 128};
    static const swl_dtype types[] = {SWL_DT_BF16, SWL_DT_F16, SWL_DT_F32};
    uint64_t seed = 88172645463325252u;
    float got[COLS + 1], s, b, want;
    size_t w, g, t, i;
    int row, col, round;

    (void)state;
    for (round = 0; round < 20; round++)
        for (w = 0; w < N_WIDTHS; w++)
            for (g = 0; g < 4; g++)
                for (t = 0; t < 3; t++) {
                    swl_matrix m = {swl_wtype_affine(widths[w]),
                                    types[t],
                                    ROWS,
                                    COLS,
                                    groups[g],
                                    data + 1,
                                    scales + 1,
                                    biases + 1,
                                    {0}};
                    int size = swl_dtype_size(types[t]), n_groups = COLS / groups[g];

                    assert_int_equal(swl_matrix_row_bytes(&m), COLS * widths[w] / 8);
                    for (i = 0; i < sizeof data; i++)
                        data[i] = (uint8_t)next_random(&seed);
                    for (i = 0; i < sizeof scales; i++) {
                        scales[i] = (uint8_t)(next_random(&seed) >> 8);
                        biases[i] = (uint8_t)(next_random(&seed) >> 16);
                    }
                    row = (int)(next_random(&seed) % ROWS);
                    got[COLS] = 7;
                    swl_matrix_row_f32(&m, row, got);
                    for (col = 0; col < COLS; col++) {
                        int at = row * n_groups + col / groups[g];

                        swl_dtype_to_f32(types[t], scales + 1 + at * size, &s, 1);
                        swl_dtype_to_f32(types[t], biases + 1 + at * size, &b, 1);
                        want = fmaf(s, (float)element(data + 1, widths[w], (int64_t)row * COLS + col), b);
                        if (isnan(want))
                            assert_true(isnan(got[col]));
                        else
                            assert_memory_equal(&got[col], &want, sizeof want);
                    }
                    assert_true(got[COLS] == 7);
                }
}

static void part_of_a_row_equals_the_whole(void **state)
{
    static const struct {
        int col, n;
    } parts[] = {{0, 32}, {32, 64}, {96, 32}, {64, 37}, {128, 1}, {32, 0}};
    uint8_t data[160 * 8], scales[160], biases[160];
    float whole[160], part[65];
    uint64_t seed = 4101842887655102017u;
    size_t t, p, i;

    (void)state;
    for (i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(next_random(&seed) & 0xbf); /* no NaN in any plain type */
    for (i = 0; i < sizeof scales; i++)
        scales[i] = biases[i] = data[i] & 0x3f;
    for (t = SWL_W_NONE + 1; t < SWL_W_COUNT; t++)
        for (p = 0; p < sizeof parts / sizeof *parts; p++) {
            swl_matrix m = {(swl_wtype)t, SWL_DT_F16, 2, 160, 32, data, scales, biases, {0}};

            swl_matrix_row_f32(&m, 1, whole);
            part[parts[p].n] = 7;
            swl_wtype_get(m.type)->dequant(&m, 1, parts[p].col, parts[p].n, part);
            assert_memory_equal(part, whole + parts[p].col, (size_t)parts[p].n * sizeof *part);
            assert_true(part[parts[p].n] == 7);
        }
}

static void shapes_give_bits_and_group(void **state)
{
    int32_t bits, group;
    size_t w;
    int g;

    (void)state;
    for (w = 0; w < N_WIDTHS; w++)
        for (g = 16; g <= 128; g *= 2) {
            assert_true(swl_affine_from_shapes(2048 * widths[w] / 32, 2048 / g, 2048, &bits, &group));
            assert_int_equal(bits, widths[w]);
            assert_int_equal(group, g);
        }
    assert_false(swl_affine_from_shapes(448, 32, 2048, &bits, &group));  /* 7 bits */
    assert_false(swl_affine_from_shapes(2048, 32, 2048, &bits, &group)); /* 32 bits */
    assert_false(swl_affine_from_shapes(257, 32, 2048, &bits, &group));
    assert_false(swl_affine_from_shapes(256, 33, 2048, &bits, &group));
    assert_false(swl_affine_from_shapes(256, 8, 2048, &bits, &group)); /* group 256 */
    assert_false(swl_affine_from_shapes(0, 32, 2048, &bits, &group));
    assert_false(swl_affine_from_shapes(256, 0, 2048, &bits, &group));
    assert_false(swl_affine_from_shapes(256, 32, 0, &bits, &group));
    assert_false(swl_affine_from_shapes(-256, 32, -2048, &bits, &group));
    assert_false(swl_affine_from_shapes(INT64_MAX, 32, 2048, &bits, &group));
    assert_false(swl_affine_from_shapes(256, INT64_MIN, 2048, &bits, &group));
}

/* The whole of a tensor of the fixture. */
static void *load(const swl_st *s, const char *prefix, const char *part)
{
    char name[64];
    const swl_st_tensor *t;
    void *p;

    snprintf(name, sizeof name, "%s%s", prefix, part);
    t = swl_st_find(s, name);
    assert_non_null(t);
    p = swl_calloc(t->size, 1);
    assert_non_null(p);
    assert_int_equal(swl_st_read(s, t, 0, p, t->size, NULL), SWL_OK);
    return p;
}

static void compare_with_mlx(const swl_st *s, const float *input, int rows, int cols, int bits, int group)
{
    uint8_t data[256];
    uint16_t scales[16], biases[16];
    uint16_t *want_scales, *want_biases;
    uint8_t *want_data;
    char prefix[16];
    int row, row_bytes = cols * bits / 8, n_groups = cols / group;

    snprintf(prefix, sizeof prefix, "q%dg%d", bits, group);
    want_data = load(s, prefix, ".weight");
    want_scales = load(s, prefix, ".scales");
    want_biases = load(s, prefix, ".biases");
    for (row = 0; row < rows; row++) {
        swl_affine_quantise_row(input + row * cols, cols, bits, group, data, scales, biases);
        assert_memory_equal(data, want_data + row * row_bytes, (size_t)row_bytes);
        assert_memory_equal(scales, want_scales + row * n_groups, (size_t)n_groups * 2);
        assert_memory_equal(biases, want_biases + row * n_groups, (size_t)n_groups * 2);
    }
    swl_free(want_data);
    swl_free(want_scales);
    swl_free(want_biases);
}

static void quantiser_writes_the_bytes_of_mlx(void **state)
{
    swl_st *s;
    const swl_st_tensor *t;
    uint8_t *raw;
    float *input;
    size_t w;
    int group;

    (void)state;
    assert_int_equal(swl_st_open(&s, MLX_FILE, NULL), SWL_OK);
    t = swl_st_find(s, "input");
    assert_non_null(t);
    raw = load(s, "input", "");
    input = swl_calloc((size_t)(t->shape[0] * t->shape[1]), sizeof *input);
    swl_dtype_to_f32(t->dtype, raw, input, t->shape[0] * t->shape[1]);
    for (w = 0; w < N_WIDTHS; w++)
        for (group = 32; group <= 128; group *= 2)
            compare_with_mlx(s, input, (int)t->shape[0], (int)t->shape[1], widths[w], group);
    swl_free(raw);
    swl_free(input);
    swl_st_close(s);
}

/* MLX rounds product and sum on their own in float32, we once: they differ by the roundings of the product. */
static void values_agree_with_mlx(void **state)
{
    swl_st *s;
    size_t w;

    (void)state;
    assert_int_equal(swl_st_open(&s, MLX_FILE, NULL), SWL_OK);
    for (w = 0; w < N_WIDTHS; w++) {
        char prefix[16];
        const swl_st_tensor *t;
        uint8_t *data, *scales, *biases;
        float *want, got[256];
        int row, col;

        snprintf(prefix, sizeof prefix, "q%dg64", widths[w]);
        data = load(s, prefix, ".weight");
        scales = load(s, prefix, ".scales");
        biases = load(s, prefix, ".biases");
        want = load(s, prefix, ".value");
        t = swl_st_find(s, "input");
        for (row = 0; row < t->shape[0]; row++) {
            swl_matrix m = {
                swl_wtype_affine(widths[w]), SWL_DT_BF16, (int32_t)t->shape[0], 256, 64, data, scales, biases, {0}};

            swl_matrix_row_f32(&m, row, got);
            for (col = 0; col < 256; col++) {
                float bias;

                swl_dtype_to_f32(SWL_DT_BF16, biases + 2 * (row * 4 + col / 64), &bias, 1);
                assert_true(fabsf(got[col] - want[row * 256 + col]) <= 0x1p-22f * fabsf(bias));
            }
        }
        swl_free(data);
        swl_free(scales);
        swl_free(biases);
        swl_free(want);
    }
    swl_st_close(s);
}

/* Half a step by rounding, one by clipping (the scale is refitted so that zero is exact, which at 2 bits may cut one
 * step off the far end), and bfloat16's share of scale and bias. MLX does not write groups of 16, so no bytes to
 * compare. */
static void reconstruction_error_is_bounded_by_the_step(void **state)
{
    enum { COLS = 256, GROUP = 16 };
    float x[COLS], y[COLS], s, b;
    uint8_t data[COLS];
    uint16_t scales[COLS / GROUP], biases[COLS / GROUP];
    uint64_t seed = 1181783497276652981u;
    size_t w;
    int i;

    (void)state;
    for (i = 0; i < COLS; i++)
        x[i] = (float)((double)(int64_t)next_random(&seed) / 9e18);
    for (w = 0; w < N_WIDTHS; w++) {
        swl_matrix m = {swl_wtype_affine(widths[w]), SWL_DT_BF16,       1,  COLS, GROUP, data,
                        (uint8_t *)scales,           (uint8_t *)biases, {0}};

        swl_affine_quantise_row(x, COLS, widths[w], GROUP, data, scales, biases);
        swl_matrix_row_f32(&m, 0, y);
        for (i = 0; i < COLS; i++) {
            s = fabsf(swl_bf16_to_f32(scales[i / GROUP]));
            b = fabsf(swl_bf16_to_f32(biases[i / GROUP]));
            assert_true(fabsf(x[i] - y[i]) <= 1.5f * s + 0x1p-8f * (s * (float)(1 << widths[w]) + b));
        }
    }
}

/* A checkpoint may hold anything: no trap, no undefined conversion, the neighbours' groups are untouched. */
static void nonsense_input_stays_in_its_group(void **state)
{
    float x[96], y[96];
    uint8_t data[96];
    uint16_t scales[3], biases[3];
    size_t w;
    int i;

    (void)state;
    for (w = 0; w < N_WIDTHS; w++) {
        swl_matrix m = {swl_wtype_affine(widths[w]), SWL_DT_BF16,       1,  96, 32, data,
                        (uint8_t *)scales,           (uint8_t *)biases, {0}};

        for (i = 0; i < 96; i++)
            x[i] = i % 2 ? 1.0f : -1.0f;
        x[0] = NAN;
        x[40] = INFINITY;
        x[41] = -INFINITY;
        swl_affine_quantise_row(x, 96, widths[w], 32, data, scales, biases);
        swl_matrix_row_f32(&m, 0, y);
        for (i = 64; i < 96; i++)
            assert_true(fabsf(y[i] - x[i]) < 0.51f);
    }
}

/* Words, scales and values as MLX made them, in its modes without biases: every value to the bit. */
static void codebooks_mean_what_mlx_says(void **state)
{
    static const struct {
        const char *name;
        swl_wtype type;
    } modes[] = {{"mxfp4", SWL_W_MXFP4},         {"mxfp8", SWL_W_MXFP8},         {"nvfp4", SWL_W_NVFP4},
                 {"mxfp4.all", SWL_W_MXFP4}, {"mxfp8.all", SWL_W_MXFP8}, {"nvfp4.all", SWL_W_NVFP4}};
    static const char *const parts[] = {"weight", "scales", "value"};
    swl_st *s;

    (void)state;
    assert_int_equal(swl_st_open(&s, SWL_TEST_DATA "/fixtures/quant/mlx_codebooks.safetensors", NULL), SWL_OK);
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        const swl_st_tensor *t[3];
        uint8_t *data[3];
        float got[256];
        char name[64];
        int32_t group;
        swl_matrix m;

        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%s.%s", modes[k].name, parts[i]);
            t[i] = swl_st_find(s, name);
            assert_non_null(t[i]);
            data[i] = swl_calloc(t[i]->size, 1);
            assert_int_equal(swl_st_read(s, t[i], 0, data[i], t[i]->size, NULL), SWL_OK);
        }
        assert_int_equal(swl_codebook_from_shapes(t[1]->dtype, t[0]->shape[1], t[1]->shape[1], 256, &group),
                         modes[k].type);
        m = (swl_matrix){
            modes[k].type, swl_codebook_sdtype(modes[k].type, t[1]->dtype), 4, 256, group, data[0], data[1], NULL, {0}};
        for (int row = 0; row < 4; row++) {
            swl_matrix_row_f32(&m, row, got);
            for (int i = 0; i < 256; i++) {
                float want;

                memcpy(&want, data[2] + 4 * (256 * row + i), 4);
                if (got[i] != want)
                    print_error("%s, row %d, column %d: %g, expected %g\n", modes[k].name, row, i, (double)got[i],
                                (double)want);
                assert_true(got[i] == want);
            }
        }
        for (int i = 0; i < 3; i++)
            swl_free(data[i]);
    }
    swl_st_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codebooks_mean_what_mlx_says),
        cmocka_unit_test(known_bytes_unpack),
        cmocka_unit_test(formats_are_described_once),
        cmocka_unit_test(affine_values_are_one_fused_multiply_add),
        cmocka_unit_test(part_of_a_row_equals_the_whole),
        cmocka_unit_test(shapes_give_bits_and_group),
        cmocka_unit_test(quantiser_writes_the_bytes_of_mlx),
        cmocka_unit_test(values_agree_with_mlx),
        cmocka_unit_test(reconstruction_error_is_bounded_by_the_step),
        cmocka_unit_test(nonsense_input_stays_in_its_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
