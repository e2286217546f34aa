/*
 * disk.h: conversations that left memory, as snapshots in a directory (session/snapshot.c), with the answers in them as
 * they were generated (turn_file.c). A file is named after what it holds: SHA-256 of the model's fingerprint, the layout's version,
 * the arithmetic, and the token ids. Files are written whole or not at all, checked when read, and the oldest go when together they
 * are over the bound. Several processes may share a directory; what another one wrote is seen at the next opening, what another one
 * removed is simply not there.
 *
 * Saving writes a file and leaves waiting for the disk to a thread (sync.h). Until the file is settled it can be found and read
 * like others, and nothing goes that it stands for.
 */
#ifndef SWL_CHAT_DISK_H
#define SWL_CHAT_DISK_H

#include <jansson.h>

#include "chat/canon.h"
#include "chat/sync.h"
#include "session/session.h"

typedef struct swl_disk_file {
    char name[80];
    swl_snapshot_info info; /* ids NULL: of another model, counted only */
    int64_t used;           /* order of use */
    bool saving;            /* not settled yet */
} swl_disk_file;

typedef struct swl_disk {
    char *dir;
    uint64_t bytes, bytes_max;
    uint8_t fingerprint[32];
    bool exact;
    int32_t ctx_tokens; /* longer conversations cannot be loaded */
    int64_t clock;
    swl_disk_file *files;
    int32_t n, cap;
    swl_sync *sync;
} swl_disk;

/* Makes the directory if it is missing. `ended` is called by a thread of its own when there is something to settle. */
swl_status swl_disk_open(swl_disk **out, const swl_model *m, const char *dir, uint64_t bytes_max, void (*ended)(void *arg),
                         void *arg, swl_error *err);
void swl_disk_close(swl_disk *d); /* what is not settled ends, and nobody hears how */

/* The file from which most of a prompt can be taken, when that is more than `more_than` tokens, or -1. *usable: where
 * the conversation can go back to (its end or a mark). */
int32_t swl_disk_find(const swl_disk *d, const swl_tokenizer *t, const swl_canon *prompt, const int32_t *prompt_ids,
                      bool loose, int32_t more_than, int32_t *usable);
/* Loads it into a session; a file that is damaged is removed. */
swl_status swl_disk_load(swl_disk *d, int32_t file, swl_session *s, swl_error *err);
/* Writes a conversation with the marks at some positions and its answers (turns.h), unless it is there; *saving: it is on
 * its way. */
swl_status swl_disk_save(swl_disk *d, const swl_session *s, const int32_t *marks, int32_t n_marks, const json_t *turns,
                         bool *saving, swl_error *err);
/* Settles the oldest save that ended: what it continues is removed, and what is too much; *err says why where it failed (code
 * SWL_OK: it did not). False: none ended. Waits for one while more than `most` are on their way. */
bool swl_disk_settle(swl_disk *d, int32_t most, swl_error *err);
/* Hands out the answers of every conversation of this model, the ones used last at the end. */
void swl_disk_turns(const swl_disk *d, void (*take)(void *arg, const json_t *turns), void *arg);

/* What was said is nobody else's business: an open file becomes readable by its owner alone. */
void swl_chat_private(int fd);

#endif
