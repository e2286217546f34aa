/*
 * options.h: the one table of options, and what a command line means by it.
 *
 * A value comes from the command line, else from the environment (SWIFTLET_<NAME>, for rows that allow it), else it is
 * the built-in one. Help is printed from the same rows. Needs nothing but libc; tells faults by swl_error.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdio.h>

#include <swiftlet/swiftlet.h>

typedef enum command_id {
    CMD_CHAT, CMD_GENERATE, CMD_REPACK, CMD_VERIFY, CMD_EVAL, CMD_INFO, CMD_BENCH, CMD_TOKENIZE, CMD_HELP, CMD_VERSION, CMD_COUNT
} command_id;

/* Their order is the order in --help. */
typedef enum option_id {
    OPT_PROMPT, OPT_FILE, OPT_IDS, OPT_CHAT, OPT_SYSTEM, OPT_SAVE_STATE, OPT_LOAD_STATE,
    OPT_MAX_TOKENS, OPT_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P, OPT_SEED, OPT_GREEDY, OPT_STOP,
    OPT_MODEL, OPT_MEMORY, OPT_CTX, OPT_THREADS, OPT_CPU_MASK, OPT_PREFILL_CHUNK, OPT_EXACT,
    OPT_SOURCE, OPT_OUTPUT, OPT_BITS, OPT_GROUP, OPT_REPLACE,
    OPT_SYNTHETIC, OPT_IN_MEMORY, OPT_BENCH_PROMPT, OPT_BENCH_TOKENS, OPT_DEPTH, OPT_BATCH, OPT_REPEAT, OPT_ROUTES,
    OPT_RECORD_ROUTES, OPT_SLOTS, OPT_PROFILE, OPT_DRIVE, OPT_FORMAT, OPT_COMPARE,
    OPT_TOLERANCE, OPT_AGAINST_EXACT, OPT_LICENSES,
    OPT_JSON, OPT_STATS, OPT_QUIET, OPT_VERBOSE, OPT_HELP,
    OPT_MAX_NEW, OPT_CACHE_GB, OPT_GPU, OPT_LAZY, /* spellings of the Swift program */
    OPT_COUNT
} option_id;

typedef enum option_type {
    TYPE_SWITCH, /* --name, --no-name */
    TYPE_INT,
    TYPE_REAL,
    TYPE_SEED,   /* 0 to 2^63-1 */
    TYPE_SIZE,   /* bytes: 512M, 4G, 1.5GiB; units are powers of 1024 */
    TYPE_TEXT,
    TYPE_LIST    /* text, may be repeated */
} option_type;

typedef enum option_origin { FROM_BUILTIN, FROM_ENVIRONMENT, FROM_OPTION } option_origin;

typedef struct option_row {
    const char *name;
    char short_name;         /* 0: none */
    option_type type;
    const char *group;       /* heading in --help */
    const char *value_name;  /* "N", "FILE"; NULL for switches */
    const char *builtin;     /* default, written as on the command line; NULL: unset */
    const char *builtin_help;/* what --help says the default is when `builtin` does not; NULL: nothing */
    double min, max;         /* of TYPE_INT and TYPE_REAL, both allowed */
    bool environment;
    uint32_t commands;       /* bit 1 << command_id */
    option_id same_as;       /* another spelling of that option; OPT_COUNT: its own */
    const char *help;
} option_row;

extern const option_row option_rows[OPT_COUNT];

#define LIST_MAX 16

typedef struct option_value {
    option_origin origin;
    bool set;                /* has a value at all */
    bool on;                 /* TYPE_SWITCH */
    int64_t number;          /* TYPE_INT */
    uint64_t seed;
    uint64_t size;           /* TYPE_SIZE, in bytes */
    double real;
    const char *text;        /* as written; borrowed from argv or the environment */
    const char *list[LIST_MAX];
    int n_list;
} option_value;

typedef struct arguments {
    command_id command;
    option_value values[OPT_COUNT];
    const char **operands;   /* in order; points into the array given to options_parse */
    int n_operands;
} arguments;

/* Reads what follows the command's name. `operands` needs room for argc entries. SWL_E_ARG names the fault. */
swl_status options_parse(arguments *a, command_id id, int argc, char **argv, const char **operands,
                         swl_error *err);

/* The options of one command by group, with defaults. */
void options_help(FILE *f, command_id of);

/* The name in names[0..n) that is nearest to a mistyped one; NULL when none is near. */
const char *nearest_name(const char *typed, const char *const *names, int n);

/* Whole decimal numbers; false when the text is anything else. */
bool parse_int(const char *text, int64_t *out);

static inline bool opt_on(const arguments *a, option_id id)
{
    return a->values[id].on;
}

static inline const char *opt_text(const arguments *a, option_id id)
{
    return a->values[id].text;
}

static inline int32_t opt_int(const arguments *a, option_id id)
{
    return (int32_t)a->values[id].number;
}

#endif
