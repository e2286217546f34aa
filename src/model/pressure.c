/*
 * pressure.c: the expert pool follows the memory of the machine. Between passes, at most once a second, the system's own
 * measure of waiting for memory (Linux PSI) is read: under pressure the pool gives up an eighth, when it has been calm and
 * memory is free it takes a sixteenth back. Never below one token's experts, never above the plan. What is leased stays.
 */
#define _GNU_SOURCE

#include "base/clock.h"
#include "base/sysmem.h"
#include "model/model.h"

#define PRESSED_PERCENT 10.0 /* of the last ten seconds, some task waited for memory */
#define CALM_PERCENT    1.0

int32_t swl_pressure_slots(double pressure, bool room, int32_t slots, int32_t lo, int32_t hi)
{
    int32_t step;

    if (pressure >= PRESSED_PERCENT) {
        step = slots / 8 > 1 ? slots / 8 : 1;
        return slots - step > lo ? slots - step : lo;
    }
    if (pressure >= 0 && pressure < CALM_PERCENT && room) {
        step = slots / 16 > 1 ? slots / 16 : 1;
        return slots + step < hi ? slots + step : hi;
    }
    return slots;
}

/* Whether growing back to the plan would still leave the system its reserve. */
static bool has_room(const struct swl_model *m)
{
    swl_sysmem mem;

    swl_sysmem_get(&mem);
    return swl_sysmem_budget(&mem) > m->plan.total;
}

void swl_pressure_tick(struct swl_model *m)
{
    double now = swl_seconds(), pressure;
    int32_t slots, next;

    if (!m->store || m->ck->experts_absent || now - m->pressure_at < 1.0)
        return;
    m->pressure_at = now;
    pressure = swl_sysmem_pressure();
    slots = swl_store_slots(m->store);
    next = swl_pressure_slots(pressure, pressure < CALM_PERCENT && slots < m->pool_slots_max && has_room(m), slots,
                              m->config->n_experts_used, m->pool_slots_max);
    if (next != slots)
        swl_store_resize(m->store, next, NULL); /* when it fails the pool stays as it is */
}

swl_status swl_model_resize_pool(swl_model *m, uint64_t pool_bytes, swl_error *err)
{
    uint64_t row = m->plan.pool_slots ? m->plan.pool / (uint64_t)m->plan.pool_slots : 1, slots = pool_bytes / row;
    uint64_t lo = (uint64_t)m->config->n_experts_used, hi = (uint64_t)m->plan.pool_slots;
    swl_status st;

    if (!m->store)
        return SWL_OK;
    slots = slots < lo ? lo : slots > hi ? hi : slots;
    pthread_mutex_lock(&m->lock);
    m->pool_slots_max = (int32_t)slots;
    st = swl_store_resize(m->store, (int32_t)slots, err);
    pthread_mutex_unlock(&m->lock);
    return st;
}
