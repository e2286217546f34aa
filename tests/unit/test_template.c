/* Chat templates: the renderings of the model family, the language against jinja2's answers, errors and limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/template.h"

static json_t *load(const char *name)
{
    char path[512];
    swl_error err;
    json_error_t why;
    json_t *root;
    char *text;
    size_t n;

    snprintf(path, sizeof path, "%s/text/%s", SWL_TEST_DATA, name);
    assert_int_equal(swl_file_load(&text, &n, path, 1 << 20, &err), SWL_OK);
    root = json_loadb(text, n, JSON_ALLOW_NUL, &why);
    assert_non_null(root);
    swl_free(text);
    return root;
}

/* Compiles and renders; *text is NULL after a failure. */
static swl_status render_bytes(const char *source, size_t n_source, const json_t *vars, char **text, size_t *n,
                               swl_error *err)
{
    swl_template *t;
    swl_status st = swl_template_compile(&t, source, n_source, "t.jinja", err);

    *text = NULL;
    if (st)
        return st;
    st = swl_template_render(t, vars, text, n, err);
    swl_template_free(t);
    return st;
}

static swl_status render(const char *source, const char *vars_text, char **text, swl_error *err)
{
    json_error_t why;
    json_t *vars = json_loads(vars_text, 0, &why);
    swl_status st;
    size_t n;

    assert_non_null(vars);
    st = render_bytes(source, strlen(source), vars, text, &n, err);
    json_decref(vars);
    return st;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

/* One case of a data file: its text byte for byte, or a failure (of which the message ends in "message"). */
static void check_case(const char *name, const char *source, size_t n_source, const json_t *vars, const json_t *c)
{
    const json_t *want = json_object_get(c, "text"), *message = json_object_get(c, "message");
    swl_error err;
    char *text;
    size_t n;
    swl_status st = render_bytes(source, n_source, vars, &text, &n, &err);

    if (want) {
        if (st)
            fail_msg("%s: %s", name, err.message);
        if (n != json_string_length(want) || memcmp(text, json_string_value(want), n))
            fail_msg("%s: expected\n%s\nfound\n%s", name, json_string_value(want), text);
    } else {
        if (!st)
            fail_msg("%s: expected an error, found\n%s", name, text);
        if (message && (st != SWL_E_ARG || !ends_with(err.message, json_string_value(message))))
            fail_msg("%s: expected the message %s, found %s", name, json_string_value(message), err.message);
    }
    swl_free(text);
}

static void renders_the_family_byte_for_byte(void **state)
{
    json_t *root = load("renderings.json"), *c, *t, *vars;
    char path[512], *source;
    size_t i, k, n;
    swl_error err;

    (void)state;
    json_array_foreach (root, i, c) {
        json_array_foreach (json_object_get(c, "templates"), k, t) {
            snprintf(path, sizeof path, "%s/text/templates/%s.jinja", SWL_TEST_DATA,
                     json_string_value(json_array_get(t, 0)));
            assert_int_equal(swl_file_load(&source, &n, path, 1 << 20, &err), SWL_OK);
            vars = json_copy(json_object_get(c, "vars"));
            json_object_set(vars, "form", json_array_get(t, 1));
            check_case(json_string_value(json_object_get(c, "name")), source, n, vars, c);
            json_decref(vars);
            swl_free(source);
        }
    }
    assert_true(i >= 33);
    json_decref(root);
}

/* The answers were given by jinja2; check_template.py compares them again. */
static void agrees_with_jinja2_on_the_language(void **state)
{
    json_t *root = load("language.json"), *c, *source;
    size_t i;

    (void)state;
    json_array_foreach (json_object_get(root, "cases"), i, c) {
        source = json_object_get(c, "source");
        check_case(json_string_value(source), json_string_value(source), json_string_length(source),
                   json_object_get(root, "vars"), c);
    }
    assert_true(i >= 300);
    json_decref(root);
}

static void names_file_and_line(void **state)
{
    swl_error err;
    char *text;

    (void)state;
    assert_int_equal(render("a\n{% if x %}\n{{ ] }}", "{}", &text, &err), SWL_E_CORRUPT);
    assert_string_equal(err.file, "t.jinja");
    assert_non_null(strstr(err.message, "line 3"));
    assert_int_equal(render("{% if x %}\n\n", "{}", &text, &err), SWL_E_CORRUPT);
    assert_int_equal(render("\n{% include 'x' %}", "{}", &text, &err), SWL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "line 2"));
    assert_non_null(strstr(err.message, "include"));
    assert_int_equal(render("\n\n{{ 1|nosuch }}", "{}", &text, &err), SWL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "line 3"));
    assert_int_equal(render("\n{{ raise_exception('Only this.') }}", "{}", &text, &err), SWL_E_ARG);
    assert_string_equal(err.message, "template line 2: Only this.");
    assert_string_equal(err.file, "t.jinja");
    assert_int_equal(render("{% macro m(x) %}\n{{ x.y.z }}{% endmacro %}\n\n{{ m({}) }}", "{}", &text, &err),
                     SWL_E_ARG);
    assert_string_equal(err.message, "template line 2: the object has no attribute or element 'y'");
    assert_int_equal(render("{{ a\n + b }}", "{\"a\": 1}", &text, &err), SWL_E_ARG);
    assert_string_equal(err.message, "template line 1: 'b' is undefined");
    assert_int_equal(render("{{ 'a\xff' }}", "{}", &text, &err), SWL_E_CORRUPT);
}

