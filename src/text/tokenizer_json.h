/*
 * tokenizer_json.h: tokenizer.json as its two long tables, left as text, and a small tree of all the rest. A vocabulary
 * of a quarter of a million tokens as a tree of nodes would cost a hundred megabytes and most of the time of opening a
 * model.
 */
#ifndef SWL_TEXT_TOKENIZER_JSON_H
#define SWL_TEXT_TOKENIZER_JSON_H

#include <jansson.h>

#include "base/json_scan.h"

typedef struct swl_tokenizer_json {
    json_t *root;           /* everything but the two below */
    swl_scan vocab, merges; /* model.vocab and model.merges, from `p` to the end of the value; p is NULL: absent */
} swl_tokenizer_json;

/* Borrows text for as long as *j is in use. Close it whatever the result. */
swl_status swl_tokenizer_json_open(swl_tokenizer_json *j, char *text, size_t n_bytes, const char *path, swl_error *err);
void swl_tokenizer_json_close(swl_tokenizer_json *j);

#endif
