/*
 * pull_packed.c: copies a container file by file. Bytes are written where they belong as they come; once all of a file is
 * there it is read back and compared with every digest that the source publishes. A file that differs is fetched once more;
 * a second time is an error.
 */
#include "install/pull_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "install/place.h"

#define HURRY_BYTES (UINT64_C(8) << 20)

typedef struct job job;
typedef struct item {
    job *j;
    swl_puller *p;
    const swl_entry *e;
    swl_fetch *fetch;
    int fd;
    bool dirty, verified, seen, copied; /* seen: in the state file; copied: from a cache, once */
    uint64_t written, hurried;
    int n_fetched; /* times that all of it came over */
} item;

struct job {
    swl_puller *p;
    item *items;
    swl_fetch *fetches; /* side by side with items */
    int32_t n;
    bool new_entries; /* of directories, which are not durable yet */
};

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

static swl_status open_item(item *it, swl_error *err)
{
    if (it->fd >= 0)
        return SWL_OK;
    it->j->new_entries = true;
    return swl_place_open(&it->fd, it->p->dir, it->e->path, it->e->size, err);
}

static swl_status close_item(item *it, swl_error *err)
{
    swl_status st = it->fd >= 0 && it->dirty ? swl_place_sync(it->fd, it->e->path, err) : SWL_OK;

    it->dirty = it->dirty && st;
    it->p->lost |= st != SWL_OK;
    swl_file_close(it->fd);
    it->fd = -1;
    return st;
}

static swl_status write_item(void *arg, uint64_t at, const uint8_t *data, size_t n, swl_error *err)
{
    item *it = arg;
    swl_status st = open_item(it, err);

    if (!st)
        st = swl_file_write_at(it->fd, it->e->path, at, data, n, err);
    if (st)
        return st;
    it->dirty = true;
    it->written += n;
    if (it->written - it->hurried >= HURRY_BYTES) {
        swl_place_hurry(it->fd, 0, 0);
        it->hurried = it->written;
    }
    it->p->file = it->e->path;
    return swl_puller_bytes(it->p, n, err);
}

static swl_status restart_item(void *arg, swl_error *err)
{
    item *it = arg;
    uint64_t n = swl_spans_total(&it->fetch->done);

    (void)err;
    it->p->done -= n < it->p->done ? n : it->p->done;
    return SWL_OK;
}

/* For the state file: what is durable now. */
static swl_status gather(void *arg, swl_error *err)
{
    job *j = arg;
    swl_status st = j->new_entries ? swl_place_sync_dirs(j->p->dir, err) : SWL_OK;

    j->new_entries = j->new_entries && st;
    for (int32_t i = 0; i < j->n && !st; i++) {
        item *it = &j->items[i];
        swl_state_file *f;

        if (it->dirty && it->fd >= 0)
            st = swl_place_sync(it->fd, it->e->path, err);
        it->dirty = it->dirty && st;
        if (st || (!it->fetch->done.n && !it->verified && !it->seen))
            continue;
        f = swl_state_file_get(&j->p->state, it->e->path);
        if (!f)
            return no_memory(err);
        it->seen = true;
        f->size = it->e->size;
        f->digest = it->e->digest[1].kind ? it->e->digest[1] : it->e->digest[0];
        f->verified = it->verified;
        swl_spans_clear(&f->done);
        for (int32_t k = 0; k < it->fetch->done.n; k++)
            if (!swl_spans_add(&f->done, it->fetch->done.s[k].begin, it->fetch->done.s[k].end))
                return no_memory(err);
    }
    return st;
}

/* ---- what is there already ------------------------------------------------------------------------------------------ */

static bool same_content(const swl_state_file *f, const swl_entry *e)
{
    if (f->size != e->size || !f->digest.kind)
        return false;
    return swl_digest_equal(&f->digest, &e->digest[0]) || swl_digest_equal(&f->digest, &e->digest[1]);
}

/* Takes over what the state file says about an item, when it is about the same bytes. */
static swl_status take_over(item *it, bool same_source, bool unreadable, swl_error *err)
{
    const swl_puller *p = it->p;
    swl_state_file *f = swl_state_file_find(&p->state, it->e->path);
    uint64_t size = 0;
    bool there = swl_place_has(p->dir, it->e->path, &size) && size == it->e->size;

    if (there && !f && unreadable && (it->e->digest[0].kind || it->e->digest[1].kind))
        return swl_spans_add(&it->fetch->done, 0, size) ? SWL_OK : no_memory(err); /* to be hashed */
    if (!f || !there)
        return SWL_OK;
    if (!same_source && !same_content(f, it->e))
        return SWL_OK;
    if (f->size != size)
        return SWL_OK;
    it->seen = true;
    if (p->state.complete) /* all but renamed, or all but removed: what is there is whole, and is hashed to be sure */
        return swl_spans_add(&it->fetch->done, 0, size) ? SWL_OK : no_memory(err);
    it->verified = f->verified && same_content(f, it->e) && swl_spans_total(&f->done) == size;
    for (int32_t k = 0; k < f->done.n; k++)
        if (!swl_spans_add(&it->fetch->done, f->done.s[k].begin, f->done.s[k].end))
            return no_memory(err);
    return SWL_OK;
}

