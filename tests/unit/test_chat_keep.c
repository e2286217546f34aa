/* Conversations that are kept: in files of their own, in the session directory, and what is told about them. */
#define _GNU_SOURCE
#include "chat_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "chat/chat.h"

static char *template_file(void)
{
    static char path[64];
    char *text;
    size_t n;
    FILE *out;

    assert_int_equal(swl_file_load(&text, &n, TEMPLATES "qwen3_5.jinja", 1 << 20, NULL), SWL_OK);
    snprintf(path, sizeof path, "/tmp/swl-keep-template-%d", (int)getpid());
    out = fopen(path, "w");
    fprintf(out, "{%%- set form = '3.6' %%}%s", text);
    fclose(out);
    swl_free(text);
    return path;
}

static fixture open_dir(int32_t n_sessions, const char *dir, uint64_t bytes)
{
    swl_engine_options eo;
    fixture f;

    swl_engine_options_init(&eo);
    eo.session_dir = dir;
    eo.session_dir_bytes = bytes;
    eo.template_path = template_file();
    f = fixture_open_with(n_sessions, 0, &eo);
    unlink(eo.template_path);
    return f;
}

/* Number of files in the directory; with `clean` they are removed, and the directory too. */
static int count_files(const char *dir, bool clean)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[512];
    int n = 0;

    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (clean)
            unlink(path);
    }
    closedir(d);
    if (clean)
        rmdir(dir);
    return n;
}

static const char *only_file(const char *dir, char path[512])
{
    DIR *d = opendir(dir);
    struct dirent *e;

    assert_int_equal(count_files(dir, false), 1);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.')
            snprintf(path, 512, "%s/%s", dir, e->d_name);
    closedir(d);
    return path;
}

static swl_request_options chat_options(void)
{
    swl_request_options o = ask_options(NULL);

    o.n_max = 80;
    o.think = SWL_THINK_ON;
    return o;
}

typedef struct turn {
    swl_usage usage;
    char *last;               /* the answer as JSON */
} turn;

static turn say(swl_chat *c, const char *text)
{
    swl_request_options o = chat_options();
    swl_error err = {0};
    turn t = {.last = NULL};
    json_t *list;
    char *all;

    assert_int_equal(swl_chat_add(c, "user", text, &err), SWL_OK);
    if (swl_chat_answer(c, &o, &t.usage, NULL, &err))
        fail_msg("%s", err.message);
    all = swl_chat_messages(c);
    list = json_loads(all, 0, NULL);
    t.last = json_dumps(json_array_get(list, json_array_size(list) - 1), 0);
    json_decref(list);
    swl_free(all);
    return t;
}

static void a_conversation_is_appended_to(void **state)
{
    fixture f = open_dir(1, NULL, 0);
    swl_chat *c, *fork;
    turn a, b;

    (void)state;
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    assert_int_equal(swl_chat_add(c, "system", "You are a friendly assistant.", NULL), SWL_OK);
    assert_int_equal(swl_chat_add(c, "wizard", "x", NULL), SWL_E_ARG);
    assert_int_equal(swl_chat_add_json(c, "{\"role\":", NULL), SWL_E_ARG);
    a = say(c, "What is the capital of France?");
    assert_int_equal(swl_chat_n_messages(c), 3);
    assert_non_null(strstr(a.last, "reasoning_content"));
    assert_int_equal(swl_chat_fork(&fork, c, NULL), SWL_OK);
    b = say(c, "And of Italy?");
    assert_true(b.usage.n_cached >= a.usage.n_prompt + a.usage.n_generated - 1);
    free(b.last);
    swl_chat_truncate(c, 3);
    assert_int_equal(swl_chat_n_messages(c), 3);
    b = say(c, "And of Spain?"); /* goes back to the end of the first answer */
    assert_true(b.usage.n_cached >= a.usage.n_prompt);
    free(b.last);
    b = say(fork, "And of Spain?");
    assert_int_equal(swl_chat_n_messages(fork), 5);
    free(a.last);
    free(b.last);
    swl_chat_free(c);
    swl_chat_free(fork);
    fixture_close(&f);
}

