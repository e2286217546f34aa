/* chat_dialogue.h: conversations as a client keeps them, and what a run without a past makes of them. */
#ifndef SWL_TESTS_CHAT_DIALOGUE_H
#define SWL_TESTS_CHAT_DIALOGUE_H

#include <unistd.h>

#include "base/file.h"
#include "chat_fixture.h"

static fixture cold; /* answers without a past */

static inline int set_up(void **state)
{
    (void)state;
    cold = fixture_open(1);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    fixture_close(&cold);
    return 0;
}

static inline char *template_file(const char *name, const char *form)
{
    static char path[64];
    char source[512], *text;
    size_t n;
    FILE *out;

    snprintf(source, sizeof source, "%s%s", TEMPLATES, name);
    assert_int_equal(swl_file_load(&text, &n, source, 1 << 20, NULL), SWL_OK);
    snprintf(path, sizeof path, "/tmp/swl-template-%d-%s", (int)getpid(), form);
    out = fopen(path, "w");
    fprintf(out, "{%%- set form = '%s' %%}%s", form, text);
    fclose(out);
    swl_free(text);
    return path;
}

static inline fixture open_form(int32_t n_sessions, const char *name, const char *form, bool strip)
{
    swl_engine_options eo;
    fixture f;

    swl_engine_options_init(&eo);
    eo.template_path = template_file(name, form);
    eo.strip_thinking = strip;
    f = fixture_open_with(n_sessions, 0, &eo);
    unlink(eo.template_path);
    return f;
}

static inline json_t *begin_messages(const char *system)
{
    json_t *list = json_array();

    if (system)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", system));
    return list;
}

static inline void add_user(json_t *list, const char *text)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", text));
}

static inline void add_answer(json_t *list, result *r, bool with_reasoning)
{
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", result_text(r));

    if (with_reasoning && r->reasoning.n)
        json_object_set_new(m, "reasoning_content", json_string(result_reasoning(r)));
    if (r->n_calls)
        json_object_set_new(m, "tool_calls", json_pack("[{s:s, s:s, s:{s:s, s:s}}]", "id", r->call_id, "type", "function",
                                                       "function", "name", r->call_name, "arguments", r->call_args));
    json_array_append_new(list, m);
}

static inline void ask_list(const fixture *f, result *r, const json_t *list, swl_request_options o)
{
    char *text = json_dumps(list, 0);

    o.messages = text;
    ask(f, r, o);
    free(text);
}

/* What a run that never saw anything makes of the very tokens that the engine ran. */
static inline void assert_cold_run_agrees(result *r, swl_request_options o)
{
    swl_slot *slot = &cold.engine->slots[0];
    result c = {0};

    swl_session_reset(slot->session); /* as new */
    assert_int_equal(swl_slot_follow(cold.engine, slot, NULL), SWL_OK);

    o.messages = o.tools = o.template_vars = NULL;
    o.think = SWL_THINK_DEFAULT;
    o.ids = r->request->ids;
    o.n_ids = r->request->n_prompt;
    ask(&cold, &c, o);
    assert_int_equal(c.usage.n_cached, 0);
    assert_same_answer(r, &c);
    result_deinit(&c);
}

/* Position of the last <|im_end|> of an answer in the prompt: what comes from there on is new. So is the last token of an
 * answer that was cut: it was drawn and never run. */
static inline int32_t answer_end(const fixture *f, const result *r, bool cut)
{
    int32_t end = swl_tokenizer_special(f->tokenizer, "<|im_end|>"), i = r->request->n_prompt, n = 0;

    while (i > 0 && n < 2)
        n += r->request->ids[--i] == end;
    return i - cut;
}

#endif
