/*
 * ahead.h: asking for memory before it is needed, in kernels that read rows from end to end: some way ahead of what is
 * multiplied, and at the end of the rows from where the thread goes on reading afterwards (swl_matrix.next).
 */
#ifndef SWL_KERNELS_AHEAD_H
#define SWL_KERNELS_AHEAD_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

/* A part of memory that is read from end to end, and where reading goes on from there. */
typedef struct stream {
    const uint8_t *near_end; /* from here on, what is `ahead` bytes further lies behind the end */
    int64_t ahead, jump;     /* jump: from the end to where it goes on */
    bool first_cache;        /* asked for into the first cache, past the others; else into the second */
} stream;

/* Where nothing is known to come next, what is at hand is asked for once more. */
static inline __attribute__((always_inline)) stream stream_to(const uint8_t *end, int64_t ahead, const uint8_t *next,
                                                              bool first_cache)
{
    return (stream){end - ahead, ahead, next ? (int64_t)((uintptr_t)next - (uintptr_t)end) : -ahead, first_cache};
}

static inline __attribute__((always_inline)) void ask_ahead(const stream *s, const uint8_t *p, int n_bytes)
{
    uintptr_t at = (uintptr_t)p + (uintptr_t)(p < s->near_end ? s->ahead : s->ahead + s->jump);
    int i;

#pragma GCC unroll 32
    for (i = 0; i < n_bytes; i += 64)
        if (s->first_cache)
            _mm_prefetch((const char *)(at + (uintptr_t)i), _MM_HINT_NTA);
        else
            _mm_prefetch((const char *)(at + (uintptr_t)i), _MM_HINT_T1);
}

#endif
