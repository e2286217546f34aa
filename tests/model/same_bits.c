/*
 * same_bits.c: the promise that logits are a function of the tokens alone. Runs one prompt in many ways (chunk sizes,
 * threads, kernel levels, pools, pieces, restored state, another conversation in between, reset, a container in place
 * of the checkpoint) and compares every logit with the plainest run, byte for byte, in the default mode and in the
 * exact one.
 *
 * usage: same_bits MODEL WORKDIR [--repack] [--few] [--tokens N] [--mode default|exact]
 *   --few      fewer ways, for long prompts
 *   --repack   also make WORKDIR/same_bits.qpack from MODEL, which must not need quantising, and compare that
 * Uses the public header only. The last line is "N passed, N failed".
 */
#define _POSIX_C_SOURCE 200809L
#include <swiftlet/swiftlet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define SECOND_LEVEL "avx2"
#elif defined(__aarch64__)
#define SECOND_LEVEL "neon"
#else
#define SECOND_LEVEL "scalar"
#endif

/* One way to run the prompt. */
typedef struct way {
    const char *name;
    int32_t n_threads, chunk_tokens, pool_slots;
    int32_t piece;         /* tokens per call; 0: all at once */
    bool floor_pool;       /* as few slots as the model allows */
    const char *cpu_level; /* NULL: the best */
    const char *io;        /* NULL: what suits the drive */
    int32_t io_direct;
    const char *cache_policy;
} way;

static const way plainest = {"one thread, token by token", 1, 1, 0, 1, false, NULL, NULL, 0, NULL};

static const way ways[] = {
    {"chunk 1", 1, 1, 0, 0, false, NULL, NULL, 0, NULL},
    {"chunk 7", 1, 7, 0, 0, false, NULL, NULL, 0, NULL},
    {"chunk 64", 1, 64, 0, 0, false, NULL, NULL, 0, NULL},
    {"chunk 512", 1, 512, 0, 0, false, NULL, NULL, 0, NULL},
    {"whole prompt", 1, 0, 0, 0, false, NULL, NULL, 0, NULL},
    {"2 threads, whole", 2, 0, 0, 0, false, NULL, NULL, 0, NULL},
    {"2 threads, chunk 7", 2, 7, 0, 0, false, NULL, NULL, 0, NULL},
    {"2 threads, token by token", 2, 0, 0, 1, false, NULL, NULL, 0, NULL},
    {"4 threads, whole", 4, 0, 0, 0, false, NULL, NULL, 0, NULL},
    {"pieces of 5", 1, 0, 0, 5, false, NULL, NULL, 0, NULL},
    {"pieces of 13, chunk 3", 2, 3, 0, 13, false, NULL, NULL, 0, NULL},
    {"pool at its floor, whole", 2, 0, 0, 0, true, NULL, NULL, 0, NULL},
    {"pool at its floor, token by token", 1, 0, 0, 1, true, NULL, NULL, 0, NULL},
    {"pool of 3, pieces of 11", 2, 16, 3, 11, false, NULL, NULL, 0, NULL},
    {"scalar kernels, whole", 1, 0, 0, 0, false, "scalar", NULL, 0, NULL},
    {"scalar kernels, token by token", 1, 0, 0, 1, false, "scalar", NULL, 0, NULL},
    {"next to scalar, whole", 2, 0, 0, 0, false, SECOND_LEVEL, NULL, 0, NULL},
    {"next to scalar, token by token", 1, 0, 0, 1, false, SECOND_LEVEL, NULL, 0, NULL},
    {"reading threads, pool at its floor", 1, 0, 0, 1, true, NULL, "threads", -1, NULL},
    {"pool by recency", 2, 0, 0, 2, true, NULL, NULL, 0, "lru"},
    {"pool by frequency", 2, 0, 0, 2, true, NULL, NULL, 0, "lfu-decay"},
};

