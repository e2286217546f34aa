/*
 * template_json.c: JSON in and out: the caller's jansson trees as values (strings are borrowed, member order is kept),
 * and tojson, which is Python's json.dumps as transformers calls it.
 */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>

static swl_tpl_value from_array(swl_tpl_run *r, const json_t *j)
{
    size_t i, n = json_array_size(j);
    swl_tpl_value *items = swl_tpl_alloc(r, n, sizeof *items);

    for (i = 0; items && i < n; i++)
        items[i] = swl_tpl_from_json(r, json_array_get(j, i));
    return swl_tpl_seq(TPL_LIST, items, (uint32_t)n);
}

static swl_tpl_value from_object(swl_tpl_run *r, const json_t *j)
{
    json_t *obj = (json_t *)j; /* jansson's iterators are not const */
    swl_tpl_dict *d = swl_tpl_dict_new(r, (uint32_t)json_object_size(j));
    const char *key;
    json_t *val;

    json_object_foreach (obj, key, val) {
        swl_tpl_dict_set(r, d, swl_tpl_cstr(key), swl_tpl_from_json(r, val));
        if (swl_tpl_failed(r))
            break;
    }
    return swl_tpl_dict_value(TPL_DICT, d);
}

swl_tpl_value swl_tpl_from_json(swl_tpl_run *r, const json_t *j)
{
    swl_tpl_value v = swl_tpl_none();

    switch (json_typeof(j)) {
    case JSON_TRUE:
    case JSON_FALSE:
        return swl_tpl_bool(json_is_true(j));
    case JSON_INTEGER:
        return swl_tpl_int(json_integer_value(j));
    case JSON_REAL:
        return swl_tpl_float(json_real_value(j));
    case JSON_STRING:
        if (json_string_length(j) > TPL_MEMORY_BYTES_MAX) {
            swl_tpl_fail(r, SWL_E_BUDGET, "a string is longer than %d bytes", TPL_MEMORY_BYTES_MAX);
            return v;
        }
        return swl_tpl_text(json_string_value(j), json_string_length(j));
    case JSON_ARRAY:
    case JSON_OBJECT:
        if (!swl_tpl_enter(r))
            return v;
        v = json_is_array(j) ? from_array(r, j) : from_object(r, j);
        swl_tpl_leave(r);
        return v;
    default:
        return v;
    }
}

static void put_escape(swl_tpl_run *r, int32_t cp)
{
    char e[16];

    if (cp > 0xffff)
        snprintf(e, sizeof e, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)), (unsigned)(0xdc00 + (cp & 0x3ff)));
    else
        snprintf(e, sizeof e, "\\u%04x", (unsigned)cp);
    swl_tpl_puts(r, e);
}

static void put_json_str(swl_tpl_run *r, swl_tpl_value v, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t i, len, plain = 0;
    const char *p;
    int32_t cp;
    char e[3] = "\\";

    swl_tpl_puts(r, "\"");
    for (i = 0; i < v.n && !swl_tpl_failed(r); i += len) {
        len = (size_t)swl_tpl_utf8(v.u.s + i, v.n - i, &cp);
        p = cp ? memchr(from, cp < 0x80 ? cp : 0, sizeof from - 1) : NULL;
        if (!p && cp >= 0x20 && (!ascii || cp < 0x7f))
            continue;
        swl_tpl_put(r, v.u.s + plain, i - plain);
        plain = i + len;
        e[1] = p ? to[p - from] : 0;
        if (p)
            swl_tpl_puts(r, e);
        else
            put_escape(r, cp);
    }
    if (plain < v.n)
        swl_tpl_put(r, v.u.s + plain, v.n - plain);
    swl_tpl_puts(r, "\"");
}

