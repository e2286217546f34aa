/*
 * check.h: what the files of the kernel checker share. A case draws sizes and values, runs the reference and the
 * candidate on copies of the same memory, and compares every byte of it, with the bytes around and between the outputs.
 */
#ifndef SWL_TESTS_KERNELS_CHECK_H
#define SWL_TESTS_KERNELS_CHECK_H

#include "kernels/kernels.h"

typedef void any_fn(void);

/* ---- random numbers: the same sequence for a seed on every machine ------------------------------------------------
 */

void rng_seed(uint64_t seed);
uint32_t rng_next(void);
int32_t rng_range(int32_t low, int32_t high); /* both ends included */
int32_t rng_pick(const int32_t *list, int32_t n);
#define PICK(...)                                                                                                      \
    rng_pick((const int32_t[]){__VA_ARGS__}, (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

/* ---- memory: regions that end at a page nobody may touch ----------------------------------------------------------
 */

enum { REGION_BYTES = 24 << 20 };

/* n_bytes from a region of their own, ending `slack` bytes before the forbidden page. Given back by mem_reset. When
 * mem_far is set, a page further away and aligned to 64 bytes: masked loads that reach into an absent page are slow. */
extern bool mem_far;
void *mem_take(size_t n_bytes, size_t slack);
void mem_reset(void);

float *floats(int64_t n);                    /* not filled */
float *ordinary(int64_t n, float magnitude); /* filled: both signs, several orders of magnitude below `magnitude` */
float *worst(int64_t n);                     /* filled: zeros of both signs, huge, tiny and equal values */

/* Output memory twice, with the same bytes in both: [0] for the reference, [1] for the candidate, n bytes between
 * guards. */
typedef struct twins {
    uint8_t *at[2];
    size_t n;
} twins;

twins twins_take(size_t n_bytes);
twins twins_copy(const void *from, size_t n_bytes); /* state that a kernel updates */
/* True when all bytes agree, guards included; otherwise the first difference is printed as float32 and as bytes. */
bool twins_equal(const twins *t, const char *what);

/* ---- cases ----------------------------------------------------------------------------------------------- */

/* Says what the case was, once, before its difference. */
void case_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

typedef struct slot_test {
    const char *slot;                                   /* as in kernels.inc */
    bool (*one)(any_fn *ref, any_fn *fn, int32_t type); /* one random case; type: the index of matmul slots */
    int32_t n_cases;                                    /* in a default run */
} slot_test;

extern const slot_test matmul_tests[], elem_tests[], mixer_tests[]; /* each ended by a NULL slot */

/* A random matrix of the type and a batch of activations that fits it. */
typedef struct matmul_shape {
    swl_wtype type;
    swl_dtype sdtype;
    int32_t rows, cols, group, n_act;
} matmul_shape;

swl_matrix random_matrix(const matmul_shape *s, bool extreme);
swl_act random_act(int32_t cols, int32_t n, bool extreme);

/* ---- bench ----------------------------------------------------------------------------------------------- */

void bench_machine(void); /* memory bandwidth and int8 peak of this run */
void bench_row(const char *slot, const char *function, any_fn *fn, int32_t type);

#endif
