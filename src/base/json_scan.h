/*
 * json_scan.h: JSON read front to back, without a tree. For texts that are large or not to be trusted: memory stays
 * that of the text, where a tree may take a hundred times as much. Strings are decoded in place, so the text must be
 * writable and outlive them.
 *
 * Each reader skips white space, takes one thing, and reports what it expected instead, with the place and the names in
 * `in`. For objects:
 *
 *     st = swl_scan_begin(s, '{');
 *     for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++)
 *         st = ... the value ...
 */
#ifndef SWL_BASE_JSON_SCAN_H
#define SWL_BASE_JSON_SCAN_H

#include "base/status.h"

#define SWL_SCAN_DEPTH_MAX 64 /* of what swl_scan_skip skips */

typedef struct swl_scan {
    char *begin, *p, *end;
    const char *path;  /* for messages */
    int64_t offset;    /* of `begin` in the file */
    const char *in[2]; /* what is being read, outermost first; NULL: nothing to name. The caller's to set. */
    swl_error *err;
} swl_scan;

/* SWL_E_CORRUPT: "PATH: byte N, in "a", "b": expected WANT". */
swl_status swl_scan_expected(const swl_scan *s, const char *want);

swl_status swl_scan_begin(swl_scan *s, char bracket); /* '{' or '[' */
/* The next key of an object of which n members were read; NULL: the object ended. */
swl_status swl_scan_member(swl_scan *s, uint64_t n, char **key);
/* Whether an array of which n elements were read has another. */
swl_status swl_scan_element(swl_scan *s, uint64_t n, bool *more);

swl_status swl_scan_string(swl_scan *s, char **text); /* valid UTF-8 without NUL */
/* As swl_scan_string, but "\u0000" is allowed: n bytes and a NUL behind them. */
swl_status swl_scan_text(swl_scan *s, char **text, size_t *n);
swl_status swl_scan_uint(swl_scan *s, int64_t *value); /* digits alone, up to INT64_MAX */
swl_status swl_scan_skip(swl_scan *s);                 /* any value, checked */
swl_status swl_scan_finish(swl_scan *s);               /* nothing but white space is left */

/* The steps of the above, for callers that read keys in another way or read a text twice. */

char swl_scan_peek(swl_scan *s); /* the next character that is not white space, or 0 at the end; it stays */
/* Whether another member or element comes before `close` ('}' or ']'), after the n that were read. */
swl_status swl_scan_next(swl_scan *s, char close, uint64_t n, bool *more);
swl_status swl_scan_colon(swl_scan *s);
/* Passes a string by and leaves it as it is; n bytes between the quotes, no fewer than decoded. */
swl_status swl_scan_pass_string(swl_scan *s, size_t *n);
/* Passes any value of any depth by and leaves it as it is. It sees brackets and strings only: whoever reads
 * [*first, s->p) checks the rest. */
swl_status swl_scan_pass(swl_scan *s, char **first);

#endif
