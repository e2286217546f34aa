/*
 * canon.h: token ids as bytes that do not depend on how a text was cut into tokens. An added token is 0xFF and its id
 * in four bytes, everything else its UTF-8 bytes: text never holds 0xFF. (A byte token of 0xFF, which no valid text
 * produces, stands for itself as an id.) What begins equally in this form is the same text with the same added tokens.
 */
#ifndef SWL_CHAT_CANON_H
#define SWL_CHAT_CANON_H

#include <swiftlet/swiftlet.h>

#include "text/sbuf.h"

typedef struct swl_canon {
    swl_sbuf bytes;
    uint32_t *end; /* [n] bytes up to the end of each token */
    int32_t n, cap;
} swl_canon;

void swl_canon_deinit(swl_canon *c);
/* Makes the form that of ids[0..n), whose first `keep` tokens it has already. */
swl_status swl_canon_set(swl_canon *c, const swl_tokenizer *t, const int32_t *ids, int32_t n, int32_t keep,
                         swl_error *err);
bool swl_canon_is_added(const swl_tokenizer *t, int32_t id);

/* How much of a prompt is in `have`: its first *n_prompt tokens are the first *n_have tokens there. With `loose` the
 * tokens may differ where the text is the same, up to the border of an added token, behind which both go on by
 * themselves. */
void swl_canon_match(const swl_canon *have, const int32_t *have_ids, const swl_canon *prompt, const int32_t *prompt_ids,
                     const swl_tokenizer *t, bool loose, int32_t *n_have, int32_t *n_prompt);

#endif
