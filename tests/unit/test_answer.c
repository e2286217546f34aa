/* Generated text to events: reasoning, answer text, both forms of tool calls; the same however the text is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/mem.h"
#include "text/answer_events.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},"
    "\"a\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"},\"e\":{\"enum\":[\"x\",\"y\"]},"
    "\"u\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]},\"l\":{\"type\":[\"boolean\",\"array\",\"null\"]},"
    "\"r\":{\"$ref\":\"#/$defs/R\"}},\"$defs\":{\"R\":{\"type\":\"object\"}}}}},"
    "{\"name\":\"g\",\"input_schema\":{\"properties\":{\"i\":{\"type\":\"integer\"}}}}]";

static swl_answer_options options(answer_events *v, const json_t *tools)
{
    swl_answer_options o;

    swl_answer_options_init(&o);
    o.tools = tools;
    o.on_event = answer_events_add;
    o.arg = v;
    return o;
}

/* Pushes text in pieces: first `first` bytes, then `step` at a time. */
static void push(swl_answer *a, const char *text, size_t first, size_t step)
{
    size_t n = strlen(text), at = 0, part = first;

    for (; at < n; at += part, part = step) {
        part = part < n - at ? part : n - at;
        assert_int_equal(swl_answer_push_text(a, text + at, part, NULL), SWL_OK);
    }
    assert_int_equal(swl_answer_finish(a, NULL), SWL_OK);
}

static void expect_cut(const swl_answer_options *opt, const char *text, const char *want, size_t first, size_t step)
{
    answer_events *v = opt->arg;
    swl_answer *a;

    memset(v, 0, sizeof *v);
    assert_int_equal(swl_answer_create(&a, opt, NULL), SWL_OK);
    push(a, text, first, step);
    assert_string_equal(answer_events_line(v), want);
    assert_null(v->wrong);
    answer_events_deinit(v);
    swl_answer_free(a);
}

/* Whole, in two, and in steps of 1 to 3. */
static void expect(const swl_answer_options *opt, const char *text, const char *want)
{
    for (size_t first = 0; first <= strlen(text); first++)
        expect_cut(opt, text, want, first, strlen(text) + 1);
    for (size_t step = 1; step <= 3; step++)
        expect_cut(opt, text, want, step, step);
}

static void with_tools(const char *text, const char *want)
{
    answer_events v;
    json_t *tools = json_loads(tools_text, 0, NULL);
    swl_answer_options o = options(&v, tools);

    assert_non_null(tools);
    expect(&o, text, want);
    json_decref(tools);
}

static void thinking(swl_answer_start start, const char *text, const char *want)
{
    answer_events v;
    swl_answer_options o = options(&v, NULL);

    o.start = start;
    expect(&o, text, want);
}

static void splits_reasoning_from_the_answer(void **state)
{
    (void)state;
    thinking(SWL_ANSWER_START_REASONING, "Let me see.\n</think>\n\nFour.", "R[Let me see.]T[Four.]");
    thinking(SWL_ANSWER_START_REASONING, "a </b> <think> c </think>x </think> y", "R[a </b> <think> c]T[x </think> y]");
    thinking(SWL_ANSWER_START_REASONING, "<think>\n  a\n</think>\n\nb\n", "R[  a]T[b\n]");
    thinking(SWL_ANSWER_START_REASONING, "never done \n", "R[never done \n]");
    thinking(SWL_ANSWER_START_REASONING, "</think>\n\n", "");
    thinking(SWL_ANSWER_START_REASONING, "a</thin", "R[a</thin]");
    thinking(SWL_ANSWER_START_THINK, "\na</think>b", "R[a]T[b]");
    thinking(SWL_ANSWER_START_TEXT, "\n<think>\na\n</think>\n\nb", "R[a]T[b]");
    thinking(SWL_ANSWER_START_TEXT, "b <think>a</think>", "T[b <think>a</think>]");
    thinking(SWL_ANSWER_START_TEXT, "\n\n a \n", "T[\n\n a \n]");
}

