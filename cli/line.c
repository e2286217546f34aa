/* line.c: libedit, or the terminal's own line discipline. */
#define _POSIX_C_SOURCE 200809L
#include "line.h"

#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

#include "interrupt.h"

static char *typed;
static size_t typed_size;

/* Waits for a whole line with signals let in only while waiting, so that none is missed just before. */
static bool line_is_there(void)
{
    sigset_t stops, before;
    fd_set keyboard;
    int n;

    FD_ZERO(&keyboard);
    FD_SET(STDIN_FILENO, &keyboard);
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops, &before);
    n = interrupt_asked() ? -1 : pselect(STDIN_FILENO + 1, &keyboard, NULL, NULL, NULL, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return n > 0;
}

static line_result read_plain(const char *prompt, const char **line)
{
    ssize_t n;

    fputs(prompt, stderr);
    fflush(stderr);
    while (!line_is_there()) {
        if (interrupt_asked())
            return LINE_INTERRUPTED;
    }
    n = getline(&typed, &typed_size, stdin);
    if (n < 0)
        return LINE_END;
    typed[strcspn(typed, "\n")] = 0;
    *line = typed;
    return LINE_READ;
}

#ifdef SWL_HAVE_LIBEDIT
#include <histedit.h>

static EditLine *editor;
static History *past;
static const char *editor_prompt;
static bool interrupt_typed;

static char *prompt_of(EditLine *e)
{
    (void)e;
    return (char *)editor_prompt;
}

static unsigned char on_interrupt(EditLine *e, wint_t key)
{
    (void)e;
    (void)key;
    interrupt_typed = true;
    return CC_EOF;
}

/* libedit takes apart characters by the locale; where that is not UTF-8 the terminal's own editing is better. */
static bool locale_is_utf8(void)
{
    return !strcmp(nl_langinfo(CODESET), "UTF-8") || setlocale(LC_CTYPE, "C.UTF-8");
}

void line_open(void)
{
    HistEvent event;

    if (!locale_is_utf8())
        return;
    editor = el_init("swiftlet", stdin, stderr, stderr);
    past = history_init();
    if (editor && past) {
        history(past, &event, H_SETSIZE, 1000);
        el_set(editor, EL_PROMPT, prompt_of);
        el_set(editor, EL_EDITOR, "emacs");
        el_set(editor, EL_HIST, history, past);
        /* While a line is edited Ctrl-C is a key like others: a signal could arrive just before the wait for a key. */
        el_set(editor, EL_SETTY, "-d", "intr=", NULL);
        el_wset(editor, EL_ADDFN, L"interrupt", L"give up this line", on_interrupt); /* el_set would leak copies */
        el_set(editor, EL_BIND, "^C", "interrupt", NULL);
    }
}

void line_close(void)
{
    if (past)
        history_end(past);
    if (editor)
        el_end(editor);
    free(typed);
    editor = NULL;
    past = NULL;
    typed = NULL;
}

static line_result read_edited(const char *prompt, const char **line)
{
    HistEvent event;
    const char *got;
    int n = 0;

    editor_prompt = prompt;
    interrupt_typed = false;
    got = el_gets(editor, &n);
    if (interrupt_typed || (!got && interrupt_asked()))
        return LINE_INTERRUPTED;
    if (!got || n <= 0)
        return LINE_END;
    free(typed);
    typed = strndup(got, (size_t)n);
    if (!typed)
        return LINE_END;
    typed[strcspn(typed, "\n")] = 0;
    if (*typed)
        history(past, &event, H_ENTER, typed);
    *line = typed;
    return LINE_READ;
}

static line_result read_any(const char *prompt, const char **line)
{
    return editor && past ? read_edited(prompt, line) : read_plain(prompt, line);
}
#else
void line_open(void)
{
}

void line_close(void)
{
    free(typed);
    typed = NULL;
}

static line_result read_any(const char *prompt, const char **line)
{
    return read_plain(prompt, line);
}
#endif

line_result line_read(const char *prompt, const char **line)
{
    line_result r;

    interrupt_stoppable(true);
    r = read_any(prompt, line);
    if (r == LINE_INTERRUPTED)
        fputc('\n', stderr);
    interrupt_stoppable(false);
    return r;
}
