/*
 * gguf_source.c: the tensors of a GGUF file under the names, shapes and conventions of an MLX checkpoint. Every result
 * is a list of rows of one tensor of the file, in some order:
 *
 *   experts' gate and up in one tensor, and b and a of Qwen3-Next    rows in blocks with others between them
 *   value heads of Qwen3.5 and later                                 rows in the order j*n_k + k, wanted k*r + j; of
 *                                                                    out_proj the columns
 *
 * Quantised rows become packed codes, scales and biases (format/gguf_blocks.h); each part is made from the file's bytes
 * when it is asked for, so nothing is held. Norms hold 1 + w already; ssm_a is -exp(A_log).
 */
#include "install/gguf_source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "format/checkpoint_parts.h"
#include "format/gguf_blocks.h"

#define READ_BYTES (UINT64_C(1) << 20) /* of the file at a time, at least one row */

/* One tensor of the result. */
typedef struct made {
    char *name;
    const swl_gguf_tensor *t;
    const swl_gguf_form *form; /* NULL: plain numbers */
    int part;
    swl_dtype dtype;
    int32_t n_dims;
    int64_t shape[3];
    int64_t cols, rows;                 /* elements of a row of the file; rows of the result */
    int64_t block, stride, first;       /* row i is row i / block * stride + first + i % block of the file */
    int64_t head_begin, head_rows;      /* rows from head_begin on are value heads, tiled in the file; 0: none are */
    int64_t head_cols;                  /* columns are value heads; 0: they are not */
    bool neg_log;                       /* -exp(x) in the file, x wanted */
} made;

typedef struct source {
    swl_gguf *g;
    swl_checkpoint *c;
    made *list; /* sorted by name, as the tensors of the set are */
    int32_t n, n_max;
    int64_t n_k, r; /* key heads; value heads per key head */
    bool tiled, exact_scales;
    int32_t n_layers;
} source;

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

/* Where head k*r + j lies. */
static int64_t tiled_head(const source *s, int64_t head)
{
    return head % s->r * s->n_k + head / s->r;
}

static int64_t file_row(const source *s, const made *m, int64_t i)
{
    if (m->head_rows && i >= m->head_begin) {
        int64_t k = i - m->head_begin;

        i = m->head_begin + tiled_head(s, k / m->head_rows) * m->head_rows + k % m->head_rows;
    }
    return i / m->block * m->stride + m->first + i % m->block;
}

static uint64_t file_row_bytes(const made *m)
{
    return (uint64_t)(m->cols / m->t->type->block * m->t->type->bytes);
}

static uint64_t row_bytes(const made *m)
{
    return (uint64_t)(m->form ? m->shape[m->n_dims - 1] : m->cols) * (uint64_t)swl_dtype_size(m->dtype);
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

typedef struct read_state {
    source *s;
    const made *m;
    uint8_t *in;          /* rows of the file */
    uint8_t *line, *line2; /* a row of the result, and one whose heads are put in order */
    swl_error *err;
} read_state;

static swl_status undo_exp(const read_state *r, uint8_t *row, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 4) {
        float f;

        memcpy(&f, row + i, 4);
        if (!(f < 0))
            return swl_fail(r->err, SWL_E_CORRUPT, "tensor %s holds %g, expected negative numbers", r->m->t->name,
                            (double)f);
        f = (float)log(-(double)f);
        memcpy(row + i, &f, 4);
    }
    return SWL_OK;
}

/* One row of the file as one of the result. */
static swl_status make_row(const read_state *r, const uint8_t *in, uint8_t *out)
{
    const made *m = r->m;
    uint64_t n = row_bytes(m), head;
    uint8_t *to = m->head_cols ? r->line2 : out;

    if (!m->form)
        memcpy(to, in, n);
    else if (!swl_gguf_convert(m->form, m->t->type, m->dtype, m->part, in, m->cols / m->t->type->block, to))
        return swl_fail(r->err, SWL_E_UNSUPPORTED, "tensor %s (%s) has a scale that is not a finite float16", m->t->name,
                        m->t->type->name);
    if (m->head_cols) {
        head = n * (uint64_t)m->head_cols / (uint64_t)m->cols;
        for (uint64_t h = 0; h < n / head; h++)
            memcpy(out + h * head, to + (uint64_t)tiled_head(r->s, (int64_t)h) * head, head);
    }
    return m->neg_log ? undo_exp(r, out, n) : SWL_OK;
}

