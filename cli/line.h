/*
 * line.h: messages typed at a terminal, of one line or several, with editing, history and completion. Everything is drawn on
 * standard error.
 *
 * Enter sends, unless the line ends with a backslash or a block begun by a line """ is open; Alt-Enter and Ctrl-J begin a new
 * line; pasted text is taken as it is. Where the terminal cannot be driven (TERM=dumb, standard error elsewhere) lines are read
 * as the system gives them, with the same rules for backslash and """.
 */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include <swiftlet/swiftlet.h>

typedef enum line_result { LINE_READ, LINE_INTERRUPTED, LINE_END } line_result;

/* What could stand in place of text[begin..cursor). */
typedef struct line_candidates {
    size_t begin;
    char **names;            /* whole words; free with line_candidates_free */
    int n;
} line_candidates;

void line_candidates_add(line_candidates *l, const char *name);
void line_candidates_free(line_candidates *l);

typedef void line_completer(void *arg, const char *text, size_t cursor, line_candidates *out);

/* history: file of what was typed before, made readable for the user alone; NULL: nothing is kept. */
void line_open(const char *history, line_completer *complete, void *arg);
void line_close(void);

/* `initial` (may be NULL) can be edited. *text: free; without what was typed only to go on. LINE_INTERRUPTED: Ctrl-C or a
 * signal; *had_text then says whether something was typed. */
line_result line_read(const char *prompt, const char *initial, char **text, bool *had_text);

/* A text in $VISUAL, else $EDITOR, else vi. *text: free; without the newline at the end. */
swl_status line_outside(const char *initial, char **text, swl_error *err);

#endif
