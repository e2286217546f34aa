/*
 * turns.h: earlier answers token by token, found again by the ids of their calls or by the conversation that they
 * ended. Clients send answers back in other words: arguments in another spelling, reasoning left out, white space
 * trimmed. Whoever knows the tokens need not compute them again. A bounded number is kept, the ones used last.
 */
#ifndef SWL_CHAT_TURNS_H
#define SWL_CHAT_TURNS_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"
#include "text/answer.h"

enum { SWL_TRANSCRIPT_BYTES = 32, SWL_TURNS_MAX = 1024, SWL_TURN_IDS_MAX = 1 << 20 };

typedef struct swl_turn {
    int32_t refs;
    uint8_t transcript[SWL_TRANSCRIPT_BYTES]; /* of the conversation with it as the last message */
    swl_answer_start start;                   /* where it began */
    bool reasoned;                            /* it begins with reasoning */
    int32_t *ids, n;
    int32_t n_answer;       /* where its visible part begins, without white space; -1: within a token */
    char *reasoning, *text; /* trimmed, NUL-terminated */
    size_t n_reasoning, n_text;
    json_t *calls; /* [{"id", "name", "arguments" (text)}] */
} swl_turn;

typedef struct swl_turns {
    swl_turn *items[SWL_TURNS_MAX]; /* the last used one at the end */
    int32_t n;
    int64_t n_ids;
} swl_turns;

void swl_turns_deinit(swl_turns *t);
/* Takes the reference over. */
void swl_turns_add(swl_turns *t, swl_turn *turn);
/* The answer that message `m` (normalised) repeats, `transcript` being the conversation with it; a new reference, or
 * NULL. */
swl_turn *swl_turns_find(swl_turns *t, const json_t *m, const uint8_t transcript[SWL_TRANSCRIPT_BYTES]);
/* References are counted under the engine's lock. */
void swl_turn_release(swl_turn *turn);

/* turn_file.c */
json_t *swl_turn_to_json(const swl_turn *t);
/* Eight bytes that say what it is, the length, the text, and a CRC-32C of all that; behind what a file has so far. root NULL:
 * there was no memory for it. */
swl_status swl_json_frame_write(const json_t *root, const uint8_t kind[8], int fd, const char *path, swl_error *err);
/* An array of turns, likewise. */
swl_status swl_turns_write(const json_t *turns, int fd, const char *path, swl_error *err);
/* What stands from `at` to the end of a file of `size` bytes; SWL_E_NOT_FOUND: nothing. */
swl_status swl_turns_read(json_t **turns, int fd, const char *path, uint64_t at, uint64_t size, swl_error *err);

/* The transcript of a conversation and one more message. What counts is what a client shows: role, content, names and
 * arguments of calls; neither reasoning nor ids. */
swl_status swl_transcript_add(uint8_t transcript[SWL_TRANSCRIPT_BYTES], const json_t *m, swl_error *err);

#endif
