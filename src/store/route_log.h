/*
 * route_log.h: which experts tokens went to: recorded from a model, read back, or made up with a stated locality; and what a
 * cache policy would have made of it.
 *
 * A log file, all numbers little-endian:
 *
 *     0   "SWLROUTE"
 *     8   u32 version, 1        12  u32 layers with experts, L
 *     16  u32 experts, E        20  u32 experts per token, K
 *     24  passes, one after the other:
 *             u32 n                          tokens of the pass, at least 1
 *             u16 [L][n][K]                  expert ids below E
 *
 * A pass that is cut off at the end of the file (a recording that was ended from outside) is left out.
 */
#ifndef SWL_STORE_ROUTE_LOG_H
#define SWL_STORE_ROUTE_LOG_H

#include <stdio.h>

#include <swiftlet/swiftlet.h>

struct swl_route_log {
    int32_t n_layers, n_experts, k;
    int64_t n_tokens, n_passes;
    int32_t *pass_tokens;      /* [n_passes] */
    uint16_t *ids;             /* [n_tokens][n_layers][k] */
};

/* swl_route_log_load for bytes in memory; `path` is for messages. */
swl_status swl_route_log_parse(swl_route_log **out, const uint8_t *data, size_t n, const char *path, swl_error *err);

typedef struct swl_route_writer swl_route_writer;

/* Creates (truncating) the file. n_layers of the model that have experts are written in turn for each pass. */
swl_status swl_route_writer_open(swl_route_writer **out, const char *path, int32_t n_layers, int32_t n_experts, int32_t k,
                                 swl_error *err);
/* The next layer, counting from 0 those that have experts, of a pass of n tokens: ids [n][k]. Layer 0 begins a pass. */
swl_status swl_route_writer_add(swl_route_writer *w, int32_t layer, const int32_t *ids, int32_t n, swl_error *err);
swl_status swl_route_writer_close(swl_route_writer *w, swl_error *err); /* NULL is allowed */

#endif
