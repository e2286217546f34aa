/* cases_elem.c: cases of the slots that work on one row at a time. */
#include "check.h"

#include <stddef.h>

#define F(p) ((float *)(void *)(p))

static int32_t random_n(void)
{
    return PICK(1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 256, 512, 1000, 2048, 2049, rng_range(1, 2200));
}

static float *values(int64_t n, float magnitude)
{
    return rng_next() % 4 ? ordinary(n, magnitude) : worst(n);
}

/* Arguments of exp and sigmoid: the whole range, its ends, and far outside. */
static float *exponents(int64_t n)
{
    float *x = ordinary(n, (float)PICK(1, 20, 100, 400));
    int64_t i;

    for (i = 0; i < n; i++)
        if (rng_next() % 32 == 0)
            x[i] =
                (float)PICK(0, 87, 88, 89, -87, -88, -103, -150, 3000000, -3000000) + (rng_next() & 1 ? 0.33f : 0.375f);
    return x;
}

static bool quantise_case(any_fn *ref, any_fn *fn, int32_t type)
{
    int32_t cols = random_n(), groups = (cols + 63) / 64, i;
    float *x = values(cols, 30.0f);
    twins q = twins_take((size_t)groups * 64), scale = twins_take((size_t)groups * 4),
          sum = twins_take((size_t)groups * 16);

    (void)type;
    if (rng_next() % 4 == 0)
        for (i = 0; i < cols; i++) /* halves: ties of the rounding */
            x[i] = i % 64 == 0 ? 127.0f : (float)rng_range(-254, 254) * 0.5f;
    case_note("cols %d", cols);
    ((void (*)(const float *, int32_t, int8_t *, float *, int32_t *))ref)(x, cols, (int8_t *)q.at[0], F(scale.at[0]),
                                                                          (int32_t *)(void *)sum.at[0]);
    ((void (*)(const float *, int32_t, int8_t *, float *, int32_t *))fn)(x, cols, (int8_t *)q.at[1], F(scale.at[1]),
                                                                         (int32_t *)(void *)sum.at[1]);
    return twins_equal(&scale, "scale") && twins_equal(&q, "q") && twins_equal(&sum, "sum");
}

typedef void norm_fn(float *, const float *, const float *, int32_t, float);

static bool rms_case(any_fn *ref, any_fn *fn, int32_t type)
{
    int32_t n = random_n();
    bool alias = rng_next() & 1;
    float *x = values(n, 5.0f), *w = ordinary(n, 2.0f);
    twins out = twins_copy(x, (size_t)n * 4);

    (void)type;
    case_note("n %d%s", n, alias ? ", in place" : "");
    ((norm_fn *)ref)(F(out.at[0]), alias ? F(out.at[0]) : x, w, n, 1e-6f);
    ((norm_fn *)fn)(F(out.at[1]), alias ? F(out.at[1]) : x, w, n, 1e-6f);
    return twins_equal(&out, "out");
}

static bool l2_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void l2_fn(float *, int32_t, float, float);
    int32_t n = random_n();
    twins x = twins_copy(values(n, 5.0f), (size_t)n * 4);

    (void)type;
    case_note("n %d", n);
    ((l2_fn *)ref)(F(x.at[0]), n, 1e-6f, 0.0883883f);
    ((l2_fn *)fn)(F(x.at[1]), n, 1e-6f, 0.0883883f);
    return twins_equal(&x, "x");
}

static bool gated_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void gated_fn(float *, const float *, const float *, const float *, int32_t, float);
    int32_t n = random_n();
    bool alias = rng_next() & 1;
    float *o = values(n, 3.0f), *z = exponents(n), *w = ordinary(n, 2.0f);
    twins out = twins_copy(o, (size_t)n * 4);

    (void)type;
    case_note("n %d%s", n, alias ? ", in place" : "");
    ((gated_fn *)ref)(F(out.at[0]), alias ? F(out.at[0]) : o, z, w, n, 1e-6f);
    ((gated_fn *)fn)(F(out.at[1]), alias ? F(out.at[1]) : o, z, w, n, 1e-6f);
    return twins_equal(&out, "out");
}

static bool silu_mul_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void mul_fn(float *, const float *, const float *, int32_t);
    int32_t n = random_n(), alias = rng_range(0, 2);
    float *gate = exponents(n), *up = values(n, 3.0f);
    twins out = twins_copy(alias == 1 ? gate : up, (size_t)n * 4);
    int k;

    (void)type;
    case_note("n %d, out is %s", n, alias == 0 ? "apart" : alias == 1 ? "gate" : "up");
    for (k = 0; k < 2; k++)
        ((mul_fn *)(k ? fn : ref))(F(out.at[k]), alias == 1 ? F(out.at[k]) : gate, alias == 2 ? F(out.at[k]) : up, n);
    return twins_equal(&out, "out");
}

static bool update_case(any_fn *ref, any_fn *fn, const float *y, int32_t n)
{
    typedef void update_fn(float *, const float *, int32_t);
    twins x = twins_copy(values(n, 3.0f), (size_t)n * 4);

    case_note("n %d", n);
    ((update_fn *)ref)(F(x.at[0]), y, n);
    ((update_fn *)fn)(F(x.at[1]), y, n);
    return twins_equal(&x, "x");
}

static bool sigmoid_mul_case(any_fn *ref, any_fn *fn, int32_t type)
{
    int32_t n = random_n();

    (void)type;
    return update_case(ref, fn, exponents(n), n);
}

