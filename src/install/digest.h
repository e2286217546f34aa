/* digest.h: what a source publishes about the bytes of a file, and checking bytes against it. */
#ifndef SWL_INSTALL_DIGEST_H
#define SWL_INSTALL_DIGEST_H

#include <swiftlet/swiftlet.h>

typedef enum swl_digest_kind {
    SWL_DIGEST_NONE,
    SWL_DIGEST_SHA256,
    SWL_DIGEST_GIT_SHA1 /* SHA-1 of "blob SIZE\0" and the content, as git names its objects */
} swl_digest_kind;

typedef struct swl_digest {
    swl_digest_kind kind;
    char hex[65]; /* lower case */
} swl_digest;

/* "sha256:0123..." for messages and state files, and back. Room for SWL_DIGEST_TEXT bytes. */
#define SWL_DIGEST_TEXT 80
void swl_digest_print(const swl_digest *d, char text[SWL_DIGEST_TEXT]);
bool swl_digest_parse(swl_digest *d, const char *text);
/* From hex digits of either case, as many as the kind has; anything else leaves an empty one. */
bool swl_digest_set(swl_digest *d, swl_digest_kind kind, const char *hex);
bool swl_digest_equal(const swl_digest *a, const swl_digest *b);

/* SHA-256 that can stop at any byte and go on in another process. */
typedef struct swl_sha256 swl_sha256;
swl_sha256 *swl_sha256_new(void); /* NULL: out of memory */
void swl_sha256_free(swl_sha256 *h);
void swl_sha256_reset(swl_sha256 *h);
void swl_sha256_update(swl_sha256 *h, const void *data, size_t n);
uint64_t swl_sha256_length(const swl_sha256 *h); /* bytes so far */
void swl_sha256_end(const swl_sha256 *h, char hex[65]); /* of what came so far; h can go on */
/* The inner state as text: eight words, length, pending block. Free with swl_free; NULL: out of memory. */
char *swl_sha256_save(const swl_sha256 *h);
bool swl_sha256_load(swl_sha256 *h, const char *text);

/* The digests of a file in one pass. Both are of the kinds asked for; NONE gives an empty one. `on_bytes` (may be NULL) is
 * told of every block and stops the pass with its status. */
swl_status swl_digest_file(const char *path, const swl_digest_kind *kinds, swl_digest *out, int n,
                           swl_status (*on_bytes)(void *arg, uint64_t n, swl_error *err), void *arg, swl_error *err);
/* Of bytes in memory. */
swl_status swl_digest_memory(const void *data, size_t n, swl_digest_kind kind, swl_digest *out, swl_error *err);

#endif
