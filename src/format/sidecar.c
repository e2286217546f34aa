/*
 * sidecar.c: swiftlet.json, what our writer adds to a container: checksums of every slot and dense tensor, and the
 * conventions of the data, stated rather than inferred.
 *
 *   {"version": 1, "norms": "1+w", "kHeadMap": "grouped", ...,
 *    "crc32c": {"packed_experts/layer_00.bin": "<8 hex digits per slot, concatenated>",
 *               "model.safetensors": {"<tensor>": "<8 hex digits>"}},
 *    "synthetic": {"name": "...", "seed": 1, "experts": "stored" or "absent"}}
 *
 * swl_sidecar_check looks at the form of all checksums once; the others then rely on it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "format/checkpoint_parts.h"

#define CRC_DIGITS 8

static bool is_hex(const char *s)
{
    return s[strspn(s, "0123456789abcdefABCDEF")] == 0;
}

/* The digits were checked. */
static uint32_t parse_crc(const char *s)
{
    uint32_t v = 0;

    for (int i = 0; i < CRC_DIGITS; i++)
        v = v << 4 | (uint32_t)(s[i] <= '9' ? s[i] - '0' : (s[i] | 0x20) - 'a' + 10);
    return v;
}

static swl_status check_word(const json_t *root, const char *key, const char *want, const char *path, swl_error *err)
{
    const char *v = want;
    swl_status st = swl_json_str(root, key, SWL_OPTIONAL, &v, path, err);

    if (!st && strcmp(v, want))
        st = swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1, "%s: %s \"%s\" is not supported, expected \"%s\"", path, key,
                         v, want);
    return st;
}

static swl_status bad_crc(const char *file, const char *tensor, const char *want, const char *path, swl_error *err)
{
    return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: crc32c of %s%s%s is not %s", path, file, tensor ? ", " : "",
                       tensor ? tensor : "", want);
}

static swl_status check_tensors(const json_t *tensors, const char *file, const char *path, swl_error *err)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)tensors, name,
                        v) if (!json_is_string(v) || json_string_length(v) != CRC_DIGITS ||
                               !is_hex(json_string_value(v))) return bad_crc(file, name, "8 hex digits", path, err);
    return SWL_OK;
}

static swl_status check_crcs(const json_t *crcs, const char *path, swl_error *err)
{
    const char *file;
    json_t *v;

    json_object_foreach((json_t *)crcs, file, v)
    {
        swl_status st = json_is_object(v) ? check_tensors(v, file, path, err) : SWL_OK;

        if (st)
            return st;
        if (!json_is_object(v) &&
            (!json_is_string(v) || json_string_length(v) % CRC_DIGITS || !is_hex(json_string_value(v))))
            return bad_crc(file, NULL, "hex digits, 8 per slot, or one entry per tensor", path, err);
    }
    return SWL_OK;
}

swl_status swl_sidecar_check(const json_t *root, const char *path, swl_error *err)
{
    int32_t version = 0;
    const json_t *crcs;
    swl_status st;

    if (!json_is_object(root))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s is not a JSON object", path);
    st = swl_json_i32(root, "version", SWL_REQUIRED, 0, INT32_MAX, &version, path, err);
    if (!st && version != 1)
        st = swl_fail_at(err, SWL_E_UNSUPPORTED, path, -1, "%s: version %" PRId32 " is not supported, expected 1", path,
                         version);
    if (!st)
        st = check_word(root, "norms", "1+w", path, err);
    if (!st)
        st = check_word(root, "kHeadMap", "grouped", path, err);
    if (st)
        return st;
    crcs = json_object_get(root, "crc32c");
    if (crcs && !json_is_null(crcs) && !json_is_object(crcs))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"crc32c\" is not an object", path);
    return check_crcs(crcs, path, err);
}

swl_status swl_sidecar_slots(const json_t *root, const char *file, int32_t n, uint32_t **crc, const char *path,
                             swl_error *err)
{
    const json_t *v = json_object_get(json_object_get(root, "crc32c"), file);
    const char *digits = json_string_value(v);

    *crc = NULL;
    if (!v)
        return SWL_OK;
    if (!digits || json_string_length(v) != (size_t)n * CRC_DIGITS)
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                           "%s: crc32c of %s has %zu hex digits, expected %" PRId32 " slots of 8", path, file,
                           digits ? json_string_length(v) : 0, n);
    *crc = swl_calloc((size_t)n, sizeof **crc);
    if (!*crc)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the checksums of %s", file);
    for (int32_t i = 0; i < n; i++)
        (*crc)[i] = parse_crc(digits + (size_t)i * CRC_DIGITS);
    return SWL_OK;
}

/* Made bytes need the element types that they are defined for. */
static swl_status check_makeable(const swl_checkpoint *c, const char *path, swl_error *err)
{
    for (int32_t i = 0; i < c->config.n_layers; i++)
        for (int32_t k = 0; c->experts && k < c->experts[i].n_sections; k++) {
            const swl_section *x = &c->experts[i].sections[k];

            if (x->dtype != (x->part == SWL_PART_WEIGHT ? SWL_DT_U32 : SWL_DT_BF16))
                return swl_fail_at(err, SWL_E_CORRUPT, path, -1,
                                   "%s: experts are said to be made when opened, but those of layer %" PRId32
                                   " have a section of %s",
                                   path, i, swl_dtype_name(x->dtype));
        }
    return SWL_OK;
}

swl_status swl_sidecar_synthetic(const json_t *root, swl_checkpoint *c, const char *path, swl_error *err)
{
    const json_t *o = json_object_get(root, "synthetic");
    const char *experts = "stored";
    swl_status st;

    if (!o || json_is_null(o))
        return SWL_OK;
    if (!json_is_object(o))
        return swl_fail_at(err, SWL_E_CORRUPT, path, -1, "%s: field \"synthetic\" is not an object", path);
    c->synthetic = true;
    st = swl_json_u64(o, "seed", SWL_REQUIRED, INT64_MAX, &c->synthetic_seed, path, err);
    if (!st)
        st = swl_json_str(o, "experts", SWL_OPTIONAL, &experts, path, err);
    c->experts_absent = !st && !strcmp(experts, "absent");
    return st || !c->experts_absent ? st : check_makeable(c, path, err);
}

bool swl_sidecar_tensor(const json_t *root, const char *file, const char *tensor, uint32_t *crc)
{
    const char *digits =
        json_string_value(json_object_get(json_object_get(json_object_get(root, "crc32c"), file), tensor));

    if (!digits)
        return false;
    *crc = parse_crc(digits);
    return true;
}