static void knows_no_tags_when_told_so(void **state)
{
    answer_events v;
    swl_answer_options o = options(&v, NULL);

    (void)state;
    o.think = o.calls = false;
    expect(&o, "<think>a</think><tool_call>\n{\"name\": \"f\"}", "T[<think>a</think><tool_call>\n{\"name\": \"f\"}]");
    assert_int_equal(swl_answer_start_of("<|im_start|>assistant\n<think>\n", 30), SWL_ANSWER_START_REASONING);
    assert_int_equal(swl_answer_start_of("<|im_start|>assistant\n<think>", 29), SWL_ANSWER_START_THINK);
    assert_int_equal(swl_answer_start_of("<|im_start|>assistant\n<think>\n\n</think>\n\n", 41), SWL_ANSWER_START_TEXT);
    assert_int_equal(swl_answer_start_of("<think>\n<|im_start|>assistant\n", 30), SWL_ANSWER_START_TEXT);
}

static void reads_json_calls(void **state)
{
    (void)state;
    with_tools("Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"K\xC3\xB6ln\", \"i\": 2}}\n</tool_call>",
               "T[Let me look.]C0 f[{\"s\": \"K\xC3\xB6ln\", \"i\": 2}] closed ");
    with_tools("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
               "C0 f[{}] closed C1 g[{}] closed ");
    with_tools("<tool_call>\n{\"arguments\": {\"a\": [1, {\"}\": \"</tool_call>\"}], \"n\": -1.5e3}, \"name\": \"f\", \"id\": 7}\n"
               "</tool_call> Done.",
               "C0 f[{\"a\": [1, {\"}\": \"</tool_call>\"}], \"n\": -1.5e3}] closed T[ Done.]");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": \\\"x\\\"}\"}</tool_call>", "C0 f[{\"s\": \"x\"}] closed ");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": \" \"}</tool_call>", "C0 f[{}] closed ");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "C0 f[{}] closed ");
    with_tools("<tool_call>{\"name\": \"f\"}\n{\"name\": \"g\"}</tool_call>", "C0 f[{}] closed C1 g[{}] closed ");
    with_tools("<tool_call>{\"na\\u006de\": \"\\u0066\", \"arguments\": {\"s\": \"a\nb\\ud83d\\ude00\\ud83d\"}}</tool_call>",
               "C0 f[{\"s\": \"a\\nb\\ud83d\\ude00\\ufffd\"}] closed ");
}

static void forgives_a_missing_end(void **state)
{
    (void)state;
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": 1}}", "C0 f[{\"i\": 1}] unclosed ");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": 1}\n</tool_call>", "C0 f[{\"i\": 1}] unclosed ");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": 1}<tool_call>{\"name\": \"g\"}",
               "C0 f[{\"i\": 1}] unclosed C1 g[{}] unclosed ");
    with_tools("<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n", "C0 f[{\"i\": 1}] unclosed ");
    with_tools("<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</tool_call>", "C0 f[{\"i\": 1}] unclosed ");
    with_tools("<tool_call>\n<function=f>\n<parameter=i>\n1\n</function>\n</tool_call>", "C0 f[{\"i\": 1}] closed ");
    with_tools("<tool_call>\n<function=f>\n<parameter=s>\n1\n<parameter=i>\n2\n</tool_call>", "C0 f[{\"s\": \"1\", \"i\": 2}] unclosed ");
    with_tools("<function=f><parameter=i>1</function></tool_call>", "C0 f[{\"i\": 1}] closed ");
    with_tools("Hm.\n<function=f>\n</function>", "T[Hm.]C0 f[{}] unclosed ");
    with_tools("<tool_call><function=f><parameter=i>1</parameter><tool_call><function=g></function></tool_call>",
               "C0 f[{\"i\": 1}] unclosed C1 g[{}] closed ");
}

