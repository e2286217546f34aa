/*
 * transfer.h: brings files over: parts on several streams, redirects, retries, stalls. It knows neither what the files are
 * nor where their bytes go: each has a sink. Everything happens in the caller's thread, so a sink that is slow (a drive, a
 * conversion) makes the senders wait, and nothing queues up in memory.
 */
#ifndef SWL_INSTALL_TRANSFER_H
#define SWL_INSTALL_TRANSFER_H

#include "install/http.h"
#include "install/spans.h"

/* One of the places that have the files. */
typedef struct swl_fetch_base {
    char *url; /* the file's path, percent-encoded, is appended */
    bool hub;
    bool dropped; /* served wrong bytes */
} swl_fetch_base;

typedef struct swl_fetch {
    const char *path;
    uint64_t size;
    bool ordered; /* from front to back, by one stream at a time */
    swl_spans done;
    /* n bytes from offset `at`, none twice. */
    swl_status (*write)(void *arg, uint64_t at, const uint8_t *data, size_t n, swl_error *err);
    /* What came is void: the next byte is the first again. NULL: `done` is emptied, no more is needed. */
    swl_status (*restart)(void *arg, swl_error *err);
    void *arg;
    /* transfer.c's; zeroed at first. */
    int32_t base;     /* index; < 0: not chosen yet */
    bool whole;       /* the place ignores ranges */
    int32_t n_active; /* streams at work */
    char *target;     /* where the last redirect led; may be signed, so it is never shown or stored */
} swl_fetch;

typedef enum swl_transfer_news { SWL_NEWS_STALL, SWL_NEWS_RETRY, SWL_NEWS_SOURCE } swl_transfer_news;

typedef struct swl_transfer {
    swl_http *http;
    bool has_token;
    swl_fetch_base *bases; /* in the order of preference */
    int32_t n_bases;
    const char *page; /* where access to the repository is asked for; NULL: unknown */
    int32_t n_streams;
    uint64_t part_bytes;
    double stall_seconds, retry_seconds;
    /* Called at least every 0.2 s, also while nothing comes; a status ends everything. */
    swl_status (*tick)(void *arg, swl_error *err);
    void (*news)(void *arg, swl_transfer_news what, const char *path, const char *text);
    void *arg;
    uint64_t n_received; /* body bytes, ever */
} swl_transfer;

/* Until every file has all its bytes. */
swl_status swl_transfer_run(swl_transfer *t, swl_fetch *files, int32_t n, swl_error *err);
void swl_fetch_deinit(swl_fetch *f);

/* A small answer into memory, NUL-terminated (free with swl_free). *status: 200, or a definite refusal (4xx), for which
 * *text is NULL; what is not definite is tried again. `next` (may be NULL): the target of Link rel="next", or NULL. */
swl_status swl_transfer_get(swl_transfer *t, const char *url, uint64_t n_max, char **text, size_t *n, char **next,
                            int *status, swl_error *err);
/* The length of a file that no listing knows, asked for with its first byte. */
swl_status swl_transfer_size(swl_transfer *t, const char *url, uint64_t *size, int *status, swl_error *err);

/* Says why the endpoint refused; SWL_E_NETWORK, or SWL_E_NOT_FOUND for 404. `what`: "file x", "repository org/name". */
swl_status swl_transfer_refused(const swl_transfer *t, const char *url, int status, const char *what, swl_error *err);

#endif
