/* text.c: growing text, and JSON written into it. */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void srv_text_free(srv_text *t)
{
    free(t->p);
    *t = (srv_text){0};
}

void srv_text_clear(srv_text *t)
{
    t->n = 0;
    if (t->p)
        t->p[0] = 0;
}

static bool make_room(srv_text *t, size_t n)
{
    size_t room = t->room ? t->room : 256;
    char *grown;

    if (t->failed || n > SIZE_MAX / 4 || t->n > SIZE_MAX / 4 || (t->most && t->n + n > t->most))
        t->failed = true;
    if (t->failed || t->n + n + 1 <= t->room)
        return !t->failed;
    while (room < t->n + n + 1)
        room *= 2;
    grown = realloc(t->p, room);
    if (!grown) {
        t->failed = true;
        srv_text_clear(t);
        return false;
    }
    t->p = grown;
    t->room = room;
    return true;
}

void srv_add(srv_text *t, const char *p, size_t n)
{
    if (!make_room(t, n))
        return;
    if (n)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

void srv_puts(srv_text *t, const char *s)
{
    srv_add(t, s, strlen(s));
}

void srv_printf(srv_text *t, const char *format, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, format);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (n >= 0 && make_room(t, (size_t)n)) {
        vsnprintf(t->p + t->n, (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

size_t srv_utf8(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t length;

    if (!n)
        return 0;
    if (p[0] < 0x80)
        return 1;
    length = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (!length || length > n)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return length;
}

static void put_control(srv_text *t, unsigned char c)
{
    static const char names[] = "btn?fr"; /* from 8 on */

    if (c >= 8 && c <= 13 && c != 11)
        srv_add(t, (char[]){'\\', names[c - 8]}, 2);
    else
        srv_printf(t, "\\u%04x", c);
}

void srv_put_json_part(srv_text *t, const char *p, size_t n)
{
    size_t begin = 0;

    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)p[i];
        size_t length = c < 0x80 ? 1 : srv_utf8(p + i, n - i);

        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f && length) {
            i += length;
            continue;
        }
        srv_add(t, p + begin, i - begin);
        if (!length)
            srv_puts(t, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            srv_add(t, (char[]){'\\', (char)c}, 2);
        else
            put_control(t, c);
        begin = ++i;
    }
    srv_add(t, p + begin, n - begin);
}

void srv_put_json(srv_text *t, const char *p, size_t n)
{
    srv_add(t, "\"", 1);
    srv_put_json_part(t, p, n);
    srv_add(t, "\"", 1);
}

void srv_comma(srv_text *t)
{
    if (t->n && !strchr("{[:, \n", t->p[t->n - 1]))
        srv_add(t, ",", 1);
}

void srv_key(srv_text *t, const char *name)
{
    srv_comma(t);
    if (name) {
        srv_put_json(t, name, strlen(name));
        srv_add(t, ":", 1);
    }
}

void srv_str(srv_text *t, const char *name, const char *s)
{
    if (s)
        srv_strn(t, name, s, strlen(s));
    else
        srv_null(t, name);
}

void srv_strn(srv_text *t, const char *name, const char *p, size_t n)
{
    srv_key(t, name);
    srv_put_json(t, p, n);
}

void srv_int(srv_text *t, const char *name, int64_t x)
{
    srv_key(t, name);
    srv_printf(t, "%lld", (long long)x);
}

/* What was a float gets the fewest digits that give it back: 0.7, not 0.699999988. */
static int digits_of(double x)
{
    char text[32];
    int n = (double)(float)x == x ? 6 : 9;

    while (n < 9 && (snprintf(text, sizeof text, "%.*g", n, x), strtof(text, NULL) != (float)x))
        n++;
    return n;
}

void srv_num(srv_text *t, double x)
{
    if (isfinite(x))
        srv_printf(t, "%.*g", digits_of(x), x);
    else
        srv_puts(t, "null");
}

void srv_real(srv_text *t, const char *name, double x)
{
    srv_key(t, name);
    srv_num(t, x);
}

void srv_bool(srv_text *t, const char *name, bool x)
{
    srv_key(t, name);
    srv_puts(t, x ? "true" : "false");
}

void srv_null(srv_text *t, const char *name)
{
    srv_key(t, name);
    srv_puts(t, "null");
}

void srv_raw(srv_text *t, const char *name, const char *p, size_t n)
{
    srv_key(t, name);
    srv_add(t, p, n);
}

/* Strings hold no line ends, so these stand between tokens. */
void srv_raw_line(srv_text *t, const char *name, const char *p, size_t n)
{
    size_t at;

    srv_key(t, name);
    at = t->n;
    srv_add(t, p, n);
    for (; at < t->n; at++) {
        if (t->p[at] == '\n' || t->p[at] == '\r')
            t->p[at] = ' ';
    }
}

void srv_open(srv_text *t, const char *name, char bracket)
{
    srv_key(t, name);
    srv_add(t, &bracket, 1);
}

void srv_close(srv_text *t, char bracket)
{
    srv_add(t, &bracket, 1);
}
