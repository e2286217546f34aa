/* edit_text.c: inserting, deleting, and where words and lines begin. */
#include "edit_text.h"

#include <stdlib.h>
#include <string.h>

#include "chars.h"

void edit_free(edit_text *t)
{
    free(t->p);
    *t = (edit_text){0};
}

static bool reserve(edit_text *t, size_t n)
{
    size_t n_max = (n + 1) * 2;
    char *more;

    if (n < t->n_max)
        return true;
    more = realloc(t->p, n_max);
    if (!more)
        return false;
    t->p = more;
    t->n_max = n_max;
    return true;
}

void edit_insert(edit_text *t, const char *p, size_t n)
{
    if (!reserve(t, t->n + n))
        return;
    memmove(t->p + t->cursor + n, t->p + t->cursor, t->n - t->cursor);
    memcpy(t->p + t->cursor, p, n);
    t->n += n;
    t->cursor += n;
    t->p[t->n] = 0;
}

void edit_set(edit_text *t, const char *p, size_t n)
{
    t->n = t->cursor = 0;
    edit_insert(t, p, n);
}

void edit_delete(edit_text *t, size_t from, size_t to)
{
    if (from >= to || to > t->n)
        return;
    memmove(t->p + from, t->p + to, t->n - to);
    t->n -= to - from;
    t->p[t->n] = 0;
    if (t->cursor >= to)
        t->cursor -= to - from;
    else if (t->cursor > from)
        t->cursor = from;
}

size_t edit_left(const edit_text *t)
{
    return t->cursor ? cluster_before(t->p, t->cursor) : 0;
}

size_t edit_right(const edit_text *t)
{
    return t->cursor < t->n ? t->cursor + cluster_length(t->p + t->cursor, t->n - t->cursor) : t->n;
}

/* Letters, digits and everything that is not ASCII. */
static bool is_word(unsigned char c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
}

size_t edit_word_left(const edit_text *t)
{
    size_t at = t->cursor;

    while (at && !is_word((unsigned char)t->p[at - 1]))
        at--;
    while (at && is_word((unsigned char)t->p[at - 1]))
        at--;
    return at;
}

size_t edit_word_right(const edit_text *t)
{
    size_t at = t->cursor;

    while (at < t->n && !is_word((unsigned char)t->p[at]))
        at++;
    while (at < t->n && is_word((unsigned char)t->p[at]))
        at++;
    return at;
}

size_t edit_line_begin(const edit_text *t)
{
    size_t at = t->cursor;

    while (at && t->p[at - 1] != '\n')
        at--;
    return at;
}

size_t edit_line_end(const edit_text *t)
{
    size_t at = t->cursor;

    while (at < t->n && t->p[at] != '\n')
        at++;
    return at;
}
