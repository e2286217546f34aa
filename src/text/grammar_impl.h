/*
 * grammar_impl.h: what the files of the grammars share.
 *
 * A grammar is a program of a few hundred nodes and the bytes that they read. Regular parts (strings, numbers, names,
 * fixed text) are states of one deterministic automaton over bytes; nodes put them in order, and frames on a stack
 * remember where nested objects and arrays go on. Where a choice stays open there are several configurations (node,
 * state, frame) at a time. Nothing is a dead end: automata are trimmed to states that can still end, and a nested value
 * is only entered where it can be finished above the depth that is left. So whatever is allowed can be completed.
 *
 *     grammar.c         the interface; walking: configurations, bytes, tokens
 *     grammar_mask.c    all allowed tokens at once
 *     grammar_vocab.c   the vocabulary as a trie, and what is computed once for a tokenizer
 *     grammar_bytes.c   automata over bytes: word lists, machines explored state by state
 *     grammar_text.c    the machines of JSON strings, keys, and free text in the XML form of calls
 *     grammar_number.c  the machine of numbers
 *     grammar_regex.c   patterns and formats
 *     grammar_schema.c  schemas to nodes;   grammar_merge.c: keywords, references, merging of schemas
 *     grammar_object.c  objects and arrays to nodes
 *     grammar_tool.c    calls of tools
 *     grammar_compile.c nodes, values and rules; faults
 */
#ifndef SWL_TEXT_GRAMMAR_IMPL_H
#define SWL_TEXT_GRAMMAR_IMPL_H

#include <pthread.h>

#include "base/status.h"
#include "text/grammar.h"
#include "text/sbuf.h"
#include "text/tokenizer_impl.h"

enum {
    SWL_GRAMMAR_DEPTH_MAX = 48,        /* of objects and arrays inside each other */
    SWL_GRAMMAR_TOKEN_BYTES_MAX = 256, /* longer tokens are never used: their text can be spelled */
    SWL_GRAMMAR_CONFIGS_MAX = 4096,    /* at a time; more are dropped, which takes choices away and breaks nothing */
    SWL_GRAMMAR_NEW_FRAMES_MAX = 128, /* that one byte may open: the same of choices that stay open level after level */
    SWL_GRAMMAR_FRAMES_MAX = 1 << 18,
    SWL_GRAMMAR_SCHEMA_BYTES_MAX = 256 * 1024,
    SWL_GRAMMAR_NODES_MAX = 400000,
    SWL_GRAMMAR_STATES_MAX = 600000,
    SWL_GRAMMAR_EDGES_MAX = 2000000,
    SWL_GRAMMAR_PIECE_STATES_MAX = 40000, /* of one string's, number's or key's automaton */
    SWL_GRAMMAR_WORK_MAX = 20000000       /* steps of making automata, of one grammar */
};

/* ---- automata over bytes (grammar_bytes.c) ---- */

typedef struct swl_byte_edge {
    uint8_t lo, hi;
    int32_t to;
} swl_byte_edge;

typedef struct swl_byte_state {
    int32_t edges;    /* the first, in swl_bytes.edges; they are in ascending order */
    uint16_t n_edges; /* at most 256 */
    bool accept;
    uint8_t tail; /* free text: how many of the last characters may belong to what ends it */
} swl_byte_state;

typedef struct swl_bytes {
    swl_byte_state *states;
    swl_byte_edge *edges;
    int32_t n_states, n_edges;
    size_t cap_states, cap_edges;
    swl_status failed; /* SWL_E_NOMEM or SWL_E_BUDGET; all that follows does nothing */
} swl_bytes;

void swl_bytes_deinit(swl_bytes *b);
/* n new states without edges; the first one's id, -1 when that failed. */
int32_t swl_bytes_add(swl_bytes *b, int32_t n);
/* Sets the edges of a state, once. Edges that neighbour each other and lead to one state are joined. */
void swl_bytes_fill(swl_bytes *b, int32_t state, const swl_byte_edge *edges, int32_t n, bool accept);
/* Copies what can be reached from `start` and can still end. The copy of `start`; -1: it cannot end, or failed. */
int32_t swl_bytes_append(swl_bytes *to, const swl_bytes *from, int32_t start);

/* The state after a byte, -1: none. */
static inline int32_t swl_bytes_step(const swl_bytes *b, int32_t state, uint8_t byte)
{
    const swl_byte_state *s = &b->states[state];
    const swl_byte_edge *e = b->edges + s->edges;

    for (int32_t i = 0; i < s->n_edges && byte >= e[i].lo; i++)
        if (byte <= e[i].hi)
            return e[i].to;
    return -1;
}

