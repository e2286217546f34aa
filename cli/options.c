/* options.c: the table, the parser and the help text that come from it. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"

#define C(id) (1u << CMD_##id)
#define ANSWERING (C(CHAT) | C(GENERATE))
#define RUNNING (ANSWERING | C(VERIFY) | C(EVAL) | C(INFO) | C(BENCH))
#define EVERY ((1u << CMD_COUNT) - 1)
#define INT_TOP 2147483647.0

static const char INPUT[] = "Input", SAMPLING[] = "Sampling", MODEL[] = "Model", CONVERSION[] = "Conversion", MEASURING[] = "Measuring",
                  OUTPUT[] = "Output", COMPATIBLE[] = "Accepted from the Swift program";

/* clang-format off */
const option_row option_rows[OPT_COUNT] = {
    [OPT_PROMPT] = {"prompt", 'p', TYPE_TEXT, INPUT, "TEXT", NULL, NULL, 0, 0, false, ANSWERING, OPT_COUNT,
                    "the text to continue, or one more turn"},
    [OPT_FILE] = {"file", 'f', TYPE_TEXT, INPUT, "FILE", NULL, NULL, 0, 0, false, ANSWERING, OPT_COUNT,
                  "take the text from a file (-: standard input)"},
    [OPT_IDS] = {"ids", 0, TYPE_TEXT, INPUT, "A,B,...", NULL, NULL, 0, 0, false, C(GENERATE), OPT_COUNT,
                 "take token ids instead of a text"},
    [OPT_CHAT] = {"chat", 0, TYPE_SWITCH, INPUT, NULL, "off", NULL, 0, 0, true, C(GENERATE), OPT_COUNT,
                  "put the text into the model's chat format"},
    [OPT_SYSTEM] = {"system", 's', TYPE_TEXT, INPUT, "TEXT", NULL, NULL, 0, 0, true, ANSWERING, OPT_COUNT,
                    "system message that opens the conversation"},
    [OPT_SAVE_STATE] = {"save-state", 0, TYPE_TEXT, INPUT, "FILE", NULL, NULL, 0, 0, false, C(GENERATE), OPT_COUNT,
                        "write the conversation's state when done"},
    [OPT_LOAD_STATE] = {"load-state", 0, TYPE_TEXT, INPUT, "FILE", NULL, NULL, 0, 0, false, C(GENERATE), OPT_COUNT,
                        "go on from a state that --save-state wrote"},

    [OPT_MAX_TOKENS] = {"max-tokens", 'n', TYPE_INT, SAMPLING, "N", "0", "until a stop token or the context's end",
                        0, INT_TOP, true, ANSWERING, OPT_COUNT, "tokens to produce at most"},
    [OPT_TEMP] = {"temp", 0, TYPE_REAL, SAMPLING, "X", NULL, "the model's", 0, 100, true, ANSWERING, OPT_COUNT,
                  "temperature; 0: always the likeliest token"},
    [OPT_TOP_K] = {"top-k", 0, TYPE_INT, SAMPLING, "N", NULL, "the model's", 0, INT_TOP, true, ANSWERING, OPT_COUNT,
                   "draw from the N likeliest tokens; 0: from all"},
    [OPT_TOP_P] = {"top-p", 0, TYPE_REAL, SAMPLING, "X", NULL, "the model's", 0, 1, true, ANSWERING, OPT_COUNT,
                   "draw from the likeliest tokens that together have this probability; 1: from all"},
    [OPT_MIN_P] = {"min-p", 0, TYPE_REAL, SAMPLING, "X", NULL, "the model's", 0, 1, true, ANSWERING, OPT_COUNT,
                   "leave out tokens below this fraction of the likeliest one's probability; 0: none"},
    [OPT_SEED] = {"seed", 0, TYPE_SEED, SAMPLING, "N", NULL, "random", 0, 0, true, ANSWERING, OPT_COUNT,
                  "start of the random numbers; the same seed gives the same answer"},
    [OPT_GREEDY] = {"greedy", 0, TYPE_SWITCH, SAMPLING, NULL, "off", "on for generate without sampling options", 0, 0,
                    true, ANSWERING, OPT_COUNT, "temperature 0 and nothing else"},
    [OPT_STOP] = {"stop", 0, TYPE_LIST, SAMPLING, "TEXT", NULL, NULL, 0, 0, false, ANSWERING, OPT_COUNT,
                  "end the answer before this text (may be repeated)"},

    [OPT_MODEL] = {"model", 'm', TYPE_TEXT, MODEL, "DIR", NULL, NULL, 0, 0, true, RUNNING | C(TOKENIZE), OPT_COUNT,
                   "the model's directory, instead of the first operand"},
    [OPT_MEMORY] = {"memory", 0, TYPE_SIZE, MODEL, "SIZE", NULL, "what the machine has to give", 0, 0, true, RUNNING,
                    OPT_COUNT, "bound for the memory of the whole process: 512M, 4G, 1.5GiB"},
    [OPT_CTX] = {"ctx", 'c', TYPE_INT, MODEL, "N", "0", "the library's", 0, INT_TOP, true, RUNNING, OPT_COUNT,
                 "the longest conversation in tokens"},
    [OPT_THREADS] = {"threads", 't', TYPE_INT, MODEL, "N", "0", "all that the process may use", 0, 4096, true, RUNNING,
                     OPT_COUNT, "threads that compute"},
    [OPT_CPU_MASK] = {"cpu-mask", 0, TYPE_TEXT, MODEL, "LEVEL", NULL, "the best", 0, 0, true, RUNNING, OPT_COUNT,
                      "highest instruction set to use: scalar, avx2, avx512, neon"},
    [OPT_PREFILL_CHUNK] = {"prefill-chunk", 0, TYPE_INT, MODEL, "N", "0", "the library's", 0, INT_TOP, true, RUNNING,
                           OPT_COUNT, "prompt tokens for each pass; changes speed and memory, never the result"},
    [OPT_EXACT] = {"exact", 0, TYPE_SWITCH, MODEL, NULL, "off", NULL, 0, 0, true, RUNNING, OPT_COUNT,
                   "keep activations in float32 (slower; for comparison with references)"},

    [OPT_SOURCE] = {"source", 0, TYPE_TEXT, CONVERSION, "DIR", NULL, NULL, 0, 0, false, C(REPACK), OPT_COUNT,
                    "MLX or Hugging Face checkpoint to read"},
    [OPT_OUTPUT] = {"output", 0, TYPE_TEXT, CONVERSION, "DIR", NULL, NULL, 0, 0, false, C(REPACK) | C(BENCH), OPT_COUNT,
                    "container to write, NAME.qpack"},
    [OPT_BITS] = {"bits", 0, TYPE_INT, CONVERSION, "N", "4", NULL, 4, 8, true, C(REPACK), OPT_COUNT,
                  "bits for each weight of an unquantised source: 4 or 8"},
    [OPT_GROUP] = {"group", 0, TYPE_INT, CONVERSION, "N", "64", NULL, 32, 128, true, C(REPACK), OPT_COUNT,
                   "weights that share a scale: 32, 64 or 128"},
    [OPT_REPLACE] = {"replace", 0, TYPE_SWITCH, CONVERSION, NULL, "off", NULL, 0, 0, false, C(REPACK), OPT_COUNT,
                     "replace an existing output"},

    [OPT_SYNTHETIC] = {"synthetic", 0, TYPE_TEXT, MEASURING, "NAME", NULL, NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                       "random weights in the exact shapes of a model: qwen3.6-35b, qwen3-next-80b, ... (qwen3.6-35b/8: its "
                       "first 8 layers alone); kept in the cache folder or where --output says"},
    [OPT_IN_MEMORY] = {"in-memory", 0, TYPE_SWITCH, MEASURING, NULL, "off", NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                       "with --synthetic: make the experts in memory instead of on disk"},
    [OPT_BENCH_PROMPT] = {"prompt-tokens", 'p', TYPE_TEXT, MEASURING, "N,...", "512", NULL, 0, 0, false, C(BENCH),
                          OPT_COUNT, "lengths of prompts; 0: none"},
    [OPT_BENCH_TOKENS] = {"decode-tokens", 'n', TYPE_TEXT, MEASURING, "N,...", "128", NULL, 0, 0, false, C(BENCH),
                          OPT_COUNT, "tokens to produce one after the other; 0: none"},
    [OPT_DEPTH] = {"depth", 'd', TYPE_TEXT, MEASURING, "N,...", "0", NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                   "tokens that the conversation holds before"},
    [OPT_BATCH] = {"batch", 'b', TYPE_TEXT, MEASURING, "N,...", "1", NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                   "conversations that decode together in one pass"},
    [OPT_REPEAT] = {"repeat", 'r', TYPE_INT, MEASURING, "N", "5", NULL, 1, 100, false, C(BENCH), OPT_COUNT,
                    "runs of each test, after one that does not count; the median is reported"},
    [OPT_ROUTES] = {"routes", 0, TYPE_TEXT, MEASURING, "KIND", NULL, "uniform with random weights, else model", 0, 0,
                    false, C(BENCH), OPT_COUNT,
                    "who chooses the experts: model (its router), uniform (evenly at random), same (at random, one choice for "
                    "all tokens of a pass), fitted (at random, repeating themselves as in text), or a file of "
                    "--record-routes"},
    [OPT_RECORD_ROUTES] = {"record-routes", 0, TYPE_TEXT, MEASURING, "FILE", NULL, NULL, 0, 0, false,
                           ANSWERING | C(EVAL) | C(BENCH), OPT_COUNT, "write which experts every token goes to"},
    [OPT_SLOTS] = {"slots", 0, TYPE_TEXT, MEASURING, "N,...", NULL, "parts of all", 0, 0, false, C(BENCH), OPT_COUNT,
                   "with cache: experts of each layer that fit in memory"},
    [OPT_PROFILE] = {"profile", 0, TYPE_SWITCH, MEASURING, NULL, "off", NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                     "also where the time goes"},
    [OPT_DRIVE] = {"drive", 0, TYPE_SWITCH, MEASURING, NULL, "on", NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                   "measure the drive before"},
    [OPT_FORMAT] = {"format", 'o', TYPE_TEXT, MEASURING, "FORMAT", "md", NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                    "md, csv, json or jsonl"},
    [OPT_COMPARE] = {"compare", 0, TYPE_TEXT, MEASURING, "FILE", NULL, NULL, 0, 0, false, C(BENCH), OPT_COUNT,
                     "rates against those of an earlier run, written with --format json"},

    [OPT_TOLERANCE] = {"tolerance", 0, TYPE_REAL, OUTPUT, "X", "0.001", NULL, 0, 1e30, true, C(VERIFY), OPT_COUNT,
                       "largest difference that still counts as equal; references are float32, so use --exact, and "
                       "quantised weights differ from their originals"},
    [OPT_AGAINST_EXACT] = {"against-exact", 0, TYPE_SWITCH, OUTPUT, NULL, "off", NULL, 0, 0, false, C(EVAL), OPT_COUNT,
                           "also run with --exact and say how far the two are apart"},
    [OPT_LICENSES] = {"licenses", 0, TYPE_SWITCH, OUTPUT, NULL, "off", NULL, 0, 0, false, C(VERSION), OPT_COUNT,
                      "licences of this program and of the libraries that it uses"},
    [OPT_JSON] = {"json", 0, TYPE_SWITCH, OUTPUT, NULL, "off", NULL, 0, 0, true, EVERY & ~C(HELP), OPT_COUNT,
                  "print one JSON object instead of text"},
    [OPT_STATS] = {"stats", 0, TYPE_SWITCH, OUTPUT, NULL, NULL, "on at a terminal", 0, 0, true, ANSWERING, OPT_COUNT,
                   "print speed and memory figures on standard error after an answer"},
    [OPT_QUIET] = {"quiet", 'q', TYPE_SWITCH, OUTPUT, NULL, "off", NULL, 0, 0, true, RUNNING | C(REPACK), OPT_COUNT,
                   "no progress and no notes on standard error"},
    [OPT_VERBOSE] = {"verbose", 'v', TYPE_SWITCH, OUTPUT, NULL, "off", NULL, 0, 0, true, RUNNING | C(REPACK),
                     OPT_COUNT, "more about the model and about errors"},
    [OPT_HELP] = {"help", 'h', TYPE_SWITCH, OUTPUT, NULL, "off", NULL, 0, 0, false, EVERY, OPT_COUNT,
                  "print this"},

    [OPT_MAX_NEW] = {"max-new", 0, TYPE_INT, COMPATIBLE, "N", NULL, NULL, 0, INT_TOP, false, ANSWERING, OPT_MAX_TOKENS,
                     "the same as --max-tokens"},
    [OPT_CACHE_GB] = {"cache-gb", 0, TYPE_REAL, COMPATIBLE, "X", NULL, NULL, 0, 1e9, false, RUNNING, OPT_COUNT,
                      "bound for the expert pool alone, in 10^9 bytes; --memory holds all the same"},
    [OPT_GPU] = {"gpu", 0, TYPE_SWITCH, COMPATIBLE, NULL, "off", NULL, 0, 0, false, ANSWERING, OPT_COUNT,
                 "the fastest engine there is; without a GPU engine that is the processor"},
    [OPT_LAZY] = {"lazy", 0, TYPE_SWITCH, COMPATIBLE, NULL, "off", NULL, 0, 0, false, ANSWERING, OPT_COUNT,
                  "no effect: weights are always read when needed"},
};
/* clang-format on */