static void keeps_the_order_of_members(void **state)
{
    swl_error err;
    char *text;

    (void)state;
    assert_int_equal(render("{{ m|tojson }}{% for k in m %}{{ k }}{% endfor %}",
                            "{\"m\": {\"z\": 1, \"a\": {\"y\": 2, "
                            "\"b\": 3}, \"k9\": 1, \"k8\": 1, \"k7\": 1, \"k6\": 1, \"k5\": 1, \"k4\": 1, \"k3\": 1}}",
                            &text, &err),
                     SWL_OK);
    assert_string_equal(text, "{\"z\": 1, \"a\": {\"y\": 2, \"b\": 3}, \"k9\": 1, \"k8\": 1, \"k7\": 1, \"k6\": 1, "
                              "\"k5\": 1, \"k4\": 1, \"k3\": 1}zak9k8k7k6k5k4k3");
    swl_free(text);
}

static void limit(const char *source, const char *vars)
{
    swl_error err;
    char *text;
    swl_status st = render(source, vars, &text, &err);

    if (st != SWL_E_BUDGET)
        fail_msg("%s: expected a limit, found %s %s", source, swl_status_name(st), st ? err.message : text);
}

static void stops_at_limits(void **state)
{
    (void)state;
    limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}");
    limit("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{}");
    limit("{{ 'x' * 1000000000 }}", "{}");
    limit("{{ [1] * 1000000000 }}", "{}");
    limit("{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "{}");
    limit("{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
          "{}");
    limit("{% for a in range(100001) %}{% endfor %}", "{}");
    limit("{{ '%999999999d' % 1 }}", "{}");
    limit("{{ 'x'.center(9000000000) }}", "{}");
}

/* `open` and `close` n times around the middle. */
static char *nest(const char *open, const char *middle, const char *close, int n)
{
    char *s = swl_calloc((strlen(open) + strlen(close)) * (size_t)n + strlen(middle) + 1, 1), *p = s;
    int i;

    assert_non_null(s);
    for (i = 0; i < n; i++)
        p = strcpy(p, open) + strlen(open);
    p = strcpy(p, middle) + strlen(middle);
    for (i = 0; i < n; i++)
        p = strcpy(p, close) + strlen(close);
    return s;
}

