/* places.c: folders by environment and system. */
#include "places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "output.h"

typedef struct place_row {
    const char *variable;    /* of the XDG base directories */
    const char *below_home;  /* what it is when the variable is not set */
    const char *mac;         /* below the home directory */
    const char *own;         /* below SWIFTLET_HOME */
    const char *sub;         /* below `variable`, `below_home` or `mac` */
} place_row;

#define SUPPORT "Library/Application Support"
static const place_row rows[PLACE_COUNT] = {
    [PLACE_CONFIG] = {"XDG_CONFIG_HOME", ".config", SUPPORT, "", "/swiftlet"},
    [PLACE_MODELS] = {"XDG_DATA_HOME", ".local/share", SUPPORT, "/models", "/swiftlet/models"},
    [PLACE_CACHE] = {"XDG_CACHE_HOME", ".cache", "Library/Caches", "/cache", "/swiftlet"},
    [PLACE_STATE] = {"XDG_STATE_HOME", ".local/state", SUPPORT, "/state", "/swiftlet"},
};

static const char *absolute(const char *variable)
{
    const char *text = getenv(variable);

    return text && text[0] == '/' ? text : NULL; /* relative ones are to be ignored, says the XDG specification */
}

#ifdef __APPLE__
enum { MAC = 1 };
#else
enum { MAC = 0 };
#endif

swl_status place_path(char dst[PLACE_PATH_MAX], place where, const char *name, swl_error *err)
{
    const place_row *row = &rows[where];
    const char *own = getenv("SWIFTLET_HOME"), *base = absolute(row->variable), *home = getenv("HOME");
    const char *slash = *name ? "/" : "";
    int n;

    if (own && *own)
        n = snprintf(dst, PLACE_PATH_MAX, "%s%s%s%s", own, row->own, slash, name);
    else if (base)
        n = snprintf(dst, PLACE_PATH_MAX, "%s%s%s%s", base, row->sub, slash, name);
    else
        n = snprintf(dst, PLACE_PATH_MAX, "%s/%s%s%s%s", home ? home : ".", MAC ? row->mac : row->below_home, row->sub, slash,
                     name);
    return n < PLACE_PATH_MAX ? SWL_OK : fail(err, SWL_E_ARG, "the path of %s is longer than %d bytes", name, PLACE_PATH_MAX);
}

void place_make_parents(const char *path)
{
    char dir[PLACE_PATH_MAX];

    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(dir, sizeof dir, "%.*s", (int)(p - path), path);
        mkdir(dir, 0700);
    }
}

swl_status place_nearest(char dst[PLACE_PATH_MAX], swl_error *err)
{
    struct stat sb;
    char *slash;
    swl_status st = place_path(dst, PLACE_MODELS, "", err);

    while (!st && stat(dst, &sb) && (slash = strrchr(dst, '/')) && slash > dst)
        *slash = 0;
    return st;
}
