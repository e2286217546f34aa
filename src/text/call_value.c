/* call_value.c: from a schema to kinds, and from kinds and text to JSON. */
#include "text/call_value.h"

#include <string.h>

#include "text/json_step.h"
#include "text/python_literal.h"

enum { SCHEMA_DEPTH_MAX = 8 }; /* of references and choices */

static bool string_is(const json_t *v, const char *s, size_t n)
{
    return json_is_string(v) && json_string_length(v) == n && !memcmp(json_string_value(v), s, n);
}

const json_t *swl_tool_parameters(const json_t *tools, const char *name, size_t n, bool *found)
{
    const json_t *tool, *f, *p;
    size_t i;

    *found = false;
    json_array_foreach (tools, i, tool) {
        f = json_object_get(tool, "function");
        f = json_is_object(f) ? f : tool;
        if (!string_is(json_object_get(f, "name"), name, n))
            continue;
        *found = true;
        p = json_object_get(f, "parameters");
        return p ? p : json_object_get(f, "input_schema");
    }
    return NULL;
}

/* ---- kinds ---- */

static uint32_t kind_of_type(const json_t *type)
{
    static const char *const names[] = {"string", "boolean", "integer", "number", "array", "object"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (string_is(type, names[i], strlen(names[i])))
            return 1U << i;
    return string_is(type, "null", 4) ? 0 : SWL_KIND_STRING;
}

static const json_t *member(const json_t *obj, const char *key, size_t n)
{
    json_t *o = (json_t *)obj, *v; /* jansson's iterators are not const */
    const char *k;

    json_object_foreach (o, k, v)
        if (strlen(k) == n && !memcmp(k, key, n))
            return v;
    return NULL;
}

/* The same for a part of a JSON pointer, where ~0 stands for ~ and ~1 for /. */
static const json_t *member_of_pointer(const json_t *obj, const char *part, size_t n)
{
    json_t *o = (json_t *)obj, *v;
    const char *k;
    size_t i, j;

    json_object_foreach (o, k, v) {
        for (i = j = 0; k[i] && j < n; i++, j++) {
            bool escaped = part[j] == '~' && j + 1 < n;
            char c = escaped ? (part[j + 1] == '1' ? '/' : '~') : part[j];

            if (k[i] != c)
                break;
            j += escaped;
        }
        if (!k[i] && j == n)
            return v;
    }
    return NULL;
}

/* "#/$defs/NAME": references that generators write for nested types. Others lead nowhere. */
static const json_t *resolve(const json_t *root, const json_t *ref)
{
    const char *p = json_string_value(ref), *slash;
    const json_t *at = root;

    if (!p || strncmp(p, "#/", 2))
        return NULL;
    for (p += 2; at; p = slash + 1) {
        slash = strchr(p, '/');
        at = member_of_pointer(at, p, slash ? (size_t)(slash - p) : strlen(p));
        if (!slash)
            return at;
    }
    return NULL;
}

static uint32_t kinds_of(const json_t *root, const json_t *schema, int depth);

static uint32_t kinds_of_choice(const json_t *root, const json_t *list, int depth)
{
    uint32_t kinds = SWL_KIND_UNION;
    const json_t *each;
    size_t i;

    json_array_foreach (list, i, each) {
        kinds |= json_is_string(each) ? kind_of_type(each) : kinds_of(root, each, depth + 1);
    }
    return kinds;
}

static uint32_t kind_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return SWL_KIND_STRING;
    case JSON_TRUE:
    case JSON_FALSE:
        return SWL_KIND_BOOLEAN;
    case JSON_INTEGER:
        return SWL_KIND_INTEGER;
    case JSON_REAL:
        return SWL_KIND_NUMBER;
    case JSON_NULL:
        return 0;
    default:
        return json_is_array(v) ? SWL_KIND_ARRAY : SWL_KIND_OBJECT;
    }
}

