/*
 * rm.c: swiftlet rm NAME: removes an installed model, after a question. Only folders of the folder of models go, and what is
 * being removed bears a name that nobody takes for a model.
 */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "models.h"
#include "output.h"
#include "places.h"
#include "pull.h"

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)sb, (void)type, (void)ftw;
    return remove(path);
}

static bool agreed(const arguments *a, const char *path)
{
    char answer[16] = "";

    if (opt_on(a, OPT_YES))
        return true;
    if (!stdin_is_terminal() || opt_on(a, OPT_JSON))
        return false;
    fprintf(stderr, "remove %s? [y/N] ", path);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static bool is_dir(const char *path)
{
    struct stat sb;

    return !lstat(path, &sb) && S_ISDIR(sb.st_mode);
}

/* The model's folder, or what is left of a pull that did not end. */
static swl_status find(char path[PLACE_PATH_MAX + 16], const char *name, swl_error *err)
{
    char half[PLACE_PATH_MAX];
    swl_error ignored;
    swl_status st = model_by_name(path, name, err);

    if (!st || strstr(err->message, "several"))
        return st;
    if (pulling_default_target(half, name, &ignored))
        return st;
    snprintf(path, PLACE_PATH_MAX + 16, "%s.partial", half);
    if (is_dir(path))
        return SWL_OK;
    if (!strstr(name, "/") && strlen(name) > 8 && !strcmp(name + strlen(name) - 8, ".partial") &&
        !place_path(path, PLACE_MODELS, name, &ignored) && is_dir(path))
        return SWL_OK;
    return st;
}

static swl_status remove_tree(const char *path, swl_error *err)
{
    char going[PLACE_PATH_MAX + 48];

    snprintf(going, sizeof going, "%s.removed.partial", path);
    if (is_dir(going))
        nftw(going, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    if (rename(path, going))
        return fail(err, SWL_E_IO, "cannot remove %s: %s", path, strerror(errno));
    if (nftw(going, remove_one, 8, FTW_DEPTH | FTW_PHYS))
        return fail(err, SWL_E_IO, "cannot remove all of %s: %s", going, strerror(errno));
    return SWL_OK;
}

swl_status run_rm(const arguments *a, swl_error *err)
{
    char path[PLACE_PATH_MAX + 16];
    swl_status st = find(path, a->operands[0], err);

    if (st)
        return st;
    if (!is_dir(path))
        return fail(err, SWL_E_ARG, "%s is a link, so it is left to you", path);
    if (!agreed(a, path))
        return fail(err, SWL_E_ARG, "nothing is removed; --yes does it without asking");
    st = remove_tree(path, err);
    if (!st && opt_on(a, OPT_JSON)) {
        json_t *o = out_object();

        json_object_set_new(o, "removed", out_string(path));
        out_json(o);
    } else if (!st && !opt_on(a, OPT_QUIET))
        note("removed %s", path);
    return st;
}
