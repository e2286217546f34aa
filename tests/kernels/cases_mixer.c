/* cases_mixer.c: cases of the token mixers: the delta rule with its state, and one part of attention. */
#include "check.h"

#include <math.h>

#define F(p) ((float *)(void *)(p))

typedef void delta_fn(float *, int64_t, int32_t, int32_t, int32_t, const float *, const float *, int64_t, const float *,
                      int64_t, const swl_delta_gate *, float *, int64_t);

/* Mostly nothing to fold, sometimes all there is. */
static swl_delta_gate *delta_gates(int32_t n)
{
    swl_delta_gate *g = mem_take((size_t)n * sizeof *g, 0);
    float *x = ordinary(3 * n, 1.0f);
    int32_t i;

    for (i = 0; i < n; i++) {
        g[i].fold = rng_next() % 4 ? 1.0f : rng_next() % 4 ? fabsf(x[3 * i]) : 0.0f;
        g[i].gain = rng_next() % 16 ? fabsf(x[3 * i + 1]) : 1.0f;
        g[i].rate = rng_next() % 16 ? fabsf(x[3 * i + 2]) : (float)PICK(0, 1, 1000);
    }
    return g;
}

/* Two calls in a row on the same state, as a prompt in chunks. */
static bool delta_case(any_fn *ref, any_fn *fn, int32_t type)
{
    int32_t dk = PICK(128, 128, 16, 32, 64, rng_range(1, 140)), dv = PICK(128, 128, 16, 32, 64, 48, rng_range(1, 140));
    int32_t n_tok = PICK(1, 1, 2, 3, 7, 40, 150), k, call;
    int64_t lds = dv + PICK(0, 0, 4), ldqk = dk + PICK(0, 0, 3), ldv = dv + PICK(0, 0, 1), ldo = dv + PICK(0, 0, 2);
    float *q = ordinary(n_tok * ldqk, 0.1f), *key = ordinary(n_tok * ldqk, 1.0f), *v = ordinary(n_tok * ldv, 2.0f);
    swl_delta_gate *gates = delta_gates(n_tok);
    twins s = twins_copy(ordinary(dk * lds, 1.0f), (size_t)(dk * lds) * 4), out = twins_take((size_t)(n_tok * ldo) * 4);

    (void)type;
    case_note("dk %d, dv %d, tokens %d, strides %d %d %d %d", dk, dv, n_tok, (int)lds, (int)ldqk, (int)ldv, (int)ldo);
    for (k = 0; k < 2; k++)
        for (call = 0; call < 2; call++)
            ((delta_fn *)(k ? fn : ref))(F(s.at[k]), lds, dk, dv, n_tok, q, key, ldqk, v, ldv, gates, F(out.at[k]), ldo);
    return twins_equal(&out, "out") && twins_equal(&s, "state");
}

/* Of attention: sizes that both forms draw. */
typedef struct attn_shape {
    int32_t n_q, dim, n_keys, n_rows, n_out, n_keys_max;
} attn_shape;

static attn_shape attn_sizes(void)
{
    attn_shape s = {.n_q = PICK(1, 2, 3, 4, 6, 7, 8, 8, 8, 9, 16, rng_range(1, 110))};

    s.dim = PICK(256, 256, 64, 128, 16, 80, rng_range(1, 260), rng_range(260, SWL_HEAD_MAX));
    s.n_keys = PICK(1, 2, 15, 16, 17, 63, 64, 65, 128, 200, rng_range(1, 300));
    s.n_rows = PICK(1, 1, 2, 3, 8, 9, 12, rng_range(1, 40));
    if (rng_next() % 8 == 0) /* about the end of a segment, which later rows do not pass */
        s.n_keys = PICK(SWL_ATTN_SEGMENT, SWL_ATTN_SEGMENT - 5, rng_range(800, SWL_ATTN_SEGMENT));
    if (s.n_q > 16)
        s.n_rows = PICK(1, 2);
    s.n_out = s.n_rows * s.n_q;
    s.n_keys_max = s.n_keys + s.n_rows - 1 < SWL_ATTN_SEGMENT ? s.n_keys + s.n_rows - 1 : SWL_ATTN_SEGMENT;
    case_note("rows %d, queries %d, dim %d, keys %d", s.n_rows, s.n_q, s.dim, s.n_keys);
    return s;
}

