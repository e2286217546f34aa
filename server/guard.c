/*
 * guard.c: which requests may come in, by Host, Origin and key, before anything of them is read; and what is said to
 * browsers about it. A page of another site must reach a server on this machine neither by fetch (Origin, Sec-Fetch-Site)
 * nor by a name that it lets point here (Host).
 */
#include "srv.h"

#include <string.h>
#include <strings.h>

/* The name without the port; false when it is malformed. */
static bool host_name(const char *host, char *name, size_t size)
{
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const char *port;

    if (n > strlen(host) || n >= size || !n)
        return false;
    memcpy(name, host, n);
    name[n] = 0;
    port = host + n;
    return !*port || (*port == ':' && strspn(port + 1, "0123456789") == strlen(port + 1));
}

/* localhost, 127.0.0.0/8 spelled as four numbers, [::1] */
static bool is_loopback_name(const char *name)
{
    int n_dots = 0;

    if (!strcasecmp(name, "localhost") || !strcmp(name, "[::1]"))
        return true;
    if (strncmp(name, "127.", 4) || strspn(name, "0123456789.") != strlen(name) || strlen(name) > 15)
        return false;
    for (const char *p = name; *p; p++)
        n_dots += *p == '.';
    return n_dots == 3;
}

static bool is_own_name(const srv_server *s, const char *name)
{
    char bound[260];

    snprintf(bound, sizeof bound, strchr(s->host, ':') ? "[%s]" : "%s", s->host);
    if (is_loopback_name(name) || !strcasecmp(name, bound) || !strcasecmp(name, s->opt.host))
        return true;
    for (int32_t i = 0; i < s->opt.n_hosts; i++) {
        if (!strcasecmp(name, s->opt.hosts[i]))
            return true;
    }
    return false;
}

static bool check_host(const srv_conn *c, srv_error *e)
{
    const srv_server *s = c->server;
    char name[256];

    if (!c->head.host || !*c->head.host)
        return srv_fail(e, 400, "invalid_request_error", NULL, "the header Host is missing");
    if (!host_name(c->head.host, name, sizeof name))
        return srv_fail(e, 400, "invalid_request_error", NULL, "the header Host is malformed");
    if (s->is_unix || (!s->loopback && s->opt.n_keys) || is_own_name(s, name))
        return true;
    return srv_fail(e, 403, "permission_error", NULL, "the header Host names another server; --allowed-hosts lists further names of this one");
}

static bool is_listed_origin(const srv_server *s, const char *origin)
{
    for (int32_t i = 0; i < s->opt.n_origins; i++) {
        if (!strcasecmp(origin, s->opt.origins[i]) || !strcmp(s->opt.origins[i], "*"))
            return true;
    }
    return false;
}

static bool is_allowed_origin(const srv_conn *c, const char *origin)
{
    const char *host = strncasecmp(origin, "http://", 7) ? strncasecmp(origin, "https://", 8) ? NULL : origin + 8 : origin + 7;
    char name[256];

    if (is_listed_origin(c->server, origin))
        return true;
    if (!host || !host_name(host, name, sizeof name))
        return false;
    return is_loopback_name(name) || !strcasecmp(host, c->head.host);
}

static bool check_origin(srv_conn *c, srv_error *e)
{
    const char *origin = srv_header_get(&c->head, "origin"), *site = srv_header_get(&c->head, "sec-fetch-site");

    if (!origin && (!site || strcasecmp(site, "cross-site")))
        return true;
    if (!origin || strlen(origin) >= sizeof c->origin || !is_allowed_origin(c, origin))
        return srv_fail(e, 403, "permission_error", NULL, "pages of other sites may not use this server; --cors-origins lists those that may");
    snprintf(c->origin, sizeof c->origin, "%s", origin);
    return true;
}

/* In a time that does not tell how much of it was right. */
static bool same_key(const char *key, const char *given)
{
    size_t n = strlen(key), m = strlen(given);
    volatile unsigned char different = n != m;

    for (size_t i = 0; i < m; i++)
        different = (unsigned char)(different | ((unsigned char)given[i] ^ (unsigned char)key[n ? i % n : 0]));
    return !different;
}

static bool check_key(const srv_conn *c, srv_error *e)
{
    const srv_server *s = c->server;
    const char *bearer = srv_header_get(&c->head, "authorization"), *given = srv_header_get(&c->head, "x-api-key");
    unsigned allowed;
    const srv_route *r = srv_route_find(s, c->head.path, c->head.method, &allowed);
    bool good = false;

    if (!s->opt.n_keys || !strcmp(c->head.method, "OPTIONS") || (r && r->open))
        return true;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7))
        given = bearer + 7 + strspn(bearer + 7, " ");
    for (int32_t i = 0; given && i < s->opt.n_keys; i++)
        good |= same_key(s->opt.keys[i], given);
    return good || srv_fail(e, 401, "authentication_error", "invalid_api_key", given ? "the API key is wrong" : "an API key is needed: Authorization: Bearer KEY");
}

bool srv_guard(srv_conn *c, srv_error *e)
{
    unsigned allowed;
    bool ok = check_host(c, e) && check_origin(c, e);

    /* So that the error is in the path's dialect. */
    c->route = srv_route_find(c->server, c->head.path, c->head.method, &allowed);
    return ok && check_key(c, e);
}

void srv_guard_headers(const srv_conn *c, srv_text *t)
{
    if (!c->origin[0])
        return;
    srv_printf(t, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\nAccess-Control-Expose-Headers: x-request-id, retry-after\r\n", c->origin);
}

static bool may_be_sent(const char *name, size_t n)
{
    static const char *const exact[] = {"authorization", "content-type", "x-api-key"};

    for (int i = 0; i < 3; i++) {
        if (strlen(exact[i]) == n && !strncasecmp(name, exact[i], n))
            return true;
    }
    return (n > 10 && !strncasecmp(name, "anthropic-", 10)) || (n > 12 && !strncasecmp(name, "x-stainless-", 12)) ||
           (n == 15 && !strncasecmp(name, "accept-language", 15));
}

void srv_preflight(srv_conn *c)
{
    const char *asked = srv_header_get(&c->head, "access-control-request-headers");
    srv_text t = {0};
    int n_listed = 0;

    srv_puts(&t, "Allow: GET, HEAD, POST, DELETE, OPTIONS\r\n");
    if (c->origin[0]) {
        srv_puts(&t, "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\nAccess-Control-Max-Age: 600\r\n");
        for (const char *p = asked; p && *p;) {
            size_t n;

            p += strspn(p, ", \t");
            n = strcspn(p, ", \t");
            if (n && may_be_sent(p, n))
                srv_printf(&t, "%s%.*s", n_listed++ ? ", " : "Access-Control-Allow-Headers: ", (int)n, p);
            p += n;
        }
        if (n_listed)
            srv_puts(&t, "\r\n");
        if (srv_header_get(&c->head, "access-control-request-private-network"))
            srv_puts(&t, "Access-Control-Allow-Private-Network: true\r\n");
    }
    srv_reply(c, 204, NULL, t.failed ? NULL : t.p, NULL, 0);
    srv_text_free(&t);
}
