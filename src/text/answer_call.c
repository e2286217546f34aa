/*
 * answer_call.c: calls. One way leads in and four lead out:
 *
 *     starts -> call_open -+-> call_json  -+-> whole -> call_after -> CALL_END, and home or the next call
 *                          +-> xml_name...-+-> breaks -> [CALL_END broken] and RAW, then home
 *                          +-> breaks: what follows the tag is no call
 *
 * `raw` holds all of the call's text until it has ended, for the way back.
 */
#include <string.h>

#include "text/answer_impl.h"

/* ---- in ---- */

static void forget_call(swl_answer *a)
{
    a->raw.n = a->args.n = a->stray.n = a->n_sent = 0;
    a->begun = a->unclosed = false;
}

static void json_begins(swl_answer *a)
{
    swl_answer_json *j = &a->json;

    swl_json_step_init(&j->scan);
    j->key.n = j->name.n = j->other.n = j->n_safe = 0;
    j->member = SWL_MEMBER_OTHER;
    j->sink = &j->other;
    j->named = j->args_begun = j->args_done = j->args_text = false;
    a->step = swl_answer_call_json;
}

void swl_answer_call_starts(swl_answer *a, const char *tag)
{
    forget_call(a);
    swl_answer_settle(a, &a->raw);
    a->tagged = !strcmp(tag, "<tool_call>");
    swl_answer_take_raw(a, strlen(tag));
    a->step = a->tagged ? swl_answer_call_open : swl_answer_xml_name;
}

/* After <tool_call>: what form is it? */
bool swl_answer_call_open(swl_answer *a, bool final)
{
    size_t white = swl_answer_white(a, 0);
    swl_tag_match m;

    if (white == swl_answer_n_in(a) && !final)
        return false;
    m = swl_answer_tag(a, white, "{", final);
    if (m == SWL_TAG_YES) {
        swl_answer_take_raw(a, white);
        json_begins(a);
        return true;
    }
    m = swl_answer_tag(a, white, "<function=", final);
    if (m == SWL_TAG_PART)
        return false;
    if (m == SWL_TAG_YES) {
        swl_answer_take_raw(a, white + strlen("<function="));
        a->step = swl_answer_xml_name;
    } else {
        swl_answer_call_breaks(a);
    }
    return true;
}

void swl_answer_call_begin(swl_answer *a, const char *name, size_t n)
{
    swl_answer_event e = {.kind = SWL_ANSWER_CALL_BEGIN, .call = a->n_calls, .text = name, .n = n};

    a->call = a->n_calls++;
    a->begun = a->after_call = true;
    a->home = swl_answer_content;
    a->skip_white = false;
    swl_answer_event_out(a, &e);
}

void swl_answer_call_send(swl_answer *a, size_t n)
{
    swl_answer_event e = {.kind = SWL_ANSWER_CALL_ARGS, .call = a->call};

    if (!a->begun || n <= a->n_sent || a->args.failed)
        return;
    e.text = a->args.p + a->n_sent;
    e.n = n - a->n_sent;
    a->n_sent = n;
    swl_answer_event_out(a, &e);
}

/* ---- out ---- */

void swl_answer_call_whole(swl_answer *a, bool unclosed)
{
    swl_answer_call_send(a, a->args.n);
    a->unclosed = unclosed;
    a->step = swl_answer_call_after;
}

static void call_ends(swl_answer *a, swl_call_end end)
{
    swl_answer_event e = {.kind = SWL_ANSWER_CALL_END,
                          .call = a->call,
                          .end = end,
                          .text = a->args.p,
                          .n = a->args.n,
                          .raw = a->raw.p,
                          .n_raw = a->raw.n};

    if (!a->args.failed && !a->raw.failed)
        swl_answer_event_out(a, &e);
}

static void ends_well(swl_answer *a, bool closed)
{
    swl_answer_event stray = {.kind = SWL_ANSWER_RAW, .call = a->call, .text = a->stray.p, .n = a->stray.n};

    a->n_good++;
    call_ends(a, closed && !a->unclosed ? SWL_CALL_CLOSED : SWL_CALL_UNCLOSED);
    if (stray.n)
        swl_answer_event_out(a, &stray);
    forget_call(a);
    a->step = a->home;
    a->line_start = true;
}

