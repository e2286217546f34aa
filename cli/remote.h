/* remote.h: questions to a running server of ours, over plain HTTP. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <jansson.h>

#include "options.h"

/* GET of a path below --url, as JSON; *out: json_decref. An answer that is not 200 is an error with its text: SWL_E_NETWORK when
 * nobody answers, SWL_E_FAIL otherwise. */
swl_status remote_get(json_t **out, const arguments *a, const char *path, swl_error *err);

#endif
