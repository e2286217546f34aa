/* rm.c: swiftlet rm. */
#include "commands.h"
#include "output.h"

swl_status run_rm(const arguments *a, swl_error *err)
{
    (void)a;
    return fail(err, SWL_E_UNSUPPORTED, "not yet");
}
