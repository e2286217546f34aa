/*
 * remote.c: see remote.h. The order of the requests:
 *
 *   hub      pin (branch -> commit), list (all pages), manifest.json if listed, hashes.json if listed
 *   mirror   manifest.json, hashes.json, sizes of files that only hashes.json names, small files that nobody names
 *   GGUF     pin and list, or the size of the file that the URL names
 */
#include "install/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "format/safetensors_index.h"
#include "install/gguf_pick.h"

#define PAGES_MAX          100
#define SMALL_BYTES_MAX    (UINT64_C(64) << 20)
#define MANIFEST_BYTES_MAX (UINT64_C(4) << 20)
#define ANSWER_BYTES_MAX   (UINT64_C(1) << 20)

const char *const swl_companions[] = {
    "config.json",        "tokenizer.json",          "tokenizer_config.json", "vocab.json",
    "merges.txt",         "added_tokens.json",       "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json", "generation_config.json",  "ATTRIBUTION.md",        "LICENSE",
    "LICENSE.md",         "LICENSE.txt",             "NOTICE",                "NOTICE.txt",
    NULL,
};
/* More of a container. */
static const char *const container_files[] = {"packed_experts/layout.json", "swiftlet.json", "hashes.json", NULL};

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
}

/* ---- fetching a small file ---------------------------------------------------------------------------------------- */

typedef struct context {
    swl_remote *r;
    swl_transfer *t;
    const swl_pull_options *o;
    swl_error *err;
} context;

/* Of the source itself, not of a mirror beside it. */
static char *url_of(const context *c, const char *path)
{
    char *tail = swl_url_encode(path, true);
    char *url = tail ? swl_asprintf("%s%s", c->r->bases[c->r->n_bases - 1].url, tail) : NULL;

    swl_free(tail);
    return url;
}

static swl_status check_text(const context *c, const char *path, const char *text, size_t n)
{
    const swl_entry *e = swl_listing_find(&c->r->all, path);
    swl_digest d;
    swl_status st = SWL_OK;

    if (!e)
        return SWL_OK;
    if (e->size != SWL_SIZE_UNKNOWN && e->size != n)
        return swl_fail_at(c->err, SWL_E_NETWORK, path, -1, "%s came with %zu bytes, expected %" PRIu64, path, n, e->size);
    if (e->digest[0].kind)
        st = swl_digest_memory(text, n, e->digest[0].kind, &d, c->err);
    if (!st && e->digest[0].kind && !swl_digest_equal(&d, &e->digest[0]))
        st = swl_fail_at(c->err, SWL_E_CORRUPT, path, -1, "%s: the digest is %s, expected %s", path, d.hex,
                         e->digest[0].hex);
    return st;
}

/* *text stays NULL when the place has no such file; `required` makes that an error. */
static swl_status get_file(const context *c, const char *path, uint64_t n_max, bool required, char **text, size_t *n)
{
    char *url = url_of(c, path), what[80];
    int status = 0;
    swl_status st = url ? swl_transfer_get(c->t, url, n_max, text, n, NULL, &status, c->err) : no_memory(c->err);

    snprintf(what, sizeof what, "file %.60s", path);
    if (!st && !*text && (required || (status != 404 && status != 410)))
        st = swl_transfer_refused(c->t, url, status, what, c->err);
    if (!st && *text)
        st = check_text(c, path, *text, *n);
    if (st) {
        swl_free(*text);
        *text = NULL;
    }
    swl_free(url);
    return st;
}

/* ---- hub ----------------------------------------------------------------------------------------------------------- */

static swl_status missing_revision(const context *c, const char *url)
{
    const swl_source *s = &c->r->source;
    char *repo = swl_asprintf("%s/api/models/%s", s->endpoint, s->name), *text = NULL, what[300];
    int status = 0;
    size_t n;
    swl_status st = repo ? swl_transfer_get(c->t, repo, ANSWER_BYTES_MAX * 8, &text, &n, NULL, &status, c->err)
                         : no_memory(c->err);

    if (!st) {
        snprintf(what, sizeof what, text ? "revision %.100s of repository %.180s" : "repository %.0s%.180s", s->revision,
                 s->name);
        st = swl_transfer_refused(c->t, url, 404, what, c->err);
    }
    swl_free(text);
    swl_free(repo);
    return st;
}

