/* json_step.c: the grammar of RFC 8259 as a state machine over bytes. */
#include "text/json_step.h"

#include <string.h>

void swl_json_step_init(swl_json_step *s)
{
    s->state = SWL_JSON_VALUE;
    s->key = false;
    s->depth = 0;
    s->literal = "";
    s->n_hex = s->code = 0;
    s->high = SIZE_MAX;
}

bool swl_json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool open_level(swl_json_step *s, char close, swl_json_state state)
{
    if (s->depth == SWL_JSON_STEP_DEPTH)
        return false;
    s->close[s->depth++] = close;
    s->state = state;
    return true;
}

static bool close_level(swl_json_step *s, char c)
{
    if (!s->depth || s->close[s->depth - 1] != c)
        return false;
    s->depth--;
    s->state = SWL_JSON_AFTER;
    return true;
}

static bool string_begins(swl_json_step *s, bool key)
{
    s->key = key;
    s->state = SWL_JSON_STRING;
    return true;
}

static bool literal_begins(swl_json_step *s, const char *rest)
{
    s->literal = rest;
    s->state = SWL_JSON_LITERAL;
    return true;
}

static bool value_begins(swl_json_step *s, char c)
{
    switch (c) {
    case '{':
        return open_level(s, '}', SWL_JSON_FIRST_KEY);
    case '[':
        return open_level(s, ']', SWL_JSON_FIRST);
    case '"':
        return string_begins(s, false);
    case 't':
        return literal_begins(s, "rue");
    case 'f':
        return literal_begins(s, "alse");
    case 'n':
        return literal_begins(s, "ull");
    case '-':
        s->state = SWL_JSON_MINUS;
        return true;
    default:
        s->state = c == '0' ? SWL_JSON_ZERO : SWL_JSON_INT;
        return is_digit(c);
    }
}

static bool after_value(swl_json_step *s, char c)
{
    if (c != ',')
        return close_level(s, c);
    if (!s->depth)
        return false;
    s->state = s->close[s->depth - 1] == '}' ? SWL_JSON_KEY : SWL_JSON_VALUE;
    return true;
}

static bool number_goes_on(swl_json_step *s, char c)
{
    swl_json_state st = s->state;

    if (is_digit(c)) {
        if (st == SWL_JSON_ZERO)
            return false;
        if (st == SWL_JSON_MINUS)
            s->state = c == '0' ? SWL_JSON_ZERO : SWL_JSON_INT;
        else if (st == SWL_JSON_DOT)
            s->state = SWL_JSON_FRACTION;
        else if (st == SWL_JSON_E || st == SWL_JSON_E_SIGN)
            s->state = SWL_JSON_EXPONENT;
        return true;
    }
    if (c == '.' && (st == SWL_JSON_ZERO || st == SWL_JSON_INT))
        s->state = SWL_JSON_DOT;
    else if ((c == 'e' || c == 'E') && (st == SWL_JSON_ZERO || st == SWL_JSON_INT || st == SWL_JSON_FRACTION))
        s->state = SWL_JSON_E;
    else if ((c == '+' || c == '-') && st == SWL_JSON_E)
        s->state = SWL_JSON_E_SIGN;
    else
        return false;
    return true;
}

static bool number_may_end(swl_json_state st)
{
    return st == SWL_JSON_ZERO || st == SWL_JSON_INT || st == SWL_JSON_FRACTION || st == SWL_JSON_EXPONENT;
}

/* Structure: everything outside strings. */
static bool take(swl_json_step *s, char c)
{
    if (s->state >= SWL_JSON_MINUS) {
        if (number_goes_on(s, c))
            return true;
        if (!number_may_end(s->state))
            return false;
        s->state = SWL_JSON_AFTER;
    }
    if (s->state == SWL_JSON_LITERAL) {
        if (c != *s->literal)
            return false;
        if (!*++s->literal)
            s->state = SWL_JSON_AFTER;
        return true;
    }
    if (swl_json_is_space(c))
        return true;
    switch (s->state) {
    case SWL_JSON_FIRST:
        return c == ']' ? close_level(s, c) : value_begins(s, c);
    case SWL_JSON_FIRST_KEY:
        return c == '}' ? close_level(s, c) : c == '"' && string_begins(s, true);
    case SWL_JSON_KEY:
        return c == '"' && string_begins(s, true);
    case SWL_JSON_COLON:
        s->state = SWL_JSON_VALUE;
        return c == ':';
    case SWL_JSON_AFTER:
        return after_value(s, c);
    default:
        return value_begins(s, c);
    }
}

