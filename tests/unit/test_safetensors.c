/* Safetensors: files of the public package, hand-made bytes, and headers that must be refused with a clear message. */
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
#include "format/safetensors.h"
#include "temp_root.h"

#define FIXTURES SWL_TEST_DATA "/fixtures/safetensors"

/* --- helpers --- */

/* Parses `json` as the header of a file with n_data bytes of data. */
static swl_status parse(swl_st **s, const char *json, uint64_t n_data, swl_error *err)
{
    uint64_t n = strlen(json);
    uint8_t *bytes = swl_calloc(8 + n, 1);
    swl_status st;

    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, json, n);
    st = swl_st_parse(s, bytes, 8 + n, 8 + n + n_data, "x.safetensors", err);
    swl_free(bytes);
    return st;
}

static void refuse(const char *json, uint64_t n_data, swl_status code, const char *message)
{
    swl_error err = {0};
    swl_st *s = (swl_st *)1;
    swl_status st = parse(&s, json, n_data, &err);

    if (st != code || !strstr(err.message, message))
        print_error("%.300s: got %d \"%s\"\n", json, st, err.message);
    assert_int_equal(st, code);
    assert_non_null(strstr(err.message, message));
    assert_non_null(strstr(err.message, "x.safetensors"));
    assert_string_equal(err.file, "x.safetensors");
    assert_null(s);
}

static void accept(const char *json, uint64_t n_data, int n_tensors)
{
    swl_error err = {0};
    swl_st *s;
    swl_status st = parse(&s, json, n_data, &err);

    if (st)
        print_error("%.300s: %s\n", json, err.message);
    assert_int_equal(st, SWL_OK);
    assert_int_equal(swl_st_count(s), n_tensors);
    swl_st_close(s);
}

static void put(const char *name, const void *bytes, size_t n)
{
    assert_int_equal(swl_file_save(in_root(name), bytes, n, NULL), SWL_OK);
}

/* A file with one F32 tensor per name, each of one element. */
static void put_shard(const char *file, const char *const *names, int n)
{
    swl_st_decl decls[4];
    uint8_t *header, bytes[1000];
    uint64_t n_bytes;
    int i;

    for (i = 0; i < n; i++)
        decls[i] = (swl_st_decl){names[i], SWL_DT_F32, 1, {1}};
    assert_int_equal(swl_st_header(decls, n, 8, &header, &n_bytes, NULL), SWL_OK);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, header, n_bytes);
    put(file, bytes, n_bytes + 4 * (size_t)n);
    swl_free(header);
}

static void put_index(const char *weight_map)
{
    char text[1000];

    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":12},\"weight_map\":%s}", weight_map);
    put("model.safetensors.index.json", text, strlen(text));
}

static void refuse_dir(swl_status code, const char *message)
{
    swl_error err = {0};
    swl_st *s;
    swl_status st = swl_st_open(&s, root, &err);

    if (st != code || !strstr(err.message, message))
        print_error("got %d \"%s\"\n", st, err.message);
    assert_int_equal(st, code);
    assert_non_null(strstr(err.message, message));
    assert_null(s);
}

/* --- files of the public package --- */