static void a_saved_conversation_goes_on_as_if_never_left(void **state)
{
    fixture f = open_dir(2, NULL, 0), g;
    char path[] = "/tmp/swl-chat-XXXXXX";
    swl_chat *c, *d;
    turn a, b, again;
    bool kept;
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    a = say(c, "What is the capital of France?");
    free(a.last);
    assert_int_equal(swl_chat_save(c, path, NULL), SWL_OK);
    a = say(c, "And of Italy?");

    g = open_dir(1, NULL, 0);
    assert_int_equal(swl_chat_create(&d, g.engine, NULL), SWL_OK);
    assert_int_equal(swl_chat_load(d, path, &kept, NULL), SWL_OK);
    assert_true(kept);
    assert_int_equal(swl_chat_n_messages(d), 2);
    b = say(d, "And of Italy?");
    assert_string_equal(a.last, b.last);
    assert_int_equal(a.usage.n_cached, b.usage.n_cached);
    assert_int_equal(a.usage.n_prompt, b.usage.n_prompt);
    swl_chat_truncate(d, 2);
    assert_int_equal(swl_chat_save(d, path, NULL), SWL_OK); /* as it was before the last question */
    assert_int_equal(swl_chat_load(d, path, &kept, NULL), SWL_OK);
    assert_true(kept);
    again = say(d, "And of Italy?");
    assert_string_equal(a.last, again.last);
    free(a.last);
    free(b.last);
    free(again.last);
    swl_chat_free(c);
    swl_chat_free(d);
    fixture_close(&f);
    fixture_close(&g);
    unlink(path);
}

static void damaged_conversations_are_refused(void **state)
{
    fixture f = open_dir(1, NULL, 0);
    char path[] = "/tmp/swl-chat-XXXXXX";
    swl_chat *c;
    swl_error err;
    char *data;
    size_t n, n_json, at;
    bool kept;
    turn t;
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    t = say(c, "Hello there!");
    free(t.last);
    assert_int_equal(swl_chat_save(c, path, NULL), SWL_OK);
    assert_int_equal(swl_file_load(&data, &n, path, 1 << 30, NULL), SWL_OK);
    memcpy(&n_json, data + 8, sizeof n_json);
    for (at = 0; at < n_json + 20; at += n_json / 20 + 1) {
        data[at] = (char)(data[at] ^ 4);
        assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
        assert_int_not_equal(swl_chat_load(c, path, &kept, &err), SWL_OK);
        assert_int_equal(swl_chat_n_messages(c), 2);
        data[at] = (char)(data[at] ^ 4);
    }
    data[n - 100] = (char)(data[n - 100] ^ 4); /* the state alone: the messages are there */
    assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
    assert_int_equal(swl_chat_load(c, path, &kept, &err), SWL_OK);
    assert_false(kept);
    assert_int_equal(swl_chat_n_messages(c), 2);
    for (at = 0; at < n_json + 20; at += n_json / 5 + 1) {
        assert_int_equal(swl_file_save(path, data, at, NULL), SWL_OK);
        assert_int_equal(swl_chat_load(c, path, &kept, &err), SWL_E_CORRUPT);
    }
    swl_free(data);
    swl_chat_free(c);
    fixture_close(&f);
    unlink(path);
}

/* The answer that ends the conversation is that of an engine which never saw the beginning of these tokens. */
static void assert_cold_run_agrees(const fixture *cold, const swl_chat *c, int32_t n_prompt)
{
    swl_request_options o = ask_options(NULL);
    result r = {0};

    o.ids = c->ids;
    o.n_ids = n_prompt;
    o.prompt_logprobs = true; /* nothing is reused */
    o.n_max = c->n_ids - n_prompt;
    ask(cold, &r, o);
    assert_int_equal(r.usage.n_cached, 0);
    assert_int_equal(r.n_tokens, c->n_ids - n_prompt);
    assert_memory_equal(r.ids, c->ids + n_prompt, (size_t)r.n_tokens * sizeof *r.ids);
    result_deinit(&r);
}

