/* tokenizer_json.c: walks the file once, setting the two long tables aside and giving jansson the values around them.
 */
#include "text/tokenizer_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"

static swl_status add_value(json_t *obj, const char *key, swl_scan *s)
{
    json_error_t je;
    json_t *v;
    char *first;
    swl_status st = swl_scan_pass(s, &first);

    if (st)
        return st;
    v = json_loadb(first, (size_t)(s->p - first), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (!v) {
        int64_t at = first - s->begin + je.position;

        return swl_fail_at(s->err, SWL_E_CORRUPT, s->path, at, "%s: byte %" PRId64 ", in \"%.200s\": %s", s->path, at,
                           key, je.text);
    }
    if (json_object_set_new(obj, key, v))
        return swl_fail(s->err, SWL_E_NOMEM, "%s: out of memory", s->path);
    return SWL_OK;
}

/* One of the tables: its range, to be read later. */
static swl_status set_aside(swl_scan *table, swl_scan *s)
{
    char *first;
    swl_status st;

    if (table->p)
        return swl_scan_expected(s, "this field once");
    st = swl_scan_pass(s, &first);
    *table = *s;
    table->p = first;
    table->end = s->p;
    return st;
}

static swl_status read_model(swl_tokenizer_json *j, json_t *model, swl_scan *s)
{
    swl_status st = swl_scan_begin(s, '{');
    uint64_t n;
    char *key;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        s->in[1] = key;
        if (!strcmp(key, "vocab"))
            st = set_aside(&j->vocab, s);
        else if (!strcmp(key, "merges"))
            st = set_aside(&j->merges, s);
        else
            st = json_object_get(model, key) ? swl_scan_expected(s, "this field once") : add_value(model, key, s);
        s->in[1] = NULL;
    }
    return st;
}

static swl_status read_member(swl_tokenizer_json *j, const char *key, swl_scan *s)
{
    json_t *model;

    if (json_object_get(j->root, key))
        return swl_scan_expected(s, "this field once");
    if (strcmp(key, "model") || swl_scan_peek(s) != '{')
        return add_value(j->root, key, s);
    model = json_object();
    if (json_object_set_new(j->root, key, model))
        return swl_fail(s->err, SWL_E_NOMEM, "%s: out of memory", s->path);
    return read_model(j, model, s);
}

static swl_status read_root(swl_tokenizer_json *j, swl_scan *s)
{
    swl_status st = swl_scan_begin(s, '{');
    uint64_t n;
    char *key;

    for (n = 0; !st && !(st = swl_scan_member(s, n, &key)) && key; n++) {
        s->in[0] = key;
        st = read_member(j, key, s);
        s->in[0] = NULL;
    }
    return st ? st : swl_scan_finish(s);
}

swl_status swl_tokenizer_json_open(swl_tokenizer_json *j, char *text, size_t n_bytes, const char *path, swl_error *err)
{
    swl_scan s = {.begin = text, .p = text, .end = text + n_bytes, .path = path, .err = err};

    memset(j, 0, sizeof *j);
    j->root = json_object();
    if (!j->root)
        return swl_fail(err, SWL_E_NOMEM, "%s: out of memory", path);
    return read_root(j, &s);
}

void swl_tokenizer_json_close(swl_tokenizer_json *j)
{
    json_decref(j->root);
}
