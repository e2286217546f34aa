/*
 * matmul_ref.c: weight matrix times activations, one row and one token at a time in spirit: a unit (or block) of a row is
 * unpacked once and used for up to TOKENS tokens.
 */
#include "kernels/ref/ref.h"

#include "kernels/ref/math_ref.h"

enum { TOKENS = 16, BLOCK = 256 };

static float scale_at(const swl_matrix *w, const uint8_t *base, int64_t index)
{
    float f;

    swl_dtype_to_f32(w->sdtype, base + index * swl_dtype_size(w->sdtype), &f, 1);
    return f;
}

/* n unsigned codes of `bits` bits from element `first` of a row's bit stream; n and first are multiples of 8. */
static void unpack(const uint8_t *row, int32_t bits, int32_t first, int32_t n, uint8_t *q)
{
    const uint8_t *p = row + (int64_t)first * bits / 8;
    uint32_t have = 0, acc = 0;
    int32_t i;

    for (i = 0; i < n; i++) {
        while (have < (uint32_t)bits) {
            acc |= (uint32_t)*p++ << have;
            have += 8;
        }
        q[i] = (uint8_t)(acc & ((1u << bits) - 1));
        acc >>= bits;
        have -= (uint32_t)bits;
    }
}

static void affine_row_q(const swl_matrix *w, int32_t bits, int32_t row, const swl_act *a, const int32_t *tok,
                         int32_t tok0, int32_t n_tok, float *out, int64_t ldo)
{
    int32_t unit = w->group < SWL_ACT_GROUP ? w->group : SWL_ACT_GROUP, n_units = w->cols / unit, u, t, i;
    const uint8_t *data = w->data + row * swl_matrix_row_bytes(w);
    int64_t scale0 = (int64_t)row * (w->cols / w->group);
    float lanes[TOKENS][SWL_LANES] = {{0}};
    uint8_t q[SWL_ACT_GROUP];

    for (u = 0; u < n_units; u++) {
        int32_t col = u * unit;
        float ws = scale_at(w, w->scales, scale0 + col / w->group), wb = scale_at(w, w->biases, scale0 + col / w->group);

        unpack(data, bits, col, unit, q);
        for (t = 0; t < n_tok; t++) {
            int64_t r = tok ? tok[tok0 + t] : tok0 + t;
            const int8_t *x = a->q + r * a->ldq + col;
            const int32_t *sum = a->sum + r * (a->ldq / SWL_ACT_SUM) + col / SWL_ACT_SUM;
            float xs = a->scale[r * (a->ldq / SWL_ACT_GROUP) + col / SWL_ACT_GROUP], *lane = &lanes[t][u % SWL_LANES];
            int32_t idot = 0, isum = 0;

            for (i = 0; i < unit; i++)
                idot += q[i] * x[i];
            for (i = 0; i < unit / SWL_ACT_SUM; i++)
                isum += sum[i];
            *lane = fmaf((float)idot, ws * xs, *lane);
            *lane = fmaf(wb, xs * (float)isum, *lane);
        }
    }
    for (t = 0; t < n_tok; t++)
        out[(tok0 + t) * ldo] = ref_fold(lanes[t]);
}

static void book_row_q(const swl_matrix *w, const swl_wtype_info *info, int32_t row, const swl_act *a,
                       const int32_t *tok, int32_t tok0, int32_t n_tok, float *out, int64_t ldo)
{
    int32_t unit = w->group, n_units = w->cols / unit, u, t, i;
    const uint8_t *data = w->data + row * swl_matrix_row_bytes(w);
    float lanes[TOKENS][SWL_LANES] = {{0}};
    uint8_t q[SWL_ACT_GROUP];

    for (u = 0; u < n_units; u++) {
        float ws = swl_matrix_scale(w, (int64_t)row * n_units + u);

        unpack(data, info->bits, u * unit, unit, q);
        for (t = 0; t < n_tok; t++) {
            int64_t r = tok ? tok[tok0 + t] : tok0 + t;
            const int8_t *x = a->q + r * a->ldq + u * unit;
            float xs = a->scale[r * (a->ldq / SWL_ACT_GROUP) + u * unit / SWL_ACT_GROUP];
            float *lane = &lanes[t][u % SWL_LANES];
            int32_t idot = 0;

            for (i = 0; i < unit; i++)
                idot += info->book[q[i]] * x[i];
            *lane = fmaf((float)idot, ws * xs, *lane);
        }
    }
    for (t = 0; t < n_tok; t++)
        out[(tok0 + t) * ldo] = ref_fold(lanes[t]);
}

