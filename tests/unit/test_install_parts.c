/*
 * The parts that downloads are made of: URLs (RFC 3986), header fields (RFC 9110, RFC 8288), digests (FIPS 180-4, git), ranges,
 * patterns, sources.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "install/digest.h"
#include "install/http_fields.h"
#include "install/listing.h"
#include "install/source.h"
#include "install/spans.h"
#include "install/url.h"

static void same_text(char *found, const char *want)
{
    if (want)
        assert_string_equal(found, want);
    else
        assert_null(found);
    swl_free(found);
}

static void redirects_lead_where_the_rules_say(void **state)
{
    const char *base = "https://host:8443/a/b/c?query=1";

    (void)state;
    same_text(swl_url_resolve(base, "http://other/x"), "http://other/x");
    same_text(swl_url_resolve(base, "//other/x"), "https://other/x");
    same_text(swl_url_resolve(base, "/x?y=1"), "https://host:8443/x?y=1");
    same_text(swl_url_resolve(base, "d"), "https://host:8443/a/b/d");
    same_text(swl_url_resolve(base, "?z"), "https://host:8443/a/b/c?z");
    same_text(swl_url_resolve("https://host", "x"), "https://host/x");
    same_text(swl_url_resolve(base, "file:///etc/passwd"), NULL);
    same_text(swl_url_resolve(base, "https://user:password@host/"), NULL);
    same_text(swl_url_resolve(base, "/a b"), NULL);
    same_text(swl_url_resolve(base, "https://ho\nst/"), NULL);
}

static void an_origin_is_scheme_host_and_port(void **state)
{
    swl_origin a, b;

    (void)state;
    assert_true(swl_url_origin("HTTPS://Host/x", &a) && swl_url_origin("https://host:443", &b));
    assert_true(swl_origin_equal(&a, &b));
    assert_true(swl_url_origin("http://host:443", &b));
    assert_false(swl_origin_equal(&a, &b));
    assert_true(swl_url_origin("https://host.evil", &b));
    assert_false(swl_origin_equal(&a, &b));
    assert_true(swl_url_origin("http://[::1]:80/", &a) && swl_origin_is_loopback(&a));
    assert_true(swl_url_origin("http://127.0.0.1.evil/", &a) && !swl_origin_is_loopback(&a));
    assert_false(swl_url_origin("ftp://host/", &a));
    assert_false(swl_url_origin("https://", &a));
    assert_false(swl_url_origin("https://host:99999/", &a));
    assert_false(swl_url_origin("https://a@b/", &a));
    assert_int_equal(swl_url_shown("https://h/p?signature=s"), 11);
}

static void paths_are_encoded_byte_by_byte(void **state)
{
    (void)state;
    same_text(swl_url_encode("refs/pr/1", false), "refs%2Fpr%2F1");
    same_text(swl_url_encode("a/b c\xc3\xa9%.bin", true), "a/b%20c%C3%A9%25.bin");
}

static void a_content_range_must_be_whole(void **state)
{
    uint64_t b, e, t;

    (void)state;
    assert_true(swl_field_content_range("bytes 0-99/1000", &b, &e, &t));
    assert_true(b == 0 && e == 100 && t == 1000);
    assert_true(swl_field_content_range("Bytes  5-5/6 ", &b, &e, &t) && b == 5 && e == 6);
    assert_false(swl_field_content_range("bytes */1000", &b, &e, &t));
    assert_false(swl_field_content_range("bytes 0-99/*", &b, &e, &t));
    assert_false(swl_field_content_range("bytes 99-0/1000", &b, &e, &t));
    assert_false(swl_field_content_range("bytes 0-1000/1000", &b, &e, &t));
    assert_false(swl_field_content_range("bytes 0-99999999999999999999999/1000", &b, &e, &t));
    assert_false(swl_field_content_range("items 0-1/2", &b, &e, &t));
}

static void the_next_page_is_found_among_links(void **state)
{
    char url[64];

    (void)state;
    assert_true(swl_field_link_next("<https://h/1>; rel=\"prev\", <https://h/2?a=b>; title=x; rel=\"next\"", url, sizeof url));
    assert_string_equal(url, "https://h/2?a=b");
    assert_true(swl_field_link_next("</3>;rel=next", url, sizeof url));
    assert_string_equal(url, "/3");
    assert_false(swl_field_link_next("<https://h/1>; rel=\"prev\"", url, sizeof url));
    assert_false(swl_field_link_next("https://h/1; rel=next", url, sizeof url));
    assert_false(swl_field_link_next("<https://host/that/does/not/fit>; rel=next", url, 10));
}

static void retry_after_is_seconds_or_a_date(void **state)
{
    (void)state;
    assert_int_equal(swl_field_retry_after("120", 0), 120);
    /* 784111777 is the moment of RFC 9110's example. */
    assert_int_equal(swl_field_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 - 30), 30);
    assert_int_equal(swl_field_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 + 30), 0);
    assert_int_equal(swl_field_retry_after("Thu, 29 Feb 2024 00:00:00 GMT", 1709164799), 1);
    assert_int_equal(swl_field_retry_after("soon", 0), -1);
    assert_int_equal(swl_field_retry_after("-5", 0), -1);
}

