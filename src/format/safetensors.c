/*
 * safetensors.c: reads the headers of a checkpoint into one sorted table of tensors, and writes headers.
 *
 *   0        u64 n, little-endian
 *   8        n bytes of JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}, padded with
 *            spaces; "__metadata__" holds strings only and is skipped
 *   8 + n    data; offsets count from here
 *
 * Invariants once a set is open: every tensor lies inside its file, its size is the product of its shape and its type's
 * size, the tensors of a file neither overlap nor leave holes, and no name occurs twice. Memory taken while a header is
 * read is bounded by a multiple of the bytes that the file really has. What the tensors mean is left to others.
 */
#include "format/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"

#define LENGTH_BYTES     8
#define HEADER_BYTES_MAX UINT64_C(100000000) /* the limit of the reference implementation */
#define INDEX_BYTES_MAX  UINT64_C(100000000)
#define METADATA_KEY     "__metadata__"
#define INDEX_NAME       "model.safetensors.index.json"

typedef struct st_file {
    char *path;
    char *names; /* of all its tensors, one behind the other */
    int fd;      /* -1 when the header came from memory */
    uint64_t size;
} st_file;

struct swl_st {
    int32_t n_tensors, n_files;
    swl_st_tensor *tensors; /* sorted by name */
    st_file *files;
};

/* --- one header --- */

/* Where a header's parser is, for messages. */
typedef struct header_at {
    const char *path;
    uint64_t data_begin, data_size;
    int32_t file;
    swl_error *err;
} header_at;

static swl_status bad_field(const header_at *h, const char *name, const char *field, const char *want)
{
    return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, -1, "%s: tensor \"%.200s\": \"%s\" is missing or not %s",
                       h->path, name, field, want);
}

static swl_status parse_dtype(swl_st_tensor *t, const json_t *entry, const char *name, const header_at *h)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));

    if (!type)
        return bad_field(h, name, "dtype", "a string");
    t->dtype = swl_dtype_parse(type);
    if (t->dtype == SWL_DT_NONE)
        return swl_fail_at(h->err, SWL_E_UNSUPPORTED, h->path, -1,
                           "%s: tensor \"%.200s\" has dtype \"%.40s\", which is "
                           "not supported",
                           h->path, name, type);
    return SWL_OK;
}

/* Fills the shape and *n_bytes, the size that it asks for. */
static swl_status parse_shape(swl_st_tensor *t, uint64_t *n_bytes, const json_t *entry, const char *name,
                              const header_at *h)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t i, n = json_array_size(shape);

    if (!json_is_array(shape))
        return bad_field(h, name, "shape", "an array");
    if (n > SWL_ST_DIMS_MAX)
        return swl_fail_at(h->err, SWL_E_UNSUPPORTED, h->path, -1,
                           "%s: tensor \"%.200s\" has %zu dimensions, expected "
                           "at most %d",
                           h->path, name, n, SWL_ST_DIMS_MAX);
    t->n_dims = (int32_t)n;
    *n_bytes = (uint64_t)swl_dtype_size(t->dtype);
    for (i = 0; i < n; i++) {
        const json_t *v = json_array_get(shape, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return bad_field(h, name, "shape", "an array of non-negative integers");
        t->shape[i] = json_integer_value(v);
        if (t->shape[i] && *n_bytes > INT64_MAX / (uint64_t)t->shape[i])
            return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, -1,
                               "%s: tensor \"%.200s\": the product of its shape "
                               "overflows at dimension %zu of %" PRId64,
                               h->path, name, i, t->shape[i]);
        *n_bytes *= (uint64_t)t->shape[i];
    }
    return SWL_OK;
}

