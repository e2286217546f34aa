/* dialects.h: what each dialect offers to the table of routes, and what they share. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "job.h"

extern const srv_encoder srv_chat_encoder, srv_responses_encoder, srv_messages_encoder, srv_completions_encoder;

bool srv_chat_prepare(srv_job *j, srv_error *e);
bool srv_responses_prepare(srv_job *j, srv_error *e);
bool srv_responses_count(srv_job *j, srv_error *e);
bool srv_messages_prepare(srv_job *j, srv_error *e);
bool srv_messages_count(srv_job *j, srv_error *e);
bool srv_completions_prepare(srv_job *j, srv_error *e);

bool srv_ask_chat(srv_job *j, srv_error *e);
bool srv_ask_messages(srv_job *j, srv_error *e);
bool srv_ask_tool_choice(srv_job *j, const srv_json *choice, srv_error *e);

/* A token with its log probability and the likeliest, as Chat Completions and Responses have it. */
void srv_put_token(srv_text *t, const srv_job *j, const srv_note *n);
void srv_chat_fault(srv_job *j, const srv_error *e);
/* The place of a call among those of its answer, from 0. */
int32_t srv_call_index(const srv_choice *c, const srv_item *it);

#endif
