/* line.c: what keys do to the text, and the modes of the terminal. */
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "chars.h"
#include "edit_keys.h"
#include "edit_text.h"
#include "edit_view.h"
#include "history.h"
#include "input.h"
#include "interrupt.h"
#include "output.h"

static line_completer *completer;
static void *completer_arg;

void line_candidates_add(line_candidates *l, const char *name)
{
    char **more = realloc(l->names, ((size_t)l->n + 1) * sizeof *l->names);

    if (!more)
        return;
    l->names = more;
    l->names[l->n] = strdup(name);
    l->n += l->names[l->n] != NULL;
}

void line_candidates_free(line_candidates *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    *l = (line_candidates){0};
}

/* ---- continued lines -------------------------------------------------------------------------------------------------- */

static bool is_fence(const char *line, size_t n)
{
    while (n && strchr(" \t\r", line[n - 1]))
        n--;
    return n == 3 && !memcmp(line, "\"\"\"", 3);
}

static bool block_is_open(const char *text)
{
    bool open = false;

    for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        open ^= is_fence(line, (size_t)(end - line));
    }
    return open;
}

/* After Enter: is there more to come? A backslash that says so is taken away. */
static bool continues(edit_text *t)
{
    if (block_is_open(t->n ? t->p : ""))
        return true;
    if (!t->n || t->p[t->n - 1] != '\\')
        return false;
    edit_delete(t, t->n - 1, t->n);
    return true;
}

/* Without the lines that open and close blocks, and without bytes that are not UTF-8. */
static char *finished_text(const edit_text *t)
{
    char *text = malloc(3 * t->n + 1), *to = text; /* U+FFFD has three bytes */

    for (const char *line = t->n ? t->p : "", *end; text && *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        if (is_fence(line, (size_t)(end - line)))
            continue;
        if (to > text)
            *to++ = '\n';
        for (const char *p = line; p < end;) {
            size_t n = utf8_valid_prefix(p, (size_t)(end - p));

            memcpy(to, p, n);
            to += n;
            p += n;
            if (p < end) {
                memcpy(to, "\xef\xbf\xbd", 3);
                to += 3;
                p++;
            }
        }
    }
    if (text)
        *to = 0;
    return text;
}

/* ---- modes of the terminal -------------------------------------------------------------------------------------------- */

static struct termios original;
static bool drivable;        /* raw mode works here, and what is drawn is seen */

/* While an answer is written nothing is echoed, and Ctrl-C and Ctrl-Z are signals; while a line is edited all are keys. */
static void set_mode(bool editing)
{
    struct termios t = original;

    if (!drivable)
        return;
    t.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INLCR | IGNCR | ISTRIP | IXON);
    t.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN);
    if (editing)
        t.c_lflag &= ~(tcflag_t)ISIG;
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
    if (editing)
        fputs("\033[?2004h", stderr); /* pasted text comes in brackets */
    fflush(stderr);
}

/* Also from a signal handler. */
static void set_original(void)
{
    static const char off[] = "\033[?2004l";
    ssize_t ignored;

    if (!drivable)
        return;
    ignored = write(STDERR_FILENO, off, sizeof off - 1);
    (void)ignored;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &original);
}

void line_open(const char *history, line_completer *complete, void *arg)
{
    const char *term = getenv("TERM");

    completer = complete;
    completer_arg = arg;
    history_open(history);
    drivable = stdin_is_terminal() && stderr_is_terminal() && term && strcmp(term, "dumb") && !tcgetattr(STDIN_FILENO, &original);
    if (!drivable)
        return;
    keys_open();
    interrupt_at_exit(set_original);
    set_mode(false);
}

void line_close(void)
{
    history_close();
    if (!drivable)
        return;
    set_original();
    interrupt_at_exit(NULL);
    keys_close();
    drivable = false;
}

/* ---- the editor of the user's choice ---------------------------------------------------------------------------------- */

static const char *editor_command(void)
{
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");

    return visual && *visual ? visual : editor && *editor ? editor : "vi";
}

static int run_editor(const char *path)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, plain = {.sa_handler = SIG_DFL}, before;
    int status = -1;
    pid_t child;

    sigaction(SIGINT, &ignore, &before);
    child = fork();
    if (!child) {
        sigaction(SIGINT, &plain, NULL);
        execl("/bin/sh", "sh", "-c", "eval \"$1 \\\"\\$2\\\"\"", "sh", editor_command(), path, (char *)NULL);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    sigaction(SIGINT, &before, NULL);
    return status;
}

