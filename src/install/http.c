/* http.c: see http.h. The only file that knows libcurl; without it downloads are refused by name. */
#include "install/http.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "install/http_fields.h"

#if SWL_HAVE_CURL

#include <curl/curl.h>
#include <stdio.h>
#include <time.h>

#define RECEIVE_BYTES (256 << 10)
_Static_assert(sizeof((swl_exchange){0}.detail) >= CURL_ERROR_SIZE, "libcurl writes so many bytes");

struct swl_http {
    CURLM *multi;
    char *bearer, *proxy, *no_proxy, *ca_file, *agent;
    swl_origin origin; /* of the endpoint, when there is a token */
    long connect_ms;
};

bool swl_http_gets_token(const swl_http *h, const char *url)
{
    swl_origin o;

    return h->bearer && swl_url_origin(url, &o) && swl_origin_equal(&o, &h->origin) &&
           (o.https || swl_origin_is_loopback(&o));
}

static bool keep(char **dst, const char *s)
{
    *dst = s ? swl_strdup(s) : NULL;
    return !s || *dst;
}

swl_status swl_http_open(swl_http **out, const swl_http_options *opt, swl_error *err)
{
    swl_http *h = swl_calloc(1, sizeof *h);
    bool token = opt->token && *opt->token;

    *out = NULL;
    if (!h)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a connection");
    h->connect_ms = (long)(1000 * opt->connect_seconds);
    if (token && strpbrk(opt->token, "\r\n")) {
        swl_http_close(h);
        return swl_fail(err, SWL_E_ARG, "the access token holds a line break");
    }
    h->bearer = token ? swl_asprintf("Authorization: Bearer %s", opt->token) : NULL;
    h->agent = swl_asprintf("swiftlet/%s", swl_version());
    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h->multi = curl_multi_init()) || (token && !h->bearer) || !h->agent ||
        !keep(&h->proxy, opt->proxy) || !keep(&h->no_proxy, opt->no_proxy) || !keep(&h->ca_file, opt->ca_file)) {
        swl_http_close(h);
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a connection");
    }
    if (h->bearer && !swl_url_origin(opt->endpoint, &h->origin)) {
        swl_http_close(h);
        return swl_fail(err, SWL_E_ARG, "\"%s\" is no endpoint; expected https://HOST", opt->endpoint);
    }
    *out = h;
    return SWL_OK;
}

void swl_http_close(swl_http *h)
{
    if (!h)
        return;
    if (h->multi)
        curl_multi_cleanup(h->multi);
    swl_free(h->bearer);
    swl_free(h->proxy);
    swl_free(h->no_proxy);
    swl_free(h->ca_file);
    swl_free(h->agent);
    swl_free(h);
}

/* The value of a field line when it has this name, without blanks around it. Free with swl_free. */
static char *field(const char *line, size_t n, const char *name)
{
    size_t k = strlen(name);

    if (n <= k || line[k] != ':' || !curl_strnequal(line, name, k))
        return NULL;
    line += k + 1;
    n -= k + 1;
    while (n && strchr(" \t", *line))
        line++, n--;
    while (n && strchr(" \t\r\n", line[n - 1]))
        n--;
    return swl_strndup(line, n);
}

/* A new status line begins a new answer (after "100 Continue" and the like). */
static void begin_answer(swl_exchange *x)
{
    x->has_content_range = false;
    x->content_length = x->retry_after = -1;
    swl_free(x->location);
    swl_free(x->link_next);
    x->location = x->link_next = NULL;
}

static size_t on_field(char *line, size_t size, size_t n, void *arg)
{
    swl_exchange *x = arg;
    char *v, next[SWL_URL_BYTES_MAX];

    n *= size;
    if (n > 5 && !memcmp(line, "HTTP/", 5)) {
        begin_answer(x);
        return n;
    }
    if ((v = field(line, n, "Content-Range")))
        x->has_content_range = swl_field_content_range(v, &x->range_begin, &x->range_end, &x->range_total);
    else if ((v = field(line, n, "Retry-After")))
        x->retry_after = swl_field_retry_after(v, (int64_t)time(NULL));
    else if ((v = field(line, n, "Link"))) {
        if (!x->link_next && swl_field_link_next(v, next, sizeof next))
            x->link_next = swl_strdup(next);
    } else if ((v = field(line, n, "Location")) && !x->location) {
        x->location = v;
        return n;
    }
    swl_free(v);
    return n;
}

