/* The piecewise JSON reader: strings and numbers against jansson, malformed input, ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "text/json_reader.h"

static swl_error err;

static swl_json_reader reader(char *buffer, const char *text)
{
    return (swl_json_reader){strcpy(buffer, text), strlen(text), 0, "t.json", &err};
}

/* Both refuse, or both give the same bytes. */
static void compare_string(const char *text, size_t n)
{
    char buffer[128];
    swl_json_reader r = {memcpy(buffer, text, n), n, 0, "t.json", &err};
    json_t *want = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, NULL);
    const char *s;
    size_t n_s;
    swl_status st = swl_json_string(&r, &s, &n_s);

    if (!json_is_string(want)) {
        assert_int_equal(st, SWL_E_CORRUPT);
        assert_in_range(err.offset, 0, n);
    } else {
        assert_int_equal(st, SWL_OK);
        assert_int_equal(n_s, json_string_length(want));
        assert_memory_equal(s, json_string_value(want), n_s);
        assert_int_equal(s[n_s], 0);
    }
    json_decref(want);
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
        compare_string(texts[i], strlen(texts[i]));
    for (int round = 0; round < 100000; round++) {
        char text[24] = "\"";
        size_t n = 1;

        for (x = x * 1664525 + 1013904223; n < 2 + x % 20 && n < sizeof text - 1; x = x * 1664525 + 1013904223)
            text[n++] = pool[(x >> 10) % (sizeof pool - 1)];
        text[n++] = '"';
        compare_string(text, n);
    }
}

static void reads_whole_numbers_only(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
        bool ok;
    } cases[] = {
        {"0", 0, true},
        {"7,", 7, true},
        {" 248076}", 248076, true},
        {"-5", -5, true},
        {"999999999999999999", 999999999999999999, true},
        {"", 0, false},
        {"-", 0, false},
        {"01", 0, false},
        {"1.0", 0, false},
        {"1e3", 0, false},
        {"+1", 0, false},
        {"\"1\"", 0, false},
        {"null", 0, false},
        {"9999999999999999999", 0, false},
    };
    char buffer[64];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        swl_json_reader r = reader(buffer, cases[i].text);
        int64_t v = 0;

        assert_int_equal(swl_json_integer(&r, &v), cases[i].ok ? SWL_OK : SWL_E_CORRUPT);
        assert_true(!cases[i].ok || v == cases[i].value);
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
        {"[]x", "[]"},
        {"", NULL},
        {"]", NULL},
        {"[1", NULL},
        {"{\"a", NULL},
        {"[\"\\", NULL},
    };
    char buffer[64];
    size_t start;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        swl_json_reader r = reader(buffer, cases[i].text);
        swl_status st = swl_json_skip_value(&r, &start);

        assert_int_equal(st, cases[i].range ? SWL_OK : SWL_E_CORRUPT);
        if (!st) {
            assert_int_equal(r.at - start, strlen(cases[i].range));
            assert_memory_equal(buffer + start, cases[i].range, r.at - start);
        }
    }
}

static void deep_nesting_needs_no_stack(void **state)
{
    enum { N = 1 << 20 };
    char *text = malloc(N);
    swl_json_reader r = {text, N, 0, "t.json", &err};
    size_t start;

    (void)state;
    memset(text, '[', N);
    assert_int_equal(swl_json_skip_value(&r, &start), SWL_E_CORRUPT);
    memset(text + N / 2, ']', N / 2);
    r.at = 0;
    assert_int_equal(swl_json_skip_value(&r, &start), SWL_OK);
    assert_int_equal(r.at, N);
    free(text);
}

static void walks_members(void **state)
{
    char buffer[64];
    swl_json_reader r = reader(buffer, " [ 1 , 2 ] ");
    bool more;
    int64_t v;

    (void)state;
    assert_int_equal(swl_json_expect(&r, '['), SWL_OK);
    assert_int_equal(swl_json_more(&r, ']', true, &more), SWL_OK);
    assert_true(more);
    assert_int_equal(swl_json_integer(&r, &v), SWL_OK);
    assert_int_equal(swl_json_more(&r, ']', false, &more), SWL_OK);
    assert_true(more);
    assert_int_equal(swl_json_integer(&r, &v), SWL_OK);
    assert_int_equal(v, 2);
    assert_int_equal(swl_json_more(&r, ']', false, &more), SWL_OK);
    assert_false(more);
    assert_int_equal(swl_json_peek(&r), 0);
    r = reader(buffer, "1 2");
    assert_int_equal(swl_json_integer(&r, &v), SWL_OK);
    assert_int_equal(swl_json_more(&r, ']', false, &more), SWL_E_CORRUPT);
    assert_string_equal(err.file, "t.json");
    assert_int_equal(err.offset, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_strings_as_jansson_does),
        cmocka_unit_test(reads_whole_numbers_only),
        cmocka_unit_test(passes_values_by),
        cmocka_unit_test(deep_nesting_needs_no_stack),
        cmocka_unit_test(walks_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
