/* config.json: every dialect of the family, and refusal by name and value of what would need other arithmetic. The
 * expected numbers are those of the published models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/config.h"

/* Qwen3-Next-80B-A3B-Instruct: flat, flat rope fields. */
static const char next80[] =
    "{\"architectures\":[\"Qwen3NextForCausalLM\"],\"attention_dropout\":0.0,\"decoder_sparse_step\":1,"
    "\"full_attention_interval\":4,\"head_dim\":256,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
    "\"initializer_range\":0.02,\"intermediate_size\":5120,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,"
    "\"linear_num_key_heads\":16,\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,"
    "\"max_position_embeddings\":262144,\"mlp_only_layers\":[],\"model_type\":\"qwen3_next\","
    "\"moe_intermediate_size\":512,\"norm_topk_prob\":true,\"num_attention_heads\":16,\"num_experts\":512,"
    "\"num_experts_per_tok\":10,\"num_hidden_layers\":48,\"num_key_value_heads\":2,\"partial_rotary_factor\":0.25,"
    "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":10000000,\"shared_expert_intermediate_size\":512,"
    "\"tie_word_embeddings\":false,\"vocab_size\":151936}";

/* Qwen3.5-35B-A3B: nested, rope_parameters, vision parts. */
static const char moe35[] =
    "{\"architectures\":[\"Qwen3_5MoeForConditionalGeneration\"],\"image_token_id\":248056,"
    "\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"attention_bias\":false,\"attention_dropout\":0.0,"
    "\"attn_output_gate\":true,\"full_attention_interval\":4,\"head_dim\":256,\"hidden_act\":\"silu\","
    "\"hidden_size\":2048,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_num_key_heads\":16,"
    "\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,\"mamba_ssm_dtype\":\"float32\","
    "\"max_position_embeddings\":262144,\"model_type\":\"qwen3_5_moe_text\",\"moe_intermediate_size\":512,"
    "\"mtp_num_hidden_layers\":1,\"mtp_use_dedicated_embeddings\":false,\"num_attention_heads\":16,"
    "\"num_experts\":256,\"num_experts_per_tok\":8,\"num_hidden_layers\":40,\"num_key_value_heads\":2,"
    "\"rms_norm_eps\":1e-06,\"rope_parameters\":{\"mrope_interleaved\":true,\"mrope_section\":[11,11,10],"
    "\"partial_rotary_factor\":0.25,\"rope_theta\":1e7,\"rope_type\":\"default\"},"
    "\"shared_expert_intermediate_size\":512,\"tie_word_embeddings\":false,\"vocab_size\":248320},"
    "\"tie_word_embeddings\":false,\"vision_config\":{\"depth\":27,\"hidden_size\":1152}}";

/* Qwen3.5-4B: nested, dense, tied. */
static const char dense4[] =
    "{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"text_config\":{\"model_type\":\"qwen3_5_text\","
    "\"head_dim\":256,\"hidden_size\":2560,\"intermediate_size\":9216,\"linear_key_head_dim\":128,"
    "\"linear_num_key_heads\":16,\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,"
    "\"max_position_embeddings\":262144,\"num_attention_heads\":16,\"num_hidden_layers\":32,"
    "\"num_key_value_heads\":4,\"rope_parameters\":{\"rope_theta\":10000000,\"rope_type\":\"default\"},"
    "\"tie_word_embeddings\":true,\"vocab_size\":248320}}";

static swl_status parse(swl_config *c, const char *json, swl_error *err)
{
    memset(err, 0, sizeof *err);
    return swl_config_parse(c, json, strlen(json), "dir/config.json", err);
}

