/*
 * grammar_schema.c: a schema as a value. References, choices and types are opened up into a flat list of options: bytes
 * to read, or a rule for an object or array, which is filled later. What a schema refers to itself without anything in
 * between adds nothing and is left out.
 *
 * Where "type" is missing, a schema speaks of the types that its keywords are about; without any it allows everything.
 */
#include <string.h>

#include "base/mem.h"
#include "text/call_value.h"
#include "text/grammar_impl.h"

enum { PATTERNS_MAX = 16, SEEN_MAX = 4096, REFERENCES_MAX = 32 };

typedef struct gathering {
    swl_compiler *c;
    bool parameter; /* of the XML form */
    swl_option *options;
    size_t n, cap;
    const json_t **seen;
    size_t n_seen, cap_seen;
    swl_word *words; /* literals: one automaton for all */
    size_t n_words, cap_words;
    swl_word *raw_words;
    size_t n_raw_words, cap_raw_words;
    bool nullable;                                                   /* a text "null" is right */
    void (*each)(void *arg, const json_t *schema, const char *path); /* of objects: instead of all that */
    void *arg;
} gathering;

static void out_of_memory(gathering *g)
{
    swl_compiler_fail(g->c, SWL_E_NOMEM, "", "out of memory");
}

static void add_option(gathering *g, swl_option o)
{
    if (g->c->st || o.a < 0)
        return;
    g->c->work -= (int64_t)g->n / 8;
    for (size_t i = 0; i < g->n; i++)
        if (!memcmp(&g->options[i], &o, sizeof o))
            return;
    if (swl_grow((void **)&g->options, &g->cap, g->n + 1, sizeof o))
        g->options[g->n++] = o;
    else
        out_of_memory(g);
}

static void add_start(gathering *g, int32_t start)
{
    add_option(g, (swl_option){SWL_NODE_BYTES, start, 0, 0});
}

static void add_part(gathering *g, int32_t part)
{
    add_start(g, g->c->g->vocab->part[part]);
}

/* ---- strings ---- */

static const char *pattern_at(const json_t *schema, size_t i)
{
    const json_t *one = json_object_get(schema, "pattern"), *list = json_object_get(schema, "\x01patterns");

    if (one && i-- == 0)
        return json_string_value(one);
    return json_string_value(json_array_get(list, i));
}

/* The pattern that "format" stands for; NULL: there is none, or a fault. */
static const char *format_of(swl_compiler *c, const json_t *schema, const char *path)
{
    const json_t *format = json_object_get(schema, "format");
    const char *pattern;
    char *at;

    if (!format)
        return NULL;
    pattern = json_is_string(format) ? swl_format_pattern(json_string_value(format)) : NULL;
    at = pattern ? NULL : swl_compiler_path(c, path, "format");
    if (at)
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, at, "the format \"%.100s\" is not supported",
                          json_is_string(format) ? json_string_value(format) : "(no string)");
    swl_free(at);
    return pattern;
}

/* The automaton of a string with patterns or a format; `to` may be a grammar's or one for a trial. */
static int32_t string_automaton(swl_compiler *c, swl_bytes *to, swl_string_spec *spec, const json_t *schema,
                                const char *path)
{
    const char *patterns[PATTERNS_MAX + 3], *why = NULL, *format = format_of(c, schema, path);
    const json_t *one = json_object_get(schema, "pattern");
    size_t n = json_array_size(json_object_get(schema, "\x01patterns")) + (one != NULL), which = 0;
    int32_t start = -1;
    swl_status st;

    if (one && !json_is_string(one))
        swl_compiler_fail(c, SWL_E_ARG, path, "\"pattern\" is no string");
    if (n > PATTERNS_MAX)
        swl_compiler_fail(c, SWL_E_BUDGET, path, "more than %d patterns of one string", (int)PATTERNS_MAX);
    if (c->st)
        return -1;
    for (size_t i = 0; i < n; i++) {
        patterns[i] = pattern_at(schema, i);
        if (!patterns[i])
            swl_compiler_fail(c, SWL_E_ARG, path, "\"pattern\" is no string");
    }
    if (format)
        patterns[n++] = format;
    for (size_t i = 0; i < spec->n_patterns; i++)
        patterns[n++] = spec->patterns[i];
    spec->patterns = patterns;
    spec->n_patterns = n;
    if (c->st)
        return -1;
    st = swl_regex_automaton(to, spec, &start, &which, &why, &c->work);
    if (st == SWL_E_UNSUPPORTED)
        swl_compiler_fail(c, st, path, "the pattern \"%.200s\": %s", patterns[which], why);
    else if (st == SWL_E_BUDGET)
        swl_compiler_fail(c, st, path, "the pattern or the length of this string takes too many states");
    else if (st)
        swl_compiler_fail(c, st, "", "out of memory");
    return start;
}

