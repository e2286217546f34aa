/* route_log.c: route logs in memory and on disk; see route_log.h. */
#define _GNU_SOURCE
#include "store/route_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

enum { HEADER_BYTES = 24, LAYERS_MAX = 4096, EXPERTS_MAX = 65535, K_MAX = 1024 };

#define FILE_BYTES_MAX (UINT64_C(4) << 30)

static const char magic[8] = {'S', 'W', 'L', 'R', 'O', 'U', 'T', 'E'};

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void make_header(uint8_t h[HEADER_BYTES], int32_t n_layers, int32_t n_experts, int32_t k)
{
    memcpy(h, magic, sizeof magic);
    put_u32(h + 8, 1);
    put_u32(h + 12, (uint32_t)n_layers);
    put_u32(h + 16, (uint32_t)n_experts);
    put_u32(h + 20, (uint32_t)k);
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

struct swl_route_writer {
    FILE *file;
    char *path;
    int32_t n_layers, k, layer; /* the next one */
    long pass_begin;            /* where the pass that is being written began */
};

swl_status swl_route_writer_close(swl_route_writer *w, swl_error *err)
{
    swl_status st = SWL_OK;

    if (w && w->file && fclose(w->file))
        st = swl_fail_errno(err, w->path, "cannot write %s", w->path);
    if (w)
        swl_free(w->path);
    swl_free(w);
    return st;
}

static swl_status write_bytes(swl_route_writer *w, const void *p, size_t n, swl_error *err)
{
    return fwrite(p, 1, n, w->file) == n ? SWL_OK : swl_fail_errno(err, w->path, "cannot write %s", w->path);
}

swl_status swl_route_writer_open(swl_route_writer **out, const char *path, int32_t n_layers, int32_t n_experts, int32_t k,
                                 swl_error *err)
{
    swl_route_writer *w = swl_calloc(1, sizeof *w);
    uint8_t h[HEADER_BYTES];
    swl_status st;

    *out = NULL;
    if (!w || !(w->path = swl_strdup(path))) {
        swl_route_writer_close(w, NULL);
        return swl_fail(err, SWL_E_NOMEM, "route log: out of memory");
    }
    w->n_layers = n_layers;
    w->k = k;
    w->file = fopen(path, "wbe");
    make_header(h, n_layers, n_experts, k);
    st = w->file ? write_bytes(w, h, sizeof h, err) : swl_fail_errno(err, path, "cannot create %s", path);
    if (st)
        swl_route_writer_close(w, NULL);
    else
        *out = w;
    return st;
}

/* A pass that failed half-way is taken out again. */
static swl_status begin_pass(swl_route_writer *w, swl_error *err)
{
    if (w->layer && (fflush(w->file) || fseek(w->file, w->pass_begin, SEEK_SET) || ftruncate(fileno(w->file), w->pass_begin)))
        return swl_fail_errno(err, w->path, "cannot write %s", w->path);
    w->pass_begin = ftell(w->file);
    return SWL_OK;
}

swl_status swl_route_writer_add(swl_route_writer *w, int32_t layer, const int32_t *ids, int32_t n, swl_error *err)
{
    uint8_t buf[2048];
    int64_t i, total = (int64_t)n * w->k;
    size_t used = 0;
    swl_status st = layer ? SWL_OK : begin_pass(w, err);

    if (layer && layer != w->layer)
        return SWL_OK; /* recording began in the middle of a pass */
    if (!layer) {
        put_u32(buf, (uint32_t)n);
        used = 4;
    }
    for (i = 0; i < total && !st; i++) {
        buf[used++] = (uint8_t)ids[i];
        buf[used++] = (uint8_t)(ids[i] >> 8);
        if (used == sizeof buf || i == total - 1) {
            st = write_bytes(w, buf, used, err);
            used = 0;
        }
    }
    w->layer = (layer + 1) % w->n_layers;
    return st;
}

swl_status swl_route_log_save(const swl_route_log *log, const char *path, swl_error *err)
{
    swl_route_writer *w;
    int32_t *ids = NULL, layer, i;
    int64_t pass, token = 0;
    swl_status st = swl_route_writer_open(&w, path, log->n_layers, log->n_experts, log->k, err), closed;

    for (pass = 0; pass < log->n_passes && !st; token += log->pass_tokens[pass++]) {
        int32_t n = log->pass_tokens[pass] * log->k, *p = swl_realloc(ids, (size_t)n, sizeof *ids);

        if (!p) {
            st = swl_fail(err, SWL_E_NOMEM, "route log: out of memory");
            break;
        }
        ids = p;
        for (layer = 0; layer < log->n_layers && !st; layer++) {
            for (i = 0; i < n; i++)
                ids[i] = log->ids[((token + i / log->k) * log->n_layers + layer) * log->k + i % log->k];
            st = swl_route_writer_add(w, layer, ids, log->pass_tokens[pass], err);
        }
    }
    swl_free(ids);
    closed = swl_route_writer_close(w, st ? NULL : err);
    return st ? st : closed;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

void swl_route_log_free(swl_route_log *log)
{
    if (!log)
        return;
    swl_free(log->pass_tokens);
    swl_free(log->ids);
    swl_free(log);
}

static swl_status check_header(swl_route_log *log, const uint8_t *p, size_t n, const char *path, swl_error *err)
{
    uint32_t v[4], i;

    if (n < HEADER_BYTES || memcmp(p, magic, sizeof magic))
        return swl_fail_at(err, SWL_E_CORRUPT, path, 0, "%s is not a route log", path);
    for (i = 0; i < 4; i++)
        v[i] = get_u32(p + 8 + 4 * i);
    if (v[0] != 1)
        return swl_fail_at(err, SWL_E_UNSUPPORTED, path, 8, "%s: version %" PRIu32 " of the route log, expected 1", path, v[0]);
    if (v[1] < 1 || v[1] > LAYERS_MAX || v[2] < 1 || v[2] > EXPERTS_MAX || v[3] < 1 || v[3] > K_MAX || v[3] > v[2])
        return swl_fail_at(err, SWL_E_CORRUPT, path, 12, "%s: the header is damaged: %" PRIu32 " layers, %" PRIu32
                           " experts, %" PRIu32 " per token; expected 1 to %d, 1 to %d, and 1 to %d but no more than there are",
                           path, v[1], v[2], v[3], LAYERS_MAX, EXPERTS_MAX, K_MAX);
    log->n_layers = (int32_t)v[1];
    log->n_experts = (int32_t)v[2];
    log->k = (int32_t)v[3];
    return SWL_OK;
}

/* Walks over the passes; counts them, or, when the arrays are there, fills them. */
static swl_status walk(swl_route_log *log, const uint8_t *p, size_t n, const char *path, swl_error *err)
{
    uint64_t at = HEADER_BYTES, row = (uint64_t)log->n_layers * (uint64_t)log->k;
    int64_t token = 0, pass = 0;

    while (n - at >= 4) {
        uint64_t n_tokens = get_u32(p + at), i;

        if (!n_tokens)
            return swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)at, "%s: a pass of no tokens", path);
        if (n_tokens > INT32_MAX / K_MAX || (n - at - 4) / 2 / row < n_tokens)
            break; /* cut off */
        for (i = 0; i < n_tokens * row && log->ids; i++) {
            uint64_t layer = i / (n_tokens * (uint64_t)log->k), t = i / (uint64_t)log->k % n_tokens, j = i % (uint64_t)log->k;
            uint32_t id = p[at + 4 + 2 * i] | (uint32_t)p[at + 5 + 2 * i] << 8;

            if (id >= (uint32_t)log->n_experts)
                return swl_fail_at(err, SWL_E_CORRUPT, path, (int64_t)(at + 4 + 2 * i),
                                   "%s: expert %" PRIu32 ", expected less than %d", path, id, log->n_experts);
            log->ids[(((uint64_t)token + t) * (uint64_t)log->n_layers + layer) * (uint64_t)log->k + j] = (uint16_t)id;
        }
        if (log->pass_tokens)
            log->pass_tokens[pass] = (int32_t)n_tokens;
        token += (int64_t)n_tokens;
        pass++;
        at += 4 + 2 * n_tokens * row;
    }
    log->n_tokens = token;
    log->n_passes = pass;
    return SWL_OK;
}

