/* state.c: see state.h. A state file may have been written by anything, so it is read like any other file from outside. */
#include "install/state.h"

#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "install/place.h"
#include "install/stage.h"

#define STATE_BYTES_MAX (UINT64_C(64) << 20)
#define SIZE_MAX_JSON   (UINT64_C(1) << 53)

static void free_file(swl_state_file *f)
{
    swl_free(f->path);
    swl_free(f->note);
    swl_spans_free(&f->done);
}

void swl_state_clear_files(swl_state *s)
{
    for (int32_t i = 0; i < s->n_files; i++)
        free_file(&s->files[i]);
    s->n_files = 0;
}

static void clear_description(swl_state *s)
{
    swl_free(s->kind);
    swl_free(s->source);
    swl_free(s->commit);
    swl_free(s->endpoint);
    json_decref(s->options);
    s->kind = s->source = s->commit = s->endpoint = NULL;
    s->options = NULL;
}

void swl_state_deinit(swl_state *s)
{
    swl_state_clear_files(s);
    swl_free(s->files);
    clear_description(s);
    swl_free(s->stamp);
    *s = (swl_state){0};
}

swl_state_file *swl_state_file_find(const swl_state *s, const char *path)
{
    for (int32_t i = 0; i < s->n_files; i++)
        if (!strcmp(s->files[i].path, path))
            return &s->files[i];
    return NULL;
}

swl_state_file *swl_state_file_get(swl_state *s, const char *path)
{
    swl_state_file *f = swl_state_file_find(s, path);

    if (f)
        return f;
    if (s->n_files == s->room) {
        int32_t room = s->room ? 2 * s->room : 64;

        f = swl_realloc(s->files, (size_t)room, sizeof *f);
        if (!f)
            return NULL;
        s->files = f;
        s->room = room;
    }
    f = &s->files[s->n_files];
    *f = (swl_state_file){.path = swl_strdup(path)};
    if (!f->path)
        return NULL;
    s->n_files++;
    return f;
}

static bool copy(char **dst, const char *s)
{
    *dst = s ? swl_strdup(s) : NULL;
    return !s || *dst;
}

bool swl_state_describe(swl_state *s, const char *kind, const char *source, const char *commit, const char *endpoint,
                        json_t *options)
{
    bool ok;

    clear_description(s);
    ok = copy(&s->kind, kind) && copy(&s->source, source) && copy(&s->commit, commit) && copy(&s->endpoint, endpoint);
    s->options = options ? options : json_object();
    return ok && s->options;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

bool swl_state_same(const swl_state *a, const swl_state *b)
{
    return same_text(a->kind, b->kind) && same_text(a->source, b->source) && same_text(a->commit, b->commit) &&
           same_text(a->stamp, b->stamp) && json_equal(a->options, b->options);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *s)
{
    return s ? json_string(s) : json_null();
}

static json_t *spans_json(const swl_spans *l)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < l->n; i++)
        json_array_append_new(list, json_pack("[I,I]", (json_int_t)l->s[i].begin, (json_int_t)l->s[i].end));
    return list;
}

static json_t *file_json(const swl_state *s, const swl_state_file *f)
{
    json_t *o = json_object();
    char text[SWL_DIGEST_TEXT];

    swl_digest_print(&f->digest, text);
    json_object_set_new(o, "size", json_integer((json_int_t)f->size));
    if (f->digest.kind)
        json_object_set_new(o, "digest", json_string(text));
    json_object_set_new(o, "verified", json_boolean(f->verified));
    if (s->complete)
        return o;
    json_object_set_new(o, "done", spans_json(&f->done));
    if (f->note)
        json_object_set_new(o, "note", json_string(f->note));
    return o;
}

static json_t *state_json(const swl_state *s)
{
    json_t *root = json_object(), *files = json_object();

    json_object_set_new(root, "version", json_integer(1));
    json_object_set_new(root, "complete", json_boolean(s->complete));
    json_object_set_new(root, "kind", text_or_null(s->kind));
    json_object_set_new(root, "source", text_or_null(s->source));
    json_object_set_new(root, "commit", text_or_null(s->commit));
    if (s->endpoint)
        json_object_set_new(root, "endpoint", json_string(s->endpoint));
    if (s->stamp)
        json_object_set_new(root, "stamp", json_string(s->stamp));
    json_object_set(root, "options", s->options);
    for (int32_t i = 0; i < s->n_files; i++)
        json_object_set_new(files, s->files[i].path, file_json(s, &s->files[i]));
    json_object_set_new(root, "files", files);
    return root;
}

