/*
 * qpack_write.c: the data files of a container. A safetensors file is written tensor group by tensor group at the
 * offsets that the plan gave (a quantised matrix fills three places at once) and hashed in a second pass; files of
 * slots are written and hashed in one go. Memory: one slot and the converter's blocks.
 */
#define _GNU_SOURCE
#include "install/qpack_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"

#define SMALL_BYTES_MAX (UINT64_C(64) << 20) /* of a tokenizer or template file */
#define BLOCK_BYTES     (UINT64_C(1) << 20)

swl_status swl_qpack_progress(swl_qpack_writer *w, uint64_t n, swl_error *err)
{
    w->n_done += n;
    if (w->on_progress && !w->on_progress(w->arg, w->n_done, w->n_total))
        return swl_fail(err, SWL_E_CANCELLED, "stopped on request");
    return SWL_OK;
}

/* ---- one file being written ---------------------------------------------------------------------------------------
 */

typedef struct out_file {
    const char *name; /* relative */
    char *path;
    int fd;
    uint64_t size;
    EVP_MD_CTX *sha; /* NULL: without a hash */
} out_file;

static void out_abandon(out_file *f)
{
    swl_file_close(f->fd);
    EVP_MD_CTX_free(f->sha);
    swl_free(f->path);
    *f = (out_file){.fd = -1};
}

static swl_status out_begin(out_file *f, const swl_qpack_writer *w, const char *name, swl_error *err)
{
    swl_status st;

    *f = (out_file){.name = name, .path = swl_path_join(w->dir, name), .fd = -1};
    if (!w->synthetic)
        f->sha = EVP_MD_CTX_new();
    if (!f->path || (!w->synthetic && (!f->sha || !EVP_DigestInit_ex(f->sha, EVP_sha256(), NULL))))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for a file of the container");
    else
        st = swl_file_create(&f->fd, f->path, err);
    if (st)
        out_abandon(f);
    return st;
}

static swl_status out_hash(out_file *f, const void *data, uint64_t n, swl_error *err)
{
    return !f->sha || EVP_DigestUpdate(f->sha, data, n)
               ? SWL_OK
               : swl_fail(err, SWL_E_FAIL, "libcrypto cannot hash %s", f->path);
}

/* Appends. */
static swl_status out_write(out_file *f, const void *data, uint64_t n, swl_error *err)
{
    swl_status st = swl_file_write_at(f->fd, f->path, f->size, data, n, err);

    f->size += n;
    return st ? st : out_hash(f, data, n, err);
}

static swl_status remember(swl_qpack_writer *w, const out_file *f, swl_error *err)
{
    uint8_t digest[EVP_MAX_MD_SIZE] = {0};
    swl_qpack_file *r;

    if (w->n_files == w->n_files_max) {
        int32_t n = w->n_files_max ? 2 * w->n_files_max : 64;
        swl_qpack_file *p = swl_realloc(w->files, (size_t)n, sizeof *p);

        if (!p)
            return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
        w->files = p;
        w->n_files_max = n;
    }
    r = &w->files[w->n_files];
    *r = (swl_qpack_file){.name = swl_strdup(f->name), .size = f->size};
    if (!r->name || (f->sha && !EVP_DigestFinal_ex(f->sha, digest, NULL))) {
        swl_free(r->name);
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    }
    for (int i = 0; i < 32; i++)
        snprintf(r->sha256 + 2 * i, 3, "%02x", digest[i]);
    w->n_files++;
    return SWL_OK;
}

/* Durable, and out of the page cache: what was just written is not what is wanted next. Accepts a failed file. */
static swl_status out_end(out_file *f, swl_qpack_writer *w, swl_status st, swl_error *err)
{
    if (!st) {
        int fd = f->fd;

        if (!fsync(fd))
            swl_file_forget(fd, 0, 0);
        f->fd = -1;
        st = swl_file_finish(fd, f->path, err);
    }
    if (!st)
        st = remember(w, f, err);
    out_abandon(f);
    return st;
}

swl_status swl_qpack_put(swl_qpack_writer *w, const char *name, const void *data, uint64_t n, swl_error *err)
{
    out_file f;
    swl_status st = out_begin(&f, w, name, err);

    return st ? st : out_end(&f, w, out_write(&f, data, n, err), err);
}

/* ---- safetensors --------------------------------------------------------------------------------------------------
 */

typedef struct dense_sink {
    swl_qpack_writer *w;
    out_file *f;
    swl_plan_item *item;
} dense_sink;

static swl_status put_dense(void *arg, swl_part part, uint64_t at, const uint8_t *data, uint64_t n, swl_error *err)
{
    dense_sink *s = arg;
    swl_status st = swl_file_write_at(s->f->fd, s->f->path, s->item->offset[part] + at, data, n, err);

    s->item->crc[part] = swl_crc32c(s->item->crc[part], data, n);
    return st ? st : swl_qpack_progress(s->w, n, err);
}

