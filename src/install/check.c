/*
 * check.c: swl_check: an installed container against everything that is known about its bytes. Each file is read once, front
 * to back, several files at a time; every fault is a row, and nothing is changed. With write_hashes it makes hashes.json.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/threads.h"
#include "format/checkpoint_parts.h"
#include "install/place.h"
#include "install/pull_impl.h"

#define SMALL_BYTES_MAX (UINT64_C(64) << 20)
#define BLOCK_BYTES     (UINT64_C(1) << 20)

typedef struct checking {
    const swl_check_options *o;
    swl_listing files; /* digest[0]: of the record; digest[1]: of hashes.json */
    swl_checkpoint *c; /* NULL when it does not open: the checksums inside are then not known */
    pthread_mutex_t lock;
    uint64_t done, total;
    int32_t n_bad;
    atomic_bool stopped; /* read without the lock */
    swl_error first;
} checking;

void swl_check_options_init(swl_check_options *o)
{
    *o = (swl_check_options){0};
}

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for a check");
}

static _Thread_local int32_t faults_here; /* that this thread has reported: files are checked one at a time by each */

/* ---- telling ----------------------------------------------------------------------------------------------------------- */

static void report(checking *k, const swl_check_row *row)
{
    faults_here += !row->ok;
    pthread_mutex_lock(&k->lock);
    if (!row->ok && !k->n_bad++)
        swl_fail_at(&k->first, SWL_E_CORRUPT, row->path, -1, "%s: %s", row->path, row->text);
    if (k->o->on_row)
        k->o->on_row(k->o->arg, row);
    pthread_mutex_unlock(&k->lock);
}

static void fault(checking *k, const char *path, const char *by, int32_t slot, const char *tensor, const char *text)
{
    const swl_check_row row = {.path = path, .slot = slot, .tensor = tensor, .by = by, .text = text};

    report(k, &row);
}

static void fault_of(checking *k, const char *path, const char *by, const swl_error *e)
{
    fault(k, path, by, -1, NULL, e->message);
}

/* SWL_E_CANCELLED when the caller wants to stop. */
static swl_status advance(void *arg, uint64_t n, swl_error *err)
{
    checking *k = arg;
    bool stop = k->o->cancel && *k->o->cancel;

    pthread_mutex_lock(&k->lock);
    k->done += n;
    if (stop)
        k->stopped = true;
    if (k->o->on_progress)
        k->o->on_progress(k->o->arg, k->done, k->total);
    pthread_mutex_unlock(&k->lock);
    return stop ? swl_fail(err, SWL_E_CANCELLED, "stopped on request") : SWL_OK;
}

/* ---- which files --------------------------------------------------------------------------------------------------------- */

static swl_status load_text(const char *dir, const char *name, char **text, size_t *n, swl_error *err)
{
    char *path = swl_path_join(dir, name);
    swl_status st = path ? swl_file_load(text, n, path, SMALL_BYTES_MAX, err) : no_memory(err);

    swl_free(path);
    return st;
}

/* A bad manifest or hashes.json is a fault of the container, not an end of the check. */
static void list_stated(checking *k, const char *name, bool hashes)
{
    swl_error e = {0};
    char *text = NULL;
    size_t n = 0;
    swl_status st = load_text(k->o->dir, name, &text, &n, &e);

    if (st == SWL_E_NOT_FOUND && hashes)
        return; /* optional */
    if (!st)
        st = hashes ? swl_listing_hashes(&k->files, text, n, name, &e) : swl_listing_manifest(&k->files, text, n, name, &e);
    swl_free(text);
    if (st)
        fault_of(k, name, "json", &e);
}

static void list_recorded(checking *k)
{
    swl_state s;

    if (swl_state_load(&s, k->o->dir, NULL))
        return;
    for (int32_t i = 0; i < s.n_files; i++) {
        swl_entry *e = swl_listing_find(&k->files, s.files[i].path);

        if (!e)
            swl_listing_add(&k->files, s.files[i].path, s.files[i].size, &e, "the record of the installation", NULL);
        if (e)
            e->digest[0] = s.files[i].digest;
    }
    swl_state_deinit(&s);
}