static swl_status parse_offsets(swl_st_tensor *t, uint64_t n_bytes, const json_t *entry, const char *name,
                                const header_at *h)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    uint64_t begin, end;

    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e) || json_integer_value(b) < 0 ||
        json_integer_value(e) < 0)
        return bad_field(h, name, "data_offsets", "an array of two non-negative integers");
    begin = (uint64_t)json_integer_value(b);
    end = (uint64_t)json_integer_value(e);
    if (begin > end || end > h->data_size)
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, -1,
                           "%s: tensor \"%.200s\" has data_offsets [%" PRIu64 ", %" PRIu64
                           "], expected begin <= end <= %" PRIu64 ", the size of the data section",
                           h->path, name, begin, end, h->data_size);
    if (end - begin != n_bytes)
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, (int64_t)(h->data_begin + begin),
                           "%s: tensor \"%.200s\" "
                           "has %" PRIu64 " bytes of data, expected %" PRIu64 " from its shape and dtype %s",
                           h->path, name, end - begin, n_bytes, swl_dtype_name(t->dtype));
    t->offset = h->data_begin + begin;
    t->size = n_bytes;
    return SWL_OK;
}

static swl_status parse_entry(swl_st_tensor *t, const json_t *entry, const char *name, const header_at *h)
{
    uint64_t n_bytes = 0;
    swl_status st;

    if (!json_is_object(entry))
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, -1, "%s: the entry of tensor \"%.200s\" is not an object",
                           h->path, name);
    t->name = name;
    t->file = h->file;
    st = parse_dtype(t, entry, name, h);
    if (!st)
        st = parse_shape(t, &n_bytes, entry, name, h);
    if (!st)
        st = parse_offsets(t, n_bytes, entry, name, h);
    return st;
}

static swl_status check_metadata(const json_t *metadata, const header_at *h)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, -1, "%s: \"" METADATA_KEY "\" is not an object", h->path);
    json_object_foreach ((json_t *)metadata, key, value)
        if (!json_is_string(value))
            return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, -1,
                               "%s: \"" METADATA_KEY "\": the value of \"%.200s\" is not a string", h->path, key);
    return SWL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const swl_st_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size; /* empty tensors stand before the one that begins there */
}

/* Sorts by offset. The tensors must cover the data section exactly. */
static swl_status check_coverage(swl_st_tensor *t, int32_t n, const header_at *h)
{
    uint64_t at = h->data_begin;
    int32_t i;

    if (n)
        qsort(t, (size_t)n, sizeof *t, by_offset);
    for (i = 0; i < n; at += t[i++].size)
        if (t[i].offset != at)
            return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, (int64_t)t[i].offset,
                               "%s: tensor \"%.200s\" begins at "
                               "byte %" PRIu64 " of the data section, expected %" PRIu64 ": %s",
                               h->path, t[i].name, t[i].offset - h->data_begin, at - h->data_begin,
                               t[i].offset < at ? "tensors overlap" : "there is a hole");
    if (at - h->data_begin != h->data_size)
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, (int64_t)at,
                           "%s: the tensors end at byte %" PRIu64 " of the data section, expected %" PRIu64, h->path,
                           at - h->data_begin, h->data_size);
    return SWL_OK;
}

static swl_status no_memory(const header_at *h)
{
    return swl_fail_at(h->err, SWL_E_NOMEM, h->path, -1, "out of memory for the header of %s", h->path);
}

/* Copies the names out of the JSON tree, which is about to go. */
static swl_status keep_names(swl_st *s, swl_st_tensor *t, int32_t n, const header_at *h)
{
    size_t n_bytes = 0, len;
    int32_t i;
    char *p;

    for (i = 0; i < n; i++)
        n_bytes += strlen(t[i].name) + 1;
    p = s->files[h->file].names = swl_calloc(n_bytes, 1);
    if (!p)
        return no_memory(h);
    for (i = 0; i < n; i++, p += len) {
        len = strlen(t[i].name) + 1;
        memcpy(p, t[i].name, len);
        t[i].name = p;
    }
    return SWL_OK;
}

