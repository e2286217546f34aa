/*
 * slot_file.c: conversations saved by hand: a slot's state and its answers, in a file of the session directory under a name
 * that somebody chose. The format is that of the files that are saved by themselves (disk.h); they are not looked through
 * for prompts and not removed when there are too many: saving is refused instead.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/status.h"
#include "chat/engine.h"

enum { NAME_MAX_BYTES = 100 };

struct swl_slot_saving {
    swl_engine *engine;
    swl_file_atomic file; /* written, but neither durable nor named */
    uint64_t bytes;
};

/* Also on file systems that take capital letters for small ones. */
static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end), i = 0;

    while (i < n_end && n >= n_end && (name[n - n_end + i] | 0x20) == (end[i] | 0x20))
        i++;
    return i == n_end;
}

/* No way leads out of the directory, and none to the files that are saved by themselves or being written. */
static bool is_plain(const char *name)
{
    return strlen(name) <= NAME_MAX_BYTES && swl_path_is_safe(name) &&
           !name[strspn(name, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-")] &&
           !ends_with(name, ".session") && !strstr(name, ".tmp.");
}

static swl_status find_path(const swl_engine *e, const char *name, char **path, swl_error *err)
{
    *path = NULL;
    if (!e->disk)
        return swl_fail(err, SWL_E_UNSUPPORTED, "conversations can be saved only where there is a session directory");
    if (!is_plain(name))
        return swl_fail(err, SWL_E_ARG, "a file's name has 1 to %d letters, digits, '.', '_' and '-', does not begin with "
                        "a dot, and does not end in .session", NAME_MAX_BYTES);
    *path = swl_path_join(e->disk->dir, name);
    return *path ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "slot: out of memory");
}

static swl_status find_slot(swl_engine *e, int32_t i, swl_slot **slot, swl_error *err)
{
    *slot = NULL;
    if (i < 0 || i >= e->n_slots)
        return swl_fail(err, SWL_E_NOT_FOUND, "there is no slot %d, they are 0 to %d", i, e->n_slots - 1);
    if (e->slots[i].owner)
        return swl_fail(err, SWL_E_ARG, "slot %d is being used by a request", i);
    *slot = &e->slots[i];
    return SWL_OK;
}

/* ---- saving ---- */

/* Bytes of the files that were saved by hand, all but `except`. */
static uint64_t bytes_by_hand(const swl_disk *d, const char *except)
{
    DIR *dir = opendir(d->dir);
    struct dirent *entry;
    uint64_t bytes = 0;
    struct stat st;

    while (dir && (entry = readdir(dir))) {
        char *path = is_plain(entry->d_name) && strcmp(entry->d_name, except) ? swl_path_join(d->dir, entry->d_name) : NULL;

        if (path && !stat(path, &st) && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
        swl_free(path);
    }
    if (dir)
        closedir(dir);
    return bytes;
}

/* With what is on its way. */
static swl_status take_room(swl_engine *e, const char *name, int fd, uint64_t *bytes, swl_error *err)
{
    const swl_disk *d = e->disk;
    uint64_t all = bytes_by_hand(d, name);
    struct stat st;
    bool fits;

    if (fstat(fd, &st))
        return swl_fail_errno(err, d->dir, "%s: the size of a file cannot be had", d->dir);
    pthread_mutex_lock(&e->lock);
    all += e->saving_bytes + (uint64_t)st.st_size;
    fits = all <= d->bytes_max;
    *bytes = fits ? (uint64_t)st.st_size : 0;
    e->saving_bytes += *bytes;
    pthread_mutex_unlock(&e->lock);
    return fits ? SWL_OK : swl_fail(err, SWL_E_BUDGET, "conversations saved by hand would have %llu bytes, more than the %llu that "
                                    "they may; erase some", (unsigned long long)all, (unsigned long long)d->bytes_max);
}

static swl_status write_slot(swl_engine *e, const swl_slot *slot, const char *name, const char *path, swl_slot_saving *saving,
                             swl_error *err)
{
    const swl_session *s = slot->session;
    int32_t marks[2] = {s->n_marks ? s->marks[0].n_tokens : 0, slot->base}, n = swl_session_n_tokens(s);
    json_t *turns = swl_turns_within(e, swl_session_ids(s), n);
    swl_file_atomic *f = &saving->file;
    swl_status st = swl_file_atomic_begin(f, path, err);

    if (!st) {
        swl_chat_private(f->fd);
        st = swl_snapshot_write(s, n, marks, 2, f->fd, path, err);
        if (!st && json_array_size(turns))
            st = swl_turns_write(turns, f->fd, path, err);
        if (!st)
            st = take_room(e, name, f->fd, &saving->bytes, err);
        if (st)
            swl_file_atomic_end(f, st, err);
    }
    json_decref(turns);
    return st;
}

swl_status swl_engine_slot_save_begin(swl_slot_saving **out, swl_engine *e, int32_t slot, const char *name, swl_slot_file *file,
                                      swl_error *err)
{
    swl_slot_saving *saving;
    swl_slot *s;
    char *path;
    swl_status st = find_path(e, name, &path, err);

    *out = NULL;
    *file = (swl_slot_file){0};
    if (st)
        return st;
    saving = swl_calloc(1, sizeof *saving);
    if (!saving) {
        swl_free(path);
        return swl_fail(err, SWL_E_NOMEM, "slot: out of memory");
    }
    saving->engine = e;
    swl_step_acquire(e);
    st = find_slot(e, slot, &s, err);
    if (!st && !swl_session_n_tokens(s->session))
        st = swl_fail(err, SWL_E_ARG, "slot %d holds no conversation", slot);
    if (!st)
        st = write_slot(e, s, name, path, saving, err);
    if (!st)
        *file = (swl_slot_file){.n_tokens = swl_session_n_tokens(s->session), .bytes = saving->bytes};
    swl_step_release(e);
    swl_free(path);
    if (st)
        swl_free(saving);
    else
        *out = saving;
    return st;
}

swl_status swl_engine_slot_save_end(swl_slot_saving *saving, swl_error *err)
{
    swl_engine *e = saving->engine;
    swl_status st = swl_file_atomic_end(&saving->file, SWL_OK, err);

    pthread_mutex_lock(&e->lock);
    e->saving_bytes -= saving->bytes;
    pthread_mutex_unlock(&e->lock);
    swl_free(saving);
    return st;
}

swl_status swl_engine_slot_save(swl_engine *e, int32_t slot, const char *name, swl_slot_file *out, swl_error *err)
{
    swl_slot_saving *saving;
    swl_status st = swl_engine_slot_save_begin(&saving, e, slot, name, out, err);

    return st ? st : swl_engine_slot_save_end(saving, err);
}

/* ---- restoring ---- */

static void empty(swl_engine *e, swl_slot *s)
{
    swl_session_reset(s->session);
    s->canon.n = 0;
    s->base = 0;
    swl_slot_note(e, s);
}

/* What the slot held is kept like whatever leaves memory. */
static swl_status read_slot(swl_engine *e, swl_slot *s, const char *path, const swl_snapshot_info *info, swl_error *err)
{
    json_t *turns = NULL;
    uint64_t size;
    swl_status st;
    int fd;

    st = swl_file_open(&fd, &size, path, err);
    if (st)
        return st;
    swl_slot_save(e, s);
    s->canon.n = 0;
    st = swl_snapshot_read(s->session, fd, 0, info->snapshot_bytes, path, err);
    if (!st)
        st = swl_slot_follow(e, s, err);
    if (!st && !swl_turns_read(&turns, fd, path, info->snapshot_bytes, size, NULL))
        swl_turns_take(e, turns);
    json_decref(turns);
    swl_file_close(fd);
    if (st) {
        empty(e, s);
        return st;
    }
    s->base = swl_session_n_tokens(s->session);
    s->used = ++e->clock;
    s->used_at = swl_seconds();
    swl_slot_note(e, s);
    return SWL_OK;
}

swl_status swl_engine_slot_restore(swl_engine *e, int32_t slot, const char *name, swl_slot_file *out, swl_error *err)
{
    swl_snapshot_info info = {0};
    swl_slot *s;
    char *path;
    swl_status st = find_path(e, name, &path, err);

    *out = (swl_slot_file){0};
    if (st)
        return st;
    swl_step_acquire(e);
    st = find_slot(e, slot, &s, err);
    if (!st)
        st = swl_snapshot_peek(&info, path, e->model->ctx_tokens, err);
    if (!st)
        st = read_slot(e, s, path, &info, err);
    if (!st)
        *out = (swl_slot_file){.n_tokens = swl_session_n_tokens(s->session), .bytes = info.bytes};
    swl_step_release(e);
    swl_free(info.ids);
    swl_free(path);
    return st;
}

/* ---- erasing ---- */

swl_status swl_engine_slot_erase(swl_engine *e, int32_t slot, int32_t *n_tokens, swl_error *err)
{
    swl_slot *s;
    swl_status st;

    swl_step_acquire(e);
    st = find_slot(e, slot, &s, err);
    *n_tokens = st ? 0 : swl_session_n_tokens(s->session);
    if (!st)
        empty(e, s);
    swl_step_release(e);
    return st;
}

swl_status swl_engine_file_erase(swl_engine *e, const char *name, uint64_t *bytes, swl_error *err)
{
    struct stat sb;
    char *path;
    swl_status st = find_path(e, name, &path, err);

    *bytes = 0;
    if (st)
        return st;
    if (stat(path, &sb) || !S_ISREG(sb.st_mode))
        st = swl_fail_at(err, SWL_E_NOT_FOUND, path, -1, "%s is not there", path);
    else if (unlink(path))
        st = swl_fail_errno(err, path, "%s cannot be removed", path);
    else
        *bytes = (uint64_t)sb.st_size;
    swl_free(path);
    return st;
}
