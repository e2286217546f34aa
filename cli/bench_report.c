/*
 * bench_report.c: a measured row as one flat object of figures, and that as JSON, JSON lines, CSV, or tables in Markdown.
 * The figures are worked out here and nowhere else.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "bench.h"
#include "format.h"
#include "output.h"

swl_status bench_format_from(const arguments *a, bench_format *out, swl_error *err)
{
    static const char *const names[] = {"md", "csv", "json", "jsonl"};
    const char *name = opt_on(a, OPT_JSON) ? "json" : opt_text(a, OPT_FORMAT);

    for (int i = 0; i < 4; i++) {
        if (!strcmp(name, names[i])) {
            *out = (bench_format)i;
            return SWL_OK;
        }
    }
    return fail(err, SWL_E_ARG, "--format is \"%s\", expected md, csv, json or jsonl", name);
}

swl_status bench_load_rows(json_t **rows, const char *path, swl_error *err)
{
    json_error_t e;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);

    *rows = json_incref(json_object_get(root, "rows"));
    json_decref(root);
    if (json_is_array(*rows))
        return SWL_OK;
    return fail(err, SWL_E_CORRUPT, "%s is not what \"bench --format json\" writes%s%s", path, root ? "" : ": ",
                root ? "" : e.text);
}

/* ---- the machine ---------------------------------------------------------------------------------------------------- */

static void processor_name(char *dst, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    const char *value;

    snprintf(dst, size, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) || !(value = strchr(line, ':')))
            continue;
        snprintf(dst, size, "%s", value + 1 + strspn(value + 1, " "));
        dst[strcspn(dst, "\n")] = 0;
        break;
    }
    if (f)
        fclose(f);
}

static json_t *setup_object(const bench_setup *b)
{
    json_t *o = out_object();
    struct utsname u;
    char name[128];

    processor_name(name, sizeof name);
    json_object_set_new(o, "program", json_sprintf("swiftlet %s", swl_version()));
    json_object_set_new(o, "command", json_string(b->command));
    json_object_set_new(o, "processor", json_string(name));
    json_object_set_new(o, "system", uname(&u) ? json_null() : json_sprintf("%s %s %s", u.sysname, u.release, u.machine));
    json_object_set_new(o, "cpu_level", json_string(b->info.cpu_level));
    json_object_set_new(o, "threads", json_integer(b->info.n_threads));
    json_object_set_new(o, "model", json_string(b->model));
    json_object_set_new(o, "weights", json_string(b->info.synthetic ? "synthetic" : "trained"));
    json_object_set_new(o, "routes", json_string(b->routes));
    json_object_set_new(o, "experts_in_pool", json_integer(b->plan.pool_slots));
    json_object_set_new(o, "experts", json_integer(b->plan.n_experts));
    json_object_set_new(o, "chunk_tokens", json_integer(b->plan.chunk_tokens));
    json_object_set_new(o, "context_tokens", json_integer(b->info.ctx_tokens));
    json_object_set_new(o, "budget_bytes", json_integer((json_int_t)b->plan.limit));
    json_object_set_new(o, "planned_bytes", json_integer((json_int_t)b->plan.total));
    json_object_set_new(o, "peak_memory_bytes", json_integer((json_int_t)peak_memory()));
    return o;
}

/* ---- a row ------------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

typedef struct spread {
    double median, min, max, sum;
} spread;

static spread spread_of(const double *x, int n)
{
    double sorted[BENCH_RUNS_MAX];
    spread s = {0};

    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    s.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    s.min = sorted[0];
    s.max = sorted[n - 1];
    for (int i = 0; i < n; i++)
        s.sum += x[i];
    return s;
}

static void set(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key, out_real(x));
}

const char *bench_kind_name(bench_kind kind)
{
    static const char *const names[] = {"prompt", "decode", "draft"};

    return names[kind];
}

/* The time of one pass against that of the first row of the same depth and length, which for drafts too is one that
 * decodes. */