static bool has_pattern(const json_t *schema)
{
    return json_object_get(schema, "pattern") || json_object_get(schema, "\x01patterns") ||
           json_object_get(schema, "format");
}

/* A parameter's text is its value as it stands: nothing in it may look like a tag, nor may it read as null. */
static int32_t raw_automaton(gathering *g, const json_t *schema, int32_t min, int32_t max, const char *path)
{
    static const char *const guards[] = {
        "^[^<]*$", "^(?:[nN]?|[nN][uU]|[nN][uU][lL]|[^nN][^]*|[nN][^uU][^]*|[nN][uU][^lL][^]*|[nN][uU][lL][^lL][^]*|"
                   "[nN][uU][lL][lL][^]+)$"};
    swl_string_spec spec = {guards, g->nullable ? 1 : 2, min, max, true};

    return string_automaton(g->c, &g->c->g->bytes, &spec, schema, path);
}

static void add_string(gathering *g, const json_t *schema, const char *path)
{
    swl_compiler *c = g->c;
    int32_t min = swl_schema_count(c, schema, "minLength", 0, path);
    int32_t max = swl_schema_count(c, schema, "maxLength", -1, path);
    const int32_t *part = c->g->vocab->part;
    swl_string_spec spec = {NULL, 0, min, max, false};

    if (c->st || (max >= 0 && max < min))
        return;
    if (has_pattern(schema))
        add_start(g, g->parameter ? raw_automaton(g, schema, min, max, path)
                                  : string_automaton(c, &c->g->bytes, &spec, schema, path));
    else if (g->parameter)
        add_option(g, (swl_option){SWL_NODE_TEXT, part[g->nullable ? SWL_PART_TEXT_NULL : SWL_PART_TEXT], min, max});
    else if (min || max >= 0)
        add_option(g, (swl_option){SWL_NODE_STRING, part[SWL_PART_STRING], min, max});
    else
        add_part(g, SWL_PART_STRING);
}

/* ---- numbers ---- */

static const json_t *number_at(swl_compiler *c, const json_t *schema, const char *key, const char *path)
{
    const json_t *v = json_object_get(schema, key);

    if (v && !json_is_number(v))
        swl_compiler_fail(c, SWL_E_ARG, path, "\"%s\" is no number", key);
    return v;
}

static int32_t number_automaton(swl_compiler *c, swl_bytes *to, const json_t *schema, bool integer, const char *path)
{
    swl_number_spec spec = {.integer = integer,
                            .minimum = number_at(c, schema, "minimum", path),
                            .maximum = number_at(c, schema, "maximum", path),
                            .exclusive_minimum = number_at(c, schema, "exclusiveMinimum", path),
                            .exclusive_maximum = number_at(c, schema, "exclusiveMaximum", path),
                            .multiple_of = number_at(c, schema, "multipleOf", path)};
    int32_t start = -1;
    const char *keyword;
    swl_status st;
    char *at;

    if (c->st)
        return -1;
    if (spec.multiple_of && json_number_value(spec.multiple_of) <= 0)
        swl_compiler_fail(c, SWL_E_ARG, path, "\"multipleOf\" is not above zero");
    st = c->st ? c->st : swl_number_automaton(to, &spec, &start, &keyword, &c->work);
    at = st == SWL_E_UNSUPPORTED ? swl_compiler_path(c, path, keyword) : NULL;
    if (at)
        swl_compiler_fail(c, st, at, "the value of \"%s\" has too many digits to be enforced", keyword);
    swl_free(at);
    if (st == SWL_E_BUDGET)
        swl_compiler_fail(c, st, path, "the bounds of this number take too many states");
    return swl_compiler_ok(c, path) ? start : -1;
}

