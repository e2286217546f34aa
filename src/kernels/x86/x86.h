/* x86.h: the x86-64 rows of the kernel table. */
#ifndef SWL_KERNELS_X86_H
#define SWL_KERNELS_X86_H

#include "kernels/kernels.h"

swl_matmul_fn swl_matmul_q_a2_avx512, swl_matmul_q_a3_avx512, swl_matmul_q_a4_avx512, swl_matmul_q_a5_avx512,
    swl_matmul_q_a6_avx512, swl_matmul_q_a8_avx512, swl_matmul_q_a4_near_avx512, swl_matmul_q_a8_near_avx512;

/* Five tokens and more: matmul_q_*_avx512 call it where the matrix fits. near: what comes is asked for into the first cache. */
void swl_matmul_tile_avx512(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                            int32_t n_tok, bool near, float *out, int64_t ldo);
bool swl_matmul_tile_fits_avx512(const swl_matrix *w);

swl_matmul_fn swl_matmul_f_f32_avx512, swl_matmul_f_f16_avx512, swl_matmul_f_bf16_avx512, swl_matmul_f_a2_avx512,
    swl_matmul_f_a3_avx512, swl_matmul_f_a4_avx512, swl_matmul_f_a5_avx512, swl_matmul_f_a6_avx512,
    swl_matmul_f_a8_avx512;

void swl_quantise_act_avx512(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum);
void swl_rms_norm_avx512(float *out, const float *x, const float *w, int32_t n, float eps);
void swl_l2_norm_avx512(float *x, int32_t n, float eps, float scale);
void swl_gated_norm_avx512(float *out, const float *o, const float *z, const float *w, int32_t n, float eps);
void swl_silu_mul_avx512(float *out, const float *gate, const float *up, int32_t n);
void swl_sigmoid_mul_avx512(float *x, const float *gate, int32_t n);
void swl_add_avx512(float *x, const float *y, int32_t n);
void swl_axpy_avx512(float *x, float a, const float *y, int32_t n);
void swl_conv_silu_avx512(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w,
                          int64_t lds, int32_t n, int32_t n_tok, int32_t width);
void swl_rope_avx512(float *x, int32_t n_rot, const float *cos, const float *sin);
float swl_softmax_exp_avx512(float *p, const float *x, int32_t n);

void swl_delta_scan_avx512(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                           int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                           int64_t ldo);
void swl_quantise_kv_avx512(const float *x, int32_t n, int16_t *q, float *scale);
void swl_attn_kv_avx512(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                        int32_t n_keys, float *m, float *l, float *o);
void swl_attn_f32_avx512(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                         int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o);

swl_matmul_fn swl_matmul_q_a2_avx2, swl_matmul_q_a3_avx2, swl_matmul_q_a4_avx2, swl_matmul_q_a5_avx2,
    swl_matmul_q_a6_avx2, swl_matmul_q_a8_avx2, swl_matmul_f_f32_avx2, swl_matmul_f_f16_avx2, swl_matmul_f_bf16_avx2,
    swl_matmul_f_a2_avx2, swl_matmul_f_a3_avx2, swl_matmul_f_a4_avx2, swl_matmul_f_a5_avx2, swl_matmul_f_a6_avx2,
    swl_matmul_f_a8_avx2, swl_matmul_q_mxfp4_avx2, swl_matmul_q_nvfp4_avx2, swl_matmul_q_nl4_avx2;

/* For many tokens; matmul_q_*_avx2 call it where it pays. What has VNNI takes any number, of all these formats. */
swl_matmul_fn swl_matmul_tile_avx2, swl_matmul_q_avxvnni;
bool swl_matmul_tile_pays_avx2(const swl_matrix *w, int32_t n_tok);

void swl_quantise_act_avx2(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum);
void swl_rms_norm_avx2(float *out, const float *x, const float *w, int32_t n, float eps);
void swl_l2_norm_avx2(float *x, int32_t n, float eps, float scale);
void swl_gated_norm_avx2(float *out, const float *o, const float *z, const float *w, int32_t n, float eps);
void swl_silu_mul_avx2(float *out, const float *gate, const float *up, int32_t n);
void swl_sigmoid_mul_avx2(float *x, const float *gate, int32_t n);
void swl_add_avx2(float *x, const float *y, int32_t n);
void swl_axpy_avx2(float *x, float a, const float *y, int32_t n);
void swl_conv_silu_avx2(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                        int32_t n, int32_t n_tok, int32_t width);
void swl_rope_avx2(float *x, int32_t n_rot, const float *cos, const float *sin);
float swl_softmax_exp_avx2(float *p, const float *x, int32_t n);

void swl_delta_scan_avx2(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                         int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                         int64_t ldo);
void swl_quantise_kv_avx2(const float *x, int32_t n, int16_t *q, float *scale);
void swl_attn_kv_avx2(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                      int32_t n_keys, float *m, float *l, float *o);
void swl_attn_f32_avx2(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                       int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o);

#endif
