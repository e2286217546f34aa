/*
 * hasher.h: SHA-256 beside other work: a thread of its own hashes one block while its owner reads, converts and writes the
 * next. Without it a conversion would wait for the hash about half of its time.
 */
#ifndef SWL_INSTALL_HASHER_H
#define SWL_INSTALL_HASHER_H

#include <openssl/evp.h>
#include <swiftlet/swiftlet.h>

typedef struct swl_hasher swl_hasher;

swl_status swl_hasher_create(swl_hasher **out, swl_error *err);
void swl_hasher_free(swl_hasher *h); /* NULL is allowed; ends what is being hashed first */

/* Begins to add n bytes to `sha`, once what was given before is in. Neither may be touched until the next add or wait. */
void swl_hasher_add(swl_hasher *h, EVP_MD_CTX *sha, const void *data, uint64_t n);
/* Returns when all that was given is in, with an error if any of it could not be hashed since the last wait. */
swl_status swl_hasher_wait(swl_hasher *h, swl_error *err);

#endif
