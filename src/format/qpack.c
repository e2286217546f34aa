/*
 * qpack.c: opens a .qpack container, version 1 (QPACK) or 2 (QPACK2).
 *
 *   manifest.json               magic, version, lengths of files; written last by every writer
 *   config.json                 the model
 *   packed_experts/layout.json  the sections of a slot: one table (version 1) or one per layer (version 2)
 *   packed_experts/layer_NN.bin slot e at e * expertStride
 *   model.safetensors           everything else
 *   swiftlet.json               checksums (ours, optional)
 *
 * Every number and path in these files is data from outside. The order of the checks is the order in which a person can
 * act on the messages: is it complete, is it this model, is the geometry sane, are the files there.
 */
#include "format/checkpoint_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"

#define JSON_BYTES_MAX    (UINT64_C(4) << 20)
#define SIDECAR_BYTES_MAX (UINT64_C(64) << 20)
#define PATH_BYTES_MAX    4096
#define STRIDE_UNIT       4096
#define STRIDE_MAX        (UINT64_C(1) << 40)

#define MANIFEST_NAME "manifest.json"
#define PROGRESS_NAME ".install-progress.json"
#define LAYOUT_NAME   "packed_experts/layout.json"
#define SIDECAR_NAME  "swiftlet.json"
#define DENSE_NAME    "model.safetensors"
#define INDEX_NAME    "model.safetensors.index.json"
#define MTP_NAME      "mtp.safetensors"

/* No allocation: an answer must not depend on memory. Longer paths cannot be opened anyway. */
static bool file_in(const char *dir, const char *name)
{
    char path[PATH_BYTES_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);

    return n > 0 && (size_t)n < sizeof path && swl_file_exists(path);
}

bool swl_qpack_is(const char *dir)
{
    return file_in(dir, MANIFEST_NAME) || file_in(dir, LAYOUT_NAME) || file_in(dir, PROGRESS_NAME);
}

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory while opening a container");
}

/* ---- manifest.json ---------------------------------------------------------------------------------------------- */

static swl_status check_magic(const json_t *root, int32_t *version, const char *path, swl_error *err)
{
    const char *magic = NULL;
    swl_status st = swl_json_str(root, "magic", SWL_REQUIRED, &magic, path, err);
    int32_t want;

    if (st)
        return st;
    if (strcmp(magic, "QPACK") && strcmp(magic, "QPACK2"))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: magic is \"%s\", expected QPACK or QPACK2", path, magic);
    want = strcmp(magic, "QPACK") ? 2 : 1;
    st = swl_json_i32(root, "version", SWL_REQUIRED, 0, INT32_MAX, version, path, err);
    if (!st && *version != want)
        st = swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1,
                         "%s: version %" PRId32 " of %s is not supported, expected %" PRId32, path, *version, magic,
                         want);
    return st;
}

static swl_status check_entry(const char *name, const json_t *length, const char *path, swl_error *err)
{
    if (!swl_path_is_safe(name))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: files: \"%s\" is not a relative path inside the container", path, name);
    if (!json_is_integer(length) || json_integer_value(length) < 0 ||
        (uint64_t)json_integer_value(length) > SWL_SIZE_MAX)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: files: the length of \"%s\" is not an integer from 0 to 2^53", path, name);
    return SWL_OK;
}

swl_status swl_qpack_manifest(const json_t *root, int32_t *version, const char *path, swl_error *err)
{
    const json_t *files = json_object_get(root, "files");
    swl_status st = SWL_OK;
    const char *name;
    json_t *length;

    if (!json_is_object(root))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    st = check_magic(root, version, path, err);
    if (st)
        return st;
    if (!json_is_object(files))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"files\" is missing or not an object", path);
    json_object_foreach((json_t *)files, name, length)
    {
        st = check_entry(name, length, path, err);
        if (st)
            return st;
    }
    return SWL_OK;
}

