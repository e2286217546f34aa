/* Grammars on the demo model's vocabulary: what schemas, choices and calls allow, token by token and byte by byte; what
 * is refused, and how; masks against single answers; every failing allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar.h"
#include "text/tokenizer_impl.h"

static swl_tokenizer *t;
static int32_t n_tokens;

static int open_tokenizer(void **state)
{
    (void)state;
    if (swl_tokenizer_open(&t, SWL_TEST_DATA "/../models/demo.qpack", NULL))
        return -1;
    n_tokens = swl_tokenizer_n_tokens(t);
    return 0;
}

static int close_tokenizer(void **state)
{
    (void)state;
    swl_tokenizer_close(t);
    return 0;
}

/* ---- helpers ---- */

static json_t *parsed(const char *text)
{
    json_error_t why;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &why);

    if (!v)
        fail_msg("%s in %s", why.text, text);
    return v;
}

static swl_grammar *of_schema(const char *schema)
{
    json_t *v = parsed(schema);
    swl_grammar *g;
    swl_error err;

    if (swl_grammar_schema(&g, t, v, &err))
        fail_msg("%s for %s", err.message, schema);
    json_decref(v);
    return g;
}

static swl_grammar *of_tools(const char *tools, const char *name, swl_call_syntax syntax, bool one)
{
    json_t *v = parsed(tools);
    swl_grammar *g;
    swl_error err;

    if (swl_grammar_tool(&g, t, v, name, syntax, one, &err))
        fail_msg("%s for %s", err.message, tools);
    json_decref(v);
    return g;
}

/* Mask and single answer, for every token. */
static void expect_same(swl_grammar_state *s)
{
    uint32_t *mask = swl_calloc((size_t)(n_tokens + 31) / 32, sizeof *mask);
    int32_t n = 0;

    swl_grammar_mask(s, mask);
    for (int32_t id = 0; id < n_tokens; id++) {
        bool in = mask[id / 32] >> id % 32 & 1;

        n += in;
        if (in != swl_grammar_allows(s, id))
            fail_msg("token %d: the mask says %d", (int)id, (int)in);
    }
    assert_true(n > 0);
    swl_free(mask);
}

/* How many bytes of the text are allowed; *complete: it may end there. */
static size_t read_ids(const swl_grammar *g, const int32_t *ids, int64_t n, bool compare, bool *complete)
{
    swl_grammar_state *s;
    int32_t n_bytes;
    size_t read = 0;
    bool closed;

    assert_int_equal(swl_grammar_begin(&s, g, NULL), SWL_OK);
    for (int64_t i = 0; i < n; i++) {
        if (compare)
            expect_same(s);
        if (swl_grammar_accept(s, ids[i], NULL))
            break;
        swl_tokenizer_token(t, ids[i], &n_bytes);
        read += (size_t)n_bytes;
    }
    *complete = swl_grammar_complete(s, &closed);
    swl_grammar_end(s);
    return read;
}

static bool reads_bytes(const swl_grammar *g, const char *text, size_t n)
{
    int32_t *ids = swl_calloc(n + 1, sizeof *ids);
    bool complete;
    size_t read;

    for (size_t i = 0; i < n; i++)
        ids[i] = t->byte_ids[(uint8_t)text[i]];
    read = read_ids(g, ids, (int64_t)n, false, &complete);
    swl_free(ids);
    return read == n && complete;
}

static bool reads_tokens(const swl_grammar *g, const char *text)
{
    int32_t *ids;
    int64_t n;
    bool complete;
    size_t read;

    assert_int_equal(swl_tokenizer_encode(t, text, strlen(text), 0, &ids, &n, NULL), SWL_OK);
    read = read_ids(g, ids, n, false, &complete);
    swl_free(ids);
    return read == strlen(text) && complete;
}

static void expect(const swl_grammar *g, const char *text, bool good)
{
    if (reads_tokens(g, text) != good || reads_bytes(g, text, strlen(text)) != good)
        fail_msg("%s: expected to be %s", text, good ? "allowed" : "refused");
}

/* A schema, texts that it allows up to NULL, and texts that it does not. */
static void check(const char *schema, ...)
{
    swl_grammar *g = of_schema(schema);
    va_list args;
    const char *text;

    va_start(args, schema);
    for (int good = 1; good >= 0; good--)
        while ((text = va_arg(args, const char *)))
            expect(g, text, good);
    va_end(args);
    swl_grammar_free(g);
}

#define NO NULL /* between the texts that are allowed and the others */