/* Formats that say how wide a number is, as OpenAPI writes them, add nothing to what is written here or are bounds. */
static const json_t *number_format(swl_compiler *c, const json_t *schema, const char *path)
{
    const char *format = json_string_value(json_object_get(schema, "format"));
    const json_t *bounds;

    if (!json_object_get(schema, "format") ||
        (format && (!strcmp(format, "int64") || !strcmp(format, "double") || !strcmp(format, "float"))))
        return schema;
    if (!format || strcmp(format, "int32")) {
        format_of(c, schema, path);
        return schema;
    }
    bounds = swl_compiler_own(
        c, json_pack("{s:I, s:I}", "minimum", (json_int_t)INT32_MIN, "maximum", (json_int_t)INT32_MAX));
    return swl_schema_merge(c, swl_schema_without(c, schema, "format"), bounds, path);
}

static void add_number(gathering *g, const json_t *schema, bool integer, bool alone, const char *path)
{
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
    bool plain = true;

    if (alone)
        schema = number_format(g->c, schema, path);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        plain &= !json_object_get(schema, keys[i]);
    if (plain)
        add_part(g, integer ? SWL_PART_INTEGER : SWL_PART_NUMBER);
    else
        add_start(g, number_automaton(g->c, &g->c->g->bytes, schema, integer, path));
}

/* ---- literals ---- */

static void put_value(swl_sbuf *b, const json_t *v, const char *space)
{
    const json_t *each;
    const char *key;
    size_t i, n = 0;

    if (json_is_string(v)) {
        swl_sbuf_putc(b, '"');
        swl_sbuf_put_escaped(b, json_string_value(v), json_string_length(v));
        swl_sbuf_putc(b, '"');
    } else if (json_is_number(v)) {
        swl_number_put(v, b);
    } else if (json_is_array(v)) {
        swl_sbuf_putc(b, '[');
        json_array_foreach (v, i, each) {
            swl_sbuf_puts(b, i ? "," : "");
            swl_sbuf_puts(b, i ? space : "");
            put_value(b, each, space);
        }
        swl_sbuf_putc(b, ']');
    } else if (json_is_object(v)) {
        swl_sbuf_putc(b, '{');
        SWL_OBJECT_EACH(v, key, each)
        {
            swl_sbuf_puts(b, n ? "," : "");
            swl_sbuf_puts(b, n++ ? space : "");
            swl_sbuf_putc(b, '"');
            swl_sbuf_put_escaped(b, key, strlen(key));
            swl_sbuf_puts(b, "\":");
            swl_sbuf_puts(b, space);
            put_value(b, each, space);
        }
        swl_sbuf_putc(b, '}');
    } else {
        swl_sbuf_puts(b, json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false");
    }
}

static void add_word(gathering *g, swl_word **words, size_t *n, size_t *cap, swl_sbuf *b)
{
    if (b->failed || !swl_grow((void **)words, cap, *n + 1, sizeof **words)) {
        out_of_memory(g);
        swl_sbuf_deinit(b);
        return;
    }
    (*words)[(*n)++] = (swl_word){b->p, b->n};
}

static void add_literal(gathering *g, const json_t *v)
{
    bool nested = (json_is_array(v) && json_array_size(v)) || (json_is_object(v) && json_object_size(v));
    swl_sbuf b = {0}, spaced = {0};

    g->nullable |= json_is_null(v);
    if (g->parameter && json_is_string(v)) {
        swl_sbuf_putc(&b, 0); /* so that there is memory for an empty string */
        b.n = 0;
        swl_sbuf_put(&b, json_string_value(v), json_string_length(v));
        add_word(g, &g->raw_words, &g->n_raw_words, &g->cap_raw_words, &b);
        return;
    }
    put_value(&b, v, "");
    add_word(g, &g->words, &g->n_words, &g->cap_words, &b);
    if (!nested)
        return;
    put_value(&spaced, v, " ");
    add_word(g, &g->words, &g->n_words, &g->cap_words, &spaced);
}

static bool reads(const swl_bytes *b, int32_t state, const char *p, size_t n)
{
    for (; state >= 0 && n; p++, n--)
        state = swl_bytes_step(b, state, (uint8_t)*p);
    return state >= 0 && b->states[state].accept;
}

static uint32_t type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return SWL_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return SWL_TYPE_BOOLEAN;
    case JSON_INTEGER:
        return SWL_TYPE_INTEGER | SWL_TYPE_NUMBER;
    case JSON_REAL:
        return json_real_value(v) == (double)(int64_t)json_real_value(v) && json_real_value(v) > -1e15 &&
                       json_real_value(v) < 1e15
                   ? SWL_TYPE_INTEGER | SWL_TYPE_NUMBER
                   : SWL_TYPE_NUMBER;
    case JSON_STRING:
        return SWL_TYPE_STRING;
    default:
        return json_is_object(v) ? SWL_TYPE_OBJECT : SWL_TYPE_ARRAY;
    }
}

