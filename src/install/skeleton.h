/*
 * skeleton.h: a checkpoint that is still elsewhere, as a directory that looks like it: the small files, and shards that have
 * their full length and their headers, but holes for data. So whatever reads, checks and plans a checkpoint from a directory
 * does it for a remote one as well, before the first large byte.
 */
#ifndef SWL_INSTALL_SKELETON_H
#define SWL_INSTALL_SKELETON_H

#include "install/pull_impl.h"

bool swl_skeleton_is_shard(const swl_entry *e);
/* A shard, or a GGUF file. */
bool swl_skeleton_is_big(const swl_entry *e);
/* Makes it in `dir`, which exists or not. Small files are checked against their digests. */
swl_status swl_skeleton_make(swl_puller *p, const char *dir, swl_error *err);

#endif
