/* input.c: reading text and ids. */
#define _POSIX_C_SOURCE 200809L
#include "input.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "values.h"

/* No text is read beyond this, so that what does not end does not take the memory of the machine: fifty times what a context of
 * a million tokens holds of ordinary text. */
#define TEXT_BYTES_MAX ((size_t)256 << 20)

/* Bytes of the character at p, 0 when it is not well-formed (overlong, surrogate, above U+10FFFF, cut off). */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    size_t len = *p < 0x80 ? 1 : *p >= 0xc2 && *p < 0xe0 ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p < 0xf5 ? 4 : 0;

    if (!len || len > n)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
        (*p == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

size_t utf8_valid_prefix(const char *text, size_t n_bytes)
{
    size_t at = 0;

    while (at < n_bytes) {
        size_t len = utf8_length((const unsigned char *)text + at, n_bytes - at);
        if (!len)
            break;
        at += len;
    }
    return at;
}

static swl_status read_all(FILE *f, const char *name, char **text, size_t *n_bytes, swl_error *err)
{
    size_t size = 0, n = 0;
    char *p = NULL;

    for (;;) {
        size_t got;

        if (size - n < 4096) {
            char *more = realloc(p, size = size ? size * 2 : 65536);
            if (!more) {
                free(p);
                return fail(err, SWL_E_NOMEM, "out of memory for the text of %s", name);
            }
            p = more;
        }
        got = fread(p + n, 1, size - n - 1, f);
        n += got;
        if (!got)
            break;
        if (n > TEXT_BYTES_MAX) {
            free(p);
            return fail(err, SWL_E_BUDGET, "%s has more than the %zu MiB that are read of a text", name, TEXT_BYTES_MAX >> 20);
        }
    }
    p[n] = 0;
    if (ferror(f) && errno != EBADF) {
        free(p);
        fail(err, SWL_E_IO, "cannot read %s: %s", name, strerror(errno));
        snprintf(err->file, sizeof err->file, "%s", name);
        return SWL_E_IO;
    }
    *text = p;
    *n_bytes = n;
    return SWL_OK;
}

static swl_status check_text(const char *name, char *text, size_t *n_bytes, swl_error *err)
{
    size_t valid = utf8_valid_prefix(text, *n_bytes);

    if (valid < *n_bytes) {
        fail(err, SWL_E_ARG, "%s is not UTF-8 text: byte 0x%02x at offset %zu", name, (unsigned char)text[valid], valid);
        snprintf(err->file, sizeof err->file, "%s", name);
        err->offset = (int64_t)valid;
        return SWL_E_ARG;
    }
    if (*n_bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
        memmove(text, text + 3, *n_bytes - 3 + 1);
        *n_bytes -= 3;
    }
    return SWL_OK;
}

swl_status input_text(const char *path, char **text, size_t *n_bytes, swl_error *err)
{
    bool standard = !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    FILE *f = standard ? stdin : fopen(path, "rb");
    swl_status st;

    *text = NULL;
    if (!f) {
        fail(err, errno == ENOENT ? SWL_E_NOT_FOUND : SWL_E_IO, "cannot open %s: %s", path, strerror(errno));
        snprintf(err->file, sizeof err->file, "%s", path);
        return err->code;
    }
    st = read_all(f, name, text, n_bytes, err);
    if (!standard)
        fclose(f);
    if (!st)
        st = check_text(name, *text, n_bytes, err);
    if (st) {
        free(*text);
        *text = NULL;
    }
    return st;
}

swl_status system_message(const arguments *a, char **text, swl_error *err)
{
    const option_value *typed = &a->values[OPT_SYSTEM], *file = &a->values[OPT_SYSTEM_FILE];
    size_t n;

    *text = NULL;
    if (file->set && (!typed->set || file->origin > typed->origin))
        return input_text(file->text, text, &n, err);
    if (typed->set && *typed->text)
        *text = strdup(typed->text);
    return typed->set && *typed->text && !*text ? fail(err, SWL_E_NOMEM, "out of memory") : SWL_OK;
}

char *input_joined(const char *turn, const char *text)
{
    size_t n = strlen(turn) + strlen(text) + 3;
    char *p = malloc(n);

    if (p)
        snprintf(p, n, "%s\n\n%s", turn, text);
    return p;
}

swl_status id_list_append(id_list *l, const int32_t *ids, int64_t n, swl_error *err)
{
    if (n > INT32_MAX / 4 - l->n)
        return fail(err, SWL_E_ARG, "the text has more than %d tokens", INT32_MAX / 4);
    if (l->n + n > l->n_max) {
        int32_t n_max = (int32_t)(l->n + n) * 2;
        int32_t *more = realloc(l->ids, (size_t)n_max * sizeof *more);
        if (!more)
            return fail(err, SWL_E_NOMEM, "out of memory for %d token ids", n_max);
        l->ids = more;
        l->n_max = n_max;
    }
    if (n)
        memcpy(l->ids + l->n, ids, (size_t)n * sizeof *ids);
    l->n += (int32_t)n;
    return SWL_OK;
}

void id_list_free(id_list *l)
{
    free(l->ids);
    memset(l, 0, sizeof *l);
}

swl_status id_list_parse(id_list *l, const char *text, swl_error *err)
{
    const char *p = text;
    swl_status st = SWL_OK;

    while (!st) {
        char word[48];
        size_t n = strcspn(p + strspn(p, " "), ", ");
        int64_t id;
        int32_t narrow;

        p += strspn(p, " ");
        snprintf(word, sizeof word, "%.*s%s", (int)(n <= 40 ? n : 40), p, n <= 40 ? "" : "...");
        if (!parse_int(word, &id) || id < 0 || id > INT32_MAX)
            return fail(err, SWL_E_ARG, "--ids: \"%s\" is not a token id; expected numbers with commas between them", word);
        narrow = (int32_t)id;
        st = id_list_append(l, &narrow, 1, err);
        p += n;
        p += strspn(p, " ");
        if (!*p)
            break;
        if (*p++ != ',')
            return fail(err, SWL_E_ARG, "--ids: expected a comma before \"%.20s\"", p - 1);
    }
    return st;
}