bool parse_int(const char *text, int64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)*text) && !((*text == '-' || *text == '+') && isdigit((unsigned char)text[1])))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno;
}

static bool parse_real(const char *text, double *out)
{
    char *end;

    if (!*text || isspace((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

static bool parse_seed(const char *text, uint64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !*end && !errno && *out <= INT64_MAX; /* so that JSON can hold it */
}

/* A number, and K, M, G or T with or without B or iB behind it. */
static bool parse_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    const char *unit;
    double x;

    if (!isdigit((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    x = strtod(text, &end);
    unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        x = ldexp(x, 10 * (int)(unit - units + 1));
        end++;
        if (end[0] == 'i' && end[1] == 'B')
            end++;
    }
    if (*end == 'B')
        end++;
    if (*end || !(x >= 1) || x > 0x1p60)
        return false;
    *out = (uint64_t)x;
    return true;
}

static bool parse_switch(const char *text, bool *on)
{
    static const char *const yes[] = {"on", "1", "true", "yes"}, *const no[] = {"off", "0", "false", "no"};

    for (int i = 0; i < 4; i++) {
        if (!strcmp(text, yes[i]) || !strcmp(text, no[i])) {
            *on = !strcmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

static swl_status out_of_range(const option_row *row, const char *shown, const char *text, swl_error *err)
{
    return fail(err, SWL_E_ARG, "%s is %s, expected %s %.10g to %.10g", shown, text,
                row->type == TYPE_INT ? "a whole number from" : "a number from", row->min, row->max);
}

/* Converts and stores; `shown` is how messages call the place that the text came from. */
static swl_status store(arguments *a, option_id id, const char *text, option_origin origin, const char *shown,
                        swl_error *err)
{
    const option_row *row = &option_rows[id];
    option_value *v = &a->values[row->same_as == OPT_COUNT ? id : row->same_as];

    switch (row->type) {
    case TYPE_SWITCH:
        if (!parse_switch(text, &v->on))
            return fail(err, SWL_E_ARG, "%s is \"%s\", expected on or off", shown, text);
        break;
    case TYPE_INT:
        if (!parse_int(text, &v->number) || (double)v->number < row->min || (double)v->number > row->max)
            return out_of_range(row, shown, text, err);
        break;
    case TYPE_REAL:
        if (!parse_real(text, &v->real) || v->real < row->min || v->real > row->max)
            return out_of_range(row, shown, text, err);
        break;
    case TYPE_SEED:
        if (!parse_seed(text, &v->seed))
            return fail(err, SWL_E_ARG, "%s is %s, expected a whole number from 0 to %llu", shown, text,
                        (unsigned long long)INT64_MAX);
        break;
    case TYPE_SIZE:
        if (!parse_size(text, &v->size))
            return fail(err, SWL_E_ARG, "%s is %s, expected a size like 512M, 4G or 1.5GiB", shown, text);
        break;
    case TYPE_LIST:
        if (v->n_list == LIST_MAX)
            return fail(err, SWL_E_ARG, "%s is given more than %d times", shown, LIST_MAX);
        v->list[v->n_list++] = text;
        break;
    case TYPE_TEXT:
        break;
    }
    v->text = text;
    v->set = true;
    v->origin = origin;
    return SWL_OK;
}

static swl_status store_builtin(arguments *a, swl_error *err)
{
    for (int id = 0; id < OPT_COUNT; id++) {
        if (option_rows[id].builtin) {
            swl_status st = store(a, (option_id)id, option_rows[id].builtin, FROM_BUILTIN, "built in", err);
            if (st)
                return st;
        }
    }
    return SWL_OK;
}

static void environment_name(char *dst, size_t size, const char *name)
{
    snprintf(dst, size, "SWIFTLET_%s", name);
    for (char *p = dst; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

static swl_status store_environment(arguments *a, swl_error *err)
{
    for (int id = 0; id < OPT_COUNT; id++) {
        const option_row *row = &option_rows[id];
        char name[64];
        const char *text;
        swl_status st;

        if (!row->environment || !(row->commands & 1u << a->command))
            continue;
        environment_name(name, sizeof name, row->name);
        text = getenv(name);
        if (!text || !*text)
            continue;
        st = store(a, (option_id)id, text, FROM_ENVIRONMENT, name, err);
        if (st)
            return st;
    }
    return SWL_OK;
}

static option_id find_long(const char *name, size_t n, uint32_t of)
{
    for (int id = 0; id < OPT_COUNT; id++) {
        if (strlen(option_rows[id].name) == n && !memcmp(option_rows[id].name, name, n) &&
            (option_rows[id].commands & of))
            return (option_id)id;
    }
    return OPT_COUNT;
}

static int min3(int a, int b, int c)
{
    return a < b ? (a < c ? a : c) : (b < c ? b : c);
}

/* Levenshtein distance with exchanges of neighbours; long names count as far. */
static int distance(const char *s, const char *t)
{
    int d[33][33], n = (int)strlen(s), m = (int)strlen(t);

    if (n > 32 || m > 32)
        return 99;
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (s[i - 1] != t[j - 1]));
            if (i > 1 && j > 1 && s[i - 1] == t[j - 2] && s[i - 2] == t[j - 1] && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[n][m];
}

const char *nearest_name(const char *typed, const char *const *names, int n)
{
    int best = 1 + (int)strlen(typed) / 3, prefix = (int)strlen(typed);
    const char *found = NULL;

    for (int i = 0; i < n; i++) {
        int d = distance(typed, names[i]);
        if (prefix > 1 && !strncmp(typed, names[i], (size_t)prefix))
            d = 1;
        if (d <= best && (!found || d < best)) {
            best = d;
            found = names[i];
        }
    }
    return found;
}

static swl_status unknown_option(const arguments *a, const char *arg, size_t n, swl_error *err)
{
    char typed[40];
    const char *names[OPT_COUNT], *near;
    option_id elsewhere = find_long(arg + 2, n - 2, EVERY);
    int n_names = 0;

    if (elsewhere != OPT_COUNT)
        return fail(err, SWL_E_ARG, "option --%s does not belong to \"%s\"", option_rows[elsewhere].name,
                    commands[a->command].name);
    snprintf(typed, sizeof typed, "%.*s", (int)(n - 2 < 39 ? n - 2 : 39), arg + 2);
    for (int id = 0; id < OPT_COUNT; id++) {
        if (option_rows[id].commands & 1u << a->command)
            names[n_names++] = option_rows[id].name;
    }
    near = nearest_name(typed, names, n_names);
    if (near)
        return fail(err, SWL_E_ARG, "unknown option --%s; did you mean --%s?", typed, near);
    return fail(err, SWL_E_ARG, "unknown option --%s; \"swiftlet help %s\" lists them", typed,
                commands[a->command].name);
}

typedef struct cursor {
    int argc;
    char **argv;
    int at; /* the argument being read */
} cursor;

/* `attached` is the value that stands in the same argument, NULL when there is none: then the next argument is. */
static swl_status take(arguments *a, option_id id, const char *attached, cursor *c, swl_error *err)
{
    const option_row *row = &option_rows[id];
    char shown[64];

    snprintf(shown, sizeof shown, "--%s", row->name);
    if (row->type == TYPE_SWITCH)
        return store(a, id, attached ? attached : "on", FROM_OPTION, shown, err);
    if (!attached && c->at + 1 >= c->argc)
        return fail(err, SWL_E_ARG, "option %s needs a value: %s %s", shown, shown, row->value_name);
    return store(a, id, attached ? attached : c->argv[++c->at], FROM_OPTION, shown, err);
}

/* --name, --name=VALUE, --name VALUE or --no-name */
static swl_status parse_long(arguments *a, cursor *c, swl_error *err)
{
    const char *arg = c->argv[c->at];
    size_t n = strcspn(arg, "=");
    uint32_t mine = 1u << a->command;
    option_id id = find_long(arg + 2, n - 2, mine);

    if (id != OPT_COUNT)
        return take(a, id, arg[n] ? arg + n + 1 : NULL, c, err);
    if (!strncmp(arg, "--no-", 5) && !arg[n]) {
        id = find_long(arg + 5, n - 5, mine);
        if (id != OPT_COUNT && option_rows[id].type == TYPE_SWITCH)
            return take(a, id, "off", c, err);
    }
    return unknown_option(a, arg, n, err);
}

static option_id find_short(char name, uint32_t of)
{
    for (int id = 0; id < OPT_COUNT; id++) {
        if (option_rows[id].short_name == name && (option_rows[id].commands & of))
            return (option_id)id;
    }
    return OPT_COUNT;
}

/* -q, -qv, -n 5, -n5 */
static swl_status parse_short(arguments *a, cursor *c, swl_error *err)
{
    const char *arg = c->argv[c->at];

    for (const char *p = arg + 1; *p; p++) {
        option_id id = find_short(*p, 1u << a->command);
        swl_status st;

        if (id == OPT_COUNT)
            return fail(err, SWL_E_ARG, "unknown option -%c in \"%s\"; \"swiftlet help %s\" lists the options", *p, arg,
                        commands[a->command].name);
        if (option_rows[id].type != TYPE_SWITCH)
            return take(a, id, p[1] ? p + 1 : NULL, c, err);
        st = take(a, id, NULL, c, err);
        if (st)
            return st;
    }
    return SWL_OK;
}

swl_status options_parse(arguments *a, command_id id, int argc, char **argv, const char **operands,
                         swl_error *err)
{
    cursor c = {argc, argv, 0};
    bool only_operands = false;
    swl_status st;

    memset(a, 0, sizeof *a);
    a->command = id;
    a->operands = operands;
    st = store_builtin(a, err);
    if (!st)
        st = store_environment(a, err);
    for (; !st && c.at < argc; c.at++) {
        const char *arg = argv[c.at];

        if (only_operands || arg[0] != '-' || !arg[1])
            operands[a->n_operands++] = arg;
        else if (!strcmp(arg, "--"))
            only_operands = true;
        else if (arg[1] == '-')
            st = parse_long(a, &c, err);
        else
            st = parse_short(a, &c, err);
    }
    return st;
}

#define HELP_COLUMN 28
#define HELP_WIDTH 80

/* Words from `column` on, in a paragraph whose further lines begin at HELP_COLUMN. */
static void help_words(FILE *f, const char *text, int *column)
{
    while (*text) {
        int n = (int)strcspn(text, " ");

        if (*column + 1 + n > HELP_WIDTH && *column > HELP_COLUMN) {
            fprintf(f, "\n%*s", HELP_COLUMN, "");
            *column = HELP_COLUMN;
        }
        fprintf(f, "%s%.*s", *column > HELP_COLUMN ? " " : "", n, text);
        *column += n + (*column > HELP_COLUMN);
        text += n;
        text += strspn(text, " ");
    }
}

static void help_row(FILE *f, const option_row *row)
{
    char left[64], builtin[80];
    const char *shown = row->builtin_help ? row->builtin_help : row->type == TYPE_SWITCH ? NULL : row->builtin;
    int column = HELP_COLUMN;

    snprintf(left, sizeof left, "%c%c%c --%s%s%s", row->short_name ? '-' : ' ', row->short_name ? row->short_name : ' ',
             row->short_name ? ',' : ' ', row->name, row->value_name ? " " : "", row->value_name ? row->value_name : "");
    fprintf(f, "  %-*s", HELP_COLUMN - 2, left);
    help_words(f, row->help, &column);
    if (shown) {
        snprintf(builtin, sizeof builtin, "[%s]", shown);
        help_words(f, builtin, &column);
    }
    fputc('\n', f);
}

void options_help(FILE *f, command_id of)
{
    const char *group = NULL;

    for (int id = 0; id < OPT_COUNT; id++) {
        const option_row *row = &option_rows[id];

        if (!(row->commands & 1u << of))
            continue;
        if (row->group != group)
            fprintf(f, "\n%s:\n", row->group);
        group = row->group;
        help_row(f, row);
    }
}
