/*
 * Header fields of answers (Content-Range, Link, Retry-After) and targets of redirects. Whatever comes, ranges lie inside their
 * file, waits are not negative, and a redirect leads to http or https or nowhere.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "install/http_fields.h"
#include "install/url.h"

static void try_redirect(const char *to)
{
    static const char *const from[] = {"https://host/a/b?c=d", "http://127.0.0.1:80", "https://[::1]:8080/x/"};
    swl_origin o;

    for (int i = 0; i < 3; i++) {
        char *url = swl_url_resolve(from[i], to);

        CHECK(!url || swl_url_origin(url, &o));
        CHECK(!url || (o.host[0] && o.port > 0 && o.port < 65536 && !strchr(o.host, '@')));
        CHECK(!url || swl_url_shown(url) <= (int)strlen(url));
        swl_free(url);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = swl_calloc(size + 1, 1), link[64], *encoded;
    uint64_t begin, end, total;

    if (!text)
        return 0;
    memcpy(text, data, size);
    if (swl_field_content_range(text, &begin, &end, &total))
        CHECK(begin < end && end <= total);
    if (swl_field_link_next(text, link, sizeof link))
        CHECK(strlen(link) < sizeof link && strstr(text, link));
    CHECK(swl_field_retry_after(text, 1000000000) >= -1);
    try_redirect(text);
    encoded = swl_url_encode(text, true);
    CHECK(encoded && !strpbrk(encoded, " ?#\n"));
    swl_free(encoded);
    swl_free(text);
    return 0;
}
