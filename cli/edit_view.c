/*
 * edit_view.c: layout and drawing. A row ends one column before the terminal's edge, so that the cursor behind its last
 * character has a place, and so that no terminal is left in the state between two lines. Rows are separated by newlines of
 * ours: a terminal that becomes wider joins none of them.
 */
#include "edit_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chars.h"
#include "output.h"

enum { TAB_WIDTH = 4 };

typedef struct row {
    size_t begin, end;       /* bytes; the newline is not among them */
    int width;               /* without the margin */
} row;

typedef struct layout {
    row *rows;
    int n, n_max;
    int margin;              /* columns of the prompt, before every row */
    int cursor_row, cursor_column;
} layout;

static int cluster_width(const char *p, size_t n)
{
    return *p == '\t' ? TAB_WIDTH : text_width(p, n);
}

static void add_row(layout *l, size_t begin, size_t end, int width)
{
    if (l->n == l->n_max) {
        int n_max = l->n_max * 2 + 16;
        row *more = realloc(l->rows, (size_t)n_max * sizeof *more);

        if (!more)
            return;
        l->rows = more;
        l->n_max = n_max;
    }
    l->rows[l->n++] = (row){begin, end, width};
}

static void place_cursor(layout *l, int width)
{
    l->cursor_row = l->n;
    l->cursor_column = l->margin + width;
}

static void lay_out(layout *l, const char *prompt, const edit_text *t, int columns)
{
    int room, width = 0;
    size_t begin = 0;

    *l = (layout){.margin = text_width(prompt, strlen(prompt))};
    if (l->margin + 8 > columns)
        l->margin = 0;
    room = columns - 1 - l->margin < 2 ? 2 : columns - 1 - l->margin;
    for (size_t at = 0; at < t->n;) {
        size_t k = cluster_length(t->p + at, t->n - at);
        bool newline = t->p[at] == '\n';
        int w = newline ? 0 : cluster_width(t->p + at, k);

        if (!newline && width + w > room) {
            add_row(l, begin, at, width);
            begin = at;
            width = 0;
        }
        if (t->cursor >= at && t->cursor < at + k)
            place_cursor(l, width);
        width += w;
        at += k;
        if (newline) {
            add_row(l, begin, at - k, width);
            begin = at;
            width = 0;
        }
    }
    if (t->cursor >= t->n)
        place_cursor(l, width);
    add_row(l, begin, t->n, width);
}

static void put_row(const layout *l, int i, const char *prompt, const edit_text *t)
{
    const row *r = &l->rows[i];

    if (!i)
        fputs(prompt, stderr);
    else
        fprintf(stderr, "%*s", l->margin, "");
    for (size_t at = r->begin; at < r->end;) {
        size_t k = cluster_length(t->p + at, r->end - at);
        unsigned char c = (unsigned char)t->p[at];

        if (c == '\t')
            fprintf(stderr, "%*s", TAB_WIDTH, "");
        else if (c < 0x20 || c == 0x7f)
            fprintf(stderr, "^%c", c ^ 0x40);
        else
            fwrite(t->p + at, 1, k, stderr);
        at += k;
    }
}

/* Terminals that become narrower cut rows into several: the cursor is then further below the first. */
static int rows_above(const edit_view *v, int columns)
{
    int above = 0;

    if (columns >= v->columns)
        return v->cursor_row;
    for (int i = 0; i < v->cursor_row && i < 256; i++)
        above += v->widths[i] > columns ? (v->widths[i] + columns - 1) / columns : 1;
    return above + v->cursor_column / columns;
}

static void go_to_first_row(const edit_view *v, int columns)
{
    int above = v->columns ? rows_above(v, columns) : 0;

    fputc('\r', stderr);
    if (above)
        fprintf(stderr, "\033[%dA", above);
    fputs("\033[J", stderr);
}

static void draw_rows(edit_view *v, const layout *l, const char *prompt, const edit_text *t, int first, int end)
{
    for (int i = first; i < end; i++) {
        if (i > first)
            fputs("\r\n", stderr);
        put_row(l, i, prompt, t);
        if (i - first < 256)
            v->widths[i - first] = l->margin + l->rows[i].width;
    }
}

void view_reset(edit_view *v)
{
    *v = (edit_view){0};
}

void view_draw(edit_view *v, const char *prompt, const edit_text *t)
{
    layout l;
    int columns, rows, end;

    terminal_size(&columns, &rows);
    lay_out(&l, prompt, t, columns);
    if (v->top > l.cursor_row)
        v->top = l.cursor_row;
    if (v->top < l.cursor_row - rows + 1)
        v->top = l.cursor_row - rows + 1;
    if (v->top > l.n - rows)
        v->top = l.n > rows ? l.n - rows : 0;
    end = v->top + rows < l.n ? v->top + rows : l.n;
    fputs("\033[?25l", stderr);
    go_to_first_row(v, columns);
    draw_rows(v, &l, prompt, t, v->top, end);
    if (end - 1 > l.cursor_row)
        fprintf(stderr, "\033[%dA", end - 1 - l.cursor_row);
    fputc('\r', stderr);
    if (l.cursor_column)
        fprintf(stderr, "\033[%dC", l.cursor_column);
    fputs("\033[?25h", stderr);
    fflush(stderr);
    v->columns = columns;
    v->rows = rows;
    v->cursor_row = l.cursor_row - v->top;
    v->cursor_column = l.cursor_column;
    free(l.rows);
}

void view_finish(edit_view *v, const char *prompt, const edit_text *t)
{
    layout l;
    int columns, rows;

    terminal_size(&columns, &rows);
    lay_out(&l, prompt, t, columns);
    go_to_first_row(v, columns);
    draw_rows(v, &l, prompt, t, 0, l.n);
    fputs("\r\n", stderr);
    fflush(stderr);
    free(l.rows);
    view_reset(v);
}

size_t view_vertical(const edit_view *v, const char *prompt, const edit_text *t, int direction)
{
    layout l;
    size_t at = t->cursor, end;
    int to, width = 0, wanted;

    lay_out(&l, prompt, t, v->columns ? v->columns : 80);
    to = l.cursor_row + direction;
    wanted = l.cursor_column - l.margin;
    if (to >= 0 && to < l.n) {
        end = l.rows[to].end;
        for (at = l.rows[to].begin; at < end;) {
            size_t k = cluster_length(t->p + at, end - at);
            int w = cluster_width(t->p + at, k);

            if (width + w > wanted || (at + k == end && to + 1 < l.n && l.rows[to + 1].begin == end))
                break; /* behind a wrapped row is the next one */
            width += w;
            at += k;
        }
    }
    free(l.rows);
    return at;
}
