/*
 * ahead.h: asking for memory before it is needed, in kernels that read rows from end to end: some way ahead of what is
 * multiplied, and at the end of the rows from where the thread goes on reading afterwards (swl_matrix.next).
 */
#ifndef SWL_KERNELS_AHEAD_H
#define SWL_KERNELS_AHEAD_H

#include <immintrin.h>
#include <stdint.h>

/* Into the first cache past the others, into the first, or into the second. */
typedef enum ask_where { ASK_PAST, ASK_FIRST, ASK_SECOND } ask_where;

/* A part of memory that is read from end to end, and where reading goes on from there. */
typedef struct stream {
    const uint8_t *near_end; /* from here on, what is `ahead` bytes further lies behind the end */
    int64_t ahead, jump;     /* jump: from the end to where it goes on */
} stream;

/* Where nothing is known to come next, what is at hand is asked for once more. */
static inline stream stream_to(const uint8_t *end, int64_t ahead, const uint8_t *next)
{
    return (stream){end - ahead, ahead, next ? (int64_t)((uintptr_t)next - (uintptr_t)end) : -ahead};
}

/* From p to what is asked for while p is multiplied. */
static inline __attribute__((always_inline)) uintptr_t ahead_of(const stream *s, const uint8_t *p)
{
    return (uintptr_t)(p < s->near_end ? s->ahead : s->ahead + s->jump);
}

static inline __attribute__((always_inline)) void ask(const uint8_t *p, uintptr_t ahead, int n_bytes, ask_where where)
{
    const char *at = (const char *)((uintptr_t)p + ahead);
    int i;

#pragma GCC unroll 32
    for (i = 0; i < n_bytes; i += 64)
        if (where == ASK_PAST)
            _mm_prefetch(at + i, _MM_HINT_NTA);
        else if (where == ASK_FIRST)
            _mm_prefetch(at + i, _MM_HINT_T0);
        else
            _mm_prefetch(at + i, _MM_HINT_T1);
}

#endif