static void every_type_of_the_public_package_is_read(void **state)
{
    static const struct {
        const char *name;
        swl_dtype dtype;
        int n_dims;
        int64_t shape[3];
        int size;
        uint8_t bytes[12];
    } want[] = {
        {"f32", SWL_DT_F32, 2, {1, 3}, 12, {0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0x50, 0x40}},
        {"f16", SWL_DT_F16, 1, {2}, 4, {0x00, 0x3e, 0x00, 0xc0}},
        {"bf16", SWL_DT_BF16, 1, {3}, 6, {0xc0, 0x3f, 0x00, 0xc0, 0, 0}},
        {"f8_e4m3", SWL_DT_F8_E4M3, 1, {12}, 12, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
        {"f8_e5m2", SWL_DT_F8_E5M2, 1, {5}, 5, {0, 1, 2, 3, 4}},
        {"f8_e8m0", SWL_DT_F8_E8M0, 1, {3}, 3, {0, 1, 2}},
        {"u8", SWL_DT_U8, 1, {7}, 7, {0, 1, 2, 3, 4, 5, 6}},
        {"i8", SWL_DT_I8, 1, {3}, 3, {0xff, 2, 0xfd}},
        {"i32", SWL_DT_I32, 1, {1}, 4, {0x90, 0xee, 0xfe, 0xff}},
        {"u32", SWL_DT_U32, 1, {1}, 4, {0x00, 0x28, 0x6b, 0xee}},
        {"i64", SWL_DT_I64, 1, {1}, 8, {0x00, 0x0e, 0xfa, 0xd5, 0xfe, 0xff, 0xff, 0xff}},
        {"bool", SWL_DT_BOOL, 1, {3}, 3, {1, 0, 1}},
        {"scalar", SWL_DT_F32, 0, {0}, 4, {0, 0, 0x28, 0x42}},
        {"empty", SWL_DT_F32, 3, {4, 0, 3}, 0, {0}},
        {"name with \"quotes\", \\ and \xc3\xbc", SWL_DT_U8, 1, {1}, 1, {7}},
    };
    uint8_t got[12];
    swl_error err;
    swl_st *s;
    size_t i;
    int odd = 0;

    (void)state;
    assert_int_equal(swl_st_open(&s, FIXTURES "/types.safetensors", &err), SWL_OK);
    assert_int_equal(swl_st_count(s), sizeof want / sizeof *want);
    assert_int_equal(swl_st_n_files(s), 1);
    assert_string_equal(swl_st_path(s, 0), FIXTURES "/types.safetensors");
    for (i = 0; i < sizeof want / sizeof *want; i++) {
        const swl_st_tensor *t = swl_st_find(s, want[i].name);

        assert_non_null(t);
        assert_string_equal(t->name, want[i].name);
        assert_int_equal(t->dtype, want[i].dtype);
        assert_int_equal(t->n_dims, want[i].n_dims);
        assert_memory_equal(t->shape, want[i].shape, sizeof want[i].shape);
        assert_int_equal(t->size, want[i].size);
        assert_int_equal(swl_st_read(s, t, 0, got, t->size, &err), SWL_OK);
        assert_memory_equal(got, want[i].bytes, t->size);
        odd += t->offset & 1;
    }
    assert_true(odd > 0);
    for (i = 1; i < sizeof want / sizeof *want; i++)
        assert_true(strcmp(swl_st_at(s, (int32_t)i - 1)->name, swl_st_at(s, (int32_t)i)->name) < 0);
    assert_null(swl_st_find(s, "f3"));
    assert_null(swl_st_find(s, "__metadata__"));
    assert_null(swl_st_find(s, ""));
    swl_st_close(s);
}

static void check_value(const swl_st *s, const char *name, float want)
{
    const swl_st_tensor *t = swl_st_find(s, name);
    float got;

    assert_non_null(t);
    assert_int_equal(swl_st_read(s, t, t->size - 4, &got, 4, NULL), SWL_OK);
    assert_true(got == want);
}

static void shards_of_an_index_are_one_set(void **state)
{
    swl_st *s;

    (void)state;
    assert_int_equal(swl_st_open(&s, FIXTURES "/sharded", NULL), SWL_OK);
    assert_int_equal(swl_st_n_files(s), 3);
    assert_int_equal(swl_st_count(s), 5);
    check_value(s, "a.weight", 1);
    check_value(s, "b.weight", 2);
    check_value(s, "c", 3);
    check_value(s, "d", 4);
    check_value(s, "mtp.fc.weight", 5);
    assert_true(swl_st_fd(s, 0) >= 0);
    assert_string_equal(swl_st_path(s, 2), FIXTURES "/sharded/mtp.safetensors");
    swl_st_close(s);
}

static void without_an_index_the_model_files_are_one_set(void **state)
{
    swl_st *s;

    (void)state;
    assert_int_equal(swl_st_open(&s, FIXTURES "/globbed", NULL), SWL_OK);
    assert_int_equal(swl_st_n_files(s), 2);
    assert_int_equal(swl_st_count(s), 4);
    check_value(s, "a.weight", 1);
    check_value(s, "d", 4);
    assert_null(swl_st_find(s, "mtp.fc.weight"));
    swl_st_close(s);
}

/* --- reading --- */

static void reads_stay_inside_the_tensor(void **state)
{
    swl_st *s;
    const swl_st_tensor *t;
    uint8_t got[8] = {0};
    swl_error err;

    (void)state;
    assert_int_equal(swl_st_open(&s, FIXTURES "/types.safetensors", NULL), SWL_OK);
    t = swl_st_find(s, "u8");
    assert_int_equal(swl_st_read(s, t, 2, got, 5, &err), SWL_OK);
    assert_memory_equal(got, "\2\3\4\5\6\0\0", 8);
    assert_int_equal(swl_st_read(s, t, 7, got, 0, &err), SWL_OK);
    assert_int_equal(swl_st_read(s, t, 2, got, 6, &err), SWL_E_ARG);
    assert_int_equal(swl_st_read(s, t, 8, got, 0, &err), SWL_E_ARG);
    assert_int_equal(swl_st_read(s, t, UINT64_MAX, got, 2, &err), SWL_E_ARG);
    assert_int_equal(swl_st_read(s, t, 2, got, UINT64_MAX, &err), SWL_E_ARG);
    swl_st_close(s);
}

static void missing_and_wrong_paths_are_named(void **state)
{
    swl_error err;
    swl_st *s;

    (void)state;
    assert_int_equal(swl_st_open(&s, FIXTURES "/no-such-file", &err), SWL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "no-such-file"));
    assert_null(s);
    assert_int_equal(swl_st_open(&s, "/dev/null", &err), SWL_E_CORRUPT);
    assert_int_equal(swl_st_open(&s, SWL_TEST_DATA "/unit/test_safetensors.c", &err), SWL_E_CORRUPT);
    assert_non_null(strstr(err.message, "not a safetensors file"));
    swl_st_close(NULL);
}

