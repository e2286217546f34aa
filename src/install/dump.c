/*
 * dump.c: swl_dump_tensor: the numbers of one module, dequantised, in a safetensors file. Rows go one by one, so that a
 * matrix of any size needs a few kilobytes beside an expert's slot or the row's own bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "format/checkpoint.h"

typedef struct dump {
    const swl_checkpoint *c;
    const char *module;
    const swl_st_tensor *t[SWL_PART_COUNT]; /* of a dense matrix */
    uint64_t row_bytes[SWL_PART_COUNT];
    uint8_t *bytes;                         /* a row's parts, or an expert's slot */
    swl_matrix m;
    int64_t rows, cols;                     /* of what is written; a vector has one row */
    int32_t n_dims;
} dump;

/* Inputs of a matrix by its name: what the stored shape does not say of packed words. */
static int32_t inputs_of(const swl_config *c, const char *module)
{
    const char *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;

    if (!strcmp(name, "out_proj"))
        return c->n_v_heads * c->v_dim;
    if (!strcmp(name, "o_proj"))
        return c->n_heads * c->head_dim;
    if (!strcmp(name, "down_proj"))
        return strstr(module, "shared_expert") ? c->shared_width : c->intermediate;
    return strstr(module, "mtp.fc") ? 2 * c->hidden : c->hidden;
}

static const swl_st_tensor *find(const dump *d, const char *suffix)
{
    char name[512];

    snprintf(name, sizeof name, "%s%s", d->module, suffix);
    return swl_checkpoint_find(d->c, name);
}

static swl_status no_module(const dump *d, swl_error *err)
{
    char near[400] = "";
    size_t n = strcspn(d->module, "0123456789");

    for (int32_t i = 0; i < swl_st_count(d->c->dense); i++) {
        const char *name = swl_st_at(d->c->dense, i)->name;
        size_t used = strlen(near);

        if (strstr(name, ".weight") && !strncmp(name, d->module, n) && used + strlen(name) + 3 < sizeof near)
            snprintf(near + used, sizeof near - used, "%s%s", used ? ", " : "", name);
    }
    return swl_fail_at(err, SWL_E_NOT_FOUND, d->c->dir, -1, "%s has no module \"%s\"%s%s", d->c->dir, d->module,
                       *near ? "; among others there are " : "", near);
}

static swl_status set_quantised(dump *d, swl_error *err)
{
    const swl_st_tensor *w = d->t[SWL_PART_WEIGHT], *s = d->t[SWL_PART_SCALES];
    int64_t words = w->shape[1], n_scales = s->n_dims == 2 ? s->shape[1] : 0;
    int32_t cols = inputs_of(&d->c->config, d->module), bits = 0, group = 0;
    bool affine = d->t[SWL_PART_BIASES];

    if (affine && swl_affine_from_shapes(words, n_scales, cols, &bits, &group))
        d->m = (swl_matrix){.type = swl_wtype_affine(bits), .sdtype = s->dtype, .group = group};
    else if (!affine)
        d->m.type = swl_codebook_from_shapes(s->dtype, words, n_scales, cols, &d->m.group);
    if (d->m.type == SWL_W_NONE)
        return swl_fail_at(err, SWL_E_UNSUPPORTED, d->c->dir, -1, "%s: [%" PRId64 ", %" PRId64 "] words and %" PRId64
                           " scales a row are no format of %d inputs", w->name, w->shape[0], words, n_scales, cols);
    if (!affine)
        d->m.sdtype = swl_codebook_sdtype(d->m.type, s->dtype);
    d->cols = cols;
    return SWL_OK;
}

static swl_status open_dense(dump *d, swl_error *err)
{
    const swl_st_tensor *w;
    uint64_t total = 0;
    swl_status st = SWL_OK;

    d->t[SWL_PART_WEIGHT] = find(d, ".weight");
    if (!d->t[SWL_PART_WEIGHT])
        d->t[SWL_PART_WEIGHT] = find(d, "");
    w = d->t[SWL_PART_WEIGHT];
    if (!w || w->n_dims < 1)
        return no_module(d, err);
    d->t[SWL_PART_SCALES] = w->n_dims == 2 ? find(d, ".scales") : NULL;
    d->t[SWL_PART_BIASES] = d->t[SWL_PART_SCALES] ? find(d, ".biases") : NULL;
    d->n_dims = w->n_dims > 1 ? 2 : 1;
    d->rows = d->n_dims > 1 ? w->shape[0] : 1;
    d->cols = d->n_dims > 1 ? 1 : w->shape[0];
    for (int i = 1; i < w->n_dims; i++)
        d->cols *= w->shape[i];
    if (d->t[SWL_PART_SCALES])
        st = set_quantised(d, err);
    else
        d->m.type = swl_wtype_plain(w->dtype);
    if (!st && d->m.type == SWL_W_NONE)
        st = swl_fail_at(err, SWL_E_UNSUPPORTED, d->c->dir, -1, "%s holds no floats", w->name);
    for (int i = 0; i < SWL_PART_COUNT && !st; i++) {
        if (d->t[i] && d->t[i]->size % (uint64_t)d->rows)
            st = swl_fail_at(err, SWL_E_CORRUPT, d->c->dir, -1, "%s has no whole rows", d->t[i]->name);
        d->row_bytes[i] = d->t[i] ? d->t[i]->size / (uint64_t)d->rows : 0;
        total += d->row_bytes[i];
    }
    if (st)
        return st;
    d->bytes = swl_calloc(1, total + 64);
    return d->bytes ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "dump: out of memory");
}