/* No low surrogate came after the open high one. */
static void high_is_alone(swl_json_step *s, swl_sbuf *out)
{
    if (s->high != SIZE_MAX && !out->failed)
        memcpy(out->p + s->high, "fffd", 4);
    s->high = SIZE_MAX;
}

static void escape_ends(swl_json_step *s, swl_sbuf *out)
{
    bool low = s->code >= 0xDC00 && s->code <= 0xDFFF;

    s->state = SWL_JSON_STRING;
    if (out->failed)
        return;
    if (low && s->high == SIZE_MAX)
        memcpy(out->p + out->n - 4, "fffd", 4);
    else if (low)
        s->high = SIZE_MAX;
    else
        high_is_alone(s, out);
    if (s->code >= 0xD800 && s->code <= 0xDBFF)
        s->high = out->n - 4;
}

static bool take_hex(swl_json_step *s, char c, swl_sbuf *out)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *d = c ? strchr(digits, c) : NULL;

    if (!d)
        return false;
    s->code = s->code << 4 | (int32_t)((d - digits) & 15);
    swl_sbuf_putc(out, c);
    if (--s->n_hex == 0)
        escape_ends(s, out);
    return true;
}

static bool take_escape(swl_json_step *s, char c, swl_sbuf *out)
{
    if (!c || !strchr("\"\\/bfnrtu", c))
        return false;
    if (c == 'u') {
        s->n_hex = 4;
        s->code = 0;
    } else {
        high_is_alone(s, out);
    }
    s->state = c == 'u' ? SWL_JSON_HEX : SWL_JSON_STRING;
    swl_sbuf_putc(out, c);
    return true;
}

static void take_in_string(swl_json_step *s, char c, swl_sbuf *out)
{
    if (c != '\\')
        high_is_alone(s, out);
    if (c == '\\')
        s->state = SWL_JSON_ESCAPE;
    else if (c == '"')
        s->state = s->key ? SWL_JSON_COLON : SWL_JSON_AFTER;
    if (c == '"' || c == '\\')
        swl_sbuf_putc(out, c);
    else
        swl_sbuf_put_escaped(out, &c, 1);
}

bool swl_json_step_put(swl_json_step *s, char c, swl_sbuf *out)
{
    switch (s->state) {
    case SWL_JSON_STRING:
        take_in_string(s, c, out);
        return true;
    case SWL_JSON_ESCAPE:
        return take_escape(s, c, out);
    case SWL_JSON_HEX:
        return take_hex(s, c, out);
    default:
        if (!take(s, c))
            return false;
        swl_sbuf_putc(out, c);
        return true;
    }
}

bool swl_json_step_done(const swl_json_step *s)
{
    return s->state == SWL_JSON_AFTER && !s->depth;
}

bool swl_json_step_safe(const swl_json_step *s)
{
    switch (s->state) {
    case SWL_JSON_STRING:
        return !s->key && s->high == SIZE_MAX;
    case SWL_JSON_FIRST:
    case SWL_JSON_FIRST_KEY:
    case SWL_JSON_AFTER:
        return true;
    default:
        return false;
    }
}

void swl_json_step_close(const swl_json_step *s, int32_t depth, swl_sbuf *out)
{
    bool in_string = s->state == SWL_JSON_STRING || s->state == SWL_JSON_ESCAPE || s->state == SWL_JSON_HEX;

    if (in_string && !s->key)
        swl_sbuf_putc(out, '"');
    for (int32_t i = s->depth; i > depth; i--)
        swl_sbuf_putc(out, s->close[i - 1]);
}

bool swl_json_put_checked(const char *p, size_t n, swl_sbuf *out)
{
    swl_json_step s;
    size_t i, before = out->n;

    while (n && swl_json_is_space(*p))
        p++, n--;
    while (n && swl_json_is_space(p[n - 1]))
        n--;
    swl_json_step_init(&s);
    for (i = 0; i < n && swl_json_step_put(&s, p[i], out); i++)
        ;
    if (n && i == n && (swl_json_step_done(&s) || (!s.depth && number_may_end(s.state))))
        return true;
    out->n = before;
    return false;
}
