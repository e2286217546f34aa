/*
 * parse_answer.c: the answer parser as a filter, for check_answer.py. Each input line is a JSON object: "text" and "cuts"
 * (lengths in bytes of the pieces; the rest is one more), "start" ("text", "reasoning" or a rendered prompt), "tools",
 * "stop", and "token" (pretend that the token <tool_call> is known, so that none was pushed). Each output line is
 * {"events": [[kind, call, text, end, raw], ...], "stopped": index}.
 */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/answer.h"

enum { STOP_MAX = 16 };

static bool add_event(void *events, const swl_answer_event *e)
{
    static const char *const kinds[] = {"reasoning", "text", "raw", "begin", "args", "end"};
    static const char *const ends[] = {"closed", "unclosed", "broken"};
    json_t *v = json_array();

    json_array_append_new(v, json_string(kinds[e->kind]));
    json_array_append_new(v, json_integer(e->call));
    json_array_append_new(v, json_stringn(e->text, e->n));
    if (e->kind == SWL_ANSWER_CALL_END) {
        json_array_append_new(v, json_string(ends[e->end]));
        json_array_append_new(v, json_stringn(e->raw, e->n_raw));
    }
    return !json_array_append_new(events, v);
}

static swl_answer_start start_of(const json_t *in)
{
    const json_t *start = json_object_get(in, "start");

    if (!strcmp(json_string_value(start), "reasoning"))
        return SWL_ANSWER_START_REASONING;
    return swl_answer_start_of(json_string_value(start), json_string_length(start));
}

static swl_status parse(swl_answer *a, const json_t *in, swl_error *err)
{
    const json_t *text = json_object_get(in, "text"), *cuts = json_object_get(in, "cuts"), *cut;
    const char *p = json_string_value(text);
    size_t n = json_string_length(text), part, i;
    swl_status st = SWL_OK;

    json_array_foreach (cuts, i, cut) {
        part = (size_t)json_integer_value(cut) < n ? (size_t)json_integer_value(cut) : n;
        if (!st)
            st = swl_answer_push_text(a, p, part, err);
        p += part;
        n -= part;
    }
    if (!st)
        st = swl_answer_push_text(a, p, n, err);
    return st ? st : swl_answer_finish(a, err);
}

static json_t *answer(const json_t *in)
{
    const char *stop[STOP_MAX];
    const json_t *strings = json_object_get(in, "stop"), *s;
    json_t *events = json_array(), *out;
    swl_answer_options o;
    swl_answer *a;
    swl_error err;
    size_t i;

    swl_answer_options_init(&o);
    json_array_foreach (strings, i, s)
        if (i < STOP_MAX)
            stop[o.n_stop++] = json_string_value(s);
    o.stop = stop;
    o.start = start_of(in);
    o.tools = json_object_get(in, "tools");
    o.tool_call_id = json_is_true(json_object_get(in, "token")) ? 1 : -1;
    o.on_event = add_event;
    o.arg = events;
    if (swl_answer_create(&a, &o, &err) || parse(a, in, &err))
        out = json_pack("{s:s}", "error", err.message);
    else
        out = json_pack("{s:O, s:i}", "events", events, "stopped", (int)swl_answer_stopped_by(a));
    swl_answer_free(a);
    json_decref(events);
    return out;
}

int main(void)
{
    json_t *in, *out;
    char *line = NULL;
    size_t cap = 0;

    while (getline(&line, &cap, stdin) > 0) {
        in = json_loads(line, JSON_ALLOW_NUL, NULL);
        out = answer(in);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    return 0;
}
