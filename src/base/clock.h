/* clock.h: time that only goes forward, from some beginning that means nothing. */
#ifndef SWL_BASE_CLOCK_H
#define SWL_BASE_CLOCK_H

#include <stdint.h>

double swl_seconds(void);
uint64_t swl_nanoseconds(void);

#endif