static void refuse(swl_status want, const char *part, const char *schema)
{
    json_t *v = parsed(schema);
    swl_grammar *g = (swl_grammar *)1;
    swl_error err;
    swl_status st = swl_grammar_schema(&g, t, v, &err);

    if (st != want || !strstr(err.message, part) || g)
        fail_msg("%s: got %s, %s", schema, swl_status_name(st), st ? err.message : "");
    json_decref(v);
}

/* ---- values ---- */

static void numbers_stay_within_their_bounds(void **state)
{
    (void)state;
    check("{\"type\":\"integer\"}", "0", "-1", "123456789012345678", NO, "01", "-0", "1.0", "1e3", "", "-",
          "1234567890123456789", NULL);
    check("{\"type\":\"number\"}", "0", "-0.5", "1e5", "1E-07", "2.5e+289", "0.25", NO, ".5", "1.", "1e", "1e290", "+1",
          "00", NULL);
    check("{\"type\":\"integer\",\"minimum\":-12,\"maximum\":150}", "-12", "-9", "0", "9", "99", "150", NO, "-13",
          "151", "1000", "-100", NULL);
    check("{\"type\":\"integer\",\"exclusiveMinimum\":0.5,\"exclusiveMaximum\":3}", "1", "2", NO, "0", "3", "-1", NULL);
    check("{\"type\":\"number\",\"minimum\":1.25,\"exclusiveMaximum\":2}", "1.25", "1.3", "1.9999", "1.250", NO, "1.2",
          "1.249", "2", "2.0", "1", "1e0", NULL);
    check("{\"type\":\"number\",\"maximum\":-0.001}", "-0.001", "-1", "-0.0010", NO, "0", "-0.0009", "-0", NULL);
    check("{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.0001", "7", NO, "0", "-1", "0.0", "-0", NULL);
    check("{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":1}", "7", "49", "700", NO, "8", "0", "-7", NULL);
    check("{\"type\":\"number\",\"multipleOf\":0.25}", "0.25", "-3.5", "4", "0.50", "4.0", "0.250", NO, "0.3", "0.251",
          "0.125", NULL);
    check("{\"type\":\"integer\",\"format\":\"int32\"}", "2147483647", "-2147483648", NO, "2147483648", NULL);
}

static void strings_are_well_formed_and_counted_in_characters(void **state)
{
    static const char *const wrong[] = {
        "\"\xff\"", "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\""};
    swl_grammar *g = of_schema("{\"type\":\"string\"}");

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(reads_bytes(g, wrong[i], strlen(wrong[i])));
    swl_grammar_free(g);
    check("{\"type\":\"string\"}", "\"\"", "\"a\\n\\u00e9\\ud83e\\udd8a\"", "\"\xf0\x9f\xa6\x8a \xe6\x97\xa5\"", NO,
          "\"a", "\"\n\"", "\"\\ud83e\"", "\"\\udd8a\"", "\"\\x\"", "\"\\ud83ex\"", "a", NULL);
    check("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"", "\"\xf0\x9f\xa6\x8a\xe6\x97\xa5\"",
          "\"\\n\\ud83e\\udd8a\\\"\"", NO, "\"a\"", "\"abcd\"", "\"\"", NULL);
    check("{\"type\":\"string\",\"maxLength\":0}", "\"\"", NO, "\"a\"", NULL);
    check("{\"type\":\"string\",\"minLength\":5}", "\"abcde\"", "\"hello world\"", NO, "\"abcd\"", NULL);
}

static void patterns_are_found_anywhere_unless_anchored(void **state)
{
    (void)state;
    check("{\"type\":\"string\",\"pattern\":\"b+c\"}", "\"abbcd\"", "\"bc\"", NO, "\"ac\"", "\"b\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^ab|cd$\"}", "\"abx\"", "\"xcd\"", NO, "\"xab\"", "\"cdx\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^(\\\\d{2,3}-)?[^a-z\\\"]+$\"}", "\"12-X\"", "\"\xc3\xa9\"", "\"\\\\\"",
          NO, "\"12-x\"", "\"\\\"\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^[\\\\u0400-\\\\u04ff\\\\u{1F600}-\\\\u{1F64F}]{2}$\"}",
          "\"\xd0\x96\xf0\x9f\x98\x80\"", NO, "\"\xd0\x96\"", "\"ab\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^\\\\p{Lu}\\\\p{Ll}+$\"}",
          "\"\xc3\x9c"
          "ber\"",
          NO, "\"uber\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":3}", "\"aa\"", "\"aaa\"", NO,
          "\"a\"", "\"aaaa\"", "\"ab\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^(?<x>.)$\"}", "\"a\"", NO, "\"\\n\"", "\"\"", NULL);
    check("{\"type\":\"string\",\"pattern\":\"^\\\\x01\\\\t$\"}", "\"\\u0001\\t\"", NO, "\"\\u0002\\t\"", NULL);
    check("{\"allOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "\"ab\"", "\"bxa\"", NO, "\"a\"",
          "\"b\"", NULL);
}

