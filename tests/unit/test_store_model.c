/* The reference models over a store that misbehaves: pools of every size, reads that are late, reordered, short or failing,
 * resizing between tokens, recorded and replayed routes. The same bits or a clean error. */
#define _GNU_SOURCE
#include "case_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/io_fake.h"

enum { FIRST = 13 };

static const char *const names[] = {"next-a-mlx4", "q35moe-b-mlxmixed", "q35moe-c-mlx5g32s", "golden-q35-moe"};

/* Gives the model a store of this size on a fake. */
static io_fake *use_fake(swl_model *m, int32_t slots, int32_t stage, uint64_t seed)
{
    io_fake *fake = io_fake_new(seed, NULL);
    int32_t n = m->ck->n_files, i;
    int fds[16];
    const char *paths[16];
    swl_store_layer *layers = swl_model_store_layers(m);
    swl_store_config c = {.n_layers = m->config->n_layers, .layers = layers, .n_files = n, .fds = fds, .paths = paths,
                          .slots_per_layer = slots, .slots_min = m->config->n_experts_used, .stage_slots = stage,
                          .io = &fake->base};

    assert_in_range(n, 1, 16);
    for (i = 0; i < n; i++) {
        fds[i] = m->ck->files[i].fd;
        paths[i] = m->ck->files[i].path;
    }
    swl_store_free(m->store);
    assert_int_equal(swl_store_create(&m->store, &c, NULL), SWL_OK);
    swl_free(layers);
    return fake;
}

/* A prompt in chunks of eight, then token by token, with the pool resized between them when asked. */
static swl_status run(swl_model *m, float *logits, bool resize, swl_error *err)
{
    int32_t vocab = m->config->vocab, k = m->config->n_experts_used, span = m->config->n_experts - k + 1, i;
    swl_session *s;
    swl_status st;

    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    st = swl_session_eval(s, ids, FIRST, SWL_LOGITS_ALL, logits, err);
    for (i = FIRST; i < N && !st; i++) {
        if (resize)
            assert_int_equal(swl_store_resize(m->store, k + i * 7 % span, NULL), SWL_OK);
        st = swl_session_eval(s, ids + i, 1, SWL_LOGITS_ALL, logits + (int64_t)i * vocab, err);
    }
    swl_session_free(s);
    return st;
}

static void any_pool_and_any_order_of_reads_give_the_same_bits(void **state)
{
    size_t c;
    int round;

    (void)state;
    for (c = 0; c < sizeof names / sizeof *names; c++) {
        swl_model *m = open_case(names[c], false, 8, 1);
        int32_t k = m->config->n_experts_used, n = m->config->n_experts, slots;
        size_t bytes = (size_t)N * (size_t)m->config->vocab * sizeof(float);
        float *want = calloc(1, bytes), *got = malloc(bytes);

        assert_int_equal(run(m, want, false, NULL), SWL_OK);
        for (slots = k; slots <= n; slots += 1 + (n - k) / 3)
            for (round = 0; round < 4; round++) {
                use_fake(m, slots, round * 2, (uint64_t)round * 31);
                m->lookahead = round % 3 * k / 2;
                memset(got, 0xff, bytes);
                assert_int_equal(run(m, got, round & 1, NULL), SWL_OK);
                assert_memory_equal(got, want, bytes);
            }
        free(want);
        free(got);
        swl_model_close(m);
    }
}

enum { LONG = 150, LONG_CHUNK = 64 };

/* A prompt that is long enough to read ahead in, and a token after it. */
static swl_status run_long(swl_model *m, float *logits, swl_error *err)
{
    int32_t long_ids[LONG], i;
    swl_session *s;
    swl_status st;

    for (i = 0; i < LONG; i++)
        long_ids[i] = ids[i * 7 % N] ^ i % 3;
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    st = swl_session_eval(s, long_ids, LONG - 1, SWL_LOGITS_ALL, logits, err);
    if (!st)
        st = swl_session_eval(s, long_ids + LONG - 1, 1, SWL_LOGITS_ALL, logits + (int64_t)(LONG - 1) * m->config->vocab, err);
    swl_session_free(s);
    return st;
}