/* Row r of a dense matrix becomes row 0 of d->m. */
static swl_status read_row(dump *d, int64_t r, swl_error *err)
{
    uint8_t *at = d->bytes;
    const uint8_t *part[SWL_PART_COUNT] = {NULL};
    swl_status st = SWL_OK;

    for (int i = 0; i < SWL_PART_COUNT && !st; i++) {
        if (!d->t[i])
            continue;
        st = swl_st_read(d->c->dense, d->t[i], (uint64_t)r * d->row_bytes[i], at, d->row_bytes[i], err);
        part[i] = at;
        at += d->row_bytes[i];
    }
    d->m.rows = 1;
    d->m.cols = (int32_t)d->cols;
    d->m.data = part[SWL_PART_WEIGHT];
    d->m.scales = part[SWL_PART_SCALES];
    d->m.biases = part[SWL_PART_BIASES];
    return st;
}

/* "model.layers.L.mlp.experts.E.gate_proj"; false when the name is another one. */
static bool expert_name(const dump *d, int *layer, int *expert, swl_proj *proj)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    char name[16];
    int n = 0;

    if (sscanf(d->module, "model.layers.%d.mlp.experts.%d.%15[a-z_]%n", layer, expert, name, &n) != 3 || d->module[n])
        return false;
    for (int i = 0; i < SWL_PROJ_COUNT; i++) {
        if (!strcmp(name, names[i])) {
            *proj = (swl_proj)i;
            return d->c->experts && *layer >= 0 && *layer < d->c->config.n_layers && *expert >= 0 &&
                   *expert < d->c->config.n_experts && d->c->experts[*layer].n_sections;
        }
    }
    return false;
}

static swl_status open_expert(dump *d, int layer, int expert, swl_proj proj, swl_error *err)
{
    const swl_expert_layout *x = &d->c->experts[layer];
    swl_status st = SWL_OK;

    d->bytes = swl_calloc(1, x->slot_bytes);
    if (!d->bytes)
        return swl_fail(err, SWL_E_NOMEM, "dump: out of memory");
    if (d->c->experts_absent)
        swl_checkpoint_make_expert(d->c, layer, expert, d->bytes);
    for (int32_t i = 0; i < x->n_ranges && !d->c->experts_absent && !st; i++) {
        const swl_range *r = &x->ranges[(int64_t)expert * x->n_ranges + i];
        const swl_file_ref *f = &d->c->files[r->file];

        st = swl_file_read_at(f->fd, f->path, r->offset, d->bytes + r->dst, r->size, err);
    }
    swl_expert_matrix(d->c, layer, proj, d->bytes, &d->m);
    d->rows = d->m.rows;
    d->cols = d->m.cols;
    d->n_dims = 2;
    return st;
}

static swl_status write_rows(dump *d, bool dense, int fd, const char *path, swl_error *err)
{
    float *row = swl_calloc((size_t)d->cols + 64, sizeof *row);
    swl_status st = row ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "dump: out of memory");

    for (int64_t r = 0; r < d->rows && !st; r++) {
        if (dense)
            st = read_row(d, r, err);
        if (!st)
            swl_matrix_row_f32(&d->m, dense ? 0 : (int32_t)r, row);
        if (!st)
            st = swl_file_write(fd, path, row, (uint64_t)d->cols * sizeof *row, err);
    }
    swl_free(row);
    return st;
}

static swl_status write_file(dump *d, bool dense, const char *path, swl_error *err)
{
    swl_st_decl decl = {.name = d->module, .dtype = SWL_DT_F32, .n_dims = d->n_dims, .shape = {d->rows, d->cols}};
    swl_file_atomic f;
    uint8_t *header = NULL;
    uint64_t n = 0;
    swl_status st;

    if (d->n_dims == 1)
        decl.shape[0] = d->cols;
    st = swl_st_header(&decl, 1, 64, &header, &n, err);
    if (!st)
        st = swl_file_atomic_begin(&f, path, err);
    if (!st) {
        st = swl_file_write(f.fd, path, header, n, err);
        if (!st)
            st = write_rows(d, dense, f.fd, path, err);
        st = swl_file_atomic_end(&f, st, err);
    }
    swl_free(header);
    return st;
}

swl_status swl_dump_tensor(const char *dir, const char *module, const char *output, swl_error *err)
{
    swl_checkpoint *c = NULL;
    dump d = {.module = module};
    int layer, expert;
    swl_proj proj;
    bool dense;
    swl_status st = swl_checkpoint_open(&c, dir, err);

    if (st)
        return st;
    d.c = c;
    dense = !expert_name(&d, &layer, &expert, &proj);
    st = dense ? open_dense(&d, err) : open_expert(&d, layer, expert, proj, err);
    if (!st)
        st = write_file(&d, dense, output, err);
    swl_free(d.bytes);
    swl_checkpoint_close(c);
    return st;
}
