/*
 * answer_xml.c: the form <function=NAME> <parameter=KEY> VALUE </parameter> ... </function>. It is not XML: nothing is
 * escaped, and a value may contain all of these tags. So a value ends at
 *
 *     the last </parameter> before another of these tags (but </parameter>) that directly follows it or begins a line,
 * or before one of the ends below; without one: <parameter= or </function> at the beginning of a line, or
 *     </function> before </tool_call>, or </tool_call> before <tool_call>, or either before the end of everything.
 *
 * Values of strings are sent while they grow: all that cannot be the line break or the tag that ends them.
 */
#include <string.h>

#include "text/answer_impl.h"
#include "text/call_value.h"

static bool xml_between(swl_answer *a, bool final);
static bool xml_key(swl_answer *a, bool final);
static bool xml_value(swl_answer *a, bool final);

/* A name up to '>', without the white space around it; *n_taken includes the '>'. NO: there is none. */
static swl_tag_match read_name(const swl_answer *a, bool final, const char **name, size_t *n_name, size_t *n_taken)
{
    const char *p = swl_answer_in(a);
    size_t n = swl_answer_n_in(a), end = 0, start = 0;

    while (end < n && end <= SWL_ANSWER_NAME_MAX && p[end] != '<' && p[end] != '>')
        end++;
    if (end == n && end <= SWL_ANSWER_NAME_MAX && !final)
        return SWL_TAG_PART;
    if (end == n || p[end] != '>')
        return SWL_TAG_NO;
    *n_taken = end + 1;
    while (start < end && swl_json_is_space(p[start]))
        start++;
    while (end > start && swl_json_is_space(p[end - 1]))
        end--;
    *name = p + start;
    *n_name = end - start;
    return end > start && !memchr(p + start, '\n', end - start) && !memchr(p + start, 0, end - start) ? SWL_TAG_YES
                                                                                                      : SWL_TAG_NO;
}

bool swl_answer_xml_name(swl_answer *a, bool final)
{
    size_t n_name, n_taken;
    const char *name;
    swl_tag_match m = read_name(a, final, &name, &n_name, &n_taken);
    bool found;

    if (m == SWL_TAG_PART)
        return false;
    if (m == SWL_TAG_NO) {
        swl_answer_call_breaks(a);
        return true;
    }
    a->xml.parameters = swl_tool_parameters(a->tools, name, n_name, &found);
    a->xml.keys.n = 0;
    swl_answer_call_begin(a, name, n_name);
    swl_answer_take_raw(a, n_taken);
    a->step = xml_between;
    return true;
}

static void close_arguments(swl_answer *a)
{
    swl_sbuf_puts(&a->args, a->args.n ? "}" : "{}");
}

/* ---- between parameters ---- */

/* Text that has no business here: n bytes and the white space before them. */
static void take_stray(swl_answer *a, size_t n)
{
    swl_sbuf_put(&a->stray, swl_answer_in(a), n);
    swl_answer_take_raw(a, n);
}

static void function_ends(swl_answer *a, bool unclosed)
{
    close_arguments(a);
    swl_answer_call_whole(a, unclosed);
}

static bool xml_between(swl_answer *a, bool final)
{
    static const char *const tags[] = {"<parameter=", "</function>", "</tool_call>", "<tool_call>", "<function="};
    size_t white = swl_answer_white(a, 0), n = swl_answer_n_in(a);
    swl_tag_match m = SWL_TAG_NO;
    int tag = 0;

    if (white == n && !final)
        return false;
    for (; tag < 5 && (m = swl_answer_tag(a, white, tags[tag], final)) == SWL_TAG_NO; tag++)
        ;
    if (m == SWL_TAG_PART)
        return false;
    if (tag == 0 || tag == 1)
        swl_answer_take_raw(a, white + strlen(tags[tag]));
    if (tag == 0)
        a->step = xml_key;
    else if (tag == 1)
        function_ends(a, false);
    else if (tag < 5 || white == n)
        function_ends(a, true);
    else
        take_stray(a, white + 1);
    return true;
}

