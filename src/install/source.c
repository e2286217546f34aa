/* source.c: see source.h. */
#include "install/source.h"

#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
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
    swl_free(s->revision);
    swl_free(s->endpoint);
    *s = (swl_source){0};
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
static swl_status hub(swl_source *s, const char *text, const char *revision, swl_error *err)
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

static swl_status from_url(swl_source *s, const char *url, const char *revision, swl_error *err)
{
    const char *page = page_of(s, url);
    size_t n = strlen(url);
    swl_origin o;

    if (!swl_url_origin(url, &o) || url[strcspn(url, "?#")])
        return swl_fail(err, SWL_E_ARG, "\"%.200s\" is not a URL of a folder; expected https://HOST/PATH/", url);
    if (page && is_repo(page, strcspn(page, "/") + (page[strcspn(page, "/")]
                                                         ? 1 + strcspn(page + strcspn(page, "/") + 1, "/")
                                                         : 0)))
        return hub(s, page, revision, err);
    if (revision)
        return swl_fail(err, SWL_E_ARG, "a mirror has no revisions");
    return give(s, SWL_SOURCE_MIRROR, swl_asprintf("%s%s", url, url[n - 1] == '/' ? "" : "/"), NULL, err);
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
        st = from_url(s, text, revision, err);
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
