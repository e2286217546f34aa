/*
 * gguf.c: headers of GGUF files (versions 2 and 3), little-endian.
 *
 *   0    "GGUF", u32 version, u64 number of tensors, u64 number of values
 *   24   values: string key, u32 kind, content        string: u64 length, bytes
 *        tensors: string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset
 *        zeros up to a multiple of general.alignment, from where the offsets count
 *
 * Nothing says how long a header is, so a file is read in growing pieces until the header fits. Invariants once a set
 * is open: every tensor of a known type lies inside its file, no two overlap, no name occurs twice.
 */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

#define FIRST_BYTES      (UINT64_C(1) << 20)
#define HEADER_BYTES_MAX (UINT64_C(512) << 20)
#define NAME_BYTES_MAX   1024 /* of keys and tensor names */
#define TENSORS_MAX      (1 << 20)
#define VALUES_MAX       (1 << 20)
#define PARTS_MAX        99999
#define VALUE_BYTES_MIN  13 /* empty key, kind, one byte */
#define TENSOR_BYTES_MIN 33 /* name of one byte, one dimension */

/* clang-format off */
static const swl_gguf_type types[] = {
    {0, "F32", 1, 4},        {1, "F16", 1, 2},        {2, "Q4_0", 32, 18},     {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},     {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},     {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},   {11, "Q3_K", 256, 110},  {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},  {15, "Q8_K", 256, 292},  {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18},  {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},
    {26, "I32", 1, 4},       {27, "I64", 1, 8},       {28, "F64", 1, 8},       {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},      {34, "TQ1_0", 256, 54},  {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},   {41, "Q1_0", 128, 18},   {42, "Q2_0", 64, 18},
};
/* clang-format on */

enum { N_TYPES = sizeof types / sizeof types[0] };

typedef struct gguf_file {
    char *path;
    int fd; /* -1 when the header came from memory */
    uint64_t size;
    const uint8_t *window; /* bytes [window_begin, + window_bytes) of it, in memory */
    uint64_t window_begin, window_bytes;
} gguf_file;

struct swl_gguf {
    uint8_t *header; /* of the first part: what values point into */
    swl_gguf_value *values;
    swl_gguf_tensor *tensors;
    int32_t n_values, n_tensors, n_files;
    gguf_file *files;
};

/* ---- bytes --------------------------------------------------------------------------------------------------------- */

/* A header being read. */
typedef struct cursor {
    const uint8_t *bytes;
    uint64_t n, at;
    uint64_t file_size;
    const char *path;
    bool cut; /* the file goes on where the bytes end, and more of it was wanted */
    swl_error *err;
} cursor;

static swl_status bad(const cursor *c, uint64_t at, const char *what, uint64_t found)
{
    return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, (int64_t)at, "%s: byte %" PRIu64 ": %s, found %" PRIu64, c->path,
                       at, what, found);
}

/* n more bytes are there. */
static swl_status need(cursor *c, uint64_t n, const char *what)
{
    if (n <= c->n - c->at)
        return SWL_OK;
    c->cut = c->n < c->file_size;
    return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, (int64_t)c->at,
                       "%s: byte %" PRIu64 ": %" PRIu64 " bytes of %s expected, %" PRIu64 " are left", c->path, c->at, n,
                       what, c->n - c->at);
}

