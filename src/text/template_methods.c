/*
 * template_methods.c: what stands behind a dot or in brackets: members of mappings, methods of str, dict and list that
 * the immutable sandbox allows, the loop variable, subscripts and slices. As in jinja2, `x.y` prefers a method to a
 * member and `x['y']` the member to a method, and what is not there is undefined.
 */
#include "text/template_impl.h"

#include <stdio.h>

typedef swl_tpl_value (*method_fn)(swl_tpl_run *r, swl_tpl_value self, const swl_tpl_value *a, const char *name);

/* ---- str --------------------------------------------------------------------------------------------------------- */

static bool want_str(swl_tpl_run *r, swl_tpl_value v, const char *name)
{
    if (v.kind != TPL_STR)
        swl_tpl_fail(r, SWL_E_ARG, "%s: a string is required, not %s", name, swl_tpl_type_name(v));
    return v.kind == TPL_STR;
}

static int64_t int_or(swl_tpl_run *r, swl_tpl_value v, int64_t otherwise, const char *name)
{
    if (v.kind == TPL_MISSING)
        return otherwise;
    if (!swl_tpl_is_integral(v))
        swl_tpl_fail(r, SWL_E_ARG, "%s: an integer is required, not %s", name, swl_tpl_type_name(v));
    return v.u.i;
}

static swl_tpl_value m_recase(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    (void)a;
    return swl_tpl_recase(r, s,
                          *name == 'u'   ? TPL_UPPER
                          : *name == 'l' ? TPL_LOWER
                          : *name == 't' ? TPL_TITLE
                                         : TPL_CAPITALIZE);
}

static swl_tpl_value m_strip(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    return swl_tpl_strip(r, s, a[0], *name != 'r', *name != 'l');
}

static swl_tpl_value m_split(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    return swl_tpl_split(r, s, a[0], int_or(r, a[1], -1, name), *name == 'r');
}

static swl_tpl_value m_splitlines(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    (void)name;
    return swl_tpl_splitlines(r, s, swl_tpl_truth(a[0]));
}

/* The bytes that s[start:end] covers. */
static void byte_range(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name, size_t *from,
                       size_t *to)
{
    int64_t n = swl_tpl_text_length(s), start, end;
    swl_tpl_value part;

    swl_tpl_charge(r, s.n / 64);
    start = a[0].kind == TPL_NONE ? 0 : int_or(r, a[0], 0, name);
    end = a[1].kind == TPL_NONE ? n : int_or(r, a[1], n, name);
    start = start < 0 ? (start + n < 0 ? 0 : start + n) : start;
    end = end < 0 ? (end + n < 0 ? 0 : end + n) : end > n ? n : end;
    *from = 1;
    *to = 0; /* nothing, not even an empty string, is found behind the end */
    if (start > n || end < start)
        return;
    part = swl_tpl_text_slice(r, s, start, 1, end - start);
    *from = s.n ? (size_t)(part.u.s - s.u.s) : 0;
    *to = *from + part.n;
}

static bool has_affix(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value affix, size_t from, size_t to, bool end)
{
    if (!want_str(r, affix, end ? "endswith" : "startswith") || from > to || affix.n > to - from)
        return false;
    return !affix.n || !memcmp(s.u.s + (end ? to - affix.n : from), affix.u.s, affix.n);
}

static swl_tpl_value m_affix(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    size_t from, to;
    bool yes = false;
    uint32_t i;

    byte_range(r, s, a + 1, name, &from, &to);
    if (a[0].kind != TPL_TUPLE)
        return swl_tpl_bool(has_affix(r, s, a[0], from, to, *name == 'e'));
    for (i = 0; i < a[0].n && !yes && !swl_tpl_failed(r); i++)
        yes = has_affix(r, s, a[0].u.items[i], from, to, *name == 'e');
    return swl_tpl_bool(yes);
}

static swl_tpl_value m_remove_affix(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    bool end = !strcmp(name, "removesuffix");

    if (want_str(r, a[0], name) && has_affix(r, s, a[0], 0, s.n, end)) {
        s.u.s += end ? 0 : a[0].n;
        s.n -= a[0].n;
    }
    return s;
}

