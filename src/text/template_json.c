/*
 * template_json.c: JSON in and out: the caller's jansson trees as values (strings are borrowed, member order is kept),
 * and tojson, which is Python's json.dumps as transformers calls it.
 */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>

static tpl_value from_array(tpl_run *r, const json_t *j)
{
    size_t i, n = json_array_size(j);
    tpl_value *items = tpl_alloc(r, n, sizeof *items);

    for (i = 0; items && i < n; i++)
        items[i] = tpl_from_json(r, json_array_get(j, i));
    return tpl_seq(TPL_LIST, items, (uint32_t)n);
}

static tpl_value from_object(tpl_run *r, const json_t *j)
{
    json_t *obj = (json_t *)j; /* jansson's iterators are not const */
    tpl_dict *d = tpl_dict_new(r, (uint32_t)json_object_size(j));
    const char *key;
    json_t *val;

    json_object_foreach (obj, key, val) {
        tpl_dict_set(r, d, tpl_cstr(key), tpl_from_json(r, val));
        if (tpl_failed(r))
            break;
    }
    return tpl_dict_value(TPL_DICT, d);
}

tpl_value tpl_from_json(tpl_run *r, const json_t *j)
{
    tpl_value v = tpl_none();

    switch (json_typeof(j)) {
    case JSON_TRUE:
    case JSON_FALSE:
        return tpl_bool(json_is_true(j));
    case JSON_INTEGER:
        return tpl_int(json_integer_value(j));
    case JSON_REAL:
        return tpl_float(json_real_value(j));
    case JSON_STRING:
        if (json_string_length(j) > TPL_MEMORY_BYTES_MAX) {
            tpl_fail(r, SWL_E_BUDGET, "a string is longer than %d bytes", TPL_MEMORY_BYTES_MAX);
            return v;
        }
        return tpl_text(json_string_value(j), json_string_length(j));
    case JSON_ARRAY:
    case JSON_OBJECT:
        if (!tpl_enter(r))
            return v;
        v = json_is_array(j) ? from_array(r, j) : from_object(r, j);
        tpl_leave(r);
        return v;
    default:
        return v;
    }
}

static void put_escape(tpl_run *r, int32_t cp)
{
    char e[16];

    if (cp > 0xffff)
        snprintf(e, sizeof e, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)), (unsigned)(0xdc00 + (cp & 0x3ff)));
    else
        snprintf(e, sizeof e, "\\u%04x", (unsigned)cp);
    tpl_puts(r, e);
}

static void put_json_str(tpl_run *r, tpl_value v, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t i, len, plain = 0;
    const char *p;
    int32_t cp;
    char e[3] = "\\";

    tpl_puts(r, "\"");
    for (i = 0; i < v.n && !tpl_failed(r); i += len) {
        len = (size_t)tpl_utf8(v.u.s + i, v.n - i, &cp);
        p = cp ? memchr(from, cp < 0x80 ? cp : 0, sizeof from - 1) : NULL;
        if (!p && cp >= 0x20 && (!ascii || cp < 0x7f))
            continue;
        tpl_put(r, v.u.s + plain, i - plain);
        plain = i + len;
        e[1] = p ? to[p - from] : 0;
        if (p)
            tpl_puts(r, e);
        else
            put_escape(r, cp);
    }
    if (plain < v.n)
        tpl_put(r, v.u.s + plain, v.n - plain);
    tpl_puts(r, "\"");
}

static void put_json_float(tpl_run *r, double f)
{
    if (isnan(f) || isinf(f))
        tpl_puts(r, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        tpl_put_float(r, f);
}

static void put_json_key(tpl_run *r, tpl_value k, const tpl_json_options *opt)
{
    size_t mark = r->out_n;

    switch (k.kind) {
    case TPL_NONE:
        k = tpl_cstr("null");
        break;
    case TPL_BOOL:
        k = tpl_cstr(k.u.i ? "true" : "false");
        break;
    case TPL_INT:
        tpl_put_int(r, k.u.i);
        k = tpl_capture(r, mark);
        break;
    case TPL_FLOAT:
        put_json_float(r, k.u.f);
        k = tpl_capture(r, mark);
        break;
    case TPL_STR:
        break;
    default:
        tpl_fail(r, SWL_E_ARG, "tojson: a key of type %s", tpl_type_name(k));
    }
    put_json_str(r, k, opt->ascii);
}

static void put_newline(tpl_run *r, const tpl_json_options *opt, int level)
{
    if (!opt->pretty)
        return;
    tpl_puts(r, "\n");
    for (; level > 0 && !tpl_failed(r); level--)
        tpl_put(r, opt->indent.u.s, opt->indent.n);
}

static void put_json_dict(tpl_run *r, const tpl_dict *d, const tpl_json_options *opt, int level)
{
    tpl_value *keys = d->keys, *vals = d->vals;
    uint32_t i;

    if (opt->sort) {
        keys = tpl_alloc(r, d->n + 1, sizeof *keys);
        vals = tpl_alloc(r, d->n + 1, sizeof *vals);
        if (tpl_failed(r))
            return;
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(vals, d->vals, d->n * sizeof *vals);
        tpl_sort(r, vals, d->keys, d->n, false);
        tpl_sort(r, keys, d->keys, d->n, false);
    }
    tpl_puts(r, "{");
    for (i = 0; i < d->n && !tpl_failed(r); i++) {
        if (i)
            tpl_put(r, opt->item_sep.u.s, opt->item_sep.n);
        put_newline(r, opt, level + 1);
        put_json_key(r, keys[i], opt);
        tpl_put(r, opt->key_sep.u.s, opt->key_sep.n);
        tpl_put_json(r, vals[i], opt, level + 1);
    }
    if (d->n)
        put_newline(r, opt, level);
    tpl_puts(r, "}");
}

static void put_json_list(tpl_run *r, tpl_value v, const tpl_json_options *opt, int level)
{
    uint32_t i;

    tpl_puts(r, "[");
    for (i = 0; i < v.n && !tpl_failed(r); i++) {
        if (i)
            tpl_put(r, opt->item_sep.u.s, opt->item_sep.n);
        put_newline(r, opt, level + 1);
        tpl_put_json(r, v.u.items[i], opt, level + 1);
    }
    if (v.n)
        put_newline(r, opt, level);
    tpl_puts(r, "]");
}

void tpl_put_json(tpl_run *r, tpl_value v, const tpl_json_options *opt, int level)
{
    tpl_charge(r, 1);
    if (!tpl_enter(r))
        return;
    switch (v.kind) {
    case TPL_NONE:
        tpl_puts(r, "null");
        break;
    case TPL_BOOL:
        tpl_puts(r, v.u.i ? "true" : "false");
        break;
    case TPL_INT:
        tpl_put_int(r, v.u.i);
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
        tpl_fail(r, SWL_E_ARG, "tojson: a value of type %s is not JSON", tpl_type_name(v));
    }
    tpl_leave(r);
}
