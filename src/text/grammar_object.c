/*
 * grammar_object.c: objects and arrays. Properties come in the order of the schema; optional ones may be left out.
 * Others come last, where the schema allows them: that is where "additionalProperties" is there, or nothing is said of
 * properties at all. A list of properties alone is taken for all of them, as the models' own training has it.
 *
 * Before a value that could be left out, it is asked whether the depth that is left suffices for it.
 */
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

int32_t swl_schema_count(swl_compiler *c, const json_t *schema, const char *key, int32_t otherwise, const char *path)
{
    const json_t *v = json_object_get(schema, key);
    double n = json_number_value(v);

    if (!v)
        return otherwise;
    if (!json_is_number(v) || n < 0 || n > 1 << 30 || n != (double)(int32_t)n)
        swl_compiler_fail(c, SWL_E_ARG, path, "\"%s\" is no whole number from 0 to 2^30", key);
    return c->st ? otherwise : (int32_t)n;
}

/* ---- what an object schema says ---- */

void swl_object_deinit(swl_object *o)
{
    for (size_t i = 0; i < o->n; i++)
        swl_free(o->list[i].path);
    swl_free(o->list);
    swl_free(o->other_path);
}

static void add_property(swl_compiler *c, swl_object *o, swl_property p)
{
    if (!p.path || !swl_grow((void **)&o->list, &o->cap, o->n + 1, sizeof p)) {
        swl_free(p.path);
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
        return;
    }
    o->list[o->n++] = p;
}

static void read_required(swl_compiler *c, const json_t *required, const char *path, swl_object *o)
{
    const json_t *name;
    const char *key;
    size_t i, j;

    if (required && !json_is_array(required))
        swl_compiler_fail(c, SWL_E_ARG, path, "\"required\" is no array");
    c->work -= (int64_t)json_array_size(required) * (int64_t)(o->n + 1);
    swl_compiler_ok(c, path);
    json_array_foreach (required, i, name) {
        key = json_string_value(name);
        if (!key)
            swl_compiler_fail(c, SWL_E_ARG, path, "\"required\" lists what is no string");
        if (c->st)
            return;
        for (j = 0; j < o->n && strcmp(o->list[j].key, key); j++)
            ;
        if (j < o->n)
            o->list[j].required = true;
        else
            add_property(c, o, (swl_property){key, o->other ? o->other : c->no, swl_strdup(path), true});
    }
}

/* Bounds on the number of properties are not counted; they are taken where they say nothing new. */
static void read_counts(swl_compiler *c, const json_t *schema, const char *path, const swl_object *o)
{
    int32_t min = swl_schema_count(c, schema, "minProperties", 0, path);
    int32_t max = swl_schema_count(c, schema, "maxProperties", -1, path);
    bool min_new, max_new;
    int32_t n_required = 0;
    char *at;

    for (size_t i = 0; i < o->n; i++)
        n_required += o->list[i].required;
    min_new = min > n_required;
    max_new = max >= 0 && (o->other || (size_t)max < o->n);
    at =
        !c->st && (min_new || max_new) ? swl_compiler_path(c, path, min_new ? "minProperties" : "maxProperties") : NULL;
    if (at)
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, at, "the keyword \"%s\" is not supported",
                          min_new ? "minProperties" : "maxProperties");
    swl_free(at);
}

static void refuse(swl_compiler *c, const char *path, const char *keyword, const char *why)
{
    char *at = swl_compiler_path(c, path, keyword);

    if (at)
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, at, "the keyword \"%s\" is not supported %s", keyword, why);
    swl_free(at);
}

/* Names that are given a pattern, and nothing else: as "patternProperties" says of one pattern, or "propertyNames". */
static void read_names(swl_compiler *c, const json_t *schema, const char *path, swl_object *o)
{
    const json_t *patterns = json_object_get(schema, "patternProperties"),
                 *names = json_object_get(schema, "propertyNames");
    const json_t *value, *more = json_object_get(schema, "additionalProperties");
    const char *pattern;

    if (names && (json_is_true(names) || !swl_schema_says(names, "type")))
        names = NULL;
    SWL_OBJECT_EACH(patterns, pattern, value)
    {
        if (names || o->n || json_object_size(patterns) > 1 || (more && !json_is_false(more))) {
            refuse(c, path, "patternProperties", "beside other properties");
            return;
        }
        names = swl_compiler_own(c, json_pack("{s:s}", "pattern", pattern));
        o->other = value;
    }
    if (!names || !o->other)
        return;
    if (o->n)
        refuse(c, path, "propertyNames", "beside properties");
    o->names =
        c->st ? NULL : swl_schema_merge(c, names, swl_compiler_own(c, json_pack("{s:s}", "type", "string")), path);
}

