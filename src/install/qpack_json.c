/*
 * qpack_json.c: the JSON files of a container. Keys are sorted and nothing depends on the day or the machine, so equal
 * conversions give equal files. The formats are in docs/container-format.md.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "install/qpack_write.h"

#define CONFIG_BYTES_MAX (UINT64_C(16) << 20)

/* Builders that remember a failure, so that only the end needs a check. jansson frees `v` when it cannot be put. */
typedef struct builder {
    bool failed;
} builder;

static void put(builder *b, json_t *object, const char *key, json_t *v)
{
    if (json_object_set_new(object, key, v))
        b->failed = true;
}

static void push(builder *b, json_t *array, json_t *v)
{
    if (json_array_append_new(array, v))
        b->failed = true;
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* Consumes `root`. */
static swl_status dump(const builder *b, json_t *root, int indent, char **text, swl_error *err)
{
    size_t flags = JSON_SORT_KEYS | JSON_INDENT(indent), n;

    *text = NULL;
    n = root && !b->failed ? json_dumpb(root, NULL, 0, flags) : 0;
    if (n && (*text = swl_calloc(n + 2, 1))) {
        json_dumpb(root, *text, n, flags);
        (*text)[n] = '\n';
    }
    json_decref(root);
    return *text ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for a JSON file");
}

/* ---- layout.json --------------------------------------------------------------------------------------------------
 */

static json_t *sections(builder *b, const swl_plan_slots *s)
{
    json_t *list = json_array();
    char name[32];

    for (int i = 0; i < s->n_sections; i++) {
        const swl_section *x = &s->sections[i];
        json_t *o = json_object();

        snprintf(name, sizeof name, "%s.%s", swl_proj_name(x->proj), swl_part_name(x->part));
        put(b, o, "name", json_string(name));
        put(b, o, "dtype", json_string(swl_dtype_name(x->dtype)));
        put(b, o, "shape", json_pack("[I,I]", (json_int_t)x->shape[0], (json_int_t)x->shape[1]));
        put(b, o, "offset", number(x->offset));
        put(b, o, "size", number(x->size));
        push(b, list, o);
    }
    return list;
}

static void put_geometry(builder *b, json_t *o, const swl_plan_slots *s)
{
    put(b, o, "expertStride", number(s->stride));
    put(b, o, "sections", sections(b, s));
}

static json_t *layer_tables(builder *b, const swl_plan *p)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < p->c->config.n_layers; i++) {
        json_t *o = p->layers[i].base ? json_object() : json_null();

        if (p->layers[i].base)
            put_geometry(b, o, &p->layers[i]);
        push(b, list, o);
    }
    return list;
}

swl_status swl_qpack_json_layout(const swl_plan *p, char **text, swl_error *err)
{
    const swl_config *g = &p->c->config;
    json_t *root = json_object(), *linear = json_array();
    builder b = {false};

    for (int32_t i = 0; i < g->n_layers; i++)
        push(&b, linear, json_boolean(g->layers[i].mixer == SWL_MIXER_DELTANET));
    put(&b, root, "linearLayers", linear);
    put(&b, root, "expertCount", json_integer(g->n_experts));
    put(&b, root, "layerCount", json_integer(g->n_layers));
    if (p->version == 1)
        put_geometry(&b, root, &p->layers[0]);
    else
        put(&b, root, "layers", layer_tables(&b, p));
    return dump(&b, root, 2, text, err);
}

/* ---- config.json --------------------------------------------------------------------------------------------------
 */

/* Stacked experts of a layer whose format is not the default. */
static void put_expert_formats(builder *b, json_t *q, const swl_plan *p, int32_t layer)
{
    const swl_plan_slots *s = &p->layers[layer];
    char name[96];

    for (int k = 0; s->base && k < SWL_PROJ_COUNT; k++)
        if (s->bits[k] && (s->bits[k] != p->rule.bits || s->group[k] != p->rule.group)) {
            snprintf(name, sizeof name, "%sswitch_mlp.%s", s->base, swl_proj_name((swl_proj)k));
            put(b, q, name, json_pack("{s:i,s:i}", "bits", s->bits[k], "group_size", s->group[k]));
        }
}

/* As mlx-lm writes it: the defaults, and one entry per module that differs from them. */
static json_t *quantization(builder *b, const swl_plan *p)
{
    json_t *q = json_object();

    put(b, q, "bits", json_integer(p->rule.bits));
    put(b, q, "group_size", json_integer(p->rule.group));
    put(b, q, "mode", json_string("affine"));
    for (int32_t i = 0; p->c->config.n_experts && i < p->c->config.n_layers; i++)
        put_expert_formats(b, q, p, i);
    for (int32_t i = 0; i < p->dense.n_items; i++) {
        const swl_plan_item *item = &p->dense.items[i];

        if (item->w.bits && (item->w.bits != p->rule.bits || item->w.group != p->rule.group))
            put(b, q, item->name, json_pack("{s:i,s:i}", "bits", item->w.bits, "group_size", item->w.group));
    }
    return q;
}

