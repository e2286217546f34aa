/* What a request can ask for: log probabilities, bias, penalties, bans, stop strings, limits, an end to reasoning. */
#include "chat_fixture.h"

static const char question[] = "[{\"role\":\"user\",\"content\":\"Tell me a story about a dog.\"}]";
static const char weather[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Get the weather in a city.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]";

/* Rows of logits for ids[0..n), from a session of its own. */
static float *logits_of(const fixture *f, const int32_t *ids, int32_t n)
{
    float *rows = calloc((size_t)n * (size_t)f->model->config->vocab, sizeof *rows);
    swl_session *s;

    assert_int_equal(swl_session_create(&s, f->model, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, ids, n, SWL_LOGITS_ALL, rows, NULL), SWL_OK);
    swl_session_free(s);
    return rows;
}

static double log_softmax(const float *row, int32_t n, int32_t id)
{
    double sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum += exp((double)row[i] - row[id]);
    return -log(sum);
}

/* Prompt and answer, one after the other. */
static int32_t *whole(const result *r, int32_t *n)
{
    int32_t *ids = calloc((size_t)(r->usage.n_prompt + r->n_tokens), sizeof *ids);

    memcpy(ids, swl_request_prompt(r->request), (size_t)r->usage.n_prompt * sizeof *ids);
    memcpy(ids + r->usage.n_prompt, r->ids, (size_t)r->n_tokens * sizeof *ids);
    *n = r->usage.n_prompt + r->n_tokens;
    return ids;
}

static void log_probabilities_are_the_raw_logits(void **state)
{
    fixture f = fixture_open(1);
    int32_t vocab = f.model->config->vocab, n, n_prompt;
    swl_request_options o = ask_options(question);
    result r = {0};
    int32_t *ids;
    float *rows;

    (void)state;
    o.n_top = 5;
    o.n_max = 10;
    o.sampling.temperature = 1.5f;
    o.sampling.presence_penalty = 1;
    o.prompt_logprobs = true;
    for (int again = 0; again < 2; again++) { /* nothing of a scored prompt is taken from earlier */
        ask(&f, &r, o);
        n_prompt = r.usage.n_prompt;
        assert_int_equal(r.usage.n_cached, 0);
        assert_int_equal(r.n_prompt_tokens, n_prompt);
        assert_true(isnan(r.prompt_logprobs[0]));
        ids = whole(&r, &n);
        rows = logits_of(&f, ids, n);
        for (int32_t i = 1; i < n_prompt; i++)
            assert_float_equal(r.prompt_logprobs[i], log_softmax(rows + (i - 1) * vocab, vocab, ids[i]), 1e-4);
        for (int32_t i = 0; i < r.n_tokens; i++) {
            const float *row = rows + (n_prompt + i - 1) * vocab;

            assert_float_equal(r.logprobs[i], log_softmax(row, vocab, r.ids[i]), 1e-4);
            for (int k = 0; k < 5; k++) {
                int32_t better = 0;

                for (int32_t j = 0; j < vocab; j++)
                    better += row[j] > row[r.top[i][k].id];
                assert_int_equal(better, k);
                assert_float_equal(r.top[i][k].logprob, log_softmax(row, vocab, r.top[i][k].id), 1e-4);
            }
        }
        free(ids);
        free(rows);
        result_deinit(&r);
    }
    fixture_close(&f);
}

