/* template.c: swiftlet template MODEL [FILE.json]: the prompt that the model's chat template makes of messages. */
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "commands.h"
#include "output.h"

/* The file holds the messages, or an object with "messages", "tools", and variables of the template beside them. */
static swl_status take_apart(json_t *root, json_t **messages, json_t **tools, json_t **vars, const char *path, swl_error *err)
{
    *messages = json_incref(json_is_array(root) ? root : json_object_get(root, "messages"));
    *tools = json_is_object(root) ? json_incref(json_object_get(root, "tools")) : NULL;
    *vars = json_is_object(root) ? json_copy(root) : json_object();
    json_object_del(*vars, "messages");
    json_object_del(*vars, "tools");
    if (json_is_array(*messages))
        return SWL_OK;
    return fail(err, SWL_E_ARG, "%s holds no messages: expected a list of them, or an object with \"messages\"", path);
}

static void print_prompt(const arguments *a, const engine *e, const swl_request *r)
{
    swl_template_info info;
    json_t *o, *ids;

    if (!opt_on(a, OPT_JSON)) {
        out_text(swl_request_text(r), strlen(swl_request_text(r)));
        return;
    }
    o = out_object();
    ids = json_array();
    swl_template_info_get(e->engine, &info);
    for (int32_t i = 0; i < swl_request_n_prompt(r); i++)
        json_array_append_new(ids, json_integer(swl_request_prompt(r)[i]));
    json_object_set_new(o, "text", out_string(swl_request_text(r)));
    json_object_set_new(o, "ids", ids);
    json_object_set_new(o, "template", out_string(info.source));
    out_json(o);
}

static swl_status render(const arguments *a, const engine *e, const char *text, const char *path, swl_error *err)
{
    json_error_t where;
    json_t *root = json_loads(text, JSON_ALLOW_NUL, &where), *messages = NULL, *tools = NULL, *vars = NULL;
    swl_request_options o;
    swl_request *r = NULL;
    char *texts[3] = {NULL};
    swl_status st = root ? take_apart(root, &messages, &tools, &vars, path, err)
                         : fail(err, SWL_E_ARG, "%s, line %d: %s", path, where.line, where.text);

    swl_request_options_init(&o);
    o.messages = texts[0] = json_dumps(messages, JSON_COMPACT);
    o.tools = texts[1] = tools ? json_dumps(tools, JSON_COMPACT) : NULL;
    o.template_vars = texts[2] = json_dumps(vars, JSON_COMPACT);
    o.think = think_from(a);
    if (!st)
        st = swl_request_create(&r, e->engine, &o, err);
    if (st == SWL_E_BUDGET && r) /* longer than the context, but a prompt */
        st = SWL_OK;
    if (!st)
        print_prompt(a, e, r);
    swl_request_free(r);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
    json_decref(messages);
    json_decref(tools);
    json_decref(vars);
    json_decref(root);
    return st;
}

swl_status run_template(const arguments *a, swl_error *err)
{
    engine e = {0};
    char *text = NULL;
    const char *path;
    size_t n;
    int first;
    swl_status st;

    model_dir(a, &first);
    path = first < a->n_operands ? a->operands[first] : "-";
    st = input_text(path, &text, &n, err);
    if (!st)
        st = engine_describe_chat(&e, a, err);
    if (!st)
        st = render(a, &e, text, strcmp(path, "-") ? path : "standard input", err);
    free(text);
    return engine_close(&e, st, err);
}
