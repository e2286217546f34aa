/*
 * scripted.c: a stand-in for the engine behind the public header, so that tests of the command line can make a model
 * say and do what no real one does on demand. A token is a byte; the script comes from the environment:
 *
 *   SCRIPT_TEXT      what every answer says, byte by byte (default "Hello, world.")
 *   SCRIPT_DELAY_MS  time before every token of an answer, every prompt token, every step of a conversion
 *   SCRIPT_STEPS     of a conversion (20)
 *   SCRIPT_READY     file that is written when the third of these delays begins: the script is in the middle of its work
 *   SCRIPT_OPEN, SCRIPT_GENERATE, SCRIPT_REPACK, SCRIPT_VERIFY     status (a number) that this call fails with
 *   SCRIPT_SESSIONS  so many conversations fit into memory (default 64)
 *   SCRIPT_LOG       file that receives what every generation runs of its prompt as "POSITION TEXT", one a line, newlines
 *                    as "|"
 *
 * The chat engine is in scripted_engine.c; what is in neither (status names, version) comes from the library itself. The state's position counts as the library's
 * does: an answer's tokens are in it, the stop token is not.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <swiftlet/swiftlet.h>

struct swl_tokenizer {
    char pieces[256][2];
};
struct swl_model {
    swl_model_info info;
    swl_memory_plan plan;
};
#define TOKENS_MAX 100000
struct swl_session {
    int32_t n_tokens, ids[TOKENS_MAX];
};

static const char *script(const char *name, const char *otherwise)
{
    const char *text = getenv(name);

    return text ? text : otherwise;
}

static void pause_step(void)
{
    static int n_steps;
    long ms = atol(script("SCRIPT_DELAY_MS", "0"));
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    FILE *f;

    if (++n_steps == 3 && (f = fopen(script("SCRIPT_READY", "/dev/null"), "w"))) {
        fputs("ready", f);
        fclose(f);
    }
    nanosleep(&t, NULL);
}

static swl_status scripted(const char *name, swl_error *err)
{
    swl_status st = (swl_status)atoi(script(name, "0"));

    if (st) {
        memset(err, 0, sizeof *err);
        err->code = st;
        err->offset = 7;
        strcpy(err->file, "scripted.bin");
        snprintf(err->message, sizeof err->message, "%s of the script", name);
    }
    return st;
}

swl_status swl_tokenizer_open(swl_tokenizer **out, const char *dir, swl_error *err)
{
    (void)dir;
    (void)err;
    *out = calloc(1, sizeof **out);
    return *out ? SWL_OK : SWL_E_NOMEM;
}

void swl_tokenizer_close(swl_tokenizer *t)
{
    free(t);
}

swl_status swl_tokenizer_encode(const swl_tokenizer *t, const char *text, size_t n_bytes, uint32_t flags, int32_t **ids,
                                int64_t *n_ids, swl_error *err)
{
    (void)t;
    (void)flags;
    (void)err;
    *ids = malloc((n_bytes + 1) * sizeof **ids);
    if (!*ids)
        return SWL_E_NOMEM;
    for (size_t i = 0; i < n_bytes; i++)
        (*ids)[i] = (unsigned char)text[i];
    *n_ids = (int64_t)n_bytes;
    return SWL_OK;
}

int64_t swl_tokenizer_tokens_min(const swl_tokenizer *t, size_t n_bytes)
{
    (void)t;
    (void)n_bytes;
    return 0;
}

const char *swl_tokenizer_token(const swl_tokenizer *t, int32_t id, int32_t *n_bytes)
{
    swl_tokenizer *mine = (swl_tokenizer *)t;

    *n_bytes = id >= 0 && id < 256;
    if (!*n_bytes)
        return NULL;
    mine->pieces[id][0] = (char)id;
    return mine->pieces[id];
}

swl_status swl_tokenizer_decode(const swl_tokenizer *t, const int32_t *ids, int64_t n_ids, bool skip_special, char **text,
                                size_t *n_bytes, swl_error *err)
{
    (void)t;
    (void)skip_special;
    *text = malloc((size_t)n_ids + 1);
    *n_bytes = (size_t)n_ids;
    for (int64_t i = 0; *text && i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] > 255) {
            free(*text);
            *text = NULL;
            memset(err, 0, sizeof *err);
            snprintf(err->message, sizeof err->message, "tokenizer: id %d is no token", (int)ids[i]);
            return err->code = SWL_E_ARG;
        }
        (*text)[i] = (char)ids[i];
    }
    if (*text)
        (*text)[n_ids] = 0;
    return *text ? SWL_OK : SWL_E_NOMEM;
}

bool swl_tokenizer_is_special(const swl_tokenizer *t, int32_t id)
{
    (void)t;
    return id >= 1000;
}

int32_t swl_tokenizer_n_tokens(const swl_tokenizer *t)
{
    (void)t;
    return 256;
}

bool swl_tokenizer_is_stop(const swl_tokenizer *t, int32_t id)
{
    (void)t;
    return id >= 1000;
}

int32_t swl_tokenizer_special(const swl_tokenizer *t, const char *content)
{
    (void)t;
    return content[0] == '<' ? 1000 : -1;
}

void swl_model_options_init(swl_model_options *opt)
{
    memset(opt, 0, sizeof *opt);
}

/* A tenth of the limit is a slot row; there are 16 experts, of which half fit. */
swl_status swl_memory_plan_make(swl_memory_plan *out, const swl_model_options *opt, swl_error *err)
{
    swl_status st = scripted("SCRIPT_OPEN", err);

    if (!st && opt->n_sessions > atoi(script("SCRIPT_SESSIONS", "64")))
        st = SWL_E_BUDGET;
    memset(out, 0, sizeof *out);
    out->limit = opt->memory_bytes ? opt->memory_bytes : 1000000000;
    out->n_experts = 16;
    out->n_sessions = opt->n_sessions > 0 ? opt->n_sessions : 1;
    out->ctx_tokens = opt->ctx_tokens ? opt->ctx_tokens : 4096;
    out->pool_slots = 8;
    if (opt->pool_bytes && opt->pool_bytes / (out->limit / 10) < 8)
        out->pool_slots = opt->pool_bytes / (out->limit / 10) ? (int32_t)(opt->pool_bytes / (out->limit / 10)) : 1;
    out->pool_all = out->limit / 10 * 16;
    out->pool = out->limit / 10 * (uint64_t)out->pool_slots;
    out->total = out->pool;
    return st;
}

