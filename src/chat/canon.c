/* canon.c: ids as bytes, and what two of them have in common. */
#include "chat/canon.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "text/tokenizer_impl.h"

void swl_canon_deinit(swl_canon *c)
{
    swl_sbuf_deinit(&c->bytes);
    swl_free(c->end);
    *c = (swl_canon){0};
}

bool swl_canon_is_added(const swl_tokenizer *t, int32_t id)
{
    return swl_tokenizer_is_added(t, id);
}

static void put_id(swl_sbuf *b, int32_t id)
{
    swl_sbuf_putc(b, (char)0xff);
    swl_sbuf_put(b, (const char *)&id, sizeof id);
}

static void put_token(swl_canon *c, const swl_tokenizer *t, int32_t id)
{
    int32_t n;
    const char *bytes = swl_tokenizer_token(t, id, &n);

    if (!bytes || swl_tokenizer_is_added(t, id) || memchr(bytes, 0xff, (size_t)n))
        put_id(&c->bytes, id);
    else
        swl_sbuf_put(&c->bytes, bytes, (size_t)n);
}

swl_status swl_canon_set(swl_canon *c, const swl_tokenizer *t, const int32_t *ids, int32_t n, int32_t keep,
                         swl_error *err)
{
    if (n > c->cap) {
        int32_t cap = n + n / 2 + 64;
        uint32_t *end = swl_realloc(c->end, (size_t)cap, sizeof *end);

        if (!end)
            return swl_fail(err, SWL_E_NOMEM, "out of memory for the text of %d tokens", n);
        c->end = end;
        c->cap = cap;
    }
    c->n = keep < c->n ? keep : c->n;
    c->bytes.n = c->n ? c->end[c->n - 1] : 0;
    while (c->n < n) {
        put_token(c, t, ids[c->n]);
        c->end[c->n++] = (uint32_t)c->bytes.n;
    }
    return c->bytes.failed || c->bytes.n > UINT32_MAX
               ? swl_fail(err, SWL_E_NOMEM, "out of memory for the text of %d tokens", n)
               : SWL_OK;
}

static size_t common_bytes(const swl_sbuf *a, const swl_sbuf *b)
{
    enum { STEP = 4096 };
    size_t n = a->n < b->n ? a->n : b->n, i = 0;

    while (n - i >= STEP && !memcmp(a->p + i, b->p + i, STEP))
        i += STEP;
    while (i < n && a->p[i] == b->p[i])
        i++;
    return i;
}

/* How many tokens end at or before byte n. */
static int32_t tokens_within(const swl_canon *c, size_t n)
{
    int32_t lo = 0, hi = c->n;

    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;

        if (c->end[mid] <= n)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static size_t end_of(const swl_canon *c, int32_t n)
{
    return n ? c->end[n - 1] : 0;
}

void swl_canon_match(const swl_canon *have, const int32_t *have_ids, const swl_canon *prompt, const int32_t *prompt_ids,
                     const swl_tokenizer *t, bool loose, int32_t *n_have, int32_t *n_prompt)
{
    int32_t same = 0, j;

    while (same < have->n && same < prompt->n && have_ids[same] == prompt_ids[same])
        same++;
    *n_have = *n_prompt = same;
    if (!loose)
        return;
    for (j = tokens_within(prompt, common_bytes(&have->bytes, &prompt->bytes)); j > same; j--) {
        int32_t k;

        if (!swl_tokenizer_is_added(t, prompt_ids[j - 1]) &&
            !(j < prompt->n && swl_tokenizer_is_added(t, prompt_ids[j])))
            continue;
        k = tokens_within(have, end_of(prompt, j));
        if (end_of(have, k) != end_of(prompt, j))
            continue;
        *n_have = k;
        *n_prompt = j;
        return;
    }
}
