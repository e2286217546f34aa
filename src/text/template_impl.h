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
 * Errors are sticky: the first tpl_fail of a run is kept, after it every operation does nothing and returns undefined,
 * and loops ask tpl_failed. So a function that needs three values evaluates three and goes on; nothing is freed on the
 * way since everything made by a run lies in its arena, and the output buffer belongs to the run.
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
 * nest below 20 deep. The depths bound the C stack: worst frames measured stay below 256 KiB together. */
enum {
    TPL_SOURCE_BYTES_MAX = 4 << 20,
    TPL_MEMORY_BYTES_MAX = 256 << 20, /* everything that a run makes besides the output */
    TPL_OUTPUT_BYTES_MAX = 64 << 20,
    TPL_STEPS_MAX = 20 * 1000 * 1000,
    TPL_PARSE_DEPTH_MAX = 100,
    TPL_DEPTH_MAX = 400,
    TPL_RANGE_MAX = 100000 /* jinja2's sandbox has the same limit */
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef struct tpl_chunk {
    struct tpl_chunk *next;
    size_t n, cap;
    char data[];
} tpl_chunk;

typedef struct tpl_arena {
    tpl_chunk *head;
    size_t total;
} tpl_arena;

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* clang-format off */
typedef enum tpl_kind {
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
} tpl_kind;
/* clang-format on */

/* What an undefined value says when it is used. */
enum { TPL_UNDEF_HINT, TPL_UNDEF_NAME, TPL_UNDEF_ATTR, TPL_UNDEF_UNSAFE };

typedef struct tpl_value {
    uint8_t kind;
    uint8_t flag;
    uint32_t n; /* bytes of a string, items of a list, tuple or view */
    union {
        int64_t i; /* bool, int, func: its index */
        double f;
        const char *s; /* str, undefined: text for the message; not NUL-terminated */
        const struct tpl_value *items;
        struct tpl_dict *dict; /* dict, namespace */
        struct tpl_range *range;
        struct tpl_iter *iter;
        struct tpl_loop *loop;
        struct tpl_macro *macro;
        struct tpl_method *method;
    } u;
} tpl_value;

/* Insertion-ordered; an open-addressing index from 9 entries on. */
typedef struct tpl_dict {
    uint32_t n, cap, n_index;
    tpl_value *keys, *vals;
    uint32_t *index; /* entry + 1, or 0 */
} tpl_dict;

typedef struct tpl_range {
    int64_t start, stop, step;
    uint32_t n;
} tpl_range;

/* ---- syntax tree ------------------------------------------------------------------------------------------------- */

/* clang-format off */
typedef enum tpl_node_kind {
    /* expressions */
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_NOT, N_NEG, N_POS, N_BINARY, N_CONCAT, N_COMPARE, N_AND, N_OR, N_COND,
    N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NSREF,
    N_ARG, /* of a call: op is one of TPL_ARG_* */
    /* statements */
    N_DATA, N_OUTPUT, N_IF, N_FOR, N_SET, N_SETBLOCK, N_MACRO, N_CALLBLOCK, N_FILTERBLOCK, N_WITH, N_BREAK, N_CONTINUE,
    N_SCOPE
} tpl_node_kind;

enum { TPL_ARG_POS, TPL_ARG_NAMED, TPL_ARG_STAR, TPL_ARG_STARSTAR };

/* Operators of N_BINARY and of the operands of N_COMPARE. */
enum { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN,
       OP_NOTIN };
/* clang-format on */

typedef struct tpl_list {
    struct tpl_node **v;
    int n, cap;
} tpl_list;

typedef struct tpl_node {
    uint8_t kind, op;
    bool flag;       /* N_FOR: recursive; N_MACRO: unused */
    uint8_t catches; /* N_MACRO: TPL_CATCH_* of what its body names */
    int line;
    int name;      /* N_NAME, N_NSREF, N_MACRO: index of the variable's name */
    int func;      /* N_FILTER, N_TEST: index, -1 when there is no such thing */
    tpl_value val; /* N_CONST: the value; N_ATTR, N_NSREF, N_FILTER, N_TEST, N_ARG, N_MACRO: a name; N_DATA: text */
    struct tpl_node *a, *b, *c;
    tpl_list list; /* items, arguments, elif branches, parameters */
    tpl_list body, orelse;
} tpl_node;

enum { TPL_CATCH_CALLER = 1, TPL_CATCH_KWARGS = 2, TPL_CATCH_VARARGS = 4 };

struct swl_template {
    tpl_arena arena;
    char *path;
    tpl_list body;
    tpl_value *names; /* every variable name of the source, once */
    int n_names, names_cap;
    int name_loop, name_caller, name_kwargs, name_varargs;
};

/* ---- a run ------------------------------------------------------------------------------------------------------- */

typedef struct tpl_binding {
    struct tpl_binding *next;
    int name;
    tpl_value val;
} tpl_binding;

typedef struct tpl_scope {
    struct tpl_scope *parent;
    tpl_binding *first;
} tpl_scope;

/* Parsing and rendering are both runs: they share arena, errors and depth. */
typedef struct tpl_run {
    const swl_template *t;
    tpl_arena *arena;
    const char *path;
    swl_status st;
    swl_error *err;
    int line;
    int depth;
    uint64_t steps;
    char *out;
    size_t out_n, out_cap;
    tpl_scope *scope;
} tpl_run;

typedef struct tpl_method {
    tpl_value self;
    int index;
} tpl_method;

typedef struct tpl_macro {
    const tpl_node *node; /* N_MACRO or N_CALLBLOCK: parameters in list, body */
    tpl_scope *scope;     /* where it was defined */
} tpl_macro;

typedef struct tpl_loop {
    const tpl_node *node;
    tpl_scope *scope;
    struct tpl_iter *it;
    tpl_value source, cur, prev, after, changed;
    bool filtered, exhausted;
    int64_t index0, length; /* length -1: not yet known */
    int depth0;
} tpl_loop;

/* Positional and named arguments of a call. */
typedef struct tpl_args {
    tpl_value *v;
    int n;
    tpl_value *names, *named;
    int n_named;
} tpl_args;

typedef struct tpl_iter tpl_iter;
struct tpl_iter {
    bool (*next)(tpl_run *r, tpl_iter *it, tpl_value *out);
    tpl_value src; /* arrays, ranges, strings */
    uint32_t pos;
    bool reversed;
    tpl_iter *from; /* generators that draw from another */
    tpl_args args;
    int func, mode;
    tpl_value attr;
    tpl_dict *seen;
    const char *error; /* what is wrong, said when the first item is asked for */
};

/* template_value.c */
void *tpl_alloc(tpl_run *r, size_t n, size_t size); /* zeroed; NULL after a failure */
void tpl_arena_free(tpl_arena *a);
bool tpl_failed(const tpl_run *r);
void tpl_fail(tpl_run *r, swl_status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void tpl_charge(tpl_run *r, uint64_t steps);
bool tpl_enter(tpl_run *r); /* one level deeper; when true, tpl_leave must follow */
void tpl_leave(tpl_run *r);
void tpl_use_undefined(tpl_run *r, tpl_value v);

void tpl_put(tpl_run *r, const char *s, size_t n);
void tpl_puts(tpl_run *r, const char *s);
void tpl_put_str(tpl_run *r, tpl_value v);  /* str(v) */
void tpl_put_repr(tpl_run *r, tpl_value v); /* repr(v) */
void tpl_put_float(tpl_run *r, double f);
void tpl_put_int(tpl_run *r, int64_t i);
tpl_value tpl_capture(tpl_run *r, size_t mark); /* output from mark on becomes a string and leaves the output */

tpl_value tpl_undefined(const char *hint);
tpl_value tpl_undefined_at(int what, tpl_value name);
tpl_value tpl_none(void);
tpl_value tpl_bool(bool b);
tpl_value tpl_int(int64_t i);
tpl_value tpl_float(double f);
tpl_value tpl_text(const char *s, size_t n); /* borrows */
tpl_value tpl_cstr(const char *s);           /* borrows */
tpl_value tpl_seq(int kind, const tpl_value *items, uint32_t n);
tpl_value tpl_concat(tpl_run *r, tpl_value a, tpl_value b); /* two strings */

const char *tpl_type_name(tpl_value v);
bool tpl_is_seq(tpl_value v);      /* list, tuple, view */
bool tpl_is_number(tpl_value v);   /* bool, int, float */
bool tpl_is_integral(tpl_value v); /* bool, int */
double tpl_as_double(tpl_value v);
bool tpl_str_is(tpl_value v, const char *s);
bool tpl_truth(tpl_value v);
bool tpl_equal(tpl_run *r, tpl_value a, tpl_value b);
bool tpl_same(tpl_value a, tpl_value b);               /* Python's `is` */
int tpl_compare(tpl_run *r, tpl_value a, tpl_value b); /* -1, 0, 1; 2 when a NaN is compared */
bool tpl_has_length(tpl_value v);
int64_t tpl_length(tpl_run *r, tpl_value v);
bool tpl_contains(tpl_run *r, tpl_value item, tpl_value in);
tpl_value tpl_str(tpl_run *r, tpl_value v); /* str(v) as a value */

tpl_dict *tpl_dict_new(tpl_run *r, uint32_t cap);
void tpl_dict_set(tpl_run *r, tpl_dict *d, tpl_value key, tpl_value val);
bool tpl_dict_get(tpl_run *r, const tpl_dict *d, tpl_value key, tpl_value *val);
tpl_value tpl_dict_value(int kind, tpl_dict *d);

bool tpl_iterable(tpl_value v);
tpl_iter *tpl_iterate(tpl_run *r, tpl_value v); /* NULL after a failure */
bool tpl_next(tpl_run *r, tpl_iter *it, tpl_value *out);
tpl_value tpl_to_list(tpl_run *r, tpl_value v);
tpl_value tpl_rest(tpl_run *r, tpl_iter *it);                                       /* what is left, as a list */
void tpl_sort(tpl_run *r, tpl_value *v, tpl_value *keys, uint32_t n, bool reverse); /* stable */

/* template_json.c */
tpl_value tpl_from_json(tpl_run *r, const json_t *j);
typedef struct tpl_json_options {
    bool ascii, sort, pretty;
    tpl_value indent, item_sep, key_sep;
} tpl_json_options;
void tpl_put_json(tpl_run *r, tpl_value v, const tpl_json_options *opt, int level);

/* template_text.c */
int tpl_utf8(const char *s, size_t n, int32_t *cp); /* bytes of the first character, at least 1 */
size_t tpl_utf8_put(char *dst, int32_t cp);
bool tpl_utf8_valid(const char *s, size_t n, size_t *bad);
bool tpl_is_space(int32_t cp);
int64_t tpl_text_length(tpl_value s); /* code points */
tpl_value tpl_text_slice(tpl_run *r, tpl_value s, int64_t from, int64_t step, int64_t n);
tpl_value tpl_strip(tpl_run *r, tpl_value s, tpl_value chars, bool left, bool right); /* chars absent: white space */
typedef enum tpl_case { TPL_UPPER, TPL_LOWER, TPL_TITLE, TPL_CAPITALIZE, TPL_TITLE_FILTER } tpl_case;
tpl_value tpl_recase(tpl_run *r, tpl_value s, tpl_case how);
int64_t tpl_find(tpl_run *r, tpl_value s, tpl_value sub, size_t from, size_t to, bool last); /* byte offset or -1 */
tpl_value tpl_replace(tpl_run *r, tpl_value s, tpl_value from, tpl_value to, int64_t max);
tpl_value tpl_split(tpl_run *r, tpl_value s, tpl_value sep, int64_t max, bool from_right);
tpl_value tpl_splitlines(tpl_run *r, tpl_value s, bool keep);
bool tpl_text_is(tpl_value s, const char *property); /* "isupper", "isdigit", ... */
tpl_value tpl_escape(tpl_run *r, tpl_value v);
/* template_format.c */
tpl_value tpl_percent(tpl_run *r, tpl_value fmt, tpl_value args);   /* fmt % args */
tpl_value tpl_format(tpl_run *r, tpl_value fmt, const tpl_args *a); /* fmt.format(...) */

/* template_filters.c */
int tpl_filter_find(tpl_value name);
int tpl_test_find(tpl_value name);
tpl_value tpl_filter_call(tpl_run *r, int filter, tpl_value v, const tpl_args *a);
bool tpl_test_call(tpl_run *r, int test, tpl_value v, const tpl_args *a);
/* Binds arguments to parameters, which are named in one string ("a b c"; a leading '/' forbids naming them). */
bool tpl_bind(tpl_run *r, const char *what, const tpl_args *a, const char *params, int n_required, tpl_value *out);
enum { TPL_PARAMS_MAX = 8 };

/* template_methods.c */
tpl_value tpl_attr(tpl_run *r, tpl_value obj, tpl_value name); /* obj.name */
tpl_value tpl_item(tpl_run *r, tpl_value obj, tpl_value key);  /* obj[key] */
tpl_value tpl_slice(tpl_run *r, tpl_value obj, tpl_value from, tpl_value to, tpl_value step);
tpl_value tpl_method_call(tpl_run *r, const tpl_method *m, const tpl_args *a);

/* template_parse.c */
void tpl_parse(tpl_run *r, swl_template *t, const char *source, size_t n);

/* template_lex.c */
/* clang-format off */
typedef enum tpl_token_kind {
    T_EOF, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STR, T_INT, T_FLOAT,
    T_ADD, T_SUB, T_MUL, T_DIV, T_FLOORDIV, T_MOD, T_POW, T_TILDE, T_LBRACKET, T_RBRACKET, T_LPAREN, T_RPAREN,
    T_LBRACE, T_RBRACE, T_EQ, T_NE, T_GT, T_GE, T_LT, T_LE, T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON
} tpl_token_kind;
/* clang-format on */

typedef struct tpl_token {
    tpl_token_kind kind;
    int line;
    tpl_value val; /* text of data, names and strings; numbers */
} tpl_token;

/* The tokens of the whole source, ended by T_EOF; NULL after a failure. */
tpl_token *tpl_lex(tpl_run *r, const char *source, size_t n);

/* template_eval.c */
tpl_value tpl_call(tpl_run *r, tpl_value f, const tpl_args *a);
bool tpl_loop_peek(tpl_run *r, tpl_loop *l, tpl_value *out);
int64_t tpl_loop_length(tpl_run *r, tpl_loop *l);
tpl_value tpl_binary(tpl_run *r, int op, tpl_value a, tpl_value b);

#endif
