/*
 * template_lex.c: source to tokens, by the rules of jinja2's lexer with trim_blocks and lstrip_blocks: a newline right
 * after a block tag goes, blanks between a line's start and a block tag go, '-' inside a tag's edge takes all white
 * space on that side, '+' keeps it. One newline at the end of the source is dropped; \r\n and \r count as \n.
 */
#include "text/template_impl.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include <utf8proc.h>

typedef struct lexer {
    swl_tpl_run *r;
    const char *s;
    size_t n, at;
    int line;
    bool line_start; /* the last piece consumed ended in a newline */
    char brackets[TPL_PARSE_DEPTH_MAX];
    int n_brackets;
    swl_tpl_token *tokens;
    size_t n_tokens, cap;
} lexer;

static void fail(lexer *l, const char *message)
{
    l->r->line = l->line;
    swl_tpl_fail(l->r, SWL_E_CORRUPT, "%s", message);
}

static void add(lexer *l, swl_tpl_token_kind kind, swl_tpl_value val)
{
    swl_tpl_token *more;

    if (l->n_tokens == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 256;
        more = swl_tpl_alloc(l->r, l->cap, sizeof *more);
        if (more && l->n_tokens)
            memcpy(more, l->tokens, l->n_tokens * sizeof *more);
        l->tokens = more;
    }
    if (!swl_tpl_failed(l->r))
        l->tokens[l->n_tokens++] = (swl_tpl_token){.kind = kind, .line = l->line, .val = val};
}

static bool starts(const lexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);

    return n <= l->n - at && !memcmp(l->s + at, what, n);
}

/* Moves to `to` and counts the lines on the way. */
static void advance(lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        if (l->s[l->at] == '\n')
            l->line++;
    l->line_start = to > 0 && l->s[to - 1] == '\n';
}

static size_t skip_space(const lexer *l, size_t at)
{
    int32_t cp;
    int len;

    for (; at < l->n; at += (size_t)len) {
        len = swl_tpl_utf8(l->s + at, l->n - at, &cp);
        if (!swl_tpl_is_space(cp))
            break;
    }
    return at;
}

/* Behind the end mark of a tag ("%}", "}}", "#}") at `at`, or 0: with its sign before and the white space that goes. */
static size_t end_mark(const lexer *l, size_t at, const char *mark)
{
    char sign = l->s[at];

    if (sign == '-' && starts(l, at + 1, mark))
        return skip_space(l, at + 1 + strlen(mark));
    if (sign == '+' && *mark != '}' && starts(l, at + 1, mark))
        return at + 1 + strlen(mark);
    if (!starts(l, at, mark))
        return 0;
    at += strlen(mark);
    return *mark != '}' && at < l->n && l->s[at] == '\n' ? at + 1 : at;
}

/* Template text before a tag whose sign (or 0) is known. */
static void add_data(lexer *l, size_t to, char sign, bool is_block)
{
    swl_tpl_value text = swl_tpl_text(l->s + l->at, to - l->at), blanks;
    size_t line = to;

    if (sign == '-') {
        text = swl_tpl_strip(l->r, text, swl_tpl_none(), false, true);
    } else if (sign != '+' && is_block) {
        while (line > l->at && l->s[line - 1] != '\n')
            line--;
        blanks = swl_tpl_strip(l->r, swl_tpl_text(l->s + line, to - line), swl_tpl_none(), true, false);
        if (!blanks.n && (line > l->at || l->line_start))
            text.n = (uint32_t)(line - l->at);
    }
    if (text.n)
        add(l, T_DATA, text);
    advance(l, to);
}