static void row_f(const swl_matrix *w, const swl_wtype_info *info, int32_t row, const swl_act *a, const int32_t *tok,
                  int32_t tok0, int32_t n_tok, float *out, int64_t ldo)
{
    float lanes[TOKENS][SWL_LANES] = {{0}}, block[BLOCK];
    int32_t col, n, t, i;

    for (col = 0; col < w->cols; col += n) {
        n = w->cols - col < BLOCK ? w->cols - col : BLOCK;
        info->dequant(w, row, col, n, block);
        for (t = 0; t < n_tok; t++) {
            const float *x = a->x + (tok ? tok[tok0 + t] : tok0 + t) * a->ldx + col;

            for (i = 0; i < n; i++)
                lanes[t][i % SWL_LANES] = fmaf(block[i], x[i], lanes[t][i % SWL_LANES]);
        }
    }
    for (t = 0; t < n_tok; t++)
        out[(tok0 + t) * ldo] = ref_fold(lanes[t]);
}

void swl_matmul_q_ref(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                      int32_t n_tok, float *out, int64_t ldo)
{
    int32_t bits = swl_wtype_get(w->type)->bits, r, t;

    for (t = 0; t < n_tok; t += TOKENS)
        for (r = 0; r < n_rows; r++)
            affine_row_q(w, bits, row0 + r, a, tok, t, n_tok - t < TOKENS ? n_tok - t : TOKENS, out + r, ldo);
}

void swl_matmul_q_book_ref(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo)
{
    const swl_wtype_info *info = swl_wtype_get(w->type);
    int32_t r, t;

    for (t = 0; t < n_tok; t += TOKENS)
        for (r = 0; r < n_rows; r++)
            book_row_q(w, info, row0 + r, a, tok, t, n_tok - t < TOKENS ? n_tok - t : TOKENS, out + r, ldo);
}

void swl_matmul_f_ref(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                      int32_t n_tok, float *out, int64_t ldo)
{
    const swl_wtype_info *info = swl_wtype_get(w->type);
    int32_t r, t;

    for (t = 0; t < n_tok; t += TOKENS)
        for (r = 0; r < n_rows; r++)
            row_f(w, info, row0 + r, a, tok, t, n_tok - t < TOKENS ? n_tok - t : TOKENS, out + r, ldo);
}

void swl_quantise_act_ref(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum)
{
    int32_t g, i, n;

    for (g = 0; g * SWL_ACT_GROUP < cols; g++, x += SWL_ACT_GROUP, q += SWL_ACT_GROUP, sum += SWL_ACT_GROUP / SWL_ACT_SUM) {
        float max = 0.0f, inv;

        n = cols - g * SWL_ACT_GROUP < SWL_ACT_GROUP ? cols - g * SWL_ACT_GROUP : SWL_ACT_GROUP;
        for (i = 0; i < n; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        scale[g] = max / 127.0f;
        inv = max > 0.0f ? 127.0f / max : 0.0f;
        for (i = 0; i < SWL_ACT_GROUP / SWL_ACT_SUM; i++)
            sum[i] = 0;
        for (i = 0; i < SWL_ACT_GROUP; i++) {
            q[i] = (int8_t)(i < n ? ref_round_within(x[i] * inv, -127.0f, 127.0f) : 0.0f);
            sum[i / SWL_ACT_SUM] += q[i];
        }
    }
}
