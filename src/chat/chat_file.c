/*
 * chat_file.c: a conversation as a file:
 *
 *   offset  0  8 bytes   "SWLCHAT" and a version byte (1)
 *           8  u64       n, bytes of JSON
 *          16  n         {"messages": [...], "turns": [...]}: answers token by token, so that they need not be computed
 * again 16 + n  u32       CRC-32C of everything before 20 + n  ...       a snapshot of the state (session/snapshot.c),
 * or nothing when it was not in memory any more
 *
 * Little-endian. Written under another name and renamed. The messages are readable whatever the model.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"
#include "chat/chat.h"
#include "chat/json_in.h"
#include "chat/messages.h"

enum { HEAD_BYTES = 16 };
#define JSON_BYTES_MAX (UINT64_C(256) << 20)

static const uint8_t magic[8] = {'S', 'W', 'L', 'C', 'H', 'A', 'T', 1};

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "chat: out of memory");
}

/* Adds those of the conversation's answers whose tokens are known. */
static swl_status collect_turns(const swl_chat *c, json_t *turns, swl_error *err)
{
    uint8_t transcript[SWL_TRANSCRIPT_BYTES] = {0};
    swl_engine *e = c->engine;
    swl_seal seal = {0};
    json_t *list;
    swl_status st;

    if (swl_messages_normalise(&list, c->messages, e->tpl.info.tool_calls_xml, &seal, NULL))
        return SWL_OK; /* nothing that could have been answered */
    st = SWL_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        const json_t *m = json_array_get(list, i);
        swl_turn *t;

        st = swl_transcript_add(transcript, m, err);
        if (st || strcmp(json_string_value(json_object_get(m, "role")), "assistant"))
            continue;
        pthread_mutex_lock(&e->lock);
        t = swl_turns_find(&e->turns, m, transcript);
        if (t) {
            memcpy(transcript, t->transcript, sizeof transcript);
            if (json_array_append_new(turns, swl_turn_to_json(t)))
                st = no_memory(err);
        }
        swl_turn_release(t);
        pthread_mutex_unlock(&e->lock);
    }
    json_decref(list);
    return st;
}

/* ---- saving ---- */

/* The slot that has most of the conversation, and the position up to which it is this one's. */
static const swl_slot *find_slot(const swl_chat *c, int32_t *at)
{
    const swl_slot *best = NULL;

    *at = 0;
    for (int32_t i = 0; i < c->engine->n_slots; i++) {
        const swl_slot *s = &c->engine->slots[i];
        const int32_t *ids = swl_session_ids(s->session);
        int32_t n = swl_session_n_tokens(s->session), same = 0, m = s->session->n_marks;

        while (same < n && same < c->n_ids && ids[same] == c->ids[same])
            same++;
        while (same < n && m > 0 && s->session->marks[m - 1].n_tokens > same)
            m--;
        same = same == n ? n : m > 0 ? s->session->marks[m - 1].n_tokens : 0;
        if (same > *at) {
            *at = same;
            best = s;
        }
    }
    return best;
}

static swl_status write_state(const swl_chat *c, int fd, const char *path, swl_error *err)
{
    int32_t at, marks[2];
    const swl_slot *s = find_slot(c, &at);

    if (!s)
        return SWL_OK;
    marks[0] = s->session->n_marks ? s->session->marks[0].n_tokens : 0;
    marks[1] = s->base;
    return swl_snapshot_write(s->session, at, marks, 2, fd, path, err);
}

static swl_status write_json(const swl_chat *c, int fd, const char *path, swl_error *err)
{
    json_t *turns = json_array(), *root;
    swl_status st = collect_turns(c, turns, err);

    root = json_pack("{s:O, s:o}", "messages", c->messages, "turns", turns);
    if (!st)
        st = swl_json_frame_write(root, magic, fd, path, err);
    json_decref(root);
    return st;
}