swl_status swl_model_open(swl_model **out, const swl_model_options *opt, swl_error *err)
{
    swl_memory_plan plan;
    swl_status st = swl_memory_plan_make(&plan, opt, err);

    if (st)
        return st;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return SWL_E_NOMEM;
    strcpy((*out)->info.family, "scripted");
    strcpy((*out)->info.container, "none");
    strcpy((*out)->info.cpu_level, opt->cpu_level ? opt->cpu_level : "best");
    (*out)->info.ctx_tokens = opt->ctx_tokens ? opt->ctx_tokens : 4096;
    (*out)->info.n_threads = opt->n_threads;
    (*out)->plan = plan;
    (*out)->info.pool_slots = plan.pool_slots;
    return SWL_OK;
}

void swl_memory_plan_get(const swl_model *m, swl_memory_plan *out)
{
    *out = m->plan;
}

void swl_model_close(swl_model *m)
{
    free(m);
}

void swl_model_info_get(const swl_model *m, swl_model_info *out)
{
    *out = m->info;
}

void swl_model_stats_get(const swl_model *m, swl_model_stats *out)
{
    (void)m;
    memset(out, 0, sizeof *out);
}

swl_status swl_session_create(swl_session **out, swl_model *m, swl_error *err)
{
    (void)m;
    (void)err;
    *out = calloc(1, sizeof **out);
    return *out ? SWL_OK : SWL_E_NOMEM;
}

void swl_session_free(swl_session *s)
{
    free(s);
}

void swl_session_reset(swl_session *s)
{
    s->n_tokens = 0;
}

