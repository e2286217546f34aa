/* metrics.c: Prometheus text, version 0.0.4. Labels come from our own tables alone. */
#include "metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS    96
#define BUCKETS 14

typedef struct row {
    const char *endpoint;
    int http;
    uint64_t n;
} row;

typedef struct histogram {
    uint64_t n[BUCKETS + 1];
    double sum;
} histogram;

/* Seconds: what lies between a token in memory and a long prompt from the disk. */
static const double bounds[BUCKETS] = {0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 180, 600, 1800};

struct srv_metrics {
    row rows[ROWS];
    int n_rows;
    uint64_t cancelled[SRV_PHASES];
    uint64_t n_prompt, n_cached, n_generated;
    histogram first_token, token_gap, request, queue;
};

struct srv_metrics *srv_metrics_create(void)
{
    return calloc(1, sizeof(struct srv_metrics));
}

void srv_metrics_free(struct srv_metrics *m)
{
    free(m);
}

static void observe(histogram *h, double x)
{
    int i = 0;

    while (i < BUCKETS && x > bounds[i])
        i++;
    h->n[i]++;
    h->sum += x;
}

void srv_metrics_request(srv_server *s, const char *endpoint, int http, double seconds)
{
    struct srv_metrics *m = s->metrics;
    int i = 0;

    observe(&m->request, seconds);
    while (i < m->n_rows && (strcmp(m->rows[i].endpoint, endpoint) || m->rows[i].http != http))
        i++;
    if (i == m->n_rows) {
        if (m->n_rows == ROWS)
            return;
        m->rows[m->n_rows++] = (row){endpoint, http, 0};
    }
    m->rows[i].n++;
}

void srv_metrics_cancelled(srv_server *s, srv_phase phase)
{
    s->metrics->cancelled[phase]++;
}

void srv_metrics_usage(srv_server *s, const swl_usage *u)
{
    struct srv_metrics *m = s->metrics;

    m->n_prompt += (uint64_t)(u->n_prompt > 0 ? u->n_prompt : 0);
    m->n_cached += (uint64_t)(u->n_cached > 0 ? u->n_cached : 0);
    m->n_generated += (uint64_t)(u->n_generated > 0 ? u->n_generated : 0);
    observe(&m->queue, u->queue_seconds);
    if (!u->n_generated)
        return;
    observe(&m->first_token, u->first_token_seconds);
    if (u->n_generated > 1) /* the mean gap, once for each token */
        for (int32_t i = 1; i < u->n_generated; i++)
            observe(&m->token_gap, u->generate_seconds / (u->n_generated - 1));
}

static void head(srv_text *t, const char *name, const char *type, const char *help)
{
    srv_printf(t, "# HELP swiftlet_%s %s\n# TYPE swiftlet_%s %s\n", name, help, name, type);
}

static void counter(srv_text *t, const char *name, const char *help, uint64_t x)
{
    head(t, name, "counter", help);
    srv_printf(t, "swiftlet_%s %llu\n", name, (unsigned long long)x);
}

static void gauge(srv_text *t, const char *name, const char *help, double x)
{
    head(t, name, "gauge", help);
    srv_printf(t, "swiftlet_%s %.17g\n", name, x);
}