static double pass_ratio(const bench_row *rows, int i)
{
    for (int k = 0; k < i; k++) {
        if ((rows[k].kind == BENCH_PROMPT) == (rows[i].kind == BENCH_PROMPT) && rows[k].depth == rows[i].depth &&
            rows[k].n == rows[i].n)
            return spread_of(rows[i].seconds, rows[i].n_runs).median / spread_of(rows[k].seconds, rows[k].n_runs).median;
    }
    return 1;
}

static bool same(const json_t *a, const json_t *b, const char *key)
{
    return json_equal(json_object_get(a, key), json_object_get(b, key));
}

/* The rate against that of the same test in an earlier run; null when it has none. */
static json_t *against(const json_t *before, const json_t *row)
{
    static const char *const keys[] = {"test", "tokens", "depth", "batch"};
    json_t *o;
    size_t i;

    json_array_foreach(before, i, o)
    {
        int n = 0;

        while (n < 4 && same(o, row, keys[n]))
            n++;
        if (n == 4 && json_number_value(json_object_get(o, "tokens_per_second")) > 0)
            return out_real(json_number_value(json_object_get(row, "tokens_per_second")) /
                            json_number_value(json_object_get(o, "tokens_per_second")));
    }
    return json_null();
}

static void set_phases(json_t *o, const bench_row *r)
{
    char key[64];

    for (int i = 0; i < SWL_PHASE_COUNT; i++) {
        snprintf(key, sizeof key, "ms_%s", swl_phase_name((swl_phase)i));
        set(o, key, 1e-6 * (double)r->profile.phase_ns[i] / (double)r->profile.n_passes);
    }
}

/* What stood beside the runs: medians over them, null for what was not measured. The drive's rate is compared with that of the
 * time in which something was being read, a run's time with the larger of its halves'. */
static void set_limits(json_t *o, const bench_row *r)
{
    enum { READING, DRIVE, FRACTION, COMPUTE, READS, OVER, N_FIGURES };
    static const char *const keys[] = {"read_bytes_per_second", "drive_bytes_per_second", "drive_fraction",
                                       "compute_alone_ms_per_pass", "reads_alone_ms_per_pass", "time_against_larger"};
    double x[N_FIGURES][BENCH_RUNS_MAX], ms = 1e3 * r->n_runs / (double)r->profile.n_passes;
    int n[N_FIGURES] = {0};

    for (int i = 0; i < r->n_runs; i++) {
        const bench_beside *s = &r->beside[i];
        double drive = (r->drive[i] + r->drive[i + 1]) / 2, larger = s->reads > s->compute ? s->reads : s->compute;

        if (s->reading > 0)
            x[READING][n[READING]++] = s->read_bytes / s->reading;
        if (drive > 0)
            x[DRIVE][n[DRIVE]++] = drive;
        if (drive > 0 && s->reading > 0)
            x[FRACTION][n[FRACTION]++] = s->read_bytes / s->reading / drive;
        if (s->compute <= 0)
            continue;
        x[COMPUTE][n[COMPUTE]++] = ms * s->compute;
        x[READS][n[READS]++] = ms * s->reads;
        x[OVER][n[OVER]++] = r->seconds[i] / larger;
    }
    json_object_set_new(o, "reads_in_flight", r->in_flight ? json_integer(r->in_flight) : json_null());
    for (int k = 0; k < N_FIGURES; k++)
        json_object_set_new(o, keys[k], n[k] ? out_real(spread_of(x[k], n[k]).median) : json_null());
}