/* The hash needs the bytes in order, which is not the order of writing. */
static swl_status hash_again(swl_qpack_writer *w, out_file *f, swl_error *err)
{
    uint8_t *block = swl_calloc(BLOCK_BYTES, 1);
    swl_status st = SWL_OK;
    uint64_t n, size;
    int fd;

    if (!block)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a block");
    st = swl_file_open(&fd, &size, f->path, err);
    for (uint64_t at = 0; at < f->size && !st; at += n) {
        n = f->size - at < BLOCK_BYTES ? f->size - at : BLOCK_BYTES;
        st = swl_file_read_at(fd, f->path, at, block, n, err);
        if (!st)
            st = out_hash(f, block, n, err);
        if (!st)
            st = swl_qpack_progress(w, n, err);
    }
    swl_file_close(fd);
    swl_free(block);
    return st;
}

static swl_status write_dense(swl_qpack_writer *w, swl_plan_file *pf, swl_error *err)
{
    out_file f;
    swl_status st = out_begin(&f, w, pf->name, err);

    if (st)
        return st;
    st = swl_file_write_at(f.fd, f.path, 0, pf->header, pf->n_header, err);
    if (!st)
        st = swl_qpack_progress(w, pf->n_header, err);
    for (int32_t i = 0; i < pf->n_items && !st; i++) {
        dense_sink s = {.w = w, .f = &f, .item = &pf->items[i]};

        st = swl_weight_emit(&w->cv, &pf->items[i].w, put_dense, &s, err);
    }
    f.size = pf->n_bytes;
    if (!st && f.sha)
        st = hash_again(w, &f, err);
    return out_end(&f, w, st, err);
}

/* ---- slots --------------------------------------------------------------------------------------------------------
 */

typedef struct slot_sink {
    const swl_plan_slots *s;
    swl_proj proj;
    uint8_t *slot;
} slot_sink;

static swl_status put_slot(void *arg, swl_part part, uint64_t at, const uint8_t *data, uint64_t n, swl_error *err)
{
    slot_sink *k = arg;

    (void)err;
    for (int i = 0; i < k->s->n_sections; i++)
        if (k->s->sections[i].proj == k->proj && k->s->sections[i].part == part)
            memcpy(k->slot + k->s->sections[i].offset + at, data, n);
    return SWL_OK;
}

static swl_status write_slot(swl_qpack_writer *w, out_file *f, swl_plan_slots *s, int32_t expert, uint8_t *slot,
                             swl_error *err)
{
    swl_status st = SWL_OK;
    swl_weight weight;

    for (int proj = 0; proj < SWL_PROJ_COUNT && !st; proj++) {
        slot_sink k = {.s = s, .proj = (swl_proj)proj, .slot = slot};

        st = swl_plan_expert(w->plan, s, expert, (swl_proj)proj, &weight, err);
        if (!st)
            st = swl_weight_emit(&w->cv, &weight, put_slot, &k, err);
    }
    if (st)
        return st;
    s->crc[expert] = swl_crc32c(0, slot, s->stride);
    st = out_write(f, slot, s->stride, err);
    return st ? st : swl_qpack_progress(w, s->stride, err);
}

static swl_status write_slots(swl_qpack_writer *w, swl_plan_slots *s, const char *name, swl_error *err)
{
    uint8_t *slot = swl_calloc(s->stride, 1); /* the padding stays zero */
    out_file f;
    swl_status st = slot ? out_begin(&f, w, name, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for a slot");

    if (!st) {
        for (int32_t e = 0; e < w->plan->c->config.n_experts && !st; e++)
            st = write_slot(w, &f, s, e, slot, err);
        st = out_end(&f, w, st, err);
    }
    swl_free(slot);
    return st;
}

/* A file of slots that has only its length. */
static swl_status write_absent(swl_qpack_writer *w, const swl_plan_slots *s, const char *name, swl_error *err)
{
    out_file f;
    swl_status st = out_begin(&f, w, name, err);

    if (st)
        return st;
    f.size = s->stride * (uint64_t)w->plan->c->config.n_experts;
    if (ftruncate(f.fd, (off_t)f.size))
        st = swl_fail_errno(err, f.path, "cannot give %s its length", f.path);
    return out_end(&f, w, st, err);
}

static swl_status make_experts_dir(const swl_qpack_writer *w, swl_error *err)
{
    char *path = swl_path_join(w->dir, "packed_experts");
    swl_status st = SWL_OK;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");
    if (mkdir(path, 0777))
        st = swl_fail_errno(err, path, "cannot create directory %s", path);
    swl_free(path);
    return st;
}

static swl_status sync_experts_dir(const swl_qpack_writer *w, swl_error *err)
{
    char *path = swl_path_join(w->dir, "packed_experts");
    swl_status st = path ? swl_dir_sync(path, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");

    swl_free(path);
    return st;
}

static swl_status write_text(swl_qpack_writer *w, const char *name, char *text, swl_status st, swl_error *err)
{
    if (!st)
        st = swl_qpack_put(w, name, text, strlen(text), err);
    swl_free(text);
    return st;
}

static swl_status write_experts(swl_qpack_writer *w, swl_error *err)
{
    swl_plan *p = w->plan;
    char *text = NULL, name[64];
    swl_status st = make_experts_dir(w, err);

    for (int32_t i = 0; i < p->c->config.n_layers && !st; i++) {
        snprintf(name, sizeof name, "packed_experts/layer_%02d.bin", i);
        if (p->layers[i].base && w->synthetic && w->synthetic->experts_absent)
            st = write_absent(w, &p->layers[i], name, err);
        else if (p->layers[i].base)
            st = write_slots(w, &p->layers[i], name, err);
    }
    if (!st && p->draft_slots.base)
        st = write_slots(w, &p->draft_slots, "packed_experts/mtp_00.bin", err);
    if (!st) {
        st = swl_qpack_json_layout(p, &text, err);
        st = write_text(w, "packed_experts/layout.json", text, st, err);
    }
    return st ? st : sync_experts_dir(w, err);
}

/* ---- small files --------------------------------------------------------------------------------------------------
 */

/* Tokenizer, template and generation files, and the notices that go with a model. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "ATTRIBUTION.md",
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "NOTICE",
    "NOTICE.txt",
};

static swl_status copy_companion(swl_qpack_writer *w, const char *name, swl_error *err)
{
    char *path = swl_path_join(w->plan->c->dir, name), *data = NULL;
    size_t n;
    swl_status st = SWL_OK;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a file name");
    if (swl_file_exists(path)) { /* follows links; one that leads nowhere counts as missing */
        st = swl_file_load(&data, &n, path, SMALL_BYTES_MAX, err);
        if (!st)
            st = swl_qpack_put(w, name, data, n, err);
    }
    swl_free(data);
    swl_free(path);
    return st;
}

