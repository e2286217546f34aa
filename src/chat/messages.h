/*
 * messages.h: messages as clients send them, made into the one form that chat templates and the rest of the engine
 * expect:
 *
 *     [system], then user, assistant and tool messages, at least one user's among them
 *     content             a string, always
 *     reasoning_content   a string or absent
 *     tool_calls          a list of {"id", "type", "function": {"name", "arguments"}}, or absent
 */
#ifndef SWL_CHAT_MESSAGES_H
#define SWL_CHAT_MESSAGES_H

#include <jansson.h>

#include "chat/seal.h"

enum { SWL_MESSAGES_MAX = 10000, SWL_TOOLS_MAX = 512 };

/* *out is a new list; what it shares with `in` nobody may change. Errors are SWL_E_ARG and begin with the place:
 * "messages[2].content: ...". xml: arguments must be objects; else those that came as text stay as they were spelled.
 */
swl_status swl_messages_normalise(json_t **out, const json_t *in, bool xml, const swl_seal *seal, swl_error *err);
/* A list of at most SWL_TOOLS_MAX objects with names. */
swl_status swl_tools_check(const json_t *tools, swl_error *err);

/* The white space that templates trim, off both ends. */
void swl_trim(const char **text, size_t *n);

#endif
