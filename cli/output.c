/* output.c: standard output and standard error, error reports and exit codes. */
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include "output.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "chars.h"
#include "input.h"
#include "interrupt.h"

#define LAST_SECONDS 1 /* for an error when nobody may read it */

static int write_errno; /* of the first write to standard output that failed */
static bool progress_shown;
static bool colors;
static FILE *log_file;
static bool log_is_json;
static bool never_hang;
static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;

static bool has_text(const char *variable)
{
    const char *text = getenv(variable);

    return text && *text;
}

/* The option decides; then CLICOLOR_FORCE, NO_COLOR, and whether a terminal that can do it is there. */
static bool want_colors(const char *color)
{
    const char *term = getenv("TERM"), *force = getenv("CLICOLOR_FORCE");

    if (color && strcmp(color, "auto"))
        return !strcmp(color, "always");
    if (force && *force && strcmp(force, "0"))
        return true;
    return !has_text("NO_COLOR") && stderr_is_terminal() && term && strcmp(term, "dumb");
}

swl_status out_setup(const char *color, const char *log, bool log_json, swl_error *err)
{
    colors = want_colors(color);
    log_is_json = log_json;
    if (!log)
        return SWL_OK;
    log_file = fopen(log, "ae");
    if (log_file)
        return SWL_OK;
    fail(err, SWL_E_IO, "cannot write the log %s: %s", log, strerror(errno));
    err->os_errno = errno;
    snprintf(err->file, sizeof err->file, "%s", log);
    return SWL_E_IO;
}

const char *out_style(style s)
{
    static const char *const codes[] = {"\033[0m", "\033[2m", "\033[31m"};

    return colors ? codes[s] : "";
}

swl_status fail(swl_error *err, swl_status code, const char *format, ...)
{
    va_list ap;

    err->code = code;
    err->os_errno = 0;
    err->offset = -1;
    err->file[0] = 0;
    va_start(ap, format);
    vsnprintf(err->message, sizeof err->message, format, ap);
    va_end(ap);
    return code;
}

bool stdin_is_terminal(void)
{
    return isatty(STDIN_FILENO);
}

bool stdout_is_terminal(void)
{
    return isatty(STDOUT_FILENO);
}

bool stderr_is_terminal(void)
{
    return isatty(STDERR_FILENO);
}

/* Past stdio: a signal in the middle of a write loses nothing. */
static void out_bytes(const char *p, size_t n)
{
    while (n && !write_errno) {
        ssize_t put = write(STDOUT_FILENO, p, n);
        struct pollfd ready = {.fd = STDOUT_FILENO, .events = POLLOUT};

        if (put >= 0) {
            p += put;
            n -= (size_t)put;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            write_errno = errno;
        }
    }
}

/* Length of the control character at p (0: an ordinary byte): C0 without newline and tab, DEL, and C1 as UTF-8. */
static size_t control_length(const unsigned char *p, size_t n)
{
    if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
        return 1;
    return n > 1 && *p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

static void err_bytes(const char *p, size_t n)
{
    fwrite(p, 1, n, stderr);
}

static void escaped(void (*put)(const char *p, size_t n), const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t begin = 0;

    for (size_t i = 0; i < n;) {
        size_t control = control_length(p + i, n - i);
        char shown[3] = {'^'};

        if (!control) {
            i++;
            continue;
        }
        put(text + begin, i - begin);
        shown[1] = (char)((control == 2 ? p[i + 1] - 0x80 : p[i]) ^ 0x40); /* C1 is ESC and a letter in seven bits */
        if (control == 2)
            put("^[", 2);
        put(control == 2 ? shown + 1 : shown, control == 2 ? 1 : 2);
        i += control;
        begin = i;
    }
    put(text + begin, n - begin);
}

static void log_bytes(const char *p, size_t n)
{
    fwrite(p, 1, n, log_file);
}

static void log_line(const char *level, const char *text)
{
    char when[32];
    time_t now = time(NULL);
    struct tm t;
    json_t *o;

    if (!log_file)
        return;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &t));
    if (log_is_json) {
        o = json_object();
        json_object_set_new(o, "time", json_string(when));
        json_object_set_new(o, "level", json_string(level));
        json_object_set_new(o, "message", out_string(text));
        json_dumpf(o, log_file, JSON_COMPACT);
        json_decref(o);
    } else {
        fprintf(log_file, "%s %s ", when, level);
        escaped(log_bytes, text, strlen(text));
    }
    fputc('\n', log_file);
    fflush(log_file);
}

