/* The JSON scanner: strings and numbers against jansson, malformed input, values passed by, what errors name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/json_scan.h"

static swl_error err;

static swl_scan over(char *buffer, const char *text, size_t n)
{
    memcpy(buffer, text, n);
    return (swl_scan){.begin = buffer, .p = buffer, .end = buffer + n, .path = "t.json", .err = &err};
}

/* Both refuse, or both give the same bytes. */
static void compare_string(const char *text, size_t n, bool nul)
{
    char buffer[128], *got;
    swl_scan s = over(buffer, text, n);
    size_t flags = JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | (nul ? JSON_ALLOW_NUL : 0), n_got;
    json_t *want = json_loadb(text, n, flags, NULL);
    swl_status st = nul ? swl_scan_text(&s, &got, &n_got) : swl_scan_string(&s, &got);

    if (!json_is_string(want)) {
        assert_int_equal(st, SWL_E_CORRUPT);
        assert_in_range(err.offset, 0, n);
    } else {
        assert_int_equal(st, SWL_OK);
        n_got = nul ? n_got : strlen(got);
        assert_int_equal(n_got, json_string_length(want));
        assert_memory_equal(got, json_string_value(want), n_got);
        assert_int_equal(got[n_got], 0);
    }
    json_decref(want);
}

static void compare_strings(const char *text, size_t n)
{
    compare_string(text, n, true);
    compare_string(text, n, false);
}

static void decodes_strings_as_jansson_does(void **state)
{
    static const char *const texts[] = {
        "\"\"",
        "\"abc\"",
        " \t\r\n\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\te\"",
        "\"\\u0041\\u00e9\\u20AC\\u0000x\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83d\\u0041\"",
        "\"\\ud83dx\\ude00\"",
        "\"\\u12g4\"",
        "\"\\u12\"",
        "\"\\x\"",
        "\"\\\"",
        "\"abc",
        "\"a\nb\"",
        "\"\x1f\"",
        "\"\x7f\"",
        "\"\xC3\xA9\"",
        "\"\xC3\"",
        "\"\xED\xA0\x80\"",
        "\"\xFF\"",
        "\"\xF0\x9F\x98\x80\"",
        "abc",
        "",
        "\"",
        "'a'",
        "\"\\",
    };
    static const char pool[] = "\"\"\\\\uuuu00dD8cbnt/\xC3\xA9\xE2 e";
    uint32_t x = 3;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        compare_strings(texts[i], strlen(texts[i]));
    for (int round = 0; round < 100000; round++) {
        char text[24] = "\"";
        size_t n = 1;

        for (x = x * 1664525 + 1013904223; n < 2 + x % 20 && n < sizeof text - 1; x = x * 1664525 + 1013904223)
            text[n++] = pool[(x >> 10) % (sizeof pool - 1)];
        text[n++] = '"';
        compare_strings(text, n);
    }
}

static void reads_whole_numbers_only(void **state)
{
    static const struct {
        const char *text;
        int64_t value; /* -1: refused */
    } cases[] = {
        {"0", 0},
        {"7,", 7},
        {" 248076}", 248076},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", -1},
        {"99999999999999999999", -1},
        {"-5", -1},
        {"", -1},
        {"-", -1},
        {"01", -1},
        {"1.0", -1},
        {"1e3", -1},
        {"+1", -1},
        {"\"1\"", -1},
        {"null", -1},
    };
    char buffer[64];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        swl_scan s = over(buffer, cases[i].text, strlen(cases[i].text));
        int64_t v = 0;

        assert_int_equal(swl_scan_uint(&s, &v), cases[i].value >= 0 ? SWL_OK : SWL_E_CORRUPT);
        assert_true(cases[i].value < 0 || v == cases[i].value);
    }
}

