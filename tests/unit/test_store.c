/* The expert store on a small file: what is read, what stays, what a fault leaves behind. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "store/io_fake.h"
#include "store/store.h"

enum { EXPERTS = 6, SLOT = 256, LAYERS = 2 };

typedef struct fixture {
    char path[64];
    int fd;
    const char *paths[1];
    uint8_t bytes[LAYERS][EXPERTS][SLOT];
    swl_range ranges[LAYERS][EXPERTS][2]; /* two parts, stored apart: halves of a slot */
    uint32_t crc[LAYERS][EXPERTS];
    swl_store_layer layers[LAYERS];
    swl_store *store;
} fixture;

static void open_store(fixture *f, int32_t slots)
{
    swl_store_config c = {.n_layers = LAYERS, .layers = f->layers, .n_files = 1, .fds = &f->fd, .paths = f->paths,
                          .slots_per_layer = slots};

    assert_int_equal(swl_store_create(&f->store, &c, NULL), SWL_OK);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    int l, e, h, i, half = SLOT / 2;

    strcpy(f->path, "/tmp/swl-store-XXXXXX");
    f->fd = mkstemp(f->path);
    f->paths[0] = f->path;
    for (l = 0; l < LAYERS; l++) {
        for (e = 0; e < EXPERTS; e++) {
            for (i = 0; i < SLOT; i++)
                f->bytes[l][e][i] = (uint8_t)(l * 89 + e * 31 + i * 7);
            f->crc[l][e] = swl_crc32c(0, f->bytes[l][e], SLOT);
            for (h = 0; h < 2; h++) {
                uint64_t at = (uint64_t)(((l * 2 + h) * EXPERTS + e) * half + 3);

                f->ranges[l][e][h] = (swl_range){0, at, (uint64_t)half, (uint64_t)(h * half)};
                if (pwrite(f->fd, f->bytes[l][e] + h * half, (size_t)half, (off_t)at) != half)
                    return -1;
            }
        }
        f->layers[l] = (swl_store_layer){EXPERTS, 2, f->ranges[l][0], SLOT, f->crc[l]};
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;

    swl_store_free(f->store);
    close(f->fd);
    unlink(f->path);
    free(f);
    return 0;
}

/* Leases, waits, checks the bytes, releases. */
static swl_status use(fixture *f, int32_t layer, const int32_t *experts, int32_t n, swl_error *err)
{
    swl_lease leases[EXPERTS];
    swl_status st;
    int32_t i;

    swl_store_announce(f->store, layer, experts, NULL, n, 1);
    st = swl_store_lease(f->store, layer, experts, n, SWL_LEASE_ALL, leases, NULL, err);
    if (st)
        return st;
    st = swl_store_wait(f->store, layer, leases, n, err);
    for (i = 0; i < n && !st; i++) {
        assert_true(leases[i].ready);
        assert_int_equal(leases[i].expert, experts[i]);
        assert_int_equal((uintptr_t)leases[i].data % 64, 0);
        assert_memory_equal(leases[i].data, f->bytes[layer][experts[i]], SLOT);
    }
    swl_store_release(f->store, layer, leases, n);
    return st;
}

static uint64_t misses(fixture *f)
{
    swl_store_stats s;

    swl_store_stats_get(f->store, &s);
    return s.n_misses;
}

static void parts_of_an_expert_come_together(void **state)
{
    fixture *f = *state;
    const int32_t all[] = {5, 0, 3, 1, 4, 2};

    open_store(f, EXPERTS);
    assert_int_equal(use(f, 0, all, EXPERTS, NULL), SWL_OK);
    assert_int_equal(use(f, 1, all, EXPERTS, NULL), SWL_OK);
    assert_int_equal(misses(f), 2 * EXPERTS);
    assert_int_equal(use(f, 0, all, EXPERTS, NULL), SWL_OK);
    assert_int_equal(misses(f), 2 * EXPERTS);
}

static void what_was_used_lately_stays(void **state)
{
    fixture *f = *state;
    const int32_t ab[] = {0, 1}, c[] = {2}, a[] = {0};

    open_store(f, 3);
    assert_int_equal(use(f, 0, ab, 2, NULL), SWL_OK);
    assert_int_equal(use(f, 0, c, 1, NULL), SWL_OK);
    assert_int_equal(use(f, 0, a, 1, NULL), SWL_OK); /* a hit */
    assert_int_equal(misses(f), 3);
}

static void a_hit_of_a_call_is_not_evicted_by_its_misses(void **state)
{
    fixture *f = *state;
    const int32_t ab[] = {0, 1}, cda[] = {2, 3, 0};

    open_store(f, 3);
    assert_int_equal(use(f, 0, ab, 2, NULL), SWL_OK);
    assert_int_equal(use(f, 0, cda, 3, NULL), SWL_OK);
    assert_int_equal(misses(f), 4);
}

static void reads_and_evictions_are_counted(void **state)
{
    fixture *f = *state;
    const int32_t ab[] = {0, 1}, cda[] = {2, 3, 0};
    swl_store_stats s;
    uint64_t n = 0;

    open_store(f, 3);
    assert_int_equal(use(f, 0, ab, 2, NULL), SWL_OK);
    assert_int_equal(use(f, 0, cda, 3, NULL), SWL_OK);
    swl_store_stats_get(f->store, &s);
    assert_int_equal(s.n_evicted, 1); /* of three places, for four experts */
    assert_int_equal(s.n_reads, 8);   /* two for each */
    assert_int_equal(s.n_reading, 0);
    for (int i = 0; i < SWL_READ_TIMES; i++)
        n += s.read_times[i];
    assert_int_equal(n, s.n_reads);
    assert_true(s.read_ns > 0);
    assert_int_equal(use(f, 1, ab, 2, NULL), SWL_OK); /* another layer: there is room */
    swl_store_stats_get(f->store, &s);
    assert_int_equal(s.n_evicted, 1);
}

static void time_counts_as_reading_while_something_is_on_its_way(void **state)
{
    fixture *f = *state;
    const int32_t ab[] = {0, 1}, one[] = {0};
    swl_store_stats a, b;

    open_store(f, 3);
    assert_int_equal(use(f, 0, ab, 2, NULL), SWL_OK);
    swl_store_stats_get(f->store, &a);
    assert_true(a.reading_ns > 0 && a.reading_ns <= a.read_ns); /* four reads, some at the same time */
    assert_int_equal(use(f, 0, one, 1, NULL), SWL_OK);           /* a hit */
    usleep(2000);
    swl_store_stats_get(f->store, &b);
    assert_int_equal(b.reading_ns, a.reading_ns);
}

static void more_leases_than_slots_are_refused_whole(void **state)
{
    fixture *f = *state;
    const int32_t abc[] = {0, 1, 2}, ab[] = {0, 1};
    swl_error err;

    open_store(f, 2);
    assert_int_equal(use(f, 0, abc, 3, &err), SWL_E_BUDGET);
    assert_int_equal(use(f, 0, ab, 2, NULL), SWL_OK); /* nothing stayed leased */
}

/* A call that ended early has left reads on their way in every place that there is. */
static void what_was_given_up_gives_its_place_to_the_next_call(void **state)
{
    static const int32_t first[] = {0, 1}, second[] = {2, 3}, next[] = {4, 5}, all[] = {0, 1, 2, 3, 4, 5};
    fixture *f = *state;
    swl_lease leases[EXPERTS], more[EXPERTS];
    int32_t n, n_more;
    uint64_t seed;

    for (seed = 0; seed < 20; seed++) {
        swl_store_config c = {.n_layers = LAYERS, .layers = f->layers, .n_files = 1, .fds = &f->fd, .paths = f->paths,
                              .slots_per_layer = 2, .stage_slots = 2, .io = &io_fake_new(seed, NULL)->base};

        assert_int_equal(swl_store_create(&f->store, &c, NULL), SWL_OK);
        assert_int_equal(swl_store_lease(f->store, 0, first, 2, SWL_LEASE_ALL, leases, NULL, NULL), SWL_OK);
        assert_int_equal(swl_store_lease(f->store, 0, second, 2, SWL_LEASE_ALL, more, NULL, NULL), SWL_OK);
        swl_store_release(f->store, 0, leases, 2);
        swl_store_release(f->store, 0, more, 2);
        if (seed % 2) {
            assert_int_equal(use(f, 0, next, 2, NULL), SWL_OK);
        } else {
            swl_store_announce(f->store, 0, next, NULL, 2, 2);
            assert_int_equal(swl_store_lease(f->store, 0, next, 2, SWL_LEASE_STREAM, leases, &n, NULL), SWL_OK);
            assert_int_equal(swl_store_wait(f->store, 0, leases, n, NULL), SWL_OK);
            assert_memory_equal(leases[0].data, f->bytes[0][4], SLOT);
            swl_store_release(f->store, 0, leases, n);
        }
        /* with leases of its own a call is told at once, so that it can compute meanwhile */
        assert_int_equal(swl_store_lease(f->store, 1, all, 4, SWL_LEASE_ALL, leases, NULL, NULL), SWL_OK);
        assert_int_equal(swl_store_lease(f->store, 1, all + 4, 2, SWL_LEASE_STREAM, more, &n_more, NULL), SWL_E_BUDGET);
        assert_int_equal(n_more, 0);
        swl_store_release(f->store, 1, leases, 4);
        swl_store_free(f->store);
        f->store = NULL;
    }
}

/* Three damaged experts, of which a call meets the first and leaves the reads of the others on their way. */
static void the_next_call_does_not_meet_the_faults_of_the_last_one(void **state)
{
    static const int32_t three[] = {0, 1, 2};
    fixture *f = *state;
    uint8_t wrong[SLOT / 2] = {0};
    swl_lease leases[EXPERTS];
    uint64_t seed;
    int e, h;

    for (seed = 1; seed <= 50; seed++) {
        swl_store_config c = {.n_layers = LAYERS, .layers = f->layers, .n_files = 1, .fds = &f->fd, .paths = f->paths,
                              .slots_per_layer = 3, .io = &io_fake_new(seed, NULL)->base};

        assert_int_equal(swl_store_create(&f->store, &c, NULL), SWL_OK);
        for (e = 0; e < 3; e++)
            for (h = 0; h < 2; h++)
                assert_int_equal(pwrite(f->fd, wrong, SLOT / 2, (off_t)f->ranges[0][e][h].offset), SLOT / 2);
        assert_int_equal(swl_store_lease(f->store, 0, three, 3, SWL_LEASE_ALL, leases, NULL, NULL), SWL_OK);
        assert_int_equal(swl_store_wait(f->store, 0, leases, 3, NULL), SWL_E_CORRUPT);
        swl_store_release(f->store, 0, leases, 3);
        for (e = 0; e < 3; e++)
            for (h = 0; h < 2; h++)
                assert_int_equal(pwrite(f->fd, f->bytes[0][e] + h * SLOT / 2, SLOT / 2, (off_t)f->ranges[0][e][h].offset), SLOT / 2);
        assert_int_equal(use(f, 0, three, 3, NULL), SWL_OK);
        swl_store_free(f->store);
        f->store = NULL;
    }
}

static void a_damaged_blob_is_named_and_never_used(void **state)
{
    fixture *f = *state;
    const int32_t a[] = {4};
    uint8_t byte = (uint8_t)(f->bytes[1][4][200] ^ 1);
    swl_error err;
    int round;

    open_store(f, 2);
    assert_int_equal(pwrite(f->fd, &byte, 1, (off_t)(f->ranges[1][4][1].offset + 200 - SLOT / 2)), 1);
    for (round = 0; round < 2; round++) { /* it does not become a hit */
        assert_int_equal(use(f, 1, a, 1, &err), SWL_E_CORRUPT);
        assert_non_null(strstr(err.message, "layer 1, expert 4"));
        assert_string_equal(err.file, f->path);
    }
    assert_int_equal(use(f, 0, a, 1, NULL), SWL_OK);
}

static void a_file_cut_short_is_an_error(void **state)
{
    fixture *f = *state;
    const int32_t a[] = {5}, b[] = {0};
    swl_error err;

    open_store(f, 2);
    assert_int_equal(ftruncate(f->fd, (off_t)(f->ranges[1][5][1].offset + 1)), 0);
    assert_int_equal(use(f, 1, a, 1, &err), SWL_E_CORRUPT);
    assert_non_null(strstr(err.message, f->path));
    assert_int_equal(err.offset, f->ranges[1][5][1].offset + 1);
    assert_int_equal(use(f, 1, b, 1, NULL), SWL_OK);
    assert_int_equal(ftruncate(f->fd, 3), 0);
    assert_int_equal(use(f, 1, a, 1, &err), SWL_E_CORRUPT);
    assert_non_null(strstr(err.message, "ends at offset 3,"));
    assert_int_equal(err.offset, 3);
}

typedef struct user {
    fixture *f;
    unsigned seed;
    _Atomic int *n_running;
} user;

static void *use_many(void *arg)
{
    user *u = arg;
    int i;

    for (i = 0; i < 400; i++) {
        int32_t e[2], layer = rand_r(&u->seed) % LAYERS;

        e[0] = rand_r(&u->seed) % EXPERTS;
        e[1] = (e[0] + 1 + rand_r(&u->seed) % (EXPERTS - 1)) % EXPERTS;
        if (i % 3 == 0)
            swl_store_prefetch(u->f->store, (layer + i) % LAYERS, e, 2, 2, SWL_LEASE_ALL);
        assert_int_equal(use(u->f, layer, e, 2, NULL), SWL_OK);
    }
    atomic_fetch_sub(u->n_running, 1);
    return NULL;
}

/* Two callers of two experts each need four slots; the pool moves between that and everything meanwhile. */
static void share(fixture *f, const char *io, bool direct)
{
    swl_store_config c = {.n_layers = LAYERS, .layers = f->layers, .n_files = 1, .fds = &f->fd, .paths = f->paths,
                          .slots_per_layer = 4, .slots_min = 4, .stage_slots = 2, .direct = direct};
    _Atomic int n_running = 2;
    user u[2] = {{f, 1, &n_running}, {f, 2, &n_running}};
    pthread_t t[2];
    int i;

    if (swl_io_open(&c.io, io, 3, NULL))
        return; /* not on this system */
    assert_int_equal(swl_store_create(&f->store, &c, NULL), SWL_OK);
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, use_many, &u[i]), 0);
    for (i = 0; atomic_load(&n_running); i++) {
        assert_int_equal(swl_store_resize(f->store, 4 + i / 2 % 3, NULL), SWL_OK);
        sched_yield();
    }
    for (i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    swl_store_free(f->store);
    f->store = NULL;
}

