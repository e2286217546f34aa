/* json.c: cleaning, reading and looking at JSON from clients. */
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define BLOCK_BYTES 32768

typedef struct srv_block {
    struct srv_block *next;
    size_t used, room;
    _Alignas(16) char bytes[];
} srv_block;

void *srv_doc_alloc(srv_doc *d, size_t n)
{
    srv_block *b = d->blocks;

    n = (n + 15) & ~(size_t)15;
    if (!b || b->room - b->used < n) {
        size_t room = n > BLOCK_BYTES ? n : BLOCK_BYTES;

        b = room < SIZE_MAX / 2 ? malloc(sizeof *b + room) : NULL;
        if (!b) {
            d->failed = true;
            return NULL;
        }
        *b = (srv_block){d->blocks, 0, room};
        d->blocks = b;
    }
    b->used += n;
    return b->bytes + b->used - n;
}

void srv_doc_free(srv_doc *d)
{
    while (d->blocks) {
        srv_block *next = d->blocks->next;
        free(d->blocks);
        d->blocks = next;
    }
    free(d->text);
    *d = (srv_doc){0};
}

/* ---- cleaning ---- */

static int hex4(const char *p, size_t n)
{
    int x = 0;

    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        x = x * 16 + digit;
    }
    return x;
}

/* The length of the escape at p that is good as it is; 0 for a lone surrogate, whose length is 6. */
static size_t escape_length(const char *p, size_t n)
{
    int high, low;

    if (n < 2 || p[1] != 'u')
        return n < 2 ? 1 : 2;
    high = hex4(p + 2, n - 2);
    if (high < 0)
        return 2; /* the reader will complain */
    if (high < 0xd800 || high > 0xdfff)
        return 6;
    if (high > 0xdbff || n < 12 || p[6] != '\\' || p[7] != 'u')
        return 0;
    low = hex4(p + 8, n - 8);
    return low >= 0xdc00 && low <= 0xdfff ? 12 : 0;
}

static void clean(srv_text *out, const char *p, size_t n)
{
    size_t begin = 0, i = 0;

    if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3))
        begin = i = 3;
    while (i < n) {
        size_t good = p[i] == '\\' ? escape_length(p + i, n - i) : srv_utf8(p + i, n - i);

        if (good) {
            i += good;
            continue;
        }
        srv_add(out, p + begin, i - begin);
        if (p[i] == '\\') {
            srv_puts(out, "\\ufffd");
            i += 6;
        } else {
            srv_puts(out, "\xef\xbf\xbd");
            i++;
        }
        begin = i;
    }
    srv_add(out, p + begin, n - begin);
}

/* ---- reading ---- */

typedef struct reader {
    srv_doc *d;
    const char *p, *end;
    srv_json_status status;
} reader;

static void skip_space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
}

static bool wrong(reader *r, srv_json_status status)
{
    if (!r->status)
        r->status = status;
    return false;
}

static bool read_string(reader *r)
{
    if (r->p == r->end || *r->p != '"')
        return wrong(r, SRV_JSON_SYNTAX);
    for (r->p++; r->p < r->end && *r->p != '"'; r->p++) {
        if ((unsigned char)*r->p < 0x20)
            return wrong(r, SRV_JSON_SYNTAX);
        if (*r->p != '\\')
            continue;
        r->p++;
        if (r->p == r->end || !*r->p || !strchr("\"\\/bfnrtu", *r->p))
            return wrong(r, SRV_JSON_SYNTAX);
        if (*r->p == 'u') {
            if (hex4(r->p + 1, (size_t)(r->end - r->p - 1)) < 0)
                return wrong(r, SRV_JSON_SYNTAX);
            r->p += 4;
        }
    }
    if (r->p == r->end)
        return wrong(r, SRV_JSON_SYNTAX);
    r->p++;
    return true;
}

static size_t digits(reader *r)
{
    const char *begin = r->p;

    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return (size_t)(r->p - begin);
}