static void passes_values_by(void **state)
{
    static const struct {
        const char *text, *range; /* NULL: an error */
    } cases[] = {
        {" {\"a\": [1, {\"b\": \"]}\"}]} , 5", "{\"a\": [1, {\"b\": \"]}\"}]}"},
        {"\"a\\\"b\" ]", "\"a\\\"b\""},
        {"true,", "true"},
        {"-1.5e3}", "-1.5e3"},
        {"1", "1"},
        {"[]x", "[]"},
        {"", NULL},
        {"]", NULL},
        {",1", NULL},
        {"[1", NULL},
        {"{\"a", NULL},
        {"[\"\\", NULL},
        {"\"\\\"", NULL},
    };
    char buffer[64], *first;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].text);
        swl_scan s = over(buffer, cases[i].text, n);
        swl_status st = swl_scan_pass(&s, &first);

        assert_int_equal(st, cases[i].range ? SWL_OK : SWL_E_CORRUPT);
        assert_in_range(s.p - s.begin, 0, n);
        assert_memory_equal(buffer, cases[i].text, n); /* nothing was decoded */
        if (!st) {
            assert_int_equal(s.p - first, strlen(cases[i].range));
            assert_memory_equal(first, cases[i].range, (size_t)(s.p - first));
        }
    }
}

static void a_string_passed_by_can_be_read_later(void **state)
{
    char buffer[64], *text;
    swl_scan s = over(buffer, " \"a\\\"\\u0000\" 7", 14), again = s;
    size_t n;

    (void)state;
    assert_int_equal(swl_scan_pass_string(&s, &n), SWL_OK);
    assert_int_equal(n, 9);
    assert_int_equal(swl_scan_peek(&s), '7');
    assert_int_equal(swl_scan_text(&again, &text, &n), SWL_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "a\"\0", 4);
    assert_int_equal(swl_scan_peek(&again), '7');
    assert_int_equal(swl_scan_pass_string(&again, &n), SWL_E_CORRUPT);
}

static void passing_deep_values_needs_no_stack(void **state)
{
    enum { N = 1 << 20 };
    char *text = malloc(N), *first;
    swl_scan s = {.begin = text, .p = text, .end = text + N, .path = "t.json", .err = &err};

    (void)state;
    memset(text, '[', N);
    assert_int_equal(swl_scan_pass(&s, &first), SWL_E_CORRUPT);
    s.p = text;
    assert_int_equal(swl_scan_skip(&s), SWL_E_CORRUPT);
    assert_int_equal(s.p - text, SWL_SCAN_DEPTH_MAX);
    memset(text + N / 2, ']', N / 2);
    s.p = text;
    assert_int_equal(swl_scan_pass(&s, &first), SWL_OK);
    assert_ptr_equal(s.p, s.end);
    free(text);
}

static void walks_members_and_elements(void **state)
{
    static const char text[] = " { \"a\" : [ 1 , 2 ] , \"\" : [ ] } ";
    char buffer[64], *key;
    swl_scan s = over(buffer, text, sizeof text - 1);
    bool more;
    int64_t v, sum = 0;
    uint64_t n, i;

    (void)state;
    assert_int_equal(swl_scan_begin(&s, '{'), SWL_OK);
    for (n = 0; !swl_scan_member(&s, n, &key) && key; n++) {
        assert_string_equal(key, n ? "" : "a");
        assert_int_equal(swl_scan_begin(&s, '['), SWL_OK);
        for (i = 0; !swl_scan_element(&s, i, &more) && more; i++) {
            assert_int_equal(swl_scan_uint(&s, &v), SWL_OK);
            sum += v;
        }
        assert_int_equal(i, n ? 0 : 2);
    }
    assert_int_equal(n, 2);
    assert_int_equal(sum, 3);
    assert_int_equal(swl_scan_finish(&s), SWL_OK);
}

static void errors_name_file_names_and_offset(void **state)
{
    char buffer[64];
    swl_scan s = over(buffer, "1 2", 3);
    bool more;
    int64_t v;

    (void)state;
    s.offset = 8;
    s.in[0] = "model";
    s.in[1] = "vocab";
    assert_int_equal(swl_scan_uint(&s, &v), SWL_OK);
    assert_int_equal(swl_scan_element(&s, 1, &more), SWL_E_CORRUPT);
    assert_string_equal(err.file, "t.json");
    assert_int_equal(err.offset, 10);
    assert_string_equal(err.message, "t.json: byte 10, in \"model\", \"vocab\": expected ',' or ']'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_strings_as_jansson_does),
        cmocka_unit_test(reads_whole_numbers_only),
        cmocka_unit_test(passes_values_by),
        cmocka_unit_test(a_string_passed_by_can_be_read_later),
        cmocka_unit_test(passing_deep_values_needs_no_stack),
        cmocka_unit_test(walks_members_and_elements),
        cmocka_unit_test(errors_name_file_names_and_offset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
