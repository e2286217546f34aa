/*
 * sbuf.h: text that grows. A failed allocation is remembered in `failed` and later appends do nothing, so that whoever
 * builds a text asks once, at the end.
 */
#ifndef SWL_TEXT_SBUF_H
#define SWL_TEXT_SBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct swl_sbuf {
    char *p; /* not NUL-terminated; NULL while nothing was put */
    size_t n, cap;
    bool failed;
} swl_sbuf;

void swl_sbuf_deinit(swl_sbuf *b); /* of a zeroed or used struct */
void swl_sbuf_put(swl_sbuf *b, const char *p, size_t n);
void swl_sbuf_puts(swl_sbuf *b, const char *s);
void swl_sbuf_putc(swl_sbuf *b, char c);
/* Takes n bytes off the front. */
void swl_sbuf_drop(swl_sbuf *b, size_t n);
/* Text as the inside of a JSON string, the way Python's json.dumps(ensure_ascii=False) escapes it. */
void swl_sbuf_put_escaped(swl_sbuf *b, const char *p, size_t n);

#endif
