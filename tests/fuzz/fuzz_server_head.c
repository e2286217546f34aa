/*
 * Bytes of a connection: a head, then a chunked body. A head is read or refused with a status and a message; what is read
 * has no control bytes. A chunked body is the same, and goes wrong at the same byte, however it is cut.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "head.h"

static void check_text(const char *s)
{
    for (; *s; s++)
        CHECK((unsigned char)*s >= 0x20 || *s == '\t');
}

static void read_head(const char *p, size_t n)
{
    srv_head h;
    srv_head_fault fault = {0};

    if (!srv_head_parse(&h, p, n, &fault)) {
        CHECK(fault.http >= 400 && fault.http < 600 && fault.message[0]);
    } else {
        CHECK(h.method[0] && h.path && (h.path[0] == '/' || !strcmp(h.path, "*")));
        CHECK(!h.chunked || !h.has_length);
        check_text(h.target);
        for (int i = 0; i < h.n_headers; i++) {
            CHECK(h.headers[i].name[0] && !strchr(h.headers[i].name, ' '));
            check_text(h.headers[i].value);
        }
    }
    srv_head_free(&h);
}

typedef struct body {
    size_t n, taken;
    uint32_t hash;
    bool done, bad;
} body;

static body read_body(const char *p, size_t n, size_t step)
{
    srv_chunks c = {0};
    srv_head_fault fault;
    body b = {.hash = 2166136261u};

    while (b.taken < n && !c.done && !b.bad) {
        size_t room = n - b.taken < step ? n - b.taken : step, n_data;
        const char *data;
        size_t used = srv_chunks_push(&c, p + b.taken, room, &data, &n_data, &fault);

        CHECK(used > 0 && used <= room && n_data <= used);
        for (size_t i = 0; i < n_data; i++)
            b.hash = (b.hash ^ (unsigned char)data[i]) * 16777619u;
        b.n += n_data;
        b.taken += used;
        b.bad = fault.http != 0;
        CHECK(!b.bad || fault.message[0]);
    }
    b.done = c.done;
    return b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    size_t skip, end = size ? srv_head_find(p, size, &skip) : 0;
    body whole, pieces;

    if (end) {
        CHECK(end <= size && skip <= end);
        for (size_t n = 0; n < end; n++)
            CHECK(!srv_head_find(p, n, &skip)); /* no head before its end */
        srv_head_find(p, size, &skip);
        read_head(p + skip, end - skip);
    } else {
        read_head(p, size);
    }
    whole = read_body(p + end, size - end, size + 1);
    pieces = read_body(p + end, size - end, 1);
    CHECK(whole.n == pieces.n && whole.taken == pieces.taken && whole.hash == pieces.hash);
    CHECK(whole.done == pieces.done && whole.bad == pieces.bad);
    return 0;
}