/* For long prompts, where every run takes a while. */
static const way few_ways[] = {
    {"whole prompt", 1, 0, 0, 0, false, NULL, NULL, 0, NULL},
    {"2 threads, chunk 100", 2, 100, 0, 0, false, NULL, NULL, 0, NULL},
    {"4 threads, pieces of 333", 4, 64, 0, 333, true, NULL, NULL, 0, NULL},
};

typedef struct prompt {
    int32_t n, vocab;
    int32_t *ids;
} prompt;

static const char *model_path, *work_dir;
static bool exact;
static int n_passed, n_failed;

static void die(const char *what, const swl_error *err)
{
    fprintf(stderr, "same_bits: %s: %s%s%s\n", what, err->file, *err->file ? ": " : "", err->message);
    exit(2);
}

static void *must_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (p == NULL) {
        fprintf(stderr, "same_bits: out of memory\n");
        exit(2);
    }
    return p;
}

static swl_model *open_model(const char *path, const way *w)
{
    swl_model_options o;
    swl_model *m;
    swl_error err;

    swl_model_options_init(&o);
    o.path = path;
    o.n_threads = w->n_threads;
    o.chunk_tokens = w->chunk_tokens;
    o.pool_slots = w->pool_slots;
    o.exact = exact;
    o.cpu_level = w->cpu_level;
    o.io = w->io;
    o.io_direct = w->io_direct;
    o.cache_policy = w->cache_policy;
    if (w->floor_pool) {
        swl_model_info info;

        if (swl_model_open(&m, &o, &err))
            die("open", &err);
        swl_model_info_get(m, &info);
        swl_model_close(m);
        o.pool_slots = info.n_experts_used;
    }
    if (swl_model_open(&m, &o, &err)) {
        if (o.io_direct != 1)
            die("open", &err);
        printf("skip %s: %s\n", w->name, err.message); /* not every file system can */
        return NULL;
    }
    return m;
}

static swl_session *new_session(swl_model *m)
{
    swl_session *s;
    swl_error err;

    if (swl_session_create(&s, m, &err))
        die("session", &err);
    return s;
}

static void eval(swl_session *s, const int32_t *ids, int32_t n, swl_logits_wanted want, float *logits)
{
    swl_error err;

    if (swl_session_eval(s, ids, n, want, logits, &err))
        die("eval", &err);
}

/* Tokens [from, to) in pieces, logits of each to its row. */
static void eval_pieces(swl_session *s, const prompt *p, int32_t from, int32_t to, int32_t piece, float *logits)
{
    int32_t step = piece ? piece : to - from;

    for (int32_t i = from; i < to; i += step) {
        int32_t n = i + step < to ? step : to - i;

        eval(s, p->ids + i, n, SWL_LOGITS_ALL, logits + (size_t)i * (size_t)p->vocab);
    }
}

static void judge(const char *name, const prompt *p, const float *want, const float *got, int32_t first_row)
{
    size_t n = (size_t)p->vocab;

    for (int32_t i = first_row; i < p->n; i++) {
        if (memcmp(want + (size_t)i * n, got + (size_t)i * n, n * sizeof *got) == 0)
            continue;
        size_t j = 0;
        while (memcmp(want + (size_t)i * n + j, got + (size_t)i * n + j, sizeof *got) == 0)
            j++;
        printf("FAIL %s, %s: token %d, logit %zu: expected %.9g, found %.9g\n", exact ? "exact" : "default", name,
               (int)i, j, (double)want[(size_t)i * n + j], (double)got[(size_t)i * n + j]);
        n_failed++;
        return;
    }
    n_passed++;
}

static float *new_logits(const prompt *p)
{
    size_t n = (size_t)p->n * (size_t)p->vocab * sizeof(float);
    float *logits = must_alloc(n);

    memset(logits, 0xff, n); /* rows that nobody writes are no number and differ from every result */
    return logits;
}

