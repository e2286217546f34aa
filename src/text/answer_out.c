/*
 * answer_out.c: the way out. Answer text passes the stop strings; then white space waits until what follows it is
 * known. Events about calls pass by both, after what was held back.
 */
#include <string.h>

#include "text/answer_impl.h"

void swl_answer_event_out(swl_answer *a, const swl_answer_event *e)
{
    if (!a->cancelled && !a->opt.on_event(a->opt.arg, e))
        a->cancelled = true;
}

static void delta(swl_answer *a, swl_answer_kind kind, const char *p, size_t n)
{
    swl_answer_event e = {.kind = kind, .call = -1, .text = p, .n = n};

    if (n)
        swl_answer_event_out(a, &e);
}

static bool is_white(char c)
{
    return swl_json_is_space(c) || c == '\f' || c == '\v';
}

/* The last stage. */
static void put(swl_answer *a, swl_answer_kind kind, const char *p, size_t n)
{
    size_t end = n;

    while (end && is_white(p[end - 1]))
        end--;
    if (kind == SWL_ANSWER_RAW)
        end = n;
    if (end) {
        delta(a, kind, a->white.p, a->white.n);
        a->white.n = 0;
        a->after_call = false;
    }
    delta(a, kind, p, end);
    swl_sbuf_put(&a->white, p + end, n - end);
}

/* What the stop strings hold back goes on its way. */
static void release(swl_answer *a)
{
    a->passed.n = 0;
    swl_stop_strings_flush(a->stop, &a->passed);
    if (a->passed.n)
        put(a, a->held_kind, a->passed.p, a->passed.n);
}

void swl_answer_emit(swl_answer *a, swl_answer_kind kind, const char *p, size_t n)
{
    while (a->skip_white && kind == SWL_ANSWER_TEXT && n && is_white(*p))
        p++, n--;
    if (!n || a->stopped_by >= 0)
        return;
    a->skip_white = false;
    if (kind == SWL_ANSWER_REASONING || !a->opt.n_stop) {
        put(a, kind, p, n);
        return;
    }
    if (kind != a->held_kind)
        release(a);
    a->held_kind = kind;
    a->passed.n = 0;
    a->stopped_by = swl_stop_strings_push(a->stop, p, n, &a->passed);
    if (a->passed.n)
        put(a, kind, a->passed.p, a->passed.n);
    if (a->stopped_by < 0)
        return;
    delta(a, SWL_ANSWER_TEXT, a->white.p, a->white.n);
    a->white.n = 0;
}

void swl_answer_settle(swl_answer *a, swl_sbuf *white)
{
    release(a);
    if (white)
        swl_sbuf_put(white, a->white.p, a->white.n);
    a->white.n = 0;
}

void swl_answer_emit_rest(swl_answer *a)
{
    swl_answer_kind kind = a->home == swl_answer_reasoning ? SWL_ANSWER_REASONING : SWL_ANSWER_TEXT;

    release(a);
    if (kind == SWL_ANSWER_REASONING || !a->after_call)
        delta(a, kind, a->white.p, a->white.n);
    a->white.n = 0;
}
