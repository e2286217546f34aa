/*
 * model.h: what the files of this folder share: weights bound to memory, the state of a conversation, workspaces, and the
 * forward pass over a batch.
 *
 * Data path of one call: token ids -> embedding rows -> for each layer { norm, mixer, residual, norm, FFN, residual } ->
 * norm -> head for the rows whose logits are wanted. All rows of the batch go through a layer together, so each weight
 * and each expert is read once per call. Past the mixer of the last layer there are only those rows whose logits are
 * wanted: nothing else reads the others.
 */
#ifndef SWL_MODEL_H
#define SWL_MODEL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/threads.h"
#include "format/checkpoint.h"
#include "kernels/kernels.h"
#include "store/probe.h"
#include "store/route_log.h"
#include "store/store.h"

enum {
    SWL_JOB_ROWS_STEP = 64,         /* FFN jobs are multiples of this many rows, so that a job quantises whole groups */
    SWL_JOB_ROWS_MAX = 512,         /* bounds a worker's scratch */
    SWL_FFN_TOKENS = 64,            /* tokens whose FFN rows are in a worker's scratch at once */
    SWL_FFN_LD = SWL_JOB_ROWS_MAX + 16, /* floats from one of these to the next: an odd number of cache lines */
    SWL_FEW_ROWS = 8,               /* of a pass whose experts are computed one by one, as they arrive */
    SWL_DELTA_TOKENS = 64,          /* tokens of a delta-net head that are in a worker's scratch at once */
    SWL_ATTN_ROWS = 12,             /* rows of a conversation that go through attention together */
    SWL_MIXER_ROWS = 256,           /* rows that go through a mixer together; bounds its buffers */
    SWL_CHUNK_TOKENS_DEFAULT = 2048,
    SWL_CHUNK_TOKENS_MAX = 4096,
    SWL_CTX_TOKENS_DEFAULT = 4096,
    SWL_STAGE_SLOTS = 16            /* through which a prompt's experts pass; half is read while half is computed */
};

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* Rows [row0, row0 + n_rows) of a matrix go to columns [dst, dst + n_rows) of a group's output. */
typedef struct swl_piece {
    swl_matrix w;
    int32_t row0, n_rows, dst;
    bool float_act;                 /* float32 activations even in the default arithmetic */
} swl_piece;

typedef struct swl_group_job {
    int32_t piece, row, n_rows;
} swl_group_job;

/* Matrices that are applied to the same input together. */
typedef struct swl_group {
    int32_t n_pieces, width, n_jobs;
    swl_piece *pieces;
    swl_group_job *jobs;
} swl_group;

/* One feed-forward network: down(silu(gate x) * up x). */
typedef struct swl_ffn_weights {
    swl_matrix gate, up, down;
} swl_ffn_weights;

typedef struct swl_layer {
    swl_layer_plan plan;
    int32_t mixer_index;            /* among the layers of the same mixer: where its state is */
    float *norm_in, *norm_post;     /* [hidden], plain multipliers */
    swl_group in;                   /* delta-net: Q | K | V | Z | b | a;  attention: (query, gate) per head | K | V */
    swl_group out;                  /* back to hidden */
    /* delta-net */
    float *conv;                    /* [conv_width][2 Dk + Dv] taps, oldest first */
    float *neg_exp_a, *dt_bias;     /* [n_v_heads] */
    float *norm_gated;              /* [v_dim] */
    /* attention */
    float *norm_q, *norm_k;         /* [head_dim] */
    /* feed-forward */
    swl_group router;               /* E router logits | 1 shared gate; float activations */
    swl_ffn_weights ffn;            /* dense FFN or shared expert */
} swl_layer;

typedef struct swl_weights {
    swl_matrix embed;
    swl_group head;                 /* may be `embed` again */
    float *norm_final;
    swl_layer *layers;              /* [n_layers] */
    int32_t n_attention, n_deltanet, n_moe;
    float *rope_freq;               /* [rotary_dims / 2] */
    float rope_scale;               /* of cos and sin (YaRN), else 1 */
    uint8_t *arena;                 /* all weight data */
    uint64_t arena_bytes, arena_used;
} swl_weights;

