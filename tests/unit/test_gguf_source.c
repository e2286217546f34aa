/*
 * A GGUF model as a source: names, shapes and order of what is shown, files made from the metadata, lack of memory. The
 * weights of tiny.gguf say where they belong: those of value head h hold h (out_proj: h + 1), of expert e and its three
 * projections (e + 1) times 1, 2, 4.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "install/open_source.h"

#define TINY SWL_TEST_DATA "/fixtures/gguf/tiny.gguf"

static swl_checkpoint *opened(bool exact_scales)
{
    swl_error err = {0};
    swl_checkpoint *c;

    if (swl_open_source(&c, TINY, exact_scales, &err))
        fail_msg("%s", err.message);
    return c;
}

static const swl_st_tensor *tensor(const swl_checkpoint *c, const char *name)
{
    const swl_st_tensor *t = swl_checkpoint_find(c, name);

    if (!t)
        fail_msg("no tensor %s", name);
    return t;
}

/* The bytes of a tensor, asked for in pieces of odd lengths. */
static uint8_t *bytes(const swl_checkpoint *c, const char *name)
{
    const swl_st_tensor *t = tensor(c, name);
    uint8_t *p = swl_calloc(t->size, 1);
    uint64_t n, piece = 1;

    for (uint64_t at = 0; at < t->size; at += n, piece = piece * 3 % 1009) {
        n = t->size - at < piece ? t->size - at : piece;
        assert_int_equal(swl_st_read(c->dense, t, at, p + at, n, NULL), SWL_OK);
    }
    return p;
}

/* Row `row` of the matrix NAME (of all experts' rows when it is stacked). */
static void row_of(const swl_checkpoint *c, const char *name, int32_t row, int32_t cols, float *out)
{
    static const char *const parts[] = {"weight", "scales", "biases"};
    char full[128];
    uint8_t *data[3] = {NULL};
    swl_matrix m = {.rows = row + 1, .cols = cols};

    for (int i = 0; i < 3; i++) {
        snprintf(full, sizeof full, "%s.%s", name, parts[i]);
        if (!i || swl_checkpoint_find(c, full))
            data[i] = bytes(c, full);
        if (i == 1 && data[1])
            m.sdtype = tensor(c, full)->dtype;
    }
    snprintf(full, sizeof full, "%s.weight", name);
    m.type = data[1] ? SWL_W_A8 : swl_wtype_plain(tensor(c, full)->dtype);
    m.group = data[1] ? 32 : 0;
    m.data = data[0];
    m.scales = data[1];
    m.biases = data[2];
    swl_matrix_row_f32(&m, row, out);
    for (int i = 0; i < 3; i++)
        swl_free(data[i]);
}

static void expect_row(const swl_checkpoint *c, const char *name, int32_t row, int32_t cols, float want)
{
    float x[256];

    row_of(c, name, row, cols, x);
    for (int32_t i = 0; i < cols; i++)
        if (!(fabsf(x[i] - want) <= 0.002f * (1 + fabsf(want))))
            fail_msg("%s, row %d, column %d: %g, expected %g", name, (int)row, (int)i, (double)x[i], (double)want);
}

static void heads_come_in_grouped_order(void **state)
{
    swl_checkpoint *c = opened(false);
    float x[128];
    float *v;

    (void)state;
    expect_row(c, "model.layers.0.linear_attn.in_proj_qkv", 63, 32, 64);
    for (int h = 0; h < 4; h++)
        for (int i = 0; i < 32; i += 31) {
            expect_row(c, "model.layers.0.linear_attn.in_proj_qkv", 64 + 32 * h + i, 32, (float)h);
            expect_row(c, "model.layers.0.linear_attn.in_proj_z", 32 * h + i, 32, (float)h);
        }
    for (int h = 0; h < 4; h++) {
        expect_row(c, "model.layers.0.linear_attn.in_proj_b", h, 32, (float)h);
        expect_row(c, "model.layers.0.linear_attn.in_proj_a", h, 32, (float)h + 8);
    }
    row_of(c, "model.layers.0.linear_attn.out_proj", 5, 128, x);
    for (int i = 0; i < 128; i++)
        assert_true(fabsf(x[i] - (float)(i / 32 + 1)) < 0.01f);
    v = (float *)(void *)bytes(c, "model.layers.0.linear_attn.conv1d.weight");
    for (int i = 0; i < 192; i++)
        assert_true(v[4 * i + 3] == (i < 64 ? 64.0f : (float)((i - 64) / 32)));
    swl_free(v);
    v = (float *)(void *)bytes(c, "model.layers.0.linear_attn.A_log");
    for (int h = 0; h < 4; h++)
        assert_true(fabsf(v[h] - (float)h / 2) < 1e-6f);
    swl_free(v);
    v = (float *)(void *)bytes(c, "model.layers.0.linear_attn.dt_bias");
    for (int h = 0; h < 4; h++)
        assert_true(v[h] == (float)h + 0.5f);
    swl_free(v);
    swl_checkpoint_close(c);
}

