/* store_impl.h: what the files of the store share. */
#ifndef SWL_STORE_IMPL_H
#define SWL_STORE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/cache.h"
#include "store/files.h"
#include "store/store.h"

/* Room for one expert. */
typedef struct swl_frame {
    uint8_t *data;
    int32_t layer, expert;     /* while in use */
    int32_t n_unread;          /* reads that wait() has not returned */
    bool failed;               /* one of those that it has */
    _Atomic int32_t n_missing; /* reads that have not arrived: whoever brings it to 0 verifies */
    bool verify, crc_wrong;
    uint32_t crc;
    swl_io_read *reads;        /* [n_ranges_max] */
} swl_frame;

/* Frames of one size. Those in the stacks are free: warm ones have memory behind them, cold ones only addresses. */
typedef struct swl_frames {
    uint64_t stride;           /* bytes from frame to frame */
    int32_t first, n;          /* among all frames */
    int32_t n_allowed;         /* layers' shares and stage together: memory is kept for so many */
    int32_t n_stage;           /* of the stage, those that layers have lent included */
    int32_t *warm, *cold;
    int32_t n_warm, n_cold;
    int32_t n_staged, n_idle;  /* in use beside the layers' shares; of those, leased by nobody */
    uint8_t *memory;
    uint64_t bytes;
} swl_frames;

typedef enum swl_entry_state { SWL_ENTRY_EMPTY, SWL_ENTRY_LOADING, SWL_ENTRY_READY, SWL_ENTRY_FAILED } swl_entry_state;

/* One expert of a layer. In the layer's cache while READY, not leased, not staged and not wanted. */
typedef struct swl_entry {
    swl_entry_state state;
    int32_t frame;             /* unless EMPTY */
    int32_t n_leases;
    bool staged;               /* in a frame of the stage, gone when released */
    bool guessed;              /* staged by a prefetch, not leased yet */
    bool wanted;               /* announced and not leased yet: evicted last */
    bool verified;             /* its checksum was right once */
} swl_entry;

/* How guesses of one kind turned out in a layer. */
typedef struct swl_guesses {
    int32_t tried, right;      /* of late: both are halved now and then */
    int32_t pause;             /* announcements until the next try */
} swl_guesses;

typedef struct swl_store_part {
    swl_store_layer desc;
    swl_frames *frames;        /* of its size */
    swl_entry *entries;        /* [n_experts] */
    int32_t n_kept;            /* entries not EMPTY and not staged */
    int32_t n_slots;           /* its share, without what it has lent */
    swl_cache cache;
    swl_guesses guesses[2];    /* for single tokens, for prompts */
    int32_t n_missing;         /* of the last prompt's experts were not in the pool; -1: it has seen no prompt */
} swl_store_part;

struct swl_store {
    int32_t n_layers, slots_per_layer, slots_min, stage_slots, n_ranges_max;
    int32_t n_lent;            /* slots of each layer that the stage should have */
    swl_store_part *layers;
    swl_frames *sizes;         /* [n_sizes] */
    int32_t n_sizes, n_frames;
    swl_frame *frames;         /* [n_frames] */
    swl_io_read *reads;        /* [n_frames][n_ranges_max] */
    swl_files files;
    const char **paths;
    swl_io *io;
    swl_store_verify verify;
    swl_threads *team;
    swl_store_stats stats;
    pthread_mutex_t lock;      /* all of the above that changes */
    pthread_cond_t progress;   /* reads were taken from io, or the poller left */
    bool polling;              /* some thread is in io's wait */
    int32_t n_in_flight;
    int32_t ahead_layer;       /* whose guesses are not settled, -1: none */
    bool ahead_stream;         /* they are for a prompt */
    bool still;                /* swl_store_stand_still */
    int32_t still_next;        /* the expert to lend in the place of another, or one after it */
    pthread_mutex_t flight;    /* the next three; taken by itself or with `lock` held */
    int32_t n_flying;          /* reads that have not arrived: I/O that ends tells at once, n_in_flight follows when someone looks */
    uint64_t flying_since, reading_ns;
};

/* frames.c: memory for experts */
swl_status swl_frames_create(swl_store *s, swl_error *err);
void swl_frames_free(swl_store *s);
int32_t swl_frames_take(swl_frames *f);                 /* -1: none left */
void swl_frames_give(swl_store *s, swl_frames *f, int32_t frame);
void swl_frames_trim(swl_store *s, swl_frames *f);      /* gives memory beyond what is allowed back */
void swl_frames_allow(swl_store *s);                    /* works out n_allowed from the layers' shares */

/* load.c: from a miss to a verdict */
void swl_load_prepare(swl_store *s, int32_t layer, int32_t expert, swl_io_list *reads);
uint64_t swl_load_reading_ns(swl_store *s);             /* with something on its way, so far */
swl_status swl_load_fault(const swl_store *s, const swl_frame *f, swl_error *err);

#endif
