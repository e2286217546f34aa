/* The elementary functions of the kernels against the C library in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "kernels/kernels.h"

static void exp_is_within_two_ulp(void **state)
{
    double worst = 0;
    float x;

    (void)state;
    for (x = -87.3f; x < 88.3f; x += 0.00137f) {
        double want = exp((double)x), got = swl_exp(x), rel = fabs(got - want) / want;

        worst = rel > worst ? rel : worst;
    }
    assert_true(worst < 2 * 1.1920929e-07);
    assert_true(swl_exp(0.0f) == 1.0f);
}

static void exp_at_its_ends(void **state)
{
    (void)state;
    assert_true(swl_exp(-INFINITY) == 0.0f);
    assert_true(swl_exp(-1000.0f) == 0.0f);
    assert_true(isfinite(swl_exp(1000.0f)) && swl_exp(1000.0f) > 1e38f);
    assert_true(isnan(swl_exp(NAN)));
}

static void sigmoid_matches_its_definition(void **state)
{
    float x;

    (void)state;
    for (x = -30.0f; x < 30.0f; x += 0.01f)
        assert_true(fabs(swl_sigmoid(x) - 1.0 / (1.0 + exp(-(double)x))) < 2e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(exp_at_its_ends),
        cmocka_unit_test(sigmoid_matches_its_definition),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
