/*
 * experts.c: where the routed experts' bytes lie in safetensors shards, and what the sections of a slot mean.
 *
 * A slot holds one expert, its arrays in the order gate, up, down; weight, scales, biases. From safetensors each array
 * starts at a multiple of 64:
 *
 *   stacked   tensor [E, rows, words]     expert e is the e-th of E equal slices
 *   fused     gate_up_proj [E, 2I, H]     the first half of slice e is gate, the second half up
 *   split     one tensor per expert and projection
 *
 * Invariants: every range lies inside a tensor, every tensor inside its file (safetensors.c), so a range never points
 * outside what was checked at open.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/checkpoint_parts.h"

#define SLOT_BYTES_MAX (UINT64_C(1) << 40)

const char *const swl_proj_names[SWL_PROJ_COUNT] = {"gate_proj", "up_proj", "down_proj"};
const char *const swl_part_names[SWL_PART_COUNT] = {"weight", "scales", "biases"};

/* ---- sections and the config ------------------------------------------------------------------------------------ */

const swl_section *swl_experts_section(const swl_expert_layout *l, swl_proj proj, swl_part part)
{
    for (int32_t i = 0; i < l->n_sections; i++)
        if (l->sections[i].proj == proj && l->sections[i].part == part)
            return &l->sections[i];
    return NULL;
}

static int32_t proj_rows(const swl_config *c, swl_proj proj)
{
    return proj == SWL_PROJ_DOWN ? c->hidden : c->expert_width;
}

static int32_t proj_cols(const swl_config *c, swl_proj proj)
{
    return proj == SWL_PROJ_DOWN ? c->expert_width : c->hidden;
}

typedef struct proj_at {
    const swl_config *config;
    int32_t layer;
    swl_proj proj;
    const char *dir, *path;
    swl_error *err;
} proj_at;

static swl_status bad_section(const proj_at *at, const swl_section *s, const char *want)
{
    return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1,
                       "%s: layer %" PRId32 ", %s.%s is %s [%" PRId64 ", %" PRId64 "], expected %s with %" PRId32
                       " rows for %" PRId32 " inputs",
                       at->path, at->layer, swl_proj_names[s->proj], swl_part_names[s->part], swl_dtype_name(s->dtype),
                       s->shape[0], s->shape[1], want, proj_rows(at->config, at->proj),
                       proj_cols(at->config, at->proj));
}

static swl_status check_plain(const proj_at *at, const swl_section *w)
{
    if (swl_wtype_plain(w->dtype) == SWL_W_NONE || w->shape[0] != proj_rows(at->config, at->proj) ||
        w->shape[1] != proj_cols(at->config, at->proj))
        return bad_section(at, w, "F32, F16 or BF16");
    return SWL_OK;
}

static swl_status check_affine(const proj_at *at, const swl_section *w, const swl_section *s, const swl_section *b)
{
    int32_t rows = proj_rows(at->config, at->proj), bits, group;

    if ((w->dtype != SWL_DT_U32 && w->dtype != SWL_DT_I32) || w->shape[0] != rows)
        return bad_section(at, w, "U32 words");
    if (swl_wtype_plain(s->dtype) == SWL_W_NONE || s->shape[0] != rows)
        return bad_section(at, s, "F32, F16 or BF16");
    if (b->dtype != s->dtype || b->shape[0] != rows || b->shape[1] != s->shape[1])
        return bad_section(at, b, "the type and shape of the scales");
    if (!swl_affine_from_shapes(w->shape[1], s->shape[1], proj_cols(at->config, at->proj), &bits, &group))
        return swl_fail_at(at->err, SWL_E_UNSUPPORTED, at->path, -1,
                           "%s: layer %" PRId32 ", %s: weight [%" PRId64 ", %" PRId64 "] and scales [%" PRId64
                           ", %" PRId64 "] for %" PRId32
                           " inputs are no affine format, expected 2, 3, 4, 5, 6 or 8 bits "
                           "in groups of 16, 32, 64 or 128",
                           at->path, at->layer, swl_proj_names[at->proj], w->shape[0], w->shape[1], s->shape[0],
                           s->shape[1], proj_cols(at->config, at->proj));
    return SWL_OK;
}

/* Scales without biases: a codebook, or a mode that config.json knows and we do not. */
static swl_status check_codebook(const proj_at *at, const swl_section *w, const swl_section *s)
{
    int32_t rows = proj_rows(at->config, at->proj), group;
    char what[64];

    if ((w->dtype != SWL_DT_U32 && w->dtype != SWL_DT_I32) || w->shape[0] != rows)
        return bad_section(at, w, "U32 words");
    if (s->shape[0] != rows)
        return bad_section(at, s, "one row of scales per row of weights");
    if (swl_codebook_from_shapes(s->dtype, w->shape[1], s->shape[1], proj_cols(at->config, at->proj), &group))
        return SWL_OK;
    snprintf(what, sizeof what, "layer %" PRId32 ", %s", at->layer, swl_proj_names[at->proj]);
    return swl_dialect_refuse_mode(at->dir, at->path, what, at->err);
}

