/* chat.c: swiftlet chat: turns from the command line, one message from a pipe, or what is typed at a terminal. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"

/* Turns that are known beforehand. */
static swl_status run_turns(conversation *c, const char *const *turns, int n, swl_error *err)
{
    for (int i = 0; i < n; i++) {
        swl_status st = conversation_turn(c, turns[i], err);

        if (st)
            return st;
        if (c->answer.finish == SWL_FINISH_CANCELLED)
            return fail(err, SWL_E_CANCELLED, "%s", "");
    }
    if (c->unsaved.code)
        *err = c->unsaved; /* what was said is there; that it was kept is not true */
    return c->unsaved.code;
}

/* Text beside the turns, from --file or a pipe: appended to the last turn, or a turn of its own. */
static swl_status attached_text(const arguments *a, char **text, swl_error *err)
{
    const char *path = opt_text(a, OPT_FILE);
    size_t n;
    swl_status st;

    *text = NULL;
    if (!path && stdin_is_terminal())
        return SWL_OK;
    st = input_text(path ? path : "-", text, &n, err);
    if (!st && strlen(*text) != n)
        st = fail(err, SWL_E_ARG, "%s holds a zero byte at offset %zu", path ? path : "standard input", strlen(*text));
    if (!st && !n) {
        free(*text);
        *text = NULL;
    }
    return st;
}

/* Operands, then --prompt, then what is attached. *owned: free. */
static swl_status collect_turns(const arguments *a, const char **turns, int *n, char **owned, swl_error *err)
{
    int first;
    char *text;
    swl_status st = attached_text(a, &text, err);

    *owned = text;
    if (st)
        return st;
    model_dir(a, &first);
    for (int i = first; i < a->n_operands; i++)
        turns[(*n)++] = a->operands[i];
    if (a->values[OPT_PROMPT].set)
        turns[(*n)++] = opt_text(a, OPT_PROMPT);
    if (text && *n) {
        *owned = input_joined(turns[*n - 1], text);
        free(text);
        if (!*owned)
            return fail(err, SWL_E_NOMEM, "out of memory");
        turns[*n - 1] = *owned;
    } else if (text) {
        turns[(*n)++] = text;
    }
    if (!*n && !stdin_is_terminal())
        return fail(err, SWL_E_ARG, "no message: give a turn after MODEL, pipe one in, or run this at a terminal");
    return SWL_OK;
}

swl_status run_chat(const arguments *a, swl_error *err)
{
    const char **turns = calloc((size_t)a->n_operands + 2, sizeof *turns);
    conversation c = {0};
    char *owned = NULL;
    int n = 0;
    swl_status st;

    if (!turns)
        return fail(err, SWL_E_NOMEM, "out of memory");
    st = collect_turns(a, turns, &n, &owned, err);
    if (!st && a->values[OPT_LOGPROBS].set && !opt_on(a, OPT_JSON))
        st = fail(err, SWL_E_ARG, "--logprobs needs --json");
    if (!st)
        st = conversation_open(&c, a, err);
    if (!st)
        st = n ? run_turns(&c, turns, n, err) : chat_typed(&c, err);
    st = conversation_close(&c, st, err);
    free(owned);
    free(turns);
    return st;
}
