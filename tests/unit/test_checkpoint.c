/*
 * Model directories of every layout, made by hand in a temporary directory: what is found in them, and the message of
 * every refusal. The tiny model has two layers (delta-net, attention), hidden size 128, 8 experts of width 64; at 4
 * bits in groups of 64 a projection takes 4096 + 256 + 256 bytes, so the slot's payload is 13,824 and its stride
 * 16,384.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "format/checkpoint.h"
#include "temp_root.h"

#define HIDDEN  128
#define WIDTH   64
#define EXPERTS 8
#define STRIDE  16384

/* ---- files ------------------------------------------------------------------------------------------------------ */

static FILE *create(const char *name)
{
    FILE *f = fopen(in_root(name), "wb");

    assert_non_null(f);
    return f;
}

static void write_text(const char *name, const char *text)
{
    FILE *f = create(name);

    fputs(text, f);
    fclose(f);
}

static void write_json(const char *name, const json_t *v)
{
    char *text = json_dumps(v, JSON_INDENT(2) | JSON_ESCAPE_SLASH);

    write_text(name, text);
    free(text);
}

static void write_blank(const char *name, long n)
{
    FILE *f = create(name);

    assert_int_equal(ftruncate(fileno(f), n), 0);
    fclose(f);
}

static void unlink_in(const char *name)
{
    assert_int_equal(remove(in_root(name)), 0);
}

static void mkdir_in(const char *name)
{
    assert_int_equal(mkdir(in_root(name), 0755), 0);
}

/* Replaces what "a.2.b" leads to by the JSON text `value`; NULL removes it. */
static void set(json_t *at, const char *path, const char *value)
{
    json_t *v = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    const char *dot;

    while ((dot = strchr(path, '/'))) {
        char *key = swl_strndup(path, (size_t)(dot - path));

        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
        swl_free(key);
        path = dot + 1;
    }
    assert_true(!value || v);
    if (json_is_array(at))
        v ? json_array_set_new(at, (size_t)atoi(path), v) : json_array_remove(at, (size_t)atoi(path));
    else
        v ? json_object_set_new(at, path, v) : json_object_del(at, path);
}

/* ---- safetensors, written without the library ------------------------------------------------------------------- */

typedef struct st_file {
    json_t *header;
    long n_data;
} st_file;

static void st_begin(st_file *f)
{
    f->header = json_object();
    f->n_data = 0;
}

static void st_add(st_file *f, const char *name, const char *dtype, int n_dims, const long *shape)
{
    long size = !strcmp(dtype, "BF16") || !strcmp(dtype, "F16") ? 2 : !strcmp(dtype, "U8") || *dtype == 'F' ? 1 : 4;
    json_t *dims = json_array();

    if (!strcmp(dtype, "F32"))
        size = 4;
    for (int i = 0; i < n_dims; i++) {
        json_array_append_new(dims, json_integer(shape[i]));
        size *= shape[i];
    }
    json_object_set_new(f->header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", dims, "data_offsets",
                                  (json_int_t)f->n_data, (json_int_t)(f->n_data + size)));
    f->n_data += size;
}

static void st_drop_all_but_new(st_file *f)
{
    json_decref(f->header);
    st_begin(f);
}

/* The JSON is padded so that the data starts at an odd offset. */
static long st_end(st_file *f, const char *file)
{
    char *text = json_dumps(f->header, JSON_COMPACT);
    uint64_t n = strlen(text) | 1;
    FILE *out = create(file);

    fwrite(&n, 8, 1, out);
    fprintf(out, "%-*s", (int)n, text);
    fflush(out);
    assert_int_equal(ftruncate(fileno(out), (long)(8 + n) + f->n_data), 0);
    fclose(out);
    free(text);
    json_decref(f->header);
    return (long)(8 + n);
}

#define ADD(f, name, dtype, ...)                                                                                       \
    st_add(f, name, dtype, (int)(sizeof((long[]){__VA_ARGS__}) / sizeof(long)), (long[]){__VA_ARGS__})

/* What every test needs of the dense part: the embedding and one convolution. */
static void add_dense(st_file *f, const char *prefix, bool mlx)
{
    char name[128];

    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    ADD(f, name, "BF16", 32, HIDDEN);
    snprintf(name, sizeof name, "%slayers.0.linear_attn.conv1d.weight", prefix);
    ADD(f, name, "BF16", 96, mlx ? 4 : 1, mlx ? 1 : 4);
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    ADD(f, name, "BF16", HIDDEN);
}

/* One stacked projection at `bits`; rows by cols. */
static void add_stacked(st_file *f, const char *prefix, int layer, const char *proj, long rows, long cols, long bits,
                        long group)
{
    char name[128];

    snprintf(name, sizeof name, "%slayers.%d.mlp.switch_mlp.%s.weight", prefix, layer, proj);
    ADD(f, name, "U32", EXPERTS, rows, cols * bits / 32);
    snprintf(name, sizeof name, "%slayers.%d.mlp.switch_mlp.%s.scales", prefix, layer, proj);
    ADD(f, name, "BF16", EXPERTS, rows, cols / group);
    snprintf(name, sizeof name, "%slayers.%d.mlp.switch_mlp.%s.biases", prefix, layer, proj);
    ADD(f, name, "BF16", EXPERTS, rows, cols / group);
}

static void add_stacked_layer(st_file *f, const char *prefix, int layer, long bits, long group)
{
    add_stacked(f, prefix, layer, "gate_proj", WIDTH, HIDDEN, bits, group);
    add_stacked(f, prefix, layer, "up_proj", WIDTH, HIDDEN, bits, group);
    add_stacked(f, prefix, layer, "down_proj", HIDDEN, WIDTH, bits, group);
}

/* ---- the tiny model --------------------------------------------------------------------------------------------- */

static json_t *config(void)
{
    return json_loads("{\"model_type\":\"qwen3_5_moe_text\",\"hidden_size\":128,\"num_hidden_layers\":2,"
                      "\"vocab_size\":32,\"max_position_embeddings\":64,\"num_attention_heads\":2,"
                      "\"num_key_value_heads\":1,\"head_dim\":16,\"linear_num_key_heads\":1,"
                      "\"linear_num_value_heads\":1,\"linear_key_head_dim\":32,\"linear_value_head_dim\":32,"
                      "\"linear_conv_kernel_dim\":4,\"rope_theta\":1e4,\"num_experts\":8,\"num_experts_per_tok\":2,"
                      "\"moe_intermediate_size\":64,\"shared_expert_intermediate_size\":64,"
                      "\"full_attention_interval\":2}",
                      0, NULL);
}

