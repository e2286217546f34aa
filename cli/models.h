/* models.h: installed models by name. They are folders of the model directory: NAME.qpack, ORG--NAME.qpack, or checkpoints. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include "places.h"

/* The names, sorted: "ORG/NAME" or "NAME", without .qpack; half-done downloads are left out. Free with model_names_free. */
char **model_names(int *n);
void model_names_free(char **names, int n);

/* The folder of a name, of ORG/NAME, or of the only name that begins so. SWL_E_NOT_FOUND names the candidates. */
swl_status model_by_name(char dst[PLACE_PATH_MAX], const char *name, swl_error *err);

/* The shortest name by which an installed model is found, or the path of its folder where none does. Free it; NULL: no memory. */
char *model_short_name(const char *path);

#endif
