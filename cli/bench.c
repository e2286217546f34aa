/*
 * bench.c: swiftlet bench: how fast prompts are read and tokens produced, beside what the machine can do, measured in the
 * same minute. A test runs once to warm up and then several times; every run begins at the same place of a conversation.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "commands.h"
#include "engine.h"
#include "format.h"
#include "interrupt.h"
#include "output.h"
#include "places.h"
#include "values.h"

enum { LEAVE_FREE_GB = 15, FITTED_TOKENS = 8192, BATCH_MAX = 64, IN_FLIGHT_MAX = 64 };

#define DRIVE_BYTES_MAX 8e9 /* of one measurement of the drive: as much as a run reads, but not minutes */

typedef struct bench {
    bench_setup s;
    bench_format format;
    int_list prompts, tokens, depths, batches, drafts;
    char container[PLACE_PATH_MAX]; /* of --synthetic */
    bool is_told;              /* that it is being written */
    swl_routes routes;
    swl_route_log *log;   /* replayed; NULL: `routes` says it */
    swl_model *model;
    swl_session *sessions[BATCH_MAX];
    int32_t *ids;         /* random, [n_ids] */
    int32_t n_ids;
    float *logits;        /* [largest batch or draft][vocab] */
    swl_candidate *scratch;
    swl_rng rng;
    bench_row *rows;
    int n_rows;
} bench;

/* ---- options ---------------------------------------------------------------------------------------------------------- */

swl_status bench_list(int_list *l, const arguments *a, option_id id, int32_t min, int32_t max, swl_error *err)
{
    const char *text = opt_text(a, id), *end;
    char item[24];
    int64_t n;

    for (l->n = 0; *text; text = *end ? end + 1 : end) {
        end = text + strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)(end - text < 23 ? end - text : 23), text);
        if (!parse_int(item, &n) || n < min || n > max || l->n == BENCH_LIST_MAX || (*end && !end[1]))
            return fail(err, SWL_E_ARG, "--%s is \"%s\", expected up to %d numbers from %d to %d with commas between",
                        option_rows[id].name, opt_text(a, id), BENCH_LIST_MAX, min, max);
        l->x[l->n++] = (int32_t)n;
    }
    return l->n ? SWL_OK : fail(err, SWL_E_ARG, "--%s is empty", option_rows[id].name);
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t largest(const int_list *l)
{
    int32_t max = 0;

    for (int i = 0; i < l->n; i++)
        max = larger(max, l->x[i]);
    return max;
}

/* A name, or a file. "fitted" and files need the model's shape, so they wait until it is open. */
static swl_status parse_routes(bench *b, swl_error *err)
{
    static const char *const names[] = {"model", "uniform", "same", "fitted"};
    const char *text = opt_text(b->s.a, OPT_ROUTES);

    if (!text)
        text = opt_text(b->s.a, OPT_SYNTHETIC) ? "uniform" : "model";
    b->s.routes = text;
    for (int i = 0; i < 4; i++) {
        if (!strcmp(text, names[i])) {
            b->routes = i < 3 ? (swl_routes)i : SWL_ROUTES_MODEL;
            return SWL_OK;
        }
    }
    if (!strchr(text, '/') && !strchr(text, '.'))
        return fail(err, SWL_E_ARG, "--routes is \"%s\", expected model, uniform, same, fitted or a file (./%s)", text, text);
    return swl_route_log_load(&b->log, text, err);
}