/* A section as the packers write it: at *offset, which moves on. */
static json_t *section(const char *proj, const char *part, const char *dtype, long rows, long cols, long *offset)
{
    char name[64];
    long size = rows * cols * (strcmp(dtype, "U32") ? 2 : 4);

    snprintf(name, sizeof name, "%s.%s", proj, part);
    *offset += size;
    return json_pack("{s:s,s:s,s:[I,I],s:I,s:I}", "name", name, "dtype", dtype, "shape", (json_int_t)rows,
                     (json_int_t)cols, "offset", (json_int_t)(*offset - size), "size", (json_int_t)size);
}

static json_t *sections(void)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    json_t *list = json_array();
    long at = 0;

    for (int p = 0; p < 3; p++) {
        long rows = p < 2 ? WIDTH : HIDDEN, cols = p < 2 ? HIDDEN : WIDTH;

        json_array_append_new(list, section(names[p], "weight", "U32", rows, cols / 8, &at));
        json_array_append_new(list, section(names[p], "scales", "BF16", rows, cols / 64, &at));
        json_array_append_new(list, section(names[p], "biases", "BF16", rows, cols / 64, &at));
    }
    assert_int_equal(at, 13824);
    return list;
}

static json_t *layout(void)
{
    return json_pack("{s:i,s:i,s:i,s:[b,b],s:o}", "expertCount", EXPERTS, "layerCount", 2, "expertStride", STRIDE,
                     "linearLayers", 1, 0, "sections", sections());
}

static json_t *manifest(void)
{
    return json_loads(
        "{\"magic\":\"QPACK\",\"version\":1,\"modelName\":\"qwen3_5_moe_text\",\"sourceCheckpoint\":\"x\","
        "\"quantBits\":8,\"files\":{\"packed_experts/layer_00.bin\":131072,"
        "\"packed_experts/layer_01.bin\":131072}}",
        0, NULL);
}

static void write_and_free(const char *name, json_t *v)
{
    write_json(name, v);
    json_decref(v);
}

static void write_qpack_dense(const char *prefix, bool mlx)
{
    st_file f;

    st_begin(&f);
    add_dense(&f, prefix, mlx);
    st_end(&f, "model.safetensors");
}

/* A complete container. */
static void write_qpack(void)
{
    mkdir_in("packed_experts");
    write_and_free("manifest.json", manifest());
    write_and_free("config.json", config());
    write_and_free("packed_experts/layout.json", layout());
    write_blank("packed_experts/layer_00.bin", 131072);
    write_blank("packed_experts/layer_01.bin", 131072);
    write_qpack_dense("model.", true);
}

static swl_checkpoint *open_ok(void)
{
    swl_checkpoint *c;
    swl_error err = {0};
    swl_status st = swl_checkpoint_open(&c, root, &err);

    if (st)
        print_error("%s\n", err.message);
    assert_int_equal(st, SWL_OK);
    return c;
}

/* `file` must end the path that the error names; `text` must be in the message. */
static void refuses(swl_status want, const char *file, const char *text)
{
    swl_checkpoint *c;
    swl_error err = {0};
    swl_status st = swl_checkpoint_open(&c, root, &err);
    size_t n = strlen(err.file), k = strlen(file);
    bool ok = st == want && strstr(err.message, text) && n >= k && !strcmp(err.file + n - k, file);

    if (!ok)
        print_error("expected status %d, file %s, \"%s\"; found status %d, file %s, \"%s\"\n", want, file, text, st,
                    err.file, err.message);
    assert_true(ok);
    assert_null(c);
}

/* ---- .qpack ----------------------------------------------------------------------------------------------------- */

static void opens_a_container(void **state)
{
    static const uint64_t offsets[] = {0, 4096, 4352, 4608, 8704, 8960, 9216, 13312, 13568};
    swl_checkpoint *c;
    const swl_expert_layout *l;

    (void)state;
    write_qpack();
    c = open_ok();
    l = &c->experts[1];
    assert_int_equal(c->kind, SWL_CHECKPOINT_QPACK);
    assert_true(c->norms_hold_one_plus_w);
    assert_false(c->mtp);
    assert_string_equal(c->prefix, "model.");
    assert_int_equal(c->n_files, 2);
    assert_int_equal(c->files[1].size, 131072);
    assert_int_equal(l->n_sections, 9);
    for (int i = 0; i < 9; i++)
        assert_int_equal(l->sections[i].offset, offsets[i]);
    assert_int_equal(l->slot_bytes, STRIDE);
    assert_int_equal(l->n_ranges, 1);
    assert_null(l->crc32c);
    assert_int_equal(l->ranges[7].file, 1);
    assert_int_equal(l->ranges[7].offset, 7 * STRIDE);
    assert_int_equal(l->ranges[7].size, STRIDE);
    assert_int_equal(l->ranges[7].dst, 0);
    assert_non_null(swl_checkpoint_find(c, "model.norm.weight"));
    assert_null(swl_checkpoint_find(c, "lm_head.weight"));
    swl_checkpoint_close(c);
}

static void shows_the_matrices_of_a_slot(void **state)
{
    swl_checkpoint *c;
    static const uint8_t slot[16384];
    swl_matrix m;

    (void)state;
    write_qpack();
    c = open_ok();
    swl_expert_matrix(c, 0, SWL_PROJ_DOWN, slot, &m);
    assert_int_equal(m.type, SWL_W_A4);
    assert_int_equal(m.sdtype, SWL_DT_BF16);
    assert_int_equal(m.rows, HIDDEN);
    assert_int_equal(m.cols, WIDTH);
    assert_int_equal(m.group, 64);
    assert_ptr_equal(m.data, slot + 9216);
    assert_ptr_equal(m.scales, slot + 13312);
    assert_ptr_equal(m.biases, slot + 13568);
    swl_checkpoint_close(c);
}

static void accepts_both_spellings_of_dense_names(void **state)
{
    swl_checkpoint *c;

    (void)state;
    write_qpack();
    write_qpack_dense("language_model.model.", true);
    c = open_ok();
    assert_string_equal(c->prefix, "language_model.model.");
    assert_string_equal(swl_checkpoint_find(c, "model.norm.weight")->name, "language_model.model.norm.weight");
    swl_checkpoint_close(c);
}

