/*
 * eval.c: swiftlet eval MODEL FILE: how well a model predicts a text, and how far the default arithmetic is from --exact.
 * The text is cut into windows of the context's length; each token is predicted from those before it in its window.
 */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "engine.h"
#include "input.h"
#include "output.h"

enum { PIECE = 64 }; /* tokens whose logits are in memory at once */

typedef struct sums {
    int64_t n;               /* predicted tokens */
    double nll;              /* sum of -log p(token) */
    int64_t right;           /* the likeliest token was the next */
    double nll_exact, kl;    /* with --against-exact: KL(exact || default) */
    int64_t right_exact, same_top;
} sums;

static int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++) {
        if (x[i] > x[best])
            best = i;
    }
    return best;
}

/* log of the sum of exp(x) */
static double log_sum(const float *x, int32_t n)
{
    double max = x[argmax(x, n)], sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

static void add_token(sums *s, const float *x, const float *exact, int32_t vocab, int32_t next)
{
    double z = log_sum(x, vocab), ze;
    int32_t top = argmax(x, vocab), top_exact;

    s->n++;
    s->nll += z - (double)x[next];
    s->right += top == next;
    if (!exact)
        return;
    ze = log_sum(exact, vocab);
    top_exact = argmax(exact, vocab);
    s->nll_exact += ze - (double)exact[next];
    s->right_exact += top_exact == next;
    s->same_top += top == top_exact;
    for (int32_t i = 0; i < vocab; i++) {
        double lp = (double)exact[i] - ze;

        s->kl += exp(lp) * (lp - ((double)x[i] - z));
    }
}

typedef struct evaluation {
    engine run, exact;       /* exact.model NULL: not asked for */
    float *logits, *logits_exact;
    int32_t vocab, window;
    sums s;
} evaluation;

static swl_status eval_piece(evaluation *v, const int32_t *ids, int32_t n, int32_t n_scored, swl_error *err)
{
    swl_status st = swl_session_eval(v->run.session, ids, n, SWL_LOGITS_ALL, v->logits, err);

    if (!st && v->exact.model)
        st = swl_session_eval(v->exact.session, ids, n, SWL_LOGITS_ALL, v->logits_exact, err);
    for (int32_t i = 0; i < n_scored && !st; i++) {
        int64_t at = (int64_t)i * v->vocab;

        add_token(&v->s, v->logits + at, v->exact.model ? v->logits_exact + at : NULL, v->vocab, ids[i + 1]);
    }
    return st;
}

static swl_status eval_ids(evaluation *v, const int32_t *ids, int64_t n, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int64_t at = 0; at + 1 < n && !st; at += v->window) {
        int64_t len = n - at < v->window ? n - at : v->window;

        swl_session_reset(v->run.session);
        if (v->exact.model)
            swl_session_reset(v->exact.session);
        for (int64_t i = 0; i + 1 < len && !st; i += PIECE) {
            int32_t k = (int32_t)(len - i < PIECE ? len - i : PIECE);

            st = eval_piece(v, ids + at + i, k, i + k < len ? k : k - 1, err);
        }
    }
    return st;
}

static void print_sums(const sums *s, bool exact, bool json)
{
    double n = (double)s->n;
    json_t *o;

    if (!json) {
        out_printf("tokens       %lld\nperplexity   %.4f\nnext token   %.2f %% right\n", (long long)s->n, exp(s->nll / n),
                   100.0 * (double)s->right / n);
        if (exact)
            out_printf("--exact      perplexity %.4f, %.2f %% right; same likeliest token %.2f %%; KL %.6f nats a token\n",
                       exp(s->nll_exact / n), 100.0 * (double)s->right_exact / n, 100.0 * (double)s->same_top / n, s->kl / n);
        return;
    }
    o = out_object();
    json_object_set_new(o, "tokens", json_integer(s->n));
    json_object_set_new(o, "nll", out_real(s->nll));
    json_object_set_new(o, "perplexity", out_real(exp(s->nll / n)));
    json_object_set_new(o, "right", out_real((double)s->right / n));
    if (exact) {
        json_object_set_new(o, "perplexity_exact", out_real(exp(s->nll_exact / n)));
        json_object_set_new(o, "right_exact", out_real((double)s->right_exact / n));
        json_object_set_new(o, "same_top", out_real((double)s->same_top / n));
        json_object_set_new(o, "kl", out_real(s->kl / n));
    }
    out_json(o);
}

static bool is(const char *path, mode_t kind)
{
    struct stat sb;

    return !stat(path, &sb) && (sb.st_mode & S_IFMT) == kind;
}

/* MODEL FILE as other commands have it, where the model may go by a name, or the other way round. */
static swl_status open_both(evaluation *v, const arguments *a, const char **file, swl_error *err)
{
    arguments exact = *a, plain = *a;
    const char *last = a->operands[a->n_operands - 1];
    const char *first = a->operands[0];
    bool model_first = a->n_operands == 2 && !is(first, S_IFREG) &&
                       (is(last, S_IFREG) || (is(first, S_IFDIR) && !is(last, S_IFDIR)));
    swl_status st;

    *file = model_first ? last : first;
    plain.operands += !model_first;
    plain.n_operands = a->n_operands - 1;
    exact = plain;
    exact.values[OPT_EXACT].on = true;
    st = engine_open_session(&v->run, &plain, true, err);
    if (!st && opt_on(a, OPT_AGAINST_EXACT))
        st = engine_open_session(&v->exact, &exact, true, err);
    if (st)
        return st;
    v->vocab = v->run.info.vocab;
    v->window = v->run.info.ctx_tokens;
    v->logits = malloc(sizeof(float) * PIECE * (size_t)v->vocab);
    v->logits_exact = malloc(sizeof(float) * PIECE * (size_t)v->vocab);
    return v->logits && v->logits_exact ? SWL_OK : fail(err, SWL_E_NOMEM, "out of memory for logits");
}

swl_status run_eval(const arguments *a, swl_error *err)
{
    evaluation v = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    int32_t *ids = NULL;
    int64_t n = 0;
    const char *file;
    swl_status st = open_both(&v, a, &file, err);

    if (!st)
        st = input_text(file, &text, &n_bytes, err);
    if (!st)
        st = swl_tokenizer_encode(v.run.tokenizer, text, n_bytes, SWL_ENCODE_PLAIN, &ids, &n, err);
    if (!st && n < 2)
        st = fail(err, SWL_E_ARG, "%s has %lld tokens, expected at least 2", file, (long long)n);
    if (!st)
        st = eval_ids(&v, ids, n, err);
    if (!st)
        print_sums(&v.s, v.exact.model, opt_on(a, OPT_JSON));
    swl_free(ids);
    free(text);
    free(v.logits);
    free(v.logits_exact);
    st = engine_close(&v.run, st, err);
    return engine_close(&v.exact, st, err);
}
