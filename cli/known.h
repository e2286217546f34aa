/*
 * known.h: models that can be had, and whether this machine can run them. Expected speeds are arithmetic: bytes that a token
 * needs, by the rates measured here, with hits of the expert pool as synthetic routes have them.
 */
#ifndef CLI_KNOWN_H
#define CLI_KNOWN_H

#include <swiftlet/swiftlet.h>

enum { N_KNOWN = 9 };

/* Containers at four bits, groups of 64: exact but for `dense`, which is to the percent. */
typedef struct known_model {
    const char *name;
    const char *source;       /* for "swiftlet pull" */
    int n_layers, n_experts, k; /* of the experts; 0 in dense models */
    uint64_t expert, dense;   /* bytes of an expert; of everything else */
    uint64_t download;        /* bytes of an original that has to be converted, about; 0: it is the container */
} known_model;

extern const known_model known_models[N_KNOWN];

typedef struct known_estimate {
    uint64_t bytes;           /* of the container */
    uint64_t download, memory;/* to receive; that it takes at least */
    bool in_memory;           /* the core and one token's experts */
    bool on_disk;
    int slots;                /* of each layer */
    double hits, rate;        /* tokens a second; 0: unknown */
} known_estimate;

void known_judge(const swl_machine_info *m, const known_model *k, known_estimate *e);

/* On standard error: three models that fit, with the commands that bring them. `dir`: where they would lie. */
void known_suggest(const char *dir);

#endif
