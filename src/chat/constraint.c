/* constraint.c: what an answer has to be, by the grammars of the text folder. */
#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"

swl_status swl_constraint_make(swl_grammar **out, const swl_engine *e, const swl_request_options *o, const json_t *tools,
                               swl_error *err)
{
    (void)e;
    (void)tools;
    *out = NULL;
    return o->constrain == SWL_CONSTRAIN_NONE ? SWL_OK : swl_fail(err, SWL_E_UNSUPPORTED, "constrained answers are not available");
}

void swl_constraint_free(swl_request *r)
{
    (void)r;
}

swl_status swl_constraint_begin(swl_request *r, swl_error *err)
{
    (void)r;
    (void)err;
    return SWL_OK;
}

bool swl_constraint_allows(const swl_request *r, int32_t id)
{
    (void)r;
    (void)id;
    return true;
}

void swl_constraint_mask(swl_request *r, uint32_t *bits)
{
    (void)r;
    (void)bits;
}

swl_status swl_constraint_accept(swl_request *r, int32_t id, bool *closed, swl_error *err)
{
    (void)r;
    (void)id;
    (void)err;
    *closed = false;
    return SWL_OK;
}
