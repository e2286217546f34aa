/*
 * pull.c: swl_pull. Source, connection, what the source has, target, lock, state, then one of the two ways, then the end.
 * Everything that can be refused is refused before the first large byte.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "format/checkpoint_parts.h"
#include "install/place.h"
#include "install/pull_impl.h"
#include "install/skeleton.h"

#define EVENT_SECONDS 0.1
#define EVENT_BYTES   (UINT64_C(8) << 20)
#define MARGIN_BYTES  (UINT64_C(1) << 30)

const char *swl_pull_phase_name(swl_pull_phase phase)
{
    static const char *const names[] = {"plan", "fetch", "convert", "verify", "finish"};

    return (unsigned)phase < 5 ? names[phase] : "unknown";
}

void swl_pull_options_init(swl_pull_options *o)
{
    *o = (swl_pull_options){.n_streams = 4, .part_bytes = UINT64_C(256) << 20, .bits = 4, .group = 64,
                            .connect_seconds = 10, .stall_seconds = 30, .retry_seconds = 1};
}

/* ---- telling the caller ---------------------------------------------------------------------------------------------- */

static void send_event(swl_puller *p, swl_pull_event_kind kind, const char *file, const char *text)
{
    swl_pull_event e = {.kind = kind, .phase = p->phase, .file = file, .done = p->done, .total = p->total, .text = text};

    if (p->o->on_event)
        p->o->on_event(p->o->arg, &e);
}

void swl_puller_note(swl_puller *p, swl_pull_event_kind kind, const char *file, const char *text)
{
    send_event(p, kind, file, text);
}

void swl_puller_phase(swl_puller *p, swl_pull_phase phase, uint64_t done, uint64_t total)
{
    p->phase = phase;
    p->done = p->told = done;
    p->total = total;
    p->file = NULL;
    send_event(p, SWL_PULL_PROGRESS, NULL, NULL);
}

/* After a sync that failed the state stays as it was saved last: systems report a lost page once, and then take it for clean. */
swl_status swl_puller_save(swl_puller *p, swl_error *err)
{
    swl_status st;

    if (p->lost)
        return swl_fail(err, SWL_E_IO, "what was written last did not reach the disk");
    st = p->gather ? p->gather(p->gather_arg, err) : SWL_OK;
    p->lost = st != SWL_OK;
    p->last_save = swl_seconds();
    p->unsaved = 0;
    if (st || !p->gather || !p->staged)
        return st;
    return swl_state_save(&p->state, p->dir, err);
}

static bool cancelled(const swl_puller *p)
{
    return p->o->cancel && *p->o->cancel;
}

swl_status swl_puller_bytes(void *puller, uint64_t n, swl_error *err)
{
    swl_puller *p = puller;
    double now = swl_seconds();

    p->done += n;
    p->unsaved += n;
    if (p->done - p->told >= EVENT_BYTES || now - p->last_event >= EVENT_SECONDS) {
        p->told = p->done;
        p->last_event = now;
        send_event(p, SWL_PULL_PROGRESS, p->file, NULL);
    }
    return cancelled(p) ? swl_fail(err, SWL_E_CANCELLED, "stopped on request") : SWL_OK;
}

swl_status swl_puller_tick(void *puller, swl_error *err)
{
    swl_puller *p = puller;
    swl_status st = swl_puller_bytes(p, 0, err);

    if (!st && p->gather && p->unsaved && (p->unsaved >= p->o->part_bytes || swl_seconds() - p->last_save >= SWL_SAVE_SECONDS))
        st = swl_puller_save(p, err);
    return st;
}

static void on_news(void *arg, swl_transfer_news what, const char *path, const char *text)
{
    static const swl_pull_event_kind kinds[] = {SWL_PULL_STALL, SWL_PULL_RETRY, SWL_PULL_NOTE};

    send_event(arg, kinds[what], path, text);
}

