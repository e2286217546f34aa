/* request.c: a request's life before and after it runs: options checked, everything that they point to copied. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"

enum { STOP_STRINGS_MAX = 1024 };

void swl_request_options_init(swl_request_options *opt)
{
    memset(opt, 0, sizeof *opt);
    opt->n_max = -1;
    swl_sampling_init(&opt->sampling);
}

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "request: out of memory");
}

static swl_status check_sampling(const swl_sampling *s, swl_error *err)
{
    if (!isfinite(s->temperature) || !isfinite(s->top_p) || !isfinite(s->min_p) || !isfinite(s->presence_penalty) ||
        !isfinite(s->frequency_penalty))
        return swl_fail(err, SWL_E_ARG, "a sampling parameter is not a finite number");
    if (!isfinite(s->repetition_penalty) || !(s->repetition_penalty > 0))
        return swl_fail(err, SWL_E_ARG, "repetition_penalty is %g, expected more than 0",
                        (double)s->repetition_penalty);
    return SWL_OK;
}

static swl_status check_options(const swl_engine *e, const swl_request_options *o, swl_error *err)
{
    int given = (o->messages != NULL) + (o->text != NULL) + (o->ids != NULL);

    if (given != 1)
        return swl_fail(err, SWL_E_ARG, "a request has messages, text or ids, one of them: %d were given", given);
    if (o->ids && o->n_ids < 1)
        return swl_fail(err, SWL_E_ARG, "the prompt is empty");
    if (o->n_stop < 0 || o->n_stop > STOP_STRINGS_MAX)
        return swl_fail(err, SWL_E_ARG, "stop: %d strings, expected 0 to %d", o->n_stop, STOP_STRINGS_MAX);
    if (o->n_top < 0 || o->n_top > SWL_TOP_MAX)
        return swl_fail(err, SWL_E_ARG, "n_top is %d, expected 0 to %d", o->n_top, SWL_TOP_MAX);
    if (o->n_bias < 0)
        return swl_fail(err, SWL_E_ARG, "n_bias is %d", o->n_bias);
    for (int32_t i = 0; i < o->n_bias; i++)
        if (o->bias[i].id < 0 || o->bias[i].id >= e->model->config->vocab || !(o->bias[i].bias == o->bias[i].bias))
            return swl_fail(err, SWL_E_ARG, "logit_bias: token id %d is not in 0 to %d, or its bias is no number",
                            o->bias[i].id, e->model->config->vocab - 1);
    return check_sampling(&o->sampling, err);
}

/* What the copy of the options still borrows becomes its own. The prompt's sources are not needed any more. */
static swl_status copy_options(swl_request *r, swl_error *err)
{
    swl_request_options *o = &r->o;

    o->messages = o->tools = o->template_vars = o->text = NULL;
    o->ids = NULL;
    r->constraint = o->constraint ? swl_strdup(o->constraint) : NULL;
    r->stop = swl_calloc((size_t)o->n_stop, sizeof *r->stop);
    r->bias = swl_calloc((size_t)o->n_bias, sizeof *r->bias);
    if (!r->stop || !r->bias || (o->constraint && !r->constraint))
        return no_memory(err);
    for (int32_t i = 0; i < o->n_stop; i++)
        if (!(r->stop[i] = swl_strdup(o->stop[i])))
            return no_memory(err);
    if (o->n_bias)
        memcpy(r->bias, o->bias, (size_t)o->n_bias * sizeof *r->bias);
    o->constraint = r->constraint;
    o->stop = (const char *const *)r->stop;
    o->bias = r->bias;
    return SWL_OK;
}

static swl_status check_length(swl_request *r, swl_error *err)
{
    int32_t ctx = r->engine->model->ctx_tokens;

    if (!r->prompt.n)
        return swl_fail(err, SWL_E_ARG, "the prompt is empty");
    if (r->prompt.n <= ctx)
        return SWL_OK;
    r->too_long = true;
    return swl_fail(err, SWL_E_BUDGET, "the prompt has %d tokens, the context %d", r->prompt.n, ctx);
}

swl_status swl_request_create(swl_request **out, swl_engine *e, const swl_request_options *opt, swl_error *err)
{
    swl_status st = check_options(e, opt, err);
    swl_request *r = st ? NULL : swl_calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return st ? st : no_memory(err);
    r->engine = e;
    r->cancel = &r->own_cancel;
    r->o = *opt;
    r->rendered = opt->messages != NULL;
    r->o.raw |= !r->rendered;
    st = swl_prompt_make(&r->prompt, e, opt, err);
    r->usage.n_prompt = r->prompt.n;
    if (!st)
        st = copy_options(r, err);
    if (!st)
        st = swl_constraint_make(&r->grammar, e, &r->o, r->prompt.tools, err);
    r->lazy = swl_constraint_is_lazy(&r->o);
    r->o.allowed = NULL;
    if (!st)
        st = check_length(r, err);
    if (st && !r->too_long) {
        swl_request_free(r);
        return st;
    }
    *out = r;
    return st;
}

void swl_request_free(swl_request *r)
{
    if (!r)
        return;
    swl_prompt_deinit(&r->prompt);
    for (int32_t i = 0; r->stop && i < r->o.n_stop; i++)
        swl_free(r->stop[i]);
    swl_free(r->stop);
    swl_free(r->bias);
    swl_free(r->constraint);
    swl_answer_free(r->answer);
    swl_constraint_free(r);
    swl_free(r->ids);
    swl_free(r->out);
    swl_sbuf_deinit(&r->text);
    swl_sbuf_deinit(&r->reasoning);
    json_decref(r->calls);
    swl_free(r);
}

int32_t swl_request_n_prompt(const swl_request *r)
{
    return r->prompt.n;
}

const int32_t *swl_request_prompt(const swl_request *r)
{
    return r->prompt.ids;
}

const char *swl_request_text(const swl_request *r)
{
    return r->prompt.text;
}

void swl_request_cancel(swl_request *r)
{
    atomic_store(r->cancel, true);
}

void swl_request_end_reasoning(swl_request *r)
{
    atomic_store(&r->end_reasoning, true);
}
