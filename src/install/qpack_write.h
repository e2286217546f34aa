/*
 * qpack_write.h: writes the files of a planned container into a stage, each hashed and made durable. The order matters
 * at two places only: hashes.json comes after what it covers, and manifest.json last.
 */
#ifndef SWL_INSTALL_QPACK_WRITE_H
#define SWL_INSTALL_QPACK_WRITE_H

#include "install/repack_plan.h"
#include "install/stage.h"
#include "install/state.h"

/* Where the checkpoint came from, as the container records it. */
typedef struct swl_qpack_source {
    char *id;     /* last path component, or "org/name" out of a hub cache */
    char *commit; /* of a hub cache, else NULL */
} swl_qpack_source;

/* Set for weights that nobody trained: recorded in the container, which then goes without SHA-256 hashes. */
typedef struct swl_qpack_synthetic {
    const char *name;
    uint64_t seed;
    bool experts_absent; /* the files of slots have their length and hold nothing: whoever opens them makes the bytes */
} swl_qpack_synthetic;

typedef struct swl_qpack_file {
    char *name;
    uint64_t size;
    char sha256[65];
} swl_qpack_file;

typedef struct swl_qpack_writer {
    swl_plan *plan;
    const char *dir; /* the stage's */
    const swl_qpack_source *source;
    const swl_qpack_synthetic *synthetic; /* NULL as a rule */
    swl_converter cv;
    swl_state *state; /* what is done, also by an earlier run; saved in `dir` as it grows. NULL: nothing can be resumed */
    bool placed;      /* the data files are there as a whole: they are read for their checksums alone */
    uint64_t n_done, n_total; /* bytes written and hashed */
    bool (*on_progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *arg;
    swl_qpack_file *files; /* what is finished, manifest.json excepted */
    int32_t n_files, n_files_max;
    uint64_t unsaved; /* bytes since the state was saved */
    double saved_at;
    struct swl_hasher *hasher; /* NULL for synthetic ones, which have no hashes */
    bool lost; /* a sync failed: what is on the disk is unknown from here on */
} swl_qpack_writer;

/* Everything. The fields above `n_done` and the callback are the caller's, the rest zeroed. */
swl_status swl_qpack_write(swl_qpack_writer *w, swl_error *err);
void swl_qpack_writer_deinit(swl_qpack_writer *w);

/* For qpack_json.c and qpack_write.c: a small file from memory, and progress (SWL_E_CANCELLED when asked to stop). */
swl_status swl_qpack_put(swl_qpack_writer *w, const char *name, const void *data, uint64_t n, swl_error *err);
swl_status swl_qpack_progress(swl_qpack_writer *w, uint64_t n, swl_error *err);

/* The JSON files. `text`: free with swl_free. */
swl_status swl_qpack_json_layout(const swl_plan *p, char **text, swl_error *err);
swl_status swl_qpack_json_config(const swl_plan *p, char **text, size_t *n, swl_error *err);
swl_status swl_qpack_json_sidecar(const swl_qpack_writer *w, char **text, swl_error *err);
swl_status swl_qpack_json_manifest(const swl_qpack_writer *w, char **text, swl_error *err);
swl_status swl_qpack_json_hashes(const swl_qpack_writer *w, const char *manifest_sha256, char **text, swl_error *err);

#endif
