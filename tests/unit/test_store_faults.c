/* The expert store when reads are late, out of order, short or failing, when memory runs out, and when it is resized:
 * the right bytes or a clean error, nothing lost, no buffer taken from under the I/O. */
#define _GNU_SOURCE
#include "store/io_fake.h"
#include "store/store_fixture.h"

#include "base/mem.h"

static unsigned pick(unsigned *seed, unsigned n)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % n;
}

/* n distinct experts. */
static void pick_experts(unsigned *seed, int32_t *out, int32_t n)
{
    int32_t all[EXPERTS], i, j;

    for (i = 0; i < EXPERTS; i++)
        all[i] = i;
    for (i = 0; i < n; i++) {
        j = i + (int32_t)pick(seed, (unsigned)(EXPERTS - i));
        out[i] = all[j];
        all[j] = all[i];
    }
}

/* Tokens and prompts at random; stops at the first error. */
static swl_status run(fixture *f, unsigned seed, int32_t n, int32_t k, swl_error *err)
{
    swl_status st = SWL_OK;
    int32_t i, e, experts[EXPERTS], rows[EXPERTS];

    pick_experts(&seed, experts, k);
    for (i = 0; i < n && !st; i++) {
        int32_t layer = (int32_t)pick(&seed, LAYERS);

        if (pick(&seed, 4)) {
            if (pick(&seed, 2)) { /* a guess, right or wrong, for this layer or another */
                pick_experts(&seed, experts, 3);
                swl_store_prefetch(f->store, pick(&seed, 4) ? layer : (int32_t)pick(&seed, LAYERS), experts, 3, 3,
                                   SWL_LEASE_ALL);
            }
            if (pick(&seed, 2))
                pick_experts(&seed, experts, k);
            st = use_token(f, layer, experts, k, err);
        } else {
            for (e = 0; e < EXPERTS; e++)
                rows[e] = (int32_t)pick(&seed, 5);
            rows[0]++;
            if (pick(&seed, 2)) { /* with slots lent for it or given back, guessed right, wrong, or for another layer */
                pick_experts(&seed, experts, EXPERTS);
                swl_store_lend(f->store, (int32_t)pick(&seed, 3) * LAYERS);
                swl_store_prefetch(f->store, pick(&seed, 4) ? layer : (int32_t)pick(&seed, LAYERS), experts, EXPERTS, EXPERTS,
                                   SWL_LEASE_STREAM);
            }
            st = use_prompt(f, layer, rows, 20, err);
            pick_experts(&seed, experts, k);
        }
    }
    return st;
}

static void late_short_and_reordered_reads_change_nothing(void **state)
{
    static const char *const names[] = {"lru", "hybrid", "lfu-decay"};
    int aligned;
    unsigned seed;

    (void)state;
    for (aligned = 0; aligned < 2; aligned++)
        for (seed = 1; seed <= 24; seed++) {
            fixture f;
            int32_t n_open = 0;

            fixture_init(&f, aligned);
            f.config.io = &io_fake_new(seed, &n_open)->base;
            f.config.policy = names[seed % 3];
            f.config.stage_slots = (int32_t)(seed % 4);
            f.config.slots_per_layer = 2 + (int32_t)seed % 9;
            assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
            assert_int_equal(run(&f, seed, 60, 2, NULL), SWL_OK);
            fixture_deinit(&f);
            assert_int_equal(n_open, 0);
        }
}

/* Every read operation in turn fails, once or from then on, until a run has fewer operations than that. */
static void each_failing_read_is_reported_and_survived(void **state)
{
    int for_good, at;

    (void)state;
    for (for_good = 0; for_good < 2; for_good++)
        for (at = 0;; at++) {
            fixture f;
            io_fake *fake = io_fake_new(at % 2 ? 77 : 0, NULL);
            swl_error err = {0};
            swl_status st;
            int64_t n_ops;

            fixture_init(&f, at % 3);
            fake->fail_at = at;
            fake->for_good = for_good;
            f.config.io = &fake->base;
            f.config.stage_slots = 2;
            f.config.slots_per_layer = at % 2 ? 6 : 4;
            assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
            st = run(&f, 5, 12, 2, &err);
            n_ops = fake->n_ops;
            if (st) {
                assert_int_equal(st, SWL_E_IO);
                assert_int_equal(err.os_errno, EIO);
                assert_string_equal(err.file, f.path);
                assert_non_null(strstr(err.message, "layer "));
                assert_non_null(strstr(err.message, "expert "));
                fake->fail_at = -1; /* the drive recovers, and so does the store */
                assert_int_equal(run(&f, 6, 20, 2, NULL), SWL_OK);
            }
            fixture_deinit(&f);
            if (n_ops <= at)
                break;
        }
}