/* More conversations than slots, and a restart in between: none is computed twice. */
static void conversations_come_back_from_the_directory(void **state)
{
    static const char *const first[] = {"What is the capital of France? Please answer in one short sentence.",
                                        "Tell me a short story about a dog and a cat in a garden.",
                                        "Please name three animals that live on a farm."};
    char dir[] = "/tmp/swl-sessions-XXXXXX";
    fixture f, cold = open_dir(1, NULL, 0);
    swl_chat *c[3];
    swl_engine_stats stats;
    turn t[3], again;
    char *messages[3];

    (void)state;
    assert_non_null(mkdtemp(dir));
    f = open_dir(1, dir, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(swl_chat_create(&c[i], f.engine, NULL), SWL_OK);
        t[i] = say(c[i], first[i]);
        free(t[i].last);
    }
    swl_engine_stats_get(f.engine, &stats, NULL, 0);
    assert_int_equal(stats.n_evicted, 2);
    assert_true(stats.disk_bytes > 0);
    for (int i = 0; i < 3; i++) {
        turn before = t[i];

        t[i] = say(c[i], "Why?");
        assert_true(t[i].usage.n_cached >= before.usage.n_prompt + before.usage.n_generated - 1);
        free(t[i].last);
        messages[i] = swl_chat_messages(c[i]);
        swl_chat_free(c[i]);
    }
    swl_engine_stats_get(f.engine, &stats, NULL, 0);
    assert_int_equal(stats.hits_disk, 3);
    fixture_close(&f);

    f = open_dir(1, dir, 0); /* the program was started again */
    for (int i = 0; i < 3; i++) {
        json_t *list = json_loads(messages[i], 0, NULL);
        char *m;

        assert_int_equal(swl_chat_create(&c[i], f.engine, NULL), SWL_OK);
        for (size_t j = 0; j < json_array_size(list); j++) {
            m = json_dumps(json_array_get(list, j), 0);
            assert_int_equal(swl_chat_add_json(c[i], m, NULL), SWL_OK);
            free(m);
        }
        again = say(c[i], "Thank you!");
        assert_true(again.usage.n_cached >= t[i].usage.n_prompt + t[i].usage.n_generated - 1);
        free(again.last);
        assert_cold_run_agrees(&cold, c[i], again.usage.n_prompt);
        swl_chat_free(c[i]);
        json_decref(list);
        swl_free(messages[i]);
    }
    fixture_close(&f);
    fixture_close(&cold);
    assert_true(count_files(dir, true) >= 3);
}

/* The conversation as a client sends it that shows no reasoning, and one more question. */
static swl_chat *without_reasoning(swl_engine *e, const char *messages)
{
    json_t *list = json_loads(messages, 0, NULL);
    swl_chat *c;

    assert_int_equal(swl_chat_create(&c, e, NULL), SWL_OK);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *m = json_array_get(list, i);
        char *text;

        json_object_del(m, "reasoning_content");
        text = json_dumps(m, 0);
        assert_int_equal(swl_chat_add_json(c, text, NULL), SWL_OK);
        free(text);
    }
    json_decref(list);
    return c;
}

