/*
 * places.h: where settings, models, caches and the state of conversations live: the folders of the XDG base directories, of
 * macOS, or of SWIFTLET_HOME, which replaces all.
 */
#ifndef CLI_PLACES_H
#define CLI_PLACES_H

#include <swiftlet/swiftlet.h>

typedef enum place { PLACE_CONFIG, PLACE_MODELS, PLACE_CACHE, PLACE_STATE, PLACE_COUNT } place;

enum { PLACE_PATH_MAX = 1024 };

/* The path of `name` in a folder ("": the folder itself). Nothing is made. */
swl_status place_path(char dst[PLACE_PATH_MAX], place where, const char *name, swl_error *err);
/* The folder of models, or the nearest one above that exists. */
swl_status place_nearest(char dst[PLACE_PATH_MAX], swl_error *err);
/* Makes the folders above a file; those that are new can be read by the user alone. */
void place_make_parents(const char *path);

#endif