static void refuses_a_container_with_foreign_conventions(void **state)
{
    (void)state;
    write_qpack();
    write_qpack_dense("model.", false);
    refuses(SWL_E_CORRUPT, "model.safetensors", "expected [C, 4, 1] in a container");
}

/* What a changed field of a JSON file of the container leads to. */
typedef struct json_case {
    const char *field, *value;
    swl_status want; /* SWL_OK: opens */
    const char *file, *text;
} json_case;

static void run_cases(const char *name, json_t *(*make)(void), const json_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *v = make();

        set(v, cases[i].field, cases[i].value);
        write_and_free(name, v);
        if (cases[i].want)
            refuses(cases[i].want, cases[i].file ? cases[i].file : name, cases[i].text);
        else
            swl_checkpoint_close(open_ok());
    }
    write_and_free(name, make());
    swl_checkpoint_close(open_ok());
}

#define RUN(name, make, cases) run_cases(name, make, cases, sizeof cases / sizeof cases[0])

static void checks_the_manifest(void **state)
{
    static const json_case cases[] = {
        {"magic", "\"ZPACK\"", SWL_E_CORRUPT, NULL, "magic is \"ZPACK\""},
        {"magic", NULL, SWL_E_CORRUPT, NULL, "\"magic\" is missing"},
        {"version", "2", SWL_E_UNSUPPORTED, NULL, "version 2 of QPACK"},
        {"version", "\"1\"", SWL_E_CORRUPT, NULL, "\"version\" is a string"},
        {"magic", "\"QPACK2\"", SWL_E_UNSUPPORTED, NULL, "version 1 of QPACK2 is not supported, expected 2"},
        {"files", NULL, SWL_E_CORRUPT, NULL, "\"files\" is missing"},
        {"files", "[]", SWL_E_CORRUPT, NULL, "\"files\" is missing or not an object"},
        {"files", "{\"../secret\":1}", SWL_E_CORRUPT, NULL, "\"../secret\" is not a relative path"},
        {"files", "{\"/etc/passwd\":1}", SWL_E_CORRUPT, NULL, "\"/etc/passwd\""},
        {"files", "{\"packed_experts/../config.json\":1}", SWL_E_CORRUPT, NULL, "is not a relative path"},
        {"files", "{\"a\\\\b\":1}", SWL_E_CORRUPT, NULL, "is not a relative path"},
        {"files", "{\"c:x\":1}", SWL_E_CORRUPT, NULL, "is not a relative path"},
        {"files", "{\"\":1}", SWL_E_CORRUPT, NULL, "is not a relative path"},
        {"files", "{\"config.json\":-1}", SWL_E_CORRUPT, NULL, "the length of \"config.json\""},
        {"files", "{\"config.json\":1.5}", SWL_E_CORRUPT, NULL, "the length of \"config.json\""},
        {"files", "{\"config.json\":9007199254740993}", SWL_E_CORRUPT, NULL, "the length of \"config.json\""},
        {"files", "{\"config.json\":3}", SWL_E_CORRUPT, "config.json", "expected 3 from manifest.json"},
        {"files", "{\"absent.bin\":3}", SWL_E_NOT_FOUND, "absent.bin", "cannot open"},
        {"files", "{\"packed_experts\":3}", SWL_E_CORRUPT, "packed_experts", "not a regular file"},
        {"files", "{\"tokenizer.json\":3}", SWL_OK, NULL, NULL}, /* small files may be missing */
        {"quantBits", NULL, SWL_OK, NULL, NULL},
        {"novelty", "[1]", SWL_OK, NULL, NULL},
    };

    (void)state;
    write_qpack();
    RUN("manifest.json", manifest, cases);
}

static void refuses_an_unfinished_install(void **state)
{
    (void)state;
    write_qpack();
    write_text(".install-progress.json", "{}");
    refuses(SWL_E_CORRUPT, root, "incomplete install");
    unlink_in("manifest.json");
    refuses(SWL_E_NOT_FOUND, "manifest.json", "the container is incomplete");
    unlink_in(".install-progress.json");
    refuses(SWL_E_NOT_FOUND, "manifest.json", "the container is incomplete");
    write_text("manifest.json", "{\"magic\":");
    refuses(SWL_E_CORRUPT, "manifest.json", "not valid JSON");
}

