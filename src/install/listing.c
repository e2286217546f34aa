/* listing.c: see listing.h. */
#include "install/listing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/json_scan.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/checkpoint_parts.h"

void swl_listing_free(swl_listing *l)
{
    for (int32_t i = 0; i < l->n; i++)
        swl_free(l->e[i].path);
    swl_free(l->e);
    *l = (swl_listing){0};
}

swl_entry *swl_listing_find(const swl_listing *l, const char *path)
{
    for (int32_t i = 0; i < l->n; i++)
        if (!strcmp(l->e[i].path, path))
            return &l->e[i];
    return NULL;
}

static swl_status bad_path(const char *path, const char *from, swl_error *err)
{
    return swl_fail_at(err, SWL_E_CORRUPT, from, -1,
                       "%s: \"%.200s\" is not a path of a file inside the container; nothing of this source is used", from,
                       path);
}

swl_status swl_listing_add(swl_listing *l, const char *path, uint64_t size, swl_entry **e, const char *from,
                           swl_error *err)
{
    if (!swl_path_is_safe(path))
        return bad_path(path, from, err);
    if (size != SWL_SIZE_UNKNOWN && size > SWL_SIZE_MAX)
        return swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s: \"%.200s\" has a size of %" PRIu64 ", expected at most 2^53",
                           from, path, size);
    if (l->n == SWL_LISTING_FILES_MAX)
        return swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s has more than %d files", from, SWL_LISTING_FILES_MAX);
    if (l->n == l->room) {
        int32_t room = l->room ? 2 * l->room : 64;
        swl_entry *p = swl_realloc(l->e, (size_t)room, sizeof *p);

        if (!p)
            return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
        l->e = p;
        l->room = room;
    }
    *e = &l->e[l->n];
    **e = (swl_entry){.path = swl_strdup(path), .size = size};
    if (!(*e)->path)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    l->n++;
    return SWL_OK;
}

/* ---- trees --------------------------------------------------------------------------------------------------------- */

typedef struct tree_entry {
    char *type, *path, *oid, *lfs;
    int64_t size, lfs_size;
} tree_entry;

static swl_status text_or_null(swl_scan *s, char **text)
{
    return swl_scan_peek(s) == '"' ? swl_scan_string(s, text) : swl_scan_skip(s);
}

static swl_status size_or_null(swl_scan *s, int64_t *size)
{
    char c = swl_scan_peek(s);

    return c >= '0' && c <= '9' ? swl_scan_uint(s, size) : c == '-' ? swl_scan_expected(s, "a size") : swl_scan_skip(s);
}

static swl_status read_lfs(swl_scan *s, tree_entry *t)
{
    swl_status st;
    char *key;

    if (swl_scan_peek(s) != '{')
        return swl_scan_skip(s);
    st = swl_scan_begin(s, '{');
    for (uint64_t n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        if (!strcmp(key, "oid"))
            st = text_or_null(s, &t->lfs);
        else
            st = strcmp(key, "size") ? swl_scan_skip(s) : size_or_null(s, &t->lfs_size);
    }
    return st;
}

static swl_status read_entry(swl_scan *s, tree_entry *t)
{
    swl_status st = swl_scan_begin(s, '{');
    char *key;

    *t = (tree_entry){.size = -1, .lfs_size = -1};
    for (uint64_t n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        if (!strcmp(key, "type"))
            st = text_or_null(s, &t->type);
        else if (!strcmp(key, "path"))
            st = text_or_null(s, &t->path);
        else if (!strcmp(key, "oid"))
            st = text_or_null(s, &t->oid);
        else if (!strcmp(key, "size"))
            st = size_or_null(s, &t->size);
        else
            st = strcmp(key, "lfs") ? swl_scan_skip(s) : read_lfs(s, t);
    }
    if (!st && (!t->type || !t->path))
        st = swl_scan_expected(s, "an entry with \"type\" and \"path\"");
    return st;
}

static bool is_hidden(const char *path)
{
    return *path == '.' || strstr(path, "/.");
}

/* "." or ".." as a component: hidden by its look, but no file of a repository is called so. */
static bool climbs(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        size_t n;

        p += *p == '/';
        n = strspn(p, ".");
        if ((n == 1 || n == 2) && (!p[n] || p[n] == '/'))
            return true;
    }
    return false;
}

static swl_status add_tree_entry(swl_listing *l, const tree_entry *t, const char *from, swl_error *err)
{
    uint64_t size = t->lfs_size >= 0 ? (uint64_t)t->lfs_size : t->size >= 0 ? (uint64_t)t->size : SWL_SIZE_UNKNOWN;
    bool is_file = !strcmp(t->type, "file");
    swl_entry *e;
    swl_status st;

    if (climbs(t->path))
        return bad_path(t->path, from, err);
    if (is_hidden(t->path))
        return SWL_OK;
    if (!is_file)
        return swl_path_is_safe(t->path) ? SWL_OK : bad_path(t->path, from, err);
    if (t->lfs_size >= 0 && t->size >= 0 && t->lfs_size != t->size)
        return swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s: \"%.200s\" has two sizes, %" PRId64 " and %" PRId64, from,
                           t->path, t->size, t->lfs_size);
    st = swl_listing_add(l, t->path, size, &e, from, err);
    if (st)
        return st;
    if (t->lfs ? !swl_digest_set(&e->digest[0], SWL_DIGEST_SHA256, t->lfs)
               : t->oid && !swl_digest_set(&e->digest[0], SWL_DIGEST_GIT_SHA1, t->oid))
        return swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s: the oid of \"%.200s\" is not the digest of a file", from,
                           t->path);
    return SWL_OK;
}