static void stops_at_nesting(void **state)
{
    static const char *const around[][3] = {
        {"{% if x %}", "", "{% endif %}"},
        {"{% for a in [1] %}", "", "{% endfor %}"},
        {"{{ (", "", ") }}"},
        {"[", "", "]"},
        {"(", "1", ")"},
        {"not ", "1", ""},
        {"-", "1", ""},
        {"x if ", "1", ""},
        {"{'a': ", "1", "}"},
        {"x[", "1", "]"},
        {"x(", "1", ")"},
        {"x|default(", "1", ")"},
        {"1 + (", "1", ")"},
        {"x.", "y", ""},
        {"", "1", "|string"},
        {"", "1", " + 1"},
        {"", "x", "[0]"},
        {"", "1", " ** 1"},
        {"x is eq(", "1", ")"},
        {"{% filter upper %}", "", "{% endfilter %}"},
        {"{% set a %}", "", "{% endset %}"},
        {"{% generation %}", "", "{% endgeneration %}"},
        {"{% with %}", "", "{% endwith %}"},
    };
    swl_error err;
    char *inner, *source, *text;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof around / sizeof *around; i++) {
        inner = nest(around[i][0], around[i][1], around[i][2], 50000);
        source = *inner == '{' && inner[1] == '%' ? swl_strdup(inner) : swl_asprintf("{{ %s }}", inner);
        assert_non_null(source);
        assert_int_not_equal(render(source, "{\"x\": 1}", &text, &err), SWL_OK);
        swl_free(source);
        swl_free(inner);
    }
}

/* Work on long strings counts by their length, so that few operations cannot take minutes. */
static void charges_for_long_strings(void **state)
{
    static const char *const ops[] = {"s.rfind('b')", "s.upper()",    "s[::-1]",     "'b' in s",
                                      "s == s2",      "s.strip('a')", "[s]|string",  "s.replace('aaa', 'b')",
                                      "s|e",          "s|list",       "s.split('a')"};
    char *s = swl_calloc(1000001, 1), *source, *text;
    swl_error err;
    json_t *vars;
    size_t i, n;

    (void)state;
    assert_non_null(s);
    memset(s, 'a', 1000000);
    vars = json_pack("{s:s, s:s}", "s", s, "s2", s);
    for (i = 0; i < sizeof ops / sizeof *ops; i++) {
        source = swl_asprintf("{%% for a in range(99999) %%}{%% set x = %s %%}{%% endfor %%}", ops[i]);
        assert_non_null(source);
        assert_int_equal(render_bytes(source, strlen(source), vars, &text, &n, &err), SWL_E_BUDGET);
        swl_free(source);
    }
    json_decref(vars);
    swl_free(s);
}

static void survives_deep_data(void **state)
{
    char *deep = nest("[", "", "]", 1500), *vars = swl_asprintf("{\"x\": %s}", deep), *text;
    swl_error err;

    (void)state;
    assert_non_null(vars);
    assert_int_equal(render("{{ x }}", vars, &text, &err), SWL_E_BUDGET);
    assert_int_equal(render("{{ y }}", vars, &text, &err), SWL_OK);
    swl_free(text);
    swl_free(vars);
    swl_free(deep);
}

/* Every allocation fails once: an error, no leak, no crash. */
static void reports_missing_memory(void **state)
{
    static const char source[] =
        "{% macro m(a, b=[1]) %}{{ a ~ b }}{% endmacro %}{% for k, v in d|items %}{{ m(k, v) }}"
        "{{ v|tojson }}{{ loop.length }}{{ '%s' % k }}{% set x %}{{ k|upper }}{% endset %}{{ x }}"
        "{% endfor %}{{ 'a,b'.split(',')|map('upper')|sort|join }}{{ 'q' * 300000 }}";
    json_t *vars = json_pack("{s:{s:i, s:[s,s]}}", "d", "a", 1, "b", "x", "y");
    swl_error err;
    char *text = NULL;
    int64_t n;
    size_t len;

    (void)state;
    for (n = 0; n < 1000 && !text; n++) {
        swl_mem_fail_after(n, false);
        if (render_bytes(source, sizeof source - 1, vars, &text, &len, &err))
            assert_int_equal(err.code, SWL_E_NOMEM);
    }
    swl_mem_fail_after(-1, false);
    assert_non_null(text);
    assert_true(n > 4);
    assert_int_equal(strncmp(text, "a1", 2), 0);
    swl_free(text);
    json_decref(vars);
    swl_template_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_the_family_byte_for_byte),
        cmocka_unit_test(agrees_with_jinja2_on_the_language),
        cmocka_unit_test(names_file_and_line),
        cmocka_unit_test(keeps_the_order_of_members),
        cmocka_unit_test(stops_at_limits),
        cmocka_unit_test(stops_at_nesting),
        cmocka_unit_test(charges_for_long_strings),
        cmocka_unit_test(survives_deep_data),
        cmocka_unit_test(reports_missing_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
