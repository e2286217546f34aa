/*
 * encode_lines.c: the tokenizer as a filter, for check_tokenizer.py, and a stopwatch.
 *
 *     encode_lines DIR [--plain]         each line of the input is a JSON string; for each comes one line
 *                                        {"ids": [...], "text": "..."}, where text is what the ids become when they are
 *                                        pushed through the streaming detokeniser one at a time
 *     encode_lines DIR --pieces          for each line the lengths in bytes of the pieces that it is cut into,
 * [1,4,...] encode_lines --detok               each line is a JSON string of hexadecimal digits: the bytes' text, a
 * JSON string encode_lines DIR --time FILE...    seconds to open DIR and to encode each file, best of five
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/tokenizer_impl.h"

typedef struct filter {
    const swl_tokenizer *t;
    uint32_t flags;
    json_t *(*line)(const struct filter *f, const json_t *s); /* the answer to one line, NULL: failed and said so */
} filter;

static int failed(const swl_error *err)
{
    fprintf(stderr, "encode_lines: %s\n", err->message);
    return 1;
}

/* What a client of a stream sees: every token pushed on its own. */
static json_t *stream_text(const swl_tokenizer *t, const int32_t *ids, int64_t n_ids)
{
    swl_detok detok;
    size_t n_max = 16, n_text = 0;
    json_t *out;
    char *text;
    int32_t n;

    for (int64_t i = 0; i < n_ids; i++) {
        swl_tokenizer_token(t, ids[i], &n);
        n_max += 3 * ((size_t)n + 4);
    }
    text = swl_calloc(n_max, 1);
    swl_detok_init(&detok);
    for (int64_t i = 0; i < n_ids; i++) {
        const char *bytes = swl_tokenizer_token(t, ids[i], &n);

        n_text += swl_detok_push(&detok, bytes, (size_t)n, text + n_text);
    }
    n_text += swl_detok_flush(&detok, text + n_text);
    out = json_stringn(text, n_text); /* NULL unless it is UTF-8 */
    swl_free(text);
    return out;
}

static json_t *line_ids(const filter *f, const json_t *s)
{
    swl_error err;
    int32_t *ids;
    int64_t n_ids;
    json_t *list = json_array(), *out;

    if (swl_tokenizer_encode(f->t, json_string_value(s), json_string_length(s), f->flags, &ids, &n_ids, &err)) {
        failed(&err);
        return NULL;
    }
    for (int64_t i = 0; i < n_ids; i++)
        json_array_append_new(list, json_integer(ids[i]));
    out = json_pack("{s:o,s:o}", "ids", list, "text", stream_text(f->t, ids, n_ids));
    swl_free(ids);
    return out;
}

static json_t *line_pieces(const filter *f, const json_t *s)
{
    size_t n = json_string_length(s), n_piece;
    json_t *list = json_array();
    swl_split w;
    swl_error err;
    swl_status st = swl_split_init(&w, f->t->splitter, &err);

    for (size_t at = 0; !st && at < n; at += n_piece) {
        st = swl_split_next(&w, (const uint8_t *)json_string_value(s), n, at, &n_piece, &err);
        json_array_append_new(list, json_integer((json_int_t)n_piece));
    }
    swl_split_deinit(&w);
    if (st)
        failed(&err);
    return st ? NULL : list;
}

/* Pushed in steps of one, two, ... seven bytes, so that characters are cut everywhere. */
static json_t *line_detok(const filter *f, const json_t *s)
{
    size_t n = json_string_length(s) / 2, n_text = 0, step = 1;
    char *bytes = swl_calloc(n, 1), *text = swl_calloc(3 * n + 64, 1);
    swl_detok detok;
    json_t *out;

    (void)f;
    for (size_t i = 0; i < n; i++) {
        char digits[3] = {json_string_value(s)[2 * i], json_string_value(s)[2 * i + 1], 0};

        bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    swl_detok_init(&detok);
    for (size_t i = 0; i < n; i += step, step = step % 7 + 1)
        n_text += swl_detok_push(&detok, bytes + i, n - i < step ? n - i : step, text + n_text);
    n_text += swl_detok_flush(&detok, text + n_text);
    out = json_stringn(text, n_text);
    swl_free(bytes);
    swl_free(text);
    return out;
}

static int run(const filter *f)
{
    char *line = NULL;
    size_t n_max = 0;
    ssize_t n;
    int rc = 0;

    while (!rc && (n = getline(&line, &n_max, stdin)) > 0) {
        json_t *s = json_loadb(line, (size_t)n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        json_t *out = json_is_string(s) ? f->line(f, s) : NULL;

        if (!json_is_string(s))
            fprintf(stderr, "encode_lines: a line is not a JSON string: %.80s\n", line);
        rc = !out || json_dumpf(out, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
        putchar('\n');
        json_decref(out);
        json_decref(s);
    }
    free(line);
    return rc;
}

/* Processor time: one thread works, and other programs on the machine should not count. */
static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int time_file(const swl_tokenizer *t, const char *path)
{
    swl_error err;
    char *text;
    size_t n;
    double best = 1e9;
    int32_t *ids;
    int64_t n_ids = 0;

    if (swl_file_load(&text, &n, path, UINT64_C(1) << 30, &err))
        return failed(&err);
    for (int i = 0; i < 5; i++) {
        double start = seconds(), took;

        if (swl_tokenizer_encode(t, text, n, 0, &ids, &n_ids, &err))
            return failed(&err);
        took = seconds() - start;
        best = took < best ? took : best;
        swl_free(ids);
    }
    printf("%s: %zu bytes, %" PRId64 " ids, %.4f s, %.1f MB/s\n", path, n, n_ids, best, (double)n / best / 1e6);
    swl_free(text);
    return 0;
}

static int time_open(const char *dir)
{
    swl_error err;
    swl_tokenizer *t;
    double best = 1e9;

    for (int i = 0; i < 5; i++) {
        double start = seconds(), took;

        if (swl_tokenizer_open(&t, dir, &err))
            return failed(&err);
        took = seconds() - start;
        best = took < best ? took : best;
        swl_tokenizer_close(t);
    }
    printf("%s: open %.3f s\n", dir, best);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[2] : "";
    filter f = {NULL, strcmp(mode, "--plain") ? 0 : SWL_ENCODE_PLAIN,
                strcmp(mode, "--pieces") ? line_ids : line_pieces};
    swl_tokenizer *t = NULL;
    swl_error err;
    int rc = 0;

    if (argc < 2) {
        fputs("usage: encode_lines DIR [--plain | --pieces | --time FILE...] or encode_lines --detok\n", stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--detok")) {
        f.line = line_detok;
        return run(&f);
    }
    if (!strcmp(mode, "--time") && time_open(argv[1]))
        return 1;
    if (swl_tokenizer_open(&t, argv[1], &err))
        return failed(&err);
    f.t = t;
    if (!strcmp(mode, "--time"))
        for (int i = 3; !rc && i < argc; i++)
            rc = time_file(t, argv[i]);
    else
        rc = run(&f);
    swl_tokenizer_close(t);
    return rc;
}
