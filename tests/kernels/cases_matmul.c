/* cases_matmul.c: random weight matrices and activation batches, and the cases of the two matmul slots. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

static void put_scale(swl_dtype t, uint8_t *p, int64_t i, float f)
{
    uint16_t h = t == SWL_DT_BF16 ? swl_f32_to_bf16(f) : swl_f32_to_f16(f);

    if (t == SWL_DT_F32)
        memcpy(p + 4 * i, &f, 4);
    else
        memcpy(p + 2 * i, &h, 2);
}

static const uint8_t *random_scales(const matmul_shape *s, float magnitude, bool extreme)
{
    int64_t n = (int64_t)s->rows * (s->cols / s->group), i;
    uint8_t *p = mem_take((size_t)(n * swl_dtype_size(s->sdtype)), (size_t)PICK(0, 1, 2));

    for (i = 0; i < n; i++) {
        float f = (float)(int32_t)rng_next() * (1.0f / 2147483648.0f) * magnitude;

        put_scale(s->sdtype, p, i, extreme && rng_next() % 4 == 0 ? (float)PICK(0, 1, -1) * 1000.0f * magnitude : f);
    }
    return p;
}

/* Scales of codebooks, for values of the size of weights; now and then the smallest and largest that there are. */
static const uint8_t *random_byte_scales(const matmul_shape *s, bool extreme)
{
    int64_t n = (int64_t)s->rows * (s->cols / s->group), i;
    uint8_t *p = mem_take((size_t)n, (size_t)PICK(0, 1, 2));

    for (i = 0; i < n; i++)
        if (s->sdtype == SWL_DT_F8_E8M0)
            p[i] = (uint8_t)(extreme && rng_next() % 4 == 0 ? PICK(0, 1, 2, 9, 10, 160) : rng_range(115, 124));
        else
            p[i] = (uint8_t)(extreme && rng_next() % 4 == 0 ? PICK(0, 1, 7, 8, 0x7e, 0xfe) : rng_range(0, 0x3f));
    return p;
}

/* Plain formats: any bit pattern that is a finite number. */
static void random_plain(swl_wtype t, uint8_t *p, int64_t n)
{
    swl_dtype d = t == SWL_W_F32 ? SWL_DT_F32 : t == SWL_W_F16 ? SWL_DT_F16 : SWL_DT_BF16;
    int64_t i;

    for (i = 0; i < n; i++)
        put_scale(d, p, i, (float)(int32_t)rng_next() * (1.0f / 2147483648.0f) * (rng_next() & 7 ? 0.1f : 1e-5f));
}

swl_matrix random_matrix(const matmul_shape *s, bool extreme)
{
    swl_matrix m = {.type = s->type, .rows = s->rows, .cols = s->cols};
    int64_t n = s->rows * swl_matrix_row_bytes(&m), i;
    uint8_t *data = mem_take((size_t)n, (size_t)PICK(0, 1, 3, 8));

    m.data = data;
    if (!s->group) {
        random_plain(s->type, data, (int64_t)s->rows * s->cols);
        return m;
    }
    if (extreme)
        memset(data, PICK(0, 0xff, 0xf0, 0x0f), (size_t)n);
    for (i = 0; i < n && !extreme; i++)
        data[i] = (uint8_t)rng_next();
    m.sdtype = s->sdtype;
    m.group = s->group;
    m.scales = swl_dtype_size(s->sdtype) == 1 ? random_byte_scales(s, extreme) : random_scales(s, 0.05f, extreme);
    if (!swl_wtype_get(s->type)->affine)
        return m;
    m.biases = random_scales(s, 0.4f, extreme);
    return m;
}

/* All activations at the ends of the range: the largest integer sums that can happen. */
static void saturate(swl_act *a, int32_t n)
{
    int64_t i;
    int32_t j, kind = rng_range(0, 2);

    for (i = 0; i < n * a->ldq; i++)
        a->q[i] = i % a->ldq >= a->cols ? 0 : kind == 0 ? 127 : kind == 1 ? -127 : rng_next() & 1 ? 127 : -127;
    for (i = 0; i < n * a->ldq / SWL_ACT_SUM; i++)
        for (a->sum[i] = 0, j = 0; j < SWL_ACT_SUM; j++)
            a->sum[i] += a->q[i * SWL_ACT_SUM + j];
}

swl_act random_act(int32_t cols, int32_t n, bool extreme)
{
    swl_act a = {.cols = cols, .ldx = cols + PICK(0, 0, 1, 7), .ldq = (cols + 63) / 64 * 64};
    int32_t i;

    a.x = extreme && rng_next() & 1 ? worst(n * a.ldx) : ordinary(n * a.ldx, 8.0f);
    a.q = mem_take((size_t)(n * a.ldq), (size_t)PICK(0, 0, 1, 16));
    a.scale = floats(n * a.ldq / SWL_ACT_GROUP);
    a.sum = mem_take((size_t)(n * a.ldq / SWL_ACT_SUM) * sizeof *a.sum, 0);
    for (i = 0; i < n; i++)
        swl_quantise_act_ref(a.x + i * a.ldx, cols, a.q + i * a.ldq, a.scale + i * (a.ldq / SWL_ACT_GROUP),
                             a.sum + i * (a.ldq / SWL_ACT_SUM));
    if (extreme && rng_next() & 1)
        saturate(&a, n);
    return a;
}