static void memory_that_runs_out_is_a_clean_error(void **state)
{
    int for_good, at;

    (void)state;
    for (for_good = 0; for_good < 2; for_good++)
        for (at = 0;; at++) {
            fixture f;
            swl_error err;
            swl_status st;

            fixture_init(&f, true);
            f.config.direct = true;
            swl_mem_fail_after(at, for_good);
            st = swl_store_create(&f.store, &f.config, &err);
            swl_mem_fail_after(-1, false);
            if (st) {
                assert_int_equal(st, SWL_E_NOMEM);
                assert_null(f.store);
            } else {
                assert_int_equal(run(&f, 3, 20, 2, NULL), SWL_OK);
            }
            fixture_deinit(&f);
            if (!st && at > 30)
                break;
        }
}

/* What a call abandons, because another of its reads failed, is still being written to. */
static void abandoned_reads_end_before_the_store_does(void **state)
{
    const int32_t ab[] = {0, 1};
    swl_lease leases[2];
    fixture f;
    io_fake *fake = io_fake_new(0, NULL);

    (void)state;
    fixture_init(&f, true);
    f.config.io = &fake->base;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    swl_store_announce(f.store, 0, ab, NULL, 2, 1);
    assert_int_equal(swl_store_lease(f.store, 0, ab, 2, SWL_LEASE_ALL, leases, NULL, NULL), SWL_OK);
    swl_store_release(f.store, 0, leases, 2);
    assert_int_equal(fake->n, 2);
    /* Leased again while on their way: no second read. */
    assert_int_equal(use_token(&f, 0, ab, 2, NULL), SWL_OK);
    assert_int_equal(fake->n_ops, 2);
    swl_store_announce(f.store, 1, ab, NULL, 2, 1);
    assert_int_equal(swl_store_lease(f.store, 1, ab, 2, SWL_LEASE_ALL, leases, NULL, NULL), SWL_OK);
    swl_store_release(f.store, 1, leases, 2);
    fixture_deinit(&f); /* the fake insists that nothing is in flight when it is closed */
}

static swl_store_stats stats(const fixture *f)
{
    swl_store_stats s;

    swl_store_stats_get(f->store, &s);
    return s;
}

static int32_t count_hits(fixture *f, int32_t layer)
{
    swl_store_stats a, b;
    int32_t e, n = 0;
    swl_lease lease;

    for (e = 0; e < EXPERTS; e++) { /* a lease without an announcement does not change who is next to go */
        swl_store_stats_get(f->store, &a);
        if (swl_store_lease(f->store, layer, &e, 1, SWL_LEASE_STREAM, &lease, NULL, NULL))
            continue;
        assert_int_equal(swl_store_wait(f->store, layer, &lease, 1, NULL), SWL_OK);
        swl_store_release(f->store, layer, &lease, 1);
        swl_store_stats_get(f->store, &b);
        n += b.n_hits > a.n_hits;
    }
    return n;
}

