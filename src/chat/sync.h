/*
 * sync.h: a thread that makes files durable and gives them their names (swl_file_atomic), in the order in which they were
 * written, so that who writes them need not wait for the disk.
 */
#ifndef SWL_CHAT_SYNC_H
#define SWL_CHAT_SYNC_H

#include "base/file.h"

/* A file on its way. Whoever takes it reads `err` and frees it with swl_sync_file_free. */
typedef struct swl_sync_file {
    struct swl_sync_file *next;
    swl_file_atomic file; /* the thread's */
    char *tmp;            /* where it can be read until it has its name */
    char name[80];        /* for whom it was written */
    swl_error err;        /* code SWL_OK: it is there */
} swl_sync_file;

typedef struct swl_sync swl_sync;

/* `ended` is called by the thread, behind every file. */
swl_status swl_sync_start(swl_sync **out, void (*ended)(void *arg), void *arg, swl_error *err);
/* Ends all that is on its way, and forgets how. NULL is allowed. */
void swl_sync_stop(swl_sync *s);
/* Takes over a file that was written, `f->file` with it. */
void swl_sync_put(swl_sync *s, swl_sync_file *f);
/* The oldest one that ended, or NULL; waits for one while more than `most` are on their way. */
swl_sync_file *swl_sync_take(swl_sync *s, int32_t most);
/* The one on its way, or not taken yet, that was written for `name`, or NULL. It is there until it is taken. */
const swl_sync_file *swl_sync_find(swl_sync *s, const char *name);
void swl_sync_file_free(swl_sync_file *f);

#endif
