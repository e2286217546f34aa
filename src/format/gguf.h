/*
 * gguf.h: a GGUF file, or the parts of a split one, as metadata and a set of named tensors. Reads headers only.
 * Everything in a header is checked before it is believed; faults name the file and the byte.
 */
#ifndef SWL_FORMAT_GGUF_H
#define SWL_FORMAT_GGUF_H

#include <swiftlet/swiftlet.h>

#define SWL_GGUF_DIMS_MAX 4

/* As numbered in the file. */
typedef enum swl_gguf_kind {
    SWL_GGUF_U8, SWL_GGUF_I8, SWL_GGUF_U16, SWL_GGUF_I16, SWL_GGUF_U32, SWL_GGUF_I32, SWL_GGUF_F32, SWL_GGUF_BOOL,
    SWL_GGUF_STRING, SWL_GGUF_ARRAY, SWL_GGUF_U64, SWL_GGUF_I64, SWL_GGUF_F64, SWL_GGUF_KIND_COUNT
} swl_gguf_kind;

/* A value of the metadata; borrowed from the set. An array of arrays is not among them (refused). */
typedef struct swl_gguf_value {
    const char *key;
    swl_gguf_kind kind;  /* of the elements */
    bool is_array;
    uint64_t n;          /* elements; 1 when it is no array */
    const uint8_t *data; /* as in the file; a string is its u64 length and its bytes */
    uint64_t n_bytes;
} swl_gguf_value;

/* How many elements and bytes a block of a tensor type has. `name` as llama.cpp calls it. */
typedef struct swl_gguf_type {
    int32_t id;
    const char *name;
    int32_t block, bytes;
} swl_gguf_type;

typedef struct swl_gguf_tensor {
    const char *name;
    const swl_gguf_type *type; /* NULL: `type_id` is not known, and neither is the size */
    uint32_t type_id;
    int32_t n_dims;
    int64_t dims[SWL_GGUF_DIMS_MAX]; /* dims[0] is the contiguous one; those beyond n_dims are 1 */
    int32_t file;
    uint64_t offset, size; /* bytes, in the file */
} swl_gguf_tensor;

typedef struct swl_gguf swl_gguf;

/* `path` is a whole file or any part of a split one (NAME-00001-of-00003.gguf), whose other parts lie beside it. */
swl_status swl_gguf_open(swl_gguf **out, const char *path, swl_error *err);
void swl_gguf_close(swl_gguf *g);

/* One file's header from memory: the first n_bytes of a file of file_size bytes. Nothing can be read through the set.
 * A split file is taken by itself. *more (may be NULL): it failed because the header goes on behind n_bytes. */
swl_status swl_gguf_parse(swl_gguf **out, const void *bytes, uint64_t n_bytes, uint64_t file_size, const char *path,
                          bool *more, swl_error *err);

/* "-00002-of-00003.gguf" at the end of a path: its place, with no 2 and count 3; NULL: it is no part of several. */
const char *swl_gguf_part_suffix(const char *path, int *no, int *count);

int32_t swl_gguf_count(const swl_gguf *g);
const swl_gguf_tensor *swl_gguf_at(const swl_gguf *g, int32_t i);          /* sorted by name */
const swl_gguf_tensor *swl_gguf_find(const swl_gguf *g, const char *name); /* NULL when absent */
int32_t swl_gguf_n_files(const swl_gguf *g);
const char *swl_gguf_path(const swl_gguf *g, int32_t file);

/* n bytes from byte `begin` of the tensor. */
swl_status swl_gguf_read(const swl_gguf *g, const swl_gguf_tensor *t, uint64_t begin, void *dst, uint64_t n,
                         swl_error *err);

/* From here on swl_gguf_read takes bytes [begin, begin + n) of the file from `data`, which stays the caller's; n 0 ends that. */
void swl_gguf_window(swl_gguf *g, int32_t file, uint64_t begin, const void *data, uint64_t n);

/* ---- metadata ----
 * Of the first part. Readers: an absent key leaves *out as it was, unless it is required; another type or a value out
 * of range is SWL_E_CORRUPT naming file, key and byte. */
typedef enum swl_gguf_need { SWL_GGUF_OPTIONAL, SWL_GGUF_REQUIRED } swl_gguf_need;

int32_t swl_gguf_n_values(const swl_gguf *g);
const swl_gguf_value *swl_gguf_value_at(const swl_gguf *g, int32_t i);        /* sorted by key */
const swl_gguf_value *swl_gguf_value_find(const swl_gguf *g, const char *key); /* NULL when absent */
swl_status swl_gguf_missing(const swl_gguf *g, const char *key, swl_error *err);
swl_status swl_gguf_wrong(const swl_gguf *g, const swl_gguf_value *v, const char *want, swl_error *err);

/* Any integer kind. */
swl_status swl_gguf_int(const swl_gguf *g, const char *key, swl_gguf_need need, int64_t min, int64_t max, int64_t *out,
                        swl_error *err);
swl_status swl_gguf_float(const swl_gguf *g, const char *key, swl_gguf_need need, double *out, swl_error *err);
swl_status swl_gguf_bool(const swl_gguf *g, const char *key, swl_gguf_need need, bool *out, swl_error *err);
/* A new string; free with swl_free. Contains no NUL (refused). */
swl_status swl_gguf_string(const swl_gguf *g, const char *key, swl_gguf_need need, char **out, swl_error *err);

/* Element i of an array, or the value itself at 0; the kind was looked at before. */
int64_t swl_gguf_int_at(const swl_gguf_value *v, uint64_t i);
/* Walks the strings of an array: *p starts as v->data and is moved on. */
void swl_gguf_next_string(const uint8_t **p, const char **text, uint64_t *n);

#endif
