/* GGUF headers: files of the public package, hand-made bytes, and headers that must be refused with place and reason. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/gguf.h"

#define FIXTURES SWL_TEST_DATA "/fixtures/gguf/"

/* --- files of the package --- */

static swl_gguf *opened(const char *path)
{
    swl_error err = {0};
    swl_gguf *g;

    if (swl_gguf_open(&g, path, &err))
        fail_msg("%s", err.message);
    return g;
}

static void check_values(const swl_gguf *g)
{
    const swl_gguf_value *v;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    char *s = NULL;
    const uint8_t *p;
    const char *text;
    uint64_t n;

    assert_int_equal(swl_gguf_int(g, "test.u32", SWL_GGUF_REQUIRED, 0, 10, &i, NULL), SWL_OK);
    assert_int_equal(i, 7);
    assert_int_equal(swl_gguf_int(g, "test.i8", SWL_GGUF_REQUIRED, -5, 10, &i, NULL), SWL_OK);
    assert_int_equal(i, -3);
    assert_int_equal(swl_gguf_int(g, "test.u64", SWL_GGUF_REQUIRED, 0, INT64_MAX, &i, NULL), SWL_OK);
    assert_int_equal(i, (INT64_C(1) << 40) + 5);
    assert_int_equal(swl_gguf_float(g, "test.f32", SWL_GGUF_REQUIRED, &f, NULL), SWL_OK);
    assert_true(f == 0.5);
    assert_int_equal(swl_gguf_float(g, "test.f64", SWL_GGUF_REQUIRED, &f, NULL), SWL_OK);
    assert_true(f == -2.25);
    assert_int_equal(swl_gguf_bool(g, "test.yes", SWL_GGUF_REQUIRED, &b, NULL), SWL_OK);
    assert_true(b);
    assert_int_equal(swl_gguf_string(g, "general.name", SWL_GGUF_REQUIRED, &s, NULL), SWL_OK);
    assert_string_equal(s, "a model");
    swl_free(s);
    v = swl_gguf_value_find(g, "test.ints");
    assert_true(v && v->is_array && v->n == 3);
    assert_int_equal(swl_gguf_int_at(v, 1), -2);
    v = swl_gguf_value_find(g, "test.strings");
    assert_true(v && v->is_array && v->n == 3 && v->kind == SWL_GGUF_STRING);
    p = v->data;
    swl_gguf_next_string(&p, &text, &n);
    assert_int_equal(n, 0);
    swl_gguf_next_string(&p, &text, &n);
    assert_true(n == 3 && !memcmp(text, "a b", 3));
    swl_gguf_next_string(&p, &text, &n);
    assert_true(n == 3 && !memcmp(text, "\xc4\xa0x", 3));
}

static void check_tensors(const swl_gguf *g)
{
    const swl_gguf_tensor *t = swl_gguf_find(g, "b.weight");
    float f[6];
    uint16_t h[4];

    assert_int_equal(swl_gguf_count(g), 3);
    assert_string_equal(swl_gguf_at(g, 0)->name, "a.weight");
    assert_true(t && t->n_dims == 2 && t->dims[0] == 3 && t->dims[1] == 2 && t->size == 24);
    assert_string_equal(t->type->name, "F32");
    assert_int_equal(swl_gguf_read(g, t, 0, f, 24, NULL), SWL_OK);
    for (int i = 0; i < 6; i++)
        assert_true(f[i] == (float)i);
    assert_int_equal(swl_gguf_read(g, t, 4, f, 24, NULL), SWL_E_ARG);
    t = swl_gguf_find(g, "a.weight");
    assert_int_equal(swl_gguf_read(g, t, 2, h, 6, NULL), SWL_OK);
    assert_int_equal(h[0], 0x3c00);
    t = swl_gguf_find(g, "c.weight");
    assert_string_equal(t->type->name, "Q8_0");
    assert_int_equal(t->size, 4 * 34);
    assert_null(swl_gguf_find(g, "d.weight"));
}

static void files_of_the_package_open(void **state)
{
    static const char *const names[] = {FIXTURES "whole.gguf", FIXTURES "aligned.gguf"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        swl_gguf *g = opened(names[i]);

        check_values(g);
        check_tensors(g);
        if (i)
            assert_int_equal(swl_gguf_find(g, "c.weight")->offset % 256, 0);
        swl_gguf_close(g);
    }
}

