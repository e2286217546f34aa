/*
 * turn_file.c: answers token by token in files, so that a program that was started again still knows them. A conversation's
 * own file (chat_file.c) has them in its JSON; in a file of the session directory (disk.c) they stand behind the snapshot:
 *
 *   offset  0  8 bytes   "SWLTURN" and a version byte (1)
 *           8  u64       n, bytes of JSON
 *          16  n         an array of turns
 *      16 + n  u32       CRC-32C of everything before
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"

enum { HEAD_BYTES = 16, FRAME_BYTES = HEAD_BYTES + 4 };
#define JSON_BYTES_MAX (UINT64_C(64) << 20)

static const uint8_t magic[8] = {'S', 'W', 'L', 'T', 'U', 'R', 'N', 1};

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "turns: out of memory");
}

/* ---- one turn as JSON ---- */

static json_t *hex_of(const uint8_t *p, size_t n)
{
    char text[2 * SWL_TRANSCRIPT_BYTES + 1];

    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", p[i]);
    return json_string(text);
}

static bool read_hex(const json_t *v, uint8_t *out, size_t n)
{
    const char *text = json_string_value(v);
    char pair[3] = {0}, *end;

    if (!text || strlen(text) != 2 * n || strspn(text, "0123456789abcdef") != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        memcpy(pair, text + 2 * i, 2);
        out[i] = (uint8_t)strtoul(pair, &end, 16);
    }
    return true;
}

json_t *swl_turn_to_json(const swl_turn *t)
{
    json_t *ids = json_array();

    for (int32_t i = 0; i < t->n; i++)
        json_array_append_new(ids, json_integer(t->ids[i]));
    return json_pack("{s:o, s:i, s:b, s:i, s:o, s:o, s:o, s:O}", "transcript",
                     hex_of(t->transcript, sizeof t->transcript), "start", (int)t->start, "reasoned", (int)t->reasoned,
                     "n_answer", (int)t->n_answer, "ids", ids, "reasoning", json_stringn(t->reasoning, t->n_reasoning),
                     "text", json_stringn(t->text, t->n_text), "calls", t->calls);
}

static char *copy_string(const json_t *v, size_t *n)
{
    *n = json_string_length(v);
    return swl_strndup(json_is_string(v) ? json_string_value(v) : "", *n);
}

/* NULL when it is not one of this model's. The file's checksum was right, so nothing is said about it. */
static swl_turn *turn_from_json(const swl_engine *e, const json_t *v)
{
    const json_t *ids = json_object_get(v, "ids"), *calls = json_object_get(v, "calls");
    int64_t start = json_integer_value(json_object_get(v, "start")),
            n_answer = json_integer_value(json_object_get(v, "n_answer"));
    swl_turn *t = swl_calloc(1, sizeof *t);
    bool ok = t != NULL;

    if (!t)
        return NULL;
    t->refs = 1;
    t->n = (int32_t)json_array_size(ids);
    t->ids = swl_calloc((size_t)t->n, sizeof *t->ids);
    t->reasoning = copy_string(json_object_get(v, "reasoning"), &t->n_reasoning);
    t->text = copy_string(json_object_get(v, "text"), &t->n_text);
    t->calls = json_is_array(calls) ? json_incref((json_t *)calls) : NULL;
    t->start = (swl_answer_start)start;
    t->reasoned = json_is_true(json_object_get(v, "reasoned"));
    t->n_answer = (int32_t)n_answer;
    ok = t->ids && t->reasoning && t->text && t->calls && t->n > 0 && start >= SWL_ANSWER_START_TEXT &&
         start <= SWL_ANSWER_START_THINK && n_answer >= -1 && n_answer <= t->n &&
         read_hex(json_object_get(v, "transcript"), t->transcript, sizeof t->transcript);
    for (int32_t i = 0; i < t->n && ok; i++) {
        int64_t id = json_integer_value(json_array_get(ids, (size_t)i));

        ok = id >= 0 && id < e->n_tokens;
        t->ids[i] = (int32_t)id;
    }
    if (ok)
        return t;
    swl_turn_release(t);
    return NULL;
}

/* ---- those of an engine ---- */

static bool is_known(const swl_turns *turns, const swl_turn *t)
{
    for (int32_t i = 0; i < turns->n; i++) {
        const swl_turn *o = turns->items[i];

        if (o->n == t->n && !memcmp(o->transcript, t->transcript, sizeof t->transcript) &&
            !memcmp(o->ids, t->ids, (size_t)t->n * sizeof *t->ids) && json_equal(o->calls, t->calls))
            return true;
    }
    return false;
}