static void every_truncation_is_refused(void **state)
{
    char *whole;
    size_t n, cut;
    swl_error err;
    swl_st *s;

    (void)state;
    assert_int_equal(swl_file_load(&whole, &n, FIXTURES "/types.safetensors", 1 << 20, NULL), SWL_OK);
    for (cut = 0; cut < n; cut += cut < 16 || cut > n - 90 ? 1 : 37) {
        put("cut.safetensors", whole, cut);
        assert_int_equal(swl_st_open(&s, in_root("cut.safetensors"), &err), SWL_E_CORRUPT);
        assert_non_null(strstr(err.message, in_root("cut.safetensors")));
    }
    put("cut.safetensors", whole, n);
    whole = swl_realloc(whole, n + 1, 1);
    whole[n] = 0;
    put("longer.safetensors", whole, n + 1);
    assert_int_equal(swl_st_open(&s, in_root("longer.safetensors"), &err), SWL_E_CORRUPT); /* a byte that belongs to no tensor */
    swl_free(whole);
}

/* --- headers --- */

static void lengths_are_checked_before_memory_is_taken(void **state)
{
    static const uint64_t bad[] = {0, 1, 93, 100000001, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    uint8_t bytes[100] = {0};
    swl_error err;
    swl_st *s;
    size_t i;

    (void)state;
    memset(bytes + 8, ' ', sizeof bytes - 8);
    memcpy(bytes + 8, "{}", 2);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(bytes, &bad[i], 8);
        assert_int_equal(swl_st_parse(&s, bytes, 100, 100, "x", &err), SWL_E_CORRUPT);
        assert_non_null(strstr(err.message, "length"));
        assert_null(s);
    }
    /* A huge sparse file: the limit holds whatever the size of the file says. */
    memcpy(bytes, &bad[3], 8);
    assert_int_equal(swl_st_parse(&s, bytes, 100, UINT64_C(1) << 60, "x", &err), SWL_E_CORRUPT);
    memcpy(bytes, &(uint64_t){92}, 8);
    assert_int_equal(swl_st_parse(&s, bytes, 100, 100, "x", &err), SWL_OK); /* padded with spaces */
    swl_st_close(s);
    assert_int_equal(swl_st_parse(&s, bytes, 99, 100, "x", &err), SWL_E_ARG); /* not all of the header given */
    assert_int_equal(swl_st_parse(&s, bytes, 7, 7, "x", &err), SWL_E_CORRUPT);
    assert_int_equal(swl_st_parse(&s, bytes, 100, 50, "x", &err), SWL_E_CORRUPT);
}