typedef struct swl_word {
    const char *p;
    size_t n;
} swl_word;

/* The automaton of a list of words. */
int32_t swl_bytes_words(swl_bytes *b, const swl_word *words, size_t n);
/* The same for strings, up to NULL. */
int32_t swl_bytes_strings(swl_bytes *b, const char *const *words);

/* An automaton whose states are values of a struct without padding that differs (zeroed before it is filled). */
typedef struct swl_machine {
    size_t n_key;         /* bytes of the struct, at most 32 */
    const char *alphabet; /* the bytes to try, in ascending order; NULL: */
    size_t n_symbols;     /* those below this, 0: all */
    const void *arg;
    bool (*step)(const void *arg, const void *from, uint8_t byte, void *to); /* *to begins as a copy of *from */
    bool (*accept)(const void *arg, const void *state);
    uint8_t (*tail)(const void *arg, const void *state); /* NULL: 0 */
} swl_machine;

/* All states that the machine reaches from `start`, trimmed. work: steps taken are subtracted; below 0 is SWL_E_BUDGET.
 */
int32_t swl_bytes_machine(swl_bytes *b, const swl_machine *m, const void *start, int64_t *work);

/* ---- what is computed once for a tokenizer (grammar_vocab.c) ---- */

/* Automata that every grammar begins with, so that what is known about their states is known for all grammars. */
enum {
    SWL_PART_STRING, /* a JSON string */
    SWL_PART_BODY,   /* the same behind its opening quote */
    SWL_PART_NUMBER,
    SWL_PART_INTEGER,
    SWL_PART_TEXT,      /* free text and "\n</parameter>" behind it (or "</parameter>" at once), */
    SWL_PART_TEXT_NULL, /* which may be null, too */
    SWL_PART_BOOLEAN,
    SWL_PART_ANY_BOOLEAN, /* "True" as well */
    SWL_PART_NULL,
    SWL_PART_OPEN_OBJECT,
    SWL_PART_CLOSE_OBJECT,
    SWL_PART_OPEN_ARRAY,
    SWL_PART_CLOSE_ARRAY,
    SWL_PART_COMMA,
    SWL_PART_COLON,     /* and perhaps one space */
    SWL_PART_END_VALUE, /* "\n</parameter>" */
    SWL_N_PARTS
};

typedef struct swl_trie_node {
    uint32_t size_byte; /* nodes of the subtree, itself included, 24 bits; the byte that leads here */
    int32_t token;      /* that ends here, or -1 */
} swl_trie_node;

static inline int32_t swl_trie_size(const swl_trie_node *n)
{
    return (int32_t)(n->size_byte >> 8);
}

static inline uint8_t swl_trie_byte(const swl_trie_node *n)
{
    return (uint8_t)n->size_byte;
}

/* What a state of the automaton says about all tokens. */
typedef struct swl_mask_entry {
    uint32_t *bits;       /* tokens that stay inside the automaton */
    int32_t *exits;       /* [n_exits] trie nodes where it may end, with more of the token to come */
    uint16_t *exit_chars; /* [n_exits] characters that begin on the way there */
    int32_t *ids;         /* [n_ids] the same tokens as in `bits`, made when characters count, */
    uint16_t *id_chars;   /* [n_ids] and twice the characters that begin in each, plus 1 where it ends the automaton */
    int32_t n_exits, n_ids;
    size_t n_bytes;
} swl_mask_entry;

typedef struct swl_vocab {
    const swl_tokenizer *tokenizer;
    swl_trie_node *nodes; /* in preorder */
    int32_t n_nodes;
    int32_t n_words;   /* of a mask */
    uint32_t *usable;  /* mask of the tokens in the trie */
    uint32_t *stops;   /* mask of the stop tokens */
    int32_t chars_max; /* no token has more characters */
    swl_bytes parts;
    int32_t part[SWL_N_PARTS];
    pthread_mutex_t lock;     /* over all entries, the grammars' too: one is made once, and stays */
    swl_mask_entry **entries; /* [parts.n_states] */
} swl_vocab;

/* Made at the first call for this tokenizer, which owns it. */
swl_status swl_vocab_get(const swl_vocab **out, const swl_tokenizer *t, swl_error *err);
void swl_vocab_free(swl_vocab *v); /* NULL is allowed */

/* grammar_text.c: the machines of the parts above, and of keys of an object that are none of `names` (JSON text of
 * strings, quotes included). */