static swl_status check_proj(const proj_at *at, const swl_expert_layout *l)
{
    const swl_section *w = swl_experts_section(l, at->proj, SWL_PART_WEIGHT);
    const swl_section *s = swl_experts_section(l, at->proj, SWL_PART_SCALES);
    const swl_section *b = swl_experts_section(l, at->proj, SWL_PART_BIASES);

    if (!w || (b && !s))
        return swl_fail_at(at->err, SWL_E_CORRUPT, at->path, -1, "%s: layer %" PRId32 ": %s.%s is missing", at->path,
                           at->layer, swl_proj_names[at->proj], w ? "scales" : "weight");
    if (!s)
        return check_plain(at, w);
    return b ? check_affine(at, w, s, b) : check_codebook(at, w, s);
}

swl_status swl_experts_check(const swl_expert_layout *l, const swl_config *c, int32_t layer, const char *dir,
                             const char *path, swl_error *err)
{
    proj_at at = {c, layer, SWL_PROJ_GATE, dir, path, err};
    swl_status st = SWL_OK;

    for (int p = 0; !st && p < SWL_PROJ_COUNT; p++) {
        at.proj = (swl_proj)p;
        st = check_proj(&at, l);
    }
    return st;
}

void swl_expert_matrix(const swl_checkpoint *c, int32_t layer, swl_proj proj, const uint8_t *slot, swl_matrix *out)
{
    const swl_expert_layout *l = &c->experts[layer];
    const swl_section *w = swl_experts_section(l, proj, SWL_PART_WEIGHT);
    const swl_section *s = swl_experts_section(l, proj, SWL_PART_SCALES);
    const swl_section *b = swl_experts_section(l, proj, SWL_PART_BIASES);
    int32_t bits = 0;

    *out = (swl_matrix){.rows = proj_rows(&c->config, proj), .cols = proj_cols(&c->config, proj)};
    out->data = slot + w->offset;
    if (!s) {
        out->type = swl_wtype_plain(w->dtype);
        return;
    }
    out->scales = slot + s->offset;
    if (!b) {
        out->type = swl_codebook_from_shapes(s->dtype, w->shape[1], s->shape[1], out->cols, &out->group);
        out->sdtype = swl_codebook_sdtype(out->type, s->dtype);
        return;
    }
    swl_affine_from_shapes(w->shape[1], s->shape[1], out->cols, &bits, &out->group);
    out->type = swl_wtype_affine(bits);
    out->sdtype = s->dtype;
    out->biases = slot + b->offset;
}

/* ---- from tensors ----------------------------------------------------------------------------------------------- */

/* One layer under construction. Range k of an expert fills section k until they are merged. */
typedef struct builder {
    const swl_checkpoint *ckpt;
    int32_t layer;
    swl_expert_layout *l;
    swl_range *ranges; /* [n_experts][SWL_PROJ_COUNT * SWL_PART_COUNT] while building */
    swl_error *err;
} builder;

#define RANGES_MAX (SWL_PROJ_COUNT * SWL_PART_COUNT)

/* The tensor of this layer named by what follows "mlp.". */
static const swl_st_tensor *find(const builder *b, const char *tail)
{
    char name[160];

    snprintf(name, sizeof name, "%slayers.%" PRId32 ".mlp.%s", b->ckpt->prefix, b->layer, tail);
    return swl_st_find(b->ckpt->dense, name);
}

static swl_status missing(const builder *b, const char *tail)
{
    return swl_fail_at(b->err, SWL_E_CORRUPT, swl_st_path(b->ckpt->dense, 0), -1,
                       "%s: tensor \"%slayers.%" PRId32 ".mlp.%s\" is missing", b->ckpt->dir, b->ckpt->prefix, b->layer,
                       tail);
}

static swl_status bad_shape(const builder *b, const swl_st_tensor *t, const char *want)
{
    const char *path = swl_st_path(b->ckpt->dense, t->file);

    return swl_fail_at(b->err, SWL_E_CORRUPT, path, -1,
                       "%s: tensor \"%s\" is %s with %" PRId32 " dimensions [%" PRId64 ", %" PRId64
                       ", ...], expected %s",
                       path, t->name, swl_dtype_name(t->dtype), t->n_dims, t->n_dims > 0 ? t->shape[0] : 0,
                       t->n_dims > 1 ? t->shape[1] : 0, want);
}