static swl_status parse(bench *b, swl_error *err)
{
    const arguments *a = b->s.a;
    swl_status st = bench_list(&b->prompts, a, OPT_BENCH_PROMPT, 0, 1 << 20, err);

    if (!st)
        st = bench_list(&b->tokens, a, OPT_BENCH_TOKENS, 0, 1 << 20, err);
    if (!st)
        st = bench_list(&b->depths, a, OPT_DEPTH, 0, 1 << 20, err);
    if (!st)
        st = bench_list(&b->batches, a, OPT_BATCH, 1, BATCH_MAX, err);
    if (!st)
        st = bench_list(&b->drafts, a, OPT_DRAFTS, 0, BATCH_MAX, err);
    if (!st)
        st = parse_routes(b, err);
    if (!st)
        st = bench_format_from(a, &b->format, err);
    if (!st && opt_text(a, OPT_COMPARE))
        st = bench_load_rows(&b->s.before, opt_text(a, OPT_COMPARE), err);
    if (!st && opt_text(a, OPT_SYNTHETIC) && a->n_operands)
        st = fail(err, SWL_E_ARG, "a model and --synthetic are given; only one can be measured");
    if (!st && !opt_text(a, OPT_SYNTHETIC) && (opt_on(a, OPT_IN_MEMORY) || opt_text(a, OPT_OUTPUT)))
        st = fail(err, SWL_E_ARG, "--in-memory and --output need --synthetic");
    if (!st && b->s.limits && (!strcmp(b->s.routes, "model") || opt_text(a, OPT_RECORD_ROUTES)))
        st = fail(err, SWL_E_ARG, "--limits reads without computing, when no router says what: --routes has to, and they cannot "
                  "be recorded (record them in a run before)");
    if (!st && !opt_text(a, OPT_SYNTHETIC) && !a->n_operands && !a->values[OPT_MODEL].set)
        st = fail(err, SWL_E_ARG, "nothing to measure: name a model, or shapes with --synthetic NAME");
    return st;
}

/* ---- the container ---------------------------------------------------------------------------------------------------- */

static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    bench *b = arg;
    char x[16], y[16];

    if (!b->is_told && !opt_on(b->s.a, OPT_QUIET))
        note("writing %s; it stays there for the next time", b->container);
    b->is_told = true;
    if (stderr_is_terminal())
        progress_show("making the container: %s of %s", format_bytes(x, done), format_bytes(y, total));
    return !interrupt_asked();
}

/* --output, else the cache folder. */
static swl_status name_container(bench *b, swl_error *err)
{
    const arguments *a = b->s.a;
    char name[256];
    swl_status st;

    if (opt_text(a, OPT_OUTPUT)) {
        if (snprintf(b->container, sizeof b->container, "%s", opt_text(a, OPT_OUTPUT)) >= (int)sizeof b->container)
            return fail(err, SWL_E_ARG, "--output is too long");
        return SWL_OK;
    }
    if (snprintf(name, sizeof name, "%s%s.qpack", opt_text(a, OPT_SYNTHETIC), opt_on(a, OPT_IN_MEMORY) ? "-dense" : "") >=
        (int)sizeof name)
        return fail(err, SWL_E_ARG, "--synthetic is too long");
    for (char *p = name; *p; p++) /* "qwen3.6-35b/8" */
        *p = *p == '/' ? '-' : *p;
    st = place_path(b->container, PLACE_CACHE, name, err);
    if (!st)
        place_make_parents(b->container);
    return st;
}

static swl_status make_container(bench *b, swl_error *err)
{
    const arguments *a = b->s.a;
    swl_synthetic_options o;
    struct stat sb;
    swl_status st = name_container(b, err);

    if (st || !stat(b->container, &sb))
        return st;
    swl_synthetic_options_init(&o);
    o.name = opt_text(a, OPT_SYNTHETIC);
    o.output = b->container;
    o.seed = b->s.seed;
    o.experts_absent = opt_on(a, OPT_IN_MEMORY);
    o.leave_free = UINT64_C(1000000000) * LEAVE_FREE_GB;
    o.on_progress = on_progress;
    o.arg = b;
    interrupt_stoppable(true);
    st = swl_synthetic_create(&o, err);
    interrupt_stoppable(false);
    progress_clear();
    return st;
}

/* ---- opening ---------------------------------------------------------------------------------------------------------- */

