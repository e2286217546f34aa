/*
 * json.h: JSON from clients, read so that nothing of it is lost. A value keeps its place in the text: numbers of any
 * length, the order of members and how things are spelled go on to the model as they came.
 *
 * Before it is read the text is made clean: ill-formed UTF-8 and lone surrogates become U+FFFD. "\u0000" is allowed.
 */
#ifndef SERVER_JSON_H
#define SERVER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SRV_JSON_DEPTH  128
#define SRV_JSON_VALUES 1000000
/* What is built of strings and structures is larger than what is built of other values. */
enum { SRV_WEIGHT_NUMBER = 1, SRV_WEIGHT_OTHER = 4 };

typedef enum srv_json_type {
    SRV_NULL, SRV_FALSE, SRV_TRUE, SRV_NUMBER, SRV_STRING, SRV_ARRAY, SRV_OBJECT
} srv_json_type;

typedef struct srv_json {
    srv_json_type type;
    const char *raw;   /* the value's text, [n_raw]; strings with their quotes */
    size_t n_raw;
    const char *key;   /* of a member, with its quotes */
    size_t n_key;
    size_t n;          /* elements or members */
    struct srv_json *child, *next;
} srv_json;

/* A document, and memory that lives as long as it. */
typedef struct srv_doc {
    char *text;
    srv_json *root;
    struct srv_block *blocks;
    size_t n_values, weight;
    size_t weight_max; /* set before parsing; 0: not bounded */
    bool failed; /* memory could not be had */
} srv_doc;

typedef enum srv_json_status { SRV_JSON_OK, SRV_JSON_SYNTAX, SRV_JSON_DEEP, SRV_JSON_MANY, SRV_JSON_MEMORY } srv_json_status;

/* On anything but OK *offset is where it went wrong in the cleaned text. srv_doc_free is due in any case. */
srv_json_status srv_json_parse(srv_doc *d, const char *text, size_t n, size_t *offset);
void srv_doc_free(srv_doc *d);
/* NULL: out of memory, which `failed` remembers. */
void *srv_doc_alloc(srv_doc *d, size_t n);

/* The last member of that name; NULL when there is none, or it is null, or `object` is none. */
const srv_json *srv_get(const srv_json *object, const char *key);
const srv_json *srv_at(const srv_json *array, size_t i);
/* The string without quotes and escapes, NUL-terminated, in the document's memory. n may be NULL. */
char *srv_string(srv_doc *d, const srv_json *s, size_t *n);
bool srv_is(const srv_json *s, const char *text); /* is it this string? */
bool srv_key_is(const srv_json *member, const char *name);
bool srv_integer(const srv_json *j, int64_t *out); /* whole numbers, 3.0 too */
bool srv_number(const srv_json *j, double *out);

#endif
