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

typedef void attn_fn(const float *, int32_t, int32_t, int32_t, const void *, const void *, int64_t, int32_t, float,
                     float *, float *, float *);

static const void *to_half(const float *x, int64_t n)
{
    uint16_t *h = mem_take((size_t)n * 2, (size_t)PICK(0, 2, 16));
    int64_t i;

    for (i = 0; i < n; i++)
        h[i] = swl_f32_to_f16(x[i]);
    return h;
}

static bool attn_case(any_fn *ref, any_fn *fn, bool half)
{
    int32_t n_q = PICK(1, 2, 3, 4, 6, 7, 8, 8, 8, 9, 16), dim = PICK(256, 256, 64, 128, 16, 80, rng_range(1, 260)), k;
    int32_t n_keys = PICK(1, 2, 15, 16, 17, 63, 64, 65, 128, 200, rng_range(1, 300)), n_keys_max;
    int32_t n_rows = PICK(1, 1, 2, 3, 8, 9, 12, rng_range(1, 40)), n_out = n_rows * n_q;
    int64_t ldkv, n;
    float *q = ordinary(n_out * dim, 2.0f), *kf, *vf, scale = 1.0f / sqrtf((float)dim);
    const void *key, *v;
    twins m = twins_take((size_t)n_out * 4), l = twins_take((size_t)n_out * 4);
    twins o = twins_take((size_t)(n_out * dim) * 4);

    if (rng_next() % 8 == 0) /* about the end of a segment, which later rows do not pass */
        n_keys = PICK(SWL_ATTN_SEGMENT, SWL_ATTN_SEGMENT - 5, rng_range(800, SWL_ATTN_SEGMENT));
    ldkv = dim + PICK(0, 0, dim, 5);
    n_keys_max = n_keys + n_rows - 1 < SWL_ATTN_SEGMENT ? n_keys + n_rows - 1 : SWL_ATTN_SEGMENT;
    n = (n_keys_max - 1) * ldkv + dim;
    kf = ordinary(n, (float)PICK(1, 4, 30));
    vf = ordinary(n, 3.0f);
    key = half ? to_half(kf, n) : kf;
    v = half ? to_half(vf, n) : vf;
    case_note("rows %d, queries %d, dim %d, keys %d, stride %d", n_rows, n_q, dim, n_keys, (int)ldkv);
    for (k = 0; k < 2; k++)
        ((attn_fn *)(k ? fn : ref))(q, n_rows, n_q, dim, key, v, ldkv, n_keys, scale, F(m.at[k]), F(l.at[k]),
                                    F(o.at[k]));
    return twins_equal(&m, "m") && twins_equal(&l, "l") && twins_equal(&o, "o");
}

static bool attn_f16_case(any_fn *ref, any_fn *fn, int32_t type)
{
    (void)type;
    return attn_case(ref, fn, true);
}

static bool attn_f32_case(any_fn *ref, any_fn *fn, int32_t type)
{
    (void)type;
    return attn_case(ref, fn, false);
}

const slot_test mixer_tests[] = {
    {"delta_scan", delta_case, 40}, {"attn_f16", attn_f16_case, 40}, {"attn_f32", attn_f32_case, 40}, {NULL, NULL, 0}};
