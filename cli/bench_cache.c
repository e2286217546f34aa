/*
 * bench_cache.c: swiftlet bench cache: what pools of several sizes would have done on recorded or made-up routes, policy by
 * policy. Nothing is read or computed but the accesses.
 */
#include <string.h>

#include "bench.h"
#include "commands.h"
#include "output.h"

/* The shape that made-up routes have unless they come from a file. */
enum { LAYERS = 40, EXPERTS = 256, USED = 8, TOKENS = 2000 };

static swl_status load(swl_route_log **log, const arguments *a, swl_error *err)
{
    const char *text = opt_text(a, OPT_ROUTES);
    swl_route_model r;

    if (!text)
        return fail(err, SWL_E_ARG, "no routes: give --routes FILE, or --routes fitted for made-up ones");
    if (strcmp(text, "fitted") && !strchr(text, '/') && !strchr(text, '.'))
        return fail(err, SWL_E_ARG, "--routes is \"%s\", expected fitted or a file (./%s): caches are measured on routes that are "
                    "written down", text, text);
    if (strcmp(text, "fitted"))
        return swl_route_log_load(log, text, err);
    swl_route_model_init(&r, LAYERS, EXPERTS, USED, TOKENS);
    return swl_route_log_generate(log, &r, err);
}

/* Eighths of all, but not fewer than a token uses. */
static void usual_slots(int_list *l, const swl_route_log_info *i)
{
    l->n = 0;
    for (int k = 1; k <= 8; k++) {
        int32_t n = i->n_experts * k / 8;

        n = n < i->k ? i->k : n;
        if (!l->n || l->x[l->n - 1] != n)
            l->x[l->n++] = n;
    }
}

static swl_status try_one(const swl_route_log *log, const char *policy, int32_t slots, json_t *rows, swl_error *err)
{
    swl_route_log_info i;
    swl_cache_result r;
    swl_status st = swl_cache_simulate(log, policy, slots, &r, err);
    json_t *o;
    uint64_t n;

    if (st)
        return st;
    swl_route_log_info_get(log, &i);
    n = r.n_hits + r.n_misses;
    o = json_object();
    json_object_set_new(o, "policy", json_string(policy));
    json_object_set_new(o, "slots", json_integer(slots));
    json_object_set_new(o, "experts", json_integer(i.n_experts));
    json_object_set_new(o, "tokens", json_integer(i.n_tokens));
    json_object_set_new(o, "hits", json_integer((json_int_t)r.n_hits));
    json_object_set_new(o, "misses", json_integer((json_int_t)r.n_misses));
    json_object_set_new(o, "hit_rate", n ? out_real((double)r.n_hits / (double)n) : json_null());
    json_object_set_new(o, "misses_per_token", i.n_tokens ? out_real((double)r.n_misses / (double)i.n_tokens) : json_null());
    json_array_append_new(rows, o);
    return SWL_OK;
}

static swl_status try_all(const swl_route_log *log, const int_list *slots, json_t *rows, swl_error *err)
{
    swl_status st = SWL_OK;
    const char *policy;

    for (int k = 0; k < slots->n; k++)
        for (int32_t p = 0; !st && (policy = swl_cache_policy_name(p)); p++)
            st = try_one(log, policy, slots->x[k], rows, err);
    return st;
}

static void print_md(const char *routes, const swl_route_log_info *i, const json_t *rows)
{
    json_t *o;
    size_t k;

    out_printf("%s: %lld tokens, %d layers, %d experts, %d used for a token\n\n",
               strcmp(routes, "fitted") ? routes : "synthetic routes", (long long)i->n_tokens, i->n_layers, i->n_experts, i->k);
    out_printf("| slots per layer | policy | hits | misses/token |\n| --: | --- | --: | --: |\n");
    json_array_foreach(rows, k, o)
    {
        out_printf("| %lld | %s | %.1f%% | %.2f |\n", (long long)json_integer_value(json_object_get(o, "slots")),
                   json_string_value(json_object_get(o, "policy")),
                   100 * json_number_value(json_object_get(o, "hit_rate")),
                   json_number_value(json_object_get(o, "misses_per_token")));
    }
}

static void print_json(const char *routes, const swl_route_log_info *i, json_t *rows)
{
    json_t *o = out_object();

    json_object_set_new(o, "routes", json_string(routes));
    json_object_set_new(o, "tokens", json_integer(i->n_tokens));
    json_object_set_new(o, "layers", json_integer(i->n_layers));
    json_object_set_new(o, "experts", json_integer(i->n_experts));
    json_object_set_new(o, "experts_used", json_integer(i->k));
    json_object_set(o, "rows", rows);
    out_json(o);
}

static void print(const arguments *a, bench_format format, const swl_route_log_info *i, json_t *rows)
{
    json_t *o;
    size_t k;

    switch (format) {
    case BENCH_MD:
        print_md(opt_text(a, OPT_ROUTES), i, rows);
        break;
    case BENCH_CSV:
        bench_csv(rows);
        break;
    case BENCH_JSON:
        print_json(opt_text(a, OPT_ROUTES), i, rows);
        break;
    case BENCH_JSONL:
        json_array_foreach(rows, k, o)
        {
            out_json(json_incref(o));
        }
        break;
    }
}

swl_status bench_cache(const arguments *a, swl_error *err)
{
    swl_route_log *log = NULL;
    swl_route_log_info i = {0};
    json_t *rows = json_array();
    bench_format format;
    int_list slots;
    swl_status st = bench_format_from(a, &format, err);

    if (!st)
        st = load(&log, a, err);
    if (!st) {
        swl_route_log_info_get(log, &i);
        if (opt_text(a, OPT_SLOTS))
            st = bench_list(&slots, a, OPT_SLOTS, i.k, i.n_experts, err);
        else
            usual_slots(&slots, &i);
    }
    if (!st)
        st = try_all(log, &slots, rows, err);
    if (!st)
        print(a, format, &i, rows);
    swl_route_log_free(log);
    json_decref(rows);
    return st;
}