void swl_object_read(swl_compiler *c, const json_t *schema, const char *path, swl_object *out)
{
    const json_t *properties = json_object_get(schema, "properties"), *more, *v;
    char *at = swl_compiler_path(c, path, "properties");
    const char *key;

    memset(out, 0, sizeof *out);
    more = json_object_get(schema, "additionalProperties");
    out->other_path = swl_compiler_path(c, path, "additionalProperties");
    if (more && out->other_path)
        swl_schema_check(c, more, out->other_path);
    if (properties && !json_is_object(properties))
        swl_compiler_fail(c, SWL_E_ARG, path, "\"properties\" is no object");
    SWL_OBJECT_EACH(c->st ? NULL : properties, key, v)
    if (!c->st)
        add_property(c, out, (swl_property){key, v, swl_compiler_path(c, at, key), false});
    swl_free(at);
    /* A required one that is not listed may be whatever is allowed of others. */
    out->other = json_is_false(more) ? NULL : more ? more : json_true();
    if (!c->st)
        read_required(c, json_object_get(schema, "required"), path, out);
    if (!more && properties)
        out->other = NULL;
    if (!c->st)
        read_names(c, schema, path, out);
    if (!c->st)
        read_counts(c, schema, path, out);
}

/* ---- objects ---- */

static void put_key(swl_sbuf *b, const char *key)
{
    swl_sbuf_putc(b, '"');
    swl_sbuf_put_escaped(b, key, strlen(key));
    swl_sbuf_putc(b, '"');
}

/* `"key":` and perhaps a space; with `comma`, that before it. */
static int32_t add_key(swl_compiler *c, const char *key, bool comma, int32_t next)
{
    static const char *const before[] = {",", ", "}, *const behind[] = {":", ": "};
    swl_sbuf b = {0};
    swl_word words[4];
    size_t from[5] = {0};
    int32_t n = 0, node = 0;

    for (int i = comma ? 0 : 1; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            swl_sbuf_puts(&b, comma ? before[i] : "");
            put_key(&b, key);
            swl_sbuf_puts(&b, behind[j]);
            from[++n] = b.n;
        }
    if (b.failed)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    for (int32_t i = 0; i < n && !b.failed; i++)
        words[i] = (swl_word){b.p + from[i], from[i + 1] - from[i]};
    if (!c->st)
        node = swl_add_words(c, words, (size_t)n, next);
    swl_sbuf_deinit(&b);
    return node;
}

/* The automaton of keys that are none of those listed. */
static int32_t other_keys(swl_compiler *c, const swl_object *o)
{
    swl_sbuf b = {0};
    swl_word *words = swl_calloc(o->n + 1, sizeof *words);
    int32_t start = -1;
    size_t at = 0;

    for (size_t i = 0; words && i < o->n; i++) {
        put_key(&b, o->list[i].key);
        words[i].n = b.n - at;
        at = b.n;
    }
    at = 0;
    for (size_t i = 0; words && !b.failed && i < o->n; at += words[i++].n)
        words[i].p = b.p + at;
    if (!words || b.failed)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    else
        start = swl_text_other_key(&c->g->bytes, words, o->n, &c->work);
    swl_sbuf_deinit(&b);
    swl_free(words);
    return swl_compiler_ok(c, "") ? start : 0;
}

/* Names by a schema of their own. */
static int32_t add_names(swl_compiler *c, const swl_object *o, int32_t next)
{
    int32_t names = swl_compile_value(c, o->names, o->other_path);

    return swl_add_if_fits(c, names, swl_add_value(c, names, next));
}

/* Where an object may be closed, or go on with other properties: before anything was written (*first) and behind that.
 */
