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

/* What the converter of llama.cpp did to the value heads: HF head k*r + j lies at j*n_k + k. */
bool swl_gguf_heads_are_tiled(const swl_gguf *g, const char *arch, int64_t vocab);

/* Text of config.json, to be freed with swl_free. */
swl_status swl_gguf_config(const swl_gguf *g, const char *arch, char **text, swl_error *err);

/* Appends to c->made. A file without a tokenizer gives nothing. */
swl_status swl_gguf_text(const swl_gguf *g, swl_checkpoint *c, swl_error *err);

#endif
