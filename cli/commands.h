/* commands.h: the table of commands. Each is a row in main.c and a function in a file of its own. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "options.h"

typedef struct command {
    const char *name;
    const char *alias;       /* another name, or NULL */
    const char *operands;    /* as in the usage line */
    int n_min, n_max;        /* operands; n_max -1: any number. With --model one fewer is needed. */
    const char *summary;
    const char *examples[2]; /* what stands after "swiftlet " */
    swl_status (*run)(const arguments *a, swl_error *err);
} command;

extern const command commands[CMD_COUNT];

swl_status run_chat(const arguments *a, swl_error *err);
swl_status run_generate(const arguments *a, swl_error *err);
swl_status run_pull(const arguments *a, swl_error *err);
swl_status run_ls(const arguments *a, swl_error *err);
swl_status run_rm(const arguments *a, swl_error *err);
swl_status run_doctor(const arguments *a, swl_error *err);
swl_status run_repack(const arguments *a, swl_error *err);
swl_status run_verify(const arguments *a, swl_error *err);
swl_status run_eval(const arguments *a, swl_error *err);
swl_status run_info(const arguments *a, swl_error *err);
swl_status run_bench(const arguments *a, swl_error *err);
swl_status run_serve(const arguments *a, swl_error *err);
swl_status run_tokenize(const arguments *a, swl_error *err);
swl_status run_template(const arguments *a, swl_error *err);
swl_status run_dump_tensor(const arguments *a, swl_error *err);
swl_status run_ps(const arguments *a, swl_error *err);
swl_status run_health(const arguments *a, swl_error *err);
swl_status run_launch(const arguments *a, swl_error *err);
swl_status run_completion(const arguments *a, swl_error *err);
swl_status run_help(const arguments *a, swl_error *err);
swl_status run_version(const arguments *a, swl_error *err);
const char *commit_built(void); /* "": not known */

/* By name or alias; CMD_COUNT with a suggestion in err. */
command_id command_find(const char *name, swl_error *err);
/* `swiftlet` alone. */
void help_overview(FILE *f);
void help_command(FILE *f, command_id id);

#endif
