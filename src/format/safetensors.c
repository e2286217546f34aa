/*
 * safetensors.c: a checkpoint, one file or several, as one sorted table of tensors. safetensors_header.c reads what
 * stands at the head of each file, safetensors_index.c which of them belong together.
 *
 *   0        u64 n, little-endian
 *   8        n bytes of JSON, padded with spaces
 *   8 + n    data; the JSON's offsets count from here
 *
 * Invariants once a set is open: every tensor lies inside its file, the tensors of a file neither overlap nor leave
 * holes, and no name occurs twice. What the tensors mean is left to others.
 */
#include "format/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "format/safetensors_header.h"
#include "format/safetensors_index.h"

typedef struct st_file {
    char *path;
    char *names; /* of all its tensors, one behind the other */
    int fd;      /* -1 when the header came from memory */
    uint64_t size;
} st_file;

struct swl_st {
    swl_st_list list; /* sorted by name */
    int32_t n_files;
    st_file *files;
    swl_st_reader read; /* makes the bytes; NULL: they are in the files */
    void *read_arg;
};

/* --- files --- */

static swl_status no_memory(const char *path, swl_error *err)
{
    return swl_fail_at(err, SWL_E_NOMEM, path, -1, "out of memory for the header of %s", path);
}

/* Copies the names of tensors [first, n) out of the JSON, which is about to go. */
static swl_status keep_names(swl_st *s, int32_t first, st_file *f, swl_error *err)
{
    swl_st_tensor *t = s->list.tensors;
    size_t n_bytes = 0, len;
    int32_t i;
    char *p;

    for (i = first; i < s->list.n; i++)
        n_bytes += strlen(t[i].name) + 1;
    p = f->names = swl_calloc(n_bytes, 1);
    if (!p)
        return no_memory(f->path, err);
    for (i = first; i < s->list.n; i++, p += len) {
        len = strlen(t[i].name) + 1;
        memcpy(p, t[i].name, len);
        t[i].name = p;
    }
    return SWL_OK;
}

static swl_status add_tensors(swl_st *s, const swl_st_header_ref *h, char *json, uint64_t n_json, swl_error *err)
{
    int32_t first = s->list.n;
    swl_status st = swl_st_header_parse(&s->list, h, json, n_json, err);

    if (!st)
        st = keep_names(s, first, &s->files[h->file], err);
    if (st)
        s->list.n = first;
    return st;
}

static swl_status too_short(const char *path, uint64_t size, swl_error *err)
{
    return swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s has %" PRIu64 " bytes, too few for a safetensors file", path,
                       size);
}