static char sign_at(const lexer *l, size_t at)
{
    return at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

/* "{% raw %}" at `at`: the position behind it, else 0. */
static size_t raw_begin(const lexer *l, size_t at)
{
    size_t p = skip_space(l, at + 2 + (sign_at(l, at + 2) != 0));

    if (!starts(l, p, "raw"))
        return 0;
    p = skip_space(l, p + 3);
    if (starts(l, p, "%}"))
        return p + 2;
    return starts(l, p, "-%}") ? skip_space(l, p + 3) : 0;
}

static void lex_raw(lexer *l)
{
    size_t tag, p, end;

    for (tag = l->at; tag < l->n; tag++) {
        if (!starts(l, tag, "{%"))
            continue;
        p = skip_space(l, tag + 2 + (sign_at(l, tag + 2) != 0));
        if (!starts(l, p, "endraw"))
            continue;
        p = skip_space(l, p + 6);
        end = p < l->n ? end_mark(l, p, "%}") : 0;
        if (!end)
            continue;
        add_data(l, tag, sign_at(l, tag + 2), true);
        advance(l, end);
        return;
    }
    fail(l, "missing end of raw directive");
}

static void lex_comment(lexer *l)
{
    size_t at, end;

    for (at = l->at; at < l->n; at++) {
        end = end_mark(l, at, "#}");
        if (end) {
            advance(l, end);
            return;
        }
    }
    fail(l, "missing end of comment tag");
}

/* ---- inside a tag ------------------------------------------------------------------------------------------------ */

static bool name_char(int32_t cp, bool first)
{
    utf8proc_category_t c;

    if (cp < 0x80)
        return cp == '_' || (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (!first && cp >= '0' && cp <= '9');
    c = utf8proc_category(cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || c == UTF8PROC_CATEGORY_NL ||
           (!first && (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ND ||
                       c == UTF8PROC_CATEGORY_PC));
}

static size_t name_end(const lexer *l, size_t at)
{
    size_t from = at;
    int32_t cp;
    int len;

    for (; at < l->n; at += (size_t)len) {
        len = swl_tpl_utf8(l->s + at, l->n - at, &cp);
        if (!name_char(cp, at == from))
            break;
    }
    return at;
}

static bool is_digit(const lexer *l, size_t at)
{
    return at < l->n && l->s[at] >= '0' && l->s[at] <= '9';
}

/* Digits with single underscores between them. */
static size_t digits_end(const lexer *l, size_t at)
{
    while (is_digit(l, at) || (at < l->n && l->s[at] == '_' && is_digit(l, at + 1)))
        at++;
    return at;
}

/* The end of a float at `at`, or 0: digits, then a fraction, an exponent or both. */
static size_t float_end(const lexer *l, size_t at)
{
    size_t p = digits_end(l, at), e;
    bool is_float = false;

    if (at > 0 && l->s[at - 1] == '.')
        return 0;
    if (p < l->n && l->s[p] == '.' && is_digit(l, p + 1)) {
        p = digits_end(l, p + 1);
        is_float = true;
    }
    if (p < l->n && (l->s[p] == 'e' || l->s[p] == 'E')) {
        e = p + 1 + (sign_at(l, p + 1) != 0);
        if (is_digit(l, e))
            return digits_end(l, e);
    }
    return is_float ? p : 0;
}

static void add_float(lexer *l, size_t end)
{
    const char *point = localeconv()->decimal_point;
    char s[128];
    size_t i, n = 0;

    for (i = l->at; i < end && n + 2 < sizeof s; i++)
        if (l->s[i] != '_')
            s[n++] = l->s[i] == '.' ? *point : l->s[i];
    s[n] = 0;
    if (i < end)
        fail(l, "a number has too many digits");
    add(l, T_FLOAT, swl_tpl_float(strtod(s, NULL)));
    advance(l, end);
}

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
}

static void add_int(lexer *l)
{
    size_t at = l->at;
    char x = at + 1 < l->n && l->s[at] == '0' ? (char)(l->s[at + 1] | 32) : 0;
    int base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10, d;
    bool zero = base == 10 && l->s[at] == '0';
    uint64_t v = 0;

    at += base == 10 ? 0 : 2;
    for (; at < l->n; at++) {
        if (l->s[at] == '_' && at + 1 < l->n && digit_value(l->s[at + 1]) < base)
            at++;
        d = digit_value(l->s[at]);
        if (d >= base || (zero && d))
            break;
        if (v > (UINT64_C(0x7fffffffffffffff) - (uint64_t)d) / (uint64_t)base) {
            fail(l, "an integer does not fit in 64 bits");
            return;
        }
        v = v * (uint64_t)base + (uint64_t)d;
    }
    add(l, T_INT, swl_tpl_int((int64_t)v));
    advance(l, at);
}

static bool hex_digits(const lexer *l, size_t at, size_t end, int n, int32_t *cp)
{
    int i;

    for (*cp = 0, i = 0; i < n; i++) {
        if (at + (size_t)i >= end || digit_value(l->s[at + (size_t)i]) > 15)
            return false;
        *cp = (int32_t)((uint32_t)*cp << 4 | (uint32_t)digit_value(l->s[at + (size_t)i]));
    }
    return *cp >= 0 && *cp <= 0x10ffff && !(*cp >= 0xd800 && *cp < 0xe000);
}

/* One escape behind its backslash; Python leaves unknown ones as they stand. Returns where it ends. */
static size_t unescape(lexer *l, size_t at, size_t end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *p = l->s[at] ? strchr(from, l->s[at]) : NULL;
    char c = l->s[at], utf8[4];
    int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    int32_t cp = 0;

    if (c == '\n')
        return at + 1;
    if (p) {
        swl_tpl_put(l->r, to + (p - from), 1);
        return at + 1;
    }
    if (n) {
        if (!hex_digits(l, at + 1, end, n, &cp))
            fail(l, "a string has a bad \\x, \\u or \\U escape");
    } else if (c >= '0' && c <= '7') {
        for (n = 0; n < 3 && at + (size_t)n < end && l->s[at + (size_t)n] >= '0' && l->s[at + (size_t)n] <= '7'; n++)
            cp = cp * 8 + (l->s[at + (size_t)n] - '0');
        n--;
    } else if (c == 'N') {
        l->r->line = l->line;
        swl_tpl_fail(l->r, SWL_E_UNSUPPORTED, "the string escape \\N{...} is not supported");
    } else {
        swl_tpl_put(l->r, "\\", 1);
        return at;
    }
    swl_tpl_put(l->r, utf8, swl_tpl_failed(l->r) ? 0 : swl_tpl_utf8_put(utf8, cp));
    return at + 1 + (size_t)n;
}

static void add_string(lexer *l)
{
    char quote = l->s[l->at];
    size_t end, at = l->at + 1, mark = l->r->out_n, from;

    for (end = at; end < l->n && l->s[end] != quote; end++)
        if (l->s[end] == '\\')
            end++;
    if (end >= l->n) {
        fail(l, "a string has no end");
        return;
    }
    while (at < end && !swl_tpl_failed(l->r)) {
        for (from = at; at < end && l->s[at] != '\\'; at++)
            ;
        swl_tpl_put(l->r, l->s + from, at - from);
        if (at < end)
            at = unescape(l, at + 1, end);
    }
    add(l, T_STR, swl_tpl_capture(l->r, mark));
    advance(l, end + 1);
}

/* Longer operators first. */
/* clang-format off */
static const struct {
    char text[3];
    swl_tpl_token_kind kind;
} operators[] = {
    {"//", T_FLOORDIV}, {"**", T_POW}, {"==", T_EQ}, {"!=", T_NE}, {">=", T_GE}, {"<=", T_LE}, {"+", T_ADD},
    {"-", T_SUB}, {"/", T_DIV}, {"*", T_MUL}, {"%", T_MOD}, {"~", T_TILDE}, {"[", T_LBRACKET}, {"]", T_RBRACKET},
    {"(", T_LPAREN}, {")", T_RPAREN}, {"{", T_LBRACE}, {"}", T_RBRACE}, {">", T_GT}, {"<", T_LT}, {"=", T_ASSIGN},
    {".", T_DOT}, {":", T_COLON}, {"|", T_PIPE}, {",", T_COMMA}, {";", T_SEMICOLON},
};
/* clang-format on */

static void balance(lexer *l, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == TPL_PARSE_DEPTH_MAX)
            fail(l, "brackets are nested too deeply");
        else
            l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!l->n_brackets || l->brackets[--l->n_brackets] != c)
            fail(l, "a closing bracket without its partner");
    }
}

