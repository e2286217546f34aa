/*
 * gguf_config.c: the metadata of a GGUF file as the config.json that the model had before it was converted. What
 * llama.cpp assumes without saying so (gates, normalised routing, rotary pairs) is what every model of the family does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "install/gguf_source.h"

#define SIZE_MAX_VALUE (1 << 28)

typedef struct reader {
    const swl_gguf *g;
    const char *arch;
    json_t *root;
    bool failed; /* to build the tree */
    swl_error *err;
} reader;

static void put(reader *r, json_t *object, const char *key, json_t *v)
{
    if (json_object_set_new(object, key, v))
        r->failed = true;
}

static const char *key_of(const reader *r, const char *name, char key[96])
{
    snprintf(key, 96, "%s.%s", r->arch, name);
    return key;
}

static swl_status get_int(const reader *r, const char *name, swl_gguf_need need, int64_t *v)
{
    char key[96];

    return swl_gguf_int(r->g, key_of(r, name, key), need, 0, SIZE_MAX_VALUE, v, r->err);
}

/* A required size under another name. */
static swl_status copy_int(reader *r, const char *name, const char *field)
{
    int64_t v = 0;
    swl_status st = get_int(r, name, SWL_GGUF_REQUIRED, &v);

    put(r, r->root, field, json_integer(v));
    return st;
}

typedef struct copied {
    const char *name, *field;
} copied;

static swl_status copy_ints(reader *r, const copied *list, size_t n)
{
    swl_status st = SWL_OK;

    for (size_t i = 0; i < n && !st; i++)
        st = copy_int(r, list[i].name, list[i].field);
    return st;
}

/* ---- which model ---------------------------------------------------------------------------------------------------- */

static int64_t vocabulary(const swl_gguf *g)
{
    const swl_gguf_tensor *t = swl_gguf_find(g, "token_embd.weight");

    return t ? t->dims[1] : 0;
}

#define NEXT_VOCABULARY 151936 /* some converters write Qwen3-Next with the architecture of the later models */

static bool is_next(const swl_gguf *g, const char *arch)
{
    return !strcmp(arch, "qwen3next") || (!strcmp(arch, "qwen35moe") && vocabulary(g) == NEXT_VOCABULARY);
}

bool swl_gguf_heads_are_tiled(const swl_gguf *g, const char *arch, int64_t vocab)
{
    bool tiled = strcmp(arch, "qwen3next") && vocab != NEXT_VOCABULARY;
    char key[96];

    snprintf(key, sizeof key, "%s.ssm.v_head_reordered", arch);
    swl_gguf_bool(g, key, SWL_GGUF_OPTIONAL, &tiled, NULL);
    return tiled;
}

static void put_family(reader *r)
{
    bool next = is_next(r->g, r->arch), dense = !strcmp(r->arch, "qwen35");
    const char *class = next ? "Qwen3NextForCausalLM" : dense ? "Qwen3_5ForCausalLM" : "Qwen3_5MoeForCausalLM";
    json_t *list = json_array();

    if (json_array_append_new(list, json_string(class)))
        r->failed = true;
    put(r, r->root, "architectures", list);
    put(r, r->root, "model_type", json_string(next ? "qwen3_next" : dense ? "qwen3_5_text" : "qwen3_5_moe_text"));
}

/* ---- layers --------------------------------------------------------------------------------------------------------- */

/* Layer `i` attends, by the list of recurrent layers or by the interval. */
static bool attends(const swl_gguf_value *recurrent, int64_t interval, int64_t i)
{
    return recurrent ? !swl_gguf_int_at(recurrent, (uint64_t)i) : (i + 1) % interval == 0;
}

static swl_status put_layers(reader *r)
{
    int64_t n = 0, n_draft = 0, interval = 4;
    const swl_gguf_value *recurrent;
    json_t *types = json_array();
    char key[96];
    swl_status st = get_int(r, "block_count", SWL_GGUF_REQUIRED, &n);

    if (!st)
        st = get_int(r, "nextn_predict_layers", SWL_GGUF_OPTIONAL, &n_draft);
    if (!st)
        st = get_int(r, "full_attention_interval", SWL_GGUF_OPTIONAL, &interval);
    recurrent = swl_gguf_value_find(r->g, key_of(r, "attention.recurrent_layers", key));
    if (!st && (n_draft >= n || n > SWL_LAYERS_MAX || interval < 1))
        st = swl_fail(r->err, SWL_E_CORRUPT,
                      "%s: %s.block_count is %" PRId64 ", nextn_predict_layers %" PRId64
                      ", full_attention_interval %" PRId64 "; expected 1 to %d layers and an interval of at least 1",
                      swl_gguf_path(r->g, 0), r->arch, n, n_draft, interval, SWL_LAYERS_MAX);
    if (!st && recurrent && (!recurrent->is_array || recurrent->kind == SWL_GGUF_STRING || recurrent->n < (uint64_t)(n - n_draft) ||
                             recurrent->kind == SWL_GGUF_F32 || recurrent->kind == SWL_GGUF_F64))
        st = swl_gguf_wrong(r->g, recurrent, "an array with one truth value per layer", r->err);
    for (int64_t i = 0; i < n - n_draft && !st; i++)
        if (json_array_append_new(types,
                                  json_string(attends(recurrent, interval, i) ? "full_attention" : "linear_attention")))
            r->failed = true;
    put(r, r->root, "num_hidden_layers", json_integer(n - n_draft));
    put(r, r->root, "layer_types", types);
    put(r, r->root, "full_attention_interval", json_integer(interval));
    if (n_draft)
        put(r, r->root, "mtp_num_hidden_layers", json_integer(n_draft));
    return st;
}

