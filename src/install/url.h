/* url.h: the little that downloads need to know about URLs: who is asked, where a redirect leads, what may be shown. */
#ifndef SWL_INSTALL_URL_H
#define SWL_INSTALL_URL_H

#include <stdbool.h>
#include <stdint.h>

#define SWL_URL_BYTES_MAX 8192

/* Scheme, host and port: who answers a request. */
typedef struct swl_origin {
    bool https;
    char host[256]; /* lower case; IPv6 addresses keep their brackets */
    int port;
} swl_origin;

/* False for anything but http and https with a host, for user names, and for blanks and control characters. */
bool swl_url_origin(const char *url, swl_origin *o);
bool swl_origin_equal(const swl_origin *a, const swl_origin *b);
bool swl_origin_is_loopback(const swl_origin *o);

/* Where "Location: to" leads from `from`; NULL when it is no such URL, or out of memory. Free with swl_free. */
char *swl_url_resolve(const char *from, const char *to);
/* How many bytes of it messages may show: all but the query, which may be a signature. */
int swl_url_shown(const char *url);
/* Percent-encoded; "/" too, unless slashes part the path. Free with swl_free. */
char *swl_url_encode(const char *text, bool keep_slashes);

#endif
