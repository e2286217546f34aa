/*
 * grammar_number.c: numbers within bounds, digit by digit. A number is compared with a bound while it is being written:
 * by the length of its whole part, by the first digit that differs, then by its fraction. The remainder by a divisor is
 * carried along. Numbers with a bound or a divisor are written without exponent.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_impl.h"

enum {
    INT_DIGITS = 18,      /* of integers: all of them fit in 64 bits */
    NUMBER_DIGITS = 16,   /* of other numbers' whole part: exact in a double */
    FRACTION_DIGITS = 20, /* as many as the shortest spelling of a double without exponent above 1e-4 needs */
    DIGITS_MAX = 40,      /* of bounds */
    DIVISOR_MAX = 2000
};

/* ---- decimals ---- */

/* The digits of |v|, without zeros at either end: 0.<int_digits><fraction>. */
typedef struct decimal {
    char ints[DIGITS_MAX + 1], fraction[DIGITS_MAX + 1];
    int32_t n_ints, n_fraction;
    bool negative;
} decimal;

static void shortest(double v, char text[40])
{
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, 40, "%.*e", precision - 1, v);
        if (strtod(text, NULL) == v)
            return;
    }
}

/* False: more digits than are carried. */
static bool decimal_read(const json_t *number, decimal *d)
{
    char text[40], digits[40];
    int32_t n = 0, point, exponent = 0;
    const char *p = text;

    memset(d, 0, sizeof *d);
    if (json_is_integer(number))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
    else
        shortest(json_real_value(number), text);
    d->negative = *p == '-';
    p += *p == '-';
    for (; *p && *p != 'e' && *p != '.' && *p != ','; p++)
        digits[n++] = *p;
    point = n;
    for (p += *p == '.' || *p == ','; *p && *p != 'e'; p++)
        digits[n++] = *p;
    if (*p == 'e')
        exponent = (int32_t)strtol(p + 1, NULL, 10);
    point += exponent;
    while (n && digits[n - 1] == '0')
        n--;
    if (!n || point > DIGITS_MAX || n - point > DIGITS_MAX)
        return !n;
    for (int32_t i = 0; i < point; i++)
        if (d->n_ints || (i < n && digits[i] != '0'))
            d->ints[d->n_ints++] = i < n ? digits[i] : '0';
    for (int32_t i = point; i < n; i++)
        d->fraction[d->n_fraction++] = i < 0 ? '0' : digits[i];
    return true;
}

void swl_number_put(const json_t *number, swl_sbuf *out)
{
    char text[64], e[40];
    double v = json_real_value(number);
    decimal d;

    if (json_is_integer(number)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
        swl_sbuf_puts(out, text);
        return;
    }
    if (fabs(v) < 1e16 && (v == 0 || fabs(v) >= 1e-4) && decimal_read(number, &d)) {
        swl_sbuf_puts(out, v < 0 ? "-" : "");
        swl_sbuf_puts(out, d.n_ints ? d.ints : "0");
        swl_sbuf_putc(out, '.');
        swl_sbuf_puts(out, d.n_fraction ? d.fraction : "0");
        return;
    }
    shortest(v, e);
    swl_sbuf_puts(out, e);
}

/* ---- bounds by sign ---- */

typedef struct bound {
    bool set, exclusive;
    decimal at; /* a magnitude */
} bound;

/* The magnitudes from `low` to `high`. */
typedef struct range {
    bool none;
    bound low, high;
} range;

typedef struct machine {
    bool integer, exponent;
    int32_t int_digits, fraction_digits;
    range side[2];          /* of positive and negative numbers */
    int32_t divisor, scale; /* the value times 10^scale is a multiple of it; 0: no divisor */
} machine;

static int compare(const decimal *a, const decimal *b)
{
    int order;

    if (a->n_ints != b->n_ints)
        return a->n_ints < b->n_ints ? -1 : 1;
    order = strcmp(a->ints, b->ints);
    return order ? order : strcmp(a->fraction, b->fraction);
}

static bool is_zero(const decimal *d)
{
    return !d->n_ints && !d->n_fraction;
}

/* Takes the narrower of two bounds. */
static void narrow(bound *b, const decimal *at, bool exclusive, bool low)
{
    int order = b->set ? compare(at, &b->at) * (low ? 1 : -1) : 1;

    if (order > 0)
        *b = (bound){true, exclusive, *at};
    else if (order == 0)
        b->exclusive |= exclusive;
}

/* value >= at (low) or value <= at. */
static void limit(machine *m, const decimal *at, bool exclusive, bool low)
{
    bool negative = at->negative && !is_zero(at), toward = low ? !negative : negative;
    range *same = &m->side[negative];

    /* On the side where the bound lies it is a lower bound of magnitudes when it points away from zero. */
    narrow(toward ? &same->low : &same->high, at, exclusive, toward);
    if (!is_zero(at)) {
        if (toward)
            m->side[!negative].none = true;
        return;
    }
    /* Zero: the other side has only -0 left, or nothing. */
    narrow(&m->side[low ? 1 : 0].high, at, exclusive, false);
}

