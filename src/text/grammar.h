/*
 * grammar.h: what an answer has to be, as a set of allowed next tokens: JSON that a schema allows, one of a list of strings, a
 * call of a tool. A grammar is made once for a request, over the bytes of a tokenizer's vocabulary, and is read-only; a state
 * walks through it token by token.
 */
#ifndef SWL_TEXT_GRAMMAR_H
#define SWL_TEXT_GRAMMAR_H

#include <jansson.h>
#include <swiftlet/swiftlet.h>

typedef struct swl_grammar swl_grammar;
typedef struct swl_grammar_state swl_grammar_state;

typedef enum swl_call_syntax { SWL_CALL_JSON, SWL_CALL_XML } swl_call_syntax;

/* The tokenizer is borrowed and must outlive the grammar. Errors: SWL_E_UNSUPPORTED names a keyword of the schema, with its
 * JSON pointer, that this grammar cannot enforce; SWL_E_ARG what is not a schema or asks for nothing that can be written;
 * SWL_E_BUDGET what is larger than the limits. */
swl_status swl_grammar_json(swl_grammar **out, const swl_tokenizer *t, swl_error *err); /* any JSON object */
swl_status swl_grammar_schema(swl_grammar **out, const swl_tokenizer *t, const json_t *schema, swl_error *err);
swl_status swl_grammar_choice(swl_grammar **out, const swl_tokenizer *t, const json_t *strings, swl_error *err);
/* <tool_call> ... </tool_call> of one of the tools (array of {"type":"function","function":{...}}), or of the one called
 * `name` (NULL: any), with arguments that its schema allows. Several calls may follow each other unless `one`. */
swl_status swl_grammar_tool(swl_grammar **out, const swl_tokenizer *t, const json_t *tools, const char *name,
                            swl_call_syntax syntax, bool one, swl_error *err);
void swl_grammar_free(swl_grammar *g); /* after its states; NULL is allowed */

swl_status swl_grammar_begin(swl_grammar_state **out, const swl_grammar *g, swl_error *err);
void swl_grammar_end(swl_grammar_state *s); /* NULL is allowed */

/* Whether the token may come next. Stop tokens: only where the text may end (swl_grammar_complete). Cheap: a draw that is
 * allowed needs no mask. */
bool swl_grammar_allows(const swl_grammar_state *s, int32_t id);
/* bits[id / 32] >> id % 32 & 1 for all ids below swl_tokenizer_n_tokens, like swl_grammar_allows. At least one is set. */
void swl_grammar_mask(swl_grammar_state *s, uint32_t *bits);
/* Goes on by a token that is allowed (SWL_E_ARG otherwise; the state stays). */
swl_status swl_grammar_accept(swl_grammar_state *s, int32_t id, swl_error *err);
/* The text may end here. `closed`: it must, nothing but white space could follow. */
bool swl_grammar_complete(const swl_grammar_state *s, bool *closed);

#endif
