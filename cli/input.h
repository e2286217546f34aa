/* input.h: text and lists of ids that a user hands over. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "options.h"

/* The whole of a text file ("-": standard input), NUL-terminated, without a byte order mark. Invalid UTF-8 is an error
 * that names the offset. *text: free. A closed standard input is an empty one. */
swl_status input_text(const char *path, char **text, size_t *n_bytes, swl_error *err);

/* What --system and --system-file say: free; NULL: nothing. */
swl_status system_message(const arguments *a, char **text, swl_error *err);

/* A message and a text that goes with it: free. NULL: out of memory. */
char *input_joined(const char *turn, const char *text);

/* Offset of the first byte that is not UTF-8, or n_bytes. */
size_t utf8_valid_prefix(const char *text, size_t n_bytes);

/* A growing list of token ids. */
typedef struct id_list {
    int32_t *ids;
    int32_t n, n_max;
} id_list;

swl_status id_list_append(id_list *l, const int32_t *ids, int64_t n, swl_error *err);
void id_list_free(id_list *l);
/* "1,2,3", spaces allowed. */
swl_status id_list_parse(id_list *l, const char *text, swl_error *err);

#endif
