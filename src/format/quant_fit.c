/*
 * quant_fit.c: scale and bias of a group by search and least squares.
 *
 * For given codes q the best scale and bias are a line through the points (q, x). So: try nine ranges, each end of the
 * group's range drawn in by 0, 4 or 8 % (in steps of a four-bit code; wider codes less), quantise, fit the line, keep
 * the range with the least error left; quantise by its line and fit again; round the scale to BF16, fit the bias to the
 * rounded scale, round it, and quantise by what is stored. MLX's own scale and bias, rounded and quantised by, are the
 * last candidate. On normally distributed weights in groups of 64 this leaves 0.90 of MLX's root mean square error at 4
 * bits and 0.68 at 8 bits, where MLX quantises by a scale that it then rounds.
 *
 * Sixteen groups are fitted side by side, element i of group g at [i * MANY + g], so that each loop over g is one
 * operation on a vector register and nothing branches on data. (Short ones have a pragma: gcc would unroll them first and
 * then see no loop.) All sums of a group run over four lanes, elements in order, then in double over the lanes: the same
 * bits on every machine, whatever the width of its registers.
 */
#include "format/quant_fit.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"

#define MANY      16
#define LANES     4
#define GROUP_MAX 128
#define RUN       8          /* codes that fill whole bytes at every width */
#define MAGIC     8388608.0f /* 2^23: adding and subtracting it rounds 0..255 to even */
#define SMALL     1e-30f     /* a range below this is none */
#define INLINE    static inline __attribute__((always_inline)) /* into the copies for other processors */

/* Lines value = scale * q + bias, and the squared errors that they leave; found: whether there is one yet. */
typedef struct lines {
    double scale[MANY], bias[MANY], error[MANY];
    int64_t found[MANY];
} lines;

/* Groups whose least elements are moved to 0, and what does not depend on codes. */
typedef struct groups {
    float t[GROUP_MAX * MANY], min[MANY], max[MANY], steps;
    int32_t n;
    double sum[MANY], squares[MANY];
} groups;

/* The code of x as a number. */
INLINE float code(float x, float bias, float inverse, float steps)
{
    float v = (x - bias) * inverse;

    v = v > 0 ? v : 0;
    v = v < steps ? v : steps;
    return (v + MAGIC) - MAGIC;
}

INLINE float round_bf16(float x)
{
    uint32_t u, quiet;

    memcpy(&u, &x, sizeof u);
    quiet = (u | 0x400000) & 0xffff0000;
    u = (u & 0x7fffffff) > 0x7f800000 ? quiet : (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &u, sizeof u);
    return x;
}

/* By way of a copy: gcc keeps the lane's loop in registers only if this one does not read it piece by piece. */
INLINE void add_lane(double *sum, const float *lane)
{
    float x[MANY];

    memcpy(x, lane, sizeof x);
    for (int g = 0; g < MANY; g++)
        sum[g] += (double)x[g];
}

/* Sums over the codes that `bias` and 1 / `inverse` give. */
INLINE void sum_codes(const float *restrict t, int32_t n, const float *restrict bias, const float *restrict inverse,
                      float steps, double *restrict q, double *restrict qq, double *restrict tq)
{
    memset(q, 0, MANY * sizeof *q);
    memset(qq, 0, MANY * sizeof *qq);
    memset(tq, 0, MANY * sizeof *tq);
    for (int j = 0; j < LANES; j++) {
        float q_[MANY] = {0}, qq_[MANY] = {0}, tq_[MANY] = {0};

        for (int32_t i = j; i < n; i += LANES)
            for (int g = 0; g < MANY; g++) {
                float x = t[i * MANY + g], c = code(x, bias[g], inverse[g], steps);

                q_[g] += c;
                qq_[g] += c * c;
                tq_[g] += c * x;
            }
        add_lane(q, q_);
        add_lane(qq, qq_);
        add_lane(tq, tq_);
    }
}

/* The best lines for the codes that `bias` and 1 / `inverse` give, where the codes are not all equal, take the place of
 * lines that leave a larger error. */
INLINE void fit(const groups *a, const float *bias, const float *inverse, lines *best)
{
    double q[MANY], qq[MANY], tq[MANY], n = a->n;

    sum_codes(a->t, a->n, bias, inverse, a->steps, q, qq, tq);
    for (int g = 0; g < MANY; g++) {
        double d = n * qq[g] - q[g] * q[g];
        double s = (n * tq[g] - q[g] * a->sum[g]) / d, b = (qq[g] * a->sum[g] - q[g] * tq[g]) / d;
        double error = a->squares[g] - s * tq[g] - b * a->sum[g];
        int64_t some = !(d <= 0), take = some & (!best->found[g] | (error < best->error[g]));

        best->scale[g] = take ? s : best->scale[g];
        best->bias[g] = take ? b : best->bias[g];
        best->error[g] = take ? error : best->error[g];
        best->found[g] |= some;
    }
}

