/* test_synthetic.c: containers of known shapes with random weights: sizes, determinism, sane values, both places of experts. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <swiftlet/swiftlet.h>

#include "format/checkpoint.h"
#include "format/synthetic.h"
#include "temp_root.h"

static void create(const char *name, const char *output, uint64_t seed, bool absent)
{
    swl_synthetic_options o;
    swl_error err = {0};

    swl_synthetic_options_init(&o);
    o.name = name;
    o.output = output;
    o.seed = seed;
    o.experts_absent = absent;
    if (swl_synthetic_create(&o, &err))
        fail_msg("%s", err.message);
}

static swl_model *open_model(const char *path)
{
    swl_model_options o;
    swl_model *m;
    swl_error err = {0};

    swl_model_options_init(&o);
    o.path = path;
    o.n_threads = 2;
    o.ctx_tokens = 64;
    if (swl_model_open(&m, &o, &err))
        fail_msg("%s", err.message);
    return m;
}

/* free with free() */
static float *logits_of(const char *path, const int32_t *ids, int32_t n)
{
    swl_model *m = open_model(path);
    swl_model_info info;
    swl_session *s;
    swl_error err = {0};
    float *logits;

    swl_model_info_get(m, &info);
    assert_true(info.synthetic);
    logits = calloc((size_t)info.vocab, sizeof *logits);
    assert_int_equal(swl_session_create(&s, m, &err), SWL_OK);
    if (swl_session_eval(s, ids, n, SWL_LOGITS_LAST, logits, &err))
        fail_msg("%s", err.message);
    swl_session_free(s);
    swl_model_close(m);
    return logits;
}

static void experts_in_memory_equal_those_on_disk(void **state)
{
    const int32_t ids[] = {1, 500, 1023, 7, 7, 300};
    float *stored, *absent;

    (void)state;
    create("tiny", in_root("stored.qpack"), 1, false);
    create("tiny", in_root("absent.qpack"), 1, true);
    stored = logits_of(in_root("stored.qpack"), ids, 6);
    absent = logits_of(in_root("absent.qpack"), ids, 6);
    assert_memory_equal(stored, absent, 1024 * sizeof *stored);
    for (int i = 0; i < 1024; i++)
        assert_true(isfinite(stored[i]));
    free(stored);
    free(absent);
}

static void both_families_run_and_logits_are_neither_flat_nor_wild(void **state)
{
    const char *const names[] = {"tiny", "tiny-next"};
    const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};

    (void)state;
    for (int k = 0; k < 2; k++) {
        char file[32];
        double sum = 0, square = 0;
        float *l;

        snprintf(file, sizeof file, "family-%s.qpack", names[k]);
        create(names[k], in_root(file), 7, false);
        l = logits_of(in_root(file), ids, 8);
        for (int i = 0; i < 1024; i++) {
            sum += l[i];
            square += (double)l[i] * l[i];
        }
        assert_true(fabs(sum / 1024) < 0.5);
        assert_true(square / 1024 > 0.1 && square / 1024 < 10); /* unit rows times a normalised vector: about 1 */
        free(l);
    }
}

static void absent_experts_take_no_room_and_need_a_full_pool(void **state)
{
    struct stat sb;
    swl_model_options o;
    swl_model *m;
    swl_error err = {0};

    (void)state;
    create("tiny", in_root("room.qpack"), 1, true);
    assert_int_equal(stat(in_root("room.qpack/packed_experts/layer_00.bin"), &sb), 0);
    /* 16 experts of 3 x 256 x 128 weights at 4.5 bits, each rounded up to 16 KiB */
    assert_int_equal(sb.st_size, 16 * 65536);
    assert_true(sb.st_blocks * 512 < sb.st_size / 2);
    swl_model_options_init(&o);
    o.path = in_root("room.qpack");
    o.pool_slots = 8;
    assert_int_equal(swl_model_open(&m, &o, &err), SWL_E_BUDGET);
    assert_non_null(strstr(err.message, "no experts on disk"));
}

static void seeds_differ_and_unknown_names_are_refused(void **state)
{
    const int32_t ids[] = {11};
    float *a, *b;
    swl_synthetic_options o;
    swl_error err = {0};

    (void)state;
    create("tiny", in_root("one.qpack"), 1, true);
    create("tiny", in_root("two.qpack"), 2, true);
    a = logits_of(in_root("one.qpack"), ids, 1);
    b = logits_of(in_root("two.qpack"), ids, 1);
    assert_memory_not_equal(a, b, 1024 * sizeof *a);
    free(a);
    free(b);
    swl_synthetic_options_init(&o);
    o.name = "qwen9";
    o.output = in_root("none.qpack");
    assert_int_equal(swl_synthetic_create(&o, &err), SWL_E_ARG);
    assert_non_null(strstr(err.message, "qwen3.6-35b"));
    assert_string_equal(swl_synthetic_name(0), "qwen3.6-35b");
    assert_null(swl_synthetic_name(-1));
}

