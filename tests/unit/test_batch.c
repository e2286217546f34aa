/* test_batch.c: several conversations in one call, what passes count, and experts by someone else's word. */
#define _GNU_SOURCE
#include "case_fixture.h"

#include <stdlib.h>
#include <string.h>


enum { SESSIONS = 5 };

/* Conversation i: 3 + i tokens from ids[i], then 1 + 2 * i more; which logits it wants differs. */
static const int32_t first_n[SESSIONS] = {3, 4, 5, 6, 7}, second_n[SESSIONS] = {1, 3, 5, 7, 9};
static const swl_logits_wanted wants[SESSIONS] = {SWL_LOGITS_LAST, SWL_LOGITS_ALL, SWL_LOGITS_NONE, SWL_LOGITS_LAST,
                                                  SWL_LOGITS_ALL};

static int32_t n_wanted(int i)
{
    return wants[i] == SWL_LOGITS_ALL ? second_n[i] : wants[i] == SWL_LOGITS_LAST;
}

/* Whatever the chunk cuts, a batch gives the rows that separate calls give, entries in order. */
static void a_batch_gives_the_rows_of_separate_calls(void **state)
{
    static const char *const names[] = {"next-a-mlx4", "q35moe-a-mlx4", "q35dense-a-mlx4g32"};
    static const int32_t chunks[] = {4, 7, 64};

    (void)state;
    for (int k = 0; k < 9; k++) {
        swl_model *m = open_case(names[k / 3], false, chunks[k % 3], 2);
        size_t vocab = (size_t)m->config->vocab, rows = 0;
        float *alone = calloc(30 * vocab, sizeof *alone), *together = calloc(30 * vocab, sizeof *together);
        swl_session *a, *s[SESSIONS];
        swl_batch_entry e[SESSIONS];

        for (int i = 0; i < SESSIONS; i++) {
            assert_int_equal(swl_session_create(&a, m, NULL), SWL_OK);
            assert_int_equal(swl_session_eval(a, ids + i, first_n[i], SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
            assert_int_equal(swl_session_fork(&s[i], a, NULL), SWL_OK);
            assert_int_equal(swl_session_eval(a, ids + 7, second_n[i], wants[i], alone + rows * vocab, NULL), SWL_OK);
            rows += (size_t)n_wanted(i);
            swl_session_free(a);
            e[i] = (swl_batch_entry){s[i], ids + 7, second_n[i], wants[i]};
        }
        assert_int_equal(swl_batch_eval(e, SESSIONS, together, NULL), SWL_OK);
        assert_memory_equal(alone, together, rows * vocab * sizeof *alone);
        for (int i = 0; i < SESSIONS; i++) {
            assert_int_equal(swl_session_n_tokens(s[i]), first_n[i] + second_n[i]);
            assert_memory_equal(swl_session_ids(s[i]) + first_n[i], ids + 7, (size_t)second_n[i] * sizeof *ids);
            swl_session_free(s[i]);
        }
        free(alone);
        free(together);
        swl_model_close(m);
    }
}

/* The last row of n tokens, of a call that wants all of them. */
static void last_of_all(swl_model *m, const int32_t *text, int32_t n, int32_t next, float *out)
{
    size_t vocab = (size_t)m->config->vocab;
    float *rows = malloc((size_t)n * vocab * sizeof *rows);
    swl_session *s;

    assert_non_null(rows);
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, text, n, SWL_LOGITS_ALL, rows, NULL), SWL_OK);
    memcpy(out, rows + (size_t)(n - 1) * vocab, vocab * sizeof *out);
    assert_int_equal(swl_session_eval(s, &next, 1, SWL_LOGITS_LAST, out + vocab, NULL), SWL_OK);
    swl_session_free(s);
    free(rows);
}

/* Conversations of which the last layer works out a row, or none, or all, in several parts of a pass: a row's logits, and those of
 * the token after it, are those of a call that wants all rows. */