#define U8(name, shape, offsets) "\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void well_formed_headers_are_accepted(void **state)
{
    (void)state;
    accept("{}", 0, 0);
    accept("{}   ", 0, 0);
    accept("{\"__metadata__\":{}}", 0, 0);
    accept("{\"__metadata__\":{\"a\":\"b\"}," U8("a", "[3]", "[0,3]") "}", 3, 1);
    accept("{" U8("b", "[2]", "[3,5]") "," U8("a", "[3]", "[0,3]") "}", 5, 2); /* any order */
    accept("{" U8("a", "[]", "[0,1]") "}", 1, 1);
    accept("{" U8("a", "[0]", "[0,0]") "," U8("b", "[1]", "[0,1]") "," U8("c", "[5,0]", "[1,1]") "}", 1, 3);
    accept("{" U8("a", "[1,1,1,1,1,1,1,2]", "[0,2]") "}", 2, 1);
    accept("{" U8("", "[1]", "[0,1]") "}", 1, 1);
    accept("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[{}]}}", 1, 1);
    /* One byte in front: everything behind it has an odd offset. */
    accept("{" U8("a", "[1]", "[0,1]") ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}", 9, 2);
}

static void what_is_not_json_is_refused(void **state)
{
    (void)state;
    refuse("[]", 0, SWL_E_CORRUPT, "byte 8: expected '{'");
    refuse(" {}", 0, SWL_E_CORRUPT, "expected '{'");
    refuse("{\"a\"", 0, SWL_E_CORRUPT, "byte 12: expected ':'");
    refuse("{\"a", 0, SWL_E_CORRUPT, "end of a string");
    refuse("{} {}", 0, SWL_E_CORRUPT, "expected the end");
    refuse("{}\1", 0, SWL_E_CORRUPT, "expected the end");
    refuse("{,}", 0, SWL_E_CORRUPT, "expected a string");
    refuse("{" U8("a", "[1]", "[0,1]") ",}", 1, SWL_E_CORRUPT, "expected a string");
    refuse("{" U8("a", "[1]", "[0,1]") " " U8("b", "[1]", "[1,2]") "}", 2, SWL_E_CORRUPT, "expected ',' or '}'");
    refuse("{\"\xff\":1}", 0, SWL_E_CORRUPT, "UTF-8");
    refuse("{\"a\\u0000b\":1}", 0, SWL_E_CORRUPT, "not all zero");
    refuse("{\"a\nb\":1}", 0, SWL_E_CORRUPT, "control character");
    refuse("{" U8("a", "[1]", "[0,1]") "," U8("a", "[1]", "[1,2]") "}", 2, SWL_E_CORRUPT, "duplicate tensor \"a\"");
    refuse("{" U8("a", "[1]", "[0,1]") "," U8("\\u0061", "[1]", "[1,2]") "}", 2, SWL_E_CORRUPT, "duplicate");
    refuse("{" U8("a", "[1]", "[0,99999999999999999999]") "}", 1, SWL_E_CORRUPT, "expected an integer");
}