static void checks_the_layout(void **state)
{
    static const json_case cases[] = {
        {"expertCount", "9", SWL_E_CORRUPT, NULL, "expertCount is 9, expected num_experts of config.json, 8"},
        {"layerCount", "1", SWL_E_CORRUPT, NULL, "layerCount is 1, expected at least"},
        {"layerCount", "3", SWL_OK, NULL, NULL}, /* draft layers */
        {"layerCount", "0", SWL_E_CORRUPT, NULL, "the container has no experts; reinstall it"},
        {"layerCount", "-1", SWL_E_CORRUPT, NULL, "\"layerCount\" is -1"},
        {"sections", "[]", SWL_E_CORRUPT, NULL, "the container has no experts; reinstall it"},
        {"sections", NULL, SWL_E_CORRUPT, NULL, "\"sections\" is missing"},
        {"sections", "[3]", SWL_E_CORRUPT, NULL, "is not an object"},
        {"expertStride", "0", SWL_E_CORRUPT, NULL, "the container has no experts; reinstall it"},
        {"expertStride", "16000", SWL_E_CORRUPT, NULL, "expertStride is 16000, expected a multiple of 4096"},
        {"expertStride", "12288", SWL_E_CORRUPT, NULL, "\"down_proj.weight\": offset 9216 + size 4096 is past"},
        {"expertStride", "20480", SWL_E_CORRUPT, "layer_00.bin", "has 131072 bytes, expected 163840"},
        {"expertStride", "9223372036854775807", SWL_E_CORRUPT, NULL, "\"expertStride\" is 9223372036854775807"},
        {"expertStride", "16384.0", SWL_E_CORRUPT, NULL, "\"expertStride\" is a real"},
        {"linearLayers", "[false,true]", SWL_E_CORRUPT, NULL, "linearLayers[0] is not true"},
        {"linearLayers", "[true]", SWL_E_CORRUPT, NULL, "linearLayers has 1 entries"},
        {"linearLayers", NULL, SWL_E_CORRUPT, NULL, "linearLayers has 0 entries"},
        {"sections/1/name", "\"gate_proj.weight\"", SWL_E_CORRUPT, NULL, "\"gate_proj.weight\": occurs twice"},
        {"sections/1/name", "\"gate_proj.bias\"", SWL_E_CORRUPT, NULL, "\"gate_proj.bias\": unknown name"},
        {"sections/0", NULL, SWL_E_CORRUPT, NULL, "gate_proj.weight is missing"},
        {"sections/1", NULL, SWL_E_CORRUPT, NULL, "gate_proj.scales is missing"},
        {"sections/2", NULL, SWL_E_UNSUPPORTED, NULL, "gate_proj has scales but no biases"},
        {"sections/1/offset", "4095", SWL_E_CORRUPT, NULL,
         "\"gate_proj.scales\" overlaps section \"gate_proj.weight\""},
        {"sections/8/offset", "16129", SWL_E_CORRUPT, NULL, "\"down_proj.biases\": offset 16129 + size 256 is past"},
        {"sections/8/offset", "9007199254740993", SWL_E_CORRUPT, NULL, "\"offset\" is 9007199254740993"},
        {"sections/8/offset", "-1", SWL_E_CORRUPT, NULL, "\"offset\" is -1"},
        {"sections/8/size", "255", SWL_E_CORRUPT, NULL,
         "\"down_proj.biases\": size is 255, expected that of BF16 [128, 1]"},
        {"sections/8/shape", "[2147483647,2147483647]", SWL_E_CORRUPT, NULL, "\"down_proj.biases\": size is 256"},
        {"sections/8/shape", "[128,1,1]", SWL_E_CORRUPT, NULL, "\"down_proj.biases\": shape"},
        {"sections/8/shape", "[0,256]", SWL_E_CORRUPT, NULL, "\"down_proj.biases\": shape"},
        {"sections/8/shape", "[64,2]", SWL_E_CORRUPT, NULL, "layer 0, down_proj.biases is BF16 [64, 2]"},
        {"sections/8/dtype", "\"F16\"", SWL_E_CORRUPT, NULL, "down_proj.biases is F16"},
        {"sections/8/dtype", "\"C64\"", SWL_E_UNSUPPORTED, NULL, "dtype \"C64\""},
        {"sections/0/dtype", "\"I32\"", SWL_OK, NULL, NULL},
        {"sections/0/dtype", "\"F32\"", SWL_E_CORRUPT, NULL, "gate_proj.weight is F32 [64, 16], expected U32 words"},
        {"sections/0/shape", "[16,64]", SWL_E_CORRUPT, NULL, "gate_proj.weight is U32 [16, 64]"},
        {"sections/8/offset", "13569", SWL_OK, NULL, NULL}, /* no alignment inside a slot */
    };

    (void)state;
    write_qpack();
    RUN("packed_experts/layout.json", layout, cases);
}

static void names_the_mode_of_config_json(void **state)
{
    json_t *v = layout();

    (void)state;
    write_qpack();
    set(v, "sections/2", NULL);
    write_and_free("packed_experts/layout.json", v);
    v = config();
    set(v, "quantization", "{\"group_size\":16,\"bits\":4,\"mode\":\"nvfp4\"}");
    write_and_free("config.json", v);
    refuses(SWL_E_UNSUPPORTED, "layout.json", "mode \"nvfp4\" of config.json is not supported, expected affine");
}

static void checks_the_layer_files(void **state)
{
    (void)state;
    write_qpack();
    write_blank("packed_experts/layer_01.bin", 131071);
    refuses(SWL_E_CORRUPT, "layer_01.bin", "has 131071 bytes, expected 131072 (8 experts of 16384)");
    write_blank("packed_experts/layer_01.bin", 0);
    refuses(SWL_E_CORRUPT, "layer_01.bin", "has 0 bytes");
    unlink_in("packed_experts/layer_01.bin");
    refuses(SWL_E_NOT_FOUND, "layer_01.bin", "cannot open");
    mkdir_in("packed_experts/layer_01.bin");
    refuses(SWL_E_CORRUPT, "layer_01.bin", "not a regular file");
}

static void needs_the_dense_file(void **state)
{
    (void)state;
    write_qpack();
    unlink_in("model.safetensors");
    refuses(SWL_E_NOT_FOUND, "model.safetensors", "cannot open");
    unlink_in("config.json");
    refuses(SWL_E_NOT_FOUND, "config.json", "cannot open");
}

static void follows_links(void **state)
{
    const char *path, *target;

    (void)state;
    write_qpack();
    path = in_root("model.safetensors");
    target = in_root("blob");
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink("blob", path), 0);
    swl_checkpoint_close(open_ok());
    assert_int_equal(unlink(target), 0);
    refuses(SWL_E_NOT_FOUND, "model.safetensors", "cannot open");
}

/* Repacks from a hub cache leave such links behind; whoever needs the file will name it. */
static void takes_a_dangling_tokenizer_link_as_missing(void **state)
{
    json_t *v = manifest();

    (void)state;
    write_qpack();
    set(v, "files", "{\"tokenizer.json\":20000000}");
    write_and_free("manifest.json", v);
    assert_int_equal(symlink("/nonexistent/blob", in_root("tokenizer.json")), 0);
    swl_checkpoint_close(open_ok());
    unlink_in("tokenizer.json");
    write_text("tokenizer.json", "{}");
    refuses(SWL_E_CORRUPT, "tokenizer.json", "has 2 bytes, expected 20000000");
}

static void refuses_a_manifest_that_is_no_manifest(void **state)
{
    (void)state;
    write_qpack();
    write_blank("manifest.json", 5 << 20);
    refuses(SWL_E_CORRUPT, "manifest.json", "has 5242880 bytes, expected at most 4194304");
    write_text("manifest.json", "[]");
    refuses(SWL_E_CORRUPT, "manifest.json", "is not a JSON object");
}

static void accepts_dense_shards_and_a_draft_head(void **state)
{
    swl_checkpoint *c;
    st_file f;

    (void)state;
    write_qpack();
    unlink_in("model.safetensors");
    st_begin(&f);
    add_dense(&f, "model.", true);
    st_end(&f, "dense-1.safetensors");
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"model.embed_tokens.weight\":\"dense-1.safetensors\"}}");
    write_text("mtp.safetensors", "");
    c = open_ok();
    assert_non_null(swl_checkpoint_find(c, "model.norm.weight"));
    assert_true(c->mtp);
    swl_checkpoint_close(c);
}

