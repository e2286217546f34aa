/* interrupt.c: the signal handlers. */
#define _POSIX_C_SOURCE 200809L
#include "interrupt.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t stoppable, asked;
static void (*volatile hook)(void *arg);
static void *volatile hook_arg;
static void (*volatile leave)(void);

static void on_signal(int number)
{
    if (!stoppable || asked) {
        if (leave)
            leave();
        if (asked && isatty(STDERR_FILENO) && write(STDERR_FILENO, "\n", 1) < 0) /* the shell's prompt begins a line */
            _exit(128 + number);
        _exit(128 + number);
    }
    asked = number;
    if (hook)
        hook(hook_arg);
}

void interrupt_install(void)
{
    struct sigaction sa = {.sa_handler = on_signal}, hup;

    sigemptyset(&sa.sa_mask); /* and no SA_RESTART: a read of the keyboard must return */
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    if (!sigaction(SIGHUP, NULL, &hup) && hup.sa_handler != SIG_IGN) /* nohup has it ignored, and that stays */
        sigaction(SIGHUP, &sa, NULL);
    sa.sa_handler = SIG_IGN; /* a file over the size limit is an error of the write, which cleans up */
    sigaction(SIGXFSZ, &sa, NULL);
    sa.sa_handler = SIG_DFL; /* a closed pipe ends the program quietly, whatever the parent had set */
    sigaction(SIGPIPE, &sa, NULL);
}

void interrupt_stoppable(bool on)
{
    if (on)
        asked = 0;
    stoppable = on;
}

void interrupt_hook(void (*stop)(void *arg), void *arg)
{
    hook = NULL;
    hook_arg = arg;
    hook = stop;
}

void interrupt_at_exit(void (*f)(void))
{
    leave = f;
}

bool interrupt_asked(void)
{
    return asked;
}

int interrupt_signal(void)
{
    return asked;
}
