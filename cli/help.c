/* help.c: swiftlet, swiftlet help, swiftlet help COMMAND, COMMAND --help. */
#include <string.h>

#include "commands.h"
#include "manual.h"
#include "output.h"

void help_overview(FILE *f)
{
    fprintf(f, "swiftlet %s: large mixture-of-experts language models in little memory\n\n", swl_version());
    fprintf(f, "  swiftlet chat models/demo.qpack                      talk with a model\n"
               "  swiftlet generate models/demo.qpack -p \"Once\"        continue a text\n"
               "  swiftlet pull ORG/NAME                               bring a model\n\n");
    fprintf(f, "commands:");
    for (int id = 0; id < CMD_COUNT; id++)
        fprintf(f, " %s", commands[id].name);
    fprintf(f, "\n\n\"swiftlet help\" says what they do,\n\"swiftlet help COMMAND\" lists the options of one.\n");
}

static void help_list(FILE *f)
{
    fprintf(f, "usage: swiftlet COMMAND [OPTION...] [OPERAND...]\n\n");
    for (int id = 0; id < CMD_COUNT; id++)
        fprintf(f, "  %-11s %s\n", commands[id].name, commands[id].summary);
    fprintf(f, "\nMODEL is a directory (a .qpack container, an MLX or a Hugging Face checkpoint) or the name of an installed\n"
               "model or what it begins with; none is needed where only one is installed.\n"
               "Options may stand before or after operands; -- ends them. Most can also be set in the environment, as\n"
               "SWIFTLET_ and the name (SWIFTLET_MAX_TOKENS=100), and in the config file (max-tokens = 100);\n"
               "\"swiftlet info --config\" tells its place, and every value with its origin.\n"
               "\nExit codes: 0 success; 1 failure, or a difference from a reference; 2 usage; 3 a model, file or folder is\n"
               "missing or damaged; 4 not enough memory, context or disk; 5 network; 6 not supported; 130 and 143 interrupted.\n"
               "\n\"swiftlet help COMMAND\" lists the options of one command.\n");
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
    char left[96], builtin[80];
    bool on = row->type == TYPE_SWITCH && row->builtin && !strcmp(row->builtin, "on");
    const char *shown = row->builtin_help ? row->builtin_help : row->type == TYPE_SWITCH ? NULL : row->builtin;
    int column = HELP_COLUMN;

    snprintf(left, sizeof left, "%c%c%c --%s%s%s", row->short_name ? '-' : ' ', row->short_name ? row->short_name : ' ',
             row->short_name ? ',' : ' ', row->name, row->value_name ? " " : "", row->value_name ? row->value_name : "");
    fprintf(f, "  %-*s", HELP_COLUMN - 2, left);
    if (strlen(left) + 3 > HELP_COLUMN)
        fprintf(f, "\n%*s", HELP_COLUMN, "");
    help_words(f, row->help, &column);
    if (on)
        snprintf(builtin, sizeof builtin, "[on; --no-%s: off]", row->name);
    else if (shown)
        snprintf(builtin, sizeof builtin, "[%s]", shown);
    if (on || shown) {
        help_words(f, builtin, &column);
    }
    fputc('\n', f);
}

static void help_options(FILE *f, command_id of)
{
    const char *group = NULL;

    for (int id = 0; id < OPT_COUNT; id++) {
        const option_row *row = &option_rows[id];

        if (!row->group || !(row->commands & 1u << of))
            continue;
        if (row->group != group)
            fprintf(f, "\n%s:\n", row->group);
        group = row->group;
        help_row(f, row);
    }
}

void help_command(FILE *f, command_id id)
{
    const command *c = &commands[id];

    fprintf(f, "usage: swiftlet %s%s%s [OPTION...]\n", c->name, c->operands[0] ? " " : "", c->operands);
    fprintf(f, "       %s\n", c->summary);
    if (c->alias)
        fprintf(f, "       (also: swiftlet %s)\n", c->alias);
    help_options(f, id);
    fprintf(f, "\nExamples:\n");
    for (int i = 0; i < 2; i++)
        fprintf(f, "  swiftlet %s\n", c->examples[i]);
}

swl_status run_help(const arguments *a, swl_error *err)
{
    command_id id;

    if (opt_text(a, OPT_MAN))
        return manual_write(opt_text(a, OPT_MAN), err);
    if (!a->n_operands) {
        help_list(stdout);
        return SWL_OK;
    }
    id = command_find(a->operands[0], err);
    if (id == CMD_COUNT)
        return SWL_E_ARG;
    help_command(stdout, id);
    return SWL_OK;
}