/* One number, or one per layer, of which those without attention may be 0. */
static swl_status put_kv_heads(reader *r)
{
    char key[96];
    const swl_gguf_value *v = swl_gguf_value_find(r->g, key_of(r, "attention.head_count_kv", key));
    int64_t n = 0;

    if (!v || !v->is_array)
        return copy_int(r, "attention.head_count_kv", "num_key_value_heads");
    if (v->kind != SWL_GGUF_U32 && v->kind != SWL_GGUF_I32)
        return swl_gguf_wrong(r->g, v, "integers", r->err);
    for (uint64_t i = 0; i < v->n; i++) {
        int64_t one = swl_gguf_int_at(v, i);

        if (one < 0 || (one && n && one != n))
            return swl_gguf_wrong(r->g, v, "the same number for every layer with attention", r->err);
        n = one ? one : n;
    }
    put(r, r->root, "num_key_value_heads", json_integer(n));
    return SWL_OK;
}

/* ---- rotation ------------------------------------------------------------------------------------------------------- */

static swl_status put_yarn(reader *r, json_t *rope, const char *type)
{
    double factor = 0;
    int64_t original = 0;
    char key[96];
    swl_status st;

    if (!strcmp(type, "none"))
        return SWL_OK;
    if (strcmp(type, "yarn"))
        return swl_fail(r->err, SWL_E_UNSUPPORTED, "%s: %s.rope.scaling.type is \"%s\", expected none or yarn",
                        swl_gguf_path(r->g, 0), r->arch, type);
    st = swl_gguf_float(r->g, key_of(r, "rope.scaling.factor", key), SWL_GGUF_REQUIRED, &factor, r->err);
    if (!st)
        st = get_int(r, "rope.scaling.original_context_length", SWL_GGUF_OPTIONAL, &original);
    put(r, rope, "rope_type", json_string("yarn"));
    put(r, rope, "factor", json_real(factor));
    if (original)
        put(r, rope, "original_max_position_embeddings", json_integer(original));
    return st;
}

static swl_status put_rope(reader *r)
{
    double base = 0;
    int64_t dims = 0, head = 0;
    char key[96], *type = NULL;
    json_t *rope = json_object();
    swl_status st = swl_gguf_float(r->g, key_of(r, "rope.freq_base", key), SWL_GGUF_REQUIRED, &base, r->err);

    if (!st)
        st = get_int(r, "attention.key_length", SWL_GGUF_REQUIRED, &head);
    if (!st)
        st = get_int(r, "rope.dimension_count", SWL_GGUF_REQUIRED, &dims);
    if (!st && (!head || dims > head))
        st = swl_fail(r->err, SWL_E_CORRUPT, "%s: %s.rope.dimension_count is %" PRId64 " in heads of %" PRId64,
                      swl_gguf_path(r->g, 0), r->arch, dims, head);
    if (!st)
        st = swl_gguf_string(r->g, key_of(r, "rope.scaling.type", key), SWL_GGUF_OPTIONAL, &type, r->err);
    put(r, rope, "rope_type", json_string("default"));
    put(r, rope, "rope_theta", json_real(base));
    put(r, rope, "partial_rotary_factor", json_real(head ? (double)dims / (double)head : 0));
    if (!st && type)
        st = put_yarn(r, rope, type);
    swl_free(type);
    put(r, r->root, "rope_parameters", rope);
    return st;
}

/* ---- feed-forward ---------------------------------------------------------------------------------------------------- */

/* Rows of the first tensor of that name, for files that do not say. */
static int64_t rows_of(const swl_gguf *g, const char *suffix)
{
    for (int32_t i = 0; i < swl_gguf_count(g); i++) {
        const char *name = swl_gguf_at(g, i)->name, *dot = strncmp(name, "blk.", 4) ? NULL : strchr(name + 4, '.');

        if (dot && !strcmp(dot + 1, suffix))
            return swl_gguf_at(g, i)->dims[1];
    }
    return 0;
}

