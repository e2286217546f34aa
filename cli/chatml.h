/*
 * chatml.h: the chat form of the model family, as token ids: <|im_start|>ROLE, text, <|im_end|>. What a user writes is
 * never read as a marker. Tools and thinking are not covered.
 */
#ifndef CLI_CHATML_H
#define CLI_CHATML_H

#include "input.h"

typedef struct chatml {
    const swl_tokenizer *tokenizer;
    bool empty_thought; /* the template opens an answer without thinking by an empty <think> block */
} chatml;

/* SWL_E_UNSUPPORTED when the tokenizer has no such markers. */
swl_status chatml_init(chatml *c, const swl_tokenizer *t, const char *dir, swl_error *err);
/* A whole message; white space around the text goes, as in the templates. */
swl_status chatml_message(const chatml *c, id_list *to, const char *role, const char *text, swl_error *err);
/* What stands before an answer that is to be generated. */
swl_status chatml_open_answer(const chatml *c, id_list *to, swl_error *err);
/* An earlier answer, from the tokens that were generated: without its thoughts and surrounding white space. */
swl_status chatml_answer(const chatml *c, id_list *to, const int32_t *ids, int32_t n, swl_error *err);

#endif
