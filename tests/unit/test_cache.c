/* Cache policies against their definitions worked out the slow way, and route logs. */
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
#include "store/cache.h"
#include "store/route_log.h"

enum { EXPERTS = 40, TOKENS = 400 };

static unsigned pick(unsigned *seed, unsigned n)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % n;
}

/* Faded frequency by its definition: every access counts 2^(-age / H). */
static double faded(const int *when, int n, int expert, const int *who, int now, double half_life)
{
    double f = 0.0;
    int i;

    for (i = 0; i < n; i++)
        if (who[i] == expert)
            f += exp2(-(now - when[i]) / half_life);
    return f;
}

static void the_victim_has_the_least_faded_frequency(void **state)
{
    static int when[TOKENS * 2], who[TOKENS * 2];
    unsigned seed = 1;
    swl_cache c;
    int n = 0, t, i;

    (void)state;
    assert_int_equal(swl_cache_init(&c, swl_policy_find("lfu-decay"), EXPERTS, NULL), SWL_OK);
    swl_cache_set_slots(&c, 10);
    assert_true(c.half_life > 0.0);
    assert_int_equal(swl_cache_victim(&c), -1);
    for (t = 1; t <= TOKENS; t++) {
        int32_t e[2];

        e[0] = (int32_t)pick(&seed, EXPERTS);
        e[1] = (e[0] + 1 + (int32_t)pick(&seed, 3)) % EXPERTS;
        for (i = 0; i < 2; i++)
            if (c.place[e[i]] >= 0)
                swl_cache_withdraw(&c, e[i]);
        swl_cache_touch(&c, e, NULL, 2, 1);
        for (i = 0; i < 2; i++) {
            swl_cache_offer(&c, e[i]);
            when[n] = t;
            who[n++] = e[i];
        }
        if (t % 5 == 0) {
            double least = INFINITY, victim;

            for (i = 0; i < EXPERTS; i++)
                if (c.place[i] >= 0 && faded(when, n, i, who, t, c.half_life) < least)
                    least = faded(when, n, i, who, t, c.half_life);
            victim = faded(when, n, swl_cache_victim(&c), who, t, c.half_life);
            assert_true(fabs(victim - least) < 1e-9);
            if (t % 3 == 0)
                swl_cache_withdraw(&c, swl_cache_victim(&c));
        }
    }
    swl_cache_deinit(&c);
}

static void resizing_keeps_the_order(void **state)
{
    const int32_t often[] = {1}, once[] = {2}, late[] = {3};
    swl_cache c;
    int i;

    (void)state;
    assert_int_equal(swl_cache_init(&c, swl_policy_find("hybrid"), EXPERTS, NULL), SWL_OK);
    swl_cache_set_slots(&c, 4);
    for (i = 0; i < 20; i++)
        swl_cache_touch(&c, often, NULL, 1, 1);
    swl_cache_touch(&c, once, NULL, 1, 1);
    for (i = 1; i <= 3; i++)
        swl_cache_offer(&c, i);
    swl_cache_withdraw(&c, 3);
    swl_cache_set_slots(&c, 30);
    assert_int_equal(swl_cache_victim(&c), 2);
    swl_cache_touch(&c, late, NULL, 1, 1);
    swl_cache_offer(&c, 3);
    swl_cache_set_slots(&c, 4);
    assert_int_equal(swl_cache_victim(&c), 2);
    swl_cache_set_slots(&c, EXPERTS); /* to recency and back */
    swl_cache_set_slots(&c, 4);
    swl_cache_withdraw(&c, 1);
    swl_cache_touch(&c, often, NULL, 1, 1);
    swl_cache_offer(&c, 1);
    assert_int_not_equal(swl_cache_victim(&c), 1);
    swl_cache_deinit(&c);
}

/* ---- simulation --------------------------------------------------------------------------------------------------- */

