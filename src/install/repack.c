/*
 * repack.c: swl_repack, from the options to the finished container: open the source, plan, take over what an earlier run
 * left, look for room, write into a stage, give it its name.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "install/conversion.h"
#include "install/gguf_pick.h"
#include "install/open_source.h"
#include "install/place.h"
#include "install/qpack_write.h"

#define ROOM_BYTES (UINT64_C(64) << 20) /* beside the big files: tokenizer, JSON, the file system's own */

void swl_repack_options_init(swl_repack_options *opt)
{
    *opt = (swl_repack_options){.bits = 4, .group = 64};
}

static swl_status check_options(const swl_repack_options *opt, swl_error *err)
{
    if (!opt->source || !*opt->source || !opt->output || !*opt->output)
        return swl_fail(err, SWL_E_ARG, "a conversion needs a source and an output");
    return SWL_OK;
}

/* True when `inner` is `outer` or lies in it; both as realpath gives them. */
static bool lies_in(const char *inner, const char *outer)
{
    size_t n = strlen(outer);

    return !strncmp(inner, outer, n) && (!inner[n] || inner[n] == '/');
}

/* Replacing a directory must not destroy what is being read. */
static swl_status check_apart(const char *source, const swl_repack_options *opt, swl_error *err)
{
    char *output = realpath(opt->output, NULL);
    bool bad = output && lies_in(source, output);

    free(output);
    if (bad)
        return swl_fail_at(err, SWL_E_ARG, opt->output, -1, "the source %s lies in the output %s", opt->source,
                           opt->output);
    return SWL_OK;
}

/* ---- what the source is called ------------------------------------------------------------------------------------
 */

/* ".../models--ORG--NAME/snapshots/COMMIT" of a hub cache gives ORG/NAME and COMMIT, and a file in it ORG/NAME:FILE. */
static bool name_hub(swl_qpack_source *s, const char *path)
{
    static const char dir[] = "/snapshots/", prefix[] = "/models--";
    const char *snapshots = strstr(path, dir), *models = snapshots, *dash, *commit, *file;
    size_t n_prefix = sizeof prefix - 1, n_commit;

    if (!snapshots)
        return false;
    while (models > path && *--models != '/')
        ;
    commit = snapshots + sizeof dir - 1;
    n_commit = strcspn(commit, "/");
    file = commit[n_commit] ? commit + n_commit + 1 : "";
    if (strncmp(models, prefix, n_prefix) || !n_commit || (*file && !swl_gguf_is_name(file)))
        return false;
    models += n_prefix;
    dash = strstr(models, "--");
    if (!dash || dash > snapshots)
        return false;
    s->id = swl_asprintf("%.*s/%.*s%s%s", (int)(dash - models), models, (int)(snapshots - dash - 2), dash + 2,
                         *file ? ":" : "", file);
    s->commit = swl_strndup(commit, n_commit);
    return true;
}

static swl_status name_source(swl_qpack_source *s, const char *path, swl_error *err)
{
    const char *last = strrchr(path, '/');
    json_t *utf8 = NULL;

    if (!name_hub(s, path))
        s->id = swl_strdup(last && last[1] ? last + 1 : path);
    if (s->id && !(utf8 = json_string(s->id))) { /* a name that JSON cannot hold */
        swl_free(s->id);
        s->id = swl_strdup("local");
    } else if (s->id)
        json_decref(utf8);
    return s->id ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the source's name");
}

/* ---- what an earlier run left ------------------------------------------------------------------------------------- */

/* The files that the tensors come from; NULL past the last. */
static const char *source_file(const swl_checkpoint *c, int32_t i)
{
    if (c->source_file)
        return c->source_file(c->source, i);
    return i < swl_st_n_files(c->dense) ? swl_st_path(c->dense, i) : NULL;
}

/* Lengths and times of the source's files: a conversion goes on only from the same bytes. */
static char *make_stamp(const swl_checkpoint *c)
{
    swl_digest d;
    char *text = swl_strdup("");

    for (int32_t i = 0; text && source_file(c, i); i++) {
        struct stat sb = {0};
        char *real = realpath(source_file(c, i), NULL), *longer;

        stat(source_file(c, i), &sb);
        longer = swl_asprintf("%s%s %" PRIu64 " %" PRId64 "\n", text, real ? real : source_file(c, i),
                              (uint64_t)sb.st_size, (int64_t)sb.st_mtime);
        free(real);
        swl_free(text);
        text = longer;
    }
    if (text && !swl_digest_memory(text, strlen(text), SWL_DIGEST_SHA256, &d, NULL))
        snprintf(text, strlen(text) + 1 > sizeof d.hex ? sizeof d.hex : strlen(text) + 1, "%s", d.hex);
    return text;
}

