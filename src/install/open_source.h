/* open_source.h: what a conversion can start from: every directory that swl_checkpoint_open takes, GGUF files, and
 * originals in FP8, whose weights are shown as float32. */
#ifndef SWL_INSTALL_OPEN_SOURCE_H
#define SWL_INSTALL_OPEN_SOURCE_H

#include "format/checkpoint.h"

/* exact_scales: those scales of a GGUF file that are products stay exact, in float32. */
swl_status swl_open_source(swl_checkpoint **out, const char *path, bool exact_scales, swl_error *err);

#endif