static void fields_of_the_wrong_kind_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":1}", 0, SWL_E_CORRUPT, "in \"a\": expected an object");
    refuse("{\"__metadata__\":[]}", 0, SWL_E_CORRUPT, "in \"__metadata__\": expected an object");
    refuse("{\"__metadata__\":{\"k\":1}}", 0, SWL_E_CORRUPT, "in \"__metadata__\": expected a string");
    refuse("{\"a\":{}}", 0, SWL_E_CORRUPT, "\"dtype\" is missing");
    refuse("{\"a\":{\"dtype\":3}}", 0, SWL_E_CORRUPT, "in \"a\", \"dtype\": expected a string");
    refuse("{\"a\":{\"dtype\":\"F64\"}}", 0, SWL_E_UNSUPPORTED, "\"F64\"");
    refuse("{\"a\":{\"dtype\":\"none\"}}", 0, SWL_E_UNSUPPORTED, "\"none\"");
    refuse("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, SWL_E_CORRUPT, "this field once");
    refuse("{\"a\":{\"dtype\":\"U8\"}}", 0, SWL_E_CORRUPT, "\"shape\" is missing");
    refuse("{" U8("a", "{}", "[0,1]") "}", 1, SWL_E_CORRUPT, "\"shape\": expected an array");
    refuse("{" U8("a", "[1.0]", "[0,1]") "}", 1, SWL_E_CORRUPT, "\"shape\": expected an integer");
    refuse("{" U8("a", "[1e0]", "[0,1]") "}", 1, SWL_E_CORRUPT, "\"shape\": expected an integer");
    refuse("{" U8("a", "[01]", "[0,1]") "}", 1, SWL_E_CORRUPT, "\"shape\": expected an integer");
    refuse("{" U8("a", "[-1]", "[0,1]") "}", 1, SWL_E_CORRUPT, "\"shape\": expected an integer");
    refuse("{" U8("a", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, SWL_E_UNSUPPORTED, "more than 8 dimensions");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, SWL_E_CORRUPT, "\"data_offsets\" is missing");
    refuse("{" U8("a", "[1]", "[0]") "}", 1, SWL_E_CORRUPT, "\"data_offsets\": expected two offsets");
    refuse("{" U8("a", "[1]", "[0,1,2]") "}", 1, SWL_E_CORRUPT, "\"data_offsets\": expected two offsets");
    refuse("{" U8("a", "[1]", "[-1,0]") "}", 1, SWL_E_CORRUPT, "\"data_offsets\": expected an integer");
    refuse("{" U8("a", "[1]", "[0,true]") "}", 1, SWL_E_CORRUPT, "\"data_offsets\": expected an integer");
    refuse("{" U8("a", "[1]", "{}") "}", 1, SWL_E_CORRUPT, "\"data_offsets\": expected an array");
}

static void offsets_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    refuse("{" U8("a", "[1]", "[1,0]") "}", 1, SWL_E_CORRUPT, "[1, 0]");
    refuse("{" U8("a", "[2]", "[0,2]") "}", 1, SWL_E_CORRUPT, "size of the data section");
    refuse("{" U8("a", "[1]", "[0,9223372036854775807]") "}", 1, SWL_E_CORRUPT, "9223372036854775807");
    refuse("{" U8("a", "[3]", "[0,2]") "}", 2, SWL_E_CORRUPT, "has 2 bytes of data, expected 3");
    refuse("{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, SWL_E_CORRUPT, "expected 6");
    refuse("{" U8("a", "[4294967296,4294967296]", "[0,0]") "}", 0, SWL_E_CORRUPT, "overflows");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, SWL_E_CORRUPT,
           "overflows");
    refuse("{" U8("a", "[3]", "[0,3]") "," U8("b", "[2]", "[2,4]") "}", 4, SWL_E_CORRUPT, "overlap");
    refuse("{" U8("a", "[2]", "[0,2]") "," U8("b", "[2]", "[0,2]") "}", 2, SWL_E_CORRUPT, "overlap");
    refuse("{" U8("a", "[3]", "[0,3]") "," U8("b", "[1]", "[4,5]") "}", 5, SWL_E_CORRUPT, "hole");
    refuse("{" U8("a", "[3]", "[1,4]") "}", 4, SWL_E_CORRUPT, "hole");
    refuse("{" U8("a", "[3]", "[0,3]") "}", 5, SWL_E_CORRUPT, "end at byte 3");
    refuse("{" U8("a", "[3]", "[0,3]") "," U8("b", "[0]", "[1,1]") "}", 3, SWL_E_CORRUPT, "overlap");
    refuse("{}", 1, SWL_E_CORRUPT, "end at byte 0");
}

