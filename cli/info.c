/* info.c: swiftlet info MODEL, or the shapes of a known model without having it. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "config.h"
#include "engine.h"
#include "format.h"
#include "output.h"
#include "places.h"

/* What other budgets would give; made before the model is open, because what is resident then counts as taken. */
enum { N_PLANS = 5 };
static const uint64_t limits[N_PLANS] = {UINT64_C(2) << 30, UINT64_C(4) << 30, UINT64_C(8) << 30, UINT64_C(16) << 30, 0};

static swl_status make_plans(swl_memory_plan *plans, const arguments *a, const char *dir, swl_error *err)
{
    swl_model_options o;
    swl_status st = SWL_OK;

    for (int i = 0; i < N_PLANS && !st; i++) {
        st = model_options(&o, a, dir, err);
        if (limits[i])
            o.memory_bytes = limits[i];
        if (!st)
            st = swl_memory_plan_make(&plans[i], &o, err);
        if (st == SWL_E_BUDGET)
            st = SWL_OK; /* the row says so */
    }
    return st;
}

/* In the units that --memory is typed in. */
static const char *binary(char dst[16], uint64_t n)
{
    if (n < UINT64_C(1) << 30)
        snprintf(dst, 16, "%.0f MiB", (double)n / (double)(1 << 20));
    else
        snprintf(dst, 16, "%.1f GiB", (double)n / (double)(1 << 30));
    return dst;
}

static void print_plan(const swl_memory_plan *p, const char *remark)
{
    char limit[16], total[16], pool[16];

    if (p->total > p->limit)
        out_printf("%-10s does not fit: at least %llu MiB%s\n", binary(limit, p->limit),
                   (unsigned long long)((p->floor + (1 << 20) - 1) >> 20), remark);
    else
        out_printf("%-10s %-10s %-10s %4d of %-4d %d tokens%s\n", binary(limit, p->limit), binary(total, p->total),
                   binary(pool, p->pool), p->pool_slots, p->n_experts, p->chunk_tokens, remark);
}

/* By size; the one as opened, which is the last, in its place among the others. */
static void print_plans(const swl_memory_plan *plans)
{
    const swl_memory_plan *opened = &plans[N_PLANS - 1];
    bool printed = false;

    out_printf("\n%-10s %-10s %-10s %-12s %s\n", "memory", "used", "pool", "experts", "prompt chunk");
    for (int i = 0; i < N_PLANS; i++) {
        if (!printed && (i == N_PLANS - 1 || plans[i].limit >= opened->limit)) {
            print_plan(opened, "  (as opened)");
            printed = true;
        }
        if (i < N_PLANS - 1 && plans[i].limit != opened->limit)
            print_plan(&plans[i], "");
    }
}

static void print_text(const swl_model_info *i)
{
    char b[16];

    out_printf("family            %s\n", i->family);
    out_printf("container         %s\n", i->container);
    out_printf("layers            %d (%d attention, %d delta-net)\n", i->n_layers, i->n_attention_layers,
               i->n_layers - i->n_attention_layers);
    if (i->n_moe_layers)
        out_printf("experts           %d in each of %d layers, %d used for a token, width %d, %s\n", i->n_experts,
                   i->n_moe_layers, i->n_experts_used, i->expert_width, i->expert_format);
    else
        out_printf("experts           none: a dense model\n");
    out_printf("hidden size       %d\n", i->hidden);
    out_printf("vocabulary        %d\n", i->vocab);
    out_printf("context           %d tokens (the model allows %d)\n", i->ctx_tokens, i->ctx_tokens_max);
    out_printf("dense weights     %s\n", format_bytes(b, i->dense_bytes));
    if (i->n_moe_layers) {
        out_printf("routed experts    %s", format_bytes(b, i->experts_bytes));
        out_printf(" (%s each, in %d %s)\n", format_bytes(b, i->expert_bytes), i->reads_per_expert,
                   i->reads_per_expert == 1 ? "read" : "reads");
        out_printf("expert pool       %s", format_bytes(b, i->pool_bytes));
        out_printf(" (%d experts for each layer)\n", i->pool_slots);
    }
    out_printf("state             %s", format_bytes(b, i->state_bytes_fixed));
    out_printf(" and %s for each token\n", format_bytes(b, i->kv_bytes_token));
    out_printf("checksums         %s\n", i->checksums ? "yes" : "no");
    out_printf("draft head        %s\n", i->mtp ? "yes" : "no");
    out_printf("kernels           %s, %d threads\n", i->cpu_level, i->n_threads);
}

