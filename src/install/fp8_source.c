/*
 * fp8_source.c: a set of tensors in which every E4M3 matrix with block scales is a float32 matrix, made from the files
 * when it is read, row by row; all other tensors pass. The scales of one matrix are small and are read with it.
 */
#include "install/fp8_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define BLOCK            128
#define READ_BYTES       (INT64_C(256) << 10) /* of a matrix at a time, at least one row */
#define CONFIG_BYTES_MAX (UINT64_C(16) << 20)

static const char scale_tail[] = "_scale_inv";

typedef struct source {
    swl_st *files; /* what the directory holds */
} source;

/* "a.weight_scale_inv" for "a.weight" */
static const swl_st_tensor *scale_of(const swl_st *s, const char *name)
{
    char full[512];
    int n = snprintf(full, sizeof full, "%s%s", name, scale_tail);

    return n > 0 && (size_t)n < sizeof full ? swl_st_find(s, full) : NULL;
}

static bool is_scale(const swl_st *s, const swl_st_tensor *t)
{
    size_t n = strlen(t->name), k = sizeof scale_tail - 1;
    char weight[512];

    if (n <= k || n - k >= sizeof weight || strcmp(t->name + n - k, scale_tail))
        return false;
    memcpy(weight, t->name, n - k);
    weight[n - k] = 0;
    return swl_st_find(s, weight) != NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

typedef struct matrix {
    const source *s;
    const swl_st_tensor *t;
    int64_t cols, n_scales; /* scales per row of blocks */
    float *scales;
    uint8_t *in;
    float *row;
    swl_error *err;
} matrix;

static swl_status load_scales(matrix *m)
{
    const swl_st_tensor *t = scale_of(m->s->files, m->t->name);
    int64_t n = t->shape[0] * t->shape[1];
    uint8_t *raw = swl_calloc(t->size, 1);
    swl_status st;

    m->scales = swl_calloc((size_t)n, sizeof *m->scales);
    st = raw && m->scales ? swl_st_read(m->s->files, t, 0, raw, t->size, m->err)
                          : swl_fail(m->err, SWL_E_NOMEM, "out of memory for the scales of %s", m->t->name);
    if (!st)
        swl_dtype_to_f32(t->dtype, raw, m->scales, n);
    swl_free(raw);
    return st;
}

static void scale_row(const matrix *m, int64_t row, const uint8_t *in, float *out)
{
    const float *scales = m->scales + row / BLOCK * m->n_scales;

    swl_dtype_to_f32(SWL_DT_F8_E4M3, in, out, m->cols);
    for (int64_t i = 0; i < m->cols; i++)
        out[i] *= scales[i / BLOCK];
}

/* Bytes [begin, begin + n) of the float32 matrix. */
static swl_status read_rows(matrix *m, uint64_t begin, uint8_t *dst, uint64_t n)
{
    uint64_t bytes = (uint64_t)m->cols * sizeof(float), end = begin + n;
    int64_t row = (int64_t)(begin / bytes), last = (int64_t)((end + bytes - 1) / bytes), most = READ_BYTES / m->cols, k;
    swl_status st = SWL_OK;

    for (most = most ? most : 1; row < last && !st; row += k) {
        k = last - row < most ? last - row : most;
        st = swl_st_read(m->s->files, m->t, (uint64_t)(row * m->cols), m->in, (uint64_t)(k * m->cols), m->err);
        for (int64_t i = 0; i < k && !st; i++) {
            uint64_t at = (uint64_t)(row + i) * bytes, from = at < begin ? begin - at : 0;
            uint64_t to = at + bytes > end ? end - at : bytes;

            scale_row(m, row + i, m->in + i * m->cols, m->row);
            memcpy(dst + (at + from - begin), (const uint8_t *)m->row + from, to - from);
        }
    }
    return st;
}

static swl_status read_matrix(const source *s, const swl_st_tensor *t, uint64_t begin, void *dst, uint64_t n,
                              swl_error *err)
{
    matrix m = {.s = s, .t = t, .cols = t->shape[1], .n_scales = (t->shape[1] + BLOCK - 1) / BLOCK, .err = err};
    swl_status st = load_scales(&m);

    m.in = swl_calloc((size_t)(m.cols > READ_BYTES ? m.cols : READ_BYTES), 1);
    m.row = swl_calloc((size_t)m.cols, sizeof *m.row);
    if (!st && (!m.in || !m.row))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for rows of %s", t->name);
    if (!st)
        st = read_rows(&m, begin, dst, n);
    swl_free(m.row);
    swl_free(m.in);
    swl_free(m.scales);
    return st;
}

static swl_status read_any(void *arg, const swl_st_tensor *t, uint64_t begin, void *dst, uint64_t n, swl_error *err)
{
    const source *s = arg;
    const swl_st_tensor *real = swl_st_find(s->files, t->name);

    if (scale_of(s->files, t->name))
        return read_matrix(s, real, begin, dst, n, err);
    return swl_st_read(s->files, real, begin, dst, n, err);
}

/* ---- the set ------------------------------------------------------------------------------------------------------------ */

static swl_status check_matrix(const swl_st *s, const swl_st_tensor *t, const swl_st_tensor *scale, swl_error *err)
{
    const char *path = swl_st_path(s, t->file);
    int64_t rows = t->n_dims == 2 ? (t->shape[0] + BLOCK - 1) / BLOCK : -1, cols = (t->shape[1] + BLOCK - 1) / BLOCK;

    if (t->dtype == SWL_DT_F8_E4M3 && scale->n_dims == 2 && scale->shape[0] == rows && scale->shape[1] == cols && rows &&
        cols && (scale->dtype == SWL_DT_BF16 || scale->dtype == SWL_DT_F32))
        return SWL_OK;
    return swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1,
                       "%s: tensor \"%s\" is %s with %" PRId32 " dimensions and has scales %s [%" PRId64 ", %" PRId64
                       "]; expected an F8_E4M3 matrix with one BF16 or F32 scale per block of 128 x 128",
                       path, t->name, swl_dtype_name(t->dtype), t->n_dims, swl_dtype_name(scale->dtype), scale->shape[0],
                       scale->n_dims > 1 ? scale->shape[1] : 1);
}

