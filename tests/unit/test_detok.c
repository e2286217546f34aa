/* The streaming detokeniser: whole characters only, U+FFFD for each maximal ill-formed part, however bytes are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include <swiftlet/swiftlet.h>

#define R "\xEF\xBF\xBD"

/* Feeds `in` in steps of n bytes; the result is NUL-terminated in `out`. */
static void run(const char *in, size_t n_in, size_t step, char *out)
{
    swl_detok d;
    size_t n = 0;

    swl_detok_init(&d);
    for (size_t i = 0; i < n_in; i += step)
        n += swl_detok_push(&d, in + i, n_in - i < step ? n_in - i : step, out + n);
    n += swl_detok_flush(&d, out + n);
    out[n] = 0;
}

static void expect(const char *in, const char *want)
{
    char out[256];

    for (size_t step = 1; step <= strlen(in); step++) {
        run(in, strlen(in), step, out);
        assert_string_equal(out, want);
    }
}

static void holds_half_a_character_until_it_is_whole(void **state)
{
    swl_detok d;
    char out[64];

    (void)state;
    swl_detok_init(&d);
    assert_int_equal(swl_detok_push(&d, " \xF0\x9F", 3, out), 1);
    assert_int_equal(out[0], ' ');
    assert_int_equal(swl_detok_push(&d, "\xA6", 1, out), 0);
    assert_int_equal(swl_detok_push(&d, "\x99x", 2, out), 5);
    assert_memory_equal(out, "\xF0\x9F\xA6\x99x", 5);
    assert_int_equal(swl_detok_flush(&d, out), 0);
}

static void flushes_an_unfinished_character_as_one_replacement(void **state)
{
    swl_detok d;
    char out[64];

    (void)state;
    swl_detok_init(&d);
    assert_int_equal(swl_detok_push(&d, "\xF0\x9F\xA6", 3, out), 0);
    assert_int_equal(swl_detok_flush(&d, out), 3);
    assert_memory_equal(out, R, 3);
    assert_int_equal(swl_detok_flush(&d, out), 0);
}

/* The Unicode Standard, tables 3-8 to 3-11. */
static void replaces_maximal_parts_as_the_standard_does(void **state)
{
    (void)state;
    expect("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a" R R R "b" R "c" R R "d");
    expect("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A");
    expect("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A");
    expect("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B");
    expect("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A");
}

static void restricts_the_second_byte_of_four_leads(void **state)
{
    (void)state;
    expect("\xE0\xA0\x80", "\xE0\xA0\x80");
    expect("\xE0\x9F\x80", R R R);
    expect("\xED\x9F\xBF", "\xED\x9F\xBF");
    expect("\xED\xA0\x80", R R R);
    expect("\xF0\x90\x80\x80", "\xF0\x90\x80\x80");
    expect("\xF0\x8F\x80\x80", R R R R);
    expect("\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF");
    expect("\xF4\x90\x80\x80", R R R R);
    expect("\xF5\x80", R R);
}

static void bad_byte_after_a_tail_starts_a_new_character(void **state)
{
    (void)state;
    expect("\xE2\x82\xE2\x82\xAC", R "\xE2\x82\xAC");
    expect("\xF0\x9F\xC3\xA9", R "\xC3\xA9");
    expect("\xC3\xC3\xC3", R R R);
    expect("\xC3\xFF", R R);
}

static void result_does_not_depend_on_the_cuts(void **state)
{
    enum { N = 64 };
    char in[N], whole[3 * N + 16], cut[3 * N + 16];
    uint32_t x = 1;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        for (int i = 0; i < N; i++) {
            static const uint8_t likely[] = {0x41, 0x80, 0xBF, 0xA0, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF1, 0xF4, 0x90};

            x = x * 1664525 + 1013904223;
            in[i] = (char)(x >> 31 ? likely[(x >> 16) % sizeof likely] : x >> 23);
        }
        run(in, N, N, whole);
        for (size_t step = 1; step < 6; step++) {
            run(in, N, step, cut);
            assert_string_equal(cut, whole);
        }
    }
}

static void a_nul_byte_is_a_character(void **state)
{
    swl_detok d;
    char out[16];

    (void)state;
    swl_detok_init(&d);
    assert_int_equal(swl_detok_push(&d, "a\0b", 3, out), 3);
    assert_memory_equal(out, "a\0b", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_half_a_character_until_it_is_whole),
        cmocka_unit_test(flushes_an_unfinished_character_as_one_replacement),
        cmocka_unit_test(replaces_maximal_parts_as_the_standard_does),
        cmocka_unit_test(restricts_the_second_byte_of_four_leads),
        cmocka_unit_test(bad_byte_after_a_tail_starts_a_new_character),
        cmocka_unit_test(result_does_not_depend_on_the_cuts),
        cmocka_unit_test(a_nul_byte_is_a_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
