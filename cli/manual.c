/*
 * manual.c: man pages from the tables of commands and options: swiftlet(1), swiftlet-COMMAND(1), swiftlet-config(5). The build
 * writes them with "swiftlet help --man FOLDER", which help does not show.
 */
#include "manual.h"

#include <errno.h>
#include <string.h>

#include "output.h"

/* Text as roff: no line begins with a dot or an apostrophe, hyphens are those that can be typed. */
static void put(FILE *f, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", f);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else
            fputc(*text, f);
    }
}

static void header(FILE *f, const char *name, int section, const char *summary)
{
    char upper[64];
    size_t n = 0;

    for (; name[n] && n < sizeof upper - 1; n++)
        upper[n] = name[n] >= 'a' && name[n] <= 'z' ? (char)(name[n] - 32) : name[n];
    upper[n] = 0;
    fprintf(f, ".TH %s %d \"\" \"swiftlet %s\" \"Swiftlet\"\n.SH NAME\n", upper, section, swl_version());
    put(f, name);
    fputs(" \\- ", f);
    put(f, summary);
    fputs("\n", f);
}

static void option(FILE *f, option_id id)
{
    const option_row *row = &option_rows[id];
    char variable[64];

    fputs(".TP\n.B ", f);
    if (row->short_name)
        fprintf(f, "\\-%c\\fR, \\fB", row->short_name);
    fputs("\\-\\-", f);
    put(f, row->name);
    if (row->value_name) {
        fputs(" \\fI", f);
        put(f, row->value_name);
    }
    fputs("\\fR\n", f);
    put(f, row->help);
    if (row->builtin_help || (row->builtin && strcmp(row->builtin, "off"))) {
        fputs(" (default: ", f);
        put(f, row->builtin_help ? row->builtin_help : row->builtin);
        fputs(")", f);
    }
    fputs(".\n", f);
    if (row->environment) {
        option_environment_name(variable, id);
        fprintf(f, "Environment: %s.\n", variable);
    }
}

static void options(FILE *f, command_id of)
{
    const char *group = NULL;

    fputs(".SH OPTIONS\n", f);
    for (int id = 0; id < OPT_COUNT; id++) {
        const option_row *row = &option_rows[id];

        if (!row->group || !(row->commands & 1u << of))
            continue;
        if (row->group != group)
            fprintf(f, ".SS %s\n", row->group);
        group = row->group;
        option(f, (option_id)id);
    }
}

static void examples(FILE *f, const command *c)
{
    fputs(".SH EXAMPLES\n.nf\n", f);
    for (int i = 0; i < 2; i++) {
        fputs("swiftlet ", f);
        put(f, c->examples[i]);
        fputs("\n", f);
    }
    fputs(".fi\n", f);
}

static void exit_status(FILE *f)
{
    static const struct {
        const char *code, *meaning;
    } rows[] = {{"0", "success"}, {"1", "failure, or a difference from a reference"}, {"2", "usage"},
                {"3", "a model, file or folder is missing or damaged"}, {"4", "not enough memory, context or disk"}, {"5", "network"},
                {"6", "not supported"}, {"130, 143", "interrupted, terminated"}};

    fputs(".SH EXIT STATUS\n", f);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        fprintf(f, ".TP\n%s\n%s\n", rows[i].code, rows[i].meaning);
}

static void command_page(FILE *f, command_id id)
{
    const command *c = &commands[id];
    char name[64];

    snprintf(name, sizeof name, "swiftlet-%s", c->name);
    header(f, name, 1, c->summary);
    fputs(".SH SYNOPSIS\n.B swiftlet ", f);
    put(f, c->name);
    fputs("\\fR ", f);
    put(f, c->operands);
    fputs(" [OPTION...]\n", f);
    if (c->alias)
        fprintf(f, ".br\n.B swiftlet %s\\fR ...\n", c->alias);
    options(f, id);
    exit_status(f);
    examples(f, c);
    fputs(".SH SEE ALSO\n.BR swiftlet (1),\n.BR swiftlet\\-config (5)\n", f);
}

