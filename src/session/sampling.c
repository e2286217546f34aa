/* sampling.c: sampling parameters: neutral ones, and those that a model's publisher advises. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define FILE_BYTES_MAX (UINT64_C(64) << 20)

void swl_sampling_init(swl_sampling *p)
{
    *p = (swl_sampling){.top_p = 1, .repetition_penalty = 1, .repeat_last_n = -1};
}

/* A field between min and max; absent: *out keeps its value. */
static swl_status read_f32(const json_t *root, const char *key, double max, float *out, const char *path,
                           swl_error *err)
{
    double v = *out;
    swl_status st = swl_json_f64(root, key, SWL_OPTIONAL, &v, path, err);

    if (st)
        return st;
    if (!(v >= 0 && v <= max))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"%s\" is %g, expected 0 to %g", path, key, v, max);
    *out = (float)v;
    return SWL_OK;
}

static swl_status read_fields(swl_sampling *p, const json_t *root, const char *path, swl_error *err)
{
    swl_status st = read_f32(root, "temperature", 1000, &p->temperature, path, err);

    if (!st)
        st = swl_json_i32(root, "top_k", SWL_OPTIONAL, -1, INT32_MAX, &p->top_k, path, err);
    if (!st)
        st = read_f32(root, "top_p", 1, &p->top_p, path, err);
    if (!st)
        st = read_f32(root, "min_p", 1, &p->min_p, path, err);
    if (p->top_k < 0) /* some files write "all" so */
        p->top_k = 0;
    return st;
}

/* do_sample false asks for the argmax whatever the temperature; true without a temperature means 1, the reference's
 * default. */
static swl_status read_file(swl_sampling *p, const char *path, swl_error *err)
{
    json_t *root;
    bool do_sample = false;
    swl_status st = swl_json_load(&root, path, FILE_BYTES_MAX, err);

    if (!st && !json_is_object(root))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    if (!st)
        st = read_fields(p, root, path, err);
    if (!st)
        st = swl_json_bool(root, "do_sample", SWL_OPTIONAL, &do_sample, path, err);
    if (!st && do_sample && p->temperature == 0 && !json_object_get(root, "temperature"))
        p->temperature = 1;
    if (!st && !do_sample && json_is_false(json_object_get(root, "do_sample")))
        p->temperature = 0;
    json_decref(root);
    return st;
}

/* What the model cards advise for the default mode of a family, for containers that lost generation_config.json. */
static const struct {
    const char *prefix; /* of model_type */
    float temperature;
    int32_t top_k;
    float top_p;
} families[] = {
    {"qwen3_next", 0.7f, 20, 0.8f}, /* Instruct */
    {"qwen3_5", 1.0f, 20, 0.95f},   /* thinking, general; 3.5, 3.6 and 3.8 share the type */
};

static swl_status from_family(swl_sampling *p, const char *path, swl_error *err)
{
    const char *type = "";
    json_t *root;
    swl_status st = swl_json_load(&root, path, FILE_BYTES_MAX, err);

    if (!st && !json_is_object(root))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    if (!st)
        st = swl_json_str(root, "model_type", SWL_OPTIONAL, &type, path, err);
    for (size_t i = 0; !st && i < sizeof families / sizeof families[0]; i++) {
        if (strncmp(type, families[i].prefix, strlen(families[i].prefix)))
            continue;
        p->temperature = families[i].temperature;
        p->top_k = families[i].top_k;
        p->top_p = families[i].top_p;
    }
    json_decref(root);
    return st;
}

swl_status swl_sampling_load(swl_sampling *p, const char *dir, swl_error *err)
{
    char *path = swl_path_join(dir, "generation_config.json"), *config = swl_path_join(dir, "config.json");
    swl_sampling read = *p;
    swl_status st = SWL_OK;

    if (!path || !config)
        st = swl_fail(err, SWL_E_NOMEM, "out of memory");
    else if (swl_file_exists(path))
        st = read_file(&read, path, err);
    else if (swl_file_exists(config))
        st = from_family(&read, config, err);
    else if (!swl_dir_exists(dir))
        st = swl_fail_at(err, SWL_E_NOT_FOUND, dir, -1, "%s is not a directory", dir);
    if (!st)
        *p = read;
    swl_free(config);
    swl_free(path);
    return st;
}
