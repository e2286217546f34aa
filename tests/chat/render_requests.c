/*
 * render_requests.c: the chat engine's prompts as a filter, for check_requests.py. Each input line is a JSON object with
 * "template" (a file), "messages", "tools", "vars" and "parse_special"; each output line is {"text", "ids"} or {"error", "status"}.
 *
 * usage: render_requests MODEL
 */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <swiftlet/swiftlet.h>

enum { ENGINES_MAX = 256 };

static struct {
    char path[512];
    bool parse_special;
    swl_engine *engine;
} engines[ENGINES_MAX];
static int n_engines;
static swl_model *model;
static swl_tokenizer *tokenizer;
static const char *dir;

static swl_engine *engine_of(const char *path, bool parse_special, swl_error *err)
{
    swl_engine_options o;

    for (int i = 0; i < n_engines; i++)
        if (!strcmp(engines[i].path, path) && engines[i].parse_special == parse_special)
            return engines[i].engine;
    if (n_engines == ENGINES_MAX)
        return NULL;
    swl_engine_options_init(&o);
    o.model = model;
    o.tokenizer = tokenizer;
    o.dir = dir;
    o.template_path = path;
    o.parse_special = parse_special;
    if (swl_engine_open(&engines[n_engines].engine, &o, err))
        return NULL;
    snprintf(engines[n_engines].path, sizeof engines[n_engines].path, "%s", path);
    engines[n_engines].parse_special = parse_special;
    return engines[n_engines++].engine;
}

static json_t *failure(const swl_error *err)
{
    return json_pack("{s:s, s:s}", "status", swl_status_name(err->code), "error", err->message);
}

static char *member(const json_t *in, const char *key)
{
    const json_t *v = json_object_get(in, key);

    return v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
}

static json_t *answer(const json_t *in)
{
    swl_error err = {.code = SWL_E_FAIL, .message = "no engine"};
    swl_engine *e = engine_of(json_string_value(json_object_get(in, "template")),
                              json_is_true(json_object_get(in, "parse_special")), &err);
    char *messages = member(in, "messages"), *tools = member(in, "tools"), *vars = member(in, "vars");
    swl_request_options o;
    swl_request *r = NULL;
    json_t *out, *ids;

    swl_request_options_init(&o);
    o.messages = messages;
    o.tools = tools;
    o.template_vars = vars;
    if (!e || (swl_request_create(&r, e, &o, &err) && !r)) {
        out = failure(&err);
    } else {
        ids = json_array();
        for (int32_t i = 0; i < swl_request_n_prompt(r); i++)
            json_array_append_new(ids, json_integer(swl_request_prompt(r)[i]));
        out = json_pack("{s:o, s:o}", "text", json_string(swl_request_text(r)), "ids", ids);
    }
    swl_request_free(r);
    free(messages);
    free(tools);
    free(vars);
    return out;
}

int main(int argc, char **argv)
{
    swl_model_options o;
    swl_error err;
    json_error_t why;
    char *line = NULL;
    size_t cap = 0;

    swl_model_options_init(&o);
    o.path = dir = argc > 1 ? argv[1] : "";
    o.n_threads = 1;
    o.ctx_tokens = 64;
    if (swl_model_open(&model, &o, &err) || swl_tokenizer_open(&tokenizer, dir, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    while (getline(&line, &cap, stdin) > 0) {
        json_t *in = json_loads(line, JSON_ALLOW_NUL, &why), *out = in ? answer(in) : json_pack("{s:s}", "error", why.text);

        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    while (n_engines > 0)
        swl_engine_close(engines[--n_engines].engine);
    swl_tokenizer_close(tokenizer);
    swl_model_close(model);
    return 0;
}
