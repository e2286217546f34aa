/*
 * config.c: config.json -> swl_config. The dialects (flat Qwen3-Next, nested or flat Qwen3.5 and later) differ only
 * here: whoever holds a swl_config relies on it without asking again.
 *
 * Three kinds of fault: a field that is missing, of the wrong type or out of range, and fields that contradict each
 * other, are SWL_E_CORRUPT; a value that asks for arithmetic that the engine does not do is SWL_E_UNSUPPORTED. Both
 * name the field and the value. Fields that cannot change the text model's numbers are ignored.
 */
#include "format/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define CONFIG_BYTES_MAX (UINT64_C(4) << 20)

/* Far above every released model, low enough that products of any two sizes fit 64 bits and head counts times head
 * sizes fit 32. */
#define WIDTH_MAX   (1 << 20)
#define HEADS_MAX   4096
#define HEAD_MAX    4096
#define EXPERTS_MAX 65536
#define VOCAB_MAX   (1 << 24)
#define CTX_MAX     (1 << 28)

typedef struct reader {
    const json_t *root; /* tie_word_embeddings and model_type may be here only */
    const json_t *text; /* the text model's fields: text_config when present, else the root */
    const char *path;
    swl_error *err;
} reader;

static swl_status unsupported(const reader *r, const char *key, const char *value, const char *want)
{
    return swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1, "%s: %s \"%s\" is not supported, expected %s", r->path,
                       key, value, want);
}

static swl_status i32(const reader *r, const char *key, swl_need need, int32_t min, int32_t max, int32_t *out)
{
    return swl_json_i32(r->text, key, need, min, max, out, r->path, r->err);
}

/* ---- which model ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *model_type;
    swl_family family;
} families[] = {
    {"qwen3_next", SWL_FAMILY_NEXT},  {"qwen3_5_moe", SWL_FAMILY_35_MOE},    {"qwen3_5_moe_text", SWL_FAMILY_35_MOE},
    {"qwen3_5", SWL_FAMILY_35_DENSE}, {"qwen3_5_text", SWL_FAMILY_35_DENSE},
};

static swl_status family_of(const reader *r, const char *model_type, swl_family *out)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(model_type, families[i].model_type)) {
            *out = families[i].family;
            return SWL_OK;
        }
    if (!strncmp(model_type, "qwen4_exp", 9))
        return swl_fail_at(
            r->err, SWL_E_UNSUPPORTED, r->path, -1,
            "%s: model_type \"%s\" (Qwen3.8-Flash-Next) is another architecture (hyper connections, n-gram "
            "embeddings, block indexer) and is not supported",
            r->path, model_type);
    if (strstr(model_type, "vision"))
        return swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1,
                           "%s: model_type \"%s\" is a vision encoder without a text model", r->path, model_type);
    return unsupported(r, "model_type", model_type, "qwen3_next, qwen3_5, qwen3_5_moe or their _text forms");
}

/* Both levels may name the model; a nested file whose two names are of different families is nonsense. */
static swl_status read_family(const reader *r, swl_config *c)
{
    const char *outer = NULL, *inner = NULL;
    swl_family f;
    swl_status st = swl_json_str(r->root, "model_type", SWL_OPTIONAL, &outer, r->path, r->err);

    if (!st && outer)
        st = family_of(r, outer, &f);
    if (!st)
        st = swl_json_str(r->text, "model_type", outer ? SWL_OPTIONAL : SWL_REQUIRED, &inner, r->path, r->err);
    if (!st)
        st = family_of(r, inner ? inner : outer, &c->family);
    if (st)
        return st;
    if (inner && outer && f != c->family)
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: model_type is \"%s\", but text_config's is \"%s\"",
                           r->path, outer, inner);
    strncpy(c->model_type, inner ? inner : outer, sizeof c->model_type - 1);
    return SWL_OK;
}

/* ---- what must not be otherwise --------------------------------------------------------------------------------- */

