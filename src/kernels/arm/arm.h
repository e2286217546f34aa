/* arm.h: the AArch64 rows of the kernel table. */
#ifndef SWL_KERNELS_ARM_H
#define SWL_KERNELS_ARM_H

#include "kernels/kernels.h"

swl_matmul_fn swl_matmul_q_a2_neon, swl_matmul_q_a3_neon, swl_matmul_q_a4_neon, swl_matmul_q_a5_neon,
    swl_matmul_q_a6_neon, swl_matmul_q_a8_neon;
swl_matmul_fn swl_matmul_q_a2_dotprod, swl_matmul_q_a3_dotprod, swl_matmul_q_a4_dotprod, swl_matmul_q_a5_dotprod,
    swl_matmul_q_a6_dotprod, swl_matmul_q_a8_dotprod;
swl_matmul_fn swl_matmul_q_a2_i8mm, swl_matmul_q_a3_i8mm, swl_matmul_q_a4_i8mm, swl_matmul_q_a5_i8mm,
    swl_matmul_q_a6_i8mm, swl_matmul_q_a8_i8mm;
#endif