static uint64_t load(const uint8_t *p, int n)
{
    uint64_t v = 0;

    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static swl_status take_uint(cursor *c, int n, const char *what, uint64_t *v)
{
    swl_status st = need(c, (uint64_t)n, what);

    *v = st ? 0 : load(c->bytes + c->at, n);
    c->at += st ? 0 : (uint64_t)n;
    return st;
}

/* A string of 1 to NAME_BYTES_MAX bytes without NUL, copied. */
static swl_status take_name(cursor *c, const char *what, const char **out)
{
    uint64_t begin = c->at, n;
    swl_status st = take_uint(c, 8, what, &n);

    if (!st && (n < 1 || n > NAME_BYTES_MAX))
        return bad(c, begin, "expected a name of 1 to 1024 bytes", n);
    if (!st)
        st = need(c, n, what);
    if (st)
        return st;
    if (memchr(c->bytes + c->at, 0, n))
        return bad(c, c->at, "a name holds a zero byte", 0);
    *out = swl_strndup((const char *)c->bytes + c->at, n);
    c->at += n;
    return *out ? SWL_OK : swl_fail(c->err, SWL_E_NOMEM, "out of memory for the names of %s", c->path);
}

/* ---- values -------------------------------------------------------------------------------------------------------- */

static int kind_size(swl_gguf_kind k)
{
    static const int sizes[SWL_GGUF_KIND_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    return sizes[k];
}

static swl_status skip_strings(cursor *c, uint64_t n)
{
    swl_status st = SWL_OK;
    uint64_t len;

    for (uint64_t i = 0; i < n && !st; i++) {
        st = take_uint(c, 8, "a string's length", &len);
        if (!st)
            st = need(c, len, "a string");
        c->at += st ? 0 : len;
    }
    return st;
}

static swl_status take_kind(cursor *c, uint64_t max, swl_gguf_kind *k)
{
    uint64_t begin = c->at, v;
    swl_status st = take_uint(c, 4, "a value's kind", &v);

    if (!st && (v >= SWL_GGUF_KIND_COUNT || v > max))
        return bad(c, begin, "expected a known kind of value", v);
    *k = (swl_gguf_kind)v;
    return st;
}

static swl_status take_content(cursor *c, swl_gguf_value *v)
{
    uint64_t size = (uint64_t)kind_size(v->kind);
    swl_status st;

    v->data = c->bytes + c->at;
    if (v->kind == SWL_GGUF_STRING) {
        st = skip_strings(c, v->n);
    } else if (v->n > UINT64_MAX / size) {
        return bad(c, c->at, "an array has more elements than any file", v->n);
    } else {
        st = need(c, v->n * size, "a value");
        c->at += st ? 0 : v->n * size;
    }
    v->n_bytes = (uint64_t)(c->bytes + c->at - v->data);
    return st;
}

static swl_status take_value(cursor *c, swl_gguf_value *v)
{
    uint64_t begin;
    swl_status st = take_name(c, "a key", &v->key);

    if (!st)
        st = take_kind(c, SWL_GGUF_KIND_COUNT, &v->kind);
    v->n = 1;
    if (!st && v->kind == SWL_GGUF_ARRAY) {
        v->is_array = true;
        begin = c->at;
        st = take_kind(c, SWL_GGUF_KIND_COUNT, &v->kind);
        if (!st && v->kind == SWL_GGUF_ARRAY)
            return bad(c, begin, "arrays of arrays are not supported", SWL_GGUF_ARRAY);
        if (!st)
            st = take_uint(c, 8, "an array's length", &v->n);
    }
    return st ? st : take_content(c, v);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const swl_gguf_value *)a)->key, ((const swl_gguf_value *)b)->key);
}

static swl_status take_values(cursor *c, swl_gguf *g, uint64_t n)
{
    swl_status st = SWL_OK;

    g->values = swl_calloc(n, sizeof *g->values);
    if (!g->values)
        return swl_fail(c->err, SWL_E_NOMEM, "out of memory for the values of %s", c->path);
    for (uint64_t i = 0; i < n && !st; i++) {
        st = take_value(c, &g->values[i]);
        g->n_values += g->values[i].key != NULL;
    }
    if (st)
        return st;
    qsort(g->values, n, sizeof *g->values, by_key);
    for (uint64_t i = 1; i < n; i++)
        if (!by_key(&g->values[i - 1], &g->values[i]))
            return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, -1, "%s: key \"%s\" occurs twice", c->path,
                               g->values[i].key);
    return SWL_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

