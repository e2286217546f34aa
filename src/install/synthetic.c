/*
 * synthetic.c: swl_synthetic_create: a container with the exact shapes of a known model and weights that nobody trained
 * (format/synthetic.h), for measurements. A checkpoint in MLX's conventions is described by a config and a safetensors
 * header over a file without content; the ordinary conversion runs on that, with made bytes in place of read ones.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "format/synthetic.h"
#include "install/qpack_write.h"

#define SOURCE_DIR ".source" /* in the stage; gone before the container gets its name */
#define GROUP      SWL_SYNTHETIC_GROUP

/* Shapes as published; head size 256, delta-net heads of 128, convolution over 4, attention in every fourth layer. */
typedef struct shape {
    const char *name, *model_type;
    int32_t hidden, n_layers, n_heads, n_kv_heads, n_k_heads, n_v_heads;
    int32_t n_experts, n_used, width; /* of an expert and of the shared one; n_experts 0: of the dense network */
    int32_t vocab;
    bool tied;
} shape;

/* clang-format off */
static const shape shapes[] = {
    {"qwen3.6-35b",    "qwen3_5_moe_text", 2048, 40, 16, 2, 16,  32, 256,  8,   512, 248320, false},
    {"qwen3-next-80b", "qwen3_next",       2048, 48, 16, 2, 16,  32, 512, 10,   512, 151936, false},
    {"qwen3.5-122b",   "qwen3_5_moe_text", 3072, 48, 32, 2, 16,  64, 256,  8,  1024, 248320, false},
    {"qwen3.5-397b",   "qwen3_5_moe_text", 4096, 60, 32, 2, 16,  64, 512, 10,  1024, 248320, false},
    {"qwen3.8-2.4t",   "qwen3_5_moe_text", 8192, 92, 64, 4, 16, 128, 512, 10,  2048, 248320, false},
    {"qwen3.5-0.8b",   "qwen3_5_text",     1024, 24,  8, 2, 16,  16,   0,  0,  3584, 248320, true},
    {"qwen3.5-4b",     "qwen3_5_text",     2560, 32, 16, 4, 16,  32,   0,  0,  9216, 248320, true},
    {"qwen3.6-27b",    "qwen3_5_text",     5120, 64, 24, 4, 16,  48,   0,  0, 17408, 248320, false},
    {"tiny",           "qwen3_5_moe_text",  256,  8,  2, 1,  2,   4,  16,  4,   128,   1024, false},
    {"tiny-next",      "qwen3_next",        256,  8,  2, 1,  2,   4,  16,  4,   128,   1024, false},
};
/* clang-format on */

enum { N_SHAPES = sizeof shapes / sizeof shapes[0], HEAD = 256, DELTA_HEAD = 128, TAPS = 4 };

const char *swl_synthetic_name(int32_t i)
{
    return i >= 0 && i < N_SHAPES ? shapes[i].name : NULL;
}

/* "8" of "qwen3.6-35b/8"; false when it is no number of layers that the model has. */
static bool take_layers(shape *s, const char *text)
{
    int n = 0;

    for (; *text >= '0' && *text <= '9' && n <= s->n_layers; text++)
        n = 10 * n + *text - '0';
    if (*text || n < 1 || n > s->n_layers)
        return false;
    s->n_layers = n;
    return true;
}

