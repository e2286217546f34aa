/* safetensors_index.h: model.safetensors.index.json, which says in what shard each tensor lies. */
#ifndef SWL_FORMAT_SAFETENSORS_INDEX_H
#define SWL_FORMAT_SAFETENSORS_INDEX_H

#include <swiftlet/swiftlet.h>

#define SWL_ST_INDEX_NAME "model.safetensors.index.json"

typedef struct swl_st_place {
    const char *name, *shard; /* a plain file name */
} swl_st_place;

typedef struct swl_st_index {
    swl_st_place *places; /* sorted by name, each name once */
    size_t n;
    char *text; /* what the strings point into */
} swl_st_index;

/* On failure too, swl_st_index_deinit is due. */
swl_status swl_st_index_load(swl_st_index *x, const char *path, swl_error *err);
/* The same from text in memory (tests, fuzzing), which x takes. */
swl_status swl_st_index_parse(swl_st_index *x, char *text, size_t n_bytes, const char *path, swl_error *err);
void swl_st_index_deinit(swl_st_index *x);

/* The shard of a tensor; NULL when the index does not name it. */
const char *swl_st_index_find(const swl_st_index *x, const char *name);

#endif
