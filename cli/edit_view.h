/*
 * edit_view.h: a text of several lines on the terminal, wrapped at its width, below a prompt. What does not fit on the screen
 * is scrolled so that the cursor stays in sight.
 */
#ifndef CLI_EDIT_VIEW_H
#define CLI_EDIT_VIEW_H

#include "edit_text.h"

typedef struct edit_view {
    int columns, rows;       /* of the terminal when it was last drawn */
    int cursor_row;          /* below the first row that was drawn */
    int cursor_column;
    int top;                 /* rows of the text above the screen */
    int widths[256];         /* of the rows that were drawn, as far as the cursor */
} edit_view;

/* Forgets what is drawn: the next drawing begins where the cursor of the terminal is. */
void view_reset(edit_view *v);
void view_draw(edit_view *v, const char *prompt, const edit_text *t);
/* Draws all of it, and goes to the line below. */
void view_finish(edit_view *v, const char *prompt, const edit_text *t);
/* Where the cursor would go one row up (-1) or down (1); t->cursor when there is no such row. */
size_t view_vertical(const edit_view *v, const char *prompt, const edit_text *t, int direction);

#endif
