/*
 * Blocks of GGUF's tensor types: the values that they stand for. Vectors: every byte of a block is (37 i + 11) & 255,
 * then d = 1 and, where there is one, m or dmin = 0.5 (MXFP4: e = 129, NVFP4: d = 38 40 31 05). The values and sums
 * were published with the layouts; wsum is the sum of (i + 1) y_i.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf_blocks.h"

typedef struct vector {
    swl_gguf_type type;
    int d, m; /* where the floats lie; -1: none */
    float first[6], y17, last;
    double sum, wsum;
} vector;

/* clang-format off */
static const vector vectors[] = {
    {{2, "Q4_0", 32, 18},     0, -1, {-3, 2, 7, -4, 1, 6}, -1, 0, -21, -518},
    {{3, "Q4_1", 32, 20},     0, 2,  {15.5f, 4.5f, 9.5f, 14.5f, 3.5f, 8.5f}, 12.5f, 12.5f, 261, 4247},
    {{6, "Q5_0", 32, 22},     0, -1, {9, -2, 3, -8, 13, -14}, 0, 1, 15, 112},
    {{7, "Q5_1", 32, 24},     0, 2,  {19.5f, 24.5f, 29.5f, 18.5f, 23.5f, 12.5f}, 5.5f, 5.5f, 521, 8165},
    {{8, "Q8_0", 32, 34},     0, -1, {85, 122, -97, -60, -23, 14}, -54, -48, -176, -8080},
    {{10, "Q2_K", 256, 84},  80, 82, {33, 0, 11, 22, 33, 0}, -1.5f, 4.5f, 2059, 243130},
    {{11, "Q3_K", 256, 110}, 108, -1, {81, -108, 27, -54, 81, -108}, 128, 42, 958, 177145},
    {{12, "Q4_K", 256, 144},  0, 2,  {315.5f, -25.5f, 129.5f, 284.5f, 439.5f, 98.5f}, -25.5f, 48.5f, 54440, 7572840},
    {{13, "Q5_K", 256, 176},  0, 2,  {811.5f, -25.5f, 625.5f, 284.5f, 935.5f, 98.5f}, -25.5f, 108.5f, 116216, 16027448},
    {{14, "Q6_K", 256, 210}, 208, -1, {-1431, 1696, 583, -530, -1643, 1484}, 512, -60, 4612, 784420},
    {{20, "IQ4_NL", 32, 18},  0, -1, {-35, 25, 113, -49, 13, 89}, -10, 1, -257, -6919},
    {{23, "IQ4_XS", 256, 136}, 0, -1, {65, -1, -69, 83, 10, -53}, 35, -16, -11005, -2091134},
    {{39, "MXFP4", 32, 17},  -1, -1, {0, 12, -4, -24, 8, -2}, 12, 12, 50, 1276},
    {{40, "NVFP4", 64, 36},  -1, -1, {-6, 2, -0.5f, -4, 1.5f, 0}, -4, 0.0048828125f, -5.50878906, -217.614258},
    {{42, "Q2_0", 64, 18},    0, -1, {0, 0, 0, 0, 1, 1}, 1, 1, 30, 813},
};
/* clang-format on */

enum { N = sizeof vectors / sizeof vectors[0] };

static void make_block(const vector *v, uint8_t *block)
{
    static const uint8_t one[] = {0, 0x3c}, half[] = {0, 0x38}, nvfp4[] = {0x38, 0x40, 0x31, 0x05};

    for (int i = 0; i < v->type.bytes; i++)
        block[i] = (uint8_t)(37 * i + 11);
    if (v->d >= 0)
        memcpy(block + v->d, one, 2);
    if (v->m >= 0)
        memcpy(block + v->m, half, 2);
    if (v->type.id == 39)
        block[0] = 129;
    if (v->type.id == 40)
        memcpy(block, nvfp4, 4);
}

/* n blocks through the form that they are stored in, and back to numbers. */
static void values(const vector *v, swl_dtype sdtype, const uint8_t *blocks, int n, float *y)
{
    const swl_gguf_form *f = swl_gguf_form_get(&v->type);
    uint8_t data[4][4096];
    swl_matrix m;

    assert_non_null(f);
    assert_int_equal(f->id, v->type.id);
    for (int p = 0; p < 3; p++)
        assert_true(swl_gguf_convert(f, &v->type, f->sdtype == SWL_DT_U8 ? SWL_DT_U8 : sdtype, p, blocks, n, data[p]) ||
                    swl_wtype_get(f->type)->book);
    m = (swl_matrix){.type = f->type, .sdtype = f->sdtype == SWL_DT_U8 ? SWL_DT_U8 : sdtype, .rows = 1};
    m.cols = n * v->type.block;
    m.group = f->group;
    m.data = data[0];
    m.scales = data[1];
    m.biases = data[2];
    if (swl_wtype_get(f->type)->book)
        m.sdtype = swl_codebook_sdtype(f->type, m.sdtype);
    swl_matrix_row_f32(&m, 0, y);
}

