/*
 * call_value.h: what a parameter of a tool may be by the tool's JSON schema, and the text that a model wrote for it as
 * JSON. The XML form of tool calls writes every value as bare text; only the schema tells 5 from "5".
 */
#ifndef SWL_TEXT_CALL_VALUE_H
#define SWL_TEXT_CALL_VALUE_H

#include <stdint.h>

#include <jansson.h>

#include "text/sbuf.h"

/* What a schema allows: a set. Empty: nothing is known, so the text stays text. */
enum {
    SWL_KIND_STRING = 1,
    SWL_KIND_BOOLEAN = 2,
    SWL_KIND_INTEGER = 4,
    SWL_KIND_NUMBER = 8,
    SWL_KIND_ARRAY = 16,
    SWL_KIND_OBJECT = 32,
    SWL_KIND_UNION = 64, /* the schema offers a choice */
    SWL_KIND_NOT_TEXT = SWL_KIND_BOOLEAN | SWL_KIND_INTEGER | SWL_KIND_NUMBER | SWL_KIND_ARRAY | SWL_KIND_OBJECT
};

/* The parameters schema of the function `name` in a list of tools, as OpenAI's API has them ({"type": "function",
 * "function": {"name", "parameters"}}) or bare ({"name", "parameters" or "input_schema"}). *found: the tool exists. The
 * schema is borrowed, NULL when there is none. */
const json_t *swl_tool_parameters(const json_t *tools, const char *name, size_t n, bool *found);

/* The kinds of the property `key` of that schema (may be NULL). */
uint32_t swl_call_kinds(const json_t *parameters, const char *key, size_t n);

/* Appends the JSON of a whole value. The text "null" in any case is null, whatever the kinds. What does not read as one of
 * the kinds is a string. */
void swl_call_value_put(uint32_t kinds, const char *text, size_t n, swl_sbuf *out);

/* True when "null" in some case begins with the n bytes of text; exactly null when n is 4. */
bool swl_call_null_begins(const char *text, size_t n);

#endif
