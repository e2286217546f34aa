/* x86.h: the x86-64 rows of the kernel table. */
#ifndef SWL_KERNELS_X86_H
#define SWL_KERNELS_X86_H

#include "kernels/kernels.h"

swl_matmul_fn swl_matmul_q_a2_avx512, swl_matmul_q_a3_avx512, swl_matmul_q_a4_avx512, swl_matmul_q_a5_avx512,
    swl_matmul_q_a6_avx512, swl_matmul_q_a8_avx512;

/* matmul_q_*_avx512 for more tokens than a few; called by them. */
swl_matmul_fn swl_matmul_tile_a2_avx512, swl_matmul_tile_a3_avx512, swl_matmul_tile_a4_avx512,
    swl_matmul_tile_a5_avx512, swl_matmul_tile_a6_avx512, swl_matmul_tile_a8_avx512;

#endif