/* ---- parameters ---- */

/* Notes the key; false: it was there before. */
static bool new_key(swl_answer *a, const char *key, size_t n)
{
    swl_sbuf *keys = &a->xml.keys;

    for (size_t i = 0, len; i < keys->n; i += len + 1) {
        len = (size_t)((char *)memchr(keys->p + i, '\n', keys->n - i) - (keys->p + i));
        if (len == n && !memcmp(keys->p + i, key, n))
            return false;
    }
    swl_sbuf_put(keys, key, n);
    swl_sbuf_putc(keys, '\n');
    return true;
}

static bool xml_key(swl_answer *a, bool final)
{
    swl_answer_xml *x = &a->xml;
    size_t n_key, n_taken;
    const char *key;
    swl_tag_match m = read_name(a, final, &key, &n_key, &n_taken);

    if (m == SWL_TAG_PART)
        return false;
    if (m == SWL_TAG_NO && final && !memchr(swl_answer_in(a), '<', swl_answer_n_in(a))) {
        swl_answer_take_raw(a, swl_answer_n_in(a));
        close_arguments(a);
        swl_answer_call_breaks(a);
        return true;
    }
    if (m == SWL_TAG_NO || !new_key(a, key, n_key)) {
        swl_sbuf_puts(&a->stray, "<parameter=");
        a->step = xml_between;
        return true;
    }
    x->key.n = 0;
    swl_sbuf_put(&x->key, key, n_key);
    x->kinds = swl_call_kinds(x->parameters, key, n_key);
    x->at_start = true;
    x->sent = false;
    x->scanned = 0;
    x->candidate = SIZE_MAX;
    swl_answer_take_raw(a, n_taken);
    a->step = xml_value;
    return true;
}

static void put_key(swl_answer *a)
{
    swl_sbuf_puts(&a->args, a->args.n ? ", \"" : "{\"");
    swl_sbuf_put_escaped(&a->args, a->xml.key.p, a->xml.key.n);
    swl_sbuf_puts(&a->args, "\": ");
}

/* The value is the n waiting bytes less a line break; then text of no use up to `next`, which begins the next tag. */
static void value_ends(swl_answer *a, size_t n, size_t stray, size_t next)
{
    const char *p = swl_answer_in(a);
    size_t end = n && p[n - 1] == '\n' ? n - 1 : n;

    if (a->xml.sent) {
        swl_sbuf_put_escaped(&a->args, p, end);
        swl_sbuf_putc(&a->args, '"');
    } else {
        put_key(a);
        swl_call_value_put(a->xml.kinds, p, end, &a->args);
    }
    swl_answer_call_send(a, a->args.n);
    swl_answer_take_raw(a, stray);
    if (swl_answer_white(a, 0) < next - stray)
        take_stray(a, next - stray);
    else
        swl_answer_take_raw(a, next - stray);
    a->step = xml_between;
}

/* Sends the first n waiting bytes as the middle of a string, less what may not be part of it. */
static void send_part(swl_answer *a, size_t n)
{
    swl_answer_xml *x = &a->xml;
    const char *p = swl_answer_in(a);

    if (x->kinds & SWL_KIND_NOT_TEXT)
        return;
    if (n && p[n - 1] == '\n')
        n--;
    if (!n || (!x->sent && swl_call_null_begins(p, n)))
        return;
    if (!x->sent) {
        put_key(a);
        swl_sbuf_putc(&a->args, '"');
    }
    x->sent = true;
    swl_sbuf_put_escaped(&a->args, p, n);
    swl_answer_call_send(a, a->args.n);
    x->line_start = p[n - 1] == '\n';
    x->scanned -= n;
    if (x->candidate != SIZE_MAX)
        x->candidate -= n;
    swl_answer_take_raw(a, n);
}

static bool begins_line(const swl_answer *a, size_t i)
{
    return i ? swl_answer_in(a)[i - 1] == '\n' : a->xml.line_start;
}

