/* generate.c: swiftlet generate: one text continued, or one question answered with --chat. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "chatml.h"
#include "commands.h"
#include "output.h"

/* Exactly one of -p, -f, --ids; without any of them standard input, unless that is a keyboard. *text stays NULL with
 * --ids. */
static swl_status prompt_text(const arguments *a, char **text, size_t *n, swl_error *err)
{
    bool by_text = a->values[OPT_PROMPT].set, by_file = a->values[OPT_FILE].set, by_ids = a->values[OPT_IDS].set;

    *text = NULL;
    *n = 0;
    if (by_text + by_file + by_ids > 1)
        return fail(err, SWL_E_ARG, "give only one of --prompt, --file and --ids");
    if (by_ids)
        return SWL_OK;
    if (by_file)
        return input_text(opt_text(a, OPT_FILE), text, n, err);
    if (!by_text && stdin_is_terminal())
        return fail(err, SWL_E_ARG, "nothing to continue: give --prompt TEXT, --file FILE or --ids A,B, or pipe a text in");
    if (!by_text)
        return input_text("-", text, n, err);
    *n = strlen(opt_text(a, OPT_PROMPT));
    *text = malloc(*n + 1);
    if (!*text)
        return fail(err, SWL_E_NOMEM, "out of memory");
    memcpy(*text, opt_text(a, OPT_PROMPT), *n + 1);
    return SWL_OK;
}

static swl_status chat_prompt(const engine *e, const arguments *a, const char *text, id_list *to, swl_error *err)
{
    const char *system = opt_text(a, OPT_SYSTEM);
    chatml c;
    swl_status st = chatml_init(&c, e->tokenizer, e->dir, err);

    if (!st && system)
        st = chatml_message(&c, to, "system", system, err);
    if (!st)
        st = chatml_message(&c, to, "user", text, err);
    return st ? st : chatml_open_answer(&c, to, err);
}

static swl_status plain_prompt(const engine *e, const char *text, size_t n, id_list *to, swl_error *err)
{
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    swl_status st = swl_tokenizer_encode(e->tokenizer, text, n, 0, &ids, &n_ids, err);

    if (!st)
        st = id_list_append(to, ids, n_ids, err);
    swl_free(ids);
    return st;
}

/* The newline that ends a file or what echo prints is not part of the text to continue. */
static void drop_final_newline(char *text, size_t *n)
{
    if (*n && text[*n - 1] == '\n')
        text[--*n] = 0;
    if (*n && text[*n - 1] == '\r')
        text[--*n] = 0;
}

static swl_status prompt_ids(const engine *e, const arguments *a, const char *text, size_t n, id_list *to,
                             swl_error *err)
{
    swl_status st;

    if (!text)
        st = id_list_parse(to, opt_text(a, OPT_IDS), err);
    else if (opt_on(a, OPT_CHAT))
        st = chat_prompt(e, a, text, to, err);
    else
        st = plain_prompt(e, text, n, to, err);
    if (!st && !to->n)
        st = fail(err, SWL_E_ARG, "the prompt is empty");
    return st;
}

/* Without a tokenizer the answer is the list of ids. */
static void show_ids(const answer *w)
{
    for (int32_t i = 0; i < w->ids.n; i++)
        out_printf("%s%d", i ? "," : "", w->ids.ids[i]);
}

static void show_result(const answer *w)
{
    if (opt_on(w->a, OPT_JSON)) {
        out_json(answer_json(w));
    } else {
        if (!w->e->tokenizer)
            show_ids(w);
        if (stdout_is_terminal())
            out_text("\n", 1);
    }
    answer_stats(w);
}

/* A place where the state cannot be written is better known before the answer than after it. */
static swl_status check_save_path(const char *path, swl_error *err)
{
    const char *slash = strrchr(path, '/');
    char dir[4096] = ".";

    if (slash && (size_t)(slash - path) < sizeof dir)
        snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (!access(dir, W_OK | X_OK))
        return SWL_OK;
    fail(err, SWL_E_NOT_FOUND, "the state cannot be written to %s: %s", path, strerror(errno));
    snprintf(err->file, sizeof err->file, "%s", path);
    return SWL_E_NOT_FOUND;
}

static swl_status generate(answer *w, const id_list *prompt, swl_error *err)
{
    const arguments *a = w->a;
    swl_status st = SWL_OK;
    bool state_lost;

    if (a->values[OPT_LOAD_STATE].set)
        st = swl_session_load(w->e->session, opt_text(a, OPT_LOAD_STATE), err);
    if (!st)
        st = answer_run(w, prompt->ids, prompt->n, &state_lost, err);
    if (st)
        return st;
    show_result(w);
    if (w->result.finish == SWL_FINISH_CANCELLED)
        return fail(err, SWL_E_CANCELLED, "%s", ""); /* what there was has been printed */
    if (a->values[OPT_SAVE_STATE].set)
        st = swl_session_save(w->e->session, opt_text(a, OPT_SAVE_STATE), err);
    return st;
}

swl_status run_generate(const arguments *a, swl_error *err)
{
    engine e = {0};
    answer w = {.a = a, .e = &e, .show = !opt_on(a, OPT_JSON)};
    id_list prompt = {0};
    char *text;
    size_t n;
    swl_status st = prompt_text(a, &text, &n, err);

    if (!st && text && !a->values[OPT_PROMPT].set)
        drop_final_newline(text, &n);

    if (!st && a->values[OPT_SYSTEM].origin == FROM_OPTION && !opt_on(a, OPT_CHAT))
        st = fail(err, SWL_E_ARG, "--system needs --chat");
    if (!st && a->values[OPT_SAVE_STATE].set)
        st = check_save_path(opt_text(a, OPT_SAVE_STATE), err);
    if (!st && opt_on(a, OPT_CHAT) && !text)
        st = fail(err, SWL_E_ARG, "--chat needs a text, not --ids");
    if (!st)
        st = engine_open(&e, a, text != NULL, err);
    if (!st)
        st = sampling_from(&w.sampling, a, e.dir, true, err);
    if (!st)
        st = prompt_ids(&e, a, text, n, &prompt, err);
    if (!st)
        st = generate(&w, &prompt, err);
    free(text);
    id_list_free(&prompt);
    answer_free(&w);
    return engine_close(&e, st, err);
}
