/* engine.c: opening models, and choosing the sampling. */
#define _XOPEN_SOURCE 700
#include "engine.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "format.h"
#include "models.h"
#include "output.h"

static bool is_folder(const char *path)
{
    struct stat sb;

    return !stat(path, &sb) && S_ISDIR(sb.st_mode);
}

/* The only installed model; NULL when there are none or several. */
static const char *only_model(void)
{
    static char path[PLACE_PATH_MAX];
    int n;
    char **names = model_names(&n);
    swl_error ignored;
    const char *found = n == 1 && !model_by_name(path, names[0], &ignored) ? path : NULL;

    model_names_free(names, n);
    return found;
}

const char *model_dir(const arguments *a, int *n_used)
{
    static char path[PLACE_PATH_MAX];
    const option_value *v = &a->values[OPT_MODEL];
    bool by_operand = v->origin < FROM_OPTION && a->n_operands > 0;
    const char *typed = by_operand ? a->operands[0] : v->text;
    swl_error ignored;

    *n_used = by_operand ? 1 : 0;
    if (!typed)
        return only_model();
    return !is_folder(typed) && !model_by_name(path, typed, &ignored) ? path : typed;
}

/* No model was named, and there is not exactly one. */
static swl_status which_model(swl_error *err)
{
    char list[512] = "";
    int n;
    char **names = model_names(&n);

    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);

        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[i]);
    }
    model_names_free(names, n);
    if (n)
        return fail(err, SWL_E_ARG, "several models are installed; name one: %s", list);
    return fail(err, SWL_E_NOT_FOUND, "no model is installed; name a model's directory, or get one with \"swiftlet pull ORG/NAME\"");
}

/* Why there is no such model, and what to do about it. */
static swl_status no_model(const char *dir, swl_error *err)
{
    char path[PLACE_PATH_MAX];
    const char *slash = strchr(dir, '/');

    if (!model_by_name(path, dir, err) || strstr(err->message, "several"))
        return SWL_E_NOT_FOUND;
    if (slash && slash > dir && slash[1] && !strchr(slash + 1, '/'))
        fail(err, SWL_E_NOT_FOUND, "there is no model directory %s, and no model of that name is installed; get it with "
             "\"swiftlet pull %s\"", dir, dir);
    else
        fail(err, SWL_E_NOT_FOUND, "there is no model directory %s, and no model of that name is installed; name a .qpack "
             "container or a checkpoint's directory", dir);
    snprintf(err->file, sizeof err->file, "%s", dir);
    return SWL_E_NOT_FOUND;
}

swl_status model_check(const char *dir, swl_error *err)
{
    if (!dir)
        return which_model(err);
    return is_folder(dir) ? SWL_OK : no_model(dir, err);
}