static void formats_are_patterns(void **state)
{
    (void)state;
    check("{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", NO,
          "\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"0000-01-01\"", "\"2024-13-01\"", NULL);
    check("{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-02-29T23:59:59.5Z\"",
          "\"1999-01-01T00:00:00+01:00\"", NO, "\"2024-02-29 23:59:59Z\"", "\"2024-02-29T24:00:00Z\"",
          "\"2024-02-29T23:59:59\"", NULL);
    check("{\"type\":\"string\",\"format\":\"time\"}", "\"23:59:59Z\"", NO, "\"23:59\"", NULL);
    check("{\"type\":\"string\",\"format\":\"duration\"}", "\"P1Y2M3DT4H5M6S\"", "\"P3W\"", "\"PT5S\"", NO, "\"P\"",
          "\"P1S\"", "\"PT\"", NULL);
    check("{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@example.com\"", NO, "\"a@\"", "\"a..b@c\"", NULL);
    check("{\"type\":\"string\",\"format\":\"hostname\"}", "\"example.com\"", NO, "\"-a\"", "\"a..b\"", NULL);
    check("{\"type\":\"string\",\"format\":\"ipv4\"}", "\"255.0.10.99\"", NO, "\"256.0.0.1\"", "\"01.1.1.1\"", NULL);
    check("{\"type\":\"string\",\"format\":\"ipv6\"}", "\"::1\"", "\"2001:db8::ff00:42:8329\"", "\"::ffff:1.2.3.4\"",
          "\"1:2:3:4:5:6:7:8\"", NO, "\"1:2\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8:9\"", NULL);
    check("{\"type\":\"string\",\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"", NO, "\"123e4567\"",
          NULL);
}

static void literals_are_written_one_way(void **state)
{
    (void)state;
    check("{\"enum\":[\"a\\\"b\\n\",5,-2.5,null,true,[1,{\"k\":\"v\"}]]}", "\"a\\\"b\\n\"", "5", "-2.5", "null", "true",
          "[1,{\"k\":\"v\"}]", "[1, {\"k\": \"v\"}]", NO, "\"a\"", "6", "false", "[1]", NULL);
    check("{\"type\":[\"string\",\"null\"],\"enum\":[\"x\",7,null],\"minLength\":1}", "\"x\"", "null", NO, "7", NULL);
    check("{\"const\":\"only\"}", "\"only\"", NO, "\"other\"", NULL);
    check("{\"type\":\"integer\",\"enum\":[1,5,9],\"minimum\":5}", "5", "9", NO, "1", NULL);
}

/* ---- structure ---- */

static void objects_keep_their_order_and_requirements(void **state)
{
    (void)state;
    check("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"c\":{}},"
          "\"required\":[\"b\"],\"additionalProperties\":false}",
          "{\"b\":true}", "{\"a\": 1, \"b\": false}", "{\"b\":true, \"c\":[{}]}", NO, "{}", "{\"a\":1}",
          "{\"b\":true,\"a\":1}", "{\"b\":true,}", "{\"b\":true,\"d\":1}", "{\"b\":1}", "{ \"b\":true}", NULL);
    check("{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"integer\"}}", "{}",
          "{\"b\":1}", "{\"a\":null,\"aa\":2, \"\":3}", "{\"\\\"\":5}", NO, "{\"b\":\"x\"}", "{\"b\":1,\"a\":2}",
          "{\"\\u0061\":1}", NULL);
    check("{\"type\":\"object\",\"properties\":{\"a\":{}}}", "{}", "{\"a\":1}", NO, "{\"b\":1}", NULL);
    check("{\"type\":\"object\",\"required\":[\"z\"]}", "{\"z\":1}", "{\"z\":1,\"y\":2}", NO, "{}", NULL);
    check("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]+$\"},\"additionalProperties\":{\"type\":"
          "\"integer\"}}",
          "{}", "{\"ab\":1, \"b\":2}", NO, "{\"c\":1}", "{\"a\":\"x\"}", NULL);
    check("{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"null\"}},\"additionalProperties\":false}",
          "{}", "{\"x1\":null}", NO, "{\"y\":null}", "{\"x\":1}", NULL);
    check("{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{}}", "{\"\\n\":1}",
          NO, "[]", NULL);
    check("{\"properties\":{\"a~/\":{\"const\":1}}}", "{\"a~/\":1}", NO, "5", NULL);
}

