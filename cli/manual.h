/* manual.h: man pages. */
#ifndef CLI_MANUAL_H
#define CLI_MANUAL_H

#include "commands.h"

/* Writes every page into a folder that exists. */
swl_status manual_write(const char *folder, swl_error *err);

#endif
