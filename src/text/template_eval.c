/*
 * template_eval.c: walks the tree. Expressions give values, statements write to the run's output; block set, macros and
 * the like write there too and take their part back as a string. Also the public functions.
 *
 * Scopes: a for body (each pass), a macro, a block set, with and filter have one of their own, an if has none. Names
 * are found outwards: scopes, the caller's variables, the globals.
 */
#define _POSIX_C_SOURCE 200809L /* localtime_r */
#include "text/template_impl.h"

#include <math.h>
#include <time.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static swl_tpl_value eval(swl_tpl_run *r, const swl_tpl_node *n);
static flow run_body(swl_tpl_run *r, const swl_tpl_list *body);

/* ---- variables --------------------------------------------------------------------------------------------------- */

static const char *const globals[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
enum { GLOBAL_RANGE, GLOBAL_DICT, GLOBAL_NAMESPACE, GLOBAL_RAISE, GLOBAL_STRFTIME, N_GLOBALS };

static swl_tpl_scope *push_scope(swl_tpl_run *r, swl_tpl_scope *parent)
{
    swl_tpl_scope *s = swl_tpl_alloc(r, 1, sizeof *s), *old = r->scope;

    if (s) {
        s->parent = parent;
        r->scope = s;
    }
    return old;
}

static void set_var(swl_tpl_run *r, int name, swl_tpl_value val)
{
    swl_tpl_binding *b;

    if (swl_tpl_failed(r))
        return;
    for (b = r->scope->first; b && b->name != name; b = b->next)
        ;
    if (!b) {
        b = swl_tpl_alloc(r, 1, sizeof *b);
        if (!b)
            return;
        b->name = name;
        b->next = r->scope->first;
        r->scope->first = b;
    }
    b->val = val;
}

static swl_tpl_value get_var(swl_tpl_run *r, int name)
{
    const swl_tpl_scope *s;
    const swl_tpl_binding *b;
    uint64_t hops = 0;
    int i;

    for (s = r->scope; s; s = s->parent)
        for (b = s->first; b; b = b->next, hops++)
            if (b->name == name) {
                swl_tpl_charge(r, hops / 8);
                return b->val;
            }
    swl_tpl_charge(r, hops / 8);
    for (i = 0; i < N_GLOBALS; i++)
        if (swl_tpl_str_is(r->t->names[name], globals[i]))
            return (swl_tpl_value){.kind = TPL_FUNC, .u.i = i};
    return swl_tpl_undefined_at(TPL_UNDEF_NAME, r->t->names[name]);
}

static void assign(swl_tpl_run *r, const swl_tpl_node *target, swl_tpl_value v)
{
    swl_tpl_value ns, items;
    int i;

    if (target->kind == N_NAME) {
        set_var(r, target->name, v);
        return;
    }
    if (target->kind == N_NSREF) {
        ns = get_var(r, target->name);
        if (ns.kind != TPL_NAMESPACE)
            swl_tpl_fail(r, SWL_E_ARG, "cannot assign attribute on non-namespace object");
        else if (target->val.n && target->val.u.s[0] == '_')
            swl_tpl_fail(r, SWL_E_ARG, "a namespace takes no names that begin with an underscore");
        else
            swl_tpl_dict_set(r, ns.u.dict, target->val, v);
        return;
    }
    items = swl_tpl_to_list(r, v);
    if (!swl_tpl_failed(r) && items.n != (uint32_t)target->list.n)
        swl_tpl_fail(r, SWL_E_ARG, "%u values to unpack into %d names", items.n, target->list.n);
    for (i = 0; i < target->list.n && !swl_tpl_failed(r); i++)
        assign(r, target->list.v[i], items.u.items[i]);
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static swl_tpl_value fail_operands(swl_tpl_run *r, const char *op, swl_tpl_value a, swl_tpl_value b)
{
    if (a.kind == TPL_UNDEFINED || b.kind == TPL_UNDEFINED)
        swl_tpl_use_undefined(r, a.kind == TPL_UNDEFINED ? a : b);
    swl_tpl_fail(r, SWL_E_ARG, "'%s' does not take %s and %s", op, swl_tpl_type_name(a), swl_tpl_type_name(b));
    return swl_tpl_none();
}

static swl_tpl_value fail_overflow(swl_tpl_run *r)
{
    swl_tpl_fail(r, SWL_E_ARG, "an integer does not fit in 64 bits");
    return swl_tpl_none();
}

static swl_tpl_value add_seqs(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    swl_tpl_value *items = swl_tpl_alloc(r, (size_t)a.n + b.n + 1, sizeof *items);

    swl_tpl_charge(r, (a.n + (uint64_t)b.n) / 8);
    if (!items)
        return swl_tpl_none();
    if (a.n)
        memcpy(items, a.u.items, a.n * sizeof *items);
    if (b.n)
        memcpy(items + a.n, b.u.items, b.n * sizeof *items);
    return swl_tpl_seq(a.kind, items, a.n + b.n);
}

static swl_tpl_value repeat(swl_tpl_run *r, swl_tpl_value v, int64_t times)
{
    size_t mark = r->out_n, n;
    swl_tpl_value *items;
    int64_t i;

    if (times < 0)
        times = 0;
    if (v.kind == TPL_STR) {
        for (i = 0; i < times && v.n && !swl_tpl_failed(r); i++) {
            swl_tpl_charge(r, 1);
            swl_tpl_put(r, v.u.s, v.n);
        }
        return swl_tpl_capture(r, mark);
    }
    n = v.n && times > TPL_MEMORY_BYTES_MAX / v.n ? TPL_MEMORY_BYTES_MAX : (size_t)times * v.n;
    items = swl_tpl_alloc(r, n + 1, sizeof *items);
    swl_tpl_charge(r, n / 8);
    for (i = 0; items && !swl_tpl_failed(r) && (size_t)i < n; i++)
        items[i] = v.u.items[(size_t)i % v.n];
    return swl_tpl_seq(v.kind, items, (uint32_t)n);
}

static bool overflow_free(int op, int64_t a, int64_t b, int64_t *v)
{
    return !(op == OP_ADD   ? __builtin_add_overflow(a, b, v)
             : op == OP_SUB ? __builtin_sub_overflow(a, b, v)
                            : __builtin_mul_overflow(a, b, v));
}

static swl_tpl_value power(swl_tpl_run *r, int64_t a, int64_t b)
{
    int64_t v = 1;

    if (b < 0 && a == 0)
        swl_tpl_fail(r, SWL_E_ARG, "0 to a negative power");
    if (b < 0)
        return swl_tpl_float(pow((double)a, (double)b));
    if (a == 0 || a == 1 || a == -1)
        return swl_tpl_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
    for (; b > 0; b--)
        if (!overflow_free(OP_MUL, v, a, &v))
            return fail_overflow(r);
    return swl_tpl_int(v);
}

/* Division rounds down and the remainder has the divisor's sign. */
static swl_tpl_value divide_ints(swl_tpl_run *r, int op, int64_t a, int64_t b)
{
    if (b == 0) {
        swl_tpl_fail(r, SWL_E_ARG, "division by zero");
        return swl_tpl_none();
    }
    if (op == OP_DIV)
        return swl_tpl_float((double)a / (double)b);
    if (b == -1)
        return op == OP_MOD ? swl_tpl_int(0) : a == INT64_MIN ? fail_overflow(r) : swl_tpl_int(-a);
    if (op == OP_MOD)
        return swl_tpl_int(a % b && (a % b < 0) != (b < 0) ? a % b + b : a % b);
    return swl_tpl_int(a / b - (a % b && (a % b < 0) != (b < 0)));
}

static swl_tpl_value double_op(swl_tpl_run *r, int op, double a, double b)
{
    double m;

    if (((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0) || (op == OP_POW && a == 0 && b < 0)) {
        swl_tpl_fail(r, SWL_E_ARG, "division by zero");
        return swl_tpl_none();
    }
    switch (op) {
    case OP_ADD:
        return swl_tpl_float(a + b);
    case OP_SUB:
        return swl_tpl_float(a - b);
    case OP_MUL:
        return swl_tpl_float(a * b);
    case OP_DIV:
        return swl_tpl_float(a / b);
    case OP_POW:
        m = pow(a, b);
        if ((isnan(m) && !isnan(a) && !isnan(b)) || (isinf(m) && !isinf(a) && !isinf(b)))
            swl_tpl_fail(r, SWL_E_ARG, "a power that is no finite real number");
        return swl_tpl_float(m);
    default:
        m = fmod(a, b);
        if (m && (m < 0) != (b < 0))
            m += b;
        return swl_tpl_float(op == OP_MOD ? (m ? m : copysign(0, b)) : floor((a - m) / b + 0.5));
    }
}

static swl_tpl_value number_op(swl_tpl_run *r, int op, swl_tpl_value a, swl_tpl_value b)
{
    int64_t v;

    if (a.kind == TPL_FLOAT || b.kind == TPL_FLOAT)
        return double_op(r, op, swl_tpl_as_double(a), swl_tpl_as_double(b));
    if (op == OP_POW)
        return power(r, a.u.i, b.u.i);
    if (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD)
        return divide_ints(r, op, a.u.i, b.u.i);
    return overflow_free(op, a.u.i, b.u.i, &v) ? swl_tpl_int(v) : fail_overflow(r);
}

/* Text next to text that is marked safe is escaped, as markupsafe does it. */
static swl_tpl_value add_strings(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b)
{
    if (a.flag != b.flag) {
        a = swl_tpl_escape(r, a);
        b = swl_tpl_escape(r, b);
    }
    return swl_tpl_concat(r, a, b);
}

swl_tpl_value swl_tpl_binary(swl_tpl_run *r, int op, swl_tpl_value a, swl_tpl_value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};

    if (swl_tpl_failed(r))
        return swl_tpl_none();
    if (swl_tpl_is_number(a) && swl_tpl_is_number(b))
        return number_op(r, op, a, b);
    if (op == OP_ADD && a.kind == TPL_STR && b.kind == TPL_STR)
        return add_strings(r, a, b);
    if (op == OP_ADD && a.kind == b.kind && (a.kind == TPL_LIST || a.kind == TPL_TUPLE))
        return add_seqs(r, a, b);
    if (op == OP_MUL && swl_tpl_is_integral(b) && (a.kind == TPL_STR || a.kind == TPL_LIST || a.kind == TPL_TUPLE))
        return repeat(r, a, b.u.i);
    if (op == OP_MUL && swl_tpl_is_integral(a) && (b.kind == TPL_STR || b.kind == TPL_LIST || b.kind == TPL_TUPLE))
        return repeat(r, b, a.u.i);
    if (op == OP_MOD && a.kind == TPL_STR)
        return swl_tpl_percent(r, a, b);
    return fail_operands(r, names[op], a, b);
}

static bool compare_op(swl_tpl_run *r, int op, swl_tpl_value a, swl_tpl_value b)
{
    int c;

    switch (op) {
    case OP_EQ:
        return swl_tpl_equal(r, a, b);
    case OP_NE:
        return !swl_tpl_equal(r, a, b);
    case OP_IN:
        return swl_tpl_contains(r, a, b);
    case OP_NOTIN:
        return !swl_tpl_contains(r, a, b);
    default:
        c = swl_tpl_compare(r, a, b);
        return c != 2 && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
    }
}

static swl_tpl_value eval_compare(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value a = eval(r, n->a), b;
    bool ok = true;
    int i;

    for (i = 0; ok && i < n->list.n && !swl_tpl_failed(r); i++, a = b) {
        b = eval(r, n->list.v[i]->a);
        ok = compare_op(r, n->list.v[i]->op, a, b);
    }
    return swl_tpl_bool(ok);
}

static swl_tpl_value eval_sign(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value v = eval(r, n->a);

    if (v.kind == TPL_FLOAT)
        return swl_tpl_float(n->kind == N_NEG ? -v.u.f : v.u.f);
    if (!swl_tpl_is_integral(v))
        return fail_operands(r, n->kind == N_NEG ? "unary -" : "unary +", v, swl_tpl_none());
    return n->kind == N_POS ? swl_tpl_int(v.u.i) : number_op(r, OP_SUB, swl_tpl_int(0), v);
}

static swl_tpl_value eval_concat(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value v = swl_tpl_cstr("");
    int i;

    for (i = 0; i < n->list.n && !swl_tpl_failed(r); i++)
        v = swl_tpl_concat(r, v, swl_tpl_str(r, eval(r, n->list.v[i])));
    return v;
}

/* ---- literals, lookups ------------------------------------------------------------------------------------------- */

static swl_tpl_value eval_seq(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value *items = swl_tpl_alloc(r, (size_t)n->list.n + 1, sizeof *items);
    int i;

    for (i = 0; items && i < n->list.n && !swl_tpl_failed(r); i++)
        items[i] = eval(r, n->list.v[i]);
    return swl_tpl_seq(n->kind == N_LIST ? TPL_LIST : TPL_TUPLE, items, (uint32_t)n->list.n);
}

static swl_tpl_value eval_dict(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_dict *d = swl_tpl_dict_new(r, (uint32_t)n->list.n / 2);
    swl_tpl_value key;
    int i;

    for (i = 0; i + 1 < n->list.n && !swl_tpl_failed(r); i += 2) {
        key = eval(r, n->list.v[i]);
        swl_tpl_dict_set(r, d, key, eval(r, n->list.v[i + 1]));
    }
    return swl_tpl_dict_value(TPL_DICT, d);
}

static swl_tpl_value eval_item(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value obj = eval(r, n->a), from, to, step;

    if (n->b->kind != N_SLICE)
        return swl_tpl_item(r, obj, eval(r, n->b));
    from = n->b->a ? eval(r, n->b->a) : swl_tpl_none();
    to = n->b->b ? eval(r, n->b->b) : swl_tpl_none();
    step = n->b->c ? eval(r, n->b->c) : swl_tpl_none();
    return swl_tpl_slice(r, obj, from, to, step);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void add_named(swl_tpl_run *r, swl_tpl_args *a, swl_tpl_value name, swl_tpl_value val)
{
    a->names[a->n_named] = name;
    a->named[a->n_named++] = val;
    if (name.kind != TPL_STR)
        swl_tpl_fail(r, SWL_E_ARG, "names of arguments must be strings");
}

/* Room for n more positional or named arguments. */
static bool grow_args(swl_tpl_run *r, swl_tpl_args *a, uint32_t n)
{
    swl_tpl_value *v = swl_tpl_alloc(r, (size_t)a->n + n + 1, sizeof *v);
    swl_tpl_value *names = swl_tpl_alloc(r, (size_t)a->n_named + n + 1, sizeof *names);
    swl_tpl_value *named = swl_tpl_alloc(r, (size_t)a->n_named + n + 1, sizeof *named);

    if (swl_tpl_failed(r))
        return false;
    if (a->n)
        memcpy(v, a->v, (size_t)a->n * sizeof *v);
    if (a->n_named) {
        memcpy(names, a->names, (size_t)a->n_named * sizeof *names);
        memcpy(named, a->named, (size_t)a->n_named * sizeof *named);
    }
    a->v = v;
    a->names = names;
    a->named = named;
    return true;
}

static void eval_star(swl_tpl_run *r, const swl_tpl_list *args, int i, swl_tpl_args *a)
{
    swl_tpl_value all = eval(r, args->v[i]->a);
    uint32_t k;

    if (args->v[i]->op == TPL_ARG_STARSTAR) {
        if (all.kind != TPL_DICT) {
            swl_tpl_fail(r, SWL_E_ARG, "the argument behind ** must be a mapping");
            return;
        }
        if (grow_args(r, a, all.u.dict->n + (uint32_t)args->n))
            for (k = 0; k < all.u.dict->n; k++)
                add_named(r, a, all.u.dict->keys[k], all.u.dict->vals[k]);
        return;
    }
    all = swl_tpl_to_list(r, all);
    if (grow_args(r, a, all.n + (uint32_t)args->n))
        for (k = 0; k < all.n; k++)
            a->v[a->n++] = all.u.items[k];
}

static void eval_args(swl_tpl_run *r, const swl_tpl_list *args, uint32_t n_extra, swl_tpl_args *a)
{
    const swl_tpl_node *n;
    int i;

    *a = (swl_tpl_args){0};
    if ((!args->n && !n_extra) || !grow_args(r, a, (uint32_t)args->n + n_extra))
        return;
    for (i = 0; i < args->n && !swl_tpl_failed(r); i++) {
        n = args->v[i];
        if (n->op == TPL_ARG_POS)
            a->v[a->n++] = eval(r, n->a);
        else if (n->op == TPL_ARG_NAMED)
            add_named(r, a, n->val, eval(r, n->a));
        else
            eval_star(r, args, i, a);
    }
}

static swl_tpl_value call_range(swl_tpl_run *r, const swl_tpl_args *a)
{
    swl_tpl_value v[3];
    swl_tpl_range *g = swl_tpl_alloc(r, 1, sizeof *g);
    uint64_t span, n;
    int i;

    if (!swl_tpl_bind(r, "range", a, "/start stop step", 1, v) || !g)
        return swl_tpl_none();
    for (i = 0; i < a->n; i++)
        if (!swl_tpl_is_integral(v[i])) {
            swl_tpl_fail(r, SWL_E_ARG, "range: an integer is required, not %s", swl_tpl_type_name(v[i]));
            return swl_tpl_none();
        }
    *g = (swl_tpl_range){.start = a->n > 1 ? v[0].u.i : 0, .stop = v[a->n > 1].u.i, .step = a->n > 2 ? v[2].u.i : 1};
    if (g->step == 0)
        swl_tpl_fail(r, SWL_E_ARG, "range: the step must not be zero");
    else if (g->step > 0 ? g->start < g->stop : g->start > g->stop) {
        span = g->step > 0 ? (uint64_t)g->stop - (uint64_t)g->start : (uint64_t)g->start - (uint64_t)g->stop;
        n = (span - 1) / (g->step > 0 ? (uint64_t)g->step : 0 - (uint64_t)g->step) + 1;
        if (n > TPL_RANGE_MAX)
            swl_tpl_fail(r, SWL_E_BUDGET, "range: more than %d numbers", TPL_RANGE_MAX);
        g->n = (uint32_t)n;
    }
    return (swl_tpl_value){.kind = TPL_RANGE, .u.range = g};
}

/* dict(mapping or pairs, name=value, ...), also for namespace. */
static swl_tpl_value call_dict(swl_tpl_run *r, int kind, const swl_tpl_args *a)
{
    swl_tpl_dict *d = swl_tpl_dict_new(r, (uint32_t)a->n_named);
    swl_tpl_value v, pair;
    swl_tpl_iter *it;
    uint32_t i;

    if (a->n > 1)
        swl_tpl_fail(r, SWL_E_ARG, "dict: at most one positional argument");
    if (a->n == 1 && a->v[0].kind == TPL_DICT) {
        for (i = 0; i < a->v[0].u.dict->n && !swl_tpl_failed(r); i++)
            swl_tpl_dict_set(r, d, a->v[0].u.dict->keys[i], a->v[0].u.dict->vals[i]);
    } else if (a->n == 1) {
        it = swl_tpl_iterate(r, a->v[0]);
        while (swl_tpl_next(r, it, &v)) {
            pair = swl_tpl_to_list(r, v);
            if (pair.n != 2)
                swl_tpl_fail(r, SWL_E_ARG, "dict: an element is not a pair");
            if (!swl_tpl_failed(r))
                swl_tpl_dict_set(r, d, pair.u.items[0], pair.u.items[1]);
        }
    }
    for (i = 0; i < (uint32_t)a->n_named; i++)
        swl_tpl_dict_set(r, d, a->names[i], a->named[i]);
    for (i = 0; kind == TPL_NAMESPACE && !swl_tpl_failed(r) && i < d->n; i++)
        if (d->keys[i].kind == TPL_STR && d->keys[i].n && d->keys[i].u.s[0] == '_')
            swl_tpl_fail(r, SWL_E_ARG, "a namespace takes no names that begin with an underscore");
    return swl_tpl_dict_value(kind, d);
}

static swl_tpl_value call_strftime(swl_tpl_run *r, const swl_tpl_args *a)
{
    char fmt[256], text[1024];
    time_t now = time(NULL);
    swl_tpl_value v[1];
    size_t mark = r->out_n;
    struct tm tm;

    if (!swl_tpl_bind(r, "strftime_now", a, "format", 1, v))
        return swl_tpl_none();
    if (v[0].kind != TPL_STR || v[0].n >= sizeof fmt || memchr(v[0].u.s, 0, v[0].n) || !localtime_r(&now, &tm)) {
        swl_tpl_fail(r, SWL_E_ARG, "strftime_now: the format must be a string of less than %zu bytes", sizeof fmt);
        return swl_tpl_none();
    }
    memcpy(fmt, v[0].u.s, v[0].n);
    fmt[v[0].n] = 0;
    swl_tpl_put(r, text, strftime(text, sizeof text, fmt, &tm));
    return swl_tpl_capture(r, mark);
}

static swl_tpl_value call_global(swl_tpl_run *r, int64_t global, const swl_tpl_args *a)
{
    swl_tpl_value v[1];

    switch (global) {
    case GLOBAL_RANGE:
        return call_range(r, a);
    case GLOBAL_DICT:
        return call_dict(r, TPL_DICT, a);
    case GLOBAL_NAMESPACE:
        return call_dict(r, TPL_NAMESPACE, a);
    case GLOBAL_STRFTIME:
        return call_strftime(r, a);
    default:
        if (swl_tpl_bind(r, "raise_exception", a, "message", 1, v)) {
            v[0] = swl_tpl_str(r, v[0]);
            swl_tpl_fail(r, SWL_E_ARG, "%.*s", (int)(v[0].n > 600 ? 600 : v[0].n), v[0].u.s);
        }
        return swl_tpl_none();
    }
}

/* Index of a named argument that the macro has not taken yet, or -1. */
static int named_arg(const swl_tpl_args *a, const bool *taken, swl_tpl_value name)
{
    int i;

    for (i = 0; i < a->n_named; i++)
        if (!taken[i] && a->names[i].n == name.n && !memcmp(a->names[i].u.s, name.u.s, name.n))
            return i;
    return -1;
}

/* What the parameters did not take: caller, kwargs and varargs if the body names them, else an error. */
static void bind_rest(swl_tpl_run *r, const swl_tpl_node *m, const swl_tpl_args *a, bool *taken)
{
    swl_tpl_dict *kwargs = swl_tpl_dict_new(r, 0);
    int i = named_arg(a, taken, swl_tpl_cstr("caller"));

    if (swl_tpl_failed(r))
        return;
    if (m->catches & TPL_CATCH_CALLER) {
        set_var(r, r->t->name_caller, i >= 0 ? a->named[i] : swl_tpl_undefined("no caller defined"));
        if (i >= 0)
            taken[i] = true;
    }
    for (i = 0; i < a->n_named; i++) {
        if (taken[i])
            continue;
        swl_tpl_dict_set(r, kwargs, a->names[i], a->named[i]);
        if (!(m->catches & TPL_CATCH_KWARGS))
            swl_tpl_fail(r, SWL_E_ARG, "macro %.*s takes no keyword argument '%.*s'", (int)m->val.n, m->val.u.s,
                         (int)(a->names[i].n > 100 ? 100 : a->names[i].n), a->names[i].u.s);
    }
    if (m->catches & TPL_CATCH_KWARGS)
        set_var(r, r->t->name_kwargs, swl_tpl_dict_value(TPL_DICT, kwargs));
    i = a->n < m->list.n ? a->n : m->list.n;
    if (m->catches & TPL_CATCH_VARARGS)
        set_var(r, r->t->name_varargs, swl_tpl_seq(TPL_TUPLE, a->v ? a->v + i : NULL, (uint32_t)(a->n - i)));
    else if (a->n > m->list.n)
        swl_tpl_fail(r, SWL_E_ARG, "macro %.*s takes not more than %d arguments", (int)m->val.n, m->val.u.s, m->list.n);
}

/* Defaults are evaluated inside the macro, after all given arguments are bound. */
static void bind_params(swl_tpl_run *r, const swl_tpl_node *m, const swl_tpl_args *a)
{
    bool *taken = swl_tpl_alloc(r, (size_t)a->n_named + 1, sizeof *taken);
    int i, k;

    for (i = 0; taken && i < m->list.n; i++) {
        k = i < a->n ? -1 : named_arg(a, taken, m->list.v[i]->val);
        if (k >= 0)
            taken[k] = true;
        if (k >= 0 || i < a->n)
            set_var(r, m->list.v[i]->name, k >= 0 ? a->named[k] : a->v[i]);
        else if (!m->list.v[i]->a)
            set_var(r, m->list.v[i]->name, swl_tpl_undefined_at(TPL_UNDEF_NAME, m->list.v[i]->val));
    }
    if (taken)
        bind_rest(r, m, a, taken);
}

static void bind_defaults(swl_tpl_run *r, const swl_tpl_node *m)
{
    const swl_tpl_binding *b;
    int i;

    for (i = 0; i < m->list.n && !swl_tpl_failed(r); i++) {
        for (b = r->scope->first; b && b->name != m->list.v[i]->name; b = b->next)
            ;
        if (!b)
            set_var(r, m->list.v[i]->name, eval(r, m->list.v[i]->a));
    }
}

static swl_tpl_value call_macro(swl_tpl_run *r, const swl_tpl_macro *m, const swl_tpl_args *a)
{
    swl_tpl_scope *old = push_scope(r, m->scope);
    size_t mark = r->out_n;
    swl_tpl_value v = swl_tpl_none();

    bind_params(r, m->node, a);
    bind_defaults(r, m->node);
    if (!swl_tpl_failed(r))
        run_body(r, &m->node->body);
    v = swl_tpl_capture(r, mark);
    r->scope = old;
    return v;
}

static void run_loop(swl_tpl_run *r, const swl_tpl_node *n, swl_tpl_scope *scope, swl_tpl_value source, int depth0,
                     flow *how);

/* loop(children) in a loop marked recursive. */
static swl_tpl_value call_loop(swl_tpl_run *r, const swl_tpl_loop *l, const swl_tpl_args *a)
{
    size_t mark = r->out_n;
    flow how;

    if (!l->node->flag || a->n != 1 || a->n_named) {
        swl_tpl_fail(r, SWL_E_ARG, "only a loop marked recursive can be called, with one argument");
        return swl_tpl_none();
    }
    run_loop(r, l->node, l->scope, a->v[0], l->depth0 + 1, &how);
    return swl_tpl_capture(r, mark);
}

swl_tpl_value swl_tpl_call(swl_tpl_run *r, swl_tpl_value f, const swl_tpl_args *a)
{
    swl_tpl_value v = swl_tpl_none();

    if (!swl_tpl_enter(r))
        return v;
    switch (f.kind) {
    case TPL_METHOD:
        v = swl_tpl_method_call(r, f.u.method, a);
        break;
    case TPL_MACRO:
        v = call_macro(r, f.u.macro, a);
        break;
    case TPL_FUNC:
        v = call_global(r, f.u.i, a);
        break;
    case TPL_LOOP:
        v = call_loop(r, f.u.loop, a);
        break;
    case TPL_UNDEFINED:
        swl_tpl_use_undefined(r, f);
        break;
    default:
        swl_tpl_fail(r, SWL_E_ARG, "a value of type %s cannot be called", swl_tpl_type_name(f));
    }
    swl_tpl_leave(r);
    return v;
}

static swl_tpl_value eval_call(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value f = eval(r, n->a);
    swl_tpl_args a;

    eval_args(r, &n->list, 0, &a);
    return swl_tpl_failed(r) ? swl_tpl_none() : swl_tpl_call(r, f, &a);
}

static swl_tpl_value apply_filter(swl_tpl_run *r, const swl_tpl_node *n, swl_tpl_value v)
{
    swl_tpl_args a;

    if (n->func < 0)
        swl_tpl_fail(r, SWL_E_UNSUPPORTED, "unknown filter '%.*s'", (int)(n->val.n > 100 ? 100 : n->val.n), n->val.u.s);
    eval_args(r, &n->list, 0, &a);
    return swl_tpl_failed(r) ? swl_tpl_none() : swl_tpl_filter_call(r, n->func, v, &a);
}

static swl_tpl_value eval_test(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value v = eval(r, n->a);
    swl_tpl_args a;

    if (n->func < 0)
        swl_tpl_fail(r, SWL_E_UNSUPPORTED, "unknown test '%.*s'", (int)(n->val.n > 100 ? 100 : n->val.n), n->val.u.s);
    eval_args(r, &n->list, 0, &a);
    return swl_tpl_bool(!swl_tpl_failed(r) && swl_tpl_test_call(r, n->func, v, &a));
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static swl_tpl_value eval_logic(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value v = eval(r, n->a);

    if (n->kind == N_COND) {
        if (swl_tpl_truth(v))
            return eval(r, n->b);
        return n->c ? eval(r, n->c) : swl_tpl_undefined("an inline if without else gave no value");
    }
    return swl_tpl_truth(v) == (n->kind == N_AND) ? eval(r, n->b) : v;
}

static swl_tpl_value eval_kind(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value a;

    switch ((swl_tpl_node_kind)n->kind) {
    case N_CONST:
        return n->val;
    case N_NAME:
        return get_var(r, n->name);
    case N_LIST:
    case N_TUPLE:
        return eval_seq(r, n);
    case N_DICT:
        return eval_dict(r, n);
    case N_NOT:
        return swl_tpl_bool(!swl_tpl_truth(eval(r, n->a)));
    case N_NEG:
    case N_POS:
        return eval_sign(r, n);
    case N_BINARY:
        a = eval(r, n->a);
        return swl_tpl_binary(r, n->op, a, eval(r, n->b));
    case N_CONCAT:
        return eval_concat(r, n);
    case N_COMPARE:
        return eval_compare(r, n);
    case N_AND:
    case N_OR:
    case N_COND:
        return eval_logic(r, n);
    case N_ATTR:
        return swl_tpl_attr(r, eval(r, n->a), n->val);
    case N_ITEM:
        return eval_item(r, n);
    case N_CALL:
        return eval_call(r, n);
    case N_FILTER:
        a = eval(r, n->a);
        return apply_filter(r, n, a);
    case N_TEST:
        return eval_test(r, n);
    default:
        swl_tpl_fail(r, SWL_E_ARG, "a slice cannot be part of a key");
        return swl_tpl_none();
    }
}

static swl_tpl_value eval(swl_tpl_run *r, const swl_tpl_node *n)
{
    int line = r->line;
    swl_tpl_value v;

    swl_tpl_charge(r, 1);
    if (!swl_tpl_enter(r))
        return swl_tpl_none();
    r->line = n->line;
    v = eval_kind(r, n);
    r->line = line;
    swl_tpl_leave(r);
    return swl_tpl_failed(r) ? swl_tpl_none() : v;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* The next item that the loop's condition lets through; the condition runs in a scope that has only the targets. */
static bool loop_pull(swl_tpl_run *r, swl_tpl_loop *l, swl_tpl_value *out)
{
    swl_tpl_scope *old;
    bool pass;

    while (swl_tpl_next(r, l->it, out)) {
        if (!l->filtered)
            return true;
        old = push_scope(r, l->scope);
        assign(r, l->node->a, *out);
        pass = !swl_tpl_failed(r) && swl_tpl_truth(eval(r, l->node->c));
        r->scope = old;
        if (pass)
            return !swl_tpl_failed(r);
    }
    return false;
}

/* The item after the current one, fetched early when the template asks. */
bool swl_tpl_loop_peek(swl_tpl_run *r, swl_tpl_loop *l, swl_tpl_value *out)
{
    if (l->after.kind == TPL_MISSING && !loop_pull(r, l, &l->after))
        l->after.kind = TPL_MISSING;
    *out = l->after;
    return l->after.kind != TPL_MISSING;
}

/* Without a length of the source the rest is fetched, and served from memory afterwards. */
int64_t swl_tpl_loop_length(swl_tpl_run *r, swl_tpl_loop *l)
{
    swl_tpl_value items, *more, v;
    uint32_t n = 0, cap = 0;

    if (l->length < 0 && !l->filtered && swl_tpl_has_length(l->source))
        l->length = swl_tpl_length(r, l->source);
    if (l->length >= 0)
        return l->length;
    items = swl_tpl_seq(TPL_LIST, NULL, 0);
    while (loop_pull(r, l, &v)) {
        if (n == cap) {
            cap = cap ? cap * 2 : 8;
            more = swl_tpl_alloc(r, cap, sizeof *more);
            if (more && n)
                memcpy(more, items.u.items, n * sizeof *more);
            items.u.items = more;
        }
        if (swl_tpl_failed(r))
            return 0;
        ((swl_tpl_value *)items.u.items)[n++] = v;
    }
    items.n = n;
    l->it = swl_tpl_iterate(r, items);
    l->filtered = false;
    l->length = n + l->index0 + 1 + (l->after.kind != TPL_MISSING);
    return l->length;
}

static bool loop_step(swl_tpl_run *r, swl_tpl_loop *l)
{
    swl_tpl_value v = l->after;

    if (v.kind == TPL_MISSING && !loop_pull(r, l, &v))
        return false;
    l->after.kind = TPL_MISSING;
    l->prev = l->cur;
    l->cur = v;
    l->index0++;
    return true;
}

static void run_loop(swl_tpl_run *r, const swl_tpl_node *n, swl_tpl_scope *scope, swl_tpl_value source, int depth0,
                     flow *how)
{
    swl_tpl_loop *l = swl_tpl_alloc(r, 1, sizeof *l);
    swl_tpl_scope *old = r->scope;
    bool completed = false; /* jinja2's else also runs after passes that all ended in break or continue */

    *how = FLOW_ON;
    if (!l)
        return;
    *l = (swl_tpl_loop){.node = n,
                        .scope = scope,
                        .it = swl_tpl_iterate(r, source),
                        .source = source,
                        .index0 = -1,
                        .length = -1,
                        .filtered = n->c != NULL,
                        .depth0 = depth0};
    while (*how != FLOW_BREAK && loop_step(r, l)) {
        push_scope(r, scope);
        set_var(r, r->t->name_loop, (swl_tpl_value){.kind = TPL_LOOP, .u.loop = l});
        assign(r, n->a, l->cur);
        if (!swl_tpl_failed(r))
            *how = run_body(r, &n->body);
        completed |= *how == FLOW_ON;
        r->scope = old;
    }
    *how = FLOW_ON;
    if (!completed && n->orelse.n && !swl_tpl_failed(r)) {
        push_scope(r, scope);
        *how = run_body(r, &n->orelse);
        r->scope = old;
    }
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static flow run_for(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value source = eval(r, n->b);
    flow how = FLOW_ON;

    if (!swl_tpl_failed(r))
        run_loop(r, n, r->scope, source, 0, &how);
    return how;
}

static flow run_if(swl_tpl_run *r, const swl_tpl_node *n)
{
    int i;

    for (i = 0; i < n->list.n && !swl_tpl_failed(r); i++)
        if (swl_tpl_truth(eval(r, n->list.v[i]->a)))
            return run_body(r, &n->list.v[i]->body);
    return swl_tpl_failed(r) ? FLOW_ON : run_body(r, &n->orelse);
}

/* The filters of a block, innermost first. */
static swl_tpl_value filter_block(swl_tpl_run *r, const swl_tpl_node *f, swl_tpl_value v)
{
    if (!swl_tpl_enter(r))
        return v;
    if (f->a)
        v = filter_block(r, f->a, v);
    v = apply_filter(r, f, v);
    swl_tpl_leave(r);
    return v;
}

/* Runs a body in its own scope and takes its text. */
static flow capture_body(swl_tpl_run *r, const swl_tpl_list *body, swl_tpl_value *text)
{
    swl_tpl_scope *old = push_scope(r, r->scope);
    size_t mark = r->out_n;
    flow how = FLOW_ON;

    if (!swl_tpl_failed(r))
        how = run_body(r, body);
    *text = swl_tpl_capture(r, mark);
    r->scope = old;
    return how;
}

static flow run_capture(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value v;
    flow how = capture_body(r, &n->body, &v);

    if (how != FLOW_ON || swl_tpl_failed(r))
        return how;
    if (n->b)
        v = filter_block(r, n->b, v);
    if (n->kind == N_SETBLOCK)
        assign(r, n->a, v);
    else
        swl_tpl_put_str(r, v);
    return FLOW_ON;
}

static flow run_with(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_scope *outer = r->scope, *inner;
    flow how = FLOW_ON;
    swl_tpl_value v;
    int i;

    push_scope(r, outer);
    inner = r->scope;
    for (i = 0; i < n->list.n && !swl_tpl_failed(r); i++) {
        r->scope = outer;
        v = eval(r, n->list.v[i]->b);
        r->scope = inner;
        assign(r, n->list.v[i]->a, v);
    }
    if (!swl_tpl_failed(r))
        how = run_body(r, &n->body);
    r->scope = outer;
    return how;
}

static swl_tpl_value macro_value(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_macro *m = swl_tpl_alloc(r, 1, sizeof *m);

    if (!m)
        return swl_tpl_none();
    m->node = n;
    m->scope = r->scope;
    return (swl_tpl_value){.kind = TPL_MACRO, .u.macro = m};
}

static void run_callblock(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_value f = eval(r, n->a->a);
    swl_tpl_args a;

    eval_args(r, &n->a->list, 1, &a);
    if (swl_tpl_failed(r))
        return;
    add_named(r, &a, swl_tpl_cstr("caller"), macro_value(r, n));
    swl_tpl_put_str(r, swl_tpl_call(r, f, &a));
}

static void run_scope(swl_tpl_run *r, const swl_tpl_node *n)
{
    swl_tpl_scope *old = push_scope(r, r->scope);

    if (!swl_tpl_failed(r))
        run_body(r, &n->body);
    r->scope = old;
}

static void run_output(swl_tpl_run *r, const swl_tpl_node *n)
{
    int i;

    for (i = 0; i < n->list.n && !swl_tpl_failed(r); i++)
        swl_tpl_put_str(r, eval(r, n->list.v[i]));
}

static flow run_statement(swl_tpl_run *r, const swl_tpl_node *n)
{
    switch ((swl_tpl_node_kind)n->kind) {
    case N_DATA:
        swl_tpl_put(r, n->val.u.s, n->val.n);
        return FLOW_ON;
    case N_OUTPUT:
        run_output(r, n);
        return FLOW_ON;
    case N_IF:
        return run_if(r, n);
    case N_FOR:
        return run_for(r, n);
    case N_SET:
        assign(r, n->a, eval(r, n->b));
        return FLOW_ON;
    case N_SETBLOCK:
    case N_FILTERBLOCK:
        return run_capture(r, n);
    case N_MACRO:
        set_var(r, n->name, macro_value(r, n));
        return FLOW_ON;
    case N_CALLBLOCK:
        run_callblock(r, n);
        return FLOW_ON;
    case N_WITH:
        return run_with(r, n);
    case N_SCOPE:
        run_scope(r, n);
        return FLOW_ON;
    case N_BREAK:
        return FLOW_BREAK;
    default:
        return FLOW_CONTINUE;
    }
}

static flow run_body(swl_tpl_run *r, const swl_tpl_list *body)
{
    flow how = FLOW_ON;
    int i, line = r->line;

    if (!swl_tpl_enter(r))
        return FLOW_ON;
    for (i = 0; i < body->n && how == FLOW_ON && !swl_tpl_failed(r); i++) {
        swl_tpl_charge(r, 1);
        r->line = body->v[i]->line;
        how = run_statement(r, body->v[i]);
    }
    r->line = line;
    swl_tpl_leave(r);
    return how;
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

swl_status swl_template_compile(swl_template **out, const char *source, size_t n, const char *path, swl_error *err)
{
    swl_template *t = swl_calloc(1, sizeof *t);
    swl_tpl_run r = {.t = t, .path = path, .err = err, .line = 1};

    *out = NULL;
    if (!t || (path && !(t->path = swl_strdup(path)))) {
        swl_template_free(t);
        return swl_fail_at(err, SWL_E_NOMEM, path, -1, "template: out of memory");
    }
    r.arena = &t->arena;
    if (n > TPL_SOURCE_BYTES_MAX)
        swl_tpl_fail(&r, SWL_E_BUDGET, "the source has %zu bytes, at most %d are read", n, TPL_SOURCE_BYTES_MAX);
    else
        swl_tpl_parse(&r, t, source, n);
    swl_free(r.out);
    if (r.st) {
        swl_template_free(t);
        return r.st;
    }
    *out = t;
    return SWL_OK;
}

void swl_template_free(swl_template *t)
{
    if (!t)
        return;
    swl_tpl_arena_free(&t->arena);
    swl_free(t->path);
    swl_free(t);
}

/* Only names that the source mentions can be asked for. */
static void bind_vars(swl_tpl_run *r, const json_t *vars)
{
    const json_t *val;
    char name[256];
    int i;

    for (i = 0; i < r->t->n_names && !swl_tpl_failed(r); i++) {
        if (r->t->names[i].n >= sizeof name)
            continue;
        memcpy(name, r->t->names[i].u.s, r->t->names[i].n);
        name[r->t->names[i].n] = 0;
        val = json_object_get(vars, name);
        if (val)
            set_var(r, i, swl_tpl_from_json(r, val));
    }
}

swl_status swl_template_render(const swl_template *t, const json_t *vars, char **text, size_t *n, swl_error *err)
{
    swl_tpl_arena arena = {0};
    swl_tpl_run r = {.t = t, .arena = &arena, .path = t->path, .err = err, .line = 1};

    *text = NULL;
    *n = 0;
    push_scope(&r, NULL);
    bind_vars(&r, vars);
    if (!swl_tpl_failed(&r))
        run_body(&r, &t->body);
    swl_tpl_put(&r, "", 1);
    swl_tpl_arena_free(&arena);
    if (r.st) {
        swl_free(r.out);
        return r.st;
    }
    *text = r.out;
    *n = r.out_n - 1;
    return SWL_OK;
}
