/* source.h: what a person wrote as the place of a model, taken apart. */
#ifndef SWL_INSTALL_SOURCE_H
#define SWL_INSTALL_SOURCE_H

#include <swiftlet/swiftlet.h>

#define SWL_HUB_ENDPOINT "https://huggingface.co"

typedef enum swl_source_kind { SWL_SOURCE_HUB, SWL_SOURCE_MIRROR, SWL_SOURCE_DIR } swl_source_kind;

typedef struct swl_source {
    swl_source_kind kind;
    char *name;     /* "org/name"; the URL with a slash at its end; the directory */
    char *file;     /* a GGUF file of a hub or a mirror, or of a hub the name of a quantisation; NULL: not said */
    char *label;    /* all of it, as it can be written again: "org/name:FILE.gguf"; NULL: it is `name` */
    char *revision; /* of a hub */
    char *endpoint; /* of a hub, without a slash at its end */
} swl_source;

/* What a source is called in messages and records. */
const char *swl_source_label(const swl_source *s);
/* Sets file and label once it is known which file of the source it is. */
swl_status swl_source_set_file(swl_source *s, const char *file, swl_error *err);

/* revision, endpoint: NULL when not given. */
swl_status swl_source_parse(swl_source *s, const char *text, const char *revision, const char *endpoint, swl_error *err);
void swl_source_deinit(swl_source *s);
/* Shell patterns with * and ? over whole paths. */
bool swl_glob(const char *pattern, const char *path);

#endif
