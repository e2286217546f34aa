/*
 * score_ids.c: token ids in, likelihood out, for the fixtures of the demo model. Each line of standard input is a list
 * of ids; each line of output is a JSON object: "nll", the sum of -log p over the tokens after the first (natural
 * logarithm, in double); "argmax", the best token after each; with --last also "last", the logits after the last one.
 *
 * usage: score_ids MODEL [--exact] [--last] [--threads N] [--level NAME] < ids
 */
#include <swiftlet/swiftlet.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const swl_error *err)
{
    fprintf(stderr, "score_ids: %s: %s%s%s\n", what, err->file, *err->file ? ": " : "", err->message);
    exit(2);
}

static void *must_realloc(void *p, size_t n)
{
    p = realloc(p, n);
    if (p == NULL) {
        fprintf(stderr, "score_ids: out of memory\n");
        exit(2);
    }
    return p;
}

/* The ids up to the end of the line; false at the end of the input. */
static bool read_line(int32_t **ids, int32_t *n)
{
    int c = getchar();
    int32_t value = -1;

    *ids = NULL;
    *n = 0;
    if (c == EOF)
        return false;
    for (;; c = getchar()) {
        if (c >= '0' && c <= '9') {
            value = (value < 0 ? 0 : value * 10) + (c - '0');
            continue;
        }
        if (value >= 0) {
            *ids = must_realloc(*ids, (size_t)(*n + 1) * sizeof **ids);
            (*ids)[(*n)++] = value;
            value = -1;
        }
        if (c == '\n' || c == EOF)
            return true;
    }
}

static int32_t best_of(const float *row, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

static double minus_log_p(const float *row, int32_t n, int32_t id)
{
    double top = (double)row[best_of(row, n)], sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum += exp((double)row[i] - top);
    return log(sum) + top - (double)row[id];
}

static void print_scores(const float *logits, const int32_t *ids, int32_t n, int32_t vocab, bool last)
{
    double nll = 0;

    printf("{\"argmax\": [");
    for (int32_t i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * (size_t)vocab;

        printf("%s%d", i ? ", " : "", (int)best_of(row, vocab));
        if (i + 1 < n)
            nll += minus_log_p(row, vocab, ids[i + 1]);
    }
    printf("], \"nll\": %.10g", nll);
    for (int32_t i = 0; last && i < vocab; i++)
        printf("%s%.9g%s", i ? ", " : ", \"last\": [", (double)logits[(size_t)(n - 1) * (size_t)vocab + (size_t)i],
               i + 1 < vocab ? "" : "]");
    printf("}\n");
}

int main(int argc, char **argv)
{
    swl_model_options o;
    swl_model_info info;
    swl_model *m;
    swl_session *s;
    swl_error err;
    bool last = false;
    int32_t *ids, n;

    if (argc < 2) {
        fprintf(stderr, "usage: score_ids MODEL [--exact] [--last] [--threads N] [--level NAME] < ids\n");
        return 2;
    }
    swl_model_options_init(&o);
    o.path = argv[1];
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--exact") == 0)
            o.exact = true;
        else if (strcmp(argv[i], "--last") == 0)
            last = true;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            o.n_threads = (int32_t)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--level") == 0 && i + 1 < argc)
            o.cpu_level = argv[++i];
    }
    if (swl_model_open(&m, &o, &err) || swl_session_create(&s, m, &err))
        die("open", &err);
    swl_model_info_get(m, &info);
    while (read_line(&ids, &n)) {
        if (n > 0) {
            float *logits = must_realloc(NULL, (size_t)n * (size_t)info.vocab * sizeof *logits);

            swl_session_reset(s);
            if (swl_session_eval(s, ids, n, SWL_LOGITS_ALL, logits, &err))
                die("eval", &err);
            print_scores(logits, ids, n, info.vocab, last);
            free(logits);
        }
        free(ids);
    }
    swl_session_free(s);
    swl_model_close(m);
    return 0;
}
