/*
 * template_format.c: Python's two ways to format: '%s' % x and '{}'.format(x).
 */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One field's specification, the common part of both languages. */
typedef struct spec {
    swl_tpl_value fill;
    char align, sign, type;
    bool alt, comma, has_precision;
    int width, precision;
} spec;

enum { FIELD_MAX = 1 << 20, PRECISION_MAX = 100 };

static void put_padded(swl_tpl_run *r, const spec *f, swl_tpl_value s, int n_sign)
{
    int64_t pad = f->width - swl_tpl_text_length(s), left = pad > 0 ? pad : 0, i;

    if (f->align == '<' || pad <= 0)
        left = 0;
    else if (f->align == '^')
        left = pad / 2;
    if (f->align == '=')
        swl_tpl_put(r, s.u.s, (size_t)n_sign);
    for (i = 0; i < left && !swl_tpl_failed(r); i++)
        swl_tpl_put(r, f->fill.u.s, f->fill.n);
    swl_tpl_put(r, f->align == '=' ? s.u.s + n_sign : s.u.s, f->align == '=' ? s.n - (uint32_t)n_sign : s.n);
    for (i = left; i < pad && !swl_tpl_failed(r); i++)
        swl_tpl_put(r, f->fill.u.s, f->fill.n);
}

/* Thousands separators go in after the digits are known. */
static void put_digits(swl_tpl_run *r, const char *s, bool comma)
{
    size_t n = strcspn(s, ".e%"), i;

    for (i = 0; i < n; i++) {
        if (comma && i && (n - i) % 3 == 0)
            swl_tpl_puts(r, ",");
        swl_tpl_put(r, s + i, 1);
    }
    swl_tpl_puts(r, s + n);
}

static swl_tpl_value magnitude(swl_tpl_run *r, const spec *f, swl_tpl_value v, char type)
{
    char s[512], c_format[16];
    size_t mark = r->out_n;
    uint64_t u = v.u.i < 0 ? 0 - (uint64_t)v.u.i : (uint64_t)v.u.i;
    double d = fabs(swl_tpl_as_double(v));
    int i, n;

    if (type == 'd') {
        snprintf(s, sizeof s, "%llu", (unsigned long long)u);
    } else if (type == 'b') {
        for (n = 1; n < 64 && u >> n; n++)
            ;
        for (i = 0; i < n; i++)
            s[i] = (char)('0' + (u >> (n - 1 - i) & 1));
        s[n] = 0;
    } else if (strchr("xXo", type)) {
        snprintf(c_format, sizeof c_format, "%%ll%c", type);
        snprintf(s, sizeof s, c_format, (unsigned long long)u);
    } else if (type == 'r') {
        swl_tpl_put_float(r, d);
        return swl_tpl_capture(r, mark);
    } else if (type == '%') {
        snprintf(s, sizeof s, "%.*f%%", f->has_precision ? f->precision : 6, d * 100);
    } else {
        snprintf(c_format, sizeof c_format, f->alt ? "%%#.*%c" : "%%.*%c", type);
        snprintf(s, sizeof s, c_format, f->has_precision ? f->precision : 6, d);
    }
    for (i = 0; s[i]; i++)
        if (s[i] == ',') /* the C locale in force may write a comma for the point */
            s[i] = '.';
    put_digits(r, s, f->comma);
    return swl_tpl_capture(r, mark);
}

static void put_number(swl_tpl_run *r, spec *f, swl_tpl_value v, char type)
{
    bool negative = v.kind == TPL_FLOAT ? signbit(v.u.f) && !isnan(v.u.f) : v.u.i < 0;
    const char *sign = negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    const char *prefix = f->alt && type == 'x'   ? "0x"
                         : f->alt && type == 'X' ? "0X"
                         : f->alt && type == 'o' ? "0o"
                         : f->alt && type == 'b' ? "0b"
                                                 : "";
    swl_tpl_value body = magnitude(r, f, v, type), text;
    size_t mark = r->out_n;

    swl_tpl_puts(r, sign);
    swl_tpl_puts(r, prefix);
    swl_tpl_put(r, body.u.s, body.n);
    text = swl_tpl_capture(r, mark);
    if (!f->align)
        f->align = '>';
    if (!swl_tpl_failed(r))
        put_padded(r, f, text, (int)(strlen(sign) + strlen(prefix)));
}

static void put_string(swl_tpl_run *r, spec *f, swl_tpl_value s)
{
    if (f->has_precision && swl_tpl_text_length(s) > f->precision)
        s = swl_tpl_text_slice(r, s, 0, 1, f->precision);
    if (!f->align)
        f->align = '<';
    put_padded(r, f, s, 0);
}

