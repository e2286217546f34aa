/*
 * http.h: single exchanges over HTTP, several at a time in one thread (libcurl's multi interface). An exchange is one
 * request and one answer: it follows no redirect, tries nothing again and judges no status; transfer.c does that. The
 * token goes to the endpoint's own scheme, host and port, over TLS or to this machine, and nowhere else.
 */
#ifndef SWL_INSTALL_HTTP_H
#define SWL_INSTALL_HTTP_H

#include "install/url.h"

#include <swiftlet/swiftlet.h>

typedef struct swl_http swl_http;

typedef struct swl_http_options {
    const char *endpoint, *token; /* the token's place, and the token; NULL: none */
    const char *proxy, *no_proxy; /* NULL: none */
    const char *ca_file;          /* NULL: the system's */
    double connect_seconds;
} swl_http_options;

typedef struct swl_exchange swl_exchange;

/* The answer's first bytes: by then `status` and the fields are known. A status other than SWL_OK ends the exchange. */
typedef swl_status (*swl_http_sink)(void *arg, swl_exchange *x, const uint8_t *data, size_t n, swl_error *err);

struct swl_exchange {
    /* The caller's. */
    const char *url; /* until the exchange ends */
    bool ranged;
    uint64_t begin, end;
    swl_http_sink sink; /* gets the body */
    void *arg;
    bool body_of_errors; /* otherwise the body goes to the sink only with status 200 and 206 */
    /* The answer's. */
    int status; /* 0: none came */
    bool has_content_range;
    uint64_t range_begin, range_end, range_total;
    int64_t content_length; /* -1: unknown */
    int64_t retry_after;    /* seconds; -1: nothing said */
    char *location, *link_next; /* freed with the next start, or by swl_http_reset */
    bool sent_token;
    uint64_t n_body; /* bytes that the sink got, or would have */
    /* How it ended. */
    bool finished, failed_locally, connect_failed, bad_certificate; /* locally: `error` holds what the sink said */
    char problem[256]; /* of the connection; "" when the answer is complete */
    char detail[256];  /* libcurl's words for it, which may be more than is to be shown */
    swl_error error;
    /* http.c's. */
    void *easy, *fields;
    swl_http *owner;
    char *range_text;
};

/* SWL_E_UNSUPPORTED in a build without libcurl. */
swl_status swl_http_open(swl_http **out, const swl_http_options *opt, swl_error *err);
void swl_http_close(swl_http *h);

swl_status swl_http_start(swl_http *h, swl_exchange *x, swl_error *err);
/* Lets exchanges go on for at most `milliseconds`; those that ended have `finished` set. */
swl_status swl_http_run(swl_http *h, int milliseconds, swl_error *err);
/* Breaks off; also frees what an ended exchange holds. */
void swl_http_reset(swl_exchange *x);
/* Whether requests to this URL carry the token. */
bool swl_http_gets_token(const swl_http *h, const char *url);

#endif