/* The rest of what was no call, up to the next tag that says where it ends. */
static bool call_rest(swl_answer *a, bool final)
{
    static const char *const tags[] = {"</tool_call>", "<tool_call>", "</think>"};
    bool in_reasoning = a->home == swl_answer_reasoning;
    swl_answer_kind kind = in_reasoning ? SWL_ANSWER_REASONING : SWL_ANSWER_RAW;
    const char *p = swl_answer_in(a);
    size_t n = swl_answer_n_in(a), i = 0;
    swl_tag_match m = SWL_TAG_NO;
    int tag = 0;

    for (; i < n && m == SWL_TAG_NO; i += m == SWL_TAG_NO) {
        if (p[i] != '<')
            continue;
        for (tag = 0; tag < 2 + in_reasoning && (m = swl_answer_tag(a, i, tags[tag], final)) == SWL_TAG_NO; tag++)
            ;
    }
    if (m == SWL_TAG_YES && tag == 0)
        i += strlen(tags[0]);
    swl_answer_emit(a, kind, p, i);
    swl_answer_take(a, i);
    if (m != SWL_TAG_YES)
        return false;
    a->step = a->home;
    return true;
}

void swl_answer_call_breaks(swl_answer *a)
{
    swl_answer_kind kind = a->home == swl_answer_reasoning ? SWL_ANSWER_REASONING : SWL_ANSWER_RAW;
    bool json = a->step == swl_answer_call_json;

    if (a->begun) {
        swl_answer_call_send(a, a->args.n);
        call_ends(a, SWL_CALL_BROKEN);
    }
    if (!a->raw.failed)
        swl_answer_emit(a, kind, a->raw.p, a->raw.n);
    forget_call(a);
    a->step = json ? call_rest : a->home;
}

/* After the arguments: </tool_call>, or what makes do for it. White space waits, since it may belong to text. */
bool swl_answer_call_after(swl_answer *a, bool final)
{
    static const char *const tags[] = {"</tool_call>", "<tool_call>", "<function=", "{"};
    size_t white = swl_answer_white(a, 0);
    swl_tag_match m = SWL_TAG_NO;
    int tag = 0, n_tags = a->tagged ? 4 : 3;
    bool more; /* the next call, in the same <tool_call> */

    if (white == swl_answer_n_in(a) && !final)
        return false;
    for (; tag < n_tags && (m = swl_answer_tag(a, white, tags[tag], final)) == SWL_TAG_NO; tag++)
        ;
    if (m == SWL_TAG_PART)
        return false;
    if (m == SWL_TAG_YES && tag == 0) {
        swl_answer_take_raw(a, white + strlen(tags[0]));
        ends_well(a, true);
        return true;
    }
    more = m == SWL_TAG_YES && tag >= 2;
    ends_well(a, more);
    if (more) {
        swl_answer_take_raw(a, white + (tag == 2 ? strlen(tags[2]) : 0));
        a->step = swl_answer_xml_name;
        if (tag == 3)
            json_begins(a);
    }
    return true;
}

/* ---- the JSON form ---- */

/* The value of a member of the outer object begins with c. */
static bool member_begins(swl_answer *a, char c)
{
    swl_answer_json *j = &a->json;

    j->sink = &j->other;
    if (j->member == SWL_MEMBER_NAME) {
        j->sink = &j->name;
        return c == '"' && !j->named;
    }
    if (j->member != SWL_MEMBER_ARGS)
        return true;
    if (j->args_begun || !c || !strchr("{\"n", c))
        return false;
    j->args_begun = true;
    j->args_text = c == '"';
    j->sink = &a->args;
    return true;
}