static void any_part_of_a_split_file_opens_the_whole(void **state)
{
    static const char *const names[] = {FIXTURES "split-00001-of-00003.gguf", FIXTURES "split-00003-of-00003.gguf"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        swl_gguf *g = opened(names[i]);
        float f[3];

        check_values(g);
        assert_int_equal(swl_gguf_count(g), 5);
        for (int t = 0; t < 5; t++) {
            assert_int_equal(swl_gguf_read(g, swl_gguf_at(g, t), 0, f, sizeof f, NULL), SWL_OK);
            assert_true(f[0] == (float)t && f[2] == (float)t);
        }
        swl_gguf_close(g);
    }
}

static void copy(const char *from, const char *to)
{
    char *data;
    size_t n;

    assert_int_equal(swl_file_load(&data, &n, from, 1 << 20, NULL), SWL_OK);
    assert_int_equal(swl_file_save(to, data, n, NULL), SWL_OK);
    swl_free(data);
}

static void parts_that_do_not_belong_together_are_refused(void **state)
{
    char dir[] = "/tmp/swl_gguf_XXXXXX", a[64], b[64];
    swl_error err = {0};
    swl_gguf *g;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(a, sizeof a, "%s/x-00001-of-00002.gguf", dir);
    snprintf(b, sizeof b, "%s/x-00002-of-00002.gguf", dir);
    copy(FIXTURES "split-00001-of-00003.gguf", a);
    assert_int_equal(swl_gguf_open(&g, a, &err), SWL_E_CORRUPT);
    assert_non_null(strstr(err.message, "says that it is part 0 of 3 (from 0), its name says part 0 of 2"));
    unlink(a);
    snprintf(a, sizeof a, "%s/y.gguf", dir);
    copy(FIXTURES "split-00002-of-00003.gguf", a);
    assert_int_equal(swl_gguf_open(&g, a, &err), SWL_E_CORRUPT);
    assert_non_null(strstr(err.message, "one part of 3"));
    unlink(a);
    snprintf(a, sizeof a, "%s/z-00001-of-00003.gguf", dir);
    copy(FIXTURES "split-00001-of-00003.gguf", a);
    assert_int_equal(swl_gguf_open(&g, a, &err), SWL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "z-00002-of-00003.gguf"));
    unlink(a);
    rmdir(dir);
}

/* --- hand-made headers --- */

typedef struct bytes {
    uint8_t b[8192];
    size_t n;
} bytes;

static void put(bytes *x, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        x->b[x->n++] = (uint8_t)(v >> (8 * i));
}

static void put_string(bytes *x, const char *s)
{
    put(x, strlen(s), 8);
    memcpy(x->b + x->n, s, strlen(s));
    x->n += strlen(s);
}

static bytes head(uint32_t version, uint64_t n_tensors, uint64_t n_values)
{
    bytes x = {.b = "GGUF", .n = 4};

    put(&x, version, 4);
    put(&x, n_tensors, 8);
    put(&x, n_values, 8);
    return x;
}

static void put_tensor(bytes *x, const char *name, int n_dims, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
    put_string(x, name);
    put(x, (uint64_t)n_dims, 4);
    put(x, d0, 8);
    if (n_dims > 1)
        put(x, d1, 8);
    put(x, type, 4);
    put(x, offset, 8);
}

static swl_status parse(const bytes *x, uint64_t n_data, swl_error *err)
{
    uint64_t size = (x->n + 31) / 32 * 32 + n_data;
    swl_gguf *g = NULL;
    swl_status st = swl_gguf_parse(&g, x->b, x->n, n_data ? size : x->n, "x.gguf", NULL, err);

    assert_true(!st == (g != NULL));
    swl_gguf_close(g);
    return st;
}

static void refuse(const bytes *x, uint64_t n_data, swl_status code, const char *message)
{
    swl_error err = {0};
    swl_status st = parse(x, n_data, &err);

    if (st != code || !strstr(err.message, message))
        print_error("got %d \"%s\", expected \"%s\"\n", st, err.message, message);
    assert_int_equal(st, code);
    assert_non_null(strstr(err.message, message));
    assert_non_null(strstr(err.message, "x.gguf"));
}

