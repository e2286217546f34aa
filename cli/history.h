/* history.h: what was typed before, newest last, in a file of lines; newlines and backslashes in them are escaped. */
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H

/* path NULL: nothing is read or written. */
void history_open(const char *path);
void history_close(void);
int history_count(void);
const char *history_get(int i);
/* Added at the end, unless it is equal to the last one. */
void history_add(const char *text);

#endif
