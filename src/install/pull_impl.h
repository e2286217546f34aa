/*
 * pull_impl.h: what the parts of swl_pull share.
 *
 *   pull.c          the order of things: source, target, lock, state, plan, room, and what the caller is told
 *   pull_packed.c   containers: bytes go where they came from
 *   pull_raw.c      checkpoints: bytes go through the converter
 */
#ifndef SWL_INSTALL_PULL_IMPL_H
#define SWL_INSTALL_PULL_IMPL_H

#include "install/conversion.h"
#include "install/remote.h"
#include "install/stage.h"
#include "install/state.h"

#define SWL_SAVE_SECONDS 10.0
#define SWL_SKELETON     ".source" /* in the stage; gone before the container gets its name, unless the source is kept */

typedef struct swl_puller swl_puller;
struct swl_puller {
    const swl_pull_options *o;
    swl_pull_result *result;
    swl_conversion asked;
    char listing[65]; /* a digest of what a source without commits has; "" when it has commits */
    swl_http *http; /* NULL: nothing is fetched */
    swl_transfer t;
    swl_remote remote;
    char *local; /* directory that the files are copied from; NULL: they are fetched */
    swl_stage stage;
    const char *dir;    /* where files and the state are put: the stage's, or a folder in it */
    bool staged, fresh; /* fresh: there was nothing in the stage */
    swl_state state;    /* as saved last, and going on */
    swl_pull_phase phase;
    const char *file;
    uint64_t done, total; /* of the phase */
    uint64_t told;
    double last_event, last_save;
    uint64_t unsaved; /* bytes written since */
    bool lost;        /* a sync failed: nobody knows what reached the disk, and the next sync would not tell */
    /* Makes data durable and brings `state` up to date, for the state file; NULL: there is nothing to save. */
    swl_status (*gather)(void *arg, swl_error *err);
    void *gather_arg;
};

/* Begins a phase of `total` bytes, of which `done` are there. */
void swl_puller_phase(swl_puller *p, swl_pull_phase phase, uint64_t done, uint64_t total);
/* n bytes more; tells the caller, saves the state when it is due, and looks whether to stop. */
swl_status swl_puller_bytes(void *puller, uint64_t n, swl_error *err);
/* The same with n 0: for swl_transfer. */
swl_status swl_puller_tick(void *puller, swl_error *err);
void swl_puller_note(swl_puller *p, swl_pull_event_kind kind, const char *file, const char *text);
/* Data durable, state file written. */
swl_status swl_puller_save(swl_puller *p, swl_error *err);

/* The options of a record with the listing, where that stands for a commit. Takes the reference; NULL stays NULL. */
json_t *swl_puller_record(const swl_puller *p, json_t *options);

/* p->remote of a container in a directory. */
swl_status swl_puller_list_local(swl_puller *p, const char *dir, swl_error *err);
/* p->remote of p->o->source, wherever that is; p->local is set when it is here. A checkpoint that is here gives an empty
 * listing. For checks and repairs: nothing is put anywhere. */
swl_status swl_puller_look(swl_puller *p, swl_error *err);

/* A file with the right name in a hub's cache: its content is checked like any other. NULL: none; free with swl_free. */
char *swl_puller_find_cached(const swl_puller *p, const swl_entry *e);

/* Sets p->http and p->t for a source that is elsewhere. */
swl_status swl_puller_connect(swl_puller *p, const swl_source *s, swl_error *err);

/* What is to be done, for people and for the check of free space. */
swl_status swl_puller_show_plan(swl_puller *p, swl_pull_plan *plan, swl_error *err);

/* Takes everything from the plan to the last byte before the rename. With dry_run: to the plan. */
swl_status swl_pull_packed(swl_puller *p, swl_error *err);
swl_status swl_pull_raw(swl_puller *p, swl_error *err);
/* Brings the files of the listing into p->dir, checked, and keeps a state there. */
swl_status swl_pull_files(swl_puller *p, swl_error *err);

/* The end: removes from the stage what the state does not name, writes the final state, makes all durable, opens the
 * container for a check, and gives it its name. */
swl_status swl_puller_finish(swl_puller *p, swl_error *err);

#endif