/* ---- room and plan --------------------------------------------------------------------------------------------------- */

static swl_status check_room(const swl_puller *p, const swl_pull_plan *plan, swl_error *err)
{
    if (p->o->force || p->o->dry_run || plan->disk_free >= plan->disk_needed)
        return SWL_OK;
    return swl_fail_at(err, SWL_E_BUDGET, p->stage.parent, -1,
                       "%s needs %.2f GiB on disk with a margin, %.2f GiB are free (%" PRIu64 " of %" PRIu64
                       " bytes); --force goes on all the same",
                       p->o->target, (double)plan->disk_needed / 1073741824.0, (double)plan->disk_free / 1073741824.0,
                       plan->disk_free, plan->disk_needed);
}

swl_status swl_puller_show_plan(swl_puller *p, swl_pull_plan *plan, swl_error *err)
{
    uint64_t margin = plan->result_bytes / 100;

    if (plan->disk_needed)
        plan->disk_needed += margin > MARGIN_BYTES ? margin : MARGIN_BYTES;
    plan->disk_free = swl_place_free(p->stage.dir);
    plan->source = swl_source_label(&p->remote.source);
    plan->commit = p->remote.commit;
    plan->target = p->o->target;
    p->result->result_bytes = plan->result_bytes;
    if (p->o->on_plan)
        p->o->on_plan(p->o->arg, plan);
    return check_room(p, plan, err);
}

/* ---- a source on this machine ----------------------------------------------------------------------------------------- */

