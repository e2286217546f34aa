/* disk.c: a list of the files in the directory, with their token ids in memory. */
#define _GNU_SOURCE
#include "chat/disk.h"

#include <dirent.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "chat/turns.h"
#ifdef _WIN32
#include "base/os_win.h"
#endif

enum { LAYOUT_VERSION = 1, HEX = 64 };

static const char suffix[] = ".session";

void swl_chat_private(int fd)
{
#ifdef _WIN32
    (void)fd; /* the directory's access list applies */
#else
    (void)fchmod(fd, 0600);
#endif
}

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "session directory: out of memory");
}

/* ---- the list ---- */

static bool is_ours(const char *name)
{
    return strspn(name, "0123456789abcdef") == HEX && !strcmp(name + HEX, suffix);
}

static swl_disk_file *new_file(swl_disk *d)
{
    if (d->n == d->cap) {
        int32_t cap = d->cap + d->cap / 2 + 16;
        swl_disk_file *files = swl_realloc(d->files, (size_t)cap, sizeof *files);

        if (!files)
            return NULL;
        d->files = files;
        d->cap = cap;
    }
    memset(&d->files[d->n], 0, sizeof *d->files);
    return &d->files[d->n++];
}

static void forget(swl_disk *d, int32_t i)
{
    d->bytes -= d->files[i].info.bytes;
    swl_free(d->files[i].info.ids);
    d->files[i] = d->files[--d->n];
}

static void remove_file(swl_disk *d, int32_t i)
{
    char *path = swl_path_join(d->dir, d->files[i].name);

    if (path)
        unlink(path);
    swl_free(path);
    forget(d, i);
}

/* The oldest go, but never `except`, nor what is on its way. */
static void shrink(swl_disk *d, const char *except)
{
    while (d->bytes > d->bytes_max) {
        int32_t oldest = -1;

        for (int32_t i = 0; i < d->n; i++)
            if (!d->files[i].saving && strcmp(d->files[i].name, except) && (oldest < 0 || d->files[i].used < d->files[oldest].used))
                oldest = i;
        if (oldest < 0)
            return;
        remove_file(d, oldest);
    }
}

/* Foreign and damaged files count, so that the bound holds; they have no ids, so that nothing is taken from them. */
static swl_status add_listed(swl_disk *d, const char *name, swl_error *err)
{
    char *path = swl_path_join(d->dir, name);
    swl_disk_file *f;
    struct stat st;

    if (!path)
        return no_memory(err);
    if (stat(path, &st) || !S_ISREG(st.st_mode)) {
        swl_free(path);
        return SWL_OK;
    }
    f = new_file(d);
    if (!f) {
        swl_free(path);
        return no_memory(err);
    }
    memcpy(f->name, name, HEX + sizeof suffix); /* is_ours */
    if (!swl_snapshot_peek(&f->info, path, d->ctx_tokens, NULL) &&
        (memcmp(f->info.fingerprint, d->fingerprint, sizeof d->fingerprint) || f->info.exact != d->exact)) {
        swl_free(f->info.ids);
        f->info.ids = NULL;
    }
    f->info.bytes = (uint64_t)st.st_size;
    f->used = (int64_t)st.st_mtime;
    d->bytes += f->info.bytes;
    swl_free(path);
    return SWL_OK;
}

/* What a program that was killed was writing. Somebody else may be writing here too, but not for an hour. */
static void remove_leftover(const swl_disk *d, const char *name)
{
    const char *number = strstr(name, ".tmp.");
    char *path = number && number[5] && !number[5 + strspn(number + 5, "0123456789")] ? swl_path_join(d->dir, name) : NULL;
    struct stat st;

    if (path && !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_mtime < time(NULL) - 3600)
        unlink(path);
    swl_free(path);
}

static int by_use(const void *a, const void *b)
{
    const swl_disk_file *x = a, *y = b;

    return x->used != y->used ? (x->used < y->used ? -1 : 1) : strcmp(x->name, y->name);
}

static swl_status list_dir(swl_disk *d, swl_error *err)
{
    DIR *dir = opendir(d->dir);
    struct dirent *e;
    swl_status st = SWL_OK;

    if (!dir)
        return swl_fail_errno(err, d->dir, "%s cannot be read", d->dir);
    while (!st && (e = readdir(dir)))
        if (is_ours(e->d_name))
            st = add_listed(d, e->d_name, err);
        else
            remove_leftover(d, e->d_name);
    closedir(dir);
    if (d->n)
        qsort(d->files, (size_t)d->n, sizeof *d->files, by_use);
    for (int32_t i = 0; i < d->n; i++)
        d->files[i].used = d->clock++;
    return st;
}

