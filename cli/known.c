/* known.c: see known.h. */
#include "known.h"

#include <stdio.h>

#include "format.h"
#include "output.h"

#define FLOOR_BYTES   (UINT64_C(700) << 20) /* program, state, buffers of a prompt: beside core and pool */
#define FLUENT_RATE   3.0                   /* tokens a second that one can read along with */
#define N_SUGGESTIONS 3

/* Dense parts of dense models: all parameters at 4.5 bits. Downloads of originals: 2 bytes for every parameter. */
const known_model known_models[N_KNOWN] = {
    {"Qwen3.6-35B-A3B", "Leonickson/Qwen3.6-35B-A3B-qpack", 40, 256, 8, 1769472, 1389396096, 0},
    {"Qwen3-Next-80B-A3B", "Leonickson/Qwen3-Next-80B-A3B-qpack", 48, 512, 10, 1769472, 1357518592, 0},
    {"Qwen3.5-122B-A10B", "Qwen/Qwen3.5-122B-A10B", 48, 256, 8, 5308416, 3479864832, 244224000000},
    {"Qwen3.5-397B-A17B", "Qwen/Qwen3.5-397B-A17B", 60, 512, 10, 7077888, 5579065472, 792692000000},
    {"Qwen3.5-0.8B", "Qwen/Qwen3.5-0.8B", 24, 0, 0, 0, 423000000, 1504000000},
    {"Qwen3.5-2B", "Qwen/Qwen3.5-2B", 24, 0, 0, 0, 1058625000, 3764000000},
    {"Qwen3.5-4B", "Qwen/Qwen3.5-4B", 32, 0, 0, 0, 2365875000, 8412000000},
    {"Qwen3.5-9B", "Qwen/Qwen3.5-9B", 32, 0, 0, 0, 5036625000, 17908000000},
    {"Qwen3.6-27B", "Qwen/Qwen3.6-27B", 64, 0, 0, 0, 15129000000, 53792000000},
};

/* The share of a token's experts that a pool of so many slots holds, by a made-up log that repeats itself as text does. */
static double hit_rate(const known_model *k, int slots)
{
    swl_route_model shape;
    swl_route_log *log = NULL;
    swl_cache_result r = {0};
    double hits = 0;

    if (slots >= k->n_experts)
        return 1;
    swl_route_model_init(&shape, 4, k->n_experts, k->k, 400);
    if (!swl_route_log_generate(&log, &shape, NULL) &&
        !swl_cache_simulate(log, swl_cache_policy_name(0), slots, &r, NULL) && r.n_hits + r.n_misses)
        hits = (double)r.n_hits / (double)(r.n_hits + r.n_misses);
    swl_route_log_free(log);
    return hits;
}

void known_judge(const swl_machine_info *m, const known_model *k, known_estimate *e)
{
    uint64_t layer = k->expert * (uint64_t)k->n_layers, core = k->dense + FLOOR_BYTES;
    double token = (double)k->dense + (double)layer * k->k, seconds;

    *e = (known_estimate){.bytes = k->dense + layer * (uint64_t)k->n_experts, .memory = core + layer * (uint64_t)k->k};
    e->download = k->download ? k->download : e->bytes;
    e->on_disk = m->disk_free > e->bytes + e->bytes / 100;
    e->in_memory = m->memory_budget >= e->memory;
    if (layer && m->memory_budget > core)
        e->slots = (m->memory_budget - core) / layer < (uint64_t)k->n_experts ? (int)((m->memory_budget - core) / layer)
                                                                              : k->n_experts;
    if (!e->in_memory || m->memory_read <= 0 || (m->drive_read <= 0 && e->slots < k->n_experts))
        return;
    e->hits = hit_rate(k, e->slots);
    seconds = token / m->memory_read;
    if (e->slots < k->n_experts)
        seconds += (1 - e->hits) * (double)layer * k->k / m->drive_read;
    e->rate = 1 / seconds;
}

/* Fluent ones before others, and among those the larger before the smaller; the others by speed. */
static bool is_better(const known_estimate *a, const known_estimate *b)
{
    bool fluent = a->rate >= FLUENT_RATE, other = b->rate >= FLUENT_RATE;

    if (fluent != other)
        return fluent;
    return fluent ? a->bytes > b->bytes : a->rate > b->rate;
}

static void print_one(const known_model *k, const known_estimate *e)
{
    char download[16], disk[16], memory[16], rate[40] = "";

    if (e->rate > 0)
        snprintf(rate, sizeof rate, ", at most %.1f tokens/s", e->rate);
    note("  swiftlet pull %s", k->source);
    note("      %s: download %s, on disk %s, memory from %s%s", k->name, format_bytes(download, e->download),
         format_bytes(disk, e->bytes), format_bytes(memory, e->memory), rate);
}

void known_suggest(const char *dir)
{
    known_estimate e[N_KNOWN];
    swl_machine_info m = {0};
    bool shown[N_KNOWN] = {false};

    swl_machine_look(dir, true, &m, NULL); /* as far as it gets */
    for (int i = 0; i < N_KNOWN; i++)
        known_judge(&m, &known_models[i], &e[i]);
    for (int n = 0; n < N_SUGGESTIONS; n++) {
        int best = -1;

        for (int i = 0; i < N_KNOWN; i++)
            if (!shown[i] && e[i].in_memory && e[i].on_disk && (best < 0 || is_better(&e[i], &e[best])))
                best = i;
        if (best < 0)
            break;
        if (!n)
            note("no model is installed. Of those that fit this machine (\"swiftlet doctor\" says more):");
        shown[best] = true;
        print_one(&known_models[best], &e[best]);
    }
}
