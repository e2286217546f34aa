/* bench.h: what bench.c measures and bench_report.c prints. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "options.h"

#define BENCH_LIST_MAX 16

typedef enum bench_kind { BENCH_PROMPT, BENCH_DECODE } bench_kind;

/* One test, several runs of it. */
typedef struct bench_row {
    bench_kind kind;
    int32_t depth, batch, n; /* tokens of each conversation: before, and in the test */
    int32_t n_runs;
    double seconds[100];     /* of each run */
    swl_profile profile;     /* over all runs */
    swl_model_stats stats;   /* likewise */
    uint64_t faults_minor, faults_major;
    swl_machine_rates machine; /* just before */
} bench_row;

typedef struct bench_setup {
    const arguments *a;
    const char *model;       /* directory or name of the shapes */
    const char *routes;      /* "model", "uniform", "same" */
    uint64_t seed;           /* of synthetic weights and random tokens */
    bool profile;
    swl_model_info info;
    swl_memory_plan plan;
    swl_machine_rates drive; /* measured once */
    char command[512];
} bench_setup;

typedef enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL } bench_format;

bool bench_format_find(const char *name, bench_format *out);
void bench_report(const bench_setup *b, bench_format format, const bench_row *rows, int n_rows);

#endif
