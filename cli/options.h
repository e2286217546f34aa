/*
 * options.h: the one table of options, and what a command line means by it.
 *
 * A value comes from the command line, else (for rows that allow it) from the environment as SWIFTLET_<NAME>, else from the
 * config file, else it is the built-in one. Help, man pages, completion and "info --config" are made of the same rows.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdio.h>

#include <swiftlet/swiftlet.h>

typedef enum command_id {
    CMD_CHAT, CMD_GENERATE, CMD_PULL, CMD_REPACK, CMD_VERIFY, CMD_EVAL, CMD_LS, CMD_INFO, CMD_RM, CMD_BENCH, CMD_SERVE, CMD_DOCTOR, CMD_TOKENIZE, CMD_TEMPLATE, CMD_DUMP_TENSOR, CMD_PS, CMD_HEALTH, CMD_LAUNCH,
    CMD_COMPLETION, CMD_HELP, CMD_VERSION, CMD_COUNT
} command_id;

/* Their order is the order in --help. */
typedef enum option_id {
    OPT_PROMPT, OPT_FILE, OPT_IDS, OPT_CHAT, OPT_SYSTEM, OPT_SYSTEM_FILE, OPT_THINK, OPT_SHOW_THINKING, OPT_RESUME, OPT_SAVE,
    OPT_HISTORY, OPT_SAVE_STATE, OPT_LOAD_STATE,
    OPT_MAX_TOKENS, OPT_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P, OPT_SEED, OPT_REPEAT_PENALTY, OPT_PRESENCE_PENALTY,
    OPT_FREQUENCY_PENALTY, OPT_GREEDY, OPT_STOP, OPT_JSON_SCHEMA, OPT_LOGPROBS,
    OPT_MODEL, OPT_MEMORY, OPT_CTX, OPT_THREADS, OPT_DEVICE, OPT_CPU_MASK, OPT_PREFILL_CHUNK, OPT_EXACT, OPT_IO, OPT_DIRECT,
    OPT_IO_DEPTH, OPT_LOOKAHEAD, OPT_CACHE_POLICY, OPT_CHECKSUMS,
    OPT_URL, OPT_WRITE, OPT_HOST, OPT_PORT, OPT_ALIAS, OPT_PARALLEL, OPT_QUEUE, OPT_API_KEY, OPT_API_KEY_FILE, OPT_INSECURE, OPT_ALLOWED_HOSTS,
    OPT_CORS_ORIGINS, OPT_SESSION_DIR, OPT_OLLAMA_API, OPT_REASONING_FIELD, OPT_PRESERVE_THINKING, OPT_SYSTEM_MERGE,
    OPT_PARSE_SPECIAL, OPT_WEB, OPT_SLOTS_API, OPT_MAX_BODY, OPT_GRACE, OPT_LOG_PROMPTS,
    OPT_REVISION, OPT_LOCAL_DIR, OPT_INCLUDE, OPT_EXCLUDE, OPT_MIRROR, OPT_ENDPOINT, OPT_TOKEN_FILE, OPT_SHA256,
    OPT_REQUIRE_HASHES, OPT_ADOPT, OPT_FORCE, OPT_DRY_RUN, OPT_OFFLINE, OPT_WAIT, OPT_STREAMS, OPT_PART_SIZE, OPT_STALL,
    OPT_RETRY_WAIT, OPT_REPAIR, OPT_WRITE_HASHES, OPT_YES,
    OPT_SOURCE, OPT_FROM_HF, OPT_FROM_URL, OPT_OUTPUT, OPT_BITS, OPT_GROUP, OPT_RECIPE, OPT_QUANTISER, OPT_SCALES, OPT_KEEP_SOURCE, OPT_REPLACE,
    OPT_SYNTHETIC, OPT_IN_MEMORY, OPT_BENCH_PROMPT, OPT_BENCH_TOKENS, OPT_DEPTH, OPT_BATCH, OPT_DRAFTS, OPT_REPEAT, OPT_ROUTES,
    OPT_RECORD_ROUTES, OPT_SLOTS, OPT_PROFILE, OPT_DRIVE, OPT_LIMITS, OPT_FORMAT, OPT_COMPARE,
    OPT_TOLERANCE, OPT_AGAINST_EXACT, OPT_LICENSES, OPT_CONFIG,
    OPT_JSON, OPT_STATS, OPT_QUIET, OPT_VERBOSE, OPT_COLOR, OPT_LOG, OPT_LOG_JSON, OPT_HELP,
    OPT_MAX_NEW, OPT_CACHE_GB, OPT_GPU, OPT_LAZY, /* spellings of the Swift program */
    OPT_MAN, OPT_WORDS, /* for the build and for shells */
    OPT_COUNT
} option_id;

typedef enum option_type {
    TYPE_SWITCH, /* --name, --no-name */
    TYPE_INT,
    TYPE_REAL,
    TYPE_SEED,   /* 0 to 2^63-1 */
    TYPE_SIZE,   /* bytes: 512M, 4G, 1.5GiB; units are powers of 1024 */
    TYPE_DURATION, /* seconds in `real`: 30, 30s, 5m; within min and max */
    TYPE_CHOICE, /* one of those in value_name, "a|b|c" */
    TYPE_TEXT,
    TYPE_LIST    /* text, may be repeated */
} option_type;

/* The later, the stronger. */
typedef enum option_origin { FROM_BUILTIN, FROM_FILE, FROM_ENVIRONMENT, FROM_OPTION, FROM_TYPED } option_origin;

typedef struct option_row {
    const char *name;
    char short_name;         /* 0: none */
    option_type type;
    const char *group;       /* heading in --help; NULL: not shown */
    const char *value_name;  /* "N", "a|b|c"; FILE, DIR and MODEL are completed as such; NULL for switches */
    const char *builtin;     /* default, written as on the command line; NULL: unset */
    const char *builtin_help;/* what --help says the default is when `builtin` does not; NULL: nothing */
    double min, max;         /* of TYPE_INT and TYPE_REAL, both allowed */
    bool environment;        /* may also be set in the environment and in the config file */
    uint32_t commands;       /* bit 1 << command_id */
    option_id same_as;       /* another spelling of that option; OPT_COUNT: its own */
    const char *help;
} option_row;

extern const option_row option_rows[OPT_COUNT];

#define EVERY_COMMAND ((1u << CMD_COUNT) - 1)

#define LIST_MAX 16

typedef struct option_value {
    option_origin origin;
    int line;                /* FROM_FILE */
    bool set;                /* has a value at all */
    bool on;                 /* TYPE_SWITCH */
    int64_t number;          /* TYPE_INT */
    uint64_t seed;
    uint64_t size;           /* TYPE_SIZE, in bytes */
    double real;
    const char *text;        /* as written; borrowed from argv, the environment or the config file */
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

/* Converts and stores one value; `shown` is how messages call the place that the text came from. The text is borrowed. */
swl_status option_store(arguments *a, option_id id, const char *text, option_origin origin, const char *shown,
                        swl_error *err);

/* The option of that name (of n bytes) that one of the commands has; OPT_COUNT: none. */
option_id option_find(const char *name, size_t n, uint32_t commands);
option_id option_find_short(char name, uint32_t commands);
void option_environment_name(char dst[64], option_id id);

/* Notes on lines of the config file that say nothing to any command. */
void options_check_file(void);

/* The name in names[0..n) that is nearest to a mistyped one; NULL when none is near. */
const char *nearest_name(const char *typed, const char *const *names, int n);

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