/* Where a probe of the drive leaves what it found: a file for each container, by name and place. */
static const char *probe_file(const char *dir)
{
    static char path[PLACE_PATH_MAX];
    char real[PATH_MAX], name[96];
    const char *base;
    uint32_t hash = 2166136261u; /* FNV-1a */
    swl_error ignored;

    if (!realpath(dir, real))
        return NULL;
    for (const char *p = real; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    base = strrchr(real, '/');
    snprintf(name, sizeof name, "drives/%.60s-%08x", base ? base + 1 : real, hash);
    if (place_path(path, PLACE_CACHE, name, &ignored))
        return NULL;
    place_make_parents(path);
    return path;
}

swl_status model_options(swl_model_options *o, const arguments *a, const char *dir, swl_error *err)
{
    const char *direct = opt_text(a, OPT_DIRECT), *io = opt_text(a, OPT_IO);

    swl_status st = model_check(dir, err);

    if (st)
        return st;
    swl_model_options_init(o);
    o->path = dir;
    o->memory_bytes = a->values[OPT_MEMORY].size;
    o->n_threads = opt_int(a, OPT_THREADS);
    o->chunk_tokens = opt_int(a, OPT_PREFILL_CHUNK);
    o->ctx_tokens = opt_int(a, OPT_CTX);
    if (a->values[OPT_CACHE_GB].set)
        o->pool_bytes = (uint64_t)(a->values[OPT_CACHE_GB].real * 1e9);
    o->exact = opt_on(a, OPT_EXACT);
    o->cpu_level = opt_text(a, OPT_CPU_MASK);
    o->io = strcmp(io, "auto") ? io : NULL;
    o->io_direct = !strcmp(direct, "on") - !strcmp(direct, "off");
    o->io_depth = opt_int(a, OPT_IO_DEPTH);
    o->io_cache = probe_file(dir);
    o->lookahead = opt_int(a, OPT_LOOKAHEAD);
    o->cache_policy = opt_text(a, OPT_CACHE_POLICY);
    o->no_checksums = !opt_on(a, OPT_CHECKSUMS);
    return SWL_OK;
}

static void describe(const engine *e)
{
    char dense[16], pool[16];

    note("%s (%s): %d layers, %d threads, %s kernels, %s dense, expert pool %s, context %d tokens", e->info.family,
         e->info.container, e->info.n_layers, e->info.n_threads, e->info.cpu_level,
         format_bytes(dense, e->info.dense_bytes), format_bytes(pool, e->info.pool_bytes), e->info.ctx_tokens);
}

bool memory_remark(char *to, size_t size, const arguments *a)
{
    uint64_t asked = a->values[OPT_MEMORY].size, most;
    swl_machine_info m;
    bool group;

    if (!asked || swl_machine_look(NULL, false, &m, NULL))
        return false;
    group = m.group_limit && (!m.memory_total || m.group_limit < m.memory_total);
    most = group ? m.group_limit : m.memory_total;
    if (!most || asked <= most)
        return false;
    snprintf(to, size, "--memory: %llu MiB is more than the %llu MiB that %s; where that much is taken, the system %s the program",
             (unsigned long long)(asked >> 20), (unsigned long long)(most >> 20),
             group ? "the control group of this process may have" : "this machine has", group ? "ends" : "swaps, or ends");
    return true;
}

/* --cache-gb bounds the pool; it cannot make it larger than the memory of the process allows. */
static void note_pool(const engine *e, uint64_t asked)
{
    swl_memory_plan p;
    char got[16], wanted[16];

    swl_memory_plan_get(e->model, &p);
    if (p.n_experts && p.pool < p.pool_all && asked > p.pool + p.pool_all / (uint64_t)p.n_experts)
        note("--cache-gb: the expert pool gets %s, not %s: more does not fit in the memory of the process",
             format_bytes(got, p.pool), format_bytes(wanted, asked));
}

/* At a terminal: what takes its time. It vanishes when the model is there. */
static void show_loading(const arguments *a, const swl_model_options *o)
{
    swl_memory_plan plan;
    char dense[16];

    if (stderr_is_terminal() && !opt_on(a, OPT_QUIET) && !opt_on(a, OPT_JSON) && !swl_memory_plan_make(&plan, o, NULL))
        progress_show("loading %s of weights", format_bytes(dense, plan.dense));
}

static swl_status open_model(engine *e, const arguments *a, bool describe_only, swl_error *err)
{
    swl_model_options options;
    char remark[REMARK_BYTES];
    swl_status st;
    int n_used;

    memset(e, 0, sizeof *e);
    e->dir = model_dir(a, &n_used);
    st = model_options(&options, a, e->dir, err);
    if (st)
        return st;
    if (!describe_only && !opt_on(a, OPT_QUIET) && memory_remark(remark, sizeof remark, a))
        note("%s", remark);
    if (opt_on(a, OPT_GPU) && !opt_on(a, OPT_QUIET))
        note("--gpu: this version has no GPU engine; computing on the processor");
    options.describe_only = describe_only;
    if (!describe_only)
        show_loading(a, &options);
    st = swl_model_open(&e->model, &options, err);
    progress_clear();
    if (st)
        return st;
    swl_model_info_get(e->model, &e->info);
    if (opt_text(a, OPT_RECORD_ROUTES))
        st = swl_routes_record(e->model, opt_text(a, OPT_RECORD_ROUTES), err);
    if (st)
        return st;
    if (!opt_on(a, OPT_QUIET))
        note_pool(e, options.pool_bytes);
    if (opt_on(a, OPT_VERBOSE))
        describe(e);
    return SWL_OK;
}

swl_status engine_open_model(engine *e, const arguments *a, swl_error *err)
{
    return open_model(e, a, false, err);
}

swl_status engine_describe(engine *e, const arguments *a, swl_error *err)
{
    return open_model(e, a, true, err);
}

static swl_status open_tokenizer(engine *e, const arguments *a, bool describe_only, bool needed, swl_error *err)
{
    swl_status st = open_model(e, a, describe_only, err);

    if (!st)
        st = swl_tokenizer_open(&e->tokenizer, e->dir, err);
    return e->model && st == SWL_E_NOT_FOUND && !needed ? SWL_OK : st;
}

swl_status engine_open_session(engine *e, const arguments *a, bool needs_tokenizer, swl_error *err)
{
    swl_status st = open_tokenizer(e, a, false, needs_tokenizer, err);

    return st ? st : swl_session_create(&e->session, e->model, err);
}

static swl_status open_chat(engine *e, const arguments *a, bool describe_only, swl_error *err)
{
    swl_status st = open_tokenizer(e, a, describe_only, true, err);
    swl_engine_options o;

    if (st)
        return st;
    swl_engine_options_init(&o);
    o.model = e->model;
    o.tokenizer = e->tokenizer;
    o.dir = e->dir;
    return swl_engine_open(&e->engine, &o, err);
}

swl_status engine_open_chat(engine *e, const arguments *a, swl_error *err)
{
    return open_chat(e, a, false, err);
}

swl_status engine_describe_chat(engine *e, const arguments *a, swl_error *err)
{
    return open_chat(e, a, true, err);
}

swl_status engine_check_size(const engine *e, const char *text, size_t n, swl_error *err)
{
    static const char white[] = " \t\r\n";
    long long least;

    while (n && strchr(white, text[n - 1]) && text[n - 1])
        n--;
    for (; n && strchr(white, *text) && *text; text++)
        n--;
    least = swl_tokenizer_tokens_min(e->tokenizer, n);
    if (least <= e->info.ctx_tokens)
        return SWL_OK;
    return fail(err, SWL_E_BUDGET, "the prompt has at least %lld tokens, the context %d", least, e->info.ctx_tokens);
}

swl_status engine_close(engine *e, swl_status st, swl_error *err)
{
    swl_status recorded = e->model ? swl_routes_record(e->model, NULL, st ? NULL : err) : SWL_OK;

    swl_engine_close(e->engine);
    swl_session_free(e->session);
    swl_model_close(e->model);
    swl_tokenizer_close(e->tokenizer);
    return st ? st : recorded;
}

uint64_t random_seed(void)
{
    FILE *f = fopen("/dev/urandom", "rb");
    uint32_t seed = (uint32_t)time(NULL); /* short, to be typed again after --seed */

    if (f) {
        if (fread(&seed, sizeof seed, 1, f) != 1)
            seed = (uint32_t)time(NULL);
        fclose(f);
    }
    return seed;
}

/* FROM_BUILTIN when there is none. */
static option_origin strongest_sampling_option(const arguments *a)
{
    static const option_id ids[] = {OPT_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P, OPT_SEED, OPT_REPEAT_PENALTY,
                                    OPT_PRESENCE_PENALTY, OPT_FREQUENCY_PENALTY};
    option_origin strongest = FROM_BUILTIN;

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        const option_value *v = &a->values[ids[i]];

        if (v->set && v->origin > strongest)
            strongest = v->origin;
    }
    return strongest;
}