static void overview_page(FILE *f)
{
    header(f, "swiftlet", 1, "large mixture-of-experts language models in little memory");
    fputs(".SH SYNOPSIS\n.B swiftlet\n.I COMMAND\n[OPTION...] [OPERAND...]\n.SH DESCRIPTION\n"
          "Runs models of the Qwen3-Next and Qwen3.5 family: the dense core stays in memory, the experts stay on the drive and\n"
          "are read when a token needs them.\n.PP\nMODEL is a directory (a .qpack container, an MLX or a Hugging Face\n"
          "checkpoint) or the name of an installed model or what it begins with; none is needed where only one is installed.\n"
          "Options may stand before or after operands;\n.B \\-\\-\nends them.\n.SH COMMANDS\n", f);
    for (int id = 0; id < CMD_COUNT; id++) {
        fputs(".TP\n.BR swiftlet\\-", f);
        put(f, commands[id].name);
        fputs(" (1)\n", f);
        put(f, commands[id].summary);
        fputs("\n", f);
    }
    exit_status(f);
    fputs(".SH SEE ALSO\n.BR swiftlet\\-config (5)\n", f);
}

static void config_page(FILE *f)
{
    header(f, "swiftlet-config", 5, "settings of swiftlet");
    fputs(".SH DESCRIPTION\nA value comes from the command line, else from the environment, else from the config file, else from\n"
          "the model, else it is the built\\-in one.\n.B swiftlet info \\-\\-config\ntells every value with its origin.\n.PP\n"
          "The config file holds lines of the form\n.I key\\fR = \\fIvalue\\fR,\nwhere a key is the name of an option; after a line\n"
          ".RI [ command ]\nkeys count for that command alone. Lines that begin with # or ; are comments. Quotes around a value\n"
          "keep the spaces in it. In the environment the key\n.B max\\-tokens\nis\n.BR SWIFTLET_MAX_TOKENS .\n"
          ".SH FILES\n.TP\n.I $XDG_CONFIG_HOME/swiftlet/config.ini\nthe config file (~/.config/swiftlet/config.ini)\n"
          ".TP\n.I $XDG_DATA_HOME/swiftlet/models\ninstalled models (~/.local/share/swiftlet/models)\n"
          ".TP\n.I $XDG_CACHE_HOME/swiftlet\nwhat can be made again (~/.cache/swiftlet)\n"
          ".TP\n.I $XDG_STATE_HOME/swiftlet/history\nlines typed in chats (~/.local/state/swiftlet/history)\n"
          ".TP\n.I $XDG_STATE_HOME/swiftlet/sessions\nsaved conversations\n.PP\n"
          "On macOS these are below ~/Library/Application Support/swiftlet and ~/Library/Caches/swiftlet;\n"
          ".B SWIFTLET_HOME\nnames one folder for all of them.\n.SH KEYS\n", f);
    for (int id = 0; id < OPT_COUNT; id++) {
        if (option_rows[id].environment)
            option(f, (option_id)id);
    }
    fputs(".SH EXAMPLE\n.nf\nmemory = 4G\n\n[chat]\nsystem = Answer briefly.\n.fi\n.SH SEE ALSO\n.BR swiftlet (1)\n", f);
}

static FILE *page_open(const char *folder, const char *name, int section, swl_error *err)
{
    char path[1024];
    FILE *f;

    snprintf(path, sizeof path, "%s/swiftlet%s%s.%d", folder, *name ? "-" : "", name, section);
    f = fopen(path, "w");
    if (!f)
        fail(err, SWL_E_IO, "cannot write %s: %s", path, strerror(errno));
    return f;
}

static swl_status page_close(FILE *f, const char *folder, swl_error *err)
{
    bool bad = ferror(f);

    return fclose(f) || bad ? fail(err, SWL_E_IO, "cannot write man pages to %s", folder) : SWL_OK;
}

swl_status manual_write(const char *folder, swl_error *err)
{
    swl_status st = SWL_OK;
    FILE *f;

    for (int id = -2; id < CMD_COUNT && !st; id++) {
        f = page_open(folder, id == -2 ? "" : id == -1 ? "config" : commands[id].name, id == -1 ? 5 : 1, err);
        if (!f)
            return err->code;
        if (id == -2)
            overview_page(f);
        else if (id == -1)
            config_page(f);
        else
            command_page(f, (command_id)id);
        st = page_close(f, folder, err);
    }
    return st;
}
