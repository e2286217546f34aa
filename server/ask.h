/*
 * ask.h: what the dialects' requests have in common: fields by type, sampling, messages, tools. Every reader leaves its
 * target alone when the field is absent or null, and names the field (param) when it is of the wrong type.
 */
#ifndef SERVER_ASK_H
#define SERVER_ASK_H

#include "job.h"

bool srv_ask_bool(const srv_json *o, const char *name, const char *param, bool *out, srv_error *e);
bool srv_ask_int(const srv_json *o, const char *name, const char *param, int64_t min, int64_t max, int64_t *out, srv_error *e);
bool srv_ask_real(const srv_json *o, const char *name, const char *param, double min, double max, float *out, srv_error *e);
/* In the document's memory. */
bool srv_ask_string(srv_job *j, const srv_json *o, const char *name, const char *param, const char **out, srv_error *e);
/* Is it of that type, or absent? */
bool srv_ask_type(const srv_json *o, const char *name, const char *param, srv_json_type type, const srv_json **out, srv_error *e);

/* temperature, top_p, top_k, min_p, seed, penalties; stop under `stop_name`; logit_bias. */
bool srv_ask_sampling(srv_job *j, const srv_json *o, const char *stop_name, srv_error *e);
bool srv_ask_stop(srv_job *j, const srv_json *stop, const char *param, srv_error *e);
/* How many tokens; the first of the names that is there. -1: as many as there is room for. */
bool srv_ask_max_tokens(srv_job *j, const srv_json *o, const char *const *names, int n_names, srv_error *e);
/* reasoning_effort, reasoning, enable_thinking, think, thinking, chat_template_kwargs, budgets. */
bool srv_ask_thinking(srv_job *j, const srv_json *o, srv_error *e);
/* A level by its name. */
swl_think srv_think_level(srv_job *j, const srv_json *s);
/* text, json_object, json_schema; `schema` is where a schema stands in it. */
bool srv_ask_format(srv_job *j, const srv_json *format, const char *param, srv_error *e);
bool srv_ask_schema(srv_job *j, const srv_json *schema, const char *param, srv_error *e);
/* A model's name: repeated in answers. */
bool srv_ask_model(srv_job *j, const srv_json *o, srv_error *e);

/* Arguments given as text are parsed further on: what they hold counts as values of the body. */
bool srv_weigh_arguments(srv_job *j, const srv_json *arguments, const char *param, srv_error *e);

/* ---- messages on their way to the engine ---- */

/* Collects them as Chat Completions has them: system text first, in one message. */
typedef struct srv_messages {
    srv_job *job;
    srv_text system;   /* inside of a JSON string */
    srv_text rest;     /* messages with commas */
    srv_text out;
    int n, n_user;
    bool has_system;
} srv_messages;

/* `content`: the inside of a JSON string. */
void srv_messages_system(srv_messages *m, const char *content, size_t n);
/* Opens a message: {"role":...,"content":"..." and more members may follow; then close. */
void srv_messages_open(srv_messages *m, const char *role, const char *content, size_t n);
void srv_messages_close(srv_messages *m);
/* Puts all together in job->ask.messages; frees. */
bool srv_messages_finish(srv_messages *m, srv_error *e);
void srv_messages_free(srv_messages *m);
/* The text of a string, or of text parts, appended as the inside of a JSON string with `between` between parts. */
bool srv_content(srv_text *to, const srv_json *content, const char *between, const char *param, srv_error *e);

/* ---- tools ---- */

/* Adds {"type":"function","function":{...}} to ask.tools. */
void srv_tools_add(srv_job *j, const srv_json *name, const srv_json *description, const srv_json *parameters, const srv_json *strict);
void srv_tools_add_raw(srv_job *j, const srv_json *tool);
void srv_tools_finish(srv_job *j);
/* Is there a function of that name (a string) among them? */
bool srv_tools_has(srv_job *j, const srv_json *name);
bool srv_ask_named_tool(srv_job *j, const srv_json *name, const char *param, srv_error *e);

#endif