swl_status swl_disk_open(swl_disk **out, const swl_model *m, const char *dir, uint64_t bytes_max, void (*ended)(void *arg),
                         void *arg, swl_error *err)
{
    swl_disk *d = swl_calloc(1, sizeof *d);
    swl_status st = SWL_OK;

    *out = NULL;
    if (!d || !(d->dir = swl_strdup(dir))) {
        swl_free(d);
        return no_memory(err);
    }
    d->bytes_max = bytes_max ? bytes_max : UINT64_C(8) << 30;
    d->exact = m->exact;
    d->ctx_tokens = m->ctx_tokens;
    if (mkdir(dir, 0700) && errno != EEXIST)
        st = swl_fail_errno(err, dir, "%s cannot be made", dir);
    if (!st)
        st = swl_checkpoint_fingerprint(m->ck, d->fingerprint, err);
    if (!st)
        st = list_dir(d, err);
    if (!st)
        st = swl_sync_start(&d->sync, ended, arg, err);
    if (st) {
        swl_disk_close(d);
        return st;
    }
    shrink(d, "");
    *out = d;
    return SWL_OK;
}

void swl_disk_close(swl_disk *d)
{
    if (!d)
        return;
    swl_sync_stop(d->sync);
    while (d->n)
        forget(d, d->n - 1);
    swl_free(d->files);
    swl_free(d->dir);
    swl_free(d);
}

/* ---- finding ---- */

static int32_t usable_of(const swl_snapshot_info *f, int32_t have, int32_t rest)
{
    if (have >= f->n_tokens && rest)
        return f->n_tokens;
    for (int32_t i = f->n_marks - 1; i >= 0; i--) /* no logits are kept: something has to run */
        if (f->marks[i] <= have && (rest || f->marks[i] < have))
            return f->marks[i];
    return 0;
}

int32_t swl_disk_find(const swl_disk *d, const swl_tokenizer *t, const swl_canon *prompt, const int32_t *prompt_ids,
                      bool loose, int32_t more_than, int32_t *usable)
{
    swl_canon canon = {0};
    int32_t best = -1;

    *usable = more_than;
    for (int32_t i = 0; i < d->n; i++) {
        const swl_snapshot_info *f = &d->files[i].info;
        int32_t have, of_prompt, u;

        if (!f->ids || f->n_tokens <= *usable || f->n_tokens > d->ctx_tokens ||
            swl_canon_set(&canon, t, f->ids, f->n_tokens, 0, NULL))
            continue;
        swl_canon_match(&canon, f->ids, prompt, prompt_ids, t, loose, &have, &of_prompt);
        u = usable_of(f, have, prompt->n - of_prompt);
        if (u > *usable) {
            *usable = u;
            best = i;
        }
    }
    swl_canon_deinit(&canon);
    return best;
}

/* One on its way is read under the name that it has now, unless it gets its own in the meantime. */
static swl_status open_listed(const swl_disk *d, const swl_disk_file *f, int *fd, const char *path, swl_error *err)
{
    const swl_sync_file *on_its_way = f->saving ? swl_sync_find(d->sync, f->name) : NULL;

    if (on_its_way && !swl_file_open(fd, NULL, on_its_way->tmp, NULL))
        return SWL_OK;
    return swl_file_open(fd, NULL, path, err);
}

swl_status swl_disk_load(swl_disk *d, int32_t file, swl_session *s, swl_error *err)
{
    char *path = swl_path_join(d->dir, d->files[file].name);
    swl_status st;
    int fd;

    if (!path)
        return no_memory(err);
    st = open_listed(d, &d->files[file], &fd, path, err);
    if (!st) {
        st = swl_snapshot_read(s, fd, 0, d->files[file].info.snapshot_bytes, path, err);
        swl_file_close(fd);
    }
    if (st == SWL_E_CORRUPT && !d->files[file].saving)
        remove_file(d, file);
    else if (st == SWL_E_CORRUPT || st == SWL_E_NOT_FOUND)
        forget(d, file);
    else
        d->files[file].used = d->clock++;
    swl_free(path);
    return st;
}

/* ---- answers ---- */

static json_t *read_turns(const swl_disk *d, const swl_disk_file *f)
{
    char *path = swl_path_join(d->dir, f->name);
    json_t *turns = NULL;
    uint64_t size;
    int fd;

    if (path && !swl_file_open(&fd, &size, path, NULL)) {
        swl_turns_read(&turns, fd, path, f->info.snapshot_bytes, size, NULL); /* without them its state is still good */
        swl_file_close(fd);
    }
    swl_free(path);
    return turns;
}

void swl_disk_turns(const swl_disk *d, void (*take)(void *arg, const json_t *turns), void *arg)
{
    for (int32_t i = 0; i < d->n; i++) { /* in order of use, as list_dir left them */
        json_t *turns = d->files[i].info.ids ? read_turns(d, &d->files[i]) : NULL;

        take(arg, turns);
        json_decref(turns);
    }
}

/* ---- saving ---- */