static void add_operator(lexer *l)
{
    size_t i, n = sizeof operators / sizeof *operators;

    for (i = 0; i < n && !starts(l, l->at, operators[i].text); i++)
        ;
    if (i == n) {
        fail(l, "unexpected character in a tag");
        return;
    }
    balance(l, l->s[l->at]);
    add(l, operators[i].kind, swl_tpl_text(l->s + l->at, strlen(operators[i].text)));
    advance(l, l->at + strlen(operators[i].text));
}

/* Everything from behind "{%" or "{{" to behind the end mark. */
static void lex_tag(lexer *l, const char *mark, swl_tpl_token_kind end_kind)
{
    size_t end;

    l->n_brackets = 0;
    while (l->at < l->n && !swl_tpl_failed(l->r)) {
        end = l->n_brackets ? 0 : end_mark(l, l->at, mark);
        if (end) {
            add(l, end_kind, swl_tpl_none());
            advance(l, end);
            return;
        }
        end = skip_space(l, l->at);
        if (end > l->at) {
            advance(l, end);
            continue;
        }
        end = is_digit(l, l->at) ? float_end(l, l->at) : name_end(l, l->at);
        if (is_digit(l, l->at)) {
            if (end)
                add_float(l, end);
            else
                add_int(l);
        } else if (end > l->at) {
            add(l, T_NAME, swl_tpl_text(l->s + l->at, end - l->at));
            advance(l, end);
        } else if (l->s[l->at] == '\'' || l->s[l->at] == '"') {
            add_string(l);
        } else {
            add_operator(l);
        }
    }
    /* The end of the source inside a tag is left to the parser, which knows what it was waiting for. */
}

