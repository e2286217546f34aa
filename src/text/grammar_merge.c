/*
 * grammar_merge.c: the keywords of JSON Schema that are known here, references, and what two schemas allow together.
 * Merging works on the schemas' text and is lazy: where two schemas speak of the same property, the result holds
 * {"allOf": [a, b]}.
 */
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

enum { DEPTH_MAX = 64, OWNED_MAX = 20000 };

enum { KEY_CORE = 128, KEY_NOTE = 256 };

static const struct {
    const char *name;
    uint32_t about;
} keywords[] = {{"type", KEY_CORE},
                {"enum", KEY_CORE},
                {"const", KEY_CORE},
                {"anyOf", KEY_CORE},
                {"oneOf", KEY_CORE},
                {"allOf", KEY_CORE},
                {"$ref", KEY_CORE},
                {"properties", SWL_TYPE_OBJECT},
                {"required", SWL_TYPE_OBJECT},
                {"additionalProperties", SWL_TYPE_OBJECT},
                {"minProperties", SWL_TYPE_OBJECT},
                {"maxProperties", SWL_TYPE_OBJECT},
                {"propertyNames", SWL_TYPE_OBJECT},
                {"patternProperties", SWL_TYPE_OBJECT},
                {"items", SWL_TYPE_ARRAY},
                {"prefixItems", SWL_TYPE_ARRAY},
                {"minItems", SWL_TYPE_ARRAY},
                {"maxItems", SWL_TYPE_ARRAY},
                {"uniqueItems", SWL_TYPE_ARRAY},
                {"minLength", SWL_TYPE_STRING},
                {"maxLength", SWL_TYPE_STRING},
                {"pattern", SWL_TYPE_STRING},
                {"format", SWL_TYPE_STRING},
                {"minimum", SWL_TYPE_NUMBER},
                {"maximum", SWL_TYPE_NUMBER},
                {"exclusiveMinimum", SWL_TYPE_NUMBER},
                {"exclusiveMaximum", SWL_TYPE_NUMBER},
                {"multipleOf", SWL_TYPE_NUMBER},
                {"title", KEY_NOTE},
                {"description", KEY_NOTE},
                {"default", KEY_NOTE},
                {"example", KEY_NOTE},
                {"examples", KEY_NOTE},
                {"$schema", KEY_NOTE},
                {"$id", KEY_NOTE},
                {"$comment", KEY_NOTE},
                {"deprecated", KEY_NOTE},
                {"readOnly", KEY_NOTE},
                {"writeOnly", KEY_NOTE},
                {"strict", KEY_NOTE},
                {"contentEncoding", KEY_NOTE},
                {"contentMediaType", KEY_NOTE},
                {"$defs", KEY_NOTE},
                {"definitions", KEY_NOTE},
                {"\x01patterns", SWL_TYPE_STRING} /* of merged schemas: all of "pattern" */};

/* 0: unknown. */
static uint32_t about(const char *key)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (!strcmp(keywords[i].name, key))
            return keywords[i].about;
    return 0;
}

void swl_schema_check(swl_compiler *c, const json_t *schema, const char *path)
{
    const char *key;
    const json_t *v;
    char *at;

    if (c->st || json_is_boolean(schema))
        return;
    if (!json_is_object(schema)) {
        swl_compiler_fail(c, SWL_E_ARG, path, "a schema is an object or a boolean");
        return;
    }
    SWL_OBJECT_EACH(schema, key, v)
    {
        if (about(key))
            continue;
        at = swl_compiler_path(c, path, key);
        if (at)
            swl_compiler_fail(c, SWL_E_UNSUPPORTED, at, "the keyword \"%.100s\" is not supported", key);
        swl_free(at);
        return;
    }
}

bool swl_schema_says(const json_t *schema, const char *but)
{
    const char *key;
    const json_t *v;

    if (json_is_boolean(schema))
        return json_is_false(schema);
    SWL_OBJECT_EACH(schema, key, v)
    if (about(key) != KEY_NOTE && (!but || strcmp(key, but)))
        return true;
    return false;
}

static uint32_t type_of_name(const json_t *name)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "object", "array"};
    const char *s = json_string_value(name);

    for (uint32_t i = 0; s && i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], s))
            return 1U << i;
    return 0;
}