static swl_status need_bool(const reader *r, const char *key, bool want)
{
    bool v = want;
    swl_status st = swl_json_bool(r->text, key, SWL_OPTIONAL, &v, r->path, r->err);

    if (!st && v != want)
        st = unsupported(r, key, v ? "true" : "false", want ? "true" : "false");
    return st;
}

static swl_status need_str(const reader *r, const char *key, const char *want, const char *or_want)
{
    const char *v = want;
    swl_status st = swl_json_str(r->text, key, SWL_OPTIONAL, &v, r->path, r->err);

    if (!st && strcmp(v, want) && (!or_want || strcmp(v, or_want)))
        st = unsupported(r, key, v, want);
    return st;
}

static swl_status check_arithmetic(const reader *r)
{
    double dropout = 0;
    swl_status st = need_bool(r, "attention_bias", false);

    if (!st)
        st = need_bool(r, "attn_output_gate", true);
    if (!st)
        st = need_str(r, "hidden_act", "silu", NULL);
    if (!st)
        st = need_str(r, "output_gate_type", "swish", "silu");
    if (!st)
        st = swl_json_f64(r->text, "attention_dropout", SWL_OPTIONAL, &dropout, r->path, r->err);
    if (!st && dropout != 0)
        st = swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1,
                         "%s: attention_dropout %g is not supported, expected 0", r->path, dropout);
    return st;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

static swl_status read_sizes(const reader *r, swl_config *c)
{
    const struct {
        const char *key;
        swl_need need;
        int32_t min, max, *out;
    } fields[] = {
        {"hidden_size", SWL_REQUIRED, 1, WIDTH_MAX, &c->hidden},
        {"num_hidden_layers", SWL_REQUIRED, 1, SWL_LAYERS_MAX, &c->n_layers},
        {"vocab_size", SWL_REQUIRED, 1, VOCAB_MAX, &c->vocab},
        {"max_position_embeddings", SWL_REQUIRED, 1, CTX_MAX, &c->ctx_max},
        {"num_attention_heads", SWL_REQUIRED, 1, HEADS_MAX, &c->n_heads},
        {"num_key_value_heads", SWL_REQUIRED, 1, HEADS_MAX, &c->n_kv_heads},
        {"head_dim", SWL_OPTIONAL, 2, SWL_HEAD_DIM_MAX, &c->head_dim},
        {"linear_num_key_heads", SWL_REQUIRED, 1, HEADS_MAX, &c->n_k_heads},
        {"linear_num_value_heads", SWL_REQUIRED, 1, HEADS_MAX, &c->n_v_heads},
        {"linear_key_head_dim", SWL_REQUIRED, 1, HEAD_MAX, &c->k_dim},
        {"linear_value_head_dim", SWL_REQUIRED, 1, HEAD_MAX, &c->v_dim},
        {"linear_conv_kernel_dim", SWL_OPTIONAL, 2, 8, &c->conv_width},
    };
    swl_status st = SWL_OK;

    c->head_dim = 256; /* not hidden_size / num_attention_heads */
    c->conv_width = 4;
    for (size_t i = 0; !st && i < sizeof fields / sizeof fields[0]; i++)
        st = i32(r, fields[i].key, fields[i].need, fields[i].min, fields[i].max, fields[i].out);
    return st;
}

static swl_status need_multiple(const reader *r, const char *key, int32_t n, const char *of_key, int32_t of)
{
    if (n % of == 0)
        return SWL_OK;
    return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: %s is %" PRId32 ", expected a multiple of %s, %" PRId32,
                       r->path, key, n, of_key, of);
}

static swl_status read_norm_eps(const reader *r, swl_config *c)
{
    double eps = 1e-6;
    swl_status st = swl_json_f64(r->text, "rms_norm_eps", SWL_OPTIONAL, &eps, r->path, r->err);

    if (!st && !(eps > 1e-30 && eps < 1))
        st = swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: rms_norm_eps is %g, expected above 0 and below 1",
                         r->path, eps);
    c->norm_eps = (float)eps;
    return st;
}

