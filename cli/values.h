/* values.h: the texts that options take. Each returns false when the text is anything else. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include <stdbool.h>
#include <stdint.h>

bool parse_int(const char *text, int64_t *out);              /* whole decimal numbers */
bool parse_real(const char *text, double *out);              /* finite */
bool parse_seed(const char *text, uint64_t *out);            /* 0 to 2^63-1 */
bool parse_size(const char *text, uint64_t *out);            /* bytes: 512M, 4G, 1.5GiB; powers of 1024 */
bool parse_duration(const char *text, double *seconds);      /* 30, 30s, 5m, 1h, 200ms */
bool parse_switch(const char *text, bool *on);               /* on, off, 1, 0, true, false, yes, no */
bool choice_has(const char *choices, const char *text);      /* one of "a|b|c" */

#endif
