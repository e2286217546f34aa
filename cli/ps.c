/* ps.c: swiftlet health, swiftlet ps, swiftlet launch: about a server that runs. */
#include <string.h>

#include "commands.h"
#include "output.h"
#include "remote.h"

swl_status run_health(const arguments *a, swl_error *err)
{
    json_t *o = NULL, *shown;
    swl_status st = remote_get(&o, a, "/health", err);
    const char *status = json_string_value(json_object_get(o, "status"));

    if (!st && opt_on(a, OPT_JSON)) {
        shown = out_object();
        json_object_set_new(shown, "url", out_string(opt_text(a, OPT_URL)));
        json_object_set_new(shown, "status", out_string(status ? status : ""));
        out_json(shown);
    } else if (!st) {
        out_printf("%s: %s\n", opt_text(a, OPT_URL), status ? status : "answers");
    }
    json_decref(o);
    return st;
}

static json_int_t number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static void print_slots(const json_t *model, const json_t *slots)
{
    const char *id = json_string_value(json_object_get(model, "id"));
    json_t *s;
    size_t i;

    out_printf("%s, context of %lld tokens\n", id ? id : "a model", (long long)number(model, "max_model_len"));
    json_array_foreach(slots, i, s)
    {
        const char *state = json_string_value(json_object_get(s, "state"));

        out_printf("%3lld  %-10s %lld of %lld tokens\n", (long long)number(s, "id"), state ? state : "",
                   (long long)number(s, "n_past"), (long long)number(s, "n_ctx"));
    }
}

swl_status run_ps(const arguments *a, swl_error *err)
{
    json_t *models = NULL, *slots = NULL, *o;
    swl_error ignored;
    swl_status st = remote_get(&models, a, "/v1/models", err);

    if (!st)
        remote_get(&slots, a, "/slots", &ignored); /* --no-slots hides them */
    if (!st && opt_on(a, OPT_JSON)) {
        o = out_object();
        json_object_set(o, "models", json_object_get(models, "data"));
        json_object_set_new(o, "conversations", slots ? json_incref(slots) : json_null());
        out_json(o);
    } else if (!st) {
        print_slots(json_array_get(json_object_get(models, "data"), 0), slots);
    }
    json_decref(models);
    json_decref(slots);
    return st;
}

/* $U: the server's address; $M: the model's name; $C: its context; $K: the key. */
typedef struct client_row {
    const char *name, *where, *text;
} client_row;

static const client_row clients[] = {
    {"codex", "~/.codex/config.toml",
     "model = \"$M\"\nmodel_provider = \"swiftlet\"\nmodel_context_window = $C\n\n[model_providers.swiftlet]\nname = \"swiftlet\"\n"
     "base_url = \"$U/v1\"\nwire_api = \"responses\"\n"},
    {"claude", "the environment",
     "export ANTHROPIC_BASE_URL=$U\nexport ANTHROPIC_AUTH_TOKEN=$K\nexport ANTHROPIC_MODEL=$M\n"
     "export CLAUDE_CODE_AUTO_COMPACT_WINDOW=$C\nexport CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\n"
     "export CLAUDE_CODE_ATTRIBUTION_HEADER=0\n"},
    {"opencode", "opencode.json",
     "{\n  \"provider\": {\n    \"swiftlet\": {\n      \"npm\": \"@ai-sdk/openai-compatible\",\n      \"options\": {\"baseURL\": \"$U/v1\", "
     "\"apiKey\": \"$K\"},\n      \"models\": {\"$M\": {\"limit\": {\"context\": $C, \"output\": $C}}}\n    }\n  },\n"
     "  \"model\": \"swiftlet/$M\"\n}\n"},
    {"pi", "models.json of pi",
     "{\"providers\": {\"swiftlet\": {\"baseUrl\": \"$U/v1\", \"apiKey\": \"$K\", \"api\": \"openai-completions\", "
     "\"models\": [{\"id\": \"$M\"}]}}}\n"},
    {"zed", "settings.json of Zed",
     "{\"language_models\": {\"openai_compatible\": {\"swiftlet\": {\"api_url\": \"$U/v1\", "
     "\"available_models\": [{\"name\": \"$M\", \"max_tokens\": $C}]}}}}\n"},
    {"continue", "config.yaml of Continue",
     "models:\n  - name: $M\n    provider: vllm\n    model: $M\n    apiBase: $U/v1\n    apiKey: $K\n"},
};
enum { N_CLIENTS = sizeof clients / sizeof clients[0] };

static void fill_in(const char *text, const char *url, const char *model, const char *key, json_int_t context)
{
    for (const char *p = text; *p; p++) {
        if (*p != '$')
            out_text(p, 1);
        else if (*++p == 'C')
            out_printf("%lld", (long long)context);
        else
            out_printf("%s", *p == 'U' ? url : *p == 'M' ? model : key);
    }
}

swl_status run_launch(const arguments *a, swl_error *err)
{
    const char *names[N_CLIENTS], *near, *id;
    const char *key = a->values[OPT_API_KEY].n_list ? a->values[OPT_API_KEY].list[0] : "none";
    const client_row *row = NULL;
    json_t *models = NULL, *model;
    swl_status st;

    for (int i = 0; i < N_CLIENTS; i++) {
        names[i] = clients[i].name;
        if (!strcmp(clients[i].name, a->operands[0]))
            row = &clients[i];
    }
    near = nearest_name(a->operands[0], names, N_CLIENTS);
    if (!row)
        return fail(err, SWL_E_ARG, "unknown client \"%s\"%s%s; usage: swiftlet launch %s", a->operands[0],
                    near ? "; did you mean " : "", near ? near : "", commands[CMD_LAUNCH].operands);
    st = remote_get(&models, a, "/v1/models", err);
    if (st)
        return st;
    model = json_array_get(json_object_get(models, "data"), 0);
    id = json_string_value(json_object_get(model, "id"));
    if (!opt_on(a, OPT_QUIET))
        note("for %s:", row->where);
    fill_in(row->text, opt_text(a, OPT_URL), id ? id : "swiftlet", key, number(model, "max_model_len"));
    json_decref(models);
    return SWL_OK;
}
