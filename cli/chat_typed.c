/* chat_typed.c: the loop of prompt and answer at a terminal. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "interrupt.h"
#include "output.h"

static void typed_turn(conversation *c, const char *line)
{
    char *joined = c->attached ? input_joined(line, c->attached) : NULL;
    swl_error err = {0};

    if (conversation_turn(c, joined ? joined : line, &err)) {
        report_error(&err, false, opt_on(&c->a, OPT_VERBOSE));
    } else {
        free(c->attached);
        c->attached = NULL;
        if (c->answer.finish == SWL_FINISH_CANCELLED)
            note("stopped");
    }
    free(joined);
}

static swl_status typed_line(conversation *c, const char *line, bool *leave, swl_error *err)
{
    if (line[0] == '/' && line[1] != '/')
        return typed_command(c, line, leave, err);
    if (line[strspn(line, " \t\n")])
        typed_turn(c, line + (line[0] == '/')); /* "//" is a slash */
    return SWL_OK;
}

/* Ctrl-C at an empty prompt twice within a second leaves, as Ctrl-D does. */
static swl_status loop(conversation *c, swl_error *err)
{
    double interrupted_at = -1;
    bool leave = false, had_text;
    swl_status st = SWL_OK;
    swl_error full;

    while (!st && !leave && !out_finish(&full)) {
        char *line = NULL;
        line_result r = line_read("> ", NULL, &line, &had_text);

        if (r == LINE_READ) {
            interrupted_at = -1;
            st = typed_line(c, line, &leave, err);
        } else if (r == LINE_END || (!had_text && seconds_now() - interrupted_at < 1)) {
            leave = true;
        } else if (!had_text) {
            interrupted_at = seconds_now();
            note("Ctrl-D leaves");
        }
        free(line);
        if (!st && (interrupt_signal() == SIGTERM || interrupt_signal() == SIGHUP))
            st = fail(err, SWL_E_CANCELLED, "%s", "");
    }
    return st;
}

swl_status chat_typed(conversation *c, swl_error *err)
{
    char history[PLACE_PATH_MAX];
    swl_error ignored;
    bool keep = opt_on(&c->a, OPT_HISTORY) && !place_path(history, PLACE_STATE, "history", &ignored);
    swl_status st;

    c->is_typed = true;
    line_open(keep ? history : NULL, typed_complete, c);
    if (!opt_on(&c->a, OPT_QUIET))
        note("%s: /help lists what can be typed, Ctrl-D leaves", c->e.dir);
    st = loop(c, err);
    line_close();
    return st;
}
