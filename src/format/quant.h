/*
 * quant.h: how the numbers of a weight matrix lie in memory. One row per format in a descriptor table; kernels, loaders
 * and converters all take their facts from it.
 */
#ifndef SWL_FORMAT_QUANT_H
#define SWL_FORMAT_QUANT_H

#include "format/dtype.h"

typedef enum swl_wtype {
    SWL_W_NONE, SWL_W_F32, SWL_W_F16, SWL_W_BF16,
    SWL_W_A2, SWL_W_A3, SWL_W_A4, SWL_W_A5, SWL_W_A6, SWL_W_A8, /* MLX affine: value = scale * q + bias */
    SWL_W_MXFP4, SWL_W_NVFP4, SWL_W_NL4, SWL_W_MXFP8,           /* codebooks: value = scale * book[q] */
    SWL_W_COUNT
} swl_wtype;

/* Where the same thread goes on reading after the rows of one call: a hint, so that kernels ask for those bytes in time.
 * NULL: not known. */
typedef struct swl_upcoming {
    const uint8_t *data, *scales, *biases;
} swl_upcoming;

/*
 * A matrix [rows][cols] as stored; a borrowed view, no pointer needs alignment.
 *
 *   affine: data    rows x (cols * bits / 8) bytes, each row one little-endian bit stream, element i in bits
 *                   [i*bits, (i+1)*bits)
 *           scales, biases    rows x (cols / group) of sdtype (F32, F16 or BF16)
 *   codebook: data as affine
 *           scales    rows x (cols / group): one byte for MXFP4 and MXFP8 (E8M0, group 32) and NVFP4 (E4M3, group 16);
 *                     F32, F16 or BF16 for NL4 (group 32), the non-linear four bits of GGUF; biases NULL
 *   else:   data    rows x cols of the type; scales and biases NULL, group 0
 */
typedef struct swl_matrix {
    swl_wtype type;
    swl_dtype sdtype;
    int32_t rows, cols, group;
    const uint8_t *data, *scales, *biases;
    swl_upcoming next;
} swl_matrix;

typedef struct swl_wtype_info {
    const char *name;      /* "affine 4-bit", "bf16" */
    int32_t bits;          /* per element, without scales */
    bool affine;
    const int32_t *book;   /* of codebook formats: what each code stands for, in units of 2^-shift; else NULL */
    int32_t shift;
    /* n elements of row `row` from column `col` (a multiple of 32): fmaf(scale, q, bias) for affine, and for codebooks
     * book[q] times swl_matrix_scale, which is exact unless NL4 has F32 scales. */
    void (*dequant)(const swl_matrix *m, int32_t row, int32_t col, int32_t n, float *dst);
} swl_wtype_info;

const swl_wtype_info *swl_wtype_get(swl_wtype t);
swl_wtype swl_wtype_affine(int32_t bits);           /* SWL_W_NONE when there is no such width */
swl_wtype swl_wtype_plain(swl_dtype t);             /* F32, F16, BF16; else SWL_W_NONE */

int64_t swl_matrix_row_bytes(const swl_matrix *m);  /* of data */
int64_t swl_matrix_scale_bytes(const swl_matrix *m); /* of a row's scales, and of its biases; 0 without groups */
swl_upcoming swl_matrix_upcoming(const swl_matrix *m, int64_t row); /* the rows from `row` on */
void swl_matrix_row_f32(const swl_matrix *m, int32_t row, float *dst); /* the whole row */

/* Codebook formats: 2^-shift times scale number i of the matrix. */
float swl_matrix_scale(const swl_matrix *m, int64_t i);

/* The codebook format that a .weight of `words` 32-bit words and n_scales .scales of type t for `cols` inputs have when
 * there are no .biases; U8 stands for the byte that the format has. SWL_W_NONE when there is none. */
swl_wtype swl_codebook_from_shapes(swl_dtype t, int64_t words, int64_t n_scales, int64_t cols, int32_t *group);
swl_dtype swl_codebook_sdtype(swl_wtype t, swl_dtype stored); /* what `stored` scales are in a swl_matrix */

/* What the shapes of .weight [.., words] and .scales [.., n_scales] say for `cols` inputs: bits = 32 * words / cols,
 * group = cols / n_scales. False when they are not integers or no format has them. */
bool swl_affine_from_shapes(int64_t words, int64_t n_scales, int64_t cols, int32_t *bits, int32_t *group);

/* MLX's affine quantiser for one row (cols a multiple of group): q packed as above, scales and biases as BF16. */
void swl_affine_quantise_row(const float *src, int32_t cols, int32_t bits, int32_t group, uint8_t *data,
                             uint16_t *scales, uint16_t *biases);

#endif