static swl_status put_ffn(reader *r)
{
    int64_t n = 0, width = 0, shared = 0, experts = rows_of(r->g, "ffn_gate_exps.weight");
    swl_status st = get_int(r, "feed_forward_length", SWL_GGUF_OPTIONAL, &n);

    if (n)
        put(r, r->root, "intermediate_size", json_integer(n));
    if (st || (!experts && !rows_of(r->g, "ffn_gate_up_exps.weight")))
        return st;
    width = experts ? experts : rows_of(r->g, "ffn_gate_up_exps.weight") / 2;
    shared = rows_of(r->g, "ffn_gate_shexp.weight");
    st = copy_int(r, "expert_count", "num_experts");
    if (!st)
        st = copy_int(r, "expert_used_count", "num_experts_per_tok");
    if (!st)
        st = get_int(r, "expert_feed_forward_length", SWL_GGUF_OPTIONAL, &width);
    if (!st)
        st = get_int(r, "expert_shared_feed_forward_length", SWL_GGUF_OPTIONAL, &shared);
    put(r, r->root, "moe_intermediate_size", json_integer(width));
    put(r, r->root, "shared_expert_intermediate_size", json_integer(shared));
    put(r, r->root, "norm_topk_prob", json_true());
    return st;
}

/* ---- delta-net ------------------------------------------------------------------------------------------------------- */

static swl_status put_deltanet(reader *r)
{
    static const copied list[] = {{"ssm.conv_kernel", "linear_conv_kernel_dim"},
                                  {"ssm.state_size", "linear_key_head_dim"},
                                  {"ssm.group_count", "linear_num_key_heads"},
                                  {"ssm.time_step_rank", "linear_num_value_heads"}};
    int64_t inner = 0, heads = 0;
    swl_status st = copy_ints(r, list, sizeof list / sizeof *list);

    if (!st)
        st = get_int(r, "ssm.inner_size", SWL_GGUF_REQUIRED, &inner);
    if (!st)
        st = get_int(r, "ssm.time_step_rank", SWL_GGUF_REQUIRED, &heads);
    if (!st && (!heads || inner % heads))
        st = swl_fail(r->err, SWL_E_CORRUPT,
                      "%s: %s.ssm.inner_size is %" PRId64 " with %" PRId64 " value heads, expected a multiple",
                      swl_gguf_path(r->g, 0), r->arch, inner, heads);
    put(r, r->root, "linear_value_head_dim", json_integer(heads ? inner / heads : 0));
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static swl_status put_token(reader *r, const char *key, const char *field)
{
    int64_t id = -1;
    swl_status st = swl_gguf_int(r->g, key, SWL_GGUF_OPTIONAL, 0, INT32_MAX, &id, r->err);

    put(r, r->root, field, id < 0 ? json_null() : json_integer(id));
    return st;
}

static swl_status put_sizes(reader *r)
{
    static const copied list[] = {{"embedding_length", "hidden_size"},
                                  {"context_length", "max_position_embeddings"},
                                  {"attention.head_count", "num_attention_heads"},
                                  {"attention.key_length", "head_dim"}};
    double eps = 0;
    char key[96];
    swl_status st = copy_ints(r, list, sizeof list / sizeof *list);

    if (!st)
        st = swl_gguf_float(r->g, key_of(r, "attention.layer_norm_rms_epsilon", key), SWL_GGUF_REQUIRED, &eps, r->err);
    put(r, r->root, "rms_norm_eps", json_real(eps));
    put(r, r->root, "vocab_size", json_integer(vocabulary(r->g)));
    put(r, r->root, "tie_word_embeddings", json_boolean(!swl_gguf_find(r->g, "output.weight")));
    put(r, r->root, "hidden_act", json_string("silu"));
    put(r, r->root, "attn_output_gate", json_true());
    return st;
}

static swl_status fill(reader *r)
{
    static swl_status (*const steps[])(reader *) = {put_sizes, put_layers, put_kv_heads, put_rope, put_ffn, put_deltanet};
    swl_status st = SWL_OK;

    put_family(r);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !st; i++)
        st = steps[i](r);
    if (!st)
        st = put_token(r, "tokenizer.ggml.eos_token_id", "eos_token_id");
    if (!st)
        st = put_token(r, "tokenizer.ggml.padding_token_id", "pad_token_id");
    return st;
}

swl_status swl_gguf_config(const swl_gguf *g, const char *arch, char **text, swl_error *err)
{
    reader r = {.g = g, .arch = arch, .root = json_object(), .err = err};
    size_t flags = JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(9), n;
    swl_status st = fill(&r);

    *text = NULL;
    n = !st && !r.failed ? json_dumpb(r.root, NULL, 0, flags) : 0;
    if (n && (*text = swl_calloc(n + 2, 1))) {
        json_dumpb(r.root, *text, n, flags);
        (*text)[n] = '\n';
    }
    json_decref(r.root);
    return st ? st : *text ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for config.json");
}
