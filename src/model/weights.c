/*
 * weights.c: binds the dense tensors of a checkpoint to the places where the forward pass looks for them. Matrices keep
 * the bytes of the file (only aligned); vectors become float32. Two passes run the same code: the first adds up sizes, the
 * second reads, so that all of it lies in one block.
 */
#define _GNU_SOURCE /* M_PI */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"

typedef struct loader {
    const swl_checkpoint *ck;
    const swl_config *c;
    swl_weights *w;
    swl_error *err;
    bool measure;              /* first pass: only add up */
} loader;

static uint8_t *take(loader *ld, uint64_t n)
{
    uint8_t *p = ld->measure ? NULL : ld->w->arena + ld->w->arena_used;

    ld->w->arena_used += (n + SWL_ALIGN - 1) & ~(uint64_t)(SWL_ALIGN - 1);
    return p;
}

static swl_status missing(loader *ld, const char *name)
{
    return swl_fail_at(ld->err, SWL_E_CORRUPT, ld->ck->dir, -1, "%s: tensor \"%s\" is missing", ld->ck->dir, name);
}

static swl_status wrong_shape(loader *ld, const swl_st_tensor *t, const char *expected)
{
    char found[128];
    int32_t i, n = 0;

    for (i = 0; i < t->n_dims && n < (int32_t)sizeof found - 24; i++)
        n += snprintf(found + n, sizeof found - (size_t)n, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    found[n] = 0;
    return swl_fail_at(ld->err, SWL_E_CORRUPT, swl_st_path(ld->ck->dense, t->file), (int64_t)t->offset,
                       "tensor \"%s\" is %s [%s], expected %s", t->name, swl_dtype_name(t->dtype), found, expected);
}

/* Large tensors are read in pieces that are dropped from the page cache, which would else hold all of it a second time. */
static swl_status read_uncached(loader *ld, const swl_st_tensor *t, uint8_t *dst)
{
    uint64_t done, n, piece = UINT64_C(32) << 20;
    swl_status st = SWL_OK;

    for (done = 0; done < t->size && !st; done += n) {
        n = t->size - done < piece ? t->size - done : piece;
        st = swl_st_read(ld->ck->dense, t, done, dst + done, n, ld->err);
        if (t->size > (UINT64_C(1) << 20))
            swl_file_forget(swl_st_fd(ld->ck->dense, t->file), t->offset + done, n);
    }
    return st;
}

/* The bytes of a tensor, checked when the container knows their checksum. */
static swl_status read_tensor(loader *ld, const swl_st_tensor *t, uint8_t *dst)
{
    swl_status st = read_uncached(ld, t, dst);
    uint32_t want, found;

    if (st || !swl_checkpoint_crc32c(ld->ck, t, &want))
        return st;
    found = swl_crc32c(0, dst, t->size);
    if (found != want)
        return swl_fail_at(ld->err, SWL_E_CORRUPT, swl_st_path(ld->ck->dense, t->file), (int64_t)t->offset,
                           "tensor \"%s\": checksum %08" PRIx32 ", expected %08" PRIx32 ": the file is damaged", t->name,
                           found, want);
    return SWL_OK;
}

/* n floats of a tensor of any shape with that many elements, plus `add`. */
static swl_status load_vector(loader *ld, const char *name, int64_t n, float add, float **out)
{
    const swl_st_tensor *t = swl_checkpoint_find(ld->ck, name);
    uint8_t *raw;
    int64_t count = 1, i;
    char expected[64];
    swl_status st;

    if (!t)
        return missing(ld, name);
    for (i = 0; i < t->n_dims; i++)
        count *= t->shape[i];
    if (count != n || swl_wtype_plain(t->dtype) == SWL_W_NONE) {
        snprintf(expected, sizeof expected, "%" PRId64 " F32, F16 or BF16 values", n);
        return wrong_shape(ld, t, expected);
    }
    *out = (float *)(void *)take(ld, (uint64_t)n * sizeof(float));
    if (ld->measure)
        return SWL_OK;
    raw = swl_calloc(t->size, 1);
    if (!raw)
        return swl_fail(ld->err, SWL_E_NOMEM, "out of memory for tensor %s", name);
    st = read_tensor(ld, t, raw);
    if (!st)
        swl_dtype_to_f32(t->dtype, raw, *out, n);
    swl_free(raw);
    for (i = 0; !st && add != 0.0f && i < n; i++)
        (*out)[i] += add;
    return st;
}

/* Norms that the Hugging Face layout stores as an offset from one. */
static swl_status load_norm(loader *ld, const char *name, int64_t n, float **out)
{
    return load_vector(ld, name, n, ld->ck->norms_hold_one_plus_w ? 0.0f : 1.0f, out);
}

static bool has_shape(const swl_st_tensor *t, int64_t rows, int64_t cols)
{
    return (t->n_dims == 2 && t->shape[0] == rows && (cols < 0 || t->shape[1] == cols)) ||
           (t->n_dims == 1 && rows == 1 && (cols < 0 || t->shape[0] == cols));
}

static swl_status load_part(loader *ld, const swl_st_tensor *t, const uint8_t **out)
{
    uint8_t *p = take(ld, t->size);

    *out = p;
    return ld->measure ? SWL_OK : read_tensor(ld, t, p);
}

/* Scales without biases. */
static swl_status load_codebook(loader *ld, const swl_st_tensor *t, const swl_st_tensor *s, int32_t rows, int32_t cols,
                                swl_matrix *m)
{
    swl_wtype type = SWL_W_NONE;
    int32_t group = 0;
    swl_status st;

    if ((t->dtype == SWL_DT_U32 || t->dtype == SWL_DT_I32) && has_shape(t, rows, -1) && has_shape(s, rows, -1))
        type = swl_codebook_from_shapes(s->dtype, t->shape[t->n_dims - 1], s->shape[s->n_dims - 1], cols, &group);
    if (type == SWL_W_NONE)
        return swl_fail_at(ld->err, SWL_E_UNSUPPORTED, swl_st_path(ld->ck->dense, t->file), -1,
                           "tensor \"%s\" has scales (%s) but no biases, and its shape is not that of mxfp4, mxfp8, nvfp4 "
                           "or non-linear 4-bit weights",
                           t->name, swl_dtype_name(s->dtype));
    *m = (swl_matrix){.type = type, .sdtype = swl_codebook_sdtype(type, s->dtype), .rows = rows, .cols = cols};
    m->group = group;
    st = load_part(ld, t, &m->data);
    return st ? st : load_part(ld, s, &m->scales);
}

static swl_status load_affine(loader *ld, const swl_st_tensor *t, const swl_st_tensor *s, const swl_st_tensor *b,
                              int32_t rows, int32_t cols, swl_matrix *m)
{
    int32_t bits, group;
    char expected[128];
    swl_status st;

    if (!b)
        return load_codebook(ld, t, s, rows, cols, m);
    if ((t->dtype != SWL_DT_U32 && t->dtype != SWL_DT_I32) || !has_shape(t, rows, -1) || !has_shape(s, rows, -1) ||
        !swl_affine_from_shapes(t->shape[t->n_dims - 1], s->shape[s->n_dims - 1], cols, &bits, &group)) {
        snprintf(expected, sizeof expected, "U32 words of a [%d, %d] matrix with 2, 3, 4, 5, 6 or 8 bits", rows, cols);
        return wrong_shape(ld, t, expected);
    }
    if (!has_shape(s, rows, cols / group) || swl_wtype_plain(s->dtype) == SWL_W_NONE) {
        snprintf(expected, sizeof expected, "F32, F16 or BF16 [%d, %d]", rows, cols / group);
        return wrong_shape(ld, s, expected);
    }
    if (!has_shape(b, rows, cols / group) || b->dtype != s->dtype) {
        snprintf(expected, sizeof expected, "%s [%d, %d] like the scales", swl_dtype_name(s->dtype), rows, cols / group);
        return wrong_shape(ld, b, expected);
    }
    *m = (swl_matrix){.type = swl_wtype_affine(bits), .sdtype = s->dtype, .rows = rows, .cols = cols, .group = group};
    st = load_part(ld, t, &m->data);
    if (!st)
        st = load_part(ld, s, &m->scales);
    if (!st)
        st = load_part(ld, b, &m->biases);
    return st;
}

/* MODULE.weight [rows][cols], quantised iff MODULE.scales is there. */
static swl_status load_matrix(loader *ld, const char *module, int32_t rows, int32_t cols, swl_matrix *m)
{
    const swl_st_tensor *t, *s, *b;
    char name[256], expected[96];

    snprintf(name, sizeof name, "%s.weight", module);
    t = swl_checkpoint_find(ld->ck, name);
    if (!t)
        return missing(ld, name);
    snprintf(name, sizeof name, "%s.scales", module);
    s = swl_checkpoint_find(ld->ck, name);
    if (s) {
        snprintf(name, sizeof name, "%s.biases", module);
        b = swl_checkpoint_find(ld->ck, name);
        return load_affine(ld, t, s, b, rows, cols, m);
    }
    if (!has_shape(t, rows, cols) || swl_wtype_plain(t->dtype) == SWL_W_NONE) {
        snprintf(expected, sizeof expected, "F32, F16 or BF16 [%d, %d]", rows, cols);
        return wrong_shape(ld, t, expected);
    }
    *m = (swl_matrix){.type = swl_wtype_plain(t->dtype), .rows = rows, .cols = cols};
    return load_part(ld, t, &m->data);
}

/* ---- groups --------------------------------------------------------------------------------------------------------- */

/* Pieces are kept from the first pass; the second only fills in where the data is. */
static swl_status group_init(loader *ld, swl_group *g, int32_t n_pieces)
{
    if (!ld->measure)
        return SWL_OK;
    g->pieces = swl_calloc((size_t)n_pieces, sizeof *g->pieces);
    return g->pieces ? SWL_OK : swl_fail(ld->err, SWL_E_NOMEM, "out of memory for a list of matrices");
}

static void add_piece(swl_group *g, int32_t *at, const swl_matrix *w, int32_t row0, int32_t n_rows,
                      int32_t dst, bool float_act)
{
    g->pieces[(*at)++] = (swl_piece){*w, row0, n_rows, dst, float_act};
    g->n_pieces = *at;
    if (dst + n_rows > g->width)
        g->width = dst + n_rows;
}

static swl_status add_matrix(loader *ld, swl_group *g, int32_t *at, const char *module, int32_t rows, int32_t cols,
                             int32_t dst, bool float_act)
{
    swl_matrix m = {0};
    swl_status st = load_matrix(ld, module, rows, cols, &m);

    if (!st)
        add_piece(g, at, &m, 0, rows, dst, float_act);
    return st;
}

/* Cuts the pieces into jobs; after the first pass. */
static swl_status group_cut(swl_group *g, int32_t n_workers, swl_error *err)
{
    int32_t step = swl_job_rows(g->width, n_workers, 16), i, row, n = 0;

    for (i = 0; i < g->n_pieces; i++)
        n += (g->pieces[i].n_rows + step - 1) / step;
    g->jobs = swl_calloc((size_t)n, sizeof *g->jobs);
    if (!g->jobs)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a list of jobs");
    for (i = 0; i < g->n_pieces; i++)
        for (row = 0; row < g->pieces[i].n_rows; row += step) {
            int32_t left = g->pieces[i].n_rows - row;

            g->jobs[g->n_jobs++] = (swl_group_job){i, row, left < step ? left : step};
        }
    return SWL_OK;
}

static swl_status single(loader *ld, swl_group *g, const char *module, int32_t rows, int32_t cols)
{
    int32_t at = 0;
    swl_status st = group_init(ld, g, 1);

    return st ? st : add_matrix(ld, g, &at, module, rows, cols, 0, false);
}

/* ---- layers --------------------------------------------------------------------------------------------------------- */

typedef char layer_name[160];

static const char *name_of(layer_name buf, int32_t layer, const char *rest)
{
    snprintf(buf, sizeof(layer_name), "model.layers.%d.%s", layer, rest);
    return buf;
}

/*
 * Qwen3-Next stores its projections grouped by key head: in_proj_qkvz has for each key head the rows q (dk), k (dk),
 * v (r dv), z (r dv), and in_proj_ba b (r), a (r). The pieces sort them into Q | K | V | Z | b | a as they are computed.
 */
static swl_status load_grouped_in(loader *ld, int32_t i, swl_group *g)
{
    const swl_config *c = ld->c;
    int32_t nk = c->n_k_heads, dk = c->k_dim, dv = c->v_dim, r = c->n_v_heads / nk, at = 0, h;
    int32_t key = nk * dk, value = c->n_v_heads * dv, block = 2 * dk + 2 * r * dv, gates = 2 * key + 2 * value;
    swl_matrix qkvz = {0}, ba = {0};
    layer_name buf;
    swl_status st = group_init(ld, g, 6 * nk);

    if (!st)
        st = load_matrix(ld, name_of(buf, i, "linear_attn.in_proj_qkvz"), 2 * key + 2 * value, c->hidden, &qkvz);
    if (!st)
        st = load_matrix(ld, name_of(buf, i, "linear_attn.in_proj_ba"), 2 * c->n_v_heads, c->hidden, &ba);
    for (h = 0; h < nk && !st; h++) {
        add_piece(g, &at, &qkvz, h * block, dk, h * dk, false);
        add_piece(g, &at, &qkvz, h * block + dk, dk, key + h * dk, false);
        add_piece(g, &at, &qkvz, h * block + 2 * dk, r * dv, 2 * key + h * r * dv, false);
        add_piece(g, &at, &qkvz, h * block + 2 * dk + r * dv, r * dv, 2 * key + value + h * r * dv, false);
        add_piece(g, &at, &ba, h * 2 * r, r, gates + h * r, false);
        add_piece(g, &at, &ba, h * 2 * r + r, r, gates + c->n_v_heads + h * r, false);
    }
    return st;
}

static swl_status load_split_in(loader *ld, int32_t i, swl_group *g)
{
    const swl_config *c = ld->c;
    int32_t channels = swl_conv_channels(c), value = c->n_v_heads * c->v_dim, at = 0, H = c->hidden;
    layer_name buf;
    swl_status st = group_init(ld, g, 4);

    if (!st)
        st = add_matrix(ld, g, &at, name_of(buf, i, "linear_attn.in_proj_qkv"), channels, H, 0, false);
    if (!st)
        st = add_matrix(ld, g, &at, name_of(buf, i, "linear_attn.in_proj_z"), value, H, channels, false);
    if (!st)
        st = add_matrix(ld, g, &at, name_of(buf, i, "linear_attn.in_proj_b"), c->n_v_heads, H, channels + value, false);
    if (!st)
        st = add_matrix(ld, g, &at, name_of(buf, i, "linear_attn.in_proj_a"), c->n_v_heads, H,
                        channels + value + c->n_v_heads, false);
    return st;
}

/* [channels][width] in every layout; transposed so that the channels of a tap lie side by side. */
static swl_status load_conv(loader *ld, int32_t i, float **out)
{
    int32_t channels = swl_conv_channels(ld->c), width = ld->c->conv_width, ch, j;
    int64_t n = (int64_t)channels * width;
    layer_name buf;
    float *tmp;
    swl_status st = load_vector(ld, name_of(buf, i, "linear_attn.conv1d.weight"), n, 0.0f, out);

    if (st || ld->measure)
        return st;
    tmp = swl_calloc((size_t)n, sizeof *tmp);
    if (!tmp)
        return swl_fail(ld->err, SWL_E_NOMEM, "out of memory for convolution taps");
    memcpy(tmp, *out, (size_t)n * sizeof *tmp);
    for (ch = 0; ch < channels; ch++)
        for (j = 0; j < width; j++)
            (*out)[(int64_t)j * channels + ch] = tmp[(int64_t)ch * width + j];
    swl_free(tmp);
    return SWL_OK;
}

static swl_status load_deltanet(loader *ld, int32_t i, swl_layer *l)
{
    const swl_config *c = ld->c;
    layer_name buf;
    int32_t j;
    swl_status st;

    if (swl_checkpoint_find(ld->ck, name_of(buf, i, "linear_attn.in_proj_qkvz.weight")))
        st = load_grouped_in(ld, i, &l->in);
    else
        st = load_split_in(ld, i, &l->in);
    if (!st)
        st = load_conv(ld, i, &l->conv);
    if (!st)
        st = load_vector(ld, name_of(buf, i, "linear_attn.A_log"), c->n_v_heads, 0.0f, &l->neg_exp_a);
    for (j = 0; !st && !ld->measure && j < c->n_v_heads; j++)
        l->neg_exp_a[j] = (float)-exp((double)l->neg_exp_a[j]);
    if (!st)
        st = load_vector(ld, name_of(buf, i, "linear_attn.dt_bias"), c->n_v_heads, 0.0f, &l->dt_bias);
    if (!st)
        st = load_vector(ld, name_of(buf, i, "linear_attn.norm.weight"), c->v_dim, 0.0f, &l->norm_gated);
    if (!st)
        st = single(ld, &l->out, name_of(buf, i, "linear_attn.out_proj"), c->hidden, c->n_v_heads * c->v_dim);
    return st;
}

static swl_status load_attention(loader *ld, int32_t i, swl_layer *l)
{
    const swl_config *c = ld->c;
    int32_t q = 2 * c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, at = 0;
    layer_name buf;
    swl_status st = group_init(ld, &l->in, 3);

    if (!st)
        st = add_matrix(ld, &l->in, &at, name_of(buf, i, "self_attn.q_proj"), q, c->hidden, 0, false);
    if (!st)
        st = add_matrix(ld, &l->in, &at, name_of(buf, i, "self_attn.k_proj"), kv, c->hidden, q, false);
    if (!st)
        st = add_matrix(ld, &l->in, &at, name_of(buf, i, "self_attn.v_proj"), kv, c->hidden, q + kv, false);
    if (!st)
        st = load_norm(ld, name_of(buf, i, "self_attn.q_norm.weight"), c->head_dim, &l->norm_q);
    if (!st)
        st = load_norm(ld, name_of(buf, i, "self_attn.k_norm.weight"), c->head_dim, &l->norm_k);
    if (!st)
        st = single(ld, &l->out, name_of(buf, i, "self_attn.o_proj"), c->hidden, c->n_heads * c->head_dim);
    return st;
}

static swl_status load_ffn(loader *ld, int32_t i, const char *module, int32_t width, swl_ffn_weights *f)
{
    char rest[64];
    layer_name buf;
    swl_status st;

    snprintf(rest, sizeof rest, "%s.gate_proj", module);
    st = load_matrix(ld, name_of(buf, i, rest), width, ld->c->hidden, &f->gate);
    snprintf(rest, sizeof rest, "%s.up_proj", module);
    if (!st)
        st = load_matrix(ld, name_of(buf, i, rest), width, ld->c->hidden, &f->up);
    snprintf(rest, sizeof rest, "%s.down_proj", module);
    if (!st)
        st = load_matrix(ld, name_of(buf, i, rest), ld->c->hidden, width, &f->down);
    return st;
}

static swl_status load_moe(loader *ld, int32_t i, swl_layer *l)
{
    const swl_config *c = ld->c;
    int32_t at = 0;
    layer_name buf;
    swl_status st = group_init(ld, &l->router, 2);

    if (!st)
        st = add_matrix(ld, &l->router, &at, name_of(buf, i, "mlp.gate"), c->n_experts, c->hidden, 0, true);
    if (!st)
        st = add_matrix(ld, &l->router, &at, name_of(buf, i, "mlp.shared_expert_gate"), 1, c->hidden, c->n_experts, true);
    return st ? st : load_ffn(ld, i, "mlp.shared_expert", c->shared_width, &l->ffn);
}

static swl_status load_layer(loader *ld, int32_t i, swl_layer *l)
{
    layer_name buf;
    swl_status st = load_norm(ld, name_of(buf, i, "input_layernorm.weight"), ld->c->hidden, &l->norm_in);

    if (!st)
        st = load_norm(ld, name_of(buf, i, "post_attention_layernorm.weight"), ld->c->hidden, &l->norm_post);
    if (!st)
        st = l->plan.mixer == SWL_MIXER_ATTENTION ? load_attention(ld, i, l) : load_deltanet(ld, i, l);
    if (!st)
        st = l->plan.ffn == SWL_FFN_MOE ? load_moe(ld, i, l) : load_ffn(ld, i, "mlp", ld->c->intermediate, &l->ffn);
    return st;
}

static swl_status load_head(loader *ld)
{
    const swl_config *c = ld->c;
    swl_weights *w = ld->w;
    int32_t at = 0;
    swl_status st;

    if (swl_checkpoint_find(ld->ck, "lm_head.weight"))
        return single(ld, &w->head, "lm_head", c->vocab, c->hidden);
    if (!c->tied)
        return missing(ld, "lm_head.weight");
    st = group_init(ld, &w->head, 1);
    if (!st)
        add_piece(&w->head, &at, &w->embed, 0, c->vocab, 0, false);
    return st;
}

static swl_status load_all(loader *ld)
{
    int32_t i;
    swl_status st = load_matrix(ld, "model.embed_tokens", ld->c->vocab, ld->c->hidden, &ld->w->embed);

    for (i = 0; i < ld->c->n_layers && !st; i++)
        st = load_layer(ld, i, &ld->w->layers[i]);
    if (!st)
        st = load_norm(ld, "model.norm.weight", ld->c->hidden, &ld->w->norm_final);
    return st ? st : load_head(ld);
}

/* ---- rotation ------------------------------------------------------------------------------------------------------- */

/* Frequencies theta^(-2i/d); with YaRN (Peng et al. 2023, section 3.2, NTK-by-parts) those of long wavelength are
 * divided by the factor, and cos and sin are scaled (section 3.4). */
static swl_status rope_init(swl_weights *w, const swl_config *c, swl_error *err)
{
    int32_t half = c->rotary_dims / 2, i;
    double d = c->rotary_dims, lo = 0, hi = 0, s = c->yarn_factor, n = c->yarn_ctx_original;

    w->rope_freq = swl_calloc((size_t)half, sizeof *w->rope_freq);
    if (!w->rope_freq)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for rotation frequencies");
    w->rope_scale = 1.0f;
    if (c->yarn) {
        lo = floor(d * log(n / (2.0 * M_PI * c->yarn_beta_fast)) / (2.0 * log(c->rope_theta)));
        hi = ceil(d * log(n / (2.0 * M_PI * c->yarn_beta_slow)) / (2.0 * log(c->rope_theta)));
        lo = lo > 0 ? lo : 0;
        hi = hi < d - 1 ? hi : d - 1;
        if (lo == hi)
            hi += 0.001;
        w->rope_scale = (float)(c->yarn_attention_factor > 0 ? c->yarn_attention_factor : s > 1 ? 0.1 * log(s) + 1 : 1);
    }
    for (i = 0; i < half; i++) {
        double f = pow(c->rope_theta, -2.0 * i / d), ramp = c->yarn ? (i - lo) / (hi - lo) : 0;

        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        w->rope_freq[i] = (float)(c->yarn ? f / s * ramp + f * (1 - ramp) : f);
    }
    return SWL_OK;
}

/* ---- open and close ------------------------------------------------------------------------------------------------- */

static swl_status cut_all(swl_weights *w, const swl_config *c, int32_t n_workers, swl_error *err)
{
    swl_status st = group_cut(&w->head, n_workers, err);
    int32_t i;

    for (i = 0; i < c->n_layers && !st; i++) {
        st = group_cut(&w->layers[i].in, n_workers, err);
        if (!st)
            st = group_cut(&w->layers[i].out, n_workers, err);
        if (!st)
            st = group_cut(&w->layers[i].router, n_workers, err);
    }
    return st;
}

static void plan_layers(swl_weights *w, const swl_config *c)
{
    int32_t i;

    for (i = 0; i < c->n_layers; i++) {
        swl_layer *l = &w->layers[i];

        l->plan = c->layers[i];
        l->mixer_index = l->plan.mixer == SWL_MIXER_ATTENTION ? w->n_attention++ : w->n_deltanet++;
        w->n_moe += l->plan.ffn == SWL_FFN_MOE;
    }
}

swl_status swl_weights_measure(const swl_checkpoint *ck, uint64_t *bytes, swl_error *err)
{
    swl_weights w = {0};
    loader ld = {.ck = ck, .c = &ck->config, .w = &w, .err = err, .measure = true};
    swl_status st = SWL_OK;

    w.layers = swl_calloc((size_t)ck->config.n_layers, sizeof *w.layers);
    if (!w.layers)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the layers");
    plan_layers(&w, &ck->config);
    st = load_all(&ld);
    *bytes = w.arena_used;
    swl_weights_free(&w, ck->config.n_layers);
    return st;
}

swl_status swl_weights_load(swl_weights *w, const swl_checkpoint *ck, int32_t n_workers, swl_error *err)
{
    loader ld = {.ck = ck, .c = &ck->config, .w = w, .err = err, .measure = true};
    swl_status st;

    memset(w, 0, sizeof *w);
    w->layers = swl_calloc((size_t)ck->config.n_layers, sizeof *w->layers);
    if (!w->layers)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the layers");
    plan_layers(w, &ck->config);
    st = rope_init(w, &ck->config, err);
    if (!st)
        st = load_all(&ld);
    if (!st) {
        w->arena_bytes = w->arena_used;
        w->arena_used = 0;
        ld.measure = false;
        w->arena = swl_big_alloc(w->arena_bytes);
        if (!w->arena)
            st = swl_fail(err, SWL_E_NOMEM, "out of memory for %" PRIu64 " bytes of weights", w->arena_bytes);
    }
    if (!st)
        st = load_all(&ld);
    if (!st)
        st = cut_all(w, &ck->config, n_workers, err);
    assert(st || w->arena_used == w->arena_bytes);
    return st;
}

static void group_free(swl_group *g)
{
    swl_free(g->pieces);
    swl_free(g->jobs);
}

void swl_weights_free(swl_weights *w, int32_t n_layers)
{
    int32_t i;

    for (i = 0; w->layers && i < n_layers; i++) {
        group_free(&w->layers[i].in);
        group_free(&w->layers[i].out);
        group_free(&w->layers[i].router);
    }
    group_free(&w->head);
    swl_free(w->layers);
    swl_free(w->rope_freq);
    swl_big_free(w->arena, w->arena_bytes);
    memset(w, 0, sizeof *w);
}