/* find, index and their right-hand twins count characters. */
static swl_tpl_value m_find(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    size_t from, to;
    int64_t at;

    byte_range(r, s, a + 1, name, &from, &to);
    if (!want_str(r, a[0], name))
        return swl_tpl_none();
    at = swl_tpl_find(r, s, a[0], from, to, *name == 'r');
    if (at < 0 && strstr(name, "index"))
        swl_tpl_fail(r, SWL_E_ARG, "%s: substring not found", name);
    return swl_tpl_int(at < 0 ? -1 : swl_tpl_text_length(swl_tpl_text(s.u.s, (size_t)at)));
}

static swl_tpl_value m_count_text(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    size_t from, to;
    int64_t at, n = 0;

    byte_range(r, s, a + 1, name, &from, &to);
    if (!want_str(r, a[0], name) || from > to)
        return swl_tpl_int(0);
    if (!a[0].n)
        return swl_tpl_int(swl_tpl_text_length(swl_tpl_text(s.u.s + from, to - from)) + 1);
    for (; (at = swl_tpl_find(r, s, a[0], from, to, false)) >= 0 && !swl_tpl_failed(r); n++) {
        from = (size_t)at + a[0].n;
        swl_tpl_charge(r, 1);
    }
    return swl_tpl_int(n);
}

static swl_tpl_value m_replace(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    if (!want_str(r, a[0], name) || !want_str(r, a[1], name))
        return s;
    return swl_tpl_replace(r, s, a[0], a[1], int_or(r, a[2], -1, name));
}

static swl_tpl_value m_join(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    swl_tpl_iter *it = swl_tpl_iterate(r, a[0]);
    size_t mark = r->out_n;
    swl_tpl_value parts = swl_tpl_rest(r, it);
    uint32_t i;

    for (i = 0; i < parts.n && want_str(r, parts.u.items[i], name) && !swl_tpl_failed(r); i++) {
        swl_tpl_put(r, s.u.s, i ? s.n : 0);
        swl_tpl_put(r, parts.u.items[i].u.s, parts.u.items[i].n);
    }
    return swl_tpl_capture(r, mark);
}

static swl_tpl_value m_is(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    (void)a;
    swl_tpl_charge(r, s.n / 16);
    return swl_tpl_bool(swl_tpl_text_is(s, name));
}

static swl_tpl_value m_partition(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    swl_tpl_value *items = swl_tpl_alloc(r, 3, sizeof *items), none = swl_tpl_cstr("");
    int64_t at;

    if (!want_str(r, a[0], name) || !items)
        return s;
    if (!a[0].n)
        swl_tpl_fail(r, SWL_E_ARG, "%s: empty separator", name);
    at = swl_tpl_find(r, s, a[0], 0, s.n, *name == 'r');
    if (at < 0) {
        items[0] = *name == 'r' ? none : s;
        items[1] = none;
        items[2] = *name == 'r' ? s : none;
    } else {
        items[0] = swl_tpl_text(s.u.s, (size_t)at);
        items[1] = a[0];
        items[2] = swl_tpl_text(s.u.s + at + a[0].n, s.n - (size_t)at - a[0].n);
    }
    return swl_tpl_seq(TPL_TUPLE, items, 3);
}

/* center, ljust, rjust, zfill. */
static swl_tpl_value m_pad(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_value *a, const char *name)
{
    swl_tpl_value fill = a[1].kind == TPL_STR ? a[1] : swl_tpl_cstr(*name == 'z' ? "0" : " ");
    int64_t width = int_or(r, a[0], 0, name), pad = width - swl_tpl_text_length(s), left, i;
    size_t mark = r->out_n, sign = *name == 'z' && s.n && (*s.u.s == '-' || *s.u.s == '+');

    left = *name == 'l' ? 0 : *name == 'c' ? pad / 2 + (pad & width & 1) : pad;
    if (pad <= 0)
        return s;
    if (pad > TPL_OUTPUT_BYTES_MAX)
        swl_tpl_fail(r, SWL_E_BUDGET, "%s: the width is too large", name);
    if (swl_tpl_text_length(fill) != 1)
        swl_tpl_fail(r, SWL_E_ARG, "%s: the fill must be one character", name);
    swl_tpl_put(r, s.u.s, sign);
    for (i = 0; i < left && !swl_tpl_failed(r); i++)
        swl_tpl_put(r, fill.u.s, fill.n);
    swl_tpl_put(r, s.u.s + sign, s.n - sign);
    for (; i < pad && !swl_tpl_failed(r); i++)
        swl_tpl_put(r, fill.u.s, fill.n);
    return swl_tpl_capture(r, mark);
}