static int32_t argmax(const float *row, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

/* The greedy answer under bias and penalties, from raw logits and their definitions. */
static void penalties_follow_their_definitions(void **state)
{
    fixture f = fixture_open(1);
    int32_t vocab = f.model->config->vocab, n, n_tokens = swl_tokenizer_n_tokens(f.tokenizer);
    swl_request_options o = ask_options(question);
    swl_logit_bias bias[2];
    int changed = 0;

    (void)state;
    o.ignore_stop = true;
    o.n_max = 24;
    for (int k = 0; k < 5; k++) {
        swl_sampling *s = &o.sampling;
        result r = {0};
        float *rows;
        int32_t *ids;

        swl_sampling_init(s);
        s->presence_penalty = k == 1 ? 6 : 0;
        s->frequency_penalty = k == 2 ? 4 : 0;
        s->repetition_penalty = k >= 3 ? 2.0f : 1;
        s->repeat_last_n = k == 4 ? 6 : -1;
        bias[0] = (swl_logit_bias){300, 2.5f};
        bias[1] = (swl_logit_bias){310, -100};
        o.bias = bias;
        o.n_bias = 2;
        ask(&f, &r, o);
        ids = whole(&r, &n);
        rows = logits_of(&f, ids, n);
        for (int32_t i = 0; i < r.n_tokens; i++) {
            float *row = rows + (r.usage.n_prompt + i - 1) * vocab;
            int32_t end = r.usage.n_prompt + i, first = k == 4 ? end - 6 : 0, raw = argmax(row, n_tokens);

            row[300] += 2.5f;
            row[310] -= 100;
            for (int32_t id = 0; id < vocab && k >= 3; id++)
                for (int32_t j = first; j < end; j++)
                    if (ids[j] == id) {
                        row[id] = row[id] > 0 ? row[id] / 2.0f : row[id] * 2.0f;
                        break;
                    }
            for (int32_t id = 0; id < vocab; id++) {
                int32_t count = 0;

                for (int32_t j = 0; j < i; j++)
                    count += r.ids[j] == id;
                row[id] -= (count ? s->presence_penalty : 0) + (float)count * s->frequency_penalty;
            }
            assert_int_equal(r.ids[i], argmax(row, n_tokens));
            changed += argmax(row, n_tokens) != raw;
        }
        free(ids);
        free(rows);
        result_deinit(&r);
    }
    assert_true(changed > 5);
    fixture_close(&f);
}

static void a_minimum_holds_the_end_back(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"Hello there!\"}]");
    result r = {0};
    int32_t n;

    (void)state;
    o.n_max = 60;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    n = r.usage.n_generated;
    result_deinit(&r);
    o.n_min = n + 5;
    ask(&f, &r, o);
    assert_true(r.usage.n_generated >= n + 5);
    result_deinit(&r);
    o.n_min = 0;
    o.ignore_stop = true;
    ask(&f, &r, o);
    assert_int_equal(r.usage.n_generated, 60);
    assert_int_equal(r.finish, SWL_FINISH_LENGTH);
    result_deinit(&r);
    fixture_close(&f);
}

static void stop_strings_end_the_answer(void **state)
{
    static const char *const stop[] = {"zzz", " help "};
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"Hello there!\"}]");
    result r = {0};

    (void)state;
    o.stop = stop;
    o.n_stop = 2;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    assert_string_equal(r.stop, " help ");
    assert_string_equal(result_text(&r), "Hello! How can I");
    result_deinit(&r);
    fixture_close(&f);
}

static void the_prompt_alone_can_be_run(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options(question);
    result r = {0};

    (void)state;
    o.n_max = 0;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_LENGTH);
    assert_int_equal(r.usage.n_generated, 0);
    result_deinit(&r);
    o.n_max = 3;
    ask(&f, &r, o);
    assert_int_equal(r.usage.n_cached, r.usage.n_prompt); /* its logits too */
    assert_int_equal(r.usage.n_generated, 3);
    result_deinit(&r);
    fixture_close(&f);
}

