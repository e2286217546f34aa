/*
 * budget.c: divides the memory of the process before any of it is taken. What must be there (program, dense weights, the
 * conversations) comes first; then buffers for as long a chunk as is worth it, because each chunk of a prompt reads nearly
 * every expert once; the rest is the expert pool, between one token's experts per layer and all of them.
 */
#include <inttypes.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/sysmem.h"
#include "model/model.h"

#define MIB (UINT64_C(1) << 20)

/* What is resident is measured anew by each plan, and differs by the pages that this or the next process has touched until then:
 * a figure that is handed out, to be a limit, is enough all the same. So that it is no more than enough, a process that has touched
 * little counts as one of PROGRAM_BYTES: the command line's have 9.3 to 9.7 MiB here (x86-64 Linux, the demo model). */
#define DRIFT_BYTES   (8 * MIB)
#define PROGRAM_BYTES (20 * MIB)

enum {
    MARKS_MAX = 16,         /* of a conversation */
    MARKS_SHARE = 12,       /* at most this part of what is left after the fixed costs, but one mark at least */
    CHUNK_MIN = 32,
    CHUNK_ENOUGH = 64,      /* up to here buffers win over pool slots */
    WORK_SHARE = 5          /* beyond: at most this part of what is left after the fixed costs */
};

/* The text side needs a multiple of its file: strings, tables and the parsed JSON while loading. Measured with the
 * 248,077-token vocabulary, whose file has 12.8 MB. */
enum { TOKENIZER_FACTOR = 6 };

static uint64_t tokenizer_bytes(const struct swl_model *m)
{
    char *path = swl_path_join(m->ck->dir, "tokenizer.json");
    uint64_t size = 0;
    int fd;

    if (path && !swl_file_open(&fd, &size, path, NULL))
        swl_file_close(fd);
    swl_free(path);
    return size * TOKENIZER_FACTOR;
}

static uint64_t program_bytes(uint64_t resident)
{
    return resident > PROGRAM_BYTES ? resident : PROGRAM_BYTES;
}

/* What is resident, and what comes on top that is not counted one by one: thread stacks, heap, file tables, the rounding
 * of large blocks to huge pages. */
static uint64_t base_bytes(const struct swl_model *m, uint64_t resident)
{
    return program_bytes(resident) + 24 * MIB + (uint64_t)swl_threads_count(m->threads) * MIB / 2 + tokenizer_bytes(m);
}

static uint64_t state_bytes(const struct swl_model *m)
{
    uint64_t vocab = (uint64_t)m->config->vocab, ids = (uint64_t)m->ctx_tokens * sizeof(int32_t);

    return swl_state_fixed_bytes(m) + swl_kv_bytes(m, m->ctx_tokens) + ids +
           vocab * (sizeof(float) + sizeof(swl_candidate));
}

/* One slot in every MoE layer. */
static uint64_t slot_row_bytes(const struct swl_model *m)
{
    uint64_t n = 0;
    int32_t i;

    for (i = 0; i < m->config->n_layers; i++)
        if (m->config->layers[i].ffn == SWL_FFN_MOE)
            n += m->ck->experts[i].slot_bytes;
    return n;
}

/* The slots through which prompts pass, and what the store keeps for each expert. */
static swl_status io_bytes(const struct swl_model *m, uint64_t *bytes, swl_error *err)
{
    swl_store_layer *layers = swl_model_store_layers(m);
    uint64_t meta;

    if (!layers)
        return swl_fail(err, SWL_E_NOMEM, "memory plan: out of memory");
    *bytes = swl_store_measure(layers, m->config->n_layers, 0, SWL_STAGE_SLOTS, &meta) + meta;
    swl_free(layers);
    return SWL_OK;
}

static uint64_t work_bytes(struct swl_model *m, int32_t chunk)
{
    m->chunk_tokens = chunk < m->ctx_tokens ? chunk : m->ctx_tokens;
    return swl_work_measure(m);
}