/* ---- the machine ---- */

enum {
    N_BEGIN,
    N_MINUS,
    N_ZERO,
    N_INT,
    N_DOT,
    N_FRACTION,
    N_E,
    N_SIGN,
    N_EXPONENT,
    N_EXPONENT_2,
    N_EXPONENT_3,
    N_BIG,
    N_BIG_2
};

typedef struct number_state {
    uint8_t at, negative, n_ints, n_fraction;
    int8_t low, high; /* -1, 0, 1: the digits so far against the bound's; 2: more digits than it has */
    int16_t rest;     /* of the digits so far by the divisor */
    int32_t reserved;
} number_state;

static int8_t sign(int d)
{
    return (int8_t)((d > 0) - (d < 0));
}

static int8_t int_digit(int8_t so_far, const bound *b, int32_t n, uint8_t c)
{
    if (!b->set || so_far == 2)
        return so_far;
    if (n >= b->at.n_ints)
        return 2;
    return so_far ? so_far : sign(c - b->at.ints[n]);
}

/* The whole part has ended. */
static int8_t int_end(int8_t so_far, const bound *b, int32_t n)
{
    if (!b->set)
        return 0;
    return n < b->at.n_ints ? -1 : so_far == 2 ? 1 : so_far;
}

static int8_t fraction_digit(int8_t so_far, const bound *b, int32_t n, uint8_t c)
{
    if (!b->set || so_far)
        return so_far;
    return sign(c - (n < b->at.n_fraction ? b->at.fraction[n] : '0'));
}

/* The number has ended. */
static int8_t whole(int8_t so_far, const bound *b, int32_t n_fraction)
{
    return so_far ? so_far : n_fraction < b->at.n_fraction ? -1 : 0;
}

static void carry(const machine *m, number_state *s, uint8_t c)
{
    if (m->divisor)
        s->rest = (int16_t)((s->rest * 10 + (c - '0')) % m->divisor);
}

static bool step_int(const machine *m, number_state *s, uint8_t c)
{
    const range *r = &m->side[s->negative];

    if (s->n_ints >= m->int_digits)
        return false;
    s->low = int_digit(s->low, &r->low, s->n_ints, c);
    s->high = int_digit(s->high, &r->high, s->n_ints, c);
    s->n_ints++;
    s->at = N_INT;
    carry(m, s, c);
    return s->high != 2;
}

static bool step_begin(const machine *m, number_state *s, uint8_t c)
{
    if (c == '-' && s->at == N_BEGIN) {
        s->at = N_MINUS;
        s->negative = 1;
        return true;
    }
    if (c < '0' || c > '9' || m->side[s->negative].none)
        return false;
    if (c != '0')
        return step_int(m, s, c);
    s->at = N_ZERO;
    return !m->integer || !s->negative;
}

static bool step_after_int(const machine *m, number_state *s, uint8_t c)
{
    const range *r = &m->side[s->negative];

    if (c == '.' && m->fraction_digits) {
        s->at = N_DOT;
        s->low = int_end(s->low, &r->low, s->n_ints);
        s->high = int_end(s->high, &r->high, s->n_ints);
        s->n_ints = 0;
        return true;
    }
    if ((c | 0x20) == 'e' && m->exponent) {
        memset(s, 0, sizeof *s);
        s->at = N_E;
        return true;
    }
    return s->at == N_INT && c >= '0' && c <= '9' && step_int(m, s, c);
}

static bool step_fraction(const machine *m, number_state *s, uint8_t c)
{
    const range *r = &m->side[s->negative];

    if ((c | 0x20) == 'e' && m->exponent && s->at == N_FRACTION) {
        memset(s, 0, sizeof *s);
        s->at = N_E;
        return true;
    }
    if (c < '0' || c > '9' || s->n_fraction >= m->fraction_digits)
        return false;
    if (m->divisor && s->n_fraction >= m->scale && c != '0')
        return false;
    s->low = fraction_digit(s->low, &r->low, s->n_fraction, c);
    s->high = fraction_digit(s->high, &r->high, s->n_fraction, c);
    if (s->n_fraction < m->scale) /* behind that there are only zeros */
        carry(m, s, c);
    s->n_fraction++;
    s->at = N_FRACTION;
    return true;
}

/* Exponents up to 289: then no number overflows a double. */
static bool step_exponent(number_state *s, uint8_t c)
{
    if (s->at == N_E && (c == '+' || c == '-')) {
        s->at = N_SIGN;
        return true;
    }
    if (c < '0' || c > '9')
        return false;
    switch (s->at) {
    case N_E:
    case N_SIGN:
        s->at = c > '2' ? N_EXPONENT_2 : c == '2' ? N_BIG : N_EXPONENT;
        return true;
    case N_EXPONENT:
        s->at = N_EXPONENT_2;
        return true;
    case N_BIG:
        s->at = c == '9' ? N_EXPONENT_3 : N_BIG_2;
        return true;
    case N_EXPONENT_2:
    case N_BIG_2:
        s->at = N_EXPONENT_3;
        return true;
    default:
        return false;
    }
}