static void arrays_keep_their_length(void **state)
{
    (void)state;
    check("{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", "[]", "[1]", "[1,2, 3]", NO, "[1,]", "[\"a\"]",
          "[,1]", NULL);
    check("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}", "[null,null]",
          "[null,null,null]", NO, "[null]", "[]", "[null,null,null,null]", NULL);
    check("{\"type\":\"array\",\"minItems\":1}", "[[]]", "[1,{}]", NO, "[]", NULL);
    check("{\"type\":\"array\",\"maxItems\":0}", "[]", NO, "[1]", NULL);
    check("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,\"minItems\":1}", "[1]",
          "[1,2]", NO, "[]", "[2]", "[1,2,3]", NULL);
    check("{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2},\"minItems\":3,\"maxItems\":4}",
          "[1,2,2]", "[1, 2, 2, 2]", NO, "[1,2]", "[2,2,2]", "[1,2,2,2,2]", NULL);
    check("{\"type\":\"array\",\"items\":{\"type\":\"array\",\"maxItems\":1},\"minItems\":2}", "[[],[1]]", NO, "[[]]",
          "[[1,2],[]]", NULL);
}

static void references_may_go_round(void **state)
{
    (void)state;
    check("{\"$ref\":\"#/$defs/"
          "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":"
          "{\"anyOf\":[{\"$ref\":\"#/$defs/"
          "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}}}",
          "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}", NO, "{\"v\":1}",
          "{\"v\":1,\"next\":{}}", NULL);
    check("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}", "1", "[1,[2,[]]]", NO,
          "[\"a\"]", NULL);
    check("{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"const\":1}}}", "1", NO, "2", NULL);
    check("{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"const\":3}]}},\"$ref\":\"#/$defs/a\"}", "3", NO,
          "1", NULL);
    check("{\"$defs\":{\"s\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/s\",\"maxLength\":1,\"description\":\"d\"}",
          "\"a\"", NO, "\"ab\"", NULL);
}

static void schemas_are_merged(void **state)
{
    (void)state;
    check("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
          "{\"properties\":{\"a\":{\"minimum\":3},\"b\":{}},\"required\":[\"b\"]}]}",
          "{\"a\":3,\"b\":1}", NO, "{\"a\":2,\"b\":1}", "{\"a\":3}", NULL);
    check("{\"type\":\"object\",\"properties\":{\"k\":{}},\"required\":[\"k\"],\"anyOf\":[{\"properties\":{\"k\":{"
          "\"const\":1}}},"
          "{\"properties\":{\"k\":{\"const\":\"x\"}}}]}",
          "{\"k\":1}", "{\"k\":\"x\"}", NO, "{\"k\":2}", NULL);
    check("{\"allOf\":[{\"type\":[\"integer\",\"string\"]},{\"type\":[\"number\",\"null\"]}]}", "5", NO, "\"5\"",
          "null", "5.5", NULL);
    check("{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]},{\"const\":3}]}", "3", NO, "2", NULL);
    check("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"}},\"required\":[\"t\"]},"
          "{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"b\"},\"n\":{}},\"required\":[\"t\",\"n\"]}]}",
          "{\"t\":\"a\"}", "{\"t\":\"b\",\"n\":1}", NO, "{\"t\":\"b\"}", "{\"t\":\"a\",\"n\":1}", NULL);
}

static void nesting_is_bounded_and_can_always_be_finished(void **state)
{
    swl_grammar *g = of_schema("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}");
    swl_grammar_state *s;
    int32_t open = t->byte_ids['['], close = t->byte_ids[']'], depth = 0;
    bool closed;

    (void)state;
    assert_int_equal(swl_grammar_begin(&s, g, NULL), SWL_OK);
    while (depth < 1000 && !swl_grammar_accept(s, open, NULL))
        depth++;
    assert_in_range(depth, 32, 128);
    for (; depth > 0; depth--)
        assert_int_equal(swl_grammar_accept(s, close, NULL), SWL_OK);
    assert_true(swl_grammar_complete(s, &closed) && closed);
    swl_grammar_end(s);
    swl_grammar_free(g);
}

