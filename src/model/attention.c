/*
 * attention.c: gated grouped-query attention. Keys are added in segments of fixed size from position 0, each with its own
 * online softmax; a query's segments are merged in order. So the result does not depend on who computes which segment,
 * on the chunk, or on the rest of the batch.
 */
#include <math.h>
#include <string.h>

#include "model/model.h"

_Static_assert(SWL_HEAD_DIM_MAX <= SWL_HEAD_MAX, "what a config may have is what attention can take");

typedef struct attn_run {
    struct swl_model *m;
    const swl_layer *l;
    int32_t row0, n_rows;      /* row 0 of the mixer's buffers is this row of the batch */
    bool keys_only;            /* nobody wants what these rows look up */
    int32_t job_rows;          /* of a job that does all segments */
    int32_t n_segments;        /* per (row, KV head) when segments are jobs of their own; 0: one job does them all */
} attn_run;

static swl_state *state_of(const attn_run *r, int32_t row)
{
    return r->m->work.state_of[r->row0 + row];
}

/* Floats from one head's output to the next, and of a query, which takes no more. */
static int32_t head_floats(const struct swl_model *m)
{
    return m->exact ? m->config->head_dim : swl_head_padded(m->config->head_dim);
}

/* Norm and rotation of the row's queries and keys; key and value go to the cache. */
static void prepare_job(void *arg, int32_t row, int32_t worker)
{
    const attn_run *r = arg;
    struct swl_model *m = r->m;
    const swl_config *c = m->config;
    int32_t dim = c->head_dim, h, half = c->rotary_dims / 2, pos = m->work.pos[r->row0 + row];
    const float *cs = m->work.rope_cos + (int64_t)(r->row0 + row) * half, *sn = m->work.rope_sin + (int64_t)(r->row0 + row) * half;
    float *q = m->work.group + (int64_t)row * m->work.group_width, *k = q + 2 * c->n_heads * dim;

    (void)worker;
    for (h = 0; h < c->n_heads && !r->keys_only; h++) {
        m->k.rms_norm(q + 2 * h * dim, q + 2 * h * dim, r->l->norm_q, dim, c->norm_eps);
        m->k.rope(q + 2 * h * dim, c->rotary_dims, cs, sn);
    }
    for (h = 0; h < c->n_kv_heads; h++) {
        m->k.rms_norm(k + h * dim, k + h * dim, r->l->norm_k, dim, c->norm_eps);
        m->k.rope(k + h * dim, c->rotary_dims, cs, sn);
        swl_kv_put(m, state_of(r, row), 2 * r->l->mixer_index, pos, h, k + h * dim);
        swl_kv_put(m, state_of(r, row), 2 * r->l->mixer_index + 1, pos, h, k + (c->n_kv_heads + h) * dim);
    }
}

/* One segment for the query heads of one KV head, n = n_rows * n_q of them; part: [n] m, [n] l, [n][head_floats] o.
 * Several rows are of one conversation, and end all in the segment or all after it. */
static void segment(const attn_run *r, int32_t row, int32_t n_rows, int32_t kv_head, int32_t seg, swl_vectors q,
                    float *part)
{
    struct swl_model *m = r->m;
    const swl_config *c = m->config;
    int32_t n_q = c->n_heads / c->n_kv_heads, dim = head_floats(m), key0 = seg * SWL_ATTN_SEGMENT, ld = c->n_kv_heads * dim;
    int32_t n_keys = m->work.pos[r->row0 + row] + 1 - key0;
    swl_vectors k = swl_kv_at(m, state_of(r, row), 2 * r->l->mixer_index, key0, kv_head);
    swl_vectors v = swl_kv_at(m, state_of(r, row), 2 * r->l->mixer_index + 1, key0, kv_head);
    swl_kv kv = {k.x, v.x, k.scale, v.scale, ld * SWL_KV_BLOCK, c->n_kv_heads * SWL_KV_BLOCK};
    float *l = part + n_rows * n_q, *o = l + n_rows * n_q;

    n_keys = n_keys < SWL_ATTN_SEGMENT ? n_keys : SWL_ATTN_SEGMENT;
    if (m->exact)
        m->k.attn_f32(q.x, n_rows, n_q, dim, k.x, v.x, ld, n_keys, 1.0f / sqrtf((float)dim), part, l, o);
    else
        m->k.attn_kv(q.x, q.scale, n_rows, n_q, dim, &kv, n_keys, part, l, o);
}