int32_t swl_text_string(swl_bytes *b, int64_t *work);
int32_t swl_text_free(swl_bytes *b, bool may_be_null, int64_t *work);
int32_t swl_text_other_key(swl_bytes *b, const swl_word *names, size_t n, int64_t *work);
/* The same for names of parameters in the XML form: letters, digits, '_', '-', '.', at most 64 of them. */
int32_t swl_text_other_parameter(swl_bytes *b, const swl_word *names, size_t n, int64_t *work);

/* grammar_number.c */
typedef struct swl_number_spec {
    bool integer;
    const json_t *minimum, *maximum, *exclusive_minimum, *exclusive_maximum, *multiple_of; /* numbers, or NULL */
} swl_number_spec;

/* *start: -1 when there is no such number. *keyword names what cannot be enforced (SWL_E_UNSUPPORTED). */
swl_status swl_number_automaton(swl_bytes *b, const swl_number_spec *spec, int32_t *start, const char **keyword,
                                int64_t *work);
/* A number in JSON, in its shortest spelling that reads back as the same. */
void swl_number_put(const json_t *number, swl_sbuf *out);

/* grammar_regex.c */
typedef struct swl_string_spec {
    const char *const *patterns; /* [n_patterns] all of them must be found in the string */
    size_t n_patterns;
    int32_t min, max; /* characters; max -1: no limit */
    bool raw;         /* as it is; else as the inside of a JSON string with its quotes */
} swl_string_spec;

/* *start: -1 when no string fits. SWL_E_UNSUPPORTED and *why, *which when a pattern is not regular or not known here.
 */
swl_status swl_regex_automaton(swl_bytes *b, const swl_string_spec *spec, int32_t *start, size_t *which,
                               const char **why, int64_t *work);
/* The pattern of a format of JSON Schema; NULL: unknown. */
const char *swl_format_pattern(const char *format);

/* ---- grammars ---- */

typedef enum swl_node_kind {
    SWL_NODE_BYTES,  /* a: start state */
    SWL_NODE_STRING, /* a: start state of SWL_PART_STRING; b, c: fewest and most characters, c -1: no limit */
    SWL_NODE_TEXT,   /* the same for SWL_PART_TEXT and SWL_PART_TEXT_NULL */
    SWL_NODE_TOKEN,  /* a: its id */
    SWL_NODE_SPLIT,  /* a: first, in swl_grammar.lists, of b nodes: any of them */
    SWL_NODE_CALL,   /* a: rule; next: where to go on behind it */
    SWL_NODE_RETURN,
    SWL_NODE_COUNT,    /* the frame has one more element; no more than a are counted */
    SWL_NODE_AT_LEAST, /* only where the frame has a elements */
    SWL_NODE_BELOW,    /* only where it has fewer than a */
    SWL_NODE_FITS,     /* only where the value a can be finished in the depth that is left */
    SWL_NODE_END
} swl_node_kind;

typedef struct swl_node {
    swl_node_kind kind;
    int32_t next, a, b, c;
} swl_node;

/* One of the things that a value may be. */
typedef struct swl_option {
    swl_node_kind kind; /* BYTES, STRING, TEXT or CALL */
    int32_t a, b, c;    /* of the node */
} swl_option;

typedef struct swl_value {
    int32_t options, n_options; /* in swl_grammar.options; none: no such value can be written */
    int32_t height;             /* levels of nesting that it takes at least */
} swl_value;

typedef struct swl_rule {
    int32_t entry;
    int32_t needs, n_needs; /* in swl_grammar.lists: values that each of its objects or arrays has */
    int32_t height;         /* 1 and those of what it needs; SWL_HEIGHT_NEVER: it cannot be written */
} swl_rule;

#define SWL_HEIGHT_NEVER (1 << 20)

struct swl_grammar {
    const swl_vocab *vocab;
    swl_bytes bytes; /* begins with vocab->parts */
    swl_node *nodes;
    int32_t *lists;
    swl_option *options;
    swl_value *values;
    swl_rule *rules;
    int32_t n_nodes, n_lists, n_options, n_values, n_rules;
    size_t cap_nodes, cap_lists, cap_options, cap_values, cap_rules;
    int32_t root;
    swl_mask_entry **entries; /* [bytes.n_states], those of the parts excepted; under vocab->lock */
    size_t entry_bytes;
};

typedef struct swl_frame {
    int32_t next, parent, count, depth;
} swl_frame;

typedef struct swl_config {
    int32_t node, state, frame, count; /* count: characters of a string */
} swl_config;

