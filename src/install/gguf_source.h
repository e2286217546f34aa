/*
 * gguf_source.h: a GGUF file of this model family as a checkpoint to be converted: its tensors under the names, shapes
 * and conventions of an MLX checkpoint, its metadata as config.json and tokenizer files.
 *
 *   gguf_source.c   tensors: names, rows and columns back in grouped order, blocks taken apart while they are read
 *   gguf_config.c   metadata -> config.json
 *   gguf_text.c     metadata -> tokenizer.json, tokenizer_config.json, chat_template.jinja
 */
#ifndef SWL_INSTALL_GGUF_SOURCE_H
#define SWL_INSTALL_GGUF_SOURCE_H

#include "format/checkpoint.h"
#include "format/gguf.h"

/* The engine cannot run what this gives; only a conversion can use it. */
swl_status swl_gguf_checkpoint_open(swl_checkpoint **out, const char *path, bool exact_scales, swl_error *err);

/* Rows of a tensor of such a checkpoint that follow each other in a file: n of them, each `row` bytes and made of `file_row`
 * bytes, which begin at byte `begin` of file number `file`. The parts of a quantised matrix are made of the same bytes. */
typedef struct swl_gguf_run {
    int32_t file;
    uint64_t begin, file_row, row;
    int64_t n;
} swl_gguf_run;

/* From row `row` on, at most n. */
swl_gguf_run swl_gguf_run_at(const swl_checkpoint *c, const swl_st_tensor *t, int64_t row, int64_t n);
/* Bytes [begin, begin + n) of a file of the checkpoint are in memory, in place of the file: swl_gguf_window. */
void swl_gguf_checkpoint_window(const swl_checkpoint *c, int32_t file, uint64_t begin, const void *data, uint64_t n);

/* What the converter of llama.cpp did to the value heads: HF head k*r + j lies at j*n_k + k. */
bool swl_gguf_heads_are_tiled(const swl_gguf *g, const char *arch, int64_t vocab);

/* Text of config.json, to be freed with swl_free. */
swl_status swl_gguf_config(const swl_gguf *g, const char *arch, char **text, swl_error *err);

/* Appends to c->made. A file without a tokenizer gives nothing. */
swl_status swl_gguf_text(const swl_gguf *g, swl_checkpoint *c, swl_error *err);

#endif
