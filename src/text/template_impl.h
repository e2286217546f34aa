/*
 * template_impl.h: what the parts of the template engine share.
 *
 *     template_lex.c     source -> tokens (whitespace control happens here)
 *     template_parse.c   tokens -> tree
 *     template_eval.c    walks the tree: expressions, statements, scopes, calls; the public functions
 *     template_value.c   values as Python sees them: truth, order, str, repr, iteration; memory and errors of a run
 *     template_json.c    json_t -> values, values -> tojson
 *     template_text.c    strings by code point: case, white space, search, split, slices
 *     template_format.c  % and str.format
 *     template_filters.c filters and tests
 *     template_methods.c attributes and methods of str, dict, list; the loop variable
 *
 * Errors are sticky: the first swl_tpl_fail of a run is kept, after it every operation does nothing and returns
 * undefined, and loops ask swl_tpl_failed. So a function that needs three values evaluates three and goes on; nothing
 * is freed on the way since everything made by a run lies in its arena, and the output buffer belongs to the run.
 *
 * Values are immutable but for namespaces and loop state, as in the sandbox: list and string slices share memory.
 */
#ifndef SWL_TEXT_TEMPLATE_IMPL_H
#define SWL_TEXT_TEMPLATE_IMPL_H

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "text/template.h"

/* Limits of one template and one rendering. Real templates are below 100 KB, use some hundred steps per message, and
 * nest below 20 deep. The depths bound the C stack: the worst cases known fit into 192 KiB, with sanitizers 512 KiB. */