/* The source's text stays as it is (its numbers would not survive a rewrite); the new keys go before the last brace. */
static swl_status splice(const char *old, size_t n, const char *insert, char **text, swl_error *err)
{
    size_t close = n, last;

    while (close && old[close - 1] != '}')
        close--;
    last = close ? close - 1 : 0; /* the text was parsed as an object, so there is a brace */
    while (last && strchr(" \t\r\n", old[last - 1]))
        last--;
    *text = swl_asprintf("%.*s%s\n%s}\n", (int)last, old, last && old[last - 1] == '{' ? "" : ",", insert);
    return *text ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for config.json");
}

static swl_status refuse_quantised(const char *path, const char *text, size_t n, swl_error *err)
{
    static const char *const keys[] = {"quantization", "quantization_config"};
    json_t *root;
    swl_status st = swl_json_parse(&root, text, n, path, err);

    for (int i = 0; i < 2 && !st; i++)
        if (json_object_get(root, keys[i]))
            st = swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1,
                             "%s has a field %s, but the checkpoint's tensors are not quantised the way MLX does it",
                             path, keys[i]);
    json_decref(root);
    return st;
}

/* The same text one level further in, without the newline at its end. */
static char *indented(const char *text)
{
    size_t n = strlen(text), n_lines = 0, at = 0;
    char *out;

    for (size_t i = 0; i < n; i++)
        n_lines += text[i] == '\n';
    out = swl_calloc(n + 2 * n_lines + 1, 1);
    for (size_t i = 0; i + 1 < n && out; i++) {
        out[at++] = text[i];
        if (text[i] == '\n') {
            out[at++] = ' ';
            out[at++] = ' ';
        }
    }
    return out;
}

