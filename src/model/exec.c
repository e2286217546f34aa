/*
 * exec.c: how a layer's work is cut for the worker team. A job is a run of rows of one matrix for all tokens of the
 * batch; which worker takes it does not matter, because a row's result does not depend on its neighbours.
 */
#include <assert.h>
#include <string.h>

#include "model/model.h"

static swl_matmul_fn *pick_matmul(const struct swl_model *m, const swl_matrix *w, bool float_act)
{
    swl_matmul_fn *q = m->exact || float_act ? NULL : m->k.matmul_q[w->type];

    return q ? q : m->k.matmul_f[w->type];
}

int32_t swl_job_rows(int64_t n_rows, int32_t n_workers, int32_t step)
{
    int64_t rows = n_rows / (8 * (int64_t)n_workers) / step * step; /* eight jobs a worker even out the cores' speeds */

    return (int32_t)(rows < step ? step : rows > SWL_JOB_ROWS_MAX ? SWL_JOB_ROWS_MAX : rows);
}

typedef struct group_run {
    struct swl_model *m;
    const swl_group *g;
    const swl_act *a;
    int32_t n, parts;
    float *out;
    int64_t ldo;
} group_run;

/* With `parts` parts, so many neighbouring jobs of the group are taken together, once for each part of the batch's rows. */
static const swl_group_job *first_of(const group_run *r, int32_t i)
{
    return &r->g->jobs[i / r->parts * r->parts];
}

static void group_job(void *arg, int32_t i, int32_t next, int32_t worker)
{
    const group_run *r = arg;
    const swl_group_job *j = first_of(r, i), *after = next < 0 ? NULL : first_of(r, next);
    const swl_group_job *end = r->g->jobs + r->g->n_jobs, *last = end - j < r->parts ? end - 1 : j + r->parts - 1;
    const swl_piece *p = &r->g->pieces[j->piece];
    int32_t part = i % r->parts, row = r->n * part / r->parts, n = r->n * (part + 1) / r->parts - row;
    swl_act a = swl_act_from(r->a, row, r->a->cols);
    swl_matrix w = p->w;

    if (!worker && r->m->store && r->n > 1) /* what a prompt reads ahead is more than the system takes at once */
        swl_store_pump(r->m->store);
    if (after)
        w.next = swl_matrix_upcoming(&r->g->pieces[after->piece].w, r->g->pieces[after->piece].row0 + after->row);
    pick_matmul(r->m, &w, p->float_act)(&w, p->row0 + j->row, last->row + last->n_rows - j->row, &a, NULL, n,
                                        r->out + row * r->ldo + p->dst + j->row, r->ldo);
}

/* A kernel lays out the batch's rows anew in each job: of many, a job gets a part, and more rows of the matrix instead. Groups
 * of several matrices are so wide that their jobs are large anyway. */
static int32_t group_parts(const swl_group *g, int32_t n)
{
    int32_t most = SWL_JOB_ROWS_MAX / g->jobs->n_rows, parts = n / SWL_FFN_TOKENS;

    return g->n_pieces > 1 || parts < 1 ? 1 : parts < most ? parts : most;
}