/* ---- version 2 -------------------------------------------------------------------------------------------------- */

static json_t *manifest2(void)
{
    return json_loads("{\"magic\":\"QPACK2\",\"version\":2,\"files\":{}}", 0, NULL);
}

/* Layer 0 dense, layer 1 in bfloat16. */
static json_t *layout2(void)
{
    json_t *list = json_array();
    long at = 0;

    json_array_append_new(list, section("gate_proj", "weight", "BF16", WIDTH, HIDDEN, &at));
    json_array_append_new(list, section("up_proj", "weight", "BF16", WIDTH, HIDDEN, &at));
    json_array_append_new(list, section("down_proj", "weight", "BF16", HIDDEN, WIDTH, &at));
    return json_pack("{s:i,s:i,s:[b,b],s:[n,{s:i,s:o}]}", "expertCount", EXPERTS, "layerCount", 2, "linearLayers", 1, 0,
                     "layers", "expertStride", 49152, "sections", list);
}

static json_t *config2(void)
{
    json_t *v = config();

    set(v, "model_type", "\"qwen3_next\"");
    set(v, "mlp_only_layers", "[0]");
    set(v, "intermediate_size", "64");
    return v;
}

static void reads_a_layout_per_layer(void **state)
{
    static const json_case cases[] = {
        {"layers/0", "{}", SWL_E_CORRUPT, NULL, "layers[0] is not null"},
        {"layers/1", "null", SWL_E_CORRUPT, NULL, "layers[1] is not an object"},
        {"layers/1", NULL, SWL_E_CORRUPT, NULL, "shorter than num_hidden_layers"},
        {"layers", NULL, SWL_E_CORRUPT, NULL, "\"layers\" is missing"},
        {"layers/1/sections/2/shape", "[64,128]", SWL_E_CORRUPT, NULL, "layer 1, down_proj.weight is BF16 [64, 128]"},
    };
    swl_checkpoint *c;
    swl_matrix m;

    (void)state;
    mkdir_in("packed_experts");
    write_and_free("manifest.json", manifest2());
    write_and_free("config.json", config2());
    write_and_free("packed_experts/layout.json", layout2());
    write_blank("packed_experts/layer_01.bin", EXPERTS * 49152);
    write_qpack_dense("model.", true);
    c = open_ok();
    assert_int_equal(c->n_files, 1);
    assert_int_equal(c->experts[0].n_ranges, 0);
    assert_int_equal(c->experts[1].n_sections, 3);
    assert_int_equal(c->experts[1].slot_bytes, 49152);
    swl_expert_matrix(c, 1, SWL_PROJ_UP, NULL, &m);
    assert_int_equal(m.type, SWL_W_BF16);
    assert_int_equal(m.group, 0);
    assert_null(m.scales);
    swl_checkpoint_close(c);
    RUN("packed_experts/layout.json", layout2, cases);
}

static void opens_a_dense_container(void **state)
{
    json_t *v = config2();
    swl_checkpoint *c;

    (void)state;
    set(v, "num_experts", "0");
    write_and_free("manifest.json", manifest2());
    write_and_free("config.json", v);
    write_qpack_dense("model.", true);
    c = open_ok();
    assert_int_equal(c->kind, SWL_CHECKPOINT_QPACK);
    assert_null(c->experts);
    swl_checkpoint_close(c);
}

/* ---- swiftlet.json ---------------------------------------------------------------------------------------------- */

static json_t *sidecar(void)
{
    return json_loads("{\"version\":1,\"dialect\":\"mlx\",\"norms\":\"1+w\",\"kHeadMap\":\"grouped\",\"crc32c\":{"
                      "\"packed_experts/layer_01.bin\":"
                      "\"00000000000000010000000200000003000000040000000500000006deadBEEF\","
                      "\"model.safetensors\":{\"model.norm.weight\":\"0123abcd\"}}}",
                      0, NULL);
}

static void reads_checksums(void **state)
{
    static const json_case cases[] = {
        {"version", "2", SWL_E_UNSUPPORTED, NULL, "version 2 is not supported"},
        {"version", NULL, SWL_E_CORRUPT, NULL, "\"version\" is missing"},
        {"norms", "\"w\"", SWL_E_UNSUPPORTED, NULL, "norms \"w\" is not supported"},
        {"kHeadMap", "\"tiled\"", SWL_E_UNSUPPORTED, NULL, "kHeadMap \"tiled\""},
        {"crc32c", "3", SWL_E_CORRUPT, NULL, "\"crc32c\" is not an object"},
        {"crc32c", NULL, SWL_OK, NULL, NULL},
        {"crc32c/later.bin", "\"\"", SWL_OK, NULL, NULL},
        {"crc32c/other.bin", "\"0000000g\"", SWL_E_CORRUPT, NULL, "crc32c of other.bin is not hex digits"},
        {"crc32c/other.bin", "\"0000000\"", SWL_E_CORRUPT, NULL, "crc32c of other.bin is not hex digits"},
        {"crc32c/other.bin", "7", SWL_E_CORRUPT, NULL, "crc32c of other.bin is not hex digits"},
        {"crc32c/model.safetensors/x", "\"012\"", SWL_E_CORRUPT, NULL, "crc32c of model.safetensors, x is not 8 hex"},
    };
    json_t *v = sidecar();
    swl_checkpoint *c;
    uint32_t crc = 0;

    (void)state;
    write_qpack();
    write_and_free("swiftlet.json", v);
    c = open_ok();
    assert_null(c->experts[0].crc32c);
    assert_int_equal(c->experts[1].crc32c[1], 1);
    assert_int_equal(c->experts[1].crc32c[7], 0xdeadbeef);
    assert_true(swl_checkpoint_crc32c(c, swl_checkpoint_find(c, "model.norm.weight"), &crc));
    assert_int_equal(crc, 0x0123abcd);
    assert_false(swl_checkpoint_crc32c(c, swl_checkpoint_find(c, "model.embed_tokens.weight"), &crc));
    swl_checkpoint_close(c);
    RUN("swiftlet.json", sidecar, cases);
    v = sidecar();
    json_object_set_new(json_object_get(v, "crc32c"), "packed_experts/layer_00.bin", json_string("00000001"));
    write_and_free("swiftlet.json", v);
    refuses(SWL_E_CORRUPT, "swiftlet.json", "layer_00.bin has 8 hex digits, expected 8 slots of 8");
}