/* The automaton of what the schema says of numbers or strings, made once for all literals; -1: nothing fits. */
typedef struct trial {
    swl_bytes b;
    int32_t number, string;
    bool numbers, strings; /* there is something to try */
    uint32_t types;        /* 0: all */
} trial;

static void begin_trial(gathering *g, trial *t, const json_t *schema, const char *path)
{
    static const char *const structural[] = {"properties",    "required",   "additionalProperties", "minProperties",
                                             "maxProperties", "items",      "prefixItems",          "minItems",
                                             "maxItems",      "uniqueItems"};
    swl_compiler *c = g->c;
    swl_string_spec spec = {NULL, 0, 0, -1, true};
    const json_t *plain = swl_schema_without(c, swl_schema_without(c, schema, "enum"), "const");
    uint32_t says =
        swl_schema_types(c, json_object_get(plain, "type") ? swl_schema_without(c, plain, "type") : plain, path);
    char *at = NULL;

    t->types = json_object_get(schema, "type") ? swl_schema_types(c, schema, path) : 0;
    for (size_t i = 0; i < sizeof structural / sizeof *structural && !c->st; i++)
        if (json_object_get(schema, structural[i]) && (!t->types || t->types & (SWL_TYPE_OBJECT | SWL_TYPE_ARRAY))) {
            at = swl_compiler_path(c, path, structural[i]);
            if (at)
                swl_compiler_fail(c, SWL_E_UNSUPPORTED, at, "\"%s\" beside \"enum\" or \"const\" is not supported",
                                  structural[i]);
            swl_free(at);
        }
    t->numbers = says & SWL_TYPE_NUMBER && (!t->types || t->types & (SWL_TYPE_NUMBER | SWL_TYPE_INTEGER));
    t->strings = says & SWL_TYPE_STRING && (!t->types || t->types & SWL_TYPE_STRING);
    if (t->numbers)
        t->number = number_automaton(c, &t->b, schema, false, path);
    spec.min = swl_schema_count(c, schema, "minLength", 0, path);
    spec.max = swl_schema_count(c, schema, "maxLength", -1, path);
    if (t->strings)
        t->string = string_automaton(c, &t->b, &spec, schema, path);
}