static const swl_gguf_type *find_type(uint64_t id)
{
    for (int i = 0; i < N_TYPES; i++)
        if ((uint64_t)types[i].id == id)
            return &types[i];
    return NULL;
}

static swl_status tensor_size(const cursor *c, swl_gguf_tensor *t)
{
    uint64_t n = 1;

    for (int d = 0; d < SWL_GGUF_DIMS_MAX; d++) {
        if (n > (UINT64_C(1) << 60) / (uint64_t)t->dims[d])
            return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, (int64_t)c->at,
                               "%s: byte %" PRIu64 ": tensor \"%s\" has more elements than any file", c->path, c->at,
                               t->name);
        n *= (uint64_t)t->dims[d];
    }
    if (!t->type)
        return SWL_OK;
    if (t->dims[0] % t->type->block)
        return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, (int64_t)c->at,
                           "%s: byte %" PRIu64 ": tensor \"%s\" is %s with rows of %" PRId64
                           " elements, expected a multiple of %" PRId32,
                           c->path, c->at, t->name, t->type->name, t->dims[0], t->type->block);
    t->size = n / (uint64_t)t->type->block * (uint64_t)t->type->bytes;
    return SWL_OK;
}

static swl_status take_dims(cursor *c, swl_gguf_tensor *t)
{
    uint64_t begin = c->at, v;
    swl_status st = take_uint(c, 4, "a number of dimensions", &v);

    if (!st && (v < 1 || v > SWL_GGUF_DIMS_MAX))
        return bad(c, begin, "expected 1 to 4 dimensions", v);
    t->n_dims = (int32_t)v;
    for (int d = 0; d < SWL_GGUF_DIMS_MAX && !st; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims)
            continue;
        begin = c->at;
        st = take_uint(c, 8, "a dimension", &v);
        if (!st && (v < 1 || v > INT64_MAX))
            return bad(c, begin, "expected a dimension of at least 1", v);
        t->dims[d] = st ? 1 : (int64_t)v;
    }
    return st;
}

static swl_status take_tensor(cursor *c, swl_gguf_tensor *t)
{
    uint64_t v;
    swl_status st = take_name(c, "a tensor's name", &t->name);

    if (!st)
        st = take_dims(c, t);
    if (!st)
        st = take_uint(c, 4, "a tensor's type", &v);
    if (!st) {
        t->type_id = (uint32_t)v;
        t->type = find_type(v);
        st = take_uint(c, 8, "a tensor's offset", &t->offset);
    }
    return st ? st : tensor_size(c, t);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const swl_gguf_tensor *)a)->name, ((const swl_gguf_tensor *)b)->name);
}

static int by_offset(const void *a, const void *b)
{
    const swl_gguf_tensor *x = a, *y = b;

    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : (x->size > y->size) - (x->size < y->size);
}

/* From offsets in the data to offsets in the file, each inside it, and none over another. */
static swl_status place(const cursor *c, swl_gguf *g, int32_t first, uint64_t alignment)
{
    uint64_t pad = c->at % alignment ? alignment - c->at % alignment : 0, data = c->at + pad, end = 0;
    uint64_t room = data < c->file_size ? c->file_size - data : 0;

    qsort(g->tensors + first, (size_t)(g->n_tensors - first), sizeof *g->tensors, by_offset);
    for (int32_t i = first; i < g->n_tensors; i++) {
        swl_gguf_tensor *t = &g->tensors[i];

        if (data > c->file_size || t->offset > room || t->size > room - t->offset)
            return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, -1,
                               "%s: tensor \"%s\" takes bytes %" PRIu64 " to %" PRIu64 " behind byte %" PRIu64
                               ", but the file ends at %" PRIu64,
                               c->path, t->name, t->offset, t->offset + t->size, data, c->file_size);
        if (t->offset % alignment || t->offset < end)
            return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, (int64_t)(data + t->offset),
                               "%s: tensor \"%s\" has offset %" PRIu64 ", expected a multiple of %" PRIu64
                               " from %" PRIu64 " on",
                               c->path, t->name, t->offset, alignment, end);
        end = t->offset + t->size;
        t->offset += data;
    }
    return SWL_OK;
}

