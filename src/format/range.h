/* range.h: one contiguous read that fills part of an expert's slot. */
#ifndef SWL_FORMAT_RANGE_H
#define SWL_FORMAT_RANGE_H

#include <stdint.h>

typedef struct swl_range {
    int32_t file;            /* index into the owner's list of files */
    uint64_t offset;         /* in the file */
    uint64_t size;
    uint64_t dst;            /* in the slot */
} swl_range;

#endif
