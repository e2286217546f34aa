/*
 * An answer: a byte of options, one that says how to cut, then what a model generates. Whatever it is,
 *   - the events are the same however the text is cut,
 *   - their order and form keep the rules of answer_events.h, and arguments are JSON objects,
 *   - no text is lost: what the events account for is the input, white space and the reasoning's own tags apart.
 */
#include "fuzz/fuzz.h"

#include <jansson.h>

#include "text/answer_events.h"

static const char tools_text[] =
    "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},"
    "\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"a\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"},"
    "\"u\":{\"type\":[\"integer\",\"array\",\"string\"]}}}}]";

/* Jansson takes less than JSON allows: such arguments are not asked about. */
static bool jansson_may_refuse(const char *p, size_t n)
{
    for (size_t i = 0, digits = 0; i < n; i++) {
        digits = p[i] >= '0' && p[i] <= '9' ? digits + 1 : 0;
        if (digits > 18 || p[i] == 'e' || p[i] == 'E' || (i + 4 < n && !memcmp(p + i, "u0000", 5)))
            return true;
    }
    return false;
}

static bool on_event(void *arg, const swl_answer_event *e)
{
    json_t *args;

    if (e->kind == SWL_ANSWER_CALL_END && !jansson_may_refuse(e->text, e->n)) {
        args = json_loadb(e->text, e->n, JSON_ALLOW_NUL, NULL);
        CHECK(json_is_object(args));
        json_decref(args);
    }
    return answer_events_add(arg, e);
}

static void parse(answer_events *v, swl_answer_options *o, const uint8_t *data, size_t n, size_t step)
{
    swl_answer *a;

    memset(v, 0, sizeof *v);
    o->arg = v;
    CHECK(!swl_answer_create(&a, o, NULL));
    for (size_t i = 0, part; i < n; i += part) {
        part = step < n - i ? step : n - i;
        CHECK(!swl_answer_push_text(a, (const char *)data + i, part, NULL));
    }
    CHECK(!swl_answer_finish(a, NULL));
    CHECK(answer_events_line(v));
    if (v->wrong)
        fprintf(stderr, "broken rule: %s\n%s\n", v->wrong, v->line.p);
    CHECK(!v->wrong);
    swl_answer_free(a);
}

/* The text of data as a decoder gives it. */
static void decode(const uint8_t *data, size_t n, swl_sbuf *out)
{
    swl_detok d;
    char text[16];

    swl_detok_init(&d);
    for (size_t i = 0; i < n; i++)
        swl_sbuf_put(out, text, swl_detok_push(&d, (const char *)data + i, 1, text));
    swl_sbuf_put(out, text, swl_detok_flush(&d, text));
}

static size_t skip_white(const swl_sbuf *b, size_t i)
{
    while (i < b->n && strchr(" \t\n\r\f\v", b->p[i]) && b->p[i])
        i++;
    return i;
}

static bool is_tag(const swl_sbuf *b, size_t i, const char *tag)
{
    return b->n - i >= strlen(tag) && !memcmp(b->p + i, tag, strlen(tag));
}

/* Whether `left` is `all` from i on, white space aside, without the tag </think> at `close`. */
static bool same_without(const swl_sbuf *all, size_t i, size_t close, const swl_sbuf *left)
{
    for (size_t j = 0;; i++, j++) {
        i = skip_white(all, i);
        j = skip_white(left, j);
        if (i == close)
            i = skip_white(all, i + strlen("</think>"));
        if (i >= all->n || j >= left->n || all->p[i] != left->p[j])
            return i >= all->n && j >= left->n;
    }
}

/* `left` is `all` but for white space, at most one <think> at the beginning and at most one </think>. */
static bool nothing_is_lost(const swl_sbuf *all, const swl_sbuf *left)
{
    size_t start = skip_white(all, 0), own = is_tag(all, start, "<think>") ? start + strlen("<think>") : start;

    if (same_without(all, start, all->n, left) || same_without(all, own, all->n, left))
        return true;
    for (size_t i = start; i < all->n; i++)
        if (is_tag(all, i, "</think>") && (same_without(all, start, i, left) || same_without(all, own, i, left)))
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const stop[] = {"stop", "\n\n\n", "to"};
    static json_t *tools;
    answer_events whole, cut;
    swl_answer_options o;
    swl_sbuf all = {0};

    if (!tools)
        tools = json_loads(tools_text, 0, NULL);
    if (size < 2)
        return 0;
    swl_answer_options_init(&o);
    o.tools = tools;
    o.on_event = on_event;
    o.start = data[0] & 1 ? SWL_ANSWER_START_REASONING : SWL_ANSWER_START_TEXT;
    o.think = !(data[0] & 2);
    o.calls = !(data[0] & 4);
    o.stop = stop;
    o.n_stop = data[0] & 8 ? 3 : 0;
    parse(&whole, &o, data + 2, size - 2, size);
    parse(&cut, &o, data + 2, size - 2, data[1] % 16 + 1);
    if (strcmp(whole.line.p, cut.line.p) || whole.line.n != cut.line.n)
        fprintf(stderr, "whole: %s\ncut:   %s\n", whole.line.p, cut.line.p);
    CHECK(whole.line.n == cut.line.n && !memcmp(whole.line.p, cut.line.p, whole.line.n));
    if (!o.n_stop && (o.think || o.start == SWL_ANSWER_START_TEXT)) {
        decode(data + 2, size - 2, &all);
        CHECK(nothing_is_lost(&all, &whole.source));
    }
    swl_sbuf_deinit(&all);
    answer_events_deinit(&whole);
    answer_events_deinit(&cut);
    return 0;
}