static json_t *decoded(const swl_sbuf *b)
{
    return b->failed ? NULL : json_loadb(b->p, b->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static bool key_ends(swl_answer_json *j)
{
    json_t *key = decoded(&j->key);
    const char *k = key ? json_string_value(key) : "";

    j->member = SWL_MEMBER_OTHER;
    if (!strcmp(k, "name"))
        j->member = SWL_MEMBER_NAME;
    else if (!strcmp(k, "arguments"))
        j->member = SWL_MEMBER_ARGS;
    json_decref(key);
    j->sink = &j->other;
    return true;
}

static bool name_ends(swl_answer_json *j)
{
    json_t *name = decoded(&j->name);
    size_t n = json_string_length(name);
    bool ok = n && n <= SWL_ANSWER_NAME_MAX && strlen(json_string_value(name)) == n;

    j->name.n = 0;
    if (ok)
        swl_sbuf_put(&j->name, json_string_value(name), n);
    json_decref(name);
    return j->named = ok;
}

/* Arguments that are a string which holds JSON: nothing in it means none. */
static bool unpack_args(swl_answer *a)
{
    json_t *v = decoded(&a->args);
    const char *p = json_string_value(v);
    size_t n = json_string_length(v), white = 0;
    bool ok = v;

    a->args.n = 0;
    while (white < n && swl_json_is_space(p[white]))
        white++;
    if (white < n)
        ok = p[white] == '{' && swl_json_put_checked(p, n, &a->args);
    else
        swl_sbuf_puts(&a->args, "{}");
    json_decref(v);
    return ok;
}

static bool args_end(swl_answer *a)
{
    swl_answer_json *j = &a->json;

    j->args_done = !j->args_text || unpack_args(a);
    if (!j->args_text && a->args.n && a->args.p[0] == 'n') { /* null */
        a->args.n = 0;
        swl_sbuf_puts(&a->args, "{}");
    }
    j->n_safe = a->args.n;
    return j->args_done;
}

static bool value_ends(swl_answer *a)
{
    swl_answer_json *j = &a->json;
    bool ok = true;

    if (j->sink == &j->name)
        ok = name_ends(j);
    else if (j->sink == &a->args)
        ok = args_end(a);
    j->sink = &j->other;
    return ok;
}

/* One byte of the outer object. False: this is no call. */
static bool json_put(swl_answer *a, char c)
{
    swl_answer_json *j = &a->json;
    swl_json_state was = j->scan.state, now;
    bool outer = j->scan.depth == 1, ok = true;

    if (outer && (was == SWL_JSON_FIRST_KEY || was == SWL_JSON_KEY) && c == '"') {
        j->key.n = 0;
        j->sink = &j->key;
    }
    if (outer && was == SWL_JSON_VALUE && !swl_json_is_space(c))
        ok = member_begins(a, c);
    if (j->sink == &j->other)
        j->other.n = j->scan.state == SWL_JSON_STRING || j->scan.state >= SWL_JSON_ESCAPE ? j->other.n : 0;
    if (!ok || !swl_json_step_put(&j->scan, c, j->sink))
        return false;
    if (j->sink == &a->args && !j->args_text && swl_json_step_safe(&j->scan))
        j->n_safe = a->args.n;
    now = j->scan.state;
    if (j->scan.depth != 1 || (outer && now == was))
        return true;
    if (now == SWL_JSON_COLON)
        return key_ends(j);
    return now != SWL_JSON_AFTER || value_ends(a);
}

/* The call is known and its arguments are on the way: they go out as far as they can be closed again. */
static void json_send(swl_answer *a)
{
    swl_answer_json *j = &a->json;

    if (!j->named || !j->args_begun || (!j->args_done && (j->args_text || !j->n_safe)))
        return;
    if (!a->begun)
        swl_answer_call_begin(a, j->name.p, j->name.n);
    swl_answer_call_send(a, j->n_safe);
}

static void json_whole(swl_answer *a, bool unclosed)
{
    swl_answer_json *j = &a->json;

    if (!j->args_done) {
        j->args_begun = j->args_done = true;
        swl_sbuf_puts(&a->args, "{}");
        j->n_safe = a->args.n;
    }
    json_send(a);
    swl_answer_call_whole(a, unclosed);
}

static void json_breaks(swl_answer *a)
{
    swl_answer_json *j = &a->json;

    if (a->begun) {
        a->args.n = j->n_safe;
        if (!j->args_done)
            swl_json_step_close(&j->scan, 1, &a->args);
    }
    swl_answer_call_breaks(a);
}

/* The text is no JSON at the waiting byte, or has ended. A call that lacks its last brace is good all the same. */
static bool json_stops(swl_answer *a, bool final)
{
    swl_answer_json *j = &a->json;
    swl_tag_match m = SWL_TAG_NO;

    if (j->named && j->args_done && j->scan.depth == 1 && j->scan.state == SWL_JSON_AFTER) {
        m = swl_answer_tag(a, 0, "</tool_call>", final);
        m = m == SWL_TAG_NO ? swl_answer_tag(a, 0, "<tool_call>", final) : m;
        if (m == SWL_TAG_PART)
            return false;
        if (m == SWL_TAG_YES || !swl_answer_n_in(a)) {
            json_whole(a, true);
            return true;
        }
    }
    json_breaks(a);
    return true;
}

bool swl_answer_call_json(swl_answer *a, bool final)
{
    swl_answer_json *j = &a->json;
    size_t i = 0, n = swl_answer_n_in(a);
    swl_json_state before;
    bool ok = true;

    while (i < n && ok && !swl_json_step_done(&j->scan)) {
        before = j->scan.state;
        ok = json_put(a, swl_answer_in(a)[i]);
        if (ok)
            i++;
        else
            j->scan.state = before;
    }
    swl_answer_take_raw(a, i);
    if (swl_json_step_done(&j->scan)) {
        if (j->named)
            json_whole(a, false);
        else
            json_breaks(a);
        return true;
    }
    json_send(a);
    if (!ok || final)
        return json_stops(a, final);
    return false;
}