uint32_t swl_schema_types(swl_compiler *c, const json_t *schema, const char *path)
{
    const json_t *type = json_object_get(schema, "type"), *each;
    uint32_t types = 0, one;
    const char *key;
    size_t i;

    if (!type) {
        SWL_OBJECT_EACH(schema, key, each)
        types |= about(key) & (KEY_CORE - 1);
        return types;
    }
    if (!json_is_array(type)) {
        types = type_of_name(type);
    } else {
        json_array_foreach (type, i, each) {
            one = type_of_name(each);
            types |= one;
            if (!one)
                swl_compiler_fail(c, SWL_E_ARG, path, "\"type\" lists what is no type");
        }
    }
    if (!types && json_is_string(type) && json_string_length(type) <= 40)
        swl_compiler_fail(c, SWL_E_ARG, path, "\"type\" is \"%s\", which is no type", json_string_value(type));
    else if (!types)
        swl_compiler_fail(c, SWL_E_ARG, path, "\"type\" is no type");
    return types;
}

/* ---- references ---- */

/* One part of a JSON pointer in a URI, decoded; NULL: out of memory. */
static char *decode_part(const char *p, size_t n)
{
    char *out = swl_calloc(n + 1, 1), *to = out;

    for (size_t i = 0; out && i < n; i++) {
        const char *digits = "0123456789ABCDEFabcdef", *h, *l;

        h = p[i] == '%' && n - i >= 3 ? strchr(digits, p[i + 1]) : NULL;
        l = h ? strchr(digits, p[i + 2]) : NULL;
        if (h && l && *h && *l) {
            int high = (int)(h - digits), low = (int)(l - digits);

            *to++ = (char)((high > 15 ? high - 6 : high) * 16 + (low > 15 ? low - 6 : low));
            i += 2;
        } else if (p[i] == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1')) {
            *to++ = p[++i] == '0' ? '~' : '/';
        } else {
            *to++ = p[i];
        }
    }
    return out;
}

static const json_t *member_of(const json_t *at, const char *key)
{
    size_t i = 0;
    const char *p = key;

    if (!json_is_array(at))
        return json_object_get(at, key);
    for (; *p >= '0' && *p <= '9' && i < 1000000; p++)
        i = i * 10 + (size_t)(*p - '0');
    return *p || p == key ? NULL : json_array_get(at, i);
}

const json_t *swl_schema_resolve(swl_compiler *c, const json_t *ref, const char *path, char **target)
{
    const char *p = json_string_value(ref), *end;
    const json_t *at = c->root;
    char *part, *longer;

    *target = swl_strdup(c->root_path);
    if (!p || *p != '#' || (p[1] && p[1] != '/'))
        at = NULL;
    for (p += at != NULL; at && *target && *p; p = end) {
        end = strchr(p + 1, '/');
        end = end ? end : p + strlen(p);
        part = decode_part(p + 1, (size_t)(end - p - 1));
        longer = part ? swl_compiler_path(c, *target, part) : NULL;
        at = part ? member_of(at, part) : NULL;
        swl_free(part);
        swl_free(*target);
        *target = longer;
    }
    if (!*target)
        swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
    else if (!at && json_is_string(ref) && json_string_value(ref)[0] != '#')
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, path, "\"$ref\" to \"%.100s\", which is not in this schema",
                          json_string_value(ref));
    else if (!at)
        swl_compiler_fail(c, SWL_E_ARG, path, "\"$ref\" leads to nothing: %.100s",
                          json_is_string(ref) ? json_string_value(ref) : "it is no string");
    if (!c->st)
        return at;
    swl_free(*target);
    *target = NULL;
    return NULL;
}

/* ---- merging ---- */

const json_t *swl_schema_without(swl_compiler *c, const json_t *schema, const char *key)
{
    swl_memo *memo = swl_memo_find(c, SWL_MEMO_WITHOUT, schema, key);
    const json_t *out;
    json_t *copy;

    if (memo)
        return memo->schema;
    if (json_array_size(c->owned) > OWNED_MAX)
        swl_compiler_fail(c, SWL_E_BUDGET, "", "schemas combine in more than %d ways", (int)OWNED_MAX);
    if (c->st)
        return c->no;
    copy = json_copy((json_t *)schema);
    json_object_del(copy, key);
    out = swl_compiler_own(c, copy);
    swl_memo_add(c, (swl_memo){.a = schema, .b = key, .kind = SWL_MEMO_WITHOUT, .schema = out});
    return out;
}

