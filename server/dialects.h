/* dialects.h: what each dialect offers to the table of routes, and what they share. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "job.h"

extern const srv_encoder srv_chat_encoder, srv_responses_encoder, srv_messages_encoder, srv_completions_encoder,
    srv_ollama_encoder;

bool srv_chat_prepare(srv_job *j, srv_error *e);
bool srv_responses_prepare(srv_job *j, srv_error *e);
bool srv_responses_count(srv_job *j, srv_error *e);
bool srv_messages_prepare(srv_job *j, srv_error *e);
bool srv_messages_count(srv_job *j, srv_error *e);
bool srv_completions_prepare(srv_job *j, srv_error *e);
bool srv_ollama_chat(srv_job *j, srv_error *e);
bool srv_ollama_generate(srv_job *j, srv_error *e);
bool srv_ollama_show(srv_job *j, srv_error *e);
void srv_ollama_version(srv_conn *c);
void srv_ollama_tags(srv_conn *c);
void srv_ollama_ps(srv_conn *c);
void srv_ollama_pull(srv_conn *c);
void srv_lm_studio_models(srv_conn *c);
/* The time as Ollama writes it. */
void srv_ollama_date(char *to, size_t size);

bool srv_ask_chat(srv_job *j, srv_error *e);
bool srv_ask_messages(srv_job *j, srv_error *e);
bool srv_ask_tools(srv_job *j, const srv_json *tools, srv_error *e);
bool srv_ask_tool_choice(srv_job *j, const srv_json *choice, srv_error *e);

/* A token with its log probability and the likeliest, as Chat Completions and Responses have it. */
void srv_put_token(srv_text *t, const srv_job *j, const srv_note *n);
void srv_chat_fault(srv_job *j, const srv_error *e);
/* The place of a call among those of its answer, from 0. */
int32_t srv_call_index(const srv_choice *c, const srv_item *it);

#endif
