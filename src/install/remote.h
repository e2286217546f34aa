/*
 * remote.h: what a hub or a mirror has: the commit, what kind of model it is, and the files to take, with sizes and digests.
 * Only a definite answer decides: a file is absent when a complete listing lacks it or its place answers 404; everything
 * less is tried again and then is an error.
 */
#ifndef SWL_INSTALL_REMOTE_H
#define SWL_INSTALL_REMOTE_H

#include "install/listing.h"
#include "install/source.h"
#include "install/transfer.h"

typedef struct swl_remote {
    swl_source source;
    char *commit;              /* NULL for mirrors */
    char *page;                /* of the repository */
    swl_listing all;           /* of a hub */
    swl_listing files;         /* to be taken */
    bool packed;               /* else a checkpoint: */
    char *gguf;                /* path of its file, or its first part; NULL: safetensors */
    bool hashed;               /* hashes.json was there */
    char *manifest, *hashes;   /* the texts; NULL when absent */
    size_t n_manifest, n_hashes;
    swl_fetch_base *bases;     /* mirrors first, then the source itself */
    int32_t n_bases;
} swl_remote;

/* Small files that go with a model, beside those that a manifest or an index names; NULL behind the last. */
extern const char *const swl_companions[];

/* `source` is taken over, also on failure. t's bases are set here. */
swl_status swl_remote_open(swl_remote *r, swl_source *source, swl_transfer *t, const swl_pull_options *o, swl_error *err);
void swl_remote_close(swl_remote *r);

#endif