static bool fits(const trial *t, const json_t *v)
{
    swl_sbuf b = {0};
    bool ok;

    if (t->types && !(t->types & type_of(v)))
        return false;
    if (json_is_string(v) && t->strings)
        return reads(&t->b, t->string, json_string_value(v), json_string_length(v));
    if (!json_is_number(v) || !t->numbers)
        return true;
    swl_number_put(v, &b);
    ok = reads(&t->b, t->number, b.p, b.n);
    swl_sbuf_deinit(&b);
    return ok;
}

/* Texts that the reader of calls would read as something else are left out. */
static bool writable(gathering *g, const json_t *v)
{
    const char *s = json_string_value(v);

    if (!g->parameter || !s)
        return true;
    return !strchr(s, '<') && (g->nullable || json_string_length(v) != 4 || !swl_call_null_begins(s, 4));
}

static void add_literals(gathering *g, const json_t *schema, const char *path)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const"), *v;
    trial t = {.number = -1, .string = -1};
    size_t i;

    if (list && !json_is_array(list))
        swl_compiler_fail(g->c, SWL_E_ARG, path, "\"enum\" is no array");
    begin_trial(g, &t, schema, path);
    json_array_foreach (list, i, v)
        if (!g->c->st && (!one || json_equal((json_t *)one, (json_t *)v)) && fits(&t, v) && writable(g, v))
            add_literal(g, v);
    if (!g->c->st && !list && fits(&t, one) && writable(g, one))
        add_literal(g, one);
    swl_bytes_deinit(&t.b);
}

/* ---- gathering ---- */

static void add_rule(gathering *g, const json_t *schema, bool array, const char *path)
{
    swl_compiler *c = g->c;
    int32_t kind = array ? SWL_MEMO_ARRAY : SWL_MEMO_OBJECT;
    swl_memo *memo = swl_memo_find(c, kind, schema, NULL);
    swl_todo todo = {schema, NULL, 0, array};

    if (memo) {
        add_option(g, (swl_option){SWL_NODE_CALL, memo->at, 0, 0});
        return;
    }
    todo.rule = swl_new_rule(c);
    todo.path = swl_strdup(path);
    if (c->st || !todo.path || !swl_grow((void **)&c->todo, &c->cap_todo, c->n_todo + 1, sizeof todo)) {
        swl_free(todo.path);
        out_of_memory(g);
        return;
    }
    c->todo[c->n_todo++] = todo;
    swl_memo_add(c, (swl_memo){.a = schema, .kind = kind, .at = todo.rule});
    add_option(g, (swl_option){SWL_NODE_CALL, todo.rule, 0, 0});
}

static void add_anything(gathering *g)
{
    const int32_t *part = g->c->g->vocab->part;

    if (g->parameter) { /* what no schema describes stays text */
        add_option(g, (swl_option){SWL_NODE_TEXT, part[SWL_PART_TEXT_NULL], 0, -1});
        return;
    }
    add_part(g, SWL_PART_STRING);
    add_part(g, SWL_PART_NUMBER);
    add_part(g, SWL_PART_BOOLEAN);
    add_part(g, SWL_PART_NULL);
    add_rule(g, g->c->object, false, "");
    add_rule(g, g->c->array, true, "");
}

static void add_types(gathering *g, const json_t *schema, const char *path)
{
    uint32_t types = swl_schema_types(g->c, schema, path);

    if (!types) {
        add_anything(g);
        return;
    }
    g->nullable |= (types & SWL_TYPE_NULL) != 0;
    if (types & SWL_TYPE_STRING)
        add_string(g, schema, path);
    if (types & (SWL_TYPE_NUMBER | SWL_TYPE_INTEGER))
        add_number(g, schema, !(types & SWL_TYPE_NUMBER), !(types & SWL_TYPE_STRING), path);
    if (types & SWL_TYPE_BOOLEAN)
        add_part(g, g->parameter ? SWL_PART_ANY_BOOLEAN : SWL_PART_BOOLEAN);
    if (types & SWL_TYPE_NULL)
        add_part(g, SWL_PART_NULL);
    if (types & SWL_TYPE_OBJECT)
        add_rule(g, schema, false, path);
    if (types & SWL_TYPE_ARRAY)
        add_rule(g, schema, true, path);
}

