/* crc32c.h: CRC-32C (Castagnoli polynomial 0x1EDC6F41, RFC 3720 appendix B.4), hardware instructions where present. */
#ifndef SWL_BASE_CRC32C_H
#define SWL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc of what came before (0 to begin), continued over n bytes. */
uint32_t swl_crc32c(uint32_t crc, const void *data, size_t n);

/* The checksum of two neighbouring pieces from those of each alone; n_b: bytes of the second. */
uint32_t swl_crc32c_join(uint32_t a, uint32_t b, uint64_t n_b);

/* swl_crc32c by tables alone: what processors without the instruction run, here so that tests reach it everywhere. */
uint32_t swl_crc32c_by_table(uint32_t crc, const void *data, size_t n);

#endif
