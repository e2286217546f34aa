/*
 * digest.c: SHA-256 and git's blob names, by libcrypto. Its current interface hides the inner state, which a download that
 * goes on in another process needs, so the older functions are used for SHA-256: they are deprecated, not gone.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "install/digest.h"

#include <ctype.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

#define BLOCK_BYTES (UINT64_C(1) << 20)

static const char *const prefixes[] = {"none:", "sha256:", "git-sha1:"};
static const size_t digits[] = {0, 64, 40};

void swl_digest_print(const swl_digest *d, char text[SWL_DIGEST_TEXT])
{
    snprintf(text, SWL_DIGEST_TEXT, "%s%s", prefixes[d->kind], d->hex);
}

bool swl_digest_set(swl_digest *d, swl_digest_kind kind, const char *hex)
{
    size_t n = digits[kind];

    *d = (swl_digest){0};
    if (strlen(hex) != n || strspn(hex, "0123456789abcdefABCDEF") != n)
        return false;
    d->kind = kind;
    for (size_t i = 0; i < n; i++)
        d->hex[i] = (char)tolower((unsigned char)hex[i]);
    return true;
}

bool swl_digest_parse(swl_digest *d, const char *text)
{
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(prefixes[i]);

        if (!strncmp(text, prefixes[i], n))
            return swl_digest_set(d, (swl_digest_kind)i, text + n);
    }
    return false;
}

bool swl_digest_equal(const swl_digest *a, const swl_digest *b)
{
    return a->kind == b->kind && !strcmp(a->hex, b->hex);
}

/* ---- SHA-256 that can be put away --------------------------------------------------------------------------------- */

struct swl_sha256 {
    SHA256_CTX c;
    uint64_t n;
};

swl_sha256 *swl_sha256_new(void)
{
    swl_sha256 *h = swl_calloc(1, sizeof *h);

    if (h)
        swl_sha256_reset(h);
    return h;
}

void swl_sha256_free(swl_sha256 *h)
{
    swl_free(h);
}

void swl_sha256_reset(swl_sha256 *h)
{
    SHA256_Init(&h->c);
    h->n = 0;
}

void swl_sha256_update(swl_sha256 *h, const void *data, size_t n)
{
    SHA256_Update(&h->c, data, n);
    h->n += n;
}

uint64_t swl_sha256_length(const swl_sha256 *h)
{
    return h->n;
}

static void to_hex(const uint8_t *p, size_t n, char *hex)
{
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", p[i]);
}

void swl_sha256_end(const swl_sha256 *h, char hex[65])
{
    SHA256_CTX copy = h->c;
    uint8_t d[32];

    SHA256_Final(d, &copy);
    to_hex(d, sizeof d, hex);
}

/* "N:eight words:pending bytes" in hex; how many bytes are pending follows from N. */
char *swl_sha256_save(const swl_sha256 *h)
{
    char words[65], pending[129] = "";

    for (int i = 0; i < 8; i++)
        snprintf(words + 8 * i, 9, "%08" PRIx32, (uint32_t)h->c.h[i]);
    to_hex((const uint8_t *)h->c.data, (size_t)(h->n % 64), pending);
    return swl_asprintf("%" PRIu64 ":%s:%s", h->n, words, pending);
}

static bool from_hex(uint8_t *dst, const char *hex, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned v;

        if (!isxdigit((unsigned char)hex[2 * i]) || !isxdigit((unsigned char)hex[2 * i + 1]) ||
            sscanf(hex + 2 * i, "%2x", &v) != 1)
            return false;
        dst[i] = (uint8_t)v;
    }
    return hex[2 * n] == 0;
}