/* NULL when the way cannot be had here. */
static float *run_way(const char *path, const way *w, const prompt *p)
{
    swl_model *m = open_model(path, w);

    if (m == NULL)
        return NULL;
    swl_session *s = new_session(m);
    float *logits = new_logits(p);

    eval_pieces(s, p, 0, p->n, w->piece, logits);
    swl_session_free(s);
    swl_model_close(m);
    return logits;
}

static void check_ways(const char *path, const way *list, size_t n, const prompt *p, const float *want)
{
    for (size_t i = 0; i < n; i++) {
        float *got = run_way(path, &list[i], p);

        if (got)
            judge(list[i].name, p, want, got, 0);
        free(got);
    }
}

/* Only the last row asked for, and none at all before it. */
static void check_wanted(swl_model *m, const prompt *p, const float *want)
{
    swl_session *s = new_session(m);
    float *got = new_logits(p);
    int32_t half = p->n / 2;

    eval(s, p->ids, half, SWL_LOGITS_NONE, NULL);
    eval(s, p->ids + half, p->n - half, SWL_LOGITS_LAST, got + (size_t)(p->n - 1) * (size_t)p->vocab);
    judge("only the last logits", p, want, got, p->n - 1);
    free(got);
    swl_session_free(s);
}

/* State saved in one session and loaded into another, with and without the first one going on in between. */
static void check_restored(swl_model *m, const prompt *p, const float *want)
{
    swl_session *s = new_session(m), *t = new_session(m);
    float *got = new_logits(p);
    char path[1024];
    int32_t half = p->n / 3;
    swl_error err;

    snprintf(path, sizeof path, "%s/same_bits.state", work_dir);
    eval_pieces(s, p, 0, half, 0, got);
    if (swl_session_save(s, path, &err))
        die("save", &err);
    eval(t, p->ids + half, p->n - half, SWL_LOGITS_NONE, NULL); /* a state to be overwritten */
    if (swl_session_load(t, path, &err))
        die("load", &err);
    eval_pieces(t, p, half, p->n, 0, got);
    judge("state restored in another session", p, want, got, 0);
    eval_pieces(s, p, half, p->n, 4, got);
    judge("going on after a save", p, want, got, 0);
    if (swl_session_load(s, path, &err))
        die("load", &err);
    eval_pieces(s, p, half, p->n, 0, got);
    judge("back to the saved state", p, want, got, 0);
    unlink(path);
    free(got);
    swl_session_free(t);
    swl_session_free(s);
}

/* A reset session, and two conversations that take turns on one model. */
static void check_neighbours(swl_model *m, const prompt *p, const float *want)
{
    swl_session *s = new_session(m), *t = new_session(m);
    float *got = new_logits(p), *other = new_logits(p);

    eval(s, p->ids + 1, p->n - 1, SWL_LOGITS_NONE, NULL);
    swl_session_reset(s);
    for (int32_t i = 0; i < p->n; i += 3) {
        int32_t end = i + 3 < p->n ? i + 3 : p->n;

        eval_pieces(s, p, i, end, 0, got);
        eval_pieces(t, p, i, end, 1, other);
    }
    judge("reset, then beside another conversation", p, want, got, 0);
    judge("the other conversation", p, want, other, 0);
    free(other);
    free(got);
    swl_session_free(t);
    swl_session_free(s);
}

/* Three conversations in one call after another, each at its own pace: one token, three, and five at a time. */
static void check_batch(swl_model *m, const prompt *p, const float *want)
{
    enum { N = 3 };
    static const int32_t pace[N] = {1, 3, 5};
    swl_session *s[N];
    float *got[N], *rows = must_alloc((1 + 3 + 5) * (size_t)p->vocab * sizeof *rows);
    size_t width = (size_t)p->vocab;
    swl_error err;

    for (int k = 0; k < N; k++) {
        s[k] = new_session(m);
        got[k] = new_logits(p);
    }
    for (int32_t step = 0; step < p->n; step++) {
        swl_batch_entry e[N];
        float *rows_of[N], *at = rows;
        int32_t n = 0;

        for (int k = 0; k < N; k++) {
            int32_t from = step * pace[k], left = p->n - from;

            if (left <= 0)
                continue;
            e[n] = (swl_batch_entry){s[k], p->ids + from, left < pace[k] ? left : pace[k], SWL_LOGITS_ALL};
            rows_of[n++] = got[k] + (size_t)from * width;
        }
        if (swl_batch_eval(e, n, rows, &err))
            die("batch", &err);
        for (int32_t i = 0; i < n; i++) {
            memcpy(rows_of[i], at, (size_t)e[i].n * width * sizeof *at);
            at += (size_t)e[i].n * width;
        }
    }
    for (int k = 0; k < N; k++) {
        judge("in a batch with others", p, want, got[k], 0);
        free(got[k]);
        swl_session_free(s[k]);
    }
    free(rows);
}

