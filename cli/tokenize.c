/* tokenize.c: swiftlet tokenize MODEL [TEXT]: ids and pieces. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "engine.h"
#include "input.h"
#include "output.h"

/* A piece in quotes on one line; bytes that are no whole character as \xNN. */
static void print_piece(int32_t id, const char *p, size_t n)
{
    out_printf("%7d  \"", id);
    for (size_t at = 0; at < n;) {
        size_t valid = utf8_valid_prefix(p + at, n - at);
        size_t plain = 0;

        while (plain < valid && (unsigned char)p[at + plain] >= 0x20 && p[at + plain] != '"' && p[at + plain] != '\\')
            plain++;
        out_text(p + at, plain);
        at += plain;
        if (at == n)
            break;
        if (p[at] == '"' || p[at] == '\\')
            out_printf("\\%c", p[at]);
        else if (p[at] == '\n')
            out_printf("\\n");
        else
            out_printf("\\x%02x", (unsigned char)p[at]);
        at++;
    }
    out_printf("\"\n");
}

static void print_tokens(const swl_tokenizer *t, const int32_t *ids, int64_t n_ids, bool json)
{
    json_t *root = json ? out_object() : NULL, *rows = json ? json_array() : NULL;

    for (int64_t i = 0; i < n_ids; i++) {
        int32_t n = 0;
        const char *p = swl_tokenizer_token(t, ids[i], &n);

        if (json) {
            json_t *row = json_object();
            json_object_set_new(row, "id", json_integer(ids[i]));
            json_object_set_new(row, "piece", out_bytes_json(p ? p : "", (size_t)n));
            json_array_append_new(rows, row);
        } else {
            print_piece(ids[i], p ? p : "", (size_t)n);
        }
    }
    if (json) {
        json_object_set_new(root, "n", json_integer(n_ids));
        json_object_set_new(root, "tokens", rows);
        out_json(root);
    }
}

static swl_status text_operand(const char *operand, char **text, size_t *n, swl_error *err)
{
    if (!operand && stdin_is_terminal())
        return fail(err, SWL_E_ARG, "no text: give one after MODEL, or pipe one in");
    if (!operand || !strcmp(operand, "-"))
        return input_text("-", text, n, err);
    *n = strlen(operand);
    *text = malloc(*n + 1);
    if (!*text)
        return fail(err, SWL_E_NOMEM, "out of memory");
    memcpy(*text, operand, *n + 1);
    return SWL_OK;
}

swl_status run_tokenize(const arguments *a, swl_error *err)
{
    int first;
    const char *dir = model_dir(a, &first);
    swl_tokenizer *t = NULL;
    char *text = NULL;
    size_t n = 0;
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    swl_status st = text_operand(first < a->n_operands ? a->operands[first] : NULL, &text, &n, err);

    if (!st)
        st = model_check(dir, err);
    if (!st)
        st = swl_tokenizer_open(&t, dir, err);
    if (!st)
        st = swl_tokenizer_encode(t, text, n, 0, &ids, &n_ids, err);
    if (!st)
        print_tokens(t, ids, n_ids, opt_on(a, OPT_JSON));
    swl_free(ids);
    swl_tokenizer_close(t);
    free(text);
    return st;
}
