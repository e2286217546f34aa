/*
 * Conversion into a container: where slots and tensors lie, and that whatever goes wrong leaves the output as it was
 * and nothing beside it. Sources are the reference models of tests/oracle, whole or damaged;
 * tests/install/check_repack.py checks every byte of the result.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/checkpoint.h"
#include "install/stage.h"

#define MOE_HF  "q35moe-a" /* hidden 128, 16 experts of width 64, 4 layers */
#define MOE_MLX "q35moe-a-mlx4"
#define DRAFT   "golden-next-moe" /* hidden 32: nothing is a multiple of the group; has a draft head */
#define DENSE   "q35dense-a"

/* ---- a place to work in ------------------------------------------------------------------------------------------ */

static char dir[64], source[128], output[128];
static swl_error err;

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)sb, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int set_up(void **state)
{
    (void)state;
    /* Memory where possible: every file is synced, and a busy disk takes seconds for that. */
    strcpy(dir, access("/dev/shm", W_OK) ? "/tmp/swl_repack_XXXXXX" : "/dev/shm/swl_repack_XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(source, sizeof source, "%s/source", dir);
    snprintf(output, sizeof output, "%s/out.qpack", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

/* A path in the work directory; one of four buffers in turn. */
static const char *at(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *at(const char *fmt, ...)
{
    static char paths[4][256];
    static int turn;
    char *p = paths[turn++ % 4];
    int n = snprintf(p, sizeof paths[0], "%s/", dir);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(p + n, sizeof paths[0] - (size_t)n, fmt, ap);
    va_end(ap);
    return p;
}

static char *load(const char *path, size_t *n)
{
    char *data;

    assert_int_equal(swl_file_load(&data, n, path, UINT64_C(1) << 30, NULL), SWL_OK);
    return data;
}

static void save(const char *path, const void *data, size_t n)
{
    assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
}

static void copy_case(const char *name)
{
    static const char *const files[] = {"config.json", "model.safetensors"};

    mkdir(source, 0777);
    for (int i = 0; i < 2; i++) {
        char from[512], *data;
        size_t n;

        snprintf(from, sizeof from, "%s/oracle/cases/%s/%s", SWL_TEST_DATA, name, files[i]);
        data = load(from, &n);
        save(at("source/%s", files[i]), data, n);
        swl_free(data);
    }
}

/* Replaces the first occurrence of `old` in a file; both have the same length. */
static void patch(const char *path, const char *old, const char *new)
{
    size_t n, k = strlen(old);
    char *data = load(path, &n);

    assert_int_equal(strlen(new), k);
    for (size_t i = 0; i + k <= n; i++)
        if (!memcmp(data + i, old, k)) {
            memcpy(data + i, new, k);
            save(path, data, n);
            swl_free(data);
            return;
        }
    fail_msg("%s does not hold %s", path, old);
}

static swl_status repack_grouped(const char *out, int32_t group, bool replace)
{
    swl_repack_options opt;

    swl_repack_options_init(&opt);
    opt.source = source;
    opt.output = out;
    opt.group = group;
    opt.replace = replace;
    return swl_repack(&opt, &err);
}

static swl_status repack(const char *out, bool replace)
{
    return repack_grouped(out, 64, replace);
}

static void must(swl_status st)
{
    if (st)
        fail_msg("%s: %s", swl_status_name(st), err.message);
}

/* The work directory holds the source and nothing else. */
static void nothing_is_left(void)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && strcmp(e->d_name, "source"))
            fail_msg("%s is left over", e->d_name);
    closedir(d);
}

static void refused(swl_status code, const char *word)
{
    assert_int_equal(repack(output, false), code);
    if (!strstr(err.message, word))
        fail_msg("\"%s\" does not name \"%s\"", err.message, word);
    nothing_is_left();
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static json_t *json_file(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);

    assert_non_null(root);
    return root;
}

static int64_t integer(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* The format's own example: hidden 128, width 64, 4 bits, group 64: 4096 + 256 + 256 bytes per projection. */
static void slots_lie_as_the_format_says(void **state)
{
    static const int64_t sizes[] = {4096, 256, 256};
    json_t *layout;
    size_t n, offset = 0;

    (void)state;
    copy_case(MOE_HF);
    must(repack(output, false));
    layout = json_file(at("out.qpack/packed_experts/layout.json"));
    assert_int_equal(integer(layout, "expertStride"), 16384);
    assert_int_equal(integer(layout, "expertCount"), 16);
    for (size_t i = 0; i < 9; i++) {
        const json_t *s = json_array_get(json_object_get(layout, "sections"), i);

        assert_int_equal(integer(s, "offset"), offset);
        assert_int_equal(integer(s, "size"), sizes[i % 3]);
        offset += (size_t)sizes[i % 3];
    }
    assert_int_equal(offset, 13824);
    json_decref(layout);
    swl_free(load(at("out.qpack/packed_experts/layer_03.bin"), &n));
    assert_int_equal(n, 16 * 16384);
}

static void reads_back_as_a_container_with_true_checksums(void **state)
{
    uint8_t slot[16384];
    swl_checkpoint *c;

    (void)state;
    copy_case(MOE_MLX);
    must(repack(output, false));
    must(swl_checkpoint_open(&c, output, &err));
    assert_int_equal(c->kind, SWL_CHECKPOINT_QPACK);
    assert_true(c->norms_hold_one_plus_w);
    for (int32_t i = 0; i < c->config.n_layers; i++)
        for (int32_t e = 0; e < c->config.n_experts; e++) {
            const swl_range *r = &c->experts[i].ranges[e];

            must(swl_file_read_at(c->files[r->file].fd, c->files[r->file].path, r->offset, slot, r->size, &err));
            assert_int_equal(swl_crc32c(0, slot, sizeof slot), c->experts[i].crc32c[e]);
        }
    for (int32_t i = 0; i < swl_st_count(c->dense); i++) {
        const swl_st_tensor *t = swl_st_at(c->dense, i);
        uint8_t *data = swl_calloc(t->size, 1);
        uint32_t crc;

        must(swl_st_read(c->dense, t, 0, data, t->size, &err));
        assert_true(swl_checkpoint_crc32c(c, t, &crc));
        assert_int_equal(swl_crc32c(0, data, t->size), crc);
        swl_free(data);
    }
    swl_checkpoint_close(c);
}

static void models_without_experts_have_no_expert_files(void **state)
{
    swl_checkpoint *c;

    (void)state;
    copy_case(DENSE);
    must(repack(output, false));
    assert_false(swl_dir_exists(at("out.qpack/packed_experts")));
    must(swl_checkpoint_open(&c, output, &err));
    assert_null(c->experts);
    swl_checkpoint_close(c);
}

static void keeps_the_draft_head_apart(void **state)
{
    swl_checkpoint *c;

    (void)state;
    copy_case(DRAFT);
    must(repack(output, false));
    must(swl_checkpoint_open(&c, output, &err));
    for (int32_t i = 0; i < swl_st_count(c->dense); i++)
        assert_null(strstr(swl_st_at(c->dense, i)->name, "mtp."));
    swl_checkpoint_close(c);
    assert_true(swl_file_exists(at("out.qpack/mtp.safetensors")));
    assert_true(swl_file_exists(at("out.qpack/packed_experts/mtp_00.bin")));
}

static void names_a_hub_snapshot_by_repository_and_commit(void **state)
{
    json_t *sidecar, *s;

    (void)state;
    copy_case(DRAFT);
    assert_int_equal(mkdir(at("models--org--a--b"), 0777), 0);
    assert_int_equal(mkdir(at("models--org--a--b/snapshots"), 0777), 0);
    assert_int_equal(rename(source, at("models--org--a--b/snapshots/0123abc")), 0);
    assert_int_equal(symlink(at("models--org--a--b/snapshots/0123abc"), source), 0);
    must(repack(output, false));
    sidecar = json_file(at("out.qpack/swiftlet.json"));
    s = json_object_get(sidecar, "source");
    assert_string_equal(json_string_value(json_object_get(s, "id")), "org/a--b");
    assert_string_equal(json_string_value(json_object_get(s, "commit")), "0123abc");
    assert_string_equal(json_string_value(json_object_get(s, "kind")), "hub");
    json_decref(sidecar);
}

static void resolves_links_and_skips_dangling_ones(void **state)
{
    struct stat sb;
    size_t n;
    char *text;

    (void)state;
    copy_case(DRAFT);
    save(at("blob"), "{}", 2);
    assert_int_equal(symlink("../blob", at("source/tokenizer.json")), 0);
    assert_int_equal(symlink("../nowhere", at("source/merges.txt")), 0);
    must(repack(output, false));
    assert_int_equal(lstat(at("out.qpack/tokenizer.json"), &sb), 0);
    assert_true(S_ISREG(sb.st_mode));
    text = load(at("out.qpack/tokenizer.json"), &n);
    assert_string_equal(text, "{}");
    swl_free(text);
    assert_int_not_equal(lstat(at("out.qpack/merges.txt"), &sb), 0);
}

/* [5][vocab] logits of a model directory; free with swl_free. */
static float *logits_of(const char *path, size_t *n)
{
    static const int32_t ids[] = {1, 5, 9, 2, 33};
    swl_model_options opt;
    swl_model_info info;
    swl_session *s;
    swl_model *m;
    float *logits;

    swl_model_options_init(&opt);
    opt.path = path;
    must(swl_model_open(&m, &opt, &err));
    swl_model_info_get(m, &info);
    *n = 5 * (size_t)info.vocab;
    logits = swl_calloc(*n, sizeof *logits);
    must(swl_session_create(&s, m, &err));
    must(swl_session_eval(s, ids, 5, SWL_LOGITS_ALL, logits, &err));
    swl_session_free(s);
    swl_model_close(m);
    return logits;
}

static void same_logits(const char *name, int32_t group)
{
    size_t n, n_packed;
    float *a, *b;

    copy_case(name);
    must(repack_grouped(output, group, true));
    a = logits_of(source, &n);
    b = logits_of(output, &n_packed);
    assert_int_equal(n, n_packed);
    assert_memory_equal(a, b, n * sizeof *a);
    swl_free(a);
    swl_free(b);
}

/* Nothing in these originals is a multiple of 128 wide, so nothing is quantised. */
static void unquantised_originals_keep_their_logits_to_the_bit(void **state)
{
    (void)state;
    same_logits("golden-next-moe", 128);
    same_logits("golden-q35-moe", 128);
    same_logits("golden-q35-dense", 128);
}

static void mlx_models_keep_their_logits_to_the_bit(void **state)
{
    (void)state;
    same_logits(MOE_MLX, 64);
    same_logits("next-a-mlx4", 64);
    same_logits("q35moe-b-mlxmixed", 64);
}

/* ---- sources that are not whole -----------------------------------------------------------------------------------
 */

static void names_a_missing_tensor(void **state)
{
    (void)state;
    copy_case(MOE_HF);
    patch(at("source/model.safetensors"), "layers.2.linear_attn.dt_bias", "layers.2.linear_attn.dt_bios");
    refused(SWL_E_CORRUPT, "model.layers.2.linear_attn.dt_bias");
}

static void names_a_missing_expert(void **state)
{
    (void)state;
    copy_case(DRAFT);
    patch(at("source/model.safetensors"), "layers.2.mlp.experts.5.up_proj", "layers.2.mlp.experts.5.up_prej");
    refused(SWL_E_CORRUPT, "layers.2.mlp.experts.5.up_proj");
}

static void names_a_tensor_of_the_wrong_shape(void **state)
{
    (void)state;
    copy_case(MOE_HF);
    patch(at("source/config.json"), "\"vocab_size\": 384", "\"vocab_size\": 385");
    refused(SWL_E_CORRUPT, "embed_tokens");
}

static void refuses_a_layer_that_the_config_does_not_have(void **state)
{
    (void)state;
    copy_case(DENSE);
    patch(at("source/config.json"), "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3");
    patch(at("source/config.json"), ",\n  \"full_attention\"\n", "                    \n");
    refused(SWL_E_CORRUPT, "num_hidden_layers");
}

static void names_a_weight_that_is_not_finite(void **state)
{
    const swl_st_tensor *t;
    uint8_t nan[] = {0xc0, 0x7f};
    swl_st *s;
    int fd;

    (void)state;
    copy_case(MOE_HF);
    must(swl_st_open(&s, source, &err));
    t = swl_st_find(s, "model.layers.1.mlp.experts.down_proj");
    assert_non_null(t);
    fd = open(at("source/model.safetensors"), O_WRONLY);
    must(swl_file_write_at(fd, "source", t->offset + t->size - 2, nan, 2, &err));
    close(fd);
    swl_st_close(s);
    refused(SWL_E_CORRUPT, "layers.1.mlp.experts.down_proj holds nan in row 127, column 63");
}

static bool truncate_source(void *arg, uint64_t n_done, uint64_t n_total)
{
    (void)n_total;
    if (n_done > *(uint64_t *)arg)
        assert_int_equal(truncate(at("source/model.safetensors"), 100000), 0);
    return true;
}

static void a_shard_cut_off_meanwhile_is_an_error(void **state)
{
    uint64_t when = 100000;
    swl_repack_options opt;

    (void)state;
    copy_case(MOE_HF);
    swl_repack_options_init(&opt);
    opt.source = source;
    opt.output = output;
    opt.on_progress = truncate_source;
    opt.arg = &when;
    assert_int_equal(swl_repack(&opt, &err), SWL_E_CORRUPT);
    assert_non_null(strstr(err.file, "model.safetensors"));
    nothing_is_left();
}

static void refuses_nonsense_options(void **state)
{
    swl_repack_options opt;

    (void)state;
    copy_case(DRAFT);
    swl_repack_options_init(&opt);
    assert_int_equal(swl_repack(&opt, &err), SWL_E_ARG);
    opt.source = source;
    opt.output = output;
    opt.bits = 5;
    assert_int_equal(swl_repack(&opt, &err), SWL_E_ARG);
    opt.bits = 4;
    opt.group = 16;
    assert_int_equal(swl_repack(&opt, &err), SWL_E_ARG);
    opt.group = 64;
    opt.source = at("nowhere");
    assert_int_equal(swl_repack(&opt, &err), SWL_E_NOT_FOUND);
    opt.source = source;
    opt.output = at("no/such/dir/out.qpack");
    assert_int_equal(swl_repack(&opt, &err), SWL_E_NOT_FOUND);
    nothing_is_left();
}

/* ---- outputs that exist -------------------------------------------------------------------------------------------
 */

static ino_t inode(const char *path)
{
    struct stat sb;

    assert_int_equal(stat(path, &sb), 0);
    return sb.st_ino;
}

static void keeps_an_existing_output_unless_asked(void **state)
{
    ino_t old;

    (void)state;
    copy_case(DRAFT);
    must(repack(output, false));
    old = inode(at("out.qpack/manifest.json"));
    assert_int_equal(repack(output, false), SWL_E_ARG);
    assert_int_equal(inode(at("out.qpack/manifest.json")), old);
    must(repack(output, true));
    assert_int_not_equal(inode(at("out.qpack/manifest.json")), old);
    assert_false(swl_dir_exists(at("out.qpack.partial")));
}

static void a_failed_replacement_keeps_the_old_one(void **state)
{
    ino_t old;

    (void)state;
    copy_case(MOE_HF);
    must(repack(output, false));
    old = inode(at("out.qpack/manifest.json"));
    patch(at("source/model.safetensors"), "layers.2.linear_attn.dt_bias", "layers.2.linear_attn.dt_bios");
    assert_int_equal(repack(output, true), SWL_E_CORRUPT);
    assert_int_equal(inode(at("out.qpack/manifest.json")), old);
    assert_false(swl_dir_exists(at("out.qpack.partial")));
}

static void never_replaces_what_is_no_container(void **state)
{
    (void)state;
    copy_case(DRAFT);
    assert_int_equal(mkdir(output, 0777), 0);
    save(at("out.qpack/thesis.txt"), "x", 1);
    assert_int_equal(repack(output, true), SWL_E_ARG);
    assert_true(swl_file_exists(at("out.qpack/thesis.txt")));
    assert_int_equal(repack(at("out.qpack/thesis.txt"), true), SWL_E_ARG);
    assert_true(swl_file_exists(at("out.qpack/thesis.txt")));
}

static void never_writes_over_its_source(void **state)
{
    char linked[128];

    (void)state;
    copy_case(DRAFT);
    save(at("source/manifest.json"), "{}", 2);
    assert_int_equal(repack(source, true), SWL_E_ARG);
    snprintf(linked, sizeof linked, "%s/link", dir);
    assert_int_equal(symlink(source, linked), 0);
    assert_int_equal(repack(linked, true), SWL_E_ARG);
    assert_true(swl_file_exists(at("source/model.safetensors")));
}

static void refuses_a_container_as_source(void **state)
{
    (void)state;
    copy_case(DRAFT);
    must(repack(output, false));
    strcpy(source, output);
    assert_int_equal(repack(at("again.qpack"), false), SWL_E_ARG);
    assert_false(swl_dir_exists(at("again.qpack")));
}

/* ---- stages -------------------------------------------------------------------------------------------------------
 */

static void clears_what_a_killed_run_left(void **state)
{
    (void)state;
    copy_case(DRAFT);
    assert_int_equal(mkdir(at("out.qpack.partial"), 0777), 0);
    save(at("out.qpack.partial/" SWL_STAGE_MARK), "", 0);
    assert_int_equal(mkdir(at("out.qpack.partial/packed_experts"), 0777), 0);
    save(at("out.qpack.partial/packed_experts/layer_77.bin"), "x", 1);
    assert_int_equal(symlink(source, at("out.qpack.partial/link")), 0);
    must(repack(output, false));
    assert_false(swl_file_exists(at("out.qpack/packed_experts/layer_77.bin")));
    assert_false(swl_dir_exists(at("out.qpack.partial")));
    assert_true(swl_file_exists(at("source/config.json")));
}

static void leaves_a_foreign_directory_of_that_name_alone(void **state)
{
    (void)state;
    copy_case(DRAFT);
    assert_int_equal(mkdir(at("out.qpack.partial"), 0777), 0);
    save(at("out.qpack.partial/thesis.txt"), "x", 1);
    assert_int_equal(repack(output, false), SWL_E_ARG);
    assert_true(swl_file_exists(at("out.qpack.partial/thesis.txt")));
}

static void two_runs_do_not_meet(void **state)
{
    swl_stage first;

    (void)state;
    copy_case(DRAFT);
    must(swl_stage_open(&first, output, false, "{}", &err));
    assert_int_equal(repack(output, false), SWL_E_FAIL);
    assert_non_null(strstr(err.message, "process "));
    assert_true(swl_dir_exists(at("out.qpack.partial")));
    swl_stage_close(&first);
    nothing_is_left();
    must(repack(output, false));
}

static void too_little_room_is_said_with_both_figures(void **state)
{
    swl_stage s;

    (void)state;
    must(swl_stage_open(&s, output, false, "{}", &err));
    must(swl_stage_need(&s, 1, &err));
    assert_int_equal(swl_stage_need(&s, INT64_MAX, &err), SWL_E_BUDGET);
    assert_non_null(strstr(err.message, "9223372036854775807 bytes"));
    swl_stage_close(&s);
}

/* ---- stopping -----------------------------------------------------------------------------------------------------
 */

typedef struct watch {
    uint64_t last, total, stop_at;
    int n_calls;
} watch;

static bool watch_progress(void *arg, uint64_t n_done, uint64_t n_total)
{
    watch *w = arg;

    assert_true(n_done >= w->last && n_done <= n_total);
    assert_true(!w->n_calls || n_total == w->total);
    w->last = n_done;
    w->total = n_total;
    w->n_calls++;
    return n_done < w->stop_at;
}

static void progress_grows_to_its_total(void **state)
{
    watch w = {.stop_at = UINT64_MAX};
    swl_repack_options opt;

    (void)state;
    copy_case(MOE_MLX);
    swl_repack_options_init(&opt);
    opt.source = source;
    opt.output = output;
    opt.on_progress = watch_progress;
    opt.arg = &w;
    must(swl_repack(&opt, &err));
    assert_true(w.n_calls > 10);
    assert_int_equal(w.last, w.total);
}

static void same_file(const char *name)
{
    char *a, *b;
    size_t n, m;

    must(swl_file_load(&a, &n, at("out.qpack/%s", name), 1 << 24, &err));
    must(swl_file_load(&b, &m, at("straight.qpack/%s", name), 1 << 24, &err));
    if (n != m || memcmp(a, b, n))
        fail_msg("%s differs from that of a conversion that was not stopped", name);
    swl_free(a);
    swl_free(b);
}

/* Stops at stop_at; what is there stays, and `spoil` (may be NULL) is a file of it that gets other bytes. */
static void stop_and_spoil(uint64_t stop_at, const char *spoil)
{
    watch w = {.stop_at = stop_at};
    swl_repack_options opt;
    int fd;

    swl_repack_options_init(&opt);
    opt.source = source;
    opt.output = output;
    opt.on_progress = watch_progress;
    opt.arg = &w;
    assert_int_equal(swl_repack(&opt, &err), SWL_E_CANCELLED);
    assert_false(swl_dir_exists(output));
    if (!spoil || !swl_file_exists(at("out.qpack.partial/%s", spoil)))
        return;
    fd = open(at("out.qpack.partial/%s", spoil), O_WRONLY);
    assert_int_equal(pwrite(fd, "spoiled", 7, 40000), 7);
    close(fd);
}

static void a_stopped_conversion_goes_on_from_what_is_intact(void **state)
{
    static const char *const spoils[] = {NULL, "model.safetensors", "packed_experts/layer_00.bin",
                                         "packed_experts/layer_01.bin"};
    static const char *const files[] = {"model.safetensors", "packed_experts/layer_00.bin", "packed_experts/layer_03.bin",
                                        "swiftlet.json", "hashes.json", "manifest.json", SWL_STAGE_MARK};

    (void)state;
    copy_case(MOE_MLX);
    must(repack(at("straight.qpack"), false));
    for (int i = 0; i < 4; i++) {
        for (uint64_t stop_at = 0; stop_at < 1500000; stop_at += 300000)
            stop_and_spoil(stop_at, spoils[i]);
        must(repack(output, false));
        for (int k = 0; k < 7; k++)
            same_file(files[k]);
        assert_false(swl_dir_exists(at("out.qpack.partial")));
        remove_tree(output);
    }
}

/* Another rule, or other bytes in the source, make what is there worthless. */
static void a_conversion_of_something_else_begins_anew(void **state)
{
    (void)state;
    copy_case(MOE_HF);
    must(repack_grouped(at("straight.qpack"), 32, false));
    stop_and_spoil(900000, NULL);
    assert_true(swl_dir_exists(at("out.qpack.partial")));
    must(repack_grouped(output, 32, false));
    same_file("hashes.json");
    same_file("packed_experts/layer_00.bin");
}

/* The Nth allocation fails, once: an error or, where a fallback exists, a result; never a leftover. */
static void running_out_of_memory_leaves_nothing(void **state)
{
    swl_status st = SWL_E_NOMEM;

    (void)state;
    copy_case(DRAFT);
    for (int64_t n = 0; st; n += 1 + n / 4) {
        swl_mem_fail_after(n, false);
        st = repack(output, false);
        swl_mem_fail_after(-1, false);
        if (st) {
            assert_int_equal(st, SWL_E_NOMEM);
            nothing_is_left();
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(slots_lie_as_the_format_says),
        TEST(reads_back_as_a_container_with_true_checksums),
        TEST(models_without_experts_have_no_expert_files),
        TEST(keeps_the_draft_head_apart),
        TEST(names_a_hub_snapshot_by_repository_and_commit),
        TEST(resolves_links_and_skips_dangling_ones),
        TEST(unquantised_originals_keep_their_logits_to_the_bit),
        TEST(mlx_models_keep_their_logits_to_the_bit),
        TEST(names_a_missing_tensor),
        TEST(names_a_missing_expert),
        TEST(names_a_tensor_of_the_wrong_shape),
        TEST(refuses_a_layer_that_the_config_does_not_have),
        TEST(names_a_weight_that_is_not_finite),
        TEST(a_shard_cut_off_meanwhile_is_an_error),
        TEST(refuses_nonsense_options),
        TEST(keeps_an_existing_output_unless_asked),
        TEST(a_failed_replacement_keeps_the_old_one),
        TEST(never_replaces_what_is_no_container),
        TEST(never_writes_over_its_source),
        TEST(refuses_a_container_as_source),
        TEST(clears_what_a_killed_run_left),
        TEST(leaves_a_foreign_directory_of_that_name_alone),
        TEST(two_runs_do_not_meet),
        TEST(too_little_room_is_said_with_both_figures),
        TEST(progress_grows_to_its_total),
        TEST(a_stopped_conversion_goes_on_from_what_is_intact),
        TEST(a_conversion_of_something_else_begins_anew),
        TEST(running_out_of_memory_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
