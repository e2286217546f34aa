/* quant_fit.h: the affine quantiser of this project: least squares instead of the ends of the range. */
#ifndef SWL_FORMAT_QUANT_FIT_H
#define SWL_FORMAT_QUANT_FIT_H

#include "format/quant.h"

/* As swl_affine_quantise_row (one row, cols a multiple of group, BF16 scales and biases), with a smaller squared error:
 * in no group a larger one than MLX's scale and bias give once they are rounded to BF16. Sixteen groups take as long as one,
 * so rows that lie one after the other are better taken as one long row. x must be finite. Any thread. */
void swl_affine_fit_row(const float *x, int32_t cols, int32_t bits, int32_t group, uint8_t *data, uint16_t *scales,
                        uint16_t *biases);

/* The same in the instructions of `cpu` (SWL_CPU_ flags of this machine), which changes no bit. */
void swl_affine_fit_row_on(uint32_t cpu, const float *x, int32_t cols, int32_t bits, int32_t group, uint8_t *data,
                           uint16_t *scales, uint16_t *biases);

#endif
