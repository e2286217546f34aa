/*
 * matmul_tile_avx2.c: many tokens without VNNI. Products of bytes are summed in pairs of 16 bits (vpmaddubsw), and as many
 * of these as fit: eight registers of codes up to 15, four up to 31, two up to 63. Larger ones are two planes.
 */
enum { AT_ONCE = 4, SPLIT_8 = 1 };

#include "kernels/x86/matmul_tile_avx2.h"

/* n tokens and so many registers of codes to a chunk, both constants. */
INLINE void dots(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int steps, int n)
{
    __m256i weight = _mm256_set1_epi16(1), acc[2 * AT_ONCE], sum[2 * AT_ONCE];
    int plane, i, k, j;

#pragma GCC unroll 8
    for (j = 0; j < 2 * n; j++)
        sum[j] = _mm256_setzero_si256();
    for (plane = 0; plane < c->planes; plane++, weight = _mm256_set1_epi16(16)) {
        const uint8_t *w = codes + plane * PLANE;
        const int8_t *from = x;

        for (i = 0; i < c->n; i++, w += 4 * ROWS * steps, from += 4 * steps) {
#pragma GCC unroll 8
            for (k = 0; k < steps; k++) {
                __m256i w0 = _mm256_load_si256((const void *)(w + 4 * ROWS * k));
                __m256i w1 = _mm256_load_si256((const void *)(w + 4 * ROWS * k + 32));

#pragma GCC unroll 4
                for (j = 0; j < n; j++) {
                    __m256i four = four_of(from + j * ldx + 4 * k), a = _mm256_maddubs_epi16(w0, four);
                    __m256i b = _mm256_maddubs_epi16(w1, four);

                    acc[2 * j] = k ? _mm256_add_epi16(acc[2 * j], a) : a;
                    acc[2 * j + 1] = k ? _mm256_add_epi16(acc[2 * j + 1], b) : b;
                    /* one after the other: compilers would add up in trees and run out of registers */
                    __asm__("" : "+x"(acc[2 * j]), "+x"(acc[2 * j + 1]));
                }
            }
#pragma GCC unroll 8
            for (j = 0; j < 2 * n; j++)
                sum[j] = _mm256_add_epi32(sum[j], _mm256_madd_epi16(acc[j], weight));
        }
    }
#pragma GCC unroll 8
    for (j = 0; j < 2 * n; j++)
        dot[j] = sum[j];
}

INLINE void dots_of(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int steps,
                    int32_t n)
{
    if (n == 4)
        dots(dot, codes, x, ldx, c, steps, 4);
    else if (n == 3)
        dots(dot, codes, x, ldx, c, steps, 3);
    else if (n == 2)
        dots(dot, codes, x, ldx, c, steps, 2);
    else
        dots(dot, codes, x, ldx, c, steps, 1);
}

static void dots_by_8(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int32_t n)
{
    dots_of(dot, codes, x, ldx, c, 8, n);
}

static void dots_by_4(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int32_t n)
{
    dots_of(dot, codes, x, ldx, c, 4, n);
}

static void dots_by_2(__m256i *dot, const uint8_t *codes, const int8_t *x, int64_t ldx, const chunks *c, int32_t n)
{
    dots_of(dot, codes, x, ldx, c, 2, n);
}

static chunks chunks_of(int bits, int unit)
{
    int steps = bits == 6 ? 2 : bits == 5 || unit == 16 ? 4 : 8;

    return (chunks){steps == 8 ? dots_by_8 : steps == 4 ? dots_by_4 : dots_by_2, unit / 4 / steps, bits == 8 ? 2 : 1};
}

/* Straight from memory, four tokens of four-bit codes are faster without. */
bool swl_matmul_tile_pays_avx2(const swl_matrix *w, int32_t n_tok)
{
    return n_tok > (w->type == SWL_W_A4 ? 4 : 3) && w->cols / (w->group < 64 ? w->group : 64) * AT_ONCE <= SCALES;
}

void swl_matmul_tile_avx2(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                          int32_t n_tok, float *out, int64_t ldo)
{
    run_tiles(w, row0, n_rows, a, tok, n_tok, out, ldo);
}