static void blocks_have_the_published_values(void **state)
{
    (void)state;
    for (int k = 0; k < N; k++) {
        const vector *v = &vectors[k];
        uint8_t block[512];
        float y[256];
        double sum = 0, wsum = 0;

        make_block(v, block);
        values(v, SWL_DT_F16, block, 1, y);
        for (int i = 0; i < v->type.block; i++) {
            sum += (double)y[i];
            wsum += (i + 1) * (double)y[i];
        }
        if (fabs(sum - v->sum) > 1e-6 * fabs(v->sum))
            print_error("%s: sum %.9g, expected %.9g\n", v->type.name, sum, v->sum);
        for (int i = 0; i < 6; i++)
            assert_true(y[i] == v->first[i]);
        assert_true(y[17] == v->y17 && y[v->type.block - 1] == v->last);
        assert_true(fabs(sum - v->sum) <= 1e-8 * fabs(v->sum) && fabs(wsum - v->wsum) <= 1e-8 * fabs(v->wsum));
    }
}

/* Float16 scales are within 2^-11 of the products that float32 scales hold: a bound for each term of the value. */
static void rounding_of_scales_is_bounded(void **state)
{
    uint32_t x = 12345;

    (void)state;
    for (int k = 0; k < N; k++) {
        const vector *v = &vectors[k];
        uint8_t blocks[4 * 512];
        float exact[1024], rounded[1024], scale[64], bias[64];
        uint8_t codes[256];

        for (int i = 0; i < 4 * v->type.bytes; i++)
            blocks[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
        for (int b = 0; b < 4; b++) {
            if (v->d >= 0)
                memcpy(blocks + b * v->type.bytes + v->d, (uint8_t[]){(uint8_t)(91 * b), 0x1d}, 2);
            if (v->m >= 0)
                memcpy(blocks + b * v->type.bytes + v->m, (uint8_t[]){(uint8_t)(53 * b), 0x99}, 2);
        }
        if (v->type.id == 39)
            for (int b = 0; b < 4; b++)
                blocks[17 * b] = (uint8_t)(120 + b);
        values(v, SWL_DT_F32, blocks, 4, exact);
        values(v, SWL_DT_F16, blocks, 4, rounded);
        for (int b = 0; b < 4; b++) {
            memset(bias, 0, sizeof bias);
            swl_gguf_form_get(&v->type)->split(blocks + b * v->type.bytes, codes, scale, bias);
            for (int i = 0; i < v->type.block; i++) {
                const swl_gguf_form *f = swl_gguf_form_get(&v->type);
                int g = i / f->group, at = b * v->type.block + i;
                float most = swl_wtype_get(f->type)->book ? 127.0f : (float)codes[i];
                float bound = (fabsf(scale[g]) * most + fabsf(bias[g])) / 2048;

                if (!f->product)
                    assert_true(rounded[at] == exact[at]);
                else
                    assert_true(fabsf(rounded[at] - exact[at]) <= bound);
            }
        }
    }
}

static void types_without_a_form_have_none(void **state)
{
    static const swl_gguf_type none[] = {{0, "F32", 1, 4}, {19, "IQ1_S", 256, 50}, {41, "Q1_0", 128, 18}};

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_null(swl_gguf_form_get(&none[i]));
    assert_null(swl_gguf_form_get(NULL));
    assert_int_equal(swl_gguf_plain(&none[0]), SWL_DT_F32);
    assert_int_equal(swl_gguf_plain(&none[1]), SWL_DT_NONE);
}

/* 60000 times 63 is not a float16. */
static void scales_that_do_not_fit_are_reported(void **state)
{
    swl_gguf_type type = {12, "Q4_K", 256, 144};
    uint8_t block[144], out[64];

    (void)state;
    memset(block, 0xff, sizeof block);
    memcpy(block, (uint8_t[]){0x53, 0x7b, 0, 0}, 4);
    assert_false(swl_gguf_convert(swl_gguf_form_get(&type), &type, SWL_DT_F16, 1, block, 1, out));
    assert_true(swl_gguf_convert(swl_gguf_form_get(&type), &type, SWL_DT_F32, 1, block, 1, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_published_values),
        cmocka_unit_test(rounding_of_scales_is_bounded),
        cmocka_unit_test(types_without_a_form_have_none),
        cmocka_unit_test(scales_that_do_not_fit_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