static swl_status take_tensors(cursor *c, swl_gguf *g, uint64_t n, int32_t file)
{
    int32_t first = g->n_tensors;
    swl_gguf_tensor *p;
    swl_status st = SWL_OK;

    if (n > (uint64_t)(TENSORS_MAX - first))
        return bad(c, 8, "expected fewer tensors", n);
    p = swl_realloc(g->tensors, (size_t)first + n, sizeof *p);
    if (!p)
        return swl_fail(c->err, SWL_E_NOMEM, "out of memory for the tensors of %s", c->path);
    g->tensors = p;
    for (uint64_t i = 0; i < n && !st; i++) {
        swl_gguf_tensor *t = &p[g->n_tensors];

        *t = (swl_gguf_tensor){.file = file};
        st = take_tensor(c, t);
        g->n_tensors += t->name != NULL;
    }
    return st;
}

static swl_status sort_by_name(swl_gguf *g, swl_error *err)
{
    qsort(g->tensors, (size_t)g->n_tensors, sizeof *g->tensors, by_name);
    for (int32_t i = 1; i < g->n_tensors; i++)
        if (!by_name(&g->tensors[i - 1], &g->tensors[i]))
            return swl_fail_at(err, SWL_E_CORRUPT, g->files[g->tensors[i].file].path, -1, "%s: tensor \"%s\" occurs twice",
                               g->files[g->tensors[i].file].path, g->tensors[i].name);
    return SWL_OK;
}

/* ---- one header ---------------------------------------------------------------------------------------------------- */

static swl_status take_head(cursor *c, uint64_t *n_tensors, uint64_t *n_values)
{
    uint64_t v = 0;
    swl_status st = need(c, 4, "the magic");

    if (st)
        return st;
    if (memcmp(c->bytes, "GGUF", 4))
        return swl_fail_at(c->err, SWL_E_CORRUPT, c->path, 0, "%s does not begin with GGUF", c->path);
    c->at = 4;
    st = take_uint(c, 4, "the version", &v);
    if (!st && v != 2 && v != 3)
        return swl_fail_at(c->err, SWL_E_UNSUPPORTED, c->path, 4, "%s: byte 4: version %" PRIu64 "%s, expected 2 or 3",
                           c->path, v, v == 0x2000000 || v == 0x3000000 ? " (a big-endian file)" : "");
    if (!st)
        st = take_uint(c, 8, "the number of tensors", n_tensors);
    if (!st)
        st = take_uint(c, 8, "the number of values", n_values);
    if (!st && (*n_tensors > TENSORS_MAX || *n_tensors > c->file_size / TENSOR_BYTES_MIN))
        st = bad(c, 8, "expected a number of tensors that fits the file and is at most 2^20", *n_tensors);
    if (!st && (*n_values > VALUES_MAX || *n_values > c->file_size / VALUE_BYTES_MIN))
        st = bad(c, 16, "expected a number of values that fits the file and is at most 2^20", *n_values);
    return st;
}

/* Appends the file's tensors; its values replace those that the set had. */
static swl_status take_header(cursor *c, swl_gguf *g, int32_t file)
{
    uint64_t n_tensors = 0, n_values = 0;
    int64_t alignment = 32;
    int32_t first = g->n_tensors;
    swl_status st = take_head(c, &n_tensors, &n_values);

    if (!st)
        st = take_values(c, g, n_values);
    if (!st)
        st = take_tensors(c, g, n_tensors, file);
    if (!st)
        st = swl_gguf_int(g, "general.alignment", SWL_GGUF_OPTIONAL, 1, 1 << 20, &alignment, c->err);
    if (!st && (alignment & (alignment - 1)))
        st = swl_gguf_wrong(g, swl_gguf_value_find(g, "general.alignment"), "a power of two", c->err);
    return st ? st : place(c, g, first, (uint64_t)alignment);
}