/* Experts made in memory must all be there: the budget is then what the whole takes, as long as the machine has it, and a little
 * more, because the program itself will have touched more pages by then. */
static swl_status allow_all(swl_model_options *o, swl_error *err)
{
    swl_memory_plan usual, all;
    char x[16], y[16];
    swl_status st;

    swl_memory_plan_make(&usual, o, NULL);
    o->memory_bytes = INT64_MAX;
    o->pool_slots = usual.n_experts;
    st = swl_memory_plan_make(&all, o, err);
    if (!st && all.total > usual.limit + usual.limit / 9)
        st = fail(err, SWL_E_BUDGET, "the whole model takes %s in memory; this machine has %s to give",
                  format_bytes(x, all.total), format_bytes(y, usual.limit));
    o->memory_bytes = all.total + all.drift;
    return st;
}

static swl_status set_routes(bench *b, swl_error *err)
{
    swl_route_model r;
    swl_status st = SWL_OK;

    swl_routes_set(b->model, b->routes, b->s.seed);
    if (!strcmp(b->s.routes, "fitted")) {
        swl_route_model_init(&r, b->s.info.n_moe_layers, b->s.info.n_experts, b->s.info.n_experts_used, FITTED_TOKENS);
        st = swl_route_log_generate(&b->log, &r, err);
    }
    if (!st && b->log)
        st = swl_routes_replay(b->model, b->log, err);
    if (!st && opt_text(b->s.a, OPT_RECORD_ROUTES))
        st = swl_routes_record(b->model, opt_text(b->s.a, OPT_RECORD_ROUTES), err);
    return st;
}

static int32_t context_needed(const bench *b)
{
    int32_t n = largest(&b->tokens) * larger(largest(&b->drafts), 1); /* both have bounds */

    return largest(&b->depths) + larger(largest(&b->prompts), n) + 1;
}

static swl_status open_model(bench *b, swl_error *err)
{
    const arguments *a = b->s.a;
    swl_model_options o;
    char remark[REMARK_BYTES];
    int n_used;
    const char *dir = opt_text(a, OPT_SYNTHETIC) ? b->container : model_dir(a, &n_used);
    swl_status st = model_options(&o, a, dir, err);

    if (st)
        return st;
    if (!opt_on(a, OPT_QUIET) && memory_remark(remark, sizeof remark, a))
        note("%s", remark);
    b->s.model = opt_text(a, OPT_SYNTHETIC) ? opt_text(a, OPT_SYNTHETIC) : dir;
    if (!o.ctx_tokens)
        o.ctx_tokens = context_needed(b);
    if (opt_on(a, OPT_IN_MEMORY) && !o.memory_bytes)
        st = allow_all(&o, err);
    if (!st)
        st = swl_model_open(&b->model, &o, err);
    if (st)
        return st;
    swl_model_info_get(b->model, &b->s.info);
    swl_memory_plan_get(b->model, &b->s.plan);
    if (b->s.info.ctx_tokens < context_needed(b))
        return fail(err, SWL_E_ARG, "the tests need a context of %d tokens, --ctx is %d", context_needed(b),
                    b->s.info.ctx_tokens);
    return set_routes(b, err);
}

/* Ids from the lower nine tenths of the vocabulary: the end may be padding. */
static int32_t random_id(bench *b)
{
    static const float even[4] = {0};
    uint64_t r = 0;

    for (int i = 0; i < 8; i++) {
        const swl_sampling p = {.temperature = 1, .top_p = 1};
        swl_candidate scratch[4];

        r = r << 2 | (uint64_t)swl_sample(even, 4, &p, &b->rng, scratch);
    }
    return (int32_t)(r * (uint64_t)(b->s.info.vocab / 10 * 9) >> 16);
}

