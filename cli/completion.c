/*
 * completion.c: swiftlet completion bash|zsh|fish: a script for the shell, which asks this program for what can stand at the
 * cursor ("completion --words", not shown in help): one candidate a line, and ":files" or ":folders" where those are due too.
 */
#include <string.h>

#include "commands.h"
#include "models.h"
#include "output.h"

static const char bash[] =
    "_swiftlet()\n"
    "{\n"
    "    local IFS=$'\\n' line cur=${COMP_WORDS[COMP_CWORD]}\n"
    "    [ \"$cur\" != = ] || cur=\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "        :files) compopt -o filenames; COMPREPLY+=($(compgen -f -- \"$cur\")) ;;\n"
    "        :folders) compopt -o filenames; COMPREPLY+=($(compgen -d -- \"$cur\")) ;;\n"
    "        *) COMPREPLY+=(\"$line\") ;;\n"
    "        esac\n"
    "    done < <(\"${COMP_WORDS[0]}\" completion --words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _swiftlet swiftlet\n";

static const char zsh[] =
    "#compdef swiftlet\n"
    "_swiftlet()\n"
    "{\n"
    "    local line\n"
    "    local -a found\n"
    "    \"${words[1]}\" completion --words -- \"${(@)words[2,CURRENT]}\" 2>/dev/null | while IFS= read -r line; do\n"
    "        case $line in\n"
    "        :files) _files ;;\n"
    "        :folders) _files -/ ;;\n"
    "        *) found+=(\"$line\") ;;\n"
    "        esac\n"
    "    done\n"
    "    compadd -a found\n"
    "}\n"
    "compdef _swiftlet swiftlet\n";

static const char fish[] =
    "function __swiftlet\n"
    "    set -l typed (commandline -opc) (commandline -ct)\n"
    "    for line in (command $typed[1] completion --words -- $typed[2..-1] 2>/dev/null)\n"
    "        switch $line\n"
    "            case :files\n"
    "                __fish_complete_path (commandline -ct)\n"
    "            case :folders\n"
    "                __fish_complete_directories (commandline -ct)\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c swiftlet -f -a '(__swiftlet)'\n";

/* What is typed so far of the word at the cursor, and what stands before it in the answer ("--io="). */
typedef struct typed {
    const char *word, *before;
    int n_before;
} typed;

static void offer(const typed *t, const char *candidate, size_t n)
{
    if (!strncmp(candidate, t->word, strlen(t->word)) && n >= strlen(t->word))
        out_printf("%.*s%.*s\n", t->n_before, t->before, (int)n, candidate);
}

static void offer_choices(const typed *t, const char *choices)
{
    for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
        offer(t, p, strcspn(p, "|"));
}

static void offer_models(const typed *t)
{
    int n;
    char **names = model_names(&n);

    for (int i = 0; i < n; i++)
        offer(t, names[i], strlen(names[i]));
    model_names_free(names, n);
    out_printf(":folders\n");
}

static void offer_commands(const typed *t)
{
    for (int id = 0; id < CMD_COUNT; id++) {
        offer(t, commands[id].name, strlen(commands[id].name));
        if (commands[id].alias)
            offer(t, commands[id].alias, strlen(commands[id].alias));
    }
}

static void offer_value(const typed *t, const option_row *row)
{
    if (row->type == TYPE_SWITCH)
        offer_choices(t, "on|off");
    else if (row->type == TYPE_CHOICE)
        offer_choices(t, row->value_name);
    else if (!strcmp(row->value_name, "MODEL"))
        offer_models(t);
    else if (!strcmp(row->value_name, "FILE"))
        out_printf(":files\n");
    else if (!strcmp(row->value_name, "DIR"))
        out_printf(":folders\n");
}

static void offer_options(const typed *t, command_id of)
{
    char name[64];

    for (int id = 0; id < OPT_COUNT; id++) {
        const option_row *row = &option_rows[id];

        if (!row->group || !(row->commands & 1u << of))
            continue;
        snprintf(name, sizeof name, "--%s%s", row->builtin && !strcmp(row->builtin, "on") ? "no-" : "", row->name);
        offer(t, name, strlen(name));
    }
}

static void offer_operand(const typed *t, command_id of)
{
    const char *operands = commands[of].operands;

    if (of == CMD_HELP)
        offer_commands(t);
    else if (strchr(operands, '|') && operands[0] >= 'a')
        offer_choices(t, operands);
    else if (strstr(operands, "MODEL") || strstr(operands, "NAME"))
        offer_models(t);
    if (strstr(operands, "FILE") || strstr(operands, "REFERENCE") || strstr(operands, "SOURCE"))
        out_printf(":files\n");
}

/* The option whose value the word at the cursor is: "--name VALUE", "-n VALUE", "--name=VALUE" (which bash takes apart at
 * "="). OPT_COUNT: none. */
static option_id open_option(command_id of, const char *const *words, int n, typed *t)
{
    const char *equals = strchr(t->word, '='), *name = n > 1 ? words[n - 2] : "";
    option_id id = OPT_COUNT;

    if (!strncmp(t->word, "--", 2) && equals) {
        t->before = t->word;
        t->n_before = (int)(equals + 1 - t->word);
        t->word = equals + 1;
        return option_find(t->before + 2, (size_t)t->n_before - 3, 1u << of);
    }
    if (!strcmp(t->word, "=")) {
        t->word = "";
        name = n > 1 ? words[n - 2] : "";
    } else if (!strcmp(name, "=")) {
        name = n > 2 ? words[n - 3] : "";
    }
    if (!strncmp(name, "--", 2))
        id = option_find(name + 2, strlen(name + 2), 1u << of);
    else if (name[0] == '-' && name[1] && !name[2])
        id = option_find_short(name[1], 1u << of);
    return id != OPT_COUNT && (option_rows[id].type != TYPE_SWITCH || !strcmp(words[n - 1], "=")) ? id : OPT_COUNT;
}

static void complete_words(const char *const *words, int n)
{
    typed t = {n ? words[n - 1] : "", "", 0};
    swl_error ignored;
    command_id of = n > 1 ? command_find(words[0], &ignored) : CMD_COUNT;
    option_id id;

    if (n <= 1) {
        offer_commands(&t);
        return;
    }
    if (of == CMD_COUNT)
        return;
    id = open_option(of, words, n, &t);
    if (id != OPT_COUNT)
        offer_value(&t, &option_rows[id]);
    else if (t.word[0] == '-')
        offer_options(&t, of);
    else
        offer_operand(&t, of);
}

swl_status run_completion(const arguments *a, swl_error *err)
{
    const char *shell = a->n_operands ? a->operands[0] : "";
    const char *script = !strcmp(shell, "bash") ? bash : !strcmp(shell, "zsh") ? zsh : !strcmp(shell, "fish") ? fish : NULL;

    if (opt_on(a, OPT_WORDS)) {
        complete_words(a->operands, a->n_operands);
        return SWL_OK;
    }
    if (!a->n_operands)
        return fail(err, SWL_E_ARG, "which shell? usage: swiftlet completion bash|zsh|fish");
    if (!script || a->n_operands > 1)
        return fail(err, SWL_E_ARG, "\"%s\" is no shell that is known here; usage: swiftlet completion bash|zsh|fish",
                    a->operands[a->n_operands - 1]);
    out_text(script, strlen(script));
    return SWL_OK;
}