/* Configurations and frames as stacks: what a trial puts on top is taken off again. */
typedef struct swl_walk {
    const swl_grammar *g;
    swl_config *configs;
    swl_frame *frames;
    int32_t n_configs, n_frames, n_current; /* the first n_current are the state */
    int32_t set, set_frames;                /* where the set begins that is being made, and its new frames */
    size_t cap_configs, cap_frames;
    bool seen_valid;
    uint32_t seen[4096 / 32]; /* hashes of the set's configurations, once there are many */
    bool failed;              /* out of memory: something was dropped */
} swl_walk;

struct swl_grammar_state {
    swl_walk *walk; /* apart, because a trial works there */
    int32_t n_frames_kept;
};

/* A new set of configurations begins behind the others. */
void swl_walk_begin_set(swl_walk *w);
/* Puts behind the others what can be read next at this place of the grammar. */
void swl_walk_enter(swl_walk *w, int32_t node, int32_t frame);
/* Puts the configurations after `byte` of [begin, end) behind the others: a new set, perhaps empty. */
void swl_walk_step(swl_walk *w, int32_t begin, int32_t end, uint8_t byte);
/* Where a string of SWL_NODE_STRING or TEXT with `count` characters goes by a byte: *count is brought up to date. -1:
 * none.
 */
int32_t swl_walk_counted(const swl_grammar *g, const swl_node *n, int32_t state, uint8_t byte, int32_t *count);

void swl_mask_entry_free(swl_mask_entry *e);

/* ---- making them ---- */

/* What was made of a schema, or of two: the same pointers give the same result. */
typedef struct swl_memo {
    const void *a, *b;
    int32_t kind, at;
    const json_t *schema;
} swl_memo;

enum { SWL_MEMO_VALUE, SWL_MEMO_PARAMETER, SWL_MEMO_OBJECT, SWL_MEMO_ARRAY, SWL_MEMO_MERGED, SWL_MEMO_WITHOUT };

typedef struct swl_todo {
    const json_t *schema;
    char *path;
    int32_t rule;
    bool array;
} swl_todo;

typedef struct swl_compiler {
    swl_grammar *g;
    const char *what;      /* "schema", "tools": how messages begin */
    const json_t *root;    /* what "#" means, */
    const char *root_path; /* and its own JSON pointer */
    swl_error *err;
    swl_status st; /* the first fault; all that follows does nothing */
    int64_t work;
    int32_t depth;
    json_t *owned;                     /* array: schemas that were made */
    const json_t *object, *array, *no; /* {"type":"object"}, {"type":"array"}, false */
    swl_memo *memo;                    /* hash table */
    size_t n_memo, cap_memo;
    swl_todo *todo; /* rules that are still to be filled */
    size_t n_todo, cap_todo;
} swl_compiler;

bool swl_grow(void **p, size_t *cap, size_t n, size_t size); /* room for n elements */

swl_status swl_grammar_create(swl_grammar **out, const swl_tokenizer *t, swl_error *err);
/* Nothing more is added: heights, and whether anything can be written. */
swl_status swl_grammar_seal(swl_grammar *g, swl_error *err);

