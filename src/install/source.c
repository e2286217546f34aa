/* source.c: see source.h. */
#include "install/source.h"

#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/status.h"
#include "install/gguf_pick.h"
#include "install/url.h"

bool swl_glob(const char *pattern, const char *path)
{
    const char *star = NULL, *mark = NULL;

    while (*path) {
        if (*pattern == '*') {
            star = ++pattern;
            mark = path;
        } else if (*pattern == '?' || *pattern == *path) {
            pattern++;
            path++;
        } else if (star) {
            pattern = star;
            path = ++mark;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

void swl_source_deinit(swl_source *s)
{
    swl_free(s->name);
    swl_free(s->file);
    swl_free(s->label);
    swl_free(s->revision);
    swl_free(s->endpoint);
    *s = (swl_source){0};
}

const char *swl_source_label(const swl_source *s)
{
    return s->label ? s->label : s->name;
}

swl_status swl_source_set_file(swl_source *s, const char *file, swl_error *err)
{
    char *copy = swl_strdup(file);
    char *label = swl_asprintf("%s%s%s", s->name, s->kind == SWL_SOURCE_HUB ? ":" : "", file);

    swl_free(s->file);
    swl_free(s->label);
    s->file = copy;
    s->label = label;
    return copy && label ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "out of memory");
}

/* "org/name", both of letters, digits, ".", "_", "-", not beginning with a dot. */
static bool is_repo(const char *s, size_t n)
{
    size_t slash = 0, n_slashes = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '/') {
            slash = i;
            n_slashes++;
        } else if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i])) {
            return false;
        }
    }
    return n_slashes == 1 && slash > 0 && slash + 1 < n && n < 200 && s[0] != '.' && s[slash + 1] != '.';
}

static swl_status give(swl_source *s, swl_source_kind kind, char *name, char *revision, swl_error *err)
{
    s->kind = kind;
    s->name = name;
    s->revision = revision;
    return name && (kind != SWL_SOURCE_HUB || (revision && s->endpoint)) ? SWL_OK
                                                                         : swl_fail(err, SWL_E_NOMEM, "out of memory");
}

static bool revision_is_plain(const char *r)
{
    for (const char *p = r; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f)
            return false;
    return *r && strlen(r) < 256;
}

/* `text`: "org/name" with "@rev" or "/tree/rev" behind it, or nothing. */
static swl_status repository(swl_source *s, const char *text, const char *revision, swl_error *err)
{
    size_t n = strcspn(text, "@");
    const char *tree = strstr(text, "/tree/"), *inside = text[n] ? text + n + 1 : NULL;
    char *rev = NULL;

    if (tree && (size_t)(tree - text) < n) {
        n = (size_t)(tree - text);
        inside = tree + 6;
    }
    while (n && text[n - 1] == '/')
        n--;
    if (!is_repo(text, n))
        return swl_fail(err, SWL_E_ARG, "\"%.200s\" is no repository; expected ORG/NAME", text);
    if (inside && revision && strcmp(inside, revision))
        return swl_fail(err, SWL_E_ARG, "two revisions are given, %.100s and %.100s", inside, revision);
    inside = inside ? inside : revision ? revision : "main";
    if (!revision_is_plain(inside))
        return swl_fail(err, SWL_E_ARG, "\"%.200s\" is no revision", inside);
    rev = swl_strdup(inside);
    return give(s, SWL_SOURCE_HUB, swl_strndup(text, n), rev, err);
}

