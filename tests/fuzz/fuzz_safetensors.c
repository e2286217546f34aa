/*
 * fuzz_safetensors.c: what the header parser accepts is consistent, and the writer writes it back. Every input is tried
 * as a whole file and, so that changes need not keep the length word right, as
 *
 *   0   u16 size of the data section, little-endian
 *   2   the JSON
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "format/safetensors.h"

static int by_offset(const void *a, const void *b)
{
    const swl_st_tensor *x = *(const swl_st_tensor *const *)a, *y = *(const swl_st_tensor *const *)b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* Writes the tensors, in the order of their data, and reads the header back. */
static void round_trip(const swl_st *s, const swl_st_tensor **order, uint64_t n_data)
{
    int32_t i, n = swl_st_count(s);
    swl_st_decl *decls = swl_calloc((size_t)n, sizeof *decls);
    uint8_t *header;
    uint64_t n_bytes;
    swl_st *again;

    for (i = 0; i < n; i++) {
        decls[i] = (swl_st_decl){.name = order[i]->name, .dtype = order[i]->dtype, .n_dims = order[i]->n_dims};
        memcpy(decls[i].shape, order[i]->shape, sizeof decls[i].shape);
    }
    CHECK(!swl_st_header(decls, n, 64, &header, &n_bytes, NULL));
    CHECK(!swl_st_parse(&again, header, n_bytes, n_bytes + n_data, "again", NULL));
    CHECK(swl_st_count(again) == n);
    for (i = 0; i < n; i++) {
        const swl_st_tensor *t = swl_st_find(again, order[i]->name);

        CHECK(t && t->size == order[i]->size && t->dtype == order[i]->dtype);
        CHECK(t->offset - n_bytes == order[i]->offset - order[0]->offset);
    }
    swl_st_close(again);
    swl_free(header);
    swl_free(decls);
}

/* The tensors lie one behind the other up to the end of the file, and each is found by its name. */
static void check_set(const swl_st *s, uint64_t file_size)
{
    int32_t i, n = swl_st_count(s);
    const swl_st_tensor **order = swl_calloc((size_t)n, sizeof *order);
    uint64_t at;

    for (i = 0; i < n; i++) {
        order[i] = swl_st_at(s, i);
        CHECK(swl_st_find(s, order[i]->name) == order[i]);
        CHECK(i == 0 || strcmp(order[i - 1]->name, order[i]->name) < 0);
    }
    if (n)
        qsort(order, (size_t)n, sizeof *order, by_offset);
    at = n ? order[0]->offset : file_size;
    for (i = 0; i < n; at += order[i++]->size)
        CHECK(order[i]->offset == at);
    CHECK(at == file_size);
    round_trip(s, order, n ? file_size - order[0]->offset : 0);
    swl_free(order);
}

static void try_file(const uint8_t *bytes, uint64_t n_bytes, uint64_t file_size)
{
    swl_error err = {0};
    swl_st *s;

    if (swl_st_parse(&s, bytes, n_bytes, file_size, "input", &err)) {
        CHECK(!s && err.code && err.message[0]);
        return;
    }
    check_set(s, file_size);
    swl_st_close(s);
}

static void try_json(const uint8_t *data, size_t size)
{
    uint64_t n_json = size - 2;
    uint16_t n_data;
    uint8_t *bytes = swl_calloc(8 + n_json, 1);

    memcpy(&n_data, data, 2);
    memcpy(bytes, &n_json, 8);
    memcpy(bytes + 8, data + 2, n_json);
    try_file(bytes, 8 + n_json, 8 + n_json + n_data);
    swl_free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_file(data, size, size);
    if (size > 2)
        try_json(data, size);
    return 0;
}
