/* safetensors_header.h: the JSON at the head of a safetensors file, as tensors that were checked against the file. */
#ifndef SWL_FORMAT_SAFETENSORS_HEADER_H
#define SWL_FORMAT_SAFETENSORS_HEADER_H

#include "format/safetensors.h"

#define SWL_ST_LENGTH_BYTES     8                   /* of the word in front of the JSON */
#define SWL_ST_HEADER_BYTES_MAX UINT64_C(100000000) /* of the JSON: the limit of the reference implementation */

typedef struct swl_st_list {
    swl_st_tensor *tensors; /* free with swl_free */
    int32_t n, room;
} swl_st_list;

typedef struct swl_st_header_ref {
    const char *path;    /* for messages */
    int32_t file;        /* what its tensors get */
    uint64_t data_begin; /* offset in the file */
    uint64_t data_size;
} swl_st_header_ref;

/* Where the data of a file of `size` bytes that begins with `word` lie; *n_json receives the length of the JSON. */
swl_status swl_st_header_locate(swl_st_header_ref *h, uint64_t *n_json, const uint8_t word[SWL_ST_LENGTH_BYTES],
                                uint64_t size, swl_error *err);

/* Appends the tensors of a header, in the order of their data. Their names point into `json`, which is changed. A name
 * may occur twice: the set that is made of the headers has to look for that anyway. On failure the list is as before.
 */
swl_status swl_st_header_parse(swl_st_list *list, const swl_st_header_ref *h, char *json, uint64_t n_json,
                               swl_error *err);

#endif