static json_t *row_object(const bench_setup *b, const bench_row *rows, int i)
{
    const bench_row *r = &rows[i];
    const swl_profile *p = &r->profile;
    spread s = spread_of(r->seconds, r->n_runs);
    double per_run = (double)r->batch * r->n, tokens = per_run * r->n_runs;
    double bytes = (double)(p->dense_bytes + p->expert_bytes + p->state_bytes + p->kv_bytes);
    double memory = r->machine.memory_read;
    uint64_t asked = r->stats.expert_hits + r->stats.expert_misses;
    json_t *o = json_object();

    json_object_set_new(o, "test", json_string(bench_kind_name(r->kind)));
    json_object_set_new(o, "tokens", json_integer(r->n));
    json_object_set_new(o, "depth", json_integer(r->depth));
    json_object_set_new(o, "batch", json_integer(r->batch));
    json_object_set_new(o, "runs", json_integer(r->n_runs));
    set(o, "tokens_per_second", per_run / s.median);
    set(o, "tokens_per_second_min", per_run / s.max);
    set(o, "tokens_per_second_max", per_run / s.min);
    set(o, "ms_per_pass", 1e3 * s.sum / (double)p->n_passes);
    json_object_set_new(o, "first_token_seconds", r->kind == BENCH_PROMPT ? out_real(s.median) : json_null());
    set(o, "time_against_batch_1", pass_ratio(rows, i));
    set(o, "bytes_per_token", bytes / tokens);
    set(o, "dense_bytes_per_token", (double)p->dense_bytes / tokens);
    set(o, "expert_bytes_per_token", (double)p->expert_bytes / tokens);
    set(o, "state_bytes_per_token", (double)p->state_bytes / tokens);
    set(o, "kv_bytes_per_token", (double)p->kv_bytes / tokens);
    set(o, "bytes_per_second", bytes / s.sum);
    json_object_set_new(o, "memory_bytes_per_second", memory > 0 ? out_real(memory) : json_null());
    json_object_set_new(o, "memory_fraction", memory > 0 ? out_real(bytes / s.sum / memory) : json_null());
    set(o, "multiply_adds_per_second", (double)p->multiply_adds / s.sum);
    set(o, "int8_multiply_adds_per_second", r->machine.int8_multiply_add);
    set(o, "int8_fraction", (double)p->multiply_adds / s.sum / r->machine.int8_multiply_add);
    json_object_set_new(o, "expert_hit_rate", asked ? out_real((double)r->stats.expert_hits / (double)asked) : json_null());
    set(o, "read_bytes_per_token", (double)r->stats.expert_bytes_read / tokens);
    set(o, "reading_ms_per_pass", 1e-6 * (double)r->stats.reading_ns / (double)p->n_passes);
    set_limits(o, r);
    set(o, "waiting_ms_per_pass", 1e-6 * (double)p->wait_ns / (double)p->n_passes);
    set(o, "page_faults_per_token", (double)(r->faults_minor + r->faults_major) / tokens);
    set(o, "major_page_faults", (double)r->faults_major);
    if (b->profile)
        set_phases(o, r);
    if (b->before)
        json_object_set_new(o, "rate_against_before", against(b->before, o));
    return o;
}

/* ---- formats ---------------------------------------------------------------------------------------------------------- */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void csv_value(const json_t *v)
{
    if (json_is_string(v)) {
        out_text("\"", 1);
        for (const char *p = json_string_value(v); *p; p++)
            out_printf(*p == '"' ? "\"%c" : "%c", *p);
        out_text("\"", 1);
    } else if (json_is_integer(v)) {
        out_printf("%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        out_printf("%.10g", json_real_value(v));
    }
}

void bench_csv(const json_t *rows)
{
    const char *key;
    json_t *row, *v;
    size_t i;
    int n;

    json_array_foreach(rows, i, row)
    {
        n = 0;
        json_object_foreach(row, key, v)
        {
            if (!i)
                out_printf("%s%s", n++ ? "," : "", key);
        }
        if (!i)
            out_text("\n", 1);
        n = 0;
        json_object_foreach(row, key, v)
        {
            if (n++)
                out_text(",", 1);
            csv_value(v);
        }
        out_text("\n", 1);
    }
}

/* The row's own columns first, then what all rows have in common. */
static void csv(json_t *setup, json_t *rows)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        json_object_update_missing(row, setup);
    }
    bench_csv(rows);
}

static void lines(json_t *setup, json_t *rows)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        json_t *o = json_copy(setup);

        json_object_update(o, row);
        out_json(o);
    }
}