static void a_prompt_read_ahead_has_the_same_bits(void **state)
{
    static const swl_routes routes[] = {SWL_ROUTES_MODEL, SWL_ROUTES_UNIFORM};
    size_t c;
    int r, round;

    (void)state;
    for (c = 0; c < sizeof names / sizeof *names; c++)
        for (r = 0; r < 2; r++) {
            swl_model *m = open_case(names[c], false, LONG_CHUNK, 1);
            int32_t k = m->config->n_experts_used, n = m->config->n_experts, slots;
            size_t bytes = (size_t)LONG * (size_t)m->config->vocab * sizeof(float);
            float *want = calloc(1, bytes), *got = malloc(bytes);
            uint64_t n_ahead = 0, n_used = 0;

            m->pool_slots_max = 0; /* memory pressure does not change the pool */
            swl_routes_set(m, routes[r], 3);
            assert_int_equal(run_long(m, want, NULL), SWL_OK);
            for (slots = k; slots <= n; slots++)
                for (round = 0; round < 4; round++) {
                    swl_store_stats s;

                    use_fake(m, slots, 1 + round % 3, (uint64_t)round * 31);
                    m->lookahead = round < 3;
                    swl_routes_set(m, routes[r], 3);
                    memset(got, 0xff, bytes);
                    assert_int_equal(run_long(m, got, NULL), SWL_OK);
                    assert_memory_equal(got, want, bytes);
                    swl_store_stats_get(m->store, &s);
                    if (!m->lookahead || slots == n)
                        assert_int_equal(s.n_ahead, 0);
                    n_ahead += s.n_ahead;
                    n_used += s.n_ahead_used;
                }
            if (n >= 8)
                assert_true(n_ahead > 0 && n_used >= n_ahead * 3 / 4);
            free(want);
            free(got);
            swl_model_close(m);
        }
}

static void a_failing_read_ahead_of_a_prompt_never_becomes_a_wrong_logit(void **state)
{
    swl_model *m = open_case(names[0], false, LONG_CHUNK, 1);
    size_t bytes = (size_t)LONG * (size_t)m->config->vocab * sizeof(float);
    float *want = calloc(1, bytes), *got = malloc(bytes);
    int64_t at, step = 1;
    int n_failed = 0;

    (void)state;
    m->pool_slots_max = 0;
    assert_int_equal(run_long(m, want, NULL), SWL_OK);
    for (at = 0;; at += step, step += step / 3 + 1) {
        io_fake *fake = use_fake(m, 8, 2, at % 2 ? 5 : 0);
        swl_error err = {0};
        swl_status st;

        fake->fail_at = at;
        fake->for_good = at % 3 == 0;
        st = run_long(m, got, &err);
        if (!st)
            assert_memory_equal(got, want, bytes);
        if (!st && fake->n_ops <= at)
            break;
        n_failed += st != SWL_OK;
        assert_true(!st || st == SWL_E_IO); /* a read that nobody had asked for yet was done again */
        fake->fail_at = -1;
        assert_int_equal(run_long(m, got, NULL), SWL_OK);
        assert_memory_equal(got, want, bytes);
    }
    assert_true(n_failed > 5);
    free(want);
    free(got);
    swl_model_close(m);
}

/* Each read operation fails in turn; the model goes on afterwards as if nothing had been. */
static void a_failing_read_never_becomes_a_wrong_logit(void **state)
{
    swl_model *m = open_case(names[0], false, 8, 1);
    size_t bytes = (size_t)N * (size_t)m->config->vocab * sizeof(float);
    float *want = calloc(1, bytes), *got = malloc(bytes);
    int64_t at, step = 1;
    int n_failed = 0;

    (void)state;
    assert_int_equal(run(m, want, false, NULL), SWL_OK);
    for (at = 0;; at += step, step += step / 3 + 1) {
        io_fake *fake = use_fake(m, m->config->n_experts_used + 1, 2, at % 2 ? 5 : 0);
        swl_error err = {0};
        swl_status st;

        fake->fail_at = at;
        fake->for_good = at % 3 == 0;
        st = run(m, got, false, &err);
        if (!st) {
            assert_memory_equal(got, want, bytes);
            assert_true(fake->n_ops <= at);
            break;
        }
        n_failed++;
        assert_int_equal(st, SWL_E_IO);
        assert_non_null(strstr(err.message, "expert "));
        fake->fail_at = -1;
        assert_int_equal(run(m, got, false, NULL), SWL_OK);
        assert_memory_equal(got, want, bytes);
    }
    assert_true(n_failed > 5);
    free(want);
    free(got);
    swl_model_close(m);
}

