/* url.c: see url.h. Redirects are followed by hand, so relative targets are resolved here (RFC 3986, section 5.2.2). */
#include "install/url.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool is_plain(const char *url)
{
    size_t n = strlen(url);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)url[i] <= 0x20 || url[i] == 0x7f || url[i] == '\\')
            return false;
    return n < SWL_URL_BYTES_MAX;
}

/* The bytes of "https://" or "http://"; 0 when it is neither. */
static size_t scheme(const char *url, bool *https)
{
    static const char *const names[] = {"http://", "https://"};

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(names[i]), k = 0;

        while (k < n && tolower((unsigned char)url[k]) == names[i][k])
            k++;
        *https = i == 1;
        if (k == n)
            return n;
    }
    return 0;
}

/* ":8080" or nothing. */
static bool read_port(const char *s, size_t n, int *port)
{
    int v = 0;

    if (!n)
        return true;
    if (n < 2 || n > 6)
        return n == 1; /* a colon alone means the default */
    for (size_t i = 1; i < n; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        v = 10 * v + s[i] - '0';
    }
    *port = v;
    return v > 0 && v < 65536;
}

bool swl_url_origin(const char *url, swl_origin *o)
{
    size_t n = is_plain(url) ? scheme(url, &o->https) : 0, host, all;

    if (!n)
        return false;
    url += n;
    all = strcspn(url, "/?#");
    if (memchr(url, '@', all))
        return false;
    host = *url == '[' ? strcspn(url, "]") + 1 : strcspn(url, ":/?#");
    if (!host || host > all || host >= sizeof o->host)
        return false;
    for (size_t i = 0; i < host; i++) {
        if (!isalnum((unsigned char)url[i]) && !strchr("-._[]:", url[i]))
            return false;
        o->host[i] = (char)tolower((unsigned char)url[i]);
    }
    o->host[host] = 0;
    o->port = o->https ? 443 : 80;
    if (host < all && url[host] != ':')
        return false;
    return read_port(url + host, all - host, &o->port);
}

bool swl_origin_equal(const swl_origin *a, const swl_origin *b)
{
    return a->https == b->https && a->port == b->port && !strcmp(a->host, b->host);
}

bool swl_origin_is_loopback(const swl_origin *o)
{
    const char *h = o->host;

    if (!strcmp(h, "localhost") || !strcmp(h, "[::1]"))
        return true;
    return !strncmp(h, "127.", 4) && h[strspn(h, "0123456789.")] == 0;
}

static char *checked(char *url)
{
    swl_origin o;

    if (url && !swl_url_origin(url, &o)) {
        swl_free(url);
        url = NULL;
    }
    return url;
}

char *swl_url_resolve(const char *from, const char *to)
{
    bool https;
    size_t n = scheme(from, &https), host, path;

    if (!n || !is_plain(to))
        return NULL;
    if (scheme(to, &https))
        return checked(swl_strdup(to));
    if (!strncmp(to, "//", 2))
        return checked(swl_asprintf("%.*s%s", (int)n - 2, from, to));
    if (to[strcspn(to, ":/?#")] == ':')
        return NULL; /* another scheme */
    host = n + strcspn(from + n, "/?#");
    if (*to == '/')
        return checked(swl_asprintf("%.*s%s", (int)host, from, to));
    path = host + strcspn(from + host, "?#");
    if (*to == '?')
        return checked(swl_asprintf("%.*s%s", (int)path, from, to));
    while (path > host && from[path - 1] != '/')
        path--;
    return checked(swl_asprintf("%.*s%s%s", (int)path, from, path == host ? "/" : "", to));
}

int swl_url_shown(const char *url)
{
    return (int)strcspn(url, "?#");
}

char *swl_url_encode(const char *text, bool keep_slashes)
{
    char *out = swl_calloc(strlen(text) + 1, 3), *p = out;

    for (; out && *text; text++) {
        unsigned char c = (unsigned char)*text;

        if ((c < 0x80 && (isalnum(c) || strchr("-._~", c))) || (c == '/' && keep_slashes))
            *p++ = (char)c;
        else
            p += snprintf(p, 4, "%%%02X", c);
    }
    return out;
}
