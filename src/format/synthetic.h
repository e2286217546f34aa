/*
 * synthetic.h: the bytes of weights that nobody trained. A byte is a function of seed, tensor name and offset alone, so a
 * container on disk and experts made in memory hold the same, whatever the blocks and threads.
 *
 *   matrices      codes uniform, scale so that values have a standard deviation of about 1 / sqrt(inputs), mean 0
 *   norms         around 1                       conv1d     standard deviation 0.5
 *   A_log         log of 0.5 to 8                dt_bias    -3 to 1
 */
#ifndef SWL_FORMAT_SYNTHETIC_H
#define SWL_FORMAT_SYNTHETIC_H

#include "format/dtype.h"

#define SWL_SYNTHETIC_GROUP 64

typedef struct swl_synthetic {
    uint64_t key;
    swl_dtype dtype;           /* U32: random words; else floats */
    float base, span;          /* a float is base + span * u, u uniform in [-1, 1) */
    float bias_factor;         /* 0, or bias = -bias_factor * scale */
    bool log;                  /* the logarithm of that */
} swl_synthetic;

/* `width` is the length of the innermost dimension as stored: words, scales, elements. */
void swl_synthetic_init(swl_synthetic *s, uint64_t seed, const char *name, swl_dtype dtype, int64_t width);

/* Bytes [offset, offset + n) of the tensor; both multiples of the element's size. */
void swl_synthetic_bytes(const swl_synthetic *s, uint64_t offset, void *dst, uint64_t n);

/* Bits of the codes of a matrix, by the name of one of its tensors: 8 for router and shared gate, else 4. */
int32_t swl_synthetic_bits(const char *name);

#endif