static swl_status read_pin(const context *c, const char *text, size_t n, const char *url)
{
    json_t *root = NULL;
    const char *sha = NULL;
    swl_status st = swl_json_parse(&root, text, n, url, c->err);

    if (!st)
        st = swl_json_str(root, "sha", SWL_REQUIRED, &sha, url, c->err);
    if (!st && (strlen(sha) != 40 || sha[strspn(sha, "0123456789abcdef")]))
        st = swl_fail_at(c->err, SWL_E_CORRUPT, url, -1, "%s: sha is \"%.80s\", expected 40 hex digits", url, sha);
    if (!st && !(c->r->commit = swl_strdup(sha)))
        st = no_memory(c->err);
    json_decref(root);
    return st;
}

static swl_status pin(const context *c)
{
    const swl_source *s = &c->r->source;
    char *rev = swl_url_encode(s->revision, false), *text = NULL, what[300];
    char *url = rev ? swl_asprintf("%s/api/models/%s/revision/%s", s->endpoint, s->name, rev) : NULL;
    int status = 0;
    size_t n = 0;
    swl_status st = url ? swl_transfer_get(c->t, url, ANSWER_BYTES_MAX * 8, &text, &n, NULL, &status, c->err)
                        : no_memory(c->err);

    snprintf(what, sizeof what, "repository %.200s", s->name);
    if (!st && !text)
        st = status == 404 ? missing_revision(c, url) : swl_transfer_refused(c->t, url, status, what, c->err);
    if (!st)
        st = read_pin(c, text, n, url);
    swl_free(text);
    swl_free(url);
    swl_free(rev);
    return st;
}

static bool same_host(const char *a, const char *b)
{
    swl_origin x, y;

    return swl_url_origin(a, &x) && swl_url_origin(b, &y) && swl_origin_equal(&x, &y);
}

/* One page; *url becomes the next one's, or NULL. */
static swl_status list_page(const context *c, char **url)
{
    char *text = NULL, *next = NULL, what[300];
    int status = 0;
    size_t n = 0;
    swl_status st = swl_transfer_get(c->t, *url, SWL_LISTING_BYTES_MAX, &text, &n, &next, &status, c->err);

    snprintf(what, sizeof what, "repository %.200s", c->r->source.name);
    if (!st && !text)
        st = swl_transfer_refused(c->t, *url, status, what, c->err);
    if (!st)
        st = swl_listing_tree(&c->r->all, text, n, *url, c->err);
    if (!st && next && !same_host(next, *url))
        st = swl_fail_at(c->err, SWL_E_CORRUPT, *url, -1, "%s: the next page is at another host", *url);
    swl_free(text);
    if (st) {
        swl_free(next);
        return st;
    }
    swl_free(*url);
    *url = next;
    return SWL_OK;
}

static swl_status list(const context *c)
{
    const swl_source *s = &c->r->source;
    char *url = swl_asprintf("%s/api/models/%s/tree/%s?recursive=true", s->endpoint, s->name, c->r->commit);
    swl_status st = url ? SWL_OK : no_memory(c->err);

    for (int i = 0; url && !st; i++)
        st = i < PAGES_MAX ? list_page(c, &url)
                           : swl_fail_at(c->err, SWL_E_CORRUPT, s->name, -1, "the listing of %s has more than %d pages",
                                         s->name, PAGES_MAX);
    swl_free(url);
    return st ? st : swl_listing_finish(&c->r->all, s->name, c->err);
}

/* ---- which files ---------------------------------------------------------------------------------------------------- */

static bool wanted(const swl_pull_options *o, const char *path)
{
    bool in = !o->n_include;

    for (int32_t i = 0; i < o->n_include; i++)
        in |= swl_glob(o->include[i], path);
    for (int32_t i = 0; i < o->n_exclude; i++)
        in &= !swl_glob(o->exclude[i], path);
    return in;
}

