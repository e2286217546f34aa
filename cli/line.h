/* line.h: lines typed at a terminal, with libedit's editing where it is there. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include <stdbool.h>

typedef enum line_result { LINE_READ, LINE_INTERRUPTED, LINE_END } line_result;

void line_open(void);
void line_close(void);
/* The prompt goes to standard error. *line has no newline and lives until the next call. */
line_result line_read(const char *prompt, const char **line);

#endif
