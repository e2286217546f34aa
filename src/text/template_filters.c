/*
 * template_filters.c: filters and tests, and the binding of arguments to named parameters. Filters that are generators
 * in jinja2 (map, select, unique, ...) are lazy here too: they cost nothing until read, are read once, and count as
 * true even when nothing will come.
 */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static bool name_is(swl_tpl_value v, const char *s, size_t n)
{
    return v.n == n && !memcmp(v.u.s, s, n);
}

static void bind_named(swl_tpl_run *r, const char *what, swl_tpl_value name, swl_tpl_value val, const char *params,
                       swl_tpl_value *out)
{
    size_t n;
    int i;

    for (i = 0; *params && *params != '/'; i++, params += n + (params[n] == ' ')) {
        n = strcspn(params, " ");
        if (!name_is(name, params, n))
            continue;
        if (out[i].kind != TPL_MISSING)
            swl_tpl_fail(r, SWL_E_ARG, "%s: argument '%.*s' is given twice", what, (int)n, params);
        out[i] = val;
        return;
    }
    swl_tpl_fail(r, SWL_E_ARG, "%s: no argument is named '%.*s'", what, (int)(name.n > 100 ? 100 : name.n), name.u.s);
}

bool swl_tpl_bind(swl_tpl_run *r, const char *what, const swl_tpl_args *a, const char *params, int n_required,
                  swl_tpl_value *out)
{
    int i, n_params = *params && strcmp(params, "/");
    const char *p;

    for (p = params; *p; p++)
        n_params += *p == ' ';
    for (i = 0; i < TPL_PARAMS_MAX && i < n_params; i++)
        out[i] = (swl_tpl_value){0};
    if (a->n > n_params)
        swl_tpl_fail(r, SWL_E_ARG, "%s: %d arguments, at most %d are taken", what, a->n, n_params);
    for (i = 0; i < a->n && !swl_tpl_failed(r); i++)
        out[i] = a->v[i];
    for (i = 0; i < a->n_named && !swl_tpl_failed(r); i++)
        bind_named(r, what, a->names[i], a->named[i], params, out);
    for (i = 0; i < n_required && !swl_tpl_failed(r); i++)
        if (out[i].kind == TPL_MISSING)
            swl_tpl_fail(r, SWL_E_ARG, "%s: argument %d is missing", what, i + 1);
    return !swl_tpl_failed(r);
}

static int64_t int_or(swl_tpl_run *r, swl_tpl_value v, int64_t otherwise)
{
    if (v.kind == TPL_MISSING)
        return otherwise;
    if (!swl_tpl_is_integral(v))
        swl_tpl_fail(r, SWL_E_ARG, "an integer is required, not %s", swl_tpl_type_name(v));
    return v.u.i;
}

static bool flag_or(swl_tpl_value v, bool otherwise)
{
    return v.kind == TPL_MISSING ? otherwise : swl_tpl_truth(v);
}

/* str(v), but text that is marked safe stays so (markupsafe.soft_str). */
static swl_tpl_value soft_str(swl_tpl_run *r, swl_tpl_value v)
{
    return v.kind == TPL_STR ? v : swl_tpl_str(r, v);
}

/* ---- attributes by path ------------------------------------------------------------------------------------------ */

static bool is_digits(swl_tpl_value s, int64_t *i)
{
    uint32_t k;

    for (*i = 0, k = 0; k < s.n && k < 18; k++) {
        if (s.u.s[k] < '0' || s.u.s[k] > '9')
            return false;
        *i = *i * 10 + (s.u.s[k] - '0');
    }
    return s.n > 0 && k == s.n;
}

/* item.a.b.0 for attribute "a.b.0"; an attribute that is no string is a key itself. */
static swl_tpl_value get_path(swl_tpl_run *r, swl_tpl_value item, swl_tpl_value attr, swl_tpl_value otherwise)
{
    swl_tpl_value part;
    uint32_t from, to;
    int64_t index;

    if (attr.kind == TPL_NONE || attr.kind == TPL_MISSING)
        return item;
    if (attr.kind != TPL_STR) {
        item = swl_tpl_item(r, item, attr);
        return item.kind == TPL_UNDEFINED && otherwise.kind ? otherwise : item;
    }
    for (from = 0; from <= attr.n && !swl_tpl_failed(r); from = to + 1) {
        for (to = from; to < attr.n && attr.u.s[to] != '.'; to++)
            ;
        part = swl_tpl_text(attr.u.s + from, to - from);
        item = swl_tpl_item(r, item, is_digits(part, &index) ? swl_tpl_int(index) : part);
        if (item.kind == TPL_UNDEFINED && otherwise.kind != TPL_MISSING && otherwise.kind != TPL_NONE)
            item = otherwise;
    }
    return item;
}

