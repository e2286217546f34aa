/*
 * grammar_compile.c: the tools of the compiler: faults and their messages, what was compiled before, and adding nodes,
 * values and rules to a grammar. After the first fault nothing is added; indices are then 0 and mean nothing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_impl.h"

/* ---- faults ---- */

void swl_compiler_init(swl_compiler *c, swl_grammar *g, const char *what, swl_error *err)
{
    memset(c, 0, sizeof *c);
    c->g = g;
    c->what = what;
    c->root_path = "";
    c->err = err;
    c->work = SWL_GRAMMAR_WORK_MAX;
    c->owned = json_array();
    c->object = swl_compiler_own(c, json_pack("{s:s}", "type", "object"));
    c->array = swl_compiler_own(c, json_pack("{s:s}", "type", "array"));
    c->no = swl_compiler_own(c, json_false());
}

void swl_compiler_deinit(swl_compiler *c)
{
    for (size_t i = 0; i < c->n_todo; i++)
        swl_free(c->todo[i].path);
    swl_free(c->todo);
    swl_free(c->memo);
    json_decref(c->owned);
}

void swl_compiler_fail(swl_compiler *c, swl_status st, const char *path, const char *fmt, ...)
{
    char text[512];
    va_list args;

    if (c->st)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->st = swl_fail(c->err, st, "%s: %s%s%s", c->what, path, *path ? ": " : "", text);
}

static void out_of_memory(swl_compiler *c)
{
    swl_compiler_fail(c, SWL_E_NOMEM, "", "out of memory");
}

bool swl_compiler_ok(swl_compiler *c, const char *path)
{
    if (c->g->bytes.failed == SWL_E_NOMEM)
        out_of_memory(c);
    else if (c->g->bytes.failed || c->work < 0)
        swl_compiler_fail(c, SWL_E_BUDGET, path, "this asks for more states than the limit of %d",
                          (int)SWL_GRAMMAR_STATES_MAX);
    return !c->st;
}

const json_t *swl_compiler_own(swl_compiler *c, json_t *schema)
{
    if (!schema || json_array_append_new(c->owned, schema)) {
        out_of_memory(c);
        return c->no ? c->no : json_false();
    }
    return schema;
}

/* ---- paths ---- */

char *swl_compiler_path(swl_compiler *c, const char *path, const char *key)
{
    swl_sbuf b = {0};

    swl_sbuf_puts(&b, path);
    swl_sbuf_putc(&b, '/');
    for (const char *p = key; *p; p++) {
        if (*p == '~' || *p == '/')
            swl_sbuf_puts(&b, *p == '~' ? "~0" : "~1");
        else
            swl_sbuf_putc(&b, *p);
    }
    swl_sbuf_putc(&b, 0);
    if (!b.failed)
        return b.p;
    swl_sbuf_deinit(&b);
    out_of_memory(c);
    return NULL;
}

char *swl_compiler_path_at(swl_compiler *c, const char *path, size_t index)
{
    char *out = swl_asprintf("%s/%zu", path, index);

    if (!out)
        out_of_memory(c);
    return out;
}

/* ---- what was compiled before ---- */

static size_t memo_slot(const swl_compiler *c, int32_t kind, const void *a, const void *b)
{
    uint64_t h = ((uint64_t)(uintptr_t)a * 31 + (uint64_t)(uintptr_t)b + (uint64_t)kind) * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(h >> 20) & (c->cap_memo - 1);

    while (c->memo[i].a && (c->memo[i].a != a || c->memo[i].b != b || c->memo[i].kind != kind))
        i = (i + 1) & (c->cap_memo - 1);
    return i;
}

swl_memo *swl_memo_find(swl_compiler *c, int32_t kind, const void *a, const void *b)
{
    size_t i = c->cap_memo ? memo_slot(c, kind, a, b) : 0;

    return c->cap_memo && c->memo[i].a ? &c->memo[i] : NULL;
}

void swl_memo_add(swl_compiler *c, swl_memo m)
{
    size_t n_old = c->cap_memo;
    swl_memo *old = c->memo;

    if (c->st)
        return;
    if (2 * (c->n_memo + 1) > c->cap_memo) {
        swl_memo *memo = swl_calloc(n_old ? 2 * n_old : 64, sizeof *memo);

        if (!memo) {
            out_of_memory(c);
            return;
        }
        c->memo = memo;
        c->cap_memo = n_old ? 2 * n_old : 64;
        for (size_t i = 0; i < n_old; i++)
            if (old[i].a)
                c->memo[memo_slot(c, old[i].kind, old[i].a, old[i].b)] = old[i];
        swl_free(old);
    }
    c->memo[memo_slot(c, m.kind, m.a, m.b)] = m;
    c->n_memo++;
}

/* ---- nodes ---- */

static bool room(swl_compiler *c, void **p, size_t *cap, int32_t n, int32_t more, size_t size)
{
    if (c->st)
        return false;
    if (n + more > SWL_GRAMMAR_NODES_MAX)
        swl_compiler_fail(c, SWL_E_BUDGET, "", "this asks for more than the limit of %d nodes",
                          (int)SWL_GRAMMAR_NODES_MAX);
    else if (!swl_grow(p, cap, (size_t)n + (size_t)more, size))
        out_of_memory(c);
    return !c->st;
}