static const char *routes_in_words(const bench_setup *b)
{
    static const char *const words[][2] = {{"model", "the router's routes"},
                                           {"uniform", "uniform random routes"},
                                           {"same", "one random choice of experts for each pass"},
                                           {"fitted", "synthetic routes (random, repeating themselves as in text)"}};

    for (int i = 0; i < 4; i++) {
        if (!strcmp(b->routes, words[i][0]))
            return words[i][1];
    }
    return b->routes;
}

static void md_setup(const bench_setup *b, const json_t *o)
{
    char x[16], y[16], z[16];

    out_printf("%s, %s, %s kernels, %d threads\n", json_string_value(json_object_get(o, "program")),
               json_string_value(json_object_get(o, "processor")), b->info.cpu_level, b->info.n_threads);
    out_printf("`%s`\n\n", b->command);
    out_printf("%s: %s, %s; ", b->model, b->info.synthetic ? "synthetic weights" : b->info.family, routes_in_words(b));
    if (b->plan.n_experts)
        out_printf("%d of %d experts of each layer fit in memory, ", b->plan.pool_slots, b->plan.n_experts);
    out_printf("chunks of %d tokens\n", b->plan.chunk_tokens);
    out_printf("memory: %s at most so far, %s planned, %s allowed\n", format_bytes(x, peak_memory()),
               format_bytes(y, b->plan.total), format_bytes(z, b->plan.limit));
    out_printf("\n");
}

/* A figure that may be missing: "-". */
static const char *cell(char dst[24], const json_t *o, const char *key, double factor, int digits, const char *unit)
{
    const json_t *value = json_object_get(o, key);

    if (json_is_number(value))
        snprintf(dst, 24, "%.*f%s", digits, factor * json_number_value(value), unit);
    else
        snprintf(dst, 24, "-");
    return dst;
}

static void md_rates(const json_t *rows)
{
    char memory[24], reached[24];
    json_t *o;
    size_t i;

    out_printf("| test | depth | batch | t/s | min - max | ms/pass | MB/token | GB/s | memory GB/s | reached | Gmac/s | int8 "
               "Gmac/s | reached |\n"
               "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n");
    json_array_foreach(rows, i, o)
    {
        out_printf("| %s %.0f | %.0f | %.0f | %.2f | %.2f - %.2f | %.1f | %.1f | %.2f | %s | %s | %.1f | %.1f | %.0f%% |\n",
                   json_string_value(json_object_get(o, "test")), number(o, "tokens"), number(o, "depth"),
                   number(o, "batch"), number(o, "tokens_per_second"), number(o, "tokens_per_second_min"),
                   number(o, "tokens_per_second_max"), number(o, "ms_per_pass"), 1e-6 * number(o, "bytes_per_token"),
                   1e-9 * number(o, "bytes_per_second"), cell(memory, o, "memory_bytes_per_second", 1e-9, 2, ""),
                   cell(reached, o, "memory_fraction", 100, 0, "%"), 1e-9 * number(o, "multiply_adds_per_second"),
                   1e-9 * number(o, "int8_multiply_adds_per_second"), 100 * number(o, "int8_fraction"));
    }
}

static void md_experts(const bench_setup *b, const json_t *rows)
{
    char first[24], hits[24], rate[24], depth[24], drive[24], reached[24];
    json_t *o;
    size_t i;

    if (!b->plan.n_experts)
        return;
    out_printf("\n| test | depth | batch | first token s | time/batch 1 | hits | GB read/token | reading ms/pass | waiting "
               "ms/pass | GB/s read | in flight | drive GB/s | of the drive | page faults/token |\n"
               "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n");
    json_array_foreach(rows, i, o)
    {
        out_printf("| %s %.0f | %.0f | %.0f | %s | %.2f | %s | %.3f | %.2f | %.2f | %s | %s | %s | %s | %.1f |\n",
                   json_string_value(json_object_get(o, "test")), number(o, "tokens"), number(o, "depth"),
                   number(o, "batch"), cell(first, o, "first_token_seconds", 1, 2, ""), number(o, "time_against_batch_1"),
                   cell(hits, o, "expert_hit_rate", 100, 1, "%"), 1e-9 * number(o, "read_bytes_per_token"),
                   number(o, "reading_ms_per_pass"), number(o, "waiting_ms_per_pass"),
                   cell(rate, o, "read_bytes_per_second", 1e-9, 2, ""), cell(depth, o, "reads_in_flight", 1, 0, ""),
                   cell(drive, o, "drive_bytes_per_second", 1e-9, 2, ""), cell(reached, o, "drive_fraction", 100, 0, "%"),
                   number(o, "page_faults_per_token"));
    }
}