/* NAME, or NAME/N for its first N layers alone. */
static swl_status find_shape(const char *name, shape *out, swl_error *err)
{
    size_t n = name ? strcspn(name, "/") : 0;
    char known[256] = "";

    for (int i = 0; i < N_SHAPES; i++) {
        if (n == strlen(shapes[i].name) && !memcmp(shapes[i].name, name, n)) {
            *out = shapes[i];
            if (!name[n] || take_layers(out, name + n + 1))
                return SWL_OK;
            return swl_fail(err, SWL_E_ARG, "\"%s\" asks for layers that are not there: %s has %d", name, shapes[i].name,
                            shapes[i].n_layers);
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", shapes[i].name);
    }
    return swl_fail(err, SWL_E_ARG, "no shape is called \"%s\"; known: %s", name ? name : "", known);
}

static bool is_next(const shape *s)
{
    return !strcmp(s->model_type, "qwen3_next");
}

static bool is_attention(int32_t layer)
{
    return layer % 4 == 3;
}

/* ---- the tensors ----------------------------------------------------------------------------------------------------
 */

typedef struct tensor_list {
    swl_st_decl *decls; /* names are owned */
    int32_t n, n_max;
    uint64_t n_bytes;
    bool no_memory;
} tensor_list;

static void free_list(tensor_list *l)
{
    for (int32_t i = 0; i < l->n; i++)
        swl_free((char *)l->decls[i].name);
    swl_free(l->decls);
}

/* Takes over `name`. */
static void add(tensor_list *l, char *name, swl_dtype dtype, int32_t n_dims, int64_t a, int64_t b, int64_t c)
{
    if (l->n == l->n_max) {
        int32_t n = l->n_max ? 2 * l->n_max : 256;
        swl_st_decl *p = swl_realloc(l->decls, (size_t)n, sizeof *p);

        if (p) {
            l->decls = p;
            l->n_max = n;
        }
    }
    if (!name || l->n == l->n_max) {
        l->no_memory = true;
        swl_free(name);
        return;
    }
    l->decls[l->n++] = (swl_st_decl){.name = name, .dtype = dtype, .n_dims = n_dims, .shape = {a, b, c}};
    l->n_bytes += (uint64_t)(a * (n_dims > 1 ? b : 1) * (n_dims > 2 ? c : 1)) * (uint64_t)swl_dtype_size(dtype);
}

static void vector(tensor_list *l, int32_t layer, const char *name, swl_dtype dtype, int64_t n)
{
    add(l, layer < 0 ? swl_strdup(name) : swl_asprintf("model.layers.%d.%s", layer, name), dtype, 1, n, 0, 0);
}

/* experts 0: one matrix; else that many, stacked. */
static void matrix(tensor_list *l, int32_t layer, const char *name, int64_t experts, int64_t rows, int64_t cols)
{
    static const char *const parts[] = {"weight", "scales", "biases"};
    char base[128], *full;
    int64_t width;

    if (layer < 0)
        snprintf(base, sizeof base, "%s", name);
    else
        snprintf(base, sizeof base, "model.layers.%d.%s", layer, name);
    for (int p = 0; p < 3; p++) {
        full = swl_asprintf("%s.%s", base, parts[p]);
        width = p ? cols / GROUP : full ? cols * swl_synthetic_bits(full) / 32 : 0;
        if (experts)
            add(l, full, p ? SWL_DT_BF16 : SWL_DT_U32, 3, experts, rows, width);
        else
            add(l, full, p ? SWL_DT_BF16 : SWL_DT_U32, 2, rows, width, 0);
    }
}

static void attention(tensor_list *l, const shape *s, int32_t i)
{
    int64_t q = (int64_t)s->n_heads * HEAD, kv = (int64_t)s->n_kv_heads * HEAD;

    matrix(l, i, "self_attn.q_proj", 0, 2 * q, s->hidden);
    matrix(l, i, "self_attn.k_proj", 0, kv, s->hidden);
    matrix(l, i, "self_attn.v_proj", 0, kv, s->hidden);
    matrix(l, i, "self_attn.o_proj", 0, s->hidden, q);
    vector(l, i, "self_attn.q_norm.weight", SWL_DT_BF16, HEAD);
    vector(l, i, "self_attn.k_norm.weight", SWL_DT_BF16, HEAD);
}

static void deltanet(tensor_list *l, const shape *s, int32_t i)
{
    int64_t dk = (int64_t)s->n_k_heads * DELTA_HEAD, dv = (int64_t)s->n_v_heads * DELTA_HEAD;

    if (is_next(s)) {
        matrix(l, i, "linear_attn.in_proj_qkvz", 0, 2 * dk + 2 * dv, s->hidden);
        matrix(l, i, "linear_attn.in_proj_ba", 0, 2 * (int64_t)s->n_v_heads, s->hidden);
    } else {
        matrix(l, i, "linear_attn.in_proj_qkv", 0, 2 * dk + dv, s->hidden);
        matrix(l, i, "linear_attn.in_proj_z", 0, dv, s->hidden);
        matrix(l, i, "linear_attn.in_proj_b", 0, s->n_v_heads, s->hidden);
        matrix(l, i, "linear_attn.in_proj_a", 0, s->n_v_heads, s->hidden);
    }
    add(l, swl_asprintf("model.layers.%d.linear_attn.conv1d.weight", i), SWL_DT_BF16, 3, 2 * dk + dv, TAPS, 1);
    vector(l, i, "linear_attn.A_log", SWL_DT_F32, s->n_v_heads);
    vector(l, i, "linear_attn.dt_bias", SWL_DT_BF16, s->n_v_heads);
    vector(l, i, "linear_attn.norm.weight", SWL_DT_BF16, DELTA_HEAD);
    matrix(l, i, "linear_attn.out_proj", 0, s->hidden, dv);
}

static void ffn(tensor_list *l, int32_t i, const char *base, int64_t experts, int64_t width, int64_t hidden)
{
    char name[64];

    snprintf(name, sizeof name, "%sgate_proj", base);
    matrix(l, i, name, experts, width, hidden);
    snprintf(name, sizeof name, "%sup_proj", base);
    matrix(l, i, name, experts, width, hidden);
    snprintf(name, sizeof name, "%sdown_proj", base);
    matrix(l, i, name, experts, hidden, width);
}

static void list_tensors(tensor_list *l, const shape *s)
{
    matrix(l, -1, "model.embed_tokens", 0, s->vocab, s->hidden);
    vector(l, -1, "model.norm.weight", SWL_DT_BF16, s->hidden);
    if (!s->tied)
        matrix(l, -1, "lm_head", 0, s->vocab, s->hidden);
    for (int32_t i = 0; i < s->n_layers; i++) {
        vector(l, i, "input_layernorm.weight", SWL_DT_BF16, s->hidden);
        vector(l, i, "post_attention_layernorm.weight", SWL_DT_BF16, s->hidden);
        if (is_attention(i))
            attention(l, s, i);
        else
            deltanet(l, s, i);
        if (!s->n_experts) {
            ffn(l, i, "mlp.", 0, s->width, s->hidden);
            continue;
        }
        matrix(l, i, "mlp.gate", 0, s->n_experts, s->hidden);
        matrix(l, i, "mlp.shared_expert_gate", 0, 1, s->hidden);
        ffn(l, i, "mlp.shared_expert.", 0, s->width, s->hidden);
        ffn(l, i, "mlp.switch_mlp.", s->n_experts, s->width, s->hidden);
    }
}

/* ---- the source ------------------------------------------------------------------------------------------------------
 */

static json_t *quantization(const shape *s)
{
    json_t *q = json_pack("{s:i,s:i,s:s}", "bits", 4, "group_size", GROUP, "mode", "affine");
    char name[64];

    for (int32_t i = 0; s->n_experts && i < s->n_layers; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.gate", i);
        json_object_set_new(q, name, json_pack("{s:i,s:i}", "bits", 8, "group_size", GROUP));
        snprintf(name, sizeof name, "model.layers.%d.mlp.shared_expert_gate", i);
        json_object_set_new(q, name, json_pack("{s:i,s:i}", "bits", 8, "group_size", GROUP));
    }
    return q;
}

static json_t *config(const shape *s)
{
    const char *class = is_next(s) ? "Qwen3NextForCausalLM" : s->n_experts ? "Qwen3_5MoeForCausalLM" : "Qwen3_5ForCausalLM";
    json_t *c = json_pack("{s:[s],s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:s,s:f}", "architectures",
                          class, "model_type", s->model_type, "hidden_size", s->hidden, "num_hidden_layers",
                          s->n_layers, "num_attention_heads", s->n_heads, "num_key_value_heads", s->n_kv_heads,
                          "head_dim", HEAD, "linear_num_key_heads", s->n_k_heads, "linear_num_value_heads",
                          s->n_v_heads, "linear_key_head_dim", DELTA_HEAD, "linear_value_head_dim", DELTA_HEAD,
                          "linear_conv_kernel_dim", TAPS, "full_attention_interval", 4, "vocab_size", s->vocab,
                          "max_position_embeddings", 262144, "tie_word_embeddings", s->tied, "hidden_act", "silu",
                          "rms_norm_eps", 1e-6);
    json_t *ffn = s->n_experts ? json_pack("{s:i,s:i,s:i,s:i,s:b}", "num_experts", s->n_experts, "num_experts_per_tok",
                                           s->n_used, "moe_intermediate_size", s->width,
                                           "shared_expert_intermediate_size", s->width, "norm_topk_prob", 1)
                               : json_pack("{s:i}", "intermediate_size", s->width);

    json_object_set_new(c, "rope_theta", json_real(1e7));
    json_object_set_new(c, "partial_rotary_factor", json_real(0.25));
    if (!is_next(s))
        json_object_set_new(c, "rope_parameters",
                            json_pack("{s:s,s:f,s:f}", "rope_type", "default", "rope_theta", 1e7,
                                      "partial_rotary_factor", 0.25));
    json_object_set_new(c, "quantization", quantization(s));
    if (!c || !ffn || json_object_update(c, ffn)) {
        json_decref(c);
        c = NULL;
    }
    json_decref(ffn);
    return c;
}

static swl_status write_config(const shape *s, const char *dir, swl_error *err)
{
    char *path = swl_path_join(dir, "config.json");
    json_t *c = config(s);
    char *text = c ? json_dumps(c, JSON_SORT_KEYS | JSON_INDENT(2)) : NULL;
    swl_status st = path && text ? swl_file_save(path, text, strlen(text), err)
                                 : swl_fail(err, SWL_E_NOMEM, "out of memory for config.json");

    free(text);
    json_decref(c);
    swl_free(path);
    return st;
}

/* The header, and behind it a hole of the right length. */
static swl_status write_hole(const tensor_list *l, const char *dir, swl_error *err)
{
    char *path = swl_path_join(dir, "model.safetensors");
    uint8_t *header = NULL;
    uint64_t n = 0;
    int fd = -1;
    swl_status st = path ? swl_st_header(l->decls, l->n, 64, &header, &n, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st)
        st = swl_file_create(&fd, path, err);
    if (!st)
        st = swl_file_write_at(fd, path, 0, header, n, err);
    if (!st && ftruncate(fd, (off_t)(n + l->n_bytes)))
        st = swl_fail_errno(err, path, "cannot give %s its length", path);
    swl_file_close(fd);
    swl_free(header);
    swl_free(path);
    return st;
}

static swl_status make_source(const shape *s, const char *dir, swl_error *err)
{
    tensor_list l = {0};
    swl_status st = SWL_OK;

    if (mkdir(dir, 0777))
        return swl_fail_errno(err, dir, "cannot create directory %s", dir);
    list_tensors(&l, s);
    if (l.no_memory)
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for the list of tensors");
    if (!st)
        st = write_config(s, dir, err);
    if (!st)
        st = write_hole(&l, dir, err);
    free_list(&l);
    return st;
}

static void remove_source(const char *dir)
{
    static const char *const names[] = {"config.json", "model.safetensors"};

    for (int i = 0; i < 2; i++) {
        char *path = swl_path_join(dir, names[i]);

        if (path)
            unlink(path);
        swl_free(path);
    }
    rmdir(dir);
}

/* ---- the bytes -------------------------------------------------------------------------------------------------------
 */

enum { TASK_BYTES = 128 << 10 };

typedef struct maker {
    uint64_t seed;
    swl_threads *threads;
    swl_synthetic bytes; /* of the running call */
    uint64_t begin, n;
    uint8_t *dst;
} maker;

static void make_task(void *arg, int32_t index, int32_t worker)
{
    const maker *m = arg;
    uint64_t at = (uint64_t)index * TASK_BYTES, n = m->n - at < TASK_BYTES ? m->n - at : TASK_BYTES;

    (void)worker;
    swl_synthetic_bytes(&m->bytes, m->begin + at, m->dst + at, n);
}

static void make_bytes(void *arg, const swl_st_tensor *t, uint64_t begin, uint8_t *dst, uint64_t n)
{
    maker *m = arg;

    swl_synthetic_init(&m->bytes, m->seed, t->name, t->dtype, t->shape[t->n_dims - 1]);
    m->begin = begin;
    m->n = n;
    m->dst = dst;
    swl_threads_run(m->threads, (int32_t)((n + TASK_BYTES - 1) / TASK_BYTES), make_task, m);
}

/* ---- the container ---------------------------------------------------------------------------------------------------
 */

static swl_status write_container(const swl_synthetic_options *o, swl_plan *plan, const swl_stage *stage, const char *id,
                                  swl_error *err)
{
    swl_qpack_source source = {.id = (char *)id};
    swl_qpack_synthetic synthetic = {o->name, o->seed, o->experts_absent};
    maker m = {.seed = o->seed};
    swl_qpack_writer w = {.plan = plan,
                          .dir = stage->dir,
                          .source = &source,
                          .synthetic = &synthetic,
                          .on_progress = o->on_progress,
                          .arg = o->arg,
                          .cv = {.st = plan->c->dense, .origin = make_bytes, .origin_arg = &m}};
    uint64_t bytes = o->experts_absent ? plan->dense.n_bytes : plan->bytes_total;
    swl_status st = swl_stage_need(stage, bytes + bytes / 100 + o->leave_free, err);

    if (!st)
        st = swl_threads_create(&m.threads, swl_cpus_available(), err);
    if (!st)
        st = swl_qpack_write(&w, err);
    swl_threads_free(m.threads);
    swl_qpack_writer_deinit(&w);
    return st;
}

static swl_status convert(const swl_synthetic_options *o, const char *source, const swl_stage *stage, const char *id,
                          swl_error *err)
{
    swl_checkpoint *c;
    swl_plan plan;
    swl_status st = swl_checkpoint_open(&c, source, err);

    if (!st)
        st = swl_plan_make(&plan, c, (swl_weight_rule){0}, err);
    if (!st) {
        st = write_container(o, &plan, stage, id, err);
        swl_plan_deinit(&plan);
    }
    swl_checkpoint_close(c);
    return st;
}

static swl_status fill_stage(const swl_synthetic_options *o, const shape *s, swl_stage *stage, const char *id,
                             swl_error *err)
{
    char *source = swl_path_join(stage->dir, SOURCE_DIR);
    swl_status st = source ? make_source(s, source, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st)
        st = convert(o, source, stage, id, err);
    if (!st)
        remove_source(source);
    swl_free(source);
    return st ? st : swl_stage_commit(stage, err);
}

void swl_synthetic_options_init(swl_synthetic_options *o)
{
    *o = (swl_synthetic_options){.seed = 1};
}

swl_status swl_synthetic_create(const swl_synthetic_options *o, swl_error *err)
{
    shape s = {0};
    char *id = NULL;
    swl_stage stage;
    swl_status st = find_shape(o->name, &s, err);

    if (st)
        return st;
    if (!o->output || !*o->output)
        return swl_fail(err, SWL_E_ARG, "a synthetic container needs an output");
    if (o->shapes_only)
        return make_source(&s, o->output, err);
    if (o->seed > INT64_MAX)
        return swl_fail(err, SWL_E_ARG, "a seed of %" PRIu64 " is too large, expected at most %" PRId64, o->seed, INT64_MAX);
    id = swl_asprintf("synthetic:%s seed %" PRIu64, o->name, o->seed);
    if (!id)
        return swl_fail(err, SWL_E_NOMEM, "out of memory");
    st = swl_stage_open(&stage, o->output, o->replace, "{\"synthetic\": true}\n", err);
    if (!st) {
        st = fill_stage(o, &s, &stage, id, err);
        swl_stage_close(&stage);
    }
    swl_free(id);
    return st;
}