/* Appends a section of [rows, cols] of the tensor's type behind the last one. */
static swl_status add_section(builder *b, swl_proj proj, swl_part part, const swl_st_tensor *t, int64_t rows,
                              int64_t cols, uint64_t size)
{
    swl_section *s = &b->l->sections[b->l->n_sections++];

    if (size > SLOT_BYTES_MAX)
        return bad_shape(b, t, "an expert of at most 2^40 bytes");
    *s = (swl_section){proj, part, t->dtype, {rows, cols}, b->l->slot_bytes, size};
    b->l->slot_bytes += (size + SWL_ALIGN - 1) / SWL_ALIGN * SWL_ALIGN;
    return SWL_OK;
}

/* The range of the newest section for one expert. */
static void set_range(builder *b, int32_t expert, const swl_st_tensor *t, uint64_t begin)
{
    int32_t k = b->l->n_sections - 1;
    const swl_section *s = &b->l->sections[k];

    b->ranges[(int64_t)expert * RANGES_MAX + k] = (swl_range){t->file, t->offset + begin, s->size, s->offset};
}

/* Section `proj`.`part` is rows [row, row + rows) of each of the E slices of t, [E, all_rows, cols]. */
static swl_status add_slices(builder *b, swl_proj proj, swl_part part, const swl_st_tensor *t, int64_t row,
                             int64_t rows, int64_t all_rows)
{
    int32_t n = b->ckpt->config.n_experts;
    uint64_t slice, row_bytes;
    swl_status st;

    if (t->n_dims != 3 || t->shape[0] != n || t->shape[1] != all_rows) {
        char want[64];

        snprintf(want, sizeof want, "[%" PRId32 ", %" PRId64 ", ...]", n, all_rows);
        return bad_shape(b, t, want);
    }
    slice = t->size / (uint64_t)n;
    row_bytes = slice / (uint64_t)all_rows;
    st = add_section(b, proj, part, t, rows, t->shape[2], row_bytes * (uint64_t)rows);
    for (int32_t e = 0; !st && e < n; e++)
        set_range(b, e, t, (uint64_t)e * slice + (uint64_t)row * row_bytes);
    return st;
}

/* mlp.switch_mlp.gate_proj.weight, ... */
static swl_status build_stacked(builder *b)
{
    for (int p = 0; p < SWL_PROJ_COUNT; p++)
        for (int k = 0; k < SWL_PART_COUNT; k++) {
            int32_t rows = proj_rows(&b->ckpt->config, (swl_proj)p);
            const swl_st_tensor *t;
            swl_status st;
            char tail[64];

            snprintf(tail, sizeof tail, "switch_mlp.%s.%s", swl_proj_names[p], swl_part_names[k]);
            t = find(b, tail);
            if (!t && k == SWL_PART_WEIGHT)
                return missing(b, tail);
            st = t ? add_slices(b, (swl_proj)p, (swl_part)k, t, 0, rows, rows) : SWL_OK;
            if (st)
                return st;
        }
    return SWL_OK;
}

/* mlp.experts.gate_up_proj, mlp.experts.down_proj */
static swl_status build_fused(builder *b)
{
    const swl_st_tensor *gate_up = find(b, "experts.gate_up_proj"), *down = find(b, "experts.down_proj");
    int64_t width = b->ckpt->config.expert_width, hidden = b->ckpt->config.hidden;
    swl_status st;

    if (!down)
        return missing(b, "experts.down_proj");
    st = add_slices(b, SWL_PROJ_GATE, SWL_PART_WEIGHT, gate_up, 0, width, 2 * width);
    if (!st)
        st = add_slices(b, SWL_PROJ_UP, SWL_PART_WEIGHT, gate_up, width, width, 2 * width);
    return st ? st : add_slices(b, SWL_PROJ_DOWN, SWL_PART_WEIGHT, down, 0, hidden, hidden);
}

/* All experts of a layer share one geometry, so the first one's tensor says what the others must be. */
static swl_status add_split(builder *b, swl_proj proj)
{
    const swl_st_tensor *first = NULL;
    swl_status st = SWL_OK;

    for (int32_t e = 0; !st && e < b->ckpt->config.n_experts; e++) {
        const swl_st_tensor *t;
        char tail[64];

        snprintf(tail, sizeof tail, "experts.%" PRId32 ".%s.weight", e, swl_proj_names[proj]);
        t = find(b, tail);
        if (!t)
            return missing(b, tail);
        if (t->n_dims != 2)
            return bad_shape(b, t, "two dimensions");
        if (!first)
            st = add_section(b, proj, SWL_PART_WEIGHT, t, t->shape[0], t->shape[1], t->size);
        else if (t->dtype != first->dtype || t->shape[0] != first->shape[0] || t->shape[1] != first->shape[1])
            return bad_shape(b, t, "the type and shape of expert 0");
        first = first ? first : t;
        if (!st)
            set_range(b, e, t, 0);
    }
    return st;
}

