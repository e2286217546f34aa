/* http_fields.h: the three header fields of answers that downloads act on. Their texts come from outside. */
#ifndef SWL_INSTALL_HTTP_FIELDS_H
#define SWL_INSTALL_HTTP_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "bytes 0-99/1000": *end is one past the last byte. False for everything else, "*" included. */
bool swl_field_content_range(const char *text, uint64_t *begin, uint64_t *end, uint64_t *total);

/* The target with rel="next" of "<a>; rel="prev", <b>; rel="next"" into dst; false when there is none that fits. */
bool swl_field_link_next(const char *text, char *dst, size_t n);

/* Seconds to wait from `now` (seconds since 1970): a number, or a date as RFC 9110 prefers it. Negative: no such text. A
 * moment that is past gives 0. */
int64_t swl_field_retry_after(const char *text, int64_t now);

#endif