/* `base` with `key` of its text model set to the JSON value `value` (NULL: removed). */
static swl_status parse_with(swl_config *c, const char *base, const char *key, const char *value, swl_error *err)
{
    json_t *root = json_loads(base, 0, NULL), *text = json_object_get(root, "text_config");
    swl_status st;
    char *s;

    text = text ? text : root;
    if (value)
        json_object_set_new(text, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(text, key);
    s = json_dumps(root, JSON_COMPACT);
    st = parse(c, s, err);
    free(s);
    json_decref(root);
    return st;
}

static void refuses(const char *base, const char *key, const char *value, swl_status want, const char *text)
{
    swl_config c;
    swl_error err;
    swl_status st = parse_with(&c, base, key, value, &err);

    if (st != want || !strstr(err.message, text) || strcmp(err.file, "dir/config.json"))
        print_error("%s = %s: status %d, message \"%s\", file \"%s\"\n", key, value ? value : "(absent)", st,
                    err.message, err.file);
    assert_int_equal(st, want);
    assert_non_null(strstr(err.message, text));
    assert_string_equal(err.file, "dir/config.json");
}

static void accepts(swl_config *c, const char *base, const char *key, const char *value)
{
    swl_error err;
    swl_status st = parse_with(c, base, key, value, &err);

    if (st)
        print_error("%s = %s: %s\n", key, value ? value : "(absent)", err.message);
    assert_int_equal(st, SWL_OK);
}

static void reads_flat_next(void **state)
{
    swl_config c;
    swl_error err;

    (void)state;
    assert_int_equal(parse(&c, next80, &err), SWL_OK);
    assert_int_equal(c.family, SWL_FAMILY_NEXT);
    assert_string_equal(c.model_type, "qwen3_next");
    assert_int_equal(c.hidden, 2048);
    assert_int_equal(c.n_layers, 48);
    assert_int_equal(c.vocab, 151936);
    assert_int_equal(c.ctx_max, 262144);
    assert_float_equal(c.norm_eps, 1e-6f, 0);
    assert_int_equal(c.intermediate, 0); /* the file has one, but no layer is dense */
    assert_int_equal(c.n_heads, 16);
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.head_dim, 256);
    assert_int_equal(c.rotary_dims, 64);
    assert_true(c.rope_theta == 1e7);
    assert_false(c.yarn);
    assert_int_equal(c.n_k_heads, 16);
    assert_int_equal(c.n_v_heads, 32);
    assert_int_equal(c.k_dim, 128);
    assert_int_equal(c.v_dim, 128);
    assert_int_equal(c.conv_width, 4);
    assert_int_equal(c.n_experts, 512);
    assert_int_equal(c.n_experts_used, 10);
    assert_int_equal(c.expert_width, 512);
    assert_int_equal(c.shared_width, 512);
    assert_true(c.norm_topk);
    assert_false(c.tied);
    assert_int_equal(c.n_mtp_layers, 0);
    for (int32_t i = 0; i < 48; i++) {
        assert_int_equal(c.layers[i].mixer, i % 4 == 3 ? SWL_MIXER_ATTENTION : SWL_MIXER_DELTANET);
        assert_int_equal(c.layers[i].ffn, SWL_FFN_MOE);
    }
}

static void reads_nested_moe(void **state)
{
    swl_config c;
    swl_error err;

    (void)state;
    assert_int_equal(parse(&c, moe35, &err), SWL_OK);
    assert_int_equal(c.family, SWL_FAMILY_35_MOE);
    assert_string_equal(c.model_type, "qwen3_5_moe_text");
    assert_int_equal(c.n_layers, 40);
    assert_int_equal(c.n_experts, 256);
    assert_int_equal(c.n_experts_used, 8);
    assert_int_equal(c.rotary_dims, 64);
    assert_true(c.rope_theta == 1e7);
    assert_true(c.norm_topk);
    assert_int_equal(c.n_mtp_layers, 1);
    assert_int_equal(c.layers[39].mixer, SWL_MIXER_ATTENTION);
    accepts(&c, moe35, "mtp_use_dedicated_embeddings", "true");
    assert_int_equal(c.n_mtp_layers, 0);
}

static void reads_nested_dense(void **state)
{
    swl_config c;
    swl_error err;

    (void)state;
    assert_int_equal(parse(&c, dense4, &err), SWL_OK);
    assert_int_equal(c.family, SWL_FAMILY_35_DENSE);
    assert_int_equal(c.n_experts, 0);
    assert_int_equal(c.intermediate, 9216);
    assert_int_equal(c.rotary_dims, 64); /* 0.25 when nothing says otherwise */
    assert_true(c.tied);
    assert_int_equal(c.layers[3].ffn, SWL_FFN_DENSE);
    refuses(dense4, "num_experts", "8", SWL_E_UNSUPPORTED, "num_experts 8");
    refuses(dense4, "intermediate_size", NULL, SWL_E_CORRUPT, "\"intermediate_size\" is missing");
}

