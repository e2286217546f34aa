/*
 * fingerprint.c: which model this is. Snapshots are keyed by it: SHA-256 over config.json, the experts' layout, the sorted
 * list of dense tensors, and then hashes.json if there is one, else the data of all dense tensors of at most 64 KiB (norms
 * and delta-net vectors differ between fine-tunes of one shape).
 */
#include <openssl/evp.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "format/checkpoint.h"

#define SMALL_BYTES (64u << 10)
#define FILE_BYTES_MAX (UINT64_C(16) << 20)

static swl_status add_file(EVP_MD_CTX *md, const char *dir, const char *name, bool *found, swl_error *err)
{
    char *path = swl_path_join(dir, name), *text = NULL;
    size_t n = 0;
    swl_status st = SWL_OK;

    if (!path)
        return swl_fail(err, SWL_E_NOMEM, "fingerprint: out of memory");
    *found = swl_file_exists(path);
    if (*found)
        st = swl_file_load(&text, &n, path, FILE_BYTES_MAX, err);
    if (!st && text)
        EVP_DigestUpdate(md, text, n);
    swl_free(text);
    swl_free(path);
    return st;
}

static void add_layout(EVP_MD_CTX *md, const swl_checkpoint *c)
{
    int32_t i, j;

    for (i = 0; c->experts && i < c->config.n_layers; i++)
        for (j = 0; j < c->experts[i].n_sections; j++) {
            const swl_section *s = &c->experts[i].sections[j];
            int64_t v[] = {i, s->proj, s->part, s->dtype, s->shape[0], s->shape[1]};

            EVP_DigestUpdate(md, v, sizeof v);
        }
}

static swl_status add_tensors(EVP_MD_CTX *md, const swl_checkpoint *c, bool with_data, swl_error *err)
{
    uint8_t *buf = swl_calloc(SMALL_BYTES, 1);
    swl_status st = SWL_OK;
    int32_t i;

    if (!buf)
        return swl_fail(err, SWL_E_NOMEM, "fingerprint: out of memory");
    for (i = 0; i < swl_st_count(c->dense) && !st; i++) {
        const swl_st_tensor *t = swl_st_at(c->dense, i);

        EVP_DigestUpdate(md, t->name, strlen(t->name) + 1);
        EVP_DigestUpdate(md, &t->dtype, sizeof t->dtype);
        EVP_DigestUpdate(md, t->shape, (size_t)t->n_dims * sizeof t->shape[0]);
        if (!with_data || t->size > SMALL_BYTES)
            continue;
        st = swl_st_read(c->dense, t, 0, buf, t->size, err);
        if (!st)
            EVP_DigestUpdate(md, buf, t->size);
    }
    swl_free(buf);
    return st;
}

swl_status swl_checkpoint_fingerprint(const swl_checkpoint *c, uint8_t digest[32], swl_error *err)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool found, hashes = false;
    swl_status st;

    if (!md || !EVP_DigestInit_ex(md, EVP_sha256(), NULL)) {
        EVP_MD_CTX_free(md);
        return swl_fail(err, SWL_E_NOMEM, "fingerprint: SHA-256 is not available");
    }
    st = add_file(md, c->dir, "config.json", &found, err);
    add_layout(md, c);
    if (!st)
        st = add_file(md, c->dir, "hashes.json", &hashes, err);
    if (!st)
        st = add_tensors(md, c, !hashes, err);
    if (!st)
        EVP_DigestFinal_ex(md, digest, NULL);
    EVP_MD_CTX_free(md);
    return st;
}
