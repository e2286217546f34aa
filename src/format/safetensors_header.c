/*
 * safetensors_header.c: reads and writes the JSON of a header. It comes from anywhere: nothing is believed before it is
 * checked, and memory stays within a few times the length of the text.
 *
 *   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ..., "__metadata__": {"format": "pt"}}
 *
 * What is accepted: every tensor lies in the data section, its size follows from shape and type, and the tensors cover
 * the section without overlaps or holes.
 */
#include "format/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/mem.h"

#define METADATA_KEY "__metadata__"

swl_status swl_st_header_locate(swl_st_header_ref *h, uint64_t *n_json, const uint8_t word[SWL_ST_LENGTH_BYTES],
                                uint64_t size, swl_error *err)
{
    uint64_t n, n_max = size < SWL_ST_LENGTH_BYTES ? 0 : size - SWL_ST_LENGTH_BYTES;

    memcpy(&n, word, sizeof n);
    if (n_max > SWL_ST_HEADER_BYTES_MAX)
        n_max = SWL_ST_HEADER_BYTES_MAX;
    if (n < 2 || n > n_max)
        return swl_fail_at(err, SWL_E_CORRUPT, h->path, 0,
                           "%s: the header has a length of %" PRIu64 " bytes, expected 2 to %" PRIu64
                           ": this is not a safetensors file, or it is cut short",
                           h->path, n, n_max);
    *n_json = n;
    h->data_begin = SWL_ST_LENGTH_BYTES + n;
    h->data_size = size - h->data_begin;
    return SWL_OK;
}

/* --- one entry --- */

/* An entry as it is being read: what its fields said. */
typedef struct entry {
    swl_st_tensor *t;
    int64_t begin, end; /* data_offsets */
    bool has_dtype, has_shape, has_offsets;
} entry;

static swl_status read_dtype(swl_scan *s, entry *e)
{
    char *type;
    swl_status st = swl_scan_string(s, &type);

    if (st)
        return st;
    e->t->dtype = swl_dtype_parse(type);
    if (e->t->dtype == SWL_DT_NONE)
        return swl_fail_at(s->err, SWL_E_UNSUPPORTED, s->path, s->offset + (type - s->begin),
                           "%s: tensor \"%.200s\" has dtype \"%.40s\", which is not supported", s->path, e->t->name,
                           type);
    return SWL_OK;
}

static swl_status read_shape(swl_scan *s, entry *e)
{
    swl_status st = swl_scan_begin(s, '[');
    uint64_t n;
    bool more;

    for (n = 0; !st && !(st = swl_scan_element(s, n, &more)) && more; n++) {
        if (n == SWL_ST_DIMS_MAX)
            return swl_fail_at(s->err, SWL_E_UNSUPPORTED, s->path, s->offset + (s->p - s->begin),
                               "%s: tensor \"%.200s\" has more than %d dimensions", s->path, e->t->name,
                               SWL_ST_DIMS_MAX);
        st = swl_scan_uint(s, &e->t->shape[n]);
    }
    e->t->n_dims = (int32_t)n;
    return st;
}

static swl_status read_offsets(swl_scan *s, entry *e)
{
    int64_t *const to[] = {&e->begin, &e->end};
    swl_status st = swl_scan_begin(s, '[');
    uint64_t n;
    bool more;

    for (n = 0; !st && !(st = swl_scan_element(s, n, &more)) && more; n++) {
        if (n == 2)
            return swl_scan_expected(s, "two offsets");
        st = swl_scan_uint(s, to[n]);
    }
    return st || n == 2 ? st : swl_scan_expected(s, "two offsets");
}

static swl_status read_field(swl_scan *s, entry *e, const char *key)
{
    static const struct {
        const char *key;
        swl_status (*read)(swl_scan *s, entry *e);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    bool *const has[] = {&e->has_dtype, &e->has_shape, &e->has_offsets};
    size_t i;

    for (i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(key, fields[i].key)) {
            if (*has[i])
                return swl_scan_expected(s, "this field once");
            *has[i] = true;
            return fields[i].read(s, e);
        }
    return swl_scan_skip(s);
}

static swl_status missing(const swl_scan *s, const entry *e)
{
    return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, s->offset + (s->p - s->begin),
                       "%s: tensor \"%.200s\": \"%s\" is missing", s->path, e->t->name,
                       !e->has_dtype   ? "dtype"
                       : !e->has_shape ? "shape"
                                       : "data_offsets");
}

static swl_status shape_bytes(uint64_t *n_bytes, const swl_scan *s, const swl_st_tensor *t)
{
    int32_t i;

    *n_bytes = (uint64_t)swl_dtype_size(t->dtype);
    for (i = 0; i < t->n_dims; i++) {
        if (t->shape[i] && *n_bytes > INT64_MAX / (uint64_t)t->shape[i])
            return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, -1,
                               "%s: tensor \"%.200s\": the product of its shape overflows at dimension %" PRId32
                               ", which is %" PRId64,
                               s->path, t->name, i, t->shape[i]);
        *n_bytes *= (uint64_t)t->shape[i];
    }
    return SWL_OK;
}

