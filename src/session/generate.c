/* generate.c: the loop that turns logits into tokens and tokens into text. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "session/session.h"

void swl_generate_options_init(swl_generate_options *opt)
{
    memset(opt, 0, sizeof *opt);
    swl_sampling_init(&opt->sampling);
}

typedef struct run {
    swl_session *s;
    const swl_generate_options *opt;
    swl_generate_result *res;
    swl_rng rng;
    swl_detok detok;
    char *text;                /* room for the text of one token */
    size_t text_bytes;
} run;

enum { MARK_EVERY = 4096 }; /* tokens of a long prompt */

/* Where the last message of the prompt begins: the next turn may render what comes after it in another way (thinking is
 * left out of history), so a mark goes here. 0: nowhere. */
static int32_t last_message(const run *r)
{
    int32_t border = r->opt->tokenizer ? swl_tokenizer_special(r->opt->tokenizer, "<|im_start|>") : -1;
    int32_t i = r->opt->n_prompt;

    while (border >= 0 && --i > 0)
        if (r->opt->prompt[i] == border)
            return i;
    return 0;
}

/* The end of the next piece of the prompt: a chunk, cut where a mark is due. */
static int32_t next_end(const run *r, int32_t done, int32_t border)
{
    int32_t n = r->opt->n_prompt, end = done + r->s->model->chunk_tokens;
    int32_t mark = (done / MARK_EVERY + 1) * MARK_EVERY;

    end = end < n ? end : n;
    end = mark < end ? mark : end;
    return done < border && border < end ? border : end;
}

/* Runs the prompt from `done` on, piece by piece, so that the caller hears of it and can stop it. */
static swl_status read_prompt(run *r, int32_t done, swl_error *err)
{
    const swl_generate_options *o = r->opt;
    int32_t border = last_message(r), end;
    swl_status st = SWL_OK;

    for (; done < o->n_prompt && !st; done = end) {
        if (o->on_prompt && !o->on_prompt(o->arg, done, o->n_prompt)) {
            r->res->finish = SWL_FINISH_CANCELLED;
            return SWL_OK;
        }
        end = next_end(r, done, border);
        st = swl_session_eval(r->s, o->prompt + done, end - done, end == o->n_prompt ? SWL_LOGITS_LAST : SWL_LOGITS_NONE,
                              r->s->logits, err);
        if (!st && (end == border || end == o->n_prompt || end % MARK_EVERY == 0))
            st = swl_session_mark(r->s, err);
        if (!st)
            r->res->n_prompt = end;
    }
    if (!st && o->on_prompt && !o->on_prompt(o->arg, o->n_prompt, o->n_prompt))
        r->res->finish = SWL_FINISH_CANCELLED;
    return st;
}

/* With `whole`: goes back to what the session shares with the prompt. Returns how much of the prompt is there already; at
 * least the last token must run when its logits are not kept. */
static int32_t reuse(swl_session *s, const swl_generate_options *o)
{
    int32_t keep;

    if (!o->whole)
        return 0;
    keep = swl_session_rewind(s, swl_session_match(s, o->prompt, o->n_prompt));
    if (keep == o->n_prompt && !s->has_logits)
        keep = swl_session_rewind(s, keep - 1);
    return keep;
}

/* Hands a token's whole characters to the caller; false: stop. */
static bool emit(run *r, int32_t id)
{
    const swl_generate_options *o = r->opt;
    int32_t n = 0;
    const char *bytes = o->tokenizer && !swl_tokenizer_is_special(o->tokenizer, id)
                            ? swl_tokenizer_token(o->tokenizer, id, &n) : NULL;
    size_t got;

    if (!o->on_token)
        return true;
    if (3 * ((size_t)n + 4) > r->text_bytes) {
        char *p = swl_realloc(r->text, 3 * ((size_t)n + 4), 1);

        if (!p)
            return false;
        r->text = p;
        r->text_bytes = 3 * ((size_t)n + 4);
    }
    got = bytes ? swl_detok_push(&r->detok, bytes, (size_t)n, r->text) : 0;
    return o->on_token(o->arg, id, r->text, got);
}

/* Ids past the tokenizer's are padding rows of the head: never drawn. */
static void mask_padding(run *r)
{
    int32_t vocab = r->s->model->config->vocab, i;

    if (r->opt->tokenizer)
        for (i = swl_tokenizer_n_tokens(r->opt->tokenizer); i < vocab; i++)
            r->s->logits[i] = -INFINITY;
}

static swl_status next_token(run *r, swl_error *err)
{
    const swl_generate_options *o = r->opt;
    swl_session *s = r->s;
    bool full = s->state->n_tokens == s->state->ctx_tokens;
    int32_t id;

    if (atomic_load(&s->cancel)) {
        r->res->finish = SWL_FINISH_CANCELLED;
        return SWL_OK;
    }
    mask_padding(r);
    id = swl_sample(s->logits, s->model->config->vocab, &o->sampling, &r->rng, s->scratch);
    if (id < 0)
        return swl_fail(err, SWL_E_FAIL, "the model produced no finite logit at position %d", s->state->n_tokens);
    if (!o->ignore_stop && o->tokenizer && swl_tokenizer_is_stop(o->tokenizer, id)) {
        r->res->finish = SWL_FINISH_STOP;
        return SWL_OK;
    }
    r->res->n_generated++;
    if (!emit(r, id))
        r->res->finish = SWL_FINISH_CANCELLED;
    else if (o->n_max > 0 && r->res->n_generated == o->n_max)
        r->res->finish = SWL_FINISH_LENGTH;
    else if (full)
        r->res->finish = SWL_FINISH_CONTEXT;
    if (full) /* whatever ends it: the state has no room for this token */
        return SWL_OK;
    return swl_session_eval(s, &id, 1, r->res->finish ? SWL_LOGITS_NONE : SWL_LOGITS_LAST, s->logits, err);
}

swl_status swl_generate(swl_session *s, const swl_generate_options *opt, swl_generate_result *res, swl_error *err)
{
    run r = {.s = s, .opt = opt, .res = res};
    char tail[12];
    double t0 = swl_seconds(), t1;
    swl_status st;

    memset(res, 0, sizeof *res);
    if (opt->n_prompt < 1)
        return swl_fail(err, SWL_E_ARG, "the prompt is empty");
    st = swl_session_admits(s, opt->prompt, opt->n_prompt, opt->whole ? 0 : s->state->n_tokens, err);
    if (st) /* before the first piece runs, which may take minutes */
        return st;
    swl_rng_init(&r.rng, opt->sampling.seed);
    swl_detok_init(&r.detok);
    res->n_prompt = res->n_cached = reuse(s, opt);
    st = read_prompt(&r, res->n_cached, err);
    t1 = swl_seconds();
    while (!st && !res->finish)
        st = next_token(&r, err);
    if (st == SWL_E_CANCELLED) { /* no fault: the conversation goes back to its last mark */
        swl_session_rewind(s, s->state->n_tokens);
        res->finish = SWL_FINISH_CANCELLED;
        st = SWL_OK;
    }
    res->prompt_seconds = t1 - t0;
    res->generate_seconds = swl_seconds() - t1;
    if (!st && opt->on_token)
        opt->on_token(opt->arg, -1, tail, swl_detok_flush(&r.detok, tail));
    swl_free(r.text);
    return st;
}
