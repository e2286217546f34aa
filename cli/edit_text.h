/* edit_text.h: the text of a line editor and its cursor, in bytes; moves are by clusters (chars.h). */
#ifndef CLI_EDIT_TEXT_H
#define CLI_EDIT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct edit_text {
    char *p;                 /* NUL-terminated; NULL: empty */
    size_t n, n_max, cursor;
} edit_text;

void edit_free(edit_text *t);
/* The whole text; the cursor goes to its end. */
void edit_set(edit_text *t, const char *p, size_t n);
/* At the cursor. Without memory nothing happens. */
void edit_insert(edit_text *t, const char *p, size_t n);
/* The cursor stays on what it was on. */
void edit_delete(edit_text *t, size_t from, size_t to);

/* Where the cursor would go. */
size_t edit_left(const edit_text *t);
size_t edit_right(const edit_text *t);
size_t edit_word_left(const edit_text *t);
size_t edit_word_right(const edit_text *t);
size_t edit_line_begin(const edit_text *t);
size_t edit_line_end(const edit_text *t);

#endif
