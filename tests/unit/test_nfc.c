/* Normalisation: the table of safe ranges against utf8proc's data, the result against utf8proc's own NFC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/nfc.h"
#include "text/utf8.h"

#define CODES 0x110000

static void expect(const char *text, const char *want)
{
    uint8_t *out;
    size_t n;

    assert_int_equal(swl_nfc(&out, &n, (const uint8_t *)text, strlen(text), NULL), SWL_OK);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(out, want, n);
    swl_free(out);
    if (strcmp(text, want))
        assert_false(swl_nfc_is_sure((const uint8_t *)text, strlen(text)));
}

static void composes_and_orders(void **state)
{
    (void)state;
    expect("cafe\u0301", "caf\u00e9");
    expect("\u212b", "\u00c5");
    expect("\u0958", "\u0915\u093c");
    expect("\u1112\u1161\u11ab", "\ud55c");
    expect("\ud558\u11ab", "\ud55c");
    expect("a\u0323\u0307", "\u1ea1\u0307");
    expect("a\u0307\u0323", "\u1ea1\u0307");
    expect("\ufb01", "\ufb01");
    expect("\u0344", "\u0308\u0301");
    expect("\u2126\u037e", "\u03a9;");
    expect("\u304b\u3099", "\u304c");
    expect("", "");
    expect("\u0301", "\u0301");
}

static void keeps_nul_bytes(void **state)
{
    uint8_t *out;
    size_t n;

    (void)state;
    assert_int_equal(swl_nfc(&out, &n, (const uint8_t *)"e\0\xCC\x81", 4, NULL), SWL_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(out, "e\0\xCC\x81", 4);
    swl_free(out);
}

/* A code point is safe when it is no mark, does not decompose by NFC, and is never the second part of a composition.
 * What can be second: every code point but the first in some canonical decomposition, and the vowels and finals of
 * hangul. */
static void sure_ranges_are_safe(void **state)
{
    bool *second = swl_calloc(CODES, 1);
    int32_t parts[16];
    int boundary;

    (void)state;
    for (int32_t c = 0; c < CODES; c++) {
        utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 16, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);

        for (utf8proc_ssize_t i = 1; i < n; i++)
            second[parts[i]] = true;
    }
    for (int32_t c = 0x1161; c < 0x11C3; c++)
        second[c] = true;
    for (int32_t c = 0; c < CODES; c++) {
        uint8_t text[4], *out;
        int32_t n;
        size_t n_out;

        if (c >= 0xD800 && c < 0xE000)
            continue;
        n = swl_utf8_put(c, text);
        if (!swl_nfc_is_sure(text, (size_t)n))
            continue;
        assert_int_equal(utf8proc_get_property(c)->combining_class, 0);
        assert_false(second[c]);
        assert_int_equal(swl_nfc(&out, &n_out, text, (size_t)n, NULL), SWL_OK);
        assert_int_equal(n_out, n);
        assert_memory_equal(out, text, n_out);
        swl_free(out);
    }
    swl_free(second);
}

static uint32_t seed = 1;

static uint32_t noise(void)
{
    return (seed = seed * 1664525 + 1013904223) >> 8;
}

static int32_t random_code(void)
{
    static const int32_t likely[] = {0x300, 0x301, 0x323, 0x327,  0x308,  'a',    'e',    'o',   0x1100, 0x1161, 0x11A8,
                                     0x345, 0x93C, 0x915, 0x3099, 0x304B, 0xAC00, 0x212B, 0x5B0, 0x5BC,  0x64B,  ' '};
    int32_t c;

    if (noise() % 3)
        return likely[noise() % (sizeof likely / sizeof likely[0])];
    do
        c = (int32_t)(noise() % (noise() % 2 ? 0x3100 : CODES));
    while (c >= 0xD800 && c < 0xE000);
    return c;
}

static void agrees_with_utf8proc(void **state)
{
    uint8_t text[400], *out;
    size_t n_out;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t n = 0;
        utf8proc_uint8_t *want;
        utf8proc_ssize_t n_want;

        /* Now and then a run of marks long enough for the counting sort. */
        for (uint32_t k = noise() % (round % 50 ? 12 : 100); k > 0; k--)
            n += (size_t)swl_utf8_put(round % 50 ? random_code() : 0x300 + (int32_t)(noise() % 0x70), text + n);
        n_want = utf8proc_map(text, (utf8proc_ssize_t)n, &want, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        assert_true(n_want >= 0);
        assert_int_equal(swl_nfc(&out, &n_out, text, n, NULL), SWL_OK);
        assert_int_equal(n_out, n_want);
        assert_memory_equal(out, want, n_out);
        if (swl_nfc_is_sure(text, n))
            assert_true(n == n_out && !memcmp(text, out, n));
        swl_free(out);
        free(want);
    }
}

/* Half a million marks in the worst order, which sorting by neighbours would swap 6e10 times. */
static void a_long_run_of_marks_takes_linear_time(void **state)
{
    enum { N = 500000 };
    uint8_t *text = swl_calloc(N, 2), *out;
    size_t n_out;

    (void)state;
    for (size_t i = 0; i < N; i++)
        memcpy(text + 2 * i, i < N / 2 ? "\u0301" : "\u0323", 2);
    assert_int_equal(swl_nfc(&out, &n_out, text, 2 * N, NULL), SWL_OK);
    assert_int_equal(n_out, 2 * N);
    assert_memory_equal(out, "\u0323", 2);
    assert_memory_equal(out + N - 2, "\u0323\u0301", 4);
    swl_free(out);
    swl_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composes_and_orders),
        cmocka_unit_test(keeps_nul_bytes),
        cmocka_unit_test(sure_ranges_are_safe),
        cmocka_unit_test(agrees_with_utf8proc),
        cmocka_unit_test(a_long_run_of_marks_takes_linear_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