swl_status line_outside(const char *initial, char **text, swl_error *err)
{
    const char *folder = getenv("TMPDIR");
    size_t n = strlen(initial), n_read;
    char path[1024];
    int fd, status;
    swl_status st;

    *text = NULL;
    snprintf(path, sizeof path, "%s/swiftlet-XXXXXX", folder && *folder ? folder : "/tmp");
    fd = mkstemp(path); /* for the user alone */
    if (fd < 0 || write(fd, initial, n) != (ssize_t)n || close(fd))
        return fail(err, SWL_E_IO, "cannot write %s: %s", path, strerror(errno));
    set_original();
    status = run_editor(path);
    set_mode(false);
    st = status ? fail(err, SWL_E_FAIL, "the editor \"%s\" failed", editor_command()) : input_text(path, text, &n_read, err);
    unlink(path);
    if (!st && n_read && (*text)[n_read - 1] == '\n')
        (*text)[n_read - 1] = 0;
    return st;
}

/* ---- editing ---------------------------------------------------------------------------------------------------------- */

typedef struct editing {
    const char *prompt;
    edit_text text;
    edit_view view;
    char *killed;            /* Ctrl-Y puts it back */
    char *own;               /* what was typed before going up in the history */
    int at;                  /* in the history; history_count: what is typed now */
    bool searching;
    edit_text pattern;
    int found;
    char search_prompt[512];
} editing;

static void draw(editing *l)
{
    const char *prompt = l->prompt;

    if (l->searching) {
        snprintf(l->search_prompt, sizeof l->search_prompt, "(search: %.200s) ", l->pattern.n ? l->pattern.p : "");
        prompt = l->search_prompt;
    }
    view_draw(&l->view, prompt, &l->text);
}

static void finish_drawing(editing *l)
{
    l->text.cursor = l->text.n;
    view_finish(&l->view, l->prompt, &l->text);
}

static void kill_range(editing *l, size_t from, size_t to)
{
    if (from >= to)
        return;
    free(l->killed);
    l->killed = strndup(l->text.p + from, to - from);
    edit_delete(&l->text, from, to);
}

static void go_in_history(editing *l, int to)
{
    const char *entry;

    if (to < 0 || to > history_count())
        return;
    if (l->at == history_count()) {
        free(l->own);
        l->own = strdup(l->text.n ? l->text.p : "");
    }
    entry = to == history_count() ? l->own : history_get(to);
    l->at = to;
    edit_set(&l->text, entry ? entry : "", entry ? strlen(entry) : 0);
}

static void vertical(editing *l, int direction)
{
    size_t to = view_vertical(&l->view, l->prompt, &l->text, direction);

    if (to != l->text.cursor)
        l->text.cursor = to;
    else
        go_in_history(l, l->at + direction);
}

/* ---- search, completion ----------------------------------------------------------------------------------------------- */

static void search_from(editing *l, int from)
{
    for (int i = from; i >= 0 && l->pattern.n; i--) {
        const char *hit = strstr(history_get(i), l->pattern.p);

        if (hit) {
            l->found = i;
            edit_set(&l->text, history_get(i), strlen(history_get(i)));
            l->text.cursor = (size_t)(hit - history_get(i));
            return;
        }
    }
}

static void search_begin(editing *l)
{
    l->searching = true;
    l->found = history_count();
    l->pattern.n = l->pattern.cursor = 0;
    free(l->own);
    l->own = strdup(l->text.n ? l->text.p : "");
}

/* True when the key was for the search; another one ends it and counts. */
static bool search_key(editing *l, const key *k)
{
    if (k->kind == KEY_TEXT) {
        edit_insert(&l->pattern, k->text, k->n);
        search_from(l, l->found < history_count() ? l->found : history_count() - 1);
        return true;
    }
    if (k->kind == KEY_BACKSPACE && l->pattern.n) {
        edit_delete(&l->pattern, edit_left(&l->pattern), l->pattern.n);
        search_from(l, history_count() - 1);
        return true;
    }
    if (k->kind == KEY_SEARCH) {
        search_from(l, l->found - 1);
        return true;
    }
    if (k->kind == KEY_RESIZED || k->kind == KEY_CONTINUED)
        return false;
    l->searching = false;
    l->at = l->found;
    if (k->kind == KEY_ESCAPE || k->kind == KEY_EDITOR || k->kind == KEY_INTERRUPT) { /* as it was */
        l->at = history_count();
        edit_set(&l->text, l->own ? l->own : "", l->own ? strlen(l->own) : 0);
        return true;
    }
    return false;
}