static bool describe(swl_state *s, const swl_qpack_source *source, const swl_checkpoint *c, const swl_plan *p,
                     bool exact_scales)
{
    const swl_conversion as_planned = {p->rule, exact_scales};
    json_t *options = swl_conversion_record(&as_planned, c->kind);

    s->stamp = make_stamp(c);
    return swl_state_describe(s, source->commit ? "hub" : "directory", source->id, source->commit, NULL, options) && s->stamp;
}

/* Takes over what a run of the same conversion left in the stage, or clears it. */
static swl_status take_over(swl_stage *stage, swl_state *now, swl_error *err)
{
    swl_state before;
    swl_status st = SWL_OK;

    if (swl_state_load(&before, stage->dir, NULL) == SWL_OK) {
        if (swl_state_same(&before, now)) {
            swl_state_deinit(now);
            *now = before;
            return SWL_OK;
        }
        swl_state_deinit(&before);
    }
    st = swl_stage_clear(stage, err);
    return st ? st : swl_state_save(now, stage->dir, err);
}

/* Worth keeping is what a full disk, a fault of the drive or a person interrupted; other faults would only come back. */
static void decide_to_keep(swl_stage *stage, const swl_state *s, swl_status st)
{
    bool any = false;

    for (int32_t i = 0; i < s->n_files; i++)
        any |= s->files[i].verified || s->files[i].note;
    stage->keep = any && (st == SWL_E_CANCELLED || st == SWL_E_IO || st == SWL_E_BUDGET);
}

/* ---- the conversion -----------------------------------------------------------------------------------------------
 */

static swl_status finish(swl_stage *stage, swl_state *s, swl_error *err)
{
    swl_status st;

    s->complete = true;
    st = swl_state_sweep(s, stage->dir, NULL, err);
    if (!st)
        st = swl_state_save(s, stage->dir, err);
    if (!st)
        st = swl_stage_check_target(stage, err);
    return st ? st : swl_stage_commit(stage, err);
}

/* What an earlier run wrote takes room already. */
static swl_status check_room(const swl_stage *stage, const swl_plan *plan, const swl_state *s, bool force, swl_error *err)
{
    uint64_t need = plan->bytes_total + plan->bytes_total / 100 + ROOM_BYTES, have = 0;

    for (int32_t i = 0; i < s->n_files; i++)
        have += swl_place_allocated(stage->dir, s->files[i].path);
    return force ? SWL_OK : swl_stage_need(stage, need > have ? need - have : 0, err);
}

static swl_status write_staged(const swl_repack_options *opt, swl_plan *plan, const swl_qpack_source *source,
                               swl_stage *stage, swl_state *state, swl_error *err)
{
    swl_qpack_writer w = {.plan = plan,
                          .dir = stage->dir,
                          .source = source,
                          .state = state,
                          .on_progress = opt->on_progress,
                          .arg = opt->arg,
                          .cv = {.st = plan->c->dense}};
    swl_status st = check_room(stage, plan, state, opt->force, err);

    if (!st)
        st = swl_threads_create(&w.cv.threads, swl_cpus_available(), err);
    if (!st)
        st = swl_qpack_write(&w, err);
    swl_threads_free(w.cv.threads);
    swl_qpack_writer_deinit(&w);
    return st ? st : finish(stage, state, err);
}

/* While another process has the output. */
typedef struct waiting {
    const swl_repack_options *opt;
    const swl_stage *stage;
} waiting;

static swl_status on_wait(void *arg, swl_error *err)
{
    const waiting *w = arg;
    char owner[SWL_OWNER_BYTES], text[SWL_OWNER_BYTES + 60];

    swl_stage_owner(w->stage, owner);
    if (!w->opt->on_wait)
        return swl_fail_at(err, SWL_E_FAIL, w->opt->output, -1, "%s is writing %s", owner, w->opt->output);
    snprintf(text, sizeof text, "%s is writing this; waiting for it", owner);
    return w->opt->on_wait(w->opt->arg, text) ? SWL_OK : swl_fail(err, SWL_E_CANCELLED, "stopped on request");
}

/* Whether the output is complete and of this very conversion. */
static bool is_done(const swl_repack_options *opt, const swl_state *now)
{
    swl_state found;
    bool same = false;

    if (opt->already && !opt->replace && swl_state_load(&found, opt->output, NULL) == SWL_OK) {
        same = found.complete && swl_state_same(&found, now);
        swl_state_deinit(&found);
    }
    return same;
}

static swl_status convert_in(const swl_repack_options *opt, swl_plan *plan, const swl_qpack_source *source,
                             swl_error *err)
{
    swl_stage stage;
    swl_state state = {0};
    waiting w = {opt, &stage};
    swl_status st = swl_stage_take(&stage, opt->output, opt->replace, on_wait, &w, err);

    if (st)
        return st;
    if (!describe(&state, source, plan->c, plan, opt->exact_scales))
        st = swl_fail(err, SWL_E_NOMEM, "out of memory for the source's name");
    if (!st && is_done(opt, &state)) {
        *opt->already = true;
        stage.keep = false;
        goto done;
    }
    if (!st)
        st = swl_stage_check_target(&stage, err);
    if (!st)
        st = take_over(&stage, &state, err);
    if (!st)
        st = write_staged(opt, plan, source, &stage, &state, err);
    if (st)
        decide_to_keep(&stage, &state, st);
done:
    swl_stage_close(&stage);
    swl_state_deinit(&state);
    return st;
}

