/* session.h: a conversation: its token ids and its state. */
#ifndef SWL_SESSION_H
#define SWL_SESSION_H

#include "model/model.h"

struct swl_session {
    swl_model *model;
    swl_state *state;
    int32_t *ids;              /* [ctx_tokens] the tokens that the state covers */
    bool *want;                /* [chunk_tokens] which logits the next pass wants */
    float *logits;             /* [vocab] of the last token, for generation */
    swl_candidate *scratch;    /* [vocab] of the sampler */
    bool broken;               /* a pass failed: the state is unusable until reset */
};

/* snapshot.c */
swl_status swl_snapshot_save(const swl_session *s, const char *path, swl_error *err);
swl_status swl_snapshot_load(swl_session *s, const char *path, swl_error *err);

#endif