static swl_tpl_value repr(swl_tpl_run *r, swl_tpl_value v)
{
    size_t mark = r->out_n;

    swl_tpl_put_repr(r, v);
    return swl_tpl_capture(r, mark);
}

/* A decimal number of the specification at s[*at]; bounded so that widths cannot ask for gigabytes. */
static int number(swl_tpl_run *r, swl_tpl_value s, uint32_t *at, int max)
{
    int64_t n = 0;

    for (; *at < s.n && s.u.s[*at] >= '0' && s.u.s[*at] <= '9'; ++*at)
        n = n > max ? n : n * 10 + (s.u.s[*at] - '0');
    if (n > max)
        swl_tpl_fail(r, SWL_E_BUDGET, "format: a width or precision above %d", max);
    return n > max ? max : (int)n;
}

static char peek(swl_tpl_value s, uint32_t at)
{
    return at < s.n ? s.u.s[at] : 0;
}

/* ---- % ----------------------------------------------------------------------------------------------------------- */

typedef struct percent_args {
    swl_tpl_value all;
    uint32_t used;
} percent_args;

static swl_tpl_value next_arg(swl_tpl_run *r, percent_args *a)
{
    uint32_t n = a->all.kind == TPL_TUPLE ? a->all.n : 1;

    if (a->used >= n) {
        swl_tpl_fail(r, SWL_E_ARG, "not enough arguments for format string");
        return swl_tpl_none();
    }
    a->used++;
    return a->all.kind == TPL_TUPLE ? a->all.u.items[a->used - 1] : a->all;
}

static void percent_flags(swl_tpl_value fmt, uint32_t *at, spec *f)
{
    for (; *at < fmt.n && strchr("-+ #0", fmt.u.s[*at]) && fmt.u.s[*at]; ++*at) {
        switch (fmt.u.s[*at]) {
        case '-':
            f->align = '<';
            break;
        case '0':
            f->align = f->align ? f->align : '=';
            break;
        case '#':
            f->alt = true;
            break;
        default:
            f->sign = f->sign == '+' ? '+' : fmt.u.s[*at];
        }
    }
}

static int percent_number(swl_tpl_run *r, swl_tpl_value fmt, uint32_t *at, percent_args *a, int max)
{
    swl_tpl_value v;

    if (peek(fmt, *at) != '*')
        return number(r, fmt, at, max);
    ++*at;
    v = next_arg(r, a);
    if (!swl_tpl_is_integral(v) || v.u.i < 0 || v.u.i > max)
        swl_tpl_fail(r, SWL_E_ARG, "format: '*' needs an integer from 0 to %d", max);
    return swl_tpl_failed(r) ? 0 : (int)v.u.i;
}

static void percent_field(swl_tpl_run *r, spec *f, swl_tpl_value v)
{
    if (f->align == '=') /* set by the flag 0, which means something for numbers only */
        f->fill = strchr("diueEfFgGxXo", f->type) ? swl_tpl_cstr("0") : swl_tpl_cstr(" ");
    switch (f->type) {
    case 's':
    case 'r':
    case 'a':
        f->align = f->align == '<' ? '<' : '>';
        put_string(r, f, f->type == 's' ? swl_tpl_str(r, v) : repr(r, v));
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (v.kind == TPL_FLOAT && strchr("diu", f->type) && fabs(v.u.f) < 9e18)
            v = swl_tpl_int((int64_t)v.u.f);
        if (!swl_tpl_is_integral(v))
            break;
        put_number(r, f, v, strchr("diu", f->type) ? 'd' : f->type);
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!swl_tpl_is_number(v))
            break;
        put_number(r, f, swl_tpl_float(swl_tpl_as_double(v)), f->type);
        return;
    default:
        swl_tpl_fail(r, SWL_E_ARG, "unsupported format character '%c'", f->type);
    }
    swl_tpl_fail(r, SWL_E_ARG, "%%%c format: a number is required, not %s", f->type, swl_tpl_type_name(v));
}

static swl_tpl_value percent_key(swl_tpl_run *r, swl_tpl_value fmt, uint32_t *at, percent_args *a)
{
    uint32_t from = ++*at;
    swl_tpl_value v = swl_tpl_none();

    while (*at < fmt.n && fmt.u.s[*at] != ')')
        ++*at;
    if (a->all.kind != TPL_DICT)
        swl_tpl_fail(r, SWL_E_ARG, "format requires a mapping");
    else if (!swl_tpl_dict_get(r, a->all.u.dict, swl_tpl_text(fmt.u.s + from, *at - from), &v))
        swl_tpl_fail(r, SWL_E_ARG, "format: no key '%.*s'", (int)(*at - from > 100 ? 100 : *at - from), fmt.u.s + from);
    ++*at;
    a->used = 1;
    return v;
}

