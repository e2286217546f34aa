/*
 * json_in.h: JSON from requests, taken as far as it can be. Ill-formed UTF-8 and halves of surrogate pairs become
 * U+FFFD; nesting is bounded; numbers that the JSON library cannot hold survive as their digits (see seal.h).
 */
#ifndef SWL_CHAT_JSON_IN_H
#define SWL_CHAT_JSON_IN_H

#include <jansson.h>

#include "chat/seal.h"

enum { SWL_JSON_IN_DEPTH = 128 };

/* SWL_E_ARG, beginning with `what`, when it is no JSON. seal: for large numbers; NULL: they are refused. *out:
 * json_decref. */
swl_status swl_json_in(json_t **out, const char *text, size_t n, const swl_seal *seal, const char *what,
                       swl_error *err);

#endif
