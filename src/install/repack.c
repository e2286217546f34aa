/*
 * repack.c: swl_repack, from the options to the finished container: open the source, plan, look for room, write into a
 * stage, give it its name.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#if defined(_WIN32)
#include "base/os_win.h"
#endif
#include "base/status.h"
#include "install/open_source.h"
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
    if (opt->bits != 4 && opt->bits != 8)
        return swl_fail(err, SWL_E_ARG, "%d bits are not possible, expected 4 or 8", opt->bits);
    if (opt->group != 32 && opt->group != 64 && opt->group != 128)
        return swl_fail(err, SWL_E_ARG, "a group of %d is not possible, expected 32, 64 or 128", opt->group);
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

/* ".../models--ORG--NAME/snapshots/COMMIT" of a hub cache gives ORG/NAME and COMMIT. */
static bool name_hub(swl_qpack_source *s, const char *path)
{
    const char *commit = strrchr(path, '/'), *snapshots = commit, *models, *dash;
    static const char dir[] = "/snapshots", prefix[] = "/models--";
    size_t n_dir = sizeof dir - 1, n_prefix = sizeof prefix - 1;

    if (!commit || (size_t)(commit - path) < n_dir || strncmp(snapshots -= n_dir, dir, n_dir))
        return false;
    models = snapshots;
    while (models > path && *--models != '/')
        ;
    if (strncmp(models, prefix, n_prefix))
        return false;
    models += n_prefix;
    dash = strstr(models, "--");
    if (!dash || dash > snapshots)
        return false;
    s->id = swl_asprintf("%.*s/%.*s", (int)(dash - models), models, (int)(snapshots - dash - 2), dash + 2);
    s->commit = swl_strdup(commit + 1);
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

/* The first file of a stage: says whose it is and, in the finished container, how it was made. */
static swl_status make_mark(const swl_qpack_source *s, const swl_plan *p, char **mark, swl_error *err)
{
    json_t *root = json_pack("{s:i,s:s,s:s,s:o,s:{s:i,s:i}}", "version", 1, "command", "repack", "source", s->id,
                             "commit", s->commit ? json_string(s->commit) : json_null(), "options", "bits",
                             p->rule.bits, "group", p->rule.group);
    size_t flags = JSON_SORT_KEYS | JSON_INDENT(1), n = root ? json_dumpb(root, NULL, 0, flags) : 0;

    *mark = n ? swl_calloc(n + 2, 1) : NULL;
    if (*mark) {
        json_dumpb(root, *mark, n, flags);
        (*mark)[n] = '\n';
    }
    json_decref(root);
    return *mark ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory for the source's name");
}

/* ---- the conversion -----------------------------------------------------------------------------------------------
 */

static swl_status write_staged(const swl_repack_options *opt, swl_plan *plan, const swl_qpack_source *source,
                               swl_stage *stage, swl_error *err)
{
    swl_qpack_writer w = {.plan = plan,
                          .dir = stage->dir,
                          .source = source,
                          .on_progress = opt->on_progress,
                          .arg = opt->arg,
                          .cv = {.st = plan->c->dense}};
    swl_status st = swl_stage_need(stage, plan->bytes_total + plan->bytes_total / 100 + ROOM_BYTES, err);

    if (!st)
        st = swl_threads_create(&w.cv.threads, swl_cpus_available(), err);
    if (!st)
        st = swl_qpack_write(&w, err);
    swl_threads_free(w.cv.threads);
    swl_qpack_writer_deinit(&w);
    return st ? st : swl_stage_commit(stage, err);
}

static swl_status convert(const swl_repack_options *opt, const swl_checkpoint *c, const swl_qpack_source *source,
                          swl_error *err)
{
    swl_plan plan;
    swl_stage stage;
    char *mark = NULL;
    swl_status st = swl_plan_make(&plan, c, (swl_weight_rule){.bits = opt->bits, .group = opt->group}, err);

    if (st)
        return st;
    st = make_mark(source, &plan, &mark, err);
    if (!st)
        st = swl_stage_open(&stage, opt->output, opt->replace, mark, err);
    if (!st) {
        st = write_staged(opt, &plan, source, &stage, err);
        swl_stage_close(&stage);
    }
    swl_free(mark);
    swl_plan_deinit(&plan);
    return st;
}

swl_status swl_repack(const swl_repack_options *opt, swl_error *err)
{
    swl_checkpoint *c = NULL;
    swl_qpack_source source = {0};
    swl_status st = check_options(opt, err);
    char *path = NULL;

    if (!st && !(path = realpath(opt->source, NULL)))
        st = swl_fail_errno(err, opt->source, "cannot open the source %s", opt->source);
    if (!st)
        st = check_apart(path, opt, err);
    if (!st)
        st = name_source(&source, path, err);
    if (!st)
        st = swl_open_source(&c, opt->source, err);
    if (!st && c->kind == SWL_CHECKPOINT_QPACK)
        st = swl_fail_at(err, SWL_E_ARG, opt->source, -1, "%s is a container already; copy it instead", opt->source);
    if (!st)
        st = convert(opt, c, &source, err);
    swl_checkpoint_close(c);
    swl_free(source.id);
    swl_free(source.commit);
    free(path);
    return st;
}