static void put_json_float(swl_tpl_run *r, double f)
{
    if (isnan(f) || isinf(f))
        swl_tpl_puts(r, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        swl_tpl_put_float(r, f);
}

static void put_json_key(swl_tpl_run *r, swl_tpl_value k, const swl_tpl_json_options *opt)
{
    size_t mark = r->out_n;

    switch (k.kind) {
    case TPL_NONE:
        k = swl_tpl_cstr("null");
        break;
    case TPL_BOOL:
        k = swl_tpl_cstr(k.u.i ? "true" : "false");
        break;
    case TPL_INT:
        swl_tpl_put_int(r, k.u.i);
        k = swl_tpl_capture(r, mark);
        break;
    case TPL_FLOAT:
        put_json_float(r, k.u.f);
        k = swl_tpl_capture(r, mark);
        break;
    case TPL_STR:
        break;
    default:
        swl_tpl_fail(r, SWL_E_ARG, "tojson: a key of type %s", swl_tpl_type_name(k));
    }
    put_json_str(r, k, opt->ascii);
}

static void put_newline(swl_tpl_run *r, const swl_tpl_json_options *opt, int level)
{
    if (!opt->pretty)
        return;
    swl_tpl_puts(r, "\n");
    for (; level > 0 && !swl_tpl_failed(r); level--)
        swl_tpl_put(r, opt->indent.u.s, opt->indent.n);
}

static void put_json_dict(swl_tpl_run *r, const swl_tpl_dict *d, const swl_tpl_json_options *opt, int level)
{
    swl_tpl_value *keys = d->keys, *vals = d->vals;
    uint32_t i;

    if (opt->sort) {
        keys = swl_tpl_alloc(r, d->n + 1, sizeof *keys);
        vals = swl_tpl_alloc(r, d->n + 1, sizeof *vals);
        if (swl_tpl_failed(r))
            return;
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(vals, d->vals, d->n * sizeof *vals);
        swl_tpl_sort(r, vals, d->keys, d->n, false);
        swl_tpl_sort(r, keys, d->keys, d->n, false);
    }
    swl_tpl_puts(r, "{");
    for (i = 0; i < d->n && !swl_tpl_failed(r); i++) {
        if (i)
            swl_tpl_put(r, opt->item_sep.u.s, opt->item_sep.n);
        put_newline(r, opt, level + 1);
        put_json_key(r, keys[i], opt);
        swl_tpl_put(r, opt->key_sep.u.s, opt->key_sep.n);
        swl_tpl_put_json(r, vals[i], opt, level + 1);
    }
    if (d->n)
        put_newline(r, opt, level);
    swl_tpl_puts(r, "}");
}

static void put_json_list(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_json_options *opt, int level)
{
    uint32_t i;

    swl_tpl_puts(r, "[");
    for (i = 0; i < v.n && !swl_tpl_failed(r); i++) {
        if (i)
            swl_tpl_put(r, opt->item_sep.u.s, opt->item_sep.n);
        put_newline(r, opt, level + 1);
        swl_tpl_put_json(r, v.u.items[i], opt, level + 1);
    }
    if (v.n)
        put_newline(r, opt, level);
    swl_tpl_puts(r, "]");
}

void swl_tpl_put_json(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_json_options *opt, int level)
{
    swl_tpl_charge(r, 1);
    if (!swl_tpl_enter(r))
        return;
    switch (v.kind) {
    case TPL_NONE:
        swl_tpl_puts(r, "null");
        break;
    case TPL_BOOL:
        swl_tpl_puts(r, v.u.i ? "true" : "false");
        break;
    case TPL_INT:
        swl_tpl_put_int(r, v.u.i);
        break;
    case TPL_FLOAT:
        put_json_float(r, v.u.f);
        break;
    case TPL_STR:
        put_json_str(r, v, opt->ascii);
        break;
    case TPL_LIST:
    case TPL_TUPLE:
        put_json_list(r, v, opt, level);
        break;
    case TPL_DICT:
        put_json_dict(r, v.u.dict, opt, level);
        break;
    default:
        swl_tpl_fail(r, SWL_E_ARG, "tojson: a value of type %s is not JSON", swl_tpl_type_name(v));
    }
    swl_tpl_leave(r);
}
