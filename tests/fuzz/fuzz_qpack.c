/*
 * Any JSON as each of a container's files: manifest.json, layout.json (both versions), swiftlet.json. It is refused, or
 * every section lies inside its slot, apart from the others, and every matrix inside its sections.
 */
#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "format/checkpoint_parts.h"

/* Layer 0 delta-net, layer 1 attention; in version 2 layer 0 is dense. */
static swl_config tiny(int32_t version)
{
    swl_config c = {.hidden = 128, .n_layers = 2, .n_experts = 8, .n_experts_used = 2, .expert_width = 64};

    c.layers[0] = (swl_layer_plan){SWL_MIXER_DELTANET, version == 1 ? SWL_FFN_MOE : SWL_FFN_DENSE};
    c.layers[1] = (swl_layer_plan){SWL_MIXER_ATTENTION, SWL_FFN_MOE};
    return c;
}

static uint64_t end_of(const swl_section *s)
{
    return s->offset + s->size;
}

static void check_matrix(const swl_checkpoint *c, int32_t layer, swl_proj proj)
{
    const swl_section *w = swl_experts_section(&c->experts[layer], proj, SWL_PART_WEIGHT);
    const swl_section *s = swl_experts_section(&c->experts[layer], proj, SWL_PART_SCALES);
    swl_matrix m;

    swl_expert_matrix(c, layer, proj, (const uint8_t *)0x1000, &m);
    CHECK(m.type != SWL_W_NONE && m.rows > 0 && m.cols > 0);
    CHECK((uint64_t)swl_matrix_row_bytes(&m) * (uint64_t)m.rows == w->size);
    if (s)
        CHECK(s->size == (uint64_t)m.rows * (uint64_t)(m.cols / m.group) * (uint64_t)swl_dtype_size(m.sdtype));
}

static void check_layer(const swl_checkpoint *c, int32_t layer)
{
    const swl_expert_layout *l = &c->experts[layer];

    CHECK(l->n_sections >= 3 && l->n_sections <= 9 && l->slot_bytes % 64 == 0);
    for (int32_t i = 0; i < l->n_sections; i++) {
        CHECK(end_of(&l->sections[i]) <= l->slot_bytes);
        for (int32_t k = 0; k < i; k++)
            CHECK(end_of(&l->sections[i]) <= l->sections[k].offset || end_of(&l->sections[k]) <= l->sections[i].offset);
    }
    for (int p = 0; p < SWL_PROJ_COUNT; p++)
        check_matrix(c, layer, (swl_proj)p);
}

static void try_layout(const json_t *root, int32_t version)
{
    swl_expert_layout layers[2] = {{0}};
    swl_checkpoint c = {.config = tiny(version), .experts = layers};
    swl_error err;

    if (swl_qpack_layout(root, version, &c.config, layers, "/nonexistent", "layout.json", &err)) {
        CHECK(err.message[0]);
        return;
    }
    for (int32_t i = 0; i < 2; i++)
        if (c.config.layers[i].ffn == SWL_FFN_MOE)
            check_layer(&c, i);
}

static void try_sidecar(const json_t *root)
{
    uint32_t *crc, one;
    swl_error err;

    if (swl_sidecar_check(root, "swiftlet.json", &err))
        return;
    swl_sidecar_slots(root, "packed_experts/layer_00.bin", 8, &crc, "swiftlet.json", &err);
    swl_free(crc);
    swl_sidecar_tensor(root, "model.safetensors", "model.norm.weight", &one);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t version;
    swl_error err;
    json_t *root;

    if (swl_json_parse(&root, (const char *)data, size, "input", &err))
        return 0;
    if (!swl_qpack_manifest(root, &version, "manifest.json", &err))
        CHECK(version == 1 || version == 2);
    try_layout(root, 1);
    try_layout(root, 2);
    try_sidecar(root);
    json_decref(root);
    return 0;
}