static void resizing_keeps_what_is_leased(void **state)
{
    const int32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    swl_lease leases[6];
    fixture f;
    swl_error err;
    uint64_t before;
    int32_t i;

    (void)state;
    fixture_init(&f, true);
    f.config.slots_per_layer = EXPERTS;
    f.config.stage_slots = 2;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    assert_int_equal(use_token(&f, 0, all, EXPERTS, NULL), SWL_OK);
    before = stats(&f).pool_bytes;
    assert_int_equal(swl_store_lease(f.store, 0, all + 3, 6, SWL_LEASE_ALL, leases, NULL, NULL), SWL_OK);
    assert_int_equal(swl_store_resize(f.store, 1, &err), SWL_E_BUDGET); /* one token needs two */
    assert_int_equal(swl_store_resize(f.store, 3, NULL), SWL_OK);
    assert_int_equal(swl_store_slots(f.store), 3);
    assert_int_equal(before - stats(&f).pool_bytes, (uint64_t)LAYERS * (EXPERTS - 3) * SLOT);
    for (i = 0; i < 6; i++)
        check_lease(&f, 0, &leases[i]);
    swl_store_release(f.store, 0, leases, 6);
    assert_int_equal(count_hits(&f, 0), 3);
    assert_int_equal(swl_store_resize(f.store, EXPERTS, NULL), SWL_OK);
    assert_int_equal(stats(&f).pool_bytes, before);
    assert_int_equal(use_token(&f, 0, all, EXPERTS, NULL), SWL_OK);
    assert_int_equal(count_hits(&f, 0), EXPERTS);
    fixture_deinit(&f);
}

static void resizing_between_calls_never_shows_a_wrong_byte(void **state)
{
    unsigned seed = 9;
    int aligned, i;

    (void)state;
    for (aligned = 0; aligned < 2; aligned++) {
        fixture f;

        fixture_init(&f, aligned);
        f.config.io = &io_fake_new(123, NULL)->base;
        f.config.stage_slots = 3;
        assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
        for (i = 0; i < 60; i++) {
            assert_int_equal(swl_store_resize(f.store, 2 + (int32_t)pick(&seed, EXPERTS - 1), NULL), SWL_OK);
            assert_int_equal(run(&f, seed, 5, 2, NULL), SWL_OK);
        }
        fixture_deinit(&f);
    }
}

