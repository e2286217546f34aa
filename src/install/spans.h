/* spans.h: which bytes of a file are there: a sorted list of ranges that neither touch nor overlap. */
#ifndef SWL_INSTALL_SPANS_H
#define SWL_INSTALL_SPANS_H

#include <swiftlet/swiftlet.h>

typedef struct swl_span {
    uint64_t begin, end;
} swl_span;

typedef struct swl_spans {
    swl_span *s;
    int32_t n, room;
} swl_spans;

void swl_spans_free(swl_spans *l);
void swl_spans_clear(swl_spans *l); /* keeps the memory */
/* False: out of memory. */
bool swl_spans_add(swl_spans *l, uint64_t begin, uint64_t end);
uint64_t swl_spans_total(const swl_spans *l);
/* The first range of [from, size) that is missing; false when nothing is. */
bool swl_spans_gap(const swl_spans *l, uint64_t from, uint64_t size, swl_span *gap);

#endif