bool swl_sha256_load(swl_sha256 *h, const char *text)
{
    uint8_t words[32], pending[64];
    char hex[65];
    uint64_t n;
    int at = 0;

    swl_sha256_reset(h);
    if (sscanf(text, "%" SCNu64 ":%64[0-9a-f]:%n", &n, hex, &at) != 2 || !at || n >> 60 || strlen(hex) != 64 ||
        !from_hex(words, hex, 32) || !from_hex(pending, text + at, (size_t)(n % 64)))
        return false;
    for (int i = 0; i < 8; i++)
        h->c.h[i] = (uint32_t)words[4 * i] << 24 | (uint32_t)words[4 * i + 1] << 16 | (uint32_t)words[4 * i + 2] << 8 |
                    words[4 * i + 3];
    h->c.Nl = (SHA_LONG)(n << 3);
    h->c.Nh = (SHA_LONG)(n >> 29);
    h->c.num = (unsigned)(n % 64);
    memcpy(h->c.data, pending, (size_t)(n % 64));
    h->n = n;
    return true;
}

/* ---- whole files --------------------------------------------------------------------------------------------------- */

static EVP_MD_CTX *begin(swl_digest_kind kind, uint64_t size)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    char head[40];
    int n = snprintf(head, sizeof head, "blob %" PRIu64, size) + 1;

    if (c && (!EVP_DigestInit_ex(c, kind == SWL_DIGEST_SHA256 ? EVP_sha256() : EVP_sha1(), NULL) ||
              (kind == SWL_DIGEST_GIT_SHA1 && !EVP_DigestUpdate(c, head, (size_t)n)))) {
        EVP_MD_CTX_free(c);
        c = NULL;
    }
    return c;
}

static bool end(EVP_MD_CTX *c, swl_digest_kind kind, swl_digest *out)
{
    uint8_t d[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    *out = (swl_digest){.kind = kind};
    if (!EVP_DigestFinal_ex(c, d, &n) || 2 * n > 64)
        return false;
    to_hex(d, n, out->hex);
    return true;
}

static swl_status no_hash(swl_error *err)
{
    return swl_fail(err, SWL_E_FAIL, "libcrypto cannot hash");
}

#define KINDS_MAX 2

static swl_status pass(int fd, const char *path, uint64_t size, EVP_MD_CTX **c, int n,
                       swl_status (*on_bytes)(void *arg, uint64_t n, swl_error *err), void *arg, swl_error *err)
{
    uint8_t *block = swl_calloc(BLOCK_BYTES, 1);
    swl_status st = block ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for a block");

    for (uint64_t at = 0, k; at < size && !st; at += k) {
        k = size - at < BLOCK_BYTES ? size - at : BLOCK_BYTES;
        st = swl_file_read_at(fd, path, at, block, k, err);
        for (int i = 0; i < n && !st; i++)
            if (c[i] && !EVP_DigestUpdate(c[i], block, k))
                st = no_hash(err);
        if (!st && on_bytes)
            st = on_bytes(arg, k, err);
    }
    swl_free(block);
    return st;
}

swl_status swl_digest_file(const char *path, const swl_digest_kind *kinds, swl_digest *out, int n,
                           swl_status (*on_bytes)(void *arg, uint64_t n, swl_error *err), void *arg, swl_error *err)
{
    EVP_MD_CTX *c[KINDS_MAX] = {NULL};
    uint64_t size = 0;
    int fd;
    swl_status st = swl_file_open(&fd, &size, path, err);

    for (int i = 0; i < n && !st; i++) {
        out[i] = (swl_digest){0};
        if (kinds[i] != SWL_DIGEST_NONE && !(c[i] = begin(kinds[i], size)))
            st = no_hash(err);
    }
    if (!st)
        st = pass(fd, path, size, c, n, on_bytes, arg, err);
    for (int i = 0; i < n; i++) {
        if (!st && c[i] && !end(c[i], kinds[i], &out[i]))
            st = no_hash(err);
        EVP_MD_CTX_free(c[i]);
    }
    swl_file_close(fd);
    return st;
}

swl_status swl_digest_memory(const void *data, size_t n, swl_digest_kind kind, swl_digest *out, swl_error *err)
{
    EVP_MD_CTX *c = begin(kind, n);
    bool ok = c && EVP_DigestUpdate(c, data, n) && end(c, kind, out);

    EVP_MD_CTX_free(c);
    return ok ? SWL_OK : no_hash(err);
}
