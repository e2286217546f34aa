/*
 * checkpoint_parts.h: what the files that read a checkpoint share among themselves.
 *
 *   checkpoint.c   opens, closes, finds
 *   dialect.c      names, conventions, foreign quantisations
 *   experts.c      safetensors -> sections and ranges of the experts; the check of sections against the config
 *   qpack.c        manifest, layout and files of a container
 *   sidecar.c      swiftlet.json
 *
 * The readers of JSON take parsed values and touch no file, so that tests and fuzzers can feed them.
 */
#ifndef SWL_FORMAT_CHECKPOINT_PARTS_H
#define SWL_FORMAT_CHECKPOINT_PARTS_H

#include "base/json.h"
#include "format/checkpoint.h"

#define SWL_SIZE_MAX (UINT64_C(1) << 53) /* the largest size or offset that a JSON file may state */

/* ---- dialect.c -------------------------------------------------------------------------------------------------- */

/* Vision towers and draft heads: nothing that the text trunk needs. */
bool swl_dialect_ignores(const char *name);
bool swl_dialect_has_mtp(const swl_st *s);

/* Refuses, by name, weights in a form that has no kernel here: FP8, AWQ, GPTQ, compressed-tensors, ... */
swl_status swl_dialect_refuse_foreign(const swl_checkpoint *c, swl_error *err);
/* Sets c->prefix. */
swl_status swl_dialect_find_prefix(swl_checkpoint *c, swl_error *err);
/* The shape of conv1d.weight tells MLX's conventions ([C,4,1], norms hold 1+w) from Hugging Face's ([C,1,4]). */
swl_status swl_dialect_norms(const swl_checkpoint *c, bool *one_plus_w, swl_error *err);
/* Fails: `what` has scales but no biases, in a shape that no mode of MLX known here has; config.json knows its name. */
swl_status swl_dialect_refuse_mode(const char *dir, const char *path, const char *what, swl_error *err);

/* ---- experts.c -------------------------------------------------------------------------------------------------- */

extern const char *const swl_proj_names[SWL_PROJ_COUNT]; /* "gate_proj", ... */
extern const char *const swl_part_names[SWL_PART_COUNT]; /* "weight", ... */

/* NULL when absent. */
const swl_section *swl_experts_section(const swl_expert_layout *l, swl_proj proj, swl_part part);
/* Shapes and types of all sections against the config; `dir` and `path` are for messages. */
swl_status swl_experts_check(const swl_expert_layout *l, const swl_config *c, int32_t layer, const char *dir,
                             const char *path, swl_error *err);
/* Fills c->experts from the tensors of c->dense, whose shards are c->files. */
swl_status swl_experts_from_tensors(swl_checkpoint *c, swl_error *err);

/* ---- qpack.c ---------------------------------------------------------------------------------------------------- */

/* True when `dir` is a container, or the remains of one. */
bool swl_qpack_is(const char *dir);
/* Magic, version, and the paths and lengths of `files`; *version 1 or 2. */
swl_status swl_qpack_manifest(const json_t *root, int32_t *version, const char *path, swl_error *err);
/* Sections and slot size of every MoE layer into layers[config.n_layers]; dense layers are left as they are. */
swl_status swl_qpack_layout(const json_t *root, int32_t version, const swl_config *c, swl_expert_layout *layers,
                            const char *dir, const char *path, swl_error *err);
/* Everything of a container but what checkpoint.c does for every kind: config, experts, dense set, sidecar. */
swl_status swl_qpack_open(swl_checkpoint *c, swl_error *err);

/* ---- sidecar.c -------------------------------------------------------------------------------------------------- */

/* Version, conventions and the form of every checksum. */
swl_status swl_sidecar_check(const json_t *root, const char *path, swl_error *err);
/* The checksums of the n slots of `file` ("packed_experts/layer_00.bin"), *crc NULL when it has none; swl_free. */
swl_status swl_sidecar_slots(const json_t *root, const char *file, int32_t n, uint32_t **crc, const char *path,
                             swl_error *err);
/* What it says about synthetic weights, into `c`; c's experts have their layout by now. */
swl_status swl_sidecar_synthetic(const json_t *root, swl_checkpoint *c, const char *path, swl_error *err);
/* The checksum of a tensor of `file` ("model.safetensors"). */
bool swl_sidecar_tensor(const json_t *root, const char *file, const char *tensor, uint32_t *crc);

#endif