static void free_values(swl_gguf *g)
{
    for (int32_t i = 0; i < g->n_values; i++)
        swl_free((char *)g->values[i].key);
    swl_free(g->values);
    swl_free(g->header);
    g->values = NULL;
    g->header = NULL;
    g->n_values = 0;
}

static void drop_tensors(swl_gguf *g, int32_t first)
{
    while (g->n_tensors > first)
        swl_free((char *)g->tensors[--g->n_tensors].name);
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

/* Takes `path`, also when it fails. */
static swl_status add_file(swl_gguf *g, char *path, uint64_t size, swl_error *err)
{
    gguf_file *f = path ? swl_realloc(g->files, (size_t)g->n_files + 1, sizeof *f) : NULL;

    if (!f) {
        swl_free(path);
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    }
    g->files = f;
    f[g->n_files++] = (gguf_file){.path = path, .fd = -1, .size = size};
    return SWL_OK;
}

/* Tries the first n bytes; *more when the header goes on behind them. */
static swl_status try_header(swl_gguf *g, int32_t file, uint64_t n, bool *more, swl_error *err)
{
    gguf_file *f = &g->files[file];
    int32_t first = g->n_tensors;
    cursor c = {.n = n, .file_size = f->size, .path = f->path, .err = err};
    swl_status st;

    g->header = swl_calloc(n, 1);
    if (!g->header)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the header of %s", f->path);
    c.bytes = g->header;
    st = swl_file_read_at(f->fd, f->path, 0, g->header, n, err);
    if (!st)
        st = take_header(&c, g, file);
    *more = st && c.cut;
    if (st) {
        drop_tensors(g, first);
        free_values(g);
    }
    return st;
}

/* Opens `path` (taken) and appends its tensors; g's values are the file's then. */
static swl_status read_part(swl_gguf *g, char *path, swl_error *err)
{
    swl_status st = add_file(g, path, 0, err);
    gguf_file *f = st ? NULL : &g->files[g->n_files - 1];
    bool more = true;

    if (!st)
        st = swl_file_open(&f->fd, &f->size, path, err);
    if (st)
        return st;
    for (uint64_t n = FIRST_BYTES; more; n *= 4) {
        uint64_t limit = f->size < HEADER_BYTES_MAX ? f->size : HEADER_BYTES_MAX;

        st = try_header(g, g->n_files - 1, n < limit ? n : limit, &more, err);
        if (more && n >= limit)
            break;
    }
    return st;
}

const char *swl_gguf_part_suffix(const char *path, int *no, int *count)
{
    size_t n = strlen(path), tail = strlen("-00001-of-00001.gguf");
    const char *p = n > tail ? path + n - tail : NULL;
    char end = 0;

    if (!p || sscanf(p, "-%5d-of-%5d.ggu%c", no, count, &end) != 3 || end != 'f' || *no < 1 || *no > *count)
        return NULL;
    return p;
}

static swl_status check_part(const swl_gguf *g, const char *path, int no, int count, swl_error *err)
{
    int64_t have_no = 0, have_count = 1;
    swl_status st = swl_gguf_int(g, "split.no", SWL_GGUF_OPTIONAL, 0, PARTS_MAX, &have_no, err);

    if (!st)
        st = swl_gguf_int(g, "split.count", SWL_GGUF_OPTIONAL, 0, PARTS_MAX, &have_count, err);
    if (!st && (have_no != no || have_count != count))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                         "%s says that it is part %" PRId64 " of %" PRId64 " (from 0), its name says part %d of %d", path,
                         have_no, have_count, no, count);
    return st;
}

