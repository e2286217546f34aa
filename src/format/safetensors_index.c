/*
 * safetensors_index.c: reads the index of a sharded checkpoint.
 *
 *   {"metadata": {"total_size": 48.0}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors", ...}}
 *
 * Only weight_map counts. A shard's name may come from anywhere, so it must not lead out of the directory.
 */
#include "format/safetensors_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "base/mem.h"

#define INDEX_BYTES_MAX UINT64_C(100000000)

static bool is_plain_name(const char *name)
{
    return *name && !strchr(name, '/') && !strchr(name, '\\') && !strstr(name, "..") && strcmp(name, ".");
}

static swl_status add_place(swl_st_index *x, size_t *room, swl_st_place place, const swl_scan *s)
{
    swl_st_place *p = x->places;

    if (!is_plain_name(place.shard))
        return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, s->offset + (s->p - s->begin),
                           "%s: weight_map: the shard of \"%.200s\" is \"%.200s\", expected a plain file name", s->path,
                           place.name, place.shard);
    if (x->n == *room) {
        p = swl_realloc(p, *room + *room / 2 + 64, sizeof *p);
        if (!p)
            return swl_fail_at(s->err, SWL_E_NOMEM, s->path, -1, "out of memory for %s", s->path);
        x->places = p;
        *room += *room / 2 + 64;
    }
    p[x->n++] = place;
    return SWL_OK;
}

static swl_status read_map(swl_st_index *x, swl_scan *s)
{
    swl_status st = swl_scan_begin(s, '{');
    size_t room = 0;
    char *name, *shard;
    uint64_t n;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &name)) && name; n++) {
        s->in[1] = name;
        st = swl_scan_string(s, &shard);
        if (!st)
            st = add_place(x, &room, (swl_st_place){name, shard}, s);
        s->in[1] = NULL;
    }
    return st;
}

/* The whole text. */
static swl_status read_index(swl_st_index *x, swl_scan *s)
{
    swl_status st = swl_scan_begin(s, '{');
    bool seen = false;
    uint64_t n;
    char *key;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        s->in[0] = key;
        if (strcmp(key, "weight_map"))
            st = swl_scan_skip(s);
        else
            st = seen ? swl_scan_expected(s, "this field once") : read_map(x, s);
        seen |= !strcmp(key, "weight_map");
        s->in[0] = NULL;
    }
    if (!st)
        st = swl_scan_finish(s);
    if (!st && !seen)
        st = swl_fail_at(s->err, SWL_E_CORRUPT, s->path, -1, "%s: field \"weight_map\" is missing", s->path);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const swl_st_place *)a)->name, ((const swl_st_place *)b)->name);
}

swl_status swl_st_index_parse(swl_st_index *x, char *text, size_t n_bytes, const char *path, swl_error *err)
{
    swl_scan s = {.begin = text, .p = text, .end = text + n_bytes, .path = path, .err = err};
    swl_status st;
    size_t i;

    *x = (swl_st_index){.text = text};
    st = read_index(x, &s);
    if (st || !x->n)
        return st;
    qsort(x->places, x->n, sizeof *x->places, by_name);
    for (i = 1; i < x->n; i++)
        if (!strcmp(x->places[i - 1].name, x->places[i].name))
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: weight_map has a duplicate entry for \"%.200s\"",
                               path, x->places[i].name);
    return SWL_OK;
}

swl_status swl_st_index_load(swl_st_index *x, const char *path, swl_error *err)
{
    char *text;
    size_t n;
    swl_status st = swl_file_load(&text, &n, path, INDEX_BYTES_MAX, err);

    *x = (swl_st_index){0};
    return st ? st : swl_st_index_parse(x, text, n, path, err);
}

void swl_st_index_deinit(swl_st_index *x)
{
    swl_free(x->places);
    swl_free(x->text);
    *x = (swl_st_index){0};
}

const char *swl_st_index_find(const swl_st_index *x, const char *name)
{
    swl_st_place key = {.name = name}, *p;

    p = x->n ? bsearch(&key, x->places, x->n, sizeof key, by_name) : NULL;
    return p ? p->shard : NULL;
}