int32_t swl_add_counted(swl_compiler *c, swl_node_kind kind, int32_t a, int32_t min, int32_t max, int32_t next)
{
    swl_grammar *g = c->g;

    if (!room(c, (void **)&g->nodes, &g->cap_nodes, g->n_nodes, 1, sizeof *g->nodes))
        return 0;
    g->nodes[g->n_nodes] = (swl_node){kind, next, a, min, max};
    return g->n_nodes++;
}

int32_t swl_add_node(swl_compiler *c, swl_node_kind kind, int32_t a, int32_t next)
{
    return swl_add_counted(c, kind, a, 0, 0, next);
}

int32_t swl_add_part(swl_compiler *c, int32_t part, int32_t next)
{
    return swl_add_node(c, SWL_NODE_BYTES, c->g->vocab->part[part], next);
}

int32_t swl_add_words(swl_compiler *c, const swl_word *words, size_t n, int32_t next)
{
    int32_t start = c->st ? 0 : swl_bytes_words(&c->g->bytes, words, n);

    return swl_compiler_ok(c, "") ? swl_add_node(c, SWL_NODE_BYTES, start, next) : 0;
}

int32_t swl_add_text(swl_compiler *c, const char *text, size_t n, int32_t next)
{
    swl_word word = {text, n};

    return swl_add_words(c, &word, 1, next);
}

static int32_t add_list(swl_compiler *c, const int32_t *list, int32_t n)
{
    swl_grammar *g = c->g;

    if (!room(c, (void **)&g->lists, &g->cap_lists, g->n_lists, n, sizeof *g->lists))
        return 0;
    for (int32_t i = 0; i < n; i++)
        g->lists[g->n_lists + i] = list ? list[i] : 0;
    g->n_lists += n;
    return g->n_lists - n;
}

int32_t swl_add_split(swl_compiler *c, const int32_t *nodes, int32_t n)
{
    return n == 1 ? nodes[0] : swl_add_counted(c, SWL_NODE_SPLIT, add_list(c, nodes, n), n, 0, -1);
}

int32_t swl_add_open_split(swl_compiler *c, int32_t n)
{
    return swl_add_counted(c, SWL_NODE_SPLIT, add_list(c, NULL, n), n, 0, -1);
}

/* ---- values and rules ---- */

int32_t swl_new_rule(swl_compiler *c)
{
    swl_grammar *g = c->g;

    if (!room(c, (void **)&g->rules, &g->cap_rules, g->n_rules, 1, sizeof *g->rules))
        return 0;
    g->rules[g->n_rules] = (swl_rule){0};
    return g->n_rules++;
}

void swl_rule_needs(swl_compiler *c, int32_t rule, const int32_t *values, int32_t n)
{
    int32_t at = add_list(c, values, n);

    if (c->st)
        return;
    c->g->rules[rule].needs = at;
    c->g->rules[rule].n_needs = n;
}

int32_t swl_new_value(swl_compiler *c, const swl_option *options, int32_t n)
{
    swl_grammar *g = c->g;

    if (!room(c, (void **)&g->options, &g->cap_options, g->n_options, n, sizeof *g->options) ||
        !room(c, (void **)&g->values, &g->cap_values, g->n_values, 1, sizeof *g->values))
        return 0;
    for (int32_t i = 0; i < n; i++)
        g->options[g->n_options + i] = options[i];
    g->values[g->n_values] = (swl_value){g->n_options, n, 0};
    g->n_options += n;
    return g->n_values++;
}

static int32_t add_option(swl_compiler *c, const swl_option *o, int32_t next)
{
    if (o->kind == SWL_NODE_TEXT && !o->b && o->c < 0)
        return swl_add_node(c, SWL_NODE_BYTES, o->a, next);
    return swl_add_counted(c, o->kind, o->a, o->b, o->c, next);
}

static int32_t add_options(swl_compiler *c, int32_t value, int32_t next, int32_t text_next)
{
    swl_value v;
    int32_t split;

    if (c->st)
        return 0;
    v = c->g->values[value];
    split = swl_add_open_split(c, v.n_options);
    for (int32_t i = 0; i < v.n_options && !c->st; i++) {
        swl_option o = c->g->options[v.options + i];
        int32_t node = add_option(c, &o, o.kind == SWL_NODE_TEXT ? text_next : next);

        c->g->lists[c->g->nodes[split].a + i] = node;
    }
    return split;
}

int32_t swl_add_value(swl_compiler *c, int32_t value, int32_t next)
{
    return add_options(c, value, next, next);
}

int32_t swl_add_parameter(swl_compiler *c, int32_t value, int32_t next)
{
    return add_options(c, value, swl_add_part(c, SWL_PART_END_VALUE, next), next);
}

int32_t swl_add_if_fits(swl_compiler *c, int32_t value, int32_t node)
{
    return swl_add_node(c, SWL_NODE_FITS, value, node);
}
