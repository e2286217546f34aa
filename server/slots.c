/* slots.c: POST /slots/N?action=save|restore|erase: conversations in memory, to and from files of the session directory. */
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "small.h"

typedef enum action { ACTION_SAVE, ACTION_RESTORE, ACTION_ERASE, ACTIONS } action;

static bool find_action(const srv_job *j, action *out, srv_error *e)
{
    static const char *const names[ACTIONS] = {"save", "restore", "erase"};
    static const char key[] = "action=";

    for (const char *p = j->query; p && *p; p = strchr(p, '&') ? strchr(p, '&') + 1 : NULL) {
        size_t n = strcspn(p, "&"), skip = sizeof key - 1;

        for (int i = 0; i < ACTIONS && n > skip && !strncmp(p, key, skip); i++) {
            *out = (action)i;
            if (n - skip == strlen(names[i]) && !strncmp(p + skip, names[i], n - skip))
                return true;
        }
    }
    return srv_invalid(e, "action", "the address has to end in ?action=save, restore or erase");
}

static bool find_slot(const srv_job *j, int32_t *slot, srv_error *e)
{
    const char *rest = srv_route_rest(j->route, j->path);
    size_t n = strspn(rest, "0123456789");

    if (!n || n > 4 || (rest[n] && strcmp(rest + n, "/")))
        return srv_fail(e, 404, "not_found_error", NULL, "there is no such slot");
    *slot = (int32_t)strtol(rest, NULL, 10);
    return true;
}

/* A body is needed where a file is. */
static bool find_name(srv_job *j, action what, const char **name, srv_error *e)
{
    if (j->body.n || j->gzip || what != ACTION_ERASE) {
        if (!srv_body(j, e) || !srv_ask_string(j, j->doc.root, "filename", "filename", name, e))
            return false;
    }
    return *name || what == ACTION_ERASE || srv_invalid(e, "filename", "the file's name is missing");
}

/* A slot that a request uses is free again at some time. */
static bool is_busy(srv_job *j, int32_t slot, srv_error *e)
{
    swl_slot_info slots[64] = {0};
    swl_engine_stats stats;

    swl_engine_stats_get(j->server->model.engine, &stats, slots, 64);
    if (slot < 0 || slot >= 64 || !slots[slot].running)
        return false;
    srv_fail(e, 503, "unavailable_error", NULL, "the slot is being used by a request");
    e->retry_after = 2;
    return true;
}

static bool failed(srv_job *j, int32_t slot, const swl_error *err, srv_error *e)
{
    srv_error fault;

    if (err->code == SWL_E_ARG && is_busy(j, slot, e)) /* since a moment ago */
        return false;
    switch (err->code) {
    case SWL_E_UNSUPPORTED:
        return srv_fail(e, 501, "not_supported_error", NULL, "%s", err->message);
    case SWL_E_NOT_FOUND:
        return srv_fail(e, 404, "not_found_error", NULL, "there is no such %s", err->file[0] ? "file" : "slot");
    case SWL_E_CORRUPT: /* of the file that the client named */
    case SWL_E_MISMATCH:
    case SWL_E_BUDGET:
        if (err->os_errno) /* the disk is full */
            return srv_library(e, err, "filename");
        srv_library(&fault, err, "");
        return srv_invalid(e, "filename", "%s", fault.message);
    default:
        return srv_library(e, err, "filename");
    }
}

static void answer(srv_job *j, int32_t slot, const char *name, const char *tokens, int32_t n_tokens, const char *bytes, uint64_t n_bytes,
                   const char *took, double seconds)
{
    srv_text *t = &j->answer;

    srv_open(t, NULL, '{');
    srv_int(t, "id_slot", slot);
    if (name)
        srv_str(t, "filename", name);
    if (tokens)
        srv_int(t, tokens, n_tokens);
    if (bytes)
        srv_int(t, bytes, (int64_t)n_bytes);
    srv_open(t, "timings", '{');
    srv_real(t, took, 1e3 * seconds);
    srv_puts(t, "}}");
}

static bool erase(srv_job *j, int32_t slot, const char *name, srv_error *e)
{
    swl_engine *engine = j->server->model.engine;
    double begin = srv_now();
    swl_error err = {0};
    int32_t n_tokens = 0;
    uint64_t n_bytes = 0;

    err.code = name ? swl_engine_file_erase(engine, name, &n_bytes, &err) : swl_engine_slot_erase(engine, slot, &n_tokens, &err);
    if (err.code)
        return failed(j, name ? -1 : slot, &err, e);
    if (name)
        answer(j, slot, name, NULL, 0, "bytes_erased", n_bytes, "erase_ms", srv_now() - begin);
    else
        answer(j, slot, NULL, "n_erased", n_tokens, NULL, 0, "erase_ms", srv_now() - begin);
    return true;
}

/* A save that waits for the disk. */
typedef struct saving {
    swl_slot_saving *begun;
    swl_slot_file file;
    const char *name; /* in the job's document */
    int32_t slot;
    double begin;
} saving;

static bool end_save(srv_job *j, srv_error *e)
{
    const saving *s = j->state;
    swl_error err = {0};

    err.code = swl_engine_slot_save_end(s->begun, &err);
    if (err.code)
        return failed(j, s->slot, &err, e);
    answer(j, s->slot, s->name, "n_saved", s->file.n_tokens, "n_written", s->file.bytes, "save_ms", srv_now() - s->begin);
    return true;
}

static bool save(srv_job *j, int32_t slot, const char *name, srv_error *e)
{
    saving *s = j->state = calloc(1, sizeof *s);
    swl_error err = {0};

    if (!s)
        return srv_no_memory(e);
    *s = (saving){.name = name, .slot = slot, .begin = srv_now()};
    err.code = swl_engine_slot_save_begin(&s->begun, j->server->model.engine, slot, name, &s->file, &err);
    if (err.code)
        return failed(j, slot, &err, e);
    j->later = end_save;
    return true;
}

static bool restore(srv_job *j, int32_t slot, const char *name, srv_error *e)
{
    double begin = srv_now();
    swl_slot_file file = {0};
    swl_error err = {0};

    err.code = swl_engine_slot_restore(j->server->model.engine, slot, name, &file, &err);
    if (err.code)
        return failed(j, slot, &err, e);
    answer(j, slot, name, "n_restored", file.n_tokens, "n_read", file.bytes, "restore_ms", srv_now() - begin);
    return true;
}

bool srv_slot_action(srv_job *j, srv_error *e)
{
    const char *name = NULL;
    int32_t slot = 0;
    action what = ACTION_SAVE;

    if (srv_slots_off(j->server, e) || !find_slot(j, &slot, e) || !find_action(j, &what, e) || !find_name(j, what, &name, e) ||
        (!(what == ACTION_ERASE && name) && is_busy(j, slot, e)))
        return false;
    if (what == ACTION_ERASE)
        return erase(j, slot, name, e);
    return what == ACTION_SAVE ? save(j, slot, name, e) : restore(j, slot, name, e);
}
