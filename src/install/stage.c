/*
 * stage.c: lock, clear, commit and discard the directory that a container is built in.
 *
 *   TARGET.partial   exists only while a run works, or after one that the next can go on from
 *   TARGET           the result; with replace it keeps its old content until the exchange
 *
 * The lock is a flock on the directory itself, so no lock file has to be removed and none survives in the result. A
 * process that gets the lock checks that the name still leads to what it locked: the last holder may have renamed it.
 */
#define _GNU_SOURCE
#include "install/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

/* ---- removing a tree ----------------------------------------------------------------------------------------------
 */

#define DEPTH_MAX 8

/* Removes what is in the directory `fd` (which it closes) except the name `keep`; links are removed, not followed. */
static int clear_dir(int fd, const char *keep, int depth)
{
    DIR *d = fdopendir(fd);
    struct dirent *e;
    int rc = 0;

    if (!d) {
        close(fd);
        return -1;
    }
    while (!rc && (e = readdir(d))) {
        int sub;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || (keep && !strcmp(e->d_name, keep)))
            continue;
        if (!unlinkat(dirfd(d), e->d_name, 0))
            continue;
        sub = depth < DEPTH_MAX ? openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        rc = sub < 0 || clear_dir(sub, NULL, depth + 1) || unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) ? -1 : 0;
    }
    closedir(d);
    return rc;
}

static int open_dir(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The mark goes last, on the disk too, so that an interrupted removal still leaves something that is recognised. */
static swl_status clear(const char *path, swl_error *err)
{
    int fd = open_dir(path);
    swl_status st;

    if (fd < 0 || clear_dir(fd, SWL_STAGE_MARK, 0))
        return swl_fail_errno(err, path, "cannot clear %s", path);
    st = swl_dir_sync(path, err);
    if (st)
        return st;
    fd = open_dir(path);
    if (fd < 0 || clear_dir(fd, NULL, 0))
        return swl_fail_errno(err, path, "cannot clear %s", path);
    return SWL_OK;
}

/* ---- whose directory it is ----------------------------------------------------------------------------------------
 */

/* Whether nothing but these two names is there; NULL for none. */
static bool is_empty_but(const char *path, const char *a, const char *b)
{
    DIR *d = opendir(path);
    struct dirent *e;
    bool empty = d != NULL;

    while (d && empty && (e = readdir(d)))
        empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || (a && !strcmp(e->d_name, a)) ||
                (b && !strcmp(e->d_name, b));
    if (d)
        closedir(d);
    return empty;
}

static bool is_empty(const char *path)
{
    return is_empty_but(path, NULL, NULL);
}

static bool holds(const char *dir, const char *name)
{
    char *path = swl_path_join(dir, name);
    bool yes = path && swl_file_exists(path);

    swl_free(path);
    return yes;
}

/* A container, something that this file began, or an empty directory. */
static bool is_ours(const char *dir)
{
    return holds(dir, SWL_STAGE_MARK) || holds(dir, "manifest.json") || is_empty(dir);
}

/* ---- who works on it ------------------------------------------------------------------------------------------------
 */

/* For people alone, so failures are none: the lock is what counts. */
static void write_owner(const swl_stage *s)
{
    char host[100] = "", text[SWL_OWNER_BYTES], *path = swl_path_join(s->dir, SWL_STAGE_OWNER);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666) : -1, n;

    swl_free(path);
    if (fd < 0)
        return;
    if (gethostname(host, sizeof host - 1) || !host[0])
        strcpy(host, "this machine");
    n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    n = (int)write(fd, text, (size_t)n);
    (void)n;
    close(fd);
}

static void remove_owner(const swl_stage *s)
{
    char *path = swl_path_join(s->dir, SWL_STAGE_OWNER);

    if (path)
        unlink(path);
    swl_free(path);
}

