/* The chat engine on the demo model: events, reuse between turns and conversations, shared passes, cancelling. */
#define _GNU_SOURCE
#include "chat_fixture.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static fixture cold; /* answers without a past */

static int set_up(void **state)
{
    (void)state;
    cold = fixture_open(1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_close(&cold);
    return 0;
}

static void an_answer_comes_as_events(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"Hello there!\"}]");
    result r = {0};

    (void)state;
    o.n_max = -1;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    assert_true(r.text.n > 0);
    assert_int_equal(r.reasoning.n, 0);
    assert_int_equal(r.usage.n_prompt, swl_request_n_prompt(r.request));
    assert_int_equal(r.usage.n_generated, r.n_tokens);
    assert_int_equal(r.usage.n_cached, 0);
    assert_int_equal(r.start_total, r.usage.n_prompt);
    assert_string_equal(swl_request_text(r.request),
                        "<|im_start|>user\nHello there!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    swl_sbuf_putc(&r.events, 0);
    assert_memory_equal(r.events.p, "SPK", 3);
    assert_int_equal(r.events.p[r.events.n - 2], 'F');
    assert_string_equal(result_text(&r), "Hello! How can I help you today?");
    result_deinit(&r);
    fixture_close(&f);
}

/* ---- conversations as a client keeps them ---- */

static const char weather[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Get the weather in a city.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]";

static json_t *begin_messages(const char *system)
{
    json_t *list = json_array();

    if (system)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", system));
    return list;
}

static void add_user(json_t *list, const char *text)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", text));
}

static void add_answer(json_t *list, result *r, bool with_reasoning)
{
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", result_text(r));

    if (with_reasoning && r->reasoning.n)
        json_object_set_new(m, "reasoning_content", json_string(result_reasoning(r)));
    if (r->n_calls)
        json_object_set_new(m, "tool_calls", json_pack("[{s:s, s:s, s:{s:s, s:s}}]", "id", r->call_id, "type", "function",
                                                       "function", "name", r->call_name, "arguments", r->call_args));
    json_array_append_new(list, m);
}

static void ask_list(const fixture *f, result *r, const json_t *list, swl_request_options o)
{
    char *text = json_dumps(list, 0);

    o.messages = text;
    ask(f, r, o);
    free(text);
}

/* What a run that never saw anything makes of the very tokens that the engine ran. */
static void assert_cold_run_agrees(result *r, swl_request_options o)
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
static int32_t answer_end(const fixture *f, const result *r, bool cut)
{
    int32_t end = swl_tokenizer_special(f->tokenizer, "<|im_end|>"), i = r->request->n_prompt, n = 0;

    while (i > 0 && n < 2)
        n += r->request->ids[--i] == end;
    return i - cut;
}

typedef struct dialogue {
    const char *name, *template_path, *tools, *questions[4];
    swl_think think;
    bool send_reasoning;
} dialogue;

/* Each turn after the first computes what is behind the last answer, and answers as a cold run does. */
static void hold(const fixture *f, const dialogue *d)
{
    json_t *list = begin_messages("You are a friendly assistant.");
    swl_request_options o = ask_options(NULL);

    o.tools = d->tools;
    o.think = d->think;
    o.n_max = 60;
    for (int i = 0, cut = 0; i < 4 && d->questions[i]; i++) {
        result r = {0};

        add_user(list, d->questions[i]);
        ask_list(f, &r, list, o);
        if (i && r.usage.n_cached != answer_end(f, &r, cut))
            fail_msg("%s, turn %d: %d of %d tokens reused, expected %d", d->name, i + 1, r.usage.n_cached, r.usage.n_prompt,
                     answer_end(f, &r, cut));
        assert_cold_run_agrees(&r, o);
        cut = r.finish == SWL_FINISH_LENGTH;
        add_answer(list, &r, d->send_reasoning);
        result_deinit(&r);
    }
    json_decref(list);
}

static char *template_file(const char *name, const char *form)
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

static fixture open_form(int32_t n_sessions, const char *name, const char *form, bool strip)
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