static swl_status alloc(swl_route_log *log, swl_error *err)
{
    log->pass_tokens = swl_calloc((size_t)log->n_passes, sizeof *log->pass_tokens);
    log->ids = swl_calloc((size_t)log->n_tokens, (size_t)log->n_layers * (size_t)log->k * sizeof *log->ids);
    return log->pass_tokens && log->ids ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "route log: out of memory");
}

swl_status swl_route_log_parse(swl_route_log **out, const uint8_t *data, size_t n, const char *path, swl_error *err)
{
    swl_route_log *log = swl_calloc(1, sizeof *log);
    swl_status st = log ? check_header(log, data, n, path, err) : swl_fail(err, SWL_E_NOMEM, "route log: out of memory");

    *out = NULL;
    if (!st)
        st = walk(log, data, n, path, err);
    if (!st && !log->n_tokens)
        st = swl_fail_at(err, SWL_E_CORRUPT, path, HEADER_BYTES, "%s has no complete pass", path);
    if (!st)
        st = alloc(log, err);
    if (!st)
        st = walk(log, data, n, path, err);
    if (st)
        swl_route_log_free(log);
    else
        *out = log;
    return st;
}

swl_status swl_route_log_load(swl_route_log **out, const char *path, swl_error *err)
{
    char *data;
    size_t n;
    swl_status st = swl_file_load(&data, &n, path, FILE_BYTES_MAX, err);

    *out = NULL;
    if (st)
        return st;
    st = swl_route_log_parse(out, (const uint8_t *)data, n, path, err);
    swl_free(data);
    return st;
}