static void experts_are_stacked_and_gate_and_up_apart(void **state)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    swl_checkpoint *c = opened(false);
    char name[64];

    (void)state;
    for (int p = 0; p < 3; p++) {
        snprintf(name, sizeof name, "model.layers.1.mlp.switch_mlp.%s", names[p]);
        for (int e = 0; e < 2; e++)
            for (int i = 0; i < 32; i += 31)
                expect_row(c, name, 32 * e + i, 32, (float)((e + 1) << p));
    }
    assert_int_equal(tensor(c, "model.layers.1.mlp.switch_mlp.up_proj.weight")->n_dims, 3);
    assert_int_equal(tensor(c, "model.layers.1.mlp.switch_mlp.up_proj.weight")->shape[0], 2);
    assert_int_equal(tensor(c, "model.layers.1.mlp.switch_mlp.up_proj.scales")->dtype, SWL_DT_F16);
    assert_int_equal(tensor(c, "model.layers.1.mlp.shared_expert_gate.weight")->n_dims, 2);
    swl_checkpoint_close(c);
}

static const char *made(const swl_checkpoint *c, const char *name)
{
    for (int32_t i = 0; i < c->n_made; i++)
        if (!strcmp(c->made[i].name, name))
            return c->made[i].text;
    fail_msg("no file %s was made", name);
    return NULL;
}

static void config_and_text_come_from_the_metadata(void **state)
{
    swl_checkpoint *c = opened(true);
    const swl_config *g = &c->config;

    (void)state;
    assert_int_equal(c->kind, SWL_CHECKPOINT_GGUF);
    assert_true(c->norms_hold_one_plus_w);
    assert_int_equal(g->family, SWL_FAMILY_35_MOE);
    assert_true(g->n_layers == 2 && g->layers[0].mixer == SWL_MIXER_DELTANET && g->layers[1].mixer == SWL_MIXER_ATTENTION);
    assert_true(g->n_k_heads == 2 && g->n_v_heads == 4 && g->k_dim == 16 && g->v_dim == 32 && g->rotary_dims == 8);
    assert_true(g->n_experts == 2 && g->n_experts_used == 1 && g->expert_width == 32 && g->vocab == 40);
    assert_non_null(strstr(c->config_text, "\"eos_token_id\": 3"));
    assert_string_equal(made(c, "chat_template.jinja"), "{{ messages }}");
    assert_non_null(strstr(made(c, "tokenizer.json"), "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}"));
    assert_non_null(strstr(made(c, "tokenizer.json"), "\"merges\": [\"a b\"]"));
    assert_null(strstr(made(c, "tokenizer.json"), "PAD"));
    assert_non_null(strstr(made(c, "tokenizer_config.json"), "\"eos_token\": \"<|im_end|>\""));
    swl_checkpoint_close(c);
}

static void lack_of_memory_is_a_clean_error(void **state)
{
    swl_checkpoint *c;
    swl_error err;
    swl_status st = SWL_E_NOMEM;

    (void)state;
    for (int64_t i = 0; st; i++) {
        swl_mem_fail_after(i, false);
        st = swl_open_source(&c, TINY, false, &err);
        swl_mem_fail_after(-1, false);
        assert_true(!st || (st == SWL_E_NOMEM && !c));
    }
    swl_checkpoint_close(c);
}

static void the_engine_says_what_to_do_with_a_file(void **state)
{
    swl_checkpoint *c;
    swl_error err = {0};

    (void)state;
    assert_int_equal(swl_checkpoint_open(&c, TINY, &err), SWL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "a GGUF file must be converted first"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_come_in_grouped_order),
        cmocka_unit_test(experts_are_stacked_and_gate_and_up_apart),
        cmocka_unit_test(config_and_text_come_from_the_metadata),
        cmocka_unit_test(lack_of_memory_is_a_clean_error),
        cmocka_unit_test(the_engine_says_what_to_do_with_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