/* Hits of plain recency, by a list that is searched. */
static uint64_t lru_hits(const swl_route_log *g, int32_t slots)
{
    uint64_t hits = 0;
    int32_t layer, n, j, i, list[EXPERTS * 8];
    int64_t t;

    for (layer = 0; layer < g->n_layers; layer++) {
        n = 0;
        for (t = 0; t < g->n_tokens; t++)
            for (j = 0; j < g->k; j++) {
                int32_t id = g->ids[(t * g->n_layers + layer) * g->k + j];

                for (i = 0; i < n && list[i] != id; i++)
                    ;
                hits += i < n && i < slots;
                if (i == n)
                    n++;
                memmove(list + 1, list, (size_t)i * sizeof *list);
                list[0] = id;
            }
    }
    return hits;
}

static double rate(const swl_route_log *g, const char *policy, int32_t slots)
{
    swl_cache_result r;

    assert_int_equal(swl_cache_simulate(g, policy, slots, &r, NULL), SWL_OK);
    assert_int_equal(r.n_hits + r.n_misses, g->n_tokens * g->n_layers * g->k);
    return (double)r.n_hits / (double)(r.n_hits + r.n_misses);
}

static void recency_is_what_a_searched_list_gives(void **state)
{
    swl_route_model m;
    swl_route_log *g;
    int32_t slots;

    (void)state;
    swl_route_model_init(&m, 3, EXPERTS, 1, TOKENS);
    assert_int_equal(swl_route_log_generate(&g, &m, NULL), SWL_OK);
    for (slots = 1; slots <= EXPERTS; slots += 3) {
        swl_cache_result r;

        assert_int_equal(swl_cache_simulate(g, "lru", slots, &r, NULL), SWL_OK);
        assert_int_equal(r.n_hits, lru_hits(g, slots));
        assert_int_equal(r.n_streamed, 0);
    }
    swl_route_log_free(g);
}

static void made_up_routes_hit_as_often_as_real_text(void **state)
{
    swl_route_model m;
    swl_route_log *g;

    (void)state;
    swl_route_model_init(&m, 4, 256, 8, 1500);
    assert_int_equal(swl_route_log_generate(&g, &m, NULL), SWL_OK);
    assert_true(fabs(rate(g, "lru", 28) - 0.56) < 0.015);  /* 2 GB / (40 layers x 1,769,472 bytes) */
    assert_true(fabs(rate(g, "lru", 42) - 0.65) < 0.015);  /* 3 GB */
    assert_true(fabs(rate(g, "lru", 70) - 0.835) < 0.015); /* 5 GB */
    assert_true(rate(g, NULL, 28) > rate(g, "lru", 28));
    swl_route_log_free(g);
}

