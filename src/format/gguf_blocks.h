/*
 * gguf_blocks.h: what the blocks of GGUF's tensor types become: the codes of an affine or codebook format as they are,
 * in the order of the columns, and a scale (and bias) per group. Codes are never rounded a second time.
 *
 *   exact with float16 scales   Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_0 IQ4_NL, MXFP4, NVFP4 (byte scales)
 *   products of two numbers     Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS: a scale is float16 times a small integer, which
 *                               float32 holds exactly and float16 to 2^-11
 */
#ifndef SWL_FORMAT_GGUF_BLOCKS_H
#define SWL_FORMAT_GGUF_BLOCKS_H

#include "format/gguf.h"
#include "format/quant.h"

#define SWL_GGUF_BLOCK_MAX 256 /* elements */

typedef struct swl_gguf_form {
    int32_t id;              /* of the tensor type */
    swl_wtype type;          /* what it becomes */
    int32_t group;           /* elements that share a scale */
    swl_dtype sdtype;        /* of the scales as they are stored, U8 for byte scales */
    bool product;            /* the scales are products */
    /* One block: a code per element, and per group a scale (byte scales: their byte) and a bias. */
    void (*split)(const uint8_t *block, uint8_t *codes, float *scales, float *biases);
} swl_gguf_form;

/* NULL for plain types and for those that are not converted. */
const swl_gguf_form *swl_gguf_form_get(const swl_gguf_type *t);
swl_dtype swl_gguf_plain(const swl_gguf_type *t); /* F32, F16, BF16; else SWL_DT_NONE */

/* n blocks of source into the bytes of one part (weight: packed codes; scales and biases of `sdtype`, which is the form's
 * or F32). False when a scale does not fit sdtype. */
bool swl_gguf_convert(const swl_gguf_form *f, const swl_gguf_type *t, swl_dtype sdtype, int part, const uint8_t *src,
                      int64_t n, uint8_t *dst);

#endif