void swl_route_log_info_get(const swl_route_log *log, swl_route_log_info *out)
{
    *out = (swl_route_log_info){log->n_layers, log->n_experts, log->k, log->n_tokens, log->n_passes};
}

/* ---- making one up ------------------------------------------------------------------------------------------------ */

void swl_route_model_init(swl_route_model *r, int32_t n_layers, int32_t n_experts, int32_t k, int32_t n_tokens)
{
    int32_t active = (int32_t)(100.0 / 256.0 * n_experts);

    *r = (swl_route_model){.n_layers = n_layers, .n_experts = n_experts, .k = k, .n_tokens = n_tokens, .repeat = 0.4,
                           .zipf = 0.4, .active = active < k ? k : active, .drift = 100, .seed = 1};
}

typedef struct generator {
    const swl_route_model *r;
    uint64_t state;
    int32_t *order;            /* [n_experts] the first `active` are the set, by rank */
    double *cdf;               /* [active] */
} generator;

static uint64_t draw(generator *g)
{
    uint64_t x = g->state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double draw_unit(generator *g)
{
    return (double)(draw(g) >> 11) * 0x1p-53;
}

static int32_t draw_below(generator *g, int32_t n)
{
    return (int32_t)(draw(g) % (uint64_t)n);
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t t = *a;

    *a = *b;
    *b = t;
}

static void make_cdf(generator *g)
{
    double sum = 0.0;
    int32_t i;

    for (i = 0; i < g->r->active; i++)
        g->cdf[i] = sum += pow(i + 1.0, -g->r->zipf);
    for (i = 0; i < g->r->active; i++)
        g->cdf[i] /= sum;
}

static int32_t draw_active(generator *g)
{
    double u = draw_unit(g);
    int32_t lo = 0, hi = g->r->active - 1;

    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;

        if (g->cdf[mid] > u)
            hi = mid;
        else
            lo = mid + 1;
    }
    return g->order[lo];
}