/* Small files that nothing needs before text is turned into tokens; links to them are often left dangling. */
static bool is_optional(const char *name)
{
    static const char *const names[] = {
        "tokenizer.json",          "tokenizer_config.json", "vocab.json",         "merges.txt",
        "added_tokens.json",       "chat_template.jinja",   "chat_template.json", "generation_config.json",
        "special_tokens_map.json", "hashes.json",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static swl_status check_length(const char *dir, const char *name, uint64_t want, swl_error *err)
{
    char *path = swl_path_join(dir, name);
    uint64_t size = 0;
    swl_status st;
    int fd;

    if (!path)
        return no_memory(err);
    if (is_optional(name) && !swl_file_exists(path)) {
        swl_free(path);
        return SWL_OK;
    }
    st = swl_file_open(&fd, &size, path, err);
    swl_file_close(fd);
    if (!st && size != want)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                         "%s has %" PRIu64 " bytes, expected %" PRIu64 " from " MANIFEST_NAME, path, size, want);
    swl_free(path);
    return st;
}

static swl_status check_lengths(const char *dir, const json_t *manifest, swl_error *err)
{
    const char *name;
    json_t *length;

    json_object_foreach(json_object_get(manifest, "files"), name, length)
    {
        swl_status st = check_length(dir, name, (uint64_t)json_integer_value(length), err);

        if (st)
            return st;
    }
    return SWL_OK;
}

static swl_status load_manifest(const char *dir, json_t **root, int32_t *version, swl_error *err)
{
    char *path = swl_path_join(dir, MANIFEST_NAME);
    swl_status st;

    *root = NULL;
    if (!path)
        return no_memory(err);
    if (!swl_file_exists(path))
        st = swl_fail_at(err, SWL_E_NOT_FOUND, path, -1, "%s is missing: the container is incomplete, install it again",
                         path);
    else
        st = swl_json_load(root, path, JSON_BYTES_MAX, err);
    if (!st)
        st = swl_qpack_manifest(*root, version, path, err);
    swl_free(path);
    if (!st && file_in(dir, PROGRESS_NAME))
        st = swl_fail_at(err, SWL_E_CORRUPT, dir, -1,
                         "%s: incomplete install, " PROGRESS_NAME " is there: install it again to resume", dir);
    return st;
}

/* ---- layout.json ------------------------------------------------------------------------------------------------ */

typedef struct layout_at {
    const swl_config *config;
    int32_t layer; /* -1 for the table of all layers */
    const char *dir, *path;
    swl_error *err;
} layout_at;

static swl_status bad(const layout_at *at, const char *what)
{
    return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1, "%s: %s", at->path, what);
}

static swl_status no_experts(const layout_at *at, const char *field)
{
    return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1, "%s: %s: the container has no experts; reinstall it",
                       at->path, field);
}

/* "gate_proj.weight" */
static bool parse_name(const char *name, swl_section *s)
{
    char full[32];

    for (int p = 0; p < SWL_PROJ_COUNT; p++)
        for (int k = 0; k < SWL_PART_COUNT; k++) {
            snprintf(full, sizeof full, "%s.%s", swl_proj_names[p], swl_part_names[k]);
            if (!strcmp(name, full)) {
                s->proj = (swl_proj)p;
                s->part = (swl_part)k;
                return true;
            }
        }
    return false;
}

static swl_status bad_section(const layout_at *at, const char *name, const char *what)
{
    return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1, "%s: section \"%.64s\": %s", at->path, name, what);
}

static swl_status read_shape(const layout_at *at, const char *name, const json_t *json, swl_section *s)
{
    const json_t *shape = json_object_get(json, "shape");

    if (json_array_size(shape) != 2)
        return bad_section(at, name, "shape is not an array of two integers");
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(shape, i);

        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
            return bad_section(at, name, "shape is not an array of two positive integers");
        s->shape[i] = json_integer_value(v);
    }
    return SWL_OK;
}

/* Size against shape and dtype, and the place in the slot. Shapes are below 2^31, so the product of the two fits; times
 * an element's bytes it might not. */
static swl_status check_extent(const layout_at *at, const char *name, const swl_section *s, uint64_t stride)
{
    uint64_t n = (uint64_t)s->shape[0] * (uint64_t)s->shape[1], bytes = (uint64_t)swl_dtype_size(s->dtype);

    if (n > SWL_SIZE_MAX / bytes || s->size != n * bytes)
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                           "%s: section \"%.64s\": size is %" PRIu64 ", expected that of %s [%" PRId64 ", %" PRId64 "]",
                           at->path, name, s->size, swl_dtype_name(s->dtype), s->shape[0], s->shape[1]);
    if (s->offset > stride || s->size > stride - s->offset)
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                           "%s: section \"%.64s\": offset %" PRIu64 " + size %" PRIu64
                           " is past expertStride, %" PRIu64,
                           at->path, name, s->offset, s->size, stride);
    return SWL_OK;
}