static bool number_step(const void *arg, const void *from, uint8_t c, void *to)
{
    const machine *m = arg;
    number_state *s = to;

    (void)from;
    if (s->at <= N_MINUS)
        return step_begin(m, s, c);
    if (s->at <= N_INT)
        return step_after_int(m, s, c);
    if (s->at <= N_FRACTION)
        return step_fraction(m, s, c);
    return step_exponent(s, c);
}

static bool divides(const machine *m, const number_state *s)
{
    int64_t rest = s->rest;

    if (!m->divisor)
        return true;
    for (int32_t i = s->n_fraction; i < m->scale; i++)
        rest = rest * 10 % m->divisor;
    return rest == 0;
}

static bool number_accept(const void *arg, const void *state)
{
    const machine *m = arg;
    const number_state *s = state;
    const range *r = &m->side[s->negative];
    int8_t low = s->low, high = s->high;

    if (s->at <= N_MINUS || s->at == N_DOT || s->at == N_E || s->at == N_SIGN)
        return false;
    if (s->at > N_FRACTION)
        return true;
    if (s->at <= N_INT) {
        low = int_end(low, &r->low, s->n_ints);
        high = int_end(high, &r->high, s->n_ints);
    }
    low = whole(low, &r->low, s->n_fraction);
    high = whole(high, &r->high, s->n_fraction);
    return (!r->low.set || low > 0 || (low == 0 && !r->low.exclusive)) &&
           (!r->high.set || high < 0 || (high == 0 && !r->high.exclusive)) && divides(m, s);
}

/* ---- from the schema ---- */

static bool set_limit(machine *m, const json_t *v, bool exclusive, bool low)
{
    decimal d;

    if (!v)
        return true;
    if (!decimal_read(v, &d))
        return false;
    limit(m, &d, exclusive, low);
    return true;
}

static bool set_divisor(machine *m, const json_t *v)
{
    int64_t digits = 0;
    decimal d;

    if (!v)
        return true;
    if (!decimal_read(v, &d) || d.negative || is_zero(&d))
        return false;
    for (int32_t i = 0; i < d.n_ints && digits <= DIVISOR_MAX; i++)
        digits = digits * 10 + d.ints[i] - '0';
    for (int32_t i = 0; i < d.n_fraction && digits <= DIVISOR_MAX; i++)
        digits = digits * 10 + d.fraction[i] - '0';
    if (digits > DIVISOR_MAX)
        return false;
    m->divisor = (int32_t)digits;
    m->scale = d.n_fraction;
    if (digits > 100)
        m->int_digits = 12;
    if (m->fraction_digits > d.n_fraction + 1)
        m->fraction_digits = d.n_fraction + 1;
    return true;
}

/* A lower bound may have more digits than numbers usually get. */
static void make_room(machine *m)
{
    for (int i = 0; i < 2; i++)
        if (m->side[i].low.set && m->side[i].low.at.n_ints >= m->int_digits)
            m->int_digits = m->side[i].low.at.n_ints + 1;
}

swl_status swl_number_automaton(swl_bytes *b, const swl_number_spec *spec, int32_t *start, const char **keyword,
                                int64_t *work)
{
    bool plain =
        !spec->minimum && !spec->maximum && !spec->exclusive_minimum && !spec->exclusive_maximum && !spec->multiple_of;
    machine m = {.integer = spec->integer,
                 .exponent = !spec->integer && plain,
                 .int_digits = spec->integer ? INT_DIGITS : NUMBER_DIGITS,
                 .fraction_digits = spec->integer ? 0 : FRACTION_DIGITS};
    swl_machine machine_of = {.n_key = sizeof(number_state),
                              .alphabet = "+-.0123456789Ee",
                              .arg = &m,
                              .step = number_step,
                              .accept = number_accept};
    number_state begin = {.at = N_BEGIN};

    *keyword = !set_divisor(&m, spec->multiple_of)                    ? "multipleOf"
               : !set_limit(&m, spec->minimum, false, true)           ? "minimum"
               : !set_limit(&m, spec->maximum, false, false)          ? "maximum"
               : !set_limit(&m, spec->exclusive_minimum, true, true)  ? "exclusiveMinimum"
               : !set_limit(&m, spec->exclusive_maximum, true, false) ? "exclusiveMaximum"
                                                                      : NULL;
    if (*keyword)
        return SWL_E_UNSUPPORTED;
    make_room(&m);
    *start = swl_bytes_machine(b, &machine_of, &begin, work);
    return b->failed;
}