static void reads_flat_text_only_export(void **state)
{
    json_t *root = json_loads(moe35, 0, NULL);
    char *s = json_dumps(json_object_get(root, "text_config"), 0);
    swl_config c;
    swl_error err;

    (void)state;
    assert_int_equal(parse(&c, s, &err), SWL_OK);
    assert_int_equal(c.family, SWL_FAMILY_35_MOE);
    free(s);
    json_decref(root);
}

static void reads_the_interval(void **state)
{
    swl_config c;

    (void)state;
    accepts(&c, dense4, "full_attention_interval", "2");
    assert_int_equal(c.layers[1].mixer, SWL_MIXER_ATTENTION);
    assert_int_equal(c.layers[2].mixer, SWL_MIXER_DELTANET);
    refuses(dense4, "layer_types", "[\"full_attention\",\"linear_attention\"]", SWL_E_CORRUPT,
            "layer_types has 2 entries");
    refuses(dense4, "layer_types", "\"full_attention\"", SWL_E_CORRUPT, "\"layer_types\" is not an array");
}

static void reads_layer_types(void **state)
{
    static const char flat[] =
        "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,\"intermediate_size\":64,\"linear_key_head_dim\":16,"
        "\"linear_num_key_heads\":1,\"linear_num_value_heads\":2,\"linear_value_head_dim\":16,\"head_dim\":32,"
        "\"max_position_embeddings\":100,\"num_attention_heads\":2,\"num_hidden_layers\":2,\"num_key_value_heads\":1,"
        "\"rope_theta\":10000.0,\"vocab_size\":10,\"full_attention_interval\":4}";
    swl_config c;

    (void)state;
    accepts(&c, flat, "layer_types", "[\"full_attention\",\"linear_attention\"]");
    assert_int_equal(c.layers[0].mixer, SWL_MIXER_ATTENTION);
    assert_int_equal(c.layers[1].mixer, SWL_MIXER_DELTANET);
    assert_int_equal(c.rotary_dims, 8);
    refuses(flat, "layer_types", "[\"full_attention\",\"sliding_attention\"]", SWL_E_UNSUPPORTED,
            "layer_types[1] is \"sliding_attention\"");
    refuses(flat, "layer_types", "[7,\"linear_attention\"]", SWL_E_UNSUPPORTED, "layer_types[0]");
}

/* Layer i is MoE iff it is not in mlp_only_layers and (i + 1) % decoder_sparse_step == 0. */
static void next_mixes_dense_and_moe_layers(void **state)
{
    swl_config c;

    (void)state;
    accepts(&c, next80, "decoder_sparse_step", "2");
    assert_int_equal(c.layers[0].ffn, SWL_FFN_DENSE);
    assert_int_equal(c.layers[1].ffn, SWL_FFN_MOE);
    assert_int_equal(c.intermediate, 5120);
    accepts(&c, next80, "mlp_only_layers", "[0,47]");
    assert_int_equal(c.layers[0].ffn, SWL_FFN_DENSE);
    assert_int_equal(c.layers[1].ffn, SWL_FFN_MOE);
    assert_int_equal(c.layers[47].ffn, SWL_FFN_DENSE);
    accepts(&c, next80, "num_experts", "0");
    assert_int_equal(c.layers[5].ffn, SWL_FFN_DENSE);
    assert_int_equal(c.n_experts, 0);
    refuses(next80, "mlp_only_layers", "[48]", SWL_E_CORRUPT, "mlp_only_layers[0]");
    refuses(next80, "mlp_only_layers", "[-1]", SWL_E_CORRUPT, "mlp_only_layers[0]");
    refuses(next80, "mlp_only_layers", "3", SWL_E_CORRUPT, "\"mlp_only_layers\" is not an array");
    refuses(next80, "decoder_sparse_step", "0", SWL_E_CORRUPT, "decoder_sparse_step");
    refuses(moe35, "decoder_sparse_step", "2", SWL_E_UNSUPPORTED, "decoder_sparse_step 2");
    refuses(moe35, "mlp_only_layers", "[0]", SWL_E_UNSUPPORTED, "1 mlp_only_layers");
}