/* {"allOf": [a, b]}, or the one of them that says something. A new reference. */
static json_t *both(const json_t *a, const json_t *b)
{
    if (!a || !swl_schema_says(a, NULL))
        return json_incref((json_t *)(b ? b : a));
    if (!b || !swl_schema_says(b, NULL) || json_equal((json_t *)a, (json_t *)b))
        return json_incref((json_t *)a);
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* What a schema says of a property that it does not list. */
static const json_t *unlisted(const json_t *schema)
{
    return json_object_get(schema, "additionalProperties");
}

static void merge_properties(json_t *out, const json_t *a, const json_t *b)
{
    const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties"), *v, *other;
    json_t *list = json_object();
    const char *key;

    SWL_OBJECT_EACH(pa, key, v)
    {
        other = json_object_get(pb, key);
        json_object_set_new(list, key, both(v, other ? other : unlisted(b)));
    }
    SWL_OBJECT_EACH(pb, key, v)
    if (!json_object_get(pa, key))
        json_object_set_new(list, key, both(v, unlisted(a)));
    if (pa || pb)
        json_object_set_new(out, "properties", list);
    else
        json_decref(list);
    if (unlisted(a) || unlisted(b))
        json_object_set_new(out, "additionalProperties", both(unlisted(a), unlisted(b)));
}

/* Every element of one list meets every one of the other: that is counted. */
static bool may_compare(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    c->work -= (int64_t)json_array_size(a) * (int64_t)json_array_size(b) * 4;
    return swl_compiler_ok(c, path);
}

static void merge_list(swl_compiler *c, json_t *out, const char *key, const json_t *a, const json_t *b,
                       const char *path)
{
    json_t *list;
    const json_t *v, *w;
    bool there;
    size_t i, j;

    if (!may_compare(c, a, b, path))
        return;
    list = json_array();

    json_array_extend(list, (json_t *)a);
    json_array_foreach (b, i, v) {
        there = false;
        json_array_foreach (a, j, w)
            there |= json_equal((json_t *)v, (json_t *)w);
        if (!there)
            json_array_append(list, (json_t *)v);
    }
    json_object_set_new(out, key, list);
}

/* "enum" or "const" as a list; NULL: neither. A new reference. */
static json_t *literals(const json_t *schema)
{
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");

    return one ? json_pack("[O]", one) : json_incref(list);
}

static void merge_literals(swl_compiler *c, json_t *out, const json_t *a, const json_t *b, const char *path)
{
    json_t *la = literals(a), *lb = literals(b), *list;
    const json_t *v, *w;
    size_t i, j;

    json_object_del(out, "const");
    json_object_del(out, "enum");
    if (!la || !lb) {
        if (la || lb)
            json_object_set(out, "enum", la ? la : lb);
    } else if (may_compare(c, la, lb, path)) {
        list = json_array();
        json_array_foreach (la, i, v)
            json_array_foreach (lb, j, w)
                if (json_equal((json_t *)v, (json_t *)w))
                    json_array_append(list, (json_t *)v);
        json_object_set_new(out, "enum", list);
    }
    json_decref(la);
    json_decref(lb);
}

static void merge_types(swl_compiler *c, json_t *out, const json_t *a, const json_t *b, const char *path)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "object", "array"};
    uint32_t ta, tb;
    json_t *list = json_array();

    ta = swl_schema_types(c, a, path);
    tb = swl_schema_types(c, b, path);
    if (ta & SWL_TYPE_NUMBER)
        ta |= SWL_TYPE_INTEGER;
    if (tb & SWL_TYPE_NUMBER)
        tb |= SWL_TYPE_INTEGER;
    for (uint32_t i = 0; i < 7; i++)
        if (ta >> i & tb >> i & 1 && !(i == 2 && ta & tb & SWL_TYPE_NUMBER))
            json_array_append_new(list, json_string(names[i]));
    json_object_set_new(out, "type", list);
}

/* The narrower of two bounds stays. */
static void merge_bounds(json_t *out, const json_t *a, const json_t *b)
{
    static const struct {
        const char *key;
        bool low;
    } rows[] = {{"minimum", true},       {"exclusiveMinimum", true}, {"minLength", true},         {"minItems", true},
                {"minProperties", true}, {"maximum", false},         {"exclusiveMaximum", false}, {"maxLength", false},
                {"maxItems", false},     {"maxProperties", false}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *x = json_object_get(a, rows[i].key), *y = json_object_get(b, rows[i].key);
        bool y_is_narrower =
            rows[i].low ? json_number_value(y) > json_number_value(x) : json_number_value(y) < json_number_value(x);

        if (x && y)
            json_object_set(out, rows[i].key, y_is_narrower ? y : x);
    }
}

static void merge_patterns(json_t *out, const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    const json_t *from[] = {a, b};

    for (int i = 0; i < 2; i++) {
        json_t *one = json_object_get(from[i], "pattern");

        json_array_extend(list, json_object_get(from[i], "\x01patterns"));
        if (one)
            json_array_append(list, one);
    }
    json_object_del(out, "pattern");
    json_object_set_new(out, "\x01patterns", list);
}

