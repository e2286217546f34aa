/* info.c: swiftlet info MODEL. */
#include "commands.h"
#include "engine.h"
#include "format.h"
#include "output.h"

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
        out_printf(" (%s each, %d reads)\n", format_bytes(b, i->expert_bytes), i->reads_per_expert);
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

static void print_json(const swl_model_info *i)
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
    out_json(o);
}

swl_status run_info(const arguments *a, swl_error *err)
{
    engine e = {0};
    swl_status st = engine_open_model(&e, a, err);

    if (!st && opt_on(a, OPT_JSON))
        print_json(&e.info);
    else if (!st)
        print_text(&e.info);
    engine_close(&e);
    return st;
}