/* The bytes that loading will take, from shapes alone. */
swl_status swl_weights_measure(const swl_checkpoint *c, uint64_t *bytes, swl_error *err);
/* n_workers: how many will share a matrix. */
swl_status swl_weights_load(swl_weights *w, const swl_checkpoint *c, int32_t n_workers, swl_error *err);
void swl_weights_free(swl_weights *w, int32_t n_layers);

/* ---- state of one conversation ------------------------------------------------------------------------------------ */

/* Queries, keys or values of attention: in exact mode float32, without scales; else int16 as quantise_kv makes them. */
typedef struct swl_vectors {
    void *x;
    float *scale;
} swl_vectors;

typedef struct swl_state {
    int32_t n_tokens, ctx_tokens;
    float *conv;                    /* [n_deltanet][conv_width - 1][2 Dk + Dv], oldest first */
    float *delta;                   /* [n_deltanet][n_v_heads][k_dim][v_dim], then delta_gain */
    float *delta_gain;              /* [n_deltanet][n_v_heads]: decays that its matrix is yet to be multiplied with */
    uint8_t *kv;                    /* keys and values: kv.c */
    uint64_t conv_bytes, delta_bytes, gain_bytes, kv_bytes; /* gain_bytes: of delta_bytes */
} swl_state;

swl_status swl_state_create(swl_state **out, const struct swl_model *m, swl_error *err);
void swl_state_free(swl_state *s);
void swl_state_reset(swl_state *s);
/* Sets so many bytes of gains to 1. */
void swl_state_no_decay(float *gain, uint64_t bytes);
/* Bytes of a conversation that do not depend on its length. From the config alone. */
uint64_t swl_state_fixed_bytes(const struct swl_model *m);
/* A mark: convolution and delta-net state, then the logits of the last token. */
uint64_t swl_mark_bytes(const struct swl_model *m);

/* ---- keys and values (kv.c) --------------------------------------------------------------------------------------- */

/* Of n_tokens positions, which are kept in whole blocks, and of one among many; from the config alone. */
uint64_t swl_kv_bytes(const struct swl_model *m, int32_t n_tokens);
uint64_t swl_kv_token_bytes(const struct swl_model *m);
/* Plane 2 i is K and 2 i + 1 is V of attention layer i. In exact mode the vector of a position; else, and with its scales,
 * the block that the position is in. */
swl_vectors swl_kv_at(const struct swl_model *m, const swl_state *s, int32_t plane, int32_t pos, int32_t head);
/* x [head_dim] becomes the vector of a position. */
void swl_kv_put(const struct swl_model *m, swl_state *s, int32_t plane, int32_t pos, int32_t head, const float *x);
/* The first n_tokens positions of all planes. */
void swl_kv_copy(const struct swl_model *m, swl_state *to, const swl_state *from, int32_t n_tokens);
/* A position of a plane as a file has it. f16: without scales, as float16. */
uint64_t swl_kv_record_bytes(const struct swl_model *m, bool f16);
void swl_kv_save(const struct swl_model *m, const swl_state *s, int32_t plane, int32_t pos, uint8_t *record);
void swl_kv_load(const struct swl_model *m, swl_state *s, int32_t plane, int32_t pos, const uint8_t *record, bool f16);

/* ---- batch -------------------------------------------------------------------------------------------------------- */

/* A run of tokens of one conversation. */
typedef struct swl_batch_item {
    swl_state *state;
    const int32_t *ids;
    int32_t n;
    const bool *want;               /* [n]: logits wanted; NULL: for none */
    const _Atomic bool *cancel;     /* set by any thread: stop; heeded when the item is alone in its batch. May be NULL. */
} swl_batch_item;

/* Consecutive rows of one conversation. */
typedef struct swl_span {
    swl_state *state;
    int32_t row, n;
} swl_span;

/* Rows [row0, row0 + n_rows) of the workspace, as the spans that make them up. */
typedef struct swl_batch {
    const swl_span *spans;
    int32_t n_spans, row0, n_rows;
} swl_batch;