/* Rows from `row` on that follow each other in the file too, at most n, as many as fit the buffer. */
static int64_t run_length(const read_state *r, int64_t row, int64_t n)
{
    int64_t most = (int64_t)(READ_BYTES / file_row_bytes(r->m)), k = 1, first = file_row(r->s, r->m, row);

    while (k < n && k < most && file_row(r->s, r->m, row + k) == first + k)
        k++;
    return k;
}

/* Bytes [begin, begin + n) of the result. */
static swl_status read_rows(read_state *r, uint64_t begin, uint8_t *dst, uint64_t n)
{
    uint64_t bytes = row_bytes(r->m), in_bytes = file_row_bytes(r->m), end = begin + n;
    int64_t row = (int64_t)(begin / bytes), last = (int64_t)((end + bytes - 1) / bytes);
    swl_status st = SWL_OK;

    while (row < last && !st) {
        int64_t k = run_length(r, row, last - row);

        st = swl_gguf_read(r->s->g, r->m->t, (uint64_t)file_row(r->s, r->m, row) * in_bytes, r->in,
                           (uint64_t)k * in_bytes, r->err);
        for (int64_t i = 0; i < k && !st; i++, row++) {
            uint64_t at = (uint64_t)row * bytes, from = at < begin ? begin - at : 0;
            uint64_t to = at + bytes > end ? end - at : bytes;
            bool whole = from == 0 && to == bytes;

            st = make_row(r, r->in + (uint64_t)i * in_bytes, whole ? dst + (at - begin) : r->line);
            if (!st && !whole)
                memcpy(dst + (at + from - begin), r->line + from, to - from);
        }
    }
    return st;
}

static swl_status read_made(void *arg, const swl_st_tensor *t, uint64_t begin, void *dst, uint64_t n, swl_error *err)
{
    source *s = arg;
    const made *m = &s->list[t - swl_st_at(s->c->dense, 0)];
    uint64_t in = file_row_bytes(m) > READ_BYTES ? file_row_bytes(m) : READ_BYTES, out = row_bytes(m);
    read_state r = {.s = s, .m = m, .err = err};
    swl_status st;

    if (!n)
        return SWL_OK;
    r.in = swl_calloc(in + 2 * out, 1);
    if (!r.in)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for rows of %s", t->name);
    r.line = r.in + in;
    r.line2 = r.line + out;
    st = read_rows(&r, begin, dst, n);
    swl_free(r.in);
    return st;
}

/* ---- in the file's order ---------------------------------------------------------------------------------------------- */

swl_gguf_run swl_gguf_run_at(const swl_checkpoint *c, const swl_st_tensor *t, int64_t row, int64_t n)
{
    const source *s = c->source;
    const made *m = &s->list[t - swl_st_at(c->dense, 0)];
    int64_t first = file_row(s, m, row);
    swl_gguf_run r = {.file = m->t->file, .file_row = file_row_bytes(m), .row = row_bytes(m), .n = 1};

    r.begin = m->t->offset + (uint64_t)first * r.file_row;
    while (r.n < n && file_row(s, m, row + r.n) == first + r.n)
        r.n++;
    return r;
}

void swl_gguf_checkpoint_window(const swl_checkpoint *c, int32_t file, uint64_t begin, const void *data, uint64_t n)
{
    const source *s = c->source;

    swl_gguf_window(s->g, file, begin, data, n);
}

/* ---- the list -------------------------------------------------------------------------------------------------------- */

static swl_status no_memory(const source *s, swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for the tensors of %s", swl_gguf_path(s->g, 0));
}

/* Takes over m->name, which may be NULL. */
static swl_status keep(source *s, const made *m, swl_error *err)
{
    if (s->n == s->n_max) {
        int32_t n = s->n_max ? 2 * s->n_max : 256;
        made *p = swl_realloc(s->list, (size_t)n, sizeof *p);

        if (p) {
            s->list = p;
            s->n_max = n;
        }
    }
    if (!m->name || s->n == s->n_max) {
        swl_free(m->name);
        return no_memory(s, err);
    }
    s->list[s->n++] = *m;
    return SWL_OK;
}

static swl_status refuse_type(const source *s, const swl_gguf_tensor *t, swl_error *err)
{
    const char *path = swl_gguf_path(s->g, t->file);

    if (t->type)
        return swl_fail_at(err, SWL_E_UNSUPPORTED, path, (int64_t)t->offset, "%s: tensor %s is %s, which is not converted",
                           path, t->name, t->type->name);
    return swl_fail_at(err, SWL_E_UNSUPPORTED, path, (int64_t)t->offset,
                       "%s: tensor %s is of type number %" PRIu32 ", which is not known", path, t->name, t->type_id);
}