/* Appends the header's tensors to the set. */
static swl_status add_entries(swl_st *s, const json_t *root, const header_at *h)
{
    int32_t n = 0;
    swl_st_tensor *t;
    swl_status st = SWL_OK;
    const char *name;
    json_t *entry;

    if (json_object_size(root) > (size_t)(INT32_MAX - s->n_tensors))
        return no_memory(h);
    t = swl_realloc(s->tensors, (size_t)s->n_tensors + json_object_size(root), sizeof *t);
    if (!t)
        return no_memory(h);
    s->tensors = t;
    t += s->n_tensors;
    memset(t, 0, json_object_size(root) * sizeof *t);
    json_object_foreach ((json_t *)root, name, entry) {
        st = strcmp(name, METADATA_KEY) ? parse_entry(&t[n++], entry, name, h) : check_metadata(entry, h);
        if (st)
            return st;
    }
    st = check_coverage(t, n, h);
    if (!st)
        st = keep_names(s, t, n, h);
    if (!st)
        s->n_tensors += n;
    return st;
}

static swl_status add_json(swl_st *s, const char *json, uint64_t n_bytes, const header_at *h)
{
    json_error_t je;
    json_t *root;
    swl_status st;

    if (json[0] != '{')
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, LENGTH_BYTES,
                           "%s: the header begins with byte 0x%02x, "
                           "expected '{': this is not a safetensors file",
                           h->path, (unsigned)(uint8_t)json[0]);
    root = json_loadb(json, n_bytes, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, LENGTH_BYTES + (int64_t)je.position,
                           "%s: the header is not "
                           "valid JSON at its byte %d: %s",
                           h->path, je.position, je.text);
    st = add_entries(s, root, h);
    json_decref(root);
    return st;
}

/* From the length word and the size of the file: the length of the JSON, and where the data lie. */
static swl_status header_length(uint64_t *n_json, header_at *h, const uint8_t *word, uint64_t file_size)
{
    uint64_t n = 0;

    memcpy(&n, word, sizeof n);
    if (n < 2 || n > HEADER_BYTES_MAX || n > file_size - LENGTH_BYTES)
        return swl_fail_at(h->err, SWL_E_CORRUPT, h->path, 0,
                           "%s: the header has a length of %" PRIu64 " bytes, "
                           "expected 2 to %" PRIu64 ": this is not a safetensors file, or it is cut short",
                           h->path, n,
                           file_size - LENGTH_BYTES < HEADER_BYTES_MAX ? file_size - LENGTH_BYTES : HEADER_BYTES_MAX);
    *n_json = n;
    h->data_begin = LENGTH_BYTES + n;
    h->data_size = file_size - h->data_begin;
    return SWL_OK;
}

static swl_status too_short(const char *path, uint64_t size, swl_error *err)
{
    return swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s has %" PRIu64 " bytes, too few for a safetensors file", path,
                       size);
}

/* Reads the header of file `file` of the set through its descriptor. */
static swl_status add_file_header(swl_st *s, int32_t file, swl_error *err)
{
    const st_file *f = &s->files[file];
    header_at h = {.path = f->path, .file = file, .err = err};
    uint8_t word[LENGTH_BYTES];
    uint64_t n = 0;
    swl_status st;
    char *json;

    if (f->size < LENGTH_BYTES)
        return too_short(f->path, f->size, err);
    st = swl_file_read_at(f->fd, f->path, 0, word, sizeof word, err);
    if (!st)
        st = header_length(&n, &h, word, f->size);
    if (st)
        return st;
    json = swl_calloc(n, 1);
    if (!json)
        return no_memory(&h);
    st = swl_file_read_at(f->fd, f->path, LENGTH_BYTES, json, n, err);
    if (!st)
        st = add_json(s, json, n, &h);
    swl_free(json);
    return st;
}

/* --- the set --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const swl_st_tensor *)a)->name, ((const swl_st_tensor *)b)->name);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* A tensor that the index takes from another shard is not part of the set. */
static void drop_unlisted_copies(swl_st *s, const json_t *weight_map)
{
    int32_t i, n = 0;

    for (i = 0; i < s->n_tensors; i++) {
        const char *shard = json_string_value(json_object_get(weight_map, s->tensors[i].name));

        if (!shard || !strcmp(shard, base_name(s->files[s->tensors[i].file].path)))
            s->tensors[n++] = s->tensors[i];
    }
    s->n_tensors = n;
}