static swl_status build_split(builder *b)
{
    swl_status st = SWL_OK;

    for (int p = 0; !st && p < SWL_PROJ_COUNT; p++)
        st = add_split(b, (swl_proj)p);
    return st;
}

/* Names and conventions must come from the same tool, else one of them is not what it seems. */
static swl_status check_kind(const builder *b, const swl_st_tensor *t, swl_checkpoint_kind kind)
{
    if (b->ckpt->kind == kind)
        return SWL_OK;
    return swl_fail_at(b->err, SWL_E_CORRUPT, swl_st_path(b->ckpt->dense, t->file), -1,
                       "%s: tensor \"%s\" is named as in %s, but conv1d.weight is stored as in %s", b->ckpt->dir,
                       t->name, kind == SWL_CHECKPOINT_MLX ? "MLX checkpoints" : "Hugging Face checkpoints",
                       kind == SWL_CHECKPOINT_MLX ? "Hugging Face checkpoints" : "MLX checkpoints");
}

static swl_status build_sections(builder *b)
{
    static const struct {
        const char *probe;
        swl_checkpoint_kind kind;
        swl_status (*build)(builder *);
    } forms[] = {
        {"switch_mlp.gate_proj.weight", SWL_CHECKPOINT_MLX, build_stacked},
        {"experts.gate_up_proj", SWL_CHECKPOINT_HF, build_fused},
        {"experts.0.gate_proj.weight", SWL_CHECKPOINT_HF, build_split},
    };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const swl_st_tensor *t = find(b, forms[i].probe);
        swl_status st;

        if (!t)
            continue;
        st = check_kind(b, t, forms[i].kind);
        return st ? st : forms[i].build(b);
    }
    return swl_fail_at(b->err, SWL_E_CORRUPT, swl_st_path(b->ckpt->dense, 0), -1,
                       "%s: layer %" PRId32 " has no routed experts: neither %slayers.%" PRId32
                       ".mlp.switch_mlp.gate_proj.weight nor ...experts.gate_up_proj nor ...experts.0.gate_proj.weight",
                       b->ckpt->dir, b->layer, b->ckpt->prefix, b->layer);
}

/* True when range k of every expert continues range k - 1 in the file and in the slot. */
static bool continues(const builder *b, int32_t k)
{
    for (int32_t e = 0; e < b->ckpt->config.n_experts; e++) {
        const swl_range *r = &b->ranges[(int64_t)e * RANGES_MAX + k];

        if (r[-1].file != r->file || r[-1].offset + r[-1].size != r->offset || r[-1].dst + r[-1].size != r->dst)
            return false;
    }
    return true;
}

/* Packs the ranges of each expert, joining those that continue each other, into an array of the final size. */
static swl_status pack_ranges(builder *b)
{
    swl_expert_layout *l = b->l;
    int32_t n = b->ckpt->config.n_experts;
    bool joined[RANGES_MAX] = {false};
    swl_range *out;

    for (int32_t k = 0; k < l->n_sections; k++) {
        joined[k] = k && continues(b, k);
        l->n_ranges += !joined[k];
    }
    out = l->ranges = swl_calloc((size_t)n, (size_t)l->n_ranges * sizeof *out);
    if (!out)
        return swl_fail(b->err, SWL_E_NOMEM, "out of memory for the range table of %" PRId32 " experts", n);
    for (int32_t e = 0; e < n; e++)
        for (int32_t k = 0; k < l->n_sections; k++) {
            const swl_range *r = &b->ranges[(int64_t)e * RANGES_MAX + k];

            if (joined[k])
                out[-1].size += r->size;
            else
                *out++ = *r;
        }
    return SWL_OK;
}

static swl_status build_layer(builder *b)
{
    const char *path;
    swl_status st = build_sections(b);

    if (st)
        return st;
    path = swl_st_path(b->ckpt->dense, b->ranges[0].file);
    st = swl_experts_check(b->l, &b->ckpt->config, b->layer, b->ckpt->dir, path, b->err);
    return st ? st : pack_ranges(b);
}

swl_status swl_experts_from_tensors(swl_checkpoint *c, swl_error *err)
{
    builder b = {.ckpt = c, .err = err};
    swl_status st = SWL_OK;

    b.ranges = swl_calloc((size_t)c->config.n_experts, RANGES_MAX * sizeof *b.ranges);
    if (!b.ranges)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %" PRId32 " experts", c->config.n_experts);
    for (int32_t i = 0; !st && i < c->config.n_layers; i++) {
        b.layer = i;
        b.l = &c->experts[i];
        if (c->config.layers[i].ffn == SWL_FFN_MOE)
            st = build_layer(&b);
    }
    swl_free(b.ranges);
    return st;
}
