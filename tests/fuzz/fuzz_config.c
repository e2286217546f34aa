/* Any text as config.json: it is refused, or what the readers above rely on holds. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "format/config.h"

static void check_layers(const swl_config *c)
{
    int32_t n_moe = 0;

    for (int32_t i = 0; i < c->n_layers; i++)
        n_moe += c->layers[i].ffn == SWL_FFN_MOE;
    CHECK((n_moe > 0) == (c->n_experts > 0));
    CHECK(n_moe == c->n_layers || c->intermediate > 0);
    if (n_moe)
        CHECK(c->n_experts_used >= 1 && c->n_experts_used <= c->n_experts && c->expert_width > 0 &&
              c->shared_width > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    swl_config c;
    swl_error err;

    if (swl_config_parse(&c, (const char *)data, size, "config.json", &err)) {
        CHECK(err.message[0] && !strcmp(err.file, "config.json"));
        return 0;
    }
    CHECK(c.hidden > 0 && c.vocab > 0 && c.ctx_max > 0 && c.n_layers > 0 && c.n_layers <= SWL_LAYERS_MAX);
    CHECK(c.n_heads % c.n_kv_heads == 0 && c.n_v_heads % c.n_k_heads == 0 && c.k_dim > 0 && c.v_dim > 0);
    CHECK(c.rotary_dims >= 2 && c.rotary_dims % 2 == 0 && c.rotary_dims <= c.head_dim && c.rope_theta > 1);
    CHECK(c.conv_width >= 2 && c.conv_width <= 8 && c.norm_eps > 0);
    CHECK(!c.yarn || (c.yarn_factor >= 1 && c.yarn_beta_slow > 0 && c.yarn_beta_fast > c.yarn_beta_slow));
    check_layers(&c);
    return 0;
}
