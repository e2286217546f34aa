/*
 * checkpoint.c: opens a model directory of any layout and answers for its tensors. What tells the layouts apart is
 * content: manifest.json (or the remains of a container) means .qpack; otherwise the shape of conv1d.weight means MLX
 * or Hugging Face. The parts are in dialect.c, experts.c, qpack.c and sidecar.c.
 */
#include "format/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/checkpoint_parts.h"
#include "format/synthetic.h"

#define NAME_BYTES_MAX 512

/* For MLX and Hugging Face the shards hold the experts too: the same descriptors serve both. */
static swl_status share_shards(swl_checkpoint *c, swl_error *err)
{
    int32_t n = swl_st_n_files(c->dense);

    c->files = swl_calloc((size_t)n, sizeof *c->files);
    c->experts = swl_calloc((size_t)c->config.n_layers, sizeof *c->experts);
    if (!c->files || !c->experts)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for %d shards", (int)n);
    c->n_files = n;
    for (int32_t i = 0; i < n; i++)
        c->files[i] = (swl_file_ref){swl_st_path(c->dense, i), swl_st_fd(c->dense, i), swl_st_file_size(c->dense, i)};
    return SWL_OK;
}

static swl_status open_shards(swl_checkpoint *c, swl_error *err)
{
    swl_status st = swl_config_load(&c->config, c->dir, err);

    return st ? st : swl_st_open(&c->dense, c->dir, err);
}

/* Names and conventions of the dense set, whatever the kind. */
static swl_status read_dialect(swl_checkpoint *c, swl_error *err)
{
    swl_status st = swl_dialect_refuse_foreign(c, err);

    if (!st)
        st = swl_dialect_find_prefix(c, err);
    if (!st)
        st = swl_dialect_norms(c, &c->norms_hold_one_plus_w, err);
    c->mtp |= swl_dialect_has_mtp(c->dense);
    return st;
}

static swl_status bind_experts(swl_checkpoint *c, swl_error *err)
{
    swl_status st;

    if (c->kind == SWL_CHECKPOINT_QPACK)
        return c->norms_hold_one_plus_w
                   ? SWL_OK
                   : swl_fail_at(err, SWL_E_CORRUPT, swl_st_path(c->dense, 0), -1,
                                 "%s: conv1d.weight is stored as in Hugging Face checkpoints, expected [C, 4, 1] in a "
                                 "container",
                                 c->dir);
    c->kind = c->norms_hold_one_plus_w ? SWL_CHECKPOINT_MLX : SWL_CHECKPOINT_HF;
    if (!c->config.n_experts)
        return SWL_OK;
    st = share_shards(c, err);
    return st ? st : swl_experts_from_tensors(c, err);
}

static swl_status open_dir(swl_checkpoint *c, swl_checkpoint_filter filter, swl_error *err)
{
    swl_status st;

    if (!swl_dir_exists(c->dir))
        return swl_fail_at(err, SWL_E_NOT_FOUND, c->dir, -1, "%s is not a directory with a model%s", c->dir,
                           swl_file_exists(c->dir) ? "; a GGUF file must be converted first (repack)" : "");
    c->kind = swl_qpack_is(c->dir) ? SWL_CHECKPOINT_QPACK : SWL_CHECKPOINT_HF;
    st = c->kind == SWL_CHECKPOINT_QPACK ? swl_qpack_open(c, err) : open_shards(c, err);
    if (!st && filter && c->kind != SWL_CHECKPOINT_QPACK)
        st = filter(c, err);
    if (!st)
        st = read_dialect(c, err);
    return st ? st : bind_experts(c, err);
}

swl_status swl_checkpoint_open(swl_checkpoint **out, const char *dir, swl_error *err)
{
    return swl_checkpoint_open_through(out, dir, NULL, err);
}

swl_status swl_checkpoint_open_through(swl_checkpoint **out, const char *dir, swl_checkpoint_filter filter,
                                       swl_error *err)
{
    swl_checkpoint *c = swl_calloc(1, sizeof *c);
    swl_status st;

    *out = NULL;
    if (!c || !(c->dir = swl_strdup(dir)))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory while opening %s", dir);
    else
        st = open_dir(c, filter, err);
    if (st)
        swl_checkpoint_close(c);
    else
        *out = c;
    return st;
}

void swl_checkpoint_close(swl_checkpoint *c)
{
    if (!c)
        return;
    for (int32_t i = 0; c->experts && i < c->config.n_layers; i++) {
        swl_free(c->experts[i].ranges);
        swl_free(c->experts[i].crc32c);
    }
    for (int32_t i = 0; c->kind == SWL_CHECKPOINT_QPACK && i < c->n_files; i++) {
        swl_file_close(c->files[i].fd);
        swl_free((char *)c->files[i].path);
    }
    swl_st_close(c->dense);
    if (c->close_source)
        c->close_source(c->source);
    for (int32_t i = 0; i < c->n_made; i++) {
        swl_free(c->made[i].name);
        swl_free(c->made[i].text);
    }
    swl_free(c->made);
    swl_free(c->config_text);
    json_decref(c->sidecar);
    swl_free(c->experts);
    swl_free(c->files);
    swl_free(c->dir);
    swl_free(c);
}

static const swl_st_tensor *find_joined(const swl_checkpoint *c, const char *head, const char *tail)
{
    char name[NAME_BYTES_MAX];
    int n = snprintf(name, sizeof name, "%s%s", head, tail);

    return n > 0 && (size_t)n < sizeof name ? swl_st_find(c->dense, name) : NULL;
}

/* "model." stands for the prefix; lm_head and mtp tensors stand alone, or behind the wrapper's name. */
const swl_st_tensor *swl_checkpoint_find(const swl_checkpoint *c, const char *name)
{
    static const char *const heads[] = {"", "language_model.", "model."};
    const swl_st_tensor *t = NULL;

    if (!strncmp(name, "model.", 6))
        return find_joined(c, c->prefix, name + 6);
    for (size_t i = 0; !t && i < sizeof heads / sizeof heads[0]; i++)
        t = find_joined(c, heads[i], name);
    return t;
}

bool swl_checkpoint_crc32c(const swl_checkpoint *c, const swl_st_tensor *t, uint32_t *crc)
{
    const char *path = swl_st_path(c->dense, t->file), *slash = strrchr(path, '/');

    return c->sidecar && swl_sidecar_tensor(c->sidecar, slash ? slash + 1 : path, t->name, crc);
}

/* As the stacked tensors of the layer would have them. */
void swl_checkpoint_make_expert(const swl_checkpoint *c, int32_t layer, int32_t expert, uint8_t *slot)
{
    const swl_expert_layout *l = &c->experts[layer];
    uint64_t end = 0;
    swl_synthetic s;
    char name[128];

    for (int i = 0; i < l->n_sections; i++) {
        const swl_section *x = &l->sections[i];

        snprintf(name, sizeof name, "model.layers.%d.mlp.switch_mlp.%s.%s", layer, swl_proj_names[x->proj],
                 swl_part_names[x->part]);
        swl_synthetic_init(&s, c->synthetic_seed, name, x->dtype, x->shape[1]);
        swl_synthetic_bytes(&s, (uint64_t)expert * x->size, slot + x->offset, x->size);
        end = x->offset + x->size > end ? x->offset + x->size : end;
    }
    memset(slot + end, 0, l->slot_bytes - end);
}
