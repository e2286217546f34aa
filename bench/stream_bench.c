/*
 * stream_bench.c: decoding while experts come from the drive, with routes of a stated locality. Compares pools of several
 * sizes and lookahead with the two limits: computing alone (a pool that holds everything) and reading alone.
 *
 * usage: stream_bench CONTAINER [--slots N,...] [--lookahead N,...] [--tokens N] [--threads N] [--io NAME] [--direct 1|-1]
 *                     [--depth N] [--policy NAME] [--no-checksums] [--rounds N] [--create SHAPE]
 *   --create SHAPE  makes the container first: synthetic weights, "qwen3.6-35b/8" for the first eight layers of that model
 * The routes are made up (swl_route_model_init): every figure is one with synthetic routes. The head is not run.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <swiftlet/swiftlet.h>

enum { LIST_MAX = 16, WARM_TOKENS = 64 };

typedef struct list {
    int32_t n, v[LIST_MAX];
} list;

typedef struct options {
    swl_model_options model;
    const char *create;
    list slots, lookahead;
    int32_t n_tokens, n_rounds;
} options;

static void check(swl_status st, const swl_error *err)
{
    if (!st)
        return;
    fprintf(stderr, "stream_bench: %s\n", err->message);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void eval(swl_session *s, int32_t n)
{
    swl_error err;

    for (int32_t i = 0; i < n; i++) {
        int32_t id = i % 100;

        check(swl_session_eval(s, &id, 1, SWL_LOGITS_NONE, NULL, &err), &err);
    }
}

/* One pool and lookahead; prints a line and returns milliseconds a token. */
static double measure(const options *o, int32_t slots, int32_t lookahead, const swl_route_log *log)
{
    swl_model_options mo = o->model;
    swl_model_stats a, b;
    swl_profile p;
    swl_model_info info;
    swl_session *s;
    swl_model *m;
    swl_error err;
    double seconds, hits, gb;

    mo.pool_slots = slots;
    mo.lookahead = lookahead;
    check(swl_model_open(&m, &mo, &err), &err);
    swl_model_info_get(m, &info);
    check(swl_session_create(&s, m, &err), &err);
    check(swl_routes_replay(m, log, &err), &err);
    eval(s, WARM_TOKENS);
    swl_model_stats_get(m, &a);
    swl_profile_start(m, false);
    seconds = now();
    eval(s, o->n_tokens);
    seconds = now() - seconds;
    swl_profile_get(m, &p);
    swl_model_stats_get(m, &b);
    hits = (double)(b.expert_hits - a.expert_hits) - (double)(b.expert_guesses_right - a.expert_guesses_right);
    gb = (double)(b.expert_misses - a.expert_misses + b.expert_guesses - a.expert_guesses) * (double)info.expert_bytes * 1e-9;
    printf("%5d %9d %9.2f %9.2f %8.1f%% %8.3f %8.3f %7" PRIu64 " %6.1f%%  %s\n", slots, lookahead,
           seconds * 1e3 / o->n_tokens, (double)p.wait_ns * 1e-6 / o->n_tokens,
           100.0 * hits / (double)(b.expert_hits + b.expert_misses - a.expert_hits - a.expert_misses), gb / o->n_tokens,
           gb / seconds, b.expert_guesses - a.expert_guesses,
           b.expert_guesses > a.expert_guesses ? 100.0 * (double)(b.expert_guesses_right - a.expert_guesses_right) /
                                                     (double)(b.expert_guesses - a.expert_guesses) : 0.0, info.io);
    fflush(stdout);
    swl_session_free(s);
    swl_model_close(m);
    return seconds * 1e3 / o->n_tokens;
}

static list parse_list(const char *s)
{
    list l = {0};
    char *end;

    for (; *s && l.n < LIST_MAX; s = *end ? end + 1 : end) {
        l.v[l.n++] = (int32_t)strtol(s, &end, 10);
        if (end == s)
            break;
    }
    return l;
}

static options parse(int argc, char **argv)
{
    options o = {.slots = {3, {28, 42, 70}}, .lookahead = {4, {0, 2, 4, 8}}, .n_tokens = 200, .n_rounds = 1};
    int i;

    swl_model_options_init(&o.model);
    for (i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";

        if (a[0] != '-') {
            o.model.path = a;
            continue;
        }
        if (!strcmp(a, "--no-checksums")) {
            o.model.no_checksums = true;
            continue;
        }
        i++;
        if (!strcmp(a, "--slots"))
            o.slots = parse_list(v);
        else if (!strcmp(a, "--lookahead"))
            o.lookahead = parse_list(v);
        else if (!strcmp(a, "--tokens"))
            o.n_tokens = atoi(v);
        else if (!strcmp(a, "--rounds"))
            o.n_rounds = atoi(v);
        else if (!strcmp(a, "--threads"))
            o.model.n_threads = atoi(v);
        else if (!strcmp(a, "--io"))
            o.model.io = v;
        else if (!strcmp(a, "--direct"))
            o.model.io_direct = atoi(v);
        else if (!strcmp(a, "--depth"))
            o.model.io_depth = atoi(v);
        else if (!strcmp(a, "--policy"))
            o.model.cache_policy = v;
        else if (!strcmp(a, "--create"))
            o.create = v;
        else
            o.n_tokens = 0;
    }
    return o;
}

static void create(const options *o)
{
    swl_synthetic_options so;
    swl_error err;

    swl_synthetic_options_init(&so);
    so.name = o->create;
    so.output = o->model.path;
    check(swl_synthetic_create(&so, &err), &err);
}

int main(int argc, char **argv)
{
    options o = parse(argc, argv);
    swl_model_options describe = o.model;
    swl_route_model r;
    swl_route_log *log;
    swl_model_info info;
    swl_model *m;
    swl_error err;
    int32_t round, i, j;

    if (!o.model.path || o.n_tokens <= 0) {
        fprintf(stderr, "usage: stream_bench CONTAINER [OPTION...], see bench/stream_bench.c\n");
        return 2;
    }
    if (o.create)
        create(&o);
    describe.describe_only = true;
    check(swl_model_open(&m, &describe, &err), &err);
    swl_model_info_get(m, &info);
    swl_model_close(m);
    swl_route_model_init(&r, info.n_moe_layers, info.n_experts, info.n_experts_used, WARM_TOKENS + o.n_tokens);
    check(swl_route_log_generate(&log, &r, &err), &err);
    printf("%d layers, %d experts of %" PRIu64 " bytes, %d threads, synthetic routes\n", info.n_layers, info.n_experts,
           info.expert_bytes, info.n_threads);
    printf("slots lookahead  ms/token   waiting      hits GB/token     GB/s guesses  right  reading\n");
    for (round = 0; round < o.n_rounds; round++) {
        measure(&o, info.n_experts, 0, log);
        for (i = 0; i < o.slots.n; i++)
            for (j = 0; j < o.lookahead.n; j++)
                measure(&o, o.slots.v[i], o.lookahead.v[j], log);
    }
    swl_route_log_free(log);
    return 0;
}
