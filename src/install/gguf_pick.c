/* gguf_pick.c: see gguf_pick.h. */
#include "install/gguf_pick.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "format/gguf.h"

#define END_BYTES 5 /* ".gguf" */

/* n bytes, but for case. */
static bool same_letters(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i]))
            return false;
    return true;
}

bool swl_gguf_is_name(const char *path)
{
    size_t n = strlen(path);

    return n > END_BYTES && same_letters(path + n - END_BYTES, ".gguf", END_BYTES);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Models that stand for themselves: no projectors of pictures, no statistics for quantisers, and of parts the first. */
static bool is_choice(const char *path)
{
    const char *name = last_part(path);
    int no = 1, count = 1;

    if (!swl_gguf_is_name(path) || strstr(name, "mmproj") || strstr(name, "imatrix"))
        return false;
    swl_gguf_part_suffix(path, &no, &count);
    return no == 1;
}

/* "Model-Q4_K_M.gguf" and "Model.q4_k_m-00001-of-00002.gguf" for "Q4_K_M". */
static bool has_tag(const char *path, const char *tag)
{
    int no, count;
    const char *name = last_part(path), *parts = swl_gguf_part_suffix(path, &no, &count);
    size_t n = parts ? (size_t)(parts - name) : strlen(name) - END_BYTES, k = strlen(tag);

    return k && n > k && strchr("-._", name[n - k - 1]) && same_letters(name + n - k, tag, k);
}

static bool fits(const char *path, const char *asked)
{
    if (!asked)
        return true;
    return swl_gguf_is_name(asked) ? !strcmp(path, asked) : has_tag(path, asked);
}

char *swl_gguf_part_name(const char *first, int i, int n)
{
    int no, count;
    const char *suffix = n > 1 ? swl_gguf_part_suffix(first, &no, &count) : NULL;

    if (!suffix)
        return swl_strdup(first);
    return swl_asprintf("%.*s-%05d-of-%05d.gguf", (int)(suffix - first), first, i + 1, n);
}

/* All parts together; SWL_SIZE_UNKNOWN when one is not known. */
static uint64_t size_of(const swl_listing *all, const char *first)
{
    int no, n = 1;
    uint64_t size = 0;

    if (!swl_gguf_part_suffix(first, &no, &n))
        n = 1;
    for (int i = 0; i < n && size != SWL_SIZE_UNKNOWN; i++) {
        char *name = swl_gguf_part_name(first, i, n);
        const swl_entry *e = name ? swl_listing_find(all, name) : NULL;

        size = e && e->size != SWL_SIZE_UNKNOWN ? size + e->size : SWL_SIZE_UNKNOWN;
        swl_free(name);
    }
    return size;
}

static void list_choices(char *text, size_t room, const swl_listing *all)
{
    size_t at = 0;
    int32_t n_left = 0;

    text[0] = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const char *path = all->e[i].path;
        uint64_t size;

        if (!is_choice(path))
            continue;
        if (at + strlen(path) + 40 > room) {
            n_left++;
            continue;
        }
        size = size_of(all, path);
        at += (size_t)snprintf(text + at, room - at, "%s%s", at ? ", " : "", path);
        if (size != SWL_SIZE_UNKNOWN)
            at += (size_t)snprintf(text + at, room - at, " (%.1f GB)", 1e-9 * (double)size);
    }
    if (n_left)
        snprintf(text + at, room - at, " and %d more", (int)n_left);
}

/* The first part of the model that a part belongs to. */
static swl_status first_of(const swl_listing *all, const char *repo, const char *path, const char **first, int *n_parts,
                           swl_error *err)
{
    int no;
    swl_status st = SWL_OK;

    if (!swl_gguf_part_suffix(path, &no, n_parts))
        *n_parts = 1;
    for (int i = 0; i < *n_parts && !st; i++) {
        char *name = swl_gguf_part_name(path, i, *n_parts);
        const swl_entry *e = name ? swl_listing_find(all, name) : NULL;

        if (!name)
            st = swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
        else if (!e)
            st = swl_fail_at(err, SWL_E_NOT_FOUND, path, -1, "%s has no %s, which is a part of %s", repo, name, path);
        else if (!i)
            *first = e->path;
        swl_free(name);
    }
    return st;
}

swl_status swl_gguf_pick(const swl_listing *all, const char *repo, const char *asked, const char **first, int *n_parts,
                         swl_error *err)
{
    const char *found = NULL;
    char choices[500];
    int32_t n = 0;

    for (int32_t i = 0; i < all->n; i++) {
        const char *path = all->e[i].path;

        if (fits(path, asked) && (is_choice(path) || (asked && !strcmp(path, asked)))) {
            found = path;
            n++;
        }
    }
    if (n == 1)
        return first_of(all, repo, found, first, n_parts, err);
    list_choices(choices, sizeof choices, all);
    if (n)
        return swl_fail(err, SWL_E_ARG, "%s has several GGUF files%s%s; name one, as in %s:%s. It has: %s", repo,
                        asked ? " called " : "", asked ? asked : "", repo, found, choices);
    return swl_fail_at(err, SWL_E_NOT_FOUND, repo, -1, "%s has no GGUF file %.200s; it has: %s", repo, asked ? asked : "",
                       choices[0] ? choices : "none");
}