void out_text(const char *text, size_t n_bytes)
{
    if (!n_bytes)
        return;
    progress_clear();
    if (stdout_is_terminal())
        escaped(out_bytes, text, n_bytes);
    else
        out_bytes(text, n_bytes);
}

void err_text(style s, const char *text, size_t n_bytes)
{
    progress_clear();
    fputs(s ? out_style(s) : "", stderr);
    if (stderr_is_terminal())
        escaped(err_bytes, text, n_bytes);
    else
        err_bytes(text, n_bytes);
    fputs(s ? out_style(STYLE_NONE) : "", stderr);
    fflush(stderr);
}

void out_printf(const char *format, ...)
{
    char line[2048];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (n > 0)
        out_text(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

json_t *out_object(void)
{
    json_t *object = json_object();

    json_object_set_new(object, "version", json_integer(1));
    return object;
}

json_t *out_string(const char *text)
{
    json_t *plain = json_string(text), *replaced;
    size_t n = strlen(text);
    char *copy;

    if (plain)
        return plain;
    copy = malloc(n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, n + 1);
    for (size_t at = utf8_valid_prefix(copy, n); at < n; at += utf8_valid_prefix(copy + at, n - at))
        copy[at] = '?';
    replaced = json_string(copy);
    free(copy);
    return replaced;
}

json_t *out_bytes_json(const char *p, size_t n)
{
    json_t *bytes;

    if (utf8_valid_prefix(p, n) == n)
        return json_stringn(p, n);
    bytes = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)p[i]));
    return bytes;
}

json_t *out_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *out_float(float x)
{
    char text[32];
    int n = 6;

    while (snprintf(text, sizeof text, "%.*g", n, (double)x), n < 9 && strtof(text, NULL) != x)
        n++;
    return out_real(strtod(text, NULL));
}

void out_json(json_t *object)
{
    char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)); /* 0.7, and not what makes it binary */

    progress_clear();
    if (line) {
        out_bytes(line, strlen(line));
        out_bytes("\n", 1);
    } else if (!write_errno) {
        write_errno = ENOMEM;
    }
    free(line);
    json_decref(object);
}

swl_status out_finish(swl_error *err)
{
    if (fflush(stdout) && !write_errno)
        write_errno = errno;
    if (!write_errno)
        return SWL_OK;
    fail(err, write_errno == ENOSPC ? SWL_E_BUDGET : SWL_E_IO, "cannot write to standard output: %s",
         strerror(write_errno));
    err->os_errno = write_errno;
    return err->code;
}

/* A line at a time: the server's threads all have something to say. */
static void say(const char *level, style s, const char *line)
{
    pthread_mutex_lock(&saying);
    progress_clear();
    if (s)
        fprintf(stderr, "%sswiftlet:%s ", out_style(s), out_style(STYLE_NONE));
    else
        fputs("swiftlet: ", stderr);
    if (stderr_is_terminal()) /* names out of a model's files may hold anything */
        escaped(err_bytes, line, strlen(line));
    else
        fputs(line, stderr);
    fputc('\n', stderr);
    log_line(level, line);
    pthread_mutex_unlock(&saying);
}

void note(const char *format, ...)
{
    char line[4096]; /* longer than any message of the library */
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    say("note", STYLE_NONE, line);
}

static json_t *error_object(const swl_error *err)
{
    json_t *e = json_object(), *root = out_object();

    json_object_set_new(e, "code", json_string(swl_status_name(err->code)));
    json_object_set_new(e, "message", out_string(err->message));
    json_object_set_new(e, "file", err->file[0] ? out_string(err->file) : json_null());
    json_object_set_new(e, "offset", err->offset >= 0 ? json_integer(err->offset) : json_null());
    json_object_set_new(root, "error", e);
    return root;
}