static void md_limits(const bench_setup *b, const json_t *rows)
{
    char compute[24], reads[24], over[24];
    json_t *o;
    size_t i;

    if (!b->limits)
        return;
    out_printf("\n| test | depth | batch | ms/pass | computing alone ms | reading alone ms | time/larger |\n"
               "| --- | --: | --: | --: | --: | --: | --: |\n");
    json_array_foreach(rows, i, o)
    {
        out_printf("| %s %.0f | %.0f | %.0f | %.1f | %s | %s | %s |\n", json_string_value(json_object_get(o, "test")),
                   number(o, "tokens"), number(o, "depth"), number(o, "batch"), number(o, "ms_per_pass"),
                   cell(compute, o, "compute_alone_ms_per_pass", 1, 1, ""),
                   cell(reads, o, "reads_alone_ms_per_pass", 1, 1, ""), cell(over, o, "time_against_larger", 1, 2, ""));
    }
}

static void md_against(const bench_setup *b, const json_t *rows)
{
    json_t *o;
    size_t i;

    if (!b->before)
        return;
    out_printf("\n| test | depth | batch | rate against before |\n| --- | --: | --: | --: |\n");
    json_array_foreach(rows, i, o)
    {
        out_printf("| %s %.0f | %.0f | %.0f | %.3f |\n", json_string_value(json_object_get(o, "test")), number(o, "tokens"),
                   number(o, "depth"), number(o, "batch"), number(o, "rate_against_before"));
    }
}

static void md_phases(const bench_setup *b, const json_t *rows)
{
    char key[64];
    json_t *o;
    size_t i;

    if (!b->profile)
        return;
    out_printf("\n| ms/pass | depth | batch |");
    for (int k = 0; k < SWL_PHASE_COUNT; k++)
        out_printf(" %s |", swl_phase_name((swl_phase)k));
    out_printf("\n| --- | --: | --: |");
    for (int k = 0; k < SWL_PHASE_COUNT; k++)
        out_printf(" --: |");
    json_array_foreach(rows, i, o)
    {
        out_printf("\n| %s %.0f | %.0f | %.0f |", json_string_value(json_object_get(o, "test")), number(o, "tokens"),
                   number(o, "depth"), number(o, "batch"));
        for (int k = 0; k < SWL_PHASE_COUNT; k++) {
            snprintf(key, sizeof key, "ms_%s", swl_phase_name((swl_phase)k));
            out_printf(" %.2f |", number(o, key));
        }
    }
    out_printf("\n");
}

void bench_report(const bench_setup *b, bench_format format, const bench_row *rows, int n_rows)
{
    json_t *setup = setup_object(b), *list = json_array();

    for (int i = 0; i < n_rows; i++)
        json_array_append_new(list, row_object(b, rows, i));
    switch (format) {
    case BENCH_MD:
        md_setup(b, setup);
        md_rates(list);
        md_experts(b, list);
        md_limits(b, list);
        md_phases(b, list);
        md_against(b, list);
        break;
    case BENCH_CSV:
        csv(setup, list);
        break;
    case BENCH_JSONL:
        lines(setup, list);
        break;
    case BENCH_JSON:
        json_object_set(setup, "rows", list);
        out_json(json_incref(setup));
        break;
    }
    json_decref(list);
    json_decref(setup);
}