static swl_status read_section(const layout_at *at, const json_t *json, uint64_t stride, swl_section *s)
{
    const char *name = NULL, *dtype = NULL;
    swl_status st;

    if (!json_is_object(json))
        return bad(at, "an entry of \"sections\" is not an object");
    st = swl_json_str(json, "name", SWL_REQUIRED, &name, at->path, at->err);
    if (st)
        return st;
    if (!parse_name(name, s))
        return bad_section(at, name, "unknown name");
    st = swl_json_str(json, "dtype", SWL_REQUIRED, &dtype, at->path, at->err);
    if (st)
        return st;
    s->dtype = swl_dtype_parse(dtype);
    if (s->dtype == SWL_DT_NONE)
        return swl_fail_at(at->err, SWL_E_UNSUPPORTED, at->path, -1,
                           "%s: section \"%s\": dtype \"%.32s\" is not supported", at->path, name, dtype);
    st = read_shape(at, name, json, s);
    if (!st)
        st = swl_json_u64(json, "offset", SWL_REQUIRED, SWL_SIZE_MAX, &s->offset, at->path, at->err);
    if (!st)
        st = swl_json_u64(json, "size", SWL_REQUIRED, SWL_SIZE_MAX, &s->size, at->path, at->err);
    return st ? st : check_extent(at, name, s, stride);
}

/* A new section against those before it. */
static swl_status check_apart(const layout_at *at, const swl_expert_layout *l, const swl_section *s)
{
    char name[32];

    snprintf(name, sizeof name, "%s.%s", swl_proj_names[s->proj], swl_part_names[s->part]);
    for (int32_t i = 0; i < l->n_sections; i++) {
        const swl_section *o = &l->sections[i];

        if (o->proj == s->proj && o->part == s->part)
            return bad_section(at, name, "occurs twice");
        if (s->offset < o->offset + o->size && o->offset < s->offset + s->size)
            return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1, "%s: section \"%s\" overlaps section \"%s.%s\"",
                               at->path, name, swl_proj_names[o->proj], swl_part_names[o->part]);
    }
    return SWL_OK;
}

/* expertStride and sections, from the root (version 1) or a layer's entry (version 2). */
static swl_status read_geometry(const layout_at *at, const json_t *json, swl_expert_layout *l)
{
    const json_t *sections = json_object_get(json, "sections");
    swl_status st = swl_json_u64(json, "expertStride", SWL_REQUIRED, STRIDE_MAX, &l->slot_bytes, at->path, at->err);

    if (st)
        return st;
    if (!json_is_array(sections))
        return bad(at, "field \"sections\" is missing or not an array");
    if (!l->slot_bytes || !json_array_size(sections))
        return no_experts(at, l->slot_bytes ? "sections is empty" : "expertStride is 0");
    if (l->slot_bytes % STRIDE_UNIT)
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                           "%s: expertStride is %" PRIu64 ", expected a multiple of %d", at->path, l->slot_bytes,
                           STRIDE_UNIT);
    for (size_t i = 0; i < json_array_size(sections); i++) {
        swl_section s = {0};

        st = read_section(at, json_array_get(sections, i), l->slot_bytes, &s);
        if (!st)
            st = check_apart(at, l, &s);
        if (st)
            return st;
        l->sections[l->n_sections++] = s; /* nine names, none twice: never more than fit */
    }
    return SWL_OK;
}

static swl_status check_counts(const layout_at *at, const json_t *root, int32_t *n_layers)
{
    int32_t n_experts = 0;
    swl_status st = swl_json_i32(root, "layerCount", SWL_REQUIRED, 0, INT32_MAX, n_layers, at->path, at->err);

    if (!st && !*n_layers)
        st = no_experts(at, "layerCount is 0");
    if (!st)
        st = swl_json_i32(root, "expertCount", SWL_REQUIRED, 0, INT32_MAX, &n_experts, at->path, at->err);
    if (st)
        return st;
    if (n_experts != at->config->n_experts)
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                           "%s: expertCount is %" PRId32 ", expected num_experts of config.json, %" PRId32, at->path,
                           n_experts, at->config->n_experts);
    /* More layers than the model has are draft layers of some writers. */
    if (*n_layers < at->config->n_layers)
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                           "%s: layerCount is %" PRId32
                           ", expected at least num_hidden_layers of config.json, %" PRId32,
                           at->path, *n_layers, at->config->n_layers);
    return SWL_OK;
}

