/* model.c: opening a model: checkpoint, weights, expert store, worker team, buffers; and closing it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"

void swl_model_options_init(swl_model_options *opt)
{
    memset(opt, 0, sizeof *opt);
    opt->lookahead = 1;
}

/* Fills in what the caller left open and refuses what is out of range. */
static swl_status take_options(swl_model *m, const swl_model_options *opt, int32_t *n_threads, swl_error *err)
{
    int known = 1;
    uint32_t mask = opt->cpu_level ? swl_cpu_level_mask(opt->cpu_level, &known) : UINT32_MAX;

    if (!known)
        return swl_fail(err, SWL_E_ARG, "this machine has no CPU level \"%s\"; its architecture's are %s", opt->cpu_level,
                        SWL_CPU_LEVELS(", "));
    if (opt->chunk_tokens < 0 || opt->chunk_tokens > SWL_CHUNK_TOKENS_MAX)
        return swl_fail(err, SWL_E_ARG, "chunk of %d tokens, expected 1 to %d", opt->chunk_tokens, SWL_CHUNK_TOKENS_MAX);
    if (opt->ctx_tokens < 0 || opt->ctx_tokens > m->config->ctx_max)
        return swl_fail(err, SWL_E_ARG, "context of %d tokens, this model allows 1 to %d", opt->ctx_tokens,
                        m->config->ctx_max);
    if (opt->lookahead < 0 || (m->config->n_experts && opt->lookahead > m->config->n_experts_used))
        return swl_fail(err, SWL_E_ARG, "lookahead of %d experts, expected 0 to %d", opt->lookahead,
                        m->config->n_experts_used);
    if (opt->pool_slots < 0 || opt->n_threads < 0)
        return swl_fail(err, SWL_E_ARG, "negative number of slots or threads");
    m->cpu_flags = swl_cpu_flags() & mask;
    m->exact = opt->exact;
    m->lookahead = opt->lookahead;
    m->ctx_tokens = opt->ctx_tokens                            ? opt->ctx_tokens
                    : m->config->ctx_max < SWL_CTX_TOKENS_DEFAULT ? m->config->ctx_max
                                                               : SWL_CTX_TOKENS_DEFAULT;
    *n_threads = opt->n_threads ? opt->n_threads : swl_cpus_available();
    return SWL_OK;
}

swl_store_layer *swl_model_store_layers(const swl_model *m)
{
    swl_store_layer *layers = swl_calloc((size_t)m->config->n_layers, sizeof *layers);
    int32_t i;

    for (i = 0; layers && i < m->config->n_layers; i++)
        if (m->config->layers[i].ffn == SWL_FFN_MOE) {
            const swl_expert_layout *e = &m->ck->experts[i];

            layers[i] = (swl_store_layer){m->config->n_experts, e->n_ranges, e->ranges, e->slot_bytes, e->crc32c};
        }
    return layers;
}

/* Chooses how to read. A pool that holds everything reads each expert once, which is not worth a probe. */
static swl_status open_io(swl_model *m, const swl_model_options *opt, swl_store_config *c, swl_error *err)
{
    static const char hex[] = "0123456789abcdef";
    swl_io_wish wish = {.backend = opt->io, .depth = opt->io_depth, .cache_path = opt->io_cache};
    uint8_t digest[32];
    char key[65] = "";
    swl_status st = SWL_OK;
    int i;

    wish.direct = opt->io_direct > 0 ? SWL_DIRECT_ON : opt->io_direct < 0 ? SWL_DIRECT_OFF : SWL_DIRECT_AUTO;
    wish.no_probe = m->ck->experts_absent || m->plan.pool_slots >= m->config->n_experts;
    if (wish.cache_path && !wish.no_probe) {
        st = swl_checkpoint_fingerprint(m->ck, digest, err);
        for (i = 0; i < 32 && !st; i++) {
            key[2 * i] = hex[digest[i] >> 4];
            key[2 * i + 1] = hex[digest[i] & 15];
        }
        wish.cache_key = key;
    }
    if (!st)
        st = swl_io_choose(&m->io, &wish, c, err);
    c->direct = m->io.direct;
    return st ? st : swl_io_open(&c->io, m->io.backend, m->io.depth, err);
}

