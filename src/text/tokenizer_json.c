/* tokenizer_json.c: walks the file once, setting the two long tables aside and giving jansson the values around them.
 */
#include "text/tokenizer_json.h"

#include <string.h>

#include "base/status.h"

static swl_status add_value(json_t *obj, const char *key, swl_json_reader *r, size_t start)
{
    json_error_t je;
    json_t *v;

    if (json_object_get(obj, key))
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, (int64_t)start, "%s: field \"%.40s\" is there twice",
                           r->path, key);
    v = json_loadb(r->text + start, r->at - start, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (!v)
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, (int64_t)start + je.position,
                           "%s is not valid JSON: in the value at offset %zu: %s", r->path, start, je.text);
    if (json_object_set_new(obj, key, v))
        return swl_fail(r->err, SWL_E_NOMEM, "%s: out of memory", r->path);
    return SWL_OK;
}

/* One of the tables: its range, to be read later. */
static swl_status set_aside(swl_json_reader *table, swl_json_reader *r, const char *name)
{
    size_t start;
    swl_status st;

    if (table->n)
        return swl_fail_at(r->err, SWL_E_CORRUPT, r->path, (int64_t)r->at, "%s: field \"%s\" is there twice", r->path,
                           name);
    st = swl_json_skip_value(r, &start);
    *table = *r;
    table->n = r->at;
    table->at = start;
    return st;
}

static swl_status read_object(swl_tokenizer_json *j, json_t *obj, swl_json_reader *r, bool is_model);

static swl_status read_member(swl_tokenizer_json *j, json_t *obj, swl_json_reader *r, bool is_model)
{
    const char *key;
    size_t n, start;
    swl_status st = swl_json_string(r, &key, &n);

    if (!st)
        st = swl_json_expect(r, ':');
    if (st)
        return st;
    if (is_model && !strcmp(key, "vocab"))
        return set_aside(&j->vocab, r, "model.vocab");
    if (is_model && !strcmp(key, "merges"))
        return set_aside(&j->merges, r, "model.merges");
    if (!is_model && !strcmp(key, "model") && swl_json_peek(r) == '{' && !json_object_get(obj, "model")) {
        json_t *model = json_object();

        if (json_object_set_new(obj, "model", model))
            return swl_fail(r->err, SWL_E_NOMEM, "%s: out of memory", r->path);
        return read_object(j, model, r, true);
    }
    st = swl_json_skip_value(r, &start);
    return st ? st : add_value(obj, key, r, start);
}

static swl_status read_object(swl_tokenizer_json *j, json_t *obj, swl_json_reader *r, bool is_model)
{
    bool more = true;
    swl_status st = swl_json_expect(r, '{');

    for (bool first = true; !st && more; first = false) {
        st = swl_json_more(r, '}', first, &more);
        if (!st && more)
            st = read_member(j, obj, r, is_model);
    }
    return st;
}

swl_status swl_tokenizer_json_open(swl_tokenizer_json *j, char *text, size_t n_bytes, const char *path, swl_error *err)
{
    swl_json_reader r = {text, n_bytes, 0, path, err};
    swl_status st;

    memset(j, 0, sizeof *j);
    j->root = json_object();
    if (!j->root)
        return swl_fail(err, SWL_E_NOMEM, "%s: out of memory", path);
    st = read_object(j, j->root, &r, false);
    if (!st && (swl_json_peek(&r) || r.at < r.n))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)r.at, "%s goes on after its end at offset %zu", path, r.at);
    return st;
}

void swl_tokenizer_json_close(swl_tokenizer_json *j)
{
    json_decref(j->root);
}