static void gives_back_what_is_no_call(void **state)
{
    (void)state;
    with_tools("Use the <tool_call> tag, <tool_call", "T[Use the]W[ <tool_call>]T[ tag, <tool_call]");
    with_tools("a\n<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>b",
               "T[a]W[\n<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>]T[b]");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": \"{1\"}", "W[<tool_call>{\"name\": \"f\", \"arguments\": \"{1\"}]");
    with_tools("<tool_call>\n{\"nom\": \"f\"}</tool_call>", "W[<tool_call>\n{\"nom\": \"f\"}</tool_call>]");
    with_tools("<tool_call>\n{name: f}</tool_call> <tool_call>{\"name\":\"g\"}</tool_call>",
               "W[<tool_call>\n{name: f}</tool_call>]C0 g[{}] closed ");
    with_tools("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1,, \"n\": 2}}\n</tool_call>",
               "C0 f[{}] broken W[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1,, \"n\": 2}}\n</tool_call>]");
    with_tools("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"k\": \"va\\u00",
               "C0 f[{\"a\": [1, {\"k\": \"va\"}]}] broken W[<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"k\": \"va\\u00]");
    with_tools("<tool_call><function=>x", "W[<tool_call><function=]T[>x]");
    with_tools("<tool_call><function=f><parameter=s>\nhalf", "C0 f[{\"s\": \"half\"}] broken W[<tool_call><function=f><parameter=s>\nhalf]");
    with_tools("<tool_call><function=f><parameter=i>\n1", "C0 f[{}] broken W[<tool_call><function=f><parameter=i>\n1]");
    with_tools("<tool_call><function=f><param", "C0 f[{}] unclosed W0[<param]");
    with_tools("<function=unknown>\n</function>", "T[<function=unknown>\n</function>]");
    with_tools("see <function=f>", "T[see <function=f>]");
    with_tools("<tool_call><function=f>\nwell\n<parameter=i>1</parameter>\n</function></tool_call>",
               "C0 f[{\"i\": 1}] closed W0[\nwell]");
    with_tools("<tool_call><function=f><parameter=i>1</parameter><parameter=i>2</parameter></function></tool_call>",
               "C0 f[{\"i\": 1}] closed W0[<parameter=i>2</parameter>]");
}

static void ends_values_where_they_end(void **state)
{
    (void)state;
    with_tools("<tool_call>\n<function=f>\n<parameter=s>\n  two\n\n lines\n\n</parameter>\n</function>\n</tool_call>",
               "C0 f[{\"s\": \"  two\\n\\n lines\\n\"}] closed ");
    with_tools("<tool_call>\n<function=f>\n<parameter=s>\n\n</parameter>\n<parameter=e></parameter></function>\n</tool_call>",
               "C0 f[{\"s\": \"\", \"e\": \"\"}] closed ");
    with_tools("<tool_call><function=f><parameter=s>\nif a < b </parameter> c </think> <parameter=x> \"\\\t\n</parameter>\n</function></tool_call>",
               "C0 f[{\"s\": \"if a < b </parameter> c </think> <parameter=x> \\\"\\\\\\t\"}] closed ");
    with_tools("<tool_call><function=f><parameter=s>\nx</parameter> junk\n<parameter=i>1</parameter></function></tool_call>",
               "C0 f[{\"s\": \"x\", \"i\": 1}] closed W0[ junk\n]");
    with_tools("<tool_call><function=f><parameter=s>\nsay </function> and </tool_call> now\n</parameter></function></tool_call>",
               "C0 f[{\"s\": \"say </function> and </tool_call> now\"}] closed ");
    with_tools("<tool_call><function=f><parameter=s>\nfirst\n</parameter>\nsecond\n</parameter>\n</function></tool_call>",
               "C0 f[{\"s\": \"first\\n</parameter>\\nsecond\"}] closed ");
    with_tools("<tool_call><function= f ><parameter= s >NULLs</parameter><parameter=e>Null</parameter></function></tool_call>",
               "C0 f[{\"s\": \"NULLs\", \"e\": null}] closed ");
}

