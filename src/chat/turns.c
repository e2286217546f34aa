/* turns.c: a list in order of use, and what makes a message the same as an answer. */
#include "chat/turns.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/json_in.h"
#include "chat/messages.h"

void swl_turn_release(swl_turn *turn)
{
    if (!turn || --turn->refs > 0)
        return;
    swl_free(turn->ids);
    swl_free(turn->reasoning);
    swl_free(turn->text);
    json_decref(turn->calls);
    swl_free(turn);
}

void swl_turns_deinit(swl_turns *t)
{
    while (t->n > 0)
        swl_turn_release(t->items[--t->n]);
}

static void drop_oldest(swl_turns *t)
{
    swl_turn *turn = t->items[0];

    memmove(t->items, t->items + 1, (size_t)--t->n * sizeof *t->items);
    t->n_ids -= turn->n;
    swl_turn_release(turn);
}

void swl_turns_add(swl_turns *t, swl_turn *turn)
{
    while (t->n && (t->n == SWL_TURNS_MAX || t->n_ids + turn->n > SWL_TURN_IDS_MAX))
        drop_oldest(t);
    t->items[t->n++] = turn;
    t->n_ids += turn->n;
}

/* ---- comparing ---- */

static const json_t *get(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_null(v) ? NULL : v;
}

static bool same_trimmed(const json_t *v, const char *text, size_t n)
{
    const char *p = json_string_value(v);
    size_t n_p = json_string_length(v);

    if (p)
        swl_trim(&p, &n_p);
    return n_p == n && !memcmp(p ? p : "", text, n);
}

static bool says_nothing(const json_t *v)
{
    const char *p = json_string_value(v);
    size_t n = json_string_length(v);

    if (p)
        swl_trim(&p, &n);
    return !n;
}

/* Arguments as a tree whether they came as one or as text; a new reference. */
static json_t *tree_of(const json_t *arguments)
{
    json_t *tree;

    if (!json_is_string(arguments))
        return json_incref((json_t *)arguments);
    if (!json_string_length(arguments))
        return json_object();
    return swl_json_in(&tree, json_string_value(arguments), json_string_length(arguments), NULL, "arguments", NULL)
               ? json_incref((json_t *)arguments)
               : tree;
}

static bool same_arguments(const json_t *a, const json_t *b)
{
    json_t *x = tree_of(a), *y = tree_of(b);
    bool same = json_equal(x, y);

    json_decref(x);
    json_decref(y);
    return same;
}

static bool same_calls(const swl_turn *turn, const json_t *calls, bool ids)
{
    size_t n = json_array_size(calls);
    bool same = n == json_array_size(turn->calls);

    for (size_t i = 0; i < n && same; i++) {
        const json_t *a = json_array_get(turn->calls, i), *b = json_array_get(calls, i), *f = get(b, "function");

        same = (!ids || json_equal(get(a, "id"), get(b, "id"))) && json_equal(get(a, "name"), get(f, "name")) &&
               same_arguments(get(a, "arguments"), get(f, "arguments"));
    }
    return same;
}

/* Reasoning may be left out, but not be another. */
static bool may_have_reasoned(const swl_turn *turn, const json_t *m)
{
    const json_t *reasoning = get(m, "reasoning_content");

    return says_nothing(reasoning) || same_trimmed(reasoning, turn->reasoning, turn->n_reasoning);
}

static bool has_call(const swl_turn *turn, const json_t *id)
{
    for (size_t i = 0; id && i < json_array_size(turn->calls); i++)
        if (json_equal(get(json_array_get(turn->calls, i), "id"), id))
            return true;
    return false;
}

static bool is_turn(const swl_turn *turn, const json_t *m, const json_t *id, const uint8_t *transcript)
{
    const json_t *content = get(m, "content"), *calls = get(m, "tool_calls");

    if (!may_have_reasoned(turn, m))
        return false;
    if (has_call(turn, id))
        return same_calls(turn, calls, true) &&
               (says_nothing(content) || same_trimmed(content, turn->text, turn->n_text));
    return !memcmp(turn->transcript, transcript, SWL_TRANSCRIPT_BYTES) && same_calls(turn, calls, false) &&
           same_trimmed(content, turn->text, turn->n_text);
}

swl_turn *swl_turns_find(swl_turns *t, const json_t *m, const uint8_t transcript[SWL_TRANSCRIPT_BYTES])
{
    const json_t *id = get(json_array_get(get(m, "tool_calls"), 0), "id");

    for (int32_t i = t->n - 1; i >= 0; i--) {
        swl_turn *turn = t->items[i];

        if (!is_turn(turn, m, id, transcript))
            continue;
        memmove(t->items + i, t->items + i + 1, (size_t)(t->n - 1 - i) * sizeof *t->items);
        t->items[t->n - 1] = turn;
        turn->refs++;
        return turn;
    }
    return NULL;
}

/* ---- transcripts ---- */

/* Each part with its length, so that none runs into the next. */
static void add(EVP_MD_CTX *md, const char *p, size_t n)
{
    uint64_t length = n;

    EVP_DigestUpdate(md, &length, sizeof length);
    EVP_DigestUpdate(md, p, n);
}

static bool add_calls(EVP_MD_CTX *md, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = get(json_array_get(calls, i), "function"), *name = get(f, "name");
        json_t *tree = tree_of(get(f, "arguments"));
        char *text = json_dumps(tree, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);

        json_decref(tree);
        if (!text)
            return false;
        add(md, json_string_value(name), json_string_length(name));
        add(md, text, strlen(text));
        free(text);
    }
    return true;
}

swl_status swl_transcript_add(uint8_t transcript[SWL_TRANSCRIPT_BYTES], const json_t *m, swl_error *err)
{
    const json_t *role = get(m, "role"), *content = get(m, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL);

    if (ok) {
        if (text)
            swl_trim(&text, &n);
        EVP_DigestUpdate(md, transcript, SWL_TRANSCRIPT_BYTES);
        add(md, json_string_value(role), json_string_length(role));
        add(md, text ? text : "", n);
        ok = add_calls(md, get(m, "tool_calls")) && EVP_DigestFinal_ex(md, transcript, NULL);
    }
    EVP_MD_CTX_free(md);
    return ok ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "messages: out of memory");
}
