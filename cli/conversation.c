/* conversation.c: messages, answers to them, and where they are kept. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "output.h"

swl_status conversation_clear(conversation *c, swl_error *err)
{
    char *text;
    swl_status st = system_message(&c->a, &text, err);

    if (st)
        return st;
    swl_chat_truncate(c->chat, 0);
    c->is_warned = false;
    if (text)
        st = swl_chat_add(c->chat, "system", text, err);
    free(text);
    return st;
}

static json_t *messages_of(const conversation *c)
{
    char *text = swl_chat_messages(c->chat);
    json_t *list = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;

    swl_free(text);
    return list;
}

static swl_status add_messages(swl_chat *chat, const json_t *list, swl_error *err)
{
    swl_status st = list ? SWL_OK : fail(err, SWL_E_NOMEM, "out of memory");

    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        char *text = json_dumps(json_array_get(list, i), JSON_COMPACT);

        st = text ? swl_chat_add_json(chat, text, err) : fail(err, SWL_E_NOMEM, "out of memory");
        free(text);
    }
    return st;
}

static bool has_role(const json_t *message, const char *role)
{
    const char *text = json_string_value(json_object_get(message, "role"));

    return text && !strcmp(text, role);
}

swl_status conversation_set_system(conversation *c, const char *text, swl_error *err)
{
    json_t *list = messages_of(c);
    swl_status st;

    if (has_role(json_array_get(list, 0), "system"))
        json_array_remove(list, 0);
    if (list && *text)
        json_array_insert_new(list, 0, json_pack("{s:s, s:s}", "role", "system", "content", text));
    if (list)
        swl_chat_truncate(c->chat, 0);
    st = add_messages(c->chat, list, err);
    json_decref(list);
    return st;
}

int32_t conversation_last(const conversation *c, const char *role, char **content)
{
    json_t *list = messages_of(c);
    int32_t i = (int32_t)json_array_size(list) - 1;

    while (i >= 0 && !has_role(json_array_get(list, (size_t)i), role))
        i--;
    if (content) {
        const char *text = json_string_value(json_object_get(json_array_get(list, (size_t)(i < 0 ? 0 : i)), "content"));

        *content = i >= 0 && text ? strdup(text) : NULL;
    }
    json_decref(list);
    return i;
}

static swl_status open_engine(conversation *c, swl_error *err)
{
    swl_status st = engine_open_chat(&c->e, &c->a, err);

    if (!st)
        st = swl_chat_create(&c->chat, c->e.engine, err);
    return st ? st : answer_init(&c->answer, &c->a, &c->e, false, err);
}

static swl_status close_engine(conversation *c, swl_status st, swl_error *err)
{
    answer_free(&c->answer);
    swl_chat_free(c->chat);
    c->chat = NULL;
    st = engine_close(&c->e, st, err);
    c->e = (engine){0};
    return st;
}

swl_status conversation_open(conversation *c, const arguments *a, swl_error *err)
{
    char path[PLACE_PATH_MAX];
    swl_status st = SWL_OK;

    *c = (conversation){.a = *a};
    if (opt_text(a, OPT_SAVE)) /* a name that cannot be one is better known before the answer than after it */
        st = session_path(path, opt_text(a, OPT_SAVE), err);
    if (!st)
        st = open_engine(c, err);
    if (st)
        return st;
    return opt_text(a, OPT_RESUME) ? conversation_load(c, opt_text(a, OPT_RESUME), err) : conversation_clear(c, err);
}

swl_status conversation_close(conversation *c, swl_status st, swl_error *err)
{
    st = close_engine(c, st, err);
    free(c->attached);
    for (int i = 0; i < OPT_COUNT; i++)
        free(c->typed[i]);
    return st;
}

swl_status conversation_switch(conversation *c, const char *model, swl_error *err)
{
    option_value before = c->a.values[OPT_MODEL];
    json_t *list = messages_of(c);
    swl_error again;
    swl_status st, opened;

    c->a.values[OPT_MODEL] = (option_value){.origin = FROM_TYPED, .set = true, .text = model};
    st = close_engine(c, SWL_OK, err); /* first: two models may not fit in the memory */
    if (!st)
        st = opened = open_engine(c, err);
    if (st) {
        close_engine(c, st, &again);
        c->a.values[OPT_MODEL] = before;
        opened = open_engine(c, &again);
        if (opened) {
            *err = again;
            json_decref(list);
            return opened;
        }
    }
    opened = add_messages(c->chat, list, &again);
    json_decref(list);
    if (opened)
        *err = again;
    return st ? st : opened;
}

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