static swl_status make_buffers(bench *b, swl_error *err)
{
    size_t vocab = (size_t)b->s.info.vocab, batch = (size_t)larger(largest(&b->batches), largest(&b->drafts));

    b->n_ids = context_needed(b);
    b->ids = malloc((size_t)b->n_ids * sizeof *b->ids);
    b->logits = malloc(batch * vocab * sizeof *b->logits);
    b->scratch = malloc(vocab * sizeof *b->scratch);
    b->rows = calloc((size_t)b->depths.n * (size_t)(b->prompts.n + b->tokens.n * (b->batches.n + b->drafts.n)),
                     sizeof *b->rows);
    if (!b->ids || !b->logits || !b->scratch || !b->rows)
        return fail(err, SWL_E_NOMEM, "out of memory");
    swl_rng_init(&b->rng, b->s.seed);
    for (int32_t i = 0; i < b->n_ids; i++)
        b->ids[i] = random_id(b);
    return swl_session_create(&b->sessions[0], b->model, err);
}

/* ---- running ---------------------------------------------------------------------------------------------------------- */

static void show(const bench *b, const bench_row *r, int run)
{
    if (!opt_on(b->s.a, OPT_QUIET) && stderr_is_terminal())
        progress_show("%s %d, depth %d, batch %d: run %d of %d", bench_kind_name(r->kind), r->n, r->depth, r->batch, run,
                      r->n_runs);
}

static swl_status stopped(swl_error *err)
{
    return interrupt_asked() ? fail(err, SWL_E_CANCELLED, "%s", "") : SWL_OK;
}

/* The first conversation at `depth`, marked, so that each run can go back there. */
static swl_status reach_depth(bench *b, int32_t depth, swl_error *err)
{
    swl_session *s = b->sessions[0];
    swl_status st;

    swl_session_reset(s);
    if (!depth)
        return SWL_OK;
    st = swl_session_eval(s, b->ids, depth, SWL_LOGITS_NONE, NULL, err);
    return st ? st : swl_session_mark(s, err);
}

/* As many conversations as the test needs, all like the first. */
static swl_status fork_sessions(bench *b, int32_t batch, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 1; i < batch && !st; i++) {
        st = swl_session_fork(&b->sessions[i], b->sessions[0], err);
        if (!st)
            st = swl_session_mark(b->sessions[i], err);
    }
    return st;
}

static void drop_forks(bench *b)
{
    for (int i = 1; i < BATCH_MAX; i++) {
        swl_session_free(b->sessions[i]);
        b->sessions[i] = NULL;
    }
}

static int32_t conversations(const bench_row *r)
{
    return r->kind == BENCH_DECODE ? r->batch : 1;
}

static void go_back(bench *b, const bench_row *r)
{
    for (int32_t i = 0; i < conversations(r); i++) {
        if (r->depth)
            swl_session_rewind(b->sessions[i], r->depth);
        else
            swl_session_reset(b->sessions[i]);
    }
}

/* Random weights have nothing to say: the next id is random. A trained model goes on with its own words. Either way a
 * token is drawn, because that is part of the time. */
static int32_t next_id(bench *b, int32_t i, int32_t step)
{
    swl_sampling p = {.temperature = b->s.info.synthetic ? 0.0f : 1.0f, .top_p = 1};
    int32_t id = swl_sample(b->logits + (int64_t)i * b->s.info.vocab, b->s.info.vocab, &p, &b->rng, b->scratch);

    return b->s.info.synthetic || id < 0 ? b->ids[(step * 7 + i * 13) % b->n_ids] : id;
}

static swl_status decode(bench *b, const bench_row *r, int32_t n, swl_error *err)
{
    swl_batch_entry entries[BATCH_MAX];
    int32_t id[BATCH_MAX];
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < r->batch; i++) {
        id[i] = b->ids[i % b->n_ids];
        entries[i] = (swl_batch_entry){b->sessions[i], &id[i], 1, SWL_LOGITS_LAST};
    }
    for (int32_t step = 0; step < n && !st; step++) {
        st = swl_batch_eval(entries, r->batch, b->logits, err);
        for (int32_t i = 0; i < r->batch && !st; i++)
            id[i] = next_id(b, i, step);
        if (!st)
            st = stopped(err);
    }
    return st;
}