/* Takes a file of a hub's listing. */
static swl_status take(const context *c, const swl_entry *e)
{
    swl_entry *f = swl_listing_find(&c->r->files, e->path);
    swl_status st = SWL_OK;

    if (!f)
        st = swl_listing_add(&c->r->files, e->path, e->size, &f, c->r->source.name, c->err);
    if (st)
        return st;
    if (e->size != SWL_SIZE_UNKNOWN && f->size != SWL_SIZE_UNKNOWN && f->size != e->size)
        return swl_fail_at(c->err, SWL_E_CORRUPT, c->r->source.name, -1,
                           "%s: %s has %" PRIu64 " bytes, but manifest.json says %" PRIu64, c->r->source.name, e->path,
                           e->size, f->size);
    if (f->size == SWL_SIZE_UNKNOWN)
        f->size = e->size;
    f->digest[0] = e->digest[0];
    return SWL_OK;
}

static swl_status take_named(const context *c, const char *const *names)
{
    swl_status st = SWL_OK;

    for (; *names && !st; names++) {
        const swl_entry *e = swl_listing_find(&c->r->all, *names);

        st = e ? take(c, e) : SWL_OK;
    }
    return st;
}

/* Everything that manifest.json and hashes.json name must be there. */
static swl_status match_listing(const context *c)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < c->r->files.n && !st; i++) {
        const char *path = c->r->files.e[i].path;
        const swl_entry *e = swl_listing_find(&c->r->all, path);

        st = e ? take(c, e)
               : swl_fail_at(c->err, SWL_E_NOT_FOUND, path, -1,
                             "the repository %s has no %s, which its manifest.json or hashes.json names",
                             c->r->source.name, path);
    }
    return st;
}

/* A file that a mirror may have; its length comes with its first byte. */
static swl_status probe(const context *c, const char *path, bool required)
{
    char *url = url_of(c, path), what[80];
    swl_entry *e = swl_listing_find(&c->r->files, path);
    uint64_t size = 0;
    int status = 0;
    swl_status st = url ? swl_transfer_size(c->t, url, &size, &status, c->err) : no_memory(c->err);

    snprintf(what, sizeof what, "file %.60s", path);
    if (!st && (status == 404 || status == 410) && !required)
        goto done;
    if (!st && (status >= 300 || size == SWL_SIZE_UNKNOWN))
        st = status >= 300 ? swl_transfer_refused(c->t, url, status, what, c->err)
                           : swl_fail_at(c->err, SWL_E_NETWORK, path, -1, "%s does not say how long %s is",
                                         c->r->source.name, path);
    if (!st && !e)
        st = swl_listing_add(&c->r->files, path, size, &e, c->r->source.name, c->err);
    if (!st)
        e->size = size;
done:
    swl_free(url);
    return st;
}

static swl_status probe_named(const context *c, const char *const *names)
{
    swl_status st = SWL_OK;

    for (; *names && !st; names++)
        if (!swl_listing_find(&c->r->files, *names))
            st = probe(c, *names, false);
    return st;
}

static swl_status probe_unknown(const context *c)
{
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < c->r->files.n && !st; i++)
        if (c->r->files.e[i].size == SWL_SIZE_UNKNOWN)
            st = probe(c, c->r->files.e[i].path, true);
    return st;
}

static void drop(swl_listing *l, int32_t i)
{
    swl_free(l->e[i].path);
    memmove(&l->e[i], &l->e[i + 1], (size_t)(l->n - i - 1) * sizeof *l->e);
    l->n--;
}

/* ---- containers ------------------------------------------------------------------------------------------------------ */

static swl_status check_pin(const context *c)
{
    swl_digest d, want;
    swl_status st;

    if (!c->o->sha256)
        return SWL_OK;
    if (!swl_digest_set(&want, SWL_DIGEST_SHA256, c->o->sha256))
        return swl_fail(c->err, SWL_E_ARG, "\"%.80s\" is no SHA-256 digest: expected 64 hex digits", c->o->sha256);
    if (!c->r->hashes)
        return swl_fail(c->err, SWL_E_CORRUPT, "%s has no hashes.json, whose digest was given", c->r->source.name);
    st = swl_digest_memory(c->r->hashes, c->r->n_hashes, SWL_DIGEST_SHA256, &d, c->err);
    if (!st && !swl_digest_equal(&d, &want))
        st = swl_fail(c->err, SWL_E_CORRUPT, "hashes.json of %s has the digest %s, expected %s", c->r->source.name, d.hex,
                      want.hex);
    return st;
}