/* Do type, shape and offsets agree, and is there so much data? */
static swl_status place_tensor(const swl_scan *s, const entry *e, const swl_st_header_ref *h)
{
    uint64_t n_bytes = 0, begin = (uint64_t)e->begin, end = (uint64_t)e->end;
    swl_status st = shape_bytes(&n_bytes, s, e->t);

    if (st)
        return st;
    if (begin > end || end > h->data_size)
        return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, -1,
                           "%s: tensor \"%.200s\" has data_offsets [%" PRIu64 ", %" PRIu64
                           "], expected begin <= end <= %" PRIu64 ", the size of the data section",
                           s->path, e->t->name, begin, end, h->data_size);
    if (end - begin != n_bytes)
        return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, (int64_t)(h->data_begin + begin),
                           "%s: tensor \"%.200s\" has %" PRIu64 " bytes of data, expected %" PRIu64
                           " from its shape and dtype %s",
                           s->path, e->t->name, end - begin, n_bytes, swl_dtype_name(e->t->dtype));
    e->t->offset = h->data_begin + begin;
    e->t->size = n_bytes;
    return SWL_OK;
}

static swl_status read_entry(swl_scan *s, swl_st_tensor *t, const swl_st_header_ref *h)
{
    entry e = {.t = t};
    swl_status st = swl_scan_begin(s, '{');
    uint64_t n;
    char *key;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        s->in[1] = key;
        st = read_field(s, &e, key);
        s->in[1] = NULL;
    }
    if (st)
        return st;
    if (!e.has_dtype || !e.has_shape || !e.has_offsets)
        return missing(s, &e);
    return place_tensor(s, &e, h);
}

/* --- the whole header --- */

static swl_status read_metadata(swl_scan *s)
{
    swl_status st = swl_scan_begin(s, '{');
    uint64_t n;
    char *key, *value;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++)
        st = swl_scan_string(s, &value);
    return st;
}

/* Room for one more, zeroed; NULL when out of memory. An entry takes some fifty bytes of text at the least, so the list
 * grows no faster than a few times what was read. */
static swl_st_tensor *new_tensor(swl_st_list *list)
{
    int32_t room = list->room ? list->room + list->room / 2 : 16;
    swl_st_tensor *t;

    if (list->n == list->room) {
        t = list->room > INT32_MAX / 2 ? NULL : swl_realloc(list->tensors, (size_t)room, sizeof *t);
        if (!t)
            return NULL;
        list->tensors = t;
        list->room = room;
    }
    t = &list->tensors[list->n++];
    memset(t, 0, sizeof *t);
    return t;
}

static swl_status read_member(swl_scan *s, swl_st_list *list, const char *name, const swl_st_header_ref *h)
{
    swl_st_tensor *t;

    if (!strcmp(name, METADATA_KEY))
        return read_metadata(s);
    t = new_tensor(list);
    if (!t)
        return swl_fail_at(s->err, SWL_E_NOMEM, s->path, -1, "out of memory for the header of %s", s->path);
    t->name = name;
    t->file = h->file;
    return read_entry(s, t, h);
}

static int by_offset(const void *a, const void *b)
{
    const swl_st_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size; /* empty tensors stand before the one that begins there */
}

static swl_status check_coverage(swl_st_tensor *t, int32_t n, const swl_st_header_ref *h, swl_error *err)
{
    uint64_t at = h->data_begin;
    int32_t i;

    if (n)
        qsort(t, (size_t)n, sizeof *t, by_offset);
    for (i = 0; i < n; at += t[i++].size)
        if (t[i].offset != at)
            return swl_fail_at(err, SWL_E_CORRUPT, h->path, (int64_t)t[i].offset,
                               "%s: tensor \"%.200s\" begins at byte %" PRIu64 " of the data section, expected %" PRIu64
                               ": %s",
                               h->path, t[i].name, t[i].offset - h->data_begin, at - h->data_begin,
                               t[i].offset < at ? "tensors overlap" : "there is a hole");
    if (at - h->data_begin != h->data_size)
        return swl_fail_at(err, SWL_E_CORRUPT, h->path, (int64_t)at,
                           "%s: the tensors end at byte %" PRIu64 " of the data section, expected %" PRIu64, h->path,
                           at - h->data_begin, h->data_size);
    return SWL_OK;
}

static swl_status read_header(swl_st_list *list, const swl_st_header_ref *h, swl_scan *s)
{
    swl_status st;
    uint64_t n;
    char *name;

    if (*s->p != '{') /* no white space in front */
        return swl_scan_expected(s, "'{': this is not a safetensors file");
    st = swl_scan_begin(s, '{');
    for (n = 0; !st && !(st = swl_scan_member(s, n, &name)) && name; n++) {
        s->in[0] = name;
        st = read_member(s, list, name, h);
        s->in[0] = NULL;
    }
    return st ? st : swl_scan_finish(s);
}