typedef void attn_kv_fn(const int16_t *, const float *, int32_t, int32_t, int32_t, const swl_kv *, int32_t, float *, float *,
                        float *);

/* Mostly of all sizes, sometimes the largest there are; now and then some that should not be, as in a forged file. */
static int16_t *integers(int64_t n)
{
    int16_t *x = mem_take((size_t)n * sizeof *x, (size_t)PICK(0, 2, 16));
    int32_t bits = PICK(1, 4, 11, 11, 11, 15), sign = PICK(0, 1, 2);
    int64_t i;

    for (i = 0; i < n; i++) {
        x[i] = (int16_t)(rng_next() % 16 ? (int32_t)(rng_next() % (1u << bits)) : SWL_KV_MAX);
        if (sign == 1 || (sign == 2 && rng_next() % 2))
            x[i] = (int16_t)-x[i];
    }
    return x;
}

static float *scales(int64_t n, float magnitude)
{
    float *x = ordinary(n, magnitude);
    int64_t i;

    for (i = 0; i < n; i++)
        x[i] = fabsf(x[i]);
    return x;
}

static bool attn_kv_case(any_fn *ref, any_fn *fn, int32_t type)
{
    attn_shape s = attn_sizes();
    int32_t dim = swl_head_padded(s.dim), n_blocks = (s.n_keys_max + SWL_KV_BLOCK - 1) / SWL_KV_BLOCK, k, i;
    int64_t ld = (dim + PICK(0, 0, dim, 2)) * SWL_KV_BLOCK, lds = SWL_KV_BLOCK + PICK(0, 0, 16, 3);
    int64_t n = (n_blocks - 1) * ld + dim * SWL_KV_BLOCK, n_scales = (n_blocks - 1) * lds + SWL_KV_BLOCK;
    float *q_scale = scales(s.n_out, 1e-4f), *v_scale = scales(n_scales, 1.0f);
    int16_t *q = integers((int64_t)s.n_out * dim);
    swl_kv kv = {integers(n), integers(n), scales(n_scales, (float)PICK(1, 1, 100) * 1e-3f), v_scale, ld, lds};
    twins m = twins_take((size_t)s.n_out * 4), l = twins_take((size_t)s.n_out * 4);
    twins o = twins_take((size_t)(s.n_out * dim) * 4);

    (void)type;
    for (i = 0; i < n_scales; i++) /* values of nothing but zeros, now and then all of them */
        if (rng_next() % 32 == 0 || s.n_rows == 3)
            v_scale[i] = 0.0f;
    for (k = 0; k < 2; k++)
        ((attn_kv_fn *)(k ? fn : ref))(q, q_scale, s.n_rows, s.n_q, dim, &kv, s.n_keys, F(m.at[k]), F(l.at[k]),
                                       F(o.at[k]));
    return twins_equal(&m, "m") && twins_equal(&l, "l") && twins_equal(&o, "o");
}

typedef void attn_f32_fn(const float *, int32_t, int32_t, int32_t, const float *, const float *, int64_t, int32_t, float,
                         float *, float *, float *);

static bool attn_f32_case(any_fn *ref, any_fn *fn, int32_t type)
{
    attn_shape s = attn_sizes();
    int64_t ld = s.dim + PICK(0, 0, s.dim, 5), n = (s.n_keys_max - 1) * ld + s.dim;
    float *q = ordinary(s.n_out * s.dim, 2.0f), *key = ordinary(n, (float)PICK(1, 4, 30)), *v = ordinary(n, 3.0f);
    twins m = twins_take((size_t)s.n_out * 4), l = twins_take((size_t)s.n_out * 4);
    twins o = twins_take((size_t)(s.n_out * s.dim) * 4);
    int32_t k;

    (void)type;
    for (k = 0; k < 2; k++)
        ((attn_f32_fn *)(k ? fn : ref))(q, s.n_rows, s.n_q, s.dim, key, v, ld, s.n_keys, 1.0f / sqrtf((float)s.dim),
                                        F(m.at[k]), F(l.at[k]), F(o.at[k]));
    return twins_equal(&m, "m") && twins_equal(&l, "l") && twins_equal(&o, "o");
}

const slot_test mixer_tests[] = {
    {"delta_scan", delta_case, 40}, {"attn_kv", attn_kv_case, 60}, {"attn_f32", attn_f32_case, 40}, {NULL, NULL, 0}};
