/*
 * output.h: what goes to which stream. The answer and JSON go to standard output, everything else to standard error. At
 * a terminal the control characters of an answer are shown as ^[ and the like, so that it cannot drive the terminal.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include <swiftlet/swiftlet.h>

/* --color (NULL: auto), --log (NULL: none), --log-json: before anything else here, and also without ever being called. */
swl_status out_setup(const char *color, const char *log, bool log_json, swl_error *err);

/* Escape sequences for standard error, "" where there are to be no colours. */
typedef enum style { STYLE_NONE, STYLE_DIM, STYLE_ERROR } style;
const char *out_style(style s);

/* Fills err and returns code. */
swl_status fail(swl_error *err, swl_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

bool stdin_is_terminal(void);
bool stdout_is_terminal(void);
bool stderr_is_terminal(void);

/* A piece of the answer, whole characters; written at once. A failed write is remembered for out_finish. */
void out_text(const char *text, size_t n_bytes);
/* Like out_text for text that may hold anything: file names, tokens in tables. */
void out_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Text of the model, or of ours, on standard error; control characters are shown at a terminal, newline and tab excepted. */
void err_text(style s, const char *text, size_t n_bytes);
/* One object on a line of its own; takes over the reference. */
void out_json(json_t *object);
/* {"version":1}, to be filled. */
json_t *out_object(void);
/* A string; bytes that are not UTF-8 (file names may hold any) as "?". */
json_t *out_string(const char *text);
/* A string, or the array of its bytes when it is not UTF-8. */
json_t *out_bytes_json(const char *p, size_t n);
/* A number, or null where JSON has none (not finite). */
json_t *out_real(double x);
/* The same with the fewest digits that give the float back. */
json_t *out_float(float x);
/* Everything has reached its place, or why it has not. */
swl_status out_finish(swl_error *err);

/* One line on standard error, "swiftlet: ...", and in the log. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The error as text, or as {"version":1,"error":{...}} on standard output. */
void report_error(const swl_error *err, bool json, bool verbose);
/* For a program that has to end also when nobody reads what it says: report_error returns within a second from now on. */
void err_never_hang(void);
/* A thread hangs in a line on standard error: exit() may wait for it, _exit() does not. */
bool err_hangs(void);
int exit_code(swl_status st);

/* A line on a terminal's standard error that is written over and vanishes. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with as much of the end of a text as fits behind it. */
void progress_tail(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_clear(void);
/* Away from a terminal: whether a line is due. When a phase begins, for every twentieth more but not within three seconds
 * of the last line, and every ten seconds whatever happens. Zeroed at first. */
typedef struct progress_pace {
    bool begun;
    int phase, part;
    double at;
} progress_pace;
bool pace_due(progress_pace *p, int phase, double fraction);
/* Columns and rows of the terminal; 80 and 24 where they are unknown. */
void terminal_size(int *columns, int *rows);

/* Wall clock in seconds from an arbitrary start. */
double seconds_now(void);

#endif