/* Keywords of which both schemas have a value that this does not combine. */
static void merge_rest(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    static const char *const keys[] = {"format", "multipleOf", "prefixItems", "propertyNames", "patternProperties"};
    const json_t *x, *y;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        x = json_object_get(a, keys[i]);
        y = json_object_get(b, keys[i]);
        if (x && y && !json_equal((json_t *)x, (json_t *)y))
            swl_compiler_fail(c, SWL_E_UNSUPPORTED, path, "two different values of \"%s\" are to hold together",
                              keys[i]);
    }
    if (json_object_get(a, "patternProperties") || json_object_get(b, "patternProperties"))
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, path,
                          "\"patternProperties\" together with another schema is not supported");
    x = json_object_get(a, "prefixItems");
    y = json_object_get(b, "prefixItems");
    if ((x && !y && json_object_get(b, "items")) || (y && !x && json_object_get(a, "items")))
        swl_compiler_fail(c, SWL_E_UNSUPPORTED, path,
                          "\"prefixItems\" and \"items\" of two schemas are to hold together");
}

/* Two objects without references and choices. */
static const json_t *merge_plain(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    json_t *out = json_object();
    const json_t *from[] = {b, a}, *v;
    const char *key;

    for (int i = 0; i < 2; i++)
        SWL_OBJECT_EACH(from[i], key, v)
    if (about(key) != KEY_NOTE)
        json_object_set(out, key, (json_t *)v);
    merge_properties(out, a, b);
    merge_bounds(out, a, b);
    merge_literals(c, out, a, b, path);
    merge_rest(c, a, b, path);
    if (json_object_get(a, "type") && json_object_get(b, "type"))
        merge_types(c, out, a, b, path);
    if (json_object_get(a, "required") && json_object_get(b, "required"))
        merge_list(c, out, "required", json_object_get(a, "required"), json_object_get(b, "required"), path);
    if (json_object_get(a, "items") && json_object_get(b, "items"))
        json_object_set_new(out, "items", both(json_object_get(a, "items"), json_object_get(b, "items")));
    if (json_is_true(json_object_get(b, "uniqueItems")))
        json_object_set(out, "uniqueItems", json_object_get(b, "uniqueItems"));
    if ((json_object_get(a, "pattern") || json_object_get(a, "\x01patterns")) &&
        (json_object_get(b, "pattern") || json_object_get(b, "\x01patterns")))
        merge_patterns(out, a, b);
    return swl_compiler_own(c, out);
}

/* Every branch of a choice together with `rest` and `b`. */
static const json_t *merge_choice(swl_compiler *c, const json_t *a, const char *key, const json_t *b, const char *path)
{
    const json_t *list = json_object_get(a, key), *rest = swl_schema_without(c, a, key), *branch;
    json_t *out = json_array();
    size_t i;

    if (!json_is_array(list))
        swl_compiler_fail(c, SWL_E_ARG, path, "\"%s\" is no array", key);
    if (!strcmp(key, "oneOf"))
        swl_schema_check_one_of(c, list, path);
    json_array_foreach (list, i, branch)
        json_array_append_new(out, json_pack("{s:[O,O,O]}", "allOf", rest, branch, b));
    return swl_compiler_own(c, json_pack("{s:o}", "anyOf", out));
}

static const json_t *flatten(swl_compiler *c, const json_t *s, const char *path);

static const json_t *merge_deep(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    a = flatten(c, a, path);
    b = flatten(c, b, path);
    if (c->st || json_is_false(a) || json_is_false(b))
        return c->no;
    if (!swl_schema_says(a, NULL))
        return b;
    if (!swl_schema_says(b, NULL))
        return a;
    if (json_object_get(a, "anyOf") || json_object_get(a, "oneOf"))
        return merge_choice(c, a, json_object_get(a, "anyOf") ? "anyOf" : "oneOf", b, path);
    if (json_object_get(b, "anyOf") || json_object_get(b, "oneOf"))
        return merge_choice(c, b, json_object_get(b, "anyOf") ? "anyOf" : "oneOf", a, path);
    return merge_plain(c, a, b, path);
}