static void set_int(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static json_t *plans_json(const swl_memory_plan *plans)
{
    json_t *list = json_array();

    for (int i = 0; i < N_PLANS; i++) {
        const swl_memory_plan *p = &plans[i];
        json_t *o = json_object();

        set_int(o, "limit_bytes", p->limit);
        json_object_set_new(o, "default", json_boolean(!limits[i]));
        json_object_set_new(o, "fits", json_boolean(p->total <= p->limit));
        set_int(o, "floor_bytes", p->floor);
        set_int(o, "total_bytes", p->total);
        set_int(o, "pool_bytes", p->pool);
        set_int(o, "pool_slots", (uint64_t)p->pool_slots);
        set_int(o, "chunk_tokens", (uint64_t)p->chunk_tokens);
        json_array_append_new(list, o);
    }
    return list;
}

static void print_json(const swl_model_info *i, const swl_memory_plan *plans)
{
    json_t *o = out_object();

    json_object_set_new(o, "family", json_string(i->family));
    json_object_set_new(o, "container", json_string(i->container));
    set_int(o, "layers", (uint64_t)i->n_layers);
    set_int(o, "attention_layers", (uint64_t)i->n_attention_layers);
    set_int(o, "moe_layers", (uint64_t)i->n_moe_layers);
    set_int(o, "hidden", (uint64_t)i->hidden);
    set_int(o, "vocabulary", (uint64_t)i->vocab);
    set_int(o, "experts", (uint64_t)i->n_experts);
    set_int(o, "experts_used", (uint64_t)i->n_experts_used);
    set_int(o, "expert_width", (uint64_t)i->expert_width);
    json_object_set_new(o, "expert_format", json_string(i->expert_format));
    set_int(o, "context_tokens", (uint64_t)i->ctx_tokens);
    set_int(o, "context_tokens_max", (uint64_t)i->ctx_tokens_max);
    set_int(o, "dense_bytes", i->dense_bytes);
    set_int(o, "expert_bytes", i->expert_bytes);
    set_int(o, "experts_bytes", i->experts_bytes);
    set_int(o, "state_bytes_fixed", i->state_bytes_fixed);
    set_int(o, "kv_bytes_token", i->kv_bytes_token);
    set_int(o, "pool_bytes", i->pool_bytes);
    set_int(o, "pool_slots", (uint64_t)i->pool_slots);
    set_int(o, "reads_per_expert", (uint64_t)i->reads_per_expert);
    json_object_set_new(o, "checksums", json_boolean(i->checksums));
    json_object_set_new(o, "draft_head", json_boolean(i->mtp));
    json_object_set_new(o, "cpu_level", json_string(i->cpu_level));
    set_int(o, "threads", (uint64_t)i->n_threads);
    json_object_set_new(o, "memory", plans_json(plans));
    out_json(o);
}

static swl_status report(const arguments *a, swl_error *err)
{
    swl_memory_plan plans[N_PLANS] = {0};
    engine e = {0};
    int n_used;
    swl_status st = make_plans(plans, a, model_dir(a, &n_used), err);

    if (!st)
        st = engine_describe(&e, a, err);
    if (!st && opt_on(a, OPT_JSON)) {
        print_json(&e.info, plans);
    } else if (!st) {
        print_text(&e.info);
        print_plans(plans);
    }
    return engine_close(&e, st, err);
}

/* Is it the name of shapes, and nothing that is there? */
static bool is_shape(const char *name)
{
    swl_error ignored;
    const char *known;
    size_t n = name ? strcspn(name, "/") : 0;

    for (int32_t i = 0; name && (known = swl_synthetic_name(i)); i++) {
        if (strlen(known) == n && !memcmp(known, name, n))
            return model_check(name, &ignored) != SWL_OK;
    }
    return false;
}

/* A checkpoint without content in a folder for the time being. */
static swl_status report_shape(const arguments *a, const char *name, swl_error *err)
{
    const char *tmp = getenv("TMPDIR");
    char folder[PLACE_PATH_MAX], dir[PLACE_PATH_MAX + 8], file[PLACE_PATH_MAX + 32];
    arguments of = *a;
    swl_synthetic_options o;
    swl_status st;

    snprintf(folder, sizeof folder, "%s/swiftlet-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return fail(err, SWL_E_IO, "cannot make the folder %s", folder);
    snprintf(dir, sizeof dir, "%s/shapes", folder);
    swl_synthetic_options_init(&o);
    o.name = name;
    o.output = dir;
    o.shapes_only = true;
    st = swl_synthetic_create(&o, err);
    of.values[OPT_MODEL] = (option_value){.origin = FROM_TYPED, .set = true, .text = dir};
    if (!st && !opt_on(a, OPT_JSON))
        out_printf("%s: the published shapes at 4 bits, without a tokenizer; no such model is here\n\n", name);
    if (!st)
        st = report(&of, err);
    snprintf(file, sizeof file, "%s/config.json", dir);
    unlink(file);
    snprintf(file, sizeof file, "%s/model.safetensors", dir);
    unlink(file);
    rmdir(dir);
    rmdir(folder);
    return st;
}

swl_status run_info(const arguments *a, swl_error *err)
{
    int n_used;
    const char *dir = model_dir(a, &n_used);

    if (opt_on(a, OPT_CONFIG))
        return config_report(a, n_used || a->values[OPT_MODEL].set ? dir : NULL, err);
    return is_shape(dir) ? report_shape(a, dir, err) : report(a, err);
}