static void turns_compute_only_what_is_new(void **state)
{
    static const dialogue plain = {"plain", .questions = {"Hello there!", "What is the capital of France?", "Thank you!"}};
    dialogue d = plain;
    fixture f = open_form(1, "qwen3_5.jinja", "3.6", false);

    (void)state;
    d.think = SWL_THINK_OFF;
    hold(&f, &d);
    d.name = "thinking, sent back";
    d.think = SWL_THINK_ON;
    d.send_reasoning = true;
    hold(&f, &d);
    d.name = "thinking, not sent back";
    d.send_reasoning = false;
    hold(&f, &d);
    fixture_close(&f);

    f = open_form(1, "qwen3_next.jinja", "instruct", false);
    d = plain;
    hold(&f, &d);
    fixture_close(&f);
}

/* ---- tool calls ---- */

/* The client writes the arguments its own way and leaves out the reasoning: the turn is still known token by token. */
static void a_call_comes_back_as_it_was_generated(void **state)
{
    fixture f = open_form(1, "qwen3_5.jinja", "3.5", false);
    json_t *list = begin_messages(NULL), *m, *call;
    swl_request_options o = ask_options(NULL);
    result r = {0};
    int32_t end;

    (void)state;
    o.tools = weather;
    o.think = SWL_THINK_ON;
    o.n_max = 80;
    add_user(list, "What is the weather in Paris?");
    ask_list(&f, &r, list, o);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    assert_int_equal(r.n_calls, 1);
    assert_string_equal(r.call_name, "get_weather");
    assert_string_equal(r.call_args, "{\"city\": \"Paris\"}");
    assert_true(r.reasoning.n > 0);
    assert_int_equal(strlen(r.call_id), 29);
    add_answer(list, &r, false);
    m = json_array_get(list, json_array_size(list) - 1);
    json_object_set_new(m, "content", json_null());
    call = json_array_get(json_object_get(m, "tool_calls"), 0);
    json_object_set_new(json_object_get(call, "function"), "arguments", json_string("{ \"city\":\"\\u0050aris\" }"));
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id", r.call_id, "content",
                                          "{\"temperature\": 21}"));
    result_deinit(&r);

    ask_list(&f, &r, list, o);
    end = answer_end(&f, &r, false);
    assert_int_equal(r.usage.n_cached, end);
    assert_cold_run_agrees(&r, o);
    result_deinit(&r);

    /* Other arguments are another call. */
    json_object_set_new(json_object_get(call, "function"), "arguments", json_string("{\"city\": \"Rome\"}"));
    ask_list(&f, &r, list, o);
    assert_true(r.usage.n_cached < end);
    assert_non_null(strstr(swl_request_text(r.request), "Rome"));
    result_deinit(&r);
    json_decref(list);
    fixture_close(&f);
}

/* ---- several at a time ---- */

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
    o.n_max = 40;
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

/* ---- cancelling ---- */

static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CANCEL_SECONDS 1.0
#else
#define CANCEL_SECONDS 0.1
#endif

typedef struct canceller {
    swl_request *request;
    _Atomic bool go;          /* the phase that is to be interrupted has begun */
    swl_event_kind after;
    double when;
    result r;
} canceller;

static bool note_phase(void *arg, const swl_event *e)
{
    canceller *c = arg;

    if (e->kind == c->after)
        atomic_store(&c->go, true);
    return result_on_event(&c->r, e);
}

static void *cancel_soon(void *arg)
{
    canceller *c = arg;

    while (!atomic_load(&c->go))
        usleep(1000);
    usleep(10000);
    c->when = seconds();
    swl_request_cancel(c->request);
    return NULL;
}