swl_status swl_state_save(const swl_state *s, const char *dir, swl_error *err)
{
    json_t *root = state_json(s);
    size_t flags = JSON_SORT_KEYS | JSON_INDENT(1), n = root ? json_dumpb(root, NULL, 0, flags) : 0;
    char *text = n ? swl_calloc(n + 1, 1) : NULL, *path = swl_path_join(dir, SWL_STAGE_MARK);
    swl_status st;

    if (text)
        json_dumpb(root, text, n, flags);
    if (text)
        text[n] = '\n';
    st = text && path ? swl_file_save(path, text, n + 1, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for a state");
    json_decref(root);
    swl_free(text);
    swl_free(path);
    return st;
}

static swl_status read_spans(swl_state_file *f, const json_t *list, const char *path, swl_error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i), *a = json_array_get(v, 0), *b = json_array_get(v, 1);

        if (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
            json_integer_value(b) < json_integer_value(a) || (uint64_t)json_integer_value(b) > f->size)
            return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: \"done\" of %s is not a list of ranges of the file", path,
                               f->path);
        if (!swl_spans_add(&f->done, (uint64_t)json_integer_value(a), (uint64_t)json_integer_value(b)))
            return swl_fail(err, SWL_E_NOMEM, "out of memory for a state");
    }
    return SWL_OK;
}

static swl_status read_file(swl_state *s, const char *name, const json_t *o, const char *path, swl_error *err)
{
    const char *digest = NULL, *note = NULL;
    swl_state_file *f;
    swl_status st;

    if (!json_is_object(o) || !swl_path_is_safe(name))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: \"%.200s\" is no entry of a file", path, name);
    f = swl_state_file_get(s, name);
    if (!f)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a state");
    st = swl_json_u64(o, "size", SWL_REQUIRED, SIZE_MAX_JSON, &f->size, path, err);
    if (!st)
        st = swl_json_bool(o, "verified", SWL_OPTIONAL, &f->verified, path, err);
    if (!st)
        st = swl_json_str(o, "digest", SWL_OPTIONAL, &digest, path, err);
    if (!st && digest && !swl_digest_parse(&f->digest, digest))
        st = swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: \"%.80s\" is no digest", path, digest);
    if (!st)
        st = swl_json_str(o, "note", SWL_OPTIONAL, &note, path, err);
    if (!st && !copy(&f->note, note))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for a state");
    return st ? st : read_spans(f, json_object_get(o, "done"), path, err);
}

static swl_status read_description(swl_state *s, const json_t *root, const char *path, swl_error *err)
{
    static const char *const keys[] = {"kind", "source", "commit", "endpoint", "stamp"};
    char **dst[] = {&s->kind, &s->source, &s->commit, &s->endpoint, &s->stamp};
    json_t *options = json_object_get(root, "options");
    swl_status st = SWL_OK;

    for (int i = 0; i < 5 && !st; i++) {
        const char *v = NULL;

        st = swl_json_str(root, keys[i], SWL_OPTIONAL, &v, path, err);
        if (!st && !copy(dst[i], v))
            st = swl_fail(err, SWL_E_NOMEM, "out of memory for a state");
    }
    s->options = json_is_object(options) ? json_incref(options) : json_object();
    return st ? st : swl_json_bool(root, "complete", SWL_OPTIONAL, &s->complete, path, err);
}

swl_status swl_state_parse(swl_state *s, const json_t *root, const char *path, swl_error *err)
{
    int32_t version = 0;
    const char *name;
    json_t *o;
    swl_status st;

    *s = (swl_state){0};
    if (!json_is_object(root))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    st = swl_json_i32(root, "version", SWL_OPTIONAL, 0, INT32_MAX, &version, path, err);
    if (!st && version != 1)
        st = swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1, "%s: version %d, expected 1", path, (int)version);
    if (!st)
        st = read_description(s, root, path, err);
    if (!st)
        json_object_foreach(json_object_get(root, "files"), name, o)
        {
            st = read_file(s, name, o, path, err);
            if (st)
                break;
        }
    if (st)
        swl_state_deinit(s);
    return st;
}

swl_status swl_state_load(swl_state *s, const char *dir, swl_error *err)
{
    char *path = swl_path_join(dir, SWL_STAGE_MARK);
    json_t *root = NULL;
    swl_status st = path ? swl_json_load(&root, path, STATE_BYTES_MAX, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    *s = (swl_state){0};
    if (!st)
        st = swl_state_parse(s, root, path, err);
    json_decref(root);
    swl_free(path);
    return st;
}

typedef struct sweeping {
    const swl_state *s;
    const char *dir, *keep;
} sweeping;

static swl_status sweep_one(void *arg, const char *path, swl_error *err)
{
    const sweeping *w = arg;
    size_t n = w->keep ? strlen(w->keep) : 0;

    if (n && !strncmp(path, w->keep, n) && path[n] == '/')
        return SWL_OK;
    if (!strcmp(path, SWL_STAGE_MARK) || swl_state_file_find(w->s, path))
        return SWL_OK;
    return swl_place_remove(w->dir, path, err);
}

swl_status swl_state_sweep(const swl_state *s, const char *dir, const char *keep, swl_error *err)
{
    sweeping w = {s, dir, keep};

    return swl_place_walk(dir, sweep_one, &w, err);
}