static swl_status read_hashes(const context *c)
{
    char *copy;
    swl_status st = check_pin(c);

    if (st || !c->r->hashes)
        return st;
    copy = swl_strndup(c->r->hashes, c->r->n_hashes); /* reading changes it */
    st = copy ? swl_listing_hashes(&c->r->files, copy, strlen(copy), "hashes.json", c->err) : no_memory(c->err);
    swl_free(copy);
    c->r->hashed = !st;
    return st;
}

/* The manifest must be the one that is hashed: everything else follows from it. */
static swl_status check_manifest_hash(const context *c)
{
    const swl_entry *e = swl_listing_find(&c->r->files, "manifest.json");
    swl_digest d;
    swl_status st;

    if (!e || !e->digest[1].kind)
        return SWL_OK;
    st = swl_digest_memory(c->r->manifest, c->r->n_manifest, SWL_DIGEST_SHA256, &d, c->err);
    if (!st && !swl_digest_equal(&d, &e->digest[1]))
        st = swl_fail_at(c->err, SWL_E_CORRUPT, "manifest.json", -1,
                         "manifest.json has the SHA-256 digest %s, expected %s from hashes.json", d.hex, e->digest[1].hex);
    return st;
}

static swl_status narrow(const context *c)
{
    for (int32_t i = c->r->files.n; i-- > 0;) {
        const char *path = c->r->files.e[i].path;

        if (!strcmp(path, "manifest.json") || !strcmp(path, "hashes.json") || !wanted(c->o, path))
            drop(&c->r->files, i); /* both are here already */
    }
    return SWL_OK;
}

/* c->r->manifest is there. */
static swl_status open_container(const context *c, bool hub)
{
    swl_remote *r = c->r;
    bool has_hashes = !hub || swl_listing_find(&r->all, "hashes.json");
    swl_status st = swl_listing_manifest(&r->files, r->manifest, r->n_manifest, "manifest.json", c->err);

    r->packed = true;
    if (!st && has_hashes)
        st = get_file(c, "hashes.json", MANIFEST_BYTES_MAX, hub, &r->hashes, &r->n_hashes);
    if (!st)
        st = read_hashes(c);
    if (!st)
        st = check_manifest_hash(c);
    if (!st && hub)
        st = match_listing(c);
    if (!st)
        st = hub ? take_named(c, swl_companions) : probe_named(c, swl_companions);
    if (!st)
        st = hub ? take_named(c, container_files) : probe_named(c, container_files);
    if (!st)
        st = narrow(c);
    if (!st)
        st = probe_unknown(c);
    return st ? st : swl_listing_finish(&r->files, r->source.name, c->err);
}

/* ---- what it is ------------------------------------------------------------------------------------------------------- */

/* Some other program's manifest is no reason to refuse a checkpoint. */
static bool is_container_manifest(const char *text, size_t n)
{
    json_t *root = NULL;
    const char *magic;
    bool yes;

    if (swl_json_parse(&root, text, n, "manifest.json", NULL))
        return true; /* broken: the error is said when it is read */
    magic = json_string_value(json_object_get(root, "magic"));
    yes = magic && !strncmp(magic, "QPACK", 5);
    json_decref(root);
    return yes;
}

static bool is_shard_name(const char *path)
{
    return swl_glob("model*.safetensors", path) && !strchr(path, '/');
}

static bool has_shards(const swl_listing *l)
{
    for (int32_t i = 0; i < l->n; i++)
        if (is_shard_name(l->e[i].path) || !strcmp(l->e[i].path, SWL_ST_INDEX_NAME))
            return true;
    return false;
}