/* What a client leaves out of an answer is known again after a restart, unless that part of the file is damaged. */
static void answers_are_known_token_by_token_after_a_restart(void **state)
{
    char dir[] = "/tmp/swl-sessions-XXXXXX", path[512], *messages, *data;
    fixture f;
    swl_chat *c;
    turn first, straight, restarted, damaged;
    size_t n;

    (void)state;
    assert_non_null(mkdtemp(dir));
    f = open_dir(1, dir, 0);
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    first = say(c, "What is the capital of France? Please answer in one short sentence.");
    assert_non_null(strstr(first.last, "reasoning_content"));
    messages = swl_chat_messages(c);
    swl_chat_free(c);
    fixture_close(&f);
    assert_int_equal(swl_file_load(&data, &n, only_file(dir, path), 1 << 30, NULL), SWL_OK);

    f = open_dir(1, NULL, 0); /* never stopped, as it were: the same answer, and the next one */
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    straight = say(c, "What is the capital of France? Please answer in one short sentence.");
    assert_string_equal(straight.last, first.last);
    free(straight.last);
    swl_chat_free(c);
    c = without_reasoning(f.engine, messages);
    straight = say(c, "And of Italy?");
    swl_chat_free(c);
    fixture_close(&f);

    f = open_dir(1, dir, 0);
    c = without_reasoning(f.engine, messages);
    restarted = say(c, "And of Italy?");
    assert_string_equal(restarted.last, straight.last);
    assert_int_equal(restarted.usage.n_prompt, straight.usage.n_prompt);
    assert_int_equal(restarted.usage.n_cached, straight.usage.n_cached);
    assert_true(restarted.usage.n_cached >= first.usage.n_prompt + first.usage.n_generated - 1);
    swl_chat_free(c);
    fixture_close(&f);
    count_files(dir, true);

    data[n - 30] ^= 4; /* in the answers: the state is taken all the same, as far as the text agrees */
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(swl_file_save(path, data, n, NULL), SWL_OK);
    f = open_dir(1, dir, 0);
    c = without_reasoning(f.engine, messages);
    damaged = say(c, "And of Italy?");
    assert_true(damaged.usage.n_cached < first.usage.n_prompt + first.usage.n_generated - 1);
    swl_chat_free(c);
    fixture_close(&f);
    count_files(dir, true);
    swl_free(data);
    swl_free(messages);
    free(first.last);
    free(straight.last);
    free(restarted.last);
    free(damaged.last);
}

static void the_directory_stays_within_its_bound(void **state)
{
    char dir[] = "/tmp/swl-sessions-XXXXXX", text[128];
    fixture f;
    swl_chat *c;
    swl_engine_stats stats;
    uint64_t one;
    turn t;

    (void)state;
    assert_non_null(mkdtemp(dir));
    f = open_dir(1, dir, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
        snprintf(text, sizeof text, "This is question number %d, and I would like a long answer to it, please.", i);
        t = say(c, text);
        free(t.last);
        swl_chat_free(c);
    }
    swl_engine_stats_get(f.engine, &stats, NULL, 0);
    one = stats.disk_bytes;
    fixture_close(&f);
    assert_int_equal(count_files(dir, false), 2);
    f = open_dir(1, dir, one + one / 2);
    swl_engine_stats_get(f.engine, &stats, NULL, 0);
    assert_true(stats.disk_bytes <= one + one / 2);
    assert_int_equal(count_files(dir, false), 1);
    for (int i = 3; i < 6; i++) {
        assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
        snprintf(text, sizeof text, "This is question number %d, and I would like a long answer to it, please.", i);
        t = say(c, text);
        free(t.last);
        swl_chat_free(c);
        swl_slots_settle(f.engine, 0);
        assert_int_equal(count_files(dir, false), 1);
    }
    fixture_close(&f);
    assert_int_equal(count_files(dir, true), 1);
}

/* ---- a disk that takes its time ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, broken;
} drive = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The system's, for this program. */
int fsync(int fd)
{
    bool broken;

    (void)fd;
    pthread_mutex_lock(&drive.lock);
    while (drive.held)
        pthread_cond_wait(&drive.changed, &drive.lock);
    broken = drive.broken;
    pthread_mutex_unlock(&drive.lock);
    errno = EIO;
    return broken ? -1 : 0;
}

