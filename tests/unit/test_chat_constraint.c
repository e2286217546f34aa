/* Constrained answers of the demo model: what comes out is what was asked for, after the reasoning, beside other requests,
 * and about as fast as without. */
#include "chat_fixture.h"

static const char question[] = "[{\"role\":\"user\",\"content\":\"What is the weather in Oslo?\"}]";
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Get the weather in a city.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":20},\"days\":{\"type\":"
    "\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"city\",\"days\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";

static swl_request_options constrained(swl_constraint constrain, const char *constraint)
{
    swl_request_options o = ask_options(question);

    o.n_max = 150;
    o.constrain = constrain;
    o.constraint = constraint;
    return o;
}

static json_t *parsed(result *r)
{
    json_t *v = json_loads(result_text(r), JSON_DECODE_ANY, NULL);

    if (!v)
        fail_msg("no JSON: %s", result_text(r));
    return v;
}

static void an_answer_follows_its_schema(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"sun\",\"rain\"]},\"degrees\":{\"type\":\"integer\","
        "\"minimum\":-50,\"maximum\":60},\"words\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":8},"
        "\"minItems\":2,\"maxItems\":3}},\"required\":[\"kind\",\"degrees\",\"words\"],\"additionalProperties\":false}";
    fixture f = fixture_open(1);

    (void)state;
    for (int seed = 0; seed < 3; seed++) {
        swl_request_options o = constrained(SWL_CONSTRAIN_SCHEMA, schema);
        result r = {0};
        json_t *v;
        const char *kind;
        int degrees;

        o.sampling.temperature = seed ? 1.5F : 0;
        o.sampling.seed = (uint64_t)seed;
        ask(&f, &r, o);
        v = parsed(&r);
        assert_int_equal(json_unpack(v, "{s:s, s:i, s:o !}", "kind", &kind, "degrees", &degrees, "words", &(json_t *){0}), 0);
        assert_true(!strcmp(kind, "sun") || !strcmp(kind, "rain"));
        assert_in_range(degrees + 50, 0, 110);
        assert_in_range(json_array_size(json_object_get(v, "words")), 2, 3);
        assert_int_equal(r.finish, SWL_FINISH_STOP);
        json_decref(v);
        result_deinit(&r);
    }
    fixture_close(&f);
}

static void an_answer_is_one_of_the_choices(void **state)
{
    fixture f = fixture_open(1);
    result r = {0};

    (void)state;
    ask(&f, &r, constrained(SWL_CONSTRAIN_CHOICE, "[\"clear sky\",\"heavy rain\"]"));
    assert_true(!strcmp(result_text(&r), "clear sky") || !strcmp(result_text(&r), "heavy rain"));
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    result_deinit(&r);
    fixture_close(&f);
}

static void a_json_answer_is_an_object(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = constrained(SWL_CONSTRAIN_JSON, NULL);
    result r = {0};
    json_t *v;

    (void)state;
    o.sampling.temperature = 0;
    ask(&f, &r, o);
    assert_int_equal(result_text(&r)[0], '{');
    if (r.finish == SWL_FINISH_STOP) { /* else it was still inside a string */
        v = parsed(&r);
        assert_true(json_is_object(v));
        json_decref(v);
    }
    result_deinit(&r);
    fixture_close(&f);
}

/* template_path decides the form of calls. */
static void call_with(const char *template_path, const char *name)
{
    swl_engine_options eo;
    fixture f;
    swl_request_options o = constrained(SWL_CONSTRAIN_TOOL, name);
    result r = {0};
    json_t *v;

    swl_engine_options_init(&eo);
    eo.template_path = template_path;
    f = fixture_open_with(1, 0, &eo);
    o.tools = tools;
    o.one_call = true;
    o.think = SWL_THINK_OFF;
    ask(&f, &r, o);
    assert_int_equal(r.n_calls, 1);
    assert_int_equal(r.n_broken, 0);
    assert_int_equal(r.text.n, 0);
    if (name)
        assert_string_equal(r.call_name, name);
    v = json_loads(r.call_args, 0, NULL);
    assert_true(json_is_object(v));
    if (!strcmp(r.call_name, "get_weather")) {
        assert_true(json_is_string(json_object_get(v, "city")));
        assert_in_range(json_integer_value(json_object_get(v, "days")), 1, 9);
    }
    json_decref(v);
    result_deinit(&r);
    fixture_close(&f);
}

static void a_call_is_made_in_the_form_of_the_template(void **state)
{
    (void)state;
    call_with(NULL, "get_weather");
    call_with(NULL, NULL);
    call_with(TEMPLATES "qwen3_next.jinja", "get_weather"); /* JSON */
    call_with(TEMPLATES "qwen3_5.jinja", "get_time");       /* XML */
}

