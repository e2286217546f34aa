/*
 * routes.c: experts by someone else's word than the router's, for measurements with weights that nobody trained: drawn
 * evenly, or as a log says; and the recording of such logs.
 */
#include "base/status.h"
#include "model/model.h"

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static bool holds(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* k distinct ones of n, every set equally likely (Floyd). */
static void draw_set(uint64_t *state, int32_t n, int32_t k, int32_t *ids)
{
    for (int32_t i = 0; i < k; i++) {
        int32_t top = n - k + i, id = (int32_t)(draw(state) % (uint64_t)(top + 1));

        ids[i] = holds(ids, i, id) ? top : id;
    }
}

/* Of the next call; returns the generator after it. */
static uint64_t draw_first(const struct swl_model *m, int32_t *ids)
{
    uint64_t state = m->override.seed ^ m->override.n_calls * UINT64_C(0xd1342543de82ef95);

    draw_set(&state, m->config->n_experts, m->config->n_experts_used, ids);
    return state;
}

static void draw_rows(struct swl_model *m, int32_t n_rows)
{
    const swl_router_override *o = &m->override;
    int32_t k = m->config->n_experts_used, row, i;
    uint64_t state = draw_first(m, m->work.topk);

    for (row = 1; row < n_rows; row++) {
        int32_t *ids = m->work.topk + (int64_t)row * k;

        if (o->routes == SWL_ROUTES_UNIFORM)
            draw_set(&state, m->config->n_experts, k, ids);
        else
            for (i = 0; i < k; i++)
                ids[i] = m->work.topk[i];
    }
}

/* Which of the layers that have experts this is. */
static int32_t moe_index(const struct swl_model *m, int32_t layer)
{
    int32_t i, n = 0;

    for (i = 0; i < layer; i++)
        n += m->config->layers[i].ffn == SWL_FFN_MOE;
    return n;
}

static void replay_rows(struct swl_model *m, int32_t index, int32_t n_rows)
{
    const swl_router_override *o = &m->override;
    int32_t k = m->config->n_experts_used, row, i;
    int32_t left_out = m->work.n_pass_rows - n_rows; /* the rows at work are the last of the pass, or taken for them */

    for (row = 0; row < n_rows; row++) {
        int64_t token = (o->token + left_out + row) % o->log->n_tokens;
        const uint16_t *ids = o->log->ids + (token * o->log->n_layers + index) * k;

        for (i = 0; i < k; i++)
            m->work.topk[(int64_t)row * k + i] = ids[i];
    }
}

/* What the next call for this layer will use. */
static void next_rows(struct swl_model *m, int32_t layer, int32_t n_rows)
{
    if (m->override.log)
        replay_rows(m, moe_index(m, layer), n_rows);
    else
        draw_rows(m, n_rows);
}

/* Of all k guesses about 80 % come true with trained weights, and of the likeliest more than of the others; here it is drawn:
 * the first of eight comes true in 97.5 % of the cases, the last in 62.5 %. On the demo model 90 % of the experts that were read
 * on the likeliest two guesses not in memory were used, and three quarters of those on four. */
enum { WRONG_PER_MILLE = 200 };

static void blur(const struct swl_model *m, uint64_t *state, int32_t *ids)
{
    int32_t k = m->config->n_experts_used, i;

    for (i = 0; i < k; i++) {
        int32_t other = (int32_t)(draw(state) % (uint64_t)m->config->n_experts);

        if (draw(state) % 1000 < (uint64_t)(WRONG_PER_MILLE * (2 * i + 1) / k) && !holds(ids, k, other))
            ids[i] = other;
    }
}

void swl_routes_guess(struct swl_model *m, int32_t layer, int32_t step)
{
    const swl_router_override *o = &m->override;
    uint64_t state = o->seed + UINT64_C(0x5851f42d4c957f2d) * (o->n_calls + 1);
    int32_t k = m->config->n_experts_used, row, i, *ids = m->work.topk;

    if (o->log)
        state += (uint64_t)(o->token * o->log->n_layers + moe_index(m, layer)) * UINT64_C(0xd1342543de82ef95);
    next_rows(m, layer, m->work.n_rows);
    for (row = 0; row < m->work.n_rows; row += step, ids += k) {
        for (i = 0; i < k; i++)
            ids[i] = m->work.topk[(int64_t)row * k + i];
        blur(m, &state, ids);
    }
}

swl_status swl_routes_apply(struct swl_model *m, int32_t layer, int32_t n_rows, swl_error *err)
{
    swl_router_override *o = &m->override;
    int32_t index = o->log || m->recorder ? moe_index(m, layer) : 0;

    if (o->log || o->routes != SWL_ROUTES_MODEL)
        next_rows(m, layer, n_rows);
    if (!o->log && o->routes != SWL_ROUTES_MODEL)
        o->n_calls++;
    return m->recorder ? swl_route_writer_add(m->recorder, index, m->work.topk, n_rows, err) : SWL_OK;
}

void swl_routes_advance(struct swl_model *m)
{
    if (m->override.log)
        m->override.token = (m->override.token + m->work.n_pass_rows) % m->override.log->n_tokens;
}

swl_status swl_routes_record(swl_model *m, const char *path, swl_error *err)
{
    swl_route_writer *w = NULL;
    swl_status st, closed;

    if (path && !m->weights.n_moe)
        return swl_fail(err, SWL_E_UNSUPPORTED, "a model without experts has no routes to record");
    st = path ? swl_route_writer_open(&w, path, m->weights.n_moe, m->config->n_experts, m->config->n_experts_used, err)
              : SWL_OK;
    if (st)
        return st;
    pthread_mutex_lock(&m->lock);
    closed = swl_route_writer_close(m->recorder, err);
    m->recorder = w;
    pthread_mutex_unlock(&m->lock);
    return closed;
}

swl_status swl_routes_replay(swl_model *m, const swl_route_log *log, swl_error *err)
{
    if (log && (log->n_layers != m->weights.n_moe || log->n_experts != m->config->n_experts ||
                log->k != m->config->n_experts_used))
        return swl_fail(err, SWL_E_MISMATCH,
                        "the route log has %d layers with %d experts, %d per token; the model %d, %d and %d", log->n_layers,
                        log->n_experts, log->k, m->weights.n_moe, m->config->n_experts, m->config->n_experts_used);
    pthread_mutex_lock(&m->lock);
    m->override.log = log;
    m->override.token = 0;
    pthread_mutex_unlock(&m->lock);
    return SWL_OK;
}

void swl_routes_set(swl_model *m, swl_routes routes, uint64_t seed)
{
    pthread_mutex_lock(&m->lock);
    m->override = (swl_router_override){.routes = routes, .seed = seed};
    pthread_mutex_unlock(&m->lock);
}