static void the_first_layers_alone_are_a_model(void **state)
{
    static const char *const bad[] = {"tiny/0", "tiny/9", "tiny/", "tiny/4x", "tin/4", "tiny/99999999999"};
    const int32_t ids[] = {1, 2};
    struct stat sb;
    swl_synthetic_options o;

    (void)state;
    create("tiny/4", in_root("four.qpack"), 1, false);
    free(logits_of(in_root("four.qpack"), ids, 2));
    assert_int_equal(stat(in_root("four.qpack/packed_experts/layer_03.bin"), &sb), 0);
    assert_int_not_equal(stat(in_root("four.qpack/packed_experts/layer_04.bin"), &sb), 0);
    swl_synthetic_options_init(&o);
    o.output = in_root("bad.qpack");
    for (int i = 0; i < 6; i++) {
        o.name = bad[i];
        assert_int_equal(swl_synthetic_create(&o, NULL), SWL_E_ARG);
    }
}

static void a_disk_without_room_is_said_and_nothing_is_left(void **state)
{
    swl_synthetic_options o;
    swl_error err = {0};

    (void)state;
    swl_synthetic_options_init(&o);
    o.name = "tiny";
    o.output = in_root("full.qpack");
    o.leave_free = UINT64_C(1) << 60;
    assert_int_equal(swl_synthetic_create(&o, &err), SWL_E_BUDGET);
    assert_int_not_equal(access(in_root("full.qpack"), F_OK), 0);
    assert_int_not_equal(access(in_root("full.qpack.partial"), F_OK), 0);
}

static void bytes_do_not_depend_on_how_they_are_cut(void **state)
{
    static const struct {
        const char *name;
        swl_dtype dtype;
    } tensors[] = {{"a.mlp.gate.weight", SWL_DT_U32}, {"a.mlp.gate.scales", SWL_DT_BF16}, {"a.A_log", SWL_DT_F32}};

    (void)state;
    for (int k = 0; k < 3; k++) {
        uint8_t whole[256], cut[256];
        uint64_t n, i = 0;
        swl_synthetic s;

        swl_synthetic_init(&s, 3, tensors[k].name, tensors[k].dtype, 4);
        swl_synthetic_bytes(&s, 0, whole, 256);
        for (uint64_t at = 0; at < 256; at += n, i++) {
            n = 4 * (1 + i % 5);
            n = n < 256 - at ? n : 256 - at;
            swl_synthetic_bytes(&s, at, cut + at, n);
        }
        assert_memory_equal(whole, cut, 256);
    }
}

/* scale * (code - middle) over uniform codes: mean 0 and standard deviation 1 / sqrt(inputs), within the scales' spread. */
static void matrices_have_the_promised_spread(void **state)
{
    static const char *const bases[] = {"model.layers.0.mlp.switch_mlp.up_proj", "model.layers.0.mlp.gate"};
    enum { GROUPS = 4096, INPUTS = 2048 };
    static uint8_t words[GROUPS * 64];
    static uint16_t scales[GROUPS], biases[GROUPS];

    (void)state;
    for (int k = 0; k < 2; k++) {
        int bits = k ? 8 : 4;
        double sum = 0, square = 0, n = GROUPS * 64.0;
        char name[64];
        swl_synthetic s;

        snprintf(name, sizeof name, "%s.weight", bases[k]);
        assert_int_equal(swl_synthetic_bits(name), bits);
        swl_synthetic_init(&s, 1, name, SWL_DT_U32, INPUTS * bits / 32);
        swl_synthetic_bytes(&s, 0, words, (uint64_t)GROUPS * 64 * bits / 8);
        snprintf(name, sizeof name, "%s.scales", bases[k]);
        swl_synthetic_init(&s, 1, name, SWL_DT_BF16, INPUTS / 64);
        swl_synthetic_bytes(&s, 0, scales, sizeof scales);
        snprintf(name, sizeof name, "%s.biases", bases[k]);
        swl_synthetic_init(&s, 1, name, SWL_DT_BF16, INPUTS / 64);
        swl_synthetic_bytes(&s, 0, biases, sizeof biases);
        for (int i = 0; i < GROUPS * 64; i++) {
            int q = k ? words[i] : words[i / 2] >> 4 * (i % 2) & 15;
            double x = swl_bf16_to_f32(scales[i / 64]) * q + swl_bf16_to_f32(biases[i / 64]);

            sum += x;
            square += x * x;
        }
        assert_true(fabs(sum / n) < 0.02 / sqrt(INPUTS));
        assert_true(fabs(sqrt(square / n) * sqrt(INPUTS) - 1) < 0.05);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_in_memory_equal_those_on_disk),
        cmocka_unit_test(both_families_run_and_logits_are_neither_flat_nor_wild),
        cmocka_unit_test(absent_experts_take_no_room_and_need_a_full_pool),
        cmocka_unit_test(seeds_differ_and_unknown_names_are_refused),
        cmocka_unit_test(the_first_layers_alone_are_a_model),
        cmocka_unit_test(a_disk_without_room_is_said_and_nothing_is_left),
        cmocka_unit_test(bytes_do_not_depend_on_how_they_are_cut),
        cmocka_unit_test(matrices_have_the_promised_spread),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
