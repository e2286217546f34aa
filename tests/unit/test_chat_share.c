/* Several requests on one engine: they share passes and the past, and none is disturbed by another. */
#define _GNU_SOURCE
#include "chat_dialogue.h"

static void conversations_do_not_disturb_each_other(void **state)
{
    static const char *const first[] = {"Hello there!", "Tell me a story about a dog.", "What is 2 + 2?"};
    fixture f = open_form(4, "qwen3_5.jinja", "3.6", false);
    json_t *lists[3];
    bool cut[3] = {false, false, false};
    result r[3];
    swl_request_options o = ask_options(NULL);

    (void)state;
    memset(r, 0, sizeof r);
    o.n_max = 24;
    o.think = SWL_THINK_OFF;
    o.sampling.temperature = 1;
    for (int i = 0; i < 3; i++)
        add_user(lists[i] = begin_messages("You are a friendly assistant."), first[i]);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 3; i++) {
            char *text = json_dumps(lists[i], 0);

            o.messages = text;
            o.sampling.seed = (uint64_t)i;
            submit(&f, &r[i], o);
            o.messages = NULL;
            free(text);
        }
        run_until_idle(&f);
        for (int i = 0; i < 3; i++) {
            assert_true(r[i].done && !r[i].failed);
            if (turn)
                assert_int_equal(r[i].usage.n_cached, answer_end(&f, &r[i], cut[i]));
            cut[i] = r[i].finish == SWL_FINISH_LENGTH;
            o.sampling.seed = (uint64_t)i;
            assert_cold_run_agrees(&r[i], o);
            add_answer(lists[i], &r[i], true);
            add_user(lists[i], "Why?");
            result_deinit(&r[i]);
        }
    }
    for (int i = 0; i < 3; i++)
        json_decref(lists[i]);
    fixture_close(&f);
}

/* A title request shares the system message with a conversation; in the one slot that is left it does no harm. */
static void a_side_request_leaves_the_conversation_alone(void **state)
{
    fixture f = open_form(2, "qwen3_5.jinja", "3.6", false);
    json_t *list = begin_messages("You are a friendly assistant who answers in short sentences."), *side;
    swl_request_options o = ask_options(NULL);
    result r = {0};
    int32_t system_end;
    bool cut;

    (void)state;
    o.think = SWL_THINK_OFF;
    add_user(list, "Tell me a story about a cat.");
    ask_list(&f, &r, list, o);
    system_end = r.request->border_system;
    assert_true(system_end > 5);
    cut = r.finish == SWL_FINISH_LENGTH;
    add_answer(list, &r, true);
    result_deinit(&r);
    for (int i = 0; i < 3; i++) {
        side = begin_messages("You are a friendly assistant who answers in short sentences.");
        add_user(side, i ? "Give this chat a title." : "Name three colors.");
        ask_list(&f, &r, side, o);
        assert_int_equal(r.usage.n_cached, i < 2 ? system_end : r.usage.n_prompt);
        result_deinit(&r);
        json_decref(side);
        add_user(list, "And then?");
        ask_list(&f, &r, list, o);
        assert_int_equal(r.usage.n_cached, answer_end(&f, &r, cut));
        cut = r.finish == SWL_FINISH_LENGTH;
        assert_cold_run_agrees(&r, o);
        add_answer(list, &r, true);
        result_deinit(&r);
    }
    json_decref(list);
    fixture_close(&f);
}

/* A long prompt and an answer that is being given share the passes: the prompt in small parts, the answer between them. */
static void a_long_prompt_lets_others_talk(void **state)
{
    enum { LONG = 1100 };
    fixture f = fixture_open(2);
    swl_request_options o, p;
    result talk = {0}, read = {0}, alone = {0};
    int32_t *ids = calloc(LONG, sizeof *ids), before = -1;
    bool busy = true;

    (void)state;
    for (int i = 0; i < LONG; i++)
        ids[i] = 300 + i * 7 % 2000;
    o = ask_options("[{\"role\":\"user\",\"content\":\"Tell me a story about a dog.\"}]");
    o.n_max = 30;
    o.ignore_stop = true;
    submit(&f, &talk, o);
    for (int i = 0; i < 3; i++)
        assert_int_equal(swl_engine_step(f.engine, &busy, NULL), SWL_OK);
    p = ask_options(NULL);
    p.ids = ids;
    p.n_ids = LONG;
    p.n_max = 5;
    p.ignore_stop = true;
    submit(&f, &read, p);
    while (busy) {
        before = !read.n_tokens ? talk.n_tokens : before;
        assert_int_equal(swl_engine_step(f.engine, &busy, NULL), SWL_OK);
    }
    assert_int_equal(read.n_progress, (LONG + SWL_SHARE_TOKENS - 1) / SWL_SHARE_TOKENS);
    assert_true(before >= read.n_progress); /* a token for each part */
    assert_cold_run_agrees(&talk, o);
    o = p;
    o.prompt_logprobs = true; /* computed anew, in other parts */
    ask(&f, &alone, o);
    assert_same_answer(&read, &alone);
    result_deinit(&talk);
    result_deinit(&read);
    result_deinit(&alone);
    free(ids);
    fixture_close(&f);
}

/* Two long prompts take turns; neither waits for the other's end. */
static void prompts_take_turns(void **state)
{
    enum { LONG = 1000 };
    fixture f = fixture_open_with(2, 128, NULL);
    int32_t *ids = calloc(LONG, sizeof *ids);
    swl_request_options o = ask_options(NULL);
    result a = {0}, b = {0};
    bool busy = true;

    (void)state;
    o.ids = ids;
    o.n_ids = LONG;
    o.n_max = 1;
    submit(&f, &a, o);
    ids[0] = 1;
    submit(&f, &b, o);
    while (busy) {
        assert_int_equal(swl_engine_step(f.engine, &busy, NULL), SWL_OK);
        assert_true(abs(a.n_progress - b.n_progress) <= 1);
    }
    assert_true(a.done && b.done);
    result_deinit(&a);
    result_deinit(&b);
    free(ids);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_do_not_disturb_each_other),
        cmocka_unit_test(a_side_request_leaves_the_conversation_alone),
        cmocka_unit_test(a_long_prompt_lets_others_talk),
        cmocka_unit_test(prompts_take_turns),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
