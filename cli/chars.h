/*
 * chars.h: characters as a reader counts them (grapheme clusters) and the columns that a terminal gives them: two for wide
 * ones, none for combining ones. Control characters count as "^X", two columns.
 */
#ifndef CLI_CHARS_H
#define CLI_CHARS_H

#include <stddef.h>

/* Bytes of the cluster at p[0..n), at least 1 when n is not 0. Bytes that are not UTF-8 are clusters of their own. */
size_t cluster_length(const char *p, size_t n);
/* Where the cluster begins that ends at p + at (at > 0). */
size_t cluster_before(const char *p, size_t at);
/* Columns of p[0..n). */
int text_width(const char *p, size_t n);
/* Where the end of p[0..n) begins that fits into so many columns. */
size_t text_tail(const char *p, size_t n, int columns);

#endif