const json_t *swl_schema_merge(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    swl_memo *memo = swl_memo_find(c, SWL_MEMO_MERGED, a, b);
    const json_t *out;

    if (memo)
        return memo->schema;
    if (c->depth >= DEPTH_MAX || json_array_size(c->owned) > OWNED_MAX)
        swl_compiler_fail(c, SWL_E_BUDGET, path, "schemas combine without end, or in more than %d ways",
                          (int)OWNED_MAX);
    if (c->st)
        return c->no;
    c->depth++;
    out = merge_deep(c, a, b, path);
    c->depth--;
    swl_memo_add(c, (swl_memo){.a = a, .b = b, .kind = SWL_MEMO_MERGED, .schema = out});
    return out;
}

/* The schema without "$ref" and "allOf" at its top: they are merged in. */
static const json_t *flatten(swl_compiler *c, const json_t *s, const char *path)
{
    const json_t *ref = json_object_get(s, "$ref"), *list = json_object_get(s, "allOf"), *part, *out;
    char *target;
    size_t i;

    swl_schema_check(c, s, path);
    if (c->st || (!ref && !list))
        return s;
    if (c->depth >= DEPTH_MAX) {
        swl_compiler_fail(c, SWL_E_BUDGET, path, "references and \"allOf\" are nested too deeply");
        return c->no;
    }
    c->depth++;
    if (ref) {
        out = swl_schema_resolve(c, ref, path, &target);
        out = c->st ? c->no : flatten(c, out, target);
        swl_free(target);
        if (!c->st && swl_schema_says(s, "$ref"))
            out = swl_schema_merge(c, swl_schema_without(c, s, "$ref"), out, path);
    } else {
        if (!json_is_array(list))
            swl_compiler_fail(c, SWL_E_ARG, path, "\"allOf\" is no array");
        out = swl_schema_without(c, s, "allOf");
        json_array_foreach (list, i, part)
            out = c->st ? c->no : swl_schema_merge(c, out, part, path);
    }
    c->depth--;
    return out;
}

/* ---- oneOf ---- */

/* All values of a property are of a list; NULL: not so. A new reference. */
static json_t *tag_values(swl_compiler *c, const json_t *schema, const char *key, const char *path)
{
    const json_t *p = json_object_get(json_object_get(schema, "properties"), key), *name;
    size_t i;
    bool required = false;

    json_array_foreach (json_object_get(schema, "required"), i, name)
        required |= json_is_string(name) && !strcmp(json_string_value(name), key);
    return p && required ? literals(flatten(c, p, path)) : NULL;
}

static bool lists_meet(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    const json_t *v, *w;
    size_t i, j;

    if (!may_compare(c, a, b, path))
        return true;
    json_array_foreach (a, i, v)
        json_array_foreach (b, j, w)
            if (json_equal((json_t *)v, (json_t *)w))
                return true;
    return false;
}

static bool differ(swl_compiler *c, const json_t *a, const json_t *b, const char *path)
{
    json_t *la = literals(a), *lb = literals(b);
    bool apart = la && lb && !lists_meet(c, la, lb, path);
    uint32_t ta = json_object_get(a, "type") ? swl_schema_types(c, a, path) : ~0U;
    uint32_t tb = json_object_get(b, "type") ? swl_schema_types(c, b, path) : ~0U;
    const char *key;
    const json_t *v;

    json_decref(la);
    json_decref(lb);
    if (ta & SWL_TYPE_NUMBER)
        ta |= SWL_TYPE_INTEGER;
    if (tb & SWL_TYPE_NUMBER)
        tb |= SWL_TYPE_INTEGER;
    if (apart || !(ta & tb))
        return true;
    if (ta != SWL_TYPE_OBJECT || tb != SWL_TYPE_OBJECT)
        return false;
    SWL_OBJECT_EACH(json_object_get(a, "properties"), key, v)
    {
        la = tag_values(c, a, key, path);
        lb = la ? tag_values(c, b, key, path) : NULL;
        apart = la && lb && !lists_meet(c, la, lb, path);
        json_decref(la);
        json_decref(lb);
        if (apart)
            return true;
    }
    return false;
}

void swl_schema_check_one_of(swl_compiler *c, const json_t *list, const char *path)
{
    size_t n = json_array_size(list);

    if (n > 256)
        swl_compiler_fail(c, SWL_E_BUDGET, path, "\"oneOf\" has more than 256 branches");
    for (size_t i = 0; i < n && !c->st; i++)
        for (size_t j = 0; j < i && !c->st; j++)
            if (!differ(c, flatten(c, json_array_get(list, i), path), flatten(c, json_array_get(list, j), path), path))
                swl_compiler_fail(
                    c, SWL_E_UNSUPPORTED, path,
                    "\"oneOf\": a value may match both of the branches %zu and %zu; \"anyOf\" allows that", j, i);
}