/* Stopped before the first word. */
static bool nothing_said(const conversation *c)
{
    return c->answer.finish == SWL_FINISH_CANCELLED && !c->answer.text.n && !c->answer.reasoning.n;
}

static void note_context(conversation *c)
{
    int used = answer_context(&c->answer);

    if (opt_on(&c->a, OPT_QUIET) || nothing_said(c))
        return;
    if (c->answer.finish == SWL_FINISH_CONTEXT)
        note("the context is full: /clear begins a new conversation, /undo takes back the last exchange, --ctx makes room for "
             "longer ones");
    else if (c->answer.finish == SWL_FINISH_LENGTH && c->answer.usage.n_generated)
        note("stopped after --max-tokens");
    if (used >= 80 && !c->is_warned && c->answer.finish != SWL_FINISH_CONTEXT)
        note("%d %% of the context are used; /clear begins a new conversation, --ctx makes room for longer ones", used);
    c->is_warned = used >= 80;
}

swl_status conversation_answer(conversation *c, swl_error *err)
{
    int32_t n_before = swl_chat_n_messages(c->chat);
    swl_status st = answer_chat(&c->answer, c->chat, err);

    if (st) {
        swl_chat_truncate(c->chat, n_before);
        return st;
    }
    if (nothing_said(c))
        swl_chat_truncate(c->chat, n_before);
    if (opt_on(&c->a, OPT_JSON))
        out_json(answer_json(&c->answer));
    else if (!nothing_said(c) || c->is_typed || stdout_is_terminal())
        out_text("\n", 1);
    note_context(c);
    answer_stats(&c->answer, false);
    memset(&c->unsaved, 0, sizeof c->unsaved);
    if (opt_text(&c->a, OPT_SAVE) && conversation_save(c, opt_text(&c->a, OPT_SAVE), &c->unsaved) && c->is_typed)
        report_error(&c->unsaved, false, opt_on(&c->a, OPT_VERBOSE));
    return SWL_OK;
}

swl_status conversation_turn(conversation *c, const char *text, swl_error *err)
{
    int32_t n_before = swl_chat_n_messages(c->chat);
    swl_status st = engine_check_size(&c->e, text, strlen(text), err);

    if (!st)
        st = swl_chat_add(c->chat, "user", text, err);
    if (!st)
        st = conversation_answer(c, err);
    if (st || nothing_said(c))
        swl_chat_truncate(c->chat, n_before);
    return st;
}

/* ---- sessions --------------------------------------------------------------------------------------------------------- */

swl_status session_path(char dst[PLACE_PATH_MAX], const char *name, swl_error *err)
{
    char file[256];

    if (!*name || name[0] == '.' || strchr(name, '/') || snprintf(file, sizeof file, "sessions/%s.chat", name) >= (int)sizeof file)
        return fail(err, SWL_E_ARG, "\"%s\" cannot be the name of a conversation: no slash, no dot at the beginning, at most 200 "
                    "bytes", name);
    return place_path(dst, PLACE_STATE, file, err);
}

swl_status conversation_save(conversation *c, const char *name, swl_error *err)
{
    char path[PLACE_PATH_MAX];
    swl_status st = session_path(path, name, err);

    if (st)
        return st;
    place_make_parents(path);
    return swl_chat_save(c->chat, path, err);
}

swl_status conversation_load(conversation *c, const char *name, swl_error *err)
{
    char path[PLACE_PATH_MAX];
    bool state_kept = true;
    swl_status st = session_path(path, name, err);

    if (!st)
        st = swl_chat_load(c->chat, path, &state_kept, err);
    if (st == SWL_E_NOT_FOUND)
        st = fail(err, SWL_E_NOT_FOUND, "no conversation was saved as %s (%s); /sessions in a chat lists them", name, path);
    if (!st && !state_kept && !opt_on(&c->a, OPT_QUIET))
        note("what %s keeps beside its messages is of another model or program, or damaged; the messages will be read again",
             name);
    return st;
}