/* ---- rotary embedding ------------------------------------------------------------------------------------------- */

/* An object-valued field, NULL when absent. */
static swl_status get_object(const reader *r, const json_t *obj, const char *key, const json_t **out)
{
    const json_t *v = json_object_get(obj, key);

    *out = NULL;
    if (!v || json_is_null(v))
        return SWL_OK;
    if (!json_is_object(v))
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: field \"%s\" is not an object", r->path, key);
    *out = v;
    return SWL_OK;
}

/* "rope_type", in older files "type". */
static swl_status rope_type(const reader *r, const json_t *rope, const char **type)
{
    swl_status st;

    *type = "default";
    st = swl_json_str(rope, "type", SWL_OPTIONAL, type, r->path, r->err);
    return st ? st : swl_json_str(rope, "rope_type", SWL_OPTIONAL, type, r->path, r->err);
}

static swl_status out_of_range(const reader *r, const char *key, double v, const char *want)
{
    return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: %s is %g, expected %s", r->path, key, v, want);
}

static swl_status check_yarn(const reader *r, const swl_config *c, double attention)
{
    if (!(c->yarn_factor >= 1 && c->yarn_factor <= 1024))
        return out_of_range(r, "rope factor", c->yarn_factor, "1 to 1024");
    if (!(c->yarn_beta_slow > 0 && c->yarn_beta_slow < c->yarn_beta_fast && c->yarn_beta_fast < 1e6))
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1,
                           "%s: beta_slow is %g and beta_fast %g, expected 0 < beta_slow < beta_fast", r->path,
                           c->yarn_beta_slow, c->yarn_beta_fast);
    if (!(attention > 0 && attention < 1000))
        return out_of_range(r, "attention_factor", attention, "above 0 and below 1000");
    return SWL_OK;
}

/* Variants of YaRN that other families use and that would change the numbers. */
static swl_status check_yarn_variant(const reader *r, const json_t *rope)
{
    static const char *const keys[] = {"mscale", "mscale_all_dim"};
    bool truncate = true;
    swl_status st = swl_json_bool(rope, "truncate", SWL_OPTIONAL, &truncate, r->path, r->err);

    if (!st && !truncate)
        st = unsupported(r, "truncate", "false", "true");
    for (size_t i = 0; !st && i < sizeof keys / sizeof keys[0]; i++) {
        double v = 0;

        st = swl_json_f64(rope, keys[i], SWL_OPTIONAL, &v, r->path, r->err);
        if (!st && v != 0)
            st = swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1, "%s: %s %g is not supported with yarn", r->path,
                             keys[i], v);
    }
    return st;
}

static swl_status read_yarn(const reader *r, const json_t *rope, swl_config *c)
{
    double attention = 1, ctx;
    swl_status st = check_yarn_variant(r, rope);

    c->yarn = true;
    c->yarn_beta_fast = 32;
    c->yarn_beta_slow = 1;
    c->yarn_ctx_original = c->ctx_max;
    if (!st)
        st = swl_json_f64(rope, "factor", SWL_REQUIRED, &c->yarn_factor, r->path, r->err);
    if (!st)
        st = swl_json_f64(rope, "beta_fast", SWL_OPTIONAL, &c->yarn_beta_fast, r->path, r->err);
    if (!st)
        st = swl_json_f64(rope, "beta_slow", SWL_OPTIONAL, &c->yarn_beta_slow, r->path, r->err);
    if (!st)
        st = swl_json_f64(rope, "attention_factor", SWL_OPTIONAL, &attention, r->path, r->err);
    if (!st)
        st = swl_json_i32(rope, "original_max_position_embeddings", SWL_OPTIONAL, 1, CTX_MAX, &c->yarn_ctx_original,
                          r->path, r->err);
    if (!st)
        st = check_yarn(r, c, attention);
    if (st)
        return st;
    if (json_is_number(json_object_get(rope, "attention_factor")))
        c->yarn_attention_factor = attention;
    /* The usual way to switch YaRN on leaves max_position_embeddings as it was. */
    ctx = fmin(c->yarn_ctx_original * c->yarn_factor, CTX_MAX);
    if (ctx > c->ctx_max)
        c->ctx_max = (int32_t)ctx;
    return SWL_OK;
}