/* Every draft is right: the conversation keeps them all, and the next pass goes on behind them. A token is drawn at each. */
static swl_status draft(bench *b, const bench_row *r, int32_t n, swl_error *err)
{
    int32_t id[BATCH_MAX];
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < r->batch; i++)
        id[i] = b->ids[i % b->n_ids];
    for (int32_t step = 0; step < n && !st; step++) {
        st = swl_session_eval(b->sessions[0], id, r->batch, SWL_LOGITS_ALL, b->logits, err);
        for (int32_t i = 0; i < r->batch && !st; i++)
            id[i] = next_id(b, i, step);
        if (!st)
            st = stopped(err);
    }
    return st;
}

static swl_status prompt(bench *b, const bench_row *r, swl_error *err)
{
    swl_status st = swl_session_eval(b->sessions[0], b->ids + r->depth, r->n, SWL_LOGITS_LAST, b->logits, err);

    if (!st)
        next_id(b, 0, 0);
    return st ? st : stopped(err);
}

/* Where the pool does not hold everything, what it holds has to settle: as many as a run has. */
static int32_t warm_up_tokens(const bench *b, const bench_row *r)
{
    bool all = b->s.plan.pool_slots >= b->s.plan.n_experts;

    return r->kind != BENCH_PROMPT && all && r->n > 8 ? r->n / 8 : r->n;
}

static swl_status run_once(bench *b, const bench_row *r, bool warm_up, swl_error *err)
{
    int32_t n = warm_up ? warm_up_tokens(b, r) : r->n;

    go_back(b, r);
    if (r->kind == BENCH_PROMPT)
        return prompt(b, r, err);
    return r->kind == BENCH_DRAFT ? draft(b, r, n, err) : decode(b, r, n, err);
}

static void faults(uint64_t *minor, uint64_t *major)
{
    struct rusage u = {0};

    getrusage(RUSAGE_SELF, &u);
    *minor = (uint64_t)u.ru_minflt;
    *major = (uint64_t)u.ru_majflt;
}

static void subtract(swl_model_stats *a, const swl_model_stats *b)
{
    a->expert_hits -= b->expert_hits;
    a->expert_misses -= b->expert_misses;
    a->expert_bytes_read -= b->expert_bytes_read;
    a->read_ns -= b->read_ns;
    a->reading_ns -= b->reading_ns;
}

static void add_stats(swl_model_stats *a, const swl_model_stats *b)
{
    a->expert_hits += b->expert_hits;
    a->expert_misses += b->expert_misses;
    a->expert_bytes_read += b->expert_bytes_read;
    a->read_ns += b->read_ns;
    a->reading_ns += b->reading_ns;
}

static void add_profile(swl_profile *a, const swl_profile *b)
{
    a->n_passes += b->n_passes;
    a->n_tokens += b->n_tokens;
    a->dense_bytes += b->dense_bytes;
    a->expert_bytes += b->expert_bytes;
    a->state_bytes += b->state_bytes;
    a->kv_bytes += b->kv_bytes;
    a->multiply_adds += b->multiply_adds;
    a->wait_ns += b->wait_ns;
    a->ns += b->ns;
    for (int i = 0; i < SWL_PHASE_COUNT; i++)
        a->phase_ns[i] += b->phase_ns[i];
}

/* A run, its seconds, and what the store did meanwhile. */
static swl_status clocked_run(bench *b, const bench_row *r, bool warm_up, double *seconds, swl_model_stats *stats,
                              swl_error *err)
{
    swl_model_stats before;
    double begin;
    swl_status st;

    swl_model_stats_get(b->model, &before);
    begin = seconds_now();
    st = run_once(b, r, warm_up, err);
    *seconds = seconds_now() - begin;
    swl_model_stats_get(b->model, stats);
    subtract(stats, &before);
    return st;
}