/* ---- refusals ---- */

static void what_cannot_be_enforced_is_refused_by_name(void **state)
{
    (void)state;
    refuse(SWL_E_UNSUPPORTED, "/properties/a~1b/not", "{\"type\":\"object\",\"properties\":{\"a/b\":{\"not\":{}}}}");
    refuse(SWL_E_UNSUPPORTED, "/$defs/x/if", "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"if\":true}}}");
    refuse(SWL_E_UNSUPPORTED, "/uniqueItems", "{\"type\":\"array\",\"uniqueItems\":true}");
    refuse(SWL_E_UNSUPPORTED, "/patternProperties",
           "{\"type\":\"object\",\"properties\":{\"a\":{}},\"patternProperties\":{\"b\":{}}}");
    refuse(SWL_E_UNSUPPORTED, "/propertyNames",
           "{\"type\":\"object\",\"properties\":{\"a\":{}},\"propertyNames\":{\"maxLength\":3},"
           "\"additionalProperties\":true}");
    refuse(SWL_E_UNSUPPORTED, "/minProperties", "{\"type\":\"object\",\"minProperties\":1}");
    refuse(SWL_E_UNSUPPORTED, "/items/format",
           "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"iri\"}}");
    refuse(SWL_E_UNSUPPORTED, "(?=x)", "{\"type\":\"string\",\"pattern\":\"(?=x)\"}");
    refuse(SWL_E_UNSUPPORTED, "\\bx", "{\"type\":\"string\",\"pattern\":\"\\\\bx\"}");
    refuse(SWL_E_UNSUPPORTED, "/multipleOf", "{\"type\":\"number\",\"multipleOf\":1.000001}");
    refuse(SWL_E_UNSUPPORTED, "oneOf", "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}");
    refuse(SWL_E_UNSUPPORTED, "elsewhere", "{\"$ref\":\"elsewhere.json#/a\"}");
    refuse(SWL_E_UNSUPPORTED, "/unheard", "{\"unheard\":1}");
}

static void what_is_no_schema_is_refused(void **state)
{
    (void)state;
    refuse(SWL_E_ARG, "schema", "5");
    refuse(SWL_E_ARG, "/properties/a", "{\"type\":\"object\",\"properties\":{\"a\":5}}");
    refuse(SWL_E_ARG, "type", "{\"type\":\"strin\"}");
    refuse(SWL_E_ARG, "#/$defs/none", "{\"$ref\":\"#/$defs/none\"}");
    refuse(SWL_E_ARG, "nothing", "false");
    refuse(SWL_E_ARG, "nothing", "{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}");
    refuse(SWL_E_ARG, "nothing", "{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#\"}},\"required\":[\"x\"]}");
    refuse(SWL_E_ARG, "nothing", "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}");
    refuse(SWL_E_ARG, "nothing", "{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}");
    refuse(SWL_E_ARG, "nothing", "{\"enum\":[]}");
    refuse(SWL_E_ARG, "minLength", "{\"type\":\"string\",\"minLength\":-1}");
}

static void what_takes_too_much_is_refused(void **state)
{
    char *long_enum = swl_calloc(300000, 1), *p = long_enum;
    swl_grammar *g = NULL;
    swl_error err;
    json_t *v;

    (void)state;
    refuse(SWL_E_BUDGET, "states", "{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){30}$\"}");
    refuse(SWL_E_BUDGET, "states", "{\"type\":\"string\",\"pattern\":\"^((((.{100}){100}){100}){100})$\"}");
    refuse(SWL_E_BUDGET, "states", "{\"type\":\"string\",\"pattern\":\"^x\",\"maxLength\":1000000}");
    refuse(SWL_E_BUDGET, "",
           "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"string\"}]}},\"$ref\":\"#/$defs/a\"}");
    p += sprintf(p, "{\"enum\":[\"");
    memset(p, 'x', 270000);
    strcpy(p + 270000, "\"]}");
    v = parsed(long_enum);
    assert_int_equal(swl_grammar_schema(&g, t, v, &err), SWL_E_BUDGET);
    json_decref(v);
    swl_free(long_enum);
}

/* ---- tokens ---- */