static swl_status rotary_dims(const reader *r, double factor, swl_config *c)
{
    if (!(factor > 0 && factor <= 1))
        return out_of_range(r, "partial_rotary_factor", factor, "above 0 and at most 1");
    c->rotary_dims = (int32_t)(c->head_dim * factor);
    if (c->rotary_dims < 2 || c->rotary_dims % 2)
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1,
                           "%s: partial_rotary_factor %g of head_dim %" PRId32 " gives %" PRId32
                           " rotary dimensions, expected an even number",
                           r->path, factor, c->head_dim, c->rotary_dims);
    return SWL_OK;
}

/* Both styles at once are an edited file; which one was meant must not be guessed when they differ. */
static swl_status pick_rope(const reader *r, const json_t **rope, const char **type)
{
    const json_t *params, *scaling;
    const char *type_scaling;
    swl_status st = get_object(r, r->text, "rope_parameters", &params);

    if (!st)
        st = get_object(r, r->text, "rope_scaling", &scaling);
    if (!st)
        st = rope_type(r, params ? params : scaling, type);
    if (st)
        return st;
    if (params && scaling) {
        st = rope_type(r, scaling, &type_scaling);
        if (!st && strcmp(*type, type_scaling))
            st = swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1,
                             "%s: rope_parameters say rope type \"%s\", rope_scaling says \"%s\"", r->path, *type,
                             type_scaling);
    }
    *rope = params ? params : scaling;
    return st;
}

/* Flat fields first, then what the object says over them. */
static swl_status read_rope(const reader *r, swl_config *c)
{
    const json_t *rope;
    const char *type;
    double factor = 0.25;
    swl_status st = pick_rope(r, &rope, &type);

    if (!st && strcmp(type, "default") && strcmp(type, "yarn"))
        return unsupported(r, "rope type", type, "default or yarn");
    if (!st)
        st = swl_json_f64(r->text, "rope_theta", SWL_OPTIONAL, &c->rope_theta, r->path, r->err);
    if (!st)
        st = swl_json_f64(r->text, "partial_rotary_factor", SWL_OPTIONAL, &factor, r->path, r->err);
    if (!st && rope)
        st = swl_json_f64(rope, "rope_theta", SWL_OPTIONAL, &c->rope_theta, r->path, r->err);
    if (!st && rope)
        st = swl_json_f64(rope, "partial_rotary_factor", SWL_OPTIONAL, &factor, r->path, r->err);
    if (st)
        return st;
    if (c->rope_theta == 0)
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: field \"rope_theta\" is missing", r->path);
    if (!(c->rope_theta > 1 && c->rope_theta <= 1e15))
        return out_of_range(r, "rope_theta", c->rope_theta, "above 1 and at most 1e15");
    st = rotary_dims(r, factor, c);
    return st || strcmp(type, "yarn") ? st : read_yarn(r, rope, c);
}

/* ---- layer plan ------------------------------------------------------------------------------------------------- */

static swl_status mixers_from_list(const reader *r, const json_t *types, swl_config *c)
{
    if (!json_is_array(types))
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: field \"layer_types\" is not an array", r->path);
    if (json_array_size(types) != (size_t)c->n_layers)
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1,
                           "%s: layer_types has %zu entries, expected num_hidden_layers, %" PRId32, r->path,
                           json_array_size(types), c->n_layers);
    for (int32_t i = 0; i < c->n_layers; i++) {
        const char *t = json_string_value(json_array_get(types, (size_t)i));

        if (t && !strcmp(t, "full_attention"))
            c->layers[i].mixer = SWL_MIXER_ATTENTION;
        else if (t && !strcmp(t, "linear_attention"))
            c->layers[i].mixer = SWL_MIXER_DELTANET;
        else
            return swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1,
                               "%s: layer_types[%" PRId32 "] is \"%s\", expected linear_attention or full_attention",
                               r->path, i, t ? t : "not a string");
    }
    return SWL_OK;
}