/* The means of t - scale * q for the codes of lines. */
INLINE void fit_bias(const groups *a, const float *bias, const float *scale, double *mean)
{
    float inverse[MANY];

    memset(mean, 0, MANY * sizeof *mean);
    for (int g = 0; g < MANY; g++)
        inverse[g] = 1.0f / scale[g];
    for (int j = 0; j < LANES; j++) {
        float rest[MANY] = {0};

        for (int32_t i = j; i < a->n; i += LANES)
            for (int g = 0; g < MANY; g++) {
                float t = a->t[i * MANY + g];

                rest[g] += t - scale[g] * code(t, bias[g], inverse[g], a->steps);
            }
        add_lane(mean, rest);
    }
    for (int g = 0; g < MANY; g++)
        mean[g] /= a->n;
}

/* The squared errors of x under a scale and bias as stored. */
INLINE void errors_of(const float *x, int32_t n, const float *scale, const float *bias, float steps, double *error)
{
    float inverse[MANY];

    memset(error, 0, MANY * sizeof *error);
    for (int g = 0; g < MANY; g++)
        inverse[g] = 1.0f / scale[g];
    for (int j = 0; j < LANES; j++) {
        float sum[MANY] = {0};

        for (int32_t i = j; i < n; i += LANES)
            for (int g = 0; g < MANY; g++) {
                float e = x[i * MANY + g] - (scale[g] * code(x[i * MANY + g], bias[g], inverse[g], steps) + bias[g]);

                sum[g] += e * e;
            }
        add_lane(error, sum);
    }
}

/* Each group's least and greatest element. */
INLINE void range_of(const float *x, int32_t n, float *min, float *max)
{
    memcpy(min, x, MANY * sizeof *min);
    memcpy(max, x, MANY * sizeof *max);
    for (int j = 0; j < LANES; j++) {
        float lo[MANY], hi[MANY];

        memcpy(lo, x + j * MANY, sizeof lo);
        memcpy(hi, x + j * MANY, sizeof hi);
        for (int32_t i = j + LANES; i < n; i += LANES)
#pragma GCC unroll 1
            for (int g = 0; g < MANY; g++) {
                float v = x[i * MANY + g];

                lo[g] = v < lo[g] ? v : lo[g];
                hi[g] = v > hi[g] ? v : hi[g];
            }
        for (int g = 0; g < MANY; g++) {
            min[g] = lo[g] < min[g] ? lo[g] : min[g];
            max[g] = hi[g] > max[g] ? hi[g] : max[g];
        }
    }
}

/* Moves the least elements to 0. */
INLINE void take_groups(groups *a, const float *x)
{
    memset(a->sum, 0, sizeof a->sum);
    memset(a->squares, 0, sizeof a->squares);
    for (int j = 0; j < LANES; j++) {
        float sum[MANY] = {0}, squares[MANY] = {0};

        for (int32_t i = j; i < a->n; i += LANES)
#pragma GCC unroll 1
            for (int g = 0; g < MANY; g++) {
                float t = x[i * MANY + g] - a->min[g];

                a->t[i * MANY + g] = t;
                sum[g] += t;
                squares[g] += t * t;
            }
        add_lane(a->sum, sum);
        add_lane(a->squares, squares);
    }
}

/* MLX's choice, rounded as it is stored: the end that is farther from zero is met, and so is zero. */
INLINE void mlx_lines(const groups *a, float *scale, float *bias)
{
    for (int g = 0; g < MANY; g++) {
        float min = a->min[g], max = a->max[g], s = (max - min) / a->steps, edge, q0, met;

        s = s > 1e-7f ? s : 1e-7f;
        edge = fabsf(min) > fabsf(max) ? min : max;
        s = fabsf(min) > fabsf(max) ? s : -s;
        q0 = rintf(edge / s);
        met = edge / q0;
        scale[g] = round_bf16(q0 != 0 ? met : s);
        bias[g] = round_bf16(q0 != 0 ? edge : 0);
    }
}

/* The best of the ranges; usable: not for groups that are as good as constant. */
INLINE void search(const groups *a, int bits, lines *best, int64_t *usable)
{
    float draw = 0.04f * 15.0f / a->steps, bias[MANY], inverse[MANY];
    int tries = bits <= 6 ? 3 : 1;

    draw = draw < 0.04f ? draw : 0.04f;
    memset(best, 0, sizeof *best);
    for (int i = 0; i < tries; i++)
        for (int k = 0; k < tries; k++) {
            for (int g = 0; g < MANY; g++) {
                float range = a->max[g] - a->min[g];

                bias[g] = range * draw * (float)i;
                inverse[g] = a->steps / (range * (1.0f - draw * (float)(i + k)));
            }
            fit(a, bias, inverse, best);
        }
    for (int g = 0; g < MANY; g++) {
        usable[g] = (a->max[g] - a->min[g] > SMALL) & best->found[g] & (best->scale[g] > 0);
        bias[g] = (float)best->bias[g];
        inverse[g] = (float)(1 / best->scale[g]);
    }
    fit(a, bias, inverse, best);
    for (int g = 0; g < MANY; g++)
        usable[g] &= best->scale[g] > 0;
}

