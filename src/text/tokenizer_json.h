/* tokenizer_json.h: tokenizer.json as its two long tables, left as text, and a small tree of all the rest. */
#ifndef SWL_TEXT_TOKENIZER_JSON_H
#define SWL_TEXT_TOKENIZER_JSON_H

#include <jansson.h>

#include "text/json_reader.h"

typedef struct swl_tokenizer_json {
    json_t *root;                  /* everything but the two below */
    swl_json_reader vocab, merges; /* model.vocab and model.merges; each ends where its value ends, empty: absent */
} swl_tokenizer_json;

/* Borrows text for as long as *j is in use. Close it whatever the result. */
swl_status swl_tokenizer_json_open(swl_tokenizer_json *j, char *text, size_t n_bytes, const char *path, swl_error *err);
void swl_tokenizer_json_close(swl_tokenizer_json *j);

#endif
