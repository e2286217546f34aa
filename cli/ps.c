/* ps.c: swiftlet health, swiftlet ps: about a server that runs. */
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