static size_t common_prefix(const line_candidates *c)
{
    size_t n = strlen(c->names[0]);

    for (int i = 1; i < c->n; i++) {
        size_t k = 0;

        while (k < n && c->names[i][k] == c->names[0][k])
            k++;
        n = k;
    }
    while (n && ((unsigned char)c->names[0][n] & 0xc0) == 0x80) /* whole characters */
        n--;
    return n;
}

static void list_candidates(editing *l, const line_candidates *c)
{
    int columns, rows, widest = 0, column = 0;
    size_t cursor = l->text.cursor;

    for (int i = 0; i < c->n; i++) {
        int w = text_width(c->names[i], strlen(c->names[i]));

        widest = w > widest ? w : widest;
    }
    finish_drawing(l);
    l->text.cursor = cursor;
    terminal_size(&columns, &rows);
    for (int i = 0; i < c->n; i++) {
        err_text(STYLE_NONE, c->names[i], strlen(c->names[i]));
        column += widest + 2;
        if (i + 1 < c->n && column + widest < columns) {
            fprintf(stderr, "%*s", widest + 2 - text_width(c->names[i], strlen(c->names[i])), "");
        } else {
            fputs("\r\n", stderr);
            column = 0;
        }
    }
}

static void complete(editing *l)
{
    line_candidates c = {0};
    size_t n, typed;

    if (completer && l->text.n)
        completer(completer_arg, l->text.p, l->text.cursor, &c);
    if (c.n) {
        typed = l->text.cursor - c.begin;
        n = common_prefix(&c);
        if (n > typed) {
            edit_delete(&l->text, c.begin, l->text.cursor);
            edit_insert(&l->text, c.names[0], n);
        } else if (c.n > 1) {
            list_candidates(l, &c);
        }
        if (c.n == 1 && c.names[0][n - 1] != '/')
            edit_insert(&l->text, " ", 1);
    }
    line_candidates_free(&c);
}

/* ---- keys ------------------------------------------------------------------------------------------------------------- */

static void suspend(editing *l)
{
    size_t cursor = l->text.cursor;

    finish_drawing(l);
    l->text.cursor = cursor;
    set_original();
    kill(0, SIGTSTP); /* goes on here when the shell says so */
    set_mode(true);
}

static void edit_outside(editing *l)
{
    swl_error err = {0};
    char *text;

    finish_drawing(l);
    if (line_outside(l->text.n ? l->text.p : "", &text, &err))
        report_error(&err, false, false);
    else
        edit_set(&l->text, text, strlen(text));
    free(text);
    set_mode(true);
}

static void move_or_delete(editing *l, key_kind kind)
{
    edit_text *t = &l->text;

    switch (kind) {
    case KEY_LEFT:
        t->cursor = edit_left(t);
        break;
    case KEY_RIGHT:
        t->cursor = edit_right(t);
        break;
    case KEY_WORD_LEFT:
        t->cursor = edit_word_left(t);
        break;
    case KEY_WORD_RIGHT:
        t->cursor = edit_word_right(t);
        break;
    case KEY_HOME:
        t->cursor = edit_line_begin(t);
        break;
    case KEY_END:
        t->cursor = edit_line_end(t);
        break;
    case KEY_BACKSPACE:
        edit_delete(t, edit_left(t), t->cursor);
        break;
    case KEY_DELETE: case KEY_END_OF_INPUT:
        edit_delete(t, t->cursor, edit_right(t));
        break;
    case KEY_DELETE_WORD_LEFT:
        kill_range(l, edit_word_left(t), t->cursor);
        break;
    case KEY_DELETE_WORD_RIGHT:
        kill_range(l, t->cursor, edit_word_right(t));
        break;
    case KEY_DELETE_LINE_LEFT:
        kill_range(l, edit_line_begin(t), t->cursor);
        break;
    case KEY_DELETE_LINE_RIGHT: /* at the end of a line: the newline */
        kill_range(l, t->cursor, edit_line_end(t) > t->cursor ? edit_line_end(t) : edit_right(t));
        break;
    default:
        break;
    }
}

