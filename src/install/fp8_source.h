/* fp8_source.h: originals whose matrices are E4M3 with a scale per block of 128 x 128 (X.weight and X.weight_scale_inv,
 * which multiplies, despite its name), shown as checkpoints in float32. */
#ifndef SWL_INSTALL_FP8_SOURCE_H
#define SWL_INSTALL_FP8_SOURCE_H

#include "format/checkpoint.h"

/* Leaves a checkpoint alone that has no such matrices. */
swl_status swl_fp8_filter(swl_checkpoint *c, swl_error *err);

#endif