static void add_last(swl_compiler *c, const swl_object *o, int32_t *first, int32_t *later)
{
    int32_t close = swl_add_part(c, SWL_PART_CLOSE_OBJECT, swl_add_node(c, SWL_NODE_RETURN, 0, -1));
    int32_t value, list[2] = {close, 0}, key;

    *first = *later = close;
    if (!o->other)
        return;
    value = swl_compile_value(c, o->other, o->other_path);
    *later = swl_add_open_split(c, 2);
    key = swl_add_part(c, SWL_PART_COLON, swl_add_value(c, value, *later));
    key = o->names ? add_names(c, o, key) : swl_add_node(c, SWL_NODE_BYTES, other_keys(c, o), key);
    list[1] = swl_add_if_fits(c, value, key);
    *first = swl_add_split(c, list, 2);
    list[1] = swl_add_if_fits(c, value, swl_add_part(c, SWL_PART_COMMA, key));
    if (o->names) /* there must be a name to write before there is a comma */
        list[1] = swl_add_if_fits(c, swl_compile_value(c, o->names, o->other_path), list[1]);
    for (int32_t i = 0; i < 2 && !c->st; i++)
        c->g->lists[c->g->nodes[*later].a + i] = list[i];
}

/* One property before what comes behind it. */
static void add_before(swl_compiler *c, const swl_property *p, int32_t value, int32_t *first, int32_t *later)
{
    int32_t node = swl_add_value(c, value, *later), list[2];

    list[0] = swl_add_if_fits(c, value, add_key(c, p->key, false, node));
    list[1] = *first;
    *first = swl_add_split(c, list, p->required ? 1 : 2);
    list[0] = swl_add_if_fits(c, value, add_key(c, p->key, true, node));
    list[1] = *later;
    *later = swl_add_split(c, list, p->required ? 1 : 2);
}

static void compile_properties(swl_compiler *c, int32_t rule, const swl_object *o, int32_t *needs)
{
    int32_t first, later, value, n_needs = 0;

    add_last(c, o, &first, &later);
    for (size_t i = o->n; i-- && !c->st;) {
        value = swl_compile_value(c, o->list[i].schema, o->list[i].path);
        if (o->list[i].required)
            needs[n_needs++] = value;
        add_before(c, &o->list[i], value, &first, &later);
    }
    swl_rule_needs(c, rule, needs, n_needs);
    first = swl_add_part(c, SWL_PART_OPEN_OBJECT, first);
    if (!c->st)
        c->g->rules[rule].entry = first;
}

void swl_compile_object(swl_compiler *c, int32_t rule, const json_t *schema, const char *path)
{
    swl_object o;
    int32_t *needs;

    swl_object_read(c, schema, path, &o);
    needs = swl_calloc(o.n + 1, sizeof *needs);
    if (!needs)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    if (!c->st)
        compile_properties(c, rule, &o, needs);
    swl_free(needs);
    swl_object_deinit(&o);
}

/* ---- arrays ---- */

typedef struct array {
    int32_t min, max;     /* max -1: no limit */
    const json_t *prefix; /* array of schemas, or NULL */
    const json_t *items;  /* of the others; NULL: there are none */
    int32_t n_prefix;
    int32_t close, close_if;
} array;

static bool array_read(swl_compiler *c, const json_t *schema, const char *path, array *a)
{
    char *at;

    a->min = swl_schema_count(c, schema, "minItems", 0, path);
    a->max = swl_schema_count(c, schema, "maxItems", -1, path);
    a->prefix = json_object_get(schema, "prefixItems");
    a->items = json_object_get(schema, "items");
    a->items = a->items ? a->items : json_true();
    a->n_prefix = (int32_t)json_array_size(a->prefix);
    if (json_is_array(a->items))
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, path,
                          "\"items\" as an array is not supported; that is \"prefixItems\"");
    if (a->prefix && !json_is_array(a->prefix))
        swl_compiler_fail(c, SWL_E_ARG, path, "\"prefixItems\" is no array");
    at = json_is_true(json_object_get(schema, "uniqueItems")) ? swl_compiler_path(c, path, "uniqueItems") : NULL;
    if (at)
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, at, "the keyword \"uniqueItems\" is not supported");
    swl_free(at);
    if (!c->st)
        swl_schema_check(c, a->items, path);
    if (json_is_false(a->items))
        a->items = NULL;
    if (!a->items && (a->max < 0 || a->max > a->n_prefix))
        a->max = a->n_prefix;
    if (a->max >= 0 && a->max < a->n_prefix)
        a->n_prefix = a->max;
    return !c->st && (a->max < 0 || a->min <= a->max);
}