/* Ten thousand brackets deep; a message that quotes a name of a hundred thousand letters; a million empty objects,
 * which as a tree would take a hundred times the memory of the text. */
static void extravagant_headers_are_refused_or_read(void **state)
{
    size_t n = 3000000, i;
    char *json = swl_calloc(n + 100, 1);

    (void)state;
    memcpy(json, "{\"a\":{\"b\":", 10);
    memset(json + 10, '[', 10000);
    refuse(json, 0, SWL_E_CORRUPT, "fewer levels");
    memset(json, 'n', 100000);
    memcpy(json, "{\"", 2);
    strcpy(json + 100000, "\":1}");
    refuse(json, 0, SWL_E_CORRUPT, "expected an object");
    strcpy(json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[");
    for (i = strlen(json); i < n; i += 3)
        memcpy(json + i, "{},", 3);
    strcpy(json + i, "{}]}}");
    accept(json, 1, 1);
    swl_free(json);
}

static void escapes_in_names_are_decoded(void **state)
{
    const char *json = "{" U8("\\u00fc\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\"\\\\", "[1]", "[0,1]") "}";
    swl_st *s;

    (void)state;
    assert_int_equal(parse(&s, json, 1, NULL), SWL_OK);
    assert_string_equal(swl_st_at(s, 0)->name, "\xc3\xbc\xf0\x9f\x98\x80/\b\f\n\r\t\"\\");
    swl_st_close(s);
    refuse("{\"\\ud83d\":1}", 0, SWL_E_CORRUPT, "surrogate pair");
    refuse("{\"\\ud83d\\u0041\":1}", 0, SWL_E_CORRUPT, "surrogate pair");
    refuse("{\"\\ude00\":1}", 0, SWL_E_CORRUPT, "surrogate pair");
    refuse("{\"\\u12g4\":1}", 0, SWL_E_CORRUPT, "hexadecimal");
    refuse("{\"\\x\":1}", 0, SWL_E_CORRUPT, "escape");
    refuse("{\"\\", 0, SWL_E_CORRUPT, "escape");
    refuse("{\"\\u00", 0, SWL_E_CORRUPT, "hexadecimal");
}

/* All that JSON has may stand in a field that means nothing to us, if it is JSON. */
static void unknown_fields_are_skipped_if_they_are_json(void **state)
{
    static const char *const good[] = {
        "null",  "true", "false",   "-0.5e+10",   "0", "[1,[],{}]", "{\"x\":{\"y\":[null]}}",
        "\"s\"", "12",   "1.25E-3", " [ 1 , 2 ] "};
    static const char *const bad[] = {"nul", "True",         "01",   "1.",    "-",       ".5",
                                      "1e",  "+1",           "[1,]", "[,1]",  "{\"x\"}", "{1:2}",
                                      "'s'", "\"\xc0\x80\"", "",     "[1 2]", "NaN",     "[}"};
    char json[200];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(json, sizeof json, "{\"a\":{\"x\":%s,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 good[i]);
        accept(json, 1, 1);
    }
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(json, sizeof json, "{\"a\":{\"x\":%s,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", bad[i]);
        refuse(json, 1, SWL_E_CORRUPT, "in \"a\"");
    }
}

/* --- directories --- */

static void an_index_must_name_plain_files(void **state)
{
    static const char *const bad[] = {"../x.safetensors",  "/etc/x.safetensors", "sub/x.safetensors", "..", ".", "",
                                      "a\\\\x.safetensors"};
    static const char *const one[] = {"a"};
    char map[100];
    size_t i;

    (void)state;
    put_shard("x.safetensors", one, 1);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(map, sizeof map, "{\"a\":\"%s\"}", bad[i]);
        put_index(map);
        refuse_dir(SWL_E_CORRUPT, "expected a plain file name");
    }
    put_index("{\"a\":7}");
    refuse_dir(SWL_E_CORRUPT, "in \"weight_map\", \"a\": expected a string");
    put_index("[]");
    refuse_dir(SWL_E_CORRUPT, "in \"weight_map\": expected an object");
    put_index("{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}");
    refuse_dir(SWL_E_CORRUPT, "duplicate entry for \"a\"");
    put_index("{\"a\":\"x.safetensors\"},\"weight_map\":{}");
    refuse_dir(SWL_E_CORRUPT, "this field once");
    put("model.safetensors.index.json", "[1,2]", 5);
    refuse_dir(SWL_E_CORRUPT, "expected an object");
    put("model.safetensors.index.json", "{", 1);
    refuse_dir(SWL_E_CORRUPT, "byte 1: expected a string");
    put("model.safetensors.index.json", "{\"metadata\":{}}", 15);
    refuse_dir(SWL_E_CORRUPT, "\"weight_map\" is missing");
}