static bool add_case(any_fn *ref, any_fn *fn, int32_t type)
{
    int32_t n = random_n();

    (void)type;
    return update_case(ref, fn, values(n, 3.0f), n);
}

static bool axpy_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void axpy_fn(float *, float, const float *, int32_t);
    int32_t n = random_n();
    float *y = values(n, 3.0f), a = ordinary(1, 2.0f)[0];
    twins x = twins_copy(values(n, 3.0f), (size_t)n * 4);

    (void)type;
    case_note("n %d", n);
    ((axpy_fn *)ref)(F(x.at[0]), a, y, n);
    ((axpy_fn *)fn)(F(x.at[1]), a, y, n);
    return twins_equal(&x, "x");
}

/* Two calls in a row on the same state, as a prompt in chunks. */
static bool conv_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void conv_fn(float *, int64_t, float *, const float *, int64_t, const float *, int64_t, int32_t, int32_t,
                         int32_t);
    int32_t n = random_n(), n_tok = PICK(1, 1, 2, 3, 4, 5, 8, 17), width = PICK(1, 2, 3, 4, 4, 4, 5), k, call;
    int64_t ldu = n + PICK(0, 3), ldo, lds = n + PICK(0, 5);
    bool alias = rng_next() & 1;
    float *u = values(n_tok * ldu, 3.0f), *w = ordinary(width * lds, 1.0f);
    twins state = twins_copy(values(width * lds, 3.0f), (size_t)((width - 1) * lds) * 4);
    twins out;

    (void)type;
    ldo = alias ? ldu : n + PICK(0, 9);
    out = alias ? twins_copy(u, (size_t)(n_tok * ldu) * 4) : twins_take((size_t)(n_tok * ldo) * 4);
    case_note("n %d, tokens %d, width %d, strides %d %d %d%s", n, n_tok, width, (int)ldo, (int)ldu, (int)lds,
              alias ? ", in place" : "");
    for (k = 0; k < 2; k++)
        for (call = 0; call < 2; call++)
            ((conv_fn *)(k ? fn : ref))(F(out.at[k]), ldo, F(state.at[k]), alias ? F(out.at[k]) : u, ldu, w, lds, n,
                                        n_tok, width);
    return twins_equal(&out, "out") && twins_equal(&state, "state");
}

static bool rope_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void rope_fn(float *, int32_t, const float *, const float *);
    int32_t half = PICK(1, 4, 8, 16, 24, 32, 64, rng_range(1, 70));
    float *c = ordinary(half, 1.0f), *s = ordinary(half, 1.0f);
    twins x = twins_copy(values(2 * half, 5.0f), (size_t)half * 8);

    (void)type;
    case_note("n_rot %d", 2 * half);
    ((rope_fn *)ref)(F(x.at[0]), 2 * half, c, s);
    ((rope_fn *)fn)(F(x.at[1]), 2 * half, c, s);
    return twins_equal(&x, "x");
}

static bool quantise_kv_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef void kv_fn(const float *, int32_t, int16_t *, float *);
    int32_t n = random_n(), i;
    float *x = values(n, 5.0f);
    twins q = twins_take((size_t)swl_head_padded(n) * 2), scale = twins_take(4);

    (void)type;
    if (rng_next() % 4 == 0)
        for (i = 0; i < n; i++) /* halves: ties of the rounding */
            x[i] = i == n / 2 ? (float)SWL_KV_MAX : (float)rng_range(-2 * SWL_KV_MAX, 2 * SWL_KV_MAX) * 0.5f;
    case_note("n %d", n);
    ((kv_fn *)ref)(x, n, (int16_t *)(void *)q.at[0], F(scale.at[0]));
    ((kv_fn *)fn)(x, n, (int16_t *)(void *)q.at[1], F(scale.at[1]));
    return twins_equal(&scale, "scale") && twins_equal(&q, "q");
}

static bool softmax_case(any_fn *ref, any_fn *fn, int32_t type)
{
    typedef float softmax_fn(float *, const float *, int32_t);
    int32_t n = random_n();
    bool alias = rng_next() & 1;
    float *x = rng_next() & 1 ? exponents(n) : ordinary(n, 5.0f);
    twins p = twins_copy(x, (size_t)n * 4), sum = twins_take(4);

    (void)type;
    case_note("n %d%s", n, alias ? ", in place" : "");
    *F(sum.at[0]) = ((softmax_fn *)ref)(F(p.at[0]), alias ? F(p.at[0]) : x, n);
    *F(sum.at[1]) = ((softmax_fn *)fn)(F(p.at[1]), alias ? F(p.at[1]) : x, n);
    return twins_equal(&p, "p") && twins_equal(&sum, "sum");
}

const slot_test elem_tests[] = {{"quantise_act", quantise_case, 200},
                                {"rms_norm", rms_case, 200},
                                {"l2_norm", l2_case, 200},
                                {"gated_norm", gated_case, 200},
                                {"silu_mul", silu_mul_case, 200},
                                {"sigmoid_mul", sigmoid_mul_case, 200},
                                {"add", add_case, 100},
                                {"axpy", axpy_case, 100},
                                {"conv_silu", conv_case, 200},
                                {"rope", rope_case, 100},
                                {"quantise_kv", quantise_kv_case, 200},
                                {"softmax_exp", softmax_case, 200},
                                {NULL, NULL, 0}};