static swl_status declare(const swl_st *s, swl_st_decl *d, int32_t *n, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < swl_st_count(s) && !st; i++) {
        const swl_st_tensor *t = swl_st_at(s, i), *scale = scale_of(s, t->name);

        if (is_scale(s, t))
            continue;
        d[*n] = (swl_st_decl){.name = t->name, .dtype = scale ? SWL_DT_F32 : t->dtype, .n_dims = t->n_dims};
        memcpy(d[(*n)++].shape, t->shape, sizeof t->shape);
        if (scale)
            st = check_matrix(s, t, scale, err);
    }
    return st;
}

/* The config without what says that it is quantised: the container will not be, in that way. */
static swl_status plain_config(swl_checkpoint *c, swl_error *err)
{
    char *path = swl_path_join(c->dir, "config.json");
    size_t flags = JSON_INDENT(2) | JSON_PRESERVE_ORDER, n;
    json_t *root = NULL;
    swl_status st = path ? swl_json_load(&root, path, CONFIG_BYTES_MAX, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st) {
        json_object_del(root, "quantization_config");
        json_object_del(json_object_get(root, "text_config"), "quantization_config");
        n = json_dumpb(root, NULL, 0, flags);
        c->config_text = swl_calloc(n + 2, 1);
        if (c->config_text) {
            json_dumpb(root, c->config_text, n, flags);
            c->config_text[n] = '\n';
        } else
            st = swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    }
    json_decref(root);
    swl_free(path);
    return st;
}

static void close_source(void *arg)
{
    source *s = arg;

    swl_st_close(s->files);
    swl_free(s);
}

static const char *source_file(void *arg, int32_t i)
{
    const source *s = arg;

    return i < swl_st_n_files(s->files) ? swl_st_path(s->files, i) : NULL;
}

static swl_status replace_set(swl_checkpoint *c, swl_error *err)
{
    source *s = swl_calloc(1, sizeof *s);
    swl_st_decl *d = swl_calloc((size_t)swl_st_count(c->dense), sizeof *d);
    swl_st *shown = NULL;
    int32_t n = 0;
    swl_status st = s && d ? declare(c->dense, d, &n, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for %s", c->dir);

    if (!st)
        st = swl_st_virtual(&shown, d, n, swl_st_path(c->dense, 0), read_any, s, err);
    swl_free(d);
    if (st) {
        swl_free(s);
        return st;
    }
    s->files = c->dense;
    c->dense = shown;
    c->source = s;
    c->close_source = close_source;
    c->source_file = source_file;
    return plain_config(c, err);
}

swl_status swl_fp8_filter(swl_checkpoint *c, swl_error *err)
{
    for (int32_t i = 0; i < swl_st_count(c->dense); i++)
        if (is_scale(c->dense, swl_st_at(c->dense, i)))
            return replace_set(c, err);
    return SWL_OK;
}
