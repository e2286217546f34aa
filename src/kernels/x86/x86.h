/* x86.h: the x86-64 rows of the kernel table. */
#ifndef SWL_KERNELS_X86_H
#define SWL_KERNELS_X86_H

#include "kernels/kernels.h"

swl_matmul_fn swl_matmul_q_a2_avx512, swl_matmul_q_a3_avx512, swl_matmul_q_a4_avx512, swl_matmul_q_a5_avx512,
    swl_matmul_q_a6_avx512, swl_matmul_q_a8_avx512;

/* For more tokens than a few; matmul_q_*_avx512 call it where the matrix fits. */
swl_matmul_fn swl_matmul_tile_avx512;
bool swl_matmul_tile_fits_avx512(const swl_matrix *w);

#endif
