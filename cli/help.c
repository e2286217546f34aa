/* help.c: swiftlet, swiftlet help, swiftlet help COMMAND, COMMAND --help. */
#include <string.h>

#include "commands.h"
#include "output.h"

void help_overview(FILE *f)
{
    fprintf(f, "swiftlet %s: large mixture-of-experts language models in little memory\n\n", swl_version());
    fprintf(f, "  swiftlet chat models/demo.qpack                      talk with a model\n"
               "  swiftlet generate models/demo.qpack -p \"Once\"        continue a text\n"
               "  swiftlet repack --source DIR --output NAME.qpack     make a container from a checkpoint\n\n");
    fprintf(f, "commands:");
    for (int id = 0; id < CMD_COUNT; id++)
        fprintf(f, " %s", commands[id].name);
    fprintf(f, "\n\n\"swiftlet help\" says what they do,\n\"swiftlet help COMMAND\" lists the options of one.\n");
}

static void help_list(FILE *f)
{
    fprintf(f, "usage: swiftlet COMMAND [OPTION...] [OPERAND...]\n\n");
    for (int id = 0; id < CMD_COUNT; id++)
        fprintf(f, "  %-10s %s\n", commands[id].name, commands[id].summary);
    fprintf(f, "\nMODEL is a directory: a .qpack container, an MLX or a Hugging Face checkpoint.\n"
               "Options may stand before or after operands; -- ends them. Most can also be set in the environment, as\n"
               "SWIFTLET_ and the name: SWIFTLET_MAX_TOKENS=100.\n"
               "\nExit codes: 0 success; 1 failure, or a difference from a reference; 2 usage; 3 a model or file is missing or\n"
               "damaged; 4 not enough memory, context or disk; 5 network; 6 not supported; 130 and 143 interrupted.\n"
               "\n\"swiftlet help COMMAND\" lists the options of one command.\n");
}

void help_command(FILE *f, command_id id)
{
    const command *c = &commands[id];

    fprintf(f, "usage: swiftlet %s%s%s [OPTION...]\n", c->name, c->operands[0] ? " " : "", c->operands);
    fprintf(f, "       %s\n", c->summary);
    if (c->alias)
        fprintf(f, "       (also: swiftlet %s)\n", c->alias);
    options_help(f, id);
    fprintf(f, "\nExamples:\n");
    for (int i = 0; i < 2; i++)
        fprintf(f, "  swiftlet %s\n", c->examples[i]);
}

swl_status run_help(const arguments *a, swl_error *err)
{
    command_id id;

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