static bool holds(const uint16_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static void make_token(generator *g, const uint16_t *before, uint16_t *ids)
{
    int32_t k = g->r->k, i, id, tries = 0;

    for (i = 0; i < k; tries++) {
        if (tries > 64 * k) /* a set that is nearly used up: the next that is free */
            for (id = 0; holds(ids, i, id); id++)
                ;
        else
            id = before && draw_unit(g) < g->r->repeat ? before[draw_below(g, k)] : draw_active(g);
        if (!holds(ids, i, id))
            ids[i++] = (uint16_t)id;
    }
}

static void make_layer(generator *g, swl_route_log *log, int32_t layer)
{
    const swl_route_model *r = g->r;
    int64_t t, stride = (int64_t)log->n_layers * log->k;
    uint16_t *ids = log->ids + (int64_t)layer * log->k;
    int32_t i;

    for (i = 0; i < r->n_experts; i++)
        g->order[i] = i;
    for (i = r->n_experts - 1; i > 0; i--)
        swap(&g->order[i], &g->order[draw_below(g, i + 1)]);
    for (t = 0; t < log->n_tokens; t++, ids += stride) {
        make_token(g, t ? ids - stride : NULL, ids);
        if (r->drift && t % r->drift == r->drift - 1 && r->active < r->n_experts)
            swap(&g->order[draw_below(g, r->active)], &g->order[r->active + draw_below(g, r->n_experts - r->active)]);
    }
}

static swl_status check_model(const swl_route_model *r, swl_error *err)
{
    if (r->n_layers < 1 || r->n_layers > LAYERS_MAX || r->n_experts < 1 || r->n_experts > EXPERTS_MAX || r->k < 1 ||
        r->k > r->n_experts || r->k > K_MAX || r->n_tokens < 1 || r->active < r->k || r->active > r->n_experts ||
        r->drift < 0 || !(r->repeat >= 0.0 && r->repeat < 1.0) || !(r->zipf >= 0.0 && r->zipf < 10.0))
        return swl_fail(err, SWL_E_ARG, "route log: %d layers, %d experts, %d per token, %d active, %d tokens: out of range",
                        r->n_layers, r->n_experts, r->k, r->active, r->n_tokens);
    return SWL_OK;
}

static swl_route_log *log_new(const swl_route_model *r, swl_error *err)
{
    swl_route_log *log = swl_calloc(1, sizeof *log);
    int64_t i;

    if (!log) {
        swl_fail(err, SWL_E_NOMEM, "route log: out of memory");
        return NULL;
    }
    *log = (swl_route_log){.n_layers = r->n_layers, .n_experts = r->n_experts, .k = r->k, .n_tokens = r->n_tokens,
                           .n_passes = r->n_tokens};
    if (alloc(log, err)) {
        swl_route_log_free(log);
        return NULL;
    }
    for (i = 0; i < log->n_passes; i++)
        log->pass_tokens[i] = 1;
    return log;
}

swl_status swl_route_log_generate(swl_route_log **out, const swl_route_model *r, swl_error *err)
{
    generator g = {.r = r, .state = r->seed};
    swl_status st = check_model(r, err);
    int32_t layer;

    *out = NULL;
    if (st)
        return st;
    g.order = swl_calloc((size_t)r->n_experts, sizeof *g.order);
    g.cdf = swl_calloc((size_t)r->active, sizeof *g.cdf);
    if (!g.order || !g.cdf)
        st = swl_fail(err, SWL_E_NOMEM, "route log: out of memory");
    else if (!(*out = log_new(r, err)))
        st = SWL_E_NOMEM;
    if (!st) {
        make_cdf(&g);
        for (layer = 0; layer < r->n_layers; layer++)
            make_layer(&g, *out, layer);
    }
    swl_free(g.order);
    swl_free(g.cdf);
    return st;
}
