/* pull.h: what pull, repack and verify have in common: the options of downloads, the environment, and progress. */
#ifndef CLI_PULL_H
#define CLI_PULL_H

#include "options.h"
#include "output.h"
#include "places.h"

/* What swl_pull_options points to, and what is shown. */
typedef struct pulling {
    swl_pull_options o;
    bool json, quiet;
    bool local;  /* the source is on this machine */
    volatile int stop;
    char *token, *revision;
    const char *cache_roots[8];
    char roots[8][PLACE_PATH_MAX];
    char target[PLACE_PATH_MAX];
    /* Progress. */
    double shown_at, noted_at, rate, rate_at;
    uint64_t rate_done;
    int noted_phase;
    progress_pace pace;
} pulling;

/* All but source and target. `p` must stay where it is. */
swl_status pulling_init(pulling *p, const arguments *a, swl_error *err);
void pulling_free(pulling *p);

/* What is to be done: for people, and as a JSON event. */
void pulling_plan_text(const swl_pull_plan *plan);
void pulling_plan_json(const swl_pull_plan *plan);

/* The proxy and certificates for the source. */
void pulling_environment(pulling *p);

/* Where a source is installed by default: ORG--NAME.qpack in the folder of models, whose parents are made. */
swl_status pulling_default_target(char dst[PLACE_PATH_MAX], const char *source, swl_error *err);
/* Brings p->o.source to p->o.target, with progress, and says where it is. */
swl_status pulling_run(pulling *p, const arguments *a, swl_error *err);

#endif
