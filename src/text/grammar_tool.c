/*
 * grammar_tool.c: the grammars that are asked for: JSON, a choice, calls of tools in one of two forms.
 *
 *     <tool_call>                          <tool_call>
 *     {"name": NAME, "arguments": {...}}   <function=NAME>
 *     </tool_call>                         <parameter=KEY>
 *                                          VALUE
 *                                          </parameter>
 *                                          </function>
 *                                          </tool_call>
 *
 * The outer tags are tokens of their own where the vocabulary has them.
 */
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

/* ---- limits on what is given ---- */

static swl_status check_size(const json_t *schema, const char *what, size_t max, swl_error *err)
{
    size_t n = json_dumpb(schema, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);

    if (n > max)
        return swl_fail(err, SWL_E_BUDGET, "%s: %zu bytes of JSON, more than the limit of %zu", what, n, max);
    return SWL_OK;
}

/* ---- one value ---- */

static swl_status finish(swl_compiler *c, int32_t root)
{
    swl_grammar *g = c->g;

    swl_compile_rules(c);
    swl_compiler_ok(c, "");
    g->root = root;
    return c->st ? c->st : swl_grammar_seal(g, c->err);
}

static swl_status of_schema(swl_grammar **out, const swl_tokenizer *t, const json_t *schema, swl_error *err)
{
    swl_compiler c;
    swl_grammar *g;
    int32_t value, root;
    swl_status st = swl_grammar_create(&g, t, err);

    *out = NULL;
    if (st)
        return st;
    swl_compiler_init(&c, g, "schema", err);
    c.root = schema ? schema : c.object;
    value = swl_compile_value(&c, c.root, "");
    root = swl_add_value(&c, value, swl_add_node(&c, SWL_NODE_END, 0, -1));
    st = finish(&c, root);
    swl_compiler_deinit(&c);
    if (st)
        swl_grammar_free(g);
    else
        *out = g;
    return st;
}

swl_status swl_grammar_json(swl_grammar **out, const swl_tokenizer *t, swl_error *err)
{
    return of_schema(out, t, NULL, err);
}

swl_status swl_grammar_schema(swl_grammar **out, const swl_tokenizer *t, const json_t *schema, swl_error *err)
{
    swl_status st;

    *out = NULL;
    if (!schema || (!json_is_object(schema) && !json_is_boolean(schema)))
        return swl_fail(err, SWL_E_ARG, "schema: a schema is an object or a boolean");
    st = check_size(schema, "schema", SWL_GRAMMAR_SCHEMA_BYTES_MAX, err);
    return st ? st : of_schema(out, t, schema, err);
}

/* ---- a choice ---- */

static void add_choice(swl_compiler *c, const json_t *strings)
{
    size_t n = json_array_size(strings), i;
    swl_word *words = swl_calloc(n + 1, sizeof *words);
    const json_t *v;

    if (!words)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    if (!n)
        swl_compiler_fail(c, SWL_E_ARG, "", "there is nothing to choose from");
    json_array_foreach (strings, i, v) {
        if (!json_is_string(v))
            swl_compiler_fail(c, SWL_E_ARG, "", "the element %zu is no string", i);
        if (!c->st)
            words[i] = (swl_word){json_string_value(v), json_string_length(v)};
    }
    if (!c->st)
        c->g->root = swl_add_words(c, words, n, swl_add_node(c, SWL_NODE_END, 0, -1));
    swl_free(words);
}

swl_status swl_grammar_choice(swl_grammar **out, const swl_tokenizer *t, const json_t *strings, swl_error *err)
{
    swl_compiler c;
    swl_grammar *g;
    swl_status st;

    *out = NULL;
    if (!json_is_array(strings))
        return swl_fail(err, SWL_E_ARG, "choice: an array of strings is expected");
    st = check_size(strings, "choice", SWL_GRAMMAR_SCHEMA_BYTES_MAX, err);
    if (!st)
        st = swl_grammar_create(&g, t, err);
    if (st)
        return st;
    swl_compiler_init(&c, g, "choice", err);
    add_choice(&c, strings);
    st = finish(&c, g->root);
    swl_compiler_deinit(&c);
    if (st)
        swl_grammar_free(g);
    else
        *out = g;
    return st;
}

