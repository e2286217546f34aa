/*
 * template_value.c: values as Python sees them (truth, length, equality, order, str, repr, iteration), dictionaries,
 * and what a run owns: its arena, its output, its limits and its one error.
 */
#include "text/template_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <utf8proc.h>

/* ---- errors and limits ------------------------------------------------------------------------------------------- */

bool swl_tpl_failed(const swl_tpl_run *r)
{
    return r->st != SWL_OK;
}

void swl_tpl_fail(swl_tpl_run *r, swl_status st, const char *fmt, ...)
{
    char text[640];
    va_list ap;

    if (r->st)
        return;
    r->st = st;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    swl_fail_at(r->err, st, r->path, -1, "template line %d: %s", r->line, text);
}

void swl_tpl_charge(swl_tpl_run *r, uint64_t steps)
{
    r->steps += steps;
    if (r->steps > TPL_STEPS_MAX)
        swl_tpl_fail(r, SWL_E_BUDGET, "the template ran for more than %d steps", TPL_STEPS_MAX);
}

bool swl_tpl_enter(swl_tpl_run *r)
{
    if (r->depth >= TPL_DEPTH_MAX)
        swl_tpl_fail(r, SWL_E_BUDGET, "nested deeper than %d levels", TPL_DEPTH_MAX);
    if (swl_tpl_failed(r))
        return false;
    r->depth++;
    return true;
}