static void missing_norm_topk_means_true(void **state)
{
    swl_config c;

    (void)state;
    accepts(&c, next80, "norm_topk_prob", NULL);
    assert_true(c.norm_topk);
    accepts(&c, next80, "norm_topk_prob", "false");
    assert_false(c.norm_topk);
    refuses(moe35, "norm_topk_prob", "false", SWL_E_UNSUPPORTED, "norm_topk_prob \"false\"");
}

static void rope_parameters_win_over_flat_fields(void **state)
{
    swl_config c;

    (void)state;
    accepts(&c, next80, "rope_parameters", "{\"rope_theta\":5000000.0,\"partial_rotary_factor\":0.5}");
    assert_true(c.rope_theta == 5e6);
    assert_int_equal(c.rotary_dims, 128);
    accepts(&c, moe35, "partial_rotary_factor", "0.5");
    assert_int_equal(c.rotary_dims, 64);
    accepts(&c, dense4, "partial_rotary_factor", "0.5");
    assert_int_equal(c.rotary_dims, 128);
    accepts(&c, next80, "rope_theta", "5e6");
    assert_true(c.rope_theta == 5e6);
}

static void reads_yarn(void **state)
{
    swl_config c;

    (void)state;
    accepts(&c, moe35, "rope_parameters",
            "{\"rope_type\":\"yarn\",\"rope_theta\":10000000,\"partial_rotary_factor\":0.25,\"factor\":4.0,"
            "\"original_max_position_embeddings\":262144}");
    assert_true(c.yarn);
    assert_true(c.yarn_factor == 4);
    assert_true(c.yarn_beta_fast == 32);
    assert_true(c.yarn_beta_slow == 1);
    assert_true(c.yarn_attention_factor == 0);
    assert_int_equal(c.yarn_ctx_original, 262144);
    assert_int_equal(c.ctx_max, 1048576);
    accepts(&c, next80, "rope_scaling",
            "{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":131072,\"beta_fast\":16,"
            "\"beta_slow\":2,\"attention_factor\":1.25}");
    assert_true(c.yarn && c.yarn_factor == 2 && c.yarn_beta_fast == 16 && c.yarn_beta_slow == 2);
    assert_true(c.yarn_attention_factor == 1.25);
    assert_int_equal(c.ctx_max, 262144);
    assert_true(c.rope_theta == 1e7);
    refuses(next80, "rope_scaling", "{\"type\":\"yarn\"}", SWL_E_CORRUPT, "\"factor\" is missing");
    refuses(next80, "rope_scaling", "{\"type\":\"yarn\",\"factor\":0.5}", SWL_E_CORRUPT, "rope factor is 0.5");
    refuses(next80, "rope_scaling", "{\"type\":\"yarn\",\"factor\":2,\"mscale\":0.7}", SWL_E_UNSUPPORTED, "mscale 0.7");
    refuses(next80, "rope_scaling", "{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}", SWL_E_UNSUPPORTED,
            "truncate");
    refuses(next80, "rope_scaling", "{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":1}", SWL_E_CORRUPT, "beta_fast");
    refuses(next80, "rope_scaling", "{\"type\":\"yarn\",\"factor\":2,\"attention_factor\":0}", SWL_E_CORRUPT,
            "attention_factor is 0");
}

