/* repack.c: swiftlet repack: a checkpoint becomes a .qpack container. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "format.h"
#include "interrupt.h"
#include "output.h"
#include "pull.h"

typedef struct progress {
    bool quiet;
    bool json, dry_run;
    double begin, shown_at, waited_at;
    progress_pace pace; /* away from a terminal */
} progress;

static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    progress *p = arg;
    double now = seconds_now(), fraction = total ? (double)done / (double)total : 1;
    char a[16], b[16];

    if (now - p->begin < 0.5) /* what is soon done needs no progress */
        return !interrupt_asked();
    if (!p->quiet && stderr_is_terminal() && (now - p->shown_at > 0.1 || done == total)) {
        p->shown_at = now;
        progress_show("%s of %s  %d%%  %.0f MB/s", format_bytes(a, done), format_bytes(b, total), (int)(100 * fraction),
                      1e-6 * (double)done / (now - p->begin + 1e-9));
    } else if (!p->quiet && !stderr_is_terminal() && pace_due(&p->pace, 0, fraction)) {
        note("%s of %s  %d%%", format_bytes(a, done), format_bytes(b, total), (int)(100 * fraction));
    }
    return !interrupt_asked();
}

static bool on_wait(void *arg, const char *text)
{
    progress *p = arg;
    double now = seconds_now();

    if (!p->quiet && (!p->waited_at || now - p->waited_at >= 30)) {
        note("%s", text);
        p->waited_at = now;
    }
    return !interrupt_asked();
}

static void on_plan(void *arg, const swl_pull_plan *plan)
{
    const progress *p = arg;

    if (p->dry_run && p->json)
        pulling_plan_json(plan);
    else if (p->dry_run)
        pulling_plan_text(plan);
}

static swl_status options_from(swl_repack_options *o, const arguments *a, swl_error *err)
{
    swl_repack_options_init(o);
    o->source = a->n_operands ? a->operands[0] : opt_text(a, OPT_SOURCE);
    o->output = opt_text(a, OPT_OUTPUT);
    o->bits = opt_int(a, OPT_BITS);
    o->group = opt_int(a, OPT_GROUP);
    o->recipe = opt_text(a, OPT_RECIPE);
    o->minmax = !strcmp(opt_text(a, OPT_QUANTISER), "minmax");
    o->exact_scales = !strcmp(opt_text(a, OPT_SCALES), "f32");
    o->replace = opt_on(a, OPT_REPLACE);
    o->force = opt_on(a, OPT_FORCE);
    o->dry_run = opt_on(a, OPT_DRY_RUN);
    o->on_progress = on_progress;
    o->on_plan = on_plan;
    o->on_wait = opt_on(a, OPT_WAIT) ? on_wait : NULL;
    if (a->n_operands && a->values[OPT_SOURCE].set)
        return fail(err, SWL_E_ARG, "the source is given twice: %s and --source %s", a->operands[0],
                    opt_text(a, OPT_SOURCE));
    if (!o->source)
        return fail(err, SWL_E_ARG, "no source: give --source PATH, a checkpoint's directory or a GGUF file");
    if (!o->output)
        return fail(err, SWL_E_ARG, "no output: give --output NAME.qpack");
    if (o->bits != 4 && o->bits != 8)
        return fail(err, SWL_E_ARG, "--bits is %d, expected 4 or 8", o->bits);
    if (o->group != 32 && o->group != 64 && o->group != 128)
        return fail(err, SWL_E_ARG, "--group is %d, expected 32, 64 or 128", o->group);
    return SWL_OK;
}

/* Bits and groups that were asked for, of a source that has its own. */
static void note_quantised(const arguments *a, const char *source)
{
    bool asked = a->values[OPT_BITS].origin > FROM_BUILTIN || a->values[OPT_GROUP].origin > FROM_BUILTIN;
    char path[4096];
    json_t *config;

    if (!asked || opt_on(a, OPT_QUIET) || snprintf(path, sizeof path, "%s/config.json", source) >= (int)sizeof path)
        return;
    config = json_load_file(path, 0, NULL);
    if (json_is_object(json_object_get(config, "quantization")))
        note("--bits and --group have no effect: %s is quantised already, and its weights are kept as they are", source);
    json_decref(config);
}

static void done(const arguments *a, const swl_repack_options *o, double seconds)
{
    json_t *root;

    if (!opt_on(a, OPT_JSON)) {
        if (!opt_on(a, OPT_QUIET))
            note("wrote %s in %.1f s", o->output, seconds);
        return;
    }
    root = out_object();
    json_object_set_new(root, "output", out_string(o->output));
    json_object_set_new(root, "seconds", json_real(seconds));
    out_json(root);
}

/* A checkpoint that is elsewhere: the same as pull, into --output. */
static swl_status from_afar(const arguments *a, const char *source, swl_error *err)
{
    pulling p;
    swl_status st = pulling_init(&p, a, err);

    p.o.source = source;
    p.o.target = opt_text(a, OPT_OUTPUT);
    if (!st && !p.o.target)
        st = fail(err, SWL_E_ARG, "no output: give --output NAME.qpack");
    if (!st && (a->n_operands || opt_text(a, OPT_SOURCE) || (opt_text(a, OPT_FROM_HF) && opt_text(a, OPT_FROM_URL))))
        st = fail(err, SWL_E_ARG, "more than one source is given");
    if (!st)
        st = pulling_run(&p, a, err);
    pulling_free(&p);
    return st;
}

swl_status run_repack(const arguments *a, swl_error *err)
{
    progress p = {.quiet = opt_on(a, OPT_QUIET) || opt_on(a, OPT_JSON), .json = opt_on(a, OPT_JSON),
                  .dry_run = opt_on(a, OPT_DRY_RUN), .begin = seconds_now()};
    bool already = false;
    char repository[256];
    swl_repack_options o;
    swl_status st;

    if (opt_text(a, OPT_FROM_HF) && snprintf(repository, sizeof repository, "hf://%s", opt_text(a, OPT_FROM_HF)) > 0)
        return from_afar(a, repository, err);
    if (opt_text(a, OPT_FROM_URL))
        return from_afar(a, opt_text(a, OPT_FROM_URL), err);
    st = options_from(&o, a, err);
    if (st)
        return st;
    o.arg = &p;
    o.already = &already;
    note_quantised(a, o.source);
    interrupt_stoppable(true);
    st = swl_repack(&o, err);
    interrupt_stoppable(false);
    progress_clear();
    if (!st && already && !p.waited_at)
        return fail(err, SWL_E_ARG, "%s exists already, as this very conversion; it is kept unless replacing it is asked for "
                    "(--replace)", o.output);
    if (!st && already && !p.quiet)
        note("the other process has made it");
    if (!st && !p.dry_run)
        done(a, &o, seconds_now() - p.begin);
    return st;
}