/* Values that are listed say what they are. */
static uint32_t kinds_of_literals(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const"), *v;
    uint32_t kinds = one ? kind_of_value(one) : 0;
    size_t i;

    json_array_foreach (list, i, v)
        kinds |= kind_of_value(v);
    return kinds ? kinds | SWL_KIND_UNION : 0;
}

static uint32_t kinds_of(const json_t *root, const json_t *schema, int depth)
{
    static const char *const choices[] = {"anyOf", "oneOf", "allOf"};
    const json_t *v;

    if (!json_is_object(schema) || depth > SCHEMA_DEPTH_MAX)
        return 0;
    v = json_object_get(schema, "type");
    if (json_is_array(v))
        return kinds_of_choice(root, v, depth);
    if (v)
        return kind_of_type(v);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        v = json_object_get(schema, choices[i]);
        if (json_is_array(v))
            return kinds_of_choice(root, v, depth);
    }
    v = resolve(root, json_object_get(schema, "$ref"));
    return v ? kinds_of(root, v, depth + 1) : kinds_of_literals(schema);
}

uint32_t swl_call_kinds(const json_t *parameters, const char *key, size_t n)
{
    const json_t *schema = member(json_object_get(parameters, "properties"), key, n);

    return kinds_of(parameters, schema ? schema : json_object_get(parameters, "additionalProperties"), 0);
}

/* ---- values ---- */

static bool same_word(const char *text, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if ((text[i] | 0x20) != word[i])
            return false;
    return true;
}

bool swl_call_null_begins(const char *text, size_t n)
{
    return n <= 4 && same_word(text, n, "null");
}

static bool put_boolean(const char *p, size_t n, swl_sbuf *out)
{
    bool yes = n == 4 && same_word(p, n, "true"), no = n == 5 && same_word(p, n, "false");

    if (yes || no)
        swl_sbuf_puts(out, yes ? "true" : "false");
    return yes || no;
}

/* JSON or a Python literal that gives a value beginning with `open`. */
static bool put_structure(char open, const char *p, size_t n, swl_sbuf *out)
{
    size_t before = out->n;
    char c;

    if (!swl_json_put_checked(p, n, out) && !swl_python_literal_put(p, n, out))
        return false;
    c = out->failed ? open : out->p[before];
    if (c == open)
        return true;
    out->n = before;
    return false;
}

static bool put_choice(uint32_t kinds, const char *p, size_t n, swl_sbuf *out)
{
    return (kinds & SWL_KIND_BOOLEAN && put_boolean(p, n, out)) ||
           (kinds & SWL_KIND_INTEGER && swl_python_int_put(p, n, out)) ||
           (kinds & SWL_KIND_NUMBER && swl_python_float_put(p, n, out)) ||
           (kinds & SWL_KIND_ARRAY && put_structure('[', p, n, out)) ||
           (kinds & SWL_KIND_OBJECT && put_structure('{', p, n, out));
}

/* A schema that allows one kind takes for an array or object whatever is JSON: the tool will say what it thinks of it.
 */
static bool put_single(uint32_t kinds, const char *p, size_t n, swl_sbuf *out)
{
    if (kinds & (SWL_KIND_ARRAY | SWL_KIND_OBJECT))
        return swl_json_put_checked(p, n, out) || swl_python_literal_put(p, n, out);
    return put_choice(kinds, p, n, out);
}

void swl_call_value_put(uint32_t kinds, const char *text, size_t n, swl_sbuf *out)
{
    const char *p = text, *end = text + n;

    while (p < end && swl_json_is_space(*p))
        p++;
    while (p < end && swl_json_is_space(end[-1]))
        end--;
    if (n == 4 && swl_call_null_begins(text, n)) {
        swl_sbuf_puts(out, "null");
        return;
    }
    if (p < end && (kinds & SWL_KIND_UNION ? put_choice : put_single)(kinds, p, (size_t)(end - p), out))
        return;
    swl_sbuf_putc(out, '"');
    swl_sbuf_put_escaped(out, text, n);
    swl_sbuf_putc(out, '"');
}