static uint64_t file_size(const char *path)
{
    struct stat sb;

    return stat(path, &sb) ? 0 : (uint64_t)sb.st_size;
}

/* The directory that the output will lie in, for the question how much room there is. */
static uint64_t free_beside(const char *output)
{
    const char *slash = strrchr(output, '/');
    char *parent = !slash ? swl_strdup(".") : swl_strndup(output, slash == output ? 1 : (size_t)(slash - output));
    uint64_t n = parent ? swl_place_free(parent) : 0;

    swl_free(parent);
    return n;
}

static swl_status show_plan(const swl_repack_options *opt, const swl_plan *p, const swl_qpack_source *source, swl_error *err)
{
    static const char *const kinds[] = {"qpack", "mlx", "hf", "gguf"};
    swl_pull_plan plan = {.source = opt->source, .commit = source->commit, .kind = kinds[p->c->kind],
                          .target = opt->output, .local = true, .result_bytes = p->bytes_total,
                          .dense_bytes = p->dense.n_bytes,
                          .disk_needed = p->bytes_total + p->bytes_total / 100 + ROOM_BYTES};
    swl_pull_file *files;

    while (source_file(p->c, plan.n_files))
        plan.n_files++;
    files = swl_calloc((size_t)plan.n_files + 1, sizeof *files);
    if (!files)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for the list of files");
    for (int32_t i = 0; i < plan.n_files; i++) {
        files[i] = (swl_pull_file){.path = source_file(p->c, i), .digest = "", .action = SWL_PULL_CONVERTED};
        files[i].size = file_size(files[i].path);
        plan.bytes_total += files[i].size;
    }
    plan.files = files;
    plan.bytes_left = plan.bytes_total;
    plan.disk_free = free_beside(opt->output);
    opt->on_plan(opt->arg, &plan);
    swl_free(files);
    return SWL_OK;
}

static swl_status convert(const swl_repack_options *opt, const swl_checkpoint *c, const swl_qpack_source *source,
                          swl_error *err)
{
    swl_plan plan;
    swl_conversion asked;
    swl_status st = swl_conversion_from(&asked, opt->bits, opt->group, opt->recipe, opt->minmax, opt->exact_scales, err);

    if (!st)
        st = swl_plan_make(&plan, c, asked.rule, err);
    if (st)
        return st;
    if (opt->on_plan)
        st = show_plan(opt, &plan, source, err);
    if (!st && !opt->dry_run)
        st = convert_in(opt, &plan, source, err);
    swl_plan_deinit(&plan);
    return st;
}

static swl_status without_links(char **out, const char *path, swl_error *err)
{
    char *real = realpath(path, NULL);

    *out = real ? swl_strdup(real) : NULL;
    if (!real)
        return swl_fail_errno(err, path, "cannot open the source %s", path);
    free(real);
    return *out ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the source's name");
}

/* A directory without links on the way; of a file the one that it lies in, since a cache keeps files under other names. */
static swl_status real_place(char **out, const char *path, swl_error *err)
{
    const char *slash = strrchr(path, '/');
    char *dir, *real = NULL;
    swl_status st;

    if (swl_dir_exists(path) || !swl_file_exists(path))
        return without_links(out, path, err);
    dir = slash ? swl_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : swl_strdup(".");
    st = dir ? without_links(&real, dir, err) : swl_fail(err, SWL_E_NOMEM, "out of memory for the source's name");
    *out = real ? swl_asprintf("%s/%s", strcmp(real, "/") ? real : "", slash ? slash + 1 : path) : NULL;
    swl_free(real);
    swl_free(dir);
    return st || *out ? st : swl_fail(err, SWL_E_NOMEM, "out of memory for the source's name");
}

swl_status swl_repack(const swl_repack_options *opt, swl_error *err)
{
    swl_checkpoint *c = NULL;
    swl_qpack_source source = {0};
    swl_status st = check_options(opt, err);
    char *path = NULL;

    if (opt->already)
        *opt->already = false;

    if (!st)
        st = real_place(&path, opt->source, err);
    if (!st)
        st = check_apart(path, opt, err);
    if (!st)
        st = name_source(&source, path, err);
    if (!st)
        st = swl_open_source(&c, opt->source, opt->exact_scales, err);
    if (!st && c->kind == SWL_CHECKPOINT_QPACK)
        st = swl_fail_at(err, SWL_E_ARG, opt->source, -1, "%s is a container already; copy it instead", opt->source);
    if (!st)
        st = convert(opt, c, &source, err);
    swl_checkpoint_close(c);
    swl_free(source.id);
    swl_free(source.commit);
    swl_free(path);
    return st;
}
