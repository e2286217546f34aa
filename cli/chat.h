/* chat.h: a conversation with a model, for turns that are known beforehand (chat.c) and for typed ones (chat_typed.c). */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "answer.h"
#include "line.h"
#include "places.h"

typedef struct conversation {
    arguments a;              /* a copy, which /set changes */
    engine e;
    swl_chat *chat;
    answer answer;
    char *attached;           /* /read: goes with the next message; free */
    char *typed[OPT_COUNT];   /* values of /set, /system, /think, /model; free */
    bool is_warned;           /* that the context is nearly full */
    bool is_typed;            /* somebody reads what is said meanwhile */
    swl_error unsaved;        /* why the last --save failed; code SWL_OK: it did not */
} conversation;

/* With the system message, or what --resume names. */
swl_status conversation_open(conversation *c, const arguments *a, swl_error *err);
/* Returns `st`, or what else went wrong. */
swl_status conversation_close(conversation *c, swl_status st, swl_error *err);

/* Only the system message is left, the one that the options say now. */
swl_status conversation_clear(conversation *c, swl_error *err);
/* A system message in front of the messages that there are. */
swl_status conversation_set_system(conversation *c, const char *text, swl_error *err);
/* Another model for the same messages; if it cannot be opened, the old one again. */
swl_status conversation_switch(conversation *c, const char *model, swl_error *err);

/* One exchange. When it fails, or is stopped before the first word, the conversation is as before it. */
swl_status conversation_turn(conversation *c, const char *text, swl_error *err);
/* Answers what is there; an answer that fails leaves nothing. */
swl_status conversation_answer(conversation *c, swl_error *err);
/* The index of the last message of a role, -1 when there is none; *content (may be NULL): free. */
int32_t conversation_last(const conversation *c, const char *role, char **content);

/* Where a conversation of that name is kept. */
swl_status session_path(char dst[PLACE_PATH_MAX], const char *name, swl_error *err);
swl_status conversation_save(conversation *c, const char *name, swl_error *err);
swl_status conversation_load(conversation *c, const char *name, swl_error *err);

/* A line that begins with "/". *leave: the conversation is over. What is returned is fatal; other faults are reported. */
swl_status typed_command(conversation *c, const char *line, bool *leave, swl_error *err);
/* What could stand at the cursor: for line_open. */
void typed_complete(void *arg, const char *text, size_t cursor, line_candidates *out);

/* Typed turns until the end. */
swl_status chat_typed(conversation *c, swl_error *err);

#endif
