/* routes.c: experts drawn evenly, for measurements with weights that nobody trained. */
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

void swl_routes_apply(struct swl_model *m, int32_t n_rows)
{
    swl_router_override *o = &m->override;
    int32_t k = m->config->n_experts_used, row, i;
    uint64_t state = o->seed ^ o->n_calls++ * UINT64_C(0xd1342543de82ef95);

    for (row = 0; row < n_rows; row++) {
        int32_t *ids = m->work.topk + (int64_t)row * k;

        if (!row || o->routes == SWL_ROUTES_UNIFORM)
            draw_set(&state, m->config->n_experts, k, ids);
        else
            for (i = 0; i < k; i++)
                ids[i] = m->work.topk[i];
    }
}

void swl_routes_set(swl_model *m, swl_routes routes, uint64_t seed)
{
    pthread_mutex_lock(&m->lock);
    m->override = (swl_router_override){.routes = routes, .seed = seed};
    pthread_mutex_unlock(&m->lock);
}