static void recorded_routes_replay_to_the_same_bits(void **state)
{
    char a[] = "/tmp/swl-routes-XXXXXX", b[] = "/tmp/swl-routes-XXXXXX";
    swl_model *m = open_case(names[1], false, 8, 1), *other = open_case(names[0], false, 8, 1);
    size_t bytes = (size_t)N * (size_t)m->config->vocab * sizeof(float);
    float *want = calloc(1, bytes), *got = malloc(bytes);
    swl_route_log *log, *again;
    swl_error err;

    (void)state;
    close(mkstemp(a));
    close(mkstemp(b));
    assert_int_equal(swl_routes_record(m, a, NULL), SWL_OK);
    assert_int_equal(run(m, want, false, NULL), SWL_OK);
    assert_int_equal(swl_routes_record(m, b, NULL), SWL_OK);
    assert_int_equal(swl_route_log_load(&log, a, NULL), SWL_OK);
    assert_int_equal(log->n_tokens, N);
    assert_int_equal(log->n_passes, 2 + N - FIRST); /* chunks of eight and five, then one by one */
    assert_int_equal(swl_routes_replay(other, log, &err), SWL_E_MISMATCH);
    assert_int_equal(swl_routes_replay(m, log, NULL), SWL_OK);
    assert_int_equal(run(m, got, false, NULL), SWL_OK);
    assert_memory_equal(got, want, bytes);
    assert_int_equal(swl_routes_record(m, NULL, NULL), SWL_OK);
    assert_int_equal(swl_route_log_load(&again, b, NULL), SWL_OK);
    assert_int_equal(again->n_tokens, N);
    assert_memory_equal(again->ids, log->ids, (size_t)N * (size_t)log->n_layers * (size_t)log->k * sizeof *log->ids);
    /* Other routes, other logits. */
    memmove(log->ids, log->ids + log->n_layers * log->k, (size_t)log->n_layers * (size_t)log->k * sizeof *log->ids);
    assert_int_equal(swl_routes_replay(m, log, NULL), SWL_OK);
    assert_int_equal(run(m, got, false, NULL), SWL_OK);
    assert_memory_not_equal(got, want, bytes);
    assert_int_equal(swl_routes_replay(m, NULL, NULL), SWL_OK);
    assert_int_equal(run(m, got, false, NULL), SWL_OK);
    assert_memory_equal(got, want, bytes);
    swl_route_log_free(log);
    swl_route_log_free(again);
    unlink(a);
    unlink(b);
    free(want);
    free(got);
    swl_model_close(m);
    swl_model_close(other);
}

/* Misses of a run on random routes, the same ones each time, with passes of the given kind. */
static uint64_t misses(swl_model *m, swl_passes passes, float *logits)
{
    swl_store_stats a, b;

    swl_routes_set(m, SWL_ROUTES_UNIFORM, 1);
    swl_passes_set(m, passes);
    swl_store_stats_get(m->store, &a);
    assert_int_equal(run(m, logits, false, NULL), SWL_OK);
    swl_store_stats_get(m->store, &b);
    swl_passes_set(m, SWL_PASSES_WHOLE);
    assert_int_equal(b.bytes_read - a.bytes_read, (b.n_misses - a.n_misses) * m->ck->experts[0].slot_bytes);
    return b.n_misses - a.n_misses;
}

/* Reading alone reads what whole passes read; computing alone reads nothing and leaves what is in memory as it is. */
static void a_pass_can_be_had_in_halves(void **state)
{
    swl_model *m = open_case(names[1], false, 8, 1);
    const swl_config *c = m->config;
    size_t bytes = (size_t)N * (size_t)c->vocab * sizeof(float);
    float *want = calloc(1, bytes), *got = malloc(bytes);
    uint64_t first, second;
    io_fake *fake;
    int64_t n_ops;

    (void)state;
    m->pool_slots_max = c->n_experts_used; /* memory pressure does not change the pool */
    use_fake(m, c->n_experts_used, 0, 0);
    first = misses(m, SWL_PASSES_WHOLE, want);
    second = misses(m, SWL_PASSES_WHOLE, got);
    assert_memory_equal(got, want, bytes);
    assert_true(first > 0 && second > 0);

    use_fake(m, c->n_experts_used, 0, 0);
    assert_int_equal(misses(m, SWL_PASSES_READ, got), first);
    assert_int_equal(misses(m, SWL_PASSES_READ, got), second);

    fake = use_fake(m, c->n_experts_used, 0, 0);
    assert_int_equal(misses(m, SWL_PASSES_WHOLE, got), first);
    n_ops = fake->n_ops;
    assert_int_equal(misses(m, SWL_PASSES_COMPUTE, got), 0);
    assert_int_equal(fake->n_ops, n_ops);
    assert_memory_not_equal(got, want, bytes);
    assert_int_equal(misses(m, SWL_PASSES_WHOLE, got), second);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(got);
    swl_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pool_and_any_order_of_reads_give_the_same_bits),
        cmocka_unit_test(a_prompt_read_ahead_has_the_same_bits),
        cmocka_unit_test(a_failing_read_ahead_of_a_prompt_never_becomes_a_wrong_logit),
        cmocka_unit_test(a_failing_read_never_becomes_a_wrong_logit),
        cmocka_unit_test(recorded_routes_replay_to_the_same_bits),
        cmocka_unit_test(a_pass_can_be_had_in_halves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
