/*
 * seal.h: marks inside texts on their way through a chat template. A seal is a run of Unicode noncharacters that nobody
 * can guess, drawn anew for every request; it goes through the template like any text and is found again in what was
 * rendered:
 *
 *     BREAK       inside the spelling of an added token that somebody typed: it stays text
 *     REASONING   the reasoning of an earlier answer whose tokens are known
 *     CONTENT     its text and calls
 *     NUMBER      digits that a JSON parser cannot hold
 *     END         where a message that is to be continued ends
 */
#ifndef SWL_CHAT_SEAL_H
#define SWL_CHAT_SEAL_H

#include "base/status.h"
#include "text/sbuf.h"

typedef enum swl_seal_kind {
    SWL_SEAL_BREAK,
    SWL_SEAL_REASONING,
    SWL_SEAL_CONTENT,
    SWL_SEAL_NUMBER,
    SWL_SEAL_END,
    SWL_SEAL_KINDS
} swl_seal_kind;

enum { SWL_SEAL_UNITS = 16 };

typedef struct swl_seal {
    uint8_t key[SWL_SEAL_UNITS]; /* 0 to 15: U+FDD0 to U+FDDF */
} swl_seal;

void swl_seal_init(swl_seal *s);
/* Appends a seal; `body` (no noncharacters) goes with it. */
void swl_seal_put(const swl_seal *s, swl_seal_kind kind, const char *body, size_t n_body, swl_sbuf *out);
/* Whether a seal begins at text: its length, or 0. The body is borrowed from text. */
size_t swl_seal_at(const swl_seal *s, const char *text, size_t n, swl_seal_kind *kind, const char **body,
                   size_t *n_body);

#endif
