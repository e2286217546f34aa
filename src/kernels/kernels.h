/*
 * kernels.h: the arithmetic, as one table of plain functions. A kernel gets pointers and sizes; it does not allocate,
 * lock, log or read globals, and knows no threads, files or models. The caller splits the work.
 *
 * The scalar functions in ref/ are the specification. Every other level gives the same bits for every slot of this table:
 * sums run in an order that vectors of any width can follow.
 *
 *   16 lanes   element (or quantisation unit) i is added, by fused multiply-add, to lane i mod 16, i ascending; the lanes
 *              are then folded 16 -> 8 -> 4 -> 2 -> 1 by adding lane i + half to lane i.
 *   columns    where the output is itself a vector (delta-net, attention values) each output element is one chain.
 *
 * Pointers need the alignment of their element type only, matrix data none. Outputs do not overlap inputs unless said.
 */
#ifndef SWL_KERNELS_H
#define SWL_KERNELS_H

#include "format/quant.h"

#define SWL_LANES         16
#define SWL_ACT_GROUP     64   /* activation elements that share an int8 scale */
#define SWL_ACT_SUM       16   /* activation elements per entry of `sum` */
#define SWL_ATTN_BLOCK    64   /* keys per online-softmax step */
#define SWL_KV_BLOCK      16   /* keys that lie together */
#define SWL_KV_MAX        2047 /* queries, keys and values as integers: -2047 to 2047 */
#define SWL_KV_WEIGHT_MAX 16383 /* probabilities as integers; SWL_ATTN_BLOCK of them times values fit into 32 bits */
#define SWL_HEAD_MAX      512  /* elements of a head, so that the product of two vectors fits into 32 bits */
#define SWL_ATTN_SEGMENT  1024 /* keys per independent softmax part; parts are merged in order */

/*
 * A batch of activation rows in both forms. The quantised form may be absent (q NULL) when no user needs it.
 *   x      [n][cols] float32, row stride ldx
 *   q      [n][ldq] int8, ldq = cols rounded up to 64, zero padded: q = round-half-even(x * (127 / max|x| of its group))
 *   scale  [n][ldq / 64]: max|x| / 127
 *   sum    [n][ldq / 16] sums of 16 q each
 */
typedef struct swl_act {
    int32_t cols;
    int64_t ldx, ldq;
    float *x;
    int8_t *q;
    float *scale;
    int32_t *sum;
} swl_act;

/*
 * out[i * ldo + r] = dot(row row0 + r of w, activation row tok[i]) for i < n_tok, r < n_rows. tok NULL: the rows 0, 1, ...
 *
 * matmul_q (affine formats), units of u = min(group, 64) columns: with isum = sum of the unit's activations,
 *   lane = unit mod 16:  lane = fma((float)idot, scale_w * scale_x, lane);  lane = fma(bias_w, scale_x * (float)isum, lane)
 * matmul_q (codebooks), units of one group: idot = sum of book[code] * q, exact in 32 bits; scale_w = swl_matrix_scale:
 *   lane = unit mod 16:  lane = fma((float)idot, scale_w * scale_x, lane)
 * matmul_f (all formats), per column: lane = fma(w, x, lane) with w as swl_wtype_info.dequant gives it.
 */
typedef void swl_matmul_fn(const swl_matrix *w, int32_t row0, int32_t n_rows, const swl_act *a, const int32_t *tok,
                           int32_t n_tok, float *out, int64_t ldo);

/* A token's gates for one delta-net head: what its state is multiplied with first, the product of the decays since that was
 * not 1, and beta / gain. */
typedef struct swl_delta_gate {
    float fold, gain, rate;
} swl_delta_gate;

/* The elements of a head with those that fill up the last sixteen, which are 0. */
static inline int32_t swl_head_padded(int32_t dim)
{
    return (dim + 15) / 16 * 16;
}

/*
 * Keys and values of one KV head, in blocks of SWL_KV_BLOCK keys. A block of k has lines for two elements (0 and 1, 2 and
 * 3, ...) of all sixteen keys, key by key; one of v has for sixteen elements lines for two keys, element by element, then
 * the same for the next elements. So both are multiplied alike: a line holds a pair for each of sixteen sums.
 *   k, v              element i of key j is k[j / 16 * ld + (i / 2 * 16 + j % 16) * 2 + i % 2] and
 *                     v[j / 16 * ld + ((i / 16 * 8 + j % 16 / 2) * 16 + i % 16) * 2 + j % 2], i below swl_head_padded(dim)
 *   k_scale, v_scale  of key j at [j / 16 * ld_scale + j % 16]
 * Places of a block whose keys do not exist yet hold any values that were written, or 0.
 */
typedef struct swl_kv {
    const int16_t *k, *v;
    const float *k_scale, *v_scale;
    int64_t ld, ld_scale; /* from block to block, ld a multiple of 32 */
} swl_kv;

