/*
 * template_parse.c: tokens to the tree, function by function as jinja2's parser does it, so that precedence and the
 * odd corners agree. Unknown filters and tests are an error here unless they stand in a branch that need not be taken
 * (an if or an inline if), where jinja2 too waits for the run.
 */
#include "text/template_impl.h"

#include <stdio.h>

typedef struct parser {
    swl_tpl_run *r;
    swl_template *t;
    const swl_tpl_token *tok;
    bool soft;                   /* inside a branch */
    bool loop;                   /* break and continue have a loop to act on */
    const swl_tpl_node *unknown; /* a filter or test that nobody knows, outside branches */
    swl_tpl_node *macro;         /* the innermost macro or call block */
} parser;

static swl_tpl_node *parse_expression(parser *p, bool with_cond);
static swl_tpl_node *parse_unary(parser *p, bool with_filter);
static void parse_body(parser *p, swl_tpl_list *body, const char *const *ends);

/* ---- tools ------------------------------------------------------------------------------------------------------- */

static void fail_syntax(parser *p, const char *expected)
{
    static const char *const names[] = {
        "the end of the template", "text", "{{", "}}", "{%", "%}", "a name", "a string", "an integer", "a float"};
    const swl_tpl_token *t = p->tok;
    char found[64];

    p->r->line = t->line;
    if (t->kind == T_NAME || t->kind >= T_ADD)
        snprintf(found, sizeof found, "'%.*s'", t->val.n > 40 ? 40 : (int)t->val.n, t->val.u.s);
    else
        snprintf(found, sizeof found, "%s", names[t->kind]);
    swl_tpl_fail(p->r, SWL_E_CORRUPT, "expected %s, found %s", expected, found);
}

static void fail_unsupported(parser *p, const char *what, swl_tpl_value name)
{
    swl_tpl_fail(p->r, SWL_E_UNSUPPORTED, "unknown %s '%.*s'", what, name.n > 100 ? 100 : (int)name.n, name.u.s);
}

/* A syntax error leaves the position; EOF is never passed, so every loop below ends. */
static void step(parser *p)
{
    if (p->tok->kind != T_EOF)
        p->tok++;
}

static bool is_name(const swl_tpl_token *t, const char *name)
{
    return t->kind == T_NAME && swl_tpl_str_is(t->val, name);
}

static bool skip(parser *p, swl_tpl_token_kind kind)
{
    if (p->tok->kind != kind || swl_tpl_failed(p->r))
        return false;
    step(p);
    return true;
}

static bool skip_name(parser *p, const char *name)
{
    if (!is_name(p->tok, name) || swl_tpl_failed(p->r))
        return false;
    step(p);
    return true;
}

static void expect(parser *p, swl_tpl_token_kind kind, const char *what)
{
    if (!skip(p, kind))
        fail_syntax(p, what);
}

static swl_tpl_value expect_name(parser *p)
{
    swl_tpl_value v = p->tok->val;

    if (!skip(p, T_NAME)) {
        fail_syntax(p, "a name");
        return swl_tpl_cstr("");
    }
    return v;
}

/* Nodes are never NULL: after a failure there is one to write into. */
static swl_tpl_node *new_node(parser *p, swl_tpl_node_kind kind, int line)
{
    static _Thread_local swl_tpl_node sink;
    swl_tpl_node *n = swl_tpl_alloc(p->r, 1, sizeof *n);

    if (!n) {
        memset(&sink, 0, sizeof sink);
        n = &sink;
    }
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

static void append(parser *p, swl_tpl_list *l, swl_tpl_node *n)
{
    swl_tpl_node **more;

    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 4;
        more = swl_tpl_alloc(p->r, (size_t)l->cap, sizeof(swl_tpl_node *));
        if (more && l->n)
            memcpy(more, l->v, (size_t)l->n * sizeof *more);
        l->v = more;
    }
    if (!swl_tpl_failed(p->r))
        l->v[l->n++] = n;
}