static void the_context_ends_the_answer(void **state)
{
    fixture f = fixture_open_ctx(1, 0, 100, NULL);
    int32_t ctx = f.model->ctx_tokens, *ids = calloc((size_t)ctx + 1, sizeof *ids);
    swl_request_options o;
    swl_request *q;
    swl_error err;
    result r = {0};

    (void)state;
    swl_request_options_init(&o);
    o.ids = ids;
    o.n_ids = ctx - 2;
    o.ignore_stop = true;
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_CONTEXT);
    assert_int_equal(r.usage.n_generated, 3);
    result_deinit(&r);
    o.n_ids = ctx + 1;
    assert_int_equal(swl_request_create(&q, f.engine, &o, &err), SWL_E_BUDGET);
    assert_non_null(q);
    assert_int_equal(swl_request_n_prompt(q), ctx + 1);
    assert_int_equal(swl_engine_submit(f.engine, q, &err), SWL_E_ARG);
    swl_request_free(q);
    free(ids);
    fixture_close(&f);
}

/* ---- reasoning and calls ---- */

static void reasoning_ends_when_its_tokens_are_spent(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options(question);
    result r = {0}, again = {0};

    (void)state;
    o.think = SWL_THINK_ON;
    o.n_reasoning_max = 3;
    o.n_max = 30;
    ask(&f, &r, o);
    assert_int_equal(r.usage.n_reasoning, 5); /* and a newline, and the tag itself */
    assert_true(r.reasoning.n > 0 && r.text.n > 0);
    assert_int_equal(r.ids[4], swl_tokenizer_special(f.tokenizer, "</think>"));
    ask(&f, &again, o);
    assert_same_answer(&r, &again);
    result_deinit(&r);
    result_deinit(&again);

    submit(&f, &r, o); /* by word, before it begins */
    swl_request_end_reasoning(r.request);
    run_until_idle(&f);
    assert_int_equal(r.reasoning.n, 0);
    assert_true(r.text.n > 0);
    result_deinit(&r);
    fixture_close(&f);
}

static void calls_can_be_forbidden_and_counted(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"}]");
    result r = {0};

    (void)state;
    o.tools = weather;
    o.n_max = 60;
    ask(&f, &r, o);
    assert_int_equal(r.n_calls, 1);
    result_deinit(&r);
    o.no_calls = true;
    ask(&f, &r, o);
    assert_int_equal(r.n_calls, 0);
    assert_true(r.text.n > 0);
    assert_int_equal(r.usage.n_cached, r.usage.n_prompt);
    for (int i = 0; i < r.n_tokens; i++)
        assert_int_not_equal(r.ids[i], swl_tokenizer_special(f.tokenizer, "<tool_call>"));
    result_deinit(&r);
    o.no_calls = false;
    o.one_call = true;
    o.ignore_stop = true;
    ask(&f, &r, o);
    assert_int_equal(r.n_calls, 1);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    assert_int_equal(r.ids[r.n_tokens - 1], swl_tokenizer_special(f.tokenizer, "</tool_call>"));
    result_deinit(&r);
    fixture_close(&f);
}

static void raw_answers_are_text(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"}]");
    result r = {0};

    (void)state;
    o.tools = weather;
    o.n_max = 60;
    o.raw = true;
    ask(&f, &r, o);
    assert_int_equal(r.n_calls, 0);
    assert_non_null(strstr(result_text(&r), "<tool_call>\n<function=get_weather>"));
    result_deinit(&r);
    fixture_close(&f);
}

/* ---- constraints ---- */

static void answers_can_be_held_to_json(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"kind\":{\"enum\":"
        "[\"dog\",\"cat\"]},\"legs\":{\"type\":\"integer\"}},\"required\":[\"name\",\"kind\",\"legs\"],"
        "\"additionalProperties\":false}";
    fixture f = fixture_open(1);
    swl_request_options o = ask_options(question);

    (void)state;
    o.n_max = 200;
    for (int think = 0; think < 2; think++)
        for (int hot = 0; hot < 2; hot++) {
            result r = {0};
            json_t *v;

            o.think = think ? SWL_THINK_ON : SWL_THINK_OFF;
            o.n_reasoning_max = 20;
            o.sampling.temperature = hot ? 1.2f : 0;
            o.sampling.seed = 7;
            o.constrain = SWL_CONSTRAIN_SCHEMA;
            o.constraint = schema;
            ask(&f, &r, o);
            assert_int_equal(r.finish, SWL_FINISH_STOP);
            assert_int_equal(r.reasoning.n > 0, think);
            v = json_loads(result_text(&r), 0, NULL);
            if (!v)
                fail_msg("%s", result_text(&r));
            assert_true(json_is_string(json_object_get(v, "name")) && json_is_integer(json_object_get(v, "legs")));
            assert_int_equal(json_object_size(v), 3);
            json_decref(v);
            result_deinit(&r);
        }
    fixture_close(&f);
}

