/*
 * repack_plan.c: walks the model's layers in the order of the config, looks each tensor up in the source, and lays out
 * the files of the container. What is missing or has the wrong shape is found here, before anything is written.
 */
#include "install/repack_plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

const char *swl_proj_name(swl_proj proj)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};

    return names[proj];
}

const char *swl_part_name(swl_part part)
{
    static const char *const names[] = {"weight", "scales", "biases"};

    return names[part];
}

/* ---- finding tensors ----------------------------------------------------------------------------------------------
 */

#define NAME_MAX_BYTES 256

/* By canonical name; the draft head's tensors have a prefix of their own. */
static const swl_st_tensor *find(const swl_plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const swl_st_tensor *find(const swl_plan *p, const char *fmt, ...)
{
    char name[NAME_MAX_BYTES], draft[NAME_MAX_BYTES + sizeof p->mtp_prefix];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (strncmp(name, "mtp.", 4))
        return swl_checkpoint_find(p->c, name);
    snprintf(draft, sizeof draft, "%s%s", p->mtp_prefix, name + 4);
    return swl_st_find(p->c->dense, draft);
}

static swl_status missing(const swl_plan *p, const char *name, swl_error *err)
{
    return swl_fail_at(err, SWL_E_CORRUPT, p->c->dir, -1, "%s has no tensor %s, which its config.json asks for",
                       p->c->dir, name);
}

/* The whole of a two-dimensional tensor; a NULL tensor gives an empty slice. */
static swl_status whole(swl_slice *s, const swl_st_tensor *t, swl_error *err)
{
    *s = (swl_slice){.t = t};
    if (!t)
        return SWL_OK;
    if (t->n_dims != 2)
        return swl_fail(err, SWL_E_CORRUPT, "tensor %s has %d dimensions, expected 2", t->name, t->n_dims);
    s->rows = t->shape[0];
    s->width = t->shape[1];
    return SWL_OK;
}

/* ---- dense items --------------------------------------------------------------------------------------------------
 */

typedef enum kind {
    MATRIX, /* quantised by the rule */
    ROUTER, /* 8 bits in groups of 64: a flipped expert costs more than these small matrices */
    KEPT,   /* a matrix that stays as it is */
    NORM,   /* zero-centred: holds 1+w in the container */
    VECTOR,
    CONV /* [rows][cols] taps, stored as [rows, cols, 1] */
} kind;

static swl_status new_item(swl_plan_file *f, const char *name, swl_plan_item **item, swl_error *err)
{
    if (f->n_items == f->n_items_max) {
        int32_t n = f->n_items_max ? 2 * f->n_items_max : 64;
        swl_plan_item *p = swl_realloc(f->items, (size_t)n, sizeof *p);

        if (!p)
            return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of tensors");
        f->items = p;
        f->n_items_max = n;
    }
    *item = &f->items[f->n_items];
    **item = (swl_plan_item){.name = swl_strdup(name)};
    if (!(*item)->name)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of tensors");
    f->n_items++;
    return SWL_OK;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && !strcmp(s + n - k, tail);
}

/* The first eighth of the layers, the last, and every third between: as in mlx-lm's recipes. */
static bool is_sensitive(int32_t layer, int32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

/* A recipe takes more care of the head, and of values and down projections in some layers. */
static swl_weight_rule by_recipe(const swl_plan *p, const char *name)
{
    swl_weight_rule r = p->rule;
    int layer = -1;

    if (!r.high_bits)
        return r;
    if (!strcmp(name, "lm_head") ||
        ((ends_with(name, "v_proj") || ends_with(name, "down_proj")) && sscanf(name, "model.layers.%d.", &layer) == 1 &&
         is_sensitive(layer, p->c->config.n_layers)))
        r.bits = r.high_bits;
    return r;
}

static swl_weight_rule rule_of(const swl_plan *p, const char *name, kind k)
{
    if (k == KEPT || !p->rule.bits)
        return (swl_weight_rule){0};
    return k == ROUTER ? (swl_weight_rule){.bits = 8, .group = 64, .minmax = p->rule.minmax} : by_recipe(p, name);
}

static swl_status bind_matrix(swl_plan *p, swl_plan_item *item, kind k, int64_t rows, int64_t cols, swl_error *err)
{
    swl_slice src[SWL_PART_COUNT];
    swl_status st = SWL_OK;

    for (int part = 0; part < SWL_PART_COUNT && !st; part++)
        st = whole(&src[part], find(p, "%s.%s", item->name, swl_part_name((swl_part)part)), err);
    if (!st && !src[SWL_PART_WEIGHT].t) {
        char name[NAME_MAX_BYTES];

        snprintf(name, sizeof name, "%s.weight", item->name);
        st = missing(p, name, err);
    }
    if (!st)
        st = swl_weight_matrix(&item->w, src, rows, cols, rule_of(p, item->name, k), err);
    item->matrix = true;
    item->n_dims = 2;
    item->shape[0] = rows;
    p->quantised_here |= item->w.op == SWL_WEIGHT_QUANTISE;
    return st;
}

static swl_status bind_vector(swl_plan *p, swl_plan_item *item, kind k, int64_t rows, int64_t cols, swl_error *err)
{
    const swl_st_tensor *t = find(p, "%s", item->name);
    bool draft = !strncmp(item->name, "mtp.", 4);
    bool shifted = draft ? p->mtp_norms_hold_one_plus_w : p->c->norms_hold_one_plus_w;
    swl_weight_op op = k == NORM && !shifted ? SWL_WEIGHT_ADD_ONE : SWL_WEIGHT_COPY;

    if (!t)
        return missing(p, item->name, err);
    item->n_dims = k == CONV ? 3 : 1;
    item->shape[0] = k == CONV ? rows : cols;
    item->shape[1] = cols;
    item->shape[2] = 1;
    return swl_weight_vector(&item->w, t, rows * cols, op, err);
}

static swl_status add(swl_plan *p, swl_plan_file *f, kind k, int64_t rows, int64_t cols, swl_error *err,
                      const char *fmt, ...) __attribute__((format(printf, 7, 8)));
static swl_status add(swl_plan *p, swl_plan_file *f, kind k, int64_t rows, int64_t cols, swl_error *err,
                      const char *fmt, ...)
{
    char name[NAME_MAX_BYTES];
    swl_plan_item *item = NULL;
    swl_status st;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    st = new_item(f, name, &item, err);
    if (st)
        return st;
    return k <= KEPT ? bind_matrix(p, item, k, rows, cols, err) : bind_vector(p, item, k, rows, cols, err);
}

typedef struct row {
    kind k;
    int64_t rows, cols;
    const char *name;
} row;

static swl_status add_rows(swl_plan *p, swl_plan_file *f, const char *base, const row *rows, int n, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int i = 0; i < n && !st; i++)
        st = add(p, f, rows[i].k, rows[i].rows, rows[i].cols, err, "%s%s", base, rows[i].name);
    return st;
}

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static swl_status add_attention(swl_plan *p, swl_plan_file *f, const char *base, swl_error *err)
{
    const swl_config *g = &p->c->config;
    int64_t q = (int64_t)g->n_heads * g->head_dim, kv = (int64_t)g->n_kv_heads * g->head_dim;
    const row rows[] = {
        {MATRIX, 2 * q, g->hidden, "self_attn.q_proj"}, /* query and gate of each head */
        {MATRIX, kv, g->hidden, "self_attn.k_proj"},       {MATRIX, kv, g->hidden, "self_attn.v_proj"},
        {MATRIX, g->hidden, q, "self_attn.o_proj"},        {NORM, 1, g->head_dim, "self_attn.q_norm.weight"},
        {NORM, 1, g->head_dim, "self_attn.k_norm.weight"},
    };

    return add_rows(p, f, base, rows, COUNT(rows), err);
}

static swl_status add_deltanet(swl_plan *p, swl_plan_file *f, const char *base, swl_error *err)
{
    const swl_config *g = &p->c->config;
    int64_t dk = (int64_t)g->n_k_heads * g->k_dim, dv = (int64_t)g->n_v_heads * g->v_dim;
    const row fused[] = {
        {MATRIX, 2 * dk + 2 * dv, g->hidden, "linear_attn.in_proj_qkvz"},
        {MATRIX, 2 * (int64_t)g->n_v_heads, g->hidden, "linear_attn.in_proj_ba"},
    };
    const row split[] = {
        {MATRIX, 2 * dk + dv, g->hidden, "linear_attn.in_proj_qkv"},
        {MATRIX, dv, g->hidden, "linear_attn.in_proj_z"},
        {MATRIX, g->n_v_heads, g->hidden, "linear_attn.in_proj_b"},
        {MATRIX, g->n_v_heads, g->hidden, "linear_attn.in_proj_a"},
    };
    const row rows[] = {
        {CONV, 2 * dk + dv, g->conv_width, "linear_attn.conv1d.weight"},
        {VECTOR, 1, g->n_v_heads, "linear_attn.A_log"},
        {VECTOR, 1, g->n_v_heads, "linear_attn.dt_bias"},
        {VECTOR, 1, g->v_dim, "linear_attn.norm.weight"},
        {MATRIX, g->hidden, dv, "linear_attn.out_proj"},
    };
    swl_status st;

    if (find(p, "%slinear_attn.in_proj_qkvz.weight", base))
        st = add_rows(p, f, base, fused, COUNT(fused), err);
    else
        st = add_rows(p, f, base, split, COUNT(split), err);
    return st ? st : add_rows(p, f, base, rows, COUNT(rows), err);
}

static swl_status add_ffn(swl_plan *p, swl_plan_file *f, const char *base, swl_ffn ffn, swl_error *err)
{
    const swl_config *g = &p->c->config;
    const row dense[] = {
        {MATRIX, g->intermediate, g->hidden, "mlp.gate_proj"},
        {MATRIX, g->intermediate, g->hidden, "mlp.up_proj"},
        {MATRIX, g->hidden, g->intermediate, "mlp.down_proj"},
    };
    const row moe[] = {
        {ROUTER, g->n_experts, g->hidden, "mlp.gate"},
        {ROUTER, 1, g->hidden, "mlp.shared_expert_gate"},
        {MATRIX, g->shared_width, g->hidden, "mlp.shared_expert.gate_proj"},
        {MATRIX, g->shared_width, g->hidden, "mlp.shared_expert.up_proj"},
        {MATRIX, g->hidden, g->shared_width, "mlp.shared_expert.down_proj"},
    };

    if (ffn == SWL_FFN_DENSE)
        return add_rows(p, f, base, dense, COUNT(dense), err);
    return add_rows(p, f, base, moe, g->shared_width ? COUNT(moe) : 1, err);
}

static swl_status add_layer(swl_plan *p, swl_plan_file *f, const char *base, swl_layer_plan layer, swl_error *err)
{
    const row norms[] = {
        {NORM, 1, p->c->config.hidden, "input_layernorm.weight"},
        {NORM, 1, p->c->config.hidden, "post_attention_layernorm.weight"},
    };
    swl_status st = add_rows(p, f, base, norms, COUNT(norms), err);

    if (!st && layer.mixer == SWL_MIXER_ATTENTION)
        st = add_attention(p, f, base, err);
    else if (!st)
        st = add_deltanet(p, f, base, err);
    return st ? st : add_ffn(p, f, base, layer.ffn, err);
}

static swl_status add_trunk(swl_plan *p, swl_error *err)
{
    const swl_config *g = &p->c->config;
    char base[64];
    swl_status st = add(p, &p->dense, MATRIX, g->vocab, g->hidden, err, "model.embed_tokens");

    if (!st)
        st = add(p, &p->dense, NORM, 1, g->hidden, err, "model.norm.weight");
    if (!st && (!g->tied || find(p, "lm_head.weight")))
        st = add(p, &p->dense, MATRIX, g->vocab, g->hidden, err, "lm_head");
    for (int32_t i = 0; i < g->n_layers && !st; i++) {
        snprintf(base, sizeof base, "model.layers.%d.", i);
        st = add_layer(p, &p->dense, base, g->layers[i], err);
    }
    if (!st && (find(p, "model.layers.%d.input_layernorm.weight", g->n_layers)))
        st = swl_fail_at(err, SWL_E_CORRUPT, p->c->dir, -1,
                         "%s has a layer %d, but its config.json says num_hidden_layers %d", p->c->dir, g->n_layers,
                         g->n_layers);
    return st;
}

/* ---- experts ------------------------------------------------------------------------------------------------------
 */

/* Stacked tensor [experts, rows, width]: the rows of one expert, from row `first` of n. */
static swl_status stacked(const swl_plan *p, swl_slice *s, const swl_st_tensor *t, int32_t expert, int32_t first,
                          int32_t n_splits, swl_error *err)
{
    uint64_t expert_bytes;

    *s = (swl_slice){.t = t};
    if (!t)
        return SWL_OK;
    if (t->n_dims != 3 || t->shape[0] != p->c->config.n_experts || t->shape[1] % n_splits)
        return swl_fail(err, SWL_E_CORRUPT, "tensor %s has %d dimensions and %" PRId64 " experts, expected 3 and %d",
                        t->name, t->n_dims, t->shape[0], p->c->config.n_experts);
    s->rows = t->shape[1] / n_splits;
    s->width = t->shape[2];
    expert_bytes = t->size / (uint64_t)t->shape[0];
    s->begin = expert_bytes * (uint64_t)expert + expert_bytes / (uint64_t)n_splits * (uint64_t)first;
    return SWL_OK;
}

/* The parts of a projection in whichever form the source has them. */
static swl_status expert_slices(const swl_plan *p, const char *base, int32_t e, swl_proj proj,
                                swl_slice src[SWL_PART_COUNT], swl_error *err)
{
    const char *name = swl_proj_name(proj);
    const swl_st_tensor *t;
    swl_status st = SWL_OK;

    for (int part = 0; part < SWL_PART_COUNT; part++)
        src[part] = (swl_slice){0};
    if (find(p, "%sswitch_mlp.%s.weight", base, name)) {
        for (int part = 0; part < SWL_PART_COUNT && !st; part++)
            st = stacked(p, &src[part], find(p, "%sswitch_mlp.%s.%s", base, name, swl_part_name((swl_part)part)), e, 0,
                         1, err);
        return st;
    }
    if (proj != SWL_PROJ_DOWN && (t = find(p, "%sexperts.gate_up_proj", base)))
        return stacked(p, &src[SWL_PART_WEIGHT], t, e, proj == SWL_PROJ_UP, 2, err);
    if (proj == SWL_PROJ_DOWN && (t = find(p, "%sexperts.down_proj", base)))
        return stacked(p, &src[SWL_PART_WEIGHT], t, e, 0, 1, err);
    return whole(&src[SWL_PART_WEIGHT], find(p, "%sexperts.%d.%s.weight", base, e, name), err);
}

swl_status swl_plan_expert(const swl_plan *p, const swl_plan_slots *s, int32_t expert, swl_proj proj, swl_weight *w,
                           swl_error *err)
{
    const swl_config *g = &p->c->config;
    swl_slice src[SWL_PART_COUNT];
    swl_status st = expert_slices(p, s->base, expert, proj, src, err);
    bool down = proj == SWL_PROJ_DOWN;
    char name[NAME_MAX_BYTES];

    if (st)
        return st;
    if (!src[SWL_PART_WEIGHT].t) {

        snprintf(name, sizeof name, "%sexperts.%d.%s.weight", s->base, expert, swl_proj_name(proj));
        return missing(p, name, err);
    }
    snprintf(name, sizeof name, "%sswitch_mlp.%s", s->base, swl_proj_name(proj));
    return swl_weight_matrix(w, src, down ? g->hidden : g->expert_width, down ? g->expert_width : g->hidden,
                             by_recipe(p, name), err);
}

static void append_sections(swl_plan_slots *s, swl_proj proj, const swl_weight *w)
{
    s->bits[proj] = w->bits;
    s->group[proj] = w->group;
    for (int part = 0; part < w->n_parts; part++) {
        swl_section *x = &s->sections[s->n_sections++];

        *x = (swl_section){.proj = proj, .part = (swl_part)part, .dtype = w->dtype[part], .offset = s->payload};
        x->shape[0] = w->rows;
        x->shape[1] = w->width[part];
        x->size = w->row_bytes[part] * (uint64_t)w->rows;
        s->payload += x->size;
    }
}

/* Every expert of a layer must have the form of its first one: a slot has one layout. */
static swl_status same_form(const swl_plan_slots *s, int32_t expert, swl_proj proj, const swl_weight *w, swl_error *err)
{
    int part = 0;

    for (int i = 0; i < s->n_sections; i++) {
        const swl_section *x = &s->sections[i];

        if (x->proj != proj)
            continue;
        if (part == w->n_parts || x->dtype != w->dtype[part] || x->shape[1] != w->width[part])
            break;
        part++;
    }
    if (part == w->n_parts)
        return SWL_OK;
    return swl_fail(err, SWL_E_UNSUPPORTED, "%sexperts: %s of expert %d (%s) has another form than that of expert 0",
                    s->base, swl_proj_name(proj), expert, w->src[SWL_PART_WEIGHT].t->name);
}

static swl_status plan_slots(swl_plan *p, swl_plan_slots *s, const char *base, swl_error *err)
{
    int32_t n = p->c->config.n_experts;
    swl_status st = SWL_OK;
    swl_weight w;

    s->base = swl_strdup(base);
    s->crc = swl_calloc((size_t)n, sizeof *s->crc);
    if (!s->base || !s->crc)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the experts' table");
    for (int32_t e = 0; e < n && !st; e++)
        for (int proj = 0; proj < SWL_PROJ_COUNT && !st; proj++) {
            st = swl_plan_expert(p, s, e, (swl_proj)proj, &w, err);
            if (!st && !e)
                append_sections(s, (swl_proj)proj, &w);
            else if (!st)
                st = same_form(s, e, (swl_proj)proj, &w, err);
            if (!st)
                p->quantised_here |= w.op == SWL_WEIGHT_QUANTISE;
        }
    s->stride = (s->payload + SWL_STRIDE_ALIGN - 1) / SWL_STRIDE_ALIGN * SWL_STRIDE_ALIGN;
    return st;
}

static swl_status plan_experts(swl_plan *p, swl_error *err)
{
    const swl_config *g = &p->c->config;
    swl_status st = SWL_OK;
    char base[64];

    p->layers = swl_calloc((size_t)g->n_layers, sizeof *p->layers);
    if (!p->layers)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the experts' table");
    for (int32_t i = 0; i < g->n_layers && !st; i++) {
        snprintf(base, sizeof base, "model.layers.%d.mlp.", i);
        if (g->layers[i].ffn == SWL_FFN_MOE)
            st = plan_slots(p, &p->layers[i], base, err);
    }
    return st;
}

/* Version 1 has one table of sections for all layers, and its readers know affine experts with 4 and 8 bits. */
static bool fits_version_1(const swl_plan *p)
{
    const swl_plan_slots *first = &p->layers[0];

    if (!p->c->config.n_experts)
        return false;
    for (int32_t i = 0; i < p->c->config.n_layers; i++) {
        const swl_plan_slots *s = &p->layers[i];

        if (!s->base || s->n_sections != first->n_sections)
            return false;
        for (int k = 0; k < SWL_PROJ_COUNT; k++)
            if (s->bits[k] != 4 && s->bits[k] != 8)
                return false;
        for (int k = 0; k < s->n_sections; k++)
            if (s->sections[k].dtype != first->sections[k].dtype ||
                s->sections[k].shape[1] != first->sections[k].shape[1])
                return false;
    }
    return true;
}

/* ---- draft head ---------------------------------------------------------------------------------------------------
 */

static bool find_draft(swl_plan *p)
{
    static const char *const prefixes[] = {"mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp."};

    for (int i = 0; i < COUNT(prefixes); i++) {
        strcpy(p->mtp_prefix, prefixes[i]);
        if (find(p, "mtp.fc.weight"))
            return true;
    }
    return false;
}

static swl_status count_negative(const swl_plan *p, const char *name, int64_t *n_negative, int64_t *n, swl_error *err)
{
    const swl_st_tensor *t = find(p, "%s", name);
    swl_weight w;
    uint8_t *raw;
    float *x;
    swl_status st;

    if (!t)
        return missing(p, name, err);
    st = swl_weight_vector(&w, t, p->c->config.hidden, SWL_WEIGHT_COPY, err);
    if (st)
        return st;
    raw = swl_calloc(t->size, 1);
    x = swl_calloc((size_t)w.cols, sizeof *x);
    st = raw && x ? swl_st_read(p->c->dense, t, 0, raw, t->size, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");
    if (!st)
        swl_dtype_to_f32(t->dtype, raw, x, w.cols);
    for (int64_t i = 0; i < w.cols && !st; i++)
        *n_negative += x[i] < 0;
    *n += w.cols;
    swl_free(raw);
    swl_free(x);
    return st;
}

/*
 * A draft head in an MLX checkpoint comes from anywhere, in either norm convention, whatever the trunk's is. Weights
 * around zero have many negative values, weights around one almost none; in between nothing is certain.
 */
static swl_status draft_convention(swl_plan *p, swl_error *err)
{
    static const char *const norms[] = {"mtp.norm.weight", "mtp.pre_fc_norm_embedding.weight",
                                        "mtp.pre_fc_norm_hidden.weight", "mtp.layers.0.input_layernorm.weight",
                                        "mtp.layers.0.post_attention_layernorm.weight"};
    int64_t n_negative = 0, n = 0;
    swl_status st = SWL_OK;

    p->mtp_norms_hold_one_plus_w = p->c->norms_hold_one_plus_w;
    if (p->c->kind != SWL_CHECKPOINT_MLX)
        return SWL_OK;
    for (int i = 0; i < COUNT(norms) && !st; i++)
        st = count_negative(p, norms[i], &n_negative, &n, err);
    if (st)
        return st;
    p->mtp_norms_hold_one_plus_w = n_negative * 50 < n;
    if (!p->mtp_norms_hold_one_plus_w && n_negative * 10 < n)
        p->mtp = false;
    return SWL_OK;
}

static swl_status add_draft(swl_plan *p, swl_error *err)
{
    const swl_config *g = &p->c->config;
    const row rows[] = {
        {KEPT, g->hidden, 2 * (int64_t)g->hidden, "fc"},
        {NORM, 1, g->hidden, "pre_fc_norm_embedding.weight"},
        {NORM, 1, g->hidden, "pre_fc_norm_hidden.weight"},
        {NORM, 1, g->hidden, "norm.weight"},
    };
    swl_layer_plan layer = {.mixer = SWL_MIXER_ATTENTION, .ffn = g->n_experts ? SWL_FFN_MOE : SWL_FFN_DENSE};
    swl_status st;

    p->mtp = find_draft(p);
    if (!p->mtp)
        return SWL_OK;
    if (find(p, "mtp.layers.1.input_layernorm.weight"))
        return swl_fail(err, SWL_E_UNSUPPORTED, "the draft head has more than one layer (tensor %slayers.1...)",
                        p->mtp_prefix);
    st = draft_convention(p, err);
    if (st || !p->mtp)
        return st;
    st = add_rows(p, &p->draft, "mtp.", rows, COUNT(rows), err);
    if (!st)
        st = add_layer(p, &p->draft, "mtp.layers.0.", layer, err);
    if (!st && g->n_experts)
        st = plan_slots(p, &p->draft_slots, "mtp.layers.0.mlp.", err);
    return st;
}

/* ---- layout of a safetensors file ---------------------------------------------------------------------------------
 */

/* The largest power of two, up to 64, that divides the size: tensors sorted by it start at a multiple of it. */
static uint64_t size_class(uint64_t size)
{
    uint64_t c = 64;

    while (size % c)
        c /= 2;
    return c;
}

typedef struct sort_key {
    uint64_t class;
    bool vector;
    const char *name;
    swl_plan_tensor t;
} sort_key;

static int by_place(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;

    if (x->class != y->class)
        return x->class > y->class ? -1 : 1;
    if (x->vector != y->vector)
        return x->vector ? 1 : -1;
    return strcmp(x->name, y->name);
}

static swl_status list_tensors(swl_plan_file *f, sort_key *keys, swl_error *err)
{
    for (int32_t i = 0; i < f->n_items; i++) {
        const swl_plan_item *item = &f->items[i];

        for (int part = 0; part < item->w.n_parts; part++) {
            sort_key *k = &keys[f->n_tensors];

            k->t = (swl_plan_tensor){.item = i, .part = (swl_part)part};
            k->t.size = item->w.row_bytes[part] * (uint64_t)item->w.rows;
            k->t.name = item->matrix ? swl_asprintf("%s.%s", item->name, swl_part_name((swl_part)part))
                                     : swl_strdup(item->name);
            k->class = size_class(k->t.size);
            k->vector = !item->matrix;
            k->name = k->t.name;
            if (!k->name)
                return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of tensors");
            f->n_tensors++;
        }
    }
    return SWL_OK;
}

static void declare(const swl_plan_file *f, const swl_plan_tensor *t, swl_st_decl *d)
{
    const swl_plan_item *item = &f->items[t->item];

    *d = (swl_st_decl){.name = t->name, .dtype = item->w.dtype[t->part], .n_dims = item->n_dims};
    memcpy(d->shape, item->shape, sizeof item->shape);
    if (item->matrix)
        d->shape[1] = item->w.width[t->part];
}

static swl_status make_header(swl_plan_file *f, swl_error *err)
{
    swl_st_decl *d = swl_calloc((size_t)f->n_tensors, sizeof *d);
    uint64_t at = 0;
    swl_status st;

    if (!d)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a safetensors header");
    for (int32_t i = 0; i < f->n_tensors; i++)
        declare(f, &f->tensors[i], &d[i]);
    st = swl_st_header(d, f->n_tensors, SWL_STRIDE_ALIGN, &f->header, &f->n_header, err);
    swl_free(d);
    if (st)
        return st;
    at = f->n_header;
    for (int32_t i = 0; i < f->n_tensors; i++) {
        f->items[f->tensors[i].item].offset[f->tensors[i].part] = at;
        at += f->tensors[i].size;
    }
    f->n_bytes = at;
    return SWL_OK;
}

static swl_status lay_out(swl_plan_file *f, const char *name, swl_error *err)
{
    size_t n_max = (size_t)f->n_items * SWL_PART_COUNT;
    sort_key *keys = swl_calloc(n_max, sizeof *keys);
    swl_status st;

    f->name = name;
    f->tensors = swl_calloc(n_max, sizeof *f->tensors);
    if (!keys || !f->tensors) {
        swl_free(keys);
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of tensors");
    }
    st = list_tensors(f, keys, err);
    qsort(keys, (size_t)f->n_tensors, sizeof *keys, by_place);
    for (int32_t i = 0; i < f->n_tensors; i++)
        f->tensors[i] = keys[i].t;
    swl_free(keys);
    return st ? st : make_header(f, err);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------
 */

static bool is_quantised(const swl_st *s)
{
    for (int32_t i = 0; i < swl_st_count(s); i++) {
        const char *name = swl_st_at(s, i)->name;
        size_t n = strlen(name);

        if (n > 7 && !strcmp(name + n - 7, ".scales"))
            return true;
    }
    return false;
}

static void sum_bytes(swl_plan *p)
{
    uint64_t n = (uint64_t)p->c->config.n_experts;

    p->bytes_total = p->dense.n_bytes + p->draft.n_bytes + n * p->draft_slots.stride;
    for (int32_t i = 0; i < p->c->config.n_layers; i++)
        p->bytes_total += n * p->layers[i].stride;
}

swl_status swl_plan_make(swl_plan *p, const swl_checkpoint *c, swl_weight_rule rule, swl_error *err)
{
    swl_status st;

    *p = (swl_plan){.c = c, .rule = rule};
    if (is_quantised(c->dense))
        p->rule = (swl_weight_rule){0}; /* what its converter left plain stays plain */
    st = add_trunk(p, err);
    if (!st)
        st = plan_experts(p, err);
    if (!st)
        st = add_draft(p, err);
    if (!st)
        st = lay_out(&p->dense, "model.safetensors", err);
    if (!st && p->mtp)
        st = lay_out(&p->draft, "mtp.safetensors", err);
    if (!st) {
        p->version = fits_version_1(p) ? 1 : 2;
        sum_bytes(p);
    } else
        swl_plan_deinit(p);
    return st;
}

static void free_file(swl_plan_file *f)
{
    for (int32_t i = 0; i < f->n_items; i++)
        swl_free(f->items[i].name);
    for (int32_t i = 0; i < f->n_tensors; i++)
        swl_free(f->tensors[i].name);
    swl_free(f->items);
    swl_free(f->tensors);
    swl_free(f->header);
    *f = (swl_plan_file){0};
}

static void free_slots(swl_plan_slots *s)
{
    swl_free(s->base);
    swl_free(s->crc);
    *s = (swl_plan_slots){0};
}

void swl_plan_deinit(swl_plan *p)
{
    free_file(&p->dense);
    free_file(&p->draft);
    for (int32_t i = 0; p->layers && i < p->c->config.n_layers; i++)
        free_slots(&p->layers[i]);
    swl_free(p->layers);
    p->layers = NULL;
    free_slots(&p->draft_slots);
}