static int intern(parser *p, swl_tpl_value name)
{
    swl_template *t = p->t;
    swl_tpl_value *more;
    int i;

    for (i = 0; i < t->n_names; i++)
        if (t->names[i].n == name.n && !memcmp(t->names[i].u.s, name.u.s, name.n))
            return i;
    if (t->n_names == t->names_cap) {
        t->names_cap = t->names_cap ? t->names_cap * 2 : 32;
        more = swl_tpl_alloc(p->r, (size_t)t->names_cap, sizeof *more);
        if (more && t->n_names)
            memcpy(more, t->names, (size_t)t->n_names * sizeof *more);
        t->names = more;
    }
    if (swl_tpl_failed(p->r))
        return 0;
    t->names[t->n_names] = name;
    swl_tpl_charge(p->r, (uint64_t)t->n_names);
    return t->n_names++;
}

static bool enter(parser *p)
{
    if (p->r->depth >= TPL_PARSE_DEPTH_MAX) {
        p->r->line = p->tok->line;
        swl_tpl_fail(p->r, SWL_E_BUDGET, "nested deeper than %d levels", TPL_PARSE_DEPTH_MAX);
    }
    return swl_tpl_enter(p->r);
}

/* ---- primary expressions ----------------------------------------------------------------------------------------- */

static swl_tpl_node *constant(parser *p, swl_tpl_value v, int line)
{
    swl_tpl_node *n = new_node(p, N_CONST, line);

    n->val = v;
    return n;
}

static swl_tpl_node *name_node(parser *p, swl_tpl_value name, int line)
{
    swl_tpl_node *n = new_node(p, N_NAME, line);

    n->name = intern(p, name);
    n->val = name;
    if (p->macro && swl_tpl_str_is(name, "caller"))
        p->macro->catches |= TPL_CATCH_CALLER;
    if (p->macro && swl_tpl_str_is(name, "kwargs"))
        p->macro->catches |= TPL_CATCH_KWARGS;
    if (p->macro && swl_tpl_str_is(name, "varargs"))
        p->macro->catches |= TPL_CATCH_VARARGS;
    return n;
}

static swl_tpl_node *parse_name(parser *p, bool with_namespace)
{
    const swl_tpl_token *t = p->tok;
    swl_tpl_node *n;

    step(p);
    if (is_name(t, "true") || is_name(t, "True") || is_name(t, "false") || is_name(t, "False"))
        return constant(p, swl_tpl_bool((t->val.u.s[0] | 32) == 't'), t->line);
    if (is_name(t, "none") || is_name(t, "None"))
        return constant(p, swl_tpl_none(), t->line);
    if (with_namespace && skip(p, T_DOT)) {
        n = new_node(p, N_NSREF, t->line);
        n->name = intern(p, t->val);
        n->val = expect_name(p);
        return n;
    }
    return name_node(p, t->val, t->line);
}

/* Adjacent strings are one, as in Python. */
static swl_tpl_node *parse_string(parser *p)
{
    swl_tpl_node *n = constant(p, p->tok->val, p->tok->line);

    for (step(p); p->tok->kind == T_STR && !swl_tpl_failed(p->r); step(p))
        n->val = swl_tpl_concat(p->r, n->val, p->tok->val);
    return n;
}

static swl_tpl_node *parse_list(parser *p)
{
    swl_tpl_node *n = new_node(p, N_LIST, p->tok->line);

    step(p);
    while (!swl_tpl_failed(p->r) && p->tok->kind != T_RBRACKET) {
        if (n->list.n)
            expect(p, T_COMMA, "',' or ']'");
        if (p->tok->kind == T_RBRACKET)
            break;
        append(p, &n->list, parse_expression(p, true));
    }
    expect(p, T_RBRACKET, "']'");
    return n;
}

static swl_tpl_node *parse_dict(parser *p)
{
    swl_tpl_node *n = new_node(p, N_DICT, p->tok->line);

    step(p);
    while (!swl_tpl_failed(p->r) && p->tok->kind != T_RBRACE) {
        if (n->list.n)
            expect(p, T_COMMA, "',' or '}'");
        if (p->tok->kind == T_RBRACE)
            break;
        append(p, &n->list, parse_expression(p, true));
        expect(p, T_COLON, "':'");
        append(p, &n->list, parse_expression(p, true));
    }
    expect(p, T_RBRACE, "'}'");
    return n;
}

