/* generate.c: swiftlet generate: one text continued, or one question answered with --chat. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
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

/* The newline that ends a file or what echo prints is not part of the text to continue. */
static void drop_final_newline(char *text, size_t *n)
{
    if (*n && text[*n - 1] == '\n')
        text[--*n] = 0;
    if (*n && text[*n - 1] == '\r')
        text[--*n] = 0;
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
    if (w->finish == SWL_FINISH_CONTEXT && !opt_on(w->a, OPT_QUIET))
        note("the context is full: --ctx makes room for longer texts");
    answer_stats(w, false);
}

/* A place where the state cannot be written is better known before the answer than after it. */
static swl_status check_save_path(const char *path, swl_error *err)
{
    const char *slash = strrchr(path, '/');
    char dir[4096] = ".";

    if (slash && (size_t)(slash - path) < sizeof dir - 2)
        snprintf(dir, sizeof dir, "%.*s/.", (int)(slash - path), path); /* of a file: not a directory */
    if (!access(dir, W_OK | X_OK))
        return SWL_OK;
    fail(err, errno == ENOENT || errno == ENOTDIR ? SWL_E_NOT_FOUND : SWL_E_IO, "the state cannot be written to %s: %s", path,
         strerror(errno));
    snprintf(err->file, sizeof err->file, "%s", path);
    return err->code;
}

/* A text as it is, or ids. */
static swl_status with_engine(answer *w, const char *text, size_t n, const id_list *ids, swl_error *err)
{
    swl_request_options o;

    if (text && strlen(text) != n)
        return fail(err, SWL_E_ARG, "the prompt holds a zero byte at offset %zu", strlen(text));
    swl_request_options_init(&o);
    o.text = text;
    o.ids = text ? NULL : ids->ids;
    o.n_ids = text ? 0 : ids->n;
    return answer_run(w, &o, err);
}

/* In the model's chat format, as a conversation of one turn. */
static swl_status with_chat(answer *w, const char *text, swl_error *err)
{
    char *system = NULL;
    swl_chat *c = NULL;
    swl_status st = system_message(w->a, &system, err);

    if (!st)
        st = swl_chat_create(&c, w->e->engine, err);
    if (!st && system)
        st = swl_chat_add(c, "system", system, err);
    if (!st)
        st = swl_chat_add(c, "user", text, err);
    if (!st)
        st = answer_chat(w, c, err);
    swl_chat_free(c);
    free(system);
    return st;
}

/* With a state that is read or written: the session alone, without an engine. */
static swl_status with_session(answer *w, const char *text, size_t n, const id_list *ids, swl_error *err)
{
    const arguments *a = w->a;
    int32_t *own = NULL;
    int64_t n_own = 0;
    swl_status st = SWL_OK;

    if (a->values[OPT_LOAD_STATE].set)
        st = swl_session_load(w->e->session, opt_text(a, OPT_LOAD_STATE), err);
    if (!st && text)
        st = swl_tokenizer_encode(w->e->tokenizer, text, n, 0, &own, &n_own, err);
    if (!st && n_own > INT32_MAX)
        st = fail(err, SWL_E_ARG, "the prompt is too long");
    if (!st)
        st = answer_session(w, text ? own : ids->ids, text ? (int32_t)n_own : ids->n, err);
    swl_free(own);
    if (!st && w->finish != SWL_FINISH_CANCELLED && a->values[OPT_SAVE_STATE].set)
        st = swl_session_save(w->e->session, opt_text(a, OPT_SAVE_STATE), err);
    return st;
}

/* What a bare session cannot do. */
static swl_status check_session(const arguments *a, const char *why, swl_error *err)
{
    static const option_id not[] = {OPT_CHAT, OPT_STOP, OPT_JSON_SCHEMA, OPT_LOGPROBS};

    for (int i = 0; i < 4; i++) {
        if (a->values[not[i]].origin > FROM_BUILTIN)
            return fail(err, SWL_E_ARG, "--%s cannot be used %s", option_rows[not[i]].name, why);
    }
    return SWL_OK;
}

static swl_status check_options(const arguments *a, const char *text, swl_error *err)
{
    bool chat = opt_on(a, OPT_CHAT);

    if ((a->values[OPT_SYSTEM].origin >= FROM_OPTION || a->values[OPT_SYSTEM_FILE].origin >= FROM_OPTION) && !chat)
        return fail(err, SWL_E_ARG, "--system needs --chat");
    if (chat && !text)
        return fail(err, SWL_E_ARG, "--chat needs a text, not --ids");
    if (a->values[OPT_LOGPROBS].set && !opt_on(a, OPT_JSON))
        return fail(err, SWL_E_ARG, "--logprobs needs --json");
    if (a->values[OPT_SAVE_STATE].set)
        return check_save_path(opt_text(a, OPT_SAVE_STATE), err);
    return SWL_OK;
}

/* An engine needs a tokenizer; ids can do without. */
static swl_status open_for(engine *e, const arguments *a, const char *text, swl_error *err)
{
    bool state = a->values[OPT_SAVE_STATE].set || a->values[OPT_LOAD_STATE].set;
    swl_status st = state ? check_session(a, "with a saved state", err) : SWL_OK;

    if (st)
        return st;
    if (state)
        return engine_open_session(e, a, text != NULL, err);
    st = engine_open_chat(e, a, err);
    if (st != SWL_E_NOT_FOUND || text || !e->model)
        return st;
    st = check_session(a, "without a tokenizer", err);
    return st ? st : swl_session_create(&e->session, e->model, err);
}

static swl_status generate(answer *w, const char *text, size_t n, const id_list *ids, swl_error *err)
{
    swl_status st;

    if (text ? !n && !opt_on(w->a, OPT_CHAT) : !ids->n)
        return fail(err, SWL_E_ARG, "the prompt is empty%s", w->a->values[OPT_LOAD_STATE].set ?
                    ": a state has what was read, not what comes next, so that it goes on only with something to read" : "");
    st = text ? engine_check_size(w->e, text, n, err) : SWL_OK;
    if (st)
        return st;
    if (w->e->session)
        st = with_session(w, text, n, ids, err);
    else if (opt_on(w->a, OPT_CHAT))
        st = with_chat(w, text, err);
    else
        st = with_engine(w, text, n, ids, err);
    if (st)
        return st;
    show_result(w);
    return w->finish == SWL_FINISH_CANCELLED ? fail(err, SWL_E_CANCELLED, "%s", "") : SWL_OK; /* what there was is printed */
}

swl_status run_generate(const arguments *a, swl_error *err)
{
    engine e = {0};
    answer w = {0};
    id_list ids = {0};
    char *text;
    size_t n;
    swl_status st = prompt_text(a, &text, &n, err);

    if (!st && text && !a->values[OPT_PROMPT].set)
        drop_final_newline(text, &n);
    if (!st)
        st = check_options(a, text, err);
    if (!st && !text)
        st = id_list_parse(&ids, opt_text(a, OPT_IDS), err);
    if (!st)
        st = open_for(&e, a, text, err);
    if (!st)
        st = answer_init(&w, a, &e, true, err);
    if (!st)
        st = generate(&w, text, n, &ids, err);
    free(text);
    id_list_free(&ids);
    answer_free(&w);
    return engine_close(&e, st, err);
}
