/* chat_commands.c: what can be typed with a slash before it, and its completion. */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "chat.h"
#include "config.h"
#include "format.h"
#include "models.h"
#include "output.h"

typedef struct typed_row {
    const char *name, *also[2];
    const char *argument;    /* as in /help; NULL: none */
    const char *help;
    swl_status (*run)(conversation *c, const char *arg, swl_error *err);
} typed_row;

/* ---- settings --------------------------------------------------------------------------------------------------------- */

/* What can be changed while a model is open. */
static const option_id settable[] = {
    OPT_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P, OPT_SEED, OPT_REPEAT_PENALTY, OPT_PRESENCE_PENALTY, OPT_FREQUENCY_PENALTY,
    OPT_GREEDY, OPT_MAX_TOKENS, OPT_STOP, OPT_THINK, OPT_SHOW_THINKING, OPT_SYSTEM, OPT_STATS, OPT_SAVE, OPT_QUIET, OPT_VERBOSE};
enum { N_SETTABLE = sizeof settable / sizeof settable[0] };

static swl_status set_option(conversation *c, option_id id, const char *text, swl_error *err)
{
    char *copy = strdup(text);
    swl_sampling sampling;
    swl_status st;

    if (!copy)
        return fail(err, SWL_E_NOMEM, "out of memory");
    c->a.values[id].n_list = 0;
    st = option_store(&c->a, id, copy, FROM_TYPED, option_rows[id].name, err);
    if (!st)
        st = sampling_from(&sampling, &c->a, c->e.dir, false, err);
    if (st) {
        free(copy);
        return st;
    }
    free(c->typed[id]);
    c->typed[id] = copy;
    if (!c->a.values[OPT_SEED].set)
        sampling.seed = c->answer.sampling.seed;
    c->answer.sampling = sampling;
    return SWL_OK;
}

static swl_status list_settings(conversation *c, swl_error *err)
{
    swl_sampling published;
    swl_status st;

    swl_sampling_init(&published);
    published.temperature = 1;
    st = swl_sampling_load(&published, c->e.dir, err);
    for (int i = 0; i < N_SETTABLE && !st; i++) {
        char origin[ORIGIN_MAX], line[ORIGIN_MAX + 256];
        const char *text;

        config_value(settable[i], &c->a.values[settable[i]], &published, &text, origin);
        snprintf(line, sizeof line, "  %-18s %-40.100s  %s\n", option_rows[settable[i]].name, text, origin);
        err_text(STYLE_NONE, line, strlen(line));
    }
    return st;
}

static swl_status run_set(conversation *c, const char *arg, swl_error *err)
{
    size_t n = strcspn(arg, " ");
    const char *names[N_SETTABLE], *near;
    char name[64];

    if (!n)
        return list_settings(c, err);
    snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), arg);
    for (int i = 0; i < N_SETTABLE; i++) {
        names[i] = option_rows[settable[i]].name;
        if (!strcmp(name, names[i]) && settable[i] == OPT_SYSTEM)
            return fail(err, SWL_E_ARG, "/system TEXT sets the system message");
        if (!strcmp(name, names[i]))
            return set_option(c, settable[i], arg + n + strspn(arg + n, " "), err);
    }
    near = nearest_name(name, names, N_SETTABLE);
    if (option_find(name, strlen(name), 1u << CMD_CHAT) != OPT_COUNT)
        return fail(err, SWL_E_ARG, "%s cannot be changed while the model is open", name);
    return fail(err, SWL_E_ARG, "unknown setting %s%s%s", name, near ? "; did you mean " : "", near ? near : "");
}

static swl_status run_system(conversation *c, const char *arg, swl_error *err)
{
    swl_status st = set_option(c, OPT_SYSTEM, arg, err);

    return st ? st : conversation_set_system(c, arg, err);
}

static swl_status run_think(conversation *c, const char *arg, swl_error *err)
{
    swl_template_info info;

    swl_template_info_get(c->e.engine, &info);
    if (*arg && !info.thinking_switch && !info.effort)
        note("this model's template has no such switch; it %s", info.thinking ? "always thinks" : "never thinks");
    return set_option(c, OPT_THINK, *arg ? arg : "on", err);
}

/* ---- conversation ----------------------------------------------------------------------------------------------------- */

