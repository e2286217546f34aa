/* format.h: figures for people. */
#ifndef CLI_FORMAT_H
#define CLI_FORMAT_H

#include <stdint.h>

/* "1.4 GB" (decimal units), in dst, which is returned. */
const char *format_bytes(char dst[16], uint64_t n);

/* Largest resident size of this process so far, in bytes. */
uint64_t peak_memory(void);

#endif
