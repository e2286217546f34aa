/*
 * stop_strings.h: strings that end an answer, wherever the borders of tokens fall. Text that may yet become one is held
 * back. The first string to be complete wins, of several at the same place the longest.
 */
#ifndef SWL_TEXT_STOP_STRINGS_H
#define SWL_TEXT_STOP_STRINGS_H

#include "base/status.h"
#include "text/sbuf.h"

typedef struct swl_stop_strings swl_stop_strings;

/* Copies n UTF-8 strings (not empty; SWL_E_ARG otherwise). n == 0 is allowed and stops nothing. */
swl_status swl_stop_strings_create(swl_stop_strings **out, const char *const *strings, int32_t n, swl_error *err);
void swl_stop_strings_free(swl_stop_strings *s); /* NULL is allowed */

/* Takes text (whole UTF-8 characters) and appends what is certain to *out. Returns the index of the string that ended it,
 * or -1; the text before that string is then in *out, and what came after it is dropped. Nothing may follow a stop. */
int32_t swl_stop_strings_push(swl_stop_strings *s, const char *text, size_t n, swl_sbuf *out);
/* The text is interrupted: appends what is held back to *out and starts afresh. */
void swl_stop_strings_flush(swl_stop_strings *s, swl_sbuf *out);

#endif