void swl_stage_owner(const swl_stage *s, char text[SWL_OWNER_BYTES])
{
    char *path = swl_path_join(s->dir, SWL_STAGE_OWNER), *found = NULL;
    size_t n = 0;
    bool known = path && !swl_file_load(&found, &n, path, SWL_OWNER_BYTES - 1, NULL) && !strncmp(found, "process ", 8);

    snprintf(text, SWL_OWNER_BYTES, "%s", known ? found : "another process");
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = 0;
            break;
        }
    swl_free(found);
    swl_free(path);
}

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

/* Takes back the one moment at which a replacement without RENAME_EXCHANGE has neither old nor new in place. */
static void restore_replaced(const swl_stage *s)
{
    char *aside = swl_asprintf("%s.replaced", s->target);

    if (aside && holds(aside, "manifest.json"))
        rename(aside, s->target);
    swl_free(aside);
}

swl_status swl_stage_check_target(const swl_stage *s, swl_error *err)
{
    struct stat sb;

    if (lstat(s->target, &sb) && errno == ENOENT)
        restore_replaced(s);
    if (lstat(s->target, &sb))
        return errno == ENOENT ? SWL_OK : swl_fail_errno(err, s->target, "cannot look at %s", s->target);
    if (!s->replace)
        return swl_fail_at(err, SWL_E_ARG, s->target, -1,
                           "%s exists already; it is kept unless replacing it is asked for (--replace)", s->target);
    if (!S_ISDIR(sb.st_mode))
        return swl_fail_at(err, SWL_E_ARG, s->target, -1, "%s is not a directory, so it is not replaced", s->target);
    if (!is_ours(s->target))
        return swl_fail_at(err, SWL_E_ARG, s->target, -1,
                           "%s holds something that is no container, so it is not replaced", s->target);
    return SWL_OK;
}

static swl_status fail_busy(const swl_stage *s, const char *path, swl_error *err)
{
    char owner[SWL_OWNER_BYTES];

    swl_stage_owner(s, owner);
    return swl_fail_at(err, SWL_E_FAIL, path, -1, "%s is being written by %s", path, owner);
}