static swl_status load_small(const char *dir, const char *name, char **text, size_t *n, swl_error *err)
{
    char *path = swl_path_join(dir, name);
    swl_status st = path ? swl_file_load(text, n, path, UINT64_C(4) << 20, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (st == SWL_E_NOT_FOUND)
        st = SWL_OK;
    swl_free(path);
    return st;
}

/* Files that a container has without saying so. */
static swl_status add_unlisted(swl_remote *r, const char *dir, const char *const *names, swl_error *err)
{
    swl_status st = SWL_OK;

    for (; *names && !st; names++) {
        char *path = swl_path_join(dir, *names);
        uint64_t size;
        swl_entry *e;
        int fd;

        if (path && !swl_listing_find(&r->files, *names) && swl_file_exists(path)) {
            st = swl_file_open(&fd, &size, path, err);
            swl_file_close(fd);
            if (!st)
                st = swl_listing_add(&r->files, *names, size, &e, dir, err);
        }
        swl_free(path);
    }
    return st;
}

swl_status swl_puller_list_local(swl_puller *p, const char *dir, swl_error *err)
{
    static const char *const more[] = {"packed_experts/layout.json", "swiftlet.json", NULL};
    swl_remote *r = &p->remote;
    char *copy = NULL;
    swl_status st = load_small(dir, "manifest.json", &r->manifest, &r->n_manifest, err);

    if (!st)
        st = load_small(dir, "hashes.json", &r->hashes, &r->n_hashes, err);
    if (!st)
        st = swl_listing_manifest(&r->files, r->manifest, r->n_manifest, "manifest.json", err);
    if (!st && r->hashes) {
        copy = swl_strndup(r->hashes, r->n_hashes);
        st = copy ? swl_listing_hashes(&r->files, copy, strlen(copy), "hashes.json", err)
                  : swl_fail(err, SWL_E_NOMEM, "out of memory");
    }
    if (!st)
        st = add_unlisted(r, dir, swl_companions, err);
    if (!st)
        st = add_unlisted(r, dir, more, err);
    for (int32_t i = r->files.n; i-- > 0 && !st;) {
        swl_entry *e = &r->files.e[i];
        char *path = swl_path_join(dir, e->path);
        int fd = -1;

        if (e->size == SWL_SIZE_UNKNOWN && path && strcmp(e->path, "manifest.json"))
            st = swl_file_open(&fd, &e->size, path, err);
        swl_file_close(fd);
        swl_free(path);
        if (!strcmp(e->path, "manifest.json") || !strcmp(e->path, "hashes.json")) {
            swl_free(e->path);
            memmove(e, e + 1, (size_t)(r->files.n - i - 1) * sizeof *e);
            r->files.n--;
        }
    }
    swl_free(copy);
    r->packed = true;
    return st ? st : swl_listing_finish(&r->files, dir, err);
}

typedef struct repack_progress {
    swl_puller *p;
} repack_progress;

static bool on_repack_wait(void *arg, const char *text)
{
    swl_puller *p = ((repack_progress *)arg)->p;

    send_event(p, SWL_PULL_WAITING, NULL, text);
    return !cancelled(p);
}

static void on_repack_plan(void *arg, const swl_pull_plan *plan)
{
    swl_puller *p = ((repack_progress *)arg)->p;

    p->result->result_bytes = plan->result_bytes;
    if (p->o->on_plan)
        p->o->on_plan(p->o->arg, plan);
}

static bool on_repack(void *arg, uint64_t done, uint64_t total)
{
    swl_puller *p = ((repack_progress *)arg)->p;

    p->phase = SWL_PULL_CONVERT;
    p->total = total;
    p->done = done;
    return swl_puller_bytes(p, 0, NULL) == SWL_OK;
}

static void set_way(const swl_puller *p, const char *way)
{
    snprintf(p->result->way, sizeof p->result->way, "%s", way);
}

/* A checkpoint in a directory is what swl_repack is for. */
static swl_status convert_local(swl_puller *p, const char *dir, swl_error *err)
{
    repack_progress progress = {p};
    swl_repack_options o;

    swl_repack_options_init(&o);
    o.source = dir;
    o.output = p->o->target;
    o.bits = p->o->bits;
    o.group = p->o->group;
    o.recipe = p->o->recipe;
    o.minmax = p->o->minmax;
    o.exact_scales = p->o->exact_scales;
    o.replace = p->o->replace;
    o.force = p->o->force;
    o.dry_run = p->o->dry_run;
    o.already = &p->result->already;
    o.on_progress = on_repack;
    o.on_plan = on_repack_plan;
    o.on_wait = p->o->no_wait ? NULL : on_repack_wait;
    o.arg = &progress;
    snprintf(p->result->verified_by, sizeof p->result->verified_by, "local");
    set_way(p, "converted");
    return swl_repack(&o, err);
}

/* ---- what a source without commits has ------------------------------------------------------------------------------- */

/* When a local file was changed; other places do not say, or not reliably. */
static int64_t changed_at(const swl_puller *p, const swl_entry *e)
{
    char *path = p->local ? swl_path_join(p->local, e->path) : NULL;
    struct stat sb;
    int64_t t = path && !e->digest[0].kind && !e->digest[1].kind && !stat(path, &sb) ? (int64_t)sb.st_mtime : 0;

    swl_free(path);
    return t;
}

/* Names, lengths and digests of its files; of files without one that lie here, the time. */
static swl_status digest_listing(swl_puller *p, swl_error *err)
{
    const swl_listing *l = &p->remote.files;
    swl_sha256 *sha = swl_sha256_new();
    bool ok = sha != NULL;

    for (int32_t i = 0; ok && i < l->n; i++) {
        const swl_digest *known = l->e[i].digest[1].kind ? &l->e[i].digest[1] : &l->e[i].digest[0];
        char digest[SWL_DIGEST_TEXT] = "", *line;

        if (known->kind)
            swl_digest_print(known, digest);
        line = swl_asprintf("%s %" PRIu64 " %" PRId64 " %s\n", l->e[i].path, l->e[i].size, changed_at(p, &l->e[i]), digest);
        ok = line != NULL;
        if (ok)
            swl_sha256_update(sha, line, strlen(line));
        swl_free(line);
    }
    if (ok)
        swl_sha256_end(sha, p->listing);
    swl_sha256_free(sha);
    return ok ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
}

json_t *swl_puller_record(const swl_puller *p, json_t *options)
{
    if (options && p->listing[0] && json_object_set_new(options, "listing", json_string(p->listing))) {
        json_decref(options);
        return NULL;
    }
    return options;
}

static bool same_version(const swl_puller *p, const swl_state *s)
{
    const char *listing = json_string_value(json_object_get(s->options, "listing"));

    if (p->remote.commit && s->commit && strcmp(p->remote.commit, s->commit))
        return false;
    return !listing || !p->listing[0] || !strcmp(listing, p->listing);
}

/* ---- the target ------------------------------------------------------------------------------------------------------- */

static swl_status open_check(const char *dir, swl_error *err)
{
    swl_checkpoint *c = NULL;
    swl_status st = swl_checkpoint_open(&c, dir, err);

    swl_checkpoint_close(c);
    return st;
}

static bool same_name(const swl_puller *p, const swl_state *s)
{
    const char *label = swl_source_label(&p->remote.source);

    return s->source && label && !strcmp(s->source, label);
}

/* *already: the target is complete and of this source. An error when it is in the way. */
static swl_status look_at_target(swl_puller *p, bool *already, swl_error *err)
{
    swl_state s;
    struct stat sb;
    char *manifest;
    bool container;

    *already = false;
    if (stat(p->o->target, &sb))
        return SWL_OK;
    manifest = swl_path_join(p->o->target, "manifest.json");
    container = manifest && swl_file_exists(manifest);
    swl_free(manifest);
    if (p->o->replace || (!container && p->o->adopt))
        return SWL_OK;
    if (!container)
        return swl_fail_at(err, SWL_E_ARG, p->o->target, -1,
                           "%s exists and is no complete container; it is kept as it is (--adopt takes over what another "
                           "program left unfinished)",
                           p->o->target);
    if (swl_state_load(&s, p->o->target, NULL) == SWL_OK) {
        bool same = s.complete && same_name(p, &s);
        bool version = same_version(p, &s), as_asked = version && swl_conversion_matches(&p->asked, s.options);

        *already = same && as_asked;
        swl_state_deinit(&s);
        if (*already)
            return open_check(p->o->target, err);
        if (same)
            return swl_fail_at(err, SWL_E_ARG, p->o->target, -1,
                               "%s holds %s of %s; --replace exchanges it once the new one is complete", p->o->target,
                               version            ? "a conversion with other options"
                               : p->remote.commit ? "another commit"
                                                  : "another version",
                               swl_source_label(&p->remote.source));
    }
    return swl_fail_at(err, SWL_E_ARG, p->o->target, -1,
                       "%s exists already and is of another source; it is kept unless --replace is given", p->o->target);
}

/* What another program left in the target becomes the stage: it is hashed there, and what differs is fetched. */
static swl_status adopt(swl_puller *p, swl_error *err)
{
    char *partial, *mark;
    struct stat sb;
    swl_status st = SWL_OK;

    if (!p->o->adopt || stat(p->o->target, &sb) || !S_ISDIR(sb.st_mode))
        return SWL_OK;
    partial = swl_asprintf("%s.partial", p->o->target);
    mark = swl_path_join(p->o->target, SWL_STAGE_MARK);
    if (!partial || !mark)
        st = swl_fail(err, SWL_E_NOMEM, "out of memory");
    else if (!stat(partial, &sb))
        st = swl_fail_at(err, SWL_E_ARG, partial, -1, "%s is there too; only one of both can be taken over", partial);
    else if (!swl_file_exists(mark))
        st = swl_file_save(mark, "{}\n", 3, err); /* makes it recognisable as ours */
    if (!st && rename(p->o->target, partial))
        st = swl_fail_errno(err, p->o->target, "cannot rename %s", p->o->target);
    swl_free(partial);
    swl_free(mark);
    return st;
}

static swl_status on_wait(void *arg, swl_error *err)
{
    swl_puller *p = arg;
    char owner[SWL_OWNER_BYTES], text[SWL_OWNER_BYTES + 60];

    swl_stage_owner(&p->stage, owner);
    if (p->o->no_wait)
        return swl_fail_at(err, SWL_E_FAIL, p->o->target, -1, "%s is installing %s", owner, p->o->target);
    snprintf(text, sizeof text, "%s is installing this; waiting for it", owner);
    send_event(p, SWL_PULL_WAITING, NULL, text);
    return cancelled(p) ? swl_fail(err, SWL_E_CANCELLED, "stopped on request") : SWL_OK;
}

/* Lock, and what the last run left. */
static swl_status take_stage(swl_puller *p, swl_error *err)
{
    swl_status st = swl_stage_take(&p->stage, p->o->target, p->o->replace, on_wait, p, err);

    if (st)
        return st;
    p->staged = true;
    p->dir = p->stage.dir;
    if (swl_state_load(&p->state, p->stage.dir, NULL))
        p->state = (swl_state){0}; /* none, or unreadable: files count as far as their digests hold */
    return SWL_OK;
}

/* A stage without any progress is not worth keeping. */
static void leave_stage(swl_puller *p, swl_status st)
{
    char *stored = p->staged ? swl_asprintf("%s/.source/%s", p->stage.dir, SWL_STAGE_MARK) : NULL;
    bool any = stored && swl_file_exists(stored);

    swl_free(stored);
    if (!p->staged)
        return;
    for (int32_t i = 0; i < p->state.n_files; i++)
        any |= p->state.files[i].verified || p->state.files[i].done.n;
    if (p->stage.keep && (p->fresh || (st && !p->o->dry_run)))
        p->stage.keep = any;
    swl_stage_close(&p->stage);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

/* What a conversion read from goes, or stays without the state of its download. */
static swl_status leave_skeleton(const swl_puller *p, swl_error *err)
{
    char *dir = swl_path_join(p->stage.dir, SWL_SKELETON);
    swl_status st = dir ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory");

    if (!st && swl_dir_exists(dir))
        st = p->o->keep_source ? swl_place_remove(dir, SWL_STAGE_MARK, err) : swl_stage_remove(dir, err);
    swl_free(dir);
    return st;
}

swl_status swl_puller_finish(swl_puller *p, swl_error *err)
{
    swl_status st;

    swl_puller_phase(p, SWL_PULL_FINISH, 0, 1);
    p->state.complete = true;
    swl_free(p->state.stamp);
    p->state.stamp = NULL;
    st = open_check(p->stage.dir, err);
    if (!st)
        st = swl_place_sync_dirs(p->stage.dir, err);
    if (!st) /* from here on a run that is ended in any way has only to be finished */
        st = swl_state_save(&p->state, p->stage.dir, err);
    if (!st)
        st = leave_skeleton(p, err);
    if (!st)
        st = swl_state_sweep(&p->state, p->stage.dir, p->o->keep_source ? SWL_SKELETON : NULL, err);
    if (!st)
        st = swl_stage_check_target(&p->stage, err);
    if (!st)
        st = swl_stage_commit(&p->stage, err);
    if (!st)
        swl_puller_phase(p, SWL_PULL_FINISH, 1, 1);
    return st;
}

/* ---- the order of things ---------------------------------------------------------------------------------------------- */

static swl_status check_options(const swl_pull_options *o, swl_error *err)
{
    if (!o->target || !*o->target)
        return swl_fail(err, SWL_E_ARG, "no target is given");
    if (o->n_streams < 1 || o->n_streams > 8)
        return swl_fail(err, SWL_E_ARG, "%d streams are not possible, expected 1 to 8", (int)o->n_streams);
    if (o->part_bytes < 4096)
        return swl_fail(err, SWL_E_ARG, "parts of %" PRIu64 " bytes are too small, expected at least 4096", o->part_bytes);
    return SWL_OK;
}

swl_status swl_puller_connect(swl_puller *p, const swl_source *s, swl_error *err)
{
    swl_http_options h = {.endpoint = s->endpoint,
                          .token = s->kind == SWL_SOURCE_HUB ? p->o->token : NULL, .proxy = p->o->proxy, .no_proxy = p->o->no_proxy,
                          .ca_file = p->o->ca_file, .connect_seconds = p->o->connect_seconds};
    swl_origin o;

    p->t = (swl_transfer){.has_token = p->o->token && *p->o->token, .n_streams = p->o->n_streams,
                          .part_bytes = p->o->part_bytes, .stall_seconds = p->o->stall_seconds,
                          .retry_seconds = p->o->retry_seconds, .tick = swl_puller_tick, .news = on_news, .arg = p};
    if (swl_url_origin(s->kind == SWL_SOURCE_HUB ? s->endpoint : s->name, &o) && !o.https && !swl_origin_is_loopback(&o) &&
        !p->o->sha256)
        swl_puller_note(p, SWL_PULL_NOTE, NULL, "plain http: anyone on the way can change what comes");
    swl_status st = swl_http_open(&p->t.http, &h, err);

    p->http = p->t.http;
    return st;
}

/* The snapshot of a hub repository in one of the caches; NULL when there is none. */
static char *cached_snapshot(const swl_puller *p, const swl_source *s)
{
    const char *slash = strchr(s->name, '/');
    char *dir = NULL;

    for (int32_t i = 0; i < p->o->n_cache_roots && !dir; i++) {
        char *repo = swl_asprintf("%s/models--%.*s--%s", p->o->cache_roots[i], (int)(slash - s->name), s->name, slash + 1);
        char *ref = repo ? swl_asprintf("%s/refs/%s", repo, s->revision) : NULL, *commit = NULL;
        size_t n = 0;

        if (ref && swl_file_load(&commit, &n, ref, 100, NULL) == SWL_OK)
            commit[strcspn(commit, " \r\n")] = 0;
        dir = repo ? swl_asprintf("%s/snapshots/%s", repo, commit ? commit : s->revision) : NULL;
        if (dir && !swl_dir_exists(dir)) {
            swl_free(dir);
            dir = NULL;
        }
        swl_free(commit);
        swl_free(ref);
        swl_free(repo);
    }
    return dir;
}

/* The same, or the GGUF file in it that is meant. */
static char *cached_source(const swl_puller *p, const swl_source *s)
{
    char *dir = cached_snapshot(p, s), *path = dir && s->file ? swl_path_join(dir, s->file) : NULL;

    if (!s->file)
        return dir;
    swl_free(dir);
    if (path && !swl_file_exists(path)) {
        swl_free(path);
        path = NULL;
    }
    return path;
}

/* Without a connection: the target as it is, or the hub's cache. */
static swl_status go_offline(swl_puller *p, swl_source *s, bool *already, swl_error *err)
{
    char *dir;
    swl_status st;

    p->remote.source = *s;
    *s = (swl_source){0};
    st = look_at_target(p, already, err);
    if (st || *already)
        return st;
    dir = p->remote.source.kind == SWL_SOURCE_HUB ? cached_source(p, &p->remote.source) : NULL;
    if (!dir)
        return swl_fail(err, SWL_E_NOT_FOUND, "%s is neither installed as %s nor in a cache, and --offline forbids asking for it",
                        swl_source_label(&p->remote.source), p->o->target);
    p->local = dir;
    return SWL_OK;
}

/* A directory of this machine; takes `s` over. */
static swl_status stay_here(swl_puller *p, const swl_source *s, swl_error *err)
{
    p->remote.source = *s;
    p->local = swl_strdup(s->name);
    return p->local ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory");
}

static swl_status find_out(swl_puller *p, bool *already, swl_error *err)
{
    swl_source s;
    swl_status st = swl_source_parse(&s, p->o->source, p->o->revision, p->o->endpoint, err);

    *already = false;
    if (st)
        return st;
    if (s.kind == SWL_SOURCE_DIR)
        return stay_here(p, &s, err);
    if (p->o->offline)
        return go_offline(p, &s, already, err);
    st = swl_puller_connect(p, &s, err);
    if (st)
        swl_source_deinit(&s);
    return st ? st : swl_remote_open(&p->remote, &s, &p->t, p->o, err);
}

swl_status swl_puller_look(swl_puller *p, swl_error *err)
{
    swl_source s;
    swl_status st = swl_source_parse(&s, p->o->source, p->o->revision, p->o->endpoint, err);

    if (st)
        return st;
    if (s.kind == SWL_SOURCE_DIR) {
        st = stay_here(p, &s, err);
        if (st)
            return st;
        return swl_qpack_is(p->local) ? swl_puller_list_local(p, p->local, err) : SWL_OK;
    }
    st = p->o->offline ? swl_fail(err, SWL_E_NOT_FOUND, "--offline forbids asking %s", swl_source_label(&s))
                       : swl_puller_connect(p, &s, err);
    if (st) {
        swl_source_deinit(&s);
        return st;
    }
    return swl_remote_open(&p->remote, &s, &p->t, p->o, err);
}

static swl_status install(swl_puller *p, swl_error *err)
{
    bool already = false;
    swl_status st = adopt(p, err);

    if (!st)
        st = take_stage(p, err);
    p->fresh = !st && !p->state.kind;
    if (!st) /* while waiting, another process may have done it */
        st = look_at_target(p, &already, err);
    if (st || already) {
        p->result->already = already;
        return st;
    }
    set_way(p, p->remote.packed ? "copied" : "converted");
    st = p->remote.packed ? swl_pull_packed(p, err) : swl_pull_raw(p, err);
    if (!st && !p->o->dry_run)
        st = swl_puller_finish(p, err);
    return st;
}

static swl_status run(swl_puller *p, swl_error *err)
{
    bool already = false;
    swl_status st = find_out(p, &already, err);

    if (!st && p->local && !already) {
        if (!swl_qpack_is(p->local))
            return convert_local(p, p->local, err);
        st = swl_puller_list_local(p, p->local, err);
    }
    if (!st && !already && !p->remote.commit && p->remote.files.n)
        st = digest_listing(p, err);
    if (!st && !already)
        st = look_at_target(p, &already, err);
    if (!st && already)
        p->result->already = true;
    return st || already ? st : install(p, err);
}

swl_status swl_pull(const swl_pull_options *opt, swl_pull_result *result, swl_error *err)
{
    swl_pull_result ignored;
    swl_error local = {0};
    swl_puller p = {.o = opt, .result = result ? result : &ignored};
    double begin = swl_seconds();
    swl_status st = check_options(opt, err = err ? err : &local);

    if (!st)
        st = swl_conversion_from(&p.asked, opt->bits, opt->group, opt->recipe, opt->minmax, opt->exact_scales, err);
    *p.result = (swl_pull_result){0};
    if (st)
        return st;
    swl_puller_phase(&p, SWL_PULL_PLAN, 0, 0);
    st = run(&p, err);
    snprintf(p.result->commit, sizeof p.result->commit, "%s", p.remote.commit ? p.remote.commit : "");
    if (p.result->already)
        p.result->way[0] = 0;
    p.result->bytes_received = p.t.n_received;
    p.result->seconds = swl_seconds() - begin;
    leave_stage(&p, st);
    swl_http_close(p.http);
    swl_state_deinit(&p.state);
    swl_remote_close(&p.remote);
    swl_free(p.local);
    return st;
}