static swl_status sort_by_name(swl_st *s, swl_error *err)
{
    const swl_st_tensor *t = s->tensors;
    int32_t i;

    if (s->n_tensors)
        qsort(s->tensors, (size_t)s->n_tensors, sizeof *t, by_name);
    for (i = 1; i < s->n_tensors; i++)
        if (!strcmp(t[i - 1].name, t[i].name))
            return swl_fail_at(err, SWL_E_CORRUPT, s->files[t[i].file].path, (int64_t)t[i].offset,
                               "tensor \"%.200s\" is both in %s and in %s", t[i].name, s->files[t[i - 1].file].path,
                               s->files[t[i].file].path);
    return SWL_OK;
}

/* Takes `path`, also when it fails. */
static swl_status add_file(swl_st *s, char *path, swl_error *err)
{
    st_file *f = path ? swl_realloc(s->files, (size_t)s->n_files + 1, sizeof *f) : NULL;
    swl_status st;

    if (!f) {
        swl_free(path);
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of shards");
    }
    s->files = f;
    f += s->n_files++;
    *f = (st_file){.path = path, .fd = -1};
    st = swl_file_open(&f->fd, &f->size, path, err);
    return st ? st : add_file_header(s, s->n_files - 1, err);
}

/* A sorted list of file names. */
typedef struct name_list {
    char **names;
    size_t n, room;
} name_list;

static void list_free(name_list *l)
{
    while (l->n)
        swl_free(l->names[--l->n]);
    swl_free(l->names);
}

static bool list_add(name_list *l, const char *name)
{
    char **p = l->names;

    if (l->n == l->room) {
        p = swl_realloc(p, 2 * l->room + 16, sizeof *p);
        if (!p)
            return false;
        l->names = p;
        l->room = 2 * l->room + 16;
    }
    l->names[l->n] = swl_strdup(name);
    return l->names[l->n] && ++l->n;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static swl_status add_listed(swl_st *s, const char *dir, name_list *l, swl_error *err)
{
    swl_status st = SWL_OK;
    size_t i;

    if (l->n)
        qsort(l->names, l->n, sizeof *l->names, by_string);
    for (i = 0; i < l->n && !st; i++)
        if (!i || strcmp(l->names[i - 1], l->names[i]))
            st = add_file(s, swl_path_join(dir, l->names[i]), err);
    return st;
}

/* A shard's name comes from the index, which may come from anywhere: it must not lead out of the directory. */
static bool is_plain_name(const char *name)
{
    return *name && !strchr(name, '/') && !strchr(name, '\\') && !strstr(name, "..") && strcmp(name, ".");
}

/* One entry per shard, not per tensor: neighbours in the map mostly share it. */
static swl_status list_shards(name_list *l, const json_t *weight_map, const char *path, swl_error *err)
{
    const char *name, *shard;
    json_t *value;

    json_object_foreach ((json_t *)weight_map, name, value) {
        shard = json_string_value(value);
        if (!shard)
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: weight_map: the value of \"%.200s\" is not a string",
                               path, name);
        if (!is_plain_name(shard))
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                               "%s: weight_map: the shard of \"%.200s\" is \"%.200s\", "
                               "expected a plain file name",
                               path, name, shard);
        if ((!l->n || strcmp(l->names[l->n - 1], shard)) && !list_add(l, shard))
            return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of shards");
    }
    return SWL_OK;
}

static swl_status check_index(const swl_st *s, const json_t *weight_map, const char *path, swl_error *err)
{
    const char *name;
    json_t *shard;

    json_object_foreach ((json_t *)weight_map, name, shard)
        if (!swl_st_find(s, name))
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                               "%s: tensor \"%.200s\" should be in shard %.200s, whose "
                               "header does not have it",
                               path, name, json_string_value(shard));
    return SWL_OK;
}