static void rows_that_nobody_wants_change_nothing(void **state)
{
    enum { LONG = 600 };
    static const char *const names[] = {"next-b-mlx4", "q35moe-a-mlx4", "q35dense-a-mlx4g32"};
    static const int32_t n[3] = {LONG, LONG - 9, 3}, chunks[2] = {1300, 300};
    static int32_t text[LONG];

    (void)state;
    for (int i = 0; i < LONG; i++)
        text[i] = ids[i % N] ^ (i / N & 3);
    for (int k = 0; k < 6; k++) {
        swl_model *m = open_case(names[k / 2], false, chunks[k % 2], 2);
        size_t vocab = (size_t)m->config->vocab;
        float *want = malloc(6 * vocab * sizeof *want), *got = malloc(6 * vocab * sizeof *got);
        swl_session *s[3];
        swl_batch_entry e[3];

        for (int i = 0; i < 3; i++) {
            last_of_all(m, text + i, n[i] - i, 7, want + 2 * (size_t)i * vocab);
            assert_int_equal(swl_session_create(&s[i], m, NULL), SWL_OK);
        }
        e[0] = (swl_batch_entry){s[0], text, n[0], SWL_LOGITS_NONE};
        e[1] = (swl_batch_entry){s[1], text + 1, n[1] - 1, SWL_LOGITS_LAST};
        e[2] = (swl_batch_entry){s[2], text + 2, n[2] - 2, SWL_LOGITS_ALL};
        assert_int_equal(swl_batch_eval(e, 3, got, NULL), SWL_OK);
        assert_memory_equal(got, want + 2 * vocab, vocab * sizeof *got);
        assert_memory_equal(got + vocab, want + 4 * vocab, vocab * sizeof *got);
        for (int i = 0; i < 3; i++) {
            static const int32_t next = 7;

            assert_int_equal(swl_session_eval(s[i], &next, 1, SWL_LOGITS_LAST, got, NULL), SWL_OK);
            assert_memory_equal(got, want + (2 * (size_t)i + 1) * vocab, vocab * sizeof *got);
            swl_session_free(s[i]);
        }
        free(want);
        free(got);
        swl_model_close(m);
    }
}