static void an_index_that_does_not_fit_the_shards_is_refused(void **state)
{
    static const char *const ab[] = {"a", "b"}, *const c[] = {"c"};
    swl_st *s;

    (void)state;
    put_shard("one.safetensors", ab, 2);
    put_shard("two.safetensors", c, 1);
    put_index("{\"a\":\"one.safetensors\",\"d\":\"two.safetensors\"}");
    refuse_dir(SWL_E_CORRUPT, "\"d\" should be in shard two.safetensors");
    put_index("{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}");
    refuse_dir(SWL_E_CORRUPT, "\"a\" should be in shard two.safetensors");
    put_index("{\"a\":\"three.safetensors\"}");
    refuse_dir(SWL_E_NOT_FOUND, "three.safetensors");
    put_index("{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}");
    assert_int_equal(swl_st_open(&s, root, NULL), SWL_OK);
    assert_int_equal(swl_st_count(s), 3); /* b is in a header only, and stays */
    swl_st_close(s);
}

static void a_tensor_in_two_shards_is_the_one_that_the_index_names(void **state)
{
    static const char *const ab[] = {"a", "b"}, *const bc[] = {"b", "c"};
    const swl_st_tensor *t;
    swl_st *s;

    (void)state;
    put_shard("model-1.safetensors", ab, 2);
    put_shard("model-2.safetensors", bc, 2);
    refuse_dir(SWL_E_CORRUPT, "\"b\" is both in");
    put_index("{\"a\":\"model-1.safetensors\",\"c\":\"model-2.safetensors\"}");
    refuse_dir(SWL_E_CORRUPT, "\"b\" is both in");
    put_index("{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}");
    assert_int_equal(swl_st_open(&s, root, NULL), SWL_OK);
    t = swl_st_find(s, "b");
    assert_non_null(t);
    assert_non_null(strstr(swl_st_path(s, t->file), "model-2"));
    assert_int_equal(swl_st_count(s), 3);
    swl_st_close(s);
}

static void an_empty_directory_is_refused(void **state)
{
    (void)state;
    put("weights.safetensors", "", 0);
    put("model.safetensors.txt", "", 0);
    refuse_dir(SWL_E_NOT_FOUND, "neither");
}

static void running_out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    swl_status st = SWL_E_NOMEM;
    swl_st *s;
    int n;

    (void)state;
    for (n = 0; st; n++) {
        assert_true(n < 200);
        swl_mem_fail_after(n, true);
        st = swl_st_open(&s, FIXTURES "/sharded", NULL);
        swl_mem_fail_after(-1, false);
        if (st) {
            assert_int_equal(st, SWL_E_NOMEM);
            assert_null(s);
        }
    }
    assert_true(n > 5);
    swl_st_close(s);
}

