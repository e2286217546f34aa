/* main.c: the table of commands, and the way from argv to an exit code. */
#include <libgen.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "interrupt.h"
#include "offer.h"
#include "output.h"

/* clang-format off */
const command commands[CMD_COUNT] = {
    [CMD_CHAT] = {"chat", "run", "MODEL [TURN...]", 1, -1, "talk with a model",
                  {"chat models/demo.qpack", "chat models/demo.qpack \"Tell me a story.\" \"And then?\""}, run_chat},
    [CMD_GENERATE] = {"generate", NULL, "MODEL", 1, 1, "continue one text",
                      {"generate models/demo.qpack -p \"Once upon a time\" -n 100",
                       "generate models/demo.qpack --chat --temp 0.7 -f question.txt > answer.txt"}, run_generate},
    [CMD_PULL] = {"pull", NULL, "SOURCE", 1, 1, "bring a model from a hub, a mirror, a directory or a GGUF file, and convert it if need be",
                  {"pull org/name", "pull org/name:FILE.gguf --dry-run"}, run_pull},
    [CMD_REPACK] = {"repack", NULL, "[SOURCE]", 0, 1, "make a .qpack container from an MLX or Hugging Face checkpoint or a GGUF file",
                    {"repack --source Qwen3.5-35B-A3B-4bit --output Qwen3.5-35B-A3B.qpack",
                     "repack checkpoint --output small.qpack --bits 8"}, run_repack},
    [CMD_VERIFY] = {"verify", NULL, "MODEL [REFERENCE.safetensors]", 1, 2,
                    "check the files of a container, or compare a model with the outputs of a reference, layer by layer",
                    {"verify model.qpack --repair", "verify model.qpack reference.safetensors --exact"}, run_verify},
    [CMD_EVAL] = {"eval", NULL, "MODEL FILE", 2, 2, "perplexity of a text file",
                  {"eval models/demo.qpack story.txt", "eval models/demo.qpack story.txt --against-exact --json"}, run_eval},
    [CMD_LS] = {"ls", NULL, "", 0, 0, "installed models", {"ls", "ls --json"}, run_ls},
    [CMD_INFO] = {"info", NULL, "MODEL", 1, 1, "figures of a model, or of the shapes of a known one",
                  {"info models/demo.qpack", "info qwen3.6-35b --memory 6G"}, run_info},
    [CMD_RM] = {"rm", NULL, "NAME", 1, 1, "remove an installed model", {"rm org/name", "rm small.qpack --yes"}, run_rm},
    [CMD_BENCH] = {"bench", NULL, "[MODEL | cache]", 0, 1, "measure speed, and how much of the machine's is reached",
                   {"bench models/demo.qpack -p 256 -n 64",
                    "bench --synthetic qwen3.6-35b --in-memory -p 512,2048 -n 128 -d 0,8192 --profile"}, run_bench},
    [CMD_SERVE] = {"serve", NULL, "MODEL", 1, 1, "answer clients over HTTP, and show a chat page",
                   {"serve models/demo.qpack", "serve models/demo.qpack --port 8000 --memory 6G --api-key-file keys.txt"}, run_serve},
    [CMD_DOCTOR] = {"doctor", NULL, "[DIR]", 0, 1, "look at this machine: memory, drive, processor, and which models fit",
                    {"doctor", "doctor --json"}, run_doctor},
    [CMD_TOKENIZE] = {"tokenize", NULL, "MODEL [TEXT]", 1, 2, "show the tokens of a text (or of standard input)",
                      {"tokenize models/demo.qpack \"Hello there\"", "tokenize models/demo.qpack --json < story.txt"},
                      run_tokenize},
    [CMD_TEMPLATE] = {"template", NULL, "MODEL [FILE.json]", 1, 2, "show the prompt that a list of messages becomes",
                      {"template models/demo.qpack messages.json", "template models/demo.qpack --think on --json < messages.json"},
                      run_template},
    [CMD_DUMP_TENSOR] = {"dump-tensor", NULL, "MODEL MODULE OUT.safetensors", 3, 3, "write one module's numbers as float32",
                         {"dump-tensor models/demo.qpack lm_head lm_head.safetensors",
                          "dump-tensor models/demo.qpack model.layers.0.mlp.experts.3.up_proj up.safetensors"}, run_dump_tensor},
    [CMD_PS] = {"ps", NULL, "", 0, 0, "what a running server does", {"ps", "ps --url http://127.0.0.1:8000 --json"}, run_ps},
    [CMD_HEALTH] = {"health", NULL, "", 0, 0, "does a server answer?", {"health", "health --url http://127.0.0.1:8000"},
                    run_health},
    [CMD_LAUNCH] = {"launch", NULL, "codex|claude|opencode|pi|zed|continue", 1, 1,
                    "print or write what a client needs to know of a running server", {"launch opencode --write", "launch claude > claude.env"},
                    run_launch},
    [CMD_COMPLETION] = {"completion", NULL, "bash|zsh|fish", 0, -1, "print a script that completes commands in a shell",
                        {"completion bash > ~/.local/share/bash-completion/completions/swiftlet",
                         "completion fish > ~/.config/fish/completions/swiftlet.fish"}, run_completion},
    [CMD_HELP] = {"help", NULL, "[COMMAND]", 0, 1, "explain a command", {"help", "help chat"}, run_help},
    [CMD_VERSION] = {"version", NULL, "", 0, 0, "version and licences", {"version", "version --licenses"}, run_version},
};
/* clang-format on */