/* into = into merged with the later part, n queries each. */
static void merge(const swl_kernels *k, int32_t n, int32_t dim, float *into, const float *part)
{
    int32_t h, i;

    for (h = 0; h < n; h++) {
        float max = part[h] > into[h] ? part[h] : into[h], c1 = swl_exp(into[h] - max), c2 = swl_exp(part[h] - max);
        float *o = into + 2 * n + h * dim;

        into[n + h] = fmaf(part[n + h], c2, into[n + h] * c1);
        into[h] = max;
        for (i = 0; i < dim; i++)
            o[i] *= c1;
        k->axpy(o, c2, part + 2 * n + h * dim, dim);
    }
}

/* Normalises, applies the output gate, stores the heads' outputs in the mixer rows. */
static void finish(const attn_run *r, int32_t row, int32_t n_rows, int32_t kv_head, const float *part)
{
    struct swl_model *m = r->m;
    int32_t n_q = m->config->n_heads / m->config->n_kv_heads, dim = m->config->head_dim, n = n_rows * n_q, h, i;
    const float *o = part + 2 * n;

    for (h = 0; h < n; h++, o += head_floats(m)) {
        int32_t head = kv_head * n_q + h % n_q;
        int64_t to = row + h / n_q;
        float *out = m->work.mix.x + to * m->work.mix.ldx + head * dim, inv = 1.0f / part[n + h];

        for (i = 0; i < dim; i++)
            out[i] = o[i] * inv;
        m->k.sigmoid_mul(out, m->work.group + to * m->work.group_width + (2 * head + 1) * dim, dim);
    }
}

static int64_t part_floats(const struct swl_model *m)
{
    return (int64_t)(m->config->n_heads / m->config->n_kv_heads) * (head_floats(m) + 2);
}

/* The queries of some rows and a KV head, in memory from `at` on. */
static swl_vectors gather_q(const attn_run *r, int32_t row, int32_t n_rows, int32_t kv_head, float *at)
{
    struct swl_model *m = r->m;
    int32_t n_q = m->config->n_heads / m->config->n_kv_heads, dim = m->config->head_dim, n = n_rows * n_q, h;
    swl_vectors q = {at, at + n * head_floats(m)};

    for (h = 0; h < n; h++) {
        const float *x = m->work.group + (row + h / n_q) * (int64_t)m->work.group_width + 2 * (kv_head * n_q + h % n_q) * dim;

        if (m->exact) {
            memcpy(at + h * dim, x, (size_t)dim * sizeof *x);
        } else {
            m->k.quantise_kv(x, dim, (int16_t *)q.x + h * head_floats(m), &q.scale[h]);
            q.scale[h] *= 1.0f / sqrtf((float)dim);
        }
    }
    return q;
}

/* How many rows from `row` on, before `end`, go on in one conversation and end in one segment. */
static int32_t rows_alike(const attn_run *r, int32_t row, int32_t end)
{
    const swl_work *w = &r->m->work;
    int32_t i = r->row0 + row, n = 1;

    while (row + n < end && w->state_of[i + n] == w->state_of[i] && w->pos[i + n] == w->pos[i] + n &&
           w->pos[i + n] % SWL_ATTN_SEGMENT != 0)
        n++;
    return n;
}

/* All segments of some rows and a KV head. */
static void attend_rows(const attn_run *r, int32_t row, int32_t n_rows, int32_t kv_head, float *scratch)
{
    const swl_config *c = r->m->config;
    int32_t n = n_rows * (c->n_heads / c->n_kv_heads), seg;
    float *into = scratch, *part = into + n_rows * part_floats(r->m);
    swl_vectors q = gather_q(r, row, n_rows, kv_head, part + n_rows * part_floats(r->m));

    segment(r, row, n_rows, kv_head, 0, q, into);
    for (seg = 1; seg * SWL_ATTN_SEGMENT <= r->m->work.pos[r->row0 + row]; seg++) {
        segment(r, row, n_rows, kv_head, seg, q, part);
        merge(&r->m->k, n, head_floats(r->m), into, part);
    }
    finish(r, row, n_rows, kv_head, into);
}

static void attend_job(void *arg, int32_t i, int32_t worker)
{
    const attn_run *r = arg;
    int32_t n_kv = r->m->config->n_kv_heads, row = i / n_kv * r->job_rows, end = row + r->job_rows, n;

    if (end > r->n_rows)
        end = r->n_rows;
    for (; row < end; row += n) {
        n = rows_alike(r, row, end);
        attend_rows(r, row, n, i % n_kv, r->m->scratch + worker * r->m->scratch_floats);
    }
}