static swl_status open_weight_map(swl_st *s, const json_t *weight_map, const char *dir, const char *path,
                                  swl_error *err)
{
    name_list shards = {0};
    swl_status st;

    if (!json_is_object(weight_map))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"weight_map\" is missing or not an object", path);
    st = list_shards(&shards, weight_map, path, err);
    if (!st)
        st = add_listed(s, dir, &shards, err);
    list_free(&shards);
    if (st)
        return st;
    drop_unlisted_copies(s, weight_map);
    st = sort_by_name(s, err);
    return st ? st : check_index(s, weight_map, path, err);
}

static swl_status open_indexed(swl_st *s, const char *dir, const char *path, swl_error *err)
{
    json_t *root;
    swl_status st = swl_json_load(&root, path, INDEX_BYTES_MAX, err);

    if (st)
        return st;
    st = open_weight_map(s, json_object_get(root, "weight_map"), dir, path, err);
    json_decref(root);
    return st;
}

/* model*.safetensors */
static bool is_model_file(const char *name)
{
    size_t n = strlen(name), tail = strlen(".safetensors");

    return !strncmp(name, "model", 5) && n >= 5 + tail && !strcmp(name + n - tail, ".safetensors");
}

static swl_status list_model_files(name_list *l, const char *dir, swl_error *err)
{
    DIR *d = opendir(dir);
    swl_status st = SWL_OK;
    struct dirent *e;

    if (!d)
        return swl_fail_errno(err, dir, "cannot open directory %s", dir);
    for (errno = 0; !st && (e = readdir(d)); errno = 0)
        if (is_model_file(e->d_name) && !list_add(l, e->d_name))
            st = swl_fail(err, SWL_E_NOMEM, "out of memory for the list of shards");
    if (!st && errno)
        st = swl_fail_errno(err, dir, "cannot read directory %s", dir);
    closedir(d);
    if (!st && !l->n)
        st = swl_fail_at(err, SWL_E_NOT_FOUND, dir, -1, "%s has neither " INDEX_NAME " nor model*.safetensors", dir);
    return st;
}

static swl_status open_globbed(swl_st *s, const char *dir, swl_error *err)
{
    name_list files = {0};
    swl_status st = list_model_files(&files, dir, err);

    if (!st)
        st = add_listed(s, dir, &files, err);
    list_free(&files);
    return st ? st : sort_by_name(s, err);
}

static swl_status open_dir(swl_st *s, const char *dir, swl_error *err)
{
    char *index = swl_path_join(dir, INDEX_NAME);
    swl_status st;

    if (!index)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");
    st = swl_file_exists(index) ? open_indexed(s, dir, index, err) : open_globbed(s, dir, err);
    swl_free(index);
    return st;
}

static swl_status open_file(swl_st *s, const char *path, swl_error *err)
{
    swl_status st = add_file(s, swl_strdup(path), err);

    return st ? st : sort_by_name(s, err);
}

static swl_status give(swl_st **out, swl_st *s, swl_status st)
{
    if (st)
        swl_st_close(s);
    else
        *out = s;
    return st;
}

swl_status swl_st_open(swl_st **out, const char *path, swl_error *err)
{
    swl_st *s = swl_calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    return give(out, s, swl_dir_exists(path) ? open_dir(s, path, err) : open_file(s, path, err));
}

static swl_status parse(swl_st *s, const uint8_t *bytes, uint64_t n_bytes, uint64_t file_size, const char *path,
                        swl_error *err)
{
    header_at h = {.path = path, .err = err};
    uint64_t n = 0;
    swl_status st;

    if (n_bytes < LENGTH_BYTES || file_size < n_bytes)
        return too_short(path, file_size < n_bytes ? file_size : n_bytes, err);
    s->files = swl_calloc(1, sizeof *s->files);
    if (!s->files)
        return no_memory(&h);
    s->n_files = 1;
    s->files[0] = (st_file){.path = swl_strdup(path), .fd = -1, .size = file_size};
    if (!s->files[0].path)
        return no_memory(&h);
    st = header_length(&n, &h, bytes, file_size);
    if (st)
        return st;
    if (n > n_bytes - LENGTH_BYTES)
        return swl_fail_at(err, SWL_E_ARG, path, -1,
                           "%s: %" PRIu64 " bytes given, but the header ends at byte %" PRIu64, path, n_bytes,
                           h.data_begin);
    st = add_json(s, (const char *)bytes + LENGTH_BYTES, n, &h);
    return st ? st : sort_by_name(s, err);
}