command_id command_find(const char *name, swl_error *err)
{
    const char *names[CMD_COUNT], *near;

    for (int id = 0; id < CMD_COUNT; id++) {
        if (!strcmp(name, commands[id].name) || (commands[id].alias && !strcmp(name, commands[id].alias)))
            return (command_id)id;
        names[id] = commands[id].name;
    }
    near = nearest_name(name, names, CMD_COUNT);
    if (near)
        fail(err, SWL_E_ARG, "unknown command \"%s\"; did you mean \"%s\"?", name, near);
    else
        fail(err, SWL_E_ARG, "unknown command \"%s\"; \"swiftlet help\" lists the commands", name);
    return CMD_COUNT;
}

/* Also when the arguments cannot be read as a whole, an error is written the way that was asked for. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strcmp(argv[i], "--json"))
            return true;
    }
    return false;
}

static swl_status check_operands(const arguments *a, swl_error *err)
{
    const command *c = &commands[a->command];
    bool takes_model = option_rows[OPT_MODEL].commands & 1u << a->command;
    int by_option = a->values[OPT_MODEL].set || (takes_model && c->n_min == 1); /* or it is the only one there is */

    if (a->n_operands + by_option < c->n_min)
        return fail(err, SWL_E_ARG, "too few operands; usage: swiftlet %s %s [OPTION...]", c->name, c->operands);
    if (c->n_max >= 0 && a->n_operands > c->n_max - (a->values[OPT_MODEL].origin >= FROM_OPTION))
        return fail(err, SWL_E_ARG, "\"%s\" is one operand too many; usage: swiftlet %s%s%s [OPTION...]",
                    a->operands[a->n_operands - 1], c->name, c->operands[0] ? " " : "", c->operands);
    return SWL_OK;
}

static swl_status run(command_id id, int argc, char **argv, bool *verbose, swl_error *err)
{
    const char **operands = calloc((size_t)argc + 1, sizeof *operands);
    arguments a;
    swl_status st;
    bool help;

    if (!operands)
        return fail(err, SWL_E_NOMEM, "out of memory");
    st = options_parse(&a, id, argc, argv, operands, err);
    *verbose = opt_on(&a, OPT_VERBOSE);
    help = !st && opt_on(&a, OPT_HELP);
    if (!st)
        st = out_setup(opt_text(&a, OPT_COLOR), help ? NULL : opt_text(&a, OPT_LOG), opt_on(&a, OPT_LOG_JSON), err);
    if (!st && !opt_on(&a, OPT_QUIET))
        options_check_file();
    if (help) {
        help_command(stdout, id);
    } else {
        if (!st)
            st = check_operands(&a, err);
        if (!st && (option_rows[OPT_MODEL].commands & 1u << id))
            st = offer_model(&a, err);
        if (!st)
            st = commands[id].run(&a, err);
    }
    free(operands);
    return st;
}

static swl_status dispatch(int argc, char **argv, bool *verbose, swl_error *err)
{
    const char *called = argc > 0 ? basename(argv[0]) : "";
    const char *first = argc > 1 ? argv[1] : NULL;
    command_id id;

    if (!strcmp(called, "swiftlet-repack"))
        return run(CMD_REPACK, argc - 1, argv + 1, verbose, err);
    if (!strcmp(called, "swiftlet-server"))
        return run(CMD_SERVE, argc - 1, argv + 1, verbose, err);
    if (!first || !strcmp(first, "--help") || !strcmp(first, "-h")) {
        help_overview(stdout);
        return SWL_OK;
    }
    if (!strcmp(first, "--version"))
        first = "version";
    if (first[0] == '-')
        return fail(err, SWL_E_ARG, "the command comes first: swiftlet COMMAND [OPTION...]; \"swiftlet help\" lists them");
    id = command_find(first, err);
    return id == CMD_COUNT ? SWL_E_ARG : run(id, argc - 2, argv + 2, verbose, err);
}

int main(int argc, char **argv)
{
    swl_error err = {0}, late = {0};
    bool verbose = false;
    swl_status st;

    setlocale(LC_CTYPE, ""); /* for the line editor; numbers keep their plain form */
    interrupt_install();
    st = dispatch(argc, argv, &verbose, &err);
    if (st && err.message[0]) /* an empty message: the command has said everything itself */
        report_error(&err, wants_json(argc, argv), verbose);
    if (out_finish(&late)) {
        report_error(&late, false, verbose);
        st = st ? st : late.code;
    }
    if (err_hangs())
        _exit(exit_code(st));
    return exit_code(st);
}
