/*
 * probe.h: how a drive likes to be read. What the caller named is taken; the rest comes from the file that an earlier probe
 * left, else from a probe of some dozen reads, else (small containers, ranges that are not aligned) from what is usual.
 */
#ifndef SWL_STORE_PROBE_H
#define SWL_STORE_PROBE_H

#include "store/store.h"

typedef enum swl_io_direct { SWL_DIRECT_AUTO, SWL_DIRECT_ON, SWL_DIRECT_OFF } swl_io_direct;

typedef struct swl_io_wish {
    const char *backend;       /* NULL: free */
    swl_io_direct direct;
    int32_t depth;             /* 0: free */
    bool no_probe;             /* nor a cache file: what is usual */
    const char *cache_path;    /* where the outcome is remembered; NULL: nowhere */
    const char *cache_key;     /* names the container, one word; an entry with another key is ignored */
} swl_io_wish;

typedef struct swl_io_choice {
    char backend[16];
    bool direct;
    int32_t depth;
    double gb_per_s;           /* as probed; 0: not probed */
    bool remembered;           /* from the file */
} swl_io_choice;

/* c: layers, files and their paths are used. What is named and does not work is an error; a probe or a cache file that
 * fails is not. */
swl_status swl_io_choose(swl_io_choice *out, const swl_io_wish *wish, const swl_store_config *c, swl_error *err);

#endif