/* A matrix, stacked or not: its weight and, when it is quantised, scales and biases. `m` has all but name, form, part and
 * the last dimension. */
static swl_status keep_matrix(source *s, const char *base, made m, swl_error *err)
{
    swl_dtype plain = swl_gguf_plain(m.t->type);
    int n_parts;
    swl_status st = SWL_OK;

    m.form = swl_gguf_form_get(m.t->type);
    if (!m.form && !plain)
        return refuse_type(s, m.t, err);
    if (m.form && m.head_cols % m.form->group)
        return swl_fail(err, SWL_E_UNSUPPORTED,
                        "tensor %s: heads of %" PRId64 " columns cannot be put in order in groups of %" PRId32, m.t->name,
                        m.head_cols, m.form->group);
    n_parts = !m.form ? 1 : swl_wtype_get(m.form->type)->book ? 2 : 3;
    for (m.part = 0; m.part < n_parts && !st; m.part++) {
        m.dtype = !m.form                                              ? plain
                  : !m.part                                            ? SWL_DT_U32
                  : m.form->product && s->exact_scales ? SWL_DT_F32
                                                                       : m.form->sdtype;
        m.shape[m.n_dims - 1] = !m.form  ? m.cols
                                : m.part ? m.cols / m.form->group
                                         : m.cols * swl_wtype_get(m.form->type)->bits / 32;
        m.name = swl_asprintf("%s.%s", base, swl_part_names[m.part]);
        st = keep(s, &m, err);
    }
    return st;
}

/* ---- names ------------------------------------------------------------------------------------------------------------ */

typedef enum kind {
    MATRIX, VECTOR, EXPERTS,
    ROW,        /* a vector that is a matrix of one row */
    QKV,        /* rows from the end of q and k on are value heads */
    V_ROWS,     /* all rows are */
    V_ONE,      /* one row, or number, per value head */
    V_COLS,     /* the columns are */
    CONV, A_LOG,
    GATE_UP,    /* two projections of every expert in one tensor */
    BETA_ALPHA  /* b and a of every key head in turn */
} kind;

typedef struct rule {
    const char *gguf, *mlx;
    kind k;
} rule;

/* clang-format off */
static const rule layer_rules[] = {
    {"attn_norm.weight", "input_layernorm.weight", VECTOR},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", VECTOR},
    {"attn_q.weight", "self_attn.q_proj", MATRIX},      {"attn_k.weight", "self_attn.k_proj", MATRIX},
    {"attn_v.weight", "self_attn.v_proj", MATRIX},      {"attn_output.weight", "self_attn.o_proj", MATRIX},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", VECTOR},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", VECTOR},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv", QKV}, {"attn_gate.weight", "linear_attn.in_proj_z", V_ROWS},
    {"ssm_beta.weight", "linear_attn.in_proj_b", V_ONE}, {"ssm_alpha.weight", "linear_attn.in_proj_a", V_ONE},
    {"ssm_ba.weight", NULL, BETA_ALPHA},                 {"ssm_in.weight", "linear_attn.in_proj_qkvz", MATRIX},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", CONV},
    {"ssm_a", "linear_attn.A_log", A_LOG},               {"ssm_dt.bias", "linear_attn.dt_bias", V_ONE},
    {"ssm_norm.weight", "linear_attn.norm.weight", VECTOR},
    {"ssm_out.weight", "linear_attn.out_proj", V_COLS},
    {"ffn_gate_inp.weight", "mlp.gate", MATRIX},         {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate", ROW},
    {"ffn_gate_exps.weight", "mlp.switch_mlp.gate_proj", EXPERTS},
    {"ffn_up_exps.weight", "mlp.switch_mlp.up_proj", EXPERTS},
    {"ffn_down_exps.weight", "mlp.switch_mlp.down_proj", EXPERTS},
    {"ffn_gate_up_exps.weight", NULL, GATE_UP},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj", MATRIX},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj", MATRIX},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj", MATRIX},
    {"ffn_gate.weight", "mlp.gate_proj", MATRIX},        {"ffn_up.weight", "mlp.up_proj", MATRIX},
    {"ffn_down.weight", "mlp.down_proj", MATRIX},
};
static const rule draft_rules[] = {
    {"nextn.eh_proj.weight", "mtp.fc", MATRIX},
    {"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", VECTOR},
    {"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", VECTOR},
    {"nextn.shared_head_norm.weight", "mtp.norm.weight", VECTOR},
};
static const rule model_rules[] = {
    {"token_embd.weight", "model.embed_tokens", MATRIX}, {"output.weight", "lm_head", MATRIX},
    {"output_norm.weight", "model.norm.weight", VECTOR},
};
/* clang-format on */

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const rule *find_rule(const rule *rules, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(rules[i].gguf, name))
            return &rules[i];
    return NULL;
}

