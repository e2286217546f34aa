/* spans.c: see spans.h. The lists are short: a few streams fill a file part by part. */
#include "install/spans.h"

#include <string.h>

#include "base/mem.h"

void swl_spans_free(swl_spans *l)
{
    swl_free(l->s);
    *l = (swl_spans){0};
}

void swl_spans_clear(swl_spans *l)
{
    l->n = 0;
}

static bool make_room(swl_spans *l)
{
    int32_t n = l->room ? 2 * l->room : 8;
    swl_span *s;

    if (l->n < l->room)
        return true;
    s = swl_realloc(l->s, (size_t)n, sizeof *s);
    if (s) {
        l->s = s;
        l->room = n;
    }
    return s != NULL;
}

bool swl_spans_add(swl_spans *l, uint64_t begin, uint64_t end)
{
    int32_t i = 0, k;

    if (begin >= end)
        return true;
    while (i < l->n && l->s[i].end < begin)
        i++;
    for (k = i; k < l->n && l->s[k].begin <= end; k++) { /* [i, k) become part of the new one */
        begin = l->s[k].begin < begin ? l->s[k].begin : begin;
        end = l->s[k].end > end ? l->s[k].end : end;
    }
    if (k == i && !make_room(l))
        return false;
    memmove(&l->s[i + 1], &l->s[k], (size_t)(l->n - k) * sizeof *l->s);
    l->s[i] = (swl_span){begin, end};
    l->n += 1 - (k - i);
    return true;
}

uint64_t swl_spans_total(const swl_spans *l)
{
    uint64_t n = 0;

    for (int32_t i = 0; i < l->n; i++)
        n += l->s[i].end - l->s[i].begin;
    return n;
}

bool swl_spans_gap(const swl_spans *l, uint64_t from, uint64_t size, swl_span *gap)
{
    *gap = (swl_span){from, size};
    for (int32_t i = 0; i < l->n; i++) {
        if (l->s[i].end <= gap->begin)
            continue;
        if (l->s[i].begin > gap->begin) {
            gap->end = l->s[i].begin < size ? l->s[i].begin : size;
            break;
        }
        gap->begin = l->s[i].end;
    }
    return gap->begin < gap->end && gap->begin < size;
}
