/* conversion.c: see conversion.h. */
#include "install/conversion.h"

#include <string.h>

#include "base/status.h"

static const struct {
    const char *name;
    int32_t low, high;
} recipes[] = {{"mixed_2_6", 2, 6}, {"mixed_3_4", 3, 4}, {"mixed_3_6", 3, 6}, {"mixed_4_6", 4, 6}};

enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

static const char *quantiser_name(bool minmax)
{
    return minmax ? "minmax" : "search 1";
}

static bool read_recipe(const char *name, swl_weight_rule *r)
{
    for (int i = 0; i < N_RECIPES; i++)
        if (!strcmp(name, recipes[i].name)) {
            r->bits = recipes[i].low;
            r->high_bits = recipes[i].high;
            return true;
        }
    return false;
}

swl_status swl_conversion_from(swl_conversion *c, int32_t bits, int32_t group, const char *recipe, bool minmax,
                               bool exact_scales, swl_error *err)
{
    *c = (swl_conversion){.rule = {.bits = bits, .group = group, .minmax = minmax}, .exact_scales = exact_scales};
    if (bits != 4 && bits != 8)
        return swl_fail(err, SWL_E_ARG, "%d bits are not possible, expected 4 or 8", (int)bits);
    if (group != 32 && group != 64 && group != 128)
        return swl_fail(err, SWL_E_ARG, "a group of %d is not possible, expected 32, 64 or 128", (int)group);
    if (recipe && !read_recipe(recipe, &c->rule))
        return swl_fail(err, SWL_E_ARG,
                        "no recipe is called \"%.60s\"; known: mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6", recipe);
    return SWL_OK;
}

json_t *swl_conversion_record(const swl_conversion *c, swl_checkpoint_kind kind)
{
    json_t *o = json_pack("{s:i,s:i,s:i,s:s,s:s}", "bits", (int)c->rule.bits, "group", (int)c->rule.group, "highBits",
                          (int)c->rule.high_bits, "quantiser", quantiser_name(c->rule.minmax), "container", "converted");

    if (o && kind == SWL_CHECKPOINT_GGUF && json_object_set_new(o, "exactScales", json_boolean(c->exact_scales))) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

static bool same_number(const json_t *record, const char *key, int32_t n)
{
    const json_t *v = json_object_get(record, key);

    return !v || json_integer_value(v) == n;
}

bool swl_conversion_matches(const swl_conversion *c, const json_t *record)
{
    const char *quantiser = json_string_value(json_object_get(record, "quantiser"));
    const json_t *exact = json_object_get(record, "exactScales");
    bool same = !exact || json_is_true(exact) == c->exact_scales;

    if (!json_integer_value(json_object_get(record, "bits"))) /* a copy, or a source that was quantised already */
        return same;
    return same && same_number(record, "bits", c->rule.bits) && same_number(record, "group", c->rule.group) &&
           same_number(record, "highBits", c->rule.high_bits) &&
           (!quantiser || !strcmp(quantiser, quantiser_name(c->rule.minmax)));
}

const char *swl_conversion_recipe(const json_t *record)
{
    json_int_t low = json_integer_value(json_object_get(record, "bits"));
    json_int_t high = json_integer_value(json_object_get(record, "highBits"));

    for (int i = 0; i < N_RECIPES; i++)
        if (high && recipes[i].low == low && recipes[i].high == high)
            return recipes[i].name;
    return NULL;
}

bool swl_conversion_is_minmax(const json_t *record)
{
    const char *quantiser = json_string_value(json_object_get(record, "quantiser"));

    return quantiser && !strcmp(quantiser, quantiser_name(true));
}