static bool read_number(reader *r)
{
    if (r->p < r->end && *r->p == '-')
        r->p++;
    if (r->p < r->end && *r->p == '0')
        r->p++;
    else if (!digits(r))
        return wrong(r, SRV_JSON_SYNTAX);
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        if (!digits(r))
            return wrong(r, SRV_JSON_SYNTAX);
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!digits(r))
            return wrong(r, SRV_JSON_SYNTAX);
    }
    return true;
}

static bool read_word(reader *r, srv_json *j)
{
    static const char *const words[] = {"null", "false", "true"};

    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->p) >= n && !memcmp(r->p, words[i], n)) {
            j->type = (srv_json_type)i;
            r->p += n;
            return true;
        }
    }
    return wrong(r, SRV_JSON_SYNTAX);
}

static srv_json *read_value(reader *r, int depth);

static bool read_key(reader *r, const char **key, size_t *n)
{
    skip_space(r);
    *key = r->p;
    if (!read_string(r))
        return false;
    *n = (size_t)(r->p - *key);
    skip_space(r);
    if (r->p == r->end || *r->p != ':')
        return wrong(r, SRV_JSON_SYNTAX);
    r->p++;
    return true;
}

/* Behind the opening bracket. */
static bool read_children(reader *r, srv_json *j, int depth)
{
    char close = j->type == SRV_OBJECT ? '}' : ']';
    srv_json **at = &j->child;

    skip_space(r);
    if (r->p < r->end && *r->p == close) {
        r->p++;
        return true;
    }
    for (;;) {
        const char *key = NULL;
        size_t n_key = 0;

        if (j->type == SRV_OBJECT && !read_key(r, &key, &n_key))
            return false;
        *at = read_value(r, depth + 1);
        if (!*at)
            return false;
        (*at)->key = key;
        (*at)->n_key = n_key;
        at = &(*at)->next;
        j->n++;
        skip_space(r);
        if (r->p == r->end || (*r->p != ',' && *r->p != close))
            return wrong(r, SRV_JSON_SYNTAX);
        if (*r->p++ == close)
            return true;
    }
}

static bool read_into(reader *r, srv_json *j, int depth)
{
    switch (r->p < r->end ? *r->p : 0) {
    case '{':
    case '[':
        if (depth >= SRV_JSON_DEPTH)
            return wrong(r, SRV_JSON_DEEP);
        j->type = *r->p++ == '{' ? SRV_OBJECT : SRV_ARRAY;
        return read_children(r, j, depth);
    case '"':
        j->type = SRV_STRING;
        return read_string(r);
    case 'n':
    case 't':
    case 'f':
        return read_word(r, j);
    default:
        j->type = SRV_NUMBER;
        return read_number(r);
    }
}

static srv_json *read_value(reader *r, int depth)
{
    srv_json *j;

    skip_space(r);
    r->d->weight += r->p < r->end && strchr("{[\"", *r->p) ? SRV_WEIGHT_OTHER : SRV_WEIGHT_NUMBER;
    if (r->d->n_values++ >= SRV_JSON_VALUES || (r->d->weight_max && r->d->weight > r->d->weight_max)) {
        wrong(r, SRV_JSON_MANY);
        return NULL;
    }
    j = srv_doc_alloc(r->d, sizeof *j);
    if (!j) {
        wrong(r, SRV_JSON_MEMORY);
        return NULL;
    }
    memset(j, 0, sizeof *j);
    j->raw = r->p;
    if (!read_into(r, j, depth))
        return NULL;
    j->n_raw = (size_t)(r->p - j->raw);
    return j;
}