typedef struct swl_kernels {
    swl_matmul_fn *matmul_q[SWL_W_COUNT]; /* NULL for formats that are not quantised */
    swl_matmul_fn *matmul_f[SWL_W_COUNT];

    /* One row of x (cols elements) to q, scale and sum as above; q is written up to the next multiple of 64. */
    void (*quantise_act)(const float *x, int32_t cols, int8_t *q, float *scale, int32_t *sum);

    /* out = (x * r) * w with r = 1 / sqrt(sum(x^2) / n + eps), the sum over 16 lanes. out may be x. */
    void (*rms_norm)(float *out, const float *x, const float *w, int32_t n, float eps);
    /* x = (x * r) * scale with r = 1 / sqrt(sum(x^2) + eps), in place. */
    void (*l2_norm)(float *x, int32_t n, float eps, float scale);
    /* out = norm(o) * silu(z): rms_norm over n with w, then times silu. out may be o. */
    void (*gated_norm)(float *out, const float *o, const float *z, const float *w, int32_t n, float eps);

    void (*silu_mul)(float *out, const float *gate, const float *up, int32_t n); /* silu(gate) * up; out may be gate or up */
    void (*sigmoid_mul)(float *x, const float *gate, int32_t n);                 /* x *= sigmoid(gate) */
    void (*add)(float *x, const float *y, int32_t n);                            /* x += y */
    void (*axpy)(float *x, float a, const float *y, int32_t n);                  /* x = fma(a, y, x) */

    /*
     * Depthwise causal convolution and SiLU over n_tok tokens of n channels. u: [n_tok][ldu] inputs; state: [width-1]
     * [lds] the inputs before, oldest first, updated; w: [width][lds] taps, oldest first; out: [n_tok][ldo], may be u.
     * acc = w0 * u0, then fma tap by tap.
     */
    void (*conv_silu)(float *out, int64_t ldo, float *state, const float *u, int64_t ldu, const float *w, int64_t lds,
                      int32_t n, int32_t n_tok, int32_t width);

    /*
     * Gated delta rule (Yang et al., Gated Delta Networks, section 3) for one head over n_tok tokens. S: [dk][dv] row
     * stride lds, updated; q, k: [n_tok][dk], v: [n_tok][dv], out: [n_tok][dv] with their strides; gates: [n_tok]. S is
     * the rule's state without the decays that gain holds. Per token: S_ij *= fold; kv_j = sum_i fma(k_i, S_ij); d_j =
     * fma(-gain, kv_j, v_j) * rate; S_ij = fma(k_i, d_j, S_ij); out_j = gain * sum_i fma(q_i, S_ij); i ascending from 0.
     */
    void (*delta_scan)(float *s, int64_t lds, int32_t dk, int32_t dv, int32_t n_tok, const float *q, const float *k,
                       int64_t ldqk, const float *v, int64_t ldv, const swl_delta_gate *gates, float *out, int64_t ldo);

    /* Rotates the first n_rot dims of x: pairs (i, i + n_rot/2) with cos[i], sin[i]: a = x_i*c, y_i = fma(-x_j, s, a);
     * b = x_j*c, y_j = fma(x_i, s, b). */
    void (*rope)(float *x, int32_t n_rot, const float *cos, const float *sin);

    /* A query, key or value of n elements: q = round-half-even(x * (2047 / max|x|)), zeros up to swl_head_padded(n);
     * scale = max|x| / 2047. */
    void (*quantise_kv)(const float *x, int32_t n, int16_t *q, float *scale);

    /*
     * One part of attention: n_rows consecutive rows of a conversation, each with n_q queries of one KV head. Row r
     * sees the first n_keys + r keys, but no more than SWL_ATTN_SEGMENT; n_keys is 1 to that. dim: elements of a head,
     * padded. q: [n_rows][n_q][dim]; q_scale: [n_rows][n_q], times what scores are scaled with. Gives per query the
     * running maximum m, the sum l and the unnormalised output o: m, l: [n_rows][n_q], o: [n_rows][n_q][dim]. Per query,
     * blocks of SWL_ATTN_BLOCK keys, sums of integers being exact and so free in their order:
     *   score_j = (float)(q . k_j) * (q_scale * k_scale_j);  top = max score + 0 (no -0);  p_j = exp(score_j - top)
     *   V = max v_scale of the block's keys that the row sees;  w_j = round-half-even(p_j * (v_scale_j * (16383 / V)))
     *   m' = max(m, top);  a = exp(m - m');  b = exp(top - m');  l = fma(l, a, b * sum of p over 16 lanes)
     *   o = fma((float)sum of w_j v_j, b * (V / 16383), o * a)
     * (blocks and their running maximum: Dao, FlashAttention-2, section 3.1).
     */
    void (*attn_kv)(const int16_t *q, const float *q_scale, int32_t n_rows, int32_t n_q, int32_t dim, const swl_kv *kv,
                    int32_t n_keys, float *m, float *l, float *o);

    /*
     * The same in float32, dim as it is. k, v: row stride ldkv elements. Per block of keys: score = dot(q, k) * scale
     * (16 lanes); m' = max; c = exp(m - m'); p = exp(score - m'); l = fma(l, c, sum of p over 16 lanes); o = o * c,
     * then fma(p_j, v_j, o).
     */
    void (*attn_f32)(const float *q, int32_t n_rows, int32_t n_q, int32_t dim, const float *k, const float *v,
                     int64_t ldkv, int32_t n_keys, float scale, float *m, float *l, float *o);

    /* p[i] = exp(x[i] - max), returns the sum over 16 lanes. p may be x. */
    float (*softmax_exp)(float *p, const float *x, int32_t n);
} swl_kernels;

/* Fills the table with the best functions for `flags` (SWL_CPU_..., already masked by the caller). */
void swl_kernels_init(swl_kernels *k, uint32_t flags);

/* e^x, 2 ulp, the same bits at every level: 0 below -87.33, the largest finite value's neighbourhood above 88.37. */
float swl_exp(float x);
float swl_sigmoid(float x); /* 1 / (1 + exp(-x)) */

#endif