static swl_status run_clear(conversation *c, const char *arg, swl_error *err)
{
    (void)arg;
    free(c->attached);
    c->attached = NULL;
    return conversation_clear(c, err);
}

static swl_status no_message(swl_error *err)
{
    return fail(err, SWL_E_ARG, "there is no message yet");
}

static swl_status answer_again(conversation *c, swl_error *err)
{
    swl_status st;

    c->answer.sampling.seed = random_seed();
    st = conversation_answer(c, err);
    if (!st && c->answer.finish == SWL_FINISH_CANCELLED)
        note("stopped");
    return st;
}

static swl_status run_regen(conversation *c, const char *arg, swl_error *err)
{
    int32_t i = conversation_last(c, "user", NULL);

    (void)arg;
    if (i < 0)
        return no_message(err);
    swl_chat_truncate(c->chat, i + 1);
    if (c->answer.sampling.temperature <= 0)
        note("at temperature 0 the answer will be the same; /set temp 0.7 gives others");
    return answer_again(c, err);
}

static swl_status run_undo(conversation *c, const char *arg, swl_error *err)
{
    char *text, shown[80];
    int32_t i = conversation_last(c, "user", &text);

    (void)arg;
    if (i < 0) {
        free(text);
        return no_message(err);
    }
    snprintf(shown, sizeof shown, "%.60s", text ? text : "");
    shown[utf8_valid_prefix(shown, strlen(shown))] = 0;
    swl_chat_truncate(c->chat, i);
    note("taken back: %.*s", (int)strcspn(shown, "\n"), shown);
    free(text);
    return SWL_OK;
}

static swl_status run_edit(conversation *c, const char *arg, swl_error *err)
{
    char *text, *edited = NULL;
    int32_t i = conversation_last(c, "user", &text);
    swl_status st = i < 0 ? no_message(err) : line_outside(text ? text : "", &edited, err);

    (void)arg;
    if (!st && edited[strspn(edited, " \t\n")]) {
        swl_chat_truncate(c->chat, i);
        st = swl_chat_add(c->chat, "user", edited, err);
        if (!st)
            st = answer_again(c, err);
    } else if (!st) {
        note("nothing was written; the message stays as it was");
    }
    free(edited);
    free(text);
    return st;
}

static swl_status run_read(conversation *c, const char *arg, swl_error *err)
{
    char *text, *joined, path[PLACE_PATH_MAX];
    const char *home = getenv("HOME");
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    size_t n;
    swl_status st;

    snprintf(path, sizeof path, "%s%s", !strncmp(arg, "~/", 2) && home ? home : "", arg + (!strncmp(arg, "~/", 2) && home));
    st = *arg ? input_text(path, &text, &n, err) : fail(err, SWL_E_ARG, "/read FILE: which file?");
    if (st)
        return st;
    st = swl_tokenizer_encode(c->e.tokenizer, text, n, SWL_ENCODE_PLAIN, &ids, &n_ids, err);
    swl_free(ids);
    if (!st && strlen(text) != n)
        st = fail(err, SWL_E_ARG, "%s holds a zero byte at offset %zu", path, strlen(text));
    joined = !st && c->attached ? input_joined(c->attached, text) : NULL;
    if (st) {
        free(text);
        return st;
    }
    note("%s: %lld tokens, go with the next message", path, (long long)n_ids);
    if (joined)
        free(text);
    free(c->attached);
    c->attached = joined ? joined : text;
    return SWL_OK;
}

static swl_status run_save(conversation *c, const char *arg, swl_error *err)
{
    swl_status st = conversation_save(c, arg, err);

    if (!st)
        note("saved; \"swiftlet chat --resume %s\" or /load %s goes on", arg, arg);
    return st;
}

static swl_status run_load(conversation *c, const char *arg, swl_error *err)
{
    swl_status st = conversation_load(c, arg, err);

    if (!st)
        note("%d messages", (int)swl_chat_n_messages(c->chat));
    return st;
}