static void small_files_are_read(void **state)
{
    bytes x = head(2, 0, 0);
    swl_error err;

    (void)state;
    assert_int_equal(parse(&x, 0, &err), SWL_OK);
    x = head(3, 2, 0);
    put_tensor(&x, "a", 1, 64, 0, 8, 96);
    put_tensor(&x, "b", 2, 1, 3, 0, 0);
    assert_int_equal(parse(&x, 96 + 68, &err), SWL_OK);
}

static void damaged_heads_are_refused(void **state)
{
    bytes x = head(3, 0, 0);

    (void)state;
    x.b[3] = 'X';
    refuse(&x, 0, SWL_E_CORRUPT, "does not begin with GGUF");
    x = head(1, 0, 0);
    refuse(&x, 0, SWL_E_UNSUPPORTED, "byte 4: version 1, expected 2 or 3");
    x = head(0x3000000, 0, 0);
    refuse(&x, 0, SWL_E_UNSUPPORTED, "big-endian");
    x = head(3, UINT64_MAX, 0);
    refuse(&x, 0, SWL_E_CORRUPT, "byte 8: expected a number of tensors");
    x = head(3, 0, UINT64_MAX / 2);
    refuse(&x, 0, SWL_E_CORRUPT, "byte 16: expected a number of values");
    x = head(3, 0, 0);
    x.n = 20;
    refuse(&x, 0, SWL_E_CORRUPT, "byte 16: 8 bytes of the number of values expected, 4 are left");
}

static void damaged_values_are_refused(void **state)
{
    bytes x = head(3, 0, 1);

    (void)state;
    put(&x, UINT64_MAX, 8);
    put(&x, 0, 8);
    refuse(&x, 0, SWL_E_CORRUPT, "byte 24: expected a name of 1 to 1024 bytes");
    x = head(3, 0, 1);
    put_string(&x, "k");
    put(&x, 13, 4);
    refuse(&x, 0, SWL_E_CORRUPT, "byte 33: expected a known kind of value, found 13");
    x = head(3, 0, 1);
    put_string(&x, "k");
    put(&x, SWL_GGUF_ARRAY, 4);
    put(&x, SWL_GGUF_F64, 4);
    put(&x, UINT64_MAX / 4, 8);
    refuse(&x, 0, SWL_E_CORRUPT, "byte 49: an array has more elements than any file");
    x = head(3, 0, 1);
    put_string(&x, "k");
    put(&x, SWL_GGUF_ARRAY, 4);
    put(&x, SWL_GGUF_ARRAY, 4);
    put(&x, 1, 8);
    refuse(&x, 0, SWL_E_CORRUPT, "arrays of arrays");
    x = head(3, 0, 1);
    put_string(&x, "k");
    put(&x, SWL_GGUF_ARRAY, 4);
    put(&x, SWL_GGUF_STRING, 4);
    put(&x, UINT64_MAX, 8);
    refuse(&x, 0, SWL_E_CORRUPT, "byte 49: 8 bytes of a string's length expected, 0 are left");
    x = head(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_string(&x, "key");
        put(&x, SWL_GGUF_U32, 4);
        put(&x, 1, 4);
    }
    refuse(&x, 0, SWL_E_CORRUPT, "key \"key\" occurs twice");
    x = head(3, 0, 1);
    put_string(&x, "general.alignment");
    put(&x, SWL_GGUF_U32, 4);
    put(&x, 24, 4);
    refuse(&x, 0, SWL_E_CORRUPT, "\"general.alignment\" is 24, expected a power of two");
}