swl_status swl_st_parse(swl_st **out, const void *bytes, uint64_t n_bytes, uint64_t file_size, const char *path,
                        swl_error *err)
{
    swl_st *s = swl_calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    return give(out, s, parse(s, bytes, n_bytes, file_size, path, err));
}

void swl_st_close(swl_st *s)
{
    int32_t i;

    if (!s)
        return;
    for (i = 0; i < s->n_files; i++) {
        swl_file_close(s->files[i].fd);
        swl_free(s->files[i].path);
        swl_free(s->files[i].names);
    }
    swl_free(s->files);
    swl_free(s->tensors);
    swl_free(s);
}

int32_t swl_st_count(const swl_st *s)
{
    return s->n_tensors;
}

const swl_st_tensor *swl_st_at(const swl_st *s, int32_t i)
{
    return &s->tensors[i];
}

const swl_st_tensor *swl_st_find(const swl_st *s, const char *name)
{
    swl_st_tensor key = {.name = name};

    return s->n_tensors ? bsearch(&key, s->tensors, (size_t)s->n_tensors, sizeof key, by_name) : NULL;
}

int32_t swl_st_n_files(const swl_st *s)
{
    return s->n_files;
}

const char *swl_st_path(const swl_st *s, int32_t file)
{
    return s->files[file].path;
}

int swl_st_fd(const swl_st *s, int32_t file)
{
    return s->files[file].fd;
}

uint64_t swl_st_file_size(const swl_st *s, int32_t file)
{
    return s->files[file].size;
}

swl_status swl_st_read(const swl_st *s, const swl_st_tensor *t, uint64_t begin, void *dst, uint64_t n, swl_error *err)
{
    const st_file *f = &s->files[t->file];

    if (begin > t->size || n > t->size - begin)
        return swl_fail_at(err, SWL_E_ARG, f->path, (int64_t)t->offset,
                           "%" PRIu64 " bytes from byte %" PRIu64 " of tensor \"%.200s\" asked for, which has %" PRIu64,
                           n, begin, t->name, t->size);
    return swl_file_read_at(f->fd, f->path, t->offset + begin, dst, n, err);
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
    json_t *shape, *entry;
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
    entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", swl_dtype_name(d->dtype), "shape", shape, "data_offsets",
                      (json_int_t)*at, (json_int_t)(*at + n_bytes));
    *at += n_bytes;
    if (!entry || json_array_size(shape) != (size_t)d->n_dims || json_object_set_new(root, d->name, entry))
        return swl_fail(err, SWL_E_ARG,
                        "tensor \"%.200s\" cannot be written: its name is not UTF-8, or memory is short", d->name);
    return SWL_OK;
}

static swl_status frame(uint8_t **header, uint64_t *n_bytes, const char *text, uint64_t align, swl_error *err)
{
    uint64_t n = strlen(text), total = (LENGTH_BYTES + n + align - 1) / align * align, n_json = total - LENGTH_BYTES;

    if (n_json > HEADER_BYTES_MAX)
        return swl_fail(err, SWL_E_ARG, "a header of %" PRIu64 " bytes cannot be written, at most %" PRIu64, n_json,
                        HEADER_BYTES_MAX);
    *header = swl_calloc(total, 1);
    if (!*header)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a header of %" PRIu64 " bytes", total);
    memcpy(*header, &n_json, LENGTH_BYTES);
    memcpy(*header + LENGTH_BYTES, text, n);
    memset(*header + LENGTH_BYTES + n, ' ', n_json - n);
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
    if (!st && (!align || align > HEADER_BYTES_MAX))
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
