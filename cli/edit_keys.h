/* edit_keys.h: bytes from a terminal in raw mode become keys. */
#ifndef CLI_EDIT_KEYS_H
#define CLI_EDIT_KEYS_H

#include <stddef.h>

typedef enum key_kind {
    KEY_TEXT,                /* a character, or a pasted text */
    KEY_ENTER, KEY_NEWLINE, KEY_TAB, KEY_ESCAPE,
    KEY_LEFT, KEY_RIGHT, KEY_UP, KEY_DOWN, KEY_WORD_LEFT, KEY_WORD_RIGHT, KEY_HOME, KEY_END,
    KEY_BACKSPACE, KEY_DELETE, KEY_DELETE_WORD_LEFT, KEY_DELETE_WORD_RIGHT, KEY_DELETE_LINE_LEFT, KEY_DELETE_LINE_RIGHT,
    KEY_YANK, KEY_PREVIOUS, KEY_NEXT, KEY_SEARCH, KEY_EDITOR, KEY_CLEAR, KEY_INTERRUPT, KEY_END_OF_INPUT, KEY_SUSPEND,
    KEY_RESIZED, KEY_CONTINUED, /* signals */
    KEY_STOPPED,             /* a signal that ends the program, or the terminal is gone */
    KEY_UNKNOWN
} key_kind;

typedef struct key {
    key_kind kind;
    const char *text;        /* KEY_TEXT; until the next key */
    size_t n;
} key;

/* Installs what notices a change of size and a continued process; keys_close sets it back. */
void keys_open(void);
void keys_close(void);
key key_read(void);

#endif