static void damaged_tensors_are_refused(void **state)
{
    static const struct {
        int n_dims;
        uint64_t d0, d1;
        uint32_t type;
        uint64_t offset;
        const char *message;
    } cases[] = {
        {5, 1, 1, 0, 0, "expected 1 to 4 dimensions, found 5"},
        {0, 1, 1, 0, 0, "expected 1 to 4 dimensions, found 0"},
        {2, 0, 1, 0, 0, "expected a dimension of at least 1, found 0"},
        {2, UINT64_MAX, 1, 0, 0, "expected a dimension of at least 1"},
        {2, UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0, "tensor \"t\" has more elements than any file"},
        {2, 48, 2, 8, 0, "tensor \"t\" is Q8_0 with rows of 48 elements, expected a multiple of 32"},
        {2, 32, 4, 0, 0, "tensor \"t\" takes bytes 0 to 512"},
        {1, 8, 0, 0, 8, "has offset 8, expected a multiple of 32"},
        {1, 8, 0, 0, UINT64_MAX - 7, "but the file ends"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes x = head(3, 1, 0);

        put_tensor(&x, "t", cases[i].n_dims, cases[i].d0, cases[i].d1, cases[i].type, cases[i].offset);
        put(&x, 0, 8); /* so that five dimensions are not too short */
        put(&x, 0, 8);
        refuse(&x, 64, SWL_E_CORRUPT, cases[i].message);
    }
}

static void tensors_over_each_other_are_refused(void **state)
{
    bytes x = head(3, 2, 0);

    (void)state;
    put_tensor(&x, "a", 1, 16, 0, 0, 0);
    put_tensor(&x, "b", 1, 16, 0, 0, 32);
    refuse(&x, 256, SWL_E_CORRUPT, "tensor \"b\" has offset 32, expected a multiple of 32 from 64 on");
    x = head(3, 2, 0);
    put_tensor(&x, "a", 1, 16, 0, 0, 0);
    put_tensor(&x, "a", 1, 16, 0, 0, 64);
    refuse(&x, 256, SWL_E_CORRUPT, "tensor \"a\" occurs twice");
}

static void unknown_types_are_kept_without_a_size(void **state)
{
    bytes x = head(3, 1, 0);
    swl_gguf *g;

    (void)state;
    put_tensor(&x, "t", 1, 7, 0, 1000, 0);
    for (int i = 0; i < 8; i++)
        put(&x, 0, 8);
    assert_int_equal(swl_gguf_parse(&g, x.b, x.n, x.n, "x.gguf", NULL, NULL), SWL_OK);
    assert_null(swl_gguf_at(g, 0)->type);
    assert_int_equal(swl_gguf_at(g, 0)->type_id, 1000);
    assert_int_equal(swl_gguf_at(g, 0)->size, 0);
    swl_gguf_close(g);
}

/* Every prefix of a file is refused, and every failed allocation is a clean error. */
static void cut_files_and_lack_of_memory_are_clean(void **state)
{
    char *data;
    size_t n, header;
    swl_gguf *g;
    swl_error err;
    swl_status st = SWL_E_NOMEM;

    (void)state;
    assert_int_equal(swl_file_load(&data, &n, FIXTURES "whole.gguf", 1 << 20, NULL), SWL_OK);
    assert_int_equal(swl_gguf_parse(&g, data, n, n, "x.gguf", NULL, NULL), SWL_OK);
    header = n;
    for (int32_t i = 0; i < 3; i++)
        header = swl_gguf_at(g, i)->offset < header ? swl_gguf_at(g, i)->offset : header;
    swl_gguf_close(g);
    for (size_t k = 0; k < header; k++)
        assert_true(swl_gguf_parse(&g, data, k, k, "x.gguf", NULL, &err) && !g);
    for (int64_t i = 0; st; i++) {
        swl_mem_fail_after(i, false);
        st = swl_gguf_open(&g, FIXTURES "split-00001-of-00003.gguf", &err);
        swl_mem_fail_after(-1, false);
        assert_true(!st || (st == SWL_E_NOMEM && !g));
    }
    swl_gguf_close(g);
    swl_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_package_open),
        cmocka_unit_test(any_part_of_a_split_file_opens_the_whole),
        cmocka_unit_test(parts_that_do_not_belong_together_are_refused),
        cmocka_unit_test(small_files_are_read),
        cmocka_unit_test(damaged_heads_are_refused),
        cmocka_unit_test(damaged_values_are_refused),
        cmocka_unit_test(damaged_tensors_are_refused),
        cmocka_unit_test(tensors_over_each_other_are_refused),
        cmocka_unit_test(unknown_types_are_kept_without_a_size),
        cmocka_unit_test(cut_files_and_lack_of_memory_are_clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