static void answers_can_be_one_of_a_list(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options(question);
    result r = {0};

    (void)state;
    o.constrain = SWL_CONSTRAIN_CHOICE;
    o.constraint = "[\"yes\", \"no, never\"]";
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    assert_true(!strcmp(result_text(&r), "yes") || !strcmp(result_text(&r), "no, never"));
    result_deinit(&r);
    fixture_close(&f);
}

static void a_call_can_be_required(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options("[{\"role\":\"user\",\"content\":\"Paris is a city in France.\"}]");
    result r = {0};
    json_t *v;

    (void)state;
    o.tools = weather;
    o.n_max = 120;
    o.one_call = true;
    o.constrain = SWL_CONSTRAIN_TOOL;
    o.constraint = "get_weather";
    ask(&f, &r, o);
    assert_int_equal(r.finish, SWL_FINISH_STOP);
    assert_int_equal(r.n_calls, 1);
    assert_string_equal(r.call_name, "get_weather");
    v = json_loads(r.call_args, 0, NULL);
    assert_true(json_is_string(json_object_get(v, "city")));
    json_decref(v);
    result_deinit(&r);
    fixture_close(&f);
}

static void constraints_that_cannot_be_kept_are_refused(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o = ask_options(question);
    swl_request *r;
    swl_error err;

    (void)state;
    o.constrain = SWL_CONSTRAIN_SCHEMA;
    o.constraint = "{\"type\":\"object\",\"unevaluatedProperties\":{\"not\":{}}}";
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "unevaluatedProperties"));
    o.constraint = "{";
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.constraint = NULL;
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.constrain = SWL_CONSTRAIN_TOOL;
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    assert_null(r);
    fixture_close(&f);
}

static void options_out_of_range_are_refused(void **state)
{
    fixture f = fixture_open(1);
    swl_request_options o;
    swl_logit_bias bias = {1 << 30, 1};
    swl_request *r;
    swl_error err;
    int32_t id = 1 << 30;

    (void)state;
    swl_request_options_init(&o);
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.messages = question;
    o.text = "x";
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.text = NULL;
    o.n_top = 21;
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.n_top = 0;
    o.bias = &bias;
    o.n_bias = 1;
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.n_bias = 0;
    o.sampling.temperature = NAN;
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    o.sampling.temperature = 0;
    o.messages = NULL;
    o.ids = &id;
    o.n_ids = 1;
    assert_int_equal(swl_request_create(&r, f.engine, &o, &err), SWL_E_ARG);
    assert_null(r);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probabilities_are_the_raw_logits),
        cmocka_unit_test(penalties_follow_their_definitions),
        cmocka_unit_test(a_minimum_holds_the_end_back),
        cmocka_unit_test(stop_strings_end_the_answer),
        cmocka_unit_test(the_prompt_alone_can_be_run),
        cmocka_unit_test(the_context_ends_the_answer),
        cmocka_unit_test(reasoning_ends_when_its_tokens_are_spent),
        cmocka_unit_test(calls_can_be_forbidden_and_counted),
        cmocka_unit_test(raw_answers_are_text),
        cmocka_unit_test(answers_can_be_held_to_json),
        cmocka_unit_test(answers_can_be_one_of_a_list),
        cmocka_unit_test(a_call_can_be_required),
        cmocka_unit_test(constraints_that_cannot_be_kept_are_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
