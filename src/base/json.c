/* json.c: typed field access over jansson. */
#include "base/json.h"

#include <inttypes.h>

#include "base/file.h"
#include "base/mem.h"

swl_status swl_json_parse(json_t **root, const char *text, size_t n, const char *path, swl_error *err)
{
    json_error_t je;

    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!*root)
        return swl_fail_at(err, SWL_E_CORRUPT, path, je.position, "%s is not valid JSON: line %d, column %d: %s", path,
                           je.line, je.column, je.text);
    return SWL_OK;
}

swl_status swl_json_load(json_t **root, const char *path, uint64_t n_max, swl_error *err)
{
    char *text;
    size_t n;
    swl_status st = swl_file_load(&text, &n, path, n_max, err);

    *root = NULL;
    if (st)
        return st;
    st = swl_json_parse(root, text, n, path, err);
    swl_free(text);
    return st;
}

/* SWL_OK with *v NULL: absent and optional. */
static swl_status get(const json_t *obj, const char *key, swl_need need, const json_t **v, const char *path,
                      swl_error *err)
{
    *v = json_object_get(obj, key);
    if (*v && json_is_null(*v))
        *v = NULL;
    if (!*v && need == SWL_REQUIRED)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"%s\" is missing", path, key);
    return SWL_OK;
}

static swl_status wrong(const json_t *v, const char *key, const char *want, const char *path, swl_error *err)
{
    static const char *const types[] = {"an object", "an array", "a string", "an integer", "a real", "true", "false",
                                        "null"};

    return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"%s\" is %s, expected %s", path, key,
                       types[json_typeof(v)], want);
}

swl_status swl_json_i32(const json_t *obj, const char *key, swl_need need, int32_t min, int32_t max, int32_t *out,
                        const char *path, swl_error *err)
{
    const json_t *v;
    swl_status st = get(obj, key, need, &v, path, err);

    if (st || !v)
        return st;
    if (!json_is_integer(v))
        return wrong(v, key, "an integer", path, err);
    if (json_integer_value(v) < min || json_integer_value(v) > max)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: field \"%s\" is %" JSON_INTEGER_FORMAT ", expected %" PRId32 " to %" PRId32, path, key,
                           json_integer_value(v), min, max);
    *out = (int32_t)json_integer_value(v);
    return SWL_OK;
}

swl_status swl_json_u64(const json_t *obj, const char *key, swl_need need, uint64_t max, uint64_t *out,
                        const char *path, swl_error *err)
{
    const json_t *v;
    swl_status st = get(obj, key, need, &v, path, err);

    if (st || !v)
        return st;
    if (!json_is_integer(v))
        return wrong(v, key, "an integer", path, err);
    if (json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: field \"%s\" is %" JSON_INTEGER_FORMAT ", expected 0 to %" PRIu64, path, key,
                           json_integer_value(v), max);
    *out = (uint64_t)json_integer_value(v);
    return SWL_OK;
}

swl_status swl_json_f64(const json_t *obj, const char *key, swl_need need, double *out, const char *path,
                        swl_error *err)
{
    const json_t *v;
    swl_status st = get(obj, key, need, &v, path, err);

    if (st || !v)
        return st;
    if (!json_is_number(v))
        return wrong(v, key, "a number", path, err);
    *out = json_number_value(v);
    return SWL_OK;
}

swl_status swl_json_bool(const json_t *obj, const char *key, swl_need need, bool *out, const char *path,
                         swl_error *err)
{
    const json_t *v;
    swl_status st = get(obj, key, need, &v, path, err);

    if (st || !v)
        return st;
    if (!json_is_boolean(v))
        return wrong(v, key, "true or false", path, err);
    *out = json_is_true(v);
    return SWL_OK;
}

swl_status swl_json_str(const json_t *obj, const char *key, swl_need need, const char **out, const char *path,
                        swl_error *err)
{
    const json_t *v;
    swl_status st = get(obj, key, need, &v, path, err);

    if (st || !v)
        return st;
    if (!json_is_string(v))
        return wrong(v, key, "a string", path, err);
    *out = json_string_value(v);
    return SWL_OK;
}