static swl_tpl_value fold(swl_tpl_run *r, swl_tpl_value v, bool case_sensitive)
{
    return v.kind == TPL_STR && !case_sensitive ? swl_tpl_recase(r, v, TPL_LOWER) : v;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static swl_tpl_value f_trim(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    return swl_tpl_strip(r, soft_str(r, v), a[0], true, true);
}

static swl_tpl_value f_upper(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_recase(r, soft_str(r, v), TPL_UPPER);
}

static swl_tpl_value f_lower(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_recase(r, soft_str(r, v), TPL_LOWER);
}

static swl_tpl_value f_capitalize(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_recase(r, soft_str(r, v), TPL_CAPITALIZE);
}

static swl_tpl_value f_title(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    v = swl_tpl_recase(r, soft_str(r, v), TPL_TITLE_FILTER);
    v.flag = 0;
    return v;
}

static swl_tpl_value f_replace(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    return swl_tpl_replace(r, swl_tpl_str(r, v), swl_tpl_str(r, a[0]), swl_tpl_str(r, a[1]),
                           a[2].kind == TPL_NONE ? -1 : int_or(r, a[2], -1));
}

static swl_tpl_value f_string(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return soft_str(r, v);
}

static swl_tpl_value f_safe(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    v = soft_str(r, v);
    v.flag = 1;
    return v;
}

static swl_tpl_value f_escape(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_escape(r, v);
}

static swl_tpl_value f_forceescape(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_escape(r, swl_tpl_str(r, v));
}

static swl_tpl_value f_indent(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value with = a[0], lines;
    size_t mark = r->out_n;
    int64_t width = 4, k;
    uint32_t i;

    if (with.kind != TPL_STR) {
        width = int_or(r, with, 4);
        with = swl_tpl_cstr(" ");
    } else {
        width = 1;
    }
    if (v.kind != TPL_STR)
        swl_tpl_binary(r, OP_ADD, v, swl_tpl_cstr("\n"));
    if (swl_tpl_failed(r))
        return v;
    lines = swl_tpl_splitlines(r, swl_tpl_concat(r, v, swl_tpl_cstr("\n")), false);
    for (i = 0; i < lines.n && !swl_tpl_failed(r); i++) {
        swl_tpl_puts(r, i ? "\n" : "");
        for (k = 0; k < width && (i ? lines.u.items[i].n || flag_or(a[2], false) : flag_or(a[1], false)); k++)
            swl_tpl_put(r, with.u.s, swl_tpl_failed(r) ? (k = width, 0) : with.n);
        swl_tpl_put(r, lines.u.items[i].u.s, lines.u.items[i].n);
    }
    lines = swl_tpl_capture(r, mark);
    lines.flag = v.flag;
    return lines;
}

static swl_tpl_value f_center(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value args[1] = {a[0].kind ? a[0] : swl_tpl_int(80)};
    swl_tpl_value method = swl_tpl_attr(r, soft_str(r, v), swl_tpl_cstr("center"));

    return swl_tpl_call(r, method, &(swl_tpl_args){.v = args, .n = 1});
}

static swl_tpl_value f_truncate(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value end = a[2].kind ? a[2] : swl_tpl_cstr("...");
    int64_t length = int_or(r, a[0], 255), leeway = a[3].kind == TPL_NONE ? 5 : int_or(r, a[3], 5), keep, cut;

    if (end.kind != TPL_STR ||
        (v.kind != TPL_STR && (!swl_tpl_has_length(v) || swl_tpl_length(r, v) > length + leeway)))
        swl_tpl_fail(r, SWL_E_ARG, "truncate: a string is required, not %s", swl_tpl_type_name(v));
    keep = length - (swl_tpl_failed(r) ? 0 : swl_tpl_text_length(end));
    if (keep < 0 || leeway < 0)
        swl_tpl_fail(r, SWL_E_ARG, "truncate: the length is below that of the end mark");
    if (swl_tpl_failed(r) || v.kind != TPL_STR || swl_tpl_text_length(v) <= length + leeway)
        return v;
    v = swl_tpl_text_slice(r, v, 0, 1, keep);
    cut = flag_or(a[1], false) ? -1 : swl_tpl_find(r, v, swl_tpl_cstr(" "), 0, v.n, true);
    if (cut >= 0)
        v.n = (uint32_t)cut;
    return swl_tpl_concat(r, v, end);
}

static bool word_char(int32_t cp, swl_tpl_value c)
{
    return cp == '_' || swl_tpl_text_is(c, "isalnum");
}

static swl_tpl_value f_wordcount(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    bool in = false, is;
    int64_t n = 0;
    size_t at, len;
    int32_t cp;

    (void)a;
    v = soft_str(r, v);
    for (at = 0; at < v.n; at += len, in = is) {
        len = (size_t)swl_tpl_utf8(v.u.s + at, v.n - at, &cp);
        is = word_char(cp, swl_tpl_text(v.u.s + at, len));
        n += is && !in;
    }
    swl_tpl_charge(r, v.n / 2);
    return swl_tpl_int(n);
}

static swl_tpl_value f_format(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a)
{
    swl_tpl_value args = swl_tpl_seq(TPL_TUPLE, a->v, (uint32_t)a->n);
    swl_tpl_dict *d;
    int i;

    if (a->n && a->n_named)
        swl_tpl_fail(r, SWL_E_ARG, "format: positional and named arguments at the same time");
    if (a->n_named) {
        d = swl_tpl_dict_new(r, (uint32_t)a->n_named);
        for (i = 0; i < a->n_named; i++)
            swl_tpl_dict_set(r, d, a->names[i], a->named[i]);
        args = swl_tpl_dict_value(TPL_DICT, d);
    }
    return swl_tpl_failed(r) ? v : swl_tpl_percent(r, soft_str(r, v), args);
}

static swl_tpl_value f_tojson(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_json_options opt = {.ascii = flag_or(a[0], false), .sort = flag_or(a[3], false)};
    swl_tpl_value pair;
    size_t mark = r->out_n;
    int64_t i;

    opt.pretty = a[1].kind != TPL_MISSING && a[1].kind != TPL_NONE;
    opt.item_sep = swl_tpl_cstr(opt.pretty ? "," : ", ");
    opt.key_sep = swl_tpl_cstr(": ");
    if (a[2].kind != TPL_MISSING && a[2].kind != TPL_NONE) {
        pair = swl_tpl_to_list(r, a[2]);
        if (pair.n != 2 || pair.u.items[0].kind != TPL_STR || pair.u.items[1].kind != TPL_STR)
            swl_tpl_fail(r, SWL_E_ARG, "tojson: separators must be a pair of strings");
        if (swl_tpl_failed(r))
            return v;
        opt.item_sep = pair.u.items[0];
        opt.key_sep = pair.u.items[1];
    }
    opt.indent = a[1];
    if (opt.pretty && a[1].kind != TPL_STR) {
        for (i = int_or(r, a[1], 0); i > 0 && !swl_tpl_failed(r); i--)
            swl_tpl_puts(r, " ");
        opt.indent = swl_tpl_capture(r, mark);
    }
    swl_tpl_put_json(r, v, &opt, 0);
    return swl_tpl_capture(r, mark);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* float(text): white space around, underscores between digits, nan and inf. */
static bool parse_float(swl_tpl_run *r, swl_tpl_value s, double *f)
{
    char buf[64], *end;
    uint32_t i, n = 0;

    s = swl_tpl_strip(r, s, swl_tpl_none(), true, true);
    if (!s.n || s.n >= sizeof buf)
        return false;
    for (i = 0; i < s.n; i++) {
        if (s.u.s[i] == '_' && i && i + 1 < s.n && s.u.s[i - 1] >= '0' && s.u.s[i - 1] <= '9')
            continue;
        if (!s.u.s[i] || !strchr("0123456789+-.eEinfatyINFATY", s.u.s[i]))
            return false;
        buf[n++] = s.u.s[i];
    }
    buf[n] = 0;
    *f = strtod(buf, &end);
    return !*end;
}

/* int(text, base), with a prefix where the base allows one. */
static bool parse_int(swl_tpl_run *r, swl_tpl_value s, int64_t base, int64_t *v)
{
    uint32_t i = 0, from;
    bool negative, digit = false;
    uint64_t u = 0;
    int d;

    s = swl_tpl_strip(r, s, swl_tpl_none(), true, true);
    negative = s.n && s.u.s[0] == '-';
    i += s.n && (s.u.s[0] == '-' || s.u.s[0] == '+');
    if (i + 1 < s.n && s.u.s[i] == '0' &&
        ((base == 16 && (s.u.s[i + 1] | 32) == 'x') || (base == 8 && (s.u.s[i + 1] | 32) == 'o') ||
         (base == 2 && (s.u.s[i + 1] | 32) == 'b')))
        i += 2;
    for (from = i; i < s.n; i++) {
        if (s.u.s[i] == '_' && digit && i > from) {
            digit = false;
            continue;
        }
        d = s.u.s[i] >= '0' && s.u.s[i] <= '9'                 ? s.u.s[i] - '0'
            : (s.u.s[i] | 32) >= 'a' && (s.u.s[i] | 32) <= 'z' ? (s.u.s[i] | 32) - 'a' + 10
                                                               : 99;
        digit = d < base;
        if (!digit || u > (INT64_MAX - (uint64_t)d) / (uint64_t)base)
            return false;
        u = u * (uint64_t)base + (uint64_t)d;
    }
    *v = negative ? -(int64_t)u : (int64_t)u;
    return digit;
}

static swl_tpl_value f_int(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    int64_t base = int_or(r, a[1], 10), i;
    double f = NAN;

    if (v.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, v);
    if (base < 2 || base > 36)
        swl_tpl_fail(r, SWL_E_ARG, "int: the base must be from 2 to 36");
    if (swl_tpl_failed(r))
        return v;
    if (swl_tpl_is_integral(v))
        return swl_tpl_int(v.u.i);
    if (v.kind == TPL_STR && parse_int(r, v, base, &i))
        return swl_tpl_int(i);
    if (v.kind == TPL_FLOAT)
        f = v.u.f;
    else if (v.kind != TPL_STR || !parse_float(r, v, &f))
        f = NAN;
    if (fabs(f) < 9.2e18)
        return swl_tpl_int((int64_t)f);
    if (!isnan(f) && !isinf(f))
        swl_tpl_fail(r, SWL_E_ARG, "int: the number does not fit in 64 bits");
    if (isinf(f) && v.kind == TPL_FLOAT)
        swl_tpl_fail(r, SWL_E_ARG, "int: infinity is no integer");
    return a[0].kind ? a[0] : swl_tpl_int(0);
}

static swl_tpl_value f_float(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    double f;

    if (v.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, v);
    if (swl_tpl_is_number(v))
        return swl_tpl_float(swl_tpl_as_double(v));
    if (v.kind == TPL_STR && parse_float(r, v, &f))
        return swl_tpl_float(f);
    return a[0].kind ? a[0] : swl_tpl_float(0);
}

static swl_tpl_value f_abs(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    if (v.kind == TPL_FLOAT)
        return swl_tpl_float(fabs(v.u.f));
    if (!swl_tpl_is_integral(v))
        swl_tpl_fail(r, SWL_E_ARG, "abs: a number is required, not %s", swl_tpl_type_name(v));
    return v.u.i < 0 ? swl_tpl_binary(r, OP_SUB, swl_tpl_int(0), v) : swl_tpl_int(v.u.i);
}

/* Decimal rounding, half to even on the exact value, as printf does it. */
static double round_to(double f, int64_t precision)
{
    double scale;
    char s[512];

    if (isnan(f) || isinf(f) || precision > 300)
        return f;
    if (precision >= 0) {
        snprintf(s, sizeof s, "%.*f", (int)(precision > 150 ? 150 : precision), f);
        return strtod(s, NULL);
    }
    scale = pow(10, (double)-precision);
    return isinf(scale) ? copysign(0, f) : rint(f / scale) * scale;
}

static swl_tpl_value f_round(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    int64_t precision = int_or(r, a[0], 0);
    swl_tpl_value method = a[1].kind ? a[1] : swl_tpl_cstr("common");
    double scale = pow(10, (double)precision), f;

    if (!swl_tpl_is_number(v))
        swl_tpl_fail(r, SWL_E_ARG, "round: a number is required, not %s", swl_tpl_type_name(v));
    if (swl_tpl_failed(r))
        return v;
    f = swl_tpl_as_double(v);
    if (swl_tpl_str_is(method, "common")) {
        if (swl_tpl_is_integral(v))
            return precision >= 0 ? swl_tpl_int(v.u.i) : swl_tpl_int((int64_t)round_to(f, precision));
        return swl_tpl_float(round_to(f, precision));
    }
    if (swl_tpl_str_is(method, "ceil"))
        return swl_tpl_float(ceil(f * scale) / scale);
    if (swl_tpl_str_is(method, "floor"))
        return swl_tpl_float(floor(f * scale) / scale);
    swl_tpl_fail(r, SWL_E_ARG, "round: the method must be common, ceil or floor");
    return v;
}

static swl_tpl_value f_sum(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value sum = a[1].kind ? a[1] : swl_tpl_int(0), item;
    swl_tpl_iter *it = swl_tpl_iterate(r, v);

    if (sum.kind == TPL_STR)
        swl_tpl_fail(r, SWL_E_ARG, "sum: strings cannot be summed");
    while (swl_tpl_next(r, it, &item))
        sum = swl_tpl_binary(r, OP_ADD, sum, get_path(r, item, a[0], swl_tpl_none()));
    return sum;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static swl_tpl_value f_length(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_int(swl_tpl_length(r, v));
}

static swl_tpl_value f_default(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)r;
    if (v.kind == TPL_UNDEFINED || (flag_or(a[1], false) && !swl_tpl_truth(v)))
        return a[0].kind ? a[0] : swl_tpl_cstr("");
    return v;
}

static swl_tpl_value f_list(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    (void)a;
    return swl_tpl_to_list(r, v);
}

static swl_tpl_value f_first(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_iter *it = swl_tpl_iterate(r, v);

    (void)a;
    return swl_tpl_next(r, it, &v) ? v : swl_tpl_undefined("no first item, sequence was empty");
}

static swl_tpl_value f_last(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value list;

    (void)a;
    if (v.kind == TPL_ITER)
        swl_tpl_fail(r, SWL_E_ARG, "last: a generator has no last item; make it a list first");
    list = swl_tpl_failed(r) ? swl_tpl_seq(TPL_LIST, NULL, 0) : swl_tpl_to_list(r, v);
    return list.n && !swl_tpl_failed(r) ? list.u.items[list.n - 1]
                                        : swl_tpl_undefined("no last item, sequence was empty");
}

static swl_tpl_value f_join(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value list = swl_tpl_rest(r, swl_tpl_iterate(r, v)),
                  by = a[0].kind ? swl_tpl_str(r, a[0]) : swl_tpl_cstr("");
    size_t mark = r->out_n;
    uint32_t i;

    for (i = 0; i < list.n && !swl_tpl_failed(r); i++) {
        swl_tpl_put(r, by.u.s, i ? by.n : 0);
        swl_tpl_put_str(r, get_path(r, list.u.items[i], a[1], swl_tpl_none()));
    }
    return swl_tpl_capture(r, mark);
}

static swl_tpl_value iter_value(swl_tpl_iter *it)
{
    return it ? (swl_tpl_value){.kind = TPL_ITER, .u.iter = it} : swl_tpl_undefined("");
}

static swl_tpl_value f_reverse(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value list, *items;
    swl_tpl_iter *it;
    uint32_t i;

    (void)a;
    if (v.kind == TPL_STR)
        return swl_tpl_slice(r, v, swl_tpl_none(), swl_tpl_none(), swl_tpl_int(-1));
    list = swl_tpl_to_list(r, v);
    items = swl_tpl_alloc(r, (size_t)list.n + 1, sizeof *items);
    for (i = 0; items && i < list.n && !swl_tpl_failed(r); i++)
        items[i] = list.u.items[list.n - 1 - i];
    list = swl_tpl_seq(TPL_LIST, items, list.n);
    if (v.kind == TPL_ITER) /* jinja2 gives a list here, an iterator otherwise */
        return list;
    it = swl_tpl_iterate(r, list);
    return iter_value(it);
}

/* The key of sort: a list with one value per comma-separated attribute. Equal items of lists are not put in order, so
 * that values without an order can be sorted as long as they are equal. */
static swl_tpl_value sort_key(swl_tpl_run *r, swl_tpl_value item, swl_tpl_value attrs, bool case_sensitive)
{
    swl_tpl_value parts = swl_tpl_seq(TPL_LIST, &attrs, 1), *keys;
    uint32_t i;

    if (attrs.kind == TPL_STR)
        parts = swl_tpl_split(r, attrs, swl_tpl_cstr(","), -1, false);
    keys = swl_tpl_alloc(r, (size_t)parts.n + 1, sizeof *keys);
    for (i = 0; keys && i < parts.n && !swl_tpl_failed(r); i++)
        keys[i] = fold(r, get_path(r, item, parts.u.items[i], swl_tpl_none()), case_sensitive);
    return swl_tpl_seq(TPL_LIST, keys, parts.n);
}

static swl_tpl_value f_sort(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_value list = swl_tpl_rest(r, swl_tpl_iterate(r, v));
    swl_tpl_value *keys = swl_tpl_alloc(r, (size_t)list.n + 1, sizeof *keys),
                  *items = swl_tpl_alloc(r, (size_t)list.n + 1, sizeof *keys);
    uint32_t i;

    for (i = 0; i < list.n && !swl_tpl_failed(r); i++) {
        items[i] = list.u.items[i];
        keys[i] = sort_key(r, items[i], a[2], flag_or(a[1], false));
    }
    if (!swl_tpl_failed(r))
        swl_tpl_sort(r, items, keys, list.n, flag_or(a[0], false));
    return swl_tpl_seq(TPL_LIST, items, list.n);
}

static swl_tpl_value items_of(swl_tpl_run *r, swl_tpl_value v)
{
    swl_tpl_value method = swl_tpl_attr(r, v, swl_tpl_cstr("items")), view;

    view = swl_tpl_failed(r) ? swl_tpl_none() : swl_tpl_call(r, method, &(swl_tpl_args){0});
    return view;
}

static swl_tpl_value f_dictsort(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    bool by_value = swl_tpl_str_is(a[1], "value");
    swl_tpl_value *keys, *items;
    uint32_t i;

    if (a[1].kind && !by_value && !swl_tpl_str_is(a[1], "key"))
        swl_tpl_fail(r, SWL_E_ARG, "dictsort: by must be key or value");
    if (v.kind != TPL_DICT)
        swl_tpl_fail(r, SWL_E_ARG, "dictsort: a mapping is required, not %s", swl_tpl_type_name(v));
    v = items_of(r, v);
    if (swl_tpl_failed(r))
        return v;
    keys = swl_tpl_alloc(r, (size_t)v.n + 1, sizeof *keys);
    items = swl_tpl_alloc(r, (size_t)v.n + 1, sizeof *items);
    for (i = 0; i < v.n && !swl_tpl_failed(r); i++) {
        items[i] = v.u.items[i];
        keys[i] = fold(r, items[i].u.items[by_value], flag_or(a[0], false));
    }
    if (!swl_tpl_failed(r))
        swl_tpl_sort(r, items, keys, v.n, flag_or(a[2], false));
    return swl_tpl_seq(TPL_LIST, items, v.n);
}

static swl_tpl_value extreme(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a, int want)
{
    swl_tpl_iter *it = swl_tpl_iterate(r, v);
    swl_tpl_value best, best_key, item, key;

    if (!swl_tpl_next(r, it, &best))
        return swl_tpl_undefined("no aggregated item, sequence was empty");
    best_key = fold(r, get_path(r, best, a[1], swl_tpl_none()), flag_or(a[0], false));
    while (swl_tpl_next(r, it, &item)) {
        key = fold(r, get_path(r, item, a[1], swl_tpl_none()), flag_or(a[0], false));
        if (swl_tpl_compare(r, key, best_key) == want) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

static swl_tpl_value f_min(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    return extreme(r, v, a, -1);
}

static swl_tpl_value f_max(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    return extreme(r, v, a, 1);
}

/* groupby: pairs (key, items) in the order of the keys. */
static swl_tpl_value f_groupby(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    bool exact = flag_or(a[2], false);
    swl_tpl_value list = swl_tpl_rest(r, swl_tpl_iterate(r, v)), *items, *keys, *folded, *groups, *pair;
    uint32_t i, from, n = 0, size = list.n + 1;

    items = swl_tpl_alloc(r, size, sizeof *items);
    keys = swl_tpl_alloc(r, size, sizeof *keys);
    folded = swl_tpl_alloc(r, size, sizeof *folded);
    groups = swl_tpl_alloc(r, size, sizeof *groups);
    for (i = 0; i < list.n && !swl_tpl_failed(r); i++) {
        items[i] = list.u.items[i];
        keys[i] = get_path(r, items[i], a[0], a[1]);
        folded[i] = fold(r, keys[i], exact);
    }
    if (swl_tpl_failed(r))
        return v;
    swl_tpl_sort(r, items, folded, list.n, false);
    swl_tpl_sort(r, keys, folded, list.n, false);
    for (from = 0; from < list.n && !swl_tpl_failed(r); from = i) {
        for (i = from + 1; i < list.n && swl_tpl_equal(r, fold(r, keys[i], exact), fold(r, keys[from], exact)); i++)
            ;
        pair = swl_tpl_alloc(r, 2, sizeof *pair);
        if (!pair)
            break;
        pair[0] = keys[from];
        pair[1] = swl_tpl_seq(TPL_LIST, items + from, i - from);
        groups[n++] = swl_tpl_seq(TPL_TUPLE, pair, 2);
    }
    return swl_tpl_seq(TPL_LIST, groups, n);
}

/* ---- generators -------------------------------------------------------------------------------------------------- */

static swl_tpl_iter *generator(swl_tpl_run *r, swl_tpl_value v,
                               bool (*next)(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out))
{
    swl_tpl_iter *it = swl_tpl_alloc(r, 1, sizeof *it);

    if (it) {
        if (!swl_tpl_iterable(v) && swl_tpl_truth(v))
            it->error = "a value that is not iterable was to be filtered";
        else
            it->from = swl_tpl_truth(v) ? swl_tpl_iterate(r, v) : NULL;
        it->next = next;
    }
    return it;
}

static bool next_pair(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    return swl_tpl_next(r, it->from, out);
}

static swl_tpl_value f_items(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_iter *it = generator(r, v.kind == TPL_DICT ? items_of(r, v) : swl_tpl_none(), next_pair);

    (void)a;
    if (it && v.kind != TPL_DICT && v.kind != TPL_UNDEFINED)
        it->error = "Can only get item pairs from a mapping.";
    return iter_value(it);
}

static bool next_unique(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    swl_tpl_value key, seen;

    while (swl_tpl_next(r, it->from, out)) {
        key = fold(r, get_path(r, *out, it->attr, swl_tpl_none()), it->mode);
        if (swl_tpl_dict_get(r, it->seen, key, &seen))
            continue;
        swl_tpl_dict_set(r, it->seen, key, swl_tpl_none());
        return true;
    }
    return false;
}

static swl_tpl_value f_unique(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    swl_tpl_iter *it = generator(r, v, next_unique);

    if (it) {
        if (!swl_tpl_iterable(v))
            it->error = "unique: a value that is not iterable";
        it->mode = flag_or(a[0], false);
        it->attr = a[1];
        it->seen = swl_tpl_dict_new(r, 0);
    }
    return iter_value(it);
}

static bool next_mapped(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    if (!swl_tpl_next(r, it->from, out))
        return false;
    *out = it->func >= 0 ? swl_tpl_filter_call(r, it->func, *out, &it->args)
                         : get_path(r, *out, it->attr, it->args.n ? it->args.v[0] : (swl_tpl_value){0});
    return true;
}

/* The arguments from number `from` on. */
static swl_tpl_args args_from(const swl_tpl_args *a, int from)
{
    swl_tpl_args rest = *a;

    rest.v = a->n > from ? a->v + from : NULL;
    rest.n = a->n > from ? a->n - from : 0;
    return rest;
}

static swl_tpl_value f_map(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a)
{
    swl_tpl_iter *it = generator(r, v, next_mapped);
    swl_tpl_value named[2];

    if (!it || !it->from)
        return iter_value(it);
    it->func = -1;
    if (a->n) {
        it->func = a->v[0].kind == TPL_STR ? swl_tpl_filter_find(a->v[0]) : -1;
        it->args = args_from(a, 1);
        if (it->func < 0)
            it->error = "map: no filter of that name";
    } else if (!a->n_named) {
        it->error = "map requires a filter argument";
    } else if (swl_tpl_bind(r, "map", a, "attribute default", 1, named)) {
        it->attr = named[0];
        it->args.v = swl_tpl_alloc(r, 1, sizeof *it->args.v);
        it->args.n = it->args.v && named[1].kind ? 1 : 0;
        if (it->args.n)
            it->args.v[0] = named[1];
    }
    return iter_value(it);
}

/* mode: bit 0 reject, bit 1 by attribute. */
static bool next_selected(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    swl_tpl_value v;
    bool yes;

    while (swl_tpl_next(r, it->from, out)) {
        v = it->mode & 2 ? get_path(r, *out, it->attr, swl_tpl_none()) : *out;
        yes = it->func >= 0 ? swl_tpl_test_call(r, it->func, v, &it->args) : swl_tpl_truth(v);
        if (yes != (it->mode & 1))
            return true;
    }
    return false;
}

static swl_tpl_value select_items(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a, int mode)
{
    swl_tpl_iter *it = generator(r, v, next_selected);
    int at = mode >> 1;

    if (!it || !it->from)
        return iter_value(it);
    it->mode = mode;
    it->func = -1;
    if (a->n < at)
        it->error = "the name of an attribute is missing";
    else if (at)
        it->attr = a->v[0];
    if (a->n > at) {
        it->func = a->v[at].kind == TPL_STR ? swl_tpl_test_find(a->v[at]) : -1;
        it->args = args_from(a, at + 1);
        if (it->func < 0)
            it->error = "select or reject: no test of that name";
    }
    return iter_value(it);
}

static swl_tpl_value f_select(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a)
{
    return select_items(r, v, a, 0);
}

static swl_tpl_value f_reject(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a)
{
    return select_items(r, v, a, 1);
}

static swl_tpl_value f_selectattr(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a)
{
    return select_items(r, v, a, 2);
}

static swl_tpl_value f_rejectattr(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a)
{
    return select_items(r, v, a, 3);
}

/* n items of list from `from` on, filled up to `size` when a fill is given. */
static swl_tpl_value filled(swl_tpl_run *r, swl_tpl_value list, uint32_t from, uint32_t n, int64_t size,
                            swl_tpl_value fill)
{
    swl_tpl_value *items;
    uint32_t i;

    if (!fill.kind || fill.kind == TPL_NONE || size <= (int64_t)n)
        return swl_tpl_seq(TPL_LIST, n ? list.u.items + from : NULL, n);
    items = swl_tpl_alloc(r, (size_t)size, sizeof *items);
    for (i = 0; items && i < size; i++)
        items[i] = i < n ? list.u.items[from + i] : fill;
    return swl_tpl_seq(TPL_LIST, items, (uint32_t)size);
}

static swl_tpl_value batch_rows(swl_tpl_run *r, swl_tpl_value list, int64_t size, swl_tpl_value fill)
{
    swl_tpl_value *rows = swl_tpl_alloc(r, (size_t)list.n + 1, sizeof *rows);
    uint32_t from, n = 0, len;

    for (from = 0; from < list.n && !swl_tpl_failed(r); from += len) {
        len = list.n - from < size ? list.n - from : (uint32_t)size;
        rows[n++] = filled(r, list, from, len, size, fill);
    }
    return swl_tpl_seq(TPL_LIST, rows, n);
}

static swl_tpl_value slice_rows(swl_tpl_run *r, swl_tpl_value list, int64_t n, swl_tpl_value fill)
{
    swl_tpl_value *rows = swl_tpl_alloc(r, (size_t)n, sizeof *rows);
    uint32_t from = 0, len, extra = list.n % (uint32_t)n;
    int64_t i;

    for (i = 0; rows && i < n && !swl_tpl_failed(r); i++, from += len) {
        len = list.n / (uint32_t)n + (i < extra);
        rows[i] = filled(r, list, from, len, i >= extra ? len + 1 : len, fill);
    }
    return swl_tpl_seq(TPL_LIST, rows, (uint32_t)n);
}

/* All rows are made when the first is asked for. mode: 0 batch, 1 slice. */
static bool next_row(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    swl_tpl_value list;
    int64_t n;

    if (!it->from) {
        list = swl_tpl_rest(r, swl_tpl_iterate(r, it->src));
        n = int_or(r, it->args.v[0], 1);
        if (n < 1 || n > TPL_RANGE_MAX)
            swl_tpl_fail(r, SWL_E_ARG, "batch or slice: the number must be from 1 to %d", TPL_RANGE_MAX);
        if (swl_tpl_failed(r))
            return false;
        list = it->mode ? slice_rows(r, list, n, it->args.v[1]) : batch_rows(r, list, n, it->args.v[1]);
        it->from = swl_tpl_iterate(r, list);
    }
    return swl_tpl_next(r, it->from, out);
}

static swl_tpl_value rows_value(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a, int mode)
{
    swl_tpl_iter *it = swl_tpl_alloc(r, 1, sizeof *it);
    swl_tpl_value *args = swl_tpl_alloc(r, 2, sizeof *args);

    if (!it || !args)
        return v;
    memcpy(args, a, 2 * sizeof *args);
    *it = (swl_tpl_iter){.next = next_row, .src = v, .args = {.v = args, .n = 2}, .mode = mode};
    return iter_value(it);
}

static swl_tpl_value f_batch(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    return rows_value(r, v, a, 0);
}

static swl_tpl_value f_slice(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    return rows_value(r, v, a, 1);
}

static swl_tpl_value f_attr(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a)
{
    /* A member of a mapping is no attribute. */
    if (a[0].kind != TPL_STR || v.kind == TPL_DICT)
        return swl_tpl_undefined_at(TPL_UNDEF_ATTR, soft_str(r, a[0]));
    return swl_tpl_attr(r, v, a[0]);
}

/* ---- the table of filters ---------------------------------------------------------------------------------------- */

/* clang-format off */
static const struct filter {
    const char *name, *params;
    int n_required;
    swl_tpl_value (*fn)(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_value *a);
    swl_tpl_value (*raw)(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_args *a); /* takes the arguments as they are */
} filters[] = {
    {"abs", "", 0, f_abs, NULL},
    {"attr", "name", 1, f_attr, NULL},
    {"batch", "linecount fill_with", 1, f_batch, NULL},
    {"capitalize", "", 0, f_capitalize, NULL},
    {"center", "width", 0, f_center, NULL},
    {"count", "", 0, f_length, NULL},
    {"d", "default_value boolean", 0, f_default, NULL},
    {"default", "default_value boolean", 0, f_default, NULL},
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort, NULL},
    {"e", "", 0, f_escape, NULL},
    {"escape", "", 0, f_escape, NULL},
    {"first", "", 0, f_first, NULL},
    {"float", "default", 0, f_float, NULL},
    {"forceescape", "", 0, f_forceescape, NULL},
    {"format", "", 0, NULL, f_format},
    {"groupby", "attribute default case_sensitive", 1, f_groupby, NULL},
    {"indent", "width first blank", 0, f_indent, NULL},
    {"int", "default base", 0, f_int, NULL},
    {"items", "", 0, f_items, NULL},
    {"join", "d attribute", 0, f_join, NULL},
    {"last", "", 0, f_last, NULL},
    {"length", "", 0, f_length, NULL},
    {"list", "", 0, f_list, NULL},
    {"lower", "", 0, f_lower, NULL},
    {"map", "", 0, NULL, f_map},
    {"max", "case_sensitive attribute", 0, f_max, NULL},
    {"min", "case_sensitive attribute", 0, f_min, NULL},
    {"reject", "", 0, NULL, f_reject},
    {"rejectattr", "", 0, NULL, f_rejectattr},
    {"replace", "old new count", 2, f_replace, NULL},
    {"reverse", "", 0, f_reverse, NULL},
    {"round", "precision method", 0, f_round, NULL},
    {"safe", "", 0, f_safe, NULL},
    {"select", "", 0, NULL, f_select},
    {"selectattr", "", 0, NULL, f_selectattr},
    {"slice", "slices fill_with", 1, f_slice, NULL},
    {"sort", "reverse case_sensitive attribute", 0, f_sort, NULL},
    {"string", "", 0, f_string, NULL},
    {"sum", "attribute start", 0, f_sum, NULL},
    {"title", "", 0, f_title, NULL},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, f_tojson, NULL},
    {"trim", "chars", 0, f_trim, NULL},
    {"truncate", "length killwords end leeway", 0, f_truncate, NULL},
    {"unique", "case_sensitive attribute", 0, f_unique, NULL},
    {"upper", "", 0, f_upper, NULL},
    {"wordcount", "", 0, f_wordcount, NULL},
};
/* clang-format on */

int swl_tpl_filter_find(swl_tpl_value name)
{
    size_t i;

    for (i = 0; i < sizeof filters / sizeof *filters; i++)
        if (swl_tpl_str_is(name, filters[i].name))
            return (int)i;
    return -1;
}

swl_tpl_value swl_tpl_filter_call(swl_tpl_run *r, int filter, swl_tpl_value v, const swl_tpl_args *a)
{
    const struct filter *f = &filters[filter];
    swl_tpl_value bound[TPL_PARAMS_MAX] = {{0}}, result = swl_tpl_none();

    swl_tpl_charge(r, 1);
    if (!swl_tpl_enter(r))
        return result;
    if (f->raw)
        result = f->raw(r, v, a);
    else if (swl_tpl_bind(r, f->name, a, f->params, f->n_required, bound))
        result = f->fn(r, v, bound);
    swl_tpl_leave(r);
    return swl_tpl_failed(r) ? swl_tpl_none() : result;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* clang-format off */
typedef enum test {
    IS_BOOLEAN, IS_CALLABLE, IS_DEFINED, IS_DIVISIBLE, IS_EQ, IS_ESCAPED, IS_EVEN, IS_FALSE, IS_FILTER, IS_FLOAT, IS_GE,
    IS_GT, IS_IN, IS_INTEGER, IS_ITERABLE, IS_LE, IS_LOWER, IS_LT, IS_MAPPING, IS_NE, IS_NONE, IS_NUMBER, IS_ODD,
    IS_SAME, IS_SEQUENCE, IS_STRING, IS_TEST, IS_TRUE, IS_UNDEFINED, IS_UPPER
} test;

static const struct {
    const char *name;
    test test;
    int n_args;
} tests[] = {
    {"!=", IS_NE, 1}, {"<", IS_LT, 1}, {"<=", IS_LE, 1}, {"==", IS_EQ, 1}, {">", IS_GT, 1}, {">=", IS_GE, 1},
    {"boolean", IS_BOOLEAN, 0}, {"callable", IS_CALLABLE, 0}, {"defined", IS_DEFINED, 0},
    {"divisibleby", IS_DIVISIBLE, 1}, {"eq", IS_EQ, 1}, {"equalto", IS_EQ, 1}, {"escaped", IS_ESCAPED, 0},
    {"even", IS_EVEN, 0}, {"false", IS_FALSE, 0}, {"filter", IS_FILTER, 0}, {"float", IS_FLOAT, 0}, {"ge", IS_GE, 1},
    {"greaterthan", IS_GT, 1}, {"gt", IS_GT, 1}, {"in", IS_IN, 1}, {"integer", IS_INTEGER, 0},
    {"iterable", IS_ITERABLE, 0}, {"le", IS_LE, 1}, {"lessthan", IS_LT, 1}, {"lower", IS_LOWER, 0}, {"lt", IS_LT, 1},
    {"mapping", IS_MAPPING, 0}, {"ne", IS_NE, 1}, {"none", IS_NONE, 0}, {"number", IS_NUMBER, 0}, {"odd", IS_ODD, 0},
    {"sameas", IS_SAME, 1}, {"sequence", IS_SEQUENCE, 0}, {"string", IS_STRING, 0}, {"test", IS_TEST, 0},
    {"true", IS_TRUE, 0}, {"undefined", IS_UNDEFINED, 0}, {"upper", IS_UPPER, 0},
};
/* clang-format on */

int swl_tpl_test_find(swl_tpl_value name)
{
    size_t i;

    for (i = 0; i < sizeof tests / sizeof *tests; i++)
        if (swl_tpl_str_is(name, tests[i].name))
            return (int)i;
    return -1;
}

static bool remainder_is(swl_tpl_run *r, swl_tpl_value v, swl_tpl_value by, int64_t want)
{
    return swl_tpl_equal(r, swl_tpl_binary(r, OP_MOD, v, by), swl_tpl_int(want));
}

static bool has_order(swl_tpl_run *r, test t, swl_tpl_value v, swl_tpl_value other)
{
    int c = swl_tpl_compare(r, v, other);

    return c != 2 && (t == IS_LT ? c < 0 : t == IS_LE ? c <= 0 : t == IS_GT ? c > 0 : c >= 0);
}

static bool run_test(swl_tpl_run *r, test t, swl_tpl_value v, swl_tpl_value other)
{
    swl_tpl_charge(r, v.kind == TPL_STR ? v.n / 32 : 0);
    switch (t) {
    case IS_BOOLEAN:
        return v.kind == TPL_BOOL;
    case IS_CALLABLE:
        return v.kind >= TPL_LOOP || v.kind == TPL_UNDEFINED;
    case IS_DEFINED:
        return v.kind != TPL_UNDEFINED;
    case IS_DIVISIBLE:
        return remainder_is(r, v, other, 0);
    case IS_EQ:
        return swl_tpl_equal(r, v, other);
    case IS_ESCAPED:
        return v.kind == TPL_STR && v.flag;
    case IS_EVEN:
        return remainder_is(r, v, swl_tpl_int(2), 0);
    case IS_FALSE:
        return v.kind == TPL_BOOL && !v.u.i;
    case IS_FILTER:
        return swl_tpl_filter_find(v) >= 0;
    case IS_FLOAT:
        return v.kind == TPL_FLOAT;
    case IS_IN:
        return swl_tpl_contains(r, v, other);
    case IS_INTEGER:
        return v.kind == TPL_INT;
    case IS_ITERABLE:
        return swl_tpl_iterable(v);
    case IS_LOWER:
        return swl_tpl_text_is(swl_tpl_str(r, v), "islower");
    case IS_MAPPING:
        return v.kind == TPL_DICT;
    case IS_NE:
        return !swl_tpl_equal(r, v, other);
    case IS_NONE:
        return v.kind == TPL_NONE;
    case IS_NUMBER:
        return swl_tpl_is_number(v);
    case IS_ODD:
        return remainder_is(r, v, swl_tpl_int(2), 1);
    case IS_SAME:
        return swl_tpl_same(v, other);
    case IS_SEQUENCE: /* what has a length and takes subscripts */
        return v.kind == TPL_STR || v.kind == TPL_LIST || v.kind == TPL_TUPLE || v.kind == TPL_DICT ||
               v.kind == TPL_RANGE || v.kind == TPL_UNDEFINED;
    case IS_STRING:
        return v.kind == TPL_STR;
    case IS_TEST:
        return swl_tpl_test_find(v) >= 0;
    case IS_TRUE:
        return v.kind == TPL_BOOL && v.u.i;
    case IS_UNDEFINED:
        return v.kind == TPL_UNDEFINED;
    case IS_UPPER:
        return swl_tpl_text_is(swl_tpl_str(r, v), "isupper");
    default:
        return has_order(r, t, v, other);
    }
}

bool swl_tpl_test_call(swl_tpl_run *r, int index, swl_tpl_value v, const swl_tpl_args *a)
{
    swl_tpl_value other[1] = {{0}};

    swl_tpl_charge(r, 1);
    if (!swl_tpl_bind(r, tests[index].name, a, tests[index].n_args ? "other" : "", tests[index].n_args, other))
        return false;
    return run_test(r, tests[index].test, v, other[0]);
}