static swl_status read_mixers(const reader *r, swl_config *c)
{
    const json_t *types = json_object_get(r->text, "layer_types");
    int32_t interval = 4;
    swl_status st;

    if (types && !json_is_null(types))
        return mixers_from_list(r, types, c);
    st = i32(r, "full_attention_interval", SWL_OPTIONAL, 1, SWL_LAYERS_MAX, &interval);
    for (int32_t i = 0; !st && i < c->n_layers; i++)
        c->layers[i].mixer = (i + 1) % interval ? SWL_MIXER_DELTANET : SWL_MIXER_ATTENTION;
    return st;
}

/* mlp_only_layers: these are dense whatever the step says. */
static swl_status make_dense(const reader *r, swl_config *c, size_t *n)
{
    const json_t *list = json_object_get(r->text, "mlp_only_layers");

    *n = 0;
    if (!list || json_is_null(list))
        return SWL_OK;
    if (!json_is_array(list))
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1, "%s: field \"mlp_only_layers\" is not an array",
                           r->path);
    *n = json_array_size(list);
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= c->n_layers)
            return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, -1,
                               "%s: mlp_only_layers[%zu] is not a layer, expected 0 to %" PRId32, r->path, i,
                               c->n_layers - 1);
        c->layers[json_integer_value(v)].ffn = SWL_FFN_DENSE;
    }
    return SWL_OK;
}

/* Qwen3-Next may mix dense and MoE layers; the later models' code reads neither field, so a value that would mix them
 * has no defined meaning there. */
static swl_status read_ffns(const reader *r, swl_config *c)
{
    int32_t step = 1;
    size_t n_dense;
    swl_status st = i32(r, "decoder_sparse_step", SWL_OPTIONAL, 1, SWL_LAYERS_MAX, &step);

    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].ffn = c->n_experts && (i + 1) % step == 0 ? SWL_FFN_MOE : SWL_FFN_DENSE;
    if (!st)
        st = make_dense(r, c, &n_dense);
    if (st)
        return st;
    if (c->family == SWL_FAMILY_35_MOE && (step != 1 || n_dense))
        return swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1,
                           "%s: decoder_sparse_step %" PRId32 " with %zu mlp_only_layers is not supported for %s, "
                           "expected 1 and none",
                           r->path, step, n_dense, c->model_type);
    return SWL_OK;
}

static int32_t count_ffn(const swl_config *c, swl_ffn kind)
{
    int32_t n = 0;

    for (int32_t i = 0; i < c->n_layers; i++)
        n += c->layers[i].ffn == kind;
    return n;
}

/* ---- feed-forward ------------------------------------------------------------------------------------------------ */

static swl_status read_n_experts(const reader *r, swl_config *c)
{
    bool moe = c->family == SWL_FAMILY_35_MOE;
    swl_status st = i32(r, "num_experts", moe ? SWL_REQUIRED : SWL_OPTIONAL, moe, EXPERTS_MAX, &c->n_experts);

    if (!st && c->n_experts && c->family == SWL_FAMILY_35_DENSE)
        st = swl_fail_at(r->err, SWL_E_UNSUPPORTED, r->path, -1,
                         "%s: num_experts %" PRId32 " is not supported for %s, which has dense layers only", r->path,
                         c->n_experts, c->model_type);
    return st;
}

static swl_status read_norm_topk(const reader *r, swl_config *c)
{
    swl_status st;

    c->norm_topk = true; /* absent means true in all dialects */
    st = swl_json_bool(r->text, "norm_topk_prob", SWL_OPTIONAL, &c->norm_topk, r->path, r->err);
    if (!st && !c->norm_topk && c->family != SWL_FAMILY_NEXT)
        st = unsupported(r, "norm_topk_prob", "false", "true (this model always renormalises)");
    return st;
}

