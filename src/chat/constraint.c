/* constraint.c: what an answer has to be, by the grammars of the text folder. It begins where the answer does, after
 * reasoning. */
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"
#include "chat/json_in.h"

static swl_status make_tool(swl_grammar **out, const swl_engine *e, const swl_request_options *o, const json_t *tools,
                            swl_error *err)
{
    swl_call_syntax syntax = e->tpl.info.tool_calls_xml ? SWL_CALL_XML : SWL_CALL_JSON;

    if (!json_array_size(tools))
        return swl_fail(err, SWL_E_ARG, "a call is asked for, but there are no tools");
    if (o->no_calls)
        return swl_fail(err, SWL_E_ARG, "a call is asked for and forbidden");
    return swl_grammar_tool(out, e->tokenizer, tools, o->constraint, syntax, o->one_call, err);
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
        return SWL_OK;
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
