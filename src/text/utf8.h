/* utf8.h: where UTF-8 characters end, and where ill-formed parts do (Unicode 3.9, "maximal subparts"). */
#ifndef SWL_TEXT_UTF8_H
#define SWL_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* U+FFFD, which stands for one maximal ill-formed part. */
#define SWL_UTF8_REPLACEMENT   "\xEF\xBF\xBD"
#define SWL_UTF8_REPLACEMENT_N 3

/* Looks at the first character of p[0..n), n >= 1. k > 0: a well-formed character of k bytes. k < 0: an ill-formed part
 * of -k bytes, to be replaced as one. 0: p[0..n) is the beginning of a character that more bytes could complete. */
int32_t swl_utf8_part(const uint8_t *p, size_t n);

/* The code point of a well-formed character; *n_bytes receives its length. */
int32_t swl_utf8_code(const uint8_t *p, int32_t *n_bytes);

/* Writes a code point (no surrogate, at most U+10FFFF); returns the number of bytes, 1 to 4. */
int32_t swl_utf8_put(int32_t code, uint8_t *out);

#endif