static void check_container(const prompt *p, const float *want)
{
    char path[1024];
    swl_repack_options o;
    swl_error err;

    snprintf(path, sizeof path, "%s/same_bits.qpack", work_dir);
    swl_repack_options_init(&o);
    o.source = model_path;
    o.output = path;
    o.replace = true;
    if (swl_repack(&o, &err))
        die("repack", &err);
    const way tried[] = {
        {"container, token by token", 1, 0, 0, 1, false, NULL, NULL, 0, NULL},
        {"container, whole", 2, 0, 0, 0, false, NULL, NULL, 0, NULL},
        {"container, pool at its floor", 2, 5, 0, 0, true, NULL, NULL, 0, NULL},
        {"container, past the page cache", 1, 0, 0, 1, true, NULL, "threads", 1, NULL},
    };
    check_ways(path, tried, sizeof tried / sizeof *tried, p, want);
}

static void check_mode(const prompt *p, bool few, bool repack)
{
    const way usual = {"usual", 2, 0, 0, 0, false, NULL, NULL, 0, NULL};
    float *want = run_way(model_path, &plainest, p);

    if (few) {
        check_ways(model_path, few_ways, sizeof few_ways / sizeof *few_ways, p, want);
    } else {
        check_ways(model_path, ways, sizeof ways / sizeof *ways, p, want);
        swl_model *m = open_model(model_path, &usual);
        check_wanted(m, p, want);
        check_restored(m, p, want);
        check_neighbours(m, p, want);
        check_batch(m, p, want);
        swl_model_close(m);
    }
    if (repack)
        check_container(p, want);
    free(want);
}

/* Ids of a small generator: every token of a small vocabulary comes up, some of them often. */
static void make_prompt(prompt *p, int32_t n)
{
    swl_model *m = open_model(model_path, &plainest);
    swl_model_info info;
    uint32_t x = 12345;

    swl_model_info_get(m, &info);
    swl_model_close(m);
    p->n = n;
    p->vocab = info.vocab;
    p->ids = must_alloc((size_t)n * sizeof *p->ids);
    for (int32_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p->ids[i] = (int32_t)((x >> 8) % (uint32_t)info.vocab);
    }
}

int main(int argc, char **argv)
{
    bool repack = false, few = false;
    const char *mode = "both";
    int32_t n_tokens = 97;
    prompt p;

    if (argc < 3) {
        fprintf(stderr, "usage: same_bits MODEL WORKDIR [--repack] [--few] [--tokens N] [--mode default|exact]\n");
        return 2;
    }
    model_path = argv[1];
    work_dir = argv[2];
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--repack") == 0)
            repack = true;
        else if (strcmp(argv[i], "--few") == 0)
            few = true;
        else if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc)
            n_tokens = (int32_t)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--mode") == 0 && i + 1 < argc)
            mode = argv[++i];
    }
    make_prompt(&p, n_tokens > 8 ? n_tokens : 8);
    for (int k = 0; k < 2; k++) {
        exact = k == 1;
        if (strcmp(mode, "both") == 0 || strcmp(mode, exact ? "exact" : "default") == 0)
            check_mode(&p, few, repack);
    }
    free(p.ids);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
