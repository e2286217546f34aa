/*
 * answer.h: one answer, from prompt ids to text on standard output: printing, stop texts, Ctrl-C, progress, figures.
 * Shared by generate and chat.
 */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include <jansson.h>

#include "engine.h"
#include "input.h"

typedef struct answer {
    const arguments *a;
    engine *e;
    swl_sampling sampling;
    bool show;                /* print the text as it comes */
    bool whole;               /* prompts are whole conversations; what the session has of them is not run again */

    char *text;               /* NUL-terminated */
    size_t n_text, n_text_max, n_shown;
    id_list ids;              /* generated tokens */
    int32_t n_ids_kept;       /* those whose text stands before a stop text */
    bool stopped_by_text, out_of_memory;
    swl_generate_result result;
    swl_model_stats before;
    double begin, first_token_seconds, progress_at;
} answer;

void answer_free(answer *w);

/* Runs the prompt and writes the answer. An interruption is no error: result.finish says SWL_FINISH_CANCELLED, and
 * *state_lost whether the session must be reset. */
swl_status answer_run(answer *w, const int32_t *prompt, int32_t n_prompt, bool *state_lost, swl_error *err);

/* One line on standard error, as --stats and the terminal say. */
void answer_stats(const answer *w);
/* The answer and its figures. */
json_t *answer_json(const answer *w);

#endif
