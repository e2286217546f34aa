/*
 * interrupt.h: Ctrl-C and SIGTERM. Outside a stoppable phase they end the program at once with 130 or 143; inside one the
 * first signal only asks it to stop, and a second ends the program.
 */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>

void interrupt_install(void);
/* Begins or ends a phase that looks at interrupt_asked; beginning forgets an earlier request. */
void interrupt_stoppable(bool on);
bool interrupt_asked(void);
/* What the first signal of a stoppable phase also does, to stop in the middle of a pass. NULL: nothing more. */
void interrupt_hook(void (*stop)(void *arg), void *arg);
/* What is done before a signal ends the program at once: to set a terminal back. Async-signal-safe. NULL: nothing. */
void interrupt_at_exit(void (*leave)(void));
/* The signal that asked for the end, 0 when none has. */
int interrupt_signal(void);

#endif
