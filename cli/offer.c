/* offer.c: a model ORG/NAME that is not installed: at a terminal, a question with its size, and the download. */
#include "offer.h"

#include <string.h>

#include "engine.h"
#include "format.h"
#include "interrupt.h"
#include "known.h"
#include "models.h"
#include "output.h"
#include "pull.h"

static swl_pull_plan wanted; /* figures of the plan; its pointers are gone */

static void keep_plan(void *arg, const swl_pull_plan *plan)
{
    (void)arg;
    wanted = *plan;
}

/* ORG/NAME, and neither a path nor a URL. */
static bool is_hub_name(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash && slash > name && slash[1] && !strchr(slash + 1, '/') && name[0] != '.' && name[0] != '~' && !strchr(name, ':');
}

static bool agreed(const char *name, const char *target)
{
    char size[16], free_space[16], answer[16];

    fprintf(stderr, "%s is not installed. Download %s to %s (%s free)? [y/N] ", name, format_bytes(size, wanted.bytes_left), target,
            format_bytes(free_space, wanted.disk_free));
    fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin))
        answer[0] = 0;
    return answer[0] == 'y' || answer[0] == 'Y';
}

static swl_status plan_and_pull(pulling *p, const arguments *pull, const char *name, swl_error *err)
{
    swl_status st = pulling_default_target(p->target, name, err);

    p->o.source = name;
    p->o.target = p->target;
    p->o.on_plan = keep_plan;
    p->o.dry_run = true;
    if (!st) {
        place_make_parents(p->target);
        st = pulling_run(p, pull, err);
    }
    if (st)
        return st;
    if (!agreed(name, p->target))
        return fail(err, SWL_E_NOT_FOUND, "%s is not installed", name);
    p->o.dry_run = false; /* and without pulling_run: standard output is for answers */
    interrupt_stoppable(true);
    st = swl_pull(&p->o, NULL, err);
    interrupt_stoppable(false);
    progress_clear();
    return st;
}

/* Nobody named a model. When there is none: which could be there. */
static swl_status suggest(const arguments *a, swl_error *err)
{
    char dir[PLACE_PATH_MAX];
    swl_error ignored;
    int n;
    char **names;

    if (!(1u << a->command & (1u << CMD_CHAT | 1u << CMD_GENERATE | 1u << CMD_SERVE)) || opt_on(a, OPT_JSON) ||
        opt_on(a, OPT_QUIET))
        return SWL_OK;
    names = model_names(&n);
    model_names_free(names, n);
    if (n)
        return SWL_OK;
    if (!place_nearest(dir, &ignored))
        known_suggest(dir);
    return model_check(NULL, err);
}

swl_status offer_model(const arguments *a, swl_error *err)
{
    const char *operands[2];
    int n_used;
    const char *name = model_dir(a, &n_used);
    char *argv[1] = {(char *)name};
    swl_error ignored;
    arguments pull;
    pulling p;
    swl_status st;

    if (!name)
        return suggest(a, err);
    if (!is_hub_name(name) || !model_check(name, &ignored) || !stdin_is_terminal() || !stderr_is_terminal() ||
        opt_on(a, OPT_JSON) || opt_on(a, OPT_QUIET))
        return SWL_OK;
    st = options_parse(&pull, CMD_PULL, 1, argv, operands, err);
    if (st)
        return st;
    st = pulling_init(&p, &pull, err);
    if (!st)
        st = plan_and_pull(&p, &pull, name, err);
    pulling_free(&p);
    return st;
}
