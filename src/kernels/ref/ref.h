/* ref.h: the scalar functions of the kernel table, named so that other levels and the checker can call them. */
#ifndef SWL_KERNELS_REF_H
#define SWL_KERNELS_REF_H

#include "kernels/kernels.h"

void swl_matmul_q_ref(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                      int32_t n_tok, float *out, int64_t ldo);
void swl_matmul_q_book_ref(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo);
void swl_matmul_f_ref(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                      int32_t n_tok, float *out, int64_t ldo);
void swl_quantise_act_ref(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum);
void swl_rms_norm_ref(float *out, const float *x, const float *w, int32_t n, float eps);
void swl_l2_norm_ref(float *x, int32_t n, float eps, float scale);
void swl_gated_norm_ref(float *out, const float *o, const float *z, const float *w, int32_t n, float eps);
void swl_silu_mul_ref(float *out, const float *gate, const float *up, int32_t n);
void swl_sigmoid_mul_ref(float *x, const float *gate, int32_t n);
void swl_add_ref(float *x, const float *y, int32_t n);
void swl_axpy_ref(float *x, float a, const float *y, int32_t n);
void swl_conv_silu_ref(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                       int32_t n, int32_t n_tok, int32_t width);
void swl_delta_scan_ref(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                        int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out,
                        int64_t ldo);
void swl_rope_ref(float *x, int32_t n_rot, const float *cos, const float *sin);
void swl_quantise_kv_ref(const float *x, int32_t n, int16_t *q, float *scale);
void swl_attn_kv_ref(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                     int32_t n_keys, float *m, float *l, float *o);
void swl_attn_f32_ref(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                      int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o);
float swl_softmax_exp_ref(float *p, const float *x, int32_t n);

#endif