static bool first_visit(gathering *g, const json_t *schema)
{
    g->c->work -= (int64_t)g->n_seen / 8;
    if (!swl_compiler_ok(g->c, ""))
        return false;
    for (size_t i = 0; i < g->n_seen; i++)
        if (g->seen[i] == schema)
            return false;
    if (g->n_seen >= SEEN_MAX)
        swl_compiler_fail(g->c, SWL_E_BUDGET, "", "a value with more than %d alternatives", (int)SEEN_MAX);
    else if (!swl_grow((void **)&g->seen, &g->cap_seen, g->n_seen + 1, sizeof *g->seen))
        out_of_memory(g);
    else
        g->seen[g->n_seen++] = schema;
    return !g->c->st;
}

static void gather(gathering *g, const json_t *schema, const char *path);

static void gather_reference(gathering *g, const json_t *schema, const char *path)
{
    char *target;
    const json_t *to = swl_schema_resolve(g->c, json_object_get(schema, "$ref"), path, &target);

    if (!to)
        return;
    if (swl_schema_says(schema, "$ref"))
        gather(g, swl_schema_merge(g->c, swl_schema_without(g->c, schema, "$ref"), to, path), path);
    else
        gather(g, to, target);
    swl_free(target);
}

static void gather_all(gathering *g, const json_t *schema, const char *path)
{
    const json_t *list = json_object_get(schema, "allOf"), *part, *all = swl_schema_without(g->c, schema, "allOf");
    size_t i;

    if (!json_is_array(list))
        swl_compiler_fail(g->c, SWL_E_ARG, path, "\"allOf\" is no array");
    json_array_foreach (list, i, part)
        if (!g->c->st)
            all = i || swl_schema_says(all, NULL) ? swl_schema_merge(g->c, all, part, path) : part;
    gather(g, all, path);
}

static void gather_choice(gathering *g, const json_t *schema, const char *key, const char *path)
{
    const json_t *list = json_object_get(schema, key), *branch;
    char *of = swl_compiler_path(g->c, path, key), *at;
    size_t i;

    if (!json_is_array(list))
        swl_compiler_fail(g->c, SWL_E_ARG, path, "\"%s\" is no array", key);
    if (!g->c->st && !strcmp(key, "oneOf"))
        swl_schema_check_one_of(g->c, list, path);
    json_array_foreach (list, i, branch) {
        if (g->c->st)
            break;
        at = swl_compiler_path_at(g->c, of, i);
        if (at && swl_schema_says(schema, key))
            gather(g, swl_schema_merge(g->c, swl_schema_without(g->c, schema, key), branch, at), at);
        else if (at)
            gather(g, branch, at);
        swl_free(at);
    }
    swl_free(of);
}

static void gather_object(gathering *g, const json_t *schema, const char *path)
{
    swl_schema_check(g->c, schema, path);
    if (g->c->st || !first_visit(g, schema))
        return;
    if (json_object_get(schema, "$ref"))
        gather_reference(g, schema, path);
    else if (json_object_get(schema, "allOf"))
        gather_all(g, schema, path);
    else if (json_object_get(schema, "anyOf"))
        gather_choice(g, schema, "anyOf", path);
    else if (json_object_get(schema, "oneOf"))
        gather_choice(g, schema, "oneOf", path);
    else if (g->each)
        g->each(g->arg, schema, path);
    else if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        add_literals(g, schema, path);
    else
        add_types(g, schema, path);
}