static void report(const swl_error *err, bool json, bool verbose)
{
    const char *text = err->code == SWL_E_CANCELLED ? "stopped" : err->message;

    if (json) {
        log_line("error", text);
        out_json(error_object(err));
        return;
    }
    say("error", STYLE_ERROR, text);
    if (err->file[0] && !strstr(err->message, err->file))
        note("the file is %s", err->file);
    if (verbose)
        note("status %s, offset %lld, errno %d", swl_status_name(err->code), (long long)err->offset, err->os_errno);
}

typedef struct last_words {
    pthread_mutex_t lock;
    pthread_cond_t said;
    swl_error err;
    bool json, verbose, done;
} last_words;

static void *report_main(void *arg)
{
    last_words *w = arg;

    report(&w->err, w->json, w->verbose);
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->said);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* By a thread, which is left behind when it is late, with its words. */
void report_error(const swl_error *err, bool json, bool verbose)
{
    last_words *w = never_hang ? malloc(sizeof *w) : NULL;
    struct timespec until;
    pthread_t thread;
    bool done;

    if (w)
        *w = (last_words){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, *err, json, verbose, false};
    if (!w || pthread_create(&thread, NULL, report_main, w)) {
        free(w);
        report(err, json, verbose);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LAST_SECONDS;
    pthread_mutex_lock(&w->lock);
    while (!w->done && !pthread_cond_timedwait(&w->said, &w->lock, &until))
        continue;
    done = w->done;
    pthread_mutex_unlock(&w->lock);
    if (!done) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    free(w);
}

void err_never_hang(void)
{
    never_hang = true;
}

bool err_hangs(void)
{
    if (pthread_mutex_trylock(&saying))
        return true;
    pthread_mutex_unlock(&saying);
    return false;
}

int exit_code(swl_status st)
{
    switch (st) {
    case SWL_OK:
        return 0;
    case SWL_E_ARG:
        return 2;
    case SWL_E_NOT_FOUND:
    case SWL_E_CORRUPT:
        return 3;
    case SWL_E_NOMEM:
    case SWL_E_BUDGET:
        return 4;
    case SWL_E_NETWORK:
        return 5;
    case SWL_E_UNSUPPORTED:
        return 6;
    case SWL_E_CANCELLED:
        return 128 + (interrupt_signal() ? interrupt_signal() : 2);
    default:
        return 1;
    }
}

void terminal_size(int *columns, int *rows)
{
    struct winsize w = {0};

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0)
        w = (struct winsize){0};
    *columns = w.ws_col ? w.ws_col : 80;
    *rows = w.ws_row ? w.ws_row : 24;
}

static void progress_line(const char *text, const char *format, va_list ap)
{
    char line[1024], *p = line;
    int columns, rows, n = vsnprintf(line, sizeof line, format, ap);
    size_t from, length;

    terminal_size(&columns, &rows);
    fprintf(stderr, "\r\033[K%s", text ? out_style(STYLE_DIM) : "");
    if (n < 0 || n >= columns) {
        line[n < 0 ? 0 : columns - 1] = 0; /* the figures are ASCII */
        n = columns;
    }
    fputs(p, stderr);
    length = text ? strlen(text) : 0;
    from = text ? text_tail(text, length, columns - 1 - n) : 0;
    for (size_t i = from; i < length; i++)
        fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i], stderr);
    fputs(text ? out_style(STYLE_NONE) : "", stderr);
    fflush(stderr);
    progress_shown = true;
}

void progress_show(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    progress_line(NULL, format, ap);
    va_end(ap);
}

void progress_tail(const char *text, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    progress_line(text, format, ap);
    va_end(ap);
}

void progress_clear(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool pace_due(progress_pace *p, int phase, double fraction)
{
    double now = seconds_now(), waited = now - p->at;
    int part = (int)(20 * fraction);

    if (p->begun && phase == p->phase && waited < 10 && (part <= p->part || waited < 3))
        return false;
    *p = (progress_pace){.begun = true, .phase = phase, .part = part, .at = now};
    return true;
}