/* Called with the rows of the batch after the embedding ("embed"), every layer ("layer_00") and the last norm. */
typedef struct swl_trace {
    void (*fn)(void *arg, const char *name, const float *rows, int32_t n_rows, int32_t width);
    void *arg;
} swl_trace;

/* ---- workspace ---------------------------------------------------------------------------------------------------- */

/* One FFN applied to some rows. Its pairs are the consecutive rows pair0, pair0 + 1, ... of the pair buffers. */
typedef struct swl_ffn_unit {
    swl_ffn_weights w;
    const int32_t *tok;             /* [n] rows of the input; NULL: 0, 1, ... */
    const float *weight;            /* [n] what its results count where they are added up */
    int32_t n, pair0;
} swl_ffn_unit;

typedef struct swl_ffn_job {
    int32_t unit, row, n_rows;
} swl_ffn_job;

/* Experts that are leased together. */
typedef struct swl_wave {
    int32_t n, n_done;              /* done: computed */
    const int32_t *experts;         /* [n] ascending, in work->chosen */
    swl_lease *leases;              /* [E] */
    bool *done;                     /* [E] */
} swl_wave;

/* Buffers for one batch of at most T rows; P pairs of (row, expert) at a time. */
typedef struct swl_work {
    int32_t n_rows_max, n_pairs_max;/* T, P */
    float *x;                       /* [T][hidden] the residual stream */
    swl_act norm;                   /* [T][hidden] */
    float *group;                   /* [M][group_width] output of a mixer's input group, M = min(T, SWL_MIXER_ROWS) */
    int32_t group_width;
    swl_act mix;                    /* [M][mixer output width] */
    float *y;                       /* [T][ldy] what a block adds; [n_rows][hidden] */
    int64_t ldy;                    /* an odd number of cache lines: tokens' rows do not share a set of a cache */
    float *rope_cos, *rope_sin;     /* [T][rotary_dims / 2] */
    swl_state **state_of;           /* [T] conversation of each row */
    int32_t *pos;                   /* [T] its position there */
    swl_span *spans;                /* [2 T] of the mixers' batches */
    swl_batch *parts;               /* [T / SWL_MIXER_ROWS + 1] the mixers' batches */
    int32_t n_parts, n_pass_rows;   /* of the running pass */
    int32_t n_rows;                 /* those at work: all, from layer `narrow` on those whose logits are wanted */
    int32_t narrow;                 /* the last layer, or n_layers */
    bool *wanted;                   /* [T] */
    int32_t n_keys_rows;            /* of which the last layer took keys and values alone */
    float *attn_parts;              /* [n_attn_parts][query heads per KV head][head_dim, padded, + 2] */
    int32_t n_attn_parts;
    float *router;                  /* [T][E + 1] */
    int32_t *topk;                  /* [T][K] expert ids in rank order */
    float *topk_w;                  /* [T][K] */
    float *shared_w;                /* [T] weight of the shared expert */
    int32_t *pair_tok;              /* [T * K] rows sorted by expert */
    float *pair_w;                  /* [T * K] weight of each pair, same order */
    int32_t *expert_first;          /* [E + 1] into pair_tok */
    swl_act pair_h;                 /* [T + P][FFN width]; first the n rows of the shared expert or dense FFN */
    float *pair_y;                  /* [few rows and their pairs][hidden], few: SWL_FEW_ROWS */
    swl_ffn_unit *units;            /* [E + 1] */
    swl_ffn_job *ffn_jobs;
    int32_t n_ffn_jobs_max;
    swl_wave waves[2];              /* the one that is computed and the one that is read meanwhile */
    int32_t *chosen, *chosen_rows;  /* [E] experts that have rows, ascending, and how many */
    uint8_t *block;                 /* all of the above */
    uint64_t bytes;
} swl_work;