static void refuses_other_ropes(void **state)
{
    (void)state;
    refuses(next80, "rope_scaling", "{\"type\":\"linear\",\"factor\":2}", SWL_E_UNSUPPORTED, "rope type \"linear\"");
    refuses(moe35, "rope_parameters", "{\"rope_type\":\"llama3\",\"rope_theta\":1e7}", SWL_E_UNSUPPORTED, "\"llama3\"");
    refuses(moe35, "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4}", SWL_E_CORRUPT,
            "rope_scaling says \"yarn\"");
    refuses(moe35, "rope_parameters", "[]", SWL_E_CORRUPT, "\"rope_parameters\" is not an object");
    refuses(next80, "rope_theta", NULL, SWL_E_CORRUPT, "\"rope_theta\" is missing");
    refuses(next80, "rope_theta", "-1", SWL_E_CORRUPT, "rope_theta is -1");
    refuses(next80, "rope_theta", "\"1e7\"", SWL_E_CORRUPT, "\"rope_theta\" is a string");
    refuses(next80, "partial_rotary_factor", "1.5", SWL_E_CORRUPT, "partial_rotary_factor is 1.5");
    refuses(next80, "partial_rotary_factor", "0.004", SWL_E_CORRUPT, "gives 1 rotary dimensions");
    refuses(next80, "partial_rotary_factor", "0.2565", SWL_E_CORRUPT, "gives 65 rotary dimensions");
}

static void refuses_other_arithmetic(void **state)
{
    swl_config c;

    (void)state;
    refuses(next80, "attention_bias", "true", SWL_E_UNSUPPORTED, "attention_bias \"true\"");
    refuses(moe35, "attn_output_gate", "false", SWL_E_UNSUPPORTED, "attn_output_gate \"false\"");
    refuses(moe35, "hidden_act", "\"gelu\"", SWL_E_UNSUPPORTED, "hidden_act \"gelu\"");
    refuses(moe35, "attention_dropout", "0.1", SWL_E_UNSUPPORTED, "attention_dropout 0.1");
    refuses(moe35, "output_gate_type", "\"sigmoid\"", SWL_E_UNSUPPORTED, "output_gate_type \"sigmoid\"");
    accepts(&c, moe35, "output_gate_type", "\"swish\"");
    accepts(&c, moe35, "attention_dropout", "0");
    accepts(&c, moe35, "use_sliding_window", "true");
}

static void refuses_other_models(void **state)
{
    swl_config c;
    swl_error err;

    (void)state;
    refuses(next80, "model_type", "\"qwen4_exp\"", SWL_E_UNSUPPORTED, "another architecture");
    refuses(next80, "model_type", "\"llama\"", SWL_E_UNSUPPORTED, "model_type \"llama\"");
    refuses(next80, "model_type", "\"qwen3_5_vision\"", SWL_E_UNSUPPORTED, "vision encoder");
    refuses(next80, "model_type", NULL, SWL_E_CORRUPT, "\"model_type\" is missing");
    refuses(moe35, "model_type", "\"qwen3_next\"", SWL_E_CORRUPT, "text_config's is \"qwen3_next\"");
    accepts(&c, moe35, "model_type", NULL);
    assert_string_equal(c.model_type, "qwen3_5_moe");
    assert_int_equal(parse(&c, "[]", &err), SWL_E_CORRUPT);
    assert_int_equal(parse(&c, "{\"model_type\":", &err), SWL_E_CORRUPT);
    assert_int_equal(parse(&c, "{\"model_type\":\"qwen3_next\",\"text_config\":3}", &err), SWL_E_CORRUPT);
}