/* Adds the shards of an index. */
static swl_status take_indexed(const context *c, char *text, size_t n, bool hub)
{
    swl_st_index x;
    swl_status st = swl_st_index_parse(&x, text, n, SWL_ST_INDEX_NAME, c->err);

    for (size_t i = 0; i < x.n && !st; i++) {
        const char *shard = x.places[i].shard;
        const swl_entry *e = hub ? swl_listing_find(&c->r->all, shard) : NULL;

        if (swl_listing_find(&c->r->files, shard))
            continue;
        if (!hub)
            st = probe(c, shard, true);
        else
            st = e ? take(c, e)
                   : swl_fail_at(c->err, SWL_E_NOT_FOUND, shard, -1, "the repository %s has no %.200s, which its index names",
                                 c->r->source.name, shard);
    }
    swl_st_index_deinit(&x);
    return st;
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------------ */

/* The file, or all parts of the model that it is the first of. */
static swl_status take_parts(const context *c, const char *first, int n_parts, bool hub)
{
    swl_remote *r = c->r;
    swl_status st = SWL_OK;

    for (int i = 0; i < n_parts && !st; i++) {
        char *name = swl_gguf_part_name(first, i, n_parts);

        if (!name)
            return no_memory(c->err);
        st = hub ? take(c, swl_listing_find(&r->all, name)) : probe(c, name, true);
        if (!i)
            r->gguf = name;
        else
            swl_free(name);
    }
    if (!st)
        st = swl_source_set_file(&r->source, r->gguf, c->err);
    if (!st)
        st = probe_unknown(c);
    return st ? st : swl_listing_finish(&r->files, r->source.name, c->err);
}

static swl_status open_gguf_hub(const context *c)
{
    const swl_remote *r = c->r;
    const char *first = NULL;
    int n_parts = 1;
    swl_status st = swl_gguf_pick(&r->all, r->source.name, r->source.file, &first, &n_parts, c->err);

    return st ? st : take_parts(c, first, n_parts, true);
}

static swl_status open_gguf_mirror(const context *c)
{
    int no, n_parts = 1;

    if (!swl_gguf_part_suffix(c->r->source.file, &no, &n_parts))
        n_parts = 1;
    return take_parts(c, c->r->source.file, n_parts, false);
}

static bool has_gguf(const swl_listing *l)
{
    for (int32_t i = 0; i < l->n; i++)
        if (swl_gguf_is_name(l->e[i].path))
            return true;
    return false;
}

/* ---- safetensors ----------------------------------------------------------------------------------------------------- */

static swl_status nothing_here(const context *c)
{
    char found[400] = "";
    size_t at = 0;

    for (int32_t i = 0; i < c->r->all.n && at < sizeof found - 60; i++)
        at += (size_t)snprintf(found + at, sizeof found - at, "%s%.40s", i ? ", " : "", c->r->all.e[i].path);
    return swl_fail(c->err, SWL_E_UNSUPPORTED,
                    "%s holds neither a container (manifest.json) nor safetensors with a config.json nor GGUF files; found: %s",
                    c->r->source.name, c->r->all.n ? found : "nothing");
}

static swl_status open_raw_hub(const context *c)
{
    swl_remote *r = c->r;
    const swl_entry *index = swl_listing_find(&r->all, SWL_ST_INDEX_NAME);
    char *text = NULL;
    size_t n = 0;
    int32_t before;
    swl_status st;

    if (!has_shards(&r->all) && has_gguf(&r->all))
        return open_gguf_hub(c);
    if (!swl_listing_find(&r->all, "config.json"))
        return nothing_here(c);
    st = take_named(c, swl_companions);
    before = r->files.n;
    if (!st && index) {
        st = get_file(c, SWL_ST_INDEX_NAME, SMALL_BYTES_MAX, true, &text, &n);
        if (!st) {
            st = take(c, index);
            before = r->files.n;
        }
        if (!st)
            st = take_indexed(c, text, n, true);
        else
            swl_free(text);
    }
    for (int32_t i = 0; i < r->all.n && !st && !index; i++)
        if (is_shard_name(r->all.e[i].path))
            st = take(c, &r->all.e[i]);
    if (!st && r->files.n == before)
        return nothing_here(c);
    if (!st)
        st = probe_unknown(c);
    return st ? st : swl_listing_finish(&r->files, r->source.name, c->err);
}

static swl_status open_raw_mirror(const context *c)
{
    char *text = NULL;
    size_t n = 0;
    swl_status st = probe(c, "config.json", false);

    if (!st && !swl_listing_find(&c->r->files, "config.json"))
        return nothing_here(c);
    if (!st)
        st = probe_named(c, swl_companions);
    if (!st)
        st = get_file(c, SWL_ST_INDEX_NAME, SMALL_BYTES_MAX, false, &text, &n);
    if (!st && text) {
        st = probe(c, SWL_ST_INDEX_NAME, true);
        if (!st)
            st = take_indexed(c, text, n, false);
        else
            swl_free(text);
    } else if (!st) {
        st = probe(c, "model.safetensors", true);
    }
    return st ? st : swl_listing_finish(&c->r->files, c->r->source.name, c->err);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static swl_status add_base(const context *c, char *url, bool hub)
{
    swl_remote *r = c->r;
    size_t n = url ? strlen(url) : 0;
    char *slashed = url ? swl_asprintf("%s%s", url, n && url[n - 1] == '/' ? "" : "/") : NULL;
    swl_origin o;

    swl_free(url);
    if (!slashed)
        return no_memory(c->err);
    if (!swl_url_origin(slashed, &o)) {
        swl_status st = swl_fail(c->err, SWL_E_ARG, "\"%.200s\" is not a URL of a folder", slashed);

        swl_free(slashed);
        return st;
    }
    r->bases[r->n_bases++] = (swl_fetch_base){.url = slashed, .hub = hub};
    c->t->bases = r->bases;
    c->t->n_bases = r->n_bases;
    return SWL_OK;
}

static swl_status set_bases(const context *c)
{
    const swl_source *s = &c->r->source;
    swl_status st = SWL_OK;

    c->r->bases = swl_calloc((size_t)c->o->n_mirrors + 1, sizeof *c->r->bases);
    if (!c->r->bases)
        return no_memory(c->err);
    for (int32_t i = 0; i < c->o->n_mirrors && !st; i++)
        st = add_base(c, swl_strdup(c->o->mirrors[i]), false);
    if (st)
        return st;
    if (s->kind == SWL_SOURCE_HUB)
        return add_base(c, swl_asprintf("%s/%s/resolve/%s/", s->endpoint, s->name, c->r->commit), true);
    return add_base(c, swl_strdup(s->name), false);
}

static swl_status open_hub(const context *c)
{
    swl_remote *r = c->r;
    swl_status st;

    r->page = swl_asprintf("%s/%s", r->source.endpoint, r->source.name);
    c->t->page = r->page;
    st = pin(c);
    if (!st)
        st = set_bases(c);
    if (!st)
        st = list(c);
    if (!st && r->source.file)
        return open_gguf_hub(c);
    if (!st && swl_listing_find(&r->all, "manifest.json"))
        st = get_file(c, "manifest.json", MANIFEST_BYTES_MAX, true, &r->manifest, &r->n_manifest);
    if (!st && r->manifest && is_container_manifest(r->manifest, r->n_manifest))
        return open_container(c, true);
    return st ? st : open_raw_hub(c);
}

static swl_status open_mirror(const context *c)
{
    swl_remote *r = c->r;
    swl_status st = set_bases(c);

    if (!st && r->source.file)
        return open_gguf_mirror(c);
    if (!st)
        st = get_file(c, "manifest.json", MANIFEST_BYTES_MAX, false, &r->manifest, &r->n_manifest);
    if (!st && r->manifest && is_container_manifest(r->manifest, r->n_manifest))
        return open_container(c, false);
    return st ? st : open_raw_mirror(c);
}

swl_status swl_remote_open(swl_remote *r, swl_source *source, swl_transfer *t, const swl_pull_options *o, swl_error *err)
{
    context c = {r, t, o, err};
    swl_status st;

    *r = (swl_remote){.source = *source};
    *source = (swl_source){0};
    st = r->source.kind == SWL_SOURCE_HUB ? open_hub(&c) : open_mirror(&c);
    if (!st && o->require_hashes)
        for (int32_t i = 0; i < r->files.n && !st; i++)
            if (!r->files.e[i].digest[0].kind && !r->files.e[i].digest[1].kind)
                st = swl_fail(err, SWL_E_CORRUPT, "%s publishes no digest of %s, and digests are required", r->source.name,
                              r->files.e[i].path);
    return st;
}

void swl_remote_close(swl_remote *r)
{
    swl_source_deinit(&r->source);
    swl_listing_free(&r->all);
    swl_listing_free(&r->files);
    swl_free(r->commit);
    swl_free(r->page);
    swl_free(r->manifest);
    swl_free(r->hashes);
    swl_free(r->gguf);
    for (int32_t i = 0; i < r->n_bases; i++)
        swl_free(r->bases[i].url);
    swl_free(r->bases);
    *r = (swl_remote){0};
}
