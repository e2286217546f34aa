/*
 * state.h: .swiftlet-install.json: what an installation is and how far it has come. It is written after the data that it
 * describes is durable, so it may be behind the data, never ahead. In the finished directory it says where the container
 * came from and how it was checked.
 *
 *   {"version": 1, "complete": false, "kind": "hub", "source": "org/name", "commit": "...", "endpoint": "...",
 *    "options": {...}, "stamp": "...",
 *    "files": {path: {"size", "digest", "done": [[begin, end], ...], "verified", "note"}}}
 */
#ifndef SWL_INSTALL_STATE_H
#define SWL_INSTALL_STATE_H

#include "base/json.h"
#include "install/digest.h"
#include "install/spans.h"

typedef struct swl_state_file {
    char *path;
    uint64_t size;
    swl_digest digest;
    swl_spans done;
    bool verified;
    char *note; /* of whoever writes the file: the state of a hash, checksums; NULL: nothing */
} swl_state_file;

typedef struct swl_state {
    bool complete;
    char *kind, *source, *commit, *endpoint; /* commit, endpoint: NULL when there is none */
    char *stamp;     /* what a local source looked like; NULL for others */
    json_t *options; /* an object */
    swl_state_file *files;
    int32_t n_files, room;
} swl_state;

swl_status swl_state_load(swl_state *s, const char *dir, swl_error *err);
swl_status swl_state_save(const swl_state *s, const char *dir, swl_error *err);
void swl_state_deinit(swl_state *s);
/* Also for the first time: NULL means out of memory. Pointers are valid until the next one is added. */
swl_state_file *swl_state_file_get(swl_state *s, const char *path);
swl_state_file *swl_state_file_find(const swl_state *s, const char *path);
/* Sets the strings (any may be NULL) and the options, whose reference it takes. False: out of memory. */
bool swl_state_describe(swl_state *s, const char *kind, const char *source, const char *commit, const char *endpoint,
                        json_t *options);
/* Whether both are about the same bytes: kind, source, commit, options, stamp. */
bool swl_state_same(const swl_state *a, const swl_state *b);
/* Forgets all files. */
void swl_state_clear_files(swl_state *s);
/* Removes files from dir that the state does not name: of an earlier plan, or half-written by a killed process. `keep`: a
 * folder in dir that is passed over; NULL: none. */
swl_status swl_state_sweep(const swl_state *s, const char *dir, const char *keep, swl_error *err);
/* Reads a state from JSON (tests, fuzzing); `path` is for messages. */
swl_status swl_state_parse(swl_state *s, const json_t *root, const char *path, swl_error *err);

#endif
