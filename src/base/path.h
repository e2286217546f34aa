/* path.h: judging relative paths that come from outside: listings, manifests, indexes. */
#ifndef SWL_BASE_PATH_H
#define SWL_BASE_PATH_H

#include <stdbool.h>

/*
 * True when `path` can only name something inside the directory that it is joined to, on every system: 1 to 1024 bytes,
 * relative, "/" between at most 8 components of at most 255 bytes; no "\", ":", control character, empty or "." or ".."
 * component, no component that ends in a dot or blank or is a Windows device name, nothing hidden at the top level.
 * Whether it is valid UTF-8 is left to whoever decoded it.
 */
bool swl_path_is_safe(const char *path);

#endif
