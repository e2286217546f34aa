/*
 * json.h: reading configuration through jansson with errors that name file and field. Values
 * are borrowed from the parsed tree.
 */
#ifndef SWL_BASE_JSON_H
#define SWL_BASE_JSON_H

#include <jansson.h>

#include "base/status.h"

/* Parses a file of at most n_max bytes (duplicate keys refused, depth limited by jansson). *root: json_decref. */
swl_status swl_json_load(json_t **root, const char *path, uint64_t n_max, swl_error *err);

/* The same from text in memory (need not be NUL-terminated); `path` is for messages. */
swl_status swl_json_parse(json_t **root, const char *text, size_t n, const char *path, swl_error *err);

/* Field readers. `obj` must be an object. When the key is absent or null: they fail if it is required, else
 * *out keeps the value that the caller put there. Wrong type or out of range: SWL_E_CORRUPT naming file and field. */
typedef enum swl_need { SWL_OPTIONAL, SWL_REQUIRED } swl_need;

swl_status swl_json_i32(const json_t *obj, const char *key, swl_need need, int32_t min, int32_t max, int32_t *out,
                        const char *path, swl_error *err);
swl_status swl_json_u64(const json_t *obj, const char *key, swl_need need, uint64_t max, uint64_t *out,
                        const char *path, swl_error *err);
swl_status swl_json_f64(const json_t *obj, const char *key, swl_need need, double *out, const char *path,
                        swl_error *err);
swl_status swl_json_bool(const json_t *obj, const char *key, swl_need need, bool *out, const char *path,
                         swl_error *err);
/* *out borrows from obj. */
swl_status swl_json_str(const json_t *obj, const char *key, swl_need need, const char **out, const char *path,
                        swl_error *err);

#endif
