/* verify.c: swiftlet verify MODEL [REFERENCE]: a forward pass compared with the outputs of a reference, or the files. */
#include "commands.h"
#include "engine.h"
#include "output.h"
#include "verify_dir.h"

typedef struct verification {
    bool json;
    json_t *rows;
    char first_bad[64];
} verification;

static void on_row(void *arg, const swl_verify_row *row)
{
    verification *v = arg;
    json_t *o;

    if (!row->ok && !v->first_bad[0])
        snprintf(v->first_bad, sizeof v->first_bad, "%s", row->name);
    if (!v->json) {
        out_printf("%-12s %12.4g of %12.4g  %s\n", row->name, row->diff_max, row->ref_max, row->ok ? "ok" : "DIFFERS");
        return;
    }
    o = json_object();
    json_object_set_new(o, "name", json_string(row->name));
    json_object_set_new(o, "diff_max", out_real(row->diff_max));
    json_object_set_new(o, "ref_max", out_real(row->ref_max));
    json_object_set_new(o, "ok", json_boolean(row->ok));
    json_array_append_new(v->rows, o);
}

static swl_status finish_json(verification *v, double tolerance, swl_status st, swl_error *err)
{
    json_t *o = out_object();

    json_object_set_new(o, "ok", json_boolean(st == SWL_OK));
    json_object_set_new(o, "tolerance", json_real(tolerance));
    json_object_set_new(o, "first_bad", v->first_bad[0] ? json_string(v->first_bad) : json_null());
    json_object_set_new(o, "tensors", v->rows);
    out_json(o);
    err->message[0] = 0; /* all is said */
    return st;
}

swl_status run_verify(const arguments *a, swl_error *err)
{
    verification v = {.json = opt_on(a, OPT_JSON)};
    double tolerance = a->values[OPT_TOLERANCE].real;
    engine e = {0};
    int n_used;
    const char *dir = model_dir(a, &n_used);
    swl_status st;

    if (n_used == a->n_operands) { /* no reference */
        st = dir ? SWL_OK : fail(err, SWL_E_ARG, "name a container to verify");
        return st ? st : verify_dir(a, dir, err);
    }
    st = engine_open_model(&e, a, err);

    v.rows = json_array();
    if (!st)
        st = swl_verify(e.model, a->operands[a->n_operands - 1], tolerance, on_row, &v, err);
    st = engine_close(&e, st, err);
    if (v.json && (!st || st == SWL_E_MISMATCH))
        return finish_json(&v, tolerance, st, err);
    json_decref(v.rows);
    return st;
}