/* The parts after the first; only their tensors are kept. */
static swl_status read_others(swl_gguf *g, const char *first, const char *suffix, int count, swl_error *err)
{
    swl_gguf keep;
    swl_status st = SWL_OK;

    for (int i = 1; i < count && !st; i++) {
        char *path = swl_asprintf("%.*s-%05d-of-%05d.gguf", (int)(suffix - first), first, i + 1, count);

        keep = *g;
        g->values = NULL;
        g->header = NULL;
        g->n_values = 0;
        st = read_part(g, path, err);
        if (!st)
            st = check_part(g, path, i, count, err);
        free_values(g);
        g->values = keep.values;
        g->header = keep.header;
        g->n_values = keep.n_values;
    }
    return st;
}

static swl_status open_split(swl_gguf *g, const char *path, const char *suffix, int count, swl_error *err)
{
    char *first = swl_asprintf("%.*s-%05d-of-%05d.gguf", (int)(suffix - path), path, 1, count);
    int64_t n_all = -1;
    swl_status st = read_part(g, first, err);

    if (!st)
        st = check_part(g, first, 0, count, err);
    if (!st)
        st = swl_gguf_int(g, "split.tensors.count", SWL_GGUF_OPTIONAL, 0, TENSORS_MAX, &n_all, err);
    if (!st)
        st = read_others(g, g->files[0].path, g->files[0].path + (suffix - path), count, err);
    if (!st && n_all >= 0 && n_all != g->n_tensors)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                         "%s: split.tensors.count is %" PRId64 ", but the %d parts hold %" PRId32 " tensors", path, n_all,
                         count, g->n_tensors);
    return st;
}

static swl_status open_whole(swl_gguf *g, const char *path, swl_error *err)
{
    int64_t count = 1;
    swl_status st = read_part(g, swl_strdup(path), err);

    if (!st)
        st = swl_gguf_int(g, "split.count", SWL_GGUF_OPTIONAL, 0, PARTS_MAX, &count, err);
    if (!st && count > 1)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                         "%s is one part of %" PRId64 ", but its name does not end in -00001-of-%05" PRId64 ".gguf", path,
                         count, count);
    return st;
}

/* Sorts and gives, or closes. */
static swl_status give(swl_gguf **out, swl_gguf *g, swl_status st, swl_error *err)
{
    if (!st)
        st = sort_by_name(g, err);
    if (st)
        swl_gguf_close(g);
    else
        *out = g;
    return st;
}

swl_status swl_gguf_open(swl_gguf **out, const char *path, swl_error *err)
{
    swl_gguf *g = swl_calloc(1, sizeof *g);
    int no, count;
    const char *suffix = swl_gguf_part_suffix(path, &no, &count);

    *out = NULL;
    if (!g)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    return give(out, g, suffix ? open_split(g, path, suffix, count, err) : open_whole(g, path, err), err);
}

swl_status swl_gguf_parse(swl_gguf **out, const void *bytes, uint64_t n_bytes, uint64_t file_size, const char *path,
                          bool *more, swl_error *err)
{
    swl_gguf *g = swl_calloc(1, sizeof *g);
    cursor c = {.n = n_bytes, .file_size = file_size, .path = path, .err = err};
    swl_status st;

    *out = NULL;
    if (!g)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    st = add_file(g, swl_strdup(path), file_size, err);
    if (!st && !(g->header = swl_calloc(n_bytes, 1)))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    if (!st) {
        memcpy(g->header, bytes, n_bytes);
        c.bytes = g->header;
        st = take_header(&c, g, 0);
    }
    if (more)
        *more = st && c.cut;
    return give(out, g, st, err);
}

void swl_gguf_close(swl_gguf *g)
{
    if (!g)
        return;
    for (int32_t i = 0; i < g->n_files; i++) {
        swl_file_close(g->files[i].fd);
        swl_free(g->files[i].path);
    }
    drop_tensors(g, 0);
    free_values(g);
    swl_free(g->tensors);
    swl_free(g->files);
    swl_free(g);
}