swl_status swl_st_header_parse(swl_st_list *list, const swl_st_header_ref *h, char *json, uint64_t n_json,
                               swl_error *err)
{
    swl_scan s = {
        .begin = json, .p = json, .end = json + n_json, .path = h->path, .offset = SWL_ST_LENGTH_BYTES, .err = err};
    int32_t n = list->n;
    swl_status st = read_header(list, h, &s);

    if (!st)
        st = check_coverage(list->n > n ? list->tensors + n : NULL, list->n - n, h, err);
    if (st)
        list->n = n;
    return st;
}

/* --- writing --- */

static swl_status decl_bytes(uint64_t *n_bytes, const swl_st_decl *d, swl_error *err)
{
    int32_t i;

    if (!swl_dtype_size(d->dtype) || d->n_dims < 0 || d->n_dims > SWL_ST_DIMS_MAX || !strcmp(d->name, METADATA_KEY))
        return swl_fail(err, SWL_E_ARG, "tensor \"%.200s\" with type %s and %" PRId32 " dimensions cannot be written",
                        d->name, swl_dtype_name(d->dtype), d->n_dims);
    *n_bytes = (uint64_t)swl_dtype_size(d->dtype);
    for (i = 0; i < d->n_dims; i++) {
        if (d->shape[i] < 0 || (d->shape[i] && *n_bytes > INT64_MAX / (uint64_t)d->shape[i]))
            return swl_fail(err, SWL_E_ARG, "tensor \"%.200s\": dimension %" PRId32 " of %" PRId64 " cannot be written",
                            d->name, i, d->shape[i]);
        *n_bytes *= (uint64_t)d->shape[i];
    }
    return SWL_OK;
}

/* Adds one entry at data offset *at and moves it on. */
static swl_status declare(json_t *root, const swl_st_decl *d, uint64_t *at, swl_error *err)
{
    uint64_t n_bytes = 0;
    swl_status st = decl_bytes(&n_bytes, d, err);
    json_t *shape, *fields;
    int32_t i;

    if (st)
        return st;
    if (n_bytes > INT64_MAX - *at)
        return swl_fail(err, SWL_E_ARG, "tensor \"%.200s\" ends behind the largest offset", d->name);
    if (json_object_get(root, d->name))
        return swl_fail(err, SWL_E_ARG, "tensor \"%.200s\" is declared twice", d->name);
    shape = json_array();
    for (i = 0; i < d->n_dims; i++)
        json_array_append_new(shape, json_integer(d->shape[i]));
    fields = json_pack("{s:s, s:o, s:[I, I]}", "dtype", swl_dtype_name(d->dtype), "shape", shape, "data_offsets",
                       (json_int_t)*at, (json_int_t)(*at + n_bytes));
    *at += n_bytes;
    if (!fields || json_array_size(shape) != (size_t)d->n_dims || json_object_set_new(root, d->name, fields))
        return swl_fail(err, SWL_E_ARG,
                        "tensor \"%.200s\" cannot be written: its name is not UTF-8, or memory is short", d->name);
    return SWL_OK;
}

static swl_status frame(uint8_t **header, uint64_t *n_bytes, const char *text, uint64_t align, swl_error *err)
{
    uint64_t n = strlen(text), total = (SWL_ST_LENGTH_BYTES + n + align - 1) / align * align,
             n_json = total - SWL_ST_LENGTH_BYTES;

    if (n_json > SWL_ST_HEADER_BYTES_MAX)
        return swl_fail(err, SWL_E_ARG, "a header of %" PRIu64 " bytes cannot be written, at most %" PRIu64, n_json,
                        SWL_ST_HEADER_BYTES_MAX);
    *header = swl_calloc(total, 1);
    if (!*header)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a header of %" PRIu64 " bytes", total);
    memcpy(*header, &n_json, SWL_ST_LENGTH_BYTES);
    memcpy(*header + SWL_ST_LENGTH_BYTES, text, n);
    memset(*header + SWL_ST_LENGTH_BYTES + n, ' ', n_json - n);
    *n_bytes = total;
    return SWL_OK;
}

swl_status swl_st_header(const swl_st_decl *decls, int32_t n, uint64_t align, uint8_t **header, uint64_t *n_bytes,
                         swl_error *err)
{
    json_t *root = json_object();
    swl_status st = root ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for a header");
    char *text = NULL;
    uint64_t at = 0;
    int32_t i;

    *header = NULL;
    if (!st && (!align || align > SWL_ST_HEADER_BYTES_MAX))
        st = swl_fail(err, SWL_E_ARG, "an alignment of %" PRIu64 " bytes is not possible", align);
    for (i = 0; i < n && !st; i++)
        st = declare(root, &decls[i], &at, err);
    if (!st && !(text = json_dumps(root, JSON_COMPACT)))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for a header");
    if (!st)
        st = frame(header, n_bytes, text, align, err);
    free(text); /* jansson's own, from malloc */
    json_decref(root);
    return st;
}
