/* Paths from outside: what may be joined to a directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/path.h"

static void accepts_plain_relative_paths(void **state)
{
    static const char *const good[] = {
        "config.json", "packed_experts/layer_00.bin",      "a/b/c/d/e/f/g/h", "console", "com", "com10",
        "sub/.hidden", "model-00001-of-00002.safetensors", "\xc3\xa9.txt",    "a..b",    "lpt",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!swl_path_is_safe(good[i]))
            fail_msg("refused: %s", good[i]);
}

static void refuses_what_leads_elsewhere(void **state)
{
    static const char *const bad[] = {
        "",
        "/",
        "/etc/passwd",
        "..",
        ".",
        "../x",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "c:x",
        "a\nb",
        "a\x7f",
        ".hidden",
        "a/b.",
        "a/b ",
        "con",
        "CON.txt",
        "a/nul",
        "Com1.x",
        "lpt9",
        "a/b/c/d/e/f/g/h/i",
        "aux.",
        "a/prn.b.c",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (swl_path_is_safe(bad[i]))
            fail_msg("accepted: %s", bad[i]);
}

static void limits_lengths(void **state)
{
    char path[1100];

    (void)state;
    memset(path, 'x', sizeof path);
    path[256] = 0;
    assert_false(swl_path_is_safe(path));
    path[255] = 0;
    assert_true(swl_path_is_safe(path));
    path[256] = 'x';
    for (int i = 255; i < 1100; i += 200)
        path[i] = '/';
    path[1025] = 0;
    assert_false(swl_path_is_safe(path));
    path[1024] = 0;
    assert_true(swl_path_is_safe(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_plain_relative_paths),
        cmocka_unit_test(refuses_what_leads_elsewhere),
        cmocka_unit_test(limits_lengths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