srv_json_status srv_json_parse(srv_doc *d, const char *text, size_t n, size_t *offset)
{
    srv_text cleaned = {0};
    reader r = {.d = d};

    *d = (srv_doc){.weight_max = d->weight_max};
    *offset = 0;
    clean(&cleaned, text, n);
    srv_add(&cleaned, "", 0);
    if (cleaned.failed) {
        srv_text_free(&cleaned);
        return SRV_JSON_MEMORY;
    }
    d->text = cleaned.p;
    r.p = cleaned.p;
    r.end = cleaned.p + cleaned.n;
    d->root = read_value(&r, 0);
    skip_space(&r);
    if (d->root && r.p < r.end)
        wrong(&r, SRV_JSON_SYNTAX);
    *offset = (size_t)(r.p - d->text);
    return r.status;
}

/* ---- looking ---- */

static size_t put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 63));
        to[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 63));
    to[2] = (char)(0x80 | (c >> 6 & 63));
    to[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* One escape; the text was read before, so it is whole. Never longer than its spelling. */
static size_t unescape(const char **p, char *to)
{
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
    const char *name;
    unsigned c;

    if (**p != 'u') {
        name = strchr(names, **p);
        *to = name ? values[name - names] : **p;
        ++*p;
        return 1;
    }
    c = (unsigned)hex4(*p + 1, 4);
    *p += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        c = 0x10000 + ((c - 0xd800) << 10) + (unsigned)hex4(*p + 2, 4) - 0xdc00;
        *p += 6;
    }
    return put_utf8(to, c);
}

static size_t decode(const char *raw, size_t n_raw, char *to)
{
    const char *p = raw + 1, *end = raw + n_raw - 1;
    size_t n = 0;

    while (p < end) {
        if (*p == '\\') {
            p++;
            n += unescape(&p, to + n);
        } else {
            to[n++] = *p++;
        }
    }
    to[n] = 0;
    return n;
}

char *srv_string(srv_doc *d, const srv_json *s, size_t *n)
{
    char *to = srv_doc_alloc(d, s->n_raw);
    size_t length = to ? decode(s->raw, s->n_raw, to) : 0;

    if (n)
        *n = length;
    return to;
}

static bool raw_is(const char *raw, size_t n_raw, const char *text)
{
    size_t n = strlen(text);
    char short_one[64];

    if (!memchr(raw, '\\', n_raw))
        return n_raw == n + 2 && !memcmp(raw + 1, text, n);
    if (n_raw > 6 * n + 2 || n_raw > sizeof short_one)
        return false;
    return decode(raw, n_raw, short_one) == n && !memcmp(short_one, text, n);
}

bool srv_key_is(const srv_json *member, const char *name)
{
    return raw_is(member->key, member->n_key, name);
}

bool srv_is(const srv_json *s, const char *text)
{
    return s && s->type == SRV_STRING && raw_is(s->raw, s->n_raw, text);
}

const srv_json *srv_get(const srv_json *object, const char *key)
{
    const srv_json *found = NULL;

    if (!object || object->type != SRV_OBJECT)
        return NULL;
    for (const srv_json *j = object->child; j; j = j->next) {
        if (srv_key_is(j, key))
            found = j;
    }
    return found && found->type != SRV_NULL ? found : NULL;
}

const srv_json *srv_at(const srv_json *array, size_t i)
{
    const srv_json *j = array ? array->child : NULL;

    while (j && i--)
        j = j->next;
    return j;
}

bool srv_number(const srv_json *j, double *out)
{
    char text[400];

    if (!j || j->type != SRV_NUMBER || j->n_raw >= sizeof text)
        return false;
    memcpy(text, j->raw, j->n_raw);
    text[j->n_raw] = 0;
    *out = strtod(text, NULL);
    return isfinite(*out);
}

bool srv_integer(const srv_json *j, int64_t *out)
{
    char text[32], *end;
    double x;

    if (!j || j->type != SRV_NUMBER)
        return false;
    if (j->n_raw < sizeof text) {
        memcpy(text, j->raw, j->n_raw);
        text[j->n_raw] = 0;
        errno = 0;
        *out = strtoll(text, &end, 10);
        if (!*end && !errno)
            return true;
    }
    if (!srv_number(j, &x) || x != floor(x) || fabs(x) > 9e15)
        return false;
    *out = (int64_t)x;
    return true;
}