static void set_drive(bool held, bool broken)
{
    pthread_mutex_lock(&drive.lock);
    drive.held = held;
    drive.broken = broken;
    pthread_cond_broadcast(&drive.changed);
    pthread_mutex_unlock(&drive.lock);
}

typedef struct told {
    int n, n_failed;
    swl_error last;
} told;

static void on_saved(void *arg, const swl_error *err)
{
    told *t = arg;

    t->n++;
    t->n_failed += err != NULL;
    if (err)
        t->last = *err;
}

static fixture open_told(const char *dir, told *t)
{
    swl_engine_options eo;
    fixture f;

    swl_engine_options_init(&eo);
    eo.session_dir = dir;
    eo.template_path = template_file();
    eo.on_saved = on_saved;
    eo.arg = t;
    f = fixture_open_with(1, 0, &eo);
    unlink(eo.template_path);
    return f;
}

static const char *const subjects[] = {"a dog and a cat in a garden", "a boy and a bird by the sea", "a girl who likes to count",
                                       "a king in a tower", "a fish in the river", "a bear in the snow"};

static turn tell_of(const fixture *f, int i, swl_chat **c)
{
    char text[128];

    assert_int_equal(swl_chat_create(c, f->engine, NULL), SWL_OK);
    snprintf(text, sizeof text, "Please tell me a long and friendly story about %s.", subjects[i]);
    return say(*c, text);
}

/* A conversation whose file waits for the disk is no less there than others. */
static void answers_do_not_wait_for_the_disk(void **state)
{
    char dir[] = "/tmp/swl-sessions-XXXXXX", path[512];
    swl_engine_stats stats;
    told saves = {0};
    swl_chat *a, *b;
    turn first, t;
    fixture f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    f = open_told(dir, &saves);
    set_drive(true, false);
    first = tell_of(&f, 0, &a);
    t = tell_of(&f, 1, &b);
    free(t.last);
    assert_non_null(strstr(only_file(dir, path), ".session.tmp."));
    t = say(a, "Why?");
    assert_true(t.usage.n_cached >= first.usage.n_prompt + first.usage.n_generated - 1);
    free(t.last);
    swl_engine_stats_get(f.engine, &stats, NULL, 0);
    assert_int_equal(stats.hits_disk, 1);
    assert_int_equal(count_files(dir, false), 2);
    assert_int_equal(saves.n, 0);
    set_drive(false, false);
    fixture_close(&f);
    assert_int_equal(saves.n, 3);
    assert_int_equal(saves.n_failed, 0);
    assert_int_equal(count_files(dir, true), 2); /* what a continues is gone */
    free(first.last);
    swl_chat_free(a);
    swl_chat_free(b);
}

/* It is told, and what was there before stays. */
static void a_save_that_fails_in_the_end(void **state)
{
    char dir[] = "/tmp/swl-sessions-XXXXXX", path[512], before[512];
    told saves = {0};
    swl_chat *a, *b;
    fixture f;
    turn t;

    (void)state;
    assert_non_null(mkdtemp(dir));
    f = open_told(dir, &saves);
    t = tell_of(&f, 0, &a);
    free(t.last);
    t = tell_of(&f, 1, &b);
    free(t.last);
    swl_slots_settle(f.engine, 0);
    strcpy(before, only_file(dir, path));
    swl_chat_free(b);
    set_drive(false, true);
    t = say(a, "Why?"); /* b is lost */
    free(t.last);
    t = tell_of(&f, 2, &b); /* and what a had more than its file */
    free(t.last);
    swl_slots_settle(f.engine, 0);
    assert_int_equal(saves.n_failed, 2);
    assert_int_equal(saves.last.code, SWL_E_IO);
    assert_int_equal(saves.last.os_errno, EIO);
    assert_string_equal(only_file(dir, path), before);
    set_drive(false, false);
    t = say(a, "Why?");
    free(t.last);
    fixture_close(&f);
    assert_int_equal(saves.n_failed, 2);
    assert_int_equal(access(before, F_OK), -1);
    assert_int_equal(count_files(dir, true), 2);
    swl_chat_free(a);
    swl_chat_free(b);
}