/* How a list of comma-separated expressions is read, and where it may end. */
typedef struct tuple_rules {
    bool targets, with_cond, parentheses, with_namespace;
    const char *end; /* a name that ends it, or NULL */
} tuple_rules;

static swl_tpl_node *parse_primary(parser *p, bool with_namespace);

static bool tuple_end(parser *p, const tuple_rules *rules)
{
    return p->tok->kind == T_VAR_END || p->tok->kind == T_BLOCK_END || p->tok->kind == T_RPAREN ||
           (rules->end && is_name(p->tok, rules->end));
}

static swl_tpl_node *parse_tuple(parser *p, const tuple_rules *rules)
{
    swl_tpl_node *n = new_node(p, N_TUPLE, p->tok->line);
    bool is_tuple = false;

    while (!swl_tpl_failed(p->r)) {
        if (n->list.n)
            expect(p, T_COMMA, "','");
        if (tuple_end(p, rules))
            break;
        append(p, &n->list,
               rules->targets ? parse_primary(p, rules->with_namespace) : parse_expression(p, rules->with_cond));
        if (p->tok->kind != T_COMMA)
            break;
        is_tuple = true;
    }
    if (is_tuple || swl_tpl_failed(p->r))
        return n;
    if (n->list.n)
        return n->list.v[0];
    if (!rules->parentheses)
        fail_syntax(p, "an expression");
    return n;
}

static swl_tpl_node *parse_primary(parser *p, bool with_namespace)
{
    static const tuple_rules in_parentheses = {.with_cond = true, .parentheses = true};
    swl_tpl_node *n;
    int line = p->tok->line;

    switch (p->tok->kind) {
    case T_NAME:
        return parse_name(p, with_namespace);
    case T_STR:
        return parse_string(p);
    case T_INT:
    case T_FLOAT:
        n = constant(p, p->tok->val, line);
        step(p);
        return n;
    case T_LPAREN:
        step(p);
        n = parse_tuple(p, &in_parentheses);
        expect(p, T_RPAREN, "')'");
        return n;
    case T_LBRACKET:
        return parse_list(p);
    case T_LBRACE:
        return parse_dict(p);
    default:
        fail_syntax(p, "an expression");
        return new_node(p, N_CONST, line);
    }
}

/* ---- postfix: subscripts, calls, filters, tests ------------------------------------------------------------------ */

static swl_tpl_node *parse_arg(parser *p)
{
    swl_tpl_node *n = new_node(p, N_ARG, p->tok->line);

    if (skip(p, T_MUL)) {
        n->op = TPL_ARG_STAR;
    } else if (skip(p, T_POW)) {
        n->op = TPL_ARG_STARSTAR;
    } else if (p->tok->kind == T_NAME && p->tok[1].kind == T_ASSIGN) {
        n->op = TPL_ARG_NAMED;
        n->val = p->tok->val;
        step(p);
        step(p);
    }
    n->a = parse_expression(p, true);
    return n;
}

static void parse_args(parser *p, swl_tpl_list *args)
{
    int last = TPL_ARG_POS;
    swl_tpl_node *n;

    expect(p, T_LPAREN, "'('");
    while (!swl_tpl_failed(p->r) && p->tok->kind != T_RPAREN) {
        if (args->n) {
            expect(p, T_COMMA, "',' or ')'");
            if (p->tok->kind == T_RPAREN)
                break;
        }
        n = parse_arg(p);
        if (n->op < last || (n->op == last && last >= TPL_ARG_STAR))
            fail_syntax(p, "arguments in the order positional, named, *, **");
        last = n->op;
        append(p, args, n);
    }
    expect(p, T_RPAREN, "')'");
}

static swl_tpl_node *parse_call(parser *p, swl_tpl_node *callee)
{
    swl_tpl_node *n = new_node(p, N_CALL, p->tok->line);

    n->a = callee;
    parse_args(p, &n->list);
    return n;
}

static swl_tpl_node *parse_slice_part(parser *p)
{
    if (p->tok->kind == T_COLON || p->tok->kind == T_RBRACKET || p->tok->kind == T_COMMA)
        return NULL;
    return parse_expression(p, true);
}

