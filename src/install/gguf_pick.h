/*
 * gguf_pick.h: which files of a repository are the GGUF model that is meant: a file by its path, by the name of its
 * quantisation ("Q4_K_M"), or the only one that is there. A model in parts is meant by any of them.
 */
#ifndef SWL_INSTALL_GGUF_PICK_H
#define SWL_INSTALL_GGUF_PICK_H

#include "install/listing.h"

/* True for names that end in .gguf, in any case. */
bool swl_gguf_is_name(const char *path);

/* *first: the file, or its first part, as `all` has it; *n_parts: how many there are. `asked`: NULL for the only one.
 * `repo` is for messages, which list what there is. */
swl_status swl_gguf_pick(const swl_listing *all, const char *repo, const char *asked, const char **first, int *n_parts,
                         swl_error *err);

/* Part i (from 0) of n, where `first` is one of them; a new string, NULL: out of memory. With n 1: `first`. */
char *swl_gguf_part_name(const char *first, int i, int n);

#endif
