/*
 * repack_plan.h: everything that a container will hold, decided and checked against the config before the first byte is
 * written: the dense tensors in the order of the file, the geometry of the experts' slots, and what becomes of each.
 */
#ifndef SWL_INSTALL_REPACK_PLAN_H
#define SWL_INSTALL_REPACK_PLAN_H

#include "install/weight.h"

#define SWL_STRIDE_ALIGN UINT64_C(16384)

/* One source weight and the one or three tensors that it becomes. */
typedef struct swl_plan_item {
    char *name;  /* "model.layers.0.mlp.gate" for matrices, the whole name for vectors */
    bool matrix; /* parts are name.weight, name.scales, name.biases */
    swl_weight w;
    int32_t n_dims;
    int64_t shape[3];                /* of the result; the last dimension of a matrix is w.width[part] */
    uint64_t offset[SWL_PART_COUNT]; /* in the file */
    uint32_t crc[SWL_PART_COUNT];    /* filled in while writing */
} swl_plan_item;

typedef struct swl_plan_tensor {
    int32_t item;
    swl_part part;
    char *name;
    uint64_t size;
} swl_plan_tensor;

/* A safetensors file to be. */
typedef struct swl_plan_file {
    const char *name; /* "model.safetensors" */
    swl_plan_item *items;
    int32_t n_items, n_items_max;
    swl_plan_tensor *tensors; /* in the order of the file */
    int32_t n_tensors;
    uint8_t *header;
    uint64_t n_header, n_bytes; /* of the header; of the whole file */
} swl_plan_file;

/* A file of slots to be. */
typedef struct swl_plan_slots {
    char *base; /* source name up to and with "mlp."; NULL: the layer has no experts */
    int32_t n_sections;
    swl_section sections[SWL_PROJ_COUNT * SWL_PART_COUNT];
    int32_t bits[SWL_PROJ_COUNT], group[SWL_PROJ_COUNT]; /* 0 when plain */
    uint64_t payload, stride;
    uint32_t *crc; /* [n_experts], filled in while writing */
} swl_plan_slots;

typedef struct swl_plan {
    const swl_checkpoint *c;
    swl_weight_rule rule; /* for plain matrices; bits 0 when the source is quantised already */
    bool quantised_here;  /* at least one matrix is quantised by us: config.json says how */
    int32_t version;      /* 1 or 2 */
    bool mtp;
    char mtp_prefix[32]; /* what stands before "fc.weight" in the source */
    bool mtp_norms_hold_one_plus_w;
    swl_plan_file dense, draft;
    swl_plan_slots *layers; /* [n_layers] */
    swl_plan_slots draft_slots;
    uint64_t bytes_total; /* of all these files */
} swl_plan;

/* `rule` is for plain matrices of sources that are not quantised; c must outlive the plan. */
swl_status swl_plan_make(swl_plan *p, const swl_checkpoint *c, swl_weight_rule rule, swl_error *err);
void swl_plan_deinit(swl_plan *p);

/* Where a projection of one expert comes from. Its form is that of the slots' sections (checked when the plan was
 * made). */
swl_status swl_plan_expert(const swl_plan *p, const swl_plan_slots *s, int32_t expert, swl_proj proj, swl_weight *w,
                           swl_error *err);

const char *swl_proj_name(swl_proj proj); /* "gate_proj" */
const char *swl_part_name(swl_part part); /* "weight" */

#endif