char *swl_puller_find_cached(const swl_puller *p, const swl_entry *e)
{
    const swl_source *s = &p->remote.source;
    char *slash = s->name ? strchr(s->name, '/') : NULL, *path = NULL;

    if (s->kind != SWL_SOURCE_HUB || !slash || !e->digest[0].kind)
        return NULL;
    for (int32_t i = 0; i < p->o->n_cache_roots && !path; i++) {
        uint64_t size = 0;
        int fd;

        path = swl_asprintf("%s/models--%.*s--%s/snapshots/%s/%s", p->o->cache_roots[i], (int)(slash - s->name), s->name,
                            slash + 1, p->remote.commit, e->path);
        if (path && (swl_file_open(&fd, &size, path, NULL) || (swl_file_close(fd), size != e->size))) {
            swl_free(path);
            path = NULL;
        }
    }
    return path;
}

static swl_status copy_item(item *it, const char *from, swl_error *err)
{
    swl_status st;

    it->p->file = it->e->path;
    it->j->new_entries = true;
    st = swl_place_copy(it->p->dir, it->e->path, from, it->e->size, swl_puller_bytes, it->p, err);
    if (!st && !swl_spans_add(&it->fetch->done, 0, it->e->size))
        st = no_memory(err);
    return st;
}

/* What need not come over the network. */
static swl_status copy_items(job *j, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < j->n && !st; i++) {
        item *it = &j->items[i];
        char *from;

        if (swl_spans_total(&it->fetch->done) == it->e->size)
            continue;
        from = j->p->local ? swl_path_join(j->p->local, it->e->path) : it->copied ? NULL : swl_puller_find_cached(j->p, it->e);
        if (from) {
            it->copied = true;
            swl_spans_clear(&it->fetch->done);
            st = copy_item(it, from, err);
            if (!st)
                st = swl_puller_save(j->p, err);
        } else if (j->p->local) {
            st = no_memory(err);
        }
        swl_free(from);
    }
    return st;
}

/* ---- checking -------------------------------------------------------------------------------------------------------- */

static swl_status not_as_published(item *it, const swl_digest *found, const swl_digest *want, swl_error *err)
{
    swl_puller *p = it->p;
    char text[300];

    if (p->local)
        return swl_fail_at(err, SWL_E_CORRUPT, it->e->path, -1, "%s: the digest is %s, expected %s", it->e->path,
                           found->hex, want->hex);
    if (it->n_fetched > 1 && p->t.bases[it->fetch->base].dropped)
        it->n_fetched = 1; /* from a place that is out of the game already */
    if (it->n_fetched > 1)
        return swl_fail_at(err, SWL_E_CORRUPT, it->e->path, -1,
                           "%s came twice with wrong bytes: the digest is %s, expected %s; nothing of it is used",
                           it->e->path, found->hex, want->hex);
    if (it->n_fetched && it->fetch->base >= 0 && it->fetch->base + 1 < p->t.n_bases) {
        p->t.bases[it->fetch->base].dropped = true;
        it->n_fetched = 0;
    }
    snprintf(text, sizeof text, "the bytes do not have the published digest (%.20s... instead of %.20s...); fetching again",
             found->hex, want->hex);
    swl_puller_note(p, SWL_PULL_RETRY, it->e->path, text);
    swl_spans_clear(&it->fetch->done);
    swl_free(it->fetch->target);
    it->fetch->target = NULL;
    return SWL_OK;
}

static swl_status check_item(item *it, swl_error *err)
{
    const swl_entry *e = it->e;
    const swl_digest_kind kinds[2] = {e->digest[0].kind, e->digest[1].kind};
    swl_digest found[2];
    char *path = swl_path_join(it->p->dir, e->path);
    swl_status st = path ? SWL_OK : no_memory(err);

    it->p->file = e->path;
    if (!st && (kinds[0] || kinds[1]))
        st = swl_digest_file(path, kinds, found, 2, swl_puller_bytes, it->p, err);
    swl_free(path);
    for (int k = 0; k < 2 && !st; k++)
        if (kinds[k] && !swl_digest_equal(&found[k], &e->digest[k]))
            return not_as_published(it, &found[k], &e->digest[k], err);
    it->verified = !st;
    return st;
}