/* What swl_profile_get reports, and what it is worked out from. Guarded by the model's lock. */
typedef struct swl_profiler {
    swl_profile sums;
    bool phases;
    swl_phase phase;                /* the running one, since phase_begin */
    uint64_t phase_begin, pass_begin;
    uint64_t wait_ns_begin;         /* of the store, when counting began */
    uint64_t dense_bytes, head_bytes, dense_macs, head_macs, expert_bytes, expert_macs; /* once each; of one expert */
    uint64_t last_bytes, last_macs; /* of `dense`, the last layer's router and shared expert (or dense FFN) */
    uint64_t query_bytes, query_macs; /* and what its attention has beside keys and values */
} swl_profiler;

/* Experts by someone else's word than the router's. */
typedef struct swl_router_override {
    swl_routes routes;
    uint64_t seed, n_calls;
    const swl_route_log *log;       /* counts before `routes`; NULL: none */
    int64_t token;                  /* of the log: where the next pass begins */
} swl_router_override;

struct swl_model {
    swl_checkpoint *ck;
    const swl_config *config;       /* ck->config */
    swl_weights weights;
    swl_store *store;               /* NULL without experts */
    swl_io_choice io;
    int32_t lookahead;              /* experts of the next layer to guess for a token; 0: none, for a prompt neither */
    swl_threads *threads;
    swl_kernels k;
    swl_work work;
    uint32_t cpu_flags;
    bool exact;
    int32_t ctx_tokens, chunk_tokens;
    swl_memory_plan plan;
    float *scratch;                 /* [workers][scratch_floats] */
    int64_t scratch_floats;
    swl_profiler profiler;
    swl_router_override override;
    swl_passes passes;
    pthread_mutex_t lock;           /* one forward pass at a time: it owns `work` and `cancel` */
    const _Atomic bool *cancel;     /* of the running pass, or NULL */
    swl_route_writer *recorder;     /* NULL: none */
    double pressure_at;             /* when the system was last asked how pressed it is */
    int32_t pool_slots_max;         /* what the pool may grow back to */
};

/* The bytes that init will take for the model's chunk and context. */
uint64_t swl_work_measure(struct swl_model *m);
/* The experts of every layer as the store wants them; NULL when out of memory. Free with swl_free. */
swl_store_layer *swl_model_store_layers(const struct swl_model *m);

swl_status swl_work_init(struct swl_model *m, swl_error *err);
void swl_work_free(struct swl_model *m);

/*
 * Runs all items' tokens (sum of n at most chunk_tokens) and advances their states. `logits` gets one row of vocab floats
 * per wanted token, items in order. trace may be NULL. After an error the states of the items are unusable; that includes
 * SWL_E_CANCELLED, which comes within a part of a layer.
 */
swl_status swl_forward(struct swl_model *m, const swl_batch_item *items, int32_t n_items, float *logits,
                       const swl_trace *trace, swl_error *err);

/* ---- the parts of a layer (one file each): rows come in work->norm, what they add goes to work->y ------------------- */

/* Mixers take a part of the rows at a time; the feed-forward blocks take all work->n_rows. */
void swl_deltanet_forward(struct swl_model *m, const swl_layer *l, const swl_batch *b);
void swl_attention_forward(struct swl_model *m, const swl_layer *l, const swl_batch *b);
void swl_attention_keys(struct swl_model *m, const swl_layer *l, const swl_batch *b); /* for later tokens alone: no output */
void swl_dense_forward(struct swl_model *m, const swl_layer *l);
swl_status swl_moe_forward(struct swl_model *m, int32_t layer, swl_error *err);
/* For SWL_PASSES_READ: the layer's experts pass by, nothing is computed. */
swl_status swl_moe_read(struct swl_model *m, int32_t layer, swl_error *err);
/* Before a layer's turn, with the rows in work->x: tells the store which of its experts are likely. */
void swl_moe_guess(struct swl_model *m, int32_t layer);

/* ---- exec.c: work cut for the worker team --------------------------------------------------------------------------- */

/* How many of n_rows rows (over all matrices of a parallel loop) one job takes: long runs read memory better, but every
 * worker wants several jobs. A multiple of step. */
int32_t swl_job_rows(int64_t n_rows, int32_t n_workers, int32_t step);

