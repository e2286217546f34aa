/* head.c: reading request heads and chunked bodies. */
#include "head.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TRAILER_BYTES 8192
#define SIZE_LINE     256

static bool refuse(srv_head_fault *fault, int http, const char *message)
{
    *fault = (srv_head_fault){http, message};
    return false;
}

static bool is_token(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

size_t srv_head_find(const char *p, size_t n, size_t *skip)
{
    size_t i = 0;

    while (i + 1 < n && i < 8 && p[i] == '\r' && p[i + 1] == '\n')
        i += 2;
    *skip = i;
    for (; i < n; i++) {
        const char *lf = memchr(p + i, '\n', n - i);

        if (!lf)
            return 0;
        i = (size_t)(lf - p);
        /* A line feed alone is no end of a line, but ends the search: the head is refused as a whole. */
        if (i + 1 < n && p[i + 1] == '\n')
            return i + 2;
        if (i + 2 < n && p[i + 1] == '\r' && p[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool decode_path(char *to, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '%') {
            int high = i + 2 < n ? hex(p[i + 1]) : -1, low = high >= 0 ? hex(p[i + 2]) : -1;
            if (low < 0 || (!high && !low))
                return false;
            *to++ = (char)(high * 16 + low);
            i += 2;
        } else {
            *to++ = p[i];
        }
    }
    *to = 0;
    return true;
}

/* "/path?query", "http://host/path?query" from clients that think we are a proxy, or "*". */
static bool read_target(srv_head *h, srv_head_fault *fault)
{
    const char *p = h->target, *question;
    size_t n;

    if (!strncasecmp(p, "http://", 7)) {
        p = strchr(p + 7, '/');
        p = p ? p : "/";
    }
    if (*p != '/' && strcmp(p, "*"))
        return refuse(fault, 400, "the request's target is not a path");
    question = strchr(p, '?');
    n = question ? (size_t)(question - p) : strlen(p);
    h->query = question ? question + 1 : "";
    h->path = malloc(n + 1);
    if (!h->path)
        return refuse(fault, 503, "out of memory");
    if (!decode_path(h->path, p, n))
        return refuse(fault, 400, "the request's path has a malformed % sequence");
    return true;
}

static bool read_request_line(srv_head *h, char *line, srv_head_fault *fault)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

    if (!version || target == line || version == target + 1)
        return refuse(fault, 400, "the request line is not \"METHOD target HTTP/1.1\"");
    *target++ = *version++ = 0;
    for (const char *p = line; *p; p++) {
        if (!is_token((unsigned char)*p))
            return refuse(fault, 400, "the request's method is no token");
    }
    for (const char *p = target; *p; p++) {
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return refuse(fault, 400, "the request's target has bytes that must be percent-encoded");
    }
    if (strncmp(version, "HTTP/", 5) || !isdigit((unsigned char)version[5]) || version[6] != '.' ||
        !isdigit((unsigned char)version[7]) || version[8])
        return refuse(fault, 400, "the request line is not \"METHOD target HTTP/1.1\"");
    if (version[5] != '1')
        return refuse(fault, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    h->method = line;
    h->target = target;
    h->minor = version[7] - '0' ? 1 : 0;
    return read_target(h, fault);
}

static bool read_header(srv_head *h, char *line, srv_head_fault *fault)
{
    char *colon = strchr(line, ':'), *value, *end;

    if (!colon || colon == line)
        return refuse(fault, 400, "a header line is not \"name: value\"");
    for (char *p = line; p < colon; p++) {
        if (!is_token((unsigned char)*p))
            return refuse(fault, 400, "a header's name is no token, or is followed by a space");
        *p = (char)tolower((unsigned char)*p);
    }
    *colon = 0;
    for (value = colon + 1; *value == ' ' || *value == '\t'; value++)
        continue;
    for (end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t'); end--)
        continue;
    *end = 0;
    for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
        if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
            return refuse(fault, 400, "a header's value has control bytes");
    }
    if (h->n_headers == SRV_HEADERS)
        return refuse(fault, 431, "too many headers: at most 100");
    h->headers[h->n_headers++] = (srv_header){line, value};
    return true;
}

const char *srv_header_get(const srv_head *h, const char *name)
{
    for (int i = 0; i < h->n_headers; i++) {
        if (!strcmp(h->headers[i].name, name))
            return h->headers[i].value;
    }
    return NULL;
}

static int count(const srv_head *h, const char *name)
{
    int n = 0;

    for (int i = 0; i < h->n_headers; i++)
        n += !strcmp(h->headers[i].name, name);
    return n;
}

bool srv_has_token(const char *list, const char *token)
{
    size_t n = strlen(token);

    while (list && *list) {
        size_t length;

        list += strspn(list, " \t,");
        length = strcspn(list, ", \t;");
        if (length == n && !strncasecmp(list, token, n))
            return true;
        list += strcspn(list, ",");
    }
    return false;
}

static bool read_length(srv_head *h, const char *value, srv_head_fault *fault)
{
    if (!*value || strspn(value, "0123456789") != strlen(value))
        return refuse(fault, 400, "Content-Length is not a number");
    if (strlen(value) > 15)
        return refuse(fault, 413, "the body is larger than what is taken");
    h->has_length = true;
    h->length = strtoull(value, NULL, 10);
    return true;
}

/* How long the body is, the one thing that everybody on the way has to agree about. */
static bool read_framing(srv_head *h, srv_head_fault *fault)
{
    const char *length = srv_header_get(h, "content-length"), *coding = srv_header_get(h, "transfer-encoding");

    if (count(h, "content-length") > 1 || count(h, "transfer-encoding") > 1)
        return refuse(fault, 400, "Content-Length or Transfer-Encoding is repeated");
    if (length && coding)
        return refuse(fault, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (coding && !h->minor)
        return refuse(fault, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding && strcasecmp(coding, "chunked"))
        return refuse(fault, 501, "the only Transfer-Encoding is chunked");
    h->chunked = coding != NULL;
    return !length || read_length(h, length, fault);
}

static bool read_rest(srv_head *h, srv_head_fault *fault)
{
    const char *connection = srv_header_get(h, "connection"), *expect = srv_header_get(h, "expect");

    h->host = srv_header_get(h, "host");
    if (count(h, "host") > 1)
        return refuse(fault, 400, "Host is repeated");
    h->keep_alive = h->minor ? !srv_has_token(connection, "close") : srv_has_token(connection, "keep-alive");
    if (expect && strcasecmp(expect, "100-continue"))
        return refuse(fault, 417, "the only expectation is 100-continue");
    h->expects_continue = expect && h->minor;
    return read_framing(h, fault);
}

bool srv_head_parse(srv_head *h, const char *p, size_t n, srv_head_fault *fault)
{
    char *line, *end;

    memset(h, 0, sizeof *h);
    if (memchr(p, 0, n))
        return refuse(fault, 400, "the request's head has NUL bytes");
    h->text = malloc(n + 1);
    if (!h->text)
        return refuse(fault, 503, "out of memory");
    memcpy(h->text, p, n);
    h->text[n] = 0;
    for (line = h->text; *line; line = end + 2) {
        end = strpbrk(line, "\r\n");
        if (!end || end[0] != '\r' || end[1] != '\n')
            return refuse(fault, 400, "a line of the request's head does not end in CR LF");
        *end = 0;
        if (end == line)
            break;
        if (h->method && (*line == ' ' || *line == '\t'))
            return refuse(fault, 400, "a header continues on a second line");
        if (!(h->method ? read_header(h, line, fault) : read_request_line(h, line, fault)))
            return false;
    }
    if (!h->method)
        return refuse(fault, 400, "the request line is missing");
    return read_rest(h, fault);
}

void srv_head_free(srv_head *h)
{
    free(h->text);
    free(h->path);
    memset(h, 0, sizeof *h);
}

/* ---- chunks ---- */

enum { IN_SIZE, IN_EXTENSION, SIZE_LF, IN_DATA, DATA_CR, DATA_LF, LINE_START, IN_TRAILER, TRAILER_LF, LAST_LF };

static bool push_size(srv_chunks *c, char byte, srv_head_fault *fault)
{
    int digit = hex(byte);

    if (digit >= 0) {
        if (++c->n_digits > 12)
            return refuse(fault, 400, "a chunk's size has too many digits");
        c->left = c->left * 16 + (uint64_t)digit;
        return true;
    }
    if (!c->n_digits || (byte != ';' && byte != '\r'))
        return refuse(fault, 400, "a chunk does not begin with its size");
    c->state = byte == ';' ? IN_EXTENSION : SIZE_LF;
    return true;
}

static bool push_frame(srv_chunks *c, char byte, srv_head_fault *fault)
{
    static const char *const bad_end = "a line of the chunked body does not end in CR LF";

    switch (c->state) {
    case IN_SIZE:
        return push_size(c, byte, fault);
    case IN_EXTENSION:
        if (++c->n_line > SIZE_LINE || ((unsigned char)byte < 0x20 && byte != '\r' && byte != '\t') || byte == 0x7f)
            return refuse(fault, 400, "a chunk's extension is malformed or too long");
        if (byte == '\r')
            c->state = SIZE_LF;
        return true;
    case IN_TRAILER:
        if (++c->n_line > TRAILER_BYTES || ((unsigned char)byte < 0x20 && byte != '\r' && byte != '\t') || byte == 0x7f)
            return refuse(fault, 400, "the trailer of the body is malformed or too long");
        if (byte == '\r')
            c->state = TRAILER_LF;
        return true;
    case LINE_START:
        c->state = byte == '\r' ? LAST_LF : IN_TRAILER;
        return byte == '\r' || (is_token((unsigned char)byte) && ++c->n_line) ||
               refuse(fault, 400, "the trailer of the body is malformed or too long");
    case DATA_CR:
        c->state = DATA_LF;
        return byte == '\r' || refuse(fault, 400, "a chunk is longer than its size");
    default:
        if (byte != '\n')
            return refuse(fault, 400, bad_end);
        if (c->state == SIZE_LF)
            c->state = c->left ? IN_DATA : LINE_START;
        else if (c->state == DATA_LF)
            c->state = IN_SIZE;
        else if (c->state == TRAILER_LF)
            c->state = LINE_START;
        else
            c->done = true;
        c->n_line = c->state == LINE_START ? c->n_line : 0;
        c->n_digits = 0;
        return true;
    }
}

size_t srv_chunks_push(srv_chunks *c, const char *p, size_t n, const char **data, size_t *n_data, srv_head_fault *fault)
{
    size_t i = 0;

    *data = NULL;
    *n_data = 0;
    *fault = (srv_head_fault){0};
    while (i < n && !c->done) {
        if (c->state == IN_DATA) {
            *data = p + i;
            *n_data = c->left < n - i ? (size_t)c->left : n - i;
            c->left -= *n_data;
            if (!c->left)
                c->state = DATA_CR;
            return i + *n_data;
        }
        if (!push_frame(c, p[i++], fault))
            return i;
    }
    return i;
}
