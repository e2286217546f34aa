/*
 * repair.c: swl_repair: bad files of a container are fetched into a folder inside it, checked there, and renamed into place,
 * so that a good file never gives way to one that is not known to be better. Meanwhile it has the lock of whoever would
 * write this container.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "install/place.h"
#include "install/pull_impl.h"

#define FOLDER ".repair"

typedef struct repair {
    swl_puller p;
    swl_pull_options o; /* the caller's, pointed at the recorded source */
    swl_state record;
    swl_stage lock;
    char *dir; /* DIR/.repair */
    const char *const *paths;
    int32_t n_paths;
} repair;

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for a repair");
}

static bool is_asked(const repair *r, const char *path)
{
    for (int32_t i = 0; i < r->n_paths; i++)
        if (!strcmp(r->paths[i], path))
            return true;
    return false;
}

/* Leaves only what is to be fetched in the listing. */
static swl_status narrow(repair *r)
{
    swl_listing *l = &r->p.remote.files;
    int32_t n = 0;

    for (int32_t i = 0; i < l->n; i++) {
        if (is_asked(r, l->e[i].path))
            l->e[n++] = l->e[i];
        else
            swl_free(l->e[i].path);
    }
    l->n = n;
    return SWL_OK;
}

/* Either the source has it, or it is one of the two files that were fetched to find that out. */
static bool is_known(const repair *r, const char *path)
{
    const swl_remote *m = &r->p.remote;

    return swl_listing_find(&m->files, path) || (!strcmp(path, "manifest.json") && m->manifest) ||
           (!strcmp(path, "hashes.json") && m->hashes);
}

/* A list that is bad itself may name what never was. */
static swl_status check_paths(const repair *r, swl_error *err)
{
    bool list_is_bad = is_asked(r, "manifest.json") || is_asked(r, "hashes.json");

    for (int32_t i = 0; i < r->n_paths && !list_is_bad; i++)
        if (!is_known(r, r->paths[i]))
            return swl_fail_at(err, SWL_E_NOT_FOUND, r->paths[i], -1, "%s has no %s", r->p.remote.source.name, r->paths[i]);
    return SWL_OK;
}

static swl_status put_texts(const repair *r, swl_error *err)
{
    const swl_remote *m = &r->p.remote;
    swl_status st = SWL_OK;

    if (is_asked(r, "hashes.json") && m->hashes)
        st = swl_place_put(r->dir, "hashes.json", m->hashes, m->n_hashes, err);
    if (!st && is_asked(r, "manifest.json"))
        st = swl_place_put(r->dir, "manifest.json", m->manifest, m->n_manifest, err);
    return st;
}

/* The folder of a file may be missing as well. */
static void make_folder(char *path)
{
    char *slash = strrchr(path, '/');

    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
}

static swl_status move(const repair *r, const char *path, swl_error *err)
{
    char *from = swl_path_join(r->dir, path), *to = swl_path_join(r->o.target, path);
    swl_status st = SWL_OK;

    if (to)
        make_folder(to);
    if (!from || !to)
        st = no_memory(err);
    else if (rename(from, to))
        st = swl_fail_errno(err, to, "cannot put %s into its place", to);
    swl_free(from);
    swl_free(to);
    return st;
}

static swl_status fetch(repair *r, swl_error *err)
{
    swl_status st = SWL_OK;

    if (mkdir(r->dir, 0777) && !swl_dir_exists(r->dir))
        st = swl_fail_errno(err, r->dir, "cannot create %s", r->dir);
    r->p.dir = r->dir;
    r->p.staged = true; /* there is a place for the state */
    if (!st && swl_state_load(&r->p.state, r->dir, NULL))
        r->p.state = (swl_state){0};
    if (!st)
        st = swl_pull_files(&r->p, err);
    if (!st)
        st = put_texts(r, err);
    for (int32_t i = 0; i < r->n_paths && !st; i++)
        if (is_known(r, r->paths[i]))
            st = move(r, r->paths[i], err);
    if (!st)
        st = swl_place_sync_dirs(r->o.target, err);
    return st ? st : swl_stage_remove(r->dir, err);
}

static swl_status fetch_from(repair *r, swl_error *err)
{
    swl_status st;

    r->p.o = &r->o;
    st = swl_stage_lock(&r->lock, r->o.target, err);
    if (!st)
        st = swl_puller_look(&r->p, err);
    if (!st && !r->p.remote.packed)
        st = swl_fail_at(err, SWL_E_ARG, r->o.source, -1, "%s is no container, so none of its files belongs into %s", r->o.source,
                         r->o.target);
    if (!st)
        st = check_paths(r, err);
    if (!st)
        st = narrow(r);
    return st ? st : fetch(r, err);
}

