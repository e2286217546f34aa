/* serve.c: swiftlet serve: options read, the model opened, the server started. What is served is server/'s matter. */
#define _XOPEN_SOURCE 700
#include "commands.h"
#include "output.h"

#ifdef SWL_HAVE_SERVER
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../server/server.h"
#include "engine.h"

#define WORDS_MAX 64

/* Several words in one option, or the option several times. */
typedef struct words {
    char *copies[LIST_MAX + 1];
    const char *items[WORDS_MAX];
    int n_copies, n;
} words;

typedef struct serving {
    const arguments *a;
    const char *dir;
    char id[256];
    swl_model *model;
    swl_tokenizer *tokenizer;
    swl_engine *engine;
    words keys, origins, hosts;
} serving;

static swl_status add_words(words *w, const char *text, const char *option, swl_error *err)
{
    char *copy = strdup(text), *save = NULL;

    if (!copy)
        return fail(err, SWL_E_NOMEM, "out of memory");
    w->copies[w->n_copies++] = copy;
    for (char *p = strtok_r(copy, ", \t\r\n", &save); p; p = strtok_r(NULL, ", \t\r\n", &save)) {
        if (w->n == WORDS_MAX)
            return fail(err, SWL_E_ARG, "--%s has more than %d values", option, WORDS_MAX);
        w->items[w->n++] = p;
    }
    return SWL_OK;
}

static swl_status read_words(words *w, const arguments *a, option_id id, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int i = 0; !st && i < a->values[id].n_list; i++)
        st = add_words(w, a->values[id].list[i], option_rows[id].name, err);
    return st;
}

static swl_status read_key_file(words *w, const char *path, swl_error *err)
{
    FILE *f = path ? fopen(path, "r") : NULL;
    char text[8192];
    size_t n;

    if (!path)
        return SWL_OK;
    if (!f) {
        fail(err, SWL_E_NOT_FOUND, "--api-key-file: cannot read %s", path);
        return SWL_E_NOT_FOUND;
    }
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    if (n == sizeof text - 1 || strlen(text) != n)
        return fail(err, SWL_E_ARG, "--api-key-file: %s holds more than keys", path);
    n = (size_t)w->n;
    if (add_words(w, text, "api-key-file", err))
        return err->code;
    return (size_t)w->n > n ? SWL_OK : fail(err, SWL_E_ARG, "--api-key-file: %s holds no key", path);
}

static void free_words(words *w)
{
    for (int i = 0; i < w->n_copies; i++)
        free(w->copies[i]);
}

/* The name for clients: --alias, else the directory's without .qpack. */
static void name_model(serving *s)
{
    const char *alias = opt_text(s->a, OPT_ALIAS);
    char real[PATH_MAX];
    const char *base;
    size_t n;

    if (!realpath(s->dir, real))
        snprintf(real, sizeof real, "%s", s->dir);
    base = strrchr(real, '/');
    base = alias && *alias ? alias : base && base[1] ? base + 1 : real;
    snprintf(s->id, sizeof s->id, "%.255s", base);
    n = strlen(s->id);
    if (!alias && n > 6 && !strcmp(s->id + n - 6, ".qpack"))
        s->id[n - 6] = 0;
}

/* A part of the memory is for requests: bodies, what is made of them, answers. Who says --max-body gets what that takes. */
static uint64_t request_bytes(const arguments *a, uint64_t limit)
{
    const uint64_t mib = 1 << 20;
    uint64_t bytes = limit / 24 < 512 * mib ? limit / 24 : 512 * mib;

    if (a->values[OPT_MAX_BODY].origin != FROM_BUILTIN)
        bytes = a->values[OPT_MAX_BODY].size < limit / 64 ? 64 * a->values[OPT_MAX_BODY].size : limit;
    bytes = bytes > limit / 4 ? limit / 4 : bytes;
    return bytes < 32 * mib ? 32 * mib : bytes;
}

