/*
 * listing.h: the files that a source says it has, out of a hub's tree, a manifest.json or a hashes.json. All of it is data
 * from outside: a path that could lead out of the container, two paths that are one on some system, or a size that no file
 * has, refuse the source.
 */
#ifndef SWL_INSTALL_LISTING_H
#define SWL_INSTALL_LISTING_H

#include "install/digest.h"

#define SWL_LISTING_FILES_MAX  10000
#define SWL_LISTING_BYTES_MAX  (UINT64_C(32) << 20) /* of one page of a tree */
#define SWL_SIZE_UNKNOWN       UINT64_MAX

typedef struct swl_entry {
    char *path;
    uint64_t size;         /* or SWL_SIZE_UNKNOWN */
    swl_digest digest[2];  /* all must hold; of hashes.json the second */
} swl_entry;

typedef struct swl_listing {
    swl_entry *e;
    int32_t n, room;
} swl_listing;

void swl_listing_free(swl_listing *l);
/* By path; NULL when absent. */
swl_entry *swl_listing_find(const swl_listing *l, const char *path);
/* Adds a path that is not there yet, after the checks. `from` is for messages. */
swl_status swl_listing_add(swl_listing *l, const char *path, uint64_t size, swl_entry **e, const char *from,
                           swl_error *err);

/* One page of a hub's tree: [{"type","path","size","oid","lfs":{"oid","size"}}]. Directories and hidden files are passed
 * over. `text` is changed. */
swl_status swl_listing_tree(swl_listing *l, char *text, size_t n, const char *from, swl_error *err);
/* {"files":{path: 64 hex digits}}: sets the second digest; files that are not there yet are added with unknown size. */
swl_status swl_listing_hashes(swl_listing *l, char *text, size_t n, const char *from, swl_error *err);
/* The files of a manifest.json, which is checked; sizes that are known already must agree. */
swl_status swl_listing_manifest(swl_listing *l, const char *text, size_t n, const char *from, swl_error *err);
/* No two paths that differ only in case. Sorts by path. */
swl_status swl_listing_finish(swl_listing *l, const char *from, swl_error *err);

#endif