static void gather(gathering *g, const json_t *schema, const char *path)
{
    if (g->c->st || json_is_false(schema))
        return;
    if (++g->c->depth > 200)
        swl_compiler_fail(g->c, SWL_E_BUDGET, path, "references and choices are nested too deeply");
    if (json_is_true(schema)) {
        if (g->each)
            g->each(g->arg, g->c->object, path);
        else
            add_anything(g);
    } else {
        gather_object(g, schema, path);
    }
    g->c->depth--;
}

/* Literals become one automaton, behind the other options. */
static void close_words(gathering *g)
{
    if (g->n_words && !g->c->st)
        add_start(g, swl_bytes_words(&g->c->g->bytes, g->words, g->n_words));
    if (g->n_raw_words && !g->c->st)
        add_start(g, swl_bytes_words(&g->c->g->bytes, g->raw_words, g->n_raw_words));
    swl_compiler_ok(g->c, "");
}

static void reset_gathering(gathering *g)
{
    for (size_t i = 0; i < g->n_words; i++)
        swl_free((char *)g->words[i].p);
    for (size_t i = 0; i < g->n_raw_words; i++)
        swl_free((char *)g->raw_words[i].p);
    g->n = g->n_words = g->n_raw_words = g->n_seen = 0;
}

static void free_gathering(gathering *g)
{
    reset_gathering(g);
    swl_free(g->words);
    swl_free(g->raw_words);
    swl_free(g->options);
    swl_free((void *)g->seen);
}

static int32_t compile_new(swl_compiler *c, const json_t *schema, bool parameter, const char *path)
{
    gathering g = {.c = c, .parameter = parameter};
    int32_t value;

    gather(&g, schema, path);
    if (parameter && g.nullable && !c->st) { /* that matters for texts, of which some may have come before */
        reset_gathering(&g);
        gather(&g, schema, path);
    }
    close_words(&g);
    value = swl_new_value(c, g.options, (int32_t)g.n);
    free_gathering(&g);
    return value;
}

/* A bare reference is what it refers to, so that this is compiled once however many refer to it. */
static int32_t compile(swl_compiler *c, const json_t *schema, bool parameter, const char *path)
{
    int32_t kind = parameter ? SWL_MEMO_PARAMETER : SWL_MEMO_VALUE, value;
    const json_t *to = schema;
    char *target = NULL, *next;
    swl_memo *memo;

    for (int i = 0; i < REFERENCES_MAX && json_object_get(to, "$ref") && !swl_schema_says(to, "$ref"); i++) {
        swl_schema_check(c, to, target ? target : path);
        to = c->st ? NULL : swl_schema_resolve(c, json_object_get(to, "$ref"), target ? target : path, &next);
        if (!to)
            break;
        swl_free(target);
        target = next;
    }
    memo = to ? swl_memo_find(c, kind, to, NULL) : NULL;
    value = memo ? memo->at : to ? compile_new(c, to, parameter, target ? target : path) : 0;
    if (to && !memo)
        swl_memo_add(c, (swl_memo){.a = to, .kind = kind, .at = value});
    swl_free(target);
    return value;
}

int32_t swl_compile_value(swl_compiler *c, const json_t *schema, const char *path)
{
    return compile(c, schema, false, path);
}

int32_t swl_compile_parameter(swl_compiler *c, const json_t *schema, const char *path)
{
    return compile(c, schema, true, path);
}

void swl_compile_objects(swl_compiler *c, const json_t *schema, const char *path,
                         void (*each)(void *arg, const json_t *schema, const char *path), void *arg)
{
    gathering g = {.c = c, .each = each, .arg = arg};

    gather(&g, swl_schema_merge(c, schema, c->object, path), path);
    free_gathering(&g);
}

void swl_compile_rules(swl_compiler *c)
{
    swl_todo todo;

    while (c->n_todo && !c->st) {
        todo = c->todo[--c->n_todo];
        if (todo.array)
            swl_compile_array(c, todo.rule, todo.schema, todo.path);
        else
            swl_compile_object(c, todo.rule, todo.schema, todo.path);
        swl_free(todo.path);
    }
}
