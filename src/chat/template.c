/*
 * template.c: the checkpoint's own chat template, or one of the built-in ones where it has none. What a template can do
 * is not read from its text but seen from what it renders.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "chat/engine.h"

#define FILE_BYTES_MAX (UINT64_C(64) << 20)

static swl_status no_memory(swl_error *err)
{
    return swl_fail(err, SWL_E_NOMEM, "chat template: out of memory");
}

/* ---- where it is ---- */

static void set_source(swl_chat_template *t, const char *source)
{
    snprintf(t->info.source, sizeof t->info.source, "%s", source);
}

/* "chat_template": a string, or a list of {"name", "template"} of which the default counts. */
static const char *text_of(const json_t *v)
{
    const char *text = json_string_value(v);

    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *e = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(e, "name"));

        if (!text || (name && !strcmp(name, "default")))
            text = json_string_value(json_object_get(e, "template"));
    }
    return text;
}

/* Strings of tokenizer_config.json that transformers hands to templates: plain, or {"content"}. */
static swl_status keep_specials(swl_chat_template *t, const json_t *config, swl_error *err)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(config, names[i]);

        v = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(v) && json_object_set(t->specials, names[i], v))
            return no_memory(err);
    }
    return SWL_OK;
}

static swl_status from_config(swl_chat_template *t, const char *path, swl_error *err)
{
    json_t *config;
    const char *text;
    swl_status st = swl_json_load(&config, path, FILE_BYTES_MAX, err);

    if (st)
        return st;
    st = keep_specials(t, config, err);
    text = text_of(json_object_get(config, "chat_template"));
    if (!st && text && !t->text) {
        t->text = swl_strdup(text);
        st = t->text ? SWL_OK : no_memory(err);
        set_source(t, path);
    }
    json_decref(config);
    return st;
}

static swl_status from_file(swl_chat_template *t, const char *path, swl_error *err)
{
    size_t n;

    set_source(t, path);
    return swl_file_load(&t->text, &n, path, FILE_BYTES_MAX, err);
}

static swl_status find_text(swl_chat_template *t, const char *dir, const char *path, const char *family, swl_error *err)
{
    char *file = swl_path_join(dir, "chat_template.jinja"), *config = swl_path_join(dir, "tokenizer_config.json");
    swl_status st = file && config ? SWL_OK : no_memory(err);
    const char *name, *builtin;

    if (!st && path)
        st = from_file(t, path, err);
    else if (!st && swl_file_exists(file))
        st = from_file(t, file, err);
    if (!st && swl_file_exists(config))
        st = from_config(t, config, err);
    swl_free(file);
    swl_free(config);
    if (st || t->text)
        return st;
    builtin = swl_builtin_template(family, dir, &name);
    snprintf(t->info.source, sizeof t->info.source, "built in: %s", name);
    t->text = swl_strdup(builtin);
    return t->text ? SWL_OK : no_memory(err);
}

/* ---- what it can do ---- */

static const char probe_tool[] = "[{\"type\":\"function\",\"function\":{\"name\":\"swl_probe\",\"description\":\"d\","
                                 "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";

/* What it makes of a short question under one more variable ("" for none), or NULL when it refuses. */
static char *probe(const swl_chat_template *t, const char *name, json_t *value)
{
    json_t *vars =
        json_pack("{s:[{s:s, s:s}], s:b}", "messages", "role", "user", "content", "x", "add_generation_prompt", 1);
    char *text = NULL;
    size_t n;

    if (vars && !json_object_update(vars, t->specials) && (!*name || !json_object_set(vars, name, value)))
        swl_template_render(t->compiled, vars, &text, &n, NULL);
    json_decref(vars);
    json_decref(value);
    return text;
}

static bool thinks(const char *text)
{
    return text && swl_answer_start_of(text, strlen(text)) != SWL_ANSWER_START_TEXT;
}

static bool differ(const char *a, const char *b)
{
    return a && b && strcmp(a, b);
}

static void explore(swl_chat_template *t)
{
    char *plain = probe(t, "", NULL), *on = probe(t, "enable_thinking", json_true());
    char *off = probe(t, "enable_thinking", json_false()), *low = probe(t, "reasoning_effort", json_string("low"));
    char *tool = probe(t, "tools", json_loads(probe_tool, 0, NULL));

    t->info.thinking_default = thinks(plain);
    t->info.thinking = thinks(plain) || thinks(on);
    t->info.thinking_switch = t->info.thinking && thinks(on) != thinks(off) && off;
    t->info.effort = differ(plain, low);
    t->info.tools = tool && strstr(tool, "swl_probe");
    t->info.tool_calls_xml = strstr(t->text, "<function=");
    t->info.preserve_thinking = strstr(t->text, "preserve_thinking");
    t->high_is_xhigh = strstr(t->text, "xhigh");
    t->info.text = t->text;
    swl_free(plain);
    swl_free(on);
    swl_free(off);
    swl_free(low);
    swl_free(tool);
}

swl_status swl_chat_template_open(swl_chat_template *t, const char *dir, const char *path, const char *family,
                                  swl_error *err)
{
    swl_status st;

    t->specials = json_object();
    st = t->specials ? find_text(t, dir, path, family, err) : no_memory(err);
    if (!st)
        st = swl_template_compile(&t->compiled, t->text, strlen(t->text), t->info.source, err);
    if (!st)
        explore(t);
    return st;
}

void swl_chat_template_close(swl_chat_template *t)
{
    swl_template_free(t->compiled);
    swl_free(t->text);
    json_decref(t->specials);
}

/* ---- variables ---- */

/* What a template does not know is not said: an absent variable is not the same as a null one. */
static int set_thinking(const swl_chat_template *t, json_t *vars, swl_think think)
{
    const char *effort = think == SWL_THINK_LOW      ? "low"
                         : think == SWL_THINK_MEDIUM ? "medium"
                         : t->high_is_xhigh          ? "xhigh"
                                                     : "high";
    int bad = 0;

    if (think != SWL_THINK_DEFAULT && t->info.thinking_switch)
        bad |= json_object_set_new(vars, "enable_thinking", json_boolean(think != SWL_THINK_OFF));
    if (think >= SWL_THINK_LOW && t->info.effort)
        bad |= json_object_set_new(vars, "reasoning_effort", json_string(effort));
    return bad;
}

swl_status swl_chat_template_vars(const swl_chat_template *t, json_t *vars, swl_think think, bool preserve,
                                  const json_t *extra, swl_error *err)
{
    int bad = json_object_update(vars, t->specials) | set_thinking(t, vars, think);

    if (preserve && t->info.preserve_thinking)
        bad |= json_object_set_new(vars, "preserve_thinking", json_true());
    if (extra)
        bad |= json_object_update(vars, (json_t *)extra);
    return bad ? no_memory(err) : SWL_OK;
}
