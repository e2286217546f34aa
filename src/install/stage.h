/*
 * stage.h: a directory that appears whole or not at all. Everything is written into TARGET.partial, which is locked
 * while a process works on it, and renamed to TARGET at the end. What a killed run left there is taken up by the next one
 * (swl_stage_take) or cleared (swl_stage_open). Nothing but TARGET and TARGET.partial is ever touched, and neither if it
 * is not recognisably ours.
 */
#ifndef SWL_INSTALL_STAGE_H
#define SWL_INSTALL_STAGE_H

#include <swiftlet/swiftlet.h>

#define SWL_STAGE_MARK  ".swiftlet-install.json" /* says that a directory is ours; stays in the result */
#define SWL_STAGE_OWNER ".swiftlet-owner"        /* who works on it: "process 123 on HOST"; gone with the lock */
#define SWL_OWNER_BYTES 160

typedef struct swl_stage {
    char *target, *parent;
    char *dir; /* TARGET.partial, for the files to come */
    int lock;  /* the directory itself, locked; -1 when closed */
    bool replace;
    bool keep;  /* closing leaves what is there, for another run to go on with */
} swl_stage;

/* Refuses a target that exists (unless replace and it is a container), takes the lock, clears leftovers, and writes
 * `mark` as the first file. */
swl_status swl_stage_open(swl_stage *s, const char *target, bool replace, const char *mark, swl_error *err);
/* Takes the lock and leaves everything as it is: what a run before left in dir, and the target. While another process has
 * the lock, `on_wait` is called a few times a second until it gives a status (NULL: that is an error at once). */
swl_status swl_stage_take(swl_stage *s, const char *target, bool replace, swl_status (*on_wait)(void *arg, swl_error *err),
                          void *arg, swl_error *err);
/* Takes the lock alone, for work on a target that stays where it is; an error that names the owner when another process has it.
 * Closing leaves what a run before left in dir, and removes a dir that was made for the lock. */
swl_status swl_stage_lock(swl_stage *s, const char *target, swl_error *err);
/* "process 123 on HOST" of whoever has the lock that this stage waits for; "another process" when that is not known. */
void swl_stage_owner(const swl_stage *s, char text[SWL_OWNER_BYTES]);
/* Refuses a target that exists, unless replace and it is a container. */
swl_status swl_stage_check_target(const swl_stage *s, swl_error *err);
/* Empties dir, but for an empty mark. */
swl_status swl_stage_clear(swl_stage *s, swl_error *err);
/* Removes a directory of ours and what is in it. */
swl_status swl_stage_remove(const char *dir, swl_error *err);

/* Syncs the directory and gives it its name; the old target, if any, is removed after that. */
swl_status swl_stage_commit(swl_stage *s, swl_error *err);
/* Removes TARGET.partial unless it was committed, and frees what the stage holds. */
void swl_stage_close(swl_stage *s);

/* SWL_E_BUDGET with both figures when the file system of the stage has fewer than n bytes to give. */
swl_status swl_stage_need(const swl_stage *s, uint64_t n_bytes, swl_error *err);

#endif
