/*
 * frames.c: the memory that experts are read into. Layers whose experts have one size share one range of addresses, large
 * enough for all of them; memory stands behind it only where something was read, and goes back to the system when the pool
 * shrinks. So a pool can grow and shrink in place, and an expert can pass from the stage to its layer without a copy.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "store/store_impl.h"

enum { LENT_PART = 6 }; /* at most this part of a layer's share is lent to the stage */

static uint64_t stride_of(const swl_store_layer *l)
{
    return (l->slot_bytes + SWL_IO_ALIGN - 1) & ~(uint64_t)(SWL_IO_ALIGN - 1);
}

static int32_t share_of(const swl_store_layer *l, int32_t slots_per_layer)
{
    return l->n_experts < slots_per_layer ? l->n_experts : slots_per_layer;
}

/* Finds the layer's size among those seen before it, or begins a new one. */
static swl_frames *find_size(swl_store *s, const swl_store_layer *l)
{
    int32_t i;

    for (i = 0; i < s->n_sizes; i++)
        if (s->sizes[i].stride == stride_of(l))
            return &s->sizes[i];
    s->sizes[s->n_sizes] = (swl_frames){.stride = stride_of(l)};
    return &s->sizes[s->n_sizes++];
}

/* Addresses for all experts of this size; where the system does not lend that many, for the present share alone. */
static swl_status reserve(swl_frames *f, int32_t n_all, swl_error *err)
{
    for (f->n = n_all;; f->n = f->n_allowed) {
        f->bytes = (uint64_t)f->n * f->stride;
        if (f->bytes / f->stride == (uint64_t)f->n)
            f->memory = swl_big_alloc(f->bytes);
        if (f->memory || f->n == f->n_allowed)
            break;
    }
    if (!f->memory)
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory for a pool of %" PRIu64 " bytes", f->bytes);
    f->warm = swl_calloc((size_t)f->n, sizeof *f->warm);
    f->cold = swl_calloc((size_t)f->n, sizeof *f->cold);
    return f->warm && f->cold ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
}

static swl_status make_frames(swl_store *s, swl_error *err)
{
    int32_t i, j;

    for (i = 0; i < s->n_sizes; i++) {
        s->sizes[i].first = s->n_frames;
        s->n_frames += s->sizes[i].n;
    }
    s->frames = swl_calloc((size_t)s->n_frames, sizeof *s->frames);
    s->reads = swl_calloc((size_t)s->n_frames * (size_t)s->n_ranges_max, sizeof *s->reads);
    if (!s->frames || !s->reads)
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    for (i = 0; i < s->n_sizes; i++) {
        swl_frames *f = &s->sizes[i];

        for (j = f->n - 1; j >= 0; j--) { /* low addresses are used first */
            swl_frame *frame = &s->frames[f->first + j];

            frame->data = f->memory + (uint64_t)j * f->stride;
            frame->reads = s->reads + ((int64_t)f->first + j) * s->n_ranges_max;
            f->cold[f->n_cold++] = f->first + j;
        }
    }
    return SWL_OK;
}

swl_status swl_frames_create(swl_store *s, swl_error *err)
{
    swl_status st = SWL_OK;
    int32_t i, *n_all = swl_calloc((size_t)s->n_layers, sizeof *n_all);

    s->sizes = swl_calloc((size_t)s->n_layers, sizeof *s->sizes);
    if (!s->sizes || !n_all) {
        swl_free(n_all);
        return swl_fail(err, SWL_E_NOMEM, "expert store: out of memory");
    }
    for (i = 0; i < s->n_layers; i++) {
        swl_store_part *l = &s->layers[i];

        if (!l->desc.n_experts)
            continue;
        l->frames = find_size(s, &l->desc);
        n_all[l->frames - s->sizes] += l->desc.n_experts;
    }
    swl_frames_allow(s);
    for (i = 0; i < s->n_sizes && !st; i++)
        st = reserve(&s->sizes[i], n_all[i] + s->stage_slots, err);
    swl_free(n_all);
    return st ? st : make_frames(s, err);
}

void swl_frames_free(swl_store *s)
{
    int32_t i;

    for (i = 0; i < s->n_sizes; i++) {
        swl_big_free(s->sizes[i].memory, s->sizes[i].bytes);
        swl_free(s->sizes[i].warm);
        swl_free(s->sizes[i].cold);
    }
    swl_free(s->sizes);
    swl_free(s->frames);
    swl_free(s->reads);
}

/* What a layer lends: never what one token needs, and of a share that holds everything nothing. */
static int32_t lent_of(const swl_store *s, const swl_store_layer *l, int32_t share)
{
    int32_t most = share - s->slots_min < share / LENT_PART ? share - s->slots_min : share / LENT_PART;

    return share == l->n_experts || most < 0 ? 0 : s->n_lent < most ? s->n_lent : most;
}

void swl_frames_allow(swl_store *s)
{
    int32_t i, share, lent;

    for (i = 0; i < s->n_sizes; i++)
        s->sizes[i].n_allowed = s->sizes[i].n_stage = s->stage_slots;
    for (i = 0; i < s->n_layers; i++)
        if (s->layers[i].frames) {
            share = share_of(&s->layers[i].desc, s->slots_per_layer);
            lent = lent_of(s, &s->layers[i].desc, share);
            s->layers[i].n_slots = share - lent;
            s->layers[i].frames->n_stage += lent;
            s->layers[i].frames->n_allowed += share;
        }
}

int32_t swl_frames_take(swl_frames *f)
{
    if (f->n_warm)
        return f->warm[--f->n_warm];
    return f->n_cold ? f->cold[--f->n_cold] : -1;
}

void swl_frames_give(swl_store *s, swl_frames *f, int32_t frame)
{
    f->warm[f->n_warm++] = frame;
    swl_frames_trim(s, f);
}

void swl_frames_trim(swl_store *s, swl_frames *f)
{
    while (f->n_warm && f->n - f->n_cold > f->n_allowed) {
        int32_t i = f->warm[--f->n_warm];

        swl_big_discard(s->frames[i].data, f->stride);
        f->cold[f->n_cold++] = i;
    }
}

uint64_t swl_store_measure(const swl_store_layer *layers, int32_t n_layers, int32_t slots_per_layer, int32_t stage_slots,
                           uint64_t *meta)
{
    uint64_t bytes = 0, n_all = 0;
    int32_t i, j, n_ranges_max = 0;

    for (i = 0; i < n_layers; i++) {
        if (!layers[i].n_experts)
            continue;
        for (j = 0; j < i && (!layers[j].n_experts || stride_of(&layers[j]) != stride_of(&layers[i])); j++)
            ;
        bytes += stride_of(&layers[i]) * (uint64_t)(share_of(&layers[i], slots_per_layer) + (j == i ? stage_slots : 0));
        n_all += (uint64_t)layers[i].n_experts;
        if (layers[i].n_ranges > n_ranges_max)
            n_ranges_max = layers[i].n_ranges;
    }
    if (meta)
        *meta = n_all * (sizeof(swl_frame) + (uint64_t)n_ranges_max * sizeof(swl_io_read) + sizeof(swl_entry) + 32);
    return bytes;
}