static void value(const char *key, const char *text, const char *want)
{
    char in[512], out[512];

    snprintf(in, sizeof in, "<tool_call>\n<function=f>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>", key, text);
    snprintf(out, sizeof out, "C0 f[{\"%s\": %s}] closed ", key, want);
    with_tools(in, out);
}

static void types_values_by_the_schema(void **state)
{
    (void)state;
    value("s", "5", "\"5\"");
    value("s", "true", "\"true\"");
    value("s", "null", "null");
    value("zzz", "5", "\"5\"");
    value("e", "\"x\"", "\"\\\"x\\\"\"");
    value("i", "-12345678901234567890123", "-12345678901234567890123");
    value("i", " +007 ", "7");
    value("i", "1.0", "\"1.0\"");
    value("i", "many", "\"many\"");
    value("n", "5", "5");
    value("n", ".5", "0.5");
    value("n", "1.e-3", "1.0e-3");
    value("n", "nan", "\"nan\"");
    value("b", "True", "true");
    value("b", "FALSE", "false");
    value("b", "1", "\"1\"");
    value("a", "[1, \"\xC3\xA9\", null]", "[1, \"\xC3\xA9\", null]");
    value("a", "['it\\'s', True, None, (1.0,), {2: \"\\x41\"}]", "[\"it's\", true, null, [1.0], {\"2\": \"A\"}]");
    value("a", "[1, 2", "\"[1, 2\"");
    value("o", "{\n  \"k\": {}\n}", "{\n  \"k\": {}\n}");
    value("o", "{'k': 'v',}", "{\"k\": \"v\"}");
    value("u", "5", "5");
    value("u", "five", "\"five\"");
    value("l", "true", "true");
    value("l", "[]", "[]");
    value("l", "{}", "\"{}\"");
    value("r", "{\"k\": 1}", "{\"k\": 1}");
}

static void finds_calls_inside_reasoning(void **state)
{
    const char *text = "I call.\n<tool_call>\n<function=f>\n</function>\n</tool_call>";

    (void)state;
    thinking(SWL_ANSWER_START_REASONING, text, "R[I call.]C0 f[{}] closed ");
    thinking(SWL_ANSWER_START_REASONING, "a <tool_call> b <tool_call>{x</think>c", "R[a <tool_call> b <tool_call>{x]T[c]");
}

/* With the token's id known, only the token begins a call in reasoning; in the answer its spelling does too. */
static void tells_the_token_from_its_spelling(void **state)
{
    answer_events v = {0};
    swl_answer_options o = options(&v, NULL);
    swl_answer *a;

    (void)state;
    o.start = SWL_ANSWER_START_REASONING;
    o.tool_call_id = 7;
    assert_int_equal(swl_answer_create(&a, &o, NULL), SWL_OK);
    assert_int_equal(swl_answer_push(a, 1, "x <tool_call>{\"name\":\"f\"} <tool", 31, NULL), SWL_OK);
    assert_true(swl_answer_in_reasoning(a));
    assert_int_equal(swl_answer_push(a, 2, NULL, 0, NULL), SWL_OK);
    assert_int_equal(swl_answer_push(a, 7, "<tool_call>", 11, NULL), SWL_OK);
    assert_int_equal(swl_answer_push(a, 3, "{\"name\":\"g\"}</tool_call><tool_call>{\"name\":\"h\"}", 47, NULL), SWL_OK);
    assert_false(swl_answer_in_reasoning(a));
    assert_int_equal(swl_answer_finish(a, NULL), SWL_OK);
    assert_string_equal(answer_events_line(&v), "R[x <tool_call>{\"name\":\"f\"} <tool]C0 g[{}] closed C1 h[{}] unclosed ");
    assert_null(v.wrong);
    assert_int_equal(swl_answer_n_calls(a), 2);
    answer_events_deinit(&v);
    swl_answer_free(a);
}

