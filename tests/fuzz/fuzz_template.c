/*
 * A template and its variables, a NUL between them: whatever they are, compiling and rendering end in a text or in an
 * error with a message, within the limits.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/status.h"
#include "text/template.h"

static void render(const swl_template *t, const json_t *vars)
{
    swl_error err;
    char *text, *again;
    size_t n, m;

    if (swl_template_render(t, vars, &text, &n, &err)) {
        CHECK(!text && err.message[0] && !strcmp(err.file, "t"));
        return;
    }
    CHECK(text[n] == 0);
    CHECK(!swl_template_render(t, vars, &again, &m, &err)); /* a rendering leaves no trace in the template */
    CHECK(m == n);
    swl_free(again);
    swl_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    json_error_t why;
    json_t *vars = nul ? json_loadb((const char *)nul + 1, size - n - 1, JSON_ALLOW_NUL, &why) : NULL;
    swl_template *t;
    swl_error err;

    if (!json_is_object(vars)) {
        json_decref(vars);
        vars = json_object();
    }
    if (swl_template_compile(&t, (const char *)data, n, "t", &err))
        CHECK(!t && err.message[0] && !strcmp(err.file, "t"));
    else
        render(t, vars);
    swl_template_free(t);
    json_decref(vars);
    return 0;
}