void swl_tpl_leave(swl_tpl_run *r)
{
    r->depth--;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *take(swl_tpl_run *r, size_t n, size_t align)
{
    swl_tpl_arena *a = r->arena;
    swl_tpl_chunk *c = a->head;
    size_t pad = c ? (align - (uintptr_t)(c->data + c->n) % align) % align : 0, cap;

    if (swl_tpl_failed(r))
        return NULL;
    if (!c || n + pad > c->cap - c->n) {
        cap = n > 32768 ? n + n / 2 : 65536;
        if (n > TPL_MEMORY_BYTES_MAX || a->total + cap > TPL_MEMORY_BYTES_MAX) {
            swl_tpl_fail(r, SWL_E_BUDGET, "the template needs more than %d bytes of memory", TPL_MEMORY_BYTES_MAX);
            return NULL;
        }
        c = swl_calloc(1, sizeof *c + cap + align);
        if (!c) {
            swl_tpl_fail(r, SWL_E_NOMEM, "out of memory");
            return NULL;
        }
        c->cap = cap + align;
        c->next = a->head;
        a->head = c;
        a->total += cap;
        pad = (align - (uintptr_t)c->data % align) % align;
    }
    c->n += pad + n;
    return c->data + c->n - n;
}

void *swl_tpl_alloc(swl_tpl_run *r, size_t n, size_t size)
{
    if (n > TPL_MEMORY_BYTES_MAX / size) {
        swl_tpl_fail(r, SWL_E_BUDGET, "the template needs more than %d bytes of memory", TPL_MEMORY_BYTES_MAX);
        return NULL;
    }
    return take(r, n * size, 16);
}

void swl_tpl_arena_free(swl_tpl_arena *a)
{
    swl_tpl_chunk *c, *next;

    for (c = a->head; c; c = next) {
        next = c->next;
        swl_free(c);
    }
    a->head = NULL;
}

/* When `a` was the last thing made, `b` goes right behind it: a sum of many parts is copied once, not once per part.
 * Other views of `a` end before the new bytes. */
swl_tpl_value swl_tpl_concat(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    swl_tpl_chunk *c = r->arena->head;
    swl_tpl_value v = a;
    char *p;

    v.flag = a.flag | b.flag;
    if (!b.n || swl_tpl_failed(r))
        return v;
    v.n = a.n + b.n;
    swl_tpl_charge(r, b.n / 64);
    if (a.n && c && a.u.s + a.n == c->data + c->n && b.n <= c->cap - c->n) {
        memcpy(c->data + c->n, b.u.s, b.n);
        c->n += b.n;
        return v;
    }
    p = take(r, (size_t)a.n + b.n, 1);
    if (!p)
        return swl_tpl_undefined("");
    if (a.n)
        memcpy(p, a.u.s, a.n);
    memcpy(p + a.n, b.u.s, b.n);
    v.u.s = p;
    return v;
}

void swl_tpl_put(swl_tpl_run *r, const char *s, size_t n)
{
    size_t cap;
    char *p;

    swl_tpl_charge(r, 1 + n / 64);
    if (swl_tpl_failed(r) || !n)
        return;
    if (n > TPL_OUTPUT_BYTES_MAX || r->out_n + n > TPL_OUTPUT_BYTES_MAX) {
        swl_tpl_fail(r, SWL_E_BUDGET, "the text would be longer than %d bytes", TPL_OUTPUT_BYTES_MAX);
        return;
    }
    if (r->out_n + n >= r->out_cap) {
        cap = (r->out_n + n) * 2 + 4096;
        p = swl_realloc(r->out, cap, 1);
        if (!p) {
            swl_tpl_fail(r, SWL_E_NOMEM, "out of memory");
            return;
        }
        r->out = p;
        r->out_cap = cap;
    }
    memcpy(r->out + r->out_n, s, n);
    r->out_n += n;
}

void swl_tpl_puts(swl_tpl_run *r, const char *s)
{
    swl_tpl_put(r, s, strlen(s));
}

swl_tpl_value swl_tpl_capture(swl_tpl_run *r, size_t mark)
{
    size_t n = r->out_n > mark ? r->out_n - mark : 0;
    char *p = n ? take(r, n, 1) : NULL;

    if (p)
        memcpy(p, r->out + mark, n);
    if (r->out_n > mark)
        r->out_n = mark;
    return p ? swl_tpl_text(p, n) : swl_tpl_cstr("");
}

/* ---- making values ----------------------------------------------------------------------------------------------- */

swl_tpl_value swl_tpl_undefined_at(int what, swl_tpl_value name)
{
    return (swl_tpl_value){.kind = TPL_UNDEFINED, .flag = (uint8_t)what, .n = name.n, .u.s = name.u.s};
}

swl_tpl_value swl_tpl_undefined(const char *hint)
{
    return swl_tpl_undefined_at(TPL_UNDEF_HINT, swl_tpl_cstr(hint));
}

swl_tpl_value swl_tpl_none(void)
{
    return (swl_tpl_value){.kind = TPL_NONE};
}

swl_tpl_value swl_tpl_bool(bool b)
{
    return (swl_tpl_value){.kind = TPL_BOOL, .u.i = b};
}

swl_tpl_value swl_tpl_int(int64_t i)
{
    return (swl_tpl_value){.kind = TPL_INT, .u.i = i};
}

swl_tpl_value swl_tpl_float(double f)
{
    return (swl_tpl_value){.kind = TPL_FLOAT, .u.f = f};
}

swl_tpl_value swl_tpl_text(const char *s, size_t n)
{
    return (swl_tpl_value){.kind = TPL_STR, .n = (uint32_t)n, .u.s = s};
}

swl_tpl_value swl_tpl_cstr(const char *s)
{
    return swl_tpl_text(s, strlen(s));
}

swl_tpl_value swl_tpl_seq(int kind, const swl_tpl_value *items, uint32_t n)
{
    return (swl_tpl_value){.kind = (uint8_t)kind, .n = items ? n : 0, .u.items = items};
}

swl_tpl_value swl_tpl_dict_value(int kind, swl_tpl_dict *d)
{
    return d ? (swl_tpl_value){.kind = (uint8_t)kind, .u.dict = d} : swl_tpl_undefined("");
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

const char *swl_tpl_type_name(swl_tpl_value v)
{
    static const char *const names[] = {"missing",   "Undefined", "NoneType",    "bool",      "int",    "float",
                                        "str",       "list",      "tuple",       "dict view", "dict",   "range",
                                        "generator", "Namespace", "LoopContext", "Macro",     "method", "function"};

    return names[v.kind];
}

/* Using an undefined value beyond printing, testing and iterating it is the error that its maker prepared. */
void swl_tpl_use_undefined(swl_tpl_run *r, swl_tpl_value v)
{
    int n = v.n > 200 ? 200 : (int)v.n;

    switch (v.flag) {
    case TPL_UNDEF_NAME:
        swl_tpl_fail(r, SWL_E_ARG, "'%.*s' is undefined", n, v.u.s);
        break;
    case TPL_UNDEF_ATTR:
        swl_tpl_fail(r, SWL_E_ARG, "the object has no attribute or element '%.*s'", n, v.u.s);
        break;
    case TPL_UNDEF_UNSAFE:
        swl_tpl_fail(r, SWL_E_ARG, "access to '%.*s' is not allowed in a chat template", n, v.u.s);
        break;
    default:
        swl_tpl_fail(r, SWL_E_ARG, "%.*s", n, n ? v.u.s : "an undefined value was used");
    }
}

bool swl_tpl_is_seq(swl_tpl_value v)
{
    return v.kind == TPL_LIST || v.kind == TPL_TUPLE || v.kind == TPL_VIEW;
}

bool swl_tpl_is_integral(swl_tpl_value v)
{
    return v.kind == TPL_INT || v.kind == TPL_BOOL;
}

bool swl_tpl_is_number(swl_tpl_value v)
{
    return swl_tpl_is_integral(v) || v.kind == TPL_FLOAT;
}

double swl_tpl_as_double(swl_tpl_value v)
{
    return v.kind == TPL_FLOAT ? v.u.f : (double)v.u.i;
}

bool swl_tpl_str_is(swl_tpl_value v, const char *s)
{
    return v.kind == TPL_STR && v.n == strlen(s) && !memcmp(v.u.s, s, v.n);
}

bool swl_tpl_truth(swl_tpl_value v)
{
    switch (v.kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED:
    case TPL_NONE:
        return false;
    case TPL_BOOL:
    case TPL_INT:
        return v.u.i != 0;
    case TPL_FLOAT:
        return v.u.f != 0;
    case TPL_STR:
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
        return v.n != 0;
    case TPL_DICT:
        return v.u.dict->n != 0;
    case TPL_RANGE:
        return v.u.range->n != 0;
    default:
        return true;
    }
}

bool swl_tpl_same(swl_tpl_value a, swl_tpl_value b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == TPL_NONE)
        return true;
    if (a.kind == TPL_UNDEFINED)
        return false;
    return a.n == b.n && a.u.i == b.u.i && (!swl_tpl_is_seq(a) || a.n);
}

static int compare_int_double(int64_t i, double f)
{
    int64_t t;

    if (isnan(f))
        return 2;
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    t = (int64_t)f;
    if (i != t)
        return i < t ? -1 : 1;
    return (double)t < f ? -1 : (double)t > f;
}

static int compare_numbers(swl_tpl_value a, swl_tpl_value b)
{
    int c;

    if (a.kind == TPL_FLOAT && b.kind == TPL_FLOAT)
        return isnan(a.u.f) || isnan(b.u.f) ? 2 : a.u.f < b.u.f ? -1 : a.u.f > b.u.f;
    if (b.kind == TPL_FLOAT)
        return compare_int_double(a.u.i, b.u.f);
    if (a.kind == TPL_FLOAT) {
        c = compare_int_double(b.u.i, a.u.f);
        return c == 2 ? 2 : -c;
    }
    return a.u.i < b.u.i ? -1 : a.u.i > b.u.i;
}

static bool equal_dicts(swl_tpl_run *r, const swl_tpl_dict *a, const swl_tpl_dict *b)
{
    swl_tpl_value v;
    uint32_t i;

    if (a->n != b->n)
        return false;
    for (i = 0; i < a->n; i++)
        if (!swl_tpl_dict_get(r, b, a->keys[i], &v) || !swl_tpl_equal(r, a->vals[i], v))
            return false;
    return true;
}

static bool equal_inside(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    uint32_t i;

    if (a.kind == TPL_DICT)
        return equal_dicts(r, a.u.dict, b.u.dict);
    if (a.n != b.n || a.flag != b.flag)
        return false;
    swl_tpl_charge(r, a.n / 4);
    for (i = 0; i < a.n; i++)
        if (!swl_tpl_same(a.u.items[i], b.u.items[i]) && !swl_tpl_equal(r, a.u.items[i], b.u.items[i]))
            return false;
    return true;
}

bool swl_tpl_equal(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    bool equal;

    swl_tpl_charge(r, 1);
    if (swl_tpl_is_number(a) && swl_tpl_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a.kind != b.kind || swl_tpl_failed(r))
        return false;
    switch (a.kind) {
    case TPL_UNDEFINED:
    case TPL_NONE:
        return true;
    case TPL_STR:
        swl_tpl_charge(r, a.n / 64);
        return a.n == b.n && (!a.n || !memcmp(a.u.s, b.u.s, a.n));
    case TPL_RANGE:
        return a.u.range->n == b.u.range->n &&
               (!a.u.range->n ||
                (a.u.range->start == b.u.range->start && (a.u.range->n == 1 || a.u.range->step == b.u.range->step)));
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
    case TPL_DICT:
        if (!swl_tpl_enter(r))
            return false;
        equal = equal_inside(r, a, b);
        swl_tpl_leave(r);
        return equal;
    default:
        return a.u.iter == b.u.iter;
    }
}

static int compare_seqs(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    uint32_t i, n = a.n < b.n ? a.n : b.n;
    int c = 2;

    if (!swl_tpl_enter(r))
        return 2;
    swl_tpl_charge(r, n / 4);
    for (i = 0; i < n && (swl_tpl_same(a.u.items[i], b.u.items[i]) || swl_tpl_equal(r, a.u.items[i], b.u.items[i]));
         i++)
        ;
    if (i < n)
        c = swl_tpl_compare(r, a.u.items[i], b.u.items[i]);
    else
        c = a.n < b.n ? -1 : a.n > b.n;
    swl_tpl_leave(r);
    return c;
}

int swl_tpl_compare(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    uint32_t n = a.n < b.n ? a.n : b.n;
    int c;

    swl_tpl_charge(r, 1);
    if (swl_tpl_is_number(a) && swl_tpl_is_number(b))
        return compare_numbers(a, b);
    if (a.kind == TPL_STR && b.kind == TPL_STR) {
        swl_tpl_charge(r, n / 64);
        c = n ? memcmp(a.u.s, b.u.s, n) : 0; /* UTF-8 sorts like code points */
        return c ? (c < 0 ? -1 : 1) : a.n < b.n ? -1 : a.n > b.n;
    }
    if (a.kind == b.kind && (a.kind == TPL_LIST || a.kind == TPL_TUPLE))
        return compare_seqs(r, a, b);
    if (a.kind == TPL_UNDEFINED || b.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, a.kind == TPL_UNDEFINED ? a : b);
    swl_tpl_fail(r, SWL_E_ARG, "values of type %s and %s have no order", swl_tpl_type_name(a), swl_tpl_type_name(b));
    return 2;
}

bool swl_tpl_has_length(swl_tpl_value v)
{
    return swl_tpl_is_seq(v) || v.kind == TPL_STR || v.kind == TPL_DICT || v.kind == TPL_RANGE ||
           v.kind == TPL_UNDEFINED || v.kind == TPL_LOOP;
}

int64_t swl_tpl_length(swl_tpl_run *r, swl_tpl_value v)
{
    switch (v.kind) {
    case TPL_UNDEFINED:
        return 0;
    case TPL_STR:
        swl_tpl_charge(r, v.n / 64);
        return swl_tpl_text_length(v);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
        return v.n;
    case TPL_DICT:
        return v.u.dict->n;
    case TPL_RANGE:
        return v.u.range->n;
    case TPL_LOOP:
        return swl_tpl_loop_length(r, v.u.loop);
    default:
        swl_tpl_fail(r, SWL_E_ARG, "a value of type %s has no length", swl_tpl_type_name(v));
        return 0;
    }
}

bool swl_tpl_contains(swl_tpl_run *r, swl_tpl_value item, swl_tpl_value in)
{
    swl_tpl_value v;
    swl_tpl_iter *it;

    if (in.kind == TPL_STR) {
        if (item.kind != TPL_STR)
            swl_tpl_fail(r, SWL_E_ARG, "'in <string>' requires string as left operand, not %s",
                         swl_tpl_type_name(item));
        swl_tpl_charge(r, in.n / 64);
        return item.kind == TPL_STR && swl_tpl_find(r, in, item, 0, in.n, false) >= 0;
    }
    if (in.kind == TPL_DICT)
        return swl_tpl_dict_get(r, in.u.dict, item, &v);
    it = swl_tpl_iterate(r, in);
    while (swl_tpl_next(r, it, &v))
        if (swl_tpl_same(item, v) || swl_tpl_equal(r, item, v))
            return true;
    return false;
}

/* ---- dictionaries ------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 29);
}

/* Equal values hash alike, whatever their kind (1, 1.0 and True are one key). */
static uint64_t hash(swl_tpl_run *r, swl_tpl_value v)
{
    uint64_t h = 0;
    uint32_t i;

    switch (v.kind) {
    case TPL_STR:
        swl_tpl_charge(r, v.n / 64);
        for (i = 0; i < v.n; i++)
            h = (h ^ (uint8_t)v.u.s[i]) * UINT64_C(0x100000001B3);
        return mix(h, v.n);
    case TPL_FLOAT:
        if (v.u.f >= -9e18 && v.u.f <= 9e18 && v.u.f == floor(v.u.f))
            return mix(1, (uint64_t)(int64_t)v.u.f);
        memcpy(&h, &v.u.f, sizeof h);
        return mix(2, h);
    case TPL_BOOL:
    case TPL_INT:
        return mix(1, (uint64_t)v.u.i);
    case TPL_TUPLE:
        if (!swl_tpl_enter(r))
            return 0;
        for (i = 0; i < v.n; i++)
            h = mix(h, hash(r, v.u.items[i]));
        swl_tpl_leave(r);
        return h;
    case TPL_LIST:
    case TPL_DICT:
    case TPL_VIEW:
        swl_tpl_fail(r, SWL_E_ARG, "a value of type %s cannot be a key", swl_tpl_type_name(v));
        return 0;
    default:
        return v.kind;
    }
}

static bool dict_grow(swl_tpl_run *r, swl_tpl_dict *d, uint32_t cap)
{
    swl_tpl_value *keys = swl_tpl_alloc(r, cap, sizeof *keys), *vals = swl_tpl_alloc(r, cap, sizeof *vals);
    uint32_t *index = NULL, i, at, n_index = 0;

    if (cap > 8) {
        for (n_index = 32; n_index < cap * 2; n_index *= 2)
            ;
        index = swl_tpl_alloc(r, n_index, sizeof *index);
    }
    if (swl_tpl_failed(r))
        return false;
    if (d->n) {
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(vals, d->vals, d->n * sizeof *vals);
    }
    for (i = 0; index && i < d->n; i++) {
        for (at = (uint32_t)hash(r, keys[i]) & (n_index - 1); index[at]; at = (at + 1) & (n_index - 1))
            ;
        index[at] = i + 1;
    }
    *d = (swl_tpl_dict){.n = d->n, .cap = cap, .n_index = n_index, .keys = keys, .vals = vals, .index = index};
    return true;
}

swl_tpl_dict *swl_tpl_dict_new(swl_tpl_run *r, uint32_t cap)
{
    swl_tpl_dict *d = swl_tpl_alloc(r, 1, sizeof *d);

    return d && dict_grow(r, d, cap < 4 ? 4 : cap) ? d : NULL;
}

/* The entry of key, or n; *slot is where the index would take it. */
static uint32_t dict_find(swl_tpl_run *r, const swl_tpl_dict *d, swl_tpl_value key, uint32_t *slot)
{
    uint64_t h = hash(r, key);
    uint32_t i;

    swl_tpl_charge(r, 1);
    *slot = 0;
    if (!d->index) {
        for (i = 0; i < d->n && !swl_tpl_equal(r, d->keys[i], key); i++)
            ;
        return i;
    }
    for (*slot = (uint32_t)h & (d->n_index - 1); d->index[*slot]; *slot = (*slot + 1) & (d->n_index - 1))
        if (swl_tpl_equal(r, d->keys[d->index[*slot] - 1], key))
            return d->index[*slot] - 1;
    return d->n;
}

void swl_tpl_dict_set(swl_tpl_run *r, swl_tpl_dict *d, swl_tpl_value key, swl_tpl_value val)
{
    uint32_t at, slot;

    if (!d || swl_tpl_failed(r) || (d->n == d->cap && !dict_grow(r, d, d->cap * 2)))
        return;
    at = dict_find(r, d, key, &slot);
    if (swl_tpl_failed(r))
        return;
    d->vals[at] = val;
    if (at < d->n)
        return;
    d->keys[at] = key;
    d->n++;
    if (d->index)
        d->index[slot] = d->n;
}

bool swl_tpl_dict_get(swl_tpl_run *r, const swl_tpl_dict *d, swl_tpl_value key, swl_tpl_value *val)
{
    uint32_t slot, at;

    if (swl_tpl_failed(r))
        return false;
    at = dict_find(r, d, key, &slot);
    if (at == d->n || swl_tpl_failed(r))
        return false;
    *val = d->vals[at];
    return true;
}

/* ---- iteration --------------------------------------------------------------------------------------------------- */

static bool next_item(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    (void)r;
    if (it->pos >= it->src.n)
        return false;
    *out = it->src.u.items[it->pos++];
    return true;
}

static bool next_char(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    int32_t cp;
    int n;

    (void)r;
    if (it->pos >= it->src.n)
        return false;
    n = swl_tpl_utf8(it->src.u.s + it->pos, it->src.n - it->pos, &cp);
    *out = swl_tpl_text(it->src.u.s + it->pos, (size_t)n);
    it->pos += (uint32_t)n;
    return true;
}

static bool next_number(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    const swl_tpl_range *g = it->src.u.range;

    (void)r;
    if (it->pos >= g->n)
        return false;
    *out = swl_tpl_int((int64_t)((uint64_t)g->start + (uint64_t)g->step * it->pos++));
    return true;
}

static bool next_nothing(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    (void)r, (void)it, (void)out;
    return false;
}

bool swl_tpl_iterable(swl_tpl_value v)
{
    return swl_tpl_is_seq(v) || v.kind == TPL_STR || v.kind == TPL_DICT || v.kind == TPL_RANGE || v.kind == TPL_ITER ||
           v.kind == TPL_UNDEFINED;
}

swl_tpl_iter *swl_tpl_iterate(swl_tpl_run *r, swl_tpl_value v)
{
    swl_tpl_iter *it;

    if (v.kind == TPL_ITER)
        return v.u.iter;
    if (!swl_tpl_iterable(v)) {
        swl_tpl_fail(r, SWL_E_ARG, "a value of type %s is not iterable", swl_tpl_type_name(v));
        return NULL;
    }
    it = swl_tpl_alloc(r, 1, sizeof *it);
    if (!it)
        return NULL;
    it->src = v.kind == TPL_DICT ? swl_tpl_seq(TPL_LIST, v.u.dict->keys, v.u.dict->n) : v;
    it->next = v.kind == TPL_STR         ? next_char
               : v.kind == TPL_RANGE     ? next_number
               : v.kind == TPL_UNDEFINED ? next_nothing
                                         : next_item;
    return it;
}

bool swl_tpl_next(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out)
{
    bool more = false;

    swl_tpl_charge(r, 1);
    if (it && it->error)
        swl_tpl_fail(r, SWL_E_ARG, "%s", it->error);
    if (it && swl_tpl_enter(r)) {
        more = it->next(r, it, out) && !swl_tpl_failed(r);
        swl_tpl_leave(r);
    }
    return more;
}

swl_tpl_value swl_tpl_rest(swl_tpl_run *r, swl_tpl_iter *it)
{
    swl_tpl_value *items = NULL, *more, v;
    uint32_t n = 0, cap = 0;

    while (swl_tpl_next(r, it, &v)) {
        if (n == cap) {
            cap = cap ? cap * 2 : 8;
            more = swl_tpl_alloc(r, cap, sizeof *more);
            if (!more)
                break;
            if (n)
                memcpy(more, items, n * sizeof *items);
            items = more;
        }
        items[n++] = v;
    }
    return swl_tpl_seq(TPL_LIST, items, n);
}

swl_tpl_value swl_tpl_to_list(swl_tpl_run *r, swl_tpl_value v)
{
    if (swl_tpl_is_seq(v))
        return swl_tpl_seq(TPL_LIST, v.u.items, v.n);
    if (v.kind == TPL_DICT)
        return swl_tpl_seq(TPL_LIST, v.u.dict->keys, v.u.dict->n);
    return swl_tpl_rest(r, swl_tpl_iterate(r, v));
}

/* Merge sort of positions; only "less" is asked, and the right half yields on ties, in both directions. */
static void merge_sort(swl_tpl_run *r, const swl_tpl_value *keys, uint32_t *v, uint32_t *tmp, uint32_t n, bool reverse)
{
    uint32_t half = n / 2, i = 0, j = half, k = 0;

    if (n < 2 || swl_tpl_failed(r))
        return;
    merge_sort(r, keys, v, tmp, half, reverse);
    merge_sort(r, keys, v + half, tmp, n - half, reverse);
    while (i < half && j < n)
        tmp[k++] = swl_tpl_compare(r, keys[v[j]], keys[v[i]]) == (reverse ? 1 : -1) ? v[j++] : v[i++];
    while (i < half)
        tmp[k++] = v[i++];
    memcpy(v, tmp, k * sizeof *v);
}

void swl_tpl_sort(swl_tpl_run *r, swl_tpl_value *v, swl_tpl_value *keys, uint32_t n, bool reverse)
{
    uint32_t *order = swl_tpl_alloc(r, n + 1, sizeof *order), *tmp = swl_tpl_alloc(r, n + 1, sizeof *tmp), i;
    swl_tpl_value *old = swl_tpl_alloc(r, n + 1, sizeof *old);

    if (swl_tpl_failed(r))
        return;
    for (i = 0; i < n; i++)
        order[i] = i;
    merge_sort(r, keys, order, tmp, n, reverse);
    if (n)
        memcpy(old, v, n * sizeof *v);
    for (i = 0; i < n; i++)
        v[i] = old[order[i]];
}

/* ---- str and repr ------------------------------------------------------------------------------------------------ */

void swl_tpl_put_int(swl_tpl_run *r, int64_t i)
{
    char s[32];

    snprintf(s, sizeof s, "%lld", (long long)i);
    swl_tpl_puts(r, s);
}

/* Python's float.__repr__: the fewest digits that read back as the same number. The decimal point of the C locale in
 * force sits at s[1] (after a sign) and is stepped over. */
void swl_tpl_put_float(swl_tpl_run *r, double f)
{
    char s[48], digits[24], e[16];
    int precision, n = 0, point, i;

    swl_tpl_charge(r, 16);
    if (isnan(f) || isinf(f)) {
        swl_tpl_puts(r, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    for (precision = 0; precision < 17; precision++) {
        snprintf(s, sizeof s, "%.*e", precision, fabs(f));
        if (strtod(s, NULL) == fabs(f))
            break;
    }
    for (i = 0; s[i] && s[i] != 'e'; i++)
        if (s[i] >= '0' && s[i] <= '9' && n < 20)
            digits[n++] = s[i];
    point = (int)strtol(s + i + 1, NULL, 10) + 1; /* digits before the decimal point */
    if (signbit(f))
        swl_tpl_puts(r, "-");
    if (point > 16 || point < -3) {
        swl_tpl_put(r, digits, 1);
        if (n > 1) {
            swl_tpl_puts(r, ".");
            swl_tpl_put(r, digits + 1, (size_t)n - 1);
        }
        snprintf(e, sizeof e, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
        swl_tpl_puts(r, e);
        return;
    }
    if (point <= 0)
        swl_tpl_puts(r, "0.");
    for (i = point; i < 0; i++)
        swl_tpl_puts(r, "0");
    for (i = 0; i < n; i++) {
        if (i == point && i > 0)
            swl_tpl_puts(r, ".");
        swl_tpl_put(r, digits + i, 1);
    }
    for (; i < point; i++)
        swl_tpl_puts(r, "0");
    if (n <= point)
        swl_tpl_puts(r, ".0");
}

static bool printable(int32_t cp)
{
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return true;
    }
}

static void put_repr_str(swl_tpl_run *r, swl_tpl_value v)
{
    bool dquote = v.n && memchr(v.u.s, '\'', v.n) && !memchr(v.u.s, '"', v.n);
    const char *quote = dquote ? "\"" : "'", *p;
    size_t i, len;
    int32_t cp;
    char e[16];

    swl_tpl_puts(r, v.flag ? "Markup(" : "");
    swl_tpl_puts(r, quote);
    for (i = 0; i < v.n && !swl_tpl_failed(r); i += len) {
        p = v.u.s + i;
        len = (size_t)swl_tpl_utf8(p, v.n - i, &cp);
        if (cp == *quote || cp == '\\')
            snprintf(e, sizeof e, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(e, sizeof e, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (printable(cp))
            e[0] = 0;
        else
            snprintf(e, sizeof e, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)cp);
        swl_tpl_put(r, e[0] ? e : p, e[0] ? strlen(e) : len);
    }
    swl_tpl_puts(r, quote);
    swl_tpl_puts(r, v.flag ? ")" : "");
}

static void put_items(swl_tpl_run *r, const char *open, swl_tpl_value v, const char *close)
{
    uint32_t i;

    swl_tpl_puts(r, open);
    for (i = 0; i < v.n && !swl_tpl_failed(r); i++) {
        swl_tpl_puts(r, i ? ", " : "");
        swl_tpl_put_repr(r, v.u.items[i]);
    }
    swl_tpl_puts(r, close);
}

static void put_repr_dict(swl_tpl_run *r, const swl_tpl_dict *d)
{
    uint32_t i;

    swl_tpl_puts(r, "{");
    for (i = 0; i < d->n && !swl_tpl_failed(r); i++) {
        swl_tpl_puts(r, i ? ", " : "");
        swl_tpl_put_repr(r, d->keys[i]);
        swl_tpl_puts(r, ": ");
        swl_tpl_put_repr(r, d->vals[i]);
    }
    swl_tpl_puts(r, "}");
}

static void put_repr_range(swl_tpl_run *r, const swl_tpl_range *g)
{
    swl_tpl_puts(r, "range(");
    swl_tpl_put_int(r, g->start);
    swl_tpl_puts(r, ", ");
    swl_tpl_put_int(r, g->stop);
    if (g->step != 1) {
        swl_tpl_puts(r, ", ");
        swl_tpl_put_int(r, g->step);
    }
    swl_tpl_puts(r, ")");
}

static void put_repr_container(swl_tpl_run *r, swl_tpl_value v)
{
    static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};

    if (!swl_tpl_enter(r))
        return;
    switch (v.kind) {
    case TPL_LIST:
        put_items(r, "[", v, "]");
        break;
    case TPL_TUPLE:
        put_items(r, "(", v, v.n == 1 ? ",)" : ")");
        break;
    case TPL_VIEW:
        put_items(r, views[v.flag], v, "])");
        break;
    case TPL_NAMESPACE:
        swl_tpl_puts(r, "<Namespace ");
        put_repr_dict(r, v.u.dict);
        swl_tpl_puts(r, ">");
        break;
    default:
        put_repr_dict(r, v.u.dict);
    }
    swl_tpl_leave(r);
}

void swl_tpl_put_repr(swl_tpl_run *r, swl_tpl_value v)
{
    switch (v.kind) {
    case TPL_UNDEFINED:
        swl_tpl_puts(r, "Undefined");
        break;
    case TPL_NONE:
        swl_tpl_puts(r, "None");
        break;
    case TPL_BOOL:
        swl_tpl_puts(r, v.u.i ? "True" : "False");
        break;
    case TPL_INT:
        swl_tpl_put_int(r, v.u.i);
        break;
    case TPL_FLOAT:
        swl_tpl_put_float(r, v.u.f);
        break;
    case TPL_STR:
        put_repr_str(r, v);
        break;
    case TPL_RANGE:
        put_repr_range(r, v.u.range);
        break;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
    case TPL_DICT:
    case TPL_NAMESPACE:
        put_repr_container(r, v);
        break;
    case TPL_MACRO:
        swl_tpl_puts(r, "<Macro ");
        swl_tpl_put_repr(r, v.u.macro->node->val);
        swl_tpl_puts(r, ">");
        break;
    case TPL_LOOP:
        swl_tpl_puts(r, "<LoopContext ");
        swl_tpl_put_int(r, v.u.loop->index0 + 1);
        swl_tpl_puts(r, "/");
        swl_tpl_put_int(r, swl_tpl_loop_length(r, v.u.loop));
        swl_tpl_puts(r, ">");
        break;
    default: /* Python prints an address here, so no template can rely on it */
        swl_tpl_puts(r, "<");
        swl_tpl_puts(r, swl_tpl_type_name(v));
        swl_tpl_puts(r, ">");
    }
}

void swl_tpl_put_str(swl_tpl_run *r, swl_tpl_value v)
{
    if (v.kind == TPL_STR)
        swl_tpl_put(r, v.u.s, v.n);
    else if (v.kind != TPL_UNDEFINED)
        swl_tpl_put_repr(r, v);
}

swl_tpl_value swl_tpl_str(swl_tpl_run *r, swl_tpl_value v)
{
    size_t mark = r->out_n;

    if (v.kind == TPL_STR) {
        v.flag = 0;
        return v;
    }
    swl_tpl_put_str(r, v);
    return swl_tpl_capture(r, mark);
}