typedef struct seen {
    char dir[40];
    int n_files;
} seen;

static void *free_drive(void *arg)
{
    seen *s = arg;

    for (int i = 0; i < 3000 && count_files(s->dir, false) < SWL_SAVES_MAX; i++)
        usleep(10000);
    usleep(300000); /* time to go too far */
    s->n_files = count_files(s->dir, false);
    set_drive(false, false);
    return NULL;
}

static void no_more_waits_for_the_disk_than_a_few_files(void **state)
{
    seen s = {.dir = "/tmp/swl-sessions-XXXXXX"};
    pthread_t thread;
    swl_chat *c;
    fixture f;
    turn t;

    (void)state;
    assert_non_null(mkdtemp(s.dir));
    f = open_dir(1, s.dir, 0);
    set_drive(true, false);
    assert_int_equal(pthread_create(&thread, NULL, free_drive, &s), 0);
    for (int i = 0; i < SWL_SAVES_MAX + 2; i++) {
        t = tell_of(&f, i, &c);
        free(t.last);
        swl_chat_free(c);
    }
    pthread_join(thread, NULL);
    assert_int_equal(s.n_files, SWL_SAVES_MAX);
    fixture_close(&f);
    assert_int_equal(count_files(s.dir, true), SWL_SAVES_MAX + 2);
}

/* ---- by hand ---- */

static int32_t tokens_in(const fixture *f, int32_t slot)
{
    swl_engine_stats stats;
    swl_slot_info slots[2];

    swl_engine_stats_get(f->engine, &stats, slots, 2);
    return slots[slot].n_tokens;
}

/* A save that was begun is of that moment, takes room from then on, and has its name only at the end. */
static void a_save_is_of_the_moment_when_it_began(void **state)
{
    char dir[] = "/tmp/swl-sessions-XXXXXX";
    swl_slot_saving *first, *second, *none;
    swl_slot_file a, b, found;
    swl_error err;
    fixture f;
    swl_chat *c;
    turn t;

    (void)state;
    assert_non_null(mkdtemp(dir));
    f = open_dir(1, dir, 0);
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    t = say(c, "Please tell me a short story about a dog and a cat in a garden.");
    free(t.last);
    assert_int_equal(swl_engine_slot_save_begin(&first, f.engine, 0, "story", &a, &err), SWL_OK);
    assert_int_equal(a.n_tokens, tokens_in(&f, 0));
    assert_int_equal(swl_engine_slot_restore(f.engine, 0, "story", &found, &err), SWL_E_NOT_FOUND);
    t = say(c, "And then?"); /* the engine steps */
    free(t.last);
    assert_int_equal(swl_engine_slot_save_begin(&second, f.engine, 0, "story", &b, &err), SWL_OK);
    assert_true(b.n_tokens > a.n_tokens);
    assert_int_equal(swl_engine_slot_save_end(second, &err), SWL_OK);
    assert_int_equal(swl_engine_slot_restore(f.engine, 0, "story", &found, &err), SWL_OK);
    assert_int_equal(found.n_tokens, b.n_tokens);
    assert_int_equal(swl_engine_slot_save_end(first, &err), SWL_OK); /* who ends last stays */
    assert_int_equal(swl_engine_slot_restore(f.engine, 0, "story", &found, &err), SWL_OK);
    assert_int_equal(found.n_tokens, a.n_tokens);
    assert_true(found.bytes == a.bytes);
    swl_chat_free(c);
    fixture_close(&f);
    count_files(dir, true);

    assert_non_null(mkdtemp(strcpy(dir, "/tmp/swl-sessions-XXXXXX")));
    f = open_dir(1, dir, a.bytes + a.bytes / 2); /* for one */
    assert_int_equal(swl_chat_create(&c, f.engine, NULL), SWL_OK);
    t = say(c, "Please tell me a short story about a dog and a cat in a garden.");
    free(t.last);
    assert_int_equal(swl_engine_slot_save_begin(&first, f.engine, 0, "one", &a, &err), SWL_OK);
    assert_int_equal(swl_engine_slot_save_begin(&none, f.engine, 0, "two", &b, &err), SWL_E_BUDGET);
    assert_null(none);
    assert_int_equal(swl_engine_slot_save_end(first, &err), SWL_OK);
    assert_int_equal(swl_engine_slot_save(f.engine, 0, "two", &b, &err), SWL_E_BUDGET);
    assert_int_equal(swl_engine_slot_save(f.engine, 0, "one", &b, &err), SWL_OK); /* in its own place */
    assert_int_equal(count_files(dir, false), 1);
    swl_chat_free(c);
    fixture_close(&f);
    count_files(dir, true);
}

