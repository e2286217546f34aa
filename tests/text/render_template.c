/*
 * render_template.c: the template engine as a filter, for check_template.py. Each input line is a JSON object with
 * "source" (a template) or the number of an earlier line's template in "again", and "vars"; each output line is
 * {"text": ...} or {"error": ..., "status": ...}.
 */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template.h"

enum { TEMPLATES_MAX = 65536 };

static swl_template *templates[TEMPLATES_MAX];
static int n_templates;

static json_t *failure(const char *status, const char *message)
{
    return json_pack("{s:s, s:s}", "status", status, "error", message);
}

static const swl_template *template_of(const json_t *in, swl_error *err)
{
    const json_t *source = json_object_get(in, "source"), *again = json_object_get(in, "again");
    int64_t i = json_integer_value(again);

    if (again)
        return i >= 0 && i < n_templates ? templates[i] : NULL;
    if (n_templates == TEMPLATES_MAX)
        return NULL;
    swl_template_compile(&templates[n_templates], json_string_value(source), json_string_length(source), NULL, err);
    return templates[n_templates++];
}

static json_t *answer(const json_t *in)
{
    swl_error err = {.code = SWL_E_ARG, .message = "the template did not compile"};
    const swl_template *t = template_of(in, &err);
    json_t *out;
    char *text;
    size_t n;

    if (!t || swl_template_render(t, json_object_get(in, "vars"), &text, &n, &err))
        return failure(swl_status_name(err.code), err.message);
    out = json_object();
    json_object_set_new(out, "text", json_stringn(text, n));
    swl_free(text);
    return out;
}

int main(void)
{
    json_error_t why;
    json_t *in, *out;
    char *line = NULL;
    size_t cap = 0;

    while (getline(&line, &cap, stdin) > 0) {
        in = json_loads(line, JSON_ALLOW_NUL, &why);
        out = in ? answer(in) : failure("json", why.text);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    while (n_templates > 0)
        swl_template_free(templates[--n_templates]);
    return 0;
}
