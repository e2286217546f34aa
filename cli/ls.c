/* ls.c: swiftlet ls: what is in the folder of models, also what is not complete. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "format.h"
#include "models.h"
#include "output.h"
#include "places.h"

static uint64_t sum;

static int add_size(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)path, (void)ftw;
    if (type == FTW_F)
        sum += (uint64_t)sb->st_size;
    return 0;
}

static uint64_t size_of(const char *path)
{
    sum = 0;
    nftw(path, add_size, 8, FTW_PHYS);
    return sum;
}

/* .swiftlet-install.json of a folder; NULL when there is none. */
static json_t *record_of(const char *folder)
{
    char path[PLACE_PATH_MAX + 32];

    snprintf(path, sizeof path, "%s/.swiftlet-install.json", folder);
    return json_load_file(path, 0, NULL);
}

static void one(const arguments *a, json_t *list, const char *name, const char *path, bool complete)
{
    json_t *record = record_of(path), *source = json_object_get(record, "source"), *commit = json_object_get(record, "commit");
    uint64_t size = size_of(path);
    char text[16];

    if (opt_on(a, OPT_JSON)) {
        json_t *o = json_object();

        json_object_set_new(o, "name", out_string(name));
        json_object_set_new(o, "path", out_string(path));
        json_object_set_new(o, "bytes", json_integer((json_int_t)size));
        json_object_set_new(o, "complete", json_boolean(complete));
        json_object_set_new(o, "source", json_is_string(source) ? json_incref(source) : json_null());
        json_object_set_new(o, "commit", json_is_string(commit) ? json_incref(commit) : json_null());
        json_array_append_new(list, o);
    } else {
        out_printf("%-44s %10s  %.12s%s\n", name, format_bytes(text, size),
                   json_is_string(commit) ? json_string_value(commit) : "", complete ? "" : "  (incomplete: pull it again)");
    }
    json_decref(record);
}

static swl_status complete_ones(const arguments *a, json_t *list, swl_error *err)
{
    int n;
    char **names = model_names(&n);
    swl_status st = SWL_OK;

    for (int i = 0; i < n && !st; i++) {
        char path[PLACE_PATH_MAX];

        st = model_by_name(path, names[i], err);
        if (!st)
            one(a, list, names[i], path, true);
    }
    if (!n && !opt_on(a, OPT_JSON))
        note("no model is installed; \"swiftlet pull ORG/NAME\" brings one");
    model_names_free(names, n);
    return st;
}

static swl_status partial_ones(const arguments *a, json_t *list, swl_error *err)
{
    char folder[PLACE_PATH_MAX], path[2 * PLACE_PATH_MAX];
    swl_status st = place_path(folder, PLACE_MODELS, "", err);
    DIR *d = st ? NULL : opendir(folder);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        size_t n = strlen(e->d_name);

        if (n < 9 || e->d_name[0] == '.' || strcmp(e->d_name + n - 8, ".partial"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        one(a, list, e->d_name, path, false);
    }
    if (d)
        closedir(d);
    return st;
}

swl_status run_ls(const arguments *a, swl_error *err)
{
    json_t *list = json_array(), *o;
    swl_status st = complete_ones(a, list, err);

    if (!st)
        st = partial_ones(a, list, err);
    if (!st && opt_on(a, OPT_JSON)) {
        o = out_object();
        json_object_set(o, "models", list);
        out_json(o);
    }
    json_decref(list);
    return st;
}
