/*
 * weight.h: one weight of a source checkpoint on its way into a container: where its bytes lie, what becomes of them,
 * and the loop that carries them over in row blocks, so that a tensor of any size needs a few megabytes.
 */
#ifndef SWL_INSTALL_WEIGHT_H
#define SWL_INSTALL_WEIGHT_H

#include "base/threads.h"
#include "format/checkpoint.h"

typedef enum swl_weight_op {
    SWL_WEIGHT_COPY,    /* bytes unchanged */
    SWL_WEIGHT_ADD_ONE, /* zero-centred norm: 1 + w in float32 */
    SWL_WEIGHT_QUANTISE /* plain rows to affine */
} swl_weight_op;

/* Rows of a source tensor: `rows` x `width` elements (packed words count as one) from byte `begin`. */
typedef struct swl_slice {
    const swl_st_tensor *t;
    uint64_t begin;
    int64_t rows, width;
} swl_slice;

typedef struct swl_weight {
    swl_weight_op op;
    int64_t rows, cols;                 /* the matrix that is meant; a vector has one row */
    int32_t n_parts;                    /* 1, 2 for codebooks, or 3 for affine */
    int32_t bits, group;                /* of an affine result, else 0; codebooks have a group and no bits */
    bool minmax;                        /* quantised the way MLX does it */
    swl_slice src[SWL_PART_COUNT];      /* as many as the source has: 1, 2 or 3 */
    swl_dtype dtype[SWL_PART_COUNT];    /* of the result */
    int64_t width[SWL_PART_COUNT];      /* elements of dtype in a row of the result */
    uint64_t row_bytes[SWL_PART_COUNT]; /* of the result */
} swl_weight;

/* How plain matrices are to be stored; bits 0: as they are. */
typedef struct swl_weight_rule {
    int32_t bits, group;
    int32_t high_bits; /* of a recipe: for the matrices that it takes more care of; 0: as the others */
    bool minmax;       /* MLX's quantiser instead of ours */
} swl_weight_rule;

/* A matrix of rows x cols from its parts (t of scales and biases NULL when the source has none). Checks shapes and
 * types; a plain source is quantised by `rule` when cols is a multiple of the group. */
swl_status swl_weight_matrix(swl_weight *w, const swl_slice src[SWL_PART_COUNT], int64_t rows, int64_t cols,
                             swl_weight_rule rule, swl_error *err);

/* A vector or small array of n floats, copied or with one added. */
swl_status swl_weight_vector(swl_weight *w, const swl_st_tensor *t, int64_t n, swl_weight_op op, swl_error *err);

/* Takes n bytes of the result, from byte `at` of a part; each part comes in order, without gaps. */
typedef swl_status (*swl_weight_sink)(void *arg, swl_part part, uint64_t at, const uint8_t *data, uint64_t n,
                                      swl_error *err);

/* Gives n bytes from byte `begin` of a source tensor, in place of its file. */
typedef void (*swl_weight_origin)(void *arg, const swl_st_tensor *t, uint64_t begin, uint8_t *dst, uint64_t n);

/* Scratch for the loop; grows as needed, freed at the end. Zeroed at first. */
typedef struct swl_converter {
    const swl_st *st;
    swl_weight_origin origin; /* NULL: the bytes are read from st */
    void *origin_arg;
    swl_threads *threads; /* NULL: the caller's thread alone */
    uint8_t *in, *out;
    float *f32;
    uint64_t n_in, n_out, n_f32; /* bytes */
} swl_converter;

swl_status swl_weight_emit(swl_converter *cv, const swl_weight *w, swl_weight_sink sink, void *arg, swl_error *err);

/*
 * The same in steps, for sources whose bytes come one after the other: a weight has one to three sources (src[part]), and
 * each is taken in steps of so many bytes, the last one shorter. A step needs its own bytes and nothing else, so steps may
 * come in any order and at any time.
 */
int swl_weight_n_sources(const swl_weight *w);
uint64_t swl_weight_steps(const swl_weight *w, swl_part part, uint64_t *n_bytes); /* of a step; *n_bytes of the source */
swl_status swl_weight_step(swl_converter *cv, const swl_weight *w, swl_part part, uint64_t at, uint64_t n,
                           swl_weight_sink sink, void *arg, swl_error *err);
void swl_converter_deinit(swl_converter *cv);

#endif