static swl_status wrong_dims(const source *s, const swl_gguf_tensor *t, const char *want, swl_error *err)
{
    const char *path = swl_gguf_path(s->g, t->file);

    return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                       "%s: tensor %s is [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], expected %s", path, t->name,
                       t->dims[0], t->dims[1], t->dims[2], t->dims[3], want);
}

/* Value heads come in the file's order; rows per head from the number of rows. */
static swl_status order_rows(const source *s, made *m, int64_t begin, swl_error *err)
{
    int64_t heads = s->n_k * s->r, rows = m->rows - begin;

    if (!s->tiled || s->r == 1)
        return SWL_OK;
    if (rows <= 0 || rows % heads)
        return wrong_dims(s, m->t, "rows for every value head", err);
    m->head_begin = begin;
    m->head_rows = rows / heads;
    return SWL_OK;
}

static swl_status keep_vector(source *s, const char *name, made m, swl_error *err)
{
    m.dtype = swl_gguf_plain(m.t->type);
    if (!m.dtype || (m.neg_log && m.dtype != SWL_DT_F32))
        return refuse_type(s, m.t, err);
    m.name = swl_strdup(name);
    return keep(s, &m, err);
}

/* A vector of the file as so many numbers of one row each, so that they can change places. */
static made numbers(const swl_gguf_tensor *t)
{
    made m = {.t = t, .n_dims = 2, .cols = 1, .rows = t->dims[0], .block = t->dims[0], .stride = t->dims[0]};

    m.shape[0] = t->dims[0];
    m.shape[1] = 1;
    return m;
}

static swl_status keep_numbers(source *s, const char *name, const swl_gguf_tensor *t, bool neg_log, swl_error *err)
{
    made m = numbers(t);
    swl_status st;

    if (t->n_dims != 1)
        return wrong_dims(s, t, "one dimension", err);
    m.neg_log = neg_log;
    st = order_rows(s, &m, 0, err);
    return st ? st : keep_vector(s, name, m, err);
}

static swl_status keep_conv(source *s, const char *name, made m, swl_error *err)
{
    const swl_config *g = &s->c->config;
    swl_status st = order_rows(s, &m, 2 * (int64_t)g->n_k_heads * g->k_dim, err);

    m.n_dims = 3;
    m.shape[1] = m.cols;
    m.shape[2] = 1;
    m.dtype = swl_gguf_plain(m.t->type);
    if (!st && !m.dtype)
        return refuse_type(s, m.t, err);
    m.name = st ? NULL : swl_strdup(name);
    return st ? st : keep(s, &m, err);
}

/* Rows `first` to first + block of every stride of the file. */
static made every(made m, int64_t block, int64_t stride, int64_t first)
{
    m.rows = m.rows / stride * block;
    m.block = block;
    m.stride = stride;
    m.first = first;
    return m;
}

static swl_status keep_gate_up(source *s, const char *base, made m, swl_error *err)
{
    static const char *const names[] = {"gate_proj", "up_proj"};
    int64_t width = m.t->dims[1] / 2;
    char name[160];
    swl_status st = width && m.t->dims[1] % 2 == 0 ? SWL_OK : wrong_dims(s, m.t, "an even number of rows", err);

    m.shape[1] = width;
    for (int i = 0; i < 2 && !st; i++) {
        snprintf(name, sizeof name, "%smlp.switch_mlp.%s", base, names[i]);
        st = keep_matrix(s, name, every(m, width, 2 * width, i * width), err);
    }
    return st;
}

static swl_status keep_beta_alpha(source *s, const char *base, made m, swl_error *err)
{
    static const char *const names[] = {"in_proj_b", "in_proj_a"};
    char name[160];
    swl_status st = m.rows == 2 * s->r * s->n_k ? SWL_OK : wrong_dims(s, m.t, "two rows per value head", err);

    m.shape[0] = s->r * s->n_k;
    for (int i = 0; i < 2 && !st; i++) {
        snprintf(name, sizeof name, "%slinear_attn.%s", base, names[i]);
        st = keep_matrix(s, name, every(m, s->r, 2 * s->r, i * s->r), err);
    }
    return st;
}