/* Seconds from the call to the end. */
static double cancel_in(const fixture *f, const int32_t *ids, int32_t n, swl_event_kind after)
{
    canceller *c = calloc(1, sizeof *c);
    swl_request_options o;
    pthread_t t;
    double took;

    swl_request_options_init(&o);
    o.ids = ids;
    o.n_ids = n;
    o.ignore_stop = o.logprobs = true;
    o.on_event = note_phase;
    o.arg = c;
    c->after = after;
    assert_int_equal(swl_request_create(&c->request, f->engine, &o, NULL), SWL_OK);
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, c), 0);
    assert_int_equal(swl_engine_submit(f->engine, c->request, NULL), SWL_OK);
    run_until_idle(f);
    took = seconds();
    pthread_join(t, NULL);
    took -= c->when;
    assert_int_equal(c->r.finish, SWL_FINISH_CANCELLED);
    assert_false(c->r.failed);
    assert_true(after == SWL_EVENT_TOKEN ? c->r.usage.n_generated > 0 : c->r.usage.n_generated == 0);
    swl_request_free(c->request);
    result_deinit(&c->r);
    free(c);
    return took;
}

/* The best of a few: the machine may be busy with something else. */
static void cancelling_takes_a_tenth_of_a_second(void **state)
{
    enum { LONG = 3500 };
    fixture f = fixture_open(1);
    int32_t *ids = calloc(LONG, sizeof *ids);
    swl_request_options o;
    result r = {0};

    (void)state;
    for (int i = 0; i < LONG; i++)
        ids[i] = i % 500;
    for (int phase = 0; phase < 2; phase++) {
        double best = 9;

        for (int i = 0; i < 3 && best > CANCEL_SECONDS; i++) {
            double took = phase ? cancel_in(&f, ids, 10, SWL_EVENT_TOKEN) : cancel_in(&f, ids, LONG, SWL_EVENT_START);

            best = took < best ? took : best;
        }
        if (best > CANCEL_SECONDS)
            fail_msg("phase %d: %.3f s", phase, best);
    }
    swl_request_options_init(&o); /* in line */
    o.ids = ids;
    o.n_ids = 10;
    submit(&f, &r, o);
    swl_request_cancel(r.request);
    run_until_idle(&f);
    assert_int_equal(r.finish, SWL_FINISH_CANCELLED);
    assert_int_equal(r.usage.n_prompt, 10);
    assert_int_equal(r.usage.n_cached, 0);
    result_deinit(&r);
    free(ids);
    fixture_close(&f);
}

/* What was computed of a prompt that was cancelled is there when it comes again. */
static void a_cancelled_prompt_goes_on_where_it_was(void **state)
{
    enum { LONG = 1800, PART = 128, PARTS = 11 };
    fixture f = fixture_open_with(1, PART, NULL);
    int32_t *ids = calloc(LONG, sizeof *ids);
    swl_request_options o = ask_options(NULL);
    result r = {.stop_after = 1 + PARTS};

    (void)state;
    o.ids = ids;
    o.n_ids = LONG;
    o.n_max = 2;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_CANCELLED);
    result_deinit(&r);
    ask(&f, &r, o);
    assert_true(r.usage.n_cached >= PARTS * PART - SWL_MARK_AFTER && r.usage.n_cached > 0);
    result_deinit(&r);
    free(ids);
    fixture_close(&f);
}

static void the_caller_cancels_by_its_answer_to_an_event(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"Tell me a story.\"}]");
    result r = {.stop_after = 8};

    (void)state;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_CANCELLED);
    assert_true(r.usage.n_generated > 0 && r.usage.n_generated < 10);
    result_deinit(&r);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_as_events),
        cmocka_unit_test(turns_compute_only_what_is_new),
        cmocka_unit_test(a_call_comes_back_as_it_was_generated),
        cmocka_unit_test(conversations_do_not_disturb_each_other),
        cmocka_unit_test(a_side_request_leaves_the_conversation_alone),
        cmocka_unit_test(a_long_prompt_lets_others_talk),
        cmocka_unit_test(prompts_take_turns),
        cmocka_unit_test(cancelling_takes_a_tenth_of_a_second),
        cmocka_unit_test(a_cancelled_prompt_goes_on_where_it_was),
        cmocka_unit_test(the_caller_cancels_by_its_answer_to_an_event),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
