/* Errors: what swl_fail leaves in the caller's swl_error. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/status.h"

static void names_file_and_offset(void **state)
{
    swl_error err;

    (void)state;
    assert_int_equal(swl_fail_at(&err, SWL_E_CORRUPT, "a/b.bin", 17, "expected %d", 3), SWL_E_CORRUPT);
    assert_string_equal(err.file, "a/b.bin");
    assert_string_equal(err.message, "expected 3");
    assert_int_equal(err.offset, 17);
    assert_int_equal(err.os_errno, 0);
}

static void keeps_the_end_of_a_long_path(void **state)
{
    swl_error err;
    char path[1000];

    (void)state;
    memset(path, 'x', sizeof path);
    strcpy(path + sizeof path - 9, "last.bin");
    swl_fail_at(&err, SWL_E_CORRUPT, path, -1, "bad");
    assert_int_equal(strlen(err.file), sizeof err.file - 1);
    assert_memory_equal(err.file, "...", 3);
    assert_string_equal(err.file + strlen(err.file) - 8, "last.bin");
}

static void maps_errno(void **state)
{
    swl_error err;

    (void)state;
    errno = ENOENT;
    assert_int_equal(swl_fail_errno(&err, "f", "cannot open"), SWL_E_NOT_FOUND);
    assert_int_equal(err.os_errno, ENOENT);
    assert_non_null(strstr(err.message, "cannot open: "));
    errno = ENOTDIR; /* nothing is there either */
    assert_int_equal(swl_fail_errno(&err, "f/g", "cannot open"), SWL_E_NOT_FOUND);
    errno = EACCES;
    assert_int_equal(swl_fail_errno(&err, "f", "cannot open"), SWL_E_IO);
    errno = ENOSPC;
    assert_int_equal(swl_fail_errno(NULL, "f", "no room"), SWL_E_BUDGET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_file_and_offset),
        cmocka_unit_test(keeps_the_end_of_a_long_path),
        cmocka_unit_test(maps_errno),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