/* fn(arg, row, worker) for rows [0, n), jobs of some neighbours: a row alone takes no longer than the taking of a job, and
 * what it writes may be less than a cache line. */
void swl_rows_run(struct swl_model *m, int32_t n, void (*fn)(void *, int32_t, int32_t), void *arg);
/* out [n][ldo] = every piece of g applied to the first n rows of a. */
void swl_group_run(struct swl_model *m, const swl_group *g, const swl_act *a, int32_t n, float *out, int64_t ldo);
/* The quantised form of n rows (nothing to do in exact mode). */
void swl_act_quantise(struct swl_model *m, swl_act *a, int32_t n);
/* a = rms_norm(x) * w, both forms, for n rows. */
void swl_norm_rows(struct swl_model *m, swl_act *a, const float *x, const float *w, int32_t n);
/* Runs units over rows of `in`; their pairs' results are rows of out. */
void swl_ffn_run(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, const swl_act *in, float *out, int64_t ldo);
/* The first half of it: work->pair_h. */
void swl_ffn_gate_up(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, const swl_act *in);
/* The second half, and work->y[row] += weight * result for the pairs of each row, units in their order. `clear` that many rows
 * of work->y before. */
void swl_ffn_down_add(struct swl_model *m, const swl_ffn_unit *units, int32_t n_units, int32_t clear);
/* The rows of an activation batch from `row` on, as a batch of `cols` columns. */
swl_act swl_act_from(const swl_act *a, int64_t row, int32_t cols);
/* work->x += work->y for n rows. */
void swl_add_rows(struct swl_model *m, int32_t n);

/* ---- budget.c --------------------------------------------------------------------------------------------------------- */

/* Fills m->plan and chooses m->chunk_tokens: checkpoint, threads, context and arithmetic of m are set, nothing is loaded. */
swl_status swl_budget_plan(struct swl_model *m, const swl_model_options *opt, swl_error *err);

/* ---- profile.c -------------------------------------------------------------------------------------------------------- */

void swl_phase_switch(struct swl_model *m, swl_phase phase);
/* From here on time counts for `phase`. */
static inline void swl_phase_enter(struct swl_model *m, swl_phase phase)
{
    if (m->profiler.phases)
        swl_phase_switch(m, phase);
}

/* Around a pass; what it moved and multiplied follows from the items. */
void swl_profile_pass_begin(struct swl_model *m);
void swl_profile_pass_end(struct swl_model *m, const swl_batch_item *items, int32_t n_items);
/* n_experts routed experts were run on n_pairs rows in all. */
void swl_profile_experts(struct swl_model *m, int32_t n_experts, int32_t n_pairs);

/* ---- routes.c --------------------------------------------------------------------------------------------------------- */

/* Replaces the chosen experts of n_rows rows, not their weights, if someone else's word counts than the router's; and
 * writes down what was chosen, if that is recorded. */
swl_status swl_routes_apply(struct swl_model *m, int32_t layer, int32_t n_rows, swl_error *err);
void swl_routes_advance(struct swl_model *m); /* after a pass: a log goes on behind its tokens */
/* A guess at the experts of every step-th row of the next call where they are not the router's, to work->topk: right as often as
 * a router's would be. */
void swl_routes_guess(struct swl_model *m, int32_t layer, int32_t step);

/* ---- pressure.c ------------------------------------------------------------------------------------------------------- */

/* Between passes, with the model's lock held: shrinks or grows the pool as the system's memory pressure asks. */
void swl_pressure_tick(struct swl_model *m);
/* The decision alone: pressure in percent (negative: unknown), whether there is room to grow, slots per layer now and within
 * which bounds. */
int32_t swl_pressure_slots(double pressure, bool room, int32_t slots, int32_t lo, int32_t hi);

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

static inline bool swl_cancelled(const struct swl_model *m)
{
    return m->cancel && atomic_load_explicit(m->cancel, memory_order_relaxed);
}

static inline int32_t swl_conv_channels(const swl_config *c)
{
    return 2 * c->n_k_heads * c->k_dim + c->n_v_heads * c->v_dim;
}

#endif
