/*
 * chat.c: swiftlet chat: turns from the command line, one message from a pipe, or lines typed at a terminal.
 *
 * A conversation is kept as the ids of its finished messages, and every turn hands all of it to the library, which runs
 * only what is new: templates drop the thoughts of earlier answers, so the text before a new turn need not be what the
 * model has read.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "chatml.h"
#include "commands.h"
#include "interrupt.h"
#include "line.h"
#include "output.h"

typedef struct conversation {
    const arguments *a;
    engine e;
    chatml form;
    answer answer;
    id_list messages; /* finished messages */
} conversation;

/* Back to the system message. */
static swl_status conversation_clear(conversation *c, swl_error *err)
{
    const char *system = opt_text(c->a, OPT_SYSTEM);

    c->messages.n = 0;
    return system ? chatml_message(&c->form, &c->messages, "system", system, err) : SWL_OK;
}

static swl_status conversation_open(conversation *c, const arguments *a, swl_error *err)
{
    swl_status st;

    memset(c, 0, sizeof *c);
    c->a = a;
    c->answer = (answer){.a = a, .e = &c->e, .whole = true, .show = !opt_on(a, OPT_JSON)};
    st = engine_open(&c->e, a, true, err);
    if (!st)
        st = chatml_init(&c->form, c->e.tokenizer, c->e.dir, err);
    if (!st)
        st = sampling_from(&c->answer.sampling, a, c->e.dir, false, err);
    return st ? st : conversation_clear(c, err);
}

static swl_status conversation_close(conversation *c, swl_status st, swl_error *err)
{
    answer_free(&c->answer);
    id_list_free(&c->messages);
    return engine_close(&c->e, st, err);
}

/* One exchange. When it fails the conversation is as before it. */
static swl_status take_turn(conversation *c, const char *text, swl_error *err)
{
    id_list prompt = {0};
    bool state_lost = false;
    int32_t n_before = c->messages.n;
    swl_status st = chatml_message(&c->form, &c->messages, "user", text, err);

    if (!st)
        st = id_list_append(&prompt, c->messages.ids, c->messages.n, err);
    if (!st)
        st = chatml_open_answer(&c->form, &prompt, err);
    if (!st)
        st = answer_run(&c->answer, prompt.ids, prompt.n, &state_lost, err);
    if (state_lost)
        swl_session_reset(c->e.session);
    if (!st)
        st = chatml_answer(&c->form, &c->messages, c->answer.ids.ids, c->answer.n_ids_kept, err);
    if (st)
        c->messages.n = n_before;
    id_list_free(&prompt);
    if (!st && opt_on(c->a, OPT_JSON))
        out_json(answer_json(&c->answer));
    return st;
}

static const char *finish_note(swl_finish f)
{
    switch (f) {
    case SWL_FINISH_CONTEXT:
        return "the context is full: /clear begins a new conversation, --ctx makes room for longer ones";
    case SWL_FINISH_LENGTH:
        return "stopped after --max-tokens";
    default:
        return NULL;
    }
}

static void after_answer(conversation *c)
{
    const char *why = finish_note(c->answer.result.finish);

    if (why && !opt_on(c->a, OPT_QUIET))
        note("%s", why);
    answer_stats(&c->answer);
}

/* Turns that are known beforehand: every answer ends with a newline if another follows or a terminal shows it. */
static swl_status run_turns(conversation *c, const char *const *turns, int n, swl_error *err)
{
    for (int i = 0; i < n; i++) {
        swl_status st = take_turn(c, turns[i], err);

        if (st)
            return st;
        if (!opt_on(c->a, OPT_JSON) && (i + 1 < n || stdout_is_terminal()))
            out_text("\n", 1);
        after_answer(c);
        if (c->answer.result.finish == SWL_FINISH_CANCELLED)
            return fail(err, SWL_E_CANCELLED, "%s", "");
    }
    return SWL_OK;
}

typedef enum typed_command { TYPED_MESSAGE, TYPED_EXIT, TYPED_CLEAR, TYPED_HELP, TYPED_UNKNOWN } typed_command;

static typed_command typed_command_of(const char *line)
{
    static const struct {
        const char *name;
        typed_command is;
    } rows[] = {{"/exit", TYPED_EXIT}, {"/quit", TYPED_EXIT}, {"/bye", TYPED_EXIT}, {"/clear", TYPED_CLEAR},
                {"/new", TYPED_CLEAR}, {"/help", TYPED_HELP}};
    size_t n = strlen(line);

    while (n && line[n - 1] == ' ')
        n--;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strlen(rows[i].name) == n && !memcmp(rows[i].name, line, n))
            return rows[i].is;
    }
    return line[0] == '/' ? TYPED_UNKNOWN : TYPED_MESSAGE;
}

static void typed_turn(conversation *c, const char *line)
{
    swl_error err = {0};

    if (take_turn(c, line, &err)) {
        report_error(&err, false, opt_on(c->a, OPT_VERBOSE));
        return;
    }
    if (!opt_on(c->a, OPT_JSON))
        out_text("\n", 1);
    if (c->answer.result.finish == SWL_FINISH_CANCELLED)
        note("stopped");
    after_answer(c);
}

static swl_status typed_line(conversation *c, const char *line, bool *leave, swl_error *err)
{
    switch (typed_command_of(line)) {
    case TYPED_EXIT:
        *leave = true;
        break;
    case TYPED_CLEAR:
        return conversation_clear(c, err);
    case TYPED_HELP:
        note("/clear  new conversation    /exit  leave (also Ctrl-D)    Ctrl-C  stop an answer");
        break;
    case TYPED_UNKNOWN:
        note("unknown command %s; /help lists them", line);
        break;
    case TYPED_MESSAGE:
        if (line[strspn(line, " \t")])
            typed_turn(c, line);
        break;
    }
    return SWL_OK;
}

/* Ctrl-C twice within a second leaves, as Ctrl-D does. */
static swl_status run_typed(conversation *c, swl_error *err)
{
    double interrupted_at = -1;
    bool leave = false;
    swl_status st = SWL_OK;
    swl_error full;

    line_open();
    if (!opt_on(c->a, OPT_QUIET))
        note("%s: /help lists what can be typed, Ctrl-D leaves", c->e.dir);
    while (!st && !leave && !out_finish(&full)) {
        const char *line;
        line_result r = line_read("> ", &line);

        if (r == LINE_READ) {
            st = typed_line(c, line, &leave, err);
        } else if (r == LINE_END || seconds_now() - interrupted_at < 1) {
            leave = true;
        } else {
            interrupted_at = seconds_now();
            note("Ctrl-D leaves");
        }
        if (!st && interrupt_signal() == SIGTERM)
            st = fail(err, SWL_E_CANCELLED, "%s", "");
    }
    line_close();
    return st;
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

static char *joined(const char *turn, const char *text)
{
    size_t n = strlen(turn) + strlen(text) + 3;
    char *p = malloc(n);

    if (p)
        snprintf(p, n, "%s\n\n%s", turn, text);
    return p;
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
        *owned = joined(turns[*n - 1], text);
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
    if (!st)
        st = conversation_open(&c, a, err);
    if (!st)
        st = n ? run_turns(&c, turns, n, err) : run_typed(&c, err);
    st = conversation_close(&c, st, err);
    free(owned);
    free(turns);
    return st;
}