/* ---- what a place publishes -------------------------------------------------------------------------------------------- */

/* The entry of a path, with a length; NULL: out of memory. */
static swl_entry *entry_of(checking *k, const char *path, uint64_t size, swl_error *err)
{
    swl_entry *e = swl_listing_find(&k->files, path);

    if (!e && swl_listing_add(&k->files, path, size, &e, "the source", err))
        return NULL;
    if (size != SWL_SIZE_UNKNOWN)
        e->size = size;
    return e;
}

static swl_status take_text(checking *k, const char *path, const char *text, size_t n, swl_error *err)
{
    swl_entry *e = text ? entry_of(k, path, n, err) : NULL;

    if (!text)
        return SWL_OK;
    return e ? swl_digest_memory(text, n, SWL_DIGEST_SHA256, &e->digest[0], err) : err->code;
}

/* Of a directory that publishes no digests, the files themselves count. */
static swl_status take_entry(checking *k, const swl_puller *p, const swl_entry *from, swl_error *err)
{
    const swl_digest_kind kind = SWL_DIGEST_SHA256;
    swl_entry *e = entry_of(k, from->path, from->size, err);
    char *full;
    swl_status st = SWL_OK;

    if (!e)
        return err->code;
    for (int i = 0; i < 2; i++)
        if (from->digest[i].kind)
            e->digest[i] = from->digest[i];
    if (!p->local)
        return SWL_OK;
    full = swl_path_join(p->local, from->path);
    st = full ? swl_digest_file(full, &kind, &e->digest[0], 1, advance, k, err) : no_memory(err);
    swl_free(full);
    return st;
}

/* A conversion holds other files than its source. What can be compared is where its record says that it came from. */
static swl_status compare_record(checking *k, const swl_puller *p, swl_error *err)
{
    const swl_check_row good = {.path = SWL_STAGE_MARK, .slot = -1, .by = "source", .ok = true, .text = ""};
    const char *label = swl_source_label(&p->remote.source), *commit = p->remote.commit ? p->remote.commit : "no commit";
    char text[600];
    swl_state s;

    if (p->local || swl_state_load(&s, k->o->dir, NULL))
        return swl_fail_at(err, SWL_E_UNSUPPORTED, k->o->dir, -1,
                           "%s is no container, and a container can be compared with a checkpoint only by converting that again: "
                           "equal conversions have equal hashes.json", label);
    snprintf(text, sizeof text, "made from %.150s at %.80s; %.150s now has %.80s", s.source ? s.source : "nothing known",
             s.commit ? s.commit : "no commit", label, commit);
    if (s.source && !strcmp(s.source, label) && !strcmp(s.commit ? s.commit : "no commit", commit))
        report(k, &good);
    else
        fault(k, SWL_STAGE_MARK, "source", -1, NULL, text);
    swl_state_deinit(&s);
    return SWL_OK;
}

static swl_status take_published(checking *k, const swl_puller *p, swl_error *err)
{
    const swl_remote *r = &p->remote;
    swl_status st = SWL_OK;

    if (!r->packed)
        return compare_record(k, p, err);
    for (int32_t i = 0; i < r->files.n && !st; i++)
        st = take_entry(k, p, &r->files.e[i], err);
    if (!st)
        st = take_text(k, "manifest.json", r->manifest, r->n_manifest, err);
    return st ? st : take_text(k, "hashes.json", r->hashes, r->n_hashes, err);
}

static swl_status list_published(checking *k, swl_error *err)
{
    swl_pull_result result = {0};
    swl_puller p = {.o = k->o->source, .result = &result};
    swl_status st = swl_puller_look(&p, err);

    if (!st)
        st = take_published(k, &p, err);
    swl_http_close(p.http);
    swl_remote_close(&p.remote);
    swl_free(p.local);
    return st;
}

