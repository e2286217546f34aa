/* settings.c: reading the config file. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "output.h"
#include "places.h"

static char path[PLACE_PATH_MAX];
static char *text;
static setting *rows;
static int n_rows;
static bool is_read;

static char *trimmed(char *p)
{
    size_t n;

    p += strspn(p, " \t\r");
    n = strlen(p);
    while (n && strchr(" \t\r", p[n - 1]))
        p[--n] = 0;
    return p;
}

static char *unquoted(char *p)
{
    size_t n = strlen(p);

    if (n < 2 || p[0] != '"' || p[n - 1] != '"')
        return p;
    p[n - 1] = 0;
    return p + 1;
}

static void parse_line(char *line, int number, const char **section)
{
    char *p = trimmed(line), *equals = strchr(p, '=');
    size_t n = strlen(p);

    if (!*p || *p == '#' || *p == ';')
        return;
    if (*p == '[' && p[n - 1] == ']') {
        p[n - 1] = 0;
        *section = trimmed(p + 1);
        return;
    }
    rows[n_rows] = (setting){.line = number, .section = *section};
    if (equals) {
        *equals = 0;
        rows[n_rows].key = trimmed(p);
        rows[n_rows].value = unquoted(trimmed(equals + 1));
    }
    n_rows++;
}

static swl_status parse(swl_error *err)
{
    const char *section = NULL;
    int n = 1;

    for (const char *p = text; *p; p++)
        n += *p == '\n';
    rows = calloc((size_t)n, sizeof *rows);
    if (!rows)
        return fail(err, SWL_E_NOMEM, "out of memory for %s", path);
    n = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        parse_line(line, ++n, &section);
    }
    return SWL_OK;
}

swl_status settings_read(settings *out, swl_error *err)
{
    size_t n;
    swl_status st = SWL_OK;

    if (!is_read) {
        is_read = true;
        st = place_path(path, PLACE_CONFIG, "config.ini", err);
        if (!st)
            st = input_text(path, &text, &n, err);
        if (!st)
            st = parse(err);
        if (st == SWL_E_NOT_FOUND) {
            memset(err, 0, sizeof *err);
            st = SWL_OK;
        }
    }
    *out = (settings){path, rows, n_rows};
    return st;
}