/* What was converted has no files that could be fetched: the whole is made anew, and the old one kept until then. */
static swl_status make_anew(repair *r, swl_error *err)
{
    json_t *bits = json_object_get(r->record.options, "bits"), *group = json_object_get(r->record.options, "group");

    r->o.replace = true;
    r->o.no_wait = true; /* for a repair, which would only be done again */
    if (json_is_integer(bits) && json_integer_value(bits))
        r->o.bits = (int32_t)json_integer_value(bits);
    if (json_is_integer(group) && json_integer_value(group))
        r->o.group = (int32_t)json_integer_value(group);
    r->o.recipe = swl_conversion_recipe(r->record.options);
    if (r->o.recipe) /* which says how many */
        r->o.bits = 4;
    r->o.minmax = swl_conversion_is_minmax(r->record.options);
    r->o.exact_scales = json_is_true(json_object_get(r->record.options, "exactScales"));
    return swl_pull(&r->o, NULL, err);
}

static swl_status from_record(repair *r, swl_error *err)
{
    const char *how = json_string_value(json_object_get(r->record.options, "container"));

    if (!r->record.kind || !r->record.source || (strcmp(r->record.kind, "hub") && strcmp(r->record.kind, "mirror")) ||
        (!strcmp(r->record.kind, "hub") && !r->record.endpoint))
        return swl_fail_at(err, SWL_E_NOT_FOUND, r->o.target, -1,
                           "%s was not brought from a hub or a mirror (%s), so there is nothing to fetch from; make it again",
                           r->o.target, r->record.source ? r->record.source : "no source is recorded");
    r->o.source = r->record.source;
    r->o.revision = r->record.commit;
    r->o.endpoint = r->record.endpoint ? r->record.endpoint : r->o.endpoint;
    if (r->o.endpoint && r->o.token && r->record.endpoint) {
        swl_origin a, b;

        /* The record is a file like any other: it may not decide who gets the token. */
        if (!swl_url_origin(r->record.endpoint, &a) ||
            !swl_url_origin(r->p.o->endpoint ? r->p.o->endpoint : SWL_HUB_ENDPOINT, &b) || !swl_origin_equal(&a, &b))
            r->o.token = NULL;
    }
    if (how && !strcmp(how, "converted"))
        return make_anew(r, err);
    return fetch_from(r, err);
}

/* Nothing but what a repair that was ended left. */
static swl_status sweep(repair *r, swl_error *err)
{
    swl_status st = swl_dir_exists(r->dir) ? swl_stage_lock(&r->lock, r->o.target, err) : SWL_OK;

    return !st && swl_dir_exists(r->dir) ? swl_stage_remove(r->dir, err) : st;
}

static swl_status repair_all(repair *r, swl_error *err)
{
    bool by_record = r->n_paths && !r->o.source;

    r->dir = swl_path_join(r->o.target, FOLDER);
    if (!r->dir)
        return no_memory(err);
    if (by_record && swl_state_load(&r->record, r->o.target, NULL))
        return swl_fail_at(err, SWL_E_NOT_FOUND, r->o.target, -1, "%s has no record of where it came from", r->o.target);
    return !r->n_paths ? sweep(r, err) : by_record ? from_record(r, err) : fetch_from(r, err);
}

swl_status swl_repair(const swl_pull_options *opt, const char *const *paths, int32_t n_paths, swl_error *err)
{
    swl_pull_result result = {0};
    repair r = {.o = *opt, .paths = paths, .n_paths = n_paths, .p = {.o = opt, .result = &result}, .lock = {.lock = -1}};
    swl_error local = {0};
    char *real = realpath(opt->target, NULL); /* so that every way to a container leads to one lock, and no link is replaced */
    swl_status st;

    err = err ? err : &local;
    r.o.on_plan = NULL;
    r.o.target = real;
    st = real ? repair_all(&r, err) : swl_fail_errno(err, opt->target, "cannot open %s", opt->target);
    swl_stage_close(&r.lock);
    swl_http_close(r.p.http);
    swl_state_deinit(&r.p.state);
    swl_state_deinit(&r.record);
    swl_remote_close(&r.p.remote);
    swl_free(r.p.local);
    swl_free(r.dir);
    free(real);
    return st;
}