/* An answer is sent as it comes, up to what may be a tag or white space before one; so are the arguments. */
static void holds_back_no_more_than_it_must(void **state)
{
    static const struct { const char *piece, *line; } steps[] = {
        {"Hel", "T[Hel]"}, {"lo <", "T[Hello]"}, {"b> ", "T[Hello <b>]"}, {"\n<tool_", "T[Hello <b>]"},
        {"call>\n<function=f>", "T[Hello <b>]C0 f["}, {"<parameter=s>\nab", "T[Hello <b>]C0 f["},
        {"c\n</para", "T[Hello <b>]C0 f["}};
    static const char *const args[] = {"", "", "", "", "", "{\"s\": \"ab", "{\"s\": \"abc"};
    answer_events v = {0};
    swl_answer_options o = options(&v, NULL);
    swl_answer *a;

    (void)state;
    assert_int_equal(swl_answer_create(&a, &o, NULL), SWL_OK);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(swl_answer_push_text(a, steps[i].piece, strlen(steps[i].piece), NULL), SWL_OK);
        assert_int_equal(v.line.n, strlen(steps[i].line));
        assert_memory_equal(v.line.p, steps[i].line, v.line.n);
        assert_int_equal(v.args.n, strlen(args[i]));
        assert_memory_equal(v.args.p, args[i], v.args.n);
    }
    assert_int_equal(swl_answer_finish(a, NULL), SWL_OK);
    answer_events_deinit(&v);
    swl_answer_free(a);
}

static void streams_json_arguments_that_can_be_closed(void **state)
{
    static const char *const pieces[] = {"<tool_call>{\"name\": \"f\", \"arg", "uments\": {", "\"a\": [1, 2", "3, tr", "ue, \"x\\", "n"};
    static const char *const args[] = {"", "{", "{\"a\": [1", "{\"a\": [1, 23", "{\"a\": [1, 23, true, \"x", "{\"a\": [1, 23, true, \"x\\n"};
    answer_events v = {0};
    swl_answer_options o = options(&v, NULL);
    swl_answer *a;

    (void)state;
    assert_int_equal(swl_answer_create(&a, &o, NULL), SWL_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        assert_int_equal(swl_answer_push_text(a, pieces[i], strlen(pieces[i]), NULL), SWL_OK);
        assert_true(v.args.n <= strlen(args[i]));
        assert_memory_equal(v.args.p, args[i], v.args.n);
    }
    assert_int_equal(v.args.n, strlen(args[5]));
    assert_int_equal(swl_answer_finish(a, NULL), SWL_OK);
    answer_events_deinit(&v);
    swl_answer_free(a);
}

static void stops_at_strings(void **state)
{
    static const char *const stop[] = {"\n\n", "END", "ND of", "aab"};
    answer_events v;
    swl_answer_options o = options(&v, NULL);

    (void)state;
    o.stop = stop;
    o.n_stop = 4;
    expect(&o, "one EN\ntwo END of three", "T[one EN\ntwo ]");
    expect(&o, "one\n\ntwo", "T[one]");
    expect(&o, "aaab", "T[a]");
    expect(&o, "one EN", "T[one EN]");
    expect(&o, "a E<tool_call>{\"name\": \"f\"}</tool_call>ND END", "T[a E]C0 f[{}] closed T[ND ]");
    expect(&o, "<tool_call>{\"name\": \"END\"}</tool_call>", "C0 END[{}] closed ");
    o.start = SWL_ANSWER_START_REASONING;
    expect(&o, "END\n\nEND</think>\n\nx END", "R[END\n\nEND]T[x ]");
}