/* Reads the header of file `file` of the set through its descriptor. */
static swl_status read_header(swl_st *s, int32_t file, swl_error *err)
{
    const st_file *f = &s->files[file];
    swl_st_header_ref h = {.path = f->path, .file = file};
    uint8_t word[SWL_ST_LENGTH_BYTES];
    uint64_t n = 0;
    swl_status st;
    char *json;

    if (f->size < SWL_ST_LENGTH_BYTES)
        return too_short(f->path, f->size, err);
    st = swl_file_read_at(f->fd, f->path, 0, word, sizeof word, err);
    if (!st)
        st = swl_st_header_locate(&h, &n, word, f->size, err);
    if (st)
        return st;
    json = swl_calloc(n, 1);
    if (!json)
        return no_memory(f->path, err);
    st = swl_file_read_at(f->fd, f->path, SWL_ST_LENGTH_BYTES, json, n, err);
    if (!st)
        st = add_tensors(s, &h, json, n, err);
    swl_free(json);
    return st;
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
    return st ? st : read_header(s, s->n_files - 1, err);
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each of the names once; sorts them. */
static swl_status add_files(swl_st *s, const char *dir, const char **names, size_t n, swl_error *err)
{
    swl_status st = SWL_OK;
    size_t i;

    if (n)
        qsort(names, n, sizeof *names, by_string);
    for (i = 0; i < n && !st; i++)
        if (!i || strcmp(names[i - 1], names[i]))
            st = add_file(s, swl_path_join(dir, names[i]), err);
    return st;
}

/* --- the table --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const swl_st_tensor *)a)->name, ((const swl_st_tensor *)b)->name);
}

static swl_status sort_by_name(swl_st *s, swl_error *err)
{
    const swl_st_tensor *t = s->list.tensors;
    int32_t i;

    if (s->list.n)
        qsort(s->list.tensors, (size_t)s->list.n, sizeof *t, by_name);
    for (i = 1; i < s->list.n; i++) {
        const char *a = s->files[t[i - 1].file].path, *b = s->files[t[i].file].path;

        if (strcmp(t[i - 1].name, t[i].name))
            continue;
        if (a == b)
            return swl_fail_at(err, SWL_E_CORRUPT, b, -1, "%s: duplicate tensor \"%.200s\"", b, t[i].name);
        return swl_fail_at(err, SWL_E_CORRUPT, b, (int64_t)t[i].offset, "tensor \"%.200s\" is both in %s and in %s",
                           t[i].name, a, b);
    }
    return SWL_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* A tensor that the index takes from another shard is not part of the set. */
static void drop_unlisted_copies(swl_st *s, const swl_st_index *x)
{
    swl_st_tensor *t = s->list.tensors;
    int32_t i, n = 0;

    for (i = 0; i < s->list.n; i++) {
        const char *shard = swl_st_index_find(x, t[i].name);

        if (!shard || !strcmp(shard, base_name(s->files[t[i].file].path)))
            t[n++] = t[i];
    }
    s->list.n = n;
}

static swl_status check_index(const swl_st *s, const swl_st_index *x, const char *path, swl_error *err)
{
    size_t i;

    for (i = 0; i < x->n; i++)
        if (!swl_st_find(s, x->places[i].name))
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                               "%s: tensor \"%.200s\" should be in shard %.200s, whose header does not have it", path,
                               x->places[i].name, x->places[i].shard);
    return SWL_OK;
}

/* --- directories --- */

static swl_status open_shards(swl_st *s, const char *dir, const swl_st_index *x, const char *path, swl_error *err)
{
    const char **shards = swl_calloc(x->n, sizeof *shards);
    swl_status st;
    size_t i;

    if (!shards)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of shards");
    for (i = 0; i < x->n; i++)
        shards[i] = x->places[i].shard;
    st = add_files(s, dir, shards, x->n, err);
    swl_free(shards);
    if (st)
        return st;
    drop_unlisted_copies(s, x);
    st = sort_by_name(s, err);
    return st ? st : check_index(s, x, path, err);
}

static swl_status open_indexed(swl_st *s, const char *dir, const char *path, swl_error *err)
{
    swl_st_index x;
    swl_status st = swl_st_index_load(&x, path, err);

    if (!st)
        st = open_shards(s, dir, &x, path, err);
    swl_st_index_deinit(&x);
    return st;
}

/* model*.safetensors */
static bool is_model_file(const char *name)
{
    size_t n = strlen(name), tail = strlen(".safetensors");

    return !strncmp(name, "model", 5) && n >= 5 + tail && !strcmp(name + n - tail, ".safetensors");
}

typedef struct name_list {
    char **names;
    size_t n;
} name_list;

static swl_status list_add(name_list *l, const char *name, swl_error *err)
{
    char **p = swl_realloc(l->names, l->n + 1, sizeof *p);

    if (p) {
        l->names = p;
        p[l->n] = swl_strdup(name);
        if (p[l->n]) {
            l->n++;
            return SWL_OK;
        }
    }
    return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of shards");
}

static swl_status list_model_files(name_list *l, const char *dir, swl_error *err)
{
    DIR *d = opendir(dir);
    swl_status st = SWL_OK;
    struct dirent *e;

    if (!d)
        return swl_fail_errno(err, dir, "cannot open directory %s", dir);
    for (errno = 0; !st && (e = readdir(d)); errno = 0)
        if (is_model_file(e->d_name))
            st = list_add(l, e->d_name, err);
    if (!st && errno)
        st = swl_fail_errno(err, dir, "cannot read directory %s", dir);
    closedir(d);
    if (!st && !l->n)
        st = swl_fail_at(err, SWL_E_NOT_FOUND, dir, -1, "%s has neither " SWL_ST_INDEX_NAME " nor model*.safetensors",
                         dir);
    return st;
}