/* With no </parameter>: whether the closing tag of n bytes at i is the value's end because of what comes after it. */
static swl_tag_match ends_before(const swl_answer *a, size_t i, const char *next, bool final)
{
    size_t white = swl_answer_white(a, i);

    if (i + white == swl_answer_n_in(a))
        return final ? SWL_TAG_YES : SWL_TAG_PART;
    return swl_answer_tag(a, i + white, next, final);
}

/* What the '<' at i is. YES: the value ends here or at the candidate. */
static swl_tag_match tag_at(swl_answer *a, size_t i, bool final)
{
    static const size_t n_close = sizeof "</parameter>" - 1;
    size_t candidate = a->xml.candidate;
    bool has = candidate != SIZE_MAX;
    bool clear = begins_line(a, i) || (has && candidate + n_close + swl_answer_white(a, candidate + n_close) == i);
    swl_tag_match parameter = clear ? swl_answer_tag(a, i, "<parameter=", final) : SWL_TAG_NO;
    swl_tag_match function = swl_answer_tag(a, i, "</function>", final);
    swl_tag_match call = swl_answer_tag(a, i, "</tool_call>", final), next = SWL_TAG_NO;

    if (clear && has) {
        next = swl_answer_tag(a, i, "<tool_call>", final);
        next = next == SWL_TAG_NO ? swl_answer_tag(a, i, "<function=", final) : next;
    }
    if (parameter != SWL_TAG_NO || next != SWL_TAG_NO)
        return parameter == SWL_TAG_YES ? parameter : next == SWL_TAG_YES ? next : SWL_TAG_PART;
    if (function == SWL_TAG_YES)
        return clear ? SWL_TAG_YES : ends_before(a, i + strlen("</function>"), "</tool_call>", final);
    if (call == SWL_TAG_YES)
        return clear && has ? SWL_TAG_YES : ends_before(a, i + strlen("</tool_call>"), "<tool_call>", final);
    return function == SWL_TAG_PART || call == SWL_TAG_PART ? SWL_TAG_PART : SWL_TAG_NO;
}

static bool value_is_over(swl_answer *a, size_t i)
{
    size_t candidate = a->xml.candidate;

    if (candidate == SIZE_MAX)
        value_ends(a, i, i, i);
    else
        value_ends(a, candidate, candidate + strlen("</parameter>"), i);
    return true;
}

/* The end came inside the value. */
static bool value_is_cut(swl_answer *a)
{
    if (a->xml.sent)
        swl_sbuf_putc(&a->args, '"');
    swl_answer_take_raw(a, swl_answer_n_in(a));
    close_arguments(a);
    swl_answer_call_breaks(a);
    return true;
}

static bool xml_value(swl_answer *a, bool final)
{
    swl_answer_xml *x = &a->xml;
    swl_tag_match m = SWL_TAG_NO, close;
    const char *p;
    size_t n;

    if (x->at_start) {
        if (!swl_answer_n_in(a) && !final)
            return false;
        x->line_start = swl_answer_n_in(a) && *swl_answer_in(a) == '\n';
        swl_answer_take_raw(a, x->line_start);
        x->at_start = false;
    }
    n = swl_answer_n_in(a);
    while (x->scanned < n && m == SWL_TAG_NO) {
        p = memchr(swl_answer_in(a) + x->scanned, '<', n - x->scanned);
        x->scanned = p ? (size_t)(p - swl_answer_in(a)) : n;
        if (!p)
            break;
        close = swl_answer_tag(a, x->scanned, "</parameter>", final);
        if (close == SWL_TAG_YES)
            x->candidate = x->scanned;
        else
            m = tag_at(a, x->scanned, final);
        m = close == SWL_TAG_PART ? SWL_TAG_PART : m;
        x->scanned += m == SWL_TAG_NO;
    }
    if (m == SWL_TAG_YES)
        return value_is_over(a, x->scanned);
    if (final)
        return x->candidate == SIZE_MAX ? value_is_cut(a) : value_is_over(a, n);
    send_part(a, x->candidate == SIZE_MAX ? x->scanned : x->candidate);
    return false;
}
