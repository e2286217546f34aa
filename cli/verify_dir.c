/* verify_dir.c: swiftlet verify DIR. */
#define _POSIX_C_SOURCE 200809L
#include "verify_dir.h"

#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "interrupt.h"
#include "output.h"
#include "pull.h"

#define BAD_MAX 10000

typedef struct verification {
    bool json, quiet;
    json_t *rows;
    char *bad[BAD_MAX]; /* paths, each once */
    int n_bad, n_good;
    volatile int stop;
    double shown_at;
    progress_pace pace;
} verification;

static void remember(verification *v, const char *path)
{
    if (v->n_bad && !strcmp(v->bad[v->n_bad - 1], path))
        return;
    for (int i = 0; i < v->n_bad; i++)
        if (!strcmp(v->bad[i], path))
            return;
    if (v->n_bad < BAD_MAX && (v->bad[v->n_bad] = strdup(path)))
        v->n_bad++;
}

static void on_row(void *arg, const swl_check_row *row)
{
    verification *v = arg;
    json_t *o;

    if (row->ok)
        v->n_good++;
    else
        remember(v, row->path);
    if (!v->json) {
        if (!row->ok)
            out_printf("BAD  %s: %s\n", row->path, row->text);
        return;
    }
    o = json_object();
    json_object_set_new(o, "path", out_string(row->path));
    json_object_set_new(o, "ok", json_boolean(row->ok));
    json_object_set_new(o, "by", json_string(row->by));
    if (row->slot >= 0)
        json_object_set_new(o, "slot", json_integer(row->slot));
    if (row->tensor)
        json_object_set_new(o, "tensor", out_string(row->tensor));
    if (!row->ok)
        json_object_set_new(o, "text", out_string(row->text));
    json_array_append_new(v->rows, o);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    verification *v = arg;
    double now = seconds_now();
    char a[16], b[16];

    if (interrupt_asked())
        v->stop = 1;
    if (!v->quiet && !stderr_is_terminal() && v->pace.begun && pace_due(&v->pace, 0, total ? (double)done / (double)total : 1))
        note("verify %s of %s", format_bytes(a, done), format_bytes(b, total));
    if (!v->pace.begun) /* a short check says nothing */
        v->pace = (progress_pace){.begun = true, .at = now};
    if (v->quiet || !stderr_is_terminal() || now - v->shown_at < 0.1)
        return;
    v->shown_at = now;
    progress_show("verify %s of %s", format_bytes(a, done), format_bytes(b, total));
}

static swl_status run_check(verification *v, const arguments *a, const char *dir, swl_error *err)
{
    swl_check_options o;
    pulling p = {0};
    swl_status st = SWL_OK;

    swl_check_options_init(&o);
    if (opt_text(a, OPT_SOURCE)) {
        st = pulling_init(&p, a, err);
        p.o.source = opt_text(a, OPT_SOURCE);
        p.o.on_plan = NULL;
        p.json = false; /* one object comes at the end */
        pulling_environment(&p);
        o.source = &p.o;
    }

    o.dir = dir;
    o.n_threads = opt_int(a, OPT_THREADS);
    o.write_hashes = opt_on(a, OPT_WRITE_HASHES);
    o.cancel = &v->stop;
    o.on_row = on_row;
    o.on_progress = on_progress;
    o.arg = v;
    interrupt_stoppable(true);
    if (!st)
        st = swl_check(&o, err);
    interrupt_stoppable(false);
    progress_clear();
    pulling_free(&p);
    return st;
}

/* True when the person agrees, by --yes or at a terminal. */
static bool agreed(const arguments *a, const verification *v)
{
    char answer[16] = "";

    if (opt_on(a, OPT_YES))
        return true;
    if (!stdin_is_terminal() || v->json)
        return false;
    fprintf(stderr, "fetch %d %s anew? [y/N] ", v->n_bad, v->n_bad == 1 ? "file" : "files");
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static swl_status repair(verification *v, const arguments *a, const char *dir, swl_error *err)
{
    pulling p;
    swl_status st;

    if (!agreed(a, v))
        return fail(err, SWL_E_CORRUPT, "%d %s bad; --repair --yes fetches without asking", v->n_bad,
                    v->n_bad == 1 ? "file is" : "files are");
    st = pulling_init(&p, a, err);
    p.o.target = dir;
    p.o.source = opt_text(a, OPT_SOURCE);
    p.json = false;
    if (!st) {
        pulling_environment(&p);
        interrupt_stoppable(true);
        st = swl_repair(&p.o, (const char *const *)v->bad, v->n_bad, err);
        interrupt_stoppable(false);
        progress_clear();
    }
    pulling_free(&p);
    return st;
}

/* All is well: a repair that was ended before its last step may have left its folder. */
static swl_status sweep_up(const char *dir, swl_error *err)
{
    swl_pull_options o;

    swl_pull_options_init(&o);
    o.target = dir;
    return swl_repair(&o, NULL, 0, err);
}

static void forget(verification *v)
{
    while (v->n_bad)
        free(v->bad[--v->n_bad]);
    v->n_good = 0;
    json_array_clear(v->rows);
}

static swl_status finish(verification *v, const char *dir, swl_status st, swl_error *err)
{
    json_t *o;

    if (!v->json) {
        if (!st && !v->quiet && v->n_good)
            note("%s: %d files are as they should be", dir, v->n_good);
        json_decref(v->rows);
        return st;
    }
    if (st && st != SWL_E_CORRUPT) {
        json_decref(v->rows);
        return st;
    }
    o = out_object();
    json_object_set_new(o, "ok", json_boolean(st == SWL_OK));
    json_object_set_new(o, "path", out_string(dir));
    json_object_set_new(o, "files_good", json_integer(v->n_good));
    json_object_set_new(o, "files_bad", json_integer(v->n_bad));
    json_object_set_new(o, "rows", v->rows);
    out_json(o);
    err->message[0] = 0;
    return st;
}

swl_status verify_dir(const arguments *a, const char *dir, swl_error *err)
{
    verification *v = calloc(1, sizeof *v);
    swl_status st;

    if (!v)
        return fail(err, SWL_E_NOMEM, "out of memory");
    v->json = opt_on(a, OPT_JSON);
    v->quiet = opt_on(a, OPT_QUIET) || v->json;
    v->rows = json_array();
    st = run_check(v, a, dir, err);
    if (opt_on(a, OPT_WRITE_HASHES)) {
        if (!st && !v->quiet)
            note("wrote %s/hashes.json", dir);
    } else if (st == SWL_E_CORRUPT && v->n_bad && opt_on(a, OPT_REPAIR)) {
        st = repair(v, a, dir, err);
        if (!st) {
            forget(v);
            st = run_check(v, a, dir, err);
        }
    } else if (!st && opt_on(a, OPT_REPAIR)) {
        st = sweep_up(dir, err);
    } else if (st == SWL_E_CORRUPT && v->n_bad) {
        st = fail(err, SWL_E_CORRUPT, "%s: %d of %d files %s bad; --repair fetches anew what is bad", dir, v->n_bad,
                  v->n_bad + v->n_good, v->n_bad == 1 ? "is" : "are");
    }
    st = finish(v, dir, st, err);
    while (v->n_bad)
        free(v->bad[--v->n_bad]);
    free(v);
    return st;
}