/* ---- one file ------------------------------------------------------------------------------------------------------------ */

static const uint32_t *slots_of(const checking *k, const char *path, uint64_t *stride)
{
    int layer = 0, end = 0;

    if (!k->c || !k->c->experts || sscanf(path, "packed_experts/layer_%d.bin%n", &layer, &end) != 1 || !end || path[end] ||
        layer < 0 || layer >= k->c->config.n_layers)
        return NULL;
    *stride = k->c->experts[layer].slot_bytes;
    return k->c->experts[layer].crc32c;
}

static void check_slots(checking *k, const char *path, const char *full, const uint32_t *crc, uint64_t stride)
{
    uint8_t *slot = swl_calloc(stride, 1);
    swl_error e = {0};
    char text[100];
    int fd = -1;
    swl_status st = slot ? swl_file_open(&fd, NULL, full, &e) : no_memory(&e);

    for (int32_t i = 0; i < k->c->config.n_experts && !st; i++) {
        uint32_t found;

        st = swl_file_read_at(fd, full, stride * (uint64_t)i, slot, stride, &e);
        found = swl_crc32c(0, slot, stride);
        if (!st && found != crc[i]) {
            snprintf(text, sizeof text, "slot %" PRId32 " has the checksum %08" PRIx32 ", expected %08" PRIx32, i, found, crc[i]);
            fault(k, path, "crc32c", i, NULL, text);
        }
        if (!st)
            st = advance(k, stride, &e);
    }
    if (st && st != SWL_E_CANCELLED)
        fault_of(k, path, "crc32c", &e);
    swl_file_close(fd);
    swl_free(slot);
}

static swl_status tensor_crc(const swl_st *set, const swl_st_tensor *t, uint8_t *block, uint32_t *crc, swl_error *err)
{
    swl_status st = SWL_OK;

    *crc = 0;
    for (uint64_t at = 0, n; at < t->size && !st; at += n) {
        n = t->size - at < BLOCK_BYTES ? t->size - at : BLOCK_BYTES;
        st = swl_st_read(set, t, at, block, n, err);
        *crc = swl_crc32c(*crc, block, n);
    }
    return st;
}

static void check_tensors(checking *k, const char *path)
{
    uint8_t *block = swl_calloc(BLOCK_BYTES, 1);
    swl_error e = {0};
    char text[300];
    swl_status st = block ? SWL_OK : no_memory(&e);

    for (int32_t i = 0; i < swl_st_count(k->c->dense) && !st; i++) {
        const swl_st_tensor *t = swl_st_at(k->c->dense, i);
        uint32_t want, found;

        if (!swl_checkpoint_crc32c(k->c, t, &want))
            continue;
        st = tensor_crc(k->c->dense, t, block, &found, &e);
        if (!st && found != want) {
            snprintf(text, sizeof text, "tensor %.150s has the checksum %08" PRIx32 ", expected %08" PRIx32, t->name, found, want);
            fault(k, path, "crc32c", -1, t->name, text);
        }
        if (!st)
            st = advance(k, t->size, &e);
    }
    if (st && st != SWL_E_CANCELLED)
        fault_of(k, path, "crc32c", &e);
    swl_free(block);
}

static bool is_dense(const char *path)
{
    return !strcmp(path, "model.safetensors");
}

static bool ends_in_json(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && !strcmp(path + n - 5, ".json");
}

/* True when the digests hold, of which there is at least one. */
static bool check_digests(checking *k, const swl_entry *e, const char *full, const char **by)
{
    const swl_digest_kind kinds[2] = {e->digest[0].kind, e->digest[1].kind};
    swl_digest found[2];
    swl_error err = {0};
    bool ok = true;
    char text[200];
    swl_status st = kinds[0] || kinds[1] ? swl_digest_file(full, kinds, found, 2, advance, k, &err) : SWL_OK;

    if (st && st != SWL_E_CANCELLED)
        fault_of(k, e->path, "length", &err);
    for (int i = 0; i < 2 && !st; i++) {
        if (!kinds[i])
            continue;
        *by = kinds[i] == SWL_DIGEST_SHA256 ? "sha256" : "git-sha1";
        if (swl_digest_equal(&found[i], &e->digest[i]))
            continue;
        snprintf(text, sizeof text, "the digest is %s, expected %s%s", found[i].hex, e->digest[i].hex,
                 i ? " from hashes.json" : "");
        if (ok)
            fault(k, e->path, *by, -1, NULL, text);
        ok = false;
    }
    return !st && ok && (kinds[0] || kinds[1]);
}