static void every_token_has_distinct_experts(void **state)
{
    swl_route_model m;
    swl_cache_result r;
    swl_route_log *g;
    int64_t i;
    int32_t a, b;

    (void)state;
    swl_route_model_init(&m, 2, 12, 8, 300);
    m.zipf = 3.0;
    assert_int_equal(swl_route_log_generate(&g, &m, NULL), SWL_OK);
    for (i = 0; i < g->n_tokens * 2; i++)
        for (a = 0; a < 8; a++) {
            assert_true(g->ids[i * 8 + a] < 12);
            for (b = 0; b < a; b++)
                assert_int_not_equal(g->ids[i * 8 + a], g->ids[i * 8 + b]);
        }
    assert_int_equal(swl_cache_simulate(g, "magic", 8, &r, NULL), SWL_E_ARG);
    assert_int_equal(swl_cache_simulate(g, "lru", 7, &r, NULL), SWL_E_ARG);
    swl_route_log_free(g);
    m.active = 3;
    assert_int_equal(swl_route_log_generate(&g, &m, NULL), SWL_E_ARG);
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

/* Two layers, 300 experts, two per token; a pass of two tokens, one of one, and one that is cut off. */
static const uint8_t file_bytes[] = {
    'S', 'W', 'L', 'R', 'O', 'U', 'T', 'E', 1, 0, 0, 0, 2, 0, 0, 0, 44, 1, 0, 0, 2, 0, 0, 0,
    2, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, /* layer 0 */ 5, 0, 6, 0, 7, 0, 43, 1,
    1, 0, 0, 0, 9, 0, 10, 0, 11, 0, 12, 0,
    3, 0, 0, 0, 1, 0,
};

static void files_are_read_as_described(void **state)
{
    static const uint16_t want[] = {1, 2, 5, 6, 3, 4, 7, 299, 9, 10, 11, 12};
    char path[] = "/tmp/swl-routes-XXXXXX";
    uint8_t bytes[sizeof file_bytes];
    swl_route_log_info info;
    swl_route_log *g;
    swl_error err;
    char *data;
    size_t n;
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    assert_int_equal(swl_file_save(path, file_bytes, sizeof file_bytes, NULL), SWL_OK);
    assert_int_equal(swl_route_log_load(&g, path, NULL), SWL_OK);
    swl_route_log_info_get(g, &info);
    assert_int_equal(info.n_tokens, 3);
    assert_int_equal(info.n_passes, 2);
    assert_int_equal(info.n_experts, 300);
    assert_memory_equal(g->ids, want, sizeof want);
    assert_int_equal(swl_route_log_save(g, path, NULL), SWL_OK);
    swl_route_log_free(g);
    assert_int_equal(swl_file_load(&data, &n, path, 1000, NULL), SWL_OK);
    assert_int_equal(n, sizeof file_bytes - 6);
    assert_memory_equal(data, file_bytes, n);
    swl_free(data);
    memcpy(bytes, file_bytes, sizeof bytes);
    bytes[42] = 44; /* expert 300 */
    assert_int_equal(swl_file_save(path, bytes, sizeof bytes, NULL), SWL_OK);
    assert_int_equal(swl_route_log_load(&g, path, &err), SWL_E_CORRUPT);
    assert_int_equal(err.offset, 42);
    memcpy(bytes, file_bytes, sizeof bytes);
    bytes[13] = 0x27; /* 0x2702 layers */
    assert_int_equal(swl_file_save(path, bytes, sizeof bytes, NULL), SWL_OK);
    assert_int_equal(swl_route_log_load(&g, path, &err), SWL_E_CORRUPT);
    assert_int_equal(err.offset, 12);
    assert_non_null(strstr(err.message, ": the header is damaged: 9986 layers, 300 experts, 2 per token; expected 1 to 4096, "));
    for (n = 0; n < 44; n++) { /* cut before the first pass is whole */
        assert_int_equal(swl_file_save(path, file_bytes, n, NULL), SWL_OK);
        assert_int_equal(swl_route_log_load(&g, path, &err), SWL_E_CORRUPT);
    }
    unlink(path);
}

static void a_pass_that_failed_is_taken_out_again(void **state)
{
    const int32_t a[] = {1, 2, 3, 4}, b[] = {5, 6}, c[] = {7, 8};
    char path[] = "/tmp/swl-routes-XXXXXX";
    swl_route_writer *w;
    swl_route_log *g;
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    assert_int_equal(swl_route_writer_open(&w, path, 2, 10, 2, NULL), SWL_OK);
    assert_int_equal(swl_route_writer_add(w, 1, c, 1, NULL), SWL_OK); /* opened in the middle of a pass */
    assert_int_equal(swl_route_writer_add(w, 0, a, 2, NULL), SWL_OK); /* and then an error */
    assert_int_equal(swl_route_writer_add(w, 0, b, 1, NULL), SWL_OK);
    assert_int_equal(swl_route_writer_add(w, 1, c, 1, NULL), SWL_OK);
    assert_int_equal(swl_route_writer_close(w, NULL), SWL_OK);
    assert_int_equal(swl_route_log_load(&g, path, NULL), SWL_OK);
    assert_int_equal(g->n_tokens, 1);
    assert_int_equal(g->ids[0], 5);
    assert_int_equal(g->ids[3], 8);
    swl_route_log_free(g);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_victim_has_the_least_faded_frequency),
        cmocka_unit_test(resizing_keeps_the_order),
        cmocka_unit_test(recency_is_what_a_searched_list_gives),
        cmocka_unit_test(made_up_routes_hit_as_often_as_real_text),
        cmocka_unit_test(every_token_has_distinct_experts),
        cmocka_unit_test(files_are_read_as_described),
        cmocka_unit_test(a_pass_that_failed_is_taken_out_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