static int32_t random_cols(int32_t unit)
{
    int32_t n = PICK(1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, rng_range(1, 64), 2112 / unit, 2048 / unit, 512 / unit,
                     1024 / unit);

    if (rng_next() % 24 == 0)
        n = PICK(4096, 5120, 8192, 8192 + 640, 17408) / unit;
    while (n * unit > 2200 && rng_next() % 8)
        n = rng_range(1, 2100 / unit);
    return n * unit;
}

static void random_sizes(matmul_shape *s, int32_t *n_rows, int32_t *n_tok, int32_t *row0)
{
    int64_t work;

    *n_tok = PICK(1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, rng_range(10, 40), 16, 31, 40, 65, 130, 197);
    *n_rows = PICK(1, 2, 3, 15, 16, 17, 32, 47, 64, 64, 65, 96, 100);
    work = (int64_t)s->cols * *n_tok;
    while (*n_rows > 2 && *n_rows * work > 1500000)
        *n_rows = *n_rows > 16 ? PICK(16, 17) : *n_rows / 2;
    if (rng_next() % 16 == 0) { /* so many results that no cache holds them, if they lie far apart */
        *n_tok = 65;
        *n_rows = PICK(32, 64);
    }
    *row0 = PICK(0, 0, 1, 5);
    s->rows = *row0 + *n_rows + PICK(0, 0, 2);
    s->n_act = *n_tok + PICK(0, 3);
}

static const int32_t *random_list(int32_t n_tok, int32_t n_act)
{
    int32_t *tok, i;

    if (rng_next() & 1)
        return NULL;
    tok = mem_take((size_t)n_tok * sizeof *tok, 0);
    for (i = 0; i < n_tok; i++)
        tok[i] = rng_range(0, n_act - 1);
    return tok;
}

enum { FAR_BYTES = 9 << 20 }; /* more than a kernel expects to find in the caches later */

static bool matmul_case(any_fn *ref, any_fn *fn, matmul_shape *s)
{
    int32_t n_rows, n_tok, row0;
    bool extreme = rng_next() % 4 == 0;
    swl_matrix w;
    swl_act a;
    const int32_t *tok;
    int64_t ldo;
    twins out;

    random_sizes(s, &n_rows, &n_tok, &row0);
    w = random_matrix(s, extreme);
    a = random_act(s->cols, s->n_act, extreme);
    tok = random_list(n_tok, s->n_act);
    ldo = n_rows + PICK(0, 0, 1, 5, 64);
    if (n_tok == 65)
        ldo = (FAR_BYTES / 4 / n_tok + 15) / 16 * 16;
    out = twins_take((size_t)((n_tok - 1) * ldo + n_rows) * sizeof(float));
    case_note("rows %d + %d of %d, cols %d, group %d, scales %s, tokens %d%s, ldo %d%s", row0, n_rows, s->rows, s->cols,
              s->group, s->group ? swl_dtype_name(s->sdtype) : "none", n_tok, tok ? " by index" : "", (int)ldo,
              extreme ? ", extreme values" : "");
    if (rng_next() % 2)
        w.next = swl_matrix_upcoming(&w, PICK(0, row0, s->rows)); /* a hint, that may lie where nothing is */
    ((swl_matmul_fn *)ref)(&w, row0, n_rows, &a, tok, n_tok, (float *)(void *)out.at[0], ldo);
    ((swl_matmul_fn *)fn)(&w, row0, n_rows, &a, tok, n_tok, (float *)(void *)out.at[1], ldo);
    return twins_equal(&out, "out");
}

static bool book_case(any_fn *ref, any_fn *fn, int32_t type)
{
    matmul_shape s = {.type = (swl_wtype)type, .group = type == SWL_W_NVFP4 ? 16 : 32};

    s.sdtype = swl_codebook_sdtype(s.type, (swl_dtype)PICK(SWL_DT_F16, SWL_DT_F16, SWL_DT_F32, SWL_DT_BF16));
    s.cols = random_cols(s.group);
    return matmul_case(ref, fn, &s);
}

static bool affine_case(any_fn *ref, any_fn *fn, int32_t type)
{
    matmul_shape s = {.type = (swl_wtype)type, .group = PICK(64, 64, 64, 16, 32, 128)};

    if (swl_wtype_get(s.type)->book)
        return book_case(ref, fn, type);
    s.sdtype = (swl_dtype)PICK(SWL_DT_BF16, SWL_DT_BF16, SWL_DT_F16, SWL_DT_F32);
    s.cols = random_cols(s.group);
    return matmul_case(ref, fn, &s);
}

static bool float_case(any_fn *ref, any_fn *fn, int32_t type)
{
    matmul_shape s = {.type = (swl_wtype)type};

    if (swl_wtype_get(s.type)->affine || swl_wtype_get(s.type)->book)
        return affine_case(ref, fn, type);
    s.cols = rng_next() & 1 ? random_cols(64) : random_cols(1);
    return matmul_case(ref, fn, &s);
}

const slot_test matmul_tests[] = {{"matmul_q", affine_case, 60}, {"matmul_f", float_case, 50}, {NULL, NULL, 0}};
