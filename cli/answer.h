/*
 * answer.h: one answer, from a prompt to text on standard output: printing, thinking, Ctrl-C, progress, figures. Shared by
 * generate and chat; what runs tells it of events, whether that is a conversation, a request, or a bare session.
 */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include <jansson.h>

#include "engine.h"
#include "input.h"

/* Text that grows; NUL-terminated once something was added. */
typedef struct text_buffer {
    char *p;
    size_t n, n_max;
} text_buffer;

typedef struct answer {
    const arguments *a;
    engine *e;
    swl_sampling sampling;
    char *schema;             /* of --json-schema; free */
    bool show;                /* print the text as it comes */

    text_buffer text, reasoning;
    id_list ids;              /* generated tokens, with --json */
    json_t *logprobs;         /* with --logprobs */
    swl_usage usage;
    swl_finish finish;
    swl_error error;          /* of FINISH */
    bool out_of_memory, folded, line_open;
    int32_t n_thoughts;
    swl_model_stats before;
    double begin, thinking_since, progress_at;
} answer;

/* Settings from the options; sampling as sampling_from has it. */
swl_status answer_init(answer *w, const arguments *a, engine *e, bool greedy_unless_asked, swl_error *err);
void answer_free(answer *w);

/* What --think says. */
swl_think think_from(const arguments *a);

/* Runs and writes the answer. An interruption is no error: finish says SWL_FINISH_CANCELLED. `prompt` has one of messages, text
 * and ids; everything else comes from the options. */
swl_status answer_run(answer *w, const swl_request_options *prompt, swl_error *err);
/* The answer to a conversation, which receives it as a message. */
swl_status answer_chat(answer *w, swl_chat *c, swl_error *err);
/* Ids to the engine's session, which keeps its state: no template, no engine, no tokenizer needed. */
swl_status answer_session(answer *w, const int32_t *ids, int32_t n, swl_error *err);

/* One line on standard error, as --stats and the terminal say; `asked`: in any case. */
void answer_stats(const answer *w, bool asked);
/* How much of the context is used, in percent. */
int answer_context(const answer *w);
/* The answer and its figures. */
json_t *answer_json(const answer *w);

#endif
