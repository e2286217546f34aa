/* config.h: settings with their origins, for people. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include "options.h"
#include "places.h"

enum { ORIGIN_MAX = PLACE_PATH_MAX + 16 };

/* The value of an option as it is to be shown, and where it comes from: "option", "SWIFTLET_TEMP", "/.../config.ini:3". `model`
 * has what the model publishes for sampling; NULL: no model. *text points to static storage, to v or to the table. */
void config_value(option_id id, const option_value *v, const swl_sampling *model, const char **text, char origin[ORIGIN_MAX]);

/* swiftlet info [MODEL] --config; dir NULL: without a model. */
swl_status config_report(const arguments *a, const char *dir, swl_error *err);

#endif
