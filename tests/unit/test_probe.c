/* How reads are chosen: what is named is taken, what was found is remembered for this container alone. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/probe.h"

/* A sparse file of 256 MiB: large enough for a probe, and quickly read. */
enum { EXPERTS = 256, SLOT = 1 << 20 };

typedef struct fixture {
    char path[64], cache[80];
    const char *paths[1];
    int fd;
    swl_range ranges[EXPERTS];
    swl_store_layer layer;
    swl_store_config config;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    int i;

    strcpy(f->path, "/tmp/swl-probe-XXXXXX");
    f->fd = mkstemp(f->path);
    f->paths[0] = f->path;
    snprintf(f->cache, sizeof f->cache, "%s.cache", f->path);
    for (i = 0; i < EXPERTS; i++)
        f->ranges[i] = (swl_range){0, (uint64_t)i * SLOT, SLOT, 0};
    f->layer = (swl_store_layer){EXPERTS, 1, f->ranges, SLOT, NULL};
    f->config = (swl_store_config){.n_layers = 1, .layers = &f->layer, .n_files = 1, .fds = &f->fd, .paths = f->paths};
    *state = f;
    return ftruncate(f->fd, (off_t)EXPERTS * SLOT);
}

static int teardown(void **state)
{
    fixture *f = *state;

    close(f->fd);
    unlink(f->path);
    unlink(f->cache);
    free(f);
    return 0;
}

static bool has_direct(const fixture *f)
{
    swl_io_wish w = {.direct = SWL_DIRECT_ON, .no_probe = true};
    swl_io_choice c;

    return swl_io_choose(&c, &w, &f->config, NULL) == SWL_OK;
}

static void what_is_named_is_taken(void **state)
{
    fixture *f = *state;
    swl_io_wish w = {.backend = "threads", .direct = SWL_DIRECT_OFF, .depth = 3};
    swl_io_choice c;
    swl_error err;

    assert_int_equal(swl_io_choose(&c, &w, &f->config, NULL), SWL_OK);
    assert_string_equal(c.backend, "threads");
    assert_false(c.direct);
    assert_int_equal(c.depth, 3);
    w.depth = 1000;
    assert_int_equal(swl_io_choose(&c, &w, &f->config, &err), SWL_E_ARG);
    f->ranges[7].offset++;
    w = (swl_io_wish){.direct = SWL_DIRECT_ON};
    assert_int_equal(swl_io_choose(&c, &w, &f->config, &err), SWL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "not aligned"));
    w.direct = SWL_DIRECT_AUTO;
    assert_int_equal(swl_io_choose(&c, &w, &f->config, NULL), SWL_OK);
    assert_false(c.direct);
    assert_string_equal(c.backend, "threads");
}

static void a_probe_is_remembered_for_its_container(void **state)
{
    fixture *f = *state;
    swl_io_wish w = {.cache_path = f->cache, .cache_key = "abc"};
    swl_io_choice first, again, other;
    char *text;
    size_t n, i;

    if (!has_direct(f))
        skip();
    assert_int_equal(swl_io_choose(&first, &w, &f->config, NULL), SWL_OK);
    assert_false(first.remembered);
    assert_true(first.gb_per_s > 0.0);
    assert_int_equal(swl_io_choose(&again, &w, &f->config, NULL), SWL_OK);
    assert_true(again.remembered);
    assert_string_equal(again.backend, first.backend);
    assert_int_equal(again.direct, first.direct);
    assert_int_equal(again.depth, first.depth);
    w.cache_key = "abd";
    assert_int_equal(swl_io_choose(&other, &w, &f->config, NULL), SWL_OK);
    assert_false(other.remembered);
    /* What is named counts more than what is remembered. */
    w.direct = first.direct ? SWL_DIRECT_OFF : SWL_DIRECT_ON;
    assert_int_equal(swl_io_choose(&other, &w, &f->config, NULL), SWL_OK);
    assert_int_equal(other.direct, !first.direct);
    /* Damaged, it is no more than absent. */
    assert_int_equal(swl_file_load(&text, &n, f->cache, 4096, NULL), SWL_OK);
    for (i = 0; i < n; i += 7) {
        assert_int_equal(swl_file_save(f->cache, text, i, NULL), SWL_OK);
        w.no_probe = false;
        assert_int_equal(swl_io_choose(&other, &w, &f->config, NULL), SWL_OK);
        assert_false(other.remembered);
    }
    swl_free(text);
}

static void a_file_that_cannot_be_written_does_not_matter(void **state)
{
    fixture *f = *state;
    swl_io_wish w = {.cache_path = "/nowhere/at/all", .cache_key = "abc"};
    swl_io_choice c;

    assert_int_equal(swl_io_choose(&c, &w, &f->config, NULL), SWL_OK);
    assert_false(c.remembered);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_named_is_taken),
        T(a_probe_is_remembered_for_its_container),
        T(a_file_that_cannot_be_written_does_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