/* ---- calls ---- */

enum { TOOLS_BYTES_MAX = 1024 * 1024, NAME_BYTES_MAX = 256 };

typedef struct calls {
    swl_compiler c;
    const swl_tokenizer *t;
    swl_call_syntax syntax;
    int32_t *starts; /* behind <tool_call>, one for each tool */
    int32_t n;
    int32_t end; /* </tool_call> and what follows */
    /* of the tool at hand */
    const char *name;
    int32_t *bodies; /* of the XML form: one for each object schema */
    int32_t n_bodies;
    size_t cap_bodies;
} calls;

/* The token with this text, or the text. */
static int32_t add_tag(calls *k, const char *tag, int32_t next)
{
    int32_t id = swl_tokenizer_special(k->t, tag);

    return id >= 0 ? swl_add_node(&k->c, SWL_NODE_TOKEN, id, next) : swl_add_text(&k->c, tag, strlen(tag), next);
}

static int32_t add_string(calls *k, const swl_sbuf *b, int32_t next)
{
    if (b->failed)
        swl_compiler_fail(&k->c, SWL_E_NOMEM, "", "out of memory");
    return k->c.st ? 0 : swl_add_text(&k->c, b->p, b->n, next);
}

/* A tool whose arguments cannot be written is never begun. */
static int32_t add_if_all_fit(calls *k, const int32_t *needs, int32_t n_needs, int32_t node)
{
    for (int32_t i = 0; i < n_needs; i++)
        node = swl_add_if_fits(&k->c, needs[i], node);
    return node;
}

/* ---- the JSON form ---- */

static int32_t add_json_call(calls *k, const json_t *parameters, const char *path)
{
    swl_compiler *c = &k->c;
    int32_t value = swl_compile_value(c, swl_schema_merge(c, parameters, c->object, path), path);
    int32_t entry;
    swl_sbuf b = {0};

    swl_sbuf_puts(&b, "\n{\"name\": \"");
    swl_sbuf_put_escaped(&b, k->name, strlen(k->name));
    swl_sbuf_puts(&b, "\", \"arguments\": ");
    entry = add_string(k, &b, swl_add_value(c, value, swl_add_text(c, "}\n", 2, k->end)));
    swl_sbuf_deinit(&b);
    return swl_add_if_fits(c, value, entry);
}

/* ---- the XML form ---- */

/* Names stand between '=' and '>' as they are. */
static bool plain_name(const char *name)
{
    size_t n = strlen(name);

    return n && n <= NAME_BYTES_MAX && !strpbrk(name, "<>\n\r\t") && name[0] != ' ' && name[n - 1] != ' ';
}

static int32_t add_name(calls *k, int32_t next)
{
    swl_sbuf b = {0};
    int32_t node;

    swl_sbuf_puts(&b, "\n<function=");
    swl_sbuf_puts(&b, k->name);
    swl_sbuf_putc(&b, '>');
    node = add_string(k, &b, next);
    swl_sbuf_deinit(&b);
    return node;
}

static int32_t add_parameter_tag(calls *k, const char *key, int32_t next)
{
    swl_sbuf b = {0};
    int32_t node;

    swl_sbuf_puts(&b, "\n<parameter=");
    swl_sbuf_puts(&b, key);
    swl_sbuf_puts(&b, ">\n");
    node = add_string(k, &b, next);
    swl_sbuf_deinit(&b);
    return node;
}