/* False when it is not there or has another length. */
static bool check_length(checking *k, const swl_entry *e)
{
    uint64_t size = 0;
    char text[120];

    if (!swl_place_has(k->o->dir, e->path, &size)) {
        fault(k, e->path, "length", -1, NULL, "the file is missing");
        return false;
    }
    if (e->size == SWL_SIZE_UNKNOWN || e->size == size)
        return true;
    snprintf(text, sizeof text, "the file has %" PRIu64 " bytes, expected %" PRIu64, size, e->size);
    fault(k, e->path, "length", -1, NULL, text);
    return false;
}

static void check_json(checking *k, const char *path, const char *full)
{
    json_t *root = NULL;
    swl_error e = {0};

    if (swl_json_load(&root, full, SMALL_BYTES_MAX, &e))
        fault_of(k, path, "json", &e);
    json_decref(root);
}

static void check_one(void *arg, int32_t index, int32_t worker)
{
    checking *k = arg;
    const swl_entry *e = &k->files.e[index];
    char *full = swl_path_join(k->o->dir, e->path);
    swl_check_row row = {.path = e->path, .slot = -1, .by = "length", .ok = true, .text = ""};
    int32_t before = faults_here;
    const uint32_t *crc;
    uint64_t stride = 0;
    bool hashed;

    (void)worker;
    if (!full || k->stopped || !check_length(k, e)) {
        swl_free(full);
        return;
    }
    hashed = check_digests(k, e, full, &row.by);
    crc = slots_of(k, e->path, &stride);
    if (!hashed && crc) { /* with a digest that holds, the checksums hold too; without, they say where the fault is */
        row.by = e->digest[0].kind || e->digest[1].kind ? row.by : "crc32c";
        check_slots(k, e->path, full, crc, stride);
    }
    if (!hashed && k->c && is_dense(e->path))
        check_tensors(k, e->path);
    if (ends_in_json(e->path))
        check_json(k, e->path, full);
    swl_free(full);
    if (faults_here == before && !k->stopped)
        report(k, &row);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------- */

static void open_container(checking *k)
{
    swl_error e = {0};

    if (swl_checkpoint_open(&k->c, k->o->dir, &e) == SWL_OK)
        return;
    k->c = NULL;
    fault(k, "manifest.json", "json", -1, NULL, e.message);
}

static swl_status check_files(checking *k, swl_error *err)
{
    swl_threads *threads;
    int32_t n = k->o->n_threads ? k->o->n_threads : swl_cpus_available();
    swl_status st = swl_threads_create(&threads, n, err);

    if (st)
        return st;
    for (int32_t i = 0; i < k->files.n; i++) {
        uint64_t size = 0;

        k->total += swl_place_has(k->o->dir, k->files.e[i].path, &size) ? size : 0;
    }
    swl_threads_run(threads, k->files.n, check_one, k);
    swl_threads_free(threads);
    return k->stopped ? swl_fail(err, SWL_E_CANCELLED, "stopped on request") : SWL_OK;
}

static swl_status check(checking *k, swl_error *err)
{
    swl_status st = SWL_OK;

    list_stated(k, "manifest.json", false);
    list_stated(k, "hashes.json", true);
    list_recorded(k);
    if (k->o->source)
        st = list_published(k, err);
    if (st)
        return st;
    open_container(k);
    st = check_files(k, err);
    if (st || !k->n_bad)
        return st;
    if (err)
        *err = k->first;
    return SWL_E_CORRUPT;
}

/* ---- for publishers -------------------------------------------------------------------------------------------------------- */

typedef struct hashing {
    checking *k;
    json_t *files;
} hashing;

static swl_status hash_one(void *arg, const char *path, swl_error *err)
{
    hashing *h = arg;
    const swl_digest_kind kind = SWL_DIGEST_SHA256;
    swl_digest d;
    char *full;
    swl_status st;

    if (*path == '.' || !strcmp(path, "hashes.json"))
        return SWL_OK;
    full = swl_path_join(h->k->o->dir, path);
    st = full ? swl_digest_file(full, &kind, &d, 1, advance, h->k, err) : no_memory(err);
    if (!st && json_object_set_new(h->files, path, json_string(d.hex)))
        st = no_memory(err);
    swl_free(full);
    return st;
}

/* What says the same already keeps its bytes, which the record of an installation may have the digest of. */
static bool is_stated(const char *dir, const json_t *files)
{
    char *text = NULL;
    size_t n = 0;
    json_t *root = load_text(dir, "hashes.json", &text, &n, NULL) ? NULL : json_loadb(text, n, 0, NULL);
    bool same = root && json_equal(json_object_get(root, "files"), files);

    json_decref(root);
    swl_free(text);
    return same;
}

/* Byte for byte as a conversion writes it (qpack_json.c). */
static swl_status save_hashes(const char *dir, json_t *files, swl_error *err)
{
    json_t *root = json_pack("{s:O}", "files", files);
    char *text = root ? json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(1)) : NULL, *path = swl_path_join(dir, "hashes.json");
    size_t n = text ? strlen(text) : 0;
    swl_status st = SWL_OK;

    if (!text || !path) {
        st = no_memory(err);
    } else if (!is_stated(dir, files)) {
        text[n] = '\n'; /* in the place of its end */
        st = swl_file_save(path, text, n + 1, err);
    }
    free(text); /* jansson's */
    json_decref(root);
    swl_free(path);
    return st;
}

