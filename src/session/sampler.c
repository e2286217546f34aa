/*
 * sampler.c: from logits to one id. Temperature, top-k, top-p, min-p, draw, in that order; nothing else touches the
 * distribution. The vocabulary is never sorted: top-k keeps a heap of k, top-p takes from a heap only until it has
 * enough. Everything is a fixed function of logits, parameters and generator state: sums run in double in a stated
 * order, and exp is our own, so that another C library cannot change a draw.
 */
#include <math.h>
#include <stdint.h>

#include <swiftlet/swiftlet.h>

/* ---- random numbers ---- */

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = *x += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void swl_rng_init(swl_rng *r, uint64_t seed)
{
    for (int32_t i = 0; i < 4; i++)
        r->s[i] = splitmix64(&seed);
}

static uint64_t rotl(uint64_t x, int32_t k)
{
    return x << k | x >> (64 - k);
}

/* xoshiro256** 1.0, Blackman and Vigna. */
static uint64_t rng_next(swl_rng *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* [0, 1), 53 bits. */
static double rng_unit(swl_rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* ---- exp ---- */

/* exp(x) for x <= 0, relative error below 1e-14. x = n ln 2 + r with |r| <= ln 2 / 2; Taylor's polynomial of degree 13
 * gives exp(r), its first missing term is r^14 / 14! < 5e-18. ln 2 is subtracted in two parts: n times the first is
 * exact. */
static double exp_negative(double x)
{
    static const double inverse_factorial[] = {
        1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
    };
    double n, r, sum = inverse_factorial[13];

    if (!(x > -700))
        return 0;
    n = rint(x * 1.4426950408889634);
    r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    for (int32_t k = 12; k >= 0; k--)
        sum = sum * r + inverse_factorial[k];
    return ldexp(sum, (int)n);
}

/* ---- candidates ---- */

/* A total order, so that every result is unique: higher logit, then lower id. */
static bool is_better(swl_candidate a, swl_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* What is left of the vocabulary on its way through the filters. */
typedef struct pool {
    swl_candidate *c;
    int32_t n;
    bool sorted; /* best first; else by id */
    float best;  /* the highest logit */
    float temperature;
} pool;

/* The first n_max of them, by id; returns where the rest begins. */
static int32_t gather_finite(pool *p, const float *logits, int32_t n, int32_t n_max)
{
    int32_t i;

    p->n = 0;
    for (i = 0; i < n && p->n < n_max; i++) {
        if (!isfinite(logits[i]))
            continue;
        if (!p->n || logits[i] > p->best)
            p->best = logits[i];
        p->c[p->n++] = (swl_candidate){logits[i], i};
    }
    return i;
}

/* Relative to the best candidate, whose weight is 1. */
static double weight(const pool *p, int32_t i)
{
    return p->c[i].logit == p->best ? 1 : exp_negative(((double)p->c[i].logit - p->best) / p->temperature);
}

static double sum_weights(const pool *p)
{
    double sum = 0;

    for (int32_t i = 0; i < p->n; i++)
        sum += weight(p, i);
    return sum;
}

/* The first finite logit from i on that is above `bound`, or n. Few are: most of a vocabulary passes by in blocks, whose
 * comparisons the compiler makes side by side. */
static int32_t next_above(const float *logits, int32_t i, int32_t n, float bound)
{
    enum { BLOCK = 64 };

    for (; i < n; i += BLOCK) {
        int any = n - i < BLOCK;

        for (int32_t k = 0; k < BLOCK && n - i >= BLOCK; k++)
            any |= logits[i + k] > bound;
        for (int32_t k = i; any && k < n && k < i + BLOCK; k++)
            if (logits[k] > bound && isfinite(logits[k]))
                return k;
    }
    return n;
}

static int32_t argmax(const float *logits, int32_t n)
{
    float bound = -INFINITY;
    int32_t best = -1;

    for (int32_t i = 0; (i = next_above(logits, i, n, bound)) < n; i++) {
        best = i;
        bound = logits[i];
    }
    return best;
}

/* Moves heap[i] down until no child stands before it. A heap has its best candidate on top, or its worst. */
static void sift_down(swl_candidate *heap, int32_t n, int32_t i, bool worst_on_top)
{
    swl_candidate e = heap[i];

    for (int32_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && is_better(heap[child + 1], heap[child]) != worst_on_top)
            child++;
        if (is_better(heap[child], e) == worst_on_top)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = e;
}

static void make_heap(swl_candidate *c, int32_t n, bool worst_on_top)
{
    for (int32_t i = n / 2; i-- > 0;)
        sift_down(c, n, i, worst_on_top);
}

/* The k best, best first, when there are more; else all by id. The heap has the worst of those k on top, and ids ascend,
 * so that what comes later has to be above it. */
static void gather_best(pool *p, const float *logits, int32_t n, int32_t k)
{
    int32_t i = next_above(logits, gather_finite(p, logits, n, k), n, -INFINITY);

    if (i == n)
        return;
    make_heap(p->c, k, true);
    for (; (i = next_above(logits, i, n, p->c[0].logit)) < n; i++) {
        p->c[0] = (swl_candidate){logits[i], i};
        sift_down(p->c, k, 0, true);
    }
    for (i = k - 1; i > 0; i--) {
        swl_candidate worst = p->c[0];

        p->c[0] = p->c[i];
        p->c[i] = worst;
        sift_down(p->c, i, 0, true);
    }
    p->best = p->c[0].logit;
    p->sorted = true;
}

/* ---- filters ---- */

static void keep_weight(pool *p, double weight_min)
{
    int32_t n = 0;

    for (int32_t i = 0; i < p->n; i++)
        if (weight(p, i) >= weight_min)
            p->c[n++] = p->c[i];
    p->n = n;
}

static void reverse(swl_candidate *c, int32_t n)
{
    for (int32_t i = 0; i < n / 2; i++) {
        swl_candidate e = c[i];

        c[i] = c[n - 1 - i];
        c[n - 1 - i] = e;
    }
}

/* The fewest best candidates whose weights reach `enough`; one at least. */
static void cut_sorted(pool *p, double enough)
{
    double sum = 0;
    int32_t k = 0;

    while (k < p->n && (!k || sum < enough))
        sum += weight(p, k++);
    p->n = k;
}

/* The same for a pool by id. Candidates lighter than the n-th part of what may be missing are not needed: all of them
 * together weigh less than that. The rest, few of a large vocabulary, becomes a heap; the best ones leave it for the
 * space that it frees at the end, so that turning the list round puts them first. */
static void cut_heap(pool *p, double all, double enough)
{
    double sum = 0;
    int32_t k = 0;

    keep_weight(p, (all - enough) / p->n);
    make_heap(p->c, p->n, false);
    while (k < p->n && (!k || sum < enough)) {
        swl_candidate top = p->c[0];

        sum += weight(p, 0);
        k++;
        p->c[0] = p->c[p->n - k];
        p->c[p->n - k] = top;
        if (k < p->n)
            sift_down(p->c, p->n - k, 0, false);
    }
    reverse(p->c, p->n);
    p->n = k;
    p->sorted = true;
}

static void keep_top_p(pool *p, double top_p)
{
    double all = sum_weights(p);

    top_p = top_p > 0 ? top_p : 0;
    if (p->sorted)
        cut_sorted(p, top_p * all);
    else
        cut_heap(p, all, top_p * all);
}

static int32_t draw(const pool *p, swl_rng *rng)
{
    double target = rng_unit(rng) * sum_weights(p), sum = 0;

    for (int32_t i = 0; i < p->n; i++) {
        sum += weight(p, i);
        if (target < sum)
            return p->c[i].id;
    }
    return p->c[p->n - 1].id;
}

int32_t swl_sample(const float *logits, int32_t n, const swl_sampling *sampling, swl_rng *rng, swl_candidate *scratch)
{
    pool p = {.c = scratch, .temperature = sampling->temperature};

    if (!(sampling->temperature > 0))
        return argmax(logits, n);
    if (sampling->top_k > 0)
        gather_best(&p, logits, n, sampling->top_k);
    else
        gather_finite(&p, logits, n, n);
    if (!p.n)
        return -1;
    if (sampling->top_p < 1)
        keep_top_p(&p, sampling->top_p);
    if (sampling->min_p > 0)
        keep_weight(&p, sampling->min_p < 1 ? sampling->min_p : 1);
    return draw(&p, rng);
}