/* How the drive is to be measured next: as a run has just read. */
static void note_reads(bench_row *r, const swl_model_stats *s)
{
    if (!s->expert_bytes_read || !s->reading_ns)
        return;
    r->in_flight = (int32_t)((double)s->read_ns / (double)s->reading_ns + 0.5);
    r->in_flight = r->in_flight < 1 ? 1 : r->in_flight > IN_FLIGHT_MAX ? IN_FLIGHT_MAX : r->in_flight;
    r->bytes_per_run = (double)s->expert_bytes_read;
}

static swl_status warm_up(bench *b, bench_row *r, swl_error *err)
{
    swl_model_stats s;
    double seconds;
    swl_status st = clocked_run(b, r, true, &seconds, &s, err);

    note_reads(r, &s);
    return st;
}

static swl_status measure_drive(bench *b, bench_row *r, int i, swl_error *err)
{
    double bytes = r->bytes_per_run < DRIVE_BYTES_MAX ? r->bytes_per_run : DRIVE_BYTES_MAX;

    if (!r->in_flight || !opt_on(b->s.a, OPT_DRIVE))
        return SWL_OK;
    return swl_drive_measure(b->model, r->in_flight, (uint64_t)bytes, &r->drive[i], err);
}

/* --limits: the same without one of its halves, right after the run that it is compared with. */
static swl_status run_halves(bench *b, bench_row *r, int i, swl_error *err)
{
    bench_beside *x = &r->beside[i];
    swl_model_stats s;
    double seconds;
    swl_status st;

    swl_passes_set(b->model, SWL_PASSES_READ);
    st = clocked_run(b, r, false, &seconds, &s, err);
    if (s.expert_bytes_read)
        x->reads = seconds * x->read_bytes / (double)s.expert_bytes_read;
    swl_passes_set(b->model, SWL_PASSES_COMPUTE);
    if (!st)
        st = clocked_run(b, r, false, &x->compute, &s, err);
    swl_passes_set(b->model, SWL_PASSES_WHOLE);
    return st;
}

static swl_status timed_run(bench *b, bench_row *r, int i, swl_error *err)
{
    swl_model_stats s;
    swl_profile p;
    uint64_t minor, major, minor_before, major_before;
    swl_status st;

    faults(&minor_before, &major_before);
    swl_profile_start(b->model, b->s.profile);
    st = clocked_run(b, r, false, &r->seconds[i], &s, err);
    swl_profile_get(b->model, &p);
    faults(&minor, &major);
    add_profile(&r->profile, &p);
    add_stats(&r->stats, &s);
    r->faults_minor += minor - minor_before;
    r->faults_major += major - major_before;
    note_reads(r, &s);
    r->beside[i].read_bytes = (double)s.expert_bytes_read;
    r->beside[i].reading = 1e-9 * (double)s.reading_ns;
    return st;
}

static swl_status timed_runs(bench *b, bench_row *r, swl_error *err)
{
    swl_status st = measure_drive(b, r, 0, err);

    for (int i = 0; i < r->n_runs && !st; i++) {
        show(b, r, i + 1);
        st = timed_run(b, r, i, err);
        if (!st && b->s.limits)
            st = run_halves(b, r, i, err);
        if (!st)
            st = measure_drive(b, r, i + 1, err);
    }
    return st;
}

static swl_status run_row(bench *b, bench_kind kind, int32_t depth, int32_t batch, int32_t n, swl_error *err)
{
    bench_row *r = &b->rows[b->n_rows];
    swl_status st = SWL_OK;

    if (!n || !batch)
        return SWL_OK;
    *r = (bench_row){.kind = kind, .depth = depth, .batch = batch, .n = n, .n_runs = opt_int(b->s.a, OPT_REPEAT)};
    show(b, r, 0);
    st = fork_sessions(b, conversations(r), err);
    if (!st)
        st = warm_up(b, r, err);
    if (!st)
        st = swl_machine_measure(b->model, &r->machine, err);
    if (!st)
        st = timed_runs(b, r, err);
    go_back(b, &(bench_row){.depth = depth, .batch = 1});
    drop_forks(b);
    b->n_rows += !st;
    return st;
}