swl_status swl_chat_save(const swl_chat *c, const char *path, swl_error *err)
{
    swl_file_atomic f;
    swl_status st = swl_file_atomic_begin(&f, path, err);

    if (st)
        return st;
    swl_chat_private(f.fd);
    swl_step_acquire(c->engine);
    st = write_json(c, f.fd, path, err);
    if (!st)
        st = write_state(c, f.fd, path, err);
    swl_step_release(c->engine);
    return swl_file_atomic_end(&f, st, err);
}

/* ---- loading ---- */

static swl_status read_json(json_t **root, uint64_t *state_at, int fd, uint64_t size, const char *path, swl_error *err)
{
    uint8_t head[HEAD_BYTES];
    uint32_t crc;
    uint64_t n = 0;
    char *text = NULL;
    swl_status st = SWL_OK;

    *root = NULL;
    if (size >= HEAD_BYTES + 4)
        st = swl_file_read_at(fd, path, 0, head, HEAD_BYTES, err);
    if (!st && (size < HEAD_BYTES + 4 || memcmp(head, magic, sizeof magic - 1)))
        return swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s is not a conversation of this program", path);
    if (!st && head[7] != magic[7])
        return swl_fail_at(err, SWL_E_UNSUPPORTED, path, 7, "%s: conversation version %d, expected %d", path, head[7],
                           magic[7]);
    memcpy(&n, head + 8, sizeof n);
    if (!st && (n > JSON_BYTES_MAX || n > size - HEAD_BYTES - 4))
        return swl_fail_at(err, SWL_E_CORRUPT, path, 8, "%s is cut short, or damaged", path);
    if (!st && !(text = swl_calloc(n + 4, 1)))
        st = no_memory(err);
    if (!st)
        st = swl_file_read_at(fd, path, HEAD_BYTES, text, n + 4, err);
    if (!st) {
        memcpy(&crc, text + n, sizeof crc);
        if (crc != swl_crc32c(swl_crc32c(0, head, sizeof head), text, n))
            st = swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)(HEAD_BYTES + n),
                             "%s is damaged: its checksum is wrong", path);
    }
    if (!st)
        st = swl_json_parse(root, text, n, path, err);
    if (!st && !json_is_array(json_object_get(*root, "messages")))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, HEAD_BYTES, "%s has no messages", path);
    *state_at = HEAD_BYTES + n + 4;
    swl_free(text);
    return st;
}

/* Into a slot that can be given up. A state that cannot be used is no fault: it is computed anew. */
static bool load_state(swl_chat *c, int fd, uint64_t at, uint64_t size, const char *path)
{
    swl_engine *e = c->engine;
    swl_slot *s;
    int32_t n;
    bool kept;

    if (at == size || !(s = swl_slot_clear(e)))
        return false;
    kept = !swl_snapshot_read(s->session, fd, at, size - at, path, NULL) && !swl_slot_follow(e, s, NULL);
    n = swl_session_n_tokens(s->session);
    swl_free(c->ids);
    c->ids = kept ? swl_calloc((size_t)n, sizeof *c->ids) : NULL;
    c->n_ids = c->ids ? n : 0;
    if (c->ids)
        memcpy(c->ids, swl_session_ids(s->session), (size_t)n * sizeof *c->ids);
    s->base = n;
    return kept;
}

swl_status swl_chat_load(swl_chat *c, const char *path, bool *state_kept, swl_error *err)
{
    uint64_t size, at = 0;
    json_t *root;
    bool kept = false;
    int fd;
    swl_status st = swl_file_open(&fd, &size, path, err);

    if (state_kept)
        *state_kept = false;
    if (st)
        return st;
    st = read_json(&root, &at, fd, size, path, err);
    if (!st) {
        swl_step_acquire(c->engine);
        kept = load_state(c, fd, at, size, path);
        swl_step_release(c->engine);
        if (kept)
            swl_turns_take(c->engine, json_object_get(root, "turns"));
        json_decref(c->messages);
        c->messages = json_incref(json_object_get(root, "messages"));
    }
    json_decref(root);
    swl_file_close(fd);
    if (state_kept)
        *state_kept = kept;
    return st;
}