/* Describes the checkpoint's experts to the store, which keeps what it needs. */
static swl_status open_store(swl_model *m, const swl_model_options *opt, swl_error *err)
{
    const swl_checkpoint *ck = m->ck;
    int32_t i;
    swl_store_layer *layers = swl_model_store_layers(m);
    int *fds = swl_calloc((size_t)ck->n_files, sizeof *fds);
    const char **paths = swl_calloc((size_t)ck->n_files, sizeof *paths);
    swl_store_config c = {.n_layers = m->config->n_layers, .layers = layers, .n_files = ck->n_files, .fds = fds,
                          .paths = paths, .slots_per_layer = m->plan.pool_slots,
                          .slots_min = m->config->n_experts_used, .stage_slots = SWL_STAGE_SLOTS,
                          .policy = opt->cache_policy, .team = m->threads,
                          .verify = opt->no_checksums ? SWL_STORE_VERIFY_NEVER : SWL_STORE_VERIFY_ALWAYS};
    swl_status st = SWL_OK;

    if (!layers || !fds || !paths)
        st = swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    for (i = 0; i < ck->n_files && !st; i++) {
        fds[i] = ck->files[i].fd;
        paths[i] = ck->files[i].path;
    }
    if (!st)
        st = open_io(m, opt, &c, err);
    if (!st)
        st = swl_store_create(&m->store, &c, err);
    swl_free(layers);
    swl_free(fds);
    swl_free(paths);
    return st;
}

/* Experts whose files hold nothing are made in the pool, once; it must hold all of them. */
static void make_expert_job(void *arg, int32_t i, int32_t worker)
{
    const swl_model *m = arg;
    int32_t layer = i / m->config->n_experts, expert = i % m->config->n_experts;
    uint8_t *slot = m->config->layers[layer].ffn == SWL_FFN_MOE ? swl_store_put(m->store, layer, expert) : NULL;

    (void)worker;
    if (slot)
        swl_checkpoint_make_expert(m->ck, layer, expert, slot);
}

static swl_status make_experts(swl_model *m, swl_error *err)
{
    if (m->plan.pool_slots < m->config->n_experts)
        return swl_fail_at(err, SWL_E_BUDGET, m->ck->dir, -1,
                           "%s has no experts on disk, so all %d of a layer must fit in memory; the pool has %d slots",
                           m->ck->dir, m->config->n_experts, m->plan.pool_slots);
    swl_threads_run(m->threads, m->config->n_layers * m->config->n_experts, make_expert_job, m);
    return SWL_OK;
}

/* Everything that comes before the first large allocation. */
static swl_status prepare(swl_model *m, const swl_model_options *opt, swl_error *err)
{
    int32_t n_threads = 0;
    swl_status st = opt->path ? swl_checkpoint_open(&m->ck, opt->path, err)
                              : swl_fail(err, SWL_E_ARG, "a model needs a path");

    if (st)
        return st;
    m->config = &m->ck->config;
    st = take_options(m, opt, &n_threads, err);
    if (st)
        return st;
    swl_kernels_init(&m->k, m->cpu_flags);
    st = swl_threads_create(&m->threads, n_threads, err);
    return st ? st : swl_budget_plan(m, opt, err);
}

static swl_model *model_new(swl_error *err)
{
    swl_model *m = swl_calloc(1, sizeof *m);

    if (m)
        pthread_mutex_init(&m->lock, NULL);
    else
        swl_fail(err, SWL_E_NOMEM, "model: out of memory");
    return m;
}

swl_status swl_memory_plan_make(swl_memory_plan *out, const swl_model_options *opt, swl_error *err)
{
    swl_model *m = model_new(err);
    swl_status st = m ? prepare(m, opt, err) : SWL_E_NOMEM;

    memset(out, 0, sizeof *out);
    if (m)
        *out = m->plan;
    swl_model_close(m);
    return st;
}

void swl_memory_plan_get(const swl_model *m, swl_memory_plan *out)
{
    *out = m->plan;
}

static swl_status load(swl_model *m, const swl_model_options *opt, swl_error *err)
{
    swl_status st = swl_weights_load(&m->weights, m->ck, swl_threads_count(m->threads), err);

    if (!st && m->weights.n_moe)
        st = open_store(m, opt, err);
    if (!st && m->weights.n_moe && m->ck->experts_absent)
        st = make_experts(m, err);
    m->pool_slots_max = m->plan.pool_slots;
    return st ? st : swl_work_init(m, err);
}

