/*
 * grammar_regex.h: a pattern as a tree, between its parser and its automaton.
 */
#ifndef SWL_TEXT_GRAMMAR_REGEX_H
#define SWL_TEXT_GRAMMAR_REGEX_H

#include "text/grammar_impl.h"

enum { SWL_CODE_MAX = 0x10FFFF };

typedef struct swl_code_range {
    int32_t lo, hi;
} swl_code_range;

/* Code points: ascending ranges that do not touch. */
typedef struct swl_code_set {
    int32_t first, n; /* in swl_regex.ranges */
} swl_code_set;

typedef enum swl_regex_kind {
    SWL_REGEX_EMPTY,
    SWL_REGEX_SET,    /* a: set */
    SWL_REGEX_CAT,    /* a: the last part; the others by `before` */
    SWL_REGEX_ALT,    /* a: one of the alternatives; the others by `before` */
    SWL_REGEX_REPEAT, /* a, min times to max times; max -1: no limit */
    SWL_REGEX_BEGIN,  /* ^ */
    SWL_REGEX_END     /* $ */
} swl_regex_kind;

typedef struct swl_regex_node {
    swl_regex_kind kind;
    int32_t a, min, max;
    int32_t before; /* of the same list; -1: none */
} swl_regex_node;

/* Trees of several patterns that share their sets. */
typedef struct swl_regex {
    swl_regex_node *nodes;
    swl_code_set *sets;
    swl_code_range *ranges;
    int32_t n_nodes, n_sets, n_ranges;
    size_t cap_nodes, cap_sets, cap_ranges;
    int64_t *work;
    swl_status failed;
    const char *why; /* of SWL_E_UNSUPPORTED */
} swl_regex;

void swl_regex_deinit(swl_regex *r);
/* The root of a pattern's tree (ECMAScript, as JSON Schema asks for), -1: see failed. */
int32_t swl_regex_parse(swl_regex *r, const char *pattern);

#endif