/* One segment of one row and KV head: few rows, many keys, more workers than KV heads. */
static void segment_job(void *arg, int32_t i, int32_t worker)
{
    const attn_run *r = arg;
    const swl_config *c = r->m->config;
    int32_t seg = i % r->n_segments, kv_head = i / r->n_segments % c->n_kv_heads, row = i / r->n_segments / c->n_kv_heads;
    swl_vectors q;

    if (seg * SWL_ATTN_SEGMENT > r->m->work.pos[r->row0 + row])
        return;
    q = gather_q(r, row, 1, kv_head, r->m->scratch + worker * r->m->scratch_floats);
    segment(r, row, 1, kv_head, seg, q, r->m->work.attn_parts + i * part_floats(r->m));
}

static void merge_job(void *arg, int32_t i, int32_t worker)
{
    const attn_run *r = arg;
    const swl_config *c = r->m->config;
    int32_t row = i / c->n_kv_heads, seg;
    float *parts = r->m->work.attn_parts + (int64_t)i * r->n_segments * part_floats(r->m);

    (void)worker;
    for (seg = 1; seg * SWL_ATTN_SEGMENT <= r->m->work.pos[r->row0 + row]; seg++)
        merge(&r->m->k, c->n_heads / c->n_kv_heads, head_floats(r->m), parts, parts + seg * part_floats(r->m));
    finish(r, row, 1, i % c->n_kv_heads, parts);
}

/* The last two matrices of the input group. */
static swl_group keys_and_values(const swl_group *in)
{
    swl_group g = *in;

    while (g.jobs->piece < g.n_pieces - 2) {
        g.jobs++;
        g.n_jobs--;
    }
    return g;
}

void swl_attention_keys(struct swl_model *m, const swl_layer *l, const swl_batch *b)
{
    swl_act in = swl_act_from(&m->work.norm, b->row0, m->config->hidden);
    swl_group g = keys_and_values(&l->in);
    attn_run r = {.m = m, .l = l, .row0 = b->row0, .keys_only = true};

    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    swl_group_run(m, &g, &in, b->n_rows, m->work.group, m->work.group_width);
    swl_phase_enter(m, SWL_PHASE_ATTENTION);
    swl_rows_run(m, b->n_rows, prepare_job, &r);
    swl_phase_enter(m, SWL_PHASE_OTHER);
}

void swl_attention_forward(struct swl_model *m, const swl_layer *l, const swl_batch *b)
{
    swl_work *w = &m->work;
    swl_act in = swl_act_from(&w->norm, b->row0, m->config->hidden);
    attn_run r = {.m = m, .l = l, .row0 = b->row0, .n_rows = b->n_rows};
    int32_t n_kv = m->config->n_kv_heads, n_jobs = b->n_rows * n_kv, i, n_segments = 1;

    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    swl_group_run(m, &l->in, &in, b->n_rows, w->group, w->group_width);
    swl_phase_enter(m, SWL_PHASE_ATTENTION);
    swl_rows_run(m, b->n_rows, prepare_job, &r);
    for (i = b->row0; i < b->row0 + b->n_rows; i++)
        if (w->pos[i] / SWL_ATTN_SEGMENT + 1 > n_segments)
            n_segments = w->pos[i] / SWL_ATTN_SEGMENT + 1;
    r.job_rows = swl_job_rows(n_jobs, swl_threads_count(m->threads), 1);
    if (r.job_rows > SWL_ATTN_ROWS)
        r.job_rows = SWL_ATTN_ROWS;
    if (r.job_rows == 1 && n_segments > 1 && (int64_t)n_jobs * n_segments <= w->n_attn_parts) {
        r.n_segments = n_segments;
        swl_threads_run(m->threads, n_jobs * n_segments, segment_job, &r);
        swl_threads_run(m->threads, n_jobs, merge_job, &r);
    } else {
        swl_threads_run(m->threads, (b->n_rows + r.job_rows - 1) / r.job_rows * n_kv, attend_job, &r);
    }
    swl_phase_enter(m, SWL_PHASE_PROJECTIONS);
    w->mix.cols = m->config->n_heads * m->config->head_dim;
    swl_act_quantise(m, &w->mix, b->n_rows);
    swl_group_run(m, &l->out, &w->mix, b->n_rows, w->y + b->row0 * w->ldy, w->ldy);
    swl_phase_enter(m, SWL_PHASE_OTHER);
}
