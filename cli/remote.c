/* remote.c: one request on a connection of its own. The server is ours, so that little of HTTP is needed. */
#define _POSIX_C_SOURCE 200809L
#include "remote.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "output.h"

enum { ANSWER_MAX = 16 << 20, SECONDS = 10 };

typedef struct address {
    char host[256], port[8], base[256]; /* base: path before ours, without a slash at the end */
} address;

/* http://HOST[:PORT][/BASE] */
static swl_status parse_url(address *at, const char *url, swl_error *err)
{
    const char *p = url + 7, *end;
    size_t n;

    if (strncmp(url, "http://", 7))
        return fail(err, SWL_E_ARG, "--url is %s, expected http://HOST:PORT", url);
    end = *p == '[' ? p + strcspn(p, "]") : p + strcspn(p, ":/");
    n = (size_t)(end - p) - (*p == '[');
    snprintf(at->host, sizeof at->host, "%.*s", (int)(n < 255 ? n : 255), p + (*p == '['));
    end += *p == '[' && *end == ']';
    snprintf(at->port, sizeof at->port, "80");
    if (*end == ':') {
        n = strcspn(end + 1, "/");
        snprintf(at->port, sizeof at->port, "%.*s", (int)(n < 7 ? n : 7), end + 1);
        end += 1 + n;
    }
    snprintf(at->base, sizeof at->base, "%s", end);
    for (n = strlen(at->base); n && at->base[n - 1] == '/'; n--)
        at->base[n - 1] = 0;
    return SWL_OK;
}

static swl_status no_answer(const char *url, const char *why, swl_error *err)
{
    return fail(err, SWL_E_NETWORK, "no server answers at %s: %s; \"swiftlet serve\" starts one", url, why);
}

static swl_status dial(int *fd, const address *at, const char *url, swl_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct timeval limit = {.tv_sec = SECONDS};
    int rc = getaddrinfo(at->host, at->port, &hints, &list), error = 0;

    *fd = -1;
    for (struct addrinfo *i = list; !rc && i && *fd < 0; i = i->ai_next) {
        *fd = socket(i->ai_family, i->ai_socktype, i->ai_protocol);
        if (*fd < 0)
            continue;
        setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(*fd, i->ai_addr, i->ai_addrlen)) {
            error = errno;
            close(*fd);
            *fd = -1;
        }
    }
    if (list)
        freeaddrinfo(list);
    return *fd >= 0 ? SWL_OK : no_answer(url, rc ? gai_strerror(rc) : strerror(error), err);
}

static bool send_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t put = write(fd, p, n);

        if (put <= 0)
            return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

/* Everything until the other side closes; NULL when nothing whole came. */
static char *receive_all(int fd)
{
    size_t n = 0, n_max = 0;
    char *text = NULL;

    for (;;) {
        ssize_t got;

        if (n_max - n < 4096) {
            char *more = n_max >= ANSWER_MAX ? NULL : realloc(text, n_max = n_max * 2 + 65536);

            if (!more)
                break;
            text = more;
        }
        got = read(fd, text + n, n_max - n - 1);
        if (got < 0)
            break;
        n += (size_t)got;
        if (!got) {
            text[n] = 0;
            return text;
        }
    }
    free(text);
    return NULL;
}

/* The body, in place; of chunked answers the chunks are joined. */
static char *body_of(char *answer)
{
    char *body = strstr(answer, "\r\n\r\n"), *from, *to;
    bool chunked;

    if (!body)
        return NULL;
    *body = 0;
    chunked = strstr(answer, "chunked") != NULL;
    body += 4;
    for (from = to = body; chunked;) {
        char *data;
        unsigned long n = strtoul(from, &data, 16);

        data = strstr(data, "\r\n");
        if (!data || !n || strlen(data + 2) < n) {
            *to = 0;
            break;
        }
        memmove(to, data + 2, n);
        to += n;
        from = data + 2 + n + 2;
    }
    return body;
}

static swl_status read_answer(json_t **out, char *answer, const char *url, swl_error *err)
{
    int status = answer && !strncmp(answer, "HTTP/1.1 ", 9) ? atoi(answer + 9) : 0;
    char *body = answer ? body_of(answer) : NULL;
    const char *message;
    json_t *root;

    if (!status || !body)
        return no_answer(url, "what came is no answer", err);
    root = json_loads(body, JSON_DECODE_ANY, NULL);
    if (status == 200 && root) {
        *out = root;
        return SWL_OK;
    }
    message = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    fail(err, SWL_E_FAIL, "the server at %s answers %d%s%s", url, status, message ? ": " : "", message ? message : "");
    json_decref(root);
    return SWL_E_FAIL;
}

swl_status remote_get(json_t **out, const arguments *a, const char *path, swl_error *err)
{
    const char *url = opt_text(a, OPT_URL), *key = a->values[OPT_API_KEY].n_list ? a->values[OPT_API_KEY].list[0] : NULL;
    char request[2048], *answer = NULL;
    address at;
    int fd = -1, n;
    swl_status st = parse_url(&at, url, err);

    *out = NULL;
    if (st)
        return st;
    n = snprintf(request, sizeof request, "GET %s%s HTTP/1.1\r\nHost: %s:%s\r\n%s%s%sConnection: close\r\n\r\n", at.base, path,
                 at.host, at.port, key ? "Authorization: Bearer " : "", key ? key : "", key ? "\r\n" : "");
    if (n >= (int)sizeof request)
        return fail(err, SWL_E_ARG, "--url or --api-key is too long");
    st = dial(&fd, &at, url, err);
    if (st)
        return st;
    if (send_all(fd, request, (size_t)n))
        answer = receive_all(fd);
    close(fd);
    st = read_answer(out, answer, url, err);
    free(answer);
    return st;
}