/* 1: locked; 0: the name moved on meanwhile, try again; -1: *err is set; -2: it is, because another process is there. */
static int try_lock(swl_stage *s, swl_error *err)
{
    struct stat mine, named;

    if (mkdir(s->dir, 0777) && errno != EEXIST) {
        swl_fail_errno(err, s->dir, "cannot create %s", s->dir);
        return -1;
    }
    s->lock = open_dir(s->dir);
    if (s->lock < 0 && errno == ENOENT)
        return 0;
    if (s->lock < 0) {
        swl_fail_errno(err, s->dir, "cannot open directory %s", s->dir);
        return -1;
    }
    if (flock(s->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        fail_busy(s, s->target, err);
        return -2;
    } /* other failures: a file system without locks, where nothing better can be done */
    if (!fstat(s->lock, &mine) && !lstat(s->dir, &named) && mine.st_ino == named.st_ino && mine.st_dev == named.st_dev)
        return 1;
    close(s->lock);
    s->lock = -1;
    return 0;
}

static void drop_lock(swl_stage *s)
{
    if (s->lock >= 0)
        close(s->lock); /* another process may hold it: nothing is removed */
    s->lock = -1;
}

static swl_status lock_dir(swl_stage *s, swl_status (*on_wait)(void *arg, swl_error *err), void *arg, swl_error *err)
{
    const struct timespec pause = {0, 200000000};

    for (int tries = 0; tries < 100; tries++) {
        swl_error e = {.code = SWL_E_FAIL};
        int got = try_lock(s, &e);
        swl_status st;

        if (got > 0)
            return SWL_OK;
        if (got < 0)
            drop_lock(s);
        if (got == -2 && on_wait) {
            st = on_wait(arg, err);
            if (st)
                return st;
            nanosleep(&pause, NULL);
            tries = 0;
        } else if (got < 0) {
            if (err)
                *err = e;
            return e.code;
        }
    }
    return swl_fail_at(err, SWL_E_FAIL, s->dir, -1, "%s keeps changing under another process", s->dir);
}

/* Not by way of a temporary name: a directory with anything in it must have the mark. */
static swl_status write_mark(const swl_stage *s, const char *mark, swl_error *err)
{
    char *path = swl_path_join(s->dir, SWL_STAGE_MARK);
    int fd = -1;
    swl_status st = path ? swl_file_create(&fd, path, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st) {
        st = swl_file_write_at(fd, path, 0, mark, strlen(mark), err);
        if (st)
            swl_file_close(fd);
        else
            st = swl_file_finish(fd, path, err);
    }
    swl_free(path);
    return st ? st : swl_dir_sync(s->dir, err);
}

static swl_status name_paths(swl_stage *s, const char *target, swl_error *err)
{
    size_t n = strlen(target);
    const char *slash;

    while (n > 1 && target[n - 1] == '/')
        n--;
    s->target = swl_strndup(target, n);
    if (!s->target)
        return swl_fail(err, SWL_E_NOMEM, "out of memory");
    slash = strrchr(s->target, '/');
    if (!n || !strcmp(slash ? slash + 1 : s->target, "") || !strcmp(slash ? slash + 1 : s->target, ".") ||
        !strcmp(slash ? slash + 1 : s->target, ".."))
        return swl_fail(err, SWL_E_ARG, "\"%s\" is no name for a new directory", target);
    s->parent = !slash ? swl_strdup(".") : swl_strndup(s->target, slash == s->target ? 1 : (size_t)(slash - s->target));
    s->dir = swl_asprintf("%s.partial", s->target);
    return s->parent && s->dir ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory");
}

static swl_status take(swl_stage *s, swl_status (*on_wait)(void *arg, swl_error *err), void *arg, swl_error *err)
{
    swl_status st = SWL_OK;

    if (!swl_dir_exists(s->parent))
        st = swl_fail_at(err, SWL_E_NOT_FOUND, s->parent, -1, "there is no directory %s to write into", s->parent);
    if (!st)
        st = lock_dir(s, on_wait, arg, err);
    if (!st && !is_ours(s->dir)) {
        st = swl_fail_at(err, SWL_E_ARG, s->dir, -1, "%s holds something else; move it away", s->dir);
        drop_lock(s); /* so that closing the stage leaves it alone */
    }
    if (!st && is_empty(s->dir)) /* what is written first goes by a temporary name, which says nothing */
        st = write_mark(s, "{}\n", err);
    if (!st)
        write_owner(s);
    return st;
}

swl_status swl_stage_take(swl_stage *s, const char *target, bool replace, swl_status (*on_wait)(void *arg, swl_error *err),
                          void *arg, swl_error *err)
{
    swl_status st;

    *s = (swl_stage){.lock = -1, .replace = replace, .keep = true};
    st = name_paths(s, target, err);
    if (!st)
        st = take(s, on_wait, arg, err);
    if (st)
        swl_stage_close(s);
    return st;
}

swl_status swl_stage_lock(swl_stage *s, const char *target, swl_error *err)
{
    swl_status st = swl_stage_take(s, target, true, NULL, NULL, err);

    if (!st)
        s->keep = !is_empty_but(s->dir, SWL_STAGE_MARK, SWL_STAGE_OWNER);
    return st;
}

swl_status swl_stage_clear(swl_stage *s, swl_error *err)
{
    swl_status st = clear(s->dir, err);

    if (!st)
        st = write_mark(s, "{}\n", err);
    if (!st)
        write_owner(s);
    return st;
}

swl_status swl_stage_remove(const char *dir, swl_error *err)
{
    swl_status st = clear(dir, err);

    return !st && rmdir(dir) ? swl_fail_errno(err, dir, "cannot remove %s", dir) : st;
}

swl_status swl_stage_open(swl_stage *s, const char *target, bool replace, const char *mark, swl_error *err)
{
    swl_status st;

    *s = (swl_stage){.lock = -1, .replace = replace};
    st = name_paths(s, target, err);
    if (!st)
        st = swl_stage_check_target(s, err);
    if (!st)
        st = take(s, NULL, NULL, err);
    if (!st)
        st = clear(s->dir, err);
    if (!st)
        st = write_mark(s, mark, err);
    if (st)
        swl_stage_close(s);
    else
        write_owner(s);
    return st;
}

swl_status swl_stage_need(const swl_stage *s, uint64_t n_bytes, swl_error *err)
{
    struct statvfs v;
    uint64_t have;

    if (statvfs(s->dir, &v))
        return swl_fail_errno(err, s->dir, "cannot ask for the free space at %s", s->dir);
    have = (uint64_t)v.f_bavail * v.f_frsize;
    if (have < n_bytes)
        return swl_fail_at(err, SWL_E_BUDGET, s->parent, -1,
                           "%s needs %" PRIu64 " bytes on disk, %" PRIu64 " are free (%.2f of %.2f GiB)", s->target,
                           n_bytes, have, (double)have / 1073741824.0, (double)n_bytes / 1073741824.0);
    return SWL_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------------------
 */

/* New and old change names in one step where the system can do that. Otherwise the old one steps aside for a moment. */
static swl_status exchange(swl_stage *s, swl_error *err)
{
    char *aside;
    swl_status st = SWL_OK;

#ifdef RENAME_EXCHANGE
    if (!renameat2(AT_FDCWD, s->dir, AT_FDCWD, s->target, RENAME_EXCHANGE))
        return SWL_OK;
#endif
    aside = swl_asprintf("%s.replaced", s->target);
    if (!aside)
        return swl_fail(err, SWL_E_NOMEM, "out of memory");
    if (rename(s->target, aside))
        st = swl_fail_errno(err, s->target, "cannot rename %s to %s", s->target, aside);
    else if (rename(s->dir, s->target)) {
        st = swl_fail_errno(err, s->target, "cannot rename %s to %s", s->dir, s->target);
        rename(aside, s->target);
    } else if (rename(aside, s->dir))
        st = swl_fail_errno(err, aside, "the new container is in place, but the old one stays in %s", aside);
    swl_free(aside);
    return st;
}

/* Takes the old target's lock along, so that nobody starts in it once it bears the partial name. */
static swl_status replace_old(swl_stage *s, swl_error *err)
{
    int old = open_dir(s->target);
    swl_status st;

    if (old >= 0 && flock(old, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(old);
        return swl_fail_at(err, SWL_E_FAIL, s->target, -1, "%s is being written by another process", s->target);
    }
    st = exchange(s, err);
    if (st && old >= 0) {
        close(old);
    } else if (!st) {
        close(s->lock);
        s->lock = old;
    }
    return st;
}

swl_status swl_stage_commit(swl_stage *s, swl_error *err)
{
    struct stat sb;
    bool old = !lstat(s->target, &sb);
    swl_status st;

    remove_owner(s);
    st = swl_dir_sync(s->dir, err);

    if (!st && old && !s->replace)
        st = swl_fail_at(err, SWL_E_ARG, s->target, -1, "%s appeared while it was being written", s->target);
    if (!st && old)
        st = replace_old(s, err);
    else if (!st && rename(s->dir, s->target))
        st = swl_fail_errno(err, s->target, "cannot rename %s to %s", s->dir, s->target);
    if (st)
        return st;
    s->keep = false;
    if (!old) {
        close(s->lock); /* nothing of ours is left under the partial name */
        s->lock = -1;
    }
    return swl_dir_sync(s->parent, err);
}

/* After an exchange the partial name leads to the old container, which goes the same way as a failed run. */
void swl_stage_close(swl_stage *s)
{
    if (s->lock >= 0 && s->keep) {
        remove_owner(s);
        close(s->lock);
    } else if (s->lock >= 0) {
        if (!holds(s->dir, SWL_STAGE_MARK))
            write_mark(s, "{}\n", NULL);
        if (!clear(s->dir, NULL))
            rmdir(s->dir);
        close(s->lock);
    }
    s->lock = -1;
    swl_free(s->target);
    swl_free(s->parent);
    swl_free(s->dir);
    s->target = s->parent = s->dir = NULL;
}
