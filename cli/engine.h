/* engine.h: a model with what is needed to run it, opened as the options say. */
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "options.h"

typedef struct engine {
    const char *dir;
    swl_tokenizer *tokenizer; /* NULL when the directory has none and the command can do without */
    swl_model *model;
    swl_session *session;     /* engine_open_session */
    swl_engine *engine;       /* engine_open_chat */
    swl_model_info info;
} engine;

/* The model's directory, and in *n_used how many operands named it (0 or 1). --model is stronger than an operand, an operand
 * than SWIFTLET_MODEL. Names of installed models become their directory; what is neither stays as it was typed. Without any
 * name it is the only installed model, or NULL. Static storage. */
const char *model_dir(const arguments *a, int *n_used);

/* Is there such a directory? SWL_E_NOT_FOUND says what to do; SWL_E_ARG when dir is NULL and several models are installed. */
swl_status model_check(const char *dir, swl_error *err);

/* What the options ask of the library, after model_check. */
swl_status model_options(swl_model_options *o, const arguments *a, const char *dir, swl_error *err);

enum { REMARK_BYTES = 200 };
/* True: --memory is more than the machine has or the control group of the process may have, which is no reason to refuse it. */
bool memory_remark(char *to, size_t size, const arguments *a);

/* Model, tokenizer and chat engine. */
swl_status engine_open_chat(engine *e, const arguments *a, swl_error *err);
/* Model, tokenizer (NULL where there is none, unless it is needed), and one conversation without an engine around it. */
swl_status engine_open_session(engine *e, const arguments *a, bool needs_tokenizer, swl_error *err);
/* Only the model: for commands that ask it about itself. */
swl_status engine_open_model(engine *e, const arguments *a, swl_error *err);
/* For figures only: nothing is loaded. */
swl_status engine_describe(engine *e, const arguments *a, swl_error *err);
/* For prompts only: nothing is loaded but the tokenizer. */
swl_status engine_describe_chat(engine *e, const arguments *a, swl_error *err);
/* Refuses a text of so many bytes that no context of this size holds it, before memory and time go into it. White space around it
 * does not count, which templates drop. */
swl_status engine_check_size(const engine *e, const char *text, size_t n, swl_error *err);
/* Half-open is allowed. Returns `st`, or why the record of the routes is not complete. */
swl_status engine_close(engine *e, swl_status st, swl_error *err);

/* Short, to be typed again after --seed. */
uint64_t random_seed(void);
/* What to draw tokens by: option, else the model's generation_config.json, else built in. Without any sampling option
 * and with `greedy_unless_asked` it is the argmax. A seed that nobody named is random. */
swl_status sampling_from(swl_sampling *p, const arguments *a, const char *dir, bool greedy_unless_asked,
                         swl_error *err);

#endif