/* Parameters that are not listed: any number of them, or none. */
static int32_t add_other_parameters(calls *k, const swl_object *o, int32_t end)
{
    swl_compiler *c = &k->c;
    int32_t value = swl_compile_parameter(c, o->other, o->other_path), split = swl_add_open_split(c, 2), key;
    swl_word *words = swl_calloc(o->n + 1, sizeof *words);
    int32_t list[2] = {end, 0};

    if (!words)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    for (size_t i = 0; words && i < o->n; i++)
        words[i] = (swl_word){o->list[i].key, strlen(o->list[i].key)};
    key = c->st ? 0 : swl_text_other_parameter(&c->g->bytes, words, o->n, &c->work);
    swl_free(words);
    if (!swl_compiler_ok(c, ""))
        return 0;
    key = swl_add_node(c, SWL_NODE_BYTES, key, swl_add_text(c, ">\n", 2, swl_add_parameter(c, value, split)));
    list[1] = swl_add_if_fits(c, value, swl_add_text(c, "\n<parameter=", 12, key));
    for (int32_t i = 0; i < 2 && !c->st; i++)
        c->g->lists[c->g->nodes[split].a + i] = list[i];
    return split;
}

static void add_parameters(calls *k, const swl_object *o, int32_t *needs)
{
    swl_compiler *c = &k->c;
    int32_t at = swl_add_text(c, "\n</function>\n", 13, k->end), value, n_needs = 0, list[2];

    if (o->names)
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, o->other_path, "names of parameters by a pattern are not supported");
    if (o->other)
        at = add_other_parameters(k, o, at);
    for (size_t i = o->n; i-- && !c->st;) {
        const swl_property *p = &o->list[i];

        if (!plain_name(p->key)) {
            swl_compiler_fail(c, SWL_E_UNSUPPORTED, p->path, "this name cannot be written in <parameter=...>");
            return;
        }
        value = swl_compile_parameter(c, p->schema, p->path);
        if (p->required)
            needs[n_needs++] = value;
        list[0] = swl_add_if_fits(c, value, add_parameter_tag(k, p->key, swl_add_parameter(c, value, at)));
        list[1] = at;
        at = swl_add_split(c, list, p->required ? 1 : 2);
    }
    at = add_if_all_fit(k, needs, n_needs, add_name(k, at));
    if (c->st || !swl_grow((void **)&k->bodies, &k->cap_bodies, (size_t)k->n_bodies + 1, sizeof *k->bodies))
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    else
        k->bodies[k->n_bodies++] = at;
}

static void add_body(void *arg, const json_t *schema, const char *path)
{
    calls *k = arg;
    swl_object o;
    int32_t *needs;

    if (swl_schema_types(&k->c, schema, path) != SWL_TYPE_OBJECT) {
        swl_compiler_fail(&k->c, SWL_E_ARG, path, "arguments are an object");
        return;
    }
    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        swl_compiler_fail(&k->c, SWL_E_UNSUPPORTED, path, "\"enum\" and \"const\" of all arguments are not supported");
    swl_object_read(&k->c, schema, path, &o);
    needs = swl_calloc(o.n + 1, sizeof *needs);
    if (!needs)
        swl_compiler_fail(&k->c, SWL_E_NOMEM, "", "out of memory");
    if (!k->c.st)
        add_parameters(k, &o, needs);
    swl_free(needs);
    swl_object_deinit(&o);
}

static int32_t add_xml_call(calls *k, const json_t *parameters, const char *path)
{
    if (!plain_name(k->name)) {
        swl_compiler_fail(&k->c, SWL_E_UNSUPPORTED, path, "this tool's name cannot be written in <function=...>");
        return 0;
    }
    k->n_bodies = 0;
    swl_compile_objects(&k->c, parameters, path, add_body, k);
    return swl_add_split(&k->c, k->bodies, k->n_bodies);
}

/* ---- tools ---- */

static const json_t *function_of(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function"), *type = json_object_get(tool, "type");

    if (json_is_string(type) && strcmp(json_string_value(type), "function"))
        return NULL; /* another kind of tool, which is not the model's to call */
    return json_is_object(f) ? f : tool;
}