/* grammar_compile.c: the compiler's own tools */
void swl_compiler_init(swl_compiler *c, swl_grammar *g, const char *what, swl_error *err);
void swl_compiler_deinit(swl_compiler *c);
/* Sets the fault unless there is one. The message begins with what is compiled and `path`. */
void swl_compiler_fail(swl_compiler *c, swl_status st, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes over a fault of the automata; whether all is well. */
bool swl_compiler_ok(swl_compiler *c, const char *path);
swl_memo *swl_memo_find(swl_compiler *c, int32_t kind, const void *a, const void *b);
void swl_memo_add(swl_compiler *c, swl_memo m);
/* Keeps a new schema until the end; takes the reference. */
const json_t *swl_compiler_own(swl_compiler *c, json_t *schema);
/* "PATH/KEY" as a JSON pointer; free with swl_free. NULL: out of memory, noted. */
char *swl_compiler_path(swl_compiler *c, const char *path, const char *key);
char *swl_compiler_path_at(swl_compiler *c, const char *path, size_t index);

int32_t swl_add_node(swl_compiler *c, swl_node_kind kind, int32_t a, int32_t next);
int32_t swl_add_counted(swl_compiler *c, swl_node_kind kind, int32_t a, int32_t min, int32_t max, int32_t next);
int32_t swl_add_part(swl_compiler *c, int32_t part, int32_t next);
int32_t swl_add_text(swl_compiler *c, const char *text, size_t n, int32_t next); /* fixed text */
int32_t swl_add_words(swl_compiler *c, const swl_word *words, size_t n, int32_t next);
/* Any of n nodes; one is itself. */
int32_t swl_add_split(swl_compiler *c, const int32_t *nodes, int32_t n);
/* A split of n nodes that are set later, at swl_grammar.lists[swl_node.a]. */
int32_t swl_add_open_split(swl_compiler *c, int32_t n);
int32_t swl_add_value(swl_compiler *c, int32_t value, int32_t next);
/* The value of a parameter in the XML form, and what ends it there. */
int32_t swl_add_parameter(swl_compiler *c, int32_t value, int32_t next);
/* `node`, if the value can be finished in the depth that is left. */
int32_t swl_add_if_fits(swl_compiler *c, int32_t value, int32_t node);
int32_t swl_new_rule(swl_compiler *c);
void swl_rule_needs(swl_compiler *c, int32_t rule, const int32_t *values, int32_t n);
int32_t swl_new_value(swl_compiler *c, const swl_option *options, int32_t n);

/* grammar_schema.c: a schema as a value, compiled once. The path names it in messages. */
int32_t swl_compile_value(swl_compiler *c, const json_t *schema, const char *path);
int32_t swl_compile_parameter(swl_compiler *c, const json_t *schema, const char *path);
/* The object schemas that a schema allows: calls `each`. */
void swl_compile_objects(swl_compiler *c, const json_t *schema, const char *path,
                         void (*each)(void *arg, const json_t *schema, const char *path), void *arg);
/* Fills the rules that were asked for. */
void swl_compile_rules(swl_compiler *c);

/* grammar_object.c */
typedef struct swl_property {
    const char *key;
    const json_t *schema;
    char *path;
    bool required;
} swl_property;

typedef struct swl_object {
    swl_property *list;
    size_t n, cap;
    const json_t *other; /* the schema of other properties, NULL: there are none */
    const json_t *names; /* what their names have to be, NULL: anything else */
    char *other_path;
} swl_object;

/* What an object schema says, in the order of its properties. swl_object_deinit in any case. */
void swl_object_read(swl_compiler *c, const json_t *schema, const char *path, swl_object *out);
void swl_object_deinit(swl_object *o);
void swl_compile_object(swl_compiler *c, int32_t rule, const json_t *schema, const char *path);
void swl_compile_array(swl_compiler *c, int32_t rule, const json_t *schema, const char *path);
/* A count: a whole number from 0 to 2^30; `otherwise` when the keyword is missing. */
int32_t swl_schema_count(swl_compiler *c, const json_t *schema, const char *key, int32_t otherwise, const char *path);

/* grammar_merge.c: keywords */
enum {
    SWL_TYPE_NULL = 1,
    SWL_TYPE_BOOLEAN = 2,
    SWL_TYPE_INTEGER = 4,
    SWL_TYPE_NUMBER = 8,
    SWL_TYPE_STRING = 16,
    SWL_TYPE_OBJECT = 32,
    SWL_TYPE_ARRAY = 64
};

/* Refuses what is no schema, and keywords that are not known, with their pointer. */
void swl_schema_check(swl_compiler *c, const json_t *schema, const char *path);
/* Whether it says anything besides annotations and definitions, `but` excepted (may be NULL). */
bool swl_schema_says(const json_t *schema, const char *but);
/* The types that "type" lists, or those that its other keywords speak of; 0: it speaks of none. */
uint32_t swl_schema_types(swl_compiler *c, const json_t *schema, const char *path);
/* The schema that "$ref" names; *target is its path (free with swl_free). NULL: a fault. */
const json_t *swl_schema_resolve(swl_compiler *c, const json_t *ref, const char *path, char **target);
/* The same schema without a keyword. */
const json_t *swl_schema_without(swl_compiler *c, const json_t *schema, const char *key);
/* What both allow. */
const json_t *swl_schema_merge(swl_compiler *c, const json_t *a, const json_t *b, const char *path);
/* Refuses alternatives of "oneOf" that might both be true of one value. */
void swl_schema_check_one_of(swl_compiler *c, const json_t *list, const char *path);

/* json_object_foreach for a borrowed object. */
#define SWL_OBJECT_EACH(object, key, value)                                                                            \
    for (void *iter_ = json_object_iter((json_t *)(object));                                                           \
         iter_ && ((key) = json_object_iter_key(iter_), (value) = json_object_iter_value(iter_), (void)(value), true); \
         iter_ = json_object_iter_next((json_t *)(object), iter_))

#endif
