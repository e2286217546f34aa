/*
 * head.h: the head of an HTTP/1.1 request, and the chunks of a body, read strictly: what two programs in a row could
 * understand in two ways is refused. Pure functions on bytes; sockets are conn.c's.
 */
#ifndef SERVER_HEAD_H
#define SERVER_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SRV_HEAD_BYTES 32768
#define SRV_HEADERS    100

typedef struct srv_header {
    const char *name, *value; /* NUL-terminated, in `text`; without white space around */
} srv_header;

typedef struct srv_head {
    char *text;            /* all of it, cut into strings */
    const char *method;
    const char *target;    /* as sent */
    char *path;            /* decoded, without query; NUL bytes are refused */
    const char *query;     /* behind "?", or "" */
    int minor;             /* HTTP/1.minor */
    srv_header headers[SRV_HEADERS];
    int n_headers;
    const char *host;      /* NULL: none was sent */
    bool chunked;
    bool has_length;
    uint64_t length;
    bool keep_alive;
    bool expects_continue;
} srv_head;

/* Why a head is refused: the HTTP status, and a sentence. */
typedef struct srv_head_fault {
    int http;
    const char *message;
} srv_head_fault;

/* Where the head in p[0..n) ends, behind its empty line; 0 when it has not come whole. *skip: empty lines before it. */
size_t srv_head_find(const char *p, size_t n, size_t *skip);
/* Reads a whole head, which is copied. False: *fault says why. srv_head_free is due in any case. */
bool srv_head_parse(srv_head *h, const char *p, size_t n, srv_head_fault *fault);
void srv_head_free(srv_head *h);
/* By a lower-case name; NULL when absent. The first of several. */
const char *srv_header_get(const srv_head *h, const char *name);
/* Is `token` in a comma-separated list? Letters of either case. */
bool srv_has_token(const char *list, const char *token);

/* A chunked body, byte by byte in any pieces. */
typedef struct srv_chunks {
    int state;
    uint64_t left;      /* of the chunk */
    size_t n_line;      /* of a size line or the trailer */
    int n_digits;
    bool done;
} srv_chunks;

/* Takes up to n bytes; hands on the part of the body that begins at *data. Returns how many were taken; stops after one
 * piece of data, at the end of the body (done), and at a fault (*fault, then nothing more may be pushed). */
size_t srv_chunks_push(srv_chunks *c, const char *p, size_t n, const char **data, size_t *n_data, srv_head_fault *fault);

#endif