void swl_group_run(struct swl_model *m, const swl_group *g, const swl_act *a, int32_t n, float *out, int64_t ldo)
{
    group_run r = {m, g, a, n, group_parts(g, n), out, ldo};

    swl_threads_run_ahead(m->threads, (g->n_jobs + r.parts - 1) / r.parts * r.parts, group_job, &r);
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

typedef struct each_row {
    void (*fn)(void *, int32_t, int32_t);
    void *arg;
    int32_t n, step;
} each_row;

static void each_row_job(void *arg, int32_t i, int32_t worker)
{
    const each_row *e = arg;
    int32_t row, end = e->n - i * e->step < e->step ? e->n : (i + 1) * e->step;

    for (row = i * e->step; row < end; row++)
        e->fn(e->arg, row, worker);
}

void swl_rows_run(struct swl_model *m, int32_t n, void (*fn)(void *, int32_t, int32_t), void *arg)
{
    each_row e = {fn, arg, n, swl_job_rows(n, swl_threads_count(m->threads), 1)};

    swl_threads_run(m->threads, (n + e.step - 1) / e.step, each_row_job, &e);
}

typedef struct rows_run {
    struct swl_model *m;
    swl_act *a;
    const float *x, *w;
    int64_t width;
} rows_run;

static void quantise_row(struct swl_model *m, const swl_act *a, int64_t row)
{
    m->k.quantise_act(a->x + row * a->ldx, a->cols, a->q + row * a->ldq, a->scale + row * (a->ldq / SWL_ACT_GROUP),
                      a->sum + row * (a->ldq / SWL_ACT_SUM));
}

static void quantise_job(void *arg, int32_t i, int32_t worker)
{
    const rows_run *r = arg;

    (void)worker;
    quantise_row(r->m, r->a, i);
}

void swl_act_quantise(struct swl_model *m, swl_act *a, int32_t n)
{
    rows_run r = {.m = m, .a = a};

    if (!m->exact)
        swl_rows_run(m, n, quantise_job, &r);
}

static void norm_job(void *arg, int32_t i, int32_t worker)
{
    const rows_run *r = arg;
    swl_act *a = r->a;

    (void)worker;
    r->m->k.rms_norm(a->x + i * a->ldx, r->x + i * r->width, r->w, a->cols, r->m->config->norm_eps);
    if (!r->m->exact)
        quantise_row(r->m, a, i);
}

void swl_norm_rows(struct swl_model *m, swl_act *a, const float *x, const float *w, int32_t n)
{
    rows_run r = {.m = m, .a = a, .x = x, .w = w, .width = a->cols};

    swl_rows_run(m, n, norm_job, &r);
}

static void add_job(void *arg, int32_t i, int32_t worker)
{
    struct swl_model *m = arg;
    int32_t hidden = m->config->hidden;

    (void)worker;
    m->k.add(m->work.x + (int64_t)i * hidden, m->work.y + i * m->work.ldy, hidden);
}

void swl_add_rows(struct swl_model *m, int32_t n)
{
    swl_rows_run(m, n, add_job, m);
}

swl_act swl_act_from(const swl_act *a, int64_t row, int32_t cols)
{
    swl_act b = *a;

    b.cols = cols;
    b.x += row * a->ldx;
    if (a->q) {
        b.q += row * a->ldq;
        b.scale += row * (a->ldq / SWL_ACT_GROUP);
        b.sum += row * (a->ldq / SWL_ACT_SUM);
    }
    return b;
}

/* ---- feed-forward networks ---------------------------------------------------------------------------------------- */

typedef struct ffn_run {
    struct swl_model *m;
    const swl_ffn_unit *units;
    int32_t n_units, clear;
    const swl_act *in;
    float *out;
    int64_t ldo;
} ffn_run;

/* silu(gate) * up for one pair and one block of rows. A block is a whole number of activation groups (or the end of the
 * row), so it is quantised here, while it is in the cache; the floats are left in gate unless down wants them. */
static void finish_block(struct swl_model *m, const swl_matrix *down, int64_t pair, const swl_ffn_job *j, float *gate,
                         const float *up)
{
    const swl_act *h = &m->work.pair_h;
    int64_t at = pair * h->ldq + j->row;
    float *x = pick_matmul(m, down, false) == m->k.matmul_f[down->type] ? h->x + pair * h->ldx + j->row : gate;

    m->k.silu_mul(x, gate, up, j->n_rows);
    if (!m->exact)
        m->k.quantise_act(x, j->n_rows, h->q + at, h->scale + at / SWL_ACT_GROUP, h->sum + at / SWL_ACT_SUM);
}

static void gate_up_job(void *arg, int32_t i, int32_t next, int32_t worker)
{
    const ffn_run *r = arg;
    struct swl_model *m = r->m;
    const swl_ffn_job *j = &m->work.ffn_jobs[i], *after = next < 0 ? NULL : &m->work.ffn_jobs[next];
    const swl_ffn_unit *u = &r->units[j->unit];
    swl_matrix w_gate = u->w.gate, w_up = u->w.up;
    float *gate = m->scratch + worker * m->scratch_floats, *up = gate + SWL_FFN_TOKENS * SWL_FFN_LD;
    int32_t identity[SWL_FFN_TOKENS], t, n, k;

    w_gate.next = swl_matrix_upcoming(&w_up, j->row);
    w_up.next = swl_matrix_upcoming(&w_gate, j->row);
    for (t = 0; t < u->n; t += n) {
        const int32_t *tok = u->tok ? u->tok + t : identity;

        n = u->n - t < SWL_FFN_TOKENS ? u->n - t : SWL_FFN_TOKENS;
        for (k = 0; k < n; k++)
            identity[k] = t + k;
        if (t + n == u->n)
            w_up.next = after ? swl_matrix_upcoming(&r->units[after->unit].w.gate, after->row) : (swl_upcoming){0};
        pick_matmul(m, &w_gate, false)(&w_gate, j->row, j->n_rows, r->in, tok, n, gate, SWL_FFN_LD);
        pick_matmul(m, &w_up, false)(&w_up, j->row, j->n_rows, r->in, tok, n, up, SWL_FFN_LD);
        for (k = 0; k < n; k++)
            finish_block(m, &u->w.down, (int64_t)u->pair0 + t + k, j, gate + k * SWL_FFN_LD, up + k * SWL_FFN_LD);
    }
}

static void down_job(void *arg, int32_t i, int32_t next, int32_t worker)
{
    const ffn_run *r = arg;
    struct swl_model *m = r->m;
    const swl_ffn_job *j = &m->work.ffn_jobs[i], *after = next < 0 ? NULL : &m->work.ffn_jobs[next];
    const swl_ffn_unit *u = &r->units[j->unit];
    swl_act h = swl_act_from(&m->work.pair_h, u->pair0, u->w.down.cols);
    swl_matrix w = u->w.down;

    (void)worker;
    if (after)
        w.next = swl_matrix_upcoming(&r->units[after->unit].w.down, after->row);
    pick_matmul(m, &w, false)(&w, j->row, j->n_rows, &h, NULL, u->n, r->out + u->pair0 * r->ldo + j->row, r->ldo);
}

/* The rows of down that one job takes for all units: two or more jobs a worker. */
static int32_t down_add_rows(const struct swl_model *m)
{
    return swl_job_rows(4 * (int64_t)m->config->hidden, swl_threads_count(m->threads), SWL_JOB_ROWS_STEP);
}

enum { ROWS_AHEAD = 2 };

/* Asks for memory: soon into the first cache, else into the second. */
static void ask_for(const void *p, int64_t n_bytes, bool soon)
{
    int64_t i;

    for (i = 0; i < n_bytes; i += 64)
        if (soon)
            __builtin_prefetch((const char *)p + i, 1, 3);
        else
            __builtin_prefetch((const char *)p + i, 0, 2);
}

static void ask_for_rows(const swl_act *a, int64_t row, int64_t n)
{
    swl_act b = swl_act_from(a, row, a->cols);

    if (!b.q)
        return;
    ask_for(b.q, n * b.ldq, false);
    ask_for(b.scale, n * (b.ldq / SWL_ACT_GROUP) * (int64_t)sizeof *b.scale, false);
    ask_for(b.sum, n * (b.ldq / SWL_ACT_SUM) * (int64_t)sizeof *b.sum, false);
}

static float *result_row(const struct swl_model *m, const swl_ffn_unit *u, int32_t i, float *y)
{
    return y + (u->tok ? u->tok[i] : i) * m->work.ldy;
}

/* Adds results of a unit's rows [first, end) to theirs in y, which lie all over the batch and are asked for before. */
static void add_results(struct swl_model *m, const swl_ffn_unit *u, int32_t first, int32_t end, const float *part, float *y,
                        int32_t n_rows)
{
    int32_t i, ahead;

    for (ahead = first; ahead < end + ROWS_AHEAD; ahead++) {
        i = ahead - ROWS_AHEAD;
        if (ahead < end)
            ask_for(result_row(m, u, ahead, y), n_rows * (int64_t)sizeof *y, true);
        if (i >= first)
            m->k.axpy(result_row(m, u, i, y), u->weight[i], part + (i - first) * SWL_FFN_LD, n_rows);
    }
}

/* No two jobs add to the same columns, so each can take the units in order, while a result is in the cache. */
static void down_add_job(void *arg, int32_t i, int32_t next, int32_t worker)
{
    const ffn_run *r = arg;
    struct swl_model *m = r->m;
    int32_t step = down_add_rows(m), row = i * step, left = m->config->hidden - row, n_rows = left < step ? left : step;
    float *part = m->scratch + worker * m->scratch_floats, *y = m->work.y + row;
    int32_t t, u, n;

    for (t = 0; t < r->clear; t++)
        memset(y + t * m->work.ldy, 0, (size_t)n_rows * sizeof *y);
    for (u = 0; u < r->n_units; u++) {
        const swl_ffn_unit *unit = &r->units[u];
        swl_matrix w = unit->w.down;

        if (u + 1 < r->n_units) /* another worker has written them */
            ask_for_rows(&m->work.pair_h, unit[1].pair0, unit[1].n < SWL_FFN_TOKENS ? unit[1].n : SWL_FFN_TOKENS);
        for (t = 0; t < unit->n; t += n) {
            swl_act h = swl_act_from(&m->work.pair_h, unit->pair0 + t, w.cols);

            n = unit->n - t < SWL_FFN_TOKENS ? unit->n - t : SWL_FFN_TOKENS;
            w.next = t + n < unit->n      ? swl_matrix_upcoming(&w, row)
                     : u + 1 < r->n_units ? swl_matrix_upcoming(&unit[1].w.down, row)
                     : next >= 0          ? swl_matrix_upcoming(&r->units[0].w.down, next * step)
                                          : (swl_upcoming){0};
            pick_matmul(m, &w, false)(&w, row, n_rows, &h, NULL, n, part, SWL_FFN_LD);
            add_results(m, unit, t, t + n, part, y, n_rows);
        }
    }
}

static int32_t unit_rows(const swl_ffn_unit *u, bool down)
{
    return down ? u->w.down.rows : u->w.gate.rows;
}

static int32_t cut_jobs(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, bool down)
{
    swl_work *w = &m->work;
    int64_t total = 0;
    int32_t n = 0, u, row, step;

    for (u = 0; u < n_units; u++)
        total += unit_rows(&units[u], down);
    step = swl_job_rows(total, swl_threads_count(m->threads), SWL_JOB_ROWS_STEP);
    for (u = 0; u < n_units; u++)
        for (row = 0; row < unit_rows(&units[u], down); row += step) {
            int32_t left = unit_rows(&units[u], down) - row;

            assert(n < w->n_ffn_jobs_max);
            w->ffn_jobs[n++] = (swl_ffn_job){u, row, left < step ? left : step};
        }
    return n;
}

void swl_ffn_gate_up(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, const swl_act *in)
{
    ffn_run r = {.m = m, .units = units, .in = in};

    swl_threads_run_ahead(m->threads, cut_jobs(m, units, n_units, false), gate_up_job, &r);
}

void swl_ffn_run(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, const swl_act *in, float *out, int64_t ldo)
{
    ffn_run r = {.m = m, .units = units, .out = out, .ldo = ldo};

    swl_ffn_gate_up(m, units, n_units, in);
    swl_threads_run_ahead(m->threads, cut_jobs(m, units, n_units, true), down_job, &r);
}

void swl_ffn_down_add(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, int32_t clear)
{
    ffn_run r = {.m = m, .units = units, .n_units = n_units, .clear = clear};
    int32_t step = down_add_rows(m);

    swl_threads_run_ahead(m->threads, (m->config->hidden + step - 1) / step, down_add_job, &r);
}

void swl_dense_forward(struct swl_model *m, const swl_layer *l)
{
    swl_ffn_unit unit = {.w = l->ffn, .n = m->work.n_rows};

    swl_phase_enter(m, SWL_PHASE_EXPERTS);
    swl_ffn_run(m, &unit, 1, &m->work.norm, m->work.y, m->work.ldy);
    swl_phase_enter(m, SWL_PHASE_OTHER);
}
