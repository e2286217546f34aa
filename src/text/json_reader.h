/*
 * json_reader.h: JSON taken piece by piece from a buffer. A vocabulary of a quarter of a million tokens as a tree of
 * nodes costs a hundred megabytes and most of the time of opening a model; so the two long tables of tokenizer.json are
 * read through this, and everything else goes through jansson.
 *
 * Syntax errors give SWL_E_CORRUPT with the offset in the file.
 */
#ifndef SWL_TEXT_JSON_READER_H
#define SWL_TEXT_JSON_READER_H

#include "base/status.h"

typedef struct swl_json_reader {
    char *text; /* strings with escapes are decoded in place, so each is decoded once */
    size_t n, at;
    const char *path; /* for errors */
    swl_error *err;
} swl_json_reader;

/* The next thing that is not white space, or 0 at the end. It is not consumed. */
char swl_json_peek(swl_json_reader *r);

/* Consumes one character, '{', '[', ':' or another mark. */
swl_status swl_json_expect(swl_json_reader *r, char mark);

/* Between members or elements: consumes ',' or `close`; *more says which. `first` before the first one, where there is
 * no comma. */
swl_status swl_json_more(swl_json_reader *r, char close, bool first, bool *more);

/* A string, decoded and NUL-terminated in the buffer; well-formed UTF-8, *n bytes, which may be NUL. */
swl_status swl_json_string(swl_json_reader *r, const char **s, size_t *n);

/* Passes a string by, leaving it undecoded; *n is its length as written, no less than decoded. */
swl_status swl_json_skip_string(swl_json_reader *r, size_t *n);

/* A whole number of at most 18 digits. */
swl_status swl_json_integer(swl_json_reader *r, int64_t *value);

/* Passes a value by. Only brackets and strings are looked at: whoever reads the range [start, r->at) checks the rest.
 */
swl_status swl_json_skip_value(swl_json_reader *r, size_t *start);

#endif
