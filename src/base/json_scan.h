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

swl_status swl_scan_string(swl_scan *s, char **text);  /* valid UTF-8 without NUL */
swl_status swl_scan_uint(swl_scan *s, int64_t *value); /* digits alone, up to INT64_MAX */
swl_status swl_scan_skip(swl_scan *s);                 /* any value, checked */
swl_status swl_scan_finish(swl_scan *s);               /* nothing but white space is left */

#endif
