/*
 * bpe.c: byte-pair merging of one piece. The symbols form a linked list, the pairs that have a rank a binary heap
 * ordered by (rank, position); the lowest is merged until none is left. Entries whose pair has changed since are left
 * in the heap and skipped when they come up. O(n log n) in the bytes of the piece, which may be a megabyte of base64.
 */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"

void swl_bpe_work_deinit(swl_bpe_work *w)
{
    swl_free(w->symbols);
    swl_free(w->heap);
    memset(w, 0, sizeof *w);
}

/* Each merge takes one entry off the heap and adds at most two, so it never holds more than twice the symbols. */
static swl_status reserve(swl_bpe_work *w, size_t n, swl_error *err)
{
    swl_bpe_symbol *symbols;
    uint64_t *heap;

    if (n <= w->n_max)
        return SWL_OK;
    n = n < 256 ? 256 : n > w->n_max * 2 ? n : w->n_max * 2;
    if (n > INT32_MAX)
        n = INT32_MAX;
    symbols = swl_realloc(w->symbols, n, sizeof *symbols);
    if (symbols)
        w->symbols = symbols;
    heap = swl_realloc(w->heap, n * 2, sizeof *heap);
    if (heap)
        w->heap = heap;
    if (!symbols || !heap)
        return swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory for a piece of %zu bytes", n);
    w->n_max = n;
    return SWL_OK;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t e = heap[i];

    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= e)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = e;
}

static void heap_push(swl_bpe_work *w, uint64_t e)
{
    size_t i = w->n_heap++;

    for (; i && w->heap[(i - 1) / 2] > e; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static uint64_t heap_pop(swl_bpe_work *w)
{
    uint64_t e = w->heap[0];

    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap)
        sift_down(w->heap, w->n_heap, 0);
    return e;
}

static uint64_t heap_entry(int32_t rank, int32_t symbol)
{
    return (uint64_t)rank << 32 | (uint32_t)symbol;
}

static void start(const swl_tokenizer *t, swl_bpe_work *w, const uint8_t *piece, int32_t n)
{
    w->n_heap = 0;
    for (int32_t i = 0; i < n; i++)
        w->symbols[i] = (swl_bpe_symbol){t->byte_ids[piece[i]], i - 1, i + 1, -1};
    w->symbols[n - 1].next = -1;
    for (int32_t i = 0; i + 1 < n; i++) {
        w->symbols[i].rank = swl_pair_find(t, w->symbols[i].id, w->symbols[i + 1].id);
        if (w->symbols[i].rank >= 0)
            w->heap[w->n_heap++] = heap_entry(w->symbols[i].rank, i);
    }
    for (size_t i = w->n_heap / 2; i-- > 0;)
        sift_down(w->heap, w->n_heap, i);
}

/* Looks the pair of symbol i and the one after it up again, after one of them changed. */
static void rank_pair(const swl_tokenizer *t, swl_bpe_work *w, int32_t i)
{
    swl_bpe_symbol *s = &w->symbols[i];

    s->rank = s->next < 0 ? -1 : swl_pair_find(t, s->id, w->symbols[s->next].id);
    if (s->rank >= 0)
        heap_push(w, heap_entry(s->rank, i));
}

static void merge(const swl_tokenizer *t, swl_bpe_work *w, int32_t left)
{
    swl_bpe_symbol *a = &w->symbols[left], *b = &w->symbols[a->next];

    a->id = t->merged[a->rank];
    a->next = b->next;
    b->rank = -1; /* its entries in the heap are void */
    if (a->next >= 0)
        w->symbols[a->next].prev = left;
    rank_pair(t, w, left);
    if (a->prev >= 0)
        rank_pair(t, w, a->prev);
}

static swl_status merge_all(const swl_tokenizer *t, swl_bpe_work *w, const uint8_t *piece, size_t n_bytes, int32_t *ids,
                            int64_t *n_ids, swl_error *err)
{
    swl_status st = reserve(w, n_bytes, err);

    if (st)
        return st;
    start(t, w, piece, (int32_t)n_bytes);
    while (w->n_heap) {
        uint64_t e = heap_pop(w);
        int32_t left = (int32_t)(uint32_t)e;

        if (w->symbols[left].rank == (int32_t)(e >> 32))
            merge(t, w, left);
    }
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next)
        ids[(*n_ids)++] = w->symbols[i].id;
    return SWL_OK;
}

/* Most pieces are one token. Whether a token's bytes merge back to it is found out when it is first met and kept, so
 * the look-up never takes the place of the merges: it only remembers them. */
swl_status swl_bpe_piece(const swl_tokenizer *t, swl_bpe_work *w, const uint8_t *piece, size_t n_bytes, int32_t *ids,
                         int64_t *n_ids, swl_error *err)
{
    int64_t n_before = *n_ids;
    int32_t id;
    swl_status st;

    if (n_bytes == 1) {
        ids[(*n_ids)++] = t->byte_ids[piece[0]];
        return SWL_OK;
    }
    if (n_bytes > INT32_MAX)
        return swl_fail(err, SWL_E_ARG, "tokenizer: a piece of %zu bytes without a break is too long", n_bytes);
    id = swl_vocab_find(t, (const char *)piece, n_bytes);
    if (id >= 0 && atomic_load_explicit(&t->whole[id], memory_order_relaxed) == SWL_WHOLE_YES) {
        ids[(*n_ids)++] = id;
        return SWL_OK;
    }
    st = merge_all(t, w, piece, n_bytes, ids, n_ids, err);
    if (!st && id >= 0)
        atomic_store_explicit(&t->whole[id],
                              *n_ids == n_before + 1 && ids[n_before] == id ? SWL_WHOLE_YES : SWL_WHOLE_NO,
                              memory_order_relaxed);
    return st;
}