static void threads_share_the_pool_while_it_is_resized(void **state)
{
    share(*state, "threads", false);
    share(*state, "uring", false);
    share(*state, "uring", true);
}

/* Large enough to be taken in parts; of odd length. */
static void a_team_takes_the_same_checksum(void **state)
{
    enum { SIZE = 200003 };
    fixture *f = *state;
    uint8_t *bytes = malloc(2 * SIZE);
    swl_range ranges[2] = {{0, 0, SIZE, 0}, {0, SIZE, SIZE, 0}};
    const int32_t right[] = {0}, wrong[] = {1};
    uint32_t crc[2];
    swl_lease lease;
    swl_error err;
    swl_threads *team;
    swl_store_layer layer = {2, 1, ranges, SIZE, crc};
    swl_store_config c = {.n_layers = 1, .layers = &layer, .n_files = 1, .fds = &f->fd, .paths = f->paths,
                          .slots_per_layer = 2, .io = &io_fake_new(3, NULL)->base};
    int i;

    for (i = 0; i < 2 * SIZE; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(pwrite(f->fd, bytes, 2 * SIZE, 0), 2 * SIZE);
    crc[0] = swl_crc32c_by_table(0, bytes, SIZE);
    crc[1] = swl_crc32c_by_table(0, bytes + SIZE, SIZE) ^ 1;
    assert_int_equal(swl_threads_create(&team, 3, NULL), SWL_OK);
    c.team = team;
    assert_int_equal(swl_store_create(&f->store, &c, NULL), SWL_OK);
    assert_int_equal(swl_store_lease(f->store, 0, right, 1, SWL_LEASE_ALL, &lease, NULL, NULL), SWL_OK);
    assert_int_equal(swl_store_wait(f->store, 0, &lease, 1, NULL), SWL_OK);
    assert_memory_equal(lease.data, bytes, SIZE);
    swl_store_release(f->store, 0, &lease, 1);
    assert_int_equal(swl_store_lease(f->store, 0, wrong, 1, SWL_LEASE_ALL, &lease, NULL, NULL), SWL_OK);
    assert_int_equal(swl_store_wait(f->store, 0, &lease, 1, &err), SWL_E_CORRUPT);
    swl_store_release(f->store, 0, &lease, 1);
    swl_store_free(f->store);
    f->store = NULL;
    swl_threads_free(team);
    free(bytes);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(parts_of_an_expert_come_together), T(what_was_used_lately_stays),
        T(a_hit_of_a_call_is_not_evicted_by_its_misses), T(reads_and_evictions_are_counted),
        T(time_counts_as_reading_while_something_is_on_its_way),
        T(more_leases_than_slots_are_refused_whole), T(what_was_given_up_gives_its_place_to_the_next_call),
        T(the_next_call_does_not_meet_the_faults_of_the_last_one),
        T(a_damaged_blob_is_named_and_never_used), T(a_file_cut_short_is_an_error),
        T(threads_share_the_pool_while_it_is_resized),
        T(a_team_takes_the_same_checksum),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