int32_t swl_gguf_count(const swl_gguf *g)
{
    return g->n_tensors;
}

const swl_gguf_tensor *swl_gguf_at(const swl_gguf *g, int32_t i)
{
    return &g->tensors[i];
}

const swl_gguf_tensor *swl_gguf_find(const swl_gguf *g, const char *name)
{
    swl_gguf_tensor key = {.name = name};

    return g->n_tensors ? bsearch(&key, g->tensors, (size_t)g->n_tensors, sizeof key, by_name) : NULL;
}

int32_t swl_gguf_n_files(const swl_gguf *g)
{
    return g->n_files;
}

const char *swl_gguf_path(const swl_gguf *g, int32_t file)
{
    return g->files[file].path;
}

swl_status swl_gguf_read(const swl_gguf *g, const swl_gguf_tensor *t, uint64_t begin, void *dst, uint64_t n,
                         swl_error *err)
{
    const gguf_file *f = &g->files[t->file];

    if (begin > t->size || n > t->size - begin)
        return swl_fail_at(err, SWL_E_ARG, f->path, (int64_t)t->offset,
                           "%" PRIu64 " bytes from byte %" PRIu64 " of tensor \"%s\" asked for, which has %" PRIu64, n,
                           begin, t->name, t->size);
    begin += t->offset;
    if (begin >= f->window_begin && n <= f->window_bytes && begin - f->window_begin <= f->window_bytes - n) {
        memcpy(dst, f->window + (begin - f->window_begin), n);
        return SWL_OK;
    }
    return swl_file_read_at(f->fd, f->path, begin, dst, n, err);
}

void swl_gguf_window(swl_gguf *g, int32_t file, uint64_t begin, const void *data, uint64_t n)
{
    gguf_file *f = &g->files[file];

    f->window = data;
    f->window_begin = begin;
    f->window_bytes = n;
}

/* ---- metadata ------------------------------------------------------------------------------------------------------ */

int32_t swl_gguf_n_values(const swl_gguf *g)
{
    return g->n_values;
}

const swl_gguf_value *swl_gguf_value_at(const swl_gguf *g, int32_t i)
{
    return &g->values[i];
}

const swl_gguf_value *swl_gguf_value_find(const swl_gguf *g, const char *key)
{
    swl_gguf_value want = {.key = key};

    return g->n_values ? bsearch(&want, g->values, (size_t)g->n_values, sizeof want, by_key) : NULL;
}

swl_status swl_gguf_missing(const swl_gguf *g, const char *key, swl_error *err)
{
    return swl_fail_at(err, SWL_E_CORRUPT, g->files[0].path, -1, "%s has no value \"%s\"", g->files[0].path, key);
}

swl_status swl_gguf_wrong(const swl_gguf *g, const swl_gguf_value *v, const char *want, swl_error *err)
{
    int64_t at = g->header ? v->data - g->header : -1;

    if (!v->is_array && kind_size(v->kind) && v->kind != SWL_GGUF_F32 && v->kind != SWL_GGUF_F64)
        return swl_fail_at(err, SWL_E_CORRUPT, g->files[0].path, at,
                           "%s: byte %" PRId64 ": value \"%s\" is %" PRId64 ", expected %s", g->files[0].path, at, v->key,
                           swl_gguf_int_at(v, 0), want);
    return swl_fail_at(err, SWL_E_CORRUPT, g->files[0].path, at,
                       "%s: byte %" PRId64 ": value \"%s\" is of kind %d%s, expected %s", g->files[0].path, at, v->key,
                       (int)v->kind, v->is_array ? " (an array)" : "", want);
}

static bool is_int(swl_gguf_kind k)
{
    return k != SWL_GGUF_F32 && k != SWL_GGUF_F64 && kind_size(k) > 0;
}