/* What takes subscripts could be a mapping for named fields. */
static bool may_stay_unused(swl_tpl_value v)
{
    return v.kind == TPL_DICT || v.kind == TPL_LIST || v.kind == TPL_RANGE || v.kind == TPL_UNDEFINED;
}

swl_tpl_value swl_tpl_percent(swl_tpl_run *r, swl_tpl_value fmt, swl_tpl_value args)
{
    percent_args a = {.all = args};
    size_t mark = r->out_n;
    swl_tpl_value v;
    uint32_t at = 0, from;

    swl_tpl_charge(r, fmt.n / 16);
    while (at < fmt.n && !swl_tpl_failed(r)) {
        for (from = at; at < fmt.n && fmt.u.s[at] != '%'; at++)
            ;
        swl_tpl_put(r, fmt.u.s + from, at - from);
        if (at++ >= fmt.n)
            break;
        spec f = {.fill = swl_tpl_cstr(" ")};
        v = (swl_tpl_value){0};
        if (peek(fmt, at) == '(')
            v = percent_key(r, fmt, &at, &a);
        percent_flags(fmt, &at, &f);
        f.width = percent_number(r, fmt, &at, &a, FIELD_MAX);
        if (peek(fmt, at) == '.') {
            at++;
            f.has_precision = true;
            f.precision = percent_number(r, fmt, &at, &a, PRECISION_MAX);
        }
        f.type = peek(fmt, at++);
        if (f.type == '%')
            swl_tpl_puts(r, "%");
        else if (!f.type)
            swl_tpl_fail(r, SWL_E_ARG, "incomplete format");
        else
            percent_field(r, &f, v.kind ? v : next_arg(r, &a));
    }
    if (args.kind == TPL_TUPLE ? a.used < args.n : !a.used && !may_stay_unused(args))
        swl_tpl_fail(r, SWL_E_ARG, "not all arguments converted during string formatting");
    return swl_tpl_capture(r, mark);
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

static void parse_spec(swl_tpl_run *r, swl_tpl_value s, spec *f)
{
    uint32_t at = 0;
    int32_t cp;
    uint32_t len = s.n ? (uint32_t)swl_tpl_utf8(s.u.s, s.n, &cp) : 0;

    *f = (spec){.fill = swl_tpl_cstr(" ")};
    if (len && peek(s, len) && strchr("<>=^", peek(s, len))) {
        f->fill = swl_tpl_text(s.u.s, len);
        f->align = s.u.s[len];
        at = len + 1;
    } else if (peek(s, 0) && strchr("<>=^", s.u.s[0])) {
        f->align = s.u.s[at++];
    }
    if (peek(s, at) && strchr("+- ", s.u.s[at]))
        f->sign = s.u.s[at++];
    if (peek(s, at) == '#' && ++at)
        f->alt = true;
    if (peek(s, at) == '0') {
        at++;
        if (!f->align) {
            f->fill = swl_tpl_cstr("0");
            f->align = '=';
        }
    }
    f->width = number(r, s, &at, FIELD_MAX);
    if (peek(s, at) == ',' && ++at)
        f->comma = true;
    if (peek(s, at) == '.') {
        at++;
        f->has_precision = true;
        f->precision = number(r, s, &at, PRECISION_MAX);
    }
    f->type = peek(s, at);
    if (at + (f->type != 0) != s.n)
        swl_tpl_fail(r, SWL_E_ARG, "invalid format specifier");
}

static void put_formatted(swl_tpl_run *r, swl_tpl_value v, swl_tpl_value spec_text)
{
    spec f;

    if (!spec_text.n) {
        swl_tpl_put_str(r, v);
        return;
    }
    parse_spec(r, spec_text, &f);
    if (v.kind == TPL_STR && (!f.type || f.type == 's') && f.align != '=')
        put_string(r, &f, v);
    else if (swl_tpl_is_integral(v) && (!f.type || strchr("dxXob", f.type)))
        put_number(r, &f, v, f.type ? f.type : 'd');
    else if (swl_tpl_is_number(v) && f.type && strchr("eEfFgG%", f.type))
        put_number(r, &f, swl_tpl_float(swl_tpl_as_double(v)), f.type);
    else if (v.kind == TPL_FLOAT && !f.type)
        put_number(r, &f, v, f.has_precision ? 'g' : 'r');
    else
        swl_tpl_fail(r, SWL_E_ARG, "format: this specifier does not fit a value of type %s", swl_tpl_type_name(v));
}

/* Up to the next of the characters in `stop`. */
static swl_tpl_value until(swl_tpl_value s, uint32_t *at, const char *stop)
{
    uint32_t from = *at;

    while (*at < s.n && !(s.u.s[*at] && strchr(stop, s.u.s[*at])))
        ++*at;
    return swl_tpl_text(s.u.s + from, *at - from);
}

static bool is_index(swl_tpl_value s, int64_t *index)
{
    uint32_t i;

    for (*index = 0, i = 0; i < s.n; i++) {
        if (s.u.s[i] < '0' || s.u.s[i] > '9' || *index > 1000000)
            return false;
        *index = *index * 10 + (s.u.s[i] - '0');
    }
    return s.n > 0;
}

/* *next: the number of the next field without one; -1 once fields have numbers. */
static swl_tpl_value field_root(swl_tpl_run *r, swl_tpl_value name, bool automatic, const swl_tpl_args *a,
                                int64_t *next)
{
    int64_t index;
    int i;

    if (automatic || is_index(name, &index)) {
        if (*next && automatic != (*next > 0))
            swl_tpl_fail(r, SWL_E_ARG, "format: fields with and without numbers");
        index = automatic ? *next : index;
        *next = automatic ? *next + 1 : -1;
    } else {
        for (i = 0; i < a->n_named; i++)
            if (swl_tpl_equal(r, a->names[i], name))
                return a->named[i];
        swl_tpl_fail(r, SWL_E_ARG, "format: no argument '%.*s'", name.n > 100 ? 100 : (int)name.n, name.u.s);
        return swl_tpl_none();
    }
    if (index < a->n)
        return a->v[index];
    swl_tpl_fail(r, SWL_E_ARG, "format: no argument number %lld", (long long)index);
    return swl_tpl_none();
}

/* name[.attribute|[key]]...[!r|!s][:spec], the braces not included. */
static void put_field(swl_tpl_run *r, swl_tpl_value s, const swl_tpl_args *a, int64_t *next)
{
    uint32_t at = 0;
    swl_tpl_value name = until(s, &at, ".[!:"), key, v;
    int64_t index;
    char how = 0;

    v = field_root(r, name, !name.n && peek(s, at) != '.' && peek(s, at) != '[', a, next);
    while (!swl_tpl_failed(r) && (peek(s, at) == '.' || peek(s, at) == '[')) {
        if (s.u.s[at++] == '.') {
            v = swl_tpl_attr(r, v, until(s, &at, ".[!:"));
            continue;
        }
        key = until(s, &at, "]");
        at++;
        v = swl_tpl_item(r, v, is_index(key, &index) ? swl_tpl_int(index) : key);
    }
    if (peek(s, at) == '!') {
        how = peek(s, at + 1);
        at += 2;
        if (how != 'r' && how != 's')
            swl_tpl_fail(r, SWL_E_ARG, "format: unknown conversion");
    }
    if (at < s.n && s.u.s[at] != ':')
        swl_tpl_fail(r, SWL_E_ARG, "format: a field is malformed");
    if (swl_tpl_failed(r))
        return;
    v = how == 'r' ? repr(r, v) : how == 's' ? swl_tpl_str(r, v) : v;
    at = at < s.n ? at + 1 : s.n;
    put_formatted(r, v, swl_tpl_text(s.u.s + at, s.n - at));
}

swl_tpl_value swl_tpl_format(swl_tpl_run *r, swl_tpl_value fmt, const swl_tpl_args *a)
{
    size_t mark = r->out_n;
    int64_t next = 0;
    uint32_t at = 0;
    swl_tpl_value text;
    char c;

    swl_tpl_charge(r, fmt.n / 16);
    while (at < fmt.n && !swl_tpl_failed(r)) {
        text = until(fmt, &at, "{}");
        swl_tpl_put(r, text.u.s, text.n);
        c = peek(fmt, at++);
        if (!c)
            break;
        if (peek(fmt, at) == c) {
            swl_tpl_put(r, &c, 1);
            at++;
            continue;
        }
        text = until(fmt, &at, "{}");
        if (c == '}' || peek(fmt, at) != '}')
            swl_tpl_fail(r, SWL_E_ARG, "format: a brace without its partner");
        else
            put_field(r, text, a, &next);
        at++;
    }
    return swl_tpl_capture(r, mark);
}