/* What lies beside a GGUF file is not part of it. */
static swl_status write_companions(swl_qpack_writer *w, swl_error *err)
{
    const swl_checkpoint *c = w->plan->c;
    swl_status st = SWL_OK;

    for (int32_t i = 0; i < c->n_made && !st; i++)
        st = swl_qpack_put(w, c->made[i].name, c->made[i].text, strlen(c->made[i].text), err);
    for (size_t i = 0; i < sizeof companions / sizeof companions[0] && !st && c->kind != SWL_CHECKPOINT_GGUF; i++)
        st = copy_companion(w, companions[i], err);
    return st;
}

static swl_status write_small(swl_qpack_writer *w, swl_error *err)
{
    char *text = NULL;
    size_t n;
    swl_status st = swl_qpack_json_config(w->plan, &text, &n, err);

    if (!st)
        st = swl_qpack_put(w, "config.json", text, n, err);
    swl_free(text);
    if (!st)
        st = write_companions(w, err);
    if (!st) {
        st = swl_qpack_json_sidecar(w, &text, err);
        st = write_text(w, "swiftlet.json", text, st, err);
    }
    return st;
}

/* ---- the end ------------------------------------------------------------------------------------------------------
 */

static swl_status digest_hex(const char *text, char hex[65], swl_error *err)
{
    uint8_t digest[EVP_MAX_MD_SIZE];

    if (!EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL))
        return swl_fail(err, SWL_E_FAIL, "libcrypto cannot hash the manifest");
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return SWL_OK;
}

/* hashes.json covers the manifest, which is written after it. */
static swl_status write_manifest(swl_qpack_writer *w, swl_error *err)
{
    char *manifest = NULL, *hashes = NULL, hex[65];
    swl_status st = swl_qpack_json_manifest(w, &manifest, err);

    if (!st && !w->synthetic) {
        st = digest_hex(manifest, hex, err);
        if (!st)
            st = swl_qpack_json_hashes(w, hex, &hashes, err);
        if (!st)
            st = swl_qpack_put(w, "hashes.json", hashes, strlen(hashes), err);
    }
    if (!st)
        st = swl_qpack_put(w, "manifest.json", manifest, strlen(manifest), err);
    swl_free(hashes);
    swl_free(manifest);
    return st;
}

swl_status swl_qpack_write(swl_qpack_writer *w, swl_error *err)
{
    swl_plan *p = w->plan;
    swl_status st;

    w->n_total = p->bytes_total + p->dense.n_bytes + p->draft.n_bytes; /* the dense files are read again for the hash */
    if (w->synthetic)
        w->n_total = w->synthetic->experts_absent ? p->dense.n_bytes : p->bytes_total;
    st = swl_qpack_progress(w, 0, err);
    if (!st)
        st = write_dense(w, &p->dense, err);
    if (!st && p->mtp)
        st = write_dense(w, &p->draft, err);
    if (!st && p->c->config.n_experts)
        st = write_experts(w, err);
    if (!st)
        st = write_small(w, err);
    return st ? st : write_manifest(w, err);
}

void swl_qpack_writer_deinit(swl_qpack_writer *w)
{
    swl_converter_deinit(&w->cv);
    for (int32_t i = 0; i < w->n_files; i++)
        swl_free(w->files[i].name);
    swl_free(w->files);
    w->files = NULL;
    w->n_files = w->n_files_max = 0;
}
