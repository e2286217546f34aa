/* The memory plan: what it adds up to, what it refuses, and that the figure it names is enough. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <swiftlet/swiftlet.h>

#include "base/sysmem.h"

#define CASE SWL_TEST_DATA "/oracle/cases/next-a-mlx4"
#define MIB  (UINT64_C(1) << 20)

static swl_model_options options(uint64_t memory)
{
    swl_model_options o;

    swl_model_options_init(&o);
    o.path = CASE;
    o.memory_bytes = memory;
    o.n_threads = 2;
    return o;
}

static void the_parts_add_up_and_stay_below_the_limit(void **state)
{
    swl_model_options o = options(0);
    swl_memory_plan p, big;

    (void)state;
    for (uint64_t i = 0; i < 23; i++) { /* each with what is resident now, which sanitizers let grow */
        o = options(0);
        assert_int_equal(swl_memory_plan_make(&big, &o, NULL), SWL_OK);
        assert_int_equal(big.pool, big.pool_all); /* this machine holds a tiny model */
        assert_true(big.floor < big.total);
        o = options(big.floor + (big.total - big.floor) / 23 * i);
        assert_int_equal(swl_memory_plan_make(&p, &o, NULL), SWL_OK);
        assert_int_equal(p.total, p.base + p.dense + p.work + p.state + p.marks + p.io + p.pool);
        assert_true(p.total <= p.limit);
        assert_true(p.pool_slots >= 1 && p.pool_slots <= p.n_experts);
    }
}

/* As a program does between a plan and what is done with it; free with free(). */
static char *touch(size_t n)
{
    char *p = malloc(n);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        ((volatile char *)p)[i] = 1;
    return p;
}

static void refused_with_a_figure_that_does(swl_model_options o)
{
    swl_memory_plan p;
    swl_model *m;
    swl_error err;
    unsigned long mib;
    const char *needs;
    char *touched;

    o.memory_bytes = MIB;
    assert_int_equal(swl_model_open(&m, &o, &err), SWL_E_BUDGET);
    assert_null(m);
    needs = strstr(err.message, "needs ");
    assert_non_null(needs);
    assert_int_equal(sscanf(needs, "needs %lu MiB", &mib), 1);
    touched = touch(4 * MIB);
    o.memory_bytes = mib * MIB;
    assert_int_equal(swl_memory_plan_make(&p, &o, &err), SWL_OK);
    assert_true(p.total <= p.limit);
    assert_int_equal(swl_model_open(&m, &o, &err), SWL_OK);
    swl_model_close(m);
    free(touched);
    o.memory_bytes -= MIB;
    if (!p.drift) /* sanitizers make a process too large to say it to the byte */
        assert_int_equal(swl_model_open(&m, &o, &err), SWL_E_BUDGET);
}

static void too_little_is_refused_with_a_figure_that_does(void **state)
{
    swl_model_options o = options(0);

    (void)state;
    refused_with_a_figure_that_does(o);
    o.chunk_tokens = 300;
    refused_with_a_figure_that_does(o);
    o.pool_slots = 1000; /* all there are */
    refused_with_a_figure_that_does(o);
    o = options(0);
    o.pool_slots = 1000;
    o.n_sessions = 3;
    refused_with_a_figure_that_does(o);
}

/* What a pool that was asked for leaves is divided like all else: the chunk is as long as fits. */
static void buffers_make_room_for_a_pool_that_was_asked_for(void **state)
{
    swl_model_options o = options(INT64_MAX);
    swl_memory_plan all, p;

    (void)state;
    o.path = SWL_TEST_DATA "/../models/demo.qpack";
    o.pool_slots = 1000;
    o.ctx_tokens = 2048;
    for (uint64_t i = 0; i <= 20; i++) {
        o.memory_bytes = INT64_MAX;
        assert_int_equal(swl_memory_plan_make(&all, &o, NULL), SWL_OK);
        assert_int_equal(all.pool, all.pool_all);
        assert_true(all.floor + 4 * MIB < all.total);
        o.memory_bytes = all.total - (all.total - all.floor) / 20 * i;
        assert_int_equal(swl_memory_plan_make(&p, &o, NULL), SWL_OK);
        assert_true(p.total <= p.limit && p.chunk_tokens <= all.chunk_tokens && p.n_marks >= 1);
        assert_int_equal(p.pool, p.pool_all);
    }
}

static void more_slots_than_fit_are_refused(void **state)
{
    swl_model_options o = options(0);
    swl_memory_plan p;
    swl_error err;

    (void)state;
    assert_int_equal(swl_memory_plan_make(&p, &o, NULL), SWL_OK);
    o = options(p.floor + 2 * MIB);
    o.pool_slots = p.n_experts;
    if (p.pool > 8 * MIB)
        assert_int_equal(swl_memory_plan_make(&p, &o, &err), SWL_E_BUDGET);
    o = options(0);
    o.pool_slots = 1; /* below one token's experts: raised to them */
    assert_int_equal(swl_memory_plan_make(&p, &o, NULL), SWL_OK);
    assert_true(p.pool_slots > 1 && p.pool_slots < p.n_experts);
}

static void the_machine_is_read(void **state)
{
    swl_sysmem m;

    (void)state;
    swl_sysmem_get(&m);
    assert_true(m.total > 64 * MIB);
    assert_true(m.resident > 0 && m.resident < m.total);
    assert_true(swl_sysmem_budget(&m) < m.total + m.resident);
    m.group_limit = 612 * MIB;
    m.group_used = 100 * MIB;
    m.resident = 50 * MIB;
    m.available = m.total;
    assert_int_equal(swl_sysmem_budget(&m), (512 + 50 - 256) * MIB);
    m.group_limit = 180 * MIB;
    assert_int_equal(swl_sysmem_budget(&m), (80 + 50) / 2 * MIB); /* a small container gives something too */
    m.group_limit = m.resident = 0;
    assert_int_equal(swl_sysmem_budget(&m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_add_up_and_stay_below_the_limit),
        cmocka_unit_test(too_little_is_refused_with_a_figure_that_does),
        cmocka_unit_test(buffers_make_room_for_a_pool_that_was_asked_for),
        cmocka_unit_test(more_slots_than_fit_are_refused),
        cmocka_unit_test(the_machine_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
