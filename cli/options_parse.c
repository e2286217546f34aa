/*
 * options_parse.c: values from the table's built-in ones, the config file, the environment and the command line, each
 * stronger than the one before.
 */
#include "options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"
#include "settings.h"
#include "values.h"

static swl_status out_of_range(const option_row *row, const char *shown, const char *text, swl_error *err)
{
    return fail(err, SWL_E_ARG, "%s is %s, expected %s %.10g to %.10g", shown, text,
                row->type == TYPE_INT ? "a whole number from" : "a number from", row->min, row->max);
}

swl_status option_store(arguments *a, option_id id, const char *text, option_origin origin, const char *shown,
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
    case TYPE_DURATION:
        if (!parse_duration(text, &v->real) || v->real < row->min || v->real > row->max)
            return fail(err, SWL_E_ARG, "%s is %s, expected a time like 30s or 5m", shown, text);
        break;
    case TYPE_CHOICE:
        if (!choice_has(row->value_name, text))
            return fail(err, SWL_E_ARG, "%s is %s, expected %s", shown, text, row->value_name);
        break;
    case TYPE_LIST:
        if (v->origin != origin)
            v->n_list = 0; /* a stronger place replaces the list */
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
            swl_status st = option_store(a, (option_id)id, option_rows[id].builtin, FROM_BUILTIN, "built in", err);
            if (st)
                return st;
        }
    }
    return SWL_OK;
}

option_id option_find(const char *name, size_t n, uint32_t of)
{
    for (int id = 0; id < OPT_COUNT; id++) {
        if (strlen(option_rows[id].name) == n && !memcmp(option_rows[id].name, name, n) &&
            (option_rows[id].commands & of))
            return (option_id)id;
    }
    return OPT_COUNT;
}

/* The command that a section of the config file names; CMD_COUNT: none. */
static command_id section_command(const char *section)
{
    swl_error ignored;

    return section ? command_find(section, &ignored) : CMD_COUNT;
}

/* The option of a line in the config file, for any of the commands `of`; OPT_COUNT when it names none. */
static option_id setting_option(const setting *s, uint32_t of)
{
    option_id id = s->key ? option_find(s->key, strlen(s->key), of) : OPT_COUNT;

    return id != OPT_COUNT && option_rows[id].environment ? id : OPT_COUNT;
}

/* Lines of one kind: before all sections, or those of the command's own section. */
static swl_status store_lines(arguments *a, const settings *file, bool sections, swl_error *err)
{
    for (int i = 0; i < file->n; i++) {
        const setting *s = &file->rows[i];
        option_id id = setting_option(s, 1u << a->command);
        char shown[1200];
        swl_status st;

        if (id == OPT_COUNT || sections != (s->section != NULL) || (sections && section_command(s->section) != a->command))
            continue;
        snprintf(shown, sizeof shown, "%s:%d: %s", file->path, s->line, s->key);
        st = option_store(a, id, s->value, FROM_FILE, shown, err);
        if (st)
            return st;
        a->values[id].line = s->line;
    }
    return SWL_OK;
}

static swl_status store_file(arguments *a, swl_error *err)
{
    settings file;
    swl_status st = settings_read(&file, err);

    if (!st)
        st = store_lines(a, &file, false, err);
    return st ? st : store_lines(a, &file, true, err);
}

/* What is wrong with a line that says nothing to its commands. */
static void note_line(const settings *file, const setting *s, uint32_t commands_of)
{
    const char *names[OPT_COUNT], *near;
    option_id id = s->key ? option_find(s->key, strlen(s->key), EVERY_COMMAND) : OPT_COUNT;
    int n_names = 0;

    for (int i = 0; i < OPT_COUNT; i++) {
        if (option_rows[i].environment && (option_rows[i].commands & commands_of))
            names[n_names++] = option_rows[i].name;
    }
    near = s->key ? nearest_name(s->key, names, n_names) : NULL;
    if (!s->key)
        note("%s:%d: expected \"key = value\" or [command]", file->path, s->line);
    else if (!commands_of)
        note("%s:%d: [%s] is no command", file->path, s->line, s->section);
    else if (id != OPT_COUNT && option_rows[id].environment)
        note("%s:%d: \"%s\" does not belong to [%s]", file->path, s->line, s->key, s->section);
    else if (id != OPT_COUNT)
        note("%s:%d: \"%s\" cannot be set in the config file", file->path, s->line, s->key);
    else if (near)
        note("%s:%d: unknown key \"%s\"; did you mean \"%s\"?", file->path, s->line, s->key, near);
    else
        note("%s:%d: unknown key \"%s\"", file->path, s->line, s->key);
}

void options_check_file(void)
{
    settings file;
    swl_error ignored = {0};

    if (settings_read(&file, &ignored))
        return;
    for (int i = 0; i < file.n; i++) {
        const setting *s = &file.rows[i];
        command_id own = section_command(s->section);
        uint32_t of = !s->section ? EVERY_COMMAND : own == CMD_COUNT ? 0 : 1u << own;

        if (setting_option(s, of) == OPT_COUNT)
            note_line(&file, s, of);
    }
}

void option_environment_name(char dst[64], option_id id)
{
    snprintf(dst, 64, "SWIFTLET_%s", option_rows[id].name);
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
        option_environment_name(name, (option_id)id);
        text = getenv(name);
        if (!text || !*text)
            continue;
        st = option_store(a, (option_id)id, text, FROM_ENVIRONMENT, name, err);
        if (st)
            return st;
    }
    return SWL_OK;
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
    int best = (1 + (int)strlen(typed)) / 3, prefix = (int)strlen(typed);
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
    option_id elsewhere = option_find(arg + 2, n - 2, EVERY_COMMAND);
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
        return option_store(a, id, attached ? attached : "on", FROM_OPTION, shown, err);
    if (!attached && c->at + 1 >= c->argc)
        return fail(err, SWL_E_ARG, "option %s needs a value: %s %s", shown, shown, row->value_name);
    return option_store(a, id, attached ? attached : c->argv[++c->at], FROM_OPTION, shown, err);
}

/* --name, --name=VALUE, --name VALUE or --no-name */
static swl_status parse_long(arguments *a, cursor *c, swl_error *err)
{
    const char *arg = c->argv[c->at];
    size_t n = strcspn(arg, "=");
    uint32_t mine = 1u << a->command;
    option_id id = option_find(arg + 2, n - 2, mine);

    if (id != OPT_COUNT)
        return take(a, id, arg[n] ? arg + n + 1 : NULL, c, err);
    if (!strncmp(arg, "--no-", 5) && !arg[n]) {
        id = option_find(arg + 5, n - 5, mine);
        if (id != OPT_COUNT && option_rows[id].type == TYPE_SWITCH)
            return take(a, id, "off", c, err);
    }
    return unknown_option(a, arg, n, err);
}

option_id option_find_short(char name, uint32_t of)
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
        option_id id = option_find_short(*p, 1u << a->command);
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
        st = store_file(a, err);
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