static void digests_are_those_of_the_standards(void **state)
{
    swl_digest d;
    swl_error err;

    (void)state;
    assert_int_equal(swl_digest_memory("abc", 3, SWL_DIGEST_SHA256, &d, &err), SWL_OK);
    assert_string_equal(d.hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(swl_digest_memory("hello\n", 6, SWL_DIGEST_GIT_SHA1, &d, &err), SWL_OK);
    assert_string_equal(d.hex, "ce013625030ba8dba906f756967f9e9ca394464a"); /* echo hello | git hash-object --stdin */
    assert_false(swl_digest_set(&d, SWL_DIGEST_SHA256, "xyz"));
}

/* NIST's message of a million times "a", put away and taken up again at every length that matters. */
static void a_hash_goes_on_in_another_place(void **state)
{
    static char a[1000];
    swl_sha256 *h = swl_sha256_new(), *other = swl_sha256_new();
    char hex[65], *text;
    size_t left = 1000000, step = 1;

    (void)state;
    memset(a, 'a', sizeof a);
    for (size_t n; left; left -= n, step = step % 997 + 1) {
        n = step < left ? step : left;
        swl_sha256_update(h, a, n);
        text = swl_sha256_save(h);
        assert_true(swl_sha256_load(other, text));
        assert_int_equal(swl_sha256_length(other), swl_sha256_length(h));
        swl_free(text);
        swl_sha256_reset(h);
        text = swl_sha256_save(other);
        assert_true(swl_sha256_load(h, text));
        swl_free(text);
    }
    swl_sha256_end(h, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert_false(swl_sha256_load(h, "5:00:"));
    assert_false(swl_sha256_load(h, ""));
    swl_sha256_free(h);
    swl_sha256_free(other);
}

static void ranges_join_and_leave_gaps(void **state)
{
    swl_spans s = {0};
    swl_span gap;

    (void)state;
    assert_true(swl_spans_add(&s, 10, 20) && swl_spans_add(&s, 30, 40) && swl_spans_add(&s, 0, 5));
    assert_true(s.n == 3 && swl_spans_total(&s) == 25);
    assert_true(swl_spans_gap(&s, 0, 50, &gap) && gap.begin == 5 && gap.end == 10);
    assert_true(swl_spans_gap(&s, 12, 50, &gap) && gap.begin == 20 && gap.end == 30);
    assert_true(swl_spans_gap(&s, 35, 50, &gap) && gap.begin == 40 && gap.end == 50);
    assert_true(swl_spans_add(&s, 20, 30) && s.n == 2);
    assert_true(swl_spans_add(&s, 3, 45) && s.n == 1 && s.s[0].begin == 0 && s.s[0].end == 45);
    assert_true(swl_spans_add(&s, 45, 50));
    assert_false(swl_spans_gap(&s, 0, 50, &gap));
    swl_spans_free(&s);
}

static void patterns_match_whole_paths(void **state)
{
    (void)state;
    assert_true(swl_glob("*.safetensors", "model-00001-of-00002.safetensors"));
    assert_true(swl_glob("packed_experts/layer_0?.bin", "packed_experts/layer_07.bin"));
    assert_true(swl_glob("*a*b*", "xxaxxbxx") && swl_glob("*", "") && swl_glob("a", "a"));
    assert_false(swl_glob("*.bin", "a.bin2") || swl_glob("?", "") || swl_glob("a*b", "acbd"));
}

static void is_hub(const char *text, const char *name, const char *revision)
{
    swl_source s;
    swl_error err;

    assert_int_equal(swl_source_parse(&s, text, NULL, NULL, &err), SWL_OK);
    assert_int_equal(s.kind, SWL_SOURCE_HUB);
    assert_string_equal(s.name, name);
    assert_string_equal(s.revision, revision);
    swl_source_deinit(&s);
}

static void sources_are_told_apart(void **state)
{
    swl_source s;
    swl_error err;

    (void)state;
    is_hub("org/name", "org/name", "main");
    is_hub("hf://org/name@v1.0", "org/name", "v1.0");
    is_hub("https://huggingface.co/org/name/tree/refs/pr/1", "org/name", "refs/pr/1");
    is_hub("https://huggingface.co/org/name", "org/name", "main");
    assert_int_equal(swl_source_parse(&s, "https://example.org/models/x", NULL, NULL, &err), SWL_OK);
    assert_int_equal(s.kind, SWL_SOURCE_MIRROR);
    assert_string_equal(s.name, "https://example.org/models/x/");
    swl_source_deinit(&s);
    assert_int_equal(swl_source_parse(&s, "/tmp", NULL, NULL, &err), SWL_OK);
    assert_int_equal(s.kind, SWL_SOURCE_DIR);
    swl_source_deinit(&s);
    assert_int_equal(swl_source_parse(&s, "hf://org/name@a", "b", NULL, &err), SWL_E_ARG);
    assert_int_equal(swl_source_parse(&s, "hf://../name", NULL, NULL, &err), SWL_E_ARG);
    assert_int_equal(swl_source_parse(&s, "ftp://host/x", NULL, NULL, &err), SWL_E_ARG);
    assert_int_equal(swl_source_parse(&s, "https://user:pw@host/", NULL, NULL, &err), SWL_E_ARG);
    assert_int_equal(swl_source_parse(&s, "nothing-like-that", NULL, NULL, &err), SWL_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(redirects_lead_where_the_rules_say),
        cmocka_unit_test(an_origin_is_scheme_host_and_port),
        cmocka_unit_test(paths_are_encoded_byte_by_byte),
        cmocka_unit_test(a_content_range_must_be_whole),
        cmocka_unit_test(the_next_page_is_found_among_links),
        cmocka_unit_test(retry_after_is_seconds_or_a_date),
        cmocka_unit_test(digests_are_those_of_the_standards),
        cmocka_unit_test(a_hash_goes_on_in_another_place),
        cmocka_unit_test(ranges_join_and_leave_gaps),
        cmocka_unit_test(patterns_match_whole_paths),
        cmocka_unit_test(sources_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
