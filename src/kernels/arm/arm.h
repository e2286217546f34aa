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
swl_matmul_fn swl_matmul_q_mxfp4_neon, swl_matmul_q_nvfp4_neon, swl_matmul_q_nl4_neon;
swl_matmul_fn swl_matmul_f_f32_neon, swl_matmul_f_f16_neon, swl_matmul_f_bf16_neon, swl_matmul_f_affine_neon;

void swl_quantise_act_neon(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum);
void swl_rms_norm_neon(float *out, const float *x, const float *w, int32_t n, float eps);
void swl_l2_norm_neon(float *x, int32_t n, float eps, float scale);
void swl_gated_norm_neon(float *out, const float *o, const float *z, const float *w, int32_t n, float eps);
void swl_silu_mul_neon(float *out, const float *gate, const float *up, int32_t n);
void swl_sigmoid_mul_neon(float *x, const float *gate, int32_t n);
void swl_add_neon(float *x, const float *y, int32_t n);
void swl_axpy_neon(float *x, float a, const float *y, int32_t n);
void swl_conv_silu_neon(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                        int32_t n, int32_t n_tok, int32_t width);
void swl_delta_scan_neon(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                         int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                         int64_t ldo);
void swl_rope_neon(float *x, int32_t n_rot, const float *cos, const float *sin);
void swl_quantise_kv_neon(const float *x, int32_t n, int16_t *q, float *scale);
void swl_attn_kv_neon(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                      int32_t n_keys, float *m, float *l, float *o);
void swl_attn_f32_neon(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o);
float swl_softmax_exp_neon(float *p, const float *x, int32_t n);

#endif
