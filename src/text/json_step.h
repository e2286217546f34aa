/*
 * json_step.h: JSON checked one byte at a time, while a model is still writing it. What was read so far can be passed on
 * up to the last safe point, and from there a few brackets make it a whole value: so a stream that breaks off still adds
 * up to JSON.
 *
 * Two faults that models make are mended on the way: a control character inside a string is escaped, and half a surrogate
 * pair becomes \ufffd. Numbers keep their spelling.
 */
#ifndef SWL_TEXT_JSON_STEP_H
#define SWL_TEXT_JSON_STEP_H

#include <stdint.h>

#include "text/sbuf.h"

enum { SWL_JSON_STEP_DEPTH = 128 };

typedef enum swl_json_state {
    SWL_JSON_VALUE,       /* a value must follow */
    SWL_JSON_FIRST,       /* after '[' */
    SWL_JSON_FIRST_KEY,   /* after '{' */
    SWL_JSON_KEY,         /* after a comma in an object */
    SWL_JSON_COLON,
    SWL_JSON_AFTER,       /* after a value; at depth 0 the whole is complete */
    SWL_JSON_STRING,      /* inside a string, keys too */
    SWL_JSON_ESCAPE,      /* after a backslash */
    SWL_JSON_HEX,         /* inside \uXXXX */
    SWL_JSON_LITERAL,     /* inside true, false, null */
    SWL_JSON_MINUS,       /* the rest is inside a number: after '-', */
    SWL_JSON_ZERO,        /* a leading zero, */
    SWL_JSON_INT,         /* other digits, */
    SWL_JSON_DOT,         /* the point, */
    SWL_JSON_FRACTION,    /* digits after it, */
    SWL_JSON_E,           /* 'e', */
    SWL_JSON_E_SIGN,      /* its sign, */
    SWL_JSON_EXPONENT     /* its digits */
} swl_json_state;

typedef struct swl_json_step {
    swl_json_state state;
    bool key;            /* the string is a key */
    int32_t depth;
    char close[SWL_JSON_STEP_DEPTH]; /* the bracket that ends each level */
    const char *literal; /* what is left of it */
    int32_t n_hex, code; /* of an escape */
    size_t high;         /* where in the output the digits of a high surrogate stand; SIZE_MAX: none is open */
} swl_json_step;

/* Expects one value, perhaps after white space. */
void swl_json_step_init(swl_json_step *s);
/* Reads c and appends it (or what it was mended to) to *out. False: this is not JSON, or too deep; *out is as before. The
 * text must be UTF-8. All bytes of one string go to the same buffer. */
bool swl_json_step_put(swl_json_step *s, char c, swl_sbuf *out);
/* The value is complete. A number at depth 0 never is: only what follows would tell. */
bool swl_json_step_done(const swl_json_step *s);
/* A safe point: what was read so far and swl_json_step_close are a whole value. */
bool swl_json_step_safe(const swl_json_step *s);
/* Appends what makes the text up to the last safe point whole, leaving the outermost `depth` levels open. */
void swl_json_step_close(const swl_json_step *s, int32_t depth, swl_sbuf *out);

/* Checks n bytes as one JSON value with white space around it and appends it, mended, without that. False: *out is as
 * before. */
bool swl_json_put_checked(const char *p, size_t n, swl_sbuf *out);
bool swl_json_is_space(char c);

#endif
