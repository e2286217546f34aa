/* Files that are there whole or not at all: what a process that was killed leaves behind does not stay. */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "temp_root.h"

static void write_file(const char *name, int age_seconds)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_seconds}, {.tv_sec = time(NULL) - age_seconds}};

    assert_int_equal(swl_file_save(in_root(name), "x", 1, NULL), SWL_OK);
    assert_int_equal(utimensat(AT_FDCWD, in_root(name), times, 0), 0);
}

static void old_temporary_files_of_the_same_path_are_removed(void **state)
{
    static const char *const kept[] = {"state", "state.tmp.12", "state.tmp.x1", "state.tmp.", "other.tmp.34", "mystate.tmp.56"};

    (void)state;
    write_file("state.tmp.3458000", 7200);
    write_file("state.tmp.12", 60); /* somebody may be at it */
    for (size_t i = 2; i < sizeof kept / sizeof kept[0]; i++)
        write_file(kept[i], 7200);
    assert_int_equal(swl_file_save(in_root("state"), "y", 1, NULL), SWL_OK);
    assert_false(swl_file_exists(in_root("state.tmp.3458000")));
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        assert_true(swl_file_exists(in_root(kept[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_temporary_files_of_the_same_path_are_removed),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
