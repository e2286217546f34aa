/* CRC-32C: the examples of RFC 3720, and the definition bit by bit over every length and alignment around the blocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/crc32c.h"

typedef uint32_t crc_fn(uint32_t crc, const void *data, size_t n);

static crc_fn *const both[] = {swl_crc32c, swl_crc32c_by_table};

static uint32_t by_definition(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffff;
    int i;

    while (n--) {
        c ^= *p++;
        for (i = 0; i < 8; i++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
    }
    return ~c;
}

/* RFC 3720, appendix B.4; the last is the check value of the usual catalogues. */
static void rfc_3720_examples(void **state)
{
    static const uint8_t read_command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                             0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                             0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    uint8_t zeros[32], ones[32], up[32], down[32];
    size_t f;
    int i;

    (void)state;
    memset(zeros, 0, sizeof zeros);
    memset(ones, 0xff, sizeof ones);
    for (i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    for (f = 0; f < 2; f++) {
        assert_int_equal(both[f](0, zeros, 32), 0x8a9136aa);
        assert_int_equal(both[f](0, ones, 32), 0x62a8ab43);
        assert_int_equal(both[f](0, up, 32), 0x46dd794e);
        assert_int_equal(both[f](0, down, 32), 0x113fdb5c);
        assert_int_equal(both[f](0, read_command, 48), 0xd9963a56);
        assert_int_equal(both[f](0, "123456789", 9), 0xe3069283);
        assert_int_equal(both[f](0, "", 0), 0);
        assert_int_equal(both[f](0x12345678, NULL, 0), 0x12345678);
    }
}

static void fill(uint8_t *p, size_t n)
{
    uint32_t x = 2463534242u;

    while (n--) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        *p++ = (uint8_t)x;
    }
}

static void every_length_and_alignment_agrees_with_the_definition(void **state)
{
    static const size_t lengths[] = {768, 776, 1536, 12288, 13057, 24576 + 768 + 15, 40000};
    static uint8_t data[40016];
    size_t n, i, at, f;

    (void)state;
    fill(data, sizeof data);
    for (f = 0; f < 2; f++) {
        for (n = 0; n < 64; n++)
            for (at = 0; at < 16; at++)
                assert_int_equal(both[f](0, data + at, n), by_definition(data + at, n));
        for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (n = lengths[i] - 1; n <= lengths[i] + 1 && n <= 40000; n++)
                for (at = 0; at < 16; at += 5)
                    assert_int_equal(both[f](0, data + at, n), by_definition(data + at, n));
    }
}

static void pieces_give_the_crc_of_the_whole(void **state)
{
    static uint8_t data[30000];
    size_t cut, f;

    (void)state;
    fill(data, sizeof data);
    for (f = 0; f < 2; f++)
        for (cut = 0; cut <= sizeof data; cut += 997)
            assert_int_equal(both[f](both[f](0, data, cut), data + cut, sizeof data - cut),
                             by_definition(data, sizeof data));
}

static void pieces_join_to_the_whole(void **state)
{
    static uint8_t p[5000];
    static const size_t at[] = {0, 1, 7, 8, 64, 1000, 4095, 4096, 4999, 5000};
    size_t i;

    (void)state;
    fill(p, sizeof p);
    for (i = 0; i < sizeof at / sizeof *at; i++)
        assert_int_equal(swl_crc32c_join(by_definition(p, at[i]), by_definition(p + at[i], sizeof p - at[i]), sizeof p - at[i]),
                         by_definition(p, sizeof p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc_3720_examples),
        cmocka_unit_test(every_length_and_alignment_agrees_with_the_definition),
        cmocka_unit_test(pieces_give_the_crc_of_the_whole),
        cmocka_unit_test(pieces_join_to_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