static swl_tpl_node *parse_subscribed(parser *p)
{
    swl_tpl_node *n = new_node(p, N_SLICE, p->tok->line), *first = NULL;

    if (p->tok->kind != T_COLON) {
        first = parse_expression(p, true);
        if (p->tok->kind != T_COLON)
            return first;
    }
    step(p);
    n->a = first;
    n->b = parse_slice_part(p);
    if (skip(p, T_COLON))
        n->c = parse_slice_part(p);
    return n;
}

static swl_tpl_node *parse_subscript(parser *p, swl_tpl_node *obj)
{
    int line = p->tok->line;
    swl_tpl_node *n = new_node(p, N_ITEM, line), *tuple;

    n->a = obj;
    if (skip(p, T_DOT)) {
        if (p->tok->kind == T_INT) {
            n->b = constant(p, p->tok->val, line);
            step(p);
        } else {
            n->kind = N_ATTR;
            n->val = expect_name(p);
        }
        return n;
    }
    step(p);
    tuple = new_node(p, N_TUPLE, line);
    while (!swl_tpl_failed(p->r) && p->tok->kind != T_RBRACKET) {
        if (tuple->list.n)
            expect(p, T_COMMA, "',' or ']'");
        append(p, &tuple->list, parse_subscribed(p));
    }
    expect(p, T_RBRACKET, "']'");
    n->b = tuple->list.n == 1 ? tuple->list.v[0] : tuple;
    return n;
}

