/*
 * template.h: chat templates. A small Jinja engine that renders a checkpoint's own chat_template the way Hugging Face
 * transformers does: Python's jinja2 in its immutable sandbox, trim_blocks and lstrip_blocks on, autoescape off, loop
 * controls, tojson without HTML escaping, and the globals raise_exception, strftime_now, range, namespace and dict.
 *
 * Templates come with downloaded files and the data from requests, so neither is trusted: nesting, time, memory and
 * output are bounded, and whatever goes wrong is a status with the template's line.
 */
#ifndef SWL_TEXT_TEMPLATE_H
#define SWL_TEXT_TEMPLATE_H

#include <jansson.h>

#include "base/status.h"

typedef struct swl_template swl_template;

/* Parses n bytes of UTF-8. `path` names the source in errors (may be NULL) and is copied. A syntax error is
 * SWL_E_CORRUPT, something that this engine does not know (a tag, filter or test) SWL_E_UNSUPPORTED. */
swl_status swl_template_compile(swl_template **out, const char *source, size_t n, const char *path, swl_error *err);
void swl_template_free(swl_template *t); /* NULL is allowed */

/* Renders with the members of the object `vars` as variables: pass only what the caller set, since templates tell an
 * absent variable from a null one. The order of object members is kept. *text: NUL-terminated, free with swl_free.
 * raise_exception() and whatever jinja2 would raise on this data give SWL_E_ARG, a limit gives SWL_E_BUDGET. A compiled
 * template may be rendered by several threads at once. */
swl_status swl_template_render(const swl_template *t, const json_t *vars, char **text, size_t *n, swl_error *err);

#endif