static swl_status read_widths(const reader *r, swl_config *c)
{
    bool moe = count_ffn(c, SWL_FFN_MOE) > 0;
    swl_status st = SWL_OK;

    if (count_ffn(c, SWL_FFN_DENSE) > 0)
        st = i32(r, "intermediate_size", SWL_REQUIRED, 1, WIDTH_MAX, &c->intermediate);
    if (!moe) {
        c->n_experts = 0;
        return st;
    }
    if (!st)
        st = i32(r, "num_experts_per_tok", SWL_REQUIRED, 1, c->n_experts, &c->n_experts_used);
    if (!st)
        st = i32(r, "moe_intermediate_size", SWL_REQUIRED, 1, WIDTH_MAX, &c->expert_width);
    if (!st)
        st = i32(r, "shared_expert_intermediate_size", SWL_REQUIRED, 1, WIDTH_MAX, &c->shared_width);
    return st ? st : read_norm_topk(r, c);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

static swl_status read_tied(const reader *r, swl_config *c)
{
    swl_status st = swl_json_bool(r->text, "tie_word_embeddings", SWL_OPTIONAL, &c->tied, r->path, r->err);

    return st ? st : swl_json_bool(r->root, "tie_word_embeddings", SWL_OPTIONAL, &c->tied, r->path, r->err);
}

/* A draft head with its own embeddings is not one that the engine could run: as if it had none. */
static swl_status read_mtp(const reader *r, swl_config *c)
{
    bool own = false;
    swl_status st = i32(r, "mtp_num_hidden_layers", SWL_OPTIONAL, 0, SWL_LAYERS_MAX, &c->n_mtp_layers);

    if (!st)
        st = swl_json_bool(r->text, "mtp_use_dedicated_embeddings", SWL_OPTIONAL, &own, r->path, r->err);
    if (!st && own)
        c->n_mtp_layers = 0;
    return st;
}

static swl_status read_config(const reader *r, swl_config *c)
{
    static swl_status (*const steps[])(const reader *, swl_config *) = {
        read_sizes, read_norm_eps, read_rope, read_n_experts, read_mixers, read_ffns, read_widths, read_tied, read_mtp,
    };
    swl_status st = read_family(r, c);

    if (!st)
        st = check_arithmetic(r);
    for (size_t i = 0; !st && i < sizeof steps / sizeof steps[0]; i++)
        st = steps[i](r, c);
    if (!st)
        st = need_multiple(r, "num_attention_heads", c->n_heads, "num_key_value_heads", c->n_kv_heads);
    if (!st)
        st = need_multiple(r, "linear_num_value_heads", c->n_v_heads, "linear_num_key_heads", c->n_k_heads);
    return st;
}

static swl_status read_root(swl_config *c, const json_t *root, const char *path, swl_error *err)
{
    reader r = {root, root, path, err};
    const json_t *text;
    swl_status st;

    memset(c, 0, sizeof *c);
    if (!json_is_object(root))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    st = get_object(&r, root, "text_config", &text);
    if (st)
        return st;
    if (text)
        r.text = text;
    return read_config(&r, c);
}

swl_status swl_config_parse(swl_config *c, const char *json, size_t n_bytes, const char *path, swl_error *err)
{
    json_t *root;
    swl_status st = swl_json_parse(&root, json, n_bytes, path, err);

    if (!st)
        st = read_root(c, root, path, err);
    json_decref(root);
    return st;
}

swl_status swl_config_load(swl_config *c, const char *dir, swl_error *err)
{
    char *path = swl_path_join(dir, "config.json");
    json_t *root = NULL;
    swl_status st;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");
    st = swl_json_load(&root, path, CONFIG_BYTES_MAX, err);
    if (!st)
        st = read_root(c, root, path, err);
    json_decref(root);
    swl_free(path);
    return st;
}
