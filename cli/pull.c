/* pull.c: swiftlet pull: options and environment for the library, progress and results for people and programs. */
#define _POSIX_C_SOURCE 200809L
#include "pull.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "format.h"
#include "interrupt.h"
#include "models.h"
#include "output.h"

#define TOKEN_BYTES_MAX 4096

/* ---- environment ----------------------------------------------------------------------------------------------------- */

static const char *first_set(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);

        if (text && *text)
            return text;
    }
    return NULL;
}

static bool truthy(const char *name)
{
    const char *text = getenv(name);

    return text && (!strcmp(text, "1") || !strcasecmp(text, "on") || !strcasecmp(text, "yes") || !strcasecmp(text, "true"));
}

/* One line of a file, without blanks around it; NULL when there is none. The caller frees. */
static char *read_token(const char *path)
{
    FILE *f = fopen(path, "r");
    char text[TOKEN_BYTES_MAX + 1];
    size_t n = f ? fread(text, 1, TOKEN_BYTES_MAX, f) : 0, begin = 0;

    if (f)
        fclose(f);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    while (begin < n && isspace((unsigned char)text[begin]))
        begin++;
    return n > begin ? strndup(text + begin, n - begin) : NULL;
}

/* The hub's own folder: HF_HOME, else huggingface below the cache folder. */
static bool hub_home(char dst[PLACE_PATH_MAX], const char *name)
{
    const char *own = getenv("HF_HOME"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;

    if (own && *own)
        n = snprintf(dst, PLACE_PATH_MAX, "%s/%s", own, name);
    else if (cache && *cache == '/')
        n = snprintf(dst, PLACE_PATH_MAX, "%s/huggingface/%s", cache, name);
    else
        n = snprintf(dst, PLACE_PATH_MAX, "%s/.cache/huggingface/%s", home ? home : ".", name);
    return n < PLACE_PATH_MAX;
}

static swl_status find_token(pulling *p, const arguments *a, swl_error *err)
{
    const char *file = opt_text(a, OPT_TOKEN_FILE), *text = getenv("HF_TOKEN"), *named = getenv("HF_TOKEN_PATH");
    char path[PLACE_PATH_MAX];

    if (file) {
        p->token = read_token(file);
        return p->token ? SWL_OK : fail(err, SWL_E_NOT_FOUND, "there is no token in %s", file);
    }
    if (text && *text)
        p->token = strdup(text);
    else if (named && *named)
        p->token = read_token(named);
    else if (hub_home(path, "token"))
        p->token = read_token(path);
    return SWL_OK;
}

static void add_root(pulling *p, const char *text)
{
    int32_t n = p->o.n_cache_roots;

    if (!text || !*text || n == 8 || strlen(text) >= PLACE_PATH_MAX)
        return;
    strcpy(p->roots[n], text);
    p->cache_roots[n] = p->roots[n];
    p->o.n_cache_roots++;
}

static void find_caches(pulling *p)
{
    char path[PLACE_PATH_MAX];

    add_root(p, getenv("HF_HUB_CACHE"));
    add_root(p, getenv("HUGGINGFACE_HUB_CACHE"));
    if (hub_home(path, "hub"))
        add_root(p, path);
    p->o.cache_roots = p->cache_roots;
}

static void find_proxy(swl_pull_options *o, const char *source)
{
    static const char *const secure[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", NULL};
    static const char *const plain[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    static const char *const none[] = {"no_proxy", "NO_PROXY", NULL}, *const ca[] = {"SSL_CERT_FILE", "CURL_CA_BUNDLE", NULL};
    const char *asked = source && strstr(source, "://") && strncmp(source, "hf:", 3) ? source : o->endpoint;

    o->proxy = first_set(asked && !strncmp(asked, "http:", 5) ? plain : secure);
    o->no_proxy = first_set(none);
    o->ca_file = first_set(ca);
}

/* ---- progress --------------------------------------------------------------------------------------------------------- */

static const char *const kind_names[] = {"progress", "stall", "retry", "note", "waiting"};

static void event_json(const swl_pull_event *e)
{
    json_t *o = out_object();

    json_object_set_new(o, "event", json_string(kind_names[e->kind]));
    json_object_set_new(o, "phase", json_string(swl_pull_phase_name(e->phase)));
    json_object_set_new(o, "file", e->file ? out_string(e->file) : json_null());
    json_object_set_new(o, "done", json_integer((json_int_t)e->done));
    json_object_set_new(o, "total", json_integer((json_int_t)e->total));
    if (e->text)
        json_object_set_new(o, "text", out_string(e->text));
    out_json(o);
}

/* Bytes a second over the last ten seconds or so. */
static void measure(pulling *p, const swl_pull_event *e, double now)
{
    double seconds = now - p->rate_at;

    if ((int)e->phase != p->noted_phase || e->done < p->rate_done) {
        p->rate_at = now;
        p->rate_done = e->done;
        p->rate = 0;
    } else if (seconds >= 0.5) {
        double last = (double)(e->done - p->rate_done) / seconds, weight = seconds < 5 ? 0.1 * seconds / 0.5 : 1;

        p->rate = p->rate > 0 ? p->rate + (last - p->rate) * weight : last;
        p->rate_at = now;
        p->rate_done = e->done;
    }
}

static void time_left(char dst[32], double seconds)
{
    long s = seconds < 360000 ? (long)(seconds + 0.5) : 0;

    if (!s)
        dst[0] = 0;
    else if (s < 60)
        snprintf(dst, 32, "  ETA %lds", s);
    else if (s < 3600)
        snprintf(dst, 32, "  ETA %ldm%02lds", s / 60, s % 60);
    else
        snprintf(dst, 32, "  ETA %ldh%02ldm", s / 3600, s / 60 % 60);
}

static void show(pulling *p, const swl_pull_event *e, double now)
{
    int percent = e->total ? (int)(100 * (double)e->done / (double)e->total) : 0;
    char done[16], total[16], eta[32] = "";

    if (percent == 100 && e->phase != SWL_PULL_FINISH) /* complete is what has its name */
        percent = 99;
    if (p->rate > 0)
        time_left(eta, (double)(e->total - e->done) / p->rate);
    format_bytes(done, e->done);
    format_bytes(total, e->total);
    if (stderr_is_terminal()) {
        if (now - p->shown_at < 0.1)
            return;
        p->shown_at = now;
        progress_show("%-7s %s/%s  %d%%  %.0f MB/s%s  %.30s", swl_pull_phase_name(e->phase), done, total, percent,
                      1e-6 * p->rate, eta, e->file ? e->file : "");
    } else if (e->total && pace_due(&p->pace, (int)e->phase, (double)e->done / (double)e->total)) {
        note("%s %s/%s  %d%%%s", swl_pull_phase_name(e->phase), done, total, percent, eta);
    }
    p->noted_phase = (int)e->phase;
}

static void on_event(void *arg, const swl_pull_event *e)
{
    pulling *p = arg;
    double now = seconds_now();

    if (interrupt_asked())
        p->stop = 1;
    if (p->json) {
        if (e->kind != SWL_PULL_PROGRESS || now - p->shown_at >= 0.2 || (int)e->phase != p->noted_phase)
            event_json(e);
        if (e->kind == SWL_PULL_PROGRESS) {
            p->shown_at = now;
            p->noted_phase = (int)e->phase;
        }
        return;
    }
    if (e->kind == SWL_PULL_WAITING && now - p->noted_at < 30)
        return;
    if (e->kind != SWL_PULL_PROGRESS) {
        if (!p->quiet)
            note("%s%s%s", e->file ? e->file : "", e->file ? ": " : "", e->text);
        p->noted_at = e->kind == SWL_PULL_WAITING ? now : p->noted_at;
        return;
    }
    measure(p, e, now);
    if (!p->quiet && e->phase != SWL_PULL_PLAN && e->phase != SWL_PULL_FINISH)
        show(p, e, now);
}

/* ---- the plan --------------------------------------------------------------------------------------------------------- */

static const char *const action_names[] = {"have", "resume", "fetch", "convert"};

/* What is here is not fetched. */
static const char *action_name(const swl_pull_plan *plan, int32_t i)
{
    swl_pull_action action = plan->files[i].action;

    return plan->local && action == SWL_PULL_FRESH ? "copy" : action_names[action];
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

void pulling_plan_json(const swl_pull_plan *plan)
{
    json_t *o = out_object(), *files = json_array();

    json_object_set_new(o, "event", json_string("plan"));
    json_object_set_new(o, "source", out_string(plan->source));
    json_object_set_new(o, "commit", plan->commit ? json_string(plan->commit) : json_null());
    json_object_set_new(o, "kind", json_string(plan->kind));
    json_object_set_new(o, "local", json_boolean(plan->local));
    json_object_set_new(o, "target", out_string(plan->target));
    json_object_set_new(o, "bytes_total", number(plan->bytes_total));
    json_object_set_new(o, "bytes_left", number(plan->bytes_left));
    json_object_set_new(o, "result_bytes", number(plan->result_bytes));
    json_object_set_new(o, "disk_needed", number(plan->disk_needed));
    json_object_set_new(o, "disk_free", number(plan->disk_free));
    json_object_set_new(o, "dense_bytes", number(plan->dense_bytes));
    json_object_set_new(o, "tensors_left_out", json_integer(plan->n_left_out));
    for (int32_t i = 0; i < plan->n_files; i++) {
        const swl_pull_file *f = &plan->files[i];
        json_t *row = json_object();

        json_object_set_new(row, "path", out_string(f->path));
        json_object_set_new(row, "size", number(f->size));
        json_object_set_new(row, "have", number(f->have));
        json_object_set_new(row, "digest", f->digest[0] ? json_string(f->digest) : json_null());
        json_object_set_new(row, "action", json_string(action_name(plan, i)));
        json_array_append_new(files, row);
    }
    json_object_set_new(o, "files", files);
    out_json(o);
}

static void plan_sums(const swl_pull_plan *plan)
{
    char a[16], b[16], c[16], d[16];

    format_bytes(a, plan->bytes_left);
    format_bytes(b, plan->bytes_total);
    if (plan->local)
        out_printf("%s to read", b);
    else
        out_printf("%s to receive of %s", a, b);
    out_printf("; the container has %s; %s of disk needed with a margin, %s free\n", format_bytes(a, plan->result_bytes),
               format_bytes(c, plan->disk_needed), format_bytes(d, plan->disk_free));
}

void pulling_plan_text(const swl_pull_plan *plan)
{
    char a[16];

    for (int32_t i = 0; i < plan->n_files; i++)
        out_printf("%-8s %10s  %s\n", action_name(plan, i), format_bytes(a, plan->files[i].size),
                   plan->files[i].path);
    out_printf("%s %s%s%s -> %s\n", plan->kind, plan->source, plan->commit ? " at " : "", plan->commit ? plan->commit : "",
               plan->target);
    plan_sums(plan);
    if (plan->n_left_out)
        out_printf("%d tensors of the source have no place in a container (vision)\n", (int)plan->n_left_out);
}

/* Whether the machine can run it: the core in memory and a few experts beside it. A line, not a refusal. */
static void note_memory(const swl_pull_plan *plan)
{
    swl_machine_info machine;
    char need[16], have[16];

    if (plan->dense_bytes && !swl_machine_look(NULL, false, &machine, NULL) && machine.memory_total &&
        (double)machine.memory_total < 1.25 * (double)plan->dense_bytes)
        note("this model keeps %s in memory; the machine has %s", format_bytes(need, plan->dense_bytes),
             format_bytes(have, machine.memory_total));
}

static void on_plan(void *arg, const swl_pull_plan *plan)
{
    pulling *p = arg;
    char left[16], total[16];

    p->local = plan->local;
    if (p->json)
        pulling_plan_json(plan);
    else if (p->o.dry_run)
        pulling_plan_text(plan);
    else if (!p->quiet) {
        note("%s%s%.12s: %s of %s to %s", plan->source, plan->commit ? " at " : "", plan->commit ? plan->commit : "",
             format_bytes(left, plan->bytes_left), format_bytes(total, plan->bytes_total), plan->local ? "read" : "receive");
        note_memory(plan);
    }
}

/* ---- options ---------------------------------------------------------------------------------------------------------- */

static void copy_lists(swl_pull_options *o, const arguments *a)
{
    o->include = a->values[OPT_INCLUDE].list;
    o->n_include = a->values[OPT_INCLUDE].n_list;
    o->exclude = a->values[OPT_EXCLUDE].list;
    o->n_exclude = a->values[OPT_EXCLUDE].n_list;
    o->mirrors = a->values[OPT_MIRROR].list;
    o->n_mirrors = a->values[OPT_MIRROR].n_list;
}

static void copy_switches(swl_pull_options *o, const arguments *a)
{
    o->sha256 = opt_text(a, OPT_SHA256);
    o->require_hashes = opt_on(a, OPT_REQUIRE_HASHES);
    o->replace = opt_on(a, OPT_REPLACE);
    o->adopt = opt_on(a, OPT_ADOPT);
    o->force = opt_on(a, OPT_FORCE);
    o->dry_run = opt_on(a, OPT_DRY_RUN);
    o->no_wait = a->values[OPT_WAIT].set && !opt_on(a, OPT_WAIT);
    o->offline = opt_on(a, OPT_OFFLINE) ||
                 (a->values[OPT_OFFLINE].origin == FROM_BUILTIN && truthy("HF_HUB_OFFLINE"));
}

static void copy_conversion(swl_pull_options *o, const arguments *a)
{
    if (a->values[OPT_BITS].set)
        o->bits = opt_int(a, OPT_BITS);
    if (a->values[OPT_GROUP].set)
        o->group = opt_int(a, OPT_GROUP);
    o->recipe = opt_text(a, OPT_RECIPE);
    o->minmax = a->values[OPT_QUANTISER].set && !strcmp(opt_text(a, OPT_QUANTISER), "minmax");
    o->exact_scales = a->values[OPT_SCALES].set && !strcmp(opt_text(a, OPT_SCALES), "f32");
    o->keep_source = opt_on(a, OPT_KEEP_SOURCE);
}

static void copy_numbers(swl_pull_options *o, const arguments *a)
{
    const char *limit = getenv("HF_HUB_DOWNLOAD_TIMEOUT");

    if (a->values[OPT_STREAMS].set)
        o->n_streams = opt_int(a, OPT_STREAMS);
    if (a->values[OPT_PART_SIZE].set)
        o->part_bytes = a->values[OPT_PART_SIZE].size;
    if (a->values[OPT_STALL].set)
        o->stall_seconds = a->values[OPT_STALL].real;
    if (a->values[OPT_RETRY_WAIT].set)
        o->retry_seconds = a->values[OPT_RETRY_WAIT].real;
    if (limit && atof(limit) > 0)
        o->connect_seconds = atof(limit);
}

swl_status pulling_init(pulling *p, const arguments *a, swl_error *err)
{
    static const char *const endpoint[] = {"HF_ENDPOINT", NULL};

    memset(p, 0, sizeof *p);
    p->json = opt_on(a, OPT_JSON);
    p->quiet = opt_on(a, OPT_QUIET) || p->json;
    p->noted_phase = -1;
    swl_pull_options_init(&p->o);
    copy_lists(&p->o, a);
    copy_switches(&p->o, a);
    copy_numbers(&p->o, a);
    copy_conversion(&p->o, a);
    p->o.endpoint = opt_text(a, OPT_ENDPOINT) ? opt_text(a, OPT_ENDPOINT) : first_set(endpoint);
    p->o.cancel = &p->stop;
    p->o.on_event = on_event;
    p->o.on_plan = on_plan;
    p->o.arg = p;
    if (a->values[OPT_REVISION].set && a->values[OPT_REVISION].origin != FROM_BUILTIN)
        p->o.revision = opt_text(a, OPT_REVISION);
    find_caches(p);
    if (!p->o.offline && find_token(p, a, err))
        return err->code;
    p->o.token = p->token;
    return SWL_OK;
}

void pulling_environment(pulling *p)
{
    find_proxy(&p->o, p->o.source);
}

void pulling_free(pulling *p)
{
    free(p->token);
    free(p->revision);
}

/* A stretch of what was typed. */
typedef struct words {
    const char *at;
    int n;
} words;

static bool ends_in(words w, const char *tail)
{
    size_t k = strlen(tail);

    return (size_t)w.n > k && !strncasecmp(w.at + w.n - k, tail, k);
}

/* What stands behind the last slash. */
static words last_of(words w)
{
    int i = w.n;

    while (i > 0 && w.at[i - 1] != '/')
        i--;
    return (words){w.at + i, w.n - i};
}

/* "Model-Q4_K_M" of "q4/Model-Q4_K_M-00001-of-00002.gguf". */
static words stem_of(words file)
{
    static const char parts[] = "-00001-of-00002";
    words w = last_of(file);
    int no, count, n = 0, k = (int)sizeof parts - 1;

    w.n -= 5;
    if (w.n > k && sscanf(w.at + w.n - k, "-%5d-of-%5d%n", &no, &count, &n) == 2 && n == k)
        w.n -= k;
    return w;
}

/* A source taken apart as far as its name goes. */
typedef struct parts {
    words org, name; /* org: of a repository */
    words file;      /* behind the colon of a repository, or a GGUF file elsewhere */
} parts;

static parts repository_parts(const char *text)
{
    size_t n = strcspn(text, "@:"), colon = strcspn(text, ":");
    const char *tree = strstr(text, "/tree/"), *slash = strchr(text, '/');
    parts p = {{text, slash ? (int)(slash - text) : 0}, {slash ? slash + 1 : text, 0}, {NULL, 0}};

    if (tree && (size_t)(tree - text) < n)
        n = (size_t)(tree - text);
    while (n && text[n - 1] == '/')
        n--;
    p.name.n = (int)(text + n - p.name.at);
    if (text[colon])
        p.file = (words){text + colon + 1, (int)strlen(text + colon + 1)};
    return p;
}

/* A page of the hub: of a repository, or of a file in it. */
static parts page_parts(const char *page)
{
    words all = {page, (int)strcspn(page, "?")};
    const char *slash = strchr(page, '/'), *more = slash ? strchr(slash + 1, '/') : NULL;
    parts p = repository_parts(page);

    if (more && ends_in(all, ".gguf")) {
        p.name.n = (int)(more - p.name.at);
        p.file = all;
    }
    return p;
}

static parts place_parts(const char *text)
{
    words w = {text, (int)strcspn(text, "?")};
    parts p = {{NULL, 0}, {NULL, 0}, {NULL, 0}};

    while (w.n && w.at[w.n - 1] == '/')
        w.n--;
    p.name = last_of(w);
    if (ends_in(w, ".gguf"))
        p.file = w;
    return p;
}

static parts parts_of(const char *source)
{
    static const char hub[] = "https://huggingface.co/";
    const char *name = !strncmp(source, "hf://", 5) ? source + 5 : source;

    if (!strncmp(name, hub, sizeof hub - 1))
        return page_parts(name + sizeof hub - 1);
    if (!strstr(name, "://") && *name != '/' && *name != '.' && strchr(name, '/') && access(name, F_OK))
        return repository_parts(name);
    return place_parts(name);
}

swl_status pulling_default_target(char dst[PLACE_PATH_MAX], const char *source, swl_error *err)
{
    parts p = parts_of(source);
    words tag = {"", 0};
    char folder[512];
    int n;

    if (p.file.n && ends_in(p.file, ".gguf")) {
        p.name = stem_of(p.file);
    } else if (p.file.n) { /* a quantisation */
        tag = p.file;
        p.name.n -= ends_in(p.name, "-gguf") ? 5 : 0;
    }
    if (p.name.n <= 0 || p.org.n + p.name.n + tag.n > 400)
        return fail(err, SWL_E_ARG, "%s gives no name for a folder; choose one with --local-dir", source);
    n = snprintf(folder, sizeof folder, "%.*s%s%.*s%s%.*s", p.org.n, p.org.at, p.org.n ? "--" : "", p.name.n, p.name.at,
                 tag.n ? "-" : "", tag.n, tag.at);
    for (int i = 0; i < n; i++)
        folder[i] = folder[i] == '/' ? '-' : folder[i];
    if (!ends_in((words){folder, n}, ".qpack"))
        strcat(folder, ".qpack");
    return place_path(dst, PLACE_MODELS, folder, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------------- */

static void done_json(const pulling *p, const swl_pull_result *r)
{
    json_t *o = out_object();

    json_object_set_new(o, "event", json_string("done"));
    json_object_set_new(o, "path", out_string(p->o.target));
    json_object_set_new(o, "already", json_boolean(r->already));
    json_object_set_new(o, "way", r->way[0] ? json_string(r->way) : json_null());
    json_object_set_new(o, "commit", r->commit[0] ? json_string(r->commit) : json_null());
    json_object_set_new(o, "verified_by", r->verified_by[0] ? json_string(r->verified_by) : json_null());
    json_object_set_new(o, "bytes_received", number(r->bytes_received));
    json_object_set_new(o, "result_bytes", number(r->result_bytes));
    json_object_set_new(o, "seconds", json_real(r->seconds));
    out_json(o);
}

static void done_text(const pulling *p, const swl_pull_result *r)
{
    char size[16];
    bool local = !strcmp(r->verified_by, "local") || !r->verified_by[0];
    char *name = p->quiet ? NULL : model_short_name(p->o.target);

    if (p->quiet)
        ;
    else if (r->already)
        note("already installed, nothing to do");
    else if (p->local)
        note("%s in %.1f s, %s on disk", r->way, r->seconds, format_bytes(size, r->result_bytes));
    else
        note("%s received and %s in %.1f s, checked by %s", format_bytes(size, r->bytes_received), r->way, r->seconds,
             local ? "lengths" : r->verified_by);
    out_printf("%s\n", p->o.target);
    if (name)
        note("next: swiftlet chat %s", name);
    free(name);
}

swl_status pulling_run(pulling *p, const arguments *a, swl_error *err)
{
    swl_pull_result r;
    swl_status st;

    (void)a;
    pulling_environment(p);
    interrupt_stoppable(true);
    st = swl_pull(&p->o, &r, err);
    interrupt_stoppable(false);
    progress_clear();
    if (st == SWL_E_CANCELLED && !p->quiet)
        note("what came so far is kept; run it again to resume");
    if (st || p->o.dry_run)
        return st;
    if (p->json)
        done_json(p, &r);
    else
        done_text(p, &r);
    return SWL_OK;
}

swl_status run_pull(const arguments *a, swl_error *err)
{
    pulling p;
    swl_status st = pulling_init(&p, a, err);

    p.o.source = a->operands[0];
    if (!st && opt_text(a, OPT_LOCAL_DIR))
        p.o.target = opt_text(a, OPT_LOCAL_DIR);
    else if (!st) {
        st = pulling_default_target(p.target, p.o.source, err);
        if (!st)
            place_make_parents(p.target);
        p.o.target = p.target;
    }
    if (!st)
        st = pulling_run(&p, a, err);
    pulling_free(&p);
    return st;
}