/* ---- MLX -------------------------------------------------------------------------------------------------------- */

static void write_mlx(const char *prefix)
{
    st_file f;

    write_and_free("config.json", config());
    st_begin(&f);
    add_dense(&f, prefix, true);
    add_stacked_layer(&f, prefix, 0, 4, 64);
    add_stacked_layer(&f, prefix, 1, 8, 32);
    ADD(&f, "language_model.lm_head.weight", "BF16", 32, HIDDEN);
    ADD(&f, "mtp.fc.weight", "BF16", HIDDEN, 2 * HIDDEN);
    ADD(&f, "vision_tower.x.scales", "U8", 4);
    st_end(&f, "model.safetensors");
}

static void opens_mlx_in_place(void **state)
{
    static const uint64_t dst[] = {0, 4096, 4352, 4608, 8704, 8960, 9216, 13312, 13568};
    const swl_st_tensor *t;
    swl_checkpoint *c;
    swl_matrix m;

    (void)state;
    write_mlx("language_model.model.");
    c = open_ok();
    assert_int_equal(c->kind, SWL_CHECKPOINT_MLX);
    assert_true(c->norms_hold_one_plus_w);
    assert_true(c->mtp);
    assert_string_equal(c->prefix, "language_model.model.");
    assert_non_null(swl_checkpoint_find(c, "lm_head.weight"));
    assert_non_null(swl_checkpoint_find(c, "mtp.fc.weight"));
    assert_int_equal(c->n_files, 1);
    assert_int_equal(c->experts[0].n_ranges, 9);
    assert_int_equal(c->experts[0].slot_bytes, 13824);
    for (int k = 0; k < 9; k++) {
        const swl_range *r = &c->experts[0].ranges[5 * 9 + k];

        assert_int_equal(r->dst, dst[k]);
        assert_int_equal(r->size, k % 3 ? 256 : 4096);
    }
    t = swl_checkpoint_find(c, "model.layers.0.mlp.switch_mlp.up_proj.scales");
    assert_int_equal(c->experts[0].ranges[5 * 9 + 4].offset, t->offset + 5 * 256);
    swl_expert_matrix(c, 1, SWL_PROJ_GATE, NULL, &m);
    assert_int_equal(m.type, SWL_W_A8);
    assert_int_equal(m.group, 32);
    swl_checkpoint_close(c);
}

/* Shards cut inside a layer; a small file that the index lists. */
static void follows_shards(void **state)
{
    st_file f;
    swl_checkpoint *c;

    (void)state;
    write_and_free("config.json", config());
    st_begin(&f);
    add_dense(&f, "model.", true);
    add_stacked_layer(&f, "model.", 0, 4, 64);
    add_stacked(&f, "model.", 1, "gate_proj", WIDTH, HIDDEN, 4, 64);
    st_end(&f, "model-00001-of-00002.safetensors");
    st_begin(&f);
    add_stacked(&f, "model.", 1, "up_proj", WIDTH, HIDDEN, 3, 32);
    add_stacked(&f, "model.", 1, "down_proj", HIDDEN, WIDTH, 6, 64);
    st_end(&f, "model-00002-of-00002.safetensors");
    c = open_ok();
    assert_int_equal(c->n_files, 2);
    assert_int_equal(c->experts[1].ranges[0].file, 0);
    assert_int_equal(c->experts[1].ranges[3].file, 1);
    assert_non_null(strstr(c->files[1].path, "model-00002"));
    swl_checkpoint_close(c);
}

/* One tensor of layer 0 replaced or left out. */
static void mlx_with(const char *name, const char *dtype, long a, long b, long d)
{
    st_file f;

    st_begin(&f);
    add_dense(&f, "model.", true);
    add_stacked_layer(&f, "model.", 1, 4, 64);
    add_stacked_layer(&f, "model.", 0, 4, 64);
    json_object_del(f.header, name);
    if (dtype)
        ADD(&f, name, dtype, a, b, d);
    /* Close the hole that the old one left: declare everything again in order. */
    {
        json_t *old = json_deep_copy(f.header), *v;
        const char *key;

        st_drop_all_but_new(&f);
        json_object_foreach (old, key, v) {
            long shape[3] = {0};
            int n = (int)json_array_size(json_object_get(v, "shape"));

            for (int i = 0; i < n; i++)
                shape[i] = (long)json_integer_value(json_array_get(json_object_get(v, "shape"), (size_t)i));
            st_add(&f, key, json_string_value(json_object_get(v, "dtype")), n, shape);
        }
        json_decref(old);
    }
    st_end(&f, "model.safetensors");
}

#define SWITCH "model.layers.0.mlp.switch_mlp."

static void checks_stacked_tensors(void **state)
{
    (void)state;
    write_and_free("config.json", config());
    mlx_with(SWITCH "up_proj.weight", NULL, 0, 0, 0);
    refuses(SWL_E_CORRUPT, "model.safetensors", "tensor \"" SWITCH "up_proj.weight\" is missing");
    mlx_with(SWITCH "gate_proj.weight", NULL, 0, 0, 0);
    refuses(SWL_E_CORRUPT, "model.safetensors", "layer 0 has no routed experts");
    mlx_with(SWITCH "up_proj.scales", NULL, 0, 0, 0);
    refuses(SWL_E_CORRUPT, "model.safetensors", "layer 0: up_proj.scales is missing");
    mlx_with(SWITCH "up_proj.biases", NULL, 0, 0, 0);
    refuses(SWL_E_UNSUPPORTED, "model.safetensors", "layer 0, up_proj has scales but no biases");
    mlx_with(SWITCH "up_proj.weight", "U32", EXPERTS + 1, WIDTH, 16);
    refuses(SWL_E_CORRUPT, "model.safetensors", "[9, 64, ...], expected [8, 64, ...]");
    mlx_with(SWITCH "up_proj.weight", "U32", EXPERTS, WIDTH, 15);
    refuses(SWL_E_UNSUPPORTED, "model.safetensors", "layer 0, up_proj: weight [64, 15] and scales [64, 2]");
    mlx_with(SWITCH "up_proj.weight", "BF16", EXPERTS, WIDTH, 16);
    refuses(SWL_E_CORRUPT, "model.safetensors", "up_proj.weight is BF16 [64, 16], expected U32 words");
    mlx_with(SWITCH "up_proj.weight", "I32", EXPERTS, WIDTH, 16);
    swl_checkpoint_close(open_ok());
}

