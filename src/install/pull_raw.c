/* pull_raw.c */
#include "install/pull_impl.h"

swl_status swl_pull_raw(swl_puller *p, swl_error *err)
{
    (void)p;
    return swl_fail(err, SWL_E_UNSUPPORTED, "not yet");
}
