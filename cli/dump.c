/* dump.c: swiftlet dump-tensor MODEL MODULE OUT: one module's numbers as float32. */
#include "commands.h"
#include "engine.h"
#include "output.h"

swl_status run_dump_tensor(const arguments *a, swl_error *err)
{
    int first;
    const char *dir = model_dir(a, &first);
    swl_status st = model_check(dir, err);

    if (!st && a->n_operands - first != 2)
        st = fail(err, SWL_E_ARG, "usage: swiftlet dump-tensor MODEL MODULE OUT.safetensors");
    if (!st)
        st = swl_dump_tensor(dir, a->operands[first], a->operands[first + 1], err);
    if (!st && !opt_on(a, OPT_QUIET))
        note("wrote %s", a->operands[first + 1]);
    return st;
}
