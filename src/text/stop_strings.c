/*
 * stop_strings.c: one Knuth-Morris-Pratt matcher per string, so that a byte costs the same however long the strings
 * are. Held back is the longest end of the text that begins a stop string. The strings begin with a whole character, so
 * the text is never cut inside one.
 */
#include "text/stop_strings.h"

#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

typedef struct matcher {
    char *text;
    size_t n;
    size_t *back;   /* [n] the longest proper border of text[0..i] */
    size_t matched; /* how much of `text` the input ends in */
} matcher;

struct swl_stop_strings {
    matcher *each;
    int32_t n;
    swl_sbuf held; /* the last bytes of the input, as many as the longest `matched` */
};

static void find_borders(matcher *m)
{
    size_t k = 0;

    for (size_t i = 1; i < m->n; i++) {
        while (k && m->text[i] != m->text[k])
            k = m->back[k - 1];
        k += m->text[i] == m->text[k];
        m->back[i] = k;
    }
}

static bool well_formed(const char *s, size_t n)
{
    int32_t k;

    for (size_t i = 0; i < n; i += (size_t)k) {
        k = swl_utf8_part((const uint8_t *)s + i, n - i);
        if (k <= 0)
            return false;
    }
    return true;
}

static swl_status add(matcher *m, const char *string, int32_t i, swl_error *err)
{
    m->n = strlen(string);
    if (!m->n || !well_formed(string, m->n))
        return swl_fail(err, SWL_E_ARG, "stop string %d is %s", i, m->n ? "not UTF-8" : "empty");
    m->text = swl_strdup(string);
    m->back = swl_calloc(m->n, sizeof *m->back);
    if (!m->text || !m->back)
        return swl_fail(err, SWL_E_NOMEM, "stop strings: out of memory");
    find_borders(m);
    return SWL_OK;
}

swl_status swl_stop_strings_create(swl_stop_strings **out, const char *const *strings, int32_t n, swl_error *err)
{
    swl_stop_strings *s = swl_calloc(1, sizeof *s);
    swl_status st = SWL_OK;

    *out = NULL;
    if (s)
        s->each = swl_calloc((size_t)n, sizeof *s->each);
    if (!s || !s->each)
        st = swl_fail(err, SWL_E_NOMEM, "stop strings: out of memory");
    for (; !st && s->n < n; s->n++)
        st = add(&s->each[s->n], strings[s->n], s->n, err);
    if (st)
        swl_stop_strings_free(s);
    else
        *out = s;
    return st;
}

void swl_stop_strings_free(swl_stop_strings *s)
{
    if (!s)
        return;
    for (int32_t i = 0; i < s->n; i++) {
        swl_free(s->each[i].text);
        swl_free(s->each[i].back);
    }
    swl_free(s->each);
    swl_sbuf_deinit(&s->held);
    swl_free(s);
}

/* True when c completes the string. */
static bool advance(matcher *m, char c)
{
    while (m->matched && m->text[m->matched] != c)
        m->matched = m->back[m->matched - 1];
    m->matched += m->text[m->matched] == c;
    return m->matched == m->n;
}

/* Moves all of the held text but its last `keep` bytes out. */
static void release(swl_stop_strings *s, size_t keep, swl_sbuf *out)
{
    size_t n = s->held.n > keep ? s->held.n - keep : 0;

    swl_sbuf_put(out, s->held.p, n);
    swl_sbuf_drop(&s->held, n);
}

static void start_afresh(swl_stop_strings *s)
{
    s->held.n = 0;
    for (int32_t i = 0; i < s->n; i++)
        s->each[i].matched = 0;
}

static int32_t push_byte(swl_stop_strings *s, char c, swl_sbuf *out)
{
    int32_t found = -1;
    size_t keep = 0;

    swl_sbuf_putc(&s->held, c);
    for (int32_t i = 0; i < s->n; i++) {
        matcher *m = &s->each[i];

        if (advance(m, c) && (found < 0 || m->n > s->each[found].n))
            found = i;
        keep = m->matched > keep ? m->matched : keep;
    }
    if (found >= 0) {
        release(s, s->each[found].n, out);
        start_afresh(s);
    } else {
        release(s, keep, out);
    }
    return found;
}

int32_t swl_stop_strings_push(swl_stop_strings *s, const char *text, size_t n, swl_sbuf *out)
{
    int32_t found = -1;

    for (size_t i = 0; i < n && found < 0; i++)
        found = push_byte(s, text[i], out);
    out->failed |= s->held.failed;
    return found;
}

void swl_stop_strings_flush(swl_stop_strings *s, swl_sbuf *out)
{
    release(s, 0, out);
    start_afresh(s);
}
