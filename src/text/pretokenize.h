/* pretokenize.h: cutting normalised text into the pieces that byte-pair merging never crosses. */
#ifndef SWL_TEXT_PRETOKENIZE_H
#define SWL_TEXT_PRETOKENIZE_H

#include "base/status.h"

typedef struct swl_splitter swl_splitter; /* one compiled pattern; shared by threads */

/* The splitter for a pattern as tokenizer.json writes it. Exactly two are known; SWL_E_UNSUPPORTED shows any other. */
swl_status swl_splitter_create(swl_splitter **out, const char *pattern, const char *path, swl_error *err);
void swl_splitter_free(swl_splitter *s); /* NULL is allowed */

/* One thread's walk over one text: what a match needs besides the pattern. */
typedef struct swl_split {
    const swl_splitter *splitter;
    void *match_data, *match_context;
} swl_split;

/* swl_split_deinit also after a failed init. */
swl_status swl_split_init(swl_split *w, const swl_splitter *s, swl_error *err);
void swl_split_deinit(swl_split *w);

/* The length of the piece that begins at text[at], at < n_bytes; at least one character. The text is well-formed UTF-8
 * and ends where the stretch between two added tokens ends. */
swl_status swl_split_next(swl_split *w, const uint8_t *text, size_t n_bytes, size_t at, size_t *n_piece,
                          swl_error *err);

#endif
