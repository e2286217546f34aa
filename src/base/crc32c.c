/*
 * crc32c.c: CRC-32C, by the processor's own instruction where it has one (chosen at the first call), else by tables,
 * eight bytes at a time. Every container byte that becomes a weight passes through here once, so it has to keep up with
 * the drive.
 *
 * The instruction takes three cycles but a new one can start in each, so the hardware path runs three streams side by
 * side over neighbouring blocks and joins them: crc(A B) = shift(crc(A), bytes of B) ^ crc'(B), where shift, which is
 * linear, is what that many zero bytes would do to the register, and comes from a table per block length.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define SWL_CRC_TARGET   __attribute__((target("sse4.2")))
#define SWL_CRC_HARDWARE 1
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__clang__) /* its arm_acle.h hides the intrinsics unless the whole file has the feature */
#define SWL_CRC_TARGET __attribute__((target("crc")))
#define __crc32cd      __builtin_arm_crc32cd
#define __crc32cb      __builtin_arm_crc32cb
#else
#include <arm_acle.h>
#define SWL_CRC_TARGET __attribute__((target("+crc")))
#endif
#define SWL_CRC_HARDWARE 1
#else
#define SWL_CRC_HARDWARE 0
#endif

#define POLYNOMIAL  UINT32_C(0x82f63b78) /* 0x1EDC6F41, bits reversed */
#define LONG_BYTES  4096                 /* of each of three streams: long enough that joining them costs little */
#define SHORT_BYTES 256

static uint32_t by_byte[8][256]; /* [k][b]: byte b, then k zero bytes */
static uint32_t (*chosen)(uint32_t crc, const uint8_t *p, size_t n);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    uint32_t c;
    int i, k;

    for (i = 0; i < 256; i++) {
        c = (uint32_t)i;
        for (k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
        by_byte[0][i] = c;
    }
    for (i = 0; i < 256; i++)
        for (k = 1; k < 8; k++)
            by_byte[k][i] = by_byte[k - 1][i] >> 8 ^ by_byte[0][by_byte[k - 1][i] & 255];
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t w;

    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        w ^= crc;
        crc = by_byte[7][w & 255] ^ by_byte[6][w >> 8 & 255] ^ by_byte[5][w >> 16 & 255] ^ by_byte[4][w >> 24 & 255] ^
              by_byte[3][w >> 32 & 255] ^ by_byte[2][w >> 40 & 255] ^ by_byte[1][w >> 48 & 255] ^ by_byte[0][w >> 56];
    }
    for (; n; n--)
        crc = crc >> 8 ^ by_byte[0][(crc ^ *p++) & 255];
    return crc;
}

#if SWL_CRC_HARDWARE

static uint32_t shift_long[4][256], shift_short[4][256]; /* [k][b]: byte k of the register being b, moved on */

/* What n zero bytes do to a register with a single bit set, for each bit; sums of those are the table. */
static void make_shift(uint32_t table[4][256], size_t n)
{
    static const uint8_t zeros[LONG_BYTES];
    uint32_t bit[32];
    int i, k, b;

    for (i = 0; i < 32; i++)
        bit[i] = crc_by_table(UINT32_C(1) << i, zeros, n);
    for (k = 0; k < 4; k++)
        for (b = 0; b < 256; b++) {
            table[k][b] = 0;
            for (i = 0; i < 8; i++)
                table[k][b] ^= b >> i & 1 ? bit[8 * k + i] : 0;
        }
}

static inline uint32_t shift(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

SWL_CRC_TARGET static inline uint64_t step8(uint64_t crc, const uint8_t *p)
{
    uint64_t w;

    memcpy(&w, p, 8);
#if defined(__x86_64__)
    return _mm_crc32_u64(crc, w);
#else
    return __crc32cd((uint32_t)crc, w);
#endif
}

SWL_CRC_TARGET static inline uint32_t step1(uint32_t crc, uint8_t byte)
{
#if defined(__x86_64__)
    return _mm_crc32_u8(crc, byte);
#else
    return __crc32cb(crc, byte);
#endif
}

/* 3 * len bytes */
SWL_CRC_TARGET static inline uint32_t three_streams(uint32_t table[4][256], uint32_t crc, const uint8_t *p, size_t len)
{
    uint64_t a = crc, b = 0, c = 0;
    size_t i;

    for (i = 0; i < len; i += 8) {
        a = step8(a, p + i);
        b = step8(b, p + len + i);
        c = step8(c, p + 2 * len + i);
    }
    return shift(table, shift(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

SWL_CRC_TARGET static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= 3 * LONG_BYTES; n -= 3 * LONG_BYTES, p += 3 * LONG_BYTES)
        crc = three_streams(shift_long, crc, p, LONG_BYTES);
    for (; n >= 3 * SHORT_BYTES; n -= 3 * SHORT_BYTES, p += 3 * SHORT_BYTES)
        crc = three_streams(shift_short, crc, p, SHORT_BYTES);
    for (; n >= 8; n -= 8, p += 8)
        crc = (uint32_t)step8(crc, p);
    for (; n; n--)
        crc = step1(crc, *p++);
    return crc;
}

static bool has_instruction(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & (1 << 7); /* HWCAP_CRC32 */
#else
    return true; /* every 64-bit Apple processor since 2013 */
#endif
}

#endif

static void choose(void)
{
    make_tables();
    chosen = crc_by_table;
#if SWL_CRC_HARDWARE
    if (has_instruction()) {
        make_shift(shift_long, LONG_BYTES);
        make_shift(shift_short, SHORT_BYTES);
        chosen = crc_by_instruction;
    }
#endif
}

uint32_t swl_crc32c(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, choose);
    return ~chosen(~crc, data, n);
}

uint32_t swl_crc32c_by_table(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, choose);
    return ~crc_by_table(~crc, data, n);
}

/* Product of two polynomials modulo that of the checksum; the highest bit is the coefficient of x^0. */
static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    int i;

    for (i = 31; i >= 0; i--, b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1)
        if (a >> i & 1)
            product ^= b;
    return product;
}

uint32_t swl_crc32c_join(uint32_t a, uint32_t b, uint64_t n_b)
{
    uint32_t power = UINT32_C(1) << 23; /* x^8, x^16, x^32, ...: as many zero bytes behind a */

    for (; n_b; n_b >>= 1, power = times(power, power))
        if (n_b & 1)
            a = times(power, a);
    return a ^ b;
}
