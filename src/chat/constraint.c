/* constraint.c: what an answer has to be, by the grammars of the text folder. It begins where the answer does, after
 * reasoning. */
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"
#include "chat/json_in.h"

/* The tools that are named, a new array. */
static swl_status only_allowed(json_t **out, const json_t *tools, const char *allowed, swl_error *err)
{
    json_t *names = NULL, *tool;
    size_t i, j;
    swl_status st = swl_json_in(&names, allowed, strlen(allowed), NULL, "allowed", err);

    *out = json_array();
    json_array_foreach ((json_t *)tools, i, tool)
        for (j = 0; j < json_array_size(names); j++)
            if (json_equal(json_array_get(names, j), json_object_get(json_object_get(tool, "function"), "name"))) {
                json_array_append(*out, tool);
                break;
            }
    json_decref(names);
    return st;
}

static swl_status make_allowed(swl_grammar **out, const swl_engine *e, const swl_request_options *o, const json_t *tools,
                               swl_error *err);

static swl_status make_tool(swl_grammar **out, const swl_engine *e, const swl_request_options *o, const json_t *tools,
                            swl_error *err)
{
    swl_call_syntax syntax = e->tpl.info.tool_calls_xml ? SWL_CALL_XML : SWL_CALL_JSON;

    if (!json_array_size(tools))
        return swl_fail(err, SWL_E_ARG, "a call is asked for, but there are no tools");
    if (o->no_calls)
        return swl_fail(err, SWL_E_ARG, "a call is asked for and forbidden");
    if (o->allowed)
        return make_allowed(out, e, o, tools, err);
    return swl_grammar_tool(out, e->tokenizer, tools, o->constraint, syntax, o->one_call, err);
}

static swl_status make_allowed(swl_grammar **out, const swl_engine *e, const swl_request_options *o, const json_t *tools,
                               swl_error *err)
{
    swl_request_options rest = *o;
    json_t *list;
    swl_status st = only_allowed(&list, tools, o->allowed, err);

    rest.allowed = NULL;
    if (!st)
        st = make_tool(out, e, &rest, list, err);
    json_decref(list);
    return st;
}

bool swl_constraint_is_lazy(const swl_request_options *o)
{
    return o->constrain == SWL_CONSTRAIN_NONE && o->allowed && !o->no_calls && !o->raw;
}

static swl_status make_from_json(swl_grammar **out, const swl_engine *e, const swl_request_options *o, swl_error *err)
{
    bool schema = o->constrain == SWL_CONSTRAIN_SCHEMA;
    const char *what = schema ? "schema" : "choice";
    json_t *v = NULL;
    swl_status st = o->constraint ? swl_json_in(&v, o->constraint, strlen(o->constraint), NULL, what, err)
                                  : swl_fail(err, SWL_E_ARG, "%s: missing", what);

    if (!st)
        st = schema ? swl_grammar_schema(out, e->tokenizer, v, err) : swl_grammar_choice(out, e->tokenizer, v, err);
    json_decref(v);
    return st;
}

swl_status swl_constraint_make(swl_grammar **out, const swl_engine *e, const swl_request_options *o,
                               const json_t *tools, swl_error *err)
{
    *out = NULL;
    switch (o->constrain) {
    case SWL_CONSTRAIN_NONE:
        return swl_constraint_is_lazy(o) ? make_tool(out, e, o, tools, err) : SWL_OK;
    case SWL_CONSTRAIN_JSON:
        return swl_grammar_json(out, e->tokenizer, err);
    case SWL_CONSTRAIN_SCHEMA:
    case SWL_CONSTRAIN_CHOICE:
        return make_from_json(out, e, o, err);
    case SWL_CONSTRAIN_TOOL:
        return make_tool(out, e, o, tools, err);
    }
    return swl_fail(err, SWL_E_ARG, "unknown kind of constraint %d", (int)o->constrain);
}

void swl_constraint_free(swl_request *r)
{
    swl_grammar_end(r->state);
    swl_grammar_free(r->grammar);
    r->state = NULL;
    r->grammar = NULL;
}

swl_status swl_constraint_begin(swl_request *r, swl_error *err)
{
    return swl_grammar_begin(&r->state, r->grammar, err);
}

bool swl_constraint_allows(const swl_request *r, int32_t id)
{
    return swl_grammar_allows(r->state, id);
}

void swl_constraint_mask(swl_request *r, uint32_t *bits)
{
    swl_grammar_mask(r->state, bits);
}

swl_status swl_constraint_accept(swl_request *r, int32_t id, bool *closed, swl_error *err)
{
    swl_status st = swl_grammar_accept(r->state, id, err);

    if (!st && !swl_grammar_complete(r->state, closed))
        *closed = false;
    return st;
}