/* The figure that would do: of more memory, requests get more too. */
static swl_status too_little(const arguments *a, const swl_model_options *o, swl_error *err)
{
    const uint64_t mib = 1 << 20;
    swl_memory_plan p;
    uint64_t model, need;

    if (swl_memory_plan_make(&p, o, err) != SWL_E_BUDGET)
        return SWL_E_BUDGET;
    model = need = p.floor - o->program_bytes;
    while (model + request_bytes(a, need) > need)
        need = (model + request_bytes(a, need) + mib - 1) / mib * mib;
    return fail(err, SWL_E_BUDGET, "a memory budget of %.1f MiB is not enough for this model with a context of %d tokens and what a "
                "server's requests take: it needs %llu MiB", (double)p.limit / (double)mib, (int)p.ctx_tokens,
                (unsigned long long)(need / mib));
}

/* As many conversations at a time as were asked for, or as fit. */
static swl_status open_model(serving *s, swl_server_model *out, swl_error *err)
{
    int32_t asked = opt_int(s->a, OPT_PARALLEL), *n = &out->parallel;
    swl_model_options o;
    swl_memory_plan plan;
    swl_status st = model_options(&o, s->a, s->dir, err);

    if (st)
        return st;
    memory_remark(out->remarks[0], sizeof out->remarks[0], s->a);
    o.n_sessions = 1;
    st = swl_memory_plan_make(&plan, &o, err);
    if (st && st != SWL_E_BUDGET)
        return st;
    out->request_bytes = o.program_bytes = request_bytes(s->a, plan.limit);
    *n = asked;
    for (;; --*n) {
        o.n_sessions = *n;
        st = swl_model_open(&s->model, &o, err);
        if (st != SWL_E_BUDGET || *n == 1)
            break;
    }
    if (st == SWL_E_BUDGET)
        return too_little(s->a, &o, err);
    if (st)
        return st;
    if (*n < asked)
        snprintf(out->remarks[1], sizeof out->remarks[1], "--parallel: %d conversations at a time, not %d: more do not fit in the memory of "
                 "the process", (int)*n, (int)asked);
    return SWL_OK;
}

static swl_status open_engine(serving *s, const swl_server_model *to, swl_error *err)
{
    swl_engine_options o;

    swl_engine_options_init(&o);
    o.model = s->model;
    o.tokenizer = s->tokenizer;
    o.dir = s->dir;
    o.session_dir = opt_text(s->a, OPT_SESSION_DIR);
    o.strip_thinking = !opt_on(s->a, OPT_PRESERVE_THINKING);
    o.parse_special = opt_on(s->a, OPT_PARSE_SPECIAL);
    o.on_saved = to->on_saved;
    o.arg = to->saved_arg;
    return swl_engine_open(&s->engine, &o, err);
}

static swl_status on_load(void *arg, swl_server_model *out, swl_error *err)
{
    serving *s = arg;
    swl_status st;

    out->dir = s->dir;
    out->id = s->id;
    st = open_model(s, out, err);
    if (!st)
        st = swl_tokenizer_open(&s->tokenizer, s->dir, err);
    if (!st)
        st = open_engine(s, out, err);
    if (st)
        return st;
    out->model = s->model;
    out->tokenizer = s->tokenizer;
    out->engine = s->engine;
    swl_sampling_init(&out->sampling);
    out->sampling.temperature = 1; /* for models that publish nothing */
    st = swl_sampling_load(&out->sampling, s->dir, err);
    /* Penalties only when a request asks for them. */
    out->sampling.repetition_penalty = 1;
    out->sampling.presence_penalty = out->sampling.frequency_penalty = 0;
    return st;
}

static void on_unload(void *arg)
{
    serving *s = arg;

    swl_engine_close(s->engine);
    swl_tokenizer_close(s->tokenizer);
    swl_model_close(s->model);
}

static void on_ready(void *arg, const char *url)
{
    (void)arg;
    out_printf("listening on %s\n", url);
}

