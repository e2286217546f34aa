/* history.c: a list, and the file that it is kept in. Entries are appended, so that several programs can write at a time. */
#define _POSIX_C_SOURCE 200809L
#include "history.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "places.h"

enum { KEPT = 1000 };

static char **lines;
static int n_lines;
static char *file;

static void append(char *line)
{
    char **more = realloc(lines, ((size_t)n_lines + 1) * sizeof *lines);

    if (!more) {
        free(line);
        return;
    }
    lines = more;
    lines[n_lines++] = line;
}

static void drop_oldest(void)
{
    int n = n_lines - KEPT;

    for (int i = 0; i < n; i++)
        free(lines[i]);
    memmove(lines, lines + n, KEPT * sizeof *lines);
    n_lines = KEPT;
}

static char *unescaped(const char *p, size_t n)
{
    char *line = malloc(n + 1), *to = line;

    for (size_t i = 0; line && i < n; i++) {
        if (p[i] == '\\' && i + 1 < n)
            *to++ = p[++i] == 'n' ? '\n' : p[i];
        else
            *to++ = p[i];
    }
    if (line)
        *to = 0;
    return line;
}

static void put_escaped(FILE *f, const char *line)
{
    for (const char *p = line; *p; p++) {
        if (*p == '\n')
            fputs("\\n", f);
        else if (*p == '\\')
            fputs("\\\\", f);
        else
            fputc(*p, f);
    }
    fputc('\n', f);
}

/* Opened for the user alone, whoever made it. */
static FILE *file_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return NULL;
    fchmod(fd, 0600);
    return fdopen(fd, flags & O_APPEND ? "a" : "w");
}

/* The newest entries alone, once there are twice as many. */
static void rewrite(void)
{
    char path[PLACE_PATH_MAX + 16];
    FILE *f;
    int bad;

    snprintf(path, sizeof path, "%s.%ld", file, (long)getpid());
    f = file_open(path, O_WRONLY | O_TRUNC);
    if (!f)
        return;
    for (int i = 0; i < n_lines; i++)
        put_escaped(f, lines[i]);
    bad = ferror(f);
    if (fclose(f) || bad || rename(path, file))
        unlink(path);
}

static void load(void)
{
    FILE *f = fopen(file, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    int n_read = 0;

    while (f && (n = getline(&line, &size, f)) > 0) {
        char *entry = unescaped(line, (size_t)(line[n - 1] == '\n' ? n - 1 : n));

        if (entry && *entry)
            append(entry);
        else
            free(entry);
        n_read++;
        if (n_lines > 2 * KEPT)
            drop_oldest();
    }
    free(line);
    if (f)
        fclose(f);
    if (n_lines > KEPT)
        drop_oldest();
    if (n_read > 2 * KEPT)
        rewrite();
}

void history_open(const char *path)
{
    history_close();
    file = path ? strdup(path) : NULL;
    if (file)
        load();
}

void history_close(void)
{
    for (int i = 0; i < n_lines; i++)
        free(lines[i]);
    free(lines);
    free(file);
    lines = NULL;
    n_lines = 0;
    file = NULL;
}

int history_count(void)
{
    return n_lines;
}

const char *history_get(int i)
{
    return lines[i];
}

void history_add(const char *text)
{
    char *copy;
    FILE *f;

    if (!*text || (n_lines && !strcmp(lines[n_lines - 1], text)) || !(copy = strdup(text)))
        return;
    append(copy);
    if (!file)
        return;
    place_make_parents(file);
    f = file_open(file, O_WRONLY | O_APPEND);
    if (f) {
        put_escaped(f, text);
        fclose(f);
    }
}
