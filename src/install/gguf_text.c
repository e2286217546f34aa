/*
 * gguf_text.c: the tokenizer and chat template of a GGUF file as the files that the model had before it was converted.
 * The file names its way of cutting text into pieces instead of giving the pattern; the two that the family has are
 * known here.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "install/gguf_source.h"

enum { TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5 };

/* clang-format off */
static const struct {
    const char *name, *pattern;
} patterns[] = {
    {"qwen2", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
              "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"qwen35", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
               "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};
/* clang-format on */

typedef struct maker {
    const swl_gguf *g;
    const char *path;
    json_t *vocab, *added, *merges;
    char *eos, *pad;
    int64_t eos_id, pad_id;
    swl_error *err;
} maker;

static swl_status no_memory(const maker *m)
{
    return swl_fail(m->err, SWL_E_NOMEM, "out of memory for the tokenizer of %s", m->path);
}

/* An array of the metadata, of strings or of integers. */
static swl_status array(const maker *m, const char *key, bool strings, const swl_gguf_value **v)
{
    *v = swl_gguf_value_find(m->g, key);
    if (!*v)
        return swl_gguf_missing(m->g, key, m->err);
    if (!(*v)->is_array || ((*v)->kind == SWL_GGUF_STRING) != strings || (*v)->kind == SWL_GGUF_F32 ||
        (*v)->kind == SWL_GGUF_F64)
        return swl_gguf_wrong(m->g, *v, strings ? "an array of strings" : "an array of integers", m->err);
    return SWL_OK;
}

/* ---- the vocabulary -------------------------------------------------------------------------------------------------- */

static swl_status add_special(maker *m, json_t *text, int64_t id, int64_t type)
{
    json_t *o = json_pack("{s:I,s:O,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)id, "content", text, "single_word", 0,
                          "lstrip", 0, "rstrip", 0, "normalized", 0, "special", type == TOKEN_CONTROL);

    return o && !json_array_append_new(m->added, o) ? SWL_OK : no_memory(m);
}

static swl_status add_token(maker *m, json_t *text, int64_t id, int64_t type)
{
    char **keep = id == m->eos_id ? &m->eos : id == m->pad_id ? &m->pad : NULL;
    const char *s = json_string_value(text);

    if (keep && !*keep)
        *keep = swl_strdup(s);
    if (m->eos_id == m->pad_id && m->eos && !m->pad)
        m->pad = swl_strdup(m->eos);
    if (type == TOKEN_UNUSED) /* rows of the embedding that no token has */
        return SWL_OK;
    if (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED)
        return add_special(m, text, id, type);
    if (json_object_get(m->vocab, s))
        return swl_fail(m->err, SWL_E_CORRUPT, "%s: tokenizer.ggml.tokens has \"%.100s\" twice, at %" PRId64 " too",
                        m->path, s, id);
    return json_object_set_new(m->vocab, s, json_integer(id)) ? no_memory(m) : SWL_OK;
}

static swl_status bad_text(const maker *m, const char *key, uint64_t i)
{
    return swl_fail(m->err, SWL_E_CORRUPT, "%s: element %" PRIu64 " of %s is not UTF-8 text", m->path, i, key);
}

static swl_status add_tokens(maker *m)
{
    const swl_gguf_value *tokens, *types;
    swl_status st = array(m, "tokenizer.ggml.tokens", true, &tokens);
    const uint8_t *p;

    if (!st)
        st = array(m, "tokenizer.ggml.token_type", false, &types);
    if (!st && types->n != tokens->n)
        st = swl_fail(m->err, SWL_E_CORRUPT, "%s: %" PRIu64 " tokens, but %" PRIu64 " token types", m->path, tokens->n,
                      types->n);
    p = st ? NULL : tokens->data;
    for (uint64_t i = 0; !st && i < tokens->n; i++) {
        const char *s;
        uint64_t n;
        json_t *text;

        swl_gguf_next_string(&p, &s, &n);
        text = memchr(s, 0, n) ? NULL : json_stringn(s, n);
        st = text ? add_token(m, text, (int64_t)i, swl_gguf_int_at(types, i))
                  : bad_text(m, "tokenizer.ggml.tokens", i);
        json_decref(text);
    }
    return st;
}

static swl_status add_merges(maker *m)
{
    const swl_gguf_value *merges;
    swl_status st = array(m, "tokenizer.ggml.merges", true, &merges);
    const uint8_t *p = st ? NULL : merges->data;

    for (uint64_t i = 0; !st && i < merges->n; i++) {
        const char *s;
        uint64_t n;
        json_t *text;

        swl_gguf_next_string(&p, &s, &n);
        text = memchr(s, 0, n) ? NULL : json_stringn(s, n);
        if (!text)
            st = bad_text(m, "tokenizer.ggml.merges", i);
        else if (json_array_append_new(m->merges, text))
            st = no_memory(m);
    }
    return st;
}

/* ---- the files ------------------------------------------------------------------------------------------------------- */

/* Takes `text` (of swl_calloc), which may be NULL. */
static swl_status keep_file(const maker *m, swl_checkpoint *c, const char *name, char *text)
{
    swl_made_file *p = swl_realloc(c->made, (size_t)c->n_made + 1, sizeof *p);
    char *copy = swl_strdup(name);

    if (p)
        c->made = p;
    if (!p || !copy || !text) {
        swl_free(copy);
        swl_free(text);
        return no_memory(m);
    }
    p[c->n_made++] = (swl_made_file){copy, text};
    return SWL_OK;
}

/* Consumes `root`. */
static swl_status keep_json(const maker *m, swl_checkpoint *c, const char *name, json_t *root, int indent)
{
    size_t flags = JSON_INDENT(indent) | JSON_PRESERVE_ORDER, n = root ? json_dumpb(root, NULL, 0, flags) : 0;
    char *text = n ? swl_calloc(n + 2, 1) : NULL;

    if (text) {
        json_dumpb(root, text, n, flags);
        text[n] = '\n';
    }
    json_decref(root);
    return keep_file(m, c, name, text);
}

static swl_status find_pattern(const maker *m, const char **pattern)
{
    char *pre = NULL;
    swl_status st = swl_gguf_string(m->g, "tokenizer.ggml.pre", SWL_GGUF_REQUIRED, &pre, m->err);

    *pattern = NULL;
    for (size_t i = 0; !st && i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(pre, patterns[i].name))
            *pattern = patterns[i].pattern;
    if (!st && !*pattern)
        st = swl_fail(m->err, SWL_E_UNSUPPORTED, "%s: tokenizer.ggml.pre is \"%.50s\", expected qwen2 or qwen35", m->path,
                      pre);
    swl_free(pre);
    return st;
}

static swl_status keep_tokenizer(const maker *m, swl_checkpoint *c)
{
    const char *pattern;
    swl_status st = find_pattern(m, &pattern);
    json_t *pre, *model;

    if (st)
        return st;
    pre = json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]}", "type", "Sequence", "pretokenizers", "type",
                    "Split", "pattern", "Regex", pattern, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                    "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0);
    model = json_pack("{s:s,s:n,s:n,s:s,s:s,s:b,s:b,s:b,s:O,s:O}", "type", "BPE", "dropout", "unk_token",
                      "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0, "byte_fallback", 0,
                      "ignore_merges", 0, "vocab", m->vocab, "merges", m->merges);
    return keep_json(m, c, "tokenizer.json",
                     json_pack("{s:s,s:n,s:n,s:O,s:{s:s},s:o,s:{s:s,s:b,s:b,s:b},s:{s:s,s:b,s:b,s:b},s:o}", "version",
                               "1.0", "truncation", "padding", "added_tokens", m->added, "normalizer", "type", "NFC",
                               "pre_tokenizer", pre, "post_processor", "type", "ByteLevel", "add_prefix_space", 0,
                               "trim_offsets", 0, "use_regex", 0, "decoder", "type", "ByteLevel", "add_prefix_space", 0,
                               "trim_offsets", 0, "use_regex", 0, "model", model),
                     0);
}