static swl_status with_quantization(const swl_plan *p, const char *old, size_t n, char **text, swl_error *err)
{
    builder b = {false};
    char *q = NULL, *inner = NULL, *insert = NULL;
    swl_status st = dump(&b, quantization(&b, p), 2, &q, err);

    if (!st && (inner = indented(q)))
        insert = swl_asprintf("  \"quantization\": %s,\n  \"quantization_config\": %s\n", inner, inner);
    if (!st)
        st = insert ? splice(old, n, insert, text, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for config.json");
    swl_free(insert);
    swl_free(inner);
    swl_free(q);
    return st;
}

static swl_status load_config(const swl_checkpoint *c, const char *path, char **text, size_t *n, swl_error *err)
{
    if (!c->config_text)
        return swl_file_load(text, n, path, CONFIG_BYTES_MAX, err);
    *text = swl_strdup(c->config_text);
    *n = strlen(c->config_text);
    return *text ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for config.json");
}

swl_status swl_qpack_json_config(const swl_plan *p, char **text, size_t *n, swl_error *err)
{
    char *path = swl_path_join(p->c->dir, "config.json"), *old;
    swl_status st = path ? load_config(p->c, path, &old, n, err)
                         : swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");

    *text = NULL;
    if (!st && !p->quantised_here) {
        *text = old;
    } else if (!st) {
        st = refuse_quantised(path, old, *n, err);
        if (!st)
            st = with_quantization(p, old, *n, text, err);
        swl_free(old);
        *n = *text ? strlen(*text) : 0;
    }
    swl_free(path);
    return st;
}

/* ---- swiftlet.json ------------------------------------------------------------------------------------------------
 */

static json_t *slot_checksums(const swl_plan_slots *s, int32_t n)
{
    char *hex = swl_calloc((size_t)n * 8 + 1, 1);
    json_t *v = NULL;

    if (hex) {
        for (int32_t e = 0; e < n; e++)
            snprintf(hex + 8 * (size_t)e, 9, "%08" PRIx32, s->crc[e]);
        v = json_string(hex);
    }
    swl_free(hex);
    return v;
}

static json_t *tensor_checksums(builder *b, const swl_plan_file *f)
{
    json_t *o = json_object();
    char hex[9];

    for (int32_t i = 0; i < f->n_tensors; i++) {
        snprintf(hex, sizeof hex, "%08" PRIx32, f->items[f->tensors[i].item].crc[f->tensors[i].part]);
        put(b, o, f->tensors[i].name, json_string(hex));
    }
    return o;
}

static json_t *checksums(builder *b, const swl_plan *p, bool with_slots)
{
    json_t *o = json_object();
    int32_t n = p->c->config.n_experts;
    char name[64];

    for (int32_t i = 0; i < p->c->config.n_layers; i++)
        if (p->layers[i].base && with_slots) {
            snprintf(name, sizeof name, "packed_experts/layer_%02d.bin", i);
            put(b, o, name, slot_checksums(&p->layers[i], n));
        }
    put(b, o, p->dense.name, tensor_checksums(b, &p->dense));
    if (p->mtp)
        put(b, o, p->draft.name, tensor_checksums(b, &p->draft));
    if (p->draft_slots.base)
        put(b, o, "packed_experts/mtp_00.bin", slot_checksums(&p->draft_slots, n));
    return o;
}

static json_t *draft_head(builder *b, const swl_plan *p)
{
    json_t *o = json_object();

    put(b, o, "tensors", json_string(p->draft.name));
    if (p->draft_slots.base) {
        put(b, o, "experts", json_string("packed_experts/mtp_00.bin"));
        put_geometry(b, o, &p->draft_slots);
    }
    return o;
}

static json_t *synthetic(builder *b, const swl_qpack_synthetic *s)
{
    json_t *o = json_object();

    put(b, o, "name", json_string(s->name));
    put(b, o, "seed", number(s->seed));
    put(b, o, "experts", json_string(s->experts_absent ? "absent" : "stored"));
    return o;
}

swl_status swl_qpack_json_sidecar(const swl_qpack_writer *w, char **text, swl_error *err)
{
    static const char *const dialects[] = {"qpack", "mlx", "hf", "gguf"};
    const swl_plan *p = w->plan;
    json_t *root = json_object(), *source = json_object();
    builder b = {false};

    put(&b, source, "kind", json_string(w->synthetic ? "synthetic" : w->source->commit ? "hub" : "directory"));
    put(&b, source, "id", json_string(w->source->id));
    put(&b, source, "commit", w->source->commit ? json_string(w->source->commit) : json_null());
    put(&b, root, "source", source);
    put(&b, root, "version", json_integer(1));
    put(&b, root, "dialect", json_string(dialects[p->c->kind]));
    put(&b, root, "norms", json_string("1+w"));
    put(&b, root, "kHeadMap", json_string("grouped"));
    put(&b, root, "crc32c", checksums(&b, p, !w->synthetic || !w->synthetic->experts_absent));
    if (w->synthetic)
        put(&b, root, "synthetic", synthetic(&b, w->synthetic));
    if (p->mtp)
        put(&b, root, "mtp", draft_head(&b, p));
    return dump(&b, root, 1, text, err);
}

/* ---- manifest.json and hashes.json --------------------------------------------------------------------------------
 */

/* The experts' bits and group, when all have the same. */
static void put_quant(builder *b, json_t *root, const swl_plan *p)
{
    const swl_plan_slots *first = NULL;
    bool same = true;

    for (int32_t i = 0; i < p->c->config.n_layers; i++) {
        const swl_plan_slots *s = &p->layers[i];

        if (!s->base)
            continue;
        first = first ? first : s;
        for (int k = 0; k < SWL_PROJ_COUNT; k++)
            same &= s->bits[k] == first->bits[0] && s->group[k] == first->group[0];
    }
    if (!first || !same || !first->bits[0])
        return;
    put(b, root, "quantBits", json_integer(first->bits[0]));
    put(b, root, "quantGroupSize", json_integer(first->group[0]));
}

swl_status swl_qpack_json_manifest(const swl_qpack_writer *w, char **text, swl_error *err)
{
    const swl_plan *p = w->plan;
    json_t *root = json_object(), *files = json_object();
    builder b = {false};

    for (int32_t i = 0; i < w->n_files; i++)
        put(&b, files, w->files[i].name, number(w->files[i].size));
    put(&b, root, "files", files);
    put(&b, root, "magic", json_string(p->version == 1 ? "QPACK" : "QPACK2"));
    put(&b, root, "version", json_integer(p->version));
    put(&b, root, "modelName", json_string(p->c->config.model_type));
    put(&b, root, "sourceCheckpoint", json_string(w->source->id));
    put_quant(&b, root, p);
    return dump(&b, root, 2, text, err);
}

swl_status swl_qpack_json_hashes(const swl_qpack_writer *w, const char *manifest_sha256, char **text, swl_error *err)
{
    json_t *root = json_object(), *files = json_object();
    builder b = {false};

    for (int32_t i = 0; i < w->n_files; i++)
        put(&b, files, w->files[i].name, json_string(w->files[i].sha256));
    put(&b, files, "manifest.json", json_string(manifest_sha256));
    put(&b, root, "files", files);
    return dump(&b, root, 1, text, err);
}