/* The config decides which layers are linear; a container that says otherwise was made with a wrong interval. */
static swl_status check_linear(const layout_at *at, const json_t *root)
{
    const json_t *linear = json_object_get(root, "linearLayers");

    if (json_array_size(linear) < (size_t)at->config->n_layers)
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                           "%s: linearLayers has %zu entries, expected one for each of %" PRId32 " layers", at->path,
                           json_array_size(linear), at->config->n_layers);
    for (int32_t i = 0; i < at->config->n_layers; i++) {
        const json_t *v = json_array_get(linear, (size_t)i);
        bool want = at->config->layers[i].mixer == SWL_MIXER_DELTANET;

        if (!json_is_boolean(v) || json_is_true(v) != want)
            return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                               "%s: linearLayers[%" PRId32 "] is not %s as config.json says", at->path, i,
                               want ? "true" : "false");
    }
    return SWL_OK;
}

static swl_status layer_geometry(layout_at *at, const json_t *json, swl_expert_layout *l)
{
    swl_status st = read_geometry(at, json, l);

    return st ? st : swl_experts_check(l, at->config, at->layer, at->dir, at->path, at->err);
}

/* One table for all layers. */
static swl_status one_table(layout_at *at, const json_t *root, swl_expert_layout *layers)
{
    swl_expert_layout l = {0};
    swl_status st = layer_geometry(at, root, &l);

    for (int32_t i = 0; !st && i < at->config->n_layers; i++)
        if (at->config->layers[i].ffn == SWL_FFN_MOE)
            layers[i] = l;
    return st;
}

/* `layers`: an object for each MoE layer, null for each dense one. */
static swl_status table_per_layer(layout_at *at, const json_t *root, swl_expert_layout *layers)
{
    const json_t *tables = json_object_get(root, "layers");
    swl_status st = SWL_OK;

    if (json_array_size(tables) < (size_t)at->config->n_layers)
        return bad(at, "field \"layers\" is missing or shorter than num_hidden_layers of config.json");
    for (int32_t i = 0; !st && i < at->config->n_layers; i++) {
        const json_t *v = json_array_get(tables, (size_t)i);
        bool moe = at->config->layers[i].ffn == SWL_FFN_MOE;

        if (moe ? !json_is_object(v) : !json_is_null(v))
            return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1, "%s: layers[%" PRId32 "] is not %s", at->path, i,
                               moe ? "an object, but config.json has experts there"
                                   : "null, but config.json has no experts there");
        at->layer = i;
        st = moe ? layer_geometry(at, v, &layers[i]) : SWL_OK;
    }
    return st;
}

swl_status swl_qpack_layout(const json_t *root, int32_t version, const swl_config *c, swl_expert_layout *layers,
                            const char *dir, const char *path, swl_error *err)
{
    layout_at at = {c, 0, dir, path, err};
    int32_t n_layers = 0;
    swl_status st;

    if (!json_is_object(root))
        return bad(&at, "not a JSON object");
    st = check_counts(&at, root, &n_layers);
    if (!st)
        st = version == 1 ? one_table(&at, root, layers) : table_per_layer(&at, root, layers);
    return st ? st : check_linear(&at, root);
}

static swl_status load_layout(swl_checkpoint *c, int32_t version, swl_error *err)
{
    char *path = swl_path_join(c->dir, LAYOUT_NAME);
    json_t *root = NULL;
    swl_status st;

    if (!path)
        return no_memory(err);
    st = swl_json_load(&root, path, JSON_BYTES_MAX, err);
    if (!st)
        st = swl_qpack_layout(root, version, &c->config, c->experts, c->dir, path, err);
    json_decref(root);
    swl_free(path);
    return st;
}

/* ---- layer files ------------------------------------------------------------------------------------------------ */

/* Opens the next of c->files and checks its length; stride and number of experts are far below 2^32 each. */
static swl_status open_layer_file(swl_checkpoint *c, const char *name, uint64_t stride, swl_error *err)
{
    swl_file_ref *f = &c->files[c->n_files];
    uint64_t want = stride * (uint64_t)c->config.n_experts;
    swl_status st;

    f->fd = -1;
    f->path = swl_path_join(c->dir, name);
    if (!f->path)
        return no_memory(err);
    c->n_files++;
    st = swl_file_open(&f->fd, &f->size, f->path, err);
    if (!st && f->size != want)
        st = swl_fail_at(err, SWL_E_CORRUPT, f->path, -1,
                         "%s has %" PRIu64 " bytes, expected %" PRIu64 " (%" PRId32 " experts of %" PRIu64 ")", f->path,
                         f->size, want, c->config.n_experts, stride);
    return st;
}