/* The same, with ":FILE" behind it, or nothing. */
static swl_status hub(swl_source *s, const char *text, const char *revision, swl_error *err)
{
    const char *colon = strchr(text, ':');
    char *repo = swl_strndup(text, colon ? (size_t)(colon - text) : strlen(text));
    swl_status st = repo ? repository(s, repo, revision, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    swl_free(repo);
    if (!st && colon && !swl_path_is_safe(colon + 1))
        st = swl_fail(err, SWL_E_ARG, "\"%.200s\" names no file of a repository; expected ORG/NAME:FILE.gguf", text);
    return st || !colon ? st : swl_source_set_file(s, colon + 1, err);
}

/* A page of a file: "org/name/blob/REV/FILE" or "org/name/resolve/REV/FILE". Returns false for other pages. */
static bool is_file_page(const char *page, const char **verb, const char **file)
{
    const char *slash = strchr(page, '/');

    *verb = slash ? strchr(slash + 1, '/') : NULL;
    if (!*verb || (strncmp(*verb, "/blob/", 6) && strncmp(*verb, "/resolve/", 9)))
        return false;
    *file = strchr(strchr(*verb + 1, '/') + 1, '/');
    *file = *file ? *file + 1 : "";
    return swl_gguf_is_name(*file);
}

static swl_status from_page(swl_source *s, const char *page, const char *revision, swl_error *err)
{
    const char *verb, *file, *rev;
    char *text;
    swl_status st;

    if (!is_file_page(page, &verb, &file))
        return hub(s, page, revision, err);
    rev = strchr(verb + 1, '/') + 1;
    text = swl_asprintf("%.*s@%.*s:%s", (int)(verb - page), page, (int)(file - 1 - rev), rev, file);
    st = text ? hub(s, text, revision, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");
    swl_free(text);
    return st;
}

static swl_status set_endpoint(swl_source *s, const char *endpoint, swl_error *err)
{
    size_t n = strlen(endpoint);
    swl_origin o;

    while (n && endpoint[n - 1] == '/')
        n--;
    s->endpoint = swl_strndup(endpoint, n);
    if (!s->endpoint)
        return swl_fail(err, SWL_E_NOMEM, "out of memory");
    if (!swl_url_origin(s->endpoint, &o) || s->endpoint[strcspn(s->endpoint, "?#")])
        return swl_fail(err, SWL_E_ARG, "\"%.200s\" is no endpoint of a hub; expected https://HOST", endpoint);
    return SWL_OK;
}

/* The path behind the endpoint, when `url` is one of its pages. */
static const char *page_of(const swl_source *s, const char *url)
{
    const char *of[] = {s->endpoint, SWL_HUB_ENDPOINT};

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(of[i]);

        if (!strncmp(url, of[i], n) && url[n] == '/')
            return url + n + 1;
    }
    return NULL;
}

/* A folder, or a GGUF file in one. */
static swl_status from_mirror(swl_source *s, const char *url, const char *revision, swl_error *err)
{
    size_t n = strlen(url);
    const char *file = strrchr(url, '/') + 1;
    bool is_file = swl_gguf_is_name(file);
    swl_status st;

    if (revision)
        return swl_fail(err, SWL_E_ARG, "a mirror has no revisions");
    if (is_file && !swl_path_is_safe(file))
        return swl_fail(err, SWL_E_ARG, "\"%.200s\" is no name of a file", file);
    st = give(s, SWL_SOURCE_MIRROR,
              is_file ? swl_strndup(url, (size_t)(file - url)) : swl_asprintf("%s%s", url, url[n - 1] == '/' ? "" : "/"),
              NULL, err);
    return st || !is_file ? st : swl_source_set_file(s, file, err);
}

/* "org/name" and what is behind it; a file of two parts is none. */
static bool is_page_of_repo(const char *page)
{
    size_t org = strcspn(page, "/"), n = page[org] ? org + 1 + strcspn(page + org + 1, "/") : org;

    return is_repo(page, n) && (page[n] || !swl_gguf_is_name(page));
}

static swl_status from_url(swl_source *s, const char *url, const char *revision, swl_error *err)
{
    const char *page = page_of(s, url);
    swl_origin o;

    if (!swl_url_origin(url, &o) || url[strcspn(url, "?#")])
        return swl_fail(err, SWL_E_ARG, "\"%.200s\" is not a URL of a folder or a GGUF file; expected https://HOST/PATH/",
                        url);
    return page && is_page_of_repo(page) ? from_page(s, page, revision, err) : from_mirror(s, url, revision, err);
}

/* As a browser copies it: what asks a hub for a download is no part of the file's name. */
static swl_status from_link(swl_source *s, const char *url, const char *revision, swl_error *err)
{
    static const char tail[] = "?download=true";
    size_t n = strlen(url), k = sizeof tail - 1;
    char *plain = swl_strndup(url, n > k && !strcmp(url + n - k, tail) ? n - k : n);
    swl_status st = plain ? from_url(s, plain, revision, err) : swl_fail(err, SWL_E_NOMEM, "out of memory");

    swl_free(plain);
    return st;
}

swl_status swl_source_parse(swl_source *s, const char *text, const char *revision, const char *endpoint, swl_error *err)
{
    swl_status st;

    *s = (swl_source){0};
    if (!text || !*text)
        return swl_fail(err, SWL_E_ARG, "no source is given");
    st = set_endpoint(s, endpoint ? endpoint : SWL_HUB_ENDPOINT, err);
    if (!st && !strncmp(text, "hf://", 5))
        st = hub(s, text + 5, revision, err);
    else if (!st && (!strncmp(text, "https://", 8) || !strncmp(text, "http://", 7)))
        st = from_link(s, text, revision, err);
    else if (!st && (swl_dir_exists(text) || swl_file_exists(text)))
        st = give(s, SWL_SOURCE_DIR, swl_strdup(text), NULL, err);
    else if (!st && strstr(text, "://"))
        st = swl_fail(err, SWL_E_ARG, "\"%.200s\" is neither http, https nor hf", text);
    else if (!st && (*text == '/' || *text == '.' || *text == '~' || !strchr(text, '/')))
        st = swl_fail_at(err, SWL_E_NOT_FOUND, text, -1, "there is no directory %s, and it is no ORG/NAME of a hub", text);
    else if (!st)
        st = hub(s, text, revision, err);
    if (st)
        swl_source_deinit(s);
    return st;
}