static swl_status write_hashes(checking *k, swl_error *err)
{
    hashing h = {k, json_object()};
    swl_checkpoint *c = NULL;
    swl_status st = swl_checkpoint_open(&c, k->o->dir, err);

    if (!st && c->kind != SWL_CHECKPOINT_QPACK)
        st = swl_fail_at(err, SWL_E_ARG, k->o->dir, -1, "%s is no container", k->o->dir);
    swl_checkpoint_close(c);
    if (!st)
        st = h.files ? swl_place_walk(k->o->dir, hash_one, &h, err) : no_memory(err);
    if (!st)
        st = save_hashes(k->o->dir, h.files, err);
    json_decref(h.files);
    return st;
}

swl_status swl_check(const swl_check_options *opt, swl_error *err)
{
    swl_check_options o = *opt;
    checking k = {.o = &o};
    swl_error local = {0};
    char *real;
    swl_status st;

    err = err ? err : &local;
    if (!swl_dir_exists(opt->dir))
        return swl_fail_at(err, SWL_E_NOT_FOUND, opt->dir, -1, "there is no directory %s", opt->dir);
    if (!swl_qpack_is(opt->dir))
        return swl_fail_at(err, SWL_E_ARG, opt->dir, -1, "%s is no container; only containers have digests to check", opt->dir);
    /* From here on no link is followed, so the one that leads here is now. A process whose working directory was replaced, as
     * repairs do, has no real paths: "../NAME" still leads to the new one. */
    real = realpath(opt->dir, NULL);
    if (!real && errno == ENOMEM)
        return no_memory(err);
    o.dir = real ? real : opt->dir;
    pthread_mutex_init(&k.lock, NULL);
    st = o.write_hashes ? write_hashes(&k, err) : check(&k, err);
    swl_checkpoint_close(k.c);
    swl_listing_free(&k.files);
    pthread_mutex_destroy(&k.lock);
    free(real);
    return st;
}
