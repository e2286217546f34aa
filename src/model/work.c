/* work.c: the buffers of a forward pass, sized once at open; producing a token allocates nothing. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"

/* Runs twice: with block NULL it only adds up. */
typedef struct carver {
    uint8_t *block;
    uint64_t used;
} carver;

static void *carve(carver *c, uint64_t n, uint64_t size)
{
    void *p = c->block ? c->block + c->used : NULL;

    c->used += (n * size + SWL_ALIGN - 1) & ~(uint64_t)(SWL_ALIGN - 1);
    return p;
}

static void carve_act(carver *c, swl_act *a, uint64_t rows, int32_t cols, bool exact)
{
    a->cols = cols;
    a->ldq = (cols + SWL_ACT_GROUP - 1) / SWL_ACT_GROUP * SWL_ACT_GROUP;
    a->ldx = a->ldq;
    a->x = carve(c, rows * (uint64_t)a->ldx, sizeof(float));
    if (exact)
        return;
    a->q = carve(c, rows * (uint64_t)a->ldq, 1);
    a->scale = carve(c, rows * (uint64_t)(a->ldq / SWL_ACT_GROUP), sizeof(float));
    a->sum = carve(c, rows * (uint64_t)(a->ldq / SWL_ACT_SUM), sizeof(int32_t));
}

static int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* Floats of a row of n, and its padding to an odd number of cache lines. */
static int64_t odd_lines(int32_t n)
{
    return (((int64_t)n + 15) / 16 | 1) * 16;
}

static int32_t ffn_width(const swl_config *c)
{
    return max_i32(c->intermediate, max_i32(c->expert_width, c->shared_width));
}

static int32_t group_width(const swl_config *c)
{
    int32_t delta = swl_conv_channels(c) + c->n_v_heads * c->v_dim + 2 * c->n_v_heads;
    int32_t attention = (2 * c->n_heads + 2 * c->n_kv_heads) * c->head_dim;

    return (max_i32(delta, attention) + 15) / 16 * 16;
}

static void carve_all(struct swl_model *m, carver *c)
{
    const swl_config *cf = m->config;
    swl_work *w = &m->work;
    uint64_t rows = (uint64_t)w->n_rows_max, pairs = (uint64_t)w->n_pairs_max, hidden = (uint64_t)cf->hidden;
    uint64_t mixer_rows = rows < SWL_MIXER_ROWS ? rows : SWL_MIXER_ROWS;
    uint64_t experts = (uint64_t)cf->n_experts, k = (uint64_t)cf->n_experts_used, half = (uint64_t)cf->rotary_dims / 2;
    uint64_t few = rows < SWL_FEW_ROWS ? rows : SWL_FEW_ROWS;
    int i;

    w->x = carve(c, rows * hidden, sizeof(float));
    carve_act(c, &w->norm, rows, cf->hidden, m->exact);
    w->group = carve(c, mixer_rows * (uint64_t)w->group_width, sizeof(float));
    carve_act(c, &w->mix, mixer_rows, max_i32(cf->n_v_heads * cf->v_dim, cf->n_heads * cf->head_dim), m->exact);
    w->y = carve(c, rows * (uint64_t)w->ldy, sizeof(float));
    w->rope_cos = carve(c, rows * half, sizeof(float));
    w->rope_sin = carve(c, rows * half, sizeof(float));
    w->state_of = carve(c, rows, sizeof *w->state_of);
    w->pos = carve(c, rows, sizeof(int32_t));
    w->wanted = carve(c, rows, sizeof *w->wanted);
    w->spans = carve(c, 2 * rows, sizeof *w->spans);
    w->parts = carve(c, rows / SWL_MIXER_ROWS + 1, sizeof *w->parts);
    w->attn_parts = carve(c, (uint64_t)w->n_attn_parts * (uint64_t)(cf->n_heads / cf->n_kv_heads) *
                                 (uint64_t)(swl_head_padded(cf->head_dim) + 2), sizeof(float));
    w->router = carve(c, rows * (experts + 1), sizeof(float));
    w->topk = carve(c, rows * k, sizeof(int32_t));
    w->topk_w = carve(c, rows * k, sizeof(float));
    w->shared_w = carve(c, rows, sizeof(float));
    w->pair_tok = carve(c, rows * k, sizeof(int32_t));
    w->pair_w = carve(c, rows * k, sizeof(float));
    w->expert_first = carve(c, experts + 1, sizeof(int32_t));
    carve_act(c, &w->pair_h, rows + pairs, ffn_width(cf), m->exact);
    w->pair_y = carve(c, experts ? few * (1 + k) * hidden : 0, sizeof(float));
    w->units = carve(c, experts + 1, sizeof *w->units);
    w->ffn_jobs = carve(c, (uint64_t)w->n_ffn_jobs_max, sizeof *w->ffn_jobs);
    for (i = 0; i < 2; i++) {
        w->waves[i].leases = carve(c, experts, sizeof *w->waves[i].leases);
        w->waves[i].done = carve(c, experts, sizeof *w->waves[i].done);
    }
    w->chosen = carve(c, experts, sizeof *w->chosen);
    w->chosen_rows = carve(c, experts, sizeof *w->chosen_rows);
}

