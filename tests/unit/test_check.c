/* test_check.c: swl_check on the demo model: what it says of a link that leads to a container, and of one inside. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <swiftlet/swiftlet.h>

#include "temp_root.h"

#define DEMO SWL_TEST_DATA "/../models/demo.qpack"

typedef struct seen {
    int n_good, n_bad;
    char bad[64], text[256]; /* the first */
} seen;

static void on_row(void *arg, const swl_check_row *row)
{
    seen *s = arg;

    s->n_good += row->ok;
    if (!row->ok && !s->n_bad++) {
        snprintf(s->bad, sizeof s->bad, "%s", row->path);
        snprintf(s->text, sizeof s->text, "%s", row->text);
    }
}

static swl_status check(const char *dir, bool write_hashes, seen *s, swl_error *err)
{
    swl_check_options o;

    memset(s, 0, sizeof *s);
    swl_check_options_init(&o);
    o.dir = dir;
    o.n_threads = 2;
    o.write_hashes = write_hashes;
    o.on_row = on_row;
    o.arg = s;
    return swl_check(&o, err);
}

static void copy_demo(const char *to)
{
    char command[300];

    snprintf(command, sizeof command, "cp -r %s %s", DEMO, to);
    assert_int_equal(system(command), 0);
}

static void a_link_leads_to_the_same_rows(void **state)
{
    seen direct, linked;
    swl_error err;

    (void)state;
    assert_int_equal(check(DEMO, false, &direct, &err), SWL_OK);
    assert_true(direct.n_good > 8); /* a file for each of its eight layers, and more */
    assert_int_equal(symlink(DEMO, in_root("link.qpack")), 0);
    assert_int_equal(symlink("link.qpack", in_root("again.qpack")), 0);
    assert_int_equal(check(in_root("link.qpack"), false, &linked, &err), SWL_OK);
    assert_int_equal(linked.n_good, direct.n_good);
    assert_int_equal(check(in_root("again.qpack"), false, &linked, &err), SWL_OK);
    assert_int_equal(linked.n_good, direct.n_good);
    assert_int_equal(linked.n_bad, 0);
}

static void a_link_inside_is_not_followed(void **state)
{
    seen s;
    swl_error err;

    (void)state;
    copy_demo(in_root("own.qpack"));
    assert_int_equal(unlink(in_root("own.qpack/config.json")), 0);
    assert_int_equal(symlink(DEMO "/config.json", in_root("own.qpack/config.json")), 0);
    assert_int_equal(symlink("own.qpack", in_root("link.qpack")), 0);
    assert_int_equal(check(in_root("link.qpack"), false, &s, &err), SWL_E_CORRUPT);
    assert_int_equal(s.n_bad, 1);
    assert_string_equal(s.bad, "config.json");
    assert_non_null(strstr(s.text, "missing"));
}

static void hashes_are_written_where_a_link_leads(void **state)
{
    seen s;
    swl_error err;

    (void)state;
    copy_demo(in_root("own.qpack"));
    assert_int_equal(unlink(in_root("own.qpack/hashes.json")), 0);
    assert_int_equal(symlink("own.qpack", in_root("link.qpack")), 0);
    assert_int_equal(check(in_root("link.qpack"), true, &s, &err), SWL_OK);
    assert_int_equal(access(in_root("own.qpack/hashes.json"), R_OK), 0);
    assert_int_equal(check(in_root("link.qpack"), false, &s, &err), SWL_OK);
}

static void a_link_to_nothing_is_no_directory(void **state)
{
    seen s;
    swl_error err;

    (void)state;
    assert_int_equal(symlink("nothing", in_root("link.qpack")), 0);
    assert_int_equal(check(in_root("link.qpack"), false, &s, &err), SWL_E_NOT_FOUND);
    assert_int_equal(s.n_good + s.n_bad, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_link_leads_to_the_same_rows),
        TEST(a_link_inside_is_not_followed),
        TEST(hashes_are_written_where_a_link_leads),
        TEST(a_link_to_nothing_is_no_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