static void masks_say_what_single_answers_say(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "{\"a\": [1.5, \"x\\u00e9 hello\", {\"b\":null}]}"},
        {"{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":9},\"d\":{"
         "\"type\":\"string\","
         "\"format\":\"date\"},\"p\":{\"type\":\"string\",\"pattern\":\"[a-z]+ \"}},\"required\":[\"s\",\"d\",\"p\"]}",
         "{\"s\":\"\xf0\x9f\xa6\x8a said\",\"d\":\"2024-02-29\",\"p\":\"the end\"}"}};
    swl_grammar *g;
    int32_t *ids;
    int64_t n;
    bool complete;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        g = of_schema(cases[i][0]);
        assert_int_equal(swl_tokenizer_encode(t, cases[i][1], strlen(cases[i][1]), 0, &ids, &n, NULL), SWL_OK);
        assert_int_equal(read_ids(g, ids, n, true, &complete), strlen(cases[i][1]));
        assert_true(complete);
        swl_free(ids);
        swl_grammar_free(g);
    }
}

static void added_tokens_are_no_text_and_stop_tokens_end_it(void **state)
{
    swl_grammar *g = of_schema("{\"type\":\"string\"}");
    int32_t call = swl_tokenizer_special(t, "<tool_call>"), stop = swl_tokenizer_special(t, "<|im_end|>"),
            quote = t->byte_ids['"'];
    swl_grammar_state *s;
    swl_error err;
    bool closed;

    (void)state;
    assert_true(call >= 0 && stop >= 0);
    assert_int_equal(swl_grammar_begin(&s, g, NULL), SWL_OK);
    assert_false(swl_grammar_allows(s, stop));
    assert_int_equal(swl_grammar_accept(s, quote, NULL), SWL_OK);
    assert_false(swl_grammar_allows(s, stop) || swl_grammar_allows(s, call));
    assert_int_equal(swl_grammar_accept(s, call, &err), SWL_E_ARG);
    assert_false(swl_grammar_allows(s, -1) || swl_grammar_allows(s, n_tokens));
    assert_false(swl_grammar_complete(s, &closed) || closed);
    assert_int_equal(swl_grammar_accept(s, quote, NULL), SWL_OK);
    assert_true(swl_grammar_complete(s, &closed) && closed);
    assert_true(swl_grammar_allows(s, stop));
    assert_false(swl_grammar_allows(s, quote));
    assert_int_equal(swl_grammar_accept(s, stop, NULL), SWL_OK);
    expect_same(s);
    swl_grammar_end(s);
    swl_grammar_free(g);
}

static void a_choice_is_one_of_its_strings(void **state)
{
    json_t *v = parsed("[\"yes\",\"yes, \xc3\xa9\",\"no\",\"\"]"), *bad = parsed("[\"a\",5]"), *none = json_array();
    swl_grammar *g;
    swl_error err;

    (void)state;
    assert_int_equal(swl_grammar_choice(&g, t, v, &err), SWL_OK);
    expect(g, "yes", true);
    expect(g, "yes, \xc3\xa9", true);
    expect(g, "no", true);
    expect(g, "", true);
    expect(g, "ye", false);
    expect(g, "maybe", false);
    swl_grammar_free(g);
    assert_int_equal(swl_grammar_choice(&g, t, bad, &err), SWL_E_ARG);
    assert_int_equal(swl_grammar_choice(&g, t, none, &err), SWL_E_ARG);
    json_decref(v);
    json_decref(bad);
    json_decref(none);
}

static void json_is_an_object(void **state)
{
    swl_grammar *g;

    (void)state;
    assert_int_equal(swl_grammar_json(&g, t, NULL), SWL_OK);
    expect(g, "{}", true);
    expect(g, "{\"a\": {\"b\": [1, true, \"x\"]}, \"c\": -0.5}", true);
    expect(g, "[]", false);
    expect(g, "{\"a\":  1}", false);
    swl_grammar_free(g);
}