static uint64_t bytes_unverified(const job *j)
{
    uint64_t n = 0;

    for (int32_t i = 0; i < j->n; i++)
        n += j->items[i].verified ? 0 : j->items[i].e->size;
    return n;
}

static swl_status check_items(job *j, bool *again, swl_error *err)
{
    swl_status st = SWL_OK;

    *again = false;
    swl_puller_phase(j->p, SWL_PULL_VERIFY, 0, bytes_unverified(j));
    for (int32_t i = 0; i < j->n && !st; i++) {
        if (j->items[i].verified)
            continue;
        st = check_item(&j->items[i], err);
        *again |= !j->items[i].verified;
    }
    return st ? st : swl_puller_save(j->p, err);
}

/* ---- bringing over --------------------------------------------------------------------------------------------------- */

static uint64_t bytes_there(const job *j)
{
    uint64_t n = 0;

    for (int32_t i = 0; i < j->n; i++)
        n += swl_spans_total(&j->fetches[i].done);
    return n;
}

static uint64_t bytes_in_all(const job *j)
{
    uint64_t n = 0;

    for (int32_t i = 0; i < j->n; i++)
        n += j->items[i].e->size;
    return n;
}

static swl_status fetch_items(job *j, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < j->n; i++)
        j->items[i].n_fetched += swl_spans_total(&j->fetches[i].done) < j->items[i].e->size;
    if (j->p->http)
        st = swl_transfer_run(&j->p->t, j->fetches, j->n, err);
    for (int32_t i = 0; i < j->n; i++) {
        swl_status closed;

        if (!j->items[i].e->size && !st) /* nothing of it ever comes */
            st = open_item(&j->items[i], err);
        closed = close_item(&j->items[i], st ? NULL : err);
        st = st ? st : closed;
    }
    return st;
}

static swl_status bring(job *j, swl_error *err)
{
    bool again = true;
    swl_status st = SWL_OK;

    while (again && !st) {
        swl_puller_phase(j->p, SWL_PULL_FETCH, bytes_there(j), bytes_in_all(j));
        st = copy_items(j, err);
        if (!st)
            st = fetch_items(j, err);
        if (!st)
            st = swl_puller_save(j->p, err);
        if (!st)
            st = check_items(j, &again, err);
    }
    if (st) { /* what is there is kept, whatever happened */
        swl_error ignored;

        swl_puller_save(j->p, &ignored);
    }
    return st;
}

/* ---- the plan --------------------------------------------------------------------------------------------------------- */

static int by_order(const void *a, const void *b)
{
    const swl_entry *x = ((const item *)a)->e, *y = ((const item *)b)->e;
    bool lx = strstr(x->path, "packed_experts/layer_"), ly = strstr(y->path, "packed_experts/layer_");

    if (lx && ly) /* layers in order, so that a reader of the first ones could begin */
        return strcmp(x->path, y->path);
    return x->size != y->size ? (x->size > y->size ? -1 : 1) : strcmp(x->path, y->path);
}

static swl_status set_up(job *j, swl_error *err)
{
    swl_puller *p = j->p;
    const swl_listing *l = &p->remote.files;
    swl_state now = {0};
    bool same, unreadable;
    swl_status st = SWL_OK;

    j->items = swl_calloc((size_t)l->n + 1, sizeof *j->items);
    j->fetches = swl_calloc((size_t)l->n + 1, sizeof *j->fetches);
    if (!j->items || !j->fetches)
        return no_memory(err);
    for (int32_t i = 0; i < l->n; i++)
        j->items[j->n++] = (item){.j = j, .p = p, .e = &l->e[i], .fd = -1};
    qsort(j->items, (size_t)j->n, sizeof *j->items, by_order);
    unreadable = !p->state.kind; /* there was none, or it could not be read */
    if (!swl_state_describe(&now, p->local ? "directory" : p->remote.source.kind == SWL_SOURCE_HUB ? "hub" : "mirror",
                            swl_source_label(&p->remote.source), p->remote.commit,
                            p->remote.source.kind == SWL_SOURCE_HUB ? p->remote.source.endpoint : NULL,
                            swl_puller_record(p, json_pack("{s:s}", "container", "copied"))))
        st = no_memory(err);
    same = !st && swl_state_same(&now, &p->state);
    for (int32_t i = 0; i < j->n && !st; i++) {
        j->items[i].fetch = &j->fetches[i];
        j->fetches[i] = (swl_fetch){.path = j->items[i].e->path, .size = j->items[i].e->size, .write = write_item,
                                    .restart = restart_item, .arg = &j->items[i], .base = -1};
        st = take_over(&j->items[i], same, unreadable, err);
    }
    if (!st && !same && p->state.kind && p->state.commit && p->remote.commit && strcmp(p->state.commit, p->remote.commit))
        swl_puller_note(p, SWL_PULL_NOTE, NULL,
                        "the repository has another commit than when this began; what is equal in both is kept");
    swl_state_deinit(&p->state);
    p->state = now;
    return st;
}

