/*
 * text.h: growing text, and JSON written into it. Memory that cannot be had, or that it may not have, is remembered in
 * `failed` and makes the text empty, so that only the end of a piece of work asks.
 */
#ifndef SERVER_TEXT_H
#define SERVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct srv_text {
    char *p; /* NUL-terminated once something was added; NULL before */
    size_t n, room;
    size_t most; /* bytes that it may have; 0: any number */
    bool failed;
} srv_text;

void srv_text_free(srv_text *t);
/* Empty again; keeps the memory. */
void srv_text_clear(srv_text *t);
void srv_add(srv_text *t, const char *p, size_t n);
void srv_puts(srv_text *t, const char *s);
void srv_printf(srv_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes, or the inside of one. Ill-formed UTF-8 becomes U+FFFD. */
void srv_put_json(srv_text *t, const char *p, size_t n);
void srv_put_json_part(srv_text *t, const char *p, size_t n);

/* Members and elements. Each puts the comma before itself where one is due. */
void srv_comma(srv_text *t);
void srv_key(srv_text *t, const char *name);
void srv_str(srv_text *t, const char *name, const char *s); /* NULL: null */
void srv_strn(srv_text *t, const char *name, const char *p, size_t n);
void srv_int(srv_text *t, const char *name, int64_t x);
void srv_real(srv_text *t, const char *name, double x); /* null where JSON has no such number */
void srv_bool(srv_text *t, const char *name, bool x);
void srv_null(srv_text *t, const char *name);
void srv_raw(srv_text *t, const char *name, const char *p, size_t n); /* JSON as it is */
void srv_raw_line(srv_text *t, const char *name, const char *p, size_t n); /* and on one line, which events are */
void srv_open(srv_text *t, const char *name, char bracket);           /* '{' or '['; NULL name: an element */
void srv_close(srv_text *t, char bracket);
void srv_num(srv_text *t, double x);

/* Length of the well-formed UTF-8 character at p, 0 when there is none. */
size_t srv_utf8(const char *p, size_t n);

#endif
