/* Pieces: published split vectors for both patterns, and a scanner written by hand from the same rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/pretokenize.h"
#include "text/utf8.h"

static const char *const published[2] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

static swl_splitter *splitters[2];

static int open_splitters(void **state)
{
    (void)state;
    return swl_splitter_create(&splitters[0], published[0], "t", NULL) ||
           swl_splitter_create(&splitters[1], published[1], "t", NULL);
}

static int close_splitters(void **state)
{
    (void)state;
    swl_splitter_free(splitters[0]);
    swl_splitter_free(splitters[1]);
    return 0;
}

/* The pieces of text joined by '|'. */
static void expect(int which, const char *text, const char *want)
{
    char got[256];
    size_t n = strlen(text), n_got = 0, n_piece;
    swl_split w;

    assert_int_equal(swl_split_init(&w, splitters[which], NULL), SWL_OK);
    for (size_t at = 0; at < n; at += n_piece) {
        assert_int_equal(swl_split_next(&w, (const uint8_t *)text, n, at, &n_piece, NULL), SWL_OK);
        assert_true(n_piece > 0);
        if (at)
            got[n_got++] = '|';
        memcpy(got + n_got, text + at, n_piece);
        n_got += n_piece;
    }
    swl_split_deinit(&w);
    got[n_got] = 0;
    assert_string_equal(got, want);
}

static void expect_both(const char *text, const char *want)
{
    expect(0, text, want);
    expect(1, text, want);
}

static void marks_stay_with_letters_in_the_newer_pattern_only(void **state)
{
    (void)state;
    expect(0, "cafe\u0301 x", "cafe|\u0301| x");
    expect(1, "cafe\u0301 x", "cafe\u0301| x");
    expect(0, "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939|\u093f\u0928|\u094d\u0926|\u0940");
    expect(1, "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928\u094d\u0926\u0940");
    expect_both("1\u0301", "1|\u0301");
    expect_both("!\u0301", "!\u0301");
    expect(0, "x \u0301y", "x| \u0301|y");
    expect(1, "x \u0301y", "x| \u0301y");
    expect_both("'ll\u0301", "'ll|\u0301");
}

static void english_contractions_are_pieces_in_any_case(void **state)
{
    (void)state;
    expect_both("I'm don'T", "I|'m| don|'T");
    expect_both("don\u2019t", "don|\u2019t");
    expect_both("x'\u017f", "x|'\u017f");
    expect_both("we'll've'RE'd", "we|'ll|'ve|'RE|'d");
    /* U+212A is a k, not a letter of any contraction; no other letter folds to one. */
    expect_both("'\u212a", "'\u212a");
}

static void white_space_leaves_its_last_space_to_the_next_piece(void **state)
{
    (void)state;
    expect_both("  a", " | a");
    expect_both("a  ", "a|  ");
    expect_both("a \n b", "a| \n| b");
    expect_both(" $$\r\n\r\nz", " $$\r\n\r\n|z");
    expect_both("\u3000\u3000x", "\u3000|\u3000x");
    expect_both(" \n \n  x", " \n \n| | x");
    expect_both("A1B22", "A|1|B|2|2");
}

/* Each in turn between spaces and digits: white space makes one piece with the spaces, the rest does not. */
static void white_space_is_unicodes_and_nothing_else(void **state)
{
    static const char *const yes[] = {"\t",     "\v",     "\f",     " ",      "\xC2\x85", "\u00a0", "\u1680", "\u2000",
                                      "\u2005", "\u200a", "\u2028", "\u2029", "\u202f",   "\u205f", "\u3000"};
    static const char *const no[] = {"\x1c", "\x1d", "\x1e", "\x1f", "\u180e", "\u200b", "\ufeff"};
    char text[32], want[32];

    (void)state;
    expect_both("a\xC2\x85"
                "b",
                "a|\xC2\x85"
                "b");
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        strcat(strcat(strcpy(text, " "), yes[i]), " 1");
        strcat(strcat(strcpy(want, " "), yes[i]), "| |1");
        expect_both(text, want);
    }
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        strcat(strcat(strcpy(text, " "), no[i]), " 1");
        strcat(strcat(strcpy(want, " "), no[i]), "| |1");
        expect_both(text, want);
        /* Two of them end with a digit, so only white space would be split before its last. */
        strcat(strcat(strcpy(text, no[i]), no[i]), "1");
        strcat(strcat(strcpy(want, no[i]), no[i]), "|1");
        expect_both(text, want);
    }
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        strcat(strcat(strcpy(text, yes[i]), yes[i]), "1");
        strcat(strcat(strcat(strcpy(want, yes[i]), "|"), yes[i]), "|1");
        expect_both(text, want);
    }
}