static swl_status name_of(const swl_disk *d, const int32_t *ids, int32_t n, char name[80], swl_error *err)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    const uint32_t layout[] = {LAYOUT_VERSION, d->exact, (uint32_t)n};
    uint8_t digest[32];
    bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) &&
              EVP_DigestUpdate(md, d->fingerprint, sizeof d->fingerprint) &&
              EVP_DigestUpdate(md, layout, sizeof layout) && EVP_DigestUpdate(md, ids, (size_t)n * sizeof *ids) &&
              EVP_DigestFinal_ex(md, digest, NULL);

    EVP_MD_CTX_free(md);
    if (!ok)
        return no_memory(err);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    memcpy(name + HEX, suffix, sizeof suffix);
    return SWL_OK;
}

static int32_t find_name(const swl_disk *d, const char *name)
{
    for (int32_t i = 0; i < d->n; i++)
        if (!strcmp(d->files[i].name, name))
            return i;
    return -1;
}

/* Files whose conversation is the beginning of ids[0..n). */
static void remove_beginnings(swl_disk *d, const int32_t *ids, int32_t n)
{
    for (int32_t i = d->n - 1; i >= 0; i--) {
        const swl_snapshot_info *f = &d->files[i].info;

        if (!d->files[i].saving && f->ids && f->n_tokens < n && !memcmp(f->ids, ids, (size_t)f->n_tokens * sizeof *ids))
            remove_file(d, i);
    }
}

static swl_status write_file(swl_sync_file *f, const char *path, const swl_session *s, const int32_t *marks, int32_t n_marks,
                             const json_t *turns, swl_error *err)
{
    swl_status st = swl_file_atomic_begin(&f->file, path, err);

    if (st)
        return st;
    swl_chat_private(f->file.fd);
    st = swl_snapshot_write(s, swl_session_n_tokens(s), marks, n_marks, f->file.fd, path, err);
    if (!st && json_array_size(turns))
        st = swl_turns_write(turns, f->file.fd, path, err);
    if (!st && !(f->tmp = swl_strdup(f->file.tmp)))
        st = no_memory(err);
    return st ? swl_file_atomic_end(&f->file, st, err) : SWL_OK;
}

/* What was written goes its way. One that is not listed for want of memory is found at the next opening. */
static void put(swl_disk *d, swl_sync_file *written)
{
    swl_disk_file *f = new_file(d);

    if (f) {
        memcpy(f->name, written->name, sizeof f->name);
        f->used = d->clock++;
        f->saving = true;
        if (swl_snapshot_peek(&f->info, written->tmp, d->ctx_tokens, NULL))
            f->info.ids = NULL;
        d->bytes += f->info.bytes;
    }
    swl_sync_put(d->sync, written);
}

/* Whether a conversation is there, or on its way, under its name. */
static bool has(swl_disk *d, const char *name, const char *path, bool *saving)
{
    int32_t i = find_name(d, name);

    *saving = i >= 0 && d->files[i].saving;
    if (i < 0)
        return false;
    if (*saving || (d->files[i].info.ids && swl_file_exists(path))) { /* somebody else may have removed it */
        d->files[i].used = d->clock++;
        return true;
    }
    forget(d, i);
    return false;
}

swl_status swl_disk_save(swl_disk *d, const swl_session *s, const int32_t *marks, int32_t n_marks, const json_t *turns,
                         bool *saving, swl_error *err)
{
    swl_sync_file *f = swl_calloc(1, sizeof *f);
    bool written = false;
    swl_status st = f ? name_of(d, swl_session_ids(s), swl_session_n_tokens(s), f->name, err) : no_memory(err);
    char *path = st ? NULL : swl_path_join(d->dir, f->name);

    *saving = false;
    if (!st && !path)
        st = no_memory(err);
    if (!st && !has(d, f->name, path, saving)) {
        st = write_file(f, path, s, marks, n_marks, turns, err);
        *saving = written = !st;
    }
    if (written)
        put(d, f);
    else
        swl_sync_file_free(f);
    swl_free(path);
    return st;
}

/* A file bears its name now, or is gone. */
static void settle(swl_disk *d, int32_t i, bool failed)
{
    char name[sizeof d->files->name];
    swl_disk_file *f = &d->files[i];

    f->saving = false;
    if (failed) {
        forget(d, i);
        return;
    }
    memcpy(name, f->name, sizeof name);
    if (f->info.ids)
        remove_beginnings(d, f->info.ids, f->info.n_tokens);
    i = find_name(d, name);
    if (d->files[i].info.bytes > d->bytes_max)
        remove_file(d, i);
    else
        shrink(d, name);
}

bool swl_disk_settle(swl_disk *d, int32_t most, swl_error *err)
{
    swl_sync_file *f = swl_sync_take(d->sync, most);
    int32_t i;

    if (!f)
        return false;
    *err = f->err;
    i = find_name(d, f->name);
    if (i >= 0)
        settle(d, i, f->err.code);
    swl_sync_file_free(f);
    return true;
}
