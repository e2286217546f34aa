/* fuzz_route_log.c: an accepted route log names experts that exist, survives being written and read, and can be simulated
 * with any policy: each access is a hit or a miss, and with room for all only the first one misses. */
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/route_log.h"

static void check_simulation(const swl_route_log *g)
{
    swl_cache_result small, all;
    const char *policy;
    int32_t i;

    for (i = 0; (policy = swl_cache_policy_name(i)); i++) {
        CHECK(!swl_cache_simulate(g, policy, g->k, &small, NULL));
        CHECK(!swl_cache_simulate(g, policy, g->n_experts, &all, NULL));
        CHECK(small.n_hits + small.n_misses == all.n_hits + all.n_misses);
        CHECK(all.n_misses <= (uint64_t)g->n_layers * (uint64_t)g->n_experts && all.n_misses <= small.n_misses);
        CHECK(!all.n_streamed);
    }
}

static void check_round_trip(const swl_route_log *g)
{
    char path[] = "/tmp/swl-fuzz-routes-XXXXXX";
    size_t n = (size_t)g->n_tokens * (size_t)g->n_layers * (size_t)g->k * sizeof *g->ids;
    swl_route_log *again;
    int fd = mkstemp(path);

    CHECK(fd >= 0);
    close(fd);
    CHECK(!swl_route_log_save(g, path, NULL));
    CHECK(!swl_route_log_load(&again, path, NULL));
    CHECK(again->n_tokens == g->n_tokens && again->n_passes == g->n_passes && !memcmp(again->ids, g->ids, n));
    swl_route_log_free(again);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    swl_error err = {0};
    swl_route_log *g;
    int64_t i;

    if (swl_route_log_parse(&g, data, size, "input", &err)) {
        CHECK(err.code && err.message[0]);
        return 0;
    }
    for (i = 0; i < g->n_tokens * g->n_layers * g->k; i++)
        CHECK(g->ids[i] < g->n_experts);
    if (g->n_layers <= 64) {
        check_simulation(g);
        check_round_trip(g);
    }
    swl_route_log_free(g);
    return 0;
}
