/*
 * walk_grammar.c: grammars as a filter, for check_grammar.py. The first argument is the tokenizer's directory. Each
 * input line is a JSON object, each output line its answer:
 *
 *     {"make": "schema" | "json" | "choice" | "tool", "of": schema | strings | tools, "name": ..., "xml": bool, "one":
 * bool}
 *         {} or {"status": "unsupported", "error": message}
 *     {"walk": seed, "tokens": about how many}   random allowed tokens up to a stop token
 *         {"text": bytes as Latin-1, "n": tokens, "faults": differences of mask and single answers}
 *     {"read": text, "bytes": bool}   the text's tokens (or each byte's token), one after the other
 *         {"read": bytes that were allowed, "complete": bool, "closed": bool}
 *
 * With --bench instead: what masks and single answers cost, for a schema (a file) or a few of our own.
 */
#define _POSIX_C_SOURCE 200809L /* getline, clock_gettime */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "text/grammar.h"
#include "text/tokenizer_impl.h"

static swl_tokenizer *tokenizer;
static swl_grammar *grammar;
static uint32_t *mask;
static int32_t n_tokens;

/* ---- randomness ---- */

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return n ? (uint32_t)((state >> 33) % n) : 0;
}

static bool has(int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* ---- making ---- */

static swl_status make(const json_t *in, swl_error *err)
{
    const char *kind = json_string_value(json_object_get(in, "make"));
    const json_t *of = json_object_get(in, "of");

    swl_grammar_free(grammar);
    grammar = NULL;
    if (!strcmp(kind, "json"))
        return swl_grammar_json(&grammar, tokenizer, err);
    if (!strcmp(kind, "schema"))
        return swl_grammar_schema(&grammar, tokenizer, of, err);
    if (!strcmp(kind, "choice"))
        return swl_grammar_choice(&grammar, tokenizer, of, err);
    return swl_grammar_tool(&grammar, tokenizer, of, json_string_value(json_object_get(in, "name")),
                            json_is_true(json_object_get(in, "xml")) ? SWL_CALL_XML : SWL_CALL_JSON,
                            json_is_true(json_object_get(in, "one")), err);
}

/* ---- walking ---- */

typedef struct walk {
    swl_grammar_state *s;
    char *text;
    size_t n_text, cap;
    int32_t n, n_max, faults;
    const char *pending; /* the rest of what is being spelled to come to an end */
} walk;

static void put(walk *w, int32_t id)
{
    int32_t n;
    const char *p = swl_tokenizer_token(tokenizer, id, &n);

    if (w->n_text + (size_t)n + 1 > w->cap) {
        w->cap = 2 * (w->n_text + (size_t)n + 1);
        w->text = realloc(w->text, w->cap);
    }
    memcpy(w->text + w->n_text, p, (size_t)n);
    w->n_text += (size_t)n;
}

/* Every answer to a single question is that of the mask, at least for some of them. */
static void compare(walk *w)
{
    bool all = below(16) == 0;

    for (int32_t i = 0; i < (all ? n_tokens : 24); i++) {
        int32_t id = all ? i : (int32_t)below((uint32_t)n_tokens);

        w->faults += swl_grammar_allows(w->s, id) != has(id);
    }
}

static int32_t byte_id(char c)
{
    return tokenizer->byte_ids[(uint8_t)c];
}

/* A token that leads to an end. */
static int32_t closing(walk *w)
{
    static const char *const ends[] = {"\n</parameter>", "\n</function>", "\"", "}", "]"};

    if (w->pending && *w->pending && has(byte_id(*w->pending)))
        return byte_id(*w->pending++);
    w->pending = NULL;
    if (w->n > w->n_max && below(4) == 0) { /* what is missing may be any character */
        int32_t id = byte_id((char)(' ' + below(95)));

        return has(id) ? id : -1;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (has(byte_id(ends[i][0]))) {
            w->pending = ends[i] + 1;
            return byte_id(ends[i][0]);
        }
    return -1;
}

static int32_t any(void)
{
    int32_t n = 0, chosen = -1, word;

    for (int32_t i = 0; i < (n_tokens + 31) / 32; i++)
        for (uint32_t bits = mask[i]; bits; bits &= bits - 1) {
            word = i * 32 + __builtin_ctz(bits);
            if (!below((uint32_t)++n))
                chosen = word;
        }
    return chosen;
}

static int32_t choose(walk *w)
{
    uint32_t close = w->n > w->n_max ? 90 : 25;
    int32_t id = -1;

    if (w->pending || below(100) < close)
        id = closing(w);
    return id >= 0 ? id : any();
}

static bool at_end(walk *w)
{
    bool closed, complete = swl_grammar_complete(w->s, &closed);

    for (int32_t id = 0; id < n_tokens; id++)
        if (swl_tokenizer_is_stop(tokenizer, id) && has(id) != complete)
            w->faults++;
    return complete && (closed || below(3) == 0);
}

static json_t *latin1(const char *p, size_t n)
{
    char *out = malloc(2 * n + 1);
    size_t m = 0;
    json_t *v;

    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];

        if (c >= 0x80)
            out[m++] = (char)(0xC0 | c >> 6);
        out[m++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
    }
    v = json_stringn(out, m);
    free(out);
    return v;
}

static json_t *random_walk(const json_t *in)
{
    walk w = {.n_max = (int32_t)json_integer_value(json_object_get(in, "tokens"))};
    swl_error err;
    json_t *out;
    int32_t id;
    bool ended = false;

    state = (uint64_t)json_integer_value(json_object_get(in, "walk")) * 2654435761U + 1;
    if (swl_grammar_begin(&w.s, grammar, &err))
        return json_pack("{s:s}", "error", err.message);
    for (; w.n < w.n_max * 4 + 600; w.n++) {
        swl_grammar_mask(w.s, mask);
        compare(&w);
        ended = at_end(&w);
        if (ended)
            break;
        id = choose(&w);
        if (id < 0 || (swl_tokenizer_is_stop(tokenizer, id) && (ended = true))) {
            w.faults += id < 0;
            break;
        }
        if (swl_grammar_accept(w.s, id, &err)) {
            w.faults++;
            break;
        }
        put(&w, id);
    }
    out = json_pack("{s:o, s:i, s:i, s:b}", "text", latin1(w.text ? w.text : "", w.n_text), "n", (int)w.n, "faults",
                    (int)w.faults, "ended", (int)ended);
    free(w.text);
    swl_grammar_end(w.s);
    return out;
}

/* ---- reading ---- */

static int64_t tokens_of(const char *p, size_t n, bool bytes, int32_t **ids)
{
    int64_t n_ids = 0;

    if (!bytes) {
        swl_tokenizer_encode(tokenizer, p, n, 0, ids, &n_ids, NULL);
        return n_ids;
    }
    *ids = swl_calloc(n + 1, sizeof **ids);
    for (size_t i = 0; i < n; i++)
        (*ids)[n_ids++] = byte_id(p[i]);
    return n_ids;
}

static json_t *read_text(const json_t *in)
{
    const json_t *text = json_object_get(in, "read");
    swl_grammar_state *s;
    int32_t *ids = NULL, n_bytes;
    int64_t n, read = 0, i = 0;
    swl_error err;
    bool complete, closed;

    if (swl_grammar_begin(&s, grammar, &err))
        return json_pack("{s:s}", "error", err.message);
    n = tokens_of(json_string_value(text), json_string_length(text), json_is_true(json_object_get(in, "bytes")), &ids);
    for (; i < n; i++) {
        bool allowed = swl_grammar_allows(s, ids[i]);

        swl_grammar_mask(s, mask);
        if (allowed != has(ids[i]))
            read = INT32_MIN;
        if (swl_grammar_accept(s, ids[i], &err))
            break;
        swl_tokenizer_token(tokenizer, ids[i], &n_bytes);
        read += n_bytes;
    }
    complete = swl_grammar_complete(s, &closed) && i == n;
    swl_free(ids);
    swl_grammar_end(s);
    return json_pack("{s:I, s:b, s:b}", "read", (json_int_t)read, "complete", (int)complete, "closed", (int)closed);
}

/* ---- measuring ---- */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may be at work on this machine */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

typedef struct cost {
    double sum, max;
    int32_t n;
} cost;

static void note(cost *c, double us)
{
    c->sum += us;
    c->max = us > c->max ? us : c->max;
    c->n++;
}

static void print_cost(const char *name, const char *what, const cost *c, double first)
{
    printf("%-12s %-7s %9.2f us on average, %9.1f at most, %9.1f the first time (%d)\n", name, what,
           c->n ? c->sum / c->n : 0, c->max, first, (int)c->n);
}

static void bench_one(const char *name, const json_t *in)
{
    cost masks = {0}, allows = {0}, accepts = {0};
    double t = now_us(), first = 0, made;
    swl_error err;

    if (make(in, &err)) {
        printf("%-12s %s\n", name, err.message);
        return;
    }
    made = now_us() - t;
    t = now_us();
    swl_grammar_free(grammar);
    grammar = NULL;
    make(in, &err);
    printf("%-12s made in %.1f us, again in %.1f us\n", name, made, now_us() - t);
    for (int round = 0; round < 40; round++) {
        walk w = {.n_max = 150};

        state = (uint64_t)round + 1;
        swl_grammar_begin(&w.s, grammar, NULL);
        for (; w.n < 2000; w.n++) {
            bool closed;
            int32_t id;

            t = now_us();
            swl_grammar_mask(w.s, mask);
            t = now_us() - t;
            if (round)
                note(&masks, t);
            else
                first = t > first ? t : first;
            if (swl_grammar_complete(w.s, &closed) && closed)
                break;
            id = choose(&w);
            if (id < 0 || swl_tokenizer_is_stop(tokenizer, id))
                break;
            t = now_us();
            for (int i = 0; i < 16; i++)
                swl_grammar_allows(w.s, i ? (int32_t)below((uint32_t)n_tokens) : id);
            note(&allows, (now_us() - t) / 16);
            t = now_us();
            swl_grammar_accept(w.s, id, NULL);
            note(&accepts, now_us() - t);
        }
        swl_grammar_end(w.s);
    }
    print_cost(name, "mask", &masks, first);
    print_cost(name, "allows", &allows, 0);
    print_cost(name, "accept", &accepts, 0);
}

static int bench(const char *file)
{
    static const char *const cases[][2] = {
        {"json", "{\"make\": \"json\"}"},
        {"schema",
         "{\"make\": \"schema\", \"of\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, "
         "\"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150}, \"kind\": {\"enum\": [\"a\", \"bb\"]}, "
         "\"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 20}}, "
         "\"when\": {\"type\": \"string\", \"format\": \"date-time\"}, \"next\": {\"anyOf\": [{\"$ref\": \"#\"}, "
         "{\"type\": \"null\"}]}}, \"required\": [\"name\", \"age\", \"kind\", \"tags\", \"when\", \"next\"], "
         "\"additionalProperties\": false}}"},
        {"pattern", "{\"make\": \"schema\", \"of\": {\"type\": \"string\", \"pattern\": \"^.{1,1000}$\"}}"},
        {"call", "{\"make\": \"tool\", \"xml\": true, \"of\": [{\"type\": \"function\", \"function\": {\"name\": "
                 "\"write_file\", \"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": "
                 "\"string\"}, \"content\": {\"type\": \"string\"}, \"mode\": {\"type\": \"integer\"}}, \"required\": "
                 "[\"path\", \"content\"]}}}]}"}};
    json_t *in, *schema;

    if (file) {
        schema = json_load_file(file, 0, NULL);
        in = json_pack("{s:s, s:o}", "make", "schema", "of", schema);
        bench_one(file, in);
        json_decref(in);
    }
    for (size_t i = 0; !file && i < sizeof cases / sizeof *cases; i++) {
        in = json_loads(cases[i][1], 0, NULL);
        bench_one(cases[i][0], in);
        json_decref(in);
    }
    return 0;
}

/* ---- main ---- */

static json_t *answer(const json_t *in)
{
    swl_error err;
    swl_status st;

    if (json_object_get(in, "make")) {
        st = make(in, &err);
        return st ? json_pack("{s:s, s:s}", "status", swl_status_name(st), "error", err.message) : json_object();
    }
    if (!grammar)
        return json_pack("{s:s}", "error", "no grammar");
    return json_object_get(in, "walk") ? random_walk(in) : read_text(in);
}

int main(int argc, char **argv)
{
    json_t *in, *out;
    char *line = NULL;
    size_t cap = 0;
    swl_error err;
    int rc = 0;

    if (argc < 2 || swl_tokenizer_open(&tokenizer, argv[1], &err)) {
        fprintf(stderr, "%s\n", argc < 2 ? "usage: walk_grammar DIR [--bench [SCHEMA]]" : err.message);
        return 2;
    }
    n_tokens = swl_tokenizer_n_tokens(tokenizer);
    mask = swl_calloc((size_t)(n_tokens + 31) / 32, sizeof *mask);
    if (argc > 2 && !strcmp(argv[2], "--bench"))
        rc = bench(argc > 3 ? argv[3] : NULL);
    while (argc == 2 && getline(&line, &cap, stdin) > 0) {
        in = json_loads(line, JSON_ALLOW_NUL, NULL);
        out = answer(in);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    swl_grammar_free(grammar);
    swl_free(mask);
    swl_tokenizer_close(tokenizer);
    return rc;
}
