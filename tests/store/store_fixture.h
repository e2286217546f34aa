/* store_fixture.h: a file of experts whose bytes are known, in the two layouts that the store meets: one aligned range for
 * each expert, and several ranges at odd offsets; and a caller that checks every byte. */
#ifndef TEST_STORE_FIXTURE_H
#define TEST_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "store/store.h"

enum { EXPERTS = 12, LAYERS = 3, SLOT = 8192, PARTS = 3 };

typedef struct fixture {
    char path[64];
    int fd;
    const char *paths[1];
    uint8_t bytes[LAYERS][EXPERTS][SLOT];
    swl_range ranges[LAYERS][EXPERTS * PARTS]; /* [EXPERTS][1 or PARTS] */
    uint32_t crc[LAYERS][EXPERTS];
    swl_store_layer layers[LAYERS];
    swl_store_config config;
    swl_store *store;
} fixture;

/* on_disk: not in memory, so that reads can be direct. */
static inline void fixture_init_at(fixture *f, bool aligned, bool on_disk)
{
    static const uint64_t cut[PARTS + 1] = {0, 5000, 5800, SLOT};
    int l, e, p, i, n = aligned ? 1 : PARTS;
    uint64_t at = aligned ? 4096 : 3;

    memset(f, 0, sizeof *f);
    strcpy(f->path, "/dev/shm/swl-store-XXXXXX"); /* in memory, where there is such a place */
    f->fd = on_disk ? -1 : mkstemp(f->path);
    if (f->fd < 0)
        f->fd = mkstemp(strcpy(f->path, "/tmp/swl-store-XXXXXX"));
    assert_true(f->fd >= 0);
    f->paths[0] = f->path;
    for (l = 0; l < LAYERS; l++) {
        for (e = 0; e < EXPERTS; e++) {
            for (i = 0; i < SLOT; i++)
                f->bytes[l][e][i] = (uint8_t)(l * 89 + e * 31 + i * 7 + i / 256);
            f->crc[l][e] = swl_crc32c(0, f->bytes[l][e], SLOT);
            for (p = 0; p < n; p++) {
                uint64_t from = aligned ? 0 : cut[p], size = (aligned ? SLOT : cut[p + 1]) - from;
                swl_range *r = &f->ranges[l][e * n + p];

                *r = (swl_range){0, at, size, from};
                assert_int_equal(pwrite(f->fd, f->bytes[l][e] + from, size, (off_t)at), (ssize_t)size);
                at += size + (aligned ? 0 : 1);
            }
        }
        f->layers[l] = (swl_store_layer){EXPERTS, n, f->ranges[l], SLOT, f->crc[l]};
    }
    f->config = (swl_store_config){.n_layers = LAYERS, .layers = f->layers, .n_files = 1, .fds = &f->fd,
                                   .paths = f->paths, .slots_per_layer = 4, .slots_min = 2};
}

static inline void fixture_init(fixture *f, bool aligned)
{
    fixture_init_at(f, aligned, false);
}

static inline void fixture_deinit(fixture *f)
{
    swl_store_free(f->store);
    close(f->fd);
    unlink(f->path);
}

static inline void check_lease(const fixture *f, int32_t layer, const swl_lease *l)
{
    assert_true(l->ready);
    assert_int_equal((uintptr_t)l->data % 4096, 0);
    assert_memory_equal(l->data, f->bytes[layer][l->expert], SLOT);
}

/* One token: announces, leases, takes the experts as they arrive, checks every byte, releases. */
static inline swl_status use_token(fixture *f, int32_t layer, const int32_t *experts, int32_t n, swl_error *err)
{
    swl_lease leases[EXPERTS];
    bool seen[EXPERTS] = {false};
    int32_t i, n_seen = 0;
    swl_status st;

    swl_store_announce(f->store, layer, experts, NULL, n, 1);
    st = swl_store_lease(f->store, layer, experts, n, SWL_LEASE_ALL, leases, NULL, err);
    if (st)
        return st;
    for (;;) {
        int32_t n_new = 0;

        for (i = 0; i < n; i++)
            if (leases[i].ready && !seen[i]) {
                check_lease(f, layer, &leases[i]);
                seen[i] = true;
                n_new++;
            }
        n_seen += n_new;
        if (n_seen == n || (st = swl_store_wait_any(f->store, layer, leases, n, err)))
            break;
        for (i = 0; i < n && (!leases[i].ready || seen[i]); i++)
            ;
        assert_true(i < n); /* wait_any brought something */
    }
    swl_store_release(f->store, layer, leases, n);
    return st;
}

/* A prompt: experts 0, 1, ... with these row counts (0: not used), in groups with the next one ahead. */
static inline swl_status use_prompt(fixture *f, int32_t layer, const int32_t *rows, int32_t n_tokens, swl_error *err)
{
    swl_lease leases[2][EXPERTS];
    int32_t experts[EXPERTS], counts[EXPERTS], n[2] = {0, 0}, n_all = 0, next = 0, now = 0, i;
    swl_status st = SWL_OK;

    for (i = 0; i < EXPERTS; i++)
        if (rows[i]) {
            experts[n_all] = i;
            counts[n_all++] = rows[i];
        }
    swl_store_announce(f->store, layer, experts, counts, n_all, n_tokens);
    while (!st && next < n_all) {
        if (!n[now])
            st = swl_store_lease(f->store, layer, experts + next, n_all - next, SWL_LEASE_STREAM, leases[now], &n[now], err);
        next += n[now];
        n[!now] = 0;
        if (!st && next < n_all)
            swl_store_lease(f->store, layer, experts + next, n_all - next, SWL_LEASE_STREAM, leases[!now], &n[!now], NULL);
        if (!st)
            st = swl_store_wait(f->store, layer, leases[now], n[now], err);
        for (i = 0; i < n[now] && !st; i++) {
            assert_int_equal(leases[now][i].expert, experts[next - n[now] + i]);
            check_lease(f, layer, &leases[now][i]);
        }
        swl_store_release(f->store, layer, leases[now], n[now]);
        now = !now;
    }
    if (n[now] && st)
        swl_store_release(f->store, layer, leases[now], n[now]);
    return st;
}

#endif