static void refuses_sizes_out_of_range(void **state)
{
    (void)state;
    refuses(next80, "hidden_size", "0", SWL_E_CORRUPT, "\"hidden_size\" is 0");
    refuses(next80, "hidden_size", "-5", SWL_E_CORRUPT, "\"hidden_size\" is -5");
    refuses(next80, "hidden_size", "9223372036854775807", SWL_E_CORRUPT, "\"hidden_size\"");
    refuses(next80, "hidden_size", "2048.5", SWL_E_CORRUPT, "\"hidden_size\" is a real");
    refuses(next80, "num_hidden_layers", "513", SWL_E_CORRUPT, "\"num_hidden_layers\" is 513");
    refuses(next80, "num_key_value_heads", "3", SWL_E_CORRUPT, "num_attention_heads is 16");
    refuses(next80, "linear_num_key_heads", "12", SWL_E_CORRUPT, "linear_num_value_heads is 32");
    refuses(next80, "num_experts_per_tok", "513", SWL_E_CORRUPT, "\"num_experts_per_tok\" is 513");
    refuses(next80, "num_experts_per_tok", NULL, SWL_E_CORRUPT, "\"num_experts_per_tok\" is missing");
    refuses(next80, "moe_intermediate_size", NULL, SWL_E_CORRUPT, "\"moe_intermediate_size\" is missing");
    refuses(moe35, "num_experts", NULL, SWL_E_CORRUPT, "\"num_experts\" is missing");
    refuses(moe35, "num_experts", "0", SWL_E_CORRUPT, "\"num_experts\" is 0");
    refuses(next80, "linear_conv_kernel_dim", "9", SWL_E_CORRUPT, "\"linear_conv_kernel_dim\" is 9");
    refuses(next80, "linear_conv_kernel_dim", "1", SWL_E_CORRUPT, "\"linear_conv_kernel_dim\" is 1");
    refuses(next80, "rms_norm_eps", "0", SWL_E_CORRUPT, "rms_norm_eps is 0");
    refuses(next80, "vocab_size", NULL, SWL_E_CORRUPT, "\"vocab_size\" is missing");
    refuses(next80, "vocab_size", "\"many\"", SWL_E_CORRUPT, "\"vocab_size\" is a string");
}

static void the_roots_tie_wins(void **state)
{
    json_t *root = json_loads(dense4, 0, NULL);
    swl_config c;
    swl_error err;
    char *s;

    (void)state;
    json_object_set_new(json_object_get(root, "text_config"), "tie_word_embeddings", json_false());
    s = json_dumps(root, 0);
    assert_int_equal(parse(&c, s, &err), SWL_OK);
    assert_true(c.tied);
    free(s);
    json_object_del(root, "tie_word_embeddings");
    s = json_dumps(root, 0);
    assert_int_equal(parse(&c, s, &err), SWL_OK);
    assert_false(c.tied);
    free(s);
    json_decref(root);
}

static void names_a_missing_file(void **state)
{
    swl_config c;
    swl_error err;

    (void)state;
    assert_int_equal(swl_config_load(&c, "/nonexistent-directory", &err), SWL_E_NOT_FOUND);
    assert_string_equal(err.file, "/nonexistent-directory/config.json");
}

/* What the reference program wrote, where the copies are at hand. */
static void loads_the_reference_models(void **state)
{
    static const char *const names[] = {"next-a", "next-a-mlx4", "q35dense-a", "q35moe-a"};
    const char *dir = getenv("SWL_ORACLE_DIR");
    int32_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = swl_asprintf("%s/%s", dir ? dir : SWL_TEST_DATA "/oracle/cases", names[i]);
        swl_config c;
        swl_error err;
        swl_status st = swl_config_load(&c, path, &err);

        swl_free(path);
        if (st == SWL_E_NOT_FOUND)
            continue;
        n++;
        assert_int_equal(st, SWL_OK);
        assert_int_equal(c.hidden, 128);
        assert_int_equal(c.rotary_dims, 8);
        assert_true(c.rope_theta == 1e7);
        assert_int_equal(c.layers[3].mixer, SWL_MIXER_ATTENTION);
    }
    if (!n)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_flat_next),
        cmocka_unit_test(reads_nested_moe),
        cmocka_unit_test(reads_nested_dense),
        cmocka_unit_test(reads_flat_text_only_export),
        cmocka_unit_test(reads_the_interval),
        cmocka_unit_test(reads_layer_types),
        cmocka_unit_test(next_mixes_dense_and_moe_layers),
        cmocka_unit_test(missing_norm_topk_means_true),
        cmocka_unit_test(rope_parameters_win_over_flat_fields),
        cmocka_unit_test(reads_yarn),
        cmocka_unit_test(refuses_other_ropes),
        cmocka_unit_test(refuses_other_arithmetic),
        cmocka_unit_test(refuses_other_models),
        cmocka_unit_test(refuses_sizes_out_of_range),
        cmocka_unit_test(the_roots_tie_wins),
        cmocka_unit_test(names_a_missing_file),
        cmocka_unit_test(loads_the_reference_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
