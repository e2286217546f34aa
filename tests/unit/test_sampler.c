/* The sampler against a plain one that sorts everything, and the generator against its authors' vectors. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "temp_root.h"

#define SAMPLING(t, k, p, m, s) {.temperature = t, .top_k = k, .top_p = p, .min_p = m, .repetition_penalty = 1, .seed = s}

#define N_MAX 4096

static float logits[N_MAX];
static swl_candidate scratch[N_MAX];

static uint32_t seed = 12345;

static uint32_t noise(void)
{
    return (seed = seed * 1664525 + 1013904223) >> 8;
}

static double noise_unit(void)
{
    return noise() / 16777216.0;
}

/* splitmix64 with the seed 1234567, first outputs (Vigna's splitmix64.c). */
static void seeds_by_splitmix64(void **state)
{
    swl_rng r;

    (void)state;
    swl_rng_init(&r, 1234567);
    assert_true(r.s[0] == UINT64_C(6457827717110365317));
    assert_true(r.s[1] == UINT64_C(3203168211198807973));
    assert_true(r.s[2] == UINT64_C(9817491932198370423));
    assert_true(r.s[3] == UINT64_C(4593380528125082431));
}

/* xoshiro256** with the state 1, 2, 3, 4, first outputs (xoshiro256starstar.c). Among 4096 equal logits the id drawn is
 * the top 12 bits. */
static void draws_by_xoshiro256_star_star(void **state)
{
    static const uint64_t outputs[] = {
        11520u,
        0u,
        1509978240u,
        1215971899390074240u,
        1216172134540287360u,
        607988272756665600u,
        16172922978634559625u,
        8476171486693032832u,
        10595114339597558777u,
        2904607092377533576u,
    };
    swl_rng r = {{1, 2, 3, 4}};
    swl_sampling p;

    (void)state;
    swl_sampling_init(&p);
    p.temperature = 1;
    for (int i = 0; i < N_MAX; i++)
        logits[i] = 2.5f;
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        assert_int_equal(swl_sample(logits, N_MAX, &p, &r, scratch), outputs[i] >> 52);
}

static void temperature_zero_is_the_argmax_with_the_lowest_id(void **state)
{
    swl_rng r, before;
    swl_sampling p;
    const float l[] = {1, 5, -2, 5, NAN, INFINITY};

    (void)state;
    swl_sampling_init(&p);
    swl_rng_init(&r, 1);
    before = r;
    assert_int_equal(swl_sample(l, 6, &p, &r, scratch), 1);
    p.temperature = -1;
    assert_int_equal(swl_sample(l, 6, &p, &r, scratch), 1);
    p.temperature = NAN;
    assert_int_equal(swl_sample(l, 6, &p, &r, scratch), 1);
    assert_memory_equal(&r, &before, sizeof r);
}

static void non_finite_logits_are_never_drawn(void **state)
{
    const float l[] = {NAN, -INFINITY, 0, INFINITY, 0, -NAN};
    const float none[] = {NAN, -INFINITY, INFINITY};
    swl_rng r;
    swl_sampling p;
    int seen[6] = {0};

    (void)state;
    swl_sampling_init(&p);
    swl_rng_init(&r, 7);
    assert_int_equal(swl_sample(none, 3, &p, &r, scratch), -1);
    assert_int_equal(swl_sample(l, 6, &p, &r, scratch), 2);
    p.temperature = 1;
    assert_int_equal(swl_sample(none, 3, &p, &r, scratch), -1);
    assert_int_equal(swl_sample(none, 0, &p, &r, scratch), -1);
    for (int i = 0; i < 200; i++)
        seen[swl_sample(l, 6, &p, &r, scratch)]++;
    assert_int_equal(seen[2] + seen[4], 200);
    assert_true(seen[2] > 60 && seen[4] > 60);
}