/* --- writing --- */

static void a_written_header_is_exactly_this(void **state)
{
    static const swl_st_decl decls[] = {
        {"w.\"q\"", SWL_DT_BF16, 2, {2, 3}}, {"s", SWL_DT_F32, 0, {0}}, {"e", SWL_DT_U8, 1, {0}}};
    static const char want[] = "{\"w.\\\"q\\\"\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                               "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
                               "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[16,16]}}";
    uint8_t *header;
    uint64_t n, n_json, align, i;
    swl_st *s;

    (void)state;
    for (align = 1; align <= 4096; align *= 8) {
        assert_int_equal(swl_st_header(decls, 3, align, &header, &n, NULL), SWL_OK);
        memcpy(&n_json, header, 8);
        assert_int_equal(n, n_json + 8);
        assert_int_equal(n % align, 0);
        assert_true(n < 8 + sizeof want - 1 + align);
        assert_memory_equal(header + 8, want, sizeof want - 1);
        for (i = 8 + sizeof want - 1; i < n; i++)
            assert_int_equal(header[i], ' ');
        assert_int_equal(swl_st_parse(&s, header, n, n + 16, "x", NULL), SWL_OK);
        assert_int_equal(swl_st_count(s), 3);
        assert_int_equal(swl_st_find(s, "s")->offset, n + 12);
        swl_st_close(s);
        swl_free(header);
    }
}

static void declarations_that_make_no_file_are_refused(void **state)
{
    static const swl_st_decl bad[][2] = {
        {{"a", SWL_DT_U8, 1, {1}}, {"a", SWL_DT_U8, 1, {1}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"b", SWL_DT_NONE, 1, {1}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"b", SWL_DT_U8, 1, {-1}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"b", SWL_DT_U8, 9, {1}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"b", SWL_DT_U8, 2, {INT64_MAX, 2}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"b", SWL_DT_U8, 1, {INT64_MAX}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"__metadata__", SWL_DT_U8, 1, {1}}},
        {{"a", SWL_DT_U8, 1, {1}}, {"\xff", SWL_DT_U8, 1, {1}}},
    };
    uint8_t *header = (uint8_t *)1;
    uint64_t n;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(swl_st_header(bad[i], 2, 8, &header, &n, NULL), SWL_E_ARG);
        assert_null(header);
    }
    assert_int_equal(swl_st_header(bad[0], 1, 0, &header, &n, NULL), SWL_E_ARG);
    assert_int_equal(swl_st_header(bad[0], 1, 8, &header, &n, NULL), SWL_OK);
    swl_free(header);
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_the_public_package_is_read),
        cmocka_unit_test(shards_of_an_index_are_one_set),
        cmocka_unit_test(without_an_index_the_model_files_are_one_set),
        cmocka_unit_test(reads_stay_inside_the_tensor),
        cmocka_unit_test(missing_and_wrong_paths_are_named),
        IN_DIR(every_truncation_is_refused),
        cmocka_unit_test(lengths_are_checked_before_memory_is_taken),
        cmocka_unit_test(well_formed_headers_are_accepted),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(fields_of_the_wrong_kind_are_refused),
        cmocka_unit_test(offsets_that_do_not_add_up_are_refused),
        cmocka_unit_test(extravagant_headers_are_refused_or_read),
        cmocka_unit_test(escapes_in_names_are_decoded),
        cmocka_unit_test(unknown_fields_are_skipped_if_they_are_json),
        IN_DIR(an_index_must_name_plain_files),
        IN_DIR(an_index_that_does_not_fit_the_shards_is_refused),
        IN_DIR(a_tensor_in_two_shards_is_the_one_that_the_index_names),
        IN_DIR(an_empty_directory_is_refused),
        cmocka_unit_test(running_out_of_memory_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_written_header_is_exactly_this),
        cmocka_unit_test(declarations_that_make_no_file_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
