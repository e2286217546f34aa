/*
 * interrupt.h: Ctrl-C and SIGTERM. Outside a stoppable phase they end the program at once with 130 or 143; inside one the
 * first signal only asks it to stop, and a second ends the program.
 */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>

#include <swiftlet/swiftlet.h>

void interrupt_install(void);
/* Begins or ends a phase that looks at interrupt_asked; beginning forgets an earlier request. */
void interrupt_stoppable(bool on);
bool interrupt_asked(void);
/* The first signal of a stoppable phase also stops what this session runs, in the middle of a pass. NULL: no session. */
void interrupt_session(swl_session *s);
/* The signal that asked for the end, 0 when none has. */
int interrupt_signal(void);

#endif