static void extreme_logits_and_temperatures_give_an_id(void **state)
{
    const float l[] = {-3.4e38f, 3.4e38f, 3.3e38f, 0};
    static const float temperatures[] = {1e-45f, 1e-30f, 1, 1e30f, INFINITY};
    swl_rng r;
    swl_sampling p;

    (void)state;
    swl_sampling_init(&p);
    swl_rng_init(&r, 3);
    for (size_t i = 0; i < 5; i++)
        for (int filter = 0; filter < 8; filter++) {
            int32_t id;

            p = (swl_sampling)SAMPLING(temperatures[i], filter & 1 ? 2 : 0, filter & 2 ? 0.5f : 1, filter & 4 ? 0.1f : 0, 0);
            id = swl_sample(l, 4, &p, &r, scratch);
            assert_in_range(id, 0, 3);
            if (temperatures[i] <= 1)
                assert_int_equal(id, 1);
        }
}

static void degenerate_filters_keep_the_best(void **state)
{
    const swl_sampling filters[] = {
        SAMPLING(1, 1, 1, 0, 0), SAMPLING(1, 0, 0, 0, 0), SAMPLING(1, 0, -1, 0, 0), SAMPLING(1, 0, 1, 1, 0),
        SAMPLING(1, 0, 1, 2, 0), SAMPLING(1, 3, 0, 0, 0), SAMPLING(1, 3, 1, 1, 0),  SAMPLING(1e-20f, 0, 1, 0, 0),
    };
    const float l[] = {0, 1, 3, 2};
    swl_rng r;

    (void)state;
    swl_rng_init(&r, 3);
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        for (int k = 0; k < 20; k++)
            assert_int_equal(swl_sample(l, 4, &filters[i], &r, scratch), 2);
}

/* ---- the plain sampler ---- */

typedef struct ref_item {
    double w;
    float logit;
    int32_t id;
} ref_item;