/* Per worker: two blocks of gate and up rows; or two attention parts and the queries of some rows; or queries, keys,
 * values and outputs of a delta-net head; or one row of router logits. */
static int64_t scratch_floats(const swl_config *c)
{
    int64_t n_q = c->n_heads / c->n_kv_heads, ffn = 2 * SWL_FFN_TOKENS * SWL_FFN_LD;
    int64_t attn = SWL_ATTN_ROWS * n_q * (3 * swl_head_padded(c->head_dim) + 5), n = ffn > attn ? ffn : attn;
    int64_t delta = SWL_DELTA_TOKENS * 2 * (c->k_dim + c->v_dim);

    n = n > delta ? n : delta;
    n = n > c->n_experts ? n : c->n_experts;
    return (n + 63) / 64 * 64; /* whole cache lines, so that workers do not share one */
}

static uint64_t scratch_bytes(const struct swl_model *m)
{
    return (uint64_t)swl_threads_count(m->threads) * (uint64_t)m->scratch_floats * sizeof(float);
}

/* Everything that the sizes of the buffers follow from. */
static void set_sizes(struct swl_model *m)
{
    const swl_config *c = m->config;
    swl_work *w = &m->work;
    int32_t blocks = (max_i32(ffn_width(c), c->hidden) + SWL_JOB_ROWS_STEP - 1) / SWL_JOB_ROWS_STEP;
    int32_t small = m->chunk_tokens < 32 ? m->chunk_tokens : 32;

    w->n_rows_max = m->chunk_tokens;
    w->n_pairs_max = c->n_experts ? max_i32(w->n_rows_max, small * c->n_experts_used) : 0;
    w->group_width = group_width(c);
    w->ldy = odd_lines(c->hidden);
    w->n_attn_parts = 4 * c->n_kv_heads * (m->ctx_tokens / SWL_ATTN_SEGMENT + 1); /* four rows cut by segment */
    w->n_ffn_jobs_max = blocks * (c->n_experts + 1);
    m->scratch_floats = scratch_floats(c);
}

uint64_t swl_work_measure(struct swl_model *m)
{
    carver cv = {0};

    set_sizes(m);
    carve_all(m, &cv);
    memset(&m->work, 0, sizeof m->work);
    return cv.used + scratch_bytes(m);
}

swl_status swl_work_init(struct swl_model *m, swl_error *err)
{
    swl_work *w = &m->work;
    carver cv = {0};

    set_sizes(m);
    carve_all(m, &cv);
    w->bytes = cv.used;
    w->block = cv.block = swl_big_alloc(w->bytes);
    if (!w->block)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %" PRIu64 " bytes of buffers", w->bytes);
    cv.used = 0;
    carve_all(m, &cv);
    m->scratch = swl_big_alloc(scratch_bytes(m));
    return m->scratch ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the workers' scratch");
}

void swl_work_free(struct swl_model *m)
{
    swl_big_free(m->work.block, m->work.bytes);
    if (m->scratch)
        swl_big_free(m->scratch, scratch_bytes(m));
    memset(&m->work, 0, sizeof m->work);
    m->scratch = NULL;
}