enum {
    TPL_SOURCE_BYTES_MAX = 4 << 20,
    TPL_MEMORY_BYTES_MAX = 256 << 20, /* everything that a run makes besides the output */
    TPL_OUTPUT_BYTES_MAX = 64 << 20,
    TPL_STEPS_MAX = 20 * 1000 * 1000,
    TPL_PARSE_DEPTH_MAX = 100,
    TPL_DEPTH_MAX = 800,
    TPL_RANGE_MAX = 100000 /* jinja2's sandbox has the same limit */
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef struct swl_tpl_chunk {
    struct swl_tpl_chunk *next;
    size_t n, cap;
    char data[];
} swl_tpl_chunk;

typedef struct swl_tpl_arena {
    swl_tpl_chunk *head;
    size_t total;
} swl_tpl_arena;

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* clang-format off */
typedef enum swl_tpl_kind {
    TPL_MISSING = 0, /* an argument that was not given; never the result of an expression */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STR,   /* flag 1: marked safe (markupsafe.Markup) */
    TPL_LIST,
    TPL_TUPLE,
    TPL_VIEW,  /* of a dict; flag: 0 keys, 1 values, 2 items */
    TPL_DICT,
    TPL_RANGE,
    TPL_ITER,  /* a generator: true whatever it holds, without length, good for one pass */
    TPL_NAMESPACE,
    TPL_LOOP,
    TPL_MACRO,
    TPL_METHOD,
    TPL_FUNC
} swl_tpl_kind;
/* clang-format on */

/* What an undefined value says when it is used. */
enum { TPL_UNDEF_HINT, TPL_UNDEF_NAME, TPL_UNDEF_ATTR, TPL_UNDEF_UNSAFE };

typedef struct swl_tpl_value {
    uint8_t kind;
    uint8_t flag;
    uint32_t n; /* bytes of a string, items of a list, tuple or view */
    union {
        int64_t i; /* bool, int, func: its index */
        double f;
        const char *s; /* str, undefined: text for the message; not NUL-terminated */
        const struct swl_tpl_value *items;
        struct swl_tpl_dict *dict; /* dict, namespace */
        struct swl_tpl_range *range;
        struct swl_tpl_iter *iter;
        struct swl_tpl_loop *loop;
        struct swl_tpl_macro *macro;
        struct swl_tpl_method *method;
    } u;
} swl_tpl_value;

/* Insertion-ordered; an open-addressing index from 9 entries on. */
typedef struct swl_tpl_dict {
    uint32_t n, cap, n_index;
    swl_tpl_value *keys, *vals;
    uint32_t *index; /* entry + 1, or 0 */
} swl_tpl_dict;

typedef struct swl_tpl_range {
    int64_t start, stop, step;
    uint32_t n;
} swl_tpl_range;

/* ---- syntax tree ------------------------------------------------------------------------------------------------- */

/* clang-format off */
typedef enum swl_tpl_node_kind {
    /* expressions */
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_NOT, N_NEG, N_POS, N_BINARY, N_CONCAT, N_COMPARE, N_AND, N_OR, N_COND,
    N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NSREF,
    N_ARG, /* of a call: op is one of TPL_ARG_* */
    /* statements */
    N_DATA, N_OUTPUT, N_IF, N_FOR, N_SET, N_SETBLOCK, N_MACRO, N_CALLBLOCK, N_FILTERBLOCK, N_WITH, N_BREAK, N_CONTINUE,
    N_SCOPE
} swl_tpl_node_kind;

enum { TPL_ARG_POS, TPL_ARG_NAMED, TPL_ARG_STAR, TPL_ARG_STARSTAR };

/* Operators of N_BINARY and of the operands of N_COMPARE. */
enum { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN,
       OP_NOTIN };
/* clang-format on */

typedef struct swl_tpl_list {
    struct swl_tpl_node **v;
    int n, cap;
} swl_tpl_list;

typedef struct swl_tpl_node {
    uint8_t kind, op;
    bool flag;       /* N_FOR: recursive; N_MACRO: unused */
    uint8_t catches; /* N_MACRO: TPL_CATCH_* of what its body names */
    int line;
    int name;          /* N_NAME, N_NSREF, N_MACRO: index of the variable's name */
    int func;          /* N_FILTER, N_TEST: index, -1 when there is no such thing */
    swl_tpl_value val; /* N_CONST: the value; N_ATTR, N_NSREF, N_FILTER, N_TEST, N_ARG, N_MACRO: a name; N_DATA: text */
    struct swl_tpl_node *a, *b, *c;
    swl_tpl_list list; /* items, arguments, elif branches, parameters */
    swl_tpl_list body, orelse;
} swl_tpl_node;

enum { TPL_CATCH_CALLER = 1, TPL_CATCH_KWARGS = 2, TPL_CATCH_VARARGS = 4 };

struct swl_template {
    swl_tpl_arena arena;
    char *path;
    swl_tpl_list body;
    swl_tpl_value *names; /* every variable name of the source, once */
    int n_names, names_cap;
    int name_loop, name_caller, name_kwargs, name_varargs;
};

/* ---- a run ------------------------------------------------------------------------------------------------------- */

typedef struct swl_tpl_binding {
    struct swl_tpl_binding *next;
    int name;
    swl_tpl_value val;
} swl_tpl_binding;

typedef struct swl_tpl_scope {
    struct swl_tpl_scope *parent;
    swl_tpl_binding *first;
} swl_tpl_scope;

/* Parsing and rendering are both runs: they share arena, errors and depth. */
typedef struct swl_tpl_run {
    const swl_template *t;
    swl_tpl_arena *arena;
    const char *path;
    swl_status st;
    swl_error *err;
    int line;
    int depth;
    uint64_t steps;
    char *out;
    size_t out_n, out_cap;
    swl_tpl_scope *scope;
} swl_tpl_run;

typedef struct swl_tpl_method {
    swl_tpl_value self;
    int index;
} swl_tpl_method;

typedef struct swl_tpl_macro {
    const swl_tpl_node *node; /* N_MACRO or N_CALLBLOCK: parameters in list, body */
    swl_tpl_scope *scope;     /* where it was defined */
} swl_tpl_macro;

typedef struct swl_tpl_loop {
    const swl_tpl_node *node;
    swl_tpl_scope *scope;
    struct swl_tpl_iter *it;
    swl_tpl_value source, cur, prev, after, changed;
    bool filtered;
    int64_t index0, length; /* length -1: not yet known */
    int depth0;
} swl_tpl_loop;

/* Positional and named arguments of a call. */
typedef struct swl_tpl_args {
    swl_tpl_value *v;
    int n;
    swl_tpl_value *names, *named;
    int n_named;
} swl_tpl_args;

typedef struct swl_tpl_iter swl_tpl_iter;
struct swl_tpl_iter {
    bool (*next)(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out);
    swl_tpl_value src; /* arrays, ranges, strings */
    uint32_t pos;
    swl_tpl_iter *from; /* generators that draw from another */
    swl_tpl_args args;
    int func, mode;
    swl_tpl_value attr;
    swl_tpl_dict *seen;
    const char *error; /* what is wrong, said when the first item is asked for */
};

/* template_value.c */
void *swl_tpl_alloc(swl_tpl_run *r, size_t n, size_t size); /* zeroed; NULL after a failure */
void swl_tpl_arena_free(swl_tpl_arena *a);
bool swl_tpl_failed(const swl_tpl_run *r);
void swl_tpl_fail(swl_tpl_run *r, swl_status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void swl_tpl_charge(swl_tpl_run *r, uint64_t steps);
bool swl_tpl_enter(swl_tpl_run *r); /* one level deeper; when true, swl_tpl_leave must follow */
void swl_tpl_leave(swl_tpl_run *r);
void swl_tpl_use_undefined(swl_tpl_run *r, swl_tpl_value v);

void swl_tpl_put(swl_tpl_run *r, const char *s, size_t n);
void swl_tpl_puts(swl_tpl_run *r, const char *s);
void swl_tpl_put_str(swl_tpl_run *r, swl_tpl_value v);  /* str(v) */
void swl_tpl_put_repr(swl_tpl_run *r, swl_tpl_value v); /* repr(v) */
void swl_tpl_put_float(swl_tpl_run *r, double f);
void swl_tpl_put_int(swl_tpl_run *r, int64_t i);
swl_tpl_value swl_tpl_capture(swl_tpl_run *r,
                              size_t mark); /* output from mark on becomes a string and leaves the output */

swl_tpl_value swl_tpl_undefined(const char *hint);
swl_tpl_value swl_tpl_undefined_at(int what, swl_tpl_value name);
swl_tpl_value swl_tpl_none(void);
swl_tpl_value swl_tpl_bool(bool b);
swl_tpl_value swl_tpl_int(int64_t i);
swl_tpl_value swl_tpl_float(double f);
swl_tpl_value swl_tpl_text(const char *s, size_t n); /* borrows */
swl_tpl_value swl_tpl_cstr(const char *s);           /* borrows */
swl_tpl_value swl_tpl_seq(int kind, const swl_tpl_value *items, uint32_t n);
swl_tpl_value swl_tpl_concat(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b); /* two strings */

const char *swl_tpl_type_name(swl_tpl_value v);
bool swl_tpl_is_seq(swl_tpl_value v);      /* list, tuple, view */
bool swl_tpl_is_number(swl_tpl_value v);   /* bool, int, float */
bool swl_tpl_is_integral(swl_tpl_value v); /* bool, int */
double swl_tpl_as_double(swl_tpl_value v);
bool swl_tpl_str_is(swl_tpl_value v, const char *s);
bool swl_tpl_truth(swl_tpl_value v);
bool swl_tpl_equal(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b);
bool swl_tpl_same(swl_tpl_value a, swl_tpl_value b);                   /* Python's `is` */
int swl_tpl_compare(swl_tpl_run *r, swl_tpl_value a, swl_tpl_value b); /* -1, 0, 1; 2 when a NaN is compared */
bool swl_tpl_has_length(swl_tpl_value v);
int64_t swl_tpl_length(swl_tpl_run *r, swl_tpl_value v);
bool swl_tpl_contains(swl_tpl_run *r, swl_tpl_value item, swl_tpl_value in);
swl_tpl_value swl_tpl_str(swl_tpl_run *r, swl_tpl_value v); /* str(v) as a value */

swl_tpl_dict *swl_tpl_dict_new(swl_tpl_run *r, uint32_t cap);
void swl_tpl_dict_set(swl_tpl_run *r, swl_tpl_dict *d, swl_tpl_value key, swl_tpl_value val);
bool swl_tpl_dict_get(swl_tpl_run *r, const swl_tpl_dict *d, swl_tpl_value key, swl_tpl_value *val);
swl_tpl_value swl_tpl_dict_value(int kind, swl_tpl_dict *d);

bool swl_tpl_iterable(swl_tpl_value v);
swl_tpl_iter *swl_tpl_iterate(swl_tpl_run *r, swl_tpl_value v); /* NULL after a failure */
bool swl_tpl_next(swl_tpl_run *r, swl_tpl_iter *it, swl_tpl_value *out);
swl_tpl_value swl_tpl_to_list(swl_tpl_run *r, swl_tpl_value v);
swl_tpl_value swl_tpl_rest(swl_tpl_run *r, swl_tpl_iter *it); /* what is left, as a list */
void swl_tpl_sort(swl_tpl_run *r, swl_tpl_value *v, swl_tpl_value *keys, uint32_t n, bool reverse); /* stable */

/* template_json.c */
swl_tpl_value swl_tpl_from_json(swl_tpl_run *r, const json_t *j);
typedef struct swl_tpl_json_options {
    bool ascii, sort, pretty;
    swl_tpl_value indent, item_sep, key_sep;
} swl_tpl_json_options;
void swl_tpl_put_json(swl_tpl_run *r, swl_tpl_value v, const swl_tpl_json_options *opt, int level);

/* template_text.c */
int swl_tpl_utf8(const char *s, size_t n, int32_t *cp); /* bytes of the first character, at least 1 */
size_t swl_tpl_utf8_put(char *dst, int32_t cp);
bool swl_tpl_utf8_valid(const char *s, size_t n, size_t *bad);
bool swl_tpl_is_space(int32_t cp);
int64_t swl_tpl_text_length(swl_tpl_value s); /* code points */
swl_tpl_value swl_tpl_text_slice(swl_tpl_run *r, swl_tpl_value s, int64_t from, int64_t step, int64_t n);
swl_tpl_value swl_tpl_strip(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value chars, bool left,
                            bool right); /* chars absent: white space */
typedef enum swl_tpl_case { TPL_UPPER, TPL_LOWER, TPL_TITLE, TPL_CAPITALIZE, TPL_TITLE_FILTER } swl_tpl_case;
swl_tpl_value swl_tpl_recase(swl_tpl_run *r, swl_tpl_value s, swl_tpl_case how);
int64_t swl_tpl_find(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value sub, size_t from, size_t to,
                     bool last); /* byte offset or -1 */
swl_tpl_value swl_tpl_replace(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value from, swl_tpl_value to, int64_t max);
swl_tpl_value swl_tpl_split(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value sep, int64_t max, bool from_right);
swl_tpl_value swl_tpl_splitlines(swl_tpl_run *r, swl_tpl_value s, bool keep);
bool swl_tpl_text_is(swl_tpl_value s, const char *property); /* "isupper", "isdigit", ... */
swl_tpl_value swl_tpl_escape(swl_tpl_run *r, swl_tpl_value v);
/* template_format.c */
swl_tpl_value swl_tpl_percent(swl_tpl_run *r, swl_tpl_value fmt, swl_tpl_value args);   /* fmt % args */
swl_tpl_value swl_tpl_format(swl_tpl_run *r, swl_tpl_value fmt, const swl_tpl_args *a); /* fmt.format(...) */

/* template_filters.c */
int swl_tpl_filter_find(swl_tpl_value name);
int swl_tpl_test_find(swl_tpl_value name);
swl_tpl_value swl_tpl_filter_call(swl_tpl_run *r, int filter, swl_tpl_value v, const swl_tpl_args *a);
bool swl_tpl_test_call(swl_tpl_run *r, int test, swl_tpl_value v, const swl_tpl_args *a);
/* Binds arguments to parameters, which are named in one string ("a b c"; a leading '/' forbids naming them). */
bool swl_tpl_bind(swl_tpl_run *r, const char *what, const swl_tpl_args *a, const char *params, int n_required,
                  swl_tpl_value *out);
enum { TPL_PARAMS_MAX = 8 };

/* template_methods.c */
swl_tpl_value swl_tpl_attr(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value name); /* obj.name */
swl_tpl_value swl_tpl_item(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value key);  /* obj[key] */
swl_tpl_value swl_tpl_slice(swl_tpl_run *r, swl_tpl_value obj, swl_tpl_value from, swl_tpl_value to,
                            swl_tpl_value step);
swl_tpl_value swl_tpl_method_call(swl_tpl_run *r, const swl_tpl_method *m, const swl_tpl_args *a);

/* template_parse.c */
void swl_tpl_parse(swl_tpl_run *r, swl_template *t, const char *source, size_t n);

/* template_lex.c */
/* clang-format off */
typedef enum swl_tpl_token_kind {
    T_EOF, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STR, T_INT, T_FLOAT,
    T_ADD, T_SUB, T_MUL, T_DIV, T_FLOORDIV, T_MOD, T_POW, T_TILDE, T_LBRACKET, T_RBRACKET, T_LPAREN, T_RPAREN,
    T_LBRACE, T_RBRACE, T_EQ, T_NE, T_GT, T_GE, T_LT, T_LE, T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON
} swl_tpl_token_kind;
/* clang-format on */

typedef struct swl_tpl_token {
    swl_tpl_token_kind kind;
    int line;
    swl_tpl_value val; /* text of data, names and strings; numbers */
} swl_tpl_token;

/* The tokens of the whole source, ended by T_EOF; NULL after a failure. */
swl_tpl_token *swl_tpl_lex(swl_tpl_run *r, const char *source, size_t n);

/* template_eval.c */
swl_tpl_value swl_tpl_call(swl_tpl_run *r, swl_tpl_value f, const swl_tpl_args *a);
bool swl_tpl_loop_peek(swl_tpl_run *r, swl_tpl_loop *l, swl_tpl_value *out);
int64_t swl_tpl_loop_length(swl_tpl_run *r, swl_tpl_loop *l);
swl_tpl_value swl_tpl_binary(swl_tpl_run *r, int op, swl_tpl_value a, swl_tpl_value b);

#endif
