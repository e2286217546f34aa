/* verify_dir.h: verify with a container alone: lengths, digests, checksums; repair; hashes.json for publishers. */
#ifndef CLI_VERIFY_DIR_H
#define CLI_VERIFY_DIR_H

#include "options.h"

swl_status verify_dir(const arguments *a, const char *dir, swl_error *err);

#endif
