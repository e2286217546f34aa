/* test_peak.c: the measuring loops really read every word and really do every product, at every level of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <swiftlet/swiftlet.h>

#include "base/cpu.h"
#include "kernels/peak.h"

#define COMMA ,
static const char *const levels[] = {SWL_CPU_LEVELS(COMMA)};
enum { N_LEVELS = sizeof levels / sizeof levels[0] };

static void take_level(swl_peak *p, int i)
{
    int known;

    swl_peak_init(p, swl_cpu_flags() & swl_cpu_level_mask(levels[i], &known));
    assert_true(known);
}

static void reading_sees_every_word(void **state)
{
    enum { N = 4 * SWL_PEAK_WORDS };
    static _Alignas(64) uint64_t words[N];

    (void)state;
    for (int i = 0; i < N_LEVELS; i++) {
        swl_peak p;

        take_level(&p, i);
        for (int k = 0; k < N; k++)
            words[k] = 0;
        for (int k = 0; k < N; k++) {
            words[k] = UINT64_C(1) << (k * 7 % 64);
            assert_true(p.read(words, N) == words[k]);
            words[k] = 0;
        }
    }
}

static void multiplying_does_what_it_counts(void **state)
{
    uint8_t a[64];
    int8_t b[SWL_PEAK_MACS_MAX];
    swl_peak p;

    (void)state;
    srand(1);
    for (int k = 0; k < 64; k++)
        a[k] = (uint8_t)(rand() % 16);
    for (int k = 0; k < SWL_PEAK_MACS_MAX; k++)
        b[k] = (int8_t)(rand() % 256 - 128);
    for (int i = 0; i < N_LEVELS; i++) {
        int32_t sum = 0;

        take_level(&p, i);
        for (int k = 0; k < p.macs; k++)
            sum += a[k % 64] * b[k];
        assert_int_equal(p.dot(1, a, b), (uint32_t)sum);
        assert_int_equal(p.dot(1000, a, b), (uint32_t)sum * 1000u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_sees_every_word),
        cmocka_unit_test(multiplying_does_what_it_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