swl_status swl_listing_tree(swl_listing *l, char *text, size_t n, const char *from, swl_error *err)
{
    swl_scan s = {.begin = text, .p = text, .end = text + n, .path = from, .in = {"tree"}, .err = err};
    swl_status st = swl_scan_begin(&s, '[');
    bool more;

    for (uint64_t i = 0; !st && !(st = swl_scan_element(&s, i, &more)) && more; i++) {
        tree_entry t;

        st = read_entry(&s, &t);
        if (!st)
            st = add_tree_entry(l, &t, from, err);
    }
    return st ? st : swl_scan_finish(&s);
}

/* ---- hashes.json and manifest.json -------------------------------------------------------------------------------- */

static swl_status add_hash(swl_listing *l, const char *path, const char *hex, const char *from, swl_error *err)
{
    swl_entry *e = swl_listing_find(l, path);
    swl_status st = e ? SWL_OK : swl_listing_add(l, path, SWL_SIZE_UNKNOWN, &e, from, err);

    if (!st && e->digest[1].kind)
        st = swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s: \"%.200s\" occurs twice", from, path);
    if (!st && !swl_digest_set(&e->digest[1], SWL_DIGEST_SHA256, hex))
        st = swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s: the hash of \"%.200s\" is not 64 hex digits", from, path);
    return st;
}

static swl_status read_hashes(swl_listing *l, swl_scan *s)
{
    swl_status st = swl_scan_begin(s, '{');
    char *key, *hex;

    for (uint64_t n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        st = swl_scan_string(s, &hex);
        if (!st)
            st = add_hash(l, key, hex, s->path, s->err);
    }
    return st;
}

swl_status swl_listing_hashes(swl_listing *l, char *text, size_t n, const char *from, swl_error *err)
{
    swl_scan s = {.begin = text, .p = text, .end = text + n, .path = from, .err = err};
    swl_status st = swl_scan_begin(&s, '{');
    bool seen = false;
    char *key;

    for (uint64_t i = 0; !st && !(st = swl_scan_member(&s, i, &key)) && key; i++) {
        bool files = !strcmp(key, "files");

        if (files && seen)
            return swl_scan_expected(&s, "one \"files\"");
        st = files ? read_hashes(l, &s) : swl_scan_skip(&s);
        seen |= files;
    }
    if (!st)
        st = swl_scan_finish(&s);
    if (!st && !seen)
        st = swl_fail_at(err, SWL_E_CORRUPT, from, -1, "%s: field \"files\" is missing", from);
    return st;
}

static swl_status add_length(swl_listing *l, const char *path, uint64_t size, const char *from, swl_error *err)
{
    swl_entry *e = swl_listing_find(l, path);

    if (!e)
        return swl_listing_add(l, path, size, &e, from, err);
    if (e->size != SWL_SIZE_UNKNOWN && e->size != size)
        return swl_fail_at(err, SWL_E_CORRUPT, from, -1,
                           "%s: \"%.200s\" should have %" PRIu64 " bytes, but the source has %" PRIu64, from, path, size,
                           e->size);
    e->size = size;
    return SWL_OK;
}

swl_status swl_listing_manifest(swl_listing *l, const char *text, size_t n, const char *from, swl_error *err)
{
    int32_t version;
    json_t *root = NULL, *length;
    const char *path;
    swl_status st = swl_json_parse(&root, text, n, from, err);

    if (!st)
        st = swl_qpack_manifest(root, &version, from, err);
    if (!st)
        json_object_foreach(json_object_get(root, "files"), path, length)
        {
            st = add_length(l, path, (uint64_t)json_integer_value(length), from, err);
            if (st)
                break;
        }
    json_decref(root);
    return st;
}

/* ---- one name on every system -------------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const swl_entry *)a)->path, ((const swl_entry *)b)->path);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What a file system without case sees. */
static char *folded(const char *path)
{
    utf8proc_uint8_t *out = NULL;

    if (utf8proc_map((const utf8proc_uint8_t *)path, 0, &out,
                     UTF8PROC_NULLTERM | UTF8PROC_CASEFOLD | UTF8PROC_COMPOSE | UTF8PROC_STABLE) < 0)
        return NULL;
    return (char *)out;
}

swl_status swl_listing_finish(swl_listing *l, const char *from, swl_error *err)
{
    char **names = swl_calloc((size_t)l->n + 1, sizeof *names);
    swl_status st = names ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    int32_t n = 0;

    for (; n < l->n && !st; n++)
        if (!(names[n] = folded(l->e[n].path)))
            st = bad_path(l->e[n].path, from, err);
    if (!st && n)
        qsort(names, (size_t)n, sizeof *names, by_text);
    for (int32_t i = 1; i < n && !st; i++)
        if (!strcmp(names[i - 1], names[i]))
            st = swl_fail_at(err, SWL_E_CORRUPT, from, -1,
                             "%s has two files that some systems take for one: \"%.200s\"", from, names[i]);
    for (int32_t i = 0; names && i < n; i++)
        free(names[i]); /* the library's own */
    swl_free(names);
    if (!st && l->n)
        qsort(l->e, (size_t)l->n, sizeof *l->e, by_path);
    return st;
}