static int ref_order(const void *va, const void *vb)
{
    const ref_item *a = va, *b = vb;

    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static double ref_sum(const ref_item *v, int32_t n)
{
    double sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum += v[i].w;
    return sum;
}

static int ref_by_id(const void *va, const void *vb)
{
    const ref_item *a = va, *b = vb;

    return a->id < b->id ? -1 : 1;
}

static int32_t ref_sample(const float *l, int32_t n, const swl_sampling *p, double u)
{
    static ref_item v[N_MAX];
    double sum = 0, all;
    int32_t k = 0, n_finite = 0;

    for (int32_t i = 0; i < n; i++)
        if (isfinite(l[i]))
            v[n_finite++] = (ref_item){0, l[i], i};
    n = n_finite;
    if (!n)
        return -1;
    qsort(v, (size_t)n, sizeof *v, ref_order);
    for (int32_t i = 0; i < n; i++)
        v[i].w = exp(((double)v[i].logit - v[0].logit) / p->temperature);
    if (p->top_k && p->top_k < n)
        n = p->top_k;
    all = ref_sum(v, n);
    if (p->top_p < 1) {
        while (k < n && (!k || sum < (double)p->top_p * all))
            sum += v[k++].w;
        n = k;
    }
    while (n > 1 && v[n - 1].w < (double)p->min_p)
        n--;
    /* With neither top-k nor top-p the draw walks by id; else best first. */
    if (!k && (!p->top_k || p->top_k >= n_finite))
        qsort(v, (size_t)n, sizeof *v, ref_by_id);
    u *= ref_sum(v, n);
    sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (u < (sum += v[i].w))
            return v[i].id;
    return v[n - 1].id;
}

static int32_t ref_argmax(const float *l, int32_t n)
{
    int32_t best = -1;

    for (int32_t i = 0; i < n; i++)
        if (isfinite(l[i]) && (best < 0 || l[i] > l[best]))
            best = i;
    return best;
}

/* The next draw of the generator as a number in [0, 1): the published step, written again. */
static double ref_unit(swl_rng *r)
{
    uint64_t *s = r->s, x = s[1] * 5, result, t = s[1] << 17;

    result = ((x << 7) | (x >> 57)) * 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return (double)(result >> 11) / 9007199254740992.0;
}

static void random_logits(int32_t n, int kind)
{
    for (int32_t i = 0; i < n; i++) {
        double x = noise_unit();

        logits[i] = kind == 0 ? (float)(x * 4) : kind == 1 ? (float)(-3 * log(1 - x) * 4) : (float)(int)(x * 6);
    }
}

static void agrees_with_a_sampler_that_sorts_everything(void **state)
{
    static const int32_t sizes[] = {1, 2, 3, 17, 300, N_MAX};
    swl_rng r;

    (void)state;
    swl_rng_init(&r, 99);
    for (int round = 0; round < 1500; round++) {
        int32_t n = sizes[noise() % 6];
        swl_sampling p = SAMPLING((float)(0.1 + 2 * noise_unit()), 0, 1, 0, 0);

        random_logits(n, round % 3);
        if (noise() & 1)
            p.top_k = (int32_t)(noise() % (uint32_t)n) + 1;
        if (round % 4 == 3) /* some are missing */
            for (int32_t i = 0; i < n; i++)
                if (noise() % 3 == 0)
                    logits[i] = (float[]){NAN, INFINITY, -INFINITY}[noise() % 3];
        if (noise() & 1)
            p.top_p = (float)noise_unit();
        if (noise() & 1)
            p.min_p = (float)noise_unit() / 4;
        for (int k = 0; k < 3; k++) {
            swl_rng before = r;

            assert_int_equal(swl_sample(logits, n, &p, &r, scratch), ref_sample(logits, n, &p, ref_unit(&before)));
        }
        p.temperature = 0;
        assert_int_equal(swl_sample(logits, n, &p, &r, scratch), ref_argmax(logits, n));
    }
}

static void frequencies_follow_the_softmax(void **state)
{
    enum { N = 8, DRAWS = 40000 };
    swl_sampling p = SAMPLING(0.8f, 0, 1, 0, 0);
    double w[N], sum = 0, chi2 = 0;
    int seen[N] = {0};
    swl_rng r;

    (void)state;
    swl_rng_init(&r, 2024);
    random_logits(N, 0);
    for (int i = 0; i < N; i++)
        sum += w[i] = exp(logits[i] / 0.8);
    for (int i = 0; i < DRAWS; i++)
        seen[swl_sample(logits, N, &p, &r, scratch)]++;
    for (int i = 0; i < N; i++) {
        double want = DRAWS * w[i] / sum;

        chi2 += (seen[i] - want) * (seen[i] - want) / want;
    }
    assert_true(chi2 < 24.3); /* 7 degrees of freedom, p = 0.001 */
}

static void leaves_the_logits_alone_and_repeats(void **state)
{
    static float copy[N_MAX];
    swl_sampling p = SAMPLING(1, 40, 0.95f, 0.01f, 0);
    swl_rng a, b;

    (void)state;
    random_logits(N_MAX, 1);
    memcpy(copy, logits, sizeof copy);
    swl_rng_init(&a, 5);
    swl_rng_init(&b, 5);
    for (int i = 0; i < 50; i++)
        assert_int_equal(swl_sample(logits, N_MAX, &p, &a, scratch), swl_sample(copy, N_MAX, &p, &b, scratch));
    assert_memory_equal(copy, logits, sizeof copy);
}

/* ---- generation_config.json ---- */

static swl_status load(const char *text, swl_sampling *p, swl_error *err)
{
    assert_int_equal(swl_file_save(in_root("generation_config.json"), text, strlen(text), err), SWL_OK);
    return swl_sampling_load(p, root, err);
}

static void reads_the_published_defaults(void **state)
{
    swl_sampling p;
    swl_error err;

    (void)state;
    swl_sampling_init(&p);
    assert_int_equal(
        load("{\"do_sample\": true, \"temperature\": 0.7, \"top_k\": 20, \"top_p\": 0.8, \"min_p\": 0.05}", &p, &err),
        SWL_OK);
    assert_true(p.temperature == 0.7f && p.top_k == 20 && p.top_p == 0.8f && p.min_p == 0.05f);
    assert_int_equal(load("{\"top_k\": null, \"eos_token_id\": 3}", &p, &err), SWL_OK);
    assert_true(p.temperature == 0.7f && p.top_k == 20 && p.top_p == 0.8f && p.min_p == 0.05f);
    assert_int_equal(load("{\"do_sample\": false, \"temperature\": 0.7, \"top_k\": 5}", &p, &err), SWL_OK);
    assert_true(p.temperature == 0 && p.top_k == 5);
    assert_int_equal(load("{\"do_sample\": true}", &p, &err), SWL_OK);
    assert_true(p.temperature == 1);
}

static void missing_file_keeps_every_field(void **state)
{
    swl_sampling p = SAMPLING(0.5f, 3, 0.9f, 0.1f, 4);
    swl_error err;

    (void)state;
    assert_int_equal(swl_sampling_load(&p, "/", &err), SWL_OK);
    assert_true(p.temperature == 0.5f && p.top_k == 3 && p.top_p == 0.9f && p.min_p == 0.1f && p.seed == 4);
    assert_int_equal(swl_sampling_load(&p, "/no/such/directory", &err), SWL_E_NOT_FOUND);
}

static void family_advises_where_no_file_does(void **state)
{
    static const struct {
        const char *config;
        swl_sampling want;
    } cases[] = {
        {"{\"model_type\": \"qwen3_next\"}", SAMPLING(0.7f, 20, 0.8f, 0, 9)},
        {"{\"model_type\": \"qwen3_5_moe\"}", SAMPLING(1, 20, 0.95f, 0, 9)},
        {"{\"model_type\": \"qwen3_5_text\"}", SAMPLING(1, 20, 0.95f, 0, 9)},
        {"{\"model_type\": \"other\"}", SAMPLING(0, 0, 1, 0, 9)},
        {"{}", SAMPLING(0, 0, 1, 0, 9)},
    };
    swl_sampling p;
    swl_error err;

    (void)state;
    unlink(in_root("generation_config.json"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(swl_file_save(in_root("config.json"), cases[i].config, strlen(cases[i].config), &err), SWL_OK);
        swl_sampling_init(&p);
        p.seed = 9;
        assert_int_equal(swl_sampling_load(&p, root, &err), SWL_OK);
        assert_true(p.temperature == cases[i].want.temperature && p.top_k == cases[i].want.top_k &&
                    p.top_p == cases[i].want.top_p && p.min_p == 0 && p.seed == 9);
    }
    unlink(in_root("config.json"));
}

static void bad_fields_are_named_and_change_nothing(void **state)
{
    static const char *const bad[][2] = {
        {"{\"temperature\": -1}", "temperature"},
        {"{\"temperature\": \"hot\"}", "temperature"},
        {"{\"top_p\": 1.5}", "top_p"},
        {"{\"top_k\": 2.5}", "top_k"},
        {"{\"top_k\": -2}", "top_k"},
        {"{\"min_p\": 2}", "min_p"},
        {"{\"do_sample\": 1}", "do_sample"},
        {"[]", "object"},
    };
    swl_sampling p = SAMPLING(0.5f, 3, 0.9f, 0.1f, 4), before = p;
    swl_error err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(load(bad[i][0], &p, &err), SWL_E_CORRUPT);
        assert_non_null(strstr(err.message, bad[i][1]));
        assert_true(p.temperature == before.temperature && p.top_k == before.top_k && p.top_p == before.top_p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_by_splitmix64),
        cmocka_unit_test(draws_by_xoshiro256_star_star),
        cmocka_unit_test(temperature_zero_is_the_argmax_with_the_lowest_id),
        cmocka_unit_test(non_finite_logits_are_never_drawn),
        cmocka_unit_test(extreme_logits_and_temperatures_give_an_id),
        cmocka_unit_test(degenerate_filters_keep_the_best),
        cmocka_unit_test(agrees_with_a_sampler_that_sorts_everything),
        cmocka_unit_test(frequencies_follow_the_softmax),
        cmocka_unit_test(leaves_the_logits_alone_and_repeats),
        cmocka_unit_test(reads_the_published_defaults),
        cmocka_unit_test(missing_file_keeps_every_field),
        cmocka_unit_test(family_advises_where_no_file_does),
        cmocka_unit_test(bad_fields_are_named_and_change_nothing),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