/* Elements beyond the prefix: what comes behind one of them, `done` counted before. */
static int32_t add_rest(swl_compiler *c, const array *a, int32_t value, int32_t done, int32_t *first)
{
    int32_t min = a->min > done ? a->min - done : 0, max = a->max < 0 ? -1 : a->max - done;
    int32_t split = swl_add_open_split(c, 2), item, list[2], more;
    bool counts = min > 1 || max >= 0;

    item = swl_add_value(c, value, split);
    if (counts) /* the frame counts elements as far as it matters */
        item = swl_add_node(c, SWL_NODE_COUNT, max > min ? max : min, item);
    more = swl_add_if_fits(c, value, swl_add_part(c, SWL_PART_COMMA, item));
    list[0] = counts ? swl_add_node(c, SWL_NODE_AT_LEAST, min, a->close) : a->close;
    list[1] = max >= 0 ? swl_add_node(c, SWL_NODE_BELOW, max, more) : more;
    for (int32_t i = 0; i < 2 && !c->st; i++)
        c->g->lists[c->g->nodes[split].a + i] = list[i];
    *first = min ? item : swl_add_if_fits(c, value, item);
    if (max == 0)
        *first = -1;
    return split;
}

static void compile_elements(swl_compiler *c, int32_t rule, const array *a, const char *path, int32_t *needs)
{
    char *items_path = swl_compiler_path(c, path, "items"), *prefix_path = swl_compiler_path(c, path, "prefixItems");
    int32_t first = -1, later = a->close, list[2], n_list, n_needs = 0, value, item;

    if (a->items && !c->st) {
        value = swl_compile_value(c, a->items, items_path);
        if (a->min > a->n_prefix)
            needs[n_needs++] = value;
        add_rest(c, a, value, a->n_prefix, &first);
        /* behind the last of the prefix */
        n_list = 0;
        if (a->min <= a->n_prefix)
            list[n_list++] = a->close;
        if (first >= 0)
            list[n_list++] = swl_add_if_fits(c, value, swl_add_part(c, SWL_PART_COMMA, first));
        later = swl_add_split(c, list, n_list);
    }
    for (int32_t i = a->n_prefix; i-- && !c->st;) {
        char *at = swl_compiler_path_at(c, prefix_path, (size_t)i);

        value = at ? swl_compile_value(c, json_array_get(a->prefix, (size_t)i), at) : 0;
        swl_free(at);
        if (i < a->min)
            needs[n_needs++] = value;
        item = swl_add_value(c, value, later);
        first = item;
        n_list = 0;
        if (i >= a->min)
            list[n_list++] = a->close;
        list[n_list++] = swl_add_if_fits(c, value, swl_add_part(c, SWL_PART_COMMA, item));
        later = swl_add_split(c, list, n_list);
        first = swl_add_if_fits(c, value, first);
    }
    n_list = 0;
    if (!a->min)
        list[n_list++] = a->close;
    if (first >= 0)
        list[n_list++] = first;
    first = swl_add_part(c, SWL_PART_OPEN_ARRAY, swl_add_split(c, list, n_list));
    swl_rule_needs(c, rule, needs, n_needs);
    if (!c->st)
        c->g->rules[rule].entry = first;
    swl_free(items_path);
    swl_free(prefix_path);
}

void swl_compile_array(swl_compiler *c, int32_t rule, const json_t *schema, const char *path)
{
    array a = {0};
    int32_t *needs, none;

    if (!array_read(c, schema, path, &a)) {
        /* More elements are asked for than may be: no such array. */
        none = c->st ? 0 : swl_new_value(c, NULL, 0);
        swl_rule_needs(c, rule, &none, 1);
        return;
    }
    needs = swl_calloc((size_t)a.n_prefix + 2, sizeof *needs);
    if (!needs)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    a.close = swl_add_part(c, SWL_PART_CLOSE_ARRAY, swl_add_node(c, SWL_NODE_RETURN, 0, -1));
    if (!c->st)
        compile_elements(c, rule, &a, path, needs);
    swl_free(needs);
}