static void refuses_mixed_conventions(void **state)
{
    st_file f;

    (void)state;
    write_and_free("config.json", config());
    st_begin(&f);
    add_dense(&f, "model.", false);
    add_stacked_layer(&f, "model.", 0, 4, 64);
    st_end(&f, "model.safetensors");
    refuses(SWL_E_CORRUPT, "model.safetensors",
            "named as in MLX checkpoints, but conv1d.weight is stored as in Hugging");
    st_begin(&f);
    add_dense(&f, "model.", false);
    ADD(&f, "model.layers.1.linear_attn.conv1d.weight", "BF16", 96, 4, 1);
    st_end(&f, "model.safetensors");
    refuses(SWL_E_CORRUPT, "model.safetensors", "MLX and Hugging Face files are mixed");
    st_begin(&f);
    ADD(&f, "model.embed_tokens.weight", "BF16", 32, HIDDEN);
    ADD(&f, "model.layers.0.linear_attn.conv1d.weight", "BF16", 96, 4);
    st_end(&f, "model.safetensors");
    refuses(SWL_E_CORRUPT, "model.safetensors", "conv1d.weight\" has 2 dimensions");
    st_begin(&f);
    ADD(&f, "model.embed_tokens.weight", "BF16", 32, HIDDEN);
    st_end(&f, "model.safetensors");
    refuses(SWL_E_CORRUPT, "model.safetensors", "no tensor linear_attn.conv1d.weight");
    st_begin(&f);
    ADD(&f, "transformer.wte.weight", "BF16", 32, HIDDEN);
    st_end(&f, "model.safetensors");
    refuses(SWL_E_CORRUPT, "model.safetensors", "no tensor embed_tokens.weight");
}

/* ---- Hugging Face ----------------------------------------------------------------------------------------------- */

static void opens_fused_experts(void **state)
{
    const swl_st_tensor *t;
    swl_checkpoint *c;
    const swl_range *r;
    swl_matrix m;
    st_file f;

    (void)state;
    write_and_free("config.json", config());
    st_begin(&f);
    add_dense(&f, "model.language_model.", false);
    for (int i = 0; i < 2; i++) {
        char name[128];

        snprintf(name, sizeof name, "model.language_model.layers.%d.mlp.experts.gate_up_proj", i);
        ADD(&f, name, "BF16", EXPERTS, 2 * WIDTH, HIDDEN);
        snprintf(name, sizeof name, "model.language_model.layers.%d.mlp.experts.down_proj", i);
        ADD(&f, name, "BF16", EXPERTS, HIDDEN, WIDTH);
    }
    ADD(&f, "lm_head.weight", "BF16", 32, HIDDEN);
    st_end(&f, "model.safetensors");
    c = open_ok();
    assert_int_equal(c->kind, SWL_CHECKPOINT_HF);
    assert_false(c->norms_hold_one_plus_w);
    assert_string_equal(c->prefix, "model.language_model.");
    assert_non_null(swl_checkpoint_find(c, "lm_head.weight"));
    assert_int_equal(c->experts[1].n_sections, 3);
    assert_int_equal(c->experts[1].slot_bytes, 3 * 16384);
    assert_int_equal(c->experts[1].n_ranges, 2); /* gate and up follow each other */
    r = &c->experts[1].ranges[2 * 3];
    t = swl_checkpoint_find(c, "model.layers.1.mlp.experts.gate_up_proj");
    assert_int_equal(r[0].offset, t->offset + 3 * 32768);
    assert_int_equal(r[0].size, 32768);
    assert_int_equal(r[0].dst, 0);
    t = swl_checkpoint_find(c, "model.layers.1.mlp.experts.down_proj");
    assert_int_equal(r[1].offset, t->offset + 3 * 16384);
    assert_int_equal(r[1].dst, 32768);
    swl_expert_matrix(c, 1, SWL_PROJ_UP, NULL, &m);
    assert_int_equal(m.type, SWL_W_BF16);
    assert_int_equal(m.rows, WIDTH);
    assert_int_equal(m.cols, HIDDEN);
    assert_int_equal((uintptr_t)m.data, 16384);
    swl_checkpoint_close(c);
}

/* experts.{e}.*: expert `skip` leaves out its up projection, expert `odd` has it in float32. */
static void write_split(int skip_expert, int odd_expert)
{
    st_file f;

    st_begin(&f);
    add_dense(&f, "model.", false);
    for (int i = 0; i < 2; i++)
        for (int e = 0; e < EXPERTS; e++) {
            char name[128];

            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.down_proj.weight", i, e);
            ADD(&f, name, "F16", HIDDEN, WIDTH);
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.gate_proj.weight", i, e);
            ADD(&f, name, "F16", WIDTH, HIDDEN);
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", i, e);
            if (e != skip_expert)
                ADD(&f, name, e == odd_expert ? "F32" : "F16", WIDTH, HIDDEN);
        }
    st_end(&f, "model.safetensors");
}

static void opens_split_experts(void **state)
{
    swl_checkpoint *c;
    const swl_range *r;

    (void)state;
    write_and_free("config.json", config());
    write_split(-1, -1);
    c = open_ok();
    assert_int_equal(c->kind, SWL_CHECKPOINT_HF);
    assert_int_equal(c->experts[0].n_ranges, 2); /* gate and up lie side by side in this file, down before them */
    r = &c->experts[0].ranges[2 * 6];
    assert_int_equal(r[0].offset, swl_checkpoint_find(c, "model.layers.0.mlp.experts.6.gate_proj.weight")->offset);
    assert_int_equal(r[0].size, 32768);
    assert_int_equal(r[1].offset, swl_checkpoint_find(c, "model.layers.0.mlp.experts.6.down_proj.weight")->offset);
    assert_int_equal(r[1].dst, 32768);
    swl_checkpoint_close(c);
    write_split(6, -1);
    refuses(SWL_E_CORRUPT, "model.safetensors", "\"model.layers.0.mlp.experts.6.up_proj.weight\" is missing");
    write_split(-1, 3);
    refuses(SWL_E_CORRUPT, "model.safetensors", "experts.3.up_proj.weight\" is F32");
}