static void says_which_string_stopped_it(void **state)
{
    static const char *const stop[] = {"b", "ab", "cab", ""};
    answer_events v = {0};
    swl_answer_options o = options(&v, NULL);
    swl_answer *a;
    swl_error err;

    (void)state;
    o.stop = stop;
    o.n_stop = 3;
    assert_int_equal(swl_answer_create(&a, &o, NULL), SWL_OK);
    assert_int_equal(swl_answer_push_text(a, "xca", 3, NULL), SWL_OK);
    assert_int_equal(swl_answer_stopped_by(a), -1);
    assert_int_equal(swl_answer_push_text(a, "bcab", 4, NULL), SWL_OK);
    assert_int_equal(swl_answer_stopped_by(a), 2);
    assert_int_equal(swl_answer_push_text(a, "more", 4, NULL), SWL_OK);
    assert_int_equal(swl_answer_finish(a, NULL), SWL_OK);
    assert_string_equal(answer_events_line(&v), "T[x]");
    answer_events_deinit(&v);
    swl_answer_free(a);
    o.n_stop = 4;
    assert_int_equal(swl_answer_create(&a, &o, &err), SWL_E_ARG);
    assert_null(a);
}

static const char whole_answer[] = "I see.\n</think>\n\nHello <\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>"
                                   "<tool_call><function=f>x<parameter=a>['b']</parameter><parameter=s>y\n</parameter></function></tool_call>"
                                   "<tool_call>{\"name\": \"g\", \"arguments\": \"{}\", \"x\": [1], }";

static bool ignore(void *arg, const swl_answer_event *e)
{
    return arg || e;
}

static swl_status parse_all(answer_events *v, const json_t *tools, swl_error *err)
{
    static const char *const stop[] = {"<stop>"};
    swl_answer_options o = options(v, tools);
    swl_answer *a;
    swl_status st;

    if (!v)
        o.on_event = ignore;
    o.start = SWL_ANSWER_START_REASONING;
    o.stop = stop;
    o.n_stop = 1;
    st = swl_answer_create(&a, &o, err);
    for (size_t i = 0; !st && i < sizeof whole_answer - 1; i++)
        st = swl_answer_push_text(a, whole_answer + i, 1, err);
    if (!st)
        st = swl_answer_finish(a, err);
    swl_answer_free(a);
    return st;
}

static void stops_when_the_caller_says_so(void **state)
{
    swl_status st = SWL_E_CANCELLED;
    swl_error err;
    int32_t n = 1;

    (void)state;
    for (; n < 1000 && st; n++) {
        answer_events v = {.stop_after = n};

        st = parse_all(&v, NULL, &err);
        if (st)
            assert_int_equal(st, SWL_E_CANCELLED);
        assert_int_equal(v.n_events, st ? n : n - 1);
        answer_events_deinit(&v);
    }
    assert_int_equal(st, SWL_OK);
}

static void reports_missing_memory(void **state)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    swl_status st = SWL_E_NOMEM;
    swl_error err;
    int64_t n = 0;

    (void)state;
    for (; n < 1000 && st; n++) {
        swl_mem_fail_after(n, false);
        st = parse_all(NULL, tools, &err);
        swl_mem_fail_after(-1, false);
        if (st)
            assert_int_equal(err.code, SWL_E_NOMEM);
    }
    assert_int_equal(st, SWL_OK);
    assert_true(n > 8);
    json_decref(tools);
    swl_answer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_reasoning_from_the_answer),
        cmocka_unit_test(knows_no_tags_when_told_so),
        cmocka_unit_test(reads_json_calls),
        cmocka_unit_test(forgives_a_missing_end),
        cmocka_unit_test(gives_back_what_is_no_call),
        cmocka_unit_test(ends_values_where_they_end),
        cmocka_unit_test(types_values_by_the_schema),
        cmocka_unit_test(finds_calls_inside_reasoning),
        cmocka_unit_test(tells_the_token_from_its_spelling),
        cmocka_unit_test(holds_back_no_more_than_it_must),
        cmocka_unit_test(streams_json_arguments_that_can_be_closed),
        cmocka_unit_test(stops_at_strings),
        cmocka_unit_test(says_which_string_stopped_it),
        cmocka_unit_test(stops_when_the_caller_says_so),
        cmocka_unit_test(reports_missing_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