static void add_tool(calls *k, const json_t *f, const char *path, const json_t *none)
{
    const json_t *parameters = json_object_get(f, "parameters");
    char *at;
    int32_t node;

    if (!parameters)
        parameters = json_object_get(f, "input_schema");
    at =
        swl_compiler_path(&k->c, path, json_object_get(f, "parameters") || !parameters ? "parameters" : "input_schema");
    if (!parameters || json_is_null(parameters))
        parameters = none;
    if (!at)
        return;
    k->c.root = parameters;
    k->c.root_path = at;
    node = k->syntax == SWL_CALL_JSON ? add_json_call(k, parameters, at) : add_xml_call(k, parameters, at);
    swl_compile_rules(&k->c); /* while the root is this tool's */
    swl_free(at);
    k->c.root_path = "";
    k->starts[k->n++] = node;
}

static void add_tools(calls *k, const json_t *tools, const char *name)
{
    const json_t *none = swl_compiler_own(&k->c, json_pack("{s:s, s:{}}", "type", "object", "properties"));
    const json_t *tool, *f, *v;
    char *at, *path;
    size_t i;

    json_array_foreach (tools, i, tool) {
        f = function_of(tool);
        v = json_object_get(f, "name");
        if (!f || k->c.st)
            continue;
        if (!json_is_string(v) || !json_string_length(v)) {
            swl_compiler_fail(&k->c, SWL_E_ARG, "", "the tool %zu has no name", i);
            return;
        }
        if (strlen(json_string_value(v)) != json_string_length(v)) {
            swl_compiler_fail(&k->c, SWL_E_ARG, "", "the name of tool %zu has a NUL character in it", i);
            return;
        }
        k->name = json_string_value(v);
        if (name && strcmp(name, k->name))
            continue;
        at = swl_compiler_path_at(&k->c, "", i);
        path = at && f != tool ? swl_compiler_path(&k->c, at, "function") : at;
        if (path)
            add_tool(k, f, path, none);
        if (path != at)
            swl_free(path);
        swl_free(at);
    }
    if (!k->n && name)
        swl_compiler_fail(&k->c, SWL_E_ARG, "", "there is no tool \"%.100s\"", name);
    else if (!k->n)
        swl_compiler_fail(&k->c, SWL_E_ARG, "", "there is no tool to call");
}

static swl_status add_calls(calls *k, const json_t *tools, const char *name, bool one)
{
    swl_compiler *c = &k->c;
    int32_t end = swl_add_node(c, SWL_NODE_END, 0, -1), after = one ? end : swl_add_open_split(c, 2), root;

    k->end = add_tag(k, "</tool_call>", after);
    k->starts = swl_calloc(json_array_size(tools) + 1, sizeof *k->starts);
    if (!k->starts)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    if (!c->st)
        add_tools(k, tools, name);
    root = c->st ? 0 : add_tag(k, "<tool_call>", swl_add_split(c, k->starts, k->n));
    if (!one && !c->st) {
        c->g->lists[c->g->nodes[after].a] = end;
        end = swl_add_text(c, "\n", 1, root);
    }
    if (!one && !c->st)
        c->g->lists[c->g->nodes[after].a + 1] = end;
    return finish(c, root);
}

swl_status swl_grammar_tool(swl_grammar **out, const swl_tokenizer *t, const json_t *tools, const char *name,
                            swl_call_syntax syntax, bool one, swl_error *err)
{
    calls k = {.t = t, .syntax = syntax};
    swl_grammar *g;
    swl_status st;

    *out = NULL;
    if (!json_is_array(tools))
        return swl_fail(err, SWL_E_ARG, "tools: an array is expected");
    st = check_size(tools, "tools", TOOLS_BYTES_MAX, err);
    if (!st)
        st = swl_grammar_create(&g, t, err);
    if (st)
        return st;
    swl_compiler_init(&k.c, g, "tools", err);
    st = add_calls(&k, tools, name, one);
    swl_compiler_deinit(&k.c);
    swl_free(k.starts);
    swl_free(k.bodies);
    if (st)
        swl_grammar_free(g);
    else
        *out = g;
    return st;
}