/* For each of the conversations, whose copies take `mark` bytes together; all but the first from what is to spare. */
static int32_t choose_marks(uint64_t room, uint64_t spare, uint64_t mark)
{
    uint64_t n = room / MARKS_SHARE / (mark ? mark : 1), most = spare / (mark ? mark : 1) + 1;

    n = n > most ? most : n;
    return (int32_t)(n < 1 ? 1 : n > MARKS_MAX ? MARKS_MAX : n);
}

/* The longest chunk whose buffers are worth their memory, beside a pool of at least `floor` bytes; sets m->chunk_tokens. */
static uint64_t choose_chunk(struct swl_model *m, uint64_t room, uint64_t floor, int32_t asked)
{
    int32_t chunk = asked ? asked : SWL_CHUNK_TOKENS_DEFAULT;
    uint64_t work = work_bytes(m, chunk);

    while (!asked && chunk > CHUNK_MIN && (work + floor > room || (chunk > CHUNK_ENOUGH && work > room / WORK_SHARE))) {
        chunk /= 2;
        work = work_bytes(m, chunk);
    }
    return work;
}

static int32_t clamp_slots(const struct swl_model *m, uint64_t slots)
{
    uint64_t lo = (uint64_t)m->config->n_experts_used, hi = (uint64_t)m->config->n_experts;

    return (int32_t)(slots < lo ? lo : slots > hi ? hi : slots);
}

swl_status swl_budget_plan(struct swl_model *m, const swl_model_options *opt, swl_error *err)
{
    uint64_t limit = opt->memory_bytes;
    int32_t chunk = opt->chunk_tokens, slots = opt->pool_slots;
    swl_memory_plan *p = &m->plan;
    uint64_t row = slot_row_bytes(m), least_pool = row * (uint64_t)clamp_slots(m, (uint64_t)slots), needed, fixed, room;
    uint64_t n_sessions = opt->n_sessions > 0 ? (uint64_t)opt->n_sessions : 1, mark = swl_mark_bytes(m) * n_sessions;
    swl_sysmem mem;
    swl_status st = swl_weights_measure(m->ck, &p->dense, err);

    if (!st)
        st = io_bytes(m, &p->io, err);
    if (st)
        return st;
    swl_sysmem_get(&mem);
    p->limit = limit ? limit : swl_sysmem_budget(&mem);
    p->ctx_tokens = m->ctx_tokens;
    p->n_experts = m->config->n_experts;
    p->base = base_bytes(m, mem.resident) + opt->program_bytes;
    p->n_sessions = (int32_t)n_sessions;
    p->state = state_bytes(m) * n_sessions;
    p->pool_all = row * (uint64_t)m->config->n_experts;
    fixed = p->base + p->dense + p->state + p->io;
    needed = fixed + mark + work_bytes(m, chunk ? chunk : CHUNK_MIN) + least_pool;
    p->drift = program_bytes(mem.resident + DRIFT_BYTES) - program_bytes(mem.resident);
    p->floor = needed + p->drift;
    room = p->limit > fixed ? p->limit - fixed : 0;
    p->n_marks = choose_marks(room, p->limit > needed ? p->limit - needed : 0, mark);
    p->marks = mark * (uint64_t)p->n_marks;
    fixed += p->marks;
    room = p->limit > fixed ? p->limit - fixed : 0;
    p->work = choose_chunk(m, room, least_pool, chunk);
    p->chunk_tokens = m->chunk_tokens;
    room = room > p->work ? room - p->work : 0;
    if (opt->pool_bytes && opt->pool_bytes < room)
        room = opt->pool_bytes;
    p->pool_slots = row ? clamp_slots(m, slots ? (uint64_t)slots : room / row) : 0;
    p->pool = row * (uint64_t)p->pool_slots;
    p->total = fixed + p->work + p->pool;
    if (p->total > p->limit && !opt->describe_only)
        return swl_fail(err, SWL_E_BUDGET,
                        "a memory budget of %.1f MiB%s is not enough for this model with a context of %d tokens: it needs %"
                        PRIu64 " MiB%s", (double)p->limit / MIB, limit ? "" : ", what there is to give,", m->ctx_tokens,
                        (p->floor + MIB - 1) / MIB, slots ? " with the pool that was asked for" : "");
    return SWL_OK;
}