static swl_tpl_node *parse_postfix(parser *p, swl_tpl_node *n)
{
    while (!swl_tpl_failed(p->r)) {
        if (p->tok->kind == T_DOT || p->tok->kind == T_LBRACKET)
            n = parse_subscript(p, n);
        else if (p->tok->kind == T_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* Filters of ours have no dots, but a name with dots is still one name. */
static swl_tpl_value dotted_name(parser *p)
{
    swl_tpl_value v = expect_name(p);

    while (skip(p, T_DOT)) {
        v = swl_tpl_concat(p->r, v, swl_tpl_cstr("."));
        v = swl_tpl_concat(p->r, v, expect_name(p));
    }
    return v;
}

static void note_unknown(parser *p, const swl_tpl_node *n)
{
    if (n->func < 0 && !p->soft && !p->unknown)
        p->unknown = n;
}

/* a: what is filtered, NULL for the body of a block. Stands at the filter's name. */
static swl_tpl_node *parse_filter(parser *p, swl_tpl_node *a)
{
    swl_tpl_node *n = new_node(p, N_FILTER, p->tok->line);

    n->a = a;
    n->val = dotted_name(p);
    n->func = swl_tpl_filter_find(n->val);
    note_unknown(p, n);
    if (p->tok->kind == T_LPAREN)
        parse_args(p, &n->list);
    return n;
}

static bool begins_test_arg(const swl_tpl_token *t)
{
    switch (t->kind) {
    case T_NAME:
        return !is_name(t, "else") && !is_name(t, "or") && !is_name(t, "and");
    case T_STR:
    case T_INT:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE:
        return true;
    default:
        return false;
    }
}

static swl_tpl_node *parse_test(parser *p, swl_tpl_node *a)
{
    int line = p->tok->line;
    swl_tpl_node *n = new_node(p, N_TEST, line), *arg, *negation;
    bool negated;

    step(p);
    negated = skip_name(p, "not");
    n->a = a;
    n->val = dotted_name(p);
    n->func = swl_tpl_test_find(n->val);
    note_unknown(p, n);
    if (p->tok->kind == T_LPAREN) {
        parse_args(p, &n->list);
    } else if (begins_test_arg(p->tok)) {
        if (is_name(p->tok, "is"))
            fail_syntax(p, "no second test behind a test");
        arg = new_node(p, N_ARG, p->tok->line);
        arg->a = parse_postfix(p, parse_primary(p, false));
        append(p, &n->list, arg);
    }
    if (!negated)
        return n;
    negation = new_node(p, N_NOT, line);
    negation->a = n;
    return negation;
}

static swl_tpl_node *parse_filters(parser *p, swl_tpl_node *n)
{
    while (!swl_tpl_failed(p->r)) {
        if (skip(p, T_PIPE))
            n = parse_filter(p, n);
        else if (is_name(p->tok, "is"))
            n = parse_test(p, n);
        else if (p->tok->kind == T_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators, loosest last ------------------------------------------------------------------------------------- */

static swl_tpl_node *parse_sign(parser *p, swl_tpl_node_kind kind)
{
    swl_tpl_node *n = new_node(p, kind, p->tok->line);

    step(p);
    if (enter(p)) {
        n->a = parse_unary(p, false);
        swl_tpl_leave(p->r);
    }
    return n;
}

static swl_tpl_node *parse_unary(parser *p, bool with_filter)
{
    swl_tpl_node *n = p->tok->kind == T_SUB   ? parse_sign(p, N_NEG)
                      : p->tok->kind == T_ADD ? parse_sign(p, N_POS)
                                              : parse_primary(p, false);

    n = parse_postfix(p, n);
    return with_filter ? parse_filters(p, n) : n;
}

static swl_tpl_node *binary(parser *p, int op, swl_tpl_node *a, swl_tpl_node *b, int line)
{
    swl_tpl_node *n = new_node(p, N_BINARY, line);

    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return n;
}

static swl_tpl_node *parse_pow(parser *p)
{
    int line = p->tok->line;
    swl_tpl_node *n = parse_unary(p, true);

    while (skip(p, T_POW))
        n = binary(p, OP_POW, n, parse_unary(p, true), line);
    return n;
}

static swl_tpl_node *parse_product(parser *p)
{
    int line = p->tok->line, op;
    swl_tpl_node *n = parse_pow(p);

    for (;;) {
        if (skip(p, T_MUL))
            op = OP_MUL;
        else if (skip(p, T_DIV))
            op = OP_DIV;
        else if (skip(p, T_FLOORDIV))
            op = OP_FLOORDIV;
        else if (skip(p, T_MOD))
            op = OP_MOD;
        else
            return n;
        n = binary(p, op, n, parse_pow(p), line);
    }
}

static swl_tpl_node *parse_concat(parser *p)
{
    swl_tpl_node *first = parse_product(p), *n;

    if (p->tok->kind != T_TILDE)
        return first;
    n = new_node(p, N_CONCAT, first->line);
    append(p, &n->list, first);
    while (skip(p, T_TILDE))
        append(p, &n->list, parse_product(p));
    return n;
}

static swl_tpl_node *parse_sum(parser *p)
{
    int line = p->tok->line, op;
    swl_tpl_node *n = parse_concat(p);

    while (p->tok->kind == T_ADD || p->tok->kind == T_SUB) {
        op = p->tok->kind == T_ADD ? OP_ADD : OP_SUB;
        step(p);
        n = binary(p, op, n, parse_concat(p), line);
        if (swl_tpl_failed(p->r))
            break;
    }
    return n;
}

/* The comparison operator at the position, which is passed; -1 when there is none. */
static int comparison(parser *p)
{
    static const struct {
        swl_tpl_token_kind kind;
        int op;
    } ops[] = {{T_EQ, OP_EQ}, {T_NE, OP_NE}, {T_LT, OP_LT}, {T_LE, OP_LE}, {T_GT, OP_GT}, {T_GE, OP_GE}};
    size_t i;

    for (i = 0; i < sizeof ops / sizeof *ops; i++)
        if (skip(p, ops[i].kind))
            return ops[i].op;
    if (skip_name(p, "in"))
        return OP_IN;
    if (is_name(p->tok, "not") && is_name(p->tok + 1, "in")) {
        step(p);
        step(p);
        return OP_NOTIN;
    }
    return -1;
}

static swl_tpl_node *parse_compare(parser *p)
{
    int line = p->tok->line, op;
    swl_tpl_node *first = parse_sum(p), *n = NULL, *operand;

    while (!swl_tpl_failed(p->r) && (op = comparison(p)) >= 0) {
        if (!n) {
            n = new_node(p, N_COMPARE, line);
            n->a = first;
        }
        operand = new_node(p, N_ARG, line);
        operand->op = (uint8_t)op;
        operand->a = parse_sum(p);
        append(p, &n->list, operand);
    }
    return n ? n : first;
}

static swl_tpl_node *parse_not(parser *p)
{
    swl_tpl_node *n;

    if (!is_name(p->tok, "not"))
        return parse_compare(p);
    n = new_node(p, N_NOT, p->tok->line);
    step(p);
    if (enter(p)) {
        n->a = parse_not(p);
        swl_tpl_leave(p->r);
    }
    return n;
}

static swl_tpl_node *logical(parser *p, swl_tpl_node_kind kind, swl_tpl_node *a, swl_tpl_node *b)
{
    swl_tpl_node *n = new_node(p, kind, a->line);

    n->a = a;
    n->b = b;
    return n;
}

static swl_tpl_node *parse_and(parser *p)
{
    swl_tpl_node *n = parse_not(p);

    while (skip_name(p, "and"))
        n = logical(p, N_AND, n, parse_not(p));
    return n;
}

static swl_tpl_node *parse_or(parser *p)
{
    swl_tpl_node *n = parse_and(p);

    while (skip_name(p, "or"))
        n = logical(p, N_OR, n, parse_and(p));
    return n;
}

static swl_tpl_node *parse_cond(parser *p)
{
    bool soft = p->soft;
    const swl_tpl_node *unknown = p->unknown;
    int line = p->tok->line;
    swl_tpl_node *n = parse_or(p), *cond;

    while (is_name(p->tok, "if") && !swl_tpl_failed(p->r)) {
        step(p);
        p->soft = true;
        p->unknown = unknown; /* what stands before the if is a branch too */
        cond = new_node(p, N_COND, line);
        cond->b = n;
        cond->a = parse_or(p);
        if (skip_name(p, "else"))
            cond->c = parse_expression(p, true);
        n = cond;
        p->soft = soft;
    }
    return n;
}

static swl_tpl_node *parse_expression(parser *p, bool with_cond)
{
    swl_tpl_node *n;

    if (!enter(p))
        return new_node(p, N_CONST, p->tok->line);
    n = with_cond ? parse_cond(p) : parse_or(p);
    swl_tpl_leave(p->r);
    return n;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static void check_target(parser *p, const swl_tpl_node *n)
{
    int i;

    if (n->kind != N_NAME && n->kind != N_TUPLE && n->kind != N_NSREF)
        fail_syntax(p, "a name that can be assigned to");
    for (i = 0; n->kind == N_TUPLE && i < n->list.n && !swl_tpl_failed(p->r); i++)
        check_target(p, n->list.v[i]);
}

static swl_tpl_node *parse_target(parser *p, bool with_namespace, const char *end)
{
    const tuple_rules rules = {.targets = true, .with_namespace = with_namespace, .end = end};
    swl_tpl_node *n = parse_tuple(p, &rules);

    check_target(p, n);
    return n;
}

/* A body that runs in a scope of its own and is always compiled. */
static void parse_inner(parser *p, swl_tpl_list *body, const char *const *ends)
{
    bool soft = p->soft;

    p->soft = false;
    parse_body(p, body, ends);
    p->soft = soft;
}

/* The same as a function: no loop around it, names of its own. */
static void parse_function(parser *p, swl_tpl_node *n, const char *end)
{
    const char *const ends[] = {end, NULL};
    swl_tpl_node *macro = p->macro;
    bool loop = p->loop;

    p->macro = n;
    p->loop = false;
    parse_inner(p, &n->body, ends);
    p->macro = macro;
    p->loop = loop;
    step(p);
}

static swl_tpl_node *parse_set(parser *p, int line)
{
    static const tuple_rules values = {.with_cond = true};
    static const char *const ends[] = {"endset", NULL};
    swl_tpl_node *n = new_node(p, N_SET, line), *filter = NULL;

    n->a = parse_target(p, true, NULL);
    if (skip(p, T_ASSIGN)) {
        n->b = parse_tuple(p, &values);
        return n;
    }
    n->kind = N_SETBLOCK;
    while (skip(p, T_PIPE))
        filter = parse_filter(p, filter);
    n->b = filter;
    parse_inner(p, &n->body, ends);
    step(p);
    return n;
}

static swl_tpl_node *parse_for(parser *p, int line)
{
    static const tuple_rules iterable = {.end = "recursive"};
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    swl_tpl_node *n = new_node(p, N_FOR, line);
    bool loop = p->loop, soft = p->soft;

    n->a = parse_target(p, false, "in");
    if (!skip_name(p, "in"))
        fail_syntax(p, "'in'");
    n->b = parse_tuple(p, &iterable);
    p->soft = false;
    if (skip_name(p, "if"))
        n->c = parse_expression(p, true);
    p->soft = soft;
    n->flag = skip_name(p, "recursive");
    p->loop = true;
    parse_inner(p, &n->body, ends);
    p->loop = loop;
    if (skip_name(p, "else"))
        parse_inner(p, &n->orelse, last);
    step(p);
    return n;
}

static swl_tpl_node *parse_if(parser *p, int line)
{
    static const tuple_rules test = {0};
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    swl_tpl_node *n = new_node(p, N_IF, line), *branch;
    bool soft = p->soft;

    p->soft = true;
    do {
        branch = new_node(p, N_COND, p->tok->line);
        branch->a = parse_tuple(p, &test);
        parse_body(p, &branch->body, ends);
        append(p, &n->list, branch);
    } while (skip_name(p, "elif"));
    if (skip_name(p, "else"))
        parse_body(p, &n->orelse, last);
    step(p);
    p->soft = soft;
    return n;
}

/* Parameters of a macro or call block: N_ARG with the name and, in a, the default. */
static void parse_signature(parser *p, swl_tpl_node *macro)
{
    swl_tpl_node *n, *last = NULL;

    expect(p, T_LPAREN, "'('");
    while (!swl_tpl_failed(p->r) && p->tok->kind != T_RPAREN) {
        if (last)
            expect(p, T_COMMA, "',' or ')'");
        n = new_node(p, N_ARG, p->tok->line);
        n->val = expect_name(p);
        n->name = intern(p, n->val);
        if (skip(p, T_ASSIGN))
            n->a = parse_expression(p, true);
        else if (last && last->a)
            fail_syntax(p, "a default, as the parameter before has one");
        append(p, &macro->list, n);
        last = n;
    }
    expect(p, T_RPAREN, "')'");
}

static swl_tpl_node *parse_macro(parser *p, int line)
{
    swl_tpl_node *n = new_node(p, N_MACRO, line);

    n->val = expect_name(p);
    n->name = intern(p, n->val);
    parse_signature(p, n);
    parse_function(p, n, "endmacro");
    return n;
}

static swl_tpl_node *parse_callblock(parser *p, int line)
{
    swl_tpl_node *n = new_node(p, N_CALLBLOCK, line);

    n->val = swl_tpl_cstr("caller");
    if (p->tok->kind == T_LPAREN)
        parse_signature(p, n);
    n->a = parse_expression(p, true);
    if (n->a->kind != N_CALL)
        fail_syntax(p, "a call before the end of the tag");
    parse_function(p, n, "endcall");
    return n;
}

static swl_tpl_node *parse_filterblock(parser *p, int line)
{
    static const char *const ends[] = {"endfilter", NULL};
    swl_tpl_node *n = new_node(p, N_FILTERBLOCK, line);

    n->b = parse_filter(p, NULL);
    while (skip(p, T_PIPE))
        n->b = parse_filter(p, n->b);
    parse_inner(p, &n->body, ends);
    step(p);
    return n;
}

static swl_tpl_node *parse_with(parser *p, int line)
{
    static const char *const ends[] = {"endwith", NULL};
    swl_tpl_node *n = new_node(p, N_WITH, line), *set;

    while (!swl_tpl_failed(p->r) && p->tok->kind != T_BLOCK_END) {
        if (n->list.n)
            expect(p, T_COMMA, "','");
        set = new_node(p, N_SET, p->tok->line);
        set->a = parse_target(p, false, NULL);
        expect(p, T_ASSIGN, "'='");
        set->b = parse_expression(p, true);
        append(p, &n->list, set);
    }
    parse_inner(p, &n->body, ends);
    step(p);
    return n;
}

static swl_tpl_node *parse_print(parser *p, int line)
{
    swl_tpl_node *n = new_node(p, N_OUTPUT, line);

    while (!swl_tpl_failed(p->r) && p->tok->kind != T_BLOCK_END) {
        if (n->list.n)
            expect(p, T_COMMA, "','");
        append(p, &n->list, parse_expression(p, true));
    }
    return n;
}

static swl_tpl_node *parse_jump(parser *p, int line, swl_tpl_node_kind kind)
{
    if (!p->loop)
        fail_syntax(p, "a loop around break or continue");
    return new_node(p, kind, line);
}

/* transformers marks what the assistant wrote with {% generation %}; for the text it is a scope and nothing more. */
static swl_tpl_node *parse_generation(parser *p, int line)
{
    swl_tpl_node *n = new_node(p, N_SCOPE, line);
    swl_tpl_node *macro = p->macro;

    parse_function(p, n, "endgeneration");
    if (macro)
        macro->catches |= n->catches;
    return n;
}

static swl_tpl_node *parse_statement(parser *p)
{
    int line = p->tok->line;
    swl_tpl_value tag = expect_name(p);

    if (swl_tpl_str_is(tag, "if"))
        return parse_if(p, line);
    if (swl_tpl_str_is(tag, "for"))
        return parse_for(p, line);
    if (swl_tpl_str_is(tag, "set"))
        return parse_set(p, line);
    if (swl_tpl_str_is(tag, "macro"))
        return parse_macro(p, line);
    if (swl_tpl_str_is(tag, "call"))
        return parse_callblock(p, line);
    if (swl_tpl_str_is(tag, "filter"))
        return parse_filterblock(p, line);
    if (swl_tpl_str_is(tag, "with"))
        return parse_with(p, line);
    if (swl_tpl_str_is(tag, "print"))
        return parse_print(p, line);
    if (swl_tpl_str_is(tag, "generation"))
        return parse_generation(p, line);
    if (swl_tpl_str_is(tag, "break") || swl_tpl_str_is(tag, "continue"))
        return parse_jump(p, line, swl_tpl_str_is(tag, "break") ? N_BREAK : N_CONTINUE);
    p->r->line = line;
    fail_unsupported(p, "or misplaced tag", tag);
    return new_node(p, N_CONST, line);
}

static bool at_end_tag(const parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (is_name(p->tok, *ends))
            return true;
    return false;
}

/* Text, prints and statements up to one of the end tags, at whose name it stops (at the end of the source without). */
static void parse_content(parser *p, swl_tpl_list *body, const char *const *ends)
{
    static const tuple_rules values = {.with_cond = true};
    swl_tpl_node *n;

    while (!swl_tpl_failed(p->r) && p->tok->kind != T_EOF) {
        if (p->tok->kind == T_DATA) {
            n = new_node(p, N_DATA, p->tok->line);
            n->val = p->tok->val;
            step(p);
        } else if (p->tok->kind == T_VAR_BEGIN) {
            n = new_node(p, N_OUTPUT, p->tok->line);
            step(p);
            append(p, &n->list, parse_tuple(p, &values));
            expect(p, T_VAR_END, "'}}'");
        } else {
            expect(p, T_BLOCK_BEGIN, "text or a tag");
            if (at_end_tag(p, ends))
                return;
            n = parse_statement(p);
            expect(p, T_BLOCK_END, "'%}'");
        }
        append(p, body, n);
    }
    if (ends)
        fail_syntax(p, *ends);
}

static void parse_body(parser *p, swl_tpl_list *body, const char *const *ends)
{
    skip(p, T_COLON);
    expect(p, T_BLOCK_END, "'%}'");
    if (!enter(p))
        return;
    parse_content(p, body, ends);
    swl_tpl_leave(p->r);
}

void swl_tpl_parse(swl_tpl_run *r, swl_template *t, const char *source, size_t n)
{
    parser p = {.r = r, .t = t, .tok = swl_tpl_lex(r, source, n)};

    if (!p.tok)
        return;
    t->name_loop = intern(&p, swl_tpl_cstr("loop"));
    t->name_caller = intern(&p, swl_tpl_cstr("caller"));
    t->name_kwargs = intern(&p, swl_tpl_cstr("kwargs"));
    t->name_varargs = intern(&p, swl_tpl_cstr("varargs"));
    parse_content(&p, &t->body, NULL);
    if (p.unknown) {
        r->line = p.unknown->line;
        fail_unsupported(&p, p.unknown->kind == N_TEST ? "test" : "filter", p.unknown->val);
    }
}
