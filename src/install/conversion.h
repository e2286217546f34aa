/*
 * conversion.h: what the result of a conversion depends on beside its source: as it is asked for, as it is recorded in the
 * state file, and whether a record is of what is asked for now.
 */
#ifndef SWL_INSTALL_CONVERSION_H
#define SWL_INSTALL_CONVERSION_H

#include "base/json.h"
#include "install/weight.h"

typedef struct swl_conversion {
    swl_weight_rule rule; /* for plain matrices; bits 0: the source is quantised already */
    bool exact_scales;    /* of GGUF: scales that are products stay in float32 */
} swl_conversion;

/* recipe: NULL, or "mixed_4_6" and its like, which replaces `bits`. */
swl_status swl_conversion_from(swl_conversion *c, int32_t bits, int32_t group, const char *recipe, bool minmax,
                               bool exact_scales, swl_error *err);
/* The record's options, a new object (NULL: out of memory). `kind`: of the source, which decides what matters. */
json_t *swl_conversion_record(const swl_conversion *c, swl_checkpoint_kind kind);
/* Whether a container with this record is what `c` asks for. What a record does not say makes no difference. */
bool swl_conversion_matches(const swl_conversion *c, const json_t *record);
/* The name of the recipe that the record has; NULL: none. Static storage. */
const char *swl_conversion_recipe(const json_t *record);
/* Whether the record says that scales are MLX's. */
bool swl_conversion_is_minmax(const json_t *record);

#endif