static swl_status run_depth(bench *b, int32_t depth, swl_error *err)
{
    swl_status st = reach_depth(b, depth, err);

    for (int i = 0; i < b->prompts.n && !st; i++)
        st = run_row(b, BENCH_PROMPT, depth, 1, b->prompts.x[i], err);
    for (int i = 0; i < b->tokens.n; i++)
        for (int k = 0; k < b->batches.n && !st; k++)
            st = run_row(b, BENCH_DECODE, depth, b->batches.x[k], b->tokens.x[i], err);
    for (int i = 0; i < b->tokens.n; i++)
        for (int k = 0; k < b->drafts.n && !st; k++)
            st = run_row(b, BENCH_DRAFT, depth, b->drafts.x[k], b->tokens.x[i], err);
    return st;
}

static swl_status run_all(bench *b, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int i = 0; i < b->depths.n && !st; i++)
        st = run_depth(b, b->depths.x[i], err);
    return st;
}

/* What was asked for, for the record. */
static void write_command(bench_setup *s)
{
    size_t n = (size_t)snprintf(s->command, sizeof s->command, "swiftlet bench");

    for (int i = 0; i < s->a->n_operands && n < sizeof s->command; i++)
        n += (size_t)snprintf(s->command + n, sizeof s->command - n, " %s", s->a->operands[i]);
    for (int id = 0; id < OPT_COUNT && n < sizeof s->command; id++) {
        const option_value *v = &s->a->values[id];

        if (v->set && v->origin != FROM_BUILTIN && option_rows[id].type == TYPE_SWITCH)
            n += (size_t)snprintf(s->command + n, sizeof s->command - n, " --%s%s", v->on ? "" : "no-", option_rows[id].name);
        else if (v->set && v->origin != FROM_BUILTIN)
            n += (size_t)snprintf(s->command + n, sizeof s->command - n, " --%s %s", option_rows[id].name, v->text);
    }
}

/* Returns `st`, or why the record of the routes is not complete. */
static swl_status release(bench *b, swl_status st, swl_error *err)
{
    drop_forks(b);
    swl_session_free(b->sessions[0]);
    if (b->model && opt_text(b->s.a, OPT_RECORD_ROUTES))
        st = swl_routes_record(b->model, NULL, st ? NULL : err) && !st ? err->code : st;
    swl_model_close(b->model);
    swl_route_log_free(b->log);
    json_decref(b->s.before);
    free(b->ids);
    free(b->logits);
    free(b->scratch);
    free(b->rows);
    return st;
}

swl_status run_bench(const arguments *a, swl_error *err)
{
    bench b = {.s = {.a = a, .seed = 1, .profile = opt_on(a, OPT_PROFILE), .limits = opt_on(a, OPT_LIMITS)}};
    swl_status st;

    if (a->n_operands && !strcmp(a->operands[0], "cache"))
        return bench_cache(a, err);
    st = parse(&b, err);

    write_command(&b.s);
    if (!st && opt_text(a, OPT_SYNTHETIC))
        st = make_container(&b, err);
    if (!st)
        st = open_model(&b, err);
    if (!st)
        st = make_buffers(&b, err);
    interrupt_stoppable(true);
    if (!st)
        st = run_all(&b, err);
    interrupt_stoppable(false);
    progress_clear();
    if (!st && !b.n_rows)
        st = fail(err, SWL_E_ARG, "nothing to measure: --prompt-tokens, --decode-tokens and --drafts are all 0");
    if (b.n_rows) /* also what was measured before an error */
        bench_report(&b.s, b.format, b.rows, b.n_rows);
    return release(&b, st, err);
}