static void read_status(swl_exchange *x)
{
    curl_off_t length = -1;
    long status = 0;

    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(x->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    x->status = (int)status;
    x->content_length = length;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    swl_exchange *x = arg;
    swl_status st;

    n *= size;
    read_status(x);
    x->n_body += n;
    if (x->status != 200 && x->status != 206 && !x->body_of_errors)
        return n;
    st = x->sink ? x->sink(x->arg, x, (const uint8_t *)data, n, &x->error) : SWL_OK;
    x->failed_locally = st != SWL_OK;
    return st ? 0 : n;
}

static bool add_field(swl_exchange *x, const char *text)
{
    struct curl_slist *l = curl_slist_append(x->fields, text);

    if (l)
        x->fields = l;
    return l != NULL;
}

static swl_status set_up(const swl_http *h, swl_exchange *x, swl_error *err)
{
    CURL *e = x->easy;
    bool ok = add_field(x, "Accept-Encoding: identity");

    x->sent_token = swl_http_gets_token(h, x->url);
    if (x->sent_token)
        ok = ok && add_field(x, h->bearer);
    if (x->ranged)
        x->range_text = swl_asprintf("%llu-%llu", (unsigned long long)x->begin, (unsigned long long)x->end - 1);
    if (!ok || (x->ranged && !x->range_text))
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a request");
    curl_easy_setopt(e, CURLOPT_URL, x->url);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, x->fields);
    curl_easy_setopt(e, CURLOPT_RANGE, x->range_text);
    curl_easy_setopt(e, CURLOPT_USERAGENT, h->agent);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, h->connect_ms);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_field);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, x->detail);
    curl_easy_setopt(e, CURLOPT_PROXY, h->proxy ? h->proxy : "");
    curl_easy_setopt(e, CURLOPT_NOPROXY, h->no_proxy ? h->no_proxy : "");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* a connection for each stream */
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* a cancelled look-up of a name is not waited for */
#endif
    if (h->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, h->ca_file);
    curl_easy_setopt(e, CURLOPT_PRIVATE, x);
    return SWL_OK;
}

swl_status swl_http_start(swl_http *h, swl_exchange *x, swl_error *err)
{
    swl_status st;

    swl_http_reset(x);
    x->status = 0;
    x->finished = x->failed_locally = x->connect_failed = x->bad_certificate = x->sent_token = false;
    x->n_body = 0;
    x->problem[0] = x->detail[0] = 0;
    x->error = (swl_error){0};
    begin_answer(x);
    x->owner = h;
    x->easy = curl_easy_init();
    if (!x->easy)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a request");
    st = set_up(h, x, err);
    if (!st && curl_multi_add_handle(h->multi, x->easy))
        st = swl_fail(err, SWL_E_FAIL, "libcurl cannot start a request");
    if (st) {
        curl_easy_cleanup(x->easy); /* not part of the multi handle */
        x->easy = NULL;
        swl_http_reset(x);
    }
    return st;
}

void swl_http_reset(swl_exchange *x)
{
    if (x->easy) {
        curl_multi_remove_handle(x->owner->multi, x->easy);
        curl_easy_cleanup(x->easy);
    }
    x->easy = NULL;
    curl_slist_free_all(x->fields);
    x->fields = NULL;
    swl_free(x->range_text);
    swl_free(x->location);
    swl_free(x->link_next);
    x->range_text = x->location = x->link_next = NULL;
}

static void end_exchange(CURLcode code, swl_exchange *x)
{
    read_status(x);
    x->finished = true;
    x->connect_failed = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
                        code == CURLE_COULDNT_RESOLVE_PROXY;
    x->bad_certificate = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    if (code)
        snprintf(x->problem, sizeof x->problem, "%s",
                 x->bad_certificate && x->detail[0] ? x->detail : curl_easy_strerror(code)); /* which fault it has */
}

swl_status swl_http_run(swl_http *h, int milliseconds, swl_error *err)
{
    int n_running, n_left;
    CURLMsg *m;

    if (curl_multi_poll(h->multi, NULL, 0, milliseconds, NULL) || curl_multi_perform(h->multi, &n_running))
        return swl_fail(err, SWL_E_FAIL, "libcurl cannot go on");
    while ((m = curl_multi_info_read(h->multi, &n_left)))
        if (m->msg == CURLMSG_DONE) {
            swl_exchange *x = NULL;
            CURLcode code = m->data.result;

            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
            end_exchange(code, x);
        }
    return SWL_OK;
}

#else

swl_status swl_http_open(swl_http **out, const swl_http_options *opt, swl_error *err)
{
    (void)opt;
    *out = NULL;
    return swl_fail(err, SWL_E_UNSUPPORTED,
                    "this build has no downloads: libcurl was missing when it was made; local directories can be converted");
}

void swl_http_close(swl_http *h)
{
    (void)h;
}

swl_status swl_http_start(swl_http *h, swl_exchange *x, swl_error *err)
{
    (void)h, (void)x;
    return swl_fail(err, SWL_E_UNSUPPORTED, "this build has no downloads");
}

swl_status swl_http_run(swl_http *h, int milliseconds, swl_error *err)
{
    (void)h, (void)milliseconds;
    return swl_fail(err, SWL_E_UNSUPPORTED, "this build has no downloads");
}

void swl_http_reset(swl_exchange *x)
{
    (void)x;
}

bool swl_http_gets_token(const swl_http *h, const char *url)
{
    (void)h, (void)url;
    return false;
}

#endif
