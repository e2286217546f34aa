/* edit_keys.c: reading keys, with signals let in only while waiting, so that none is missed just before. */
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include "edit_keys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "interrupt.h"

enum { NONE = -1, SIGNALLED = -2, GONE = -3 };      /* beside the 256 bytes */
enum { SEQUENCE_MS = 50, PASTE_MS = 2000, WAIT = -1 };

static volatile sig_atomic_t resized, continued;
static struct sigaction before_resize, before_continue;
static unsigned char pending[4096];
static size_t n_pending, at_pending;
static char *collected; /* KEY_TEXT */
static size_t n_collected, n_collected_max;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else
        continued = 1;
}

void keys_open(void)
{
    struct sigaction sa = {.sa_handler = on_signal};

    sigemptyset(&sa.sa_mask);
    sigaction(SIGWINCH, &sa, &before_resize);
    sigaction(SIGCONT, &sa, &before_continue);
}

void keys_close(void)
{
    sigaction(SIGWINCH, &before_resize, NULL);
    sigaction(SIGCONT, &before_continue, NULL);
    free(collected);
    collected = NULL;
    n_collected = n_collected_max = 0;
}

static int wait_for_bytes(int ms)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    sigset_t signals, before;
    fd_set keyboard;
    int n, error;

    FD_ZERO(&keyboard);
    FD_SET(STDIN_FILENO, &keyboard);
    sigemptyset(&signals);
    for (int i = 0; i < 5; i++)
        sigaddset(&signals, numbers[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    n = interrupt_asked() || resized || continued ? -1 : 0;
    error = EINTR;
    if (!n) {
        n = pselect(STDIN_FILENO + 1, &keyboard, NULL, NULL, ms < 0 ? NULL : &t, &before);
        error = errno;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return n > 0 ? 1 : !n ? NONE : error == EINTR ? SIGNALLED : GONE;
}

/* A byte, or NONE after so many milliseconds without one. */
static int byte(int ms)
{
    ssize_t n;
    int ready;

    if (at_pending < n_pending)
        return pending[at_pending++];
    ready = wait_for_bytes(ms);
    if (ready < 0)
        return ready;
    n = read(STDIN_FILENO, pending, sizeof pending);
    if (n <= 0)
        return n < 0 && errno == EINTR ? SIGNALLED : GONE;
    n_pending = (size_t)n;
    at_pending = 1;
    return pending[0];
}

/* The same in the middle of something: signals wait. */
static int next(int ms)
{
    int b = byte(ms);

    while (b == SIGNALLED && !interrupt_asked() && (resized || continued)) {
        sig_atomic_t r = resized, c = continued;

        resized = continued = 0;
        b = byte(ms);
        resized |= r;
        continued |= c;
    }
    return b;
}

static void collect(int b)
{
    if (n_collected + 1 > n_collected_max) {
        size_t n_max = (n_collected + 64) * 2;
        char *more = realloc(collected, n_max);

        if (!more)
            return;
        collected = more;
        n_collected_max = n_max;
    }
    collected[n_collected++] = (char)b;
}

static key simple(key_kind kind)
{
    return (key){kind, NULL, 0};
}

/* All up to the end mark is text; line ends become newlines. */
static key paste(void)
{
    static const char end[] = "\033[201~";
    size_t n_end = sizeof end - 1;
    int b;

    n_collected = 0;
    while ((b = next(PASTE_MS)) >= 0) {
        if (b == '\n' && n_collected && collected[n_collected - 1] == '\r')
            n_collected--;
        collect(b);
        if (n_collected >= n_end && !memcmp(collected + n_collected - n_end, end, n_end)) {
            n_collected -= n_end;
            break;
        }
    }
    for (size_t i = 0; i < n_collected; i++) {
        if (collected[i] == '\r')
            collected[i] = '\n';
    }
    return (key){KEY_TEXT, collected, n_collected};
}

/* CSI 1;5C: the second number counts from 1 and has a bit for shift, alt and ctrl. */
static key control_sequence(void)
{
    int numbers[3] = {0}, n = 0, b;

    while ((b = next(SEQUENCE_MS)) >= 0 && (b < 0x40 || b > 0x7e)) {
        if (b >= '0' && b <= '9' && n < 3 && numbers[n] < 10000)
            numbers[n] = numbers[n] * 10 + b - '0';
        else if (b == ';' && n < 2)
            n++;
    }
    switch (b) {
    case 'A':
        return simple(KEY_UP);
    case 'B':
        return simple(KEY_DOWN);
    case 'C':
        return simple(numbers[1] > 2 ? KEY_WORD_RIGHT : KEY_RIGHT);
    case 'D':
        return simple(numbers[1] > 2 ? KEY_WORD_LEFT : KEY_LEFT);
    case 'H':
        return simple(KEY_HOME);
    case 'F':
        return simple(KEY_END);
    case 'u': /* keyboards that tell Shift-Enter from Enter */
        return simple(numbers[0] == 13 ? (numbers[1] > 1 ? KEY_NEWLINE : KEY_ENTER) : KEY_UNKNOWN);
    case '~':
        switch (numbers[0]) {
        case 1: case 7:
            return simple(KEY_HOME);
        case 3:
            return simple(numbers[1] > 2 ? KEY_DELETE_WORD_RIGHT : KEY_DELETE);
        case 4: case 8:
            return simple(KEY_END);
        case 27:
            return simple(numbers[2] == 13 ? KEY_NEWLINE : KEY_UNKNOWN);
        case 200:
            return paste();
        }
    }
    return simple(KEY_UNKNOWN);
}

static key escape(void)
{
    int b = next(SEQUENCE_MS);

    switch (b) {
    case NONE:
        return simple(KEY_ESCAPE);
    case '[': case 'O':
        return control_sequence();
    case '\r': case '\n':
        return simple(KEY_NEWLINE);
    case 'b': case 'B':
        return simple(KEY_WORD_LEFT);
    case 'f': case 'F':
        return simple(KEY_WORD_RIGHT);
    case 'd': case 'D':
        return simple(KEY_DELETE_WORD_RIGHT);
    case 0x7f: case 0x08:
        return simple(KEY_DELETE_WORD_LEFT);
    }
    return simple(KEY_UNKNOWN);
}

/* The whole of a UTF-8 character, as far as it comes. */
static key character(int first)
{
    int n = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf8 ? 3 : 0, b;

    n_collected = 0;
    collect(first);
    while (n-- > 0 && (b = next(SEQUENCE_MS)) >= 0) {
        if ((b & 0xc0) != 0x80) { /* not its continuation: for later */
            at_pending--;
            break;
        }
        collect(b);
    }
    return (key){KEY_TEXT, collected, n_collected};
}

key key_read(void)
{
    static const key_kind controls[32] = {
        [0] = KEY_UNKNOWN, ['A' - 64] = KEY_HOME, ['B' - 64] = KEY_LEFT, ['C' - 64] = KEY_INTERRUPT, ['D' - 64] = KEY_END_OF_INPUT,
        ['E' - 64] = KEY_END, ['F' - 64] = KEY_RIGHT, ['G' - 64] = KEY_EDITOR, ['H' - 64] = KEY_BACKSPACE, ['I' - 64] = KEY_TAB,
        ['J' - 64] = KEY_NEWLINE, ['K' - 64] = KEY_DELETE_LINE_RIGHT, ['L' - 64] = KEY_CLEAR, ['M' - 64] = KEY_ENTER,
        ['N' - 64] = KEY_NEXT, ['P' - 64] = KEY_PREVIOUS, ['R' - 64] = KEY_SEARCH, ['U' - 64] = KEY_DELETE_LINE_LEFT,
        ['W' - 64] = KEY_DELETE_WORD_LEFT, ['Y' - 64] = KEY_YANK, ['Z' - 64] = KEY_SUSPEND};
    int b = byte(WAIT);

    if (b == SIGNALLED) {
        key_kind kind = interrupt_asked() ? KEY_STOPPED : continued ? KEY_CONTINUED : resized ? KEY_RESIZED : KEY_UNKNOWN;

        if (kind == KEY_CONTINUED)
            continued = 0;
        if (kind == KEY_RESIZED)
            resized = 0;
        return simple(kind);
    }
    if (b < 0)
        return simple(KEY_STOPPED);
    if (b == 033)
        return escape();
    if (b == 0x7f)
        return simple(KEY_BACKSPACE);
    if (b < 32)
        return simple(controls[b] ? controls[b] : KEY_UNKNOWN); /* KEY_TEXT is 0 */
    return character(b);
}
