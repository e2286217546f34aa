/* ls.c: swiftlet ls. */
#include "commands.h"
#include "output.h"

swl_status run_ls(const arguments *a, swl_error *err)
{
    (void)a;
    return fail(err, SWL_E_UNSUPPORTED, "not yet");
}