static swl_status keep_v_cols(source *s, const char *name, made m, swl_error *err)
{
    int64_t heads = s->n_k * s->r;

    if (s->tiled && s->r > 1) {
        if (m.cols % heads)
            return wrong_dims(s, m.t, "columns for every value head", err);
        m.head_cols = m.cols / heads;
    }
    return keep_matrix(s, name, m, err);
}

/* As the tensor lies: two dimensions, or three for experts. */
static made straight(const swl_gguf_tensor *t, bool experts)
{
    int64_t rows = t->dims[1] * t->dims[2];
    made m = {.t = t, .n_dims = experts ? 3 : 2, .cols = t->dims[0], .rows = rows, .block = rows, .stride = rows};

    m.shape[0] = experts ? t->dims[2] : rows;
    m.shape[1] = experts ? t->dims[1] : 0;
    return m;
}

static swl_status keep_plain_vector(source *s, const char *name, const swl_gguf_tensor *t, swl_error *err)
{
    made m = straight(t, false);

    m.n_dims = 1;
    m.shape[0] = m.cols;
    return t->n_dims == 1 ? keep_vector(s, name, m, err) : wrong_dims(s, t, "one dimension", err);
}

static swl_status apply(source *s, const rule *r, const char *base, const swl_gguf_tensor *t, swl_error *err)
{
    const swl_config *g = &s->c->config;
    made m = straight(t, r->k == EXPERTS || r->k == GATE_UP);
    char name[160];
    swl_status st = SWL_OK;

    if (!t->type)
        return refuse_type(s, t, err);
    if (t->dims[3] != 1 || (t->dims[2] != 1 && m.n_dims != 3))
        return wrong_dims(s, t, m.n_dims == 3 ? "three dimensions" : "two dimensions", err);
    snprintf(name, sizeof name, "%s%s", base, r->mlx ? r->mlx : "");
    switch (r->k) {
    case VECTOR:
        return keep_plain_vector(s, name, t, err);
    case A_LOG:
        return keep_numbers(s, name, t, true, err);
    case CONV:
        return keep_conv(s, name, m, err);
    case GATE_UP:
        return keep_gate_up(s, base, m, err);
    case BETA_ALPHA:
        return keep_beta_alpha(s, base, m, err);
    case V_COLS:
        return keep_v_cols(s, name, m, err);
    case V_ONE:
        if (t->n_dims == 1)
            return keep_numbers(s, name, t, false, err);
        st = order_rows(s, &m, 0, err);
        break;
    case V_ROWS:
        st = order_rows(s, &m, 0, err);
        break;
    case QKV:
        st = order_rows(s, &m, 2 * (int64_t)g->n_k_heads * g->k_dim, err);
        break;
    default:
        break;
    }
    return st ? st : keep_matrix(s, name, m, err);
}

/* "blk.7.attn_q.weight" -> 7 and what follows. */
static const char *layer_of(const char *name, int32_t *layer)
{
    int n = 0;

    return sscanf(name, "blk.%5" SCNd32 ".%n", layer, &n) == 1 && n ? name + n : NULL;
}

static bool is_factor(const char *name)
{
    size_t n = strlen(name);

    return n > 6 && !strcmp(name + n - 6, ".scale");
}

/* Names that are not known are of no use to the model (rotary tables and the like), except factors of whole tensors. */
static swl_status take_tensor(source *s, const swl_gguf_tensor *t, swl_error *err)
{
    int32_t layer = -1;
    const char *rest = layer_of(t->name, &layer);
    char base[64] = "";
    const rule *r;

    if (is_factor(t->name))
        return swl_fail(err, SWL_E_UNSUPPORTED, "tensor %s is a factor of a whole tensor, which is not converted", t->name);
    if (!rest)
        r = find_rule(model_rules, COUNT(model_rules), t->name);
    else if (layer < s->n_layers)
        r = find_rule(layer_rules, COUNT(layer_rules), rest);
    else
        r = find_rule(draft_rules, COUNT(draft_rules), rest);
    if (rest && layer < s->n_layers)
        snprintf(base, sizeof base, "model.layers.%" PRId32 ".", layer);
    if (!r && rest && layer >= s->n_layers && (r = find_rule(layer_rules, COUNT(layer_rules), rest)))
        snprintf(base, sizeof base, "mtp.layers.%" PRId32 ".", layer - s->n_layers);
    return r ? apply(s, r, base, t, err) : SWL_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const made *)a)->name, ((const made *)b)->name);
}

