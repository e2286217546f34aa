/* case_fixture.h: the tiny reference models, and a text for them. */
#ifndef SWL_TESTS_CASE_FIXTURE_H
#define SWL_TESTS_CASE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "session/session.h"

#define CASES SWL_TEST_DATA "/oracle/cases/"
enum { N = 20 };

static const int32_t ids[N] = {1, 5, 9, 42, 7, 63, 3, 17, 0, 2, 11, 30, 8, 8, 61, 33, 12, 40, 50, 6};

static inline swl_model *open_case(const char *name, bool exact, int32_t chunk, int32_t n_threads)
{
    swl_model_options o;
    swl_model *m;
    swl_error err;
    char path[512];

    snprintf(path, sizeof path, "%s%s", CASES, name);
    swl_model_options_init(&o);
    o.path = path;
    o.exact = exact;
    o.chunk_tokens = chunk;
    o.n_threads = n_threads;
    if (swl_model_open(&m, &o, &err))
        fail_msg("%s: %s", name, err.message);
    return m;
}

#endif
