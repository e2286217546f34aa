/*
 * dialect.c: which tool wrote a set of tensors. Names differ (three prefixes), the zero-centred norms are stored as w
 * or as 1 + w, and many exports hold weights in forms that nothing here computes with. All of it is found out from
 * names and shapes: metadata and file names are not reliable.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/checkpoint_parts.h"

#define CONFIG_BYTES_MAX (UINT64_C(4) << 20)

static bool starts_with(const char *s, const char *head)
{
    return !strncmp(s, head, strlen(head));
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && !strcmp(s + n - k, tail);
}

static bool is_mtp(const char *name)
{
    return starts_with(name, "mtp.") || strstr(name, ".mtp.");
}

bool swl_dialect_ignores(const char *name)
{
    return is_mtp(name) || strstr(name, "vision_tower.") || strstr(name, "visual.");
}

bool swl_dialect_has_mtp(const swl_st *s)
{
    for (int32_t i = 0; i < swl_st_count(s); i++)
        if (is_mtp(swl_st_at(s, i)->name))
            return true;
    return false;
}

/* ---- foreign quantisations -------------------------------------------------------------------------------------- */

/* Longer endings first where one contains another. */
static const struct {
    const char *ending, *what;
} foreign[] = {
    {".weight_scale_inv", "FP8 with block scales"},
    {".weight_packed", "compressed-tensors"},
    {".weight_scale_2", "ModelOpt NVFP4"},
    {".weight_scale", "FP8 or NVFP4 with .weight_scale (compressed-tensors or ModelOpt)"},
    {".g_idx", "GPTQ"},
    {".qweight", "AWQ or GPTQ"},
    {".weight.absmax", "bitsandbytes"},
};

static const char *foreign_form(const swl_st_tensor *t)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (ends_with(t->name, foreign[i].ending))
            return foreign[i].what;
    if (t->dtype == SWL_DT_F8_E4M3 || t->dtype == SWL_DT_F8_E5M2)
        return "FP8";
    return NULL;
}

static swl_status refuse_form(const swl_checkpoint *c, const swl_st_tensor *t, const char *what, swl_error *err)
{
    const char *path = swl_st_path(c->dense, t->file);

    return swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1,
                       "%s: tensor \"%s\" (%s) shows weights in %s, which is not supported; use the bfloat16 original "
                       "or an MLX affine conversion (2 to 8 bits) of this model",
                       path, t->name, swl_dtype_name(t->dtype), what);
}

swl_status swl_dialect_refuse_foreign(const swl_checkpoint *c, swl_error *err)
{
    const swl_st *s = c->dense;

    for (int32_t i = 0; i < swl_st_count(s); i++) {
        const swl_st_tensor *t = swl_st_at(s, i);
        const char *what = swl_dialect_ignores(t->name) ? NULL : foreign_form(t);

        if (what)
            return refuse_form(c, t, what, err);
    }
    return SWL_OK;
}

/* The global mode of the quantisation block; "" when the config does not say. */
static void quant_mode(const char *dir, char *mode, size_t size)
{
    static const char *const blocks[] = {"quantization", "quantization_config"};
    char *path = swl_path_join(dir, "config.json");
    json_t *root = NULL;

    mode[0] = 0;
    if (path && !swl_json_load(&root, path, CONFIG_BYTES_MAX, NULL))
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0] && !mode[0]; i++) {
            const char *v = json_string_value(json_object_get(json_object_get(root, blocks[i]), "mode"));

            if (v)
                snprintf(mode, size, "%s", v);
        }
    json_decref(root);
    swl_free(path);
}

swl_status swl_dialect_refuse_mode(const char *dir, const char *path, const char *what, swl_error *err)
{
    char mode[32];

    quant_mode(dir, mode, sizeof mode);
    return swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1,
                       "%s: %s has scales but no biases: quantisation mode \"%s\" of config.json is not supported, "
                       "expected affine, mxfp4, mxfp8 or nvfp4",
                       path, what, mode[0] ? mode : "(not stated)");
}

/* ---- names and conventions -------------------------------------------------------------------------------------- */

swl_status swl_dialect_find_prefix(swl_checkpoint *c, swl_error *err)
{
    static const char *const prefixes[] = {"model.language_model.", "model.", "language_model.model."};
    char name[64];

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (swl_st_find(c->dense, name)) {
            snprintf(c->prefix, sizeof c->prefix, "%s", prefixes[i]);
            return SWL_OK;
        }
    }
    return swl_fail_at(err, SWL_E_CORRUPT, swl_st_path(c->dense, 0), -1,
                       "%s: no tensor embed_tokens.weight with prefix model.language_model., model. or "
                       "language_model.model.",
                       c->dir);
}

static swl_status conv_is_mlx(const swl_checkpoint *c, const swl_st_tensor *t, bool *mlx, swl_error *err)
{
    int32_t w = c->config.conv_width;

    *mlx = t->n_dims == 3 && t->shape[1] == w && t->shape[2] == 1;
    if (*mlx || (t->n_dims == 3 && t->shape[1] == 1 && t->shape[2] == w))
        return SWL_OK;
    return swl_fail_at(err, SWL_E_CORRUPT, swl_st_path(c->dense, t->file), -1,
                       "%s: tensor \"%s\" has %" PRId32 " dimensions, the last two %" PRId64 " and %" PRId64
                       ", expected [C, 1, %" PRId32 "] or [C, %" PRId32 ", 1]",
                       swl_st_path(c->dense, t->file), t->name, t->n_dims, t->n_dims > 1 ? t->shape[t->n_dims - 2] : 0,
                       t->n_dims ? t->shape[t->n_dims - 1] : 0, w, w);
}

swl_status swl_dialect_norms(const swl_checkpoint *c, bool *one_plus_w, swl_error *err)
{
    const swl_st_tensor *first = NULL;

    for (int32_t i = 0; i < swl_st_count(c->dense); i++) {
        const swl_st_tensor *t = swl_st_at(c->dense, i);
        bool mlx;
        swl_status st;

        if (!ends_with(t->name, ".linear_attn.conv1d.weight") || swl_dialect_ignores(t->name))
            continue;
        st = conv_is_mlx(c, t, &mlx, err);
        if (st)
            return st;
        if (first && mlx != *one_plus_w)
            return swl_fail_at(
                err, SWL_E_CORRUPT, swl_st_path(c->dense, t->file), -1,
                "%s: tensors \"%s\" and \"%s\" have different layouts: MLX and Hugging Face files are mixed", c->dir,
                first->name, t->name);
        *one_plus_w = mlx;
        first = first ? first : t;
    }
    if (!first)
        return swl_fail_at(err, SWL_E_CORRUPT, swl_st_path(c->dense, 0), -1,
                           "%s: no tensor linear_attn.conv1d.weight, whose shape tells how norms are stored", c->dir);
    return SWL_OK;
}