swl_status swl_model_open(swl_model **out, const swl_model_options *opt, swl_error *err)
{
    swl_model *m = model_new(err);
    swl_status st = m ? prepare(m, opt, err) : SWL_E_NOMEM;

    *out = NULL;
    if (!st && !opt->describe_only)
        st = load(m, opt, err);
    if (st) {
        swl_model_close(m);
        return st;
    }
    *out = m;
    return SWL_OK;
}

void swl_model_close(swl_model *m)
{
    if (!m)
        return;
    if (m->threads)
        swl_work_free(m);
    swl_route_writer_close(m->recorder, NULL);
    swl_store_free(m->store);
    if (m->config)
        swl_weights_free(&m->weights, m->config->n_layers);
    swl_threads_free(m->threads);
    swl_checkpoint_close(m->ck);
    pthread_mutex_destroy(&m->lock);
    swl_free(m);
}

/* ---- figures -------------------------------------------------------------------------------------------------------- */

static void expert_info(const swl_model *m, swl_model_info *o)
{
    const swl_expert_layout *e = NULL;
    swl_matrix gate;
    int32_t i;

    for (i = 0; i < m->config->n_layers; i++)
        if (m->config->layers[i].ffn == SWL_FFN_MOE) {
            o->experts_bytes += m->ck->experts[i].slot_bytes * (uint64_t)m->config->n_experts;
            if (!e) {
                e = &m->ck->experts[i];
                swl_expert_matrix(m->ck, i, SWL_PROJ_GATE, NULL, &gate);
            }
        }
    if (!e)
        return;
    o->expert_bytes = e->slot_bytes;
    o->reads_per_expert = e->n_ranges;
    o->checksums = e->crc32c != NULL;
    o->pool_bytes = m->plan.pool;
    o->pool_slots = m->plan.pool_slots;
    if (gate.group)
        snprintf(o->expert_format, sizeof o->expert_format, "%s, group %d", swl_wtype_get(gate.type)->name, gate.group);
    else
        snprintf(o->expert_format, sizeof o->expert_format, "%s", swl_wtype_get(gate.type)->name);
}

void swl_model_info_get(const swl_model *m, swl_model_info *o)
{
    static const char *const kinds[] = {"qpack", "mlx", "hf"};
    const swl_config *c = m->config;
    int32_t i;

    memset(o, 0, sizeof *o);
    snprintf(o->family, sizeof o->family, "%s", c->model_type);
    snprintf(o->container, sizeof o->container, "%s", kinds[m->ck->kind]);
    o->n_layers = c->n_layers;
    for (i = 0; i < c->n_layers; i++) {
        o->n_attention_layers += c->layers[i].mixer == SWL_MIXER_ATTENTION;
        o->n_moe_layers += c->layers[i].ffn == SWL_FFN_MOE;
    }
    o->hidden = c->hidden;
    o->vocab = c->vocab;
    o->n_experts = c->n_experts;
    o->n_experts_used = c->n_experts_used;
    o->expert_width = c->expert_width;
    o->ctx_tokens = m->ctx_tokens;
    o->ctx_tokens_max = c->ctx_max;
    o->dense_bytes = m->plan.dense;
    o->state_bytes_fixed = swl_state_fixed_bytes(m);
    o->kv_bytes_token = swl_kv_token_bytes(m);
    o->mtp = m->ck->mtp;
    o->synthetic = m->ck->synthetic;
    snprintf(o->cpu_level, sizeof o->cpu_level, "%s", swl_cpu_level_name(m->cpu_flags));
    o->n_threads = swl_threads_count(m->threads);
    if (m->store)
        snprintf(o->io, sizeof o->io, "%s, %s, depth %d", swl_store_io_name(m->store), m->io.direct ? "direct" : "buffered",
                 m->io.depth);
    expert_info(m, o);
}

void swl_model_stats_get(const swl_model *m, swl_model_stats *out)
{
    swl_store_stats s = {0};

    if (m->store)
        swl_store_stats_get(m->store, &s);
    *out = (swl_model_stats){.expert_hits = s.n_hits,
                             .expert_misses = s.n_misses,
                             .expert_bytes_read = s.bytes_read,
                             .expert_guesses = s.n_ahead,
                             .expert_guesses_right = s.n_ahead_used,
                             .expert_evictions = s.n_evicted,
                             .n_reads = s.n_reads,
                             .read_ns = s.read_ns,
                             .reading_ns = s.reading_ns,
                             .n_reading = s.n_reading,
                             .pool_bytes = s.pool_bytes};
    memcpy(out->read_times, s.read_times, sizeof out->read_times);
}