static json_t *text_or_null(const char *s)
{
    return s ? json_string(s) : json_null();
}

static swl_status keep_config(const maker *m, swl_checkpoint *c)
{
    return keep_json(m, c, "tokenizer_config.json",
                     json_pack("{s:b,s:b,s:n,s:b,s:o,s:o,s:b,s:s,s:n}", "add_bos_token", 0, "add_prefix_space", 0,
                               "bos_token", "clean_up_tokenization_spaces", 0, "eos_token", text_or_null(m->eos),
                               "pad_token", text_or_null(m->pad), "split_special_tokens", 0, "tokenizer_class",
                               "Qwen2Tokenizer", "unk_token"),
                     2);
}

static swl_status keep_template(const maker *m, swl_checkpoint *c)
{
    char *text = NULL;
    swl_status st = swl_gguf_string(m->g, "tokenizer.chat_template", SWL_GGUF_OPTIONAL, &text, m->err);

    return st || !text ? st : keep_file(m, c, "chat_template.jinja", text);
}

static swl_status make(maker *m, swl_checkpoint *c)
{
    swl_status st = swl_gguf_int(m->g, "tokenizer.ggml.eos_token_id", SWL_GGUF_OPTIONAL, 0, INT32_MAX, &m->eos_id, m->err);

    if (!st)
        st = swl_gguf_int(m->g, "tokenizer.ggml.padding_token_id", SWL_GGUF_OPTIONAL, 0, INT32_MAX, &m->pad_id, m->err);
    if (!st)
        st = add_tokens(m);
    if (!st)
        st = add_merges(m);
    if (!st)
        st = keep_tokenizer(m, c);
    if (!st)
        st = keep_config(m, c);
    return st ? st : keep_template(m, c);
}

swl_status swl_gguf_text(const swl_gguf *g, swl_checkpoint *c, swl_error *err)
{
    maker m = {.g = g, .path = swl_gguf_path(g, 0), .eos_id = -1, .pad_id = -1, .err = err};
    char *kind = NULL;
    swl_status st = swl_gguf_string(g, "tokenizer.ggml.model", SWL_GGUF_OPTIONAL, &kind, err);

    if (st || !kind)
        return st;
    m.vocab = json_object();
    m.added = json_array();
    m.merges = json_array();
    if (strcmp(kind, "gpt2"))
        st = swl_fail(err, SWL_E_UNSUPPORTED, "%s: tokenizer.ggml.model is \"%.50s\", expected gpt2", m.path, kind);
    else if (!m.vocab || !m.added || !m.merges)
        st = no_memory(&m);
    else
        st = make(&m, c);
    json_decref(m.vocab);
    json_decref(m.added);
    json_decref(m.merges);
    swl_free(m.eos);
    swl_free(m.pad);
    swl_free(kind);
    return st;
}
