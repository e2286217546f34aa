/*
 * config.h: config.json of the model family, read once, checked, and then relied on. Every field that changes the
 * arithmetic is either understood or refused by name and value.
 */
#ifndef SWL_FORMAT_CONFIG_H
#define SWL_FORMAT_CONFIG_H

#include <swiftlet/swiftlet.h>

typedef enum swl_family { SWL_FAMILY_NEXT, SWL_FAMILY_35_MOE, SWL_FAMILY_35_DENSE } swl_family;
typedef enum swl_mixer { SWL_MIXER_DELTANET, SWL_MIXER_ATTENTION } swl_mixer;
typedef enum swl_ffn { SWL_FFN_DENSE, SWL_FFN_MOE } swl_ffn;

typedef struct swl_layer_plan {
    swl_mixer mixer;
    swl_ffn ffn;
} swl_layer_plan;

#define SWL_LAYERS_MAX   512
#define SWL_HEAD_DIM_MAX 512 /* of attention */

typedef struct swl_config {
    swl_family family;
    char model_type[32];
    int32_t hidden, n_layers, vocab, ctx_max;
    float norm_eps;
    int32_t intermediate;                    /* dense FFN width; 0 when no layer is dense */
    /* attention */
    int32_t n_heads, n_kv_heads, head_dim, rotary_dims;
    double rope_theta;
    bool yarn;
    double yarn_factor, yarn_beta_fast, yarn_beta_slow, yarn_attention_factor; /* attention factor 0: 0.1 ln s + 1 */
    int32_t yarn_ctx_original;
    /* gated delta-net */
    int32_t n_k_heads, n_v_heads, k_dim, v_dim, conv_width;
    /* mixture of experts; n_experts 0: no MoE layer */
    int32_t n_experts, n_experts_used, expert_width, shared_width;
    bool norm_topk;
    bool tied;                               /* what the config says; the presence of lm_head.weight decides */
    int32_t n_mtp_layers;                    /* as the config says; the presence of mtp.* decides */
    swl_layer_plan layers[SWL_LAYERS_MAX];
} swl_config;

/* Reads DIR/config.json. SWL_E_CORRUPT for nonsense, SWL_E_UNSUPPORTED for what would need other arithmetic. */
swl_status swl_config_load(swl_config *c, const char *dir, swl_error *err);
/* The same from text in memory (tests, fuzzing); `path` is for messages. */
swl_status swl_config_parse(swl_config *c, const char *json, size_t n_bytes, const char *path, swl_error *err);

#endif