static void put_histogram(srv_text *t, const char *name, const char *help, const histogram *h)
{
    uint64_t n = 0;

    head(t, name, "histogram", help);
    for (int i = 0; i < BUCKETS; i++) {
        n += h->n[i];
        srv_printf(t, "swiftlet_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)n);
    }
    n += h->n[BUCKETS];
    srv_printf(t, "swiftlet_%s_bucket{le=\"+Inf\"} %llu\nswiftlet_%s_sum %.9g\nswiftlet_%s_count %llu\n", name,
               (unsigned long long)n, name, h->sum, name, (unsigned long long)n);
}

static void put_requests(srv_server *s, srv_text *t)
{
    const struct srv_metrics *m = s->metrics;
    static const char *const phases[] = {"preparing", "queued", "prefill", "decode"};

    head(t, "requests_total", "counter", "Requests that were answered, by endpoint and HTTP status.");
    for (int i = 0; i < m->n_rows; i++)
        srv_printf(t, "swiftlet_requests_total{endpoint=\"%s\",code=\"%d\"} %llu\n", m->rows[i].endpoint, m->rows[i].http,
                   (unsigned long long)m->rows[i].n);
    head(t, "requests_cancelled_total", "counter", "Requests whose client went away, by what they were doing.");
    for (int i = 0; i < SRV_PHASES; i++)
        srv_printf(t, "swiftlet_requests_cancelled_total{phase=\"%s\"} %llu\n", phases[i], (unsigned long long)m->cancelled[i]);
}

/* The store counts by powers of two. */
static void put_reads(srv_text *t, const swl_model_stats *store)
{
    static const char name[] = "storage_read_seconds";
    double bound = 50e-6;
    uint64_t n = 0;

    head(t, name, "histogram", "From asking for a read of experts until its end was noticed.");
    for (int i = 0; i < SWL_READ_TIMES - 1; i++, bound *= 2) {
        n += store->read_times[i];
        srv_printf(t, "swiftlet_%s_bucket{le=\"%g\"} %llu\n", name, bound, (unsigned long long)n);
    }
    srv_printf(t, "swiftlet_%s_bucket{le=\"+Inf\"} %llu\nswiftlet_%s_sum %.9g\nswiftlet_%s_count %llu\n", name,
               (unsigned long long)store->n_reads, name, 1e-9 * (double)store->read_ns, name, (unsigned long long)store->n_reads);
}

static void put_store(srv_server *s, srv_text *t)
{
    swl_model_stats store;

    swl_model_stats_get(s->model.model, &store);
    counter(t, "expert_cache_hits_total", "Experts that were in memory when they were needed.", store.expert_hits);
    counter(t, "expert_cache_misses_total", "Experts that had to be read.", store.expert_misses);
    counter(t, "expert_cache_evictions_total", "Experts that gave up their place in memory.", store.expert_evictions);
    counter(t, "storage_reads_total", "Reads of experts that have ended.", store.n_reads);
    counter(t, "storage_read_bytes_total", "Bytes of experts that were read.", store.expert_bytes_read);
    gauge(t, "storage_queue_depth", "Reads of experts that are on their way.", store.n_reading);
    gauge(t, "expert_cache_bytes", "Memory of the expert pool.", (double)store.pool_bytes);
    put_reads(t, &store);
}

static void put_checkpoints(srv_server *s, srv_text *t, uint64_t n_marks, uint64_t disk_bytes)
{
    swl_memory_plan p;
    uint64_t n_most;

    swl_memory_plan_get(s->model.model, &p);
    n_most = (uint64_t)p.n_marks * (uint64_t)p.n_sessions;
    gauge(t, "session_checkpoints", "Places that conversations in memory can go back to.", (double)n_marks);
    head(t, "session_checkpoint_bytes", "gauge", "What the places take in memory, and kept conversations on disk.");
    srv_printf(t, "swiftlet_session_checkpoint_bytes{where=\"memory\"} %llu\n", (unsigned long long)(n_most ? p.marks / n_most * n_marks : 0));
    srv_printf(t, "swiftlet_session_checkpoint_bytes{where=\"disk\"} %llu\n", (unsigned long long)disk_bytes);
}

static void put_engine(srv_server *s, srv_text *t)
{
    swl_engine_stats e;
    swl_slot_info slots[64];
    uint64_t n_marks = 0;

    memset(slots, 0, sizeof slots);
    swl_engine_stats_get(s->model.engine, &e, slots, 64);
    for (int i = 0; i < 64 && i < e.n_slots; i++)
        n_marks += (uint64_t)slots[i].n_marks;
    gauge(t, "requests_running", "Requests that are being computed.", e.n_running);
    gauge(t, "requests_waiting", "Requests in line.", e.n_waiting);
    put_store(s, t);
    put_checkpoints(s, t, n_marks, e.disk_bytes);
    head(t, "prefix_hits_total", "counter", "Prompts whose beginning was computed already, by where it was found.");
    srv_printf(t, "swiftlet_prefix_hits_total{source=\"memory\"} %llu\nswiftlet_prefix_hits_total{source=\"disk\"} %llu\n",
               (unsigned long long)e.hits_memory, (unsigned long long)e.hits_disk);
}

/* Resident bytes of the process, 0 where the system does not tell. */
static double resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long long total = 0, pages = 0;

    if (f && fscanf(f, "%llu %llu", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void put_memory(srv_server *s, srv_text *t)
{
    swl_memory_plan p;

    swl_memory_plan_get(s->model.model, &p);
    head(t, "memory_bytes", "gauge", "The memory plan by kind, and what the process has resident.");
    srv_printf(t, "swiftlet_memory_bytes{kind=\"budget\"} %llu\nswiftlet_memory_bytes{kind=\"dense\"} %llu\n",
               (unsigned long long)p.limit, (unsigned long long)p.dense);
    srv_printf(t, "swiftlet_memory_bytes{kind=\"state\"} %llu\nswiftlet_memory_bytes{kind=\"pool\"} %llu\n",
               (unsigned long long)(p.state + p.marks), (unsigned long long)p.pool);
    srv_printf(t, "swiftlet_memory_bytes{kind=\"work\"} %llu\nswiftlet_memory_bytes{kind=\"resident\"} %.0f\n",
               (unsigned long long)(p.work + p.io), resident());
}

void srv_metrics_write(srv_server *s, srv_text *t)
{
    const struct srv_metrics *m = s->metrics;

    put_requests(s, t);
    counter(t, "prompt_tokens_total", "Tokens of prompts, computed or not.", m->n_prompt);
    counter(t, "prompt_tokens_cached_total", "Tokens of prompts that were computed before.", m->n_cached);
    counter(t, "generated_tokens_total", "Tokens of answers.", m->n_generated);
    counter(t, "draft_tokens_total", "Tokens that were drafted.", 0);
    counter(t, "draft_accepted_total", "Drafted tokens that stayed.", 0);
    put_histogram(t, "time_to_first_token_seconds", "From submission to the first token.", &m->first_token);
    put_histogram(t, "inter_token_seconds", "Between two tokens of an answer, its mean.", &m->token_gap);
    put_histogram(t, "request_seconds", "From a request's head to the end of its answer.", &m->request);
    put_histogram(t, "queue_seconds", "In line.", &m->queue);
    put_engine(s, t);
    put_memory(s, t);
    head(t, "build_info", "gauge", "What is running.");
    srv_printf(t, "swiftlet_build_info{version=\"%s\",commit=\"%s\",cpu=\"%s\",backend=\"cpu\"} 1\n", swl_version(),
               s->opt.commit ? s->opt.commit : "", s->info.cpu_level);
}