/* ---- dict and list ----------------------------------------------------------------------------------------------- */

static swl_tpl_value m_get(swl_tpl_run *r, swl_tpl_value self, const swl_tpl_value *a, const char *name)
{
    swl_tpl_value v = a[1].kind == TPL_MISSING ? swl_tpl_none() : a[1];

    (void)name;
    swl_tpl_dict_get(r, self.u.dict, a[0], &v);
    return v;
}

static swl_tpl_value m_view(swl_tpl_run *r, swl_tpl_value self, const swl_tpl_value *a, const char *name)
{
    const swl_tpl_dict *d = self.u.dict;
    swl_tpl_value *items = d->vals, *pair, v;
    uint32_t i;

    (void)a;
    swl_tpl_charge(r, d->n / 4);
    if (*name == 'k')
        items = d->keys;
    if (*name == 'i') {
        items = swl_tpl_alloc(r, d->n + 1, sizeof *items);
        pair = swl_tpl_alloc(r, (size_t)d->n * 2 + 1, sizeof *pair);
        for (i = 0; items && pair && i < d->n; i++, pair += 2) {
            pair[0] = d->keys[i];
            pair[1] = d->vals[i];
            items[i] = swl_tpl_seq(TPL_TUPLE, pair, 2);
        }
    }
    v = swl_tpl_seq(TPL_VIEW, items, d->n);
    v.flag = *name == 'k' ? 0 : *name == 'v' ? 1 : 2;
    return v;
}

static swl_tpl_value m_copy(swl_tpl_run *r, swl_tpl_value self, const swl_tpl_value *a, const char *name)
{
    (void)r, (void)a, (void)name;
    return self; /* nothing can change it */
}

static swl_tpl_value m_index(swl_tpl_run *r, swl_tpl_value self, const swl_tpl_value *a, const char *name)
{
    swl_tpl_iter *it = swl_tpl_iterate(r, self);
    int64_t at, n = 0;
    swl_tpl_value v;

    for (at = 0; swl_tpl_next(r, it, &v); at++) {
        if (!swl_tpl_same(v, a[0]) && !swl_tpl_equal(r, v, a[0]))
            continue;
        if (*name == 'i')
            return swl_tpl_int(at);
        n++;
    }
    if (*name == 'i')
        swl_tpl_fail(r, SWL_E_ARG, "index: the value is not in the list");
    return swl_tpl_int(n);
}

/* ---- the loop variable ------------------------------------------------------------------------------------------- */

static swl_tpl_value loop_attr(swl_tpl_run *r, swl_tpl_loop *l, swl_tpl_value name)
{
    swl_tpl_value v;

    if (swl_tpl_str_is(name, "index"))
        return swl_tpl_int(l->index0 + 1);
    if (swl_tpl_str_is(name, "index0"))
        return swl_tpl_int(l->index0);
    if (swl_tpl_str_is(name, "first"))
        return swl_tpl_bool(l->index0 == 0);
    if (swl_tpl_str_is(name, "last"))
        return swl_tpl_bool(!swl_tpl_loop_peek(r, l, &v));
    if (swl_tpl_str_is(name, "length"))
        return swl_tpl_int(swl_tpl_loop_length(r, l));
    if (swl_tpl_str_is(name, "revindex"))
        return swl_tpl_int(swl_tpl_loop_length(r, l) - l->index0);
    if (swl_tpl_str_is(name, "revindex0"))
        return swl_tpl_int(swl_tpl_loop_length(r, l) - l->index0 - 1);
    if (swl_tpl_str_is(name, "previtem"))
        return l->index0 > 0 ? l->prev : swl_tpl_undefined("there is no previous item");
    if (swl_tpl_str_is(name, "nextitem"))
        return swl_tpl_loop_peek(r, l, &v) ? v : swl_tpl_undefined("there is no next item");
    if (swl_tpl_str_is(name, "depth"))
        return swl_tpl_int(l->depth0 + 1);
    if (swl_tpl_str_is(name, "depth0"))
        return swl_tpl_int(l->depth0);
    return swl_tpl_undefined_at(TPL_UNDEF_ATTR, name);
}