int32_t swl_session_n_tokens(const swl_session *s)
{
    return s->n_tokens;
}

swl_status swl_session_save(const swl_session *s, const char *path, swl_error *err)
{
    FILE *f = fopen(path, "w");

    (void)err;
    if (!f)
        return SWL_E_IO;
    fprintf(f, "%d\n", s->n_tokens);
    fclose(f);
    return SWL_OK;
}

swl_status swl_session_load(swl_session *s, const char *path, swl_error *err)
{
    FILE *f = fopen(path, "r");
    int n = 0;

    (void)err;
    if (!f || fscanf(f, "%d", &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    s->n_tokens = n;
    return SWL_OK;
}

void swl_sampling_init(swl_sampling *p)
{
    memset(p, 0, sizeof *p);
    p->top_p = 1;
    p->repetition_penalty = 1;
    p->repeat_last_n = -1;
}

swl_status swl_sampling_load(swl_sampling *p, const char *dir, swl_error *err)
{
    (void)dir;
    (void)err;
    p->temperature = 0.75f;
    p->top_k = 20;
    return SWL_OK;
}

void swl_generate_options_init(swl_generate_options *opt)
{
    memset(opt, 0, sizeof *opt);
}

/* A whole conversation goes on where the session is, if it begins with all that the session has; else from nothing. */
static int32_t n_known(const swl_session *s, const swl_generate_options *opt)
{
    return opt->whole && s->n_tokens < opt->n_prompt && !memcmp(s->ids, opt->prompt, (size_t)s->n_tokens * sizeof *s->ids)
               ? s->n_tokens : 0;
}

static void append(swl_session *s, int32_t id)
{
    if (s->n_tokens < TOKENS_MAX)
        s->ids[s->n_tokens++] = id;
}

static void log_prompt(const swl_session *s, const swl_generate_options *opt, int32_t begin)
{
    const char *path = getenv("SCRIPT_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;

    if (!f)
        return;
    fprintf(f, "%d ", s->n_tokens);
    for (int32_t i = begin; i < opt->n_prompt; i++)
        fputc(opt->prompt[i] == '\n' ? '|' : opt->prompt[i], f);
    fputc('\n', f);
    fclose(f);
}

static bool read_prompt(swl_session *s, const swl_generate_options *opt, int32_t begin)
{
    for (int32_t i = begin; i < opt->n_prompt; i++) {
        pause_step();
        append(s, opt->prompt[i]);
        if (!opt->on_prompt(opt->arg, i + 1, opt->n_prompt))
            return false;
    }
    return true;
}

/* Whole characters only, as the detokeniser of the library gives them out. */
static size_t character(const char *p)
{
    size_t n = 1;

    while (((unsigned char)p[n] & 0xc0) == 0x80)
        n++;
    return n;
}

swl_status swl_generate(swl_session *s, const swl_generate_options *opt, swl_generate_result *res, swl_error *err)
{
    const char *p = script("SCRIPT_TEXT", "Hello, world.");
    swl_status st = scripted("SCRIPT_GENERATE", err);

    memset(res, 0, sizeof *res);
    if (st)
        return st;
    res->n_prompt = opt->n_prompt;
    res->n_cached = n_known(s, opt);
    if (opt->whole && !res->n_cached)
        s->n_tokens = 0;
    log_prompt(s, opt, res->n_cached);
    res->finish = read_prompt(s, opt, res->n_cached) ? SWL_FINISH_NONE : SWL_FINISH_CANCELLED;
    while (!res->finish) {
        size_t n = *p ? character(p) : 0;

        pause_step();
        if (!n) {
            res->finish = SWL_FINISH_STOP;
            break;
        }
        if (!opt->on_token(opt->arg, (unsigned char)*p, p, n))
            res->finish = SWL_FINISH_CANCELLED;
        append(s, (unsigned char)*p);
        p += n;
        res->n_generated++;
        if (!res->finish && opt->n_max > 0 && res->n_generated == opt->n_max)
            res->finish = SWL_FINISH_LENGTH;
    }
    opt->on_token(opt->arg, -1, "", 0);
    res->prompt_seconds = res->generate_seconds = 1;
    return SWL_OK;
}

swl_status swl_verify(swl_model *m, const char *reference, double tolerance,
                      void (*on_row)(void *arg, const swl_verify_row *row), void *arg, swl_error *err)
{
    swl_status st = scripted("SCRIPT_VERIFY", err);
    swl_verify_row rows[] = {{"embed", 0, 1, true}, {"layer_00", tolerance * 2, 2, !st}};

    (void)m;
    (void)reference;
    on_row(arg, &rows[0]);
    on_row(arg, &rows[1]);
    return st;
}

void swl_repack_options_init(swl_repack_options *opt)
{
    memset(opt, 0, sizeof *opt);
}

swl_status swl_repack(const swl_repack_options *opt, swl_error *err)
{
    swl_status st = scripted("SCRIPT_REPACK", err);
    uint64_t n = (uint64_t)atol(script("SCRIPT_STEPS", "20"));

    for (uint64_t i = 1; !st && i <= n; i++) {
        pause_step();
        if (!opt->on_progress(opt->arg, i * 1000000000 / n, 1000000000)) {
            memset(err, 0, sizeof *err);
            st = err->code = SWL_E_CANCELLED;
            strcpy(err->message, "conversion stopped");
        }
    }
    return st;
}

swl_status swl_session_eval(swl_session *s, const int32_t *ids, int32_t n, swl_logits_wanted want, float *logits,
                            swl_error *err)
{
    (void)s, (void)ids, (void)n, (void)want, (void)logits;
    err->code = SWL_E_UNSUPPORTED;
    strcpy(err->message, "the script has no logits");
    return err->code;
}

void swl_session_cancel(swl_session *s, bool on)
{
    (void)s, (void)on; /* the callbacks stop the script soon enough */
}

swl_status swl_batch_eval(const swl_batch_entry *entries, int32_t n_entries, float *logits, swl_error *err)
{
    (void)n_entries;
    return swl_session_eval(entries[0].session, entries[0].ids, entries[0].n, entries[0].want, logits, err);
}

swl_status swl_session_mark(swl_session *s, swl_error *err)
{
    (void)s, (void)err;
    return SWL_OK;
}

int32_t swl_session_rewind(swl_session *s, int32_t n)
{
    s->n_tokens = n < s->n_tokens ? n : s->n_tokens;
    return s->n_tokens;
}

swl_status swl_session_fork(swl_session **out, const swl_session *s, swl_error *err)
{
    (void)s;
    return swl_session_create(out, NULL, err);
}

void swl_profile_start(swl_model *m, bool phases)
{
    (void)m, (void)phases;
}

void swl_profile_get(swl_model *m, swl_profile *out)
{
    (void)m;
    memset(out, 0, sizeof *out);
}

const char *swl_phase_name(swl_phase phase)
{
    (void)phase;
    return "";
}

swl_status swl_machine_measure(swl_model *m, swl_machine_rates *out, swl_error *err)
{
    (void)m, (void)err;
    memset(out, 0, sizeof *out);
    return SWL_OK;
}

swl_status swl_drive_measure(swl_model *m, int32_t n_in_flight, uint64_t n_bytes, double *bytes_per_second, swl_error *err)
{
    (void)m, (void)n_in_flight, (void)n_bytes, (void)err;
    *bytes_per_second = 0;
    return SWL_OK;
}

void swl_passes_set(swl_model *m, swl_passes passes)
{
    (void)m, (void)passes;
}

void swl_routes_set(swl_model *m, swl_routes routes, uint64_t seed)
{
    (void)m, (void)routes, (void)seed;
}

swl_status swl_routes_record(swl_model *m, const char *path, swl_error *err)
{
    (void)m, (void)path, (void)err;
    return SWL_OK;
}

swl_status swl_routes_replay(swl_model *m, const swl_route_log *log, swl_error *err)
{
    (void)m, (void)log, (void)err;
    return SWL_OK;
}
