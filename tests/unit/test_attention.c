/* Attention over integers against softmax in double precision on the vectors that the integers were made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "kernels/kernels.h"

enum { DIM = 76, PADDED = 80, KEYS = 900, ROWS = 3, HEADS = 2, QUERIES = ROWS * HEADS, FIRST = KEYS - ROWS + 1 };

static float noise(void)
{
    float sum = 0.0f;
    int i;

    for (i = 0; i < 4; i++)
        sum += (float)(rand() % 2001 - 1000) * 1e-3f;
    return sum;
}

static void fill(float *x, int32_t n, float magnitude)
{
    int32_t i;

    for (i = 0; i < n; i++)
        x[i] = noise() * magnitude;
}

/* Keys and values into blocks, by the words of kernels.h. */
static void lay_out(const swl_kernels *k, const float *x, bool values, int16_t *to, float *scale)
{
    int16_t q[PADDED];
    int32_t j, i;

    for (j = 0; j < KEYS; j++) {
        k->quantise_kv(x + j * DIM, DIM, q, &scale[j]);
        for (i = 0; i < PADDED; i++)
            if (values)
                to[j / 16 * PADDED * 16 + ((i / 16 * 8 + j % 16 / 2) * 16 + i % 16) * 2 + j % 2] = q[i];
            else
                to[j / 16 * PADDED * 16 + (i / 2 * 16 + j % 16) * 2 + i % 2] = q[i];
    }
}

/* out: softmax(q . k / sqrt(DIM)) v over n keys; returns the largest element of a value. */
static double attend(const float *q, const float *k, const float *v, int32_t n, double *out)
{
    double p[KEYS], max = -INFINITY, sum = 0, largest = 0;
    int32_t j, i;

    for (j = 0; j < n; j++) {
        for (p[j] = 0, i = 0; i < DIM; i++)
            p[j] += (double)q[i] * k[j * DIM + i] / sqrt(DIM);
        max = p[j] > max ? p[j] : max;
    }
    for (j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - max);
    for (i = 0; i < DIM; i++)
        for (out[i] = 0, j = 0; j < n; j++)
            out[i] += p[j] / sum * v[j * DIM + i];
    for (j = 0; j < n * DIM; j++)
        largest = fabs((double)v[j]) > largest ? fabs((double)v[j]) : largest;
    return largest;
}

/* The first key draws most of the attention and its value is next to nothing, as is common in trained models. */
static void sink(float *q, float *k, float *v, float strength)
{
    int32_t h, i;

    for (i = 0; i < DIM; i++) {
        v[i] *= 1e-3f;
        for (h = 0; h < QUERIES && i < 4; h++) {
            q[h * DIM + i] = 1.0f;
            k[i] = strength;
        }
    }
}

static void compare(float q_magnitude, float sink_strength, double bound)
{
    static float q[QUERIES * DIM], k[KEYS * DIM], v[KEYS * DIM], o[QUERIES * PADDED], m[QUERIES], l[QUERIES], q_scale[QUERIES];
    static int16_t qi[QUERIES * PADDED], ki[(KEYS + 15) * PADDED], vi[(KEYS + 15) * PADDED];
    static float k_scale[KEYS + 15], v_scale[KEYS + 15];
    swl_kv kv = {ki, vi, k_scale, v_scale, PADDED * 16, 16};
    swl_kernels table;
    int32_t h, i;

    swl_kernels_init(&table, swl_cpu_flags());
    srand(5);
    fill(q, QUERIES * DIM, q_magnitude);
    fill(k, KEYS * DIM, 1.0f);
    fill(v, KEYS * DIM, 1.0f);
    if (sink_strength > 0.0f)
        sink(q, k, v, sink_strength);
    lay_out(&table, k, false, ki, k_scale);
    lay_out(&table, v, true, vi, v_scale);
    for (h = 0; h < QUERIES; h++) {
        table.quantise_kv(q + h * DIM, DIM, qi + h * PADDED, &q_scale[h]);
        q_scale[h] /= sqrtf(DIM);
    }
    table.attn_kv(qi, q_scale, ROWS, HEADS, PADDED, &kv, FIRST, m, l, o);
    for (h = 0; h < QUERIES; h++) {
        double want[DIM], largest = attend(q + h * DIM, k, v, FIRST + h / HEADS, want);

        for (i = 0; i < DIM; i++)
            assert_true(fabs((double)o[h * PADDED + i] / l[h] - want[i]) < bound * largest);
    }
}

static void integers_attend_like_real_numbers(void **state)
{
    (void)state;
    compare(0.0f, 0.0f, 2e-5); /* all keys alike */
    compare(0.5f, 0.0f, 2e-4);
    compare(4.0f, 0.0f, 3e-3); /* few keys take all */
}

static void a_key_that_draws_all_leaves_the_others_their_share(void **state)
{
    (void)state;
    compare(0.1f, 15.0f, 1e-4);
    compare(0.1f, 25.0f, 2e-4); /* the value of the first counts 16 units of 16,383 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_attend_like_real_numbers),
        cmocka_unit_test(a_key_that_draws_all_leaves_the_others_their_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