static swl_tpl_value loop_call(swl_tpl_run *r, swl_tpl_loop *l, const char *name, const swl_tpl_args *a)
{
    swl_tpl_value seen = swl_tpl_seq(TPL_TUPLE, a->v, (uint32_t)a->n);
    bool changed;

    if (!strcmp(name, "cycle")) {
        if (!a->n)
            swl_tpl_fail(r, SWL_E_ARG, "cycle: no items for cycling given");
        return a->n ? a->v[l->index0 % a->n] : swl_tpl_none();
    }
    changed = l->changed.kind == TPL_MISSING || !swl_tpl_equal(r, l->changed, seen);
    l->changed = seen;
    return swl_tpl_bool(changed);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct method {
    uint8_t kind;
    const char *name, *params;
    int n_required;
    method_fn fn; /* NULL: takes the arguments as they are */
} methods[] = {
    {TPL_STR, "capitalize", "", 0, m_recase},
    {TPL_STR, "center", "/width fill", 1, m_pad},
    {TPL_STR, "count", "/sub start end", 1, m_count_text},
    {TPL_STR, "endswith", "/suffix start end", 1, m_affix},
    {TPL_STR, "find", "/sub start end", 1, m_find},
    {TPL_STR, "format", "", 0, NULL},
    {TPL_STR, "index", "/sub start end", 1, m_find},
    {TPL_STR, "isalnum", "", 0, m_is},
    {TPL_STR, "isalpha", "", 0, m_is},
    {TPL_STR, "isdecimal", "", 0, m_is},
    {TPL_STR, "isdigit", "", 0, m_is},
    {TPL_STR, "islower", "", 0, m_is},
    {TPL_STR, "isnumeric", "", 0, m_is},
    {TPL_STR, "isspace", "", 0, m_is},
    {TPL_STR, "isupper", "", 0, m_is},
    {TPL_STR, "join", "/iterable", 1, m_join},
    {TPL_STR, "ljust", "/width fill", 1, m_pad},
    {TPL_STR, "lower", "", 0, m_recase},
    {TPL_STR, "lstrip", "/chars", 0, m_strip},
    {TPL_STR, "partition", "/sep", 1, m_partition},
    {TPL_STR, "removeprefix", "/prefix", 1, m_remove_affix},
    {TPL_STR, "removesuffix", "/suffix", 1, m_remove_affix},
    {TPL_STR, "replace", "/old new count", 2, m_replace},
    {TPL_STR, "rfind", "/sub start end", 1, m_find},
    {TPL_STR, "rindex", "/sub start end", 1, m_find},
    {TPL_STR, "rjust", "/width fill", 1, m_pad},
    {TPL_STR, "rpartition", "/sep", 1, m_partition},
    {TPL_STR, "rsplit", "sep maxsplit", 0, m_split},
    {TPL_STR, "rstrip", "/chars", 0, m_strip},
    {TPL_STR, "split", "sep maxsplit", 0, m_split},
    {TPL_STR, "splitlines", "keepends", 0, m_splitlines},
    {TPL_STR, "startswith", "/prefix start end", 1, m_affix},
    {TPL_STR, "strip", "/chars", 0, m_strip},
    {TPL_STR, "title", "", 0, m_recase},
    {TPL_STR, "upper", "", 0, m_recase},
    {TPL_STR, "zfill", "/width", 1, m_pad},
    {TPL_DICT, "copy", "", 0, m_copy},
    {TPL_DICT, "get", "/key default", 1, m_get},
    {TPL_DICT, "items", "", 0, m_view},
    {TPL_DICT, "keys", "", 0, m_view},
    {TPL_DICT, "values", "", 0, m_view},
    {TPL_LIST, "copy", "", 0, m_copy},
    {TPL_LIST, "count", "/value", 1, m_index},
    {TPL_LIST, "index", "/value", 1, m_index},
    {TPL_TUPLE, "count", "/value", 1, m_index},
    {TPL_TUPLE, "index", "/value", 1, m_index},
    {TPL_RANGE, "count", "/value", 1, m_index},
    {TPL_RANGE, "index", "/value", 1, m_index},
    {TPL_LOOP, "changed", "", 0, NULL},
    {TPL_LOOP, "cycle", "", 0, NULL},
};

/* Methods that would change their object: there, but not to be used. */
static bool is_mutator(int kind, swl_tpl_value name)
{
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    static const char *const of_list[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
    size_t i;

    for (i = 0; kind == TPL_DICT && i < sizeof of_dict / sizeof *of_dict; i++)
        if (swl_tpl_str_is(name, of_dict[i]))
            return true;
    for (i = 0; kind == TPL_LIST && i < sizeof of_list / sizeof *of_list; i++)
        if (swl_tpl_str_is(name, of_list[i]))
            return true;
    return false;
}

static bool find_method(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value name, swl_tpl_value *out)
{
    size_t i;

    for (i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == obj.kind && swl_tpl_str_is(name, methods[i].name))
            break;
    if (i == sizeof methods / sizeof *methods) {
        *out = swl_tpl_undefined_at(TPL_UNDEF_UNSAFE, name);
        return is_mutator(obj.kind, name);
    }
    *out = (swl_tpl_value){.kind = TPL_METHOD, .u.method = swl_tpl_alloc(r, 1, sizeof(swl_tpl_method))};
    if (swl_tpl_failed(r))
        return false;
    *out->u.method = (swl_tpl_method){.self = obj, .index = (int)i};
    return true;
}

swl_tpl_value swl_tpl_method_call(swl_tpl_run *r, const swl_tpl_method *m, const swl_tpl_args *a)
{
    const struct method *d = &methods[m->index];
    swl_tpl_value v[TPL_PARAMS_MAX] = {{0}};

    if (!d->fn)
        return m->self.kind == TPL_LOOP ? loop_call(r, m->self.u.loop, d->name, a) : swl_tpl_format(r, m->self, a);
    if (!swl_tpl_bind(r, d->name, a, d->params, d->n_required, v))
        return swl_tpl_none();
    return d->fn(r, m->self, v, d->name);
}

/* ---- attributes, subscripts -------------------------------------------------------------------------------------- */

swl_tpl_value swl_tpl_attr(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value name)
{
    swl_tpl_value v;

    if (obj.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, obj);
    if (swl_tpl_failed(r))
        return swl_tpl_none();
    if (find_method(r, obj, name, &v))
        return v;
    if ((obj.kind == TPL_DICT || obj.kind == TPL_NAMESPACE) && swl_tpl_dict_get(r, obj.u.dict, name, &v))
        return v;
    if (obj.kind == TPL_LOOP)
        return loop_attr(r, obj.u.loop, name);
    if (obj.kind == TPL_MACRO && swl_tpl_str_is(name, "name"))
        return obj.u.macro->node->val;
    return swl_tpl_undefined_at(TPL_UNDEF_ATTR, name);
}

static bool hashable(swl_tpl_value v)
{
    uint32_t i;

    if (v.kind == TPL_LIST || v.kind == TPL_DICT || v.kind == TPL_VIEW)
        return false;
    for (i = 0; v.kind == TPL_TUPLE && i < v.n; i++)
        if (v.u.items[i].kind == TPL_TUPLE || !hashable(v.u.items[i])) /* tuples in tuples: not as keys */
            return false;
    return true;
}

static bool indexed(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value key, swl_tpl_value *v)
{
    int64_t n, i;

    if (!swl_tpl_is_integral(key) ||
        !(obj.kind == TPL_STR || obj.kind == TPL_LIST || obj.kind == TPL_TUPLE || obj.kind == TPL_RANGE))
        return false;
    n = swl_tpl_length(r, obj);
    i = key.u.i < 0 ? key.u.i + n : key.u.i;
    if (i < 0 || i >= n)
        return false;
    if (obj.kind == TPL_STR)
        *v = swl_tpl_text_slice(r, obj, i, 1, 1);
    else if (obj.kind == TPL_RANGE)
        *v = swl_tpl_int((int64_t)((uint64_t)obj.u.range->start + (uint64_t)obj.u.range->step * (uint64_t)i));
    else
        *v = obj.u.items[i];
    return true;
}

static swl_tpl_value element_name(swl_tpl_run *r, swl_tpl_value key)
{
    size_t mark = r->out_n;

    if (key.kind == TPL_STR)
        return key;
    if (!swl_tpl_is_number(key))
        return swl_tpl_cstr(swl_tpl_type_name(key));
    swl_tpl_put_repr(r, key);
    return swl_tpl_capture(r, mark);
}

swl_tpl_value swl_tpl_item(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value key)
{
    swl_tpl_value v;

    if (obj.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, obj);
    if (swl_tpl_failed(r))
        return swl_tpl_none();
    if (obj.kind == TPL_DICT && hashable(key) && swl_tpl_dict_get(r, obj.u.dict, key, &v))
        return v;
    if (indexed(r, obj, key, &v))
        return v;
    if (key.kind == TPL_STR)
        return swl_tpl_attr(r, obj, key);
    return swl_tpl_undefined_at(TPL_UNDEF_ATTR, element_name(r, key));
}

static int64_t clip(swl_tpl_value v, int64_t n, int64_t step, int64_t otherwise)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n, i = v.u.i;

    if (v.kind == TPL_NONE)
        return otherwise;
    if (i < 0)
        i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static swl_tpl_value slice_range(swl_tpl_run *r, const swl_tpl_range *g, int64_t from, int64_t step, int64_t n)
{
    swl_tpl_range *s = swl_tpl_alloc(r, 1, sizeof *s);
    uint64_t start = (uint64_t)g->start + (uint64_t)g->step * (uint64_t)from, by = (uint64_t)g->step * (uint64_t)step;

    if (!s)
        return swl_tpl_none();
    *s = (swl_tpl_range){
        .start = (int64_t)start, .stop = (int64_t)(start + by * (uint64_t)n), .step = (int64_t)by, .n = (uint32_t)n};
    return (swl_tpl_value){.kind = TPL_RANGE, .u.range = s};
}

swl_tpl_value swl_tpl_slice(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value from, swl_tpl_value to, swl_tpl_value step)
{
    int64_t n, by = step.kind == TPL_NONE ? 1 : step.u.i, start, stop, count, i;
    swl_tpl_value *items;

    if (obj.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, obj);
    if (obj.kind != TPL_STR && obj.kind != TPL_LIST && obj.kind != TPL_TUPLE && obj.kind != TPL_RANGE)
        swl_tpl_fail(r, SWL_E_ARG, "a value of type %s cannot be sliced", swl_tpl_type_name(obj));
    if ((from.kind != TPL_NONE && !swl_tpl_is_integral(from)) || (to.kind != TPL_NONE && !swl_tpl_is_integral(to)) ||
        (step.kind != TPL_NONE && !swl_tpl_is_integral(step)))
        swl_tpl_fail(r, SWL_E_ARG, "slice indices must be integers or None");
    else if (by == 0)
        swl_tpl_fail(r, SWL_E_ARG, "the step of a slice must not be zero");
    if (swl_tpl_failed(r))
        return swl_tpl_none();
    n = swl_tpl_length(r, obj);
    by = by > n + 1 ? n + 1 : by < -n - 1 ? -n - 1 : by; /* longer steps reach nothing more */
    start = clip(from, n, by, by < 0 ? n - 1 : 0);
    stop = clip(to, n, by, by < 0 ? -1 : n);
    count =
        by > 0 ? (stop > start ? (stop - start - 1) / by + 1 : 0) : (start > stop ? (start - stop - 1) / -by + 1 : 0);
    if (obj.kind == TPL_STR)
        return swl_tpl_text_slice(r, obj, start, by, count);
    if (obj.kind == TPL_RANGE)
        return slice_range(r, obj.u.range, start, by, count);
    if (by == 1 || count == 0)
        return swl_tpl_seq(obj.kind, count ? obj.u.items + start : NULL, (uint32_t)count);
    items = swl_tpl_alloc(r, (size_t)count, sizeof *items);
    swl_tpl_charge(r, (uint64_t)count / 8);
    for (i = 0; items && i < count; i++)
        items[i] = obj.u.items[start + i * by];
    return swl_tpl_seq(obj.kind, items, (uint32_t)count);
}