static void lex(lexer *l)
{
    size_t tag, raw;
    char sign;

    while (l->at < l->n && !swl_tpl_failed(l->r)) {
        for (tag = l->at; tag < l->n; tag++)
            if (l->s[tag] == '{' && tag + 1 < l->n && strchr("%{#", l->s[tag + 1]) && l->s[tag + 1])
                break;
        if (tag == l->n) {
            add(l, T_DATA, swl_tpl_text(l->s + l->at, tag - l->at));
            advance(l, tag);
            break;
        }
        sign = sign_at(l, tag + 2);
        raw = l->s[tag + 1] == '%' ? raw_begin(l, tag) : 0;
        add_data(l, tag, sign, l->s[tag + 1] != '{');
        if (raw) {
            advance(l, raw);
            lex_raw(l);
            continue;
        }
        if (l->s[tag + 1] != '#')
            add(l, l->s[tag + 1] == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, swl_tpl_none());
        advance(l, tag + 2 + (sign != 0));
        if (l->s[tag + 1] == '#')
            lex_comment(l);
        else if (l->s[tag + 1] == '%')
            lex_tag(l, "%}", T_BLOCK_END);
        else
            lex_tag(l, "}}", T_VAR_END);
    }
}

/* A copy with \n for every kind of newline and without the last one. */
static bool normalise(lexer *l, const char *source, size_t n)
{
    char *s = swl_tpl_alloc(l->r, n + 1, 1);
    size_t i, bad;

    if (!s)
        return false;
    for (i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
            continue;
        s[l->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (l->n && s[l->n - 1] == '\n')
        l->n--;
    l->s = s;
    if (!swl_tpl_utf8_valid(s, l->n, &bad))
        swl_tpl_fail(l->r, SWL_E_CORRUPT, "the source is not UTF-8 at byte %zu", bad);
    return !swl_tpl_failed(l->r);
}

swl_tpl_token *swl_tpl_lex(swl_tpl_run *r, const char *source, size_t n)
{
    lexer l = {.r = r, .line = 1, .line_start = true};

    if (!normalise(&l, source, n))
        return NULL;
    lex(&l);
    add(&l, T_EOF, swl_tpl_none());
    return swl_tpl_failed(r) ? NULL : l.tokens;
}
