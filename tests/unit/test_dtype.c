/* Element types: names, sizes, and 16-bit floats against their definition in powers of two. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "format/dtype.h"

/* The value of a half by its definition (IEEE 754-2008, 3.4): exact in float32. */
static float half_value(int h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float v = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                             : ldexpf((float)fraction, -24);

    return h & 0x8000 ? -v : v;
}

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static void names_and_sizes(void **state)
{
    static const struct {
        const char *name;
        int32_t size;
    } want[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
                {"U8", 1},  {"I8", 1},  {"I32", 4},  {"U32", 4},     {"I64", 8},     {"BOOL", 1}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof want / sizeof *want; i++) {
        swl_dtype t = swl_dtype_parse(want[i].name);

        assert_int_not_equal(t, SWL_DT_NONE);
        assert_string_equal(swl_dtype_name(t), want[i].name);
        assert_int_equal(swl_dtype_size(t), want[i].size);
    }
    assert_int_equal(i, SWL_DT_COUNT - 1);
    assert_int_equal(swl_dtype_parse("F64"), SWL_DT_NONE);
    assert_int_equal(swl_dtype_parse("bf16"), SWL_DT_NONE);
    assert_int_equal(swl_dtype_parse(""), SWL_DT_NONE);
    assert_int_equal(swl_dtype_parse("none"), SWL_DT_NONE);
}

static void every_half_widens_exactly(void **state)
{
    int h;

    (void)state;
    for (h = 0; h < 0x10000; h++) {
        float got = swl_f16_to_f32((uint16_t)h), want = half_value(h);

        if (isnan(want))
            assert_true(isnan(got));
        else
            assert_int_equal(bits_of(got), bits_of(want));
    }
}

/* At every midpoint between neighbours, just below it, just above it, and at the values themselves. */
static void rounding_to_half_is_to_nearest_even(void **state)
{
    int h, sign;

    (void)state;
    for (h = 0; h < 0x7c00; h++)
        for (sign = 0; sign <= 0x8000; sign += 0x8000) {
            float a = half_value(h), b = h == 0x7bff ? 65536.0f : half_value(h + 1), mid = (a + b) / 2;
            float s = sign ? -1 : 1;

            assert_int_equal(swl_f32_to_f16(s * a), sign | h);
            assert_int_equal(swl_f32_to_f16(s * nextafterf(mid, 0)), sign | h);
            assert_int_equal(swl_f32_to_f16(s * mid), sign | (h & 1 ? h + 1 : h));
            assert_int_equal(swl_f32_to_f16(s * nextafterf(mid, INFINITY)), sign | (h + 1));
        }
    assert_int_equal(swl_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(swl_f32_to_f16(-3e38f), 0xfc00);
    assert_int_equal(swl_f32_to_f16(1e-45f), 0);
    assert_true(isnan(swl_f16_to_f32(swl_f32_to_f16(NAN))));
}

static void rounding_to_bf16_is_to_nearest_even(void **state)
{
    uint32_t h;

    (void)state;
    for (h = 0; h < 0x10000; h++) {
        float v = float_of(h << 16);

        if (isnan(v)) {
            assert_true(isnan(swl_bf16_to_f32((uint16_t)h)));
            assert_true(isnan(swl_bf16_to_f32(swl_f32_to_bf16(v))));
            continue;
        }
        assert_int_equal(bits_of(swl_bf16_to_f32((uint16_t)h)), h << 16);
        assert_int_equal(swl_f32_to_bf16(v), h);
        if (isinf(v))
            continue;
        assert_int_equal(swl_f32_to_bf16(float_of(h << 16 | 0x7fff)), h);
        assert_int_equal(swl_f32_to_bf16(float_of(h << 16 | 0x8000)), h & 1 ? h + 1 : h);
        assert_int_equal(swl_f32_to_bf16(float_of(h << 16 | 0x8001)), h + 1);
    }
    assert_true(isnan(swl_bf16_to_f32(swl_f32_to_bf16(float_of(0x7f800001))))); /* its payload is cut off */
    assert_true(isnan(swl_bf16_to_f32(swl_f32_to_bf16(float_of(0xffffffff)))));
}

static void arrays_may_be_unaligned(void **state)
{
    static const float values[] = {1.5f, -2.0f, 0.0f, 65504.0f, -0.0009765625f};
    static const uint16_t f16[] = {0x3e00, 0xc000, 0x0000, 0x7bff, 0x9400};
    static const uint16_t bf16[] = {0x3fc0, 0xc000, 0x0000, 0x4780, 0xba80};
    uint8_t buffer[1 + sizeof values];
    float got[6] = {0, 0, 0, 0, 0, 9};

    (void)state;
    memcpy(buffer + 1, values, sizeof values);
    swl_dtype_to_f32(SWL_DT_F32, buffer + 1, got, 5);
    assert_memory_equal(got, values, sizeof values);
    memcpy(buffer + 1, f16, sizeof f16);
    swl_dtype_to_f32(SWL_DT_F16, buffer + 1, got, 5);
    assert_memory_equal(got, values, sizeof values);
    memcpy(buffer + 1, bf16, sizeof bf16);
    swl_dtype_to_f32(SWL_DT_BF16, buffer + 1, got, 5);
    assert_true(got[0] == 1.5f && got[1] == -2.0f && got[2] == 0 && got[3] == 65536.0f && got[4] == values[4]);
    assert_true(got[5] == 9);
    swl_dtype_to_f32(SWL_DT_F32, NULL, got, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(every_half_widens_exactly),
        cmocka_unit_test(rounding_to_half_is_to_nearest_even),
        cmocka_unit_test(rounding_to_bf16_is_to_nearest_even),
        cmocka_unit_test(arrays_may_be_unaligned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