static swl_status show_plan(job *j, swl_error *err)
{
    swl_puller *p = j->p;
    swl_pull_plan plan = {.kind = "qpack", .n_files = j->n, .local = p->local != NULL};
    swl_pull_file *files = swl_calloc((size_t)j->n + 1, sizeof *files);
    char(*digests)[SWL_DIGEST_TEXT] = swl_calloc((size_t)j->n + 1, SWL_DIGEST_TEXT);
    swl_status st = files && digests ? SWL_OK : no_memory(err);

    for (int32_t i = 0; i < j->n && !st; i++) {
        const swl_entry *e = j->items[i].e;
        uint64_t on_disk = swl_place_allocated(p->dir, e->path), have = swl_spans_total(&j->fetches[i].done);
        const swl_digest *d = e->digest[1].kind ? &e->digest[1] : &e->digest[0];

        if (d->kind)
            swl_digest_print(d, digests[i]);
        files[i] = (swl_pull_file){e->path, e->size, have, digests[i],
                                   have == e->size ? SWL_PULL_HAVE : have ? SWL_PULL_RESUME : SWL_PULL_FRESH};
        plan.bytes_total += e->size;
        plan.bytes_left += e->size - have;
        plan.disk_needed += e->size > on_disk ? e->size - on_disk : 0;
        if (!strcmp(e->path, "model.safetensors"))
            plan.dense_bytes = e->size;
    }
    plan.files = files;
    plan.result_bytes = plan.bytes_total + p->remote.n_manifest + p->remote.n_hashes;
    if (!st)
        st = swl_puller_show_plan(p, &plan, err);
    swl_free(digests);
    swl_free(files);
    return st;
}

static void judge_checks(job *j)
{
    const char *weakest = "sha256";
    bool unchecked = false;

    for (int32_t i = 0; i < j->n; i++) {
        const swl_entry *e = j->items[i].e;

        unchecked |= !e->digest[0].kind && !e->digest[1].kind;
        if (e->digest[0].kind != SWL_DIGEST_SHA256 && !e->digest[1].kind)
            weakest = "git-sha1";
    }
    if (unchecked)
        weakest = j->p->local ? "local" : "size";
    snprintf(j->p->result->verified_by, sizeof j->p->result->verified_by, "%s", weakest);
    if (unchecked && !j->p->local)
        swl_puller_note(j->p, SWL_PULL_NOTE, NULL,
                        "the source publishes no hashes.json: only the lengths of files can be checked");
}

static swl_status end_files(job *j, swl_error *err)
{
    swl_puller *p = j->p;
    swl_status st = SWL_OK;

    if (p->remote.hashes)
        st = swl_place_put(p->stage.dir, "hashes.json", p->remote.hashes, p->remote.n_hashes, err);
    if (!st)
        st = swl_place_put(p->stage.dir, "manifest.json", p->remote.manifest, p->remote.n_manifest, err);
    for (int i = 0; i < 2 && !st; i++) {
        const char *name = i ? "manifest.json" : "hashes.json";
        swl_state_file *f = i || p->remote.hashes ? swl_state_file_get(&p->state, name) : NULL;

        if (f) {
            f->size = i ? p->remote.n_manifest : p->remote.n_hashes;
            f->verified = true;
        }
    }
    return st;
}

static void tear_down(job *j)
{
    j->p->gather = NULL;
    for (int32_t i = 0; i < j->n; i++) {
        swl_file_close(j->items[i].fd);
        if (j->fetches)
            swl_fetch_deinit(&j->fetches[i]);
    }
    swl_free(j->items);
    swl_free(j->fetches);
}

static swl_status run(swl_puller *p, bool container, swl_error *err)
{
    job j = {.p = p};
    swl_status st = set_up(&j, err);

    if (!st)
        judge_checks(&j);
    if (!st && container)
        st = show_plan(&j, err);
    p->gather = gather;
    p->gather_arg = &j;
    if (!st && !p->o->dry_run)
        st = swl_puller_save(p, err);
    if (!st && !p->o->dry_run)
        st = bring(&j, err);
    if (!st && !p->o->dry_run && container)
        st = end_files(&j, err);
    tear_down(&j);
    return st;
}

swl_status swl_pull_packed(swl_puller *p, swl_error *err)
{
    return run(p, true, err);
}

swl_status swl_pull_files(swl_puller *p, swl_error *err)
{
    return run(p, false, err);
}
