/*
 * checkpoint.h: a model directory of any layout behind one view: named dense tensors, and for each MoE layer where the
 * bytes of expert e lie and how they are arranged once read. Nothing here knows what the tensors mean for the forward
 * pass; nobody above needs to know which layout it was.
 *
 *   .qpack       packed_experts/layer_NN.bin, one range per expert
 *   MLX          mlp.switch_mlp.{gate,up,down}_proj.{weight,scales,biases} stacked: up to nine ranges per expert
 *   HF fused     mlp.experts.gate_up_proj [E,2I,H], mlp.experts.down_proj [E,H,I]: up to three ranges (gate, up, down)
 *   HF split     mlp.experts.{e}.{gate,up,down}_proj.weight: up to three ranges
 *
 * Ranges that follow each other both in the file and in the slot, for every expert of a layer, are one range.
 */
#ifndef SWL_FORMAT_CHECKPOINT_H
#define SWL_FORMAT_CHECKPOINT_H

#include "format/config.h"
#include "format/quant.h"
#include "format/range.h"
#include "format/safetensors.h"

/* GGUF: as a source of conversions only (install/open_source.h); its tensors are shown with MLX's names and conventions. */
typedef enum swl_checkpoint_kind {
    SWL_CHECKPOINT_QPACK, SWL_CHECKPOINT_MLX, SWL_CHECKPOINT_HF, SWL_CHECKPOINT_GGUF
} swl_checkpoint_kind;

typedef enum swl_proj { SWL_PROJ_GATE, SWL_PROJ_UP, SWL_PROJ_DOWN, SWL_PROJ_COUNT } swl_proj;
typedef enum swl_part { SWL_PART_WEIGHT, SWL_PART_SCALES, SWL_PART_BIASES, SWL_PART_COUNT } swl_part;

/* One array inside an expert's slot, e.g. "gate_proj.scales". */
typedef struct swl_section {
    swl_proj proj;
    swl_part part;
    swl_dtype dtype;
    int64_t shape[2];        /* per expert, as stored (packed weights count 32-bit words) */
    uint64_t offset, size;   /* bytes, in the slot */
} swl_section;

typedef struct swl_expert_layout {
    int32_t n_sections;      /* 3 to 9: each projection has its weight, and scales and biases when it is quantised */
    swl_section sections[SWL_PROJ_COUNT * SWL_PART_COUNT];
    uint64_t slot_bytes;     /* what a slot must hold; a multiple of 64 */
    int32_t n_ranges;        /* per expert */
    swl_range *ranges;       /* [n_experts][n_ranges] */
    uint32_t *crc32c;        /* [n_experts] over slot_bytes as read, or NULL when the layout has no checksums */
} swl_expert_layout;

typedef struct swl_file_ref {
    const char *path;
    int fd;
    uint64_t size;           /* when opened */
} swl_file_ref;

/* A small file that is not in the directory but was made from what the source says. */
typedef struct swl_made_file {
    char *name, *text; /* owned; no zero bytes */
} swl_made_file;

typedef struct swl_checkpoint {
    swl_checkpoint_kind kind;
    char *dir;
    swl_config config;
    swl_st *dense;                   /* for MLX and HF it also holds the experts' tensors */
    bool norms_hold_one_plus_w;      /* MLX convention (qpack, MLX); false: HF, add 1 to kind-1 norms at load */
    bool mtp;                        /* mtp.* tensors are present */
    bool synthetic;                  /* weights that nobody trained (format/synthetic.h) */
    bool experts_absent;             /* ... and the experts' files hold nothing: swl_checkpoint_make_expert */
    uint64_t synthetic_seed;
    int32_t n_files;
    swl_file_ref *files;             /* experts' files */
    swl_expert_layout *experts;      /* [config.n_layers]; zeroed for dense layers; NULL in dense models */
    char prefix[32];                 /* what stands before "embed_tokens" in this file: "model.", ... */
    char *config_text;               /* stands for DIR/config.json; NULL: the file does */
    int32_t n_made;
    swl_made_file *made;             /* tokenizer, template, ... of a source that has no such files */
    void *source;                    /* what `dense` reads through, when its tensors are made */
    void (*close_source)(void *source);
    const char *(*source_file)(void *source, int32_t i); /* the files behind it; NULL past the last */
    struct json_t *sidecar;          /* swiftlet.json of a container; NULL when it has none. For this module only. */
} swl_checkpoint;

/* Opens and checks everything that can be checked without reading weights (spec order: manifest, config, layout, files,
 * tensors' presence is left to the loader that names what it needs). */
swl_status swl_checkpoint_open(swl_checkpoint **out, const char *dir, swl_error *err);
/* The same, but the tensors of MLX and Hugging Face directories pass through `filter` before anything is concluded from
 * them: it may put another set in the place of c->dense. For conversions; the engine reads what lies in the files. */
typedef swl_status (*swl_checkpoint_filter)(swl_checkpoint *c, swl_error *err);
swl_status swl_checkpoint_open_through(swl_checkpoint **out, const char *dir, swl_checkpoint_filter filter,
                                       swl_error *err);
void swl_checkpoint_close(swl_checkpoint *c);

/* A dense tensor by its canonical name ("model.layers.0.mlp.gate.weight", "lm_head.weight"), whatever prefix the file
 * uses; NULL when absent. */
const swl_st_tensor *swl_checkpoint_find(const swl_checkpoint *c, const char *name);

/* CRC-32C that swiftlet.json records for a dense tensor; false when it has none. */
bool swl_checkpoint_crc32c(const swl_checkpoint *c, const swl_st_tensor *t, uint32_t *crc);

/* The matrix `proj` of a layer inside a slot that holds one expert (shapes were checked at open). */
void swl_expert_matrix(const swl_checkpoint *c, int32_t layer, swl_proj proj, const uint8_t *slot, swl_matrix *out);

/* The bytes of an expert whose files hold nothing, into slot_bytes at `slot`. */
void swl_checkpoint_make_expert(const swl_checkpoint *c, int32_t layer, int32_t expert, uint8_t *slot);

/* What snapshots are keyed by (fingerprint.c says what goes in). Reads a few megabytes. */
swl_status swl_checkpoint_fingerprint(const swl_checkpoint *c, uint8_t digest[32], swl_error *err);

#endif
