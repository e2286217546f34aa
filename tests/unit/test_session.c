/* Sessions on the tiny reference models: snapshots, refusals, batches of several conversations. */
#define _GNU_SOURCE
#include "case_fixture.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"

static float *run_all(swl_model *m, const int32_t *tokens, int32_t n)
{
    float *logits = calloc((size_t)n * (size_t)m->config->vocab, sizeof *logits);
    swl_session *s;

    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, tokens, n, SWL_LOGITS_ALL, logits, NULL), SWL_OK);
    swl_session_free(s);
    return logits;
}

static void a_saved_state_goes_on_to_the_bit(void **state)
{
    static const char *const names[] = {"next-a-mlx4", "q35moe-a-mlx4", "q35dense-a-mlx4g32"};
    char path[] = "/tmp/swl-snap-XXXXXX";
    size_t i;
    int exact, fd = mkstemp(path);

    (void)state;
    close(fd);
    for (i = 0; i < 3; i++)
        for (exact = 0; exact < 2; exact++) {
            swl_model *m = open_case(names[i], exact, 0, 2);
            size_t row = (size_t)m->config->vocab * sizeof(float);
            float *want = run_all(m, ids, N), *got = malloc(row * N);
            swl_session *a, *b;

            assert_int_equal(swl_session_create(&a, m, NULL), SWL_OK);
            assert_int_equal(swl_session_create(&b, m, NULL), SWL_OK);
            assert_int_equal(swl_session_eval(a, ids, 7, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
            assert_int_equal(swl_session_save(a, path, NULL), SWL_OK);
            assert_int_equal(swl_session_eval(b, ids + 3, 5, SWL_LOGITS_NONE, NULL, NULL), SWL_OK); /* must not matter */
            assert_int_equal(swl_session_load(b, path, NULL), SWL_OK);
            assert_int_equal(swl_session_n_tokens(b), 7);
            assert_int_equal(swl_session_eval(b, ids + 7, N - 7, SWL_LOGITS_ALL, got, NULL), SWL_OK);
            assert_memory_equal(got, want + 7 * m->config->vocab, row * (N - 7));
            swl_session_free(a);
            swl_session_free(b);
            free(want);
            free(got);
            swl_model_close(m);
        }
    unlink(path);
}

/* Puts the decays that wait into the matrices. */
static void fold_decays(swl_session *s)
{
    swl_state *t = s->state;
    uint64_t n = t->gain_bytes / 4, size = (t->delta_bytes - t->gain_bytes) / t->gain_bytes, i, j;

    for (i = 0; i < n; i++) {
        for (j = 0; j < size; j++)
            t->delta[i * size + j] *= t->delta_gain[i];
        t->delta_gain[i] = 1.0f;
    }
}

static size_t cut(char *data, size_t n, size_t at, size_t bytes)
{
    memmove(data + at, data + at + bytes, n - at - bytes);
    return n - bytes;
}

/* Makes the scales powers of two: then the vectors are float16 without rounding. */
static void round_scales(swl_session *s, int32_t n_tokens)
{
    const swl_model *m = s->model;
    int32_t plane, pos, h, e;

    for (plane = 0; plane < 2 * m->weights.n_attention; plane++)
        for (pos = 0; pos < n_tokens; pos++)
            for (h = 0; h < m->config->n_kv_heads; h++) {
                float *scale = swl_kv_at(m, s->state, plane, pos, h).scale + pos % SWL_KV_BLOCK;

                assert_true(*scale > 0.0f);
                frexpf(*scale, &e);
                *scale = ldexpf(1.0f, e);
            }
}

/* Records of keys and values, from `at` on, to float16 ones. */
static size_t to_float16(char *data, size_t n, size_t at, const swl_model *m, int32_t n_tokens)
{
    int32_t heads = m->config->n_kv_heads, dim = m->config->head_dim, record, i;
    size_t bytes = 2 * (size_t)(heads * dim);

    for (record = 0; record < 2 * m->weights.n_attention * n_tokens; record++) {
        for (i = 0; i < heads * dim; i++) {
            float scale;
            uint16_t half;
            int16_t q;

            memcpy(&scale, data + at + bytes + 4 * (size_t)(i / dim), 4);
            memcpy(&q, data + at + 2 * (size_t)i, 2);
            half = swl_f32_to_f16((float)q * scale);
            memcpy(data + at + 2 * (size_t)i, &half, 2);
        }
        at += bytes;
        n = cut(data, n, at, 4 * (size_t)heads);
    }
    return n;
}

/* Files of versions 1 and 2 have no gains: as this program's with gains of 1, cut out; and up to 3 no scales. */
static void older_snapshots_are_read(void **state)
{
    char path[] = "/tmp/swl-snap-XXXXXX";
    swl_model *m = open_case("next-a-mlx4", false, 0, 2);
    size_t row = (size_t)m->config->vocab * sizeof(float);
    float *want = malloc(row * N), *got = malloc(row * N);
    const int32_t mark = 6;
    int version, fd = mkstemp(path);

    (void)state;
    close(fd);
    for (version = 1; version <= 3; version++) {
        int n_marks = version > 1;
        swl_session *a, *b;
        const swl_state *t;
        uint64_t bytes;
        uint32_t crc;
        char *data;
        size_t n, at, conv, gains;

        assert_int_equal(swl_session_create(&a, m, NULL), SWL_OK);
        assert_int_equal(swl_session_create(&b, m, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(a, ids, mark, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
        assert_true(a->state->delta_gain[0] < 1.0f && a->state->delta_gain[0] > 0.0f);
        fold_decays(a);
        assert_int_equal(swl_session_mark(a, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(a, ids + mark, 3, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
        fold_decays(a);
        round_scales(a, mark + 3);
        fd = open(path, O_RDWR | O_TRUNC);
        assert_int_equal(swl_snapshot_write(a, mark + 3, &mark, n_marks, fd, path, NULL), SWL_OK);
        close(fd);
        assert_int_equal(swl_file_load(&data, &n, path, 1 << 30, NULL), SWL_OK);
        t = a->state;
        conv = (size_t)t->conv_bytes;
        gains = (size_t)(t->delta_bytes - t->gain_bytes);
        at = 56 + 4 * (size_t)(mark + 3 + n_marks) + conv + gains;
        n = to_float16(data, n, at + (size_t)t->gain_bytes, m, mark + 3);
        if (version == 2)
            n = cut(data, n, n - 4 - (size_t)t->gain_bytes, (size_t)t->gain_bytes);
        if (version < 3)
            n = cut(data, n, at, (size_t)t->gain_bytes);
        data[7] = (char)version;
        bytes = n;
        memcpy(data + 48, &bytes, 8);
        crc = swl_crc32c(0, data, n - 4);
        memcpy(data + n - 4, &crc, 4);
        assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
        swl_free(data);

        assert_int_equal(swl_session_eval(b, ids, 8, SWL_LOGITS_NONE, NULL, NULL), SWL_OK); /* must not matter */
        assert_int_equal(swl_session_mark(b, NULL), SWL_OK);
        assert_int_equal(swl_session_load(b, path, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(a, ids + 9, N - 9, SWL_LOGITS_ALL, want, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(b, ids + 9, N - 9, SWL_LOGITS_ALL, got, NULL), SWL_OK);
        assert_memory_equal(got, want, row * (N - 9));
        assert_int_equal(swl_session_rewind(b, 8), n_marks ? mark : 0);
        if (n_marks) {
            assert_int_equal(swl_session_rewind(a, 8), mark);
            assert_int_equal(swl_session_eval(a, ids + 9, N - 9, SWL_LOGITS_ALL, want, NULL), SWL_OK);
            assert_int_equal(swl_session_eval(b, ids + 9, N - 9, SWL_LOGITS_ALL, got, NULL), SWL_OK);
            assert_memory_equal(got, want, row * (N - 9));
        }
        swl_session_free(a);
        swl_session_free(b);
    }
    free(want);
    free(got);
    swl_model_close(m);
    unlink(path);
}

static void foreign_and_damaged_snapshots_are_refused(void **state)
{
    char path[] = "/tmp/swl-snap-XXXXXX";
    swl_model *m = open_case("next-a-mlx4", false, 0, 2), *other = open_case("q35moe-a-mlx4", false, 0, 2);
    swl_model *exact = open_case("next-a-mlx4", true, 0, 2);
    swl_session *s, *o, *x;
    swl_error err;
    char *data;
    size_t n, at;
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    assert_int_equal(swl_session_create(&o, other, NULL), SWL_OK);
    assert_int_equal(swl_session_create(&x, exact, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, ids, 7, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
    assert_int_equal(swl_session_save(s, path, NULL), SWL_OK);
    assert_int_equal(swl_session_load(o, path, &err), SWL_E_MISMATCH);
    assert_int_equal(swl_session_load(x, path, &err), SWL_E_MISMATCH);
    assert_int_equal(swl_file_load(&data, &n, path, 1 << 30, NULL), SWL_OK);
    for (at = 0; at < n; at += n / 40 + 1) {
        data[at] = (char)(data[at] ^ 4);
        assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
        assert_int_not_equal(swl_session_load(s, path, &err), SWL_OK);
        assert_string_equal(err.file, path);
        assert_int_equal(swl_session_n_tokens(s), 0);
        data[at] = (char)(data[at] ^ 4);
    }
    for (at = 0; at < n; at += n / 15 + 1) {
        assert_int_equal(swl_file_save(path, data, at, NULL), SWL_OK);
        assert_int_equal(swl_session_load(s, path, &err), SWL_E_CORRUPT);
    }
    assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
    assert_int_equal(swl_session_load(s, path, NULL), SWL_OK);
    swl_free(data);
    swl_session_free(s);
    swl_session_free(o);
    swl_session_free(x);
    swl_model_close(m);
    swl_model_close(other);
    swl_model_close(exact);
    unlink(path);
}

static void refusals_leave_the_session_as_it_was(void **state)
{
    swl_model *m = open_case("q35moe-a-mlx4", false, 4, 2);
    const int32_t bad[6] = {1, 2, 3, 4, 5, 100000};
    float *want = run_all(m, ids, N), *got = malloc((size_t)N * (size_t)m->config->vocab * sizeof *got);
    int32_t *many = calloc((size_t)m->ctx_tokens + 1, sizeof *many);
    swl_session *s;
    swl_error err;

    (void)state;
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, bad, 6, SWL_LOGITS_NONE, NULL, &err), SWL_E_ARG);
    assert_non_null(strstr(err.message, "100000"));
    assert_int_equal(swl_session_eval(s, many, m->ctx_tokens + 1, SWL_LOGITS_NONE, NULL, &err), SWL_E_BUDGET);
    assert_int_equal(swl_session_eval(s, ids, 0, SWL_LOGITS_NONE, NULL, &err), SWL_E_ARG);
    assert_int_equal(swl_session_n_tokens(s), 0);
    assert_int_equal(swl_session_eval(s, ids, N, SWL_LOGITS_ALL, got, NULL), SWL_OK);
    assert_memory_equal(got, want, (size_t)N * (size_t)m->config->vocab * sizeof *got);
    free(want);
    free(got);
    free(many);
    swl_session_free(s);
    swl_model_close(m);
}

/* Three conversations of different length in one forward pass, against each alone. */
static void a_batch_gives_the_bits_of_each_conversation_alone(void **state)
{
    static const char *const names[] = {"next-a-mlx4", "q35moe-a", "q35dense-b-mlx4g32"};
    static const int32_t first[3] = {0, 4, 9}, len[3] = {9, 1, 11};
    size_t c;

    (void)state;
    for (c = 0; c < 3; c++) {
        swl_model *m = open_case(names[c], false, 64, 2);
        size_t vocab = (size_t)m->config->vocab;
        float *got = calloc(21 * vocab, sizeof *got), *at = got;
        swl_batch_item items[3];
        bool want[N];
        int i;

        memset(want, 1, sizeof want);
        for (i = 0; i < 3; i++) {
            items[i] = (swl_batch_item){.ids = ids + first[i], .n = len[i], .want = want};
            assert_int_equal(swl_state_create(&items[i].state, m, NULL), SWL_OK);
        }
        assert_int_equal(swl_forward(m, items, 3, got, NULL, NULL), SWL_OK);
        for (i = 0; i < 3; i++) {
            float *alone = run_all(m, ids + first[i], len[i]);

            assert_memory_equal(at, alone, (size_t)len[i] * vocab * sizeof *at);
            assert_int_equal(items[i].state->n_tokens, len[i]);
            at += (size_t)len[i] * vocab;
            free(alone);
            swl_state_free(items[i].state);
        }
        free(got);
        swl_model_close(m);
    }
}

/* The pool at its floor (one token's experts), in between, and holding all. */
static void the_pool_does_not_change_a_bit(void **state)
{
    static const char *const names[] = {"next-a-mlx4", "q35moe-a", "q35moe-b-mlx2g32"};
    size_t c;

    (void)state;
    for (c = 0; c < 3; c++) {
        swl_model *m = open_case(names[c], false, 0, 2);
        size_t bytes = (size_t)N * (size_t)m->config->vocab * sizeof(float);
        float *want = run_all(m, ids, N);
        int32_t slots, experts = m->config->n_experts, k = m->config->n_experts_used;
        char path[512];

        snprintf(path, sizeof path, "%s%s", CASES, names[c]);
        for (slots = k; slots < experts; slots += 1 + (experts - k) / 4) {
            swl_model_options o;
            swl_model *p;
            float *got;

            swl_model_options_init(&o);
            o.path = path;
            o.pool_slots = slots;
            o.n_threads = 1;
            assert_int_equal(swl_model_open(&p, &o, NULL), SWL_OK);
            got = run_all(p, ids, N);
            assert_memory_equal(got, want, bytes);
            free(got);
            swl_model_close(p);
        }
        free(want);
        swl_model_close(m);
    }
}

/* Going back to a mark and on again gives what a cold run gives. */
static void going_back_is_as_if_never_gone(void **state)
{
    static const char *const names[] = {"next-a-mlx4", "q35moe-a", "q35dense-b-mlx4g32"};
    size_t c;

    (void)state;
    for (c = 0; c < 3; c++) {
        swl_model *m = open_case(names[c], false, 0, 2);
        size_t row = (size_t)m->config->vocab * sizeof(float);
        float *want = run_all(m, ids, N), *got = malloc(row * N);
        swl_session *s, *f;

        assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(s, ids, 6, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
        assert_int_equal(swl_session_mark(s, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(s, ids + 1, 9, SWL_LOGITS_NONE, NULL, NULL), SWL_OK); /* another way */
        assert_int_equal(swl_session_match(s, ids, N), 6);
        assert_int_equal(swl_session_rewind(s, 8), 6);
        assert_int_equal(swl_session_eval(s, ids + 6, N - 6, SWL_LOGITS_ALL, got, NULL), SWL_OK);
        assert_memory_equal(got, want + 6 * m->config->vocab, row * (N - 6));
        assert_int_equal(swl_session_match(s, ids, N), N);
        assert_memory_equal(swl_session_ids(s), ids, sizeof ids);

        assert_int_equal(swl_session_rewind(s, 7), 6);
        assert_int_equal(swl_session_fork(&f, s, NULL), SWL_OK);
        assert_int_equal(swl_session_eval(s, ids, 5, SWL_LOGITS_NONE, NULL, NULL), SWL_OK); /* not seen by the fork */
        assert_int_equal(swl_session_eval(f, ids + 6, N - 6, SWL_LOGITS_ALL, got, NULL), SWL_OK);
        assert_memory_equal(got, want + 6 * m->config->vocab, row * (N - 6));
        swl_session_free(f);

        assert_int_equal(swl_session_rewind(s, 5), 0);
        assert_int_equal(swl_session_eval(s, ids, N, SWL_LOGITS_ALL, got, NULL), SWL_OK);
        assert_memory_equal(got, want, row * N);
        swl_session_free(s);
        free(want);
        free(got);
        swl_model_close(m);
    }
}

typedef struct answer {
    int32_t ids[64];
    int32_t n;
} answer;

static bool collect(void *arg, int32_t id, const char *text, size_t n_bytes)
{
    answer *a = arg;

    (void)text;
    (void)n_bytes;
    if (id >= 0)
        a->ids[a->n++] = id;
    return true;
}

static swl_generate_result ask(swl_session *s, const swl_tokenizer *t, const int32_t *prompt, int32_t n, answer *a)
{
    swl_generate_options o;
    swl_generate_result r;

    a->n = 0;
    swl_generate_options_init(&o);
    o.prompt = prompt;
    o.n_prompt = n;
    o.whole = true;
    o.n_max = 8;
    o.tokenizer = t;
    o.ignore_stop = true;
    o.on_token = collect;
    o.arg = a;
    assert_int_equal(swl_generate(s, &o, &r, NULL), SWL_OK);
    return r;
}

/* Whole prompts: only what is new runs, and the answer is that of a session that never saw anything. */
static void a_prompt_runs_only_what_is_new(void **state)
{
    const char *dir = SWL_TEST_DATA "/../models/demo.qpack";
    const char *turns[] = {
        "<|im_start|>user\nHello there!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<|im_start|>user\nHello there!<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n"
        "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    };
    swl_model_options mo;
    swl_tokenizer *t;
    swl_model *m;
    swl_session *warm, *cold;
    swl_generate_result r;
    answer a, b;
    int32_t *p[2], border;
    int64_t n[2];
    int i;

    (void)state;
    swl_model_options_init(&mo);
    mo.path = dir;
    mo.n_threads = 1;
    assert_int_equal(swl_model_open(&m, &mo, NULL), SWL_OK);
    assert_int_equal(swl_tokenizer_open(&t, dir, NULL), SWL_OK);
    for (i = 0; i < 2; i++)
        assert_int_equal(swl_tokenizer_encode(t, turns[i], strlen(turns[i]), 0, &p[i], &n[i], NULL), SWL_OK);
    assert_int_equal(swl_session_create(&warm, m, NULL), SWL_OK);

    r = ask(warm, t, p[0], (int32_t)n[0], &a);
    assert_int_equal(r.n_cached, 0);
    assert_int_equal(r.n_prompt, n[0]);
    r = ask(warm, t, p[0], (int32_t)n[0], &b); /* again: the prompt's last logits were kept */
    assert_int_equal(r.n_cached, n[0]);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.ids, b.ids, (size_t)a.n * sizeof *a.ids);

    for (border = (int32_t)n[0] - 1; p[0][border] != swl_tokenizer_special(t, "<|im_start|>"); border--)
        ;
    r = ask(warm, t, p[1], (int32_t)n[1], &a); /* the history shows the answer without its empty thoughts */
    assert_int_equal(r.n_cached, border);
    assert_int_equal(swl_session_create(&cold, m, NULL), SWL_OK);
    ask(cold, t, p[1], (int32_t)n[1], &b);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.ids, b.ids, (size_t)a.n * sizeof *a.ids);
    for (i = 0; i < 2; i++)
        swl_free(p[i]);
    swl_session_free(warm);
    swl_session_free(cold);
    swl_tokenizer_close(t);
    swl_model_close(m);
}

static void *cancel_soon(void *arg)
{
    usleep(30000);
    swl_session_cancel(arg, true);
    return NULL;
}

/* From another thread, in the middle of a chunk: the pass stops, and the conversation goes on from its last mark. */
static void a_prompt_can_be_stopped(void **state)
{
    enum { LONG = 2000 };
    swl_model *m = open_case("next-a-mlx4", true, 0, 2);
    size_t row = (size_t)m->config->vocab * sizeof(float);
    float *want = run_all(m, ids, N), *got = malloc(row * N);
    int32_t *prompt = calloc(LONG, sizeof *prompt);
    swl_generate_options o;
    swl_generate_result r;
    swl_session *s;
    pthread_t t;

    (void)state;
    memcpy(prompt, ids, sizeof ids);
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, ids, 6, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
    assert_int_equal(swl_session_mark(s, NULL), SWL_OK);
    swl_generate_options_init(&o);
    o.prompt = prompt;
    o.n_prompt = LONG;
    o.whole = true;
    o.n_max = 1;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, s), 0);
    assert_int_equal(swl_generate(s, &o, &r, NULL), SWL_OK);
    pthread_join(t, NULL);
    assert_int_equal(r.finish, SWL_FINISH_CANCELLED);
    assert_int_equal(r.n_generated, 0);
    assert_int_equal(swl_session_n_tokens(s), 6);
    swl_session_cancel(s, false);
    assert_int_equal(swl_session_eval(s, ids + 6, N - 6, SWL_LOGITS_ALL, got, NULL), SWL_OK);
    assert_memory_equal(got, want + 6 * m->config->vocab, row * (N - 6));
    free(want);
    free(got);
    free(prompt);
    swl_session_free(s);
    swl_model_close(m);
}

/* The pool shrinks and grows between tokens, far beyond its bounds too. */
static void a_pool_that_changes_size_changes_no_bit(void **state)
{
    static const uint64_t bytes[] = {0, 1 << 20, 40000, UINT64_MAX, 1, 300000};
    swl_model *m = open_case("next-a-mlx4", false, 0, 2);
    size_t vocab = (size_t)m->config->vocab;
    float *want = run_all(m, ids, N), *got = malloc(vocab * sizeof *got);
    swl_session *s;
    int i;

    (void)state;
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    for (i = 0; i < N; i++) {
        assert_int_equal(swl_model_resize_pool(m, bytes[i % 6], NULL), SWL_OK);
        assert_true(swl_store_slots(m->store) >= m->config->n_experts_used);
        assert_true(swl_store_slots(m->store) <= m->config->n_experts);
        assert_int_equal(swl_session_eval(s, ids + i, 1, SWL_LOGITS_LAST, got, NULL), SWL_OK);
        assert_memory_equal(got, want + (size_t)i * vocab, vocab * sizeof *got);
    }
    free(want);
    free(got);
    swl_session_free(s);
    swl_model_close(m);
}

static void pressure_is_followed_within_bounds(void **state)
{
    int32_t slots = 200, i;

    (void)state;
    assert_int_equal(swl_pressure_slots(50, true, 200, 8, 256), 175);
    assert_int_equal(swl_pressure_slots(5, true, 200, 8, 256), 200); /* in between: nothing moves */
    assert_int_equal(swl_pressure_slots(0, true, 200, 8, 256), 212);
    assert_int_equal(swl_pressure_slots(0, false, 200, 8, 256), 200);
    assert_int_equal(swl_pressure_slots(-1, true, 200, 8, 256), 200); /* the system does not say */
    for (i = 0; i < 100; i++)
        slots = swl_pressure_slots(90, true, slots, 8, 256);
    assert_int_equal(slots, 8);
    for (i = 0; i < 300; i++)
        slots = swl_pressure_slots(0, true, slots, 8, 256);
    assert_int_equal(slots, 256);
}

static bool note_call(void *arg, int32_t n_done, int32_t n_total)
{
    (void)n_done, (void)n_total;
    *(int *)arg += 1;
    return true;
}

/* A prompt of many pieces that has no place, or a bad id at its end, must not run for minutes before it is refused. */
static void a_prompt_that_has_no_place_is_refused_before_it_runs(void **state)
{
    swl_model *m = open_case("q35moe-a-mlx4", false, 4, 2);
    int32_t n = m->ctx_tokens, *prompt = calloc((size_t)n + 1, sizeof *prompt);
    swl_generate_options o;
    swl_generate_result r;
    swl_session *s;
    int n_calls = 0, whole;

    (void)state;
    swl_generate_options_init(&o);
    o.prompt = prompt;
    o.n_max = 1;
    o.on_prompt = note_call;
    o.arg = &n_calls;
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, ids, 5, SWL_LOGITS_NONE, NULL, NULL), SWL_OK);
    for (whole = 0; whole < 2; whole++) {
        o.whole = whole;
        o.n_prompt = whole ? n + 1 : n - 4;
        assert_int_equal(swl_generate(s, &o, &r, NULL), SWL_E_BUDGET);
        o.n_prompt = 20;
        prompt[19] = m->config->vocab;
        assert_int_equal(swl_generate(s, &o, &r, NULL), SWL_E_ARG);
        prompt[19] = 0;
    }
    assert_int_equal(n_calls, 0);
    assert_int_equal(swl_session_n_tokens(s), 5);
    assert_memory_equal(swl_session_ids(s), ids, 5 * sizeof *ids);
    free(prompt);
    swl_session_free(s);
    swl_model_close(m);
}

/* The last token that was asked for may be the one that the state has no room for. */
static void the_last_token_and_the_end_of_the_context_may_meet(void **state)
{
    swl_model_options mo;
    swl_generate_options o;
    swl_generate_result r;
    swl_model *m;
    swl_session *s;

    (void)state;
    swl_model_options_init(&mo);
    mo.path = CASES "q35moe-a-mlx4";
    mo.ctx_tokens = 16;
    mo.n_threads = 2;
    assert_int_equal(swl_model_open(&m, &mo, NULL), SWL_OK);
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    swl_generate_options_init(&o);
    o.prompt = ids;
    o.n_prompt = 14;
    o.whole = true;
    for (o.n_max = 1; o.n_max < 6; o.n_max++) {
        assert_int_equal(swl_generate(s, &o, &r, NULL), SWL_OK);
        assert_int_equal(r.n_generated, o.n_max < 3 ? o.n_max : 3); /* positions 14, 15 and the one past the end */
        assert_int_equal(r.finish, o.n_max <= 3 ? SWL_FINISH_LENGTH : SWL_FINISH_CONTEXT);
    }
    swl_session_free(s);
    swl_model_close(m);
}

static void a_model_without_a_path_is_refused(void **state)
{
    swl_model_options o;
    swl_memory_plan plan;
    swl_model *m;

    (void)state;
    swl_model_options_init(&o);
    assert_int_equal(swl_model_open(&m, &o, NULL), SWL_E_ARG);
    assert_null(m);
    assert_int_equal(swl_memory_plan_make(&plan, &o, NULL), SWL_E_ARG);
}

static void a_level_of_another_architecture_is_refused(void **state)
{
#if defined(__x86_64__)
    const char *foreign = "neon", *all = "scalar, avx2, avxvnni, avx512";
#elif defined(__aarch64__)
    const char *foreign = "avx2", *all = "scalar, neon, dotprod, i8mm";
#else
    const char *foreign = "avx2", *all = "scalar";
#endif
    swl_model_options o;
    swl_error err;
    swl_model *m;

    (void)state;
    swl_model_options_init(&o);
    o.path = CASES "q35moe-a-mlx4";
    o.cpu_level = foreign;
    assert_int_equal(swl_model_open(&m, &o, &err), SWL_E_ARG);
    assert_non_null(strstr(err.message, foreign));
    assert_non_null(strstr(err.message, all));
}

static void *run_prompt(void *level)
{
    swl_model_options o;
    swl_model *m;
    swl_session *s;
    float *logits;

    swl_model_options_init(&o);
    o.path = CASES "q35moe-a-mlx4";
    o.n_threads = 1; /* all the work is the caller's */
    o.cpu_level = level;
    assert_int_equal(swl_model_open(&m, &o, NULL), SWL_OK);
    assert_int_equal(swl_session_create(&s, m, NULL), SWL_OK);
    logits = calloc((size_t)m->config->vocab, sizeof *logits);
    assert_int_equal(swl_session_eval(s, ids, 6, SWL_LOGITS_LAST, logits, NULL), SWL_OK);
    assert_int_equal(swl_session_eval(s, ids, N, SWL_LOGITS_LAST, logits, NULL), SWL_OK);
    free(logits);
    swl_session_free(s);
    swl_model_close(m);
    return NULL;
}

/* What swiftlet.h promises. The frames of kernels are large enough to reach over a guard page, hence so many. */
static void a_mebibyte_of_stack_is_enough(void **state)
{
#define COMMA ,
    static const char *const levels[] = {SWL_CPU_LEVELS(COMMA)};
    enum { STACK = 1 << 20, GUARD = 4 << 20 };
    uint8_t *memory = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they take stack of their own */
#endif
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory, GUARD, PROT_NONE), 0);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        pthread_attr_init(&attr);
        assert_int_equal(pthread_attr_setstack(&attr, memory + GUARD, STACK), 0);
        assert_int_equal(pthread_create(&thread, &attr, run_prompt, (void *)(uintptr_t)levels[i]), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
    }
    munmap(memory, GUARD + STACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_state_goes_on_to_the_bit),
        cmocka_unit_test(older_snapshots_are_read),
        cmocka_unit_test(foreign_and_damaged_snapshots_are_refused),
        cmocka_unit_test(refusals_leave_the_session_as_it_was),
        cmocka_unit_test(a_batch_gives_the_bits_of_each_conversation_alone),
        cmocka_unit_test(the_pool_does_not_change_a_bit),
        cmocka_unit_test(going_back_is_as_if_never_gone),
        cmocka_unit_test(a_prompt_runs_only_what_is_new),
        cmocka_unit_test(a_prompt_can_be_stopped),
        cmocka_unit_test(a_pool_that_changes_size_changes_no_bit),
        cmocka_unit_test(pressure_is_followed_within_bounds),
        cmocka_unit_test(a_prompt_that_has_no_place_is_refused_before_it_runs),
        cmocka_unit_test(the_last_token_and_the_end_of_the_context_may_meet),
        cmocka_unit_test(a_model_without_a_path_is_refused),
        cmocka_unit_test(a_level_of_another_architecture_is_refused),
        cmocka_unit_test(a_mebibyte_of_stack_is_enough),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
