/* source.h: what a person wrote as the place of a model, taken apart. */
#ifndef SWL_INSTALL_SOURCE_H
#define SWL_INSTALL_SOURCE_H

#include <swiftlet/swiftlet.h>

#define SWL_HUB_ENDPOINT "https://huggingface.co"

typedef enum swl_source_kind { SWL_SOURCE_HUB, SWL_SOURCE_MIRROR, SWL_SOURCE_DIR } swl_source_kind;

typedef struct swl_source {
    swl_source_kind kind;
    char *name;     /* "org/name"; the URL with a slash at its end; the directory */
    char *revision; /* of a hub */
    char *endpoint; /* of a hub, without a slash at its end */
} swl_source;

/* revision, endpoint: NULL when not given. */
swl_status swl_source_parse(swl_source *s, const char *text, const char *revision, const char *endpoint, swl_error *err);
void swl_source_deinit(swl_source *s);
/* Shell patterns with * and ? over whole paths. */
bool swl_glob(const char *pattern, const char *path);

#endif