/* The model would call get_weather. */
static void only_tools_that_are_allowed_are_called(void **state)
{
    static const char *const forms[] = {NULL, TEMPLATES "qwen3_next.jinja", TEMPLATES "qwen3_5.jinja"};
    static const swl_constraint must[] = {SWL_CONSTRAIN_NONE, SWL_CONSTRAIN_TOOL};

    (void)state;
    for (int i = 0; i < 6; i++) {
        swl_engine_options eo;
        fixture f;
        swl_request_options o = constrained(must[i % 2], NULL);
        result r = {0};

        swl_engine_options_init(&eo);
        eo.template_path = forms[i / 2];
        f = fixture_open_with(1, 0, &eo);
        o.tools = tools;
        ask(&f, &r, o);
        if (r.n_calls) /* with the templates of others the model may not think of it */
            assert_string_equal(r.call_name, "get_weather");
        else
            assert_true(i > 1 && must[i % 2] == SWL_CONSTRAIN_NONE);
        result_deinit(&r);
        o.allowed = "[\"get_time\"]";
        ask(&f, &r, o);
        if (r.n_calls)
            assert_string_equal(r.call_name, "get_time");
        else
            assert_true(i > 1 && must[i % 2] == SWL_CONSTRAIN_NONE);
        result_deinit(&r);
        fixture_close(&f);
    }
}

static void reasoning_is_free(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = constrained(SWL_CONSTRAIN_CHOICE, "[\"yes\",\"no\"]");
    result r = {0};

    (void)state;
    o.think = SWL_THINK_ON;
    o.n_reasoning_max = 20;
    ask(&f, &r, o);
    assert_true(r.reasoning.n > 0);
    assert_true(!strcmp(result_text(&r), "yes") || !strcmp(result_text(&r), "no"));
    result_deinit(&r);
    fixture_close(&f);
}

static void constrained_and_free_answers_run_side_by_side(void **state)
{
    fixture f = fixture_open(3);
    result a = {0}, b = {0}, c = {0};

    (void)state;
    submit(&f, &a, constrained(SWL_CONSTRAIN_CHOICE, "[\"yes\",\"no\"]"));
    submit(&f, &b, constrained(SWL_CONSTRAIN_NONE, NULL));
    submit(&f, &c, constrained(SWL_CONSTRAIN_SCHEMA, "{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}"));
    run_until_idle(&f);
    assert_true(!strcmp(result_text(&a), "yes") || !strcmp(result_text(&a), "no"));
    assert_true(b.done && !b.failed && b.text.n > 0);
    assert_int_equal(strlen(result_text(&c)), 2);
    assert_memory_equal(result_text(&c), "1", 1);
    result_deinit(&a);
    result_deinit(&b);
    result_deinit(&c);
    fixture_close(&f);
}

static void what_cannot_be_asked_for_is_refused_at_once(void **state)
{
    static const struct { swl_constraint constrain; const char *constraint, *part; swl_status st; } cases[] = {
        {SWL_CONSTRAIN_SCHEMA, "{\"not\":{}}", "/not", SWL_E_UNSUPPORTED},
        {SWL_CONSTRAIN_SCHEMA, "{", "schema", SWL_E_ARG}, {SWL_CONSTRAIN_SCHEMA, NULL, "schema", SWL_E_ARG},
        {SWL_CONSTRAIN_CHOICE, "[]", "choice", SWL_E_ARG}, {SWL_CONSTRAIN_TOOL, NULL, "tool", SWL_E_ARG}};
    fixture f = fixture_open(1);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        swl_request_options o = constrained(cases[i].constrain, cases[i].constraint);
        swl_request *r;
        swl_error err;

        assert_int_equal(swl_request_create(&r, f.engine, &o, &err), cases[i].st);
        assert_non_null(strstr(err.message, cases[i].part));
        assert_null(r);
    }
    fixture_close(&f);
}

/* Of the processor, so that other programs do not count. */
static double seconds_a_token(const fixture *f, swl_constraint constrain)
{
    swl_request_options o = constrained(constrain, NULL);
    double best = 1;

    o.n_max = 50;
    o.logprobs = false;
    o.ignore_stop = constrain == SWL_CONSTRAIN_NONE;
    o.sampling.temperature = 0;
    for (int i = 0; i < 3; i++) {
        result r = {0};
        clock_t begin = clock();
        double seconds;

        ask(f, &r, o);
        seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (r.usage.n_generated > 10 && seconds / r.usage.n_generated < best)
            best = seconds / r.usage.n_generated;
        result_deinit(&r);
    }
    return best;
}

/* Measured at some percent; the bound leaves room for machines that do other things as well. */
static void constrained_decoding_is_not_slow(void **state)
{
    fixture f = fixture_open(1);
    double plain = seconds_a_token(&f, SWL_CONSTRAIN_NONE), json = seconds_a_token(&f, SWL_CONSTRAIN_JSON);

    (void)state;
    printf("%.3f ms a token, as JSON %.3f\n", plain * 1e3, json * 1e3);
    assert_true(json < 2 * plain); /* the prompt and spinning workers count here */
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_follows_its_schema),
        cmocka_unit_test(an_answer_is_one_of_the_choices),
        cmocka_unit_test(a_json_answer_is_an_object),
        cmocka_unit_test(a_call_is_made_in_the_form_of_the_template),
        cmocka_unit_test(only_tools_that_are_allowed_are_called),
        cmocka_unit_test(reasoning_is_free),
        cmocka_unit_test(constrained_and_free_answers_run_side_by_side),
        cmocka_unit_test(what_cannot_be_asked_for_is_refused_at_once),
        cmocka_unit_test(constrained_decoding_is_not_slow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