static void on_log(void *arg, bool detail, const char *line)
{
    const serving *s = arg;

    if (!opt_on(s->a, OPT_QUIET) && (!detail || opt_on(s->a, OPT_VERBOSE)))
        note("%s", line);
}

static swl_reasoning_field reasoning_field(const char *name)
{
    return !strcmp(name, "reasoning") ? SWL_REASONING_PLAIN : !strcmp(name, "both") ? SWL_REASONING_BOTH :
           !strcmp(name, "none") ? SWL_REASONING_NONE : SWL_REASONING_CONTENT;
}

static swl_think think_level(const char *name)
{
    return !strcmp(name, "on") ? SWL_THINK_ON : !strcmp(name, "off") ? SWL_THINK_OFF : !strcmp(name, "low") ? SWL_THINK_LOW :
           !strcmp(name, "medium") ? SWL_THINK_MEDIUM : !strcmp(name, "high") ? SWL_THINK_HIGH : SWL_THINK_DEFAULT;
}

static void fill(swl_server_options *o, serving *s)
{
    const arguments *a = s->a;
    const char *hurry = getenv("SWIFTLET_TEST_HURRY"), *pulse = getenv("SWIFTLET_TEST_PULSE"); /* for the tests of this server */

    swl_server_options_init(o);
    o->host = opt_text(a, OPT_HOST);
    o->port = opt_int(a, OPT_PORT);
    o->keys = s->keys.items;
    o->n_keys = s->keys.n;
    o->origins = s->origins.items;
    o->n_origins = s->origins.n;
    o->hosts = s->hosts.items;
    o->n_hosts = s->hosts.n;
    o->insecure = opt_on(a, OPT_INSECURE);
    o->queue = opt_int(a, OPT_QUEUE);
    o->session_dir = opt_text(a, OPT_SESSION_DIR);
    o->ollama = opt_on(a, OPT_OLLAMA_API);
    o->reasoning_field = reasoning_field(opt_text(a, OPT_REASONING_FIELD));
    o->system_note = !strcmp(opt_text(a, OPT_SYSTEM_MERGE), "note");
    o->think = think_level(opt_text(a, OPT_THINK));
    o->no_web = !opt_on(a, OPT_WEB);
    o->no_slots = !opt_on(a, OPT_SLOTS_API);
    o->max_body = a->values[OPT_MAX_BODY].size;
    o->grace_ms = (int32_t)(a->values[OPT_GRACE].real * 1000);
    o->log_prompts = opt_on(a, OPT_LOG_PROMPTS);
    o->commit = commit_built();
    o->hurry = hurry ? atof(hurry) : 1;
    o->pulse = pulse ? atof(pulse) : 1;
    o->load = on_load;
    o->unload = on_unload;
    o->ready = on_ready;
    o->log = on_log;
    o->arg = s;
}

swl_status run_serve(const arguments *a, swl_error *err)
{
    serving s = {.a = a};
    swl_server_options o;
    swl_status st;
    int n_used;

    err_never_hang();
    s.dir = model_dir(a, &n_used);
    st = model_check(s.dir, err);
    if (!st)
        st = read_words(&s.keys, a, OPT_API_KEY, err);
    if (!st)
        st = read_key_file(&s.keys, opt_text(a, OPT_API_KEY_FILE), err);
    if (!st)
        st = read_words(&s.origins, a, OPT_CORS_ORIGINS, err);
    if (!st)
        st = read_words(&s.hosts, a, OPT_ALLOWED_HOSTS, err);
    if (!st) {
        name_model(&s);
        fill(&o, &s);
        st = swl_server_run(&o, err);
    }
    free_words(&s.keys);
    free_words(&s.origins);
    free_words(&s.hosts);
    return st;
}

#else

swl_status run_serve(const arguments *a, swl_error *err)
{
    (void)a;
    return fail(err, SWL_E_UNSUPPORTED, "this program was built without its server: install libevent and zlib, then build again");
}

#endif
