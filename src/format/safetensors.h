/*
 * safetensors.h: one safetensors file, or a directory of shards, as a set of named tensors. Reads headers only; data is
 * read on demand by offset. Everything in a header is checked before it is believed.
 */
#ifndef SWL_FORMAT_SAFETENSORS_H
#define SWL_FORMAT_SAFETENSORS_H

#include "format/dtype.h"

#define SWL_ST_DIMS_MAX 8

typedef struct swl_st_tensor {
    const char *name; /* owned by the set */
    swl_dtype dtype;
    int32_t n_dims;
    int64_t shape[SWL_ST_DIMS_MAX];
    int32_t file;    /* index of the shard */
    uint64_t offset; /* absolute, in the file; may be odd */
    uint64_t size;   /* bytes */
} swl_st_tensor;

typedef struct swl_st swl_st;

/* `path` is a .safetensors file, or a directory: with model.safetensors.index.json its shards (every name of the index
 * must be in a header), else all of model*.safetensors. Keeps one descriptor per shard open. */
swl_status swl_st_open(swl_st **out, const char *path, swl_error *err);
void swl_st_close(swl_st *s);

/* One file's header from memory: `bytes` is the beginning of a file of file_size bytes, at least up to the end of the
 * header. The set has one file, named `path`, without a descriptor (-1), so nothing can be read through it. */
swl_status swl_st_parse(swl_st **out, const void *bytes, uint64_t n_bytes, uint64_t file_size, const char *path,
                        swl_error *err);

int32_t swl_st_count(const swl_st *s);
const swl_st_tensor *swl_st_at(const swl_st *s, int32_t i);          /* sorted by name */
const swl_st_tensor *swl_st_find(const swl_st *s, const char *name); /* NULL when absent */

int32_t swl_st_n_files(const swl_st *s);
const char *swl_st_path(const swl_st *s, int32_t file);
int swl_st_fd(const swl_st *s, int32_t file);
uint64_t swl_st_file_size(const swl_st *s, int32_t file); /* bytes, when opened */

/* n bytes from byte `begin` of the tensor. */
swl_status swl_st_read(const swl_st *s, const swl_st_tensor *t, uint64_t begin, void *dst, uint64_t n, swl_error *err);

/*
 * A set of tensors that are in no safetensors file: `read` makes n bytes from byte `begin` of one of them. The set has
 * one file, named `path`, without a descriptor; the n declarations are copied, names must differ.
 */
typedef struct swl_st_decl swl_st_decl;
typedef swl_status (*swl_st_reader)(void *arg, const swl_st_tensor *t, uint64_t begin, void *dst, uint64_t n,
                                    swl_error *err);
swl_status swl_st_virtual(swl_st **out, const swl_st_decl *decls, int32_t n, const char *path, swl_st_reader read,
                          void *arg, swl_error *err);

/* Writer: names and shapes first (header), then the data in the same order with swl_file_write. Produces the header
 * bytes (length word included, padded with spaces so that data starts at a multiple of `align`), tensor i at
 * offsets[i] within the data section; *header: free with swl_free. Offsets must not overlap and must leave no hole. */
struct swl_st_decl {
    const char *name;
    swl_dtype dtype;
    int32_t n_dims;
    int64_t shape[SWL_ST_DIMS_MAX];
};
swl_status swl_st_header(const swl_st_decl *decls, int32_t n, uint64_t align, uint8_t **header, uint64_t *n_bytes,
                         swl_error *err);

#endif