static swl_status open_globbed(swl_st *s, const char *dir, swl_error *err)
{
    name_list files = {0};
    swl_status st = list_model_files(&files, dir, err);

    if (!st)
        st = add_files(s, dir, (const char **)files.names, files.n, err);
    while (files.n)
        swl_free(files.names[--files.n]);
    swl_free(files.names);
    return st ? st : sort_by_name(s, err);
}

static swl_status open_dir(swl_st *s, const char *dir, swl_error *err)
{
    char *index = swl_path_join(dir, SWL_ST_INDEX_NAME);
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

/* --- the interface --- */

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

/* The set's only file, known by name and size. */
static swl_status add_remote_file(swl_st *s, const char *path, uint64_t size, swl_error *err)
{
    s->files = swl_calloc(1, sizeof *s->files);
    if (!s->files)
        return no_memory(path, err);
    s->n_files = 1;
    *s->files = (st_file){.path = swl_strdup(path), .fd = -1, .size = size};
    return s->files->path ? SWL_OK : no_memory(path, err);
}

static swl_status parse(swl_st *s, const uint8_t *bytes, uint64_t n_bytes, uint64_t file_size, const char *path,
                        swl_error *err)
{
    swl_st_header_ref h = {.path = path};
    uint64_t n = 0;
    swl_status st;
    char *json;

    if (n_bytes < SWL_ST_LENGTH_BYTES || file_size < n_bytes)
        return too_short(path, file_size < n_bytes ? file_size : n_bytes, err);
    st = add_remote_file(s, path, file_size, err);
    if (!st)
        st = swl_st_header_locate(&h, &n, bytes, file_size, err);
    if (st)
        return st;
    if (n > n_bytes - SWL_ST_LENGTH_BYTES)
        return swl_fail_at(err, SWL_E_ARG, path, -1,
                           "%s: %" PRIu64 " bytes given, but the header ends at byte %" PRIu64, path, n_bytes,
                           h.data_begin);
    json = swl_calloc(n, 1);
    if (!json)
        return no_memory(path, err);
    memcpy(json, bytes + SWL_ST_LENGTH_BYTES, n);
    st = add_tensors(s, &h, json, n, err);
    swl_free(json);
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

static swl_status declare_tensors(swl_st *s, const swl_st_decl *decls, int32_t n, swl_error *err)
{
    st_file *f = s->files;
    int32_t i, d;

    s->list.tensors = swl_calloc((size_t)n, sizeof *s->list.tensors);
    if (!s->list.tensors)
        return no_memory(f->path, err);
    s->list.n = n;
    for (i = 0; i < n; i++) {
        swl_st_tensor *t = &s->list.tensors[i];

        *t = (swl_st_tensor){.name = decls[i].name, .dtype = decls[i].dtype, .n_dims = decls[i].n_dims, .offset = f->size};
        memcpy(t->shape, decls[i].shape, sizeof t->shape);
        t->size = (uint64_t)swl_dtype_size(t->dtype);
        for (d = 0; d < t->n_dims; d++)
            t->size *= (uint64_t)t->shape[d];
        f->size += t->size;
    }
    return keep_names(s, 0, f, err);
}

swl_status swl_st_virtual(swl_st **out, const swl_st_decl *decls, int32_t n, const char *path, swl_st_reader read,
                          void *arg, swl_error *err)
{
    swl_st *s = swl_calloc(1, sizeof *s);
    swl_status st;

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    s->read = read;
    s->read_arg = arg;
    st = add_remote_file(s, path, 0, err);
    if (!st)
        st = declare_tensors(s, decls, n, err);
    return give(out, s, st ? st : sort_by_name(s, err));
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
    swl_free(s->list.tensors);
    swl_free(s);
}

int32_t swl_st_count(const swl_st *s)
{
    return s->list.n;
}

const swl_st_tensor *swl_st_at(const swl_st *s, int32_t i)
{
    return &s->list.tensors[i];
}

const swl_st_tensor *swl_st_find(const swl_st *s, const char *name)
{
    swl_st_tensor key = {.name = name};

    return s->list.n ? bsearch(&key, s->list.tensors, (size_t)s->list.n, sizeof key, by_name) : NULL;
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
    if (s->read)
        return s->read(s->read_arg, t, begin, dst, n, err);
    return swl_file_read_at(f->fd, f->path, t->offset + begin, dst, n, err);
}