/* ---- calls ---- */

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{"      \
    "\"city\":{\"type\":"                                                                                              \
    "\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1},\"unit\":{\"enum\":[\"C\",\"F\"]}},\"required\":["      \
    "\"city\"]}}},"                                                                                                    \
    "{\"type\":\"other\"},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"

static void json_calls_follow_their_schema(void **state)
{
    swl_grammar *g = of_tools(TOOLS, NULL, SWL_CALL_JSON, false);

    (void)state;
    assert_true(reads_tokens(
        g, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"K\xc3\xb6ln\", \"days\": 3}}\n</tool_call>"));
    assert_true(reads_tokens(
        g, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
           "\"arguments\": {}}\n</tool_call>"));
    assert_false(reads_tokens(g, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"days\": 3}}\n</tool_call>"));
    assert_false(reads_tokens(g, "<tool_call>\n{\"name\": \"put\", \"arguments\": {}}\n</tool_call>"));
    assert_false(reads_bytes(g, "<tool_call>", 11));
    swl_grammar_free(g);
    g = of_tools(TOOLS, "now", SWL_CALL_JSON, true);
    assert_true(reads_tokens(g, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
    assert_false(reads_tokens(
        g, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
           "\"arguments\": {}}\n</tool_call>"));
    swl_grammar_free(g);
}

#define CALL(parameters)  "<tool_call>\n<function=get>\n" parameters "</function>\n</tool_call>"
#define PARAM(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

static void xml_calls_follow_their_schema(void **state)
{
    swl_grammar *g = of_tools(TOOLS, NULL, SWL_CALL_XML, false);

    (void)state;
    assert_true(reads_tokens(g, CALL(PARAM("city", "Oslo"))));
    assert_true(
        reads_tokens(g, CALL(PARAM("city", "a <b>\n\"c\" </parameter> d\n") PARAM("days", "12") PARAM("unit", "F"))));
    assert_true(reads_tokens(g, CALL("<parameter=city>\n</parameter>\n")));
    assert_true(reads_tokens(g, CALL(PARAM("city", ""))));
    assert_true(reads_tokens(g, CALL(PARAM("city", "null\n"))));
    assert_true(reads_tokens(g, "<tool_call>\n<function=now>\n</function>\n</tool_call>\n" CALL(PARAM("city", "x"))));
    assert_false(reads_tokens(g, CALL(PARAM("days", "12"))));
    assert_false(reads_tokens(g, CALL(PARAM("city", "x") PARAM("days", "0"))));
    assert_false(reads_tokens(g, CALL(PARAM("city", "x") PARAM("unit", "\"F\""))));
    assert_false(reads_tokens(g, CALL(PARAM("city", "NULL"))));
    assert_false(reads_tokens(g, CALL(PARAM("city", "x\n<parameter=days>"))));
    assert_false(reads_tokens(g, CALL(PARAM("city", "x") PARAM("town", "y"))));
    swl_grammar_free(g);
}

static void text_of_a_call_is_bounded_by_its_schema(void **state)
{
    swl_grammar *g = of_tools(
        "[{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\","
        "\"minLength\":2,\"maxLength\":4},\"p\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"},\"n\":{\"type\":"
        "[\"string\",\"null\"]},\"o\":{\"type\":\"object\"},\"b\":{\"type\":\"boolean\"}}}}]",
        "get", SWL_CALL_XML, true);

    (void)state;
    assert_true(reads_tokens(g, CALL(PARAM("s", "\xf0\x9f\xa6\x8a\xe6\x97\xa5"))));
    assert_true(reads_tokens(g, CALL(PARAM("s", "abc\n"))));
    assert_true(
        reads_tokens(g, CALL(PARAM("p", "abc") PARAM("n", "null") PARAM("o", "{\"a\": 1}") PARAM("b", "True"))));
    assert_false(reads_tokens(g, CALL(PARAM("s", "a"))));
    assert_false(reads_tokens(g, CALL(PARAM("s", "abcde"))));
    assert_false(reads_tokens(g, CALL(PARAM("p", "a1"))));
    assert_false(reads_tokens(g, CALL(PARAM("p", "null"))));
    assert_false(reads_tokens(g, CALL(PARAM("o", "{a}"))));
    swl_grammar_free(g);
}

/* What looks like the end of a value that is too short yet is not begun where it could not become a part of it. */
static void a_short_text_does_not_run_into_its_end(void **state)
{
    static const char begin[] = "\n<function=get>\n<parameter=s>\n\n\n</parameter>";
    swl_grammar *g =
        of_tools("[{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\","
                 "\"minLength\":2,\"maxLength\":6}}}}]",
                 "get", SWL_CALL_XML, true);
    uint32_t *mask = swl_calloc((size_t)(n_tokens + 31) / 32, sizeof *mask);
    swl_grammar_state *s;
    uint32_t any;
    size_t i = 0;

    (void)state;
    assert_int_equal(swl_grammar_begin(&s, g, NULL), SWL_OK);
    assert_int_equal(swl_grammar_accept(s, swl_tokenizer_special(t, "<tool_call>"), NULL), SWL_OK);
    for (; i < sizeof begin - 1 && !swl_grammar_accept(s, t->byte_ids[(uint8_t)begin[i]], NULL); i++) {
        any = 0;
        swl_grammar_mask(s, mask);
        for (int32_t k = 0; k < (n_tokens + 31) / 32; k++)
            any |= mask[k];
        assert_true(any);
    }
    assert_true(i < sizeof begin - 1);
    swl_grammar_end(s);
    swl_grammar_free(g);
    swl_free(mask);
}

static void calls_that_cannot_be_written_are_refused(void **state)
{
    json_t *v = parsed(TOOLS), *odd = parsed("[{\"name\":\"a>b\"}]"),
           *bad = parsed("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"not\":{}}}}]"),
           *nul = json_pack("[{s:s%}]", "name", "a\0b", (size_t)3);
    swl_grammar *g;
    swl_error err;

    (void)state;
    assert_int_equal(swl_grammar_tool(&g, t, v, "missing", SWL_CALL_XML, true, &err), SWL_E_ARG);
    assert_non_null(strstr(err.message, "missing"));
    assert_int_equal(swl_grammar_tool(&g, t, odd, NULL, SWL_CALL_XML, true, &err), SWL_E_UNSUPPORTED);
    assert_int_equal(swl_grammar_tool(&g, t, bad, NULL, SWL_CALL_JSON, true, &err), SWL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "/0/function/parameters/not"));
    assert_int_equal(swl_grammar_tool(&g, t, nul, NULL, SWL_CALL_XML, true, &err), SWL_E_ARG);
    json_decref(v);
    json_decref(nul);
    json_decref(odd);
    json_decref(bad);
}

/* ---- memory ---- */

static void every_failing_allocation_is_reported(void **state)
{
    json_t *v = parsed("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^a+$\"},\"b\":{"
                       "\"enum\":[\"x\"]},"
                       "\"c\":{\"type\":\"integer\",\"minimum\":3}},\"additionalProperties\":{\"type\":\"array\"}}");
    uint32_t *mask = swl_calloc((size_t)(n_tokens + 31) / 32, sizeof *mask);
    swl_grammar_state *s;
    swl_grammar *g;
    swl_error err;
    swl_status st;
    int64_t n = 0;

    (void)state;
    do {
        swl_mem_fail_after(n++, false);
        st = swl_grammar_schema(&g, t, v, &err);
        swl_mem_fail_after(-1, false);
        if (st && (st != SWL_E_NOMEM || g))
            fail_msg("allocation %d: %s", (int)n, err.message);
    } while (st);
    assert_true(n > 20);
    assert_int_equal(swl_grammar_begin(&s, g, NULL), SWL_OK);
    assert_int_equal(swl_grammar_accept(s, t->byte_ids['{'], NULL), SWL_OK);
    for (n = 0; n < 40; n++) { /* a mask without memory allows less, never more */
        swl_mem_fail_after(n, true);
        swl_grammar_mask(s, mask);
        swl_mem_fail_after(-1, false);
        for (int32_t id = 0; id < n_tokens; id++)
            assert_true(!(mask[id / 32] >> id % 32 & 1) || swl_grammar_allows(s, id));
    }
    swl_grammar_end(s);
    swl_grammar_free(g);
    swl_free(mask);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_stay_within_their_bounds),
        cmocka_unit_test(strings_are_well_formed_and_counted_in_characters),
        cmocka_unit_test(patterns_are_found_anywhere_unless_anchored),
        cmocka_unit_test(formats_are_patterns),
        cmocka_unit_test(literals_are_written_one_way),
        cmocka_unit_test(objects_keep_their_order_and_requirements),
        cmocka_unit_test(arrays_keep_their_length),
        cmocka_unit_test(references_may_go_round),
        cmocka_unit_test(schemas_are_merged),
        cmocka_unit_test(nesting_is_bounded_and_can_always_be_finished),
        cmocka_unit_test(what_cannot_be_enforced_is_refused_by_name),
        cmocka_unit_test(what_is_no_schema_is_refused),
        cmocka_unit_test(what_takes_too_much_is_refused),
        cmocka_unit_test(masks_say_what_single_answers_say),
        cmocka_unit_test(added_tokens_are_no_text_and_stop_tokens_end_it),
        cmocka_unit_test(a_choice_is_one_of_its_strings),
        cmocka_unit_test(json_is_an_object),
        cmocka_unit_test(json_calls_follow_their_schema),
        cmocka_unit_test(xml_calls_follow_their_schema),
        cmocka_unit_test(text_of_a_call_is_bounded_by_its_schema),
        cmocka_unit_test(a_short_text_does_not_run_into_its_end),
        cmocka_unit_test(calls_that_cannot_be_written_are_refused),
        cmocka_unit_test(every_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