/* ---- statistics ---- */

typedef struct watcher {
    swl_engine *engine;
    _Atomic bool stop;
    double longest;
    int32_t n, most_tokens;
} watcher;

static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void *watch(void *arg)
{
    watcher *w = arg;

    while (!atomic_load(&w->stop)) {
        swl_engine_stats stats;
        swl_slot_info slots[2];
        double t = seconds();

        swl_engine_stats_get(w->engine, &stats, slots, 2);
        t = seconds() - t;
        w->longest = t > w->longest ? t : w->longest;
        w->most_tokens = slots[0].n_tokens > w->most_tokens ? slots[0].n_tokens : w->most_tokens;
        w->n++;
        usleep(2000);
    }
    return NULL;
}

static void statistics_do_not_wait_for_a_pass(void **state)
{
    enum { LONG = 1000 };
    fixture f = fixture_open(1);
    int32_t *ids = calloc(LONG, sizeof *ids);
    swl_request_options o;
    watcher w = {.engine = f.engine};
    result r = {0};
    double t;
    pthread_t thread;

    (void)state;
    swl_request_options_init(&o);
    o.ids = ids;
    o.n_ids = LONG;
    o.n_max = 1;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    t = seconds();
    ask(&f, &r, o);
    t = seconds() - t;
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_true(w.n > 3 && w.longest < t / 2);
    result_deinit(&r);
    free(ids);
    fixture_close(&f);
}

/* Two threads with a conversation each on one engine: whoever is free steps for both. */
typedef struct talker {
    swl_engine *engine;
    int n_answers;
} talker;

static void *talk(void *arg)
{
    talker *t = arg;
    swl_request_options o = chat_options();
    swl_chat *c;

    o.n_max = 10;
    if (swl_chat_create(&c, t->engine, NULL))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (!swl_chat_add(c, "user", "Hello there!", NULL) && !swl_chat_answer(c, &o, NULL, NULL, NULL))
            t->n_answers++;
    swl_chat_free(c);
    return NULL;
}

static void threads_can_talk_at_the_same_time(void **state)
{
    fixture f = fixture_open(2);
    talker t[3];
    pthread_t threads[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        t[i] = (talker){f.engine, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &t[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(t[i].n_answers, 3);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_is_appended_to),
        cmocka_unit_test(a_saved_conversation_goes_on_as_if_never_left),
        cmocka_unit_test(damaged_conversations_are_refused),
        cmocka_unit_test(conversations_come_back_from_the_directory),
        cmocka_unit_test(answers_are_known_token_by_token_after_a_restart),
        cmocka_unit_test(the_directory_stays_within_its_bound),
        cmocka_unit_test(answers_do_not_wait_for_the_disk),
        cmocka_unit_test(a_save_that_fails_in_the_end),
        cmocka_unit_test(no_more_waits_for_the_disk_than_a_few_files),
        cmocka_unit_test(a_save_is_of_the_moment_when_it_began),
        cmocka_unit_test(statistics_do_not_wait_for_a_pass),
        cmocka_unit_test(threads_can_talk_at_the_same_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
