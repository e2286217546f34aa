/* bench.h: what bench.c measures and bench_report.c prints. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <jansson.h>

#include "options.h"

#define BENCH_LIST_MAX 16

typedef struct int_list {
    int32_t x[BENCH_LIST_MAX];
    int n;
} int_list;

/* Numbers from min to max with commas between. */
swl_status bench_list(int_list *l, const arguments *a, option_id id, int32_t min, int32_t max, swl_error *err);

typedef enum bench_kind { BENCH_PROMPT, BENCH_DECODE, BENCH_DRAFT } bench_kind;

/* "prompt", "decode", "draft" */
const char *bench_kind_name(bench_kind kind);

enum { BENCH_RUNS_MAX = 100 };

/* What stood beside one run. */
typedef struct bench_beside {
    double read_bytes, reading; /* of the run: bytes from the drive, seconds in which something was on its way */
    double compute;          /* --limits: seconds of the same passes without reading, */
    double reads;            /* of the same kind of reads without computing, as if they were as many bytes; 0: not measured */
} bench_beside;

/* One test, several runs of it. */
typedef struct bench_row {
    bench_kind kind;
    int32_t depth;           /* tokens of each conversation before the test */
    int32_t batch;           /* conversations in a pass; drafts: tokens of the only one */
    int32_t n;               /* tokens of a prompt; else passes */
    int32_t n_runs;
    double seconds[BENCH_RUNS_MAX]; /* of each run */
    bench_beside beside[BENCH_RUNS_MAX];
    int32_t in_flight;       /* of the last run that read: reads on their way at once, on average; 0: none has */
    double bytes_per_run;    /* that it read */
    double drive[BENCH_RUNS_MAX + 1]; /* bytes a second with so many in flight, before each run and after the last; or 0 */
    swl_profile profile;     /* over all runs */
    swl_model_stats stats;   /* likewise */
    uint64_t faults_minor, faults_major;
    swl_machine_rates machine; /* just before */
} bench_row;

typedef struct bench_setup {
    const arguments *a;
    const char *model;       /* directory or name of the shapes */
    const char *routes;      /* "model", "uniform", "same", "fitted", or a file */
    uint64_t seed;           /* of synthetic weights and random tokens */
    bool profile, limits;
    swl_model_info info;
    swl_memory_plan plan;
    json_t *before;          /* --compare: rows of an earlier run; NULL: none */
    char command[512];
} bench_setup;

typedef enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL } bench_format;

/* The format that the options ask for. */
swl_status bench_format_from(const arguments *a, bench_format *out, swl_error *err);
/* --compare. */
swl_status bench_load_rows(json_t **rows, const char *path, swl_error *err);
/* A list of flat objects with equal keys as CSV. */
void bench_csv(const json_t *rows);

/* swiftlet bench cache */
swl_status bench_cache(const arguments *a, swl_error *err);

void bench_report(const bench_setup *b, bench_format format, const bench_row *rows, int n_rows);

#endif
