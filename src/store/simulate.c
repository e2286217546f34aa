/*
 * simulate.c: a route log through a cache of some size: what would have been hits. Takes the same decisions in the same
 * order as store.c does for one caller: a pass's hits are safe from its misses; with more than one token in a pass a
 * newcomer stays only if it is used more than what would have to go.
 */
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "store/cache.h"
#include "store/route_log.h"

const char *swl_cache_policy_name(int32_t i)
{
    const swl_policy *p = swl_policy_at(i);

    return p ? p->name : NULL;
}

typedef struct simulation {
    const swl_route_log *log;
    swl_cache cache;
    int32_t slots, n_kept;
    bool *kept;                /* [n_experts] */
    int32_t *rows;             /* [n_experts] of this pass */
    int32_t *experts, *counts; /* [n_experts] those that it uses, ascending */
    swl_cache_result *result;
} simulation;

static int32_t list_pass(simulation *s, int32_t layer, int64_t token, int32_t n_tokens)
{
    const swl_route_log *g = s->log;
    int32_t e, n = 0, t, j;

    memset(s->rows, 0, (size_t)g->n_experts * sizeof *s->rows);
    for (t = 0; t < n_tokens; t++)
        for (j = 0; j < g->k; j++)
            s->rows[g->ids[((token + t) * g->n_layers + layer) * g->k + j]]++;
    for (e = 0; e < g->n_experts; e++)
        if (s->rows[e]) {
            s->experts[n] = e;
            s->counts[n++] = s->rows[e];
        }
    return n;
}

static void miss(simulation *s, int32_t expert, bool stream)
{
    int32_t victim = swl_cache_victim(&s->cache);

    s->result->n_misses++;
    if (s->n_kept < s->slots) {
        s->n_kept++;
    } else if (victim >= 0 && swl_cache_prefers(&s->cache, expert, victim, stream)) {
        swl_cache_withdraw(&s->cache, victim);
        s->kept[victim] = false;
    } else {
        s->result->n_streamed++;
        return;
    }
    s->kept[expert] = true;
}

static void run_pass(simulation *s, int32_t layer, int64_t token, int32_t n_tokens)
{
    int32_t n = list_pass(s, layer, token, n_tokens), i;

    for (i = 0; i < n; i++)
        if (s->kept[s->experts[i]]) {
            swl_cache_withdraw(&s->cache, s->experts[i]);
            s->result->n_hits++;
            s->rows[s->experts[i]] = -1; /* a hit */
        }
    swl_cache_touch(&s->cache, s->experts, s->counts, n, n_tokens);
    for (i = 0; i < n; i++)
        if (s->rows[s->experts[i]] > 0)
            miss(s, s->experts[i], n_tokens > 1);
    for (i = 0; i < n; i++)
        if (s->kept[s->experts[i]])
            swl_cache_offer(&s->cache, s->experts[i]);
}

static swl_status run_layer(simulation *s, const swl_policy *policy, int32_t layer, swl_error *err)
{
    int64_t pass, token = 0;
    swl_status st = swl_cache_init(&s->cache, policy, s->log->n_experts, err);

    if (st)
        return st;
    swl_cache_set_slots(&s->cache, s->slots);
    memset(s->kept, 0, (size_t)s->log->n_experts * sizeof *s->kept);
    s->n_kept = 0;
    for (pass = 0; pass < s->log->n_passes; token += s->log->pass_tokens[pass++])
        run_pass(s, layer, token, s->log->pass_tokens[pass]);
    swl_cache_deinit(&s->cache);
    return SWL_OK;
}

swl_status swl_cache_simulate(const swl_route_log *log, const char *policy, int32_t slots, swl_cache_result *out,
                              swl_error *err)
{
    const swl_policy *p = swl_policy_find(policy);
    simulation s = {.log = log, .slots = slots < log->n_experts ? slots : log->n_experts, .result = out};
    size_t n = (size_t)log->n_experts;
    swl_status st = SWL_OK;
    int32_t layer;

    memset(out, 0, sizeof *out);
    if (!p)
        return swl_fail(err, SWL_E_ARG, "unknown cache policy \"%s\"", policy);
    if (slots < log->k)
        return swl_fail(err, SWL_E_ARG, "%d slots per layer, one token needs %d", slots, log->k);
    s.kept = swl_calloc(n, sizeof *s.kept);
    s.rows = swl_calloc(n, sizeof *s.rows);
    s.experts = swl_calloc(n, sizeof *s.experts);
    s.counts = swl_calloc(n, sizeof *s.counts);
    if (!s.kept || !s.rows || !s.experts || !s.counts)
        st = swl_fail(err, SWL_E_NOMEM, "cache simulation: out of memory");
    for (layer = 0; layer < log->n_layers && !st; layer++)
        st = run_layer(&s, p, layer, err);
    swl_free(s.kept);
    swl_free(s.rows);
    swl_free(s.experts);
    swl_free(s.counts);
    return st;
}