static void a_refused_batch_runs_nothing(void **state)
{
    swl_model *m = open_case("q35moe-a-mlx4", false, 16, 2), *other = open_case("q35moe-a-mlx4", false, 16, 2);
    const int32_t bad = -1;
    swl_session *a, *b, *c;
    swl_error err;

    (void)state;
    assert_int_equal(swl_session_create(&a, m, NULL), SWL_OK);
    assert_int_equal(swl_session_create(&b, m, NULL), SWL_OK);
    assert_int_equal(swl_session_create(&c, other, NULL), SWL_OK);
    {
        const swl_batch_entry twice[] = {{a, ids, 2, SWL_LOGITS_NONE}, {b, ids, 2, SWL_LOGITS_NONE},
                                         {a, ids, 2, SWL_LOGITS_NONE}};
        const swl_batch_entry mixed[] = {{a, ids, 2, SWL_LOGITS_NONE}, {c, ids, 2, SWL_LOGITS_NONE}};
        const swl_batch_entry wrong[] = {{a, ids, 2, SWL_LOGITS_NONE}, {b, &bad, 1, SWL_LOGITS_NONE}};
        const swl_batch_entry nowhere[] = {{a, ids, 2, SWL_LOGITS_LAST}};

        assert_int_equal(swl_batch_eval(twice, 3, NULL, &err), SWL_E_ARG);
        assert_int_equal(swl_batch_eval(mixed, 2, NULL, &err), SWL_E_ARG);
        assert_int_equal(swl_batch_eval(wrong, 2, NULL, &err), SWL_E_ARG);
        assert_int_equal(swl_batch_eval(nowhere, 1, NULL, &err), SWL_E_ARG);
        assert_int_equal(swl_batch_eval(nowhere, 0, NULL, &err), SWL_E_ARG);
    }
    assert_int_equal(swl_session_n_tokens(a) + swl_session_n_tokens(b) + swl_session_n_tokens(c), 0);
    assert_int_equal(swl_session_eval(a, ids, 2, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
    swl_session_free(a);
    swl_session_free(b);
    swl_session_free(c);
    swl_model_close(m);
    swl_model_close(other);
}

/* Sizes from the config of the case, not from the code that counts: 4 bits with group 64 and bf16 scales and biases are
 * 4.5 bits a weight, an expert is three matrices. */
static void passes_count_experts_once_and_products_per_token(void **state)
{
    swl_model *m = open_case("q35moe-a-mlx4", false, 64, 2);
    const swl_config *c = m->config;
    uint64_t weights = 3 * (uint64_t)c->hidden * (uint64_t)c->expert_width, n_moe = 0, one;
    swl_batch_entry e[3];
    swl_session *s[3];
    swl_profile p, q;
    float *logits = malloc(3 * (size_t)c->vocab * sizeof *logits);

    (void)state;
    assert_non_null(logits);
    for (int32_t i = 0; i < c->n_layers; i++)
        n_moe += c->layers[i].ffn == SWL_FFN_MOE;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(swl_session_create(&s[i], m, NULL), SWL_OK);
        e[i] = (swl_batch_entry){s[i], ids, 1, SWL_LOGITS_LAST};
    }
    swl_profile_start(m, true);
    assert_int_equal(swl_batch_eval(e, 1, logits, NULL), SWL_OK);
    swl_profile_get(m, &p);
    one = weights * 9 / 16;
    assert_int_equal(p.n_passes, 1);
    assert_int_equal(p.n_tokens, 1);
    assert_int_equal(p.expert_bytes, n_moe * (uint64_t)c->n_experts_used * one);

    /* The same experts for three tokens: their bytes count once, their products three times. */
    swl_routes_set(m, SWL_ROUTES_SAME, 5);
    for (int i = 0; i < 3; i++)
        swl_session_reset(s[i]);
    swl_profile_start(m, true);
    assert_int_equal(swl_batch_eval(e, 3, logits, NULL), SWL_OK);
    swl_profile_get(m, &q);
    assert_int_equal(q.n_tokens, 3);
    assert_int_equal(q.expert_bytes, p.expert_bytes);
    assert_int_equal(q.dense_bytes, p.dense_bytes);
    assert_int_equal(q.multiply_adds, 3 * p.multiply_adds);
    assert_int_equal(q.state_bytes, 3 * p.state_bytes);
    assert_int_equal(q.kv_bytes, 3 * p.kv_bytes);

    /* Evenly drawn ones: more experts than one token's, at most three times as many; all phases together are the whole. */
    swl_routes_set(m, SWL_ROUTES_UNIFORM, 5);
    swl_profile_start(m, true);
    assert_int_equal(swl_batch_eval(e, 3, logits, NULL), SWL_OK);
    swl_profile_get(m, &q);
    assert_true(q.expert_bytes > p.expert_bytes && q.expert_bytes <= 3 * p.expert_bytes);
    one = 0;
    for (int i = 0; i < SWL_PHASE_COUNT; i++)
        one += q.phase_ns[i];
    assert_true(one <= q.ns && one > q.ns / 2);
    assert_true(q.phase_ns[SWL_PHASE_DELTA] && q.phase_ns[SWL_PHASE_ATTENTION] && q.phase_ns[SWL_PHASE_EXPERTS]);

    /* What the last layer's experts make of a token is for its logits alone: nobody wants them, nobody runs them. */
    swl_routes_set(m, SWL_ROUTES_SAME, 5);
    e[0].want = e[1].want = SWL_LOGITS_NONE;
    swl_profile_start(m, true);
    assert_int_equal(swl_batch_eval(e, 2, NULL, NULL), SWL_OK);
    swl_profile_get(m, &q);
    assert_int_equal(q.expert_bytes, p.expert_bytes / n_moe * (n_moe - 1));
    assert_true(q.dense_bytes < p.dense_bytes);
    swl_profile_start(m, true);
    assert_int_equal(swl_batch_eval(e, 3, logits, NULL), SWL_OK);
    swl_profile_get(m, &q);
    assert_int_equal(q.expert_bytes, p.expert_bytes);
    assert_int_equal(q.dense_bytes, p.dense_bytes);
    assert_true(q.multiply_adds < 3 * p.multiply_adds - 2 * (uint64_t)c->n_experts_used * weights);
    for (int i = 0; i < 3; i++)
        swl_session_free(s[i]);
    swl_model_close(m);
    free(logits);
}

/* Every expert has the same chance, and no token gets one twice. */
static void uniform_routes_are_uniform(void **state)
{
    enum { DRAWS = 20000 };
    swl_model *m = open_case("q35moe-a-mlx4", false, 64, 2);
    int32_t n = m->config->n_experts, k = m->config->n_experts_used, *counts = calloc((size_t)n, sizeof *counts);
    double expected = (double)DRAWS * k / n;

    (void)state;
    swl_routes_set(m, SWL_ROUTES_UNIFORM, 1);
    for (int i = 0; i < DRAWS; i++) {
        assert_int_equal(swl_routes_apply(m, 0, 1, NULL), SWL_OK);
        for (int j = 0; j < k; j++) {
            counts[m->work.topk[j]]++;
            for (int l = 0; l < j; l++)
                assert_int_not_equal(m->work.topk[j], m->work.topk[l]);
        }
    }
    for (int i = 0; i < n; i++)
        assert_true(counts[i] > 0.9 * expected && counts[i] < 1.1 * expected);
    free(counts);
    swl_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_gives_the_rows_of_separate_calls),
        cmocka_unit_test(rows_that_nobody_wants_change_nothing),
        cmocka_unit_test(a_refused_batch_runs_nothing),
        cmocka_unit_test(passes_count_experts_once_and_products_per_token),
        cmocka_unit_test(uniform_routes_are_uniform),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