static void refuses_foreign_forms_by_name(void **state)
{
    static const struct {
        const char *name, *dtype, *text;
    } cases[] = {
        {"model.layers.0.mlp.gate.weight_scale_inv", "BF16", "FP8 with block scales"},
        {"model.layers.0.mlp.gate.weight_packed", "U8", "compressed-tensors"},
        {"model.layers.0.mlp.gate.weight_scale_2", "F32", "ModelOpt NVFP4"},
        {"model.layers.0.mlp.gate.weight_scale", "BF16", "compressed-tensors or ModelOpt"},
        {"model.layers.0.mlp.gate.qweight", "I32", "AWQ or GPTQ"},
        {"model.layers.0.mlp.gate.g_idx", "I32", "GPTQ"},
        {"model.layers.0.mlp.gate.weight.absmax", "F32", "bitsandbytes"},
        {"model.layers.0.mlp.gate.weight", "F8_E4M3", "(F8_E4M3) shows weights in FP8"},
    };

    (void)state;
    write_and_free("config.json", config());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        st_file f;

        st_begin(&f);
        add_dense(&f, "model.", false);
        ADD(&f, cases[i].name, cases[i].dtype, 8, 8);
        ADD(&f, "model.layers.0.mlp.gate.scales", "F16", 8, 8);
        st_end(&f, "model.safetensors");
        refuses(SWL_E_UNSUPPORTED, "model.safetensors", cases[i].text);
        refuses(SWL_E_UNSUPPORTED, "model.safetensors", cases[i].name);
    }
}

static void names_what_is_missing(void **state)
{
    (void)state;
    refuses(SWL_E_NOT_FOUND, "config.json", "cannot open");
    write_and_free("config.json", config());
    refuses(SWL_E_NOT_FOUND, root, "model*.safetensors");
    unlink_in("config.json");
    assert_int_equal(rmdir(root), 0);
    refuses(SWL_E_NOT_FOUND, root, "is not a directory");
    assert_int_equal(mkdir(root, 0755), 0);
}

/* ---- memory and references -------------------------------------------------------------------------------------- */

/* Every allocation fails once: a clean error, then success. */
static void survives_lack_of_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        bool ok = false;

        if (kind == 0)
            write_qpack(), write_and_free("swiftlet.json", sidecar());
        if (kind == 1)
            remove_root(NULL), make_root(NULL), write_mlx("model.");
        if (kind == 2)
            write_split(-1, -1);
        for (int n = 0; !ok; n++) {
            swl_checkpoint *c;
            swl_error err = {0};
            swl_status st;

            swl_mem_fail_after(n, false);
            st = swl_checkpoint_open(&c, root, &err);
            ok = !st;
            swl_mem_fail_after(-1, false);
            if (st && st != SWL_E_NOMEM)
                print_error("kind %d, allocation %d: status %d, %s\n", kind, n, st, err.message);
            assert_true(!st || st == SWL_E_NOMEM);
            swl_checkpoint_close(c);
        }
    }
}

static void check_ranges(const swl_checkpoint *c)
{
    for (int32_t i = 0; c->experts && i < c->config.n_layers; i++) {
        const swl_expert_layout *l = &c->experts[i];
        int64_t n = (int64_t)l->n_ranges * c->config.n_experts;

        assert_true(l->slot_bytes % 64 == 0 && (l->slot_bytes > 0) == (c->config.layers[i].ffn == SWL_FFN_MOE));
        for (int64_t k = 0; k < n; k++) {
            assert_true(l->ranges[k].offset + l->ranges[k].size <= c->files[l->ranges[k].file].size);
            assert_true(l->ranges[k].dst + l->ranges[k].size <= l->slot_bytes);
        }
    }
}

static void opens_the_reference_models(void **state)
{
    const char *env = getenv("SWL_ORACLE_DIR"), *top = env ? env : SWL_TEST_DATA "/oracle/cases";
    DIR *d = opendir(top);
    struct dirent *e;
    int n = 0;

    (void)state;
    while (d && (e = readdir(d))) {
        char *path = swl_path_join(top, e->d_name), *config_path = swl_path_join(path, "config.json");
        swl_checkpoint *c = NULL;
        swl_error err = {0};

        if (e->d_name[0] != '.' && !access(config_path, R_OK)) {
            swl_status st = swl_checkpoint_open(&c, path, &err);

            if (st)
                print_error("%s\n", err.message);
            assert_int_equal(st, SWL_OK);
            assert_int_equal(c->kind, strstr(e->d_name, "mlx") ? SWL_CHECKPOINT_MLX : SWL_CHECKPOINT_HF);
            assert_non_null(swl_checkpoint_find(c, "model.layers.0.input_layernorm.weight"));
            assert_true(!swl_checkpoint_find(c, "lm_head.weight") == c->config.tied);
            check_ranges(c);
            swl_checkpoint_close(c);
            n++;
        }
        swl_free(config_path);
        swl_free(path);
    }
    if (d)
        closedir(d);
    if (!n)
        skip();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_a_container),
        TEST(shows_the_matrices_of_a_slot),
        TEST(accepts_both_spellings_of_dense_names),
        TEST(refuses_a_container_with_foreign_conventions),
        TEST(checks_the_manifest),
        TEST(refuses_an_unfinished_install),
        TEST(checks_the_layout),
        TEST(names_the_mode_of_config_json),
        TEST(checks_the_layer_files),
        TEST(needs_the_dense_file),
        TEST(follows_links),
        TEST(takes_a_dangling_tokenizer_link_as_missing),
        TEST(refuses_a_manifest_that_is_no_manifest),
        TEST(accepts_dense_shards_and_a_draft_head),
        TEST(reads_a_layout_per_layer),
        TEST(opens_a_dense_container),
        TEST(reads_checksums),
        TEST(opens_mlx_in_place),
        TEST(follows_shards),
        TEST(checks_stacked_tensors),
        TEST(refuses_mixed_conventions),
        TEST(opens_fused_experts),
        TEST(opens_split_experts),
        TEST(refuses_foreign_forms_by_name),
        TEST(names_what_is_missing),
        TEST(survives_lack_of_memory),
        TEST(opens_the_reference_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