int64_t swl_gguf_int_at(const swl_gguf_value *v, uint64_t i)
{
    int size = kind_size(v->kind);
    uint64_t u = load(v->data + i * (uint64_t)size, size);

    switch (v->kind) {
    case SWL_GGUF_I8:
        return (int8_t)u;
    case SWL_GGUF_I16:
        return (int16_t)u;
    case SWL_GGUF_I32:
        return (int32_t)u;
    case SWL_GGUF_U64:
        return u > INT64_MAX ? INT64_MAX : (int64_t)u;
    default:
        return (int64_t)u;
    }
}

/* The value of a key that is no array; NULL with *st set when absent or an array. */
static const swl_gguf_value *scalar(const swl_gguf *g, const char *key, swl_gguf_need needed, const char *want,
                                    swl_status *st, swl_error *err)
{
    const swl_gguf_value *v = swl_gguf_value_find(g, key);

    *st = !v && needed ? swl_gguf_missing(g, key, err) : SWL_OK;
    if (v && v->is_array) {
        *st = swl_gguf_wrong(g, v, want, err);
        v = NULL;
    }
    return v;
}

swl_status swl_gguf_int(const swl_gguf *g, const char *key, swl_gguf_need needed, int64_t min, int64_t max, int64_t *out,
                        swl_error *err)
{
    swl_status st;
    const swl_gguf_value *v = scalar(g, key, needed, "an integer", &st, err);
    char want[80];

    if (!v)
        return st;
    snprintf(want, sizeof want, "an integer from %" PRId64 " to %" PRId64, min, max);
    if (!is_int(v->kind) || swl_gguf_int_at(v, 0) < min || swl_gguf_int_at(v, 0) > max)
        return swl_gguf_wrong(g, v, want, err);
    *out = swl_gguf_int_at(v, 0);
    return SWL_OK;
}

swl_status swl_gguf_float(const swl_gguf *g, const char *key, swl_gguf_need needed, double *out, swl_error *err)
{
    swl_status st;
    const swl_gguf_value *v = scalar(g, key, needed, "a number", &st, err);
    float f;

    if (!v)
        return st;
    if (v->kind == SWL_GGUF_F32) {
        memcpy(&f, v->data, sizeof f);
        *out = (double)f;
    } else if (v->kind == SWL_GGUF_F64) {
        memcpy(out, v->data, sizeof *out);
    } else if (is_int(v->kind)) {
        *out = (double)swl_gguf_int_at(v, 0);
    } else {
        return swl_gguf_wrong(g, v, "a number", err);
    }
    return SWL_OK;
}

swl_status swl_gguf_bool(const swl_gguf *g, const char *key, swl_gguf_need needed, bool *out, swl_error *err)
{
    swl_status st;
    const swl_gguf_value *v = scalar(g, key, needed, "true or false", &st, err);

    if (!v)
        return st;
    if (!is_int(v->kind))
        return swl_gguf_wrong(g, v, "true or false", err);
    *out = swl_gguf_int_at(v, 0) != 0;
    return SWL_OK;
}

void swl_gguf_next_string(const uint8_t **p, const char **text, uint64_t *n)
{
    *n = load(*p, 8);
    *text = (const char *)*p + 8;
    *p += 8 + *n;
}

swl_status swl_gguf_string(const swl_gguf *g, const char *key, swl_gguf_need needed, char **out, swl_error *err)
{
    swl_status st;
    const swl_gguf_value *v = scalar(g, key, needed, "a string", &st, err);
    const uint8_t *p;
    const char *text;
    uint64_t n;

    if (!v)
        return st;
    if (v->kind != SWL_GGUF_STRING)
        return swl_gguf_wrong(g, v, "a string", err);
    p = v->data;
    swl_gguf_next_string(&p, &text, &n);
    if (memchr(text, 0, n))
        return swl_gguf_wrong(g, v, "a string without zero bytes", err);
    *out = swl_strndup(text, n);
    return *out ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the values of %s", g->files[0].path);
}
