/*
 * stop_set.c: which tokens end a generation. Published files disagree (config.json of Qwen3.5 names <|endoftext|> only,
 * and a chat then runs past <|im_end|>), so the union of all that is named is taken; where generation_config.json is
 * missing or silent, as in many conversions, the family's two end tokens join it.
 */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/tokenizer_impl.h"

#define FILE_BYTES_MAX (UINT64_C(64) << 20)

/* An id that is no token cannot be drawn, so it is left out rather than refused. */
static void add_stop(swl_tokenizer *t, int64_t id)
{
    if (id >= 0 && id < t->n_tokens && t->tokens[id].n_bytes)
        t->flags[id] |= SWL_TOKEN_STOP;
}

/* "eos_token_id": a number, a list of numbers, or null. */
static swl_status add_eos(swl_tokenizer *t, const json_t *obj, bool *found, const char *path, swl_error *err)
{
    const json_t *v = json_object_get(obj, "eos_token_id"), *id;
    size_t i;

    if (!v || json_is_null(v))
        return SWL_OK;
    if (json_is_integer(v)) {
        add_stop(t, json_integer_value(v));
        *found = true;
        return SWL_OK;
    }
    if (!json_is_array(v))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: field \"eos_token_id\" is neither a whole number nor a list of them", path);
    json_array_foreach (v, i, id) {
        if (!json_is_integer(id))
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"eos_token_id\"[%zu] is not a whole number",
                               path, i);
        add_stop(t, json_integer_value(id));
        *found = true;
    }
    return SWL_OK;
}

static swl_status from_generation_config(swl_tokenizer *t, const json_t *root, const char *path, swl_error *err)
{
    bool found = false;
    swl_status st = add_eos(t, root, &found, path, err);

    if (!found) {
        add_stop(t, swl_tokenizer_special(t, "<|im_end|>"));
        add_stop(t, swl_tokenizer_special(t, "<|endoftext|>"));
    }
    return st;
}

static swl_status from_config(swl_tokenizer *t, const json_t *root, const char *path, swl_error *err)
{
    bool found;
    swl_status st = add_eos(t, root, &found, path, err);

    return st ? st : add_eos(t, json_object_get(root, "text_config"), &found, path, err);
}

/* "eos_token": its text, or an object that holds it as "content" (older files), or null. */
static swl_status from_tokenizer_config(swl_tokenizer *t, const json_t *root, const char *path, swl_error *err)
{
    const json_t *v = json_object_get(root, "eos_token");

    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (v && !json_is_null(v) && !json_is_string(v))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"eos_token\" is not a string", path);
    if (json_is_string(v))
        add_stop(t, swl_tokenizer_special(t, json_string_value(v)));
    return SWL_OK;
}

typedef swl_status read_stops(swl_tokenizer *t, const json_t *root, const char *path, swl_error *err);

/* A missing file reads as null: it names nothing. */
static swl_status from_file(swl_tokenizer *t, const char *dir, const char *name, read_stops *read, swl_error *err)
{
    char *path = swl_path_join(dir, name);
    json_t *root = NULL;
    swl_status st = path ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory");

    if (!st && swl_file_exists(path))
        st = swl_json_load(&root, path, FILE_BYTES_MAX, err);
    if (!st && root && !json_is_object(root))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    if (!st)
        st = read(t, root, path, err);
    json_decref(root);
    swl_free(path);
    return st;
}

swl_status swl_stop_set_load(swl_tokenizer *t, const char *dir, swl_error *err)
{
    swl_status st = from_file(t, dir, "generation_config.json", from_generation_config, err);

    if (!st)
        st = from_file(t, dir, "config.json", from_config, err);
    return st ? st : from_file(t, dir, "tokenizer_config.json", from_tokenizer_config, err);
}