/* A slot is one read. */
static swl_status slot_ranges(swl_checkpoint *c, swl_expert_layout *l, swl_error *err)
{
    l->n_ranges = 1;
    l->ranges = swl_calloc((size_t)c->config.n_experts, sizeof *l->ranges);
    if (!l->ranges)
        return no_memory(err);
    for (int32_t e = 0; e < c->config.n_experts; e++)
        l->ranges[e] = (swl_range){c->n_files - 1, (uint64_t)e * l->slot_bytes, l->slot_bytes, 0};
    return SWL_OK;
}

static swl_status open_layer(swl_checkpoint *c, int32_t layer, const char *sidecar_path, swl_error *err)
{
    swl_expert_layout *l = &c->experts[layer];
    char name[64];
    swl_status st;

    snprintf(name, sizeof name, "packed_experts/layer_%02" PRId32 ".bin", layer);
    st = open_layer_file(c, name, l->slot_bytes, err);
    if (!st)
        st = slot_ranges(c, l, err);
    return st ? st : swl_sidecar_slots(c->sidecar, name, c->config.n_experts, &l->crc32c, sidecar_path, err);
}

static swl_status open_layers(swl_checkpoint *c, const char *sidecar_path, swl_error *err)
{
    swl_status st = SWL_OK;

    c->files = swl_calloc((size_t)c->config.n_layers, sizeof *c->files);
    if (!c->files)
        return no_memory(err);
    for (int32_t i = 0; !st && i < c->config.n_layers; i++)
        if (c->config.layers[i].ffn == SWL_FFN_MOE)
            st = open_layer(c, i, sidecar_path, err);
    return st;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static swl_status load_sidecar(swl_checkpoint *c, const char *path, swl_error *err)
{
    swl_status st = swl_file_exists(path) ? swl_json_load(&c->sidecar, path, SIDECAR_BYTES_MAX, err) : SWL_OK;

    return st || !c->sidecar ? st : swl_sidecar_check(c->sidecar, path, err);
}

static swl_status open_experts(swl_checkpoint *c, int32_t version, const char *sidecar_path, swl_error *err)
{
    swl_status st;

    if (!c->config.n_experts)
        return SWL_OK;
    c->experts = swl_calloc((size_t)c->config.n_layers, sizeof *c->experts);
    if (!c->experts)
        return no_memory(err);
    st = load_layout(c, version, err);
    return st ? st : open_layers(c, sidecar_path, err);
}

/* One file as a rule; shards with an index are accepted. */
static swl_status open_dense(swl_checkpoint *c, swl_error *err)
{
    char *path = file_in(c->dir, INDEX_NAME) ? swl_strdup(c->dir) : swl_path_join(c->dir, DENSE_NAME);
    swl_status st = path ? swl_st_open(&c->dense, path, err) : no_memory(err);

    swl_free(path);
    return st;
}

static swl_status open_parts(swl_checkpoint *c, const json_t *manifest, int32_t version, swl_error *err)
{
    char *sidecar_path = swl_path_join(c->dir, SIDECAR_NAME);
    swl_status st = sidecar_path ? swl_config_load(&c->config, c->dir, err) : no_memory(err);

    if (!st)
        st = load_sidecar(c, sidecar_path, err);
    if (!st)
        st = open_experts(c, version, sidecar_path, err);
    if (!st && c->sidecar)
        st = swl_sidecar_synthetic(c->sidecar, c, sidecar_path, err);
    if (!st)
        st = check_lengths(c->dir, manifest, err);
    if (!st)
        st = open_dense(c, err);
    swl_free(sidecar_path);
    c->mtp = !st && file_in(c->dir, MTP_NAME);
    return st;
}

swl_status swl_qpack_open(swl_checkpoint *c, swl_error *err)
{
    json_t *manifest;
    int32_t version = 0;
    swl_status st = load_manifest(c->dir, &manifest, &version, err);

    if (!st)
        st = open_parts(c, manifest, version, err);
    json_decref(manifest);
    return st;
}