swl_status sampling_from(swl_sampling *p, const arguments *a, const char *dir, bool greedy_unless_asked,
                         swl_error *err)
{
    option_origin asked;
    swl_status st;

    swl_sampling_init(p);
    p->seed = a->values[OPT_SEED].set ? a->values[OPT_SEED].seed : random_seed();
    asked = strongest_sampling_option(a);
    if (opt_on(a, OPT_GREEDY) ? a->values[OPT_GREEDY].origin >= asked : greedy_unless_asked && asked == FROM_BUILTIN)
        return SWL_OK;
    p->temperature = 1; /* for models that publish nothing */
    st = swl_sampling_load(p, dir, err);
    if (st)
        return st;
    if (a->values[OPT_TEMP].set)
        p->temperature = (float)a->values[OPT_TEMP].real;
    if (a->values[OPT_TOP_K].set)
        p->top_k = opt_int(a, OPT_TOP_K);
    if (a->values[OPT_TOP_P].set)
        p->top_p = (float)a->values[OPT_TOP_P].real;
    if (a->values[OPT_MIN_P].set)
        p->min_p = (float)a->values[OPT_MIN_P].real;
    p->repetition_penalty = (float)a->values[OPT_REPEAT_PENALTY].real;
    p->presence_penalty = (float)a->values[OPT_PRESENCE_PENALTY].real;
    p->frequency_penalty = (float)a->values[OPT_FREQUENCY_PENALTY].real;
    return SWL_OK;
}