static void other_key(editing *l, const key *k)
{
    switch (k->kind) {
    case KEY_TEXT:
        edit_insert(&l->text, k->text, k->n);
        break;
    case KEY_NEWLINE:
        edit_insert(&l->text, "\n", 1);
        break;
    case KEY_UP: case KEY_DOWN:
        vertical(l, k->kind == KEY_UP ? -1 : 1);
        break;
    case KEY_PREVIOUS: case KEY_NEXT:
        go_in_history(l, l->at + (k->kind == KEY_PREVIOUS ? -1 : 1));
        break;
    case KEY_SEARCH:
        search_begin(l);
        break;
    case KEY_TAB:
        complete(l);
        break;
    case KEY_YANK:
        if (l->killed)
            edit_insert(&l->text, l->killed, strlen(l->killed));
        break;
    case KEY_CLEAR:
        fputs("\033[H\033[2J", stderr);
        view_reset(&l->view);
        break;
    case KEY_SUSPEND:
        suspend(l);
        break;
    case KEY_CONTINUED: /* stopped from outside: the shell has used the screen */
        set_mode(true);
        view_reset(&l->view);
        break;
    case KEY_EDITOR:
        edit_outside(l);
        break;
    default:
        move_or_delete(l, k->kind);
    }
}

/* Keys until something comes of it. */
static line_result edit(editing *l)
{
    for (;;) {
        key k;

        draw(l);
        k = key_read();
        if (l->searching && search_key(l, &k))
            continue;
        switch (k.kind) {
        case KEY_ENTER:
            l->text.cursor = l->text.n;
            if (!continues(&l->text))
                return LINE_READ;
            edit_insert(&l->text, "\n", 1);
            break;
        case KEY_INTERRUPT: case KEY_STOPPED:
            return k.kind == KEY_STOPPED && !interrupt_asked() ? LINE_END : LINE_INTERRUPTED;
        case KEY_END_OF_INPUT:
            if (!l->text.n)
                return LINE_END;
            /* fall through */
        default:
            other_key(l, &k);
        }
    }
}

static line_result read_edited(const char *prompt, const char *initial, char **text, bool *had_text)
{
    editing l = {.prompt = prompt, .at = history_count()};
    line_result r;

    if (initial)
        edit_set(&l.text, initial, strlen(initial));
    set_mode(true);
    r = edit(&l);
    finish_drawing(&l);
    fputs("\033[?2004l", stderr);
    set_mode(false);
    *had_text = l.text.n > 0;
    if (r == LINE_READ) {
        *text = finished_text(&l.text);
        if (*text && (*text)[strspn(*text, " \t\n")])
            history_add(*text);
    }
    edit_free(&l.text);
    edit_free(&l.pattern);
    free(l.killed);
    free(l.own);
    return r;
}

/* ---- without editing -------------------------------------------------------------------------------------------------- */

/* Waits with signals let in only while waiting, so that none is missed just before. */
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
    sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &before);
    n = interrupt_asked() ? -1 : pselect(STDIN_FILENO + 1, &keyboard, NULL, NULL, NULL, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return n > 0;
}

static line_result read_plain(const char *prompt, char **text, bool *had_text)
{
    edit_text t = {0};
    char *line = NULL;
    size_t size = 0;
    line_result r = LINE_READ;

    fputs(prompt, stderr);
    fflush(stderr);
    do {
        ssize_t n;

        if (t.n)
            edit_insert(&t, "\n", 1);
        while (!line_is_there() && !interrupt_asked())
            continue;
        n = interrupt_asked() ? -1 : getline(&line, &size, stdin);
        if (n < 0) {
            r = interrupt_asked() ? LINE_INTERRUPTED : LINE_END;
            break;
        }
        edit_insert(&t, line, strcspn(line, "\r\n"));
    } while (continues(&t));
    if (r == LINE_INTERRUPTED)
        fputc('\n', stderr);
    *had_text = t.n > 0;
    if (r == LINE_READ || (r == LINE_END && t.n)) {
        r = LINE_READ;
        *text = finished_text(&t);
    }
    free(line);
    edit_free(&t);
    return r;
}

line_result line_read(const char *prompt, const char *initial, char **text, bool *had_text)
{
    line_result r;

    *text = NULL;
    *had_text = false;
    interrupt_stoppable(true);
    r = drivable ? read_edited(prompt, initial, text, had_text) : read_plain(prompt, text, had_text);
    interrupt_stoppable(false);
    return r == LINE_READ && !*text ? LINE_END : r;
}