/* Experts that a long prompt uses a little must not push out what is used much; those that it uses more take a place. */
static void a_prompt_passes_through_and_leaves_its_hottest(void **state)
{
    const int32_t warm[] = {1, 5}, hot[] = {7, 9};
    int32_t rows[EXPERTS], i;
    swl_store_stats s;
    fixture f;

    (void)state;
    fixture_init(&f, true);
    f.config.slots_per_layer = 2;
    f.config.stage_slots = 2;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    for (i = 0; i < 30; i++)
        assert_int_equal(use_token(&f, 0, warm, 2, NULL), SWL_OK);
    for (i = 0; i < EXPERTS; i++)
        rows[i] = 1;
    rows[1] = rows[5] = 4;
    assert_int_equal(use_prompt(&f, 0, rows, 10, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, 2 + EXPERTS - 2);
    assert_int_equal(s.n_streamed, EXPERTS - 2);
    assert_int_equal(use_token(&f, 0, warm, 2, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, 2 + EXPERTS - 2); /* they are still there */
    rows[7] = rows[9] = 900;
    assert_int_equal(use_prompt(&f, 0, rows, 1000, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    i = (int32_t)s.n_misses;
    assert_int_equal(use_token(&f, 0, hot, 2, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, i);
    fixture_deinit(&f);
}

static void a_guess_evicts_nothing_and_waits_its_turn(void **state)
{
    const int32_t warm[] = {0, 1, 2, 3}, guess[] = {4, 5, 6}, mixed[] = {5, 0}, other[] = {8};
    swl_lease lease;
    swl_store_stats s;
    fixture f;
    io_fake *fake = io_fake_new(0, NULL);

    (void)state;
    fixture_init(&f, true);
    f.config.stage_slots = 2;
    f.config.io = &fake->base;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    assert_int_equal(use_token(&f, 0, warm, 4, NULL), SWL_OK);
    swl_store_prefetch(f.store, 0, guess, 3, 3, SWL_LEASE_ALL);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_ahead, 2); /* as many as the stage holds */
    swl_store_prefetch(f.store, 1, guess, 1, 1, SWL_LEASE_ALL);
    assert_int_equal(fake->n, 1); /* the first two have been taken by then, and given up */
    swl_store_prefetch(f.store, 0, guess, 3, 3, SWL_LEASE_ALL);
    assert_int_equal(use_token(&f, 0, warm, 4, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, 4); /* nothing of the pool went */
    assert_int_equal(s.n_ahead_used, 0);
    swl_store_prefetch(f.store, 0, guess, 3, 3, SWL_LEASE_ALL);
    assert_int_equal(use_token(&f, 0, mixed, 2, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, 4); /* the guess was right */
    assert_int_equal(s.n_ahead_used, 1);
    assert_int_equal(use_token(&f, 0, mixed, 2, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, 4); /* and has its place now */
    /* While something else is being read there is no guessing. */
    assert_int_equal(swl_store_lease(f.store, 1, other, 1, SWL_LEASE_ALL, &lease, NULL, NULL), SWL_OK);
    fake->fail_errno = EAGAIN; /* never done */
    fake->fail_at = fake->n_ops;
    fake->for_good = true;
    swl_store_prefetch(f.store, 0, guess, 3, 3, SWL_LEASE_ALL);
    assert_int_equal(fake->n, 1);
    fake->fail_at = -1;
    swl_store_release(f.store, 1, &lease, 1);
    fixture_deinit(&f);
}

static void a_guess_reads_the_likeliest_that_are_missing(void **state)
{
    const int32_t warm[] = {0, 1}, guess[] = {1, 4, 0, 5, 6}, chosen[] = {4, 5}, unread[] = {6};
    swl_store_stats s;
    fixture f;

    (void)state;
    fixture_init(&f, true);
    f.config.stage_slots = 4;
    f.config.io = &io_fake_new(0, NULL)->base;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    assert_int_equal(use_token(&f, 0, warm, 2, NULL), SWL_OK);
    swl_store_prefetch(f.store, 0, guess, 5, 2, SWL_LEASE_ALL);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_ahead, 2);
    assert_int_equal(use_token(&f, 0, chosen, 2, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_ahead_used, 2);
    assert_int_equal(s.n_misses, 2); /* the warm ones */
    assert_int_equal(use_token(&f, 0, unread, 1, NULL), SWL_OK);
    swl_store_stats_get(f.store, &s);
    assert_int_equal(s.n_misses, 3);
    fixture_deinit(&f);
}

static void a_layer_whose_guesses_are_wrong_is_left_alone(void **state)
{
    const int32_t warm[] = {0, 1}, guess[] = {7};
    fixture f;
    int i;

    (void)state;
    fixture_init(&f, true);
    f.config.stage_slots = 2;
    f.config.io = &io_fake_new(0, NULL)->base;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    f.config.slots_per_layer = 2;
    assert_int_equal(swl_store_resize(f.store, 2, NULL), SWL_OK);
    assert_true(swl_store_guesses(f.store, 0, SWL_LEASE_ALL));
    for (i = 0; i < 300; i++) {
        assert_int_equal(use_token(&f, 0, warm, 2, NULL), SWL_OK);
        swl_store_prefetch(f.store, 0, guess, 1, 1, SWL_LEASE_ALL);
    }
    assert_false(swl_store_guesses(f.store, 0, SWL_LEASE_ALL));
    assert_true(swl_store_guesses(f.store, 1, SWL_LEASE_ALL));
    assert_in_range(stats(&f).n_ahead, 30, 100);
    assert_int_equal(stats(&f).n_ahead_used, 0);
    fixture_deinit(&f);
}

/* ---- prompts ahead -------------------------------------------------------------------------------------------------- */

static const int32_t all_experts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* Six slots in each layer, of which each can lend one: a stage of two, or five. */
static io_fake *open_prompts(fixture *f, uint64_t seed)
{
    io_fake *fake = io_fake_new(seed, NULL);

    fixture_init(f, true);
    f->config.slots_per_layer = 6;
    f->config.stage_slots = 2;
    f->config.io = &fake->base;
    assert_int_equal(swl_store_create(&f->store, &f->config, NULL), SWL_OK);
    return fake;
}

static void guess(fixture *f, int32_t layer, const int32_t *experts, int32_t n)
{
    swl_store_prefetch(f->store, layer, experts, n, EXPERTS, SWL_LEASE_STREAM);
}

static void a_prompt_reads_ahead_into_what_layers_lend(void **state)
{
    int32_t rows[EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, i;
    uint64_t bytes;
    fixture f;

    (void)state;
    open_prompts(&f, 0);
    bytes = stats(&f).pool_bytes;
    for (i = 0; i < 30; i++)
        assert_int_equal(use_token(&f, 0, all_experts, 6, NULL), SWL_OK);
    assert_false(swl_store_guesses(f.store, 0, SWL_LEASE_STREAM));
    guess(&f, 0, all_experts, EXPERTS);
    assert_int_equal(stats(&f).n_ahead, 0); /* nothing is lent */
    swl_store_lend(f.store, 100);           /* a sixth of each share at most */
    assert_int_equal(stats(&f).pool_bytes, bytes);
    assert_int_equal(stats(&f).n_evicted, 1);
    assert_true(swl_store_guesses(f.store, 0, SWL_LEASE_STREAM));
    guess(&f, 0, all_experts + 9, 3);
    assert_int_equal(stats(&f).n_ahead, 3); /* with one that will not be used */
    assert_int_equal(use_prompt(&f, 0, rows, 1, NULL), SWL_OK);
    assert_int_equal(stats(&f).n_ahead_used, 2);
    assert_int_equal(stats(&f).n_misses, 6 + 4); /* the one that went, and three that were not guessed */
    assert_int_equal(stats(&f).n_evicted, 1);    /* what passes by evicts nothing, guessed or not */
    swl_store_lend(f.store, 0);
    assert_int_equal(stats(&f).pool_bytes, bytes);
    assert_int_equal(use_token(&f, 0, all_experts, 6, NULL), SWL_OK);
    assert_int_equal(stats(&f).n_misses, 6 + 4 + 1);
    assert_int_equal(use_token(&f, 0, all_experts, 6, NULL), SWL_OK);
    assert_int_equal(stats(&f).n_misses, 6 + 4 + 1); /* the slot is back */
    fixture_deinit(&f);
}

static void a_guess_that_is_used_much_takes_a_place(void **state)
{
    const int32_t hot[] = {8, 9};
    int32_t rows[EXPERTS] = {0}, i;
    fixture f;

    (void)state;
    open_prompts(&f, 0);
    for (i = 0; i < 6; i++)
        assert_int_equal(use_token(&f, 0, all_experts, 6, NULL), SWL_OK);
    swl_store_lend(f.store, 3);
    guess(&f, 0, hot, 2);
    rows[8] = rows[9] = 100;
    assert_int_equal(use_prompt(&f, 0, rows, 100, NULL), SWL_OK);
    assert_int_equal(stats(&f).n_misses, 6);
    assert_int_equal(stats(&f).n_streamed, 0);
    assert_int_equal(use_token(&f, 0, hot, 2, NULL), SWL_OK);
    assert_int_equal(stats(&f).n_misses, 6);
    fixture_deinit(&f);
}

/* Groups of a prompt while what was guessed wrong is still on its way in the lent part of the stage: the pool stays. */
static void wrong_guesses_on_their_way_are_not_in_the_way(void **state)
{
    int32_t rows[EXPERTS] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0}, i;
    uint64_t seed;

    (void)state;
    for (seed = 1; seed < 30; seed++) {
        fixture f;

        open_prompts(&f, seed);
        for (i = 0; i < 9; i++)
            assert_int_equal(use_token(&f, 0, all_experts, 5, NULL), SWL_OK);
        swl_store_lend(f.store, 3);
        guess(&f, 0, all_experts + 9, 3);
        assert_int_equal(use_prompt(&f, 0, rows, 1, NULL), SWL_OK);
        assert_int_equal(stats(&f).n_ahead_used, 0);
        assert_int_equal(stats(&f).n_evicted, 0);
        assert_int_equal(use_token(&f, 0, all_experts, 5, NULL), SWL_OK);
        assert_int_equal(stats(&f).n_misses, 5 + 3);
        fixture_deinit(&f);
    }
}

/* A pass that ends after a guess: no verdict on it, and the next pass has its room. */
static void guesses_of_a_pass_that_ended_are_dropped(void **state)
{
    int32_t rows[EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    uint64_t seed;
    fixture f;
    int i;

    (void)state;
    for (seed = 0; seed < 4; seed++) {
        open_prompts(&f, seed);
        for (i = 0; i < 60; i++) {
            swl_store_lend(f.store, 3);
            assert_int_equal(use_prompt(&f, 0, rows, 2, NULL), SWL_OK);
            guess(&f, 1, all_experts, EXPERTS);
            if (i % 3 == 0) {
                swl_store_lend(f.store, 0);
                assert_int_equal(use_token(&f, 0, all_experts, 6, NULL), SWL_OK);
            }
        }
        assert_true(stats(&f).n_ahead >= 100);
        assert_int_equal(stats(&f).n_ahead_used, 0);
        swl_store_lend(f.store, 0);
        swl_store_lend(f.store, 3);
        assert_true(swl_store_guesses(f.store, 1, SWL_LEASE_STREAM));
        fixture_deinit(&f);
    }
}

static void prompts_and_tokens_are_judged_apart(void **state)
{
    int32_t rows[EXPERTS] = {1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, i;
    fixture f;

    (void)state;
    open_prompts(&f, 0);
    swl_store_lend(f.store, 3);
    for (i = 0; i < 30; i++) {
        guess(&f, 0, all_experts + 6, 6);
        assert_int_equal(use_prompt(&f, 0, rows, 9, NULL), SWL_OK);
    }
    assert_in_range(stats(&f).n_ahead, 60, 75); /* three wrong ones each time, until it is left alone */
    assert_true(swl_store_guesses(f.store, 0, SWL_LEASE_ALL));
    for (i = 0; i < 20; i++)
        assert_int_equal(use_prompt(&f, 0, rows, 9, NULL), SWL_OK);
    assert_false(swl_store_guesses(f.store, 0, SWL_LEASE_STREAM)); /* little is missing */
    guess(&f, 0, all_experts + 6, 6);
    assert_in_range(stats(&f).n_ahead, 63, 78);
    fixture_deinit(&f);
}

static void resizing_with_guesses_on_their_way(void **state)
{
    int32_t rows[EXPERTS] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, i;
    uint64_t seed;

    (void)state;
    for (seed = 1; seed < 20; seed++) {
        fixture f;

        open_prompts(&f, seed);
        for (i = 0; i < 30; i++) {
            swl_store_lend(f.store, i % 4 ? 3 : 0);
            guess(&f, i % LAYERS, all_experts, EXPERTS);
            assert_int_equal(swl_store_resize(f.store, 2 + (i * 5 + (int32_t)seed) % (EXPERTS - 1), NULL), SWL_OK);
            assert_int_equal(use_prompt(&f, i % LAYERS, rows, 20, NULL), SWL_OK);
        }
        swl_store_lend(f.store, 0);
        assert_int_equal(swl_store_resize(f.store, EXPERTS, NULL), SWL_OK);
        for (i = 0; i < 2; i++)
            assert_int_equal(use_token(&f, 0, all_experts, EXPERTS, NULL), SWL_OK);
        assert_int_equal(count_hits(&f, 0), EXPERTS);
        assert_false(swl_store_guesses(f.store, 0, SWL_LEASE_STREAM)); /* everything is there */
        fixture_deinit(&f);
    }
}

/* Read again when it is wanted: the fault was of a read that nobody had asked for. */
static void a_guess_whose_read_fails_costs_nothing(void **state)
{
    int32_t rows[EXPERTS] = {0};
    fixture f;
    io_fake *fake;

    (void)state;
    fake = open_prompts(&f, 0);
    swl_store_lend(f.store, 3);
    fake->fail_at = fake->n_ops;
    guess(&f, 0, all_experts + 4, 2);
    swl_store_lend(f.store, 0); /* waits for them */
    assert_int_equal(fake->n, 0);
    fake->fail_at = -1;
    rows[4] = rows[5] = 1;
    assert_int_equal(use_prompt(&f, 0, rows, 2, NULL), SWL_OK);
    fixture_deinit(&f);
}

static void nothing_is_read_ahead_while_the_store_stands_still(void **state)
{
    fixture f;
    io_fake *fake;

    (void)state;
    fake = open_prompts(&f, 0);
    assert_int_equal(use_token(&f, 0, all_experts, 6, NULL), SWL_OK);
    swl_store_lend(f.store, 3);
    swl_store_stand_still(f.store, true);
    swl_store_lend(f.store, 0);
    assert_false(swl_store_guesses(f.store, 0, SWL_LEASE_STREAM));
    guess(&f, 0, all_experts, EXPERTS);
    assert_int_equal(fake->n, 0);
    swl_store_stand_still(f.store, false);
    assert_true(swl_store_guesses(f.store, 0, SWL_LEASE_STREAM)); /* it is still lent */
    fixture_deinit(&f);
}

static void direct_reads_bring_the_same_bytes(void **state)
{
    static const char *const names[] = {"threads", "uring"};
    fixture f;
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        fixture_init_at(&f, true, true);
        f.config.direct = true;
        f.config.stage_slots = 2;
        if (!swl_io_open(&f.config.io, names[i], 4, NULL)) {
            assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
            assert_int_equal(run(&f, 4, 80, 2, NULL), SWL_OK);
        }
        fixture_deinit(&f);
    }
}

static void damage(const fixture *f, int32_t layer, int32_t expert)
{
    uint8_t byte = (uint8_t)~f->bytes[layer][expert][77];

    assert_int_equal(pwrite(f->fd, &byte, 1, (off_t)f->ranges[layer][expert].offset + 77), 1);
}

/* Loads expert 0, pushes it out, damages its bytes, loads it again. */
static swl_status load_twice(swl_store_verify verify, bool damage_before)
{
    const int32_t first[] = {0}, others[] = {1, 2};
    swl_lease lease;
    swl_status st;
    fixture f;

    fixture_init(&f, true);
    f.config.verify = verify;
    f.config.slots_per_layer = 2;
    assert_int_equal(swl_store_create(&f.store, &f.config, NULL), SWL_OK);
    if (damage_before)
        damage(&f, 1, 0);
    else
        assert_int_equal(use_token(&f, 1, first, 1, NULL), SWL_OK);
    assert_int_equal(use_token(&f, 1, others, 2, NULL), SWL_OK);
    damage(&f, 1, 0);
    assert_int_equal(swl_store_lease(f.store, 1, first, 1, SWL_LEASE_ALL, &lease, NULL, NULL), SWL_OK);
    st = swl_store_wait(f.store, 1, &lease, 1, NULL);
    swl_store_release(f.store, 1, &lease, 1);
    fixture_deinit(&f);
    return st;
}

static void checksums_are_verified_as_often_as_asked(void **state)
{
    (void)state;
    assert_int_equal(load_twice(SWL_STORE_VERIFY_ALWAYS, true), SWL_E_CORRUPT);
    assert_int_equal(load_twice(SWL_STORE_VERIFY_ALWAYS, false), SWL_E_CORRUPT);
    assert_int_equal(load_twice(SWL_STORE_VERIFY_FIRST, true), SWL_E_CORRUPT);
    assert_int_equal(load_twice(SWL_STORE_VERIFY_FIRST, false), SWL_OK);
    assert_int_equal(load_twice(SWL_STORE_VERIFY_NEVER, true), SWL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_short_and_reordered_reads_change_nothing),
        cmocka_unit_test(each_failing_read_is_reported_and_survived),
        cmocka_unit_test(memory_that_runs_out_is_a_clean_error),
        cmocka_unit_test(abandoned_reads_end_before_the_store_does),
        cmocka_unit_test(resizing_keeps_what_is_leased),
        cmocka_unit_test(resizing_between_calls_never_shows_a_wrong_byte),
        cmocka_unit_test(a_prompt_passes_through_and_leaves_its_hottest),
        cmocka_unit_test(direct_reads_bring_the_same_bytes),
        cmocka_unit_test(checksums_are_verified_as_often_as_asked),
        cmocka_unit_test(a_guess_evicts_nothing_and_waits_its_turn),
        cmocka_unit_test(a_guess_reads_the_likeliest_that_are_missing),
        cmocka_unit_test(a_layer_whose_guesses_are_wrong_is_left_alone),
        cmocka_unit_test(a_prompt_reads_ahead_into_what_layers_lend),
        cmocka_unit_test(a_guess_that_is_used_much_takes_a_place),
        cmocka_unit_test(wrong_guesses_on_their_way_are_not_in_the_way),
        cmocka_unit_test(guesses_of_a_pass_that_ended_are_dropped),
        cmocka_unit_test(prompts_and_tokens_are_judged_apart),
        cmocka_unit_test(resizing_with_guesses_on_their_way),
        cmocka_unit_test(a_guess_whose_read_fails_costs_nothing),
        cmocka_unit_test(nothing_is_read_ahead_while_the_store_stands_still),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
