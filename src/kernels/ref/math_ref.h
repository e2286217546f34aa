/* math_ref.h: the scalar elementary functions that every kernel level repeats operation by operation. */
#ifndef SWL_KERNELS_MATH_REF_H
#define SWL_KERNELS_MATH_REF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/*
 * exp(x) = 2^n * exp(r), n = round(x / ln 2), r = x - n ln 2 in two fused steps (Cody and Waite 1980, ch. 6: ln 2 split
 * into a head with trailing zeros and a tail), exp(r) by its Taylor polynomial of degree 7 in Horner form (|r| <= 0.347:
 * the first term left out, r^8 / 40320, is 5e-9).
 */
#define SWL_EXP_MIN  (-87.33f) /* below: 0 */
#define SWL_EXP_MAX  88.37f    /* above: clamped */
#define SWL_LOG2E    1.44269504088896341f
#define SWL_LN2_HI   0.693145751953125f
#define SWL_LN2_LO   1.42860682030941723e-6f

static inline float ref_exp(float x)
{
    float n, r, p, s;
    uint32_t bits;

    if (!(x >= SWL_EXP_MIN))
        return x != x ? x : 0.0f;
    if (x > SWL_EXP_MAX)
        x = SWL_EXP_MAX;
    n = rintf(x * SWL_LOG2E);
    r = fmaf(n, -SWL_LN2_HI, x);
    r = fmaf(n, -SWL_LN2_LO, r);
    p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    bits = (uint32_t)((int32_t)n + 127) << 23;
    memcpy(&s, &bits, sizeof s);
    return p * s;
}

static inline float ref_sigmoid(float x)
{
    return 1.0f / (1.0f + ref_exp(-x));
}

static inline float ref_silu(float x)
{
    return x * ref_sigmoid(x);
}

/* The nearest whole number, half to even, within bounds; NaN, which an infinite or a tiny maximum makes of a quotient, is low. */
static inline float ref_round_within(float x, float low, float high)
{
    float r = rintf(x);

    return r > high ? high : r >= low ? r : low;
}

/* What a block of keys makes of a query's running maximum m and sum l: `top` is the block's largest score, `sum` that of its
 * probabilities against it. Returns what these count from now on, *old what all before does. */
static inline float ref_renormalise(float top, float sum, float *m, float *l, float *old)
{
    float max = top > *m ? top : *m, now = ref_exp(top - max);

    *old = ref_exp(*m - max);
    *l = fmaf(*l, *old, now * sum);
    *m = max;
    return now;
}

/* Before the first block: n queries, whose outputs are dim apart. */
static inline void ref_clear_results(int32_t n, int32_t dim, float *m, float *l, float *o)
{
    int32_t i;

    for (i = 0; i < n; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
    }
    for (i = 0; i < n * dim; i++)
        o[i] = 0.0f;
}

/* Folds 16 lanes into lane 0: i + 8, i + 4, i + 2, i + 1. */
static inline float ref_fold(float lane[16])
{
    int half, i;

    for (half = 8; half; half /= 2)
        for (i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

#endif