/* Names of saved conversations, for a list or for completion. */
static void each_session(void (*f)(void *arg, const char *name), void *arg)
{
    char path[PLACE_PATH_MAX], name[256];
    swl_error ignored;
    struct dirent **entries;
    int n = place_path(path, PLACE_STATE, "sessions", &ignored) ? -1 : scandir(path, &entries, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        size_t length = strlen(entries[i]->d_name);

        if (entries[i]->d_name[0] != '.' && length > 5 && !strcmp(entries[i]->d_name + length - 5, ".chat")) {
            snprintf(name, sizeof name, "%.*s", (int)(length - 5), entries[i]->d_name);
            f(arg, name);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void list_session(void *arg, const char *name)
{
    char line[300];

    ++*(int *)arg;
    snprintf(line, sizeof line, "  %s\n", name);
    err_text(STYLE_NONE, line, strlen(line));
}

static swl_status run_sessions(conversation *c, const char *arg, swl_error *err)
{
    int n = 0;

    (void)c, (void)arg, (void)err;
    each_session(list_session, &n);
    if (!n)
        note("no conversation is saved; /save NAME does it");
    return SWL_OK;
}

/* ---- about the answer, and the model ---------------------------------------------------------------------------------- */

/* OSC 52: terminals that allow it put the text into the clipboard, also through ssh. */
static swl_status run_copy(conversation *c, const char *arg, swl_error *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text;
    int32_t i = conversation_last(c, "assistant", &text);
    size_t n = text ? strlen(text) : 0;

    (void)arg;
    if (i < 0 || !stderr_is_terminal()) {
        free(text);
        return i < 0 ? fail(err, SWL_E_ARG, "there is no answer yet") : fail(err, SWL_E_ARG, "/copy needs a terminal");
    }
    fputs("\033]52;c;", stderr);
    for (size_t at = 0; at < n; at += 3) {
        unsigned char b[3] = {(unsigned char)text[at]};

        b[1] = at + 1 < n ? (unsigned char)text[at + 1] : 0;
        b[2] = at + 2 < n ? (unsigned char)text[at + 2] : 0;
        fputc(digits[b[0] >> 2], stderr);
        fputc(digits[(b[0] & 3) << 4 | b[1] >> 4], stderr);
        fputc(at + 1 < n ? digits[(b[1] & 15) << 2 | b[2] >> 6] : '=', stderr);
        fputc(at + 2 < n ? digits[b[2] & 63] : '=', stderr);
    }
    fputs("\a", stderr);
    fflush(stderr);
    note("%zu bytes for the clipboard, if the terminal allows it", n);
    free(text);
    return SWL_OK;
}

static swl_status run_stats(conversation *c, const char *arg, swl_error *err)
{
    swl_memory_plan plan;
    char peak[16], limit[16];

    (void)arg, (void)err;
    if (c->answer.usage.n_prompt)
        answer_stats(&c->answer, true);
    swl_memory_plan_get(c->e.model, &plan);
    note("memory: at most %s of %s so far", format_bytes(peak, peak_memory()), format_bytes(limit, plan.limit));
    return SWL_OK;
}

static swl_status run_cache(conversation *c, const char *arg, swl_error *err)
{
    swl_model_stats s;
    swl_memory_plan plan;
    char pool[16], read[16];
    uint64_t n;

    (void)arg, (void)err;
    swl_model_stats_get(c->e.model, &s);
    swl_memory_plan_get(c->e.model, &plan);
    n = s.expert_hits + s.expert_misses;
    if (!plan.n_experts) {
        note("a dense model: there are no experts");
        return SWL_OK;
    }
    note("in each of %d layers %d of %d experts fit in memory (%s in all)", c->e.info.n_moe_layers, plan.pool_slots, plan.n_experts,
         format_bytes(pool, plan.pool));
    note("since the model is open: %llu wanted, %d%% found there, %s read", (unsigned long long)n,
         n ? (int)(100 * s.expert_hits / n) : 0, format_bytes(read, s.expert_bytes_read));
    return SWL_OK;
}

static swl_status run_model(conversation *c, const char *arg, swl_error *err)
{
    char *name;
    int n;
    char **names;
    swl_status st;

    if (!*arg) {
        note("%s", c->e.dir);
        names = model_names(&n);
        for (int i = 0; i < n; i++)
            note("installed: %s", names[i]);
        model_names_free(names, n);
        return SWL_OK;
    }
    name = strdup(arg);
    if (!name)
        return fail(err, SWL_E_NOMEM, "out of memory");
    st = conversation_switch(c, name, err);
    if (st && c->a.values[OPT_MODEL].text != name) {
        free(name);
        return st;
    }
    free(c->typed[OPT_MODEL]);
    c->typed[OPT_MODEL] = name;
    if (!st)
        note("%s", c->e.dir);
    return st;
}

static swl_status run_typed_help(conversation *c, const char *arg, swl_error *err);

static swl_status run_exit(conversation *c, const char *arg, swl_error *err)
{
    (void)c, (void)arg, (void)err;
    return SWL_OK;
}

static const typed_row rows[] = {
    {"/help", {NULL}, NULL, "this list", run_typed_help},
    {"/exit", {"/quit", "/bye"}, NULL, "leave (also Ctrl-D)", run_exit},
    {"/clear", {"/new"}, NULL, "a new conversation; the system message stays", run_clear},
    {"/system", {NULL}, "TEXT", "another system message; without a text none", run_system},
    {"/think", {NULL}, "auto|on|off|low|medium|high", "whether and how much the model thinks", run_think},
    {"/set", {NULL}, "NAME VALUE", "change a setting; alone: list them with their origin", run_set},
    {"/regen", {NULL}, NULL, "answer the last message again, with another seed", run_regen},
    {"/undo", {NULL}, NULL, "take back the last message and its answer", run_undo},
    {"/edit", {NULL}, NULL, "edit the last message in $EDITOR", run_edit},
    {"/read", {NULL}, "FILE", "a file goes with the next message", run_read},
    {"/save", {NULL}, "NAME", "save the conversation", run_save},
    {"/load", {NULL}, "NAME", "go on with a saved one", run_load},
    {"/sessions", {NULL}, NULL, "list saved ones", run_sessions},
    {"/copy", {NULL}, NULL, "the last answer to the clipboard", run_copy},
    {"/stats", {NULL}, NULL, "figures of the last answer", run_stats},
    {"/cache", {NULL}, NULL, "what the expert cache does", run_cache},
    {"/model", {NULL}, "NAME", "switch to another model; alone: list them", run_model},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static swl_status run_typed_help(conversation *c, const char *arg, swl_error *err)
{
    static const char keys[] =
        "  Alt-Enter, Ctrl-J or \\ at the end: a new line; \"\"\" opens and closes a block;\n"
        "  Ctrl-C stops an answer; Ctrl-R searches; Ctrl-G opens $EDITOR;\n"
        "  // begins a message with a slash\n";
    char line[160], left[64];

    (void)c, (void)arg, (void)err;
    for (int i = 0; i < N_ROWS; i++) {
        snprintf(left, sizeof left, "%s%s%s%s%s%s%s", rows[i].name, rows[i].also[0] ? ", " : "", rows[i].also[0] ? rows[i].also[0] : "",
                 rows[i].also[1] ? ", " : "", rows[i].also[1] ? rows[i].also[1] : "", rows[i].argument ? " " : "",
                 rows[i].argument ? rows[i].argument : "");
        snprintf(line, sizeof line, "  %-34s %s\n", left, rows[i].help);
        err_text(STYLE_NONE, line, strlen(line));
    }
    err_text(STYLE_NONE, keys, sizeof keys - 1);
    return SWL_OK;
}

static const typed_row *find_row(const char *name)
{
    for (int i = 0; i < N_ROWS; i++) {
        if (!strcmp(rows[i].name, name) || (rows[i].also[0] && !strcmp(rows[i].also[0], name)) ||
            (rows[i].also[1] && !strcmp(rows[i].also[1], name)))
            return &rows[i];
    }
    return NULL;
}

swl_status typed_command(conversation *c, const char *line, bool *leave, swl_error *err)
{
    const char *names[N_ROWS], *near;
    size_t n = strcspn(line, " \n"), end = strlen(line);
    char name[32], *arg;
    const typed_row *row;
    swl_error e = {0};
    swl_status st;

    snprintf(name, sizeof name, "%.*s", (int)(n < 31 ? n : 31), line);
    row = find_row(name);
    for (int i = 0; i < N_ROWS; i++)
        names[i] = rows[i].name;
    if (!row) {
        near = nearest_name(name, names, N_ROWS);
        if (near)
            note("unknown command %s; did you mean %s?", name, near);
        else
            note("unknown command %s; /help lists them", name);
        return SWL_OK;
    }
    *leave = row->run == run_exit;
    while (end > n && strchr(" \t\n", line[end - 1]))
        end--;
    n += strspn(line + n, " \t\n");
    arg = strdup(n < end ? line + n : "");
    if (!arg)
        return fail(err, SWL_E_NOMEM, "out of memory");
    if (n < end)
        arg[end - n] = 0;
    st = row->run(c, arg, &e);
    free(arg);
    if (st && !c->chat) { /* the model is gone, and the one before too */
        *err = e;
        return st;
    }
    if (st)
        report_error(&e, false, opt_on(&c->a, OPT_VERBOSE));
    return SWL_OK;
}

/* ---- completion ------------------------------------------------------------------------------------------------------- */

typedef struct offering {
    line_candidates *out;
    const char *word;
} offering;

static void offer(void *arg, const char *name)
{
    offering *o = arg;

    if (!strncmp(name, o->word, strlen(o->word)))
        line_candidates_add(o->out, name);
}

static void offer_choices(offering *o, const char *choices)
{
    char name[64];

    for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
        offer(o, name);
    }
}

static void offer_paths(offering *o)
{
    const char *slash = strrchr(o->word, '/'), *home = getenv("HOME");
    int n_dir = slash ? (int)(slash + 1 - o->word) : 0;
    bool tilde = !strncmp(o->word, "~/", 2) && home;
    char dir[PLACE_PATH_MAX], path[PLACE_PATH_MAX], shown[PLACE_PATH_MAX];
    struct dirent **entries;
    struct stat sb;
    int n;

    snprintf(dir, sizeof dir, "%s%.*s", tilde ? home : "", tilde ? n_dir - 1 : n_dir, o->word + tilde);
    n = scandir(*dir ? dir : ".", &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        bool hidden = name[0] == '.' && o->word[n_dir] != '.';

        if (!hidden && snprintf(path, sizeof path, "%s%s", dir, name) < (int)sizeof path &&
            snprintf(shown, sizeof shown, "%.*s%s%s", n_dir, o->word, name, !stat(path, &sb) && S_ISDIR(sb.st_mode) ? "/" : "") <
                (int)sizeof shown)
            offer(o, shown);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void offer_setting_value(offering *o, const char *name, size_t n)
{
    option_id id = option_find(name, n, 1u << CMD_CHAT);

    if (id != OPT_COUNT && option_rows[id].type == TYPE_CHOICE)
        offer_choices(o, option_rows[id].value_name);
    else if (id != OPT_COUNT && option_rows[id].type == TYPE_SWITCH)
        offer_choices(o, "on|off");
}

static void offer_argument(offering *o, const typed_row *row, const char *before)
{
    int n;
    char **names;

    if (row->run == run_read) {
        offer_paths(o);
    } else if (row->run == run_save || row->run == run_load) {
        each_session(offer, o);
    } else if (row->run == run_think) {
        offer_choices(o, row->argument);
    } else if (row->run == run_set && *before) {
        offer_setting_value(o, before, strcspn(before, " "));
    } else if (row->run == run_set) {
        for (int i = 0; i < N_SETTABLE; i++)
            offer(o, option_rows[settable[i]].name);
    } else if (row->run == run_model) {
        names = model_names(&n);
        for (int i = 0; i < n; i++)
            offer(o, names[i]);
        model_names_free(names, n);
        offer_paths(o);
    }
}

void typed_complete(void *arg, const char *text, size_t cursor, line_candidates *out)
{
    char line[PLACE_PATH_MAX], *word, *first;
    offering o = {out, NULL};
    const typed_row *row;

    (void)arg;
    if (text[0] != '/' || cursor >= sizeof line || memchr(text, '\n', cursor))
        return;
    memcpy(line, text, cursor);
    line[cursor] = 0;
    word = strrchr(line, ' ');
    out->begin = word ? (size_t)(word + 1 - line) : 0;
    o.word = line + out->begin;
    if (!word) {
        for (int i = 0; i < N_ROWS; i++) {
            offer(&o, rows[i].name);
            for (int k = 0; k < 2 && *line && line[1] && rows[i].also[k]; k++)
                offer(&o, rows[i].also[k]);
        }
        return;
    }
    first = line + strcspn(line, " ");
    *first++ = 0;
    row = find_row(line);
    first += strspn(first, " ");
    if (first > o.word)
        first = (char *)o.word;
    if (row)
        offer_argument(&o, row, first < o.word ? first : "");
}