/* Scale and bias of each group. */
INLINE void fit_groups(const float *x, int32_t n, int bits, float *scale, float *bias)
{
    groups a = {.steps = (float)((1 << bits) - 1), .n = n};
    float s[MANY], b[MANY];
    double mean[MANY], error[MANY], ours[MANY];
    int64_t usable[MANY];
    lines best;

    range_of(x, n, a.min, a.max);
    mlx_lines(&a, scale, bias);
    errors_of(x, n, scale, bias, a.steps, error);
    take_groups(&a, x);
    search(&a, bits, &best, usable);
    for (int g = 0; g < MANY; g++) {
        s[g] = round_bf16((float)best.scale[g]);
        b[g] = (float)best.bias[g];
    }
    fit_bias(&a, b, s, mean);
    for (int g = 0; g < MANY; g++)
        b[g] = round_bf16((float)(mean[g] + (double)a.min[g]));
    errors_of(x, n, s, b, a.steps, ours);
    for (int g = 0; g < MANY; g++) {
        int64_t take = usable[g] & (s[g] > SMALL) & (ours[g] < error[g]);

        scale[g] = take ? s[g] : scale[g];
        bias[g] = take ? b[g] : bias[g];
    }
}

/* The codes of the first m groups by what is stored, packed. */
INLINE void pack(const float *x, int32_t n, int32_t m, int bits, const float *scale, const float *bias, uint8_t *data)
{
    uint8_t packed[MANY][GROUP_MAX + RUN]; /* words reach over the end */
    float inverse[MANY], steps = (float)((1 << bits) - 1);
    int32_t n_bytes = n * bits / 8;

    for (int g = 0; g < MANY; g++)
        inverse[g] = 1.0f / scale[g];
    for (int32_t i = 0; i < n; i += RUN) {
        uint64_t word[MANY] = {0};

        for (int k = 0; k < RUN; k++)
            for (int g = 0; g < MANY; g++)
                word[g] |= (uint64_t)(int32_t)code(x[(i + k) * MANY + g], bias[g], inverse[g], steps) << (k * bits);
        for (int g = 0; g < MANY; g++)
            memcpy(packed[g] + i / RUN * bits, &word[g], sizeof word[g]);
    }
    for (int32_t g = 0; g < m; g++)
        memcpy(data + g * n_bytes, packed[g], (size_t)n_bytes);
}

typedef struct row {
    const float *x;
    int32_t cols, n; /* n: of a group */
    int bits;
    uint8_t *data;
    uint16_t *scales, *biases;
} row;

INLINE void fit_row(const row *r)
{
    float x[GROUP_MAX * MANY], scale[MANY], bias[MANY];
    int32_t n_groups = r->cols / r->n;

    for (int32_t first = 0; first < n_groups; first += MANY) {
        int32_t m = n_groups - first < MANY ? n_groups - first : MANY;

        for (int32_t g = 0; g < MANY; g++) /* the last one again where there are too few */
            for (int32_t i = 0; i < r->n; i++)
                x[i * MANY + g] = r->x[(int64_t)(first + (g < m ? g : m - 1)) * r->n + i];
        fit_groups(x, r->n, r->bits, scale, bias);
        pack(x, r->n, m, r->bits, scale, bias, r->data + (int64_t)first * r->n * r->bits / 8);
        for (int32_t g = 0; g < m; g++) {
            r->scales[first + g] = swl_f32_to_bf16(scale[g]);
            r->biases[first + g] = swl_f32_to_bf16(bias[g]);
        }
    }
}

/* One copy for each kind of processor. */
static void fit_row_plain(const row *r)
{
    fit_row(r);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void fit_row_avx2(const row *r)
{
    fit_row(r);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void fit_row_avx512(const row *r)
{
    fit_row(r);
}
#endif

void swl_affine_fit_row_on(uint32_t cpu, const float *x, int32_t cols, int32_t bits, int32_t group, uint8_t *data,
                           uint16_t *scales, uint16_t *biases)
{
    row r = {x, cols, group, bits, data, scales, biases};

    assert(group > 0 && group <= GROUP_MAX && group % RUN == 0 && cols % group == 0);
    assert(bits >= 2 && bits <= 8 && bits != 7);
#if defined(__x86_64__)
    if (cpu & SWL_CPU_AVX512)
        fit_row_avx512(&r);
    else if (cpu & SWL_CPU_AVX2)
        fit_row_avx2(&r);
    else
        fit_row_plain(&r);
#else
    (void)cpu;
    fit_row_plain(&r);
#endif
}

static uint32_t flags;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look(void)
{
    flags = swl_cpu_flags();
}

void swl_affine_fit_row(const float *x, int32_t cols, int32_t bits, int32_t group, uint8_t *data, uint16_t *scales,
                        uint16_t *biases)
{
    pthread_once(&once, look);
    swl_affine_fit_row_on(flags, x, cols, bits, group, data, scales, biases);
}