static swl_status make_set(source *s, const char *path, swl_error *err)
{
    swl_st_decl *d = swl_calloc((size_t)s->n, sizeof *d);
    swl_status st;

    if (!d)
        return no_memory(s, err);
    qsort(s->list, (size_t)s->n, sizeof *s->list, by_name);
    for (int32_t i = 0; i < s->n; i++) {
        const made *m = &s->list[i];

        d[i] = (swl_st_decl){.name = m->name, .dtype = m->dtype, .n_dims = m->n_dims};
        memcpy(d[i].shape, m->shape, sizeof m->shape);
    }
    st = swl_st_virtual(&s->c->dense, d, s->n, path, read_made, s, err);
    swl_free(d);
    return st;
}

/* ---- opening ---------------------------------------------------------------------------------------------------------- */

static void close_source(void *arg)
{
    source *s = arg;

    for (int32_t i = 0; i < s->n; i++)
        swl_free(s->list[i].name);
    swl_free(s->list);
    swl_gguf_close(s->g);
    swl_free(s);
}

static const char *source_file(void *arg, int32_t i)
{
    const source *s = arg;

    return i < swl_gguf_n_files(s->g) ? swl_gguf_path(s->g, i) : NULL;
}

static swl_status check_arch(const swl_gguf *g, const char *arch, swl_error *err)
{
    static const char *const known[] = {"qwen3next", "qwen35", "qwen35moe"};

    for (int i = 0; i < COUNT(known); i++)
        if (!strcmp(arch, known[i]))
            return SWL_OK;
    return swl_fail_at(err, SWL_E_UNSUPPORTED, swl_gguf_path(g, 0), -1,
                       "%s: general.architecture is \"%.50s\", expected qwen3next, qwen35 or qwen35moe",
                       swl_gguf_path(g, 0), arch);
}

static swl_status read_config(source *s, const char *arch, const char *path, swl_error *err)
{
    swl_checkpoint *c = s->c;
    swl_status st = swl_gguf_config(s->g, arch, &c->config_text, err);

    if (!st)
        st = swl_config_parse(&c->config, c->config_text, strlen(c->config_text), path, err);
    if (st)
        return st;
    s->n_layers = c->config.n_layers;
    s->n_k = c->config.n_k_heads;
    s->r = c->config.n_v_heads / c->config.n_k_heads;
    s->tiled = swl_gguf_heads_are_tiled(s->g, arch, c->config.vocab);
    return SWL_OK;
}

static swl_status fill(source *s, const char *path, swl_error *err)
{
    swl_checkpoint *c = s->c;
    char *arch = NULL;
    swl_status st = swl_gguf_string(s->g, "general.architecture", SWL_GGUF_REQUIRED, &arch, err);

    c->kind = SWL_CHECKPOINT_GGUF;
    c->norms_hold_one_plus_w = true;
    strcpy(c->prefix, "model.");
    if (!st)
        st = check_arch(s->g, arch, err);
    if (!st)
        st = read_config(s, arch, path, err);
    for (int32_t i = 0; i < swl_gguf_count(s->g) && !st; i++)
        st = take_tensor(s, swl_gguf_at(s->g, i), err);
    if (!st)
        st = make_set(s, path, err);
    if (!st)
        st = swl_gguf_text(s->g, c, err);
    if (!st)
        c->mtp = swl_dialect_has_mtp(c->dense);
    swl_free(arch);
    return st;
}

swl_status swl_gguf_checkpoint_open(swl_checkpoint **out, const char *path, bool exact_scales, swl_error *err)
{
    swl_checkpoint *c = swl_calloc(1, sizeof *c);
    source *s = swl_calloc(1, sizeof *s);
    swl_status st = SWL_OK;

    *out = NULL;
    if (!c || !s || !(c->dir = swl_strdup(path)))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory while opening %s", path);
    if (!st)
        st = swl_gguf_open(&s->g, path, err);
    if (!st) {
        s->c = c;
        s->exact_scales = exact_scales;
        c->source = s;
        c->close_source = close_source;
        c->source_file = source_file;
        st = fill(s, path, err);
    } else {
        swl_free(s);
    }
    if (st)
        swl_checkpoint_close(c);
    else
        *out = c;
    return st;
}