void swl_turns_take(swl_engine *e, const json_t *turns)
{
    for (size_t i = 0; i < json_array_size(turns); i++) {
        swl_turn *t = turn_from_json(e, json_array_get(turns, i));

        if (!t)
            continue;
        pthread_mutex_lock(&e->lock);
        if (is_known(&e->turns, t))
            swl_turn_release(t);
        else
            swl_turns_add(&e->turns, t);
        pthread_mutex_unlock(&e->lock);
    }
}

/* The visible part, because a template may have left the reasoning out. The last token of an answer that was cut was never
 * run. */
static bool occurs(const swl_turn *t, const int32_t *ids, int32_t n)
{
    int32_t from = t->n_answer > 0 && t->n_answer < t->n ? t->n_answer : 0, length = t->n - from;

    for (int32_t i = 0; i < n; i++) {
        int32_t room = n - i < length ? n - i : length;

        if (ids[i] == t->ids[from] && room >= length - 1 &&
            !memcmp(ids + i, t->ids + from, (size_t)room * sizeof *ids))
            return true;
    }
    return false;
}

json_t *swl_turns_within(swl_engine *e, const int32_t *ids, int32_t n)
{
    swl_turn *turns[SWL_TURNS_MAX];
    json_t *list = json_array();
    int32_t n_turns;

    pthread_mutex_lock(&e->lock);
    n_turns = e->turns.n;
    for (int32_t i = 0; i < n_turns; i++) {
        turns[i] = e->turns.items[i];
        turns[i]->refs++;
    }
    pthread_mutex_unlock(&e->lock);
    for (int32_t i = 0; i < n_turns; i++)
        if (occurs(turns[i], ids, n))
            json_array_append_new(list, swl_turn_to_json(turns[i])); /* without one, its tokens are made anew */
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < n_turns; i++)
        swl_turn_release(turns[i]);
    pthread_mutex_unlock(&e->lock);
    return list;
}

/* ---- behind a snapshot ---- */

swl_status swl_json_frame_write(const json_t *root, const uint8_t kind[8], int fd, const char *path, swl_error *err)
{
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    uint8_t head[HEAD_BYTES];
    uint64_t n = text ? strlen(text) : 0;
    uint32_t crc;
    swl_status st = text ? SWL_OK : no_memory(err);

    memcpy(head, kind, sizeof magic);
    memcpy(head + 8, &n, sizeof n);
    crc = swl_crc32c(swl_crc32c(0, head, sizeof head), text, n);
    if (!st)
        st = swl_file_write(fd, path, head, sizeof head, err);
    if (!st)
        st = swl_file_write(fd, path, text, n, err);
    if (!st)
        st = swl_file_write(fd, path, &crc, sizeof crc, err);
    free(text);
    return st;
}

swl_status swl_turns_write(const json_t *turns, int fd, const char *path, swl_error *err)
{
    return swl_json_frame_write(turns, magic, fd, path, err);
}

static swl_status read_text(char *text, uint64_t n, const uint8_t *head, int fd, const char *path, uint64_t at,
                            swl_error *err)
{
    uint32_t crc;
    swl_status st = swl_file_read_at(fd, path, at + HEAD_BYTES, text, n + 4, err);

    if (st)
        return st;
    memcpy(&crc, text + n, sizeof crc);
    if (crc != swl_crc32c(swl_crc32c(0, head, HEAD_BYTES), text, n))
        return swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)(at + HEAD_BYTES + n),
                           "%s: the checksum of its answers is wrong", path);
    return SWL_OK;
}

swl_status swl_turns_read(json_t **turns, int fd, const char *path, uint64_t at, uint64_t size, swl_error *err)
{
    uint8_t head[HEAD_BYTES];
    uint64_t n = 0;
    char *text;
    swl_status st;

    *turns = NULL;
    if (size < at || size - at < FRAME_BYTES)
        return swl_fail_at(err, SWL_E_NOT_FOUND, path, (int64_t)at, "%s has no answers", path);
    st = swl_file_read_at(fd, path, at, head, sizeof head, err);
    if (st)
        return st;
    memcpy(&n, head + 8, sizeof n);
    if (memcmp(head, magic, sizeof magic) || n > JSON_BYTES_MAX || n != size - at - FRAME_BYTES)
        return swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)at, "%s: what follows its state are no answers", path);
    text = swl_calloc(n + 4, 1);
    if (!text)
        return no_memory(err);
    st = read_text(text, n, head, fd, path, at, err);
    if (!st)
        st = swl_json_parse(turns, text, n, path, err);
    swl_free(text);
    return st;
}
