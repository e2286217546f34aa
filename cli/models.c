/* models.c: reading the model directory. */
#define _POSIX_C_SOURCE 200809L
#include "models.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"

/* "org--name.qpack" -> "org/name" */
static char *shown_name(const char *folder)
{
    char *name = strdup(folder), *dashes;
    size_t n = name ? strlen(name) : 0;

    if (n > 6 && !strcmp(name + n - 6, ".qpack"))
        name[n - 6] = 0;
    dashes = name ? strstr(name, "--") : NULL;
    if (dashes && dashes > name && dashes[2]) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    return name;
}

static bool is_model(const char *folder)
{
    size_t n = strlen(folder);
    char path[PLACE_PATH_MAX], name[512];
    struct stat sb;
    swl_error ignored;

    if (folder[0] == '.' || (n > 8 && !strcmp(folder + n - 8, ".partial")) ||
        snprintf(name, sizeof name, "%s/config.json", folder) >= (int)sizeof name)
        return false;
    return !place_path(path, PLACE_MODELS, name, &ignored) && !stat(path, &sb);
}

/* Folders of the model directory; the caller frees. */
static char **model_folders(int *n)
{
    char path[PLACE_PATH_MAX], **list = NULL;
    swl_error ignored;
    DIR *dir = place_path(path, PLACE_MODELS, "", &ignored) ? NULL : opendir(path);
    struct dirent *entry;

    *n = 0;
    while (dir && (entry = readdir(dir))) {
        char **more = is_model(entry->d_name) ? realloc(list, ((size_t)*n + 1) * sizeof *list) : NULL;

        if (!more)
            continue;
        list = more;
        list[*n] = strdup(entry->d_name);
        *n += list[*n] != NULL;
    }
    if (dir)
        closedir(dir);
    return list;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **model_names(int *n)
{
    char **folders = model_folders(n);
    int kept = 0;

    for (int i = 0; i < *n; i++) {
        char *name = shown_name(folders[i]);

        free(folders[i]);
        if (name)
            folders[kept++] = name;
    }
    *n = kept;
    if (kept)
        qsort(folders, (size_t)kept, sizeof *folders, by_text);
    return folders;
}

void model_names_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* How well a name fits what was typed: 3 the same, 2 the same after the slash, 1 begins so, 0 not at all. */
static int fit(const char *name, const char *typed)
{
    const char *slash = strchr(name, '/');
    size_t n = strlen(typed);

    if (!strcmp(name, typed))
        return 3;
    if (slash && !strcmp(slash + 1, typed))
        return 2;
    return n && (!strncmp(name, typed, n) || (slash && !strncmp(slash + 1, typed, n)));
}

static swl_status ambiguous(char **folders, int n, int best, const char *typed, swl_error *err)
{
    char list[512] = "";

    for (int i = 0; i < n; i++) {
        char *name = shown_name(folders[i]);
        size_t used = strlen(list);

        if (name && fit(name, typed) == best)
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", name);
        free(name);
    }
    return fail(err, SWL_E_NOT_FOUND, "several installed models are called %s: %s", typed, list);
}

swl_status model_by_name(char dst[PLACE_PATH_MAX], const char *name, swl_error *err)
{
    int n, best = 0, n_best = 0, found = 0;
    char **folders = model_folders(&n), typed[256];
    size_t length;
    swl_status st;

    snprintf(typed, sizeof typed, "%s", name);
    length = strlen(typed);
    if (length > 6 && !strcmp(typed + length - 6, ".qpack"))
        typed[length - 6] = 0;
    for (int i = 0; i < n; i++) {
        char *shown = shown_name(folders[i]);
        int f = shown ? fit(shown, typed) : 0;

        free(shown);
        if (f > best || (f && f == best)) {
            n_best = f > best ? 1 : n_best + 1;
            best = f;
            found = i;
        }
    }
    if (n_best == 1)
        st = place_path(dst, PLACE_MODELS, folders[found], err);
    else if (n_best)
        st = ambiguous(folders, n, best, typed, err);
    else
        st = fail(err, SWL_E_NOT_FOUND, "no installed model is called %s", typed);
    model_names_free(folders, n);
    return st;
}

char *model_short_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = shown_name(slash ? slash + 1 : path), *after = name ? strchr(name, '/') : NULL, found[PLACE_PATH_MAX], *result = NULL;
    const char *shorter[] = {after ? after + 1 : name, name};
    swl_error ignored;

    for (int i = 0; i < 2 && name && !result; i++) {
        if (access(shorter[i], F_OK) && !model_by_name(found, shorter[i], &ignored) && !strcmp(found, path))
            result = strdup(shorter[i]); /* and no folder here takes precedence */
    }
    free(name);
    return result ? result : strdup(path);
}