/* ---- the scanner written by hand ---- */

typedef struct text {
    int32_t *codes;
    size_t n;
} text;

static bool is_letter(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);

    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_mark(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);

    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

static bool is_number(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);

    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

static bool is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_word(int which, int32_t c)
{
    return is_letter(c) || (which && is_mark(c));
}

static bool is_other(int which, int32_t c)
{
    return !is_space(c) && !is_word(which, c) && !is_number(c);
}

static int32_t lower(text t, size_t i)
{
    int32_t c = i < t.n ? t.codes[i] : 0;

    return c == 0x17F ? 's' : c >= 'A' && c <= 'Z' ? c + 32 : c;
}

static size_t scan(int which, text t, size_t i)
{
    int32_t c = t.codes[i], a = lower(t, i + 1), b = lower(t, i + 2);
    bool joins = c != '\r' && c != '\n' && !is_letter(c) && !is_number(c);
    size_t k, j;

    if (c == '\'' && (a == 's' || a == 't' || a == 'm' || a == 'd'))
        return i + 2;
    if (c == '\'' && ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')))
        return i + 3;
    j = joins && i + 1 < t.n && is_word(which, t.codes[i + 1]) ? i + 1 : i;
    for (k = j; k < t.n && is_word(which, t.codes[k]); k++)
        ;
    if (k > j)
        return k;
    if (is_number(c))
        return i + 1;
    j = i + (c == ' ');
    for (k = j; k < t.n && is_other(which, t.codes[k]); k++)
        ;
    if (k > j) {
        while (k < t.n && (t.codes[k] == '\r' || t.codes[k] == '\n'))
            k++;
        return k;
    }
    for (k = i; k < t.n && is_space(t.codes[k]); k++)
        ;
    for (j = k; j > i; j--)
        if (t.codes[j - 1] == '\r' || t.codes[j - 1] == '\n')
            return j;
    return k < t.n && k - i > 1 ? k - 1 : k;
}

static uint32_t seed = 1;

static uint32_t noise(void)
{
    return (seed = seed * 1664525 + 1013904223) >> 8;
}

/* Only blocks that have been full for long: the two libraries may know different versions of Unicode. */
static int32_t random_code(void)
{
    static const int32_t likely[] = {' ',  ' ',    '\n',   '\r',  '\t',   '\'',   's',    'S',    'l',  'L',
                                     'r',  'e',    'v',    'T',   'm',    'd',    'a',    'Z',    '1',  '9',
                                     '!',  '_',    0x301,  0x17F, 0x85,   0xA0,   0x3000, 0x180E, 0x1C, 0x93F,
                                     0xBD, 0x2167, 0x200B, 0xE9,  0x65E5, 0xFE0F, 0x200D, 0x1F600};
    static const int32_t blocks[][2] = {
        {0, 0x377},         {0x400, 0x52F},     {0x600, 0x6FF},     {0x900, 0x97F},     {0xE01, 0xE3A},
        {0x1100, 0x11FF},   {0x1E00, 0x1F15},   {0x2000, 0x2064},   {0x2150, 0x218B},   {0x2190, 0x23FA},
        {0x2C80, 0x2CF3},   {0x3001, 0x303F},   {0x3041, 0x3096},   {0x3220, 0x32FE},   {0x4E00, 0x9FBB},
        {0xA000, 0xA48C},   {0xAC00, 0xD7A3},   {0xE000, 0xFA6D},   {0xFE00, 0xFE0F},   {0xFF01, 0xFFBE},
        {0x10100, 0x10133}, {0x1D400, 0x1D454}, {0x1D7CE, 0x1D7FF}, {0x1F300, 0x1F6D0}, {0x20000, 0x2A6D6},
        {0xE0100, 0xE01EF}, {0xF0000, 0xFFFFD},
    };
    size_t i;

    if (noise() % 3)
        return likely[noise() % (sizeof likely / sizeof likely[0])];
    i = noise() % (sizeof blocks / sizeof blocks[0]);
    return blocks[i][0] + (int32_t)(noise() % (uint32_t)(blocks[i][1] - blocks[i][0] + 1));
}

static void agrees_with_a_scanner_written_by_hand(void **state)
{
    enum { N = 24 };
    int32_t codes[N];
    uint8_t bytes[4 * N];
    size_t ends[N + 1], n_piece, at, i;
    swl_split w[2];

    (void)state;
    swl_split_init(&w[0], splitters[0], NULL);
    swl_split_init(&w[1], splitters[1], NULL);
    for (int round = 0; round < 40000; round++) {
        text t = {codes, noise() % N + 1};
        int which = round & 1;

        ends[0] = 0;
        for (i = 0; i < t.n; i++) {
            codes[i] = random_code();
            ends[i + 1] = ends[i] + (size_t)swl_utf8_put(codes[i], bytes + ends[i]);
        }
        for (i = 0, at = 0; i < t.n; at += n_piece) {
            assert_int_equal(swl_split_next(&w[which], bytes, ends[t.n], at, &n_piece, NULL), SWL_OK);
            i = scan(which, t, i);
            assert_int_equal(at + n_piece, ends[i]);
        }
    }
    swl_split_deinit(&w[0]);
    swl_split_deinit(&w[1]);
}

/* One piece of a megabyte, or a megabyte of pieces: no stack, heap or time that grows faster. */
static void a_megabyte_takes_linear_time(void **state)
{
    static const char *const units[] = {"a",     "\u0301",  "!", " ", "\u3000",  "\n",
                                        "\r \n", " \u3000", "'", "1", "a\u0301", " a"};
    enum { N = 1 << 20 };
    uint8_t *bytes = swl_calloc(N, 1);
    size_t n_piece;
    swl_split w;

    (void)state;
    for (size_t i = 0; i < 2 * sizeof units / sizeof units[0]; i++) {
        const char *unit = units[i / 2];
        size_t n_unit = strlen(unit), n = N - N % n_unit;

        for (size_t at = 0; at < n; at += n_unit)
            memcpy(bytes + at, unit, n_unit);
        swl_split_init(&w, splitters[i % 2], NULL);
        for (size_t at = 0; at < n; at += n_piece)
            assert_int_equal(swl_split_next(&w, bytes, n, at, &n_piece, NULL), SWL_OK);
        swl_split_deinit(&w);
    }
    swl_free(bytes);
}

static void another_pattern_is_refused_and_shown(void **state)
{
    swl_splitter *s;
    swl_error err;

    (void)state;
    assert_int_equal(swl_splitter_create(&s, "\\p{L}+|\\p{N}{1,3}", "dir/tokenizer.json", &err), SWL_E_UNSUPPORTED);
    assert_null(s);
    assert_string_equal(err.file, "dir/tokenizer.json");
    assert_non_null(strstr(err.message, "\\p{L}+|\\p{N}{1,3}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_stay_with_letters_in_the_newer_pattern_only),
        cmocka_unit_test(english_contractions_are_pieces_in_any_case),
        cmocka_unit_test(white_space_leaves_its_last_space_to_the_next_piece),
        cmocka_unit_test(white_space_is_unicodes_and_nothing_else),
        cmocka_unit_test(agrees_with_a_scanner_written_by_hand),
        cmocka_unit_test(a_megabyte_takes_linear_time),
        cmocka_unit_test(another_pattern_is_refused_and_shown),
    };

    return cmocka_run_group_tests(tests, open_splitters, close_splitters);
}
